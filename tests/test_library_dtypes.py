"""Libraries with arrays of every dtype: built with all checks, loaded, called with every kind of array."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from paper_target import QUICK
from toy_target import perfdojo_toy

from perfdojo_sdk import load_library
from perfdojo_sdk.core.domains import ROUNDING
from perfdojo_sdk.core.interpreter import interpret
from perfdojo_sdk.core.text import parse
from perfdojo_sdk.kernels.selection import select
from perfdojo_sdk.library.arrays import ArgumentTypeError, ArgumentValueError
from perfdojo_sdk.library.bfloat16 import MissingBfloat16
from perfdojo_sdk.library.build import build_library
from perfdojo_sdk.library.loader import Library
from perfdojo_sdk.plugins import load_plugins

TEXT = """kernel mixed(a, b, c, n) -> y, h, k
a bf16 [3,4] heap
b f16 [3,4] heap
c bool [3,4] heap
n u64 [3,4] heap
y bf16 [3,4] heap
h f16 [3,4] heap
k u64 [3,4] heap

3 4 y[{0},{1}] = a[{0},{1}] * a[{0},0] + bf16(b[{0},{1}])
3 4 h[{0},{1}] = select(c[{0},{1}], b[{0},{1}] / 3, f16(a[{0},{1}]))
3 4 k[{0},{1}] = max(n[{0},{1}], 5) * n[0,{1}]
"""
ml_dtypes = pytest.importorskip("ml_dtypes")
A = (np.arange(12, dtype=np.float32).reshape(3, 4) / 7).astype(ml_dtypes.bfloat16)
B = np.linspace(-2, 60000, 12).astype(np.float16).reshape(3, 4)
C = np.arange(12).reshape(3, 4) % 3 == 0
N = (np.arange(12, dtype=np.uint64).reshape(3, 4) << np.uint64(60)) + np.uint64(3)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built, with all three legs, from a program's text."""
    program = tmp_path_factory.mktemp("programs") / "mixed.dojo"
    program.write_text(TEXT)
    where = tmp_path_factory.mktemp("library")
    plugins = load_plugins(extra=[perfdojo_toy])
    kernels = select(str(program), plugins.operators)
    result = build_library(plugins, plugins.target("toy"), kernels, where, QUICK)
    assert result.manifest and not result.failed, result.failed
    return where


@pytest.fixture
def library(folder: Path) -> Library:
    return load_library(folder)


def meant() -> dict[str, Any]:
    inputs = {"a": A.astype(float), "b": B, "c": C.astype(int), "n": N}
    given = {name: array.ravel().tolist() for name, array in inputs.items()}
    return {n: np.array(v).reshape(3, 4) for n, v in interpret(parse(TEXT), given, ROUNDING).items()}


def test_arrays_of_numpy_and_ml_dtypes(library: Library) -> None:
    results = library.mixed(A, B, C, N)
    assert [r.dtype for r in results] == [ml_dtypes.bfloat16, np.float16, np.uint64]
    for result, values in zip(results, meant().values(), strict=True):
        np.testing.assert_array_equal(result.astype(values.dtype), values)


def test_tensors_of_torch_through_dlpack(library: Library) -> None:
    torch = pytest.importorskip("torch")
    a, b, c = torch.from_numpy(A.astype(np.float32)).bfloat16(), torch.from_numpy(B), torch.from_numpy(C)
    out = torch.empty(3, 4, dtype=torch.bfloat16), torch.empty(3, 4).half(), np.empty((3, 4), np.uint64)
    assert library.mixed(a, b, c, N, out=out) is out
    np.testing.assert_array_equal(out[0].float().numpy(), meant()["y"])
    np.testing.assert_array_equal(out[1].numpy(), meant()["h"])
    call = library.mixed.bind(torch.ones(3, 4).bfloat16(), b, c, N, out=out)  # nobody else holds the tensor
    call()
    assert out[0][0, 0] == 1 + float(B[0, 0])


def test_a_view_of_a_tensor_keeps_its_place(library: Library) -> None:
    torch = pytest.importorskip("torch")
    whole = torch.zeros(5, 4).bfloat16()
    whole[1:4] = torch.from_numpy(A.astype(np.float32)).bfloat16()
    np.testing.assert_array_equal(library.mixed(whole[1:4], B, C, N)[0].astype(float), meant()["y"])
    with pytest.raises(ArgumentValueError, match="strides") as caught:
        library.mixed(torch.zeros(3, 8).bfloat16()[:, ::2], B, C, N)
    assert caught.value.code == "PD-L012"


def test_numbers_of_another_dtype_are_no_bf16(library: Library) -> None:
    for wrong in (A.view(np.uint16), A.astype(np.float32), A.astype(ml_dtypes.float8_e5m2)):
        with pytest.raises(ArgumentTypeError) as caught:
            library.mixed(wrong, B, C, N)
        assert caught.value.code == "PD-L011"


def test_without_ml_dtypes_results_need_a_place(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    a = torch.from_numpy(A.astype(np.float32)).bfloat16()
    with pytest.raises(MissingBfloat16, match="no arrays of bf16") as caught:
        library.mixed(a, B, C, N)
    assert caught.value.code == "PD-L011"
    out = torch.empty_like(a), np.empty((3, 4), np.float16), np.empty((3, 4), np.uint64)
    library.mixed(a, B, C, N, out=out)
    np.testing.assert_array_equal(out[0].float().numpy(), meant()["y"])


def test_the_header_gives_callers_of_c_the_bits(folder: Path) -> None:
    headers = [path.read_text() for path in folder.glob("**/*.h")]
    (header,) = [text for text in headers if "workspace_bytes(int threads);" in text]
    assert "const uint16_t *a, const uint16_t *b, const uint8_t *c, const uint64_t *n" in header
    assert "#include <stdint.h>" in header

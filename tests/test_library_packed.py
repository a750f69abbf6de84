"""Libraries with packed arrays: built with all checks, described, and called with bytes or with elements."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from paper_target import QUICK
from toy_target import perfdojo_toy

from perfdojo_sdk import load_library
from perfdojo_sdk.graph.packed_arrays import pack
from perfdojo_sdk.hookspecs.types import Elements
from perfdojo_sdk.kernels.selection import SelectionError, select
from perfdojo_sdk.library.arrays import ArgumentTypeError, ArgumentValueError
from perfdojo_sdk.library.build import build_library
from perfdojo_sdk.library.loader import Library
from perfdojo_sdk.library.manifest import LibraryError
from perfdojo_sdk.plugins import load_plugins

ml_dtypes = pytest.importorskip("ml_dtypes")
TEXT = """kernel rows(w, s, x) -> y
w packed i4 [3,7] heap
s packed f4e2m1 [3] heap
x f32 [7] heap
y f32 [3] heap

3 y[{0}] = 0
3 7 y[{0}] += f32(w[{0},{1}]) * x[{1}] * f32(s[{0}])
"""
OTHER = """kernel NAME(w) -> y
w packed DTYPE [SHAPE] heap
y i32 [SHAPE] heap

LOOPS y[{0},{1}] = i32(w[{0},{1}])
"""
W = (np.arange(21).reshape(3, 7) % 16 - 8).astype(ml_dtypes.int4)
S = np.array([0.5, -3, 6], ml_dtypes.float4_e2m1fn)
X = np.arange(7, dtype=np.float32) - 2
MEANT = (W.astype(np.float32) @ X) * S.astype(np.float32)
W_BYTES = pack(W, Elements((3, 7), "i4"), 0xFF)
S_BYTES = pack(S, Elements((3,), "f4e2m1"), 0x7)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built, with all three legs, from programs' texts."""
    programs = tmp_path_factory.mktemp("programs")
    texts = {"rows": TEXT}
    for dtype, shape in (("u4", "4,6"), ("i4", "4,5"), ("u2", "3,5")):
        text = OTHER.replace("DTYPE", dtype).replace("SHAPE", shape).replace("LOOPS", shape.replace(",", " "))
        texts[f"whole{dtype}"] = text.replace("NAME", "whole")
    for name, text in texts.items():
        (programs / f"{name}.dojo").write_text(text)
    where = tmp_path_factory.mktemp("library")
    plugins = load_plugins(extra=[perfdojo_toy])
    kernels = select(" ".join(str(programs / f"{name}.dojo") for name in texts), plugins.operators)
    result = build_library(plugins, plugins.target("toy"), kernels, where, QUICK)
    assert result.manifest and not result.failed, result.failed
    return where


@pytest.fixture
def library(folder: Path) -> Library:
    return load_library(folder)


def test_elements_are_packed_on_the_way(library: Library) -> None:
    np.testing.assert_array_equal(library.rows(W, S, X), MEANT)
    np.testing.assert_array_equal(library.rows(W[::-1], S[::-1], X), MEANT[::-1])  # any strides
    np.testing.assert_array_equal(library.rows.bind(W, S, X)(), MEANT)


def test_bytes_are_passed_as_they_are(library: Library) -> None:
    np.testing.assert_array_equal(library.rows(W_BYTES, S_BYTES, X), MEANT)
    np.testing.assert_array_equal(library.rows(W_BYTES, S, X), MEANT)
    held = W_BYTES.copy()
    call = library.rows.bind(held, S_BYTES, X)
    held[:] = 0
    np.testing.assert_array_equal(call(), np.zeros(3))


def test_tensors_of_bytes_through_dlpack(library: Library) -> None:
    torch = pytest.importorskip("torch")
    y = library.rows(torch.from_numpy(W_BYTES), torch.from_numpy(S_BYTES), torch.from_numpy(X))
    np.testing.assert_array_equal(y, MEANT)


def test_arrays_that_do_not_fit_are_refused(library: Library) -> None:
    wrong: list[tuple[Any, type[Exception]]] = [
        (W_BYTES[:-1], ArgumentValueError),
        (W.astype(np.int8), ArgumentTypeError),
        (W.reshape(7, 3), ArgumentValueError),
        ((W.astype(np.uint8) & 15).astype(ml_dtypes.uint4), ArgumentTypeError),
    ]
    for array, kind in wrong:
        with pytest.raises(kind, match=r"packed i4 \[3,7\] in u8 \[11\]") as caught:
            library.rows(array, S, X)
        assert caught.value.code == "PD-L011"  # type: ignore[attr-defined]
        assert "as ml_dtypes has" in str(caught.value)
    with pytest.raises(ArgumentValueError, match="strides"):
        library.rows(np.stack([W_BYTES, W_BYTES], 1)[:, 0], S, X)


def test_bytes_choose_among_kernels(library: Library) -> None:
    values = np.arange(24).reshape(4, 6) % 16
    np.testing.assert_array_equal(library.whole(values.astype(np.uint8).astype(ml_dtypes.uint4)), values)
    np.testing.assert_array_equal(
        library.whole(pack(values.astype(np.uint8), Elements((4, 6), "u4"))), values
    )
    few = np.arange(15).reshape(3, 5) % 4
    np.testing.assert_array_equal(library.whole(pack(few.astype(np.uint8), Elements((3, 5), "u2"))), few)


def test_kernels_for_the_same_bytes_are_not_built_together(tmp_path: Path) -> None:
    for dtype in ("i4", "u4"):
        text = OTHER.replace("DTYPE", dtype).replace("SHAPE", "4,6").replace("LOOPS", "4 6")
        (tmp_path / f"{dtype}.dojo").write_text(text.replace("NAME", "whole"))
    with pytest.raises(SelectionError) as caught:
        select(" ".join(str(tmp_path / f"{dtype}.dojo") for dtype in ("i4", "u4")), load_plugins().operators)
    assert caught.value.code == "PD-K006"


def test_header_and_manifest_describe_the_layout(folder: Path, library: Library) -> None:
    text = next((folder / "include").glob("*.h")).read_text()
    assert "rows: w packed i4 [3,7], s packed f4e2m1 [3], x f32 [7] -> y f32 [3]" in text
    assert "A packed array has elements of less than a byte" in text and "const uint8_t *w" in text
    (entry,) = library.rows.kernels
    w, _, x = entry.inputs
    assert (w.dtype, w.shape) == ("u8", (11,)) and w.holds is not None
    assert (w.holds.dtype, w.holds.shape) == ("i4", (3, 7)) and x.holds is None


def test_a_manifest_with_too_few_bytes_is_refused(folder: Path, tmp_path: Path) -> None:
    told = json.loads((folder / "manifest.json").read_text())
    kernel = next(k for k in told["kernels"] if k["operator"] == "rows")
    kernel["inputs"][0]["holds"]["shape"] = [3, 70]
    (tmp_path / "manifest.json").write_text(json.dumps(told))
    with pytest.raises(LibraryError, match="other than 105 bytes"):
        load_library(tmp_path)

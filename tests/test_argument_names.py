"""Inputs that are called as arguments of the calls themselves: from Python, from C, and from PyTorch."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from paper_target import QUICK

from perfdojo_sdk import load_library, load_model
from perfdojo_sdk.core.text import parse
from perfdojo_sdk.graph.graph import Graph, Node, Value
from perfdojo_sdk.library.arrays import ArgumentTypeError, by_keyword, keywords
from perfdojo_sdk.library.loader import Operator
from perfdojo_sdk.measure.toolchain import find_toolchain
from perfdojo_sdk.models.model import Model
from perfdojo_sdk.models.optimise import optimise
from perfdojo_sdk.plugins import Plugins

NAMES = ("threads", "out", "workspace")
TEXT = """kernel named(threads, out, workspace) -> y
threads f32 [8] heap
out f32 [8] heap
workspace f32 [8] heap
y f32 [8] heap

8 y[{0}] = threads[{0}] + out[{0}] * workspace[{0}]
"""
A, B, C = (np.arange(8, dtype=np.float32) + k for k in range(3))
RESULT = A + B * C


@pytest.fixture(scope="module")
def model(linking_toy: Plugins, tmp_path_factory: pytest.TempPathFactory) -> Model:
    values = tuple(Value(name, (8,), "f32") for name in NAMES)
    result = Value("y", (8,), "f32")
    node = Node(parse(TEXT), NAMES, ("y",), "node")
    known = {v.name: v for v in (*values, result)}
    graph = Graph("named", values, (result,), (node,), known, {}, {})
    folder = tmp_path_factory.mktemp("named")
    optimise(linking_toy, linking_toy.target("toy"), graph, folder, QUICK, fuse=False)
    return load_model(folder)


@pytest.fixture
def operator(model: Model) -> Operator:
    library = load_library(model.directory / "library")
    return getattr(library, library.manifest.kernels[0].operator)  # type: ignore[no-any-return]


def test_inputs_are_given_by_position(model: Model, operator: Operator) -> None:
    y = np.empty_like(A)
    assert operator(A, B, C, out=y, threads=1) is y and np.array_equal(y, RESULT)
    assert np.array_equal(model(A, B, C, threads=1), RESULT)


def test_keywords_have_an_underscore_where_the_name_is_taken(model: Model, operator: Operator) -> None:
    assert np.array_equal(operator(threads_=A, out_=B, workspace_=C, threads=1), RESULT)
    assert np.array_equal(operator.bind(A, out_=B, workspace_=C)(), RESULT)
    assert np.array_equal(model(threads_=A, out=B, workspace=C, threads=1), RESULT), "models have no out="
    assert np.array_equal(model.bind(threads_=A, out=B, workspace=C)(), RESULT)
    assert np.array_equal(model.run({"threads": A, "out": B, "workspace": C})[0], RESULT)
    assert keywords(["threads", "threads_", "x"], ["threads"]) == {
        "threads__": "threads",
        "threads_": "threads_",
        "x": "x",
    }
    assert by_keyword({"x": "x"}) == ""


@pytest.mark.parametrize("bind", [False, True])
def test_the_message_says_how_such_an_input_is_given(model: Model, operator: Operator, bind: bool) -> None:
    calls: list[tuple[Any, dict[str, Any], str, str]] = [
        (operator, {"threads": A, "out": B, "workspace": C}, "takes 3 inputs (threads, out, workspace)",
         "threads= and out= and workspace= are arguments of the call itself"),
        (operator, {"threads": A, "out_": B, "workspace_": C}, "lacks threads",
         "threads= is an argument of the call itself: give the input by position, or by threads_="),
        (model, {"threads": A, "out": B, "workspace": C}, "input threads is missing",
         "threads= is an argument of the call itself: give the input by position, or by threads_="),
    ]  # fmt: skip
    for call, given, what, hint in calls:
        with pytest.raises(ArgumentTypeError) as refused:
            (call.bind if bind else call)(**given)
        assert what in refused.value.what and hint in refused.value.hint


MAIN = """
#include <stdio.h>
#include "HEADER"
int main(void) {
    float a[8], b[8], c[8], y[8];
    static _Alignas(64) char scratch[1 << 16];
    for (int i = 0; i < 8; i++) { a[i] = i; b[i] = i + 1; c[i] = i + 2; }
    int failed = KERNEL(a, b, c, y, scratch, sizeof scratch, 1);
    for (int i = 0; i < 8; i++) failed |= y[i] != a[i] + b[i] * c[i];
    return failed | MODEL(a, b, c, y, a, scratch, sizeof scratch, 1);
}
"""


def test_c_calls_such_kernels_and_models(model: Model, tmp_path: Path) -> None:
    library = model.directory / "library"
    [header] = (library / "include").glob("*.h")
    [shared] = (library / "lib").glob("*.so")
    names = re.findall(r"^int (pd_\w+)\((.*)\);$", header.read_text(), re.MULTILINE)
    (kernel, parameters), (symbol, _) = sorted(names, key=lambda pair: pair[0].startswith("pd_model_"))
    assert "float *threads_," in parameters and "float *workspace_," in parameters
    text = MAIN.replace("HEADER", str(header)).replace("KERNEL", kernel).replace("MODEL", symbol)
    (tmp_path / "main.c").write_text(text)
    command = [*find_toolchain().command, "main.c", str(shared), "-o", "main"]
    subprocess.run(command, cwd=tmp_path, check=True)
    subprocess.run([tmp_path / "main"], env={"LD_LIBRARY_PATH": str(shared.parent)}, check=True)


def test_torch_calls_such_modules() -> None:
    torch = pytest.importorskip("torch")

    import perfdojo_sdk.torch as backend

    class Named(torch.nn.Module):  # type: ignore[misc,name-defined]
        def forward(self, threads: Any, out: Any, workspace: Any) -> Any:
            return threads + out * workspace

    compiled = torch.compile(Named().eval(), backend="perfdojo", options={"interpret": True})
    a, b, c = map(torch.from_numpy, (A, B, C))
    with torch.no_grad():
        assert torch.equal(compiled(a, b, c), a + b * c)
        assert torch.equal(compiled(threads=a, out=b, workspace=c), a + b * c)
    assert "kernels" in backend.report(compiled).text

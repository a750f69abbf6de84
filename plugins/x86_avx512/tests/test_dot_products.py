"""The plan for products of a large matrix and a vector: rows in step."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from x86_support import PLUGINS, Kernel, play

from perfdojo_sdk.core.program import Scope
from perfdojo_sdk.core.text import parse
from perfdojo_sdk.experts.cpu.dot_products import ROWS
from perfdojo_sdk.experts.cpu.planner import plan
from perfdojo_sdk.verify.dependence import verify_dependence_trace

TARGETS = ("x86_avx512", "x86_avx2")
BuildAll = Callable[..., dict[str, Kernel]]


def linear(rows: int, columns: int, dtype: str = "f32") -> str:
    """A layer as the front end of PyTorch writes it, with a bias and an activation."""
    return (
        f"kernel linear(x, w, b) -> y\nx {dtype} [1,{columns}] heap\nw {dtype} [{rows},{columns}] heap\n"
        f"b {dtype} [{rows}] heap\ns {dtype} [1,{rows}] heap\ny {dtype} [1,{rows}] heap\n\n"
        f"{rows}\n| s[0,{{0}}] = 0\n| {columns} s[0,{{0}}] += x[0,{{1}}] * w[{{0}},{{1}}]\n"
        f"{rows} y[0,{{0}}] = max(s[0,{{0}}] + b[{{0}}], 0)\n"
    )


CASES = {"even": (1024, 2048), "rest": (1029, 1504), "odd": (1029, 1507)}


def _rules(text: str, target: str) -> set[str]:
    """The rules that decided something in the plan for a program."""
    found = PLUGINS.target(target)
    return {decision.rule for decision in plan(parse(text), PLUGINS.rules(found), found).decisions}


@pytest.mark.parametrize("target", TARGETS)
def test_rows_of_a_large_matrix_go_in_step(build_all: BuildAll, target: str) -> None:
    """Whole groups of rows and a rest, of whole vectors and a rest; the partial results of a group are in
    registers."""
    texts = {}
    for name, case in CASES.items():
        assert "rows in step" in _rules(linear(*case), target)
        (trace, *_) = play(linear(*case), target).traces
        texts[name] = trace.program.text
        partial = next(b for b in trace.program.buffers if b.location == "reg")
        assert [d.size for d in partial.dimensions if d.materialised][0] == ROWS
    rng = np.random.default_rng(3)
    for kernel in build_all(texts, target).values():
        inputs = [rng.standard_normal(spec.shape, np.float32) for spec in kernel.source.inputs]
        x, w, b = (each.astype(np.float64) for each in inputs)
        np.testing.assert_allclose(kernel(*inputs)[0], np.maximum(x @ w.T + b, 0), rtol=0, atol=1e-3)


def test_the_rows_of_a_product_with_a_column_go_in_step() -> None:
    """The loop over its only column is no loop between the rows and their sums."""
    text = (
        "kernel product(x, c) -> y\nx f32 [1029,1504] heap\nc f32 [1504,1] heap\ny f32 [1029,1] heap\n\n"
        "1029 1\n| y[{0},{1}] = 0\n| 1504 y[{0},{1}] += x[{0},{2}] * c[{2},{1}]\n"
    )
    assert "rows in step" in _rules(text, "x86_avx2")
    game = play(text, "x86_avx2")
    report = verify_dependence_trace(game.traces[0], game.rules)
    assert report, report.problem


def test_a_nest_that_starts_the_sums_is_joined_and_threads_start_once_for_all_gates() -> None:
    text = (
        "kernel gates(h, t, w) -> s\nh f32 [1,512] heap\nt f32 [1,4,512] heap\nw f32 [1,2048,512] heap\n"
        "s f32 [1,4,512] heap\n\n1 4 512 s[{0},{1},{2}] = t[{0},{1},{2}]\n"
        "1 4 512 512 s[{0},{1},{2}] += h[{0},{3}] * w[0,{1}*512+{2},{3}]\n"
    )
    (trace, *_) = play(text, "x86_avx512").traces
    (nest,) = trace.program.body
    assert isinstance(nest, Scope) and (nest.suffix, nest.size) == ("p", 512 // ROWS)
    assert [child.size for child in nest.body if isinstance(child, Scope)] == [4]


def test_doubles_go_in_step_too() -> None:
    assert "rows in step" in _rules(linear(801, 1024, "f64"), "x86_avx2")


def test_a_matrix_that_a_cache_holds_is_left_to_other_rules() -> None:
    assert "rows in step" not in _rules(linear(64, 256), "x86_avx2")
    assert "rows in step" not in _rules(linear(1 << 18, 7), "x86_avx2"), "rows shorter than a vector"
    assert "rows in step" not in _rules(linear(ROWS - 1, 1 << 20), "x86_avx2"), "few rows"


@pytest.mark.parametrize("columns", [1504, 1507])
def test_every_move_is_verified(columns: int) -> None:
    game = play(linear(1029, columns), "x86_avx2")
    report = verify_dependence_trace(game.traces[0], game.rules)
    assert report, report.problem

"""Kernels of quantised numbers: planned with sums in groups, proved, and right when they are compiled."""

from __future__ import annotations

import numpy as np
import pytest
from test_groups import games, needs_flags
from x86_support import PLUGINS

from perfdojo_sdk.core.program import Program
from perfdojo_sdk.graph.builder import Builder
from perfdojo_sdk.graph.graph import Graph
from perfdojo_sdk.graph.integers import unit_of, with_integer_sums
from perfdojo_sdk.graph.operators.contractions import matmul
from perfdojo_sdk.graph.operators.convolutions import conv
from perfdojo_sdk.graph.operators.quantisation import requantise, widened
from perfdojo_sdk.testing.numeric_leg import NumericLeg
from perfdojo_sdk.verify.dependence import verify_dependence_trace
from perfdojo_sdk.verify.exact import verify_exact_trace

RANDOM = np.random.default_rng(0)


def requantised(kind: str) -> Graph:
    """A product of matrices or a padded convolution with a scale for each column or filter."""
    b = Builder(kind)
    shapes: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
        "matmul": ((5, 24), (24, 18)),
        "row": ((1, 256), (256, 3)),
        "conv": ((1, 4, 3, 4), (18, 4, 3, 3)),
    }
    shape, of_weights = shapes[kind]
    filters = of_weights[0 if kind == "conv" else 1]
    x = b.input("x", shape, "u8")
    w = b.constant(RANDOM.integers(-128, 128, of_weights).astype(np.int8))
    scale, sx = b.constant(np.float32(0.5)), b.constant(np.float32(0.01))
    zero = b.constant(np.uint8(3))
    left, right = widened(b, x, zero, 0, "i16"), widened(b, w, None, 0, "i16")
    scales = b.constant((1 + RANDOM.random(filters)).astype(np.float32))
    if kind == "conv":
        left, right = widened(b, x, zero, 0), widened(b, w, None, 0)
        total = conv(b, left, right, None, [1, 1], [1, 1], [1, 1, 1, 1], "", 1)
    else:
        total = matmul(b, left, right, "i32")
    y = requantise(b, total, ((sx, 0), (scales, 1), (scale, 0)), b.constant(np.uint8(7)), 0)
    return b.graph({"y": y})


def kernel(kind: str, target: str) -> Program:
    graph, folds = with_integer_sums(requantised(kind), unit_of(PLUGINS.target(target).dialect), laws=False)
    assert [fold.law for fold in folds] == ["none"]
    return graph.nodes[0].program


@pytest.mark.parametrize("target", ["x86_avx512", "x86_avx2"])
def test_games_are_proved_and_compiled_kernels_are_right(target: str) -> None:
    needs_flags(target, *(["avx512_vnni"] if target == "x86_avx512" else []))
    found = PLUGINS.target(target)
    traces = [games(kernel(kind, target).text, target)[0] for kind in ("matmul", "row", "conv")]
    size = 4 if target == "x86_avx512" else 2
    for trace in traces:
        assert f":l {size}:d " in trace.program.text
        report = verify_dependence_trace(trace, PLUGINS.rules(found))
        assert report, report.problem
    assert verify_exact_trace(traces[0], found.dialect, models=1).ok
    some = traces if target == "x86_avx512" else traces[:1]
    assert NumericLeg(PLUGINS, found)(some, False) == [""] * len(some)

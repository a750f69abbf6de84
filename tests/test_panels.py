"""Constant operands in panels: the same bits, whatever stands around the product."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from perfdojo_sdk.graph.builder import Builder
from perfdojo_sdk.graph.graph import Graph, Value
from perfdojo_sdk.graph.operators import contractions, elementwise, reductions
from perfdojo_sdk.graph.passes import with_groups_joined
from perfdojo_sdk.graph.running import run_graph
from perfdojo_sdk.models.panels import with_panels

DRAW = np.random.default_rng(0)


def weights(b: Builder, *shape: int) -> Value:
    return b.constant(DRAW.standard_normal(shape).astype(np.float32))


def add(b: Builder, x: Value, y: Value) -> Value:
    return elementwise.binary(b, "add", lambda a, c: f"{a} + {c}", x, y)


def product(b: Builder) -> Value:
    return contractions.matmul(b, b.input("x", (5, 7), "f32"), weights(b, 7, 12))


def of_batches(b: Builder) -> Value:
    return contractions.matmul(b, b.input("x", (2, 3, 7), "f32"), weights(b, 7, 12))


def transposed(b: Builder) -> Value:
    return contractions.gemm(b, b.input("x", (5, 7), "f32"), weights(b, 12, 7), None, 1.0, 0.0, (False, True))


def of_turned_rows(b: Builder) -> Value:
    return contractions.gemm(b, b.input("x", (7, 5), "f32"), weights(b, 7, 12), None, 1.0, 0.0, (True, False))


def with_bias_and_residual(b: Builder) -> Value:
    made = add(b, of_batches(b), weights(b, 12))
    return elementwise.relu(b, add(b, made, b.input("z", (2, 3, 12), "f32")))


def with_prologue(b: Builder) -> Value:
    x = elementwise.relu(b, b.input("x", (5, 7), "f32"))
    return contractions.matmul(b, x, weights(b, 7, 12))


def summed(b: Builder) -> Value:
    return reductions.reduce_sum(b, with_bias_and_residual(b), [-1], False)


def bits(graph: Graph) -> list[bytes]:
    draw = np.random.default_rng(1)
    inputs = {v.name: draw.standard_normal(v.shape).astype(np.float32) for v in graph.inputs}
    return [array.tobytes() for array in run_graph(graph, inputs)]


@pytest.mark.parametrize("joined", [False, True], ids=["apart", "joined"])
@pytest.mark.parametrize(
    "make", [product, of_batches, transposed, of_turned_rows, with_bias_and_residual, with_prologue, summed]
)
def test_panels_change_no_bit(make: Callable[[Builder], Value], joined: bool) -> None:
    b = Builder()
    graph = b.graph({"y": make(b)})
    if joined:
        graph = with_groups_joined(graph, [tuple(range(len(graph.nodes)))])
    operands = {name: 4 for name, data in graph.constants.items() if data.ndim == 2}
    made, folds = with_panels(graph, operands)
    assert bits(made) == bits(graph)
    cut = [data.shape for name, data in made.constants.items() if data.ndim == 3]
    assert cut == [(3, 7, 4)] * len(folds)
    elsewhere = joined and make in (with_prologue, summed)  # something else stands in the loop over columns
    assert bool(folds) != elsewhere

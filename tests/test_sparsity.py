"""Sums over weights of which most are zero: the same sums, in fewer products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from perfdojo_sdk.graph.builder import Builder
from perfdojo_sdk.graph.graph import Graph, Value
from perfdojo_sdk.graph.operators import contractions, convolutions
from perfdojo_sdk.graph.running import run_graph
from perfdojo_sdk.graph.sparsity import with_zeros_left_out

DRAW = np.random.default_rng(5)


def weights(b: Builder, *shape: int, kept: float = 0.1) -> Value:
    """Small integers, so that sums have one value in every order; most are zero."""
    numbers = DRAW.integers(1, 9, shape) * (DRAW.random(shape) < kept)
    return b.constant(numbers.astype(np.float32))


def regular(b: Builder, *shape: int) -> Value:
    """Weights with as many numbers in each row."""
    numbers = DRAW.integers(1, 9, (shape[0], int(np.prod(shape[1:]))))
    numbers *= DRAW.random(numbers.shape).argsort(axis=1) < numbers.shape[1] // 8
    return b.constant(numbers.astype(np.float32).reshape(shape))


def graph_of(make: Callable[[Builder, Value], Value], *shape: int) -> Graph:
    b = Builder()
    return b.graph({"y": make(b, b.input("x", shape, "f32"))})


def results(graph: Graph) -> list[np.ndarray]:
    draw = np.random.default_rng(1)
    x = {v.name: draw.integers(-9, 9, v.shape).astype(np.float32) for v in graph.inputs}
    return run_graph(graph, x)


def conv(b: Builder, x: Value, w: Value, bias: Value | None = None, group: int = 1, **options: Any) -> Value:
    spatial = x.rank - 2
    given = {"strides": (1,) * spatial, "dilations": (1,) * spatial, "pads": (0,) * 2 * spatial, **options}
    return convolutions.conv(b, x, w, bias, auto_pad="NOTSET", group=group, **given)


PRODUCTS: dict[str, tuple[Callable[[Builder, Value], Value], tuple[int, ...], list[str]]] = {
    "rows of a batch": (
        lambda b, x: contractions.matmul(b, x, weights(b, 64, 64)),
        (16, 64),
        ["operand", "sparse", "result"],
    ),
    "rows of several batches": (
        lambda b, x: contractions.matmul(b, x, weights(b, 64, 64)),
        (2, 8, 64),
        ["operand", "sparse", "result"],
    ),
    "a linear layer": (
        lambda b, x: contractions.gemm(
            b, x, weights(b, 64, 64), weights(b, 64, kept=1), 1.0, 1.0, (False, True)
        ),
        (16, 64),
        ["operand", "sparse", "result", "gemm"],
    ),
    "weights on the left": (
        lambda b, x: contractions.matmul(b, regular(b, 64, 64), x),
        (64, 16),
        ["sparse"],
    ),
    "places of an image": (
        lambda b, x: conv(b, x, regular(b, 64, 64, 1, 1), weights(b, 64, kept=1)),
        (1, 64, 4, 4),
        ["sparse"],
    ),
    "sorted rows": (
        lambda b, x: conv(b, x, weights(b, 64, 64, 1, 1), weights(b, 64, kept=1)),
        (1, 64, 4, 4),
        ["sparse", "result"],
    ),
    "a padded window": (
        lambda b, x: conv(b, x, weights(b, 32, 16, 3, 3), weights(b, 32, kept=1), pads=(1, 1, 1, 1)),
        (2, 16, 3, 4),
        ["pad", "operand", "sparse", "result"],
    ),
    "a window with strides": (
        lambda b, x: conv(b, x, regular(b, 32, 32, 5), strides=(2,), dilations=(2,), pads=(3, 1)),
        (1, 32, 35),
        ["pad", "operand", "sparse"],
    ),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_with_zeros_are_left_out(name: str) -> None:
    make, shape, nodes = PRODUCTS[name]
    graph = graph_of(make, *shape)
    less, (fold,) = with_zeros_left_out(graph)
    assert [node.program.name for node in less.nodes] == nodes
    assert fold.law == "zeros times numbers" and "of the products are left" in fold.what
    for one, other in zip(results(graph), results(less), strict=True):
        assert one.dtype == other.dtype and (one == other).all()


REASONS: dict[str, tuple[Callable[[Builder, Value], Value], tuple[int, ...]]] = {
    "too few zeros": (lambda b, x: contractions.matmul(b, x, weights(b, 64, 64, kept=0.7)), (16, 64)),
    "too few lanes": (lambda b, x: contractions.matmul(b, x, weights(b, 64, 64)), (4, 64)),
    "too few weights": (lambda b, x: contractions.matmul(b, x, weights(b, 16, 16)), (16, 16)),
    "no constant": (lambda b, x: contractions.matmul(b, x, b.input("w", (64, 64), "f32")), (16, 64)),
    "groups": (
        lambda b, x: conv(b, x, weights(b, 64, 32, 3), group=2),
        (1, 64, 16),
    ),
}


@pytest.mark.parametrize("name", REASONS)
def test_what_stays_as_it_is(name: str) -> None:
    graph = graph_of(REASONS[name][0], *REASONS[name][1])
    less, folds = with_zeros_left_out(graph)
    assert less is graph and not folds


def test_a_row_of_zeros_is_its_bias() -> None:
    def make(b: Builder, x: Value) -> Value:
        numbers = np.zeros((64, 64, 1), np.float32)
        numbers[3, 5] = 2
        return conv(b, x, b.constant(numbers), weights(b, 64, kept=1))

    graph = graph_of(make, 1, 64, 16)
    less, (fold,) = with_zeros_left_out(graph)
    assert "at most 1 in a row" in fold.what
    assert (results(graph)[0] == results(less)[0]).all()

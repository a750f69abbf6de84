"""Gathers and scatters of the graph, on the interpreter, beside NumPy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from perfdojo_sdk.graph.builder import Builder
from perfdojo_sdk.graph.graph import Value
from perfdojo_sdk.graph.operators import elementwise as e
from perfdojo_sdk.graph.operators import gathers as g
from perfdojo_sdk.graph.refusals import Malformed
from perfdojo_sdk.graph.running import run_graph

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(0)
X = RNG.standard_normal((4, 5, 3)).astype(np.float32)


def run(rule: Callable[..., Any], *arrays: Array) -> list[Array]:
    """The results of ``rule`` on inputs that are data."""
    b = Builder()
    kinds = {"float32": "f32", "int64": "i64", "int32": "i32"}
    given = [b.input(f"a{k}", a.shape, kinds[a.dtype.name]) for k, a in enumerate(arrays)]
    made = rule(b, *given)
    values: Sequence[Value] = [made] if isinstance(made, Value) else made
    graph = b.graph({f"r{k}": value for k, value in enumerate(values)})
    return run_graph(graph, {f"a{k}": a for k, a in enumerate(arrays)})


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_gathers_at_places_that_are_data(axis: int) -> None:
    size = X.shape[axis]
    places = RNG.integers(-size, size, (2, 3))
    [found] = run(lambda b, x, i: g.gather(b, x, i, axis), X, places)
    assert (found == np.take(X, places, axis)).all()
    shape = [2 if k == axis % 3 else s for k, s in enumerate(X.shape)]
    at = RNG.integers(-size, size, shape).astype(np.int32)
    [found] = run(lambda b, x, i: g.gather_elements(b, x, i, axis), X, at)
    assert (found == np.take_along_axis(X, at.astype(np.int64) % size, axis)).all()


def test_tuples_choose_slices_in_each_batch() -> None:
    places = np.stack([RNG.integers(-5, 5, (4, 2)), RNG.integers(-3, 3, (4, 2))], -1)
    [found] = run(lambda b, x, i: g.gather_nd(b, x, i, 1), X, places)
    assert (found == np.array([[X[n, i, j] for i, j in places[n]] for n in range(4)])).all()


@pytest.mark.parametrize(("reduction", "combine"), [("none", None), ("add", np.add), ("max", np.maximum)])
def test_scatters_replace_or_combine_in_order(reduction: str, combine: Any) -> None:
    places, updates = np.array([[1], [3], [1], [-1]]), RNG.standard_normal((4, 5, 3)).astype(np.float32)
    expected = X.copy()
    for (place,), update in zip(places, updates, strict=True):
        expected[place] = update if combine is None else combine(expected[place], update)
    [found] = run(lambda b, x, i, u: g.scatter_nd(b, x, i, u, reduction), X, places, updates)
    assert np.allclose(found, expected, rtol=1e-6, atol=1e-6)
    whole = np.broadcast_to(places[:, :, None], (4, 5, 3)).copy()
    [again] = run(lambda b, x, i, u: g.scatter_elements(b, x, i, u, 0, reduction), X, whole, updates)
    assert (again == found).all()


def test_rows_are_written_from_a_start_of_each_batch_on() -> None:
    cache, update = np.zeros((2, 6, 3), np.float32), np.ones((2, 3, 3), np.float32)
    starts = np.array([1, 5])
    [found] = run(lambda b, c, u, s: g.write_rows(b, c, u, s, 1, True), cache, update, starts)
    assert found[:, :, 0].tolist() == [[0, 1, 1, 1, 0, 0], [1, 1, 0, 0, 0, 1]]


def test_sequences_are_reversed_up_to_their_lengths() -> None:
    [found] = run(lambda b, x, n: g.reverse_sequences(b, x, n, 0, 1), X, np.array([0, 1, 3, 5]))
    for row, whole, length in zip(found, X, (0, 1, 3, 5), strict=True):
        assert (row == np.concatenate([whole[:length][::-1], whole[length:]])).all()


@pytest.mark.parametrize("length", [-1, 6, 2**40])
def test_a_length_beyond_the_sequences_is_reported(length: int) -> None:
    with pytest.raises(Malformed) as refused:
        run(lambda b, x, n: g.reverse_sequences(b, x, n, 0, 1), X, np.array([0, 5, length, 1]))
    assert "a length is beyond 5 elements" in refused.value.what
    b = Builder()
    with pytest.raises(Malformed, match=f"length {length}"):
        g.reverse_sequences(b, b.input("x", (1, 5), "f32"), b.integers([length]), 0, 1)


@pytest.mark.parametrize(
    "rule", [e.divide, lambda b, x, y: e.modulo(b, x, y, True), lambda b, x, y: e.modulo(b, x, y, False)]
)
def test_a_division_of_integers_by_zero_is_reported_and_harmless(rule: Callable[..., Any]) -> None:
    whole = np.array([7, -7, -(2**31), 5], np.int32)
    assert len(run(rule, whole, np.array([2, 3, -1, 5], np.int32))[0]) == 4
    with pytest.raises(Malformed) as refused:
        run(rule, whole, np.array([2, 0, 1, 1], np.int32))
    assert refused.value.what.endswith("a divisor is zero")


def test_a_divisor_that_is_known_is_not_looked_at() -> None:
    b = Builder()
    x = b.input("x", (4,), "i64")
    assert not b.graph({"y": e.divide(b, x, b.integers([3]))}).checks
    assert b.graph({"y": e.divide(b, x, b.integers([0]))}).checks


@pytest.mark.parametrize("place", [-5, 4, 2**40])
def test_an_index_that_the_standard_forbids_is_reported_and_harmless(place: int) -> None:
    for rule in (lambda b, x, i: g.gather(b, x, i, 0), lambda b, x, i: g.gather_nd(b, x, i, 0)):
        with pytest.raises(Malformed) as refused:
            run(rule, X, np.array([[0], [place]]))
        assert "an index is beyond 4 elements" in refused.value.what
    b = Builder()
    with pytest.raises(Malformed, match="index"):
        g.gather(b, b.input("x", (4,), "f32"), b.integers([place]), 0)


@pytest.mark.parametrize(
    ("rule", "shapes"),
    [
        (lambda b, x, i: g.gather(b, x, i, 3), [(4, 5), (2,)]),
        (lambda b, x, i: g.gather_elements(b, x, i, 0), [(4, 5), (2, 6)]),
        (lambda b, x, i: g.gather_nd(b, x, i, 1), [(4, 5), (3, 1)]),
        (lambda b, x, i: g.gather_nd(b, x, i, 0), [(4, 5), (3, 3)]),
        (lambda b, x, i: g.reverse_sequences(b, x, i, 0, 1), [(4, 5), (5,)]),
        (lambda b, x, i: g.unpool(b, x, i, (4, 9)), [(4, 5), (4, 4)]),
    ],
)
def test_shapes_that_do_not_fit_are_malformed(
    rule: Callable[..., Any], shapes: list[tuple[int, ...]]
) -> None:
    b = Builder()
    with pytest.raises(Malformed):
        rule(b, b.input("x", shapes[0], "f32"), b.input("i", shapes[1], "i64"))

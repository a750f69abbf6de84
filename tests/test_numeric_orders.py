"""Results of reductions in any order that leg 2 allows, against all orders of small ones.

A result of any order is allowed; an infinity or a NaN that no order gives is refused, as is a
finite number where none comes out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import product as grid_of

import numpy as np
import pytest
from programs import DIALECT

from perfdojo_sdk.core.program import Program
from perfdojo_sdk.core.text import parse
from perfdojo_sdk.hookspecs.types import RunRequest
from perfdojo_sdk.verify.groups import Array
from perfdojo_sdk.verify.independent_rows import outermost_rows
from perfdojo_sdk.verify.judgement import Expected, _near
from perfdojo_sdk.verify.reference_c import OUTCOMES, ROWS, WIDE, reference
from perfdojo_sdk.verify.references import compiled, run_reference

INF, NAN = np.inf, np.nan
LARGEST = float(np.finfo(np.float32).max)
#: So large that two or three of them overflow, so small that they vanish, and what makes up for it.
#: No product of them is denormal: of these is not told whether they come to zero.
EXTREMES = (0.0, 1.0, -3.0, 3e38, -3e38, 1e20, -1e25, 1e-16, -1e-36, INF, -INF, NAN)
FEWER = (0.0, -1.0, 3e38, -2e38, 1e20, 1e-16, -1e-36, INF)
DENORMAL = (1e-45, -1e-38, 3e-42, 1e-20, 0.7, -1.5, 3e30, INF)
FINITE = (0.0, -1.0, 3e38, -3e38, 1e20, -1e20, 1e-25, -1e-40)
COMBINE = {"+": np.add, "*": np.multiply, "max": np.maximum, "min": np.minimum}


def trees(terms: Sequence[int]) -> Iterator[object]:
    """All ways to combine them pairwise; the two sides of a combination are not told apart."""
    if len(terms) == 1:
        yield terms[0]
        return
    first, *others = terms
    for chosen in range(2 ** len(others) - 1):
        left = [first, *(t for k, t in enumerate(others) if chosen >> k & 1)]
        right = [t for k, t in enumerate(others) if not chosen >> k & 1]
        yield from grid_of(trees(left), trees(right))


def in_all_orders(sign: str, terms: Sequence[Array]) -> Array:
    """The results of all trees, one after the other along the first dimension."""

    def value(tree: object) -> Array:
        if isinstance(tree, int):
            return terms[tree]
        left, right = tree  # type: ignore[misc]
        combined: Array = COMBINE[sign](value(left), value(right))
        return combined

    with np.errstate(all="ignore"):
        return np.stack([value(tree) for tree in trees(range(len(terms)))])


def judged(root: Program, any_order: bool, x: Array) -> Expected:
    """The expectation of leg 2 for each row; in any order of all its reductions, or only where lanes meet."""
    found = {}
    for kind in (OUTCOMES, WIDE):
        given, split, rows = {"x": x[None]}, None, 0
        if any_order:
            split, rows = outermost_rows(root), len(x)
            given[ROWS] = np.arange(rows, dtype=np.int32).reshape(1, rows, 1)
        source = reference(root, kind, {}, DIALECT, rows=rows, split=split, any_order=any_order)
        run = run_reference(compiled(source, ("-O1", "-ffp-contract=off")), RunRequest(inputs=given))
        found[kind] = {name: array[0] for name, array in run.items()}
    parts = (found[OUTCOMES][f"y_{part}"] for part in ("v", "e", "far", "lo", "hi"))
    return Expected(found[WIDE]["y_v"], *parts)


def allowed(expected: Expected, got: Array) -> Array:
    return np.asarray(~_near(got.astype(np.float32), expected, False)[1])


def compare(expected: Expected, results: Array, known: bool = True) -> None:
    """``results``: for each order, those of all rows. ``known``: what none of them has is refused."""
    for one in results:
        wrong = np.flatnonzero(~allowed(expected, one))
        assert not len(wrong), (wrong[0], one[wrong[0]], expected.at(wrong[:1]))
    if not known:
        return
    count = results.shape[1]
    for kind, reached in ((NAN, np.isnan), (INF, np.isposinf), (-INF, np.isneginf)):
        never = ~reached(results).any(axis=0)
        passed = np.flatnonzero(never & allowed(expected, np.full(count, kind)))
        assert not len(passed), (kind, passed[0], results[:, passed[0]], expected.at(passed[:1]))
    never = ~np.isfinite(results).any(axis=0)
    for finite in (0.0, 1.0, -LARGEST):
        passed = np.flatnonzero(never & allowed(expected, np.full(count, finite)))
        assert not len(passed), (finite, passed[0], results[:, passed[0]], expected.at(passed[:1]))


@cache
def all_of(values: tuple[float, ...], terms: int) -> Array:
    return np.array(list(grid_of(values, repeat=terms)), np.float32)


GRIDS = {3: EXTREMES, 4: FEWER}


def reduced(rows: int, terms: int, sign: str, lanes: str) -> Program:
    """A reduction of each row; with ``lanes``, of all terms but the first, which is the initial value."""
    start = 1 if lanes else 0
    first = "x[{0},0]" if lanes else {"+": "0", "*": "1", "max": "-inf", "min": "inf"}[sign]
    return parse(
        f"kernel k(x) -> y\nx f32 [{rows},{terms}] heap\ny f32 [{rows}] heap\n\n"
        f"{rows}\n| y[{{0}}] = {first}\n"
        f"| {terms - start}{lanes} y[{{0}}] {sign}= x[{{0}},{{1}}+{start}]\n",
        DIALECT,
    )


@pytest.mark.parametrize("terms", GRIDS)
@pytest.mark.parametrize("sign", COMBINE)
@pytest.mark.parametrize("lanes", ["", ":v"])
def test_exactly_what_some_order_gives_is_allowed(sign: str, terms: int, lanes: str) -> None:
    x = all_of(GRIDS[terms], terms)
    expected = judged(reduced(len(x), terms, sign, lanes), not lanes, x)
    compare(expected, in_all_orders(sign, x.T))


@pytest.mark.parametrize("lanes", ["", ":v"])
def test_products_of_denormal_numbers_in_any_order_are_allowed(lanes: str) -> None:
    x = all_of(DENORMAL, 4)
    compare(judged(reduced(len(x), 4, "*", lanes), not lanes, x), in_all_orders("*", x.T), known=False)


NESTED = {
    "sum of products": ("+", "*", ""),
    "product of sums": ("*", "+", ""),
    "largest product": ("max", "*", ""),
    "sum of largest": ("+", "max", ""),
    "product of products": ("*", "*", ""),
    "sum of sums, none below zero": ("+", "+", "max({}, 0)"),
    "product of bounded sums": ("*", "+", "min(max({}, -2), 1e10)"),
}


@pytest.mark.parametrize("name", NESTED)
def test_what_reductions_of_reductions_give_in_some_order_is_allowed(name: str) -> None:
    outer, inner, between = NESTED[name]
    rng = np.random.default_rng(5)
    x = rng.choice(np.array([*FINITE, *FINITE, INF, NAN], np.float32), (3000, 9))
    start = {"+": "0", "*": "1", "max": "-inf"}
    term = (between or "{}").format("p[{0},{1}]")
    root = parse(
        f"kernel k(x) -> y\nx f32 [3000,9] heap\np f32 [3000,3] heap\ny f32 [3000] heap\n\n3000\n"
        f"| 3\n| | p[{{0}},{{1}}] = {start[inner]}\n| | 3 p[{{0}},{{1}}] {inner}= x[{{0}},{{1}}*3+{{2}}]\n"
        f"| y[{{0}}] = {start[outer]}\n| 3 y[{{0}}] {outer}= {term}\n"
    )
    parts = [in_all_orders(inner, x[:, k : k + 3].T) for k in (0, 3, 6)]
    if between:
        low, high = (0, LARGEST * 2) if "-2" not in between else (-2, 1e10)
        parts = [np.where(np.isnan(p), p, np.clip(p, np.float32(low), np.float32(high))) for p in parts]
    results = [in_all_orders(outer, terms) for terms in grid_of(*parts)]
    compare(judged(root, True, x), np.concatenate(results), known=False)

"""Conditions that say less: for which other iterators some iteration satisfies a condition, and what follows
from one.

A copy of cells that are used under a condition has fewer iterators than the statements that use them. It
needs the condition on its own iterators that holds exactly where a statement uses the cell.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from perfdojo_sdk.core.geometry import guarded_bounds
from perfdojo_sdk.core.subscripts import LEVELS, AffineExpr

Guard: TypeAlias = tuple[AffineExpr, ...]
"""Forms that are at least 0 where a condition holds."""

#: Most comparisons of a condition that a move makes.
MOST_COMPARISONS = 8


def reached(guard: Guard, sizes: Sequence[int], gone: Iterable[int]) -> Guard | None:
    """The condition on the other iterators that holds where some iteration of the levels ``gone`` satisfies
    ``guard``, and nowhere else; None if it is not known, or holds nowhere.

    The elimination is that of Fourier and Motzkin: each lower bound of the iterator is at most each upper
    one. For integers that is exact if one of the two gives the iterator the coefficient 1 (Pugh, 1991).
    """
    forms = _needed(guard, sizes)
    for level in gone:
        found = _eliminated(level, forms, sizes)
        if found is None:
            return None
        forms = _needed(found, sizes)
    never = any(not form.levels and form.constant < 0 for form in forms)
    return None if never or len(forms) > MOST_COMPARISONS else forms


def follows(forms: Iterable[AffineExpr], guard: Guard, sizes: tuple[int, ...]) -> bool:
    """True if each form is at least 0 in all iterations that satisfy ``guard``, by one comparison at a
    time."""
    return all(guarded_bounds(form, guard, sizes)[0] >= 0 for form in forms)


def weakest(conditions: Sequence[Guard | None], sizes: tuple[int, ...]) -> Guard | None:
    """The one of the conditions that holds wherever any of them does; None if there is none."""
    for mine in dict.fromkeys(conditions):
        if mine is not None and all(_weaker(mine, other, sizes) for other in conditions):
            return mine
    return None


def _weaker(mine: Guard, other: Guard | None, sizes: tuple[int, ...]) -> bool:
    return not mine or (other is not None and follows(mine, other, sizes))


def _needed(forms: Iterable[AffineExpr], sizes: Sequence[int]) -> Guard:
    """The forms without those that are never negative, or not if another one is not."""
    kept: list[AffineExpr] = []
    for form in forms:
        if form.bounds(sizes)[0] < 0 and not any(_above(form, other, sizes) for other in kept):
            kept = [*(other for other in kept if not _above(other, form, sizes)), form]
    return tuple(kept)


def _above(form: AffineExpr, other: AffineExpr, sizes: Sequence[int]) -> bool:
    return form.plus(other, -1).bounds(sizes)[0] >= 0


def _eliminated(level: int, forms: Guard, sizes: Sequence[int]) -> Guard | None:
    """The forms on the other iterators that follow from these; None if the level stands in a quotient, or if
    the answer is not exact."""
    if not any(level in form.levels for form in forms):
        return forms
    if any(level in part.levels for form in forms for part, _ in form.quotients):
        return None
    rest, lower, upper = (
        list[AffineExpr](),
        [LEVELS[level]],
        [AffineExpr(sizes[level] - 1).plus(LEVELS[level], -1)],
    )
    for form in forms:
        factor = form.coefficients.get(level, 0)
        (lower if factor > 0 else upper if factor < 0 else rest).append(form)
    for low in lower:
        for high in upper:
            a, b = low.coefficients[level], -high.coefficients[level]
            if a > 1 and b > 1:
                return None
            rest.append(AffineExpr().plus(low, b).plus(high, a))
    return tuple(rest)

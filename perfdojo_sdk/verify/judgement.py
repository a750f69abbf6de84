"""The judgement of the numeric leg: compares a kernel's results with the references, element by element.

A result is right if it is within the bound of a finite value, if it is a possible outcome of an overflow for
these inputs, or if it is the infinity or NaN of the original. Integers must be equal.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeAlias

import numpy as np

from perfdojo_sdk.core.dtypes import CODED_DTYPES
from perfdojo_sdk.core.formats import zeros_of
from perfdojo_sdk.hookspecs.types import Failure, Measurement
from perfdojo_sdk.measure.kernel_calls import numbers
from perfdojo_sdk.verify.drawing import INTEGERS, PASSING
from perfdojo_sdk.verify.exact_integers import EXACT_INTEGERS
from perfdojo_sdk.verify.groups import Array
from perfdojo_sdk.verify.reference_c import BETWEEN, MINUS, NO_NUMBER, PLUS


@dataclass(frozen=True)
class ClassResult:
    """One class of inputs."""

    name: str
    threads: int = 0
    worst: float = 0.0
    """Largest error over its bound; at most 1 when the class passes."""
    elements: int = 0
    """Output elements looked at."""
    skipped: str = ""
    """The reason why the class was not run."""
    problem: str = ""
    executions: tuple[str, ...] = ()
    """The executions of the kernel that were run on these inputs."""


@dataclass(frozen=True)
class Expected:
    """The references' results for one output array."""

    value: Array
    """The original in a wider type."""
    own: Array
    """The transformed program in a wider type."""
    bound: Array
    """The largest distance from ``value`` of a legal kernel in which nothing overflows; infinite: unknown."""
    far: Array | None = None
    """The infinities and NaN that are possible where something overflows, and flags for ``low`` and
    ``high``: bits of :mod:`~perfdojo_sdk.verify.reference_c`. None: unknown, and nothing is compared where
    the bound is infinite."""
    low: Array | None = None
    high: Array | None = None
    apart: float = 0.0
    """The largest distance of ``value`` from ``own`` that roundings of the wider type may cause."""

    @property
    def flat(self) -> Expected:
        return self._each(lambda array: array.reshape(-1))

    def at(self, part: slice | Array) -> Expected:
        return self._each(lambda array: array[part])

    def _each(self, change: Callable[[Array], Array]) -> Expected:
        parts = {f.name: getattr(self, f.name) for f in fields(self)}
        changed: dict[str, Any] = {n: change(p) for n, p in parts.items() if isinstance(p, np.ndarray)}
        return replace(self, **changed)


_Judge: TypeAlias = Callable[[Array, Expected, bool], tuple[float, Array]]


@dataclass(frozen=True)
class Piece:
    """The expected results of one output array, or of some of its rows."""

    output: str
    expected: Expected
    rows: Array | None = None
    """The iteration of each level, row by row."""
    dimensions: tuple[int, ...] = ()
    """Dimensions of this output that the levels' iterators index."""
    sets: bool = False
    """These are many outputs, one behind the other."""
    dtype: str = ""
    """The output's, where it is not the array's own."""

    def of(self, array: Array) -> Array:
        """The part of a whole array that this piece is about: rows, then what dimensions they have."""
        return array if self.rows is None else rows_of(array, self.rows, self.dimensions)

    def place(self, at: Sequence[int]) -> tuple[int, ...]:
        """The subscripts in the whole array of an element of the piece."""
        if self.rows is None:
            return tuple(at)
        fixed = dict(zip(self.dimensions, map(int, self.rows[at[0]]), strict=True))
        within = iter(at[1:])
        return tuple(fixed[k] if k in fixed else next(within) for k in range(len(fixed) + len(at) - 1))


def rows_of(array: Array, rows: Array, dimensions: tuple[int, ...]) -> Array:
    """The rows of an array, one after the other."""
    levels_first = np.moveaxis(array, dimensions, tuple(range(len(dimensions))))
    found: Array = levels_first[tuple(rows.T)]
    return found


@dataclass(frozen=True)
class Outcome:
    """The references' results on one set of inputs, and the largest finite value that they stored."""

    pieces: tuple[Piece, ...]
    peak: float


def judge(
    name: str,
    threads: int,
    run: Measurement | Failure,
    expected: Outcome,
    nan_may_differ: bool,
    other_terms: bool = False,
    signed: Collection[str] = (),
) -> ClassResult:
    """One run of the kernel against the references; in the outputs ``signed``, a zero has the right sign.

    ``nan_may_differ`` and ``other_terms`` as for ``verify_numeric``.
    """
    result = ClassResult(name, threads)
    if isinstance(run, Failure):
        return replace(result, problem=f"{run.reason}: {run.detail}")
    if name == INTEGERS and expected.peak >= EXACT_INTEGERS:
        return replace(result, skipped=f"intermediates reach {expected.peak:g}, beyond 2^24")
    assert run.outputs is not None
    result = replace(result, executions=run.executions)
    for piece in expected.pieces:
        got = numbers(piece.of(run.outputs[piece.output]), piece.dtype)
        known = piece.expected
        if piece.dtype in CODED_DTYPES:
            lost = _without_sign(got, known, piece.dtype, piece.output in signed)
            known = replace(known, value=np.where(lost, got, known.value))
        if name == PASSING:
            # Here, and by chance only elsewhere, huge numbers cancel to the last digit.
            known = replace(known, apart=_WIDER_ROUNDINGS * expected.peak)
        if other_terms:
            known = replace(known, far=_with_own(known))
        worst, wrong = _in_blocks(_equal if name == INTEGERS else _near, got, known, nan_may_differ)
        if piece.output in signed and piece.dtype not in CODED_DTYPES:
            wrong |= _of_wrong_sign(got, piece.expected)
        result = replace(result, worst=max(result.worst, worst), elements=result.elements + got.size)
        if wrong.any():
            return replace(result, problem=_describe(piece, got, wrong))
    return result


def _with_own(expected: Expected) -> Array | None:
    """``far``, with the infinities and NaN that are possible if results are made of other terms: results that
    are computed together share those of the data of each, so they are possible wherever the original is not
    finite, or the transformed program is not."""
    if expected.far is None:
        return None
    shared = expected.far | _class_bits(expected.own)
    return np.where(np.isfinite(expected.value), shared, np.uint8(NO_NUMBER | PLUS | MINUS) | shared)


#: Roundings of the wider type in a long sum, relative to the largest number on the way.
_WIDER_ROUNDINGS = 2.0**-45
#: Elements compared at a time, so that intermediate arrays stay in cache.
_BLOCK = 1 << 16


def _in_blocks(compare: _Judge, got: Array, expected: Expected, nan_may_differ: bool) -> tuple[float, Array]:
    """``compare``, block by block: largest error over its bound, and which elements are wrong."""
    worst, wrong = 0.0, np.zeros(got.size, bool)
    flat, parts = got.reshape(-1), expected.flat
    for k in range(0, got.size, _BLOCK):
        here = slice(k, k + _BLOCK)
        block, wrong[here] = compare(flat[here], parts.at(here), nan_may_differ)
        worst = max(worst, block)
    return worst, wrong.reshape(got.shape)


def _equal(got: Array, expected: Expected, _: bool) -> tuple[float, Array]:
    """Bitwise comparison, except that -0 equals 0."""
    wrong = (got.astype(np.int64) if got.dtype == np.uint64 else got) != expected.value
    return float(wrong.any()), wrong


def _of_wrong_sign(got: Array, expected: Expected) -> Array:
    """Mask of results that are the zero of the wrong sign."""
    zero = (got == 0) & (expected.value == 0) & (expected.bound == 0)
    return np.asarray(zero & (np.signbit(got) != np.signbit(expected.value)))


def _without_sign(got: Array, expected: Expected, dtype: str, signed: bool) -> Array:
    """Mask of codes of a zero whose sign nobody promises; where all are promised, of those that are +0 in the
    references, which have that for a zero of unknown sign, too."""
    codes = zeros_of(dtype)
    zero = np.isin(got, codes) & np.isin(expected.value, codes[:1] if signed else codes)
    return np.asarray(zero)


def _near(got: Array, expected: Expected, nan_may_differ: bool) -> tuple[float, Array]:
    """Largest error over its bound, and which elements are wrong."""
    value = expected.value
    if not np.issubdtype(got.dtype, np.floating):
        # Integers have to be equal, unless they were made from a float with an error.
        # Of u64, both are the bits as signed numbers.
        wrong = (expected.bound == 0) & (got.astype(np.int64) != value)
        return float(wrong.any()), wrong
    with np.errstate(all="ignore"):
        bound = _loosened(expected.bound, value, got.dtype)
        distance = np.abs(got.astype(np.float64) - value)
        wrong = ~((distance <= bound) & np.isfinite(bound) & np.isfinite(expected.own))
        used = ~wrong & (distance > 0)
        worst = float(np.max(distance[used] / bound[used], initial=0.0)) if used.any() else 0.0
    if wrong.any():
        at = np.flatnonzero(wrong)
        wrong[at] = ~_other_outcome(got[at], expected.at(at), nan_may_differ)
        # The ratio counts wrong elements that have a finite bound.
        worst = max(worst, _worst_of(distance[wrong], bound[wrong]))
    return worst, wrong


def _worst_of(distance: Array, bound: Array) -> float:
    known = np.isfinite(distance) & np.isfinite(bound) & (bound > 0)
    return float(np.max(distance[known] / bound[known], initial=0.0))


def _loosened(bound: Array, value: Array, dtype: np.dtype[Any]) -> Array:
    """The bound with room for the rounding of the references themselves: in double, their error is 2^-29 of
    that of a kernel in f32, and less for f16. The bound of f64 already includes it."""
    slack = 0.0 if dtype == np.float64 else 2.0**-45
    return np.asarray(bound * (1 + 1e-6) + np.abs(value) * slack)


def _other_outcome(got: Array, expected: Expected, nan_may_differ: bool) -> Array:
    """Mask of results that are right although not near a finite value: the transformed program's where the
    original is no more exact, its infinity or NaN, or a possible outcome of an overflow for these inputs."""
    value, own = expected.value, expected.own
    unknown = ~np.isfinite(expected.bound)
    with np.errstate(all="ignore"):
        rounded, own_rounded = value.astype(got.dtype), own.astype(got.dtype)
        reach = _loosened(expected.bound, own, got.dtype)
        near_own = np.isfinite(own) & (np.abs(got.astype(np.float64) - own) <= reach)
        allowed = ~np.isfinite(got) & _same(got, rounded)
        # What cancels in another order leaves what the original has rounded away.
        allowed |= near_own & (np.abs(own - value) <= expected.apart)
        far = np.zeros(got.shape, np.uint8) if expected.far is None else expected.far
        allowed |= (far & _class_bits(got)) != 0
        # Where the original gives no number, the result of the transformed program counts in its place.
        elsewhere = ~np.isfinite(rounded) & (nan_may_differ | (far != 0))
        allowed |= elsewhere & (near_own | _same(got, own_rounded))
        if expected.far is None:
            return np.asarray(allowed | unknown)
        assert expected.low is not None and expected.high is not None
        allowed |= (far & BETWEEN != 0) & (expected.low <= got) & (got <= expected.high)
    return np.asarray(allowed | (unknown & np.isfinite(got)))


def _same(a: Array, b: Array) -> Array:
    """Elementwise equality, where NaN equals NaN."""
    return np.asarray((a == b) | (np.isnan(a) & np.isnan(b)))


def _class_bits(array: Array) -> Array:
    """The bit of each element that is no finite number."""
    kinds = [np.isnan(array), np.isposinf(array), np.isneginf(array)]
    return np.select(kinds, [np.uint8(bit) for bit in (NO_NUMBER, PLUS, MINUS)], np.uint8(0))


def _describe(piece: Piece, got: Array, wrong: Array) -> str:
    """The first wrong element in words."""
    here = tuple(int(k) for k in np.argwhere(wrong)[0])
    value, bound = float(piece.expected.value[here]), float(piece.expected.bound[here])
    tolerance = f" within {bound:.3g}" if np.isfinite(bound) else ""
    at = piece.place(here)
    place, which = ",".join(map(str, at[piece.sets :])), f"in set {at[0]}, " if piece.sets else ""
    return (
        f"{which}{piece.output}[{place}] is {got[here]:.9g}, expected {value:.9g}{tolerance}; "
        f"{int(np.count_nonzero(wrong))} of {wrong.size} elements are wrong"
    )

"""Leg 2 of verification: what the compiled kernel computes, against float64.

The value comes from the original program in double precision; how far the kernel may be from it
comes from a running error bound along the transformed program's own order. A bound from the
number of terms alone would hide a dropped iteration; the original order's bound would refuse a
legal re-association.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from itertools import product
from math import prod
from typing import ParamSpec, TypeAlias, TypeVar

import numpy as np

from perfdojo_sdk.core.dialect import Dialect
from perfdojo_sdk.core.dtypes import FLOAT_DTYPES
from perfdojo_sdk.core.errors import VerificationError
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.hookspecs.types import (
    ArraySpec,
    Artifact,
    Failure,
    KernelSource,
    Measurement,
    Runner,
    RunRequest,
)
from perfdojo_sdk.measure.native_runner import NativeRunner
from perfdojo_sdk.measure.sandbox import Job, execute
from perfdojo_sdk.measure.shared_arrays import shared_array
from perfdojo_sdk.measure.worker import CARRIER
from perfdojo_sdk.verify.inputs import EXACT_INTEGERS, FLOAT_CLASSES, INTEGERS, Array, draw, integer_range
from perfdojo_sdk.verify.reference_c import BOUNDED, WIDE, Rows, cast_dtypes, outermost_rows, reference

P = ParamSpec("P")
T = TypeVar("T")

#: Statement instances up to which every class runs on the whole program.
_FULL_INSTANCES = 10**7
#: Instances of the original program that a class may cost when only some rows are looked at.
_ROW_INSTANCES = 2 * 10**6
#: Rows that this should pay for: where outermost iterations are dear, more levels make smaller rows.
_SOME_ROWS = 50
#: The same for the original's value in the one class that a large program runs as a whole.
_VALUE_INSTANCES = 2 * 10**8
#: Inputs of a large program that are in memory at a time.
_INPUT_BYTES = 1 << 30
_REFERENCE_FLAGS = ("-O2", "-ffp-contract=off")
#: Left out where the compiler does not know it.
_NATIVE = "-march=native"
#: For large programs, several numbers at a time: operations of the references choose between values
#: and do not branch, for which the compiler has to know that nobody looks at flags or at errno.
_LARGE_FLAGS = (
    "-O3",
    _NATIVE,
    "-ffp-contract=off",
    "-fno-trapping-math",
    "-fno-math-errno",
    # gcc 12 does both wrongly now and then.
    "-fno-tree-loop-distribution",
    "-fno-loop-interchange",
)
_FORK_FLAGS = ("-O0", "-ffp-contract=off")
_REFERENCE_TIMEOUT_S = 600.0
_REFERENCE_BYTES = 32 << 30


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
    """Why the class was not run."""
    problem: str = ""


@dataclass(frozen=True)
class NumericReport:
    """What leg 2 found."""

    ok: bool
    classes: tuple[ClassResult, ...]
    problem: str = ""
    """The first thing that is wrong."""

    @property
    def worst(self) -> float:
        """The largest error over its bound in all classes."""
        return max((c.worst for c in self.classes), default=0.0)

    @property
    def checked(self) -> tuple[str, ...]:
        """The classes that were run, each once."""
        return tuple(dict.fromkeys(c.name for c in self.classes if not c.skipped))


def verify_numeric(
    original: Program,
    transformed: Program,
    artifact: Artifact,
    runner: Runner,
    accuracy: Mapping[str, float],
    dialect: Dialect,
    seed: int = 0,
    threads: Sequence[int] = (1, 2),
    nan_may_differ: bool = False,
    quick: bool = False,
    forks: bool = False,
    other_terms: bool = False,
) -> NumericReport:
    """Compare the compiled ``transformed`` with ``original``.

    ``accuracy`` is the error in ulp that the target states for a function (``{"exp": 2}``), 0.5
    where it says nothing. ``nan_may_differ``: a move of the trace declared that it changes which
    inputs give NaN; the transformed order then decides. The first class runs with every number of
    ``threads``, the others with one of them in turn. ``quick``: the first class only and, of a large
    program with independent rows, some of these only. ``forks``, for many small programs: the references
    are compiled without optimising and run in forks of this process, nothing runs at the same time.
    ``other_terms``: a move of the trace declared that sums are made of other terms, so that the bound which
    holds for every order of the original's terms, that of rows, does not hold.
    UnavailableError without a C compiler; VerificationError for a dtype that is not checked here.
    """
    references = _References(
        original, transformed, accuracy, dialect, seed, forks, nan_may_differ, other_terms
    )
    results: list[ClassResult] = []
    planned: list[_Plan] = []
    skipped: list[ClassResult] = []
    for name, largest, why in _classes(original, transformed):
        if name != "random" and not references.small and references.rows is None:
            why = why or f"the program is large and {references.no_rows}"
        if why:
            skipped.append(ClassResult(name, skipped=why))
            continue
        counts = tuple(threads) if not planned else (threads[len(planned) % len(threads)],)
        planned.append(_Plan(name, largest, counts))
        if quick:
            break
    with _AtOnce() if forks else ThreadPoolExecutor(3) as pool:
        for group in _groups(planned, original, references.small):
            stacks = _stacks(original, len(group))
            inputs = [{name: stack[k, ...] for name, stack in stacks.items()} for k in range(len(group))]
            for plan, given in zip(group, inputs, strict=True):
                draw(plan.name, original, seed, plan.largest, given)
            requests = [
                RunRequest(inputs=given, threads=t, timeout_s=120.0)
                for plan, given in zip(group, inputs, strict=True)
                for t in plan.threads
            ]
            if forks and isinstance(runner, NativeRunner):
                done = iter(runner.run_together(artifact, requests))
            else:
                futures = [pool.submit(runner.run, artifact, request) for request in requests]
                done = (future.result() for future in futures)
            whole = references.small or (group[0].name == "random" and not _rows_do(references, quick))
            expected = references.expect(stacks, len(group), pool, whole)
            for plan, outcome in zip(group, expected, strict=True):
                for t in plan.threads:
                    results.append(_judge(plan.name, t, next(done), outcome, nan_may_differ))
            if problem := _problem(results):
                return NumericReport(False, (*results, *skipped), problem)
    return NumericReport(True, (*results, *skipped))


class _AtOnce(Executor):
    """Runs what it is given there and then."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future: Future[T] = Future()
        future.set_result(fn(*args, **kwargs))
        return future


def _rows_do(references: _References, quick: bool) -> bool:
    """Whether some rows are enough for the class that else runs as a whole."""
    return quick and references.rows is not None


@dataclass(frozen=True)
class _Plan:
    """A class that will be run."""

    name: str
    largest: int
    threads: tuple[int, ...]


def _groups(planned: Sequence[_Plan], original: Program, small: bool) -> list[Sequence[_Plan]]:
    """Classes that go through the references together: all of a small program; of a large one, the
    first alone, since it runs as a whole, and of the others as many as memory likes."""
    if small:
        return [planned]
    size = sum(4 * prod(original.buffer_of[name].shape) for name in original.inputs)
    together = max(1, _INPUT_BYTES // max(size, 1))
    rest = planned[1:]
    return [planned[:1], *(rest[k : k + together] for k in range(0, len(rest), together))]


def _problem(results: Sequence[ClassResult]) -> str:
    """The first one in words, if any."""
    bad = next((r for r in results if r.problem), None)
    return f"{bad.name} inputs, {bad.threads} threads: {bad.problem}" if bad else ""


def _classes(original: Program, transformed: Program) -> list[tuple[str, int, str]]:
    """Name, largest integer, and why the class is skipped."""
    ranges = [integer_range(program) for program in (original, transformed)]
    largest = min(r for r, _ in ranges)
    why = next((why for _, why in ranges if why), "")
    names = FLOAT_CLASSES if original.inputs else ("random",)
    integers = (INTEGERS, largest, f"not a polynomial on small integers: {why}" if why else "")
    return [*((name, 1, "") for name in names), integers]


@dataclass(frozen=True)
class _Expected:
    """What the references say about one output array."""

    value: Array
    """The original in double."""
    single: Array
    """The original in plain single precision."""
    own_value: Array
    """The transformed program in double."""
    own_single: Array
    bound: Array
    """How far a legal kernel may be from ``value``; infinite: only the class is known."""

    @property
    def flat(self) -> _Expected:
        return self._each(lambda array: array.reshape(-1))

    def at(self, part: slice) -> _Expected:
        return self._each(lambda array: array[part])

    def _each(self, change: Callable[[Array], Array]) -> _Expected:
        return _Expected(*(change(getattr(self, f.name)) for f in fields(self)))


_Judge: TypeAlias = Callable[[Array, _Expected, bool], tuple[float, Array]]


@dataclass(frozen=True)
class _Piece:
    """What is known about one output array, or about some of its rows."""

    output: str
    expected: _Expected
    rows: Array | None = None
    """The iteration of each level, row by row."""
    dimensions: tuple[int, ...] = ()
    """Where the levels' iterators stand in this output's subscripts."""

    def of(self, array: Array) -> Array:
        """The part of a whole array that this piece is about: rows, then what dimensions they have."""
        return array if self.rows is None else _rows_of(array, self.rows, self.dimensions)

    def place(self, at: Sequence[int]) -> tuple[int, ...]:
        """The subscripts in the whole array of an element of the piece."""
        if self.rows is None:
            return tuple(at)
        fixed = dict(zip(self.dimensions, map(int, self.rows[at[0]]), strict=True))
        within = iter(at[1:])
        return tuple(fixed[k] if k in fixed else next(within) for k in range(len(fixed) + len(at) - 1))


def _rows_of(array: Array, rows: Array, dimensions: tuple[int, ...]) -> Array:
    """The rows of an array, one after the other."""
    levels_first = np.moveaxis(array, dimensions, tuple(range(len(dimensions))))
    found: Array = levels_first[tuple(rows.T)]
    return found


@dataclass(frozen=True)
class _Outcome:
    pieces: tuple[_Piece, ...]
    peak: float


class _References:
    """The two reference programs, compiled when first needed."""

    def __init__(
        self,
        original: Program,
        transformed: Program,
        accuracy: Mapping[str, float],
        dialect: Dialect,
        seed: int,
        forks: bool,
        nan_may_differ: bool = False,
        other_terms: bool = False,
    ) -> None:
        self.nan_may_differ = nan_may_differ
        self.original, self.transformed, self.forks = original, transformed, forks
        self.accuracy, self.dialect, self.seed = accuracy, dialect, seed
        self.instances = max(_instances(original), _instances(transformed))
        self.small = self.instances <= _FULL_INSTANCES
        self.rows, self.no_rows = _independent_rows(original, transformed, other_terms)
        self.compiled: dict[tuple[str, int, int], Artifact] = {}

    def expect(
        self, stacks: Mapping[str, Array], batch: int, pool: Executor, whole: bool
    ) -> list[_Outcome]:
        """Run both references on each of ``batch`` sets of inputs.

        Small programs run as a whole. Of large ones with independent rows, the original runs on
        some rows; so does the bound unless ``whole``.
        """
        sliced = self.rows is not None and not self.small
        value_rows = self.choose_rows(_VALUE_INSTANCES if whole else _ROW_INSTANCES) if sliced else None
        bound_rows = None if whole else value_rows
        jobs = [
            pool.submit(self.run, kind, stacks, batch, rows)
            for kind, rows in ((BOUNDED, bound_rows), (WIDE, value_rows))
        ]
        bounded, wide = (job.result() for job in jobs)
        return [
            self.outcome(
                {n: a[k, ...] for n, a in bounded.items()},
                {n: a[k, ...] for n, a in wide.items()},
                value_rows,
                whole,
            )
            for k in range(batch)
        ]

    def outcome(
        self, bounded: Mapping[str, Array], wide: Mapping[str, Array], rows: Array | None, whole: bool
    ) -> _Outcome:
        """Put the answers of the two references together; with ``rows``, ``wide`` has only these."""
        pieces: list[_Piece] = []
        for name in self.original.outputs:
            own = [bounded[f"{name}_{part}"] for part in ("v", "f", "e")]
            dimensions = self.rows.dimensions[name] if self.rows else ()
            if rows is not None and whole:
                pieces.append(_Piece(name, _Expected(own[0], own[1], *own)))
                own = [_rows_of(array, rows, dimensions) for array in own]
            expected = _Expected(wide[f"{name}_v"], wide[f"{name}_f"], *own)
            pieces.append(_Piece(name, expected, rows, dimensions))
        return _Outcome(tuple(pieces), max(float(wide["pd_peak"]), float(bounded["pd_peak"])))

    def choose_rows(self, instances: int) -> Array:
        """Rows by levels, ascending: those of all first and last iterations, and as many others as so
        many instances allow."""
        assert self.rows
        sizes, count = self.rows.sizes, self.rows.count
        corners = np.unique([np.ravel_multi_index(c, sizes) for c in product(*((0, n - 1) for n in sizes))])
        wanted = _wanted_rows(self.original, self.rows, instances)
        drawn = np.random.default_rng(self.seed).choice(count, wanted, replace=False)
        others = drawn[~np.isin(drawn, corners)][: wanted - len(corners)]
        chosen = np.sort([*corners, *others])
        return np.stack(np.unravel_index(chosen, sizes), axis=1).astype(np.int32)

    def run(
        self, kind: str, stacks: Mapping[str, Array], batch: int, rows: Array | None
    ) -> Mapping[str, Array]:
        given = dict(stacks)
        if rows is not None:
            given["pd_rows"] = np.stack([rows] * batch)
        artifact = self.artifact(kind, batch, 0 if rows is None else len(rows))
        request = RunRequest(given, timeout_s=_REFERENCE_TIMEOUT_S, memory_bytes=_REFERENCE_BYTES)
        [result] = execute(Job((artifact,), request, "reference", trusted=True, forks=self.forks))
        if isinstance(result, Failure) or result.outputs is None:
            raise VerificationError("PD-V021", "the float64 reference did not run", why=str(result))
        return result.outputs

    def artifact(self, kind: str, batch: int, rows: int) -> Artifact:
        key = (kind, batch, rows)
        if key not in self.compiled:
            # On rows the bound has to hold for any order, since the transformed program's own
            # order is not a matter of rows.
            program = self.transformed if kind == BOUNDED and not rows else self.original
            source = reference(
                program,
                kind,
                self.accuracy,
                self.dialect,
                batch=batch,
                rows=rows,
                split=self.rows if rows else None,
                any_order=rows > 0,
                nan_may_differ=self.nan_may_differ,
            )
            support = tuple(sorted(source.support.items()))
            flags = _FORK_FLAGS if self.forks else _REFERENCE_FLAGS if self.small else _LARGE_FLAGS
            self.compiled[key] = _compiled(
                source.symbol, source.inputs, source.outputs, source.code, support, flags
            )
        return self.compiled[key]


def quick_instances(original: Program, transformed: Program, other_terms: bool = False) -> int:
    """Statement instances of ``original`` whose results a quick comparison looks at."""
    instances = _instances(original)
    rows, _ = _independent_rows(original, transformed, other_terms)
    if rows is None or max(instances, _instances(transformed)) <= _FULL_INSTANCES:
        return instances
    return instances // rows.count * _wanted_rows(original, rows, _ROW_INSTANCES)


def _independent_rows(original: Program, transformed: Program, other_terms: bool) -> tuple[Rows | None, str]:
    """How the program falls into rows that may be looked at alone; if it does not, why.

    On rows, the bound is that of the original program, which knows of no rounding that a move declared,
    nor of other terms.
    """
    if not _float_dtypes(transformed) <= _float_dtypes(original):
        return None, "its moves change precision"
    if other_terms:
        return None, "its moves make sums of other terms"
    return outermost_rows(original, _ROW_INSTANCES // _SOME_ROWS), "its rows depend on each other"


def _wanted_rows(original: Program, rows: Rows, instances: int) -> int:
    """All first and last ones, and as many others as so many instances allow."""
    corners = prod(min(size, 2) for size in rows.sizes)
    return min(rows.count, max(corners, instances * rows.count // _instances(original)))


def _float_dtypes(program: Program) -> set[str]:
    return {dtype for dtype in cast_dtypes(program) if dtype in FLOAT_DTYPES}


def _stacks(program: Program, batch: int) -> dict[str, Array]:
    """Memory for ``batch`` sets of a program's inputs, set after set in one array for each."""
    buffers = [program.buffer_of[name] for name in program.inputs]
    return {b.arrays[0]: shared_array((batch, *b.shape), np.dtype(CARRIER[b.dtype])) for b in buffers}


@lru_cache(64)
def _compiled(
    symbol: str,
    inputs: tuple[ArraySpec, ...],
    outputs: tuple[ArraySpec, ...],
    code: str,
    support: tuple[tuple[str, str], ...],
    flags: tuple[str, ...],
) -> Artifact:
    """A reference, compiled once for all the candidates that are compared with it."""
    source = KernelSource(symbol, inputs, outputs, code, support=dict(support))
    made = NativeRunner(flags).compile(source)
    if isinstance(made, Failure) and _NATIVE in flags:
        made = NativeRunner(tuple(flag for flag in flags if flag != _NATIVE)).compile(source)
    if isinstance(made, Failure):
        raise VerificationError("PD-V021", "the float64 reference does not compile", why=made.detail)
    return made


def _instances(program: Program) -> int:
    return sum(prod(leaf.sizes) for node in program.body for leaf in node.leaves)


def _judge(
    name: str, threads: int, run: Measurement | Failure, expected: _Outcome, nan_may_differ: bool
) -> ClassResult:
    """One run of the kernel against the references."""
    result = ClassResult(name, threads)
    if isinstance(run, Failure):
        return replace(result, problem=f"{run.reason}: {run.detail}")
    if name == INTEGERS and expected.peak >= EXACT_INTEGERS:
        return replace(result, skipped=f"intermediates reach {expected.peak:g}, beyond 2^24")
    assert run.outputs is not None
    for piece in expected.pieces:
        got = piece.of(run.outputs[piece.output])
        worst, wrong = _in_blocks(_equal if name == INTEGERS else _near, got, piece.expected, nan_may_differ)
        result = replace(result, worst=max(result.worst, worst), elements=result.elements + got.size)
        if wrong.any():
            return replace(result, problem=_describe(piece, got, wrong))
    return result


#: Elements compared at a time, so that what is worked out on the way stays in cache.
_BLOCK = 1 << 16


def _in_blocks(judge: _Judge, got: Array, expected: _Expected, nan_may_differ: bool) -> tuple[float, Array]:
    """``judge``, block by block: largest error over its bound, and which elements are wrong."""
    worst, wrong = 0.0, np.zeros(got.size, bool)
    flat, parts = got.reshape(-1), expected.flat
    for k in range(0, got.size, _BLOCK):
        here = slice(k, k + _BLOCK)
        block, wrong[here] = judge(flat[here], parts.at(here), nan_may_differ)
        worst = max(worst, block)
    return worst, wrong.reshape(got.shape)


def _equal(got: Array, expected: _Expected, _: bool) -> tuple[float, Array]:
    """Bit for bit, -0 being 0."""
    wrong = got != expected.value
    return float(wrong.any()), wrong


def _near(got: Array, expected: _Expected, nan_may_differ: bool) -> tuple[float, Array]:
    """Largest error over its bound, and which elements are wrong."""
    value = expected.value
    if not np.issubdtype(got.dtype, np.floating):
        # Integers are exact, unless a float decided about them that was not certain.
        wrong = (expected.bound == 0) & (got.astype(np.int64) != value)
        return float(wrong.any()), wrong
    # The references themselves round: in double, 2^-29 of what a kernel of f32 may, still less of one of f16.
    # The bound of f64 takes its own rounding into account.
    slack = 0.0 if got.dtype == np.float64 else 2.0**-45
    with np.errstate(all="ignore"):
        bound = expected.bound * (1 + 1e-6) + np.abs(value) * slack
        distance = np.abs(got.astype(np.float64) - value)
    numbers = np.isfinite(expected.bound) & np.isfinite(value) & np.isfinite(expected.own_value)
    wrong = numbers & ~(distance <= bound)
    used = numbers & (distance > 0)
    worst = float(np.max(distance[used] / bound[used], initial=0.0)) if used.any() else 0.0
    rest = np.flatnonzero(~numbers)
    if rest.size:
        wrong.reshape(-1)[rest] = ~_class_allowed(got, expected, rest, nan_may_differ)
    return worst, wrong


def _class_allowed(got: Array, expected: _Expected, at: Array, nan_may_differ: bool) -> Array:
    """Where values cannot be compared: finite, which infinity, or NaN, as one of the references."""

    def kind(array: Array) -> Array:
        with np.errstate(over="ignore", invalid="ignore"):
            picked = array.reshape(-1)[at].astype(got.dtype)
            return np.where(np.isnan(picked), 2, np.where(np.isinf(picked), np.sign(picked), 0)).astype(
                np.int8
            )

    here, single, own_single = kind(got), kind(expected.single), kind(expected.own_single)
    certain = np.isfinite(expected.bound.reshape(-1)[at])
    allowed = here == kind(expected.value)
    own = here == kind(expected.own_value)
    # Once single precision overflows, contraction decides between infinities and NaN: inf - inf
    # where a product was rounded, inf where it was fused.
    # Partial sums may overflow where the sum in order does not: a re-associating move says so.
    overflowed = (here != 0) & (nan_may_differ | (single != 0) | (own_single != 0))
    allowed |= ~certain & (own | overflowed | (here == single) | (here == own_single))
    return np.asarray(allowed | own if nan_may_differ else allowed)


def _describe(piece: _Piece, got: Array, wrong: Array) -> str:
    """The first wrong element in words."""
    here = tuple(int(k) for k in np.argwhere(wrong)[0])
    value, bound = float(piece.expected.value[here]), float(piece.expected.bound[here])
    tolerance = f" within {bound:.3g}" if np.isfinite(bound) else ""
    place = ",".join(map(str, piece.place(here)))
    return (
        f"{piece.output}[{place}] is {got[here]:.9g}, expected {value:.9g}{tolerance}; "
        f"{int(np.count_nonzero(wrong))} of {wrong.size} elements are wrong"
    )

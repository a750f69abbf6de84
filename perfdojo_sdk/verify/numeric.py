"""The numeric leg of verification: the compiled kernel's results against float64.

The expected value comes from the original program in double precision. The largest legal distance from it
is a running error bound, computed in the transformed program's own order. A bound from the number of terms
alone would hide a dropped iteration; a bound in the original order would refuse a legal re-association.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate, product
from math import prod
from random import Random
from typing import Any, ParamSpec, TypeVar

import numpy as np

from perfdojo_sdk.core.dialect import Dialect
from perfdojo_sdk.core.dtypes import FLOAT_DTYPES
from perfdojo_sdk.core.errors import VerificationError
from perfdojo_sdk.core.interface import EXECUTIONS, MAX_THREADS
from perfdojo_sdk.core.laws import RECIPROCAL, bounded_in_rows, computes_other_terms
from perfdojo_sdk.core.program import Node, Program, Scope, Statement
from perfdojo_sdk.core.words import number_of
from perfdojo_sdk.hookspecs.abilities import Forks, RunsSets, RunsTogether, ability
from perfdojo_sdk.hookspecs.types import (
    ArraySpec,
    Artifact,
    Failure,
    KernelSource,
    Measurement,
    Runner,
    RunRequest,
)
from perfdojo_sdk.measure.kernel_calls import CARRIER
from perfdojo_sdk.measure.native_runner import NativeRunner
from perfdojo_sdk.measure.sandbox import Job, execute
from perfdojo_sdk.measure.sets import run_as_sets
from perfdojo_sdk.measure.shared_arrays import shared_array
from perfdojo_sdk.measure.toolchain import IN_ORDER
from perfdojo_sdk.verify.groups import Array
from perfdojo_sdk.verify.independent_rows import Rows, outermost_rows
from perfdojo_sdk.verify.inputs import (
    INTEGERS,
    classes,
    draw,
    draw_sets,
    drawings,
    integer_range,
    sets_of,
)
from perfdojo_sdk.verify.judgement import ClassResult, Expected, Outcome, Piece, judge, rows_of
from perfdojo_sdk.verify.reduced import statement_instances
from perfdojo_sdk.verify.reference_c import (
    BOUNDED,
    OUTCOMES,
    PEAK,
    ROWS,
    WIDE,
    cast_dtypes,
    multiplies,
    reference,
)
from perfdojo_sdk.verify.zeros import signed_outputs

P = ParamSpec("P")
T = TypeVar("T")

#: Statement instances up to which every class runs on the whole program.
_FULL_INSTANCES = 10**7
#: Instances of the original program that a class may cost when only some rows are looked at.
_ROW_INSTANCES = 2 * 10**6
#: Rows that these should be enough for: if outermost iterations cost much, rows take in more levels.
_SOME_ROWS = 50
#: Instances for the original's value in the one class that a large program runs as a whole.
_VALUE_INSTANCES = 2 * 10**8
#: Bytes of inputs, and of a small program's expected results, that are in memory at a time.
_MOST_BYTES = 1 << 30
#: Statement instances, and bytes of inputs, up to which plain calls share a child process.
_TOGETHER_INSTANCES, _TOGETHER_BYTES = 3 * 10**6, 1 << 26
#: Bytes of expected results for one element of an output.
_OUTCOME_BYTES = 48
#: Classes that a large program runs as a whole if its rows depend on each other.
_WHOLE = ("random", "rows")
#: Classes that run on several threads, and so many: each thread has its own floating-point control state.
_ON_MANY, _MANY = frozenset({"denormal", "magnitudes"}), 5
#: Parallel iterations below which the kernel is also called with more threads than there are.
_FEW_ITERATIONS = 64
#: Numbers of threads that kernels are called with: odd ones, and common ones.
_THREAD_COUNTS = (2, 3, 4, 5, 8)
#: One more number of threads is drawn from each of these: powers of two, primes, and any.
_MANY_COUNTS = (
    tuple(2**k for k in range(7, 11)),
    (67, 97, 127, 251, 509, 1021),
    tuple(range(_FEW_ITERATIONS + 1, MAX_THREADS + 1)),
)
REFERENCE_FLAGS = ("-O2", "-ffp-contract=off", *IN_ORDER)
#: A flag that is left out if the compiler does not know it.
_NATIVE = "-march=native"
#: Flags for large programs, so that references compute several numbers at a time: their operations select
#: values without a branch, which the compiler does only if nobody reads floating-point flags or errno.
LARGE_FLAGS = (
    "-O3",
    _NATIVE,
    "-ffp-contract=off",
    "-fno-trapping-math",
    "-fno-math-errno",
    *IN_ORDER,
)
FORK_FLAGS = ("-O0", "-ffp-contract=off")
_TIMEOUT_S, _REFERENCE_TIMEOUT_S = 120.0, 600.0
_REFERENCE_BYTES = 32 << 30


@dataclass(frozen=True)
class NumericReport:
    """The result of leg 2."""

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

    @property
    def executions(self) -> tuple[str, ...]:
        """Names of the executions in ``core.interface.EXECUTIONS`` that the kernel passed."""
        return tuple(dict.fromkeys(name for c in self.classes for name in c.executions))


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
    laws: Collection[str] = (),
    executions: bool | None = None,
) -> NumericReport:
    """Compare the compiled ``transformed`` with ``original``.

    ``accuracy`` is the error in ulp that the target states for a function (``{"exp": 2}``); where it says
    nothing, the table of operations does. ``nan_may_differ``: a move of the trace may change which inputs
    give NaN; where the original gives no finite number, what the transformed order gives is right as well.
    The first drawing runs with every number of ``threads``, unless the execution of that name did that; the
    others run with one of them in turn. ``quick``:
    the first drawing only and, of a large program with independent rows, some of these only. ``forks``, for
    many small programs: the references are compiled without optimising and run in forks of this process,
    nothing runs at the same time. ``laws``: those that moves of the trace declared. With most of them numbers
    are added that the original does not have, so that the bound which holds for every order of the original's
    terms, that of rows, does not hold.
    ``executions``: also call the kernel in all ways that the runner knows of ``core.interface.EXECUTIONS``,
    on the first drawing; unless told otherwise, where it is neither quick nor one of many.
    UnavailableError without a C compiler; VerificationError for a dtype that is not checked here.
    """
    references = _References(original, transformed, accuracy, dialect, seed, forks, nan_may_differ, laws)
    other_terms = computes_other_terms(laws)
    if executions is None:
        executions = not quick and not forks
    sets = sets_of(original, references.instances) if ability(runner, RunsSets) else {}
    planned, skipped = _planned(references, sets, threads, quick, executions)
    results: list[ClassResult] = []
    # Orphans of a fork can be told from other children of this process only if nothing else starts one.
    forking = ability(runner, Forks)
    alone = forks or (forking is not None and forking.forks)
    with _AtOnce() if alone else ThreadPoolExecutor(3) as pool:
        for group in _groups(planned, original, references.small):
            places = _places(group)
            stacks = _stacks(original, sum(plan.sets for plan in group))
            inputs = [{name: stack[at, ...] for name, stack in stacks.items()} for at in places]
            _draw(group, original, seed, inputs)
            put_through = executions and group[0] is planned[0]
            requests = [
                (plan.sets, RunRequest(inputs=given, threads=t, timeout_s=_TIMEOUT_S))
                for plan, given in zip(group, inputs, strict=True)
                for t in (plan.threads[:1] if put_through and plan is planned[0] else plan.threads)
            ]
            if put_through:
                requests[0] = (1, _with_executions(requests[0][1], transformed, dialect, seed))
            whole = references.small or not references.rows or (group[0] is planned[0] and not quick)
            expected = references.expect(stacks, places, pool, whole)
            runs = _runs(runner, artifact, requests, pool, forks, references.instances)
            done = (future.result()[place] for future, place in runs)
            for plan, given, outcome in zip(group, inputs, expected(), strict=True):
                signed = signed_outputs(original, given) & signed_outputs(transformed, given)
                for t in plan.threads:
                    if not (put_through and plan is planned[0] and t != plan.threads[0]):
                        run = next(done)
                    elif results[0].problem or "threads" in results[0].executions:
                        continue  # every number of threads gave the same bits
                    else:
                        run = runner.run(artifact, RunRequest(inputs=given, threads=t, timeout_s=_TIMEOUT_S))
                    results.append(judge(plan.name, t, run, outcome, nan_may_differ, other_terms, signed))
            if problem := _problem(results):
                return NumericReport(False, (*results, *skipped), problem)
    return NumericReport(True, (*results, *skipped))


def _with_executions(request: RunRequest, program: Program, dialect: Dialect, seed: int) -> RunRequest:
    """The request, with all executions."""
    parallel = {
        node.size
        for root in program.body
        for node in _scopes(root)
        if (suffix := dialect.suffixes.get(node.suffix)) and suffix.order == "parallel"
    }
    # A condition may leave a thread with nothing to do; then the number of busy threads is unknown.
    conditional = any(isinstance(node, Statement) and node.guard for _, node in program.walk())
    busy = 0 if conditional else min(parallel, default=0)
    counts = _counts(parallel, Random(f"{seed} {program.text}"))
    return replace(request, executions=tuple(EXECUTIONS), thread_counts=counts, busy_threads=busy)


def _counts(parallel: Collection[int], chance: Random) -> tuple[int, ...]:
    """Numbers of threads: usual ones; around sizes of loops and of their parts; all smaller ones, as far as
    there is time; and a few large ones. Others for each program and seed."""
    above = [size // part + 1 for size in sorted(parallel) for part in (1, chance.randint(2, 9))]
    above.sort(key=lambda count: count > _FEW_ITERATIONS)
    smaller = list(range(2, _FEW_ITERATIONS + 1))
    chance.shuffle(smaller)
    # With long loops, starting the most threads takes longer than everything else.
    most = (MAX_THREADS,) if max(parallel, default=0) <= 2 * _FEW_ITERATIONS else ()
    wanted = (*_THREAD_COUNTS, *above, *smaller, *map(chance.choice, _MANY_COUNTS), *most)
    return tuple(dict.fromkeys(count for count in wanted if 1 < count <= MAX_THREADS))


def _scopes(node: Node) -> Iterator[Scope]:
    if isinstance(node, Scope):
        yield node
        for child in node.body:
            yield from _scopes(child)


def _runs(
    runner: Runner,
    artifact: Artifact,
    requests: Sequence[tuple[int, RunRequest]],
    pool: Executor,
    forks: bool,
    instances: int,
) -> list[_Run]:
    """Start each request, which is for the given number of sets of inputs, of a program with so many
    statement instances."""
    several = ability(runner, RunsSets)
    together = ability(runner, RunsTogether) if forks else None
    if together:
        batches = [[k for k, (sets, _) in enumerate(requests) if sets == 1]]
        batches += [[k] for k, (sets, _) in enumerate(requests) if sets > 1]
    else:
        batches = _batches(requests, instances) if several else [[k] for k in range(len(requests))]
    runs: dict[int, _Run] = {}
    for batch in filter(None, batches):
        sets, request = requests[batch[0]]
        if several and sets > 1:
            made = pool.submit(lambda *of: [several.run_sets(*of)], artifact, request, sets)
        elif together:
            made = pool.submit(
                lambda *of: [*together.run_together(*of)], artifact, [requests[k][1] for k in batch]
            )
        elif several and len(batch) > 1:
            made = pool.submit(_in_one_child, runner, several, artifact, [requests[k][1] for k in batch])
        else:
            made = pool.submit(lambda *of: [runner.run(*of)], artifact, request)
        runs |= {k: (made, place) for place, k in enumerate(batch)}
    return [runs[k] for k in range(len(requests))]


def _batches(requests: Sequence[tuple[int, RunRequest]], instances: int) -> list[list[int]]:
    """Numbers of the requests that one child can answer: plain ones with equal numbers of threads, as many as
    do not take long."""
    most = _TOGETHER_INSTANCES // max(2 * instances, 1)
    found: list[list[int]] = []
    open_: dict[int, list[int]] = {}
    for k, (sets, request) in enumerate(requests):
        assert request.inputs is not None
        size = 2 * sum(array.nbytes for array in request.inputs.values())
        plain = sets == 1 and not request.executions
        batch = open_.get(request.threads) if plain else None
        if batch is None or len(batch) >= min(most, _TOGETHER_BYTES // max(size, 1)):
            batch = []
            found.append(batch)
            if plain:
                open_[request.threads] = batch
        batch.append(k)
    return found


def _in_one_child(
    runner: Runner, several: RunsSets, artifact: Artifact, requests: Sequence[RunRequest]
) -> list[Measurement | Failure]:
    """Answer plain requests as ``run`` does, in one child process.

    Each set of inputs is given twice: two calls, which find other bits in outputs, workspace and around them,
    must give the same. What fails or differs is run alone, to tell what is wrong.
    """
    found = run_as_sets(several, artifact, requests, times=2)
    if found is None:
        return [runner.run(artifact, request) for request in requests]
    results: list[Measurement | Failure] = []
    for request, first, second in zip(requests, found[::2], found[1::2], strict=True):
        one, other = first.outputs or {}, second.outputs or {}
        changing = [name for name in one if one[name].tobytes() != other[name].tobytes()]
        result: Measurement | Failure = first
        if changing:
            alone = runner.run(artifact, request)
            seen = Failure("wrong_result", f"the results in {changing[0]} change from call to call")
            result = alone if isinstance(alone, Failure) else seen
        results.append(result)
    return results


#: A request that was started: what will hold its answer, and where in it.
_Run = tuple[Future[Any], int]


class _AtOnce(Executor):
    """An executor that runs each task at once, in the calling thread."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future: Future[T] = Future()
        future.set_result(fn(*args, **kwargs))
        return future


@dataclass(frozen=True)
class _Plan:
    """A drawing of a class that will be run."""

    name: str
    number: int = 0
    largest: int = 1
    threads: tuple[int, ...] = ()
    sets: int = 1
    """Number of sets of inputs that run at once."""


def _groups(planned: Sequence[_Plan], original: Program, small: bool) -> list[Sequence[_Plan]]:
    """Drawings in groups that go through the references together: as many as fit into memory; the first
    drawing of a large program is alone, since it runs as a whole."""
    size = sum(4 * prod(original.buffer_of[name].shape) for name in original.inputs)
    if small:
        size += sum(_OUTCOME_BYTES * prod(original.buffer_of[name].shape) for name in original.outputs)
    together = max(1, _MOST_BYTES // max(size, 1))
    alone = 0 if small else 1
    rest = planned[alone:]
    groups = [planned[:alone], *(rest[k : k + together] for k in range(0, len(rest), together))]
    return [group for group in groups if group]


def _planned(
    references: _References, sets: Mapping[str, int], threads: Sequence[int], quick: bool, executions: bool
) -> tuple[list[_Plan], list[ClassResult]]:
    """The drawings that will be run, each with its numbers of threads; and the classes that are skipped."""
    first = tuple(dict.fromkeys((1, *threads))) if executions else tuple(threads)
    planned: list[_Plan] = []
    skipped: list[ClassResult] = []
    for drawing, why in _drawings(references.original, references.transformed, references.instances, sets):
        if drawing.name not in _WHOLE and not references.small and references.rows is None:
            why = why or f"the program is large and {references.no_rows}"
        if why:
            skipped.append(ClassResult(drawing.name, skipped=why))
            continue
        count = threads[len(planned) % len(threads)]
        if drawing.name in _ON_MANY and max(threads) > 1:
            count = _MANY
        counts = first if not planned else (count,)
        planned.append(replace(drawing, threads=counts))
        if quick:
            break
    return planned, skipped


def _draw(group: Sequence[_Plan], program: Program, seed: int, inputs: Sequence[Mapping[str, Array]]) -> None:
    """Fill the inputs of each drawing."""
    for plan, given in zip(group, inputs, strict=True):
        if plan.sets > 1:
            draw_sets(plan.name, program, seed, plan.sets, given)
        else:
            draw(plan.name, program, seed, plan.largest, given, plan.number)


def _places(group: Sequence[_Plan]) -> list[int | slice]:
    """Positions of the drawings in the stacked arrays."""
    ends = list(accumulate(plan.sets for plan in group))
    return [
        end - 1 if plan.sets == 1 else slice(end - plan.sets, end)
        for plan, end in zip(group, ends, strict=True)
    ]


def _problem(results: Sequence[ClassResult]) -> str:
    """The first problem, in words; empty if there is none."""
    bad = next((r for r in results if r.problem), None)
    return f"{bad.name} inputs, {number_of(bad.threads, 'threads')}: {bad.problem}" if bad else ""


def _drawings(
    original: Program, transformed: Program, instances: int, sets: Mapping[str, int]
) -> Iterator[tuple[_Plan, str]]:
    """All drawings, the plain one first, and why one is skipped."""
    ranges = [integer_range(program) for program in (original, transformed)]
    largest = min(r for r, _ in ranges)
    why = next((why for _, why in ranges if why), "")
    counts = drawings(original, instances)
    for name in classes(original, instances, _FULL_INSTANCES):
        for number in range(counts.get(name, 1)):
            yield _Plan(name, number, sets=sets.get(name, 1)), ""
    yield _Plan(INTEGERS, 0, largest), f"not a polynomial on small integers: {why}" if why else ""


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
        laws: Collection[str] = (),
    ) -> None:
        self.nan_may_differ, self.laws = nan_may_differ, laws
        self.original, self.transformed, self.forks = original, transformed, forks
        self.accuracy, self.dialect, self.seed = accuracy, dialect, seed
        self.instances = max(statement_instances(original), statement_instances(transformed))
        self.small = self.instances <= _FULL_INSTANCES
        self.rows, self.no_rows = _independent_rows(original, transformed, laws)
        self.compiled: dict[tuple[str, int, int], Artifact] = {}

    def expect(
        self, stacks: Mapping[str, Array], places: Sequence[int | slice], pool: Executor, whole: bool
    ) -> Callable[[], list[Outcome]]:
        """Start both references on each set of inputs; a function that waits for the outcomes for those at
        each of ``places``.

        Small programs run as a whole. Of large ones with independent rows, the original runs on
        some rows; so does the bound unless ``whole``.
        """
        sliced = self.rows is not None and not self.small
        value_rows = self.choose_rows(_VALUE_INSTANCES if whole else _ROW_INSTANCES) if sliced else None
        bound_rows = None if whole else value_rows
        # OUTCOMES costs twice as much memory and time as BOUNDED; but products of many factors need it, as
        # another order of them may overflow.
        bound_kind = BOUNDED if whole and not self.small and not multiplies(self.transformed) else OUTCOMES
        batch = len(next(iter(stacks.values()))) if stacks else len(places)
        jobs = [
            pool.submit(self.run, kind, stacks, batch, rows)
            for kind, rows in ((bound_kind, bound_rows), (WIDE, value_rows))
        ]

        def outcomes() -> list[Outcome]:
            bounded, wide = (job.result() for job in jobs)
            return [
                self.outcome(
                    {n: a[at, ...] for n, a in bounded.items()},
                    {n: a[at, ...] for n, a in wide.items()},
                    value_rows,
                    whole,
                    isinstance(at, slice),
                )
                for at in places
            ]

        return outcomes

    def outcome(
        self,
        bounded: Mapping[str, Array],
        wide: Mapping[str, Array],
        rows: Array | None,
        whole: bool,
        sets: bool = False,
    ) -> Outcome:
        """Put the answers of the two references together; with ``rows``, ``wide`` has only these."""
        pieces: list[Piece] = []
        for name in self.original.outputs:
            known = (f"{name}_{part}" for part in ("v", "e", "far", "lo", "hi"))
            own: list[Any] = [bounded.get(part) for part in known]
            dimensions = self.rows.dimensions[name] if self.rows else ()
            if rows is not None and whole:
                pieces.append(Piece(name, Expected(own[0], *own)))
                own = [None if part is None else rows_of(part, rows, dimensions) for part in own]
            pieces.append(Piece(name, Expected(wide[f"{name}_v"], *own), rows, dimensions, sets))
        return Outcome(tuple(pieces), float(max(np.max(wide[PEAK]), np.max(bounded[PEAK]))))

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
            given[ROWS] = np.stack([rows] * batch)
        artifact = self.artifact(kind, batch, 0 if rows is None else len(rows))
        request = RunRequest(given, timeout_s=_REFERENCE_TIMEOUT_S, memory_bytes=_REFERENCE_BYTES)
        [result] = execute(Job((artifact,), request, "reference", trusted=True, forks=self.forks))
        if isinstance(result, Failure) or result.outputs is None:
            raise VerificationError("PD-V021", "the float64 reference did not run", why=str(result))
        return result.outputs

    def artifact(self, kind: str, batch: int, rows: int) -> Artifact:
        key = (kind, batch, rows)
        if key not in self.compiled:
            # On rows the bound has to hold for any order, since rows are defined for the original
            # program only, and not for the transformed program's order.
            program = self.original if kind == WIDE or rows else self.transformed
            source = reference(
                program,
                kind,
                self.accuracy,
                self.dialect,
                batch=batch,
                rows=rows,
                split=self.rows if rows else None,
                any_order=rows > 0,
                reciprocals=RECIPROCAL in self.laws,
                nan_may_differ=self.nan_may_differ,
                large=not self.small,
            )
            support = tuple(sorted(source.support.items()))
            flags = FORK_FLAGS if self.forks else REFERENCE_FLAGS if self.small else LARGE_FLAGS
            self.compiled[key] = _compiled(
                source.symbol, source.inputs, source.outputs, source.code, support, flags
            )
        return self.compiled[key]


def quick_instances(original: Program, transformed: Program, laws: Collection[str] = ()) -> int:
    """Statement instances of ``original`` whose results a quick comparison looks at."""
    instances = statement_instances(original)
    rows, _ = _independent_rows(original, transformed, laws)
    if rows is None or max(instances, statement_instances(transformed)) <= _FULL_INSTANCES:
        return instances
    return instances // rows.count * _wanted_rows(original, rows, _ROW_INSTANCES)


def _independent_rows(
    original: Program, transformed: Program, laws: Collection[str]
) -> tuple[Rows | None, str]:
    """The decomposition of the program into rows that can be verified alone, or None with the reason.

    On rows, the bound is that of the original program in any order of its terms. It accounts for reciprocals,
    but for no other declared rounding, and for no sums that the original does not have.
    """
    if not _float_dtypes(transformed) <= _float_dtypes(original):
        return None, "its moves change precision"
    if others := sorted({law for law in laws if not bounded_in_rows(law)}):
        return None, f"its moves declare {' and '.join(others)}"
    return outermost_rows(original, _ROW_INSTANCES // _SOME_ROWS), "its rows depend on each other"


def _wanted_rows(original: Program, rows: Rows, instances: int) -> int:
    """The number of rows to look at: all first and last ones, and others up to ``instances``."""
    corners = prod(min(size, 2) for size in rows.sizes)
    return min(rows.count, max(corners, instances * rows.count // statement_instances(original)))


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

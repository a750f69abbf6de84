"""The numeric leg of verification: the compiled kernel's results against float64.

The expected value comes from the original program in double precision. The largest legal distance from it
is a running error bound, computed in the transformed program's own order. A bound from the number of terms
alone would hide a dropped iteration; a bound in the original order would refuse a legal re-association.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from itertools import accumulate
from math import prod
from random import Random
from typing import TypeVar

import numpy as np

from perfdojo_sdk.core.dialect import Dialect
from perfdojo_sdk.core.interface import EXECUTIONS, MAX_THREADS
from perfdojo_sdk.core.laws import computes_other_terms
from perfdojo_sdk.core.program import Node, Program, Scope, Statement
from perfdojo_sdk.core.words import number_of
from perfdojo_sdk.graph.packed_arrays import as_passed
from perfdojo_sdk.hookspecs.abilities import RunsSets, ability
from perfdojo_sdk.hookspecs.types import Artifact, Runner, RunRequest
from perfdojo_sdk.measure.kernel_calls import CARRIER, numbers
from perfdojo_sdk.measure.shared_arrays import shared_array
from perfdojo_sdk.verify.drawing import INTEGERS
from perfdojo_sdk.verify.exact_integers import integer_range
from perfdojo_sdk.verify.groups import Array
from perfdojo_sdk.verify.inputs import classes, draw, draw_sets, drawings, sets_of
from perfdojo_sdk.verify.judgement import ClassResult, Outcome, judge
from perfdojo_sdk.verify.references import References
from perfdojo_sdk.verify.runs import Run, executor, start_runs
from perfdojo_sdk.verify.zeros import signed_outputs

T = TypeVar("T")

#: Bytes of inputs, and of a small program's expected results, of one group; two are in memory at a time.
_MOST_BYTES = 1 << 29
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
_TIMEOUT_S = 120.0


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
    executions: bool | Collection[str] | None = None,
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
    ``executions``: also call the kernel in these ways, or in all, that the runner knows of
    ``core.interface.EXECUTIONS``, on the first drawing; unless told otherwise, in all where it is neither
    quick nor one of many.
    UnavailableError without a C compiler; VerificationError for a dtype that is not checked here.
    """
    references = References(original, transformed, accuracy, dialect, seed, forks, nan_may_differ, laws)
    other_terms = computes_other_terms(laws)
    if executions is None:
        executions = not quick and not forks
    names = tuple(EXECUTIONS if executions is True else executions or ())
    sets = sets_of(original, references.instances) if ability(runner, RunsSets) else {}
    planned, skipped = _planned(references, sets, threads, quick, bool(names))
    results: list[ClassResult] = []
    with executor(runner, 3, forks) as pool:
        comparison = _Comparison(
            references, artifact, runner, dialect, seed, names, planned[0], quick, forks, other_terms, pool
        )
        groups = _groups(planned, original, references.small)
        for started in _one_ahead(map(comparison.started, groups)):
            results += comparison.judged(started)
            if problem := _problem(results):
                return NumericReport(False, (*results, *skipped), problem)
    return NumericReport(True, (*results, *skipped))


def _one_ahead(items: Iterable[T]) -> Iterator[T]:
    """Each item, once the next one is there, too."""
    waiting = deque[T]()
    for item in items:
        yield from waiting
        waiting.clear()
        waiting.append(item)
    yield from waiting


@dataclass(frozen=True)
class _Started:
    """A group of drawings whose references and runs go on."""

    group: Sequence[_Plan]
    inputs: Sequence[Mapping[str, Array]]
    expected: Callable[[], list[Outcome]]
    runs: Sequence[Run]


@dataclass(frozen=True)
class _Comparison:
    """Groups of drawings are started and judged, so that one can be judged while the next one runs."""

    references: References
    artifact: Artifact
    runner: Runner
    dialect: Dialect
    seed: int
    executions: tuple[str, ...]
    first: _Plan
    """The drawing that goes through the executions."""
    quick: bool
    forks: bool
    other_terms: bool
    pool: Executor

    def started(self, group: Sequence[_Plan]) -> _Started:
        original, seed, pool = self.references.original, self.seed, self.pool
        places = _places(group)
        stacks = _stacks(original, sum(plan.sets for plan in group))
        inputs = [{name: stack[at, ...] for name, stack in stacks.items()} for at in places]
        _draw(group, original, seed, inputs)
        requests = [
            (plan.sets, self._request(given, t))
            for plan, given in zip(group, inputs, strict=True)
            for t in (plan.threads[:1] if self._put_through(plan) else plan.threads)
        ]
        if self._put_through(group[0]):
            program, names = self.references.transformed, self.executions
            request = _with_executions(requests[0][1], program, self.dialect, seed, names, self.quick)
            requests[0] = (1, request)
        expected = self.references.expect(stacks, places, pool, group[0] is self.first, self.quick)
        instances = self.references.instances
        runs = start_runs(self.runner, self.artifact, requests, pool, self.forks, instances)
        return _Started(group, inputs, expected, runs)

    def judged(self, started: _Started) -> Iterator[ClassResult]:
        original, transformed = self.references.original, self.references.transformed
        done = (future.result()[place] for future, place in started.runs)
        for plan, given, outcome in zip(started.group, started.inputs, started.expected(), strict=True):
            read = {n: numbers(array, original.buffer_of[n].dtype) for n, array in given.items()}
            signed = signed_outputs(original, read) & signed_outputs(transformed, read)
            enough = False
            for t in plan.threads:
                if not (self._put_through(plan) and t != plan.threads[0]):
                    run = next(done)
                elif enough:
                    continue
                else:
                    run = self.runner.run(self.artifact, self._request(given, t))
                nan_may_differ = self.references.nan_may_differ
                result = judge(plan.name, t, run, outcome, nan_may_differ, self.other_terms, signed)
                # The execution of that name: every number of threads gave the same bits.
                enough = enough or bool(result.problem) or "threads" in result.executions
                yield result

    def _put_through(self, plan: _Plan) -> bool:
        return bool(self.executions) and plan is self.first

    def _request(self, given: Mapping[str, Array], threads: int) -> RunRequest:
        # Any bits may follow the last element of a packed array.
        rest = Random(self.seed).getrandbits(8)
        passed = {spec.name: as_passed(given[spec.name], spec, rest) for spec in self.artifact.inputs}
        return RunRequest(inputs=passed, threads=threads, timeout_s=_TIMEOUT_S)


def _with_executions(
    request: RunRequest,
    program: Program,
    dialect: Dialect,
    seed: int,
    names: tuple[str, ...] = tuple(EXECUTIONS),
    quick: bool = False,
) -> RunRequest:
    """The request, with these executions; ``quick``: on few numbers of threads."""
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
    return replace(request, executions=names, thread_counts=counts[: 3 if quick else None], busy_threads=busy)


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
    references: References, sets: Mapping[str, int], threads: Sequence[int], quick: bool, executions: bool
) -> tuple[list[_Plan], list[ClassResult]]:
    """The drawings that will be run, each with its numbers of threads; and the classes that are skipped."""
    first = tuple(dict.fromkeys((1, *threads))) if executions else tuple(threads)
    planned: list[_Plan] = []
    skipped: list[ClassResult] = []
    for drawing, why in _drawings(references, sets):
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


def _drawings(references: References, sets: Mapping[str, int]) -> Iterator[tuple[_Plan, str]]:
    """All drawings, the plain one first, and why one is skipped."""
    original = references.original
    ranges = [integer_range(program) for program in (original, references.transformed)]
    largest = min(r for r, _ in ranges)
    why = next((why for _, why in ranges if why), "")
    counts = drawings(original, references.instances)
    for name in classes(original, references.small):
        for number in range(counts.get(name, 1)):
            yield _Plan(name, number, sets=sets.get(name, 1)), ""
    yield _Plan(INTEGERS, 0, largest), f"not a polynomial on small integers: {why}" if why else ""


def _stacks(program: Program, batch: int) -> dict[str, Array]:
    """Memory for ``batch`` sets of a program's inputs, set after set in one array for each."""
    buffers = [program.buffer_of[name] for name in program.inputs]
    return {b.arrays[0]: shared_array((batch, *b.shape), np.dtype(CARRIER[b.dtype])) for b in buffers}

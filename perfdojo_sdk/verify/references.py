"""The two reference programs of the numeric leg: the original in double precision, and the error bound.

Small programs run as a whole; of a large one with independent rows, some rows are looked at.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Executor
from functools import lru_cache
from itertools import product
from math import prod
from threading import Lock
from typing import Any

import numpy as np

from perfdojo_sdk.core.dialect import Dialect
from perfdojo_sdk.core.dtypes import FLOAT_DTYPES
from perfdojo_sdk.core.errors import VerificationError
from perfdojo_sdk.core.laws import RECIPROCAL, bounded_in_rows
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.hookspecs.types import ArraySpec, Artifact, Failure, KernelSource, RunRequest
from perfdojo_sdk.measure.programs import compile_program
from perfdojo_sdk.measure.sandbox import run_own
from perfdojo_sdk.measure.toolchain import IN_ORDER, find_toolchain
from perfdojo_sdk.verify.groups import Array
from perfdojo_sdk.verify.independent_rows import Rows, outermost_rows
from perfdojo_sdk.verify.judgement import Expected, Outcome, Piece, rows_of
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
from perfdojo_sdk.verify.smaller_games import statement_instances

#: Statement instances up to which every class runs on the whole program.
_FULL_INSTANCES = 10**7
#: Instances of the original program that a class may cost when only some rows are looked at.
_ROW_INSTANCES = 2 * 10**6
#: Rows that these should be enough for: if outermost iterations cost much, rows take in more levels.
_SOME_ROWS = 50
#: Instances for the original's value in the one class that a large program runs as a whole.
_VALUE_INSTANCES = 2 * 10**8
#: Instances up to which a large program runs as a whole in that class; beyond, it runs on so many rows that
#: they have as many instances as above.
WHOLE_INSTANCES = 10**9
REFERENCE_FLAGS = ("-O2", "-ffp-contract=off", *IN_ORDER)
#: Instances that run in less time than references take to compile.
_REPEATED = 3 * 10**7
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
_TIMEOUT_S, _BYTES = 600.0, 32 << 30


class References:
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
        self.instances = max(
            statement_instances(original), statement_instances(transformed), _given(original)
        )
        self.small = self.instances <= _FULL_INSTANCES
        self.rows, self.no_rows = _independent_rows(original, transformed, laws)
        self.compiled: dict[tuple[str, int, int], Artifact] = {}
        self.batches = set[tuple[int, int]]()
        """Numbers of sets of inputs, and of rows, that references are for."""
        self.locks = defaultdict[tuple[str, int, int], Lock](Lock)

    def expect(
        self,
        stacks: Mapping[str, Array],
        places: Sequence[int | slice],
        pool: Executor,
        first: bool,
        quick: bool = False,
    ) -> Callable[[], list[Outcome]]:
        """Start both references on each set of inputs; a function that waits for the outcomes for those at
        each of ``places``. ``first``: these are the first inputs, of which many rows are looked at unless
        ``quick``.

        Small programs run as a whole. Of large ones with independent rows, the original runs on
        some rows; so does the bound, but for the first inputs of a program that is not huge.
        """
        sliced = self.rows is not None and not self.small
        many = first and not quick
        whole = not sliced or (many and self.instances <= WHOLE_INSTANCES)
        value_rows = self.choose_rows(_VALUE_INSTANCES if many else _ROW_INSTANCES) if sliced else None
        bound_rows = None if whole else value_rows
        # OUTCOMES costs twice as much memory and time as BOUNDED, and far more where a recurrence's bound
        # grows until numbers may be anything; but products of many factors need it, as another order of
        # them may overflow.
        plain = not self.small and not multiplies(self.transformed)
        bound_kind = BOUNDED if plain and (whole or first) else OUTCOMES
        batch = len(next(iter(stacks.values()))) if stacks else len(places)
        size = self.batch(batch, 0 if value_rows is None else len(value_rows))
        stacks = {name: _repeated(stack, size) for name, stack in stacks.items()}
        jobs = [
            pool.submit(self.run, kind, stacks, size, rows)
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
            dtype = self.original.buffer_of[name].dtype
            if rows is not None and whole:
                pieces.append(Piece(name, Expected(own[0], *own), dtype=dtype))
                own = [None if part is None else rows_of(part, rows, dimensions) for part in own]
            pieces.append(Piece(name, Expected(wide[value_of(name)], *own), rows, dimensions, sets, dtype))
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

    def batch(self, wanted: int, rows: int) -> int:
        """The number of sets of inputs that the references for so many take: more, if references for these
        are there already, and the sets too many take less time than compiling others."""
        most = 0 if self.forks else _REPEATED
        rest = (b for b, r in self.batches if r == rows and 0 <= (b - wanted) * self.instances <= most)
        found = min(rest, default=wanted)
        self.batches.add((found, rows))
        return found

    def run(
        self, kind: str, stacks: Mapping[str, Array], batch: int, rows: Array | None
    ) -> Mapping[str, Array]:
        given = dict(stacks)
        if rows is not None:
            given[ROWS] = np.stack([rows] * batch)
        artifact = self.artifact(kind, batch, 0 if rows is None else len(rows))
        return run_reference(artifact, RunRequest(given, timeout_s=_TIMEOUT_S, memory_bytes=_BYTES))

    def artifact(self, kind: str, batch: int, rows: int) -> Artifact:
        key = (kind, batch, rows)
        with self.locks[key]:
            if key not in self.compiled:
                self.compiled[key] = self._compiled(*key)
            return self.compiled[key]

    def _compiled(self, kind: str, batch: int, rows: int) -> Artifact:
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
        flags = FORK_FLAGS if self.forks else REFERENCE_FLAGS if self.small else LARGE_FLAGS
        return compiled(source, flags)


def _repeated(stack: Array, sets: int) -> Array:
    """A stack of so many sets, its last one repeated."""
    more = sets - len(stack)
    return np.concatenate([stack, np.repeat(stack[-1:], more, axis=0)]) if more else stack


def value_of(name: str) -> str:
    """The array of a reference that has the values of an output."""
    return f"{name}_v"


def _given(program: Program) -> int:
    """Elements of all inputs: drawing a large table takes longer than picking a few rows of it."""
    return sum(program.buffer_of[name].cells for name in program.inputs)


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


def run_reference(artifact: Artifact, request: RunRequest) -> Mapping[str, Array]:
    """The outputs of a compiled reference; :class:`VerificationError` if it does not run."""
    found = run_own(artifact, request)
    if isinstance(found, Failure):
        raise VerificationError("PD-V021", "the float64 reference did not run", why=found.detail)
    return found


def compiled(source: KernelSource, flags: tuple[str, ...]) -> Artifact:
    """A reference as a program, compiled once for all the candidates that are compared with it."""
    support = tuple(sorted(source.support.items()))
    return _compiled(source.symbol, source.inputs, source.outputs, source.code, support, flags)


@lru_cache(64)
def _compiled(
    symbol: str,
    inputs: tuple[ArraySpec, ...],
    outputs: tuple[ArraySpec, ...],
    code: str,
    support: tuple[tuple[str, str], ...],
    flags: tuple[str, ...],
) -> Artifact:
    source, toolchain = KernelSource(symbol, inputs, outputs, code, support=dict(support)), find_toolchain()
    made = compile_program(source, toolchain, flags)
    if isinstance(made, Failure) and _NATIVE in flags:
        made = compile_program(source, toolchain, tuple(flag for flag in flags if flag != _NATIVE))
    if isinstance(made, Failure):
        raise VerificationError("PD-V021", "the float64 reference does not compile", why=made.detail)
    return made

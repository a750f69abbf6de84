"""Leg 3 of verification: a move is right when every read still sees the same writes.

The check knows nothing of the moves' own reasoning. It takes the program before, the program after
and the instance relation that the move claims, and proves with integer sets (isl, exact for these
sizes) that

1. every old statement instance is computed exactly once (the relation is total, onto, one to one);
2. by the same expression, once new definitions are put in for the reads of them;
3. from the same values: each read, each accumulation and each output cell sees the same writes,
   traced through copies and partial results. Cells decide, never array names;
4. and that no two iterations of a parallel scope touch one cell that one of them writes.

Values flow in program order, with lanes in lockstep; 4 is what makes that order irrelevant for
parallel scopes. Sources: value-based flow is Feautrier's (1991), as computed by isl.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from perfdojo_sdk.core.dialect import Dialect
from perfdojo_sdk.core.errors import VerificationError
from perfdojo_sdk.core.expression import Cast, Expression, IndexValue, Literal, Read
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.core.transformation import (
    Definition,
    Instance,
    Joined,
    Kind,
    PartialCombine,
    PartialStart,
    Relation,
    Rules,
    Trace,
)
from perfdojo_sdk.verify.flow import Mode
from perfdojo_sdk.verify.instances import Place, ProgramSets
from perfdojo_sdk.verify.races import check_races, check_written
from perfdojo_sdk.verify.sets import Refuted, Session, isl, sample, writers
from perfdojo_sdk.verify.tracing import Origins, Piece, Tracer

RECIPROCAL = "x/y = x*(1/y)"


@dataclass(frozen=True)
class DependenceReport:
    """The answer of the integer-set check; true when it proved what was asked."""

    ok: bool
    problem: str
    """What is wrong and where, with a sample instance; "undecided: ..." when isl gave up."""
    seconds: float

    def __bool__(self) -> bool:
        return self.ok


def verify_dependence(
    before: Program,
    after: Program,
    relation: Relation,
    dialect: Dialect,
    kind: Kind,
    laws: frozenset[str] = frozenset(),
) -> DependenceReport:
    """Prove that ``after`` computes what ``before`` does, as far as ``kind`` and ``laws`` promise.

    Races are a question about one program alone: :func:`verify_races`. Expressions must keep their
    dtypes, so a move that changes precision is never proved here. Raises
    :class:`VerificationError` (PD-V041) when isl fails for another reason than its limit.
    """

    def check(session: Session) -> None:
        old, new = ProgramSets(session, before, dialect), ProgramSets(session, after, dialect)
        _Step(Origins(old, new, relation), kind, laws).check()

    return _report(check)


def verify_races(program: Program, dialect: Dialect) -> DependenceReport:
    """Prove that iterations of parallel scopes do not meet, and that no read comes before a write."""

    def check(session: Session) -> None:
        sets = ProgramSets(session, program, dialect)
        check_written(sets)
        check_races(sets)

    return _report(check)


def verify_dependence_trace(trace: Trace, rules: Rules) -> DependenceReport:
    """Check every step of a game with its own kind and laws, then the races of its last program."""

    def check(session: Session) -> None:
        old = ProgramSets(session, trace.root, rules.dialect)
        for number, step in enumerate(trace.steps):
            session.begin()
            try:
                new = ProgramSets(session, step.after, rules.dialect)
                origins = Origins(old, new, rules.relation(step))
                _Step(origins, step.legal.kind, step.legal.laws).check()
            except Refuted as problem:
                raise Refuted(f"move {number}, {step.move.text}: {problem}") from problem
            old = new
        session.begin()
        check_written(old)
        check_races(old)

    return _report(check)


def _report(check: Callable[[Session], None]) -> DependenceReport:
    start = time.perf_counter()
    session = Session()
    session.begin()
    problem = ""
    try:
        check(session)
    except Refuted as refuted:
        problem = str(refuted)
    except isl.Error as error:
        if not session.exhausted():
            raise VerificationError("PD-V041", "the integer-set library failed", why=str(error)) from error
        problem = f"undecided: more than {session.max_operations} operations of the integer-set library"
    return DependenceReport(not problem, problem, time.perf_counter() - start)


# -- expressions -----------------------------------------------------------------------------------


class _Term(NamedTuple):
    """An expression whose leaves are readers. ``path``: the readers to follow, the last one's value."""

    head: tuple[str, ...]
    arguments: tuple[_Term, ...] = ()
    path: tuple[str, ...] = ()


def _term(name: str, value: Expression, leaf: Callable[[str, Read | IndexValue], _Term]) -> _Term:
    """``leaf`` makes the term of the k-th leaf of statement ``name``, given the reader's name."""
    count = 0

    def visit(node: Expression) -> _Term:
        nonlocal count
        if isinstance(node, (Read, IndexValue)):
            count += 1
            return leaf(f"{name}_{count - 1}", node)
        if isinstance(node, Literal):
            return _Term(("literal", node.text, node.dtype))
        if isinstance(node, Cast):
            return _Term(("cast", node.dtype), (visit(node.argument),))
        return _Term(("operation", node.name, node.dtype), tuple(map(visit, node.arguments)))

    return visit(value)


def _leaf(reader: str, node: Read | IndexValue) -> _Term:
    return _Term(("leaf", node.dtype), path=(reader,))


def _one_over(term: _Term) -> _Term | None:
    """x of 1/x."""
    if term.head[:2] == ("operation", "div") and term.arguments[0].head[:2] == ("literal", "1"):
        return term.arguments[1]
    return None


def _defined(
    tracer: Tracer, reader: str, node: Read | IndexValue, within: frozenset[str] = frozenset()
) -> _Term:
    """A leaf of a new statement; a read of a new definition becomes that definition's value."""
    found = writers(tracer.seen(reader)) if tracer.definitions else frozenset()
    if not found & tracer.definitions:
        return _leaf(reader, node)
    if len(found) > 1:
        raise Refuted(f"{tracer.new.reader_text(reader)}, which is only partly a new definition")
    (name,) = found
    if name in within:
        raise Refuted(f"{tracer.new.reader_text(reader)}: a new definition that depends on itself")

    def inner(below: str, node: Read | IndexValue) -> _Term:
        return _beneath(reader, _defined(tracer, below, node, within | {name}))

    return _term(name, tracer.new.by_name[name].statement.value, inner)


def _beneath(reader: str, term: _Term) -> _Term:
    """All leaves of a definition's value are reached through the ``reader`` of the definition."""
    if term.path:
        return term._replace(path=(reader, *term.path))
    return term._replace(arguments=tuple(_beneath(reader, a) for a in term.arguments))


# -- one step --------------------------------------------------------------------------------------


class _Step:
    """One move: two programs, and the origin of every new statement."""

    def __init__(self, origins: Origins, kind: Kind, laws: frozenset[str]) -> None:
        self.origins, self.kind, self.laws = origins, kind, laws
        self.session, self.old, self.new = origins.session, origins.old, origins.new
        in_parts = any(isinstance(o, (PartialStart, PartialCombine)) for o in origins.relation.values())
        # A move that uses a law may re-associate as well, but only by partial results of its own.
        self.ordered = kind is not Kind.REASSOCIATES and not (kind > Kind.REASSOCIATES and in_parts)

    def check(self) -> None:
        self._check_interface()
        self._check_origins()
        self._check_instances()
        check_written(self.new)
        tracers = {mode: Tracer(self.origins, mode) for mode in self._modes()}
        pairs = list(self._pairs(next(iter(tracers.values()))))
        for mode, tracer in tracers.items():
            if mode == "terms":
                tracer.check_partials()
            for old, path in pairs:
                tracer.compare(old, path)
            if mode == "last":
                tracer.compare_targets()
            else:
                tracer.compare_mixed()

    def _modes(self) -> Iterator[Mode]:
        if self.ordered:
            yield "last"
        if not self.ordered or self.old.horizontal or self.new.horizontal:
            # The last of several lanes that add up hides the others, so look at all of them too.
            yield "terms"

    # -- the relation ------------------------------------------------------------------------------

    def _check_interface(self) -> None:
        before, after = self.old.program, self.new.program
        for program, other in ((before, after), (after, before)):
            for array in (*program.inputs, *program.outputs):
                one, two = program.buffer_of.get(array), other.buffer_of.get(array)
                if one is None or two is None or (one.shape, one.dtype) != (two.shape, two.dtype):
                    raise Refuted(f"the interface changes at {array}")
        if (before.inputs, before.outputs) != (after.inputs, after.outputs):
            raise Refuted("the interface changes")

    def _check_origins(self) -> None:
        for statement, origin in self.origins.relation.items():
            place = self.new.places.get(statement)
            if place is None:
                raise Refuted(f"the relation names {statement}, which the new program does not have")
            node = place.statement
            shape = {
                Definition: node.accumulate is None,
                PartialStart: node.accumulate is None and isinstance(node.value, Literal),
                PartialCombine: node.accumulate is not None and isinstance(node.value, Read),
                Instance: True,
                Joined: True,
            }
            if not shape[type(origin)]:
                raise Refuted(f"{self.new.describe(statement)} is no {type(origin).__name__}")
            if self.ordered and isinstance(origin, (PartialStart, PartialCombine)):
                raise Refuted(
                    f"{self.new.describe(statement)} makes partial results, and the move is {self.kind.label}"
                )

    def _check_instances(self) -> None:
        claims: dict[str, list[tuple[Place, Piece]]] = {statement: [] for statement in self.old.places}
        for name, pieces in self.origins.instances.items():
            place = self.new.by_name[name]
            for piece in pieces:
                self._check_named(place, piece)
                claims[piece.origin.statement].append((place, piece))
        for statement, claimed in claims.items():
            self._check_covered(self.old.places[statement], claimed)

    def _check_named(self, place: Place, piece: Piece) -> None:
        """The relation speaks of what exists."""
        origin, described = piece.origin, self.new.describe(place.statement.id)
        if origin.statement not in self.old.places:
            raise Refuted(f"{described}: the old program has no statement {origin.statement}")
        if len(origin.iterators) != len(self.old.places[origin.statement].sizes):
            raise Refuted(f"{described}: the relation gives {len(origin.iterators)} old iterators")

    def _check_covered(self, old: Place, claims: list[tuple[Place, Piece]]) -> None:
        described = self.old.describe(old.statement.id)
        if [self.origins.same(p) and p.domain == old.domain for p, _ in claims] == [True]:
            return
        wanted = self.session.set([self.session.instances(old.name, old.domain)])
        instances = self.session.instances
        claimed = self.session.map(
            self.origins.image(place, piece).intersect_domain(instances(place.name, place.domain))
            for place, piece in claims
        )
        got = claimed.range()
        if not wanted.is_subset(got):
            raise Refuted(f"{described}: no longer computed at {sample(wanted.subtract(got))}")
        if not got.is_subset(wanted):
            raise Refuted(f"{described}: computed at {sample(got.subtract(wanted))}, outside its scopes")
        if not claimed.is_injective():
            twice = claimed.apply_range(claimed.reverse())
            twice = twice.subtract(claimed.domain().identity())
            at = sample(claimed.intersect_domain(twice.domain()).range())
            raise Refuted(f"{described}: computed more than once at {at}")

    # -- equal expressions ---------------------------------------------------------------------------

    def _pairs(self, tracer: Tracer) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Old reader, and the new readers to follow to the same value."""
        for name, pieces in self.origins.instances.items():
            for piece in pieces:
                yield from self._leaf_pairs(tracer, name, piece.origin)
        for array in self.new.program.outputs:
            yield f"F_{array}", (f"F_{array}",)

    def _leaf_pairs(
        self, tracer: Tracer, name: str, origin: Instance
    ) -> Iterator[tuple[str, tuple[str, ...]]]:
        place, old = self.new.by_name[name], self.old.places[origin.statement]
        described, was = self.new.describe(place.statement.id), self.old.describe(origin.statement)
        if place.statement.accumulate != old.statement.accumulate:
            raise Refuted(f"{described} accumulates another way than {was}")
        if place.statement.dtype != old.statement.dtype:
            raise Refuted(f"{described} has another dtype than {was}")
        before = _term(old.name, old.statement.value, _leaf)
        after = _term(name, place.statement.value, partial(_defined, tracer))
        found = list(self._match(before, after))
        if None in found:
            raise Refuted(f"{described} computes another value than {was}")
        yield from (pair for pair in found if pair is not None)

    def _match(self, old: _Term, new: _Term) -> Iterator[tuple[str, tuple[str, ...]] | None]:
        """Pairs of leaves; None where the terms differ."""
        if old.head == new.head and len(old.arguments) == len(new.arguments):
            if old.path:
                yield old.path[0], new.path
            for a, b in zip(old.arguments, new.arguments, strict=True):
                yield from self._match(a, b)
            return
        divides = old.head[:2] == ("operation", "div") and new.head == ("operation", "mul", old.head[2])
        divisor = _one_over(new.arguments[1]) if divides and RECIPROCAL in self.laws else None
        if divisor is None:
            yield None
            return
        yield from self._match(old.arguments[0], new.arguments[0])
        yield from self._match(old.arguments[1], divisor)

"""The dependence leg of verification: a move is right when every read still sees the same writes.

The check uses nothing of the moves' own reasoning. It takes the program before, the program after
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
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import TypeAlias

from perfdojo_sdk.core.dialect import Dialect
from perfdojo_sdk.core.dtypes import INTEGER_DTYPES, bits, rounding_law
from perfdojo_sdk.core.errors import VerificationError
from perfdojo_sdk.core.expression import Expression, IndexValue, Literal, Read, performs
from perfdojo_sdk.core.laws import EXPONENT, FACTOR, FILTER, FLUSHED, RECIPROCAL, SQUARES, TO_ODD, holds
from perfdojo_sdk.core.operations import ACCUMULATIONS
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.core.transformation import (
    Bundle,
    Correction,
    Definition,
    Instance,
    Joined,
    Kind,
    PartialCombine,
    PartialStart,
    PointProduct,
    Relation,
    Remainder,
    Removed,
    Rules,
    ScaledCombine,
    Step,
    Trace,
)
from perfdojo_sdk.verify.filters import check_filter
from perfdojo_sdk.verify.flow import Mode
from perfdojo_sdk.verify.instances import ProgramSets, StatementDomain
from perfdojo_sdk.verify.laws import (
    Group,
    check_factor,
    check_flow_of_parts,
    check_squares,
)
from perfdojo_sdk.verify.races import check_races, check_written
from perfdojo_sdk.verify.repetition import check_repeated
from perfdojo_sdk.verify.sets import Refuted, Session, isl, sample, writers
from perfdojo_sdk.verify.shifts import check_behind, check_same_reads
from perfdojo_sdk.verify.terms import (
    FULL,
    Term,
    beneath,
    factors,
    leaf,
    one_over,
    scaled_difference,
    term_of,
    unrounded,
)
from perfdojo_sdk.verify.tracing import Origins, Part, Piece, Tracer
from perfdojo_sdk.verify.written_out import written_out


@dataclass(frozen=True)
class DependenceReport:
    """The answer of the integer-set check; true when it proved what was asked."""

    ok: bool
    problem: str
    """The problem and its place, with a sample instance; "undecided: ..." when isl gave up."""
    seconds: float
    decided: bool = True
    """True if the integer-set library found an answer within its limit; without one nothing is proved."""

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
    dtypes, but for statements that the relation says to round, under the law that this is. Raises
    :class:`VerificationError` (PD-V041) when isl fails for another reason than its limit.
    """

    def check(session: Session) -> None:
        known = written_out(session, before, after, relation, dialect)
        old, new = (ProgramSets(session, program, dialect) for program in known[:2])
        _Step(Origins(old, new, known.relation), kind, laws).check()

    return _report(check)


def verify_races(program: Program, dialect: Dialect) -> DependenceReport:
    """Prove that iterations of parallel scopes do not meet, and that no read comes before a write."""

    def check(session: Session) -> None:
        sets = ProgramSets(session, program, dialect)
        check_written(sets)
        check_races(sets)

    return _report(check)


def verify_dependence_trace(trace: Trace, rules: Rules, proved: set[bytes] | None = None) -> DependenceReport:
    """Check every step of a game with its own kind and laws, then the races of its last program.

    ``proved``: steps that need no second proof, under the same rules; those proved now are added.
    """
    known = set[bytes]() if proved is None else proved

    def check(session: Session) -> None:
        before, old = trace.root, None
        for number, step in enumerate(trace.steps):
            name = _name(step)
            if name in known and step.before is before:
                before, old = step.after, None
                continue
            session.begin()
            try:
                pair = written_out(session, before, step.after, rules.relation(step), rules.dialect)
                if old is None or pair.before is not before:
                    old = ProgramSets(session, pair.before, rules.dialect)
                new = ProgramSets(session, pair.after, rules.dialect)
                _Step(Origins(old, new, pair.relation), step.legal.kind, step.legal.laws).check()
            except Refuted as problem:
                raise Refuted(f"move {number}, {step.move.text}: {problem}") from problem
            known.add(name)
            before, old = step.after, new if pair.after is step.after else None
        session.begin()
        last = old or ProgramSets(session, before, rules.dialect)
        check_written(last)
        check_races(last)

    return _report(check)


def _name(step: Step) -> bytes:
    """Digest of all that a proof is about: both programs with their ids, the move, its kind and its laws."""
    ids = [node.id for program in (step.before, step.after) for _, node in program.walk()]
    legal = (step.legal.kind.label, *sorted(step.legal.laws))
    parts = (step.before.text, step.after.text, step.move.text, step.package, *ids, *legal)
    return sha256("\0".join(parts).encode()).digest()


def _report(check: Callable[[Session], None]) -> DependenceReport:
    start = time.perf_counter()
    session = Session()
    session.begin()
    problem, decided = "", True
    try:
        check(session)
    except Refuted as refuted:
        problem = str(refuted)
    except isl.Error as error:
        if not session.exhausted():
            raise VerificationError("PD-V041", "the integer-set library failed", why=str(error)) from error
        problem = f"undecided: more than {session.max_operations} operations of the integer-set library"
        decided = False
    finally:
        # Flows refer to their session and it to them: break the cycle, to free both now.
        session.memory.clear()
    return DependenceReport(not problem, problem, time.perf_counter() - start, decided)


# -- expressions -----------------------------------------------------------------------------------


_Pair: TypeAlias = tuple[tuple[str, ...], tuple[str, ...]] | tuple[tuple[str, ...], tuple[str, ...], Part]
"""Old readers, the new readers to follow to the same value, and a partial result that it is combined with."""


def _defined(
    tracer: Tracer, reader: str, node: Read | IndexValue, within: frozenset[str] = frozenset()
) -> Term:
    """A leaf of a new statement; a read of a new definition becomes that definition's value."""
    found = writers(tracer.seen(reader)) if tracer.definitions else frozenset()
    if not found & tracer.definitions:
        return leaf(reader, node)
    if len(found) > 1:
        raise Refuted(f"{tracer.new.reader_text(reader)}, which is only partly a new definition")
    (name,) = found
    if name in within:
        raise Refuted(f"{tracer.new.reader_text(reader)}: a new definition that depends on itself")

    def inner(below: str, node: Read | IndexValue) -> Term:
        return beneath(reader, _defined(tracer, below, node, within | {name}))

    return term_of(name, tracer.new.by_name[name].statement.value, inner)


def _undefined(old: ProgramSets, definitions: frozenset[str], reader: str, node: Read | IndexValue) -> Term:
    """A leaf of an old statement; a read of an inlined definition becomes that definition's value."""
    found = writers(old.seen(reader, "last")) if definitions else frozenset()
    if not found & definitions:
        return leaf(reader, node)
    if len(found) > 1:
        raise Refuted(f"{old.reader_text(reader)}, which is only partly an inlined definition")
    (name,) = found
    statement = old.by_name[name].statement
    if statement.accumulate:
        raise Refuted(f"{old.describe(statement.id)} is no definition")
    return term_of(name, statement.value, lambda below, inner: beneath(reader, leaf(below, inner)))


def _rebased(new: ProgramSets, old: Term, term: Term) -> list[tuple[Term, Term]]:
    """(x, x') and (m, m') where old is exp(x - m) and term is exp(x' - q) * exp(q - m'), whatever q is; the
    differences may have factors and divisors, the same literals in all three."""
    if term.head[:2] != ("operation", "mul"):
        return []
    exponents = [t.arguments[0] for t in (old, *term.arguments) if t.head[:2] == ("operation", "exp")]
    scaled = [found for exponent in exponents if (found := scaled_difference(exponent))]
    if len(exponents) != 3 or len(scaled) != 3 or any(steps != scaled[0][1] for _, steps in scaled):
        return []
    before, first, second = (difference for difference, _ in scaled)
    if not _one_value(new, first.arguments[1], second.arguments[0]):
        return []
    return [(before.arguments[0], first.arguments[0]), (before.arguments[1], second.arguments[1])]


def _one_value(new: ProgramSets, left: Term, right: Term) -> bool:
    """True if two terms of one statement are the same expression of elements read by one instance."""
    if left.path or right.path:
        same = left.head == right.head and len(left.path) == len(right.path) == 1
        owners = [term.path[0].rpartition("_")[0] for term in (left, right)] if same else ["", "other"]
        return owners[0] == owners[1] and new.leaf(left.path[0]) == new.leaf(right.path[0])
    return (
        left.head == right.head
        and len(left.arguments) == len(right.arguments)
        and all(_one_value(new, a, b) for a, b in zip(left.arguments, right.arguments, strict=True))
    )


def _scales(value: Expression) -> bool:
    """True if the value is a product whose first factor is a read."""
    return performs(value, "mul") and isinstance(value.arguments[0], Read)


# -- one step --------------------------------------------------------------------------------------


def _adds_integers(program: ProgramSets) -> bool:
    """True if a program accumulates, and integers only: sums and products modulo a power of two, and the
    largest or smallest number, are the same in any order."""
    added = [p.statement.dtype for p in program.places.values() if p.statement.accumulate]
    return bool(added) and all(dtype in INTEGER_DTYPES for dtype in added)


class _Step:
    """One move: two programs, and the origin of every new statement."""

    def __init__(self, origins: Origins, kind: Kind, laws: frozenset[str]) -> None:
        self.origins, self.kind, self.laws = origins, kind, laws
        self.session, self.old, self.new = origins.session, origins.old, origins.new
        parts = (PartialStart, PartialCombine, ScaledCombine, Correction, PointProduct, Bundle)
        in_parts = any(isinstance(o, parts) for o in origins.relation.values())
        # A move that uses a law may re-associate as well, but only by partial results of its own, or where it
        # declares an instruction that adds up a few products in an order of its own.
        also = in_parts or not laws.isdisjoint((FLUSHED, TO_ODD))
        self.ordered = kind is not Kind.REASSOCIATES and not (kind > Kind.REASSOCIATES and also)

    def check(self) -> None:
        """Prove the step, with sums of integers in their order or, where that fails, in any: they wrap."""
        try:
            self._check()
        except Refuted:
            if self.kind is not Kind.EXACT or not (_adds_integers(self.old) and _adds_integers(self.new)):
                raise
            self.ordered = False
            self._check()

    def _check(self) -> None:
        self._check_interface()
        self._check_origins()
        self._check_instances()
        if self.origins.repeated:
            check_repeated(self.origins, self.ordered)
        check_written(self.new)
        self._check_losses()
        tracers = {mode: Tracer(self.origins, mode) for mode in self._modes()}
        pairs = list(self._pairs(next(iter(tracers.values()))))
        for mode, tracer in tracers.items():
            if mode == "terms":
                tracer.check_partials()
            for pair in pairs:
                tracer.compare(*pair)
            if mode == "last":
                tracer.compare_targets()
            else:
                tracer.compare_mixed()
            tracer.compare_choices()

    def _modes(self) -> Iterator[Mode]:
        if self.ordered:
            yield "last"
        if not self.ordered or self.old.horizontal or self.new.horizontal:
            # Of lanes that accumulate into one cell, "last" sees only the last one; "terms" sees them all.
            yield "terms"

    # -- the relation ------------------------------------------------------------------------------

    def _check_interface(self) -> None:
        before, after = self.old.program, self.new.program
        for program, other in ((before, after), (after, before)):
            for array in (*program.inputs, *program.outputs):
                one, two = program.buffer_of.get(array), other.buffer_of.get(array)
                if one is None or two is None or (one.shape, one.dtype) != (two.shape, two.dtype):
                    raise Refuted(f"the interface changes at {array}")
                if one.values != two.values:
                    raise Refuted(f"the elements of the table {array} change")
        if (before.inputs, before.outputs) != (after.inputs, after.outputs):
            raise Refuted("the interface changes")

    def _check_origins(self) -> None:
        for statement, origin in self.origins.relation.items():
            place = self.new.places.get(statement)
            if isinstance(origin, Removed):
                self._check_removed(statement)
                continue
            if place is None:
                raise Refuted(f"the relation names {statement}, which the new program does not have")
            if isinstance(origin, (PointProduct, Bundle)):
                self._check_known(statement, origin)
            node = place.statement
            shape = {
                Definition: node.accumulate is None,
                PartialStart: node.accumulate is None and isinstance(node.value, Literal),
                PartialCombine: node.accumulate is not None and isinstance(node.value, Read),
                ScaledCombine: node.accumulate == "add" and _scales(node.value),
                Correction: node.accumulate == "add",
                Remainder: node.accumulate == "add" and node.dtype in INTEGER_DTYPES,
                PointProduct: node.accumulate == "add",
                Bundle: node.accumulate == "add",
                Instance: True,
                Joined: True,
            }
            if not shape[type(origin)]:
                raise Refuted(f"{self.new.describe(statement)} is no {type(origin).__name__}")
            if self.ordered and not isinstance(origin, (Definition, Instance, Joined, Remainder)):
                raise Refuted(
                    f"{self.new.describe(statement)} makes partial results, and the move is {self.kind.label}"
                )

    def _check_known(self, statement: str, origin: PointProduct | Bundle) -> None:
        """Raise :class:`Refuted` unless the origin of a filter names a statement of the old program and its
        scopes."""
        old = self.old.places.get(origin.statement)
        levels = range(len(old.sizes) if old else 0)
        if isinstance(origin, Bundle):
            fits = len(origin.iterators) == len(levels)
        else:
            fits = origin.outputs in levels and origin.taps in levels and origin.outputs != origin.taps
        if old is None or not fits:
            raise Refuted(f"{self.new.describe(statement)}: the old program has no such {origin.statement}")

    def _check_removed(self, statement: str) -> None:
        """Raise :class:`Refuted` when a remaining statement reads a value of a removed one."""
        if statement in self.new.places or statement not in self.old.places:
            raise Refuted(f"{statement} is said to be removed and is not")
        name = self.old.places[statement].name
        for reader, through in self.old.flows_of.items():
            if not any(name in each.statements for each in through):
                continue
            owner = self.old.by_name.get(reader.rpartition("_")[0])
            if owner and isinstance(self.origins.relation.get(owner.statement.id), Removed):
                continue
            if any(name in writers(self.old.seen(reader, mode)) for mode in ("last", "terms")):
                raise Refuted(f"{self.old.reader_text(reader)}, which {self.old.describe(statement)} wrote")

    def _check_instances(self) -> None:
        relation = self.origins.relation
        claims: dict[str, list[tuple[StatementDomain, Piece]]] = {
            statement: [] for statement in self.old.places if not isinstance(relation.get(statement), Removed)
        }
        for name, pieces in self.origins.instances.items():
            place = self.new.by_name[name]
            for piece in pieces:
                self._check_named(place, piece, claims.keys())
                claims[piece.origin.statement].append((place, piece))
        for statement, claimed in claims.items():
            self._check_covered(self.old.places[statement], claimed)

    def _check_named(self, place: StatementDomain, piece: Piece, known: Collection[str]) -> None:
        """Raise :class:`Refuted` where the relation names something that does not exist."""
        origin, described = piece.origin, self.new.describe(place.statement.id)
        if origin.statement not in known:
            raise Refuted(f"{described}: the old program has no statement {origin.statement}")
        if len(origin.iterators) != len(self.old.places[origin.statement].sizes):
            raise Refuted(f"{described}: the relation gives {len(origin.iterators)} old iterators")
        if origin.repeated >= len(origin.iterators):
            raise Refuted(f"{described}: the relation names level {origin.repeated}, which is not there")
        if origin.repeated >= 0 and origin.iterators[origin.repeated].levels:
            raise Refuted(f"{described}: the relation names no single iteration of a level that is repeated")

    def _check_covered(self, old: StatementDomain, claims: list[tuple[StatementDomain, Piece]]) -> None:
        described = self.old.describe(old.statement.id)
        bundles = [n for n, bundle in self.origins.bundles.items() if bundle.statement == old.statement.id]
        if not bundles and [self.origins.same(p) and p.domain == old.domain for p, _ in claims] == [True]:
            return
        wanted = self.session.set([self.session.instances(old.name, old.domain)])
        if old.name in self.origins.repeated:
            wanted = wanted.apply(self.session.map([self.origins.first(old.name)]))
        instances = self.session.instances
        images = [(place.name, self.origins.image(place, piece)) for place, piece in claims]
        images += [(name, self.origins.bundled(name)) for name in bundles]
        claimed = self.session.map(
            image.intersect_domain(instances(name, self.new.by_name[name].domain)) for name, image in images
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

    def _pairs(self, tracer: Tracer) -> Iterator[_Pair]:
        """Old readers, and the new readers to follow to the same value."""
        fixes = {
            origin.statement: (self.new.places[statement], origin)
            for statement, origin in self.origins.relation.items()
            if isinstance(origin, (Correction, ScaledCombine, Remainder))
        }
        for name, pieces in self.origins.instances.items():
            fix = fixes.pop(self.new.by_name[name].statement.id, None)
            for piece in pieces:
                yield from self._leaf_pairs(tracer, name, piece.origin, fix)
        for array in self.new.program.outputs:
            yield (f"F_{array}",), (f"F_{array}",)
        for statement in {bundle.statement for bundle in self.origins.bundles.values()}:
            self._need(FILTER, self.old.describe(statement), self.old.places[statement].statement.dtype)
            check_filter(tracer, self.old.places[statement])
        for statement, (place, _) in fixes.items():
            raise Refuted(f"{self.new.describe(place.statement.id)} corrects {statement}, which is not there")

    def _leaf_pairs(
        self,
        tracer: Tracer,
        name: str,
        origin: Instance,
        fix: tuple[StatementDomain, Correction | ScaledCombine | Remainder] | None,
    ) -> Iterator[_Pair]:
        """The pairs of one new statement and its old one; ``fix`` follows where a law is used."""
        place, old = self.new.by_name[name], self.old.places[origin.statement]
        described, was = self.new.describe(place.statement.id), self.old.describe(origin.statement)
        if place.statement.accumulate != old.statement.accumulate:
            raise Refuted(f"{described} accumulates another way than {was}")
        if origin.rounded:
            self._check_rounded(origin, place, old)
        elif place.statement.dtype != old.statement.dtype:
            raise Refuted(f"{described} has another dtype than {was}")
        if fix is not None:
            behind, law = fix
            if isinstance(law, Correction):
                self._need(SQUARES, described, old.statement.dtype)
                yield from check_squares(tracer, old, place, behind)
            elif isinstance(law, Remainder):
                yield from self._shifted(old, place, behind)
            else:
                self._need(FACTOR, described, old.statement.dtype)
                yield from self._factored(tracer, old, place, behind, law.factors)
            return
        inlined = frozenset(self.old.places[d].name for d in origin.inlined if d in self.old.places)
        before = term_of(old.name, old.statement.value, partial(_undefined, self.old, inlined))
        after = term_of(name, place.statement.value, partial(_defined, tracer))
        if origin.rounded:
            before, after = (unrounded(term, origin.rounded) for term in (before, after))
        found = list(self._match(before, after))
        if None in found:
            if self.session.instances(name, place.domain).is_empty():
                return  # A condition that never holds: nothing is computed, and definitions are not seen.
            raise Refuted(f"{described} computes another value than {was}")
        yield from (pair for pair in found if pair is not None)

    def _split(self, old: Term, new: Term) -> _Pair | None:
        """A value that was read in one, and now is two reads and their combination; None for other terms."""
        if self.ordered or len(old.path) != 1 or new.head[0] != "operation" or len(new.arguments) != 2:
            return None
        _, name, dtype = new.head
        whole, part = new.arguments
        single = len(whole.path) == len(part.path) == 1
        if (
            not single
            or {old.head[-1], whole.head[-1], part.head[-1]} != {dtype}
            or name not in ACCUMULATIONS
        ):
            return None
        return old.path, whole.path, Part(name, *part.path)

    def _check_losses(self) -> None:
        """Raise :class:`Refuted` where a sum begins to lose what its instruction does, and no law says so."""
        for statement, laws in self.new.losing.items():
            origin = self.origins.relation.get(statement)
            before = origin.statement if isinstance(origin, Instance) else statement
            for law in sorted(laws - self.old.losing.get(before, frozenset())):
                self._need(law, self.new.describe(statement))

    def _check_rounded(self, origin: Instance, place: StatementDomain, old: StatementDomain) -> None:
        """Raise :class:`Refuted` unless each rounding is declared, and of a stored value, not of a sum."""
        described = self.new.describe(place.statement.id)
        self._need(rounding_law(origin.rounded), described)
        dtypes = {place.statement.dtype, old.statement.dtype}
        if len(dtypes) > 1 and dtypes != {origin.rounded, FULL}:
            raise Refuted(f"{described} has another dtype than {self.old.describe(origin.statement)}")
        if len(dtypes) > 1 and place.statement.accumulate:
            raise Refuted(f"{described} rounds a sum at each of its steps")

    def _factored(
        self,
        tracer: Tracer,
        old: StatementDomain,
        place: StatementDomain,
        combine: StatementDomain,
        moved: tuple[int, ...],
    ) -> Iterator[_Pair]:
        """Pairs of readers of the factors that stayed; those that moved behind the sum are compared."""
        group = Group(tracer, place, combine)
        check_flow_of_parts(group)
        before = factors(term_of(old.name, old.statement.value, leaf))
        kept = [term for k, term in enumerate(before) if k not in moved]
        gone = [term for k, term in enumerate(before) if k in moved]
        after = factors(term_of(place.name, place.statement.value, partial(_defined, tracer)))
        scale = factors(term_of(combine.name, combine.statement.value, leaf).arguments[1])
        found = [pair for a, b in zip(kept, after, strict=False) for pair in self._match(a, b)]
        scaled = [pair for a, b in zip(gone, scale, strict=False) for pair in self._match(a, b)]
        if None in (*found, *scaled) or (len(kept), len(gone)) != (len(after), len(scale)):
            raise Refuted(f"{self.new.describe(place.statement.id)} and its factor are another product")
        for one, other, *part in filter(None, scaled):
            if part:
                raise Refuted(f"{self.new.describe(combine.statement.id)} scales by a partial result")
            check_factor(group, one[0], other[0])
        yield from filter(None, found)

    def _shifted(
        self, old: StatementDomain, place: StatementDomain, rest: StatementDomain
    ) -> Iterator[_Pair]:
        """Pairs of readers of ``a * b`` and of ``(a + c) * b`` behind which ``rest`` adds ``b * -c``."""
        check_behind(self.new, place, rest)
        before = term_of(old.name, old.statement.value, leaf)
        after = term_of(place.name, place.statement.value, leaf)
        behind = term_of(rest.name, rest.statement.value, leaf)
        product_of = ("operation", "mul", old.statement.dtype)
        if before.head == after.head == behind.head == product_of:
            for k in (0, 1):
                pairs = self._with_shift(before.arguments, after.arguments, behind.arguments, k)
                if pairs is not None:
                    yield from pairs
                    return
        raise Refuted(
            f"{self.new.describe(rest.statement.id)} does not take away what "
            f"{self.new.describe(place.statement.id)} adds beyond {self.old.describe(old.statement.id)}"
        )

    def _with_shift(
        self, before: Sequence[Term], after: Sequence[Term], rest: Sequence[Term], k: int
    ) -> list[_Pair] | None:
        """Pairs of readers if factor ``k`` of ``before`` is greater by a number in ``after``, and ``rest`` is
        the other factor times the opposite number; None if not."""
        more, kept = after[k], after[1 - k]
        if more.head != ("operation", "add", kept.head[-1]):
            return None
        numbers = [term.head[1] for term in (more.arguments[1], rest[1]) if term.head[0] == "literal"]
        if len(numbers) < 2 or sum(map(int, numbers)) % (1 << bits(kept.head[-1])):
            return None
        found = [*self._match(before[k], more.arguments[0]), *self._match(before[1 - k], kept)]
        twice = list(self._match(kept, rest[0]))
        pairs = [pair for pair in found if pair is not None]
        if len(pairs) < len(found) or None in twice:
            return None
        check_same_reads(self.new, [(pair[0][0], pair[1][0]) for pair in twice if pair is not None])
        return pairs

    def _need(self, law: str, described: str, dtype: str = "") -> None:
        """Raise :class:`Refuted` unless the move declared the law and numbers of ``dtype`` obey it."""
        if law not in self.laws:
            raise Refuted(f"{described} needs a law that was not declared: {law}")
        if dtype and not holds(law, dtype):
            raise Refuted(f"{described} needs a law that {dtype} does not obey: {law}")

    def _match(self, old: Term, new: Term) -> Iterator[_Pair | None]:
        """Pairs of leaves; None where the terms differ."""
        if old.head == new.head and len(old.arguments) == len(new.arguments):
            if old.path:
                yield old.path, new.path
            for a, b in zip(old.arguments, new.arguments, strict=True):
                yield from self._match(a, b)
            return
        if part := self._split(old, new):
            yield part
            return
        if EXPONENT in self.laws and (parts := _rebased(self.new, old, new)):
            for a, b in parts:
                yield from self._match(a, b)
            return
        if new.head[:2] == ("operation", "select") and old.head[:2] != new.head[:2]:
            # Both values of a selection have to be the old one.
            for branch in new.arguments[1:]:
                yield from self._match(old, branch)
            return
        divides = old.head[:2] == ("operation", "div") and new.head == ("operation", "mul", old.head[2])
        lawful = divides and RECIPROCAL in self.laws and holds(RECIPROCAL, old.head[2])
        divisor = one_over(new.arguments[1]) if lawful else None
        if divisor is None:
            yield None
            return
        yield from self._match(old.arguments[0], new.arguments[0])
        yield from self._match(old.arguments[1], divisor)

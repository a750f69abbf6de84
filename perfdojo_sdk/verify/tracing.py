"""The values that a read of the new program sees, in terms of the old program.

New statements that only pass values on (copies, combinations of partial results) are looked through;
what remains are instances of old statements, input cells and integers.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cached_property
from typing import NamedTuple, NoReturn

from perfdojo_sdk.core.expression import AffineExpr, Literal, Read
from perfdojo_sdk.core.operations import identity
from perfdojo_sdk.core.transformation import (
    Bundle,
    Correction,
    Definition,
    Instance,
    Joined,
    Origin,
    PartialCombine,
    PartialStart,
    Relation,
    Remainder,
    ScaledCombine,
)
from perfdojo_sdk.verify.flow import Flow, Mode
from perfdojo_sdk.verify.instances import ProgramSets, StatementDomain
from perfdojo_sdk.verify.sets import (
    Domain,
    Refuted,
    by_reader,
    coordinates,
    form,
    isl,
    iterators,
    plainly_equal,
    tuple_name,
    with_writers,
    writers,
)


class Piece(NamedTuple):
    """An old statement that a new statement computes, in all or a part of its iterations."""

    origin: Instance
    conditions: tuple[str, ...] = ()
    """The part of the domain on which these forms are at least 0, as isl text."""


class Part(NamedTuple):
    """A partial result that a statement combines with what else it reads."""

    operation: str
    reader: str


class Origins:
    """The instance relation of one move, between the sets of two programs."""

    def __init__(self, old: ProgramSets, new: ProgramSets, relation: Relation) -> None:
        self.session, self.old, self.new, self.relation = new.session, old, new, relation

    def origin(self, place: StatementDomain) -> Origin:
        """The origin of a statement by the relation; by default the old statement, unchanged."""
        origin = self.relation.get(place.statement.id)
        if origin is not None:
            return origin
        return Instance(place.statement.id, tuple(AffineExpr.level(l) for l in range(len(place.sizes))))

    def same(self, place: StatementDomain) -> bool:
        return place.statement.id not in self.relation

    @cached_property
    def instances(self) -> dict[str, tuple[Piece, ...]]:
        """Name of a new statement -> the old ones that it computes."""
        found = {p.name: _pieces(self.origin(p)) for p in self.new.places.values()}
        return {name: pieces for name, pieces in found.items() if pieces}

    @cached_property
    def bundles(self) -> dict[str, Bundle]:
        """Name of a new statement -> the many instances of an old one that it stands for."""
        origins = {p.name: self.origin(p) for p in self.new.places.values()}
        return {name: origin for name, origin in origins.items() if isinstance(origin, Bundle)}

    def bundled(self, name: str) -> isl.Map:
        """Instances of a new statement -> all those of its bundle."""
        bundle, place = self.bundles[name], self.new.by_name[name]
        old = self.old.places[bundle.statement]
        fixed = {k: form(index) for k, index in enumerate(bundle.iterators) if index is not None}
        given = self.session.affine(name, len(place.sizes), "B", fixed.values())
        held = self.session.affine(old.name, len(old.sizes), "B", [f"i{k}" for k in fixed])
        known = self.session.instances(old.name, old.domain)
        return given.apply_range(held.intersect_domain(known).reverse())

    def image(self, place: StatementDomain, piece: Piece, source: str = "", target: str = "") -> isl.Map:
        """Instances of a new statement (or of its reader ``source``) -> the old ones."""
        source, target = source or place.name, target or self.old.places[piece.origin.statement].name
        choices = self.new.choices(place.name) if source.endswith("_t") else ()
        whole = Domain(place.sizes, piece.conditions).with_choices(choices)
        kept = [f"i{len(place.sizes) + k}" for k in range(len(choices))]
        found = self.session.affine(source, whole.depth, target, [*map(form, piece.origin.iterators), *kept])
        return found.intersect_domain(self.session.instances(source, whole)) if piece.conditions else found

    @cached_property
    def images(self) -> isl.UnionMap:
        """Every new source of values -> the old one."""
        parts = [
            self.image(self.new.by_name[name], piece)
            for name, pieces in self.instances.items()
            for piece in pieces
        ]
        parts += [self.bundled(name) for name in self.bundles]
        parts.append(self.session.identity("V", "V", 1))
        for array in self.new.program.inputs:
            rank = len(self.new.program.buffer_of[array].shape)
            parts.append(self.session.identity(f"I_{array}", f"I_{array}", rank))
        parts += [self.session.identity(name, name, rank) for name, rank in self.new.chosen_sources.items()]
        return self.session.map(parts)

    @cached_property
    def repeated(self) -> Mapping[str, Instance]:
        """Name of an old statement -> the one of its instances that stands for all of a level."""
        pieces = (piece.origin for found in self.instances.values() for piece in found)
        return {self.old.places[o.statement].name: o for o in pieces if o.repeated >= 0}

    def first(self, name: str, reader: str = "") -> isl.Map:
        """Instances of a repeated old statement, or of its reader -> the one that stands for each."""
        place, origin, reader = self.old.by_name[name], self.repeated[name], reader or name
        forms = iterators(len(place.sizes))
        forms[origin.repeated] = form(origin.iterators[origin.repeated])
        onto = self.session.affine(reader, len(place.sizes), reader, forms)
        return onto.intersect_domain(self.session.instances(reader, place.domain))

    def once(self, seen: isl.UnionMap) -> isl.UnionMap:
        """A relation to old sources, with the instance that stands for each where a statement is repeated."""
        again = writers(seen) & self.repeated.keys() if self.repeated else frozenset[str]()
        if not again:
            return seen
        onto = self.session.map([self.first(name) for name in sorted(again)])
        return with_writers(seen, writers(seen) - again).union(with_writers(seen, again).apply_range(onto))

    @cached_property
    def sources(self) -> frozenset[str]:
        """Names of the new sources of values."""
        inputs = {f"I_{array}" for array in self.new.program.inputs}
        direct = inputs | {"V"} | set(self.new.chosen_sources)
        return frozenset(self.instances) | frozenset(self.bundles) | direct


def _pieces(origin: Origin) -> tuple[Piece, ...]:
    if isinstance(origin, Instance):
        return (Piece(origin),)
    if isinstance(origin, Joined):
        level, at = origin.level, origin.at
        return Piece(origin.first, (f"{at - 1} - i{level}",)), Piece(origin.second, (f"i{level} - {at}",))
    return ()


class Tracer:
    """The flow of the new program with copies and partial results looked through.

    A *conduit* is a new statement that only passes values on: a copy, or the combination of a
    partial result (what a read of it by leaf 0 sees). ``passed`` leads from its instances to the old
    statements' values behind them. A correction adds no value of the old program. What a remainder adds onto
    is, with the remainder, the value of an old statement.
    """

    def __init__(self, origins: Origins, mode: Mode) -> None:
        self.origins, self.mode = origins, mode
        self.session, self.old, self.new = origins.session, origins.old, origins.new
        passes = {
            p.name: origins.origin(p)
            for p in self.new.places.values()
            if isinstance(p.statement.value, Read) or isinstance(origins.origin(p), ScaledCombine)
        }
        self.combines = {n for n, o in passes.items() if isinstance(o, (PartialCombine, ScaledCombine))}
        self.conduits = self.combines | {n for n, o in passes.items() if isinstance(o, Definition)}
        remainders = {p.name for p in self.new.places.values() if isinstance(origins.origin(p), Remainder)}
        self.remainders = remainders if mode == "last" else set[str]()
        self.conduits |= self.remainders
        self.starts = {
            p.name for p in self.new.places.values() if isinstance(origins.origin(p), PartialStart)
        }
        self.corrections = {
            p.name for p in self.new.places.values() if isinstance(origins.origin(p), Correction)
        } | (remainders - self.remainders)
        self.definitions = {
            p.name
            for p in self.new.places.values()
            if isinstance(origins.origin(p), Definition) and p.name not in self.conduits
        }
        self._seen: dict[str, isl.UnionMap] = {}

    @cached_property
    def _behind(self) -> isl.UnionMap:
        """Conduit instance -> the writes that the read of the conduit sees."""
        found = self.session.map()
        for name in sorted(self.conduits):
            reader = f"{name}_t" if name in self.remainders else f"{name}_0"
            found = found.union(self.enter(reader).apply_range(self.new.seen(reader, self.mode)))
        return found

    @cached_property
    def passed(self) -> isl.UnionMap:
        """Conduit instance -> everything but conduits behind it."""
        behind = self._behind
        onward = with_writers(behind, self.conduits)
        # The start of a partial result adds nothing to a combination. (If it is missing for any other
        # reader, the comparison finds a read without its first write.)
        ends = with_writers(behind, writers(behind) - self.conduits - self.starts - self.corrections)
        found, chain = ends, onward
        for _ in range(len(self.conduits) + 1):
            if chain.is_empty():
                return found
            found, chain = found.union(chain.apply_range(ends)), chain.apply_range(onward)
        closure, exact = onward.transitive_closure()
        if not exact:
            raise Refuted("undecided: copies feed one another in a way that has no closed form")
        return ends.union(closure.apply_range(ends))

    def seen(self, reader: str) -> isl.UnionMap:
        """Reader -> the writes it sees, with no conduit among them."""
        if reader not in self._seen:
            self._seen[reader] = self._look(reader)
        return self._seen[reader]

    def _look(self, reader: str, without: Collection[Flow] = ()) -> isl.UnionMap:
        return self._through(self.new.seen(reader, self.mode, without))

    def _through(self, direct: isl.UnionMap) -> isl.UnionMap:
        """The same relation with conduits looked through."""
        names = writers(direct)
        if not names & (self.conduits | self.corrections):
            return direct
        through = with_writers(direct, self.conduits).apply_range(self.passed)
        return with_writers(direct, names - self.conduits - self.corrections).union(through)

    def follow(self, path: tuple[str, ...]) -> isl.UnionMap:
        """First reader of the path -> what the last one sees, from definition to definition."""
        found = self.seen(path[0])
        for reader in path[1:]:
            found = found.apply_range(self.enter(reader)).apply_range(self.seen(reader))
        return found

    def enter(self, reader: str) -> isl.UnionMap:
        """Instances of a statement -> the same instances as a reader."""
        name = reader.rpartition("_")[0]
        return self.session.map([self.session.identity(name, reader, len(self.new.by_name[name].sizes))])

    # -- comparison --------------------------------------------------------------------------------

    def compare(self, old: tuple[str, ...], path: tuple[str, ...], part: Part | None = None) -> None:
        """Raise unless the old readers and the new ones, with the partial result ``part``, lead to the same
        writes."""
        shared = self._untouched(old[0]) if path == old and len(old) == 1 and not part else frozenset[Flow]()
        if shared is None:
            return
        found = self._look(path[0], shared) if shared else self.follow(path)
        if part:
            found = found.union(self._part(path[0], found, part))
        strange = writers(found) - self.origins.sources
        if strange:
            where = self.new.describe(self.session.id_of[min(strange)])
            what = self.new.reader_text(path[0])
            raise Refuted(f"{what} and sees {where}, which is no value of the old program")
        known = self.old.seen(old[0], self.mode, shared)
        for reader in old[1:]:
            name = reader.rpartition("_")[0]
            enter = self.session.identity(name, reader, len(self.old.by_name[name].sizes))
            known = known.apply_range(self.session.map([enter]))
            known = known.apply_range(self.old.seen(reader, self.mode))
        self.equal(old[0], path[0], found, known)

    def compare_targets(self) -> None:
        """Raise unless each accumulation adds onto the same value as before."""
        for name, pieces in self.origins.instances.items():
            if self.new.by_name[name].statement.accumulate:
                for piece in pieces:
                    self.compare((f"{self.old.places[piece.origin.statement].name}_t",), (f"{name}_t",))

    def compare_choices(self) -> None:
        """Raise unless each write at a run-time index has the same index, and the same place among the writes
        of each cell that it may be of; so do accumulations into such cells."""
        pairs = ((name, piece) for name, pieces in self.origins.instances.items() for piece in pieces)
        for name, piece in pairs:
            old = self.old.places[piece.origin.statement]
            if self.new.chooses(name) != self.old.chooses(old.name):
                mine = self.new.describe(self.new.by_name[name].statement.id)
                raise Refuted(f"{mine} writes at another index than {self.old.describe(old.statement.id)}")
            if self.new.chooses(name):
                self.compare((f"{old.name}_c",), (f"{name}_c",))
            flow = self.new.own_flow(name)
            if flow and flow.chooses:
                self.compare((f"{old.name}_t",), (f"{name}_t",))

    def compare_mixed(self) -> None:
        """Compare the order of different accumulations (+= and max=) on a cell, which matters, unlike that
        of equal ones.

        A term of a partial result takes its place where the result is combined, and also where it stands
        itself, in case that others than the combination read it. Readers see the same terms as before, so
        their values are the same if nothing stands before a term in any place that did not before the move.
        """
        pairs = ((name, piece) for name, pieces in self.origins.instances.items() for piece in pieces)
        for name, piece in pairs:
            place, old = self.new.by_name[name], self.old.places[piece.origin.statement].name
            flows = self.new.own_flow(name), self.old.own_flow(old)
            if not any(flow and len(flow.operations) > 1 for flow in flows):
                continue
            mine = place.statement.accumulate
            found = self._others_before(name, mine).union(self._others_before_parts(name, mine))
            known = other_operations(self.old, self.old.before(old), mine)
            self.equal(f"{old}_t", f"{name}_t", found, known)

    def _others_before(self, name: str, mine: str | None) -> isl.UnionMap:
        """An accumulation, as a reader -> those of other kinds before it on its cell."""
        return other_operations(self.new, self._through(self.new.before(name)), mine)

    def _others_before_parts(self, name: str, mine: str | None) -> isl.UnionMap:
        """An accumulation, as a reader -> those of other kinds before the combinations of its term."""
        found = self.session.map()
        if self.new.choices(name):
            return found  # the order of such writes is kept as it is: compare_choices
        term = self.enter(f"{name}_t")
        for combine in sorted(self.combines & self._passed_by.keys()):
            parts = with_writers(self._passed_by[combine], {name})
            if not parts.is_empty():
                onto = parts.reverse().apply_range(self.enter(f"{combine}_t"))
                others = onto.apply_range(self._others_before(combine, mine))
                found = found.union(term.reverse().apply_range(others))
        return found

    @cached_property
    def _passed_by(self) -> Mapping[str, isl.UnionMap]:
        """Name of a conduit -> what it passes on."""
        return by_reader(self.passed)

    def _untouched(self, reader: str) -> frozenset[Flow] | None:
        """The reader's flows that are the same objects in both programs, of the same statements, and so show
        it the same values; None if nothing else shows it any."""
        origins, none = self.origins, frozenset[Flow]()
        owner = reader.rpartition("_")[0]
        if not reader.startswith("F_") and not origins.same(self.new.by_name[owner]):
            return none
        if reader in self.new.direct:
            return None if self.new.direct[reader] == self.old.direct.get(reader) else none
        before, after = self.old.flows_of.get(reader, ()), self.new.flows_of[reader]
        shared = frozenset(filter(self._unmoved, after)).intersection(before)
        return None if len(shared) == len(before) == len(after) else shared

    def _unmoved(self, flow: Flow) -> bool:
        """True if the move leaves every statement of the flow as it was."""
        names = flow.statements & self.new.by_name.keys()
        return all(self.origins.same(self.new.by_name[name]) for name in names)

    def equal(self, old: str, new: str, found: isl.UnionMap, known: isl.UnionMap) -> None:
        readers = self._readers(old, new)
        mapped = self.origins.once(found.apply_range(self.origins.images).apply_domain(readers))
        known = self.origins.once(known.intersect_domain(readers.range()))
        if plainly_equal(mapped, known) or mapped.is_equal(known):
            return
        lost, gained = known.subtract(mapped), mapped.subtract(known)
        point = (gained if lost.is_empty() else lost).domain().sample_point()
        at = isl.UnionSet.from_point(point)
        before, after = (r.intersect_domain(at).range() for r in (lost, gained))
        raise Refuted(
            f"{self.old.reader_text(old)} at {coordinates(point)}: "
            f"before the move it sees {self._tell(before)}, after it {self._tell(after)}"
        )

    def _readers(self, old: str, new: str) -> isl.UnionMap:
        """New instances of a reader -> the old ones; several statements may share an old one's."""
        if new.startswith("F_"):
            cells = Domain(self.new.program.buffer_of[new[2:]].shape)
            image = self.session.identity(new, old, cells.depth)
            return self.session.map([image.intersect_domain(self.session.instances(new, cells))])
        name, owner = new.rpartition("_")[0], old.rpartition("_")[0]
        place = self.new.by_name[name]
        choices = self.new.choices(name) if new.endswith("_t") else ()
        domain = self.session.instances(new, place.domain.with_choices(choices))
        images = [
            self.origins.image(place, piece, new, old).intersect_domain(domain)
            for piece in self.origins.instances[name]
            if self.old.places[piece.origin.statement].name == owner
        ]
        assert images, "readers are compared with those of the old statement that theirs is"
        return self.session.map(images)

    def _tell(self, seen: isl.UnionSet) -> str:
        """One of the writes, in words."""
        if seen.is_empty():
            return "nothing else" if self.mode == "terms" else "nothing"
        point = seen.sample_point()
        name = tuple_name(point)
        if name in self.session.id_of:
            return f"{self.old.describe(self.session.id_of[name])} at {coordinates(point)}"
        if name in self.session.choice_of:
            return f"input {self.session.choice_of[name]} by {coordinates(point)}"
        what = "the integer" if name == "V" else f"input {name[2:]} at"
        return f"{what} {coordinates(point)}"

    # -- partial results ---------------------------------------------------------------------------

    def check_partials(self) -> None:
        """Raise unless a combination adds accumulations of its own kind only, and each of them once."""
        for name in sorted(self.combines):
            operation = self.new.by_name[name].statement.accumulate
            assert operation
            self._check_operation(f"{name}_0", operation)
        if self.combines:
            self._check_once()

    def _check_operation(self, reader: str, operation: str, whole: bool = False) -> None:
        """Raise unless a read sees accumulations of one kind only.

        A partial result starts from their identity, the ``whole`` from any value.
        """
        reached, todo = set[str](), [reader]
        while todo:
            for name in writers(self.new.seen(todo.pop(), self.mode)) - reached:
                reached.add(name)
                todo += [f"{name}_0"] if name in self.conduits else []
        for name in sorted(reached):
            place = self.new.by_name.get(name)
            statement = place.statement if place else None
            if name in self.starts:
                assert statement and isinstance(statement.value, Literal)
                fits = statement.value.value == identity(operation, statement.value.dtype)
            elif statement is None or statement.accumulate is None:
                fits = whole or name in self.conduits
            else:
                fits = statement.accumulate == operation
            if not fits:
                what = self.new.describe(statement.id) if statement else "an input"
                where = self.new.describe(self.session.id_of[reader.rpartition("_")[0]])
                raise Refuted(f"{where} combines a partial result that {what} takes part in")

    def _part(self, reader: str, whole: isl.UnionMap, part: Part) -> isl.UnionMap:
        """A reader -> what the partial result adds that its value is combined with.

        These are accumulations of one kind, none of them among those of the ``whole``.
        """
        self._check_operation(reader, part.operation, whole=True)
        self._check_operation(part.reader, part.operation)
        depth = len(self.new.by_name[reader.rpartition("_")[0]].sizes)
        onto = self.session.map([self.session.identity(reader, part.reader, depth)])
        seen = self.seen(part.reader)
        found = onto.apply_range(with_writers(seen, writers(seen) - self.starts))
        twice = whole.intersect(found).range()
        if not twice.is_empty():
            self._refuse_twice(twice)
        return found

    def _check_once(self) -> None:
        readers = [*self.new.flows_of, *self.new.direct]
        direct, via = self.session.map(), self.session.map()
        for reader in readers:
            if reader.endswith("_t"):
                continue
            seen = self.new.seen(reader, self.mode)
            names = writers(seen)
            if names & self.conduits:
                direct = direct.union(with_writers(seen, names - self.conduits))
                via = via.union(with_writers(seen, self.conduits))
        twice = direct.intersect(via.apply_range(self.passed)).range()
        if twice.is_empty():
            together = via.reverse().apply_range(via)
            alike = self.passed.apply_range(self.passed.reverse())
            pairs = together.intersect(alike).subtract(via.range().identity())
            twice = self.passed.intersect_domain(pairs.domain()).range()
        if not twice.is_empty():
            self._refuse_twice(twice)

    def _refuse_twice(self, twice: isl.UnionSet) -> NoReturn:
        point = twice.sample_point()
        name = self.session.id_of[tuple_name(point)]
        raise Refuted(f"{self.new.describe(name)} at {coordinates(point)} is combined more than once")


def other_operations(sets: ProgramSets, seen: isl.UnionMap, mine: str | None) -> isl.UnionMap:
    def other(name: str) -> bool:
        place = sets.by_name.get(name)
        return place is not None and place.statement.accumulate not in (None, mine)

    return with_writers(seen, {name for name in writers(seen) if other(name)})

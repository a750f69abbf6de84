"""The flow of values through one buffer: which writes make up the value that each read sees.

The *nest* of a buffer is the tree of the program without the statements that do not access the
buffer. Statements that touch cells apart (borders and interior of an image) have nothing to do with each
other, so a buffer has a flow for each group of writing statements whose cells may meet, and a statement
that only reads belongs to the flow of each group that it meets. The nest of a group determines its
flow, so it is also the key under which the flow is cached: a move changes one or two nests of a
program, and only those are computed again. For the same reason each of many statements that only read has a
flow of its own, with the writes of its group.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, groupby, starmap
from math import gcd
from typing import Literal as OneOf
from typing import NamedTuple, TypeAlias

from perfdojo_sdk.verify.sets import Domain, Session, by_reader, isl, maps, unite, writers

Role: TypeAlias = OneOf["read", "own", "write", "add", "may"]
"""``own``: an accumulation reads what it adds onto. ``may``: a write of one of several cells, which a
run-time index chooses; it also has an ``own`` read of each of them, whose value it keeps or replaces."""

Box: TypeAlias = tuple[tuple[int, int, int], ...]
"""Least and greatest value of each subscript, and a number that divides the distance of any two."""

Mode: TypeAlias = OneOf["last", "terms"]
"""The writers that a read depends on: the ``last`` write or accumulation (order counts), or all ``terms``:
the last plain write and every accumulation since then, as a set."""


#: Most statements of a group that only read, and that one flow is for.
_FEW_READERS = 3


class Touch(NamedTuple):
    """One access of a statement to a cell."""

    name: str
    role: Role
    cell: tuple[str, ...]
    """Subscripts as isl text."""
    box: Box
    """The values that each subscript takes."""
    choices: tuple[int, ...] = ()
    """Numbers of values of the run-time indices, which are further iterators in ``cell``."""


class Leaf(NamedTuple):
    """A statement with its accesses to one buffer."""

    statement: str
    domain: Domain
    accumulate: str | None
    """The operation, when the statement accumulates onto this buffer."""
    touches: tuple[Touch, ...]

    @property
    def only_reads(self) -> bool:
        return all(touch.role == "read" for touch in self.touches)


class Loop(NamedTuple):
    level: int
    lockstep: bool
    body: tuple[Nest, ...]


Nest: TypeAlias = Loop | Leaf


class Final(NamedTuple):
    """The caller's read of an output at the end."""

    name: str
    domain: Domain
    cell: tuple[str, ...]


def flows(session: Session, nests: tuple[Nest, ...], final: Final | None) -> tuple[Flow, ...]:
    """The flows through a buffer, one for each group of writing statements whose cells may meet.

    They come from the session's memory where the same nests were met before.
    """
    leaves = [leaf for nest in nests for leaf in _leaves(nest)]
    chooses = any(touch.role == "may" for leaf in leaves for touch in leaf.touches)
    only_read = {leaf.statement for leaf in leaves if leaf.only_reads}
    found: list[Flow] = []
    for group in _groups(leaves) or [frozenset()]:
        readers = sorted(group & only_read)
        if len(readers) <= _FEW_READERS or len(readers) == len(group):
            readers = []
        writers = group.difference(readers)
        whole = len(writers) == len(leaves)
        found.append(_flow(session, nests if whole else _only(nests, writers), final, chooses))
        found += [_flow(session, _only(nests, writers | {r}), None, chooses, r) for r in readers]
    return tuple(found)


def _flow(
    session: Session, nests: tuple[Nest, ...], final: Final | None, chooses: bool, reader: str = ""
) -> Flow:
    key = ("flow", nests, final, chooses, reader)
    found = session.memory.get(key)
    if not isinstance(found, Flow):
        found = session.memory[key] = Flow(session, nests, final, chooses, reader)
    return found


def _groups(leaves: Sequence[Leaf]) -> list[frozenset[str]]:
    """The statements, in groups: writing ones whose cells may meet are in one group, and reading ones in
    every group that they may meet. One that no group meets is a group."""
    groups: list[list[Leaf]] = []
    for leaf in leaves:
        if not leaf.only_reads:
            near, far = _near(leaf, groups)
            groups = [*far, [leaf, *chain.from_iterable(near)]]
    found = [[leaf.statement for leaf in group] for group in groups]
    for leaf in leaves:
        if leaf.only_reads:
            meets = [names for names, group in zip(found, groups, strict=False) if _near(leaf, [group])[0]]
            for names in meets:
                names.append(leaf.statement)
            if not meets:
                found.append([leaf.statement])
    return [*map(frozenset, found)]


def _near(leaf: Leaf, groups: list[list[Leaf]]) -> tuple[list[list[Leaf]], list[list[Leaf]]]:
    """The groups that may have a cell in common with the leaf, and the others."""
    near, far = list[list[Leaf]](), list[list[Leaf]]()
    for group in groups:
        (near if any(_meet(leaf, other) for other in group) else far).append(group)
    return near, far


def _meet(one: Leaf, other: Leaf) -> bool:
    """False if no cell is in a box of both."""
    pairs = ((a.box, b.box) for a in one.touches for b in other.touches)
    return any(all(starmap(_common, zip(a, b, strict=True))) for a, b in pairs)


def _common(one: tuple[int, int, int], other: tuple[int, int, int]) -> bool:
    """False if two subscripts have no value in common."""
    (first, last, step), (low, high, pace) = one, other
    return low <= last and first <= high and (low - first) % (gcd(step, pace) or 1) == 0


def _only(nests: tuple[Nest, ...], statements: frozenset[str]) -> tuple[Nest, ...]:
    """The nests with these statements alone."""
    found: list[Nest] = []
    for nest in nests:
        if isinstance(nest, Leaf):
            found += [nest] if nest.statement in statements else []
        elif body := _only(nest.body, statements):
            found.append(nest._replace(body=body))
    return tuple(found)


class Rank(NamedTuple):
    """The nearness of an access to a later one: the greater, the nearer."""

    place: int
    """Position of the first difference of their times."""
    node: int = -1
    """The earlier one's number there in the order of the text; -1 where they differ in an iterator."""


@dataclass(eq=False)
class Flow:
    """The flow of values through cells of one buffer. Relations lead from a read to the writes it sees.

    A read that is in several flows, and the caller's read of an output is in all of its buffer, sees what it
    sees in any of them.
    """

    session: Session
    nests: tuple[Nest, ...]
    final: Final | None
    chooses: bool
    """True if a run-time index chooses among cells of the buffer to write."""
    reader: str = ""
    """The only statement whose reads are meant; "" for all."""

    @cached_property
    def leaves(self) -> tuple[Leaf, ...]:
        return tuple(leaf for nest in self.nests for leaf in _leaves(nest))

    @cached_property
    def statements(self) -> frozenset[str]:
        return frozenset(leaf.statement for leaf in self.leaves)

    @cached_property
    def readers(self) -> tuple[str, ...]:
        """Names of the reads, with that of the caller."""
        return tuple(touch.name for touch, _ in self._touches("read", "own"))

    @cached_property
    def operations(self) -> frozenset[str]:
        """The accumulations that meet in this buffer."""
        return frozenset(leaf.accumulate for leaf in self.leaves if leaf.accumulate)

    def seen(self, reader: str, mode: Mode) -> isl.UnionMap:
        found = (self._last if mode == "last" else self._terms).get(reader)
        return self.session.map() if found is None else found

    def before(self, reader: str) -> isl.UnionMap:
        """The terms that an accumulation adds onto, whether or not another kind meets it here."""
        found = self._terms_before.get(reader)
        return self.session.map() if found is None else found

    @cached_property
    def unwritten(self) -> isl.UnionSet:
        """The reads that no write in this flow precedes."""
        reads = self._accesses("read", "own")
        left = reads.domain()
        # Subtract one write after the other: usually the first of them fills every cell.
        for touch, domain in self._touches("write", "add"):
            if left.is_empty():
                break
            write = self.session.map([self._access(touch, domain)])
            left = left.subtract(self._before(reads.intersect_domain(left), write).domain())
        return left

    @cached_property
    def written(self) -> isl.UnionSet:
        """The reads that a write in this flow precedes."""
        return self._accesses("read", "own").domain().subtract(self.unwritten)

    @cached_property
    def _last(self) -> Mapping[str, isl.UnionMap]:
        return by_reader(self._ordered)

    @cached_property
    def _terms(self) -> Mapping[str, isl.UnionMap]:
        if self.chooses:
            return self._last  # which cell is written is not known, so the order of all writes counts
        # The value that an accumulation adds onto matters only if accumulations of two kinds meet.
        sinks = self._accesses("read", "own") if len(self.operations) > 1 else self._accesses("read")
        return by_reader(self._seen_by(sinks, self._accesses("write"), self._accesses("add")))

    @cached_property
    def _terms_before(self) -> Mapping[str, isl.UnionMap]:
        if self.chooses or len(self.operations) > 1:
            return self._terms
        own = self._accesses("own")
        return by_reader(self._seen_by(own, self._accesses("write"), self._accesses("add")))

    @cached_property
    def _ordered(self) -> isl.UnionMap:
        return self._seen_by(self._accesses("read", "own"), self._accesses("write", "add", "may"), None)

    def _seen_by(self, sinks: isl.UnionMap, hiding: isl.UnionMap, kept: isl.UnionMap | None) -> isl.UnionMap:
        """Sink -> the last of the ``hiding`` accesses to its cell before it, and the ``kept`` ones since.

        A plain write hides earlier accesses, an accumulation does not. This uses plain operations on
        sets: isl's own flow analysis overlooks some writes with quotients or conditions
        (``tests/test_verify_dependence.py`` has three cases).
        """
        found = self._last_of(sinks, hiding)
        if kept is None:
            return found
        # All that comes before any hidden access to a cell also comes before the last one.
        since = self._before(sinks, kept).subtract(found.apply_range(self._before(hiding, kept)))
        return found.union(since)

    def _last_of(self, sinks: isl.UnionMap, accesses: isl.UnionMap) -> isl.UnionMap:
        """Sink -> the last of the ``accesses`` to its cell before it.

        Of two accesses before a sink, the one that shares more of its time with the sink is the later. So
        the nearest are looked at first, and those farther away only for sinks that are left without any.
        """
        found, order = self.session.map(), Order(self, accesses)
        for sink in maps(sinks):
            left = isl.UnionSet.from_set(sink.domain())
            for rank, pieces in order.before(sink):
                near = self.session.map(pieces).intersect_domain(left)
                if near.is_empty():
                    continue
                found = found.union(near.subtract(near.apply_range(order.among(near, rank))))
                left = left.subtract(near.domain())
                if left.is_empty():
                    break
        return found

    def _before(self, sinks: isl.UnionMap, accesses: isl.UnionMap) -> isl.UnionMap:
        """Sink -> all ``accesses`` to its cell before it."""
        pairs = maps(sinks.apply_range(accesses.reverse()))
        return self.session.map([part for pair in pairs for _, part in self.ordered_pairs(pair)])

    def ordered_pairs(self, pair: isl.Map) -> Iterator[tuple[Rank, isl.Map]]:
        """The parts of a relation between instances of two accesses in which the second happens first, by
        the place in their times where they first differ: one for each loop, and one for the order of the
        text."""
        names = (str(pair.get_tuple_name(kind)) for kind in (isl.dim_type.in_, isl.dim_type.out))
        (then, cell), (first, same_cell) = (self._time[name] for name in names)
        fixed = set(zip(cell, same_cell, strict=True))
        for place, (late, early) in enumerate(zip(then, first, strict=False)):
            if late.isdecimal():
                if late != early:
                    if int(early) < int(late):
                        yield Rank(place, int(early)), pair
                    return
            elif (late, early) not in fixed:
                at, before = int(late[1:]), int(early[1:])
                yield Rank(place), pair.order_lt(isl.dim_type.out, before, isl.dim_type.in_, at)
                pair = pair.equate(isl.dim_type.in_, at, isl.dim_type.out, before)

    def _accesses(self, *roles: Role) -> isl.UnionMap:
        return self.session.map([self._access(*touch) for touch in self._touches(*roles)])

    def _touches(self, *roles: Role) -> Iterator[tuple[Touch, Domain]]:
        """Every access in one of these roles, with its instances, in the order of the program."""
        for leaf in self.leaves:
            for touch in leaf.touches:
                reads = touch.role in ("read", "own")
                if touch.role in roles and not (reads and self.reader not in ("", leaf.statement)):
                    yield touch, leaf.domain
        if self.final and "read" in roles:
            yield Touch(self.final.name, "read", self.final.cell, ()), self.final.domain

    def _access(self, touch: Touch, domain: Domain) -> isl.Map:
        """Instances of an access -> the cells. Own reads of cells that a run-time index may choose have an
        instance for each of them."""
        whole = domain.with_choices(touch.choices)
        access = self.session.affine(touch.name, whole.depth, "B", touch.cell)
        access = access.intersect_domain(self.session.instances(touch.name, whole))
        if touch.role == "may":
            access = access.project_out(isl.dim_type.in_, domain.depth, len(touch.choices))
            access = access.set_tuple_name(isl.dim_type.in_, touch.name)
        return access

    @cached_property
    def _time(self) -> Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]]:
        """Every access -> when it happens, as numbers and iterators that are compared from the left, and its
        cell."""
        found = {
            name: (time, cell)
            for k, nest in enumerate(self.nests)
            for name, time, cell in _times(nest, (str(k),))
        }
        if self.final:
            found[self.final.name] = (str(len(self.nests)),), self.final.cell
        return found


class Order:
    """The order of some accesses to the same cells, by ranks."""

    def __init__(self, flow: Flow, accesses: isl.UnionMap) -> None:
        self._flow, self._cells = flow, list(maps(accesses.reverse()))
        self._pairs: dict[str, list[tuple[Rank, isl.Map]]] = {}
        self._accesses = {str(m.get_tuple_name(isl.dim_type.out)): m.reverse() for m in self._cells}

    def before(self, sink: isl.Map) -> Iterator[tuple[Rank, list[isl.Map]]]:
        """The accesses before instances of a sink, the nearest first."""
        pieces = sorted(self._ordered(sink), key=lambda piece: piece[0], reverse=True)
        for rank, same in groupby(pieces, key=lambda piece: piece[0]):
            yield rank, [piece for _, piece in same]

    def among(self, near: isl.UnionMap, rank: Rank) -> isl.UnionMap:
        """Access -> those before it, of the accesses that have this rank before one sink.

        Their times are equal as far as the rank's place, and there as well if it is one of the text.
        """
        names, least = writers(near), rank.place + (rank.node >= 0)
        for name in names - self._pairs.keys():
            self._pairs[name] = self._ordered(self._accesses[name])
        pieces = [piece for name in sorted(names) for r, piece in self._pairs[name] if r.place >= least]
        kept = [p for p in pieces if str(p.get_tuple_name(isl.dim_type.out)) in names]
        return self._flow.session.map(kept)

    def _ordered(self, late: isl.Map) -> list[tuple[Rank, isl.Map]]:
        pairs = (late.apply_range(cells) for cells in self._cells)
        return [piece for pair in pairs for piece in self._flow.ordered_pairs(pair)]


def unwritten(through: tuple[Flow, ...]) -> isl.UnionSet:
    """The reads of a buffer, of which these are all flows, that no write precedes."""
    first, *others = through
    if not others:
        return first.unwritten
    found = first.session.memory.get(("unwritten", through))
    if not isinstance(found, isl.UnionSet):
        found = unite(first.unwritten, (other.unwritten for other in others))
        for each in through:
            found = found.subtract(each.written)
        first.session.memory["unwritten", through] = found
    return found


def _leaves(nest: Nest) -> Iterator[Leaf]:
    if isinstance(nest, Leaf):
        yield nest
    else:
        for child in nest.body:
            yield from _leaves(child)


def _times(nest: Nest, since: tuple[str, ...]) -> Iterator[tuple[str, tuple[str, ...], tuple[str, ...]]]:
    """Name, time and cell of each access: the reads of a statement before its write, of all lanes in
    lockstep. ``since``: where the nest stands among its siblings, after the time of the scopes around."""
    if isinstance(nest, Leaf):
        for touch in nest.touches:
            yield touch.name, (*since, _phase(touch)), touch.cell
    elif nest.lockstep:
        (leaf,) = nest.body
        assert isinstance(leaf, Leaf)
        for touch in leaf.touches:
            yield touch.name, (*since, _phase(touch), f"i{nest.level}"), touch.cell
    else:
        for k, child in enumerate(nest.body):
            yield from _times(child, (*since, f"i{nest.level}", str(k)))


def _phase(touch: Touch) -> str:
    return "0" if touch.role in ("read", "own") else "1"

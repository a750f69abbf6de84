"""The flow of values through one buffer: which writes make up the value that each read sees.

What a program does to one buffer is a *nest*: its tree with every statement that leaves the buffer
alone cut away. The nest alone decides the flow, so it is also the key under which the flow is
remembered: a move changes one or two nests of a program, and only those are computed again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal as OneOf
from typing import NamedTuple, TypeAlias

from perfdojo_sdk.verify.sets import Domain, Session, by_reader, isl, iterators

Role: TypeAlias = OneOf["read", "own", "write", "add"]
"""``own``: an accumulation reads what it adds onto."""

Mode: TypeAlias = OneOf["last", "terms"]
"""What a read sees: the ``last`` write or accumulation (so that order counts), or all ``terms``: the
last plain write and every accumulation since then, as a set."""


class Touch(NamedTuple):
    """One access of a statement to a cell."""

    name: str
    role: Role
    cell: tuple[str, ...]
    """Subscripts as isl text."""


class Leaf(NamedTuple):
    """A statement with its accesses to one buffer."""

    statement: str
    domain: Domain
    accumulate: str | None
    """The operation, when the statement accumulates onto this buffer."""
    touches: tuple[Touch, ...]


class Loop(NamedTuple):
    level: int
    lockstep: bool
    body: tuple[Nest, ...]


Nest: TypeAlias = Loop | Leaf


class Final(NamedTuple):
    """The caller reads an output when all is done."""

    name: str
    domain: Domain
    cell: tuple[str, ...]


def flow(session: Session, nests: tuple[Nest, ...], final: Final | None) -> Flow:
    """The flow through a buffer, from the session's memory where the same nest was met before."""
    key = ("flow", nests, final)
    found = session.memory.get(key)
    if not isinstance(found, Flow):
        found = session.memory[key] = Flow(session, nests, final)
    return found


@dataclass(eq=False)
class Flow:
    """The flow of values through one buffer. Relations lead from a read to the writes it sees."""

    session: Session
    nests: tuple[Nest, ...]
    final: Final | None

    @cached_property
    def leaves(self) -> tuple[Leaf, ...]:
        return tuple(leaf for nest in self.nests for leaf in _leaves(nest))

    @cached_property
    def statements(self) -> frozenset[str]:
        return frozenset(leaf.statement for leaf in self.leaves)

    @cached_property
    def operations(self) -> frozenset[str]:
        """The accumulations that meet in this buffer."""
        return frozenset(leaf.accumulate for leaf in self.leaves if leaf.accumulate)

    def seen(self, reader: str, mode: Mode) -> isl.UnionMap:
        found = (self._last if mode == "last" else self._terms).get(reader)
        return self.session.map() if found is None else found

    @cached_property
    def unwritten(self) -> isl.UnionSet:
        """The reads that no write precedes."""
        reads, time = self._accesses("read", "own"), self._schedule.get_map()
        before = _before(time, reads, self._accesses("write", "add"))
        return reads.domain().subtract(before.domain())

    @cached_property
    def _last(self) -> Mapping[str, isl.UnionMap]:
        return by_reader(self._ordered)

    @cached_property
    def _terms(self) -> Mapping[str, isl.UnionMap]:
        # What an accumulation adds onto matters only where another kind of accumulation is about.
        sinks = self._accesses("read", "own") if len(self.operations) > 1 else self._accesses("read")
        return by_reader(self._seen_by(sinks, self._accesses("write"), self._accesses("add")))

    @cached_property
    def _ordered(self) -> isl.UnionMap:
        return self._seen_by(self._accesses("read", "own"), self._accesses("write", "add"), None)

    def _seen_by(self, sinks: isl.UnionMap, hiding: isl.UnionMap, kept: isl.UnionMap | None) -> isl.UnionMap:
        """Sink -> the last of the ``hiding`` accesses to its cell before it, and the ``kept`` ones since.

        A plain write hides what was before it, an accumulation is kept beside it. Plain operations on
        sets: isl's own flow analysis has been seen to overlook writes where quotients or conditions are
        about (``tests/test_verify_dependence.py`` has three cases).
        """
        time = self._schedule.get_map()

        def at(accesses: isl.UnionMap) -> isl.UnionMap:
            return time.intersect_domain(accesses.domain())

        hidden_from = _before(time, sinks, hiding)
        found = hidden_from.subtract(hidden_from.apply_range(at(hiding).lex_gt_union_map(at(hiding))))
        if kept is None:
            return found
        since = _before(time, sinks, kept).subtract(
            hidden_from.apply_range(at(hiding).lex_gt_union_map(at(kept)))
        )
        return found.union(since)

    def _accesses(self, *roles: Role) -> isl.UnionMap:
        wanted = [
            (touch.name, leaf.domain, touch.cell)
            for leaf in self.leaves
            for touch in leaf.touches
            if touch.role in roles
        ]
        if self.final and "read" in roles:
            wanted.append(self.final)
        return self.session.map(
            self.session.affine(name, domain.depth, "B", cell).intersect_domain(
                self.session.instances(name, domain)
            )
            for name, domain, cell in wanted
        )

    @cached_property
    def _schedule(self) -> isl.Schedule:
        parts = [_schedule(self.session, nest) for nest in self.nests]
        if self.final:
            cells = self.session.instances(self.final.name, self.final.domain)
            parts.append(isl.Schedule.from_domain(self.session.set([cells])))
        return _sequence(parts)


def _before(time: isl.UnionMap, sinks: isl.UnionMap, accesses: isl.UnionMap) -> isl.UnionMap:
    """Sink -> all ``accesses`` to its cell before it."""
    first, then = (time.intersect_domain(a.domain()) for a in (accesses, sinks))
    return sinks.apply_range(accesses.reverse()).intersect(then.lex_gt_union_map(first))


def _leaves(nest: Nest) -> Iterator[Leaf]:
    if isinstance(nest, Leaf):
        yield nest
    else:
        for child in nest.body:
            yield from _leaves(child)


def _sequence(parts: list[isl.Schedule]) -> isl.Schedule:
    whole = parts[0]
    for part in parts[1:]:
        whole = whole.sequence(part)
    return whole


def _schedule(session: Session, nest: Nest) -> isl.Schedule:
    """The order of execution: reads of a statement before its write, of all lanes in lockstep."""
    if isinstance(nest, Leaf):
        return _sequence([_together(session, nest, phase) for phase in _phases(nest)])
    if nest.lockstep:
        (leaf,) = nest.body
        assert isinstance(leaf, Leaf)
        phases = [(_together(session, leaf, phase), [(leaf, phase)]) for phase in _phases(leaf)]
        return _sequence([_repeated(session, body, nest.level, inside) for body, inside in phases])
    body = _sequence([_schedule(session, child) for child in nest.body])
    return _repeated(session, body, nest.level, [(leaf, leaf.touches) for leaf in _leaves(nest)])


def _phases(leaf: Leaf) -> list[tuple[Touch, ...]]:
    loads = tuple(t for t in leaf.touches if t.role in ("read", "own"))
    stores = tuple(t for t in leaf.touches if t.role in ("write", "add"))
    return [phase for phase in (loads, stores) if phase]


def _together(session: Session, leaf: Leaf, touches: tuple[Touch, ...]) -> isl.Schedule:
    return isl.Schedule.from_domain(session.set(session.instances(t.name, leaf.domain) for t in touches))


def _repeated(
    session: Session, body: isl.Schedule, level: int, inside: list[tuple[Leaf, tuple[Touch, ...]]]
) -> isl.Schedule:
    """``body`` for every iteration of the scope at ``level``, one after the other."""
    order = session.map(
        session.affine(touch.name, leaf.domain.depth, "", [iterators(level + 1)[level]])
        for leaf, touches in inside
        for touch in touches
    )
    return body.insert_partial_schedule(isl.MultiUnionPwAff.from_union_map(order))

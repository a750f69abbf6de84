"""The flow of values through one buffer: which writes make up the value that each read sees.

The *nest* of a buffer is the tree of the program without the statements that do not access the
buffer. The nest determines the flow, so it is also the key under which the flow is
cached: a move changes one or two nests of a program, and only those are computed again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal as OneOf
from typing import NamedTuple, TypeAlias

from perfdojo_sdk.verify.sets import Domain, Session, by_reader, isl

Role: TypeAlias = OneOf["read", "own", "write", "add"]
"""``own``: an accumulation reads what it adds onto."""

Mode: TypeAlias = OneOf["last", "terms"]
"""The writers that a read depends on: the ``last`` write or accumulation (order counts), or all ``terms``:
the last plain write and every accumulation since then, as a set."""


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
    """The caller's read of an output at the end."""

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
        reads = self._accesses("read", "own")
        left = reads.domain()
        # Subtract one write after the other: usually the first of them fills every cell.
        for touch in self._touches("write", "add"):
            if left.is_empty():
                break
            write = self.session.map([self._access(*touch)])
            left = left.subtract(_before(self._time, reads.intersect_domain(left), write).domain())
        return left

    @cached_property
    def _last(self) -> Mapping[str, isl.UnionMap]:
        return by_reader(self._ordered)

    @cached_property
    def _terms(self) -> Mapping[str, isl.UnionMap]:
        # The value that an accumulation adds onto matters only if accumulations of two kinds meet.
        sinks = self._accesses("read", "own") if len(self.operations) > 1 else self._accesses("read")
        return by_reader(self._seen_by(sinks, self._accesses("write"), self._accesses("add")))

    @cached_property
    def _ordered(self) -> isl.UnionMap:
        return self._seen_by(self._accesses("read", "own"), self._accesses("write", "add"), None)

    def _seen_by(self, sinks: isl.UnionMap, hiding: isl.UnionMap, kept: isl.UnionMap | None) -> isl.UnionMap:
        """Sink -> the last of the ``hiding`` accesses to its cell before it, and the ``kept`` ones since.

        A plain write hides earlier accesses, an accumulation does not. This uses plain operations on
        sets: isl's own flow analysis overlooks some writes with quotients or conditions
        (``tests/test_verify_dependence.py`` has three cases).
        """
        time = self._time

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
        return self.session.map([self._access(*touch) for touch in self._touches(*roles)])

    def _touches(self, *roles: Role) -> Iterator[tuple[str, Domain, tuple[str, ...]]]:
        """Name, instances and cell of every access in one of these roles, in the order of the program."""
        for leaf in self.leaves:
            for touch in leaf.touches:
                if touch.role in roles:
                    yield touch.name, leaf.domain, touch.cell
        if self.final and "read" in roles:
            yield self.final

    def _access(self, name: str, domain: Domain, cell: tuple[str, ...]) -> isl.Map:
        access = self.session.affine(name, domain.depth, "B", cell)
        return access.intersect_domain(self.session.instances(name, domain))

    @cached_property
    def _time(self) -> isl.UnionMap:
        """Every access -> when it happens: numbers that are compared from the left."""
        found = [each for k, nest in enumerate(self.nests) for each in _times(nest, (str(k),))]
        if self.final:
            found.append((self.final.name, self.final.domain.depth, (str(len(self.nests)),)))
        longest = max(len(time) for _, _, time in found)
        return self.session.map(
            [
                self.session.affine(name, depth, "", (*time, *["0"] * (longest - len(time))))
                for name, depth, time in found
            ]
        )


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


def _times(nest: Nest, since: tuple[str, ...]) -> Iterator[tuple[str, int, tuple[str, ...]]]:
    """Name, depth and time of each access: the reads of a statement before its write, of all lanes in
    lockstep. ``since``: where the nest stands among its siblings, after the time of the scopes around."""
    if isinstance(nest, Leaf):
        for touch in nest.touches:
            yield touch.name, nest.domain.depth, (*since, _phase(touch))
    elif nest.lockstep:
        (leaf,) = nest.body
        assert isinstance(leaf, Leaf)
        for touch in leaf.touches:
            yield touch.name, leaf.domain.depth, (*since, _phase(touch), f"i{nest.level}")
    else:
        for k, child in enumerate(nest.body):
            yield from _times(child, (*since, f"i{nest.level}", str(k)))


def _phase(touch: Touch) -> str:
    return "0" if touch.role in ("read", "own") else "1"

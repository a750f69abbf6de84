"""Checks of a single program: no race between parallel iterations, no read before a write."""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

from perfdojo_sdk.core.expression import Access
from perfdojo_sdk.core.program import Scope
from perfdojo_sdk.verify.flow import unwritten
from perfdojo_sdk.verify.instances import ProgramSets, StatementDomain
from perfdojo_sdk.verify.sets import Refuted, coordinates, isl, iterators, numbers, tuple_name, unite


def check_written(sets: ProgramSets) -> None:
    """:class:`Refuted` where a statement or the caller reads a cell that nothing wrote before."""
    for through in sets.flows.values():
        left = unwritten(through)
        if not left.is_empty():
            point = left.lexmin().sample_point()
            reader = sets.reader_text(tuple_name(point))
            raise Refuted(f"{reader} at {coordinates(point)}: nothing was written there before")


def check_races(sets: ProgramSets) -> None:
    """:class:`Refuted` where iterations of a parallel scope, or lanes that store, meet in one cell."""
    for place in sets.places.values():
        if place.statement.accumulate is None and sets.lanes_meet(place):
            raise Refuted(f"{sets.describe(place.statement.id)}: all lanes write one cell")
    for path, node in sets.program.walk():
        if isinstance(node, Scope) and sets.dialect.is_parallel(node.suffix):
            inside = [p for p in sets.places.values() if p.path[: len(path)] == path]
            _check_parallel(sets, node, len(path) - 1, inside)


class _Contact(NamedTuple):
    """One access inside a parallel scope."""

    place: StatementDomain
    text: str
    writes: bool
    iterations: isl.UnionMap
    """(outer iterations, cell) -> iterations of the scope that touch the cell."""


def _check_parallel(sets: ProgramSets, scope: Scope, level: int, inside: list[StatementDomain]) -> None:
    """Raise if two iterations of the scope (in the same outer iterations) touch a cell and one writes it."""
    contacts: dict[str, list[_Contact]] = {}
    for place in inside:
        statement = place.statement
        for access, writes in (*((r, False) for r in statement.reads), (statement.target, True)):
            buffer = sets.program.buffer_of[access.array]
            if sets.program.read_only.isdisjoint(buffer.arrays):
                contact = _Contact(place, access.text, writes, _touched_by(sets, place, access, level))
                contacts.setdefault(buffer.name, []).append(contact)
    apart = isl.UnionSet.read_from_str(sets.session.context, "{ [[p] -> [q]] : p < q or q < p }")
    for found in contacts.values():
        writing = [c for c in found if c.writes]
        if not writing or _meeting(writing, found, apart).is_empty():
            continue
        for a, b in product(writing, found):
            meeting = _meeting([a], [b], apart)
            if not meeting.is_empty():
                raise Refuted(_race(sets, scope, level, a, b, meeting))


def _touched_by(sets: ProgramSets, place: StatementDomain, access: Access, level: int) -> isl.UnionMap:
    session, depth = sets.session, len(place.sizes)
    cell, choices = sets.cell(access, place.sizes)
    whole = place.domain.with_choices(choices)
    cells = session.affine(place.name, whole.depth, "C", [*iterators(level), *cell])
    cells = cells.intersect_domain(session.instances(place.name, whole))
    if choices:
        cells = cells.project_out(isl.dim_type.in_, depth, len(choices))
        cells = cells.set_tuple_name(isl.dim_type.in_, place.name)
    iterations = session.affine(place.name, depth, "", [iterators(depth)[level]])
    return session.map([cells.reverse().apply_range(iterations)])


def _meeting(some: list[_Contact], others: list[_Contact], apart: isl.UnionSet) -> isl.UnionMap:
    first, second = (unite(cs[0].iterations, (c.iterations for c in cs[1:])) for cs in (some, others))
    return first.range_product(second).intersect_range(apart)


def _race(
    sets: ProgramSets, scope: Scope, level: int, a: _Contact, b: _Contact, meeting: isl.UnionMap
) -> str:
    one, other = numbers(meeting.range().sample_point())
    verb = "writes" if b.writes else "reads"
    return (
        f"race in parallel scope {scope.head} ({{{level}}}): {sets.describe(a.place.statement.id)} writes "
        f"{a.text} in iteration {one}, {sets.describe(b.place.statement.id)} {verb} {b.text}, "
        f"the same cell, in iteration {other}"
    )

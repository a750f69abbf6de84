"""Sums in groups: products of short numbers, a few of which one instruction adds up in each of its lanes.

``16:l 4:d s[{0}] += i32(x[{1}]) * i32(w[{0},{1}])`` is such an instruction: 16 lanes, four products in each.
An instruction for matrices has two scopes of lanes: ``2:l 2:l 4:d s[{0},{1}] += f32(x[{0},{2}]) *
f32(w[{1},{2}])``. Suffixes of a target say so; here is what a nest must be for the instruction to compute it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from perfdojo_sdk.core.dialect import Dialect, Group
from perfdojo_sdk.core.expression import Access, Cast, Read, performs
from perfdojo_sdk.core.geometry import lane_stride
from perfdojo_sdk.core.laws import FLUSHED, TO_ODD
from perfdojo_sdk.core.program import Node, Program, Scope, Statement


@dataclass(frozen=True)
class GroupedSum:
    """A statement in two scopes, the outer of which counts lanes, the inner one the products of a group; in
    three, if the instruction is one for matrices: rows, columns and products."""

    statement: Statement
    group: Group
    factors: tuple[Access, Access]
    """In the order of the group's dtypes; for matrices that of the rows first."""


def factors_in(statement: Statement, group: Group) -> tuple[Access, Access] | None:
    """The elements whose products a statement adds up, in the group's order; None where it adds up others."""
    value = statement.value
    if statement.accumulate != "add" or statement.dtype != group.total or not performs(value, "mul"):
        return None
    stored = [a.argument for a in value.arguments if isinstance(a, Cast)]
    reads = [read for read in stored if isinstance(read, Read)]
    for pair in (reads, reads[::-1]):
        if tuple(read.dtype for read in pair) == group.factors:
            return pair[0].access, pair[1].access
    return None


def group_of(statement: Statement, groups: Iterable[Group], size: int) -> Group | None:
    """The one of ``groups``, of ``size`` products, that a statement adds up."""
    return next((g for g in groups if g.size == size and factors_in(statement, g) is not None), None)


def losses(group: Group) -> frozenset[str]:
    """The laws of what an instruction loses that adds up such groups."""
    lost = ((FLUSHED, group.flushes), (TO_ODD, group.rounds_to_odd))
    return frozenset([law for law, holds in lost if holds])


def losses_of(statement: Statement, above: Sequence[Scope], dialect: Dialect) -> frozenset[str]:
    """The laws of what is lost in the group that a statement adds up, the innermost scope around it."""
    suffix = dialect.suffixes.get(above[-1].suffix) if above else None
    group = group_of(statement, suffix.groups, above[-1].size) if suffix else None
    return losses(group) if group else frozenset()


def inner_group(scope: Scope, dialect: Dialect) -> tuple[tuple[Scope, ...], Group] | None:
    """The scopes inside ``scope`` if these add up a group and nothing else is there, with the group: one, or
    two where the outer one has the columns of an instruction for matrices."""
    inside: list[Scope] = []
    node: Node = scope
    while isinstance(node, Scope) and len(node.body) == 1:
        node = node.body[0]
        inside += [node] if isinstance(node, Scope) else []
    if not isinstance(node, Statement) or not 1 <= len(inside) <= 2 or not inside[-1].suffix:
        return None
    group = group_of(node, dialect.suffixes[inside[-1].suffix].groups, inside[-1].size)
    if group is None or (len(inside) == 2 and not _are_columns(inside[0], group, dialect)):
        return None
    return tuple(inside), group


def _are_columns(scope: Scope, group: Group, dialect: Dialect) -> bool:
    suffix = dialect.suffixes.get(scope.suffix)
    counts = suffix is not None and suffix.around_groups
    return counts and group.tile is not None and scope.size == group.tile[1]


def grouped_sum(program: Program, scope: Scope, level: int, dialect: Dialect) -> GroupedSum | None:
    """The sum in groups whose lanes are the iterations of the scope at ``level``, if one instruction computes
    it; of an instruction for matrices, these are the rows.

    The lanes are neighbours in the sum, and in each factor neighbouring groups or one and the same.
    """
    suffix = dialect.suffixes.get(scope.suffix)
    found = inner_group(scope, dialect) if suffix and suffix.around_groups else None
    if found is None:
        return None
    inside, group = found
    statement = inside[-1].body[0]
    assert isinstance(statement, Statement)
    if statement.guard:
        return None
    if group.tile:
        factors = tile_factors(program, statement, group, level) if len(inside) == 2 else None
        fits = scope.size == group.tile[0]
    else:
        far = far_from_lanes(program, statement, group, level)
        factors = None if far else factors_in(statement, group)
        fits = scope.size <= dialect.lanes.get(group.total, 0)
    return GroupedSum(statement, group, factors) if factors and fits else None


def far_from_lanes(
    program: Program, statement: Statement, group: Group, level: int
) -> tuple[Access, str] | None:
    """An access that no instruction makes whose lanes are the iterations at ``level``, each with a group at
    the next one; with the distances, in cells, that are possible between lanes."""
    for access in (statement.target, *statement.reads):
        ways = ((1, 0),) if access is statement.target else ((0, 1), (group.size, 1))
        if _steps(program, access, level, 2) not in ways:
            return access, " or ".join(str(step) for step, _ in ways)
    return None


def far_from_tile(
    program: Program, statement: Statement, group: Group, level: int
) -> tuple[Access, str] | None:
    """The same for an instruction for matrices, with its rows at ``level`` and its columns at the next."""
    assert group.tile
    if _steps(program, statement.target, level, 3) != (group.tile[1], 1, 0):
        return statement.target, str(group.tile[1])
    if tile_factors(program, statement, group, level):
        return None
    ways = ((group.size, 0, 1), (0, group.size, 1))
    for access in statement.reads:
        if _steps(program, access, level, 3) not in ways:
            return access, f"0 or {group.size}"
    return statement.reads[0], f"{group.size} if it is {group.factors[0]}, and the other factor by 0"


def tile_factors(
    program: Program, statement: Statement, group: Group, level: int
) -> tuple[Access, Access] | None:
    """The factors of the rows, at ``level``, and of the columns, where an instruction for matrices takes
    both."""
    pair = factors_in(statement, group)
    if pair is None or group.tile is None:
        return None
    if _steps(program, statement.target, level, 3) != (group.tile[1], 1, 0):
        return None
    alike = group.factors[0] == group.factors[1]
    for rows, columns in (pair, pair[::-1]) if alike else (pair,):
        of_rows, of_columns = (_steps(program, access, level, 3) for access in (rows, columns))
        if of_rows == (group.size, 0, 1) and of_columns == (0, group.size, 1):
            return rows, columns
    return None


def _steps(program: Program, access: Access, level: int, count: int) -> tuple[int | None, ...]:
    """Distances in cells between neighbouring iterations of so many levels."""
    buffer = program.buffer_of[access.array]
    return tuple([lane_stride(buffer, access.subscripts, level + k) for k in range(count)])

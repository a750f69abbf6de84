"""Sums in groups: products of short numbers, a few of which one instruction adds up in each of its lanes.

``16:l 4:d s[{0}] += i32(x[{1}]) * i32(w[{0},{1}])`` is such an instruction: 16 lanes, four products in each.
Suffixes of a target say so; here is what a nest must be for the instruction to compute it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from perfdojo_sdk.core.dialect import Dialect, Group
from perfdojo_sdk.core.expression import Access, Cast, Read, performs
from perfdojo_sdk.core.geometry import lane_stride
from perfdojo_sdk.core.program import Program, Scope, Statement


@dataclass(frozen=True)
class GroupedSum:
    """A statement in two scopes, the outer of which counts lanes, the inner one the products of a group."""

    statement: Statement
    group: Group
    factors: tuple[Access, Access]
    """In the order of the group's dtypes."""


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


def flushes(statement: Statement, above: Sequence[Scope], dialect: Dialect) -> bool:
    """True if numbers below the normal ones count as zero in the group that a statement adds up."""
    suffix = dialect.suffixes.get(above[-1].suffix) if above else None
    group = group_of(statement, suffix.groups, above[-1].size) if suffix else None
    return group is not None and group.flushes


def inner_group(scope: Scope, dialect: Dialect) -> tuple[Scope, Group] | None:
    """The scope inside ``scope`` if it adds up a group and nothing else is there, with the group."""
    inner = scope.body[0]
    if len(scope.body) != 1 or not isinstance(inner, Scope) or not inner.suffix:
        return None
    statement, groups = inner.body[0], dialect.suffixes[inner.suffix].groups
    if len(inner.body) != 1 or not isinstance(statement, Statement):
        return None
    group = group_of(statement, groups, inner.size)
    return None if group is None else (inner, group)


def grouped_sum(program: Program, scope: Scope, level: int, dialect: Dialect) -> GroupedSum | None:
    """The sum in groups whose lanes are the iterations of the scope at ``level``, if one instruction computes
    it.

    The lanes are neighbours in the sum, and in each factor neighbouring groups or one and the same.
    """
    suffix = dialect.suffixes.get(scope.suffix)
    found = inner_group(scope, dialect) if suffix and suffix.around_groups else None
    if found is None:
        return None
    inner, group = found
    statement = inner.body[0]
    assert isinstance(statement, Statement)
    factors = factors_in(statement, group)
    if factors is None or statement.guard or scope.size > dialect.lanes.get(group.total, 0):
        return None
    if far_from_lanes(program, statement, group, level):
        return None
    return GroupedSum(statement, group, factors)


def far_from_lanes(
    program: Program, statement: Statement, group: Group, level: int
) -> tuple[Access, str] | None:
    """An access that no instruction makes whose lanes are the iterations at ``level``, each with a group at
    the next one; with the distances, in cells, that are possible between lanes."""
    for access in (statement.target, *statement.reads):
        buffer = program.buffer_of[access.array]
        apart, inside = (lane_stride(buffer, access.subscripts, level + k) for k in range(2))
        ways = ((1, 0),) if access is statement.target else ((0, 1), (group.size, 1))
        if (apart, inside) not in ways:
            return access, " or ".join(str(step) for step, _ in ways)
    return None

"""A move that drops a sum of integers which adds zeros."""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

from perfdojo_sdk.core.dialect import Dialect
from perfdojo_sdk.core.dtypes import INTEGER_DTYPES
from perfdojo_sdk.core.expression import Cast, Expression, IndexValue, Literal, Operation, Read, performs
from perfdojo_sdk.core.made import Gone, Rewritten
from perfdojo_sdk.core.program import Program, Statement
from perfdojo_sdk.core.transformation import (
    NO_MOVE,
    Move,
    Refusal,
    Relation,
    Removed,
    Requirement,
    Site,
    Transformation,
)
from perfdojo_sdk.core.transformations.conditions import emptied


def is_zero(value: Expression) -> bool:
    """True if an integer is zero by its text alone, whatever it reads: integers wrap, so that a product with
    zero is zero."""
    if value.dtype not in INTEGER_DTYPES:
        return False
    match value:
        case Literal():
            return value.value == 0
        case Cast():
            return is_zero(value.argument)
        case Operation():
            known = [is_zero(argument) for argument in value.arguments]
            if performs(value, "mul", "and"):
                return any(known)
            return all(known) and performs(value, "add", "sub", "neg")
        case Read() | IndexValue():
            return False
        case _:
            assert_never(value)


def _is_sum(program: Program, statement: Statement) -> bool:
    """True for a sum of integers into an array that some other statement starts."""
    whole = statement.accumulate == "add" and statement.dtype in INTEGER_DTYPES
    return whole and statement.target.array not in program.in_out


def _adds_nothing(site: Site) -> Refusal | None:
    statement = site.statement
    if is_zero(statement.value):
        return None
    return Refusal.of(statement.id, statement.value.text, value=statement.value.text)


def _copies_stay(site: Site) -> Refusal | None:
    """No iteration of a parallel scope gets a copy of an array because its last user outside is gone."""
    program = site.program
    mine = [program.buffer_of[array] for array in sorted(site.statement.arrays)]
    shared = [buffer for buffer in mine if program.interface.isdisjoint(buffer.arrays)]
    for _, scope in program.scopes:
        for buffer in shared if site.dialect.is_parallel(scope.suffix) else ():
            if not scope.arrays.isdisjoint(buffer.arrays):
                return Refusal.of(
                    scope.id,
                    scope.head,
                    nodes=(site.statement.id,),
                    arrays=buffer.arrays,
                    head=scope.head,
                    buffer=buffer.name,
                )
    return None


class DropZeroSum(Transformation):
    """Drop a statement that adds an integer zero, with the scopes around it that hold nothing else.

    A product with zero counts, since an integer has no infinity and no NaN that it would lose. Elements of a
    table that are zero become a literal by ``fold_table``.

    before:
        y i32 [8] heap
        a i32 [8] heap
        8 y[{0}] = a[{0}]
        8 y[{0}] += 0 * a[{0}]
    after: drop_zero_sum(c1)
        8 y[{0}] = a[{0}]
    """

    name = "drop_zero_sum"
    place = "statement"
    requirements = (
        Requirement[Site](
            "PD-T661",
            "no sum of integers",
            "{statement} adds no integers, or adds them to what the caller gives",
            "keep it: a float zero makes NaN of an infinity, and a sum of zeros may end as -0",
            None,
            established_by=NO_MOVE,
        ),
        Requirement(
            "PD-T662",
            "it adds something",
            "the text of {value} does not say that it is zero",
            "write a table's zeros as a literal with fold_table, where split_range has cut the loop",
            _adds_nothing,
            semantic=True,
            established_by=("fold_table", "split_range"),
        ),
        Requirement(
            "PD-T663",
            "parallel iterations share the array",
            "{head} uses {buffer}, and without the statement each of its iterations might own a copy",
            "play the move before scopes are annotated",
            _copies_stay,
            established_by=NO_MOVE,
        ),
    )

    def candidates(self, program: Program, dialect: Dialect) -> Iterator[Move]:
        for node, *_ in program.places:
            if isinstance(node, Statement) and _is_sum(program, node) and is_zero(node.value):
                yield Move(self.name, node.id)

    def analyse(self, site: Site) -> Site | Refusal:
        statement = site.statement
        if _is_sum(site.program, statement):
            return site
        return Refusal.of(statement.id, statement=statement.text)

    def rewrite(self, site: Site, /) -> Rewritten:
        path = emptied(site.program, site.path)
        gone = tuple([p.node.id for p in site.program.places if p.path[: len(path)] == path])
        return Rewritten(site.program.replaced(path, ()), Gone(gone))

    def relation(self, site: Site, result: Program, /) -> Relation:
        return {site.statement.id: Removed(adds_nothing=True)}


MOVES = (DropZeroSum(),)

"""A move on scans: partial results of a part of a loop whose running result is read on the way.

A scan over blocks is this move on the inner one of two loops, and moves on storage and loops after it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from perfdojo_sdk.core.dialect import Dialect
from perfdojo_sdk.core.expression import LEVELS, Access, Expression, Literal, Operation, Read, map_expression
from perfdojo_sdk.core.frozen import frozen
from perfdojo_sdk.core.made import Rewritten
from perfdojo_sdk.core.operations import identity
from perfdojo_sdk.core.program import Program, Scope, Statement, Touch
from perfdojo_sdk.core.transformation import (
    NO_MOVE,
    Analysed,
    Kind,
    Move,
    PartialCombine,
    PartialStart,
    Refusal,
    Relation,
    Requirement,
    Site,
)
from perfdojo_sdk.core.transformations.inlining import NOT_ALLOWED, well_formed
from perfdojo_sdk.core.transformations.staging import (
    ARRAY,
    NAMED_CELLS,
    SMALLER,
    TOO_LARGE,
    Form,
    Slice,
    formed,
    named_buffer,
    one_cell_each,
    stage,
)


@frozen
class Scan(Slice):
    """A slice that a scope accumulates into and reads, for each iteration of the scopes around it.

    ``form`` is ``first`` with all the levels above, so that each of their iterations gets partial results.
    """

    first: Form
    """The form of the first accumulation."""
    formed: tuple[tuple[Touch, Form], ...]
    """Every touch of the buffer inside the scope, with its form."""
    combination: str
    """The operation of the first accumulation."""

    @property
    def rewritten(self) -> Rewritten:
        """The scope with partial results, which start before it and are combined after it."""
        buffer, form, combination = self.new_buffer("p"), self.form, self.combination
        partial, whole = Access(buffer.name, form.element), Access(self.array, form.subscripts)
        start = Statement(partial, Literal(identity(combination, buffer.dtype), buffer.dtype), None, buffer.dtype)
        combine = Statement(whole, Read(partial, buffer.dtype), combination, buffer.dtype)

        def part_of(access: Access) -> Access:
            inner = [l for l in access.levels if l >= form.inner]
            return Access(buffer.name, tuple([LEVELS[l] for l in (*form.outer, *inner)]))

        def value(e: Expression) -> Expression:
            if isinstance(e, Read) and e.access.array == self.array:
                part = Read(part_of(e.access), e.dtype)
                return Operation(combination, (e, part), e.dtype)
            return e

        def change(statement: Statement) -> Statement:
            if statement.target.array == self.array:
                return replace(statement, target=part_of(statement.target))
            return statement.with_parts(statement.target, map_expression(statement.value, value))

        return stage(self, buffer, start, combine, change)


def _scans(scope: Scope, array: str) -> bool:
    """True if a scope accumulates into an array, and another statement in it reads the array."""
    touches = scope.touches.get(array, ())
    adds = any(t.writes and t.statement.accumulate and not t.statement.chooses for t in touches)
    return adds and any(not t.writes and t.statement.target.array != array for t in touches)


def _scanned_only(facts: Scan) -> Refusal | None:
    for touch, form in facts.formed:
        fits = touch.access.array == facts.array and form == facts.first
        if not fits or touch.writes and touch.statement.accumulate != facts.combination:
            return Refusal.of(touch.statement.id, touch.access, array=facts.array, other=touch.statement.text)
    return None


def _reads_what_it_adds_to(facts: Scan) -> Refusal | Kind:
    for touch in facts.inside:
        if not touch.writes and touch.statement.target.array in facts.buffer.arrays:
            return Refusal.of(touch.statement.id, touch.access, read=touch.access.text)
    return Kind.REASSOCIATES


def _always(facts: Scan) -> Refusal | None:
    """The combination runs for all elements of the slice, an accumulation only where its condition holds."""
    for touch in facts.inside:
        if touch.writes and touch.statement.guard:
            return Refusal.of(touch.statement.id, "if", access=touch.access, statement=touch.statement.text)
    return None


def _allowed(facts: Scan) -> Refusal | None:
    program = facts.rewritten.program
    places = [program.place_of[statement] for statement in {t.statement.id: 0 for t in facts.inside}]
    return well_formed(facts.site, program, places)


class SplitScan(Analysed[Scan]):
    """Let a scope of a scan accumulate from the start, and combine with what came before where it is read.

    On the inner one of two loops, this makes a scan of blocks: once the values that are read have an array of
    their own, blocks run in any order, and the results of a block are combined in any order.

    before:
        t[0] = 0
        4
        | 8
        | | t[0] += x[{0},{1}]
        | | y[{0},{1}] = t[0]
    after: split_scan(s1, array=t)
        t[0] = 0
        4
        | t_p[{0}] = 0
        | 8
        | | t_p[{0}] += x[{0},{1}]
        | | y[{0},{1}] = t[0] + t_p[{0}]
        | t[0] += t_p[{0}]
    """

    name = "split_scan"
    place = "scope"
    parameters = (ARRAY,)
    requirements = (
        Requirement(
            "PD-T631",
            "the scope holds no scan of the array",
            "no statement inside accumulates into {array}, or no other one reads it",
            "name an array that is accumulated into and read in the scope",
            None,
            established_by=("join_scopes",),
        ),
        Requirement(
            "PD-T632",
            "the scope does more with the array than scan it in one form",
            "{other} uses {array} in another way than the first accumulation",
            "play the move at a scope that accumulates in one way and reads the same element",
            _scanned_only,
            semantic=True,
            established_by=("fission_scope",),
        ),
        Requirement(
            "PD-T633",
            "the accumulated value depends on the result",
            "{read} reads what is being accumulated, so the order of the terms matters",
            "keep the order",
            _reads_what_it_adds_to,
            semantic=True,
            established_by=NO_MOVE,
        ),
        Requirement(
            "PD-T634",
            "different iterations accumulate into one cell of the array",
            "cells of the new buffer would not stand for one cell of {array} each",
            "play the move at an inner scope",
            one_cell_each,
            semantic=True,
            established_by=NO_MOVE,
        ),
        Requirement(
            "PD-T635",
            "an accumulation stands under a condition",
            "{statement}: a result that it never touches would be read for the combination",
            "split the scopes so that the condition goes away",
            _always,
            established_by=("drop_condition", "split_range"),
        ),
        Requirement("PD-T636", *NAMED_CELLS, established_by=("set_location",)),
        Requirement("PD-T637", *TOO_LARGE, established_by=SMALLER),
        Requirement("PD-T638", *NOT_ALLOWED, _allowed, established_by=("set_location",)),
    )

    def candidates(self, program: Program, dialect: Dialect) -> Iterator[Move]:
        for _, scope in program.scopes:
            for array in scope.written_arrays:
                if _scans(scope, array):
                    yield Move(self.name, scope.id, (("array", array),))

    def analyse(self, site: Site) -> Scan | Refusal:
        array = site.move["array"]
        buffer = named_buffer(site, array)
        if not _scans(site.scope, array):
            return Refusal.of(site.scope.id, site.scope.head, arrays=(array,))
        inside = Slice.touches(site, buffer)
        found = tuple(formed(site, inside))
        form, combination = next(
            (form, touch.statement.accumulate)
            for touch, form in found
            if touch.writes and touch.statement.accumulate and touch.access.array == array
        )
        assert combination
        each = replace(form, outer=tuple(range(site.level)))
        return Scan(site, array, buffer, inside, each, form, found, combination)

    def rewrite(self, facts: Scan, /) -> Rewritten:
        return facts.rewritten

    def relation(self, facts: Scan, result: Program, /) -> Relation:
        start, combine = facts.rewritten.made.statements
        return {start: PartialStart(), combine: PartialCombine()}


MOVES = (SplitScan(),)

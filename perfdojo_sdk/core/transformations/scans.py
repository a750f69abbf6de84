"""Moves on scans, loops that read a running result on the way.

A scan over blocks is ``split_scan`` on the inner one of two loops, ``stage_running`` on what it reads, and
moves on loops after them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod

from perfdojo_sdk.core.dialect import Dialect
from perfdojo_sdk.core.expression import LEVELS, Access, Expression, Literal, Operation, Read, map_expression
from perfdojo_sdk.core.frozen import frozen, lazy
from perfdojo_sdk.core.made import Nest, Rewritten, Staged
from perfdojo_sdk.core.operations import identity
from perfdojo_sdk.core.program import Node, Program, Scope, Statement, Touch, enclosed, fresh
from perfdojo_sdk.core.projection import Guard, reached
from perfdojo_sdk.core.storage import Buffer, Dimension
from perfdojo_sdk.core.transformation import (
    NO_MOVE,
    Analysed,
    Definition,
    Facts,
    Kind,
    Move,
    Parameter,
    PartialCombine,
    PartialStart,
    Refusal,
    Relation,
    Requirement,
    Site,
    reordered,
)
from perfdojo_sdk.core.transformations.staging import (
    ARRAY,
    MAX_STAGED_CELLS,
    NAMED_CELLS,
    SMALLER,
    TOO_LARGE,
    CopiedSlice,
    Form,
    Slice,
    copies_known,
    formed,
    named_buffer,
    one_cell_each,
    stage,
    stays_inside,
)


@frozen
class Scan(CopiedSlice):
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
        start = Statement(
            partial, Literal(identity(combination, buffer.dtype), buffer.dtype), None, buffer.dtype
        )
        guard = self.condition or ()
        combine = Statement(whole, Read(partial, buffer.dtype), combination, buffer.dtype, guard=guard)

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
    return reordered(facts.site.program)


class SplitScan(Analysed[Scan]):
    """Let a scope of a scan accumulate from the start, and combine with what came before where it is read.

    On the inner one of two loops, this makes a scan of blocks: once the values that are read have an array of
    their own, blocks run in any order, and the results of a block are combined in any order.

    before:
        t[0] = 0
        4 8
        | t[0] += x[{0},{1}]
        | y[{0},{1}] = t[0]
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
            "no condition says which results are accumulated into",
            "{statement}: a result that it never touches would be read for the combination",
            "split the scopes so that the condition goes away",
            copies_known,
            established_by=("drop_condition", "split_range"),
        ),
        Requirement("PD-T636", *NAMED_CELLS, established_by=("set_location",)),
        Requirement("PD-T637", *TOO_LARGE, established_by=SMALLER),
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
        adds = tuple([touch for touch in inside if touch.writes])
        return Scan(site, array, buffer, inside, each, adds, form, found, combination)

    def rewrite(self, facts: Scan, /) -> Rewritten:
        return facts.rewritten

    def relation(self, facts: Scan, result: Program, /) -> Relation:
        start, combine = facts.rewritten.made.statements
        return {start: PartialStart(), combine: PartialCombine()}


# -- stage_running ---------------------------------------------------------------------------------


@frozen
class Running(Facts):
    """A statement, what it reads of an array, and the place around it before which that is kept."""

    read: Access
    dtype: str
    depth: int
    """The number of scopes around the place; the innermost of them accumulates into the array."""

    @lazy
    def condition(self) -> Guard | None:
        """The condition of the copy: it reads where the statement does. None if none says so."""
        sizes = self.site.outer_sizes
        return reached(self.site.statement.guard, sizes, range(self.depth, len(sizes)))

    @lazy
    def rewritten(self) -> Rewritten:
        """The place behind a copy into a buffer with an element for each iteration around it."""
        site, depth, program = self.site, self.depth, self.site.program
        name = fresh(f"{self.read.array}_k", program.names)
        dimensions = tuple(map(Dimension, site.outer_sizes[:depth]))
        buffer = Buffer(name, self.dtype, dimensions, site.dialect.default_location, (name,))
        kept = Access(name, tuple(LEVELS[:depth]))

        def value(e: Expression) -> Expression:
            return Read(kept, e.dtype) if isinstance(e, Read) and e.access == self.read else e

        statement = site.statement
        named, guard = fresh(f"{name}.c", program.place_of), self.condition or ()
        copy = Statement(kept, Read(self.read, self.dtype), None, self.dtype, named, guard)
        changed = statement.with_parts(statement.target, map_expression(statement.value, value))
        path, inside = site.path[: depth + 1], site.path[depth + 1 :]
        nodes = (copy, *enclosed(site.above[depth:], inside, (changed,)))
        result = program.edited(site.above[:depth], path, nodes, buffer=buffer)
        return Rewritten(result, Staged(name, (Nest.of(copy),)))


def _running_reads(statement: Statement, above: tuple[Scope, ...], depth: int) -> Iterator[Access]:
    """Elements that a statement reads of arrays that the scope at ``depth - 1`` accumulates into.

    They are the same in all iterations of the scopes below.
    """
    around = above[depth - 1].touches if depth else {}
    for read in dict.fromkeys(statement.reads):
        touches = around.get(read.array, ()) if read.array != statement.target.array else ()
        if any(t.writes and t.statement.accumulate for t in touches) and all(l < depth for l in read.levels):
            yield read


def _not_written_inside(facts: Running) -> Refusal | None:
    """Inside the place, nothing writes what is kept."""
    site, depth = facts.site, facts.depth
    buffer = site.program.buffer_of[facts.read.array]
    for array in buffer.arrays if depth < len(site.above) else ():
        for touch in site.above[depth].touches.get(array, ()):
            if touch.writes:
                return Refusal.of(touch.statement.id, touch.access, write=touch.access.text)
    return None


def _kept_where_read(facts: Running) -> Refusal | None:
    site, statement, condition = facts.site, facts.site.statement, facts.condition
    if not statement.guard:
        return None
    around = site.outer_sizes[: facts.depth]
    if condition is not None and stays_inside(site.program, facts.read, around, condition):
        return None
    return Refusal.of(statement.id, "if", statement=statement.text)


def _kept_bounded(facts: Running) -> Refusal | None:
    cells = prod(facts.site.outer_sizes[: facts.depth])
    if cells <= MAX_STAGED_CELLS:
        return None
    return Refusal.of(facts.site.statement.id, cells=cells, most=MAX_STAGED_CELLS)


class StageRunning(Analysed[Running]):
    """Keep every value that a running result has before a place that reads it, in a new buffer.

    The place is the statement or a scope around it. What is computed from the values may then stand in a loop
    of its own, whose iterations are independent.

    before:
        t[0] = 0
        8
        | t[0] += x[{0}]
        | y[{0}] = exp(t[0])
    after: stage_running(c2, array=t, before=c2)
        t[0] = 0
        8
        | t[0] += x[{0}]
        | t_k[{0}] = t[0]
        | y[{0}] = exp(t_k[{0}])
    """

    name = "stage_running"
    place = "statement"
    parameters = (
        Parameter("array", str, "the array that the scope around the place accumulates into"),
        Parameter("before", str, "id of the statement, or of a scope around it, to keep the value before"),
    )
    requirements = (
        Requirement(
            "PD-T641",
            "no running result of the array is read there",
            "the scope around {before} does not accumulate into {array}, or the statement reads none or "
            "several of its elements",
            "name a place around which {array} is accumulated into, and of which one element is read",
            None,
            established_by=("join_scopes",),
        ),
        Requirement(
            "PD-T642",
            "no condition says where the statement reads the array",
            "{statement} reads the array only sometimes",
            "split the scopes so that the condition goes away",
            _kept_where_read,
            established_by=("drop_condition", "split_range"),
        ),
        Requirement(
            "PD-T643",
            "the new buffer is too large",
            "it would take {cells} cells, {most} are allowed",
            "cut the scopes around the statement",
            _kept_bounded,
            established_by=SMALLER,
        ),
        Requirement(
            "PD-T644",
            "the place writes the array",
            "{write} changes it after the value would have been kept",
            "keep the value before an inner scope or the statement",
            _not_written_inside,
            semantic=True,
            established_by=("fission_scope",),
        ),
    )

    def candidates(self, program: Program, dialect: Dialect) -> Iterator[Move]:
        for node, _, above, _ in program.places:
            for depth in range(1, len(above) + 1) if isinstance(node, Statement) else ():
                assert isinstance(node, Statement)
                place = above[depth].id if depth < len(above) else node.id
                for array in dict.fromkeys(read.array for read in _running_reads(node, above, depth)):
                    yield Move(self.name, node.id, (("array", array), ("before", place)))

    def analyse(self, site: Site) -> Running | Refusal:
        array, before, statement = site.move["array"], site.move["before"], site.statement
        buffer = named_buffer(site, array)
        around: tuple[Node, ...] = (*site.above, statement)
        for depth, node in enumerate(around):
            if node.id == before:
                found = [r for r in _running_reads(statement, site.above, depth) if r.array == array]
                if len(found) == 1:
                    return Running(site, found[0], buffer.dtype, depth)
        return Refusal.of(statement.id, arrays=(array,), array=array, before=before)

    def rewrite(self, facts: Running, /) -> Rewritten:
        return facts.rewritten

    def relation(self, facts: Running, result: Program, /) -> Relation:
        return dict.fromkeys(facts.rewritten.made.statements, Definition())


MOVES = (SplitScan(), StageRunning())

"""Moves that put a slice of an array into a buffer of its own, around one scope.

All of them share one idea, the *form* of an access: which iterators it uses, those outside the
scope and those inside it, and how they make the subscripts. The new buffer has one dimension for
each of these iterators, outermost first, so that staging is a plain copy; dropping the outer
dimensions (``reuse_dims``) and choosing a layout (``reorder_dims``) are moves of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import prod
from typing import TypeAlias

from perfdojo_sdk.core.dependence import may_meet, private_buffers
from perfdojo_sdk.core.dialect import Dialect
from perfdojo_sdk.core.errors import MoveError, closest
from perfdojo_sdk.core.expression import (
    LEVELS,
    Access,
    AffineExpr,
    Expression,
    Read,
    map_expression,
)
from perfdojo_sdk.core.frozen import frozen, lazy
from perfdojo_sdk.core.geometry import guarded_bounds
from perfdojo_sdk.core.lookups import lookups_of
from perfdojo_sdk.core.made import Nest, Rewritten, Staged
from perfdojo_sdk.core.program import Node, Program, Scope, Statement, Touch, fresh
from perfdojo_sdk.core.projection import Guard, follows, reached, weakest
from perfdojo_sdk.core.storage import Buffer, Dimension
from perfdojo_sdk.core.transformation import (
    NO_MOVE,
    Analysed,
    Definition,
    Facts,
    Move,
    Parameter,
    Refusal,
    Relation,
    Requirement,
    Site,
)

MAX_STAGED_CELLS = 2**36


@frozen
class Form:
    """The dependence on iterators of an access inside a scope at level ``inner``.

    ``outer``: levels above the scope. ``sizes``: of the iterators inside, in order of depth.
    ``subscripts``: with the k-th inside iterator named ``{inner + k}``.
    """

    inner: int
    outer: tuple[int, ...]
    sizes: tuple[int, ...]
    subscripts: tuple[AffineExpr, ...]

    @staticmethod
    def of(access: Access, inner: int, sizes: tuple[int, ...]) -> Form:
        """``sizes``: of all scopes around the access, from the root."""
        used = access.levels
        inside = [l for l in used if l >= inner]
        outer = used[: len(used) - len(inside)]
        subscripts = access.subscripts
        if inside and inside[-1] - inner >= len(inside):
            renamed = {l: LEVELS[inner + k] for k, l in enumerate(inside)}
            subscripts = tuple([s.substitute(lambda l: renamed.get(l, LEVELS[l])) for s in subscripts])
        return Form(inner, outer, tuple([sizes[l] for l in inside]), subscripts)

    @staticmethod
    def staged(name: str, access: Access) -> Access:
        """The element of the new buffer that stands for ``access``: its iterators, outermost first."""
        return Access(name, tuple([LEVELS[l] for l in access.levels]))

    @property
    def element(self) -> tuple[AffineExpr, ...]:
        """Subscripts of the new buffer inside a nest over ``sizes``."""
        inner = self.inner
        return (*[LEVELS[l] for l in self.outer], *LEVELS[inner : inner + len(self.sizes)])

    def one_cell_each(self, buffer: Buffer) -> bool:
        """True if different inside iterations always touch different cells of ``buffer``."""
        access = Access("", self.subscripts)
        sizes = (1,) * self.inner + self.sizes
        for k in range(len(self.sizes)):
            directions = "=" * (self.inner + k) + "<"
            if may_meet(buffer, access, sizes, access, sizes, directions):
                return False
        return True


def nest(statement: Statement, sizes: Sequence[int], name: str, taken: Mapping[str, object]) -> Node:
    """``statement`` inside scopes of ``sizes``, with ids made from ``name``."""
    node: Node = statement.named(fresh(f"{name}.c", taken))
    for k in reversed(range(len(sizes))):
        node = Scope(sizes[k], (node,), "", fresh(f"{name}.{k}", taken))
    return node


def named_buffer(site: Site, array: str) -> Buffer:
    """The buffer of the array that a move names; :class:`MoveError` where the program has none."""
    buffer = site.program.buffer_of.get(array)
    if buffer is None:
        hint = closest(array, list(site.program.buffer_of))
        what, why = f"{site.move.text}: no array {array!r}", "the program declares no such array"
        raise MoveError("PD-T002", what, why=why, hint=hint)
    return buffer


@frozen
class Slice(Facts):
    """The part of an array that a scope touches in one form."""

    array: str
    buffer: Buffer
    """The buffer that holds the array."""
    inside: tuple[Touch, ...]
    """Every touch of that buffer inside the scope."""
    form: Form

    @staticmethod
    def touches(site: Site, buffer: Buffer) -> tuple[Touch, ...]:
        """Every touch of a buffer inside the site's scope."""
        touches = site.scope.touches
        return tuple([touch for alias in buffer.arrays for touch in touches.get(alias, ())])

    @lazy
    def sizes(self) -> tuple[int, ...]:
        """Dimensions of the new buffer."""
        form, outer_sizes = self.form, self.site.outer_sizes
        return (*[outer_sizes[l] for l in form.outer], *form.sizes)

    def new_buffer(self, suffix: str) -> Buffer:
        """The buffer that the slice is staged in."""
        site = self.site
        name = fresh(f"{self.array}_{suffix}", site.program.names)
        dimensions = tuple([Dimension(s) for s in self.sizes])
        return Buffer(name, self.buffer.dtype, dimensions, site.dialect.default_location, (name,))


@frozen
class CopiedSlice(Slice):
    """A slice whose elements are copied, or something is computed of each of them."""

    staged: tuple[Touch, ...]
    """The touches that say which elements are copied."""

    @property
    def around(self) -> tuple[int, ...]:
        """Sizes of all scopes around a copy."""
        return self.site.outer_sizes + self.form.sizes

    @lazy
    def condition(self) -> Guard | None:
        """The condition of the copies: an element is copied where one of these touches happens, and nowhere
        else. None if no condition says so."""
        return weakest([touched(self.site, touch) for touch in self.staged], self.around)


@frozen
class ReadSlice(CopiedSlice):
    """A slice that the scope reads."""

    @lazy
    def condition(self) -> Guard | None:
        """The same; but every element of an input that nothing writes is there at all times, so that a copy
        may read more of them as long as it stays inside the array."""
        site, outer = self.site, self.site.outer_sizes
        found = weakest([touched(site, touch) for touch in self.staged], self.around)
        whole = found != () and self.array in site.program.read_only
        if whole and all(stays_inside(site.program, t.access, outer + t.sizes) for t in self.staged):
            return ()
        return found


Formed: TypeAlias = list[tuple[Touch, Form]]


def formed(site: Site, touches: tuple[Touch, ...]) -> Formed:
    """The touches inside a scope, each with its form."""
    level, outer = site.level, site.outer_sizes
    return [(touch, Form.of(touch.access, level, outer + touch.sizes)) for touch in touches]


@frozen
class WrittenSlice(CopiedSlice):
    """A slice that the scope writes; its form is that of the first write."""

    formed: Formed
    """Every touch of the buffer inside the scope, with its form."""


def _written_slice(site: Site) -> WrittenSlice | Refusal:
    array = _array(site)
    if array in site.scope.touches:
        buffer = named_buffer(site, array)
        inside = Slice.touches(site, buffer)
        found, writes = formed(site, inside), tuple([touch for touch in inside if touch.writes])
        for touch, form in found:
            if touch.writes and touch.access.array == array and not touch.statement.chooses:
                return WrittenSlice(site, array, buffer, inside, form, writes, found)
    return Refusal.of(site.scope.id, site.scope.head, arrays=(array,))


def _array(site: Site) -> str:
    name: str = site.move["array"]
    return name


def _addressable(facts: Slice) -> Refusal | None:
    site, buffer = facts.site, facts.buffer
    if not site.dialect.locations[buffer.location].constant_subscripts:
        return None
    return Refusal.of(site.scope.id, arrays=(facts.array,), location=buffer.location, buffer=buffer.name)


def _bounded(facts: Slice) -> Refusal | None:
    cells, scope = prod(facts.sizes), facts.site.scope
    if cells <= MAX_STAGED_CELLS:
        return None
    return Refusal.of(scope.id, scope.head, arrays=(facts.array,), cells=cells, most=MAX_STAGED_CELLS)


def _redirect(node: Node, change: Callable[[Statement], Statement], array: str) -> Node:
    if array not in node.arrays:
        return node
    if isinstance(node, Statement):
        return change(node)
    return node.with_body(tuple([_redirect(child, change, array) for child in node.body]))


def two_elements(facts: Slice, buffer: Buffer) -> tuple[Access, Access]:
    """An element of the new buffer in a copy nest, and the element of the array that it stands for."""
    form = facts.form
    return Access(buffer.name, form.element), Access(facts.array, form.subscripts)


def defined(facts: CopiedSlice, target: Access, value: Expression) -> Statement:
    """An assignment under the condition of the copies. (A mutant without the requirement has none.)"""
    return Statement(target, value, None, facts.buffer.dtype, guard=facts.condition or ())


def copied(facts: CopiedSlice, target: Access, source: Access) -> Statement:
    return defined(facts, target, Read(source, facts.buffer.dtype))


def stage(facts: Slice, buffer: Buffer, before: Statement | None, after: Statement | None,
          change: Callable[[Statement], Statement]) -> Rewritten:  # fmt: skip
    """Put the scope with ``change`` on its statements between the two copy nests."""
    form, site = facts.form, facts.site
    taken = site.program.place_of
    start = [nest(before, form.sizes, f"{buffer.name}.in" if after else buffer.name, taken)] if before else []
    end = [nest(after, form.sizes, f"{buffer.name}.out" if before else buffer.name, taken)] if after else []
    nodes = (*start, _redirect(site.scope, change, facts.array), *end)
    made = Staged(buffer.name, tuple([Nest.of(copy) for copy in (*start, *end)]))
    return Rewritten(site.replaced(nodes, buffer=buffer), made)


def touched(site: Site, touch: Touch) -> Guard | None:
    """For which elements of the slice a touch inside the site's scope happens, in the levels of a copy; None
    if no condition says so."""
    guard, level = touch.statement.guard, site.level
    if not guard:
        return ()
    sizes = site.outer_sizes + touch.sizes
    inside = [l for l in touch.access.levels if l >= level]
    found = reached(guard, sizes, [l for l in range(level, len(sizes)) if l not in inside])
    renamed = {l: LEVELS[level + k] for k, l in enumerate(inside)}
    return found and tuple([form.substitute(lambda l: renamed.get(l, LEVELS[l])) for form in found])


def copies_known(facts: CopiedSlice) -> Refusal | None:
    """The copies touch what the statements do: a condition says which elements these are, and keeps the
    subscripts inside."""
    touch = next((touch for touch in facts.staged if touch.statement.guard), None)
    if touch is None:
        return None
    condition, access = facts.condition, Access(facts.array, facts.form.subscripts)
    if condition is not None and stays_inside(facts.site.program, access, facts.around, condition):
        return None
    statement = touch.statement
    return Refusal.of(statement.id, "if", access=touch.access, statement=statement.text)


def stays_inside(program: Program, access: Access, sizes: tuple[int, ...], guard: Guard = ()) -> bool:
    """True if an access, and what its run-time indices read, stays inside its array in all iterations that
    satisfy ``guard``."""
    for form, size in zip(access.subscripts, program.buffer_of[access.array].shape, strict=True):
        low, high = guarded_bounds(form, guard, sizes)
        if low < 0 or high >= size or any(q.dividend.bounds(sizes)[0] < 0 for q, _ in form.divisions):
            return False
    chosen = [read for lookup in lookups_of((access,)) for read in lookup.reads]
    return all(stays_inside(program, read, sizes, guard) for read in chosen)


CONDITIONAL = (
    "no condition says which elements are used",
    "{statement} uses {access} in some iterations only, and no conjunction of comparisons says for which "
    "elements it or another statement does, or keeps a copy inside the array",
    "separate the statements with fission_scope, or split the scopes so that the condition goes away",
    copies_known,
)

#: Moves that take conditions away, or statements with different ones apart.
ONE_CONDITION = ("drop_condition", "drop_unreached", "split_range", "fission_scope")
#: Moves that make the slice of an inner scope smaller.
SMALLER = ("split_scope", "split_range")

ARRAY = Parameter("array", str, "the array whose slice is staged")

TOO_LARGE = (
    "the staged slice is too large",
    "it would take {cells} cells, {most} are allowed",
    "stage at an inner scope",
    _bounded,
)

_NOT_WRITTEN = (
    "the scope does not write the array",
    "no statement inside writes {array}",
    "name an array that the scope writes",
    None,
)

NAMED_CELLS = (
    "the array's cells are named, not addressed",
    "{buffer} lives in {location}; loops cannot run over it",
    "stage before setting the location",
    _addressable,
)


def _array_candidates(name: str, program: Program, written: bool) -> Iterator[Move]:
    for _, scope in program.scopes:
        for array in scope.written_arrays if written else scope.read_arrays:
            yield Move(name, scope.id, (("array", array),))


# -- stage_read ------------------------------------------------------------------------------------


def not_written(facts: Slice) -> Refusal | None:
    for touch in facts.inside:
        if touch.writes:
            return Refusal.of(touch.statement.id, touch.access, write=touch.access.text)
    return None


class StageRead(Analysed[ReadSlice]):
    """Copy what a scope reads of an array into a new buffer, right before the scope (pack).

    before:
        4 8 y[{0},{1}] = x[{1},{0}] * 2
    after: stage_read(s1, array=x)
        4
        | 8 x_r[{0},{1}] = x[{1},{0}]
        | 8 y[{0},{1}] = x_r[{0},{1}] * 2
    """

    name = "stage_read"
    place = "scope"
    parameters = (ARRAY,)
    requirements = (
        Requirement(
            "PD-T171",
            "the scope does not read the array in one form",
            "{array} is read as {other}, which differs from the first read in its iterators",
            "stage at an inner scope that holds one form of access",
            None,
            established_by=("fission_scope",),
        ),
        Requirement(
            "PD-T172",
            "the scope writes the array",
            "{write} changes it after the copy would have been made",
            "stage at a scope that only reads the array",
            not_written,
            semantic=True,
            established_by=("fission_scope",),
        ),
        Requirement("PD-T173", *NAMED_CELLS, established_by=("set_location",)),
        Requirement("PD-T174", *TOO_LARGE, established_by=SMALLER),
        Requirement(
            "PD-T175",
            *CONDITIONAL,
            established_by=ONE_CONDITION,
        ),
    )

    def candidates(self, program: Program, dialect: Dialect) -> Iterator[Move]:
        return _array_candidates(self.name, program, written=False)

    def analyse(self, site: Site) -> ReadSlice | Refusal:
        array = _array(site)
        buffer = named_buffer(site, array)
        inside = Slice.touches(site, buffer)
        found = formed(site, inside)
        reads = [(t, form) for t, form in found if not t.writes and t.access.array == array]
        if not reads:
            return Refusal.of(site.scope.id, site.scope.head, arrays=(array,), other="nothing")
        _, first = reads[0]
        for touch, form in reads[1:]:
            if form != first:
                return Refusal.of(touch.statement.id, touch.access, other=touch.access.text)
        return ReadSlice(site, array, buffer, inside, first, tuple([touch for touch, _ in reads]))

    def rewrite(self, facts: ReadSlice, /) -> Rewritten:
        array, buffer = facts.array, facts.new_buffer("r")

        def value(e: Expression) -> Expression:
            if isinstance(e, Read) and e.access.array == array:
                return Read(Form.staged(buffer.name, e.access), e.dtype)
            return e

        def change(statement: Statement) -> Statement:
            return with_reads(statement, value)

        inside, outside = two_elements(facts, buffer)
        return stage(facts, buffer, copied(facts, inside, outside), None, change)

    def relation(self, facts: ReadSlice, result: Program, /) -> Relation:
        return dict.fromkeys(self.rewrite(facts).made.statements, Definition())


def with_reads(statement: Statement, change: Callable[[Expression], Expression]) -> Statement:
    """The statement with a part of its value in the place of each that ``change`` changes."""
    return statement.with_parts(statement.target, map_expression(statement.value, change))


# -- stage_accumulator -----------------------------------------------------------------------------


def _only_accumulated(facts: WrittenSlice) -> Refusal | None:
    array = facts.array
    for touch, form in facts.formed:
        alone = touch.writes and touch.statement.accumulate and touch.access.array == array
        if not alone or form != facts.form:
            return Refusal.of(touch.statement.id, touch.access, array=array, other=touch.access.text)
    return None


def one_cell_each(facts: Slice) -> Refusal | None:
    if facts.form.one_cell_each(facts.buffer):
        return None
    return Refusal.of(facts.site.scope.id, arrays=(facts.array,))


class StageAccumulator(Analysed[WrittenSlice]):
    """Accumulate into a new buffer: copy in before the scope, copy out after it.

    before:
        4
        | y[{0}] = 0
        | 8 y[{0}] += x[{0},{1}]
    after: stage_accumulator(s1, array=y)
        4
        | y[{0}] = 0
        | y_a[{0}] = y[{0}]
        | 8 y_a[{0}] += x[{0},{1}]
        | y[{0}] = y_a[{0}]
    """

    name = "stage_accumulator"
    place = "scope"
    parameters = (ARRAY,)
    requirements = (
        Requirement("PD-T181", *_NOT_WRITTEN, established_by=NO_MOVE),
        Requirement(
            "PD-T182",
            "the scope does more with the array than accumulate in one form",
            "{array} is used as {other}",
            "stage at a scope that only accumulates, or use stage_write",
            _only_accumulated,
            semantic=True,
            established_by=("fission_scope",),
        ),
        Requirement(
            "PD-T183",
            "different iterations accumulate into one cell of the array",
            "cells of the new buffer would not stand for one cell of {array} each",
            "stage at an inner scope",
            one_cell_each,
            semantic=True,
            established_by=NO_MOVE,
        ),
        Requirement("PD-T184", *NAMED_CELLS, established_by=("set_location",)),
        Requirement("PD-T185", *TOO_LARGE, established_by=SMALLER),
        Requirement("PD-T186", *CONDITIONAL, established_by=ONE_CONDITION),
    )

    def candidates(self, program: Program, dialect: Dialect) -> Iterator[Move]:
        return _array_candidates(self.name, program, written=True)

    def analyse(self, site: Site) -> WrittenSlice | Refusal:
        return _written_slice(site)

    def rewrite(self, facts: WrittenSlice, /) -> Rewritten:
        buffer = facts.new_buffer("a")
        inside, outside = two_elements(facts, buffer)
        copy_in, copy_out = copied(facts, inside, outside), copied(facts, outside, inside)
        return stage(facts, buffer, copy_in, copy_out, _renaming(facts, buffer))

    def relation(self, facts: WrittenSlice, result: Program, /) -> Relation:
        return dict.fromkeys(self.rewrite(facts).made.statements, Definition())


def _renaming(facts: WrittenSlice, buffer: Buffer) -> Callable[[Statement], Statement]:
    """Send every access of the array in the form to the new buffer.

    Accesses in another form stay; the requirements say that there are none.
    """
    form, array = facts.form, facts.array
    inside = {id(t.access): form for t, form in facts.formed if t.access.array == array}

    def access(a: Access) -> Access:
        return Form.staged(buffer.name, a) if a.array == array and inside.get(id(a)) == form else a

    def value(e: Expression) -> Expression:
        return Read(access(e.access), e.dtype) if isinstance(e, Read) and e.access.array == array else e

    def change(statement: Statement) -> Statement:
        return statement.with_parts(access(statement.target), map_expression(statement.value, value))

    return change


# -- stage_write -----------------------------------------------------------------------------------


def _used_in_one_form(facts: WrittenSlice) -> Refusal | None:
    array, first = facts.array, facts.form
    for touch, form in facts.formed:
        if touch.access.array != array or form is not first and form != first:
            return Refusal.of(touch.statement.id, touch.access, array=array, other=touch.access.text)
    return None


def _written_first(facts: WrittenSlice) -> Refusal | None:
    """No value from before the scope is read inside it.

    The first touch must be a plain write; touches that read are of cells that it writes, and none of them
    may come, in an earlier iteration, before a plain write of the same cell.
    """
    site, array, buffer = facts.site, facts.array, facts.buffer
    touches = site.scope.touches[array]
    first = touches[0]
    if not first.writes or first.statement.accumulate:
        return Refusal.of(first.statement.id, first.access)
    outer, condition = site.outer_sizes, touched(site, first)
    paths = {o.statement.id: o.path for o in site.program.occurrences[buffer.name]}
    for touch in touches:
        if touch.writes and not touch.statement.accumulate:
            continue
        if not _implies(site, touch, condition, facts.around):
            return Refusal.of(touch.statement.id, touch.access, nodes=(first.statement.id,))
        shared = _shared_levels(paths[first.statement.id], paths[touch.statement.id])
        for level in range(site.level, shared):
            directions = "=" * level + "<"
            if may_meet(
                buffer, touch.access, outer + touch.sizes, first.access, outer + first.sizes, directions
            ):
                return Refusal.of(touch.statement.id, touch.access, nodes=(first.statement.id,))
    return None


def _implies(site: Site, touch: Touch, condition: Guard | None, around: tuple[int, ...]) -> bool:
    """True if the touch happens only for elements of the slice for which the condition holds."""
    if not condition:
        return condition is not None
    mine = touched(site, touch)
    return mine is not None and follows(condition, mine, around)


def _shared_levels(one: tuple[int, ...], other: tuple[int, ...]) -> int:
    shared = 0
    while shared < min(len(one), len(other)) - 1 and one[shared] == other[shared]:
        shared += 1
    return shared


def _copies_stay_apart(facts: WrittenSlice) -> Refusal | None:
    """Refuses a buffer that each iteration of a parallel scope owns: the copy would be one for all of
    them."""
    site, buffer = facts.site, facts.buffer.name
    for level, scope in _parallel_scopes((site.scope,), site.level, site.dialect):
        if buffer in private_buffers(site.program, scope):
            for touch in scope.touches[facts.array]:
                if touch.writes and level not in touch.access.levels:
                    return Refusal.of(
                        touch.statement.id,
                        touch.access,
                        iterator=scope.id,
                        head=scope.head,
                        write=touch.access.text,
                    )
    return None


def _parallel_scopes(nodes: tuple[Node, ...], level: int, dialect: Dialect) -> Iterator[tuple[int, Scope]]:
    """The parallel scopes among nodes at ``level`` and inside them, with their levels."""
    for node in nodes:
        if isinstance(node, Scope) and dialect.any_parallel(node.suffixes):
            if dialect.is_parallel(node.suffix):
                yield level, node
            yield from _parallel_scopes(node.body, level + 1, dialect)


class StageWrite(Analysed[WrittenSlice]):
    """Let a scope write into a new buffer, copied to the array right after the scope.

    before:
        4 8 y[{1},{0}] = x[{0},{1}] * 2
    after: stage_write(s1, array=y)
        4
        | 8 y_w[{0},{1}] = x[{0},{1}] * 2
        | 8 y[{1},{0}] = y_w[{0},{1}]
    """

    name = "stage_write"
    place = "scope"
    parameters = (ARRAY,)
    requirements = (
        Requirement("PD-T191", *_NOT_WRITTEN, established_by=NO_MOVE),
        Requirement(
            "PD-T192",
            "the scope uses the array in more than one form",
            "{array} is used as {other}",
            "stage at an inner scope that holds one form of access",
            _used_in_one_form,
            semantic=True,
            established_by=("fission_scope",),
        ),
        Requirement(
            "PD-T193",
            "different iterations write one cell of the array",
            "cells of the new buffer would not stand for one cell of {array} each",
            "stage at an inner scope",
            one_cell_each,
            semantic=True,
            established_by=NO_MOVE,
        ),
        Requirement(
            "PD-T194",
            "a value from before the scope may be read inside it",
            "{array} is not written by the scope before it is read there",
            "stage at an outer scope that writes first, or use stage_accumulator",
            _written_first,
            semantic=True,
            established_by=("join_scopes", "reorder_statements"),
        ),
        Requirement("PD-T195", *NAMED_CELLS, established_by=("set_location",)),
        Requirement("PD-T196", *TOO_LARGE, established_by=SMALLER),
        Requirement("PD-T197", *CONDITIONAL, semantic=True, established_by=ONE_CONDITION),
        Requirement(
            "PD-T198",
            "parallel iterations would write one cell of the new buffer",
            "each iteration of {head} owns a copy of {array}; outside, all of them would write {write}",
            "stage at a scope inside the parallel one, or take the array away with remove_dead",
            _copies_stay_apart,
            established_by=("remove_dead",),
        ),
    )

    def candidates(self, program: Program, dialect: Dialect) -> Iterator[Move]:
        return _array_candidates(self.name, program, written=True)

    def analyse(self, site: Site) -> WrittenSlice | Refusal:
        return _written_slice(site)

    def rewrite(self, facts: WrittenSlice, /) -> Rewritten:
        buffer = facts.new_buffer("w")
        inside, outside = two_elements(facts, buffer)
        return stage(facts, buffer, None, copied(facts, outside, inside), _renaming(facts, buffer))

    def relation(self, facts: WrittenSlice, result: Program, /) -> Relation:
        return dict.fromkeys(self.rewrite(facts).made.statements, Definition())


MOVES = (StageRead(), StageAccumulator(), StageWrite())

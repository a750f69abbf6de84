"""Moves that put a slice of an array into a buffer of its own, around one scope.

All of them share one idea, the *form* of an access: which iterators it uses, those outside the
scope and those inside it, and how they make the subscripts. The new buffer has one dimension for
each of these iterators, outermost first, so that staging is a plain copy; dropping the outer
dimensions (``reuse_dims``) and choosing a layout (``reorder_dims``) are moves of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod

from perfdojo_sdk.core.dependence import may_meet, private_buffers
from perfdojo_sdk.core.dialect import Dialect
from perfdojo_sdk.core.dtypes import smallest_normal
from perfdojo_sdk.core.errors import MoveError, closest
from perfdojo_sdk.core.expression import (
    LEVELS,
    Access,
    Expression,
    Index,
    Literal,
    Operation,
    Read,
    map_children,
    map_expression,
    operations,
    performs,
)
from perfdojo_sdk.core.frozen import frozen
from perfdojo_sdk.core.laws import RECIPROCAL, holds
from perfdojo_sdk.core.made import Nest, Rewritten, Staged
from perfdojo_sdk.core.magnitudes import invertible
from perfdojo_sdk.core.program import Node, Program, Scope, Statement, Touch, fresh
from perfdojo_sdk.core.storage import Buffer, Dimension
from perfdojo_sdk.core.transformation import (
    Definition,
    Kind,
    Move,
    Parameter,
    Refusal,
    Relation,
    Requirement,
    Site,
    Transformation,
)
from perfdojo_sdk.core.transformations.scopes import scopes

MAX_STAGED_CELLS = 2**36


@frozen
class Form:
    """How an access inside a scope at level ``inner`` depends on iterators.

    ``outer``: levels above the scope. ``sizes``: of the iterators inside, in order of depth.
    ``subscripts``: with the k-th inside iterator named ``{inner + k}``.
    """

    inner: int
    outer: tuple[int, ...]
    sizes: tuple[int, ...]
    subscripts: tuple[Index, ...]

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
    def element(self) -> tuple[Index, ...]:
        """Subscripts of the new buffer inside a nest over ``sizes``."""
        inner = self.inner
        return (*[LEVELS[l] for l in self.outer], *LEVELS[inner : inner + len(self.sizes)])

    def one_cell_each(self, buffer: Buffer) -> bool:
        """Whether different inside iterations always touch different cells of ``buffer``."""
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


def _inside(site: Site) -> tuple[Touch, ...]:
    """Every touch of the array's buffer inside the scope."""
    touches = site.scope.touches
    return tuple([touch for alias in _buffer(site).arrays for touch in touches.get(alias, ())])


def _array(site: Site) -> str:
    name: str = site.move["array"]
    return name


def _buffer(site: Site) -> Buffer:
    buffer = site.program.buffer_of.get(_array(site))
    if buffer is None:
        hint = closest(_array(site), list(site.program.buffer_of))
        what, why = f"{site.move.text}: no array {_array(site)!r}", "the program declares no such array"
        raise MoveError("PD-T002", what, why=why, hint=hint)
    return buffer


def _formed(site: Site) -> list[tuple[Touch, Form]]:
    """Every touch of the array's buffer inside the scope, with its form."""
    level, outer = site.level, site.outer_sizes
    return [(touch, Form.of(touch.access, level, outer + touch.sizes)) for touch in site.once(_inside)]


def _the_form(site: Site) -> Form:
    form: Form = site.scratch["form"]
    return form


def _addressable(site: Site) -> Refusal | None:
    buffer = _buffer(site)
    if not site.dialect.locations[buffer.location].constant_subscripts:
        return None
    return Refusal.of(site.scope.id, "", buffer=buffer.name, location=buffer.location)


def _bounded(site: Site) -> Refusal | None:
    cells = prod(site.once(_sizes))
    if cells <= MAX_STAGED_CELLS:
        return None
    return Refusal.of(site.scope.id, site.scope.head, cells=cells, most=MAX_STAGED_CELLS)


def _sizes(site: Site) -> tuple[int, ...]:
    """Dimensions of the new buffer."""
    form, outer_sizes = _the_form(site), site.outer_sizes
    return (*[outer_sizes[l] for l in form.outer], *form.sizes)


def _new_buffer(site: Site, suffix: str) -> Buffer:
    name = fresh(f"{_array(site)}_{suffix}", site.program.names)
    dimensions = tuple([Dimension(s) for s in site.once(_sizes)])
    return Buffer(name, _buffer(site).dtype, dimensions, site.dialect.default_location, (name,))


def _redirect(node: Node, change: Callable[[Statement], Statement], array: str) -> Node:
    if array not in node.arrays:
        return node
    if isinstance(node, Statement):
        return change(node)
    return node.with_body(tuple([_redirect(child, change, array) for child in node.body]))


def _stage(site: Site, buffer: Buffer, before: Statement | None, after: Statement | None,
           change: Callable[[Statement], Statement]) -> Rewritten:  # fmt: skip
    """Put the scope with ``change`` on its statements between the two copy nests."""
    form, taken = _the_form(site), site.program.place_of
    start = [nest(before, form.sizes, f"{buffer.name}.in" if after else buffer.name, taken)] if before else []
    end = [nest(after, form.sizes, f"{buffer.name}.out" if before else buffer.name, taken)] if after else []
    nodes = (*start, _redirect(site.scope, change, _array(site)), *end)
    made = Staged(buffer.name, tuple([Nest.of(copy) for copy in (*start, *end)]))
    return Rewritten(site.replaced(nodes, buffer=buffer), made)


def _is_written(site: Site) -> Refusal | None:
    """The form of the first write is the form; other requirements compare with it."""
    array = _array(site)
    for touch, form in site.once(_formed) if array in site.scope.touches else ():
        if touch.writes and touch.access.array == array:
            site.scratch["form"] = form
            return None
    return Refusal.of(site.scope.id, site.scope.head, array=array)


def _unguarded(site: Site) -> Refusal | None:
    """The copy nests run over all iterations, the statements only where their conditions hold."""
    for touch in site.once(_inside):
        if touch.statement.guard:
            return Refusal.of(touch.statement.id, "if", statement=touch.statement.text)
    return None


_CONDITIONAL = (
    "the array is used under a condition",
    "{statement} does not touch it in every iteration, the copy would",
    "split the scopes so that the condition goes away, or stage elsewhere",
    _unguarded,
)

_ARRAY = Parameter("array", str, "the array whose slice is staged")

_TOO_LARGE = (
    "the staged slice is too large",
    "it would take {cells} cells, {most} are allowed",
    "stage at an inner scope",
    _bounded,
)

_NOT_WRITTEN = (
    "the scope does not write the array",
    "no statement inside writes {array}",
    "name an array that the scope writes",
    _is_written,
)

_NAMED_CELLS = (
    "the array's cells are named, not addressed",
    "{buffer} lives in {location}; loops cannot run over it",
    "stage before setting the location",
    _addressable,
)


def _array_candidates(name: str, program: Program, written: bool) -> Iterator[Move]:
    for _, scope in scopes(program):
        for array in scope.written_arrays if written else scope.read_arrays:
            yield Move(name, scope.id, (("array", array),))


# -- stage_read ------------------------------------------------------------------------------------


def _read_in_one_form(site: Site) -> Refusal | None:
    array = _array(site)
    reads = [(t, form) for t, form in site.once(_formed) if not t.writes and t.access.array == array]
    if not reads:
        return Refusal.of(site.scope.id, site.scope.head, array=array, other="nothing")
    _, first = reads[0]
    site.scratch["form"] = first
    for touch, form in reads[1:]:
        if form != first:
            return Refusal.of(touch.statement.id, touch.access.text, array=array, other=touch.access.text)
    return None


def _not_written(site: Site) -> Refusal | None:
    for touch in site.once(_inside):
        if touch.writes:
            return Refusal.of(touch.statement.id, touch.access.text, write=touch.access.text)
    return None


class StageRead(Transformation):
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
    parameters = (_ARRAY,)
    requirements = (
        Requirement(
            "PD-T171",
            "the scope does not read the array in one form",
            "{array} is read as {other}, which differs from the first read in its iterators",
            "stage at an inner scope that holds one form of access",
            _read_in_one_form,
        ),
        Requirement(
            "PD-T172",
            "the scope writes the array",
            "{write} changes it after the copy would have been made",
            "stage at a scope that only reads the array",
            _not_written,
            semantic=True,
        ),
        Requirement("PD-T173", *_NAMED_CELLS),
        Requirement("PD-T174", *_TOO_LARGE),
        Requirement("PD-T175", *_CONDITIONAL),
    )

    def candidates(self, program: Program, dialect: Dialect) -> Iterator[Move]:
        return _array_candidates(self.name, program, written=False)

    def rewrite(self, site: Site) -> Rewritten:
        form, array, buffer = _the_form(site), _array(site), _new_buffer(site, "r")

        def value(e: Expression) -> Expression:
            if isinstance(e, Read) and e.access.array == array:
                return Read(Form.staged(buffer.name, e.access), e.dtype)
            return e

        def change(statement: Statement) -> Statement:
            return _with_reads(statement, value)

        copy = Statement(
            Access(buffer.name, form.element),
            Read(Access(array, form.subscripts), buffer.dtype),
            None,
            buffer.dtype,
        )
        return _stage(site, buffer, copy, None, change)

    def relation(self, site: Site, result: Program) -> Relation:
        return dict.fromkeys(self.rewrite(site).made.statements, Definition())


def _with_reads(statement: Statement, change: Callable[[Expression], Expression]) -> Statement:
    return statement.with_parts(statement.target, map_expression(statement.value, change))


# -- stage_accumulator -----------------------------------------------------------------------------


def _only_accumulated(site: Site) -> Refusal | None:
    for touch, form in site.once(_formed):
        alone = touch.writes and touch.statement.accumulate and touch.access.array == _array(site)
        if not alone or form != _the_form(site):
            return Refusal.of(
                touch.statement.id, touch.access.text, array=_array(site), other=touch.access.text
            )
    return None


def _one_cell_each(site: Site) -> Refusal | None:
    if _the_form(site).one_cell_each(_buffer(site)):
        return None
    return Refusal.of(site.scope.id, "", array=_array(site))


class StageAccumulator(Transformation):
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
    parameters = (_ARRAY,)
    requirements = (
        Requirement("PD-T181", *_NOT_WRITTEN),
        Requirement(
            "PD-T182",
            "the scope does more with the array than accumulate in one form",
            "{array} is used as {other}",
            "stage at a scope that only accumulates, or use stage_write",
            _only_accumulated,
            semantic=True,
        ),
        Requirement(
            "PD-T183",
            "different iterations accumulate into one cell of the array",
            "cells of the new buffer would not stand for one cell of {array} each",
            "stage at an inner scope",
            _one_cell_each,
            semantic=True,
        ),
        Requirement("PD-T184", *_NAMED_CELLS),
        Requirement("PD-T185", *_TOO_LARGE),
        Requirement("PD-T186", *_CONDITIONAL),
    )

    def candidates(self, program: Program, dialect: Dialect) -> Iterator[Move]:
        return _array_candidates(self.name, program, written=True)

    def rewrite(self, site: Site) -> Rewritten:
        buffer = _new_buffer(site, "a")
        inside, outside = _two_elements(site, buffer)
        copy_in = Statement(inside, Read(outside, buffer.dtype), None, buffer.dtype)
        copy_out = Statement(outside, Read(inside, buffer.dtype), None, buffer.dtype)
        return _stage(site, buffer, copy_in, copy_out, _renaming(site, buffer))

    def relation(self, site: Site, result: Program) -> Relation:
        return dict.fromkeys(self.rewrite(site).made.statements, Definition())


def _two_elements(site: Site, buffer: Buffer) -> tuple[Access, Access]:
    form = _the_form(site)
    return Access(buffer.name, form.element), Access(_array(site), form.subscripts)


def _renaming(site: Site, buffer: Buffer) -> Callable[[Statement], Statement]:
    """Send every access of the array in the form to the new buffer.

    Accesses in another form stay; the requirements say that there are none.
    """
    form, array = _the_form(site), _array(site)
    inside = {id(t.access): form for t, form in site.once(_formed) if t.access.array == array}

    def access(a: Access) -> Access:
        return Form.staged(buffer.name, a) if a.array == array and inside.get(id(a)) == form else a

    def value(e: Expression) -> Expression:
        return Read(access(e.access), e.dtype) if isinstance(e, Read) and e.access.array == array else e

    def change(statement: Statement) -> Statement:
        return statement.with_parts(access(statement.target), map_expression(statement.value, value))

    return change


# -- stage_write -----------------------------------------------------------------------------------


def _used_in_one_form(site: Site) -> Refusal | None:
    array, first = _array(site), _the_form(site)
    for touch, form in site.once(_formed):
        if touch.access.array != array or form is not first and form != first:
            return Refusal.of(
                touch.statement.id, touch.access.text, array=_array(site), other=touch.access.text
            )
    return None


def _written_first(site: Site) -> Refusal | None:
    """No value from before the scope is read inside it.

    The first touch must be a plain write, and no touch that reads may come, in an earlier
    iteration, before a plain write of the same cell.
    """
    array, program = _array(site), site.program
    touches = site.scope.touches[array]
    first = touches[0]
    if not first.writes or first.statement.accumulate:
        return Refusal.of(first.statement.id, first.access.text, array=array)
    outer, buffer = site.outer_sizes, _buffer(site)
    paths = {o.statement.id: o.path for o in program.occurrences[buffer.name]}
    for touch in touches:
        if touch.writes and not touch.statement.accumulate:
            continue
        shared = _shared_levels(paths[first.statement.id], paths[touch.statement.id])
        for level in range(site.level, shared):
            directions = "=" * level + "<"
            if may_meet(
                buffer, touch.access, outer + touch.sizes, first.access, outer + first.sizes, directions
            ):
                return Refusal.of(touch.statement.id, touch.access.text, array=array)
    return None


def _shared_levels(one: tuple[int, ...], other: tuple[int, ...]) -> int:
    shared = 0
    while shared < min(len(one), len(other)) - 1 and one[shared] == other[shared]:
        shared += 1
    return shared


def _copies_stay_apart(site: Site) -> Refusal | None:
    """What each iteration of a parallel scope owns becomes one buffer for all of them."""
    array, buffer, program = _array(site), _buffer(site).name, site.program
    for level, scope in _parallel_scopes((site.scope,), site.level, site.dialect):
        if buffer in private_buffers(program, scope):
            for touch in scope.touches[array]:
                if touch.writes and level not in touch.access.levels:
                    words = {"head": scope.head, "array": array, "write": touch.access.text}
                    return Refusal.of(touch.statement.id, touch.access.text, **words)
    return None


def _parallel_scopes(nodes: tuple[Node, ...], level: int, dialect: Dialect) -> Iterator[tuple[int, Scope]]:
    """The parallel scopes among nodes at ``level`` and inside them, with their levels."""
    for node in nodes:
        if isinstance(node, Scope) and dialect.any_parallel(node.suffixes):
            if dialect.is_parallel(node.suffix):
                yield level, node
            yield from _parallel_scopes(node.body, level + 1, dialect)


class StageWrite(Transformation):
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
    parameters = (_ARRAY,)
    requirements = (
        Requirement("PD-T191", *_NOT_WRITTEN),
        Requirement(
            "PD-T192",
            "the scope uses the array in more than one form",
            "{array} is used as {other}",
            "stage at an inner scope that holds one form of access",
            _used_in_one_form,
            semantic=True,
        ),
        Requirement(
            "PD-T193",
            "different iterations write one cell of the array",
            "cells of the new buffer would not stand for one cell of {array} each",
            "stage at an inner scope",
            _one_cell_each,
            semantic=True,
        ),
        Requirement(
            "PD-T194",
            "a value from before the scope may be read inside it",
            "{array} is not written by the scope before it is read there",
            "stage at an outer scope that writes first, or use stage_accumulator",
            _written_first,
            semantic=True,
        ),
        Requirement("PD-T195", *_NAMED_CELLS),
        Requirement("PD-T196", *_TOO_LARGE),
        Requirement("PD-T197", *_CONDITIONAL, semantic=True),
        Requirement(
            "PD-T198",
            "parallel iterations would write one cell of the new buffer",
            "each iteration of {head} owns a copy of {array}; outside, all of them would write {write}",
            "stage at a scope inside the parallel one, or take the array away with remove_dead",
            _copies_stay_apart,
        ),
    )

    def candidates(self, program: Program, dialect: Dialect) -> Iterator[Move]:
        return _array_candidates(self.name, program, written=True)

    def rewrite(self, site: Site) -> Rewritten:
        buffer = _new_buffer(site, "w")
        inside, outside = _two_elements(site, buffer)
        copy_out = Statement(outside, Read(inside, buffer.dtype), None, buffer.dtype)
        return _stage(site, buffer, None, copy_out, _renaming(site, buffer))

    def relation(self, site: Site, result: Program) -> Relation:
        return dict.fromkeys(self.rewrite(site).made.statements, Definition())


# -- stage_reciprocal ------------------------------------------------------------------------------


def _is_divisor(value: Read, array: str) -> bool:
    return value.access.array == array and holds(RECIPROCAL, value.dtype)


def _divisors(value: Expression, array: str) -> Iterator[Access]:
    for quotient in operations(value):
        divisor = quotient.arguments[-1]
        if quotient.name == "div" and isinstance(divisor, Read) and _is_divisor(divisor, array):
            yield divisor.access


def _divided_in_one_form(site: Site) -> Refusal | Kind:
    array = _array(site)
    form: Form | None = None
    for touch in site.scope.touches.get(array, ()):
        if touch.writes or touch.access not in tuple(_divisors(touch.statement.value, array)):
            continue
        found = Form.of(touch.access, site.level, site.outer_sizes + touch.sizes)
        if form is not None and found != form:
            return Refusal.of(touch.statement.id, touch.access.text, array=array, other=touch.access.text)
        form = found
    if form is None:
        return Refusal.of(site.scope.id, site.scope.head, array=array, other="no divisor")
    site.scratch["form"] = form
    return Kind.DECLARED_LAW


def _unless_tiny(divisor: Read, quotient: Expression, product: Expression) -> Operation:
    """The product with the reciprocal, but the quotient where the reciprocal may overflow."""
    tiny = Literal(smallest_normal(divisor.dtype), divisor.dtype)
    size = Operation("abs", (divisor,), divisor.dtype)
    return Operation("select", (Operation("lt", (size, tiny), "bool"), quotient, product), divisor.dtype)


class StageReciprocal(Transformation):
    """Divide once: keep 1/x in a new buffer before the scope, and multiply by it inside.

    Where x may be so small that 1/x overflows, the quotient is chosen then. It is computed everywhere, so
    there is nothing to gain: bounds have to say that x keeps away from zero, as an epsilon in it does.

    before:
        4
        | s[{0}] = abs(x[{0},0]) + 1
        | 8 y[{0},{1}] = x[{0},{1}] / s[{0}]
    after: stage_reciprocal(s1, array=s)
        4
        | s[{0}] = abs(x[{0},0]) + 1
        | s_i[{0}] = 1 / s[{0}]
        | 8 y[{0},{1}] = x[{0},{1}] * s_i[{0}]
    """

    name = "stage_reciprocal"
    version = 2
    place = "scope"
    parameters = (_ARRAY,)
    requirements = (
        Requirement(
            "PD-T241",
            "the scope does not divide by the array in one form",
            "{array} is used as {other}",
            "name a scope whose statements divide by one element of a float array",
            _divided_in_one_form,
            law=RECIPROCAL,
        ),
        Requirement(
            "PD-T242",
            "the scope writes the array",
            "{write} changes it after the reciprocal would have been taken",
            "stage at a scope that only reads the array",
            _not_written,
            semantic=True,
        ),
        Requirement("PD-T243", *_NAMED_CELLS),
        Requirement("PD-T244", *_TOO_LARGE),
        Requirement("PD-T245", *_CONDITIONAL),
    )

    def candidates(self, program: Program, dialect: Dialect) -> Iterator[Move]:
        dividing = {
            (node.id, read.array)
            for _, node in program.walk()
            if isinstance(node, Statement)
            for read in node.reads
            if any(_divisors(node.value, read.array))
        }
        divisors = frozenset([array for _, array in dividing])
        for _, scope in scopes(program) if dividing else ():
            for array, touches in scope.touches.items() if not divisors.isdisjoint(scope.arrays) else ():
                if array in divisors and not dividing.isdisjoint([(t.statement.id, array) for t in touches]):
                    yield Move(self.name, scope.id, (("array", array),), self.version)

    def rewrite(self, site: Site) -> Rewritten:
        form, array, buffer = _the_form(site), _array(site), _new_buffer(site, "i")
        safe = all(
            invertible(site.program, touch.statement, touch.access)
            for touch in site.scope.touches[array]
            if touch.access in tuple(_divisors(touch.statement.value, array))
        )

        def value(e: Expression) -> Expression:
            made = map_children(e, value)
            divisor = e.arguments[-1] if performs(e, "div") else None
            if isinstance(divisor, Read) and _is_divisor(divisor, array):
                inverse = Read(Form.staged(buffer.name, divisor.access), e.dtype)
                product = Operation("mul", (made.children[0], inverse), e.dtype)
                return product if safe else _unless_tiny(divisor, made, product)
            return made

        one = Literal(1.0, buffer.dtype)
        inverse = Operation("div", (one, Read(Access(array, form.subscripts), buffer.dtype)), buffer.dtype)
        define = Statement(Access(buffer.name, form.element), inverse, None, buffer.dtype)
        return _stage(site, buffer, define, None, lambda s: replace(s, value=value(s.value)))

    def relation(self, site: Site, result: Program) -> Relation:
        return dict.fromkeys(self.rewrite(site).made.statements, Definition())

    def upgrade(self, move: Move) -> Move | None:
        """Version 1 multiplied whatever the divisor was: where 1/x is infinite, its result was not x/y."""
        return replace(move, version=self.version)

"""Moves on buffers: contract a dimension, reorder dimensions, choose a location."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from math import prod
from typing import Self

from perfdojo_sdk.core.dependence import home_depth, leaking_level
from perfdojo_sdk.core.dialect import Dialect
from perfdojo_sdk.core.errors import MoveError, closest
from perfdojo_sdk.core.expression import Access, Expression, Read, map_expression
from perfdojo_sdk.core.frozen import frozen, lazy
from perfdojo_sdk.core.geometry import lane_stride
from perfdojo_sdk.core.program import Node, Occurrence, Program, Scope
from perfdojo_sdk.core.storage import Buffer, Dimension
from perfdojo_sdk.core.subscripts import MAX_DEPTH
from perfdojo_sdk.core.text import MAX_CELLS
from perfdojo_sdk.core.transformation import (
    NO_MOVE,
    Analysed,
    Facts,
    Move,
    Parameter,
    Refusal,
    Requirement,
    Site,
)
from perfdojo_sdk.core.transformations.scopes import refuse_leak, refuse_violation
from perfdojo_sdk.core.validate import location_violations
from perfdojo_sdk.core.words import number_of


def temporaries(program: Program) -> Iterator[Buffer]:
    return (b for b in program.buffers if not program.interface.intersection(b.arrays))


def _not_interface(facts: Facts) -> Refusal | None:
    buffer = facts.site.storage
    if facts.site.program.interface.isdisjoint(buffer.arrays):
        return None
    program = facts.site.program
    return Refusal.of(
        first_use(facts.site),
        arrays=buffer.arrays,
        buffer=buffer.name,
        kernel=program.name,
        shape=f"[{','.join(map(str, buffer.shape))}]",
        role=_role(program, buffer),
        staging=_staging(program, buffer),
    )


def _role(program: Program, buffer: Buffer) -> str:
    """The part of a buffer in the kernel's interface."""
    kinds = {"an input": program.given, "an output": program.outputs, "a table": tuple(program.tables)}
    return " and ".join(kind for kind, names in kinds.items() if not set(buffer.arrays).isdisjoint(names))


def _staging(program: Program, buffer: Buffer) -> str:
    """The move that puts what the outermost scope uses of a buffer into one of the kernel's own."""
    for array in buffer.arrays:
        written = array in program.outputs
        move = (
            "stage_read" if not written else "stage_accumulator" if array in program.given else "stage_write"
        )
        for use in program.occurrences[buffer.name]:
            if use.access.array == array and use.writes == written and use.above:
                return f"{move}({use.above[0].id}, array={array})"
    return "stage_read or stage_write, at a scope that uses it,"


#: Moves that put a slice of an array of the interface into a buffer of the kernel's own.
STAGING = ("stage_read", "stage_write", "stage_accumulator")

OWNED = (
    "the caller owns the buffer",
    "{buffer} is {role} of {kernel}",
    "first play {staging}, which makes a buffer of the kernel's own, then name that buffer",
    _not_interface,
)
LAYOUT_AGREED = (
    "the caller owns the buffer",
    "{buffer} is {role} of {kernel}, and its layout {shape} is fixed",
    "first play {staging}, which makes a buffer of the kernel's own, then name that buffer",
    _not_interface,
)


def refuse_lanes_apart(
    site: Site, buffer: Buffer, accesses: Iterable[tuple[Occurrence, Access]]
) -> Refusal | None:
    """Refuse where lanes would no longer go through neighbours. ``accesses``: each as it is, and as it will
    be in the new ``buffer``."""
    for o, access in accesses:
        scope = o.above[-1:]
        if scope and site.dialect.is_lockstep(scope[0].suffix):
            if not site.dialect.suffixes[scope[0].suffix].neighbours(o.writes):
                continue
            if lane_stride(buffer, access.subscripts, len(o.path) - 2) not in (0, 1):
                return Refusal.of(o.statement.id, o.access, iterator=scope[0].id)
    return None


def with_accesses(
    program: Program, buffer: Buffer, change: Callable[[Access, tuple[int, ...]], Access]
) -> Program:
    """The program with a buffer in another layout, and all accesses of its arrays in another form; ``change``
    gets each with the sizes of the loops around it."""

    def changed(node: Node, sizes: tuple[int, ...]) -> Node:
        if node.arrays.isdisjoint(buffer.arrays):
            return node
        if isinstance(node, Scope):
            return node.with_body(tuple([changed(child, (*sizes, node.size)) for child in node.body]))

        def access(old: Access) -> Access:
            return change(old, sizes) if old.array in buffer.arrays else old

        def leaf(value: Expression) -> Expression:
            return Read(access(value.access), value.dtype) if isinstance(value, Read) else value

        return node.with_parts(access(node.target), map_expression(node.value, leaf))

    body = tuple([changed(node, ()) for node in program.body])
    return program.with_buffer(buffer.name, buffer).with_body(body)


def refuse_unfit(site: Site, buffer: Buffer, program: Program) -> Refusal | None:
    """Refuse a new ``buffer`` that is too large, or that its location does not allow in ``program``."""
    if prod(buffer.shape) > MAX_CELLS or len(buffer.dimensions) > MAX_DEPTH:
        what = f"a buffer has at most {MAX_CELLS} elements in {MAX_DEPTH} dimensions"
        return Refusal.of(first_use(site), arrays=buffer.arrays, what=what)
    found = location_violations(program, buffer, program.occurrences[buffer.name], site.dialect)
    violation = next(found, None)
    return refuse_violation(site, violation, violation.node or first_use(site)) if violation else None


def first_use(site: Site) -> str:
    """The first statement that touches the buffer, to have a line to show."""
    occurrences = site.program.occurrences[site.storage.name]
    return occurrences[0].statement.id if occurrences else ""


@frozen
class BufferDimension(Facts):
    """A dimension of a buffer, and the accesses of the buffer."""

    k: int
    """Its position, from 0."""
    occurrences: tuple[Occurrence, ...]

    @classmethod
    def at(cls, site: Site) -> Self:
        """The dimension that the move names; :class:`MoveError` where there is none."""
        k, count = site.move["dim"], len(site.storage.dimensions)
        if not 0 <= k < count:
            what = f"{site.move.text}: {site.storage.name} has {number_of(count, 'dimensions')}"
            why, hint = f"there is none of number {k}", "dimensions count from 0"
            raise MoveError("PD-T002", what, why=why, hint=hint)
        return cls(site, k, site.program.occurrences[site.storage.name])

    @property
    def buffer(self) -> Buffer:
        return self.site.storage

    @property
    def dimension(self) -> Dimension:
        return self.buffer.dimensions[self.k]

    @lazy
    def home(self) -> int:
        """Number of scopes around all accesses within one iteration of which the buffer lives."""
        return home_depth(self.occurrences, self.site.dialect) if self.occurrences else 0


# -- reuse_dims ------------------------------------------------------------------------------------


def materialised(facts: BufferDimension) -> Refusal | None:
    if facts.dimension.materialised:
        return None
    buffer = facts.buffer
    return Refusal.of(first_use(facts.site), arrays=buffer.arrays, buffer=buffer.name, dim=facts.k)


def one_index_at_a_time(facts: BufferDimension) -> Refusal | None:
    """Inside one iteration of the scopes around all accesses, only one index is in use."""
    k, occurrences = facts.k, facts.occurrences
    for o in occurrences:
        subscript = o.access.subscripts[k]
        if subscript != occurrences[0].access.subscripts[k] or subscript.highest >= facts.home:
            own = o.above[subscript.highest].id if subscript.highest >= facts.home else ""
            return Refusal.of(o.statement.id, o.access, iterator=own, buffer=facts.buffer.name)
    return None


def _no_value_crosses(facts: BufferDimension) -> Refusal | None:
    if not facts.occurrences:
        return None
    level = leaking_level(facts.buffer, facts.occurrences, facts.home)
    return refuse_leak(facts.buffer, facts.occurrences, level) if level is not None else None


class ReuseDims(Analysed[BufferDimension]):
    """Stop materialising a dimension of a buffer: all its indices reuse one place (contract).

    before:
        t f32 [8] heap
        8
        | t[{0}] = x[{0}] * 2
        | y[{0}] = t[{0}] + 1
    after: reuse_dims(t, dim=0)
        t f32 [8:N] heap
        8
        | t[{0}] = x[{0}] * 2
        | y[{0}] = t[{0}] + 1
    """

    name = "reuse_dims"
    place = "buffer"
    parameters = (Parameter("dim", int, "position of the dimension, from 0"),)
    requirements = (
        Requirement("PD-T201", *OWNED, established_by=STAGING),
        Requirement(
            "PD-T202",
            "the dimension is not materialised",
            "dimension {dim} of {buffer} takes no memory already",
            "choose another dimension",
            materialised,
            established_by=NO_MOVE,
        ),
        Requirement(
            "PD-T203",
            "the dimension is used in more than one scope",
            "several indices of {buffer} are in use at once: {access} runs over them in a scope of its own",
            "fuse the scopes that use it with join_scopes first",
            one_index_at_a_time,
            semantic=True,
            established_by=("join_scopes",),
        ),
        Requirement(
            "PD-T204",
            "a value outlives its iteration",
            "values of {buffer} may pass from one iteration of {level} to another, through other indices",
            "keep the dimension",
            _no_value_crosses,
            semantic=True,
            established_by=NO_MOVE,
        ),
    )

    def candidates(self, program: Program, dialect: Dialect) -> Iterator[Move]:
        for buffer in temporaries(program):
            for k in buffer.materialised:
                yield Move(self.name, buffer.name, (("dim", k),))

    def analyse(self, site: Site) -> BufferDimension:
        return BufferDimension.at(site)

    def rewrite(self, facts: BufferDimension, /) -> Program:
        k, buffer = facts.k, facts.buffer
        dims = list(buffer.dimensions)
        dims[k] = Dimension(dims[k].size, "N")
        return facts.site.program.with_buffer(buffer.name, buffer.with_dimensions(tuple(dims)))


# -- reorder_dims ----------------------------------------------------------------------------------


@frozen
class Exchange(BufferDimension):
    """A dimension that changes places with the next one."""

    @lazy
    def exchanged(self) -> Buffer:
        """The buffer after the move."""
        k, dims = self.k, list(self.buffer.dimensions)
        dims[k], dims[k + 1] = dims[k + 1], dims[k]
        return self.buffer.with_dimensions(tuple(dims))


def _has_next_dimension(facts: Exchange) -> Refusal | None:
    buffer = facts.buffer
    if facts.k + 1 < len(buffer.dimensions):
        return None
    return Refusal.of(first_use(facts.site), arrays=buffer.arrays, buffer=buffer.name, dim=facts.k)


def _exchange(access: Access, k: int) -> Access:
    s = list(access.subscripts)
    s[k], s[k + 1] = s[k + 1], s[k]
    return Access(access.array, tuple(s))


def _lanes_stay_neighbours(facts: Exchange) -> Refusal | None:
    accesses = ((o, _exchange(o.access, facts.k)) for o in facts.occurrences)
    return refuse_lanes_apart(facts.site, facts.exchanged, accesses)


class ReorderDims(Analysed[Exchange]):
    """Exchange a dimension of a buffer with the next one: another layout of the same array.

    before:
        t f32 [8,16] heap
        8 16 t[{0},{1}] = x[{0},{1}]
        8 16 y[{0},{1}] = t[{0},{1}]
    after: reorder_dims(t, dim=0)
        t f32 [16,8] heap
        8 16 t[{1},{0}] = x[{0},{1}]
        8 16 y[{0},{1}] = t[{1},{0}]
    """

    name = "reorder_dims"
    place = "buffer"
    parameters = (Parameter("dim", int, "position of the first of the two dimensions, from 0"),)
    requirements = (
        Requirement("PD-T211", *LAYOUT_AGREED, semantic=True, established_by=STAGING),
        Requirement(
            "PD-T212",
            "there is no next dimension",
            "dimension {dim} of {buffer} is the last",
            "name the earlier of the two dimensions",
            _has_next_dimension,
            established_by=NO_MOVE,
        ),
        Requirement(
            "PD-T213",
            "lanes would no longer be neighbours in memory",
            "{access} stands in a lockstep scope that needs its dimension last",
            "reorder the dimensions before vectorising",
            _lanes_stay_neighbours,
            established_by=NO_MOVE,
        ),
    )

    def candidates(self, program: Program, dialect: Dialect) -> Iterator[Move]:
        for buffer in temporaries(program):
            for k in range(len(buffer.dimensions) - 1):
                yield Move(self.name, buffer.name, (("dim", k),))

    def analyse(self, site: Site) -> Exchange:
        return Exchange.at(site)

    def rewrite(self, facts: Exchange, /) -> Program:
        program, k, buffer = facts.site.program, facts.k, facts.buffer
        arrays = frozenset(buffer.arrays)
        body = tuple([_exchanged_in(node, arrays, k) for node in program.body])
        return program.with_buffer(buffer.name, facts.exchanged).with_body(body)


def _exchanged_in(node: Node, arrays: frozenset[str], k: int) -> Node:
    """The node with subscripts ``k`` and ``k + 1`` of the arrays exchanged."""
    if arrays.isdisjoint(node.arrays):
        return node
    if isinstance(node, Scope):
        return node.with_body(tuple([_exchanged_in(child, arrays, k) for child in node.body]))
    forms = list(node.forms)
    for array, at in node.slots:
        if array in arrays:
            forms[at + k], forms[at + k + 1] = forms[at + k + 1], forms[at + k]
    return node.alike(tuple(forms), node.id)


# -- pad_dim ---------------------------------------------------------------------------------------


@frozen
class Relocation(Facts):
    """A buffer, and the same buffer in the other location."""

    moved: Buffer

    @property
    def buffer(self) -> Buffer:
        return self.site.storage


def _moves(facts: Relocation) -> Refusal | None:
    buffer = facts.buffer
    if facts.moved.location != buffer.location:
        return None
    at = first_use(facts.site)
    return Refusal.of(at, arrays=buffer.arrays, location=buffer.location, buffer=buffer.name)


def _location_fits(facts: Relocation) -> Refusal | None:
    return refuse_unfit(facts.site, facts.moved, facts.site.program)


class SetLocation(Analysed[Relocation]):
    """Choose where a buffer lives: ``heap``, ``stack``, or a location of the target.

    before:
        t f32 [8:N,16] heap
    after: set_location(t, location=stack)
        t f32 [8:N,16] stack
    """

    name = "set_location"
    place = "buffer"
    parameters = (Parameter("location", str, "a location of the target"),)
    requirements = (
        Requirement("PD-T221", *OWNED, established_by=STAGING),
        Requirement(
            "PD-T222",
            "the buffer lives there already",
            "{buffer} is in {location}",
            "choose another location",
            _moves,
            established_by=NO_MOVE,
        ),
        Requirement(
            "PD-T223",
            "the location does not allow this use",
            "{what}",
            "contract dimensions, unroll or vectorise the scopes around its accesses first",
            _location_fits,
            established_by=(
                "reuse_dims",
                "annotate_scope",
                "split_scope",
                "stage_read",
                "stage_write",
                "stage_accumulator",
            ),
        ),
    )

    def candidates(self, program: Program, dialect: Dialect) -> Iterator[Move]:
        for buffer in temporaries(program):
            for location in dialect.locations:
                if location != buffer.location:
                    yield Move(self.name, buffer.name, (("location", location),))

    def analyse(self, site: Site) -> Relocation:
        """:class:`MoveError` where the target has no such location."""
        name, old = site.move["location"], site.storage
        if name not in site.dialect.locations:
            hint = closest(name, list(site.dialect.locations))
            what = f"{site.move.text}: unknown location {name!r}"
            why = "the target has no such place for buffers"
            raise MoveError("PD-T002", what, why=why, hint=hint)
        return Relocation(site, Buffer(old.name, old.dtype, old.dimensions, name, old.arrays))

    def rewrite(self, facts: Relocation, /) -> Program:
        return facts.site.program.with_buffer(facts.buffer.name, facts.moved)


MOVES = (ReuseDims(), ReorderDims(), SetLocation())

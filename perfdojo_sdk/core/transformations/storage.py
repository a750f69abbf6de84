"""Moves on buffers: contract a dimension, reorder and pad dimensions, choose a location."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from perfdojo_sdk.core.dependence import home_depth, leaking_level
from perfdojo_sdk.core.dialect import Dialect
from perfdojo_sdk.core.errors import MoveError, closest
from perfdojo_sdk.core.expression import Access
from perfdojo_sdk.core.program import Node, Program, Scope
from perfdojo_sdk.core.storage import Buffer, Dimension
from perfdojo_sdk.core.text import MAX_CELLS
from perfdojo_sdk.core.transformation import (
    Move,
    Parameter,
    Refusal,
    Requirement,
    Site,
    Transformation,
)
from perfdojo_sdk.core.validate import lane_stride, location_violations
from perfdojo_sdk.core.words import number_of


def temporaries(program: Program) -> Iterator[Buffer]:
    return (b for b in program.buffers if not program.interface.intersection(b.arrays))


def _not_interface(site: Site) -> Refusal | None:
    buffer = site.storage
    if not site.program.interface.intersection(buffer.arrays):
        return None
    return Refusal.of(words_only(site), buffer=buffer.name)


OWNED = (
    "the caller owns the buffer",
    "{buffer} is part of the kernel's interface",
    "stage it into a buffer of the kernel's own first",
    _not_interface,
)
_LAYOUT_AGREED = (
    "the caller owns the buffer",
    "{buffer} is part of the kernel's interface, its layout is agreed",
    "stage it into a buffer of the kernel's own first",
    _not_interface,
)


def words_only(site: Site) -> str:
    """The first statement that touches the buffer, to have a line to show."""
    occurrences = site.program.occurrences[site.storage.name]
    return occurrences[0].statement.id if occurrences else ""


def _dimension(site: Site) -> int:
    k: int = site.move["dim"]
    count = len(site.storage.dimensions)
    if not 0 <= k < count:
        what = f"{site.move.text}: {site.storage.name} has {number_of(count, 'dimensions')}"
        raise MoveError("PD-T002", what, why=f"there is none of number {k}", hint="dimensions count from 0")
    return k


# -- reuse_dims ------------------------------------------------------------------------------------


def _materialised(site: Site) -> Refusal | None:
    if site.storage.dimensions[_dimension(site)].materialised:
        return None
    return Refusal.of(words_only(site), buffer=site.storage.name, dim=site.move["dim"])


def _home(site: Site) -> int:
    occurrences = site.program.occurrences[site.storage.name]
    return home_depth(occurrences, site.dialect) if occurrences else 0


def _one_index_at_a_time(site: Site) -> Refusal | None:
    """Inside one iteration of the scopes around all accesses, only one index is in use."""
    k, home = _dimension(site), site.once(_home)
    occurrences = site.program.occurrences[site.storage.name]
    for o in occurrences:
        subscript = o.access.subscripts[k]
        if subscript != occurrences[0].access.subscripts[k] or subscript.highest >= home:
            return Refusal.of(o.statement.id, o.access.text, buffer=site.storage.name, access=o.access.text)
    return None


def _no_value_crosses(site: Site) -> Refusal | None:
    occurrences = site.program.occurrences[site.storage.name]
    if not occurrences:
        return None
    level = leaking_level(site.storage, occurrences, site.once(_home))
    if level is None:
        return None
    first = occurrences[0]
    return Refusal.of(first.statement.id, first.access.text, buffer=site.storage.name, level=f"{{{level}}}")


class ReuseDims(Transformation):
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
        Requirement("PD-T201", *OWNED),
        Requirement(
            "PD-T202",
            "the dimension is not materialised",
            "dimension {dim} of {buffer} takes no memory already",
            "choose another dimension",
            _materialised,
        ),
        Requirement(
            "PD-T203",
            "the dimension is used in more than one scope",
            "several indices of {buffer} are in use at once: {access} runs over them in a scope of its own",
            "fuse the scopes that use it with join_scopes first",
            _one_index_at_a_time,
            semantic=True,
        ),
        Requirement(
            "PD-T204",
            "a value outlives its iteration",
            "values of {buffer} may pass from one iteration of {level} to another, through other indices",
            "keep the dimension",
            _no_value_crosses,
            semantic=True,
        ),
    )

    def candidates(self, program: Program, dialect: Dialect) -> Iterator[Move]:
        for buffer in temporaries(program):
            for k in buffer.materialised:
                yield Move(self.name, buffer.name, (("dim", k),))

    def rewrite(self, site: Site) -> Program:
        k, buffer = _dimension(site), site.storage
        dims = list(buffer.dimensions)
        dims[k] = Dimension(dims[k].size, "N")
        return site.program.with_buffer(buffer.name, buffer.with_dimensions(tuple(dims)))


# -- reorder_dims ----------------------------------------------------------------------------------


def _has_next_dimension(site: Site) -> Refusal | None:
    k, count = _dimension(site), len(site.storage.dimensions)
    if k + 1 < count:
        return None
    return Refusal.of(words_only(site), buffer=site.storage.name, dim=k)


def _exchanged(site: Site) -> Buffer:
    k, dims = _dimension(site), list(site.storage.dimensions)
    dims[k], dims[k + 1] = dims[k + 1], dims[k]
    return site.storage.with_dimensions(tuple(dims))


def _exchange(access: Access, k: int) -> Access:
    s = list(access.subscripts)
    s[k], s[k + 1] = s[k + 1], s[k]
    return Access(access.array, tuple(s))


def _lanes_stay_neighbours(site: Site) -> Refusal | None:
    k, buffer = _dimension(site), _exchanged(site)
    for o in site.program.occurrences[buffer.name]:
        scope = o.above[-1:]
        if scope and site.dialect.is_lockstep(scope[0].suffix):
            access = _exchange(o.access, k)
            if lane_stride(buffer, access.subscripts, len(o.path) - 2) not in (0, 1):
                return Refusal.of(o.statement.id, o.access.text, access=o.access.text)
    return None


class ReorderDims(Transformation):
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
        Requirement("PD-T211", *_LAYOUT_AGREED, semantic=True),
        Requirement(
            "PD-T212",
            "there is no next dimension",
            "dimension {dim} of {buffer} is the last",
            "name the earlier of the two dimensions",
            _has_next_dimension,
        ),
        Requirement(
            "PD-T213",
            "lanes would no longer be neighbours in memory",
            "{access} stands in a lockstep scope that needs its dimension last",
            "reorder the dimensions before vectorising",
            _lanes_stay_neighbours,
        ),
    )

    def candidates(self, program: Program, dialect: Dialect) -> Iterator[Move]:
        for buffer in temporaries(program):
            for k in range(len(buffer.dimensions) - 1):
                yield Move(self.name, buffer.name, (("dim", k),))

    def rewrite(self, site: Site) -> Program:
        k, buffer = _dimension(site), site.storage
        arrays = frozenset(buffer.arrays)
        body = tuple([_exchanged_in(node, arrays, k) for node in site.program.body])
        return site.program.with_buffer(buffer.name, _exchanged(site)).with_body(body)


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


def _padded(site: Site) -> Buffer:
    dims, k = list(site.storage.dimensions), _dimension(site)
    dims[k] = Dimension(site.move["size"], dims[k].suffix)
    return site.storage.with_dimensions(tuple(dims))


def _grows(site: Site) -> Refusal | None:
    old = site.storage.dimensions[_dimension(site)]
    if site.move["size"] > old.size:
        return None
    words = {"buffer": site.storage.name, "dim": site.move["dim"], "old": old.size}
    return Refusal.of(words_only(site), size=site.move["size"], **words)


def _lanes_stay_near(site: Site) -> Refusal | None:
    buffer = site.once(_padded)
    for o in site.program.occurrences[buffer.name]:
        scope = o.above[-1:]
        if scope and site.dialect.is_lockstep(scope[0].suffix):
            if lane_stride(buffer, o.access.subscripts, len(o.path) - 2) not in (0, 1):
                return Refusal.of(o.statement.id, o.access.text, access=o.access.text)
    return None


def _padding_fits(site: Site) -> Refusal | None:
    program, buffer = site.program, site.once(_padded)
    if prod(buffer.shape) > MAX_CELLS:
        return Refusal.of(words_only(site), "", what=f"a buffer has at most {MAX_CELLS} elements")
    found = location_violations(program, buffer, program.occurrences[buffer.name], site.dialect)
    violation = next(found, None)
    if violation is None:
        return None
    return Refusal.of(violation.node or words_only(site), "", what=violation.what)


class PadDim(Transformation):
    """Make a dimension of a buffer longer than its use, for alignment or against cache conflicts.

    Rows of a length that is a multiple of the vectors start at aligned addresses; columns whose
    elements lie a power of two apart fall into few sets of a cache.

    before:
        t f32 [8,14] heap
        8 14 t[{0},{1}] = x[{0},{1}]
        8 14 y[{0},{1}] = t[{0},{1}]
    after: pad_dim(t, dim=1, size=16)
        t f32 [8,16] heap
        8 14 t[{0},{1}] = x[{0},{1}]
        8 14 y[{0},{1}] = t[{0},{1}]
    """

    name = "pad_dim"
    place = "buffer"
    parameters = (
        Parameter("dim", int, "position of the dimension, from 0"),
        Parameter("size", int, "its new size", counts=True),
    )
    requirements = (
        Requirement("PD-T321", *_LAYOUT_AGREED, semantic=True),
        Requirement(
            "PD-T322",
            "the dimension takes no memory",
            "dimension {dim} of {buffer} is not materialised, there is nothing to pad",
            "choose another dimension",
            _materialised,
        ),
        Requirement(
            "PD-T323",
            "the new size is not larger",
            "dimension {dim} of {buffer} has {old} elements already, {size} are asked for",
            "use a larger size; drop the earlier move from the trace to go back",
            _grows,
        ),
        Requirement(
            "PD-T324",
            "lanes would no longer be neighbours in memory",
            "{access} stands in a lockstep scope and would move by more than one cell from lane to lane",
            "pad another dimension, or pad before vectorising",
            _lanes_stay_near,
        ),
        Requirement(
            "PD-T325",
            "the padded buffer is too large",
            "{what}",
            "use a smaller size, or another location",
            _padding_fits,
        ),
    )

    def candidates(self, program: Program, dialect: Dialect) -> Iterator[Move]:
        widths = sorted({lanes for lanes in dialect.lanes.values() if lanes > 1})
        for buffer in temporaries(program):
            # Elements of the outermost dimension stay where they are, however many there are.
            for k in buffer.materialised[1:]:
                size = buffer.dimensions[k].size
                if size > 1 and _used(program, buffer, k) == size:
                    for padded in sorted({-(-size // w) * w + w * (size % w == 0) for w in widths}):
                        yield Move(self.name, buffer.name, (("dim", k), ("size", padded)))

    def rewrite(self, site: Site) -> Program:
        return site.program.with_buffer(site.storage.name, site.once(_padded))


def _used(program: Program, buffer: Buffer, k: int) -> int:
    """One more than the largest index of a dimension that is used."""
    occurrences = program.occurrences[buffer.name]
    return max((o.access.subscripts[k].bounds(o.sizes)[1] + 1 for o in occurrences), default=0)


# -- set_location ----------------------------------------------------------------------------------


def _moved(site: Site) -> Buffer:
    name, old = site.move["location"], site.storage
    if name not in site.dialect.locations:
        hint = closest(name, list(site.dialect.locations))
        what, why = f"{site.move.text}: unknown location {name!r}", "the target has no such place for buffers"
        raise MoveError("PD-T002", what, why=why, hint=hint)
    return Buffer(old.name, old.dtype, old.dimensions, name, old.arrays)


def _moves(site: Site) -> Refusal | None:
    if site.move["location"] != site.storage.location:
        return None
    return Refusal.of(words_only(site), buffer=site.storage.name, location=site.storage.location)


def _location_fits(site: Site) -> Refusal | None:
    program, buffer = site.program, site.once(_moved)
    occurrences = program.occurrences[buffer.name]
    violation = next(location_violations(program, buffer, occurrences, site.dialect), None)
    if violation is None:
        return None
    return Refusal.of(violation.node or words_only(site), "", what=violation.what)


class SetLocation(Transformation):
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
        Requirement("PD-T221", *OWNED),
        Requirement(
            "PD-T222",
            "the buffer lives there already",
            "{buffer} is in {location}",
            "choose another location",
            _moves,
        ),
        Requirement(
            "PD-T223",
            "the location does not allow this use",
            "{what}",
            "contract dimensions, unroll or vectorise the scopes around its accesses first",
            _location_fits,
        ),
    )

    def candidates(self, program: Program, dialect: Dialect) -> Iterator[Move]:
        for buffer in temporaries(program):
            for location in dialect.locations:
                if location != buffer.location:
                    yield Move(self.name, buffer.name, (("location", location),))

    def rewrite(self, site: Site) -> Program:
        return site.program.with_buffer(site.storage.name, site.once(_moved))

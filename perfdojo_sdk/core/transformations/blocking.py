"""A move that cuts a dimension of a buffer into blocks: another layout of the same elements."""

from __future__ import annotations

from collections.abc import Iterator

from perfdojo_sdk.core.dialect import Dialect
from perfdojo_sdk.core.expression import Access, Quotient
from perfdojo_sdk.core.frozen import frozen, lazy
from perfdojo_sdk.core.geometry import guarded_bounds, negative_dividends
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.core.storage import Buffer, Dimension
from perfdojo_sdk.core.transformation import (
    NO_MOVE,
    Analysed,
    Move,
    Parameter,
    Refusal,
    Requirement,
    Site,
)
from perfdojo_sdk.core.transformations.storage import (
    LAYOUT_AGREED,
    STAGING,
    BufferDimension,
    first_use,
    materialised,
    refuse_lanes_apart,
    refuse_unfit,
    temporaries,
    with_accesses,
)


@frozen
class Blocks(BufferDimension):
    """A dimension that is to become two: the number of a block, and the place in it."""

    @property
    def size(self) -> int:
        """Elements of a block."""
        size: int = self.site.move["size"]
        return size

    @lazy
    def cut(self) -> Buffer:
        """The buffer after the move."""
        dims, k = self.buffer.dimensions, self.k
        blocks = Dimension(-(-self.dimension.size // self.size))
        return self.buffer.with_dimensions((*dims[:k], blocks, Dimension(self.size), *dims[k + 1 :]))

    @lazy
    def result(self) -> Program:
        """The program after the move."""
        return with_accesses(self.site.program, self.cut, self._access)

    def _access(self, access: Access, sizes: tuple[int, ...]) -> Access:
        before, (form, *after) = access.subscripts[: self.k], access.subscripts[self.k :]
        parts = [Quotient.of(form, self.size, remainder, sizes) for remainder in (False, True)]
        return Access(access.array, (*before, *parts, *after))


def _blocks_are_parts(facts: Blocks) -> Refusal | None:
    buffer, old = facts.buffer, facts.dimension.size
    if 1 < facts.size < old:
        return None
    at = first_use(facts.site)
    return Refusal.of(at, arrays=buffer.arrays, size=facts.size, buffer=buffer.name, dim=facts.k, old=old)


def _stays_inside(facts: Blocks) -> Refusal | None:
    """No index that is divided may be negative, and both parts are shown to stay inside their dimensions
    wherever the statement's condition holds."""
    k, shape = facts.k, facts.cut.shape
    for new, old in zip(facts.result.occurrences[facts.buffer.name], facts.occurrences, strict=True):
        for divided in negative_dividends(new.statement, new.sizes):
            what = f"would divide {divided.text}, which may be below 0"
            return Refusal.of(old.statement.id, old.access, what=what)
        for subscript, size in zip(new.access.subscripts[k : k + 2], shape[k : k + 2], strict=True):
            low, high = guarded_bounds(subscript, new.statement.guard, new.sizes)
            if low < 0 or high >= size:
                what = f"would use {subscript.text}, which is not shown to stay below {size}"
                return Refusal.of(old.statement.id, old.access, what=what)
    return None


def _lanes_stay_near(facts: Blocks) -> Refusal | None:
    """Lanes go through neighbours, also where the last block of a row has room to spare."""
    made = facts.result.occurrences[facts.buffer.name]
    pairs = ((old, new.access) for old, new in zip(facts.occurrences, made, strict=True))
    return refuse_lanes_apart(facts.site, facts.cut, pairs)


def _blocks_fit(facts: Blocks) -> Refusal | None:
    return refuse_unfit(facts.site, facts.cut, facts.result)


class SplitDim(Analysed[Blocks]):
    """Cut a dimension of a buffer into blocks of ``size`` elements, which get a dimension of their own.

    Elements stay where they are; the last block may have room to spare. With ``reorder_dims``, elements that
    lie ``size`` apart become neighbours: rows whose even columns stand before the odd ones, or images with
    the channels of a block last.

    before:
        t f32 [8] heap
        8 t[{0}] = x[{0}]
        4 y[{0}] = t[{0}*2] + t[{0}*2+1]
    after: split_dim(t, dim=0, size=2)
        t f32 [4,2] heap
        8 t[{0}//2,{0}%2] = x[{0}]
        4 y[{0}] = t[{0},0] + t[{0},1]
    """

    name = "split_dim"
    place = "buffer"
    parameters = (
        Parameter("dim", int, "position of the dimension, from 0"),
        Parameter("size", int, "elements of a block"),
    )
    requirements = (
        Requirement("PD-T371", *LAYOUT_AGREED, semantic=True, established_by=STAGING),
        Requirement(
            "PD-T372",
            "the dimension takes no memory",
            "dimension {dim} of {buffer} is not materialised, there is nothing to cut",
            "choose another dimension",
            materialised,
            established_by=NO_MOVE,
        ),
        Requirement(
            "PD-T373",
            "blocks of this size are no parts",
            "dimension {dim} of {buffer} has {old} elements, blocks of {size} are asked for",
            "use a size above 1 and below that of the dimension",
            _blocks_are_parts,
            established_by=("pad_dim",),
        ),
        Requirement(
            "PD-T374",
            "the condition does not bound the parts of an index",
            "{access} {what}",
            "split the scope where the condition changes, with split_range",
            _stays_inside,
            established_by=("split_range", "drop_condition"),
        ),
        Requirement(
            "PD-T375",
            "the buffer does not fit",
            "{what}",
            "use another size, or another location",
            _blocks_fit,
            established_by=("set_location", "reuse_dims"),
        ),
        Requirement(
            "PD-T376",
            "lanes would no longer be neighbours in memory",
            "{access} stands in a lockstep scope that goes on from one row to the next",
            "cut the dimension before vectorising, or into blocks that divide it",
            _lanes_stay_near,
            established_by=NO_MOVE,
        ),
    )

    def candidates(self, program: Program, dialect: Dialect) -> Iterator[Move]:
        for buffer in temporaries(program):
            sizes = {2, dialect.lanes.get(buffer.dtype, 2)}
            for k in buffer.materialised:
                for size in sorted(sizes):
                    if 1 < size < buffer.dimensions[k].size:
                        yield Move(self.name, buffer.name, (("dim", k), ("size", size)))

    def analyse(self, site: Site) -> Blocks:
        return Blocks.at(site)

    def rewrite(self, facts: Blocks, /) -> Program:
        return facts.result


MOVES = (SplitDim(),)

"""A move that makes rows of a buffer longer; nothing uses the added cells."""

from __future__ import annotations

from collections.abc import Iterator

from perfdojo_sdk.core.dialect import Dialect
from perfdojo_sdk.core.frozen import frozen, lazy
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
)


@frozen
class Padding(BufferDimension):
    """A dimension that is to become longer than its use."""

    @property
    def size(self) -> int:
        """Its new size."""
        size: int = self.site.move["size"]
        return size

    @lazy
    def padded(self) -> Buffer:
        """The buffer after the move."""
        dims, k = list(self.buffer.dimensions), self.k
        dims[k] = Dimension(self.size, dims[k].suffix)
        return self.buffer.with_dimensions(tuple(dims))


def _grows(facts: Padding) -> Refusal | None:
    old, buffer = facts.dimension, facts.buffer
    if facts.size > old.size:
        return None
    return Refusal.of(
        first_use(facts.site),
        arrays=buffer.arrays,
        size=facts.size,
        buffer=buffer.name,
        dim=facts.k,
        old=old.size,
    )


def _lanes_stay_near(facts: Padding) -> Refusal | None:
    return refuse_lanes_apart(facts.site, facts.padded, ((o, o.access) for o in facts.occurrences))


def _padding_fits(facts: Padding) -> Refusal | None:
    return refuse_unfit(facts.site, facts.padded, facts.site.program)


class PadDim(Analysed[Padding]):
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
        Requirement("PD-T321", *LAYOUT_AGREED, semantic=True, established_by=STAGING),
        Requirement(
            "PD-T322",
            "the dimension takes no memory",
            "dimension {dim} of {buffer} is not materialised, there is nothing to pad",
            "choose another dimension",
            materialised,
            established_by=NO_MOVE,
        ),
        Requirement(
            "PD-T323",
            "the new size is not larger",
            "dimension {dim} of {buffer} has {old} elements already, {size} are asked for",
            "use a larger size; drop the earlier move from the trace to go back",
            _grows,
            established_by=NO_MOVE,
        ),
        Requirement(
            "PD-T324",
            "lanes would no longer be neighbours in memory",
            "{access} stands in a lockstep scope and would move by more than one cell from lane to lane",
            "pad another dimension, or pad before vectorising",
            _lanes_stay_near,
            established_by=NO_MOVE,
        ),
        Requirement(
            "PD-T325",
            "the padded buffer is too large",
            "{what}",
            "use a smaller size, or another location",
            _padding_fits,
            established_by=("set_location", "reuse_dims"),
        ),
    )

    def candidates(self, program: Program, dialect: Dialect) -> Iterator[Move]:
        for buffer in temporaries(program):
            widths = {dialect.lanes.get(buffer.dtype, 1)} - {1}
            # Elements of the outermost dimension stay where they are, however many there are.
            for k in buffer.materialised[1:]:
                size = buffer.dimensions[k].size
                if size > 1 and _used(program, buffer, k) == size:
                    for padded in sorted({-(-size // w) * w + w * (size % w == 0) for w in widths}):
                        yield Move(self.name, buffer.name, (("dim", k), ("size", padded)))

    def analyse(self, site: Site) -> Padding:
        return Padding.at(site)

    def rewrite(self, facts: Padding, /) -> Program:
        return facts.site.program.with_buffer(facts.buffer.name, facts.padded)


def _used(program: Program, buffer: Buffer, k: int) -> int:
    """One more than the largest index of a dimension that is used."""
    occurrences = program.occurrences[buffer.name]
    return max((o.access.subscripts[k].bounds(o.sizes)[1] + 1 for o in occurrences), default=0)


# -- set_location ----------------------------------------------------------------------------------


MOVES = (PadDim(),)

"""A move that leaves room in front of the elements of a dimension; nothing uses the added cells."""

from __future__ import annotations

from collections.abc import Iterator

from perfdojo_sdk.core.dialect import Dialect
from perfdojo_sdk.core.expression import Access, AffineExpr
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
    with_accesses,
)


@frozen
class Margin(BufferDimension):
    """A dimension whose elements are to stand further behind."""

    @property
    def by(self) -> int:
        """Number of cells in front of what was the first element."""
        by: int = self.site.move["by"]
        return by

    @lazy
    def longer(self) -> Buffer:
        """The buffer after the move."""
        dims, k = list(self.buffer.dimensions), self.k
        dims[k] = Dimension(dims[k].size + self.by, dims[k].suffix)
        return self.buffer.with_dimensions(tuple(dims))

    @lazy
    def result(self) -> Program:
        """The program after the move."""
        return with_accesses(self.site.program, self.longer, self.access)

    def access(self, access: Access, sizes: tuple[int, ...] = ()) -> Access:
        """An access of the buffer after the move."""
        forms = list(access.subscripts)
        forms[self.k] = forms[self.k].plus(AffineExpr(self.by))
        return Access(access.array, tuple(forms))


def _adds_room(facts: Margin) -> Refusal | None:
    if facts.by > 0:
        return None
    return Refusal.of(first_use(facts.site), arrays=facts.buffer.arrays, by=facts.by)


def _lanes_stay_near(facts: Margin) -> Refusal | None:
    accesses = ((o, facts.access(o.access)) for o in facts.occurrences)
    return refuse_lanes_apart(facts.site, facts.longer, accesses)


def _longer_fits(facts: Margin) -> Refusal | None:
    return refuse_unfit(facts.site, facts.longer, facts.result) if facts.by > 0 else None


class ShiftDim(Analysed[Margin]):
    """Leave room in front of the elements of a dimension of a buffer, so that vectors begin where they may.

    A row that has a border of one element in front is written and read at aligned addresses if its inside
    begins at one; vectors that cross lines of a cache take twice as long.

    before:
        t f32 [9] heap
        t[0] = 0
        8 t[{0}+1] = x[{0}]
        8 y[{0}] = t[{0}] + t[{0}+1]
    after: shift_dim(t, dim=0, by=7)
        t f32 [16] heap
        t[7] = 0
        8 t[{0}+8] = x[{0}]
        8 y[{0}] = t[{0}+7] + t[{0}+8]
    """

    name = "shift_dim"
    place = "buffer"
    parameters = (
        Parameter("dim", int, "position of the dimension, from 0"),
        Parameter("by", int, "number of cells in front of its elements"),
    )
    requirements = (
        Requirement("PD-T721", *LAYOUT_AGREED, semantic=True, established_by=STAGING),
        Requirement(
            "PD-T722",
            "the dimension takes no memory",
            "dimension {dim} of {buffer} is not materialised, there is no room in front",
            "choose another dimension",
            materialised,
            established_by=NO_MOVE,
        ),
        Requirement(
            "PD-T723",
            "no room is asked for",
            "{by} cells are none in front of the elements",
            "use a number above 0; drop the earlier move from the trace to go back",
            _adds_room,
            established_by=NO_MOVE,
        ),
        Requirement(
            "PD-T724",
            "lanes would no longer be neighbours in memory",
            "{access} stands in a lockstep scope and would move by more than one cell from lane to lane",
            "shift another dimension, or shift before vectorising",
            _lanes_stay_near,
            established_by=NO_MOVE,
        ),
        Requirement(
            "PD-T725",
            "the longer buffer does not fit",
            "{what}",
            "use a smaller number, or another location",
            _longer_fits,
            established_by=("set_location", "reuse_dims"),
        ),
    )

    def candidates(self, program: Program, dialect: Dialect) -> Iterator[Move]:
        for buffer in temporaries(program):
            width = dialect.lanes.get(buffer.dtype, 1)
            k = len(buffer.dimensions) - 1
            if width < 2 or k not in buffer.materialised:
                continue
            constants = {o.access.subscripts[k].constant % width for o in program.occurrences[buffer.name]}
            for constant in sorted(constants - {0}):
                yield Move(self.name, buffer.name, (("by", width - constant), ("dim", k)))

    def analyse(self, site: Site) -> Margin:
        return Margin.at(site)

    def rewrite(self, facts: Margin, /) -> Program:
        return facts.result


MOVES = (ShiftDim(),)

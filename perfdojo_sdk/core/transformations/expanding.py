"""Moves that expand temporaries: a dimension for the iterations of a scope, and a place for every index."""

from __future__ import annotations

from collections.abc import Iterator

from perfdojo_sdk.core.dialect import Dialect
from perfdojo_sdk.core.errors import MoveError, closest
from perfdojo_sdk.core.expression import Access, AffineExpr
from perfdojo_sdk.core.frozen import frozen, lazy
from perfdojo_sdk.core.geometry import common_depth
from perfdojo_sdk.core.program import LocatedNode, Occurrence, Program, Scope
from perfdojo_sdk.core.storage import Buffer, Dimension
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
from perfdojo_sdk.core.transformations.sharing import covered_depth
from perfdojo_sdk.core.transformations.storage import (
    LAYOUT_AGREED,
    STAGING,
    BufferDimension,
    first_use,
    one_index_at_a_time,
    refuse_unfit,
    temporaries,
    with_accesses,
)

# -- keep_dims -------------------------------------------------------------------------------------------


@frozen
class Kept(BufferDimension):
    """A dimension whose indices share one place, and the buffer in which each has its own."""

    @lazy
    def kept(self) -> Buffer:
        """The buffer after the move."""
        dims = list(self.buffer.dimensions)
        dims[self.k] = Dimension(dims[self.k].size)
        return self.buffer.with_dimensions(tuple(dims))


def _not_materialised(facts: Kept) -> Refusal | None:
    if not facts.dimension.materialised:
        return None
    buffer = facts.buffer
    return Refusal.of(first_use(facts.site), arrays=buffer.arrays, buffer=buffer.name, dim=facts.k)


def _written_before(facts: Kept) -> Refusal | None:
    """Each read has its value from the same iteration of the scopes around all accesses.

    That iteration uses a single index of the dimension (:func:`one_index_at_a_time`). So where it has filled
    the cell of the new buffer that a read takes, the last one to write that cell is the last one to write the
    shared place.
    """
    writes = [o for o in facts.occurrences if o.writes]
    for read in facts.occurrences:
        if read.writes and not read.statement.accumulate:
            continue
        if not any(_fills(facts, write, read) for write in writes):
            return Refusal.of(read.statement.id, read.access, read=read.access.text, buffer=facts.buffer.name)
    return None


def _fills(facts: Kept, write: Occurrence, read: Occurrence) -> bool:
    """True if ``write`` fills the cell of a read in the same iteration of the scopes around all accesses."""
    depth = covered_depth(facts.kept, write, read) if write.access.array == read.access.array else None
    return depth is not None and depth >= facts.home


def _fits(facts: Kept) -> Refusal | None:
    return refuse_unfit(facts.site, facts.kept, facts.site.program.with_buffer(facts.buffer.name, facts.kept))


class KeepDims(Analysed[Kept]):
    """Give every index of a dimension a place of its own: the reverse of reuse_dims (expand).

    before:
        t f32 [8:N] heap
        8
        | t[{0}] = x[{0}] * 2
        | y[{0}] = t[{0}] + 1
    after: keep_dims(t, dim=0)
        t f32 [8] heap
        8
        | t[{0}] = x[{0}] * 2
        | y[{0}] = t[{0}] + 1
    """

    name = "keep_dims"
    place = "buffer"
    parameters = (Parameter("dim", int, "position of the dimension, from 0"),)
    requirements = (
        Requirement(
            "PD-T731",
            "every index has its place already",
            "dimension {dim} of {buffer} is materialised",
            "choose a dimension with the suffix N",
            _not_materialised,
            established_by=("reuse_dims",),
        ),
        Requirement(
            "PD-T732",
            "several indices share a place within one iteration",
            "{access} runs over indices of {buffer} in a scope of its own",
            "leave the dimension as it is",
            one_index_at_a_time,
            semantic=True,
            established_by=NO_MOVE,
        ),
        Requirement(
            "PD-T733",
            "a value may come from another index",
            "{read} is not surely written in the same iteration before",
            "leave the dimension as it is",
            _written_before,
            semantic=True,
            established_by=NO_MOVE,
        ),
        Requirement(
            "PD-T734",
            "the buffer cannot be so large",
            "{what}",
            "choose a location that holds it with set_location first",
            _fits,
            established_by=("set_location",),
        ),
    )
    undo = "reuse_dims"

    def candidates(self, program: Program, dialect: Dialect) -> Iterator[Move]:
        for buffer in temporaries(program):
            for k, dimension in enumerate(buffer.dimensions):
                if not dimension.materialised:
                    yield Move(self.name, buffer.name, (("dim", k),))

    def analyse(self, site: Site) -> Kept:
        return Kept.at(site)

    def rewrite(self, facts: Kept, /) -> Program:
        return facts.site.program.with_buffer(facts.buffer.name, facts.kept)


# -- add_dim ---------------------------------------------------------------------------------------------


@frozen
class Indexed(Facts):
    """A buffer, and a scope whose iterations are to be its first index."""

    scope: LocatedNode

    @property
    def level(self) -> int:
        return len(self.scope.above)

    @lazy
    def position(self) -> int:
        """Place of the new dimension: behind those that go with scopes further out."""
        uses = self.site.program.occurrences[self.site.storage.name]
        forms = uses[0].access.subscripts if uses else ()
        return next(
            (k for k, form in enumerate(forms) if form.highest > self.level or not form.levels), len(forms)
        )

    @lazy
    def longer(self) -> Buffer:
        """The buffer after the move."""
        buffer, scope = self.site.storage, self.scope.node
        assert isinstance(scope, Scope)
        dims = list(buffer.dimensions)
        dims.insert(self.position, Dimension(scope.size, "N"))
        return buffer.with_dimensions(tuple(dims))

    @lazy
    def result(self) -> Program:
        """The program after the move."""
        return with_accesses(self.site.program, self.longer, self._access)

    def _access(self, access: Access, sizes: tuple[int, ...]) -> Access:
        subscripts = list(access.subscripts)
        subscripts.insert(self.position, AffineExpr.level(self.level))
        return Access(access.array, tuple(subscripts))


def _used_inside(facts: Indexed) -> Refusal | None:
    for o in facts.site.program.occurrences[facts.site.storage.name]:
        if facts.scope.node not in o.above:
            return Refusal.of(o.statement.id, o.access, scope=facts.scope.node.id)
    return None


def _longer_fits(facts: Indexed) -> Refusal | None:
    return refuse_unfit(facts.site, facts.longer, facts.result)


class AddDim(Analysed[Indexed]):
    """Give a temporary a dimension for the iterations of a scope. It takes no memory until keep_dims.

    before:
        t f32 [1] heap
        8
        | t[0] = x[{0}] * 2
        | y[{0}] = t[0] + 1
    after: add_dim(t, scope=s0)
        t f32 [8:N,1] heap
        8
        | t[{0},0] = x[{0}] * 2
        | y[{0}] = t[{0},0] + 1
    """

    name = "add_dim"
    place = "buffer"
    parameters = (Parameter("scope", str, "a scope around everything that uses the buffer"),)
    requirements = (
        Requirement("PD-T741", *LAYOUT_AGREED, established_by=STAGING),
        Requirement(
            "PD-T742",
            "the buffer is used outside of the scope",
            "{access} stands outside of {scope}, so that its iterator is not known there",
            "name a scope around all uses, or fuse the scopes that use it with join_scopes first",
            _used_inside,
            established_by=("join_scopes",),
        ),
        Requirement(
            "PD-T743",
            "the buffer cannot be so large",
            "{what}",
            "leave the buffer as it is",
            _longer_fits,
            established_by=("set_location",),
        ),
    )

    def candidates(self, program: Program, dialect: Dialect) -> Iterator[Move]:
        for buffer in temporaries(program):
            occurrences = program.occurrences[buffer.name]
            for level in range(common_depth([o.path for o in occurrences]) if occurrences else 0):
                if all(AffineExpr.level(level) not in o.access.subscripts for o in occurrences):
                    yield Move(self.name, buffer.name, (("scope", occurrences[0].above[level].id),))

    def analyse(self, site: Site) -> Indexed:
        """:class:`MoveError` where the program has no such scope."""
        name: str = site.move["scope"]
        place = site.program.place_of.get(name)
        if place is None or not isinstance(place.node, Scope):
            scopes = [scope.id for _, scope in site.program.scopes]
            what = f"{site.move.text}: {site.program.name} has no scope {name!r}"
            why = "`scope` names a scope of the program"
            raise MoveError("PD-T002", what, why=why, hint=closest(name, scopes))
        return Indexed(site, place)

    def rewrite(self, facts: Indexed, /) -> Program:
        return facts.result


MOVES = (KeepDims(), AddDim())

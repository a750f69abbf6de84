"""The words of one target beside the core's: suffixes, locations and limits, as frozen data.

A target's plugin extends the core's dialect; parser, checks and interpreter take it as an
argument. The core gives meaning to *kinds* (an order of iterations, a sharing of storage) and
never to a target.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal as OneOf
from typing import TypeAlias

from perfdojo_sdk.core.dtypes import BYTES
from perfdojo_sdk.core.frozen import lazy

Order: TypeAlias = OneOf["sequential", "parallel", "lockstep"]


@dataclass(frozen=True)
class Group:
    """Products that one instruction adds up in each lane: ``sum += factor * factor``, ``size`` times."""

    factors: tuple[str, str]
    """Dtypes of the elements that are multiplied, in the order in which the instruction takes them."""
    total: str
    """Dtype of the sum, to which the factors are converted."""
    size: int
    flushes: bool = False
    """True if numbers below the normal ones count as zero, which changes precision."""
    rounds_to_odd: bool = False
    """True if a sum of two numbers is rounded to the odd one of its neighbours, which changes precision."""
    tile: tuple[int, int] | None = None
    """Rows and columns of the sums of an instruction for matrices: the first factor belongs to a row, the
    second to a column. None: each sum has factors of its own, or all share one."""
    adds_apart: bool = False
    """True if the sum of a group comes in a register of its own, and is added to the lane by itself."""
    instruction: str = field(default="", compare=False)
    """Its name for readers; empty if the target does not say it."""


@dataclass(frozen=True)
class ScopeSuffix:
    """A way in which a scope's iterations are instantiated.

    ``sequential``: one after the other. ``parallel``: any interleaving must give the same result,
    and a buffer used in one iteration only belongs to that iteration. ``lockstep``: one statement,
    every iteration loads before any stores.
    """

    name: str
    order: Order
    doc: str
    unrolled: bool = False
    """Each iteration becomes its own code, so the iterator is a constant there."""
    transposes: bool = False
    """The scope and the one inside it copy rows to columns, and squares of the copy are transposed in
    registers. Only such a scope gets the suffix; if later moves make it another one, it runs as a loop."""
    groups: tuple[Group, ...] = ()
    """The scope adds up one of these groups of products. Only such a scope gets the suffix."""
    around_groups: bool = False
    """The iterations are the lanes of an instruction, each of which adds up a group: the scope inside. If
    later moves make it another nest, it is written out."""

    gathers: bool = False
    """Lockstep: what lanes read may lie anywhere, at places that run-time indices choose too; what they write
    are neighbours."""

    unit: bool = False
    """Lockstep: a unit of the machine takes the scope and those around it as they are. Cells of neighbouring
    lanes may be any distance apart; with other sizes the code is another one."""

    @property
    def known(self) -> bool:
        """True if the iterator is known where code is emitted, so that it may choose among named cells."""
        return self.unrolled or self.around_groups or self.order == "lockstep"

    def neighbours(self, writes: bool) -> bool:
        """True if lanes have to write neighbouring cells, or else to read them."""
        return not self.unit and (writes or not self.gathers)

    @property
    def most_products(self) -> int:
        """The products of the largest group, possibly more than there are lanes; 0: it adds up no groups."""
        return max([group.size for group in self.groups], default=0)


@dataclass(frozen=True)
class Location:
    """A place where a buffer's cells live."""

    name: str
    doc: str
    shared: bool = True
    """Iterations of a parallel scope can reach one instance together."""
    constant_subscripts: bool = False
    """Cells are named, not addressed: subscripts may use unrolled and lockstep iterators only."""
    copy_out_only: bool = False
    """Written, then copied to another array and nothing else (a window with its own store)."""
    fetch_ahead: bool = False
    """Filling it from memory also prefetches what the next iteration of the outermost scope will fill it
    with, which changes no value."""
    lead_bytes: int = 0
    """Copying between it and memory also prefetches the memory this many bytes further on; 0: no."""
    second_cache: bool = False
    """Prefetched lines go into the second-level cache, and not into the first."""
    past_caches: bool = False
    """Cells that are copied out of it to memory bypass the caches."""
    max_bytes: int | None = None

    @property
    def allows_all(self) -> bool:
        """True if any buffer may live here, however it is used."""
        return (
            self.shared and self.max_bytes is None and not self.constant_subscripts and not self.copy_out_only
        )


@dataclass(frozen=True)
class Dialect:
    """The language of one target."""

    suffixes: Mapping[str, ScopeSuffix]
    locations: Mapping[str, Location]
    dimension_suffixes: frozenset[str] = frozenset({"N"})
    default_location: str = "heap"
    lanes: Mapping[str, int] = field(default_factory=dict)
    """dtype -> most iterations of a lockstep scope."""
    max_unroll: int = 256
    """Most copies of one statement that unrolled scopes may make."""
    roundings: frozenset[str] = frozenset()
    """Float dtypes to which a move that changes precision may round f32; empty: there is no such move."""
    nested_parallel: bool = False
    """True if a parallel scope may stand inside another one."""

    def order(self, suffix: str) -> Order:
        return self.suffixes[suffix].order if suffix else "sequential"

    def is_parallel(self, suffix: str) -> bool:
        return bool(suffix) and self.suffixes[suffix].order == "parallel"

    def any_parallel(self, suffixes: Iterable[str]) -> bool:
        return not self.parallel.isdisjoint(suffixes)

    @lazy
    def parallel(self) -> frozenset[str]:
        """The suffixes of parallel scopes."""
        return frozenset(filter(self.is_parallel, self.suffixes))

    def is_lockstep(self, suffix: str) -> bool:
        return bool(suffix) and self.suffixes[suffix].order == "lockstep"


CORE_SUFFIXES = {
    s.name: s
    for s in (
        ScopeSuffix("u", "sequential", "unrolled: each iteration is written out", unrolled=True),
        ScopeSuffix(
            "t", "sequential", "with the scope inside: squares of a copy are transposed", transposes=True
        ),
        ScopeSuffix("p", "parallel", "iterations run on threads"),
        ScopeSuffix("v", "lockstep", "iterations are lanes of one vector instruction"),
        ScopeSuffix("a", "lockstep", "as v, and each lane reads from an address of its own", gathers=True),
        ScopeSuffix("g", "parallel", "iterations are blocks of a grid"),
        ScopeSuffix("b", "parallel", "iterations are threads of a block"),
        ScopeSuffix("w", "parallel", "iterations are threads of a warp"),
    )
}

CORE_LOCATIONS = {
    location.name: location
    for location in (
        Location("heap", "ordinary memory: the caller's arrays and the workspace"),
        Location("stack", "a small array of the function", shared=False, max_bytes=64 * 1024),
    )
}

#: The paper's language without any target, wide enough for every core program: vectors have 64 bytes.
CORE_DIALECT = Dialect(
    CORE_SUFFIXES,
    CORE_LOCATIONS,
    lanes={dtype: 64 // size for dtype, size in BYTES.items()},
    roundings=frozenset(("bf16", "tf32")),
)

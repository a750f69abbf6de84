"""Windows: values on their way between memory and registers, which are prefetched or bypass the caches.

A *window* is a small buffer at a location that determines how a value moves: a read that prefetches later
data, a write that prefetches its line for writing, or a write that bypasses the caches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from math import inf, prod

from perfdojo_sdk.core.dialect import Dialect, Location
from perfdojo_sdk.core.dtypes import BYTES
from perfdojo_sdk.core.expression import Access, Read
from perfdojo_sdk.core.geometry import common_depth
from perfdojo_sdk.core.program import Program, Scope, Statement
from perfdojo_sdk.experts.cpu.steps import data_bytes, near_caches, outermost, output_bytes
from perfdojo_sdk.hookspecs.types import Target
from perfdojo_sdk.search.play import Play

#: Outputs are negligible if they are less than this part (as a divisor) of the data.
LITTLE = 64


@dataclass(frozen=True)
class Windows:
    """The locations of windows in one plan; empty: no window."""

    once: str = ""
    """For data that a single loop reads."""
    reduced: str = ""
    """The same, if that loop writes no output."""
    again: str = ""
    """For the last of several loops that read the same data."""
    store: str = ""
    """For data that is written."""

    @property
    def asks_early(self) -> bool:
        return bool(self.once or self.again)


@dataclass(frozen=True)
class Ways:
    """A target's locations by their effect on a value that passes through; empty: there is none."""

    soon: str
    """Also prefetches the memory some bytes further on."""
    soon_second: str
    """The same, into the second-level cache."""
    next_row: str
    """Also prefetches what the next iteration of the outermost scope reads."""
    claim: str
    """For writing; also prefetches for writing the memory some bytes further on."""
    past: str
    """For writing past the caches."""


def ways_of(dialect: Dialect) -> Ways:
    """The first location with each effect, found by its properties and not by its name."""

    def first(fits: Callable[[Location], bool]) -> str:
        return next((place.name for place in dialect.locations.values() if fits(place)), "")

    def leading(place: Location) -> bool:
        return bool(place.lead_bytes) and not place.fetch_ahead and not place.past_caches

    return Ways(
        first(lambda place: leading(place) and not place.copy_out_only and not place.second_cache),
        first(lambda place: leading(place) and not place.copy_out_only and place.second_cache),
        first(lambda place: place.fetch_ahead and not place.copy_out_only),
        first(lambda place: leading(place) and place.copy_out_only),
        first(lambda place: place.past_caches and place.copy_out_only),
    )


def memory_ways(root: Program, target: Target) -> Iterator[Windows]:
    """The windows to try for rows. Data in a core's own cache needs none; larger data may gain from stores
    past the caches. If all data is in some cache, or outputs are negligible, the processor's own prefetching
    may be enough.

    Effects that no location of the target has are left out.
    """
    data, goes_out = data_bytes(root), output_bytes(root)
    caches = target.capabilities.caches.values()
    if data <= max((c.bytes for c in caches if not c.shared), default=0):
        yield Windows()
        return
    ways = ways_of(target.dialect)
    reduced = ways.soon_second or ways.soon
    yield Windows(ways.soon, reduced, ways.next_row, ways.claim)
    if data <= max((c.bytes for c in caches), default=0) or LITTLE * goes_out < data:
        yield Windows()
    elif ways.past:
        yield Windows(ways.soon, reduced, ways.next_row, ways.past)
        yield Windows(store=ways.past)


def panel_ways(root: Program, target: Target) -> Iterator[Windows]:
    """The windows to try for contractions: none; if no cache holds the data, also a prefetch of the next
    panel, and stores past the caches."""
    yield Windows()
    if data_bytes(root) > max((c.bytes for c in target.capabilities.caches.values()), default=0):
        ways = ways_of(target.dialect)
        yield Windows(again=ways.next_row, store=ways.past)


def open_windows(play: Play, target: Target, windows: Windows) -> Iterator[tuple[str, str]]:
    """Stage data that comes from memory or goes there; yields (buffer, wanted location) for each window."""
    _, second_cache = near_caches(target)
    near = second_cache // 2
    last = max((cache.bytes for cache in target.capabilities.caches.values()), default=second_cache) // 4
    for array in play.program.inputs:
        for loops in _passes(play, array):
            between = {b: bytes_between(play, array, a, b) for a, b in pairwise(loops)}
            by_rows = bool(between) and _common_depth(play, loops[0], loops[-1]) == 1
            asked_for = by_rows and max(between.values()) <= near
            for loop in loops:
                if by_rows and loop is loops[-1] and between[loop] <= last:
                    # The row comes from a cache: memory has time to bring the next row.
                    location = windows.again
                elif asked_for or between.get(loop, near + 1) <= near:
                    continue
                else:
                    location = windows.once if _goes_out(play, play.scope(loop)) else windows.reduced
                yield from _staged(play, "stage_read", loop, array, location)
    for scope in play.innermost():
        yield from _open_for_output(play, scope, windows.store)


def open_panel_windows(play: Play, target: Target, windows: Windows) -> Iterator[tuple[str, str]]:
    """The same for tiles of registers, which write each number once, and for the packing of panels.

    The rows of a tile are prefetched where they are used, again for each panel, so that the arithmetic hides
    it. The cache must have room for the next rows beside the current ones.
    """
    near = near_caches(target)[1] // 2
    for scope in play.innermost():
        statement = scope.body[-1]
        assert isinstance(statement, Statement)
        value = statement.value
        if isinstance(value, Read) and value.access.array in play.program.inputs:
            yield from _staged(play, "stage_read", scope.id, value.access.array, windows.again)
        elif statement.accumulate:
            for read in statement.reads:
                if read.array in play.program.inputs and _each_outermost(play, scope, read) <= near:
                    place = outermost(play, scope.id, read)
                    yield from _staged(play, "stage_read", place, read.array, windows.again)
        else:
            yield from _open_for_output(play, scope, windows.store)


def _each_outermost(play: Play, scope: Scope, read: Access) -> float:
    """Bytes of the array that an iteration of the outermost loop reads; infinite where all read the same."""
    loops = play.around(scope.id)
    if not loops or 0 not in read.levels:
        return inf
    return play.program.buffer_of[read.array].cells * BYTES["f32"] / loops[0].size


def _open_for_output(play: Play, scope: Scope, location: str) -> Iterator[tuple[str, str]]:
    if len(scope.body) == 1 and _goes_out(play, scope) and play.around(scope.id):
        statement = scope.body[0]
        assert isinstance(statement, Statement)
        yield from _staged(play, "stage_write", scope.id, statement.target.array, location)


def _goes_out(play: Play, scope: Scope) -> bool:
    """True if an innermost loop ends with the finished values of an output."""
    statement = scope.body[-1]
    assert isinstance(statement, Statement)
    return statement.target.array in play.program.outputs and not statement.accumulate


def _passes(play: Play, array: str) -> Iterator[list[str]]:
    """The loops that read the same part of an array, if every row has a part of its own."""
    parts: dict[tuple[int, ...], list[str]] = {}
    for scope in play.innermost():
        for child in scope.body:
            for read in child.reads if isinstance(child, Statement) else ():
                lanes = len(play.around(scope.id))
                if read.array == array and {0, lanes} <= {*read.levels} and lanes:
                    part = tuple(s.constant for s in read.subscripts)
                    if scope.id not in parts.setdefault(part, []):
                        parts[part].append(scope.id)
    yield from parts.values()


def bytes_between(play: Play, array: str, one: str, other: str) -> int:
    """Bytes of the array that are read between two loops reading the same element of it."""
    shared = play.around(one)[: _common_depth(play, one, other)]
    return play.program.buffer_of[array].cells * BYTES["f32"] // prod(s.size for s in shared)


def _common_depth(play: Play, one: str, other: str) -> int:
    return common_depth([play.program.paths[one], play.program.paths[other]])


def _staged(play: Play, move: str, place: str, array: str, location: str) -> Iterator[tuple[str, str]]:
    around = play.around(place)[-1:]
    suffix = play.rules.dialect.suffixes.get(around[0].suffix) if around else None
    if not location or (suffix and suffix.around_groups):
        return  # an instruction that adds up groups takes them from memory
    made = play.may(move, place, array=array)
    for buffer in made.buffers if made else ():
        yield buffer, location

"""The block of accumulators for a contraction: arithmetic on sizes and registers, no moves.

A register tile is ``high`` rows by ``wide`` vectors. Each step of the reduction loads ``wide``
vectors and ``high`` single values and does ``high * wide`` multiply-adds with them, so a tile near
a square loads least. Sizes are seldom multiples of it: what remains is computed in smaller tiles,
and the best tile is the one that is cheapest with its remainders.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf

#: Rows of a tile: no more than the ways of a small cache, since rows of a power-of-two length fall
#: into one set of it. With that, the operand of the rows need not be packed.
MOST_ROWS = 8

#: Independent multiply-adds that hide the latency of one: four to five cycles on two units.
IN_FLIGHT = 10

#: The same where sums wait for additions of integers alone: one cycle, on two units and more.
ADDITIONS = 2

#: Cost of a load in multiply-adds, most of which other multiply-adds hide, if there are as many.
LOAD = 0.25

#: Vectors of equal tiles have at least the lanes of the target divided by this.
MOST_IDLE = 1.25

#: Cost of a cache line from beyond the first cache, in multiply-adds.
LINE = 4.0

#: Cost of a vector of a panel that has left the first cache, in multiply-adds: it comes with its neighbours.
DEEP = 0.15

#: Cost of each further kind of tile, as a fraction of the whole: code, and another pass over b.
ANOTHER_KIND = 0.01


@dataclass(frozen=True)
class Piece:
    """A part of the columns: ``tiles`` equal tiles of ``wide`` vectors of ``width`` lanes."""

    tiles: int
    wide: int
    width: int

    @property
    def columns(self) -> int:
        return self.tiles * self.wide * self.width


@dataclass(frozen=True)
class Tiling:
    """Tiles that cover a block of rows and columns."""

    high: int
    pieces: tuple[Piece, ...]
    cost: float
    """Cost of one step of the reduction over the whole block, in multiply-adds of vectors."""


@dataclass(frozen=True)
class Lines:
    """Cache lines that the values of the rows come from, for each step of the reduction."""

    of_row: float = 0.0
    """For each row of a tile."""
    of_tile: float = 0.0
    """For a whole tile, in whose lines several rows lie."""

    def cost(self, high: int) -> float:
        return LINE * (self.of_row * high + self.of_tile)


NEAR = Lines()


def best_tiling(
    rows: int,
    columns: int,
    lanes: int,
    registers: int,
    sums: int,
    alike: bool = False,
    far: Lines = NEAR,
    short: float = 1.0,
    near: float = inf,
    in_flight: int = IN_FLIGHT,
) -> Tiling:
    """The cheapest tiling whose accumulators fit the registers; ``alike``: one that reads all panels in one
    form, if there is any.

    ``sums`` products are computed at once from the same rows. Besides the accumulators, a vector of
    each column operand and one value of the rows must find a register. ``far``: where those values come
    from. ``short``: how many times as much vectors cost that are not full. ``near``: the widest panel, in
    vectors, that stays in the first cache. ``in_flight``: as many accumulators hide the latency of one.
    """

    def fits(high: int, piece: Piece) -> bool:
        mask = piece.width < lanes  # A vector that is not full has its mask in a register.
        return (high + 1) * piece.wide * sums + mask < registers

    def tilings() -> Iterator[Tiling]:
        for high in range(1, min(rows, MOST_ROWS) + 1):
            for wide in range(1, max(2, registers)):
                covers = (cover(columns, wide, lanes), evenly(columns, wide, lanes))
                for pieces in dict.fromkeys(filter(None, covers)):
                    if high == wide == 1 or all(fits(high, p) for p in pieces):
                        times = [short if p.width < lanes else 1.0 for p in pieces]
                        yield Tiling(
                            high, pieces, _cost(rows, high, pieces, times, sums, far, near, in_flight)
                        )

    found = list(tilings())
    of_one_kind = [t for t in found if _read_alike(t, rows)] if alike else []
    return min(of_one_kind or found, key=lambda t: (t.cost, -t.high))


def _read_alike(tiling: Tiling, rows: int) -> bool:
    """True if one copy of all panels serves all tiles: panels are equal, and tiles as well where each kind of
    tile would have the only panel copied for itself."""
    return len(tiling.pieces) == 1 and (tiling.pieces[0].tiles > 1 or rows % tiling.high == 0)


def cover(columns: int, wide: int, lanes: int) -> tuple[Piece, ...]:
    """Tiles of ``wide`` full vectors; the remainder as equal vectors, or as full ones and a short one."""
    tiles, rest = divmod(columns, wide * lanes)
    found = [Piece(tiles, wide, lanes)] if tiles else []
    while rest:
        least = -(-rest // lanes)
        even = next((count for count in range(least, wide + 1) if rest % count == 0), None)
        piece = Piece(1, even, rest // even) if even else Piece(1, least - 1, lanes)
        found.append(piece)
        rest -= piece.columns
    return tuple(found)


def evenly(columns: int, wide: int, lanes: int) -> tuple[Piece, ...]:
    """Equal tiles of ``wide`` equal vectors that leave no remainder, with the most lanes; () if there are
    none of nearly as many lanes as the target has."""
    tiles = -(-columns // (wide * lanes))
    width, rest = divmod(columns, tiles * wide)
    return () if rest or MOST_IDLE * width < lanes else (Piece(tiles, wide, width),)


def _cost(
    rows: int,
    high: int,
    pieces: Sequence[Piece],
    factors: Sequence[float],
    sums: int,
    far: Lines,
    near: float,
    in_flight: int,
) -> float:
    """``factors``: of the cost of each piece."""
    full, rest = divmod(rows, high)
    kinds = len(pieces) * (2 if rest else 1)

    def steps(piece: Piece) -> float:
        deep = DEEP * piece.wide * sums if piece.wide * sums > near else 0.0
        cost = full * (_step(high, piece.wide, sums, far, in_flight) + deep)
        return cost + (_step(rest, piece.wide, sums, far, in_flight) + deep if rest else 0)

    return (1 + ANOTHER_KIND * (kinds - 1)) * sum(
        times * piece.tiles * steps(piece) for piece, times in zip(pieces, factors, strict=True)
    )


def _step(high: int, wide: int, sums: int, far: Lines, in_flight: int) -> float:
    loads = high + wide * sums
    return max(high * wide * sums, loads, in_flight) + LOAD * loads + far.cost(high)

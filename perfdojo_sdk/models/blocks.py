"""The blocks that a call of a model with free rows consists of: kernels exist for a few numbers of rows.

Rows that are left over after the last whole block are composed of smaller ones, or run in a larger block on
rows that are there for nothing else, whichever takes less time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

#: Numbers of rows for which kernels are built, unless the user names others.
SIZES = (1, 4, 16, 64)
#: Most rows of a block.
MOST = 4096


class Block(NamedTuple):
    """One step of a call."""

    first: int
    """Its first row."""
    rows: int
    """Rows that it computes."""
    size: int
    """Rows of its kernels; more than ``rows`` if the last row is repeated."""


def choices(seconds: Mapping[int, float]) -> tuple[int, ...]:
    """For each number of rows that are left, up to those of the largest block, the block to run next; at
    place 0 the one for more rows: that with the least time for a row.

    ``seconds``: rows of each block -> its time.
    """
    sizes = sorted(seconds)
    best = min(sizes, key=lambda size: (seconds[size] / size, -size))
    found, cost = [best], [0.0]
    for left in range(1, sizes[-1] + 1):
        after = {size: seconds[size] + cost[max(left - size, 0)] for size in sizes}
        # Of equal times the one that computes nothing for nothing, and then the larger one.
        size = min(sizes, key=lambda size: (after[size], max(size - left, 0), -size))
        found.append(size)
        cost.append(after[size])
    return tuple(found)


def blocks_of(rows: int, table: Sequence[int]) -> Iterator[Block]:
    """The blocks of a call, by the table that :func:`choices` returns."""
    done = 0
    while done < rows:
        left = rows - done
        size = table[left if left < len(table) else 0]
        yield Block(done, min(left, size), size)
        done += min(left, size)

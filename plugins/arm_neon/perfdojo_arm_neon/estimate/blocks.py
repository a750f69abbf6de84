"""The cost of counted instructions: basic blocks, each at its steady-state throughput.

A block runs as fast as its tightest limit allows: the width of the front end, the ports that its
instructions share, or the longest dependence chain from one run of the block to the next. The model assumes
that data are in the L1 cache, that branches are predicted, and that queues never fill. (Such limits are
those of OSACA: Laukemann et al., "Automated Instruction Stream Throughput Prediction", 2018.)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perfdojo_arm_neon.emulator.elf import SharedObject
from perfdojo_arm_neon.estimate.costs import PORTS, WIDTH, WITHIN, Instruction
from perfdojo_arm_neon.estimate.dry_run import Counts
from perfdojo_arm_neon.estimate.instructions import decode

#: Runs of a block in a row until its dependence chains are in a steady state.
_ROUNDS = 8


@dataclass(frozen=True)
class Block:
    """Straight-line code, and the number of times that it ran."""

    address: int
    instructions: tuple[Instruction, ...]
    times: int

    @property
    def limit(self) -> tuple[str, float]:
        """The name of the tightest limit, and the cycles of one run under it."""
        return max(limits(self.instructions).items(), key=lambda item: item[1])

    @property
    def cycles(self) -> float:
        return self.limit[1]


@dataclass(frozen=True)
class Price:
    """The cost of one thread: cycles by limit, and numbers of instructions."""

    cycles_by_limit: Mapping[str, float]
    instructions: int
    vector_instructions: int

    @property
    def cycles(self) -> float:
        return sum(self.cycles_by_limit.values())


def price(loaded: SharedObject, counts: Counts) -> Price:
    by_limit: dict[str, float] = defaultdict(float)
    instructions = vectors = 0
    for block in blocks(loaded, counts):
        name, cycles = block.limit
        by_limit[name] += cycles * block.times
        instructions += len(block.instructions) * block.times
        vectors += sum(i.vector for i in block.instructions) * block.times
    return Price(dict(by_limit), instructions, vectors)


def blocks(loaded: SharedObject, counts: Counts) -> Iterator[Block]:
    """The executed basic blocks: they end where a branch leaves, where one arrives, and where counts
    change."""
    words = np.frombuffer(loaded.image, np.uint32)
    ran = np.flatnonzero(counts)
    arrivals = {4 * int(k) + offset for k in ran if (offset := decode(int(words[k])).branch)}
    block: list[int] = []
    for k in map(int, ran):
        new = block and (
            k != block[-1] + 1
            or counts[k] != counts[block[-1]]
            or 4 * k in arrivals
            or decode(int(words[block[-1]])).branch is not None
        )
        if new:
            yield _block(words, counts, block)
            block = []
        block.append(k)
    if block:
        yield _block(words, counts, block)


def _block(words: NDArray[np.uint32], counts: Counts, where: Sequence[int]) -> Block:
    return Block(4 * where[0], tuple(decode(int(words[k])) for k in where), int(counts[where[0]]))


def limits(block: Sequence[Instruction]) -> dict[str, float]:
    """Limit -> cycles of one run of a block that repeats."""
    taken: dict[str, float] = defaultdict(float)
    operations = 0
    for instruction in block:
        operations += max(len(instruction.ports), 1)
        for port, cycles in instruction.ports:
            name: str | None = port
            while name:
                taken[name] += cycles
                name = WITHIN.get(name)
    found = {port: cycles / PORTS[port] for port, cycles in taken.items()}
    return {**found, "width": operations / WIDTH, "chain": _chain(block)}


def _chain(block: Sequence[Instruction]) -> float:
    """Cycles by which each further run of the block delays its last result: the loop-carried dependence
    chain."""
    ready: dict[int, float] = {}
    ends = []
    for _ in range(_ROUNDS):
        for instruction in block:
            start = max((ready.get(r, 0.0) for r in instruction.reads), default=0.0)
            if instruction.accumulator is not None:
                # The sum is needed two cycles after the factors.
                start = max(start, ready.get(instruction.accumulator, 0.0) - 2)
            for register in instruction.writes:
                ready[register] = start + instruction.latency
            if instruction.updated is not None:
                ready[instruction.updated] = ready.get(instruction.updated, 0.0) + 1
        ends.append(max(ready.values(), default=0.0))
    half = _ROUNDS // 2
    return (ends[-1] - ends[half - 1]) / (_ROUNDS - half)

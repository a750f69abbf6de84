"""The order of instructions that the sequencer repeats.

Instructions that are the same in all iterations are moved before the body, and an instruction that needs
another's result comes late enough not to wait. A repeated body has only FP instructions on registers, so only
registers impose an order. Every use of a stream register moves the stream, so these uses keep their order;
nor does a stream write overtake a stream read, which may be of the same cell.
"""

from __future__ import annotations

from collections.abc import Sequence

from perfdojo_riscv_snitch.codegen.assembly import Instruction, Line, Register

#: (part of an instruction's name, cycles until a dependent one can start).
_SHORT = (("min", 2), ("max", 2), ("sgnj", 2), ("mv", 2), ("cpk", 2), ("fcvt", 3))
_LONG = 4


def hoisted(body: Sequence[Line]) -> tuple[list[Line], list[Line]]:
    """Loop-invariant code motion: the lines to place once before a repeated body, and the remaining body."""
    before: list[Line] = []
    rest = list(body)
    while True:
        writers: dict[Register, int] = {}
        for line in rest:
            for register in line.writes if isinstance(line, Instruction) else ():
                writers[register] = writers.get(register, 0) + 1
        seen: set[Register] = set()
        for k, line in enumerate(rest):
            if not isinstance(line, Instruction):
                continue
            fixed = any(r.fixed for r in line.operands)
            alone = all(writers[r] == 1 and r not in seen for r in line.writes)
            last = sum(isinstance(each, Instruction) for each in rest) == 1
            if alone and not (last or fixed) and not any(r in writers for r in line.reads):
                before.append(rest.pop(k))
                break
            seen.update(line.reads)
        else:
            return before, rest


def scheduled(body: Sequence[Line]) -> list[Line]:
    """The body in an order with fewer stalls, marks first; unchanged if there is no better order."""
    work = [line for line in body if isinstance(line, Instruction)]
    after = _dependences(work)
    order = _order(work, after)
    if _length(range(len(work)), after) <= _length(order, after):
        return list(body)
    return [*(line for line in body if not isinstance(line, Instruction)), *(work[k] for k in order)]


def latency(line: Instruction) -> int:
    """Cycles until an instruction that needs the result can start."""
    name = line.text.rpartition("# ")[2]
    return next((cycles for word, cycles in _SHORT if word in name.partition(" ")[0]), _LONG)


def _dependences(work: Sequence[Instruction]) -> list[dict[int, int]]:
    """The dependences of each instruction: index of an earlier one -> minimal cycles between the two."""
    found: list[dict[int, int]] = []
    for k, line in enumerate(work):
        mine: dict[int, int] = {}
        for j, earlier in enumerate(work[:k]):
            if any(r in earlier.writes and not r.fixed for r in (*line.reads, *line.writes)):
                mine[j] = latency(earlier)
                continue
            shared = any(r in line.writes or r.fixed for r in earlier.operands if r in line.operands)
            overtakes = any(r.fixed for r in line.writes) and any(r.fixed for r in earlier.reads)
            if shared or overtakes:
                mine[j] = 1
        found.append(mine)
    return found


def _order(work: Sequence[Instruction], after: Sequence[dict[int, int]]) -> list[int]:
    """An order by list scheduling: next is the instruction that can start first, in ties the one written
    first."""
    starts: dict[int, int] = {}
    time = 0
    while len(starts) < len(work):
        free = [k for k in range(len(work)) if k not in starts and all(j in starts for j in after[k])]
        ready = {k: max((starts[j] + gap for j, gap in after[k].items()), default=0) for k in free}
        chosen = min(free, key=lambda k: (max(ready[k], time), k))
        starts[chosen] = max(ready[chosen], time)
        time = starts[chosen] + 1
    return list(starts)


def _length(order: Sequence[int], after: Sequence[dict[int, int]]) -> int:
    """Cycles until the last instruction starts."""
    starts: dict[int, int] = {}
    time = -1
    for k in order:
        time = max([time + 1, *(starts[j] + gap for j, gap in after[k].items())])
        starts[k] = time
    return time

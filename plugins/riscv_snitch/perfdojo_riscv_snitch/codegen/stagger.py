"""Staggered repetition: copies of a body with consecutive registers, of which the sequencer holds only one.

The hardware adds a counter to chosen register fields of every instruction of a repeated body: 0 in its first
iteration, 1 in the next, and again 0 after a largest number. So a body that is unrolled for several
accumulators is stored for one of them only, if their registers are consecutive. The code stays unrolled for
all other passes, and is folded last; :mod:`.allocate` then finds consecutive registers.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from perfdojo_riscv_snitch.codegen.assembly import Instruction, Line, Mark, Register

#: Most copies: the counter has three bits.
MOST = 8

#: Instructions that name a register in two fields of their encoding.
_TWICE = ("fmv.", "fneg.", "fabs.")
_OPERAND = re.compile(r"\{(\d)\}")


@dataclass(frozen=True)
class Folded:
    """A body that stands for all of its copies."""

    body: tuple[Instruction, ...]
    """The first copy; its first instruction reads the registers of all copies, so that they are kept."""
    copies: int
    mask: int
    """Fields to which the counter is added: 1 rd, 2 rs1, 4 rs2, 8 rs3."""
    together: tuple[tuple[Register, ...], ...]
    """Groups of registers that have to be consecutive."""


def folded(work: Sequence[Instruction]) -> Folded | None:
    """The body as the most copies possible; None if it does not consist of copies."""
    counts = (count for count in range(min(MOST, len(work)), 1, -1) if len(work) % count == 0)
    return next((found for count in counts if (found := _folded(work, count))), None)


def _folded(work: Sequence[Instruction], count: int) -> Folded | None:
    length = len(work) // count
    rows: dict[Register, tuple[Register, ...]] = {}
    """Register -> those of its operand in all copies."""
    moving, staying = set[int](), set[int]()
    """Fields of registers that are staggered, and of those that stay the same."""
    for same in (work[k::length] for k in range(length)):
        fields = _fields(same[0])
        if fields is None or any(line.text != same[0].text for line in same):
            return None
        for at in range(len(same[0].operands)):
            row = tuple(line.operands[at] for line in same)
            if len(set(row)) not in (1, count) or any(rows.setdefault(r, row) != row for r in row):
                return None
        for field, operand in enumerate(fields):
            goes_on = operand is not None and len(set(rows[same[0].operands[operand]])) > 1
            (moving if goes_on else staying).add(field)
    together = tuple(row for row in dict.fromkeys(rows.values()) if len(set(row)) > 1)
    if not together or moving & staying or any(r.fixed for row in together for r in row):
        return None
    first, *rest = work[:length]
    others = tuple(r for row in together for r in row if r not in first.operands)
    body = (replace(first, reads=(*first.reads, *others)), *rest)
    return Folded(body, count, sum(1 << field for field in moving), together)


def _fields(line: Instruction) -> tuple[int | None, ...] | None:
    """Numbers of the operands in the fields rd, rs1, rs2 and rs3; None for a field without an operand.

    None for the whole line if an operand has no field, unless it is the one that is written.
    """
    name, _, rest = line.text.partition("#")[0].strip().partition(" ")
    if name.startswith(_TWICE):
        return None
    words = [word.strip() for word in rest.split(",")][3 if name == ".insn" else 0 :]
    found = [int(m[1]) if (m := _OPERAND.fullmatch(word)) else None for word in (*words, *[""] * 4)][:4]
    silent = (r for at, r in enumerate(line.operands) if at not in found)
    return tuple(found) if all(r in line.writes for r in silent) else None


def rolled(lines: Sequence[Line]) -> list[Line]:
    """The listing with the bodies of staggered repetitions folded."""
    found = list(lines)
    for begin in reversed([k for k, line in enumerate(found) if isinstance(line, Mark) and line.copies > 1]):
        mark, head = found[begin], found[begin - 1]
        assert isinstance(mark, Mark) and isinstance(head, Instruction)
        end = next(k for k in range(begin, len(found)) if _ends(found[k]))
        inside = found[begin + 1 : end]
        one = folded([line for line in inside if isinstance(line, Instruction)])
        assert one is not None and one.copies == mark.copies, "as when the scope was emitted"
        comments = list(dict.fromkeys(line for line in inside if isinstance(line, Mark)))
        (count,) = head.reads
        begins = replace(mark, together=one.together)
        found[begin - 1 : end] = [_head(count, one), begins, *comments, *one.body]
        number = Instruction(f"li {{0}}, {mark.times * one.copies - 1}", (count,))
        found = [number if _writes(line, count) else line for line in found]
    return found


def _writes(line: Line, register: Register) -> bool:
    return isinstance(line, Instruction) and line.writes == (register,)


def _ends(line: Line) -> bool:
    return isinstance(line, Mark) and line.ends_loop


def _head(count: Register, one: Folded) -> Instruction:
    words = f"{len(one.body)}, {one.copies - 1}, {one.mask}"
    bits = f".insn i 0x0b, {one.copies - 1}, x{2 * one.mask + 1}, {{0}}, {len(one.body) - 1}"
    return Instruction(f"{bits} # frep.o {{0}}, {words}", (), (count,))

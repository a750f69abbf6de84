"""Reuse of packed pairs: in code without branches, each pair is loaded and packed once.

Windows that overlap read the same numbers. If a pair was packed from the same two places of memory, and
nothing was stored or moved since then, its register is read again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeAlias

from perfdojo_riscv_snitch.codegen.assembly import Instruction, Line, Mark, Register
from perfdojo_riscv_snitch.codegen.pairs import JOIN

#: Instruction and address of a load: these words, and a register.
Place: TypeAlias = tuple[str, Register]


def packed_once(lines: Sequence[Line]) -> list[Line]:
    """``lines`` without instructions that pack a pair again."""
    if not any(isinstance(line, Instruction) and line.text == JOIN for line in lines):
        return list(lines)
    writes = Counter(r for line in lines if isinstance(line, Instruction) for r in line.writes)
    known = dict[tuple[Place, Place], Register]()
    loaded = dict[Register, Place]()
    instead = dict[Register, Register]()
    kept: list[Line] = []
    for line in lines:
        if isinstance(line, Mark):
            if line.begins_loop or line.ends_loop or line.text.endswith(":"):
                known.clear()
                loaded.clear()
            kept.append(line)
            continue
        line = replace(line, reads=tuple([instead.get(r, r) for r in line.reads]))
        name = line.text.partition(" ")[0]
        once = all(writes[r] == 1 and not r.fixed for r in line.writes)
        if name == "flw" and once:
            loaded[line.writes[0]] = (line.text, line.reads[0])
        elif line.text == JOIN and once and all(r in loaded for r in line.reads):
            places = (loaded[line.reads[0]], loaded[line.reads[1]])
            if places in known:
                instead[line.writes[0]] = known[places]
                continue
            known[places] = line.writes[0]
        elif _may_store(line):
            known.clear()
            loaded.clear()
        else:
            changed = {r for r in line.writes if r.kind == "x"}
            loaded = {r: place for r, place in loaded.items() if place[1] not in changed}
            known = {places: r for places, r in known.items() if changed.isdisjoint(p[1] for p in places)}
        kept.append(line)
    read = {r for line in kept if isinstance(line, Instruction) for r in line.reads}
    return [line for line in kept if not _unread_load(line, read)] if instead else kept


def _may_store(line: Instruction) -> bool:
    """True if the instruction may change memory: stores, calls, and the instructions that start movers."""
    return not line.writes or line.text.startswith(("jal", ".insn i"))


def _unread_load(line: Line, read: set[Register]) -> bool:
    return isinstance(line, Instruction) and line.text.startswith("flw ") and read.isdisjoint(line.writes)

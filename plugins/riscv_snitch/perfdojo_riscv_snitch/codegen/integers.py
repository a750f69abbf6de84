"""One register for each whole number that a kernel needs more than once.

The integer core issues one instruction a cycle, and its work before the first FP instruction is not hidden.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from perfdojo_riscv_snitch.codegen.assembly import Instruction, Line, Mark, Register

#: Most numbers that are shared; with more, the kernel's other integer values need the registers.
MOST = 20


def shared(lines: Sequence[Line]) -> list[Line]:
    """``lines`` without loads of numbers that a register holds already, from outside of all loops."""
    written: dict[Register, int] = {}
    for line in lines:
        for register in line.writes if isinstance(line, Instruction) else ():
            written[register] = written.get(register, 0) + (register.kind == "x")
    if sum(map(bool, written.values())) > MOST or any(_is_label(line) for line in lines):
        return list(lines)
    found: list[Line] = []
    first: dict[str, Register] = {}
    same: dict[Register, Register] = {}
    depth = 0
    for line in lines:
        if isinstance(line, Mark):
            depth += line.begins_loop - line.ends_loop
        elif _loads_number(line) and written[line.writes[0]] == 1:
            if line.text in first:
                same[line.writes[0]] = first[line.text]
                continue
            if not depth:
                first[line.text] = line.writes[0]
        else:
            line = replace(line, reads=tuple(same.get(r, r) for r in line.reads))
        found.append(line)
    return found


def _loads_number(line: Instruction) -> bool:
    number = line.text.removeprefix("li {0}, ").lstrip("-")
    return number.isdigit() and not line.writes[0].fixed


def _is_label(line: Line) -> bool:
    return isinstance(line, Mark) and line.text.endswith(":") and not line.begins_loop

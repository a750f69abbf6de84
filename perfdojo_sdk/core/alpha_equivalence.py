"""A key under which programs that differ only in the names of their local arrays are equal.

Staging an array and removing the copy again leads back to the same program. Staging it once more gives the
copy a new name. A search that compares texts would take every program after that for a new one, and go round
in circles for ever; a search that compares these keys notices the repetition.
"""

from __future__ import annotations

import re

from perfdojo_sdk.core.program import Program

#: An array in the body of a program: nothing else stands before a bracket.
_ACCESS = re.compile(r"[A-Za-z_]\w*(?=\[)")


def alpha_equivalence_key(program: Program) -> str:
    """The program's text with its local arrays numbered in the order in which the body uses them.

    Two programs have the same key if and only if renaming local arrays and reordering declarations turns one
    into the other.
    """
    numbers: dict[str, str] = {}
    kept = {*program.inputs, *program.outputs}

    def number(match: re.Match[str]) -> str:
        name = match.group()
        return name if name in kept else numbers.setdefault(name, f"%{len(numbers)}")

    body = _ACCESS.sub(number, program.tree_lines)
    return "\n".join([program.header, *sorted(_declared(program, numbers)), "", body])


def _declared(program: Program, numbers: dict[str, str]) -> list[str]:
    """Each buffer's declaration with its arrays numbered, without the buffer's own name."""
    found = []
    for buffer in program.buffers:
        arrays = sorted(numbers.get(name, name) for name in buffer.arrays)
        kind = buffer.text.partition(" ")[2].partition(" -> ")[0]
        found.append(f"{' '.join(arrays)} {kind}")
    return found

"""Programs that differ only in what they call their local arrays.

A move that stages an array and one that takes the copy away again lead back to where a game was. If the
copy is made once more it has another name, and so has every program after it: to a search that goes by texts
all of them are new, and it goes round in circles without an end.
"""

from __future__ import annotations

import re

from perfdojo_sdk.core.program import Program

#: An array in the body of a program: nothing else stands before a bracket.
_ACCESS = re.compile(r"[A-Za-z_]\w*(?=\[)")


def likeness(program: Program) -> str:
    """The program's text with its local arrays numbered as the body comes to them.

    Equal for programs that can be renamed into each other, whatever the order of their declarations; of no
    others.
    """
    numbers: dict[str, str] = {}
    kept = {*program.inputs, *program.outputs}

    def number(match: re.Match[str]) -> str:
        name = match.group()
        return name if name in kept else numbers.setdefault(name, f"%{len(numbers)}")

    body = _ACCESS.sub(number, program.tree_lines)
    return "\n".join([program.header, *sorted(_declared(program, numbers)), "", body])


def _declared(program: Program, numbers: dict[str, str]) -> list[str]:
    """The declarations under the numbers of their arrays. What a buffer of several is called says nothing."""
    found = []
    for buffer in program.buffers:
        arrays = sorted(numbers.get(name, name) for name in buffer.arrays)
        kind = buffer.text.partition(" ")[2].partition(" -> ")[0]
        found.append(f"{' '.join(arrays)} {kind}")
    return found

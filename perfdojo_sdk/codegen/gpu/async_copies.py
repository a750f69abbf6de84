"""Asynchronous copies from memory into shared memory, which run while the threads do something else.

The location ``async`` is shared memory that is filled by such copies. A copy is complete when its thread has
waited and a barrier has passed. So it may be asynchronous only if nothing else in the same thread's nest uses
the buffer or writes what it copies: all that comes behind a barrier, and the emitter waits in front of each
barrier. Neighbours
move 16 bytes at a time where they can; what is shorter than a word moves only so, and else by plain stores.
"""

from __future__ import annotations

from collections.abc import Mapping

from perfdojo_sdk.codegen.gpu.mapping import ProgramMap
from perfdojo_sdk.codegen.gpu.placement import ASYNC, Placed
from perfdojo_sdk.core.expression import Read
from perfdojo_sdk.core.program import Occurrence

#: dtype -> neighbours that are 16 bytes.
WIDTHS = {"f32": 4, "bf16": 8, "f16": 8, "i8": 16, "u8": 16}
#: dtypes of which one cell can be copied.
WORDS = frozenset({"f32"})


def async_copies(mapped: ProgramMap, placed: Mapping[str, Placed]) -> frozenset[str]:
    """Ids of the statements that copy asynchronously."""
    found = set()
    for name, place in placed.items():
        if place.buffer.location == ASYNC and place.kind == "shared" and place.buffer.dtype in WIDTHS:
            uses = mapped.program.occurrences[name]
            found |= {use.statement.id for use in uses if use.writes and _copies(placed, mapped, use, uses)}
    return frozenset(found)


def _copies(
    placed: Mapping[str, Placed], mapped: ProgramMap, use: Occurrence, uses: tuple[Occurrence, ...]
) -> bool:
    """True if the statement is a plain copy from memory, alone with the buffer in its threads' nest."""
    statement = use.statement
    if statement.accumulate or not isinstance(statement.value, Read):
        return False
    source = placed[mapped.program.buffer_of[statement.value.access.array].name]
    if source.buffer.dtype != statement.dtype or source.buffer.packed:
        return False
    roles = [mapped.role.get(use.path[: k + 1]) for k in range(len(use.path) - 1)]
    if source.kind not in ("array", "memory") or "threads" not in roles or "warps" in roles:
        return False
    nest = use.path[: roles.index("threads") + 1]
    written = [other for other in mapped.program.occurrences[source.buffer.name] if other.writes]
    return sum(other.path[: len(nest)] == nest for other in (*uses, *written)) == 1

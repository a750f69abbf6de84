"""Substitution of definitions: what a temporary is computed from, in the place where it is read.

Every operation keeps its operands, its dtype and its order, so not one bit of a result changes. Only
temporaries of which each element is written once and read by one statement, once for each element, are
substituted: nothing is computed twice, but for a cheap value that one statement reads several times.
"""

from __future__ import annotations

from collections.abc import Sequence

from perfdojo_sdk.core.expression import Access, Expression, Read, map_expression, operations
from perfdojo_sdk.core.program import Occurrence, Program, Statement
from perfdojo_sdk.core.subscripts import LEVELS

#: Most elements that a statement reads once definitions have been put in.
MOST_READS = 12
#: Most operations of a value that a statement may compute for each time that it reads it.
CHEAP = 1


def with_definitions(program: Program) -> Program:
    """The program without the temporaries whose definitions can stand in their places."""
    while True:
        found = next(filter(None, (_definition(program, b.name) for b in program.buffers)), None)
        if found is None:
            return program
        program = _substituted(program, *found)


def in_order(program: Program, access: Access, sizes: Sequence[int]) -> int | None:
    """The number of outermost loops whose iterators, in their order and over whole dimensions, are the
    subscripts of an access; dimensions of one element count for nothing. None if it has other subscripts."""
    shape = program.buffer_of[access.array].shape
    long = [(form, size) for form, size in zip(access.subscripts, shape, strict=True) if size > 1]
    right = all(
        form == LEVELS[level] and level < len(sizes) and sizes[level] == size
        for level, (form, size) in enumerate(long)
    )
    return len(long) if right else None


def _definition(program: Program, array: str) -> tuple[Occurrence, Statement] | None:
    """The write of a temporary and the statement that reads it, if its definition can stand there."""
    if array in program.interface or program.buffer_of[array].arrays != (array,):
        return None
    occurrences = program.occurrences[array]
    writes = [o for o in occurrences if o.writes]
    readers = {o.statement.id: o.statement for o in occurrences if not o.writes}
    if len(writes) != 1 or len(readers) != 1:
        return None
    write, (reader,) = writes[0], readers.values()
    one_each = all(in_order(program, o.access, o.sizes) == len(o.sizes) for o in occurrences)
    alone = len(program.body[write.path[0]].leaves) == 1
    later = all(write.path[0] < o.path[0] for o in occurrences if not o.writes)
    plain = write.statement.accumulate is None and not write.statement.guard
    reads = [o for o in occurrences if not o.writes]
    cheap = len(reads) == 1 or sum(1 for _ in operations(write.statement.value)) <= CHEAP
    size = len(reader.reads) + len(reads) * len(write.statement.reads)
    if not (one_each and alone and later and plain and cheap and size <= MOST_READS):
        return None
    if write.statement.lookups or reader.lookups or not _unchanged(program, write, reads[0]):
        return None
    return write, reader


def _unchanged(program: Program, write: Occurrence, read: Occurrence) -> bool:
    """True if nothing that the definition reads is written between the two nests."""
    between = program.body[write.path[0] + 1 : read.path[0] + 1]
    written = {leaf.statement.target.array for node in between for leaf in node.leaves}
    return written.isdisjoint(access.array for access in write.statement.reads)


def _substituted(program: Program, write: Occurrence, reader: Statement) -> Program:
    array, definition = write.access.array, write.statement.value

    def value(e: Expression) -> Expression:
        return definition if isinstance(e, Read) and e.access.array == array else e

    new = reader.with_parts(reader.target, map_expression(reader.value, value))
    made = program.replaced(program.paths[reader.id], (new,))
    body = tuple(node for k, node in enumerate(made.body) if k != write.path[0])
    buffers = tuple(b for b in made.buffers if b.name != array)
    return Program(made.name, made.inputs, made.outputs, buffers, body)

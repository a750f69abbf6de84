"""Substitution of definitions: what a temporary is computed from, in the place where it is read.

Every operation keeps its operands, its dtype and its order, so not one bit of a result changes. Only
temporaries are substituted of which each element is written once and read by one statement, once for each
element, in any order: nothing is computed twice, but for a cheap value that a statement reads several times.
"""

from __future__ import annotations

from collections.abc import Sequence

from perfdojo_sdk.core.expression import Access, Expression, IndexValue, Read, map_expression, operations
from perfdojo_sdk.core.program import Occurrence, Program, Statement
from perfdojo_sdk.core.subscripts import LEVELS, AffineExpr

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
    long = _long(program, access)
    right = all(
        form == LEVELS[level] and level < len(sizes) and sizes[level] == size
        for level, (form, size) in enumerate(long)
    )
    return len(long) if right else None


def _long(program: Program, access: Access) -> list[tuple[AffineExpr, int]]:
    """The subscripts and sizes of the dimensions of more than one element."""
    shape = program.buffer_of[access.array].shape
    return [(form, size) for form, size in zip(access.subscripts, shape, strict=True) if size > 1]


def _once_each(program: Program, occurrence: Occurrence) -> bool:
    """True if an access meets each element of its array exactly once, in some order."""
    levels = [(LEVELS[k], size) for k, size in enumerate(occurrence.sizes) if size > 1]
    found = _long(program, occurrence.access)
    return len(found) == len(levels) and all(each in found for each in levels)


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
    written = in_order(program, write.access, write.sizes) == len(write.sizes)
    one_each = written and all(_once_each(program, o) for o in occurrences if not o.writes)
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
        if not isinstance(e, Read) or e.access.array != array:
            return e
        forms = [form for form, _ in _long(program, e.access)]
        return map_expression(definition, lambda part: _moved(part, forms))

    new = reader.with_parts(reader.target, map_expression(reader.value, value))
    made = program.replaced(program.paths[reader.id], (new,))
    body = tuple(node for k, node in enumerate(made.body) if k != write.path[0])
    buffers = tuple(b for b in made.buffers if b.name != array)
    return Program(made.name, made.inputs, made.outputs, buffers, body)


def _moved(part: Expression, forms: Sequence[AffineExpr]) -> Expression:
    """A part of a definition, with ``forms`` in the places of its loops' iterators."""
    if isinstance(part, Read):
        return Read(part.access.substitute(lambda level: forms[level]), part.dtype)
    return part.substitute(lambda level: forms[level]) if isinstance(part, IndexValue) else part

"""Substitution of definitions: what a temporary is computed from, in the place where it is read, or what is
made of it, in the place where it is written.

Every operation keeps its operands, its dtype and its order, so not one bit of a result changes. Only
temporaries are substituted of which each element is written once and read by one statement, once for each
element, in any order: nothing is computed twice, but for a cheap value that a statement reads several times.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from perfdojo_sdk.core.expression import Access, Expression, IndexValue, Read, map_expression, operations
from perfdojo_sdk.core.program import Occurrence, Path, Program, Statement
from perfdojo_sdk.core.subscripts import LEVELS, AffineExpr

#: Most elements that a statement reads once definitions have been put in.
MOST_READS = 12
#: Most operations of a value that a statement may compute for each time that it reads it.
CHEAP = 1


def with_definitions(program: Program) -> Program:
    """The program without the temporaries whose definitions can stand in their places."""
    names = [buffer.name for buffer in program.buffers]
    for way in (_read_through, _written_through, _defined, _drawn):
        for name in names:
            made = way(program, name) if name in program.names else None
            if made is not None:
                return with_definitions(made)
    return program


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


def covers(program: Program, occurrence: Occurrence) -> bool:
    """True if an access meets each element of its array exactly once, in some order, where a dimension may
    also be the product of several loops: ``y[{0}*4+{1}]`` in loops of 3 and 4 over 12 elements."""
    left = {level: size for level, size in enumerate(occurrence.sizes) if size > 1}
    for form, size in _long(program, occurrence.access):
        step = 1
        if form.constant or form.quotients:
            return False
        for level, coefficient in sorted(form.terms, key=lambda term: term[1]):
            if coefficient != step or level not in left:
                return False
            step *= left.pop(level)
        if step != size:
            return False
    return not left


def is_copy(program: Program) -> bool:
    """True if a program writes each element of its output once, as it is in the input, in any order."""
    leaves = [leaf for node in program.body for leaf in node.leaves]
    if len(leaves) != 1 or len(program.outputs) != 1:
        return False
    writes = [o for o in program.occurrences[program.outputs[0]] if o.writes]
    return len(writes) == 1 and _copies(program, writes[0])


def _copies(program: Program, write: Occurrence) -> bool:
    statement = write.statement
    value = statement.value
    plain = statement.accumulate is None and not statement.guard and not statement.lookups
    forms = value.access.subscripts if isinstance(value, Read) else ()
    return plain and bool(forms) and not any(f.quotients for f in forms) and _once_each(program, write)


def _read_through(program: Program, array: str) -> Program | None:
    """The program with the elements of which a temporary is a copy in the places where it is read."""
    if array in program.interface or program.buffer_of[array].arrays != (array,):
        return None
    occurrences = program.occurrences[array]
    writes, reads = [o for o in occurrences if o.writes], [o for o in occurrences if not o.writes]
    if len(writes) != 1 or not reads or not _copies(program, writes[0]):
        return None
    [write] = writes
    source = write.statement.reads[0].array
    alone = len(program.body[write.path[0]].leaves) == 1
    last = max(reads, key=lambda o: o.path)
    later = all(write.path[0] < o.path[0] and not o.statement.lookups for o in reads)
    if not (alone and later and _unwritten(program, {source}, write, last)):
        return None

    made = program
    for path in {o.path for o in reads}:
        reader = made.node(path)
        assert isinstance(reader, Statement), "statements read arrays"
        made = made.replaced(path, (_with_definition(program, write, reader),))
    return _without(made, write.path[0], array)


def _written_through(program: Program, array: str) -> Program | None:
    """The program with the elements of a temporary in the places where the only reader copies them to."""
    if array in program.interface or program.buffer_of[array].arrays != (array,):
        return None
    reads = [o for o in program.occurrences[array] if not o.writes and not o.statement.accumulate]
    copies = [o for o in reads if o.statement.value == Read(o.access, o.statement.dtype)]
    copy = copies[-1] if copies else None
    if copy is None or len(program.body[copy.path[0]].leaves) != 1 or not _once_each(program, copy):
        return None
    others = [o for o in program.occurrences[array] if o.path != copy.path]
    target = copy.statement.target
    [write] = [o for o in program.occurrences[target.array] if o.path == copy.path and o.writes]
    earlier = all(o.path[0] < copy.path[0] and not o.statement.lookups for o in others)
    touched = any(target.array in node.touches for node in program.body[: copy.path[0]])
    if not (others and earlier and _copies(program, write)) or touched:
        return None

    def place(access: Access) -> Access:
        return (
            target.substitute(_forms(program, copy, access).__getitem__) if access.array == array else access
        )

    def value(e: Expression) -> Expression:
        return Read(place(e.access), e.dtype) if isinstance(e, Read) else e

    made = program
    for path in {o.path for o in others}:
        statement = made.node(path)
        assert isinstance(statement, Statement), "statements touch arrays"
        new = statement.with_parts(place(statement.target), map_expression(statement.value, value))
        made = made.replaced(path, (new,))
    return _without(made, copy.path[0], array)


def _defined(program: Program, array: str) -> Program | None:
    """The program with the definition of a temporary where it is read, if it can stand there."""
    found = _written_and_read(program, array)
    if found is None:
        return None
    write, reads = found
    reader = reads[0].statement
    alone = len(program.body[write.path[0]].leaves) == 1
    cheap = len(reads) == 1 or sum(1 for _ in operations(write.statement.value)) <= CHEAP
    size = len(reader.reads) + len(reads) * len(write.statement.reads)
    inputs = {access.array for access in write.statement.reads}
    if not (alone and cheap and size <= MOST_READS and _unwritten(program, inputs, write, reads[0])):
        return None
    if not _once_each(program, write):
        return None
    return _replaced(program, reads[0].path, _with_definition(program, write, reader), write.path[0], array)


def _with_definition(program: Program, write: Occurrence, reader: Statement) -> Statement:
    """A statement with what a temporary is computed from, in the places where it reads that."""

    def value(e: Expression) -> Expression:
        if not isinstance(e, Read) or e.access.array != write.access.array:
            return e
        forms = _forms(program, write, e.access)
        return map_expression(write.statement.value, lambda part: _moved(part, forms))

    return reader.with_parts(reader.target, map_expression(reader.value, value))


def _drawn(program: Program, array: str) -> Program | None:
    """The program with what is made of a temporary where that is written, if it can be made there."""
    found = _written_and_read(program, array, looked_up=True)
    if found is None:
        return None
    write, reads = found
    [read, *others], reader = reads, reads[0].statement
    alone = len(program.body[read.path[0]].leaves) == 1 and not reader.accumulate and not reader.guard
    size = len(reader.reads) - 1 + len(write.statement.reads)
    inputs = {access.array for access in reader.reads} - {array}
    target = reader.target.array
    touched = any(target in node.touches for node in program.body[write.path[0] : read.path[0]])
    if others or not alone or touched or size > MOST_READS or not _unwritten(program, inputs, write, read):
        return None
    if not _once_each(program, read):
        return None
    forms = _forms(program, read, write.access)

    def value(e: Expression) -> Expression:
        same = isinstance(e, Read) and e.access.array == array
        return write.statement.value if same else _moved(e, forms)

    place = reader.target.substitute(forms.__getitem__)
    new = reader.with_parts(place, map_expression(reader.value, value))
    return _replaced(program, write.path, new, read.path[0], array)


def _written_and_read(
    program: Program, array: str, looked_up: bool = False
) -> tuple[Occurrence, list[Occurrence]] | None:
    """The write of a temporary and all reads of it, by one statement of a later nest; each of them meets
    each element once. None if it is not so, or what is written is looked up, unless that is ``looked_up``."""
    if array in program.interface or program.buffer_of[array].arrays != (array,):
        return None
    occurrences = program.occurrences[array]
    writes, reads = [o for o in occurrences if o.writes], [o for o in occurrences if not o.writes]
    if len(writes) != 1 or len({o.statement.id for o in reads}) != 1:
        return None
    [write] = writes
    plain = write.statement.accumulate is None and not write.statement.guard
    later = write.path[0] < reads[0].path[0]
    lookups = (write.statement.lookups and not looked_up) or reads[0].statement.lookups
    if not (plain and later) or lookups or not all(covers(program, o) for o in occurrences):
        return None
    return write, reads


def _forms(program: Program, one: Occurrence, other: Access) -> dict[int, AffineExpr]:
    """For each loop around one access, which meets each element once, what it is at another access to the
    same element: the subscript there of the dimension that it runs over."""
    forms = {level: AffineExpr() for level in range(len(one.sizes))}
    for (form, _), (there, _) in zip(_long(program, one.access), _long(program, other), strict=True):
        forms[LEVELS.index(form)] = there
    return forms


def _unwritten(program: Program, arrays: set[str], write: Occurrence, read: Occurrence) -> bool:
    """True if none of the arrays is written from the nest of one occurrence to that of the other."""
    between = program.body[write.path[0] : read.path[0] + 1]
    return arrays.isdisjoint(leaf.statement.target.array for node in between for leaf in node.leaves)


def _replaced(program: Program, path: Path, new: Statement, left_out: int, array: str) -> Program:
    """The program with another statement at a path, without one of its nests and an array."""
    return _without(program.replaced(path, (new,)), left_out, array)


def _without(program: Program, left_out: int, array: str) -> Program:
    """The program without one of its nests and an array."""
    body = tuple(node for k, node in enumerate(program.body) if k != left_out)
    buffers = tuple(b for b in program.buffers if b.name != array)
    return Program(program.name, program.inputs, program.outputs, buffers, body)


def _moved(part: Expression, forms: Mapping[int, AffineExpr]) -> Expression:
    """A leaf of an expression with ``forms`` in the places of the iterators of its loops."""
    if isinstance(part, Read):
        return Read(part.access.substitute(forms.__getitem__), part.dtype)
    return part.substitute(forms.__getitem__) if isinstance(part, IndexValue) else part

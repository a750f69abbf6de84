"""The kinds of vectors that compute a statement: one number of lanes for all of its dtypes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

from perfdojo_sdk.codegen.c_values import is_rounded
from perfdojo_sdk.core.dialect import Dialect
from perfdojo_sdk.core.dtypes import CODED_DTYPES, ROUNDED_DTYPES
from perfdojo_sdk.core.expression import (
    Access,
    Cast,
    Expression,
    IndexValue,
    Literal,
    Operation,
    Read,
    operations,
)
from perfdojo_sdk.core.geometry import lane_stride
from perfdojo_sdk.core.program import Program, Statement

#: The dtype of the vectors that the header of an instruction set defines, as whole registers.
VECTOR_DTYPE = "f32"

#: Operations that compilers have for vectors of any number of lanes.
_ARITHMETIC = frozenset({"add", "sub", "mul", "div"})


def is_uniform(program: Program, value: Expression, level: int) -> bool:
    """True if a value is the same in all lanes, the iterations of ``level``."""
    match value:
        case Read():
            buffer = program.buffer_of[value.access.array]
            return lane_stride(buffer, value.access.subscripts, level) == 0
        case IndexValue():
            return level not in value.index.levels
        case Literal() | Operation() | Cast():
            return all(is_uniform(program, child, level) for child in value.children)
        case _:
            assert_never(value)


def vector_lanes(program: Program, statement: Statement, level: int, count: int, dialect: Dialect) -> int:
    """The lanes of the vectors that compute a statement in ``count`` iterations of ``level``; fewer than that
    if the vectors of a dtype that occurs on the way have fewer; 0 if there are none of some dtype."""
    lanes, dtypes = dialect.lanes, vector_dtypes(program, statement, level)
    if not dtypes <= lanes.keys():
        return 0
    most = min([lanes[dtype] for dtype in dtypes])
    enough = min(most, max(min(lanes.values()), 1 << (count - 1).bit_length()))
    if VECTOR_DTYPE in dtypes and most == lanes[VECTOR_DTYPE]:
        return enough if _is_short(program, statement, level, enough, dialect) else most
    return enough


def _is_short(program: Program, statement: Statement, level: int, lanes: int, dialect: Dialect) -> bool:
    """True if vectors of f32 with so few lanes compute a statement: it is plain arithmetic, for which no
    function of whole registers is needed, and so is all that touches its variables (:mod:`.registers`), in
    lanes as few."""
    if not _is_arithmetic(program, statement, level):
        return False
    touched = {read.array for read in (statement.target, *statement.reads)}
    for buffer in map(program.buffer_of.__getitem__, touched):
        if not dialect.locations[buffer.location].constant_subscripts:
            continue
        for o in program.occurrences[buffer.name]:
            inner = len(o.sizes) - 1
            if inner < 0 or lane_stride(buffer, o.access.subscripts, inner) == 0:
                continue
            needed = 1 << (o.sizes[inner] - 1).bit_length()
            if needed > lanes or not _is_arithmetic(program, o.statement, inner):
                return False
    return True


def _is_arithmetic(program: Program, statement: Statement, level: int) -> bool:
    """True if lanes of f32 are copied, added, subtracted, multiplied or divided, each into its own cell."""

    def apart(access: Access) -> int | None:
        return lane_stride(program.buffer_of[access.array], access.subscripts, level)

    return (
        statement.accumulate in (None, "add")
        and apart(statement.target) == 1
        and all(apart(read) in (0, 1) for read in statement.reads)
        and vector_dtypes(program, statement, level) == {VECTOR_DTYPE}
        and all(o.name in _ARITHMETIC for o in operations(statement.value))
    )


def vector_dtypes(program: Program, statement: Statement, level: int) -> set[str]:
    """The dtypes of all vectors that a statement needs whose lanes are the iterations of ``level``."""
    dtypes = {statement.dtype, *_computed(program, statement.value, level)}
    rounds = statement.accumulate and statement.dtype in ROUNDED_DTYPES
    return dtypes | ({VECTOR_DTYPE} if rounds else set())


def _computed(program: Program, value: Expression, level: int) -> Iterator[str]:
    """The dtypes of the vectors on the way to a value."""
    if value.dtype != "bool" or isinstance(value, Read):
        yield value.dtype
    if is_uniform(program, value, level):
        return
    if isinstance(value, Operation) and is_rounded(value):
        yield VECTOR_DTYPE
    if isinstance(value, Cast) and not {value.dtype, value.argument.dtype}.isdisjoint(
        (*ROUNDED_DTYPES, *CODED_DTYPES)
    ):
        yield VECTOR_DTYPE
    for child in value.children:
        yield from _computed(program, child, level)

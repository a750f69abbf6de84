"""Analysis of zeros: inputs that may hold one, and outputs in which the sign of a zero is determined.

The sign of a zero is determined wherever IEEE 754 determines it: in copies, negations, products, single sums.
It is not determined in accumulated sums with a term that may be -0, where the order decides; in a maximum or
minimum of zeros of both signs; and after functions of vector math. Signs are compared only if no rounding
could have made the zero, so a product counts as zero only if a factor may be zero.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from perfdojo_sdk.core.dtypes import CODED_DTYPES, FLOAT_DTYPES
from perfdojo_sdk.core.expression import Cast, Expression, IndexValue, Literal, Operation, Read, walk
from perfdojo_sdk.core.formats import zeros_of
from perfdojo_sdk.core.program import Program, Statement
from perfdojo_sdk.verify.groups import Array

#: The zeros that a float may be, as bits: +0, -0, and a zero whose sign is not determined.
_PLUS, _MINUS, _OPEN = 1, 2, 4
#: Dtypes that have zeros of either sign.
_SIGNED_DTYPES = (*FLOAT_DTYPES, *CODED_DTYPES)
_COMPARISONS = frozenset({"lt", "le", "gt", "ge", "eq", "ne", "and", "or", "xor", "not"})


def undivided(program: Program) -> frozenset[str]:
    """Integer inputs by which nothing is divided, directly or through values computed from them."""
    return frozenset(program.inputs) - _operands(program, ("div", "rem"))


def shift_counts(program: Program) -> frozenset[str]:
    """Integer inputs that numbers are shifted by, directly or through values computed from them."""
    return _operands(program, ("shl", "shr"))


def _operands(program: Program, names: Collection[str]) -> frozenset[str]:
    """Inputs that the second operands of these operations on integers are computed from."""
    statements = [node for _, node in program.walk() if isinstance(node, Statement)]
    found = {
        program.buffer_of[read.access.array].name
        for statement in statements
        for value in (statement.value, *[lookup.value for lookup in statement.lookups])
        for part in walk(value)
        if isinstance(part, Operation) and part.name in names and part.dtype not in FLOAT_DTYPES
        for read in walk(part.arguments[1])
        if isinstance(read, Read)
    }
    for _ in statements:
        known = len(found)
        for statement in statements:
            if program.buffer_of[statement.target.array].name in found:
                found |= {program.buffer_of[read.array].name for read in statement.every_read}
        if len(found) == known:
            break
    return frozenset(n for n in program.inputs if program.buffer_of[n].name in found)


def signed_outputs(program: Program, inputs: Mapping[str, Array]) -> frozenset[str]:
    """Outputs in which each zero has the sign that the program's operations say, for these very inputs."""
    if not _signed(program, dict.fromkeys(program.inputs, 0)):
        return frozenset()
    dtypes = {name: program.buffer_of[name].dtype for name in program.inputs}
    return _signed(program, {name: _zeros_of(inputs[name], dtype) for name, dtype in dtypes.items()})


def _zeros_of(array: Array, dtype: str) -> int:
    if dtype in CODED_DTYPES:
        return sum(
            sign
            for code, sign in zip(zeros_of(dtype), (_PLUS, _MINUS), strict=False)
            if (array == code).any()
        )
    if not np.issubdtype(array.dtype, np.floating):
        return 0
    minus = np.signbit(array[array == 0])
    return _PLUS * bool((~minus).any()) | _MINUS * bool(minus.any())


def _signed(program: Program, inputs: Mapping[str, int]) -> frozenset[str]:
    zeros = {buffer.name: 0 for buffer in program.buffers}
    zeros |= {program.buffer_of[name].name: found for name, found in inputs.items()}
    statements = [node for _, node in program.walk() if isinstance(node, Statement)]
    while True:
        before = dict(zeros)
        for statement in statements:
            name = program.buffer_of[statement.target.array].name
            zeros[name] |= _accumulated(
                statement.accumulate, zeros[name], _zeros(statement.value, program, zeros)
            )
        if zeros == before:
            break
    floats = (n for n in program.outputs if program.buffer_of[n].dtype in _SIGNED_DTYPES)
    return frozenset(n for n in floats if not zeros[program.buffer_of[n].name] & _OPEN)


def _accumulated(operation: str | None, old: int, new: int) -> int:
    if operation in ("max", "min"):
        return _extreme(old | new, new)
    if operation == "mul":
        return _computed(old, new)
    if operation == "add":
        # If no term is -0, a sum of zero is +0 in every order.
        return _PLUS | (_OPEN if (old | new) & (_MINUS | _OPEN) else 0)
    return _OPEN if operation else new


def _extreme(one: int, other: int) -> int:
    """A maximum or minimum: of two zeros either may be the result."""
    differ = (one & _PLUS and other & _MINUS) or (one & _MINUS and other & _PLUS)
    return one | other | (_OPEN if differ else 0)


def _computed(one: int, other: int) -> int:
    return (one | other) & _OPEN | _PLUS | _MINUS


def _product(one: int, other: int) -> int:
    """The zeros of a product: of either sign, if a factor may be zero."""
    return _computed(one, other) if one | other else 0


def _negated(part: int) -> int:
    return part & _OPEN | (_MINUS if part & _PLUS else 0) | (_PLUS if part & _MINUS else 0)


def _sum(one: int, other: int) -> int:
    """The zeros of a sum: terms that cancel give +0, two of -0 give -0."""
    return (one | other) & _OPEN | _PLUS | (one & other & _MINUS)


def _zeros(value: Expression, program: Program, zeros: Mapping[str, int]) -> int:
    """The zeros, +0 and -0 as bits, that ``value`` may be."""
    if value.dtype not in _SIGNED_DTYPES:
        return 0
    if isinstance(value, Literal):
        return 0 if value.value else _MINUS if np.signbit(float(value.value)) else _PLUS
    if isinstance(value, IndexValue):
        return _PLUS
    if isinstance(value, Read):
        return zeros[program.buffer_of[value.access.array].name]
    if isinstance(value, Cast):
        if value.argument.dtype not in _SIGNED_DTYPES:
            return _PLUS
        # Rounding to fewer digits may give a zero, in the references, too.
        return _zeros(value.argument, program, zeros) | _PLUS | _MINUS
    assert isinstance(value, Operation)
    parts = [_zeros(argument, program, zeros) for argument in value.arguments]
    if value.name == "mul":
        return _product(*parts)
    if value.name == "div":
        return _computed(*parts)
    if value.name in ("add", "sub"):
        one, other = parts
        return _sum(one, other if value.name == "add" else _negated(other))
    if value.name in ("max", "min"):
        return _extreme(*parts)
    if value.name == "select":
        _, one, other = parts
        certain = _certain(value.arguments[0], program) or (one | other) in (0, _PLUS, _MINUS)
        return one | other | (0 if certain else _OPEN)
    if value.name == "neg":
        return _negated(*parts)
    if value.name == "abs":
        return _PLUS
    return parts[0] if value.name == "sqrt" else _OPEN


def _certain(condition: Expression, program: Program) -> bool:
    """True if a condition compares values that no rounding has affected."""
    if isinstance(condition, Read):
        return condition.access.array in program.read_only
    if isinstance(condition, Operation):
        known = condition.name in _COMPARISONS
        return known and all(_certain(argument, program) for argument in condition.arguments)
    return isinstance(condition, Literal | IndexValue)

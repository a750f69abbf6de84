"""The class of small integers: how large they may be so that sums and products are exact in any order."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from math import inf, log2, prod
from typing import assert_never

from perfdojo_sdk.core.dtypes import DIGITS, STORED_DTYPES
from perfdojo_sdk.core.expression import Cast, Expression, IndexValue, Literal, Operation, Read, walk
from perfdojo_sdk.core.operations import OPERATIONS
from perfdojo_sdk.core.program import Program, Statement
from perfdojo_sdk.core.validate import beyond_storage

#: Single precision holds every integer below this one.
EXACT_INTEGERS = 2**24
#: Largest input magnitudes to try.
_RANGES = (8, 4, 2, 1)


def integer_range(program: Program) -> tuple[int, str]:
    """Largest input magnitude for which nothing leaves the exact integers; 0 with the reason if none."""
    for _, node in program.walk():
        if isinstance(node, Statement) and (why := _not_polynomial(node.value)):
            return 0, why
    if any(not float(each).is_integer() for values in program.tables.values() for each in values):
        return 0, "a table holds fractions"
    if other := {b.dtype for b in program.buffers} - {"f32", *STORED_DTYPES}:
        return 0, f"it uses {', '.join(sorted(other))}"
    for dtype in STORED_DTYPES:
        if use := next(beyond_storage(program, dtype, interface=True), ""):
            return 0, use
    for largest in _RANGES:
        if _magnitude(program, largest) < EXACT_INTEGERS:
            return largest, ""
    return 0, "its intermediates may exceed 2^24 even for inputs of -1, 0 and 1"


def _not_polynomial(value: Expression) -> str:
    """The reason why integer inputs do not give integer results; "" when they do."""
    for node in walk(value):
        if isinstance(node, Operation) and not OPERATIONS[node.name].exact_on_integers:
            return f"it uses {node.name}"
        if isinstance(node, Literal) and not (float(node.value).is_integer() or abs(node.value) == inf):
            return f"it uses the constant {node.text}"
    return ""


def _magnitude(program: Program, largest: int) -> float:
    """A bound on every intermediate, adding up the terms of a sum in any order.

    Follows the text once; values that travel around a loop through other buffers are caught by
    looking at what the reference really stored.
    """
    size: dict[str, float] = dict.fromkeys((b.name for b in program.buffers), 0.0)
    for name in program.inputs:
        table = program.tables.get(name, ())
        size[program.buffer_of[name].name] = max(map(abs, table)) if table else largest
    worst = 0.0
    for path, node in program.walk():
        if not isinstance(node, Statement):
            continue
        sizes = tuple(s.size for s in program.ancestors(path))
        value, inner = _expression_magnitude(node.value, program, size, sizes)
        buffer = program.buffer_of[node.target.array]
        used = {level for k in buffer.materialised for level in node.target.subscripts[k].levels}
        trips = prod(s for level, s in enumerate(sizes) if level not in used)
        if node.accumulate == "add":
            value = size[buffer.name] + trips * value
        elif node.accumulate == "mul":
            # Above the limit the exact power does not matter.
            factor = max(value, 1)
            grown = inf if factor > 1 and trips * log2(factor) > 64 else factor**trips
            value = max(size[buffer.name], 1) * grown
        size[buffer.name] = max(size[buffer.name], value)
        worst = max(worst, inner, value)
    return worst


def _expression_magnitude(
    value: Expression, program: Program, size: Mapping[str, float], sizes: tuple[int, ...]
) -> tuple[float, float]:
    """Bounds on the value and on everything computed on the way to it."""
    match value:
        case Literal():
            here = 0.0 if abs(value.value) == inf else abs(float(value.value))
            return here, here
        case IndexValue():
            here = float(max(map(abs, value.index.bounds(sizes))))
            return here, here
        case Read():
            here = size[program.buffer_of[value.access.array].name]
            return here, here
        case Cast():
            here, inner = _expression_magnitude(value.argument, program, size, sizes)
            exact = value.dtype not in DIGITS or here <= 2 ** DIGITS[value.dtype]
            return here, inner if exact else inf
        case Operation():
            parts = [_expression_magnitude(a, program, size, sizes) for a in value.arguments]
            ends = product(*((-bound, bound) for bound, _ in parts))
            values = [abs(OPERATIONS[value.name].floats(*corner)) for corner in ends]
            # Infinities that cancel give NaN at a corner: the other corners and the operands bound the value.
            here = max((v for v in values if v == v), default=0.0)
            return here, max(here, *(inner for _, inner in parts))
        case _:
            assert_never(value)

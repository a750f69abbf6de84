"""Analysis of choices: values that are elements of inputs, constants, or a choice among such.

No move changes them, not even one that adds terms in another order: copies, negations, magnitudes, extremes
and selections by comparisons of such values. An infinity or NaN among them is one for certain.
"""

from __future__ import annotations

from collections.abc import Collection

from perfdojo_sdk.core.expression import Cast, Expression, Operation, Read
from perfdojo_sdk.core.operations import OPERATIONS
from perfdojo_sdk.core.program import Program, Statement

_CHOICES = frozenset({"neg", "abs", "max", "min", "select"})


def chosen_buffers(program: Program) -> frozenset[str]:
    """Names of the buffers that only ever hold such values."""
    names = {buffer.name for buffer in program.buffers}
    statements = [node for _, node in program.walk() if isinstance(node, Statement)]
    while True:
        others = {
            program.buffer_of[statement.target.array].name
            for statement in statements
            if statement.accumulate not in (None, "max", "min")
            or not is_chosen(statement.value, program, names)
        }
        if not others & names:
            return frozenset(names)
        names -= others


def is_chosen(value: Expression, program: Program, buffers: Collection[str]) -> bool:
    """True if ``value`` is such a value, or compares such, where ``buffers`` hold nothing else."""
    if isinstance(value, Read):
        return program.buffer_of[value.access.array].name in buffers
    if isinstance(value, Cast):
        return False
    if isinstance(value, Operation):
        chooses = value.name in _CHOICES or OPERATIONS[value.name].compares
        return chooses and all(is_chosen(argument, program, buffers) for argument in value.arguments)
    return True

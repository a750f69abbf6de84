"""A lower bound of cycles: the FPU issues one instruction per cycle, and each memory port serves one
access."""

from __future__ import annotations

from math import prod

from perfdojo_sdk.core.expression import Cast, Expression, Operation, performs
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.hookspecs.types import Bound, Capabilities


def bound(program: Program, capabilities: Capabilities) -> Bound | None:
    """The time of the arithmetic that ``program`` asks for, a product and its sum being one instruction.

    A kernel that computes nothing still has to move each element of its outputs.
    """
    cycles = 0.0
    for node in program.body:
        for statement, sizes in node.leaves:
            count = instructions(statement.value) + (statement.accumulate is not None)
            if statement.accumulate == "add" and _is_product(statement.value):
                count -= 1
            cycles += count * prod(sizes) / capabilities.lanes.get(statement.dtype, 1)
    buffers = [program.buffer_of[name] for name in program.outputs]
    stores = sum(b.cells / capabilities.lanes.get(b.dtype, 1) for b in buffers)
    clock = float(capabilities.options["clock_hz"])
    limit = "FPU, one instruction a cycle" if cycles > stores else "stores, one a cycle"
    return Bound(max(cycles, stores) / clock, limit, "estimated", calibrated=False)


def instructions(value: Expression) -> int:
    """FP instructions of an expression; a selection by a comparison is one."""
    if isinstance(value, Cast):
        return instructions(value.argument)
    if not isinstance(value, Operation):
        return 0
    if value.name == "select":
        return 1 + sum(instructions(argument) for argument in value.arguments[1:])
    fused = value.name in ("add", "sub") and any(_is_product(a) for a in value.arguments)
    return 1 - fused + sum(instructions(argument) for argument in value.arguments)


def _is_product(value: Expression) -> bool:
    return performs(value, "mul")

"""A check of the integer core's numbers, which have 32 bits: programs that need more are refused."""

from __future__ import annotations

from collections.abc import Iterator

from perfdojo_riscv_snitch.codegen.limits import WIDTH, Refused
from perfdojo_riscv_snitch.codegen.values import BYTES
from perfdojo_sdk.core.expression import AffineExpr
from perfdojo_sdk.core.geometry import index_values
from perfdojo_sdk.core.program import Program, Statement

#: Largest size of conditions and values, which are signed.
MOST = 2**31 - 1
#: Largest distance in bytes: pointers go one stride beyond their last cell, and must not wrap around.
MOST_BYTES = 2**30


def check(program: Program) -> None:
    """Raise :class:`Refused` if computing an address, a condition or a value meets a number beyond 32
    bits."""
    for place in program.places:
        if isinstance(place.node, Statement):
            for form, scale, most in _forms(program, place.node):
                if (reach := scale * form.reach(place.sizes)) > most:
                    raise Refused(WIDTH, place.node.id, form.text, form=form.text, reach=reach)


def _forms(program: Program, statement: Statement) -> Iterator[tuple[AffineExpr, int, int]]:
    """Forms of the iterators, each with its factor and the largest value allowed for the product."""
    for form in (*statement.guard, *[value.index for value in index_values(statement.value)]):
        yield form, 1, MOST
    for access in (statement.target, *statement.reads):
        buffer = program.buffer_of[access.array]
        yield buffer.address(access.subscripts), BYTES.get(buffer.dtype, 8), MOST_BYTES

"""Division by a number that is known: a product and shifts in its place.

T. Granlund and P. L. Montgomery, "Division by invariant integers using multiplication" (PLDI 1994), section
4: for every dividend n of 64 bits without a sign, with t the upper half of its product with the factor, the
quotient is ``(t + ((n - t) >> first)) >> rest``. Signs are put on afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass

from perfdojo_sdk.core.expression import Expression, Literal, Operation

_BITS = 64


@dataclass(frozen=True)
class Division:
    """The numbers of a division by a known one."""

    factor: int
    first: int
    rest: int


def division(divisor: int) -> Division:
    """The numbers for a divisor from 1 to 2^64 - 1."""
    power = (divisor - 1).bit_length()
    factor = ((1 << _BITS) * ((1 << power) - divisor)) // divisor + 1
    return Division(factor, min(power, 1), max(power - 1, 0))


def known_divisor(value: Expression) -> int | None:
    """The number by which an operation divides integers of 64 bits, for a quotient or a remainder; None where
    it does not, or where that is no literal."""
    if not isinstance(value, Operation) or value.name not in ("div", "rem"):
        return None
    divisor = value.arguments[1]
    if value.operand_dtype not in ("i64", "u64") or not isinstance(divisor, Literal):
        return None
    return int(divisor.value) or None

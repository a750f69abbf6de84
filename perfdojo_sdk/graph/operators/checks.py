"""Values that the standard forbids: the graph reports whether there was one, and no kernel fails on it."""

from __future__ import annotations

from collections.abc import Callable

from perfdojo_sdk.graph.builder import Builder
from perfdojo_sdk.graph.graph import Value
from perfdojo_sdk.graph.refusals import Malformed
from perfdojo_sdk.graph.writer import Writer, levels

#: Most elements of a value that are looked at where they are known.
FEW = 4096

#: The report of a division of integers by zero.
DIVISOR = "a divisor is zero"


def reported(b: Builder, value: Value, broken: Callable[[str], str], what: str, name: str) -> None:
    """Have the graph report ``what`` if an element breaks a rule. ``broken``: element -> the text of a
    condition; ``name``: of the kernel that looks."""
    if not value.elements:
        return
    k = Writer(b, name)
    a, y = k.read(value), k.write((), "i32")
    k.nest((), f"{y([])} = 0")
    k.nest(value.shape, f"{y([])} max= i32({broken(a(levels(value.rank)))})")
    b.check(k.done()[0], what)


def divisor(b: Builder, value: Value) -> Callable[[str], str]:
    """The text of an integer divisor, from that of an element: 1 in place of a zero, which the graph
    reports."""
    if b.is_known(value) and value.elements <= FEW and all(b.known_integers(value)):
        return lambda element: element
    reported(b, value, lambda element: f"{element} == 0", DIVISOR, "zero_divisors")
    return lambda element: f"select({element} == 0, 1, {element})"


def lengths_within(b: Builder, lengths: Value, most: int) -> None:
    """Have the graph report lengths of sequences that are negative or above ``most``."""
    if b.is_known(lengths) and lengths.elements <= FEW:
        wrong = [n for n in b.known_integers(lengths) if not 0 <= n <= most]
        if wrong:
            raise Malformed(f"a sequence of length {wrong[0]}, where {most} is the most")
        return
    what = f"a length is beyond {most} elements"
    reported(b, lengths, lambda n: f"or({n} < 0, {n} > {most})", what, "wrong_lengths")

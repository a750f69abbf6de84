"""Run-time indices: parts of a subscript whose value is read from memory, within a range that the text shows.

``x[clamp(k[{0}], 0, 999), {1}]`` reads a row of ``x`` that the input ``k`` chooses. Such a *lookup* is an
expression of integers: elements of inputs, iterators, literals, and operations that have a result for all
operands. Inputs never change during a call, so a lookup is a function of the iterators and nothing else; and
its range follows from the expression alone (and from the elements of tables), so no program can read outside
of an array.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import ClassVar, TypeAlias

from perfdojo_sdk.core.dtypes import CODED_DTYPES, FLOAT_DTYPES, bits, integer_bounds
from perfdojo_sdk.core.expression import (
    Access,
    AffineExpr,
    Cast,
    Expression,
    IndexValue,
    Literal,
    Operation,
    Read,
    fold,
    performs,
    walk,
)
from perfdojo_sdk.core.frozen import frozen, lazy
from perfdojo_sdk.core.operations import OPERATIONS

Range: TypeAlias = tuple[int, int]
"""Least and largest value."""

#: The word that stands for a maximum of a minimum with literals, which nearly every lookup is.
CLAMP = "clamp"


@frozen
class Lookup:
    """The value of an expression of integers, as a part of a subscript."""

    value: Expression
    tables: tuple[tuple[str, Range], ...] = ()
    """The tables that it reads, each with its least and its largest element."""

    @lazy
    def text(self) -> str:
        found = clamped(self.value)
        return self.value.text if found is None else f"{CLAMP}({found[0].text}, {found[1]}, {found[2]})"

    @lazy
    def levels(self) -> frozenset[int]:
        return self.value.levels

    @property
    def highest(self) -> int:
        return self.value.highest

    @lazy
    def reads(self) -> tuple[Access, ...]:
        """The elements that choose the index."""
        return self.value.reads

    @property
    def forms(self) -> tuple[AffineExpr, ...]:
        """The forms of the iterators inside: subscripts of the elements read, and iterators as values."""
        return tuple([f.index if isinstance(f, IndexValue) else f for f in self.value.forms])  # type: ignore[misc]

    @lazy
    def pattern(self) -> str:
        """The text with a hole for each of :attr:`forms`: equal in two lookups that differ in them alone."""
        return f"{self.value.dtype} {self.value.pattern}"

    def substitute(
        self, levels: Callable[[int], AffineExpr], sizes: Sequence[int] | None = None
    ) -> AffineExpr:
        """The lookup with its iterators replaced, as a form."""
        forms = iter([form.substitute(levels) for form in self.value.forms])
        return AffineExpr.of({}, 0, ((Lookup(self.value.filled(forms), self.tables), 1),))

    def bounds(self, sizes: Sequence[int]) -> Range:
        """A range that holds every value, whatever the inputs hold."""
        tables = dict(self.tables)
        return fold(self.value, lambda node, ranges: _range(node, ranges, sizes, tables))

    def reach(self, sizes: Sequence[int]) -> int:
        return max(map(abs, self.bounds(sizes)))

    @lazy
    def weight(self) -> int:
        """A bound on :meth:`reach` where every scope has one iteration; no literal or dtype is too wide."""
        found = clamped(self.value)
        if isinstance(self.value, Read) and self.tables:
            return max(1, *map(abs, self.tables[0][1]))
        return 2 ** bits(self.value.dtype) if found is None else max(1, abs(found[1]), abs(found[2]))

    #: No bound holds whatever the sizes of scopes are, but for that of the dtype.
    least: ClassVar[float] = float("-inf")
    most: ClassVar[None] = None


def clamped(value: Expression) -> tuple[Expression, int, int] | None:
    """(e, low, high) of ``max(min(e, high), low)`` with ``low <= high``; None for another expression."""
    if not performs(value, "max") or not performs(value.arguments[0], "min"):
        return None
    inner, low = value.arguments
    assert isinstance(inner, Operation)
    found, high = inner.arguments
    if not isinstance(low, Literal) or not isinstance(high, Literal) or low.value > high.value:
        return None
    return found, int(low.value), int(high.value)


def clamp(value: Expression, low: Literal, high: Literal) -> Expression:
    """``max(min(value, high), low)``"""
    return Operation("max", (Operation("min", (value, high), value.dtype), low), value.dtype)


def unfit(value: Expression) -> str:
    """The reason why an expression is no lookup, in words; empty if it is one."""
    for node in walk(value):
        if node.dtype in (*FLOAT_DTYPES, *CODED_DTYPES):
            return f"{node.text} is {node.dtype}, and an index is made of integers alone"
        if isinstance(node, Read) and any(map(lookups_in, node.access.subscripts)):
            return f"{node.text} is chosen by a run-time index itself"
        if isinstance(node, Operation) and not OPERATIONS[node.name].total and not _has_all_results(node):
            return f"{node.text} has no result for some operands"
    return ""


def _has_all_results(node: Operation) -> bool:
    """True if a division or a shift by a literal is defined for every dividend."""
    last = node.arguments[-1]
    if not isinstance(last, Literal):
        return False
    if node.name in ("shl", "shr"):
        return 0 <= last.value < bits(node.dtype)
    return last.value != 0


def lookups_in(form: AffineExpr) -> tuple[Lookup, ...]:
    """The lookups of a subscript."""
    return tuple([part for part, _ in form.quotients if isinstance(part, Lookup)])


def lookups_of(accesses: Sequence[Access]) -> Iterator[Lookup]:
    """The lookups in the subscripts of some accesses."""
    for access in accesses:
        for form in access.subscripts:
            if form.quotients:
                yield from lookups_in(form)


# -- ranges of integers ----------------------------------------------------------------------------


def _range(
    node: Expression, ranges: tuple[Range, ...], sizes: Sequence[int], tables: Mapping[str, Range]
) -> Range:
    """The range of a node, from the ranges of its operands; that of the dtype where nothing closer is known,
    or where the result may wrap."""
    everything = integer_bounds(node.dtype)
    if isinstance(node, Literal):
        found = int(node.value), int(node.value)
    elif isinstance(node, IndexValue):
        found = node.index.bounds(sizes)
    elif isinstance(node, Read):
        found = tables.get(node.access.array, everything)
    elif isinstance(node, Cast):
        found = (0, 1) if node.dtype == "bool" else ranges[0]
    elif isinstance(node, Operation) and node.name in _RANGES:
        found = _RANGES[node.name](*ranges)
    else:
        found = everything
    return found if everything[0] <= found[0] and found[1] <= everything[1] else everything


def _of_ends(function: Callable[[int, int], int]) -> Callable[[Range, Range], Range]:
    """The range of a function that is monotonic in each operand."""

    def found(a: Range, b: Range) -> Range:
        ends = [function(x, y) for x in a for y in b]
        return min(ends), max(ends)

    return found


def _remainder(a: Range, b: Range) -> Range:
    """Remainders of a truncated division, which have the dividend's sign."""
    most = max(map(abs, b)) - 1
    return (max(a[0], -most) if a[0] < 0 else 0), (min(a[1], most) if a[1] > 0 else 0)


def _masked(a: Range, b: Range) -> Range:
    """Bits that both numbers have: with a number that is not negative, nothing above it stays."""
    least = [end[1] for end in (a, b) if end[0] >= 0]
    return (0, min(least)) if least else (-(2**63), 2**63 - 1)


_RANGES: dict[str, Callable[..., Range]] = {
    "add": lambda a, b: (a[0] + b[0], a[1] + b[1]),
    "sub": lambda a, b: (a[0] - b[1], a[1] - b[0]),
    "mul": _of_ends(lambda x, y: x * y),
    "max": _of_ends(max),
    "min": _of_ends(min),
    "neg": lambda a: (-a[1], -a[0]),
    "abs": lambda a: (max(0, a[0], -a[1]), max(abs(a[0]), abs(a[1]))),
    "rem": _remainder,
    "and": _masked,
    "select": lambda condition, a, b: (min(a[0], b[0]), max(a[1], b[1])),
}
for _comparison in ("lt", "le", "gt", "ge", "eq", "ne"):
    _RANGES[_comparison] = lambda a, b: (0, 1)

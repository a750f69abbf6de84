"""A move that keeps an integer in a shorter dtype on its way where every value fits: no bit changes."""

from __future__ import annotations

from collections.abc import Iterator

from perfdojo_sdk.core.dialect import Dialect
from perfdojo_sdk.core.dtypes import BYTES, INTEGER_DTYPES, integer_bounds
from perfdojo_sdk.core.expression import Cast, Expression, IndexValue, Operation, walk
from perfdojo_sdk.core.frozen import frozen, lazy
from perfdojo_sdk.core.lookups import Lookup, Range
from perfdojo_sdk.core.program import Program, Statement
from perfdojo_sdk.core.transformation import (
    NO_MOVE,
    Analysed,
    Facts,
    Move,
    Parameter,
    Refusal,
    Requirement,
    Site,
)
from perfdojo_sdk.core.transformations.naming import substitute


@frozen
class Narrowing(Facts):
    """An operation on integers in a statement's value, and a shorter dtype."""

    term: Operation
    dtype: str

    @lazy
    def range(self) -> Range:
        """The least and the largest value that the text allows."""
        return Lookup(self.term).bounds(self.site.outer_sizes)

    @lazy
    def changed(self) -> Statement:
        """The statement after the move."""
        statement, term = self.site.statement, self.term
        between = Cast(Cast(term, self.dtype), term.dtype)
        return statement.with_parts(statement.target, substitute(statement.value, term, between))


#: Operations whose range follows from those of their operands.
_RANGED = ("add", "sub", "mul", "neg", "max", "min")


def _computes_integers(value: Expression) -> bool:
    """True for an operation whose range the text shows: of integers alone, some of them elements of arrays,
    none of them an iterator."""
    ranged = all(
        node.dtype in INTEGER_DTYPES
        and not isinstance(node, IndexValue)
        and (not isinstance(node, Operation) or node.name in _RANGED)
        for node in walk(value)
    )
    return isinstance(value, Operation) and bool(value.reads) and ranged


def _shorter(facts: Narrowing) -> Refusal | None:
    dtype, term = facts.dtype, facts.term
    if dtype in INTEGER_DTYPES and BYTES[dtype] < BYTES[term.dtype]:
        return None
    return Refusal.of(facts.site.statement.id, term.text, source=term.dtype, dtype=dtype)


def _holds(dtype: str, found: Range) -> bool:
    low, high = integer_bounds(dtype)
    return low <= found[0] and found[1] <= high


def _holds_every_value(facts: Narrowing) -> Refusal | None:
    low, high = facts.range
    if _holds(facts.dtype, facts.range):
        return None
    term = facts.term.text
    return Refusal.of(facts.site.statement.id, term, value=term, low=low, high=high, dtype=facts.dtype)


class NarrowInteger(Analysed[Narrowing]):
    """Convert the result of an operation on integers to a shorter integer that holds it, and back.

    The text shows the range of the result. ``term`` counts the operations and conversions of the value from
    0, each before its own arguments.

    before:
        a i8 [8] heap
        y i32 [8] heap
        8 y[{0}] = i32(a[{0}]) + 128
    after: narrow_integer(c0, dtype=u8, term=0)
        8 y[{0}] = i32(u8(i32(a[{0}]) + 128))
    """

    name = "narrow_integer"
    place = "statement"
    parameters = (
        Parameter("dtype", str, "the shorter integer dtype"),
        Parameter("term", int, "which operation or conversion of the value, from 0"),
    )
    requirements = (
        Requirement(
            "PD-T691",
            "no operation on integers is there",
            "term {term} of {value} is no sum, product or extreme of elements that are integers",
            "count the operations and conversions from 0, each before its own arguments",
            None,
            established_by=NO_MOVE,
        ),
        Requirement(
            "PD-T692",
            "the dtype is no shorter integer",
            "the result is {source}, and {dtype} is no integer of fewer bytes",
            "name an integer dtype of fewer bytes",
            _shorter,
            established_by=NO_MOVE,
        ),
        Requirement(
            "PD-T693",
            "the shorter dtype does not hold every value",
            "{value} may be {low} to {high}, as far as its text shows; {dtype} does not hold them all",
            "name a longer integer, or one with the sign that the values have",
            _holds_every_value,
            semantic=True,
            established_by=NO_MOVE,
        ),
    )

    def candidates(self, program: Program, dialect: Dialect) -> Iterator[Move]:
        for place in program.places:
            node = place.node
            if isinstance(node, Statement):
                for term, value in _wide(node.value):
                    found = Lookup(value).bounds(place.sizes)
                    for dtype in INTEGER_DTYPES:
                        if BYTES[dtype] < BYTES[value.dtype] and _holds(dtype, found):
                            yield Move(self.name, node.id, (("dtype", dtype), ("term", term)))

    def analyse(self, site: Site) -> Narrowing | Refusal:
        value, number = site.statement.value, site.move["term"]
        term = value.terms[number] if 0 <= number < len(value.terms) else None
        if isinstance(term, Operation) and _computes_integers(term):
            return Narrowing(site, term, site.move["dtype"])
        return Refusal.of(site.statement.id, term=number, value=value.text)

    def rewrite(self, facts: Narrowing, /) -> Program:
        return facts.site.replaced((facts.changed,))


def _wide(value: Expression) -> Iterator[tuple[int, Expression]]:
    """The operations on integers that are not converted to a shorter dtype at once, with their numbers."""
    casts = [each for each in value.terms if isinstance(each, Cast)]
    narrowed = {each.argument for each in casts if BYTES[each.dtype] < BYTES[each.argument.dtype]}
    for number, term in enumerate(value.terms):
        if _computes_integers(term) and term not in narrowed:
            yield number, term


MOVES = (NarrowInteger(),)

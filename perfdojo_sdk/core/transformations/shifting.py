"""A move that adds a number to a factor of a sum of integers and takes away again what that adds.

Some instructions multiply numbers without a sign by numbers with one. ``x + 128`` has no sign where x is a
byte with one, and what is too much, 128 times the other factor, is a sum of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from perfdojo_sdk.core.dialect import Dialect
from perfdojo_sdk.core.dtypes import INTEGER_DTYPES, bits, integer_bounds
from perfdojo_sdk.core.expression import Cast, Expression, Literal, Operation, performs
from perfdojo_sdk.core.frozen import frozen, lazy
from perfdojo_sdk.core.made import Behind, Rewritten
from perfdojo_sdk.core.program import Program, Statement, fresh
from perfdojo_sdk.core.transformation import (
    NO_MOVE,
    Analysed,
    Facts,
    Move,
    Parameter,
    Refusal,
    Relation,
    Remainder,
    Requirement,
    Site,
)
from perfdojo_sdk.core.transformations.reductions import TERMS_READ_THE_SUM, term_that_reads_the_sum


@frozen
class Shift(Facts):
    """``target += a * b`` of integers, and the number that is added to one of the factors."""

    factors: tuple[Expression, ...]
    shifted: int
    """Position of that factor."""
    by: int

    @lazy
    def statements(self) -> tuple[Statement, Statement]:
        """The sum with the greater factor, and the one that takes away what is too much."""
        statement, dtype = self.site.statement, self.site.statement.dtype
        factors, other = list(self.factors), self.factors[1 - self.shifted]
        factors[self.shifted] = Operation("add", (factors[self.shifted], Literal(self.by, dtype)), dtype)
        rest = Operation("mul", (other, Literal(-self.by, dtype)), dtype)
        name = fresh(f"{statement.id}.fix", self.site.program.place_of)
        return (
            replace(statement, value=Operation("mul", tuple(factors), dtype)),
            replace(statement, value=rest, id=name),
        )


def _sum_of_products(statement: Statement) -> tuple[Expression, ...]:
    """The two factors of a product of integers that a statement adds; none where it does something else."""
    value = statement.value
    plain = statement.accumulate == "add" and statement.dtype in INTEGER_DTYPES and not statement.chooses
    return value.arguments if plain and performs(value, "mul") else ()


def _has_opposite(facts: Shift) -> Refusal | None:
    statement = facts.site.statement
    low, high = integer_bounds(statement.dtype)
    if facts.by and low <= -abs(facts.by) and abs(facts.by) <= high:
        return None
    if facts.by == 0:
        problem = "0 changes nothing"
    elif low == 0:
        problem = "a sum without a sign cannot take anything away"
    else:
        problem = f"{statement.dtype} holds numbers from {low} to {high}"
    allowed = f"from {-high} to {high}" if low else f"none, as {statement.dtype} has no sign"
    if low and (usual := _to_other_sign(facts.factors[facts.shifted])):
        allowed += f"; {usual} gives the factor's numbers the other sign"
    return Refusal.of(statement.id, by=facts.by, dtype=statement.dtype, problem=problem, allowed=allowed)


def _no_factor(site: Site) -> Refusal:
    """The refusal of an analysis, with the factors that there are."""
    statement, factor = site.statement, site.move["factor"]
    factors = _sum_of_products(statement)
    lacks, named = "adds no product of two integers", "0 or 1"
    if factors:
        lacks = f"has no factor {factor}"
        named = ", ".join(f"{number} is {value.text}" for number, value in enumerate(factors))
    return Refusal.of(statement.id, statement=statement.text, lacks=lacks, factors=named)


def _room_behind(facts: Shift) -> Refusal | None:
    """A lockstep scope holds one statement."""
    site = facts.site
    if site.above and site.dialect.is_lockstep(site.above[-1].suffix):
        return Refusal.of(site.above[-1].id, site.above[-1].head, head=site.above[-1].head)
    return None


class ShiftFactor(Analysed[Shift]):
    """Add a number to a factor of a sum of integers, and take away again what that adds.

    Integers wrap, so that not a bit of the sum changes. The second statement does not read the factor:
    brought into a nest of its own, it is the same for all results that share the other factor.

    before:
        a i8 [8,16] heap
        b i8 [16] heap
        y i32 [8] heap
        8 y[{0}] = 0
        8 16 y[{0}] += i32(a[{0},{1}]) * i32(b[{1}])
    after: shift_factor(c1, factor=0, by=128)
        8 y[{0}] = 0
        8 16
        | y[{0}] += (i32(a[{0},{1}]) + 128) * i32(b[{1}])
        | y[{0}] += i32(b[{1}]) * -128
    """

    name = "shift_factor"
    place = "statement"
    parameters = (
        Parameter("factor", int, "which of the two factors, 0 or 1"),
        Parameter("by", int, "the number to add"),
    )
    requirements = (
        Requirement(
            "PD-T681",
            "no sum of products of integers",
            "{statement} {lacks}",
            "name a statement s += a * b of integers, and one of its two factors: {factors}",
            None,
            established_by=NO_MOVE,
        ),
        Requirement(
            "PD-T682",
            "the number or its opposite does not fit",
            "{by} and its opposite are no numbers that a sum of {dtype} can use: {problem}",
            "choose a number other than 0 whose opposite the dtype of the sum holds, too: {allowed}",
            _has_opposite,
            established_by=NO_MOVE,
        ),
        Requirement(
            "PD-T683",
            *TERMS_READ_THE_SUM,
            lambda facts: term_that_reads_the_sum(facts.site.program, facts.site.statement),
            semantic=True,
            established_by=NO_MOVE,
        ),
        Requirement(
            "PD-T684",
            "a lockstep scope holds one statement",
            "{head} has no room for a second one",
            "play the move before the scope is annotated",
            _room_behind,
            established_by=NO_MOVE,
        ),
    )

    def candidates(self, program: Program, dialect: Dialect) -> Iterator[Move]:
        for node, *_ in program.places:
            for factor, value in enumerate(_sum_of_products(node) if isinstance(node, Statement) else ()):
                if by := _to_other_sign(value):
                    yield Move(self.name, node.id, (("by", by), ("factor", factor)))

    def analyse(self, site: Site) -> Shift | Refusal:
        factors, factor = _sum_of_products(site.statement), site.move["factor"]
        if 0 <= factor < len(factors):
            return Shift(site, factors, factor, site.move["by"])
        return _no_factor(site)

    def rewrite(self, facts: Shift, /) -> Rewritten:
        return Rewritten(facts.site.replaced(facts.statements), Behind(facts.statements[1].id))

    def relation(self, facts: Shift, result: Program, /) -> Relation:
        return {facts.statements[1].id: Remainder(facts.site.statement.id)}


def _to_other_sign(value: Expression) -> int:
    """The number that makes a converted integer with a sign one without, or the other way round; 0 for other
    values."""
    if not isinstance(value, Cast) or value.argument.dtype not in INTEGER_DTYPES:
        return 0
    source = value.argument.dtype
    half = 1 << (bits(source) - 1)
    if bits(source) >= bits(value.dtype):
        return 0
    return half if integer_bounds(source)[0] < 0 else -half


MOVES = (ShiftFactor(),)

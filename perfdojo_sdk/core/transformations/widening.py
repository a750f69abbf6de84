"""A conversion of integers in two steps, by way of a dtype that holds every value: no bit changes."""

from __future__ import annotations

from collections.abc import Iterator

from perfdojo_sdk.core.dialect import Dialect
from perfdojo_sdk.core.dtypes import BYTES, INTEGER_DTYPES, holds_all
from perfdojo_sdk.core.expression import Cast
from perfdojo_sdk.core.frozen import frozen
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
from perfdojo_sdk.core.transformations.inlining import NOT_ALLOWED, in_its_place, well_formed
from perfdojo_sdk.core.transformations.naming import substitute


@frozen
class Widening(Facts):
    """A conversion of a statement's value, and the dtype between."""

    cast: Cast
    dtype: str

    @property
    def changed(self) -> Statement:
        """The statement after the move."""
        statement, cast = self.site.statement, self.cast
        between = Cast(Cast(cast.argument, self.dtype), cast.dtype)
        return statement.with_parts(statement.target, substitute(statement.value, cast, between))

    @property
    def program(self) -> Program:
        return self.site.replaced((self.changed,))


def _keeps_every_value(facts: Widening) -> Refusal | None:
    source, dtype, target = facts.cast.argument.dtype, facts.dtype, facts.cast.dtype
    if dtype in INTEGER_DTYPES and dtype not in (source, target) and holds_all(dtype, source):
        return None
    return Refusal.of(facts.site.statement.id, facts.cast.text, source=source, target=target, dtype=dtype)


def _well_formed(facts: Widening) -> Refusal | None:
    return well_formed(facts.site, facts.program, (in_its_place(facts.site, facts.changed),))


class WidenInteger(Analysed[Widening]):
    """Convert an integer in two steps, the first of them to a longer integer.

    ``term`` counts the operations and conversions of the value from 0, each before its own arguments.

    before:
        x i8 [8] heap
        y i32 [8] heap
        8 y[{0}] = i32(x[{0}])
    after: widen_integer(c0, dtype=i16, term=0)
        8 y[{0}] = i32(i16(x[{0}]))
    """

    name = "widen_integer"
    place = "statement"
    parameters = (
        Parameter("dtype", str, "the integer dtype between"),
        Parameter("term", int, "which operation or conversion of the value, from 0"),
    )
    requirements = (
        Requirement(
            "PD-T621",
            "no integer is converted there",
            "term {term} of {value} is no conversion of an integer",
            "count the operations and conversions from 0, each before its own arguments",
            None,
            established_by=NO_MOVE,
        ),
        Requirement(
            "PD-T622",
            "the dtype between does not hold every value",
            "{source} is converted to {target}; {dtype} has to be another integer that holds all of {source}",
            "name a longer integer; a signed one holds a shorter one without a sign",
            _keeps_every_value,
            semantic=True,
            established_by=NO_MOVE,
        ),
        Requirement("PD-T623", *NOT_ALLOWED, _well_formed, established_by=("set_location",)),
    )

    def candidates(self, program: Program, dialect: Dialect) -> Iterator[Move]:
        for node, *_ in program.places:
            for term, cast in enumerate(node.value.terms) if isinstance(node, Statement) else ():
                if isinstance(cast, Cast) and cast.argument.dtype in INTEGER_DTYPES:
                    for dtype in INTEGER_DTYPES:
                        if BYTES[dtype] > BYTES[cast.argument.dtype] and dtype != cast.dtype:
                            yield Move(self.name, node.id, (("dtype", dtype), ("term", term)))

    def analyse(self, site: Site) -> Widening | Refusal:
        value, number = site.statement.value, site.move["term"]
        cast = value.terms[number] if 0 <= number < len(value.terms) else None
        if isinstance(cast, Cast) and cast.argument.dtype in INTEGER_DTYPES:
            return Widening(site, cast, site.move["dtype"])
        return Refusal.of(site.statement.id, term=number, value=value.text)

    def rewrite(self, facts: Widening, /) -> Program:
        return facts.program


MOVES = (WidenInteger(),)

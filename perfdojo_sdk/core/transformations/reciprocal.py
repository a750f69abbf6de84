"""A move that computes the reciprocal of a divisor once and multiplies by it in all iterations."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from perfdojo_sdk.core.dialect import Dialect
from perfdojo_sdk.core.dtypes import smallest_normal
from perfdojo_sdk.core.expression import (
    Access,
    Expression,
    Literal,
    Operation,
    Read,
    map_children,
    operations,
    performs,
)
from perfdojo_sdk.core.laws import RECIPROCAL, holds
from perfdojo_sdk.core.made import Rewritten
from perfdojo_sdk.core.magnitudes import invertible
from perfdojo_sdk.core.program import Program, Statement, Touch
from perfdojo_sdk.core.transformation import (
    Analysed,
    Definition,
    Move,
    Refusal,
    Relation,
    Requirement,
    Site,
)
from perfdojo_sdk.core.transformations.staging import (
    ARRAY,
    CONDITIONAL,
    NAMED_CELLS,
    ONE_CONDITION,
    SMALLER,
    TOO_LARGE,
    Form,
    ReadSlice,
    Slice,
    defined,
    named_buffer,
    not_written,
    stage,
    two_elements,
)


def _is_divisor(value: Read, array: str) -> bool:
    return value.access.array == array and holds(RECIPROCAL, value.dtype)


def _divisors(value: Expression, array: str) -> Iterator[Access]:
    for quotient in operations(value):
        divisor = quotient.arguments[-1]
        if quotient.name == "div" and isinstance(divisor, Read) and _is_divisor(divisor, array):
            yield divisor.access


def _unless_tiny(divisor: Read, quotient: Expression, product: Expression) -> Operation:
    """The product with the reciprocal, or the quotient where the reciprocal may overflow."""
    tiny = Literal(smallest_normal(divisor.dtype), divisor.dtype)
    size = Operation("abs", (divisor,), divisor.dtype)
    return Operation("select", (Operation("lt", (size, tiny), "bool"), quotient, product), divisor.dtype)


class StageReciprocal(Analysed[ReadSlice]):
    """Divide once: keep 1/x in a new buffer before the scope, and multiply by it inside.

    Where x may be so small that 1/x overflows, the quotient is chosen then. It is computed everywhere, so
    there is nothing to gain: bounds have to say that x keeps away from zero, as an epsilon in it does.

    before:
        4
        | s[{0}] = abs(x[{0},0]) + 1
        | 8 y[{0},{1}] = x[{0},{1}] / s[{0}]
    after: stage_reciprocal(s1, array=s)
        4
        | s[{0}] = abs(x[{0},0]) + 1
        | s_i[{0}] = 1 / s[{0}]
        | 8 y[{0},{1}] = x[{0},{1}] * s_i[{0}]
    """

    name = "stage_reciprocal"
    version = 2
    place = "scope"
    parameters = (ARRAY,)
    requirements = (
        Requirement(
            "PD-T241",
            "the scope does not divide by the array in one form",
            "{array} is used as {other}",
            "name a scope whose statements divide by one element of a float array",
            None,
            law=RECIPROCAL,
            established_by=("fission_scope",),
        ),
        Requirement(
            "PD-T242",
            "the scope writes the array",
            "{write} changes it after the reciprocal would have been taken",
            "stage at a scope that only reads the array",
            not_written,
            semantic=True,
            established_by=("fission_scope",),
        ),
        Requirement("PD-T243", *NAMED_CELLS, established_by=("set_location",)),
        Requirement("PD-T244", *TOO_LARGE, established_by=SMALLER),
        Requirement("PD-T245", *CONDITIONAL, established_by=ONE_CONDITION),
    )

    def candidates(self, program: Program, dialect: Dialect) -> Iterator[Move]:
        dividing = {
            (node.id, read.array)
            for _, node in program.walk()
            if isinstance(node, Statement)
            for read in node.reads
            if any(_divisors(node.value, read.array))
        }
        divisors = frozenset([array for _, array in dividing])
        for _, scope in program.scopes if dividing else ():
            for array, touches in scope.touches.items() if not divisors.isdisjoint(scope.arrays) else ():
                if array in divisors and not dividing.isdisjoint([(t.statement.id, array) for t in touches]):
                    yield Move(self.name, scope.id, (("array", array),), self.version)

    def analyse(self, site: Site) -> ReadSlice | Refusal:
        array: str = site.move["array"]
        form: Form | None = None
        reads: list[Touch] = []
        for touch in site.scope.touches.get(array, ()):
            if touch.writes or touch.access not in tuple(_divisors(touch.statement.value, array)):
                continue
            found = Form.of(touch.access, site.level, site.outer_sizes + touch.sizes)
            if form is not None and found != form:
                return Refusal.of(touch.statement.id, touch.access, other=touch.access.text)
            form = found
            reads.append(touch)
        if form is None:
            return Refusal.of(site.scope.id, site.scope.head, arrays=(array,), other="no divisor")
        buffer = named_buffer(site, array)
        return ReadSlice(site, array, buffer, Slice.touches(site, buffer), form, tuple(reads))

    def rewrite(self, facts: ReadSlice, /) -> Rewritten:
        array, buffer, site = facts.array, facts.new_buffer("i"), facts.site
        safe = all(invertible(site.program, touch.statement, touch.access) for touch in facts.staged)

        def value(e: Expression) -> Expression:
            made = map_children(e, value)
            divisor = e.arguments[-1] if performs(e, "div") else None
            if isinstance(divisor, Read) and _is_divisor(divisor, array):
                inverse = Read(Form.staged(buffer.name, divisor.access), e.dtype)
                product = Operation("mul", (made.children[0], inverse), e.dtype)
                return product if safe else _unless_tiny(divisor, made, product)
            return made

        one = Literal(1.0, buffer.dtype)
        inside, outside = two_elements(facts, buffer)
        inverse = Operation("div", (one, Read(outside, buffer.dtype)), buffer.dtype)
        define = defined(facts, inside, inverse)
        return stage(facts, buffer, define, None, lambda s: replace(s, value=value(s.value)))

    def relation(self, facts: ReadSlice, result: Program, /) -> Relation:
        return dict.fromkeys(self.rewrite(facts).made.statements, Definition())

    def upgrade(self, move: Move) -> Move | None:
        """Version 1 multiplied whatever the divisor was: where 1/x is infinite, its result was not x/y."""
        return replace(move, version=self.version)


MOVES = (StageReciprocal(),)

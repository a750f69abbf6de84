"""A temporary in a shorter float dtype: the one place where a game may give up digits.

Values are rounded where they are written into the buffer, and converted back where they are read, so
all arithmetic stays as it was. The loss is declared as a law of the move, with the unit roundoff in it;
every record and manifest of the game repeats it.
"""

from __future__ import annotations

from collections.abc import Iterator

from perfdojo_sdk.core.dialect import Dialect
from perfdojo_sdk.core.dtypes import rounding_law
from perfdojo_sdk.core.expression import (
    LEVELS,
    Cast,
    Expression,
    Literal,
    Read,
    map_expression,
)
from perfdojo_sdk.core.frozen import frozen, lazy
from perfdojo_sdk.core.program import LocatedNode, Node, Program, Scope, Statement
from perfdojo_sdk.core.storage import Buffer
from perfdojo_sdk.core.transformation import (
    NO_MOVE,
    Analysed,
    Facts,
    Instance,
    Kind,
    Legal,
    Move,
    Parameter,
    Refusal,
    Relation,
    Requirement,
    Site,
)
from perfdojo_sdk.core.transformations.scopes import refuse_violation
from perfdojo_sdk.core.transformations.storage import OWNED, STAGING, first_use, temporaries
from perfdojo_sdk.core.validate import has_dtype, target_violations

#: The dtype that is rounded; arithmetic on what is read stays in it.
FULL = "f32"


@frozen
class Shortening(Facts):
    """A buffer and the dtype that its values are to be rounded to."""

    dtype: str

    @lazy
    def program(self) -> Program:
        """The program after the move."""
        site, dtype = self.site, self.dtype
        old = site.storage
        buffer = Buffer(old.name, dtype, old.dimensions, old.location, old.arrays)
        arrays = frozenset(old.arrays)
        body = tuple([_rounded_in(node, arrays, dtype) for node in site.program.body])
        return site.program.with_buffer(old.name, buffer).with_body(body)

    @lazy
    def touching(self) -> tuple[LocatedNode, ...]:
        """The statements of that program that touch the buffer."""
        arrays, places = frozenset(self.site.storage.arrays), self.program.places
        return tuple(
            [p for p in places if isinstance(p.node, Statement) and not arrays.isdisjoint(p.node.arrays)]
        )


def _declared(facts: Shortening) -> Refusal | Legal:
    site, dtype, known = facts.site, facts.dtype, facts.site.dialect.roundings
    if dtype in known:
        return Legal(Kind.CHANGES_PRECISION, frozenset((rounding_law(dtype),)))
    listed = ", ".join(sorted(known)) or "nothing"
    return Refusal.of(first_use(site), arrays=site.storage.arrays, dtype=dtype, known=listed)


def _is_full(facts: Shortening) -> Refusal | None:
    buffer = facts.site.storage
    if buffer.dtype == FULL:
        return None
    return Refusal.of(first_use(facts.site), arrays=buffer.arrays, buffer=buffer.name, dtype=buffer.dtype)


def _not_accumulated(facts: Shortening) -> Refusal | None:
    name = facts.site.storage.name
    for o in facts.site.program.occurrences[name]:
        if o.writes and o.statement.accumulate:
            return Refusal.of(o.statement.id, o.access, buffer=name, write=o.statement.text)
    return None


def _typed(facts: Shortening) -> Refusal | None:
    for o in facts.site.program.occurrences[facts.site.storage.name]:
        value = o.statement.value
        if o.writes and not isinstance(value, Literal) and not has_dtype(value):
            return Refusal.of(o.statement.id, value.text, access=o.access, value=value.text)
    return None


def _rounded_in(node: Node, arrays: frozenset[str], dtype: str) -> Node:
    if arrays.isdisjoint(node.arrays):
        return node
    if isinstance(node, Scope):
        return node.with_body(tuple([_rounded_in(child, arrays, dtype) for child in node.body]))

    def read(leaf: Expression) -> Expression:
        if isinstance(leaf, Read) and leaf.access.array in arrays:
            return Cast(Read(leaf.access, dtype), FULL)
        return leaf

    value = map_expression(node.value, read)
    if node.target.array not in arrays:
        return node.with_parts(node.target, value)
    return Statement(node.target, _rounded(value, dtype), node.accumulate, dtype, node.id, node.guard)


def _rounded(value: Expression, dtype: str) -> Expression:
    """The value in the shorter dtype; a value that was converted from it is not rounded again."""
    if isinstance(value, Literal):
        return Literal(value.value, dtype)
    if isinstance(value, Cast) and value.argument.dtype == dtype:
        return value.argument
    return Cast(value, dtype)


def _allowed(facts: Shortening) -> Refusal | None:
    problem = next(target_violations(facts.program, facts.touching, facts.site.dialect), None)
    return refuse_violation(facts.site, problem, problem.node or first_use(facts.site)) if problem else None


class LowerPrecision(Analysed[Shortening]):
    """Keep a temporary in a shorter float dtype: values are rounded when they are written.

    Stage the operands of a product first, and only their copies are rounded; the sums stay as they are.

    before:
        t f32 [8] heap
        8 t[{0}] = x[{0}]
        8 y[{0}] = t[{0}] * t[{0}]
    after: lower_precision(t, dtype=bf16)
        t bf16 [8] heap
        8 t[{0}] = bf16(x[{0}])
        8 y[{0}] = f32(t[{0}]) * f32(t[{0}])
    """

    name = "lower_precision"
    place = "buffer"
    parameters = (Parameter("dtype", str, "a shorter float dtype to which the target rounds"),)
    requirements = (
        Requirement("PD-T601", *OWNED, semantic=True, established_by=STAGING),
        Requirement(
            "PD-T602",
            "the target does not round to this dtype",
            "{dtype} is asked for; the target declares roundings to {known}",
            "use a dtype that the target declares, or keep the precision",
            _declared,
            semantic=True,
            established_by=NO_MOVE,
        ),
        Requirement(
            "PD-T603",
            f"the buffer does not hold {FULL}",
            "{buffer} holds {dtype}",
            f"lower a buffer of {FULL}",
            _is_full,
            established_by=NO_MOVE,
        ),
        Requirement(
            "PD-T604",
            "the buffer is accumulated into",
            "{write} would round the sum at each of its steps, and no bound is declared for that",
            "keep the sums as they are, and lower the copies of the operands (stage_read makes them)",
            _not_accumulated,
            established_by=("stage_read",),
        ),
        Requirement(
            "PD-T605",
            "a value takes its dtype from the buffer",
            f"{{value}} is made of iterators and literals alone, which are {FULL} because the cell is",
            "lower a buffer whose values are read from arrays",
            _typed,
            established_by=NO_MOVE,
        ),
        Requirement(
            "PD-T606",
            "the target does not allow the dtype there",
            "{what}",
            "lower the precision before vectorising or setting the location",
            _allowed,
            established_by=("set_location",),
        ),
    )

    def candidates(self, program: Program, dialect: Dialect) -> Iterator[Move]:
        for buffer in temporaries(program) if dialect.roundings else ():
            if buffer.dtype == FULL:
                for dtype in sorted(dialect.roundings):
                    yield Move(self.name, buffer.name, (("dtype", dtype),))

    def analyse(self, site: Site) -> Shortening:
        return Shortening(site, site.move["dtype"])

    def rewrite(self, facts: Shortening, /) -> Program:
        return facts.program

    def relation(self, facts: Shortening, result: Program, /) -> Relation:
        """The statements that touch the buffer round, and no others."""
        return {
            p.node.id: Instance(p.node.id, tuple(LEVELS[: len(p.sizes)]), rounded=facts.dtype)
            for p in facts.touching
        }


MOVES = (LowerPrecision(),)

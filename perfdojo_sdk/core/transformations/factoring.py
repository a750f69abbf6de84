"""A move that takes a common factor out of a sum: a*c + b*c = (a + b)*c, a law that rounding breaks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from perfdojo_sdk.core.dialect import Dialect
from perfdojo_sdk.core.expression import Access, AffineExpr, Expression, Literal, Operation, Read, performs
from perfdojo_sdk.core.frozen import frozen, lazy
from perfdojo_sdk.core.laws import FACTOR
from perfdojo_sdk.core.made import Nest, Rewritten, Staged
from perfdojo_sdk.core.operations import identity
from perfdojo_sdk.core.program import Program, Statement, fresh
from perfdojo_sdk.core.projection import Guard
from perfdojo_sdk.core.storage import Buffer, Dimension
from perfdojo_sdk.core.transformation import (
    NO_MOVE,
    Analysed,
    Facts,
    Move,
    PartialStart,
    Refusal,
    Relation,
    Requirement,
    ScaledCombine,
    Site,
)
from perfdojo_sdk.core.transformations.reductions import (
    ACCUMULATED_OTHERWISE,
    TERMS_READ_THE_SUM,
    another_accumulation,
    condition_of_results,
    results_known,
    term_that_reads_the_sum,
    with_statement,
)
from perfdojo_sdk.core.transformations.staging import stays_inside


def factors(value: Expression) -> tuple[Expression, ...]:
    """The factors of a product, from the left; a single one where the value is no product."""
    if performs(value, "mul"):
        return tuple([f for a in value.arguments for f in factors(a)])
    return (value,)


def product(parts: list[Expression]) -> Expression:
    whole = parts[0]
    for part in parts[1:]:
        whole = Operation("mul", (whole, part), whole.dtype)
    return whole


@frozen
class SumOfProducts(Facts):
    """``target += a * c`` in a perfect nest, whose target and some factors are the same in all iterations."""

    statement: Statement
    parts: tuple[Expression, ...]
    """The factors."""
    fixed: tuple[int, ...]
    """Positions of those that are the same in all iterations."""

    @lazy
    def condition(self) -> Guard | None:
        """The condition of the product: it changes the sum, and reads its factors, where a term did."""
        return condition_of_results(self.site, self.statement, self.site.scope.chain[0])

    @lazy
    def factored(self) -> Rewritten:
        """The program after the move."""
        site, statement, parts, fixed = self.site, self.statement, self.parts, self.fixed
        taken, dtype = site.program.place_of, statement.dtype
        name = fresh(f"{statement.target.array}_f", site.program.names)
        used = {*statement.target.levels, *statement.value.levels}
        dims = sorted([level for level in used if level < site.level])
        sizes = tuple([Dimension(site.outer_sizes[level]) for level in dims])
        buffer = Buffer(name, dtype, sizes, site.dialect.default_location, (name,))
        partial = Access(name, tuple([AffineExpr.level(level) for level in dims]))
        zero = Literal(identity("add", dtype), dtype)
        start = Statement(partial, zero, None, dtype, fresh(f"{name}.in", taken))
        value = product([p for k, p in enumerate(parts) if k not in fixed])
        inner = replace(statement, target=partial, value=value)
        scaled = Operation("mul", (Read(partial, dtype), product([parts[k] for k in fixed])), dtype)
        guard = self.condition or ()
        combine = Statement(statement.target, scaled, "add", dtype, fresh(f"{name}.out", taken), guard)
        nodes = (start, with_statement(site.scope, inner), combine)
        made = Staged(name, (Nest.of(start), Nest.of(combine)))
        return Rewritten(site.replaced(nodes, buffer=buffer), made)


def _product_known(facts: SumOfProducts) -> Refusal | None:
    """The sums that get a term are known, and the factors that they are multiplied by stay inside their
    arrays."""
    site, statement, condition = facts.site, facts.statement, facts.condition
    refused = results_known(site, statement, site.scope.chain[0], condition)
    if refused is None and statement.guard:
        for read in [read for k in facts.fixed for read in facts.parts[k].reads]:
            if not stays_inside(site.program, read, site.outer_sizes, condition or ()):
                return Refusal.of(statement.id, read, statement=statement.text)
    return refused


class FactorReduction(Analysed[SumOfProducts]):
    """Add terms up first and multiply once by the factors that all of them share.

    before:
        4
        | s[{0}] = 0
        | 8 s[{0}] += x[{0},{1}] * c[{0}]
    after: factor_reduction(s1)
        4
        | s[{0}] = 0
        | s_f[{0}] = 0
        | 8 s_f[{0}] += x[{0},{1}]
        | s[{0}] += s_f[{0}] * c[{0}]
    """

    name = "factor_reduction"
    place = "scope"
    requirements = (
        Requirement(
            "PD-T291",
            "the scope is no sum of products with a common factor",
            "{head} is not a perfect nest around one s += a * c whose s and c are the same in all iterations",
            "separate the sum with fission_scope, or name a scope further in",
            None,
            law=FACTOR,
            established_by=("fission_scope", "swap_scopes", "inline_definition"),
        ),
        Requirement(
            "PD-T292",
            *TERMS_READ_THE_SUM,
            lambda facts: term_that_reads_the_sum(facts.site.program, facts.statement),
            semantic=True,
            established_by=NO_MOVE,
        ),
        Requirement(
            "PD-T293",
            *ACCUMULATED_OTHERWISE,
            lambda facts: another_accumulation(facts.site.program, facts.statement),
            established_by=("stage_write",),
        ),
        Requirement(
            "PD-T294",
            "no condition says which sums get a term",
            "{statement}: a sum that gets none would be read, and so would its factors",
            "split the scopes so that the condition goes away",
            _product_known,
            established_by=("drop_condition", "split_range"),
        ),
    )

    def candidates(self, program: Program, dialect: Dialect) -> Iterator[Move]:
        for _, scope in program.scopes:
            _, statement = scope.chain
            if statement and statement.accumulate == "add" and len(factors(statement.value)) > 1:
                yield Move(self.name, scope.id)

    def analyse(self, site: Site) -> SumOfProducts | Refusal:
        _, statement = site.scope.chain
        refusal = Refusal.of(site.scope.id, site.scope.head, head=site.scope.head)
        if statement is None or statement.accumulate != "add" or statement.chooses:
            return refusal
        parts = factors(statement.value)
        fixed = [k for k, part in enumerate(parts) if part.highest < site.level]
        target = max(statement.target.levels, default=-1)
        if target >= site.level or not fixed or len(fixed) == len(parts):
            return refusal
        return SumOfProducts(site, statement, parts, tuple(fixed))

    def rewrite(self, facts: SumOfProducts, /) -> Rewritten:
        return facts.factored

    def relation(self, facts: SumOfProducts, result: Program, /) -> Relation:
        start, combine = facts.factored.made.statements
        return {start: PartialStart(), combine: ScaledCombine(facts.statement.id, facts.fixed)}


MOVES = (FactorReduction(),)

"""Moves on reductions: partial results."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from perfdojo_sdk.core.dialect import Dialect
from perfdojo_sdk.core.expression import Access, AffineExpr, Literal, Read
from perfdojo_sdk.core.frozen import frozen, lazy
from perfdojo_sdk.core.made import Nest, Rewritten, Staged
from perfdojo_sdk.core.operations import identity
from perfdojo_sdk.core.program import Node, Program, Scope, Statement, fresh
from perfdojo_sdk.core.projection import Guard, reached
from perfdojo_sdk.core.storage import Buffer, Dimension
from perfdojo_sdk.core.transformation import (
    NO_MOVE,
    Analysed,
    Facts,
    Kind,
    Move,
    Parameter,
    PartialCombine,
    PartialStart,
    Refusal,
    Relation,
    Requirement,
    Site,
    reordered,
)
from perfdojo_sdk.core.transformations.staging import nest, stays_inside


@frozen
class Accumulation(Facts):
    """A perfect nest around one accumulation, and the scope that gets partial results."""

    statement: Statement
    nest: tuple[Scope, ...]
    lane: int
    """Level of that scope; -1 where it is none of the nest."""
    combination: str
    """The operation of the accumulation."""

    @lazy
    def condition(self) -> Guard | None:
        """The condition of the combination, in the levels of the nest: see :func:`condition_of_results`."""
        return condition_of_results(self.site, self.statement, self.nest)


def _lane_reduces(facts: Accumulation) -> Refusal | None:
    target, level, scope = facts.statement.target, facts.lane, facts.site.scope
    if level < 0 or level in target.levels:
        lane = facts.nest[level - facts.site.level].id if level >= 0 else ""
        words = {"lane": facts.site.move["lane"], "target": target.text}
        return Refusal.of(scope.id, scope.head, access=target, iterator=lane, **words)
    return None


def _reads_elsewhere(facts: Accumulation) -> Refusal | Kind:
    statement, buffer_of = facts.statement, facts.site.program.buffer_of
    target = buffer_of[statement.target.array]
    for read in statement.reads:
        if buffer_of[read.array] is target:
            return Refusal.of(statement.id, read, read=read.text)
    return reordered(facts.site.program)


def _addressable(facts: Accumulation) -> Refusal | None:
    statement, site = facts.statement, facts.site
    buffer = site.program.buffer_of[statement.target.array]
    if not site.dialect.locations[buffer.location].constant_subscripts:
        return None
    return Refusal.of(statement.id, statement.target, location=buffer.location, buffer=buffer.name)


def condition_of_results(site: Site, statement: Statement, nest: tuple[Scope, ...]) -> Guard | None:
    """The condition on a result, and on the iterators around the nest, that holds where the accumulation in
    the nest touches the result at all; None if none says so.

    It is that of the combination. Proof: a partial result starts from the identity, whatever the condition,
    so it is the combination of the terms that one iteration of the lane adds, and the identity if there is
    none. If the condition holds, the accumulation reads and writes the result in the same iteration of the
    scopes around: it was written before, lies inside its array and is no other thread's, and combining the
    identities of other lanes does not change it. If not, no term is lost, as there is none, and the result,
    which may never have been written or may be another thread's, is left alone.
    """
    level, sizes = site.level, (*site.outer_sizes, *(scope.size for scope in nest))
    used = statement.target.levels
    return reached(statement.guard, sizes, [l for l in range(level, len(sizes)) if l not in used])


def results_known(
    site: Site, statement: Statement, nest: tuple[Scope, ...], condition: Guard | None
) -> Refusal | None:
    """A refusal unless the condition of the results is known, and keeps the target inside its array."""
    if not statement.guard:
        return None
    sizes = (*site.outer_sizes, *(scope.size for scope in nest))
    if condition is not None and stays_inside(site.program, statement.target, sizes, condition):
        return None
    return Refusal.of(statement.id, "if", access=statement.target, statement=statement.text)


class SplitReduction(Analysed[Accumulation]):
    """Give each iteration of one scope of a reduction a partial result of its own (rfactor).

    before:
        y[0] = 0
        8 16 y[0] += x[{0}*16+{1}]
    after: split_reduction(s0, lane=s1)
        y[0] = 0
        16 y_p[{0}] = 0
        8 16 y_p[{1}] += x[{0}*16+{1}]
        16 y[0] += y_p[{0}]
    """

    name = "split_reduction"
    place = "scope"
    parameters = (Parameter("lane", str, "id of the scope whose iterations get partial results"),)
    requirements = (
        Requirement(
            "PD-T231",
            "not a perfect nest around one accumulation",
            "{head} holds something else",
            "separate the accumulation with fission_scope first",
            None,
            established_by=("fission_scope",),
        ),
        Requirement(
            "PD-T232",
            "the lane is no reduction scope of the nest",
            "{lane} is not inside the scope, or {target} depends on it",
            "name a scope of the nest that the target does not depend on",
            _lane_reduces,
            established_by=NO_MOVE,
        ),
        Requirement(
            "PD-T233",
            "the accumulated value depends on the result",
            "{read} reads what is being accumulated, so the order of the terms matters",
            "keep the order",
            _reads_elsewhere,
            semantic=True,
            established_by=NO_MOVE,
        ),
        Requirement(
            "PD-T234",
            "the target's cells are named, not addressed",
            "{buffer} lives in {location}; loops cannot run over it",
            "split the reduction before setting the location",
            _addressable,
            established_by=("set_location",),
        ),
        Requirement(
            "PD-T235",
            "no condition says which results are accumulated into",
            "{statement}: a result that it never touches would be read for the combination",
            "split the scopes so that the condition goes away",
            lambda facts: results_known(facts.site, facts.statement, facts.nest, facts.condition),
            established_by=("drop_condition", "split_range"),
        ),
    )

    def candidates(self, program: Program, dialect: Dialect) -> Iterator[Move]:
        for path, scope in program.scopes:
            nest, statement = scope.chain
            if statement is None or statement.accumulate is None:
                continue
            used = statement.target.levels
            for k, lane in enumerate(nest):
                if len(path) - 1 + k not in used:
                    yield Move(self.name, scope.id, (("lane", lane.id),))

    def analyse(self, site: Site) -> Accumulation | Refusal:
        chain, statement = site.scope.chain
        if statement is None or statement.accumulate is None or statement.chooses:
            return Refusal.of(site.scope.id, site.scope.head, head=site.scope.head)
        name = site.move["lane"]
        lane = next((site.level + k for k, s in enumerate(chain) if s.id == name), -1)
        return Accumulation(site, statement, chain, lane, statement.accumulate)

    def rewrite(self, facts: Accumulation, /) -> Rewritten:
        site, chain, statement = facts.site, facts.nest, facts.statement
        level, lane = site.level, facts.lane
        dims = sorted({*statement.target.levels, lane})
        sizes = (*site.outer_sizes, *(s.size for s in chain))
        name = fresh(f"{statement.target.array}_p", site.program.names)
        dtype = statement.dtype
        buffer = Buffer(
            name, dtype, tuple(Dimension(sizes[l]) for l in dims), site.dialect.default_location, (name,)
        )
        inner = [l for l in dims if l >= level]
        renamed = {l: AffineExpr.level(level + k) for k, l in enumerate(inner)}

        def form(l: int) -> AffineExpr:
            return renamed.get(l) or AffineExpr.level(l)

        partial = Access(name, tuple(AffineExpr.level(l) for l in dims))
        here = partial.substitute(form)
        start = Statement(here, Literal(identity(facts.combination, dtype), dtype), None, dtype)
        guard = tuple([each.substitute(form) for each in facts.condition or ()])
        whole = statement.target.substitute(form)
        combine = Statement(whole, Read(here, dtype), facts.combination, dtype, guard=guard)
        inner_sizes = [sizes[l] for l in inner]
        taken = site.program.place_of
        first = nest(start, inner_sizes, f"{name}.in", taken)
        partly = with_statement(site.scope, replace(statement, target=partial))
        last = nest(combine, inner_sizes, f"{name}.out", taken)
        made = Staged(name, (Nest.of(first), Nest.of(last)))
        return Rewritten(site.replaced((first, partly, last), buffer=buffer), made)

    def relation(self, facts: Accumulation, result: Program, /) -> Relation:
        start, combine = self.rewrite(facts).made.statements
        return {start: PartialStart(), combine: PartialCombine()}


def term_that_reads_the_sum(program: Program, statement: Statement) -> Refusal | None:
    """A refusal where an accumulation reads the buffer that it adds to."""
    buffer = program.buffer_of[statement.target.array]
    for read in statement.reads:
        if program.buffer_of[read.array] is buffer:
            return Refusal.of(statement.id, read, target=statement.target.text, other=read.text)
    return None


def another_accumulation(program: Program, statement: Statement) -> Refusal | None:
    """A statement that accumulates into the buffer of a sum in another way than adding."""
    buffer = program.buffer_of[statement.target.array]
    for o in program.occurrences[buffer.name]:
        if o.writes and o.statement.accumulate not in (None, "add"):
            return Refusal.of(o.statement.id, o.access, nodes=(statement.id,), other=o.statement.text)
    return None


TERMS_READ_THE_SUM = (
    "the terms depend on the sum",
    "{other} reads what is being added to {target}",
    "keep the order",
)
ACCUMULATED_OTHERWISE = (
    "the result is accumulated in other ways too",
    "{other} is of another kind, so the order of the two counts",
    "give the sum an array of its own with stage_write",
)


def with_statement(node: Node, statement: Statement) -> Node:
    if isinstance(node, Statement):
        return statement
    return node.with_body((with_statement(node.body[0], statement),))


MOVES = (SplitReduction(),)

"""Moves about conditions: make one where a size does not divide, drop one that decides nothing."""

from __future__ import annotations

from collections.abc import Iterator

from perfdojo_sdk.core.dialect import Dialect
from perfdojo_sdk.core.expression import AffineExpr, Renumbering
from perfdojo_sdk.core.frozen import frozen, lazy
from perfdojo_sdk.core.geometry import lane_counts
from perfdojo_sdk.core.lookups import lookups_of
from perfdojo_sdk.core.made import Gone, Rewritten
from perfdojo_sdk.core.program import Node, Path, Program, Scope, Statement
from perfdojo_sdk.core.transformation import (
    NO_MOVE,
    Analysed,
    Facts,
    Instance,
    Move,
    Parameter,
    Refusal,
    Relation,
    Requirement,
    Site,
)
from perfdojo_sdk.core.transformations.scopes import (
    FACTOR_IN_RANGE,
    NO_SUFFIX,
    Division,
    levels,
    negative_dividend,
    reaching_outside,
    shifted,
    statements_below,
)

# -- split_with_condition --------------------------------------------------------------------------


@frozen
class GuardedDivision(Division):
    """A division with a remainder, and the nest in which a condition excludes iterations beyond the size."""

    @lazy
    def nest(self) -> Scope:
        """The two scopes with the condition on every statement inside."""
        site, factor, made = self.site, self.factor, self.halves
        scope, level = site.scope, site.level
        position = AffineExpr.of({level: factor, level + 1: 1})
        by = Renumbering((*levels(level), position, *shifted(level + 1, 1)), level)
        condition = AffineExpr(scope.size - 1).plus(position, -1)
        guarded = tuple([with_condition(child.renumbered(by), condition) for child in scope.body])
        inner = Scope(factor, guarded, "", made.inner)
        return Scope(-(-scope.size // factor), (inner,), "", made.outer)


def _factor_leaves_a_rest(facts: Division) -> Refusal | None:
    scope, factor = facts.site.scope, facts.factor
    if scope.size % factor:
        return None
    return Refusal.of(scope.id, scope.head, size=scope.size, factor=factor)


def _stays_inside(facts: GuardedDivision) -> Refusal | None:
    """Every subscript is shown to stay inside its dimension wherever the condition holds."""
    scope, access = facts.site.scope, reaching_outside(facts.site, facts.nest)
    return Refusal.of(scope.id, scope.head, access=access) if access else None


def _dividends_stay(facts: GuardedDivision) -> Refusal | None:
    return negative_dividend(facts.site, facts.nest)


def with_condition(node: Node, condition: AffineExpr) -> Node:
    """The node with a condition on every statement inside."""
    if isinstance(node, Scope):
        return node.with_body(tuple([with_condition(child, condition) for child in node.body]))
    return node.with_guard((*node.guard, condition))


class SplitWithCondition(Analysed[GuardedDivision]):
    """Split a scope whose size the factor does not divide; what lies beyond the size is not done.

    before:
        10 y[{0}] = x[{0}]
    after: split_with_condition(s0, factor=4)
        3 4 y[{0}*4+{1}] = x[{0}*4+{1}] if {0}*4+{1} <= 9
    """

    name = "split_with_condition"
    place = "scope"
    parameters = (Parameter("factor", int, "iterations of the inner scope", counts=True),)
    requirements = (
        Requirement("PD-T401", *FACTOR_IN_RANGE, established_by=("join_ranges", "collapse_scopes")),
        Requirement(
            "PD-T402",
            "the factor divides the size",
            "{factor} divides {size}: no condition is needed",
            "use split_scope",
            _factor_leaves_a_rest,
            established_by=NO_MOVE,
        ),
        Requirement("PD-T403", *NO_SUFFIX, established_by=NO_MOVE),
        Requirement(
            "PD-T404",
            "a subscript cannot be shown to stay inside its array",
            "{access} is used in more iterations than there are, and the condition does not bound it",
            "use split_range, which leaves the iterations as they are",
            _stays_inside,
            established_by=("pad_dim",),
        ),
        Requirement(
            "PD-T405",
            "what is divided may be negative beyond the size",
            "{form} is divided, and in iterations that the condition leaves out it may be below 0",
            "use split_range, which leaves the iterations as they are",
            _dividends_stay,
            established_by=NO_MOVE,
        ),
    )

    def candidates(self, program: Program, dialect: Dialect) -> Iterator[Move]:
        for _, scope in program.scopes:
            for factor in sorted({*lane_counts(scope, dialect), 4}) if not scope.suffix else ():
                if 1 < factor < scope.size and scope.size % factor:
                    yield Move(self.name, scope.id, (("factor", factor),))

    def analyse(self, site: Site) -> GuardedDivision:
        return GuardedDivision(site, site.move["factor"])

    def rewrite(self, facts: GuardedDivision, /) -> Rewritten:
        return Rewritten(facts.site.replaced((facts.nest,)), facts.halves)

    def relation(self, facts: GuardedDivision, result: Program, /) -> Relation:
        site, factor = facts.site, facts.factor
        level = site.level
        position = AffineExpr.of({level: factor, level + 1: 1})
        return {
            statement.id: Instance(
                statement.id, (*levels(level), position, *levels(depth - level - 1, level + 2))
            )
            for statement, depth in statements_below(site.scope, level)
        }


# -- drop_condition, drop_unreached ----------------------------------------------------------------


@frozen
class Decided(Facts):
    """The comparisons of a statement's condition that come out the same in every iteration."""

    always: tuple[AffineExpr, ...]
    """The conditions that hold."""
    never: tuple[AffineExpr, ...]
    """The conditions that fail."""

    @staticmethod
    def of(site: Site) -> Decided:
        bounds = [(form, form.bounds(site.outer_sizes)) for form in site.statement.guard]
        always = tuple([form for form, (low, _) in bounds if low >= 0])
        return Decided(site, always, tuple([form for form, (_, high) in bounds if high < 0]))


def _something_always_holds(facts: Decided) -> Refusal | None:
    statement = facts.site.statement
    return None if facts.always else Refusal.of(statement.id, "if", statement=statement.text)


class DropCondition(Analysed[Decided]):
    """Drop the comparisons of a condition that hold in every iteration.

    before:
        8 y[{0}] = x[{0}] if {0} <= 7
    after: drop_condition(c0)
        8 y[{0}] = x[{0}]
    """

    name = "drop_condition"
    place = "statement"
    requirements = (
        Requirement(
            "PD-T411",
            "no part of the condition always holds",
            "{statement}: each comparison fails in some iteration, or there is none",
            "split the scope where the condition changes, with split_range",
            _something_always_holds,
            semantic=True,
            established_by=("split_range",),
        ),
    )

    def candidates(self, program: Program, dialect: Dialect) -> Iterator[Move]:
        return _guarded(self.name, program)

    def analyse(self, site: Site) -> Decided:
        return Decided.of(site)

    def rewrite(self, facts: Decided, /) -> Program:
        # A mutant without the requirement drops everything.
        statement, dropped = facts.site.statement, facts.always or facts.site.statement.guard
        kept = tuple([form for form in statement.guard if form not in dropped])
        return facts.site.replaced((statement.with_guard(kept),))


def _something_never_holds(facts: Decided) -> Refusal | None:
    statement = facts.site.statement
    return None if facts.never else Refusal.of(statement.id, "if", statement=statement.text)


def _something_is_left(facts: Decided) -> Refusal | None:
    site = facts.site
    if len(emptied(site.program, site.path)) > 1 or len(site.program.body) > 1:
        return None
    return Refusal.of(site.statement.id)


def _no_first_write(facts: Decided) -> Refusal | None:
    """Others read what the statement would have written, and nothing else writes that before. They do not
    run either, but no program starts with a read."""
    site, array = facts.site, facts.site.statement.target.array
    buffer = site.program.buffer_of[array]
    if not frozenset(site.program.inputs).isdisjoint(buffer.arrays):
        return None
    first = next((o for o in site.program.occurrences[buffer.name] if o.path != site.path), None)
    if first is None and set(buffer.arrays).isdisjoint(site.program.outputs):
        return None
    plain = first is not None and first.writes and not first.statement.accumulate
    if first is not None and plain and not any(lookups_of((first.access,))):
        return None
    return Refusal.of(site.statement.id, site.statement.target, statement=site.statement.text)


def emptied(program: Program, path: Path) -> Path:
    """The outermost node that holds nothing but the statement at ``path``."""
    while len(path) > 1 and len(program.siblings(path)) == 1:
        path = path[:-1]
    return path


class DropUnreached(Analysed[Decided]):
    """Drop a statement whose condition holds in no iteration, with scopes that hold nothing else.

    before:
        8 y[{0}] = x[{0}]
        8 y[{0}] = 0 if {0} >= 8
    after: drop_unreached(c1)
        8 y[{0}] = x[{0}]
    """

    name = "drop_unreached"
    place = "statement"
    requirements = (
        Requirement(
            "PD-T421",
            "the statement is reached",
            "{statement}: no comparison fails in every iteration",
            "split the scope where the condition changes, with split_range",
            _something_never_holds,
            semantic=True,
            established_by=("split_range",),
        ),
        Requirement(
            "PD-T422",
            "nothing would be left",
            "it is the only statement of the program",
            "keep it",
            _something_is_left,
            established_by=NO_MOVE,
        ),
        Requirement(
            "PD-T423",
            "the statement is the first write of what others read",
            "{statement}: the array would be read before it is written",
            "drop the statements that read it first",
            _no_first_write,
            established_by=("drop_unreached",),
        ),
    )

    def candidates(self, program: Program, dialect: Dialect) -> Iterator[Move]:
        return _guarded(self.name, program)

    def analyse(self, site: Site) -> Decided:
        return Decided.of(site)

    def rewrite(self, facts: Decided, /) -> Rewritten:
        site = facts.site
        path = emptied(site.program, site.path)
        gone = tuple([p.node.id for p in site.program.places if p.path[: len(path)] == path])
        return Rewritten(site.program.replaced(path, ()), Gone(gone))


def _guarded(name: str, program: Program) -> Iterator[Move]:
    for _, node in program.walk():
        if isinstance(node, Statement) and node.guard:
            yield Move(name, node.id)


MOVES = (SplitWithCondition(), DropCondition(), DropUnreached())

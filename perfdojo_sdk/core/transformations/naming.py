"""Moves that compute a part of a value beforehand and keep it in a new buffer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod
from typing import Any, ClassVar, NamedTuple

from perfdojo_sdk.core.dialect import Dialect
from perfdojo_sdk.core.expression import (
    LEVELS,
    Access,
    AffineExpr,
    Condition,
    Expression,
    Form,
    IndexValue,
    Read,
    Renumbering,
    renumbered,
)
from perfdojo_sdk.core.frozen import frozen, lazy
from perfdojo_sdk.core.geometry import negative_dividends
from perfdojo_sdk.core.made import Made, Nest, Rewritten, Staged
from perfdojo_sdk.core.program import LocatedNode, Node, Program, Statement, enclosed, fresh, innermost
from perfdojo_sdk.core.projection import Guard, reached
from perfdojo_sdk.core.storage import Buffer, Dimension
from perfdojo_sdk.core.transformation import (
    NO_MOVE,
    Analysed,
    Definition,
    Facts,
    Move,
    Parameter,
    Refusal,
    Relation,
    Requirement,
    Site,
)
from perfdojo_sdk.core.transformations.inlining import NOT_ALLOWED, well_formed
from perfdojo_sdk.core.transformations.staging import MAX_STAGED_CELLS, nest, stays_inside


def substitute(value: Expression, old: Expression, new: Expression) -> Expression:
    """The value with every ``old`` in it replaced."""
    if value == old:
        return new
    children = value.children
    if not children:
        return value
    return value.with_children(tuple([substitute(child, old, new) for child in children]))


@frozen
class Term(Facts):
    """A part of a statement's value, and the place where it will be computed."""

    depth: int
    """Number of scopes around that place."""
    value: Expression

    @lazy
    def dims(self) -> tuple[tuple[int, ...], ...]:
        """For each dimension of the new buffer the iterators whose sum is its subscript."""
        return tuple([(level,) for level in sorted(self.value.levels)])

    @lazy
    def shape(self) -> tuple[int, ...]:
        """The sizes of the dimensions of the new buffer."""
        sizes = self.site.outer_sizes
        return tuple([sum([sizes[level] - 1 for level in levels]) + 1 for levels in self.dims])

    @lazy
    def condition(self) -> Guard | None:
        """The condition of the new statement, in the iterators of its place and, for the others, the first of
        those that share a dimension: it holds where the value is used. None if none says so."""
        guard, sizes = self.site.statement.guard, list(self.site.outer_sizes)
        if not guard:
            return ()
        kept = set(range(self.depth))
        for (first, *others), count in zip(self.dims, self.shape, strict=True):
            kept.add(first)
            if others:  # The first stands for the sum from here on: it was the sum less the others.
                size, alone = sizes[first], LEVELS[first].plus(AffineExpr.of(dict.fromkeys(others, 1)), -1)
                forms = [alone if level == first else LEVELS[level] for level in range(len(sizes))]
                guard = tuple([form.substitute(forms.__getitem__) for form in guard])
                guard += (alone, AffineExpr(size - 1).plus(alone, -1))
                sizes[first] = count
        return reached(guard, sizes, [level for level in range(len(sizes)) if level not in kept])

    @lazy
    def named(self) -> _Named:
        return _named(self)


@frozen
class SlidingTerm(Term):
    """A term that may use iterators as their sum only; these share a dimension."""

    @lazy
    def dims(self) -> tuple[tuple[int, ...], ...]:
        """Iterators that stand in every subscript with one coefficient count for their sum only.

        Those outside of the place where the value will be computed keep a dimension of their own, as do
        those in quotients.
        """
        value, depth = self.value, self.depth
        forms = [_index(form) for form in value.forms]
        inside = {level for form in forms for q, _ in form.quotients for level in q.levels}
        groups: dict[object, list[int]] = {}
        for level in sorted(value.levels):
            alone = level < depth or level in inside
            key = level if alone else tuple([form.coefficients.get(level, 0) for form in forms])
            groups.setdefault(key, []).append(level)
        return tuple([tuple(levels) for levels in groups.values()])


def _computed_where_used(facts: Term) -> Refusal | None:
    """The value is computed where the statement uses it, and nowhere else; its operands may be missing there,
    or a quotient of integers have no value."""
    statement = facts.site.statement
    if not statement.guard:
        return None
    if facts.condition is not None:
        new = facts.named.places[0]
        assert isinstance(new.node, Statement)
        program, guard, sizes = facts.named.program, new.node.guard, new.sizes
        inside = all(stays_inside(program, read, sizes, guard) for read in new.node.reads)
        if inside and not any(negative_dividends(new.node, sizes)):
            return None
    return Refusal.of(statement.id, "if", statement=statement.text)


def _operands_not_written(facts: Term) -> Refusal | None:
    """Inside the scope, nothing writes an operand of the value."""
    site, depth, buffer_of = facts.site, facts.depth, facts.site.program.buffer_of
    if depth == len(site.above):
        return None
    operands = {buffer_of[read.array].name for read in facts.value.reads}
    for array, touches in site.above[depth].touches.items():
        if buffer_of[array].name in operands:
            for touch in touches:
                if touch.writes:
                    return Refusal.of(touch.statement.id, touch.access, write=touch.access.text)
    return None


def _room_for_a_statement(facts: Term) -> Refusal | None:
    around = facts.site.above[: facts.depth][-1:]
    if around and facts.site.dialect.is_lockstep(around[0].suffix):
        return Refusal.of(around[0].id, around[0].head, head=around[0].head)
    return None


def _index(form: Form) -> AffineExpr:
    return form.index if isinstance(form, IndexValue) else form.form if isinstance(form, Condition) else form


def _slides(facts: SlidingTerm) -> Refusal | None:
    if all(len(levels) == 1 for levels in facts.dims):
        return Refusal.of(facts.site.statement.id, value=facts.value.text)
    return None


def _stage_bounded(facts: Term) -> Refusal | None:
    cells = prod(facts.shape)
    if cells <= MAX_STAGED_CELLS:
        return None
    return Refusal.of(facts.site.statement.id, cells=cells, most=MAX_STAGED_CELLS)


class _Named(NamedTuple):
    """The program in which the value has a name, and its two new statements."""

    program: Program
    places: tuple[LocatedNode, LocatedNode]
    made: Made


def _named(facts: Term) -> _Named:
    site, value, depth = facts.site, facts.value, facts.depth
    sizes = site.outer_sizes
    program, statement = site.program, site.statement
    # The nest runs over the value's iterators from this depth on, in the order that they have.
    dims, shape = facts.dims, facts.shape
    outer = sum(levels[0] < depth for levels in dims)
    read = tuple([AffineExpr.of(dict.fromkeys(levels, 1)) for levels in dims])
    element = (*read[:outer], *LEVELS[depth : depth + len(dims) - outer])
    name = fresh(f"{statement.target.array}_v", program.names)
    buffer = Buffer(name, value.dtype, tuple(map(Dimension, shape)), site.dialect.default_location, (name,))
    here, guard = value, facts.condition or ()
    if element != read:
        forms = {levels[0]: form for levels, form in zip(dims, element, strict=True)}
        forms |= {level: AffineExpr() for levels in dims for level in levels[1:]}
        by = Renumbering([forms.get(l, LEVELS[l]) for l in range(len(sizes))])
        here, guard = renumbered(value, by), tuple(map(by, guard))
    define = Statement(Access(name, element), here, None, value.dtype, guard=guard)
    copy = nest(define, shape[outer:], name, program.place_of)
    named = substitute(statement.value, value, Read(Access(name, read), value.dtype))
    changed = statement.with_parts(statement.target, named)
    path, inside = site.path[: depth + 1], site.path[depth + 1 :]
    after = (*path[:-1], path[-1] + 1)
    nodes = (copy, *enclosed(site.above[depth:], inside, (changed,)))
    return _Named(
        program.edited(site.above[:depth], path, nodes, buffer=buffer),
        (
            innermost(LocatedNode(copy, path, site.above[:depth], sizes[:depth])),
            LocatedNode(changed, after + inside, site.above, sizes),
        ),
        Staged(name, (Nest.of(copy),)),
    )


class StageExpression(Analysed[Term]):
    """Give a part of a value a buffer of its own, computed before the statement or a scope around it.

    ``term`` counts the operations of the value from 0, each before its own arguments. Before a scope
    whose iterator the term does not use, it is computed once instead of in every iteration.

    before:
        4 8 y[{0},{1}] = x[{0},{1}] * exp(c[{0}] + 1)
    after: stage_expression(c0, before=s1, term=1)
        4
        | y_v[{0}] = exp(c[{0}] + 1)
        | 8 y[{0},{1}] = x[{0},{1}] * y_v[{0}]
    """

    name = "stage_expression"
    place = "statement"
    kind: ClassVar[type[Term]] = Term
    """The facts that are looked for."""
    parameters = (
        Parameter("before", str, "id of the statement, or of a scope around it, to compute the term before"),
        Parameter("term", int, "which operation of the value, from 0"),
    )
    requirements: tuple[Requirement[Any], ...] = (
        Requirement(
            "PD-T271",
            "the place to compute the value is not around the statement",
            "{before} is neither the statement nor a scope around it",
            "name the statement or a scope that it stands in",
            None,
            established_by=NO_MOVE,
        ),
        Requirement(
            "PD-T272",
            "there is no such operation",
            "the value has {count} operations, counted from 0; {term} is none of them",
            "count the operations from 0, each before its own arguments",
            None,
            established_by=NO_MOVE,
        ),
        Requirement(
            "PD-T273",
            "the scope writes an operand",
            "{write} changes it after the value would have been computed",
            "compute the value before an inner scope or the statement",
            _operands_not_written,
            semantic=True,
            established_by=("fission_scope",),
        ),
        Requirement(
            "PD-T277",
            "no condition says where the value is used",
            "{statement} needs its operands only sometimes, and they may not exist otherwise",
            "split the scopes so that the condition goes away",
            _computed_where_used,
            established_by=("drop_condition", "split_range"),
        ),
        Requirement(
            "PD-T274",
            "a lockstep scope holds one statement",
            "{head} cannot take a second statement",
            "compute the value before the lockstep scope",
            _room_for_a_statement,
            established_by=NO_MOVE,
        ),
        Requirement(
            "PD-T275",
            "the new buffer is too large",
            "it would take {cells} cells, {most} are allowed",
            "compute the value before an inner scope that needs fewer iterators",
            _stage_bounded,
            established_by=("split_scope", "split_range"),
        ),
        Requirement(
            "PD-T276",
            *NOT_ALLOWED,
            lambda facts: well_formed(facts.site, facts.named.program, facts.named.places),
            established_by=("set_location",),
        ),
    )

    def candidates(self, program: Program, dialect: Dialect) -> Iterator[Move]:
        for node, _, above, _ in program.places:
            if isinstance(node, Statement):
                places = (node.id, *[scope.id for scope in above])
                for term in range(len(node.value.terms)):
                    for before in places:
                        yield Move(self.name, node.id, (("before", before), ("term", term)))

    def analyse(self, site: Site) -> Term | Refusal:
        statement, before, number = site.statement, site.move["before"], site.move["term"]
        around: tuple[Node, ...] = (*site.above, statement)
        depth = next((k for k, node in enumerate(around) if node.id == before), None)
        not_around, no_term = self.requirements[:2]
        if depth is None:
            return Refusal.of(statement.id, code=not_around.code, before=before)
        terms = statement.value.terms
        if not 0 <= number < len(terms):
            return Refusal.of(statement.id, code=no_term.code, term=number, count=len(terms))
        return self.kind(site, depth, terms[number])

    def rewrite(self, facts: Term, /) -> Rewritten:
        return Rewritten(facts.named.program, facts.named.made)

    def relation(self, facts: Term, result: Program, /) -> Relation:
        return dict.fromkeys(facts.named.made.statements, Definition())


class StageSliding(StageExpression):
    """The same for a value that slides over its operands: where it uses iterators only as their sum, the
    buffer has one dimension for them, and each of its elements is computed once.

    before:
        4
        | y[{0}] = 0
        | 3 y[{0}] += exp(x[{0}+{1}]) * w[{1}]
    after: stage_sliding(c1, before=s0, term=1)
        6 y_v[{0}] = exp(x[{0}])
        4
        | y[{0}] = 0
        | 3 y[{0}] += y_v[{0}+{1}] * w[{1}]
    """

    name = "stage_sliding"
    kind = SlidingTerm
    requirements = tuple(
        replace(requirement, code=code)
        for code, requirement in zip(
            ("PD-T451", "PD-T452", "PD-T453", "PD-T454", "PD-T455", "PD-T456", "PD-T457"),
            (
                *StageExpression.requirements[:2],
                Requirement(
                    "",
                    "nothing slides",
                    "{value} uses no two iterators of the nest only as their sum",
                    "compute it before a scope further out, or use stage_expression",
                    _slides,
                    established_by=("collapse_scopes",),
                ),
                *(r for r in StageExpression.requirements[2:] if r.test is not _room_for_a_statement),
            ),
            strict=True,
        )
    )
    """All requirements but one: a lockstep scope holds no loops whose iterators could slide."""


MOVES = (StageExpression(), StageSliding())

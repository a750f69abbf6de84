"""A part of a value computed before it is used, and kept in a buffer under a name of its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod
from typing import NamedTuple

from perfdojo_sdk.core.dialect import Dialect
from perfdojo_sdk.core.expression import (
    LEVELS,
    Access,
    Condition,
    Expression,
    Form,
    Index,
    IndexValue,
    Read,
    Renumbering,
    renumbered,
)
from perfdojo_sdk.core.made import Made, Nest, Rewritten, Staged
from perfdojo_sdk.core.program import Node, Place, Program, Statement, enclosed, fresh, innermost
from perfdojo_sdk.core.storage import Buffer, Dimension
from perfdojo_sdk.core.transformation import (
    Definition,
    Move,
    Parameter,
    Refusal,
    Relation,
    Requirement,
    Site,
    Transformation,
)
from perfdojo_sdk.core.transformations.inlining import well_formed
from perfdojo_sdk.core.transformations.staging import MAX_STAGED_CELLS, nest


def substitute(value: Expression, old: Expression, new: Expression) -> Expression:
    """The value with every ``old`` in it replaced."""
    if value == old:
        return new
    children = value.children
    if not children:
        return value
    return value.with_children(tuple([substitute(child, old, new) for child in children]))


def _around(site: Site) -> Refusal | None:
    """Where the value will be computed: in front of the statement or of a scope around it."""
    before = site.move["before"]
    around: tuple[Node, ...] = (*site.above, site.statement)
    for depth, node in enumerate(around):
        if node.id == before:
            site.scratch["depth"] = depth
            return None
    return Refusal.of(site.statement.id, "", before=before)


def _term_exists(site: Site) -> Refusal | None:
    found = site.statement.value.terms
    if not 0 <= site.move["term"] < len(found):
        return Refusal.of(site.statement.id, "", term=site.move["term"], count=len(found))
    site.scratch["value"] = found[site.move["term"]]
    return None


def _depth(site: Site) -> int:
    """Number of scopes around the place where the value will be computed."""
    depth: int = site.scratch["depth"]
    return depth


def _value(site: Site) -> Expression:
    value: Expression = site.scratch["value"]
    return value


def _unconditional(site: Site) -> Refusal | None:
    statement = site.statement
    return Refusal.of(statement.id, "if", statement=statement.text) if statement.guard else None


def _operands_not_written(site: Site) -> Refusal | None:
    """Inside the scope, nothing writes what the value is made of."""
    depth, buffer_of = _depth(site), site.program.buffer_of
    if depth == len(site.above):
        return None
    operands = {buffer_of[read.array].name for read in _value(site).reads}
    for array, touches in site.above[depth].touches.items():
        if buffer_of[array].name in operands:
            for touch in touches:
                if touch.writes:
                    return Refusal.of(touch.statement.id, touch.access.text, write=touch.access.text)
    return None


def _room_for_a_statement(site: Site) -> Refusal | None:
    around = site.above[: _depth(site)][-1:]
    if around and site.dialect.is_lockstep(around[0].suffix):
        return Refusal.of(around[0].id, around[0].head, head=around[0].head)
    return None


def _dims(site: Site) -> tuple[tuple[int, ...], ...]:
    """For each dimension of the new buffer the iterators whose sum is its subscript."""
    found = site.scratch.get("dims")
    return found if found is not None else tuple([(level,) for level in sorted(_value(site).levels)])


def _shape(site: Site) -> tuple[int, ...]:
    """What the subscripts of the new buffer can be."""
    sizes = site.outer_sizes
    return tuple([sum([sizes[level] - 1 for level in levels]) + 1 for levels in _dims(site)])


def _index(form: Form) -> Index:
    return form.index if isinstance(form, IndexValue) else form.form if isinstance(form, Condition) else form


def _slides(site: Site) -> Refusal | None:
    """Iterators that stand in every subscript with one coefficient count for their sum only.

    Those outside of the place where the value will be computed keep a dimension of their own, as do those
    in quotients.
    """
    value, depth = _value(site), _depth(site)
    forms = [_index(form) for form in value.forms]
    inside = {level for form in forms for q, _ in form.quotients for level in q.dividend.levels}
    groups: dict[object, list[int]] = {}
    for level in sorted(value.levels):
        alone = level < depth or level in inside
        key = level if alone else tuple([form.coefficients.get(level, 0) for form in forms])
        groups.setdefault(key, []).append(level)
    dims = tuple([tuple(levels) for levels in groups.values()])
    if all(len(levels) == 1 for levels in dims):
        return Refusal.of(site.statement.id, "", value=value.text)
    site.scratch["dims"] = dims
    return None


def _stage_bounded(site: Site) -> Refusal | None:
    cells = prod(_shape(site))
    if cells <= MAX_STAGED_CELLS:
        return None
    return Refusal.of(site.statement.id, "", cells=cells, most=MAX_STAGED_CELLS)


class _Named(NamedTuple):
    """The program in which the value has a name, and its two new statements."""

    program: Program
    places: tuple[Place, Place]
    made: Made


def _named(site: Site) -> _Named:
    value, depth, sizes = _value(site), _depth(site), site.outer_sizes
    program, statement = site.program, site.statement
    # The nest runs over the value's iterators from this depth on, in the order that they have.
    dims, shape = _dims(site), _shape(site)
    outer = sum(levels[0] < depth for levels in dims)
    read = tuple([Index.of(dict.fromkeys(levels, 1)) for levels in dims])
    element = (*read[:outer], *LEVELS[depth : depth + len(dims) - outer])
    name = fresh(f"{statement.target.array}_v", program.names)
    buffer = Buffer(name, value.dtype, tuple(map(Dimension, shape)), site.dialect.default_location, (name,))
    if element != read:
        forms = {levels[0]: form for levels, form in zip(dims, element, strict=True)}
        forms |= {level: Index() for levels in dims for level in levels[1:]}
        here = renumbered(value, Renumbering([forms.get(l, LEVELS[l]) for l in range(len(sizes))]))
    else:
        here = value
    define = Statement(Access(name, element), here, None, value.dtype)
    copy = nest(define, shape[outer:], name, program.place_of)
    named = substitute(statement.value, value, Read(Access(name, read), value.dtype))
    changed = statement.with_parts(statement.target, named)
    path, inside = site.path[: depth + 1], site.path[depth + 1 :]
    after = (*path[:-1], path[-1] + 1)
    nodes = (copy, *enclosed(site.above[depth:], inside, (changed,)))
    return _Named(
        program.edited(site.above[:depth], path, nodes, buffer=buffer),
        (
            innermost(Place(copy, path, site.above[:depth], sizes[:depth])),
            Place(changed, after + inside, site.above, sizes),
        ),
        Staged(name, (Nest.of(copy),)),
    )


class StageExpression(Transformation):
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
    parameters = (
        Parameter("before", str, "id of the statement, or of a scope around it, to compute the term before"),
        Parameter("term", int, "which operation of the value, from 0"),
    )
    requirements: tuple[Requirement, ...] = (
        Requirement(
            "PD-T271",
            "the place to compute the value is not around the statement",
            "{before} is neither the statement nor a scope around it",
            "name the statement or a scope that it stands in",
            _around,
        ),
        Requirement(
            "PD-T272",
            "there is no such operation",
            "the value has {count} operations, counted from 0; {term} is none of them",
            "count the operations from 0, each before its own arguments",
            _term_exists,
        ),
        Requirement(
            "PD-T273",
            "the scope writes an operand",
            "{write} changes it after the value would have been computed",
            "compute the value before an inner scope or the statement",
            _operands_not_written,
            semantic=True,
        ),
        Requirement(
            "PD-T277",
            "the statement stands under a condition",
            "{statement} needs its operands only sometimes, and they may not exist otherwise",
            "split the scopes so that the condition goes away",
            _unconditional,
        ),
        Requirement(
            "PD-T274",
            "a lockstep scope holds one statement",
            "{head} cannot take a second statement",
            "compute the value before the lockstep scope",
            _room_for_a_statement,
        ),
        Requirement(
            "PD-T275",
            "the new buffer is too large",
            "it would take {cells} cells, {most} are allowed",
            "compute the value before an inner scope that needs fewer iterators",
            _stage_bounded,
        ),
        Requirement(
            "PD-T276",
            "the target does not allow the new accesses",
            "{what}",
            "play the move before annotating scopes and setting locations",
            lambda site: well_formed(site, *site.once(_named)[:2]),
        ),
    )

    def candidates(self, program: Program, dialect: Dialect) -> Iterator[Move]:
        for node, _, above, _ in program.places:
            if isinstance(node, Statement):
                places = (node.id, *[scope.id for scope in above])
                for term in range(len(node.value.terms)):
                    for before in places:
                        yield Move(self.name, node.id, (("before", before), ("term", term)))

    def rewrite(self, site: Site) -> Rewritten:
        named = site.once(_named)
        return Rewritten(named.program, named.made)

    def relation(self, site: Site, result: Program) -> Relation:
        return dict.fromkeys(site.once(_named).made.statements, Definition())


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
                ),
                *(r for r in StageExpression.requirements[2:] if r.test is not _room_for_a_statement),
            ),
            strict=True,
        )
    )
    """All but one: a lockstep scope holds no loops whose iterators could slide."""

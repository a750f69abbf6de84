"""Rules for the whole program, before its nests are planned one by one.

Each takes the play and the target, plays moves, and returns its decisions.
"""

from __future__ import annotations

from math import prod

from perfdojo_sdk.codegen.operations import SPELLINGS
from perfdojo_sdk.core.errors import MoveError
from perfdojo_sdk.core.expression import Access, AffineExpr, Condition, Operation, performs
from perfdojo_sdk.core.geometry import lane_stride
from perfdojo_sdk.core.made import Staged
from perfdojo_sdk.core.program import LocatedNode, Node, Program, Scope, Statement
from perfdojo_sdk.core.transformation import Kind as Change
from perfdojo_sdk.core.transformations.storage import temporaries
from perfdojo_sdk.experts.cpu.analysis import Kind, factors, is_pairing, is_product, work_of
from perfdojo_sdk.experts.cpu.contraction_nests import find_nest
from perfdojo_sdk.experts.cpu.loops import arrange, chain
from perfdojo_sdk.experts.cpu.steps import join_distant
from perfdojo_sdk.experts.steps import separate
from perfdojo_sdk.hookspecs.services import Decision
from perfdojo_sdk.hookspecs.types import Target
from perfdojo_sdk.search.play import Play

#: Most statements of a program that conditions are split off in: each part becomes code of its own.
MOST_STATEMENTS = 160

#: A border is worth code of its own if at least so much of the nest is inside it.
LEAST_INSIDE = 0.5

#: Least cost of a function, in additions, to keep its results.
COSTLY = 10.0

#: Least number of uses for which a computed factor gets an array, or an operand a copy in another layout.
LEAST_USES = 4

#: Longest loop whose iterations are looked at one by one.
LONGEST = 1 << 20

# -- factors -------------------------------------------------------------------------------------------


def name_factors(play: Play, target: Target) -> list[Decision]:
    """Make sums of products of two elements: a factor that all terms share is multiplied once, and one that
    is computed from elements gets an array, computed before the nest, if it is used often enough."""
    decisions = []
    for place in [p for p in play.program.places if isinstance(p.node, Statement)]:
        work = work_of(play.program, play.program.place_of[place.node.id])
        tiles = work.kind is Kind.CONTRACTION and is_product(work.statement)
        if not tiles or target.capabilities.lanes.get(work.statement.dtype, 1) == 1:
            continue
        whole = place.above[work.reduced[0]].id if work.reduced else ""
        lawful = play.rules.most >= Change.DECLARED_LAW
        if lawful and len(factors(work.statement.value)) > 2 and play.may("factor_reduction", whole):
            why = "all terms of the sum have it"
            decisions.append(Decision("name factors", place.node.id, "a factor is multiplied once", why))
        while (found := _computed_factor(play, place.node.id)) is not None:
            term, uses = found
            if uses < LEAST_USES:
                break
            made = play.may("stage_expression", place.node.id, before=place.above[0].id, term=term)
            if made is None:
                break
            why = "it is used again and again, and a product of elements can be tiled"
            choice = f"a factor is computed into {made.buffers[0]}"
            decisions.append(Decision("name factors", place.node.id, choice, why, {"uses of each": uses}))
    return decisions


def _computed_factor(play: Play, identifier: str) -> tuple[int, float] | None:
    """The first operand of a product that is an operation: its number as a term, and how often each of its
    values is used."""
    _, _, _, sizes = play.program.place_of[identifier]
    statement = play.program.place_of[identifier].node
    assert isinstance(statement, Statement)
    if not performs(statement.value, "mul"):
        return None
    for factor in statement.value.arguments:
        if isinstance(factor, Operation):
            others = [size for level, size in enumerate(sizes) if level not in factor.levels]
            return statement.value.terms.index(factor), prod(others)
    return None


# -- functions -----------------------------------------------------------------------------------------


def hoist_functions(play: Play, target: Target) -> list[Decision]:
    """Compute a function once for all iterations of the loops that its operands do not depend on."""
    decisions = []
    for identifier in [s.id for s in play.statements() if not s.guard]:
        while (found := _fixed_function(play, identifier)) is not None:
            term, name, uses = found
            scopes = [scope.id for scope in play.around(identifier)]
            ways = (play.may("stage_expression", identifier, before=scope, term=term) for scope in scopes)
            made = next((way for way in ways if way is not None), None)
            if not isinstance(made, Staged):
                break
            _before_a_sum(play, made.copy)
            numbers = {"uses of each": uses, "cost in additions": SPELLINGS[name].cost}
            why = "its operands are the same in all iterations of a loop"
            decisions.append(
                Decision("hoist functions", identifier, f"{name} is kept in {made.buffers[0]}", why, numbers)
            )
    return decisions


def _before_a_sum(play: Play, place: str) -> None:
    """Move a nest at the root in front of a contraction or a window before it, whose results the next one may
    then take up, and of what that reads."""
    path = play.program.paths[place]
    before = play.program.body[path[0] - 1] if len(path) == 1 and path[0] else None
    if before is None or not any(_sums_products(leaf.statement) for leaf in before.leaves):
        return
    while (at := play.program.paths[place][0]) and play.may(
        "reorder_statements", play.program.body[at - 1].id
    ):
        pass


def _sums_products(statement: Statement) -> bool:
    return statement.accumulate == "add" and performs(statement.value, "mul")


def _fixed_function(play: Play, identifier: str) -> tuple[int, str, float] | None:
    """A costly term that is the same in all iterations of a loop of its statement: its number, its operation,
    the uses of each value."""
    place = play.program.place_of[identifier]
    assert isinstance(place.node, Statement)
    for term, value in enumerate(place.node.value.terms):
        if isinstance(value, Operation) and SPELLINGS[value.name].cost >= COSTLY:
            varying = value.levels | _changing(play.program, place, value)
            uses = prod(size for level, size in enumerate(place.sizes) if level not in varying)
            if uses >= LEAST_USES:
                return term, value.name, uses
    return None


def _changing(program: Program, place: LocatedNode, value: Operation) -> set[int]:
    """Levels of the loops around a statement that write what ``value`` reads, such as those over time."""
    buffers = {program.buffer_of[read.array].name for read in value.reads}
    writes = [o.path for name in buffers for o in program.occurrences[name] if o.writes]
    here = place.path
    return {
        level for level in range(len(here) - 1) if any(p[: level + 1] == here[: level + 1] for p in writes)
    }


# -- what starts a conditional contraction -------------------------------------------------------------


def join_conditional_starts(play: Play, target: Target) -> list[Decision]:
    """Join a conditional sum of products with the nest that starts its results, so that whoever splits the
    conditions off splits that too: sums that start elsewhere are no contraction of their own."""
    decisions = []
    for root in [node.id for node in play.program.body if _conditional_product(node)]:
        start, kept = _start(play, root), play.trace
        if start is None:
            continue
        try:
            joined = _join_with_start(play, start, root)
        except MoveError:
            joined = False
        if not joined:
            play.trace = kept
            continue
        why = "its results then stay in registers from the start, in each part of it"
        decisions.append(Decision("join starts", start, f"joined with {root}", why))
    return decisions


def _start(play: Play, root: str) -> str | None:
    """The last perfect nest before a sum that writes the sum's results, if it gives each one its first value,
    and the sum is alone in its nest as well."""
    node, before = play.node(root), play.program.body[: play.program.paths[root][0]]
    total = node.chain[1] if isinstance(node, Scope) else None
    array = total.target.array if total else ""
    writers = [other for other in before if any(l.statement.target.array == array for l in other.leaves)]
    if not total or not writers or not isinstance(writers[-1], Scope):
        return None
    first = writers[-1].chain[1]
    plain = first is not None and not first.accumulate and not first.guard
    return writers[-1].id if plain else None


def _join_with_start(play: Play, start: str, root: str) -> bool:
    """Bring the loops over results outside, in the order of those that start them, and join all of these;
    false where that is not legal, with some moves played."""
    first, second = play.scope(start), play.scope(root)
    (loops, begin), (others, total) = first.chain, second.chain
    assert begin is not None and total is not None
    places = zip(begin.target.subscripts, total.target.subscripts, strict=True)
    same = {min(a.levels): min(b.levels) for a, b in places if len(a.levels) == len(b.levels) == 1}
    if len(same) < len(loops) or len({*same.values()}) < len(loops):
        return False
    order = [same[level] for level in range(len(loops))]
    order += [level for level in range(len(others)) if level not in order]
    arrange(play, [others[level].id for level in order])
    if not join_distant(play, start, others[order[0]].id):
        return False
    return all(play.may("join_scopes", loop.id) is not None for loop in loops[1:])


# -- operands that several nests read ------------------------------------------------------------------


def lay_out_operands(play: Play, target: Target) -> list[Decision]:
    """Copy, once and before all parts, the operand of a conditional contraction whose lanes lie apart.

    Splitting the conditions off makes several nests, each of which would pack the operand again.
    """
    decisions = []
    for place in list(play.program.places):
        statement = place.node
        if isinstance(statement, Statement) and statement.guard and statement.id in play.program.paths:
            bounded = frozenset(level for form in statement.guard for level in form.levels)
            found = lay_out_operand(play, place, bounded, "which several nests read")
            decisions += [found] if found else []
    return decisions


def lay_out_operand(play: Play, place: LocatedNode, fixed: frozenset[int], why: str) -> Decision | None:
    """Copy the operand of a contraction whose neighbours along its lanes lie apart; None where none does, or
    no move allows it. ``fixed``: levels that get no lanes."""
    work = work_of(play.program, place)
    found = _lanes_apart(play, place, fixed) if work.kind is Kind.CONTRACTION else None
    if found is None:
        return None
    access, level = found
    kept = play.trace
    made = play.may("stage_read", place.above[0].id, array=access.array)
    if made is None:
        return None
    (buffer,) = made.buffers
    dim = access.levels.index(level)
    uses = prod(place.sizes) / play.program.buffer_of[buffer].cells
    if uses < LEAST_USES or not all(
        play.may("reorder_dims", buffer, dim=k) for k in range(dim, len(access.levels) - 1)
    ):
        play.trace = kept
        return None
    cells = play.program.buffer_of[buffer].cells
    numbers = {"lanes": place.sizes[level], "cells": cells, "uses of each": work.reuse[access.array]}
    why = f"neighbours along {{{level}}} lie apart in {access.array}, {why}"
    return Decision("lay out operands", access.array, f"copied to {buffer} once", why, numbers)


def _lanes_apart(play: Play, place: LocatedNode, fixed: frozenset[int]) -> tuple[Access, int] | None:
    """The operand that does not slide, and the largest loop of the output that it alone uses, if its
    neighbours in that loop lie apart."""
    statement = place.node
    assert isinstance(statement, Statement)
    for access in statement.reads:
        others = {level for read in statement.reads if read is not access for level in read.levels}
        own = [l for l in access.levels if l in statement.target.levels and l not in others | fixed]
        whole = access.array in play.program.inputs and all(len(s.terms) <= 1 for s in access.subscripts)
        if own and whole:
            level = max(own, key=lambda l: place.sizes[l])
            if lane_stride(play.program.buffer_of[access.array], access.subscripts, level) != 1:
                return access, level
    return None


# -- what follows a conditional contraction -----------------------------------------------------------


def join_epilogues(play: Play, target: Target) -> list[Decision]:
    """Join a conditional sum of products with the maps that follow it and read its results, so that whoever
    splits the conditions off splits these too, and results are finished where they are computed."""
    decisions = []
    for root in [node.id for node in play.program.body]:
        if root not in play.program.paths or not _conditional_product(play.node(root)):
            continue
        while (follows := _epilogue(play, root)) is not None:
            kept = play.trace
            loops = chain(play, follows)
            if not all(play.may("join_scopes", own) for own in chain(play, root)[: len(loops)]):
                play.trace = kept
                break
            why = "it reads each result once, in the same order"
            decisions.append(Decision("join epilogues", follows, f"joined with {root}", why))
    return decisions


def _conditional_product(node: Node) -> bool:
    return any(is_product(leaf.statement) and leaf.statement.guard for leaf in node.leaves)


def _epilogue(play: Play, root: str) -> str | None:
    """The next node, if it is a perfect nest around a map that reads what the root writes."""
    path = play.program.paths[root]
    follows = next(iter(play.program.body[path[0] + 1 :]), None)
    if not isinstance(follows, Scope):
        return None
    (leaf, *others), written = follows.leaves, {l.statement.target.array for l in play.node(root).leaves}
    work = work_of(play.program, play.program.place_of[leaf.statement.id])
    reads = any(read.array in written for read in leaf.statement.reads)
    return follows.id if not others and reads and work.kind is Kind.MAP else None


# -- conditions ----------------------------------------------------------------------------------------


def split_conditions(play: Play, target: Target) -> list[Decision]:
    """Split loops where conditions change, so that the inside of a padded window has none.

    Borders become nests of their own. A condition that changes in most iterations (a triangle) stays.
    """
    decisions = []
    tried: set[tuple[str, AffineExpr]] = set()
    while (found := _next_condition(play, tried)) is not None:
        place, form = found
        statement = place.node
        assert isinstance(statement, Statement)
        inside, level = _best_loop(statement, form, place.sizes)
        if inside < LEAST_INSIDE or not _split_form(play, place, form, level):
            tried.add((statement.id, form))
            continue
        numbers = {"inside": inside, "statements": play.program.statements}
        why = "the condition holds in most iterations, which need not test it"
        decisions.append(Decision("split conditions", statement.id, f"split off {_text(form)}", why, numbers))
    for place in play.program.places:
        if isinstance(place.node, Statement) and place.node.guard:
            why = "it changes in too many iterations, or the code would become too large"
            decisions.append(Decision("split conditions", place.node.id, "the condition stays", why))
    return decisions


def _text(form: AffineExpr) -> str:
    return Condition(form).text


def _next_condition(play: Play, tried: set[tuple[str, AffineExpr]]) -> tuple[LocatedNode, AffineExpr] | None:
    """The next statement and condition to split off; conditions that are decided are dropped on the way."""
    for identifier in [s.id for s in play.statements() if s.guard]:
        play.may("drop_condition", identifier)
        play.may("drop_unreached", identifier)
    for place in play.program.places:
        for form in place.node.guard if isinstance(place.node, Statement) else ():
            if (place.node.id, form) not in tried:
                return place, form
    return None


def _best_loop(statement: Statement, form: AffineExpr, sizes: tuple[int, ...]) -> tuple[float, int]:
    """The loop in most of whose iterations a condition is decided, and the share of these iterations.

    A loop over what a result adds up is only cut to leave a part of it out: two sums of one result are no
    contraction, and would get no vectors.
    """
    loops = [
        level
        for level in form.levels
        if 1 < sizes[level] <= LONGEST
        and not form.quotients
        and (level in statement.target.levels or False in decided(form, sizes, level))
    ]
    found = [(_share(form, sizes, level), sizes[level], level) for level in loops]
    share, _, level = max(found, default=(0.0, 0, -1))
    return share, level


def _share(form: AffineExpr, sizes: tuple[int, ...], level: int) -> float:
    return 1 - sum(d is None for d in decided(form, sizes, level)) / sizes[level]


def decided(form: AffineExpr, sizes: tuple[int, ...], level: int) -> list[bool | None]:
    """For each iteration of a loop: the condition holds whatever the others are, fails so, or neither."""
    step = form.coefficients.get(level, 0)
    low, high = form.plus(AffineExpr.of({level: step}), -1).bounds(sizes)
    return [
        True if step * k + low >= 0 else False if step * k + high < 0 else None for k in range(sizes[level])
    ]


def _split_form(play: Play, place: LocatedNode, form: AffineExpr, level: int) -> bool:
    """Cut the loop at ``level`` where the condition becomes decided or changes, or, where it is decided
    nowhere, behind its first iteration. A loop over what a result adds up is cut where that fails."""
    if play.program.statements + len(place.above[level].leaves) > MOST_STATEMENTS:
        return False
    assert isinstance(place.node, Statement)
    known = decided(form, place.sizes, level)
    if level not in place.node.target.levels:
        known = [holds is False for holds in known]
    at = next((k for k in range(1, len(known)) if known[k] is not known[k - 1]), 1)
    return play.may("split_range", place.above[level].id, at=at) is not None


# -- temporaries of several nests ----------------------------------------------------------------------


def separate_temporaries(play: Play, target: Target) -> list[Decision]:
    """Give each nest a temporary of its own where several share one, and none reads another one."""
    decisions = []
    for buffer in temporaries(play.program):
        nests = [node for node in play.program.body if not node.arrays.isdisjoint(buffer.arrays)]
        if len(nests) < 2 or len(buffer.arrays) > 1 or not all(isinstance(node, Scope) for node in nests):
            continue
        kept = play.trace
        staged = all(play.may("stage_write", node.id, array=buffer.name) for node in nests)
        if not staged or play.may("remove_dead", buffer.name) is None:
            play.trace = kept
            continue
        why = "no nest reads what another one wrote"
        numbers = {"nests": float(len(nests))}
        decisions.append(Decision("separate temporaries", buffer.name, "each nest has its own", why, numbers))
    return decisions


# -- one nest for each sum of products -----------------------------------------------------------------


def distribute(play: Play, target: Target) -> list[Decision]:
    """Give each sum of products a nest of its own, with the statements that start it, if it shares one with
    anything that keeps it from being a contraction."""
    decisions = []
    todo = [node.id for node in play.program.body]
    while todo:
        root = todo.pop(0)
        node = play.node(root)
        products = any(is_product(leaf.statement) or is_pairing(leaf.statement) for leaf in node.leaves)
        if not products or not isinstance(node, Scope) or find_nest(node) is not None:
            continue
        kept = play.trace
        try:
            second = separate(play, _boundary(play, root), root)
        except MoveError as error:
            play.trace = kept
            decisions.append(Decision("distribute", root, "left together", error.what))
            continue
        why = "a sum of products is planned best when nothing else shares its loops"
        decisions.append(Decision("distribute", root, f"{second} became a nest of its own", why))
        todo = [root, second, *todo]
    return decisions


def _boundary(play: Play, root: str) -> str:
    """The child before which a nest is cut: the last loop of the outermost node that holds several, with the
    statements right before it that write what it writes."""
    node = play.scope(root)
    while len(node.body) == 1 and isinstance(node.body[0], Scope):
        node = node.body[0]
    loops = [k for k, child in enumerate(node.body) if isinstance(child, Scope)]
    if not loops:
        raise MoveError("PD-T001", f"{root} holds no two nests")
    at = loops[-1] if len(loops) > 1 or isinstance(node.body[-1], Scope) else loops[-1] + 1
    written = {leaf.statement.target.array for leaf in node.body[at].leaves}
    while at > 0 and isinstance(before := node.body[at - 1], Statement) and before.target.array in written:
        at -= 1
    if at == 0:
        raise MoveError("PD-T001", f"{root} holds no two nests")
    return node.body[at].id

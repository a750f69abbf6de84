"""The plan for each nest: products in tiles, rows by warps or blocks, all else element by element."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from perfdojo_sdk.codegen.gpu.mapping import BLOCK, GRID, Machine, machine_of
from perfdojo_sdk.codegen.gpu.placement import ASYNC
from perfdojo_sdk.codegen.gpu.tiles import MATRIX
from perfdojo_sdk.codegen.operations import FUNCTION_COST, SPELLINGS
from perfdojo_sdk.core.dtypes import DIGITS
from perfdojo_sdk.core.errors import MoveError
from perfdojo_sdk.core.expression import Read, operations
from perfdojo_sdk.core.magnitudes import invertible
from perfdojo_sdk.core.program import Program, Scope
from perfdojo_sdk.core.transformation import Kind, Rules, Trace
from perfdojo_sdk.core.transformations.precision import FULL
from perfdojo_sdk.core.transformations.storage import temporaries
from perfdojo_sdk.experts.gpu.matrix import play_matrix
from perfdojo_sdk.experts.gpu.patches import play_patches
from perfdojo_sdk.experts.gpu.rows import enough_blocks, longest_row, play_elements, play_rows
from perfdojo_sdk.experts.gpu.steps import (
    chain,
    collapse,
    map_rest,
    only_statement,
    share,
)
from perfdojo_sdk.experts.gpu.tiles import MOST_PARTS, play_tiles
from perfdojo_sdk.experts.steps import inline_everywhere, neighbour, separate
from perfdojo_sdk.hookspecs.types import Target
from perfdojo_sdk.search.play import Play

#: Plays the nest at a place; MoveError where it cannot.
Plan: TypeAlias = Callable[..., None]


def expert(root: Program, rules: Rules, target: Target) -> tuple[Trace, ...]:
    """The pass of a target with grids and blocks; its file describes the machine."""
    return heuristic(root, rules, machine_of(target.capabilities))


def heuristic(root: Program, rules: Rules, machine: Machine) -> tuple[Trace, ...]:
    """Plays with the sizes of the machine: one game; where the kernel has a product, one that copies slices
    ahead, and more for the dtypes that its matrix units multiply. A measurement has to say which is fastest.

    Products are rounded to a shorter dtype than f32 where the rules say that precision may change; those
    whose factors are stored in one are played as they are.
    """
    games = [_game(root, rules, machine, play_tiles)]
    if ASYNC in rules.dialect.locations:
        ahead = _game(root, rules, machine, partial(play_tiles, ahead=True))
        games += [ahead] if any(buffer.location == ASYNC for buffer in ahead.program.buffers) else []
    products = [partial(play_matrix, dtype="")]
    roundings = rules.dialect.roundings if rules.most >= Kind.CHANGES_PRECISION else frozenset[str]()
    for dtype in sorted(machine.matrix & {FULL, *roundings}, key=lambda name: -DIGITS[name]):
        products.append(partial(play_matrix, dtype=dtype))
    played = [_game(root, rules, machine, each) for each in products]
    return (*games, *(game for game in played if MATRIX in _suffixes(game.program)))


def _suffixes(program: Program) -> set[str]:
    return {suffix for node in program.body if isinstance(node, Scope) for suffix in node.suffixes}


def _game(root: Program, rules: Rules, machine: Machine, products: Plan) -> Trace:
    """The game in which products are played as ``products`` does."""
    play = Play(root, rules)
    for place in _outermost(play):
        _attempt(play, products, place, machine)
    for place in _outermost(play):
        _attempt(play, play_patches, place, machine)
    _postpone(play)
    _fuse(play)
    for place in _outermost(play):
        _attempt(play, _reduce_in_parts, place, machine)
    _reciprocals(play)
    _compute_again(play)
    for place in _outermost(play):
        _attempt(play, _square_in_passing, place)
    for place in _outermost(play):
        _attempt(play, _play_nest, place, machine)
    map_rest(play, machine)
    return play.trace


def _outermost(play: Play) -> list[str]:
    """The outermost scopes that nothing has been mapped in yet."""
    return [n.id for n in play.program.body if isinstance(n, Scope) and not n.suffixes - {""}]


def _postpone(play: Play) -> None:
    """Move nests that are no launches yet behind launches that do not need them, next to nests that they can
    join."""
    for place in reversed(_outermost(play)):
        while (beside := play.program.paths[place][0] + 1) < len(play.program.body):
            node = play.program.body[beside]
            if node.id in _outermost(play) or not play.may("reorder_statements", place):
                break


def _join_whole(play: Play, place: str) -> bool:
    """Join a nest that adds up parts of sums with the next one, loop by loop as far as they are alike."""
    if not play.may("join_scopes", place):
        return False
    body = play.scope(place).body
    for first, second in zip(body, body[1:]):
        if isinstance(first, Scope) and isinstance(second, Scope) and _adds_parts(play, first.id):
            _join_whole(play, first.id)
            break
    return True


def _adds_parts(play: Play, place: str) -> bool:
    """True if the nest computes each of its cells as a short sum."""
    *_, last = (play.scope(loop) for loop in chain(play, place))
    inner = [node for node in last.body if isinstance(node, Scope)]
    return bool(inner) and len(inner) < len(last.body) and all(node.size <= MOST_PARTS for node in inner)


def _fuse(play: Play) -> None:
    """Join neighbours among the outermost scopes, where nothing is mapped in them yet."""
    joined = True
    while joined:
        joined = False
        open_ = _outermost(play)
        for place in open_:
            path = play.program.paths[place]
            beside = play.program.body[path[0] + 1 :][:1]
            if beside and beside[0].id in open_ and _join_whole(play, place):
                joined = True
                break


def _attempt(play: Play, plan: Plan, place: str, *arguments: object) -> None:
    """Play a plan on a nest, or leave the nest as it is where a move that the plan needs is refused."""
    kept = play.trace
    try:
        plan(play, place, *arguments)
    except MoveError:
        play.trace = kept


def _play_nest(play: Play, place: str, machine: Machine) -> None:
    loops = chain(play, place)
    statement = only_statement(play, loops[-1])
    if statement is not None and not statement.accumulate:
        play_elements(play, place, machine)
    elif longest_row(play, loops[-1]) >= machine.warp:
        play_rows(play, place, machine)
    else:
        play_threads(play, place)


def play_threads(play: Play, place: str) -> None:
    """Run each iteration of the perfect nest at ``place`` on a thread of its own."""
    loops = collapse(play, chain(play, place))
    parts = share(play, loops[-1], 128) or [loops[-1]]
    for loop in [*loops[:-1], *parts[:-1]]:
        play.may("annotate_scope", loop, suffix=GRID)
    play.may("annotate_scope", parts[-1], suffix=BLOCK)


def _reduce_in_parts(play: Play, place: str, machine: Machine) -> None:
    """Distribute one of several reduction loops over blocks, if there are few rows."""
    row = play.scope(place)
    if row.size >= enough_blocks(machine) or len(chain(play, place)) > 1:
        return
    for child in [c.id for c in row.body if isinstance(c, Scope)]:
        nest = chain(play, child)
        statement = only_statement(play, nest[-1])
        if statement is None or not statement.accumulate or len(nest) < 3:
            continue
        middle = nest[-2]
        start, _ = play.split_reduction(child, middle)
        for above in reversed(nest[: nest.index(middle)]):
            play.must("swap_scopes", above)
        play.must("join_scopes", start)
        while play.program.paths[start][-1] > 0:
            # Move the start of the sums behind the nest that makes the parts.
            play.must("reorder_statements", neighbour(play, start, -1))
        play.must("fission_scope", neighbour(play, start, 1))
        return


def _square_in_passing(play: Play, place: str) -> None:
    """Compute parts of a sum and parts of the squared differences from its mean in one pass.

    Each part's differences are from its own mean; a correction for the common mean follows, from one number
    for each part. (Chan, Golub, LeVeque: "Updating formulae and a pairwise algorithm for computing sample
    variances", 1979.)
    """
    if place not in play.program.paths:
        return
    nest = chain(play, place)
    squares = [node.id for node in play.scope(nest[-1]).body if isinstance(node, Scope)]
    statement = only_statement(play, chain(play, squares[0])[-1]) if len(squares) == 1 else None
    if statement is None or statement.accumulate != "add":
        return
    names = [buffer.name for buffer in temporaries(play.program)]
    total = next((name for name in names if play.may("rebase_squares", squares[0], sum=name)), None)
    if total is None:
        return
    at = play.program.paths[place][0]
    correction = play.scope(nest[-1]).body[-1].id
    separate(play, correction, nest[0])
    sums = min(o.path[0] for o in play.program.occurrences[total] if o.writes)
    while at > sums + 1:
        play.must("reorder_statements", play.program.body[at - 1].id)
        at -= 1
    together = play.program.body[sums].id
    for _ in nest:
        play.must("join_scopes", together)
        together = play.scope(together).body[0].id
    # The following nests work on one number for each part.
    after = play.program.body[sums + 1].id
    while play.may("join_scopes", after):
        pass


def _reciprocals(play: Play) -> None:
    """Divide once for each row where a whole loop divides by the same value."""
    for scope in play.innermost():
        level = len(play.around(scope.id))
        statement = only_statement(play, scope.id)
        for operation in operations(statement.value) if statement else ():
            if operation.name == "div" and isinstance(operation.arguments[1], Read):
                divisor = operation.arguments[1].access
                outside = level not in divisor.levels and play.around(scope.id)
                if outside and statement and invertible(play.program, statement, divisor):
                    play.may("stage_reciprocal", scope.id, array=divisor.array)


def _compute_again(play: Play) -> None:
    """Compute cheap values where they are used, instead of passing them through memory between launches."""
    for buffer in temporaries(play.program):
        users = {o.path[0] for o in play.program.occurrences[buffer.name]}
        definitions = [s for s in play.statements() if s.target.array == buffer.name]
        if len(users) < 2 or len(definitions) != 1 or definitions[0].accumulate:
            continue
        if any(SPELLINGS[o.name].cost >= FUNCTION_COST for o in operations(definitions[0].value)):
            continue
        if not any(r.array in play.program.inputs for r in definitions[0].reads):
            continue
        inline_everywhere(play, buffer.name)

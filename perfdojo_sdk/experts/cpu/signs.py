"""Sums of products of bytes whose signs no instruction for groups takes: one factor gets the other sign.

An instruction that multiplies bytes without a sign by bytes with one takes ``x + 128`` for a byte x with a
sign. What is too much, 128 times the sum of the other factor, does not depend on the loops over x alone, so
that it is computed once for all of them. All integers wrap: not a bit of the result changes.
"""

from __future__ import annotations

from collections.abc import Collection
from math import prod

from perfdojo_sdk.core.dialect import Dialect, Group
from perfdojo_sdk.core.dtypes import INTEGER_DTYPES, bits, holds_all, integer_bounds
from perfdojo_sdk.core.errors import MoveError
from perfdojo_sdk.core.expression import Access, Cast, Read, performs
from perfdojo_sdk.core.frozen import frozen
from perfdojo_sdk.core.geometry import lane_stride
from perfdojo_sdk.core.groups import factors_in
from perfdojo_sdk.core.made import Behind, Staged
from perfdojo_sdk.core.program import Program, Scope, Statement
from perfdojo_sdk.core.transformation import Rules, Trace
from perfdojo_sdk.experts.cpu.contraction_forms import WORTH_PACKING, lay_out_like_source
from perfdojo_sdk.experts.cpu.loops import chain
from perfdojo_sdk.experts.cpu.row_kernels import THREADS_COST
from perfdojo_sdk.experts.cpu.steps import groups_of, share_out
from perfdojo_sdk.experts.steps import neighbour, separate
from perfdojo_sdk.hookspecs.services import Decision
from perfdojo_sdk.hookspecs.types import Target
from perfdojo_sdk.search.play import Play


@frozen
class _Shift:
    """A factor of a sum that gets the other sign, and the dtype that it then has."""

    factor: int
    dtype: str
    group: Group

    @property
    def by(self) -> int:
        half = 1 << (bits(self.dtype) - 1)
        return half if integer_bounds(self.dtype)[0] == 0 else -half


def shift_signs(play: Play, constants: Collection[str] = ()) -> list[Decision]:
    """Give a factor the other sign wherever an instruction then adds up larger groups. A factor that is not
    constant is preferred, since the sums of the other one are then constant, too."""
    decisions = []
    for statement in play.statements():
        shift = _shift_of(play, statement, constants)
        if shift is None:
            continue
        kept = play.trace
        try:
            _play(play, statement, shift)
        except MoveError as error:
            play.trace = kept
            decisions.append(Decision("signs", statement.id, "left as they are", error.what))
            continue
        why = "an instruction adds up more products of these dtypes, and what is too much is computed once"
        numbers = {"products in a group": shift.group.size}
        choice = f"factor {shift.factor} plus {shift.by} is {shift.dtype}"
        decisions.append(Decision("signs", statement.id, choice, why, numbers))
    return decisions


def adds_up_groups(program: Program, dialect: Dialect) -> bool:
    """True if an instruction adds up products in groups somewhere."""
    return any(scope.suffix and dialect.suffixes[scope.suffix].groups for _, scope in program.scopes)


def with_threads(game: Trace, rules: Rules, target: Target) -> Trace:
    """The game with threads for what is made before the products, if that takes longer than starting them:
    bytes are converted and summed about as fast as memory moves them."""
    play = Play(game.root, rules)
    play.trace = game
    memory = target.capabilities.memory
    least = THREADS_COST * memory.copy_gbs * 1e9 if memory else 0.0
    for node in game.program.body:
        if isinstance(node, Scope) and play.threads not in node.suffixes:
            share_out(play, node.id, least)
    return play.trace


def _shift_of(play: Play, statement: Statement, constants: Collection[str]) -> _Shift | None:
    """The factor to shift, for the largest group that then adds up the products; None if that is no gain."""
    casts = _converted(statement)
    groups = groups_of(play)
    if casts is None or statement.guard or any(factors_in(statement, group) for group in groups):
        return None
    sources = tuple([cast.argument.dtype for cast in casts])
    widest = max((g.size for g in groups if _reaches(g, statement.dtype, sources)), default=1)
    arrays = [_read(cast).array for cast in casts]
    for group in sorted(groups, key=lambda group: -group.size):
        if group.total != statement.dtype or group.size <= widest:
            continue
        ways = [
            way for dtypes in (group.factors, group.factors[::-1]) if (way := _apart(sources, dtypes, group))
        ]
        ways.sort(key=lambda way: arrays[way.factor] in constants)
        if ways and _pays(play.program, statement, group):
            return ways[0]
    return None


def _converted(statement: Statement) -> tuple[Cast, ...] | None:
    """The two factors of a sum of products of elements that are converted."""
    value = statement.value
    if statement.accumulate != "add" or not performs(value, "mul"):
        return None
    casts = tuple([a for a in value.arguments if isinstance(a, Cast) and isinstance(a.argument, Read)])
    return casts if len(casts) == 2 else None


def _read(cast: Cast) -> Access:
    assert isinstance(cast.argument, Read)
    return cast.argument.access


def _reaches(group: Group, total: str, sources: tuple[str, ...]) -> bool:
    """True if the factors only have to be converted to longer integers for a group."""
    if group.total != total or not {*sources, *group.factors} <= {*INTEGER_DTYPES}:
        return False
    return any(all(map(holds_all, dtypes, sources)) for dtypes in (group.factors, group.factors[::-1]))


def _apart(sources: tuple[str, ...], dtypes: tuple[str, ...], group: Group) -> _Shift | None:
    """The one factor that differs from the group's dtypes, in its sign alone."""
    wrong = [k for k in (0, 1) if sources[k] != dtypes[k]]
    if len(wrong) != 1:
        return None
    (k,) = wrong
    integers = {sources[k], dtypes[k]} <= {*INTEGER_DTYPES}
    return _Shift(k, dtypes[k], group) if integers and bits(sources[k]) == bits(dtypes[k]) else None


def _pays(program: Program, statement: Statement, group: Group) -> bool:
    """True if each element is used often enough to be converted before, and a loop of the sum can be cut into
    groups of neighbours."""
    place, casts = program.place_of[statement.id], _converted(statement)
    sizes, reads = place.sizes, [_read(cast) for cast in casts or ()]
    uses = [prod(size for level, size in enumerate(sizes) if level not in read.levels) for read in reads]
    if min(uses) < WORTH_PACKING or any(scope.suffix for scope in place.above):
        return False
    reduced = [level for level in range(len(sizes)) if level not in statement.target.levels]
    return any(
        sizes[level] % group.size == 0
        and any(lane_stride(program.buffer_of[r.array], r.subscripts, level) == 1 for r in reads)
        for level in reduced
    )


def _play(play: Play, statement: Statement, shift: _Shift) -> None:
    """Shift the factor, keep it in an array of its new dtype, and compute what is too much once."""
    place, root = statement.id, play.around(statement.id)[0].id
    made = play.must("shift_factor", place, factor=shift.factor, by=shift.by)
    assert isinstance(made, Behind)
    first = _take_out(play, made.statement, place, root)
    root = play.around(place)[0].id
    factor = _statement(play, place).value.children[shift.factor]
    play.must("narrow_integer", place, dtype=shift.dtype, term=_term(play, place, factor.text))
    converted = _statement(play, place).value.children[shift.factor].children[0]
    term = _term(play, place, converted.text)
    staged = play.must("stage_expression", place, before=root, term=term)
    assert isinstance(staged, Staged)
    lay_out_like_source(play, staged)
    for nest in (first, staged.nests[0].top):
        _before_the_start(play, nest, statement.target.array)


def _before_the_start(play: Play, nest: str, total: str) -> None:
    """Move a nest at the root in front of the one that starts the sums, which stays beside their products."""
    while play.program.paths[nest][-1] > 0 and total in play.node(neighbour(play, nest, -1)).arrays:
        play.must("reorder_statements", neighbour(play, nest, -1))


def _statement(play: Play, identifier: str) -> Statement:
    node = play.node(identifier)
    assert isinstance(node, Statement)
    return node


def _term(play: Play, place: str, text: str) -> int:
    """The number of an operation or conversion of a statement's value."""
    return next(k for k, term in enumerate(_statement(play, place).value.terms) if term.text == text)


def _take_out(play: Play, rest: str, place: str, root: str) -> str:
    """Sum what is too much in a nest of its own in front, without the loops that it does not need; its id.

    :class:`MoveError` where it needs a loop of its own all the same.
    """
    used = _statement(play, place).target.levels
    around = play.around(place)
    reduced = max(used, default=-1) + 1
    if reduced == len(around):
        raise MoveError("PD-T001", "the loops of the sum do not stand inside of those of its results")
    top = separate(play, rest, around[reduced].id)
    staged = play.must("factor_reduction", top)
    assert isinstance(staged, Staged)
    start = staged.nests[0].top
    for position, node in enumerate((start, top)):
        while play.program.paths[node][-1] > position:
            play.must("reorder_statements", neighbour(play, node, -1))
    separate(play, neighbour(play, top, 1), root)
    for loop in chain(play, root):
        if loop not in play.program.paths:
            continue
        needed = any(
            len(play.around(loop)) in read.levels
            for leaf in play.scope(loop).leaves
            for read in leaf.statement.reads
            if read.array != leaf.statement.target.array
        )
        if not needed:
            play.must("run_once", loop)
    return (*play.around(start), play.node(start))[0].id

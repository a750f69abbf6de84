"""The expert's pass: streams for a nest's operands and results, interleaved accumulators, repeated bodies.

As in the paper's section 4.1, a loop is tiled by four, and the four are moved inside and unrolled, so that
each fused multiply-add finds its accumulator ready. Operands are then staged into stream registers and
results out of them, and the rest of the innermost loop is repeated by the sequencer. A step that is not legal
is left out; the builder compares the results with those without the steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from math import prod

from perfdojo_riscv_snitch.codegen.plan import REPEATED
from perfdojo_riscv_snitch.columns import columns
from perfdojo_riscv_snitch.packed import packed
from perfdojo_riscv_snitch.rows import apart, has_functions
from perfdojo_riscv_snitch.steps import (
    arrays,
    bring_inside,
    collapsed,
    contract_all,
    cut,
    free_mover,
    hoist,
    innermost,
    into_stream,
    lanes_of,
    perfect,
    settle,
    stage,
    streamed_reads,
    streams,
)
from perfdojo_riscv_snitch.windows import windows
from perfdojo_sdk.core.errors import MoveError
from perfdojo_sdk.core.expression import Operation
from perfdojo_sdk.core.program import Program, Scope, Statement
from perfdojo_sdk.core.transformation import Rules, Trace
from perfdojo_sdk.core.transformations.storage import temporaries
from perfdojo_sdk.hookspecs.search import SearchStrategy, SearchTask
from perfdojo_sdk.hookspecs.types import Target
from perfdojo_sdk.search.passes import contract, fuse
from perfdojo_sdk.search.play import Play
from perfdojo_sdk.search.strategies import StartPass

#: Cycles from a fused multiply-add to one that needs its result.
LATENCY = 4
#: Most elements that count as few.
FEW = 16
#: Most accumulators at once, where the size has no better divisor.
MOST = 8
WIDE = 24


def heuristic(root: Program, rules: Rules, target: Target) -> Sequence[Trace]:
    """The expert's games: with interleaved accumulators, with packed pairs where possible, and without."""
    games: list[Trace] = []
    for nest in (_packed, _interleaved, _wide, _plain, _unrolled):
        play = Play(root, rules)
        fuse(play)
        for node in play.program.body:
            if isinstance(node, Scope):
                _tried(play, nest, node.id)
        settle(play)
        if play.trace.moves not in [game.moves for game in games]:
            games.append(play.trace)
    if has_functions(root):
        games.append(nest_by_nest(root, rules))
    return tuple(games)


def nest_by_nest(root: Program, rules: Rules) -> Trace:
    """The game that fuses no nests and emits functions inline."""
    play = Play(root, rules)
    apart(play, _packed)
    settle(play)
    return play.trace


def greedy(root: Program, rules: Rules, target: Target) -> Sequence[Trace]:
    """Naive, then streams and repetition wherever they are legal, as if each were always good."""
    play = Play(root, rules)
    fuse(play)
    contract(play)
    for node in play.program.body:
        if isinstance(node, Scope):
            _tried(play, _plain, node.id)
    settle(play)
    return (play.trace,)


def _tried(play: Play, nest: Callable[[Play, str], None], place: str) -> None:
    """Play a plan on one nest; if it does not fit, leave the nest unchanged."""
    kept = play.trace
    try:
        nest(play, place)
    except MoveError:
        play.trace = kept


def _play_greedy(task: SearchTask) -> Sequence[Trace]:
    return greedy(task.root, task.rules, task.target)


GREEDY = SearchStrategy(
    "riscv_snitch/greedy",
    "Naive, then streams and repetition wherever they are legal.",
    StartPass(_play_greedy),
)


# -- one nest --------------------------------------------------------------------------------------


def _packed(play: Play, place: str) -> None:
    """Two f32 or four f16 at once, along the sum or beside it."""
    for attempt in (packed, columns, windows):
        kept = play.trace
        try:
            attempt(play, place)
            return
        except MoveError:
            play.trace = kept
    _interleaved(play, place)


def _interleaved(play: Play, place: str) -> None:
    _nest(play, place, most=MOST)


def _wide(play: Play, place: str) -> None:
    """Use as many accumulators as there are registers, over all rows if these are few: movers then need
    fewer loops."""
    loops = perfect(play, place)
    if len(loops) > 1 and prod(play.scope(each).size for each in loops) <= WIDE:
        kept = play.trace
        try:
            place = collapsed(play, loops)
        except MoveError:  # some of them may have been collapsed
            play.trace = kept
    _nest(play, place, most=WIDE)


def _plain(play: Play, place: str) -> None:
    _nest(play, place)


def _unrolled(play: Play, place: str) -> None:
    """Unroll a few independent elements, for which no stream has to be set up."""
    loops = perfect(play, place)
    leaves = play.scope(place).leaves
    if any(prod(leaf.sizes) > FEW or len(leaf.sizes) > len(loops) for leaf in leaves):
        _packed(play, place)
        return
    hoist(play, place)
    for each in loops:
        play.may("annotate_scope", each, suffix="u")


def _nest(play: Play, place: str, most: int = 0) -> None:
    """Play one nest. ``most``: accumulators at once; 0 for one after the other."""
    loops = perfect(play, place)
    inner = play.scope(loops[-1])
    statements = [child for child in inner.body if isinstance(child, Statement)]
    kept = play.trace
    try:
        if len(statements) < len(inner.body):
            _reduction(play, loops[-1], most)
        elif any(statement.accumulate for statement in statements):
            _sum(play, loops, most)
        else:
            _elementwise(play, loops)
    except MoveError:
        play.trace = kept


def _elementwise(play: Play, loops: Sequence[str]) -> None:
    """Make one loop over all elements, with each array through a mover and the body repeated."""
    hoist(play, loops[0])
    kept = play.trace
    with suppress(MoveError):
        _in_words(play, loops)
        return
    play.trace = kept
    for attempt in (collapsed, _as_it_is):
        kept = play.trace
        with suppress(MoveError):
            place = attempt(play, loops)
            place = _streamed(play, place, must=attempt is collapsed)
            play.must("annotate_scope", place, suffix=REPEATED)
            return
        play.trace = kept
    with suppress(MoveError):
        _streamed(play, loops[-1], must=False)


def _in_words(play: Play, loops: Sequence[str]) -> None:
    """Compute a word at once, with every array through a mover. MoveError where that is not possible."""
    lanes = lanes_of(play, loops[0])
    if not lanes:
        raise MoveError("PD-T001", "no numbers of which several fit a word")
    inner = loops[-1]
    if len(loops) > 1 and play.scope(inner).size == lanes:  # rows are words
        collapsed(play, loops[:-1])
    else:
        _, inner = play.split(collapsed(play, loops), lanes)
    outer = play.around(inner)[-1].id
    for move, written in (("stage_read", False), ("stage_write", True)):
        for array in arrays(play, inner, written):
            play.must("reuse_dims", play.stage(move, inner, array).buffer, dim=0)
    for child in play.scope(outer).body:
        play.must("annotate_scope", child.id, suffix="v")
    for buffer in temporaries(play.program):
        if play.program.occurrences[buffer.name][0].above[:1] == (play.scope(outer),):
            free_mover(play, buffer.name)
    _repeat_several(play, outer)


def _repeat_several(play: Play, place: str) -> None:
    """Repeat a body without sums; if an instruction waits for another, run four iterations at once."""
    kept = play.trace
    leaves = play.scope(place).leaves
    if any(isinstance(a, Operation) for leaf in leaves for a in leaf.statement.value.children):
        with suppress(MoveError):
            outer, inner = play.split(place, LATENCY)
            play.must("annotate_scope", inner, suffix="u")
            play.must("annotate_scope", outer, suffix=REPEATED)
            return
    play.trace = kept
    play.must("annotate_scope", place, suffix=REPEATED)


def _as_it_is(play: Play, loops: Sequence[str]) -> str:
    return loops[-1]


def _streamed(play: Play, place: str, must: bool) -> str:
    """Put what the scope reads and writes in memory into stream registers, as many as there are.

    The id of the scope afterwards. MoveError where ``must`` and one of them cannot.
    """
    for move, written in (("stage_read", False), ("stage_write", True)):
        for array in arrays(play, place, written):
            kept = play.trace
            try:
                name, joined = stage(play, move, place, array)
                into_stream(play, name)
                place = joined
            except MoveError:
                if must:
                    raise
                play.trace = kept
    return place


# -- reductions ------------------------------------------------------------------------------------


def _reduction(play: Play, place: str, most: int) -> None:
    """Play a scope around sums: several of its iterations at once, with accumulators in registers."""
    lanes = _interleave(play, place, most) if most else place
    for array in arrays(play, lanes, written=True):
        if play.may("stage_write", lanes, array=array):
            play.may("remove_dead", play.program.buffer_of[array].name)
    if most:
        parts = cut(play, lanes)
        for part in parts:
            bring_inside(play, part)
        _write_out(play, play.program.paths[parts[0]][:-1])
        return
    play.may("join_scopes", lanes)
    contract_all(play)
    for node in [c for c in play.scope(lanes).body if isinstance(c, Scope)]:
        inside = streamed_reads(play, perfect(play, node.id)[-1])
        settle(play)
        play.may("annotate_scope", inside, suffix=REPEATED)


def _write_out(play: Play, path: tuple[int, ...]) -> None:
    """Below ``path``, stream operands, unroll lanes, keep accumulators in registers, and repeat sums."""
    for place in list(innermost(play, path)):
        _operands(play, place)
    settle(play)
    for place in list(innermost(play, path)):
        _repeat(play, place)


def _sum(play: Play, loops: Sequence[str], most: int) -> None:
    """Play a sum over all iterations: partial sums in registers, operands through streams."""
    place = collapsed(play, loops)
    (statement, *_) = [leaf.statement for leaf in play.scope(place).leaves]
    if most and play.scope(place).size % LATENCY == 0:
        play.must("stage_accumulator", place, array=statement.target.array)
        outer, inner = play.split(place, LATENCY)
        path = play.program.paths[outer]
        play.must("split_reduction", outer, lane=inner)
        _write_out(play, path[:-1])
        return
    play.must("stage_accumulator", place, array=statement.target.array)
    place = streamed_reads(play, place)
    settle(play)
    play.may("annotate_scope", place, suffix=REPEATED)


def _interleave(play: Play, place: str, most: int) -> str:
    """Split the scope into one of a few iterations; the id of that one."""
    size = play.scope(place).size
    if size <= most:
        return place
    factor = next((f for f in (LATENCY, 5, 6, 7, 8, 3, 2) if size % f == 0), 0)
    if not factor:
        raise MoveError("PD-T001", "no factor")
    return play.split(place, factor)[1]


def _operands(play: Play, place: str) -> None:
    """Stream what an interleaved scope reads and writes in memory, and write it out."""
    place = streamed_reads(play, place)
    for array in [a for a in arrays(play, place, written=True) if a in play.program.outputs]:
        kept = play.trace
        try:
            name, place_now = stage(play, "stage_write", place, array)
            into_stream(play, name)
            place = place_now
        except MoveError:
            play.trace = kept
    play.may("annotate_scope", place, suffix="u")


def _repeat(play: Play, place: str) -> None:
    """Repeat the loops of a sum around written-out statements: the outermost, the others written out."""
    reductions = [s.id for s in play.around(place) if not s.suffix and _only_this(play, s.id)]
    kept = play.trace
    if reductions:
        with suppress(MoveError):
            play.must("annotate_scope", collapsed(play, reductions), suffix=REPEATED)
            return
    play.trace = kept
    if not play.scope(place).suffix:
        reductions.append(place)
    for k, outer in enumerate(reductions):
        kept = play.trace
        if all(play.may("annotate_scope", each, suffix="u") for each in reductions[k + 1 :]):
            if play.may("annotate_scope", outer, suffix=REPEATED):
                return
        play.trace = kept


def _only_this(play: Play, place: str) -> bool:
    """True if a scope is a reduction loop: all its iterations write the same cells."""
    statements = [leaf.statement for leaf in play.scope(place).leaves]
    level = len(play.program.paths[place]) - 1
    sums = [s for s in statements if s.target.array not in streams(play.program)]
    return bool(sums) and all(level not in s.target.levels for s in sums)

"""The expert's pass: streams for what a nest reads and writes, interleaved accumulators, repeated bodies.

As in the paper's section 4.1, a loop is tiled by four and the four are brought inside and written out, so
that each fused multiply-add finds its accumulator ready. Operands are then staged into stream registers and
results out of them, and what is left of the innermost loop is repeated by the sequencer. A step that is not
legal is left out; the builder measures what came out against the program without it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress

from perfdojo_riscv_snitch.codegen.body import REPEATED
from perfdojo_riscv_snitch.codegen.pairs import LANES
from perfdojo_riscv_snitch.codegen.streams import MOVERS
from perfdojo_riscv_snitch.rows import apart, has_functions
from perfdojo_sdk.core.errors import MoveError
from perfdojo_sdk.core.expression import Expression, Operation
from perfdojo_sdk.core.program import Node, Program, Scope, Statement
from perfdojo_sdk.core.transformation import Rules, Trace
from perfdojo_sdk.core.transformations.storage import temporaries
from perfdojo_sdk.hookspecs.search import SearchStrategy, SearchTask
from perfdojo_sdk.hookspecs.types import Target
from perfdojo_sdk.search.passes import contract, fuse
from perfdojo_sdk.search.play import Play
from perfdojo_sdk.search.strategies import StartPass

#: Cycles from a fused multiply-add to one that needs its result.
LATENCY = 4
#: Most accumulators at once, where the size has no better divisor.
MOST = 8


def heuristic(root: Program, rules: Rules, target: Target) -> Sequence[Trace]:
    """What an expert would play: with interleaved accumulators, and without."""
    games: list[Trace] = []
    for interleaved in (True, False):
        play = Play(root, rules)
        fuse(play)
        for node in play.program.body:
            if isinstance(node, Scope):
                _nest(play, node.id, interleaved)
        _settle(play)
        if play.trace.moves not in [game.moves for game in games]:
            games.append(play.trace)
    if has_functions(root):
        games.append(nest_by_nest(root, rules))
    return tuple(games)


def nest_by_nest(root: Program, rules: Rules) -> Trace:
    """Nothing fused, and functions written out."""
    play = Play(root, rules)
    apart(play, lambda play, place: _nest(play, place, interleaved=True))
    _settle(play)
    return play.trace


def greedy(root: Program, rules: Rules, target: Target) -> Sequence[Trace]:
    """Naive, then streams and repetition wherever they are legal, as if each were always good."""
    play = Play(root, rules)
    fuse(play)
    contract(play)
    for node in play.program.body:
        if isinstance(node, Scope):
            _nest(play, node.id, interleaved=False)
    _settle(play)
    return (play.trace,)


def _play_greedy(task: SearchTask) -> Sequence[Trace]:
    return greedy(task.root, task.rules, task.target)


GREEDY = SearchStrategy(
    "riscv_snitch/greedy",
    "Naive, then streams and repetition wherever they are legal.",
    StartPass(_play_greedy),
)


# -- one nest --------------------------------------------------------------------------------------


def _nest(play: Play, place: str, interleaved: bool) -> None:
    loops = _perfect(play, place)
    inner = play.scope(loops[-1])
    statements = [child for child in inner.body if isinstance(child, Statement)]
    kept = play.trace
    try:
        if len(statements) < len(inner.body):
            _reduction(play, loops[-1], interleaved)
        elif any(statement.accumulate for statement in statements):
            _sum(play, loops, interleaved)
        else:
            _elementwise(play, loops)
    except MoveError:
        play.trace = kept


def _perfect(play: Play, place: str) -> list[str]:
    """Ids of the scopes that hold nothing but each other, from ``place`` inwards."""
    found = [place]
    while len(body := play.scope(found[-1]).body) == 1 and isinstance(body[0], Scope):
        found.append(body[0].id)
    return found


def _elementwise(play: Play, loops: Sequence[str]) -> None:
    """One loop over all elements, each array through a mover, the body repeated."""
    _hoist(play, loops[0])
    kept = play.trace
    with suppress(MoveError):
        _in_pairs(play, _collapsed(play, loops))
        return
    play.trace = kept
    for attempt in (_collapsed, _as_it_is):
        kept = play.trace
        with suppress(MoveError):
            place = attempt(play, loops)
            place = _streamed(play, place, must=attempt is _collapsed)
            play.must("annotate_scope", place, suffix=REPEATED)
            return
        play.trace = kept
    with suppress(MoveError):
        _streamed(play, loops[-1], must=False)


def _in_pairs(play: Play, place: str) -> None:
    """Two f32 at once: every array through a mover of words. MoveError where that is not possible."""
    play.must("split_scope", place, factor=LANES)
    inner = f"{place}.i"
    outer = play.around(inner)[-1].id
    for move, written in (("stage_read", False), ("stage_write", True)):
        for array in _arrays(play, inner, written):
            before = {b.name for b in play.program.buffers}
            play.must(move, inner, array=array)
            (name,) = {b.name for b in play.program.buffers} - before
            play.must("reuse_dims", name, dim=0)
    for child in play.scope(outer).body:
        play.must("annotate_scope", child.id, suffix="v")
    for buffer in temporaries(play.program):
        if play.program.occurrences[buffer.name][0].above[:1] == (play.scope(outer),):
            _free_mover(play, buffer.name)
    _repeat_several(play, outer)


def _repeat_several(play: Play, place: str) -> None:
    """Repeat a body without sums; where one instruction waits for another, four iterations of it at once."""
    kept = play.trace
    leaves = play.scope(place).leaves
    if any(isinstance(a, Operation) for leaf in leaves for a in _arguments(leaf.statement.value)):
        with suppress(MoveError):
            play.must("split_scope", place, factor=LATENCY)
            play.must("annotate_scope", f"{place}.i", suffix="u")
            play.must("annotate_scope", f"{place}.o", suffix=REPEATED)
            return
    play.trace = kept
    play.must("annotate_scope", place, suffix=REPEATED)


def _arguments(value: Expression) -> tuple[Expression, ...]:
    return value.arguments if isinstance(value, Operation) else ()


def _hoist(play: Play, place: str) -> None:
    """Keep in registers what is the same in all iterations."""
    for array, touches in play.scope(place).touches.items():
        if not any(t.writes or t.access.levels for t in touches):
            before = {b.name for b in play.program.buffers}
            if play.may("stage_read", place, array=array):
                (name,) = {b.name for b in play.program.buffers} - before
                play.may("set_location", name, location="reg")


def _collapsed(play: Play, loops: Sequence[str]) -> str:
    place = loops[0]
    for _ in loops[1:]:
        path = play.program.paths[place]
        play.must("collapse_scopes", place)
        node = play.program.node(path)
        place = node.id
    return place


def _as_it_is(play: Play, loops: Sequence[str]) -> str:
    return loops[-1]


def _streamed(play: Play, place: str, must: bool) -> str:
    """Put what the scope reads and writes in memory into stream registers, as many as there are.

    The id of the scope afterwards. MoveError where ``must`` and one of them cannot.
    """
    for move, written in (("stage_read", False), ("stage_write", True)):
        for array in _arrays(play, place, written):
            kept = play.trace
            try:
                name, joined = _stage(play, move, place, array)
                _into_stream(play, name)
                place = joined
            except MoveError:
                if must:
                    raise
                play.trace = kept
    return place


def _arrays(play: Play, place: str, written: bool) -> list[str]:
    """Arrays in memory that the scope touches, in order."""
    touches = play.scope(place).touches
    found = [a for a, each in touches.items() if any(t.writes is written for t in each)]
    return [a for a in found if play.program.buffer_of[a].location not in (*MOVERS, "reg")]


def _stage(play: Play, move: str, place: str, array: str) -> tuple[str, str]:
    """Stage an array and join the copy with the scope: name of the buffer, id of the joined scope."""
    before = {b.name for b in play.program.buffers}
    path = play.program.paths[place]
    play.must(move, place, array=array)
    (name,) = {b.name for b in play.program.buffers} - before
    first = play.program.node(path)
    if isinstance(first, Statement):  # one element for the whole scope: nothing to join
        return name, play.program.siblings(path)[path[-1] + 1].id
    play.must("join_scopes", first.id)
    return name, first.id


def _into_stream(play: Play, name: str) -> None:
    buffer = play.program.buffer(name)
    assert buffer is not None
    for k in buffer.materialised:
        play.must("reuse_dims", name, dim=k)
    _free_mover(play, name)


def _free_mover(play: Play, name: str) -> None:
    for location in list(MOVERS)[:-1]:
        if play.may("set_location", name, location=location):
            return
    play.must("set_location", name, location=list(MOVERS)[-1])


# -- reductions ------------------------------------------------------------------------------------


def _reduction(play: Play, place: str, interleaved: bool) -> None:
    """A scope around sums: several of its iterations at once, accumulators in registers."""
    lanes = _interleave(play, place) if interleaved else place
    for array in _arrays(play, lanes, written=True):
        if play.may("stage_write", lanes, array=array):
            play.may("remove_dead", play.program.buffer_of[array].name)
    if interleaved:
        parts = _cut(play, lanes)
        for part in parts:
            _bring_inside(play, part)
        _write_out(play, play.program.paths[parts[0]][:-1])
        return
    play.may("join_scopes", lanes)
    _contract_all(play)
    for node in [c for c in play.scope(lanes).body if isinstance(c, Scope)]:
        innermost = _streamed_reads(play, _perfect(play, node.id)[-1])
        _settle(play)
        play.may("annotate_scope", innermost, suffix=REPEATED)


def _write_out(play: Play, path: tuple[int, ...]) -> None:
    """Below ``path``: streams for operands, lanes written out, accumulators in registers, sums repeated."""
    for place in list(_innermost(play, path)):
        _operands(play, place)
    _settle(play)
    for place in list(_innermost(play, path)):
        _repeat(play, place)


def _sum(play: Play, loops: Sequence[str], interleaved: bool) -> None:
    """A sum over all iterations: partial sums in registers, operands through streams."""
    place = _collapsed(play, loops)
    (statement, *_) = [leaf.statement for leaf in play.scope(place).leaves]
    if interleaved and play.scope(place).size % LATENCY == 0:
        play.must("stage_accumulator", place, array=statement.target.array)
        play.must("split_scope", place, factor=LATENCY)
        path = play.program.paths[place] if place in play.program.paths else play.program.paths[f"{place}.o"]
        play.must("split_reduction", f"{place}.o", lane=f"{place}.i")
        _write_out(play, path[:-1])
        return
    play.must("stage_accumulator", place, array=statement.target.array)
    place = _streamed_reads(play, place)
    _settle(play)
    play.may("annotate_scope", place, suffix=REPEATED)


def _interleave(play: Play, place: str) -> str:
    """Split the scope into one of a few iterations; the id of that one."""
    size = play.scope(place).size
    if size <= MOST:
        return place
    factor = next((f for f in (LATENCY, 5, 6, 7, 8, 3, 2) if size % f == 0), 0)
    if not factor:
        raise MoveError("PD-T001", "no factor")
    play.must("split_scope", place, factor=factor)
    return f"{place}.i"


def _cut(play: Play, place: str) -> list[str]:
    """A scope of its own for each child; their ids."""
    path = play.program.paths[place]
    count = len(play.scope(place).body)
    for child in [c.id for c in play.scope(place).body][1:]:
        play.must("fission_scope", child)
    siblings = play.program.siblings(path)
    return [node.id for node in siblings[path[-1] : path[-1] + count]]


def _bring_inside(play: Play, place: str) -> None:
    """Exchange a scope with those inside it until it holds statements."""
    while isinstance(play.scope(place).body[0], Scope):
        play.must("swap_scopes", place)


def _innermost(play: Play, path: tuple[int, ...]) -> Iterator[str]:
    """Scopes of statements below the node at ``path``; below the root for the empty path."""
    todo: list[Node] = list(play.program.children(path))
    while todo:
        each = todo.pop(0)
        if isinstance(each, Scope):
            if all(isinstance(c, Statement) for c in each.body):
                yield each.id
            else:
                todo = [*each.body, *todo]


def _operands(play: Play, place: str) -> None:
    """Stream what an interleaved scope reads and writes in memory, and write it out."""
    place = _streamed_reads(play, place)
    for array in [a for a in _arrays(play, place, written=True) if a in play.program.outputs]:
        kept = play.trace
        try:
            name, place_now = _stage(play, "stage_write", place, array)
            _into_stream(play, name)
            place = place_now
        except MoveError:
            play.trace = kept
    play.may("annotate_scope", place, suffix="u")


def _repeat(play: Play, place: str) -> None:
    """Repeat the loops of a sum around written-out statements: the outermost, the others written out."""
    reductions = [s.id for s in play.around(place) if not s.suffix and _only_this(play, s.id)]
    if not play.scope(place).suffix:
        reductions.append(place)
    for k, outer in enumerate(reductions):
        kept = play.trace
        if all(play.may("annotate_scope", each, suffix="u") for each in reductions[k + 1 :]):
            if play.may("annotate_scope", outer, suffix=REPEATED):
                return
        play.trace = kept


def _only_this(play: Play, place: str) -> bool:
    """Whether a scope is a loop of a sum: what it computes stays in the same cells."""
    statements = [leaf.statement for leaf in play.scope(place).leaves]
    level = len(play.program.paths[place]) - 1
    sums = [s for s in statements if s.target.array not in _streams(play.program)]
    return bool(sums) and all(level not in s.target.levels for s in sums)


def _streams(program: Program) -> set[str]:
    return {a for b in program.buffers if b.location in MOVERS for a in b.arrays}


def _streamed_reads(play: Play, place: str) -> str:
    for array in _arrays(play, place, written=False):
        if array in _arrays(play, place, written=True) or array not in play.program.interface:
            continue
        kept = play.trace
        try:
            name, place_now = _stage(play, "stage_read", place, array)
            _into_stream(play, name)
            place = place_now
        except MoveError:
            play.trace = kept
    return place


def _contract_all(play: Play) -> None:
    for buffer in temporaries(play.program):
        for k in buffer.materialised:
            play.may("reuse_dims", buffer.name, dim=k)


def _settle(play: Play) -> None:
    """The nearest location that takes each temporary which nothing has placed."""
    _contract_all(play)
    for buffer in temporaries(play.program):
        if buffer.location == play.rules.dialect.default_location:
            for location in ("reg", "tcdm"):
                if play.may("set_location", buffer.name, location=location):
                    break

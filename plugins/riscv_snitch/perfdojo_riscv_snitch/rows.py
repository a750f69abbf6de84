"""The expert's pass for kernels that divide or take exponentials: softmax, normalisation, gates.

Nothing is fused: a nest of functions needs all three movers (for operands, results, and constants of its
functions), and the sums and products beside it are fastest as separate nests that the sequencer repeats.
Divisors of rows are inverted once. Functions then run four at a time, inlined.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from perfdojo_riscv_snitch.codegen.inline import written_out
from perfdojo_riscv_snitch.codegen.pairs import DTYPE, LANES
from perfdojo_riscv_snitch.codegen.plan import REPEATED
from perfdojo_riscv_snitch.codegen.streams import MOVERS
from perfdojo_riscv_snitch.packed import packed
from perfdojo_riscv_snitch.steps import arrays, free_mover, of_singles, several, staged_in_pairs
from perfdojo_sdk.core.errors import MoveError
from perfdojo_sdk.core.expression import Access, Expression, Read, operations
from perfdojo_sdk.core.magnitudes import invertible
from perfdojo_sdk.core.program import Program, Scope, Statement
from perfdojo_sdk.search.play import Play

#: Instances that run in step.
TOGETHER = 4
#: Most instances if the size has no such factor.
MOST = 8


def has_functions(program: Program) -> bool:
    """True if a program has statements for this pass."""
    return any(written_out(leaf.statement.value) for node in program.body for leaf in node.leaves)


def invert_divisors(play: Play) -> None:
    """Multiply by reciprocals that are taken once for each row."""
    for node in list(play.program.body):
        if isinstance(node, Scope):
            found = [(leaf.statement, a) for leaf in node.leaves for a in _divisors(leaf.statement.value)]
            unsafe = {a.array for statement, a in found if not invertible(play.program, statement, a)}
            for array in sorted({a.array for _, a in found} - unsafe):
                play.may("stage_reciprocal", node.id, array=array)


def _divisors(value: Expression) -> set[Access]:
    divisors = [o.arguments[1] for o in operations(value) if o.name == "div"]
    return {divisor.access for divisor in divisors if isinstance(divisor, Read)}


def apart(play: Play, other: Callable[[Play, str], None]) -> None:
    """Play each nest by itself. ``other`` plays a nest that is not for this pass."""
    invert_divisors(play)
    nests = [node.id for node in play.program.body if isinstance(node, Scope)]
    for place in sorted(nests, key=lambda place: not _statements_have_functions(play, place)):
        kept = play.trace
        for attempt in (_functions, packed, _sums, _across_in_pairs, _across, _along, other):
            try:
                attempt(play, place)
                break
            except MoveError:
                play.trace = kept


def _statements_have_functions(play: Play, place: str) -> bool:
    return any(written_out(leaf.statement.value) for leaf in play.scope(place).leaves)


def _not_for(why: str) -> MoveError:
    return MoveError("PD-T001", why)


def _loops(play: Play, place: str) -> list[Scope]:
    """The scopes that hold nothing but each other, from ``place`` inwards."""
    found = [play.scope(place)]
    while len(body := found[-1].body) == 1 and isinstance(body[0], Scope):
        found.append(body[0])
    return found


def _lanes(play: Play, scope: Scope) -> str:
    """A scope of a few iterations: this one, or its inner half."""
    if scope.size <= MOST:
        return scope.id
    factor = next((f for f in (TOGETHER, 8, 7, 6, 5) if scope.size % f == 0), 0)
    if not factor:
        raise _not_for("no factor")
    return play.split(scope.id, factor)[1]


def _functions(play: Play, place: str) -> None:
    """Play one statement with functions: a few instances in step."""
    loops = _loops(play, place)
    inner = loops[-1]
    if len(inner.body) != 1 or not written_out(inner.leaves[0].statement.value):
        raise _not_for("no functions")
    if len(loops) == 1 and inner.size <= MOST:
        play.must("annotate_scope", inner.id, suffix="u")
        return
    _keep_what_stays(play, inner.id)
    lanes = inner.id
    if inner.size > TOGETHER:
        lanes = _lanes(play, inner)
    lanes = _streamed(play, lanes)
    play.must("annotate_scope", lanes, suffix="u")


def _sums(play: Play, place: str) -> None:
    """Play a sum or a maximum for each row: a few rows at a time, repeated by the sequencer."""
    outer = play.scope(place)
    if (
        len(outer.body) != 2
        or not isinstance(outer.body[0], Statement)
        or not isinstance(outer.body[1], Scope)
    ):
        raise _not_for("no sums")
    [target] = several({leaf.statement.target.array for leaf in outer.leaves}, 1, "results")
    lanes = _lanes(play, outer)
    staged, first = play.stage("stage_write", lanes, target), lanes
    name, last = staged.buffer, staged.copy
    lanes = play.fission(play.scope(first).body[1].id)
    play.must("swap_scopes", lanes)
    around = play.around(lanes)[-1].id
    lanes = _streamed(play, lanes, results=False)
    for each in (first, lanes, last):
        play.must("annotate_scope", each, suffix="u")
    buffer = play.program.buffer(name)
    assert buffer is not None
    for k in range(len(buffer.dimensions) - 1):
        play.must("reuse_dims", name, dim=k)
    play.must("set_location", name, location="reg")
    play.may("annotate_scope", around, suffix=REPEATED)


def _across(play: Play, place: str) -> None:
    """Play a nest with operands that change along the row only: a few rows at a time share them."""
    loops = _loops(play, place)
    if len(loops) != 2:
        raise _not_for("no rows")
    rows, columns = loops
    reads = [read for leaf in columns.leaves for read in leaf.statement.reads]
    if not any(read.levels == (1,) for read in reads):
        raise _not_for("no shared operands")
    lanes = _lanes(play, rows)
    play.must("swap_scopes", lanes)
    outer, level = columns.id, len(play.around(lanes))
    _keep_what_stays(play, lanes)
    kept = [
        play.stage("stage_read", outer, array)
        for array, touches in play.scope(outer).touches.items()
        if all(t.access.levels == (level,) and not t.writes for t in touches)
    ]
    lanes = _streamed(play, lanes, kept=[staged.buffer for staged in kept])
    play.must("annotate_scope", lanes, suffix="u")
    for staged in kept:
        play.must("annotate_scope", staged.copy, suffix="u")
        play.must("set_location", staged.buffer, location="reg")


def _across_in_pairs(play: Play, place: str) -> None:
    """The same with two columns at once: words of a row through movers, shared operands in registers."""
    loops = _loops(play, place)
    if len(loops) != 2 or not of_singles(play, place):
        raise _not_for("no rows of f32")
    rows, columns = loops
    reads = {read.array: read.levels for leaf in columns.leaves for read in leaf.statement.reads}
    if (1,) not in reads.values():
        raise _not_for("no shared operands")
    lanes = _lanes(play, rows)
    outer, pair = play.split(columns.id, LANES)
    play.must("swap_scopes", lanes)
    for array, levels in reads.items():
        if levels == (1,):
            play.must("set_location", staged_in_pairs(play, "stage_read", lanes, array), location="reg")
        elif levels == (0,):
            staged = play.stage("stage_read", outer, array)
            if not staged.scopes:
                raise _not_for("one number for all rows")
            play.must("annotate_scope", staged.scopes[-1], suffix="u")
            play.must("annotate_scope", lanes, suffix="u")
            play.must("set_location", staged.buffer, location="reg")
        elif levels == (0, 1):
            free_mover(play, staged_in_pairs(play, "stage_read", pair, array))
    for array in arrays(play, pair, written=True):
        free_mover(play, staged_in_pairs(play, "stage_write", pair, array))
    play.may("annotate_scope", lanes, suffix="u")


def _along(play: Play, place: str) -> None:
    """Play an elementwise nest row by row, through movers and repeated by the sequencer."""
    loops = _loops(play, place)
    inner = loops[-1]
    if len(loops) != 2 or not all(isinstance(child, Statement) for child in inner.body):
        raise _not_for("no rows")
    _keep_what_stays(play, inner.id)
    if inner.leaves[0].statement.dtype == DTYPE:
        _in_pairs(play, inner)
        return
    lanes = _streamed(play, inner.id)
    play.must("annotate_scope", lanes, suffix=REPEATED)


def _in_pairs(play: Play, columns: Scope) -> None:
    """Compute two f32 at once, with each array through a mover."""
    outer, lanes = play.split(columns.id, LANES)
    [leaf] = several(play.scope(lanes).leaves, 1, "statements")
    reads = [r.array for r in leaf.statement.reads if _in_memory(play.program, r.array)]
    movers = iter(MOVERS)
    names = [play.stage("stage_read", lanes, array).buffer for array in dict.fromkeys(reads)]
    names.append(play.stage("stage_write", lanes, leaf.statement.target.array).buffer)
    for name in names:
        _contract(play, name, but=1)
    for child in play.scope(outer).body:
        play.must("annotate_scope", child.id, suffix="v")
    for name in names:
        play.must("set_location", name, location=next(movers, ""))
    play.must("annotate_scope", outer, suffix=REPEATED)


def _keep_what_stays(play: Play, place: str) -> None:
    """Keep values that are invariant in the scope in registers."""
    level = len(play.program.paths[place]) - 1
    for array, touches in play.scope(place).touches.items():
        if not any(t.writes or any(l >= level for l in t.access.levels) for t in touches):
            kept = play.trace
            try:
                name = play.stage("stage_read", place, array).buffer
                _contract(play, name)
                play.must("set_location", name, location="reg")
            except MoveError:
                play.trace = kept


def _streamed(play: Play, lanes: str, results: bool = True, kept: Sequence[str] = ()) -> str:
    """Stream operands but ``kept``, and the result, as long as movers are left; returns the lanes' new id."""
    [leaf] = several(play.scope(lanes).leaves, 1, "statements")
    reads = [
        r.array for r in leaf.statement.reads if _in_memory(play.program, r.array) and r.array not in kept
    ]
    moves = [("stage_read", array) for array in dict.fromkeys(reads)]
    moves += [("stage_write", leaf.statement.target.array)] if results else []
    free = ["ssr1", "ssr0"]
    for move, array in moves:
        before = play.trace
        try:
            staged = play.stage(move, lanes, array)
            first = lanes if move == "stage_write" else staged.copy
            play.must("join_scopes", first)
            _contract(play, staged.buffer)
            play.must("set_location", staged.buffer, location=free[-1])
            free.pop()
            lanes = first
        except (MoveError, IndexError):
            play.trace = before
    return lanes


def _in_memory(program: Program, array: str) -> bool:
    return program.buffer_of[array].location not in ("reg", *MOVERS)


def _contract(play: Play, name: str, but: int = 0) -> None:
    """Keep one value, or as many as there are iterations of the innermost scope."""
    buffer = play.program.buffer(name)
    assert buffer is not None
    for k in buffer.materialised[: len(buffer.materialised) - but]:
        play.must("reuse_dims", name, dim=k)

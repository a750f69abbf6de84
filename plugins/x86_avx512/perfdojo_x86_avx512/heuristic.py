"""What an x86 expert would do, in the game's own moves, driven by the target file's figures.

Two plans. A *contraction* (c += a*b) is tiled for registers: the accumulators fill the vector
registers and b is packed a panel at a time. Everything else is bound by memory, so
rows are fused until each is read once, reductions get one partial result for each lane of a few
independent vectors, and large outputs are stored past the caches.
"""

from __future__ import annotations

from dataclasses import dataclass

from perfdojo_sdk.core.expression import Access, Operation, Read
from perfdojo_sdk.core.program import Node, Program, Scope, Statement
from perfdojo_sdk.core.transformation import Rules, Trace
from perfdojo_sdk.core.transformations.scopes import divisors
from perfdojo_sdk.core.transformations.storage import temporaries
from perfdojo_sdk.core.validate import BYTES
from perfdojo_sdk.hookspecs.types import Target
from perfdojo_sdk.search.passes import contract, fuse, parallelise
from perfdojo_sdk.search.play import Play

#: Independent vectors that a reduction keeps in flight: latency times throughput of an addition.
CHAINS = 4

#: Rows of a register tile: no more than the ways of a small cache, since rows of a power-of-two
#: length fall into one set of it. With that, a need not be packed.
MOST_ROWS = 8


def heuristic(root: Program, rules: Rules, target: Target) -> tuple[Trace, ...]:
    """One game; where outputs exceed the caches, one with streaming stores and one without.

    Which of the two is faster depends on more than bandwidths, so a measurement decides.
    """
    ways = (True, False) if exceeds_caches(root, target) else (False,)
    return tuple(play_as_expert(root, rules, target, streaming) for streaming in ways)


def play_as_expert(root: Program, rules: Rules, target: Target, streaming: bool) -> Trace:
    play = Play(root, rules)
    fuse(play, depth=0)
    contraction = find_contraction(play.program)
    if contraction is not None:
        tile_for_registers(play, contraction, target)
    else:
        reciprocals(play)
        widen(play, target)
        use_lanes(play)
        gather(play)
        if exceeds_caches(root, target):
            fetch_ahead(play)
        if streaming:
            stream_outputs(play)
    contract(play)
    use_lanes(play)
    write_out(play, copies=target.capabilities.vector_registers)
    for node in play.program.body:
        if isinstance(node, Scope):
            parallelise(play, node.id)
    settle_buffers(play)
    return play.trace


# -- memory-bound kernels --------------------------------------------------------------------------


def reciprocals(play: Play) -> None:
    """Divide once for each row where a whole loop divides by the same value."""
    for scope in play.innermost():
        level = len(play.around(scope.id))
        for statement in scope.body:
            assert isinstance(statement, Statement)
            for operation in _operations(statement.value):
                if operation.name == "div" and isinstance(operation.arguments[1], Read):
                    divisor = operation.arguments[1].access
                    if level not in divisor.levels:
                        play.may("stage_reciprocal", scope.id, array=divisor.array)


def _operations(value: object) -> list[Operation]:
    if not isinstance(value, Operation):
        return []
    return [value, *(inner for a in value.arguments for inner in _operations(a))]


def widen(play: Play, target: Target) -> None:
    """Split each innermost loop to vectors; give reductions a partial result for each lane."""
    for scope in play.innermost():
        if len(scope.body) != 1 or scope.suffix:
            continue
        statement = scope.body[0]
        assert isinstance(statement, Statement)
        width = largest_divisor(scope.size, target.capabilities.lanes.get(statement.dtype, 1))
        if width == 1:
            continue
        nest = split(play, scope.id, width)
        if len(nest) > 1:
            nest = [*split(play, nest[0], largest_divisor(scope.size // width, CHAINS)), nest[-1]]
        if statement.accumulate:
            for lane in reversed(nest[1:] or nest):
                play.may("split_reduction", nest[0], lane=lane)


def split(play: Play, place: str, factor: int) -> list[str]:
    """Ids of the outer and the inner scope; of the scope alone when there is nothing to split."""
    if not 1 < factor < play.scope(place).size:
        return [place]
    play.must("split_scope", place, factor=factor)
    return [f"{place}.o", f"{place}.i"]


def largest_divisor(size: int, most: int) -> int:
    if size <= most:
        return size
    return max((d for d in divisors(size) if d <= most), default=1)


def gather(play: Play) -> None:
    """Bring loops of one row together and fuse them, so that a value is used while it is warm."""
    tried: set[tuple[str, str]] = set()
    while _gather_once(play, tried):
        pass
    fuse(play)


def _gather_once(play: Play, tried: set[tuple[str, str]]) -> bool:
    for scope in play.scopes():
        loops = [c for c in scope.body if isinstance(c, Scope)]
        for k, first in enumerate(loops):
            for second in loops[k + 1 :]:
                if first.size == second.size > CHAINS and (first.id, second.id) not in tried:
                    tried.add((first.id, second.id))
                    if _join_distant(play, first.id, second.id):
                        return True
    return False


def _join_distant(play: Play, first: str, second: str) -> bool:
    kept = play.trace
    paths = play.program.paths
    for _ in range(paths[second][-1] - paths[first][-1] - 1):
        if not play.may("reorder_statements", first):
            play.trace = kept
            return False
    if play.may("join_scopes", first):
        return True
    play.trace = kept
    return False


def exceeds_caches(root: Program, target: Target) -> bool:
    """Whether the data is so large that nothing of it would stay in the caches."""
    last = max((c.bytes for c in target.capabilities.caches.values()), default=0)
    data = sum(b.cells * BYTES[b.dtype] for b in root.buffers if root.interface.intersection(b.arrays))
    return data > last


def fetch_ahead(play: Play) -> None:
    """Where several loops pass over a row, the last one asks for the next row while it computes."""
    for array in play.program.inputs:
        readers = [s for s in play.innermost() if any(array == r.array for r in _reads(s))]
        rows = {play.around(s.id)[0].id for s in readers if play.around(s.id)}
        whole = [s for s in readers if all(0 in r.levels for r in _reads(s) if r.array == array)]
        if len(rows) == 1 and len(readers) > 1 and len(whole) == len(readers):
            play.may("stage_read", readers[-1].id, array=array)


def _reads(scope: Scope) -> list[Access]:
    return [read for child in scope.body if isinstance(child, Statement) for read in child.reads]


def stream_outputs(play: Play) -> None:
    """Stage what is written to an output in a window with streaming stores."""
    outputs = set(play.program.outputs)
    for scope in play.innermost():
        statement = scope.body[-1]
        assert isinstance(statement, Statement)
        if len(scope.body) == 1 and statement.target.array in outputs and not statement.accumulate:
            play.may("stage_write", scope.id, array=statement.target.array)


# -- contractions ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Contraction:
    """``c[i,j] += a[i,k] * b[k,j]`` in a nest over i and j that holds the start and the sum."""

    rows: str
    columns: str
    sum: str
    b: str
    c: str


def find_contraction(program: Program) -> Contraction | None:
    """The contraction of a program ``m n { c = 0; k c += a * b }``, if that is what it is."""
    nest = [s for s in program.body if isinstance(s, Scope)]
    if len(program.body) != 1 or len(nest) != 1 or len(nest[0].body) != 1:
        return None
    rows, columns = nest[0], nest[0].body[0]
    if not isinstance(columns, Scope) or len(columns.body) != 2:
        return None
    start, total = columns.body
    if not isinstance(start, Statement) or not isinstance(total, Scope) or len(total.body) != 1:
        return None
    body = total.body[0]
    if not isinstance(body, Statement) or body.accumulate != "add":
        return None
    value = body.value
    if not isinstance(value, Operation) or value.name != "mul":
        return None
    if [a.levels for a in body.reads] != [(0, 2), (1, 2)] or body.target.levels != (0, 1):
        return None
    return Contraction(rows.id, columns.id, total.id, body.reads[1].array, body.target.array)


def register_tile(rows: int, columns: int, lanes: int, registers: int) -> tuple[int, int, int]:
    """Rows, vectors and lanes of the block of accumulators that loads least for its arithmetic.

    Besides the accumulators, one row of b and one value of a must find a register.
    """
    width = largest_divisor(columns, lanes)
    tiles = [
        (high, wide, width)
        for high in (1, *divisors(rows), rows)
        for wide in (1, *divisors(columns // width), columns // width)
        if high <= MOST_ROWS and high * wide + wide + 1 <= registers
    ]
    return max(tiles, key=lambda t: (t[0] * t[1] / (t[0] + t[1]), t[0]))


def tile_for_registers(play: Play, found: Contraction, target: Target) -> None:
    rows, columns = play.scope(found.rows).size, play.scope(found.columns).size
    lanes = target.capabilities.lanes.get("f32", 1)
    high, wide, width = register_tile(rows, columns, lanes, target.capabilities.vector_registers or 8)

    # Tiles: columns of panels outermost, then tiles of rows, then one tile.
    row_nest = split(play, found.rows, high)
    column_nest = split(play, found.columns, wide * width)
    if len(column_nest) == 2 and wide > 1:
        column_nest = [column_nest[0], *split(play, column_nest[1], width)]
    if len(row_nest) < 2 or len(column_nest) < 2:
        return
    panel, tile, row = column_nest[0], row_nest[0], row_nest[1]
    play.must("swap_scopes", row)
    play.must("swap_scopes", tile)

    # Accumulators: start, sum and store of a tile become three nests; the sum's k moves outward.
    play.must("stage_write", row, array=found.c)
    place = found.sum
    summed: list[str] = []
    for scope in (*reversed(column_nest[1:]), row):
        play.must("fission_scope", place)
        place = f"{scope}.{place}"
        summed.append(place)
    for scope in summed:
        play.must("swap_scopes", scope)

    # Packing: b once, its rows read in order; a panel of it stays near while all of a passes.
    play.must("stage_read", panel, array=found.b)
    play.may("swap_scopes", play.program.body[0].id)


# -- hardware --------------------------------------------------------------------------------------


def use_lanes(play: Play) -> None:
    """Innermost scopes become vectors where they can."""
    for scope in play.innermost():
        play.may("annotate_scope", scope.id, suffix="v")


def write_out(play: Play, copies: int) -> None:
    """Unroll the small scopes around vectors and statements, fewer than ``copies`` times in all."""
    for place in [scope.id for scope in reversed(play.scopes())]:
        scope = play.scope(place)
        mapped = all(isinstance(c, Statement) or c.suffix for c in scope.body)
        if mapped and not scope.suffix and play.around(place) and _copies(scope) * scope.size < copies:
            play.may("annotate_scope", place, suffix="u")


def _copies(node: Node) -> int:
    if isinstance(node, Statement):
        return 1
    return max(_copies(c) for c in node.body) * (node.size if node.suffix == "u" else 1)


def settle_buffers(play: Play) -> None:
    """The nearest location that takes each temporary."""
    for buffer in temporaries(play.program):
        windows = [w for w, mark in (("nt", "_w"), ("ahead", "_r")) if buffer.name.endswith(mark)]
        for location in (*windows, "reg", "stack"):
            if play.may("set_location", buffer.name, location=location):
                break

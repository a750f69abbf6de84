"""How an expert plays what memory bounds: each row is read once and its values are used while warm."""

from __future__ import annotations

from perfdojo_sdk.core.expression import Access, Operation, Read
from perfdojo_sdk.core.program import Scope, Statement
from perfdojo_sdk.hookspecs.types import Target
from perfdojo_sdk.search.passes import fuse
from perfdojo_sdk.search.play import Play
from perfdojo_x86_avx512.steps import exceeds_caches, largest_divisor, split, use_lanes

#: Independent vectors that a reduction keeps in flight: latency times throughput of an addition.
CHAINS = 4


def stream_rows(play: Play, target: Target, streaming: bool) -> None:
    """Fuse rows, use vectors, and store past the caches if ``streaming``."""
    reciprocals(play)
    widen(play, target)
    use_lanes(play)
    gather(play)
    if exceeds_caches(play.trace.root, target):
        fetch_ahead(play)
    if streaming:
        stream_outputs(play)


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

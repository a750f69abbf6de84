"""Small steps that every plan of the expert takes: split, use the lanes, write out, settle buffers."""

from __future__ import annotations

from math import prod

from perfdojo_sdk.core.dialect import Group
from perfdojo_sdk.core.expression import Access
from perfdojo_sdk.core.groups import group_of, losses
from perfdojo_sdk.core.program import Node, Program, Scope, Statement
from perfdojo_sdk.core.transformation import Kind
from perfdojo_sdk.core.transformations.scopes import divisors
from perfdojo_sdk.core.transformations.storage import temporaries
from perfdojo_sdk.hookspecs.types import Target
from perfdojo_sdk.search.play import Play

#: Iterations of a loop that are enough to share out evenly among threads.
SHARES = 8


def near_caches(target: Target) -> tuple[int, int]:
    """Bytes of the smallest and of the next cache, whatever their names and their order are."""
    sizes = sorted(cache.bytes for cache in target.capabilities.caches.values()) or [32 << 10]
    return sizes[0], sizes[min(1, len(sizes) - 1)]


def data_bytes(root: Program) -> int:
    """Bytes of the kernel's inputs and outputs."""
    return sum(b.bytes for b in root.buffers if root.interface.intersection(b.arrays))


def output_bytes(root: Program) -> int:
    """Bytes of the kernel's outputs."""
    return sum(b.bytes for b in root.buffers if not {*root.outputs}.isdisjoint(b.arrays))


def split(play: Play, place: str, factor: int) -> list[str]:
    """Ids of the outer and the inner scope; of the scope alone when there is nothing to split."""
    if not 1 < factor < play.scope(place).size:
        return [place]
    return [*play.split(place, factor)]


def largest_divisor(size: int, most: int) -> int:
    if size <= most:
        return size
    return max((d for d in divisors(size) if d <= most), default=1)


def outermost(play: Play, place: str, access: Access) -> str:
    """The outermost scope of the perfect nest around ``place`` that an access does not depend on."""
    around = play.around(place)
    for level in reversed(range(len(around))):
        if len(around[level].body) != 1 or level in access.levels:
            break
        place = around[level].id
    return place


def transpose(play: Play, outermost: bool = False) -> None:
    """Transpose copies of rows to columns in registers, square by square, if the target supports that.

    The outermost loops are left for threads, unless ``outermost`` says otherwise.
    """
    for suffix in _transposing(play):
        for scope in play.scopes():
            if outermost or play.around(scope.id):
                play.may("annotate_scope", scope.id, suffix=suffix)


def _transposing(play: Play) -> list[str]:
    return [suffix.name for suffix in play.rules.dialect.suffixes.values() if suffix.transposes]


def groups_of(play: Play, tiles: bool = False) -> list[Group]:
    """The groups that instructions of the target add up in each lane, as far as the pass may lose what they
    lose; or those of its instructions for matrices."""
    lawful = play.rules.most >= Kind.CHANGES_PRECISION
    groups = [group for s in play.rules.dialect.suffixes.values() for group in s.groups]
    return [g for g in groups if (lawful or not losses(g)) and (g.tile is not None) == tiles]


def use_groups(play: Play) -> None:
    """Let instructions add up products in groups where possible, with the scope around as their lanes."""
    suffixes = play.rules.dialect.suffixes.values()
    around = next((suffix.name for suffix in suffixes if suffix.around_groups), "")
    for suffix in suffixes if around else ():
        groups = [group for group in groups_of(play) if group in suffix.groups]
        for scope in play.innermost() if groups else ():
            if scope.suffix or not play.around(scope.id) or len(scope.body) > 1:
                continue
            kept, lanes = play.trace, play.around(scope.id)[-1].id
            if group_of(scope.leaves[0].statement, groups, scope.size) is None:
                continue
            if not (play.annotate(scope.id, suffix.name) and play.annotate(lanes, around)):
                play.trace = kept


def use_lanes(play: Play, gathering: bool = False) -> None:
    """Make vectors of the innermost scopes where possible.

    ``gathering``: of elements that lie anywhere, too.
    """
    for scope in play.innermost():
        if not play.annotate(scope.id, play.lanes) and gathering:
            play.annotate(scope.id, play.gathering_lanes)


def write_out(play: Play, copies: int, outermost: bool = False) -> None:
    """Unroll the small scopes around vectors and statements, fewer than ``copies`` times in all.

    ``outermost``: also those that stand in no other scope.
    """
    for place in [scope.id for scope in reversed(play.scopes())]:
        scope = play.scope(place)
        mapped = all(isinstance(c, Statement) or c.suffix for c in scope.body)
        around = play.around(place)
        inside = outermost or around
        if around and around[-1].suffix in _transposing(play):
            continue
        if mapped and inside and not scope.suffix and _copies(scope, play.written_out) * scope.size < copies:
            play.annotate(place, play.written_out)


def _copies(node: Node, suffix: str) -> int:
    """Copies of the innermost statements, as scopes with ``suffix`` write them out."""
    if isinstance(node, Statement):
        return 1
    return max(_copies(c, suffix) for c in node.body) * (node.size if node.suffix == suffix else 1)


def share_out(play: Play, place: str, least: float) -> bool:
    """Run the scope on threads, or the scopes inside it that are worth it, or else any that can be.

    Worth starting the threads are ``SHARES`` iterations that run ``least`` statements in all.
    """
    scope, threads = play.scope(place), play.threads
    enough = sum(prod(sizes) for _, sizes in scope.leaves) >= least
    if enough and scope.size >= SHARES and play.annotate(place, threads):
        return True
    inside = [c.id for c in scope.body if isinstance(c, Scope) and not c.suffix]
    shared = [share_out(play, each, least) for each in inside] if enough else []
    if any(shared) or any(threads and c.suffix == threads for c in scope.body if isinstance(c, Scope)):
        return True
    return enough and scope.size > 1 and play.annotate(place, threads)


def settle_buffers(play: Play) -> None:
    """Put each temporary that no plan has placed into the nearest location that allows it."""
    for buffer in temporaries(play.program):
        if buffer.location == play.rules.dialect.default_location:
            for location in play.near_locations:
                if play.may("set_location", buffer.name, location=location):
                    break


def perfect_nest(play: Play, place: str) -> tuple[list[str], Statement | None]:
    """Scopes that hold nothing but each other, and the one statement in the innermost."""
    nest, node = [place], play.scope(place)
    while len(node.body) == 1:
        child = node.body[0]
        if isinstance(child, Statement):
            return nest, child
        nest.append(child.id)
        node = child
    return nest, None


def join_distant(play: Play, first: str, second: str) -> bool:
    """Fuse two loops of one row; what stands between them moves in front of both or behind them."""
    kept = play.trace
    if not all(play.may("reorder_statements", first) for _ in _between(play, first, second)):
        play.trace = kept
        while between := _between(play, first, second):
            behind = play.may("reorder_statements", between[-1])
            passed = [first, *between[:-1]]
            if not behind and not all(play.may("reorder_statements", node) for node in reversed(passed)):
                break
    if not _between(play, first, second) and play.may("join_scopes", first):
        return True
    play.trace = kept
    return False


def _between(play: Play, first: str, second: str) -> list[str]:
    paths = play.program.paths
    siblings = play.program.siblings(paths[first])
    return [node.id for node in siblings[paths[first][-1] + 1 : paths[second][-1]]]

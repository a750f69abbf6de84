"""Small steps that every plan of the x86 expert takes: split, use the lanes, write out, settle buffers."""

from __future__ import annotations

from perfdojo_sdk.core.program import Node, Program, Statement
from perfdojo_sdk.core.transformations.scopes import divisors
from perfdojo_sdk.core.transformations.storage import temporaries
from perfdojo_sdk.core.validate import BYTES
from perfdojo_sdk.hookspecs.types import Target
from perfdojo_sdk.search.play import Play


def exceeds_caches(root: Program, target: Target) -> bool:
    """Whether the data is so large that nothing of it would stay in the caches."""
    last = max((c.bytes for c in target.capabilities.caches.values()), default=0)
    data = sum(b.cells * BYTES[b.dtype] for b in root.buffers if root.interface.intersection(b.arrays))
    return data > last


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

"""Nests around a stencil: what starts its sums, makes its image, and reads its results.

They run image by image: the padded copy of one image, the stencil, and what follows. The copy gets the layout
that the stencil reads best: rows that begin where vectors may, and where windows move by two elements, the
even columns of each row before the odd ones, so that neighbouring lanes read neighbours.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from perfdojo_sdk.core.errors import MoveError
from perfdojo_sdk.core.program import Program, Scope
from perfdojo_sdk.core.transformations.storage import temporaries
from perfdojo_sdk.experts.cpu.image_rows import lay_out_rows
from perfdojo_sdk.experts.cpu.loops import chain, join_nests
from perfdojo_sdk.experts.cpu.stencils import Stencil, find_stencil
from perfdojo_sdk.experts.cpu.tile_copies import copy_tiles
from perfdojo_sdk.experts.steps import isolate
from perfdojo_sdk.hookspecs.services import Decision
from perfdojo_sdk.hookspecs.types import Target
from perfdojo_sdk.search.play import Play

#: The rule's name in decisions; their places are the roots of nests that were joined.
JOIN_CHANNELS = "join channels"


def join_starts(play: Play, target: Target) -> list[Decision]:
    """Let a stencil whose results start in a nest of their own, right before it, start them itself."""
    decisions = []
    for first, second in zip(play.program.body, play.program.body[1:], strict=False):
        if (
            not isinstance(first, Scope)
            or not isinstance(second, Scope)
            or first.id not in play.program.paths
        ):
            continue
        start, total = first.chain[1], second.chain[1]
        if not start or not total or not total.accumulate or first.id not in play.program.paths:
            continue
        if start.target.array != total.target.array:
            continue
        kept = play.trace
        joined = join_nests(play, [first.id, second.id], len(first.chain[0]))
        if joined and find_stencil(play.program, play.node(first.id), target) is not None:
            why = "its results then stay in registers from the start"
            decisions.append(Decision("join starts", first.id, f"joined with {second.id}", why))
        else:
            play.trace = kept
    return decisions


def separate_stencils(play: Play, target: Target) -> list[Decision]:
    """Give a stencil that shares its outer loops with others, such as the inside of a padded window with its
    border, a nest of its own, if its windows move by more than one element: lanes need copies of what they
    read. Others are as fast where they are."""
    decisions = []
    for root in [node for node in play.program.body if isinstance(node, Scope)]:
        inside = _most_of(root)
        if inside is root or find_stencil(play.program, root, target) is not None:
            continue
        kept = play.trace
        try:
            place = isolate(play, inside.id)
        except MoveError as error:
            play.trace = kept
            decisions.append(Decision("separate stencils", root.id, "left together", error.what))
            continue
        found = find_stencil(play.program, play.node(place), target)
        if found is None or found.step == 1:
            play.trace = kept
            continue
        numbers = {"iterations": play.scope(place).instances, "of": root.instances}
        why = "neighbouring lanes read elements that lie apart, which a tile of its own copies"
        choice = f"{inside.id} became a nest of its own"
        decisions.append(Decision("separate stencils", root.id, choice, why, numbers))
    return decisions


def _most_of(scope: Scope) -> Scope:
    """The scope that does most, of those that stand beside others in the nest; the nest itself if it has only
    one chain of loops around its sums."""
    found, node = scope, scope
    while nests := [child for child in node.body if isinstance(child, Scope)]:
        node = max(nests, key=lambda nest: nest.instances)
        if len(nests) > 1:
            found = node
    return found


# -- nests around a stencil ----------------------------------------------------------------------------


def join_channels(play: Play, target: Target) -> list[Decision]:
    """Join a stencil with the nests that make its image, such as a copy with a border, and with those that
    read its results, around the loops that all of them have: one image after the other then stays near."""
    decisions = []
    for root in [node.id for node in play.program.body]:
        if root not in play.program.paths:
            continue
        found = find_stencil(play.program, play.node(root), target)
        roots = _around(play.program, root, found) if found else []
        if found is None or len(roots) < 2:
            continue
        kept = play.trace
        found = _without_units(play, root, target) or found
        outer = next(k for k in range(len(found.loops)) if k in (found.row, found.lane))
        depth = min(outer, _common_loops([play.scope(each) for each in roots]))
        passed = play.program.buffer_of[found.sliding.array].bytes
        if depth == 0 or not join_nests(play, roots, depth):
            play.trace = kept
            why = "they share no loop around the rows, or one reads what another one writes later"
            decisions.append(Decision("keep channels apart", root, "planned nest by nest", why))
            continue
        decisions += copy_tiles(play, roots[0], found, depth, target)
        whole = found.sliding.array in play.program.buffer_of
        copy = _pad_by_rows(play, roots[0], found.sliding.array, depth) if whole else ""
        if copy:
            lay_out_rows(play, copy, found.sliding.array, found)
        for buffer in temporaries(play.program):
            for dim in range(min(depth, len(buffer.shape))):
                play.may("reuse_dims", buffer.name, dim=dim)
        numbers = {"bytes": passed, "images": prod(found.sizes[:depth])}
        why = "what one nest passes to the next is then one image, which stays in a near cache"
        choice = f"{len(roots)} nests run image by image"
        decisions.append(Decision(JOIN_CHANNELS, roots[0], choice, why, numbers))
    return decisions


def _without_units(play: Play, root: str, target: Target) -> Stencil | None:
    """The stencil without loops of one iteration around its rows and taps, whose iterators keep a subscript
    from being one loop's."""
    for place in [scope.id for scope in play.scopes() if root in [s.id for s in play.around(scope.id)]]:
        if place in play.program.paths and play.scope(place).size == 1:
            play.may("collapse_scopes", place)
    return find_stencil(play.program, play.node(root), target)


def _around(program: Program, root: str, found: Stencil) -> list[str]:
    """The stencil, the nests right before it that write its image, and those right after it that read what it
    or one before them wrote, as far as that are temporaries."""
    (at,), own = program.paths[root], {name for b in temporaries(program) for name in b.arrays}
    written, roots = {found.total.target.array}, [root]
    for node in reversed(program.body[:at]) if found.sliding.array in own else ():
        if not isinstance(node, Scope) or {*node.written_arrays} != {found.sliding.array}:
            break
        roots.insert(0, node.id)
    for node in program.body[at + 1 :]:
        if not isinstance(node, Scope) or (written & own).isdisjoint(node.read_arrays):
            break
        roots.append(node.id)
        written.update(node.written_arrays)
    return roots


def _common_loops(nests: Sequence[Scope]) -> int:
    """Number of the outermost loops that perfect nests have in common."""
    count, nodes = 0, list(nests)
    while len({node.size for node in nodes}) == 1 and not any(node.suffix for node in nodes):
        count += 1
        inner = [node.body[0] for node in nodes if len(node.body) == 1]
        nodes = [node for node in inner if isinstance(node, Scope)]
        if len(nodes) < len(nests):
            break
    return count


def _pad_by_rows(play: Play, root: str, image: str, depth: int) -> str:
    """Write the border and the inside of each row of an image together, so that a row is in the first cache
    when the inside is written, and nothing twice; the nest that copies the inside. Nothing is done where the
    image is not made that way."""
    nests = play.scope([root, *chain(play, root)[1:depth]][-1]).body
    makers = [n for n in nests if isinstance(n, Scope) and {*n.written_arrays} == {image}]
    if len(makers) != 2:
        return ""
    border, inside = makers
    kept, rows = play.trace, _beside(play, border, inside, depth)
    if play.may("join_scopes", rows) is None:
        play.trace = kept
        return ""
    return _border_alone(play, rows)


def _beside(play: Play, border: Scope, inside: Scope, level: int) -> str:
    """The part of a border's loop that goes over what the inside's loop writes, right in front of that; both
    stand in ``level`` loops."""
    part, target = border.id, inside.leaves[0].statement.target
    before = next((s.constant for s in target.subscripts if level in s.levels), 0)
    if 0 < before < border.size:
        part = play.split_range(part, before)[1]
    if play.scope(part).size > inside.size:
        part = play.split_range(part, inside.size)[0]
        play.may("reorder_statements", part)
    return part


def _border_alone(play: Play, rows: str) -> str:
    """Write the border of each row where the inside is not; the nest that copies the inside."""
    border, inside = play.scope(rows).body
    if not isinstance(border, Scope) or not isinstance(inside, Scope):
        return ""
    kept = play.trace
    columns = _beside(play, border, inside, len(play.around(border.id)))
    if play.may("drop_overwritten", columns) is None:
        play.trace = kept
    return inside.id

"""Blocks of rows: nests that pass large arrays to each other run block by block, so that these stay near.

The scores of attention are as large as the square of the sequence. Every row of them is used by the same
row of what follows; so is every row of an image, in all its channels, by a softmax over channels. So the
nests are cut into blocks of rows and joined around them; what one passes to the next then has the size of a
block, and is still in a cache when it is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

from perfdojo_sdk.core.expression import AffineExpr, Renumbering
from perfdojo_sdk.core.geometry import lane_stride
from perfdojo_sdk.core.parts import part
from perfdojo_sdk.core.program import Node, Program, Scope, Statement
from perfdojo_sdk.core.subscripts import LEVELS
from perfdojo_sdk.core.transformations.staging import Form
from perfdojo_sdk.core.transformations.storage import temporaries
from perfdojo_sdk.experts.cpu.analysis import is_product
from perfdojo_sdk.experts.cpu.contraction_nests import is_contraction
from perfdojo_sdk.experts.cpu.loops import chain
from perfdojo_sdk.experts.cpu.preparation import lay_out_operand
from perfdojo_sdk.experts.cpu.steps import largest_divisor, near_caches, split
from perfdojo_sdk.experts.steps import inline_everywhere
from perfdojo_sdk.hookspecs.services import Decision
from perfdojo_sdk.hookspecs.types import Target
from perfdojo_sdk.search.play import Play

#: The rule's name in decisions; their places are the roots of blocks.
BLOCK_ROWS = "block rows"

#: Least rows of a block: fewer would not use again what a row of results shares with the next.
LEAST_ROWS = 8

#: Most rows of a block.
MOST_ROWS = 64


def join_row_blocks(play: Play, target: Target, roots: list[str]) -> list[Decision]:
    """Join a run of nests around blocks of rows where what they pass to each other fills the second cache."""
    room = near_caches(target)[1] // 2
    passed = _passed(play.program, roots)
    moved = sum(_bytes(play.program, array) for array in passed)
    whole = part(play.program, [play.node(root) for root in roots])
    if moved <= room or is_contraction(whole, play.rules):  # whose tiles pass on what registers hold
        return []
    kept = play.trace
    copied = lay_out(play, roots)
    found = _join(play, roots, passed, room)
    numbers = {"bytes passed on": moved, "nests": len(roots)}
    if isinstance(found, str):
        play.trace = kept
        return [Decision("keep rows apart", roots[0], f"{', '.join(passed)}", found, numbers)]
    root, rows, near = found
    why = "what the nests pass on then stays in the second cache"
    choice = f"{len(roots)} nests in blocks of {rows} rows"
    return [*copied, Decision(BLOCK_ROWS, root, choice, why, numbers | {"bytes of a block": near})]


def inside(program: Program, root: str) -> Program:
    """One iteration of a block as a program: its nests without the loops around them."""
    (node,) = (node for node in program.body if node.id == root)
    depth, body = innermost_body(node)
    forms = (*[AffineExpr.of({})] * depth, *LEVELS[: len(LEVELS) - depth])
    by = Renumbering(forms)
    return part(program, (node,)).with_body(tuple([child.renumbered(by) for child in body]))


def innermost_body(node: Node) -> tuple[int, tuple[Node, ...]]:
    """The loops of a perfect nest, and what the last of them holds."""
    depth = 0
    body: tuple[Node, ...] = (node,)
    while len(body) == 1 and isinstance(body[0], Scope):
        depth, body = depth + 1, body[0].body
    return depth, body


def loops_around(program: Program, root: str) -> list[Scope]:
    """The loops of which :func:`inside` takes one iteration, outermost first."""
    (node,) = (node for node in program.body if node.id == root)
    found: list[Scope] = []
    for _ in range(innermost_body(node)[0]):
        assert isinstance(node, Scope)
        found.append(node)
        node = node.body[0]
    return found


def same_in_each(loops: Sequence[Scope]) -> dict[str, int]:
    """Arrays of which sums in a perfect nest read the same elements in each iteration of a loop, in one form,
    and that no iteration writes; with the position of that loop, the outermost if there are several. The
    nest stands at the root."""
    forms: dict[str, set[Form]] = {}
    summed = set()
    for statement, sizes in loops[0].leaves:
        for access in statement.every_read:
            forms.setdefault(access.array, set()).add(Form.of(access, len(loops), sizes))
            summed |= {access.array} if statement.accumulate else set()
    found = {}
    for array in summed - {*loops[0].written_arrays}:
        (form, *others), level = forms[array], 0
        while level < len(loops) and (loops[level].size == 1 or level in form.outer):
            level += 1
        if not others and level < len(loops):
            found[array] = level
    return found


def iterations_alike(program: Program, root: str) -> dict[str, int]:
    """Array -> iterations of a loop around a block, or of a recurrence, that read the same elements of it."""
    loops = loops_around(program, root)
    return {array: loops[level].size for array, level in same_in_each(loops).items()}


def runs_of_nests(program: Program) -> Iterator[list[str]]:
    """Nests that follow each other, each using what one before it in the run wrote, under loops of the same
    sizes."""
    run: list[Scope] = []
    for node in (*program.body, None):
        if isinstance(node, Scope) and run and _continues(run, node):
            run.append(node)
            continue
        if len(run) > 1:
            yield [each.id for each in run]
        run = [node] if isinstance(node, Scope) else []


def _continues(run: Sequence[Scope], node: Scope) -> bool:
    written = {array for each in run for array in each.written_arrays}
    return not written.isdisjoint(node.read_arrays) and bool(common_loops([*run, node]))


def common_loops(nests: Sequence[Scope]) -> list[int]:
    """Sizes of the outermost loops that all nests have in common."""
    sizes = [[scope.size for scope in _loops(nest)] for nest in nests]
    shared = 0
    while all(shared < len(each) and each[shared] == sizes[0][shared] for each in sizes):
        shared += 1
    return sizes[0][:shared]


def _loops(node: Scope) -> Iterator[Scope]:
    """The loops of a perfect nest, as long as no suffix maps them to hardware."""
    found: Node = node
    while isinstance(found, Scope) and not found.suffix:
        yield found
        if len(found.body) != 1:
            return
        found = found.body[0]


def _passed(program: Program, roots: Sequence[str]) -> list[str]:
    """The temporaries that only these nests use, in the order of the nests that write them."""
    mine = [node for node in program.body if node.id in roots]
    others = [node for node in program.body if node.id not in roots]
    elsewhere = program.interface.union(*[node.arrays for node in others])
    own = {b.name for b in temporaries(program) if len(b.arrays) == 1} - elsewhere
    return list(dict.fromkeys(array for node in mine for array in node_writes(node) if array in own))


def node_writes(node: Node) -> tuple[str, ...]:
    """The arrays that a node writes, in the order of its statements."""
    return tuple(dict.fromkeys(leaf.statement.target.array for leaf in node.leaves))


def _bytes(program: Program, array: str) -> int:
    return program.buffer_of[array].bytes


def lay_out(play: Play, roots: list[str]) -> list[Decision]:
    """Copy the operands whose lanes lie apart once for all blocks; the copies stand in front of the run."""
    fixed = frozenset(range(len(common_loops([play.scope(root) for root in roots]))))
    places = [place for place in play.program.places if place.above and place.above[0].id in roots]
    products = [p for p in places if isinstance(p.node, Statement) and is_product(p.node)]
    found = [lay_out_operand(play, place, fixed, "which every block of rows reads") for place in products]
    first, last = (play.program.paths[root][0] for root in (roots[0], roots[-1]))
    copies = [node.id for node in play.program.body[first:last] if node.id not in roots]
    for position, copy in enumerate(copies, first):
        while (at := play.program.paths[copy][0]) > position:
            if play.may("reorder_statements", play.program.body[at - 1].id) is None:
                break
    return [decision for decision in found if decision]


def _join(play: Play, roots: list[str], passed: list[str], room: int) -> tuple[str, int, int] | str:
    """Join the nests in blocks; the root of all, the rows of a block, and the bytes that it passes on. Or why
    they stay apart."""
    sizes = common_loops([play.scope(root) for root in roots])
    # A nest reads one large array and writes another one; what is not in use gives way.
    each = sum(sorted(_bytes(play.program, array) for array in passed)[-2:]) // prod(sizes)
    rows = largest_divisor(sizes[-1], max(1, min(MOST_ROWS, room // max(each, 1))))
    if sizes[-1] * each <= room and len(sizes) > 1:
        rows = sizes[-1]
    depth = len(sizes) - (rows == sizes[-1])
    if depth == 0:
        return "one block would hold all of their rows"
    if rows < min(LEAST_ROWS, sizes[-1]):
        fits = "fits into half of the second cache"
        return f"no block of {LEAST_ROWS} rows or more divides {sizes[-1]} and {fits}"
    (first,) = play.program.paths[roots[0]]
    for root in roots:
        split(play, chain(play, root)[len(sizes) - 1], rows)
    root = play.program.body[first].id
    for _ in roots[1:]:
        place = root
        for level in range(depth):
            if play.may("join_scopes", place) is None:
                return "their loops over rows cannot be joined"
            if level + 1 < depth:
                place = play.scope(place).body[0].id
    for node in innermost_body(play.node(root))[1]:
        _along_rows_of_memory(play, node, depth)
    whole = next((array for array in passed if not hold_in_block(play, root, array)), None)
    if whole:
        return f"{whole} cannot be kept for one block alone, as where several nests write it"
    return root, rows, each * rows


def hold_in_block(play: Play, root: str, array: str) -> bool:
    """Give what one nest of a block passes on an array with the size of a block; false where several nests
    write it, or a move is not legal."""
    depth, nests = innermost_body(play.node(root))
    writers = [node.id for node in nests if array in node_writes(node)]
    made = play.may("stage_write", writers[0], array=array) if len(writers) == 1 else None
    if made is None or not inline_everywhere(play, array):
        return False
    for k in range(depth):
        play.may("reuse_dims", made.buffers[0], dim=k)
    return True


def _along_rows_of_memory(play: Play, node: Node, depth: int) -> None:
    """Turn a nest of one statement so that the loop that walks through neighbours of the array it writes is
    inside, as what it passes on is laid out in the order of its loops."""
    levels, body = innermost_body(node)
    if len(body) != 1 or not isinstance(body[0], Statement) or is_product(body[0]):
        return
    target = body[0].target
    steps = [
        lane_stride(play.program.buffer_of[target.array], target.subscripts, depth + level)
        for level in range(levels)
    ]
    if steps.count(1) == 1:
        for scope in chain(play, node.id)[steps.index(1) : levels - 1]:
            if play.may("swap_scopes", scope) is None:
                return

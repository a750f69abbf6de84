"""Forms of a contraction to plan: sums in groups that instructions add up, operands converted before, loops
that walk through the same rows as one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod

from perfdojo_sdk.core.dialect import Group
from perfdojo_sdk.core.expression import Cast
from perfdojo_sdk.core.geometry import lane_stride
from perfdojo_sdk.core.groups import factors_in
from perfdojo_sdk.core.made import Staged
from perfdojo_sdk.core.program import Scope, Statement
from perfdojo_sdk.experts.cpu.contraction_nests import Nest, find_nest
from perfdojo_sdk.experts.cpu.loops import arrange, chain, move_inward
from perfdojo_sdk.experts.cpu.steps import groups_of, split
from perfdojo_sdk.search.passes import vectorise
from perfdojo_sdk.search.play import Play

#: Least number of tiles of rows that must read a panel to make packing it worthwhile.
WORTH_PACKING = 4


def forms(start: Play, nest: Nest) -> Iterator[tuple[Play, Nest]]:
    """The contraction in the forms to plan: with sums in groups, if the target has them; with operands that
    were converted before; or as it is."""
    grouped = False
    for group in groups_of(start) if all(product.multiplies for product in nest.products) else ():
        for found in _in_groups(start, nest, group) if not grouped else ():
            grouped = True
            yield found
    play = _again(start)
    if any(isinstance(term, Cast) for p in nest.products for term in p.statement.value.terms):
        converted = _converted(play, nest)
        if converted is not None:
            yield play, converted
            return
    yield start, nest


def with_joined_loops(start: Play, nest: Nest) -> tuple[Play, Nest] | None:
    """The contraction with neighbouring loops as one where each array is walked through as by one, such as
    the rows and columns of an image under a filter of one position; None where no loops are.

    One long loop leaves a smaller part of its iterations to tiles that are not full.
    """
    play, found = _again(start), nest
    level = 0
    while level + 1 < len(found.loops):
        joined = None
        if _walk_as_one(play, found, level) and play.may("collapse_scopes", found.loops[level].id):
            joined = find_nest(play.program.body[-1])
        if joined is None:
            level += 1
        else:
            found = replace(joined, group=nest.group)
    return (play, found) if found is not nest else None


def with_dense_operand(start: Play, nest: Nest) -> tuple[Play, Nest, int] | None:
    """The contraction of a copy of an operand that no loop walks through element by element, such as the
    image under a filter of one position and stride two, and the number of elements that are copied; None
    where there is none that is read often enough.

    In the copy the results have neighbours, and several loops over them walk through it as one.
    """
    if nest.group or len(nest.products) != 1:
        return None
    [product] = nest.products
    sizes = (*nest.sizes, *product.sizes)
    for operand in (product.one, product.other):
        buffer, play = start.program.buffer_of[operand.array], _again(start)
        moving = [level for level in operand.levels if sizes[level] > 1]
        steps = {lane_stride(buffer, operand.subscripts, level) for level in moving}
        again = prod(size for level, size in enumerate(sizes) if level not in operand.levels)
        results = any(level < len(nest.loops) for level in moving)
        if again < WORTH_PACKING or not results or not steps.isdisjoint((None, 1, -1)):
            continue
        made = play.may("stage_read", nest.loops[0].id, array=operand.array)
        if isinstance(made, Staged):
            vectorise(play, lay_out_like_source(play, made))
            found = find_nest(play.program.body[-1])
            return (play, found, prod(sizes[level] for level in moving)) if found is not None else None
    return None


def _walk_as_one(play: Play, nest: Nest, level: int) -> bool:
    """True if a step of the loop at ``level`` is, in every array, as far as all steps of the next one."""
    size = nest.loops[level + 1].size
    for leaf in nest.loops[0].leaves:
        for access in (leaf.statement.target, *leaf.statement.reads):
            buffer = play.program.buffer_of[access.array]
            outer, inner = (lane_stride(buffer, access.subscripts, l) for l in (level, level + 1))
            if outer is None or inner is None or outer != inner * size:
                return False
    return True


def _again(start: Play) -> Play:
    play = Play(start.trace.root, start.rules)
    play.trace = start.trace
    return play


def _in_groups(start: Play, nest: Nest, group: Group) -> Iterator[tuple[Play, Nest]]:
    """The contraction with a loop of the reduction cut into groups, for each loop along which an operand has
    neighbours; integers that are too short are converted before."""
    found: Nest | None = nest
    if not all(factors_in(product.statement, group) for product in nest.products):
        start = _again(start)
        found = _converted(start, nest, group)
    for level in range(len(nest.products[0].sizes)) if found else ():
        play = _again(start)
        if found and (cut_nest := _cut_into_groups(play, found, group, level)):
            yield play, cut_nest


def _converted(play: Play, nest: Nest, group: Group | None = None) -> Nest | None:
    """The contraction of operands that were converted before: to the dtype of the sums or, as far as that
    loses nothing, to those of a group. None where that is not worth it."""
    sizes = (*nest.sizes, *nest.products[0].sizes)
    for product in nest.products:
        operands = (product.one, product.other)
        uses = [prod(s for l, s in enumerate(sizes) if l not in a.levels) for a in operands]
        casts = [term for term in product.statement.value.terms if isinstance(term, Cast)]
        if min(uses) < WORTH_PACKING or (group and (len(casts) < 2 or product.dtype != group.total)):
            return None
        dtypes = group.factors if group else (product.dtype,) * len(casts)
        for cast, dtype in zip(casts, dtypes, strict=True):
            statement = _statement(play, product.statement.id)
            if dtype not in (cast.dtype, cast.argument.dtype):
                term = statement.value.terms.index(cast)
                if not play.may("widen_integer", statement.id, dtype=dtype, term=term):
                    return None
                statement = _statement(play, product.statement.id)
                cast = Cast(cast.argument, dtype)
            if cast.argument.dtype != dtype:
                before, term = nest.loops[0].id, statement.value.terms.index(cast)
                made = play.may("stage_expression", statement.id, before=before, term=term)
                if not isinstance(made, Staged):
                    return None
                vectorise(play, lay_out_like_source(play, made))
    return find_nest(play.program.body[-1])


def lay_out_like_source(play: Play, made: Staged) -> str:
    """Give a converted copy of an array the array's order of dimensions, and write it row by row; the
    innermost of its loops."""
    loops = chain(play, made.nests[0].top)
    copy = play.scope(loops[-1]).body[0]
    assert isinstance(copy, Statement)
    (source,) = copy.reads
    buffer = play.program.buffer_of[source.array]
    steps = {loop: abs(lane_stride(buffer, source.subscripts, k) or 0) for k, loop in enumerate(loops)}
    order = list(loops)
    for _ in loops:
        for k in range(len(order) - 1):
            if steps[order[k]] < steps[order[k + 1]] and play.may("reorder_dims", made.buffer, dim=k):
                order[k : k + 2] = order[k + 1], order[k]
    arrange(play, order)
    return order[-1]


def _statement(play: Play, identifier: str) -> Statement:
    node = play.node(identifier)
    assert isinstance(node, Statement)
    return node


def _cut_into_groups(play: Play, nest: Nest, group: Group, level: int) -> Nest | None:
    """The nest after a loop, counted from the outermost of the reduction, was cut into groups."""
    sums = [node for node in nest.body if isinstance(node, Scope)]
    loops = chain(play, sums[0].id)
    program, depth = play.program, len(nest.loops) + level
    if len(sums) > 1 or len(loops) <= level or play.scope(loops[level]).size % group.size:
        return None
    for product in nest.products:
        buffers = {a: program.buffer_of[a.array] for a in (product.one, product.other)}
        if all(lane_stride(buffer, a.subscripts, depth) != 1 for a, buffer in buffers.items()):
            return None
    inner = split(play, loops[level], group.size)[-1]
    move_inward(play, inner, len(loops) - 1 - level)
    found = find_nest(play.program.body[-1])
    return None if found is None else replace(found, group=group)

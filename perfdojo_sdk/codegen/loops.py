"""Kernels whose loops a compiler may vectorise by itself.

Targets switch off gcc's vectoriser for loops, since it was seen to break the order of accesses. It is
switched on again, function by function, for kernels whose loops are safe without a proof, and whose scalar
loops would otherwise take several times as long.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from perfdojo_sdk.core.dialect import Dialect
from perfdojo_sdk.core.expression import Access, AffineExpr, Expression, Operation, Read, walk
from perfdojo_sdk.core.operations import OPERATIONS
from perfdojo_sdk.core.program import Node, Program, Scope, Statement


def has_scalar_loop(program: Program, dialect: Dialect) -> bool:
    """True if an innermost loop runs scalar statements that a vector could run together."""
    return any(_is_scalar_loop(p.node, dialect) for p in program.places)


def _is_scalar_loop(node: Node, dialect: Dialect) -> bool:
    if not isinstance(node, Scope) or node.size == 1 or dialect.is_lockstep(node.suffix):
        return False
    suffix = dialect.suffixes.get(node.suffix)
    unrolled = suffix is not None and (suffix.unrolled or suffix.around_groups)
    return not unrolled and all(isinstance(child, Statement) for child in node.body)


def nothing_to_prove(program: Program) -> bool:
    """True if a compiler may vectorise any loop of the program: see :func:`nest_needs_no_proof`."""
    return all(nest_needs_no_proof(program, node, 0) for node in program.body)


def nest_needs_no_proof(program: Program, node: Node, level: int) -> bool:
    """True if the loops from ``node`` on, inside ``level`` others, write each buffer through one affine form,
    and carry nothing but sums.

    The nest accesses every buffer that it writes through one form, other iterators give another cell, and a
    loop carries no value from iteration to iteration but the cell in which one statement accumulates. Then
    two iterations use the same cell exactly if all iterators of the form are equal, and only to add to it.
    Other buffers are only read, and none overlap, being ``restrict``. (A cell that is multiplied with itself
    is no sum, although gcc 12 treats it as one. It also exchanges the order of writes to ``y[{0}+{1}]``.)

    What is read in one branch of a selection only would be a masked load; in a loop over rows of five
    elements, gcc 12 applies the mask of other lanes to it.
    """
    apart = _cells_apart(program, node, level, {})
    plain = apart and _one_form_each(program, node) and _only_accumulates(program, node, level)
    return plain and all(_reads_all(leaf.statement.value) for leaf in node.leaves)


def _reads_all(value: Expression) -> bool:
    """True if each element is read whichever branches of selections are taken."""
    return _certain(value) == frozenset(each.access for each in walk(value) if isinstance(each, Read))


def _certain(value: Expression) -> frozenset[Access]:
    """Elements that every evaluation reads."""
    if isinstance(value, Read):
        return frozenset([value.access])
    parts = [_certain(child) for child in value.children]
    if isinstance(value, Operation) and OPERATIONS[value.name].chooses:
        condition, one, other = parts
        return condition | (one & other)
    return frozenset[Access]().union(*parts)


def _accesses(program: Program, node: Node) -> Iterator[tuple[Statement, str, AffineExpr, bool]]:
    """Statement, buffer, cell and whether it is written, for all accesses under a node."""
    for statement in (leaf.statement for leaf in node.leaves):
        for access in (statement.target, *statement.every_read):
            buffer = program.buffer_of[access.array]
            writes = access is statement.target
            yield statement, buffer.name, buffer.address(access.subscripts), writes


def _one_form_each(program: Program, node: Node) -> bool:
    found = list(_accesses(program, node))
    written = {name for _, name, _, writes in found if writes}
    forms = {(name, form) for _, name, form, _ in found if name in written}
    return len(forms) == len(written) and not any(form.quotients for _, form in forms)


def _cells_apart(program: Program, node: Node, level: int, sizes: Mapping[int, int]) -> bool:
    """True if no statement from ``node`` on, inside loops of ``sizes``, writes one cell with two values of
    the iterators of its form."""
    if isinstance(node, Scope):
        inner = {**sizes, level: node.size}
        return all(_cells_apart(program, child, level + 1, inner) for child in node.body)
    form = program.buffer_of[node.target.array].address(node.target.subscripts)
    reach = 0
    # The terms are the digits of a number: each weighs more than all smaller ones together.
    for weight, size in sorted((abs(c), sizes[k]) for k, c in form.terms if sizes.get(k, 1) > 1):
        if weight <= reach:
            return False
        reach += weight * (size - 1)
    return True


def _only_accumulates(program: Program, node: Node, level: int) -> bool:
    """True if each loop from ``node`` on accesses its carried cells in one statement only, which
    accumulates."""
    if isinstance(node, Statement):
        return True
    found = list(_accesses(program, node))
    carried = {name for _, name, form, writes in found if writes and level not in form.levels}
    if node.size > 1:
        for name in carried:
            uses = [(statement, writes) for statement, other, _, writes in found if other == name]
            if len(uses) > 1 or any(statement.accumulate is None for statement, _ in uses):
                return False
    return all(_only_accumulates(program, child, level + 1) for child in node.body)

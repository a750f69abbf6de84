"""Recurrences: loops of which each iteration multiplies what the one before it made (LSTM, GRU).

Their iterations follow one another, but inside of one there is a product with weights: of a matrix, if there
are several sequences, or of a vector. So one iteration is planned as a program of its own: its product and
its activations each get the loops that suit them. What it lays out of weights is the same in each iteration,
and laid out once, before the loop.
"""

from __future__ import annotations

from perfdojo_sdk.core.program import Node, Program, Scope
from perfdojo_sdk.experts.cpu.analysis import Kind, facts_of
from perfdojo_sdk.experts.cpu.blocks import inside, same_in_each
from perfdojo_sdk.hookspecs.types import Target

#: The rule's name in decisions; their places are the loops.
RECURRENCE = "recurrence"


def is_recurrence(program: Program, node: Node, target: Target) -> bool:
    """True if a loop at the root of a program holds a sum of products of what it carries on and of arrays
    that are the same in each iteration."""
    if not isinstance(node, Scope) or len(node.body) < 2:
        return False
    written, same = {*node.written_arrays}, same_in_each([node])
    for facts in facts_of(inside(program, node.id), target):
        for work in facts.works:
            reads = work.statement.reads if work.kind is Kind.CONTRACTION else ()
            carried = {level for access in reads if access.array in written for level in access.levels}
            fixed = {level for access in reads if access.array in same for level in access.levels}
            if any(work.sizes[level] > 1 for level in carried & fixed & {*work.reduced}):
                return True
    return False

"""Parts of a program: some of its root nodes as a program of their own."""

from __future__ import annotations

from collections.abc import Sequence

from perfdojo_sdk.core.program import Node, Program


def part(program: Program, nodes: Sequence[Node]) -> Program:
    """Some root nodes of a program as a program of their own, under the same ids and names.

    An array that other nodes touch too belongs to the interface: it is an output if the part writes it, and
    an input if the part only reads it.
    """
    mine = {node.id for node in nodes}
    used = frozenset().union(*[node.arrays for node in nodes])
    elsewhere = program.interface.union(*[node.arrays for node in program.body if node.id not in mine])
    written = {leaf.statement.target.array for node in nodes for leaf in node.leaves}
    shared = [array for b in program.buffers for array in b.arrays if array in used and array in elsewhere]
    return Program(
        program.name,
        tuple([array for array in shared if array not in written]),
        tuple([array for array in shared if array in written]),
        tuple([b for b in program.buffers if not used.isdisjoint(b.arrays)]),
        tuple(nodes),
    )

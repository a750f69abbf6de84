"""What the toy target knows about speed: its expert pass and its roofline."""

from __future__ import annotations

from math import prod

from perfdojo_sdk.core.program import Program, Scope
from perfdojo_sdk.core.transformation import Rules, Trace
from perfdojo_sdk.core.validate import BYTES
from perfdojo_sdk.hookspecs.types import Bound, MachineFigures, Target
from perfdojo_sdk.search.passes import contract, fuse, parallelise
from perfdojo_sdk.search.play import Play


def expert(root: Program, rules: Rules, target: Target) -> tuple[Trace, ...]:
    """Fuse, reuse, give the outermost scopes to the threads."""
    play = Play(root, rules)
    fuse(play)
    contract(play)
    for node in play.program.body:
        if isinstance(node, Scope):
            parallelise(play, node.id)
    return (play.trace,)


def roofline(program: Program, threads: int, figures: MachineFigures) -> Bound | None:
    """Every input read once, every output written once."""
    memory = figures.memory
    if memory is None:
        return None
    buffers = [program.buffer_of[name] for name in (*program.inputs, *program.outputs)]
    count = sum(prod(b.shape) * BYTES[b.dtype] for b in buffers)
    seconds = count / (memory.copy_gbs * 1e9)
    return Bound(seconds, f"memory {memory.copy_gbs:g} GB/s", "estimated", figures.calibrated)

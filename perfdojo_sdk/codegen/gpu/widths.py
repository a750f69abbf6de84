"""Widths of a kernel's iterators: 32 bits if these are enough, since GPUs compute with them faster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod

from perfdojo_sdk.codegen.gpu.mapping import ProgramMap
from perfdojo_sdk.codegen.gpu.placement import Placed
from perfdojo_sdk.core.errors import UnavailableError
from perfdojo_sdk.core.geometry import index_values
from perfdojo_sdk.core.program import Program, Statement

MOST = 2**31 - 1
"""The largest signed number of 32 bits, which is also the most blocks of a launch."""


def check_blocks(program: Program, mapped: ProgramMap) -> None:
    """UnavailableError where a launch has more blocks than a grid."""
    for launch in mapped.launches:
        if launch.blocks > MOST:
            raise UnavailableError(
                "PD-C001",
                f"{program.name} asks for {launch.blocks} blocks, which does not compile",
                why=f"a grid has at most {MOST}",
                hint="give the grid fewer iterations: split a scope and keep a part of it in each block",
            )


def fit_32_bits(mapped: ProgramMap, placed: Mapping[str, Placed]) -> bool:
    """True if all numbers that are computed from iterators, with all intermediate results, fit into 32 bits.

    These are dividends, products and sums of subscripts, conditions and values, and counters one step behind
    a loop's end.
    """
    return all(number <= MOST for number in _numbers(mapped, placed))


def _numbers(mapped: ProgramMap, placed: Mapping[str, Placed]) -> Iterator[int]:
    program, most_threads = mapped.program, mapped.machine.max_threads
    yield from (place.all_cells for place in placed.values())
    yield from (launch.blocks for launch in mapped.launches)
    for path, sizes, node in ((p.path, p.sizes, p.node) for p in program.places):
        if not isinstance(node, Statement):
            continue
        yield from (value.index.reach(sizes) for value in index_values(node.value))
        yield from (form.reach(sizes) for form in node.guard)
        for access in (node.target, *node.every_read):
            yield placed[program.buffer_of[access.array].name].address(access).reach(sizes)
        # Threads count the iterations of a whole chain of scopes, in steps of their number.
        taken = [size for _, size, role in mapped.roles(path) if role in ("threads", "warps")]
        yield prod(taken) + most_threads
        yield max(sizes, default=0) + most_threads

"""The roofline: a time that no kernel with this interface and arithmetic can beat.

What is read of the inputs is read once, and what is written of the outputs written once, at the bandwidth
of the memory in which the data lie. The multiplications and additions of the initial program run at the peak
of fused multiply-adds. The larger of the two times binds. (Williams et al., "Roofline", 2009.) Of an input
whose elements are chosen at run time, only what is read if all choices are equal counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from perfdojo_sdk.core.dtypes import BYTES
from perfdojo_sdk.core.expression import Cast, operations, performs
from perfdojo_sdk.core.geometry import guarded_bounds
from perfdojo_sdk.core.lookups import lookups_in
from perfdojo_sdk.core.program import Program, Statement
from perfdojo_sdk.hookspecs.types import Bound, CacheLevel, Capabilities, MachineFigures, MemoryFigures
from perfdojo_sdk.measure.machine import Calibration, machine


def roofline(program: Program, threads: int, figures: MachineFigures) -> Bound | None:
    """The bound for a program's arithmetic, as a rule the initial one's; None without figures of memory."""
    read = sum(_least(program, name, False) for name in program.inputs)
    written = sum(_least(program, name, True) for name in program.outputs)
    return bound(read, written, _operations(program), threads, figures)


def bound(read: int, written: int, operations: int, threads: int, figures: MachineFigures) -> Bound | None:
    """The bound for ``read`` and ``written`` bytes and as many additions and multiplications in f32."""
    if figures.memory is None:
        return None
    traffic, where = _traffic(read, written, threads, figures, figures.memory)
    arithmetic = operations / (figures.peak_gflops.get("f32", float("inf")) * threads * 1e9)
    if arithmetic > traffic:
        peak = figures.peak_gflops["f32"] * threads
        return Bound(arithmetic, f"{peak:.4g} GFLOP/s", "estimated", figures.calibrated)
    return Bound(traffic, where, "estimated", figures.calibrated)


def _least(program: Program, name: str, writes: bool) -> int:
    """Bytes of an array that a call reads or writes at least: those in the boxes around its accesses.

    Boxes that meet count as one around both. All run-time indices of a dimension may be equal.
    """
    buffer = program.buffer_of[name]
    found = [o for o in program.occurrences[buffer.name] if o.writes == writes and o.access.array == name]
    chosen = {k for o in found for k, form in enumerate(o.access.subscripts) if lookups_in(form)}
    boxes: list[Box] = []
    for occurrence in found:
        forms, guard = occurrence.access.subscripts, occurrence.statement.guard
        ranges = [
            (0, 0) if k in chosen else guarded_bounds(form, guard, occurrence.sizes)
            for k, form in enumerate(forms)
        ]
        boxes = _with_box(boxes, tuple(ranges))
    whole = prod(1 if k in chosen else size for k, size in enumerate(buffer.shape))
    cells = sum(prod(max(high - low + 1, 0) for low, high in box) for box in boxes)
    return buffer.size_of(min(cells, whole))


Box = tuple[tuple[int, int], ...]
"""The least and the largest subscript in each dimension."""


def _with_box(boxes: Sequence[Box], box: Box) -> list[Box]:
    """The boxes and one more, joined with all that it meets."""
    for other in boxes:
        if all(a <= d and c <= b for (a, b), (c, d) in zip(box, other, strict=True)):
            hull = tuple((min(a, c), max(b, d)) for (a, b), (c, d) in zip(box, other, strict=True))
            return _with_box([each for each in boxes if each is not other], hull)
    return [*boxes, box]


def _traffic(
    read: int, written: int, threads: int, figures: MachineFigures, memory: MemoryFigures
) -> tuple[float, str]:
    """Seconds to move the data, from the smallest memory that holds them."""
    for name, cache in sorted(figures.caches.items(), key=lambda item: item[1].bytes):
        if read + written <= cache.bytes * (1 if cache.shared else threads):
            speed = _cache_speed(cache, threads)
            # A core loads and stores at the same time, so in a cache only the larger amount counts.
            return max(read, written) / (speed * 1e9), f"{name} {speed:.4g} GB/s"
    many = threads > 1
    copy = memory.best_copy_gbs(threads)
    reads = (memory.read_gbs_all if many else None) or memory.read_gbs
    writes = (memory.write_gbs_all if many else None) or memory.write_gbs
    both = min(read, written)
    # The amount that is both read and written moves at the speed of a copy, the rest at that of one
    # direction.
    seconds = 2 * both / copy + (read - both) / reads + (written - both) / writes
    speed = (read + written) / seconds
    return seconds / 1e9, f"memory {speed:.4g} GB/s"


def _cache_speed(cache: CacheLevel, threads: int) -> float:
    if threads > 1 and cache.shared:
        return cache.read_gbs_all or cache.read_gbs * threads
    return cache.read_gbs * threads


def _operations(program: Program) -> int:
    """Additions and multiplications of all statement instances, accumulations among them.

    Only those in the statement's own dtype count; others may have run at a higher peak. So may sums of
    products of shorter numbers, which instructions add up in groups.
    """
    total = 0
    for node in program.body:
        for statement, sizes in node.leaves:
            if _widens(statement):
                continue
            inside = sum(
                o.dtype == statement.dtype and o.name in ("add", "sub", "mul")
                for o in operations(statement.value)
            )
            total += prod(sizes) * (inside + (statement.accumulate in ("add", "mul")))
    return total


def _widens(statement: Statement) -> bool:
    """True for a sum of products of which both factors were converted to its dtype from two bytes or one."""
    factors = statement.value.children if performs(statement.value, "mul") else ()
    short = [isinstance(f, Cast) and BYTES[f.argument.dtype] <= 2 < BYTES[statement.dtype] for f in factors]
    return statement.accumulate == "add" and bool(short) and all(short)


def calibrated_figures(capabilities: Capabilities, found: Calibration) -> MachineFigures:
    """The target's figures, replaced by those of this machine where they are known."""
    here = machine()
    caches = {}
    behind = found.read_gbs
    for cache, speed in reversed(list(zip(here.caches, found.cache_read_gbs, strict=True))):
        # A cache is at least as fast as the memory behind it; a slower result was disturbed by others.
        behind = max(behind, speed)
        caches[f"L{cache.level}"] = CacheLevel(bytes=cache.bytes, shared=cache.shared, read_gbs=behind)
    memory = MemoryFigures(
        read_gbs=found.read_gbs,
        write_gbs=found.write_gbs,
        copy_gbs=found.copy_gbs,
        stream_copy_gbs=found.stream_copy_gbs,
        read_gbs_all=found.read_gbs_all,
        write_gbs_all=found.write_gbs_all,
        copy_gbs_all=found.copy_gbs_all,
        stream_copy_gbs_all=found.stream_copy_gbs_all,
    )
    peaks = {**capabilities.peak_gflops, "f32": found.fma_gflops}
    return MachineFigures(caches=caches, memory=memory, peak_gflops=peaks, calibrated=True)

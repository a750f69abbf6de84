"""The roofline: a time that no kernel with this interface and arithmetic can beat.

Every input is read once and every output written once at the bandwidth of the memory in which the
data lie, and the multiplications and additions of the initial program run at the peak of fused
multiply-adds. The larger of the two times binds. (Williams et al., "Roofline", 2009.) Of an input whose
elements are chosen at run time, only what is read if all choices are equal counts.
"""

from __future__ import annotations

from math import prod

from perfdojo_sdk.core.dtypes import BYTES
from perfdojo_sdk.core.expression import operations
from perfdojo_sdk.core.lookups import lookups_in
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.hookspecs.types import Bound, CacheLevel, Capabilities, MachineFigures, MemoryFigures
from perfdojo_sdk.measure.machine import Calibration, machine


def roofline(program: Program, threads: int, figures: MachineFigures) -> Bound | None:
    """The bound for a program's arithmetic, as a rule the initial one's; None without figures of memory."""
    read = sum(_least_read(program, name) for name in program.inputs)
    written = sum(_bytes(program, name) for name in program.outputs)
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


def _bytes(program: Program, name: str) -> int:
    buffer = program.buffer_of[name]
    return prod(buffer.shape) * BYTES[buffer.dtype]


def _least_read(program: Program, name: str) -> int:
    """Bytes of an input that a call reads at least: all run-time indices of a dimension may be equal."""
    buffer = program.buffer_of[name]
    accesses = [occurrence.access.subscripts for occurrence in program.occurrences[buffer.name]]
    if not any(lookups_in(form) for forms in accesses for form in forms):
        return _bytes(program, name)
    sizes = [
        1 if any(lookups_in(forms[k]) for forms in accesses) else size for k, size in enumerate(buffer.shape)
    ]
    return prod(sizes) * BYTES[buffer.dtype]


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

    Only those in the statement's own dtype count; others may have run at a higher peak.
    """
    total = 0
    for node in program.body:
        for statement, sizes in node.leaves:
            inside = sum(
                o.dtype == statement.dtype and o.name in ("add", "sub", "mul")
                for o in operations(statement.value)
            )
            total += prod(sizes) * (inside + (statement.accumulate in ("add", "mul")))
    return total


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

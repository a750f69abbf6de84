"""A program as a row of numbers, for a model of its time: counts and sizes, without any costs.

They are computed from the tree and the target's figures. Numbers that span magnitudes are logarithms, so that
a model sees ratios.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from math import log2, prod
from typing import Any

import numpy as np

from perfdojo_sdk.codegen.operations import SPELLINGS
from perfdojo_sdk.core.expression import Access, Operation
from perfdojo_sdk.core.program import Node, Program, Scope, Statement
from perfdojo_sdk.hookspecs.types import Target

Row = np.ndarray[Any, np.dtype[np.float64]]

#: Cache sizes in bytes for a target that states none.
CACHES = (32 << 10, 1 << 20)


def features(program: Program, target: Target) -> Row:
    """The row of ``program``; of the same length for all programs of a target."""
    found = named_features(program, target)
    return np.array([found[name] for name in sorted(found)], np.float64)


def named_features(program: Program, target: Target) -> dict[str, float]:
    """Name -> value of each number of :func:`features`."""
    counts = _Counts(target)
    for node in program.body:
        counts.visit(program, node, ())
    found = dict(counts.logarithms())
    caches = [c.bytes for c in target.capabilities.caches.values()] or list(CACHES)
    for size in caches:
        passed = sum(fetched(program, node, 0, size) for node in program.body)
        found[f"fetched by {size}"] = log2(1 + passed)
    for name in target.dialect.locations:
        inside = [b for b in program.buffers if b.location == name]
        found[f"buffers {name}"] = len(inside)
        found[f"bytes {name}"] = log2(1 + sum(b.bytes for b in inside))
    return found


class _Counts:
    """Sums over the whole tree."""

    SUMS = (
        "instances", "vectors", "iterations", "unrolled", "operations", "slow", "vector operations",
        "contiguous", "same cell", "strided", "carried", "carried in lanes", "guarded", "launches", "work",
    )  # fmt: skip
    COUNTS = ("scopes", "statements", "copies", "deepest")

    def __init__(self, target: Target) -> None:
        self.dialect = target.dialect
        self.sums: dict[str, float] = defaultdict(float)
        self.counts: dict[str, float] = defaultdict(float)

    def logarithms(self) -> Iterator[tuple[str, float]]:
        yield from ((name, log2(1 + self.sums[name])) for name in self.SUMS)
        yield from ((name, log2(1 + self.counts[name])) for name in self.COUNTS)
        for name in self.dialect.suffixes:
            yield f"scopes {name}", self.counts[f"scopes {name}"]
            yield f"runs {name}", log2(1 + self.sums[f"runs {name}"])

    def visit(self, program: Program, node: Node, above: tuple[Scope, ...]) -> None:
        runs = prod(s.size for s in above if not self.dialect.is_lockstep(s.suffix))
        if isinstance(node, Statement):
            self._statement(program, node, above, runs)
            return
        self.counts["scopes"] += 1
        if node.suffix:
            self.counts[f"scopes {node.suffix}"] += 1
            self.sums[f"runs {node.suffix}"] += runs * node.size
        if self.dialect.is_parallel(node.suffix):
            self.sums["launches"] += runs
            self.sums["work"] += prod(node.leaves[0].sizes)
        elif not node.suffix:
            self.sums["iterations"] += runs * node.size
        for child in node.body:
            self.visit(program, child, (*above, node))

    def _statement(self, program: Program, node: Statement, above: tuple[Scope, ...], runs: int) -> None:
        lanes = next((k for k, s in enumerate(above) if self.dialect.is_lockstep(s.suffix)), -1)
        width = above[lanes].size if lanes >= 0 else 1
        copies = prod(s.size for s in above if s.suffix and self.dialect.suffixes[s.suffix].unrolled)
        self.counts["statements"] += 1
        self.counts["copies"] += copies
        self.counts["deepest"] = max(self.counts["deepest"], len(above))
        self.sums["instances"] += runs * width
        self.sums["vectors"] += runs if lanes >= 0 else 0
        self.sums["unrolled"] += runs if copies > 1 else 0
        self.sums["guarded"] += runs if node.guard else 0
        for term in node.value.terms:
            slow = isinstance(term, Operation) and SPELLINGS[term.name].cost > 1
            self.sums["slow" if slow else "operations"] += runs
            self.sums["vector operations"] += runs if lanes >= 0 else 0
        inner = lanes if lanes >= 0 else len(above) - 1
        for access in (*node.reads, node.target):
            stride = stride_of(program, access, inner)
            self.sums[("same cell", "contiguous")[stride] if stride < 2 else "strided"] += runs
        if node.accumulate:
            loops = [k for k in range(len(above)) if k != lanes]
            self.sums["carried"] += runs if loops and loops[-1] not in node.target.levels else 0
            self.sums["carried in lanes"] += (
                runs * width if lanes >= 0 and lanes not in node.target.levels else 0
            )


def stride_of(program: Program, access: Access, level: int) -> int:
    """Cells between neighbouring iterations of the scope at ``level``."""
    strides = program.buffer_of[access.array].strides
    return abs(sum(int(s) * form.coefficients.get(level, 0) for s, form in zip(strides, access.subscripts)))


def fetched(program: Program, node: Node, level: int, size: int) -> float:
    """Bytes that pass into a cache of ``size`` bytes while the node runs once.

    Data that fit into the cache are fetched once, others again in each iteration.
    """
    used = footprint(program, node, level)
    if used <= size or isinstance(node, Statement):
        return used
    return max(used, node.size * sum(fetched(program, child, level + 1, size) for child in node.body))


def footprint(program: Program, node: Node, level: int) -> float:
    """Bytes that one run of the node touches; ``level`` scopes stand above it."""
    found: dict[str, float] = {}
    for array, touches in node.touches.items():
        buffer = program.buffer_of[array]
        cells = max(
            prod(size for k, size in enumerate(touch.sizes) if level + k in touch.access.levels)
            for touch in touches
        )
        found[buffer.name] = max(found.get(buffer.name, 0), buffer.size_of(min(cells, buffer.cells)))
    return sum(found.values())

"""The balance of a program on a number of threads, without running it."""

from __future__ import annotations

from dataclasses import dataclass

from perfdojo_sdk.core.dialect import Dialect
from perfdojo_sdk.core.program import Node, Program, Scope, Statement


@dataclass(frozen=True)
class Share:
    """One node at the root of a program, and how threads share its work."""

    root: str
    place: str
    """The parallel scope with the most iterations; empty where there is none."""
    iterations: int
    balance: float
    """Part of the threads' time that is work, when every iteration of a loop takes as long; at most 1."""


def shares(program: Program, dialect: Dialect, threads: int) -> tuple[Share, ...]:
    """The share of every node at the root, in program order."""
    found = []
    for node in program.body:
        work, longest = _spent(node, dialect, threads)
        parallel = [s for s in _scopes(node) if dialect.is_parallel(s.suffix)]
        widest = max(parallel, key=lambda scope: scope.size, default=None)
        place, size = (widest.id, widest.size) if widest else ("", 1)
        found.append(Share(node.id, place, size, work / (longest * threads)))
    return tuple(found)


def _spent(node: Node, dialect: Dialect, threads: int) -> tuple[float, float]:
    """Statements that a node runs, and those on the busiest thread."""
    if isinstance(node, Statement):
        return 1, 1
    inside = [
        _spent(child, dialect, 1 if dialect.is_parallel(node.suffix) else threads) for child in node.body
    ]
    work, longest = sum(w for w, _ in inside), sum(l for _, l in inside)
    rounds = -(-node.size // threads) if dialect.is_parallel(node.suffix) else node.size
    return work * node.size, longest * rounds


def longest(node: Node, dialect: Dialect, threads: int, start: float) -> float:
    """The statements of the busiest thread; starting threads once counts as ``start`` of them."""
    if isinstance(node, Statement):
        return 1
    if dialect.is_parallel(node.suffix) and threads > 1:
        inside = sum(longest(child, dialect, 1, start) for child in node.body)
        return start + -(-node.size // threads) * inside
    return node.size * sum(longest(child, dialect, threads, start) for child in node.body)


def _scopes(node: Node) -> list[Scope]:
    if isinstance(node, Statement):
        return []
    return [node, *(scope for child in node.body for scope in _scopes(child))]

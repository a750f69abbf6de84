"""Barriers: one is needed between uses of one cell by two threads, one of them writing.

The program has no barriers: sibling nests follow each other, and what threads do inside one nest is
independent. So a barrier is needed between two neighbours exactly where a later one touches cells that an
earlier one left to another thread. Two uses are known to be of one thread where a single thread runs both,
or where equal cells mean equal thread numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from perfdojo_sdk.codegen.gpu.mapping import ProgramMap
from perfdojo_sdk.codegen.gpu.placement import Placed, is_digit
from perfdojo_sdk.core.expression import Access
from perfdojo_sdk.core.program import Node, Path, Scope, Statement


@dataclass(frozen=True)
class Use:
    """One access, as the threads of a unit make it."""

    buffer: str
    access: Access
    writes: bool
    threads: tuple[tuple[int, int], ...]
    """(level, size) of the scopes whose iterations are threads; () where one thread does it."""
    known: bool
    """True if the thread stays the same: no turns, no lanes of several warps."""
    digits: tuple[tuple[int, int], ...] | None
    """(weight, size) of each scope's iterator inside the cell's number, where it is a digit of it."""

    def same_thread(self, other: Use, placed: Placed, common: int) -> bool:
        """True if the two are of one thread wherever they are of one cell.

        ``common``: so many of the outermost levels have equal values in both.
        """
        if not (self.known and other.known):
            return False
        if not self.threads or not other.threads:
            return not self.threads and not other.threads
        if [size for _, size in self.threads] != [size for _, size in other.threads]:
            return False
        if self.digits is not None and self.digits == other.digits:
            return True
        pairs = [(a, b) for (a, size), (b, _) in zip(self.threads, other.threads, strict=True) if size > 1]
        found = set()
        for k in placed.buffer.materialised:
            mine, theirs = self.access.subscripts[k], other.access.subscripts[k]
            if mine.quotients or theirs.quotients or mine.constant != theirs.constant:
                continue
            inside, outside = ([t for t in f.terms if t[0] >= common] for f in (mine, theirs))
            if len(inside) != 1 or len(outside) != 1 or inside[0][1] != outside[0][1]:
                continue
            if [t for t in mine.terms if t[0] < common] == [t for t in theirs.terms if t[0] < common]:
                found.add((inside[0][0], outside[0][0]))
        return found >= set(pairs)


class Exchange:
    """The uses that nodes run by one unit make of memory that its threads share."""

    def __init__(
        self, mapped: ProgramMap, placed: Mapping[str, Placed], unit: str, later: frozenset[str]
    ) -> None:
        """``later``: ids of statements that read and write behind a barrier only, for their thread too."""
        self.mapped, self.placed, self.unit, self.later = mapped, placed, unit, later

    def uses(self, node: Node, path: Path) -> list[Use]:
        """The node's uses of cells that another thread might touch."""
        return list(self._uses(node, path, len(path)))

    def _uses(self, node: Node, path: Path, top: int) -> Iterator[Use]:
        if isinstance(node, Scope):
            for position, child in enumerate(node.body):
                yield from self._uses(child, (*path, position), top)
            return
        accesses = [(a, False) for a in node.reads] + [(node.target, True)]
        if node.accumulate:
            accesses.append((node.target, False))
        for access, writes in accesses:
            placed = self.placed[self.mapped.program.buffer_of[access.array].name]
            if placed.kind in ("array", "memory", "shared") and not self._private(placed, path, top):
                threads, known = self._threads(node, path, top, access)
                known = known and node.id not in self.later
                digits = _digits(placed, access, threads, self._sizes(path)) if known else None
                yield Use(placed.buffer.name, access, writes, threads, known, digits)

    def _sizes(self, path: Path) -> list[int]:
        return [size for _, size, _ in self.mapped.roles(path)]

    def _private(self, placed: Placed, path: Path, top: int) -> bool:
        """True if each thread (or warp) has copies of its own."""
        return any(level >= top - 1 for level, _ in placed.copies) and placed.home[:top] == path[:top]

    def _threads(
        self, node: Statement, path: Path, top: int, access: Access
    ) -> tuple[tuple[tuple[int, int], ...], bool]:
        parts = [r for r in self.mapped.roles(path) if r[0] >= top - 1]
        if any(role == "tile" for _, _, role in parts):
            return tuple((l, size) for l, size, _ in parts), False
        spread = tuple((l, size) for l, size, r in parts if r in ("threads", "lanes", "warps", "shuffle"))
        if not spread:
            uniform = self.placed[self.mapped.program.buffer_of[node.target.array].name].kind == "uniform"
            return (), not uniform  # a uniform value is computed by all threads: these read
        kinds = {r for _, _, r in parts}
        if "shuffle" in kinds:
            level = spread[-1][0]
            moves = any(level in s.levels for s in access.subscripts)
            if not moves and access == node.target and self.unit == "warp":
                return (), True  # the first lane stores the result
            return spread, self.unit == "warp"
        if self.unit == "block" and kinds & {"warps", "lanes"}:
            return spread, False
        limit = self.mapped.launch_of(path).threads if self.unit == "block" else self.mapped.machine.warp
        total = 1
        for _, size in spread:
            total *= size
        return spread, total <= limit

    def conflict(self, earlier: list[Use], later: list[Use], common: int) -> bool:
        """True if a barrier has to stand between."""
        for a in earlier:
            for b in later:
                if a.buffer == b.buffer and (a.writes or b.writes):
                    if not a.same_thread(b, self.placed[a.buffer], common):
                        return True
        return False


def _digits(
    placed: Placed, access: Access, threads: tuple[tuple[int, int], ...], sizes: list[int]
) -> tuple[tuple[int, int], ...] | None:
    address = placed.buffer.address(access.subscripts)
    found = []
    for level, size in threads:
        weight = address.coefficients.get(level, 0)
        if not weight or address.quotients or not is_digit(address, level, weight, size, sizes):
            return None
        found.append((weight, size))
    return tuple(found)

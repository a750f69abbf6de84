"""The mapping of a program: the host, a block of threads, a warp, or one thread runs each part.

Suffixes ask for hardware: ``g`` for the blocks of a grid, ``b`` for threads of a block (for its warps,
where the scope holds lanes), ``w`` and ``s`` for the lanes of a warp, ``m`` for those with their matrix
unit. A parallel scope allows any order of its iterations, so if the hardware has no such level at its place,
the current unit runs it as a loop. Thus code exists for every program; for a badly mapped one it is slow.

A *launch* is a kernel of the machine: one outermost node, or, under loops of the host, one node inside.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Literal, TypeAlias

from perfdojo_sdk.codegen.gpu.tiles import MATRIX, TileNest, tile_nest
from perfdojo_sdk.core.dialect import Dialect
from perfdojo_sdk.core.expression import AffineExpr
from perfdojo_sdk.core.program import Node, Path, Program, Scope
from perfdojo_sdk.hookspecs.types import Capabilities

GRID, BLOCK, WARP, SHUFFLE = "g", "b", "w", "s"

#: The unit that runs the body of a scope.
Unit: TypeAlias = Literal["host", "block", "warp", "thread"]

#: The way in which a scope's iterations are run.
Role: TypeAlias = Literal["host", "grid", "threads", "warps", "lanes", "shuffle", "tile", "vector", "loop"]


@dataclass(frozen=True)
class Machine:
    """The sizes that shape a launch."""

    warp: int
    max_threads: int
    shared_bytes: int
    """Shared memory that every block may have."""
    multiprocessors: int
    """Number of multiprocessors; each runs a few blocks at a time."""
    most_shared_bytes: int = 0
    """Shared memory that a block may ask for at its launch; 0: no more than that."""
    matrix: frozenset[str] = frozenset()
    """dtypes whose products the matrix unit of a warp adds up in f32; empty: there is no such unit."""

    @property
    def room(self) -> int:
        """The most shared memory that a block gets in any way."""
        return max(self.shared_bytes, self.most_shared_bytes)

    def share_at_work(self, blocks: int) -> float:
        """The average share of multiprocessors at work while equal blocks run: some wait for the last of
        them."""
        return blocks / (-(-blocks // self.multiprocessors) * self.multiprocessors)


def machine_of(capabilities: Capabilities) -> Machine:
    """The machine that a target file describes, in its ``options``."""
    options = capabilities.options
    return Machine(
        warp=options["warp"],
        max_threads=options["max_threads"],
        shared_bytes=options["shared_bytes"],
        multiprocessors=options["multiprocessors"],
        most_shared_bytes=options.get("most_shared_bytes", 0),
        matrix=frozenset(options["matrix"]),
    )


@dataclass(frozen=True)
class Launch:
    """One kernel of the machine."""

    path: Path
    host_levels: tuple[int, ...]
    """Iterators of the host's loops, which become arguments."""
    grid_levels: tuple[int, ...]
    grid_sizes: tuple[int, ...]
    threads: int

    @property
    def blocks(self) -> int:
        return prod(self.grid_sizes)

    @property
    def body_path(self) -> Path:
        """Path of the innermost scope of the grid; () stands for the launch's node itself."""
        return (*self.path, *[0] * (len(self.grid_levels) - 1)) if self.grid_levels else ()


@dataclass(frozen=True)
class ProgramMap:
    """The launches of a program, in order, and the roles of its scopes."""

    program: Program
    machine: Machine
    default_location: str
    launches: tuple[Launch, ...]
    role: Mapping[Path, Role]
    inside: Mapping[Path, Unit]
    """Scope -> the unit that runs its body."""
    tiles: Mapping[Path, TileNest]
    """Outermost scope of each nest over a tile, and each scope in it."""

    def launch_of(self, path: Path) -> Launch:
        return next(l for l in self.launches if path[: len(l.path)] == l.path)

    def unit(self, path: Path) -> Unit:
        """The unit that runs the node at ``path``."""
        launch = self.launch_of(path)
        if len(path) <= len(launch.path):
            return "block"
        return self.inside[path[:-1]]

    def roles(self, path: Path) -> Iterator[tuple[int, int, Role]]:
        """(level, size, role) of the scopes around the node at ``path``."""
        for level, scope in enumerate(self.program.ancestors(path)):
            yield level, scope.size, self.role[path[: level + 1]]

    def thread_form(self, path: Path, home: Path) -> tuple[AffineExpr, int] | None:
        """The thread of the block (or lane of the warp, where ``home`` is inside a warp) that is at ``path``.

        With the number of threads of which that is one; None where not each of them is a thread of its
        own that stays the same: at a place that a single thread runs, or where threads take turns.
        """
        around = [r for r in self.roles(path) if r[0] >= len(home)]
        parts = [(level, size, role) for level, size, role in around if role in _SPREADS]
        if not parts or (parts[-1][2] == "warps"):
            return None
        warp = self.machine.warp
        form, count = AffineExpr(), 1
        for level, size, role in reversed(parts):
            form = form.plus(AffineExpr.level(level), count)
            count *= warp if role in ("lanes", "shuffle") else size
            if role in ("lanes", "shuffle") and size != warp:
                return None
        return (form, count) if count <= self.launch_of(path).threads else None


_SPREADS = ("threads", "warps", "lanes", "shuffle")


def map_program(program: Program, dialect: Dialect, machine: Machine) -> ProgramMap:
    """The map of a program: the unit that runs each of its scopes."""
    walk = _Walk(program, dialect, machine)
    walk.host(program.body, (), ())
    return ProgramMap(
        program, machine, dialect.default_location, tuple(walk.launches), walk.role, walk.inside, walk.tiles
    )


class _Walk:
    def __init__(self, program: Program, dialect: Dialect, machine: Machine) -> None:
        self.program, self.dialect, self.machine = program, dialect, machine
        self.launches: list[Launch] = []
        self.role: dict[Path, Role] = {}
        self.inside: dict[Path, Unit] = {}
        self.tiles: dict[Path, TileNest] = {}
        self.threads = 1

    def host(self, nodes: tuple[Node, ...], above: Path, levels: tuple[int, ...]) -> None:
        for position, node in enumerate(nodes):
            path = (*above, position)
            grid = isinstance(node, Scope) and GRID in node.suffixes
            if grid and isinstance(node, Scope) and node.suffix != GRID:
                self.role[path], self.inside[path] = "host", "host"
                self.host(node.body, path, (*levels, len(path) - 1))
            else:
                self.launch(node, path, levels)

    def launch(self, node: Node, path: Path, levels: tuple[int, ...]) -> None:
        self.threads = 1
        grid: list[Scope] = []
        at, inner = path, node
        while isinstance(inner, Scope) and inner.suffix == GRID:
            grid.append(inner)
            self.role[at], self.inside[at] = "grid", "block"
            if len(inner.body) != 1:
                break
            at, inner = (*at, 0), inner.body[0]
        if grid:
            first = path + (0,) * (len(grid) - 1)
            for position, child in enumerate(grid[-1].body):
                self.visit(child, (*first, position), "block")
        else:
            self.visit(node, path, "block")
        warp = self.machine.warp
        threads = 1 if self.threads == 1 else min(self.machine.max_threads, -(-self.threads // warp) * warp)
        grid_levels = tuple(range(len(path) - 1, len(path) - 1 + len(grid)))
        self.launches.append(Launch(path, levels, grid_levels, tuple(s.size for s in grid), threads))

    def visit(self, node: Node, path: Path, unit: Unit) -> None:
        if not isinstance(node, Scope):
            return
        nest = tile_nest(self.program, node, path) if unit == "warp" and MATRIX in node.suffixes else None
        if nest:
            for depth in range(len(nest.scopes)):
                place = path + (0,) * depth
                self.role[place], self.inside[place], self.tiles[place] = "tile", "thread", nest
            return
        role, body = self._role(node, unit)
        if role == "threads":
            chain = _chain(node)
            below = {s for c in chain[-1].body if isinstance(c, Scope) for s in _mapped(c)}
            if below & {WARP, SHUFFLE, MATRIX}:
                role, body = "warps", "warp"
            count = prod(s.size for s in chain) * (self.machine.warp if role == "warps" else 1)
            self.threads = max(self.threads, min(count, self.machine.max_threads))
            for _ in chain[:-1]:
                self.role[path], self.inside[path] = role, body
                path = (*path, 0)
            node = chain[-1]
        elif role in ("lanes", "shuffle"):
            self.threads = max(self.threads, self.machine.warp)
        self.role[path], self.inside[path] = role, body
        for position, child in enumerate(node.body):
            self.visit(child, (*path, position), body)

    def _role(self, scope: Scope, unit: Unit) -> tuple[Role, Unit]:
        if self.dialect.is_lockstep(scope.suffix):
            shuffles = scope.suffix == SHUFFLE and unit in ("warp", "block") and scope.size > 1
            return ("shuffle" if shuffles else "vector"), ("thread" if shuffles else unit)
        if scope.size > 1 and scope.suffix == BLOCK and unit == "block":
            return "threads", "thread"
        if scope.size > 1 and scope.suffix == WARP and unit in ("warp", "block"):
            return "lanes", "thread"
        return "loop", unit


def _chain(scope: Scope) -> list[Scope]:
    """A scope of threads and those directly inside it, as far as they hold nothing else."""
    found = [scope]
    while len(found[-1].body) == 1:
        child = found[-1].body[0]
        if not isinstance(child, Scope) or child.suffix != BLOCK:
            break
        found.append(child)
    return found


def _mapped(scope: Scope) -> set[str]:
    """Suffixes of scopes of two or more iterations in the nest."""
    inside = {s for c in scope.body if isinstance(c, Scope) for s in _mapped(c)}
    return inside | ({scope.suffix} if scope.size > 1 else set())

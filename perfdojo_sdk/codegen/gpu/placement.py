"""The place of each temporary on a machine of blocks and warps, and the names of its cells there.

A location is a preference. ``shared`` memory exists while a block runs, and so does ``async``; ``own``
spreads a buffer over the threads' registers, ``uniform`` gives each thread the same value, ``reg`` and
``stack`` belong to one thread, ``tile`` to the lanes of a warp and their matrix unit. If the program uses a
buffer in a way that its place does not support (another thread reads the cell, a value outlives its launch),
the buffer goes to the next larger place: shared memory, then the workspace. So code exists for every program,
and the source contains the place of each buffer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Literal, TypeAlias

from perfdojo_sdk.codegen.gpu.mapping import Launch, ProgramMap
from perfdojo_sdk.codegen.gpu.tiles import (
    MOST_TILES,
    SIDE,
    TILE,
    TILES,
    Factor,
    TileNest,
    factors_of,
    product_dtype,
    tile_number,
)
from perfdojo_sdk.core.expression import Access, AffineExpr
from perfdojo_sdk.core.geometry import common_depth
from perfdojo_sdk.core.program import Occurrence, Path, Program
from perfdojo_sdk.core.storage import Buffer

Kind: TypeAlias = Literal["array", "memory", "table", "shared", "local", "uniform", "tile"]

SHARED, OWN, UNIFORM, ASYNC = "shared", "own", "uniform", "async"

#: Roles of which each iteration owns the buffers that are used inside it only.
_OWNERS = ("grid", "threads", "warps", "lanes")

#: The start of each buffer in the workspace, in bytes.
ALIGNMENT = 256

#: Largest array, in bytes, that one thread indexes; larger ones go to memory.
_MOST_LOCAL_BYTES = 16384


@dataclass(frozen=True)
class Placed:
    """One buffer's place."""

    buffer: Buffer
    kind: Kind
    """``array``: the caller's. ``uniform``: a copy in each thread, all of them the same. ``tile``: shared out
    among the lanes of a warp as its matrix unit wants it."""
    launch: Launch | None = None
    """The launch that declares it; None for what outlives a launch."""
    home: Path = ()
    """The innermost scope around all uses."""
    copies: tuple[tuple[int, int], ...] = ()
    """(level, size) of the scopes of which each iteration has cells of its own."""
    digits: tuple[tuple[int, int], ...] = ()
    """(weight, size): parts of the cell's number that say which thread has it, the heaviest first."""
    offset: int = 0
    """Bytes from the start of the workspace."""

    @property
    def cells(self) -> int:
        """Cells of one copy, or of one thread's part where the threads share them out."""
        return self.buffer.cells // prod(size for _, size in self.digits)

    @property
    def tiles(self) -> int:
        """Number of tiles that a warp has of a ``tile``."""
        return self.cells // (SIDE * SIDE)

    @property
    def all_cells(self) -> int:
        return self.cells * prod(size for _, size in self.copies)

    @property
    def bytes(self) -> int:
        return self.buffer.size_of(self.all_cells)

    @property
    def shared_bytes(self) -> int:
        """Bytes that it takes of a block's shared memory, in which arrays start at multiples of 16 bytes."""
        return -(-self.bytes // 16) * 16 if self.kind == "shared" else 0

    def address(self, access: Access) -> AffineExpr:
        """The cell's number as a form of the levels."""
        form, stride = self.buffer.address(access.subscripts), self.cells
        for weight, size in self.digits:
            form = _without(form, weight, size)
        for level, size in reversed(self.copies):
            form = form.plus(AffineExpr.level(level), stride)
            stride *= size
        return form

    @property
    def words(self) -> str:
        """The place in words, for the source's comment."""
        where = {
            "array": "the caller's",
            "memory": "memory",
            "table": "constants of the kernel",
            "shared": "shared memory",
            "local": "registers of each thread" if self.digits else "registers of one thread",
            "uniform": "registers, the same in each thread",
            "tile": "registers of a warp's lanes",
        }[self.kind]
        return f"{self.buffer.name}: {where}"


def place(mapped: ProgramMap) -> tuple[Mapping[str, Placed], int]:
    """Buffer -> place, and the bytes of the workspace. Buffers that nothing uses have no place."""
    program = mapped.program
    found: dict[str, Placed] = {}
    for buffer in program.buffers:
        if buffer.values is not None:
            found[buffer.name] = Placed(buffer, "table")
        elif buffer.name in program.interface:
            found[buffer.name] = Placed(buffer, "array")
        elif program.occurrences[buffer.name]:
            found[buffer.name] = _wish(mapped, buffer)
    for name in _lane_zero_reads(mapped, found):
        found[name] = _addressable(mapped, found[name])
    for launch in mapped.launches:
        _fit_shared(mapped, found, launch)
    size = 0
    for name, placed in found.items():
        if placed.kind == "memory":
            found[name] = replace(placed, offset=size)
            size += -(-placed.bytes // ALIGNMENT) * ALIGNMENT
    return found, size


def _wish(mapped: ProgramMap, buffer: Buffer) -> Placed:
    """The place that the buffer's location asks for, if its uses allow it."""
    uses = mapped.program.occurrences[buffer.name]
    launches = {mapped.launch_of(o.path) for o in uses}
    depth = common_depth([o.path for o in uses])
    home = uses[0].path[:depth]
    if len(launches) > 1:
        return Placed(buffer, "memory")
    (launch,) = launches
    roles = [mapped.role.get(home[: k + 1], "loop") for k in range(depth)]
    owners = [(k, role) for k, role in enumerate(roles) if role in _OWNERS]
    if launch.host_levels and not owners:
        return Placed(buffer, "memory")  # a value may pass from one launch to the next
    scopes = mapped.program.ancestors(uses[0].path)
    copies = tuple((k, scopes[k].size) for k, _ in owners if scopes[k].size > 1)
    memory = Placed(buffer, "memory", launch, home, copies)
    if len(home) < len(launch.path):
        return memory
    in_block = tuple((k, size) for k, size in copies if roles[k] != "grid")
    shared = replace(memory, kind="shared", copies=in_block)
    local = replace(memory, kind="local", copies=())
    unit = mapped.inside.get(home, "block")
    fits = local.bytes <= _MOST_LOCAL_BYTES
    if buffer.location in (SHARED, ASYNC):
        return shared
    if buffer.location == mapped.default_location:
        return memory
    if unit == "thread":
        return local if fits else memory
    if buffer.location == OWN:
        digits = _spread(mapped, buffer, uses, home)
        own = replace(local, digits=digits or ())
        return own if digits is not None and own.bytes <= _MOST_LOCAL_BYTES else shared
    if buffer.location == TILE:
        tile = _tile(mapped, shared, uses, home)
        return tile or shared
    if buffer.location == UNIFORM:
        return replace(local, kind="uniform") if fits and _even(mapped, uses, unit) else shared
    together = (*_OWNERS, "shuffle", "tile")
    alone = not any(role in together for o in uses for role in _below(mapped, o, depth))
    return local if alone and fits else shared


def _tile(mapped: ProgramMap, placed: Placed, uses: Sequence[Occurrence], home: Path) -> Placed | None:
    """The buffer as a few tiles in the registers of each warp; None where some use is of another kind."""
    kept: set[tuple[tuple[int, int], ...]] = set()
    for use in uses:
        nest = mapped.tiles.get(use.path[:-1])
        address = placed.buffer.address(use.access.subscripts)
        warps = [(l, n) for l, n, role in mapped.roles(use.path) if role == "warps" and l >= len(home)]
        count = prod(n for _, n in warps) * mapped.machine.warp
        if nest is None or address.quotients or count > mapped.launch_of(use.path).threads:
            return None
        digits = tuple((address.coefficients.get(l, 0), n) for l, n in warps if n > 1)
        kept.add(digits)
        found = replace(placed, kind="tile", copies=(), digits=tuple(sorted(digits, reverse=True)))
        levels = [(l, n) for l, n in warps if n > 1]
        if not all(is_digit(address, l, address.coefficients.get(l, 0), n, use.sizes) for l, n in levels):
            return None
        if found.tiles * SIDE * SIDE != found.cells or not 1 <= found.tiles <= MOST_TILES:
            return None
        if tile_number(found.address(use.access), nest) is None:
            return None
    return found if len(kept) == 1 and placed.buffer.dtype in TILES else None


def _below(mapped: ProgramMap, use: Occurrence, depth: int) -> list[str]:
    return [mapped.role[use.path[: k + 1]] for k in range(depth, len(use.path) - 1)]


def _shuffles(mapped: ProgramMap, use: Occurrence) -> bool:
    """True if lanes compute one value together for everybody."""
    around = use.path[:-1]
    return mapped.role.get(around) == "shuffle" and not any(
        (len(around) - 1) in form.levels for form in use.access.subscripts
    )


def _even(mapped: ProgramMap, uses: Sequence[Occurrence], unit: str) -> bool:
    """True if the writes stand where the buffer's own unit runs them, not inside another one's nest."""
    for use in uses:
        if use.writes:
            path = use.path[:-1] if _shuffles(mapped, use) else use.path
            if mapped.unit(path) != unit:
                return False
    return True


def _spread(
    mapped: ProgramMap, buffer: Buffer, uses: Sequence[Occurrence], home: Path
) -> tuple[tuple[int, int], ...] | None:
    """The parts of a cell's number that are the thread at hand, the same in every use; None without such."""
    found = {_digits(mapped, buffer, use, home) for use in uses}
    return found.pop() if len(found) == 1 else None


def _digits(
    mapped: ProgramMap, buffer: Buffer, use: Occurrence, home: Path
) -> tuple[tuple[int, int], ...] | None:
    """(weight, size) of the thread's number inside the cell's, which is written in mixed radix.

    Neighbouring digits of the thread's number that are neighbours in the cell's too are one.
    """
    thread = mapped.thread_form(use.path, home)
    address = buffer.address(use.access.subscripts)
    if thread is None or address.quotients:
        return None
    merged: list[tuple[int, int]] = []
    # From the lightest digit of the thread's number to the heaviest.
    for level, _ in sorted(thread[0].terms, key=lambda term: term[1]):
        weight, size = address.coefficients.get(level, 0), use.sizes[level]
        if not weight or not is_digit(address, level, weight, size, use.sizes):
            return None
        if merged and weight == merged[-1][0] * merged[-1][1]:
            merged[-1] = (merged[-1][0], merged[-1][1] * size)
        else:
            merged.append((weight, size))
    return tuple(sorted(merged, reverse=True))


def is_digit(address: AffineExpr, level: int, weight: int, size: int, sizes: Sequence[int]) -> bool:
    """True if ``{level}`` is the digit of this weight: all else lies above it or below."""
    lower = {l: c for l, c in address.terms if l != level and c % (weight * size)}
    low, high = AffineExpr.of(lower, address.constant % (weight * size)).bounds(sizes)
    return weight > 0 and low >= 0 and high < weight


def _without(form: AffineExpr, weight: int, size: int) -> AffineExpr:
    """A cell's number without one digit."""
    above = weight * size
    terms = {l: c // size if c % above == 0 else c for l, c in form.terms if c % above == 0 or c < weight}
    return AffineExpr.of(terms, form.constant // above * weight + form.constant % above)


def _lane_zero_reads(mapped: ProgramMap, found: Mapping[str, Placed]) -> set[str]:
    """Buffers that cannot be uniform, since their values come from data that only one thread has."""
    program = mapped.program
    lost: set[str] = set()
    changed = True
    while changed:
        changed = False
        for name, placed in found.items():
            if placed.kind != "uniform" or name in lost:
                continue
            for use in program.occurrences[name]:
                if use.writes and any(
                    _one_thread(found, program, read.array, lost) for read in use.statement.reads
                ):
                    if mapped.role.get(use.path[:-1]) != "shuffle":
                        lost.add(name)
                        changed = True
    return lost


def _one_thread(found: Mapping[str, Placed], program: Program, array: str, lost: set[str]) -> bool:
    placed = found[program.buffer_of[array].name]
    return placed.kind == "local"


def _addressable(mapped: ProgramMap, placed: Placed) -> Placed:
    """The buffer, placed in shared memory instead."""
    scopes = mapped.program.ancestors(mapped.program.occurrences[placed.buffer.name][0].path)
    owners = [k for k in range(len(placed.home)) if mapped.role.get(placed.home[: k + 1]) in _OWNERS[1:]]
    copies = tuple((k, scopes[k].size) for k in owners if scopes[k].size > 1)
    return replace(placed, kind="shared", copies=copies, digits=())


def shared_by(placed: Mapping[str, Placed], launch: Launch) -> int:
    """Bytes of shared memory that each block of a launch has."""
    return sum(p.shared_bytes for p in placed.values() if p.launch == launch)


def dynamic_bytes(mapped: ProgramMap, placed: Mapping[str, Placed], launch: Launch) -> int:
    """The shared memory that a launch asks for; 0 where its blocks have enough without."""
    needed = shared_by(placed, launch)
    return needed if needed > mapped.machine.shared_bytes else 0


def _fit_shared(mapped: ProgramMap, found: dict[str, Placed], launch: Launch) -> None:
    """Move the largest buffers out of shared memory until the others fit."""
    while True:
        inside = [p for p in found.values() if p.kind == "shared" and p.launch == launch]
        if sum(p.shared_bytes for p in inside) <= mapped.machine.room:
            return
        largest = max(inside, key=lambda p: p.bytes)
        scopes = mapped.program.ancestors(mapped.program.occurrences[largest.buffer.name][0].path)
        grid = tuple((k, scopes[k].size) for k in launch.grid_levels if scopes[k].size > 1)
        found[largest.buffer.name] = replace(largest, kind="memory", copies=(*grid, *largest.copies))


def unit_factors(
    mapped: ProgramMap, placed: Mapping[str, Placed], nest: TileNest
) -> tuple[Factor, Factor] | None:
    """The factors that the matrix unit multiplies for a nest; None where the lanes do its work themselves."""

    def place(access: Access) -> Placed:
        return placed[mapped.program.buffer_of[access.array].name]

    statement = nest.statement
    if place(statement.target).kind != "tile" or product_dtype(nest) not in mapped.machine.matrix:
        return None
    if any(place(read).kind not in ("array", "memory", "shared") for read in statement.reads):
        return None
    return factors_of(nest, [(read, place(read).address(read)) for read in statement.reads])

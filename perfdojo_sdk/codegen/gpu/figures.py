"""Figures of a launch, counted in the program: the basis of an estimate of its time.

Counts are exact with two exceptions: conditions count as true, and the content of caches is unknown. So
memory traffic is counted twice: each touched cell once (data that must move), and each access of a warp (data
that is requested).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import prod
from typing import Any

from perfdojo_sdk.codegen.gpu.mapping import Launch, ProgramMap
from perfdojo_sdk.codegen.gpu.placement import Placed, dynamic_bytes, shared_by, unit_factors
from perfdojo_sdk.codegen.gpu.tiles import product_dtype
from perfdojo_sdk.codegen.operations import SPELLINGS
from perfdojo_sdk.core.dtypes import BYTES, FLOAT_DTYPES
from perfdojo_sdk.core.expression import Access, Expression, operations, performs
from perfdojo_sdk.core.geometry import lane_stride
from perfdojo_sdk.core.program import Occurrence, Statement

#: Bytes of a sector, the unit in which memory moves.
SECTOR = 32

#: Most iterations of a loop that a compiler unrolls.
SHORT = 16


@dataclass(frozen=True)
class LaunchFigures:
    """One launch; counts are of all its threads together, and of all calls that one call makes of it."""

    kernel: str
    arrays: tuple[str, ...]
    """Its arguments: names of the interface, or ``@BYTES`` for an offset into the workspace."""
    blocks: int
    threads: int
    times: int
    """Launches of it in one call."""
    shared_bytes: int
    must_move: int
    """Bytes of the touched cells in memory, each once, reads and writes apart."""
    asked_for: int
    """Bytes of memory that the warps ask for, in whole sectors."""
    shared_traffic: int
    """Bytes of shared memory that are read and written."""
    operations: int
    """Instructions of arithmetic; a product and what it is added to are one."""
    slow_operations: int
    steps: int
    """Statement instances that one thread runs, one after the other."""
    host_sizes: tuple[int, ...] = ()
    """Sizes of the host's loops around it, whose iterators are its last arguments."""
    index_bytes: int = 4
    """Width of such an argument."""
    matrix_operations: Mapping[str, int] = field(default_factory=dict)
    """The part of ``operations`` that a matrix unit makes of factors shorter than f32, by the factors'
    dtype."""
    dynamic_bytes: int = 0
    """Shared memory that the launch asks for, where it is more than every block may have."""
    nest: tuple[int, ...] = ()
    """Its place in the program, which says what loops it shares with other launches."""


_WORKSPACE = re.compile(r"^/\* workspace (\d+) \*/$", re.MULTILINE)
_LINE = re.compile(r"^/\* launch (\{.*\}) \*/$", re.MULTILINE)


def written(figures: LaunchFigures) -> str:
    """The comment that carries the figures."""
    return f"/* launch {json.dumps(asdict(figures))} */"


def written_workspace(size: int) -> str:
    """The comment with the bytes of workspace that a call needs."""
    return f"/* workspace {size} */"


def read_workspace(code: str) -> int:
    """Bytes of workspace that a call needs; 0 where the source does not say."""
    found = _WORKSPACE.search(code)
    return int(found[1]) if found else 0


def _figures(entry: Mapping[str, Any]) -> LaunchFigures:
    """One launch, from its fields in JSON."""
    fields: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in entry.items()}
    return LaunchFigures(**fields)


def read(code: str) -> list[LaunchFigures]:
    """The launches of a source, in order; ValueError if a comment is malformed."""
    found = []
    for text in _LINE.findall(code):
        try:
            found.append(_figures(json.loads(text)))
        except TypeError as error:
            raise ValueError(f"a launch comment is not as generated: {error}") from None
    return found


def launch_figures(
    mapped: ProgramMap,
    placed: Mapping[str, Placed],
    launch: Launch,
    kernel: str,
    arrays: tuple[str, ...],
    index_bytes: int,
) -> LaunchFigures:
    """The figures of one launch."""
    program = mapped.program
    host = tuple(program.ancestors(launch.path)[l].size for l in launch.host_levels)
    places = [p for p in program.places if p.path[: len(launch.path)] == launch.path]
    statements = [(p.node, p.path, p.sizes) for p in places if isinstance(p.node, Statement)]
    asked = 0.0
    shared = operations = slow = steps = 0
    matrix: dict[str, int] = {}
    for node, path, sizes in statements:
        instances = prod(sizes)
        plain, heavy = _operations(node)
        nest = mapped.tiles.get(path[:-1])
        if nest and unit_factors(mapped, placed, nest) and (dtype := product_dtype(nest)) != "f32":
            plain = 1  # the unit converts on its way
            matrix[dtype] = matrix.get(dtype, 0) + plain * instances
        operations += plain * instances
        slow += heavy * instances
        runners = _runners(mapped, path, launch)
        steps += -(-instances // (prod(host) * launch.blocks * runners))
        for access in (*node.every_read, node.target):
            place = placed[program.buffer_of[access.array].name]
            size = place.buffer.element_bytes
            loads = instances // _kept(mapped, access, path)
            if place.kind in ("array", "memory"):
                asked += loads * _sector_bytes(mapped, place, access, path, size)
            elif place.kind == "shared":
                shared += loads * BYTES[place.buffer.dtype]
    return LaunchFigures(
        kernel,
        arrays,
        launch.blocks,
        launch.threads,
        prod(host),
        shared_by(placed, launch),
        sum(_touched(mapped, placed, launch)),
        int(asked),
        shared,
        operations,
        slow,
        steps,
        host,
        index_bytes,
        matrix,
        dynamic_bytes(mapped, placed, launch),
        launch.path,
    )


def _kept(mapped: ProgramMap, access: Access, path: tuple[int, ...]) -> int:
    """Turns of a thread's short loops that use one loaded value: the compiler keeps it in a register."""
    used = {level for form in access.subscripts for level in form.levels}
    loops = [(l, n) for l, n, role in mapped.roles(path) if role in ("loop", "vector", "tile") and n <= SHORT]
    return prod(n for level, n in loops if level not in used)


def _operations(statement: Statement) -> tuple[int, int]:
    """Instructions of one instance: plain ones, and those that take several or a unit of their own."""
    count = len(statement.value.terms) + (statement.accumulate is not None)
    heavy = sum(SPELLINGS[operation.name].cost > 1 for operation in operations(statement.value))
    fused = _fused(statement.value) + (statement.accumulate == "add" and _is_product(statement.value))
    return count - heavy - fused, heavy


def _fused(value: Expression) -> int:
    """Sums and differences that are one instruction with a product in them."""
    return sum(o.name in ("add", "sub") and any(map(_is_product, o.arguments)) for o in operations(value))


def _is_product(value: Expression) -> bool:
    return performs(value, "mul") and value.dtype in FLOAT_DTYPES


def _runners(mapped: ProgramMap, path: tuple[int, ...], launch: Launch) -> int:
    """Threads of a block that share the instances of a statement."""
    count = 1
    for _, size, role in mapped.roles(path):
        if role in ("threads", "warps", "lanes", "shuffle"):
            count *= size
    if path[:-1] in mapped.tiles:
        count *= mapped.machine.warp
    return min(count, launch.threads)


def _sector_bytes(
    mapped: ProgramMap, place: Placed, access: Access, path: tuple[int, ...], size: float
) -> float:
    """Bytes that a warp asks for, for each cell that its lanes take."""
    lanes = ("threads", "lanes", "shuffle", "tile")
    spread = [l for l, n, role in mapped.roles(path) if role in lanes and n > 1]
    wide = [n for l, n, role in mapped.roles(path) if role == "vector"]
    if not spread:
        return SECTOR / max(1, min(wide[-1] if wide else 1, SECTOR // size))
    stride = lane_stride(place.buffer, access.subscripts, spread[-1])
    if stride is None:
        return size
    if stride == 0:
        return max(size / mapped.machine.warp, SECTOR / mapped.machine.warp)
    together = wide[-1] if wide else 1
    return min(SECTOR, size * max(1, abs(stride) // together))


def _touched(mapped: ProgramMap, placed: Mapping[str, Placed], launch: Launch) -> Iterator[int]:
    """Bytes of the cells of each array in memory that the launch reads, and that it writes."""
    for name, place in placed.items():
        if place.kind not in ("array", "memory"):
            continue
        uses = [o for o in mapped.program.occurrences[name] if o.path[: len(launch.path)] == launch.path]
        for writes in (False, True):
            some = [_cells(o) for o in uses if o.writes == writes]
            if some:
                yield place.buffer.size_of(min(place.all_cells, sum(set(some))))


def _cells(use: Occurrence) -> int:
    """Cells that an access reaches: one for each value of the iterators in it, at most."""
    levels = {level for form in use.access.subscripts for level in form.levels}
    return prod(use.sizes[level] for level in levels)


def launches_in(files: Mapping[str, bytes]) -> list[LaunchFigures]:
    """The launches of a bundle, in order; ValueError, KeyError or TypeError where they are none."""
    entries = json.loads(files["launches.json"])
    return [_figures(entry) for entry in entries]


def calls(launches: Sequence[LaunchFigures]) -> Iterator[tuple[LaunchFigures, tuple[int, ...]]]:
    """Every launch of one call in order, with the values of the host's iterators."""
    yield from _under(list(launches), ())


def _under(
    launches: list[LaunchFigures], values: tuple[int, ...]
) -> Iterator[tuple[LaunchFigures, tuple[int, ...]]]:
    depth = len(values)
    while launches:
        first = launches[0]
        if len(first.host_sizes) == depth:
            yield launches.pop(0), values
            continue
        loop = first.nest[: depth + 1]
        inside = [each for each in launches if each.nest[: depth + 1] == loop]
        del launches[: len(inside)]
        for value in range(first.host_sizes[depth]):
            yield from _under(list(inside), (*values, value))

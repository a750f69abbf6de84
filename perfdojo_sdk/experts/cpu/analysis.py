"""The facts that the planner decides by: what each statement is, how often it runs, what it uses again.

Everything here is read from subscripts and sizes; no move is played and no name of an operator is known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from math import prod

from perfdojo_sdk.codegen.operations import SPELLINGS
from perfdojo_sdk.core.expression import Access, Expression, operations, performs
from perfdojo_sdk.core.geometry import guarded_bounds, lane_stride
from perfdojo_sdk.core.program import LocatedNode, Node, Program, Statement
from perfdojo_sdk.hookspecs.types import Target

#: Most operations of a value of a pair, in additions, that is computed anew for each pair.
MOST_OF_A_PAIR = 4.0


class Kind(Enum):
    """The classes of statements, by their subscripts."""

    MAP = "map"
    """Each iteration writes an element of its own and reads none that another iteration writes."""
    REDUCTION = "reduction"
    """Iterations accumulate into shared elements."""
    CONTRACTION = "contraction"
    """A reduction of products, or of other short values of two operands, each used again along a loop that
    the other one lacks."""
    WINDOW = "window"
    """A reduction whose operand slides: a subscript is a sum of a kept and a reduced iterator."""
    SCAN = "scan"
    """Iterations read what earlier ones of the same statement wrote."""
    GATHER = "gather"
    """An element is found by quotients of iterators."""
    TRANSPOSE = "transpose"
    """A map that walks through one array by rows and through another by columns."""


@dataclass(frozen=True)
class Work:
    """One statement: its class, its iterations and its reuse."""

    statement: Statement
    kind: Kind
    sizes: tuple[int, ...]
    """Sizes of the loops around it, outermost first."""
    reduced: tuple[int, ...]
    """Levels of the loops, longer than one, that its target does not depend on."""
    strides: tuple[tuple[int | None, ...], ...]
    """For each access, the target first: cells between neighbouring iterations of each loop; None where they
    vary."""
    reuse: Mapping[str, float]
    """Array -> iterations for each of its elements, at least (a box around the elements is counted)."""

    @property
    def iterations(self) -> int:
        return prod(self.sizes)

    @property
    def flops(self) -> int:
        """Arithmetic operations of all iterations."""
        count = sum(1 for _ in operations(self.statement.value)) + (self.statement.accumulate is not None)
        return count * self.iterations

    def strides_along(self, level: int) -> tuple[int | None, ...]:
        """The stride of each array in the loop at ``level``."""
        return tuple(steps[level] for steps in self.strides)

    def walks_along(self, level: int) -> bool:
        """True if the loop at ``level`` goes through neighbours, or through one element, of every array."""
        return all(step in (0, 1) for step in self.strides_along(level))


@dataclass(frozen=True)
class NestFacts:
    """A node at the root of a program: its statements, its data and the time that it takes at least."""

    place: str
    works: tuple[Work, ...]
    touched: Mapping[str, int]
    """Array -> bytes of its elements that it touches, each counted once."""
    seconds: float
    """Estimated: the arithmetic at its peak on one thread, or the data at the speed of where it is."""
    computing: float
    """Estimated seconds of the arithmetic alone."""

    @property
    def bytes(self) -> int:
        """Bytes of the elements that it touches, each counted once."""
        return sum(self.touched.values())

    @property
    def kinds(self) -> frozenset[Kind]:
        return frozenset(work.kind for work in self.works)

    @property
    def flops(self) -> int:
        return sum(work.flops for work in self.works)

    @property
    def guarded(self) -> bool:
        return any(work.statement.guard for work in self.works)


def facts_of(program: Program, target: Target) -> tuple[NestFacts, ...]:
    """The facts of every node at the root of a program, in program order."""
    works: dict[int, list[Work]] = {k: [] for k in range(len(program.body))}
    for place in program.places:
        if isinstance(place.node, Statement):
            works[place.path[0]].append(work_of(program, place))
    return tuple(_nest(program, program.body[k], tuple(found), target) for k, found in works.items())


def _nest(program: Program, node: Node, works: tuple[Work, ...], target: Target) -> NestFacts:
    touched: dict[str, int] = {}
    for work in works:
        for access in (work.statement.target, *work.statement.reads):
            buffer = program.buffer_of[access.array]
            cells = min(buffer.cells, elements(access, work.sizes, work.statement))
            touched[access.array] = max(touched.get(access.array, 0), buffer.size_of(cells))
    flops = sum(work.flops for work in works)
    dtype = works[0].statement.dtype
    peak = target.capabilities.peak_gflops.get(dtype) or max(
        target.capabilities.peak_gflops.values(), default=1
    )
    computing = flops / peak / 1e9
    seconds = max(computing, seconds_to_move(sum(touched.values()), target))
    return NestFacts(node.id, works, touched, seconds, computing)


def least_of(program: Program, nests: Sequence[NestFacts], target: Target) -> tuple[int, float]:
    """The bytes that a program has to move whatever the order of its loops: those of the elements of inputs
    and outputs that it touches, each counted once. And the estimated seconds that it takes at least, on one
    thread."""
    used = program.interface.intersection(array for nest in nests for array in nest.touched)
    moved = sum(max(nest.touched.get(array, 0) for nest in nests) for array in used)
    return moved, max(sum(nest.computing for nest in nests), seconds_to_move(moved, target))


def seconds_to_move(data: int, target: Target) -> float:
    """Estimated seconds in which one thread moves ``data`` bytes between where they all fit and the core."""
    capabilities = target.capabilities
    speeds = [cache.read_gbs for cache in capabilities.caches.values() if data <= cache.bytes]
    if not speeds and capabilities.memory:
        speeds = [capabilities.memory.copy_gbs]
    return data / max(speeds, default=1) / 1e9


def work_of(program: Program, place: LocatedNode) -> Work:
    """The facts of the statement at ``place``."""
    statement, sizes = place.node, place.sizes
    assert isinstance(statement, Statement)
    strides = tuple(_strides(program, access, len(sizes)) for access in (statement.target, *statement.reads))
    used = statement.target.levels
    reduced = tuple(l for l, size in enumerate(sizes) if size > 1 and l not in used)
    cells = {a.array: elements(a, sizes, statement) for a in (statement.target, *statement.reads)}
    reuse = {array: prod(sizes) / count for array, count in cells.items()}
    kind = _kind(statement, strides, sizes, reduced)
    return Work(statement, kind, sizes, reduced, strides, reuse)


def _strides(program: Program, access: Access, depth: int) -> tuple[int | None, ...]:
    buffer = program.buffer_of[access.array]
    return tuple(lane_stride(buffer, access.subscripts, level) for level in range(depth))


def elements(access: Access, sizes: tuple[int, ...], statement: Statement) -> int:
    """Number of elements in a box around those that an access touches; at most that of the iterations."""
    count = 1
    for subscript in access.subscripts:
        low, high = guarded_bounds(subscript, statement.guard, sizes)
        count *= max(1, min(high - low + 1, prod(sizes[l] for l in subscript.levels)))
    return count


def _kind(
    statement: Statement,
    strides: tuple[tuple[int | None, ...], ...],
    sizes: tuple[int, ...],
    reduced: tuple[int, ...],
) -> Kind:
    own = [read for read in statement.reads if read.array == statement.target.array]
    if any(read != statement.target for read in own):
        return Kind.SCAN
    if statement.accumulate and reduced:
        if is_product(statement) or is_pairing(statement):
            return Kind.CONTRACTION
        if any(_slides(read, reduced) for read in statement.reads):
            return Kind.WINDOW
        return Kind.REDUCTION
    if any(subscript.quotients for read in statement.reads for subscript in read.subscripts):
        return Kind.GATHER
    return Kind.TRANSPOSE if transposes(strides, sizes) else Kind.MAP


def is_product(statement: Statement) -> bool:
    """True if a statement sums products, two factors of which have a loop each that the other one lacks."""
    if statement.accumulate != "add":
        return False
    kept = frozenset(statement.target.levels)
    used = [frozenset(factor.levels) & kept for factor in factors(statement.value)]
    return any(one - other and other - one for one in used for other in used)


def is_pairing(statement: Statement) -> bool:
    """True if a statement sums a short value of two elements, such as the distance between them, each of
    which has a loop that the other one lacks."""
    kept = frozenset(statement.target.levels)
    one, other = (frozenset(access.levels) & kept for access in pair_of(statement) or (statement.target,) * 2)
    return bool(one - other and other - one)


def pair_of(statement: Statement) -> tuple[Access, Access] | None:
    """The two elements that a statement sums short values of; None where it sums others, or values with a
    factor that depends on one of the two alone, which can be computed before."""
    value, accesses = statement.value, tuple(dict.fromkeys(statement.value.reads))
    if statement.accumulate != "add" or len(accesses) != 2:
        return None
    if sum(SPELLINGS[operation.name].cost for operation in operations(value)) > MOST_OF_A_PAIR:
        return None
    alike = all({*factor.reads} == {*accesses} for factor in factors(value))
    return (accesses[0], accesses[1]) if alike else None


def factors(value: Expression) -> tuple[Expression, ...]:
    """The factors of a product; of any other value, the value."""
    if not performs(value, "mul"):
        return (value,)
    return tuple(factor for argument in value.arguments for factor in factors(argument))


def _slides(access: Access, reduced: tuple[int, ...]) -> bool:
    """True if a subscript is a sum of a kept and of a reduced iterator."""
    for subscript in access.subscripts:
        moving = [level in reduced for level in subscript.levels]
        if any(moving) and not all(moving):
            return True
    return False


def transposes(strides: tuple[tuple[int | None, ...], ...], sizes: tuple[int, ...]) -> bool:
    """True if some read goes through neighbours in one loop and the target in another one."""
    target, *reads = strides
    rows = {level for level, step in enumerate(target) if step == 1 and sizes[level] > 1}
    for read in reads:
        columns = {level for level, step in enumerate(read) if step == 1 and sizes[level] > 1}
        if columns and rows and columns.isdisjoint(rows) and any((read[level] or 0) > 1 for level in rows):
            return True
    return False


def lanes_of(statement: Statement, lanes: Mapping[str, int]) -> int:
    """The lanes of the vectors that compute a statement: those of its widest dtype; 1 without vectors."""
    if statement.dtype not in lanes:
        return 1
    return min(lanes[dtype] for dtype in statement.dtypes if dtype in lanes)

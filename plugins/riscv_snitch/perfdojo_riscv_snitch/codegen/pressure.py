"""Register pressure: an upper bound that shows that all values of repeated scopes get registers.

A repeated instruction cannot access the frame. The allocator spills a value only at a line where more values
are live than there are registers. Pressure is counted for each nest, a child of the program's root: a cell
in a register is live from the first nest that uses it to the last, a constant from the kernel's begin to the
last nest that reads it, and all other values within one nest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TypeAlias

from perfdojo_riscv_snitch.codegen.allocate import POOLS, SPARE, lives_of
from perfdojo_riscv_snitch.codegen.assembly import Listing, Register
from perfdojo_riscv_snitch.codegen.body import Body
from perfdojo_riscv_snitch.codegen.functions import CHANGED, FUNCTIONS
from perfdojo_riscv_snitch.codegen.group import MOST_TOGETHER
from perfdojo_riscv_snitch.codegen.inline import has_line
from perfdojo_riscv_snitch.codegen.inline import written_out as has_functions
from perfdojo_riscv_snitch.codegen.integers import MOST
from perfdojo_riscv_snitch.codegen.pairs import LANES_OF
from perfdojo_riscv_snitch.codegen.plan import Plan
from perfdojo_riscv_snitch.codegen.pointers import REACH
from perfdojo_riscv_snitch.codegen.setup import SetUp
from perfdojo_riscv_snitch.codegen.streams import MOVERS
from perfdojo_riscv_snitch.codegen.values import BYTES, exact_reciprocal
from perfdojo_sdk.core.expression import Expression, Literal, Operation, Read, walk
from perfdojo_sdk.core.program import Path, Statement

#: A number above that of all registers.
_MANY = 1000
#: Most constants of an inlined function that need registers.
OF_FUNCTION = 4
#: Values that live while the constants are loaded.
_LOADING = 2

#: Answers that are kept.
MOST_KEPT = 20_000
#: Number of arguments about the workspace that are read.
_OF_WORKSPACE = 2
#: Integer values that live between the counts of nested repetitions and their end, at most.
_COUNTING = 4


#: Most values at once in the code of some nests; of each buffer, how many cells it keeps in registers.
Lives: TypeAlias = tuple[int, Counter[str]]


@dataclass(frozen=True)
class Repeated:
    """A scope that the sequencer repeats."""

    path: Path
    own: int
    """Registers for values that live in it only."""
    statements: Sequence[Statement]
    """Its statements that become instructions, not jobs of movers."""
    nested: bool
    """True if it contains another repeated scope, whose count needs an integer register."""

    @property
    def nest(self) -> int:
        return self.path[0]


def fits(plan: Plan, repeated: Sequence[Repeated], kept: dict[object, Lives]) -> bool:
    """True if no value of these scopes can be spilled to the frame; False where the bound does not decide.

    ``kept``: a cache from the inputs of a nest's code to the live values found in it.
    """
    program = plan.program
    cells: list[tuple[range, int]] = []
    """Nests, and registers that buffers need in them."""
    where: dict[str, range] = {}
    for buffer in program.buffers:
        places = [o.path[0] for o in program.occurrences[buffer.name]]
        if places and buffer.location == "reg":
            where[buffer.name] = range(min(places), max(places) + 1)
            cells.append((where[buffer.name], buffer.cells))
    inside = {id(statement) for each in repeated for statement in each.statements}
    nests = [_Nest.of(plan, k, inside) for k in range(len(program.body))]
    for each in repeated:
        nests[each.nest].own += each.own
    critical: set[int] = set()
    for each in repeated:
        critical.add(each.nest)
        for statement in each.statements:
            for array in statement.arrays:
                critical.update(where.get(program.buffer_of[array].name, ()))
            if any(isinstance(part, Literal) for part in walk(statement.value)):
                critical.update(range(each.nest + 1))
    calls = any(nest.calls for nest in nests)
    if any(each.nested and (calls or not _counts_fit(plan, len(each.path) - 1)) for each in repeated):
        return False
    spared = sum(name.startswith("f") for name in CHANGED) if calls else 0

    def most(k: int) -> int:
        constants = set[object]().union(*[n.constants for n in nests[k:]])
        functions = set[object]().union(*[n.functions for n in nests[k:]])
        named = sum(count for places, count in cells if k in places)
        return named + len(constants) + OF_FUNCTION * len(functions) + nests[k].own

    registers = len(POOLS["f"]) - spared
    if all(most(k) <= registers - len(SPARE["f"]) for k in critical):
        return True
    if all(most(k) <= registers for k in range(len(nests))):
        return True
    some = range(min(critical), max(critical) + 1)
    key = _all_of(plan, some, where)
    if key not in kept:
        if len(kept) >= MOST_KEPT:
            kept.clear()
        kept[key] = _most_lives(plan, some, where)
    later = set[object]().union(*[nest.constants for nest in nests[some.stop :]])
    functions = set[object]().union(*[nest.functions for nest in nests[some.stop :]])
    # Cells of a buffer that is used elsewhere may be live here, although nothing here uses them.
    lasting = [n for n, places in where.items() if any(_crosses(places, some)) and _touch(places, some)]
    most_here, used = kept[key]
    unused = sum(buffer.cells - used[buffer.name] for buffer in program.buffers if buffer.name in lasting)
    across = len(later) + OF_FUNCTION * len(functions) + unused
    return most_here + across <= registers - len(SPARE["f"])


def _all_of(plan: Plan, some: range, where: Mapping[str, range]) -> object:
    """A cache key: everything that the code of these nests depends on."""
    program, nodes = plan.program, [plan.program.body[k] for k in some]
    arrays = sorted(frozenset[str]().union(*[node.arrays for node in nodes]))
    buffers = [program.buffer_of[array] for array in arrays]
    setup = SetUp(program, plan.streams, Listing("none"))
    return (
        tuple(node.text for node in nodes),
        tuple(plan.moved(leaf.statement) for node in nodes for leaf in node.leaves),
        tuple((buffer.text, buffer.name in plan.pairs.registers) for buffer in buffers),
        tuple(array in plan.never_nan for array in arrays),
        tuple(_crosses(where.get(buffer.name, some), some) for buffer in buffers),
        tuple((s.buffer.name, s.mover, s.job[0] - some.start, s.job[1:]) for s in plan.streams.values()),
        tuple(map(setup.undisturbed, MOVERS)),
    )


def _crosses(places: range, some: range) -> tuple[bool, bool]:
    """Two flags: the range ``places`` begins before the nests ``some``, and ends after them."""
    return places.start < some.start, places.stop > some.stop


def _most_lives(plan: Plan, some: range, where: Mapping[str, range]) -> Lives:
    """The largest numbers of live values in these nests, counted in their code. ``where``: nests that use
    each buffer."""
    parts = [part for k in some for part in plan.parts_at((k,), ())]
    body = Body(plan, parts, Listing("alone"))
    body.bases = {buffer.name: Register("x") for buffer in plan.program.buffers}
    body.put(parts)
    constants = set(body.constants.values())
    named = {cell: where[name] for (name, _), cell in body.cells.items()}
    most = 0
    for lines in (body.listing.lines, body.merged(body.listing.lines)):
        changes = [0] * (len(lines) + 2)
        for register, life in lives_of(lines).items():
            if register.kind == "f":
                before, after = _crosses(named.get(register, some), some)
                start = 0 if before or register in constants else max(life.start, 0)
                end = len(lines) if after or register in constants else life.end + 1
                changes[start] += 1
                changes[end] -= 1
        most = max(most, *accumulate(changes))
    return most, Counter(name for name, _ in body.cells)


def _touch(one: range, other: range) -> bool:
    return one.start < other.stop and other.start < one.stop


def _counts_fit(plan: Plan, loops: int) -> bool:
    """True if the count of a nested repetition under ``loops`` loops certainly gets a register.

    Up to ``MOST`` constants are shared and have long live ranges; further ones are loaded at each use. The
    other values are bases, pointers, and two for each loop.
    """
    program, registers = plan.program, len(POOLS["x"])
    arguments = len(program.inputs) + len(program.outputs) + _OF_WORKSPACE
    accesses = [stream.memory for stream in plan.streams.values()]
    for node in program.body:
        for leaf in node.leaves:
            if not plan.moved(leaf.statement):
                accesses += filter(plan.in_memory, (leaf.statement.target, *leaf.statement.reads))
    buffers = [program.buffer_of[access.array] for access in accesses]
    pointers = sum(1 + buffer.cells * BYTES[buffer.dtype] // REACH for buffer in buffers)
    lasting = arguments + len(program.buffers) - len(program.interface) + pointers + 2 * loops + _COUNTING
    return MOST + arguments <= registers and lasting <= registers - len(SPARE["x"])


@dataclass
class _Nest:
    """The register demand of one nest."""

    own: int
    constants: set[object]
    functions: set[object]
    calls: bool

    @staticmethod
    def of(plan: Plan, number: int, repeated: Container[int]) -> _Nest:
        """``repeated``: Python's ids of statements whose own values are counted already."""
        found = _Nest(_LOADING, set(), set(), False)
        for leaf in plan.program.body[number].leaves:
            statement = leaf.statement
            if plan.moved(statement):
                continue
            if statement.dtype == "f16":  # constants in all lanes, to convert numbers to words and back
                found.constants |= {("ones", "pair"), ("zeros", "pair")}
            for part in walk(statement.value):
                if isinstance(part, Literal):
                    # For pairs, a constant is kept in both lanes as well.
                    found.constants.add((part.text, part.dtype))
                    found.constants |= {(part.text, "pair")} if part.dtype in LANES_OF else set()
                elif isinstance(part, Operation) and part.name in FUNCTIONS:
                    if not has_line(part):
                        found.calls |= exact_reciprocal(part.arguments[-1]) is None
                        continue
                    found.functions.add((part.name, part.dtype))
                    if isinstance(part.arguments[-1], Literal):
                        found.own = _MANY  # a function's own constants and this one may share instructions
            if id(statement) not in repeated:
                found.own = max(found.own, _width(plan, statement))
        return found


def _width(plan: Plan, statement: Statement) -> int:
    """Most values of its own that a statement has at once, with other instances in step."""
    value = statement.value
    if has_functions(value):
        return _MANY
    parts = list(walk(value))
    loads = any(map(plan.in_memory, statement.reads))
    old = statement.accumulate is not None and plan.in_memory(statement.target)
    halves = plan.pairs.adds_halves(plan.pairs.in_place(statement))
    if isinstance(value, Literal | Read) and not (loads or halves):
        return _LOADING + old
    waits = loads or halves or sum(isinstance(part, Operation) for part in parts) > 1
    own = sum(map(_results, parts)) + _packed(plan, statement) + old + 2 * halves
    return (MOST_TOGETHER if waits else 1) * own


def _packed(plan: Plan, statement: Statement) -> int:
    """Operands whose lanes are loaded one by one: beside the pair, each lane has a register."""
    work = plan.pairs.in_place(statement)
    loaded = [read for read in statement.reads if work.lane in read.levels and plan.in_memory(read)]
    return sum(plan.pairs.joins(read, work) for read in loaded)


def _results(part: Expression) -> int:
    """Registers that one part of a value is computed in."""
    if isinstance(part, Operation):
        return 2 if part.name in ("select", "max", "min") else 1
    # A number may have to be brought into all lanes.
    return 0 if isinstance(part, Literal) else 1 + (part.dtype in LANES_OF)

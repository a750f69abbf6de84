"""Statements with inlined functions: the instances that run in step, and the source of their constants.

A mover that no stream of the program uses reads the constants of a loop's functions from a table in the
frame, again for each iteration. Without such a mover, they are loaded where they are needed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING

from perfdojo_riscv_snitch.codegen.assembly import Line
from perfdojo_riscv_snitch.codegen.group import Group, Table, chunks, in_step
from perfdojo_riscv_snitch.codegen.inline import StraightLines, written_out
from perfdojo_riscv_snitch.codegen.streams import MOST_BOUND, MOVERS, Dimension
from perfdojo_riscv_snitch.codegen.tree import Loop, Part, Work
from perfdojo_riscv_snitch.codegen.values import machine_extreme
from perfdojo_sdk.core.expression import Expression, Operation, Read, performs
from perfdojo_sdk.core.program import Statement

if TYPE_CHECKING:
    from perfdojo_riscv_snitch.codegen.body import Body


def side_by_side(body: Body, parts: Sequence[Part]) -> list[Work]:
    """The instances of one statement that ``parts`` begin with and that may run in step.

    All of them read before the first one writes, so none may read what another one writes. Statements between
    them that movers execute do not matter.
    """
    (first, *_) = parts
    assert isinstance(first, Work)
    statement, found = first.statement, list[Work]()
    own = any(r.array == statement.target.array for r in statement.reads)
    if not _worth_it(body, first) or own and not _in_place(body, statement):
        return [first]
    if statement.accumulate and body.in_memory(statement.target):
        return [first]
    several = body.pairs.adds_halves(first)
    for part in parts:
        if isinstance(part, Work) and part.statement is statement:
            if several and any(body.same_cell(statement.target, part, each) for each in found):
                break  # it is read by the first of several instructions, and written by the last
            found.append(part)
        elif not (isinstance(part, Work) and body.moved(part.statement)):
            break
    return found


def _in_place(body: Body, statement: Statement) -> bool:
    """True if the statement is one instruction: a maximum or minimum written into its own operand."""
    value, target = statement.value, statement.target
    if body.in_memory(target) or not performs(value, "select"):
        return False
    (_, one, other) = machine_extreme(value, body.plan.never_nan) or (None, None, None)
    for mine, new in ((one, other), (other, one)):
        if isinstance(mine, Read) and mine.access == target and isinstance(new, Read):
            return new.access.array != target.array
    return False


def _worth_it(body: Body, work: Work) -> bool:
    """True if interleaving pays: some instruction of the statement waits for another (loads, functions, lane
    sums)."""
    statement = work.statement
    if statement.guard or body.moved(statement):
        return False
    loads = any(body.in_memory(read) for read in statement.reads)
    return loads or written_out(statement.value) or _waits(statement.value) or body.pairs.adds_halves(work)


def _waits(value: Expression) -> bool:
    """True if an instruction of a value needs the result of another one, apart from fused products."""
    if not isinstance(value, Operation) or value.name == "select":
        return False
    inner = [a for a in value.arguments if isinstance(a, Operation)]
    if value.name in ("add", "sub"):
        inner = [
            b for a in inner for b in (a.arguments if a.name == "mul" else (a,)) if isinstance(b, Operation)
        ]
    return bool(inner)


@dataclass
class Numbers:
    """The numbers that the functions of one loop take from a mover."""

    together: int
    """Instances that read each number."""
    times: int
    """Iterations, each of which reads them all."""
    groups: list[list[int]] = field(default_factory=list)


class WrittenOut:
    """Emits these statements for a kernel's body."""

    def __init__(self, body: Body) -> None:
        self.body, self.listing = body, body.listing
        self.table = Table()
        used = {stream.mover for stream in body.streams.values()}
        self.mover = next((m for m in reversed(tuple(MOVERS.values())) if m not in used), None)
        self.jobs: dict[Loop, Numbers] = {}
        if self.mover is not None:
            for part in body.parts:
                self._plan(part)
        self._open: Numbers | None = None

    # -- numbers through a mover -------------------------------------------------------------------

    def _plan(self, part: Part) -> None:
        """Find the loops that hold such statements in one place only, the outermost ones."""
        if not isinstance(part, Loop):
            return
        places = list(self._places(part, (part,)))
        if len(places) == 1:
            ((loops, sizes),) = places
            times = prod(loop.size for loop in loops)
            if 2 <= times <= MOST_BOUND and not any(loop.suffix for loop in loops):
                self.jobs[part] = Numbers(Counter(sizes).most_common(1)[0][0], times)
                return
        for each in part.body:
            self._plan(each)

    def _places(self, loop: Loop, around: tuple[Loop, ...]) -> Iterator[tuple[tuple[Loop, ...], list[int]]]:
        """(loops, sizes of groups) for each list of parts that holds such statements."""
        sizes: list[int] = []
        done = 0
        for k, part in enumerate(loop.body):
            if isinstance(part, Loop):
                yield from self._places(part, (*around, part))
            elif isinstance(part, Work) and k >= done and written_out(part.statement.value):
                found = side_by_side(self.body, loop.body[k:])
                done = 1 + max(j for j, each in enumerate(loop.body) if each is found[-1])
                sizes += chunks(len(found))
        if sizes:
            yield around, sizes

    def begin(self, loop: Loop) -> None:
        """Called before the code of a loop is written."""
        self._open = self.jobs.get(loop, self._open)

    def end(self, loop: Loop, at: int) -> None:
        """Called after that; ``at``: the line that the loop's code begins with. Sets the mover up there."""
        numbers = self.jobs.get(loop)
        if numbers is None:
            return
        self._open = None
        if not numbers.groups:
            return
        first, times = numbers.groups[0], numbers.times
        if all(words == first for words in numbers.groups):
            words, times = first, times * len(numbers.groups)
        else:
            words = [word for group in numbers.groups for word in group]
        after, self.listing.lines = self.listing.lines[at:], self.listing.lines[:at]
        self.body.setup.fetch(
            self._mover,
            numbers.together,
            (Dimension(len(words), 8), Dimension(times, 0)),
            f"{{constants}}+{self.table.place(words)}",
            drain=len(self.jobs) > 1 or loop not in self.body.parts,
        )
        self.listing.lines += after

    @property
    def fetches(self) -> bool:
        """True if a mover reads the table."""
        return any(numbers.groups for numbers in self.jobs.values())

    @property
    def _mover(self) -> int:
        assert self.mover is not None
        return self.mover

    # -- statements --------------------------------------------------------------------------------

    def together(self, works: Sequence[Work]) -> None:
        """Emit instances in step, as many at a time as registers allow."""
        at = 0
        for size in chunks(len(works)):
            self._group(works[at : at + size])
            at += size

    def _group(self, works: Sequence[Work]) -> None:
        instances = [self._instance(work) for work in works]
        if not written_out(works[0].statement.value):
            rows = zip(*instances, strict=True) if in_step(instances) else instances
            self.listing.lines += [line for row in rows for line in row]
        elif in_step(instances):
            self._emit(instances, streams=not works[0].statement.guard)
        else:
            for each in instances:
                self._emit([each], streams=False)

    def _emit(self, instances: list[list[Line]], streams: bool) -> None:
        numbers = self._open
        if numbers is None or not streams or len(instances) != numbers.together:
            numbers = None
        stream = self.body.setup.registers[f"ssr{self._mover}"] if numbers else None
        constants = {register: constant for constant, register in self.body.constants.items()}
        group = Group(self.listing, instances, constants, self.table, stream)
        group.emit()
        if numbers is not None and group.streamed:
            numbers.groups.append(group.streamed)

    def _instance(self, work: Work) -> list[Line]:
        before, self.listing.lines = self.listing.lines, []
        self.body.values.lines = StraightLines(self.listing, self.body.constant)
        self.body.statement(work)
        self.body.values.lines = None
        found, self.listing.lines = self.listing.lines, before
        return found

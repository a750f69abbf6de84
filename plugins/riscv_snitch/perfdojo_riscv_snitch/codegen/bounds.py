"""A fast sufficient check that the hardware can run a program, without emitting the kernel.

It decides most moves of a game. Only streams, pairs, repeated scopes and memory can exceed the hardware.
Streams and pairs are planned before any instruction is emitted (:mod:`.plan`). A repeated scope is emitted
alone: its instructions do not depend on the code around it, so the answer is cached by its text. Registers
are counted by upper bounds. Where these do not decide, :class:`Unsure` is raised, and the whole kernel has
to be emitted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice, product
from math import prod

from perfdojo_riscv_snitch.codegen import widths
from perfdojo_riscv_snitch.codegen.assembly import Instruction, Listing, Register
from perfdojo_riscv_snitch.codegen.body import MOST_TIMES, Body
from perfdojo_riscv_snitch.codegen.limits import Refused
from perfdojo_riscv_snitch.codegen.plan import REPEATS, STAGGERED, Plan
from perfdojo_riscv_snitch.codegen.pressure import MOST_KEPT, Lives, Repeated, fits
from perfdojo_riscv_snitch.codegen.streams import Nothing
from perfdojo_riscv_snitch.codegen.tree import Loop, Work, written_out
from perfdojo_riscv_snitch.codegen.values import BYTES, FORMATS, Values
from perfdojo_riscv_snitch.program import TCDM_BYTES
from perfdojo_sdk.codegen.layout import ALIGNMENT
from perfdojo_sdk.core.dialect import Dialect
from perfdojo_sdk.core.errors import DojoError
from perfdojo_sdk.core.geometry import index_values
from perfdojo_sdk.core.program import Node, Path, Program, Scope, Statement

#: Most copies of a repeated scope that are checked; with more, the whole kernel is emitted.
MOST_COPIES = 16


class Unsure(Exception):
    """Raised when only the emitted kernel can decide."""


class Bounds:
    """Cached answers about programs of one dialect."""

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        self._kept: dict[object, int] = {}
        """Everything that the code of a repeated scope depends on -> registers for its own values."""
        self._lives: dict[object, Lives] = {}
        self._compiled: dict[object, bool] = {}

    def check(self, program: Program) -> None:
        """Raise :class:`Refused` where the hardware cannot run the program, :class:`Unsure` if that is open.

        DojoError where it does not compile, whatever the hardware; nothing where all is well.
        """
        if any(buffer.dtype not in FORMATS for buffer in program.buffers):
            return  # does not compile
        widths.check(program)
        plan = Plan.of(program, self.dialect)
        if not (_fits_memory(program) and _in_lanes(plan)):
            raise Unsure
        repeated: list[Repeated] = []
        paths = list(_repeated_scopes(program.body, (), self.dialect))
        for path in paths:
            try:
                repeated.append(self._repeated(plan, path))
            except DojoError:
                raise Unsure from None
            except Refused:
                statements = [leaf.statement for node in program.body for leaf in node.leaves]
                if not all(self._compiles(program, statement) for statement in statements):
                    raise Unsure from None
                raise
        if repeated and not fits(plan, repeated, self._lives):
            raise Unsure
        if any(isinstance(scope := program.node(p), Scope) and STAGGERED in scope.suffixes for p in paths):
            raise Unsure  # there may be no consecutive registers

    def _repeated(self, plan: Plan, path: Path) -> Repeated:
        """Emit a repeated scope alone, for each way in which the scopes around it are written out."""
        scope, above = plan.program.node(path), plan.program.ancestors(path)
        assert isinstance(scope, Scope)
        statements = [leaf.statement for leaf in scope.leaves]
        moved = tuple(map(plan.moved, statements))
        arrays = sorted(scope.arrays)
        buffers = [plan.program.buffer_of[array] for array in arrays]
        named = _levels(plan, statements)
        around = [_copies(each, level in named, self.dialect) for level, each in enumerate(above)]
        many = prod(filter(None, around)) > MOST_COPIES
        depth = len(path)
        jobs = tuple(job[depth:] for job in plan.jobs if len(job) > depth and job[:depth] == path)
        numbers = tuple(array in plan.never_nan for array in arrays)
        paired = tuple(buffer.name in plan.pairs.registers for buffer in buffers)
        texts = tuple(buffer.text for buffer in buffers)
        key = (scope.text, tuple(around), moved, texts, jobs, numbers, paired)
        own = self._kept.get(key)
        if own is None:
            if not (jobs or _nested(scope) or scope.size > MOST_TIMES):
                self._check_first(plan, scope)
            ways = islice(product(*map(_values, around)), 1 if many else None)
            own = max(_own(plan, path, above, values) for values in ways)
            if many:
                raise Unsure  # the first copy is not refused, but another one may be
            if len(self._kept) == MOST_KEPT:
                self._kept.clear()
            self._kept[key] = own
        instructions = [s for s, m in zip(statements, moved, strict=True) if not m]
        return Repeated(path, own, instructions, _nested(scope))

    def _check_first(self, plan: Plan, scope: Scope) -> None:
        """Refuse without emitting anything where the first instruction of the scope addresses memory."""
        for node in scope.body:
            if isinstance(node, Statement):
                if plan.moved(node):
                    continue
                if not node.guard:
                    plan.check_repeatable(node)
            elif node.size == 1 or written_out(node, self.dialect) or self.dialect.is_lockstep(node.suffix):
                self._check_first(plan, node)
            return

    def _compiles(self, program: Program, statement: Statement) -> bool:
        """True if the generator has code for the statement's operations."""
        dtypes = tuple(program.buffer_of[read.array].dtype for read in statement.reads)
        key = (statement.text, statement.dtype, dtypes)
        if key not in self._compiled:
            self._compiled[key] = _has_code(statement)
        return self._compiled[key]


def _levels(plan: Plan, statements: Sequence[Statement]) -> set[int]:
    """Levels whose iterators' values matter to the instructions of a repeated scope: in cells, conditions and
    values. Addresses do not, as memory cannot be addressed there."""
    found = set[int]()
    for statement in statements:
        if plan.moved(statement):
            continue
        for access in (statement.target, *statement.reads):
            found.update(plan.pairs.cell(access).levels)
        for form in (*statement.guard, *[value.index for value in index_values(statement.value)]):
            found.update(form.levels)
    return found


def _copies(scope: Scope, named: bool, dialect: Dialect) -> int:
    """The number of iterator values to check: 0 for a loop, the scope's size where it is unrolled and
    named."""
    if scope.size > 1 and not written_out(scope, dialect):
        return 0
    return scope.size if named else 1


def _values(copies: int) -> Sequence[int | None]:
    """The values of an iterator where its scope is written out."""
    return range(copies) if copies else (None,)


def _own(plan: Plan, path: Path, above: tuple[Scope, ...], values: Sequence[int | None]) -> int:
    """Registers that the code of a repeated scope uses for values of its own; ``values`` of the iterators."""
    iterators = tuple(
        Loop(scope.size, scope.suffix, scope.id) if value is None else value
        for scope, value in zip(above, values, strict=True)
    )
    (loop,) = [part for part in plan.parts_at(path, iterators) if isinstance(part, Loop)]
    chain = [*(each for each in iterators if isinstance(each, Loop)), loop]
    for outer, inner in zip(chain, chain[1:], strict=False):
        outer.body = [inner]
    body = Body(plan, [chain[0]], Listing("alone"))
    body.repeat(loop)
    lines = [line for line in body.listing.lines if isinstance(line, Instruction)]
    named = {*body.cells.values(), *body.constants.values()}
    return len({r for line in lines for r in line.operands if r.kind == "f" and not r.fixed} - named)


def _repeated_scopes(nodes: Sequence[Node], above: Path, dialect: Dialect) -> Iterator[Path]:
    """Paths of the scopes that the sequencer repeats, without those inside of others."""
    for k, node in enumerate(nodes):
        if isinstance(node, Scope) and node.suffix in REPEATS and node.size > 1:
            yield (*above, k)
        elif isinstance(node, Scope) and not REPEATS.isdisjoint(node.suffixes):
            yield from _repeated_scopes(node.body, (*above, k), dialect)


def _nested(scope: Scope) -> bool:
    """True if the scope directly contains another one that the sequencer repeats."""
    return any(isinstance(child, Scope) and not REPEATS.isdisjoint(child.suffixes) for child in scope.body)


def _fits_memory(program: Program) -> bool:
    """True if all buffers together, whatever their location, fit into the TCDM."""
    sizes = [-(-buffer.cells * BYTES[buffer.dtype] // ALIGNMENT) * ALIGNMENT for buffer in program.buffers]
    return sum(sizes) <= TCDM_BYTES


def _in_lanes(plan: Plan) -> bool:
    """True if all statements outside of repeated scopes that use registers of pairs have a packed form."""
    for name in plan.pairs.registers:
        for statement, access in [(o.statement, o.access) for o in plan.program.occurrences[name]]:
            if not plan.moved(statement):
                work = plan.pairs.in_place(statement)
                if work.lane is None or work.lane not in access.levels or plan.pairs.obstacle(work):
                    return False
    return True


def _has_code(statement: Statement) -> bool:
    values = Values(Listing("x"), Nothing())
    try:
        if statement.accumulate:
            values.accumulate(statement.accumulate, statement.value, Register("f"), Work((), statement))
        else:
            values.number(statement.value, Work((), statement))
    except DojoError:
        return False
    return True

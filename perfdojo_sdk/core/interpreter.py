"""The meaning of a program, by running it: on any kind of values, under any schedule.

A program becomes one Python function made of its own integers and numbered names. What a value
*is* comes from a :class:`Domain` (floats, residues modulo a prime, error bounds ...); in which
order iterations of parallel scopes take their steps comes from a :class:`Schedule`. A program is
right only if no schedule changes its result.

Cells start unwritten and reading such a cell is an error, never a value: a local or an output
must be written first. A buffer used in one iteration of a parallel scope only is private to it
and starts unwritten in each; iterations of a sequential scope go on with the cells they find.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from itertools import count
from types import CodeType
from typing import Any, NamedTuple, NoReturn, TypeAlias, assert_never
from typing import Literal as OneOf

from perfdojo_sdk.core.dialect import CORE_DIALECT, Dialect
from perfdojo_sdk.core.domains import Domain, Value
from perfdojo_sdk.core.errors import ProgramError
from perfdojo_sdk.core.expression import (
    Access,
    AffineExpr,
    Cast,
    Expression,
    IndexValue,
    Literal,
    Operation,
    Quotient,
    Read,
)
from perfdojo_sdk.core.frozen import lazy
from perfdojo_sdk.core.geometry import common_depth
from perfdojo_sdk.core.lookups import Lookup, lookups_of
from perfdojo_sdk.core.operations import OPERATIONS
from perfdojo_sdk.core.program import Node, Path, Program, Scope, Statement
from perfdojo_sdk.core.storage import Buffer
from perfdojo_sdk.core.validate import violations
from perfdojo_sdk.core.words import number_of


class MalformedProgram(ProgramError):
    """The program breaks a rule of the language, or touches cells that it must not.

    PD-V001: an unwritten cell is read. PD-V002: an output is not completely written. A rule that
    can be checked without running keeps its own code (PD-P...).
    """


# -- schedules -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Schedule:
    """An order for the iterations of parallel scopes.

    ``forward``, ``reversed``: one iteration after the other. ``lockstep``: all iterations take one
    step each, round after round. ``random``: whichever the seed picks takes the next step. A step
    ends before a statement loads and again before it stores, so an accumulation is not atomic.
    """

    order: OneOf["forward", "reversed", "lockstep", "random"] = "forward"
    seed: int = 0

    @property
    def text(self) -> str:
        return f"random({self.seed})" if self.order == "random" else self.order

    @property
    def state(self) -> int:
        """The start of the generator of a random schedule."""
        return (self.seed + 1) * 0x9E3779B97F4A7C15 & _WORD


FORWARD = Schedule("forward")
_WORD = (1 << 64) - 1


def schedules(program: Program, dialect: Dialect, seed: int = 0) -> tuple[Schedule, ...]:
    """Every kind of schedule that can matter to the program; only ``forward`` if order is fixed."""
    suffixes = {suffix for node in program.body if isinstance(node, Scope) for suffix in node.suffixes}
    orders = set(map(dialect.order, suffixes))
    if "parallel" in orders:
        interleaved = (Schedule("lockstep"), Schedule("random", seed), Schedule("random", seed + 1))
        return (FORWARD, Schedule("reversed"), *interleaved)
    return (FORWARD, Schedule("reversed")) if "lockstep" in orders else (FORWARD,)


Task: TypeAlias = Generator[None, None, None]
_DONE = object()


def _round_robin(tasks: list[Task]) -> Task:
    while tasks:
        tasks = [task for task in tasks if next(task, _DONE) is not _DONE]
        yield


def _randomly(state: int) -> Callable[[list[Task]], Task]:
    """A choice by a linear congruential generator (Knuth's MMIX), which other engines can repeat."""

    def weave(tasks: list[Task]) -> Task:
        nonlocal state
        while tasks:
            state = (state * 6364136223846793005 + 1442695040888963407) & _WORD
            k = (state >> 33) % len(tasks)
            if next(tasks[k], _DONE) is _DONE:
                tasks[k] = tasks[-1]
                tasks.pop()
            yield

    return weave


def _backward(size: int) -> range:
    return range(size - 1, -1, -1)


# -- from a program to Python ----------------------------------------------------------------------


#: Python allows 20 nested loops; deeper ones continue in a function of their own.
LOOPS = 16


class _Private(dict[int, Any]):
    """One iteration's copy of a buffer: an iteration may touch few cells of many."""

    def __missing__(self, address: int) -> None:
        return None


class _Site(NamedTuple):
    """A checked load, for the words of its error."""

    access: Access
    statement: str


@dataclass(frozen=True)
class _Code:
    """A compiled program, and what a domain must put under the names that it uses."""

    source: str
    code: CodeType
    bindings: Mapping[str, Callable[[Domain[Any]], Any]]
    sites: tuple[_Site, ...]


_NOTHING_FOUND: Mapping[Lookup, str] = {}


def _python(index: AffineExpr, found: Mapping[Lookup, str] = _NOTHING_FOUND) -> str:
    """A form in Python; ``found``: the names that hold the values of its lookups."""
    terms = [f"i{level}*{c}" if c != 1 else f"i{level}" for level, c in index.terms]
    for quotient, c in index.quotients:
        if isinstance(quotient, Lookup):
            terms.append(f"{found[quotient]}*{c}")
            continue
        assert isinstance(quotient, Quotient)
        sign = "%" if quotient.remainder else "//"
        terms.append(f"({_python(quotient.dividend)}){sign}{quotient.divisor}*{c}")
    if index.constant or not terms:
        terms.append(str(index.constant))
    return "+".join(terms)


class _Emitter:
    """Writes the function ``run(order, weave, b0, b1, ...)``, one argument a shared buffer.

    Sequential form: parallel scopes are loops over ``order(size)``. Interleaved form: everything
    is a generator, an iteration of a parallel scope is a task that yields between its steps, and
    ``weave`` decides who goes on.
    """

    def __init__(self, program: Program, dialect: Dialect, interleaved: bool) -> None:
        self.program, self.dialect, self.interleaved = program, dialect, interleaved
        self.number = {b.name: k for k, b in enumerate(program.buffers)}
        self.lines: list[str] = []
        self.depth = self.loops = 0
        self.bindings: dict[str, Callable[[Domain[Any]], Any]] = {}
        self.sites: list[_Site] = []
        self.functions, self.temporaries = count(), count()
        self.owners = {b.name: owner(program, b, dialect) for b in program.buffers}
        self.exposed: frozenset[str] = frozenset()
        """Buffers that tasks around the current place share and write: loads and stores are steps."""

    def compile(self) -> _Code:
        shared = [f"b{self.number[name]}" for name, path in self.owners.items() if path is None]
        with self.function("run", ["order", "weave", *shared]):
            self.nodes(self.program.body, ())
        source = "\n".join(self.lines) + "\n"
        code = compile(source, f"<{self.program.name}>", "exec")
        return _Code(source, code, self.bindings, tuple(self.sites))

    # -- lines

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        self.line(head)
        self.depth += 1
        yield
        self.depth -= 1

    @contextmanager
    def loop(self, level: int, values: str) -> Iterator[None]:
        self.loops += 1
        with self.block(f"for i{level} in {values}:"):
            yield
        self.loops -= 1

    @contextmanager
    def function(self, name: str, parameters: list[str]) -> Iterator[None]:
        outside, self.loops = self.loops, 0
        with self.block(f"def {name}({', '.join(parameters)}):"):
            if self.interleaved:
                self.line("yield")
            yield
        self.loops = outside

    def bind(self, name: str, make: Callable[[Domain[Any]], Any]) -> str:
        self.bindings[name] = make
        return name

    def temporary(self, text: str) -> str:
        name = f"t{next(self.temporaries)}"
        self.line(f"{name} = {text}")
        return name

    # -- scopes

    def nodes(self, nodes: tuple[Node, ...], path: Path) -> None:
        for k, node in enumerate(nodes):
            if isinstance(node, Scope):
                self.scope(node, (*path, k))
            else:
                self.temporaries = count()
                self.statement(node)

    def scope(self, scope: Scope, path: Path) -> None:
        if self.loops >= LOOPS:
            name = f"part{next(self.functions)}"
            with self.function(name, []):
                self.scope(scope, path)
            self.line(f"yield from {name}()" if self.interleaved else f"{name}()")
            return
        level, order = len(path) - 1, self.dialect.order(scope.suffix)
        if order == "lockstep":
            statement = scope.body[0]
            assert isinstance(statement, Statement), "the language's rules were checked"
            self.temporaries = count()
            self.lockstep(statement, level, scope.size)
        elif order == "parallel":
            self.parallel(scope, path)
        else:
            with self.loop(level, f"range({scope.size})"):
                self.nodes(scope.body, path)

    def parallel(self, scope: Scope, path: Path) -> None:
        level = len(path) - 1
        if not self.interleaved:
            with self.loop(level, f"order({scope.size})"):
                self.iteration(scope, path)
            return
        outside = self.exposed
        written = [array for array, touches in scope.touches.items() if any(t.writes for t in touches)]
        self.exposed |= {self.program.buffer_of[array].name for array in written}
        name = f"task{next(self.functions)}"
        with self.function(name, [f"i{level}"]):
            self.iteration(scope, path)
        self.line(f"yield from weave([{name}(i) for i in range({scope.size})])")
        self.exposed = outside

    def iteration(self, scope: Scope, path: Path) -> None:
        """The body of a parallel scope, with fresh copies of what belongs to one iteration."""
        private = {name for name, owned in self.owners.items() if owned == path}
        for name in sorted(private):
            self.line(f"b{self.number[name]} = private()")
        outside, self.exposed = self.exposed, self.exposed - private
        self.nodes(scope.body, path)
        self.exposed = outside

    # -- statements

    def statement(self, statement: Statement) -> None:
        if statement.guard:
            with self.block(f"if {_condition(statement)}:"):
                self.unguarded(statement)
        else:
            self.unguarded(statement)

    def unguarded(self, statement: Statement) -> None:
        self.step_before_load(statement)
        value = self.value(statement.value, statement)
        if statement.accumulate:
            value = self.combined(statement, value)
        self.step_before_store(statement)
        self.store(statement, value)

    def lockstep(self, statement: Statement, level: int, size: int) -> None:
        """All lanes load, then all store: in no order, so reversed schedules store backward."""
        common = [form for form in statement.guard if level not in form.levels]
        if common:
            with self.block(f"if {_holds(common)}:"):
                self.all_lanes(statement, level, size)
        else:
            self.all_lanes(statement, level, size)

    def all_lanes(self, statement: Statement, level: int, size: int) -> None:
        address = self.buffer(statement.target).address(statement.target.subscripts)
        horizontal = statement.accumulate and level not in address.levels
        some = _holds([form for form in statement.guard if level in form.levels])
        self.step_before_load(statement)
        self.line("lanes = []")
        with self.loop(level, f"range({size})"):
            if some:
                with self.block(f"if not ({some}):"):
                    if not horizontal:
                        self.line("lanes.append(None)")
                    self.line("continue")
            value = self.value(statement.value, statement)
            if statement.accumulate and not horizontal:
                value = self.combined(statement, value)
            self.line(f"lanes.append({value})")
        if horizontal:
            with self.block("if lanes:"):
                function = self.operation(str(statement.accumulate), statement.dtype)
                value = self.combined(statement, self.temporary(f"reduce({function}, lanes)"))
                self.step_before_store(statement)
                self.store(statement, value)
        else:
            self.step_before_store(statement)
            with self.loop(level, f"order({size})"), self.block(f"if {some or 'lanes'}:"):
                self.store(statement, f"lanes[i{level}]")

    def step_before_load(self, statement: Statement) -> None:
        loads = [*statement.reads, *([statement.target] if statement.accumulate else [])]
        if self.interleaved and any(self.buffer(a).name in self.exposed for a in loads):
            self.line("yield")

    def step_before_store(self, statement: Statement) -> None:
        if self.interleaved and self.buffer(statement.target).name in self.exposed:
            self.line("yield")

    def combined(self, statement: Statement, value: str) -> str:
        old = self.load(statement.target, statement)
        function = self.operation(str(statement.accumulate), statement.dtype)
        return self.temporary(f"{function}({old}, {value})")

    def store(self, statement: Statement, value: str) -> None:
        buffer, address = self.cell(statement.target, statement)
        self.line(f"{buffer}[{address}] = {value}")

    def load(self, access: Access, statement: Statement) -> str:
        buffer, address = self.cell(access, statement)
        value = self.temporary(f"{buffer}[{address}]")
        if access.array not in self.program.inputs:
            self.line(f"if {value} is None: unwritten({len(self.sites)}, {address})")
            self.sites.append(_Site(access, statement.id))
        return value

    def buffer(self, access: Access) -> Buffer:
        return self.program.buffer_of[access.array]

    def cell(self, access: Access, statement: Statement) -> tuple[str, str]:
        buffer = self.buffer(access)
        found = {lookup: self.value(lookup.value, statement) for lookup in lookups_of((access,))}
        return f"b{self.number[buffer.name]}", _python(buffer.address(access.subscripts), found)

    def operation(self, name: str, dtype: str) -> str:
        return self.bind(f"{name}_{dtype}", lambda domain: domain.operation(name, dtype))

    def value(self, value: Expression, statement: Statement) -> str:
        """Emit what computes ``value``; the name that holds it."""
        match value:
            case Read():
                return self.load(value.access, statement)
            case Literal():
                constant, dtype = value.value, value.dtype
                name = f"literal{len(self.bindings)}"
                return self.bind(name, lambda domain: domain.literal(constant, dtype))
            case IndexValue():
                kind = value.dtype
                convert = self.bind(f"index_{kind}", lambda domain: domain.index_value(kind))
                return self.temporary(f"{convert}({_python(value.index)})")
            case Cast():
                source, target = value.argument.dtype, value.dtype
                convert = self.bind(f"cast_{source}_{target}", lambda domain: domain.cast(source, target))
                return self.temporary(f"{convert}({self.value(value.argument, statement)})")
            case Operation():
                arguments = [self.value(a, statement) for a in value.arguments]
                if OPERATIONS[value.name].chooses:
                    condition, one, other = arguments
                    return self.temporary(f"{one} if {condition} else {other}")
                function = self.operation(value.name, value.operand_dtype)
                return self.temporary(f"{function}({', '.join(arguments)})")
            case _:
                assert_never(value)


def _condition(statement: Statement) -> str:
    return _holds(statement.guard)


def _holds(forms: Sequence[AffineExpr]) -> str:
    return " and ".join([f"{_python(form)} >= 0" for form in forms])


def owner(program: Program, buffer: Buffer, dialect: Dialect) -> Path | None:
    """The parallel scope of which each iteration has a copy of the buffer; None: one for all."""
    occurrences = program.occurrences[buffer.name]
    if not occurrences or program.interface.intersection(buffer.arrays):
        return None
    path = occurrences[0].path
    scopes = program.ancestors(path)[: common_depth([o.path for o in occurrences])]
    return next(
        (path[: k + 1] for k in reversed(range(len(scopes))) if dialect.is_parallel(scopes[k].suffix)), None
    )


# -- running ---------------------------------------------------------------------------------------


class Interpreter:
    """A program made ready to run; compiled once, run in many domains under many schedules."""

    def __init__(
        self, program: Program, dialect: Dialect = CORE_DIALECT, before: Program | None = None
    ) -> None:
        """:class:`MalformedProgram` when the program breaks a rule of the dialect.

        ``before``: a program that breaks none; what both have in common is not looked at again.
        """
        broken = next(violations(program, dialect, before), None)
        if broken:
            raise MalformedProgram(broken.code, broken.what, hint=broken.hint)
        self.program, self.dialect = program, dialect

    @lazy
    def _shared(self) -> tuple[Buffer, ...]:
        return tuple(b for b in self.program.buffers if owner(self.program, b, self.dialect) is None)

    @lazy
    def _sequential(self) -> _Code:
        return _Emitter(self.program, self.dialect, interleaved=False).compile()

    @lazy
    def _interleaved(self) -> _Code:
        return _Emitter(self.program, self.dialect, interleaved=True).compile()

    def source(self, schedule: Schedule = FORWARD) -> str:
        """The Python text that runs under a schedule, for reading."""
        return self._code(schedule).source

    def _code(self, schedule: Schedule) -> _Code:
        return self._interleaved if schedule.order in ("lockstep", "random") else self._sequential

    def run(
        self,
        inputs: Mapping[str, Sequence[Value]],
        domain: Domain[Value],
        schedule: Schedule = FORWARD,
    ) -> dict[str, list[Value]]:
        """Run on flat row-major inputs; the outputs, flat and row-major. Elements of tables may be given as
        well, for a domain that has several values for one literal.

        :class:`MalformedProgram` when an unwritten cell is read or an output cell is not written,
        :class:`ProgramError` (PD-V004) when the inputs are not those of the interface.
        """
        code = self._code(schedule)
        storage = {buffer.name: self._cells(buffer, inputs, domain) for buffer in self._shared}
        run = self._function(code, domain)
        if schedule.order == "lockstep":
            _exhaust(run(range, _round_robin, *storage.values()))
        elif schedule.order == "random":
            _exhaust(run(range, _randomly(schedule.state), *storage.values()))
        else:
            run(range if schedule.order == "forward" else _backward, None, *storage.values())
        return {name: self._complete(name, storage) for name in self.program.outputs}

    def _cells(self, buffer: Buffer, inputs: Mapping[str, Sequence[Any]], domain: Domain[Any]) -> list[Any]:
        if buffer.arrays[0] not in self.program.inputs:
            return [None] * buffer.cells
        given = inputs.get(buffer.arrays[0])
        if given is None and buffer.values is not None:
            return [domain.literal(value, buffer.dtype) for value in buffer.values]
        if given is None or len(given) != buffer.cells:
            found = "nothing" if given is None else number_of(len(given), "values")
            what = f"input {buffer.arrays[0]} takes {number_of(buffer.cells, 'values')}, {found} given"
            raise ProgramError("PD-V004", what, hint="inputs are flat sequences, row-major")
        return list(given)

    def _function(self, code: _Code, domain: Domain[Any]) -> Callable[..., Any]:
        def unwritten(site: int, address: int) -> NoReturn:
            access, statement = code.sites[site]
            cell = self._cell_text(access.array, address)
            what = f"{statement} reads {cell} (as {access.text}) before it is written"
            raise MalformedProgram("PD-V001", what, hint="write every cell before the first read of it")

        names = {name: make(domain) for name, make in code.bindings.items()}
        names |= {"unwritten": unwritten, "private": _Private, "reduce": reduce}
        names["__builtins__"] = {"range": range}
        exec(code.code, names)
        function: Callable[..., Any] = names["run"]
        return function

    def _complete(self, output: str, storage: Mapping[str, Any]) -> list[Any]:
        values: list[Any] = storage[self.program.buffer_of[output].name]
        if None in values:
            cell = self._cell_text(output, values.index(None))
            raise MalformedProgram("PD-V002", f"output {cell} is never written")
        return values

    def _cell_text(self, array: str, address: int) -> str:
        buffer = self.program.buffer_of[array]
        sizes = [buffer.dimensions[k].size for k in buffer.materialised]
        return f"{array}[{','.join(map(str, unravel(address, sizes)))}]"


def _exhaust(task: Task) -> None:
    for _ in task:
        continue


def unravel(address: int, sizes: Sequence[int]) -> tuple[int, ...]:
    """The subscripts of a row-major cell number."""
    subscripts: list[int] = []
    for size in reversed(sizes):
        address, subscript = divmod(address, size)
        subscripts.append(subscript)
    return tuple(reversed(subscripts))


def interpret(
    program: Program,
    inputs: Mapping[str, Sequence[Value]],
    domain: Domain[Value],
    dialect: Dialect = CORE_DIALECT,
    schedule: Schedule = FORWARD,
) -> dict[str, list[Value]]:
    """Run a program once; see :meth:`Interpreter.run`."""
    return Interpreter(program, dialect).run(inputs, domain, schedule)

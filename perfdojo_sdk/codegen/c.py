"""One C emitter for all targets: plain C by default, with a method for each part that a target may emit
better.

``CEmitter`` turns a program into readable C: a loop for each scope, written-out copies for an
unrolled one, an outlined function for a parallel one. What a suffix, a location or a nest means
in C is decided in one method each (``visit_*``), and a plugin overrides that method.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import resources
from typing import assert_never

from perfdojo_sdk.codegen.c_values import (
    C_TYPES,
    c_cast,
    c_condition,
    c_constant,
    c_conversion,
    c_index,
    c_literal,
    c_operation,
    c_packed,
    c_type,
    in_f32,
    is_rounded,
)
from perfdojo_sdk.codegen.layout import plan, runs_parallel
from perfdojo_sdk.codegen.loops import has_scalar_loop, nothing_to_prove
from perfdojo_sdk.codegen.names import c_name, given_name
from perfdojo_sdk.codegen.operations import HEADER, SPELLINGS, header
from perfdojo_sdk.core.dialect import Dialect
from perfdojo_sdk.core.dtypes import (
    NARROW_DTYPES,
    ROUNDED_DTYPES,
    STORED_DTYPES,
    UNCOMPUTED_DTYPES,
    carrier,
    in_a_byte,
)
from perfdojo_sdk.core.errors import UnavailableError
from perfdojo_sdk.core.expression import (
    Access,
    AffineExpr,
    Cast,
    Expression,
    IndexValue,
    Literal,
    Operation,
    Read,
)
from perfdojo_sdk.core.geometry import index_values, lane_stride
from perfdojo_sdk.core.interface import MAX_THREADS, OTHER_PROCESSOR, TOO_MANY_THREADS, WORKSPACE_TOO_SMALL
from perfdojo_sdk.core.operations import INFIX
from perfdojo_sdk.core.program import Node, Path, Program, Scope, Statement
from perfdojo_sdk.core.storage import Buffer
from perfdojo_sdk.core.validate import beyond_storage
from perfdojo_sdk.hookspecs.types import ArraySpec, KernelSource

SUPPORT = ("pd_runtime.h", "pd_scalar.h", "pd_exp.h", "pd_math.h", "pd_types.h", "pd_stored.h", HEADER)
"""Headers of this package that every emitted kernel includes, directly or through another one."""


def support_text(name: str) -> str:
    """The text of a header of this package."""
    if name == HEADER:
        return header()
    return resources.files("perfdojo_sdk.codegen").joinpath("include", name).read_text(encoding="utf-8")


@dataclass(frozen=True)
class Point:
    """The emitter's place in the tree: the path, and the known values of iterators."""

    path: Path = ()
    constants: Mapping[int, int] = field(default_factory=dict)
    """Level -> value, for the iterators that are known where the code is emitted."""

    @property
    def level(self) -> int:
        return len(self.path)

    def inside(self, position: int) -> Point:
        return Point((*self.path, position), self.constants)

    def at(self, level: int, value: int) -> Point:
        return Point(self.path, {**self.constants, level: value})

    def fold(self, index: AffineExpr) -> AffineExpr:
        """``index`` with known iterators replaced by their values."""
        known = self.constants
        return index.substitute(lambda l: AffineExpr(known[l]) if l in known else AffineExpr.level(l))


@dataclass
class Function:
    """A C function while it grows."""

    owner: Path
    """Path of the parallel scope whose body this is; () for the kernel itself."""
    lines: list[str] = field(default_factory=list)
    indent: int = 1
    epilogue: list[str] = field(default_factory=list)
    """Lines at the end of the function, before it returns."""
    _closed: tuple[int, int, str] = (0, 0, "")
    """The last block under a condition: the number of lines at its end, its indentation, the condition."""

    def line(self, text: str) -> None:
        self.lines.append("    " * self.indent + text if text else "")

    def finally_once(self, text: str) -> None:
        if text not in self.epilogue:
            self.epilogue.append(text)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        self.line(f"{head} {{")
        self.indent += 1
        yield
        self.indent -= 1
        self.line("}")

    @contextmanager
    def where(self, condition: str) -> Iterator[None]:
        """A block under ``condition``. If the last block has just ended and had the same condition, continue
        it.

        For conditions that no line of the block can change.
        """
        if self._closed == (len(self.lines), self.indent, condition):
            del self.lines[-1]
        else:
            self.line(f"if ({condition}) {{")
        self.indent += 1
        yield
        self.indent -= 1
        self.line("}")
        self._closed = (len(self.lines), self.indent, condition)


class CEmitter:
    """Emits one program as one C kernel. Make a new one for each kernel; call :meth:`source`."""

    #: File names that the emitted code includes, in order.
    includes: tuple[str, ...] = ("pd_runtime.h", "pd_scalar.h")
    #: Lines at the start of every kernel, which may return a status on a wrong processor.
    prologue: tuple[str, ...] = ()
    #: Conditions that hold on every processor that has the kernel's instructions. If there are any, callers
    #: get a function without those instructions, which tests the conditions once, and returns status 2 if one
    #: does not hold. ``PD_ANYWHERE``, in a header of the target, says how such a function is compiled.
    requires: tuple[str, ...] = ()
    #: True if callers may give arrays of f16, bf16 and dtypes without operations, and kernels compute with
    #: them or convert them.
    computes_halves = True
    #: True if kernels hold the tables of their programs.
    keeps_tables = True

    def __init__(self, program: Program, symbol: str, dialect: Dialect) -> None:
        self.program, self.symbol, self.dialect = program, symbol, dialect
        self.layout = plan(program, dialect)
        self.outlined: list[str] = []
        self.function = Function(())
        known = "pd_runtime.h" in self.includes  # it defines the macro below
        vectors = known and has_scalar_loop(program, dialect) and nothing_to_prove(program)
        self.attribute = "PD_VECTOR_LOOPS\n" if vectors else ""
        """Text before each function."""
        self._check_dtypes()

    # -- the whole kernel ------------------------------------------------------------------------

    def source(self) -> KernelSource:
        """The kernel as source text; raises :class:`UnavailableError` for a dtype that does not compile
        yet."""
        kernel = self._kernel()
        query = self._workspace_query()
        parts = [self._comment(), self._include_lines(), self._asking(), query, *self.outlined, kernel]
        return KernelSource(
            self.symbol,
            self._specs(self.program.given),
            self._specs(self.program.outputs),
            "\n".join(part for part in parts if part),
            support=self.support(),
        )

    def support(self) -> Mapping[str, str]:
        """File name -> text of everything that the emitted code includes."""
        return {name: support_text(name) for name in SUPPORT}

    def _check_dtypes(self) -> None:
        for buffer in self.program.buffers:
            if buffer.dtype not in self.dtypes:
                raise UnavailableError(
                    "PD-C001",
                    f"{self.program.name}: {buffer.name} is {buffer.dtype}, which does not compile yet",
                    why=f"the generator knows {', '.join(self.dtypes)}",
                    hint="declare the buffer as f32 or f64",
                )
        for name in (*self.program.inputs, *self.program.outputs):
            if self.program.buffer_of[name].dtype == "tf32":
                raise UnavailableError(
                    "PD-C001",
                    f"{self.program.name}: {name} is tf32, which does not compile as part of an interface",
                    why="tf32 is a form of f32 for temporaries",
                    hint=f"declare {name} as f32: tf32(x) rounds to tf32, f32(x) reads it back",
                )
        odd = set() if self.computes_halves else uncomputed_dtypes(self.program)
        if odd:
            raise UnavailableError(
                "PD-C001",
                f"{self.program.name} uses {', '.join(sorted(odd))}, which does not compile yet",
                why="the generator has no conversions of it",
                hint="convert in a kernel for the host, and pass arrays of f32 or i32",
            )
        if self.program.tables and not self.keeps_tables:
            raise no_tables(self.program)
        for dtype in STORED_DTYPES if not self.computes_halves else ():
            if use := next(beyond_storage(self.program, dtype), ""):
                raise UnavailableError(
                    "PD-C001",
                    f"{self.program.name} uses {dtype} in a way that does not compile yet: {use}",
                    why=f"the generator keeps {dtype} in temporaries, converted from f32 and to it",
                    hint=f"compute in f32: f32(x) reads a value of {dtype}, {dtype}(x) rounds to it",
                )

    @property
    def dtypes(self) -> tuple[str, ...]:
        """The dtypes of buffers that compile."""
        left_out = () if self.computes_halves else ("f16",)
        return tuple(dtype for dtype in C_TYPES if dtype not in left_out)

    def _specs(self, names: tuple[str, ...]) -> tuple[ArraySpec, ...]:
        buffers = [self.program.buffer_of[name] for name in names]
        return tuple(map(ArraySpec.of, buffers))

    def _comment(self) -> str:
        text = self.program.text.rstrip().replace("*/", "* /").splitlines()
        return "\n".join(["/*", *(f" * {line}".rstrip() for line in text), " */"])

    def _include_lines(self) -> str:
        return "".join(f'#include "{name}"\n' for name in self.includes)

    def _workspace_query(self) -> str:
        shared, slot = self.layout.shared_bytes, self.layout.slot_bytes
        head = f"size_t {self.symbol}_workspace_bytes(int threads)"
        if not shared and not slot:
            return f"{head}\n{{\n    (void)threads;\n    return 0;\n}}\n"
        answer = f"pd_workspace_bytes({shared}, {slot}, threads)"
        if not self.requires:
            return f"{head}\n{{\n    return {answer};\n}}\n"
        here = f"static __attribute__((noinline)) size_t pd_bytes_here_{self.symbol}(int threads)"
        asked = f"pd_fits_{self.symbol}() ? pd_bytes_here_{self.symbol}(threads) : 0"
        return f"{here}\n{{\n    return {answer};\n}}\n\nPD_ANYWHERE {head}\n{{\n    return {asked};\n}}\n"

    def _asking(self) -> str:
        """A C function that tells whether this processor can run the kernel; empty if every one can."""
        if not self.requires:
            return ""
        conditions = "\n            && ".join(self.requires)
        return f"""PD_ANYWHERE static int pd_fits_{self.symbol}(void)
{{
    static int known; /* 0: not asked yet, 1: no, 2: yes */
    int fits = __atomic_load_n(&known, __ATOMIC_RELAXED);
    if (!fits) {{
        fits = 1 + ({conditions});
        __atomic_store_n(&known, fits, __ATOMIC_RELAXED);
    }}
    return fits - 1;
}}
"""

    def _kernel(self) -> str:
        declared = [self._declared_input(a) for a in self.program.given]
        declared += [f"{self._type(a)} *restrict {c_name(a)}" for a in self.program.outputs]
        declared += ["void *workspace", "size_t workspace_bytes", "int threads"]
        self.function.lines += ["    " + line for line in self.prologue]
        self._enter()
        self.declare_buffers()
        self.emit_nodes(self.program.body, Point())
        for line in self.function.epilogue:
            self.function.line(line)
        self.function.line("return 0;")
        taken = ", ".join(declared)
        head = f"int {self.symbol}({taken})"
        if not self.requires:
            return "\n".join([f"{self.attribute}{head}", "{", *self.function.lines, "}", ""])
        here = f"{self.attribute}static __attribute__((noinline)) int pd_here_{self.symbol}({taken})"
        names = [self.input_name(a) for a in self.program.given] + [c_name(a) for a in self.program.outputs]
        given = ", ".join([*names, "workspace", "workspace_bytes", "threads"])
        asked = f"    return pd_fits_{self.symbol}() ? pd_here_{self.symbol}({given}) : {OTHER_PROCESSOR};"
        lines = [here, "{", *self.function.lines, "}", "", f"PD_ANYWHERE {head}", "{", asked, "}", ""]
        return "\n".join(lines)

    def _declared_input(self, array: str) -> str:
        # The caller may pass one array as both, so that it is changed in place.
        restricted = "" if array in self.program.in_out else "restrict "
        return f"const {self._type(array)} *{restricted}{self.input_name(array)}"

    def input_name(self, array: str) -> str:
        """The C name of an input; of one that is an output too, of the array that the caller gives."""
        return given_name(array) if array in self.program.in_out else c_name(array)

    def _type(self, array: str) -> str:
        return c_type(self.program.buffer_of[array])

    def _enter(self) -> None:
        shared, slot = self.layout.shared_bytes, self.layout.slot_bytes
        f = self.function
        for table in filter(self.program.occurrences.__getitem__, self.program.tables):
            self._table(self.program.buffer_of[table])
        of_caller = self.program.read_only.difference(self.program.tables)
        unused = [c_name(a) for a in of_caller if not self.program.occurrences[a]]
        if not shared and not slot:
            unused += ["workspace", "workspace_bytes"]
        if unused:
            f.line(", ".join(f"(void){name}" for name in unused) + ";")
        f.line(f"if (threads > {MAX_THREADS})")
        f.line(f"    return {TOO_MANY_THREADS};")
        if shared or slot:
            f.line("char *pd_base;")
            f.line(f"threads = pd_enter(workspace, workspace_bytes, {shared}, {slot}, threads, &pd_base);")
            f.line("if (threads == 0)")
            f.line(f"    return {WORKSPACE_TOO_SMALL};")
        for array in self.program.outputs:
            if array in self.program.in_out:
                given, size = given_name(array), self.program.buffer_of[array].bytes
                f.line(f"if ({given} != {c_name(array)})")
                f.line(f"    __builtin_memcpy({c_name(array)}, {given}, {size});")

    def _table(self, buffer: Buffer) -> None:
        """Declare a table, if anything reads it."""
        assert buffer.values is not None
        if self.program.occurrences[buffer.name]:
            values = ", ".join([c_constant(value, buffer.dtype) for value in buffer.values])
            kind = C_TYPES[buffer.dtype]
            self.function.line(f"static const {kind} {c_name(buffer.name)}[{buffer.cells}] = {{{values}}};")

    # -- buffers ---------------------------------------------------------------------------------

    def declare_buffers(self) -> None:
        """Declare every buffer that lives in the current function."""
        for buffer in self.program.buffers:
            if self.layout.home.get(buffer.name) == self.function.owner:
                self.visit_declaration(buffer)

    def visit_declaration(self, buffer: Buffer) -> None:
        """Declare one local buffer, according to its location."""
        if buffer.name in self.layout.offset:
            base = "pd_slot" if self.function.owner else "pd_base"
            kind, offset = C_TYPES[buffer.dtype], self.layout.offset[buffer.name]
            place = f"({kind} *)({base} + {offset})"
            self.function.line(f"{kind} *restrict const {c_name(buffer.name)} = {place};")
        else:
            self.declare_array(buffer)

    def declare_array(self, buffer: Buffer) -> None:
        name = c_name(buffer.name)
        self.function.line(f"PD_ALIGNED {C_TYPES[buffer.dtype]} {name}[{buffer.cells}];")

    def flat(self, access: Access, point: Point) -> AffineExpr:
        """The access's distance from the buffer's start, in cells, with known iterators replaced."""
        buffer = self.program.buffer_of[access.array]
        return point.fold(buffer.address(access.subscripts))

    def cell(self, access: Access, point: Point) -> str:
        """The access as a C lvalue."""
        buffer = self.program.buffer_of[access.array]
        assert not buffer.packed, "an element that shares a byte is no lvalue"
        return f"{c_name(buffer.name)}[{self.subscript(self.flat(access, point), point)}]"

    def element(self, access: Access, point: Point) -> str:
        """The value of an access that is read: a cell, or an element that shares a byte with others."""
        buffer = self.program.buffer_of[access.array]
        if not buffer.packed:
            return self.cell(access, point)
        return c_packed(buffer.dtype, c_name(buffer.name), self.subscript(self.flat(access, point), point))

    def reads_packed(self, value: Expression) -> bool:
        """True if a value is an integer of a packed array."""
        if not isinstance(value, Read) or value.dtype not in NARROW_DTYPES:
            return False
        return self.program.buffer_of[value.access.array].packed

    def address(self, access: Access, point: Point) -> str:
        """The place of an access in memory: of the byte where elements share one."""
        buffer = self.program.buffer_of[access.array]
        if not buffer.packed:
            return f"&{self.cell(access, point)}"
        form, share = self.flat(access, point), in_a_byte(buffer.dtype)
        byte = divided(form, share)
        whole = self.subscript(form, point) if byte is None else self.subscript(byte, point)
        return f"&{c_name(buffer.name)}[{whole if byte is not None else f'({whole})/{share}'}]"

    def subscript(self, form: AffineExpr, point: Point) -> str:
        """A form as a C expression of type ``int64_t``, run-time indices included."""
        return c_index(form, lambda lookup: f"(int64_t){self.expression(lookup.value, point)}")

    # -- the tree --------------------------------------------------------------------------------

    def emit_nodes(self, nodes: tuple[Node, ...], point: Point) -> None:
        for position, node in enumerate(nodes):
            if isinstance(node, Scope):
                self.visit_scope(node, point.inside(position))
            else:
                with self.where_guard_holds(node, point) as reached:
                    if reached:
                        self.visit_statement(node, point)

    @contextmanager
    def where_guard_holds(
        self, statement: Statement, point: Point, lanes: int | None = None
    ) -> Iterator[bool]:
        """A block under the statement's condition, or no block if its value is known; yields false if it
        never holds. ``lanes``: without what the condition says about the iterator of this level."""
        forms = [point.fold(form) for form in statement.guard if lanes not in form.levels]
        open_forms = [form for form in forms if form.levels]
        if any(form.constant < 0 for form in forms if not form.levels):
            yield False
        elif open_forms:
            with self.function.where(c_condition(open_forms)):
                yield True
        else:
            yield True

    def visit_scope(self, scope: Scope, point: Point) -> None:
        """Emit a scope; ``point.path`` is its own path. The one place that looks at suffixes."""
        level = point.level - 1
        suffix = self.dialect.suffixes.get(scope.suffix)
        if self.visit_claimed(scope, point):
            return
        if scope.size == 1:
            self.emit_nodes(scope.body, point.at(level, 0))
        elif runs_parallel(scope, self.dialect) and not self.function.owner:
            self.visit_parallel(scope, point)
        elif suffix and suffix.order == "lockstep":
            (statement,) = scope.body
            assert isinstance(statement, Statement), "a lockstep scope holds one statement"
            self.visit_lockstep(scope, statement, point)
        elif suffix and (suffix.unrolled or suffix.around_groups):
            self.visit_unrolled(scope, point)
        else:
            self.visit_loop(scope, point)

    def visit_claimed(self, scope: Scope, point: Point) -> bool:
        """Emit a whole nest that a suffix claims (a matrix instruction, a stream); True when done."""
        return False

    def visit_loop(self, scope: Scope, point: Point) -> None:
        i = f"i{point.level - 1}"
        with self.function.block(f"for (int64_t {i} = 0; {i} < {scope.size}; {i}++)"):
            self.emit_nodes(scope.body, point)

    def visit_unrolled(self, scope: Scope, point: Point) -> None:
        for value in range(scope.size):
            self.emit_nodes(scope.body, point.at(point.level - 1, value))

    def visit_lockstep(self, scope: Scope, statement: Statement, point: Point) -> None:
        """Emit a statement so that all lanes load before any stores: through a small array, unless the order
        cannot matter."""
        target = self.program.buffer_of[statement.target.array]
        reads_target = any(self.program.buffer_of[r.array] is target for r in statement.reads)
        moving = lane_stride(target, statement.target.subscripts, point.level - 1) != 0
        if not reads_target or not moving:
            self.visit_loop(scope, point)
            return
        level, kind = point.level - 1, C_TYPES[statement.dtype]
        i, value = f"i{level}", self._combined(statement)
        lanes = f"for (int64_t {i} = 0; {i} < {scope.size}; {i}++)"
        varies = [point.fold(form) for form in statement.guard if level in form.levels]
        if varies:
            lanes += f" if ({c_condition(varies)})"
        with self.where_guard_holds(statement, point, level) as reached, self.function.block(""):
            if not reached:
                return
            self.function.line(f"{kind} pd_lanes[{scope.size}];")
            with self.function.block(lanes):
                self.function.line(f"pd_lanes[{i}] = {self.expression(value, point)};")
            with self.function.block(lanes):
                self.function.line(f"{self.cell(statement.target, point)} = pd_lanes[{i}];")

    @staticmethod
    def _combined(statement: Statement) -> Expression:
        """The new value of the target, the accumulation written out."""
        if statement.accumulate is None:
            return statement.value
        old = Read(statement.target, statement.dtype)
        arguments: tuple[Expression, ...] = (old, statement.value)
        if SPELLINGS[statement.accumulate].of_number:
            # With the new value first, the test for NaN is not part of the dependence from step to step.
            arguments = (statement.value, old)
        return Operation(statement.accumulate, arguments, statement.dtype)

    def visit_statement(self, statement: Statement, point: Point) -> None:
        """Emit a scalar statement."""
        target = self.cell(statement.target, point)
        if (infix := INFIX.get(str(statement.accumulate))) and statement.dtype in ("f32", "f64"):
            sign = infix[0]
            self.function.line(f"{target} {sign}= {self.expression(statement.value, point)};")
        else:
            self.function.line(f"{target} = {self.expression(self._combined(statement), point)};")

    # -- parallel scopes ---------------------------------------------------------------------------

    def visit_parallel(self, scope: Scope, point: Point) -> None:
        """Outline the body into a function that the runtime calls with blocks of iterations."""
        name = f"{self.symbol}_p{len(self.outlined)}"
        self.outlined.append("")
        position = len(self.outlined) - 1
        captured = self._captured(scope, point)
        caller, self.function = self.function, Function(point.path)
        body = self._outlined_body(scope, point, name, captured)
        self.function = caller
        slot = bool(self.layout.slot_bytes)
        fields = [f"    {kind} {field_name};" for kind, field_name in captured] + ["    char *slots;"] * slot
        self.outlined[position] = "\n".join([f"struct {name} {{", *fields, "};", "", body])
        values = [field_name for _, field_name in captured]
        values += [f"pd_base + {self.layout.shared_bytes}"] * slot
        with caller.block(""):
            caller.line(f"struct {name} pd_context = {{{', '.join(values)}}};")
            caller.line(f"pd_parallel_for({name}, &pd_context, {scope.size}, threads);")

    def _captured(self, scope: Scope, point: Point) -> list[tuple[str, str]]:
        """(type, name) of the buffers and iterators that the body takes from around it."""
        inside = scope.arrays
        fields: list[tuple[str, str]] = []
        for buffer in self.program.buffers:
            if inside.isdisjoint(buffer.arrays) or self.layout.home.get(buffer.name) == point.path:
                continue
            constant = "const " if buffer.name in self.program.read_only else ""
            fields.append((f"{constant}{c_type(buffer)} *", c_name(buffer.name)))
        used = levels_of(scope, self.program)
        outer = [l for l in range(point.level - 1) if l in used and l not in point.constants]
        return fields + [("int64_t", f"i{l}") for l in outer]

    def _outlined_body(self, scope: Scope, point: Point, name: str, captured: list[tuple[str, str]]) -> str:
        f, i = self.function, f"i{point.level - 1}"
        f.line(f"const struct {name} *const pd = context;")
        for kind, field_name in captured:
            restricted = kind.replace("*", "*restrict const ") if "*" in kind else f"const {kind}"
            f.line(f"{restricted}{'' if '*' in kind else ' '}{field_name} = pd->{field_name};")
        if any(owner == point.path and b in self.layout.offset for b, owner in self.layout.home.items()):
            f.line(f"char *const pd_slot = pd->slots + (size_t)thread * {self.layout.slot_bytes};")
        else:
            f.line("(void)thread;")
        self.declare_buffers()
        with f.block(f"for (int64_t {i} = begin; {i} < end; {i}++)"):
            self.emit_nodes(scope.body, point)
        for line in f.epilogue:
            f.line(line)
        head = f"{self.attribute}static void {name}(void *context, int64_t begin, int64_t end, int thread)"
        return "\n".join([head, "{", *f.lines, "}", ""])

    # -- expressions -------------------------------------------------------------------------------

    def expression(self, value: Expression, point: Point) -> str:
        """A scalar expression in C."""
        match value:
            case Literal():
                return c_literal(value)
            case IndexValue():
                counted = c_index(point.fold(value.index))
                if value.dtype in ROUNDED_DTYPES:
                    return f"pd_{value.dtype}_from_f64((double)({counted}))"
                return f"({C_TYPES[value.dtype]})({counted})"
            case Read():
                return self.element(value.access, point)
            case Cast() if self.reads_packed(value.argument):
                # What is taken out of a byte has no further bits.
                held = carrier(value.argument.dtype)
                return c_conversion(held, value.dtype, self.expression(value.argument, point))
            case Cast():
                return c_cast(value, self.expression(value.argument, point))
            case Operation() if is_rounded(value):
                return self.expression(in_f32(value), point)
            case Operation():
                return c_operation(value, [self.expression(a, point) for a in value.arguments])
            case _:
                assert_never(value)


def divided(form: AffineExpr, divisor: int) -> AffineExpr | None:
    """The form divided by a number; None unless each of its parts is a multiple of it."""
    parts = (*form.terms, *form.quotients)
    if form.constant % divisor or any(coefficient % divisor for _, coefficient in parts):
        return None
    terms = {level: coefficient // divisor for level, coefficient in form.terms}
    quotients = tuple([(quotient, coefficient // divisor) for quotient, coefficient in form.quotients])
    return AffineExpr.of(terms, form.constant // divisor, quotients)


def no_tables(program: Program) -> UnavailableError:
    """The refusal of a generator that has no tables."""
    names = ", ".join(program.tables)
    hint = "pass the elements as an input"
    why = "the generator has no constants of a program in memory"
    what = f"{program.name} has tables ({names}), which do not compile yet"
    return UnavailableError("PD-C001", what, why=why, hint=hint)


def uncomputed_dtypes(program: Program) -> set[str]:
    """The dtypes without operations of a program's buffers, and of what its statements convert to."""
    used = {buffer.dtype for buffer in program.buffers}
    for _, node in program.walk():
        if isinstance(node, Statement):
            used |= node.dtypes
    return used.intersection(UNCOMPUTED_DTYPES)


def levels_of(scope: Scope, program: Program) -> frozenset[int]:
    """The levels whose iterators appear in the C of a statement of the scope."""
    found: set[int] = set()
    for leaf in scope.leaves:
        for form in (*leaf.statement.guard, *[value.index for value in index_values(leaf.statement.value)]):
            found.update(form.levels)
        for access in (leaf.statement.target, *leaf.statement.reads):
            buffer = program.buffer_of[access.array]
            for k in buffer.materialised:
                found.update(access.subscripts[k].levels)
    return frozenset(found)

"""Kernels for a machine with grids, blocks and warps, in C++ with a dozen macros that a dialect defines.

``include/pd_gpu.h`` lists the macros (``PD_KERNEL``, ``pd_thread``, ``pd_sync_block`` ...); a plugin's header
defines them in its language, and ``pd_emulated.h`` for any processor. Launch sizes are constants of the
program, so the host's part is a list of launches.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from math import prod

from perfdojo_sdk.codegen.c import Function, Point, support_text
from perfdojo_sdk.codegen.c_values import C_TYPES, c_condition, c_type
from perfdojo_sdk.codegen.gpu.async_copies import WIDTHS, async_copies
from perfdojo_sdk.codegen.gpu.figures import launch_figures, written, written_workspace
from perfdojo_sdk.codegen.gpu.lanes import Lanes, lanes_at_once
from perfdojo_sdk.codegen.gpu.mapping import Launch, Machine, ProgramMap, Unit, map_program
from perfdojo_sdk.codegen.gpu.placement import Placed, dynamic_bytes, place
from perfdojo_sdk.codegen.gpu.synchronise import Exchange, Use
from perfdojo_sdk.codegen.gpu.tile_code import TileCode, emit_products
from perfdojo_sdk.codegen.gpu.tiles import TILES, TileNest
from perfdojo_sdk.codegen.gpu.widths import check_blocks, fit_32_bits
from perfdojo_sdk.codegen.gpu.writer import GpuWriter
from perfdojo_sdk.codegen.names import c_name
from perfdojo_sdk.codegen.operations import HEADER
from perfdojo_sdk.core.dialect import Dialect
from perfdojo_sdk.core.dtypes import ROUNDED_DTYPES
from perfdojo_sdk.core.expression import Access
from perfdojo_sdk.core.geometry import lane_stride
from perfdojo_sdk.core.program import Node, Program, Scope, Statement
from perfdojo_sdk.hookspecs.types import KernelSource

#: Headers of the SDK that every kernel includes; the first of all, ``pd_runtime.h``, is the dialect's.
GPU_SUPPORT = ("pd_gpu.h", "pd_scalar.h", "pd_exp.h", "pd_math.h", "pd_types.h", "pd_stored.h", HEADER)

#: Most iterations of a loop over a thread's own cells that the compiler is asked to unroll.
MOST_UNROLLED = 64


class GpuEmitter(GpuWriter):
    """Emits one program. ``runtime`` is the text of the dialect's ``pd_runtime.h``."""

    includes = ("pd_gpu.h",)

    def __init__(
        self,
        program: Program,
        symbol: str,
        dialect: Dialect,
        machine: Machine,
        runtime: str,
        language: str,
        wide: bool = False,
    ) -> None:
        """``wide``: iterators have 64 bits even where 32 would do."""
        super().__init__(program, symbol, dialect)
        self.mapped: ProgramMap = map_program(program, dialect, machine)
        check_blocks(program, self.mapped)
        self.placed, self.workspace = place(self.mapped)
        self.runtime, self.language = runtime, language
        self.unit: Unit = "block"
        self.launch: Launch = self.mapped.launches[0]
        self.copies = async_copies(self.mapped, self.placed)
        self.exchange = self._exchange("block")
        self.pending: list[Use] = []
        self.wide = wide or not fit_32_bits(self.mapped, self.placed)
        self.index = "int64_t" if self.wide else "int"
        self.loaded: Mapping[Access, str] = {}
        self.nest: TileNest | None = None

    # -- the whole ---------------------------------------------------------------------------------

    def source(self) -> KernelSource:
        kernels = [self._launched(launch, k) for k, launch in enumerate(self.mapped.launches)]
        space = written_workspace(self.workspace) + "\n"
        code = "\n".join([self._comment(), self._include_lines(), space, *kernels, self._host()])
        return KernelSource(
            self.symbol,
            self._specs(self.program.given),
            self._specs(self.program.outputs),
            code,
            self.language,
            self.support(),
        )

    def support(self) -> Mapping[str, str]:
        return {"pd_runtime.h": self.runtime} | {name: support_text(name) for name in GPU_SUPPORT}

    def _comment(self) -> str:
        lines = self.program.text.rstrip().replace("*/", "* /").splitlines()
        where = [p.words for p in self.placed.values() if p.kind != "array"]
        text = [*lines, *([""] if where else []), *where]
        return "\n".join(["/*", *(f" * {line}".rstrip() for line in text), " */"])

    # -- one launch --------------------------------------------------------------------------------

    def _arrays(self, launch: Launch) -> list[Placed]:
        """The arguments of a launch's kernel, in the order of the interface and the buffers."""
        node = self.program.node(launch.path)
        used = {self.program.buffer_of[a].name for a in node.arrays}
        interface = [self.program.buffer_of[a].name for a in (*self.program.inputs, *self.program.outputs)]
        order = dict.fromkeys([*interface, *(b.name for b in self.program.buffers)])
        return [self.placed[n] for n in order if n in used and self.placed[n].kind in ("array", "memory")]

    def _launched(self, launch: Launch, number: int) -> str:
        node = self.program.node(launch.path)
        self.launch, self.unit, self.function, self.pending = launch, "block", Function(()), []
        self.exchange = self._exchange("block")
        self.waits = any(leaf.statement.id in self.copies for leaf in node.leaves)
        f = self.function
        point = Point(launch.path)
        mine = [placed for placed in self.placed.values() if placed.launch == launch]
        dynamic = dynamic_bytes(self.mapped, self.placed, launch)
        if dynamic:
            f.line("PD_DYNAMIC();")
        for table in self.program.tables:
            if table in node.arrays:
                self._table(self.program.buffer_of[table])
        at = 0
        for placed in mine:
            self._declare(placed, at if dynamic else None)
            at += placed.shared_bytes
        stride = 1
        for level, size in reversed(list(zip(launch.grid_levels, launch.grid_sizes, strict=True))):
            if size > 1:
                f.line(f"const {self.index} i{level} = {_part('pd_block', stride, size, launch.blocks)};")
            else:
                point = point.at(level, 0)
            stride *= size
        if launch.grid_levels:
            inner = node
            for _ in launch.grid_levels[1:]:
                assert isinstance(inner, Scope)
                inner, point = inner.body[0], point.inside(0)
            assert isinstance(inner, Scope)
            self.emit_nodes(inner.body, point)
        else:
            self._emit_at((node,), Point(launch.path[:-1]), launch.path[-1])
        name = f"{self.symbol}_k{number}"
        given = tuple(f"@{p.offset}" if p.kind == "memory" else p.buffer.name for p in self._arrays(launch))
        figures = written(
            launch_figures(self.mapped, self.placed, launch, name, given, 4 if self.index == "int" else 8)
        )
        exchanged = self._read_and_written(node)
        parameters = [self._parameter(p, exchanged) for p in self._arrays(launch)]
        parameters += [f"{self.index} i{level}" for level in launch.host_levels]
        head = f"PD_KERNEL({name}, {launch.threads})({', '.join(parameters)})"
        return "\n".join([figures, head, "{", *f.lines, "}", ""])

    def _read_and_written(self, node: Node) -> frozenset[str]:
        """Buffers through which the threads of a launch may exchange values."""
        statements = [leaf.statement for leaf in node.leaves]
        written = {self.program.buffer_of[s.target.array].name for s in statements}
        read = {self.program.buffer_of[r.array].name for s in statements for r in s.reads}
        read |= {self.program.buffer_of[s.target.array].name for s in statements if s.accumulate}
        return frozenset(written & read)

    def _parameter(self, placed: Placed, exchanged: frozenset[str]) -> str:
        name = placed.buffer.name
        other = "PD_EXCHANGED" if name in exchanged else "PD_ARRAY"
        word = "PD_INPUT" if name in self.program.read_only else other
        cells = placed.bytes if placed.buffer.packed else placed.all_cells
        return f"{word}({c_type(placed.buffer)}, {cells}, {c_name(placed.buffer.name)})"

    def _declare(self, placed: Placed, dynamic: int | None) -> None:
        """``dynamic``: where it starts in the shared memory that the launch asks for; None where none is."""
        kind, name = C_TYPES[placed.buffer.dtype], c_name(placed.buffer.name)
        if placed.kind == "shared" and dynamic is not None:
            self.function.line(f"PD_SHARED_AT({kind}, {placed.all_cells}, {name}, {dynamic});")
        elif placed.kind == "shared":
            self.function.line(f"PD_SHARED({kind}, {placed.all_cells}, {name});")
        elif placed.kind in ("local", "uniform"):
            size = f"[{placed.cells}]" if placed.cells > 1 else ""
            self.function.line(f"{kind} {name}{size};")
        elif placed.kind == "tile":
            word = TILES[placed.buffer.dtype]
            self.function.line(f"{word} {name}{f'[{placed.tiles}]' if placed.tiles > 1 else ''};")

    # -- nodes, by the unit that runs them ---------------------------------------------------------

    def emit_nodes(self, nodes: tuple[Node, ...], point: Point) -> None:
        self._emit_at(nodes, point, 0)

    def _emit_at(self, nodes: tuple[Node, ...], point: Point, first: int) -> None:
        """Emit ``nodes``, which stand from position ``first`` on, with the barriers between them."""
        if self.unit == "thread" or self.launch.threads == 1:
            for position, node in enumerate(nodes, first):
                self._emit(node, point, position)
            return
        position, end = first, first + len(nodes)
        while position < end:
            node = nodes[position - first]
            count = 0
            while position + count < end and self._joins(
                nodes[position - first + count], point, position, count
            ):
                count += 1
            if count:
                with self.block(f"if ({self._first_thread()})"), self._as("thread"):
                    for k in range(position, position + count):
                        self._emit(nodes[k - first], point, k)
                position += count
                continue
            later = self.exchange.uses(node, (*point.path, position))
            self._guard(later, point.level)
            self._emit(node, point, position)
            if not self._is_loop(node, (*point.path, position)):
                self.pending += later
            position += 1

    def _joins(self, node: Node, point: Point, position: int, count: int) -> bool:
        """True if one thread runs the node after the ``count`` that it runs already; notes its uses."""
        path = (*point.path, position + count)
        if not self._alone(node, path):
            return False
        later = self.exchange.uses(node, path)
        if self.exchange.conflict(self.pending, later, point.level):
            if count:
                return False
            self._barrier()
        self.pending += later
        return True

    def _is_loop(self, node: Node, path: tuple[int, ...]) -> bool:
        """True if the unit's threads exchange values between the node's own nodes."""
        return isinstance(node, Scope) and self.mapped.role[path] in ("loop", "vector")

    def _emit(self, node: Node, point: Point, position: int) -> None:
        if isinstance(node, Scope):
            self.visit_scope(node, point.inside(position))
        else:
            with self.where_guard_holds(node, point) as reached:
                if reached:
                    self.visit_statement(node, point)

    def _first_thread(self) -> str:
        return "pd_thread == 0" if self.unit == "block" else "pd_lane == 0"

    def _alone(self, node: Node, path: tuple[int, ...]) -> bool:
        """True if one thread runs the whole node."""
        if isinstance(node, Statement):
            return self.place_of(node.target).kind != "uniform"
        if self.mapped.role[path] in ("threads", "warps", "lanes", "shuffle", "tile"):
            return False
        return all(self._alone(child, (*path, k)) for k, child in enumerate(node.body))

    @contextmanager
    def _as(self, unit: Unit) -> Iterator[None]:
        before, self.unit = self.unit, unit
        yield
        self.unit = before

    @contextmanager
    def _within_warp(self) -> Iterator[None]:
        """The nodes of one warp: exchanges between its lanes, apart from those of the block."""
        before = self.unit, self.exchange, self.pending
        self.unit, self.pending = "warp", []
        self.exchange = self._exchange("warp")
        yield
        self.unit, self.exchange, self.pending = before

    def _guard(self, later: list[Use], common: int) -> None:
        """A barrier, if uses to come need one after those before."""
        if self.exchange.conflict(self.pending, later, common):
            self._barrier()

    def _exchange(self, unit: str) -> Exchange:
        return Exchange(self.mapped, self.placed, unit, self.copies)

    def _barrier(self) -> None:
        if self.waits:
            self.function.line("pd_copies_done();")
        self.function.line(f"pd_sync_{self.unit}();")
        self.pending = []

    # -- scopes ------------------------------------------------------------------------------------

    def visit_scope(self, scope: Scope, point: Point) -> None:
        role, level = self.mapped.role[point.path], point.level - 1
        if role == "tile":
            self.nest = self.mapped.tiles[point.path]
            TileCode(self, self.nest, point).emit()
        elif scope.size == 1 and role not in ("threads", "warps"):
            self._inside(scope, point.at(level, 0))
        elif role in ("threads", "warps"):
            self._visit_threads(scope, point, role)
        elif role == "lanes":
            self._visit_lanes(scope, point)
        elif role == "shuffle":
            self._visit_shuffle(scope, point)
        elif role == "vector":
            self._visit_vector(scope, point)
        else:
            self.visit_loop(scope, point)

    def _inside(self, scope: Scope, point: Point) -> None:
        self._emit_at(scope.body, point, 0)

    def visit_loop(self, scope: Scope, point: Point) -> None:
        """Emit a loop in the current unit, with barriers for values that one iteration's threads leave to the
        next one's."""
        if self.unit == "warp" and emit_products(self, scope, point):
            self.pending += self.exchange.uses(scope, point.path)
            return
        level, together = point.level - 1, self.unit != "thread" and self.launch.threads > 1
        before, self.pending = self.pending, []
        every = self.exchange.uses(scope, point.path) if together else []

        def turn(point: Point) -> None:
            self._inside(scope, point)
            self._guard(every, level)

        suffix = self.dialect.suffixes.get(scope.suffix)
        if suffix and suffix.unrolled:
            for value in range(scope.size):
                turn(point.at(level, value))
        else:
            if scope.size <= MOST_UNROLLED and self._names_cells(scope, level):
                self.function.line("PD_UNROLL")
            with self.block(f"for ({self.index} i{level} = 0; i{level} < {scope.size}; i{level}++)"):
                turn(point)
        self.pending += before

    def _names_cells(self, scope: Scope, level: int) -> bool:
        """True if the iterator chooses between a thread's own cells, which are registers if it is known."""
        for leaf in scope.leaves:
            for access in (leaf.statement.target, *leaf.statement.reads):
                placed = self.place_of(access)
                named = placed.kind == "tile" or self.unit == "thread" and placed.kind in ("local", "uniform")
                if named and level in placed.address(access).levels:
                    return True
        return False

    def _visit_threads(self, scope: Scope, point: Point, role: str) -> None:
        """Hand the iterations of a chain of scopes to the threads or the warps of the block."""
        levels, sizes, inner = [point.level - 1], [scope.size], point
        while self.mapped.role.get((*inner.path, 0)) == role and self._is_chain(scope):
            scope, inner = scope.body[0], inner.inside(0)  # type: ignore[assignment]
            levels.append(inner.level - 1)
            sizes.append(scope.size)
        total = prod(sizes)
        per = self.mapped.machine.warp if role == "warps" else 1
        runners = self.launch.threads // per
        number, count = ("pd_warp", runners) if role == "warps" else ("pd_thread", runners)
        i = "pd_turn"
        if total > count:
            head = f"for ({self.index} {i} = {number}; {i} < {total}; {i} += {count})"
        else:
            i, head = number, f"if ({number} < {total})" if total < count else ""
        with self.block(head), ExitStack() as stack:
            stride = 1
            for level, size in reversed(list(zip(levels, sizes, strict=True))):
                if size > 1:
                    stack.enter_context(self.iterator(level, _part(i, stride, size, total)))
                else:
                    inner = inner.at(level, 0)
                stride *= size
            stack.enter_context(self._within_warp() if role == "warps" else self._as("thread"))
            self._inside(scope, inner)
            if role == "warps" and total > count:
                self.function.line("pd_sync_warp();")

    @staticmethod
    def _is_chain(scope: Scope) -> bool:
        return len(scope.body) == 1 and isinstance(scope.body[0], Scope)

    def _visit_lanes(self, scope: Scope, point: Point) -> None:
        warp, i = self.mapped.machine.warp, f"i{point.level - 1}"
        number = "pd_lane" if self.unit == "warp" else "pd_thread"
        if scope.size > warp:
            start = f"for ({self.index} {i} = {number}; {i} < {scope.size}; {i} += {warp})"
            first = f"if (pd_thread < {warp})" if self.unit == "block" else ""
            with self.block(first), self.block(start), self._as("thread"):
                self._inside(scope, point)
            return
        all_lanes = self.unit == "warp" or self.launch.threads == warp
        head = "" if scope.size == warp and all_lanes else f"if ({number} < {scope.size})"
        with self.block(head), self._as("thread"), self.iterator(point.level - 1, number):
            self._inside(scope, point)

    # -- statements --------------------------------------------------------------------------------

    def _visit_shuffle(self, scope: Scope, point: Point) -> None:
        """One statement in the lanes of a warp; an accumulation into one cell goes through registers."""
        (statement,) = scope.body
        assert isinstance(statement, Statement)
        level, warp = point.level - 1, self.mapped.machine.warp
        target = self.place_of(statement.target)
        moves = lane_stride(target.buffer, statement.target.subscripts, level) != 0
        everybody = target.kind == "uniform" and not moves
        only = self.unit == "block" and not everybody and self.launch.threads > warp
        with (
            self.block(f"if (pd_thread < {warp})" if only else ""),
            self.where_guard_holds(statement, point, level) as ok,
        ):
            if not ok:
                return
            with self.iterator(level, "pd_lane"):
                if moves or statement.accumulate is None:
                    self._lanes_apart(scope, statement, point)
                else:
                    self._lanes_together(scope, statement, point, everybody)

    def _active(self, scope: Scope, statement: Statement, point: Point) -> str:
        """The condition in C that a lane of a warp takes part in a statement; empty if each one does."""
        forms = [point.fold(form) for form in statement.guard if point.level - 1 in form.levels]
        some = [f"pd_lane < {scope.size}"] if scope.size < self.mapped.machine.warp else []
        return " && ".join([*some, *([c_condition(forms)] if forms else [])])

    def _lanes_together(self, scope: Scope, statement: Statement, point: Point, everybody: bool) -> None:
        """All lanes' values combined in registers; ``everybody`` keeps the result, or else the first lane."""
        f, kind = self.function, C_TYPES[statement.dtype]
        value, operation = (
            self.expression(statement.value, point),
            f"{statement.accumulate}_{statement.dtype}",
        )
        if active := self._active(scope, statement, point):
            f.line(f"{kind} pd_value = pd_identity_{operation}();")
            f.line(f"if ({active})")
            f.line(f"    pd_value = {value};")
            value = "pd_value"
        f.line(f"const {kind} pd_total = pd_warp_{operation}({value});")
        old = self.cell(statement.target, point)
        combined = self._accumulated(statement, old, "pd_total")
        whose = [] if everybody else ["pd_lane == 0"]
        if any(point.level - 1 in form.levels for form in statement.guard):
            # Where no lane takes part, the cell is not even read.
            f.line(f"const uint8_t pd_any = pd_warp_max_bool({active});")
            whose.insert(0, "pd_any")
        if whose:
            f.line(f"if ({' && '.join(whose)})")
        f.line(f"{'    ' if whose else ''}{old} = {combined};")

    @staticmethod
    def _accumulated(statement: Statement, old: str, value: str) -> str:
        if statement.dtype in ("f32", "f64") and statement.accumulate in ("add", "mul"):
            return f"{old} {'+' if statement.accumulate == 'add' else '*'} {value}"
        # pd_gpu.h has the functions of dtypes that are computed in f32.
        return f"pd_{statement.accumulate}_{statement.dtype}({value}, {old})"

    def _lanes_apart(self, scope: Scope, statement: Statement, point: Point) -> None:
        """Emit a statement in which each lane has its own cell; if one reads another's, all load before any
        stores."""
        f, target = self.function, self.program.buffer_of[statement.target.array]
        exchanges = any(self.program.buffer_of[r.array] is target for r in statement.reads)
        value = self.expression(self._combined(statement), point)
        cell = self.cell(statement.target, point)
        active = self._active(scope, statement, point)
        guard = f"if ({active})" if active else ""
        if not exchanges:
            with self.block(guard):
                f.line(f"{cell} = {value};")
            return
        zero = "{0}" if statement.dtype in ROUNDED_DTYPES else "0"
        f.line(f"{C_TYPES[statement.dtype]} pd_value = {zero};")
        with self.block(guard):
            f.line(f"pd_value = {value};")
        f.line("pd_sync_warp();")
        with self.block(guard):
            f.line(f"{cell} = pd_value;")

    # -- vectors of one thread ---------------------------------------------------------------------

    def _visit_vector(self, scope: Scope, point: Point) -> None:
        (statement,) = scope.body
        assert isinstance(statement, Statement)
        level = point.level - 1
        with self.where_guard_holds(statement, point, level) as reached:
            if not reached:
                return
            buffer = self.program.buffer_of[statement.target.array]
            itself = any(self.program.buffer_of[read.array] is buffer for read in statement.reads)
            moves = lane_stride(buffer, statement.target.subscripts, level) != 0
            # What lanes read of the target they read before any of them stores.
            width = scope.size if itself and moves else self._width(statement, scope.size)
            for start in range(0, scope.size, width):
                Lanes(self, statement, point, range(start, min(start + width, scope.size))).emit()

    def _width(self, statement: Statement, lanes: int) -> int:
        """The number of neighbouring lanes that are emitted together."""
        if statement.id in self.copies and lanes % WIDTHS[statement.dtype] == 0:
            return WIDTHS[statement.dtype]
        return lanes_at_once(statement.dtype)


def _part(number: str, stride: int, size: int, total: int) -> str:
    """The iterator of a scope of ``size`` when ``number`` counts all iterations of its chain."""
    text = number if stride == 1 else f"{number} / {stride}"
    return text if stride * size == total else f"{text} % {size}"

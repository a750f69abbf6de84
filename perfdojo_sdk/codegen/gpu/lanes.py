"""A few neighbouring iterations in one thread: one access moves all of their cells if these lie together."""

from __future__ import annotations

from collections.abc import Mapping

from perfdojo_sdk.codegen.c import Point
from perfdojo_sdk.codegen.c_values import C_TYPES, c_index
from perfdojo_sdk.codegen.gpu.async_copies import WIDTHS, WORDS
from perfdojo_sdk.codegen.gpu.writer import GpuWriter
from perfdojo_sdk.codegen.names import c_name
from perfdojo_sdk.core.dtypes import BYTES
from perfdojo_sdk.core.expression import Access, Expression
from perfdojo_sdk.core.geometry import lane_stride
from perfdojo_sdk.core.program import Statement

#: Bytes of the widest access to memory.
WIDEST = 16
#: dtype -> the function that stores four neighbours; dtypes without one are not moved four at a time.
FOUR = {
    "f32": "pd_store4",
    "f16": "pd_store4_f16",
    "bf16": "pd_store4_bf16",
    "tf32": "pd_store4_tf32",
}


def lanes_at_once(dtype: str) -> int:
    """The number of neighbouring lanes of a statement of this dtype that are emitted together."""
    return 4 if dtype in FOUR else WIDEST // BYTES[dtype]


class Lanes:
    """A few neighbouring iterations of a lockstep scope in one thread: all load, then all store.

    Where cells are known to lie together at a multiple of the widest access, they are moved at once.
    """

    def __init__(self, emitter: GpuWriter, statement: Statement, point: Point, lanes: range) -> None:
        self.emitter, self.statement, self.lanes = emitter, statement, lanes
        self.level = point.level - 1
        self.at = [point.at(self.level, lane) for lane in lanes]
        self.loaded: dict[Access, str] = {}

    def emit(self) -> None:
        e, s = self.emitter, self.statement
        placed = e.place_of(s.target)
        one_cell = lane_stride(placed.buffer, s.target.subscripts, self.level) == 0
        value = s.value if one_cell else e._combined(s)
        if any(self.level in form.levels for form in s.guard):
            with e.block(""):
                self._some(value, one_cell)
            return
        if s.id in e.copies:
            wide = len(self.lanes) == WIDTHS[s.dtype] and all(map(self._together, (s.target, *s.reads)))
            if wide:
                e.copy_later(s, self.at[0], wide=True)
                return
            if s.dtype in WORDS:
                for point in self.at:
                    e.copy_later(s, point, wide=False)
                return
        with e.block(""):
            for access in dict.fromkeys(value.reads):
                if self._wide(access) and self.emitter.place_of(access).buffer.dtype == "f32":
                    self._load(access)
            if one_cell:
                for lane, point in enumerate(self.at):
                    with e.reading(self._lane(lane)):
                        e.visit_statement(s, point)
                return
            store = self._wide(s.target)
            texts = [self._text(value, k) for k in range(len(self.at))]
            kind = C_TYPES[s.dtype]
            if store:
                index = c_index(e.flat(s.target, self.at[0]))
                word = FOUR[s.dtype]
                e.function.line(f"{word}({c_name(placed.buffer.name)}, {index}, {', '.join(texts)});")
                return
            for k, text in enumerate(texts):
                e.function.line(f"const {kind} pd_v{k} = {text};")
            for k, point in enumerate(self.at):
                e.function.line(f"{e.cell(s.target, point)} = pd_v{k};")

    def _some(self, value: Expression, one_cell: bool) -> None:
        """Emit lanes of which each has a condition of its own."""
        e, s = self.emitter, self.statement
        kind, later = C_TYPES[s.dtype], one_cell or s.id in e.copies
        for k, point in enumerate(self.at if not later else ()):
            e.function.line(f"{kind} pd_v{k};")
            with e.where_guard_holds(s, point) as reached:
                if reached:
                    e.function.line(f"pd_v{k} = {e.expression(value, point)};")
        for k, point in enumerate(self.at):
            with e.where_guard_holds(s, point) as reached:
                if reached and later:
                    e.visit_statement(s, point)
                elif reached:
                    e.function.line(f"{e.cell(s.target, point)} = pd_v{k};")

    def _wide(self, access: Access) -> bool:
        """True if these lanes of an access are one aligned access to memory."""
        width = lanes_at_once(self.statement.dtype)
        if len(self.lanes) != width or width != 4 or self.emitter.place_of(access).buffer.dtype not in FOUR:
            return False
        return self._together(access)

    def _together(self, access: Access) -> bool:
        """True if these lanes' cells lie side by side in memory, the first at a multiple of their number."""
        placed, width = self.emitter.place_of(access), len(self.lanes)
        if placed.kind not in ("array", "memory", "shared"):
            return False
        if placed.buffer.packed or lane_stride(placed.buffer, access.subscripts, self.level) != 1:
            return False
        start = self.emitter.flat(access, self.at[0])
        parts = [*start.terms, *start.quotients]
        return start.constant % width == 0 and all(coefficient % width == 0 for _, coefficient in parts)

    def _load(self, access: Access) -> None:
        name = f"pd_l{len(self.loaded)}"
        array = c_name(self.emitter.place_of(access).buffer.name)
        index = self.emitter.subscript(self.emitter.flat(access, self.at[0]), self.at[0])
        self.emitter.function.line(f"const pd_f32x4 {name} = pd_load4({array}, {index});")
        self.loaded[access] = name

    def _text(self, value: Expression, lane: int) -> str:
        e = self.emitter
        with e.reading(self._lane(lane)):
            return e.expression(value, self.at[lane])

    def _lane(self, lane: int) -> Mapping[Access, str]:
        """The loaded variables as one lane reads them."""
        return {access: f"{name}.{'xyzw'[lane]}" for access, name in self.loaded.items()}

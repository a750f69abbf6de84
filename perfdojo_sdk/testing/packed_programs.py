"""Random programs over packed arrays: lanes that start on a byte or inside of one, tails, conditions.

Their results do not depend on the order of lanes, to the bit: sums are of small whole numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

import numpy as np

from perfdojo_sdk.core.dialect import Dialect
from perfdojo_sdk.core.dtypes import NARROW_DTYPES, PACKED_DTYPES, bits, carrier, integer_bounds
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.core.text import parse
from perfdojo_sdk.graph.packed_arrays import as_passed
from perfdojo_sdk.hookspecs.types import KernelSource

Array = np.ndarray[Any, Any]

#: Dtypes that integers of less than a byte are converted to, and codes.
_OF_INTEGERS = ("f64", "f32", "f16", "bf16", "i64", "i32", "i16", "i8", "u32", "u8")
_OF_CODES = ("f64", "f32", "f16", "bf16")
ROWS = 3


def packed_program(rng: Random, dialect: Dialect, statements: int = 6, rows: str = "") -> Program:
    """A program whose statements read one packed array; ``rows`` is the suffix of the loops over rows."""
    return _Writer(rng, dialect, rows).program(statements)


def drawn(program: Program, rng: Random) -> dict[str, Array]:
    """Inputs with an element in each byte; the further bits of those of less than a byte are any."""
    found = {}
    for name in program.inputs:
        buffer = program.buffer_of[name]
        numbers = np.random.default_rng(rng.getrandbits(32))
        if buffer.packed:
            found[name] = numbers.integers(0, 256, buffer.shape, np.uint8).view(
                f"{carrier(buffer.dtype)[0]}1"
            )
        elif buffer.dtype == "i32":
            found[name] = numbers.integers(-2, ROWS + 2, buffer.shape, np.int32)
        else:
            found[name] = numbers.integers(-4, 5, buffer.shape).astype(np.float32)
    return found


def meant(program: Program, given: Mapping[str, Array]) -> dict[str, list[int | float]]:
    """The elements of the inputs as the interpreter takes them."""
    found = {}
    for name, array in given.items():
        buffer = program.buffer_of[name]
        values = array.ravel().tolist()
        if buffer.packed:
            low, size = integer_bounds(buffer.dtype)[0], 1 << bits(buffer.dtype)
            values = [(value - low) % size + low for value in values]
        found[name] = values
    return found


def passed(source: KernelSource, given: Mapping[str, Array], rest: int = 0xA5) -> dict[str, Any]:
    """The inputs as a kernel takes them; any bits follow the last element."""
    return {spec.name: as_passed(given[spec.name], spec, rest) for spec in source.inputs}


class _Writer:
    def __init__(self, rng: Random, dialect: Dialect, rows: str) -> None:
        self.rng, self.dialect = rng, dialect
        self.rows = f"{ROWS}:{rows}" if rows else str(ROWS)
        self.dtype = rng.choice(PACKED_DTYPES)
        self.columns = rng.choice((5, 8, 12, 16, 19, 24, 33, 64))
        self.declared: dict[str, str] = {}
        self.lines: list[str] = []

    def program(self, statements: int) -> Program:
        for number in range(statements):
            self.rng.choice((self.copies, self.converts, self.converts, self.sums, self.turned))(f"y{number}")
        inputs = {
            "w": f"packed {self.dtype} [{ROWS},{self.columns}]",
            "k": f"i32 [{ROWS}]",
            "x": f"f32 [{self.columns}]",
        }
        arrays = [f"{name} {kind} heap" for name, kind in {**inputs, **self.declared}.items()]
        head = f"kernel packed(w, k, x) -> {', '.join(self.declared)}"
        return parse("\n".join([head, *arrays, "", *self.lines, ""]), self.dialect)

    def most(self, dtype: str) -> int:
        """Lanes of a statement that converts the array to a dtype."""
        counted = self.dialect.lanes
        return min(counted.get(dtype, 1), counted.get(self.dtype, 1)) if counted else 0

    def split(self, dtype: str) -> list[tuple[str, str, int]]:
        """Scopes over columns, the column in them, and how many these are: lanes and a rest, or a loop."""
        most = self.most(dtype)
        if most < 2 or self.rng.random() < 0.2:
            suffix = self.rng.choice(("", "", ":u" if self.columns <= self.dialect.max_unroll else ""))
            return [(f"{self.columns}{suffix}", "{1}", self.columns)]
        width = self.rng.choice([most, most, max(2, most // 2), max(2, most - 1)])
        width = min(width, self.columns)
        count, rest = divmod(self.columns, width)
        parts = [(f"{count} {width}:v", f"{{1}}*{width}+{{2}}", count * width)]
        if rest > 1:
            parts.append((f"{rest}:v", f"{{1}}+{count * width}", rest))
        elif rest:
            parts.append(("1", f"{{1}}+{count * width}", 1))
        return parts

    def read(self, column: str) -> str:
        """An element of the array in a row, and in a column or one of its neighbours."""
        row = self.rng.choice(("{0}", "{0}", "2-{0}", "1", f"clamp(k[{{0}}], 0, {ROWS - 1})"))
        return f"w[{row},{column}]"

    def copies(self, name: str) -> None:
        self.declared[name] = f"{self.dtype} [{ROWS},{self.columns}]"
        for scopes, column, _ in self.split(self.dtype):
            self.lines.append(f"{self.rows} {scopes} {name}[{{0}},{column}] = {self.read(column)}")

    def converts(self, name: str) -> None:
        dtype = self.rng.choice(_OF_INTEGERS if self.dtype in NARROW_DTYPES else _OF_CODES)
        self.declared[name] = f"{dtype} [{ROWS},{self.columns}]"
        least = self.rng.randint(0, 4)
        condition = self.rng.choice(("", "", f" if {{0}}+COLUMN >= {least}", " if COLUMN < 5+{0}"))
        if condition:
            self.lines.append(f"{self.rows} {self.columns} {name}[{{0}},{{1}}] = 0")
        for scopes, column, _ in self.split(dtype):
            value = self.read(column)
            if self.rng.random() < 0.2:
                value = f"w[{{0}},{self.columns - 1}]"  # the same in all lanes
            where = condition.replace("COLUMN", column)
            self.lines.append(f"{self.rows} {scopes} {name}[{{0}},{column}] = {dtype}({value}){where}")

    def turned(self, name: str) -> None:
        """A transposed read, or one of every second column; its lanes gather where a target has such."""
        gathers = "a" in self.dialect.suffixes and self.most("f32") >= ROWS and self.rng.random() < 0.7
        lanes = ":a" if gathers else ""
        if self.rng.random() < 0.5:
            self.declared[name] = f"f32 [{self.columns},{ROWS}]"
            self.lines.append(f"{self.columns} {ROWS}{lanes} {name}[{{0}},{{1}}] = f32(w[{{1}},{{0}}])")
            return
        self.declared[name] = f"f32 [{ROWS},3]"
        first = self.rng.randint(0, self.columns - 5)
        self.lines.append(f"{self.rows} 3{lanes} {name}[{{0}},{{1}}] = f32(w[{{0}},{{1}}*2+{first}])")

    def sums(self, name: str) -> None:
        self.declared[name] = f"f32 [{ROWS}]"
        self.lines.append(f"{self.rows} {name}[{{0}}] = 0")
        for scopes, column, _ in self.split("f32"):
            self.lines.append(f"{self.rows} {scopes} {name}[{{0}}] += f32({self.read(column)}) * x[{column}]")

"""Parse the textual form of a program. Printing is each node's own ``text``; parse(p.text) == p.

The text is hostile until parsed: sizes are bounded, names are identifiers, every subscript is
proved to stay inside its array, and a local array is written before it is read.

    kernel scale(x) -> y          the interface
    x f32 [8,16] heap             buffers: name dtype [dims] location -> arrays
                                  or: name packed dtype [dims] location
                                  or: name table dtype [dims] = {values}
    y f32 [8,16] heap

    8 16 y[{0},{1}] = x[{0},{1}] * 2

A scope with several children ends its line; the children follow, one bar deeper.
"""

from __future__ import annotations

import re
from math import prod
from pathlib import Path
from typing import NoReturn

from perfdojo_sdk.core.dialect import CORE_DIALECT, Dialect
from perfdojo_sdk.core.dtypes import (
    COMPUTED_DTYPES,
    DTYPES,
    FLOAT_DTYPES,
    INTEGER_DTYPES,
    PACKED_DTYPES,
    integer_bounds,
    largest,
)
from perfdojo_sdk.core.errors import ProgramError, closest
from perfdojo_sdk.core.expression import MAX_DEPTH
from perfdojo_sdk.core.program import Node, Program, Scope, Statement
from perfdojo_sdk.core.slips import DECLARED, INTERFACE, OTHER_DTYPES
from perfdojo_sdk.core.statement_text import StatementParser
from perfdojo_sdk.core.storage import PACKED, TABLE, Buffer, Dimension
from perfdojo_sdk.core.table_files import TableFile, TableFileError, elements
from perfdojo_sdk.core.tokens import Line
from perfdojo_sdk.core.validate import Violation, violations
from perfdojo_sdk.core.words import number_of

MAX_CHARACTERS = 1_000_000
MAX_LINES = 10_000
MAX_CELLS = 2**40
#: Most elements of a table; they stand in the text.
MAX_TABLE = 1 << 16


def parse(text: str, dialect: Dialect = CORE_DIALECT, file: str = "", beside: Path | None = None) -> Program:
    """Read a program; :class:`ProgramError` with line and column says what is wrong.

    ``beside``: the folder of the text, where files of its tables stand.
    """
    if len(text) > MAX_CHARACTERS:
        raise ProgramError(
            "PD-P003", f"the text has more than {MAX_CHARACTERS} characters", hint="a kernel is a page"
        )
    sources = text.splitlines()
    if len(sources) > MAX_LINES:
        raise ProgramError("PD-P003", f"the text has more than {MAX_LINES} lines", hint="a kernel is a page")
    lines = [line for n, s in enumerate(sources, 1) if (line := Line(n, s, file)).tokens]
    if not lines:
        raise ProgramError(
            "PD-P005",
            "the text holds no program",
            hint="start with: kernel NAME(x) -> y; `show KERNEL` prints a whole program",
        )
    name, inputs, outputs = _header(lines[0])
    split = 1
    while split < len(lines) and _is_declaration(lines[split]):
        split += 1
    buffers = _declarations(lines[1:split], dialect, beside)
    tree = _Tree(buffers, dialect)
    body = tree.parse(lines[split:], lines[0])
    tables = tuple([buffer.name for buffer in buffers if buffer.values is not None])
    program = Program(name, (*inputs, *tables), outputs, buffers, body)
    for violation in violations(program, dialect):
        _report(violation, lines[0], tree)
    return program


def _report(violation: Violation, header: Line, tree: _Tree) -> NoReturn:
    line = tree.line_of.get(violation.node, header)
    column = 1
    if violation.name:
        found = re.search(rf"\b{violation.name}\b", line.source)
        column = found.start() + 1 if found else 1
    line.fail(violation.code, violation.what, column, len(violation.name) or 1, violation.hint)


def _header(line: Line) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    if not line.accept("kernel"):
        line.fail("PD-P005", "the first line must be the interface", hint=INTERFACE)
    # A kernel may be called add: its name never stands in an expression.
    name = line.name("a kernel's name", reserved=frozenset({"kernel"}))
    line.expect("(", INTERFACE)
    inputs: list[str] = []
    if not line.at(")"):
        inputs.append(line.name("an input", hint=INTERFACE))
        while line.accept(","):
            inputs.append(line.name("an input", hint=INTERFACE))
    line.expect(")", INTERFACE)
    line.expect("->", INTERFACE)
    outputs = [line.name("an output", hint=INTERFACE)]
    while line.accept(","):
        outputs.append(line.name("an output", hint=INTERFACE))
    line.end(INTERFACE)
    return name, tuple(inputs), tuple(outputs)


def _is_declaration(line: Line) -> bool:
    first, second = line.peek(), line.peek(1)
    return bool(first and second and first.kind == "name" and second.kind == "name")


def _declarations(lines: list[Line], dialect: Dialect, beside: Path | None) -> tuple[Buffer, ...]:
    buffers: list[Buffer] = []
    taken: set[str] = set()
    for line in lines:
        name = line.name("a buffer's name")
        table = line.at(TABLE)
        packed = line.at(PACKED)
        line.next += table or packed
        dtype = line.take("name", "a dtype").text
        if dtype not in DTYPES:
            line.next -= 1
            line.fail("PD-P006", f"unknown dtype {dtype!r}", hint=_dtype_hint(dtype))
        dimensions = _dimensions(line, dialect)
        if table:
            if taken.intersection((name,)):
                line.fail("PD-P007", f"{name!r} is declared twice", 1, len(line.source.rstrip()))
            values, source = _values(line, dtype, dimensions, beside)
            taken.add(name)
            where = dialect.default_location
            buffers.append(Buffer(name, dtype, dimensions, where, (name,), values, source))
            continue
        if packed and dtype not in PACKED_DTYPES:
            what = f"an element of {dtype} fills its bytes"
            hint = f"leave out {PACKED}; arrays of {', '.join(PACKED_DTYPES)} may be packed"
            line.fail("PD-P019", what, 1, len(line.source.rstrip()), hint)
        location = line.take("name", "a location", "heap, as of every input and output").text
        if location not in dialect.locations:
            line.next -= 1
            hint = closest(location, list(dialect.locations))
            line.fail("PD-P006", f"unknown location {location!r}", hint=hint)
        arrays = [name]
        if line.accept("->"):
            arrays = [line.name("an array")]
            while line.accept(","):
                arrays.append(line.name("an array"))
        line.end()
        for each in {name, *arrays}:
            if each in taken:
                line.fail("PD-P007", f"{each!r} is declared twice", 1, len(line.source.rstrip()))
        if len(set(arrays)) < len(arrays):
            line.fail("PD-P007", "an array is listed twice", 1, len(line.source.rstrip()))
        taken |= {name, *arrays}
        buffers.append(Buffer(name, dtype, dimensions, location, tuple(arrays), packed=packed))
    return tuple(buffers)


def _dtype_hint(dtype: str) -> str:
    """The advice on a dtype that is none here."""
    if dtype.lower() in DTYPES:
        return f"write {dtype.lower()}"
    return f"write {OTHER_DTYPES[dtype]}" if dtype in OTHER_DTYPES else closest(dtype, list(DTYPES))


def _values(
    line: Line, dtype: str, dimensions: tuple[Dimension, ...], beside: Path | None
) -> tuple[tuple[float | int, ...], TableFile | None]:
    """The elements of a table: those between braces, or those of a file."""
    if dtype not in COMPUTED_DTYPES or dtype == "tf32":
        known = [each for each in COMPUTED_DTYPES if each != "tf32"]
        line.fail("PD-P018", f"a table of {dtype}", 1, hint=f"its dtype is one of {', '.join(known)}")
    cells = prod(dimension.size for dimension in dimensions)
    line.expect("=")
    token = line.peek()
    if token is not None and token.kind == "string":
        return _filed(line, dtype, cells, beside)
    if cells > MAX_TABLE:
        what = f"a table has at most {MAX_TABLE} elements in its text, this one {cells}"
        line.fail("PD-P018", what, 1, hint="name a file that holds them, or make the array an input")
    line.expect("{")
    values = [_value(line, dtype)]
    while line.accept(",") and len(values) < cells:
        values.append(_value(line, dtype))
    if len(values) < cells or not line.at("}"):
        line.fail(
            "PD-P018", f"the table has {cells} elements, and {'fewer' if line.at('}') else 'more'} are given"
        )
    line.expect("}")
    line.end()
    return tuple(values), None


def _filed(
    line: Line, dtype: str, cells: int, beside: Path | None
) -> tuple[tuple[float | int, ...], TableFile]:
    """The elements of a table that stand in a file, and the file."""
    token = line.take("string", "the name of a file")
    line.expect("sha256")
    digest = line.take("string", "a digest in quotes")
    line.end()
    file = TableFile(token.text.strip('"'), digest.text.strip('"'))
    try:
        return elements(file, dtype, cells, beside), file
    except TableFileError as error:
        at = digest if error.of_digest else token
        line.fail("PD-P018", str(error), at.column, len(at.text), error.hint, error.why)


def _value(line: Line, dtype: str) -> float | int:
    sign = -1 if line.accept("-") else 1
    token = line.take("number", "an element of the table")
    if dtype in FLOAT_DTYPES:
        number = sign * float(token.text)
        if abs(number) > largest(dtype):
            line.fail(
                "PD-P018", f"{token.text} is beyond the range of {dtype}", token.column, len(token.text)
            )
        return number
    low, high = integer_bounds(dtype)
    whole = sign * int(token.text) if token.text.isdigit() and len(token.text) < 30 else high + 1
    if not low <= whole <= high:
        line.fail("PD-P018", f"{token.text} is no value of {dtype}", token.column, len(token.text))
    return whole


def _dimensions(line: Line, dialect: Dialect) -> tuple[Dimension, ...]:
    line.expect("[", DECLARED)
    dimensions: list[Dimension] = []
    cells = 1
    while not line.accept("]"):
        if dimensions:
            line.expect(",")
        size = line.integer("a dimension's size", "sizes are numbers: a kernel is for fixed sizes")
        if size < 1:
            line.next -= 1
            line.fail("PD-P003", "a dimension has at least one element")
        suffix = ""
        if line.accept(":"):
            suffix = line.take("name", "a dimension suffix").text
            if suffix not in dialect.dimension_suffixes:
                line.next -= 1
                hint = closest(suffix, list(dialect.dimension_suffixes))
                line.fail("PD-P006", f"unknown dimension suffix {suffix!r}", hint=hint)
        dimensions.append(Dimension(size, suffix))
        cells *= size
    if cells > MAX_CELLS or len(dimensions) > MAX_DEPTH:
        line.fail("PD-P003", f"a buffer has at most {MAX_CELLS} elements in {MAX_DEPTH} dimensions", 1)
    return tuple(dimensions)


def _ends(values: tuple[float | int, ...]) -> tuple[int, int]:
    """The least and the largest element of a table of integers."""
    return int(min(values)), int(max(values))


class _Tree:
    """The indented part. Ids number scopes (``s0`` ...) and statements (``c0`` ...) in order."""

    def __init__(self, buffers: tuple[Buffer, ...], dialect: Dialect) -> None:
        self.dialect = dialect
        self.dtype_of = {array: b.dtype for b in buffers for array in b.arrays}
        self.ranges = {b.name: _ends(b.values) for b in buffers if b.values and b.dtype in INTEGER_DTYPES}
        self.rank_of = {array: len(b.dimensions) for b in buffers for array in b.arrays}
        self.line_of: dict[str, Line] = {}
        self.scopes = self.statements = 0

    def parse(self, lines: list[Line], header: Line) -> tuple[Node, ...]:
        if not lines:
            header.fail("PD-P005", "the kernel has no statements", 1, len(header.source.rstrip()))
        body, rest = self._children(lines, 0, 0)
        if rest:
            why = "a bar stands for a line of scopes above it, which has no statement of its own"
            hint = "leave out bars, or write the scopes on a line above"
            rest[0].fail("PD-P008", "this line is deeper than any scope above it", why=why, hint=hint)
        return body

    def _children(self, lines: list[Line], bars: int, level: int) -> tuple[tuple[Node, ...], list[Line]]:
        """The lines that start with exactly ``bars`` bars, up to the first with fewer."""
        nodes: list[Node] = []
        while lines and self._bars(lines[0]) == bars:
            node, lines = self._node(lines, bars, level)
            nodes.append(node)
        return tuple(nodes), lines

    @staticmethod
    def _bars(line: Line) -> int:
        count = 0
        while count < len(line.tokens) and line.tokens[count].text == "|":
            count += 1
        return count

    def _node(self, lines: list[Line], bars: int, level: int) -> tuple[Node, list[Line]]:
        line, rest = lines[0], lines[1:]
        line.next = bars
        chain: list[tuple[int, str, str]] = []
        while (token := line.peek()) and token.kind == "number":
            size = line.integer("a scope's size")
            if size < 1:
                line.next -= 1
                line.fail("PD-P003", "a scope has at least one iteration")
            suffix = self._suffix(line) if line.accept(":") else ""
            chain.append((size, suffix, f"s{self.scopes}"))
            self.line_of[f"s{self.scopes}"] = line
            self.scopes += 1
        if level + len(chain) > MAX_DEPTH:
            line.fail("PD-P003", f"scopes nest deeper than {MAX_DEPTH}", 1)
        body: tuple[Node, ...]
        if line.peek():
            body = (self._statement(line, level + len(chain)),)
            line.end()
            if rest and self._bars(rest[0]) > bars:
                why = "the scopes before a statement hold that one alone"
                hint = (
                    "write the scopes that both are in on a line of their own, and below it both after a bar"
                )
                rest[0].fail("PD-P008", "a line that ends in a statement has no children", why=why, hint=hint)
        elif not chain:
            line.fail("PD-P002", "expected a scope or a statement")
        else:
            body, rest = self._children(rest, bars + 1, level + len(chain))
            if not body:
                self._report_empty(line, rest, bars)
        for size, suffix, identifier in reversed(chain):
            body = (Scope(size, body, suffix, identifier),)
        if len(body) != 1:  # pragma: no cover - chain is not empty here
            raise AssertionError("a line yields one node")
        return body[0], rest

    def _report_empty(self, line: Line, rest: list[Line], bars: int) -> NoReturn:
        """The error of a scope without children; it says what the line below it lacks."""
        what, before = "a scope without a statement", "| " * (bars + 1)
        if not rest:
            line.fail(
                "PD-P008", what, why="the text ends here", hint=f"below it write {before}y[{{0}}] = ..."
            )
        child, found = rest[0], self._bars(rest[0])
        child.next = found
        token = child.peek()
        hint = f"write {before}{child.source[token.column - 1 :].strip()[:60]}" if token else ""
        if child.source[:1].isspace() and found <= bars:
            what = "this line is indented by blanks, and so stands in no scope"
            child.fail("PD-P008", what, why="a bar says that a line stands in the scope above it", hint=hint)
        needs = f"a line in the scope has {number_of(bars + 1, 'bars')}"
        if found > bars:
            child.fail("PD-P008", f"this line has {number_of(found, 'bars')}", 1, why=needs, hint=hint)
        line.fail("PD-P008", what, why=f"{needs}, the one below it {found}", hint=hint)

    def _suffix(self, line: Line) -> str:
        suffix = line.take("name", "a scope suffix").text
        if suffix not in self.dialect.suffixes:
            line.next -= 1
            hint = closest(suffix, list(self.dialect.suffixes))
            line.fail("PD-P006", f"unknown scope suffix {suffix!r}", hint=hint)
        return suffix

    def _statement(self, line: Line, depth: int) -> Statement:
        identifier = f"c{self.statements}"
        self.statements += 1
        self.line_of[identifier] = line
        return StatementParser(line, depth, self.dtype_of, self.rank_of, self.ranges).statement(identifier)

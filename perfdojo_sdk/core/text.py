"""Parse the textual form of a program. Printing is each node's own ``text``; parse(p.text) == p.

The text is hostile until parsed: sizes are bounded, names are identifiers, every subscript is
proved to stay inside its array, and a local array is written before it is read.

    kernel scale(x) -> y          the interface
    x f32 [8,16] heap             buffers: name dtype [dims] location -> arrays
    y f32 [8,16] heap

    8 16 y[{0},{1}] = x[{0},{1}] * 2

A scope with several children ends its line; the children follow, one bar deeper.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple, NoReturn

from perfdojo_sdk.core.dialect import CORE_DIALECT, Dialect
from perfdojo_sdk.core.errors import Place, ProgramError, closest
from perfdojo_sdk.core.expression import (
    ACCUMULATIONS,
    DTYPES,
    FLOAT_DTYPES,
    MAX_DEPTH,
    OPERATIONS,
    Access,
    Cast,
    Expression,
    Index,
    IndexValue,
    Literal,
    Operation,
    Read,
)
from perfdojo_sdk.core.program import Buffer, Dimension, Node, Program, Scope, Statement
from perfdojo_sdk.core.validate import Violation, violations

MAX_CHARACTERS = 1_000_000
MAX_LINES = 10_000
MAX_NAME = 64
#: Most operations one inside the other; a sum of n terms is n - 1 of them. Everything that walks an
#: expression may call itself that often.
MAX_HEIGHT = 128
MAX_NUMBER = 2**31 - 1
MAX_CELLS = 2**40

#: Words that an expression or declaration gives a meaning of its own.
RESERVED = frozenset(OPERATIONS) | frozenset(DTYPES) | {"inf", "index", "kernel"}

_TOKEN = re.compile(
    r"(?P<space>[ \t]+)"
    r"|(?P<number>\d+(?:\.\d*)?(?:[eE][+-]?\d+)?)"
    r"|(?P<accumulate>[A-Za-z_]\w*=(?!=)|[+*]=)"
    r"|(?P<name>[A-Za-z_]\w*)"
    r"|(?P<sign>->|[-+*/=()\[\]{},:|])",
    re.ASCII,
)
_SIGN_TO_ACCUMULATION = {sign: name for name, sign in ACCUMULATIONS.items()}


class Token(NamedTuple):
    kind: str
    text: str
    column: int


class _Line:
    """The tokens of one line, read from left to right."""

    def __init__(self, number: int, source: str, file: str) -> None:
        self.number, self.source, self.file = number, source, file
        self.tokens = list(self._scan(source.partition("#")[0]))
        self.next = 0
        self.depth = 0

    def _scan(self, text: str) -> Iterator[Token]:
        position = 0
        while position < len(text):
            match = _TOKEN.match(text, position)
            if not match:
                self.fail("PD-P001", f"unexpected character {text[position]!r}", position + 1)
            if match.lastgroup != "space":
                assert match.lastgroup
                yield Token(match.lastgroup, match.group(), position + 1)
            position = match.end()

    def fail(
        self, code: str, what: str, column: int | None = None, length: int = 1, hint: str = ""
    ) -> NoReturn:
        if column is None:
            token = self.peek()
            column = token.column if token else len(self.source.rstrip()) + 1
            length = len(token.text) if token else 1
        raise ProgramError(
            code, what, place=Place(self.number, column, self.source, length, self.file), hint=hint
        )

    def peek(self, ahead: int = 0) -> Token | None:
        at = self.next + ahead
        return self.tokens[at] if at < len(self.tokens) else None

    def at(self, text: str) -> bool:
        token = self.peek()
        return token is not None and token.text == text

    def accept(self, text: str) -> bool:
        if self.at(text):
            self.next += 1
            return True
        return False

    def expect(self, text: str) -> None:
        if not self.accept(text):
            found = self.peek()
            self.fail("PD-P002", f"expected {text!r}, found {found.text if found else 'end of line'!r}")

    def take(self, kind: str, what: str) -> Token:
        token = self.peek()
        if token is None or token.kind != kind:
            self.fail("PD-P002", f"expected {what}, found {token.text if token else 'end of line'!r}")
        self.next += 1
        return token

    def integer(self, what: str) -> int:
        token = self.take("number", what)
        if not token.text.isdigit():
            self.fail("PD-P002", f"expected {what}, found {token.text!r}", token.column, len(token.text))
        value = int(token.text) if len(token.text) < 12 else MAX_NUMBER + 1
        if value > MAX_NUMBER:
            self.fail("PD-P003", f"{what} exceeds {MAX_NUMBER}", token.column, len(token.text))
        return value

    def name(self, what: str, reserved: frozenset[str] = RESERVED) -> str:
        token = self.take("name", what)
        if len(token.text) > MAX_NAME:
            too_long = f"{what} is longer than {MAX_NAME} characters"
            self.fail("PD-P003", too_long, token.column, len(token.text))
        if token.text in reserved:
            taken = f"{token.text!r} is reserved and cannot be {what}"
            self.fail("PD-P004", taken, token.column, len(token.text))
        return token.text

    def end(self) -> None:
        token = self.peek()
        if token:
            self.fail("PD-P002", f"unexpected {token.text!r} after the end of the line's meaning")

    def nested(self) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            self.fail("PD-P003", f"expression nests deeper than {MAX_DEPTH}")


def parse(text: str, dialect: Dialect = CORE_DIALECT, file: str = "") -> Program:
    """Read a program; :class:`ProgramError` with line and column says what is wrong."""
    if len(text) > MAX_CHARACTERS:
        raise ProgramError(
            "PD-P003", f"the text has more than {MAX_CHARACTERS} characters", hint="a kernel is a page"
        )
    sources = text.splitlines()
    if len(sources) > MAX_LINES:
        raise ProgramError("PD-P003", f"the text has more than {MAX_LINES} lines", hint="a kernel is a page")
    lines = [line for n, s in enumerate(sources, 1) if (line := _Line(n, s, file)).tokens]
    if not lines:
        raise ProgramError("PD-P005", "the text holds no program", hint="start with: kernel NAME(x) -> y")
    name, inputs, outputs = _header(lines[0])
    split = 1
    while split < len(lines) and _is_declaration(lines[split]):
        split += 1
    buffers = _declarations(lines[1:split], dialect)
    tree = _Tree(buffers, dialect)
    body = tree.parse(lines[split:], lines[0])
    program = Program(name, inputs, outputs, buffers, body)
    for violation in violations(program, dialect):
        _report(violation, lines[0], tree)
    return program


def _report(violation: Violation, header: _Line, tree: _Tree) -> NoReturn:
    line = tree.line_of.get(violation.node, header)
    column = 1
    if violation.name:
        found = re.search(rf"\b{violation.name}\b", line.source)
        column = found.start() + 1 if found else 1
    line.fail(violation.code, violation.what, column, len(violation.name) or 1, violation.hint)


def _header(line: _Line) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    if not line.accept("kernel"):
        line.fail("PD-P005", "the first line must be the interface", hint="kernel NAME(x, ...) -> y, ...")
    # A kernel may be called add: its name never stands in an expression.
    name = line.name("a kernel's name", reserved=frozenset({"kernel"}))
    line.expect("(")
    inputs: list[str] = []
    if not line.at(")"):
        inputs.append(line.name("an input"))
        while line.accept(","):
            inputs.append(line.name("an input"))
    line.expect(")")
    line.expect("->")
    outputs = [line.name("an output")]
    while line.accept(","):
        outputs.append(line.name("an output"))
    line.end()
    return name, tuple(inputs), tuple(outputs)


def _is_declaration(line: _Line) -> bool:
    first, second = line.peek(), line.peek(1)
    return bool(first and second and first.kind == "name" and second.kind == "name")


def _declarations(lines: list[_Line], dialect: Dialect) -> tuple[Buffer, ...]:
    buffers: list[Buffer] = []
    taken: set[str] = set()
    for line in lines:
        name = line.name("a buffer's name")
        dtype = line.take("name", "a dtype").text
        if dtype not in DTYPES:
            line.next -= 1
            line.fail("PD-P006", f"unknown dtype {dtype!r}", hint=closest(dtype, list(DTYPES)))
        dimensions = _dimensions(line, dialect)
        location = line.take("name", "a location").text
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
        buffers.append(Buffer(name, dtype, dimensions, location, tuple(arrays)))
    return tuple(buffers)


def _dimensions(line: _Line, dialect: Dialect) -> tuple[Dimension, ...]:
    line.expect("[")
    dimensions: list[Dimension] = []
    cells = 1
    while not line.accept("]"):
        if dimensions:
            line.expect(",")
        size = line.integer("a dimension's size")
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


def _height(value: Expression) -> int:
    """How many operations of a value are one inside the other, found without recursion."""
    level: list[Any] = [value]
    height = 0
    while level:
        level = [
            child
            for node in level
            for part in vars(node).values()
            for child in (part if isinstance(part, tuple) else (part,))
            if isinstance(child, Expression)
        ]
        height += bool(level)
    return height


class _Tree:
    """The indented part. Ids number scopes (``s0`` ...) and statements (``c0`` ...) in order."""

    def __init__(self, buffers: tuple[Buffer, ...], dialect: Dialect) -> None:
        self.dialect = dialect
        self.dtype_of = {array: b.dtype for b in buffers for array in b.arrays}
        self.shape_of = {array: b.shape for b in buffers for array in b.arrays}
        self.line_of: dict[str, _Line] = {}
        self.scopes = self.statements = 0

    def parse(self, lines: list[_Line], header: _Line) -> tuple[Node, ...]:
        if not lines:
            header.fail("PD-P005", "the kernel has no statements", 1, len(header.source.rstrip()))
        body, rest = self._children(lines, 0, 0)
        if rest:
            rest[0].fail("PD-P008", "this line is deeper than any scope above it")
        return body

    def _children(self, lines: list[_Line], bars: int, level: int) -> tuple[tuple[Node, ...], list[_Line]]:
        """The lines that start with exactly ``bars`` bars, up to the first with fewer."""
        nodes: list[Node] = []
        while lines and self._bars(lines[0]) == bars:
            node, lines = self._node(lines, bars, level)
            nodes.append(node)
        return tuple(nodes), lines

    @staticmethod
    def _bars(line: _Line) -> int:
        count = 0
        while count < len(line.tokens) and line.tokens[count].text == "|":
            count += 1
        return count

    def _node(self, lines: list[_Line], bars: int, level: int) -> tuple[Node, list[_Line]]:
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
                rest[0].fail("PD-P008", "a line that ends in a statement has no children")
        elif not chain:
            line.fail("PD-P002", "expected a scope or a statement")
        else:
            body, rest = self._children(rest, bars + 1, level + len(chain))
            if not body:
                line.fail("PD-P008", "a scope without a statement", hint="children stand one bar deeper")
        for size, suffix, identifier in reversed(chain):
            body = (Scope(size, body, suffix, identifier),)
        if len(body) != 1:  # pragma: no cover - chain is not empty here
            raise AssertionError("a line yields one node")
        return body[0], rest

    def _suffix(self, line: _Line) -> str:
        suffix = line.take("name", "a scope suffix").text
        if suffix not in self.dialect.suffixes:
            line.next -= 1
            hint = closest(suffix, list(self.dialect.suffixes))
            line.fail("PD-P006", f"unknown scope suffix {suffix!r}", hint=hint)
        return suffix

    def _statement(self, line: _Line, depth: int) -> Statement:
        identifier = f"c{self.statements}"
        self.statements += 1
        self.line_of[identifier] = line
        target = self._access(line, depth)
        dtype = self.dtype_of[target.array]
        accumulate = None
        token = line.peek()
        if token and token.kind == "accumulate":
            if token.text not in _SIGN_TO_ACCUMULATION:
                line.fail("PD-P002", f"unknown accumulation {token.text!r}", hint="+=, *=, max= or min=")
            accumulate = _SIGN_TO_ACCUMULATION[token.text]
            line.next += 1
        else:
            line.expect("=")
        value = self._sum(line, depth, dtype)
        if _height(value) > MAX_HEIGHT:
            line.fail("PD-P003", f"an expression nests deeper than {MAX_HEIGHT} operations", 1)
        return Statement(target, value, accumulate, dtype, identifier)

    def _access(self, line: _Line, depth: int) -> Access:
        token = line.peek()
        name = line.name("an array")
        if name not in self.dtype_of:
            assert token
            hint = closest(name, list(self.dtype_of))
            line.fail("PD-P009", f"undeclared array {name!r}", token.column, len(name), hint)
        line.expect("[")
        subscripts: list[Index] = []
        while not line.accept("]"):
            if subscripts:
                line.expect(",")
            subscripts.append(self._index(line, depth))
        if len(subscripts) != len(self.shape_of[name]):
            assert token
            line.fail(
                "PD-P009",
                f"{name} has {len(self.shape_of[name])} dimensions, {len(subscripts)} subscripts are given",
                token.column,
                len(name),
            )
        return Access(name, tuple(subscripts))

    def _index(self, line: _Line, depth: int) -> Index:
        constant, coefficients = 0, dict[int, int]()
        sign = -1 if line.accept("-") else 1
        while True:
            token = line.peek()
            if token and token.text == "{":
                level = self._level(line, depth)
                factor = line.integer("a coefficient") if line.accept("*") else 1
                coefficients[level] = coefficients.get(level, 0) + sign * factor
            else:
                value = line.integer("a subscript")
                if line.accept("*"):
                    level = self._level(line, depth)
                    coefficients[level] = coefficients.get(level, 0) + sign * value
                else:
                    constant += sign * value
            if line.accept("+"):
                sign = 1
            elif line.accept("-"):
                sign = -1
            else:
                return Index.of(coefficients, constant)

    def _level(self, line: _Line, depth: int) -> int:
        line.expect("{")
        level = line.integer("a level")
        if level >= depth:
            line.next -= 1
            line.fail("PD-P009", f"iterator {{{level}}} inside {depth} scopes", hint="{0} is the outermost")
        line.expect("}")
        return level

    # -- expressions: sum > product > unary > atom --------------------------------------------

    def _sum(self, line: _Line, depth: int, dtype: str) -> Expression:
        value = self._product(line, depth, dtype)
        while line.at("+") or line.at("-"):
            name = "add" if line.accept("+") else "sub"
            line.next += name == "sub"
            value = Operation(name, (value, self._product(line, depth, dtype)), dtype)
        return value

    def _product(self, line: _Line, depth: int, dtype: str) -> Expression:
        value = self._unary(line, depth, dtype)
        while line.at("*") or line.at("/"):
            name = "mul" if line.accept("*") else "div"
            line.next += name == "div"
            value = Operation(name, (value, self._unary(line, depth, dtype)), dtype)
        return value

    def _unary(self, line: _Line, depth: int, dtype: str) -> Expression:
        if not line.at("-"):
            return self._atom(line, depth, dtype)
        line.next += 1
        token = line.peek()
        if token and (token.kind == "number" or token.text == "inf"):
            return self._literal(line, dtype, -1)
        line.nested()
        value = Operation("neg", (self._unary(line, depth, dtype),), dtype)
        line.depth -= 1
        return value

    def _literal(self, line: _Line, dtype: str, sign: int) -> Literal:
        token = line.peek()
        assert token
        if dtype in FLOAT_DTYPES:
            line.next += 1
            value = sign * float(token.text)
            if token.text != "inf" and abs(value) == float("inf"):
                line.fail("PD-P003", "a number beyond the range of floats", token.column, len(token.text))
            return Literal(value, dtype)
        if token.text == "inf":
            line.fail("PD-P010", f"inf is no value of {dtype}")
        return Literal(sign * line.integer("an integer"), dtype)

    def _atom(self, line: _Line, depth: int, dtype: str) -> Expression:
        token = line.peek()
        if token is None:
            line.fail("PD-P002", "expected a value, found end of line")
        if token.kind == "number" or token.text == "inf":
            return self._literal(line, dtype, 1)
        if token.text == "{":
            return IndexValue(Index.level(self._level(line, depth)), dtype)
        line.nested()
        value = self._compound(line, depth, dtype, token)
        line.depth -= 1
        return value

    def _compound(self, line: _Line, depth: int, dtype: str, token: Token) -> Expression:
        if line.accept("("):
            value = self._sum(line, depth, dtype)
            line.expect(")")
            return value
        if token.text == "index":
            line.next += 1
            line.expect("(")
            index = self._index(line, depth)
            line.expect(")")
            return IndexValue(index, dtype)
        if token.text in DTYPES:
            return self._cast(line, depth, dtype, token)
        if token.text in OPERATIONS:
            return self._call(line, depth, dtype, token)
        access = self._access(line, depth)
        found = self.dtype_of[access.array]
        if found != dtype:
            line.fail(
                "PD-P010",
                f"{access.array} is {found} where {dtype} is needed",
                token.column,
                len(token.text),
                f"write the conversion: {dtype}({access.text})",
            )
        return Read(access, dtype)

    def _cast(self, line: _Line, depth: int, dtype: str, token: Token) -> Expression:
        """``f32(x[..])``: the argument's dtype is that of the first array in it."""
        if token.text != dtype:
            line.fail("PD-P010", f"a conversion to {token.text} where {dtype} is needed")
        line.next += 1
        line.expect("(")
        source = next(
            (self.dtype_of[t.text] for t in line.tokens[line.next :] if t.text in self.dtype_of), None
        )
        if source is None:
            line.fail("PD-P010", "a conversion needs an array to take the source dtype from")
        value = Cast(self._sum(line, depth, source), dtype)
        line.expect(")")
        return value

    def _call(self, line: _Line, depth: int, dtype: str, token: Token) -> Expression:
        line.next += 1
        line.expect("(")
        arguments = [self._sum(line, depth, dtype)]
        while line.accept(","):
            arguments.append(self._sum(line, depth, dtype))
        line.expect(")")
        if len(arguments) != OPERATIONS[token.text]:
            line.fail(
                "PD-P002",
                f"{token.text} takes {OPERATIONS[token.text]} arguments, {len(arguments)} are given",
                token.column,
                len(token.text),
            )
        return Operation(token.text, tuple(arguments), dtype)

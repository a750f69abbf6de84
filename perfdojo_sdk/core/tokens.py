"""The tokens of one line of program text, and errors that point at them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple, NoReturn

from perfdojo_sdk.core.dtypes import COMPUTED_DTYPES
from perfdojo_sdk.core.errors import ProgramError, SourceSpan
from perfdojo_sdk.core.expression import MAX_DEPTH
from perfdojo_sdk.core.operations import OPERATIONS
from perfdojo_sdk.core.slips import slip

MAX_NAME = 64
MAX_NUMBER = 2**31 - 1

#: Words that an expression or declaration gives a meaning of its own. Dtypes without operations are
#: younger than stored programs, whose arrays may have their names.
RESERVED = frozenset(
    (
        *(name for name, meaning in OPERATIONS.items() if meaning.reserved),
        *COMPUTED_DTYPES,
        "inf",
        "index",
        "kernel",
        "if",
    )
)

#: The hint where infinity is written in another way.
INFINITE = "infinity is written inf, or -inf"
_NO_NAME_OF_INFINITY = re.compile(r"∞|\.inf(inity)?\b", re.IGNORECASE)

_TOKEN = re.compile(
    r"(?P<space>[ \t]+)"
    r"|(?P<number>\d+(?:\.\d*)?(?:[eE][+-]?\d+)?)"
    r"|(?P<accumulate>[A-Za-z_]\w*=(?!=)|[+*]=)"
    r"|(?P<name>[A-Za-z_]\w*)"
    r"|(?P<string>\"[^\"]*\")"
    r"|(?P<sign>->|//|[<>=!]=|[-+*/%<>=()\[\]{},:|])",
    re.ASCII,
)


#: Sign where a name is expected -> the way to write what is probably meant.
_OTHER_SIGNS = {"*": "a power is pow(x, y), or x * x", "+": "a positive number has no sign"}


#: Codes of errors that a habit of another language may cause.
_OF_SLIPS = frozenset(("PD-P001", "PD-P002", "PD-P004", "PD-P005", "PD-P006", "PD-P009"))


class Token(NamedTuple):
    kind: str
    text: str
    column: int


class Line:
    """The tokens of one line, read from left to right."""

    def __init__(self, number: int, source: str, file: str) -> None:
        self.number, self.source, self.file = number, source, file
        self.tokens = list(self._scan(source.partition("#")[0]))
        self.next = 0
        self.depth = 0

    def _scan(self, text: str) -> Iterator[Token]:
        position = 0
        for match in _TOKEN.finditer(text):
            if match.start() != position:
                break
            kind, position = match.lastgroup, match.end()
            assert kind
            if kind != "space":
                yield Token(kind, match.group(), match.start() + 1)
        if position < len(text):
            hint = INFINITE if _NO_NAME_OF_INFINITY.match(text, position) else ""
            self.fail("PD-P001", f"unexpected character {text[position]!r}", position + 1, hint=hint)

    def fail(
        self,
        code: str,
        what: str,
        column: int | None = None,
        length: int = 1,
        hint: str = "",
        why: str = "",
    ) -> NoReturn:
        if column is None:
            token = self.peek()
            column = token.column if token else len(self.source.rstrip()) + 1
            length = len(token.text) if token else 1
        found = slip(self.source, column) if code in _OF_SLIPS else None
        if found is not None:
            what, why, hint = found.what or what, found.why, found.hint or hint
            column, length = found.column, found.length
        place = SourceSpan(self.number, column, self.source, length, self.file)
        raise ProgramError(code, what, place=place, why=why, hint=hint)

    def peek(self, ahead: int = 0) -> Token | None:
        at = self.next + ahead
        return self.tokens[at] if at < len(self.tokens) else None

    def at(self, text: str) -> bool:
        tokens, at = self.tokens, self.next
        return at < len(tokens) and tokens[at].text == text

    def accept(self, text: str) -> bool:
        if self.at(text):
            self.next += 1
            return True
        return False

    def expect(self, text: str, hint: str = "") -> None:
        if not self.accept(text):
            found = self.peek()
            what = f"expected {text!r}, found {found.text if found else 'end of line'!r}"
            self.fail("PD-P002", what, hint=hint)

    def take(self, kind: str, what: str, hint: str = "") -> Token:
        token = self.peek()
        if token is None or token.kind != kind:
            found = token.text if token else "end of line"
            self.fail("PD-P002", f"expected {what}, found {found!r}", hint=hint)
        self.next += 1
        return token

    def integer(self, what: str, hint: str = "") -> int:
        token = self.take("number", what, hint)
        if not token.text.isdigit():
            self.fail("PD-P002", f"expected {what}, found {token.text!r}", token.column, len(token.text))
        value = int(token.text) if len(token.text) < 12 else MAX_NUMBER + 1
        if value > MAX_NUMBER:
            self.fail("PD-P003", f"{what} exceeds {MAX_NUMBER}", token.column, len(token.text))
        return value

    def name(self, what: str, reserved: frozenset[str] = RESERVED, hint: str = "") -> str:
        found = self.peek()
        token = self.take("name", what, _OTHER_SIGNS.get(found.text, hint) if found else hint)
        if len(token.text) > MAX_NAME:
            too_long = f"{what} is longer than {MAX_NAME} characters"
            self.fail("PD-P003", too_long, token.column, len(token.text))
        if token.text in reserved:
            taken = f"{token.text!r} is reserved and cannot be {what}"
            self.fail("PD-P004", taken, token.column, len(token.text))
        return token.text

    def end(self, hint: str = "") -> None:
        token = self.peek()
        if token:
            what = f"unexpected {token.text!r} after the end of the line's meaning"
            self.fail("PD-P002", what, hint=hint)

    def nested(self) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            self.fail("PD-P003", f"expression nests deeper than {MAX_DEPTH}")

"""Constant expressions as assemblers write them: integers, symbols, C's operators, ``%hi(x)``."""

from __future__ import annotations

import re
from collections.abc import Callable

#: A symbol's value, or None while it is not known.
Lookup = Callable[[str], int | None]

_TOKEN = re.compile(
    r"\s*(?:(0[xX][0-9a-fA-F]+|0[bB][01]+|\d+[fb](?![\w.])|\d+)|('(?:\\.|[^\\'])')|(<<|>>|[-+*/%&|^~()])|([A-Za-z_.$][\w.$]*))"
)
_PRECEDENCE = {"|": 1, "^": 2, "&": 3, "<<": 4, ">>": 4, "+": 5, "-": 5, "*": 6, "/": 6, "%": 6}
_ESCAPES = {"n": 10, "t": 9, "r": 13, "0": 0, "\\": 92, "'": 39, '"': 34}


class ExpressionError(Exception):
    """A syntax error in an expression; the message describes it."""


class UnknownSymbolError(ExpressionError):
    """A symbol without a value, kept apart because a later pass may know it."""


def evaluate(text: str, lookup: Lookup) -> int:
    """The value of ``text``. ExpressionError."""
    parser = _Parser(text, lookup)
    value = parser.binary(0)
    if parser.peek() is not None:
        raise ExpressionError(f"unexpected {parser.peek()!r} in {text.strip()!r}")
    return value


def _tokens(text: str) -> list[str]:
    found, at = [], 0
    text = text.rstrip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if not match:
            raise ExpressionError(f"cannot read {text[at:].strip()!r}")
        found.append(match.group().strip())
        at = match.end()
    return found


class _Parser:
    def __init__(self, text: str, lookup: Lookup) -> None:
        self.text, self.lookup = text, lookup
        self.tokens, self.at = _tokens(text), 0

    def peek(self) -> str | None:
        return self.tokens[self.at] if self.at < len(self.tokens) else None

    def next(self) -> str:
        token = self.peek()
        if token is None:
            text = self.text.strip()
            raise ExpressionError(f"{text!r} ends too early" if text else "empty operand")
        self.at += 1
        return token

    def binary(self, least: int) -> int:
        value = self.unary()
        while (operator := self.peek()) in _PRECEDENCE and _PRECEDENCE[operator] > least:
            self.at += 1
            value = _apply(operator, value, self.binary(_PRECEDENCE[operator]))
        return value

    def unary(self) -> int:
        token = self.next()
        if token in "+-~":
            value = self.unary()
            return value if token == "+" else -value if token == "-" else ~value
        if token == "(":
            value = self.binary(0)
            if self.next() != ")":
                raise ExpressionError(f"a bracket is not closed in {self.text.strip()!r}")
            return value
        if token == "%":
            return self.relocation(self.next())
        if token[0] == "'":
            return _ESCAPES.get(token[2], ord(token[2])) if token[1] == "\\" else ord(token[1])
        if token[0].isdigit() and token[-1] not in "fb" or token[:2] in ("0x", "0X", "0b", "0B"):
            return int(token, 8) if token[0] == "0" and token.isdigit() and len(token) > 1 else int(token, 0)
        if token[0].isalnum() or token[0] in "_.$":
            value_or_none = self.lookup(token)
            if value_or_none is None:
                raise UnknownSymbolError(f"nothing defines {token!r}")
            return value_or_none
        raise ExpressionError(f"unexpected {token!r} in {self.text.strip()!r}")

    def relocation(self, name: str) -> int:
        if self.next() != "(":
            raise ExpressionError(f"%{name} needs a bracket")
        if name == "pcrel_lo":
            value = self.lookup("%pcrel_lo " + self.next())
            if value is None:
                raise UnknownSymbolError("%pcrel_lo names no instruction with %pcrel_hi")
        else:
            value = self.binary(0)
        if self.next() != ")":
            raise ExpressionError(f"%{name} is not closed")
        if name == "hi":
            return (value + 0x800) >> 12 & 0xFFFFF
        if name in ("lo", "pcrel_lo"):
            return low12(value)
        if name == "pcrel_hi":
            here = self.lookup(".")
            assert here is not None
            return (value - here + 0x800) >> 12 & 0xFFFFF
        raise ExpressionError(f"%{name} is not known")


def low12(value: int) -> int:
    """The signed low twelve bits."""
    return ((value & 0xFFF) ^ 0x800) - 0x800


def _apply(operator: str, a: int, b: int) -> int:
    if operator in "/%":
        if b == 0:
            raise ExpressionError("division by zero")
        quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
        return quotient if operator == "/" else a - b * quotient
    if operator in ("<<", ">>"):
        if not 0 <= b < 128:
            raise ExpressionError(f"shift by {b}")
        return a << b if operator == "<<" else a >> b
    return {"+": a + b, "-": a - b, "*": a * b, "&": a & b, "|": a | b, "^": a ^ b}[operator]

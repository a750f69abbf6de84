"""The notations of formulas: one table for Unicode, one for LaTeX.

The entry of a node's type in ``_WRITERS`` writes it; an operation is written in the notation's form for its
name. Anything without an entry keeps the spelling of the program's text, so a new kind of node is legible at
once, and one line here typesets it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from perfdojo_sdk.core.expression import (
    Access,
    AffineExpr,
    Cast,
    Expression,
    IndexValue,
    Literal,
    Operation,
    Part,
    Quotient,
    Read,
)
from perfdojo_sdk.core.lookups import Lookup
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.core.storage import Buffer

#: Elements of a table that views show.
MOST_ELEMENTS = 16

#: Precedences, the weakest first; an argument with a weaker one than its place needs brackets.
LOOSE, SUM, PRODUCT, SIGN, ATOM = range(5)


class Form(NamedTuple):
    """An operation's spelling: a format of its arguments, and how strongly it and they must bind."""

    text: str
    binds: int = ATOM
    needs: tuple[int, ...] = (LOOSE, LOOSE, LOOSE, LOOSE)


@dataclass(frozen=True)
class Notation:
    """One way of writing. The words of a program (names, unknown nodes) pass through ``word``."""

    forms: Mapping[str, Form]
    big: Mapping[str, str]
    """Accumulation -> its big operator."""
    access: str
    infinity: str
    brackets: str
    times: str
    """The sign between a coefficient and an iterator."""
    call: str
    """The format of a function and its arguments."""
    word: Callable[[str], str]
    minus: str
    quotient: str
    """The format of a quotient rounded down; ``remainder``: of its remainder."""
    remainder: str
    least: str
    """Sign of "at least"; ``most``: that of "at most"."""
    most: str

    @property
    def signs(self) -> frozenset[str]:
        """Operations that are written between their arguments."""
        return frozenset(name for name in _INFIX if name in self.forms)


def _latex_word(word: str) -> str:
    """A word as upright text; a single letter is a variable."""
    if len(word) == 1 and word.isalpha():
        return word
    specials = {"\\": r"\backslash ", "{": r"\{", "}": r"\}"}
    escaped = "".join(specials.get(c, f"\\{c}" if c in "_%&#$" else c) for c in word)
    return rf"\mathrm{{{escaped}}}"


_INFIX = {
    "add": ("+", SUM, (SUM, PRODUCT)),
    "sub": ("-", SUM, (SUM, PRODUCT)),
    "mul": ("*", PRODUCT, (PRODUCT, SIGN)),
    "div": ("/", PRODUCT, (PRODUCT, SIGN)),
}


def _infix(signs: Mapping[str, str]) -> dict[str, Form]:
    return {name: Form(f"{{0}} {signs[name]} {{1}}", *_INFIX[name][1:]) for name in signs}


def _truth(signs: Mapping[str, str]) -> dict[str, Form]:
    """Comparisons as values, in Iverson's brackets: 1 where they hold, else 0."""
    return {name: Form(f"[{{0}} {sign} {{1}}]") for name, sign in signs.items()}


UNICODE = Notation(
    forms={
        **_infix({"add": "+", "sub": "\u2212", "mul": "\u00b7", "div": "/"}),
        "neg": Form("\u2212{0}", SIGN, (SIGN,)),
        "abs": Form("|{0}|"),
        "sqrt": Form("\u221a({0})"),
        "floor": Form("\u230a{0}\u230b"),
        "ceil": Form("\u2308{0}\u2309"),
        **_truth({"lt": "<", "le": "\u2264", "gt": ">", "ge": "\u2265", "eq": "=", "ne": "\u2260"}),
        "select": Form("{1} if {0} else {2}", LOOSE, (SUM, SUM, SUM)),
    },
    big={"add": "\u2211", "mul": "\u220f", "max": "max", "min": "min"},
    access="{0}[{1}]",
    infinity="\u221e",
    brackets="({0})",
    times="",
    call="{0}({1})",
    word=lambda word: word,
    minus="\u2212",
    quotient="\u230a{0}/{1}\u230b",
    remainder="({0} mod {1})",
    least="\u2265",
    most="\u2264",
)

LATEX = Notation(
    forms={
        **_infix({"add": "+", "sub": "-", "mul": r"\cdot"}),
        "div": Form(r"\frac{{{0}}}{{{1}}}"),
        "neg": Form("-{0}", SIGN, (SIGN,)),
        "abs": Form(r"\left|{0}\right|"),
        "sqrt": Form(r"\sqrt{{{0}}}"),
        "exp": Form("e^{{{0}}}", SIGN),
        "max": Form(r"\max\left({0}, {1}\right)"),
        "min": Form(r"\min\left({0}, {1}\right)"),
        "floor": Form(r"\lfloor {0} \rfloor"),
        "ceil": Form(r"\lceil {0} \rceil"),
        **_truth({"lt": "<", "le": r"\le", "gt": ">", "ge": r"\ge", "eq": "=", "ne": r"\ne"}),
        "select": Form(r"\begin{{cases}} {1} & \text{{if }} {0} \\ {2} & \text{{otherwise}} \end{{cases}}"),
    },
    big={"add": r"\sum", "mul": r"\prod", "max": r"\max", "min": r"\min"},
    access="{0}_{{{1}}}",
    infinity=r"\infty",
    brackets=r"\left({0}\right)",
    times=r"\,",
    call=r"{0}\left({1}\right)",
    word=_latex_word,
    minus="-",
    quotient=r"\lfloor {0}/{1} \rfloor",
    remainder=r"({0} \bmod {1})",
    least=r"\ge",
    most=r"\le",
)


@dataclass(frozen=True)
class Writer:
    """Writes the expressions of one program in one notation."""

    notation: Notation
    letters: tuple[str, ...]
    """Level -> the letter of its iterator."""

    @staticmethod
    def of(program: Program, notation: Notation) -> Writer:
        return Writer(notation, _letters(program))

    def letter(self, level: int) -> str:
        if level < len(self.letters):
            return self.letters[level]
        return f"i_{{{level}}}" if self.notation is LATEX else f"i{level}"

    def index(self, form: AffineExpr) -> str:
        """A form of the iterators: ``{0}*16+{1}`` is 16i+j."""
        parts = [self._term(self.letter(level), c) for level, c in form.terms]
        parts += [self._term(self._part(part), c) for part, c in form.quotients]
        if form.constant or not parts:
            parts.append(f"{form.constant:+d}".replace("-", self.notation.minus))
        return "".join(parts).removeprefix("+")

    def _term(self, text: str, coefficient: int) -> str:
        factor = "" if abs(coefficient) == 1 else f"{abs(coefficient)}{self.notation.times}"
        return f"{self.notation.minus if coefficient < 0 else '+'}{factor}{text}"

    def _part(self, part: Part) -> str:
        if isinstance(part, Lookup):
            return self.expression(part.value, SUM)
        assert isinstance(part, Quotient)
        return self._quotient(part)

    def _quotient(self, quotient: Quotient) -> str:
        simple = len(quotient.dividend.terms) == 1 and quotient.dividend.text.startswith("{")
        dividend = self.index(quotient.dividend)
        if not (simple and dividend.isalnum()):
            dividend = self.notation.brackets.format(dividend)
        form = self.notation.remainder if quotient.remainder else self.notation.quotient
        return form.format(dividend, quotient.divisor)

    def conditions(self, guard: Sequence[AffineExpr]) -> list[str]:
        """Forms that must not be negative, as comparisons with a constant on the right."""
        return [self._condition(form) for form in guard]

    def _condition(self, form: AffineExpr) -> str:
        coefficients = [c for _, c in (*form.terms, *form.quotients)]
        if coefficients and max(coefficients) < 0:
            turned = AffineExpr().plus(form, -1)
            left = self.index(turned.plus(AffineExpr(-turned.constant)))
            return f"{left} {self.notation.most} {form.constant}"
        least = f"{-form.constant}".replace("-", self.notation.minus)
        return f"{self.index(form.plus(AffineExpr(-form.constant)))} {self.notation.least} {least}"

    def access(self, access: Access) -> str:
        if not access.subscripts:
            return self.notation.word(access.array)
        subscripts = ",".join(self.index(s) for s in access.subscripts)
        return self.notation.access.format(self.notation.word(access.array), subscripts)

    def expression(self, value: Expression, needs: int = LOOSE) -> str:
        """``value``, in brackets when it binds weaker than its place needs."""
        text, binds = _WRITERS.get(type(value), _as_text)(self, value)
        return text if binds >= needs else self.notation.brackets.format(text)

    def call(self, name: str, arguments: Iterable[Expression]) -> str:
        written = ", ".join(self.expression(a) for a in arguments)
        return self.notation.call.format(self.notation.word(name), written)


_Written = tuple[str, int]
"""A text and its precedence."""


def _literal(writer: Writer, value: Literal) -> _Written:
    negative = str(value.value).startswith("-")
    digits = value.text.removeprefix("-").replace("inf", writer.notation.infinity)
    mantissa, e, exponent = digits.partition("e")
    if e and writer.notation is LATEX:
        digits = rf"{mantissa} \cdot 10^{{{int(exponent)}}}"
    return (writer.notation.minus + digits, SIGN) if negative else (digits, ATOM)


def _index_value(writer: Writer, value: IndexValue) -> _Written:
    text = writer.index(value.index)
    return text, ATOM if text.isalnum() else LOOSE


def _read(writer: Writer, value: Read) -> _Written:
    return writer.access(value.access), ATOM


def _operation(writer: Writer, value: Operation) -> _Written:
    form = writer.notation.forms.get(value.name)
    if form is None:
        return writer.call(value.name, value.arguments), ATOM
    arguments = (writer.expression(a, need) for a, need in zip(value.arguments, form.needs))
    return form.text.format(*arguments), form.binds


def _cast(writer: Writer, value: Cast) -> _Written:
    return writer.call(value.dtype, (value.argument,)), ATOM


def _as_text(writer: Writer, value: Expression) -> _Written:
    """A node of a kind that has no entry: the program's own spelling, iterators by their letters."""
    text = re.sub(r"\{(\d+)\}", lambda found: writer.letter(int(found[1])), value.text)
    return (rf"\texttt{{{_latex_word(text)}}}" if writer.notation is LATEX else text), LOOSE


_WRITERS: Mapping[type, Callable[[Writer, Any], _Written]] = {
    Literal: _literal,
    IndexValue: _index_value,
    Read: _read,
    Operation: _operation,
    Cast: _cast,
}


def elements(table: Buffer) -> str:
    """The elements of a table, as many as a line holds."""
    values = table.values or ()
    shown = [Literal(value, table.dtype).text for value in values[:MOST_ELEMENTS]]
    return ", ".join([*shown, *([f"... ({len(values)} in all)"] if len(values) > len(shown) else [])])


def _letters(program: Program) -> tuple[str, ...]:
    """Letters for iterators that no array of the program is called by."""
    return tuple(letter for letter in "ijklpqrstuvwzabcdgho" if letter not in program.names)

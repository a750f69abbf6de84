"""How formulas are spelled: one table for Unicode, one for LaTeX.

A node of an expression is written by the entry of its type in ``_WRITERS``, an operation by the
notation's form for its name. Whatever has no entry keeps the spelling of the program's text, so a new
kind of node is legible at once and beautiful after one line here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from perfdojo_sdk.core.expression import Access, Cast, Expression, IndexValue, Literal, Operation, Read
from perfdojo_sdk.core.program import Program

#: What binds weakest to strongest; an argument that binds weaker than its place needs brackets.
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
    """Between a coefficient and an iterator."""
    call: str
    """A function and its arguments."""
    word: Callable[[str], str]
    minus: str

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


UNICODE = Notation(
    forms={
        **_infix({"add": "+", "sub": "\u2212", "mul": "\u00b7", "div": "/"}),
        "neg": Form("\u2212{0}", SIGN, (SIGN,)),
        "abs": Form("|{0}|"),
        "sqrt": Form("\u221a({0})"),
    },
    big={"add": "\u2211", "mul": "\u220f", "max": "max", "min": "min"},
    access="{0}[{1}]",
    infinity="\u221e",
    brackets="({0})",
    times="",
    call="{0}({1})",
    word=lambda word: word,
    minus="\u2212",
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
    },
    big={"add": r"\sum", "mul": r"\prod", "max": r"\max", "min": r"\min"},
    access="{0}_{{{1}}}",
    infinity=r"\infty",
    brackets=r"\left({0}\right)",
    times=r"\,",
    call=r"{0}\left({1}\right)",
    word=_latex_word,
    minus="-",
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

    def index(self, text: str) -> str:
        """An index from its text: ``{0}*16+{1}`` is 16i+j. Knows no more of it than iterators and ``*``."""
        times = self.notation.times

        def iterator(found: re.Match[str]) -> str:
            factor = f"{found[2]}{times}" if found[2] else ""
            return factor + self.letter(int(found[1]))

        written = re.sub(r"\{(\d+)\}(?:\*(\d+))?", iterator, text).replace("-", self.notation.minus)
        return written.replace("%", r" \bmod " if self.notation is LATEX else " mod ")

    def access(self, access: Access) -> str:
        subscripts = ",".join(self.index(s.text) for s in access.subscripts)
        return self.notation.access.format(self.notation.word(access.array), subscripts)

    def expression(self, value: Expression, needs: int = LOOSE) -> str:
        """``value``, in brackets when it binds weaker than its place needs."""
        text, binds = _WRITERS.get(type(value), _as_text)(self, value)
        return text if binds >= needs else self.notation.brackets.format(text)

    def call(self, name: str, arguments: Iterable[Expression]) -> str:
        written = ", ".join(self.expression(a) for a in arguments)
        return self.notation.call.format(self.notation.word(name), written)


_Written = tuple[str, int]
"""A text and how strongly it binds."""


def _literal(writer: Writer, value: Literal) -> _Written:
    negative = str(value.value).startswith("-")
    digits = value.text.removeprefix("-").replace("inf", writer.notation.infinity)
    mantissa, e, exponent = digits.partition("e")
    if e and writer.notation is LATEX:
        digits = rf"{mantissa} \cdot 10^{{{int(exponent)}}}"
    return (writer.notation.minus + digits, SIGN) if negative else (digits, ATOM)


def _index_value(writer: Writer, value: IndexValue) -> _Written:
    plain = re.fullmatch(r"\{\d+\}", value.index.text)
    return writer.index(value.index.text), ATOM if plain else LOOSE


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


def _letters(program: Program) -> tuple[str, ...]:
    """Letters for iterators that no array of the program is called by."""
    return tuple(letter for letter in "ijklpqrstuvwzabcdgho" if letter not in program.names)

"""Errors that a user can cause: each says what, where, why and what to try.

Codes are stable; each has a page in the documentation. Rendering happens only when somebody
looks, so that a search which refuses a million moves pays nothing for the words.
"""

from __future__ import annotations

from dataclasses import dataclass

#: Most characters of a line, and of a sentence, that an error shows.
_MOST_SHOWN, _MOST_SAID = 120, 4000


def printable(text: str) -> str:
    """``text`` with a question mark in place of each character that a terminal would obey."""
    return "".join(c if c.isprintable() else "?" for c in text)


@dataclass(frozen=True)
class SourceSpan:
    """A position in a text. Lines and columns count from 1."""

    line: int
    column: int
    source: str
    """The whole line, for showing."""
    length: int = 1
    file: str = ""

    def render(self) -> str:
        gutter = f"{self.line:4} | "
        start = max(0, self.column - _MOST_SHOWN // 2) if len(self.source) > _MOST_SHOWN else 0
        source = printable(self.source[start : start + _MOST_SHOWN])
        column = self.column - start
        mark = "^" * max(1, min(self.length, len(source) - column + 1))
        shown = f"{gutter}{source}\n{' ' * (len(gutter) + column - 1)}{mark}"
        return f"  --> {printable(self.file)}:{self.line}:{self.column}\n{shown}" if self.file else shown


class DojoError(Exception):
    """The base of every error that a user can cause."""

    #: Exit code of the command line: 1 user error, 3 plugin or target unavailable,
    #: 4 verification failed, 5 nothing found, 6 a plugin's code failed.
    exit_code = 1

    def __init__(
        self, code: str, what: str, *, place: SourceSpan | None = None, why: str = "", hint: str = ""
    ) -> None:
        super().__init__(what)
        self.code, self.what, self.place, self.why, self.hint = code, what, place, why, hint

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.code, self.what, self.place, self.why, self.hint))

    def __str__(self) -> str:
        return self.render()

    def render(self) -> str:
        lines = [f"error[{self.code}]: {_said(self.what)}"]
        if self.place:
            lines.append(self.place.render())
        if self.why:
            lines.append(f"   why: {_said(self.why)}")
        if self.hint:
            lines.append(f"   try: {_said(self.hint)}")
        return "\n".join(lines)

    def as_json(self) -> dict[str, object]:
        place = self.place and {"line": self.place.line, "column": self.place.column}
        return {"code": self.code, "what": self.what, "place": place, "why": self.why, "try": self.hint}


def printable_lines(text: str) -> str:
    """:func:`printable` for a text of several lines; what is printed of files, records, plugins and compilers
    goes through here."""
    return "\n".join(printable(line.expandtabs()) for line in text.split("\n"))


def _said(sentence: str) -> str:
    """The sentence, cut to a bounded length: it may quote input that was not checked."""
    if len(sentence) > _MOST_SAID:
        sentence = f"{sentence[:_MOST_SAID]} ..."
    return printable_lines(sentence)


def _rebuild(
    kind: type[DojoError], code: str, what: str, place: SourceSpan | None, why: str, hint: str
) -> DojoError:
    return kind(code, what, place=place, why=why, hint=hint)


class ProgramError(DojoError):
    """The text is not a program (syntax, names, bounds, order of writes and reads)."""


class MoveError(DojoError):
    """A move was asked for that does not exist or does not apply."""


class UnavailableError(DojoError):
    """A plugin, target, compiler or device is missing."""

    exit_code = 3


class VerificationError(DojoError):
    """A kernel does not do what its initial program says."""

    exit_code = 4


class NothingFoundError(DojoError):
    """A selection is empty."""

    exit_code = 5


#: Most names that a message lists.
MOST_LISTED = 60


def closest(word: str, known: list[str]) -> str:
    """A sentence that suggests the nearest known name, or lists them if they are few."""
    from difflib import get_close_matches

    near = get_close_matches(word, known, 1)
    if near:
        return f"did you mean {near[0]}?"
    if len(known) > MOST_LISTED:
        return f"none of the {len(known)} known ones is like it"
    return f"known: {', '.join(sorted(known))}" if known else "none is known"

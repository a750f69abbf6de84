"""Read a move as a person writes it: ``split_scope(s0, factor=16)``, the same as ``Move.text``.

The text is hostile until read: it is short, names are names, and a value's type is the one that
the transformation declares, never guessed.
"""

from __future__ import annotations

import re
from typing import NoReturn

from perfdojo_sdk.core.errors import MoveError, SourceSpan
from perfdojo_sdk.core.transformation import Move, Rules

MAX_CHARACTERS = 1000
MAX_INTEGER = 2**31 - 1

_HEAD = re.compile(r"\s*([A-Za-z_]\w*(?:/[A-Za-z_]\w*)*)\s*\(", re.ASCII)
_PLACE = re.compile(r"\s*([A-Za-z_][\w.]*)\s*", re.ASCII)
_KEY = re.compile(r",\s*([A-Za-z_]\w*)\s*=\s*", re.ASCII)
#: A value runs up to the next ``, key =`` or the closing bracket, so ``order=1,0,2`` is one value.
_VALUE = re.compile(r"([\w.:,+\- ]*?)\s*(?=\)|,\s*[A-Za-z_]\w*\s*=)", re.ASCII)
_INTEGER = re.compile(r"-?\d+", re.ASCII)
#: Longer ones are not even read as numbers.
_MOST_DIGITS = 20


def parse_move(text: str, rules: Rules) -> Move:
    """The move that ``text`` names under ``rules``.

    Raises :class:`MoveError`: PD-C002 when the text is no move, PD-T004 for an unknown
    transformation. Places and parameters are checked when the move is.
    """
    name, place, given = _split(text)
    transformation = rules.transformation(name)
    wanted = {p.name: p.type for p in transformation.parameters}
    values = {key: _typed(key, value, wanted.get(key, str)) for key, value in given.items()}
    return Move.of(name, place, transformation.version, **values)


def _split(text: str) -> tuple[str, str, dict[str, str]]:
    """Name, place and parameters of a move, as words."""
    if len(text) > MAX_CHARACTERS:
        raise MoveError("PD-C002", f"a move has at most {MAX_CHARACTERS} characters", hint=_FORM)
    if "\n" in text or not text.isprintable():
        raise MoveError("PD-C002", "a move is one line of printable characters", hint=_FORM)
    head = _HEAD.match(text)
    if not head:
        _fail(text, 0, "a move starts with a transformation's name and a bracket")
    place = _PLACE.match(text, head.end())
    if not place:
        _fail(text, head.end(), "expected a place: the id of a scope or statement, or a buffer's name")
    position, given = place.end(), dict[str, str]()
    while key := _KEY.match(text, position):
        value = _VALUE.match(text, key.end())
        if not value or not value[1]:
            _fail(text, key.end(), f"expected a value for {key[1]}")
        if key[1] in given:
            _fail(text, key.start(1), f"{key[1]} is given twice")
        given[key[1]] = value[1]
        position = value.end()
    if text[position:].strip() != ")":
        _fail(text, position, "expected ', key=value' or the closing bracket")
    return head[1], place[1], given


_FORM = "a move reads NAME(PLACE, KEY=VALUE, ...), for example split_scope(s0, factor=16)"


def _typed(key: str, value: str, wanted: type[int] | type[str]) -> int | str:
    """A word where an integer is wanted stays a word: the transformation refuses it with its own error."""
    if wanted is not int or not _INTEGER.fullmatch(value):
        return value
    if len(value) > _MOST_DIGITS or abs(int(value)) > MAX_INTEGER:
        hint = f"whole numbers go from {-MAX_INTEGER} to {MAX_INTEGER}"
        raise MoveError("PD-C002", f"{key}={value[:40]} is out of range", hint=hint)
    return int(value)


def _fail(text: str, position: int, what: str) -> NoReturn:
    place = SourceSpan(1, min(position, len(text)) + 1, text)
    raise MoveError("PD-C002", what, place=place, hint=_FORM)

"""Tokenizer: splits a program's text into independent lines, and these into tokens.

A line means little without what is declared elsewhere. So each line carries its *surroundings*: the heads of
the scopes around it, and what is declared of the arrays in it. Arrays are numbered in the order of their
declaration: how a program calls them is no part of what it does. A line with equal surroundings has equal
tokens in any program, which is what lets the encoder keep what it worked out for it.

Any text has lines and tokens, whether it is a program or not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from math import log2
from typing import NamedTuple, TypeAlias

from perfdojo_sdk.core.storage import PACKED
from perfdojo_sdk.perfllm.encoder.vocabulary import ARRAYS, BUFFER, LINE, OTHER, Vocabulary

#: Characters of a line, and of the heads around it; a longer line becomes several.
MOST_CHARACTERS = 512
#: Magnitudes are logarithms over this, so that they are of the size of the other numbers in the model.
_SCALE = 8.0

_HEADS = re.compile(r"\d+(?::[A-Za-z_]\w*)?(?= |$)(?: \d+(?::[A-Za-z_]\w*)?(?= |$))*", re.ASCII)
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_DECLARATION = re.compile(rf"([A-Za-z_]\w*) (?:{PACKED} )?(\w+) \[([^\]]*)\] (\w+)(?: -> (.*))?", re.ASCII)
_TOKEN = re.compile(
    r"\{(?P<iterator>\d+)\}"
    r"|(?P<suffix>:[A-Za-z_]\w*)"
    r"|(?P<fraction>\d+\.\d*(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+)"
    r"|(?P<number>\d+)"
    r"|(?P<word>[A-Za-z_]\w*=(?!=)|[A-Za-z_]\w*)"
    r"|(?P<sign>->|//|[<>=!+*]=|[-+*/%<>=()\[\]{},:|])"
    r"|(?P<other>[^ \t])",
    re.ASCII,
)


class Declared(NamedTuple):
    """The declaration of an array."""

    number: int
    """Index in the order of declaration."""
    dtype: str
    location: str
    magnitude: float
    """Magnitude of the number of stored cells."""


class Line(NamedTuple):
    """A line and its surroundings: all that its tokens depend on."""

    heads: str
    """The heads of the lines around it, outermost first."""
    text: str
    arrays: tuple[tuple[str, Declared], ...]
    """Name -> what is declared, for the arrays in it."""


class Token(NamedTuple):
    """One token with what is known of it from elsewhere; 0 where nothing is.

    An array has its dtype, location and cells, an iterator the suffix and the size of its scope, a number
    its value.
    """

    token: int
    about: int = 0
    place: int = 0
    magnitude: float = 0.0


Declarations: TypeAlias = Mapping[str, Declared]


def lines_of(text: str) -> list[Line]:
    """The lines of a program, those of its declarations included."""
    top, _, body = text.partition("\n\n")
    found, declared = _declarations(top)
    lines = list(found)
    around: list[str] = []
    for raw in body.split("\n"):
        if not raw:
            continue
        depth, head, pieces = _pieces(raw)
        # A line of a text that is no program may be deeper than what stands around it.
        heads = " ".join(around[:depth])[-MOST_CHARACTERS:]
        del around[depth:]
        around.append(head)
        for piece, names in pieces:
            arrays = tuple([(name, declared[name]) for name in names if name in declared])
            lines.append(Line(heads, piece, arrays))
    return lines or [Line("", "", ())]


@lru_cache(maxsize=1 << 15)
def _pieces(raw: str) -> tuple[int, str, tuple[tuple[str, tuple[str, ...]], ...]]:
    """The depth of a line, its scope headers, and its text in pieces with the names in each."""
    text = raw.lstrip("| ")
    depth = raw[: len(raw) - len(text)].count("|")
    head = _HEADS.match(text)
    pieces = [text[k : k + MOST_CHARACTERS] for k in range(0, len(text), MOST_CHARACTERS)]
    named = tuple([(piece, tuple(dict.fromkeys(_NAME.findall(piece)))) for piece in pieces])
    return depth, head.group() if head else "", named


@lru_cache(maxsize=1 << 12)
def _declarations(top: str) -> tuple[tuple[Line, ...], Declarations]:
    """The lines above the body, and what they declare."""
    declared: dict[str, Declared] = {}
    for raw in top.split("\n"):
        match = _DECLARATION.match(raw)
        if match:
            name, dtype, shape, location, arrays = match.groups()
            magnitude = _magnitude(_cells(shape))
            for array in _NAME.findall(arrays) if arrays else [name]:
                declared[array] = Declared(len(declared), dtype, location, magnitude)
    lines = []
    for raw in top.split("\n"):
        for piece, names in _pieces(raw)[2]:
            lines.append(Line("", piece, tuple([(n, declared[n]) for n in names if n in declared])))
    return tuple(lines), declared


def _cells(shape: str) -> int:
    """The product of the dimensions without a suffix."""
    cells = 1
    for dimension in shape.split(","):
        cells *= int(dimension) if dimension.isascii() and dimension.isdigit() and len(dimension) < 19 else 1
    return cells


def _magnitude(value: float) -> float:
    return log2(1 + min(value, 1e30)) / _SCALE


def tokens_of(line: Line, vocabulary: Vocabulary) -> list[Token]:
    """The tokens of a line, ``<line>`` first; never empty."""
    arrays, levels = dict(line.arrays), list(_levels(line, vocabulary))
    found = [Token(vocabulary.ids[LINE])]
    whole = f"{line.heads} | {line.text}" if line.heads else line.text
    for match in _TOKEN.finditer(whole):
        kind, spelled = match.lastgroup, match.group(match.lastgroup or 0)
        if kind == "iterator":
            found.append(_iterator(spelled, levels, vocabulary))
        elif kind == "suffix":
            found.append(Token(vocabulary.suffix(spelled)))
        elif kind == "fraction":
            found.append(Token(vocabulary.fraction(spelled), magnitude=_magnitude(float(spelled))))
        elif kind == "number":
            first, *digits = vocabulary.number(spelled)
            found.append(Token(first, magnitude=_magnitude(float(spelled))))
            found.extend(map(Token, digits))
        elif spelled in arrays:
            found.append(_array(arrays[spelled], vocabulary))
        elif kind == "word":
            found.append(Token(_word(spelled, line, vocabulary)))
        else:
            found.append(Token(vocabulary.ids.get(spelled, vocabulary.ids[OTHER])))
    return found


def _levels(line: Line, vocabulary: Vocabulary) -> Iterator[tuple[int, float]]:
    """Suffix and magnitude of each scope around a statement, outermost first."""
    own = _HEADS.match(line.text)
    for head in f"{line.heads} {own.group() if own else ''}".split():
        size, _, suffix = head.partition(":")
        yield vocabulary.suffix(f":{suffix}") if suffix else 0, _magnitude(float(size))


def _iterator(number: str, levels: list[tuple[int, float]], vocabulary: Vocabulary) -> Token:
    token = vocabulary.ids.get(f"{{{number}}}", vocabulary.ids[OTHER])
    level = int(number) if len(number) < 6 else len(levels)
    return Token(token, 0, *levels[level]) if level < len(levels) else Token(token)


def _array(array: Declared, vocabulary: Vocabulary) -> Token:
    token = vocabulary.ids[f"array{array.number % ARRAYS}"]
    place = vocabulary.location(array.location)
    return Token(token, vocabulary.word(array.dtype), place, array.magnitude)


def _word(word: str, line: Line, vocabulary: Vocabulary) -> int:
    """A word that is no array: of the language, a location, or how a kernel or a shared buffer is called."""
    if not line.text.startswith("kernel ") and not _DECLARATION.match(line.text):
        return vocabulary.word(word)
    ids = vocabulary.ids
    return ids.get(f"@{word}", ids.get(word, ids[BUFFER]))

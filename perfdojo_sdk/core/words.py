"""Sentences for people: counted things, and words filled into a sentence."""

from __future__ import annotations

import re
from collections.abc import Mapping

#: A number of things in a sentence that has a name in place of the number.
_THINGS = "iterations|statements|elements|cells|operations|lanes|nodes|bytes|times"
_COUNTED = re.compile(rf"\{{(\w+)\}} ({_THINGS})\b")


def number_of(count: int, things: str) -> str:
    """``things`` counted: ``number_of(2, "legal moves")`` is "2 legal moves", and of one "1 legal move"."""
    return f"{count} {things.removesuffix('s') if count == 1 else things}"


def filled(sentence: str, words: Mapping[str, object]) -> str:
    """``sentence`` with the words in place of their names: ``{size} iterations`` may become "1 iteration".

    KeyError, IndexError, ValueError and others of ``str.format`` where words do not fit.
    """

    def counted(found: re.Match[str]) -> str:
        count = words.get(found[1])
        return number_of(count, found[2]) if type(count) is int and count == 1 else found[0]

    return _COUNTED.sub(counted, sentence).format(**words)

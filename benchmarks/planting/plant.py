"""A fault, written once as a pattern over emitted text, and the places of one source where it applies."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Literal, TypeAlias

from perfdojo_sdk.codegen.names import c_name
from perfdojo_sdk.hookspecs.types import KernelSource

Shows: TypeAlias = Literal["values", "reads", "execution"]
Change: TypeAlias = str | Callable[["re.Match[str]"], str]

#: Languages of sources -> the family whose plants fit them.
FAMILIES = {"c": "c", "cu": "gpu", "hip": "gpu", "s": "assembly"}

#: Marks a place in a text, before it; no emitted text contains it.
MARK = "¶"

_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)


@dataclass(frozen=True)
class Plant:
    """One fault; with a source and a place in it, one planted kernel."""

    kind: str
    """The kind of fault; several plants may share it."""
    name: str
    families: tuple[str, ...]
    pattern: str
    """Regular expression (multi-line); each of its matches outside of comments is a place."""
    change: Change
    """The replacement: a template, or a function of the match."""
    file: str = ""
    """Regular expression of the support files to plant in; empty: the source itself."""
    needs: str = ""
    """Pattern that the source's code must match for the fault to matter."""
    unless: str = ""
    """Pattern of support files: if one matches, the fault cannot matter."""
    helper: str = ""
    """Definitions that the planted text calls; they follow the source's includes."""
    shows: Shows = "values"
    """The evidence that shows the fault: outputs; inaccessible pages beside the arrays, for values read and
    not used; or only the way of calling the kernel, in which case equal outputs prove nothing."""


@dataclass(frozen=True)
class Place:
    """One match of a plant's pattern."""

    file: str
    """Empty: the source itself."""
    start: int
    end: int
    planted: str

    def line(self, text: str) -> str:
        """The line it starts on, stripped."""
        return text[text.rfind("\n", 0, self.start) + 1 :].partition("\n")[0].strip()

    def marked(self, source: KernelSource) -> str:
        """The text that it is in, with ``MARK`` before it."""
        text = source.support[self.file] if self.file else source.code
        return text[: self.start] + MARK + text[self.start :]


def places(plant: Plant, source: KernelSource) -> list[Place]:
    """The places to which the plant applies and where it changes the text; none where it does not matter."""
    if FAMILIES.get(source.language) not in plant.families:
        return []
    if plant.needs and not re.search(plant.needs, without_comments(source.code), re.MULTILINE):
        return []
    if plant.unless and any(re.search(plant.unless, text) for text in source.support.values()):
        return []
    files: Iterable[tuple[str, str]] = [("", source.code)]
    if plant.file:
        files = [(n, t) for n, t in sorted(source.support.items()) if re.fullmatch(plant.file, n)]
    return [place for name, text in files for place in _matches(plant, name, text)]


def _matches(plant: Plant, name: str, text: str) -> Iterable[Place]:
    for match in re.finditer(plant.pattern, without_comments(text), re.MULTILINE):
        planted = plant.change(match) if callable(plant.change) else match.expand(plant.change)
        if planted != match[0]:
            yield Place(name, match.start(), match.end(), planted)


def without_comments(text: str) -> str:
    """The same text with blanks in place of comments, so that places stay where they are."""
    return _COMMENT.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), text)


def planted(plant: Plant, source: KernelSource, place: Place) -> KernelSource:
    """The source with the fault in it."""
    code, support = source.code, dict(source.support)
    text = support[place.file] if place.file else code
    text = text[: place.start] + place.planted + text[place.end :]
    if place.file:
        support[place.file] = text
    else:
        code = text
    if helper := _cells(source, place.planted) + plant.helper:
        code = _after_includes(code, helper)
    return replace(source, code=code, support=support)


def _cells(source: KernelSource, planted: str) -> str:
    """Definitions of ``PD_CELLS_x``, the number of elements of array ``x``, for those that are mentioned."""
    arrays = {c_name(array.name): prod(array.shape) for array in (*source.inputs, *source.outputs)}
    named = [name for name in arrays if re.search(rf"\bPD_CELLS_{name}\b", planted)]
    return "".join(f"#define PD_CELLS_{name} {arrays[name]}\n" for name in named)


def _after_includes(code: str, helper: str) -> str:
    last = list(re.finditer(r"^#include .*\n", code, re.MULTILINE))[-1]
    return code[: last.end()] + helper + "\n" + code[last.end() :]


def more(group: int, by: int) -> Callable[[re.Match[str]], str]:
    """The match with one of its groups, a whole number, changed by so much."""

    def change(match: re.Match[str]) -> str:
        return instead(match, group, str(int(match[group]) + by))

    return change


def times(group: int, factor: float) -> Callable[[re.Match[str]], str]:
    """The match with one of its groups, a decimal number, multiplied."""

    def change(match: re.Match[str]) -> str:
        return instead(match, group, f"{float(match[group]) * factor:.9g}")

    return change


def instead(match: re.Match[str], group: int, text: str) -> str:
    """The match with other text for one of its groups."""
    start, end = match.start(group) - match.start(), match.end(group) - match.start()
    return match[0][:start] + text + match[0][end:]


def unique(plants: Sequence[Plant]) -> tuple[Plant, ...]:
    """The plants, each name once; ValueError otherwise."""
    names = [plant.name for plant in plants]
    if twice := {name for name in names if names.count(name) > 1}:
        raise ValueError(f"two plants of one name: {', '.join(sorted(twice))}")
    return tuple(plants)

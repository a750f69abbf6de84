"""Sizes that a model declares for its inputs, beside those that a user gives; open ones are names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

Sizes: TypeAlias = Sequence[int | str]


def fits(given: Sizes, declared: Sizes) -> bool:
    """True if sizes differ from those that a model declares only where these are open."""
    pairs = zip(given, declared, strict=False)
    return len(given) == len(declared) and all(isinstance(d, str) or g == d for g, d in pairs)


def text_of(sizes: Sizes) -> str:
    """Sizes for a message."""
    return f"[{','.join(ascii(str(size))[1:-1][:80] for size in sizes[:16])}]"


def renamed(declared: Mapping[str, Sizes], given: Mapping[str, Sizes]) -> dict[str, tuple[int | str, ...]]:
    """The declared sizes, where an open one has the name or number that a user gives it for any input."""
    names = {
        old: new
        for name, sizes in given.items()
        for old, new in zip(declared.get(name, ()), sizes, strict=False)
        if isinstance(old, str)
    }
    return {n: tuple(names.get(s, s) if isinstance(s, str) else s for s in d) for n, d in declared.items()}

"""Words of what is said to people."""

from __future__ import annotations


def number_of(count: int, things: str) -> str:
    """``things`` counted: ``number_of(2, "legal moves")`` is "2 legal moves", and of one "1 legal move"."""
    return f"{count} {things.removesuffix('s') if count == 1 else things}"

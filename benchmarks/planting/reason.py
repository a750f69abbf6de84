"""The form of a reason why a fault cannot show."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Reason:
    """Regular expressions of the whole of a plant's name and of an operator, and of parts of the line."""

    plants: str
    operators: str
    line: str
    why: str
    around: str = ""
    """Regular expression of the whole file (multi-line); ``¶`` stands where the fault is planted."""

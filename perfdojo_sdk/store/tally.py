"""How many records came in, and how many were there already."""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Tally:
    new: int = 0
    replaced: int = 0
    """Were there, of an earlier time."""
    kept: int = 0
    """Were there, as they came in or of a later time."""

    def __add__(self, other: Tally) -> Tally:
        return Tally(self.new + other.new, self.replaced + other.replaced, self.kept + other.kept)

    def as_json(self) -> dict[str, int]:
        return asdict(self)

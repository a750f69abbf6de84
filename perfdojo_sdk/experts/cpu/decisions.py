"""What a plan is: games, and the decisions behind them as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from perfdojo_sdk.core.transformation import Trace

Number = int | float | str


@dataclass(frozen=True)
class Decision:
    """One choice of the planner."""

    rule: str
    """The rule that made it."""
    place: str
    """Id of the node or name of the array that it is about; empty: the whole program."""
    choice: str
    reason: str
    numbers: Mapping[str, Number] = field(default_factory=dict)
    """The figures that the rule compared."""

    def as_json(self) -> dict[str, object]:
        return {
            "rule": self.rule,
            "place": self.place,
            "choice": self.choice,
            "reason": self.reason,
            "numbers": dict(self.numbers),
        }


@dataclass(frozen=True)
class Plan:
    """The games that the planner proposes for a program, likeliest first, and why."""

    decisions: tuple[Decision, ...]
    games: tuple[Trace, ...]

"""Players of the game: each proposes games, and is told their times.

A *strategy* is a kind of search, registered once; a *player* is one search in progress. The caller
compiles, verifies and measures; a player only proposes. The same task, seed and results lead to
the same proposals, and a player that is started again from its own state goes on as if it had never
stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias, runtime_checkable

from perfdojo_sdk.core.program import Program
from perfdojo_sdk.core.transformation import Kind, Rules, Trace
from perfdojo_sdk.hookspecs.types import Failure, HeuristicPass, Target

#: A player's memory as JSON values (objects, arrays, strings, numbers, booleans, null).
State: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True)
class SearchTask:
    """One program to make fast."""

    root: Program
    """The initial program; every proposal is a game on it."""
    rules: Rules = field(repr=False)
    target: Target
    """The target, with the figures of the machine at hand."""
    seed: int = 0
    """The seed of all random choices."""
    most: Kind = Kind.DECLARED_LAW
    """The most that a move may change; proposals beyond it are not evaluated."""
    expert: HeuristicPass | None = field(default=None, repr=False)
    """The target's own pass, when it has one."""
    evaluations: int = 1000
    """The most evaluations of the whole search; a player may plan by it."""
    options: Mapping[str, str] = field(default_factory=dict)
    """The user's options for this kind of search, for example the file of a trained agent."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """Plugin -> version and hash, for those that contribute to the target."""


@dataclass(frozen=True)
class Evaluation:
    """The result of one proposal."""

    trace: Trace
    seconds: float | None
    """Median of the timed calls; None when it failed."""
    failure: Failure | None = None


@runtime_checkable
class Player(Protocol):
    """One search in progress."""

    def propose(self, count: int) -> Sequence[Trace]:
        """At most ``count`` games to evaluate next; none when the player is finished."""
        ...

    def observe(self, evaluations: Sequence[Evaluation]) -> None:
        """Take note of the results of the games proposed last, in their order."""
        ...

    def state(self) -> State:
        """The memory that a later start needs to go on; asked for only after :meth:`observe`."""
        ...


@dataclass(frozen=True)
class SearchStrategy:
    """A way to search, for any target and program."""

    name: str
    """A plugin's own starts with its prefix and a slash: ``toy/walk``."""
    doc: str
    """One sentence."""
    start: Callable[[SearchTask, State | None], Player] = field(repr=False)
    """A new player, or one that goes on from the state of an earlier one."""

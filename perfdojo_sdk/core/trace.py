"""Games as values: the initial program and the steps played so far."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import ClassVar, Protocol

from perfdojo_sdk.core.frozen import frozen
from perfdojo_sdk.core.made import NOTHING, Made
from perfdojo_sdk.core.move import Kind, Move
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.core.requirement import Legal


@frozen
class Step:
    """One applied move with everything that verification needs to look at it again."""

    before: Program
    move: Move
    legal: Legal
    after: Program
    package: str = ""
    """Python package that brings the transformation; empty: the SDK."""
    made: Made = field(default=NOTHING, compare=False)
    """The new ids by role, and what became of old ones: what the rewrite says of itself."""

    def as_json(self) -> dict[str, object]:
        move = self.move.as_json()
        return {**move, "package": self.package} if self.package else move


class PlaysMoves(Protocol):
    """The part of a game's rules that a trace needs: to play a move."""

    def step(self, program: Program, move: Move) -> Step:
        """The move played; :class:`MoveError` when it is not legal."""


@dataclass(frozen=True)
class Trace:
    """A game: the initial program and the steps played so far."""

    root: Program
    steps: tuple[Step, ...] = ()

    SCHEMA: ClassVar[int] = 2

    @property
    def program(self) -> Program:
        return self.steps[-1].after if self.steps else self.root

    @property
    def moves(self) -> tuple[Move, ...]:
        return tuple(s.move for s in self.steps)

    @property
    def kind(self) -> Kind:
        return max((s.legal.kind for s in self.steps), default=Kind.EXACT)

    @property
    def laws(self) -> frozenset[str]:
        return frozenset(law for s in self.steps for law in s.legal.laws)

    def play(self, rules: PlaysMoves, move: Move) -> Trace:
        """The trace with one more move; :class:`MoveError` when it is not legal."""
        return replace(self, steps=(*self.steps, rules.step(self.program, move)))

    def play_all(self, rules: PlaysMoves, moves: Iterable[Move]) -> Trace:
        trace = self
        for move in moves:
            trace = trace.play(rules, move)
        return trace

    def as_json(self) -> dict[str, object]:
        return {
            "schema": self.SCHEMA,
            "root": self.root.text,
            "moves": [s.as_json() for s in self.steps],
        }

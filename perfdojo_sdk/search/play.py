"""A game in the hands of a pass: play what is legal, look at the program, go on."""

from __future__ import annotations

from dataclasses import replace

from perfdojo_sdk.core.errors import MoveError
from perfdojo_sdk.core.program import Node, Path, Program, Scope, Statement
from perfdojo_sdk.core.transformation import Kind, Move, Rejection, Rules, Step, Trace


class Play:
    """A trace that grows. ``most`` bounds the kind of move that the pass may use."""

    def __init__(self, root: Program, rules: Rules, most: Kind = Kind.DECLARED_LAW) -> None:
        self.rules, self.most, self.trace = rules, most, Trace(root)

    @property
    def program(self) -> Program:
        return self.trace.program

    def may(self, transformation: str, place: str, **parameters: int | str) -> bool:
        """Play the move if it is legal; say whether it was."""
        return isinstance(self._attempt(transformation, place, **parameters), Step)

    def must(self, transformation: str, place: str, **parameters: int | str) -> Program:
        """Play the move; :class:`MoveError` when it is not legal."""
        result = self._attempt(transformation, place, **parameters)
        if isinstance(result, Rejection):
            raise result.error()
        return self.program

    def _attempt(self, transformation: str, place: str, **parameters: int | str) -> Step | Rejection:
        move = Move(transformation, place, tuple(sorted(parameters.items())))
        result = self.rules.attempt(self.program, move)
        if isinstance(result, Step):
            if result.legal.kind > self.most:
                what = f"{move.text} {result.legal.kind.label}, the pass may not"
                raise MoveError("PD-T006", what, hint="allow moves of this kind")
            self.trace = replace(self.trace, steps=(*self.trace.steps, result))
        return result

    # -- looking: MoveError for what is not there, as from a move there ----------------------------

    def node(self, place: str) -> Node:
        return self.program.node(self._path(place))

    def scope(self, place: str) -> Scope:
        node = self.node(place)
        if not isinstance(node, Scope):
            raise MoveError("PD-T001", f"{place} is no scope")
        return node

    def around(self, place: str) -> tuple[Scope, ...]:
        """The scopes above a node, outermost first."""
        return self.program.ancestors(self._path(place))

    def _path(self, place: str) -> Path:
        path = self.program.paths.get(place)
        if path is None:
            raise MoveError("PD-T001", f"the program has no {place}")
        return path

    def scopes(self) -> list[Scope]:
        """Every scope, parents before children."""
        return [node for _, node in self.program.walk() if isinstance(node, Scope)]

    def statements(self) -> list[Statement]:
        return [node for _, node in self.program.walk() if isinstance(node, Statement)]

    def innermost(self) -> list[Scope]:
        """Scopes that hold statements only."""
        return [s for s in self.scopes() if all(isinstance(c, Statement) for c in s.body)]

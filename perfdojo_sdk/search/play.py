"""A game in the hands of a pass: play what is legal, look at the program, go on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from perfdojo_sdk.core.dialect import ScopeSuffix
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

    def annotate(self, place: str, suffix: str) -> bool:
        """Map a scope to hardware if that is legal; no where the target has nothing of the kind (``""``)."""
        return bool(suffix) and self.may("annotate_scope", place, suffix=suffix)

    # -- what the target has, by what it means and not by its name: "" for nothing ------------------

    @property
    def threads(self) -> str:
        """The suffix that gives iterations to threads."""
        return self._suffix(lambda s: s.order == "parallel")

    @property
    def lanes(self) -> str:
        """The suffix that makes iterations lanes of a vector."""
        return self._suffix(lambda s: s.order == "lockstep")

    @property
    def written_out(self) -> str:
        """The suffix that writes each iteration out."""
        return self._suffix(lambda s: s.order == "sequential" and s.unrolled)

    def _suffix(self, fits: Callable[[ScopeSuffix], bool]) -> str:
        return next((s.name for s in self.rules.dialect.suffixes.values() if fits(s)), "")

    @property
    def near_locations(self) -> list[str]:
        """Where a function keeps its own values: registers first, then small arrays."""
        plain = [
            place
            for place in self.rules.dialect.locations.values()
            if not place.shared
            and not (place.copy_out_only or place.fetch_ahead or place.lead_bytes or place.past_caches)
        ]
        return [place.name for place in sorted(plain, key=lambda place: not place.constant_subscripts)]

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

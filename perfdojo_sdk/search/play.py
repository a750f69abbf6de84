"""A game that a pass plays: it plays a legal move, looks at the program, and goes on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeVar

from perfdojo_sdk.core.dialect import ScopeSuffix
from perfdojo_sdk.core.errors import MoveError
from perfdojo_sdk.core.made import Collapsed, Copied, Cut, Halves, Made, Staged
from perfdojo_sdk.core.program import Node, Path, Program, Scope, Statement
from perfdojo_sdk.core.transformation import Move, Rejection, Rules, Step, Trace

M = TypeVar("M", bound=Made)


class Play:
    """A trace that grows by moves of the kinds that ``rules.most`` allows.

    Moves return the ids that they made. A pass uses these, so that it goes on at the right place even if a
    move chose another name because the usual one was taken.
    """

    def __init__(self, root: Program, rules: Rules) -> None:
        self.rules, self.trace = rules, Trace(root)

    @property
    def program(self) -> Program:
        return self.trace.program

    def may(self, transformation: str, place: str, **parameters: int | str) -> Made | None:
        """Play the move if it is legal, and of a kind that is allowed; returns what it made, or None."""
        result = self.rules.attempt(self.program, _move(transformation, place, parameters))
        if isinstance(result, Rejection) or result.legal.kind > self.rules.most:
            return None
        return self._played(result)

    def must(self, transformation: str, place: str, **parameters: int | str) -> Made:
        """Play the move and return what it made; :class:`MoveError` where :meth:`may` does not play it."""
        result = self.rules.attempt(self.program, _move(transformation, place, parameters))
        if isinstance(result, Rejection):
            raise result.error()
        if result.legal.kind > self.rules.most:
            what = f"{result.move.text} {result.legal.kind.label}, the pass may not"
            raise MoveError("PD-T006", what, hint="allow moves of this kind")
        return self._played(result)

    def _played(self, step: Step) -> Made:
        self.trace = replace(self.trace, steps=(*self.trace.steps, step))
        return step.made

    def annotate(self, place: str, suffix: str) -> bool:
        """Map a scope to hardware; false if that is not legal, or the target has no such suffix (``""``)."""
        return bool(suffix) and self.may("annotate_scope", place, suffix=suffix) is not None

    # -- moves that make something: what they made; MoveError when they are not legal ---------------

    def split(self, place: str, factor: int) -> tuple[str, str]:
        """The outer scope, and the inner one of ``factor`` iterations."""
        return self._making(Halves, "split_scope", place, factor=factor).scopes

    def split_range(self, place: str, at: int) -> tuple[str, str]:
        """The scope of the first ``at`` iterations, and the one of the others."""
        first, second = self._making(Copied, "split_range", place, at=at).parts
        return first, second

    def collapse(self, place: str) -> str:
        """The one scope that this one and the only one inside it become."""
        return self._making(Collapsed, "collapse_scopes", place).whole

    def fission(self, place: str) -> str:
        """The new scope, around the node at ``place`` and what follows it; what stands before it stays."""
        return self._making(Cut, "fission_scope", place).second

    def stage(self, transformation: str, place: str, array: str) -> Staged:
        """The new buffer of one of the moves that stage an array, and the nests that copy."""
        return self._making(Staged, transformation, place, array=array)

    def split_reduction(self, place: str, lane: str) -> tuple[str, str]:
        """The nests that start and that combine the partial results."""
        start, combine = self._making(Staged, "split_reduction", place, lane=lane).nests
        return start.top, combine.top

    def _making(self, kind: type[M], transformation: str, place: str, **parameters: int | str) -> M:
        made = self.must(transformation, place, **parameters)
        assert isinstance(made, kind), f"{transformation} makes no {kind.__name__}"
        return made

    # -- what the target has, by what it means and not by its name: "" for nothing ------------------

    @property
    def threads(self) -> str:
        """The suffix that gives iterations to threads."""
        return self._suffix(lambda s: s.order == "parallel")

    @property
    def lanes(self) -> str:
        """The suffix that makes iterations lanes of a vector."""
        return self._suffix(lambda s: s.order == "lockstep" and not s.gathers)

    @property
    def gathering_lanes(self) -> str:
        """The suffix of lanes that read from an address of their own each."""
        return self._suffix(lambda s: s.gathers)

    @property
    def written_out(self) -> str:
        """The suffix that writes each iteration out."""
        return self._suffix(lambda s: s.order == "sequential" and s.unrolled)

    def _suffix(self, fits: Callable[[ScopeSuffix], bool]) -> str:
        return next((s.name for s in self.rules.dialect.suffixes.values() if fits(s)), "")

    @property
    def near_locations(self) -> list[str]:
        """The locations for a function's own values: registers first, then small arrays."""
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


def _move(transformation: str, place: str, parameters: Mapping[str, int | str]) -> Move:
    return Move(transformation, place, tuple(sorted(parameters.items())))

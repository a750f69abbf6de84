"""Guards around a plugin's transformations: a fault refuses the move, and names the plugin."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

from perfdojo_sdk.core.dialect import Dialect
from perfdojo_sdk.core.errors import MoveError
from perfdojo_sdk.core.frozen import frozen
from perfdojo_sdk.core.made import Rewritten
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.core.transformation import (
    Checked,
    Move,
    Refusal,
    Rejection,
    Relation,
    Requirement,
    Rules,
    Site,
    Transformation,
)
from perfdojo_sdk.plugins.calls import shown
from perfdojo_sdk.plugins.faults import PluginFault, guarded, note

#: Most moves of one kind that are offered for a program.
MOST_MOVES = 100_000

_FAULT = Requirement[Any](
    "PD-G030",
    "a plugin's code failed",
    "{line}",
    "report it to the plugin; --debug shows where it happened",
    lambda site: None,
)


@frozen
class _FaultySite(Site):
    """A site that the plugin failed to look up."""

    fault: str = ""


@frozen
class _Played:
    """The facts of the plugin's move, and the program that its rewrite made of them."""

    facts: object
    made: Program | Rewritten


class GuardedTransformation(Transformation):
    """A guard around a transformation of ``plugin``, with the same name, parameters and other attributes."""

    def __init__(self, plugin: str, inner: Transformation) -> None:
        self.plugin, self.inner = plugin, inner
        self.requirements = inner.requirements
        for name in ("name", "version", "place", "parameters", "undo"):
            vars(self)[name] = getattr(inner, name)

    @property
    def doc(self) -> str:
        return self.inner.doc

    def candidates(self, program: Program, dialect: Dialect) -> Iterator[Move]:
        """The transformation's moves; none if it fails."""
        try:
            found = guarded(
                self.plugin,
                self._part("candidates"),
                lambda: tuple(islice(self.inner.candidates(program, dialect), MOST_MOVES + 1)),
                everywhere=False,
            )
        except PluginFault:
            return iter(())
        strange = next((each for each in found if not _is_move_of(each, self.name)), None)
        if strange is not None:
            note(self.plugin, f"its {self._part('candidates')} gave {shown(strange)}, expected its moves")
            return iter(())
        if len(found) > MOST_MOVES:
            note(self.plugin, f"its {self._part('candidates')} gave more than {MOST_MOVES} moves")
            return iter(())
        return iter(found)

    def site(self, program: Program, move: Move, dialect: Dialect) -> Site:
        """The site, or :class:`MoveError` as usual; if the plugin fails, a site that :meth:`checked`
        refuses."""
        try:
            return guarded(
                self.plugin,
                self._part("site"),
                lambda: self.inner.site(program, move, dialect),
                everywhere=False,
            )
        except PluginFault as fault:
            return _FaultySite(program, move, dialect, fault=fault.what)

    def checked(self, site: Site) -> Checked | Rejection:
        """The transformation's answer. The rewrite is done here, too, since its failure refuses the move."""
        if isinstance(site, _FaultySite):
            line = site.fault
        else:
            try:
                return guarded(self.plugin, self._part("check"), lambda: self._played(site), everywhere=False)
            except PluginFault as fault:
                line = fault.what
        return Rejection(_FAULT, Refusal.of(line=line), site.program, site.move)

    def _played(self, site: Site) -> Checked | Rejection:
        answer: object = self.inner.checked(site)
        if isinstance(answer, Rejection):
            return answer
        if not isinstance(answer, Checked):
            raise TypeError(f"its answer is {shown(answer)}")
        made: object = self.inner.rewrite(answer.facts)
        if not isinstance(made, Program | Rewritten):
            raise TypeError(f"its rewrite returned {shown(made)}, expected a program")
        return Checked(_Played(answer.facts, made), answer.legal)

    def rewrite(self, facts: _Played, /) -> Program | Rewritten:
        """The program that the check has made already."""
        return facts.made

    def relation(self, facts: _Played, result: Program, /) -> Relation:
        """The transformation's relation; :class:`PluginFault` if it fails."""
        return guarded(self.plugin, self._part("relation"), lambda: self.inner.relation(facts.facts, result))

    def upgrade(self, move: Move) -> Move | None:
        """The transformation's upgrade of a move; :class:`MoveError` if it fails."""
        try:
            return guarded(self.plugin, self._part("upgrade"), lambda: self.inner.upgrade(move))
        except PluginFault as fault:
            raise MoveError(fault.code, fault.what, hint=fault.hint) from fault

    def without(self, code: str) -> Transformation:
        return GuardedTransformation(self.plugin, self.inner.without(code))

    def _part(self, what: str) -> str:
        return f"transformation {self.name} ({what})"


def unguarded(rules: Rules) -> Rules:
    """The same rules without guards, so that errors of transformations are raised: to look for faults."""
    bare = {
        name: each.inner if isinstance(each, GuardedTransformation) else each
        for name, each in rules.transformations.items()
    }
    return replace(rules, transformations=bare)


def _is_move_of(found: object, transformation: str) -> bool:
    return isinstance(found, Move) and found.transformation == transformation

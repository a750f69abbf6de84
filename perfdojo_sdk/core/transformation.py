"""Moves: one small transformation at one place, offered only when it provably keeps the meaning.

A transformation is an *analysis* of a place, a list of *requirements*, a *rewrite* and an *instance
relation*. The analysis finds the facts, once; the others read them. The list is the check: it drives
enumeration, ``explain`` and ``apply``; it generates the documentation; and taking one requirement out
makes the mutant that verification must catch.

The names that a transformation is written with are all here, whichever file of the core has them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from inspect import getdoc
from typing import Any, ClassVar, Generic, NamedTuple, TypeAlias, TypeVar

from perfdojo_sdk.core.dialect import Dialect
from perfdojo_sdk.core.errors import MoveError, closest
from perfdojo_sdk.core.frozen import frozen, lazy
from perfdojo_sdk.core.made import NOTHING, Rewritten
from perfdojo_sdk.core.move import Kind as Kind
from perfdojo_sdk.core.move import Move as Move
from perfdojo_sdk.core.program import Node, Path, Program, Scope, Statement
from perfdojo_sdk.core.relation import Bundle as Bundle
from perfdojo_sdk.core.relation import Correction as Correction
from perfdojo_sdk.core.relation import Definition as Definition
from perfdojo_sdk.core.relation import Instance as Instance
from perfdojo_sdk.core.relation import Joined as Joined
from perfdojo_sdk.core.relation import Origin as Origin
from perfdojo_sdk.core.relation import PartialCombine as PartialCombine
from perfdojo_sdk.core.relation import PartialStart as PartialStart
from perfdojo_sdk.core.relation import PointProduct as PointProduct
from perfdojo_sdk.core.relation import Relation as Relation
from perfdojo_sdk.core.relation import Remainder as Remainder
from perfdojo_sdk.core.relation import Removed as Removed
from perfdojo_sdk.core.relation import ScaledCombine as ScaledCombine
from perfdojo_sdk.core.requirement import NO_MOVE as NO_MOVE
from perfdojo_sdk.core.requirement import Legal as Legal
from perfdojo_sdk.core.requirement import Objection as Objection
from perfdojo_sdk.core.requirement import Refusal as Refusal
from perfdojo_sdk.core.requirement import Rejection as Rejection
from perfdojo_sdk.core.requirement import Requirement as Requirement
from perfdojo_sdk.core.requirement import find_span as find_span
from perfdojo_sdk.core.requirement import line_numbers as line_numbers
from perfdojo_sdk.core.storage import Buffer
from perfdojo_sdk.core.trace import Step as Step
from perfdojo_sdk.core.trace import Trace as Trace

F = TypeVar("F")


@frozen
class Site:
    """A move with its place looked up: the start of every analysis."""

    program: Program
    move: Move
    dialect: Dialect
    node: Node | None = None
    path: Path = ()
    above: tuple[Scope, ...] = ()
    """The scopes around the node, outermost first."""
    outer_sizes: tuple[int, ...] = ()
    """Their sizes."""
    buffer: Buffer | None = None

    @lazy
    def scope(self) -> Scope:
        assert isinstance(self.node, Scope)
        return self.node

    @lazy
    def statement(self) -> Statement:
        assert isinstance(self.node, Statement)
        return self.node

    @lazy
    def storage(self) -> Buffer:
        assert self.buffer is not None
        return self.buffer

    @property
    def level(self) -> int:
        """Number of scopes above the node; the level of its iterator when it is a scope."""
        return len(self.above)

    @property
    def siblings(self) -> tuple[Node, ...]:
        """The node and its siblings."""
        return self.above[-1].body if self.above else self.program.body

    def replaced(self, nodes: tuple[Node, ...], consumed: int = 1, buffer: Buffer | None = None) -> Program:
        """The program with ``nodes`` where ``consumed`` siblings, from the node on, stand; ``buffer`` is
        new."""
        return self.program.edited(self.above, self.path, nodes, consumed, buffer)


@frozen
class Facts:
    """The facts about a site that requirements, rewrite and relation of one transformation share.

    A subclass has a field for each fact that the analysis found, and lazy attributes for those that are
    worked out when a requirement first asks: None, where one of them is unknown.
    """

    site: Site


_EXACTLY = Legal()


class Checked(NamedTuple):
    """A legal move, with the facts for its rewrite."""

    facts: Any
    legal: Legal


@dataclass(frozen=True)
class Parameter:
    """A parameter of a transformation, for documentation and the command line."""

    name: str
    type: type[int] | type[str]
    doc: str
    counts: bool = False
    """True if it is a number of iterations or elements, which a smaller kernel may have fewer of."""


def reordered(program: Program) -> Kind:
    """The kind of a move that combines the terms of a sum, or of another accumulation, in another order.

    Integers wrap, so that their sums and products are those of a ring, and a maximum of them is one of the
    terms: no order changes a bit. A program that also accumulates floats does not count, since the dependence
    leg follows all of its accumulations in order, or none.
    """
    return Kind.EXACT if program.adds_integers_only else Kind.REASSOCIATES


_PLACES: Mapping[str, tuple[type, ...]] = {
    "scope": (Scope,),
    "statement": (Statement,),
    "node": (Scope, Statement),
}


class Transformation(ABC):
    """One kind of move. A subclass defines these attributes and methods, and holds no state.

    The class docstring is the documentation page: a sentence, then ``before:`` and ``after:``. A move that
    needs no facts beyond its site takes the site in their place; others inherit :class:`Analysed`.
    """

    name: ClassVar[str]
    version: ClassVar[int] = 1
    place: ClassVar[str]
    """The kind of a place: ``scope``, ``statement``, ``node`` (either of them) or ``buffer``."""
    parameters: ClassVar[tuple[Parameter, ...]] = ()
    requirements: tuple[Requirement[Any], ...] = ()
    undo: ClassVar[str] = "drop the move from the trace"

    @property
    def doc(self) -> str:
        """The documentation page."""
        return getdoc(type(self)) or ""

    @abstractmethod
    def candidates(self, program: Program, dialect: Dialect) -> Iterator[Move]:
        """Moves worth checking on this program; the check decides."""

    def analyse(self, site: Site) -> Any:
        """The facts about a site, or a :class:`Refusal` of a place of the wrong kind; by default, the site.

        An analysis must not refuse what could make a result wrong: a mutant leaves out a requirement, and
        cannot leave out the analysis.
        """
        return site

    @abstractmethod
    def rewrite(self, facts: Any, /) -> Program | Rewritten:
        """The new program; with what the move made, where it makes or changes an id or a buffer's name.

        Only called when every requirement holds.
        """

    def relation(self, facts: Any, result: Program, /) -> Relation:
        """The origin of each statement instance of ``result``; made only when verifying.

        By default, the same statements with the same iterators, in another order or storage.
        """
        return {}

    def upgrade(self, move: Move) -> Move | None:
        """The move of this version that does what ``move``, of an older version, did.

        None: there is none. Override it whenever :attr:`version` grows, so that old games replay.
        """
        return None

    def site(self, program: Program, move: Move, dialect: Dialect) -> Site:
        """Look the place up; :class:`MoveError` when there is no such place or parameter."""
        if [(name, type(value)) for name, value in move.parameters] != self.signature:
            needs = ", ".join(f"{n}: {t.__name__}" for n, t in self.signature) or "no parameters"
            what = f"{move.text}: {self.name} takes {needs}"
            hint = f"see: perfdojo-sdk transformations {self.name}"
            raise MoveError("PD-T002", what, why=self._misfit(move), hint=hint)
        if self.place == "buffer":
            buffer = program.buffer(move.place)
            if buffer is None:
                raise self._no_place(move, [b.name for b in program.buffers])
            return Site(program, move, dialect, buffer=buffer)
        place, wanted = program.place_of.get(move.place), _PLACES[self.place]
        if place is None or not isinstance(place.node, wanted):
            raise self._no_place(move, [n.id for _, n in program.walk() if isinstance(n, wanted)])
        return Site(program, move, dialect, *place)

    @lazy
    def signature(self) -> list[tuple[str, type]]:
        """Names and types of the parameters, as a move holds them: sorted by name."""
        return sorted((p.name, p.type) for p in self.parameters)

    def _misfit(self, move: Move) -> str:
        """The fault of the move's parameters, which do not have the signature."""
        given, wanted = dict(move.parameters), dict(self.signature)
        missing = [name for name in wanted if name not in given]
        unknown = [name for name in given if name not in wanted]
        if missing or unknown:
            said = [f"{p.name} is missing ({p.doc})" for p in self.parameters if p.name in missing]
            return ", ".join(said + [f"there is no {name}" for name in unknown])
        wrong = (n for n, kind in wanted.items() if type(given[n]) is not kind)
        name = next(wrong, "")
        return f"{name} is {given[name]!r}" if name else "parameters are sorted by name"

    def _no_place(self, move: Move, known: list[str]) -> MoveError:
        what = f"{move.text}: the program has no {self.place} {move.place!r}"
        return MoveError("PD-T001", what, hint=closest(move.place, known))

    def checked(self, site: Site) -> Checked | Rejection:
        """The answer of the requirements, and the facts that they were asked about."""
        facts = self.analyse(site)
        if isinstance(facts, Refusal):
            return Rejection(self._refused_by(facts.code), facts, site.program, site.move)
        legal = _EXACTLY
        for requirement in self.requirements:
            answer: Refusal | Kind | Legal | None
            if requirement.test is None:
                answer = Kind.DECLARED_LAW if requirement.law else None
            else:
                answer = requirement.test(facts)
            if answer is None:
                continue
            if isinstance(answer, Refusal):
                return Rejection(requirement, answer, site.program, site.move)
            if not isinstance(answer, Legal):
                laws = frozenset((requirement.law,) if answer is Kind.DECLARED_LAW else ())
                answer = Legal(answer, laws)
            legal = Legal(max(legal.kind, answer.kind), legal.laws | answer.laws)
        return Checked(facts, legal)

    def _refused_by(self, code: str) -> Requirement[Any]:
        """The requirement that an analysis refuses for."""
        return next(r for r in self.requirements if r.test is None and code in ("", r.code))

    def check(self, program: Program, move: Move, dialect: Dialect) -> Legal | Rejection:
        checked = self.checked(self.site(program, move, dialect))
        return checked.legal if isinstance(checked, Checked) else checked

    def without(self, code: str) -> Transformation:
        """The same transformation with one requirement taken out: a mutant, for tests only."""
        if any(r.code == code and r.test is None for r in self.requirements):
            raise ValueError(f"{code} is of the analysis: without it there are no facts")
        mutant = type(self)()
        mutant.requirements = tuple(r for r in self.requirements if r.code != code)
        return mutant


class Analysed(Transformation, Generic[F]):
    """A transformation whose analysis finds facts of one type, for requirements, rewrite and relation."""

    requirements: tuple[Requirement[F], ...] = ()

    @abstractmethod
    def analyse(self, site: Site) -> F | Refusal: ...

    @abstractmethod
    def rewrite(self, facts: F, /) -> Program | Rewritten: ...

    def relation(self, facts: F, result: Program, /) -> Relation:
        return {}


LegalityCheck: TypeAlias = Callable[[Program, Move, Program, Dialect], str | Objection | None]
"""A plugin's veto: (before, move, after, dialect) -> the reason to refuse, or None.

Its attribute ``requirements``, if there is one, lists the requirements that its objections may hold.
"""

_VETO = Requirement[Any](
    "PD-T003",
    "the target does not allow it",
    "{reason}",
    "choose another place or another target",
    lambda site: None,
)


@dataclass(frozen=True)
class Rules:
    """The rules of one game: a language, the transformations, and the target's vetoes."""

    dialect: Dialect
    transformations: Mapping[str, Transformation]
    vetoes: tuple[LegalityCheck, ...] = ()
    packages: Mapping[str, str] = field(default_factory=dict)
    """Transformation -> Python package that brings it; the SDK's own are absent."""
    most: Kind = Kind.DECLARED_LAW
    """The most that the moves of an expert's pass may change, as the user asked. It forbids no move."""

    def transformation(self, name: str) -> Transformation:
        found = self.transformations.get(name)
        if found is None:
            hint = closest(name, list(self.transformations))
            raise MoveError("PD-T004", f"unknown transformation {name!r}", hint=hint)
        return found

    def attempt(self, program: Program, move: Move) -> Step | Rejection:
        """Check a move and, where it is legal, apply it."""
        transformation = self.transformation(move.transformation)
        site = transformation.site(program, move, self.dialect)
        checked = transformation.checked(site)
        if isinstance(checked, Rejection):
            return checked
        facts, legal = checked
        rewritten = transformation.rewrite(facts)
        after, made = rewritten if isinstance(rewritten, Rewritten) else (rewritten, NOTHING)
        for veto in self.vetoes:
            reason = veto(program, move, after, self.dialect)
            if isinstance(reason, Objection):
                # Its place may be one that the move would make.
                shown = program if reason.refusal.at in program.paths else after
                return Rejection(reason.requirement, reason.refusal, shown, move)
            if reason is not None:
                return Rejection(_VETO, Refusal.of(reason=reason), program, move)
        if move.version != transformation.version:
            move = replace(move, version=transformation.version)
        return Step(program, move, legal, after, self.packages.get(move.transformation, ""), made)

    def step(self, program: Program, move: Move) -> Step:
        """Like :meth:`attempt`; a rejection is raised as :class:`MoveError`."""
        result = self.attempt(program, move)
        if isinstance(result, Rejection):
            raise result.error()
        return result

    def candidates(self, program: Program) -> Iterator[Move]:
        """Every move worth checking."""
        for transformation in self.transformations.values():
            yield from transformation.candidates(program, self.dialect)

    def steps(self, program: Program, most: Kind = Kind.DECLARED_LAW) -> Iterator[Step]:
        """Every legal move whose kind is at most ``most``, applied."""
        for move in self.candidates(program):
            result = self.attempt(program, move)
            if isinstance(result, Step) and result.legal.kind <= most:
                yield result

    def relation(self, step: Step) -> Relation:
        transformation = self.transformation(step.move.transformation)
        site = transformation.site(step.before, step.move, self.dialect)
        checked = transformation.checked(site)
        assert isinstance(checked, Checked), "the step was legal when it was made"
        return transformation.relation(checked.facts, step.after)

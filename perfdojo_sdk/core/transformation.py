"""Moves: one small transformation at one place, offered only when it provably keeps the meaning.

A transformation is an *analysis* of a place, a list of *requirements*, a *rewrite* and an *instance
relation*. The analysis finds the facts, once; the others read them. The list is the check: it drives
enumeration, ``explain`` and ``apply``; it generates the documentation; and taking one requirement out
makes the mutant that verification must catch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from inspect import getdoc
from typing import Any, ClassVar, Generic, NamedTuple, TypeAlias, TypeVar

from perfdojo_sdk.core.dialect import Dialect
from perfdojo_sdk.core.errors import MoveError, SourceSpan, closest
from perfdojo_sdk.core.expression import Access
from perfdojo_sdk.core.frozen import frozen, lazy
from perfdojo_sdk.core.made import NOTHING, Made, Rewritten
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
from perfdojo_sdk.core.relation import Removed as Removed
from perfdojo_sdk.core.relation import ScaledCombine as ScaledCombine
from perfdojo_sdk.core.storage import Buffer
from perfdojo_sdk.core.tree import NodeId
from perfdojo_sdk.core.words import filled

F = TypeVar("F")
_Asked = TypeVar("_Asked", contravariant=True)


class Kind(IntEnum):
    """The changes that a move may make, from none to most."""

    EXACT = 0
    """Every cell gets the same value, bit for bit."""
    REASSOCIATES = 1
    """The terms of a reduction are combined in another order."""
    DECLARED_LAW = 2
    """Uses an algebraic law that rounding breaks, such as x/y = x*(1/y); the law is named."""
    CHANGES_PRECISION = 3
    """Values are computed in another dtype."""

    @property
    def label(self) -> str:
        return ("exact", "re-associates", "uses a declared law", "changes precision")[self]


@frozen
class Move:
    """A transformation, the node or buffer on which it acts, its parameters."""

    transformation: str
    place: NodeId | str
    """Id of the node, or name of the buffer."""
    parameters: tuple[tuple[str, int | str], ...] = ()
    version: int = 1
    """Version of the transformation; what is played gets the version that played it."""

    @staticmethod
    def of(transformation: str, place: str, version: int = 1, **parameters: int | str) -> Move:
        return Move(transformation, place, tuple(sorted(parameters.items())), version)

    def __getitem__(self, name: str) -> Any:
        return dict(self.parameters)[name]

    @property
    def text(self) -> str:
        arguments = [self.place, *(f"{k}={v}" for k, v in self.parameters)]
        return f"{self.transformation}({', '.join(arguments)})"

    def as_json(self) -> dict[str, object]:
        return {
            "transformation": self.transformation,
            "version": self.version,
            "place": self.place,
            "parameters": dict(self.parameters),
        }


# -- requirements --------------------------------------------------------------------------------


@frozen
class Refusal:
    """The facts for which a requirement fails at one site, and the words that its sentence needs besides."""

    at: str = ""
    """Id of the node to show."""
    mark: str = ""
    """The text on its line to underline."""
    words: tuple[tuple[str, object], ...] = ()
    """Numbers and names for the sentence."""
    nodes: tuple[str, ...] = ()
    """Ids of the scopes and statements at fault, the one to show first."""
    arrays: tuple[str, ...] = ()
    """The arrays at fault: of the access, or of the buffer."""
    access: Access | None = None
    """The access at fault."""
    location: str = ""
    """The location at fault."""
    iterator: str = ""
    """Id of the scope whose iterator is at fault."""
    code: str = ""
    """The requirement that an analysis refuses for; empty: the first that has no test of its own."""

    @staticmethod
    def of(
        at: str = "",
        mark: str | Access = "",
        *,
        nodes: tuple[str, ...] = (),
        arrays: tuple[str, ...] = (),
        access: Access | str | None = None,
        location: str = "",
        iterator: str = "",
        code: str = "",
        **words: object,
    ) -> Refusal:
        """``nodes``: others than ``at``. A mark that is an access is the access at fault, too.

        What is not of a fact's type is a word under the same name: packages gave such words before there
        were facts.
        """
        if not isinstance(nodes, tuple):
            words["nodes"], nodes = nodes, ()
        if not isinstance(arrays, tuple):
            words["arrays"], arrays = arrays, ()
        if access is not None and not isinstance(access, Access):
            words["access"], access = access, None
        if isinstance(mark, Access):
            access, mark = access or mark, mark.text
        if at:
            nodes = (at, *nodes)
        if access is not None and not arrays:
            arrays = (access.array,)
        return Refusal(at, mark, tuple(words.items()), nodes, arrays, access, location, iterator, code)

    @property
    def sentence_words(self) -> dict[str, object]:
        """Everything that a sentence can name."""
        found: dict[str, object] = {"location": self.location, "iterator": self.iterator, "code": self.code}
        if self.arrays:
            found["array"] = self.arrays[0]
        if self.access is not None:
            found["access"] = self.access.text
        return found | dict(self.words)

    def as_json(self) -> dict[str, object]:
        """The facts as data, for programs that look for another way."""
        access = self.access
        return {
            "nodes": [str(node) for node in self.nodes],
            "arrays": [str(array) for array in self.arrays],
            "access": access and {"array": access.array, "text": access.text, "levels": list(access.levels)},
            "location": str(self.location),
            "iterator": str(self.iterator),
            "words": {name: word if isinstance(word, int) else str(word) for name, word in self.words},
        }


#: What a requirement says that no move can establish.
NO_MOVE: tuple[str, ...] = ()


@dataclass(frozen=True)
class Requirement(Generic[_Asked]):
    """One reason for which a transformation can refuse.

    ``test`` is asked about the facts and answers None (holds), a :class:`Kind` (holds, at that price), a
    :class:`Legal` (the same, with laws that depend on the site) or a :class:`Refusal`. None in its place:
    :meth:`Transformation.analyse` refuses for this requirement, and where it holds, it costs its law.
    ``semantic``: without it, a result could be wrong (and not merely malformed or pointless).
    """

    code: str
    title: str
    why: str
    hint: str
    test: Callable[[_Asked], Refusal | Kind | Legal | None] | None = field(repr=False)
    semantic: bool = False
    law: str = ""
    """The law that a move of kind DECLARED_LAW uses."""
    established_by: tuple[str, ...] | None = None
    """Names of the moves that may establish the fact, :data:`NO_MOVE` where none can; None: not said."""


@frozen
class Legal:
    """The answer of a check that allows a move."""

    kind: Kind = Kind.EXACT
    laws: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return True


_EXACTLY = Legal()


@frozen
class Rejection:
    """The answer of a check that refuses a move; words are made only when somebody looks."""

    requirement: Requirement[Any]
    refusal: Refusal
    program: Program = field(repr=False)
    move: Move

    def __bool__(self) -> bool:
        return False

    @property
    def code(self) -> str:
        return self.requirement.code

    @property
    def established_by(self) -> tuple[str, ...] | None:
        """Moves that may take the reason away; None where the requirement does not say."""
        return self.requirement.established_by

    @property
    def why(self) -> str:
        return _filled(self.requirement.why, self.refusal)

    @property
    def hint(self) -> str:
        return _filled(self.requirement.hint, self.refusal)

    def error(self) -> MoveError:
        """The rejection as the error that a user sees, with the line of the program underlined."""
        what = f"cannot apply {self.move.text} to {self.program.name}: {self.requirement.title}"
        place = find_span(self.program, self.refusal.at, self.refusal.mark) if self.refusal.at else None
        return MoveError(self.code, what, place=place, why=self.why, hint=self.hint)

    def __str__(self) -> str:
        return self.error().render()


def _filled(sentence: str, refusal: Refusal) -> str:
    """The sentence with the words in it; as it stands where a plugin's words do not fit."""
    try:
        return filled(sentence, refusal.sentence_words)
    except (LookupError, TypeError, ValueError, AttributeError):
        return sentence


def line_numbers(program: Program) -> Mapping[str, int]:
    """Id -> line of ``program.text`` (from 1) on which the node starts."""
    numbers: dict[str, int] = {}

    def visit(node: Node, line: int) -> None:
        numbers[node.id] = line
        if isinstance(node, Scope):
            at = line if len(node.body) == 1 else line + 1
            for child in node.body:
                visit(child, at)
                at += child.text.count("\n") + 1

    line = 3 + len(program.buffers)
    for node in program.body:
        visit(node, line)
        line += node.text.count("\n") + 1
    return numbers


def find_span(program: Program, node: str, mark: str) -> SourceSpan | None:
    line = line_numbers(program).get(node)
    if line is None:
        return None
    source = program.text.splitlines()[line - 1]
    start = source.rfind(mark) if mark else -1
    if start < 0:
        start, mark = len(source) - len(source.lstrip("| ")), source.lstrip("| ")
    return SourceSpan(line, start + 1, source, len(mark))


# -- transformations -----------------------------------------------------------------------------


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
            said = [f"{name} is missing" for name in missing]
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


@frozen
class Objection:
    """A veto with a code, a place and a remedy of its own."""

    requirement: Requirement[Any]
    refusal: Refusal


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


# -- traces ----------------------------------------------------------------------------------------


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

    def play(self, rules: Rules, move: Move) -> Trace:
        """The trace with one more move; :class:`MoveError` when it is not legal."""
        return replace(self, steps=(*self.steps, rules.step(self.program, move)))

    def play_all(self, rules: Rules, moves: Iterable[Move]) -> Trace:
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

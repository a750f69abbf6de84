"""Requirements of moves, and the answers of a check: legal with a kind, or refused with a reason."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from perfdojo_sdk.core.errors import MoveError, SourceSpan
from perfdojo_sdk.core.expression import Access
from perfdojo_sdk.core.frozen import frozen
from perfdojo_sdk.core.move import Kind, Move
from perfdojo_sdk.core.program import Node, Program, Scope
from perfdojo_sdk.core.words import filled

_Asked = TypeVar("_Asked", contravariant=True)


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
        """A refusal. ``nodes``: those at fault besides ``at``. A mark that is an access is also the access
        at fault.

        A value that has not the type of a fact becomes a word of that name: packages gave such words before
        there were facts.
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


#: ``established_by`` of a requirement that no move can establish.
NO_MOVE: tuple[str, ...] = ()


@dataclass(frozen=True)
class Requirement(Generic[_Asked]):
    """One reason for which a transformation can refuse.

    ``test`` gets the facts and returns None if the requirement holds, a :class:`Kind` if it holds and the
    move then changes as much, a :class:`Legal` for the same with laws that depend on the site, or a
    :class:`Refusal`. Without a test, :meth:`Transformation.analyse` refuses for this requirement, and a move
    that it allows uses the requirement's law, if there is one.
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


@frozen
class Rejection:
    """The answer of a check that refuses a move; its sentences are made only when they are read."""

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


@frozen
class Objection:
    """A veto with a code, a place and a remedy of its own."""

    requirement: Requirement[Any]
    refusal: Refusal


def _filled(sentence: str, refusal: Refusal) -> str:
    """The sentence with the words filled in; unchanged if the words that a plugin gives do not fit."""
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

"""A trace as data: root text and moves, checked field by field, replayed move by move.

The file is untrusted: sizes are bounded, names are checked, and every move passes the same check as when it
was first played. A move of an older version of its transformation is upgraded by that transformation; if a
move cannot be played, the error names the package that it needs.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from perfdojo_sdk.core.dialect import Dialect
from perfdojo_sdk.core.errors import DojoError, MoveError, closest
from perfdojo_sdk.core.metadata import spare_pydantic
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.core.text import MAX_CHARACTERS, parse
from perfdojo_sdk.core.tokens import MAX_NUMBER
from perfdojo_sdk.core.transformation import Move, Rules, Trace

MAX_MOVES = 10_000

Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=64)]
MoveName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_]\w*(/[A-Za-z_]\w*)*$", max_length=128)]
PackageName = Annotated[str, StringConstraints(pattern=r"^([A-Za-z0-9][A-Za-z0-9._-]*)?$", max_length=128)]
#: The id of a place. It grows with each scope that moves nest, so it is only bounded like a program's text.
PlaceName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][\w.]*$", max_length=MAX_CHARACTERS)]
Word = Annotated[str, StringConstraints(max_length=256)]
Integer = Annotated[int, Field(strict=True, ge=-MAX_NUMBER, le=MAX_NUMBER)]


def first_error(error: ValidationError) -> str:
    """The first fault, with its place in the file; without the value, which may be anything."""
    first = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(str(part)[:64] for part in first["loc"])
    return f"{place}: {first['msg']}" if place else str(first["msg"])


spare_pydantic()


class Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class SavedMove(Strict):
    transformation: MoveName
    version: Annotated[int, Field(strict=True, ge=1, le=10_000)] = 1
    place: PlaceName
    parameters: dict[Name, Integer | Word] = Field(default={}, max_length=16)
    package: PackageName = ""
    """Python package that brought the transformation; empty: the SDK."""

    def move(self) -> Move:
        return Move(self.transformation, self.place, tuple(sorted(self.parameters.items())), self.version)


class SavedTrace(Strict):
    """The file form of :class:`Trace`. Schema 2 added the package of each move; both are read."""

    schema_version: Literal[1, 2] = Field(2, alias="schema")
    root: Annotated[str, StringConstraints(max_length=MAX_CHARACTERS)]
    moves: tuple[SavedMove, ...] = Field((), max_length=MAX_MOVES)

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    @classmethod
    def of(cls, trace: Trace) -> SavedTrace:
        return cls.model_validate(trace.as_json())

    def program(self, dialect: Dialect) -> Program:
        """The initial program."""
        return parse(self.root, dialect, file="<saved game>")

    def replay(self, rules: Rules) -> Trace:
        """Play the moves again; :class:`MoveError` says which one fails and why."""
        trace = Trace(self.program(rules.dialect))
        for number, saved in enumerate(self.moves):
            try:
                trace = trace.play(rules, current(saved, rules))
            except MoveError as error:
                raise _at(number, len(self.moves), error) from error
        return trace


def current(saved: SavedMove, rules: Rules) -> Move:
    """The move as the installed version of its transformation plays it.

    :class:`MoveError` when it cannot be played here: the transformation is not installed, is older than
    the move, or cannot upgrade moves of that version.
    """
    move = saved.move()
    transformation = rules.transformations.get(saved.transformation)
    if transformation is None:
        raise _absent(saved, rules)
    if move.version == transformation.version:
        return move
    what = f"{move.text} was played with version {move.version} of {saved.transformation}"
    why = f"version {transformation.version} is installed"
    if move.version > transformation.version:
        raise MoveError("PD-J003", what, why=why, hint=f"upgrade {_owner(saved, rules)}")
    upgraded = transformation.upgrade(move)
    if upgraded is None:
        why += f", which cannot translate moves of version {move.version}"
        raise MoveError("PD-J003", what, why=why, hint="play the move again by hand and save the game")
    return upgraded


def _absent(saved: SavedMove, rules: Rules) -> MoveError:
    """The error for a missing transformation, which suggests the package that the trace names."""
    what = f"unknown transformation {saved.transformation!r}"
    if saved.package:
        why = f"the package {saved.package} brought it, and is missing, left out or has dropped it"
        hint = f"install {saved.package}; `perfdojo-sdk plugins list` shows what is here"
        return MoveError("PD-J005", what, why=why, hint=hint)
    hint = closest(saved.transformation, list(rules.transformations))
    return MoveError("PD-T004", what, hint=hint)


def _owner(saved: SavedMove, rules: Rules) -> str:
    return rules.packages.get(saved.transformation) or saved.package or "the SDK"


def _at(number: int, count: int, error: DojoError) -> MoveError:
    what = f"move {number} of {count} does not replay: {error.what}"
    return MoveError(error.code, what, place=error.place, why=error.why, hint=error.hint)

"""A trace as data: root text and moves, checked field by field, replayed move by move.

The file is hostile until it has replayed: sizes are bounded, names are names, and every move
passes the same check as when it was first played.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from perfdojo_sdk.core.dialect import Dialect
from perfdojo_sdk.core.errors import DojoError, MoveError
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.core.text import MAX_CHARACTERS, parse
from perfdojo_sdk.core.tokens import MAX_NUMBER
from perfdojo_sdk.core.transformation import Move, Rules, Trace

MAX_MOVES = 10_000

Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=64)]
MoveName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_]\w*(/[A-Za-z_]\w*)*$", max_length=128)]
PlaceName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][\w.]*$", max_length=1024)]
Word = Annotated[str, StringConstraints(max_length=256)]
Integer = Annotated[int, Field(strict=True, ge=-MAX_NUMBER, le=MAX_NUMBER)]


class Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class SavedMove(Strict):
    transformation: MoveName
    version: Annotated[int, Field(strict=True, ge=1, le=10_000)] = 1
    place: PlaceName
    parameters: dict[Name, Integer | Word] = Field(default={}, max_length=16)

    def move(self) -> Move:
        return Move(self.transformation, self.place, tuple(sorted(self.parameters.items())), self.version)


class SavedTrace(Strict):
    """The file form of :class:`Trace`."""

    schema_version: Literal[1] = Field(1, alias="schema")
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
                check_version(saved.move(), rules)
                trace = trace.play(rules, saved.move())
            except MoveError as error:
                raise _at(number, len(self.moves), error) from error
        return trace


def check_version(move: Move, rules: Rules) -> None:
    """:class:`MoveError` when the move was made by another version of its transformation."""
    version = rules.transformation(move.transformation).version
    if move.version != version:
        raise MoveError(
            "PD-J003",
            f"{move.text} was played with version {move.version} of {move.transformation}",
            why=f"this SDK has version {version}, which may act differently",
            hint="play the move again by hand and save the game",
        )


def _at(number: int, count: int, error: DojoError) -> MoveError:
    what = f"move {number} of {count} does not replay: {error.what}"
    return MoveError(error.code, what, place=error.place, why=error.why, hint=error.hint)

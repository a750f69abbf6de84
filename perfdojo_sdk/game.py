"""A game: a program, the rules of a target, and the moves played so far.

The command line, scripts and agents all play through this module. A game is frozen: ``apply``, ``undo``
and similar methods return a new one. A saved game is JSON: the target's name, the initial text, the moves,
and the undone moves that can be redone.
"""

from __future__ import annotations

import errno
import json
import os
from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, StringConstraints, ValidationError

from perfdojo_sdk.core import history
from perfdojo_sdk.core.errors import DojoError, MoveError
from perfdojo_sdk.core.files import read_bounded, write_whole
from perfdojo_sdk.core.history import Dropped, Undone
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.core.table_files import look_in
from perfdojo_sdk.core.text import parse
from perfdojo_sdk.core.transformation import (
    Kind,
    Legal,
    Move,
    Rejection,
    Rules,
    Step,
    Trace,
    line_numbers,
)
from perfdojo_sdk.hookspecs.types import Target
from perfdojo_sdk.plugins import Plugins
from perfdojo_sdk.store.traces import MAX_MOVES, SavedMove, SavedTrace, Strict, current, first_error

MAX_FILE_BYTES = 8 << 20


class SaveError(DojoError):
    """A saved game cannot be read or written."""


class SavedTaken(Strict):
    """A move that was taken out, with its number before."""

    number: Annotated[int, Field(strict=True, ge=0, lt=MAX_MOVES)]
    move: SavedMove


class SavedUndone(Strict):
    """The file form of :class:`Undone`."""

    taken: tuple[SavedTaken, ...] = Field(min_length=1, max_length=MAX_MOVES)

    @staticmethod
    def of(undone: Undone) -> dict[str, object]:
        return {"taken": [{"number": n, "move": move.as_json()} for n, move in undone.moves]}

    def undone(self, rules: Rules) -> Undone:
        """The undone moves; :class:`MoveError` when a move is of a version that cannot be played any more."""
        return Undone(tuple((each.number, current(each.move, rules)) for each in self.taken))


class SavedGame(Strict):
    """The file form of a game."""

    schema_version: Literal[1] = Field(1, alias="schema")
    target: Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]*$", max_length=64)]
    trace: SavedTrace
    undone: tuple[SavedUndone, ...] = Field((), max_length=MAX_MOVES)

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


@dataclass(frozen=True)
class Game:
    """One game. Make it with :meth:`new`, :meth:`load` or :meth:`from_trace`."""

    target: Target
    rules: Rules = field(repr=False)
    trace: Trace = field(repr=False)
    undone: tuple[Undone, ...] = field(default=(), repr=False)
    """Moves undone since the last other move, the newest last."""

    @staticmethod
    def new(plugins: Plugins, target: str, program: Program | str) -> Game:
        """A game on ``program`` (or its text) for the target named ``target``."""
        found = plugins.target(target)
        rules = plugins.rules(found)
        root = parse(program, rules.dialect) if isinstance(program, str) else program
        return Game(found, rules, Trace(root))

    @staticmethod
    def load(plugins: Plugins, path: Path) -> Game:
        """Read and replay a saved game.

        :class:`SaveError` when the file is no saved game, :class:`MoveError` when a move no
        longer applies (which one, and why).
        """
        return Game.of(plugins, read_saved(path))

    @staticmethod
    def of(plugins: Plugins, saved: SavedGame) -> Game:
        """The game that was saved, replayed; :class:`MoveError` when a move no longer applies."""
        target = plugins.target(saved.target)
        rules = plugins.rules(target)
        return Game(target, rules, saved.trace.replay(rules), _still_undone(saved.undone, rules))

    def save(self, path: Path) -> None:
        """Write the game; the file is complete or untouched."""
        write_atomically(path, json.dumps(self.as_json(), indent=2) + "\n")

    def as_json(self) -> dict[str, object]:
        data: dict[str, object] = {"schema": 1, "target": self.target.name, "trace": self.trace.as_json()}
        if self.undone:
            data["undone"] = [SavedUndone.of(each) for each in self.undone]
        return data

    @property
    def program(self) -> Program:
        """The program as it stands."""
        return self.trace.program

    def show(self, ids: bool = False) -> str:
        """The program's text; with ``ids``, the places that start on each line stand beside it."""
        text = self.program.text
        if not ids:
            return text
        at: dict[int, list[str]] = {}
        for node, line in line_numbers(self.program).items():
            at.setdefault(line, []).append(node)
        lines = text.splitlines()
        width = max(map(len, lines))
        marked = [
            f"{line:{width}}  # {' '.join(at[number])}" if number in at else line
            for number, line in enumerate(lines, 1)
        ]
        return "\n".join(marked) + "\n"

    def candidates(self) -> Iterator[Move]:
        """Every move worth checking, legal or not."""
        return self.rules.candidates(self.program)

    def moves(self, most: Kind = Kind.DECLARED_LAW) -> Iterator[Step]:
        """Every legal move of a kind up to ``most``, applied."""
        return self.rules.steps(self.program, most)

    def check(self, move: Move) -> Legal | Rejection:
        """Check a move, plugins' vetoes included: its kind if it is legal, else the rejection with the
        reason."""
        result = self.rules.attempt(self.program, move)
        return result.legal if isinstance(result, Step) else result

    def apply(self, move: Move) -> Game:
        """The game with one more move; :class:`MoveError` when it is not legal."""
        return replace(self, trace=self.trace.play(self.rules, move), undone=())

    def undo(self, position: int) -> tuple[Game, tuple[Dropped, ...]]:
        """Take out move ``position`` (from 0), and the later moves that no longer apply without it."""
        trace, undone, dropped = history.undo(self.trace, self.rules, position)
        return replace(self, trace=trace, undone=(*self.undone, undone)), dropped

    def redo(self) -> Game:
        """Put back what the last undo took out, dropped moves included: the game is as it was before.

        :class:`MoveError` when nothing was undone, or another move was played since.
        """
        if not self.undone:
            why = "nothing was undone since the last move that was played"
            hint = "`replay GAME` prints the moves; `insert` plays one in the middle"
            raise MoveError("PD-T009", "there is nothing to put back", why=why, hint=hint)
        *before, last = self.undone
        return replace(self, trace=history.redo(self.trace, self.rules, last), undone=tuple(before))

    def insert(self, position: int, move: Move) -> tuple[Game, tuple[Dropped, ...]]:
        """Play ``move`` before move ``position``; later moves that no longer apply are dropped."""
        trace, dropped = history.insert(self.trace, self.rules, position, move)
        return replace(self, trace=trace, undone=()), dropped


def _still_undone(saved: Sequence[SavedUndone], rules: Rules) -> tuple[Undone, ...]:
    """The undone moves that can be redone: the newest, up to the first with a move of an unknown version."""
    kept: list[Undone] = []
    for each in reversed(saved):
        try:
            kept.insert(0, each.undone(rules))
        except MoveError:
            break
    return tuple(kept)


def read_saved(path: Path) -> SavedGame:
    """A saved game's data, checked but not yet replayed."""
    hint = "give a file that `apply` or Game.save wrote"
    if not path.suffix and not os.path.lexists(path):
        why = "by its name it is a kernel, on which no moves were played, and no file is called so"
        hint = f"`show '{path}'` prints it, and `apply '{path}' MOVE --output GAME.json` saves a game of it"
        raise SaveError("PD-J002", f"{path} is no saved game", why=why, hint=hint)
    if path.suffix.lower() == ".dojo":
        why = "by its name it is a program, on which no moves were played"
        hint = f"`show {path}` prints it, and `apply {path} MOVE --output GAME.json` saves a game of it"
        raise SaveError("PD-J002", f"{path} is no saved game", why=why, hint=hint)
    try:
        content = read_bounded(path, MAX_FILE_BYTES)
    except OSError as error:
        if error.errno == errno.EFBIG:
            what = f"{path} is larger than {MAX_FILE_BYTES} bytes"
            raise SaveError("PD-J002", what, hint=hint) from None
        raise SaveError("PD-J001", f"cannot read {path}: {error.strerror}", hint=hint) from None
    for folder in (path.parent, path.parent.parent / "programs"):  # beside a game, and in a library
        look_in(folder)
    return saved_game(content, str(path), hint)


def saved_game(content: bytes | Mapping[str, object] | None, what: str, hint: str = "") -> SavedGame:
    """A saved game from JSON or its data; ``what`` says in an error where that came from."""
    try:
        if isinstance(content, bytes):
            return SavedGame.model_validate_json(content.removeprefix(BOM_UTF8))
        return SavedGame.model_validate(content)
    except ValidationError as error:
        why = first_error(error)
        if isinstance(content, bytes) and error.errors()[0]["type"] == "json_invalid" and "EOF" in why:
            why = f"it ends too early, as a file does that was not written whole: {why}"
            hint = "write it again (`apply --output` and Game.save leave no half of a file), or copy it again"
            if not content.strip():
                why = "it is empty"
        raise SaveError("PD-J002", f"{what} is no saved game", why=why, hint=hint) from None


def write_atomically(path: Path, content: str | bytes | Iterable[str], inside: Path | None = None) -> None:
    """:func:`~perfdojo_sdk.core.files.write_whole`, with :class:`SaveError` if the system refuses."""
    try:
        write_whole(path, content, inside)
    except OSError as error:
        hint = "name another place, or check free space and permissions"
        if path.is_dir():
            what = f"cannot write {path}: it is a folder, and a file is needed"
            raise SaveError("PD-J004", what, hint=f"name a file in it, such as {path / 'NAME'}") from None
        file = next((each for each in path.parents if os.path.lexists(each) and not each.is_dir()), None)
        if file is not None:
            what = f"cannot write {path}: {file} is a file, and a folder is needed"
            raise SaveError("PD-J004", what, hint="name a place in another folder") from None
        what = f"cannot write {path}: {error.strerror}"
        raise SaveError("PD-J004", what, why=_where(error, path), hint=hint) from None


def _where(error: OSError, path: Path) -> str:
    """The file at fault, in words, if it is not ``path``."""
    return "" if error.filename in (None, str(path)) else f"at {error.filename}"

"""A game plays, shows, saves and loads; a file is trusted only after it replayed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from toy_target import perfdojo_toy

from perfdojo_sdk.core.errors import MoveError, UnavailableError
from perfdojo_sdk.core.transformation import Kind, Legal, Move, Rejection
from perfdojo_sdk.game import Game, SaveError, write_atomically
from perfdojo_sdk.kernels.operators import SOFTMAX
from perfdojo_sdk.plugins import Plugins, load_plugins

JOIN = Move.of("join_scopes", "s0")


@pytest.fixture(scope="module")
def plugins() -> Plugins:
    return load_plugins(extra=[perfdojo_toy])


@pytest.fixture
def game(plugins: Plugins) -> Game:
    return Game.new(plugins, "toy", SOFTMAX.build(4, 6))


def test_a_move_gives_a_new_game(game: Game) -> None:
    later = game.apply(JOIN)
    assert later.trace.moves == (JOIN,) and game.trace.moves == ()
    assert len(later.program.body) == len(game.program.body) - 1


def test_an_illegal_move_is_an_error_with_its_reason(game: Game) -> None:
    move = Move.of("reuse_dims", "e", dim=0)
    answer = game.check(move)
    assert isinstance(answer, Rejection)
    with pytest.raises(MoveError) as caught:
        game.apply(move)
    assert caught.value.why == answer.why
    assert isinstance(game.check(JOIN), Legal)


def test_moves_are_those_that_apply(game: Game) -> None:
    moves = {step.move for step in game.moves()}
    assert JOIN in moves and moves <= set(game.candidates())
    for move in moves:
        assert game.check(move)
    exact = {step.move for step in game.moves(Kind.EXACT)}
    assert exact <= moves


def test_undo_keeps_what_still_applies(game: Game) -> None:
    split = Move.of("split_scope", "s7", factor=3)
    played = game.apply(JOIN).apply(split).apply(Move.of("annotate_scope", "s7.i", suffix="u"))
    undone, dropped = played.undo(0)
    assert undone.trace.moves == played.trace.moves[1:] and dropped == ()
    undone, dropped = played.undo(1)
    assert undone.trace.moves == (JOIN,)
    assert [d.move.place for d in dropped] == ["s7.i"] and dropped[0].reason.what


def test_show_names_the_places(game: Game) -> None:
    assert game.show() == game.program.text
    shown = game.show(ids=True).splitlines()
    assert any(line.startswith("4 6 e[") and line.endswith("# s2 s3 c2") for line in shown), shown
    stripped = "\n".join(line.partition("  #")[0].rstrip() for line in shown) + "\n"
    assert stripped == game.program.text


def test_a_saved_game_loads_as_it_was(game: Game, plugins: Plugins, tmp_path: Path) -> None:
    path = tmp_path / "deep" / "game.json"
    played = game.apply(JOIN)
    played.save(path)
    loaded = Game.load(plugins, path)
    assert loaded.trace == played.trace and loaded.target == played.target
    assert [p.name for p in path.parent.iterdir()] == ["game.json"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"schema": 2}, "schema"),
        ({"target": "../toy"}, "target"),
        ({"trace": {"schema": 1, "root": 3}}, "trace.root"),
        ({"more": 1}, "more"),
    ],
)
def test_a_file_that_is_no_saved_game(
    game: Game, plugins: Plugins, tmp_path: Path, change: dict[str, Any], words: str
) -> None:
    path = tmp_path / "game.json"
    path.write_text(json.dumps({**game.as_json(), **change}))
    with pytest.raises(SaveError) as caught:
        Game.load(plugins, path)
    assert words in caught.value.why


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[" * 100_000, b"null"])
def test_bytes_that_are_no_saved_game(plugins: Plugins, tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "game.json"
    path.write_bytes(content)
    with pytest.raises(SaveError, match="is no saved game"):
        Game.load(plugins, path)


def test_a_game_that_does_not_replay_says_which_move(game: Game, plugins: Plugins, tmp_path: Path) -> None:
    path = tmp_path / "game.json"
    data: dict[str, Any] = game.as_json()
    data["trace"]["moves"] = [JOIN.as_json(), Move.of("join_scopes", "s99").as_json()]
    path.write_text(json.dumps(data))
    with pytest.raises(MoveError, match="move 1 of 2 does not replay"):
        Game.load(plugins, path)


def test_other_files_and_targets(game: Game, plugins: Plugins, tmp_path: Path) -> None:
    with pytest.raises(SaveError, match="No such file"):
        Game.load(plugins, tmp_path / "nothing.json")
    path = tmp_path / "game.json"
    path.write_text(json.dumps({**game.as_json(), "target": "toi"}))
    with pytest.raises(UnavailableError, match="did you mean toy"):
        Game.load(plugins, path)


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    write_atomically(path, "old")

    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", fail)
    with pytest.raises(SaveError, match="No space left"):
        write_atomically(path, "new")
    assert path.read_text() == "old" and [p.name for p in tmp_path.iterdir()] == ["file"]

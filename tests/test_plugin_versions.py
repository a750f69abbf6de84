"""Old plugins are served or refused by rule, and old games replay or say why not."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pytest
from made_plugins import Metadata, plugin, target
from toy_target import perfdojo_toy
from toy_target.perfdojo_toy.moves import UnrollShort

from perfdojo_sdk.core.errors import MoveError, UnavailableError
from perfdojo_sdk.core.text import parse
from perfdojo_sdk.core.transformation import Move, Rules, Trace, Transformation
from perfdojo_sdk.game import Game
from perfdojo_sdk.hookspecs import API_VERSION, PROVISIONAL, deprecated
from perfdojo_sdk.hookspecs.deprecated import DEPRECATIONS, Deprecation, PluginDeprecation
from perfdojo_sdk.hookspecs.types import MachineFigures, Target, Unavailable
from perfdojo_sdk.plugins import HOOKS, discovery, load_plugins
from perfdojo_sdk.plugins import plugin as plugin_module
from perfdojo_sdk.plugins.plugin import compatible
from perfdojo_sdk.store.traces import SavedTrace

LOOP = parse("kernel f(x) -> y\nx f32 [4] heap\ny f32 [4] heap\n\n4 y[{0}] = x[{0}]\n")


@pytest.fixture(autouse=True)
def nothing_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery, "entry_points", lambda: Metadata())
    monkeypatch.delenv("PERFDOJO_PLUGINS", raising=False)


# -- the version of the contract -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ours", "theirs", "served"),
    [
        ((0, 2), (0, 2), True),
        ((0, 2), (0, 1), True),
        ((0, 2), (0, 0), False),
        ((0, 2), (0, 3), False),
        ((0, 2), (1, 2), False),
        ((1, 0), (0, 9), False),
        ((1, 3), (1, 0), True),
        ((1, 3), (1, 3), True),
        ((1, 3), (1, 4), False),
        ((2, 0), (1, 9), False),
        ((0, 2), None, False),
        ((0, 2), "0.2", False),
        ((0, 2), (0, 2, 0), False),
        ((0, 2), (False, 2), False),
    ],
)
def test_which_plugins_an_sdk_serves(
    monkeypatch: pytest.MonkeyPatch, ours: tuple[int, int], theirs: object, served: bool
) -> None:
    monkeypatch.setattr(plugin_module, "API_VERSION", ours)
    assert compatible(theirs) is served


# -- deprecations ----------------------------------------------------------------------------------


def test_this_sdk_serves_the_open_version_and_the_one_before() -> None:
    assert API_VERSION == (0, 3) and PROVISIONAL
    assert [minor for minor in range(9) if compatible((0, minor))] == [2, 3]


@pytest.mark.parametrize(
    ("api", "remedy"),
    [
        ((0, 4), "install a version of later for plugin API 0.3, or a newer perfdojo-sdk"),
        ((1, 0), "install a version of later for plugin API 0.3, or a newer perfdojo-sdk"),
        ((0, 1), "install a version of later for plugin API 0.3"),
        ("0.3", "install a version of later for plugin API 0.3"),
    ],
)
def test_a_plugin_of_another_version_is_refused_in_words(api: object, remedy: str) -> None:
    plugins = load_plugins(extra=[plugin("later", api=api, targets=lambda: [target("a")])])
    [problem] = plugins.problems
    assert problem.stage == "version" and problem.remedy == remedy
    assert problem.cause == (
        f"it is written for plugin API {api!r}, this SDK has 0.3, which is still provisional"
    )
    with pytest.raises(UnavailableError, match="unknown target 'a'|plugin later is broken"):
        plugins.target("a")


def test_a_deprecation_lives_as_long_as_a_version_that_has_it() -> None:
    for old in DEPRECATIONS:
        assert old.since <= API_VERSION and compatible(old.until), f"{old.what} should be gone"
        assert old.hook in (HOOKS if old.argument else vars(deprecated)), old
        assert old.instead in HOOKS or old.argument


def unavailable(target: Target) -> Unavailable:
    return Unavailable("no such device", "buy one")


def test_a_hook_of_the_last_version_is_served_with_a_warning() -> None:
    old = plugin("old", api=(0, 2), targets=lambda: [target("a")], unavailable=unavailable)
    with pytest.warns(PluginDeprecation, match="plugin old .*hook perfdojo_unavailable .*doctor_probes"):
        plugins = load_plugins(extra=[old])
    assert plugins.problems == ()
    assert plugins.unavailable(plugins.target("a")) == Unavailable("no such device", "buy one")
    assert [name for name, _ in plugins.deprecations] == ["old"]


def test_a_plugin_of_this_version_has_no_hook_of_the_last_one() -> None:
    new = plugin("new", targets=lambda: [target("a")], unavailable=unavailable)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        [problem] = load_plugins(extra=[new]).problems
    assert problem.stage == "hooks" and problem.remedy == "use perfdojo_doctor_probes"
    assert problem.cause == "there is no hook perfdojo_unavailable in plugin API 0.3, for which it is written"


def test_an_argument_of_the_last_version_is_served_with_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = Deprecation("perfdojo_machine_figures", "nothing", (0, 3), (0, 2), argument="refresh")
    monkeypatch.setattr(deprecated, "DEPRECATIONS", (gone,))

    def figures(target: Target, refresh: bool) -> MachineFigures:
        return MachineFigures(calibrated=refresh)

    old = plugin("old", api=(0, 2), targets=lambda: [target("a")], machine_figures=figures)
    with pytest.warns(PluginDeprecation, match="plugin old .*argument refresh of perfdojo_machine_figures"):
        plugins = load_plugins(extra=[old])
    assert plugins.machine_figures(plugins.target("a"), refresh=True).calibrated
    [problem] = load_plugins(extra=[plugin("new", machine_figures=figures)]).problems
    assert "perfdojo_machine_figures has no argument refresh" in problem.cause
    new = plugin("new", targets=lambda: [target("b")], machine_figures=lambda target: MachineFigures())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert load_plugins(extra=[new]).deprecations == ()


# -- traces ----------------------------------------------------------------------------------------


class Unrolled(UnrollShort):
    """The toy move, two versions later.

    before:
        4 y[{0}] = x[{0}]
    after: toy/unroll_short(s0)
        4:u y[{0}] = x[{0}]
    """

    version = 3

    def upgrade(self, move: Move) -> Move | None:
        """Version 2 named scopes as version 3 does; version 1 did not."""
        return Move(move.transformation, move.place) if move.version == 2 else None


def rules(transformation: Transformation | None) -> Rules:
    known = {} if transformation is None else {transformation.name: transformation}
    packages = dict.fromkeys(known, "perfdojo-toy")
    return Rules(perfdojo_toy.TARGET.dialect, known, packages=packages)


def saved(version: int, package: str = "perfdojo-toy") -> SavedTrace:
    move = {"transformation": "toy/unroll_short", "version": version, "place": "s0", "package": package}
    return SavedTrace.model_validate({"schema": 2, "root": LOOP.text, "moves": [move]})


def test_a_trace_says_which_version_of_which_package_made_a_move() -> None:
    plugins = load_plugins(extra=[perfdojo_toy])
    game = Game.new(plugins, "toy", LOOP.text)
    played = game.apply(Move.of("toy/unroll_short", "s0"))
    [move] = played.trace.as_json()["moves"]  # type: ignore[misc]
    assert move["package"] == "perfdojo_toy" and move["version"] == 1
    generic = game.apply(Move.of("split_scope", "s0", factor=2))
    [move] = generic.trace.as_json()["moves"]  # type: ignore[misc]
    assert "package" not in move


def test_what_is_played_carries_the_version_that_played_it() -> None:
    trace = Trace(LOOP).play(rules(Unrolled()), Move.of("toy/unroll_short", "s0"))
    assert trace.moves[0].version == 3
    assert SavedTrace.of(trace).replay(rules(Unrolled())) == trace


def test_an_old_move_is_translated_by_its_transformation() -> None:
    replayed = saved(version=2).replay(rules(Unrolled()))
    assert replayed.moves[0].version == 3 and "4:u" in replayed.program.text


@pytest.mark.parametrize(
    ("transformation", "version", "code", "words"),
    [
        (Unrolled(), 1, "PD-J003", ["version 3 is installed", "cannot translate moves of version 1"]),
        (Unrolled(), 4, "PD-J003", ["version 3 is installed", "upgrade perfdojo-toy"]),
        (UnrollShort(), 2, "PD-J003", ["version 1 is installed", "upgrade perfdojo-toy"]),
        (None, 1, "PD-J005", ["the package perfdojo-toy brought it", "install perfdojo-toy"]),
    ],
    ids=["too old", "too new", "newer than all", "missing"],
)
def test_a_move_that_cannot_replay_says_why(
    transformation: Transformation | None, version: int, code: str, words: list[str]
) -> None:
    with pytest.raises(MoveError, match="move 0 of 1 does not replay") as caught:
        saved(version).replay(rules(transformation))
    assert caught.value.code == code
    assert all(word in f"{caught.value.why} {caught.value.hint}" for word in words), caught.value


def test_a_move_of_the_sdk_that_is_not_known_is_a_misspelling() -> None:
    with pytest.raises(MoveError) as caught:
        saved(1, package="").replay(rules(None))
    assert caught.value.code == "PD-T004"


def test_a_game_of_the_first_schema_still_loads(tmp_path: Path) -> None:
    """As the SDK wrote it before traces named packages."""
    plugins = load_plugins(extra=[perfdojo_toy])
    moves: list[dict[str, Any]] = [
        {"transformation": "toy/unroll_short", "version": 1, "place": "s0", "parameters": {}}
    ]
    trace = {"schema": 1, "root": LOOP.text, "moves": moves}
    path = tmp_path / "old.json"
    path.write_text(json.dumps({"schema": 1, "target": "toy", "trace": trace}))
    game = Game.load(plugins, path)
    assert "4:u" in game.program.text
    game.save(path)
    assert json.loads(path.read_text())["trace"]["schema"] == 2
    assert Game.load(plugins, path).trace == game.trace


def test_what_was_undone_is_put_back_only_in_a_known_version(tmp_path: Path) -> None:
    plugins = load_plugins(extra=[perfdojo_toy])
    game, _ = Game.new(plugins, "toy", LOOP.text).apply(Move.of("toy/unroll_short", "s0")).undo(0)
    path = tmp_path / "game.json"
    game.save(path)
    assert "4:u" in Game.load(plugins, path).redo().program.text
    path.write_text(path.read_text().replace('"version": 1', '"version": 7'))
    assert Game.load(plugins, path).undone == ()


@pytest.mark.parametrize("package", ["a b", "-x", "../x", "x" * 200, 5])
def test_a_package_in_a_trace_is_a_name(package: Any) -> None:
    with pytest.raises(ValueError):
        saved(1, package=package)

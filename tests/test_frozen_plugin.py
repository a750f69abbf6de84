"""A plugin of contract 0.2, as a wheel that is not rebuilt, still runs, and its files are still read."""

from __future__ import annotations

import shutil
import sys
import zipfile
from hashlib import sha256
from pathlib import Path

import pytest
from command_line import ROOT

from perfdojo_sdk.core.errors import MoveError
from perfdojo_sdk.core.transformation import Move
from perfdojo_sdk.game import Game
from perfdojo_sdk.kernels.selection import select
from perfdojo_sdk.library.build import build_library
from perfdojo_sdk.library.manifest import read_manifest
from perfdojo_sdk.library.settings import Settings
from perfdojo_sdk.plugins import Plugins, load_plugins
from perfdojo_sdk.store.database import Records
from perfdojo_sdk.store.exchange import import_file
from perfdojo_sdk.testing.conformance import run
from perfdojo_sdk.testing.context import Budget, Context
from perfdojo_sdk.verify import inputs

FROZEN = ROOT / "tests" / "frozen"
WHEEL = FROZEN / "perfdojo_antique-0.1.0-py3-none-any.whl"
REVERSE = "antique/reverse_scope"


@pytest.fixture
def plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plugins:
    """The plugin as ``pip`` would have installed it, alone."""
    site = tmp_path / "site"
    with zipfile.ZipFile(WHEEL) as wheel:
        wheel.extractall(site)
    monkeypatch.syspath_prepend(str(site))
    # The runner's other process finds the SDK where this one does.
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("PERFDOJO_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PERFDOJO_PLUGINS", "antique")
    for name in [n for n in sys.modules if n.partition(".")[0] == "perfdojo_antique"]:
        monkeypatch.delitem(sys.modules, name)
    return load_plugins(strict=True, targets=["antique"])


def test_nobody_touched_the_wheel() -> None:
    digest = "12612712af0f4471bf24ebfb1aec6bd10adb57f1e95617694ce2c4b9d0ca9a08"
    assert sha256(WHEEL.read_bytes()).hexdigest() == digest


def test_it_loads_without_complaint(plugins: Plugins) -> None:
    assert plugins.problems == () and plugins.target("antique").plugin == "antique"


def test_the_kit_passes(plugins: Plugins, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its emitter, its runner in another process, its move, its veto: everything that a vendor is held to."""
    # Its runner starts a process for each set of inputs; what many sets find, other tests show.
    monkeypatch.setattr(inputs, "_DRAWINGS", 4)
    monkeypatch.setattr(inputs, "SCALINGS", 2)
    [antique] = [p for p in plugins.loaded if p.name == "antique"]
    target = plugins.target("antique")
    budget = Budget("tiny", "for this test", walks=2, moves=6, shapes=2, seconds=5)
    results = list(run(Context(plugins, antique, target, budget)))
    assert {r.check.name: r.problems for r in results if r.outcome == "failed"} == {}
    assert sum(r.outcome == "passed" for r in results) > 20


def test_its_move_and_its_veto_take_part(plugins: Plugins) -> None:
    [kernel] = select("softmax[8,300]", plugins.operators, plugins.target("antique").dialect)
    game = Game.new(plugins, "antique", kernel.program)
    assert "m[-{0}+7]" in game.apply(Move(REVERSE, "s0")).program.text
    with pytest.raises(MoveError, match="the target does not allow it") as refused:
        game.apply(Move.of("annotate_scope", "s7", suffix="rep"))
    assert refused.value.code == "PD-T003" and "ends at 256" in refused.value.why
    with pytest.raises(MoveError) as refused:
        game.apply(Move(REVERSE, "s5"))
    assert refused.value.code == "ANT-002"


def test_its_saved_game_replays(plugins: Plugins, tmp_path: Path) -> None:
    game = Game.load(plugins, FROZEN / "game.json")
    assert [m.transformation for m in game.trace.moves] == [REVERSE, "split_scope", "annotate_scope"]
    game.save(tmp_path / "again.json")
    assert Game.load(plugins, tmp_path / "again.json").trace == game.trace


def test_it_builds_a_library(plugins: Plugins, tmp_path: Path) -> None:
    target = plugins.target("antique")
    kernels = select("softmax[8,24]", plugins.operators, target.dialect)
    result = build_library(plugins, target, kernels, tmp_path / "library", Settings(threads=1))
    assert result.failed == () and result.manifest
    [entry] = result.manifest.kernels
    assert entry.verification.passed and entry.speed_up and entry.speed_up > 1
    assert entry.timing.final and entry.timing.final.provenance == "simulated"
    assert [k.name for k in read_manifest(tmp_path / "library").kernels] == ["softmax_8x24_f32"]


def test_its_records_and_its_manifest_are_read(plugins: Plugins, tmp_path: Path) -> None:
    with Records(tmp_path / "records.sqlite") as records:
        assert import_file(records, FROZEN / "records.jsonl").kernels.new == 2
    shutil.copy(FROZEN / "manifest.json", tmp_path / "manifest.json")
    assert [k.name for k in read_manifest(tmp_path).kernels] == ["softmax_8x24_f32", "rmsnorm_4x32_f32"]

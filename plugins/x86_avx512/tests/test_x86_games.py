"""The game that ships with the plugin: softmax by hand, from the initial program to the lanes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import perfdojo_x86_avx512
import pytest
from perfdojo_x86_avx512.experiments import by_hand
from x86_support import Kernel

from perfdojo_sdk.core.text import parse
from perfdojo_sdk.core.transformation import Trace
from perfdojo_sdk.game import Game
from perfdojo_sdk.kernels.operators import SOFTMAX
from perfdojo_sdk.plugins import load_plugins
from perfdojo_sdk.verify.exact import verify_exact

GAME = Path(perfdojo_x86_avx512.__file__).parent / "games" / "softmax_by_hand.json"
ROWS = 12


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Game:
    """The same moves on a few rows."""
    small = tmp_path_factory.mktemp("game") / "small.json"
    text = GAME.read_text(encoding="utf-8")
    small.write_text(text.replace("24576", str(ROWS)), encoding="utf-8")
    return Game.load(load_plugins(), small)


def test_the_game_starts_where_the_operator_does() -> None:
    game = Game.load(load_plugins(), GAME)
    assert game.trace.root == parse(SOFTMAX.build(24576, 512))
    assert game.target.name == "x86_avx512" and len(game.trace.moves) == 62
    assert json.loads(GAME.read_text(encoding="utf-8")) == game.as_json()


def test_every_move_keeps_the_meaning(played: Game) -> None:
    """Leg 1 on the end of the game, with exactly the law that its one division needs."""
    trace: Trace = played.trace
    assert trace.laws == {"x/y = x*(1/y)"}
    report = verify_exact(trace.root, trace.program, trace.laws, played.rules.dialect, models=1)
    assert report.ok, report.problem


def test_programs_along_the_way_compute_softmax(
    played: Game, build_all: Callable[..., dict[str, Kernel]]
) -> None:
    steps = played.trace.steps
    texts = {f"after{n}": steps[n].after.text for n in (*range(5, len(steps), 8), len(steps) - 1)}
    x = (np.random.default_rng(3).standard_normal((ROWS, 512)) * 10).astype(np.float32)
    e = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    for name, kernel in build_all(texts).items():
        np.testing.assert_allclose(kernel(x)[0], e / e.sum(1, keepdims=True), rtol=1e-5, err_msg=name)


def test_the_end_uses_what_the_target_has(played: Game) -> None:
    text = played.program.text
    assert text.count(":v ") == 13 and " ahead\n" in text and f"\n{ROWS}:p\n" in text
    assert all(f"{name} f32 [{ROWS}:N" in text for name in ("m", "e", "s", "s_i", "m_p", "s_p", "x_r"))


@pytest.mark.parametrize("name", perfdojo_x86_avx512.TARGETS)
def test_fig10_plays_every_move_with_the_vectors_of_the_target(name: str) -> None:
    plugins = load_plugins()
    target = plugins.target(name)
    lanes = target.dialect.lanes["f32"]
    trace = by_hand(target, plugins.rules(target), ROWS)
    assert len(trace.moves) == 62 and dict(trace.moves[7].parameters) == {"factor": lanes}
    assert trace.program.text.count(f"{lanes}:v ") == 13
    report = verify_exact(trace.root, trace.program, trace.laws, target.dialect, models=1)
    assert report.ok, report.problem
    assert "x86_avx512/fig10" in plugins.experiments

"""The games of the passes are legal, verified, and as fast as published figures for the same kernels."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest
from perfdojo_riscv_snitch.codegen.functions import ACCURACY
from perfdojo_riscv_snitch.passes import greedy, heuristic
from snitch_support import Game

from perfdojo_sdk.core.text import parse
from perfdojo_sdk.core.transformation import Trace
from perfdojo_sdk.hookspecs.types import Measurement, RunRequest
from perfdojo_sdk.kernels.selection import select
from perfdojo_sdk.library import verification
from perfdojo_sdk.search.passes import naive
from perfdojo_sdk.testing.programs import random_program

GAME = Game()

#: Kernel -> cycles of others: published for xDSL or by hand (f32), or those of clang's C on our simulator.
PUBLISHED = {
    "dsum[20,20]": 435,
    "drelu[4,4]": 50,
    "dfill[20,20]": 431,
    "dconv3x3[20,20]": 5946,
    "dmaxpool[4,4]": 224,
    "dsumpool[20,20]": 5633,
    "dmatmul[4,16,8]": 668,
    "dmatmul[1,200,5]": 1056,
    "dmatmul_transb[4,16,16]": 1244,
    "smatmul_transb[4,16,16]": 755,
    "smatmul[4,16,8]": 668,  # in f64
    "smatmul[4,64,64]": 9830,  # as it was
    "dfill[4,4]": 39,
    "saxpy[64]": 100,
    "ssum[40,40]": 834,
    "srelu[40,40]": 834,
    "sconv3x3[4,4]": 344,  # clang
    "ssumpool[4,4]": 339,  # clang
    "smaxpool[4,4]": 224,  # in f64
    "sconv3x3[20,20]": 5946,  # in f64
    "ssumpool[20,20]": 5633,  # in f64
    "smaxpool[20,20]": 5426,  # in f64
}


def cycles(trace: Trace) -> float:
    artifact = GAME.compile(GAME.generator.generate(trace.program, "pd_pass"))
    measured = GAME.runner.run(artifact, RunRequest(repeats=1))
    assert isinstance(measured, Measurement), f"{measured}\n{trace.program}"
    return measured.details["snitch.cycles"]


def played(selection: str) -> tuple[Trace, Sequence[Trace], Sequence[Trace]]:
    """Naive, greedy and heuristic."""
    (kernel,) = select(selection, GAME.plugins.operators_for(GAME.target), GAME.target.dialect)
    arguments = (kernel.program, GAME.rules)
    return naive(*arguments), greedy(*arguments, GAME.target), heuristic(*arguments, GAME.target)


@pytest.mark.parametrize("selection", PUBLISHED)
def test_the_heuristic_is_not_slower_than_what_is_published(selection: str) -> None:
    first, greedily, games = played(selection)
    best = min(map(cycles, games))
    assert best <= PUBLISHED[selection]
    assert best <= cycles(greedily[0]) <= cycles(first)


@pytest.mark.parametrize("selection", ["dmatmul[4,64,64]", "dmatmul[4,128,64]", "dmatmul[32,32,32]"])
def test_large_products_are_at_the_peak(selection: str) -> None:
    """At 0.99 of it; also where staged copies would not fit the memory for a moment of the game."""
    (kernel,) = select(selection, GAME.plugins.operators_for(GAME.target), GAME.target.dialect)
    best = min(map(cycles, heuristic(kernel.program, GAME.rules, GAME.target)))
    m, k, n = (size for _, size in kernel.sizes)
    assert m * k * n >= 0.99 * best


@pytest.mark.parametrize(
    "selection",
    [
        "dmatmul[2,4,8]",
        "sconv3x3[2,4]",
        "sconv3x3[3,10]",
        "ssumpool[4,4]",
        "slayernorm[2,8]",
        "smaxpool[2,6]",
        "ddense[2,4,8]",
        "srelu[4,4]",
        "smatmul_transb[2,6,5]",
        "smatmul[3,5,6]",
        "smatmul[2,8,16]",
        "hmatmul[2,8,32]",
        "sdot[6]",
    ],
)
def test_what_passes_play_is_verified(selection: str) -> None:
    _, greedily, games = played(selection)
    trace = min((*greedily, *games), key=cycles)
    artifact = GAME.compile(GAME.generator.generate(trace.program, "pd_pass"))
    legs = verification.verify(verification.Subject(trace, GAME.rules, artifact, GAME.runner, ACCURACY, 1, 0))
    assert trace.steps and legs.passed, legs.failure


def test_what_has_no_streams_is_played_too() -> None:
    for selection in ("dsoftmax[2,4]", "slayernorm[2,4]", "dgelu[2,2]", "ddot[6]"):
        first, greedily, games = played(selection)
        assert min(map(cycles, games)) <= 1.05 * cycles(first) and cycles(greedily[0])


def test_greedy_is_a_strategy_of_its_own() -> None:
    strategy = GAME.plugins.search_strategy("riscv_snitch/greedy")
    assert strategy.doc and strategy.name == "riscv_snitch/greedy"


GUARDED = """kernel k(x) -> y
x f32 [6,8] heap
y f32 [6,8] heap

6 8 y[{0},{1}] = x[{0},{1}]
6 8
| y[{0},{1}] += x[{0},{1}] if {0}+{1} >= 4
| y[{0},{1}] *= 2 if {1} < 3
"""

BATCH_OF_SINGLES = "batchnorm[2,8,1,1]"


def test_two_updates_in_one_nest_are_played() -> None:
    games = heuristic(parse(GUARDED, GAME.target.dialect), GAME.rules, GAME.target)
    assert any(game.steps for game in games)


def test_a_nest_that_cannot_be_collapsed_is_left_whole() -> None:
    (kernel,) = select(BATCH_OF_SINGLES, GAME.plugins.operators_for(GAME.target), GAME.target.dialect)
    assert any(game.steps for game in heuristic(kernel.program, GAME.rules, GAME.target))


@pytest.mark.parametrize("seed", [0, 4, 15, 71, 156])
def test_the_expert_answers_for_any_program(seed: int) -> None:
    """Regression: in each of these programs the expert once asked for a node that does not exist."""
    program = random_program(Random(seed))
    for game in (*heuristic(program, GAME.rules, GAME.target), *greedy(program, GAME.rules, GAME.target)):
        assert game.root == program

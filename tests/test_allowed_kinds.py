"""Experts play moves of the kinds that a user allows, and no others, and leave no kernel without a game."""

from __future__ import annotations

from dataclasses import replace

import pytest

from perfdojo_sdk.core.transformation import Kind
from perfdojo_sdk.kernels.selection import select
from perfdojo_sdk.plugins import load_plugins

FLOATS = (
    "softmax[8,64] layernorm[8,96] rmsnorm[8,64] batchnorm[2,4,16,16] matmul[64,64,64] swiglu[8,16,32]"
    " relu_ffn[2,4,8,8] reducemean[16,64] add[8,64]"
)
DOUBLES = "softmax[8,8] dsum[8,8] ddot[8] dsoftmax[8,8] dlayernorm[8,32] dmatmul[8,8,8]"
TARGETS = {
    "x86_avx512": FLOATS,
    "x86_avx2": FLOATS,
    "arm_neon": FLOATS,
    "cuda_gh200": FLOATS,
    "hip_mi300a": FLOATS,
    "riscv_snitch": DOUBLES,
}


@pytest.mark.parametrize("most", [Kind.EXACT, Kind.REASSOCIATES], ids=lambda kind: kind.label)
@pytest.mark.parametrize("target", TARGETS)
def test_an_expert_has_a_game_of_allowed_moves_for_every_kernel(target: str, most: Kind) -> None:
    plugins = load_plugins(targets=[target])
    found = plugins.require(target)
    rules, expert = replace(plugins.rules(found), most=most), plugins.heuristic_pass(found)
    assert expert is not None
    for kernel in select(TARGETS[target], plugins.operators, found.dialect):
        games = expert(kernel.program, rules, found)
        assert games and max(game.kind for game in games) <= most, kernel.name
        assert any(game.moves for game in games), kernel.name

"""The plans that ``perfdojo-sdk explain-plan`` prints, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from command_line import Outcome

from perfdojo_sdk.plugins import load_plugins
from tests.test_planner import PADDED

Cli = Callable[..., Outcome]


def test_explain_plan_prints_decisions_with_reasons(cli: Cli, tmp_path: Any) -> None:
    able = [t.name for t in load_plugins().targets.values() if "x86" in t.name]
    if not able:
        pytest.skip("needs a target with this expert")
    file = tmp_path / "padded.dojo"
    file.write_text(PADDED)
    words = ("explain-plan", str(file), "--target", able[0], "--threads", "8")
    outcome = cli(*words, plugins=able[0])
    assert outcome.code == 0, outcome.err
    assert "split off" in outcome.out and "the condition holds in most" in outcome.out
    data = cli(*words, "--json", plugins=able[0]).data
    assert data["threads"] == 8 and data["games"] and data["shares"]
    assert all(d["rule"] and d["choice"] and d["reason"] for d in data["decisions"])


def test_a_target_whose_expert_does_not_tell(cli: Cli) -> None:
    outcome = cli("explain-plan", "softmax[8,16]", "--target", "paper")
    assert outcome.code == 3 and "PD-G016" in outcome.err


PRODUCT = """kernel product(x, w) -> y
x f32 [4,256] heap
w f32 [512,256] heap
y f32 [4,512] heap

4 512
| y[{0},{1}] = 0
| 256 y[{0},{1}] += x[{0},{2}] * w[{1},{2}]
"""


def test_the_plan_of_a_program_knows_the_constants_that_it_is_told(cli: Cli, tmp_path: Any) -> None:
    able = [t.name for t in load_plugins().targets.values() if "x86" in t.name]
    if not able:
        pytest.skip("needs a target with this expert")
    (tmp_path / "product.dojo").write_text(PRODUCT)
    words = ("explain-plan", "product.dojo", "--target", able[0], "--json")
    told = cli(*words, "--constant", "w", plugins=able[0]).data
    assert told["constants"] == ["w"] and "packed" in json.dumps(told["decisions"])
    assert told["games"] != cli(*words, plugins=able[0]).data["games"]
    text = cli(*words[:-1], "--constant", "w", plugins=able[0]).out
    assert "constant from call to call: w" in text
    wrong = cli(*words[:-1], "--constant", "v", plugins=able[0])
    assert wrong.code == 1 and "PD-C013" in wrong.err and "known: w, x" in wrong.err
    output = cli(*words[:-1], "--constant", "y", plugins=able[0])
    assert output.code == 1 and "product has no such input" in output.err


def test_a_constant_of_a_program_is_not_written(cli: Cli, tmp_path: Any) -> None:
    text = "kernel step(x, k) -> k\nx f32 [8] heap\nk f32 [8] heap\n\n8 k[{0}] = k[{0}] + x[{0}]\n"
    (tmp_path / "step.dojo").write_text(text)
    refused = cli("explain-plan", "step.dojo", "--constant", "k")
    assert refused.code == 1 and "step writes into this input" in refused.err


def test_a_kernel_of_a_model_is_asked_for_with_a_model(cli: Cli) -> None:
    refused = cli("explain-plan", "softmax[8,16]", "--kernel", "softmax")
    assert refused.code == 2 and "--kernel is for models" in " ".join(refused.err.split())


def test_shapes_of_inputs_are_not_taken_for_a_program(cli: Cli, tmp_path: Any) -> None:
    (tmp_path / "product.dojo").write_text(PRODUCT)
    for source in ("product.dojo", "softmax[8,16]"):
        refused = cli("explain-plan", source, "--input", "x=f32[8,256]")
        assert refused.code == 2 and not refused.out
        said = " ".join(refused.err.split())
        assert f"--input is for models, and {source} is a program or a kernel" in said
        assert "says the shapes of its inputs itself" in said

"""The plans that ``perfdojo-sdk explain-plan`` prints, and what it refuses."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_line import Outcome

from perfdojo_sdk.cli.explain_plan import KINDS, WAYS, WIDEST, WORDS
from perfdojo_sdk.game import read_saved
from perfdojo_sdk.hookspecs.abilities import ExplainsPlans, ability
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


BYTES = """kernel bytes(x, w) -> y
x u8 [64,64] heap
w i8 [64,64] heap
y i32 [64,64] heap

64 64
| y[{0},{1}] = 0
| 64 y[{0},{1}] += i32(x[{0},{2}]) * i32(w[{2},{1}])
"""


def target_with_groups(factors: tuple[str, str]) -> tuple[str, str]:
    """A target whose expert explains its plans and that adds up such products, and its instruction for it."""
    plugins = load_plugins()
    for target in plugins.targets.values():
        if ability(plugins.heuristic_pass(target), ExplainsPlans) is None:
            continue
        for suffix in target.dialect.suffixes.values():
            for group in suffix.groups:
                if group.factors == factors and group.instruction:
                    return target.name, group.instruction
    pytest.skip("needs a target that adds up such groups")


def test_the_instruction_of_a_group_is_the_one_that_the_target_declares(cli: Cli, tmp_path: Path) -> None:
    target, instruction = target_with_groups(("u8", "i8"))
    (tmp_path / "bytes.dojo").write_text(BYTES)
    outcome = cli("explain-plan", "bytes.dojo", "--target", target, plugins=target)
    assert outcome.code == 0, outcome.err
    assert "adds up" in outcome.out and "of u8 and i8 at a time" in outcome.out
    groups = cli("explain-plan", "bytes.dojo", "--target", target, "--json", plugins=target).data["groups"]
    used = {each["instruction"] for game in groups for each in game}
    assert instruction in used and all(f"{name} adds up" in outcome.out for name in used)
    assert {each["total"] for game in groups for each in game} == {"i32"}
    floats = cli("explain-plan", "softmax[8,16]", "--target", target, plugins=target).out
    assert "adds up" not in floats


def test_every_shipped_group_names_its_instruction() -> None:
    for target in load_plugins().targets.values():
        for suffix in target.capabilities.extra_suffixes.values():
            assert all(group.instruction for group in suffix.groups), target.name


def test_the_expert_s_game_is_saved_to_be_played_on(cli: Cli, tmp_path: Path) -> None:
    target, _ = target_with_groups(("u8", "i8"))
    (tmp_path / "bytes.dojo").write_text(BYTES)
    words = ("explain-plan", "bytes.dojo", "--target", target)
    planned = cli(*words, "--output", "one.json", "--json", plugins=target)
    assert planned.code == 0 and "saved as one.json" in planned.err
    assert cli(*words, "-o", "two.json", "--game", "2", plugins=target).code == 0
    for number, name in enumerate(("one.json", "two.json")):
        replayed = cli("replay", name, "--json", plugins=target)
        assert replayed.code == 0, replayed.err
        saved = read_saved(tmp_path / name)
        assert saved.target == target
        assert [move.move().text for move in saved.trace.moves] == planned.data["games"][number]
    undone = cli("undo", "one.json", "1", plugins=target)
    assert undone.code == 0, undone.err


def test_a_plan_goes_on_from_the_moves_of_a_game(cli: Cli, tmp_path: Path) -> None:
    target, _ = target_with_groups(("u8", "i8"))
    (tmp_path / "bytes.dojo").write_text(BYTES)
    begun = cli(
        "apply", "bytes.dojo", "--target", target, "fission_scope(s2)", "-o", "begun.json", plugins=target
    )
    assert begun.code == 0, begun.err
    planned = cli("explain-plan", "begun.json", "-o", "whole.json", "--json", plugins=target)
    assert planned.code == 0, planned.err
    moves = [move.move().text for move in read_saved(tmp_path / "whole.json").trace.moves]
    assert moves == ["fission_scope(s2)", *planned.data["games"][0]]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--game", "99", "-o", "x.json"), "--game 99: the expert plays"),
        (("--game", "2"), "--game needs --output"),
        (("-o", "bytes.dojo"), "--output would replace bytes.dojo"),
    ],
)
def test_a_game_that_cannot_be_saved(cli: Cli, tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    target, _ = target_with_groups(("u8", "i8"))
    (tmp_path / "bytes.dojo").write_text(BYTES)
    refused = cli("explain-plan", "bytes.dojo", "--target", target, *words, plugins=target)
    assert refused.code == 2 and said in " ".join(refused.err.split()) and not (tmp_path / "x.json").exists()
    assert (tmp_path / "bytes.dojo").read_text() == BYTES


def test_the_words_of_a_table_are_explained_below_it_and_no_others(cli: Cli, tmp_path: Path) -> None:
    target, _ = target_with_groups(("u8", "i8"))
    (tmp_path / "bytes.dojo").write_text(BYTES)
    product = cli("explain-plan", "bytes.dojo", "--target", target, plugins=target).out
    assert f"  contraction: {WAYS['contraction']}" in product and f"  tiles: {WORDS['tiles']}" in product
    rows = cli("explain-plan", "softmax[8,16]", "--target", target, plugins=target).out
    assert f"  rows: {WAYS['rows']}" in rows and f"  reduction: {KINDS['reduction']}" in rows
    for text in (product, rows):
        assert "window:" not in text and "uses of an element" not in text and "least us" not in text
        assert "threads:" not in text, "nothing is shared by one thread"


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


@pytest.mark.parametrize(
    ("rows", "choice", "fewest", "most"),
    [(8, "one thread", 0, 2), (200, "all threads or one thread: a measurement decides", 2, 8)]
    + [(2048, "all threads", 8, 1e9)],
)
def test_figures_of_a_plan_bear_its_reasons_out(
    rows: int, choice: str, fewest: float, most: float, cli: Cli
) -> None:
    """Data are the inputs and outputs, each element once, whatever the loops; threads follow from the time to
    move them."""
    target, _ = target_with_groups(("u8", "i8"))
    made = cli("explain-plan", f"softmax[{rows},512]", "--target", target, "--json", plugins=target)
    rules = {each["rule"]: each for each in made.data["decisions"]}
    part, threads = rules["parts"], rules["threads"]
    assert part["numbers"]["bytes"] == threads["numbers"]["bytes"] == 2 * 4 * rows * 512
    assert part["numbers"]["us at least"] >= threads["numbers"]["us to move"]
    assert part["numbers"]["iterations"] == rows * (2 + 4 * 512)
    assert part["numbers"]["operations"] == rows * 5 * 512
    times = threads["numbers"]["us to move"] / threads["numbers"]["us to start threads"]
    assert fewest <= times <= most and threads["choice"] == choice
    bounds = [f"{bound:g} " for bound in (fewest, most) if 0 < bound < 1e9]
    assert all(bound in threads["reason"] for bound in bounds), threads["reason"]


def test_rows_of_a_plan_are_wrapped_where_no_terminal_reads_them(cli: Cli) -> None:
    [able, *_] = [t.name for t in load_plugins().targets.values() if "x86" in t.name] or [""]
    if not able:
        pytest.skip("needs a target with this expert")
    words = ("explain-plan", "matmul[64,64,64]", "--target", able)
    text, data = cli(*words, plugins=able).out, cli(*words, "--json", plugins=able).data
    rows = [line for line in text.splitlines() if not re.match(r"  [\w{}][\w{} ]*: ", line)]
    assert len(rows) > 10 and max(map(len, rows)) <= WIDEST
    row = max(data["decisions"], key=lambda decision: len(decision["reason"]))
    assert len(str(row)) > WIDEST and row["reason"].split()[0] in text, "programs get it whole"

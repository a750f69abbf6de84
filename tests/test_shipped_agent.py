"""The trained agents that come with the SDK: their files, their cards, when a search begins with which."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("safetensors")

from bag_encoder import BagEncoder
from command_line import Outcome
from learners import ROOT, TARGET
from snippets import RULES

from perfdojo_sdk.cli.search_options import search_options
from perfdojo_sdk.core.errors import DojoError
from perfdojo_sdk.hookspecs.search import SearchTask
from perfdojo_sdk.perfllm import agent_files, strategies
from perfdojo_sdk.perfllm.encoder import load_encoder
from perfdojo_sdk.perfllm.player import agent_for
from perfdojo_sdk.perfllm.strategies import (
    ShippedAgent,
    agent_options,
    every_shipped,
    shipped_agent,
    shipped_agents,
    shipped_options,
)

ANY = every_shipped()[0].file


@pytest.mark.parametrize("agent", every_shipped(), ids=lambda agent: agent.file.stem)
def test_each_belongs_to_the_encoder_that_comes_with_it(agent: ShippedAgent) -> None:
    loaded = agent_files.load(agent.file)
    assert loaded.encoder.version == load_encoder(loaded.encoder_spec).version
    assert agent.file.stat().st_size < 2 << 20


@pytest.mark.parametrize("agent", every_shipped(), ids=lambda agent: agent.file.stem)
def test_each_card_says_what_its_file_says(agent: ShippedAgent) -> None:
    record, _ = agent_files.read(agent.file)
    written = json.loads(agent.file.with_suffix(".json").read_text())
    assert set(written.pop("helps_on")) == agent.helps_on <= set(record.card.targets)
    assert agent_files.summary(record) == written
    assert record.card.notes and record.card.kernels and record.card.plugins
    assert agent.helps_on and len(agent.learned) >= 4


def test_it_is_refused_where_the_encoder_is_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_files, "load_encoder", lambda spec: BagEncoder(version="1" * 64))
    with pytest.raises(DojoError) as caught:
        agent_files.load(ANY)
    assert caught.value.code == "PD-L304" and caught.value.hint


def test_it_is_refused_when_it_is_of_a_later_form(tmp_path: Path) -> None:
    later = tmp_path / "later.safetensors"
    head, tensors = agent_files.read_tensors(ANY)
    record = {**json.loads(head[agent_files.RECORD]), "schema": 2}
    later.write_bytes(agent_files.packed(tensors, {agent_files.RECORD: json.dumps(record)}))
    with pytest.raises(DojoError) as caught:
        agent_files.load(later)
    assert caught.value.code == "PD-L303" and "schema" in caught.value.render()


@pytest.mark.parametrize("target", sorted({name for agent in every_shipped() for name in agent.helps_on}))
def test_searches_begin_with_one_where_it_helps_unless_told_otherwise(target: str, tmp_path: Path) -> None:
    with_it = dict(shipped_options(target))
    assert with_it["agent"] == "shipped" and shipped_options("toy") == ()
    told = dict(search_options(None, ["epsilon_first=0.3"], "perfllm", target))
    assert told == {"epsilon_first": "0.3", **with_it}
    assert search_options(None, None, "perfllm", "toy") == ()
    assert search_options(None, None, "evolution", target) == ()
    assert search_options(None, ["agent=none"], "perfllm", target) == (("agent", "none"),)
    assert search_options(None, ["encoder=default"], "perfllm", target) == (("encoder", "default"),)
    other = tmp_path / "other.safetensors"
    other.write_bytes(b"x")
    assert dict(search_options(other, None, "perfllm", target)) == dict(agent_options(other))


def test_a_kernel_is_played_by_the_agent_that_has_learned_its_operator(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = ShippedAgent(ANY, frozenset({"toy"}), frozenset({"softmax on toy", "relu on other"}))
    first = ShippedAgent(ANY.with_name("first"), frozenset({"toy", "other"}), frozenset({"relu on toy"}))
    monkeypatch.setattr(strategies, "every_shipped", lambda: (first, rows))
    assert shipped_agent("toy", "softmax") == rows.file
    assert shipped_agent("toy", "relu") == shipped_agent("toy", "of nobody") == first.file
    assert shipped_agent("other", "relu") == first.file, "what does not help there is not asked"
    asked = SearchTask(ROOT, RULES, replace(TARGET, name="toy"), options={"agent": "shipped"})
    assert agent_for(asked).learner.settings == agent_files.read(ANY)[0].settings
    with pytest.raises(DojoError) as caught:
        shipped_agents("a third")
    assert caught.value.code == "PD-L310" and "other, toy" in caught.value.render()


def test_operators_are_read_off_the_card() -> None:
    learned = {name for agent in every_shipped() for name in agent.learned}
    assert {"dsum on riscv_snitch", "dmatmul_transb on riscv_snitch"} <= learned


def test_the_command_line_says_which_there_are(cli: Callable[..., Outcome]) -> None:
    outcome = cli("agents", "--json")
    assert outcome.code == 0 and outcome.data["agents"]
    for agent in outcome.data["agents"]:
        card = cli("agents", agent["file"], "--json").data["card"]
        assert set(agent["helps_on"]) <= set(card["targets"]) and agent["learned"]
        assert agent["file"] in cli("agents").out

"""The trained agent that comes with the SDK: its file, its card, when a search begins with it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("safetensors")

from bag_encoder import BagEncoder

from perfdojo_sdk.cli.search_options import search_options
from perfdojo_sdk.core.errors import DojoError
from perfdojo_sdk.perfllm import agents
from perfdojo_sdk.perfllm.encoder import load_encoder
from perfdojo_sdk.perfllm.strategies import SHIPPED, agent_options, shipped_options

CARD = json.loads(SHIPPED.with_suffix(".json").read_text())
HELPS_ON = CARD.pop("helps_on")


def test_it_belongs_to_the_encoder_that_comes_with_it() -> None:
    mind = agents.load(SHIPPED)
    assert mind.encoder.version == load_encoder(mind.encoder_spec).version
    assert SHIPPED.stat().st_size < 2 << 20


def test_its_card_says_what_its_file_says() -> None:
    record, _ = agents.read(SHIPPED)
    assert agents.summary(record) == CARD
    assert set(HELPS_ON) <= set(record.card.targets)
    assert record.card.notes and record.card.kernels and record.card.plugins


def test_it_is_refused_where_the_encoder_is_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agents, "load_encoder", lambda spec: BagEncoder(version="1" * 64))
    with pytest.raises(DojoError) as caught:
        agents.load(SHIPPED)
    assert caught.value.code == "PD-L304" and caught.value.hint


def test_it_is_refused_when_it_is_of_a_later_form(tmp_path: Path) -> None:
    later = tmp_path / "later.safetensors"
    tensors = agents.read_tensors(SHIPPED)[1]
    later.write_bytes(agents.packed(tensors, {agents.RECORD: json.dumps({**CARD, "schema": 2})}))
    with pytest.raises(DojoError) as caught:
        agents.load(later)
    assert caught.value.code == "PD-L303" and "schema" in caught.value.render()


def test_searches_begin_with_it_where_it_helps_unless_told_otherwise(tmp_path: Path) -> None:
    [target] = HELPS_ON
    with_it = dict(agent_options(SHIPPED))
    assert dict(shipped_options(target)) == with_it and shipped_options("toy") == ()
    assert dict(search_options(None, ["epsilon_first=0.3"], "perfllm", target)) == {
        "epsilon_first": "0.3",
        **with_it,
    }
    assert search_options(None, None, "perfllm", "toy") == ()
    assert search_options(None, None, "evolution", target) == ()
    assert search_options(None, ["agent=none"], "perfllm", target) == (("agent", "none"),)
    assert search_options(None, ["encoder=default"], "perfllm", target) == (("encoder", "default"),)
    other = tmp_path / "other.safetensors"
    other.write_bytes(b"x")
    assert dict(search_options(other, None, "perfllm", target)) == dict(agent_options(other))

"""Training of the encoder: it learns, and the probe tells good vectors from bad ones."""

from __future__ import annotations

import json
from dataclasses import replace
from math import isfinite
from pathlib import Path
from random import Random

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("safetensors")

from perfdojo_sdk.core.text import parse
from perfdojo_sdk.environment.clock import Time
from perfdojo_sdk.perfllm.encoder import data, load_encoder, pretrain
from perfdojo_sdk.perfllm.encoder.corpus import Corpus
from perfdojo_sdk.perfllm.encoder.data import HELD_OUT, SIMULATED, Field, Sample, samples_of, walk
from perfdojo_sdk.perfllm.encoder.model import Shape, initialised
from perfdojo_sdk.perfllm.encoder.probe import (
    PENALTIES,
    TokenCounts,
    best_penalty,
    labels_of,
    moves_of,
    quality,
)
from perfdojo_sdk.perfllm.encoder.vocabulary import Vocabulary
from perfdojo_sdk.plugins import load_plugins

LABEL = "seconds simulated here"


@pytest.fixture(scope="module")
def field() -> Field:
    plugins = load_plugins()
    return Field.of(plugins, plugins.target("best"))


def played(field: Field, seed: int, count: int) -> list[Sample]:
    """The samples of ``count`` walks; a second for each line of the program."""

    def clock(program: object) -> Time:
        return Time(float(str(program).count("\n")), "measured")

    chance, found = Random(seed), []
    while len({s.walk for s in found}) < count:
        kernel = field.kernel(chance, SIMULATED)
        if kernel is None:  # no sizes of this operator were drawn that fit
            continue
        found += samples_of(field, kernel.operator, len(found), walk(chance, field, kernel.program), clock)
    return found


@pytest.fixture(scope="module")
def samples(field: Field) -> list[Sample]:
    return played(field, 0, 6)


def test_walks_are_programs_of_the_target_one_move_apart(field: Field, samples: list[Sample]) -> None:
    by_place = {(s.walk, s.number): s for s in samples}
    for sample in samples:
        assert parse(sample.text, field.target.dialect).text == sample.text
        parent = by_place[sample.walk, sample.parent]
        assert (parent is sample) == (sample.number == 0)
        assert sample.number == 0 or parent.text != sample.text
        assert all(isfinite(value) for value in sample.labels.values())
        assert f"seconds measured {field.target.name}" in sample.labels
    assert any(a.parent == b.parent for a, b in zip(samples, samples[1:]) if a.number), "there are siblings"


def test_the_same_seed_gives_the_same_programs(field: Field, samples: list[Sample]) -> None:
    assert played(field, 0, 6) == samples
    assert played(field, 1, 6) != samples


def test_samples_survive_the_file_and_walks_of_two_files_stay_apart(
    tmp_path: Path, samples: list[Sample]
) -> None:
    path = tmp_path / "programs.jsonl"
    assert data.write_samples(path, samples) == len(samples)
    assert data.read_all([path]) == samples
    twice = data.read_all([path, path])
    assert len({s.walk for s in twice}) == 2 * len({s.walk for s in samples})


def test_a_batch_compares_programs_of_one_walk(samples: list[Sample]) -> None:
    corpus = Corpus(samples, Vocabulary.of(()))
    batch = next(corpus.batches(Random(0), walks=3, programs=5))
    assert len(batch.rows) == len(batch.labels) <= 15
    texts = {tuple(row[there].tolist()) for row, there in zip(batch.rows, batch.there)}
    assert len(texts) > 1 and int(batch.rows.max()) < len(batch.lines)
    assert all(0 <= int(k) < len(batch.rows) for pair in batch.pairs for k in pair)


def test_one_command_makes_an_encoder_and_a_second_one_goes_on(
    tmp_path: Path, samples: list[Sample], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command makes from samples an encoder that loads; held-out kernels are not trained on."""
    monkeypatch.setattr(pretrain, "WALKS", 2)
    known = [s for s in samples if not s.held_out]
    held = [replace(s, operator=HELD_OUT[0]) for s in known[:5]]
    assert known
    file, out, more = tmp_path / "programs.jsonl", tmp_path / "out", tmp_path / "more"
    data.write_samples(file, [*known, *held])
    given = ["--data", str(file), "--steps", "2", "--seed", "3"]
    pretrain.main(["--out", str(out), *given])
    card = json.loads((out / "card.json").read_text(encoding="utf-8"))
    encoder = load_encoder(str(out))
    assert card["version"] == encoder.version and card["programs"] == len(known)
    vectors = encoder.encode([s.text for s in known])
    assert abs(vectors.mean()) < 0.5 and 0.3 < vectors.std() < 3
    pretrain.main(["--out", str(more), "--start", str(out), *given])
    after = json.loads((more / "card.json").read_text(encoding="utf-8"))
    assert after["went on from"] == card and after["version"] != card["version"]


def test_training_lowers_the_losses(samples: list[Sample], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pretrain, "WALKS", 2)
    monkeypatch.setattr(pretrain, "PROGRAMS", 6)
    monkeypatch.setattr(pretrain, "WARM_UP", 5)
    monkeypatch.setattr(pretrain, "HIDDEN_LINES", 16)
    vocabulary = Vocabulary.of(())
    corpus = Corpus([s for s in samples if not s.held_out], vocabulary)

    def reached(steps: int) -> dict[str, float]:
        """Means over so many steps from the start."""
        model = initialised(Shape(len(vocabulary.words), 16, 16, 16, heads=2), 0)
        return pretrain.train(model.train(), corpus, minutes=10, seed=0, most_steps=steps)

    first, all_of_them = reached(5), reached(120)
    assert all_of_them["steps"] == 120
    for loss in ("values", "hidden"):
        assert all_of_them[loss] < 0.92 * first[loss], loss


class Sees:
    """An encoder whose vector is the number of lines, and noise if ``seeing`` is off."""

    name, version, width = "sees", "1", 2

    def __init__(self, seeing: bool) -> None:
        self.seeing = seeing

    def forget(self) -> None:
        pass

    def encode(self, texts: object) -> np.ndarray:  # type: ignore[type-arg]
        chance = np.random.default_rng(0)
        lines = [[text.count("\n"), 0.0] for text in texts]  # type: ignore[attr-defined]
        return np.array(lines if self.seeing else chance.normal(size=(len(lines), 2)), np.float32)


def test_the_probe_tells_good_vectors_from_bad_ones() -> None:
    chance, samples = Random(0), []
    for walk_number in range(60):
        operator, lines = ("op" + HELD_OUT[0]) if walk_number % 3 == 0 else f"op{walk_number % 7}", 9
        for number in range(5):
            lines += chance.randint(0, 5)
            text = "x\n" * lines
            samples.append(
                Sample("t", operator, walk_number, number, max(0, number - 1), text, {LABEL: 0.3 * lines})
            )
    before, after = moves_of(samples, LABEL)
    assert len(before) == len(after) == 240
    good, bad = (quality("e", Sees(seeing), samples, LABEL) for seeing in (True, False))
    assert good.r2 > 0.99 and good.rank > 0.9 and good.judged_on == 80 and good.learned_from == 160
    assert bad.r2 < 0.2


def test_the_penalty_is_chosen_by_what_is_said_of_other_operators() -> None:
    """The smallest penalty overfits where there are more features than samples; other operators show it."""
    chance = np.random.default_rng(0)
    x = chance.normal(size=(40, 60))
    y = x[:, 0] + chance.normal(size=40)
    operators = [f"op{k % 5}" for k in range(40)]
    assert best_penalty(x, y, operators) > PENALTIES[0]
    assert best_penalty(x, y, ["op"] * 40) == PENALTIES[-1]


def test_what_cannot_be_judged_is_no_label() -> None:
    def walk(operator: str, label: str) -> list[Sample]:
        return [Sample("t", operator, len(label + operator), k, 0, "x", {label: 0.0}) for k in range(2)]

    held = "op" + HELD_OUT[0]
    assert labels_of([*walk("op", LABEL), *walk(held, LABEL)]) == [LABEL]
    assert labels_of([*walk("op", LABEL), *walk(held, "seconds measured u")]) == []


def test_counts_of_tokens_count() -> None:
    vocabulary = Vocabulary.of(())
    counts = TokenCounts(vocabulary, ["kernel f(x) -> y\n\n8 y[{0}] = x[{0}]", "8 8\n8"])
    one, two = counts.encode(["8", "8 8"])
    changed = [vocabulary.words[k] for k in np.flatnonzero(one != two)]
    assert changed == ["8"]

"""Quality and speed of an encoder.

    python -m perfdojo_sdk.perfllm.encoder.probe [--encoder default] [--data programs.jsonl] [--json]

*Quality*: a linear probe (ridge regression on the embedding before a move and on the change by the move)
predicts the change of the logarithm of the run time, on kernels that neither the encoder nor the probe has
seen. The baselines are an encoder with random weights, and counts of tokens. R2 is 1 - (squared error) /
(squares around the mean of the changes); predicting that mean gives 0.

*Speed*: processor time in seconds for the programs that are one move away from a program, on one core, along
a game: when a state is new to the encoder, and again when all its lines are known.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from perfdojo_sdk.core.files import write_whole
from perfdojo_sdk.game import Game
from perfdojo_sdk.kernels.selection import select
from perfdojo_sdk.perfllm.encoder import SHIPPED, Encoder, data, load_encoder
from perfdojo_sdk.perfllm.encoder.data import Sample
from perfdojo_sdk.perfllm.encoder.line_encoder import LineEncoder
from perfdojo_sdk.perfllm.encoder.model import initialised
from perfdojo_sdk.perfllm.encoder.tokenizer import lines_of, tokens_of
from perfdojo_sdk.perfllm.encoder.vocabulary import Vocabulary
from perfdojo_sdk.plugins import load_plugins

if TYPE_CHECKING:
    from perfdojo_sdk.perfllm.encoder.embeddings import Embeddings

PENALTIES = tuple(10.0**k for k in range(-1, 6))
#: Of the operators learned from; the penalty is chosen on each in turn by what the others say of it.
PARTS = 4

Matrix = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True)
class Quality:
    """The accuracy of a probe on the moves of held-out kernels."""

    encoder: str
    label: str
    r2: float
    rank: float
    """Spearman's correlation."""
    learned_from: int
    """Moves."""
    judged_on: int


class TokenCounts:
    """An :class:`Encoder` that counts tokens: what a model has to be better than."""

    name, version = "counts of tokens", "1"

    def __init__(self, vocabulary: Vocabulary, texts: Sequence[str]) -> None:
        self.vocabulary, self.width = vocabulary, len(vocabulary.words)
        counts = self._counts(texts)
        self.mean, self.spread = counts.mean(0), np.maximum(counts.std(0), 0.05)

    def encode(self, texts: Sequence[str]) -> Embeddings:
        return np.asarray((self._counts(texts) - self.mean) / self.spread, np.float32)

    def forget(self) -> None:
        """It remembers nothing."""

    def _counts(self, texts: Sequence[str]) -> Embeddings:
        found = np.zeros((len(texts), self.width), np.float32)
        for row, text in zip(found, texts):
            for line in lines_of(text):
                for token in tokens_of(line, self.vocabulary):
                    row[token.token] += 1
        return np.log1p(found)


def random_encoder(vocabulary: Vocabulary, like: LineEncoder, texts: Sequence[str]) -> LineEncoder:
    """An encoder of the same shape with random weights, standardised over ``texts``."""
    model = initialised(like.model.shape, seed=1)
    plain = LineEncoder(model, vocabulary, "random").encode(texts)
    model.mean.copy_(torch.tensor(plain.mean(0)))
    model.spread.copy_(torch.tensor(plain.std(0)).clamp(min=1e-4))
    return LineEncoder(model, vocabulary, "random weights")


def quality(name: str, encoder: Encoder, samples: Sequence[Sample], label: str) -> Quality:
    """Fit a probe on ``encoder`` and measure how well it predicts the changes of ``label``."""
    before, after = moves_of(samples, label)
    texts = list(dict.fromkeys(s.text for s in (*before, *after)))
    at = {text: k for k, text in enumerate(texts)}
    embeddings = encoder.encode(texts).astype(np.float64)
    first = embeddings[[at[s.text] for s in before]]
    x = np.concatenate([first, embeddings[[at[s.text] for s in after]] - first], 1)
    y = np.array([b.labels[label] - a.labels[label] for a, b in zip(before, after)])
    held = np.array([s.held_out for s in before])
    penalty = best_penalty(x[~held], y[~held], [s.operator for s in before if not s.held_out])
    said = ridge(x[~held], y[~held], penalty)(x[held])
    r2 = 1 - ((said - y[held]) ** 2).sum() / ((y[held] - y[held].mean()) ** 2).sum()
    rank = np.corrcoef(_ranks(said), _ranks(y[held]))[0, 1]
    known, judged = int((~held).sum()), int(held.sum())
    return Quality(name, label, round(float(r2), 3), round(float(rank), 3), known, judged)


def moves_of(samples: Sequence[Sample], label: str) -> tuple[list[Sample], list[Sample]]:
    """The programs before and after each move of which both have the label."""
    known = {(s.walk, s.number): s for s in samples if label in s.labels}
    after = [s for s in known.values() if s.parent != s.number and (s.walk, s.parent) in known]
    return [known[s.walk, s.parent] for s in after], after


def best_penalty(x: Matrix, y: Matrix, operators: Sequence[str]) -> float:
    """The penalty with which a probe says most of operators that it has not seen, each in turn.

    Of one operator alone nothing can be said of others: the largest penalty, which says little else than the
    mean.
    """
    names = sorted(set(operators))
    part = np.array([names.index(operator) % PARTS for operator in operators])
    if len(names) < 2:
        return PENALTIES[-1]

    def error(penalty: float) -> float:
        seen = [part != k for k in range(min(PARTS, len(names)))]
        wrong = (ridge(x[learn], y[learn], penalty)(x[~learn]) - y[~learn] for learn in seen)
        return sum(float(each @ each) for each in wrong)

    return min(PENALTIES, key=error)


def ridge(x: Matrix, y: Matrix, penalty: float) -> Any:
    """Fitted ridge regression: a function from rows to predictions."""
    centre, level = x.mean(0), float(y.mean())
    rows = x - centre
    weights = np.linalg.solve(rows.T @ rows + penalty * np.eye(x.shape[1]), rows.T @ (y - level))
    return lambda new: (new - centre) @ weights + level


def _ranks(values: Matrix) -> Matrix:
    return np.argsort(np.argsort(values, kind="stable"), kind="stable").astype(np.float64)


def speed(encoder: Encoder, target: str = "best", moves: int = 8) -> dict[str, float]:
    """Embeddings of one-move successors a second of processor time, along games on two kernels."""
    torch.set_num_threads(1)
    plugins, chance = load_plugins(), Random(0)
    found = plugins.target(target)
    operators = plugins.operators_for(found)
    spent, programs = {"new": 0.0, "known": 0.0}, 0
    for words in ("softmax[64,64]", "layernorm[64,64]"):
        game = Game.new(plugins, found.name, select(words, operators, found.dialect)[0].program)
        encoder.encode([game.program.text])
        for _ in range(moves):
            steps = list(game.moves())
            texts = [step.after.text for step in steps]
            programs += len(texts)
            for when in spent:
                begin = time.process_time()
                encoder.encode(texts)
                spent[when] += time.process_time() - begin
            game = game.apply(chance.choice(steps).move)
    return {"programs": programs, **{f"{when}, a second": round(programs / s) for when, s in spent.items()}}


def labels_of(samples: Sequence[Sample]) -> list[str]:
    """The times that a machine took or a simulator said, of moves to learn from and of moves to judge by."""
    names = {name for sample in samples for name in sample.labels if name.startswith(data.REAL)}
    both = {True, False}
    return sorted(n for n in names if {s.held_out for s in moves_of(samples, n)[0]} == both)


def compare(encoder: Encoder, samples: Sequence[Sample]) -> list[Quality]:
    """The encoder, and what it is compared with, on every label there is."""
    labels = labels_of(samples)
    texts = [s.text for s in samples if any(label in s.labels for label in labels)]
    own = encoder if isinstance(encoder, LineEncoder) else LineEncoder.of(SHIPPED)
    others: list[tuple[str, Encoder]] = [
        ("random weights", random_encoder(own.vocabulary, own, texts[:2000])),
        ("counts of tokens", TokenCounts(own.vocabulary, texts[:2000])),
    ]
    return [
        quality(name, each, samples, label)
        for label in labels
        for name, each in (("encoder", encoder), *others)
    ]


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="How good and how fast an encoder is.")
    parser.add_argument("--encoder", default="default")
    parser.add_argument("--data", type=Path, nargs="*", help="samples; by default some are collected now")
    parser.add_argument("--simulated", type=int, default=1500, help="programs to collect that are simulated")
    parser.add_argument("--measured", type=int, default=600, help="programs to collect that are measured")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--card", type=Path, help="a card.json to note the results in")
    a = parser.parse_args(words)
    encoder = load_encoder(a.encoder)
    with tempfile.TemporaryDirectory() as folder:
        files = a.data or [Path(folder) / "programs.jsonl"]
        if not a.data:
            few = ["--simulated", str(a.simulated), "--measured", str(a.measured)]
            data.main(["--out", str(files[0]), "--seed", "1", "--walks", "0", *few])
        samples = data.read_all(files)
    found = {
        "encoder": encoder.name,
        "version": encoder.version,
        "speed": speed(encoder),
        "quality": [asdict(each) for each in compare(encoder, samples)],
    }
    print(json.dumps(found, indent=2) if a.json else _told(found))
    if a.card:
        card = json.loads(a.card.read_text(encoding="utf-8"))
        write_whole(a.card, json.dumps({**card, "probe": found}, indent=1) + "\n")


def _told(found: dict[str, Any]) -> str:
    lines = [f"{found['encoder']} {found['version'][:12]}"]
    lines += [f"{name}: {value}" for name, value in found["speed"].items()]
    lines += [
        f"{q['label']}: {q['encoder']}: R2 {q['r2']}, rank correlation {q['rank']}"
        f" (learned from {q['learned_from']} moves, judged on {q['judged_on']})"
        for q in found["quality"]
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()

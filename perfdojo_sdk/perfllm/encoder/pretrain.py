"""Train the encoder from nothing: one command makes the data, the vocabulary and the weights.

    python -m perfdojo_sdk.perfllm.encoder.pretrain --out DIR --minutes 12 --seed 0

Two things are learned together: to guess tokens of a line that were hidden, and to predict the labels of
:mod:`perfdojo_sdk.perfllm.encoder.data` from the embedding by one linear layer, as values and as differences
between programs of one walk. The linear layer is thrown away. Minutes are of processor time, on one core.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from math import cos, pi
from pathlib import Path
from random import Random

import torch
from torch import Tensor, nn
from torch.nn import functional

from perfdojo_sdk.core.files import write_whole
from perfdojo_sdk.perfllm.encoder import data
from perfdojo_sdk.perfllm.encoder.corpus import Batch, Corpus
from perfdojo_sdk.perfllm.encoder.files import load, save
from perfdojo_sdk.perfllm.encoder.model import EncoderModel, Shape, Tokens, initialised
from perfdojo_sdk.perfllm.encoder.tensors import in_parts
from perfdojo_sdk.perfllm.encoder.vocabulary import MASK, Vocabulary
from perfdojo_sdk.plugins import load_plugins

#: Walks of a batch, and most programs of each.
WALKS, PROGRAMS = 8, 14
#: Lines of a batch of which tokens are hidden, and the share of their tokens.
HIDDEN_LINES, HIDDEN = 64, 0.15
#: How much a label counts: times that a machine took or a simulator said, times on paper, counts.
WEIGHTS = {"seconds simulated": 6.0, "seconds measured": 2.0, "seconds estimated": 0.7, "count": 0.1}
HIDDEN_WEIGHT = 0.3
RATE, WARM_UP = 2e-3, 100
#: Programs that the statistics of the embeddings are computed from.
SAMPLE = 4096
#: Programs that are written beside the weights.
SHIPPED_PROGRAMS = 64


@dataclass(frozen=True)
class Losses:
    """Losses of one batch, in units of the standardised labels; ``hidden`` in nats per token."""

    values: Tensor
    changes: Tensor
    hidden: Tensor

    @property
    def whole(self) -> Tensor:
        return 0.5 * self.values + self.changes + HIDDEN_WEIGHT * self.hidden


class Learner(nn.Module):
    """The model with what is needed to train it only."""

    def __init__(self, model: EncoderModel, corpus: Corpus) -> None:
        super().__init__()
        self.model = model
        self.labels = nn.Linear(model.shape.width, len(corpus.columns))
        self.guess = nn.Linear(model.shape.token_width, model.shape.token_width)
        self.weights = torch.tensor([_weight(name) for name in corpus.columns])
        self.change_spread = corpus.change_spread()
        self.mask = corpus.vocabulary.ids[MASK]

    def losses(self, batch: Batch, chance: torch.Generator) -> Losses:
        encoded = torch.cat([self.model.line_model(part) for part in in_parts(batch.lines)])
        embeddings = self.model.program_model(encoded[batch.rows], batch.there)
        said = self.labels(embeddings)
        before, after = batch.pairs.T
        changes = (batch.labels[after] - batch.labels[before]) / self.change_spread
        said_changes = (said[after] - said[before]) / self.change_spread
        return Losses(
            self._apart(said, batch.labels), self._apart(said_changes, changes), self._hidden(batch, chance)
        )

    def _apart(self, said: Tensor, true: Tensor) -> Tensor:
        """The mean for each label, weighed: a label that few programs have counts as much as another."""
        known = torch.isfinite(true)
        apart = functional.smooth_l1_loss(said, torch.where(known, true, said.detach()), reduction="none")
        counts = known.sum(0)
        weights = self.weights * (counts > 0)
        return (apart.sum(0) / counts.clamp(min=1) * weights).sum() / weights.sum().clamp(min=1e-9)

    def _hidden(self, batch: Batch, chance: torch.Generator) -> Tensor:
        picked = torch.randperm(len(batch.lines), generator=chance)[:HIDDEN_LINES].sort().values
        tokens = Tokens.of([batch.lines[int(k)] for k in picked])
        hidden = (torch.rand(tokens.there.shape, generator=chance) < HIDDEN) & tokens.there
        hidden[:, 0] = False
        ids = tokens.ids.masked_fill(hidden[..., None], 0)
        ids[..., 0][hidden] = self.mask
        shown = Tokens(ids, tokens.magnitudes.masked_fill(hidden, 0), tokens.there)
        states = self.model.line_model.states(shown)[hidden]
        guessed = self.guess(states) @ self.model.line_model.words.weight.T / states.shape[1] ** 0.5
        return functional.cross_entropy(guessed, tokens.ids[..., 0][hidden])


def _weight(name: str) -> float:
    return next(weight for prefix, weight in WEIGHTS.items() if name.startswith(prefix))


def train(
    model: EncoderModel, corpus: Corpus, minutes: float, seed: int, most_steps: int | None = None
) -> dict[str, float]:
    """Train ``model``; the steps, and the losses at the end (means over the last hundred steps).

    ``most_steps`` instead of a time makes the result the same on every run.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        learner = Learner(model, corpus)
    optimiser = torch.optim.AdamW(learner.parameters(), RATE, weight_decay=0.01)
    chance, batches = torch.Generator().manual_seed(seed), corpus.batches(Random(seed), WALKS, PROGRAMS)
    recent: list[list[float]] = []
    begin, steps, done = time.process_time(), 0, 0.0
    while done < 1:
        for group in optimiser.param_groups:
            group["lr"] = RATE * min(1.0, (steps + 1) / WARM_UP) * (0.02 + 0.98 * 0.5 * (1 + cos(pi * done)))
        losses = learner.losses(next(batches), chance)
        optimiser.zero_grad()
        torch.autograd.backward(losses.whole)
        nn.utils.clip_grad_norm_(learner.parameters(), 1.0)
        optimiser.step()
        steps += 1
        spent = (time.process_time() - begin) / (60 * minutes)
        done = steps / most_steps if most_steps else spent
        recent = [*recent[-99:], [x.item() for x in (losses.values, losses.changes, losses.hidden)]]
        if steps % 50 == 0:
            print(f"{done:5.1%} step {steps}: {_mean(recent)}", file=sys.stderr, flush=True)
    standardise(model, corpus)
    return {"steps": steps, **_mean(recent)}


def _mean(recent: Sequence[Sequence[float]]) -> dict[str, float]:
    means = torch.tensor(recent).mean(0).tolist()
    return {name: round(value, 4) for name, value in zip(("values", "changes", "hidden"), means)}


@torch.inference_mode()
def standardise(model: EncoderModel, corpus: Corpus) -> None:
    """Set the statistics of the embeddings from some of the corpus."""
    model.eval()
    chance, walks = Random(0), list(corpus.walks)
    found: list[Tensor] = []
    chance.shuffle(walks)
    while walks and sum(len(part) for part in found) < SAMPLE:
        batch = corpus.batch(chance, [walks.pop()], PROGRAMS)
        encoded = torch.cat([model.line_model(part) for part in in_parts(batch.lines)])
        found.append(model.program_model(encoded[batch.rows], batch.there))
    embeddings = torch.cat(found)
    model.mean.copy_(embeddings.mean(0))
    # A dimension that hardly varies is not blown up into one that varies with rounding.
    spread = embeddings.std(0)
    model.spread.copy_(spread.clamp(min=0.1 * float(spread.mean())))


def main(words: Sequence[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(description="Train the encoder of programs from nothing.")
    parser.add_argument("--out", type=Path, required=True, help="folder for the encoder")
    parser.add_argument("--minutes", type=float, default=12, help="processor time for training")
    parser.add_argument("--steps", type=int, help="so many steps, whatever time they take")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--start", type=Path, help="folder of an encoder to go on from")
    parser.add_argument("--data", type=Path, nargs="*", help="samples made before; by default made now")
    a = parser.parse_args(words)
    torch.set_num_threads(1)
    a.out.mkdir(parents=True, exist_ok=True)
    files = a.data or [a.out / "programs.jsonl"]
    if not a.data:
        data.main(["--out", str(files[0]), "--seed", str(a.seed)])
    samples = [sample for sample in data.read_all(files) if not sample.held_out]
    if a.start:
        model, vocabulary, _ = load(a.start)
    else:
        vocabulary = Vocabulary.of(target.dialect for target in load_plugins().targets.values())
        model = initialised(Shape(len(vocabulary.words)), a.seed)
    corpus = Corpus(samples, vocabulary)
    begin = time.process_time()
    losses = train(model.train(), corpus, a.minutes, a.seed, a.steps)
    save(a.out, model, vocabulary)
    write(a.out / "sample.json", {"programs": sample(corpus)})
    earlier = json.loads((a.start / "card.json").read_text(encoding="utf-8")) if a.start else None
    now = card(corpus, load(a.out)[2], (time.process_time() - begin) / 60, a.seed, losses)
    write(a.out / "card.json", {**now, "went on from": earlier} if earlier else now)


def sample(corpus: Corpus) -> list[str]:
    """Some programs, of which other encoders take the statistics of their embeddings."""
    short = sorted({s.text for s in corpus.samples if len(s.text) < 1200})
    return Random(0).sample(short, min(SHIPPED_PROGRAMS, len(short)))


def card(
    corpus: Corpus, version: str, minutes: float, seed: int, losses: dict[str, float]
) -> dict[str, object]:
    """The model card: the data, duration, seed and final losses of the training."""
    times = [name for name in corpus.columns if name.startswith("seconds")]
    return {
        "version": version,
        "made by": "python -m perfdojo_sdk.perfllm.encoder.pretrain",
        "programs": len(corpus.samples),
        "walks": len(corpus.walks),
        "programs with a label": {n: sum(n in s.labels for s in corpus.samples) for n in times},
        "operators not learned from": [f"*{name}" for name in data.HELD_OUT],
        "minutes of one core": round(minutes, 1),
        "seed": seed,
        "at the end": losses,
    }


def write(path: Path, content: object) -> None:
    write_whole(path, json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()

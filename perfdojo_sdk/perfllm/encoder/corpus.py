"""Samples as tensors: each different line once, programs as rows of lines, labels as standardised columns."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

import numpy as np
import torch
from torch import Tensor

from perfdojo_sdk.perfllm.encoder.data import Sample
from perfdojo_sdk.perfllm.encoder.tensors import padded
from perfdojo_sdk.perfllm.encoder.tokenizer import Line, Token, lines_of, tokens_of
from perfdojo_sdk.perfllm.encoder.vocabulary import Vocabulary

#: Programs of longer texts cost too much of the time there is; in lines.
LONGEST = 64


@dataclass(frozen=True)
class Batch:
    """Some programs of some walks."""

    lines: list[list[Token]]
    """Each different line once."""
    rows: Tensor
    """int64 [programs, lines]: numbers of lines; 0 where there is none."""
    there: Tensor
    """bool [programs, lines]"""
    labels: Tensor
    """float32 [programs, columns], standardised, NaN where a label is not known."""
    pairs: Tensor
    """int64 [pairs, 2]: programs that are compared, of one walk each."""


class Corpus:
    """Samples to draw batches from."""

    def __init__(self, samples: Sequence[Sample], vocabulary: Vocabulary) -> None:
        """ValueError when no sample is short enough."""
        self.vocabulary = vocabulary
        numbers: dict[Line, int] = {}
        self.programs: list[list[int]] = []
        self.samples: list[Sample] = []
        for sample in samples:
            lines = lines_of(sample.text)
            if len(lines) <= LONGEST:
                self.samples.append(sample)
                self.programs.append([numbers.setdefault(line, len(numbers)) for line in lines])
        if not self.samples:
            raise ValueError("there are no programs to learn from")
        self.lines = [tokens_of(line, vocabulary) for line in numbers]
        self.columns = sorted({name for sample in self.samples for name in sample.labels})
        raw = np.array([[s.labels.get(c, np.nan) for c in self.columns] for s in self.samples], np.float64)
        spread = np.nanstd(raw, 0)
        self.labels = torch.tensor(
            (raw - np.nanmean(raw, 0)) / np.where(spread > 1e-6, spread, 1.0), dtype=torch.float32
        )
        self.walks: dict[int, list[int]] = defaultdict(list)
        for k, sample in enumerate(self.samples):
            self.walks[sample.walk].append(k)

    def change_spread(self) -> Tensor:
        """Root mean square of the change of each standardised label in one move that changes it: float32
        [columns]."""
        pairs = torch.tensor([pair for walk in self.walks.values() for pair in self._steps(walk)])
        changes = self.labels[pairs[:, 1]] - self.labels[pairs[:, 0]]
        changed = torch.isfinite(changes) & (changes.abs() > 1e-3)
        squares = torch.where(changed, changes, torch.zeros(())).square().sum(0)
        return (squares / changed.sum(0).clamp(min=1)).sqrt().clamp(min=0.05)

    def batches(self, chance: Random, walks: int, programs: int) -> Iterator[Batch]:
        """Batches without end, each of so many ``walks`` with at most so many ``programs`` of each.

        Half of the walks are timed ones, which are rare.
        """
        timed = [name for name, walk in self.walks.items() if any(self.samples[k].timed for k in walk)]
        rare, every = endless(chance, timed or list(self.walks)), endless(chance, list(self.walks))
        while True:
            chosen = [next(rare if k % 2 else every) for k in range(walks)]
            yield self.batch(chance, list(dict.fromkeys(chosen)), programs)

    def batch(self, chance: Random, walks: Sequence[int], programs: int) -> Batch:
        chosen: list[int] = []
        pairs: list[tuple[int, int]] = []
        for name in walks:
            walk = self.walks[name]
            begin = chance.randint(0, max(0, len(walk) - programs))
            part = walk[begin : begin + programs]
            at = {k: len(chosen) + place for place, k in enumerate(part)}
            pairs += [(at[a], at[b]) for a, b in self._steps(part)]
            pairs += [(at[chance.choice(part)], at[k]) for k in part]
            chosen += part
        return self._batch(chosen, pairs)

    def _steps(self, part: Sequence[int]) -> list[tuple[int, int]]:
        """(before, after) of the moves whose both ends are among the samples ``part`` of one walk."""
        numbers = {self.samples[k].number: k for k in part}
        found = [(numbers.get(self.samples[k].parent), k) for k in part]
        return [(before, after) for before, after in found if before is not None and before != after]

    def _batch(self, chosen: Sequence[int], pairs: Sequence[tuple[int, int]]) -> Batch:
        used = sorted({line for k in chosen for line in self.programs[k]}, key=lambda n: len(self.lines[n]))
        place = {line: k for k, line in enumerate(used)}
        rows, there = padded([[place[line] for line in self.programs[k]] for k in chosen])
        lines = [self.lines[line] for line in used]
        return Batch(lines, rows, there, self.labels[list(chosen)], torch.tensor(pairs))


def endless(chance: Random, items: Sequence[int]) -> Iterator[int]:
    """All items in random order, again and again."""
    while True:
        yield from chance.sample(items, len(items))

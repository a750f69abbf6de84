"""Our own encoder at work: vectors of lines are kept, so that a program costs what is new in it.

A vector depends on its line and the weights alone; each encoder keeps its own, so weights never mix.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from perfdojo_sdk.perfllm.encoder.files import load
from perfdojo_sdk.perfllm.encoder.model import EncoderModel, Tokens
from perfdojo_sdk.perfllm.encoder.tensors import in_parts, padded
from perfdojo_sdk.perfllm.encoder.tokenizer import Line, Token, lines_of, tokens_of
from perfdojo_sdk.perfllm.encoder.vocabulary import Vocabulary

if TYPE_CHECKING:
    from perfdojo_sdk.perfllm.encoder.embeddings import Embeddings

#: Vectors of lines that are kept; with so many, all are forgotten before the next programs.
MOST_LINES = 1 << 16
#: How an encoder is asked for that gives sums too; a part of its version.
SUMS = "lines=sum"
#: Programs, and lines of programs, that the model sees at a time.
PROGRAMS, LINES = 64, 4096


class LineEncoder:
    """An :class:`perfdojo_sdk.perfllm.encoder.Encoder`; not for several threads at once."""

    name = "line-transformer"

    def __init__(self, model: EncoderModel, vocabulary: Vocabulary, version: str, sums: bool = False) -> None:
        """``sums``: beside each embedding stands the sum of the vectors of the program's lines, as they are.

        A move changes few lines, and in the sum nothing else stands beside them.
        """
        self.model, self.vocabulary, self.sums = model.eval(), vocabulary, sums
        self.version = sha256(f"{version} {SUMS}".encode()).hexdigest() if sums else version
        self.width = model.shape.width + (model.shape.line_width if sums else 0)
        self.forget()

    @staticmethod
    def of(folder: Path, sums: bool = False) -> LineEncoder:
        """The encoder in a folder. :class:`EncoderError` when there is none, or it is damaged."""
        return LineEncoder(*load(folder), sums=sums)

    def forget(self) -> None:
        """Start with no line known: a vector's last digits depend on the lines that it was made with."""
        self.known: dict[Line, int] = {}
        self.vectors = torch.zeros(0, self.model.shape.line_width)

    @torch.inference_mode()
    def encode(self, texts: Sequence[str]) -> Embeddings:
        """Embeddings: float32 [len(texts), width], standardised per dimension over random programs.

        Equal texts have equal embeddings, to 1e-5, whatever they are encoded together with.
        """
        found = np.zeros((len(texts), self.width), np.float32)
        programs = [lines_of(text) for text in texts]
        # Programs of similar length together: what pads the shorter ones is work for nothing.
        order = sorted(range(len(texts)), key=lambda k: len(programs[k]))
        for chosen in _parts(order, [len(lines) for lines in programs]):
            rows, there = padded(self._rows([programs[k] for k in chosen]))
            lines = self.vectors[rows]
            embeddings = self.model.embeddings(lines, there)
            if self.sums:
                embeddings = torch.cat([embeddings, (lines * there[..., None]).sum(1)], 1)
            found[chosen] = embeddings.numpy()
        return found

    def _rows(self, programs: Sequence[Sequence[Line]]) -> list[list[int]]:
        """The row of each program line in the cache of line vectors; missing lines are encoded first."""
        if len(self.known) > MOST_LINES:
            self.forget()
        known = self.known
        rows = [[known.get(line, -1) for line in lines] for lines in programs]
        # Looking a line up costs as much as anything here, so what is known is looked up once.
        missing = dict.fromkeys(
            line for lines, row in zip(programs, rows) for line, at in zip(lines, row) if at < 0
        )
        if not missing:
            return rows
        tokens = sorted([(tokens_of(line, self.vocabulary), line) for line in missing], key=_length)
        first = len(known)
        known.update((line, first + place) for place, (_, line) in enumerate(tokens))
        self._keep(first, self._vectors(list(in_parts([each for each, _ in tokens]))))
        return [[known[line] for line in lines] for lines in programs]

    def _vectors(self, parts: Sequence[Tokens]) -> Tensor:
        return torch.cat([self.model.line_model(part) for part in parts])

    def _keep(self, first: int, made: Tensor) -> None:
        """Put vectors behind the first ones; room doubles when it is used up."""
        needed = first + len(made)
        if needed > len(self.vectors):
            room = torch.zeros(max(needed, 2 * len(self.vectors), 1024), made.shape[1])
            room[:first] = self.vectors[:first]
            self.vectors = room
        self.vectors[first:needed] = made


def _length(of: tuple[Sequence[Token], Line]) -> int:
    return len(of[0])


def _parts(order: Sequence[int], lengths: Sequence[int]) -> list[list[int]]:
    """Neighbours in ``order`` in groups of bounded size."""
    parts: list[list[int]] = []
    for k in order:
        fits = parts and len(parts[-1]) < PROGRAMS and (len(parts[-1]) + 1) * lengths[k] <= LINES
        if fits:
            parts[-1].append(k)
        else:
            parts.append([k])
    return parts

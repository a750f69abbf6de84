"""The model: a small transformer over the tokens of a line, and one over the lines of a program.

Lines are encoded each for itself, so that what was worked out for a line serves every program that holds it.
Pre-norm transformer blocks (Vaswani et al. 2017, Xiong et al. 2020).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import torch
from torch import Tensor, nn
from torch.nn import functional

from perfdojo_sdk.perfllm.encoder.tokenizer import Token


@dataclass(frozen=True)
class Shape:
    """The dimensions of the model."""

    words: int
    """Size of the vocabulary."""
    token_width: int = 64
    line_width: int = 96
    width: int = 128
    """Width of an embedding."""
    line_layers: int = 2
    program_layers: int = 2
    heads: int = 4


@dataclass(frozen=True)
class Tokens:
    """The tokens of several lines, padded to the longest."""

    ids: Tensor
    """int64 [lines, tokens, 3]: each token, and the two tokens that say more of it."""
    magnitudes: Tensor
    """float32 [lines, tokens]"""
    there: Tensor
    """bool [lines, tokens]: not padding."""

    @staticmethod
    def of(lines: Sequence[Sequence[Token]]) -> Tokens:
        longest, counts = max(map(len, lines)), torch.tensor([len(line) for line in lines])
        there = torch.arange(longest) < counts[:, None]
        flat = torch.tensor(list(chain.from_iterable(lines)), dtype=torch.float64)
        ids = torch.zeros(len(lines), longest, 3, dtype=torch.int64)
        magnitudes = torch.zeros(len(lines), longest)
        ids[there], magnitudes[there] = flat[:, :3].long(), flat[:, 3].float()
        return Tokens(ids, magnitudes, there)


class Block(nn.Module):
    """Attention to all places that are there, then two linear layers at each place."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before_attention, self.before_layers = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mix, self.merge = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.widen, self.narrow = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: Tensor, there: Tensor) -> Tensor:
        """x: [batch, places, width]; there: bool [batch, places]."""
        batch, places, width = x.shape
        mixed = self.mix(self.before_attention(x)).view(batch, places, 3, self.heads, width // self.heads)
        query, key, value = mixed.permute(2, 0, 3, 1, 4)
        mask = there[:, None, None, :]
        seen = functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        x = x + self.merge(seen.transpose(1, 2).reshape(batch, places, width))
        return x + torch.as_tensor(self.narrow(functional.relu(self.widen(self.before_layers(x)))))


def positions(count: int, width: int) -> Tensor:
    """Sines and cosines of each position (Vaswani et al. 2017, section 3.5): float32 [count, width]."""
    angles = torch.arange(count)[:, None] / 1000.0 ** (torch.arange(0, width, 2) / width)
    return torch.cat([angles.sin(), angles.cos()], 1)


def pooled(x: Tensor, there: Tensor) -> Tensor:
    """Mean and maximum over the places that are there: [batch, 2 * width]."""
    mask = there[..., None]
    mean = (x * mask).sum(1) / mask.sum(1)
    most = x.masked_fill(~mask, -torch.inf).amax(1)
    return torch.cat([mean, most], 1)


class LineModel(nn.Module):
    """Tokens of lines to a vector for each line."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        width = shape.token_width
        self.words = nn.Embedding(shape.words, width, padding_idx=0)
        self.about = nn.Embedding(shape.words, width, padding_idx=0)
        self.place = nn.Embedding(shape.words, width, padding_idx=0)
        self.magnitude = nn.Linear(2, width, bias=False)
        self.position = nn.Parameter(torch.tensor(0.3))
        self.blocks = nn.ModuleList(Block(width, shape.heads) for _ in range(shape.line_layers))
        self.norm, self.out = nn.LayerNorm(width), nn.Linear(2 * width, shape.line_width)

    def states(self, tokens: Tokens) -> Tensor:
        """[lines, tokens, token_width]"""
        ids, size = tokens.ids, tokens.magnitudes[..., None]
        x = self.words(ids[..., 0]) + self.about(ids[..., 1]) + self.place(ids[..., 2])
        x = x + self.magnitude(torch.cat([size, size.square()], -1))
        x = x + self.position * positions(x.shape[1], x.shape[2])
        for block in self.blocks:
            x = block(x, tokens.there)
        return torch.as_tensor(self.norm(x))

    def forward(self, tokens: Tokens) -> Tensor:
        """[lines, line_width]"""
        return torch.as_tensor(self.out(pooled(self.states(tokens), tokens.there)))


class ProgramModel(nn.Module):
    """Vectors of lines to an embedding for each program."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        width = shape.line_width
        self.position = nn.Parameter(torch.tensor(0.3))
        self.blocks = nn.ModuleList(Block(width, shape.heads) for _ in range(shape.program_layers))
        self.norm = nn.LayerNorm(width)
        self.widen, self.out = nn.Linear(4 * width, 2 * width), nn.Linear(2 * width, shape.width)
        self.straight = nn.Linear(4 * width, shape.width, bias=False)

    def forward(self, lines: Tensor, there: Tensor) -> Tensor:
        """lines: [programs, lines, line_width]; there: bool [programs, lines]. [programs, width]"""
        x = lines + self.position * positions(lines.shape[1], lines.shape[2])
        for block in self.blocks:
            x = block(x, there)
        whole = torch.cat([pooled(self.norm(x), there), pooled(lines, there)], 1)
        return torch.as_tensor(self.straight(whole) + self.out(functional.relu(self.widen(whole))))


class EncoderModel(nn.Module):
    """Both, and the statistics by which embeddings are standardised."""

    mean: Tensor
    spread: Tensor

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.line_model, self.program_model = LineModel(shape), ProgramModel(shape)
        self.register_buffer("mean", torch.zeros(shape.width))
        self.register_buffer("spread", torch.ones(shape.width))

    def embeddings(self, lines: Tensor, there: Tensor) -> Tensor:
        """Standardised embeddings of programs; shapes as in :meth:`ProgramModel.forward`."""
        return torch.as_tensor((self.program_model(lines, there) - self.mean) / self.spread)


def initialised(shape: Shape, seed: int) -> EncoderModel:
    """A model with random weights, the same for a seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return EncoderModel(shape)

"""Lists of different lengths as padded tensors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from perfdojo_sdk.perfllm.encoder.model import Tokens
from perfdojo_sdk.perfllm.encoder.tokenizer import Token

#: Lines that are encoded together: more are padded more, and leave the processor's caches.
TOGETHER = 32


def padded(rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """Rows of numbers as one int64 matrix, 0 where a row has ended, and bool: where it has not."""
    counts = torch.tensor([len(row) for row in rows])
    there = torch.arange(int(counts.max())) < counts[:, None]
    found = torch.zeros(there.shape, dtype=torch.int64)
    found[there] = torch.tensor([n for row in rows for n in row])
    return found, there


def in_parts(lines: Sequence[Sequence[Token]], together: int = TOGETHER) -> Iterator[Tokens]:
    """Lines, sorted by length, as tokens of a few at a time, so that little of them is padding."""
    for k in range(0, len(lines), together):
        yield Tokens.of(lines[k : k + together])

"""Memory of large results: a block to which nothing refers any more holds the result of a later call.

An allocator gives large blocks back to the system at once, and the system clears each page of the next one on
its first use. That takes longer than many kernels, which write whole results.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from threading import Lock
from typing import Any
from weakref import ref

import torch
from torch import Tensor

from perfdojo_sdk.library.arrays import Array, aligned_empty

#: Least bytes of a block: glibc keeps smaller ones itself.
LEAST = 32 << 20
#: Most bytes of all blocks, which is the most that stays allocated while no result needs it.
MOST = 256 << 20


@dataclass
class _Block:
    """Memory, and a reference to the view of it that the storage of a tensor holds."""

    memory: Array
    view: ref[Array] | None = None

    @property
    def is_free(self) -> bool:
        """True if no tensor, view or array refers to the memory: each keeps the storage, and it the view."""
        return self.view is None or self.view() is None

    def tensor(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """A tensor over all of the memory."""
        view = self.memory[:]
        self.view = ref(view)
        storage = torch.from_numpy(view).untyped_storage()
        return torch.empty(0, dtype=dtype).set_(storage, 0, shape)  # type: ignore[call-overload,no-any-return]


class ResultMemory:
    """Blocks for results, newest last. Safe to use from several threads."""

    def __init__(self, least: int = LEAST, most: int = MOST) -> None:
        self.least, self.most = least, most
        self._blocks: list[_Block] = []
        self._lock = Lock()

    @property
    def bytes(self) -> int:
        """Bytes of all blocks, those of results that are in use among them."""
        return sum(block.memory.nbytes for block in self._blocks)

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Tensor:
        """A tensor of undefined elements, whose memory is its own until nothing refers to it."""
        size = prod(shape) * dtype.itemsize
        if not self.least <= size <= self.most:
            return torch.empty(shape, dtype=dtype)
        with self._lock:
            free = (b for b in self._blocks if b.memory.nbytes == size and b.is_free)
            block = next(free, None) or self._new(size)
            return block.tensor(shape, dtype)

    def _new(self, size: int) -> _Block:
        """Another block. Older ones are forgotten for it, free ones first; results in use keep theirs."""
        for block in sorted(self._blocks, key=lambda block: not block.is_free):
            if self.bytes + size > self.most:
                self._blocks = [other for other in self._blocks if other is not block]
        block = _Block(aligned_empty((size,), "uint8"))
        self._blocks.append(block)
        return block


#: Memory of the results of all graphs.
RESULTS = ResultMemory()

"""Dry run: counts how often each instruction of a kernel runs, without computing its results.

The control flow of a kernel depends on its sizes, not on its data. In a copy of the code, all instructions
that only compute or move floating-point values are replaced by NOPs. The rest (loops, addresses) is emulated
and each block is counted: exact counts at a few percent of the cost. A branch that does depend on a value
goes as it would for zeros.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from unicorn import UC_HOOK_BLOCK, Uc
from unicorn.unicorn_py3.unicorn import uclib

from perfdojo_arm_neon.emulator.elf import SharedObject
from perfdojo_arm_neon.emulator.machine import Machine
from perfdojo_arm_neon.estimate.sve import is_sve, only_values

Counts = np.ndarray[Any, np.dtype[np.uint64]]

NOP = 0xD503201F
MOST_THREADS = 64


@dataclass(frozen=True)
class Counted:
    """The counts of a dry run."""

    threads: tuple[Counts, ...]
    """For each thread the number of executions of each word of the image."""
    parallel_loops: int
    """Number of parallel loops that were started."""


class _Counter(ctypes.Structure):
    _fields_ = [
        ("base", ctypes.c_uint64),
        ("words", ctypes.c_uint64),
        ("thread", ctypes.c_uint64),
        ("entered", ctypes.c_void_p),
        ("length", ctypes.c_void_p),
    ]


# -- what is left of the code ------------------------------------------------------------------------


def blanked(loaded: SharedObject) -> bytes:
    """The image of a shared object without its floating-point work."""
    image = bytearray(loaded.image)
    for first, last in loaded.code:
        words = np.frombuffer(image, np.uint32, (last - first) // 4, first)
        replaced = [without_values(int(word)) for word in words]
        image[first : first + 4 * len(replaced)] = np.array(replaced, np.uint32).tobytes()
    return bytes(image)


def without_values(word: int) -> int:
    """The instruction without its loads, stores or computation of floating-point values; a NOP if nothing is
    left."""
    if is_sve(word):
        return NOP if only_values(word) else word
    if word & 0x0E000000 == 0x0E000000:
        return word if _reaches_integers(word) else NOP
    if word & 0x0A000000 == 0x08000000 and word & 1 << 26:
        return _address_update(word)
    return word


def _reaches_integers(word: int) -> bool:
    """True if a floating-point instruction sets flags or a general register."""
    scalar = word & 0x5F000000 == 0x1E000000
    if scalar and not word & 1 << 21:
        return True  # conversion to or from fixed point
    if scalar and word & 0xFC00 in (0, 0x2000):
        return True  # conversion to or from a whole number; comparison
    if scalar and word & 0x0C00 == 0x0400:
        return True  # conditional comparison
    return word & 0x9FE08400 == 0x0E000400 and word >> 11 & 15 in (5, 7)  # one lane to a general register


def _address_update(word: int) -> int:
    """The instruction that updates the address register as a vector load or store does; NOP where it does
    not."""
    base = word >> 5 & 31
    if word & 0x3B000000 == 0x38000000:  # one register
        if word & 1 << 21 or not word & 1 << 10:
            return NOP
        return _add(base, _signed(word >> 12 & 511, 9))
    if word & 0x3A000000 == 0x28000000:  # a pair
        return _add(base, _signed(word >> 15 & 127, 7) * (4 << (word >> 30))) if word & 1 << 23 else NOP
    if word & 0xBE800000 == 0x0C800000:  # structures, with an update
        other = word >> 16 & 31
        if other != 31:
            return 0x8B206000 | other << 16 | base << 5 | base
        return _add(base, _structure_bytes(word))
    return NOP


def _structure_bytes(word: int) -> int:
    if word & 1 << 24:  # a single element, of one register or the same for all lanes
        element = word >> 13 & 7
        registers = (word >> 13 & 1) * 2 + (word >> 21 & 1) + 1
        if element >> 1 == 3:  # replicated
            return registers << (word >> 10 & 3)
        size = (1, 2, 8 if word >> 10 & 1 else 4)[element >> 1]
        return registers * size
    registers = {7: 1, 10: 2, 6: 3, 2: 4, 8: 2, 4: 3, 0: 4}.get(word >> 12 & 15, 1)
    return registers * (16 if word & 1 << 30 else 8)


def _add(base: int, offset: int) -> int:
    """``add base, base, #offset``"""
    return (0x91000000 if offset >= 0 else 0xD1000000) | abs(offset) << 10 | base << 5 | base


def _signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> bits - 1 else value


# -- counting ----------------------------------------------------------------------------------------


class CountingMachine(Machine):
    """Runs a blanked kernel and counts its instructions, thread by thread."""

    def __init__(self, loaded: SharedObject, counter: ctypes.CDLL) -> None:
        super().__init__(loaded, blanked(loaded))
        words = len(loaded.image) // 4
        self.entered = np.zeros((MOST_THREADS, words), np.uint64)
        self.length = np.zeros(words, np.uint32)
        self.counter = _Counter(self.base, words, 0, self.entered.ctypes.data, self.length.ctypes.data)
        self.library = counter
        self._hook(self.uc)

    def _hook(self, uc: Uc) -> None:
        """Register a C function that is called before each block; Python would be far too slow."""
        handle = ctypes.c_size_t()
        status = uclib.uc_hook_add(
            uc._uch,
            ctypes.byref(handle),
            UC_HOOK_BLOCK,
            ctypes.cast(self.library.pd_count, ctypes.c_void_p),
            ctypes.cast(ctypes.pointer(self.counter), ctypes.c_void_p),
            ctypes.c_uint64(self.base),
            ctypes.c_uint64(self.base + len(self.loaded.image) - 1),
        )
        if status:
            raise RuntimeError(f"the emulator refuses to count: status {status}")

    def _switch(self) -> int:
        at = super()._switch()
        self.counter.thread = min(self.current, MOST_THREADS - 1)
        return at

    def counts(self) -> tuple[Counts, ...]:
        found = []
        for entered in self.entered[: self.threads]:
            steps = np.zeros(entered.size + 1, np.int64)
            starts = np.flatnonzero(entered)
            np.add.at(steps, starts, entered[starts].astype(np.int64))
            np.add.at(steps, starts + self.length[starts], -entered[starts].astype(np.int64))
            found.append(np.cumsum(steps[:-1]).astype(np.uint64))
        return tuple(found)


def count(
    loaded: SharedObject, symbol: str, sizes: Sequence[int], threads: int, counter: ctypes.CDLL
) -> Counted:
    """Run a kernel on arrays of so many bytes, whose content does not matter.

    ``counter`` is what :mod:`~perfdojo_arm_neon.estimate.counter` compiles.
    """
    machine = CountingMachine(loaded, counter)
    workspace = machine.call(f"{symbol}_workspace_bytes", [threads])
    machine.entered[:] = 0
    places = [machine.reserve(size) for size in sizes]
    status = machine.call(symbol, [*places, machine.reserve(workspace), workspace, threads])
    if status & 0xFFFFFFFF:
        raise RuntimeError(f"the kernel returned {status}")
    return Counted(machine.counts(), machine.calls["pthread_mutex_trylock"])

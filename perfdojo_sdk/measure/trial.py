"""The common context of executions of one kernel: the places of its arrays, and the expected results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np

from perfdojo_sdk.measure.forked import Tell
from perfdojo_sdk.measure.guard_pages import FencedArray, Where, same
from perfdojo_sdk.measure.kernel_calls import Guarded, Kernel, Memory, Refused, check_status, compare

#: Number of calls in a row; for a slow kernel, as many as fit into these seconds, but at least a few.
CALLS, FEWEST_CALLS, SOME_S = 50, 3, 0.3
#: Seconds after which a call in a fork counts as hanging, beside twenty times the duration of a call.
PATIENCE_S = 5.0
#: Numbers of threads that are tried in any case, the first of the job's.
FEWEST_COUNTS = 10
#: Bytes of workspace above which unusual numbers of threads are left out.
MOST_WORKSPACE = 64 << 20
#: Bytes of workspace that a caller may give beyond what the kernel asks for.
MORE = 64
#: Numbers of threads that other executions than ``threads`` use.
ALONE, TOGETHER = 1, 2


class Arguments:
    """One caller: its inputs, outputs and workspace, and the results that it must get."""

    def __init__(
        self, kernel: Kernel, memory: Memory, expected: list[np.ndarray[Any, Any]], job: Mapping[str, Any]
    ) -> None:
        self.kernel, self.memory, self.expected = kernel, memory, expected
        alignment = job["array_alignment"]

        def fenced(like: Guarded) -> FencedArray:
            return FencedArray(like.name, like.array.shape, like.dtype, alignment)

        self.inputs, self.outputs = list(map(fenced, memory.inputs)), list(map(fenced, memory.outputs))
        self.counts = tuple(
            count
            for number, count in enumerate(job["thread_counts"])
            if number < FEWEST_COUNTS or kernel.workspace_bytes(count) <= MOST_WORKSPACE
        )
        most = max(kernel.workspace_bytes(n) for n in (ALONE, TOGETHER, *self.counts))
        self.workspace = FencedArray("the workspace", (most + MORE,), "u8", alignment)

    @property
    def arrays(self) -> list[FencedArray]:
        return [*self.inputs, *self.outputs]

    @property
    def with_workspace(self) -> list[FencedArray]:
        return [*self.arrays, self.workspace]

    def arrange(self, where: Where, threads: int, less: int = 0, turn: int = 0) -> int:
        """Put everything in place, inputs filled, the rest poisoned; returns the bytes of workspace."""
        size = self.kernel.workspace_bytes(threads) - less
        for number, array in enumerate(self.with_workspace):
            place = where if isinstance(where, str) else where.get(array, "middle")
            moved = array.place(place, number, (size,) if array is self.workspace else None, turn)
            if moved and number < len(self.inputs):
                array.bytes[:] = self.memory.inputs[number].bytes
        for array in (*self.outputs, self.workspace):
            array.poison(0)
        return size

    def call(self, where: Where, threads: int = ALONE, turn: int = 0) -> None:
        size = self.arrange(where, threads, turn=turn)
        check_status(self.kernel.enter(self.arrays, self.workspace, size, threads))
        self.check()

    def check(self) -> None:
        """Raise after a call that changed memory around the arrays, or gave other results than expected."""
        for array in self.with_workspace:
            array.check_guards()
        if not all(same(array, bits) for array, bits in zip(self.outputs, self.expected, strict=True)):
            compare(self, self.expected, "differ from those of a plain call")

    def check_inputs(self) -> None:
        """Raise if a call at this place has changed an input."""
        for array, given in zip(self.inputs, self.memory.inputs, strict=True):
            if not same(array, given.bytes):
                raise Refused("input_modified", f"the kernel changed its input {array.name}")


@dataclass(frozen=True)
class Trial:
    """The inputs that all executions of one kernel share."""

    kernel: Kernel
    arguments: Arguments
    job: Mapping[str, Any]
    call_s: float
    """Seconds of one plain call."""
    tell: Tell = lambda *_: None
    """The callback for progress messages."""


def loaded_anew(trial: Trial) -> Kernel:
    """The kernel, loaded again without its set-up: a fork has the memory of its thread pool, but no
    threads."""
    kernel = trial.kernel
    kernel.unload()
    kernel.load(kernel.library._name, kernel.symbol)
    return kernel


def array_like(array: FencedArray) -> FencedArray:
    """Another array like this one."""
    other = FencedArray(array.name, array.shape, array.dtype, array.step)
    other.place("middle", 0)
    return other


@contextmanager
def other_inputs(arguments: Arguments) -> Iterator[list[Guarded]]:
    """Other inputs in the same memory, shifted by one element; the last element repeats the first."""
    found: list[Guarded] = []
    for array in arguments.inputs:
        step = array.bits.itemsize
        array.after[:step] = array.bytes[:step]
        other = copy(array)
        other.address = array.address + step
        found.append(other)
    yield found
    for array in arguments.inputs:
        array.lie(array.inside, array.at, array.shape)

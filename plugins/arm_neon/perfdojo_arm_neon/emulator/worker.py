"""The child process: the SDK's own, with kernels that run on an emulated core.

Guard zones, poison, sealed inputs and the second call are the same as for native code. Memory that the kernel
was not given does not exist in the machine, so an access to it is a crash.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from perfdojo_arm_neon.emulator.elf import ElfError, read
from perfdojo_arm_neon.emulator.machine import Crashed, Ended, Machine
from perfdojo_sdk.core.interface import EXECUTIONS, IN_PROCESS, OTHER_PROCESSOR
from perfdojo_sdk.measure.kernel_calls import Guarded, Kernel, Memory, Refused, compare, outputs_of, poison_of
from perfdojo_sdk.measure.own_memory import Segment
from perfdojo_sdk.measure.process_state import Used
from perfdojo_sdk.measure.worker import main


class EmulatedKernel(Kernel):
    """A kernel in a machine of its own, with the arrays of this process."""

    #: One core has no second caller, and the machine is no process that could be forked.
    executions = frozenset(EXECUTIONS) - IN_PROCESS

    def __init__(self, library: str, symbol: str, threads: int, memory_bytes: int) -> None:
        try:
            loaded = read(Path(library).read_bytes())
        except ElfError as error:
            raise Refused("runtime", f"cannot load {symbol}: {error}") from None
        for name in (symbol, f"{symbol}_workspace_bytes"):
            if name not in loaded.symbols:
                raise Refused("runtime", f"cannot load {symbol}: the file has no {name}")
        self.symbol, self.first = symbol, True
        self.machine = Machine(loaded)
        self.floats = self.float_state()
        size = self.workspace_bytes(threads)
        if size > memory_bytes:
            raise Refused("memory", f"the kernel wants {size} bytes of workspace, {memory_bytes} are allowed")
        self.entry = self._enter
        self.workspace = Guarded("the workspace", (size,), "u8")
        self.tail = (
            ctypes.c_void_p(self.workspace.address),
            ctypes.c_size_t(size),
            ctypes.c_int(threads),
        )

    def load_again(self, symbol: str) -> None:
        """Nothing: times are estimated of whole calls."""

    def call(self, memory: Memory, variant: int) -> float:
        for array in (*memory.inputs, *memory.outputs, self.workspace):
            start = array.before.ctypes.data
            self.machine.share(start, array.after.ctypes.data + array.after.nbytes - start)
        longer = self._on_longer_vectors(memory) if self.first else None
        self.first = False
        seconds = super().call(memory, variant)
        if isinstance(longer, Refused):
            raise longer  # after the other checks, whose message is better for a kernel that always fails
        if longer:
            compare(memory, longer, "are others where vectors are longer, and the kernel does not refuse")
        return seconds

    def _on_longer_vectors(self, memory: Memory) -> list[np.ndarray[Any, Any]] | Refused | None:
        """The results where SVE's vectors have 256 bits; None where it says that it cannot run there,
        or has no code for such vectors.

        Code that asks for SVE is for vectors of one length, and has to refuse these: results that are right
        here need not be so where vectors are longer still, and spilled ones leave their stack frame.
        """
        if not self.machine.has_sve_code:
            return None
        for output in (*memory.outputs, self.workspace):
            output.poison(0)
        self.machine.set_vector_length(2)
        status = self.entry(*memory.pointers, *self.tail)
        self.machine.set_vector_length(1)
        if status == 0 and not self.machine.asks_for_sve:
            return outputs_of(memory)
        untouched = all((output.bits == poison_of(output.dtype, 0)).all() for output in memory.outputs)
        if status != OTHER_PROCESSOR or not untouched:
            wrote = "" if untouched else " and wrote results"
            words = f"where vectors have 256 bits, the kernel returned {status}{wrote}"
            return Refused("wrong_result", words)
        return None

    def static_memory(self) -> Sequence[Segment]:
        return [Segment(self.machine.base, len(self.machine.loaded.image))]  # its code never changes

    def workspace_bytes(self, threads: int) -> int:
        return self._emulate(f"{self.symbol}_workspace_bytes", threads)

    def float_state(self) -> Mapping[str, object]:
        return {"FPCR": self.machine.float_control, "registers that are its caller's": self.machine.kept}

    def used(self) -> Used:
        return Used(self.machine.threads)

    def enter(self, arrays: Sequence[Guarded], workspace: Guarded, size: int, threads: int) -> int:
        for array in (*arrays, workspace):
            inside = array.before.nbytes + array.bytes.nbytes + array.after.nbytes
            self.machine.share(array.address - array.before.nbytes, inside - 1)
        return super().enter(arrays, workspace, size, threads)

    def _enter(self, *arguments: ctypes.c_void_p) -> int:
        status = self._emulate(self.symbol, *(argument.value or 0 for argument in arguments))
        return int(np.int32(np.uint32(status & 0xFFFFFFFF)))

    def _emulate(self, function: str, *arguments: int) -> int:
        try:
            return self.machine.call(function, arguments)
        except Crashed as crashed:
            print(crashed, file=sys.stderr, flush=True)
            os.kill(os.getpid(), signal.SIGSEGV if crashed.out_of_memory else signal.SIGABRT)
        except Ended:
            os._exit(0)
        raise AssertionError("the process has ended")


if __name__ == "__main__":
    main(sys.argv[1], EmulatedKernel)
    os._exit(0)

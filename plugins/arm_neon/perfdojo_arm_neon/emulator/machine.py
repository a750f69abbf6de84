"""An emulated core around one shared object, in the memory of this process.

Addresses inside are those outside, so arrays are passed by pointer and nothing is copied; memory that was not
shared does not exist for the kernel. This module implements the few functions of the C library that kernels
call. Threads take turns: one runs until it waits or yields, then the next; so each loop is split among
threads as on hardware, in an order that is always the same. Each call that asks for the time finds it a
second later, so a thread that waits for some time waits only once.
"""

from __future__ import annotations

import ctypes
import mmap
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from unicorn import (
    UC_ARCH_ARM64,
    UC_ERR_FETCH_UNMAPPED,
    UC_ERR_READ_UNMAPPED,
    UC_ERR_WRITE_UNMAPPED,
    UC_HOOK_CODE,
    UC_HOOK_INTR,
    UC_MODE_ARM,
    UC_PROT_ALL,
    Uc,
    UcError,
)
from unicorn import arm64_const as reg
from unicorn.arm64_const import UC_CPU_ARM64_MAX

from perfdojo_arm_neon.emulator import newer
from perfdojo_arm_neon.emulator.elf import SharedObject
from perfdojo_arm_neon.estimate.sve import is_sve
from perfdojo_sdk.core.expression import OPERATIONS

STACK_BYTES = 1 << 20
HOST_PAGE = mmap.PAGESIZE
_RETURN = 0xD65F03C0
#: The instruction that reads ID_AA64PFR0_EL1 into X0; bits 4:0 are the number of the register.
_READS_FEATURES = np.uint32(0xD5380400)
#: CRn, CRm, op0, op1, op2 of CPTR_EL3, and the value with which SVE is not trapped at the highest level.
_CPTR_EL3_ALLOWS_SVE = (1, 1, 3, 6, 2, 1 << 8)
#: CRn, CRm, op0, op1, op2 of ID_AA64ISAR1_EL1; and the exception of an instruction that is not known.
_ISAR1, _UNDEFINED = (0, 6, 3, 0, 1), 1
#: Registers that a function must preserve, and their content when it is called.
_CALLERS = tuple(
    getattr(reg, f"UC_ARM64_REG_{name}")
    for name in (*(f"X{k}" for k in range(19, 29)), *(f"D{k}" for k in range(8, 16)))
)
_OF_CALLER = 0x5A5A5A5A5A5A00
#: The functions of doubles, which are in d0, and d1, at the call; what they are is the table of operations'.
_MATH: Mapping[str, Callable[..., float]] = {
    name: OPERATIONS[name].floats
    for name in (
        "exp", "exp2", "expm1", "log", "log2", "log1p", "tanh", "erf", "cbrt", "sin", "cos", "tan", "asin",
        "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh", "pow", "fmod",
    )
}  # fmt: skip
#: Errors of the emulator for reading, writing or running memory that is not mapped.
_NOT_THERE = (UC_ERR_READ_UNMAPPED, UC_ERR_WRITE_UNMAPPED, UC_ERR_FETCH_UNMAPPED)
#: Functions that succeed without doing anything, since threads take turns.
_NOTHING_TO_DO = frozenset(
    ("pthread_mutex_lock", "pthread_mutex_trylock", "pthread_mutex_unlock", "pthread_cond_signal",
     "pthread_cond_broadcast", "pthread_sigmask", "sigfillset", "pthread_join", "usleep", "dlsym")
)  # fmt: skip


class Crashed(Exception):
    """Raised when the emulated core cannot go on, with the reason."""

    def __init__(self, words: str, out_of_memory: bool = False) -> None:
        super().__init__(words)
        self.out_of_memory = out_of_memory
        """True if it touched memory that does not exist, for which hardware sends SIGSEGV."""


class Ended(Exception):
    """The kernel asked to end the process."""


class Machine:
    """A core with one shared object loaded. ``code`` may be given to run other instructions in its place."""

    def __init__(self, loaded: SharedObject, image: bytes | None = None) -> None:
        self.loaded = loaded
        # The one core of the emulator that has SVE; its vectors are as short as they can be, 128 bits.
        self.uc = Uc(UC_ARCH_ARM64, UC_MODE_ARM, UC_CPU_ARM64_MAX)
        self.uc.reg_write(reg.UC_ARM64_REG_CPACR_EL1, 3 << 20 | 3 << 16)  # floating point and SVE are allowed
        self.uc.reg_write(reg.UC_ARM64_REG_CP_REG, _CPTR_EL3_ALLOWS_SVE)
        self.mapped: set[int] = set()
        self.held: list[Any] = []
        self.waiting: deque[Any] = deque()
        """Threads that wait, the next one first."""
        self.calls: Counter[str] = Counter()
        """Number of calls of each function of the C library."""
        self.problem: Exception | None = None
        self.kept = True
        """True if calls left the registers that are their caller's as they were."""
        self.switching = False
        self.current = 0
        """Number of the thread that runs; 0 is the caller's."""
        self.threads, self.seconds = 1, 0
        self.base = self.allocate(image if image is not None else loaded.image)
        self.stack = self.allocate(bytes(STACK_BYTES))
        self._link()
        self._add_newer()

    # -- memory ------------------------------------------------------------------------------------

    def allocate(self, content: bytes) -> int:
        """Memory for the machine with this content; its address."""
        address = self.reserve(len(content))
        ctypes.memmove(address, content, len(content))
        return address

    def reserve(self, size: int) -> int:
        """Zeroed memory for the machine, which takes none of the host's until it is used; its address."""
        size = -(-max(size, 1) // HOST_PAGE) * HOST_PAGE
        view = np.frombuffer(mmap.mmap(-1, size), np.uint8)
        self.held.append(view)
        self.share(view.ctypes.data, size)
        return int(view.ctypes.data)

    def share(self, address: int, size: int) -> None:
        """Let the kernel access these bytes of this process, and all others on the same pages."""
        first, last = address // HOST_PAGE, -(-(address + max(size, 1)) // HOST_PAGE)
        missing = [page for page in range(first, last) if page not in self.mapped]
        while missing:
            run = next((k for k in range(1, len(missing)) if missing[k] != missing[0] + k), len(missing))
            start = missing[0] * HOST_PAGE
            self.uc.mem_map_ptr(start, run * HOST_PAGE, UC_PROT_ALL, start)
            self.mapped.update(missing[:run])
            missing = missing[run:]

    # -- linking -----------------------------------------------------------------------------------

    def _link(self) -> None:
        """Apply relocations; each function of the C library gets the address of a return instruction."""
        names = sorted({r.symbol for r in self.loaded.relocations if r.symbol} - self.loaded.symbols.keys())
        self.imports = self.allocate(_RETURN.to_bytes(4, "little") * (len(names) + 2))
        self.names = names
        self.end = self.imports + 4 * len(names)
        places = {n: self.imports + 4 * k for k, n in enumerate(names) if n not in self.loaded.weak}
        places |= {n: self.base + at for n, at in self.loaded.symbols.items()}
        for r in self.loaded.relocations:
            value = (places.get(r.symbol, 0) if r.symbol else self.base) + r.addend
            ctypes.c_uint64.from_address(self.base + r.address).value = value & (1 << 64) - 1
        if names:
            self.uc.hook_add(UC_HOOK_CODE, self._library, begin=self.imports, end=self.end - 1)

    def _library(self, uc: Uc, address: int, size: int, data: object) -> None:
        """Do the work of the called function of the C library; its arguments are in registers."""
        name = self.names[(address - self.imports) // 4]
        self.calls[name] += 1
        try:
            self._do(name)
        except Exception as problem:
            self.problem = problem
            uc.emu_stop()

    def _do(self, name: str) -> None:
        read, write = self.uc.reg_read, self.uc.reg_write
        if name in _MATH:  # first, since these are called for each element
            registers = (reg.UC_ARM64_REG_D0, reg.UC_ARM64_REG_D1)[: OPERATIONS[name].arity]
            write(reg.UC_ARM64_REG_D0, _bits(_MATH[name](*[_double(read(r)) for r in registers])))
            return
        x = [read(getattr(reg, f"UC_ARM64_REG_X{k}")) for k in range(4)]
        if name in _NOTHING_TO_DO:
            write(reg.UC_ARM64_REG_X0, 0)
        elif name == "pthread_cond_wait" or (name == "sched_yield" and self.waiting):
            write(reg.UC_ARM64_REG_X0, 0)
            self.switching = True
            self.uc.emu_stop()
        elif name == "sched_yield":
            write(reg.UC_ARM64_REG_X0, 0)
        elif name == "clock_gettime":
            self.seconds += 1
            self.uc.mem_write(x[1], self.seconds.to_bytes(8, "little") + bytes(8))
            write(reg.UC_ARM64_REG_X0, 0)
        elif name == "pthread_create":
            self._create(x[2], x[3])
            write(reg.UC_ARM64_REG_X0, 0)
        elif name == "getpid":
            write(reg.UC_ARM64_REG_X0, 1)
        elif name == "sincos":  # compilers make it of both functions of one number
            value = _double(read(reg.UC_ARM64_REG_D0))
            for address, function in zip(x, ("sin", "cos"), strict=False):
                self.uc.mem_write(address, _bits(_MATH[function](value)).to_bytes(8, "little"))
        elif name in ("memcpy", "memmove"):
            self.uc.mem_write(x[0], bytes(self.uc.mem_read(x[1], x[2])))
        elif name == "memset":
            self.uc.mem_write(x[0], bytes([x[1] & 255]) * x[2])
        elif name == "abort":
            raise Crashed("it called abort")
        elif name in ("exit", "_exit"):
            raise Ended
        else:
            raise Crashed(f"it called {name}, which the emulator does not have")

    # -- instructions that the emulator lacks ------------------------------------------------------

    def _add_newer(self) -> None:
        """Let the core have newer instructions, and say so, if the code has some of them or asks."""
        for place in newer.questions(self.loaded):
            at = self.base + place
            self.uc.hook_add(UC_HOOK_CODE, self._tell_features, begin=at, end=at)
        if newer.is_in(self.loaded):
            self.uc.hook_add(UC_HOOK_INTR, self._unknown)

    def _tell_features(self, uc: Uc, address: int, size: int, data: object) -> None:
        register = ctypes.c_uint32.from_address(address).value & 31
        known = int(uc.reg_read(reg.UC_ARM64_REG_CP_REG, _ISAR1))
        if register != 31:
            uc.reg_write(getattr(reg, f"UC_ARM64_REG_X{register}"), known | newer.FEATURES)
        uc.reg_write(reg.UC_ARM64_REG_PC, address + 4)

    def _unknown(self, uc: Uc, number: int, data: object) -> None:
        """Execute an instruction that the emulator does not know."""
        at = int(uc.reg_read(reg.UC_ARM64_REG_PC))
        word = ctypes.c_uint32.from_address(at).value
        if number != _UNDEFINED or not newer.is_newer(word):
            self.problem = Crashed(f"an exception that nothing handles at {at - self.base:#x} of the code")
            uc.emu_stop()
            return
        places = [reg.UC_ARM64_REG_Q0 + (word >> bit & 31) for bit in (0, 5, 16)]
        uc.reg_write(places[0], newer.computed(word, *[int(uc.reg_read(place)) for place in places]))
        uc.reg_write(reg.UC_ARM64_REG_PC, at + 4)

    @property
    def has_sve_code(self) -> bool:
        """True if some word of the object could be an instruction of SVE."""
        image = self.loaded.image
        return any(map(is_sve, np.frombuffer(image, "<u4", len(image) // 4).tolist()))

    @property
    def asks_for_sve(self) -> bool:
        """True if the object reads the register that says whether there is SVE, as code for it does."""
        image = self.loaded.image
        words = np.frombuffer(image, "<u4", len(image) // 4)
        return bool((words & ~np.uint32(31) == _READS_FEATURES).any())

    @property
    def float_control(self) -> int:
        """The FPCR register: rounding mode and treatment of denormal numbers."""
        return int(self.uc.reg_read(reg.UC_ARM64_REG_FPCR))

    # -- running -----------------------------------------------------------------------------------

    def call(self, symbol: str, arguments: Sequence[int]) -> int:
        """Call a function with whole numbers and addresses; returns its result as 64 bits."""
        write = self.uc.reg_write
        top = self.stack + STACK_BYTES
        rest = arguments[8:]
        top -= -(-8 * len(rest) // 16) * 16
        for k, value in enumerate(rest):
            ctypes.c_uint64.from_address(top + 8 * k).value = value
        for k, value in enumerate(arguments[:8]):
            write(getattr(reg, f"UC_ARM64_REG_X{k}"), value)
        write(reg.UC_ARM64_REG_X30, self.end)
        for k, register in enumerate(_CALLERS):
            write(register, _OF_CALLER + k)
        write(reg.UC_ARM64_REG_SP, top)
        self._run(self.base + self.loaded.symbols[symbol])
        read = self.uc.reg_read
        kept = all(read(register) == _OF_CALLER + k for k, register in enumerate(_CALLERS))
        self.kept &= kept and read(reg.UC_ARM64_REG_SP) == top
        return int(read(reg.UC_ARM64_REG_X0))

    def set_vector_length(self, units: int) -> None:
        """Set the length of SVE's vectors, in units of 128 bits."""
        for level in (0, 4, 6):
            self.uc.reg_write(reg.UC_ARM64_REG_CP_REG, (1, 2, 3, level, 0, units - 1))

    def _run(self, at: int) -> None:
        while True:
            try:
                self.uc.emu_start(at, self.end)
            except UcError as error:
                where = self.uc.reg_read(reg.UC_ARM64_REG_PC) - self.base
                raise Crashed(f"{error} at {where:#x} of the code", error.errno in _NOT_THERE) from None
            if self.problem:
                problem, self.problem = self.problem, None
                raise problem
            if not self.switching:
                return
            self.switching = False
            at = self._switch()

    def _create(self, function: int, argument: int) -> None:
        """Create a thread, which waits for its first turn."""
        context = self.uc.context_save()
        top = self.allocate(bytes(STACK_BYTES)) + STACK_BYTES
        for register, value in (
            (reg.UC_ARM64_REG_X0, argument),
            (reg.UC_ARM64_REG_SP, top),
            (reg.UC_ARM64_REG_X30, function),
        ):
            context.reg_write(register, value)
        self.waiting.append((self.threads, context))
        self.threads += 1

    def _switch(self) -> int:
        """Switch to the next thread, which continues after its call that waited; returns that address."""
        if not self.waiting:
            raise Crashed("all of its threads wait")
        self.waiting.append((self.current, self.uc.context_save()))
        self.current, context = self.waiting.popleft()
        self.uc.context_restore(context)
        return int(self.uc.reg_read(reg.UC_ARM64_REG_X30))


def _double(bits: int) -> float:
    return ctypes.c_double.from_buffer(ctypes.c_uint64(bits)).value


def _bits(value: float) -> int:
    return ctypes.c_uint64.from_buffer(ctypes.c_double(value)).value

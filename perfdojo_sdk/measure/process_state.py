"""What a kernel must leave as it was: how its caller's thread computes with floats, what the process takes.

Floats are seen by what arithmetic does, which holds on every processor: a control word has other bits beside
those that matter, on each processor others.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from perfdojo_sdk.core.words import number_of

Numbers: TypeAlias = np.ndarray[Any, Any]

_C = ctypes.CDLL(None)


def float_state() -> Mapping[str, object]:
    """Name of a property -> its value for this thread; equal before and after a call."""
    traps = _told("fegetexcept")
    if traps:
        return {"traps": traps}  # arithmetic would end the process
    with np.errstate(all="ignore"):
        return {
            "rounding": tuple(_bits(_quotients(dtype)) for dtype in ("f4", "f8", "g")),
            "denormal results": tuple(_bits(_tiny(dtype) / 2) for dtype in ("f4", "f8")),
            "denormal operands": tuple(_bits(_denormal(dtype) * (1 << 20)) for dtype in ("f4", "f8")),
            "bits of a NaN": _bits(np.array([0x7FC12345], "u4").view("f4") + np.float32(1)),
            "traps": traps,
            "rounding mode": _told("fegetround"),
        }


def changed(before: Mapping[str, object], after: Mapping[str, object]) -> str:
    """The properties that differ, in words; empty when none does."""
    return ", ".join(name for name in before if name in after and before[name] != after[name])


def _quotients(dtype: str) -> Numbers:
    quotients: Numbers = np.array([1, -1, 2, -2], dtype) / np.array([3], dtype)
    return quotients


def _tiny(dtype: str) -> Numbers:
    return np.array([np.finfo(dtype).smallest_normal], dtype)


def _denormal(dtype: str) -> Numbers:
    """One made from its bits: arithmetic might not make it."""
    return np.array([1 << 10], f"u{dtype[1]}").view(dtype)


def _bits(numbers: Numbers) -> bytes:
    # A long double has bytes that nobody writes: as decimal digits it has none.
    if numbers.dtype == np.longdouble:
        return " ".join(np.format_float_scientific(n, unique=True) for n in numbers).encode()
    return numbers.tobytes()


def _told(name: str) -> int | None:
    """What a function of the C library says, where there is one."""
    function: Callable[[], int] | None = getattr(_C, name, None) or getattr(_M, name, None)
    return function() if function else None


def _mathematics() -> ctypes.CDLL | None:
    """The library of mathematics, which is one of its own in some systems."""
    try:
        return ctypes.CDLL("libm.so.6")
    except OSError:
        return None


_M = _mathematics()


def process_settings() -> Mapping[str, object]:
    """Name of what all of the process has once -> its value; equal before and after a call."""
    _C.fflush(None)
    with open("/proc/self/status") as status:
        told = {name: value.strip() for name, _, value in (line.partition(":") for line in status)}
    return {
        "handlers of signals": (int(told["SigCgt"], 16) & ~_OF_LIBRARY, told["SigIgn"]),
        "the mask of new files": told.get("Umask"),
        "the processors of this thread": told.get("Cpus_allowed"),
        "its priority": os.getpriority(os.PRIO_PROCESS, 0),
        "timers": tuple(signal.getitimer(which)[0] > 0 for which in _TIMERS),
        "its folder": os.getcwd(),
        "its environment": _environment(),
        "its limits": tuple(resource.getrlimit(kind) for kind in _LIMITS),
        "what it has said": tuple(os.fstat(file).st_size for file in (1, 2)),
    }


#: Signals 32 and 33, by which the C library talks to threads: it takes them with the first one.
_OF_LIBRARY = 3 << 31
_TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)
_LIMITS = (resource.RLIMIT_AS, resource.RLIMIT_NOFILE, resource.RLIMIT_STACK, resource.RLIMIT_CORE)


def _environment() -> tuple[bytes, ...]:
    """As C has it: Python keeps a copy of its own."""
    words = ctypes.POINTER(ctypes.c_char_p).in_dll(_C, "environ")
    found: list[bytes] = []
    while words and (word := words[len(found)]) is not None:
        found.append(word)
    return tuple(found)


def threads_that_take_signals() -> list[int]:
    """Threads of this process beside this one that do not leave signals to it."""
    others = {int(number) for number in os.listdir("/proc/self/task")} - {threading.get_native_id()}
    return [thread for thread in others if not _left_to_others(thread)]


def _left_to_others(thread: int) -> bool:
    """Whether it blocks what a caller may have handlers for; so does a thread that has ended."""
    try:
        with open(f"/proc/self/task/{thread}/status") as status:
            blocked = next((int(line.split()[1], 16) for line in status if line.startswith("SigBlk")), 0)
    except (FileNotFoundError, ProcessLookupError):
        return True
    return all(blocked >> (number - 1) & 1 for number in _OF_CALLERS)


_OF_CALLERS = (
    signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGALRM, signal.SIGCHLD, signal.SIGUSR1,
    signal.SIGUSR2,
)  # fmt: skip


def blocked_signals() -> set[int]:
    """Those that this thread does not take now."""
    return set(signal.pthread_sigmask(signal.SIG_BLOCK, ()))


@dataclass(frozen=True)
class Used:
    """What a process takes; grows with each call of a kernel that gives nothing back."""

    threads: int = 0
    resident: int = 0
    allocated: int = 0
    """Bytes from ``malloc``; 0 where that does not tell."""

    @staticmethod
    def now() -> Used:
        with open("/proc/self/statm") as statm:
            resident = int(statm.read().split()[1]) * resource.getpagesize()
        return Used(len(os.listdir("/proc/self/task")), resident, _allocated())

    def beyond(self, before: Used) -> str:
        """What is worth noting of the growth since then, in words; the interpreter takes a little, too."""
        threads, resident = self.threads - before.threads, self.resident - before.resident
        allocated = self.allocated - before.allocated
        if threads > 0:
            return number_of(threads, "threads")
        if resident > 1 << 20 or allocated > 1 << 14:
            return f"{max(resident, allocated)} bytes of memory"
        return ""


class _Mallinfo(ctypes.Structure):
    """``struct mallinfo2`` of the GNU C library."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks",
            "keepcost",
        )
    )  # fmt: skip


def _allocated() -> int:
    function = getattr(_C, "mallinfo2", None)
    if function is None:
        return 0
    function.restype = _Mallinfo
    told = function()
    return int(told.uordblks + told.hblkhd)

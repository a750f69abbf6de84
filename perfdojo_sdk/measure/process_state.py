"""The state that a kernel must preserve: its caller's floating-point environment and state of the process.

The floating-point environment is observed through arithmetic, which works on every processor: control words
contain further bits, which differ between processors.
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
    """A denormal number, made from its bits, since arithmetic may flush it to zero."""
    return np.array([1 << 10], f"u{dtype[1]}").view(dtype)


def _bits(numbers: Numbers) -> bytes:
    # A long double has padding bytes with any content, so its decimal digits are compared.
    if numbers.dtype == np.longdouble:
        return " ".join(np.format_float_scientific(n, unique=True) for n in numbers).encode()
    return numbers.tobytes()


def _told(name: str) -> int | None:
    """The result of a function of the C library; None where it does not exist."""
    function: Callable[[], int] | None = getattr(_C, name, None) or getattr(_M, name, None)
    return function() if function else None


def _mathematics() -> ctypes.CDLL | None:
    """The C library's mathematics, which is a library of its own on some systems."""
    try:
        return ctypes.CDLL("libm.so.6")
    except OSError:
        return None


_M = _mathematics()


#: Field in Linux's status of a thread -> its name in this module.
_TOLD = {
    "Umask": "permissions of new files",
    "SigBlk": "blocked signals",
    "SigIgn": "ignored signals",
    "Cpus_allowed": "processors",
}
#: Signals 32 and 33, by which the C library talks to threads: it handles them from the first thread on.
_OF_LIBRARY = 3 << 31
_LIMITS = tuple(value for name, value in sorted(vars(resource).items()) if name.startswith("RLIMIT_"))
_TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)
_ALL_OF_LOCALE = 6


def surroundings() -> Mapping[str, object]:
    """Name of a property of this thread and its process -> its value; equal before and after a call."""
    _C.fflush(None)
    with open("/proc/thread-self/status") as status:
        told = dict(line.split(":", 1) for line in status)
    return {
        **{words: told.get(name) for name, words in _TOLD.items()},
        "handled signals": int(told["SigCgt"], 16) & ~_OF_LIBRARY,
        "current folder": _current_folder(),
        "environment": _environment(),
        "limits": tuple(map(resource.getrlimit, _LIMITS)),
        "priority": (os.getpriority(os.PRIO_PROCESS, 0), os.sched_getscheduler(0)),
        "timers": tuple(signal.getitimer(which)[0] > 0 for which in _TIMERS),
        "locale": _locale(),
        "printed output": tuple(os.fstat(file).st_size for file in (1, 2)),
    }


def _current_folder() -> tuple[int, int] | None:
    """The device and inode of the current folder, since its name may lead elsewhere."""
    try:
        about = os.stat(".")
    except OSError:
        return None
    return about.st_dev, about.st_ino


def _environment() -> tuple[bytes, ...]:
    """The environment variables of the C library, of which Python has a copy of its own."""
    words = ctypes.POINTER(ctypes.c_char_p).in_dll(_C, "environ")
    found: list[bytes] = []
    while words and (word := words[len(found)]) is not None:
        found.append(word)
    return tuple(found)


def _locale() -> bytes | None:
    function = _C.setlocale
    function.restype, function.argtypes = ctypes.c_char_p, [ctypes.c_int, ctypes.c_char_p]
    found: bytes | None = function(_ALL_OF_LOCALE, None)
    return found


#: Signals that a caller may handle; a thread that a kernel starts has to leave them to its caller.
_OF_CALLERS = (
    signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGALRM, signal.SIGCHLD, signal.SIGUSR1,
    signal.SIGUSR2,
)  # fmt: skip


def threads_that_take_signals() -> list[int]:
    """Threads of this process beside this one that do not leave signals to it."""
    others = {int(number) for number in os.listdir("/proc/self/task")} - {threading.get_native_id()}
    return [thread for thread in others if not _leaves_signals(thread)]


def _leaves_signals(thread: int) -> bool:
    """True if a thread blocks all of ``_OF_CALLERS``, or has ended."""
    try:
        with open(f"/proc/self/task/{thread}/status") as status:
            blocked = next((int(line.split()[1], 16) for line in status if line.startswith("SigBlk")), 0)
    except (FileNotFoundError, ProcessLookupError):
        return True
    return all(blocked >> (number - 1) & 1 for number in _OF_CALLERS)


class Floats:
    """The floating-point environment of this thread, to be put back."""

    #: More than an ``fenv_t`` takes on any processor.
    _BYTES = 256

    def __init__(self) -> None:
        self._kept = ctypes.create_string_buffer(self._BYTES)
        _of_mathematics("fegetenv", self._kept)

    def put_back(self) -> None:
        _of_mathematics("fesetenv", self._kept)


def _of_mathematics(name: str, place: ctypes.Array[ctypes.c_char]) -> None:
    function = getattr(_C, name, None) or getattr(_M, name, None)
    if function is not None:
        function(place)


#: Lines of ``/proc/PID/status``: kibibytes of a process in memory that are not pages of a file.
_OF_NO_FILE = ("RssAnon:", "RssShmem:")


@dataclass(frozen=True)
class Used:
    """Resources used by a process; they grow with each call of a kernel that leaks."""

    threads: int = 0
    resident: int = 0
    """Bytes in memory that no file holds; code that is read for the first time is no leak."""
    allocated: int = 0
    """Bytes from ``malloc``; 0 if that is unknown."""

    @staticmethod
    def now() -> Used:
        with open("/proc/self/status") as status:
            resident = sum(int(line.split()[1]) << 10 for line in status if line.startswith(_OF_NO_FILE))
        return Used(len(os.listdir("/proc/self/task")), resident, _allocated())

    def beyond(self, before: Used) -> str:
        """A description of significant growth since ``before``, "" for none; the interpreter itself grows a
        little."""
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

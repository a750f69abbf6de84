"""A process with all its descendants: their memory and number, and how to end all of them.

A process may leave its session and its parent, but not an ancestor that adopts orphans (a *child subreaper*,
see ``prctl(2)``). So a process that adopts is the parent of all untrusted ones, and kills children until
there are none. :func:`guard` is such a process. Linux only.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import NoReturn

#: Options of prctl(2): the signal when the parent dies, becoming a subreaper, asking for that.
_DEATH_SIGNAL, _ADOPT, _ADOPTS = 1, 36, 37
#: Seconds after which processes that cannot be killed are left alone: they hang in the system's kernel. Each
#: process adds to them, since a fork of a large process takes long to end.
PATIENCE_S, _EACH_S = 10.0, 0.1


def children(pid: int) -> list[int]:
    """The children of a process that exists, zombies included."""
    found: list[int] = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            with suppress(ProcessLookupError), open(f"/proc/{pid}/task/{task}/children") as file:
                found += map(int, file.read().split())
    except (FileNotFoundError, ProcessLookupError):
        # The process has ended, or this system has no such files.
        return [child for child in _processes() if _status(child)[1] == pid]
    return found


def with_descendants(roots: Iterable[int]) -> list[int]:
    """The processes ``roots`` and all their descendants."""
    found = list(dict.fromkeys(roots))
    for pid in found:  # grows meanwhile
        found += [child for child in children(pid) if child not in found]
    return found


def tasks(pids: Iterable[int]) -> int:
    """The number of processes and threads."""
    return sum(map(_tasks, pids))


def resident_bytes(pids: Sequence[int], limit: int) -> int:
    """The memory of the processes that is resident. Shared pages are counted once if the sum exceeds
    ``limit``, which takes long for many processes."""
    resident = sum(map(_resident, pids))
    return sum(map(_share, pids)) if resident > limit and len(pids) > 1 else resident


def end(roots: Callable[[], Iterable[int]], reap: Callable[[int], object] | None = None) -> None:
    """Kill ``roots()`` and all their descendants until nobody is left. Their orphans must become roots.

    A process that forks and ends, over and over, may never be found alive. So if the caller is the parent of
    the roots, it gives ``reap``, which collects a root that has ended: all are gone when no root is left.
    """
    begin, patience = time.monotonic(), PATIENCE_S
    while time.monotonic() < begin + patience:
        found = list(roots())
        for pid in found:
            _kill(pid)  # before searching for descendants, which takes time
        living = [pid for pid in with_descendants(found) if _status(pid)[0] not in "ZX"]
        for pid in living:
            _kill(pid)
        patience = max(patience, PATIENCE_S + _EACH_S * len(living))
        if not (found if reap else living):
            return
        if reap:
            for pid in found:
                reap(pid)
        else:
            time.sleep(0.001)


def _kill(pid: int) -> None:
    """Kill a process and, at the same moment, its process group."""
    with suppress(ProcessLookupError, PermissionError):
        group = os.getpgid(pid)
        if group != os.getpgrp():
            os.killpg(group, signal.SIGKILL)
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)


def reap(pid: int) -> None:
    """Wait for a child if it has ended."""
    with suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


def ended(pid: int, flags: int = 0) -> int | None:
    """The exit status of a child of this process, negative for a signal; waits for it without ``WNOHANG``.

    None if it has not ended. A child that asked to be traced reports each stop in the way others report their
    end.
    """
    while True:
        found, status = os.waitpid(pid, flags)
        if not found:
            return None
        if os.WIFEXITED(status) or os.WIFSIGNALED(status):
            return os.waitstatus_to_exitcode(status)


@contextmanager
def adopting() -> Iterator[None]:
    """Orphans among this process's descendants become its children; so do those of its other children."""
    before = ctypes.c_int()
    _prctl(_ADOPTS, ctypes.byref(before))
    _prctl(_ADOPT, ctypes.c_ulong(1))
    try:
        yield
    finally:
        _prctl(_ADOPT, ctypes.c_ulong(before.value))


_prctl = ctypes.CDLL(None).prctl


def _status(pid: int) -> tuple[str, int]:
    """A process's state, ``X`` when it is gone, and its parent."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The name is in brackets and may contain anything, so look behind the last bracket.
            state, parent = file.read().rpartition(b")")[2].split()[:2]
    except (OSError, ValueError):
        return "X", 0
    return state.decode(), int(parent)


def _processes() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdecimal()]


def _tasks(pid: int) -> int:
    try:
        return len(os.listdir(f"/proc/{pid}/task"))
    except OSError:
        return 0


def _resident(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return 0


def _share(pid: int) -> int:
    """Resident memory of a process, with its share of shared pages."""
    try:
        with open(f"/proc/{pid}/smaps_rollup") as file:
            return next(int(line.split()[1]) << 10 for line in file if line.startswith("Pss:"))
    except (OSError, StopIteration):
        return _resident(pid)


# -- the process above a worker ------------------------------------------------------------------------


def guard(work: Callable[[], object], parent: int) -> None:
    """Do the work in a child, end whatever it leaves, and end this process as the child did."""

    def leave(*_: object) -> None:
        raise SystemExit

    signal.signal(signal.SIGTERM, leave)
    _prctl(_DEATH_SIGNAL, ctypes.c_ulong(signal.SIGTERM))
    if os.getppid() != parent:
        return  # the parent died before this process asked for a signal
    status = 1
    with adopting():
        child = os.fork()
        if child == 0:
            _do(work)
        try:
            status = ended(child) or 0
        finally:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            end(lambda: children(os.getpid()), reap)
    if status < 0:
        if -status not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)


def _do(work: Callable[[], object]) -> NoReturn:
    """Do the work in a process group of its own, and exit without the handlers of this process."""
    status = 1
    try:
        os.setpgid(0, 0)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        work()
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)

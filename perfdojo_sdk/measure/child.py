"""The process that runs kernels, as its parent sees it: started, watched, and ended with all descendants."""

from __future__ import annotations

import faulthandler
import gc
import os
import signal
import traceback
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from typing import Protocol

from perfdojo_sdk.measure import process_tree


class Child(Protocol):
    """A process and whatever descends from it."""

    def poll(self) -> int | None:
        """Its status when it has ended, negative for a signal."""

    def roots(self) -> Iterable[int]:
        """Processes from which all of it descends."""

    def end(self) -> int:
        """End it and all its descendants, whichever session they are in; its status."""


class Forked:
    """``work`` in a fork of this process, which adopts its orphans as long as it runs.

    Of this process's open files it has ``files`` only. No other thread of this process may start processes
    meanwhile: they would count as orphans.
    """

    def __init__(self, work: Callable[[], None], said: int, files: Sequence[int]) -> None:
        self._status: int | None = None
        self._adopting = ExitStack()
        self._adopting.enter_context(process_tree.adopting())
        self._others = frozenset(process_tree.children(os.getpid()))
        # No signal handler of this process may raise in the child before _work_and_leave handles it.
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, _HANDLED)
        try:
            self._pid = os.fork()
            if self._pid == 0:
                _work_and_leave(work, said, files, blocked)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)

    def poll(self) -> int | None:
        if self._status is None:
            self._status = process_tree.ended(self._pid, os.WNOHANG)
        return self._status

    def roots(self) -> Iterable[int]:
        return [pid for pid in process_tree.children(os.getpid()) if pid not in self._others]

    def end(self) -> int:
        process_tree.end(self.roots, self._reap)
        if self._status is None:
            self._status = process_tree.ended(self._pid) or 0
        self._adopting.close()
        return self._status

    def _reap(self, pid: int) -> None:
        if pid == self._pid:
            self.poll()
        else:
            process_tree.reap(pid)


_HANDLED = (signal.SIGTERM, signal.SIGINT)


def _work_and_leave(
    work: Callable[[], None], said: int, files: Sequence[int], blocked: Iterable[int]
) -> None:
    """Do the child's work and exit, without the parent's handlers and clean-up. It starts with signals
    blocked."""
    status = 1
    try:
        gc.freeze()  # objects of the parent may wait for threads that are not here
        os.setsid()
        for handled in _HANDLED:
            signal.signal(handled, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        os.dup2(said, 1)
        os.dup2(said, 2)
        _close_others({0, 1, 2, *files})
        faulthandler.disable()  # it may write to the parent's stderr
        work()
        status = 0
    except BaseException:
        os.write(2, traceback.format_exc().encode())
    finally:
        os._exit(status)


def _close_others(kept: Iterable[int]) -> None:
    """Close all files but ``kept``, so that a kernel cannot write into an open database of this process."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in kept:
            with suppress(OSError):  # the descriptor of the listed folder itself is closed by now
                os.close(int(name))

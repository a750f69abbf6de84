"""The process that runs kernels, as its parent sees it: started, watched, ended with all its family."""

from __future__ import annotations

import faulthandler
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import Protocol

from perfdojo_sdk.measure import family


class Child(Protocol):
    """A process and whatever descends from it."""

    def poll(self) -> int | None:
        """Its status when it has ended, negative for a signal."""

    def roots(self) -> Iterable[int]:
        """Processes from which all of it descends."""

    def end(self) -> int:
        """End it and all its descendants, whichever session they are in; its status."""


class Interpreted:
    """A script in an interpreter of its own. Between it and us stands who adopts its orphans."""

    def __init__(
        self, script: str, folder: str, environment: Mapping[str, str], said: int, files: Sequence[int]
    ) -> None:
        # No module of this package is found by the script's own interpreter.
        command = [sys.executable, "-P", "-S", family.__file__, script, folder, str(os.getpid())]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            env=environment,
            pass_fds=files,
            start_new_session=True,
        )

    def poll(self) -> int | None:
        return self._process.poll()

    def roots(self) -> Iterable[int]:
        return [self._process.pid] if self._process.returncode is None else []

    def end(self) -> int:
        if self._process.poll() is None:
            family.end(lambda: family.children(self._process.pid))
            self._process.kill()
        return self._process.wait()


class Forked:
    """``work`` in a fork of this process, which adopts its orphans as long as it runs.

    No other thread of this process may start processes meanwhile: they would count as orphans.
    """

    def __init__(self, work: Callable[[], None], said: int) -> None:
        self._status: int | None = None
        self._adopting = ExitStack()
        self._adopting.enter_context(family.adopting())
        self._others = frozenset(family.children(os.getpid()))
        # No handler of this process may raise in the child before it is ready to leave.
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, _HANDLED)
        try:
            self._pid = os.fork()
            if self._pid == 0:
                _work_and_leave(work, said, blocked)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)

    def poll(self) -> int | None:
        if self._status is None:
            pid, status = os.waitpid(self._pid, os.WNOHANG)
            self._status = os.waitstatus_to_exitcode(status) if pid else None
        return self._status

    def roots(self) -> Iterable[int]:
        return [pid for pid in family.children(os.getpid()) if pid not in self._others]

    def end(self) -> int:
        family.end(self.roots)
        if self._status is None:
            self._status = os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])
        for orphan in self.roots():
            with suppress(ChildProcessError):
                os.waitpid(orphan, os.WNOHANG)
        self._adopting.close()
        return self._status


_HANDLED = (signal.SIGTERM, signal.SIGINT)


def _work_and_leave(work: Callable[[], None], said: int, blocked: Iterable[int]) -> None:
    """The child's life: no handlers and no clean-up of the parent's. It begins with signals blocked."""
    status = 1
    try:
        os.setsid()
        for handled in _HANDLED:
            signal.signal(handled, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        os.dup2(said, 1)
        os.dup2(said, 2)
        faulthandler.disable()  # it may write to where the parent's errors went
        work()
        status = 0
    except BaseException:
        os.write(2, traceback.format_exc().encode())
    finally:
        os._exit(status)

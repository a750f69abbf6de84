"""One call in a process of its own, beside what this process does meanwhile.

Two cores verify faster than one, and what is written in Python shares one core otherwise. The process is
a copy of this one, so nothing but the result has to be sent.
"""

from __future__ import annotations

import os
import pickle
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

from perfdojo_sdk.measure.guarded_files import remove_folders

T = TypeVar("T")
_KINDNESS_S = 2.0


@contextmanager
def in_background(work: Callable[[], T]) -> Iterator[Callable[[], T]]:
    """Start ``work`` in a process of its own; what it gives is a function that waits for the result.

    Where the process fails or none can be had, that function does the work itself, here, so that errors
    come as if there were no process. Leaving the block ends the process.
    """
    reading, writing = os.pipe()
    # No signal may raise in the child before it is ready to leave: it would go on as a second parent.
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM, signal.SIGINT))
    try:
        child = os.fork()
        if child == 0:
            _work_and_leave(work, writing, blocked)
    except OSError:
        os.close(reading)
        os.close(writing)
        child = -1
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    if child < 0:
        yield work
        return
    os.close(writing)
    try:
        with open(reading, "rb") as results:
            yield lambda: _result(results.read(), work)
    finally:
        _end(child)


def _end(child: int) -> None:
    """First in kindness: what the child has started and put on disk goes with it."""
    deadline = time.monotonic() + _KINDNESS_S
    with suppress(ProcessLookupError):
        os.kill(child, signal.SIGTERM)
        while not os.waitpid(child, os.WNOHANG)[0]:
            if time.monotonic() > deadline:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                return
            time.sleep(0.001)


def _work_and_leave(work: Callable[[], T], writing: int, blocked: Iterable[int]) -> None:
    """The child's life: no handlers, no output and no clean-up of the parent's, but of its own.

    It begins with signals blocked; ``blocked`` are those that stay so.
    """
    status = 1
    try:
        try:
            signal.signal(signal.SIGTERM, _unwind)
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent hears of it too, and ends this process
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
            with open(writing, "wb") as results:
                results.write(pickle.dumps(work()))
            status = 0
        finally:
            remove_folders()
    finally:
        os._exit(status)


def _unwind(*_: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise KeyboardInterrupt


def _result(sent: bytes, work: Callable[[], T]) -> T:
    if not sent:
        return work()
    result: T = pickle.loads(sent)  # our own process sent it
    return result

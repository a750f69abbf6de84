"""One call in a process of its own, beside what this process does meanwhile.

Two cores verify faster than one, and what is written in Python shares one core otherwise. The process is
a copy of this one, so nothing but the result has to be sent.
"""

from __future__ import annotations

import os
import pickle
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

from perfdojo_sdk.measure.guarded_files import remove_folders

T = TypeVar("T")
_KINDNESS_S = 2.0


@contextmanager
def beside(work: Callable[[], T]) -> Iterator[Callable[[], T]]:
    """Start ``work`` in a process of its own; what it gives is a function that waits for the result.

    Where the process fails or none can be had, that function does the work itself, here, so that errors
    come as if there were no process. Leaving the block ends the process.
    """
    reading, writing = os.pipe()
    try:
        child = os.fork()
    except OSError:
        os.close(reading)
        os.close(writing)
        yield work
        return
    if child == 0:
        os.close(reading)
        _work_and_leave(work, writing)
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


def _work_and_leave(work: Callable[[], T], writing: int) -> None:
    """The child's life: no handlers, no output and no clean-up of the parent's, but of its own."""
    status = 0
    try:
        with open(writing, "wb") as results:
            signal.signal(signal.SIGTERM, _unwind)
            results.write(pickle.dumps(work()))
    except BaseException:
        status = 1
    finally:
        remove_folders()
        os._exit(status)


def _unwind(*_: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise KeyboardInterrupt


def _result(sent: bytes, work: Callable[[], T]) -> T:
    if not sent:
        return work()
    result: T = pickle.loads(sent)  # our own process sent it
    return result

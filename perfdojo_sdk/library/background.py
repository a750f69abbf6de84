"""Work in child processes, while this process goes on.

Python uses one core only; with a child process it uses two. The child is a fork of this process, so only a
result has to be sent.
"""

from __future__ import annotations

import gc
import os
import pickle
import signal
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import chain, takewhile
from typing import TypeVar

from perfdojo_sdk.measure.guarded_files import remove_folders

T = TypeVar("T")
_KINDNESS_S = 2.0
#: Numbers of items in the pipe from which processes take them; so many fit without anybody reading.
_NUMBER, _MOST_NUMBERS = struct.Struct("=I"), 4096


@contextmanager
def in_background(work: Callable[[], T]) -> Iterator[Callable[[], T]]:
    """Start ``work`` in a child process; yields a function that waits for its result.

    If the child fails or cannot be started, that function does the work itself, in this process, so that
    errors are raised as without a child. Leaving the block ends the child.
    """
    reading, writing = os.pipe()
    # No signal may raise in the child before _work_and_leave handles it: it would run on as a second parent.
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


@contextmanager
def with_helpers(work: Callable[[T], object], items: Sequence[T], helpers: int) -> Iterator[Iterator[T]]:
    """Share ``items`` with so many child processes, which do ``work`` on some of them; yields the others, one
    whenever this process asks for it.

    No result is sent. Leaving the block waits for the children, or ends them if it is left by an exception;
    if this process is killed, they end with the item in their hands. What a child failed on remains undone.
    """
    reading, writing = os.pipe()
    with open(reading, "rb", buffering=0) as numbers, ExitStack() as children:
        with open(writing, "wb") as queue:
            queue.write(b"".join(map(_NUMBER.pack, range(len(items[:_MOST_NUMBERS])))))

        def taken() -> Iterator[T]:
            while number := numbers.read(_NUMBER.size):
                yield items[_NUMBER.unpack(number)[0]]

        def help_out(parent: int = os.getpid()) -> None:
            for item in takewhile(lambda _: os.getppid() == parent, taken()):
                work(item)

        ended = [children.enter_context(in_background(help_out)) for _ in range(helpers)]
        yield chain(taken(), items[_MOST_NUMBERS:])
        for wait in ended:
            wait()


def _end(child: int) -> None:
    """End the child: with SIGTERM first, so that it ends its own children and removes its files."""
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
    """Do the child's work and exit, without the parent's signal handlers, output and clean-up.

    It starts with signals blocked; those in ``blocked`` stay so.
    """
    status = 1
    try:
        try:
            gc.freeze()  # objects of the parent may wait for threads that are not here
            signal.signal(signal.SIGTERM, _unwind)
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent gets it too, and ends this process
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

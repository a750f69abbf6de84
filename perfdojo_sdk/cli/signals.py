"""Handling of Ctrl-C and SIGTERM: they unwind a running command, and before that end the process at once.

This module is imported before all others, so it imports very little.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

INTERRUPTED, TERMINATED = 130, 143
COMMAND = "perfdojo-sdk"

if os.path.basename(sys.argv[0]) == COMMAND and signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
    # Python's own handler would print a traceback of an import. If this module is imported by another
    # program, that program handles signals.
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Terminated(KeyboardInterrupt):
    """Raised by SIGTERM; like Ctrl-C, it passes through code that catches errors of plugins."""


@contextmanager
def _handling(number: int, handler: Any) -> Iterator[None]:
    """Handle a signal by ``handler`` in the ``with`` block, unless it is ignored or this is not the main
    thread."""
    before = signal.getsignal(number)
    if before == signal.SIG_IGN:
        yield
        return
    with suppress(ValueError):
        signal.signal(number, handler)
    try:
        yield
    finally:
        with suppress(ValueError):
            signal.signal(number, before)


@contextmanager
def leaving_at_once() -> Iterator[None]:
    """End the process at once on a signal: while modules are imported there is nothing to clean up, and a
    traceback would only show imports."""
    with _handling(signal.SIGINT, lambda *_: os._exit(INTERRUPTED)):
        yield


@contextmanager
def unwinding() -> Iterator[Callable[[], bool]]:
    """Raise on both signals, so that folders are removed and children end; yields a function that is true
    after SIGTERM."""
    asked: list[int] = []

    def terminate(number: int, _: object) -> None:
        signal.signal(number, signal.SIG_IGN)  # a second signal must not interrupt the clean-up
        asked.append(number)
        raise Terminated

    with _handling(signal.SIGINT, signal.default_int_handler), _handling(signal.SIGTERM, terminate):
        yield lambda: bool(asked)

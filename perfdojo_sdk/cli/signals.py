"""Handling of Ctrl-C and SIGTERM: they unwind a running command, and end the process at once before that.

Imported before everything else, so it imports next to nothing itself.
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
    # Python's own handler would show where in an import it met Ctrl-C. Where this is imported in another
    # program, signals are that program's affair.
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Terminated(KeyboardInterrupt):
    """SIGTERM: like Ctrl-C, it passes through whatever catches the faults of others."""


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
    """While modules are imported there is nothing to put in order; a traceback would show only imports."""
    with _handling(signal.SIGINT, lambda *_: os._exit(INTERRUPTED)):
        yield


@contextmanager
def unwinding() -> Iterator[Callable[[], bool]]:
    """Both signals raise, so that folders are removed and children end; gives whether it was SIGTERM."""
    asked: list[int] = []

    def terminate(number: int, _: object) -> None:
        signal.signal(number, signal.SIG_IGN)  # a second one must not keep us from it
        asked.append(number)
        raise Terminated

    with _handling(signal.SIGINT, signal.default_int_handler), _handling(signal.SIGTERM, terminate):
        yield lambda: bool(asked)

"""Faults of a plugin's own code: one line that names the plugin, and a limit on its time.

The traceback goes to the logger ``perfdojo_sdk.plugins`` at level debug, which ``--debug`` shows.
"""

from __future__ import annotations

import ctypes
import logging
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, redirect_stdout
from typing import TypeVar

from perfdojo_sdk.core.errors import DojoError
from perfdojo_sdk.plugins.plugin import cause_of

T = TypeVar("T")

#: The environment variable with the limit of one call of a plugin's pass, generator, veto or runner, in
#: seconds.
VARIABLE = "PERFDOJO_PLUGIN_TIMEOUT"
#: The default limit. A runner also has the time that its kernel may take.
LIMIT_S = 600.0
#: Most different lines that are kept for one kernel.
MOST_LINES = 20

LOGGER = logging.getLogger("perfdojo_sdk.plugins")

_listening: list[list[str]] = []


class PluginFault(DojoError):
    """Raised when a plugin's code raised an error, which is the cause, or gave an invalid result."""

    exit_code = 6

    def __init__(self, plugin: str, line: str) -> None:
        hint = f"report it to plugin {plugin}; --debug shows where it happened"
        super().__init__("PD-G030", line, hint=hint)
        self.plugin = plugin

    def __reduce__(self) -> tuple[object, ...]:
        return (PluginFault, (self.plugin, self.what))


@contextmanager
def heard() -> Iterator[list[str]]:
    """The lines of all faults of plugins in this process while the block runs, each once."""
    lines: list[str] = []
    _listening.append(lines)
    try:
        yield lines
    finally:
        _listening[:] = [each for each in _listening if each is not lines]


def note(plugin: str, what: str, error: BaseException | None = None) -> str:
    """Report a fault to all listeners; returns its line."""
    line = f"plugin {plugin}: {what}"
    for lines in _listening:
        if line not in lines and len(lines) < MOST_LINES:
            lines.append(line)
    LOGGER.debug(line, exc_info=error)
    return line


def guarded(
    plugin: str, part: str, work: Callable[[], T], seconds: float | None = None, everywhere: bool = True
) -> T:
    """The result of ``work``, the ``part`` of ``plugin``, in at most ``seconds`` (default: the user's limit).

    Its output goes to stderr, since stdout is for the command's results. :class:`DojoError` and
    KeyboardInterrupt pass through; any other exception, SystemExit included, becomes a :class:`PluginFault`,
    and so does taking too long. ``everywhere``: enforce the limit in threads other than the main one, too,
    where it costs more than most vetoes and moves.
    """
    limited = everywhere or threading.current_thread() is threading.main_thread()
    limit = limit_s() if seconds is None else seconds
    try:
        with within(limit) if limited else nullcontext(), _quiet():
            return work()
    except (DojoError, KeyboardInterrupt, Bell):
        raise
    except BaseException as error:
        raise PluginFault(plugin, note(plugin, said(part, error), error)) from error


def said(part: str, error: BaseException) -> str:
    """A description of an error that a plugin's ``part`` raised."""
    if isinstance(error, TookTooLong):
        return f"its {part} {error}"
    return f"its {part} raised {cause_of(error)}"


@contextmanager
def _quiet() -> Iterator[None]:
    """Redirect stdout to stderr, but only in the main thread, since this affects the whole process."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    with redirect_stdout(sys.stderr):
        yield


# -- time ------------------------------------------------------------------------------------------


class TookTooLong(Exception):
    """A call was ended because its time was over."""


class Bell(BaseException):
    """Raised in the plugin's code when its time is over; no ``except Exception`` catches it. It does not
    leave :func:`within`."""


_limited = threading.local()


def limit_s() -> float:
    """Seconds that one call of a plugin may take."""
    given = os.environ.get(VARIABLE, "").strip()
    if not given:
        return LIMIT_S
    try:
        seconds = float(given)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < 1e9:
        raise DojoError(
            "PD-G031",
            f"{VARIABLE} is {given[:40]!r}, expected seconds",
            why="it limits one call of a plugin's code: a number above 0 and below 1e9",
            hint=f"unset it, for {LIMIT_S:.0f} s; or set a number such as 60",
        )
    return seconds


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """End the code in the block after ``seconds`` with :class:`TookTooLong`. A nested block has no effect.

    In the main thread a signal does it, which also ends a sleep or a wait; in others the code ends at its
    next Python instruction. A call into foreign code that does not return is not ended.
    """
    if getattr(_limited, "on", False):
        yield
        return
    _limited.on = True
    main = threading.current_thread() is threading.main_thread()
    try:
        with _rung_by_signal(seconds) if main else _rung_by_thread(seconds):
            yield
    except Bell as bell:
        raise TookTooLong(f"took longer than {seconds:.6g} s") from bell
    finally:
        _limited.on = False


@contextmanager
def _rung_by_signal(seconds: float) -> Iterator[None]:
    over: list[bool] = []

    def ring(*_: object) -> None:
        if not over:
            raise Bell

    begin = time.monotonic()
    before = signal.signal(signal.SIGALRM, ring)
    left, every = signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)  # repeated, in case it is swallowed
    try:
        try:
            yield
        finally:
            over.append(True)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before if before is not None else signal.SIG_DFL)
        if left:  # restore the alarm of other code
            signal.setitimer(signal.ITIMER_REAL, max(left - (time.monotonic() - begin), 1e-3), every)


@contextmanager
def _rung_by_thread(seconds: float) -> Iterator[None]:
    lock, over = threading.Lock(), threading.Event()
    thread = ctypes.c_ulong(threading.get_ident())
    send = ctypes.pythonapi.PyThreadState_SetAsyncExc

    def watch() -> None:
        wait = seconds
        while not over.wait(wait):
            with lock:
                if not over.is_set():
                    send(thread, ctypes.py_object(Bell))
            wait = 1.0

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        with lock:
            over.set()
        send(thread, None)  # cancel an exception that was not delivered yet
        watcher.join()

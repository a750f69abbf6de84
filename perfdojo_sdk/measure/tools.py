"""Compilers and other programs of the user's: bounded in time and in words, ended with what they started.

A program has ended when its process has. Who holds its output open longer, as the servers of compiler caches
do, is neither waited for nor disturbed.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from perfdojo_sdk.measure import process_tree

#: Bytes that are kept of what a program says, from the beginning: the first error is the one that counts.
MOST_OUTPUT = 1 << 20
_CHUNK = 1 << 16
_POLL_MS = 20


@dataclass(frozen=True)
class Ended:
    """The end of a program."""

    status: int
    """Negative for a signal."""
    said: str
    """Its output and its errors, as they came; the beginning, when that is too long."""


def run_tool(
    command: Sequence[str], folder: str | Path | None, timeout_s: float, errors: int = subprocess.STDOUT
) -> Ended | None:
    """Run a program in a folder; None when it took longer and was killed, with its descendants.

    ``errors``: where they go, by default among the rest. OSError when it does not start.
    """
    # What it keeps for a moment goes with its folder, also when it is killed and cannot clean up.
    place = {} if folder is None else {"TMPDIR": os.path.abspath(folder)}
    # Messages in English whatever the user's language; a session of its own, so that it can be ended as one.
    process = subprocess.Popen(
        command,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=errors,
        env={**os.environ, "LC_ALL": "C", **place},
        start_new_session=True,
    )
    assert process.stdout
    with process.stdout as output:
        os.set_blocking(output.fileno(), False)
        try:
            said = _listen(process, output.fileno(), time.monotonic() + timeout_s)
        except BaseException:
            _end(process)
            raise
    if said is None:
        _end(process)
        return None
    return Ended(process.returncode, said.decode("utf-8", "replace"))


def _listen(process: subprocess.Popen[bytes], output: int, deadline: float) -> bytes | None:
    """The output of the process until it ends; None when it does not end in time."""
    said, waiting, poll_ms = bytearray(), select.poll(), _POLL_MS
    waiting.register(output, select.POLLIN)
    while time.monotonic() < deadline:
        if waiting.poll(poll_ms) and not _take(output, said):
            # Nobody is left to say anything, so the end is near.
            waiting.unregister(output)
            poll_ms = 1
        if process.poll() is not None:
            # What it said last is still in the pipe, which others may go on to fill.
            while len(said) < MOST_OUTPUT and _take(output, said):
                pass
            return bytes(said)
    return None


def _take(output: int, said: bytearray) -> bool:
    """Read once, keep what there is room for; False when there is nothing, or will be nothing any more."""
    try:
        chunk = os.read(output, _CHUNK)
    except BlockingIOError:
        return False
    said += chunk[: MOST_OUTPUT - len(said)]
    return bool(chunk)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the process, its group and its descendants."""
    with suppress(ProcessLookupError):
        os.kill(process.pid, signal.SIGSTOP)  # it starts nothing more, and its children stay its own
    process_tree.end(lambda: process_tree.children(process.pid))
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    process.wait()


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # one of those that have none
        return f"signal {number}"


def write_sources(folder: str | Path, sources: Mapping[str, str]) -> str:
    """Put texts into a folder; what is wrong with their names, or "" when all are there.

    Names are plain: they stay in the folder, and no compiler takes them for an option.
    """
    for name, text in sources.items():
        if name in ("", ".", "..") or not set(name).isdisjoint("/\\\0\n") or name[0] in "-@":
            return f"{name!r} is no name for a file of sources: a plain name that begins with no - or @ is"
        try:
            Path(folder, name).write_text(text, encoding="utf-8")
        except (OSError, ValueError) as error:
            return f"the source {name!r} cannot be written: {error}"
    return ""

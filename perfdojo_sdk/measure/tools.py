"""Runs of compilers and other programs, with limits of time and output; they end with all that they started.

A program has ended when its process has. Processes that hold its output open for longer, such as servers of
compiler caches, are neither waited for nor disturbed.
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

#: Most bytes that are kept of a program's output, from its start, since the first error matters.
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
    command: Sequence[str],
    folder: str | Path | None,
    timeout_s: float,
    errors: int = subprocess.STDOUT,
    files: Sequence[int] = (),
) -> Ended | None:
    """Run a program in a folder; None when it took longer and was killed, with its descendants.

    ``errors``: where they go, by default among the rest. ``files``: those that it inherits. OSError when it
    does not start.
    """
    # Its temporary files are in its folder, so that they are removed even if it is killed.
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
        pass_fds=files,
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
            # The output is closed, so the process will end soon.
            waiting.unregister(output)
            poll_ms = 1
        if process.poll() is not None:
            # Read the rest of its output; other processes may go on writing to the pipe.
            while len(said) < MOST_OUTPUT and _take(output, said):
                pass
            return bytes(said)
    return None


def _take(output: int, said: bytearray) -> bool:
    """Read once and keep as much as there is room for; False when there is no output, or the pipe is
    closed."""
    try:
        chunk = os.read(output, _CHUNK)
    except BlockingIOError:
        return False
    said += chunk[: MOST_OUTPUT - len(said)]
    return bool(chunk)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the process, its group and its descendants."""
    with suppress(ProcessLookupError):
        os.kill(process.pid, signal.SIGSTOP)  # so that it starts no more processes, and keeps its children
    process_tree.end(lambda: process_tree.children(process.pid))
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    process.wait()


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a signal without a name
        return f"signal {number}"


def write_sources(folder: str | Path, sources: Mapping[str, str]) -> str:
    """Put texts into a folder; returns the fault of a name, or "" when all files are written.

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

"""A fork of the child process in which a kernel may crash or hang, and which reports its progress."""

from __future__ import annotations

import ctypes
import gc
import json
import os
import select
import signal
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from perfdojo_sdk.measure import process_tree
from perfdojo_sdk.measure.kernel_calls import Refused

#: Sends a progress message from the fork.
Tell: TypeAlias = Callable[..., None]

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass
class Ended:
    """The end of a fork of this process, and its messages."""

    begun: str = ""
    threads: int = 1
    done: list[str] = field(default_factory=list)
    refused: tuple[str, str] | None = None
    signal: int = 0
    late: bool = False
    finished: bool = False
    """True if it ended regularly."""

    @property
    def out_of_bounds(self) -> bool:
        return self.signal in (signal.SIGSEGV, signal.SIGBUS)

    def raise_what_it_met(self) -> None:
        if self.refused:
            raise Refused(*self.refused)
        if self.late:
            raise Refused("timeout", "no result")
        if self.signal:
            raise Refused("crash", f"killed by {signal.Signals(self.signal).name}")


def in_fork(action: Callable[[Tell], None], limit_s: float) -> Ended:
    """Run ``action`` in a fork of this process, for at most ``limit_s`` seconds; it may report progress."""
    read_end, write_end = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python warns of forks beside threads, which are the point here
        child = os.fork()
    if not child:
        os.close(read_end)
        _do(action, write_end)
    os.close(write_end)
    ended = Ended()
    try:
        _listen(read_end, time.monotonic() + limit_s, ended)
    finally:
        os.close(read_end)
        if ended.late:
            os.kill(child, signal.SIGKILL)
        code = process_tree.ended(child) or 0
    if code < 0 and not ended.late:
        ended.signal = -code
    elif not (ended.finished or ended.late or ended.refused):
        ended.refused = ("runtime", "the kernel ended the process in the middle of a call")
    return ended


def _do(action: Callable[[Tell], None], pipe: int) -> None:
    """Run the action in the fork; does not return."""

    def tell(*words: str) -> None:
        os.write(pipe, (json.dumps(words) + "\n").encode())

    _libc.prctl(1, signal.SIGKILL)  # end when the parent ends
    gc.freeze()  # objects of the parent may wait for threads that are not here
    status = 1
    try:
        action(tell)
        tell("end")
        status = 0
    except Refused as refused:
        tell("refused", refused.reason, refused.detail)
    except MemoryError:
        tell("refused", "memory", "the arrays do not fit into the memory allowed")
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def _listen(pipe: int, deadline: float, ended: Ended) -> None:
    """Read the fork's messages until it has ended."""
    received = b""
    waiting = select.poll()  # unlike select.select, it takes descriptors above 1023
    waiting.register(pipe, select.POLLIN)
    while True:
        ready = waiting.poll(max(0.0, deadline - time.monotonic()) * 1000)
        if not ready:
            ended.late = True
            return
        part = os.read(pipe, 1 << 16)
        if not part:
            break
        received += part
        *lines, received = received.split(b"\n")
        for kind, *words in map(json.loads, lines):
            if kind == "begun":
                ended.begun, ended.threads = words[0], 1
            elif kind == "threads":
                ended.threads = int(words[0])
            elif kind == "done":
                ended.done.append(words[0])
            elif kind == "refused":
                ended.refused = (words[0], words[1])
            elif kind == "end":
                ended.finished = True

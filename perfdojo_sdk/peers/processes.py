"""The parent's side of a contender: starts its process with the right environment and sends it requests."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from perfdojo_sdk.peers.systems import Peer

#: Settings of the allocator: freed memory stays with the process, and large blocks are in huge pages. With
#: glibc's defaults, a system that returns new memory would wait for zeroed pages at every call, for several
#: times the operator's time. The last setting keeps the remainders of an aligned block out of the thread's
#: cache, where they would not be merged with the block when it is freed, so that glibc would take new memory
#: for the next one.
ALLOCATOR = (
    "glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=17179869184:glibc.malloc.top_pad=67108864:"
    "glibc.malloc.arena_max=1:glibc.malloc.hugetlb=1:glibc.malloc.tcache_max=32"
)
START_SECONDS = 180.0


class Lost(Exception):
    """The process died or did not answer in time."""


def environment(threads: int) -> dict[str, str]:
    """Environment variables that frameworks read when they start; other settings are in the peers'
    modules."""
    counts = ("OMP", "MKL", "OPENBLAS", "NUMBA", "TBB")
    return {
        **os.environ,
        **{f"{name}_NUM_THREADS": str(threads) for name in counts},
        "OMP_PROC_BIND": "true" if threads > 1 else "false",
        "XLA_FLAGS": f"--xla_cpu_multi_thread_eigen={'true' if threads > 1 else 'false'}",
        "NPROC": str(threads),
        "JAX_PLATFORMS": "cpu",
        "OPENVINO_TELEMETRY_OPT_OUT": "1",
        "GLIBC_TUNABLES": ALLOCATOR,
    }


def processors(threads: int) -> list[int]:
    """The processors for a race on ``threads`` threads: the last ones, which interrupts visit least."""
    return sorted(os.sched_getaffinity(0))[-threads:]


class Process:
    """A contender's process; started again after it was lost."""

    def __init__(self, name: str, peer: Peer, threads: int, library: str, timeout_s: float) -> None:
        self.name, self.peer, self.version = name, peer, ""
        self._threads, self._library, self._timeout_s = threads, library, timeout_s
        self._process: subprocess.Popen[bytes] | None = None

    def launch(self) -> None:
        """Begin the start, for which :meth:`start` waits. Imports take seconds, so launch all processes
        first."""
        if self._process is not None:
            return
        self._ready = False
        self._connection, theirs = multiprocessing.Pipe()
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 (read after the process is gone)
        cpus = ",".join(map(str, processors(self._threads)))
        command = [sys.executable, "-m", f"{__package__}.worker", str(theirs.fileno()), self.peer.module]
        self._process = subprocess.Popen(
            [*command, cpus, self._library],
            env=environment(self._threads), pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL, stdout=self._said, stderr=self._said,
        )  # fmt: skip
        theirs.close()

    def start(self) -> str:
        """Start unless it runs; the reason when it cannot, else nothing."""
        self.launch()
        if self._ready:
            return ""
        try:
            first = self._receive(START_SECONDS)
        except Lost as lost:
            return str(lost)
        if "failure" in first:
            self.stop()
            return str(first["failure"])
        self._ready, self.version = True, first["version"]
        return ""

    def ask(self, *message: Any) -> dict[str, Any]:
        """The answer to ``message``; a failure when the process is lost over it."""
        problem = self.start()
        if problem:
            return {"failure": problem}
        try:
            self._connection.send(message)
            return self._receive(self._timeout_s)
        except Lost as lost:
            return {"failure": str(lost)}
        except OSError as problem_:
            return {"failure": self._lost(str(problem_))}

    def _receive(self, seconds: float) -> dict[str, Any]:
        try:
            if self._connection.poll(seconds):
                answer: dict[str, Any] = self._connection.recv()
                return answer
        except (EOFError, OSError):
            raise Lost(self._lost("it died")) from None
        raise Lost(self._lost(f"no answer in {seconds:g} s"))

    def _lost(self, why: str) -> str:
        """End the process; its last words with the reason."""
        status = self.stop()
        self._said.seek(0)
        words = self._said.read()[-400:].decode(errors="replace").strip()
        return f"{why} (status {status}){f': {words}' if words else ''}"

    def stop(self) -> int:
        """End it; its exit status, negative for a signal."""
        process, self._process = self._process, None
        if process is None:
            return 0
        self._connection.close()  # the worker ends when the connection is closed
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
        return process.wait()


@contextmanager
def contenders(
    starting: Mapping[str, tuple[Peer, str]], threads: int, timeout_s: float
) -> Iterator[tuple[list[Process], dict[str, str]]]:
    """Started processes, and the reasons of those that did not start. They end with the block.

    ``starting``: name -> the system, and the folder of a library for the system that takes one.
    """
    processes = [
        Process(name, peer, threads, library, timeout_s) for name, (peer, library) in starting.items()
    ]
    try:
        for process in processes:
            process.launch()
        problems = {process.name: process.start() for process in processes}
        reasons = {n: f"{starting[n][0].title} does not start: {why}" for n, why in problems.items() if why}
        yield [process for process in processes if process.name not in reasons], reasons
    finally:
        for process in processes:
            process.stop()


def missing(peers: dict[str, Peer], chosen: Sequence[str]) -> dict[str, str]:
    """The reason for each of ``peers`` that is not chosen or not usable."""
    reasons = {}
    for name, peer in peers.items():
        reason = peer.missing() if name in chosen else f"{peer.title} was not asked for"
        if reason:
            reasons[name] = reason
    return reasons

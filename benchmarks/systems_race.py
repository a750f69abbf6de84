"""The race of several systems, each in a process of its own, on rows that take turns; and its command."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Call = Callable[[], Any]
Prepare = Callable[[str, str, int], tuple[Call, dict[str, Any]]]
"""Makes a call of a row, given by its name, and says which way it goes."""

ROUNDS, TURN_S = 5, 0.15


def numbers(found: Any) -> Array:
    """The result of a call as an array."""
    if hasattr(found, "get_outputs"):
        found = found.get_outputs()[0].numpy()
    elif hasattr(found, "get_output_tensor"):
        found = found.get_output_tensor(0).data
    elif hasattr(found, "float"):
        found = found.double().contiguous().numpy()
    return np.asarray(found)


def worker(system: str, threads: int, processors: Sequence[int], prepare: Prepare) -> None:
    """Answer lines of JSON: prepare a row, or time it for a while."""
    os.sched_setaffinity(0, processors)
    answers, call = os.fdopen(os.dup(1), "w"), None
    os.dup2(2, 1)
    for line in sys.stdin:
        message = json.loads(line)
        try:
            if "prepare" in message:
                call, answer = prepare(system, message["prepare"], threads)
            else:
                assert call is not None
                answer = {"seconds": timed(call, TURN_S)}
        except Exception as problem:
            text = f"{type(problem).__name__}: {problem}".strip()
            answer = {"lost": text.splitlines()[0][:200]}
        print(json.dumps(answer), file=answers, flush=True)


def timed(call: Call, budget: float) -> list[float]:
    """Seconds of calls; short ones several at a time."""
    start = time.perf_counter()
    call()
    once = time.perf_counter() - start
    several = max(1, int(3e-4 / max(once, 1e-9)))
    found: list[float] = []
    end = time.perf_counter() + budget
    while time.perf_counter() < end or not found:
        start = time.perf_counter()
        for _ in range(several):
            call()
        found.append((time.perf_counter() - start) / several)
    return found


class Process:
    """A system's process."""

    def __init__(self, system: str, threads: int, script: str) -> None:
        self.system = system
        counts = {f"{name}_NUM_THREADS": str(threads) for name in ("OMP", "MKL", "OPENBLAS", "TBB")}
        processors = sorted(os.sched_getaffinity(0))[-threads:]
        command = [sys.executable, script, "--worker", system, "--threads", str(threads)]
        self.process = subprocess.Popen(
            [*command, "--processors", ",".join(map(str, processors))],
            env={**os.environ, **counts, "OPENVINO_TELEMETRY_OPT_OUT": "1"},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip

    def ask(self, **message: Any) -> dict[str, Any]:
        assert self.process.stdin and self.process.stdout
        try:
            print(json.dumps(message), file=self.process.stdin, flush=True)
            return dict(json.loads(self.process.stdout.readline() or '{"lost": "its process ended"}'))
        except OSError:
            return {"lost": "its process ended"}

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


def race(row: str, processes: Sequence[Process]) -> dict[str, Any]:
    """Every system's median, or why it takes no part."""
    found: dict[str, Any] = {p.system: p.ask(prepare=row) for p in processes}
    racing = [p for p in processes if "lost" not in found[p.system]]
    seconds: dict[str, list[float]] = {p.system: [] for p in racing}
    for number in range(ROUNDS):
        for p in racing[number % len(racing) :] + racing[: number % len(racing)] if racing else []:
            seconds[p.system] += p.ask(time=row).get("seconds", [])
    for system, samples in seconds.items():
        if samples:
            found[system] |= {"ms": 1e3 * statistics.median(samples), "samples": len(samples)}
    return found


def installed(systems: Mapping[str, str]) -> dict[str, str]:
    """System -> its version, of those whose packages are there."""
    found = {}
    for system, package in systems.items():
        try:
            found[system] = version(package)
        except PackageNotFoundError:
            continue
    return found


def command(
    script: str,
    description: str | None,
    rows: Sequence[str],
    systems: Mapping[str, str],
    prepare: Prepare,
    summary: Callable[[Mapping[str, Any]], Iterable[str]],
    further: Callable[[Mapping[str, Any]], dict[str, Any]] = lambda state: {},
) -> int:
    """The command of a benchmark; its exit status. ``script``: its file, which starts the systems, too.
    ``further``: entries of the state besides rows and versions."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", default="", help="words that the names of rows begin with")
    parser.add_argument("--threads", default="")
    parser.add_argument("--state", type=Path, default=Path("build", f"{Path(script).stem}.json"))
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--processors", default="", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        worker(given.worker, int(given.threads), [int(p) for p in given.processors.split(",")], prepare)
        return 0
    every = len(os.sched_getaffinity(0))
    threads = [int(t) for t in given.threads.split(",")] if given.threads else sorted({1, every})
    state = json.loads(given.state.read_text()) if given.state.exists() else {"rows": {}}
    state |= {"versions": installed(systems), **further(state)}
    words = tuple(filter(None, given.rows.split(",")))
    chosen = [row for row in rows if not words or row.startswith(words)]
    for count in threads:
        todo = [row for row in chosen if f"{row} on {count}" not in state["rows"]]
        processes = [Process(system, count, script) for system in state["versions"]] if todo else []
        try:
            for row in todo:
                state["rows"][f"{row} on {count}"] = race(row, processes)
                given.state.parent.mkdir(parents=True, exist_ok=True)
                given.state.write_text(json.dumps(state, indent=1) + "\n")
                print(f"{row} on {count}", file=sys.stderr, flush=True)
        finally:
            for process in processes:
                process.end()
    print(json.dumps(state, indent=1) if given.json else "\n".join(summary(state)))
    return 0

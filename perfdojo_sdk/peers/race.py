"""The race: contenders take turns on the same processors, so that a busy machine slows all of them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perfdojo_sdk.peers.operators import Operator, input_sets
from perfdojo_sdk.peers.processes import Process

SETTLE_SECONDS = 0.02
"""A pause between turns, in which spinning threads of the last contender go to sleep."""
TEMPORARIES = 2
"""Factor on the memory of a contender's data, for its intermediate results."""


@dataclass
class Entry:
    """One contender on one operator."""

    turns: list[list[float]] = field(default_factory=list)
    """Seconds of each timed call, round by round."""
    faults: list[float] = field(default_factory=list)
    """Page faults of a call, in the mean of each turn."""
    variant: str = ""
    tried: dict[str, Any] = field(default_factory=dict)
    """Variant -> the seconds of its trial, or the reason why it was excluded."""
    error: float = 0.0
    """The largest seen, relative to the largest magnitude of the right answer."""
    failure: str = ""
    """The reason why there is no time; "missing" for a library without this kernel."""

    @property
    def median(self) -> float | None:
        """Median seconds of a call, over all rounds; None without any, or after a failure."""
        seconds = [second for turn in self.turns for second in turn]
        return statistics.median(seconds) if seconds and not self.failure else None


class Runner:
    """A contender in the race for one operator; out of it after its first failure."""

    def __init__(self, process: Process, operator: Operator, sets: int) -> None:
        self.entry = Entry()
        self._process, self._prepare = process, ("prepare", operator, sets)

    def prepare(self) -> None:
        answer = self._ask(*self._prepare)
        if not self.entry.failure:
            self.entry.variant = answer["variant"]
            self.entry.tried = answer["tried"] or self.entry.tried
            self.entry.error = max(self.entry.error, answer["error"])

    def turn(self) -> None:
        time.sleep(SETTLE_SECONDS)
        answer = self._ask("time")
        if not self.entry.failure:
            self.entry.turns.append(answer["seconds"])
            self.entry.faults.append(answer["faults"])
            self.entry.error = max(self.entry.error, answer["error"])

    def release(self) -> None:
        self._ask("release")

    def _ask(self, *message: Any) -> dict[str, Any]:
        if self.entry.failure:
            return {}
        answer = self._process.ask(*message)
        self.entry.failure = answer.get("failure", "")
        return answer


def race(processes: Sequence[Process], operator: Operator, rounds: int, cache_bytes: int) -> dict[str, Entry]:
    """Each contender's times on ``operator``, or the reason why it has none.

    If memory is too small for the data of all contenders, each makes them anew for its turn.
    """
    sets = input_sets(operator, cache_bytes)
    needed = len(processes) * sets * operator.bytes * TEMPORARIES
    one_at_a_time = needed > available_bytes() // 2
    runners = [Runner(process, operator, sets) for process in processes]
    if not one_at_a_time:
        for runner in runners:
            runner.prepare()
    for number in range(rounds):
        first = number % len(runners)
        for runner in runners[first:] + runners[:first]:
            if one_at_a_time:
                runner.prepare()
            runner.turn()
            if one_at_a_time:
                runner.release()
    for runner in runners:
        runner.release()
    return {process.name: runner.entry for process, runner in zip(processes, runners)}


def available_bytes() -> int:
    """Bytes of memory that are available without swapping."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) << 10
    return 1 << 62

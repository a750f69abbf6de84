"""A contender's process: pinned, it prepares an operator, checks it, and times calls in its turns.

It receives messages on a connection, (verb, arguments...), and answers each with a dictionary, which may be a
failure. Results are compared with float64 before the race and after every turn.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import importlib
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import cycle
from multiprocessing.connection import Connection
from resource import RUSAGE_SELF, getrusage
from typing import Any

import numpy as np

from perfdojo_sdk.peers.operators import TOLERANCE, Array, Operator, empty, error
from perfdojo_sdk.peers.systems import Bind, Call, Contender

TURN_SECONDS = 0.15
SHORTEST_SAMPLE_SECONDS = 3e-4
"""Shorter calls are timed several at a time."""
MOST_SAMPLES, FEWEST_SAMPLES = 40, 3
TRIAL_SECONDS = 0.4


class Preparation(Exception):
    """Raised with the reason when no variant of the contender computes the operator correctly."""


class Worker:
    """The state of a contender's process between messages."""

    def __init__(self, contender: Contender) -> None:
        self._contender, self.version = contender, contender.version
        self._operator: Operator | None = None
        self._variants: Mapping[str, Bind] = {}
        self._choice = ""
        self._expected: list[Array] = []
        self._calls: list[Call] = []
        self._inputs: list[list[Array]] = []  # kept alive here, since not every system does so
        self._outputs: dict[int, Array] = {}
        self._turns: Iterator[int] = iter(())
        self._seconds = 0.0

    def answer(self, verb: str, *arguments: Any) -> dict[str, Any]:
        verbs: Mapping[str, Callable[..., dict[str, Any]]]
        verbs = {"prepare": self.prepare, "time": self.time, "release": self.release}
        try:
            return verbs[verb](*arguments)
        except Exception as problem:
            text = str(problem).strip() or type(problem).__name__
            own = isinstance(problem, Preparation)
            return {"failure": text[:2000] if own else f"{type(problem).__name__}: {text[:2000]}"}

    def prepare(self, operator: Operator, sets: int) -> dict[str, Any]:
        """Bind the fastest right variant to ``sets`` sets of inputs."""
        self.release()
        inputs = self._inputs = [operator.draw(number) for number in range(sets)]
        if operator != self._operator:
            self._variants = self._contender.variants(operator)
            self._expected = [operator.expected(given) for given in inputs]
            self._operator, self._choice = operator, ""
        if not self._variants:
            raise Preparation("missing")
        tried = self._try_all(operator, inputs) if not self._choice else {}
        worst = self._bind(operator, self._choice, inputs)
        self._turns = cycle(range(sets))
        return {"variant": self._choice, "tried": tried, "error": worst}

    def _try_all(self, operator: Operator, inputs: list[list[Array]]) -> dict[str, Any]:
        """Each variant's time, or the reason why it is excluded; the fastest is chosen."""
        tried: dict[str, Any] = {}
        for variant in self._variants:
            try:
                self._bind(operator, variant, inputs)
                tried[variant] = self._trial()
            except Exception as problem:
                tried[variant] = str(problem)[:500] or type(problem).__name__
            self._calls = []
        times = {name: found for name, found in tried.items() if isinstance(found, float)}
        if not times:
            raise Preparation("; ".join(f"{name}: {why}" for name, why in tried.items()))
        self._choice = min(times, key=times.__getitem__)
        self._seconds = times[self._choice]
        return tried

    def _bind(self, operator: Operator, variant: str, inputs: list[list[Array]]) -> float:
        """Calls for every set, each made once and found right; returns the largest error."""
        worst = 0.0
        for number, (given, expected) in enumerate(zip(inputs, self._expected)):
            call = self._variants[variant](given, partial(self._output, operator, number))
            worst = max(worst, _checked(operator, call(), expected))
            self._calls.append(call)
        return worst

    def _output(self, operator: Operator, number: int) -> Array:
        """Memory for the result of a set, in which unwritten elements can be detected."""
        if number not in self._outputs:
            self._outputs[number] = empty(operator.output)
        self._outputs[number].fill(np.nan)
        return self._outputs[number]

    def _trial(self) -> float:
        """Seconds of the fastest of a few calls."""
        seconds: list[float] = []
        for call in cycle(self._calls):
            seconds.append(_clock(call))
            if len(seconds) > 2 and (sum(seconds) > TRIAL_SECONDS or len(seconds) > 20):
                return min(seconds[1:])
        raise AssertionError("a cycle does not end")

    def time(self) -> dict[str, Any]:
        """Seconds of each of some calls; one call before them is not counted."""
        assert self._operator is not None
        inner, samples = plan(self._seconds)
        self._calls[next(self._turns)]()
        faults = getrusage(RUSAGE_SELF).ru_minflt
        found = [self._sample(inner) for _ in range(samples)]
        faults = getrusage(RUSAGE_SELF).ru_minflt - faults
        last = next(self._turns)
        worst = _checked(self._operator, self._calls[last](), self._expected[last])
        return {"seconds": found, "error": worst, "faults": faults / (inner * samples)}

    def _sample(self, inner: int) -> float:
        order = [self._calls[next(self._turns)] for _ in range(inner)]
        begin = time.perf_counter()
        for call in order:
            call()
        return (time.perf_counter() - begin) / inner

    def release(self) -> dict[str, Any]:
        """Free the arrays; compiled code stays for the next time."""
        self._calls, self._inputs, self._outputs = [], [], {}
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)  # including memory that the allocator keeps
        return {}


def plan(seconds: float) -> tuple[int, int]:
    """(calls in a sample, samples in a turn) for calls that take about ``seconds``."""
    inner = max(1, math.ceil(SHORTEST_SAMPLE_SECONDS / max(seconds, 1e-7)))
    samples = round(TURN_SECONDS / (inner * seconds)) if seconds > 0 else MOST_SAMPLES
    return inner, min(MOST_SAMPLES, max(FEWEST_SAMPLES, samples))


def _clock(call: Call) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def _checked(operator: Operator, result: Any, expected: Array) -> float:
    worst = error(operator, result, expected)
    if not worst < TOLERANCE:
        raise Preparation(f"wrong: off by {worst:.2g} of the largest value")
    return worst


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("connection", type=int)
    parser.add_argument("module")
    parser.add_argument("cpus")
    parser.add_argument("library")
    arguments = parser.parse_args()
    cpus = {int(number) for number in arguments.cpus.split(",")}
    os.sched_setaffinity(0, cpus)  # before a framework counts processors
    with Connection(arguments.connection) as parent:
        try:
            module = importlib.import_module(f"{__package__}.{arguments.module}")
            worker = Worker(module.start(len(cpus), arguments.library))
        except Exception as problem:
            parent.send({"failure": f"{type(problem).__name__}: {problem}"})
            return
        parent.send({"version": worker.version})
        gc.disable()  # a garbage collection during timed calls would disturb them
        while True:
            try:
                message = parent.recv()
            except EOFError:
                return
            parent.send(worker.answer(*message))


if __name__ == "__main__":
    main()

"""The child process: calls compiled kernels and checks everything that they do.

Run for :mod:`perfdojo_sdk.measure.sandbox`, as the script of a fork server or in a fork, on a private folder
that holds ``job.json`` and the shared objects; leaves ``result.json`` there. Inputs and outputs stand in
memory that the parent shares, behind open files. Beside a few small modules only ctypes and numpy are
imported, so that a fork server starts in a tenth of a second.

``kernel_calls.py`` has the checks of each call; this module has the order of calls, and the timing.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from perfdojo_sdk.measure import kernel_calls
from perfdojo_sdk.measure.executions import put_through
from perfdojo_sdk.measure.kernel_calls import (
    Kernel,
    Memory,
    Refused,
    bytes_of,
    check_status,
    clock,
    compare,
    outputs_of,
    poison_of,
    read,
    write,
)
from perfdojo_sdk.measure.process_state import Floats

SAMPLES = 1024
MOST_SETS = 4096
MOST_CALLS = 10_000
FEWEST_TIMES = 10
#: Largest file that the child may write; results go into memory.
MOST_FILE_BYTES = 64 << 20


def spread_of_median(times: list[float]) -> float:
    """Half of the 95 % interval of the median, over the median; infinite for fewer than ten times.

    The interval lies between two of the times in order, whatever their distribution: the number of
    times below the true median is binomial. (Conover, Practical Nonparametric Statistics, 3.2.)
    """
    count = len(times)
    if count < FEWEST_TIMES:
        return float("inf")
    ordered, margin = sorted(times), 0.98 * count**0.5
    low, high = int(count / 2 - margin), int(np.ceil(count / 2 + margin))
    return (ordered[min(high, count - 1)] - ordered[max(low, 0)]) / (ordered[count // 2] * 2)


class Contender:
    """A kernel in the race: its results, its times, and the failure if it no longer counts."""

    def __init__(self, number: int, job: dict[str, Any], kind: type[Kernel] = Kernel) -> None:
        self.number, self.job, self.kind = number, job, kind
        self.kernel: Kernel | None = None
        self.failure: tuple[str, str] | None = None
        self.first: list[np.ndarray[Any, Any]] = []
        self.references: list[list[np.ndarray[Any, Any]]] = []
        self.estimate = float("inf")
        self.calls = 1
        self.seconds: list[float] = []
        self.spent = 0.0
        """Seconds of the timed calls."""
        self.busy = 0.0
        """Seconds of all calls between the clock's marks."""
        self.stopped = False
        self.timed_enough = False
        """True if one call took all the time for timing."""
        self.executions: Sequence[str] = ()
        """The executions that were run on it."""

    @property
    def alive(self) -> bool:
        return self.failure is None and not self.stopped and not self.timed_enough

    @property
    def settled(self) -> bool:
        """True if the median is known to the requested precision."""
        wanted = self.job["precision"]
        return bool(wanted) and spread_of_median(self.seconds) <= wanted

    def load(self, library: str) -> Kernel:
        return self.kind(
            library, self.job["symbols"][self.number], self.job["threads"], self.job["memory_bytes"]
        )

    def library(self, kind: str = "so") -> str:
        """The kernel's file as a full path, since a kernel may have changed the current folder."""
        return os.path.join(self.job["folder"], f"k{self.number}.{kind}")

    def first_call(self, memory: Memory) -> None:
        """Load and call twice; the two results must agree although the poison does not."""
        self.kernel = self.load(self.library())
        if self.job["repeats"] and self.job["again"][self.number] and not is_cold(self.job):
            self.kernel.load_again(self.job["again"][self.number])
        seconds = self.kernel.call(memory, 0)
        self.first = outputs_of(memory)
        if self.kernel.again:
            seconds = self.kernel.call_again(memory, 1)
            compare(memory, self.first, "change if the kernel does not pack again")
        if self.too_slow(seconds):
            self.seconds = [seconds]
            self.stopped = True
            return
        whole = self.kernel.call(memory, 1)
        compare(memory, self.first, "change from call to call")
        self.estimate = seconds if self.kernel.again else whole
        if self.job["executions"]:
            self.executions = put_through(self.kernel, memory, self.first, self.estimate, self.job)
        if self.job["first_look"] and self.estimate >= self.job["budget_s"] and self.job["repeats"]:
            self.seconds, self.timed_enough = [self.estimate], True

    def call_on_sets(self) -> None:
        """One call on each of many sets of inputs; the results one behind the other."""
        self.kernel, memory = self.load(self.library()), Memory(self.job)
        count = self.job["sets"]
        self.first = [np.empty(count * output.bits.size, output.bits.dtype) for output in memory.outputs]
        for number in range(count):
            for array, (file, at) in zip(memory.inputs, self.job["given"], strict=True):
                read(file, array.bytes, at + number * array.bytes.size)
                array.seal()
            self.kernel.call(memory, number % 2)
            for results, output in zip(self.first, memory.outputs, strict=True):
                results[number * output.bits.size :][: output.bits.size] = output.bits

    def too_slow(self, seconds: float) -> bool:
        limit = self.job["stop_above_s"]
        return limit is not None and seconds > limit

    def prepare(self, sets: list[Memory], positions: list[np.ndarray[Any, Any]]) -> None:
        """Record the result on every set, and check that a freshly loaded library, which saw no other set,
        agrees."""
        assert self.kernel
        if self.job["first_look"]:
            self.references = [[bits[at] for bits, at in zip(self.first, positions, strict=True)]]
        for number, memory in list(enumerate(sets))[len(self.references) :]:
            self.estimate = min(self.estimate, self.kernel.call(memory, 0))
            self.references.append(samples(memory, positions))
            if number == 1 and not self.job["first_look"]:
                second = outputs_of(memory)
        if self.job["first_look"]:
            return
        untouched = self.load(self.library("fresh.so"))
        untouched.call(sets[1], 0)
        compare(sets[1], second, "depend on earlier calls (a cached result?)")

    def finish(self, sets: list[Memory]) -> None:
        """Check at the end that new inputs at old addresses give their own result."""
        assert self.kernel
        if self.job["first_look"]:
            return
        self.kernel.call(sets[1], 0)
        expected = outputs_of(sets[1])
        sets[0].copy_inputs(sets[1])
        self.kernel.call(sets[0], 1)
        compare(sets[0], expected, "depend on the arrays' addresses (a cached result?)")


def samples(memory: Memory, positions: list[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
    return [output.bits[at] for output, at in zip(memory.outputs, positions, strict=True)]


class Race:
    """Timed calls of all contenders in turn, on the same memory."""

    def __init__(self, job: dict[str, Any], contenders: list[Contender], sets: list[Memory]) -> None:
        self.job, self.contenders, self.sets = job, contenders, sets
        self.rng = np.random.default_rng()
        self.positions = [
            np.unique(self.rng.integers(0, o.bits.size, SAMPLES))
            if o.bits.size > SAMPLES
            else np.arange(o.bits.size)
            for o in sets[0].outputs
        ]
        self.rotating = len(sets) if job["cold"] else 1
        self.next_set = 0
        self.table = np.array([m.addresses for m in sets], np.uintp)
        self.repeat = ctypes.CDLL(os.path.join(job["folder"], "harness.so")).pd_repeat
        self.repeat.restype = ctypes.c_int

    def run(self) -> int:
        """Run the race; returns its nanoseconds by this process's clock, and sends the parent a mark at
        either end."""
        for contender in self.contenders:
            self.attempt(contender, lambda c: c.prepare(self.sets, self.positions))
        for memory in self.sets:
            self.poison_samples(memory)
        overhead = self.overhead()
        for contender in self.contenders:
            # The two clock readings and the way into C take less than 1 % of a batch.
            calls = np.ceil(100 * overhead / max(contender.estimate, 1e-9))
            contender.calls = int(min(max(calls, 1), MOST_CALLS))
        self.attempt_all(self.pack)
        os.write(self.job["pipe"], b"B")
        begin = clock()
        self.attempt_all(self.warm_up)
        for _ in range(self.job["repeats"]):
            racing = [c for c in self.contenders if c.alive and c.spent < self.job["budget_s"]]
            if not racing or all(c.settled for c in racing):
                break
            for k in self.rng.permutation(len(racing)):
                self.attempt(racing[k], self.timed)
        elapsed = clock() - begin
        os.write(self.job["pipe"], b"E")
        self.attempt_all(lambda c: c.finish(self.sets))
        return elapsed

    def attempt_all(self, action: Any) -> None:
        for contender in self.contenders:
            self.attempt(contender, action)

    def attempt(self, contender: Contender, action: Any) -> None:
        attempt(contender, action)

    def batch(self, contender: Contender, calls: int) -> tuple[float, int]:
        """Seconds of ``calls`` calls together, and the last set that they used."""
        assert contender.kernel
        first = self.next_set
        before = clock()
        status = self.repeat(
            contender.kernel.again or contender.kernel.entry,
            ctypes.c_void_p(self.table.ctypes.data),
            ctypes.c_long(self.rotating),
            ctypes.c_long(first),
            ctypes.c_long(calls),
            *contender.kernel.tail,
        )
        seconds = (clock() - before) * 1e-9
        check_status(status)
        self.next_set = (first + calls) % self.rotating
        return seconds, (first + calls - 1) % self.rotating

    def overhead(self) -> float:
        alive = next((c for c in self.contenders if c.alive), None)
        return min(self.batch(alive, 0)[0] for _ in range(9)) if alive else 0.0

    def pack(self, contender: Contender) -> None:
        """Call a kernel once for what later calls read in its workspace."""
        assert contender.kernel
        if contender.kernel.again:
            contender.kernel.call(self.sets[0], 0)
            self.poison_samples(self.sets[0])

    def warm_up(self, contender: Contender) -> None:
        seconds, used = self.batch(contender, contender.calls)
        contender.busy += seconds
        self.check_samples(contender, used)
        if seconds < 0.01:
            contender.busy += self.batch(contender, contender.calls)[0]

    def timed(self, contender: Contender) -> None:
        seconds, used = self.batch(contender, contender.calls)
        contender.spent += seconds
        contender.busy += seconds
        contender.seconds.append(seconds / contender.calls)
        self.check_samples(contender, used)
        contender.stopped = contender.too_slow(min(contender.seconds))

    def check_samples(self, contender: Contender, number: int) -> None:
        """Compare random elements of the last result, and poison them, since a later call must write them."""
        memory = self.sets[number]
        for now, then in zip(samples(memory, self.positions), contender.references[number], strict=True):
            if (now != then).any():
                raise Refused("wrong_result", "a timed call gave another result than the first one")
        self.poison_samples(memory)

    def poison_samples(self, memory: Memory) -> None:
        for output, at in zip(memory.outputs, self.positions, strict=True):
            output.bits[at] = poison_of(output.dtype, 0)


def attempt(contender: Contender, action: Any) -> None:
    """Run one step of a contender that still counts; note the first reason why it no longer does.

    The thread's floating-point environment is restored, since the next step may be another contender's.
    """
    if not contender.alive:
        return
    contender.job["running"][0] = contender.number
    floats = Floats()
    try:
        action(contender)
    except Refused as refused:
        contender.failure = (refused.reason, refused.detail)
    except MemoryError:
        contender.failure = ("memory", "the arrays do not fit into the memory allowed")
    finally:
        floats.put_back()


def bytes_of_arrays(job: dict[str, Any]) -> int:
    return sum(bytes_of(shape, dtype) for _, shape, dtype in (*job["inputs"], *job["outputs"]))


def is_cold(job: dict[str, Any]) -> bool:
    """True if calls take sets of arrays in turn, as far as there is memory for so many. What a kernel packed
    for one set is of no use for the next one."""
    if job["cold"] is None:
        return bytes_of_arrays(job) > int(job["last_cache_bytes"])
    return bool(job["cold"])


def number_of_sets(job: dict[str, Any]) -> int:
    """Enough sets that none is in cache when its turn comes; two for the checks at least."""
    size = bytes_of_arrays(job)
    job["cold"] = is_cold(job)
    if not job["cold"]:
        return 2
    wanted = 3 * job["last_cache_bytes"] // max(size, 1) + 2
    possible = job["memory_bytes"] // 2 // max(size, 1)
    sets = int(max(2, min(wanted, possible, MOST_SETS)))
    # If the limits allow too few sets for cold caches, the times do not count as cold.
    job["cold"] = sets >= wanted or sets * size > 2 * job["last_cache_bytes"]
    return sets


def limit(kind: int, value: int) -> None:
    """Set a resource limit; a limit that an earlier job of this process set is only made stricter."""
    _, hard = resource.getrlimit(kind)
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (value, value))


def limit_resources(job: dict[str, Any]) -> None:
    """Limit memory, time and files; no core dumps, no new privileges, and the end of the parent is fatal."""
    prctl = ctypes.CDLL(None).prctl
    prctl(1, ctypes.c_ulong(signal.SIGKILL))
    prctl(38, ctypes.c_ulong(1), ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with open("/proc/self/statm") as statm:
        mapped = int(statm.read().split()[0]) * resource.getpagesize()
    space = mapped + int(job["memory_bytes"]) + (1 << 30)
    limit(resource.RLIMIT_AS, space)
    limit(resource.RLIMIT_FSIZE, MOST_FILE_BYTES)
    limit(resource.RLIMIT_CPU, int(job["timeout_s"] * (job["threads"] + 1)) + 5)
    if job["cpu"] is not None:
        os.sched_setaffinity(0, {job["cpu"]})


def read_job(folder: str) -> dict[str, Any]:
    """Change to the folder, read the job, and set its limits."""
    os.chdir(folder)
    with open("job.json") as file:
        job: dict[str, Any] = json.load(file)
    job["folder"] = os.getcwd()
    job["running"] = np.memmap("running", np.int64, "r+", shape=(1,))
    limit_resources(job)
    return job


def leave_result(result: dict[str, Any], folder: str = ".") -> None:
    """Write the result to another file and rename it, so that it is complete or absent.

    If a kernel has put a link in its place, the link is not followed.
    """
    part = os.path.join(folder, "result.json.part")
    with suppress(FileNotFoundError):
        os.unlink(part)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(part, flags, 0o600), "w") as file:
        json.dump(result, file)
    os.rename(part, os.path.join(folder, "result.json"))


def main(folder: str, kind: type[Kernel] = Kernel) -> None:
    """Do the job in ``folder``; ``kind`` says how a kernel is loaded and entered."""
    job = read_job(folder)
    contenders = [Contender(k, job, kind) for k in range(len(job["symbols"]))]
    elapsed, sets = 0, []
    if job["sets"]:
        attempt(contenders[0], lambda contender: contender.call_on_sets())
    else:
        sets.append(Memory(job))
        sets[0].set_inputs(job, 0)
        for contender in contenders:
            attempt(contender, lambda c: c.first_call(sets[0]))
    if job["repeats"] and any(c.alive for c in contenders):
        for number in range(1, number_of_sets(job)):
            sets.append(Memory(job))
            sets[-1].set_inputs(job, number)
        elapsed = Race(job, contenders, sets).run()
    for contender in contenders:
        if job["results"] and contender.failure is None:
            for k, bits in enumerate(contender.first):
                write(job["results"][contender.number * len(contender.first) + k], bits)
    kernels = [
        {
            "failure": c.failure,
            "seconds": c.seconds,
            "executions": list(c.executions),
            "busy_s": c.busy,
            "details": {"calls": c.calls, "sets": len(sets), "stopped": float(c.stopped)},
        }
        for c in contenders
    ]
    leave_result({"elapsed_ns": elapsed, "cold": bool(job["cold"]), "kernels": kernels}, job["folder"])


def __getattr__(name: str) -> object:
    """Names that were here in contract 0.2 and that plugins of that version import."""
    return getattr(kernel_calls, name)


if __name__ == "__main__":
    main(sys.argv[1])
    # Exit at once, without a kernel's threads and exit handlers.
    os._exit(0)

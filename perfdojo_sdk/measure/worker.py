"""The child process: calls compiled kernels and believes nothing that they do.

Started by :mod:`perfdojo_sdk.measure.sandbox` as a plain script on a private folder that holds
``job.json`` and the shared objects; leaves ``result.json`` there. Inputs and outputs stand in memory
that the parent shares, behind open files. Beside a few small modules only ctypes and numpy are imported, so
that a start costs a tenth of a second.

Every array stands between guard zones. Outputs and workspace are poisoned before a call, with
different bits in the second call, so that a cell which no statement wrote differs between two
calls that must agree. Inputs are compared with their checksum afterwards.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import resource
import signal
import sys
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Protocol

import numpy as np

from perfdojo_sdk.core.interface import OTHER_PROCESSOR, TOO_MANY_THREADS, WORKSPACE_TOO_SMALL
from perfdojo_sdk.measure.process_state import Used, blocked_signals, float_state

# Bound before any kernel is loaded, so that nothing a kernel brings can take its place. The
# parent compares it with its own clock all the same.
_clock = time.perf_counter_ns

GUARD_BYTES = 4096
ALIGNMENT = 64
SAMPLES = 1024
MOST_SETS = 4096
MOST_CALLS = 10_000
FEWEST_TIMES = 10
#: Of each file that the child writes; results go into memory.
MOST_FILE_BYTES = 64 << 20
_GUARD = 0xA5

#: dtype of a program -> the numpy type that carries it.
CARRIER = {
    "f64": "f8", "f32": "f4", "f16": "f2", "bf16": "u2", "tf32": "u4", "i64": "i8", "i32": "i4", "i16": "i2",
    "i8": "i1", "u32": "u4", "u16": "u2", "u8": "u1", "bool": "u1",
}  # fmt: skip

#: Two signalling NaNs per float type: arithmetic never makes one, so no result looks like them.
_POISON = {
    "f64": (0x7FF5A5A5A5A5A5A5, 0x7FF25A5A5A5A5A5A),
    "f32": (0x7FA5A5A5, 0x7F9A5A5A),
    "f16": (0x7DA5, 0x7D5A),
    "bf16": (0x7FA5, 0x7F9A),
    "tf32": (0x7FA5A000, 0x7F9A4000),
}


class Refused(Exception):
    """The kernel's result must not count: a reason of the closed set, and the detail."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason, self.detail = reason, detail


def poison_of(dtype: str, variant: int) -> int:
    """The bits of one poisoned element."""
    width = np.dtype(CARRIER[dtype]).itemsize
    return _POISON[dtype][variant] if dtype in _POISON else int.from_bytes(b"\xa5\x5a"[variant:][:1] * width)


def bytes_of(shape: Sequence[int], dtype: str) -> int:
    """How much memory an array takes."""
    return np.dtype(CARRIER[dtype]).itemsize * int(np.prod(shape, dtype=np.int64))


class Guarded:
    """An aligned array between two guard zones."""

    def __init__(self, name: str, shape: tuple[int, ...], dtype: str) -> None:
        self.name, self.dtype = name, dtype
        self.checksum = 0
        raw = np.empty(bytes_of(shape, dtype) + 2 * GUARD_BYTES + ALIGNMENT, np.uint8)
        start = GUARD_BYTES + (-(raw.ctypes.data + GUARD_BYTES)) % ALIGNMENT
        self.lie(raw[start - GUARD_BYTES :], GUARD_BYTES, shape)

    def lie(self, raw: np.ndarray[Any, Any], start: int, shape: tuple[int, ...]) -> None:
        """Be the array at ``start`` of ``raw``, the rest of which becomes guard zones."""
        carrier, size = np.dtype(CARRIER[self.dtype]), bytes_of(shape, self.dtype)
        self.before, self.after = raw[:start], raw[start + size :]
        self.before[:] = self.after[:] = _GUARD
        self.bytes = raw[start : start + size]
        self.array = self.bytes.view(carrier).reshape(shape)
        self.bits = self.bytes.view(f"u{carrier.itemsize}")
        # Not that of `bytes`: numpy gives an empty view an address of its own.
        self.address = raw.ctypes.data + start

    def seal(self) -> None:
        """Remember the content, which must not change from now on."""
        self.checksum = checksum(self.bytes)

    def poison(self, variant: int) -> None:
        self.bits.fill(poison_of(self.dtype, variant))

    def check_guards(self) -> None:
        for zone, side in ((self.before, "before"), (self.after, "after")):
            touched = np.flatnonzero(zone != _GUARD)
            if touched.size:
                at = zone.size - int(touched[-1]) if side == "before" else int(touched[0]) + 1
                raise Refused("wrong_result", f"the kernel wrote byte {at} {side} {self.name}")

    def check_seal(self) -> None:
        if checksum(self.bytes) != self.checksum:
            raise Refused("input_modified", f"the kernel changed its input {self.name}")


#: Secret, odd weights: no change of one word keeps the sum, and none of several but by chance.
_WEIGHTS = np.random.default_rng().integers(0, 1 << 63, 1 << 13, dtype=np.uint64) * np.uint64(2) + np.uint64(
    1
)


def checksum(content: np.ndarray[Any, Any]) -> int:
    """Of bytes at an aligned address: weighted sums of blocks, as fast as memory; then a CRC of these."""
    whole = content.size - content.size % (8 * _WEIGHTS.size)
    sums = content[:whole].view(np.uint64).reshape(-1, _WEIGHTS.size) @ _WEIGHTS
    return zlib.crc32(content[whole:].data, zlib.crc32(sums.tobytes()))


#: Of a larger array so many elements are drawn and repeated: drawing all takes longer than most kernels.
#: A prime, so that rows differ.
DRAWN = 1_048_573


def fill(target: Guarded, rng: np.random.Generator) -> None:
    """Draw an input: floats in [-1, 1), small integers."""
    flat = target.array.reshape(-1)
    draw(flat[:DRAWN], target.dtype, rng)
    for begin in range(DRAWN, flat.size, DRAWN):
        part = flat[begin : begin + DRAWN]
        part[:] = flat[: part.size]


def draw(array: np.ndarray[Any, Any], dtype: str, rng: np.random.Generator) -> None:
    if dtype in ("f32", "f64"):
        rng.random(dtype=array.dtype, out=array)
        array *= 2
        array -= 1
    elif dtype == "f16":
        array[...] = rng.random(array.shape, dtype=np.float32) * 2 - 1
    elif dtype in ("bf16", "tf32"):
        drawn = (rng.random(array.shape, dtype=np.float32) * 2 - 1).view(np.uint32)
        array[...] = drawn >> 16 if dtype == "bf16" else drawn >> 13 << 13
    elif dtype == "bool":
        array[...] = rng.integers(0, 2, array.shape)
    else:
        array[...] = rng.integers(0 if dtype.startswith("u") else -8, 8, array.shape)


def read(file: int, target: np.ndarray[Any, Any], at: int) -> None:
    """Fill ``target`` with the bytes of ``file`` from ``at``."""
    rest = target.data
    while rest:
        count = os.preadv(file, [rest], at)
        if not count:
            raise RuntimeError("an input is shorter than its shape")
        rest, at = rest[count:], at + count


def write(file: int, content: np.ndarray[Any, Any]) -> None:
    """Into memory of that size, which is no file that a limit would count."""
    np.frombuffer(mmap.mmap(file, content.nbytes), np.uint8)[:] = content.view(np.uint8)


class Memory:
    """One set of inputs and outputs."""

    def __init__(self, job: dict[str, Any]) -> None:
        def make(spec: list[Any]) -> Guarded:
            return Guarded(spec[0], tuple(spec[1]), spec[2])

        self.inputs = [make(s) for s in job["inputs"]]
        self.outputs = [make(s) for s in job["outputs"]]
        arrays = [*self.inputs, *self.outputs]
        self.pointers = [ctypes.c_void_p(a.address) for a in arrays]
        self.addresses = [a.address for a in arrays]

    def set_inputs(self, job: dict[str, Any], number: int) -> None:
        """Given inputs for set 0, rolled copies of them for the others; else each set its own draw."""
        rng = np.random.default_rng([job["seed"], number])
        for k, target in enumerate(self.inputs):
            if job["given"] is not None:
                split = number * target.bits.itemsize % max(target.bytes.size, 1)
                file, at = job["given"][k]
                read(file, target.bytes[split:], at)
                read(file, target.bytes[:split], at + target.bytes.size - split)
            else:
                fill(target, rng)
            target.seal()

    def copy_inputs(self, other: Memory) -> None:
        for mine, theirs in zip(self.inputs, other.inputs, strict=True):
            mine.bytes[:] = theirs.bytes
            mine.seal()


class Kernel:
    """A loaded kernel with its own workspace."""

    #: Those of EXECUTIONS that such a kernel can be put through; None: all of them.
    executions: ClassVar[frozenset[str] | None] = None
    entry: Callable[..., int]

    def __init__(self, library: str, symbol: str, threads: int, memory_bytes: int) -> None:
        self.floats, self.blocked = self.float_state(), blocked_signals()  # loading runs code already
        try:
            self.load(library, symbol)
        except (OSError, AttributeError) as error:
            raise Refused("runtime", f"cannot load {symbol}: {error}") from None
        size = self.workspace_bytes(threads)
        if size > memory_bytes:
            raise Refused("memory", f"the kernel wants {size} bytes of workspace, {memory_bytes} are allowed")
        self.workspace = Guarded("the workspace", (size,), "u8")
        self.tail = (ctypes.c_void_p(self.workspace.address), ctypes.c_size_t(size), ctypes.c_int(threads))

    def load(self, library: str, symbol: str) -> None:
        self.library, self.symbol = ctypes.CDLL(library), symbol
        entry, self.size_of = self.library[symbol], self.library[f"{symbol}_workspace_bytes"]
        entry.restype = ctypes.c_int
        self.entry = entry
        self.size_of.restype, self.size_of.argtypes = ctypes.c_size_t, [ctypes.c_int]

    def unload(self) -> None:
        """Its functions must not be called any more."""
        ctypes.CDLL(None).dlclose(ctypes.c_void_p(self.library._handle))

    def float_state(self) -> Mapping[str, object]:
        """How the thread computes that calls the kernel."""
        return float_state()

    def used(self) -> Used:
        """What the process takes that calls the kernel."""
        return Used.now()

    def workspace_bytes(self, threads: int) -> int:
        return int(self.size_of(threads))

    def enter(self, arrays: Sequence[Guarded], workspace: Guarded, size: int, threads: int) -> int:
        """Call it on these arrays, inputs first, with so much of the workspace (none of it: NULL)."""
        place = ctypes.c_void_p(workspace.address if size else None)
        pointers = [ctypes.c_void_p(array.address) for array in arrays]
        return int(self.entry(*pointers, place, ctypes.c_size_t(size), ctypes.c_int(threads)))

    def call(self, memory: Memory, variant: int) -> float:
        """One call on poisoned outputs and workspace, all checks after it; seconds."""
        for output in (*memory.outputs, self.workspace):
            output.poison(variant)
        before = _clock()
        status = self.entry(*memory.pointers, *self.tail)
        seconds = (_clock() - before) * 1e-9
        check_status(status)
        self.check(memory)
        return seconds

    def check(self, memory: Memory) -> None:
        for array in (*memory.inputs, *memory.outputs, self.workspace):
            array.check_guards()
        for array in memory.inputs:
            array.check_seal()


#: What a status says.
_STATUS = {
    WORKSPACE_TOO_SMALL: " (the workspace is too small)",
    OTHER_PROCESSOR: " (it cannot run on this processor)",
    TOO_MANY_THREADS: " (too many threads)",
}


def check_status(status: int) -> None:
    if status:
        said = f"the kernel returned {status}{_STATUS.get(status, '')}, 0 means success"
        raise Refused("memory" if near_limit() else "runtime", said)


def near_limit() -> bool:
    """Whether the process ever came close to the address space that it may use."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY:
        return False
    with open("/proc/self/status") as status:
        peak = next((int(line.split()[1]) << 10 for line in status if line.startswith("VmPeak")), 0)
    return peak > 0.8 * limit


class Results(Protocol):
    """Where a kernel's results are."""

    @property
    def outputs(self) -> Sequence[Guarded]: ...


def outputs_of(memory: Results) -> list[np.ndarray[Any, Any]]:
    return [output.bits.copy() for output in memory.outputs]


def compare(memory: Results, expected: list[np.ndarray[Any, Any]], what: str) -> None:
    """Bit for bit: the same kernel on the same inputs has one result."""
    for output, bits in zip(memory.outputs, expected, strict=True):
        # Block by block, which stays in cache; the whole only when something is wrong.
        blocks = range(0, bits.size, 1 << 16)
        if not any((output.bits[k : k + (1 << 16)] != bits[k : k + (1 << 16)]).any() for k in blocks):
            continue
        different = output.bits != bits
        first, second = poison_of(output.dtype, 0), poison_of(output.dtype, 1)
        unwritten = int(np.count_nonzero((bits == first) & (output.bits == second)))
        if unwritten:
            raise Refused(
                "wrong_result", f"{unwritten} of {bits.size} elements of {output.name} are never written"
            )
        count = int(np.count_nonzero(different))
        raise Refused("wrong_result", f"{count} of {bits.size} elements of {output.name} {what}")


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
    """A kernel in the race: what it gave, how long it took, whether it still counts."""

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
        """One call took all the time that there is for timing."""
        self.executions: Sequence[str] = ()
        """Those that it has been put through."""

    @property
    def alive(self) -> bool:
        return self.failure is None and not self.stopped and not self.timed_enough

    @property
    def settled(self) -> bool:
        """Whether the median is known as precisely as was asked for."""
        wanted = self.job["precision"]
        return bool(wanted) and spread_of_median(self.seconds) <= wanted

    def load(self, library: str) -> Kernel:
        return self.kind(
            library, self.job["symbols"][self.number], self.job["threads"], self.job["memory_bytes"]
        )

    def first_call(self, memory: Memory) -> None:
        """Load and call twice; the two results must agree although the poison does not."""
        self.kernel = self.load(f"./k{self.number}.so")
        seconds = self.kernel.call(memory, 0)
        self.first = outputs_of(memory)
        if self.too_slow(seconds):
            self.seconds = [seconds]
            self.stopped = True
            return
        self.estimate = self.kernel.call(memory, 1)
        compare(memory, self.first, "change from call to call")
        if self.job["executions"]:
            from perfdojo_sdk.measure.executions import put_through

            self.executions = put_through(self.kernel, memory, self.first, self.estimate, self.job)
        if self.job["first_look"] and self.estimate >= self.job["budget_s"] and self.job["repeats"]:
            self.seconds, self.timed_enough = [self.estimate], True

    def call_on_sets(self) -> None:
        """One call on each of many sets of inputs; the results one behind the other."""
        self.kernel, memory = self.load(f"./k{self.number}.so"), Memory(self.job)
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
        """Know the result on every set, and that a library which saw no other set agrees."""
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
        untouched = self.load(f"./k{self.number}.fresh.so")
        untouched.call(sets[1], 0)
        compare(sets[1], second, "depend on earlier calls (a cached result?)")

    def finish(self, sets: list[Memory]) -> None:
        """New inputs at old addresses must give their own result, after any number of calls."""
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
        self.repeat = ctypes.CDLL("./harness.so").pd_repeat
        self.repeat.restype = ctypes.c_int

    def run(self) -> int:
        """Returns the nanoseconds that this process's clock counted; marks them for the parent."""
        for contender in self.contenders:
            self.attempt(contender, lambda c: c.prepare(self.sets, self.positions))
        for memory in self.sets:
            self.poison_samples(memory)
        overhead = self.overhead()
        for contender in self.contenders:
            # The two clock readings and the way into C take less than 1 % of a batch.
            calls = np.ceil(100 * overhead / max(contender.estimate, 1e-9))
            contender.calls = int(min(max(calls, 1), MOST_CALLS))
        os.write(self.job["pipe"], b"B")
        begin = _clock()
        self.attempt_all(self.warm_up)
        for _ in range(self.job["repeats"]):
            racing = [c for c in self.contenders if c.alive and c.spent < self.job["budget_s"]]
            if not racing or all(c.settled for c in racing):
                break
            for k in self.rng.permutation(len(racing)):
                self.attempt(racing[k], self.timed)
        elapsed = _clock() - begin
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
        before = _clock()
        status = self.repeat(
            contender.kernel.entry,
            ctypes.c_void_p(self.table.ctypes.data),
            ctypes.c_long(self.rotating),
            ctypes.c_long(first),
            ctypes.c_long(calls),
            *contender.kernel.tail,
        )
        seconds = (_clock() - before) * 1e-9
        check_status(status)
        self.next_set = (first + calls) % self.rotating
        return seconds, (first + calls - 1) % self.rotating

    def overhead(self) -> float:
        alive = next((c for c in self.contenders if c.alive), None)
        return min(self.batch(alive, 0)[0] for _ in range(9)) if alive else 0.0

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
        """Random elements of the last result; poisoned again, since a later call must write them."""
        memory = self.sets[number]
        for now, then in zip(samples(memory, self.positions), contender.references[number], strict=True):
            if (now != then).any():
                raise Refused("wrong_result", "a timed call gave another result than the first one")
        self.poison_samples(memory)

    def poison_samples(self, memory: Memory) -> None:
        for output, at in zip(memory.outputs, self.positions, strict=True):
            output.bits[at] = poison_of(output.dtype, 0)


def attempt(contender: Contender, action: Any) -> None:
    """Run one step of a contender that still counts; note the first reason why it no longer does."""
    if not contender.alive:
        return
    contender.job["running"][0] = contender.number
    try:
        action(contender)
    except Refused as refused:
        contender.failure = (refused.reason, refused.detail)
    except MemoryError:
        contender.failure = ("memory", "the arrays do not fit into the memory allowed")


def number_of_sets(job: dict[str, Any]) -> int:
    """Enough sets that none is in cache when its turn comes; two for the checks at least."""
    size = sum(bytes_of(shape, dtype) for _, shape, dtype in (*job["inputs"], *job["outputs"]))
    if job["cold"] is None:
        job["cold"] = size > job["last_cache_bytes"]
    if not job["cold"]:
        return 2
    wanted = 3 * job["last_cache_bytes"] // max(size, 1) + 2
    possible = job["memory_bytes"] // 2 // max(size, 1)
    sets = int(max(2, min(wanted, possible, MOST_SETS)))
    # What the limits keep from being cold is not called so.
    job["cold"] = sets >= wanted or sets * size > 2 * job["last_cache_bytes"]
    return sets


def limit(kind: int, value: int) -> None:
    """A limit once set for an earlier job of this process is only made tighter."""
    _, hard = resource.getrlimit(kind)
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (value, value))


def limit_resources(job: dict[str, Any]) -> None:
    """No core dump; die with the parent; no rights by running a program; space, time and files bounded."""
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


def run_trusted(job: dict[str, Any]) -> None:
    """One call of our own code, on the shared memory itself: no copies, no search for cheats."""

    def mapped(file: int, at: int, spec: list[Any], access: int) -> ctypes.c_void_p:
        array = np.frombuffer(mmap.mmap(file, at + bytes_of(spec[1], spec[2]), access=access), np.uint8)
        held.append(array)
        return ctypes.c_void_p(array.ctypes.data + at)

    held: list[Any] = []
    pointers = [
        mapped(file, at, spec, mmap.ACCESS_COPY)
        for (file, at), spec in zip(job["given"], job["inputs"], strict=True)
    ]
    for file, spec in zip(job["results"], job["outputs"], strict=True):
        pointers.append(mapped(file, 0, spec, mmap.ACCESS_WRITE))
    [symbol] = job["symbols"]
    check_status(
        getattr(ctypes.CDLL("./k0.so"), symbol)(*pointers, None, ctypes.c_size_t(0), ctypes.c_int(1))
    )


def read_job(folder: str) -> dict[str, Any]:
    """Go to the folder and take what is to be done there, within its limits."""
    os.chdir(folder)
    with open("job.json") as file:
        job: dict[str, Any] = json.load(file)
    job["running"] = np.memmap("running", np.int64, "r+", shape=(1,))
    limit_resources(job)
    return job


def leave_result(result: dict[str, Any]) -> None:
    """Written aside first: a result is there whole or not at all."""
    with open("result.json.part", "w") as file:
        json.dump(result, file)
    os.rename("result.json.part", "result.json")


def main(folder: str, kind: type[Kernel] = Kernel) -> None:
    """Do the job in ``folder``; ``kind`` says how a kernel is loaded and entered."""
    job = read_job(folder)
    contenders = [Contender(k, job, kind) for k in range(len(job["symbols"]))]
    elapsed, sets = 0, []
    if job["trusted"]:
        attempt(contenders[0], lambda _: run_trusted(job))
    elif job["sets"]:
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
    leave_result({"elapsed_ns": elapsed, "cold": bool(job["cold"]), "kernels": kernels})


if __name__ == "__main__":
    # Whoever imports this module gets the one that runs: there must be one of each of its classes.
    sys.modules["perfdojo_sdk.measure.worker"] = sys.modules[__name__]
    main(sys.argv[1])
    # A kernel's threads or exit handlers have no say any more.
    os._exit(0)

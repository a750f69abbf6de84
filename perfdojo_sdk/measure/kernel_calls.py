"""A kernel in the child process: its arrays, its calls, and checks that every kernel has to pass.

Every array stands between guard zones. Outputs and workspace are poisoned before a call, with
different bits in the second call, so that an unwritten cell differs between two calls that must agree.
Inputs are compared with their checksum afterwards.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import resource
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Protocol

import numpy as np

from perfdojo_sdk.core.dtypes import CODED_DTYPES, UNCOMPUTED_DTYPES, carrier, integer_bounds
from perfdojo_sdk.core.formats import usual_codes
from perfdojo_sdk.core.interface import OTHER_PROCESSOR, TOO_MANY_THREADS, WORKSPACE_TOO_SMALL
from perfdojo_sdk.measure.own_memory import Segment, writable_segments
from perfdojo_sdk.measure.process_state import Used, float_state, surroundings

# Bound before any kernel is loaded, so that no kernel can replace it. The parent compares its times with its
# own clock in any case.
clock = time.perf_counter_ns

GUARD_BYTES = 4096
ALIGNMENT = 64
_GUARD = 0xA5

#: dtype of a program -> the numpy type that carries it.
CARRIER = {
    "f64": "f8", "f32": "f4", "f16": "f2", "bf16": "u2", "tf32": "u4", "i64": "i8", "i32": "i4", "i16": "i2",
    "i8": "i1", "u64": "u8", "u32": "u4", "u16": "u2", "u8": "u1", "bool": "u1",
    **{dtype: f"{carrier(dtype)[0]}1" for dtype in UNCOMPUTED_DTYPES},
}  # fmt: skip


def numbers(carried: np.ndarray[Any, Any], dtype: str) -> np.ndarray[Any, Any]:
    """The numbers in an array of a program: NumPy has no bf16, whose bits are carried as integers."""
    if dtype != "bf16":
        return carried
    return (carried.astype(np.uint32) << 16).view(np.float32)


def carry(values: np.ndarray[Any, Any], carried: np.ndarray[Any, Any], dtype: str) -> None:
    """Fill an array of a program with numbers; those of bf16, given as f32, are rounded to the nearest."""
    if dtype != "bf16":
        with np.errstate(over="ignore"):
            carried[...] = values
        return
    bits = np.asarray(values, np.float32).view(np.uint32)
    nearest = bits + 0x7FFF + (bits >> 16 & 1) >> 16
    carried[...] = np.where(np.isnan(values), bits >> 16 | 0x40, nearest)


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
    """Size of an array in bytes."""
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
        # Not the address of `bytes`: NumPy gives an empty view another address.
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


#: Secret, odd weights: every change of one word changes the sum, and any other change does so almost surely.
_WEIGHTS = np.random.default_rng().integers(0, 1 << 63, 1 << 13, dtype=np.uint64) * np.uint64(2) + np.uint64(
    1
)


def checksum(content: np.ndarray[Any, Any]) -> int:
    """The checksum of aligned bytes: weighted sums of blocks, at the speed of memory, then a CRC of these."""
    whole = content.size - content.size % (8 * _WEIGHTS.size)
    sums = content[:whole].view(np.uint64).reshape(-1, _WEIGHTS.size) @ _WEIGHTS
    return zlib.crc32(content[whole:].data, zlib.crc32(sums.tobytes()))


#: Most elements that are drawn; a larger array repeats them, since drawing all would take longer than most
#: kernels. A prime, so that rows differ.
DRAWN = 1_048_573


def fill(target: Guarded, rng: np.random.Generator) -> None:
    """Draw an input: floats in [-1, 1), small integers, codes of usual numbers."""
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
    elif dtype in CODED_DTYPES:
        array[...] = rng.choice(np.array(usual_codes(dtype), np.uint8), array.shape)
    elif dtype == "bool":
        array[...] = rng.integers(0, 2, array.shape)
    else:
        low, high = integer_bounds(dtype)
        array[...] = rng.integers(max(low, -8), min(high, 7), array.shape, endpoint=True)


def read(file: int, target: np.ndarray[Any, Any], at: int) -> None:
    """Fill ``target`` with the bytes of ``file`` from ``at``."""
    rest = target.data
    while rest:
        count = os.preadv(file, [rest], at)
        if not count:
            raise RuntimeError("an input is shorter than its shape")
        rest, at = rest[count:], at + count


def write(file: int, content: np.ndarray[Any, Any]) -> None:
    """Write ``content`` into the memory behind ``file``, to which the limit of file sizes does not apply."""
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

    #: Names of the executions that are possible with such a kernel; None: all of EXECUTIONS.
    executions: ClassVar[frozenset[str] | None] = None
    entry: Callable[..., int]
    again: Callable[..., int] | None = None
    """The function for calls after one of ``entry`` with the same inputs, if there is one."""

    def __init__(self, library: str, symbol: str, threads: int, memory_bytes: int) -> None:
        self.floats, self.around = self.float_state(), surroundings()  # before loading, which runs code
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

    def load_again(self, symbol: str) -> None:
        """Find the function for later calls in the library."""
        try:
            again = self.library[symbol]
        except AttributeError as error:
            raise Refused("runtime", f"cannot load {symbol}: {error}") from None
        again.restype = ctypes.c_int
        self.again = again

    def unload(self) -> None:
        """Unload the library; the kernel's functions must not be called afterwards."""
        ctypes.CDLL(None).dlclose(ctypes.c_void_p(self.library._handle))

    def float_state(self) -> Mapping[str, object]:
        """The floating-point state of the thread that calls the kernel."""
        return float_state()

    def used(self) -> Used:
        """The resources used by the process that calls the kernel."""
        return Used.now()

    def static_memory(self) -> Sequence[Segment]:
        """The memory that holds the static variables of the kernel's shared object."""
        return writable_segments(ctypes.cast(self.library[self.symbol], ctypes.c_void_p))

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
        return self._checked(self.entry, memory)

    def call_again(self, memory: Memory, variant: int) -> float:
        """One call after another with the same inputs, on poisoned outputs, all checks after it; seconds."""
        assert self.again
        for output in memory.outputs:
            output.poison(variant)
        return self._checked(self.again, memory)

    def _checked(self, entry: Callable[..., int], memory: Memory) -> float:
        before = clock()
        status = entry(*memory.pointers, *self.tail)
        seconds = (clock() - before) * 1e-9
        check_status(status)
        self.check(memory)
        return seconds

    def check(self, memory: Memory) -> None:
        for array in (*memory.inputs, *memory.outputs, self.workspace):
            array.check_guards()
        for array in memory.inputs:
            array.check_seal()


#: Status -> the reason and detail of the failure.
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
    """True if the process has ever used more than 80 % of the address space that it may use."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY:
        return False
    with open("/proc/self/status") as status:
        peak = next((int(line.split()[1]) << 10 for line in status if line.startswith("VmPeak")), 0)
    return peak > 0.8 * limit


class Results(Protocol):
    """The outputs of a kernel's call."""

    @property
    def outputs(self) -> Sequence[Guarded]: ...


def outputs_of(memory: Results) -> list[np.ndarray[Any, Any]]:
    return [output.bits.copy() for output in memory.outputs]


def compare(memory: Results, expected: list[np.ndarray[Any, Any]], what: str) -> None:
    """Raise unless outputs equal ``expected`` bit for bit: a kernel has one result for the same inputs."""
    for output, bits in zip(memory.outputs, expected, strict=True):
        # Compare block by block, in cache; look at the whole array only if a block differs.
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

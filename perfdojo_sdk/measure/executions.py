"""Calls of one kernel that show faults which a plain call hides; a part of the child process.

Each array stands in a room between two inaccessible pages, flush with one of them or in the middle; whoever
leaves it by a single byte, reading or writing, dies or is seen. All calls together happen in one fork of the
child, which tells what it begins and what it has done, so that a kernel that dies or hangs tells in what.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from perfdojo_sdk.core.interface import (
    EXECUTIONS,
    HARNESSED,
    MAX_THREADS,
    TOO_MANY_THREADS,
    WORKSPACE_TOO_SMALL,
)
from perfdojo_sdk.core.words import number_of
from perfdojo_sdk.measure.forked import Ended, Tell, in_fork
from perfdojo_sdk.measure.kernel_calls import (
    CARRIER,
    Guarded,
    Kernel,
    Memory,
    Refused,
    bytes_of,
    check_status,
    compare,
    poison_of,
)
from perfdojo_sdk.measure.no_threads import forbid_threads
from perfdojo_sdk.measure.own_memory import Segment, writable_segments
from perfdojo_sdk.measure.process_state import Used, changed, surroundings, threads_that_take_signals

PAGE = mmap.PAGESIZE
#: Bytes that are inaccessible on either side of a room.
WALL = max(PAGE, 1 << 16)
#: Calls in a row; of a slow kernel, as many as take this time, and a few at least.
CALLS, FEWEST_CALLS, SOME_S = 50, 3, 0.3
#: Bytes, beyond which addresses look alike again to whatever a processor does.
CACHE_LINE = 64
#: Seconds for two callers to meet, and for threads that use one place of the workspace to collide: these
#: share the processor with whatever else runs, and what one overwrites is seen only at that very moment.
MEETING_S, COLLIDING_S = 0.05, 0.3
#: Numbers of threads up to which they are given that time; of more, calls only as they come.
FEW_THREADS = 3
#: Seconds in which many numbers of threads are tried; so many of them, and those beyond, in any case.
COUNTING_S, FEWEST_COUNTS, MANY_THREADS = 0.2, 10, 64
#: Bytes of workspace beyond which a number of threads that no user has is left out.
MOST_WORKSPACE = 64 << 20
#: How often two callers are to meet in the kernel; and how often even if that takes the longer time, in
#: seconds, as where other work keeps them from running at once.
MEETINGS, FEW_MEETINGS, MEETING_PATIENCE_S = 100, 20, 0.25
#: How often another thread waits for results, at most: some times for each cache line of theirs. And seconds;
#: so many where other work keeps the two from running at once.
MOST_HANDED, HANDING_S, HANDING_PATIENCE_S = 2000, 0.2, 0.6
#: After how many calls there is nothing left to set up: from then on neither threads nor memory may grow.
SETTLED = 10
#: Seconds after which a call after a fork, or one of many slow calls, counts as hanging.
PATIENCE_S = 5.0
#: Numbers of threads that nobody means: the least and the largest that the argument can be.
LEAST_THREADS, MOST_THREADS = -(1 << 31), (1 << 31) - 1
#: Numbers of threads that other executions than ``threads`` use.
ALONE, TOGETHER = 1, 2

_libc = ctypes.CDLL(None, use_errno=True)


class Room(Guarded):
    """Memory for one array between two walls; the array moves about in it."""

    def __init__(self, name: str, shape: tuple[int, ...], dtype: str, alignment: int) -> None:
        self.name, self.dtype, self.shape, self.checksum = name, dtype, shape, 0
        self.step = max(alignment, np.dtype(CARRIER[dtype]).itemsize)
        size = -(-bytes_of(shape, dtype) // PAGE) * PAGE + 2 * PAGE
        memory = mmap.mmap(-1, size + 2 * WALL, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        with suppress(OSError):
            memory.madvise(mmap.MADV_HUGEPAGE)  # to touch it page by page may take longer than the calls
        whole = np.frombuffer(memory, np.uint8)
        for wall in (whole.ctypes.data, whole.ctypes.data + WALL + size):
            if _libc.mprotect(ctypes.c_void_p(wall), ctypes.c_size_t(WALL), 0):
                raise MemoryError
        self.inside = whole[WALL : WALL + size]
        self.at = -1

    def allow(self, access: int) -> None:
        """Access to all of the room, as ``mprotect`` names it."""
        if _libc.mprotect(
            ctypes.c_void_p(self.inside.ctypes.data), ctypes.c_size_t(self.inside.size), access
        ):
            raise MemoryError

    def place(
        self, where: str | int, number: int, shape: tuple[int, ...] | None = None, turn: int = 0
    ) -> bool:
        """Lie at the ``start``, in the ``middle`` or at the ``end``, or so many bytes behind the middle; or
        ``odd``: at first at no multiple of more than has to be, and differently for arrays of different
        numbers; with each ``turn`` an element on. Whether it has moved."""
        shape, before = self.shape if shape is None else shape, self.at
        places = {
            "start": 0,
            "middle": PAGE,
            "odd": PAGE + self.step * (2 * number + 1 + turn) % CACHE_LINE,
            "end": (self.inside.size - bytes_of(shape, self.dtype)) // self.step * self.step,
        }
        self.at = PAGE + where if isinstance(where, int) else places[where]
        self.lie(self.inside, self.at, shape)
        return before != self.at


#: Where all rooms lie, or each of them; those that are not named, in the middle.
Where: TypeAlias = str | Mapping[Room, str | int]


class Stage:
    """One caller: its inputs, outputs and workspace, and the results that it must get."""

    def __init__(
        self, kernel: Kernel, memory: Memory, expected: list[np.ndarray[Any, Any]], job: Mapping[str, Any]
    ) -> None:
        self.kernel, self.memory, self.expected = kernel, memory, expected
        alignment = job["array_alignment"]

        def room(like: Guarded) -> Room:
            return Room(like.name, like.array.shape, like.dtype, alignment)

        self.inputs, self.outputs = list(map(room, memory.inputs)), list(map(room, memory.outputs))
        self.counts = tuple(
            count
            for number, count in enumerate(job["thread_counts"])
            if number < FEWEST_COUNTS or kernel.workspace_bytes(count) <= MOST_WORKSPACE
        )
        most = max(kernel.workspace_bytes(n) for n in (ALONE, TOGETHER, *self.counts))
        self.workspace = Room("the workspace", (most,), "u8", alignment)

    @property
    def arrays(self) -> list[Room]:
        return [*self.inputs, *self.outputs]

    @property
    def rooms(self) -> list[Room]:
        return [*self.arrays, self.workspace]

    def arrange(self, where: Where, threads: int, less: int = 0, turn: int = 0) -> int:
        """Put everything in place, inputs filled, the rest poisoned; returns the bytes of workspace."""
        size = self.kernel.workspace_bytes(threads) - less
        for number, room in enumerate(self.rooms):
            place = where if isinstance(where, str) else where.get(room, "middle")
            moved = room.place(place, number, (size,) if room is self.workspace else None, turn)
            if moved and number < len(self.inputs):
                room.bytes[:] = self.memory.inputs[number].bytes
        for room in (*self.outputs, self.workspace):
            room.poison(0)
        return size

    def call(self, where: Where, threads: int = ALONE, turn: int = 0) -> None:
        size = self.arrange(where, threads, turn=turn)
        check_status(self.kernel.enter(self.arrays, self.workspace, size, threads))
        self.check()

    def check(self) -> None:
        """After a call: nothing around the arrays is changed, and the results are the expected ones."""
        for room in self.rooms:
            room.check_guards()
        if not all(same(room, bits) for room, bits in zip(self.outputs, self.expected, strict=True)):
            compare(self, self.expected, "differ from those of a plain call")

    def check_inputs(self) -> None:
        """After all calls at one place, that none has changed an input."""
        for room, given in zip(self.inputs, self.memory.inputs, strict=True):
            if not same(room, given.bytes):
                raise Refused("input_modified", f"the kernel changed its input {room.name}")


def same(room: Room, bits: np.ndarray[Any, Any]) -> bool:
    one, other = ctypes.c_void_p(room.address), ctypes.c_void_p(bits.ctypes.data)
    return not bits.nbytes or not _libc.memcmp(one, other, ctypes.c_size_t(bits.nbytes))


# -- the executions ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Trial:
    """The inputs that all executions of one kernel share."""

    kernel: Kernel
    stage: Stage
    job: Mapping[str, Any]
    call_s: float
    """Seconds of one plain call."""
    tell: Tell = lambda *_: None
    """The callback for progress messages."""


def guard_pages(trial: Trial) -> None:
    for where in ("start", "end"):
        trial.stage.call(where)
        trial.stage.check_inputs()


def read_only(trial: Trial) -> None:
    """Call with read-only inputs. Callers may share inputs between threads or map them from a file, so a
    kernel must not even change one and restore it."""
    stage = trial.stage
    size = stage.arrange("middle", ALONE)
    for room in stage.inputs:
        room.allow(mmap.PROT_READ)
    status = stage.kernel.enter(stage.arrays, stage.workspace, size, ALONE)
    for room in stage.inputs:
        room.allow(mmap.PROT_READ | mmap.PROT_WRITE)
    check_status(status)
    stage.check()


def alignment(trial: Trial) -> None:
    """Call with arrays at every offset in a cache line, as far as time allows: each array at another offset,
    then all at the same one, then all but one."""
    stage, end = trial.stage, time.monotonic() + SOME_S
    rooms = stage.rooms if stage.kernel.workspace_bytes(ALONE) else stage.arrays
    step = max(room.step for room in stage.arrays)
    for turn in range(CACHE_LINE // min(room.step for room in stage.arrays)):
        stage.call("odd", turn=turn)
        one, other = step * (turn + 1) % CACHE_LINE, step * (turn + 3) % CACHE_LINE
        stage.call(dict.fromkeys(rooms, one))
        for chosen in rooms if len(rooms) > 2 else ():
            if time.monotonic() < end:
                stage.call({room: other if room is chosen else one for room in rooms})
        if time.monotonic() > end:
            break


def workspace(trial: Trial) -> None:
    """Call with too small a workspace. (All other calls give exactly as many bytes as the kernel asks
    for.)"""
    stage = trial.stage
    for threads in dict.fromkeys((ALONE, TOGETHER, *stage.counts[1:2])):
        if stage.kernel.workspace_bytes(threads):
            _too_little(stage, threads, 1)
    if whole := stage.kernel.workspace_bytes(ALONE):
        _too_little(stage, ALONE, whole)


def _too_little(stage: Stage, threads: int, less: int) -> None:
    size = stage.arrange("end", threads, less=less)
    status = stage.kernel.enter(stage.arrays, stage.workspace, size, threads)
    asked = f"it asks for {size + less} bytes on {threads} threads and gets {size}"
    if status != WORKSPACE_TOO_SMALL:
        raise Refused(
            "wrong_result", f"{asked}: the kernel returned {status} instead of {WORKSPACE_TOO_SMALL}"
        )
    for room in (*stage.outputs, stage.workspace):
        room.check_guards()
        if room.bits.size and not _untouched(room):
            raise Refused("wrong_result", f"{asked}: the kernel wrote into {room.name} all the same")


def _untouched(room: Room) -> bool:
    """True if the array is all poison: its first element is, and each equals the one before."""
    step = room.bits.itemsize
    one, next_one = ctypes.c_void_p(room.address), ctypes.c_void_p(room.address + step)
    alike = not _libc.memcmp(one, next_one, ctypes.c_size_t(room.bits.nbytes - step))
    return alike and int(room.bits[0]) == poison_of(room.dtype, 0)


def float_control(trial: Trial) -> None:
    """Call the kernel once; the floating-point state is compared after every execution anyway."""
    trial.stage.call("middle", TOGETHER)


def threads(trial: Trial) -> None:
    counts = trial.stage.counts
    for count in counts[:FEWEST_COUNTS]:
        _with_threads(trial, count, _collide)
    end = time.monotonic() + COUNTING_S
    for count in counts[FEWEST_COUNTS:]:
        if count > MANY_THREADS or time.monotonic() < end:
            _with_threads(trial, count, _collide)
    for count in (0, -1, LEAST_THREADS):
        _with_threads(trial, count, _as_one)
    for count in (MAX_THREADS + 1, MOST_THREADS):
        _with_threads(trial, count, _too_many)


def _with_threads(trial: Trial, count: int, action: Callable[[Trial, int], None]) -> None:
    trial.tell("threads", str(count))
    try:
        action(trial, count)
    except Refused as refused:
        raise Refused(refused.reason, f"on {number_of(count, 'threads')}: {refused.detail}") from None


def _collide(trial: Trial, count: int) -> None:
    """One call; many where each thread has a slot of the workspace: two that use one seldom meet there."""
    stage = trial.stage
    stage.call("end", count)
    size = stage.kernel.workspace_bytes(count)
    if size <= stage.kernel.workspace_bytes(ALONE):
        return
    end = time.monotonic() + COLLIDING_S * (count <= FEW_THREADS)
    while time.monotonic() < end:
        check_status(stage.kernel.enter(stage.arrays, stage.workspace, size, count))
        stage.check()
    if count <= trial.job["busy_threads"] and stage.kernel.used().threads >= count:
        _uses_its_slots(trial, size, count)


def _uses_its_slots(trial: Trial, size: int, count: int) -> None:
    """Threads with slots of their own have written into all of them. Where two threads use one, another slot
    is left as it was, whether they have met or not; for some number of threads, the last."""
    stage = trial.stage
    left = _unused(stage.workspace)
    for _ in range(FEWEST_CALLS):  # a thread may come late to work that others have done meanwhile
        stage.call("end", ALONE)
        spare = _unused(stage.workspace)
        if left <= spare + CACHE_LINE:
            return
        stage.call("end", count)
        left = min(left, _unused(stage.workspace))
    raise Refused(
        "wrong_result",
        f"of {size} bytes of workspace that the kernel asks for, it leaves the last {left} as they are,"
        f" {spare} on one thread: threads share what each should have of its own",
    )


def _unused(room: Room) -> int:
    """Bytes at its end that are still poison."""
    written = np.flatnonzero(room.bytes != poison_of(room.dtype, 0))
    return room.bytes.size - (int(written[-1]) + 1 if written.size else 0)


def _as_one(trial: Trial, count: int) -> None:
    """Fewer than one count as one."""
    trial.stage.call("end", count)


def _too_many(trial: Trial, count: int) -> None:
    """More threads than any kernel runs on: it says so and writes nothing, or does without them."""
    stage = trial.stage
    size = stage.arrange("end", TOGETHER)
    status = stage.kernel.enter(stage.arrays, stage.workspace, size, count)
    if status == 0:
        stage.check()
    elif status not in (TOO_MANY_THREADS, WORKSPACE_TOO_SMALL):
        raise Refused("wrong_result", f"the kernel returned {status} instead of {TOO_MANY_THREADS}")
    elif not all(map(_untouched, stage.outputs)):
        raise Refused("wrong_result", "the kernel refuses, and writes all the same")


def repeated(trial: Trial) -> None:
    stage, kernel = trial.stage, trial.kernel
    stage.arrange("middle", TOGETHER)
    size = {n: kernel.workspace_bytes(n) for n in (ALONE, TOGETHER)}
    begin, settled = time.monotonic(), Used()
    for call in range(1, CALLS + 1):
        for output in stage.outputs:
            output.poison(call % 2)
        count = ALONE if call % 2 else TOGETHER
        try:
            check_status(kernel.enter(stage.arrays, stage.workspace, size[count], count))
            stage.check()
        except Refused as refused:
            raise Refused(refused.reason, f"call {call}: {refused.detail}") from None
        if call == SETTLED:
            settled = kernel.used()
        if call >= FEWEST_CALLS and time.monotonic() - begin > SOME_S:
            break
    stage.check_inputs()
    if call == CALLS:
        grown = kernel.used().beyond(settled)
        if grown:
            raise Refused("memory", f"{CALLS - SETTLED} calls leave {grown} behind")


def two_callers(trial: Trial) -> None:
    """Each in a thread of its own, with arrays of its own, on other inputs; results are compared in C, call
    by call, so that the two hardly ever wait for each other."""
    first, kernel = trial.stage, trial.kernel
    first.call("middle")
    with _other_inputs(first) as inputs:
        outputs, alone = ([_like(room) for room in first.outputs] for _ in range(2))
        workspaces = first.workspace, _like(first.workspace)
        size = kernel.workspace_bytes(ALONE)
        workspaces[1].place("middle", 0, (size,))
        check_status(kernel.enter([*inputs, *alone], workspaces[1], size, ALONE))
        arrays = [*first.inputs, *first.outputs], [*inputs, *outputs]
        expected = first.expected, [room.bits for room in alone]
        for count in (ALONE, TOGETHER) if trial.call_s < SOME_S / 10 else (TOGETHER,):
            size = kernel.workspace_bytes(count)
            for room in workspaces:
                room.place("middle", 0, (size,))
            callers = (Caller * 2)(*map(partial(_caller, count, size), arrays, workspaces, expected))
            _harness(trial).pd_two_callers(kernel.entry, callers)
            for caller in callers:
                _check_caller(caller, first, "{} is not what the caller gets who calls alone")
            for room in (*first.outputs, *outputs, *workspaces):
                room.check_guards()


def handed_over(trial: Trial) -> None:
    """Another thread waits until the caller says that the call is over, and looks at the results: it does not
    see what has not left the caller's processor by then."""
    stage = trial.stage
    size = stage.arrange("middle", ALONE)
    caller = _caller(ALONE, size, stage.arrays, stage.workspace, stage.expected)
    lines = sum(output.bits.nbytes for output in stage.outputs) // CACHE_LINE
    caller.meetings = min(MOST_HANDED, max(MEETINGS, 8 * lines))
    caller.few, caller.seconds, caller.patience = caller.meetings // 4, HANDING_S, HANDING_PATIENCE_S
    _harness(trial).pd_hand_over(trial.kernel.entry, ctypes.byref(caller))
    _check_caller(caller, stage, "what a thread sees of {} that waited for the call is not its result")


def kept_for_caller(trial: Trial) -> None:
    stage = trial.stage
    for count in (ALONE, TOGETHER):
        size = stage.arrange("middle", count)
        caller = _caller(count, size, stage.arrays, stage.workspace, stage.expected)
        _harness(trial).pd_keep(trial.kernel.entry, ctypes.byref(caller))
        check_status(caller.status)
        if caller.wrong:
            raise Refused("wrong_result", "the kernel changes a register that is its caller's")
        if differs := changed(trial.kernel.around, surroundings()):
            raise Refused("wrong_result", f"the kernel leaves them different: {differs}")
        stage.check()
    if threads_that_take_signals():
        raise Refused("wrong_result", "threads that the kernel starts take signals, which are its caller's")


def own_memory(trial: Trial) -> None:
    """Compare the kernel's static variables before and after a call on one thread: a call must not change
    them, since two callers would share them."""
    stage, entry = trial.stage, trial.kernel.library[trial.kernel.symbol]
    segments = writable_segments(ctypes.cast(entry, ctypes.c_void_p))
    stage.call("middle")
    before = [segment.content() for segment in segments]
    with _other_inputs(stage) as inputs:
        outputs, size = [_like(room) for room in stage.outputs], stage.arrange("middle", ALONE)
        check_status(trial.kernel.enter([*inputs, *outputs], stage.workspace, size, ALONE))
    written = sum(map(Segment.differences, segments, before))
    if written:
        raise Refused("wrong_result", f"a call on other inputs leaves other values in {written} bytes")


def unloaded(trial: Trial) -> None:
    """Unload the kernel after a call, as a rebuilt library does: no thread may stay in its code."""
    ended = in_fork(lambda _: _unload(trial), PATIENCE_S + 20 * trial.call_s)
    ended.raise_what_it_met()


def _unload(trial: Trial) -> None:
    before = Used.now()
    kernel, stage = _anew(trial), trial.stage
    size = stage.arrange("middle", TOGETHER)
    check_status(kernel.enter(stage.arrays, stage.workspace, size, TOGETHER))
    kernel.unload()
    if left := Used.now().threads - before.threads:
        raise Refused("runtime", f"{left} threads stay in code that is gone")


def _anew(trial: Trial) -> Kernel:
    """The kernel, loaded again without its set-up: a fork has the memory of its thread pool, but no
    threads."""
    kernel = trial.kernel
    kernel.unload()
    kernel.load(kernel.library._name, kernel.symbol)
    return kernel


def no_threads(trial: Trial) -> None:
    """Call where no thread can be started: the caller has to do all of the work."""
    ended = in_fork(lambda _: _alone(trial), PATIENCE_S + 20 * trial.call_s)
    if ended.late:
        raise Refused("timeout", "the call does not return")
    ended.raise_what_it_met()


def _alone(trial: Trial) -> None:
    _anew(trial)
    if forbid_threads():
        trial.stage.call("middle", TOGETHER)


def _harness(trial: Trial) -> ctypes.CDLL:
    return ctypes.CDLL(_callers(trial.job))


def _callers(job: Mapping[str, Any]) -> str:
    """The file of what C calls. A kernel may have changed the current folder."""
    return os.path.join(job["folder"], "callers.so")


def _check_caller(caller: Caller, stage: Stage, says: str) -> None:
    check_status(caller.status)
    if caller.wrong:
        raise Refused("wrong_result", says.format(stage.outputs[caller.wrong - 1].name))


def _like(room: Room) -> Room:
    """Another one for such an array."""
    other = Room(room.name, room.shape, room.dtype, room.step)
    other.place("middle", 0)
    return other


@contextmanager
def _other_inputs(stage: Stage) -> Iterator[list[Guarded]]:
    """Other inputs in the very same memory, one element further on: the last is the first one, again."""
    found: list[Guarded] = []
    for room in stage.inputs:
        step = room.bits.itemsize
        room.after[:step] = room.bytes[:step]
        other = copy(room)
        other.address = room.address + step
        found.append(other)
    yield found
    for room in stage.inputs:
        room.lie(room.inside, room.at, room.shape)


class Caller(ctypes.Structure):
    """``struct caller`` of the harness."""

    _fields_ = (
        ("arrays", ctypes.c_void_p * 64), ("workspace", ctypes.c_void_p), ("bytes", ctypes.c_size_t),
        ("threads", ctypes.c_int), ("inside", ctypes.c_long), ("calls", ctypes.c_long),
        ("meetings", ctypes.c_long), ("few", ctypes.c_long), ("outputs", ctypes.c_long),
        ("seconds", ctypes.c_double), ("patience", ctypes.c_double),
        ("result", ctypes.c_void_p * 64), ("expected", ctypes.c_void_p * 64), ("size", ctypes.c_size_t * 64),
        ("status", ctypes.c_int), ("wrong", ctypes.c_int),
    )  # fmt: skip


#: Arrays up to which the harness of two callers goes.
MOST_ARRAYS = 64


def _caller(
    count: int,
    size: int,
    arrays: Sequence[Guarded],
    workspace: Room,
    expected: Sequence[np.ndarray[Any, Any]],
) -> Caller:
    outputs = arrays[len(arrays) - len(expected) :]
    caller = Caller(
        workspace=workspace.address if size else None,
        bytes=size,
        threads=count,
        calls=FEWEST_CALLS - 1,
        meetings=MEETINGS,
        few=FEW_MEETINGS,
        seconds=MEETING_S,
        patience=MEETING_PATIENCE_S,
        outputs=len(outputs),
    )
    for k, array in enumerate(arrays):
        caller.arrays[k] = array.address
    for k, (output, bits) in enumerate(zip(outputs, expected, strict=True)):
        caller.result[k], caller.expected[k], caller.size[k] = output.address, bits.ctypes.data, bits.nbytes
    return caller


def after_fork(trial: Trial) -> None:
    trial.stage.call("middle", TOGETHER)
    ended = in_fork(lambda _: trial.stage.call("middle", TOGETHER), PATIENCE_S + 20 * trial.call_s)
    if ended.late:
        raise Refused("timeout", "the call does not return")
    ended.raise_what_it_met()


#: Execution -> its function, in an order in which arrays are seldom moved.
RUN: Mapping[str, Callable[[Trial], None]] = {
    "guard_pages": guard_pages,
    "read_only": read_only,
    "workspace": workspace,
    "threads": threads,
    "alignment": alignment,
    "float_control": float_control,
    "kept_for_caller": kept_for_caller,
    "repeated": repeated,
    "two_callers": two_callers,
    "after_fork": after_fork,
    "handed_over": handed_over,
    "own_memory": own_memory,
    "unloaded": unloaded,
    "no_threads": no_threads,
}


def put_through(
    kernel: Kernel,
    memory: Memory,
    expected: list[np.ndarray[Any, Any]],
    call_s: float,
    job: Mapping[str, Any],
) -> list[str]:
    """Run the executions of the job; the names of those that ran, all of which the kernel passed.

    Those that such a kernel, or this machine, cannot do are left out. :class:`Refused` when one fails.
    """
    names = [n for n in RUN if n in job["executions"] and _possible(n, kernel, job)]
    size = sum(bytes_of(shape, dtype) for _, shape, dtype in (*job["inputs"], *job["outputs"]))
    if not names or 4 * size > job["memory_bytes"]:
        return []
    trial = Trial(kernel, Stage(kernel, memory, expected, job), job, call_s)
    ended = in_fork(lambda tell: _run_all(replace(trial, tell=tell), names), 0.7 * job["timeout_s"])
    if ended.refused or ended.late or ended.signal:
        _explain(ended, trial)
    return ended.done


def _possible(name: str, kernel: Kernel, job: Mapping[str, Any]) -> bool:
    if name in HARNESSED and (
        not os.path.exists(_callers(job)) or len(job["inputs"]) + len(job["outputs"]) > MOST_ARRAYS
    ):
        return False
    return kernel.executions is None or name in kernel.executions


def _run_all(trial: Trial, names: Sequence[str]) -> None:
    for name in names:
        trial.tell("begun", name)
        RUN[name](trial)
        if "float_control" in names:
            differs = changed(trial.kernel.floats, trial.kernel.float_state())
            if differs:
                trial.tell("begun", "float_control")
                raise Refused("wrong_result", f"the kernel leaves them different: {differs}")
        trial.tell("done", name)


def _explain(ended: Ended, trial: Trial) -> None:
    """Raise the fault, if there is one, with the execution in which it happened."""
    words = EXECUTIONS[ended.begun] if ended.begun else "executions"
    if ended.threads > 1 and ended.signal:
        words += f": on {ended.threads} threads"
    if ended.out_of_bounds and ended.begun in ("guard_pages", "threads"):
        where = _where_it_leaves(trial.stage, ended.threads)
        raise Refused("wrong_result", f"{words}: the kernel reads or writes outside of its arrays{where}")
    try:
        ended.raise_what_it_met()
    except Refused as refused:
        raise Refused(refused.reason, f"{words}: {refused.detail}") from None


def _where_it_leaves(stage: Stage, threads: int) -> str:
    """The guard page that a kernel runs into, found by one call for each; "" for none."""
    for room in stage.rooms:
        for place, side in (("end", "after"), ("start", "before")):
            ended = in_fork(lambda _: stage.call({room: place}, threads), PATIENCE_S)  # noqa: B023
            if ended.out_of_bounds:
                return f", {side} {room.name}"
    return ""

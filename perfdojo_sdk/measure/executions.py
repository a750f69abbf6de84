"""Calls of one kernel that show faults which a plain call hides; a part of the child process.

All calls happen in one fork of the child, which reports when an execution begins and ends, so that a crash
or hang can be attributed.
"""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from perfdojo_sdk.core.interface import EXECUTIONS, HARNESSED, WORKSPACE_TOO_SMALL
from perfdojo_sdk.measure.callers import (
    MOST_ARRAYS,
    handed_over,
    harness_file,
    kept_for_caller,
    two_callers,
)
from perfdojo_sdk.measure.forked import Ended, in_fork
from perfdojo_sdk.measure.guard_pages import CACHE_LINE, untouched
from perfdojo_sdk.measure.kernel_calls import (
    Kernel,
    Memory,
    Refused,
    bytes_of,
    check_status,
    compare,
    outputs_of,
)
from perfdojo_sdk.measure.no_threads import forbid_threads
from perfdojo_sdk.measure.own_memory import Segment
from perfdojo_sdk.measure.process_state import Used, changed
from perfdojo_sdk.measure.thread_counts import threads
from perfdojo_sdk.measure.trial import (
    ALONE,
    CALLS,
    FEWEST_CALLS,
    MORE,
    PATIENCE_S,
    SOME_S,
    TOGETHER,
    Arguments,
    Trial,
    array_like,
    loaded_anew,
    other_inputs,
)

#: Number of calls after which set-up is complete, so that neither threads nor memory may grow.
SETTLED = 10
#: Most threads of a kernel that is unloaded.
SEVERAL = 5
#: Seconds after which a kernel's threads that have nothing to do are asleep.
ASLEEP_S = 0.005


def guard_pages(trial: Trial) -> None:
    for where in ("start", "end"):
        trial.arguments.call(where)
        trial.arguments.check_inputs()


def read_only(trial: Trial) -> None:
    """Call with read-only inputs. Callers may share inputs between threads or map them from a file, so a
    kernel must not even change one and restore it."""
    arguments = trial.arguments
    size = arguments.arrange("middle", ALONE)
    for array in arguments.inputs:
        array.allow(mmap.PROT_READ)
    status = arguments.kernel.enter(arguments.arrays, arguments.workspace, size, ALONE)
    for array in arguments.inputs:
        array.allow(mmap.PROT_READ | mmap.PROT_WRITE)
    check_status(status)
    arguments.check()


def alignment(trial: Trial) -> None:
    """Call with arrays at every offset in a cache line, as far as time allows: each array at another offset,
    then all at the same one, then all but one."""
    arguments, end = trial.arguments, time.monotonic() + SOME_S
    arrays = arguments.with_workspace if arguments.kernel.workspace_bytes(ALONE) else arguments.arrays
    step = max(array.step for array in arguments.arrays)
    for turn in range(CACHE_LINE // min(array.step for array in arguments.arrays)):
        arguments.call("odd", turn=turn)
        one, other = step * (turn + 1) % CACHE_LINE, step * (turn + 3) % CACHE_LINE
        arguments.call(dict.fromkeys(arrays, one))
        for chosen in arrays if len(arrays) > 2 else ():
            if time.monotonic() < end:
                arguments.call({array: other if array is chosen else one for array in arrays})
        if time.monotonic() > end:
            break


def shared_inputs(trial: Trial) -> None:
    """Give one array for two inputs: the results are those for two equal arrays."""
    arguments = trial.arguments
    for one, other in _alike(trial.job["inputs"]):
        size = arguments.arrange("middle", ALONE)
        arrays = arguments.arrays
        if arrays[other].bits.all() and not arrays[one].bits.all():
            one, other = other, one  # where an array has no zeros, something may be divided by it
        arrays[other].bytes[:] = arrays[one].bytes
        check_status(arguments.kernel.enter(arrays, arguments.workspace, size, ALONE))
        expected = outputs_of(arguments)
        for array in (*arguments.outputs, arguments.workspace):
            array.poison(1)
        shared = [arrays[one] if number == other else array for number, array in enumerate(arrays)]
        check_status(arguments.kernel.enter(shared, arguments.workspace, size, ALONE))
        for array in arguments.with_workspace:
            array.check_guards()
        compare(arguments, expected, "differ from those for two equal arrays")
        arrays[other].bytes[:] = arguments.memory.inputs[other].bytes


def in_place(trial: Trial) -> None:
    """Give an array that is input and output as both: the results are those for two arrays."""
    arguments = trial.arguments
    numbers = {array.name: number for number, array in enumerate(arguments.inputs)}
    both = {numbers[output.name]: output for output in arguments.outputs if output.name in numbers}
    for count in (ALONE, TOGETHER) if both else ():
        size, arrays = arguments.arrange("middle", count), arguments.arrays
        for number, output in both.items():
            output.bytes[:] = arguments.memory.inputs[number].bytes
            arrays[number] = output
        check_status(arguments.kernel.enter(arrays, arguments.workspace, size, count))
        arguments.check()


def _alike(inputs: Sequence[Sequence[Any]]) -> list[tuple[int, int]]:
    """Numbers of two neighbours among inputs of one shape and dtype."""
    alike: dict[tuple[Any, ...], list[int]] = {}
    for number, (_, shape, dtype) in enumerate(inputs):
        alike.setdefault((*shape, dtype), []).append(number)
    return [pair for numbers in alike.values() for pair in pairwise(numbers)]


def workspace(trial: Trial) -> None:
    """Call with a larger workspace than asked for, also where none is, then with too small ones. (All other
    calls give exactly as many bytes as the kernel asks for.)"""
    arguments = trial.arguments
    size = arguments.arrange("middle", ALONE, less=-MORE)
    check_status(arguments.kernel.enter(arguments.arrays, arguments.workspace, size, ALONE))
    arguments.check()
    for count in dict.fromkeys((ALONE, TOGETHER, *arguments.counts[1:2])):
        if arguments.kernel.workspace_bytes(count):
            _too_little(arguments, count, 1)
    if whole := arguments.kernel.workspace_bytes(ALONE):
        _too_little(arguments, ALONE, whole)


def _too_little(arguments: Arguments, threads: int, less: int) -> None:
    size = arguments.arrange("end", threads, less=less)
    status = arguments.kernel.enter(arguments.arrays, arguments.workspace, size, threads)
    asked = f"it asks for {size + less} bytes on {threads} threads and gets {size}"
    if status != WORKSPACE_TOO_SMALL:
        raise Refused(
            "wrong_result", f"{asked}: the kernel returned {status} instead of {WORKSPACE_TOO_SMALL}"
        )
    for array in (*arguments.outputs, arguments.workspace):
        array.check_guards()
        if array.bits.size and not untouched(array):
            raise Refused("wrong_result", f"{asked}: the kernel wrote into {array.name} all the same")


def float_control(trial: Trial) -> None:
    """Call the kernel once; the floating-point state is compared after every execution anyway."""
    trial.arguments.call("middle", TOGETHER)


def repeated(trial: Trial) -> None:
    arguments, kernel = trial.arguments, trial.kernel
    arguments.arrange("middle", TOGETHER)
    size = {n: kernel.workspace_bytes(n) for n in (ALONE, TOGETHER)}
    begin, settled = time.monotonic(), Used()
    for call in range(1, CALLS + 1):
        for output in arguments.outputs:
            output.poison(call % 2)
        count = ALONE if call % 2 else TOGETHER
        try:
            check_status(kernel.enter(arguments.arrays, arguments.workspace, size[count], count))
            arguments.check()
        except Refused as refused:
            raise Refused(refused.reason, f"call {call}: {refused.detail}") from None
        if call == SETTLED:
            settled = kernel.used()
        if call >= FEWEST_CALLS and time.monotonic() - begin > SOME_S:
            break
    arguments.check_inputs()
    if call == CALLS:
        grown = kernel.used().beyond(settled)
        if grown:
            raise Refused("memory", f"{CALLS - SETTLED} calls leave {grown} behind")


def own_memory(trial: Trial) -> None:
    """Compare the kernel's static variables before and after a call on one thread: a call must not change
    them, since two callers would share them."""
    arguments, segments = trial.arguments, trial.kernel.static_memory()
    arguments.call("middle")
    before = [segment.content() for segment in segments]
    with other_inputs(arguments) as inputs:
        outputs, size = [array_like(array) for array in arguments.outputs], arguments.arrange("middle", ALONE)
        check_status(trial.kernel.enter([*inputs, *outputs], arguments.workspace, size, ALONE))
    written = sum(map(Segment.differences, segments, before))
    if written:
        raise Refused("wrong_result", f"a call on other inputs leaves other values in {written} bytes")


def unloaded(trial: Trial) -> None:
    """Unload the kernel after a call, as a rebuilt library does: no thread may stay in its code."""
    ended = in_fork(lambda _: _unload(trial), PATIENCE_S + 20 * trial.call_s)
    ended.raise_what_it_met()


def _unload(trial: Trial) -> None:
    before = Used.now()
    kernel, arguments = loaded_anew(trial), trial.arguments
    count = max(c for c in (TOGETHER, *arguments.counts) if c <= SEVERAL)
    size = arguments.arrange("middle", count)
    check_status(kernel.enter(arguments.arrays, arguments.workspace, size, count))
    arguments.check()
    time.sleep(ASLEEP_S)
    kernel.unload()
    if left := Used.now().threads - before.threads:
        raise Refused("runtime", f"{left} threads stay in code that is gone")


def no_threads(trial: Trial) -> None:
    """Call where no thread can be started: the caller has to do all of the work."""
    ended = in_fork(lambda _: _alone(trial), PATIENCE_S + 20 * trial.call_s)
    if ended.late:
        raise Refused("timeout", "the call does not return")
    ended.raise_what_it_met()


def _alone(trial: Trial) -> None:
    loaded_anew(trial)
    if forbid_threads():
        trial.arguments.call("middle", TOGETHER)


def after_fork(trial: Trial) -> None:
    trial.arguments.call("middle", TOGETHER)
    ended = in_fork(lambda _: trial.arguments.call("middle", TOGETHER), PATIENCE_S + 20 * trial.call_s)
    if ended.late:
        raise Refused("timeout", "the call does not return")
    ended.raise_what_it_met()


#: Execution -> its function, in an order in which arrays are seldom moved.
RUN: Mapping[str, Callable[[Trial], None]] = {
    "guard_pages": guard_pages,
    "read_only": read_only,
    "shared_inputs": shared_inputs,
    "in_place": in_place,
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
    trial = Trial(kernel, Arguments(kernel, memory, expected, job), job, call_s)
    ended = in_fork(lambda tell: _run_all(replace(trial, tell=tell), names), 0.7 * job["timeout_s"])
    if ended.refused or ended.late or ended.signal:
        _explain(ended, trial)
    return ended.done


def _possible(name: str, kernel: Kernel, job: Mapping[str, Any]) -> bool:
    if name in HARNESSED and (
        not os.path.exists(harness_file(job)) or len(job["inputs"]) + len(job["outputs"]) > MOST_ARRAYS
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
        where = _where_it_leaves(trial.arguments, ended.threads)
        raise Refused("wrong_result", f"{words}: the kernel reads or writes outside of its arrays{where}")
    try:
        ended.raise_what_it_met()
    except Refused as refused:
        raise Refused(refused.reason, f"{words}: {refused.detail}") from None


def _where_it_leaves(arguments: Arguments, threads: int) -> str:
    """The guard page that a kernel runs into, found by one call for each; "" for none."""
    for array in arguments.with_workspace:
        for place, side in (("end", "after"), ("start", "before")):
            ended = in_fork(lambda _: arguments.call({array: place}, threads), PATIENCE_S)  # noqa: B023
            if ended.out_of_bounds:
                return f", {side} {array.name}"
    return ""

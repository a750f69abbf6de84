"""Executions in which C calls the kernel: two callers, results for another thread, the caller's registers.

``callers_c.py`` has the C.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from perfdojo_sdk.measure.forked import in_fork
from perfdojo_sdk.measure.guard_pages import CACHE_LINE, FencedArray
from perfdojo_sdk.measure.kernel_calls import Guarded, Refused, check_status
from perfdojo_sdk.measure.process_state import changed, surroundings, threads_that_take_signals
from perfdojo_sdk.measure.trial import (
    ALONE,
    FEWEST_CALLS,
    PATIENCE_S,
    SOME_S,
    TOGETHER,
    Arguments,
    Trial,
    array_like,
    loaded_anew,
    other_inputs,
)

#: Seconds for two callers to run at once; other processes may keep them from it.
MEETING_S = 0.05
#: How often two callers should overlap in the kernel; the fewest overlaps to wait for, and seconds to wait
#: for them if other work keeps the callers from running at once.
MEETINGS, FEW_MEETINGS, MEETING_PATIENCE_S = 100, 20, 0.25
#: How often two callers should be the first of a kernel, and seconds for that.
FIRST_MEETINGS, FIRST_MEETINGS_S = 200, 0.05
#: Most times that another thread waits for results, a few for each cache line of them; seconds for that, and
#: seconds if other work keeps the two threads from running at once.
MOST_HANDED, HANDING_S, HANDING_PATIENCE_S = 2000, 0.2, 0.6
#: Most arrays that the harness of two callers supports.
MOST_ARRAYS = 64


def two_callers(trial: Trial) -> None:
    """Call from two threads at once, with different arrays and inputs. Results are compared in C after each
    call, so that the two hardly ever wait for each other."""
    first, kernel = trial.arguments, trial.kernel
    first.call("middle")
    with other_inputs(first) as inputs:
        outputs, alone = ([array_like(array) for array in first.outputs] for _ in range(2))
        workspaces = first.workspace, array_like(first.workspace)
        size = kernel.workspace_bytes(ALONE)
        workspaces[1].place("middle", 0, (size,))
        check_status(kernel.enter([*inputs, *alone], workspaces[1], size, ALONE))
        arrays = [*first.inputs, *first.outputs], [*inputs, *outputs]
        expected = first.expected, [array.bits for array in alone]
        for count in (ALONE, TOGETHER) if trial.call_s < SOME_S / 10 else (TOGETHER,):
            size = kernel.workspace_bytes(count)
            for array in workspaces:
                array.place("middle", 0, (size,))
            callers = (Caller * 2)(*map(partial(_caller, count, size), arrays, workspaces, expected))
            _harness(trial).pd_two_callers(kernel.entry, callers)
            for caller in callers:
                _check_caller(caller, first, "{} is not what the caller gets who calls alone")
            for array in (*first.outputs, *outputs, *workspaces):
                array.check_guards()
        size = kernel.workspace_bytes(ALONE)
        for array in workspaces:
            array.place("middle", 0, (size,))
        callers = (Caller * 2)(*map(partial(_caller, ALONE, size), arrays, workspaces, expected))
        for caller in callers:
            caller.calls, caller.meetings = 1, 0
        ended = in_fork(lambda _: _first_callers(trial, callers), PATIENCE_S + 20 * trial.call_s)
        ended.raise_what_it_met()


def _first_callers(trial: Trial, callers: ctypes.Array[Caller]) -> None:
    """Load the kernel anew, again and again, and let two callers be its first: neither may use what the other
    has set up by half."""
    harness, begin = _harness(trial), time.monotonic()
    for _ in range(FIRST_MEETINGS):
        harness.pd_two_callers(loaded_anew(trial).entry, callers)
        for caller in callers:
            _check_caller(caller, trial.arguments, "{} is another if two callers are a kernel's first")
        if time.monotonic() - begin > FIRST_MEETINGS_S:
            break


def handed_over(trial: Trial) -> None:
    """Let another thread read the results as soon as the caller reports the end of the call: it shows stores
    that are not yet visible to other processors."""
    arguments = trial.arguments
    size = arguments.arrange("middle", ALONE)
    caller = _caller(ALONE, size, arguments.arrays, arguments.workspace, arguments.expected)
    lines = sum(output.bits.nbytes for output in arguments.outputs) // CACHE_LINE
    caller.meetings = min(MOST_HANDED, max(MEETINGS, 8 * lines))
    caller.few, caller.seconds, caller.patience = caller.meetings // 4, HANDING_S, HANDING_PATIENCE_S
    _harness(trial).pd_hand_over(trial.kernel.entry, ctypes.byref(caller))
    _check_caller(caller, arguments, "what a thread sees of {} that waited for the call is not its result")


def kept_for_caller(trial: Trial) -> None:
    arguments = trial.arguments
    for count in (ALONE, TOGETHER):
        size = arguments.arrange("middle", count)
        caller = _caller(count, size, arguments.arrays, arguments.workspace, arguments.expected)
        _harness(trial).pd_keep(trial.kernel.entry, ctypes.byref(caller))
        check_status(caller.status)
        if caller.wrong:
            raise Refused("wrong_result", "the kernel changes a register that is its caller's")
        if differs := changed(trial.kernel.around, surroundings()):
            raise Refused("wrong_result", f"the kernel leaves them different: {differs}")
        arguments.check()
    if threads_that_take_signals():
        raise Refused("wrong_result", "threads that the kernel starts take signals, which are its caller's")


def _harness(trial: Trial) -> ctypes.CDLL:
    return ctypes.CDLL(harness_file(trial.job))


def harness_file(job: Mapping[str, Any]) -> str:
    """The file of the callers in C, as a full path: a kernel may have changed the current folder."""
    return os.path.join(job["folder"], "callers.so")


def _check_caller(caller: Caller, arguments: Arguments, says: str) -> None:
    check_status(caller.status)
    if caller.wrong:
        raise Refused("wrong_result", says.format(arguments.outputs[caller.wrong - 1].name))


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


def _caller(
    count: int,
    size: int,
    arrays: Sequence[Guarded],
    workspace: FencedArray,
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

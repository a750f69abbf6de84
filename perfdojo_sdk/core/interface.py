"""The agreement between a compiled kernel and its callers, in any language.

``int SYMBOL(const T *in..., T *out..., void *workspace, size_t bytes, int threads)``; arrays start at a
multiple of their element's size, the workspace anywhere, unless a target asks for more. An array that is an
input and an output has a parameter among each. With one address for both it is changed in place; else the
kernel first copies the one to the other.
"""

from __future__ import annotations

#: Most threads that a call may ask for. Fewer than one counts as one.
MAX_THREADS = 1024

#: Statuses that a call returns instead of 0; it has then written nothing.
WORKSPACE_TOO_SMALL = 1
OTHER_PROCESSOR = 2
TOO_MANY_THREADS = 3

#: Ways to call a kernel that show faults which a plain call hides: name -> description. In each of them a
#: correct kernel gives the bits of a plain call on one thread.
EXECUTIONS = {
    "guard_pages": "inaccessible pages right before and right after each array",
    "read_only": "inputs in memory that cannot be written",
    "alignment": "arrays and workspace aligned to their elements and no more",
    "shared_inputs": "one array given for two inputs of one shape",
    "in_place": "one array given as input and as output, where it is both",
    "workspace": "a workspace larger than the kernel asks for, and one byte less than that",
    "float_control": "how its thread computes with floats, before and after the call",
    "threads": "other numbers of threads",
    "repeated": "fifty calls in a row",
    "two_callers": "two callers at once",
    "after_fork": "a call in a process that was forked after a call",
    "handed_over": "results that another thread looks at as soon as the call is over",
    "kept_for_caller": "registers, and what the process has, which a function keeps for its caller",
    "own_memory": "memory of its own, which no call on one thread changes",
    "unloaded": "unloaded right after a call",
    "no_threads": "where no thread can be started",
}

#: Executions in which C calls the kernel, not Python.
HARNESSED = frozenset({"two_callers", "handed_over", "kept_for_caller"})
#: Executions that are possible only if the kernel runs in the process that calls it.
IN_PROCESS = HARNESSED | {"after_fork", "unloaded", "no_threads"}

"""The child process: runs programs on the compiled core and knows nothing else.

Started as a plain script with the job on its standard input: one line of JSON, then the structures of
interface.h as bytes. It fills the pointers in, calls the core, and writes structures and memory to its
standard output. Only the standard library is imported, so that a start costs little.
"""

import ctypes
import json
import os
import resource
import signal
import sys


def main() -> None:
    source = sys.stdin.buffer
    # Not sys.stdout.buffer: with PYTHONUNBUFFERED it is the bare file, of whose write to a pipe a signal that
    # stops this process leaves a part undone.
    sink = os.fdopen(os.dup(1), "wb")
    job = json.loads(source.readline())
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # die with the parent
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (job["seconds"], job["seconds"]))
    resource.setrlimit(resource.RLIMIT_AS, (job["bytes"], job["bytes"]))
    core = ctypes.CDLL(job["core"])
    program = ctypes.create_string_buffer(source.read(job["program"]), job["program"])
    code = ctypes.create_string_buffer(source.read(job["code"]), job["code"])
    _point(program, code)
    for _ in range(job["runs"]):
        state = ctypes.create_string_buffer(source.read(job["state"]), job["state"])
        memory = ctypes.create_string_buffer(source.read(job["memory"]), job["memory"])
        _point(state, memory)
        core.snitch_run(ctypes.byref(program), ctypes.byref(state))
        sink.write(state.raw + memory.raw)
    sink.flush()


def _point(structure: "ctypes.Array[ctypes.c_char]", target: "ctypes.Array[ctypes.c_char]") -> None:
    """Set the first field of a structure, which is a pointer."""
    ctypes.c_void_p.from_buffer(structure).value = ctypes.addressof(target)


if __name__ == "__main__":
    main()

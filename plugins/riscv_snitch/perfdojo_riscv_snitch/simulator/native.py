"""The compiled core, as a library and as a program of its own.

Both are built from the C beside this file on first use, and kept by the hash of their source.
"""

from __future__ import annotations

import ctypes
import hashlib
from functools import cache
from importlib import resources
from pathlib import Path

from perfdojo_sdk.core.errors import UnavailableError
from perfdojo_sdk.hookspecs.types import Failure
from perfdojo_sdk.measure.kept_files import cache_folder, kept_code
from perfdojo_sdk.measure.machine import machine
from perfdojo_sdk.measure.toolchain import Toolchain, find_toolchain

#: Flags of the C compiler: no contraction, because hostfloat.h computes rounding errors; inlining, because no
#: function of the core is replaced when it is loaded.
_FLAGS = ("-O3", "-fno-semantic-interposition", "-march=native", "-std=gnu11", "-ffp-contract=off")

#: enum Counter of interface.h, in its order.
COUNTERS = (
    "cycles",
    "instructions",
    "fpu_instructions",
    "fp_memory_instructions",
    "flops",
    "core_load",
    "core_fp_result",
    "core_muldiv",
    "core_offload_full",
    "core_consistency",
    "core_memory",
    "core_fence",
    "fp_idle",
    "fp_dependency",
    "fp_stream",
    "fp_pipeline",
    "fp_memory",
    "conflict_core",
    "conflict_mover0",
    "conflict_mover1",
    "conflict_mover2",
    "fp_switches",
    "idle_setup",
    "idle_wait",
    "stream_conflict",
)

#: enum Late of interface.h.
LATE_STREAMS, LATE_ACCESSES = 1, 2

_Counters = ctypes.c_uint64 * len(COUNTERS)


class TraceRecord(ctypes.Structure):
    """struct TraceRecord of interface.h."""

    _fields_ = [
        ("cycle", ctypes.c_uint64),
        ("pc", ctypes.c_uint32),
        ("source", ctypes.c_uint8),
        ("repeated", ctypes.c_uint8),
    ]


class NativeProgram(ctypes.Structure):
    """struct SnitchProgram of interface.h."""

    _fields_ = [
        ("code", ctypes.POINTER(ctypes.c_uint32)),
        ("words", ctypes.c_uint32),
        ("base", ctypes.c_uint32),
        ("entry", ctypes.c_uint32),
        ("tracing", ctypes.c_uint32),
        ("max_cycles", ctypes.c_uint64),
    ]


class NativeState(ctypes.Structure):
    """struct SnitchState of interface.h."""

    _fields_ = [
        ("memory", ctypes.c_void_p),
        ("x", ctypes.c_uint32 * 32),
        ("f", ctypes.c_uint64 * 32),
        ("fcsr", ctypes.c_uint32),
        ("used", ctypes.c_uint32),
        ("late", ctypes.c_uint32),
        ("unstored", ctypes.c_uint32),
        ("left", ctypes.c_uint32),
        ("error", ctypes.c_uint32),
        ("error_pc", ctypes.c_uint32),
        ("error_detail", ctypes.c_uint32),
        ("error_cycle", ctypes.c_uint64),
        ("instructions", ctypes.c_uint64),
        ("cycle_reads", ctypes.c_uint64),
        ("first_read", ctypes.c_uint64),
        ("second_read", ctypes.c_uint64),
        ("counters", _Counters),
        ("at_first_read", _Counters),
        ("at_second_read", _Counters),
        ("trace", ctypes.POINTER(TraceRecord)),
        ("trace_length", ctypes.c_uint64),
        ("trace_room", ctypes.c_uint64),
    ]


@cache
def core() -> ctypes.CDLL:
    """The compiled core. UnavailableError without a C compiler (PD-M001) or if it fails (PD-M002)."""
    library = ctypes.CDLL(str(core_path()))
    library.snitch_run.argtypes = [ctypes.POINTER(NativeProgram), ctypes.POINTER(NativeState)]
    library.snitch_run.restype = ctypes.c_int
    library.snitch_free_trace.argtypes = [ctypes.POINTER(NativeState)]
    library.snitch_free_trace.restype = None
    return library


@cache
def core_path() -> Path:
    """The file of the compiled core, which is made if it is not there; errors as for :func:`core`."""
    return _built(find_toolchain())


@cache
def child_path() -> Path:
    """The same as a program that runs a job from its standard input (``core/child.c``)."""
    return _built(find_toolchain(), program=True)


def sources(program: bool = False) -> dict[str, str]:
    """File name -> text of the core's C, as one unit; of a ``program``, with the unit around it.

    The units of the core call one another in every cycle; compiled as one, the compiler inlines
    across them with any toolchain, link-time optimisation or not.
    """
    folder = resources.files(__package__).joinpath("core")
    files = sorted((f for f in folder.iterdir() if f.name.endswith((".c", ".h"))), key=lambda f: f.name)
    texts = {f.name.replace(".c", "_c.h"): f.read_text(encoding="utf-8") for f in files}
    child = texts.pop("child_c.h")
    units = (name for name in texts if name.endswith("_c.h"))
    texts["snitch.c"] = "".join(f'#include "{name}"\n' for name in units)
    return {**texts, "child.c": child} if program else texts


def _built(toolchain: Toolchain, program: bool = False) -> Path:
    """The shared object, or the program, compiled unless the cache has one that can be trusted."""
    texts = sources(program)
    # The core uses this processor's instructions: no other kind of processor may load it.
    processor = (machine().architecture, sorted(machine().flags))
    key = repr((texts, toolchain.describe(_FLAGS), processor))
    digest = hashlib.sha256(key.encode()).hexdigest()[:16]
    stem, suffix = (f"snitch-child-{digest}", "") if program else (f"snitch-core-{digest}", ".so")

    def compiled() -> bytes:
        made = toolchain.compile(texts, _FLAGS, program=program)
        if isinstance(made, Failure):
            raise UnavailableError(
                "PD-M002",
                "the simulator's core does not compile",
                why=made.detail,
                hint="set PERFDOJO_CC to a gcc or clang",
            )
        return made.content

    return kept_code(cache_folder(), stem, suffix, compiled)

"""Emulation of kernels for blocks and warps on this machine's processor: their results, without times.

The sources are unchanged; in place of the dialect's ``pd_runtime.h`` they are compiled with
``pd_emulated.h``, which runs each thread as a fiber and detects conflicts between threads.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from perfdojo_sdk.codegen.c import support_text
from perfdojo_sdk.core.interface import EXECUTIONS, IN_PROCESS
from perfdojo_sdk.hookspecs.services import Probe
from perfdojo_sdk.hookspecs.types import Artifact, Failure, KernelSource, Measurement, RunRequest
from perfdojo_sdk.measure.native_runner import NativeRunner
from perfdojo_sdk.measure.toolchain import probe_compiler

#: C++ without its library: any C compiler with a C++ front end will do.
FLAGS = (
    "-x", "c++", "-std=gnu++17", "-O1", "-fno-exceptions", "-fno-rtti", "-fno-threadsafe-statics",
    "-ffp-contract=off", "-fno-math-errno", "-w",
    # Uninitialised variables hold a pattern, not zero.
    "-ftrivial-auto-var-init=pattern",
)  # fmt: skip

#: Alignment in bytes that callers guarantee for arrays, which wide accesses need.
ARRAY_ALIGNMENT = 16
#: The executions that make sense: not those about threads, callers, forks and memory of the host.
EXECUTED = frozenset(EXECUTIONS) - {"threads", "own_memory"} - IN_PROCESS

#: Status of a call -> what it did wrong. The numbers are those of pd_emulated.h.
FAULTS = {
    101: "an index is outside of its array",
    102: "a cell is read that nobody wrote",
    103: "a data race: two threads use a cell, one of them writes, and no barrier stands between",
    104: "a divergent barrier: not all threads of the block (or lanes of the warp) reach it",
    105: "a wide access at an address that is no multiple of its size",
}
_STATUS = re.compile(r"the kernel returned (\d+)")


@dataclass(frozen=True)
class EmulatedRunner:
    """Compiles for the processor and runs in a child process. Gives outputs and no times."""

    warp: int = 32
    checked: bool = True
    """Watch every access to shared memory and to arrays that are written; slower."""
    native: NativeRunner = field(default_factory=lambda: NativeRunner(FLAGS, array_alignment=ARRAY_ALIGNMENT))

    def compile(self, source: KernelSource) -> Artifact | Failure:
        support = {**source.support, "pd_runtime.h": support_text("pd_emulated.h")}
        units = {
            (f"{name}.c" if name.endswith((".cu", ".hip")) else name): text for name, text in support.items()
        }
        head = f"#define PD_WARP {self.warp}\n" + ("#define PD_CHECKED 1\n" if self.checked else "")
        code = {name: head + text for name, text in units.items() if name.endswith(".c")}
        return self.native.compile(replace(source, code=head + source.code, support={**units, **code}))

    def device(self) -> str:
        return f"emulation of {self.warp} lanes a warp on {self.native.device()}"

    def run(self, artifact: Artifact, request: RunRequest) -> Measurement | Failure:
        return explained(self.native.run(artifact, _possible(request)))

    def run_together(self, artifact: Artifact, requests: Sequence[RunRequest]) -> list[Measurement | Failure]:
        plain = [_possible(request) for request in requests]
        return [explained(result) for result in self.native.run_together(artifact, plain)]

    def run_sets(self, artifact: Artifact, request: RunRequest, sets: int) -> Measurement | Failure:
        return explained(self.native.run_sets(artifact, _possible(request), sets))


def _possible(request: RunRequest) -> RunRequest:
    """The request that emulation can fulfil: no times, on one thread of the host."""
    executions = tuple(name for name in request.executions if name in EXECUTED)
    return replace(request, repeats=0, executions=executions, thread_counts=())


def explained(result: Measurement | Failure) -> Measurement | Failure:
    """The result, with a failure by a status of the emulation explained in words."""
    if isinstance(result, Measurement):
        return replace(result, provenance="simulated")
    found = _STATUS.search(result.detail)
    if result.reason == "runtime" and found and int(found[1]) in FAULTS:
        return Failure("wrong_result", FAULTS[int(found[1])])
    return result


def probe_emulation() -> Probe:
    """The doctor's probe of a C++ compiler."""
    found = probe_compiler()
    if not found.ok:
        return found
    source = KernelSource("pd_probe", (), (), "template <class T> T same(T x) { return x; }\n")
    made = NativeRunner(FLAGS).compile(source)
    if isinstance(made, Failure):
        remedy = "apt install g++, or: pip install ziglang"
        return Probe("C++ compiler", "", made.detail.splitlines()[0] if made.detail else "", remedy)
    return Probe("C++ compiler", found.found)

"""The child process of an estimate: counts a kernel's instructions and adds up their costs, without
results."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from pathlib import Path
from typing import Any

from perfdojo_arm_neon.emulator.elf import ElfError, read
from perfdojo_arm_neon.emulator.machine import Crashed, Ended
from perfdojo_arm_neon.estimate.blocks import price
from perfdojo_arm_neon.estimate.dry_run import count
from perfdojo_sdk.measure.kernel_calls import bytes_of
from perfdojo_sdk.measure.worker import leave_result, read_job


def estimate(job: dict[str, Any]) -> dict[str, Any]:
    """Estimate the kernel of a job; the result's entry with cycles and instruction counts, or the failure."""
    try:
        loaded = read(Path("k0.so").read_bytes())
        sizes = [bytes_of(spec[1], spec[2]) for spec in (*job["inputs"], *job["outputs"])]
        counter = ctypes.CDLL("./harness.so")
        counted = count(loaded, job["symbols"][0], sizes, job["threads"], counter)
    except (ElfError, KeyError, RuntimeError) as error:
        return {"failure": ("runtime", f"cannot run {job['symbols'][0]}: {error}"), "details": {}}
    threads = [price(loaded, counts) for counts in counted.threads]
    slowest = max(threads, key=lambda found: found.cycles)
    details = {
        "cycles": slowest.cycles,
        **{f"cycles, {name}": cycles for name, cycles in sorted(slowest.cycles_by_limit.items())},
        "instructions": float(sum(found.instructions for found in threads)),
        "vector_instructions": float(sum(found.vector_instructions for found in threads)),
        "parallel_loops": float(counted.parallel_loops),
    }
    return {"failure": None, "details": details}


def main(folder: str) -> None:
    job = read_job(folder)
    try:
        found = estimate(job)
    except Crashed as crashed:
        print(crashed, file=sys.stderr, flush=True)
        os.kill(os.getpid(), signal.SIGABRT)
    except Ended:
        os._exit(0)
    leave_result({"elapsed_ns": 0, "cold": False, "kernels": [{**found, "seconds": ()}]})


if __name__ == "__main__":
    main(sys.argv[1])
    os._exit(0)

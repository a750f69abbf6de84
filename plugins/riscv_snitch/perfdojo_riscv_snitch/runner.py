"""The runner: kernels on the simulator, in a child process with limits; cycles are the time.

A call is timed as the core's own benchmarks are: from the first instruction of the kernel to the fence after
its last. Of the SDK's executions, those of :mod:`perfdojo_riscv_snitch.executions` are run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from perfdojo_riscv_snitch import cluster
from perfdojo_riscv_snitch.assembly import assemble
from perfdojo_riscv_snitch.calls import Call, Outcome, call_kernel, call_on_sets, execute, on_model
from perfdojo_riscv_snitch.executions import put_through
from perfdojo_riscv_snitch.objects import write_object
from perfdojo_riscv_snitch.simulator import Simulation, simulate
from perfdojo_riscv_snitch.simulator.run import DEFAULT_MAX_CYCLES
from perfdojo_sdk.core.errors import DojoError
from perfdojo_sdk.hookspecs.abilities import Imitation
from perfdojo_sdk.hookspecs.services import SimulatedRun
from perfdojo_sdk.hookspecs.types import Artifact, Failure, KernelSource, Measurement, RunRequest

OBJECT = "object"
TOOLCHAIN = "riscv_snitch assembler (rv32imafd Xssr Xfrep, ilp32d)"


@dataclass(frozen=True)
class SnitchRunner:
    """A runner that assembles and simulates. Plain data, which can be pickled."""

    clock_hz: float = 1e9
    """The clock rate that converts cycles to the seconds of a measurement."""
    imitation: ClassVar[Imitation] = "simulated"

    def compile(self, source: KernelSource) -> Artifact | Failure:
        try:
            content = write_object(assemble(source.code, f"{source.symbol}.s"))
        except DojoError as error:
            return Failure("compile", error.render())
        return Artifact(source.symbol, source.inputs, source.outputs, OBJECT, content, TOOLCHAIN)

    def device(self) -> str:
        if model := cluster.binary():
            return f"one Snitch core complex, by the model {Path(model).name}, TCDM 128 KiB"
        return f"one Snitch core complex, simulated at {self.clock_hz / 1e9:g} GHz, TCDM 128 KiB"

    def simulate(self, program: Path, *, trace: bool = False, max_cycles: int | None = None) -> SimulatedRun:
        """Run a file of assembly or an ELF file, as it is."""
        result = simulate(program, trace=trace, max_cycles=max_cycles or DEFAULT_MAX_CYCLES)
        registers = {name: f"0x{value:08x}" for name, value in result.registers.items()}
        registers |= {name: f"0x{bits:016x}" for name, bits in result.fp_registers.items()}
        counted = {
            "whole run, cycles": float(result.total_cycles),
            "instructions": float(result.instructions),
            "FPU instructions": float(result.fpu_instructions),
            "FP loads and stores": float(result.fp_memory_instructions),
            "FPU utilisation": result.fpu_utilisation,
        }
        lines = tuple(map(str, result.trace))
        return SimulatedRun(result.cycles, counted, result.stalls, registers, lines)

    def run(self, artifact: Artifact, request: RunRequest) -> Measurement | Failure:
        called: tuple[Call, Outcome] | Failure
        if cluster.binary():
            called = call_kernel(artifact, request, on_model)
        else:
            called = call_kernel(artifact, request, execute)
        if isinstance(called, Failure):
            return called
        call, first = called
        seconds = (first.cycles / self.clock_hz,) if request.repeats else ()
        outputs = {p.spec.name: p.of(first.memory) for p in call.outputs}
        executed = () if cluster.binary() else put_through(artifact, request, outputs, first.cycles)
        if isinstance(executed, Failure):
            return executed
        return Measurement(
            outputs if request.want_outputs else None,
            seconds,
            "simulated",
            self.device(),
            request.threads,
            details=figures(first),
            executions=executed,
        )

    @property
    def run_sets(self) -> Callable[[Artifact, RunRequest, int], Measurement | Failure]:
        """The SDK's ``RunsSets``; the model of the hardware is too slow for it."""
        if cluster.binary():
            raise AttributeError("the model of the hardware runs one set at a time")
        return self._run_sets

    def _run_sets(self, artifact: Artifact, request: RunRequest, sets: int) -> Measurement | Failure:
        outputs = call_on_sets(artifact, request, sets)
        if isinstance(outputs, Failure):
            return outputs
        return Measurement(outputs, (), "simulated", self.device(), request.threads)


def figures(result: Outcome) -> dict[str, float]:
    """The figures of a measurement besides the time: cycles, instructions, FPU utilisation (0 to 1)."""
    if not isinstance(result, Simulation):
        return {"snitch.cycles": float(result.cycles)}
    return {
        "snitch.cycles": float(result.cycles),
        "snitch.instructions": float(result.instructions),
        "snitch.fpu_utilisation": result.fpu_utilisation,
    }

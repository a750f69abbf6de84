"""The runner of kernels for 64-bit Arm on another processor: results are emulated, times are estimated.

On an Arm processor the SDK's native runner is used instead, and measures.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar

from perfdojo_arm_neon.crosstools import find_cross_compiler
from perfdojo_arm_neon.estimate.counter import counter_library
from perfdojo_sdk.hookspecs.abilities import Imitation
from perfdojo_sdk.hookspecs.types import (
    Artifact,
    Capabilities,
    Failure,
    KernelSource,
    Measurement,
    RunRequest,
)
from perfdojo_sdk.measure.kernel_calls import bytes_of
from perfdojo_sdk.measure.native_runner import SHARED_OBJECT
from perfdojo_sdk.measure.roofline import bound
from perfdojo_sdk.measure.sandbox import Job, execute

#: Scripts of child processes; they need the emulator, which may be missing here.
EMULATING, ESTIMATING = (
    str(Path(__file__).with_name(room) / "worker.py") for room in ("emulator", "estimate")
)

#: Packages that these import, besides Python's own.
IMPORTED = ("numpy", "unicorn", "perfdojo_sdk", "perfdojo_arm_neon")

FREESTANDING = ("-nostdlib", "-fno-stack-protector")
#: Seconds to wake the threads and to wait for the last of them, as for the SDK's pool on other processors.
WAKING_S = 15e-6


@dataclass(frozen=True)
class ArmRunner:
    """A runner that cross-compiles, emulates and estimates. Plain data, which can be pickled."""

    capabilities: Capabilities
    compile_timeout_s: float = 120.0
    most_computed: float = 5e6
    """Most vector instructions (and a twentieth of the most instructions of all) for which a timed run also
    computes; above it, only the time is estimated. An emulated instruction takes some 50 ns."""

    imitation: ClassVar[Imitation] = "emulated"

    @property
    def most_instances(self) -> int:
        """Most statement instances for which a kernel is verified at full size."""
        return int(self.capabilities.options["most_instances"])

    def compile(self, source: KernelSource) -> Artifact | Failure:
        """UnavailableError without a compiler; a compiler's error is a Failure."""
        toolchain = find_cross_compiler()
        flags = (*self.capabilities.compiler_flags, *FREESTANDING)
        files = {f"{source.symbol}.c": source.code, **source.support}
        made = toolchain.compile(files, flags, self.compile_timeout_s)
        if isinstance(made, Failure):
            return made
        described = toolchain.describe(flags)
        return Artifact(
            source.symbol, source.inputs, source.outputs, SHARED_OBJECT, made.content, described, made.notes
        )

    def device(self) -> str:
        core, clock = self.capabilities.options["core"], self.capabilities.options["clock_ghz"]
        return f"{core}, estimated at {clock:g} GHz"

    def run(self, artifact: Artifact, request: RunRequest) -> Measurement | Failure:
        """Outputs from the emulated core, the time from the model; a large kernel is not computed."""
        timed: Measurement | Failure | None = None
        if request.repeats:
            timed = self._estimate(artifact, request)
            too_large = isinstance(timed, Measurement) and (
                timed.details["vector_instructions"] > self.most_computed
                or timed.details["instructions"] > 20 * self.most_computed
            )
            if isinstance(timed, Failure) or too_large or not request.want_outputs:
                return timed
        emulated = self._executed(artifact, replace(request, repeats=0), EMULATING)
        if isinstance(emulated, Failure) or timed is None:
            return emulated
        assert isinstance(timed, Measurement)
        return replace(timed, outputs=emulated.outputs)

    def run_sets(self, artifact: Artifact, request: RunRequest, sets: int) -> Measurement | Failure:
        """The SDK's ``RunsSets``: one call for each set, on one emulated core, without a time."""
        return self._executed(artifact, replace(request, repeats=0, executions=()), EMULATING, sets)

    def _estimate(self, artifact: Artifact, request: RunRequest) -> Measurement | Failure:
        asked = replace(request, inputs=None, want_outputs=False)
        counted = self._executed(artifact, asked, ESTIMATING)
        if isinstance(counted, Failure):
            return counted
        seconds = self.seconds(artifact, counted)
        limit = request.stop_above_s
        details = {**counted.details, "stopped": float(limit is not None and seconds > limit)}
        return replace(counted, seconds=(seconds,), details=details)

    def _executed(
        self, artifact: Artifact, request: RunRequest, script: str, sets: int = 0
    ) -> Measurement | Failure:
        harness = counter_library() if request.repeats else b""
        job = Job((artifact,), request, self.device(), harness, script=script, modules=_modules(), sets=sets)
        [found] = execute(job)
        return found if isinstance(found, Failure) else replace(found, provenance="estimated")

    def seconds(self, artifact: Artifact, counted: Measurement) -> float:
        """The model's time: the slowest thread's cycles, or what moving the data takes if that is longer."""
        computing = counted.details["cycles"] / self.clock_hz
        return max(computing, self.moving_seconds(artifact, counted.threads)) + waking_seconds(counted)

    @property
    def clock_hz(self) -> float:
        return float(self.capabilities.options["clock_ghz"]) * 1e9

    def moving_seconds(self, artifact: Artifact, threads: int) -> float:
        """Seconds to read every input once and write every output once, in the smallest memory that holds
        them.

        The model ignores all other traffic between caches.
        """
        read, written = (
            sum(bytes_of(spec.shape, spec.dtype) for spec in specs)
            for specs in (artifact.inputs, artifact.outputs)
        )
        traffic = bound(read, written, 0, threads, self.capabilities.figures)
        return traffic.seconds if traffic else 0.0


def waking_seconds(counted: Measurement) -> float:
    """Estimated seconds to wake the threads before all parallel loops."""
    return counted.details["parallel_loops"] * WAKING_S


@cache
def _modules() -> tuple[str, ...]:
    """Folders of the modules that the children import, without importing them here."""
    found = [find_spec(name) for name in IMPORTED]
    return tuple({str(Path(spec.origin).parents[1]): None for spec in found if spec and spec.origin})

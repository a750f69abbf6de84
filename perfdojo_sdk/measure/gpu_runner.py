"""The runner of targets with grids and blocks: on a device where there is one, else in emulation.

An artifact is a bundle: machine code for the device, the launches as data, and the emulation. So a library
that was built on one machine runs on another, with a device or without. A target defines how sources become
machine code, and how a bundle runs on its device; without a device, times are estimated by the target's
model.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

from perfdojo_sdk.codegen.gpu.bundle import BUNDLE, pack, unpack
from perfdojo_sdk.codegen.gpu.estimate import estimate
from perfdojo_sdk.codegen.gpu.figures import LaunchFigures, launches_in, read, read_workspace
from perfdojo_sdk.hookspecs.abilities import Imitation
from perfdojo_sdk.hookspecs.types import (
    Artifact,
    Capabilities,
    Failure,
    KernelSource,
    Measurement,
    RunRequest,
)
from perfdojo_sdk.measure.emulated_runner import EmulatedRunner
from perfdojo_sdk.measure.gpu_process import run_on_gpu
from perfdojo_sdk.measure.native_runner import SHARED_OBJECT

#: Most steps of threads in one call for which every access is watched; above it only results are compared.
MOST_WATCHED = 3_000_000
#: Most steps for which a timed run in emulation also computes; above it, only the time is estimated.
MOST_COMPUTED = 20_000_000
#: Most statement instances of a kernel that is verified in emulation at full size. Larger ones are verified
#: by the same moves at a smaller shape, with every access watched, which finds more and takes seconds.
MOST_INSTANCES = 2_500_000
#: Most seconds of a call, by the target's model, for which a kernel is run on the device.
MOST_SECONDS = 2.0


@dataclass(frozen=True)
class Resources:
    """The resources of a multiprocessor that one kernel needs, as the assembler reports them."""

    kernel: str
    figures: Mapping[str, int]
    """``registers``, ``shared_bytes`` and other figures of the assembler."""

    @property
    def text(self) -> str:
        return f"{self.kernel}: " + ", ".join(f"{name} {count}" for name, count in self.figures.items())


@dataclass(frozen=True)
class DeviceCode:
    """Machine code for the device."""

    files: Mapping[str, bytes] = field(repr=False)
    """Name in the bundle -> content: ``kernel.KIND``."""
    resources: tuple[Resources, ...]
    toolchain: str


@dataclass(frozen=True)
class GpuRunner:
    """A runner as plain data: it can be pickled, and holds no device. A target's runner overrides methods."""

    capabilities: Capabilities

    def compile_for_device(self, source: KernelSource) -> DeviceCode | Failure | None:
        """Machine code; None where this machine has no compiler for the device."""
        return None

    def device_name(self) -> str:
        """The device of this machine in words, or "" where there is none."""
        return ""

    def worker(self) -> tuple[str, ...]:
        """The command of the child process beside the device, as :func:`.gpu_process.run_on_gpu` takes it;
        empty: there is no way to a device."""
        return ()

    # -- what all of them do -------------------------------------------------------------------------

    def run_on_device(self, artifact: Artifact, request: RunRequest) -> Measurement | Failure:
        """Run a bundle on the device; called only if ``device_name`` is not empty."""
        worker, last = self.worker(), self.capabilities.last_cache
        if not worker:
            return Failure("device", f"{self.capabilities.name} has no way to a device")
        return run_on_gpu(artifact, request, self.device(), last.bytes if last else 0, worker)

    @property
    def most_instances(self) -> int | None:
        """The most statement instances for which a kernel is verified at full size; None on a device, which
        is fast."""
        return None if self.device_name() else MOST_INSTANCES

    @property
    def imitation(self) -> Imitation:
        """Emulation where there is no device."""
        return "" if self.device_name() else "emulated"

    @property
    def emulation(self) -> EmulatedRunner:
        return EmulatedRunner(int(self.capabilities.options["warp"]))

    def compile(self, source: KernelSource) -> Artifact | Failure:
        """Machine code where there is a compiler for the device, and the emulation in any case."""
        device = self.compile_for_device(source)
        if isinstance(device, Failure):
            return device
        launches = read(source.code)
        watched = work_of(launches) <= MOST_WATCHED
        emulated = replace(self.emulation, checked=watched).compile(source)
        if isinstance(emulated, Failure):
            return emulated
        files = {
            "emulated.so": emulated.content,
            "launches.json": json.dumps([asdict(launch) for launch in launches]).encode(),
            "workspace.json": json.dumps(read_workspace(source.code)).encode(),
        }
        if device:
            report = [{"kernel": each.kernel, **each.figures} for each in device.resources]
            files |= {**device.files, "resources.json": json.dumps(report).encode()}
        made_by = device.toolchain if device else "no compiler for the device"
        notes = "\n".join(each.text for each in device.resources) if device else ""
        toolchain = f"{made_by}; emulation: {emulated.toolchain}"
        return Artifact(source.symbol, source.inputs, source.outputs, BUNDLE, pack(files), toolchain, notes)

    def device(self) -> str:
        emulated = f"no GPU: {self.emulation.device()}; times by the model of {self.capabilities.name}"
        return self.device_name() or emulated

    def run(self, artifact: Artifact, request: RunRequest) -> Measurement | Failure:
        if self.device_name():
            return self._too_slow(artifact) or self.run_on_device(artifact, request)
        return self._emulated(artifact, [request], alone=True)[0]

    def run_together(self, artifact: Artifact, requests: Sequence[RunRequest]) -> list[Measurement | Failure]:
        """:meth:`run` for several requests, in one child process as long as nothing dies."""
        if self.device_name():
            return [self.run(artifact, request) for request in requests]
        return self._emulated(artifact, requests, alone=False)

    @property
    def run_sets(self) -> Callable[[Artifact, RunRequest, int], Measurement | Failure]:
        """The SDK's ``RunsSets``, in emulation; a device has a call of its own for each set."""
        if self.device_name():
            raise AttributeError("on a device, sets of inputs run one at a time")
        return self._emulated_sets

    def _emulated_sets(self, artifact: Artifact, request: RunRequest, sets: int) -> Measurement | Failure:
        try:
            code = _emulated_code(artifact, unpack(artifact.content))
        except (ValueError, KeyError, TypeError) as error:
            return Failure("runtime", f"the artifact is no bundle of this target: {error}")
        result = self.emulation.run_sets(code, request, sets)
        return replace(result, device=self.device()) if isinstance(result, Measurement) else result

    def _too_slow(self, artifact: Artifact) -> Failure | None:
        """The failure of a kernel that is too slow to run: a loop on one thread would block the device for
        minutes."""
        try:
            seconds = estimate(launches_in(unpack(artifact.content)), self.capabilities).seconds
        except (ValueError, KeyError, TypeError) as error:
            return Failure("runtime", f"the artifact is no bundle of this target: {error}")
        if seconds <= MOST_SECONDS:
            return None
        what = f"by the model of {self.capabilities.name} a call takes {seconds:.3g} s"
        return Failure("timeout", f"{what}, more than {MOST_SECONDS:g} s; it was not run")

    def _emulated(
        self, artifact: Artifact, requests: Sequence[RunRequest], alone: bool
    ) -> list[Measurement | Failure]:
        try:
            files = unpack(artifact.content)
            launches = launches_in(files)
            code = _emulated_code(artifact, files)
        except (ValueError, KeyError, TypeError) as error:
            return [Failure("runtime", f"the artifact is no bundle of this target: {error}")] * len(requests)
        if all(request.repeats for request in requests) and work_of(launches) > MOST_COMPUTED:
            return [self._on_paper(launches, request) for request in requests]
        if alone:
            results = [self.emulation.run(code, request) for request in requests]
        else:
            results = self.emulation.run_together(code, requests)
        return [self._estimated(r, q, launches) for r, q in zip(results, requests, strict=True)]

    def _estimated(
        self, result: Measurement | Failure, request: RunRequest, launches: Sequence[LaunchFigures]
    ) -> Measurement | Failure:
        if isinstance(result, Failure):
            return result
        if not request.repeats:
            return replace(result, device=self.device(), threads=request.threads)
        return replace(self._on_paper(launches, request), outputs=result.outputs)

    def _on_paper(self, launches: Sequence[LaunchFigures], request: RunRequest) -> Measurement:
        """A measurement with the model's time, and without outputs."""
        seconds = estimate(launches, self.capabilities).seconds
        return Measurement(None, (seconds,), "estimated", self.device(), request.threads)


def _emulated_code(artifact: Artifact, files: Mapping[str, bytes]) -> Artifact:
    return replace(artifact, kind=SHARED_OBJECT, content=files["emulated.so"])


def work_of(launches: Sequence[LaunchFigures]) -> int:
    """Steps of all threads of one call: the cost of emulating it."""
    return sum(each.steps * each.threads * each.blocks * each.times for each in launches)

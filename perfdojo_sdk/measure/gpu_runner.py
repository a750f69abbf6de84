"""The runner of targets with grids and blocks: on a device where there is one, else in emulation.

An artifact is a bundle: machine code for the device, the launches as data, and the emulation. So a library
that was built on one machine runs on another, with a device or without. A target says how sources become
machine code, and how a bundle runs on its device; without one, times are those of a stated model.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

from perfdojo_sdk.codegen.gpu.estimate import estimate
from perfdojo_sdk.codegen.gpu.figures import LaunchFigures, launches_in, read, read_workspace
from perfdojo_sdk.hookspecs.types import (
    Artifact,
    Capabilities,
    Failure,
    KernelSource,
    Measurement,
    RunRequest,
)
from perfdojo_sdk.measure.bundle import pack, unpack
from perfdojo_sdk.measure.emulated_runner import EmulatedRunner
from perfdojo_sdk.measure.native_runner import SHARED_OBJECT

BUNDLE = "gpu_bundle"

#: Threads' steps in one call up to which every access is watched; beyond it only results are looked at.
MOST_WATCHED = 3_000_000


@dataclass(frozen=True)
class Resources:
    """What one kernel needs of a multiprocessor, as its assembler reports it."""

    kernel: str
    figures: Mapping[str, int]
    """``registers``, ``shared_bytes`` and whatever else the assembler tells."""

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
    """A value: it pickles, and holds no device. A target's own runner says more by overriding."""

    capabilities: Capabilities

    def compile_for_device(self, source: KernelSource) -> DeviceCode | Failure | None:
        """Machine code; None where this machine has no compiler for the device."""
        return None

    def device_name(self) -> str:
        """The device of this machine in words, or "" where there is none."""
        return ""

    def run_on_device(self, artifact: Artifact, request: RunRequest) -> Measurement | Failure:
        """Run a bundle on the device; asked only where ``device_name`` tells one."""
        return Failure("device", f"{self.capabilities.name} has no way to a device yet")

    # -- what all of them do -------------------------------------------------------------------------

    @property
    def emulation(self) -> EmulatedRunner:
        return EmulatedRunner(int(self.capabilities.options["warp"]))

    def compile(self, source: KernelSource) -> Artifact | Failure:
        """Machine code where there is a compiler for the device, and the emulation in any case."""
        device = self.compile_for_device(source)
        if isinstance(device, Failure):
            return device
        launches = read(source.code)
        work = sum(launch.steps * launch.threads * launch.blocks * launch.times for launch in launches)
        emulated = replace(self.emulation, checked=work <= MOST_WATCHED).compile(source)
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
            return self.run_on_device(artifact, request)
        return self._emulated(artifact, [request], alone=True)[0]

    def run_together(self, artifact: Artifact, requests: Sequence[RunRequest]) -> list[Measurement | Failure]:
        """:meth:`run` for several requests, in one child process as long as nothing dies."""
        if self.device_name():
            return [self.run_on_device(artifact, request) for request in requests]
        return self._emulated(artifact, requests, alone=False)

    def _emulated(
        self, artifact: Artifact, requests: Sequence[RunRequest], alone: bool
    ) -> list[Measurement | Failure]:
        try:
            files = unpack(artifact.content)
            launches = launches_in(files)
            code = replace(artifact, kind=SHARED_OBJECT, content=files["emulated.so"])
        except (ValueError, KeyError, TypeError) as error:
            return [Failure("runtime", f"the artifact is no bundle of this target: {error}")] * len(requests)
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
        result = replace(result, device=self.device(), threads=request.threads)
        if not request.repeats:
            return result
        seconds = estimate(launches, self.capabilities).seconds
        return replace(result, seconds=(seconds,), provenance="estimated")

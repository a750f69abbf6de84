"""The runner: on a GPU where there is one, else in emulation, with times that a stated model estimates.

An artifact is a bundle: the machine code for the GPU, the launches as data, and the emulation. So a
library that was built here runs on a machine with a GPU as it is, and the other way round.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from perfdojo_cuda_gh200.compile import DeviceCode, compile_for_gpu
from perfdojo_cuda_gh200.estimate import estimate
from perfdojo_sdk.codegen.gpu.figures import LaunchFigures
from perfdojo_sdk.codegen.gpu.figures import read as launches_of
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
class GpuRunner:
    """A value: it pickles, and holds no device."""

    capabilities: Capabilities

    @property
    def warp(self) -> int:
        return int(self.capabilities.options["warp"])

    def compile(self, source: KernelSource) -> Artifact | Failure:
        """Machine code for the GPU where a compiler for it is there, and the emulation in any case."""
        device = compile_for_gpu(source, self.capabilities.options["arch"])
        if isinstance(device, Failure):
            return device
        launches = launches_of(source.code)
        work = sum(launch.steps * launch.threads * launch.blocks * launch.times for launch in launches)
        emulation = EmulatedRunner(self.warp, checked=work <= MOST_WATCHED)
        emulated = emulation.compile(source)
        if isinstance(emulated, Failure):
            return emulated
        files = {
            "emulated.so": emulated.content,
            "launches.json": json.dumps([asdict(launch) for launch in launches]).encode(),
        }
        files |= _files(device) if device else {}
        made_by = device.toolchain if device else "no compiler for the GPU"
        report = "\n".join(r.text for r in device.resources) if device else ""
        toolchain = f"{made_by}; emulation: {emulated.toolchain}"
        return Artifact(source.symbol, source.inputs, source.outputs, BUNDLE, pack(files), toolchain, report)

    def device(self) -> str:
        return f"no GPU: {EmulatedRunner(self.warp).device()}; times by the model of {self.capabilities.name}"

    def run(self, artifact: Artifact, request: RunRequest) -> Measurement | Failure:
        return self.run_together(artifact, [request], alone=True)[0]

    def run_together(
        self, artifact: Artifact, requests: Sequence[RunRequest], alone: bool = False
    ) -> list[Measurement | Failure]:
        """:meth:`run` for several requests, in one child process as long as nothing dies."""
        try:
            files = unpack(artifact.content)
            launches = launches_in(files)
            code = replace(artifact, kind=SHARED_OBJECT, content=files["emulated.so"])
        except (ValueError, KeyError, TypeError) as error:
            return [Failure("runtime", f"the artifact is no bundle of this target: {error}")] * len(requests)
        emulation = EmulatedRunner(self.warp)
        results = (
            [emulation.run(code, r) for r in requests] if alone else emulation.run_together(code, requests)
        )
        return [
            self._estimated(result, request, launches)
            for result, request in zip(results, requests, strict=True)
        ]

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


def _files(device: DeviceCode) -> dict[str, bytes]:
    report = json.dumps([asdict(resources) for resources in device.resources]).encode()
    return {"kernel.cubin": device.cubin, "kernel.ptx": device.ptx, "resources.json": report}


def launches_in(files: Mapping[str, bytes]) -> list[LaunchFigures]:
    """The launches of a bundle, in order; ValueError, KeyError or TypeError where they are none."""
    return [_launch(entry) for entry in json.loads(files["launches.json"])]


def _launch(entry: dict[str, object]) -> LaunchFigures:
    values = {k: tuple(v) if isinstance(v, list) else v for k, v in entry.items()}
    return LaunchFigures(**values)  # type: ignore[arg-type]

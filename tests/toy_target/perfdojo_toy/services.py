"""The toy target's services around its kernels: a figure beside the time, a report in each library."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from perfdojo_sdk.codegen.packaging import CPackager
from perfdojo_sdk.hookspecs.services import Packable, Package, PackagedFile
from perfdojo_sdk.hookspecs.types import Artifact, Failure, Measurement, Runner, RunRequest

#: Messages of the events; a real plugin would send them somewhere.
HEARD: list[str] = []


@dataclass(frozen=True)
class Stopwatch:
    """The duration of a whole run, with its child process and its inputs."""

    name: str = "stopwatch"

    def before(self, artifact: Artifact, request: RunRequest) -> float:
        return time.perf_counter()

    def after(self, before: object, measurement: Measurement) -> Mapping[str, float]:
        assert isinstance(before, float)
        return {"run_s": time.perf_counter() - before}


@dataclass(frozen=True)
class SizesPackager:
    """A shared object as usual, and a report of how long each source is."""

    def package(self, name: str, kernels: Sequence[Packable], runner: Runner) -> Package | Failure:
        made = CPackager().package(name, kernels, runner)
        if isinstance(made, Failure):
            return made
        lines = [f"{kernel.name} {len(kernel.source.code.splitlines())}\n" for kernel in kernels]
        report = PackagedFile("report", "reports/lines.txt", "".join(lines).encode())
        return replace(made, files=(*made.files, report))

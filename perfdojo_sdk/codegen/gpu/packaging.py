"""A library for the GPU: each kernel's machine code, resources, launches and emulation.

The sources, which the SDK adds, contain the launches too, as C functions of device pointers: the device's
compiler makes of them an ordinary library for programs in C and C++.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from perfdojo_sdk.codegen.gpu.bundle import BUNDLE, unpack
from perfdojo_sdk.codegen.gpu.estimate import estimate
from perfdojo_sdk.codegen.gpu.figures import launches_in
from perfdojo_sdk.codegen.packaging import header
from perfdojo_sdk.hookspecs.services import Packable, Package, PackagedFile
from perfdojo_sdk.hookspecs.types import Capabilities, Failure, Runner


@dataclass(frozen=True)
class GpuPackager:
    """One bundle for each kernel, its machine code as files of their own, a header and a report."""

    capabilities: Capabilities
    notice: str
    """A comment at the top of the library's header."""

    def package(self, name: str, kernels: Sequence[Packable], runner: Runner) -> Package | Failure:
        files = [PackagedFile("header", f"include/{name}.h", (self.notice + header(name, kernels)).encode())]
        report = []
        toolchain = ""
        for kernel in kernels:
            artifact = runner.compile(kernel.source)
            if isinstance(artifact, Failure):
                return artifact
            toolchain = artifact.toolchain
            files.append(PackagedFile(BUNDLE, f"lib/{kernel.name}.zip", artifact.content, (kernel.name,)))
            inside = unpack(artifact.content)
            for file in sorted(f for f in inside if f.startswith("kernel.")):
                kind = file.removeprefix("kernel.")
                files.append(PackagedFile(kind, f"{kind}/{kernel.name}.{kind}", inside[file]))
            report.append(self._entry(kernel.name, inside))
        text = json.dumps({"target": self.capabilities.name, "kernels": report}, indent=2) + "\n"
        files.append(PackagedFile("report", "report/resources.json", text.encode()))
        return Package(tuple(files), toolchain)

    def _entry(self, name: str, files: dict[str, bytes]) -> dict[str, object]:
        """The assembler's report of a kernel, and the model's times of its launches."""
        launches = launches_in(files)
        paper = estimate(launches, self.capabilities)
        return {
            "kernel": name,
            "resources": json.loads(files.get("resources.json", b"null")),
            "launches": [
                {"kernel": each.kernel, "blocks": each.blocks, "threads": each.threads, "times": each.times}
                for each in launches
            ],
            "estimated_s": paper.seconds,
            "limits": [f"{what}: {seconds:.3g} s" for what, seconds in paper.parts],
        }

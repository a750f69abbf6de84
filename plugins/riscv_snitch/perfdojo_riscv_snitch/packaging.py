"""A library for a core other than this machine's: one object for the linker, and a C header."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from perfdojo_riscv_snitch.runner import OBJECT
from perfdojo_sdk.codegen.packaging import header
from perfdojo_sdk.hookspecs.services import Packable, Package, PackagedFile
from perfdojo_sdk.hookspecs.types import Failure, KernelSource, Runner

#: A comment at the top of the library's header.
NOTICE = """\
/* For a Snitch core, in the calling convention ilp32d. Arrays and workspace lie in TCDM and start at
 * multiples of 8 bytes. Streams are off when a kernel is called and after it returned; ft0, ft1 and ft2 are
 * theirs.
 */
"""


@dataclass(frozen=True)
class SnitchPackager:
    """Package all kernels into ``lib/NAME.o``, declared in ``include/NAME.h``."""

    def package(self, name: str, kernels: Sequence[Packable], runner: Runner) -> Package | Failure:
        code = "\n".join(kernel.source.code for kernel in kernels)
        artifact = runner.compile(KernelSource(name, (), (), code, kernels[0].source.language))
        if isinstance(artifact, Failure):
            return artifact
        files = (
            PackagedFile("header", f"include/{name}.h", (NOTICE + header(name, kernels)).encode()),
            PackagedFile(OBJECT, f"lib/{name}.o", artifact.content, tuple(k.name for k in kernels)),
        )
        return Package(files, artifact.toolchain)

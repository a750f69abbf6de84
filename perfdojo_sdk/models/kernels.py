"""Kernels of graphs, compiled many at a time and run one at a time in a child process.

For graphs whose kernels have not been through the legs of verification, such as those of a test: a fault of
theirs cannot reach this process. The package of a model (:mod:`.package`) runs verified kernels in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256

from perfdojo_sdk.core.errors import DojoError
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.graph.arrays import numpy_dtype
from perfdojo_sdk.graph.graph import Array
from perfdojo_sdk.graph.packed_arrays import as_passed
from perfdojo_sdk.graph.refusals import Reason, Refused
from perfdojo_sdk.hookspecs.types import Artifact, CodeGenerator, Failure, KernelSource, Runner, RunRequest
from perfdojo_sdk.measure.kernel_calls import CARRIER
from perfdojo_sdk.measure.native_runner import NativeRunner
from perfdojo_sdk.plugins import Plugins


def symbol_of(program: Program) -> str:
    """The name of a kernel's function, which its text determines."""
    return f"pd_{program.name}_{sha256(program.text.encode()).hexdigest()[:16]}"


class CompiledKernels:
    """An executor of graphs (:data:`perfdojo_sdk.graph.running.Execute`) by kernels of one target."""

    def __init__(self, generator: CodeGenerator, runner: Runner) -> None:
        self._generator, self._runner = generator, runner
        self._artifacts: dict[str, Artifact] = {}
        self._sources: dict[str, KernelSource] = {}
        self.compilations = 0
        """Calls of the compiler; kernels that are prepared together share one."""

    @classmethod
    def of(cls, plugins: Plugins, target: str, forks: bool = False) -> CompiledKernels:
        """For a target. ``forks``: run in forks of this process, if the runner can, which then must have no
        other threads. :class:`UnavailableError` when the target cannot run here."""
        found = plugins.target(target)
        runner = plugins.guarded_runner(found)
        native = plugins.runner(found) if forks else None
        if isinstance(native, NativeRunner):
            runner = replace(native, forks=True)
        return cls(plugins.guarded_generator(found), runner)

    def source(self, program: Program) -> KernelSource:
        """The code of a program; :class:`Refused` if the target does not generate it."""
        symbol = symbol_of(program)
        if symbol not in self._sources:
            try:
                self._sources[symbol] = self.code(program, symbol)
            except DojoError as error:
                raise Refused(Reason.TARGET, f"kernel {program.name}: {error.what}") from None
        return self._sources[symbol]

    def code(self, program: Program, symbol: str) -> KernelSource:
        """The code of a program as a function of this name."""
        return self._generator.generate(program, symbol)

    def prepare(self, programs: Sequence[Program]) -> None:
        """Compile those that are not compiled yet, all in one file; each alone if that fails."""
        sources = [self.source(p) for p in programs if symbol_of(p) not in self._artifacts]
        if not sources:
            return
        made = self._compiled(sources)
        for source, artifact in zip(sources, made, strict=True):
            if isinstance(artifact, Failure):
                what = f"kernel {source.symbol} does not compile: {artifact.detail[:300]}"
                raise Refused(Reason.TARGET, what)
            self._artifacts[source.symbol] = artifact

    def _compiled(self, sources: Sequence[KernelSource]) -> list[Artifact | Failure]:
        first = sources[0]
        if len(sources) > 1:
            others = {f"{source.symbol}.c": source.code for source in sources[1:]}
            support = {name: text for source in sources for name, text in source.support.items()}
            self.compilations += 1
            made = self._runner.compile(replace(first, support={**support, **others}))
            if not isinstance(made, Failure):
                return [replace(made, symbol=s.symbol, inputs=s.inputs, outputs=s.outputs) for s in sources]
        self.compilations += len(sources)
        return [self._runner.compile(source) for source in sources]

    def artifact(self, program: Program) -> Artifact:
        """The compiled kernel of a program."""
        self.prepare([program])
        return self._artifacts[symbol_of(program)]

    def __call__(self, program: Program, inputs: Sequence[Array]) -> list[Array]:
        """Run a program; :class:`Refused` if the target does not run it."""
        artifact = self.artifact(program)
        given = {
            spec.name: as_passed(array.view(CARRIER[program.buffer_of[spec.name].dtype]), spec)
            for spec, array in zip(artifact.inputs, inputs, strict=True)
        }
        found = self._runner.run(artifact, RunRequest(inputs=given))
        if isinstance(found, Failure):
            what = f"kernel {program.name} does not run: {found.reason}: {found.detail[:300]}"
            raise Refused(Reason.TARGET, what)
        assert found.outputs is not None, "outputs were asked for"
        dtypes = {name: numpy_dtype(program.buffer_of[name].dtype) for name in program.outputs}
        return [found.outputs[name].view(dtype) for name, dtype in dtypes.items()]

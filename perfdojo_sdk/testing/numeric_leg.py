"""The numeric leg for a fuzz run: the ends of several walks are compiled in one call and run in forks.

Most of the cost of a small kernel is overhead: headers of intrinsics to parse, an interpreter to start.
Kernels in one translation unit share the headers, and a fork of this process is a child with the same limits
and checks as a new interpreter, for a fiftieth of the cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from perfdojo_sdk.core.transformation import Kind, Trace
from perfdojo_sdk.hookspecs.types import Artifact, Failure, KernelSource, Runner, Target
from perfdojo_sdk.measure.native_runner import NativeRunner
from perfdojo_sdk.plugins import Plugins
from perfdojo_sdk.verify.numeric import verify_numeric

#: The optimisation level of most checks; it keeps the generator's code and takes a sixth of the time.
QUICK = "-O0"


class NumericLeg:
    """The numeric leg on the ends of several games for one target."""

    def __init__(self, plugins: Plugins, target: Target) -> None:
        self.plugins, self.target = plugins, target
        self.generator, self.runner = plugins.code_generator(target), plugins.runner(target)

    def __call__(self, traces: Sequence[Trace], optimised: bool) -> list[str]:
        """The problem that the leg finds in the compiled end of each trace; "" for none.

        ``optimised``: compile at the target's own level, like its libraries; else at a low level, which is
        faster.
        """
        runner = self.runner
        if isinstance(runner, NativeRunner):
            flags = runner.flags if optimised else tuple(QUICK if f == "-O3" else f for f in runner.flags)
            runner = replace(runner, flags=flags, forks=True)
        sources = [self.generator.generate(t.program, f"pd_fuzz{k}") for k, t in enumerate(traces)]
        found = []
        for trace, artifact in zip(traces, compiled_together(runner, sources), strict=True):
            if isinstance(artifact, Failure):
                found.append(f"{artifact.reason}: {artifact.detail}")
                continue
            report = verify_numeric(
                trace.root,
                trace.program,
                artifact,
                runner,
                self.plugins.math_accuracy(self.target),
                self.target.dialect,
                nan_may_differ=trace.kind >= Kind.REASSOCIATES,
                laws=trace.laws,
                forks=True,
            )
            found.append(report.problem)
        return found


def compiled_together(runner: Runner, sources: Sequence[KernelSource]) -> list[Artifact | Failure]:
    """One shared object for all sources, which differ in their symbols; alone where that fails."""
    support = {name: text for source in sources for name, text in source.support.items()}
    together = KernelSource(
        sources[0].symbol,
        sources[0].inputs,
        sources[0].outputs,
        "\n".join(source.code for source in sources),
        support=support,
    )
    made = runner.compile(together)
    if isinstance(made, Failure):
        return [runner.compile(source) for source in sources]
    return [replace(made, symbol=s.symbol, inputs=s.inputs, outputs=s.outputs) for s in sources]

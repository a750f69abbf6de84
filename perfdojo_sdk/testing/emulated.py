"""A test of every kernel of a library for grids and blocks, in the emulation, which watches all accesses.

The games are those that a build plays: the expert's, on every operator at its default sizes, replayed at a
shape that is small enough to emulate; and the expert's games at awkward shapes. The sources are those that a
compiler for the device would get.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice

from perfdojo_sdk.core.errors import DojoError
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.core.transformation import Kind, Rules, Trace
from perfdojo_sdk.hookspecs.types import Artifact, Failure, Operator, Target
from perfdojo_sdk.kernels.selection import Kernel, instantiate, select
from perfdojo_sdk.measure.emulated_runner import ARRAY_ALIGNMENT, FLAGS, EmulatedRunner
from perfdojo_sdk.measure.native_runner import NativeRunner
from perfdojo_sdk.plugins import Plugins
from perfdojo_sdk.testing.context import shapes
from perfdojo_sdk.testing.kernel_checks import TOGETHER, Case, together
from perfdojo_sdk.verify.numeric import NumericReport, verify_numeric
from perfdojo_sdk.verify.reduced import reduce_trace

#: Most statement instances of a library's kernel at its smaller shape.
FEW_INSTANCES = 20_000


class Emulated:
    """Runs the games of one target's expert in the emulation, which watches every access."""

    def __init__(self, plugins: Plugins, target: Target, most: Kind = Rules.most) -> None:
        """``most``: the most that the expert's moves may change."""
        expert = plugins.heuristic_pass(target)
        assert expert is not None, f"{target.name} has an expert"
        self.target, self.rules, self.expert = target, replace(plugins.rules(target), most=most), expert
        self.operators, self.accuracy = plugins.operators, plugins.math_accuracy(target)
        self.generator = plugins.code_generator(target)
        self.warp = int(target.capabilities.options["warp"])
        native = NativeRunner(FLAGS, forks=True, array_alignment=ARRAY_ALIGNMENT)
        self.runner = EmulatedRunner(self.warp, native=native)

    def library(self, most_instances: int = FEW_INSTANCES) -> list[Case]:
        """Every operator's default sizes, as a build plays them; named by alias where there is one."""
        kernels = select(sorted(self.operators), self.operators, self.target.dialect)
        return [
            Case(kernel.alias or kernel.operator, reduce_trace(game, self.rules, most_instances))
            for kernel in kernels
            for game in self._games(kernel)
        ]

    def awkward(self, count: int) -> list[Case]:
        """Every operator at so many shapes of ones, of primes, and of one more and one less than a warp."""
        kernels = (k for o in self.operators.values() for k in islice(self._shapes(o), count))
        return [Case(kernel.name, game) for kernel in kernels for game in self._games(kernel)]

    def _games(self, kernel: Kernel) -> Sequence[Trace]:
        return self.expert(kernel.program, self.rules, self.target)

    def _shapes(self, operator: Operator) -> Iterator[Kernel]:
        for sizes in shapes(len(operator.parameters), self.warp):
            try:
                yield instantiate(operator, sizes, self.target.dialect)
            except DojoError:
                continue  # a filter larger than the image

    def problems(self, cases: Sequence[Case], quick: bool = True) -> Iterator[str]:
        """Problems of ``cases``, whose sources are compiled together and run one by one."""
        sources = [self.generator.generate(case.game.program, f"pd_{k}") for k, case in enumerate(cases)]
        made = self.runner.compile(replace(sources[0], code="".join(source.code for source in sources)))
        if isinstance(made, Failure):
            yield f"{made.reason}: {made.detail}"
            return
        for case, source in zip(cases, sources, strict=True):
            one = replace(made, symbol=source.symbol, inputs=source.inputs, outputs=source.outputs)
            report = self._compare(case.game.root, case.game.program, one, quick)
            if not report.ok:
                yield f"{case.name}: {report.problem}\n{case.game.program}"

    def problems_together(self, cases: Sequence[Case], quick: bool = True) -> Iterator[str]:
        """The same for many small cases: each group is one program, and only a bad group is split."""
        for at in range(0, len(cases), TOGETHER):
            group = cases[at : at + TOGETHER]
            dialect = self.rules.dialect
            root = together([case.game.root for case in group], dialect)
            program = together([case.game.program for case in group], dialect)
            made = self.runner.compile(self.generator.generate(program, "pd_together"))
            if isinstance(made, Failure):
                yield f"{made.reason}: {made.detail}"
                continue
            if not self._compare(root, program, made, quick).ok:
                alone = list(self.problems(group, quick))
                names = ", ".join(case.name for case in group)
                yield from alone or [f"in one program: {names}; each alone is well"]

    def _compare(self, root: Program, program: Program, made: Artifact, quick: bool) -> NumericReport:
        return verify_numeric(
            root, program, made, self.runner, self.accuracy, self.rules.dialect,
            threads=(1,), nan_may_differ=True, quick=quick, forks=True,
        )  # fmt: skip

"""An analytic machine: it estimates a program's time from its tree. For tests and comparisons only.

It is deterministic and quick, and has the properties that make the search for fast kernels hard on real
machines: vectors only help if data lie side by side, threads only with enough work, reuse only if the data
fit into a cache, and most single moves change nothing until another one follows.
"""

from __future__ import annotations

from dataclasses import dataclass

from perfdojo_sdk.codegen.operations import SPELLINGS
from perfdojo_sdk.core.dialect import Dialect
from perfdojo_sdk.core.expression import Expression, Operation
from perfdojo_sdk.core.program import Node, Program, Scope, Statement
from perfdojo_sdk.core.text import parse
from perfdojo_sdk.hookspecs.types import Artifact, Failure, KernelSource, Measurement, RunRequest
from perfdojo_sdk.kernels.selection import array_specs
from perfdojo_sdk.search.features import fetched, stride_of


@dataclass(frozen=True)
class AnalyticMachine:
    """The costs of the machine in cycles, at ``hertz``."""

    dialect: Dialect
    threads: int = 4
    hertz: float = 3e9
    caches: tuple[tuple[int, float], ...] = ((32 << 10, 1 / 64), (1 << 20, 1 / 32), (32 << 20, 1 / 8))
    """Bytes of each level, and cycles for a byte that it has to fetch from the next."""
    launch: float = 3000.0
    """Cycles to start the threads."""
    iteration: float = 1.5
    """Overhead in cycles of an iteration of a scope without a suffix."""
    latency: float = 4.0
    """Cycles between two accumulations into the same cell; those into different cells overlap."""
    code_lines: int = 512
    """Most copies of statements before fetching the code becomes slow."""

    def seconds(self, program: Program) -> float:
        cycles = sum(self._node(program, node, ()) for node in program.body)
        cycles += sum(
            cost * sum(fetched(program, node, 0, size) for node in program.body) for size, cost in self.caches
        )
        if self._copies(program.body) > self.code_lines:
            cycles *= 2
        return cycles / self.hertz

    # -- computing -------------------------------------------------------------------------------

    def _node(self, program: Program, node: Node, above: tuple[Scope, ...]) -> float:
        if isinstance(node, Statement):
            return self._statement(program, node, above)
        inside = sum(self._node(program, child, (*above, node)) for child in node.body)
        if self.dialect.is_lockstep(node.suffix):
            return inside
        if self.dialect.is_parallel(node.suffix):
            rounds = -(-node.size // min(self.threads, node.size))
            return self.launch + rounds * inside
        return node.size * (inside + (0 if node.suffix else self.iteration))

    def _statement(self, program: Program, statement: Statement, above: tuple[Scope, ...]) -> float:
        """Cycles of one instance, or of all lanes of a vector."""
        cycles = sum(map(_cost, statement.value.terms))
        lanes = next((k for k, s in enumerate(above) if self.dialect.is_lockstep(s.suffix)), None)
        for access in (*statement.reads, statement.target):
            stride = 0 if lanes is None else stride_of(program, access, lanes)
            cycles += 0.5 if stride in (0, 1) else 0.5 * above[lanes or 0].size
        if statement.accumulate:
            loops = [k for k, scope in enumerate(above) if not self.dialect.is_lockstep(scope.suffix)]
            carried = bool(loops) and loops[-1] not in statement.target.levels
            cycles += self.latency if carried else 1.0
            if lanes is not None and lanes not in statement.target.levels:
                cycles += above[lanes].size  # lanes that accumulate into one cell run one by one
        return cycles

    def _copies(self, nodes: tuple[Node, ...]) -> int:
        count = 0
        for node in nodes:
            if isinstance(node, Statement):
                count += 1
            else:
                unrolled = bool(node.suffix) and self.dialect.suffixes[node.suffix].unrolled
                count += (node.size if unrolled else 1) * self._copies(node.body)
        return count


def _cost(term: Expression) -> float:
    """Cycles of an operation; of a conversion, one."""
    return SPELLINGS[term.name].cost if isinstance(term, Operation) else 1.0


@dataclass(frozen=True)
class AnalyticGenerator:
    """Writes the program itself as the code of a kernel."""

    def generate(self, program: Program, symbol: str) -> KernelSource:
        inputs, outputs = array_specs(program, program.given), array_specs(program, program.outputs)
        return KernelSource(symbol, inputs, outputs, program.text, "dojo")


@dataclass(frozen=True)
class AnalyticRunner:
    """Reads the program back and estimates its time. It computes nothing."""

    machine: AnalyticMachine

    def compile(self, source: KernelSource) -> Artifact | Failure:
        content = source.code.encode()
        return Artifact(source.symbol, source.inputs, source.outputs, "program", content, "paper")

    def run(self, artifact: Artifact, request: RunRequest) -> Measurement | Failure:
        program = parse(artifact.content.decode(), self.machine.dialect)
        seconds = (self.machine.seconds(program),) * max(1, request.repeats)
        return Measurement(None, seconds, "estimated", self.device(), request.threads)

    def device(self) -> str:
        return f"a machine on paper with {self.machine.threads} threads"

"""The kernels in which faults are planted: the expert's games for the operators of Table 3, at small shapes.

Odd shapes have tails; even ones allow streams, wide accesses and hardware loops; a game that was played for
the operator's own shape and then reduced has the tiles, threads and prefetches of a library's kernels.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from perfdojo_sdk.core.errors import DojoError
from perfdojo_sdk.core.program import Scope
from perfdojo_sdk.core.transformation import Kind, Move, Rules, Trace
from perfdojo_sdk.hookspecs.types import KernelSource, Target
from perfdojo_sdk.kernels.selection import Kernel, instantiate, select
from perfdojo_sdk.plugins import Plugins
from perfdojo_sdk.verify.reduced import reduce_trace
from perfdojo_sdk.verify.smaller_games import statement_instances

#: Rows of Table 3 -> operator, and its odd and its even shape here.
TABLE3: Mapping[str, tuple[str, tuple[int, ...], tuple[int, ...]]] = {
    "add": ("add", (13, 37), (8, 64)),
    "batchnorm1": ("batchnorm", (2, 3, 7, 11), (2, 2, 8, 8)),
    "batchnorm2": ("batchnorm", (3, 5, 3, 13), (2, 4, 4, 16)),
    "bmm": ("bmm", (3, 7, 21, 10), (2, 8, 16, 8)),
    "conv1": ("conv2d", (2, 3, 9, 11, 5, 3), (2, 2, 8, 10, 4, 3)),
    "conv2": ("conv2d", (1, 5, 7, 23, 7, 3), (2, 4, 6, 18, 8, 3)),
    "layernorm1": ("layernorm", (7, 133), (8, 128)),
    "layernorm2": ("layernorm", (5, 77), (6, 64)),
    "matmul": ("matmul", (13, 37, 19), (8, 32, 16)),
    "mul": ("mul", (6, 101), (6, 64)),
    "reducemean": ("reducemean", (6, 143), (8, 128)),
    "relu": ("relu", (11, 53), (8, 64)),
    "relu_ffn": ("relu_ffn", (2, 3, 7, 9), (2, 4, 8, 8)),
    "rmsnorm": ("rmsnorm", (5, 197), (6, 128)),
    "softmax": ("softmax", (7, 77), (6, 64)),
    "swiglu": ("swiglu", (7, 19, 23), (8, 16, 16)),
}
#: Statement instances that a game is reduced to, and those above which a reduced game is left out: the leg
#: would take much longer than a second where kernels are emulated.
FEW_INSTANCES, MOST_INSTANCES = 20_000, 80_000
#: Rows whose last game is the only one with streaming stores.
LAST_TOO = ("add", "relu", "softmax")
#: An operator of a target's own list is left out if a parameter of its default shape is larger.
_SMALL = 100


@dataclass(frozen=True)
class Ground:
    """A kernel to plant faults in."""

    name: str
    """Row of the table and the origin of its shape: ``softmax:odd``."""
    game: Trace
    source: KernelSource

    @property
    def operator(self) -> str:
        return self.name.partition(":")[0]


class Field:
    """All grounds of one target, or those of some names; each is played when first asked for."""

    def __init__(
        self,
        plugins: Plugins,
        target: Target,
        operators: Sequence[str] = (),
        full: bool = False,
        names: Collection[str] = (),
    ) -> None:
        """``full``: the operators' own shapes too. ``names``: of the only grounds that are wanted."""
        self.plugins, self.target, self.full = plugins, target, full
        self.rules: Rules = plugins.rules(target)
        self.generator = plugins.code_generator(target)
        self.operators, self.names = operators, names

    def _wants(self, beginning: str) -> bool:
        """True if a ground may be wanted whose name begins so."""
        return not self.names or any(name.startswith(beginning) for name in self.names)

    def grounds(self) -> Iterator[Ground]:
        """The kernels with code; two of an operator never have the same program."""
        seen: set[str] = set()
        for name, game in self._games():
            text = game.program.text
            if text in seen or (self.names and name not in self.names):
                continue
            seen.add(text)
            try:
                yield Ground(name, game, self.generator.generate(game.program, "pd_planted_kernel"))
            except DojoError:
                continue

    def _games(self) -> Iterator[tuple[str, Trace]]:
        expert = self.plugins.heuristic_pass(self.target)
        assert expert is not None, f"{self.target.name} has an expert"
        own = self.plugins.operators_for(self.target)
        for row, (operator, odd, even) in TABLE3.items():
            if self.operators and row not in self.operators and operator not in self.operators:
                continue
            for shape, sizes in (("odd", odd), ("even", even)):
                if not self._wants(f"{row}:{shape}"):
                    continue
                kernel = instantiate(own[operator], sizes, self.target.dialect)
                games = expert(kernel.program, self.rules, self.target)
                yield f"{row}:{shape}", self._parallel(games[0])
                yield f"{row}:{shape}-last", games[-1]
            if self._wants(f"{row}:shrunk") or self._wants(f"{row}:full"):
                yield from self._own_shape(row)
        for kernel in self._micro():
            if not self._wants(f"{kernel.operator}:"):
                continue
            games = expert(kernel.program, self.rules, self.target)
            yield f"{kernel.operator}:first", games[0]
            yield f"{kernel.operator}:last", games[-1]

    def _own_shape(self, row: str) -> Iterator[tuple[str, Trace]]:
        """The first game for the operator's own shape, reduced; for some rows the last one too."""
        expert = self.plugins.heuristic_pass(self.target)
        assert expert is not None
        [kernel] = select(row, self.plugins.operators, self.target.dialect)
        games = expert(kernel.program, self.rules, self.target)
        for number in sorted({0, len(games) - 1 if row in LAST_TOO else 0}):
            if not self._wants(f"{row}:shrunk-{number + 1}"):
                continue
            game = reduce_trace(games[number], self.rules, FEW_INSTANCES)
            if statement_instances(game.program) <= MOST_INSTANCES:
                yield f"{row}:shrunk-{number + 1}", game
        if self.full:
            yield f"{row}:full", games[0]

    def _micro(self) -> Iterator[Kernel]:
        """The first default shape of each operator in the target's own list, if it is small."""
        named = self.target.capabilities.selections.get("default", ())
        for name in named:
            if name in TABLE3 or (self.operators and name not in self.operators):
                continue
            operator = self.plugins.operators[name]
            sizes = operator.defaults[0]
            if max(sizes) <= _SMALL:
                yield instantiate(operator, sizes, self.target.dialect)

    def _parallel(self, game: Trace) -> Trace:
        """The game with its outermost loops on threads, if the target has threads and the move is legal."""
        for node in game.program.body:
            if isinstance(node, Scope) and not node.suffix and "p" in self.target.dialect.suffixes:
                step = self.rules.attempt(game.program, Move.of("annotate_scope", node.id, suffix="p"))
                if step:
                    game = replace(game, steps=(*game.steps, step))  # type: ignore[arg-type]
        return game


def nan_may_differ(game: Trace) -> bool:
    """True if the game's moves may change which inputs give NaN."""
    return game.kind >= Kind.REASSOCIATES

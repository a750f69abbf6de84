"""Training data of the encoder: programs of random games, each with the numbers it is to predict.

    python -m perfdojo_sdk.perfllm.encoder.data --out programs.jsonl --seed 0

Games are walks of random moves on kernels at random small sizes, from the initial program or from some point
of the game that the target's expert or a generic pass plays. Each program has the logarithms of

- ``seconds estimated TARGET``: always; the estimate of the analytical model
(:mod:`perfdojo_sdk.testing.estimate`); - ``seconds simulated TARGET`` or ``seconds measured TARGET``: the
time from the target's runner, for games that are timed. A target whose runner only estimates is not timed; -
``count NAME``: the features of the searches' cost model (:mod:`perfdojo_sdk.search.features`).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from math import log, prod
from pathlib import Path
from random import Random

from perfdojo_sdk.core.errors import DojoError, MoveError
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.core.transformation import Rules, Step
from perfdojo_sdk.core.words import number_of
from perfdojo_sdk.environment.clock import Clock, RunnerClock
from perfdojo_sdk.hookspecs.types import HeuristicPass, Operator, Target
from perfdojo_sdk.kernels.selection import Kernel, instantiate
from perfdojo_sdk.plugins import Plugins, load_plugins
from perfdojo_sdk.search.features import named_features
from perfdojo_sdk.search.neighbours import random_step
from perfdojo_sdk.search.passes import greedy
from perfdojo_sdk.testing.estimate import AnalyticMachine

#: An operator whose name ends so is never learned from; quality is measured on these.
HELD_OUT = ("softmax", "rmsnorm", "bmm", "sumpool", "axpy")
SIZES = (1, 2, 3, 4, 5, 8, 10, 12, 16, 20, 32, 48, 64, 128, 256)
#: Statement instances of a kernel that is not timed, simulated, or measured (so that a call takes some time).
ANY, SIMULATED, MEASURED = (16, 1 << 32), (64, 1 << 13), (1 << 14, 1 << 18)
#: Moves of a walk.
MOVES = (4, 20)
#: Share of programs of which a second successor is drawn.
SIBLINGS = 0.4
#: How the labels begin that a machine or a simulator said.
REAL = ("seconds simulated", "seconds measured")
#: Longer texts are left out.
CHARACTERS = 6000


@dataclass(frozen=True)
class Sample:
    """One program of a walk."""

    target: str
    operator: str
    walk: int
    number: int
    """Index of the program in its walk; 0 is the program with which the walk begins."""
    parent: int
    """Number of the program that is one move before it; its own for the first."""
    text: str
    labels: dict[str, float]

    @property
    def held_out(self) -> bool:
        return self.operator.endswith(HELD_OUT)

    @property
    def timed(self) -> bool:
        """True if its time was measured or simulated."""
        return any(name.startswith(REAL) for name in self.labels)


def read_all(paths: Sequence[Path]) -> list[Sample]:
    """The samples of files that :func:`main` wrote; walks of different files stay apart."""
    found: list[Sample] = []
    for path in paths:
        first = found[-1].walk + 1 if found else 0
        with path.open(encoding="utf-8") as lines:
            data = [json.loads(line) for line in lines]
        found += [Sample(**{**each, "walk": each["walk"] + first}) for each in data]
    return found


@dataclass(frozen=True)
class Field:
    """The target on which random walks are played."""

    target: Target
    rules: Rules
    operators: Sequence[Operator]
    expert: HeuristicPass | None

    @staticmethod
    def of(plugins: Plugins, target: Target) -> Field:
        operators = tuple(plugins.operators_for(target).values())
        return Field(target, plugins.rules(target), operators, plugins.heuristic_pass(target))

    def kernel(self, chance: Random, window: tuple[int, int]) -> Kernel | None:
        """A random operator at random sizes, with so many statement instances; None when none was drawn."""
        operator = chance.choice(self.operators)
        for _ in range(200):
            sizes = [chance.choice(SIZES) for _ in operator.parameters]
            if window == ANY and operator.defaults and chance.random() < 0.3:
                sizes = list(chance.choice(operator.defaults))
            try:
                kernel = instantiate(operator, sizes, self.target.dialect)
            except DojoError:  # sizes that do not fit each other
                continue
            if window[0] <= instances(kernel.program) <= window[1]:
                return kernel
        return None

    def start(self, chance: Random, root: Program) -> tuple[Program, ...]:
        """The first programs of a walk, one move apart: of the initial one alone, or of a pass's game."""
        kind = chance.choice(("initial", "initial", "greedy", "expert"))
        if kind == "initial":
            return (root,)
        try:
            games = self.expert(root, self.rules, self.target) if kind == "expert" and self.expert else ()
            game = chance.choice(games) if games else greedy(root, self.rules)
        except (MoveError, AssertionError):  # a pass that does not like the sizes
            return (root,)
        steps = game.steps[: chance.randint(0, len(game.steps))]
        return (root, *[step.after for step in steps])


def instances(program: Program) -> int:
    """Statement instances of one run."""
    return sum(prod(leaf.sizes) for node in program.body for leaf in node.leaves)


def walk(chance: Random, field: Field, root: Program) -> list[tuple[Program, int]]:
    """Programs of one game with the number of each one's predecessor, siblings beside the path included."""
    begun = field.start(chance, root)
    found = [(program, max(0, k - 1)) for k, program in enumerate(begun)]
    now = len(found) - 1
    for _ in range(chance.randint(*MOVES)):
        here, parent = found[now][0], now
        for _ in range(1 + (chance.random() < SIBLINGS)):
            step = random_step(chance, here, field.rules)
            if not isinstance(step, Step) or len(step.after.text) > CHARACTERS:
                break
            found.append((step.after, parent))
            now = len(found) - 1
    return found


def samples_of(
    field: Field, operator: str, number: int, game: Sequence[tuple[Program, int]], clock: Clock | None
) -> Iterator[Sample]:
    """The labelled programs of one walk. A program without a time has no label for it."""
    machine, name = AnalyticMachine(field.target.dialect), field.target.name
    for k, (program, parent) in enumerate(game):
        labels = {f"count {n}": v for n, v in named_features(program, field.target).items()}
        labels[f"seconds estimated {name}"] = log(machine.seconds(program))
        time = clock(program) if clock else None
        if time and time.seconds:
            labels[f"seconds {time.provenance} {name}"] = log(time.seconds)
        rounded = {name: round(value, 5) for name, value in labels.items()}
        yield Sample(name, operator, number, k, parent, program.text, rounded)


def clocks(plugins: Plugins) -> dict[str, tuple[RunnerClock, tuple[int, int]]]:
    """Target -> its clock, and the window of instances, for each that simulates or measures here."""
    found = {}
    for target in plugins.targets.values():
        field = Field.of(plugins, target)
        try:
            clock = RunnerClock.of(plugins, target)
        except DojoError:
            continue
        kernel = field.kernel(Random(0), SIMULATED)
        provenance = clock(kernel.program).provenance if kernel else ""
        if provenance in ("simulated", "measured"):
            found[target.name] = clock, SIMULATED if provenance == "simulated" else MEASURED
    return found


def collect(plugins: Plugins, seed: int, walks: int, simulated: int, measured: int) -> Iterator[Sample]:
    """Samples of ``walks`` untimed walks for each target, then timed walks until there are so many programs
    of each target that simulates, and of each that measures.
    """
    number = 0
    for target in plugins.targets.values():
        field, chance = Field.of(plugins, target), Random(f"{seed} {target.name}")
        for _ in range(walks):
            kernel = field.kernel(chance, ANY)
            if kernel:
                game = walk(chance, field, kernel.program)
                yield from samples_of(field, kernel.operator, number, game, None)
                number += 1
    for name, (clock, window) in clocks(plugins).items():
        field, chance = Field.of(plugins, plugins.targets[name]), Random(f"{seed} timed {name}")
        wanted = simulated if window == SIMULATED else measured
        while wanted > 0:
            kernel = field.kernel(chance, window)
            if kernel:
                game = walk(chance, field, kernel.program)
                yield from samples_of(field, kernel.operator, number, game, clock)
                wanted, number = wanted - len(game), number + 1


def write_samples(path: Path, samples: Iterable[Sample]) -> int:
    """One line of JSON for each sample; how many there are."""
    count = 0
    with path.open("w", encoding="utf-8") as file:
        for sample in samples:
            file.write(json.dumps(asdict(sample)) + "\n")
            count += 1
    return count


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Collect programs and their labels for the encoder.")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--walks", type=int, default=200, help="untimed walks for each target")
    parser.add_argument("--simulated", type=int, default=6000, help="programs to simulate")
    parser.add_argument("--measured", type=int, default=250, help="programs to measure")
    a = parser.parse_args(words)
    samples = collect(load_plugins(), a.seed, a.walks, a.simulated, a.measured)
    print(f"{number_of(write_samples(a.out, samples), 'programs')} in {a.out}", file=sys.stderr)


if __name__ == "__main__":
    main()

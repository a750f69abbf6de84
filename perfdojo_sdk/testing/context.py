"""The context of a conformance check: one plugin, one target, and a budget of work.

A check asks the context for parts (the rules, the code generator, the runner). This module alone decides
which parts are available. A check of a part that the plugin does not have, or that cannot run on this
machine, is skipped with the reason; it never passes because there was nothing to do.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from itertools import islice, zip_longest
from random import Random
from typing import TypeVar

from perfdojo_sdk.core.errors import DojoError, UnavailableError
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.core.transformation import LegalityCheck, Rules, Trace, Transformation
from perfdojo_sdk.hookspecs.types import CodeGenerator, HeuristicPass, KernelSource, Operator, Runner, Target
from perfdojo_sdk.kernels.selection import Kernel, instantiate
from perfdojo_sdk.measure.toolchain import probe_compiler
from perfdojo_sdk.plugins import Plugin, Plugins
from perfdojo_sdk.plugins.guarded_moves import unguarded
from perfdojo_sdk.testing.programs import random_program
from perfdojo_sdk.testing.walks import random_walk

T = TypeVar("T")


class Part(Enum):
    """A part that a check may need, with its name in messages."""

    TARGET = "a target"
    MOVES = "moves of its own"
    VETOES = "legality checks of its own"
    EXPERT = "an expert pass"
    GENERATOR = "a code generator"
    RUNNER = "a runner"
    COMPILER = "a C compiler for the references"


class NotApplicable(Exception):
    """Raised by a check that finds nothing to do on this target, with the reason."""


@dataclass(frozen=True)
class MissingPart:
    """The reason why a part is unavailable. Without a remedy the plugin does not have it."""

    why: str
    remedy: str = ""


@dataclass(frozen=True)
class Budget:
    """The work a run may do. Counts bound it; seconds end a check early on a slow target."""

    name: str
    doc: str
    walks: int
    """Random games."""
    moves: int
    """Moves of each random game."""
    shapes: int
    """Shapes of each operator."""
    seconds: float
    """Seconds for one check, which then finishes its current case; the first case always runs."""


BUDGETS: Mapping[str, Budget] = {
    budget.name: budget
    for budget in (
        Budget("quick", "while you write code", walks=2, moves=8, shapes=2, seconds=10),
        Budget("default", "for every change", walks=4, moves=16, shapes=4, seconds=60),
        Budget("thorough", "before a release", walks=32, moves=64, shapes=64, seconds=600),
    )
}

#: Entry point of every kernel that the kit makes.
SYMBOL = "pd_conformance"

#: Sizes that have nothing in common, in the order of an operator's parameters.
PRIMES = (2, 3, 5, 7, 2, 3, 5)


class Context:
    """One plugin, one target to which it contributes (None: no target), and a budget."""

    def __init__(
        self, plugins: Plugins, plugin: Plugin, target: Target | None = None, budget: Budget | None = None
    ) -> None:
        self.plugins, self.plugin, self._target = plugins, plugin, target
        self.budget = budget or BUDGETS["default"]
        self.begin()

    # -- the budget --------------------------------------------------------------------------

    def begin(self) -> None:
        """Start a check: reset its time and its counts."""
        self.cases_done, self.cut = 0, False
        self.refused: list[str] = []
        self.warnings: list[str] = []
        self._deadline = time.monotonic() + self.budget.seconds

    def cases(self, items: Iterable[T], least: int = 1) -> Iterator[T]:
        """``items`` until the check's time is over, ``least`` of them in any case; counts them."""
        for number, item in enumerate(items):
            if number >= least and time.monotonic() > self._deadline:
                self.cut = True
                return
            self.cases_done += 1
            yield item

    def code(self, program: Program, name: str) -> KernelSource | None:
        """The code for ``program``; None, noted under ``name``, when the target says why there is none."""
        try:
            return self.generator.generate(program, SYMBOL)
        except DojoError as error:
            if not (error.code and error.hint):
                raise
            self.refused.append(f"{name}: {error.what}")
            return None

    # -- parts -------------------------------------------------------------------------------

    def lacking(self, part: Part) -> MissingPart | None:
        """The reason why ``part`` is unavailable; None when it is available."""
        if part is Part.COMPILER:
            compiler = probe_compiler()
            return None if compiler.ok else MissingPart(compiler.why, compiler.remedy)
        if self._target is None:
            return MissingPart("the plugin brings no target; --target names one to check it on")
        if part is Part.TARGET:
            return None
        if part is Part.RUNNER and (missing := self.plugins.unavailable(self._target)):
            why = f"{self._target.name} cannot run on this machine: {missing.why}"
            return MissingPart(why, missing.remedy)
        parts: Mapping[Part, Callable[[], bool]] = {
            Part.MOVES: lambda: bool(self.own_moves),
            Part.VETOES: lambda: bool(self.own_vetoes),
            Part.EXPERT: lambda: self.plugins.heuristic_pass(self.target) is not None,
            Part.GENERATOR: lambda: self.generator is not None,
            Part.RUNNER: lambda: self.runner is not None,
        }
        try:
            there = parts[part]()
        except UnavailableError as error:
            there = error.code != "PD-G005"  # the check itself reports any other error
        return None if there else MissingPart(f"the plugin does not bring {part.value}")

    @property
    def no_target(self) -> bool:
        return self._target is None

    @property
    def target(self) -> Target:
        assert self._target is not None, "the check needs Part.TARGET"
        return self._target

    @cached_property
    def rules(self) -> Rules:
        return unguarded(self.plugins.rules(self.target))  # without guards, since checks look for faults

    @cached_property
    def own_moves(self) -> Mapping[str, Transformation]:
        """The transformations that the plugin itself adds to the target."""
        found = self.plugins.collect(
            self.plugin, "perfdojo_transformations", Transformation, target=self.target
        )
        return {move.name: move for move in found}

    @cached_property
    def own_vetoes(self) -> tuple[LegalityCheck, ...]:
        hook = "perfdojo_legality_checks"
        return tuple(v for v in self.plugins.collect(self.plugin, hook, object, target=self.target))

    @cached_property
    def generator(self) -> CodeGenerator:
        return self.plugins.code_generator(self.target)

    @cached_property
    def runner(self) -> Runner:
        return self.plugins.runner(self.target)

    @cached_property
    def expert(self) -> HeuristicPass:
        found = self.plugins.heuristic_pass(self.target)
        assert found is not None, "the check needs Part.EXPERT"
        return found

    @cached_property
    def lanes(self) -> int:
        """Lanes of an f32 vector; an arbitrary number where the target has no vectors."""
        return max(self.target.dialect.lanes.get("f32", 0), 4)

    @property
    def has_expert(self) -> bool:
        return self.lacking(Part.EXPERT) is None

    @property
    def has_generator(self) -> bool:
        return self.lacking(Part.GENERATOR) is None

    # -- what to look at -----------------------------------------------------------------------

    @cached_property
    def operators(self) -> tuple[Operator, ...]:
        """All operators, those of the plugin first, since its own moves are made for them."""
        found = self.plugins.operators_for(self.target).values()
        own = {o.name for o in self.plugins.collect(self.plugin, "perfdojo_operators", Operator)}
        return tuple(sorted(found, key=lambda o: o.name not in own))

    @cached_property
    def kernels(self) -> tuple[Kernel, ...]:
        """Every operator at its first shape, then every one at its second, and so on."""
        rounds = zip_longest(*(islice(self._shapes_of(o), self.budget.shapes) for o in self.operators))
        return tuple(kernel for each in rounds for kernel in each if kernel is not None)

    def _shapes_of(self, operator: Operator) -> Iterator[Kernel]:
        for sizes in shapes(len(operator.parameters), self.lanes):
            try:
                yield instantiate(operator, sizes, self.target.dialect)
            except DojoError:
                continue  # not every shape is valid: for example, a filter larger than the image

    @cached_property
    def small_kernels(self) -> tuple[Kernel, ...]:
        """Every operator at a shape of primes."""
        found = (list(islice(self._shapes_of(operator), 2)) for operator in self.operators)
        return tuple(kernels[-1] for kernels in found if kernels)

    @cached_property
    def programs(self) -> tuple[Program, ...]:
        """Initial programs: every operator at a shape of primes, and random ones."""
        drawn = [random_program(Random(seed), 3) for seed in range(self.budget.walks)]
        return (*(kernel.program for kernel in self.small_kernels), *drawn)

    @cached_property
    def walks(self) -> tuple[Trace, ...]:
        """Random games, on random programs and on operators in turn."""
        found = []
        for seed in range(self.budget.walks):
            rng = Random(seed)
            kernels = self.small_kernels if seed % 2 else ()
            whole_language = seed % 4 == 0  # not every target has code for all of it
            drawn = random_program(rng, 3, whole_language)
            root = kernels[seed // 2 % len(kernels)].program if kernels else drawn
            found.append(random_walk(rng, root, self.rules, self.budget.moves, list(self.own_moves)))
        return tuple(found)


def shapes(parameters: int, lanes: int) -> Iterator[tuple[int, ...]]:
    """Sizes that show faults: all ones, primes, one more and one less than a vector, and others."""
    yield (1,) * parameters
    primes = tuple(PRIMES[k % len(PRIMES)] for k in range(parameters))
    yield primes

    def with_sizes(sizes: Mapping[int, int]) -> tuple[int, ...]:
        return tuple(sizes.get(k, prime) for k, prime in enumerate(primes))

    more, less = lanes + 1, lanes - 1
    for place in reversed(range(parameters)):
        yield with_sizes({place - 1: less, place: more})
        yield with_sizes({place - 1: more, place: less})
    for size in (lanes, 2 * lanes + 1, 13, 1):
        for place in reversed(range(parameters)):
            yield with_sizes({place: size})

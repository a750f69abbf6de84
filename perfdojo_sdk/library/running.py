"""Calls of generator, compiler and runner: whatever goes wrong with a kernel is returned as a failure.

Of this package, only this module asks whether a runner can let several kernels take turns in one child
process.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol, TypeVar

from perfdojo_sdk.codegen.packed import again_symbol
from perfdojo_sdk.core.errors import UnavailableError
from perfdojo_sdk.core.text import parse
from perfdojo_sdk.core.transformation import Trace
from perfdojo_sdk.hookspecs.abilities import TimesInterleaved, ability
from perfdojo_sdk.hookspecs.types import (
    Artifact,
    CodeGenerator,
    Failure,
    KernelSource,
    Measurement,
    Runner,
    RunRequest,
    Target,
)
from perfdojo_sdk.library.attempts import said
from perfdojo_sdk.measure.answer import runner_fault

T = TypeVar("T")


class Helpers(Protocol):
    """Compilers of other machines, with the same results as this one's."""

    @property
    def count(self) -> int:
        """The number that may be asked at once."""
        ...

    def compile(self, source: KernelSource) -> Artifact | Failure | None:
        """The artifact, or the compiler's error; None when no other machine could compile it. Never
        raises."""
        ...


def generated(generator: CodeGenerator, game: Trace, symbol: str) -> KernelSource | Failure:
    """The game's last program as code; a failure if the generator, which is a plugin's, raises an error."""
    try:
        return generator.generate(game.program, symbol)
    except Exception as error:
        return Failure("constraints", f"no code can be generated: {said(error)}")


def compiled(runner: Runner, source: KernelSource, helpers: Helpers | None = None) -> Artifact | Failure:
    """``source`` compiled by one of the ``helpers`` where one is free, else by the runner's compiler.

    :class:`UnavailableError` where there is none.
    """
    helped = helpers.compile(source) if helpers else None
    made = helped or _guarded(lambda: runner.compile(source))
    if isinstance(made, Artifact) and source.packing is not None:
        return replace(made, again=again_symbol(source.symbol))
    return made if isinstance(made, Artifact | Failure) else _strange(made)


def run(runner: Runner, artifact: Artifact, request: RunRequest) -> Measurement | Failure:
    """One run; an error of the runner itself is a failure like any other."""
    measured = _guarded(lambda: runner.run(artifact, request))
    return measured if isinstance(measured, Measurement | Failure) else _strange(measured)


def timed(runner: Runner, artifact: Artifact, request: RunRequest) -> Measurement | Failure:
    """One run that holds a time, or a failure."""
    return counted(run(runner, artifact, request))


def counted(measured: Measurement | Failure) -> Measurement | Failure:
    """The run, unless it holds no time."""
    if isinstance(measured, Measurement) and not measured.seconds:
        return runner_fault("the runner timed no call")
    return measured


def takes_turns(runner: Runner) -> bool:
    """True if the runner times several kernels in turns, call by call."""
    return ability(runner, TimesInterleaved) is not None


def timed_in_turns(
    runner: Runner, artifacts: Sequence[Artifact], request: RunRequest
) -> list[Measurement | Failure] | None:
    """Times of kernels that share a child; None from a runner that cannot."""
    able = ability(runner, TimesInterleaved)
    if able is None:
        return None
    found = _guarded(lambda: able.time_interleaved(artifacts, request))
    return [found] * len(artifacts) if isinstance(found, Failure) else [counted(each) for each in found]


def rounds_of(
    runner: Runner, artifacts: Sequence[Artifact], request: RunRequest, rounds: int
) -> list[list[Measurement | Failure]]:
    """Times of kernels of one interface that take turns: call by call where the runner can, which is one
    round, else in so many rounds of a timing each."""
    found = timed_in_turns(runner, artifacts, request)
    if found is not None:
        return [found]
    request = replace(request, budget_s=request.budget_s / rounds)
    return [[timed(runner, artifact, request) for artifact in artifacts] for _ in range(rounds)]


def toolchain_of(target: Target, generator: CodeGenerator, runner: Runner) -> str:
    """Compile the smallest kernel: names the toolchain and shows that there is one."""
    program = parse("kernel probe(x) -> y\nx f32 [1] heap\ny f32 [1] heap\n\n1 y[{0}] = x[{0}]\n")
    artifact = runner.compile(generator.generate(program, "pd_probe"))
    if isinstance(artifact, Failure):
        what = f"the compiler of target {target.name} does not work"
        hint = f"`perfdojo-sdk plugins doctor --target {target.name}` says what is missing"
        raise UnavailableError("PD-L020", what, why=artifact.detail, hint=hint)
    return artifact.toolchain


def _guarded(call: Callable[[], T]) -> T | Failure:
    try:
        return call()
    except UnavailableError:  # a tool is missing, which is no fault of a kernel
        raise
    except Exception as error:  # a plugin's code
        return Failure("runtime", f"the runner failed: {said(error)}")


def _strange(answer: object) -> Failure:
    return Failure("runtime", f"the runner returned {type(answer).__name__}")

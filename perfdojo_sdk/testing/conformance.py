"""The conformance kit: the list of checks that every plugin must pass.

A check is a function from a :class:`~perfdojo_sdk.testing.context.Context` to problems in words, none
if it passes. ``perfdojo-sdk plugins check`` and the pytest class
:class:`~perfdojo_sdk.testing.TargetConformance` both run this list.

A plugin declares known failures beside its ``PERFDOJO_API``, with the reason::

    PERFDOJO_EXPECTED_FAILURES = {"my_chip": {"walks compiled": "the assembler has no select yet"}}

An expected failure is strict: once the check passes, the entry is a failure until it is taken out.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from perfdojo_sdk.core.errors import DojoError
from perfdojo_sdk.hookspecs.types import Target
from perfdojo_sdk.plugins import Plugin, Plugins
from perfdojo_sdk.testing import game_checks, kernel_checks, metadata, runner_checks
from perfdojo_sdk.testing.context import Budget, Context, NotApplicable, Part

#: Most problems of one check that are kept.
MOST_PROBLEMS = 10

Outcome: TypeAlias = Literal["passed", "failed", "skipped", "expected"]


@dataclass(frozen=True)
class Check:
    """One check of the kit."""

    name: str
    test: Callable[[Context], Iterable[str]]
    needs: tuple[Part, ...] = ()
    """Parts without which there is nothing to check."""

    @property
    def doc(self) -> str:
        """One sentence: what it proves."""
        return (inspect.getdoc(self.test) or "").partition("\n\n")[0].replace("\n", " ")


def expected_failures_exist(context: Context) -> Iterator[str]:
    """The failures that the plugin expects name checks of the kit, and targets of the plugin."""
    own = {"", *(t.name for t in context.plugins.targets.values() if t.plugin == context.plugin.name)}
    for target, expected in _expectations(context.plugin).items():
        names = {check.name for check in (TARGET_CHECKS if target else PACKAGE_CHECKS)}
        yield from (f"there is no check {name!r} to fail" for name in expected if name not in names)
        if target not in own:
            yield f"failures are expected for target {target!r}, which the plugin does not bring"


TARGET, MOVES, VETOES, EXPERT = Part.TARGET, Part.MOVES, Part.VETOES, Part.EXPERT
GENERATOR, RUNNER = Part.GENERATOR, Part.RUNNER
_COMPARED = (GENERATOR, RUNNER, Part.COMPILER)

#: About the plugin as a package; the same for all of its targets.
PACKAGE_CHECKS = (
    Check("loads", metadata.loads),
    Check("up to date", metadata.up_to_date),
    Check("declares its targets", metadata.declares_targets),
    Check("import is cheap", metadata.import_is_cheap),
    Check("imports what plugins may", metadata.imports_what_plugins_may),
    Check("names have a prefix", metadata.names_have_a_prefix),
    Check("moves are described", metadata.moves_are_described),
    Check("operators build", metadata.operators_build),
    Check("objects cross processes", metadata.objects_cross_processes),
    Check("expected failures exist", expected_failures_exist),
)

#: About one target, without compiling anything.
GAME_CHECKS = (
    Check("same seed, same game", game_checks.same_seed_same_game, (TARGET,)),
    Check("find and check agree", game_checks.find_and_check_agree, (TARGET,)),
    Check("nothing given is changed", game_checks.nothing_given_is_changed, (TARGET,)),
    Check("texts round-trip", game_checks.texts_round_trip, (TARGET,)),
    Check("games round-trip", game_checks.games_round_trip, (TARGET,)),
    Check("refusals help", game_checks.refusals_help, (TARGET,)),
    Check("walks keep the meaning", game_checks.walks_keep_the_meaning, (TARGET,)),
    Check("own moves are proved", game_checks.own_moves_are_proved, (MOVES,)),
    Check("vetoes hold", game_checks.vetoes_hold, (VETOES,)),
    Check("expert plays by the rules", game_checks.expert_plays_by_the_rules, (EXPERT,)),
)

#: About one target's code.
KERNEL_CHECKS = (
    Check("code is plain", kernel_checks.code_is_plain, (GENERATOR,)),
    Check("kernels as written", kernel_checks.kernels_as_written, _COMPARED),
    Check("kernels as played", kernel_checks.kernels_as_played, (EXPERT, *_COMPARED)),
    Check("walks compiled", kernel_checks.walks_compiled, _COMPARED),
)

#: About one target's runner.
RUNNER_CHECKS = (
    Check("measurements are sound", runner_checks.measurements_are_sound, (GENERATOR, RUNNER)),
    Check("failures are results", runner_checks.failures_are_results, (GENERATOR, RUNNER)),
    Check("cheats are caught", runner_checks.cheats_are_caught, (GENERATOR, RUNNER)),
    Check("wrong results are refused", runner_checks.wrong_results_are_refused, _COMPARED),
)

TARGET_CHECKS = (*GAME_CHECKS, *KERNEL_CHECKS, *RUNNER_CHECKS)
CHECKS = (*PACKAGE_CHECKS, *TARGET_CHECKS)


@dataclass(frozen=True)
class Result:
    """The result of one check."""

    check: Check
    target: str
    """Empty for a check of the package as a whole."""
    outcome: Outcome
    problems: tuple[str, ...] = ()
    why: str = ""
    """The reason why it was skipped, or why the failure is expected."""
    remedy: str = ""
    """The remedy that makes a skipped check run on this machine; empty when the plugin lacks the part."""
    cases: int = 0
    """Number of programs, kernels or faults examined, where the check counts them."""
    refused: tuple[str, ...] = ()
    """Programs that the target says it has no code for, and why."""
    warnings: tuple[str, ...] = ()
    """Findings that are no failure yet, and may become one with another release of the SDK."""
    cut: bool = False
    """True if the budget's time ended it before all of its cases."""
    seconds: float = 0.0

    @property
    def unavailable(self) -> bool:
        """True if the check was skipped for a tool that this machine lacks, although the plugin has the
        part."""
        return self.outcome == "skipped" and bool(self.remedy)


def run(context: Context, checks: Sequence[Check] = CHECKS) -> Iterator[Result]:
    """The checks in order, each as soon as it is done."""
    for check in checks:
        yield run_check(context, check)


def run_all(
    plugins: Plugins,
    plugin: Plugin,
    targets: Sequence[Target],
    budget: Budget,
    wanted: Callable[[Check], bool] = lambda check: True,
) -> Iterator[Result]:
    """The checks of a plugin's package once, then those of each target."""
    yield from run(Context(plugins, plugin, None, budget), [c for c in PACKAGE_CHECKS if wanted(c)])
    for target in targets or (None,):
        yield from run(Context(plugins, plugin, target, budget), [c for c in TARGET_CHECKS if wanted(c)])


def run_check(context: Context, check: Check) -> Result:
    """One check, with what the plugin says about expected failures."""
    target = "" if check in PACKAGE_CHECKS or context.no_target else context.target.name
    for part in check.needs:
        lacking = context.lacking(part)
        if lacking:
            return Result(check, target, "skipped", why=lacking.why, remedy=lacking.remedy)
    start = time.perf_counter()
    context.begin()
    try:
        problems = tuple(_problems(check, context))
    except NotApplicable as idle:
        return Result(check, target, "skipped", why=str(idle))
    expected, reason = _expectation(context.plugin, target, check)
    outcome: Outcome = "failed" if problems else "passed"
    if expected and not reason:
        outcome, problems = "failed", (*problems, "it is expected to fail, and no reason is given")
    elif expected and not problems:
        outcome, problems = "failed", (f"it is expected to fail ({reason}), and passes: take the entry out",)
    elif expected:
        outcome = "expected"
    return Result(
        check,
        target,
        outcome,
        problems,
        why=reason,
        cases=context.cases_done,
        refused=tuple(context.refused),
        warnings=tuple(context.warnings),
        cut=context.cut,
        seconds=time.perf_counter() - start,
    )


def _problems(check: Check, context: Context) -> Iterator[str]:
    """The problems a check reports; an exception counts as one."""
    try:
        for number, problem in enumerate(check.test(context)):
            if number == MOST_PROBLEMS:
                yield "and more"
                return
            yield problem
    except NotApplicable:
        raise
    except DojoError as error:
        yield f"{error.what}: {error.why}" if error.why else error.what
    except Exception as error:
        yield f"{type(error).__name__}: {error}"


def _expectation(plugin: Plugin, target: str, check: Check) -> tuple[bool, str]:
    """A flag, true if the plugin expects this failure, and the reason. The key "" stands for the package's
    checks."""
    found = _expectations(plugin).get(target, {})
    return check.name in found, str(found.get(check.name, "")).strip()


def _expectations(plugin: Plugin) -> Mapping[str, Mapping[str, str]]:
    declared: Mapping[str, Mapping[str, str]] = getattr(plugin.module, "PERFDOJO_EXPECTED_FAILURES", {})
    return declared

"""One random game, verified while it is played: the unit of work of every fuzz run.

The exact leg checks each move; the dependence leg and, if the program can be compiled and run, the numeric
leg check the end and every hundredth move. The numeric leg takes the ends of several walks together, which is
much cheaper. A failure holds the program, the move and the leg, and can be shrunk.
"""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from random import Random

from perfdojo_sdk.core.program import Program, Statement
from perfdojo_sdk.core.text import parse
from perfdojo_sdk.core.transformation import Kind, Move, Rules, Step, Trace
from perfdojo_sdk.search.neighbours import random_step
from perfdojo_sdk.testing.programs import random_program
from perfdojo_sdk.testing.shrink import shrink, still
from perfdojo_sdk.testing.typed_programs import has_all_vectors, typed_program
from perfdojo_sdk.verify.dependence import DependenceReport, verify_dependence_trace, verify_races
from perfdojo_sdk.verify.exact import ExactWalk, verify_exact

#: Every so many walks, one starts from a program of every dtype.
TYPED = 6
#: Moves between two checks by the expensive legs.
EVERY = 100
#: Moves between two checks of the printed text.
EVERY_TEXT = 50
#: Statements above which a program does not grow: the cost of a check is proportional to the length, and
#: faults of long programs show in short ones, too.
MOST_STATEMENTS = 24
#: Processor time for making a failure small.
SHRINK_S = 30.0
#: Draws for a move that does not make a long program longer.
DRAWS = 20

Numeric = Callable[[Sequence[Trace]], Sequence[str]]
"""The numeric leg for a target: the problem of the compiled end of each trace, or ""."""


@dataclass(frozen=True)
class FuzzFailure:
    """One move after which a leg refuses the program, or a program whose moves cannot be listed."""

    leg: str
    """The leg, or ``crash`` if listing or playing moves raised the error in ``problem``; then no move is
    known."""
    problem: str
    before: Program
    move: Move | None
    after: Program
    walk: Trace | None = None
    """The whole game, if the kernel of its end is wrong, and not one of its moves."""


@dataclass
class FuzzReport:
    """The result of one random walk."""

    seed: int
    statements: int = 0
    """Number of statements of the initial program."""
    moves: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    by_leg: Counter[str] = field(default_factory=Counter)
    """Checks of each leg; apart, those in which a leg came to no answer."""
    failure: FuzzFailure | None = None
    looks: list[Trace] = field(default_factory=list)
    """The games that the numeric leg has to verify."""


def fuzz(seed: int, rules: Rules, length: int, rarest: Sequence[str] = ()) -> FuzzReport:
    """A walk of ``length`` moves over a random program of six statements or more, or over one of every dtype,
    checked by the exact and the dependence leg.

    ``rarest``: transformations to prefer now and then. Any exception is a failure of the walk.
    """
    rng, report = Random(seed), FuzzReport(seed)
    typed = seed % TYPED == 0 and has_all_vectors(rules.dialect)
    trace = Trace(typed_program(rng, rules.dialect) if typed else random_program(rng, 6))
    walk = ExactWalk(trace.root, rules.dialect)
    report.statements = sum(isinstance(node, Statement) for _, node in trace.root.walk())
    for number in range(1, length + 1):
        try:
            step = _draw(rng, trace.program, rules, report, rarest)
        except Exception:
            program, said = trace.program, traceback.format_exc(limit=-3)
            report.failure = FuzzFailure("crash", said, program, None, program)
            return report
        if step is None:
            break
        trace = Trace(trace.root, (*trace.steps, step))
        report.moves[step.move.transformation] += 1
        report.kinds[step.legal.kind.label] += 1
        problem = _after_move(walk, step, seed, report)
        if not problem and number % EVERY_TEXT == 0 and parse(step.after.text, rules.dialect) != step.after:
            problem = "text", "the printed program parses to another one"
        if problem:
            report.failure = _failed(step, *problem)
            return report
        if number % EVERY == 0:
            _look(trace, rules, report)
            if report.failure:
                return report
    if len(trace.steps) % EVERY:
        _look(trace, rules, report)
    return report


def _draw(
    rng: Random, program: Program, rules: Rules, report: FuzzReport, rarest: Sequence[str]
) -> Step | None:
    """A random legal move; one that makes a long program longer only where no other is found."""
    for _ in range(DRAWS):
        step = random_step(rng, program, rules, most=max(Kind), played=report.moves, rarest=rarest)
        if step is None or step.after.statements <= max(MOST_STATEMENTS, program.statements):
            break
    return step


def _after_move(walk: ExactWalk, step: Step, seed: int, report: FuzzReport) -> tuple[str, str] | None:
    """The leg and the problem, if the move is wrong; the exact leg also checks the rules of the language."""
    exact = walk.check(step, seed)
    report.by_leg["exact" if exact.decided else "exact, undecided"] += 1
    return None if exact.ok or not exact.decided else ("exact", exact.problem)


def verify_numerically(reports: Sequence[FuzzReport], numeric: Numeric) -> None:
    """Run the numeric leg on the games that walks collected; each report gets its first failure."""
    todo = [(report, trace) for report in reports for trace in report.looks if report.failure is None]
    problems = numeric([trace for _, trace in todo]) if todo else ()
    for (report, trace), problem in zip(todo, problems, strict=True):
        report.by_leg["numeric"] += 1
        if problem and report.failure is None:
            report.failure = replace(_failed(trace.steps[-1], "numeric", problem), walk=trace)


def _failed(step: Step, leg: str, problem: str) -> FuzzFailure:
    return FuzzFailure(leg, problem, step.before, step.move, step.after)


def _look(trace: Trace, rules: Rules, report: FuzzReport) -> None:
    """Run the dependence leg, which finds the first wrong move, and the exact leg from the root; keep the
    trace for the numeric leg."""
    proof = proved(trace.steps[-1], rules)
    report.by_leg["dependence" if proof.decided else "dependence, undecided"] += 1
    if proof.decided and not proof.ok:
        blamed = ((step, proved(step, rules).problem) for step in trace.steps[-EVERY:])
        report.failure = next(_failed(step, "dependence", problem) for step, problem in blamed if problem)
        return
    whole = verify_exact(trace.root, trace.program, trace.laws, rules.dialect, report.seed)
    if whole.ok or not whole.decided:
        report.looks.append(trace)
    else:
        report.failure = _failed(trace.steps[-1], "exact", f"end against root: {whole.problem}")


def proved(step: Step, rules: Rules) -> DependenceReport:
    """The report of the dependence leg on a single step."""
    return verify_dependence_trace(Trace(step.before, (step,)), rules)


def shrunk(failure: FuzzFailure, rules: Rules) -> FuzzFailure:
    """The failure on the smallest program on which the same leg refuses the same kind of move.

    Failures of the numeric leg, of the text, and crashes are not shrunk, since no single move is known.
    """
    played = failure.move
    if played is None or failure.leg not in ("exact", "dependence"):
        return failure

    def found(program: Program) -> FuzzFailure | None:
        # A fault that the program has before the move is another failure.
        if failure.leg == "dependence" and not verify_races(program, rules.dialect).ok:
            return None
        if failure.leg == "exact" and not verify_exact(program, program, (), rules.dialect, models=1).ok:
            return None
        for move in rules.transformations[played.transformation].candidates(program, rules.dialect):
            step = rules.attempt(program, move)
            if isinstance(step, Step) and (problem := refuted(step)):
                return _failed(step, failure.leg, problem)
        return None

    def refuted(step: Step) -> str:
        if failure.leg == "exact":
            return verify_exact(step.before, step.after, step.legal.laws, rules.dialect, 0).problem
        return proved(step, rules).problem

    fails = still(lambda program: found(program) is not None)
    smallest = shrink(failure.before, fails, rules.dialect, SHRINK_S)
    # With the ids of a freshly parsed program, as in a replay of the failure.
    return found(parse(smallest.text, rules.dialect)) or found(smallest) or failure

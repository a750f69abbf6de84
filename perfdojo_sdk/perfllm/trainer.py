"""Training one agent on many kernels of many targets: read :func:`train` from top to bottom.

All lessons share one network and one memory. Each is played like any search, a round of games at a time, by
:class:`PerfLLM`; every program evaluated is a record, so nothing is measured twice, by whichever search.
After each round the training can stop; what a checkpoint holds is all that the next round depends on. So a
round begins with nothing at hand: vectors that were made together with other lines differ in their last
digits.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from perfdojo_sdk.core.frozen import seldom_collected
from perfdojo_sdk.hookspecs.types import Target
from perfdojo_sdk.kernels.selection import Kernel, default_selection, select
from perfdojo_sdk.library.context import BuildContext
from perfdojo_sdk.library.evaluation import Evaluator
from perfdojo_sdk.library.settings import Settings
from perfdojo_sdk.library.tuning import conditions
from perfdojo_sdk.perfllm import agents, checkpoints
from perfdojo_sdk.perfllm.actors import Actors, rounds
from perfdojo_sdk.perfllm.agents import Card
from perfdojo_sdk.perfllm.encoder import load_encoder
from perfdojo_sdk.perfllm.episodes import task_of
from perfdojo_sdk.perfllm.learner import Learner
from perfdojo_sdk.perfllm.lecture import Lecture, lecture
from perfdojo_sdk.perfllm.mind import Mind
from perfdojo_sdk.perfllm.plan import TrainingPlan
from perfdojo_sdk.perfllm.player import PerfLLM
from perfdojo_sdk.perfllm.pupil import Pupil
from perfdojo_sdk.plugins import Plugins
from perfdojo_sdk.search.strategies import BATCH
from perfdojo_sdk.store.candidates import CandidateLog

#: Steps of learning from records between two words about it.
AT_A_TIME = 200
#: Seconds between two checkpoints.
CHECKPOINT_S = 60.0

MakeContext = Callable[[str, Settings], BuildContext]
"""For a target by name."""


@dataclass(frozen=True)
class Report:
    """How far a training is, after a round."""

    evaluations: int
    steps: int
    """Of learning."""
    loss: float | None
    epsilon: float
    per_minute: float
    """Evaluations, in this session."""
    pupil: Pupil
    """Whose round it was."""


class Watch(Protocol):
    """Who wants to know how far a training is."""

    def recalled(self, name: str, games: int, beyond: tuple[str, ...]) -> None:
        """``beyond``: kinds of moves of better games that the agent's repertoire lacks."""

    def corrected(self, name: str, states: int, slips: int) -> None:
        """The agent has played a game of a kernel and was shown in so many states how to go on."""

    def studied(self, steps: int, count: int, loss: float | None) -> None:
        """``steps`` of ``count`` steps of learning from records are done."""

    def round(self, report: Report) -> None: ...


@dataclass
class Training:
    """A training in progress, or at its end."""

    plan: TrainingPlan
    mind: Mind
    pupils: list[Pupil]
    watch: Watch
    recalled: bool = False
    """Whether all is learned that is learned before it plays."""
    lectures: list[Lecture] = field(default_factory=list)
    """Until then: what it learns from, once that is remembered."""
    corrected: int = 0
    """Rounds of corrected games so far."""
    begin: float = field(default_factory=time.monotonic)
    before_s: float = 0.0
    """What earlier sessions took."""
    before: int = 0
    """Evaluations of earlier sessions."""

    @property
    def evaluations(self) -> int:
        return sum(pupil.evaluations for pupil in self.pupils)

    @property
    def elapsed_s(self) -> float:
        return self.before_s + time.monotonic() - self.begin

    @property
    def next(self) -> Pupil:
        """Whose turn it is: the one that has had the fewest evaluations."""
        return min((p for p in self.pupils if not p.finished), key=lambda p: p.evaluations)

    @property
    def late(self) -> bool:
        """Whether its time is up."""
        return self.plan.seconds is not None and self.elapsed_s >= self.plan.seconds

    @property
    def over(self) -> bool:
        return self.late or all(pupil.finished for pupil in self.pupils)

    def played(self, pupil: Pupil, count: int, ended: bool) -> None:
        """A pupil has made so many evaluations, and cannot go on when it has ``ended``."""
        pupil.evaluations += count
        settled = self.plan.plateau is not None and pupil.since_best >= self.plan.plateau
        pupil.finished = ended or settled or pupil.evaluations >= self.plan.evaluations
        self.watch.round(_report(self, pupil))


@seldom_collected()
def train(
    plugins: Plugins,
    plan: TrainingPlan,
    output: Path,
    store: CandidateLog | None,
    watch: Watch,
    resume: bool = False,
    start_from: Path | None = None,
    actors: Actors | None = None,
) -> Training:
    """Train an agent and write it to ``output``, with a checkpoint beside it.

    ``store``: where candidates are kept and found. ``resume``: go on from the checkpoint, if there is one.
    ``start_from``: the agent to begin with. :class:`LearnError` when one of them does not fit the plan.
    ``actors``: who plays; by default this process.
    """
    mind = _mind(plugins, plan, start_from)
    make_context = actors.context if actors is not None else _context_here(plugins)
    training = Training(plan, mind, _pupils(plugins, plan, mind, store, make_context), watch)
    earlier = agents.read(start_from)[0].card if start_from is not None else Card()
    checkpoint = checkpoints.beside(output)
    if resume and checkpoint.exists():
        checkpoints.load(checkpoint, training)
    saved = float("-inf")

    def keep() -> None:
        nonlocal saved
        if time.monotonic() - saved > CHECKPOINT_S or training.over:
            checkpoints.save(checkpoint, training)
            saved = time.monotonic()

    for _ in _recall(training, store):
        agents.save(output, mind, _card(plugins, training, earlier))
        keep()
    with closing(rounds(training, actors, store) if actors is not None else _rounds_here(training)) as steps:
        for _ in steps:
            keep()
    agents.save(output, mind, _card(plugins, training, earlier))
    return training


def _mind(plugins: Plugins, plan: TrainingPlan, start_from: Path | None) -> Mind:
    if start_from is not None:
        versions = _versions(plugins, [lesson.target for lesson in plan.lessons])
        return agents.load(start_from, plan.seed, versions).with_settings(plan.agent)
    encoder = load_encoder(plan.encoder)
    return Mind(encoder, Learner(plan.agent, encoder.width, plan.seed), plan.encoder)


def _context_here(plugins: Plugins) -> MakeContext:
    return lambda target, settings: BuildContext.of(plugins, plugins.require(target), settings)


def _pupils(
    plugins: Plugins, plan: TrainingPlan, mind: Mind, store: CandidateLog | None, make_context: MakeContext
) -> list[Pupil]:
    pupils = []
    for lesson in plan.lessons:
        settings = Settings(
            threads=plan.threads, seed=plan.seed, search="perfllm", evaluations=plan.evaluations
        )
        context = make_context(lesson.target, settings)
        for kernel in _kernels(plugins, context.target, lesson.kernels):
            task = task_of(context, kernel)
            evaluator = Evaluator(conditions(context, kernel), store)
            pupils.append(Pupil(kernel, context, PerfLLM(task, None, mind, alone=False), evaluator))
    return pupils


def _kernels(plugins: Plugins, target: Target, words: str) -> Sequence[Kernel]:
    operators, lists = plugins.operators_for(target), target.capabilities.selections
    if words:
        return select(words, operators, target.dialect, lists)
    return default_selection(operators, target.dialect, lists)


def _recall(training: Training, store: CandidateLog | None) -> Iterator[None]:
    """Learn from what other searches have recorded, before anything is played.

    A step after the recorded games, and one after each round of corrected ones, for the agent to be kept as
    it is then.
    """
    plan, learner = training.plan, training.mind.learner
    if not training.lectures and not training.recalled:
        for pupil in training.pupils if plan.recorded else ():
            given = lecture(plan, pupil, store)
            training.lectures.append(given)
            training.watch.recalled(pupil.name, given.games, given.beyond)
        _study(training, plan.steps_for(len(learner.replay)))
        if training.lectures:
            yield
    while training.lectures and training.corrected < plan.corrected:
        if training.late:
            return
        before = len(learner.replay)
        training.mind.encoder.forget()
        for given in training.lectures:
            for states, slips in given.correct(plan, training.corrected):
                training.watch.corrected(given.pupil.name, states, slips)
        _study(training, plan.steps_for(len(learner.replay) - before))
        training.corrected += 1
        yield
    if training.lectures:
        _study(training, plan.settling, to_rest=True)
    training.lectures, training.recalled = [], True


def _study(training: Training, steps: int, to_rest: bool = False) -> None:
    """Learn so many steps from what is remembered; ``to_rest``: ever smaller ones.

    With steps of one size a network never comes to rest. It goes on trading one kernel for another, and what
    it can play depends on when one stops.
    """
    for done in range(0, steps, AT_A_TIME):
        size = 1 - done / steps if to_rest else 1.0
        loss = training.mind.learner.learn(min(AT_A_TIME, steps - done), size)
        training.watch.studied(min(done + AT_A_TIME, steps), steps, loss)


def _rounds_here(training: Training) -> Generator[None, None, None]:
    while not training.over:
        _round(training, training.next)
        yield


def _round(training: Training, pupil: Pupil) -> None:
    """One round of games of one kernel: propose, evaluate, learn."""
    plan, player = training.plan, pupil.player
    training.mind.encoder.forget()
    player.forget()
    best = pupil.best_s or float("inf")
    games = player.propose(min(BATCH, plan.evaluations - pupil.evaluations))
    player.observe(pupil.evaluator.evaluate(games))
    pupil.since_best = 0 if (pupil.best_s or float("inf")) < best else pupil.since_best + len(games)
    training.played(pupil, len(games), ended=not games)


def _report(training: Training, pupil: Pupil) -> Report:
    minutes = max(1e-9, (time.monotonic() - training.begin) / 60)
    return Report(
        training.evaluations,
        training.mind.learner.steps,
        pupil.player.loss,
        pupil.player.epsilon,
        (training.evaluations - training.before) / minutes,
        pupil,
    )


def _versions(plugins: Plugins, targets: Sequence[str]) -> dict[str, str]:
    """Plugin -> version and hash, of all who have a say over the targets."""
    return {
        name: version
        for target in dict.fromkeys(targets)
        for name, version in plugins.fingerprints(plugins.require(target)).items()
    }


def _card(plugins: Plugins, training: Training, earlier: Card) -> Card:
    """How this agent came about; ``earlier``: of the one that it began as."""
    packages = _versions(plugins, [pupil.context.target.name for pupil in training.pupils])
    return Card(
        targets=tuple(sorted({*earlier.targets, *(pupil.context.target.name for pupil in training.pupils)})),
        kernels=tuple(dict.fromkeys([*earlier.kernels, *(pupil.name for pupil in training.pupils)])),
        evaluations=earlier.evaluations + training.evaluations,
        shown=earlier.shown + sum(pupil.shown for pupil in training.pupils),
        remembered=earlier.remembered + len(training.mind.learner.replay.seen),
        steps=earlier.steps + training.mind.learner.steps,
        seed=training.plan.seed,
        plugins=earlier.plugins | packages,
        notes=training.plan.notes,
    )

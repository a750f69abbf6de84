"""Training one agent on many kernels of many targets: read :func:`train` from top to bottom.

All lessons share one network and one memory. Each is played like any search, a round of games at a time, by
:class:`PerfLLM`; every program evaluated is a record, so nothing is measured twice, by whichever search.
After each round the training can stop; what a checkpoint holds is all that the next round depends on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Protocol

from perfdojo_sdk.core.frozen import seldom_collected
from perfdojo_sdk.core.transformation import Trace
from perfdojo_sdk.hookspecs.types import Target
from perfdojo_sdk.kernels.selection import Kernel, default_selection, select
from perfdojo_sdk.library.evaluation import Evaluator
from perfdojo_sdk.library.forge import Forge, Settings
from perfdojo_sdk.library.tuning import conditions
from perfdojo_sdk.perfllm import agents, checkpoints
from perfdojo_sdk.perfllm.actors import Actors, rounds
from perfdojo_sdk.perfllm.agents import Card
from perfdojo_sdk.perfllm.correction import correct
from perfdojo_sdk.perfllm.encoder import load_encoder
from perfdojo_sdk.perfllm.episodes import task_of
from perfdojo_sdk.perfllm.learner import Learner
from perfdojo_sdk.perfllm.mind import Mind
from perfdojo_sdk.perfllm.plan import TrainingPlan
from perfdojo_sdk.perfllm.player import PerfLLM
from perfdojo_sdk.perfllm.recall import Recall, Table
from perfdojo_sdk.perfllm.settings import kind_of
from perfdojo_sdk.plugins import Plugins
from perfdojo_sdk.search.explorer import openings
from perfdojo_sdk.search.strategies import BATCH
from perfdojo_sdk.store.candidates import Candidate, CandidateLog
from perfdojo_sdk.store.records import sha256

#: Steps of learning from records between two words about it.
AT_A_TIME = 200
#: Seconds between two checkpoints.
CHECKPOINT_S = 60.0

MakeForge = Callable[[str, Settings], Forge]
"""For a target by name."""


@dataclass
class Pupil:
    """One kernel of one target, and how far the agent is with it."""

    kernel: Kernel
    forge: Forge
    player: PerfLLM
    evaluator: Evaluator
    evaluations: int = 0
    since_best: int = 0
    """Evaluations since the last new best."""
    shown: int = 0
    """Programs evaluated before it plays: games of passes, slips, ends of corrected games."""
    finished: bool = False

    @property
    def name(self) -> str:
        return f"{self.kernel.name} on {self.forge.target.name}"

    def seconds(self, game: Trace) -> float | None:
        """What a game takes that is shown to the agent; None when it fails."""
        self.shown += sha256(game.program.text) not in self.evaluator.known
        return self.evaluator.evaluate([game])[0].seconds

    @property
    def initial_s(self) -> float | None:
        return self.player.met[0].seconds if self.player.met else None

    @property
    def best_s(self) -> float | None:
        return self.player.seconds(self.player.best) if self.player.timed else None

    @property
    def speed_up(self) -> float | None:
        return self.initial_s / self.best_s if self.initial_s and self.best_s else None


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
        """``beyond``: kinds of moves of good games that the agent's repertoire lacks."""

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
    make_forge = actors.forge if actors is not None else _forge_here(plugins)
    training = Training(plan, mind, _pupils(plugins, plan, mind, store, make_forge), watch)
    earlier = agents.read(start_from)[0].card if start_from is not None else Card()
    checkpoint = checkpoints.beside(output)
    if resume and checkpoint.exists():
        checkpoints.load(checkpoint, training)
    if not training.recalled:
        for _ in _recall(training, store):
            agents.save(output, mind, _card(plugins, training, earlier))
    saved = time.monotonic()
    with closing(rounds(training, actors, store) if actors is not None else _rounds_here(training)) as steps:
        for _ in steps:
            if time.monotonic() - saved > CHECKPOINT_S or training.over:
                checkpoints.save(checkpoint, training)
                saved = time.monotonic()
    agents.save(output, mind, _card(plugins, training, earlier))
    return training


def _mind(plugins: Plugins, plan: TrainingPlan, start_from: Path | None) -> Mind:
    if start_from is not None:
        versions = _versions(plugins, [lesson.target for lesson in plan.lessons])
        return agents.load(start_from, plan.seed, versions).with_settings(plan.agent)
    encoder = load_encoder(plan.encoder)
    return Mind(encoder, Learner(plan.agent, encoder.width, plan.seed), plan.encoder)


def _forge_here(plugins: Plugins) -> MakeForge:
    return lambda target, settings: Forge(plugins, plugins.require(target), settings)


def _pupils(
    plugins: Plugins, plan: TrainingPlan, mind: Mind, store: CandidateLog | None, make_forge: MakeForge
) -> list[Pupil]:
    pupils = []
    for lesson in plan.lessons:
        settings = Settings(
            threads=plan.threads, seed=plan.seed, search="perfllm", evaluations=plan.evaluations
        )
        forge = make_forge(lesson.target, settings)
        for kernel in _kernels(plugins, forge.target, lesson.kernels):
            task = task_of(forge, kernel)
            evaluator = Evaluator(conditions(forge, kernel), store)
            pupils.append(Pupil(kernel, forge, PerfLLM(task, None, mind, alone=False), evaluator))
    return pupils


def _kernels(plugins: Plugins, target: Target, words: str) -> Sequence[Kernel]:
    operators, lists = plugins.operators_for(target), target.capabilities.selections
    if words:
        return select(words, operators, target.dialect, lists)
    return default_selection(operators, target.dialect, lists)


def _recall(training: Training, store: CandidateLog | None) -> Iterator[None]:
    """Learn from what other searches have recorded, before anything is played.

    A step for each round of corrected games, for the agent to be kept as it is then.
    """
    plan, learner = training.plan, training.mind.learner
    lectures = [_lecture(training, pupil, store) for pupil in training.pupils if plan.recorded]
    _study(training, len(learner.replay))
    for _ in range(plan.corrected):
        if training.late:
            break
        before = len(learner.replay)
        for lecture in lectures:
            for _ in range(plan.corrected_games if lecture.shown else 0):
                found = correct(lecture.recalling, lecture.shown, lecture.pupil.seconds, lecture.chance)
                training.watch.corrected(lecture.pupil.name, *found)
        _study(training, len(learner.replay) - before)
        yield
    training.recalled = True


@dataclass(frozen=True)
class Lecture:
    """What a pupil is shown, before it plays for itself."""

    pupil: Pupil
    recalling: Recall
    shown: list[Trace]
    """Games as good as any known."""
    chance: Random


def _lecture(training: Training, pupil: Pupil, store: CandidateLog | None) -> Lecture:
    """Remember the best games of one kernel, in several orders and with slips."""
    plan, task = training.plan, pupil.player.task
    recorded = store.of(pupil.kernel.name, task.target.name) if store else ()
    found = [candidate for candidate in recorded if _alike(candidate, pupil)]
    if plan.passes:
        found += _played_by_passes(pupil)
    table = Table(training.mind, Trace(task.root), task.rules, task.most, task.target.name)
    recalling = Recall(table, found)
    games = recalling.fastest(plan.recorded)
    for game in games:
        recalling.remember(game)
    shown = [game for game in games if recalling.shows(game)]
    chance = Random(f"{plan.seed} {pupil.name}")
    varied = recalling.vary(shown, plan.orders, plan.slips, pupil.seconds, chance)
    training.watch.recalled(pupil.name, len(games) + varied, _beyond(training, pupil, shown))
    return Lecture(pupil, recalling, shown, chance)


def _beyond(training: Training, pupil: Pupil, shown: Sequence[Trace]) -> tuple[str, ...]:
    """Kinds of moves that good games play and the agent never will, since its repertoire lacks them."""
    kinds = training.mind.learner.settings.kinds(pupil.forge.target.name)
    played = {kind_of(move) for game in shown for move in game.moves}
    return tuple(sorted(played - kinds)) if kinds else ()


def _study(training: Training, transitions: int) -> None:
    """Learn as many steps as so many new transitions are worth."""
    steps = int(transitions * training.plan.recorded_steps)
    for done in range(0, steps, AT_A_TIME):
        loss = training.mind.learner.learn(min(AT_A_TIME, steps - done))
        training.watch.studied(min(done + AT_A_TIME, steps), steps, loss)


def _played_by_passes(pupil: Pupil) -> list[Candidate]:
    """The games that are known without searching, evaluated."""
    games = openings(pupil.forge.task(pupil.kernel))
    how = pupil.evaluator.conditions
    for game in games:
        pupil.seconds(game)
    known = pupil.evaluator.known
    return [Candidate.of(how.key, g, known[sha256(g.program.text)], how.proposer) for g in games]


def _alike(candidate: Candidate, pupil: Pupil) -> bool:
    """Whether a record's figure may stand beside those of this training; who proposed it does not matter."""
    one, other = candidate.key.conditions, pupil.evaluator.conditions.key
    same = (one.program_sha256, one.device) == (other.program_sha256, other.device)
    return same and one.settings.get("threads") == other.settings.get("threads")


def _rounds_here(training: Training) -> Generator[None, None, None]:
    while not training.over:
        _round(training, training.next)
        yield


def _round(training: Training, pupil: Pupil) -> None:
    """One round of games of one kernel: propose, evaluate, learn."""
    plan, player = training.plan, pupil.player
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
    packages = _versions(plugins, [pupil.forge.target.name for pupil in training.pupils])
    return Card(
        targets=tuple(sorted({*earlier.targets, *(pupil.forge.target.name for pupil in training.pupils)})),
        kernels=tuple(dict.fromkeys([*earlier.kernels, *(pupil.name for pupil in training.pupils)])),
        evaluations=earlier.evaluations + training.evaluations,
        shown=earlier.shown + sum(pupil.shown for pupil in training.pupils),
        remembered=earlier.remembered + len(training.mind.learner.replay.seen),
        steps=earlier.steps + training.mind.learner.steps,
        seed=training.plan.seed,
        plugins=earlier.plugins | packages,
        notes=training.plan.notes,
    )

"""Trains one agent on many kernels of many targets; :func:`train` is the whole procedure.

All tasks share one network and one replay memory. :class:`PerfLLM` plays each of them like any other search,
a round of games at a time. Every evaluated program becomes a record, so no search measures it again. The
training can stop after each round, and the next round depends on nothing that a checkpoint does not hold.
Caches are therefore emptied before each round: the last digits of a vector depend on the lines encoded
together with it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from pathlib import Path

from perfdojo_sdk.core.frozen import seldom_collected
from perfdojo_sdk.hookspecs.types import Target
from perfdojo_sdk.kernels.selection import Kernel, default_selection, select
from perfdojo_sdk.library.context import BuildContext
from perfdojo_sdk.library.evaluation import Evaluator
from perfdojo_sdk.library.settings import Settings
from perfdojo_sdk.library.tuning import conditions
from perfdojo_sdk.perfllm import agent_files, checkpoints
from perfdojo_sdk.perfllm.actors import Actors, rounds
from perfdojo_sdk.perfllm.agent import Agent
from perfdojo_sdk.perfllm.agent_files import Card
from perfdojo_sdk.perfllm.demonstrations import demonstrate
from perfdojo_sdk.perfllm.encoder import load_encoder
from perfdojo_sdk.perfllm.episodes import task_of
from perfdojo_sdk.perfllm.learner import Learner
from perfdojo_sdk.perfllm.plan import TrainingPlan
from perfdojo_sdk.perfllm.player import PerfLLM
from perfdojo_sdk.perfllm.training import Training, TrainingObserver
from perfdojo_sdk.perfllm.training_task import TrainingTask
from perfdojo_sdk.plugins import Plugins
from perfdojo_sdk.search.strategies import BATCH
from perfdojo_sdk.store.candidates import CandidateLog

#: Gradient steps on recorded games between two reports.
AT_A_TIME = 200
#: Seconds between two checkpoints.
CHECKPOINT_S = 60.0

MakeContext = Callable[[str, Settings], BuildContext]
"""Makes the build context of a target, given by name, with settings."""


@seldom_collected()
def train(
    plugins: Plugins,
    plan: TrainingPlan,
    output: Path,
    store: CandidateLog | None,
    observer: TrainingObserver,
    resume: bool = False,
    start_from: Path | None = None,
    actors: Actors | None = None,
) -> Training:
    """Train an agent and write it to ``output``, with a checkpoint beside it.

    ``store``: the candidates on record, to which new ones are added. ``resume``: continue from the
    checkpoint, if there is one. ``start_from``: the file of the agent to begin with. ``actors``: processes
    that play the games; None: this one. :class:`LearnError` when the checkpoint or the agent does not fit
    the plan.
    """
    agent = _agent(plugins, plan, start_from)
    make_context = actors.context if actors is not None else _context_here(plugins)
    training = Training(plan, agent, _tasks(plugins, plan, agent, store, make_context), observer)
    earlier = agent_files.read(start_from)[0].card if start_from is not None else Card()
    checkpoint = checkpoints.beside(output)
    if resume and checkpoint.exists():
        checkpoints.load(checkpoint, training)
    saved = float("-inf")

    def keep() -> None:
        nonlocal saved
        if time.monotonic() - saved > CHECKPOINT_S or training.over:
            checkpoints.save(checkpoint, training)
            saved = time.monotonic()

    for _ in _learn_from_demonstrations(training, store):
        agent_files.save(output, agent, _card(plugins, training, earlier))
        keep()
    with closing(rounds(training, actors, store) if actors is not None else _rounds_here(training)) as steps:
        for _ in steps:
            keep()
    agent_files.save(output, agent, _card(plugins, training, earlier))
    return training


def _agent(plugins: Plugins, plan: TrainingPlan, start_from: Path | None) -> Agent:
    if start_from is not None:
        versions = _versions(plugins, [lesson.target for lesson in plan.lessons])
        return agent_files.load(start_from, plan.seed, versions).with_settings(plan.agent)
    encoder = load_encoder(plan.encoder)
    return Agent(encoder, Learner(plan.agent, encoder.width, plan.seed), plan.encoder)


def _context_here(plugins: Plugins) -> MakeContext:
    return lambda target, settings: BuildContext.of(plugins, plugins.require(target), settings)


def _tasks(
    plugins: Plugins, plan: TrainingPlan, agent: Agent, store: CandidateLog | None, make_context: MakeContext
) -> list[TrainingTask]:
    tasks = []
    for lesson in plan.lessons:
        settings = Settings(
            threads=plan.threads, seed=plan.seed, search="perfllm", evaluations=plan.evaluations
        )
        context = make_context(lesson.target, settings)
        for kernel in _kernels(plugins, context.target, lesson.kernels):
            player = PerfLLM(task_of(context, kernel), None, agent, alone=False)
            evaluator = Evaluator(conditions(context, kernel), store)
            tasks.append(TrainingTask(kernel, context, player, evaluator))
    return tasks


def _kernels(plugins: Plugins, target: Target, words: str) -> Sequence[Kernel]:
    operators, lists = plugins.operators_for(target), target.capabilities.selections
    if words:
        return select(words, operators, target.dialect, lists)
    return default_selection(operators, target.dialect, lists)


def _learn_from_demonstrations(training: Training, store: CandidateLog | None) -> Iterator[None]:
    """Learn from the games that other searches have recorded, before anything is played.

    Yields after the recorded games and after each round of corrected games, so that the caller can save the
    agent.
    """
    plan, learner = training.plan, training.agent.learner
    if not training.demonstrations and not training.recalled:
        for task in training.tasks if plan.recorded else ():
            given = demonstrate(plan, task, store)
            training.demonstrations.append(given)
            training.observer.recalled(task.name, given.games, given.beyond)
        _take_steps(training, plan.steps_for(len(learner.replay)))
        if training.demonstrations:
            yield
    while training.demonstrations and training.corrected < plan.corrected:
        if training.late:
            return
        before = len(learner.replay)
        training.agent.encoder.forget()
        for given in training.demonstrations:
            for states, slips in given.correct(plan, training.corrected):
                training.observer.corrected(given.task.name, states, slips)
        _take_steps(training, plan.steps_for(len(learner.replay) - before))
        training.corrected += 1
        yield
    if training.demonstrations:
        _take_steps(training, plan.settling, to_rest=True)
    training.demonstrations, training.recalled = [], True


def _take_steps(training: Training, steps: int, to_rest: bool = False) -> None:
    """Learn for ``steps`` gradient steps from the replay; ``to_rest``: with a rate that falls to zero.

    At a constant rate the network never converges: it keeps improving on one kernel at the expense of
    another, and what it can play depends on when one stops.
    """
    for done in range(0, steps, AT_A_TIME):
        size = 1 - done / steps if to_rest else 1.0
        loss = training.agent.learner.learn(min(AT_A_TIME, steps - done), size)
        training.observer.studied(min(done + AT_A_TIME, steps), steps, loss)


def _rounds_here(training: Training) -> Generator[None, None, None]:
    while not training.over:
        _round(training, training.next)
        yield


def _round(training: Training, task: TrainingTask) -> None:
    """One round of games of one kernel: propose, evaluate, learn."""
    plan, player = training.plan, task.player
    training.agent.encoder.forget()
    player.forget()
    best = task.best_s or float("inf")
    games = player.propose(min(BATCH, plan.evaluations - task.evaluations))
    player.observe(task.evaluator.evaluate(games))
    task.since_best = 0 if (task.best_s or float("inf")) < best else task.since_best + len(games)
    training.played(task, len(games), ended=not games)


def _versions(plugins: Plugins, targets: Sequence[str]) -> dict[str, str]:
    """Plugin -> version and hash, of all plugins that affect one of the targets."""
    return {
        name: version
        for target in dict.fromkeys(targets)
        for name, version in plugins.fingerprints(plugins.require(target)).items()
    }


def _card(plugins: Plugins, training: Training, earlier: Card) -> Card:
    """The card of the trained agent; ``earlier``: the card of the agent it began as."""
    packages = _versions(plugins, [task.context.target.name for task in training.tasks])
    return Card(
        targets=tuple(sorted({*earlier.targets, *(task.context.target.name for task in training.tasks)})),
        kernels=tuple(dict.fromkeys([*earlier.kernels, *(task.name for task in training.tasks)])),
        evaluations=earlier.evaluations + training.evaluations,
        shown=earlier.shown + sum(task.shown for task in training.tasks),
        remembered=earlier.remembered + len(training.agent.learner.replay.seen),
        steps=earlier.steps + training.agent.learner.steps,
        seed=training.plan.seed,
        plugins=earlier.plugins | packages,
        notes=training.plan.notes,
    )

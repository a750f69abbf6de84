"""Trainings whose games are played elsewhere: what actors bring back, and how the learner follows.

Here the actors are in this process, or only pretended; ``test_cluster.py`` has real ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")

from bag_encoder import BagEncoder  # noqa: E402
from learners import MACHINE, PLAN, QUICK, TARGET, Quiet, on_paper  # noqa: E402

from perfdojo_sdk.cluster import training as cluster_training  # noqa: E402
from perfdojo_sdk.cluster import worker  # noqa: E402
from perfdojo_sdk.core.errors import DojoError  # noqa: E402
from perfdojo_sdk.library.context import BuildContext  # noqa: E402
from perfdojo_sdk.library.settings import Settings  # noqa: E402
from perfdojo_sdk.perfllm import agent_files, checkpoints, episodes, trainer  # noqa: E402
from perfdojo_sdk.perfllm.agent import Agent  # noqa: E402
from perfdojo_sdk.perfllm.episodes import AgentSnapshot, Experience, Job, play  # noqa: E402
from perfdojo_sdk.perfllm.learner import Learner, LearnError  # noqa: E402
from perfdojo_sdk.perfllm.replay import Replay  # noqa: E402
from perfdojo_sdk.plugins import Plugins  # noqa: E402
from perfdojo_sdk.store.candidates import Candidate  # noqa: E402
from perfdojo_sdk.store.database import Records  # noqa: E402
from perfdojo_sdk.testing.estimate import AnalyticRunner  # noqa: E402


class Blind(BagEncoder):
    """An encoder that must not be asked."""

    def encode(self, texts: Any) -> Any:
        raise AssertionError("the learner encodes")


@dataclass
class Counting:
    """A runner that says how often it ran something."""

    runner: AnalyticRunner = field(default_factory=lambda: AnalyticRunner(MACHINE))
    runs: list[bytes] = field(default_factory=list)

    def compile(self, source: Any) -> Any:
        return self.runner.compile(source)

    def run(self, artifact: Any, request: Any) -> Any:
        self.runs.append(artifact.content)
        return self.runner.run(artifact, request)

    def device(self) -> str:
        return self.runner.device()


@pytest.fixture
def runner(monkeypatch: pytest.MonkeyPatch) -> Counting:
    monkeypatch.setattr(episodes, "_encoder", lambda spec: BagEncoder())
    monkeypatch.setattr(trainer, "load_encoder", lambda spec: Blind())
    return Counting()


@pytest.fixture
def paper(runner: Counting) -> Plugins:
    return on_paper(runner)


class Here:
    """Actors in this process: the job that was ordered last comes back first."""

    def __init__(self, plugins: Plugins, store: Any = None, room: int = 2) -> None:
        self.plugins, self.store, self.room = plugins, store, room
        self.jobs: list[Job] = []
        self.ordered: list[Job] = []

    def context(self, target: str, settings: Settings) -> BuildContext:
        return BuildContext.of(self.plugins, self.plugins.target(target), settings)

    def order(self, job: Job) -> None:
        assert job.number not in [each.number for each in self.jobs], "one job for each task"
        self.jobs.append(job)
        self.ordered.append(job)
        assert len(self.jobs) <= self.room

    def next(self) -> tuple[Job, Experience] | None:
        job = self.jobs.pop()
        sending = worker.Sending(job.known, self.keep)
        return job, play(job, self.context(job.target, job.settings), sending)

    def keep(self, event: Any) -> None:
        if self.store is not None:
            self.store.put(event.candidate)

    def stop(self) -> None:
        self.jobs.clear()


def job_of(plugins: Plugins, evaluations: int = 12, **more: Any) -> tuple[Job, BuildContext]:
    """The first job of a training of one kernel."""
    here = Here(plugins)
    context = here.context("sheet", Settings(threads=1, search="perfllm", evaluations=48))
    agent = Agent(BagEncoder(), Learner(QUICK, 32))
    [kernel] = trainer.select("softmax[4,8]", plugins.operators, context.target.dialect)
    player = trainer.PerfLLM(episodes.task_of(context, kernel), None, agent, alone=False)
    snapshot = AgentSnapshot.of(agent)
    job = Job(0, "sheet", kernel, context.settings, snapshot, player.state(), evaluations, ())
    return replace(job, **more), context


def played(job: Job, context: BuildContext) -> tuple[Experience, dict[str, Candidate]]:
    told: dict[str, Candidate] = {}
    sending = worker.Sending(job.known, lambda e: told.update({e.candidate.key.digest: e.candidate}))
    return play(job, context, sending), told


# -- experience -----------------------------------


def test_an_actor_brings_back_games_moves_and_vectors(paper: Plugins) -> None:
    job, context = job_of(paper)
    experience, told = played(job, context)
    assert experience.evaluations == len(experience.player["met"]) == len(told) == 12
    replay = Replay(32, 100, QUICK.gamma)
    replay.merge(experience.skeleton, experience.arrays)
    programs = {each["program"] for each in experience.player["met"]}
    assert {name.partition(" ")[2] for name in replay.names} >= programs
    assert len(replay.transitions) == len(experience.skeleton["transitions"]) >= 12
    batch = replay.sample(np.random.default_rng(0), 64, 16)
    assert np.isfinite(batch.after).all() and batch.after.any() and (batch.reward > 0).any()
    again, _ = played(job, context)
    assert again.player == experience.player and again.skeleton == experience.skeleton


def test_a_job_goes_on_where_the_last_one_ended(paper: Plugins, runner: Counting) -> None:
    job, context = job_of(paper)
    first, _ = played(job, context)
    second, told = played(replace(job, player=first.player), context)
    assert second.player["met"][:12] == first.player["met"] and len(second.player["met"]) == 24
    programs = [each["program"] for each in second.player["met"]]
    assert len(set(programs)) == 24, "nothing is proposed twice"
    best = min(first.player["met"], key=lambda m: m["seconds"] or 1e9)["program"]
    assert {c.key.program_sha256[:24] for c in told.values()} == {*programs[12:], best}


def test_what_an_actor_had_told_is_not_measured_again(paper: Plugins, runner: Counting) -> None:
    job, context = job_of(paper)
    whole, told = played(job, context)
    begun = dict([*told.items()][:9])
    runner.runs.clear()
    again, new = played(replace(job, known=tuple(begun.values())), context)
    assert again.player == whole.player
    assert len(new.keys() - begun.keys()) == 3
    assert new.keys() | begun.keys() == told.keys()
    # One run for each new program, and two for each that once was the fastest.
    assert len(runner.runs) <= 3 + 2 * len(new.keys() & begun.keys()) + 2


def test_a_snapshot_plays_as_the_agent_and_knows_whose_encoder_it_needs(
    runner: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = Agent(BagEncoder(), Learner(QUICK, 32, seed=3))
    snapshot = AgentSnapshot.of(agent)
    restored = snapshot.restored()
    before, after = np.ones(32, np.float32), np.eye(5, 32, dtype=np.float32)
    assert (restored.learner.values(before, after) == agent.learner.values(before, after)).all()
    assert restored.learner.evaluated(100) is None and restored.learner.steps == 0, "an actor does not learn"
    monkeypatch.setattr(episodes, "_encoder", lambda spec: BagEncoder(version="1" * 64))
    with pytest.raises(LearnError) as caught:
        snapshot.restored()
    assert caught.value.code == "PD-L304"


# -- merging --------------------------------------


def memory(*edges: tuple[str, str, float]) -> Replay:
    """States by name; each edge is a first move to a state with a reward."""
    replay = Replay(4, 100, 0.9)
    replay.state("root", 1.0)
    for name, to, reward in edges:
        number = replay.state(name)
        vectors = np.full((3, 4), len(name), np.float32)
        replay.expand(number, vectors[0], vectors[1:])
        replay.move(number, 1, replay.state(to, reward))
    return replay


def content(replay: Replay) -> tuple[Any, ...]:
    """The content of a replay; the order of its transitions says nothing."""
    skeleton = replay.skeleton()
    skeleton["transitions"].sort()
    bounds = {name: state.bound for name, state in zip(replay.names, replay.states)}
    return skeleton, {n: a.tolist() for n, a in replay.arrays().items()}, bounds


def merged(*replays: Replay) -> Replay:
    into = Replay(4, 100, 0.9)
    for replay in replays:
        into.merge(replay.skeleton(), replay.arrays())
    return into


def test_merging_adds_what_is_new_and_nothing_twice() -> None:
    one = memory(("root", "a", 2.0), ("a", "b", 3.0))
    assert content(merged(one)) == content(one) == content(merged(one, one))
    two = memory(("root", "c", 0.5), ("b", "d", 10.0))
    both = merged(one, two)
    assert both.names == ["root", "a", "b", "c", "d"]
    assert len(both.transitions) == len(one.transitions) + len(two.transitions) - 1 + 1, "b is listed now"
    bounds = dict(zip(both.names, (state.bound for state in both.states)))
    assert bounds["root"] == pytest.approx(10 * 0.9**3), "what one found leads on from what the other found"
    swapped = merged(two, one)
    assert {n: s.bound for n, s in zip(swapped.names, swapped.states)} == pytest.approx(bounds)


def test_what_was_reached_in_unknown_ways_is_merged_too() -> None:
    one = memory(("root", "a", 2.0))
    one.reached(one.number["a"], 7.0)
    assert content(merged(one)) == content(one) != content(memory(("root", "a", 2.0)))
    both = merged(memory(("root", "a", 2.0)), one)
    assert both.states[both.number["root"]].bound == pytest.approx(7.0 * 0.9)


def test_rewards_and_moves_known_here_stay() -> None:
    here, there = memory(("root", "a", 2.0)), memory(("root", "a", 5.0))
    here.merge(there.skeleton(), there.arrays())
    assert here.states[here.number["a"]].reward == 2.0


@pytest.mark.parametrize("wrong", ["names", "rows", "moves", "width"])
def test_what_does_not_fit_is_not_merged(wrong: str) -> None:
    here, there = memory(("root", "a", 2.0)), memory(("root", "b", 2.0))
    before = content(here)
    skeleton, arrays = there.skeleton(), there.arrays()
    if wrong == "names":
        skeleton["names"] = ["root", "root"]
    elif wrong == "rows":
        arrays["replay.rows"] = arrays["replay.rows"] + 1
    elif wrong == "moves":
        arrays = {"replay.rows": np.array([2]), "replay.vectors": arrays["replay.vectors"][:2]}
    else:
        arrays["replay.vectors"] = arrays["replay.vectors"][:, :2]
    with pytest.raises(ValueError):
        here.merge(skeleton, arrays)
    assert content(here) == before


# -- trainings ------------------------------------


def test_a_training_with_actors_learns_without_encoding(
    paper: Plugins, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perfdojo_sdk.perfllm.actors.EVALUATIONS", 5)
    file, watch = tmp_path / "agent.safetensors", Quiet()
    with Records(tmp_path / "records.sqlite") as records:
        actors = Here(paper, records.candidates)
        training = trainer.train(paper, PLAN, file, records.candidates, watch, actors=actors)
        kept = sum(len(list(records.candidates.of(p.kernel.name, "sheet"))) for p in training.tasks)
    assert training.evaluations == kept == 32
    assert [job.evaluations for job in actors.ordered if job.number == 0] == [5, 5, 5, 1]
    assert training.agent.learner.steps == 16
    assert len({job.agent.network for job in actors.ordered}) > 4, "each gets the network as it is now"
    assert all(task.speed_up is not None and task.speed_up > 1 for task in training.tasks)
    assert agent_files.read(file)[0].card.evaluations == 32
    assert len(watch.reports) == len(actors.ordered)


def test_a_training_with_actors_ends_on_a_plateau_or_in_time(
    paper: Plugins, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perfdojo_sdk.perfllm.actors.EVALUATIONS", 4)
    plan = PLAN.model_copy(update={"evaluations": 10**6, "plateau": 4})
    file = tmp_path / "a.safetensors"
    training = trainer.train(paper, plan, file, None, Quiet(), actors=Here(paper))
    assert all(task.since_best >= 4 for task in training.tasks)
    late = PLAN.model_copy(update={"seconds": 1e-9})
    assert trainer.train(paper, late, file, None, Quiet(), actors=Here(paper)).evaluations == 0


def test_a_training_with_actors_is_resumed_and_measures_nothing_twice(
    paper: Plugins, runner: Counting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trainer, "CHECKPOINT_S", 0.0)
    monkeypatch.setattr("perfdojo_sdk.perfllm.actors.EVALUATIONS", 4)
    file = tmp_path / "agent.safetensors"
    with Records(tmp_path / "records.sqlite") as records:

        def trained(watch: Quiet, resume: bool) -> Any:
            actors = Here(paper, records.candidates)
            return trainer.train(paper, PLAN, file, records.candidates, watch, resume, actors=actors)

        with pytest.raises(KeyboardInterrupt):
            trained(Quiet(rounds=4), False)
        assert not file.exists() and checkpoints.beside(file).exists()
        training = trained(Quiet(), True)
        assert training.evaluations == 32
        found = [c for p in training.tasks for c in records.candidates.of(p.kernel.name, "sheet")]
    assert len({c.key.digest for c in found}) == len(found) >= 32
    # Beside one run for each program: a second one for each new best, and one to beat for each job.
    assert len(runner.runs) <= len(found) + 3 * 12


def test_experience_that_does_not_fit_is_an_error(paper: Plugins, tmp_path: Path) -> None:
    class Odd(Here):
        def next(self) -> Any:
            job, experience = super().next() or (None, None)
            return job, replace(experience, arrays={})  # type: ignore[type-var]

    with pytest.raises(DojoError) as caught:
        trainer.train(paper, PLAN, tmp_path / "a.safetensors", None, Quiet(), actors=Odd(paper))
    assert caught.value.code == "PD-N102" and "relu" in caught.value.render()


# -- actors that die ------------------------------


class Lost(Exception):
    """As Ray says that a worker is gone."""


class Streams:
    """The part of Ray that :class:`ClusterActors` uses; an actor is an iterator of events, or dies."""

    exceptions = SimpleNamespace(RayError=Lost, RayTaskError=KeyError, RuntimeEnvSetupError=KeyError)

    def __init__(self, plays: Any) -> None:
        self.plays, self.orders, self.cancelled = plays, list[Job](), 0

    def remote(self, **how: Any) -> Any:
        return lambda act: SimpleNamespace(remote=self.start)

    def start(self, wanted: Any, job: Job, place: Any) -> Iterator[Any]:
        self.orders.append(job)
        return iter(self.plays(job, len(self.orders)))

    def wait(self, streams: list[Any], timeout: float) -> tuple[list[Any], list[Any]]:
        return streams[:1], streams[1:]

    def get(self, event: Any) -> Any:
        return event

    def cancel(self, stream: Any, force: bool) -> None:
        self.cancelled += 1


def pretended(plays: Any, store: Any = None, said: Any = lambda line: None) -> tuple[Any, Streams]:
    ray = Streams(plays)
    cluster: Any = SimpleNamespace(
        ray=ray, target=TARGET, claim={}, wanted=None, place=worker.Assignment("", "", 0), devices=1
    )
    return cluster_training.ClusterActors({"sheet": cluster}, store, said), ray


def test_a_dead_actors_job_is_given_to_another_with_what_it_had_told(paper: Plugins) -> None:
    job, context = job_of(paper)
    experience, told = played(job, context)
    events = [worker.Kept(candidate) for candidate in told.values()]

    def plays(job: Job, attempt: int) -> list[Any]:
        return [*events[:4]] if attempt == 1 else [*events[4:], worker.Ended(experience=experience)]

    kept: list[Candidate] = []
    said: list[str] = []
    actors, ray = pretended(plays, SimpleNamespace(put=kept.append), said.append)
    assert actors.room == 2
    actors.order(job)
    while (back := actors.next()) is None:
        pass
    assert back[1] is experience and back[0].number == job.number
    assert [len(each.known) for each in ray.orders] == [0, 4] and len(said) == 1
    assert [c.key.digest for c in kept] == list(told)
    actors.stop()
    assert not ray.cancelled


def test_actors_that_only_die_are_an_error(paper: Plugins) -> None:
    """They tell the one to beat again before they die; that is no progress. Only the third gets further."""
    job, context = job_of(paper)
    _, told = played(job, context)
    first, second, *_ = map(worker.Kept, told.values())
    gone = worker.Ended(rejected="the device is gone")
    actors, ray = pretended(lambda job, attempt: [first, *([second, gone] if attempt == 3 else [])])
    actors.order(job)
    with pytest.raises(DojoError) as caught:
        while True:
            actors.next()
    assert caught.value.code == "PD-N101" and "softmax" in caught.value.render()
    assert len(ray.orders) == 2 + cluster_training.MOST_LOST + 1


def test_what_an_actor_says_is_wrong_is_said_by_the_learner(paper: Plugins) -> None:
    job, _ = job_of(paper)
    wrong = DojoError("PD-L304", "another encoder")
    actors, ray = pretended(lambda job, attempt: [worker.Ended(error=wrong)])
    actors.order(job)
    with pytest.raises(DojoError) as caught:
        actors.next()
    assert caught.value is wrong

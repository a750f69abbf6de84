"""Training an agent: lessons, records, corrected games, checkpoints, and being killed."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")

from bag_encoder import BagEncoder  # noqa: E402
from command_line import Outcome  # noqa: E402
from learners import (  # noqa: E402
    PLAN,
    QUICK,
    Quiet,
    on_paper,
    refused,
    use_bag_of_words,
    written_agent,
)

from perfdojo_sdk.core.errors import DojoError  # noqa: E402
from perfdojo_sdk.perfllm import agent_files, checkpoints, player, trainer  # noqa: E402
from perfdojo_sdk.perfllm.agent import Agent  # noqa: E402
from perfdojo_sdk.perfllm.agent_files import Card  # noqa: E402
from perfdojo_sdk.perfllm.demonstrations import Demonstrations, demonstrate  # noqa: E402
from perfdojo_sdk.perfllm.encoder import load_encoder  # noqa: E402
from perfdojo_sdk.perfllm.learner import Learner  # noqa: E402
from perfdojo_sdk.perfllm.plan import TrainingPlan  # noqa: E402
from perfdojo_sdk.perfllm.settings import AgentSettings, kind_of  # noqa: E402
from perfdojo_sdk.plugins import Plugins  # noqa: E402
from perfdojo_sdk.store.database import Records  # noqa: E402


@pytest.fixture(autouse=True)
def bag(monkeypatch: pytest.MonkeyPatch) -> None:
    use_bag_of_words(monkeypatch, trainer)


@pytest.fixture
def paper() -> Plugins:
    return on_paper()


def network(file: Path) -> list[Any]:
    return list(agent_files.read_tensors(file)[1].values())


def same(one: Path, other: Path) -> bool:
    return all(torch.equal(a, b) for a, b in zip(network(one), network(other), strict=True))


def test_a_training_goes_round_its_kernels_and_writes_an_agent(paper: Plugins, tmp_path: Path) -> None:
    file, watch = tmp_path / "agent.safetensors", Quiet()
    training = trainer.train(paper, PLAN, file, None, watch)
    assert [evaluations for evaluations, _ in watch.reports] == [1, 2, 10, 18, 25, 32]
    assert len({name for _, name in watch.reports}) == 2
    assert all(task.speed_up is not None and task.speed_up >= 1 for task in training.tasks)
    card = agent_files.read(file)[0].card
    assert (card.evaluations, card.targets, len(card.kernels)) == (32, ("sheet",), 2)
    assert card.steps == training.agent.learner.steps > 0
    again = tmp_path / "again.safetensors"
    trainer.train(paper, PLAN, again, None, Quiet())
    assert same(file, again), "the same plan leads to the same agent"


def test_a_training_ends_on_a_plateau_or_when_its_time_is_up(paper: Plugins, tmp_path: Path) -> None:
    plan = PLAN.model_copy(update={"evaluations": 10**6, "plateau": 8})
    training = trainer.train(paper, plan, tmp_path / "a.safetensors", None, Quiet())
    assert all(task.since_best >= 8 for task in training.tasks)
    late = PLAN.model_copy(update={"seconds": 1e-9})
    assert trainer.train(paper, late, tmp_path / "b.safetensors", None, Quiet()).evaluations == 0


def test_a_training_learns_from_records_of_other_searches(paper: Plugins, tmp_path: Path) -> None:
    with Records(tmp_path / "records.sqlite") as records:
        first = PLAN.model_copy(update={"seed": 5})
        trainer.train(paper, first, tmp_path / "first.safetensors", records.candidates, Quiet())
        watch = Quiet()
        plan = PLAN.model_copy(update={"recorded": 6, "evaluations": 8})
        trainer.train(paper, plan, tmp_path / "second.safetensors", records.candidates, watch)
    assert list(watch.games.values()) == [6, 6]
    assert watch.studies[-1][0] == watch.studies[-1][1] >= plan.recorded_steps * 12


def test_a_training_has_the_passes_play_first(paper: Plugins, tmp_path: Path) -> None:
    plan = PLAN.model_copy(update={"recorded": 9, "passes": True, "evaluations": 1})
    watch = Quiet()
    training = trainer.train(paper, plan, tmp_path / "a.safetensors", None, watch)
    assert min(watch.games.values()) >= 2
    assert any(state.shown for state in training.agent.learner.replay.states)


@pytest.mark.parametrize("taught", [False, True], ids=["playing", "being corrected"])
def test_a_training_that_is_killed_goes_on_exactly(
    paper: Plugins, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, taught: bool
) -> None:
    """kill -9, again and again, anywhere: what comes out is what an undisturbed training gives."""
    monkeypatch.setattr(trainer, "CHECKPOINT_S", 0.0)
    torch.set_num_threads(1)  # or a fork would wait for threads that it does not have
    plan = PLAN.model_copy(update={"evaluations": 48})
    if taught:
        plan = CORRECTED.model_copy(update={"corrected": 6, "settling": 40, "evaluations": 9})
    whole, parts = tmp_path / "whole.safetensors", tmp_path / "parts.safetensors"
    trainer.train(paper, plan, whole, None, Quiet())
    kills, chance, ended = 0, Random(4), False
    while not ended:
        child = multiprocessing.get_context("fork").Process(
            target=trainer.train, args=(paper, plan, parts, None, Quiet(), True)
        )
        child.start()
        for _ in range(chance.randint(1, 3)):
            changed(checkpoints.beside(parts), child)
        child.join(chance.uniform(0, 0.1))
        assert child.exitcode in (None, 0), "it failed by itself"
        if child.exitcode is None:
            os.kill(child.pid or 0, signal.SIGKILL)
            kills += 1
        child.join()
        ended = child.exitcode == 0
    assert kills >= 3
    assert same(whole, parts) and agent_files.read(whole)[0].card == agent_files.read(parts)[0].card


@pytest.mark.parametrize("taught", [False, True], ids=["playing", "being corrected"])
def test_with_the_trained_encoder_too_a_training_that_was_stopped_goes_on_exactly(
    paper: Plugins, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, taught: bool
) -> None:
    """Its vectors differ in their last digits with the lines that they are made with."""
    for module in (player, agent_files, trainer):
        monkeypatch.setattr(module, "load_encoder", load_encoder)
    monkeypatch.setattr(trainer, "CHECKPOINT_S", 0.0)
    torch.set_num_threads(1)
    plan = PLAN.model_copy(update={"evaluations": 33, "encoder": "default?lines=sum"})
    if taught:
        plan = CORRECTED.model_copy(update={"corrected": 4, "encoder": "default?lines=sum"})
    whole, parts = tmp_path / "whole.safetensors", tmp_path / "parts.safetensors"
    trainer.train(paper, plan, whole, None, Quiet())

    class Impatient(Quiet):
        def corrected(self, name: str, states: int, slips: int) -> None:
            self.left -= taught
            if self.left == 0:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        trainer.train(paper, plan, parts, None, Impatient(5))
    trainer.train(paper, plan, parts, None, Quiet(), resume=True)
    assert same(whole, parts)


def changed(file: Path, child: Any) -> None:
    """Wait until somebody has written the file anew, or the child has ended."""

    def written() -> int:
        return file.stat().st_mtime_ns if file.exists() else 0

    before = written()
    while written() == before and child.is_alive():
        child.join(0.005)


def test_ctrl_c_loses_nothing_that_a_checkpoint_holds(
    paper: Plugins, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trainer, "CHECKPOINT_S", 0.0)
    file = tmp_path / "agent.safetensors"
    with pytest.raises(KeyboardInterrupt):
        trainer.train(paper, PLAN, file, None, Quiet(rounds=3))
    assert not file.exists() and checkpoints.beside(file).exists()
    watch = Quiet()
    trainer.train(paper, PLAN, file, None, watch, resume=True)
    assert watch.reports[0][0] == 10, "the round that was cut short is played again"


def test_a_checkpoint_may_be_larger_than_any_agent(
    paper: Plugins, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A memory of 20,000 transitions is: once, it was written and could not be read."""
    file = tmp_path / "agent.safetensors"
    training = trainer.train(paper, PLAN, file, None, Quiet())
    size = checkpoints.beside(file).stat().st_size
    assert agent_files.read_tensors.__defaults__ == (agent_files.MAX_FILE_BYTES,)
    monkeypatch.setattr(agent_files.read_tensors, "__defaults__", (size - 1,))
    refused(lambda: agent_files.read_tensors(checkpoints.beside(file)), "PD-L303", "larger")
    again = trainer.train(paper, PLAN, file, None, Quiet(), resume=True)
    assert again.evaluations == training.evaluations


def test_checkpoints_that_do_not_fit_are_refused(paper: Plugins, tmp_path: Path) -> None:
    file = tmp_path / "agent.safetensors"
    trainer.train(paper, PLAN, file, None, Quiet())

    def resumed(plan: TrainingPlan = PLAN) -> Any:
        return lambda: trainer.train(paper, plan, file, None, Quiet(), resume=True)

    refused(resumed(PLAN.model_copy(update={"seed": 1})), "PD-L307", "another one")
    checkpoint = checkpoints.beside(file)
    head, tensors = agent_files.read_tensors(checkpoint)
    record = json.loads(head[checkpoints.RECORD])
    assert {"pupils", "lectures"} < set(record), "checkpoints of earlier versions have these names"
    record["pupils"][0]["key"] = "0" * 64
    checkpoint.write_bytes(agent_files.packed(tensors, {checkpoints.RECORD: json.dumps(record)}))
    refused(resumed(), "PD-L307", "plugins")
    checkpoint.write_bytes(checkpoint.read_bytes()[:-100])
    refused(resumed(), "PD-L303", "complete")
    checkpoint.write_bytes(file.read_bytes())
    refused(resumed(), "PD-L307")


def test_a_full_disk_is_an_error_and_no_half_agent(
    paper: Plugins, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "agent.safetensors"
    agent_files.save(file, Agent(BagEncoder(), Learner(QUICK, 32)), Card())
    before = file.read_bytes()

    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DojoError) as caught:
        trainer.train(paper, PLAN, file, None, Quiet())
    assert "No space left" in caught.value.render()
    assert file.read_bytes() == before


# -- games that are corrected ---------------------

CORRECTED = PLAN.model_copy(
    update={"recorded": 1, "passes": True, "orders": 1, "slips": 2, "corrected": 2, "evaluations": 1}
)


def test_a_training_with_corrected_games_is_repeatable_to_the_bit(paper: Plugins, tmp_path: Path) -> None:
    one, other = tmp_path / "one.safetensors", tmp_path / "other.safetensors"
    for file in (one, other):
        trainer.train(paper, CORRECTED, file, None, Quiet())
    assert one.read_bytes() == other.read_bytes()
    trainer.train(paper, CORRECTED.model_copy(update={"seed": 1}), other, None, Quiet())
    assert one.read_bytes() != other.read_bytes()


def test_the_card_counts_what_was_evaluated_for_corrections_and_slips(paper: Plugins, tmp_path: Path) -> None:
    file, again = tmp_path / "agent.safetensors", tmp_path / "again.safetensors"
    with Records(tmp_path / "records.sqlite") as records:
        training = trainer.train(paper, CORRECTED, file, records.candidates, Quiet())
        evaluated = len(list(records.candidates))
    card = agent_files.read(file)[0].card
    assert card.evaluations == training.evaluations == 2
    assert card.shown == evaluated > 2 * 2, "initial programs are among the passes' games"
    trainer.train(paper, PLAN, again, None, Quiet(), start_from=file)
    assert agent_files.read(again)[0].card.shown == card.shown


def test_a_training_that_is_stopped_leaves_the_agent_of_the_last_whole_round(
    paper: Plugins, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = tmp_path / "one.safetensors", tmp_path / "other.safetensors"
    agent = QUICK.model_copy(update={"steps_per_evaluation": 0.0})  # so the games after them teach nothing
    plan = CORRECTED.model_copy(update={"agent": agent})
    trainer.train(paper, plan, one, None, Quiet())

    class Impatient(Quiet):
        def corrected(self, name: str, states: int, slips: int) -> None:
            self.left -= 1
            if self.left == 0:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        trainer.train(paper, plan.model_copy(update={"corrected": 9}), other, None, Impatient(5))
    assert same(one, other), "five games are two rounds of two kernels, and one"


def test_steps_become_smaller_until_the_network_rests(
    paper: Plugins, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = list[float]()
    learn = Learner.learn

    def watched(learner: Learner, steps: int, size: float = 1.0) -> float | None:
        sizes.append(size)
        return learn(learner, steps, size)

    monkeypatch.setattr(trainer, "AT_A_TIME", 10)
    monkeypatch.setattr(Learner, "learn", watched)
    plan = CORRECTED.model_copy(update={"corrected": 1, "settling": 40})
    training = trainer.train(paper, plan, tmp_path / "a.safetensors", None, Quiet())
    assert [size for size in sizes if size < 1] == [0.75, 0.5, 0.25]
    rate = training.agent.learner.optimiser.param_groups[0]["lr"]
    assert rate == plan.agent.learning_rate, "its own games teach it with whole steps again"


def test_good_games_outside_the_repertoire_are_told(paper: Plugins, tmp_path: Path) -> None:
    narrow = AgentSettings.model_validate({**QUICK.model_dump(), "repertoire": {"sheet": ["swap_scopes"]}})
    watch = Quiet()
    trainer.train(
        paper, CORRECTED.model_copy(update={"agent": narrow}), tmp_path / "a.safetensors", None, watch
    )
    assert any("join_scopes" in kinds for kinds in watch.beyond.values())
    trainer.train(paper, CORRECTED, tmp_path / "a.safetensors", None, watch)
    assert not any(watch.beyond.values()), "without a repertoire nothing is outside of it"


def test_teachers_play_nothing_that_the_agent_cannot(paper: Plugins, tmp_path: Path) -> None:
    """The fastest game was the teacher once, and all that the agent could do was a slip."""

    def taught(settings: AgentSettings) -> tuple[Demonstrations, list[set[str]]]:
        plan = CORRECTED.model_copy(update={"agent": settings})
        agent = Agent(BagEncoder(), Learner(plan.agent, 32))
        task = trainer._tasks(paper, plan, agent, None, trainer._context_here(paper))[0]
        given = demonstrate(plan, task, None)
        return given, [{kind_of(move) for move in game.moves} for game in given.shown]

    whole, [played, *_] = taught(CORRECTED.agent)
    assert whole.beyond == () and len(played) > 2
    [rare] = sorted(played)[:1]
    narrow = CORRECTED.agent.model_copy(update={"repertoire": {"sheet": tuple(played - {rare})}})
    given, others = taught(narrow)
    assert others and not any(rare in kinds for kinds in others)
    assert (
        rare in given.beyond
        and given.recorded_games.best is not None
        and whole.recorded_games.best is not None
    )
    assert given.recorded_games.best > whole.recorded_games.best


def test_an_agent_of_another_version_of_a_plugin_is_refused(paper: Plugins, tmp_path: Path) -> None:
    card = Card(plugins={"sheet": "0.1.0+aaaa", "perfdojo_sdk": "0.1.0+bbbb"})
    trained = written_agent(tmp_path, card)
    same_release = {"sheet": "0.1.0+cccc", "perfdojo_sdk": "0.1.0+bbbb", "stranger": "7"}
    assert agent_files.load(trained, versions=same_release).learner.settings == QUICK
    for versions in ({"sheet": "0.2.0+aaaa"}, {"perfdojo_sdk": "1.0.0+bbbb"}, {"sheet": ""}):
        refused(partial(agent_files.load, trained, versions=versions), "PD-L309", "agent", *versions)
    here = dict(paper.fingerprints(paper.require("sheet")))
    written_agent(tmp_path, Card(plugins={"sheet": "9.9+aaaa"}))
    assert "sheet" in here
    output = tmp_path / "next.safetensors"
    refused(lambda: trainer.train(paper, PLAN, output, None, Quiet(), start_from=trained), "PD-L309", "9.9")


def test_an_agent_that_goes_on_keeps_its_own_encoder(
    paper: Plugins, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plan names an encoder for new agents only."""
    asked = list[str]()

    def loaded(spec: str = "default") -> BagEncoder:
        asked.append(spec)
        return BagEncoder()

    monkeypatch.setattr(agent_files, "load_encoder", loaded)
    first, second = tmp_path / "first.safetensors", tmp_path / "second.safetensors"
    agent_files.save(first, Agent(BagEncoder(), Learner(QUICK, 32), "hf:/models/own"), Card())
    trainer.train(paper, PLAN, second, None, Quiet(), start_from=first)
    assert asked == ["hf:/models/own"]
    assert agent_files.read(second)[0].encoder == "hf:/models/own"


def test_an_interrupted_training_says_how_it_goes_on(
    cli: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(plugins: Any, plan: Any, output: Path, *more: Any) -> None:
        checkpoints.beside(output).write_bytes(b"")
        raise KeyboardInterrupt

    monkeypatch.setattr(trainer, "train", interrupted)
    outcome = cli("train", "--target", "paper", "-o", "a.safetensors", "--no-tensorboard")
    assert outcome.code == 130
    assert "a.checkpoint.safetensors; --resume goes on" in outcome.err

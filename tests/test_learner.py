"""The learner: equations, the paper's toy problem, the memory. Deterministic; no kernel is run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from perfdojo_sdk.core.errors import DojoError  # noqa: E402
from perfdojo_sdk.perfllm.learner import Learner, LearnError, imitation  # noqa: E402
from perfdojo_sdk.perfllm.network import QNetwork  # noqa: E402
from perfdojo_sdk.perfllm.objective import LEAST, MOST, OBJECTIVES, Objective, bellman, plain, scaled  # noqa: E402
from perfdojo_sdk.perfllm.replay import STOP, Replay  # noqa: E402
from perfdojo_sdk.perfllm.settings import DQN, MAX_Q, AgentSettings, changed  # noqa: E402

WIDTH = 5
NO_MOVES = np.zeros((0, WIDTH), np.float32)


def settings(**more: Any) -> AgentSettings:
    quick = {"hidden": 16, "batch": 16, "copy_every": 10, "learning_rate": 1e-2}
    return AgentSettings(**{**quick, **more})


# -- the paper's figure 7 -------------------------


@dataclass(frozen=True)
class Toy:
    """Stopping in S0 is worth 3 at once. Or: S1 costs 6, S2 costs 4, and S3 is worth 5, the best there is.

    The figure's shape; the numbers are ours. Arriving in S3 and stopping there brings 10 in all, as much as
    the way costs; the best single reward is 5.
    """

    rewards: tuple[float, ...] = (3.0, -6.0, -4.0, 5.0)

    def fill(self, replay: Replay) -> None:
        vectors = np.eye(len(self.rewards), WIDTH, dtype=np.float32)
        numbers = [replay.state(f"S{k}", reward) for k, reward in enumerate(self.rewards)]
        for k, number in enumerate(numbers):
            replay.expand(number, vectors[k], vectors[k + 1 : k + 2])
        for k in range(len(numbers) - 1):
            replay.move(numbers[k], 1, numbers[k + 1])

    def played(self, learner: Learner) -> str:
        """The state that the learned policy stops in."""
        vectors, k = np.eye(len(self.rewards), WIDTH, dtype=np.float32), 0
        while k < len(self.rewards) - 1 and learner.values(vectors[k], vectors[k : k + 2]).argmax() != STOP:
            k += 1
        return f"S{k}"


def learned(choice: AgentSettings, seed: int = 0) -> Learner:
    learner = Learner(choice, WIDTH, seed)
    Toy().fill(learner.replay)
    learner.learn(300)
    return learner


@pytest.mark.parametrize("pieces", [{}, {"double": False}, {"duelling": False}, {"bounds": True}])
def test_max_q_goes_to_s3_where_ordinary_q_learning_stops(pieces: dict[str, bool]) -> None:
    common = {"scale": "linear", "gamma": 0.98, "bounds": False, **pieces}
    assert Toy().played(learned(settings(objective="max", **common))) == "S3"
    assert Toy().played(learned(settings(objective="sum", **common))) == "S0"


def test_values_come_out_as_the_equations_say() -> None:
    gamma = 0.9
    for objective, first in (("max", 5 * gamma**2), ("sum", -6 - 4 * gamma + 5 * gamma**2 + 5 * gamma**3)):
        choice = settings(objective=objective, scale="linear", gamma=gamma, bounds=False)
        learner = learned(choice)
        vectors = np.eye(4, WIDTH, dtype=np.float32)
        values = learner.values(vectors[0], vectors[:2])
        # In S3 a stop earns its reward once more, which only the sum counts.
        assert values == pytest.approx([3.0, first], abs=0.25), objective


# -- equations ------------------------------------


def test_the_bellman_equations() -> None:
    reward, following = torch.tensor([2.0, 2.0, 2.0]), torch.tensor([1.0, 4.0, 4.0])
    done = torch.tensor([False, False, True])
    half = {"gamma": 0.75}
    assert bellman(reward, following, done, AgentSettings(objective="max", **half)).tolist() == [2, 3, 2]
    assert bellman(reward, following, done, AgentSettings(objective="sum", **half)).tolist() == [2.75, 5, 2]


def test_a_value_that_a_network_makes_up_is_a_number() -> None:
    """`exp` of it overflows; one such value ended a search with an infinite loss."""
    made_up = plain(torch.tensor([200.0, 1.0]), AgentSettings())
    assert torch.isfinite(scaled(made_up, AgentSettings())).all() and made_up[0] == MOST


def test_the_logarithmic_scale_can_be_taken_back() -> None:
    values = torch.tensor([0.5, 1.0, 40.0])
    for scale in ("log", "linear"):
        choice = AgentSettings(scale=scale)
        assert torch.allclose(plain(scaled(values, choice), choice), values)
    assert float(plain(scaled(torch.tensor([0.0]), AgentSettings()), AgentSettings())) == pytest.approx(LEAST)


def test_advantages_have_no_mean_and_missing_moves_no_value() -> None:
    network = QNetwork(WIDTH, 16, duelling=True)
    before, after = torch.randn(2, WIDTH), torch.randn(2, 4, WIDTH)
    real = torch.tensor([[True, True, True, False], [True, True, False, False]])
    values = network(before, after, real)
    assert torch.isinf(values[~real]).all()
    for row in range(2):
        mean = values[row][real[row]].mean()
        assert torch.allclose(mean, network.state(before[row])[0], atol=1e-6)
    assert QNetwork(WIDTH, 16, duelling=False).state is None


def test_double_learning_asks_the_older_network_about_the_newer_ones_choice() -> None:
    plain_settings = {"scale": "linear", "bounds": False}
    learner = {double: Learner(settings(double=double, **plain_settings), WIDTH) for double in (0, 1)}
    for each in learner.values():
        Toy().fill(each.replay)
        with torch.no_grad():
            for parameter in each.older.parameters():
                parameter.add_(0.5 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)))
    batch = learner[0].replay.sample(np.random.default_rng(3), 64, 8)
    plain_, double = learner[0].targets(batch), learner[1].targets(batch)
    assert (double <= plain_ + 1e-6).all()  # the older one's own best is never less
    assert (double < plain_ - 1e-3).any()


# -- memory ---------------------------------------


def chain(length: int, rewards: Sequence[float | None], gamma: float = 0.5) -> Replay:
    replay = Replay(WIDTH, 100, gamma)
    vectors = np.random.default_rng(0).standard_normal((length + 3, WIDTH)).astype(np.float32)
    for k in range(length):
        replay.state(f"s{k}", rewards[k])
        replay.expand(k, vectors[k], vectors[k + 1 : k + 4])
    for k in range(length - 1):
        replay.move(k, 1, k + 1)
    return replay


def test_what_a_game_reached_bounds_all_that_led_there() -> None:
    replay = chain(4, [1.0, None, 0.0, 16.0])
    assert [state.bound for state in replay.states] == [2.0, 4.0, 8.0, 16.0]
    late = chain(4, [1.0, None, 0.0, None])
    assert [state.bound for state in late.states] == [1.0, 0.0, 0.0, 0.0]
    late.state("s3", 16.0)
    assert [state.bound for state in late.states] == [2.0, 4.0, 8.0, 16.0]


def test_cycles_end() -> None:
    replay = chain(3, [1.0, 1.0, 4.0])
    replay.move(2, 2, 0)
    replay.state("s3", 100.0)
    replay.move(0, 3, 3)
    assert replay.states[0].bound == 50.0
    assert replay.states[2].bound == 25.0


def test_a_stop_is_a_transition_once_a_state_has_a_reward_and_moves() -> None:
    replay = Replay(WIDTH, 10, 0.9)
    zero = np.zeros(WIDTH, np.float32)
    listed_first, timed_first = replay.state("a"), replay.state("b", 2.0)
    replay.expand(listed_first, zero, zero[None])
    assert len(replay) == 0
    replay.state("a", 3.0)
    replay.expand(timed_first, zero, zero[None])
    assert [t[:3] for t in replay.transitions] == [(0, STOP, 0), (1, STOP, 1)]
    replay.state("a", 7.0)
    assert replay.states[0].reward == 3.0, "a program's time is known once"


def test_the_oldest_transitions_are_forgotten() -> None:
    replay = Replay(WIDTH, 3, 0.9)
    for k in range(5):
        replay.expand(replay.state(f"s{k}", 1.0), np.zeros(WIDTH, np.float32), NO_MOVES)
    assert [t.state for t in replay.transitions] == [2, 3, 4]


def test_a_sample_holds_the_move_that_was_taken_however_many_there_are() -> None:
    replay, vectors = Replay(WIDTH, 100, 0.9), np.arange(60 * WIDTH, dtype=np.float32).reshape(60, WIDTH)
    replay.expand(replay.state("many", 1.0), vectors[0], vectors[1:])
    replay.move(0, 50, replay.state("there", 2.0))
    batch = replay.sample(np.random.default_rng(0), 50, 8)
    assert batch.after.shape == (50, 8, WIDTH)
    for row in range(50):
        taken = batch.after[row, batch.taken[row]]
        assert (taken == vectors[50 if batch.reward[row] == 2.0 else 0]).all()
    assert batch.done.all(), "nobody has listed the moves of what follows"


def test_a_memory_comes_back_from_disk() -> None:
    replay = chain(4, [1.0, None, 0.0, 16.0])
    again = Replay(WIDTH, 100, 0.5)
    again.rebuild(replay.skeleton())
    again.fill(replay.arrays())
    one, other = (r.sample(np.random.default_rng(1), 32, 3) for r in (replay, again))
    assert all((a == b).all() for a, b in zip(one, other))
    assert [s.bound for s in again.states] == [s.bound for s in replay.states]


@pytest.mark.parametrize(
    "damage",
    [
        {"edges": [[0, 9]]},
        {"transitions": [[0, 1, 9]]},
        {"transitions": [[0, -1, 1]]},
        {"names": ["s0", "s0", "s2", "s3"]},
        {"rewards": [1.0]},
        {"listed": [0, 1]},
        {"shown": [[9, [0]]]},
        {"shown": [[0, [-1]]]},
    ],
)
def test_a_damaged_memory_is_refused(damage: dict[str, Any]) -> None:
    replay = chain(4, [1.0, None, 0.0, 16.0])
    with pytest.raises(ValueError, match="remembered"):
        Replay(WIDTH, 100, 0.5).rebuild({**replay.skeleton(), **damage})


def test_vectors_of_another_memory_are_refused() -> None:
    again = Replay(WIDTH, 100, 0.5)
    again.rebuild(chain(4, [1.0, None, 0.0, 16.0]).skeleton())
    with pytest.raises(ValueError, match="vectors"):
        again.fill(chain(3, [1.0, None, 0.0]).arrays())


# -- learning -------------------------------------


def test_the_same_seed_and_experience_give_the_same_network() -> None:
    one, other, third = learned(settings(), 0), learned(settings(), 0), learned(settings(), 1)
    equal = [torch.equal(a, b) for a, b in zip(one.tensors().values(), other.tensors().values())]
    assert all(equal)
    assert not all(torch.equal(a, b) for a, b in zip(one.tensors().values(), third.tensors().values()))


def test_learning_goes_on_exactly_where_it_stopped() -> None:
    one = learned(settings())
    other = Learner(settings(), WIDTH, seed=9)
    Toy().fill(other.replay)
    other.restore(one.tensors(), one.notes())
    assert one.learn(50) == other.learn(50)
    assert all(torch.equal(a, b) for a, b in zip(one.tensors().values(), other.tensors().values()))


def test_steps_are_paid_by_evaluations() -> None:
    learner = Learner(settings(steps_per_evaluation=0.5), WIDTH)
    Toy().fill(learner.replay)
    for _ in range(5):
        learner.evaluated(1)
    assert learner.steps == 2
    assert Learner(settings(), WIDTH).evaluated(8) is None, "there is nothing to learn from"


def test_moves_that_are_shown_become_the_likely_ones() -> None:
    """Two moves, neither with a known end: the one that a good game took is the one to play."""
    values = {}
    for weight in (0.0, 1.0):
        learner = Learner(settings(imitation=weight, bounds=False), WIDTH)
        vectors = np.eye(3, WIDTH, dtype=np.float32)
        learner.replay.expand(learner.replay.state("s"), vectors[0], vectors[1:])
        learner.replay.move(0, 2, learner.replay.state("good", 4.0))
        learner.replay.show(0, 2)
        learner.learn(200)
        values[weight] = learner.values(vectors[0], vectors)
    assert values[1.0].argmax() == 2
    assert values[1.0][2] - values[1.0][1] > values[0.0][2] - values[0.0][1] + 0.1


def test_any_move_that_was_shown_will_do() -> None:
    """Two of three moves were shown: the third becomes unlikely, and either of the two will do."""
    values = torch.tensor([[5.0, 0.0, 0.0], [0.0, 5.0, 0.0], [0.0, 0.0, 5.0], [1.0, 2.0, 3.0]])
    shown = torch.tensor([[True, True, False]] * 3 + [[False] * 3])
    losses = [float(imitation(values[[k, 3]], shown[[k, 3]])) for k in range(3)]
    assert losses[0] == pytest.approx(losses[1]) and losses[0] < 1e-6 < 10 < losses[2]
    assert float(imitation(values[:3], shown[:3])) == pytest.approx(sum(losses) / 3)


def test_a_network_learns_the_scale_of_its_input_once() -> None:
    learner = Learner(settings(), WIDTH)
    Toy().fill(learner.replay)
    assert not learner.network.scaling_fitted
    learner.learn(1)
    assert learner.network.scaling_fitted
    assert all(torch.equal(a, b) for a, b in zip(learner.network.buffers(), learner.older.buffers()))
    before = [buffer.clone() for buffer in learner.network.buffers()]
    large = np.full((1, WIDTH), 100.0, np.float32)
    learner.replay.expand(learner.replay.state("large"), large[0], -large)
    learner.learn(1)
    assert all(torch.equal(a, b) for a, b in zip(before, learner.network.buffers()))


def test_a_move_is_worth_what_games_reached_after_it_and_a_stop_what_is_there() -> None:
    learner = Learner(settings(), WIDTH)
    vectors = np.eye(4, WIDTH, dtype=np.float32)
    replay = learner.replay
    replay.expand(replay.state("s", 1.0), vectors[0], vectors[1:3])
    replay.expand(replay.state("on the way"), vectors[1], vectors[3:])
    replay.move(0, 1, 1)
    replay.move(1, 1, replay.state("end", 8.0))
    batch = replay.sample(np.random.default_rng(0), 64, 8)
    assert set(batch.reward) == {0.0, 1.0, 8.0}
    expected = np.where(batch.reward == 0, 8.0 * learner.settings.gamma, batch.reward)
    assert learner.targets(batch).exp().numpy() == pytest.approx(expected, rel=1e-4)


def test_a_loss_that_is_no_number_stops_the_training() -> None:
    learner = Learner(settings(scale="linear"), WIDTH)
    Toy((3.0, -6.0, float("inf"), 5.0)).fill(learner.replay)
    with pytest.raises(LearnError) as caught:
        learner.learn(50)
    assert caught.value.code == "PD-L302"


@pytest.mark.parametrize("change", ["other width", "no number"])
def test_a_network_that_does_not_fit_is_refused(change: str) -> None:
    tensors = Learner(settings(hidden=8 if change == "other width" else 16), WIDTH).tensors()
    if change == "no number":
        tensors["network.move.bias"][:] = float("nan")
    with pytest.raises(LearnError) as caught:
        Learner(settings(), WIDTH).load(tensors)
    assert caught.value.code == "PD-L303"


# -- settings -------------------------------------


def test_the_papers_agents_differ_in_the_objective_alone() -> None:
    different = {k for k in AgentSettings.model_fields if getattr(DQN, k) != getattr(MAX_Q, k)}
    assert different == {"objective"}


def test_chance_falls_linearly_and_stays() -> None:
    choice = AgentSettings(epsilon_first=1.0, epsilon_last=0.2, epsilon_fall=0.5)
    assert [choice.epsilon(part) for part in (0, 0.25, 0.5, 1.0)] == pytest.approx([1.0, 0.6, 0.2, 0.2])


def test_settings_are_changed_by_words() -> None:
    after = changed(AgentSettings(), {"objective": "sum", "double": "false", "gamma": "0.5"})
    assert (after.objective, after.double, after.gamma) == ("sum", False, 0.5)
    for words in ({"objektive": "sum"}, {"gamma": "2"}, {"hidden": "many"}):
        with pytest.raises(DojoError) as caught:
            changed(AgentSettings(), words)
        assert caught.value.code == "PD-L305"


# -- objectives as rows -----------------------------


def test_a_new_objective_is_one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mean of reward and future: one row, and learner, targets and settings follow it."""
    row = Objective("mean", lambda reward, following: (reward + following) / 2, reward_is_bound=False)
    monkeypatch.setitem(OBJECTIVES, "mean", row)
    chosen = settings(objective="mean", scale="linear", gamma=1.0)
    assert not chosen.bounded
    reward, following = torch.tensor([2.0, 2.0]), torch.tensor([4.0, 4.0])
    assert bellman(reward, following, torch.tensor([False, True]), chosen).tolist() == [3.0, 2.0]


def test_an_objective_that_does_not_exist_is_refused_by_name() -> None:
    with pytest.raises(DojoError, match="does not take this value") as caught:
        changed(AgentSettings(), {"objective": "least"})
    assert "there is no objective 'least': max, sum" in caught.value.render()

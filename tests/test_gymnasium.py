"""The environment keeps Gymnasium's rules."""

from __future__ import annotations

import copy
import importlib
import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from perfdojo_sdk.core.program import Program
from perfdojo_sdk.environment import Policy, Time, open_environment
from perfdojo_sdk.environment.environment import PolicyError
from perfdojo_sdk.plugins import load_plugins

gymnasium = pytest.importorskip("gymnasium")
pytest.importorskip("perfdojo_sdk.gym")


def by_lines(program: Program) -> Time:
    """A clock that needs no machine: a second a line."""
    return Time(float(len(program.text.splitlines())), "estimated")


MADE = {"kernel": "softmax[8,16]", "target": "x86_avx2", "clock": by_lines, "most_moves": 6, "actions": 64}


@pytest.mark.filterwarnings("ignore:.*(Box|spec|render|observation|Text).*")
def test_gymnasium_s_own_checker_is_content() -> None:
    from gymnasium.utils.env_checker import check_env

    check_env(gymnasium.make("PerfDojo/Kernel-v0", **MADE).unwrapped, skip_render_check=True)


def test_a_fresh_process_finds_the_ids() -> None:
    code = "import gymnasium, perfdojo_sdk.gym; print([i for i in gymnasium.registry if 'Dojo' in i])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "'PerfDojo/softmax-riscv_snitch-v0'" in done.stdout and "PerfDojo/Kernel-v0" in done.stdout


def test_without_gymnasium_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    monkeypatch.delitem(sys.modules, "perfdojo_sdk.gym")
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'perfdojo-sdk\[gym\]'"):
        importlib.import_module("perfdojo_sdk.gym")


def test_an_id_that_brings_its_module_needs_no_import() -> None:
    code = (
        "import gymnasium; e = gymnasium.make('perfdojo_sdk.gym:PerfDojo/softmax-riscv_snitch-v0'); "
        "print(e.reset()[0]['program'].splitlines()[0])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "kernel dsoftmax(x) -> y\n"


def test_the_actions_of_an_episode_replay_it() -> None:
    environment = gymnasium.make("PerfDojo/Kernel-v0", **MADE)
    chance = np.random.default_rng(0)
    observation, info = environment.reset(seed=1)
    actions, programs, ended = [], [observation["program"]], False
    while not ended:
        assert np.array_equal(observation["action_mask"], info["action_mask"])
        assert np.array_equal(environment.unwrapped.action_masks(), info["action_mask"] == 1)
        actions.append(int(chance.choice(np.flatnonzero(info["action_mask"])[1:])))
        observation, reward, terminated, truncated, info = environment.step(actions[-1])
        assert observation in environment.observation_space and reward == info["speedup"]
        programs.append(observation["program"])
        ended = terminated or truncated
    assert truncated and not terminated and len(actions) == 6
    again = [environment.reset()[0]["program"], *(environment.step(a)[0]["program"] for a in actions)]
    assert again == programs


def test_an_action_outside_the_mask_changes_nothing() -> None:
    environment = gymnasium.make("PerfDojo/Kernel-v0", **{**MADE, "only": ("collapse_scopes",)})
    first, info = environment.reset()
    for wrong in (int(np.flatnonzero(info["action_mask"] == 0)[0]), -1):
        observation, reward, terminated, truncated, told = environment.step(wrong)
        assert observation["program"] == first["program"] and reward == 0 and told["illegal"]
        assert not terminated and not truncated


def test_stop_is_action_zero() -> None:
    environment = gymnasium.make("PerfDojo/Kernel-v0", **MADE)
    environment.reset()
    _, reward, terminated, truncated, info = environment.step(0)
    assert terminated and not truncated and reward == 1.0
    assert info["action_mask"].sum() == 1


def test_moves_beyond_the_spaces_are_left_out_and_counted() -> None:
    few = gymnasium.make("PerfDojo/Kernel-v0", **{**MADE, "actions": 4})
    _, info = few.reset()
    assert len(info["moves"]) == 3 and info["left_out"] > 10
    size = len(few.unwrapped.game.program.text)
    short = gymnasium.make("PerfDojo/Kernel-v0", **{**MADE, "characters": size})
    observation, info = short.reset()
    assert info["left_out"] > 0 and all(len(s.after.text) <= size for s in short.unwrapped._offered())
    assert observation in short.observation_space


def test_rendering_shows_the_places_and_the_moves() -> None:
    environment = gymnasium.make("PerfDojo/Kernel-v0", **MADE, render_mode="ansi")
    _, info = environment.reset()
    environment.step(1)
    shown = environment.render()
    assert isinstance(shown, str) and "# s0" in shown and f"# 1: {info['moves'][0]}" in shown


def test_several_at_once() -> None:
    from gymnasium.vector import SyncVectorEnv

    environments = SyncVectorEnv([lambda: gymnasium.make("PerfDojo/Kernel-v0", **MADE)] * 3)
    observations, _ = environments.reset(seed=0)
    assert observations["action_mask"].shape == (3, 64) and len(observations["program"]) == 3
    observations, rewards, *_ = environments.step(np.array([1, 2, 0]))
    assert rewards.shape == (3,) and len(set(observations["program"])) == 3


def test_a_wrong_word_for_what_moves_may_change() -> None:
    with pytest.raises(ValueError, match="choose one of exact, reassociate, law, precision"):
        gymnasium.make("PerfDojo/Kernel-v0", **{**MADE, "most": "anything"})


@pytest.mark.parametrize("name", ["most_moves", "actions", "characters", "threads"])
def test_a_number_that_leaves_nothing_to_do(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} is 0; it must be at least 1"):
        gymnasium.make("PerfDojo/Kernel-v0", **{**MADE, name: 0})


@pytest.mark.parametrize("action", [1.5, 1.0, "1", None, np.float32(1), np.array([1, 2])], ids=repr)
def test_an_action_that_is_no_integer_is_refused(action: Any) -> None:
    environment = gymnasium.make("PerfDojo/Kernel-v0", **MADE, disable_env_checker=True)
    observation, _ = environment.reset(seed=0)
    with pytest.raises(TypeError, match="an action is an integer"):
        environment.step(action)
    assert environment.unwrapped.game.program.text == observation["program"]


@pytest.mark.parametrize("action", [1, np.int64(1), np.uint8(1), np.array(1)], ids=repr)
def test_any_integer_is_an_action(action: Any) -> None:
    environment = gymnasium.make("PerfDojo/Kernel-v0", **MADE)
    observation, _ = environment.reset(seed=0)
    assert environment.step(action)[0]["program"] != observation["program"]


# -- copies ----------------------------------------------------------------------------------------

SIMULATED = {"kernel": "dsum[4,4]", "target": "riscv_snitch", "most_moves": 6, "actions": 64}


@pytest.mark.parametrize(
    "copied", [copy.deepcopy, lambda e: pickle.loads(pickle.dumps(e))], ids=["deepcopy", "pickle"]
)
@pytest.mark.parametrize("made", [MADE, SIMULATED], ids=["a clock of one's own", "the target's clock"])
def test_a_copy_goes_on_from_where_it_was_made(copied: Callable[[Any], Any], made: dict[str, Any]) -> None:
    environment = gymnasium.make("PerfDojo/Kernel-v0", **made)
    environment.reset(seed=3)
    environment.action_space.seed(3)
    first = environment.step(1)
    twin = copied(environment)
    assert int(twin.action_space.sample()) == int(environment.action_space.sample())
    assert twin.unwrapped.np_random.integers(1 << 30) == environment.unwrapped.np_random.integers(1 << 30)
    one, other = environment.step(2), twin.step(2)
    assert one[0]["program"] == other[0]["program"] != first[0]["program"] and one[1:4] == other[1:4]
    twin.reset()
    assert environment.step(0)[2] and environment.step(1)[4]["illegal"] and not twin.step(1)[4].get("illegal")


# -- what is wrong is said at once -----------------------------------------------------------------


def test_a_program_longer_than_the_text_space_is_refused() -> None:
    with pytest.raises(PolicyError, match="has 276 characters, the space holds 100") as refused:
        gymnasium.make("PerfDojo/Kernel-v0", **MADE, characters=100)
    assert refused.value.code == "PD-A005" and "characters=552" in refused.value.hint


def test_a_misspelt_transformation_is_refused() -> None:
    with pytest.raises(PolicyError, match="'split_scop'") as refused:
        gymnasium.make("PerfDojo/Kernel-v0", **MADE, only=("split_scop", "join_scopes"))
    assert refused.value.code == "PD-A004" and "split_scope" in refused.value.hint
    with pytest.raises(PolicyError):
        open_environment(load_plugins(), "relu", "x86_avx2", by_lines, Policy(only=frozenset({"nonsense"})))


def test_a_text_in_place_of_names_is_refused() -> None:
    with pytest.raises(PolicyError, match="which is a text") as refused:
        gymnasium.make("PerfDojo/Kernel-v0", **MADE, only="split_scope")
    assert refused.value.code == "PD-A004" and "only=('split_scope',)" in refused.value.hint
    policy = Policy(only="split_scope")  # type: ignore[arg-type]
    with pytest.raises(PolicyError, match="which is a text"):
        open_environment(load_plugins(), "relu", "x86_avx2", by_lines, policy)


def test_whoever_goes_on_after_the_last_move_is_told_so_again() -> None:
    environment = gymnasium.make("PerfDojo/Kernel-v0", **{**MADE, "most_moves": 1})
    observation, _ = environment.reset(seed=0)
    assert environment.step(1)[2:4] == (False, True)
    for action in (1, 0, 63):
        again, reward, terminated, truncated, info = environment.step(action)
        assert (reward, terminated, truncated, info["illegal"]) == (0.0, False, True, True)
    environment.reset()
    assert environment.step(0)[2:4] == (True, False) and environment.step(0)[2:4] == (True, False)

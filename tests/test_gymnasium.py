"""The environment keeps Gymnasium's rules."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from perfdojo_sdk.core.program import Program
from perfdojo_sdk.environment import Time

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

"""Gymnasium's environment over the native one.

    import gymnasium, perfdojo_sdk.gym
    env = gymnasium.make("PerfDojo/Kernel-v0", kernel="matmul[64,64,64]", target="best")

Observation: ``program``, its text, and ``action_mask``, 1 for each action that can be taken. Action 0 stops;
action k plays the k-th move on offer, in an order that the program and the target alone decide, so the
actions of an episode replay it. An action that the mask does not allow changes nothing and earns nothing.
"""

from __future__ import annotations

import copy
import operator
import reprlib
import string
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from perfdojo_sdk.core.transformation import Kind
from perfdojo_sdk.environment.clock import Clock, RunnerClock
from perfdojo_sdk.environment.environment import (
    MOST_MOVES,
    Environment,
    Outcome,
    Policy,
    PolicyError,
    names_of,
    open_environment,
)
from perfdojo_sdk.plugins import Plugins, load_plugins

Observation = dict[str, Any]
#: Name on the command line -> the most that moves may change.
MOST = {
    "exact": Kind.EXACT,
    "reassociate": Kind.REASSOCIATES,
    "law": Kind.DECLARED_LAW,
    "precision": Kind.CHANGES_PRECISION,
}
#: Actions of the space; moves beyond them are not on offer, and ``info["left_out"]`` counts these.
ACTIONS = 512
CHARACTERS = 16384


class KernelEnv(gymnasium.Env[Observation, np.int64]):
    """One kernel on one target; see the module and :class:`Environment`."""

    metadata: dict[str, Any] = {"render_modes": ["ansi"], "render_fps": 1}

    def __init__(
        self,
        kernel: str,
        target: str = "best",
        clock: Clock | None = None,
        most: str = "law",
        only: tuple[str, ...] | None = None,
        most_moves: int = MOST_MOVES,
        actions: int = ACTIONS,
        characters: int = CHARACTERS,
        threads: int = 1,
        render_mode: str | None = None,
    ) -> None:
        """``most``: the most that a move may change, one of :data:`MOST`. ``only``: names of the
        transformations on offer. ``actions``, ``characters``: bounds of the spaces; a move whose program has
        a longer text is not on offer. ValueError for another ``most`` and for a number below 1;
        :class:`PolicyError` where ``only`` is a text or has a name that is no transformation, and for an
        initial program that is longer than ``characters``.
        """
        if most not in MOST:
            raise ValueError(f"most is {most!r}; choose one of {', '.join(MOST)}")
        numbers = {"most_moves": most_moves, "actions": actions, "characters": characters, "threads": threads}
        for name, number in numbers.items():
            if number < 1:
                raise ValueError(f"{name} is {number}; it must be at least 1")
        self.made_with: dict[str, Any] = {
            "kernel": kernel, "target": target, "clock": clock, "most": most, "only": only,
            "most_moves": most_moves, "actions": actions, "characters": characters, "threads": threads,
            "render_mode": render_mode,
        }  # fmt: skip
        policy = Policy(MOST[most], names_of(only))
        self.game: Environment = open_environment(
            _plugins(target), kernel, target, clock, policy, most_moves, threads
        )
        length = len(self.game.program.text)
        if length > characters:
            what = (
                f"the text of {self.game.program.name} has {length} characters, the space holds {characters}"
            )
            raise PolicyError("PD-A005", what, hint=f"make the environment with characters={2 * length}")
        self.stopped = False
        self.render_mode = render_mode
        self.characters = characters
        self.actions = actions
        self.action_space = spaces.Discrete(actions)
        self.observation_space = spaces.Dict(
            {
                "program": spaces.Text(characters, min_length=1, charset=_CHARACTERS),
                "action_mask": spaces.Box(0, 1, (actions,), np.int8),
            }
        )

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        super().reset(seed=seed)
        self.game.reset()
        self.stopped = False
        return self._observation(), self._info(self.game.outcome())

    def step(self, action: np.int64) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Play an action. :class:`TypeError` for one that is no integer."""
        offered, number = self._offered(), _number(action)
        illegal = not 0 <= number <= len(offered) or self.game.done
        if illegal:
            outcome, reward = self.game.outcome(), 0.0
        else:
            outcome = self.game.step(offered[number - 1].move if number else None)
            reward, self.stopped = outcome.reward, number == 0
        # Stopping ends the game; the limit of moves only ends the episode, and further steps report that
        # again.
        truncated = outcome.done and not self.stopped
        info = {**self._info(outcome), "illegal": True} if illegal else self._info(outcome)
        return self._observation(), reward, self.stopped, truncated, info

    def action_masks(self) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """True for each action that can be taken."""
        mask = np.zeros(self.actions, np.bool_)
        mask[: 1 + len(self._offered())] = True
        return mask

    def render(self) -> str | None:  # type: ignore[override]
        """The program with the names of its places, and its moves so far."""
        if self.render_mode != "ansi":
            return None
        played = [step.move.text for step in self.game.game.trace.steps]
        return self.game.game.show(ids=True) + "".join(f"# {k}: {text}\n" for k, text in enumerate(played, 1))

    # -- copies ------------------------------------------------------------------------------

    def __deepcopy__(self, memo: dict[int, Any]) -> KernelEnv:
        """Another episode in the same state, which shares known programs and times."""
        twin = copy.copy(self)
        twin.game = self.game.fork()
        for name in ("action_space", "observation_space", "_np_random"):
            setattr(twin, name, copy.deepcopy(getattr(self, name), memo))
        return twin

    def __getstate__(self) -> dict[str, Any]:
        """The arguments it was made with, the state of its game, its random generators, and the known
        times."""
        clock = self.game.clock
        return {
            "made_with": self.made_with,
            "game": self.game.state(),
            "stopped": self.stopped,
            "known": dict(clock.known) if isinstance(clock, RunnerClock) else {},
            "random": (self._np_random, self._np_random_seed, self.action_space, self.observation_space),
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state["made_with"])  # type: ignore[misc]
        self.game.restore(_plugins(self.made_with["target"]), state["game"])
        self.stopped = state["stopped"]
        if isinstance(self.game.clock, RunnerClock):
            self.game.clock.known |= state["known"]
        self._np_random, self._np_random_seed, self.action_space, self.observation_space = state["random"]

    # ----------------------------------------------------------------------------------------

    def _offered(self) -> list[Any]:
        fitting = [s for s in self.game.moves() if len(s.after.text) <= self.characters]
        return fitting[: self.actions - 1]

    def _observation(self) -> Observation:
        return {"program": self.game.program.text, "action_mask": self.action_masks().astype(np.int8)}

    def _info(self, outcome: Outcome) -> dict[str, Any]:
        offered = self._offered()
        return {
            "action_mask": self.action_masks().astype(np.int8),
            "moves": [step.move.text for step in offered],
            "left_out": len(self.game.moves()) - len(offered),
            "seconds": outcome.time.seconds,
            "provenance": outcome.time.provenance,
            "problem": outcome.time.problem,
            "speedup": outcome.reward,
        }


def _number(action: Any) -> int:
    """The number of an action. :class:`TypeError` for what is no integer, which would be rounded."""
    try:
        return operator.index(action)
    except TypeError:
        what = (
            f"an action is an integer (0 stops, k plays the k-th move on offer), not {reprlib.repr(action)}"
        )
        raise TypeError(what) from None


def _plugins(target: str) -> Plugins:
    return load_plugins(targets=None if target == "best" else [target])


_CHARACTERS = frozenset(string.ascii_letters + string.digits + string.punctuation + " \n")

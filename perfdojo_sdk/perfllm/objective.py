"""Objectives: the Bellman equations that define the value of a move, and the scale in which it is learned.

Each objective is an entry of :data:`OBJECTIVES`; all properties that a learner relies on are fields of it.
The module imports no PyTorch: values are tensors, of which only methods are called.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torch import Tensor

#: Smallest value in the logarithmic scale: a fiftieth of the initial program's speed.
LEAST = 0.02
#: Largest value: a network's prediction for a program unlike all others may overflow.
MOST = 1e9


@dataclass(frozen=True)
class Objective:
    """A Bellman equation: combines a move's reward and the discounted value of the best move after it."""

    name: str
    combined: Callable[[Tensor, Tensor], Tensor]
    """Maps ``reward`` and ``following``, both plain values, to the value of a move that does not end the
    game."""
    reward_is_bound: bool
    """True if a discounted reward that some game reached is a lower bound of the values of all moves before
    it. So it is where only the best reward of a game counts, since a game can be repeated."""


OBJECTIVES: Mapping[str, Objective] = {
    each.name: each
    for each in (
        # Equation 4: the best single reward that can be reached.
        Objective("max", lambda reward, following: reward.maximum(following), reward_is_bound=True),
        # Equation 2: the discounted sum of all rewards.
        Objective("sum", lambda reward, following: reward + following, reward_is_bound=False),
    )
}


class Choice(Protocol):
    """The fields of an agent's settings that choose objective, discount and scale."""

    @property
    def objective(self) -> str: ...
    @property
    def gamma(self) -> float: ...
    @property
    def scale(self) -> str: ...


def bellman(reward: Tensor, following: Tensor, done: Tensor, settings: Choice) -> Tensor:
    """The values of moves, all plain: ``reward`` alone where the game is ``done``.

    ``following``: the value of the best move after each.
    """
    value = OBJECTIVES[settings.objective].combined(reward, settings.gamma * following)
    return reward.where(done, value)


def scaled(values: Tensor, settings: Choice) -> Tensor:
    """Plain values, such as speed-ups, as the network predicts them."""
    return values.clamp_min(LEAST).log() if settings.scale == "log" else values


def plain(values: Tensor, settings: Choice) -> Tensor:
    """The inverse of :func:`scaled`, up to :data:`MOST`."""
    return values.exp().clamp_max(MOST) if settings.scale == "log" else values

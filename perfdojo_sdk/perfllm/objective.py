"""What a network is to predict: the Bellman equations, on values in the agent's scale."""

from __future__ import annotations

import torch
from torch import Tensor

from perfdojo_sdk.perfllm.settings import AgentSettings

#: The least value that the logarithmic scale tells from nothing: a fiftieth of the initial program's speed.
LEAST = 0.02
#: The most: what a network makes up of a program unlike all others may be beyond all numbers.
MOST = 1e9


def scaled(values: Tensor, settings: AgentSettings) -> Tensor:
    """Plain values, such as speed-ups, as the network predicts them."""
    return torch.log(values.clamp_min(LEAST)) if settings.scale == "log" else values


def plain(values: Tensor, settings: AgentSettings) -> Tensor:
    """The inverse of :func:`scaled`, up to :data:`MOST`."""
    return torch.exp(values).clamp_max(MOST) if settings.scale == "log" else values


def bellman(reward: Tensor, following: Tensor, done: Tensor, settings: AgentSettings) -> Tensor:
    """The value of a move, all plain: its reward, and ``following``, the value of the best move after it.

    ``max``: the best single reward from here on (equation 4). ``sum``: their discounted sum (equation 2).
    """
    if settings.objective == "max":
        return torch.where(done, reward, torch.maximum(reward, settings.gamma * following))
    return reward + torch.where(done, torch.zeros_like(reward), settings.gamma * following)

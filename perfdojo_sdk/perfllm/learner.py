"""Deep Q-learning on what was seen, for any objective: one network, its older copy, one optimiser."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from math import isfinite
from typing import Any

import numpy as np
import torch
from torch import Tensor

from perfdojo_sdk.core.errors import DojoError
from perfdojo_sdk.core.words import number_of
from perfdojo_sdk.perfllm.network import QNetwork
from perfdojo_sdk.perfllm.objective import bellman, plain, scaled
from perfdojo_sdk.perfllm.replay import Batch, Replay, Vector
from perfdojo_sdk.perfllm.settings import AgentSettings

#: Temperature of the softmax over values that is taken as the demonstrations' policy, in the network's scale.
TEMPERATURE = 0.2
#: States from which the scaling of the network's input is estimated.
SEEN_FIRST = 1000


class LearnError(DojoError):
    """Training cannot go on, or an agent or checkpoint cannot be used."""


class Learner:
    """Everything that changes while an agent learns; the same seed and experience give the same network."""

    def __init__(self, settings: AgentSettings, width: int, seed: int = 0) -> None:
        """``width``: of the encoder's vectors."""
        self.settings, self.width = settings, width
        self.chance = np.random.default_rng(seed)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.network = QNetwork(width, settings.hidden, settings.duelling)
        self.older = copy.deepcopy(self.network)
        self.optimiser = torch.optim.Adam(self.network.parameters(), settings.learning_rate)
        self.replay = Replay(width, settings.capacity, settings.gamma)
        self.steps = 0
        self.owed = 0.0
        """Steps of learning that evaluations have earned and that were not made yet."""

    # -- playing -----------------------------------------------------------------------------------

    def values(self, before: Vector, after: Vector) -> Vector:
        """The value of each move in the network's scale [1 + moves]; the first is the stop.

        ``before`` [width]; ``after`` [1 + moves, width].
        """
        with torch.no_grad():
            moves = torch.from_numpy(np.asarray(after, np.float32))[None]
            real = torch.ones(1, len(after), dtype=torch.bool)
            values: Tensor = self.network(torch.from_numpy(before)[None], moves, real)
        return np.asarray(values[0].numpy())

    # -- learning ----------------------------------------------------------------------------------

    def evaluated(self, count: int) -> float | None:
        """So many programs were evaluated: learn as much as the settings say. The mean loss, if any."""
        self.owed += count * self.settings.steps_per_evaluation
        steps = int(self.owed)
        self.owed -= steps
        return self.learn(steps)

    def learn(self, steps: int, size: float = 1.0) -> float | None:
        """The mean loss of so many steps; None when there is nothing to learn from.

        ``size``: of each step, as a part of what the settings say. :class:`LearnError` when the loss is no
        number any more.
        """
        if steps <= 0 or not len(self.replay):
            return None
        for group in self.optimiser.param_groups:
            group["lr"] = size * self.settings.learning_rate
        if not self.network.scaling_fitted:
            self._accustom()
        total = 0.0
        for _ in range(steps):
            batch = self.replay.sample(self.chance, self.settings.batch, self.settings.most_actions)
            loss = self._step(batch)
            if not isfinite(loss):
                raise LearnError(
                    "PD-L302",
                    f"the loss is {loss} after {number_of(self.steps, 'steps')} of learning",
                    why="the network has run away from its targets",
                    hint="use a smaller learning_rate, or the logarithmic scale",
                )
            total += loss
        return total / steps

    def _accustom(self) -> None:
        """Have the network see how large vectors are, and how much moves change them."""
        vectors = self.replay.some_vectors(SEEN_FIRST)
        before = np.stack([after[0] for after in vectors])
        differences = np.concatenate([after[1:] - after[:1] for after in vectors])
        if len(differences):
            self.network.fit_scaling(torch.from_numpy(before), torch.from_numpy(differences))
            self.older.load_state_dict(self.network.state_dict())

    def _step(self, batch: Batch) -> float:
        before, after, real = (torch.from_numpy(x) for x in (batch.before, batch.after, batch.real))
        taken = torch.from_numpy(batch.taken)[:, None]
        values = self.network(before, after, real)
        predicted = values.gather(1, taken)[:, 0]
        loss = torch.nn.functional.smooth_l1_loss(predicted, self.targets(batch))
        if self.settings.imitation and batch.shown.any():
            loss = loss + self.settings.imitation * imitation(values, torch.from_numpy(batch.shown))
        self.optimiser.zero_grad()
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(self.network.parameters(), 10.0)
        self.optimiser.step()
        self.steps += 1
        if self.steps % self.settings.copy_every == 0:
            self.older.load_state_dict(self.network.state_dict())
        return float(loss.detach())

    def targets(self, batch: Batch) -> Tensor:
        """The regression target of each transition [n], in the network's scale."""
        settings = self.settings
        with torch.no_grad():
            reward, done = torch.from_numpy(batch.reward), torch.from_numpy(batch.done)
            following = torch.zeros_like(reward)
            if len(batch.next_before):
                following[~done] = plain(self._best_after(batch), settings)
            if settings.bounded:
                # Like a reward: what comes later is discounted in it already.
                reward = torch.maximum(reward, torch.from_numpy(batch.bound))
            return scaled(bellman(reward, following, done, settings), settings)

    def _best_after(self, batch: Batch) -> Tensor:
        """The value of the best move in each successor state, in the network's scale."""
        there = tuple(torch.from_numpy(x) for x in (batch.next_before, batch.next_after, batch.next_real))
        older: Tensor = self.older(*there)
        if not self.settings.double:
            return older.max(1).values
        best = self.network(*there).argmax(1, keepdim=True)
        return older.gather(1, best)[:, 0]

    # -- on disk -----------------------------------------------------------------------------------

    def tensors(self) -> dict[str, Tensor]:
        """Both networks and the optimiser's moments."""
        found = {f"network.{k}": v for k, v in self.network.state_dict().items()}
        found |= {f"older.{k}": v for k, v in self.older.state_dict().items()}
        for name, parameter in self.network.named_parameters():
            moments = self.optimiser.state.get(parameter)
            if moments:
                found |= {f"moments.{name}.{key}": torch.as_tensor(value) for key, value in moments.items()}
        return {name: tensor.detach().clone().contiguous() for name, tensor in found.items()}

    def notes(self) -> dict[str, Any]:
        """The state of learning besides the tensors, as JSON values."""
        return {"steps": self.steps, "owed": self.owed, "chance": self.chance.bit_generator.state}

    def restore(self, tensors: Mapping[str, Tensor], notes: Mapping[str, Any]) -> None:
        """Go on from what :meth:`tensors` and :meth:`notes` gave; the replay is restored by itself.

        :class:`LearnError` when they are of another network.
        """
        self.load(tensors)
        try:
            self.older.load_state_dict(_part(tensors, "older."))
            for name, parameter in self.network.named_parameters():
                moments = _part(tensors, f"moments.{name}.")
                if moments:
                    self.optimiser.state[parameter] = moments
            self.steps, self.owed = int(notes["steps"]), float(notes["owed"])
            self.chance.bit_generator.state = notes["chance"]
        except (RuntimeError, KeyError, TypeError, ValueError) as error:
            raise _other_network(error) from None

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Take over what a network has learned, and nothing else. :class:`LearnError` if it does not fit."""
        wanted = _part(tensors, "network.")
        broken = [name for name, tensor in wanted.items() if not bool(torch.isfinite(tensor).all())]
        if broken:
            what = f"the network's {broken[0]} holds values that are no numbers"
            raise LearnError("PD-L303", what, hint="use an earlier checkpoint, or train again")
        try:
            self.network.load_state_dict(wanted)
        except RuntimeError as error:
            raise _other_network(error) from None
        self.older.load_state_dict(self.network.state_dict())


def imitation(values: Tensor, shown: Tensor) -> Tensor:
    """The imitation loss: mean negative log-probability of playing a demonstrated move, under a softmax of
    values.

    ``values`` [n, moves]; ``shown`` bool [n, moves]. States without demonstrations do not count. The
    probabilities of all demonstrated moves of a state are added, since most moves of a game can be played
    later as well. Without this loss the values of moves that nobody has tried are arbitrary (deep Q-learning
    from demonstrations, Hester et al. 2018, with a softmax in place of the margin).
    """
    some = shown.any(1)
    likely = torch.log_softmax(values[some] / TEMPERATURE, 1).masked_fill(~shown[some], float("-inf"))
    return -torch.logsumexp(likely, 1).mean()


def _part(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name[len(prefix) :]: t.clone() for name, t in tensors.items() if name.startswith(prefix)}


def _other_network(error: Exception) -> LearnError:
    why = str(error).strip().splitlines()[-1].strip()
    hint = "use the settings and the encoder that it was trained with, or train again"
    return LearnError("PD-L303", "the file holds another network than its settings say", why=why, hint=hint)

"""PerfLLM's learning in one file: deep Q-learning with the max-Bellman objective (paper, section 3).

    python -m perfdojo_sdk.perfllm.maxq "softmax[8,16]" --target TARGET --evaluations 60

Read it from top to bottom: the environment, the network, the replay, the targets, the agent that plays. It is
complete, and learns exactly as the full player does with the settings ``MAX_Q`` (``tests/test_maxq.py``
compares all weights). What the full player has besides is in the other files of this folder: sessions that
are resumed, beams, bounds from recorded games, demonstrations, several kernels at once, a cluster.
"""

from __future__ import annotations

import argparse
import copy
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from perfdojo_sdk.core.program import Program
from perfdojo_sdk.core.transformation import Step
from perfdojo_sdk.environment import Environment

#: From the texts of programs to their vectors, float32 [len(texts), width].
Encode = Callable[[Sequence[str]], "np.ndarray[Any, Any]"]

#: Action 0 ends the game where it is; action k plays the k-th legal move.
STOP = 0
#: Values are learned as logarithms, so that all kernels count alike. This is the least that one can have.
LEAST = 0.02


@dataclass(frozen=True)
class Settings:
    """The options that the paper compares, and the hyperparameters of deep Q-learning."""

    maximum: bool = True
    """Learn the best reward that can be reached (equation 4), not the sum of rewards (equation 2)."""
    double: bool = True
    """The network chooses the next action, and its older copy says what that is worth (equation 6)."""
    duelling: bool = True
    """The value of a state and the advantages of its actions are two heads."""
    gamma: float = 0.99
    hidden: int = 128
    learning_rate: float = 1e-3
    batch: int = 32
    copy_every: int = 100
    """Steps of learning between two copies of the network."""
    capacity: int = 20_000
    """Transitions that the replay holds."""
    steps_per_evaluation: int = 2
    epsilon_first: float = 1.0
    epsilon_last: float = 0.05
    epsilon_fall: float = 0.6
    """Part of the budget over which the share of random actions falls, linearly."""

    def epsilon(self, progress: float) -> float:
        """The share of random actions; ``progress`` is the part of the budget that is spent."""
        return self.epsilon_first + min(1.0, progress / self.epsilon_fall) * (
            self.epsilon_last - self.epsilon_first
        )


# -- 1. States and actions (section 3.1) -----------------------------------------------------------


@dataclass
class State:
    """A program as the agent sees it: vectors of where each action leads."""

    reward: float
    """c/T: how many times as fast as the initial program; 0 when it does not run."""
    after: Tensor | None = None
    """[1 + moves, width]; row 0, for the stop, is the program itself. None: its moves were not listed."""


def encoded(program: Program, steps: Sequence[Step], encode: Encode) -> Tensor:
    """Rows for all actions of a program: an action is the program that it leads to."""
    return torch.from_numpy(encode([program.text, *(step.after.text for step in steps)]))


# -- 2. The network: Q(state, action) --------------------------------------------------------------


class QNetwork(nn.Module):
    """Values of all actions of each state of a batch, from the vectors before and after."""

    mean: Tensor
    spread: Tensor
    change: Tensor

    def __init__(self, width: int, hidden: int, duelling: bool) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("spread", torch.ones(width))
        self.register_buffer("change", torch.ones(width))
        self.before = nn.Linear(width, hidden)
        self.difference = nn.Linear(width, hidden, bias=False)
        self.body = nn.Linear(hidden, hidden)
        self.move = nn.Linear(hidden, 1)
        value = nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, 1))
        self.state = value if duelling else None

    def standardise(self, states: Sequence[Tensor]) -> None:
        """Set the scale of inputs once, from the first states seen: ``after`` of each."""
        before = torch.stack([after[0] for after in states])
        differences = torch.cat([after[1:] - after[:1] for after in states])
        if len(differences):
            spread, change = before.std(0, unbiased=False), differences.square().mean(0).sqrt()
            self.mean.copy_(before.mean(0))
            self.spread.copy_(torch.where(spread > 1e-3, spread, torch.ones(())))
            self.change.copy_(torch.where(change > 1e-3, change, torch.ones(())))

    def forward(self, after: Tensor, real: Tensor) -> Tensor:
        """[batch, actions] from ``after`` [batch, actions, width]; minus infinity where not ``real``."""
        before = after[:, 0]
        difference = (after - before[:, None]) / self.change
        before = (before - self.mean) / self.spread
        inner = torch.relu(self.before(before)[:, None] + self.difference(difference))
        values: Tensor = self.move(torch.relu(self.body(inner))).squeeze(-1)
        if self.state is not None:
            mean = (values * real).sum(1, keepdim=True) / real.sum(1, keepdim=True)
            values = self.state(before) + values - mean
        return values.masked_fill(~real, float("-inf"))


# -- 3. Replay (section 3.3) -----------------------------------------------------------------------


class Transition(NamedTuple):
    """An action and what it led to."""

    state: State
    action: int
    to: State
    """The same state after a stop."""

    @property
    def ends(self) -> bool:
        """True if the transition has no known successor: a stop, or a state without listed moves."""
        return self.action == STOP or self.to.after is None


class Replay:
    """The newest transitions, each once and as likely to be drawn."""

    def __init__(self, capacity: int, seed: int) -> None:
        self.transitions: deque[Transition] = deque(maxlen=capacity)
        self.seen: set[tuple[int, int]] = set()
        self.chance = np.random.default_rng(seed)

    def add(self, transition: Transition) -> None:
        pair = id(transition.state), id(transition.to)
        if pair not in self.seen:
            self.seen.add(pair)
            self.transitions.append(transition)

    def sample(self, count: int) -> list[Transition]:
        numbers = self.chance.integers(len(self.transitions), size=count)
        return [self.transitions[number] for number in numbers]


def padded(states: Sequence[State]) -> tuple[Tensor, Tensor]:
    """``after`` of several states as one tensor, and which of its actions are real."""
    rows = [state.after for state in states if state.after is not None]
    after = nn.utils.rnn.pad_sequence(rows, batch_first=True)
    counts = torch.tensor([len(row) for row in rows])
    return after, torch.arange(after.shape[1])[None] < counts[:, None]


# -- 4. Learning (section 3.2) ---------------------------------------------------------------------


class Learner:
    """A network, the older copy that its targets come from, and an optimiser."""

    def __init__(self, settings: Settings, width: int, seed: int = 0) -> None:
        self.settings = settings
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.network = QNetwork(width, settings.hidden, settings.duelling)
        self.older = copy.deepcopy(self.network)
        self.optimiser = torch.optim.Adam(self.network.parameters(), settings.learning_rate)
        self.replay = Replay(settings.capacity, seed)
        self.steps = 0

    def targets(self, batch: Sequence[Transition]) -> Tensor:
        """The regression target of each transition [n]: the right side of the Bellman equation, as a
        logarithm.

        The objective of the paper is max(r, gamma max Q'), since the fastest program on the way counts and
        not how long the game was there; the ordinary one is r + gamma max Q'.
        """
        reward = torch.tensor([transition.to.reward for transition in batch])
        ends = torch.tensor([transition.ends for transition in batch])
        following = torch.zeros_like(reward)
        if not bool(ends.all()):
            after, real = padded([transition.to for transition in batch if not transition.ends])
            values = self.older(after, real)
            chooser = self.network(after, real) if self.settings.double else values
            best = values.gather(1, chooser.argmax(1, keepdim=True))[:, 0]
            following[~ends] = self.settings.gamma * best.exp().clamp_max(1e9)
        value = torch.maximum(reward, following) if self.settings.maximum else reward + following
        return value.clamp_min(LEAST).log()

    def learn(self, steps: int) -> None:
        """Steps of stochastic gradient descent on transitions drawn from the replay."""
        for _ in range(steps):
            if self.steps == 0:
                seen = {id(t.state): t.state for t in self.replay.transitions}
                self.network.standardise([s.after for s in seen.values() if s.after is not None])
                self.older.load_state_dict(self.network.state_dict())
            batch = self.replay.sample(self.settings.batch)
            after, real = padded([transition.state for transition in batch])
            taken = torch.tensor([[transition.action] for transition in batch])
            with torch.no_grad():
                targets = self.targets(batch)
            predicted = self.network(after, real).gather(1, taken)[:, 0]
            loss = nn.functional.smooth_l1_loss(predicted, targets)
            self.optimiser.zero_grad()
            torch.autograd.backward(loss)
            nn.utils.clip_grad_norm_(self.network.parameters(), 10.0)
            self.optimiser.step()
            self.steps += 1
            if self.steps % self.settings.copy_every == 0:
                self.older.load_state_dict(self.network.state_dict())

    def best(self, state: State) -> int:
        """The action of the highest value."""
        with torch.no_grad():
            return int(self.network(*padded([state])).argmax())


# -- 5. Playing ------------------------------------------------------------------------------------


class Agent:
    """Plays episodes in one environment and learns from them."""

    def __init__(self, environment: Environment, encode: Encode, settings: Settings, seed: int = 0) -> None:
        self.environment, self.encode, self.settings = environment, encode, settings
        self.chance = np.random.default_rng(seed)
        self.states: dict[str, State] = {}
        """Programs that were timed, by their texts. Their number is what a budget counts."""
        root = environment.reset()
        width = encode([root.text]).shape[1]
        self.learner = Learner(settings, width, seed)

    def here(self) -> tuple[State, tuple[Step, ...]]:
        """The state that the game is in and its moves; both are remembered when they are new."""
        program, steps = self.environment.program, self.environment.moves()
        state = self.state()
        if state.after is None:
            state.after = encoded(program, steps, self.encode)
            self.learner.replay.add(Transition(state, STOP, state))
        return state, steps

    def state(self) -> State:
        """The state that the game is in."""
        text = self.environment.program.text
        if text not in self.states:
            self.states[text] = State(self.environment.outcome().reward)
        return self.states[text]

    def action(self, state: State, steps: Sequence[Step], epsilon: float) -> int:
        """Epsilon-greedy. Chance draws a transformation first: some have a hundred times as many moves."""
        if self.chance.random() >= epsilon:
            return self.learner.best(state)
        kinds: dict[str, list[int]] = {"": [STOP]}
        for number, step in enumerate(steps, 1):
            kinds.setdefault(step.move.transformation, []).append(number)
        kind = sorted(kinds)[self.chance.integers(len(kinds))]
        return int(self.chance.choice(kinds[kind]))

    def episode(self, epsilon: float) -> Iterator[float]:
        """One game from the initial program: the reward after each action."""
        self.environment.reset()
        while not self.environment.done:
            state, steps = self.here()
            action = self.action(state, steps, epsilon)
            self.environment.step(None if action == STOP else steps[action - 1].move)
            to = self.state()
            if action != STOP:
                self.learner.replay.add(Transition(state, action, to))
            yield to.reward

    def train(self, evaluations: int) -> Iterator[float]:
        """Play and learn until so many programs were timed; the best speed-up so far after each action."""
        best, idle = 1.0, 0
        while len(self.states) < evaluations and idle < 100:  # a small game may have no more programs
            before = len(self.states)
            for reward in self.episode(self.settings.epsilon(before / evaluations)):
                best = max(best, reward)
                yield best
            new = len(self.states) - before
            idle = 0 if new else idle + 1
            self.learner.learn(new * self.settings.steps_per_evaluation)


def main(arguments: Sequence[str] | None = None) -> None:
    """Train on one kernel and print the fastest program found."""
    from perfdojo_sdk.environment import open_environment
    from perfdojo_sdk.perfllm.encoder import load_encoder
    from perfdojo_sdk.plugins import load_plugins

    parser = argparse.ArgumentParser(prog="maxq", description="Max-Q on one kernel, in one file.")
    parser.add_argument("kernel", help="softmax[8,16], or the path of a .dojo file")
    parser.add_argument("--target", default="best")
    parser.add_argument("--evaluations", type=int, default=60, help="programs that are timed")
    parser.add_argument("--most-moves", type=int, default=12, help="moves of an episode")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sum", action="store_true", help="the ordinary objective (equation 2)")
    asked = parser.parse_args(arguments)
    environment = open_environment(load_plugins(), asked.kernel, asked.target, most_moves=asked.most_moves)
    agent = Agent(environment, load_encoder().encode, Settings(maximum=not asked.sum), asked.seed)
    shown = 0.0
    for best in agent.train(asked.evaluations):
        if best > shown:
            print(f"{len(agent.states)} programs: {best:.2f}x", file=sys.stderr)
            shown = best
    print(max(agent.states, key=lambda text: agent.states[text].reward))


if __name__ == "__main__":
    main()

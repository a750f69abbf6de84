"""The replay memory: states, their moves, and observed transitions between states.

A state is a program of some kernel; its reward is c/T, the speed-up over the initial program. The moves of a
state are the vectors of the programs they lead to; number 0 is stopping, the state itself. The value of a
state whose moves are not listed is its reward. Learning is off-policy: transitions of any search count.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

Vector = np.ndarray[Any, np.dtype[np.float32]]
#: Dtype of stored vectors; the lower half of the digits of float32 is noise of the encoder.
STORED = np.float16

STOP = 0


@dataclass
class State:
    """One program."""

    reward: float | None = None
    """c/T; 0 when it failed, None when it was never run."""
    bound: float = 0.0
    """The best discounted reward that any game reached from here."""
    listed: bool = False
    """True if its moves are stored."""
    before: Vector | None = None
    """Its vector [width], where it is listed."""
    after: np.ndarray[Any, Any] | None = None
    """Vectors [1 + moves, width] of the programs that the moves lead to; row 0 is the state itself."""
    parents: list[int] = field(default_factory=list)
    shown: set[int] = field(default_factory=set)
    """Demonstrated moves: those of games as fast as the fastest known of the kernel."""


class Transition(NamedTuple):
    state: int
    action: int
    """0: stop."""
    to: int
    """The successor; the same state after a stop."""


class Batch(NamedTuple):
    """Transitions, as arrays; ``taken`` is a column of ``after``."""

    before: Vector  # [n, width]
    after: Vector  # [n, actions, width]
    real: np.ndarray[Any, np.dtype[np.bool_]]  # [n, actions]
    taken: np.ndarray[Any, np.dtype[np.int64]]  # [n]
    reward: Vector  # [n]
    done: np.ndarray[Any, np.dtype[np.bool_]]  # [n]: nothing is known of what could follow
    bound: Vector  # [n]: what games reached from the state that follows; 0 after a stop
    shown: np.ndarray[Any, np.dtype[np.bool_]]  # [n, actions]
    next_before: Vector  # [those that are not done, width], and so on
    next_after: Vector
    next_real: np.ndarray[Any, np.dtype[np.bool_]]


class Replay:
    """Uniform replay (paper, section 3.3) of the newest ``capacity`` transitions."""

    def __init__(self, width: int, capacity: int, gamma: float) -> None:
        self.width, self.gamma = width, gamma
        self.states: list[State] = []
        self.number: dict[str, int] = {}
        self.transitions: deque[Transition] = deque(maxlen=capacity)
        self.seen: set[tuple[int, int]] = set()
        self.relist: Callable[[int], tuple[Vector, Vector]] | None = None
        """Encodes the vectors of a listed state and of its moves again; needed after :meth:`rebuild` only."""

    def __len__(self) -> int:
        return len(self.transitions)

    @property
    def names(self) -> list[str]:
        """Names of the states, in order of their numbers."""
        return list(self.number)

    def state(self, name: str, reward: float | None = None) -> int:
        """The number of the state ``name``, with its reward where that is known now."""
        number = self.number.setdefault(name, len(self.states))
        if number == len(self.states):
            self.states.append(State())
        state = self.states[number]
        if reward is not None and state.reward is None:
            state.reward = reward
            if state.listed:
                self._add(Transition(number, STOP, number))
            self._raise(number, reward)
        return number

    def expand(self, number: int, before: Vector, after: Vector) -> None:
        """List the moves of a state: where they lead, without the stop; [moves, width]."""
        state = self.states[number]
        if not state.listed:
            state.listed = True
            self._keep(state, before, after)
            if state.reward is not None:
                self._add(Transition(number, STOP, number))

    def _keep(self, state: State, before: Vector, after: Vector) -> None:
        state.after = np.concatenate([before[None], after]).astype(STORED)
        state.before = state.after[0].astype(np.float32)

    def vectors(self, number: int) -> tuple[Vector, np.ndarray[Any, Any]]:
        """The vectors of a listed state [width] and of its moves [1 + moves, width]."""
        state = self.states[number]
        if state.before is None or state.after is None:
            assert self.relist is not None
            self._keep(state, *self.relist(number))
        assert state.before is not None and state.after is not None
        return state.before, state.after

    def move(self, number: int, action: int, to: int) -> None:
        """Store the transition by ``action`` (from 1) from an expanded state to the state ``to``."""
        if (number, to) not in self.seen:
            self.seen.add((number, to))
            self._add(Transition(number, action, to))
            self.states[to].parents.append(number)
            self._raise(number, self.gamma * self.states[to].bound)

    def visit(self, number: int, action: int, to: int) -> None:
        """Store a transition as :meth:`move` does, and once more if it was stored before.

        Frequent states should be learned best: every game begins at the same program, and a slip there costs
        the whole game.
        """
        if (number, to) in self.seen:
            self._add(Transition(number, action, to))
        else:
            self.move(number, action, to)

    def reached(self, number: int, bound: float) -> None:
        """Store that some game reached the discounted reward ``bound`` from a state."""
        self._raise(number, bound)

    def show(self, number: int, action: int) -> None:
        """Mark ``action`` in an expanded state as demonstrated."""
        self.states[number].shown.add(action)

    def _add(self, transition: Transition) -> None:
        self.transitions.append(transition)

    def _raise(self, number: int, bound: float) -> None:
        """Raise the bound of a state to ``bound``, and those of its predecessors, discounted."""
        open_ = [(number, bound)]
        while open_:
            number, bound = open_.pop()
            state = self.states[number]
            if bound > state.bound:
                state.bound = bound
                open_ += [(parent, self.gamma * bound) for parent in state.parents]

    def merge(self, skeleton: Mapping[str, Any], arrays: Mapping[str, np.ndarray[Any, Any]]) -> None:
        """Add the states and transitions of another replay, given by its :meth:`skeleton` and :meth:`arrays`.

        Known entries stay as they are, so merging is idempotent. ValueError when the data are inconsistent,
        or do not fit this replay; nothing is added then.
        """
        other = Replay(self.width, max(1, len(skeleton["transitions"])), self.gamma)
        other.rebuild(skeleton)
        other.fill(arrays)
        names, listed = other.names, [n for n, state in enumerate(other.states) if state.listed]
        for number in listed:
            known = self.number.get(names[number])
            if known is not None and self.states[known].listed:
                if len(self.vectors(known)[1]) != len(other.vectors(number)[1]):
                    raise ValueError(f"the state {names[number]} has other moves here")
        here = [self.state(name, state.reward) for name, state in zip(names, other.states)]
        for number in listed:
            before, after = other.vectors(number)
            self.expand(here[number], before, after[1:])
        for state, action, to in other.transitions:
            if action != STOP:  # stops come with rewards
                self.move(here[state], action, here[to])
        for number, theirs in zip(here, other.states):
            self.states[number].shown |= theirs.shown
            self._raise(number, theirs.bound)

    def some_vectors(self, most: int) -> list[Vector]:
        """The vectors [1 + moves, width] of at most about ``most`` listed states, evenly chosen."""
        listed = [number for number, state in enumerate(self.states) if state.listed]
        chosen = listed[:: 1 + len(listed) // most]
        return [self.vectors(number)[1].astype(np.float32) for number in chosen]

    # -- learning from it --------------------------------------------------------------------------

    def sample(self, chance: np.random.Generator, count: int, most_actions: int) -> Batch:
        """``count`` transitions, each as likely; of each state's moves at most ``most_actions``."""
        chosen = [self.transitions[k] for k in chance.integers(len(self.transitions), size=count)]
        here = [self._columns(chance, t.state, most_actions, t.action) for t in chosen]
        done = np.array([not self._goes_on(t) for t in chosen])
        following = [t.to for t, ends in zip(chosen, done) if not ends]
        there = [self._columns(chance, to, most_actions, STOP) for to in following]
        after, real = self._padded([t.state for t in chosen], here)
        next_after, next_real = self._padded(following, there)
        return Batch(
            self._before([t.state for t in chosen]),
            after,
            real,
            np.array([int(np.flatnonzero(columns == t.action)[0]) for t, columns in zip(chosen, here)]),
            np.array([self.states[t.to].reward or 0.0 for t in chosen], np.float32),
            done,
            np.array([0.0 if t.action == STOP else self.states[t.to].bound for t in chosen], np.float32),
            self._shown(chosen, here, real.shape[1]),
            self._before(following),
            next_after,
            next_real,
        )

    def _goes_on(self, transition: Transition) -> bool:
        return transition.action != STOP and self.states[transition.to].listed

    def _columns(
        self, chance: np.random.Generator, number: int, most: int, needed: int
    ) -> np.ndarray[Any, Any]:
        """Numbers of at most ``most`` moves of a state: the stop, ``needed``, and random others."""
        _, after = self.vectors(number)
        if len(after) <= most:
            return np.arange(len(after))
        others = 1 + chance.permutation(len(after) - 1)
        fixed = [STOP] if needed == STOP else [STOP, needed]
        return np.concatenate([fixed, others[others != needed][: most - len(fixed)]])

    def _shown(
        self, chosen: list[Transition], columns: list[np.ndarray[Any, Any]], most: int
    ) -> np.ndarray[Any, np.dtype[np.bool_]]:
        found = np.zeros((len(chosen), most), np.bool_)
        for row, (transition, actions) in enumerate(zip(chosen, columns)):
            shown = self.states[transition.state].shown
            if shown:
                found[row, : len(actions)] = np.isin(actions, list(shown))
        return found

    def _before(self, numbers: list[int]) -> Vector:
        none = np.zeros((0, self.width), np.float32)
        return np.stack([self.vectors(number)[0] for number in numbers]) if numbers else none

    def _padded(
        self, numbers: list[int], columns: list[np.ndarray[Any, Any]]
    ) -> tuple[Vector, np.ndarray[Any, np.dtype[np.bool_]]]:
        most = max(map(len, columns), default=0)
        after = np.zeros((len(numbers), most, self.width), np.float32)
        real = np.zeros((len(numbers), most), np.bool_)
        for row, (number, chosen) in enumerate(zip(numbers, columns)):
            real[row, : len(chosen)] = True
            after[row, : len(chosen)] = self.vectors(number)[1][chosen]
        return after, real

    # -- on disk -----------------------------------------------------------------------------------

    def skeleton(self) -> dict[str, Any]:
        """Everything but the vectors, as JSON values; :meth:`rebuild` takes it back."""
        return {
            "names": self.names,
            "rewards": [state.reward for state in self.states],
            "bounds": [state.bound for state in self.states],
            "listed": [number for number, state in enumerate(self.states) if state.listed],
            "edges": [[parent, n] for n, state in enumerate(self.states) for parent in state.parents],
            "transitions": [list(transition) for transition in self.transitions],
            "shown": [[n, sorted(state.shown)] for n, state in enumerate(self.states) if state.shown],
        }

    def rebuild(self, skeleton: Mapping[str, Any]) -> None:
        """Take over what :meth:`skeleton` gave. ValueError when it does not fit together."""
        names, rewards = list(skeleton["names"]), list(skeleton["rewards"])
        bounds = [float(bound) for bound in skeleton["bounds"]]
        numbers = range(len(names))
        transitions = [Transition(int(s), int(a), int(t)) for s, a, t in skeleton["transitions"]]
        shown = {int(n): {int(a) for a in actions} for n, actions in skeleton["shown"]}
        edges = [(int(parent), int(to)) for parent, to in skeleton["edges"]]
        mentioned = {n for each in edges for n in each} | {n for t in transitions for n in (t.state, t.to)}
        fits = len(set(names)) == len(names) == len(rewards) == len(bounds) and mentioned <= set(numbers)
        played = [t.action for t in transitions] + [action for each in shown.values() for action in each]
        listed = set(skeleton["listed"])
        if not fits or not set(shown) <= listed <= set(numbers) or any(action < 0 for action in played):
            raise ValueError("the remembered states and transitions do not fit together")
        self.number = {str(name): number for number, name in enumerate(names)}
        self.states = [State(None if reward is None else float(reward)) for reward in rewards]
        for number in listed:
            self.states[number].listed = True
        for number, actions in shown.items():
            self.states[number].shown = actions
        if not {t.state for t in transitions} <= listed:
            raise ValueError("a remembered transition is of a state whose moves are not known")
        for parent, to in edges:
            self.states[to].parents.append(parent)
            self.seen.add((parent, to))
        for number, bound in enumerate(bounds):
            self._raise(number, bound)
        self.transitions.extend(transitions)

    def arrays(self) -> dict[str, np.ndarray[Any, Any]]:
        """The vectors, for :meth:`fill`."""
        vectors = [self.vectors(number)[1] for number, state in enumerate(self.states) if state.listed]
        none = np.zeros((0, self.width), STORED)
        return {
            "replay.rows": np.array([len(after) for after in vectors], np.int64),
            "replay.vectors": np.concatenate([none, *vectors]),
        }

    def fill(self, arrays: Mapping[str, np.ndarray[Any, Any]]) -> None:
        """Give a rebuilt memory its vectors back. ValueError when they are not its own."""
        rows, vectors = arrays["replay.rows"], arrays["replay.vectors"]
        listed = [state for state in self.states if state.listed]
        if len(rows) != len(listed) or vectors.shape != (int(rows.sum()), self.width) or (rows < 1).any():
            raise ValueError("the remembered vectors are not those of the remembered states")
        for state, end, count in zip(listed, np.cumsum(rows), rows):
            state.after = vectors[end - count : end]
            state.before = state.after[0].astype(np.float32)
        played = [(transition.state, transition.action) for transition in self.transitions]
        played += [(n, max(state.shown)) for n, state in enumerate(self.states) if state.shown]
        for number, action in played:
            if action >= len(self.vectors(number)[1]):
                raise ValueError("a remembered transition is of a move that its state does not have")

"""The SDK's own strategies, and the loop that drives any player.

The paper's passes are players that propose the same games each time, once. The caller of :func:`play_out`
decides how proposals are evaluated.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from perfdojo_sdk.core.errors import DojoError
from perfdojo_sdk.core.frozen import seldom_collected
from perfdojo_sdk.core.transformation import Trace
from perfdojo_sdk.core.words import number_of
from perfdojo_sdk.hookspecs.search import Evaluation, SearchStrategy, SearchTask, State
from perfdojo_sdk.search.evolution import StartEvolution
from perfdojo_sdk.search.passes import greedy, naive
from perfdojo_sdk.search.walks import Annealing, Beam, Sampling, StartWalk, edges, sequences

T = TypeVar("T")

Pass = Callable[[SearchTask], Sequence[Trace]]

#: Proposals asked for at a time.
BATCH = 8


@dataclass(frozen=True)
class Progress:
    """The progress of a search after a round."""

    evaluations: int
    state: State
    """The player's state."""
    proposing_s: float = 0.0
    """Seconds that the player itself took in this round, its start included."""


class PlayerFailed(Exception):
    """Raised when a player raised an error or broke a rule; the message says which."""


@seldom_collected()
def play_out(
    strategy: SearchStrategy,
    task: SearchTask,
    evaluate: Callable[[Sequence[Trace]], Sequence[Evaluation]],
    evaluations: int,
    resume: Progress | None = None,
    after: Callable[[Progress], bool] = lambda progress: True,
    thought: Callable[[float], None] = lambda seconds: None,
) -> None:
    """Let a player propose until it is finished, or ``evaluations`` proposals were evaluated in all.

    ``resume``: where an earlier search stopped. ``after`` is called after each round, and returns true to go
    on. ``thought`` is called before each evaluation with the player's seconds for each proposal, including
    what it took to learn from the round before.
    :class:`PlayerFailed` when the player's own code fails; errors of ``evaluate`` pass through.
    """
    done, learning = resume.evaluations if resume else 0, 0.0
    begin = time.perf_counter()
    player = _started(lambda: strategy.start(task, resume.state if resume else None))
    while done < evaluations:
        count = min(BATCH, evaluations - done)
        proposals = tuple(_guarded(lambda: player.propose(count)))  # noqa: B023 (called at once)
        proposing = time.perf_counter() - begin
        if not proposals:
            return
        if len(proposals) > count:
            raise PlayerFailed(f"it proposed {number_of(len(proposals), 'games')}, asked for {count}")
        thought((learning + proposing) / len(proposals))
        results = evaluate(proposals)
        done += len(proposals)
        begin = time.perf_counter()
        _guarded(lambda: player.observe(results))  # noqa: B023
        state = _guarded(player.state)
        learning = time.perf_counter() - begin
        if not after(Progress(done, state, proposing + learning)):
            return
        begin = time.perf_counter()


def _started(call: Callable[[], T]) -> T:
    """The result of ``call``; its own DojoError passes through, as it says what the player needs to start."""
    try:
        return call()
    except (DojoError, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise PlayerFailed(f"{type(error).__name__}: {error}") from error


def _guarded(call: Callable[[], T]) -> T:
    try:
        return call()
    except KeyboardInterrupt:
        raise
    except DojoError as error:
        raise PlayerFailed(error.what) from error
    except BaseException as error:  # a player that asks to leave is one that failed
        raise PlayerFailed(f"{type(error).__name__}: {error}") from error


@dataclass
class PassPlayer:
    """Proposes the games of a pass, in its order, once."""

    play: Pass
    task: SearchTask
    proposed: int = 0
    games: Sequence[Trace] | None = None
    """The games of the pass; None before it has played."""

    def propose(self, count: int) -> Sequence[Trace]:
        if self.games is None:
            self.games = tuple(self.play(self.task))
        games = self.games[self.proposed : self.proposed + count]
        self.proposed += len(games)
        return games

    def observe(self, evaluations: Sequence[Evaluation]) -> None:
        """A pass learns nothing."""

    def state(self) -> State:
        return {"proposed": self.proposed}


@dataclass(frozen=True)
class StartPass:
    """Starts a :class:`PassPlayer`. It is a class so that strategies can be pickled."""

    play: Pass

    def __call__(self, task: SearchTask, state: State | None) -> PassPlayer:
        return PassPlayer(self.play, task, int(state["proposed"]) if state else 0)


def _naive(task: SearchTask) -> tuple[Trace, ...]:
    return (naive(task.root, task.rules),)


def _greedy(task: SearchTask) -> tuple[Trace, ...]:
    return (greedy(task.root, task.rules),)


def _heuristic(task: SearchTask) -> tuple[Trace, ...]:
    return tuple(task.expert(task.root, task.rules, task.target)) if task.expert else ()


HEURISTIC = "heuristic"

#: The search that tuning uses by default.
AUTO = "auto"
#: Strategies that play the same games each time and learn nothing.
PASSES = ("naive", "greedy", HEURISTIC)

STRATEGIES = (
    SearchStrategy("naive", "Fuse and reuse until nothing more is legal.", StartPass(_naive)),
    SearchStrategy("greedy", "Naive, then every mapping to hardware that applies.", StartPass(_greedy)),
    SearchStrategy(HEURISTIC, "What the target's own expert plays.", StartPass(_heuristic)),
    SearchStrategy(
        "sampling-edges",
        "One more move on a program met before, drawn by how fast that one was.",
        StartWalk(Sampling, edges),
    ),
    SearchStrategy(
        "sampling", "Sampling over whole games, changed anywhere.", StartWalk(Sampling, sequences)
    ),
    SearchStrategy(
        "annealing-edges", "Simulated annealing, move by move from the start.", StartWalk(Annealing, edges)
    ),
    SearchStrategy(
        "annealing",
        "Simulated annealing over whole games, changed anywhere.",
        StartWalk(Annealing, sequences),
    ),
    SearchStrategy(
        "evolution",
        "Children of the fastest games, chosen by a learned model of their time.",
        StartEvolution(),
    ),
    SearchStrategy(AUTO, "What did best in benchmarks/search.py: evolution.", StartEvolution()),
    SearchStrategy("beam", "The fastest four games and what is next to them.", StartWalk(Beam, sequences)),
)

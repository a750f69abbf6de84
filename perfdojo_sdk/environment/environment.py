"""The native environment: one game that an agent plays, with a reward after each move.

Paper section 3.1: a state is a program's text, an action a legal move or the end of the game, the reward
of a move c/T, where T is the time of the program that it gives and c the time of the initial one. So a
reward is the speed-up so far, and the best state of a game is the one with the largest reward.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from perfdojo_sdk.core.errors import DojoError, MoveError, closest
from perfdojo_sdk.core.history import Dropped
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.core.transformation import Kind, Move, Rules, Step
from perfdojo_sdk.environment.clock import Clock, RunnerClock, Time
from perfdojo_sdk.game import Game, saved_game
from perfdojo_sdk.hookspecs.types import Target
from perfdojo_sdk.kernels.selection import Kernel, default_selection, select
from perfdojo_sdk.plugins import Plugins

#: Moves after which a game ends by itself.
MOST_MOVES = 64


class StateError(DojoError):
    """A saved state does not belong to this environment."""


class PolicyError(DojoError):
    """A policy names a transformation that does not exist."""


def names_of(only: Iterable[str] | None) -> frozenset[str] | None:
    """The transformations that a policy is limited to. :class:`PolicyError` for a text in place of several
    names."""
    if isinstance(only, str):
        raise PolicyError(
            "PD-A004",
            f"a policy offers only {only[:80]!r}, which is a text",
            why="`only` is a set of names, and each character of a text would count as one",
            hint=f"put the name in brackets: only=({only[:80]!r},)",
        )
    return None if only is None else frozenset(only)


@dataclass(frozen=True)
class Policy:
    """A policy: the subset of the legal moves that is offered."""

    most: Kind = Kind.DECLARED_LAW
    """The most that a move may change."""
    only: frozenset[str] | None = None
    """Names of transformations; None: all of the target's."""

    def check(self, rules: Rules) -> None:
        """:class:`PolicyError` when a name in :attr:`only` is none of the transformations of these rules."""
        for name in sorted(names_of(self.only) or ()):
            if name not in rules.transformations:
                raise PolicyError(
                    "PD-A004",
                    f"a policy offers {name!r} only, and the target has no such transformation",
                    hint=closest(name, list(rules.transformations)),
                )

    def offers(self, step: Step) -> bool:
        return step.legal.kind <= self.most and (self.only is None or step.move.transformation in self.only)


EVERYTHING = Policy()


class Outcome(NamedTuple):
    """The result of a move: reward, time, and a flag that the game is over."""

    reward: float
    """c/T of the program; 0 where it has no time."""
    time: Time
    done: bool
    """True if the game is over: it was stopped, or has the most moves allowed."""


@dataclass
class Environment:
    """One game in progress. :meth:`fork` is cheap: games are frozen and times are shared."""

    game: Game
    clock: Clock
    policy: Policy = EVERYTHING
    most_moves: int = MOST_MOVES
    done: bool = False
    _offered: tuple[Step, ...] | None = field(default=None, repr=False)

    @property
    def program(self) -> Program:
        """The state."""
        return self.game.program

    def reset(self) -> Program:
        """Start again from the initial program."""
        trace = self.game.trace
        self._now(Game(self.game.target, self.game.rules, type(trace)(trace.root)))
        self.done = False
        return self.program

    def moves(self) -> tuple[Step, ...]:
        """The moves on offer, applied, in an order that depends on the program and the rules alone."""
        if self._offered is None:
            found = () if self.done else self.game.moves(self.policy.most)
            self._offered = tuple(step for step in found if self.policy.offers(step))
        return self._offered

    def step(self, move: Move | None) -> Outcome:
        """Play a move; None stops the game where it is.

        :class:`MoveError` when the move is not legal or not on offer, or the game is over. :class:`TypeError`
        for what is no move.
        """
        if not isinstance(move, Move | None):
            kind = type(move).__name__
            raise TypeError(f"step() takes a Move or None, not {kind}; for example moves()[0].move")
        if self.done:
            raise MoveError("PD-A001", "the game is over", hint="start again with reset()")
        if move is not None:
            step = self.game.rules.step(self.program, move)
            if not self.policy.offers(step):
                why = f"{move.text} is {step.legal.kind.label}, or its transformation is left out"
                raise MoveError("PD-A002", "the policy of this environment does not offer the move", why=why)
            self._now(self.game.apply(move))
        self.done = move is None or len(self.game.trace.steps) >= self.most_moves
        if self.done:
            self._offered = None
        return self.outcome()

    def outcome(self) -> Outcome:
        """The reward c/T of the current program and its time in seconds."""
        time, base = self.clock(self.program), self.clock(self.game.trace.root)
        reward = base.seconds / time.seconds if base.seconds and time.seconds else 0.0
        return Outcome(reward, time, self.done)

    def undo(self, position: int) -> tuple[Dropped, ...]:
        """Take move ``position`` (from 0) out, and the later ones that no longer apply, which come back."""
        game, dropped = self.game.undo(position)
        self._now(game)
        self.done = False
        return dropped

    def fork(self) -> Environment:
        """Another environment in the same state; from here on they are independent."""
        return Environment(
            self.game, self.clock, self.policy, self.most_moves, self.done, _offered=self._offered
        )

    def __deepcopy__(self, memo: dict[int, Any]) -> Environment:
        return self.fork()

    def state(self) -> dict[str, Any]:
        """The state as JSON data; :meth:`restore` takes it back."""
        return {"game": self.game.as_json(), "done": self.done}

    def restore(self, plugins: Plugins, state: Mapping[str, Any]) -> None:
        """Restore a state that :meth:`state` returned; its moves are checked one by one.

        :class:`StateError` when it is of another kernel or target, :class:`MoveError` when a move no longer
        applies.
        """
        data = state.get("game") if isinstance(state, Mapping) else None
        game = Game.of(plugins, saved_game(data, "the state"))
        if (game.target.name, game.trace.root) != (self.game.target.name, self.game.trace.root):
            what = f"a state of {game.trace.root.name} for {game.target.name} is none of this environment"
            raise StateError("PD-A003", what, hint="open the environment of that kernel and target")
        self._now(game)
        self.done = bool(state.get("done"))

    def _now(self, game: Game) -> None:
        self.game, self._offered = game, None


def open_environment(
    plugins: Plugins,
    kernel: str,
    target: str = "best",
    clock: Clock | None = None,
    policy: Policy = EVERYTHING,
    most_moves: int = MOST_MOVES,
    threads: int = 1,
) -> Environment:
    """The environment of one kernel: a name, a name with sizes (``matmul[64,64,64]``) or a file's path.

    ``clock``: by default the target's own runner, which is there only if this machine can run its code.
    :class:`PolicyError` when ``policy`` names a transformation that the target does not have;
    PD-A006 when ``clock`` is the runner of another target.
    """
    found = plugins.target(target)
    if isinstance(clock, RunnerClock) and clock.target not in ("", found.name):
        what = f"the clock runs programs on {clock.target}, the environment is for {found.name}"
        raise DojoError("PD-A006", what, hint="leave the clock out: each environment makes its own")
    game = Game.new(plugins, found.name, kernel_of(plugins, found, kernel).program)
    policy.check(game.rules)
    return Environment(
        game,
        clock or RunnerClock.of(plugins, found, threads),
        policy,
        most_moves,
    )


def kernel_of(plugins: Plugins, target: Target, words: str) -> Kernel:
    """The kernel that ``words`` name for a target.

    A name without sizes stands for the kernel of that name in the target's default list, or else the first
    one whose name ends with it (``softmax`` is ``dsoftmax`` for a target that prefixes its dtypes).
    """
    operators, lists = plugins.operators_for(target), target.capabilities.selections
    if words.isidentifier():
        own = default_selection(operators, target.dialect, lists)
        named = _first(own, lambda name: name == words) or _first(own, lambda name: name.endswith(words))
        if named is not None:
            return named
    return select(words, operators, target.dialect, lists)[0]


def _first(kernels: Iterable[Kernel], fits: Callable[[str], bool]) -> Kernel | None:
    return next((kernel for kernel in kernels if fits(kernel.operator)), None)

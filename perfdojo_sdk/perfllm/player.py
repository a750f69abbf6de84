"""PerfLLM as a player: it plays several episodes in turn, learns from results, and can be resumed.

An episode goes move by move from the initial program, or from a program near the fastest one met. A falling
fraction of the moves is random (epsilon-greedy); the network chooses the others. A program met before costs
no evaluation: the episode continues from it. (Paper, sections 3.1 to 3.3; starting elsewhere than at the
initial program is ours, as in Go-Explore, Ecoffet et al. 2021.) With the setting ``beam`` a beam search runs
before each round instead. Of the programs it visits, those are evaluated at which the agent would stop, or
which it values highest. With ``evolved`` some rounds mutate the fastest games met, as the evolution does,
which repairs single slips.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from math import exp, log
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from perfdojo_sdk.core.alpha_equivalence import alpha_equivalence_key
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.core.transformation import Step, Trace
from perfdojo_sdk.hookspecs.search import SearchTask, State
from perfdojo_sdk.perfllm import agent_files
from perfdojo_sdk.perfllm.agent import Agent, Listed
from perfdojo_sdk.perfllm.beam import BeamNode, BeamWidth, beam, greedy_game
from perfdojo_sdk.perfllm.encoder import load_encoder
from perfdojo_sdk.perfllm.learner import Learner
from perfdojo_sdk.perfllm.replay import STOP, Vector
from perfdojo_sdk.perfllm.settings import AgentSettings, changed
from perfdojo_sdk.perfllm.strategies import NO_AGENT, SHIPPED_AGENT, shipped_agent
from perfdojo_sdk.search.evolution import Evolution, EvolutionParameters
from perfdojo_sdk.search.explorer import NO_PARENT, Draw, Explorer, digest
from perfdojo_sdk.search.neighbours import Edges

#: Moves through programs met before, and restarts, that one proposal may take.
PATIENCE = 60
#: Programs whose moves are cached.
AT_HAND = 512
#: Random draws when no episode finds a new program.
DRAWS = 40
#: An episode may begin at one of so many of the fastest programs.
FASTEST = 8


class PerfLLM(Explorer):
    """One search in progress."""

    def __init__(self, task: SearchTask, state: State | None, agent: Agent, alone: bool = True) -> None:
        """``alone``: no other player shares the agent, so its weights are part of this player's state."""
        self.agent, self.settings, self.alone = agent, agent.learner.settings, alone
        self.kernel = digest(Trace(task.root))
        self.episodes: list[int] = []
        """The number of each episode's current game; NO_PARENT: it starts again."""
        self.lengths: list[int] = []
        """Moves of each episode so far."""
        self.numbers: dict[str, int] = {}
        """Digest of a program -> number of the first game that came to it."""
        self.proposed: dict[str, int] = {}
        """Digest of a proposal -> the episode that made it."""
        self.loss: float | None = None
        self._keys: list[str] = []
        """The alpha-equivalence key of each game met; filled by :meth:`_equivalence_keys_met`."""
        self._at_hand: OrderedDict[tuple[str, ...], Listed] = OrderedDict()
        super().__init__(task, state)
        self._evolution = _EvolutionOf(self)

    def at(self, state: State) -> PerfLLM:
        """A player with this one's task and agent, in ``state``. ValueError when the state is another
        task's."""
        return PerfLLM(self.task, state, self.agent, self.alone)

    def opening_games(self) -> list[Trace]:
        return [Trace(self.task.root)]

    # -- playing -----------------------------------------------------------------------------------

    @property
    def epsilon(self) -> float:
        return self.settings.epsilon(len(self.met) / max(1, self.task.evaluations))

    def draws(self, chance: Random, count: int) -> Iterable[Draw]:
        self.proposed = {}
        nothing = True
        for draw in self._way(chance)(chance, count):
            nothing = False
            yield draw
        if nothing:
            anywhere = Edges(self.task.rules, self.task.most)
            for _ in range(DRAWS * count):
                number = chance.choice(self.timed)
                yield number, anywhere(self.game(number), chance)

    def _way(self, chance: Random) -> Callable[[Random, int], Iterable[Draw]]:
        """The method that makes this round's draws: evolution, beam or episodes."""
        settings, played = self.settings, len(self.met) > len(self.starts)
        evolves = settings.evolved and played and not (settings.beam and self._sure)
        if evolves and chance.random() < settings.evolved:
            return self._evolution.draws
        return self._beam if settings.beam else self._side_by_side

    @property
    def _earlier(self) -> int:
        """Number of earlier rounds, without that of the initial program."""
        return self.round - 2

    @property
    def _sure(self) -> bool:
        """True if this round's beam is deterministic."""
        return self._earlier <= self.settings.widened

    # -- a beam ------------------------------------------------------------------------------------

    def _beam(self, chance: Random, count: int) -> Iterator[Draw]:
        """Draws of a beam search: the end of the greedy game, then programs that the beam visits.

        The first beams are deterministic, and each is twice as wide as the one before.
        """
        settings = self.settings
        if self._sure:
            number, start = 0, self.game(0)
            width = BeamWidth(settings.beam << self._earlier, settings.most_moves)
        else:
            number, start = self._start(chance)
            width = BeamWidth(settings.beam, settings.most_moves, settings.temperature, self.epsilon)
        met = self._equivalence_keys_met()
        first = greedy_game(start, self._look, width.moves)
        for place in chain([first], _alternating(beam(start, self._look, width, chance))):
            key = alpha_equivalence_key(place.game.program)
            if key not in met:
                met.add(key)
                for step in place.game.steps[len(start.steps) :]:
                    self._listed(step.before)
                self._listed(place.game.program)
                self._played(place.game, list(place.actions))
                yield number, place.game

    def _equivalence_keys_met(self) -> set[str]:
        """The alpha-equivalence keys of all programs met; a renamed array is not worth an evaluation."""
        new = range(len(self._keys), len(self.met))
        self._keys += [alpha_equivalence_key(self.game(number).program) for number in new]
        return set(self._keys)

    def _look(self, game: Trace) -> tuple[Listed, Vector]:
        """The moves of a game's last program and their values. Not stored in the replay: most programs a
        beam visits lead to no evaluated one."""
        listed = self._seen(game.program)
        return listed, self.agent.values(listed)

    def _start(self, chance: Random) -> tuple[int, Trace]:
        """The start of a beam: the initial program, or a prefix of one of the fastest games."""
        if chance.random() >= self.settings.restarts:
            return 0, self.game(0)
        number = self._fast(chance)
        game = self.game(number)
        return number, Trace(game.root, game.steps[: chance.randint(0, len(game.steps))])

    # -- episodes ----------------------------------------------------------------------------------

    def _side_by_side(self, chance: Random, count: int) -> Iterator[Draw]:
        """The next new program of each of ``count`` episodes."""
        while len(self.episodes) < count:
            self.episodes.append(NO_PARENT)
            self.lengths.append(0)
        for episode in range(count):
            draw = self._advanced(episode, chance)
            if draw is not None:
                yield draw

    def _advanced(self, episode: int, chance: Random) -> Draw | None:
        """Continue an episode until it reaches a program that was never evaluated; None when it does not."""
        for _ in range(PATIENCE):
            number = self.episodes[episode]
            if number == NO_PARENT or self.lengths[episode] >= self.settings.most_moves:
                number, self.lengths[episode] = self._beginning(chance), 0
                self.episodes[episode] = number
            game, actions = self._leap(self.game(number), chance)
            stopped = bool(actions) and actions[-1] == STOP
            self.lengths[episode] += len(game.steps) - len(self.met[number].moves)
            name = digest(game)
            if name in self.proposed:
                continue
            if name not in self.known:
                self.proposed[name] = episode
                self._played(game, actions)
                return number, game
            if len(actions) == 1:
                self._played(game, actions)
            to = self.numbers[name]
            goes_on = not stopped and self.met[to].seconds is not None
            self.episodes[episode] = to if goes_on else NO_PARENT
        return None

    def _leap(self, game: Trace, chance: Random) -> tuple[Trace, list[int]]:
        """The game with one or more further moves, and their numbers; the last is STOP if the agent
        stopped."""
        actions = list[int]()
        for _ in range(chance.randint(1, self.settings.leap)):
            listed = self._listed(game.program)
            actions.append(self._chosen(listed, chance))
            if actions[-1] == STOP:
                break
            game = replace(game, steps=(*game.steps, listed.steps[actions[-1] - 1]))
        return game, actions

    def _played(self, game: Trace, actions: list[int]) -> None:
        """Store the last moves of a game in the replay, as many as ``actions`` has.

        Only moves that lead to a game met are stored, so that a resumed session finds the programs in
        between again.
        """
        moves = [action for action in actions if action != STOP]
        for step, action in zip(game.steps[len(game.steps) - len(moves) :], moves):
            self.agent.learner.replay.move(self._state(step.before), action, self._state(step.after))

    def _beginning(self, chance: Random) -> int:
        """The number of the game from which an episode starts: near a fast program, or the initial one."""
        if chance.random() >= self.settings.restarts:
            return 0
        number = self._fast(chance)
        while self.met[number].parent != NO_PARENT and chance.random() < 0.5:
            number = self.met[number].parent
        return number

    def _fast(self, chance: Random) -> int:
        """One of the fastest games."""
        ranked = sorted(self.timed, key=self.seconds)[:FASTEST]
        return chance.choices(ranked, [exp(-k / 3) for k in range(len(ranked))])[0]

    def _chosen(self, listed: Listed, chance: Random) -> int:
        """The number of a move: random with probability epsilon (first a transformation, then one of its
        moves), else the network's best or a sample."""
        if chance.random() < self.epsilon:
            by_name: dict[str, list[int]] = {"": [STOP]}
            for k, step in enumerate(listed.steps, 1):
                by_name.setdefault(step.move.transformation, []).append(k)
            return chance.choice(by_name[chance.choice(sorted(by_name))])
        values = self.agent.values(listed)
        if self.settings.temperature:
            # The largest of values with Gumbel noise is a draw from their softmax.
            noise = [-log(-log(chance.uniform(1e-12, 1 - 1e-12))) for _ in values]
            values = values / self.settings.temperature + np.array(noise)
        for action in (-values).argsort(kind="stable"):
            if action == STOP or not self._useless(listed.steps[action - 1]):
                return int(action)
        return STOP

    def _useless(self, step: Step) -> bool:
        """True if another episode of this round proposes the same program, or it is known to fail."""
        name = name_of(step.after)
        known = self.numbers.get(name)
        return name in self.proposed or (known is not None and self.met[known].seconds is None)

    def forget(self) -> None:
        """Empty the cache of listed moves."""
        self._at_hand.clear()

    def _listed(self, program: Program) -> Listed:
        """The moves of a program, which are stored in the replay as well."""
        listed = self._seen(program)
        self.agent.remember(self._state(program), listed)
        return listed

    def _seen(self, program: Program) -> Listed:
        """The moves of a program, cached by its text and node ids: moves refer to ids, and two programs with
        equal texts may differ in them."""
        name = name_of(program), *program.place_of
        if name in self._at_hand:
            self._at_hand.move_to_end(name)
            return self._at_hand[name]
        self._at_hand[name] = listed = self._moves_of(program)
        if len(self._at_hand) > AT_HAND:
            self._at_hand.popitem(last=False)
        return listed

    def _moves_of(self, program: Program) -> Listed:
        task = self.task
        return self.agent.listed(program, task.rules, task.most, task.target.name)

    # -- learning ----------------------------------------------------------------------------------

    def learn(self, numbers: range) -> None:
        for number in numbers:
            met = self.met[number]
            self.numbers.setdefault(met.program, number)
            self._state(self.game(number).program)
            episode = self.proposed.get(met.program)
            if episode is not None:  # else it was drawn by chance alone
                self.episodes[episode] = number if met.seconds is not None else NO_PARENT
        self.loss = self.agent.learner.evaluated(len(numbers))

    def reward(self, seconds: float | None) -> float:
        """The speed-up c/T, where c is the time of the initial program (or of the first that ran); 0 for a
        failure."""
        base = next((met.seconds for met in self.met if met.seconds is not None), None)
        return base / seconds if base and seconds else 0.0

    def _state(self, program: Program) -> int:
        """The number of a program's state in the replay. The name includes the kernel, since kernels share a
        replay."""
        name = name_of(program)
        number = self.numbers.get(name)
        reward = None if number is None else self.reward(self.met[number].seconds)
        return self.agent.learner.replay.state(f"{self.kernel} {name}", reward)

    # -- memory ------------------------------------------------------------------------------------

    def notes(self) -> Mapping[str, Any]:
        notes: dict[str, Any] = {"episodes": self.episodes, "lengths": self.lengths}
        return notes | (self.agent.notes() if self.alone else {})

    def read_notes(self, notes: Mapping[str, Any]) -> None:
        self.episodes, self.lengths = list(notes["episodes"]), list(notes["lengths"])
        for number, met in enumerate(self.met):
            self.numbers.setdefault(met.program, number)
        if self.alone:
            self.agent.read_notes(notes)
            self.agent.learner.replay.relist = partial(relisted, self, self.agent)


class _EvolutionOf(Evolution):
    """Evolution over the games that another player has met, without those of passes."""

    def __init__(self, player: Explorer) -> None:
        super().__init__(player.task, None, EvolutionParameters())
        self.met, self.known = player.met, player.known

    def opening_games(self) -> list[Trace]:
        return [Trace(self.task.root)]


def _alternating(places: Sequence[BeamNode]) -> Iterator[BeamNode]:
    """The places, in turn the likeliest end and the one of the highest value, each once."""
    ends = iter(sorted(places, key=lambda place: -place.ending))
    fast = iter(sorted(places, key=lambda place: -place.worth))
    given = set[int]()
    for place in chain.from_iterable(zip(ends, fast)):
        if id(place) not in given:
            given.add(id(place))
            yield place


def relisted(player: Explorer, agent: Agent, state: int) -> tuple[Vector, Vector]:
    """The vectors of a state of the replay [width] and of its moves [moves, width], encoded again."""
    name, task = agent.learner.replay.names[state].rpartition(" ")[2], player.task
    listed = agent.listed(passed(player)[name], task.rules, task.most, task.target.name)
    return listed.before, listed.after[1:]


def passed(player: Explorer) -> dict[str, Program]:
    """All programs along the games met, by digest."""
    found: dict[str, Program] = {}
    for number in range(len(player.met)):
        game = player.game(number)
        found |= {name_of(step.after): step.after for step in game.steps}
    return {name_of(player.task.root): player.task.root, **found}


def name_of(program: Program) -> str:
    """The :func:`digest` of a game that ends in ``program``."""
    return digest(Trace(program))


def start(task: SearchTask, state: State | None) -> PerfLLM:
    """A player for the task; see :func:`agent_for` for the options."""
    return PerfLLM(task, state, agent_for(task))


def agent_for(task: SearchTask) -> Agent:
    """The agent that the task's options describe.

    ``agent``: the file of a trained one, which continues to learn, or ``shipped``. Without it, or with
    ``none``, a new one; ``encoder`` is then the argument of ``load_encoder``, and all other options are
    fields of :class:`AgentSettings`.
    """
    options = dict(task.options)
    file, name = options.pop("agent", ""), options.pop("encoder", "default")
    options.pop("agent_sha256", "")
    if file not in ("", NO_AGENT):
        shipped = file == SHIPPED_AGENT
        trained = shipped_agent(task.target.name, task.root.name) if shipped else Path(file)
        agent = agent_files.load(trained, task.seed, task.versions)
        return agent if not options else agent.with_settings(changed(agent.learner.settings, options))
    encoder = load_encoder(name)
    return Agent(encoder, Learner(changed(AgentSettings(), options), encoder.width, task.seed), name)

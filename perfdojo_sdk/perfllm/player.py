"""PerfLLM as a player: it plays episodes side by side, learns from results, is resumed like any other.

An episode goes move by move from the initial program, or from near the fastest one met. Chance chooses a
part of the moves, less and less; the network the others. A program that was met before costs no evaluation:
the episode walks through it. (Paper, sections 3.1 to 3.3; starting elsewhere than at the initial program is
ours, as in Go-Explore, Ecoffet et al. 2021.) With the setting ``beam`` a beam goes before each round instead,
and of the programs on its way those are evaluated where the agent would stop, or which it thinks fastest.
With ``evolved`` some rounds change the fastest games met, as the evolution does, which mends single slips.
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

from perfdojo_sdk.core.program import Program
from perfdojo_sdk.core.transformation import Step, Trace
from perfdojo_sdk.hookspecs.search import SearchTask, State
from perfdojo_sdk.perfllm import agent_files
from perfdojo_sdk.perfllm.agent import Agent, Listed
from perfdojo_sdk.perfllm.beam import Place, Width, beam, favourite
from perfdojo_sdk.perfllm.encoder import load_encoder
from perfdojo_sdk.perfllm.learner import Learner
from perfdojo_sdk.perfllm.replay import STOP, Vector
from perfdojo_sdk.perfllm.settings import AgentSettings, changed
from perfdojo_sdk.perfllm.strategies import NO_AGENT, SHIPPED_AGENT, shipped_agent
from perfdojo_sdk.search.alpha_equivalence import alpha_equivalence_key
from perfdojo_sdk.search.evolution import Evolution, Habits
from perfdojo_sdk.search.explorer import NO_PARENT, Draw, Explorer, digest
from perfdojo_sdk.search.neighbours import Edges

#: Moves through programs met before, and new beginnings, that one proposal may take.
PATIENCE = 60
#: Programs whose moves are kept at hand.
AT_HAND = 512
#: Draws by chance alone when no episode comes to anything new.
DRAWS = 40
#: An episode may begin at one of so many of the fastest programs.
FASTEST = 8


class PerfLLM(Explorer):
    """One search in progress."""

    def __init__(self, task: SearchTask, state: State | None, agent: Agent, alone: bool = True) -> None:
        """``alone``: nobody else uses the agent, so what it learns is part of this player's state."""
        self.agent, self.settings, self.alone = agent, agent.learner.settings, alone
        self.kernel = digest(Trace(task.root))
        self.episodes: list[int] = []
        """The game that each episode has come to; NO_PARENT: it begins anew."""
        self.lengths: list[int] = []
        """Moves of each episode so far."""
        self.numbers: dict[str, int] = {}
        """Digest of a program -> number of the first game that came to it."""
        self.proposed: dict[str, int] = {}
        """Digest of a proposal -> the episode that made it."""
        self.loss: float | None = None
        self._alike: list[str] = []
        """What each game met is like; only beams ask."""
        self._at_hand: OrderedDict[tuple[str, ...], Listed] = OrderedDict()
        super().__init__(task, state)
        self._evolution = _EvolutionOf(self)

    def at(self, state: State) -> PerfLLM:
        """A player like this one, where it was when ``state`` was taken. ValueError if it is another's."""
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
        """How a round goes."""
        settings, played = self.settings, len(self.met) > len(self.starts)
        evolves = settings.evolved and played and not (settings.beam and self._sure)
        if evolves and chance.random() < settings.evolved:
            return self._evolution.draws
        return self._beam if settings.beam else self._side_by_side

    @property
    def _earlier(self) -> int:
        """Rounds before this one, without that of the initial program."""
        return self.round - 2

    @property
    def _sure(self) -> bool:
        """Whether a beam knows no chance in this round."""
        return self._earlier <= self.settings.widened

    # -- a beam ------------------------------------------------------------------------------------

    def _beam(self, chance: Random, count: int) -> Iterator[Draw]:
        """The end of the favourite game and what a beam comes to.

        The first beams know no chance, and each is wider than the one before.
        """
        settings = self.settings
        if self._sure:
            number, start = 0, self.game(0)
            width = Width(settings.beam << self._earlier, settings.most_moves)
        else:
            number, start = self._start(chance)
            width = Width(settings.beam, settings.most_moves, settings.temperature, self.epsilon)
        met = self._equivalence_keys_met()
        first = favourite(start, self._look, width.moves)
        for place in chain([first], _alternating(beam(start, self._look, width, chance))):
            alike = alpha_equivalence_key(place.game.program)
            if alike not in met:
                met.add(alike)
                for step in place.game.steps[len(start.steps) :]:
                    self._listed(step.before)
                self._listed(place.game.program)
                self._played(place.game, list(place.actions))
                yield number, place.game

    def _equivalence_keys_met(self) -> set[str]:
        """What the programs met are like: another name for an array is not worth an evaluation."""
        new = range(len(self._alike), len(self.met))
        self._alike += [alpha_equivalence_key(self.game(number).program) for number in new]
        return set(self._alike)

    def _look(self, game: Trace) -> tuple[Listed, Vector]:
        """Most of what a beam sees leads to nothing that is evaluated, and is not remembered."""
        listed = self._seen(game.program)
        return listed, self.agent.values(listed)

    def _start(self, chance: Random) -> tuple[int, Trace]:
        """Where a beam begins: at the initial program, or on the way of one of the fastest games."""
        if chance.random() >= self.settings.restarts:
            return 0, self.game(0)
        number = self._fast(chance)
        game = self.game(number)
        return number, Trace(game.root, game.steps[: chance.randint(0, len(game.steps))])

    # -- episodes ----------------------------------------------------------------------------------

    def _side_by_side(self, chance: Random, count: int) -> Iterator[Draw]:
        """Where each of ``count`` episodes comes to."""
        while len(self.episodes) < count:
            self.episodes.append(NO_PARENT)
            self.lengths.append(0)
        for episode in range(count):
            draw = self._advanced(episode, chance)
            if draw is not None:
                yield draw

    def _advanced(self, episode: int, chance: Random) -> Draw | None:
        """Play on until a program that nobody has evaluated."""
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
        """Some moves more, and the actions; the last one is the stop where the episode ended by itself."""
        actions = list[int]()
        for _ in range(chance.randint(1, self.settings.leap)):
            listed = self._listed(game.program)
            actions.append(self._chosen(listed, chance))
            if actions[-1] == STOP:
                break
            game = replace(game, steps=(*game.steps, listed.steps[actions[-1] - 1]))
        return game, actions

    def _played(self, game: Trace, actions: list[int]) -> None:
        """Remember the moves at the end of a game.

        Only those that lead to a game met, so that a later session finds the programs on the way again.
        """
        moves = [action for action in actions if action != STOP]
        for step, action in zip(game.steps[len(game.steps) - len(moves) :], moves):
            self.agent.learner.replay.move(self._state(step.before), action, self._state(step.after))

    def _beginning(self, chance: Random) -> int:
        """Where an episode begins: mostly near the fastest programs, or at the initial one."""
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
        """An action: by chance, transformations evenly and then their moves, or the best by the network."""
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
        """Whether another episode of this round proposes the same program, or it is known to fail."""
        name = name_of(step.after)
        known = self.numbers.get(name)
        return name in self.proposed or (known is not None and self.met[known].seconds is None)

    def forget(self) -> None:
        """List moves anew from here on."""
        self._at_hand.clear()

    def _listed(self, program: Program) -> Listed:
        """The moves of a program; listed in the replay too."""
        listed = self._seen(program)
        self.agent.remember(self._state(program), listed)
        return listed

    def _seen(self, program: Program) -> Listed:
        """The moves of a program, by its text and the names of its places: a move names these, and two
        programs with one text may differ in them."""
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
        """c/T, where c is the time of the initial program (or of the first that ran): the speed-up."""
        base = next((met.seconds for met in self.met if met.seconds is not None), None)
        return base / seconds if base and seconds else 0.0

    def _state(self, program: Program) -> int:
        """A program in the replay, with its reward where it has one; kernels stand side by side there."""
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
    """Changes the games that another player has met, and knows no pass."""

    def __init__(self, player: Explorer) -> None:
        super().__init__(player.task, None, Habits())
        self.met, self.known = player.met, player.known

    def opening_games(self) -> list[Trace]:
        return [Trace(self.task.root)]


def _alternating(places: Sequence[Place]) -> Iterator[Place]:
    """In turn the likeliest end and the program that is thought to be the fastest, each place once."""
    ends = iter(sorted(places, key=lambda place: -place.ending))
    fast = iter(sorted(places, key=lambda place: -place.worth))
    given = set[int]()
    for place in chain.from_iterable(zip(ends, fast)):
        if id(place) not in given:
            given.add(id(place))
            yield place


def relisted(player: Explorer, agent: Agent, state: int) -> tuple[Vector, Vector]:
    """The vectors of a state of the memory and of its moves, once more."""
    name, task = agent.learner.replay.names[state].rpartition(" ")[2], player.task
    listed = agent.listed(passed(player)[name], task.rules, task.most, task.target.name)
    return listed.before, listed.after[1:]


def passed(player: Explorer) -> dict[str, Program]:
    """Every program on the way to one that was met, by digest."""
    found: dict[str, Program] = {}
    for number in range(len(player.met)):
        game = player.game(number)
        found |= {name_of(step.after): step.after for step in game.steps}
    return {name_of(player.task.root): player.task.root, **found}


def name_of(program: Program) -> str:
    """As :func:`digest` of a game that ends there."""
    return digest(Trace(program))


def start(task: SearchTask, state: State | None) -> PerfLLM:
    """A player for the task; see :func:`agent_for` for the options."""
    return PerfLLM(task, state, agent_for(task))


def agent_for(task: SearchTask) -> Agent:
    """The agent that the task's options describe.

    ``agent``: the file of a trained one, which goes on learning, or ``shipped``. Without it, or with
    ``none``, a new one: ``encoder``, as ``load_encoder`` reads it, and any field of :class:`AgentSettings`.
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

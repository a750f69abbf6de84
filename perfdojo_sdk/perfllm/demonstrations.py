"""Demonstrations: games from which an agent learns before it plays a task itself.

These are the fastest recorded games, variations of them in other orders and with slips, and games of the
agent that are corrected in each state.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from perfdojo_sdk.core.transformation import Trace
from perfdojo_sdk.perfllm.correction import correct
from perfdojo_sdk.perfllm.plan import TrainingPlan
from perfdojo_sdk.perfllm.recorded_games import RecordedGames
from perfdojo_sdk.perfllm.settings import kinds_of
from perfdojo_sdk.perfllm.training_task import TrainingTask
from perfdojo_sdk.search.explorer import openings
from perfdojo_sdk.store.candidates import Candidate, CandidateLog
from perfdojo_sdk.store.records import sha256


@dataclass(frozen=True)
class Demonstrations:
    """The demonstrated games of one task, and the known times of its programs."""

    task: TrainingTask
    recorded_games: RecordedGames
    shown: list[Trace]
    """Games as fast as the fastest known, within the tolerance of :meth:`RecordedGames.shows`."""
    games: int = 0
    """Number of games in the replay before any is corrected."""
    beyond: tuple[str, ...] = ()
    """Kinds of moves that faster games use and the agent's repertoire lacks."""

    def correct(self, plan: TrainingPlan, round: int) -> Iterator[tuple[int, int]]:
        """Play a round of corrected games; yields, for each, its number of states and of slips."""
        chance = Random(f"{plan.seed} {self.task.name} {round}")
        for _ in range(plan.corrected_games if self.shown else 0):
            yield correct(self.recorded_games, self.shown, self.task.seconds, chance)


def demonstrate(plan: TrainingPlan, task: TrainingTask, store: CandidateLog | None) -> Demonstrations:
    """Store the fastest recorded games of one task in the replay, in several orders and with slips."""
    recorded = store.of(task.kernel.name, task.context.target.name) if store else ()
    found = [candidate for candidate in recorded if _comparable(candidate, task)]
    if plan.passes:
        found += _played_by_passes(task)
    kinds = task.player.settings.kinds(task.context.target.name)
    recorded_games = RecordedGames(task.replay_context, [each for each in found if not _beyond(each, kinds)])
    games = recorded_games.fastest(plan.recorded)
    for game in games:
        recorded_games.remember(game)
    shown = [game for game in games if recorded_games.shows(game)]
    chance = Random(f"{plan.seed} {task.name}")
    varied = recorded_games.vary(shown, plan.orders, plan.slips, task.seconds, chance)
    better = [each for each in found if each.seconds and recorded_games.better(each.seconds)]
    beyond = {kind for each in better for kind in _beyond(each, kinds)}
    return Demonstrations(task, recorded_games, shown, len(games) + varied, tuple(sorted(beyond)))


def _beyond(candidate: Candidate, kinds: frozenset[str]) -> set[str]:
    """The kinds of moves of a game that a repertoire lacks. A game with such moves cannot be demonstrated."""
    played = (kinds_of(move.move()) for move in candidate.trace.moves) if kinds else ()
    return {names[0] for names in played if kinds.isdisjoint(names)}


def _played_by_passes(task: TrainingTask) -> list[Candidate]:
    """The games of the target's passes, evaluated."""
    games = {sha256(game.program.text): game for game in openings(task.context.task(task.kernel))}
    how, known = task.evaluator.conditions, task.evaluator.known
    for game in games.values():
        task.seconds(game)
    return [Candidate.of(how.key, game, known[text], how.proposer) for text, game in games.items()]


def _comparable(candidate: Candidate, task: TrainingTask) -> bool:
    """True if a record was measured under the conditions of this training, by any search."""
    one, other = candidate.key.conditions, task.evaluator.conditions.key
    same = (one.program_sha256, one.device) == (other.program_sha256, other.device)
    return same and one.settings.get("threads") == other.settings.get("threads")

"""What an agent is shown of a kernel before it plays it: recorded games, slips, its own games corrected."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from perfdojo_sdk.core.transformation import Trace
from perfdojo_sdk.perfllm.correction import correct
from perfdojo_sdk.perfllm.plan import TrainingPlan
from perfdojo_sdk.perfllm.pupil import Pupil
from perfdojo_sdk.perfllm.recall import Recall
from perfdojo_sdk.perfllm.settings import kinds_of
from perfdojo_sdk.search.explorer import openings
from perfdojo_sdk.store.candidates import Candidate, CandidateLog
from perfdojo_sdk.store.records import sha256


@dataclass(frozen=True)
class Lecture:
    """The games of one pupil that are shown, and what is known of the times of others."""

    pupil: Pupil
    recalling: Recall
    shown: list[Trace]
    """Games as good as any known."""
    games: int = 0
    """How many were remembered to begin with."""
    beyond: tuple[str, ...] = ()
    """Kinds of moves that better games play and the agent never will, since its repertoire lacks them."""

    def correct(self, plan: TrainingPlan, round: int) -> Iterator[tuple[int, int]]:
        """A round of games that the agent plays and is corrected in: states in which it was, and slips."""
        chance = Random(f"{plan.seed} {self.pupil.name} {round}")
        for _ in range(plan.corrected_games if self.shown else 0):
            yield correct(self.recalling, self.shown, self.pupil.seconds, chance)


def lecture(plan: TrainingPlan, pupil: Pupil, store: CandidateLog | None) -> Lecture:
    """Remember the best games of one kernel, in several orders and with slips."""
    recorded = store.of(pupil.kernel.name, pupil.context.target.name) if store else ()
    found = [candidate for candidate in recorded if _alike(candidate, pupil)]
    if plan.passes:
        found += _played_by_passes(pupil)
    kinds = pupil.player.settings.kinds(pupil.context.target.name)
    recalling = Recall(pupil.table, [each for each in found if not _beyond(each, kinds)])
    games = recalling.fastest(plan.recorded)
    for game in games:
        recalling.remember(game)
    shown = [game for game in games if recalling.shows(game)]
    chance = Random(f"{plan.seed} {pupil.name}")
    varied = recalling.vary(shown, plan.orders, plan.slips, pupil.seconds, chance)
    better = [each for each in found if each.seconds and recalling.better(each.seconds)]
    beyond = {kind for each in better for kind in _beyond(each, kinds)}
    return Lecture(pupil, recalling, shown, len(games) + varied, tuple(sorted(beyond)))


def _beyond(candidate: Candidate, kinds: frozenset[str]) -> set[str]:
    """The kinds of moves of a game that a repertoire lacks: who cannot play them learns nothing from it."""
    played = (kinds_of(move.move()) for move in candidate.trace.moves) if kinds else ()
    return {names[0] for names in played if kinds.isdisjoint(names)}


def _played_by_passes(pupil: Pupil) -> list[Candidate]:
    """The games that are known without searching, evaluated."""
    games = {sha256(game.program.text): game for game in openings(pupil.context.task(pupil.kernel))}
    how, known = pupil.evaluator.conditions, pupil.evaluator.known
    for game in games.values():
        pupil.seconds(game)
    return [Candidate.of(how.key, game, known[text], how.proposer) for text, game in games.items()]


def _alike(candidate: Candidate, pupil: Pupil) -> bool:
    """Whether a record's figure may stand beside those of this training; who proposed it does not matter."""
    one, other = candidate.key.conditions, pupil.evaluator.conditions.key
    same = (one.program_sha256, one.device) == (other.program_sha256, other.device)
    return same and one.settings.get("threads") == other.settings.get("threads")

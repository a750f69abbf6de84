"""The note on a kernel that keeps its initial program: the reason, and what may help."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from perfdojo_sdk.core.words import number_of
from perfdojo_sdk.library.attempts import Attempt, median
from perfdojo_sdk.library.evaluation import TOO_MUCH
from perfdojo_sdk.search.strategies import HEURISTIC, PASSES

_TELLS = "`explain-plan` says what the expert decided"
_SEARCHES = "--tune N searches for more"
_SIMPLER = "loops with one statement each are planned best"


@dataclass(frozen=True)
class Proposals:
    """The games that a player has proposed for one kernel, and the reasons why there are no more."""

    player: str
    """The name of the strategy."""
    attempts: Sequence[Attempt] = ()
    """The games that may enter the library."""
    count: int = 0
    """The number of games that were evaluated."""
    refused: Sequence[str] = ()
    """Reasons why games were not even compiled."""
    failed: bool = False
    """True if the player stopped with an error, or has lost the device."""
    without: str = ""
    """The target that brings no expert."""
    failures: Mapping[str, int] = field(default_factory=dict)
    """The number of programs of a search that failed, by reason."""


def why_kept(found: Proposals, initial: Attempt, rejected: Sequence[tuple[Attempt, str]]) -> str:
    """The note on a kernel whose initial program is kept. ``rejected``: games that were preferred to it and
    did not enter, with the reasons."""
    return f"the initial program is kept: {'; '.join(_cause_and_help(found, initial, rejected))}"


def _cause_and_help(
    found: Proposals, initial: Attempt, rejected: Sequence[tuple[Attempt, str]]
) -> tuple[str, str]:
    searched = found.player not in PASSES
    games = "game that the search found" if searched else f"game of {_who(found.player)}"
    more = "a larger --tune N searches longer" if searched else _SEARCHES
    wrong = [why for _, why in rejected if "verification" in why]
    if wrong:
        help = (
            "`explain-plan --output GAME.json` saves a game of the expert, and `verify GAME.json` judges it"
        )
        return f"no faster {games} passed verification", f"{help}; {more}"
    timed = [attempt for attempt in found.attempts if attempt.measured is not None]
    if timed and not rejected and initial.measured is not None:
        return _slower(games, len(timed), min(map(median, timed)), median(initial)), f"{_TELLS}; {more}"
    if found.attempts:
        why = rejected[0][1] if rejected else found.attempts[0].failure
        help = f"`plugins doctor` tries the compiler; {more}"
        return f"no {'faster ' if timed else ''}{games} ran to the end ({why})", help
    return _none_proposed(found, searched, games, more)


def _none_proposed(found: Proposals, searched: bool, games: str, more: str) -> tuple[str, str]:
    """The cause where no game got as far as being timed, and what may help."""
    if found.without:
        return f"no pass for target {found.without}, so that nobody proposed a game", _SEARCHES
    if found.failed:
        return f"{_who(found.player)} failed", f"--debug shows where; {more}"
    if found.refused:
        too_much = [why for why in found.refused if why in TOO_MUCH]
        help = "--allow says how much moves may change" if too_much else "its plugin is at fault"
        return f"no {games} was allowed ({found.refused[0]})", help
    if searched and found.count:
        failed = ", ".join(f"{count} {reason}" for reason, count in sorted(found.failures.items()))
        tried = f"none of {number_of(found.count, 'programs')} was faster and passed all checks"
        tried += failed and f" (failures: {failed})"
        return tried, f"{_TELLS}; {more}"
    return "nothing else was proposed for it", f"{_TELLS}; {more}; {_SIMPLER}"


def _who(player: str) -> str:
    if player == HEURISTIC:
        return "the expert"
    return f"the pass {player}" if player in PASSES else f"the search {player}"


def _slower(games: str, count: int, best_s: float, initial_s: float) -> str:
    """The sentence on games that are slower than the initial program, or too little faster to be worth their
    proofs, with the ratio of the times."""
    times = f"{best_s / initial_s:.2f} times as long as the initial program"
    what = "is slower" if best_s >= initial_s else "gains too little for its proofs"
    if count == 1:
        return f"the only {games} {what}, and takes {times}"
    return f"each {games} {what}: the fastest of {count} takes {times}"

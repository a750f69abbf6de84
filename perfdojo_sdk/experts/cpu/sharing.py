"""Loops for many threads: which loop of a finished game they share, and which loops become one for that.

Plans give threads a loop of eight iterations or more. More threads than that need more iterations: a loop
inside, or several loops collapsed into one. What is chosen has the least cost by the model: the statements of
the busiest thread, and those that one thread would run in the time in which threads are started.
"""

from __future__ import annotations

from collections.abc import Collection

from perfdojo_sdk.core.errors import MoveError
from perfdojo_sdk.core.program import Program, Scope
from perfdojo_sdk.core.transformation import Rules, Trace
from perfdojo_sdk.experts.balance import longest
from perfdojo_sdk.experts.cpu.analysis import facts_of
from perfdojo_sdk.experts.cpu.row_kernels import THREADS_COST
from perfdojo_sdk.experts.cpu.steps import SHARES, settle_buffers
from perfdojo_sdk.hookspecs.services import Decision
from perfdojo_sdk.hookspecs.types import Target
from perfdojo_sdk.search.play import Play

#: Another way to share has to take at most this part of the time.
CLEARLY = 0.8


def shared_by_all(game: Trace, rules: Rules, target: Target) -> tuple[Trace, list[Decision]]:
    """The game with loops for all of the target's threads, where that is clearly cheaper."""
    if target.threads <= SHARES:
        return game, []
    roots = {node.id for node in game.program.body if isinstance(node, Scope)}
    _, decisions = _shared(game, rules, target, roots)
    if not decisions:
        return game, []
    # Once more: a loop that stays as it was gets its threads where the game gave them to it.
    return _shared(game, rules, target, {decision.place for decision in decisions})


def _shared(
    game: Trace, rules: Rules, target: Target, roots: Collection[str]
) -> tuple[Trace, list[Decision]]:
    """The game with the nests at ``roots`` shared anew, and a decision on each that gains."""
    play, decisions = Play(game.root, rules), list[Decision]()
    try:
        for move in game.moves:
            parameters = dict(move.parameters)
            shares = parameters.get("suffix") == play.threads and _root(game.program, move.place) in roots
            if not shares and parameters.get("location") not in play.near_locations:
                play.must(move.transformation, move.place, **parameters)
    except MoveError:  # such as a place in memory that only iterations of a thread may have
        return game, []
    facts = {nest.place: nest for nest in facts_of(game.program, target)}
    for node in [node for node in game.program.body if isinstance(node, Scope) and node.id in roots]:
        work = sum(work.iterations for work in facts[node.id].works)
        start = THREADS_COST * work / facts[node.id].seconds
        was = longest(node, rules.dialect, target.threads, start)
        now = _share(play, node.id, target.threads, start)
        if now < CLEARLY * was:
            numbers = {"statements of the busiest": now, "before": was}
            why = "by the model its busiest thread has less to do"
            decisions.append(Decision("share out", node.id, f"for {target.threads} threads", why, numbers))
    settle_buffers(play)
    return play.trace, decisions


def _root(program: Program, place: str) -> str:
    """The id of the nest at the root in which a place stands; empty where it is gone."""
    path = program.paths.get(place)
    return program.body[path[0]].id if path else ""


def _share(play: Play, place: str, threads: int, start: float) -> float:
    """Play the cheapest way to share a scope out: as it is, as one with the loops inside of it, or each scope
    inside by itself; its cost."""
    dialect, first = play.rules.dialect, play.trace
    best, cost = first, longest(play.scope(place), dialect, threads, start)
    at = place
    while at:
        plain = play.trace
        if play.annotate(at, play.threads):
            here = longest(play.scope(at), dialect, threads, start)
            best, cost = (play.trace, here) if here < cost else (best, cost)
        play.trace = plain
        made = play.may("collapse_scopes", at)
        at = made.scopes[0] if made else ""
    play.trace = first
    for child in play.scope(place).body:
        if isinstance(child, Scope) and not child.suffix:
            _share(play, child.id, threads, start)
    inside = longest(play.scope(place), dialect, threads, start)
    if inside >= cost:
        play.trace = best
    return min(inside, cost)

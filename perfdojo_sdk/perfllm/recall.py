"""What other searches have found, as experience: every recorded game is an episode that somebody played.

The states on the way to a program mostly have no time of their own, since whole games were proposed. Under
the objective "max" that does no harm: what is not known counts as nothing, and the worth of a move is the
best that comes after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from perfdojo_sdk.core.errors import DojoError
from perfdojo_sdk.core.transformation import Kind, Rules, Trace
from perfdojo_sdk.perfllm.mind import Mind
from perfdojo_sdk.search.explorer import digest
from perfdojo_sdk.store.candidates import Candidate

#: A game that takes at most so many times what the fastest one takes shows how it is done.
NEARLY = 1.02


def recall(
    mind: Mind, candidates: Iterable[Candidate], root: Trace, rules: Rules, most: Kind, games: int
) -> int:
    """Remember the ``games`` fastest recorded games of one kernel, move by move; how many were played again.

    ``root``: the kernel's game without moves. Games of other programs, and those whose moves no longer apply,
    are left out. Only candidates of one device and one kind of figure may be given together.
    """
    found = [c for c in candidates if c.trace.root == root.root.text]
    seconds = {c.key.program_sha256[:24]: c.seconds for c in found}
    base = seconds.get(digest(root)) or max((s for s in seconds.values() if s), default=None)
    if base is None:
        return 0
    played, best = 0, min(s for s in seconds.values() if s)
    for candidate in sorted(found, key=lambda c: c.seconds or float("inf"))[:games]:
        try:
            game = candidate.trace.replay(rules)
        except DojoError:
            continue
        shown = candidate.seconds is not None and candidate.seconds <= NEARLY * best
        _remember(mind, game, rules, most, seconds, base, shown)
        played += 1
    return played


def _remember(
    mind: Mind,
    game: Trace,
    rules: Rules,
    most: Kind,
    seconds: dict[str, float | None],
    base: float,
    shown: bool,
) -> None:
    replay, kernel = mind.learner.replay, digest(Trace(game.root))
    states = []
    for played in _beginnings(game):
        name, known = digest(played), seconds.get(digest(played), -1.0)
        reward = None if known == -1.0 else base / known if known else 0.0
        states.append(replay.state(f"{kernel} {name}", reward))
    for number, (state, to) in enumerate(zip(states, states[1:])):
        program = game.steps[number].before
        if (state, to) in replay.seen or state == to:
            continue
        listed = mind.listed(program, rules, most)
        mind.remember(state, listed)
        # By what it leads to: another name of a place may have led there when the game was played.
        text = game.steps[number].after.text
        action = next((k for k, step in enumerate(listed.steps, 1) if step.after.text == text), None)
        if action is not None:
            replay.move(state, action, to, shown)


def _beginnings(game: Trace) -> Sequence[Trace]:
    return [Trace(game.root, game.steps[:count]) for count in range(len(game.steps) + 1)]

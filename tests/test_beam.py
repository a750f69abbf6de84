"""A beam: equal programs are merged, likely games continue, and stops of the agent are recorded."""

from __future__ import annotations

from math import exp
from random import Random

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("safetensors")

from snippets import DIALECT, RULES

from perfdojo_sdk.core.alpha_equivalence import alpha_equivalence_key
from perfdojo_sdk.core.errors import MoveError
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.core.text import parse
from perfdojo_sdk.core.transformation import Move, Step, Trace
from perfdojo_sdk.kernels.operators import SOFTMAX
from perfdojo_sdk.perfllm.agent import Listed
from perfdojo_sdk.perfllm.beam import BeamNode, BeamWidth, Look, beam, greedy_game, log_softmax
from perfdojo_sdk.perfllm.learner import TEMPERATURE
from perfdojo_sdk.search.explorer import digest
from perfdojo_sdk.search.passes import naive

ROOT = parse(SOFTMAX.build(4, 8), DIALECT)
GAME = naive(ROOT, RULES)


def looks(wanted: dict[str, float], stop: float = -1.0, other: float = -9.0) -> Look:
    """The values of a network that likes some programs by name, and the last of them as an end.

    It does not know ``keep_dims``, which goes back to a program that it likes.
    """

    def look(game: Trace) -> tuple[Listed, np.ndarray]:
        steps = tuple(s for s in RULES.steps(game.program) if s.move.transformation != "keep_dims")
        none = np.zeros((1 + len(steps), 1), np.float32)
        worths = [wanted.get(digest(Trace(step.after)), other) for step in steps]
        return Listed(steps, none[0], none), np.array([stop, *worths], np.float32)

    return look


#: Each program on the way is liked better than the one before.
WAY = {digest(Trace(step.after)): float(k) for k, step in enumerate(GAME.steps)}


def attempted(program: Program, move: Move) -> Program | None:
    try:
        result = RULES.attempt(program, move)
    except MoveError:
        return None
    return result.after if isinstance(result, Step) else None


def ends(places: list[BeamNode]) -> list[Trace]:
    return [place.game for place in sorted(places, key=lambda place: -place.ending)]


def test_a_beam_plays_the_game_that_is_liked_and_stops_there() -> None:
    places = beam(Trace(ROOT), looks(WAY), BeamWidth(3, 40), Random(0))
    assert digest(ends(places)[0]) == digest(GAME)
    assert places[0].game == Trace(ROOT) and places[0].likely == 0.0
    assert [len(place.actions) for place in places] == [len(place.game.steps) for place in places]


def test_the_greedy_game_is_played_where_a_beam_loses_it() -> None:
    """After its first move nothing is much likelier than the rest; after any other one, two moves are."""
    way = [digest(Trace(step.after)) for step in GAME.steps[:5]]
    chance = Random(0)

    def look(game: Trace) -> tuple[Listed, np.ndarray]:
        steps = tuple(RULES.steps(game.program))
        names = [digest(Trace(step.after)) for step in steps]
        here = digest(Trace(game.program))
        if game == Trace(ROOT):
            values = [1.0 if name == way[0] else 0.9 for name in names]
        elif here in way:
            values = [0.1 if name in way[way.index(here) + 1 :] else 0.0 for name in names]
        else:
            sure = chance.sample(range(len(names)), 2)
            values = [5.0 if k in sure else 0.0 for k in range(len(names))]
        none = np.zeros((1 + len(steps), 1), np.float32)
        stop = 9.0 if here == way[-1] else -9.0
        return Listed(steps, none[0], none), TEMPERATURE * np.array([stop, *values], np.float32)

    place = greedy_game(Trace(ROOT), look, 12)
    assert [digest(Trace(step.after)) for step in place.game.steps] == way
    assert len(place.actions) == 5 and place.likely < 0 and exp(place.stopping) > 0.9
    assert way[-1] not in {digest(p.game) for p in beam(Trace(ROOT), look, BeamWidth(4, 12), Random(0))}
    assert len(greedy_game(Trace(ROOT), look, 3).actions) == 3


def test_equal_programs_are_one_and_their_ways_add_up() -> None:
    """Two moves that commute and nothing else is liked: both orders are one place, as likely as both."""
    steps = list(RULES.steps(ROOT))
    one, other, both = next(
        (one, other, after)
        for one in steps
        for other in steps
        for after in [attempted(one.after, other.move)]
        if after is not None and one.move != other.move and after == attempted(other.after, one.move)
    )
    liked = {digest(Trace(p)): 5.0 for p in (one.after, other.after, both)}
    places = beam(Trace(ROOT), looks(liked, stop=-9.0), BeamWidth(2, 2), Random(0))
    found = [place for place in places if place.game.program == both]
    ways = [place for place in places if len(place.actions) == 1]
    assert len(found) == 1 and len(ways) == 2
    assert exp(found[0].likely) == pytest.approx(sum(exp(place.likely) for place in ways), rel=0.05)


def test_a_beam_does_not_go_round_in_circles_under_other_names() -> None:
    """An agent that likes to copy an array and to take the copy away again."""

    def look(game: Trace) -> tuple[Listed, np.ndarray]:
        steps = tuple(RULES.steps(game.program))
        none = np.zeros((1 + len(steps), 1), np.float32)
        liked = [9.0 * (step.move.transformation in ("stage_write", "remove_dead")) for step in steps]
        return Listed(steps, none[0], none), np.array([-9.0, *liked], np.float32)

    start = Trace(next(step.after for step in RULES.steps(ROOT) if step.move.transformation == "stage_write"))
    places = beam(start, look, BeamWidth(2, 12), Random(0))
    texts = [place.game.program.text for place in places]
    assert any("_w_w" in text for text in texts)
    alike = [alpha_equivalence_key(place.game.program) for place in places]
    assert len(alike) == len(set(alike)) == len(set(texts))


def test_the_greedy_game_ends_where_it_comes_round_but_not_at_another_name() -> None:
    def look(game: Trace) -> tuple[Listed, np.ndarray]:
        steps = tuple(RULES.steps(game.program))
        none = np.zeros((1 + len(steps), 1), np.float32)
        liked = {copies: 8.0, "remove_dead": 9.0}
        worths = [liked.get(step.move.transformation, -9.0) for step in steps]
        return Listed(steps, none[0], none), np.array([-9.0, *worths], np.float32)

    fused = parse(
        "kernel twice(x) -> y\nx f32 [8] heap\ns f32 [8] heap\ny f32 [8] heap\n\n"
        "8\n| s[{0}] = x[{0}] * x[{0}]\n| y[{0}] = s[{0}] + s[{0}]\n",
        DIALECT,
    )
    copies = "stage_write"
    renamed = greedy_game(Trace(fused), look, 7).game
    assert len(renamed.steps) == 7
    assert alpha_equivalence_key(fused) in {alpha_equivalence_key(step.after) for step in renamed.steps}
    copies = "swap_scopes"
    assert 0 < len(greedy_game(Trace(ROOT), look, 40).actions) < 4


def test_a_beam_is_as_wide_and_as_long_as_it_is_told() -> None:
    look = looks({}, stop=-20.0, other=0.0)
    places = beam(Trace(ROOT), look, BeamWidth(4, 3), Random(0))
    assert [sum(len(place.actions) == k for place in places) for k in range(4)] == [1, 4, 4, 4]
    assert len(beam(Trace(ROOT), look, BeamWidth(4, 0), Random(0))) == 1


def test_nothing_goes_on_where_the_agent_would_stop() -> None:
    places = beam(Trace(ROOT), looks({}, stop=9.0), BeamWidth(4, 30), Random(0))
    assert [place.game for place in places] == [Trace(ROOT)]
    assert places[0].ending == pytest.approx(0.0, abs=1e-3) and places[0].worth == 9.0


@pytest.mark.parametrize("width", [BeamWidth(3, 4, noise=0.5), BeamWidth(3, 4, epsilon=0.5)])
def test_chance_leads_elsewhere_and_is_repeated_by_its_seed(width: BeamWidth) -> None:
    look = looks({}, stop=-1.0, other=0.0)

    def ways(seed: int) -> list[str]:
        return [digest(place.game) for place in beam(Trace(ROOT), look, width, Random(seed))]

    assert ways(1) == ways(1)
    assert len({tuple(ways(seed)) for seed in range(5)}) > 1


def test_likelihoods_are_those_by_which_moves_that_were_shown_are_learned() -> None:
    values = np.array([0.0, TEMPERATURE], np.float32)
    assert np.exp(log_softmax(values / TEMPERATURE)) == pytest.approx(
        [1 / (1 + np.e), np.e / (1 + np.e)], rel=1e-5
    )

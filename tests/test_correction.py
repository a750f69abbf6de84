"""Games that the agent plays and that a teacher corrects: demonstrations and the cost of a slip."""

from __future__ import annotations

from random import Random

import pytest

pytest.importorskip("torch")
pytest.importorskip("safetensors")

from bag_encoder import BagEncoder
from snippets import DIALECT, RULES

from perfdojo_sdk.core.text import parse
from perfdojo_sdk.core.transformation import Kind, Move, Trace
from perfdojo_sdk.kernels.operators import REDUCEMEAN, SOFTMAX
from perfdojo_sdk.perfllm import correction
from perfdojo_sdk.perfllm.agent import Agent
from perfdojo_sdk.perfllm.correction import _as_shown, correct, missing
from perfdojo_sdk.perfllm.learner import Learner
from perfdojo_sdk.perfllm.recorded_games import GameContext, RecordedGames
from perfdojo_sdk.perfllm.replay import STOP, Replay
from perfdojo_sdk.perfllm.settings import AgentSettings, kind_of
from perfdojo_sdk.perfllm.variations import reordered
from perfdojo_sdk.search.explorer import digest
from perfdojo_sdk.search.passes import greedy, naive
from perfdojo_sdk.testing.estimate import AnalyticMachine

ROOT = parse(SOFTMAX.build(4, 8), DIALECT)
MACHINE = AnalyticMachine(DIALECT, launch=100)
GAME = naive(ROOT, RULES)
QUICK = AgentSettings(hidden=16, batch=8, most_actions=32, most_moves=len(GAME.steps) + 4, imitation=3.0)


def seconds(game: Trace) -> float:
    return MACHINE.seconds(game.program)


def recorded_games(seed: int = 0) -> RecordedGames:
    """Nothing but the times of the initial program and of the good game is known."""
    agent = Agent(BagEncoder(), Learner(QUICK, 32, seed))
    found = RecordedGames(GameContext(agent, Trace(ROOT), RULES, Kind.DECLARED_LAW), [])
    found.seconds = {digest(Trace(ROOT)): seconds(Trace(ROOT)), digest(GAME): seconds(GAME)}
    found.base, found.best = seconds(Trace(ROOT)), seconds(GAME)
    return found


def replay(found: RecordedGames) -> Replay:
    return found.context.agent.learner.replay


def test_what_is_missing_is_what_was_not_played_in_whatever_order() -> None:
    assert missing(Trace(ROOT), GAME) == list(GAME.moves) and missing(GAME, GAME) == []
    other = reordered(GAME, RULES, Random(3))
    for count in range(len(other.steps)):
        left = missing(Trace(ROOT, other.steps[:count]), GAME)
        assert sorted(map(str, [*left, *other.moves[:count]])) == sorted(map(str, GAME.moves))
        rest = iter(GAME.moves)
        assert all(move in rest for move in left), "in the order of the good game"


@pytest.mark.parametrize("seed", range(2))
def test_a_game_is_corrected_in_each_of_its_states(seed: int) -> None:
    found, asked = recorded_games(seed), list[Trace]()

    def watched(game: Trace) -> float:
        asked.append(game)
        return seconds(game)

    count, slips = correct(found, [GAME], watched, Random(seed))
    states = replay(found).states
    assert 1 <= sum(bool(state.shown) for state in states) <= count <= QUICK.most_moves
    assert len(asked) == len({digest(game) for game in asked}), "nothing is evaluated twice"
    assert digest(GAME) not in {digest(game) for game in asked}
    played = [t for t in replay(found).transitions if t.action != STOP]
    assert len(played) >= count - 1, "at least what the agent played, but stops"
    assert 0 <= slips <= count and (seed or slips), "an agent that knows nothing slips"
    worst = [state.bound for state in states if 0 < state.bound < 0.99 * max(s.bound for s in states)]
    assert worst or not slips
    assert states[0].shown and STOP not in states[0].shown


def test_a_move_that_differs_in_a_name_only_is_shown_as_well_and_no_slip() -> None:
    """A copy can be made by staging what is read or what is written: once, one of them was a slip."""
    root = parse(REDUCEMEAN.build(4, 8), DIALECT)
    read, written = Move("stage_read", "s2", (("array", "s"),)), Move("stage_write", "s0", (("array", "s"),))
    good = Trace(root).play(RULES, read)
    assert good.program.text != Trace(root).play(RULES, written).program.text
    agent = Agent(BagEncoder(), Learner(QUICK, 32))
    found = RecordedGames(GameContext(agent, Trace(root), RULES, Kind.DECLARED_LAW), [])
    found.seconds = {digest(Trace(root)): 2.0, digest(good): 1.0}
    found.base, found.best = 2.0, 1.0
    found.show(Trace(root), good, [good.steps[0]])
    moves = found.moves(Trace(root)).moves
    shown = replay(found).states[0].shown
    assert {moves[action - 1] for action in shown} == {read, written}
    twin = found.step(Trace(root), moves.index(written) + 1)
    assert _as_shown(twin, good.steps) == good.steps[0]
    other = found.step(Trace(root), moves.index(Move("stage_read", "s1", (("array", "x"),))) + 1)
    assert _as_shown(other, good.steps) == other


def test_after_the_last_missing_move_the_stop_is_shown() -> None:
    found = recorded_games()
    found.show(GAME, GAME, [])
    assert [state.shown for state in replay(found).states] == [{STOP}]


def test_a_slip_is_worth_what_its_rest_comes_to() -> None:
    """The state before it knows both: the move that was shown, and the slip with its price."""
    found = recorded_games()
    start = Trace(ROOT, GAME.steps[:1])
    whole = Trace(ROOT, GAME.steps[:3])
    found.seconds[digest(whole)] = 10 * seconds(GAME)
    found.reached(start, whole)
    slipped = replay(found).states[-1]
    assert slipped.bound == pytest.approx(QUICK.gamma**2 * seconds(Trace(ROOT)) / (10 * seconds(GAME)))
    found.reached(start, GAME)
    best = QUICK.gamma ** (len(GAME.steps) - 1) * seconds(Trace(ROOT)) / seconds(GAME)
    assert slipped.bound == pytest.approx(best)


def test_a_move_that_leads_back_is_a_slip(monkeypatch: pytest.MonkeyPatch) -> None:
    """Swapping and swapping back does no harm, and a game that does nothing else has no end."""
    root = parse(
        "kernel copy(x) -> y\nx f32 [4,8] heap\ny f32 [4,8] heap\n\n4 8 y[{0},{1}] = x[{0},{1}]", DIALECT
    )
    good = Trace(root).play(RULES, Move("split_scope", "s1", (("factor", 4),)))
    found = RecordedGames(
        GameContext(Agent(BagEncoder(), Learner(QUICK, 32)), Trace(root), RULES, Kind.DECLARED_LAW), []
    )
    found.base, found.best = 2.0, 1.0
    found.seconds = {digest(Trace(root)): 2.0, digest(good): 1.0}
    looked = list[Trace]()

    def swap(values: object, noise: float, chance: Random) -> int:
        moves = found.moves(looked[-1]).moves
        return next(k for k, move in enumerate(moves, 1) if move.transformation == "swap_scopes")

    monkeypatch.setattr(found, "values", looked.append)
    monkeypatch.setattr(correction, "_chosen", swap)
    count, slips = correct(
        found, [good], lambda game: 1.0 if "split_scope" in str(game.moves) else 2.0, Random(0)
    )
    played = [[move.transformation for move in game.moves] for game in looked]
    assert played[:3] == [[], ["swap_scopes"], ["swap_scopes", "split_scope"]]
    assert slips >= 1 and count < QUICK.most_moves


def test_what_is_met_again_counts_again() -> None:
    """Every game begins at the same program: it is to be learned better than what was met once."""
    found = recorded_games()
    for _ in range(3):
        found.show(Trace(ROOT), GAME, GAME.steps[:1])
    moves = [transition for transition in replay(found).transitions if transition.action != STOP]
    assert len(moves) == 3 and len(set(moves)) == len(replay(found).seen) == 1
    again = Replay(32, QUICK.capacity, QUICK.gamma)
    again.rebuild(replay(found).skeleton())
    assert list(again.transitions) == list(replay(found).transitions)
    assert again.states[-1].parents == replay(found).states[-1].parents


def test_corrections_teach_the_agent_to_play_the_game() -> None:
    """After some rounds of its own games it plays on to the good program where it did not before."""
    pytest.importorskip("torch").set_num_threads(1)  # so small a network is slowed down by more
    root = parse(REDUCEMEAN.build(4, 8), DIALECT)
    game = greedy(root, RULES)
    kinds = tuple(sorted({kind_of(move) for move in game.moves}))
    settings = QUICK.model_copy(update={"repertoire": {"": kinds}, "most_moves": 8})
    agent = Agent(BagEncoder(), Learner(settings, 32, 1))
    found = RecordedGames(GameContext(agent, Trace(root), RULES, Kind.DECLARED_LAW), [])
    found.seconds = {digest(Trace(root)): seconds(Trace(root)), digest(game): seconds(game)}
    found.base, found.best = seconds(Trace(root)), seconds(game)

    def ends_well() -> bool:
        listed = agent.listed(root, RULES, Kind.DECLARED_LAW)
        program = root
        for _ in range(QUICK.most_moves):
            action = int(agent.values(listed).argmax())
            if action == STOP:
                break
            program = listed.steps[action - 1].after
            listed = agent.listed(program, RULES, Kind.DECLARED_LAW)
        return program.text == game.program.text

    assert len(game.steps) >= 2 and not ends_well()
    for seed in range(6):
        correct(found, [game], seconds, Random(seed))
        agent.learner.learn(30)
    assert ends_well()

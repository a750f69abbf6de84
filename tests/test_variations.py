"""Other ways to the end of a good game: another order, slips, and what could come next."""

from __future__ import annotations

from random import Random

from snippets import DIALECT, RULES

from perfdojo_sdk.core.errors import MoveError
from perfdojo_sdk.core.text import parse
from perfdojo_sdk.core.transformation import Kind, Move, Trace
from perfdojo_sdk.kernels.operators import SOFTMAX
from perfdojo_sdk.perfllm.variations import disturbed, exchanged, next_moves, reordered, same
from perfdojo_sdk.search.passes import greedy

ROOT = parse(SOFTMAX.build(4, 8), DIALECT)
GAME = greedy(ROOT, RULES)


def test_another_order_leads_to_the_same_program() -> None:
    orders = [reordered(GAME, RULES, Random(seed)) for seed in range(4)]
    assert len({order.moves for order in orders} - {GAME.moves}) >= 2
    for order in orders:
        assert sorted(order.moves, key=str) == sorted(GAME.moves, key=str)
        assert same(Trace(ROOT).play_all(RULES, order.moves).program, GAME.program)
        assert [step.before for step in order.steps[1:]] == [step.after for step in order.steps[:-1]]


def test_the_same_chance_gives_the_same_order() -> None:
    assert reordered(GAME, RULES, Random(1)).moves == reordered(GAME, RULES, Random(1)).moves


def test_a_game_without_a_choice_of_order_stays() -> None:
    assert reordered(Trace(ROOT), RULES, Random(0)) == Trace(ROOT)
    one = Trace(ROOT, GAME.steps[:1])
    assert reordered(one, RULES, Random(0)) == one


def test_moves_that_rest_on_each_other_do_not_change_places() -> None:
    dependent = [k for k, step in enumerate(GAME.steps[1:]) if not GAME.steps[k].before.has(step.move.place)]
    for k in dependent:
        assert exchanged(GAME.steps[k], GAME.steps[k + 1], RULES) is None


def test_what_could_come_next_loses_no_other_move() -> None:
    """Each of them, played first, leaves the others to be played to the same end."""
    for begin in range(len(GAME.steps)):
        found = list(next_moves(GAME, begin, RULES))
        assert found[0].move == GAME.steps[begin].move
        for step in found:
            start = Trace(ROOT, (*GAME.steps[:begin], step))
            # A game may hold the same move several times, each of another effect.
            places = [k for k, move in enumerate(GAME.moves) if k >= begin and move == step.move]
            assert any(ends_alike(start, (*GAME.moves[begin:k], *GAME.moves[k + 1 :])) for k in places)
    assert list(next_moves(GAME, len(GAME.steps), RULES)) == []


def ends_alike(start: Trace, rest: tuple[Move, ...]) -> bool:
    try:
        return same(start.play_all(RULES, rest).program, GAME.program)
    except MoveError:
        return False


def test_a_slip_is_followed_by_what_still_applies() -> None:
    moves = set(GAME.moves)
    for seed in range(10):
        shown = disturbed(GAME, RULES, Kind.DECLARED_LAW, Random(seed))
        assert shown is not None
        begin = shown.begin
        assert 1 <= begin <= len(shown.game.steps)
        assert {step.move for step in shown.game.steps[begin:]} <= moves
        assert shown.game.kind <= Kind.DECLARED_LAW
        assert Trace(ROOT).play_all(RULES, shown.game.moves).program == shown.game.program
    assert disturbed(Trace(ROOT), RULES, Kind.EXACT, Random(0)) is not None, "slips need no game"

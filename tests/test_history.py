"""Any move can be taken out of a game and put back: nothing is lost, nothing acts where it was not meant."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from command_line import Outcome
from hypothesis import given, settings
from hypothesis import strategies as st
from snippets import DIALECT, RULES, program

from perfdojo_sdk.core.errors import MoveError
from perfdojo_sdk.core.history import Dropped, Undone, insert, redo, undo
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.core.transformation import Kind, Move, Rejection, Trace
from perfdojo_sdk.core.transformations import GENERIC
from perfdojo_sdk.search.neighbours import random_step
from perfdojo_sdk.testing.programs import random_program
from perfdojo_sdk.testing.walks import random_walk
from perfdojo_sdk.verify.exact import verify_exact

Cli = Callable[..., Outcome]
SMALL = "softmax[8,16]"


def same(a: Trace, b: Trace) -> None:
    """Equal to the last id: equality of programs leaves ids out."""
    assert a == b
    for one, other in zip((a.root, *(s.after for s in a.steps)), (b.root, *(s.after for s in b.steps))):
        assert one.paths == other.paths and one.text == other.text


def accounted(before: Trace, after: Trace, position: int, dropped: tuple[Dropped, ...]) -> None:
    """Every later move is kept or dropped with a reason, and the kept ones are in order."""
    asked = before.moves[:position] + before.moves[position + 1 :]
    assert Counter(asked) == Counter((*after.moves, *(d.move for d in dropped)))
    in_order = iter(asked)
    assert all(move in in_order for move in after.moves)
    for each in dropped:
        assert before.moves[each.position] == each.move and each.position > position
        assert each.reason.code.startswith("PD-") and each.reason.what


@given(seed=st.integers(0, 10**6), length=st.integers(1, 12), data=st.data())
@settings(max_examples=60)
def test_redo_restores_trace_and_program(seed: int, length: int, data: st.DataObject) -> None:
    rng = Random(seed)
    trace = random_walk(rng, random_program(rng, rng.randint(2, 5)), RULES, length)
    games: list[tuple[Trace, Undone]] = []
    now = trace
    while now.steps and len(games) < 4:
        position = data.draw(st.integers(0, len(now.steps) - 1))
        shorter, undone, dropped = undo(now, RULES, position)
        accounted(now, shorter, position, dropped)
        games.append((now, undone))
        now = shorter
    for before, undone in reversed(games):
        now = redo(now, RULES, undone)
        same(now, before)
    same(now, trace)


#: Random programs seldom hold a condition that never holds.
RARE = """
8 y[{0}] = x[{0}] * 2
8 y[{0}] = 3 if {0} >= 8
4 z[{0}] = y[{0}] + y[{0}+4]
"""


@pytest.mark.parametrize("name", GENERIC)
def test_every_kind_of_move_comes_back(name: str) -> None:
    """A move of each transformation, played between other moves, is undone and redone."""
    found = 0
    for seed in range(240):
        rng = Random(seed)
        root = random_program(rng, 4) if seed % 8 else program(RARE)
        trace = random_walk(rng, root, RULES, rng.randrange(5))
        step = random_step(rng, trace.program, RULES, only=name, most=max(Kind))
        if step is None:
            continue
        found += 1
        position = len(trace.steps)
        trace = trace.play(RULES, step.move)
        later = random_walk(rng, trace.program, RULES, 5)
        trace = trace.play_all(RULES, later.moves)
        shorter, undone, dropped = undo(trace, RULES, position)
        accounted(trace, shorter, position, dropped)
        same(redo(shorter, RULES, undone), trace)
        if found == 5:
            break
    assert found >= 3


@pytest.mark.parametrize("seed", range(8))
def test_what_undo_leaves_is_a_game_that_keeps_the_meaning(seed: int) -> None:
    rng = Random(seed)
    trace = random_walk(rng, random_program(rng, 3), RULES, 8)
    for position in range(len(trace.steps)):
        shorter, _, _ = undo(trace, RULES, position)
        same(Trace(trace.root).play_all(RULES, shorter.moves), shorter)
        if position == len(trace.steps) - 1:
            same(shorter, Trace(trace.root, trace.steps[:-1]))
        assert verify_exact(trace.root, shorter.program, shorter.laws, DIALECT, models=1).ok


@pytest.mark.parametrize("seed", range(8))
def test_a_dropped_move_is_refused_for_its_reason(seed: int) -> None:
    """Unless its name means something else now, the rules refuse it there with the same words."""
    rng = Random(seed)
    trace = random_walk(rng, random_program(rng, 3), RULES, 10)
    for position in range(len(trace.steps)):
        shorter, _, dropped = undo(trace, RULES, position)
        lost = {d.position for d in dropped}
        for each in dropped:
            assert each.reason.__traceback__ is None  # it would keep every program of the replay
            kept = [m for n, m in enumerate(trace.moves[: each.position]) if n != position and n not in lost]
            there = Trace(trace.root).play_all(RULES, kept).program
            if each.reason.code != "PD-T007":
                assert refusal(there, each.move) == each.reason.code


def refusal(there: Program, move: Move) -> str:
    try:
        answer = RULES.attempt(there, move)
    except MoveError as error:
        return error.code
    assert isinstance(answer, Rejection)
    return answer.code


TWO_READS = """
4
| 6 y[{0},{1}] = x[{0},{1}]
| 6 z[{0},{1}] = x[{0},{1}] * 2
"""


def test_a_name_that_another_move_makes_anew_is_not_taken_for_the_old_one() -> None:
    """Both copies of x are called x_r when they are the first: a later move must not change copies."""
    root = program(TWO_READS)
    moves = [
        Move.of("stage_read", "s1", array="x"),
        Move.of("stage_read", "s2", array="x"),
        Move.of("set_location", "x_r", location="stack"),
        Move.of("set_location", "x_r_2", location="stack"),
    ]
    trace = Trace(root).play_all(RULES, moves)
    shorter, undone, dropped = undo(trace, RULES, 0)
    assert shorter.moves == (moves[1],)
    assert [(d.position, d.reason.code) for d in dropped] == [(2, "PD-T007"), (3, "PD-T001")]
    assert "move 0, stage_read(s1, array=x), is gone" in dropped[0].reason.why
    buffer = shorter.program.buffer("x_r")
    assert buffer is not None and buffer.location == "heap"
    same(redo(shorter, RULES, undone), trace)


def test_insert_keeps_what_still_applies() -> None:
    root = program("8 16 y[{0},{1}] = x[{0},{1}] * 2")
    split = Move.of("split_scope", "s1", factor=4)
    inner = Move.of("annotate_scope", "s1.i", suffix="u")
    trace = Trace(root).play_all(RULES, [split, inner])
    longer, dropped = insert(trace, RULES, 1, Move.of("split_scope", "s0", factor=2))
    assert [m.place for m in longer.moves] == ["s1", "s0", "s1.i"] and dropped == ()
    changed, dropped = insert(trace, RULES, 0, Move.of("split_scope", "s1", factor=8))
    assert changed.moves[1:] == (inner,)[:0] and [d.position for d in dropped] == [0, 1]
    assert dropped[1].reason.code == "PD-T007"
    end, dropped = insert(trace, RULES, 2, Move.of("annotate_scope", "s0", suffix="u"))
    assert end.moves[:2] == trace.moves and dropped == ()


@pytest.mark.parametrize("position", [-1, 1, 99])
def test_no_such_move(position: int) -> None:
    trace = Trace(program("8 y[{0}] = x[{0}] * 2"))
    for change in (
        lambda: undo(trace, RULES, position),
        lambda: insert(trace, RULES, position, Move.of("split_scope", "s0", factor=2)),
    ):
        with pytest.raises(MoveError) as caught:
            change()
        assert caught.value.code == "PD-T005"


@pytest.mark.parametrize(
    "moves", [((5, "s0"),), ((1, "s0"), (0, "s0")), ((-1, "s0"),), ((0, "s0"), (0, "s0"))]
)
def test_what_was_undone_elsewhere_does_not_fit(moves: tuple[tuple[int, str], ...]) -> None:
    trace = Trace(program("8 y[{0}] = x[{0}] * 2"))
    undone = Undone(tuple((n, Move.of("split_scope", place, factor=2)) for n, place in moves))
    with pytest.raises(MoveError) as caught:
        redo(trace, RULES, undone)
    assert caught.value.code == "PD-T008"


# -- through the command line ------------------------------------------------------------------------


def test_undo_is_remembered_in_the_file_until_another_move(cli: Cli, tmp_path: Path) -> None:
    cli("apply", SMALL, "split_scope(s0, factor=4)", "split_scope(s0.i, factor=2)", "-o", "game.json")
    before = json.loads((tmp_path / "game.json").read_text())
    first = cli("undo", "game.json", "0", "-o", "game.json", "--json").data
    assert [d["number"] for d in first["dropped"]] == [1] and first["trace"]["moves"] == []
    back = cli("redo", "game.json", "-o", "game.json")
    assert back.code == 0 and json.loads((tmp_path / "game.json").read_text()) == before
    nothing = cli("redo", "game.json")
    assert nothing.code == 1 and nothing.err.startswith("error[PD-T009]")

    cli("undo", "game.json", "0", "-o", "game.json")
    cli("apply", "game.json", "swap_scopes(s2)", "-o", "game.json")
    assert cli("redo", "game.json").code == 1


def test_insert_through_the_command_line(cli: Cli) -> None:
    cli("apply", SMALL, "split_scope(s0, factor=4)", "-o", "game.json")
    done = cli("insert", "game.json", "0", "split_scope(s2, factor=2)", "-o", "game.json", "--json").data
    assert [m["place"] for m in done["trace"]["moves"]] == ["s2", "s0"] and done["dropped"] == []
    outcome = cli("insert", "game.json", "9", "swap_scopes(s2)")
    assert outcome.code == 1 and outcome.err.startswith("error[PD-T005]")


def test_saving_says_where_and_which_folder_is_new(cli: Callable[..., Outcome], tmp_path: Path) -> None:
    moves = ("split_scope(s0, factor=4)", "split_scope(s0.i, factor=2)")
    played = cli("apply", SMALL, *moves, "-o", "of/mine/game.json")
    assert "saved as of/mine/game.json, in the new folder of/mine\n" in played.err
    assert (tmp_path / "of" / "mine" / "game.json").is_file() and "saved" not in played.out
    for words in (("undo", "1"), ("redo",), ("insert", "0", "split_scope(s2, factor=2)")):
        done = cli(words[0], "of/mine/game.json", *words[1:], "-o", "of/mine/game.json")
        assert done.code == 0 and "saved as of/mine/game.json\n" in done.err
    assert "saved" not in cli("apply", SMALL, moves[0]).err
    taken = cli("apply", SMALL, moves[0], "-o", "of/mine/game.json/game.json")
    assert taken.code == 1 and "PD-J004" in taken.err and "saved" not in taken.err

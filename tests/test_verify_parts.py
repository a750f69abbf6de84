"""Games of parts of a program: they fall apart where they may, and prove no more than the whole game does."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest
from snippets import DIALECT, RULES, move, program, tree

from perfdojo_sdk.core.program import Program
from perfdojo_sdk.core.transformation import Move, Rules, Trace
from perfdojo_sdk.core.validate import violations
from perfdojo_sdk.library.verification import VerificationCache, dependence, exact
from perfdojo_sdk.testing.programs import random_program
from perfdojo_sdk.testing.walks import mutants, newly_allowed, random_walk
from perfdojo_sdk.verify.dependence import verify_dependence_trace, verify_races
from perfdojo_sdk.verify.exact import verify_exact_trace
from perfdojo_sdk.verify.parts import games_of_parts

PHASES = program("""
6
| 5 y[{0},{1}*2] = b[{0}]
| 5 3 y[{0},{1}*2] += x[{0},{1}+{2}]
6
| 5 y[{0},{1}*2+1] = b[{0}]
| 5 2 y[{0},{1}*2+1] += x[{0},{1}+{2}] * 3
""")
EVEN = """kernel test(y, b, x) -> y
y f32 [6,10] heap
b f32 [6] heap
x f32 [6,7] heap
y_w f32 [3,2,5] heap

3 2
| 5 y_w[{0},{1},{2}] = b[{0}*2+{1}]
| 5 3 y_w[{0},{1},{2}] += x[{0}*2+{1},{2}+{3}]
3 2 5 y[{0}*2+{1},{2}*2] = y_w[{0},{1},{2}]
"""
STAGED = program("""
6 t[{0}] = x[{0}] * 2
6 u[{0}] = t[{0}] + 1
6 y[{0}] = u[{0}] * t[{0}]
""")


def _played(root: Program, *moves: Move) -> Trace:
    return Trace(root).play_all(RULES, moves)


def test_a_part_sees_what_it_shares_as_its_interface() -> None:
    trace = _played(
        PHASES,
        move("stage_write(s4, array=y)"),
        move("split_scope(s0, factor=2)"),
        move("stage_write(s0.o, array=y)"),
        move("annotate_scope(s4, suffix=p)"),
    )
    games = games_of_parts(trace, RULES)
    assert [[step.move.transformation for step in game.steps] for game in games] == [
        ["split_scope", "stage_write"],
        ["stage_write", "annotate_scope"],
    ]
    # Both copies of y take the name that a copy of y has where there is no other.
    first, second = (game.program for game in games)
    assert first.text == EVEN
    assert tree(second).splitlines()[0] == "6:p" and "y_w" in second.buffer_of


def test_games_that_do_not_fall_apart() -> None:
    assert len(games_of_parts(Trace(STAGED), RULES)) == 3
    joined = _played(STAGED, move("join_scopes(s0)"))
    assert [len(game.root.body) for game in games_of_parts(joined, RULES)] == [2, 1]
    reused = _played(STAGED, move("join_scopes(s0)"), move("join_scopes(s0)"), move("reuse_dims(t, dim=0)"))
    assert games_of_parts(reused, RULES) == [reused]
    moved = _played(STAGED, move("set_location(t, location=stack)"))
    assert games_of_parts(moved, RULES) == [moved]


def test_nodes_of_a_part_may_change_their_order() -> None:
    """A move that changes nothing about the nodes themselves counted as one of the first part, which does not
    have them: the proofs of a filter with a border took ten times as long."""
    root = program("""
        6 t[{0}] = x[{0}] * 2
        6 u[{0}] = x[{0}] + 1
        6 v[{0}] = x[{0}] + 3
        6 y[{0}] = t[{0}] + u[{0}] * v[{0}]
    """)
    trace = _played(root, move("join_scopes(s1)"), move("fission_scope(c2)"))
    names = [node.id for node in trace.program.body]
    games = games_of_parts(trace.play(RULES, move(f"reorder_statements({names[1]})")), RULES)
    assert [len(game.steps) for game in games] == [0, 3, 0]


def _verdicts(games: Sequence[Trace], rules: Rules) -> tuple[bool, bool]:
    """True for each leg that passes all of the games."""
    exactly = all(verify_exact_trace(game, DIALECT, models=1).ok for game in games)
    return exactly, all(verify_dependence_trace(game, rules).ok for game in games)


@pytest.mark.parametrize("start", range(0, 400, 100))
def test_parts_prove_no_more_than_the_whole(start: int) -> None:
    """Random games, most of them with one wrong move: what is proved of all parts holds for the whole."""
    wrong_ones = mutants(RULES)
    apart = refuted = 0
    for seed in range(start, start + 100):
        rng = Random(seed)
        trace = random_walk(rng, random_program(rng, 4), RULES, rng.randrange(6))
        mutant = rng.choice(wrong_ones)
        allowed = newly_allowed(mutant, RULES, trace.program)
        step = next(allowed, None)
        rules = mutant.rules
        if step is not None:
            trace = Trace(trace.root, (*trace.steps, step))
        games = games_of_parts(trace, rules)
        if len(games) == 1:
            continue
        apart += 1
        whole, parts = _verdicts([trace], rules), _verdicts(games, rules)
        # A read of a cell that only other parts should have written is seen in the whole program alone; so is
        # a text that begins with a read, which the language forbids whether it is reached or not.
        written = verify_races(trace.program, DIALECT).ok
        lawful = written and next(violations(trace.program, DIALECT), None) is None
        assert whole[0] or not (parts[0] and lawful), (seed, trace.moves, trace.root.text)
        if (
            step is not None
        ):  # the dependence leg refuses some right games where accumulations of two kinds meet
            assert whole[1] or not (parts[1] and written), (seed, trace.moves, trace.root.text)
        refuted += whole != (True, True)
    assert apart > 10 and refuted > 0, (apart, refuted)


def test_the_legs_fall_back_on_the_whole_game(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = _played(STAGED, move("split_scope(s0, factor=2)"), move("annotate_scope(s2, suffix=p)"))
    games = games_of_parts(trace, RULES)
    assert len(games) == 3
    assert exact(trace, RULES, 0, games).figures["parts"] == 3
    assert dependence(trace, RULES, VerificationCache(), games).passed
    # A part that cannot be proved alone says nothing about the whole.
    wrong = _played(program("6 y[{0}] = x[{0}]"), move("annotate_scope(s0, suffix=p)"))
    other = Trace(wrong.root, tuple(s.__class__(s.before, s.move, s.legal, STAGED) for s in wrong.steps))
    games = [*games[:2], other]
    assert exact(trace, RULES, 0, games).figures["parts"] == 1
    assert dependence(trace, RULES, VerificationCache(), games).passed

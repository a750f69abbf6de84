"""A package of its own adds a move and a veto to a target of another package, which stays unchanged."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import ROOT, announce

from perfdojo_sdk.core.errors import MoveError
from perfdojo_sdk.core.text import parse
from perfdojo_sdk.core.transformation import Kind, Move, Rejection, Rules, Trace
from perfdojo_sdk.core.transformations import GENERIC
from perfdojo_sdk.game import Game
from perfdojo_sdk.hookspecs.types import Failure
from perfdojo_sdk.plugins import Plugins, load_plugins
from perfdojo_sdk.testing.conformance import GAME_CHECKS, PACKAGE_CHECKS, run
from perfdojo_sdk.testing.context import Budget, Context
from perfdojo_sdk.verify.dependence import verify_dependence, verify_dependence_trace
from perfdojo_sdk.verify.exact import verify_exact_trace
from perfdojo_sdk.verify.numeric import verify_numeric

ACME, OWNER = ROOT / "tests" / "third_party_move", ROOT / "plugins" / "x86_avx512"
REVERSE = "acme/reverse_scope"

LOOP = "kernel f(x) -> y\nx f32 [10] heap\ny f32 [10] heap\n\n10 y[{0}] = x[{0}]\n"

#: Two independent levels, then a sum along a row.
ROWS = """\
kernel rows(x) -> y, s
x f32 [3,12] heap
y f32 [3,12] heap
s f32 [3] heap

3 12 y[{0},{1}] = x[{0},{1}] * 2
3
| s[{0}] = 0
| 12 s[{0}] += y[{0},{1}]
"""

#: Each iteration reads what the one before wrote.
CHAIN = """\
kernel chain(x) -> y
x f32 [8] heap
y f32 [8] heap

1 y[0] = x[0]
7 y[{0}+1] = y[{0}] + x[{0}+1]
"""


@pytest.fixture
def plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plugins:
    """The plugins that are loaded for a command about the target, with both packages installed."""
    for package in (OWNER, ACME):
        announce(tmp_path, package)
        monkeypatch.syspath_prepend(str(package))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PERFDOJO_PLUGINS", "x86_avx512,acme")
    return load_plugins(strict=True, targets=["x86_avx512"])


@pytest.fixture
def alone(plugins: Plugins, monkeypatch: pytest.MonkeyPatch) -> Plugins:
    """The same without the third party."""
    monkeypatch.setenv("PERFDOJO_PLUGINS", "x86_avx512")
    return load_plugins(strict=True, targets=["x86_avx512"])


def played(plugins: Plugins) -> Game:
    game = Game.new(plugins, "x86_avx512", ROWS)
    for place in ("s1", "s0", "s2"):  # an inner scope, the one around it, one that holds a sum
        game = game.apply(Move(REVERSE, place))
    return game


def test_the_package_is_in_order(plugins: Plugins) -> None:
    assert {p.name for p in plugins.loaded} >= {"x86_avx512", "acme"}
    [acme] = [p for p in plugins.loaded if p.name == "acme"]
    target = plugins.target("x86_avx512")
    results = run(
        Context(
            plugins, acme, target, Budget("tiny", "for this test", walks=1, moves=4, shapes=1, seconds=2)
        ),
        (*PACKAGE_CHECKS, *GAME_CHECKS),
    )
    assert {r.check.name: r.problems for r in results if r.outcome != "passed"} == {}


def test_the_move_is_there_for_that_target_only(plugins: Plugins, alone: Plugins) -> None:
    assert REVERSE in plugins.rules(plugins.target("x86_avx512")).transformations
    assert REVERSE not in plugins.rules(plugins.target("x86_avx2")).transformations
    assert REVERSE not in alone.rules(alone.target("x86_avx512")).transformations


def test_the_example_of_its_documentation_is_what_it_does(plugins: Plugins) -> None:
    game = Game.new(plugins, "x86_avx512", LOOP)
    assert game.apply(Move(REVERSE, "s0")).program.tree_lines == "10 y[-{0}+9] = x[-{0}+9]\n"


def test_the_move_is_exact_and_both_proofs_hold(plugins: Plugins) -> None:
    game = played(plugins)
    assert game.trace.kind is Kind.EXACT
    assert "y[-{0}+2,-{1}+11]" in game.program.text
    assert verify_exact_trace(game.trace, game.rules.dialect).problem == ""
    assert verify_dependence_trace(game.trace, game.rules).problem == ""


def test_the_compiled_kernel_is_right(plugins: Plugins) -> None:
    game = played(plugins)
    reason = plugins.unavailable(game.target)
    if reason is not None:
        pytest.skip(f"x86_avx512 cannot run here: {reason.why}")
    runner = plugins.runner(game.target)
    artifact = runner.compile(plugins.code_generator(game.target).generate(game.program, "pd_rows"))
    assert not isinstance(artifact, Failure), artifact.detail
    accuracy = plugins.math_accuracy(game.target)
    report = verify_numeric(game.trace.root, game.program, artifact, runner, accuracy, game.rules.dialect)
    assert report.ok, report.problem


def test_twice_is_nothing(plugins: Plugins) -> None:
    game = Game.new(plugins, "x86_avx512", ROWS)
    again = game.apply(Move(REVERSE, "s0")).apply(Move(REVERSE, "s0"))
    assert again.program.text == game.program.text


def test_every_offer_on_a_program_is_proved(plugins: Plugins) -> None:
    game = Game.new(plugins, "x86_avx512", ROWS)
    offered = [m for m in game.rules.candidates(game.program) if m.transformation == REVERSE]
    steps = [game.rules.attempt(game.program, m) for m in offered]
    assert [bool(getattr(s, "legal", False)) for s in steps] == [True, True, True, False]
    for step in steps[:3]:
        relation = game.rules.relation(step)
        assert verify_dependence(step.before, step.after, relation, game.rules.dialect, Kind.EXACT)


@pytest.mark.parametrize(
    ("text", "place", "code"),
    [
        (CHAIN, "s0", "ACME-002"),
        (CHAIN, "s1", "ACME-003"),
        (ROWS, "s3", "ACME-003"),
        (ROWS.replace("3 12 y", "3:p 12 y"), "s0", "ACME-001"),
    ],
)
def test_it_refuses(plugins: Plugins, text: str, place: str, code: str) -> None:
    with pytest.raises(MoveError) as refused:
        Game.new(plugins, "x86_avx512", text).apply(Move(REVERSE, place))
    assert refused.value.code == code and refused.value.why and refused.value.hint


def test_without_its_semantic_requirement_both_proofs_fail(plugins: Plugins) -> None:
    rules = plugins.rules(plugins.target("x86_avx512"))
    mutant = rules.transformation(REVERSE).without("ACME-003")
    wrong = Rules(rules.dialect, {**GENERIC, REVERSE: mutant})
    trace = Trace(parse(CHAIN, rules.dialect)).play(wrong, Move(REVERSE, "s1"))
    assert not verify_exact_trace(trace, rules.dialect).ok
    assert not verify_dependence_trace(trace, wrong).ok


def test_a_saved_game_names_the_package_that_it_needs(
    plugins: Plugins, alone: Plugins, tmp_path: Path
) -> None:
    path = tmp_path / "game.json"
    played(plugins).save(path)
    assert Game.load(plugins, path).program.text == played(plugins).program.text
    with pytest.raises(MoveError, match="perfdojo-acme"):
        Game.load(alone, path)


def test_the_veto_holds(plugins: Plugins, alone: Plugins) -> None:
    threads = Move.of("annotate_scope", "s0", suffix="p")
    assert Game.new(alone, "x86_avx512", ROWS).apply(threads).program.text.count("3:p") == 1
    assert Game.new(plugins, "x86_avx2", ROWS).apply(threads).program.text.count("3:p") == 1
    game = Game.new(plugins, "x86_avx512", ROWS)
    refused = game.rules.attempt(game.program, threads)
    assert isinstance(refused, Rejection) and refused.code == "PD-T003"
    assert "fewer than 4 iterations" in refused.why
    legal = [s.move for s in game.rules.steps(game.program) if s.move.transformation == "annotate_scope"]
    assert legal and not any(m["suffix"] == "p" and m.place == "s0" for m in legal)
    long = game.apply(Move.of("annotate_scope", "s1", suffix="p"))
    assert "12:p" in long.program.text

"""A transformation of a plugin that does wrong refuses the move, names the plugin, and ends nothing else."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from made_plugins import plugin, target

from perfdojo_sdk.core.dialect import Dialect
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.core.text import parse
from perfdojo_sdk.core.transformation import (
    Move,
    Refusal,
    Rejection,
    Requirement,
    Rules,
    Site,
    Step,
    Transformation,
)
from perfdojo_sdk.plugins import load_plugins
from perfdojo_sdk.plugins.faults import VARIABLE, heard
from perfdojo_sdk.plugins.guarded_moves import unguarded

COPY = parse("kernel copy(x) -> y\nx f32 [4] heap\ny f32 [4] heap\n\n4 y[{0}] = x[{0}]\n")
MOVE = Move("odd/turn", "s0")


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A registry without installed plugins, and a short limit of time."""
    monkeypatch.setattr("perfdojo_sdk.plugins.discovery.installed", lambda: ())
    monkeypatch.setenv(VARIABLE, "0.2")


def trips(*_: object) -> Any:
    raise IndexError("tuple index\nout of range")


def leaves(*_: object) -> Any:
    raise SystemExit(0)


def recurses(*given: object) -> Any:
    return recurses(*given)


def sleeps(*_: object) -> Any:
    time.sleep(60)


def rules(**parts: Callable[..., Any]) -> Rules:
    """Rules of a target whose plugin brings ``odd/turn``, with these parts in place of what does nothing."""

    class Turn(Transformation):
        """Turn a scope."""

        name, place = "odd/turn", "scope"
        requirements = (Requirement("ODD-1", "it is odd", "{why}", "", parts.get("test", lambda site: None)),)

        def candidates(self, program: Program, dialect: Dialect) -> Iterator[Move]:
            yield from parts.get("candidates", lambda: [MOVE])()

        def rewrite(self, site: Site) -> Program:
            made: Program = parts.get("rewrite", lambda site: site.program)(site)
            return made

    made = plugin("odd", targets=lambda: [target("odd")], transformations=lambda target: [Turn()])
    plugins = load_plugins(extra=[made])
    return plugins.rules(plugins.target("odd"))


FAULTS = {
    "raises": (trips, "raised IndexError: tuple index out of range"),
    "leaves": (leaves, "raised SystemExit: 0"),
    "recurses": (recurses, "raised RecursionError"),
    "hangs": (sleeps, "took longer than 0.2 s"),
}


@pytest.mark.parametrize("part", ["test", "rewrite"])
@pytest.mark.parametrize(("does", "said"), FAULTS.values(), ids=FAULTS)
def test_a_fault_refuses_the_move(part: str, does: Callable[..., Any], said: str) -> None:
    game = rules(**{part: does})
    with heard() as faults:
        refused = game.attempt(COPY, MOVE)
        assert not [step for step in game.steps(COPY) if step.move == MOVE], "a search goes on"
    assert isinstance(refused, Rejection) and refused.code == "PD-G030"
    assert refused.why.startswith("plugin odd: its transformation odd/turn (check)") and said in refused.why
    assert faults == [refused.why]
    assert refused.error().exit_code == 1


@pytest.mark.parametrize("made", [None, "a program"])
def test_what_is_no_program_refuses_the_move(made: object) -> None:
    refused = rules(rewrite=lambda site: made).attempt(COPY, MOVE)
    assert isinstance(refused, Rejection) and "its rewrite returned" in refused.why


@pytest.mark.parametrize(
    ("does", "said"),
    [
        *FAULTS.values(),
        (lambda: iter(lambda: MOVE, None), "more than 100000 moves"),
        (lambda: ["a move"], "expected its moves"),
        (lambda: [Move("split_scope", "s0", (("factor", 2),))], "expected its moves"),
    ],
    ids=[*FAULTS, "endless", "words", "another's"],
)
def test_candidates_that_fail_are_none(
    does: Callable[..., Any], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "100000" in said:
        monkeypatch.delenv(VARIABLE)
    game = rules(candidates=does)
    with heard() as faults:
        others = [step.move.transformation for step in game.steps(COPY)]
    assert others and "odd/turn" not in others
    assert len(faults) == 1 and said in faults[0] and faults[0].startswith("plugin odd: ")


def test_a_sound_move_is_as_it_was() -> None:
    game = rules()
    step = game.attempt(COPY, MOVE)
    assert isinstance(step, Step) and step.after == COPY and not game.relation(step)
    kept, bare = (each.transformation("odd/turn") for each in (game, unguarded(game)))
    assert (kept.name, kept.place, kept.doc, kept.requirements) == (
        bare.name, bare.place, "Turn a scope.", bare.requirements,
    )  # fmt: skip
    assert not kept.without("ODD-1").requirements and type(bare) is not type(kept)


def test_words_that_do_not_fit_a_sentence_leave_it_as_it_stands() -> None:
    refused = rules(test=lambda site: Refusal.of(other="x")).attempt(COPY, MOVE)
    assert isinstance(refused, Rejection) and refused.code == "ODD-1" and refused.error().why == "{why}"


def test_what_a_plugin_prints_is_no_result(capsys: pytest.CaptureFixture[str]) -> None:
    def veto(*_: object) -> None:
        print("from the veto")

    made = plugin("loud", targets=lambda: [target("loud")], legality_checks=lambda target: [veto])
    plugins = load_plugins(extra=[made])
    plugins.rules(plugins.target("loud")).attempt(COPY, Move("split_scope", "s0", (("factor", 2),)))
    told = capsys.readouterr()
    assert told.out == "" and "from the veto" in told.err


def test_a_hook_that_does_not_return_is_a_problem() -> None:
    plugins = load_plugins(extra=[plugin("slow", targets=lambda: sleeps())])
    [problem] = plugins.problems
    assert problem.plugin == "slow" and problem.cause == "it took longer than 0.2 s"


def test_endless_things_of_a_hook_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    endless = plugin("endless", operators=lambda: iter(lambda: "no operator", None))
    [problem] = load_plugins(extra=[endless]).problems
    assert problem.plugin == "endless"

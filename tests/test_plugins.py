"""A broken plugin is named, explained and contained; a sound one gets all of its parts used."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from made_plugins import Metadata, boom, plugin, target
from toy_target import perfdojo_toy
from toy_target.perfdojo_toy.moves import UnrollShort

from perfdojo_sdk import plugins as module
from perfdojo_sdk.core.errors import UnavailableError
from perfdojo_sdk.core.text import parse
from perfdojo_sdk.core.transformation import Move, Objection, Refusal, Rejection, Requirement
from perfdojo_sdk.hookspecs import API_VERSION
from perfdojo_sdk.hookspecs.services import Probe
from perfdojo_sdk.hookspecs.types import Bound, Capabilities, Target
from perfdojo_sdk.plugins import Plugins, discovery, load_plugins
from perfdojo_sdk.plugins.plugin import cause_of

LOOP = parse("kernel f(x) -> y\nx f32 [64] heap\ny f32 [64] heap\n\n64 y[{0}] = x[{0}]\n")


@pytest.fixture(autouse=True)
def nothing_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery, "entry_points", lambda: Metadata())
    monkeypatch.delenv("PERFDOJO_PLUGINS", raising=False)


def only_problem(plugins: Plugins) -> module.Problem:
    [problem] = plugins.problems
    return problem


# -- a sound plugin --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def toy() -> Plugins:
    return load_plugins(extra=[perfdojo_toy])


def test_the_toy_target_has_no_problems_and_every_part(toy: Plugins) -> None:
    found = toy.require("toy")
    assert toy.problems == ()
    assert found.plugin == "perfdojo_toy"
    assert toy.code_generator(found).generate(LOOP, "pd_f").symbol == "pd_f"
    assert toy.runner(found).device()
    assert toy.heuristic_pass(found) is perfdojo_toy.expert
    assert toy.math_accuracy(found) == {"exp": 2.0}
    assert toy.machine_figures(found) == perfdojo_toy.CAPABILITIES.figures
    bound = toy.roofline_bound(LOOP, found, 1)
    assert isinstance(bound, Bound) and bound.seconds == pytest.approx(2 * 64 * 4 / 20e9)
    assert {"softmax", "matmul", "toy_scale"} <= toy.operators.keys()


def test_rules_are_the_generic_moves_and_the_plugins_own(toy: Plugins) -> None:
    from perfdojo_sdk.core.transformations import GENERIC

    rules = toy.rules(toy.target("toy"))
    assert rules.transformations.keys() == GENERIC.keys() | {"toy/unroll_short"}
    assert rules is toy.rules(toy.target("toy"))


def test_a_veto_of_a_plugin_stands(toy: Plugins) -> None:
    rules = toy.rules(toy.target("toy"))
    program = parse("kernel f(x) -> y\nx f32 [2,4] heap\ny f32 [2,4] heap\n\n2 4:u y[{0},{1}] = x[{0},{1}]\n")
    assert rules.attempt(program, Move.of("toy/unroll_short", "s0"))
    wide = parse(LOOP.text, rules.dialect)
    result = rules.attempt(wide, Move.of("annotate_scope", "s0", suffix="u"))
    assert isinstance(result, Rejection)


def test_another_plugin_adds_a_veto_to_a_target_it_does_not_own() -> None:
    guest = plugin("guest", legality_checks=lambda target: [lambda before, move, after, dialect: "not today"])
    plugins = load_plugins(extra=[perfdojo_toy, guest])
    result = plugins.rules(plugins.target("toy")).attempt(LOOP, Move.of("annotate_scope", "s0", suffix="p"))
    assert isinstance(result, Rejection) and result.why == "not today"


def test_a_veto_may_have_a_code_a_place_and_a_remedy() -> None:
    limit = Requirement("ODD-001", "odd sizes", "{head} is odd", "split it", lambda site: None)

    class EvenOnly:
        requirements = (limit,)

        def __call__(self, before: object, move: Move, after: object, dialect: object) -> Objection:
            return Objection(limit, Refusal.of("s0", "64", head="64"))

    guest = plugin("guest", legality_checks=lambda target: [EvenOnly()])
    plugins = load_plugins(extra=[perfdojo_toy, guest])
    rules = plugins.rules(plugins.target("toy"))
    refused = rules.attempt(LOOP, Move.of("annotate_scope", "s0", suffix="p"))
    assert isinstance(refused, Rejection) and (refused.code, refused.why) == ("ODD-001", "64 is odd")
    error = refused.error()
    assert error.hint == "split it" and error.place is not None and "ODD-001" in error.render()
    from perfdojo_sdk.cli.explain import _requirement

    assert _requirement("ODD-001", rules) == {
        "title": "odd sizes",
        "means": "the target refuses: HEAD is odd.",
        "try": "split it",
    }


def test_fingerprints_follow_the_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "changing_plugin"
    package.mkdir()
    (package / "__init__.py").write_text("PERFDOJO_API = (0, 3)\n")
    (package / "t.yaml").write_text("a: 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import changing_plugin  # type: ignore[import-not-found]

    before = module.content_hash(changing_plugin)
    assert module.content_hash(changing_plugin) == before
    (package / "t.yaml").write_text("a: 2\n")
    assert module.content_hash(changing_plugin) != before
    assert load_plugins(extra=[perfdojo_toy]).fingerprints().keys() == {"perfdojo_sdk", "perfdojo_toy"}


# -- choosing a target -----------------------------------------------------------------------------


def test_best_is_the_usable_target_of_the_highest_rank() -> None:
    def probes(target: Target) -> list[Probe]:
        return [Probe("device", "" if target.name == "high" else "there", "no such device", "buy one")]

    many = plugin(
        "many",
        targets=lambda: [target("low", 1), target("high", 3), target("middle", 2)],
        doctor_probes=probes,
    )
    plugins = load_plugins(extra=[many])
    assert plugins.target("best").name == "middle"
    assert plugins.target("high").name == "high"
    with pytest.raises(UnavailableError, match="no such device") as caught:
        plugins.require("high")
    assert caught.value.exit_code == 3 and caught.value.hint == "buy one"


def test_no_usable_target_says_why_for_each() -> None:
    away = plugin(
        "away", targets=lambda: [target("a")], doctor_probes=lambda: [Probe("door", "", "gone", "wait")]
    )
    with pytest.raises(UnavailableError, match="a: gone"):
        load_plugins(extra=[away]).target("best")
    with pytest.raises(UnavailableError, match="no plugin brings a target"):
        load_plugins().target("best")


def test_an_unknown_target_gets_a_suggestion() -> None:
    with pytest.raises(UnavailableError, match="did you mean toy"):
        load_plugins(extra=[perfdojo_toy]).target("toi")


def test_a_missing_part_names_the_hook_and_the_plugin() -> None:
    bare = plugin("bare", targets=lambda: [target("a")])
    plugins = load_plugins(extra=[bare])
    with pytest.raises(UnavailableError, match="perfdojo_code_generator.*\n.*plugin bare"):
        plugins.code_generator(plugins.target("a"))
    assert plugins.heuristic_pass(plugins.target("a")) is None
    assert plugins.math_accuracy(plugins.target("a")) == {}


# -- broken plugins --------------------------------------------------------------------------------


class Odd(BaseException):
    def __repr__(self) -> str:
        raise RuntimeError("even this")


def odd() -> None:
    raise Odd("no Exception at all")


@pytest.mark.parametrize(
    ("broken", "stage", "cause"),
    [
        (plugin("b", api=(9, 0), targets=lambda: [target("b")]), "version", "plugin API (9, 0)"),
        (plugin("b", api="0.1", targets=lambda: [target("b")]), "version", "'0.1'"),
        (SimpleNamespace(__name__="b"), "version", "does not declare PERFDOJO_API"),
        (plugin("b", targets=boom), "perfdojo_targets", "RuntimeError: boom"),
        (plugin("b", targets=lambda: sys.exit(7)), "perfdojo_targets", "SystemExit: 7"),
        (plugin("b", targets=odd), "perfdojo_targets", "Odd: no Exception at all"),
        (plugin("b", targets=lambda: [Odd()]), "perfdojo_targets", "it returned Odd <"),
        (plugin("b", targets=lambda: ["x86"]), "perfdojo_targets", "str 'x86', expected Target"),
        (plugin("b", targets=lambda: 5), "perfdojo_targets", "TypeError"),
        (plugin("b", targets=lambda nonsense: []), "hooks", "nonsense"),
        (plugin("b", targetz=lambda: []), "hooks", "no hook perfdojo_targetz"),
        (
            SimpleNamespace(__name__="b", PERFDOJO_API=API_VERSION, perfdojo_targets=lambda: []),
            "hooks",
            "not marked",
        ),
        (plugin("b", operators=lambda: [1]), "perfdojo_operators", "expected Operator"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_broken_plugin_is_a_problem_and_the_others_go_on(broken: object, stage: str, cause: str) -> None:
    plugins = load_plugins(extra=[broken, perfdojo_toy])
    problem = only_problem(plugins)
    assert (problem.plugin, problem.stage) == ("b", stage)
    assert cause in problem.cause and problem.remedy
    assert plugins.require("toy")
    assert plugins.target("best").name == "toy"
    with pytest.raises(UnavailableError, match="plugin b is broken") as caught:
        load_plugins(strict=True, extra=[broken, perfdojo_toy])
    assert caught.value.exit_code == 3


def test_a_misspelt_hook_is_suggested_and_fatal_for_the_plugins_own_target() -> None:
    broken = plugin("b", targets=lambda: [target("b", 99)], code_generater=lambda target: None)
    plugins = load_plugins(extra=[broken, perfdojo_toy])
    assert only_problem(plugins).remedy == "did you mean perfdojo_code_generator?"
    with pytest.raises(UnavailableError, match="perfdojo_code_generater"):
        plugins.target("b")
    assert plugins.target("best").name == "toy"


def test_a_misspelt_argument_is_suggested() -> None:
    broken = plugin("b", targets=lambda: [target("b")], code_generator=lambda targte: None)
    problem = only_problem(load_plugins(extra=[broken, perfdojo_toy]))
    assert (problem.cause, problem.remedy) == (
        "perfdojo_code_generator has no argument targte",
        "did you mean target?",
    )


def test_two_plugins_that_claim_one_target_are_both_named() -> None:
    one = plugin("one", targets=lambda: [target("a"), target("b")])
    two = plugin("two", targets=lambda: [target("a"), target("c")])
    plugins = load_plugins(extra=[one, two])
    with pytest.raises(UnavailableError, match="one and two both bring target a"):
        plugins.target("a")
    assert plugins.target("b") and plugins.target("c")


def test_two_plugins_that_claim_one_transformation() -> None:
    guest = plugin("guest", transformations=lambda target: [UnrollShort()])
    plugins = load_plugins(extra=[guest, perfdojo_toy])
    rules = plugins.rules(plugins.target("toy"))
    assert "toy/unroll_short" in rules.transformations
    problem = only_problem(plugins)
    assert problem.plugin == "guest" and "perfdojo_toy" in problem.cause
    assert plugins.target("toy"), "the owner of the target did nothing wrong"


def test_a_target_that_redefines_a_generic_move_is_refused() -> None:
    from perfdojo_sdk.core.transformations import GENERIC

    thief = plugin(
        "thief", targets=lambda: [target("a")], transformations=lambda target: [GENERIC["join_scopes"]]
    )
    plugins = load_plugins(extra=[thief])
    with pytest.raises(UnavailableError, match="join_scopes already comes from plugin perfdojo_sdk"):
        plugins.rules(plugins.target("a"))


def test_the_target_owner_answers_first_and_a_failing_guest_is_passed_over() -> None:
    guest = plugin("guest", math_accuracy=boom)
    plugins = load_plugins(extra=[guest, perfdojo_toy])
    assert plugins.math_accuracy(plugins.target("toy")) == {"exp": 2.0}
    assert plugins.problems == ()
    bare = plugin("bare", targets=lambda: [target("a")])
    plugins = load_plugins(extra=[guest, bare])
    assert plugins.math_accuracy(plugins.target("a")) == {}
    assert only_problem(plugins).plugin == "guest"


def test_a_failing_owner_is_an_error_that_names_it() -> None:
    owner = plugin("owner", targets=lambda: [target("a")], runner=boom, doctor_probes=boom)
    plugins = load_plugins(extra=[owner])
    with pytest.raises(UnavailableError, match="owner is broken at stage perfdojo_runner"):
        plugins.runner(plugins.targets["a"])
    reason = plugins.unavailable(plugins.targets["a"])
    assert reason and "boom" in reason.why


@pytest.mark.parametrize(
    "answer", [{"exp": -1.0}, {"exp": float("nan")}, {"exp": 2.5}, {"sqrt": 1.0}, {1: 1.0}, 7]
)
def test_an_accuracy_that_makes_no_sense_is_refused(answer: object) -> None:
    owner = plugin("owner", targets=lambda: [target("a")], math_accuracy=lambda target: answer)
    plugins = load_plugins(extra=[owner])
    with pytest.raises(UnavailableError):
        plugins.math_accuracy(plugins.target("a"))


def test_a_duplicate_operator_keeps_the_first() -> None:
    from perfdojo_sdk.kernels.operators import SOFTMAX

    guest = plugin("guest", operators=lambda: [SOFTMAX])
    plugins = load_plugins(extra=[guest])
    assert "softmax already comes from plugin perfdojo_sdk" in only_problem(plugins).cause


def test_the_name_of_a_size_is_taken_like_an_operators() -> None:
    from perfdojo_sdk.kernels.operators import SOFTMAX

    guest = plugin("guest", operators=lambda: [replace(SOFTMAX, name="layernorm1")])
    plugins = load_plugins(extra=[guest])
    assert "layernorm1 already comes from plugin perfdojo_sdk" in only_problem(plugins).cause
    assert "layernorm1" not in plugins.operators


def test_a_target_file_that_does_not_fit_is_told_field_by_field() -> None:
    suffixes = {"rep": {"doc": "", "order": "any"}}
    wrong = {"name": "Chip 1", "description": "", "lanez": {}, "extra_suffixes": suffixes}
    with pytest.raises(ValueError) as raised:
        Capabilities.model_validate(wrong)
    cause = cause_of(raised.value)
    assert cause.startswith("Capabilities does not fit: name: ") and "lanez: there is no such field" in cause
    assert "extra_suffixes.rep.order: Input should be 'sequential', 'parallel' or 'lockstep'" in cause
    assert "\n" not in cause and "http" not in cause


def test_what_a_plugin_prints_is_no_result(capsys: pytest.CaptureFixture[str]) -> None:
    def chatty() -> list[Target]:
        print("hello")
        return [target("a")]

    assert load_plugins(extra=[plugin("chatty", targets=chatty)]).target("a")
    assert capsys.readouterr() == ("", "hello\n")

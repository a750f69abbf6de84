"""The command line through a real process: results, errors, exit codes, and hostile move text."""

from __future__ import annotations

import json
import re
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import ROOT, Outcome
from hypothesis import given
from hypothesis import strategies as st

from perfdojo_sdk.cli import COMMANDS, codes, main
from perfdojo_sdk.cli.console import memory, table
from perfdojo_sdk.cli.movetext import MAX_CHARACTERS, parse_move
from perfdojo_sdk.core.dialect import CORE_DIALECT
from perfdojo_sdk.core.errors import DojoError, MoveError, ProgramError
from perfdojo_sdk.core.text import parse
from perfdojo_sdk.core.transformation import Rules
from perfdojo_sdk.core.transformations import GENERIC
from perfdojo_sdk.hookspecs.types import Failure
from perfdojo_sdk.measure.native_runner import NativeRunner
from perfdojo_sdk.store.records import LegResult, Verification

Cli = Callable[..., Outcome]
RULES = Rules(CORE_DIALECT, GENERIC)
SMALL = "softmax[8,16]"


# -- help ------------------------------------------------------------------------------------------


def test_help_lists_every_command(installed_cli: Cli) -> None:
    outcome = installed_cli("--help")
    assert outcome.code == 0
    assert all(f"  {name} " in outcome.out for name in COMMANDS)


def test_help_is_quick() -> None:
    """Under 0.3 s, the interpreter's start included; processor time, since the machine may be busy."""

    def once() -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        command = [sys.executable, "-m", "perfdojo_sdk.cli", "--help"]
        subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    assert min(once() for _ in range(3)) < 0.3


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(cli: Cli, name: str) -> None:
    outcome = cli(name, "--help")
    assert outcome.code == 0
    assert f"Usage: perfdojo-sdk {name}" in outcome.out
    assert "--json" in outcome.out


def test_version(installed_cli: Cli) -> None:
    assert re.fullmatch(r"perfdojo-sdk \d+\.\d+\.\d+\n", installed_cli("--version").out)


# -- usage errors: exit code 2 ---------------------------------------------------------------------


def test_no_command_prints_the_overview_and_is_wrong_usage(cli: Cli) -> None:
    outcome = cli()
    assert outcome.code == 2 and "Commands:" in outcome.out


def test_unknown_command_suggests_the_nearest(cli: Cli) -> None:
    outcome = cli("shwo", SMALL)
    assert (outcome.code, outcome.out) == (2, "")
    assert "did you mean show?" in outcome.err


WRONG_USAGE = [
    (("--frob",), "unknown option --frob"),
    (("shwo", SMALL), "unknown command 'shwo'"),
    (("show",), "Missing argument"),
    (("show", SMALL, "--frob"), "No such option: --frob"),
    (("show", SMALL, "--as", "graph", "--format", "latex"), "--as graph has the formats svg, dot, not latex"),
    (("undo", "g.json", "one"), "'NUMBER'"),
    (("db", "prune", "--keep", "x"), "'--keep'"),
    (("db",), "Missing command"),
    (("plugins",), "Missing command"),
    (("cluster",), "Missing command"),
    (("db", "--frob"), "No such option: --frob"),
    (("kernels", "--no-plugin"), "--no-plugin needs the name of a plugin"),
]


@pytest.mark.parametrize(("words", "said"), WRONG_USAGE, ids=[" ".join(w) for w, _ in WRONG_USAGE])
def test_wrong_usage(cli: Cli, words: tuple[str, ...], said: str) -> None:
    outcome = cli(*words)
    assert (outcome.code, outcome.out) == (2, "")
    assert said in outcome.err and "Traceback" not in outcome.err


@pytest.mark.parametrize(("words", "said"), WRONG_USAGE, ids=[" ".join(w) for w, _ in WRONG_USAGE])
def test_wrong_usage_as_json(cli: Cli, words: tuple[str, ...], said: str) -> None:
    """A program that asked for JSON gets it, whatever is wrong."""
    for first in {1, 2} if words[0] == "db" else {1}:
        outcome = cli(*words[:first], "--json", *words[first:])
        error = outcome.data["error"]
        assert outcome.code == 2 and error["code"] == "PD-C010" and said in error["what"]
        assert said in outcome.err and "Traceback" not in outcome.err


def test_json_may_stand_before_the_command_of_a_command(cli: Cli) -> None:
    assert cli("plugins", "--json", "list").data == cli("plugins", "list", "--json").data
    assert "Usage: perfdojo-sdk plugins" in cli("plugins", "--json", "--help").out


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("plugins", "new", "abacus", "--directory", "file/abacus"), "a part of the path is a file"),
    ],
)
def test_a_path_that_will_not_do_has_a_hint_that_fits(
    cli: Cli, tmp_path: Path, words: tuple[str, ...], hint: str
) -> None:
    (tmp_path / "file").touch()
    outcome = cli(*words)
    assert outcome.code == 1 and outcome.err.startswith("error[PD-E001]"), outcome
    assert f"try: {hint}" in outcome.err


def test_a_folder_for_results_that_cannot_be_made_is_an_error_of_the_user(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    outcome = cli("reproduce", "fig13", "--output", "file/results", "--json")
    assert (outcome.code, outcome.data["error"]["code"]) == (1, "PD-C011")


# -- errors of a user: rendered, no traceback, their own exit codes --------------------------------


def test_an_error_says_what_where_and_what_to_try(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "bad.dojo").write_text(
        "kernel f(x) -> y\nx f32 [4] heap\ny f32 [4] heap\n\n4 y[{0}] = z[{0}]\n"
    )
    outcome = cli("show", "bad.dojo")
    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.err.splitlines() == [
        "error[PD-P009]: undeclared array 'z'",
        "  --> bad.dojo:5:12",
        "   5 | 4 y[{0}] = z[{0}]",
        "                  ^",
        outcome.err.splitlines()[-1],
    ]
    assert outcome.err.splitlines()[-1].startswith("   try: ")


def test_an_error_as_json(cli: Cli) -> None:
    outcome = cli("show", "softmux", "--json")
    assert outcome.code == 1
    assert outcome.data["error"]["try"] == "did you mean softmax?"
    assert outcome.err.startswith("error[PD-")


def test_an_error_in_a_process_of_its_own(installed_cli: Cli) -> None:
    outcome = installed_cli("show", "softmux")
    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.err.startswith("error[PD-K008]") and "Traceback" not in outcome.err


def test_debug_shows_the_traceback_and_may_stand_anywhere(installed_cli: Cli) -> None:
    for words in (("--debug", "show", "softmux"), ("show", "softmux", "--debug")):
        outcome = installed_cli(*words)
        assert outcome.code == 1 and "Traceback" in outcome.err


@pytest.mark.parametrize(
    ("words", "how"),
    [
        (("build-library",), "; the same command continues where it stopped"),
        (("tune", "softmax[4,4]"), "; the same command with --resume continues where it stopped"),
        (("tune", "softmax[4,4]", "--resume"), "; the same command continues where it stopped"),
        (("plugins", "check", "toy"), ""),
        (("kernels",), ""),
    ],
)
def test_an_interruption_has_its_own_code_and_says_how_to_go_on(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], how: str
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("perfdojo_sdk.plugins.load_plugins", interrupted)
    outcome = cli(*words)
    assert outcome.code == 130
    assert outcome.err.endswith(f"\ninterrupted{how}\n")


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("show", "no_such.dojo"), 1, "cannot read no_such.dojo"),
        (("replay", "no_such.json"), 1, "cannot read no_such.json"),
        (("show", "layernorm"), 1, "choose layernorm[16384,1024] or layernorm[4096,4096]"),
        (("show", "softmax[8]"), 1, "takes 2 sizes"),
        (("show", SMALL, "--target", "papyrus"), 3, "did you mean paper?"),
        (("apply", SMALL, "split_scope(s0, factor=3)"), 1, "3 does not divide 8"),
        (("apply", SMALL, "split_scope(s99, factor=2)"), 1, "no scope 's99'"),
        (("apply", SMALL, "split_scope(s0, factor=many)"), 1, "takes factor: int"),
        (("apply", SMALL, "splat_scope(s0)"), 1, "did you mean split_scope?"),
        (("explain", "PD-Z999"), 1, "unknown error code"),
        (("transformations", "join_scope"), 1, "did you mean join_scopes?"),
        (("build-library", "--target", "paper", "--kernels", SMALL), 3, "it is made of paper"),
    ],
)
def test_user_errors(cli: Cli, words: tuple[str, ...], code: int, says: str) -> None:
    outcome = cli(*words)
    assert outcome.code == code, outcome.err
    assert says in outcome.err
    assert "Traceback" not in outcome.err and outcome.err.startswith("error[PD-")


def test_a_broken_plugin_is_reported_and_stops_nobody(cli: Cli) -> None:
    outcome = cli("targets", "--json", plugins="paper,torn")
    assert outcome.code == 0
    assert [t["name"] for t in outcome.data["targets"]] == ["paper"]
    (problem,) = outcome.data["problems"]
    assert problem["plugin"] == "torn" and problem["stage"] == "import"
    assert "a_module_that_is_not_there" in problem["why"]


# -- the game --------------------------------------------------------------------------------------


def test_show_prints_what_can_be_read_again(cli: Cli) -> None:
    text = cli("show", SMALL).out
    assert parse(text).text == text


def test_show_ids_still_parses_and_names_every_place(cli: Cli) -> None:
    program = parse(cli("show", SMALL).out)
    marked = cli("show", SMALL, "--ids").out
    assert parse(marked) == program
    places = set(re.findall(r"\b[sc]\d+\b", " ".join(re.findall(r"# (.*)", marked))))
    assert places == {node.id for _, node in program.walk()}


def test_apply_undo_replay(cli: Cli, tmp_path: Path) -> None:
    first, second = "split_scope(s2, factor=4)", "swap_scopes(s6)"
    played = cli("apply", SMALL, second, first, "--output", "game.json")
    assert played.code == 0, played.err
    assert "move 1: split_scope(s2, factor=4) (exact)" in played.err

    replayed = cli("replay", "game.json", "--json").data
    assert [m["move"] for m in replayed["moves"]] == [second, first]
    assert replayed["program"] == played.out == cli("show", "game.json").out

    undone = cli("undo", "game.json", "0", "--output", "less.json", "--json").data
    assert [m["transformation"] for m in undone["trace"]["moves"]] == ["split_scope"]
    assert undone["dropped"] == []
    assert cli("show", "less.json").out == undone["program"] == cli("apply", SMALL, first).out


def test_undo_reports_the_moves_that_lost_their_place(cli: Cli) -> None:
    cli("apply", SMALL, "split_scope(s0, factor=4)", "split_scope(s0.i, factor=2)", "-o", "game.json")
    outcome = cli("undo", "game.json", "0", "--json")
    assert outcome.data["program"] == cli("show", SMALL).out
    assert [d["reason"]["code"] for d in outcome.data["dropped"]] == ["PD-T001"]
    assert "dropped move 1, split_scope(s0.i, factor=2): " in outcome.err


def test_a_refused_move_saves_nothing(cli: Cli, tmp_path: Path) -> None:
    outcome = cli("apply", SMALL, "split_scope(s0, factor=2)", "split_scope(s0, factor=3)", "-o", "game.json")
    assert outcome.code == 1
    assert not (tmp_path / "game.json").exists()


@pytest.mark.parametrize(
    "content", ["", "[]", "{", '{"schema": 1}', '{"schema": 99, "target": "paper"}', "\x00\xff"]
)
def test_a_file_that_is_no_game(cli: Cli, tmp_path: Path, content: str) -> None:
    (tmp_path / "game.json").write_bytes(content.encode("latin-1"))
    outcome = cli("replay", "game.json")
    assert outcome.code == 1 and outcome.err.startswith("error[PD-J002]")


def test_moves_are_legal_and_read_back(cli: Cli) -> None:
    listed = cli("moves", SMALL, "--json", "--limit", "0").data
    assert listed["legal"] == len(listed["moves"]) > 10
    program = parse(listed["program"])
    for entry in listed["moves"]:
        move = parse_move(entry["move"], RULES)
        assert move.text == entry["move"]
        assert GENERIC[move.transformation].check(program, move, CORE_DIALECT)


def test_moves_all_gives_the_reason_for_each_refusal(cli: Cli) -> None:
    listed = cli("moves", SMALL, "--all", "--only", "reuse_dims", "--json").data
    refused = [m for m in listed["moves"] if not m["legal"]]
    assert refused and all(m["why"] and m["code"].startswith("PD-T20") for m in refused)
    assert sum(listed["refused"].values()) == len(refused)


def test_moves_limit_says_how_many_are_left_out(cli: Cli) -> None:
    outcome = cli("moves", SMALL, "--limit", "3")
    assert re.search(r"\d+ more; --limit 0 prints all", outcome.out)


def test_explain_a_refusal_underlines_the_line(cli: Cli) -> None:
    outcome = cli("explain", SMALL, "join_scopes(s0)")
    assert outcome.code == 0
    joined = cli("explain", SMALL, "join_scopes(s0)", "--json").data
    assert joined["legal"] is True
    refused = cli("explain", SMALL, "split_scope(s0, factor=3)").out.splitlines()
    assert refused[0].startswith("error[PD-T102]: cannot apply split_scope(s0, factor=3) to softmax")
    assert refused[1] == "   8 | 8" and refused[2] == "       ^"
    assert refused[3].startswith("   why: ") and refused[4].startswith("   try: ")


def test_explain_a_legal_move_shows_its_kind_and_change(cli: Cli) -> None:
    out = cli("explain", SMALL, "swap_scopes(s2)").out
    assert out.startswith("swap_scopes(s2) is legal; its kind is: exact")
    assert "+16 8 e[{1},{0}] = exp(x[{1},{0}] - m[{1}])" in out


def test_explain_a_code(cli: Cli) -> None:
    assert cli("explain", "pd-p013").out.startswith("PD-P013: ")
    assert "split_scope refuses: FACTOR does not divide SIZE" in cli("explain", "PD-T102").out
    assert "undo the contraction of BUFFER" in cli("explain", "PD-T303").out
    plugins = cli("explain", "toy-002", "--target", "toy", plugins="toy").out
    assert plugins.startswith("TOY-002: the scope is long") and "try: split the scope first" in plugins


def test_lists(cli: Cli) -> None:
    assert {"softmax", "matmul"} <= {k["name"] for k in cli("kernels", "--json").data["kernels"]}
    described = cli("transformations", "--json").data["transformations"]
    assert {t["name"] for t in described} == set(GENERIC)
    one = cli("transformations", "join_scopes").out
    assert "before:" in one and "after:" in one and "PD-T125" in one and "why: fused, SECOND" in one
    assert "a law that rounding breaks" in cli("transformations", "factor_reduction").out
    reasons = [f"{r['why']} {r['try']}" for t in described for r in t["requirements"]]
    assert not any(re.search(r"\{[a-z]", reason) for reason in reasons)
    (target,) = cli("targets", "--json").data["targets"]
    assert (target["name"], target["usable"], target["try"]) == ("paper", False, "imagine it")
    assert target["how"] == ""


def test_targets_tell_measurements_from_imitations(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    table = cli("targets", plugins="toy").out
    assert "yes, measured" in table and "emulator" not in table
    for word, means in (("emulated", "a model estimates the times"), ("simulated", "results and times")):
        monkeypatch.setattr(NativeRunner, "imitation", word, raising=False)
        (target,) = cli("targets", "--json", plugins="toy").data["targets"]
        assert target["usable"] and target["how"] == word
        table = cli("targets", plugins="toy").out
        assert f"yes, {word}" in table and means in table


def test_a_runner_that_answers_nonsense_stops_no_list(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NativeRunner, "imitation", 5, raising=False)
    (target,) = cli("targets", "--json", plugins="toy").data["targets"]
    assert target["usable"] and target["how"] == ""


# -- building, with the toy target ------------------------------------------------------------------


def test_build_library_then_bench(cli: Cli, tmp_path: Path) -> None:
    build = ("build-library", "--target", "toy", "--kernels", "toy_scale[64]", "--threads", "1", "-o", "lib")
    built = cli(*build, plugins="toy")
    assert built.code == 0, built.err
    assert "toy_scale_64_f32" in built.out and "exact numeric dependence" in built.out
    assert "[1/1] toy_scale_64_f32: compiling measuring searching" in built.err

    again = cli(*build, "--json", plugins="toy")
    (kernel,) = again.data["kernels"]
    assert kernel["verified"] and kernel["seconds"] > 0 and again.data["failed"] == []
    assert "taken from the records" in again.err

    timed = cli("bench", "lib", "--json", plugins="toy")
    (now,) = timed.data["kernels"]
    assert (
        timed.code == 0 and now["same_outputs"] and now["stored_s"] == kernel["seconds"] and now["now_s"] > 0
    )
    assert cli("bench", "lib", "--only", "matmul", plugins="toy").code == 5

    manifest = tmp_path / "lib" / "manifest.json"
    manifest.write_text(re.sub(r'"output_sha256": "\w{4}', '"output_sha256": "0000', manifest.read_text()))
    differs = cli("bench", "lib", plugins="toy")
    assert differs.code == 4 and "DIFFERENT" in differs.out


def test_bench_and_show_a_game(cli: Cli) -> None:
    timed = cli("bench", "toy_scale[64]", "--json", plugins="toy").data
    assert timed["median_s"] > 0 and timed["provenance"] == "measured"
    assert "pd_toy_scale(" in cli("show", "toy_scale[64]", "--as", "code", plugins="toy").out


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--as", "math"), "m[i]   = max  x[i,j]          i < 8"),
        (("--as", "math", "--format", "latex"), r"s_{i} &= \sum_{0 \le j < 16} e_{i,j}"),
        (("--as", "graph"), "<svg xmlns="),
        (("--as", "graph", "--format", "dot"), 'digraph "softmax" {'),
        (("--as", "code"), "int pd_softmax(const float *restrict x"),
    ],
)
def test_show_the_views_of_a_program(cli: Cli, options: tuple[str, ...], words: str) -> None:
    assert words in cli("show", SMALL, *options).out


def test_a_face_has_its_own_formats(cli: Cli) -> None:
    outcome = cli("show", SMALL, "--as", "math", "--format", "svg")
    assert outcome.code == 2 and "unicode, latex" in outcome.err


def test_replay_prints_the_time_after_each_move(cli: Cli) -> None:
    moves = ("split_scope(s0, factor=8)", "annotate_scope(s0.i, suffix=u)")
    cli("apply", "toy_scale[64]", *moves, "-o", "game.json", plugins="toy")
    timed = cli("replay", "game.json", "--time", "--json", plugins="toy")
    timings = timed.data["timings"]
    assert len(timings) == 3 and all(t["median_s"] > 0 and t["calls"] > 1 for t in timings)
    assert {(t["provenance"], t["threads"]) for t in timings} == {("measured", 1)}
    assert "[2/2] annotate_scope(s0.i, suffix=u): " in timed.err

    printed = cli("replay", "game.json", "--time", plugins="toy").out
    assert "initial program" in printed and ", 1 thread, measured on " in printed
    assert "timings" not in cli("replay", "game.json", "--json", plugins="toy").data
    assert cli("replay", "game.json", "--time", plugins="paper").code == 3


def test_replay_says_why_there_is_no_time(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    cli("apply", "toy_scale[64]", "split_scope(s0, factor=8)", "-o", "game.json", plugins="toy")
    failed = Failure("compile", "too hard")
    monkeypatch.setattr("perfdojo_sdk.measure.native_runner.NativeRunner.compile", lambda *_: failed)
    outcome = cli("replay", "game.json", "--time", "--json", plugins="toy")
    assert outcome.code == 0
    found = [(t["median_s"], t["failure"]) for t in outcome.data["timings"]]
    assert found == [(None, "compile: too hard")] * 2


def test_verify(cli: Cli) -> None:
    passed = cli("verify", "toy_scale[64]", plugins="toy")
    assert passed.code == 0 and [line.split()[1] for line in passed.out.splitlines()[:3]] == ["passed"] * 3


@pytest.fixture
def failing_leg(monkeypatch: pytest.MonkeyPatch) -> None:
    """The exact leg of every kernel fails."""
    good, bad = LegResult(passed=True, detail="fine"), LegResult(passed=False, detail="y[0] differs")
    result = Verification(exact=bad, numeric=good, dependence=good)
    monkeypatch.setattr("perfdojo_sdk.library.verification.verify", lambda *_: result)


@pytest.mark.usefixtures("failing_leg")
def test_failed_verification_has_its_own_code(cli: Cli) -> None:
    failed = cli("verify", "toy_scale[64]", "--json", plugins="toy")
    assert failed.code == 4
    assert failed.data["passed"] is False and failed.data["legs"]["exact"]["detail"] == "y[0] differs"


@pytest.mark.usefixtures("failing_leg")
def test_nothing_built_gives_the_reasons(cli: Cli) -> None:
    outcome = cli(
        "build-library", "--target", "toy", "--kernels", "toy_scale[64]", "-o", "lib", plugins="toy"
    )
    assert outcome.code == 5
    assert "error[PD-C004]" in outcome.err and "exact: y[0] differs" in outcome.err


def test_a_program_that_leaves_elements_out_is_told_so(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "half.dojo").write_text(
        "kernel half(x) -> y\nx f32 [8] heap\ny f32 [8] heap\n\n4 y[{0}] = x[{0}]\n"
    )
    outcome = cli("build-library", "--target", "toy", "--kernels", "half.dojo", "-o", "lib", plugins="toy")
    assert outcome.code == 5 and "never written" in outcome.err and "write every element first" in outcome.err


# -- every code has an explanation -----------------------------------------------------------------


def codes_in_source() -> dict[str, str]:
    """Code -> a file that uses it, over the SDK and the plugins in this tree."""
    found: dict[str, str] = {}
    for root in (ROOT / "perfdojo_sdk", ROOT / "plugins"):
        for path in root.rglob("*.py"):
            if "tests" not in path.parts:
                for code in re.findall(r"\bPD-[A-Z]\d{3}\b", path.read_text(encoding="utf-8")):
                    found.setdefault(code, str(path.relative_to(ROOT)))
    return found


def requirement_codes() -> set[str]:
    return {r.code for t in GENERIC.values() for r in t.requirements}


def test_every_code_in_the_source_is_explained() -> None:
    explained = set(codes.entries()) | requirement_codes()
    assert {code: file for code, file in codes_in_source().items() if code not in explained} == {}


def test_no_code_means_two_things() -> None:
    """YAML would keep the last of two entries and say nothing."""
    text = (ROOT / "perfdojo_sdk" / "cli" / "errors.yaml").read_text()
    codes = re.findall(r"^(PD-[A-Z][0-9]+):", text, re.MULTILINE)
    assert len(codes) == len(set(codes)), [code for code in codes if codes.count(code) > 1]


def test_every_explained_code_exists() -> None:
    assert set(codes.entries()) <= set(codes_in_source())


def test_a_code_has_one_meaning() -> None:
    every = [r.code for t in GENERIC.values() for r in t.requirements]
    shared = {c for c in every if every.count(c) > 1}
    for code in shared:
        assert len({r.title for t in GENERIC.values() for r in t.requirements if r.code == code}) == 1, code
    assert not requirement_codes() & set(codes.entries())


EXAMPLES = [(code, entry["example"]) for code, entry in codes.entries().items() if "example" in entry]


@pytest.mark.parametrize(("code", "example"), EXAMPLES, ids=[code for code, _ in EXAMPLES])
def test_the_example_of_an_error_causes_it(code: str, example: str) -> None:
    with pytest.raises(ProgramError) as raised:
        parse(example)
    assert raised.value.code == code


# -- move text -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("split_scope(s0, factor=16)", "split_scope(s0, factor=16)"),
        ("  split_scope ( s0 ,factor = 16 ) ", "split_scope(s0, factor=16)"),
        ("split_scope(s0.o.i_2, factor=16)", "split_scope(s0.o.i_2, factor=16)"),
        ("swap_scopes(s1)", "swap_scopes(s1)"),
        ("annotate_scope(s1, suffix=v)", "annotate_scope(s1, suffix=v)"),
        ("split_scope(s0, factor=-4)", "split_scope(s0, factor=-4)"),
    ],
)
def test_move_text_is_read(text: str, expected: str) -> None:
    assert parse_move(text, RULES).text == expected


def test_a_value_has_the_declared_type() -> None:
    assert parse_move("split_scope(s0, factor=16)", RULES)["factor"] == 16
    assert parse_move("annotate_scope(s0, suffix=16)", RULES)["suffix"] == "16"


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("", 1),
        ("split_scope", 1),
        ("(s0)", 1),
        ("split_scope()", 13),
        ("split_scope(0)", 13),
        ("split_scope(s0", 15),
        ("split_scope(s0, factor=16", 24),
        ("split_scope(s0, factor)", 15),
        ("split_scope(s0, factor=)", 24),
        ("split_scope(s0, factor=1, factor=2)", 27),
        ("split_scope(s0, factor=16) swap_scopes(s0)", 26),
        ("split_scope(s0, factor='; rm -rf')", 24),
        ("split_scope(../../etc, factor=2)", 13),
        ("spl\u00eft_scope(s0, factor=2)", 1),
    ],
)
def test_move_text_that_is_refused(text: str, column: int) -> None:
    with pytest.raises(MoveError) as raised:
        parse_move(text, RULES)
    error = raised.value
    assert error.code == "PD-C002" and error.place and error.place.column == column
    assert "NAME(PLACE, KEY=VALUE" in error.hint


@pytest.mark.parametrize(
    "text", ["a(b)\nc(d)", "split_scope(s0, factor=\x1b[31m)", "x" * (MAX_CHARACTERS + 1)]
)
def test_move_text_that_is_not_even_shown(text: str) -> None:
    with pytest.raises(MoveError) as raised:
        parse_move(text, RULES)
    assert raised.value.code == "PD-C002" and raised.value.place is None


@pytest.mark.parametrize("number", ["2147483648", "-99999999999", "9" * 900])
def test_a_number_of_a_move_has_a_range(number: str) -> None:
    with pytest.raises(MoveError) as raised:
        parse_move(f"split_scope(s0, factor={number})", RULES)
    assert raised.value.code == "PD-C002" and "2147483647" in raised.value.hint
    assert len(raised.value.what) < 100


@given(st.text(max_size=60) | st.from_regex(r"\A[a-z_]{1,12}\([a-z0-9.]*(, ?[a-z]*=[^\n]*)*\)?\Z"))
def test_any_text_is_a_move_or_an_error(text: str) -> None:
    try:
        move = parse_move(text, RULES)
    except DojoError as error:
        assert error.render()
        json.dumps(error.as_json())
    else:
        assert parse_move(move.text, RULES) == move


def test_another_system_is_refused_in_words(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(SystemExit) as left:
        main(["targets"])
    said = capsys.readouterr().err
    assert left.value.code == 3 and "PD-C012" in said and "darwin" in said and "Traceback" not in said


def test_numbers_of_bytes_have_the_unit_that_suits_them() -> None:
    texts = {
        0: "0 bytes", 1: "1 byte", 1023: "1023 bytes", 1024: "1.0 KiB", 24_576: "24.0 KiB",
        2**20 - 1: "1.0 MiB", 5 * 2**19: "2.5 MiB", 3 * 2**30: "3.0 GiB", 2**43: "8192.0 GiB",
    }  # fmt: skip
    assert {count: memory(count) for count in texts} == texts


def test_rows_of_tables_are_lines_where_no_terminal_reads_them() -> None:
    long = "a reason of many words, " * 20 + "and its end"
    lines = table(("name", "why", "count"), [("x", long, 3), ("a longer name", "short", 12)]).splitlines()
    assert len(lines) == 4 and f" {long} " in lines[2] and lines[2].endswith(" 3")
    assert len(lines[1]) <= 100 and lines[0].split() == ["name", "why", "count"]
    small = table(("name", "count"), [("x", 3)]).splitlines()
    assert max(map(len, small)) < 20

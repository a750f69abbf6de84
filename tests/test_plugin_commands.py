"""The commands about plugins: what they print, as text and as JSON, and their exit codes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest
from command_line import Outcome, clear
from made_plugins import Entry, Metadata, boom, plugin, target
from toy_target import perfdojo_toy
from toy_target.perfdojo_toy.moves import UnrollShort

from perfdojo_sdk.core.errors import DojoError
from perfdojo_sdk.hookspecs import API_VERSION
from perfdojo_sdk.hookspecs.services import (
    Experiment,
    ExperimentResult,
    Probe,
    SimulatedRun,
    TimeBreakdown,
    TimePart,
)
from perfdojo_sdk.hookspecs.types import Operator, OperatorParameter
from perfdojo_sdk.kernels.operators import SOFTMAX
from perfdojo_sdk.plugins import discovery, load_plugins
from perfdojo_sdk.testing.conformance import PACKAGE_CHECKS, run
from perfdojo_sdk.testing.context import Context

Cli = Callable[..., Outcome]
EVERYTHING = "paper,toy,torn"


def row(outcome: Outcome, name: str) -> dict[str, Any]:
    [found] = [p for p in outcome.data["plugins"] if p["name"] == name]
    return found


# -- list and show ---------------------------------------------------------------------------------


def test_list_shows_versions_targets_hooks_and_status(cli: Cli) -> None:
    outcome = cli("plugins", "list", "--json", plugins=EVERYTHING)
    assert outcome.code == 0
    toy = row(outcome, "toy")
    assert (toy["version"], toy["api"], toy["targets"], toy["status"]) == ("1.0", "0.3", ["toy"], "ok")
    assert toy["package"] == "perfdojo-toy" and len(toy["hooks"]) == 18
    torn = row(outcome, "torn")
    assert torn["status"] == "broken" and torn["problems"][0]["stage"] == "import"
    assert "a_module_that_is_not_there" in torn["problems"][0]["why"]
    assert row(outcome, "perfdojo_sdk")["status"] == "ok"
    text = cli("plugins", "list", plugins=EVERYTHING)
    assert "torn (import): ModuleNotFoundError" in text.out and "try: " in text.out


def test_list_shows_what_is_left_out_and_what_is_missing(cli: Cli) -> None:
    outcome = cli("plugins", "list", "--json", plugins="paper,papper")
    assert row(outcome, "toy")["status"] == "left out"
    missing = row(outcome, "papper")
    assert missing["status"] == "missing" and missing["problems"][0]["try"] == "did you mean paper?"


def test_list_without_importing(cli: Cli) -> None:
    outcome = cli("plugins", "list", "--no-import", "--json", plugins=EVERYTHING)
    assert row(outcome, "torn")["targets"] == ["torn"]
    assert "status" not in row(outcome, "torn")


def test_a_deprecated_plugin_says_what_to_use_instead(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    old = plugin("old", api=(0, 2), targets=lambda: [target("a")], unavailable=lambda target: None)
    monkeypatch.setattr(discovery, "entry_points", lambda: Metadata([Entry("old", lambda: old)]))
    with pytest.warns(DeprecationWarning):
        outcome = cli("plugins", "list", plugins="old")
    assert "deprecated" in outcome.out and "use perfdojo_doctor_probes" in outcome.out


def test_show_names_everything_that_a_plugin_brings(cli: Cli) -> None:
    outcome = cli("plugins", "show", "toy", "--json", plugins=EVERYTHING)
    assert outcome.code == 0
    assert outcome.data["operators"] == ["toy_scale"]
    assert outcome.data["transformations"] == ["toy/unroll_short"]
    assert outcome.data["searches"] == ["toy/walk"] and outcome.data["experiments"] == ["toy/passes"]
    assert outcome.data["observers"] == ["stopwatch"] and outcome.data["targets"] == ["toy"]
    assert "perfdojo_packager" in cli("plugins", "show", "toy", plugins="toy").out
    builtin = cli("plugins", "show", "perfdojo_sdk", "--json")
    assert {"naive", "greedy", "heuristic"} <= set(builtin.data["searches"])


@pytest.mark.parametrize("command", ["show", "check"])
def test_a_broken_or_unknown_plugin_is_an_error(cli: Cli, command: str) -> None:
    broken = cli("plugins", command, "torn", "--json", plugins=EVERYTHING)
    assert broken.code == 3 and broken.data["error"]["code"] == "PD-G001"
    unknown = cli("plugins", command, "papper")
    assert unknown.code == 3 and "did you mean paper?" in unknown.err


def test_a_plugin_with_a_problem_can_be_shown(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    odd = plugin("odd", operatorz=lambda: [])
    monkeypatch.setattr(discovery, "entry_points", lambda: Metadata([Entry("odd", lambda: odd)]))
    outcome = cli("plugins", "show", "odd", plugins="odd")
    assert outcome.code == 3 and "did you mean perfdojo_operators?" in outcome.out


def test_what_shows_only_when_it_is_asked_counts(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    odd = plugin("odd", targets=lambda: [target("odd")], transformations=boom)
    monkeypatch.setattr(discovery, "entry_points", lambda: Metadata([Entry("odd", lambda: odd)]))
    outcome = cli("plugins", "show", "odd", "--json", plugins="odd")
    assert outcome.code == 3 and outcome.data["status"] == "broken"


# -- check -----------------------------------------------------------------------------------------


def test_check_passes_on_a_plugin_without_targets(cli: Cli) -> None:
    outcome = cli("plugins", "check", "perfdojo_sdk", "--quick", "--json")
    assert outcome.code == 0 and outcome.data["passed"] and outcome.data["budget"] == "quick"
    by_outcome = {c["outcome"]: c["why"] for c in outcome.data["checks"]}
    assert by_outcome.keys() == {"passed", "skipped"} and "--target" in by_outcome["skipped"]


def test_check_writes_what_machines_read(cli: Cli, tmp_path: Path) -> None:
    words = ("plugins", "check", "toy", "--quick", "--only", "prefix", "--only", "texts")
    outcome = cli(*words, "--junit", "found.xml", "--badge", "badge.json", plugins="toy")
    assert outcome.code == 0 and "toy 1.0, quick: all 2 checks passed" in outcome.out
    assert "passed" not in outcome.err.splitlines()[0].partition("prefix")[2], "progress names each check"
    suite = ElementTree.parse(tmp_path / "found.xml").getroot()[0]
    assert [case.get("name") for case in suite] == ["names have a prefix", "texts round-trip"]
    assert suite.get("tests") == "2" and suite.get("failures") == suite.get("skipped") == "0"
    badge = json.loads((tmp_path / "badge.json").read_text())
    assert badge == {
        **{"schemaVersion": 1, "label": "PerfDojo conformance"},
        **{"message": "2 passed", "color": "brightgreen"},
    }


def test_what_this_machine_lacks_never_counts_as_passed(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERFDOJO_CC", "no_such_compiler")
    words = ("plugins", "check", "toy", "--quick", "--only", "cheats", "--only", "prefix")
    outcome = cli(*words, "--json", "--badge", "new/badge.json", "--junit", "other/found.xml", plugins="toy")
    assert outcome.code == 3 and not outcome.data["passed"]
    [skipped] = [c for c in outcome.data["checks"] if c["outcome"] == "skipped"]
    assert "cannot run on this machine" in skipped["why"] and "PERFDOJO_CC" in skipped["try"]
    assert json.loads((tmp_path / "new" / "badge.json").read_text())["message"] == "1 passed, 1 not run"
    assert (tmp_path / "other" / "found.xml").is_file()
    assert "try: " in cli(*words, plugins="toy").out


def test_check_refuses_words_that_mean_nothing(cli: Cli) -> None:
    clear(cli("plugins", "check", "toy", "--only", "no such", plugins="toy"), 5, "PD-G015")
    assert cli("plugins", "check", "toy", "--quick", "--thorough", plugins="toy").code == 2


class Mute(UnrollShort):
    name = "mute"


Mute.__doc__ = "no sentence"


class Twin(UnrollShort):
    """Shares the codes of another move.

    before:
        4 y[{0}] = x[{0}]
    after: other/twin(s0)
        4:u y[{0}] = x[{0}]
    """

    name = "other/twin"


SIZE = (OperatorParameter("n", "elements"),)


@pytest.mark.parametrize(
    ("hooks", "name", "words"),
    [
        ({"operatorz": lambda: []}, "loads", "there is no hook perfdojo_operatorz"),
        ({"transformations": lambda target: 1 / 0}, "loads", "ZeroDivisionError"),
        ({"doctor_probes": lambda target: 1 / 0}, "loads", "ZeroDivisionError"),
        ({"unavailable": lambda target: None}, "up to date", "perfdojo_doctor_probes"),
        ({}, "declares its targets", "target a is not among the entry points"),
        ({"transformations": lambda: [Mute()]}, "names have a prefix", "mute has no prefix"),
        ({"transformations": lambda: [Twin(), UnrollShort()]}, "names have a prefix", "other, toy"),
        ({"transformations": lambda: [Mute()]}, "moves are described", "does not start with a sentence"),
        ({"transformations": lambda: [Mute()]}, "moves are described", "no before: and after:"),
        ({"transformations": lambda: [Twin(), UnrollShort()]}, "moves are described", "share the code"),
        ({"operators": lambda: [Operator("f", "no sentence", SIZE, str)]}, "operators build", "no sentence"),
        ({"operators": lambda: [Operator("f", "F.", SIZE, str, ((3,),))]}, "operators build", "f[3]"),
        (
            {"operators": lambda: [Operator("f", "F.", SIZE, lambda n: SOFTMAX.build(n, n))]},
            "objects cross processes",
            "f does not pickle",
        ),
    ],
)
@pytest.mark.filterwarnings("ignore::perfdojo_sdk.hookspecs.deprecated.PluginDeprecation")
def test_check_finds(
    monkeypatch: pytest.MonkeyPatch, hooks: dict[str, Callable[..., Any]], name: str, words: str
) -> None:
    monkeypatch.setattr(discovery, "entry_points", lambda: Metadata())
    monkeypatch.delenv("PERFDOJO_PLUGINS", raising=False)
    api = (0, 2) if name == "up to date" else API_VERSION
    plugins = load_plugins(extra=[plugin("made", api=api, targets=lambda: [target("a")], **hooks)])
    [made] = [p for p in plugins.loaded if p.name == "made"]
    [result] = run(Context(plugins, made), [c for c in PACKAGE_CHECKS if c.name == name])
    assert result.outcome == "failed"
    assert any(words in problem for problem in result.problems), result


# -- doctor ----------------------------------------------------------------------------------------


def test_doctor_says_what_is_missing_and_what_mends_it(cli: Cli) -> None:
    outcome = cli("plugins", "doctor", "--target", "paper", plugins=EVERYTHING)
    assert outcome.code == 3
    assert "paper: cannot run here" in outcome.out
    assert "missing  substance: it is made of paper" in outcome.out and "try: imagine it" in outcome.out


def test_doctor_on_every_target(cli: Cli) -> None:
    outcome = cli("plugins", "doctor", "--json", plugins="paper,toy")
    assert outcome.code == 0, "one target can run"
    usable = {d["target"]: d["usable"] for d in outcome.data["targets"]}
    assert usable == {"paper": False, "toy": True}
    [compiler] = [p for d in outcome.data["targets"] if d["target"] == "toy" for p in d["probes"]]
    assert compiler["part"] == "C compiler" and compiler["found"]
    assert cli("plugins", "doctor", plugins=EVERYTHING).code == 3, "a plugin is broken"
    assert cli("plugins", "doctor", plugins="paper").code == 3, "nothing can run"


def test_doctor_without_a_compiler_names_the_command_that_brings_one(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERFDOJO_CC", "no_such_compiler")
    outcome = cli("plugins", "doctor", "--target", "toy", plugins="toy")
    assert outcome.code == 3 and "missing  C compiler" in outcome.out and "PERFDOJO_CC" in outcome.out


def test_doctor_does_not_take_a_version_for_a_compiler(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that answers --version, reports success and makes nothing."""
    monkeypatch.setenv("PERFDOJO_CC", "/bin/true")
    outcome = cli("plugins", "doctor", "--target", "toy", plugins="toy")
    assert outcome.code == 3 and "missing  C compiler: /bin/true compiles nothing" in outcome.out
    assert "try: repair it, or name a gcc or clang in PERFDOJO_CC" in outcome.out
    for command in ("verify", "bench"):
        clear(cli(command, "relu[4,4]", "--target", "toy", plugins="toy"), 3, "PD-G004")


def test_what_is_not_required_does_not_stop_a_target(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    meter = Probe("power meter", "", "no such file", "modprobe rapl", required=False)
    chip = plugin("chip", targets=lambda: [target("a")], doctor_probes=lambda target: [meter])
    monkeypatch.setattr(
        discovery, "entry_points", lambda: Metadata([Entry("chip", lambda: chip, targets=["a"])])
    )
    outcome = cli("plugins", "doctor", plugins="chip")
    assert outcome.code == 0 and "a: can run here" in outcome.out
    assert "without  power meter: no such file" in outcome.out


# -- experiments -----------------------------------------------------------------------------------


def test_reproduce_lists_and_runs(cli: Cli, tmp_path: Path) -> None:
    listed = cli("reproduce", "--json", plugins="toy")
    names = [e["name"] for e in listed.data["experiments"]]
    assert names == ["fig11", "fig12", "fig13", "fig14", "learning", "toy/passes", "transfer"]
    ran = cli("reproduce", "toy/passes", "--quick", "-o", "found", "--json", plugins="toy")
    assert ran.code == 0, ran.err
    seconds = ran.data["result"]["seconds"]
    assert seconds.keys() == {"initial", "naive", "expert"} and all(s > 0 for s in seconds.values())
    table = (tmp_path / "found" / "passes.csv").read_text()
    assert ran.data["files"] == ["found/passes.csv"] and table.count("\n") == 3


def test_reproduce_says_what_went_wrong(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    experiments = [
        Experiment("made/raises", "It fails.", lambda request: 1 / 0),  # type: ignore[arg-type,return-value]
        Experiment("made/odd", "It is odd.", lambda request: "odd"),  # type: ignore[arg-type,return-value]
        Experiment("made/fine", "It is fine.", lambda request: ExperimentResult("fine", {"n": 1})),
    ]
    made = plugin("made", experiments=lambda: experiments)
    monkeypatch.setattr(discovery, "entry_points", lambda: Metadata([Entry("made", lambda: made)]))
    raised = cli("reproduce", "made/raises", plugins="made")
    assert raised.code == 3 and "ZeroDivisionError" in raised.err and "Traceback" not in raised.err
    assert "it returned str" in cli("reproduce", "made/odd", plugins="made").err
    assert "did you mean made/fine?" in cli("reproduce", "made/fin", plugins="made").err
    for name in ("made/fine", "fine"):
        fine = cli("reproduce", name, "--json", plugins="made")
        assert fine.code == 0 and fine.data["result"] == {"n": 1}


# -- where time goes -------------------------------------------------------------------------------


def test_explain_time_shows_the_parts(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = (TimePart("issue", 750.0, "an instruction a cycle"), TimePart("bank conflict", 250.0))
    found = TimeBreakdown("cycles", parts, "simulated", "the issue port")
    hooks = {name: getattr(perfdojo_toy, name) for name in dir(perfdojo_toy) if name.startswith("perfdojo_")}
    module = SimpleNamespace(PERFDOJO_API=perfdojo_toy.PERFDOJO_API, **hooks)
    module.perfdojo_time_breakdown = plugin("", time_breakdown=lambda target: found).perfdojo_time_breakdown
    entry = Entry("toy", lambda: module, targets=["toy"])
    monkeypatch.setattr(discovery, "entry_points", lambda: Metadata([entry]))
    words = ("explain-time", "toy_scale[64]", "--target", "toy")
    outcome = cli(*words, plugins="toy")
    assert outcome.code == 0, outcome.err
    assert "750 cycles" in outcome.out and "75 %" in outcome.out and "1000 cycles, simulated" in outcome.out
    data = cli(*words, "--json", plugins="toy").data
    assert data["total"] == 1000 and [p["name"] for p in data["parts"]] == ["issue", "bank conflict"]
    del module.perfdojo_time_breakdown
    silent = cli(*words, plugins="toy")
    assert silent.code == 3 and "PD-G006" in silent.err


def test_the_toy_target_says_where_time_goes(cli: Cli) -> None:
    outcome = cli("explain-time", "toy_scale[4096]", "--target", "toy", "--json", plugins="toy")
    assert outcome.code == 0, outcome.err
    parts = {p["name"]: p["amount"] for p in outcome.data["parts"]}
    assert parts["memory"] > 0 and parts["rest"] >= 0 and outcome.data["unit"] == "seconds"


# -- programs of a target's own machine code -------------------------------------------------------


class Abacus:
    """A runner that can do one thing only."""

    def compile(self, source: object) -> None:
        raise AssertionError

    run = device = compile

    def simulate(self, program: Path, *, trace: bool = False, max_cycles: int | None = None) -> SimulatedRun:
        if not program.exists():
            raise DojoError("TOY-007", f"there is no {program.name}", hint="write one")
        lines = program.read_text().splitlines()
        stalls = {"bead_stuck": max_cycles or 0}
        return SimulatedRun(len(lines), {"beads": 2.5}, stalls, {"a": "0x7"}, tuple(lines) if trace else ())


def test_simulate_runs_a_file_on_the_targets_simulator(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hooks = {name: getattr(perfdojo_toy, name) for name in dir(perfdojo_toy) if name.startswith("perfdojo_")}
    module = SimpleNamespace(PERFDOJO_API=perfdojo_toy.PERFDOJO_API, **hooks)
    entry = Entry("toy", lambda: module, targets=["toy"])
    monkeypatch.setattr(discovery, "entry_points", lambda: Metadata([entry]))
    (tmp_path / "prog.s").write_text("add\nadd\nend\n")
    words = ("simulate", str(tmp_path / "prog.s"), "--target", "toy")
    native = cli(*words, plugins="toy")
    assert native.code == 3 and "PD-G014" in native.err and "bench" in native.err
    module.perfdojo_runner = plugin("", runner=lambda target: Abacus()).perfdojo_runner
    said = cli(*words, "--trace", "--max-cycles", "9", plugins="toy")
    assert said.code == 0 and said.out.startswith("add\nadd\nend\ncycles")
    assert "beads   2.5" in said.out and "bead stuck" in said.out
    data = cli(*words, "--json", plugins="toy").data
    assert data == {
        "cycles": 3,
        "figures": {"beads": 2.5},
        "stalls": {"bead_stuck": 0},
        "registers": {"a": "0x7"},
    }
    assert len(cli(*words, "--json", "--trace", plugins="toy").data["trace"]) == 3
    missing = cli("simulate", "none.s", "--target", "toy", plugins="toy")
    assert missing.code == 1 and "TOY-007" in missing.err


# -- building with a player and an observer --------------------------------------------------------


def test_a_plugins_search_builds_a_library_with_the_figures_of_its_observer(cli: Cli, tmp_path: Path) -> None:
    words = ("build-library", "--target", "toy", "--kernels", "toy_scale[64]", "--threads", "1", "-o", "lib")
    outcome = cli(*words, "--pass", "toy/walk", "--evaluations", "2", plugins="toy")
    assert outcome.code == 0, outcome.err
    manifest = json.loads((tmp_path / "lib" / "manifest.json").read_text())
    assert manifest["settings"]["search"] == "toy/walk" and manifest["settings"]["evaluations"] == 2
    [kernel] = manifest["kernels"]
    assert kernel["timing"]["final"]["details"]["stopwatch.run_s"] > 0
    assert kernel["code"] == "lib/libperfdojo_toy.so"
    assert {a["path"] for a in manifest["artefacts"] if a["kind"] == "report"} == {"reports/lines.txt"}
    timed = cli("bench", "lib", "--json", plugins="toy")
    assert timed.code == 0 and timed.data["kernels"][0]["same_outputs"]


def test_an_unknown_search_is_an_error(cli: Cli) -> None:
    outcome = cli("build-library", "--target", "toy", "--pass", "gready", plugins="toy")
    assert outcome.code == 3 and "did you mean greedy?" in outcome.err

"""Plugins are found by name; only those that a command needs are imported."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from command_line import ROOT, Outcome
from made_plugins import Entry, Metadata, plugin, target
from toy_target import perfdojo_toy

from perfdojo_sdk.core.errors import UnavailableError
from perfdojo_sdk.hookspecs.types import Operator, OperatorParameter
from perfdojo_sdk.plugins import Choice, Plugins, Problem, choice, discovery, installed, load_plugins

Cli = Callable[..., Outcome]


@pytest.fixture
def entries(monkeypatch: pytest.MonkeyPatch) -> list[Entry]:
    """The installed packages; a test puts entry points here."""
    found: list[Entry] = []
    monkeypatch.setattr(discovery, "entry_points", lambda: Metadata(found))
    monkeypatch.delenv("PERFDOJO_PLUGINS", raising=False)
    return found


def only_problem(plugins: Plugins) -> Problem:
    [problem] = plugins.problems
    return problem


def missing() -> object:
    raise ImportError("no module named vendor_lib")


def brings(name: str, *targets: str) -> Callable[[], object]:
    return lambda: plugin(name, targets=lambda: [target(t) for t in targets])


# -- names -----------------------------------------------------------------------------------------


def test_names_are_read_without_importing(entries: list[Entry]) -> None:
    entries += [Entry("b", missing, targets=["chip", "board"]), Entry("a", missing)]
    assert [(i.name, i.targets) for i in installed()] == [("a", ()), ("b", ("board", "chip"))]
    assert all(e.loads == 0 for e in entries)


def test_a_target_belongs_to_the_plugin_of_the_same_package_and_module(entries: list[Entry]) -> None:
    entries += [Entry("a", missing, "one", targets=["x"]), Entry("b", missing, "two", targets=["y"])]
    assert [(i.name, i.targets) for i in installed()] == [("a", ("x",)), ("b", ("y",))]


@pytest.mark.parametrize("load", [missing, lambda: sys.exit(1)])
def test_an_entry_point_that_does_not_load_is_contained(
    entries: list[Entry], load: Callable[[], object]
) -> None:
    entries += [Entry("bad", load, targets=["chip"]), Entry("toy", lambda: perfdojo_toy)]
    plugins = load_plugins()
    problem = only_problem(plugins)
    assert (problem.plugin, problem.stage) == ("bad", "import")
    assert "dist-bad" in problem.remedy and "--no-plugin bad" in problem.remedy
    assert plugins.require("toy").plugin == "toy"
    for name in ("bad", "chip"):
        with pytest.raises(UnavailableError, match="bad is broken at stage import"):
            plugins.target(name)


def test_plugins_can_be_restricted_and_left_out(
    entries: list[Entry], monkeypatch: pytest.MonkeyPatch
) -> None:
    entries += [Entry("bad", missing), Entry("toy", lambda: perfdojo_toy)]
    assert load_plugins(without=["bad"]).problems == ()
    monkeypatch.setenv("PERFDOJO_PLUGINS", "toy")
    plugins = load_plugins()
    assert plugins.problems == () and plugins.targets.keys() == {"toy"}
    monkeypatch.setenv("PERFDOJO_PLUGINS", "toi, toy")
    problem = only_problem(load_plugins())
    assert problem.plugin == "toi" and problem.remedy == "did you mean toy?"


def test_what_a_person_chose_for_a_command_holds_wherever_plugins_are_loaded(entries: list[Entry]) -> None:
    entries += [Entry("bad", missing), Entry("toy", lambda: perfdojo_toy)]
    before = choice.set(Choice(without=frozenset({"bad"})))
    assert load_plugins().problems == ()
    choice.set(Choice(strict=True))
    with pytest.raises(UnavailableError, match="bad is broken"):
        load_plugins()
    choice.reset(before)


def test_one_name_from_two_distributions(entries: list[Entry]) -> None:
    entries += [Entry("toy", lambda: perfdojo_toy, "one"), Entry("toy", lambda: perfdojo_toy, "two")]
    assert "one and two both claim" in only_problem(load_plugins()).cause


def test_an_interrupt_is_not_a_broken_plugin(entries: list[Entry]) -> None:
    def interrupt() -> object:
        raise KeyboardInterrupt

    entries.append(Entry("a", interrupt))
    with pytest.raises(KeyboardInterrupt):
        load_plugins()


# -- only what is needed ---------------------------------------------------------------------------


def loads(entries: list[Entry]) -> dict[str, int]:
    return {e.name: e.loads for e in entries}


@pytest.mark.parametrize(
    ("targets", "expected"),
    [
        (None, {"a": 1, "b": 1, "guest": 1}),
        (["best"], {"a": 1, "b": 1, "guest": 1}),
        (["x"], {"a": 1, "b": 0, "guest": 1}),
        ((), {"a": 0, "b": 0, "guest": 1}),
        (["nobody_declares_it"], {"a": 1, "b": 1, "guest": 1}),
    ],
    ids=str,
)
def test_a_target_imports_its_plugin_and_those_that_bring_none(
    entries: list[Entry], targets: list[str] | None, expected: dict[str, int]
) -> None:
    entries += [
        Entry("a", brings("a", "x"), targets=["x"]),
        Entry("b", brings("b", "y"), targets=["y"]),
        Entry("guest", lambda: plugin("guest")),
    ]
    assert load_plugins(targets=targets).problems == ()
    assert loads(entries) == expected


def test_a_broken_plugin_does_not_even_matter_for_another_target(entries: list[Entry]) -> None:
    entries += [Entry("bad", missing, targets=["chip"]), Entry("a", brings("a", "x"), targets=["x"])]
    assert load_plugins(strict=True, targets=["x"]).target("x")


def test_a_declared_target_must_be_brought(entries: list[Entry]) -> None:
    entries.append(Entry("a", brings("a", "x"), targets=["x", "z"]))
    plugins = load_plugins()
    assert "declares target z, which it does not bring" in only_problem(plugins).cause
    with pytest.raises(UnavailableError, match="declares target z"):
        plugins.target("z")


def test_two_plugins_that_declare_one_target_are_both_loaded_and_named(entries: list[Entry]) -> None:
    entries += [
        Entry("one", brings("one", "x"), targets=["x"]),
        Entry("two", brings("two", "x"), targets=["x"]),
    ]
    with pytest.raises(UnavailableError, match="one and two both bring target x"):
        load_plugins(targets=["x"]).target("x")


def test_what_a_target_has_does_not_depend_on_what_else_is_loaded(entries: list[Entry]) -> None:
    """Otherwise a record made with ``--target x`` would not be found with ``--target best``."""
    entries += [
        Entry("toy", lambda: perfdojo_toy, targets=["toy"]),
        Entry("b", lambda: busybody("y"), targets=["y"]),
        Entry("guest", lambda: plugin("guest", operators=lambda: [extra("guest_op")])),
    ]
    alone, among_others = load_plugins(targets=["toy"]), load_plugins()
    toy = alone.target("toy")
    assert alone.fingerprints(toy) == among_others.fingerprints(toy)
    assert alone.fingerprints(toy).keys() == {"perfdojo_sdk", "toy", "guest"}
    assert alone.rules(toy).transformations.keys() == among_others.rules(toy).transformations.keys()
    assert alone.operators_for(toy) == among_others.operators_for(toy)
    assert {"softmax", "toy_scale", "guest_op"} <= alone.operators_for(toy).keys()
    assert "b_op" in among_others.operators and "b_op" not in among_others.operators_for(toy)


def busybody(name: str) -> SimpleNamespace:
    """A plugin with a target of its own that would veto every move on every other."""
    veto = lambda before, move, after, dialect: "never"  # noqa: E731
    return plugin(
        "b",
        targets=lambda: [target(name)],
        legality_checks=lambda target: [veto],
        operators=lambda: [extra("b_op")],
    )


def extra(name: str) -> Operator:
    return Operator(name, "Nothing.", (OperatorParameter("n", "elements"),), str)


# -- commands --------------------------------------------------------------------------------------


@pytest.fixture
def imported(plugin_folder: Path, tmp_path: Path) -> Callable[..., set[str]]:
    """The plugins' modules that a command loads, in a process of its own."""
    folders = [str(plugin_folder), str(ROOT / "tests" / "toy_target"), str(ROOT)]
    code = """
import sys
sys.path[:0] = {folders!r}
from perfdojo_sdk.cli import main
try:
    main({words!r})
except SystemExit:
    pass
print("\\n" + "\\n".join(m for m in sys.modules if m in ("paper_plugin", "perfdojo_toy")), end="")
"""

    def run(*words: str) -> set[str]:
        done = subprocess.run(
            [sys.executable, "-c", code.format(folders=folders, words=words)],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            timeout=60,
            env={"PERFDOJO_PLUGINS": "paper,toy", "PATH": "/usr/bin:/bin"},
            check=True,
        )
        return {line for line in done.stdout.splitlines() if line in ("paper_plugin", "perfdojo_toy")}

    return run


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("kernels",), set()),
        (("kernels", "--target", "toy"), {"perfdojo_toy"}),
        (("explain", "PD-G001"), set()),
        (("plugins", "list", "--no-import"), set()),
        (("show", "softmax[4,8]", "--target", "paper"), {"paper_plugin"}),
        (("transformations", "--target", "toy"), {"perfdojo_toy"}),
        (("targets",), {"paper_plugin", "perfdojo_toy"}),
    ],
    ids=lambda value: " ".join(sorted(value) if isinstance(value, set) else value),
)
def test_a_command_imports_the_plugins_that_it_needs(
    imported: Callable[..., set[str]], words: tuple[str, ...], expected: set[str]
) -> None:
    assert imported(*words) == expected


def test_a_saved_game_imports_the_plugin_of_its_target(imported: Callable[..., set[str]], cli: Cli) -> None:
    assert cli("apply", "softmax[4,8]", "join_scopes(s0)", "--target", "paper", "-o", "g.json").code == 0
    for words in (("show", "g.json"), ("replay", "g.json"), ("undo", "g.json", "0"), ("moves", "g.json")):
        assert imported(*words) == {"paper_plugin"}


def test_global_options_stand_anywhere(cli: Cli) -> None:
    everything = "paper,toy,torn"
    assert cli("kernels", plugins=everything).code == 0
    strict = cli("--strict-plugins", "targets", plugins=everything)
    assert strict.code == 3 and "torn is broken" in strict.err
    assert cli("targets", "--strict-plugins", "--no-plugin", "torn", plugins=everything).code == 0
    outcome = cli("--no-plugin=torn", "targets", "--no-plugin", "toy", "--json", plugins=everything)
    assert [t["name"] for t in outcome.data["targets"]] == ["paper"] and outcome.data["problems"] == []
    again = cli("targets", "--json", plugins=everything)
    assert len(again.data["targets"]) == 2, "one command's choice is not the next one's"


def test_an_option_without_its_name_is_wrong_usage(cli: Cli) -> None:
    outcome = cli("targets", "--no-plugin")
    assert outcome.code == 2 and "--no-plugin needs" in outcome.err


def test_a_plugin_to_leave_out_that_is_not_there_is_a_problem(cli: Cli) -> None:
    outcome = cli("targets", "--no-plugin", "papper", "--json")
    [problem] = outcome.data["problems"]
    assert problem["plugin"] == "papper" and problem["try"] == "did you mean paper?"


# -- metadata that is no text ----------------------------------------------------------------------


def test_packages_whose_metadata_is_no_text_hide_no_plugin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = "[perfdojo_sdk.plugins]\n{0} = {0}_module\n"
    for name in ("first", "second", "torn"):
        info = tmp_path / f"{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(entry.format(name))
    (tmp_path / "second-1.0.dist-info" / "METADATA").write_bytes(b"Name: second\nAuthor: J\xfcrgen\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    found = {i.name: (i.distribution, i.version) for i in installed()}
    assert found["first"] == ("first", "1.0") and found["second"] == ("second_module", "0")
    (tmp_path / "torn-1.0.dist-info" / "entry_points.txt").write_bytes(b"[x]\nj\xfcrgen = j\n")
    assert [i.name for i in installed()] == ["first", "second"]


# -- metadata that nobody can read -----------------------------------------------------------------


@pytest.mark.parametrize("group", ["perfdojo_sdk.plugins", "console_scripts"])
def test_a_plugin_whose_declaration_is_no_text_is_said_to_be_broken(tmp_path: Path, group: str) -> None:
    info = tmp_path / "latin_chip-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: latin-chip\nVersion: 1.0\n")
    (info / "entry_points.txt").write_bytes(f"[{group}]\nchip = puc\u00e9\n".encode("latin-1"))
    ours = group.startswith("perfdojo_sdk")

    def targets(*words: str) -> Outcome:
        command = [sys.executable, "-m", "perfdojo_sdk.cli", "targets", *words]
        environment = {**os.environ, "PERFDOJO_PLUGINS": "latin-chip" if ours else ""}
        done = subprocess.run(
            command, capture_output=True, text=True, cwd=tmp_path, env=environment, timeout=60
        )
        assert "Traceback" not in done.stderr
        return Outcome(done.returncode, done.stdout, done.stderr)

    outcome = targets()
    assert outcome.code == 0, outcome.err
    said = "plugin latin-chip is broken (import)" in outcome.out + outcome.err
    assert said == ours, "of what is no plugin of ours, nothing is said"
    assert targets("--strict-plugins").code == (3 if ours else 0)

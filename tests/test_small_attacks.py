"""Attacks on a command by a person, a folder or a file: it refuses in words and leaves nothing behind."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import Outcome, clear

from perfdojo_sdk.core.dialect import CORE_DIALECT
from perfdojo_sdk.core.text import parse
from perfdojo_sdk.core.transformation import Move, Rejection, Rules
from perfdojo_sdk.core.transformations import GENERIC
from perfdojo_sdk.core.words import filled
from perfdojo_sdk.measure import guarded_files
from perfdojo_sdk.measure.guarded_files import private_folder

Cli = Callable[..., Outcome]
TOY = ("--target", "toy", "--kernels", "toy_scale[64]", "--threads", "1")


# -- where a command writes ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", " "])
@pytest.mark.parametrize(
    "command",
    [
        ("build-library", *TOY, "--output"),
        ("tune", "toy_scale[64]", "--target", "toy", "-o"),
        ("train", "toy_scale[64]", "--output"),
        ("reproduce", "speed", "-o"),
        ("apply", "game.json", "split_scope(s0, factor=2)", "-o"),
        ("plugins", "new", "chip", "--directory"),
        ("plugins", "check", "toy", "--junit"),
        ("plugins", "check", "toy", "--badge"),
    ],
    ids=" ".join,
)
def test_an_empty_name_is_not_the_current_folder(
    cli: Cli, tmp_path: Path, command: tuple[str, ...], name: str
) -> None:
    outcome = cli(*command, name, plugins="toy")
    assert outcome.code == 2 and "the name is empty" in outcome.err, outcome
    assert not (tmp_path / "manifest.json").exists() and not (tmp_path / "records.sqlite").exists()


def test_a_folder_that_is_none_is_called_what_it_is(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("mine")
    (tmp_path / "astray").symlink_to(tmp_path / "nowhere")
    for name, says in (("notes", "it is a file, not a folder"), ("astray", "a link that leads nowhere")):
        outcome = cli("build-library", *TOY, "-o", name, plugins="toy")
        clear(outcome, 1, "PD-L024")
        assert says in outcome.err
    assert (tmp_path / "notes").read_text() == "mine" and not (tmp_path / "nowhere").exists()


def test_a_build_that_a_manifest_refuses_makes_no_records(cli: Cli, tmp_path: Path) -> None:
    folder = tmp_path / "foreign"
    folder.mkdir()
    (folder / "manifest.json").write_text('{"name": "of another tool"}')
    clear(cli("build-library", *TOY, "-o", "foreign", plugins="toy"), 1, "PD-L002")
    assert sorted(p.name for p in folder.iterdir()) == [".lock", "manifest.json"]


def test_a_compiler_that_does_not_work_is_not_available(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit code 3, as the table of the documentation says."""
    from perfdojo_sdk.hookspecs.types import Failure
    from perfdojo_sdk.measure.native_runner import NativeRunner

    monkeypatch.setattr(NativeRunner, "compile", lambda *_: Failure("compile", "it is broken"))
    clear(cli("build-library", *TOY, "-o", "library", plugins="toy"), 3, "PD-L020")


def test_a_program_that_does_not_compile_has_advice(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    from perfdojo_sdk.hookspecs.types import Failure
    from perfdojo_sdk.measure.native_runner import NativeRunner

    monkeypatch.setattr(NativeRunner, "compile", lambda *_: Failure("compile", "too hard"))
    for command in ("verify", "bench"):
        outcome = cli(command, "relu[4,4]", "--target", "toy", plugins="toy")
        clear(outcome, 4, "PD-C006")
        assert "why: compile: too hard" in outcome.err and "try: `perfdojo-sdk show" in outcome.err


# -- what is imported ----------------------------------------------------------------------------------


def test_an_import_that_is_refused_leaves_no_database(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "bad.jsonl").write_text('{"perfdojo_records": 1}\n{"kernel": 7}\n')
    os.mkfifo(tmp_path / "fifo")
    for name, says in (
        ("bad.jsonl", "line 2 is no record"),
        ("fifo", "no regular file"),
        (".", "it is a folder"),
        ("nothing", "No such file"),
        ("/dev/zero", "no regular file"),
    ):
        outcome = cli("db", "import", name, "--db", "new/records.sqlite")
        clear(outcome, 1, "PD-R005")
        assert says in outcome.err, outcome.err
        assert not (tmp_path / "new").exists()


# -- what is said --------------------------------------------------------------------------------------


def test_one_iteration_is_not_many() -> None:
    program = parse("kernel k(x) -> y\nx f32 [1] heap\ny f32 [1] heap\n\n1 y[{0}] = x[{0}]\n")
    found = Rules(CORE_DIALECT, GENERIC).attempt(program, Move.of("split_scope", "s0", factor=4))
    assert isinstance(found, Rejection) and found.why == "a scope of 1 iteration has no inner scope of 4"
    assert filled("{size} iterations, {most} lanes", {"size": 2, "most": 1}) == "2 iterations, 1 lane"
    assert filled("{size} iterations of {head}", {"size": True, "head": "x"}) == "True iterations of x"


def test_why_no_target_runs_is_a_line_for_each(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    from perfdojo_sdk.hookspecs.types import Unavailable
    from perfdojo_sdk.plugins import Plugins

    monkeypatch.setattr(Plugins, "unavailable", lambda *_: Unavailable("no such chip", "buy one"))
    outcome = cli("build-library", "--kernels", "relu[2,2]", plugins="paper,toy")
    clear(outcome, 3, "PD-G003")
    lines = [
        line.strip().removeprefix("why: ") for line in outcome.err.splitlines() if "no such chip" in line
    ]
    assert sorted(lines) == ["paper: no such chip (buy one)", "toy: no such chip (buy one)"]


def test_a_setting_that_there_is_not_is_refused_before_pytorch_is_loaded(tmp_path: Path) -> None:
    hook = (
        "import sys\n"
        "class Finder:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'torch': raise SystemExit('torch is loaded')\n"
        "sys.meta_path.insert(0, Finder())\n"
        "from perfdojo_sdk.cli.search_options import search_options\n"
        "from perfdojo_sdk.core.errors import DojoError\n"
        "for words in (['no_such=1'], ['discount=many']):\n"
        "    try: search_options(None, words, 'perfllm', 'toy')\n"
        "    except DojoError as error: print(error.code)\n"
    )
    done = subprocess.run([sys.executable, "-c", hook], capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["PD-L305"] * 2, done


# -- what others declare -------------------------------------------------------------------------------


@pytest.mark.parametrize("module", ["store.traces", "hookspecs.types", "library.loader", "game"])
def test_a_foreign_package_whose_metadata_is_no_text_breaks_no_import(tmp_path: Path, module: str) -> None:
    info = tmp_path / "foreign-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: foreign\nVersion: 1.0\n")
    (info / "entry_points.txt").write_bytes(b"[console_scripts]\nj\xfcrgen = j\n")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    environment.pop("PYDANTIC_DISABLE_PLUGINS", None)
    command = [sys.executable, "-c", f"import perfdojo_sdk.{module}"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60)
    assert done.returncode == 0, done.stderr


# -- what a kernel leaves ------------------------------------------------------------------------------


def test_a_folder_that_cannot_be_removed_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as one with a file that the administrator's kernel has made immutable."""

    def refuse(*_: object) -> None:
        raise PermissionError("Operation not permitted")

    with private_folder("test") as folder:
        (folder / "file").touch()
        monkeypatch.setattr(guarded_files.tempfile.TemporaryDirectory, "cleanup", refuse)
    monkeypatch.undo()
    assert not folder.exists()

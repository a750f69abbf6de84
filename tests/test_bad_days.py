"""Bad days: no compiler, full disks, damaged files, two at once. A clear error, and nothing lost.

What the operating system does (limits, locks, broken pipes) is tried on the installed command in a
process of its own.
"""

from __future__ import annotations

import dataclasses
import fcntl
import json
import os
import resource
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from command_line import ROOT, Outcome, clear

from perfdojo_sdk.core import files
from perfdojo_sdk.measure import machine, toolchain

Cli = Callable[..., Outcome]
SMALL = "softmax[8,16]"
BUILD = ("build-library", "--target", "toy", "--kernels", "toy_scale[64]", "--threads", "1", "-o")


SCRIPT = Path(sys.executable).with_name("perfdojo-sdk")
COMMAND = [str(SCRIPT)] if SCRIPT.exists() else [sys.executable, "-m", "perfdojo_sdk.cli"]


def environment(plugin_folder: Path, folder: Path) -> dict[str, str]:
    """For a process that knows the toy target and keeps its figures in ``folder``."""
    places = [plugin_folder, ROOT, ROOT / "tests" / "toy_target", os.environ.get("PYTHONPATH", "")]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, places)),
        "PERFDOJO_PLUGINS": "toy",
        "PERFDOJO_CACHE": str(folder / "cache"),
    }


@pytest.fixture
def process(plugin_folder: Path, tmp_path: Path) -> Callable[..., subprocess.Popen[str]]:
    """Start the installed command with the toy target, in an empty folder."""

    def start(
        *words: str, env: Mapping[str, str] | None = None, file_bytes: int | None = None, out: Any = None
    ) -> subprocess.Popen[str]:
        def limit() -> None:
            if file_bytes is not None:
                resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, file_bytes))

        return subprocess.Popen(
            [*COMMAND, *words],
            stdout=out or subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
            env={**environment(plugin_folder, tmp_path), **(env or {})},
            preexec_fn=limit,
        )

    return start


@pytest.fixture
def run(process: Callable[..., subprocess.Popen[str]]) -> Cli:
    """The installed command, to its end."""

    def to_its_end(*words: str, **options: Any) -> Outcome:
        started = process(*words, **options)
        out, err = started.communicate(timeout=60)
        return Outcome(started.returncode, out or "", err)

    return to_its_end


# -- no compiler, no hardware ------------------------------------------------------------------------


def test_without_a_compiler_only_what_needs_one_fails(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolchain, "answering", lambda command: None)
    toolchain._find.cache_clear()
    try:
        clear(cli(*BUILD, "lib", plugins="toy"), 3, "PD-M001", "PD-G004")
        clear(cli("bench", "toy_scale[64]", "--target", "toy", plugins="toy"), 3, "PD-M001", "PD-G004")
        clear(cli("verify", "toy_scale[64]", "--target", "toy", plugins="toy"), 3, "PD-M001", "PD-G004")
        assert cli("apply", "toy_scale[64]", "split_scope(s0, factor=8)", plugins="toy").code == 0
        assert cli("show", "toy_scale[64]", "--as", "code", plugins="toy").code == 0
    finally:
        toolchain._find.cache_clear()


def test_a_compiler_that_is_not_one(run: Cli) -> None:
    outcome = run("bench", "toy_scale[64]", env={"PERFDOJO_CC": "/nowhere/cc -O2"})
    clear(outcome, 3, "PD-M001", "PD-G004")
    assert "/nowhere/cc" in outcome.err


@pytest.mark.parametrize("words", [("build-library", "--target"), ("bench", SMALL, "--target")])
def test_a_target_that_this_machine_cannot_run(cli: Cli, words: tuple[str, ...]) -> None:
    outcome = cli(*words, "paper")
    clear(outcome, 3, "PD-G004")
    assert "made of paper" in outcome.err and "imagine it" in outcome.err
    assert cli("moves", SMALL, "--target", "paper").code == 0


def test_unknown_names_come_with_a_suggestion(cli: Cli) -> None:
    for words in (("show", "sofmax"), ("build-library", "--target", "toy", "--kernels", "sofmax")):
        outcome = cli(*words, plugins="toy")
        clear(outcome, outcome.code, "PD-K008")
        assert outcome.code in (1, 5) and "did you mean softmax?" in outcome.err
    outcome = cli("show", SMALL, "--target", "tyo", plugins="toy")
    clear(outcome, 3, "PD-G002")
    assert "did you mean toy?" in outcome.err


# -- folders that cannot be written ------------------------------------------------------------------


@pytest.mark.parametrize("where", ["/proc/nowhere/game.json", "/dev/null/game.json", "file/game.json", "."])
def test_a_game_that_cannot_be_written(cli: Cli, tmp_path: Path, where: str) -> None:
    (tmp_path / "file").write_text("a file, not a folder")
    outcome = cli("apply", SMALL, "split_scope(s0, factor=2)", "-o", where)
    clear(outcome, 1, "PD-J004")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file"]


@pytest.mark.parametrize("where", ["/proc/nowhere", "/dev/null/lib", "file"])
def test_a_library_that_cannot_be_written(cli: Cli, tmp_path: Path, where: str) -> None:
    (tmp_path / "file").write_text("a file, not a folder")
    clear(cli(*BUILD, where, plugins="toy"), 1, "PD-L024")


def test_a_cache_that_cannot_be_written_does_not_matter(run: Cli) -> None:
    outcome = run("bench", "toy_scale[64]", "--json", env={"PERFDOJO_CACHE": "/proc/nowhere"})
    assert outcome.code == 0 and outcome.data["median_s"] > 0, outcome.err


# -- full disks --------------------------------------------------------------------------------------

OPENING = "perfdojo_sdk.core.files._open"
SYSTEM_CALLS = (OPENING, "os.fdopen", "os.fsync", "os.replace")


@pytest.mark.parametrize("call", SYSTEM_CALLS)
def test_a_disk_that_fills_up_at_any_step_leaves_the_old_game(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    cli("apply", SMALL, "split_scope(s0, factor=4)", "-o", "game.json")
    before = (tmp_path / "game.json").read_bytes()

    def full(*given: Any, **_: object) -> Any:
        if call == OPENING and not given[2] & os.O_CREAT:
            return opening(*given)
        raise OSError(28, "No space left on device")

    opening = files._open
    with monkeypatch.context() as patch:
        patch.setattr(call, full)
        outcome = cli("apply", "game.json", "split_scope(s0.i, factor=2)", "-o", "game.json")
    clear(outcome, 1, "PD-J004")
    assert "No space left" in outcome.err
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == {"game.json": before}


def test_a_disk_that_takes_half_a_file(tmp_path: Path, run: Cli) -> None:
    run("apply", SMALL, "split_scope(s0, factor=4)", "-o", "game.json")
    before = (tmp_path / "game.json").read_bytes()
    outcome = run("apply", "game.json", "split_scope(s0.i, factor=2)", "-o", "game.json", file_bytes=100)
    clear(outcome, 1, "PD-J004")
    assert (tmp_path / "game.json").read_bytes() == before
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []


@pytest.mark.parametrize("file_bytes", [0, 30_000])
def test_a_build_on_a_full_disk_keeps_what_it_had(library: Path, cli: Cli, run: Cli, file_bytes: int) -> None:
    """The limit stops the compiler's files, the records or the library, whichever comes first."""
    before = (library / "manifest.json").read_bytes()
    more = ("build-library", "--target", "toy", "--kernels", "toy_scale[128]", "-o", "lib")
    full = run(*more, file_bytes=file_bytes)
    assert "Traceback" not in full.err and full.code in (1, 3, 5), full
    assert "error[PD-" in full.err
    assert (library / "manifest.json").read_bytes() == before
    assert cli("bench", "lib", "--json", plugins="toy").code == 0


@pytest.mark.parametrize("words", [("show", SMALL), ("--help",), ("--version",)])
def test_results_that_cannot_be_printed(run: Cli, words: tuple[str, ...]) -> None:
    with open("/dev/full", "w") as full:
        outcome = run(*words, out=full)
    assert outcome.code == 1 and "Traceback" not in outcome.err, outcome.err
    assert "No space left" in outcome.err


def test_a_reader_that_goes_away_is_no_error(run: Cli) -> None:
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as pipe:
        outcome = run("show", SMALL, out=pipe)
    assert outcome.err == ""


def test_a_terminal_that_knows_only_ascii(run: Cli) -> None:
    outcome = run("show", SMALL, "--as", "math", env={"PYTHONIOENCODING": "ascii"})
    assert outcome.code == 0 and "Traceback" not in outcome.err, outcome.err


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, plugin_folder: Path) -> Path:
    """A library of one kernel, built once."""
    folder = tmp_path_factory.mktemp("built")
    done = subprocess.run([*COMMAND, *BUILD, "lib"], cwd=folder, env=environment(plugin_folder, folder))
    assert done.returncode == 0
    return folder / "lib"


@pytest.fixture
def library(built: Path, tmp_path: Path) -> Path:
    shutil.copytree(built, tmp_path / "lib")
    return tmp_path / "lib"


# -- records and caches that are damaged ---------------------------------------------------------------


def test_damaged_records_are_put_aside(cli: Cli, library: Path) -> None:
    records = library / "records.sqlite"
    for suffix in ("-wal", "-shm"):
        records.with_name(records.name + suffix).unlink(missing_ok=True)
    records.write_bytes(b"garbage" * 1000)
    clear(cli(*BUILD, "lib", plugins="toy"), 1, "PD-R002")
    (aside,) = library.glob("records.sqlite.damaged-*")
    assert aside.read_bytes() == b"garbage" * 1000
    assert cli(*BUILD, "lib", plugins="toy").code == 0
    assert cli("bench", "lib", "--json", plugins="toy").code == 0


def test_a_page_of_the_records_is_overwritten(cli: Cli, library: Path) -> None:
    records = library / "records.sqlite"
    content = bytearray(records.read_bytes())
    content[4096:8192] = os.urandom(4096)
    records.write_bytes(content)
    outcome = cli(*BUILD, "lib", plugins="toy")
    clear(outcome, 1, "PD-R002")
    assert cli(*BUILD, "lib", plugins="toy").code == 0


def test_records_of_somebody_else_are_left_alone(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    with sqlite3.connect(tmp_path / "lib" / "records.sqlite") as other:
        other.execute("CREATE TABLE precious (x)")
    other.close()
    before = (tmp_path / "lib" / "records.sqlite").read_bytes()
    clear(cli(*BUILD, "lib", plugins="toy"), 1, "PD-R003")
    assert (tmp_path / "lib" / "records.sqlite").read_bytes() == before


def test_a_folder_where_the_records_belong(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "lib" / "records.sqlite").mkdir(parents=True)
    clear(cli(*BUILD, "lib", plugins="toy"), 1, "PD-R001")


def test_a_damaged_manifest(cli: Cli, library: Path) -> None:
    for content in (b"", b"{", b"\x00" * 100, b'{"schema_version": 99}', b"[" * 100_000):
        (library / "manifest.json").write_bytes(content)
        clear(cli("bench", "lib", plugins="toy"), 1, "PD-L002")
    clear(cli(*BUILD, "lib", plugins="toy"), 1, "PD-L002")
    assert cli(*BUILD, "lib", "--replace", plugins="toy").code == 0
    assert cli("bench", "lib", plugins="toy").code == 0


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b"\xff\xfe", b'{"memory": "lots"}', b"[" * 100_000])
def test_a_damaged_cache_is_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    monkeypatch.setenv("PERFDOJO_CACHE", str(tmp_path))
    figures = {f.name: 1.5 for f in dataclasses.fields(machine.Calibration) if f.type == "float"}
    monkeypatch.setattr(machine, "_measure", lambda *_: {**figures, "cache_read_gbs": (2.5,)})
    good = machine.calibrate(("-O1",), 64)
    (file,) = tmp_path.glob("calibration-*.json")
    file.write_bytes(content)
    assert machine.calibrate(("-O1",), 64) == good
    assert json.loads(file.read_text())["read_gbs"] == 1.5


# -- two at once ---------------------------------------------------------------------------------------


def test_a_second_build_into_one_folder_is_refused(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    with (tmp_path / "lib" / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        clear(cli(*BUILD, "lib", plugins="toy"), 1, "PD-L025")
    assert cli(*BUILD, "lib", plugins="toy").code == 0


def test_builds_that_start_together_leave_one_whole_library(
    process: Callable[..., subprocess.Popen[str]], run: Cli
) -> None:
    started = [process(*BUILD, "lib") for _ in range(2)]
    ended = [(p.communicate(timeout=60)[1], p.returncode) for p in started]
    assert sorted({code for _, code in ended}) in ([0], [0, 1])
    assert all("error[PD-L025]" in err for err, code in ended if code)
    assert run("bench", "lib", "--json").code == 0


def test_games_saved_at_once_are_whole(tmp_path: Path, process: Callable[..., subprocess.Popen[str]]) -> None:
    words = ("apply", SMALL, "split_scope(s0, factor=4)", "-o", "game.json")
    assert [p.wait(timeout=60) for p in [process(*words) for _ in range(3)]] == [0, 0, 0]
    assert json.loads((tmp_path / "game.json").read_text())["schema"] == 1

"""A folder that somebody sent: nothing outside of it is read, written, emptied or deleted."""

from __future__ import annotations

import fcntl
import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from command_line import Outcome, clear
from paper_target import Paper, build

from perfdojo_sdk.core import files
from perfdojo_sdk.core.files import read_bounded, write_whole
from perfdojo_sdk.experiments.rows import Rows
from perfdojo_sdk.library import verification
from perfdojo_sdk.library.build import exclusive
from perfdojo_sdk.library.loader import load_library
from perfdojo_sdk.library.manifest import Artefact, LibraryError, read_artefact, read_manifest
from perfdojo_sdk.measure import native_runner
from perfdojo_sdk.store.records import LegResult, Verification, sha256

Cli = Callable[..., Outcome]
BUILD = ("build-library", "--target", "toy", "--kernels", "toy_scale[64]", "--threads", "1", "-o")


@pytest.fixture
def outside(tmp_path: Path) -> Iterator[Path]:
    """A folder beside the library; afterwards it must be as it was."""
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "thesis.txt").write_text("years of work")
    yield folder
    assert {p.name: p.read_text() for p in folder.iterdir()} == {"thesis.txt": "years of work"}


@pytest.fixture
def paper(monkeypatch: pytest.MonkeyPatch) -> Paper:
    made = Paper()
    leg = LegResult(passed=True, detail="as the test says")
    right = Verification(exact=leg, numeric=leg, dependence=leg)
    monkeypatch.setattr(verification, "verify", lambda *_: right)
    monkeypatch.setattr("perfdojo_sdk.plugins.discovery.installed", lambda: ())
    return made


def naming(library: Path, path: str, content: str) -> None:
    """Let the manifest of a library name one file more."""
    manifest = json.loads((library / "manifest.json").read_text())
    manifest["artefacts"].append({"kind": "source", "path": path, "sha256": sha256(content)})
    (library / "manifest.json").write_text(json.dumps(manifest))


# -- building into it --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["src", "lib", "include", "programs", "traces"])
def test_no_file_is_written_through_a_linked_folder(
    paper: Paper, tmp_path: Path, outside: Path, name: str
) -> None:
    library = tmp_path / "library"
    library.mkdir()
    (library / name).symlink_to(outside)
    with pytest.raises(Exception, match="it is a link"):
        build(paper, library)


def test_no_file_is_deleted_through_a_linked_folder(paper: Paper, tmp_path: Path, outside: Path) -> None:
    library = tmp_path / "library"
    build(paper, library)
    (library / "old").symlink_to(outside)
    naming(library, "old/thesis.txt", "years of work")
    build(paper, library)


@pytest.mark.parametrize("path", ["../outside/thesis.txt", "/etc/passwd", "a/../b", "src//x", "src/./x", ""])
def test_a_manifest_that_names_a_path_out_of_the_folder_is_none(
    paper: Paper, tmp_path: Path, outside: Path, path: str
) -> None:
    library = tmp_path / "library"
    build(paper, library)
    naming(library, path, "years of work")
    with pytest.raises(LibraryError, match="is no manifest"):
        read_manifest(library)
    with pytest.raises(LibraryError, match="is no manifest"):
        build(paper, library)
    build(paper, library, start_over=True)


@pytest.mark.parametrize("path", ["src/mine.txt", "records.sqlite"])
def test_only_what_a_build_wrote_is_deleted(paper: Paper, tmp_path: Path, path: str) -> None:
    library = tmp_path / "library"
    build(paper, library)
    if not (library / path).exists():
        (library / path).write_text("mine")
    naming(library, path, "something else")
    build(paper, library)
    assert (library / path).exists()


@pytest.mark.parametrize("name", [".lock", "records.sqlite", "records.sqlite-wal", "tuned", "manifest.json"])
def test_nothing_is_emptied_or_written_through_a_link(
    paper: Paper, tmp_path: Path, outside: Path, name: str
) -> None:
    library = tmp_path / "library"
    library.mkdir()
    (library / name).symlink_to(outside if name == "tuned" else outside / "thesis.txt")
    with pytest.raises(LibraryError, match="it is a link") as refused:
        build(paper, library)
    assert refused.value.code == "PD-L024" and name in refused.value.why


def test_a_lock_that_is_another_name_of_a_file_is_not_emptied(
    paper: Paper, tmp_path: Path, outside: Path
) -> None:
    library = tmp_path / "library"
    library.mkdir()
    (library / ".lock").hardlink_to(outside / "thesis.txt")
    build(paper, library)


def test_the_folder_itself_may_be_a_link(paper: Paper, tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "library").symlink_to(tmp_path / "here")
    assert build(paper, tmp_path / "library").manifest


def test_the_command_says_what_leads_out(cli: Cli, tmp_path: Path, outside: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / ".lock").symlink_to(outside / "thesis.txt")
    outcome = cli(*BUILD, "lib", plugins="toy")
    clear(outcome, 1, "PD-L024")
    assert "it is a link" in outcome.err and "lib/.lock" in outcome.err


# -- reading it --------------------------------------------------------------------------------------


def test_no_code_is_loaded_through_a_link(cli: Cli, tmp_path: Path) -> None:
    assert cli(*BUILD, "lib", plugins="toy").code == 0
    code = tmp_path / "lib" / read_manifest(tmp_path / "lib").artefact("shared_object").path
    code.rename(tmp_path / "elsewhere.so")
    code.symlink_to(tmp_path / "elsewhere.so")
    with pytest.raises(LibraryError, match="it is a link"):
        load_library(tmp_path / "lib")


def test_no_file_of_a_library_is_read_through_a_linked_folder(tmp_path: Path, outside: Path) -> None:
    (tmp_path / "library").mkdir()
    (tmp_path / "library" / "src").symlink_to(outside)
    artefact = Artefact(kind="source", path="src/thesis.txt", sha256=sha256("years of work"))
    with pytest.raises(LibraryError, match="it is a link"):
        read_artefact(tmp_path / "library", artefact)


def test_an_experiment_writes_through_no_link(cli: Cli, tmp_path: Path, outside: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "fig.rows").symlink_to(outside / "thesis.txt")
    with pytest.raises(OSError, match="it is a link"):
        Rows(tmp_path / "folder" / "fig.rows")


# -- what every file has -----------------------------------------------------------------------------


def test_a_link_in_the_way_is_replaced(tmp_path: Path, outside: Path) -> None:
    (tmp_path / "game.json").symlink_to(outside / "thesis.txt")
    write_whole(tmp_path / "game.json", "new")
    assert (tmp_path / "game.json").read_text() == "new" and not (tmp_path / "game.json").is_symlink()


@pytest.mark.parametrize("umask", [0o022, 0o002, 0o077])
def test_the_umask_decides_who_may_read(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        write_whole(tmp_path / "new" / "file", "content")
        os.close(files.open_lock(tmp_path / ".lock"))
    finally:
        os.umask(before)
    modes = [stat.S_IMODE(p.stat().st_mode) for p in (tmp_path / "new" / "file", tmp_path / ".lock")]
    assert modes == [0o666 & ~umask] * 2


def test_what_is_not_a_file_of_a_bearable_size_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "large").write_bytes(bytes(11))
    for path in (tmp_path / "fifo", Path("/dev/zero"), tmp_path, tmp_path / "large", tmp_path / "none"):
        with pytest.raises(OSError) as refused:
            read_bounded(path, 10)
        assert refused.value.strerror and str(path) in str(refused.value)
    assert read_bounded(tmp_path / "large", 11) == bytes(11)


# -- locks -------------------------------------------------------------------------------------------


def test_who_holds_the_lock_is_said(tmp_path: Path) -> None:
    code = "import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.flock(f, 2); print('held', flush=1); input()"
    words = [sys.executable, "-c", code, str(tmp_path / ".lock")]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout and other.stdout.readline() == "held\n"
        with pytest.raises(LibraryError) as refused, exclusive(tmp_path):
            pass
        other.communicate("\n")
    assert f"process {other.pid} " in refused.value.why and ".lock" in refused.value.why


def test_nobody_elses_lock_holds_up_a_measurement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a common folder: a file that others may lock is no lock of ours."""
    monkeypatch.setenv("PERFDOJO_CACHE", str(tmp_path))
    (tmp_path / "measuring.lock").touch()
    (tmp_path / "measuring.lock").chmod(0o666)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with (tmp_path / "measuring.lock").open() as theirs:
        fcntl.flock(theirs, fcntl.LOCK_EX)
        monkeypatch.setattr(native_runner, "LOCK_WAIT_S", 0.2)
        with native_runner.one_measurement_at_a_time():
            pass


def test_a_lock_that_is_never_given_back_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERFDOJO_CACHE", str(tmp_path))
    monkeypatch.setattr(native_runner, "LOCK_WAIT_S", 0.05)
    with (
        native_runner.one_measurement_at_a_time(),
        pytest.raises(Exception, match="measuring") as refused,
        native_runner.one_measurement_at_a_time(),
    ):
        pass
    assert "measuring-" in str(refused.value) and f"process {os.getpid()}" in str(refused.value)

"""A compiler may babble, hang, leave helpers or produce nothing; sources may have names that mislead it."""

from __future__ import annotations

import os
import shlex
import time
from pathlib import Path

import pytest

from perfdojo_sdk.core.errors import UnavailableError
from perfdojo_sdk.hookspecs.types import Failure
from perfdojo_sdk.measure import process_tree
from perfdojo_sdk.measure.toolchain import COMPILER_VARIABLE, Compiled, Toolchain, find_toolchain
from perfdojo_sdk.measure.tools import MOST_OUTPUT, run_tool

CODE = "int f(void) { return 1; }\n"


def shell(script: str) -> Toolchain:
    """A compiler that is a script; its own arguments are what the SDK wants."""
    return Toolchain(("sh", "-c", script, "cc"), "a script")


def gone(pid: int) -> bool:
    for _ in range(100):
        if process_tree._status(pid)[0] in "ZX":
            return True
        time.sleep(0.01)
    return False


def test_what_a_compiler_says_is_kept_in_part() -> None:
    """1 GB in a quarter of the time that it would have, none of it waited for or kept."""
    ended = run_tool(["sh", "-c", "echo first; head -c 1G /dev/zero; exit 3"], None, 60)
    assert ended is not None and ended.status == 3
    assert ended.said.startswith("first") and len(ended.said) == MOST_OUTPUT
    found = shell("head -c 4M /dev/zero | tr '\\0' x; exit 1").compile({"k.c": CODE})
    assert isinstance(found, Failure) and found.reason == "compile" and len(found.detail) < 10_000


def test_endless_words_end_with_the_time(tmp_path: Path) -> None:
    found = shell("yes error").compile({"k.c": CODE}, timeout_s=0.3)
    assert isinstance(found, Failure) and found.reason == "compile_timeout"


def test_what_a_compiler_that_is_killed_had_for_a_moment_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    found = shell('echo > "$TMPDIR/cc1.s"; sleep 60').compile({"k.c": CODE}, timeout_s=0.5)
    assert isinstance(found, Failure) and found.reason == "compile_timeout"
    assert list(tmp_path.iterdir()) == []


def test_a_helper_that_stays_is_not_waited_for(tmp_path: Path) -> None:
    """A compiler cache's server inherits the output of the first compiler that starts it."""
    place = tmp_path / "pid"
    real = shlex.join(find_toolchain().command)
    script = f'setsid sleep 30 & echo $! > {place}; echo done; exec {real} "$@"'
    compiler = Toolchain(("sh", "-c", script, "cc"), "a script", find_toolchain().link_flags)
    found = compiler.compile({"k.c": CODE}, timeout_s=20)
    assert isinstance(found, Compiled) and "done" in found.notes
    helper = int(place.read_text())
    assert not gone(helper), "it is of use to the next compiler"
    os.kill(helper, 9)


def test_a_compiler_that_takes_too_long_takes_its_family_along(tmp_path: Path) -> None:
    script = f"setsid sh -c 'echo $$ > {tmp_path}/one; sleep 30; :' & echo $$ > {tmp_path}/two; sleep 30; :"
    found = shell(script).compile({"k.c": CODE}, timeout_s=0.5)
    assert isinstance(found, Failure) and found.reason == "compile_timeout"
    assert all(gone(int((tmp_path / name).read_text())) for name in ("one", "two"))


@pytest.mark.parametrize(
    "name", ["-oevil.c", "@file.c", "../k.c", "/k.c", "a/b.h", "..", ".", "", "a\0.c", "a\n.h"]
)
def test_a_name_that_is_no_plain_one_is_refused(name: str) -> None:
    found = find_toolchain().compile({"k.c": CODE, name: ""})
    assert isinstance(found, Failure) and found.reason == "compile" and repr(name) in found.detail


@pytest.mark.parametrize(
    "left", ["true", "mkfifo out.so", "ln -s /dev/zero out.so", "mkdir out.so", ": > out.so"]
)
def test_success_without_code_is_a_failure(left: str) -> None:
    found = shell(left).compile({"k.c": CODE}, timeout_s=20)
    assert isinstance(found, Failure) and found.reason == "compile" and "left no code" in found.detail


@pytest.mark.parametrize("wanted", ["gcc '-O2", 'cc "', " ", "''", "gcc \\"])
def test_a_compiler_variable_that_is_no_command(wanted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(COMPILER_VARIABLE, wanted)
    with pytest.raises(UnavailableError) as caught:
        find_toolchain()
    assert caught.value.code == "PD-M001" and COMPILER_VARIABLE in caught.value.hint


def test_a_compiler_in_the_current_folder_is_found_from_any(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It runs in a folder of its own."""
    (tmp_path / "cc").write_text(f'#!/bin/sh\nexec {shlex.join(find_toolchain().command)} "$@"\n')
    (tmp_path / "cc").chmod(0o700)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(COMPILER_VARIABLE, "./cc -O1")
    assert isinstance(find_toolchain().compile({"k.c": CODE}), Compiled)


def test_a_compiler_whose_version_is_no_text(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    script = tmp_path / "cc"
    script.write_text(
        "#!/bin/sh\nprintf 'caf\\351 1.0\\n'; setsid sleep 30 & echo $! > " + f"{tmp_path}/pid\n"
    )
    script.chmod(0o700)
    monkeypatch.setenv(COMPILER_VARIABLE, str(script))
    assert find_toolchain().version == "caf\ufffd 1.0"
    os.kill(int((tmp_path / "pid").read_text()), 9)

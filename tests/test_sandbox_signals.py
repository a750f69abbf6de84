"""SIGTERM leaves no folder and no child; Ctrl-C while modules are imported prints no traceback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from perfdojo_sdk.measure import process_tree

TESTS = Path(__file__).parent


def start(folder: Path, *command: str, **environment: str) -> subprocess.Popen[str]:
    """A process whose temporary folders lie in ``folder``/temporary."""
    (folder / "temporary").mkdir()
    return subprocess.Popen(
        command,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(folder / "temporary"), "PERFDOJO_PLUGINS": "none", **environment},
    )


def wait_for(file: Path) -> int:
    """The number in a file that somebody is about to write."""
    for _ in range(3000):
        if file.exists() and file.read_text().strip():
            return int(file.read_text())
        time.sleep(0.01)
    raise AssertionError(f"nobody wrote {file}")


def gone(pid: int) -> bool:
    for _ in range(1000):
        if process_tree._status(pid)[0] in "ZX":
            return True
        time.sleep(0.01)
    return False


#: The command line with another command in place of ``kernels``.
AS_A_COMMAND = """
import sys
sys.path.insert(0, {tests!r})
from perfdojo_sdk import cli
from perfdojo_sdk.cli import kernels
{imports}
def command() -> None:
    {body}
kernels.command = command
cli.main(["kernels"])
"""


def hanging_kernel(folder: Path, forks: bool, beside: bool) -> str:
    place = str(folder / "pid")
    code = f'FILE *f = fopen("{place}", "w"); fprintf(f, "%d", getpid()); fclose(f); for (;;);'
    run = f"replace(RUNNER, forks={forks}).run(build({code!r}, '#include <stdio.h>'), ONCE)"
    imports = "from dataclasses import replace\nfrom test_measure import *\n"
    imports += "from perfdojo_sdk.library.background import in_background\n"
    body = f"with in_background(lambda: {run}) as found:\n        found()" if beside else run
    return AS_A_COMMAND.format(tests=str(TESTS), imports=imports, body=body)


@pytest.mark.parametrize(
    ("forks", "beside"), [(False, False), (True, False), (True, True)], ids=["child", "fork", "beside"]
)
def test_sigterm_ends_the_kernel_and_leaves_no_folder(forks: bool, beside: bool, tmp_path: Path) -> None:
    process = start(tmp_path, sys.executable, "-c", hanging_kernel(tmp_path, forks, beside))
    kernel = wait_for(tmp_path / "pid")
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=30)
    assert process.returncode == 143 and "Traceback" not in said, said
    assert said.endswith("\nterminated\n")
    assert gone(kernel) and not list((tmp_path / "temporary").iterdir())


def test_sigterm_ends_the_compiler_and_leaves_no_folder(tmp_path: Path) -> None:
    compiler = tmp_path / "cc"
    answers = "[ $1 = --version ] && echo cc 1 && exit"
    compiler.write_text(f"#!/bin/sh\n{answers}\necho $$ > {tmp_path}/pid\nsleep 60; :\n")
    compiler.chmod(0o700)
    imports = "from test_measure import *"
    script = AS_A_COMMAND.format(tests=str(TESTS), imports=imports, body="build('')")
    process = start(tmp_path, sys.executable, "-c", script, PERFDOJO_CC=str(compiler))
    pid = wait_for(tmp_path / "pid")
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=30)
    assert process.returncode == 143 and "Traceback" not in said, said
    assert gone(pid) and not list((tmp_path / "temporary").iterdir())


def test_a_killed_parent_takes_its_kernel_along(tmp_path: Path) -> None:
    """Folders cannot be removed then, but the processes end."""
    process = start(tmp_path, sys.executable, "-c", hanging_kernel(tmp_path, False, False))
    kernel = wait_for(tmp_path / "pid")
    process.kill()
    process.communicate(timeout=30)
    assert gone(kernel)


@pytest.mark.parametrize("module", ["typer", "numpy", "perfdojo_sdk.core.errors"])
def test_ctrl_c_while_modules_are_imported_prints_no_traceback(module: str, tmp_path: Path) -> None:
    """Somebody presses it while the module's code runs."""
    hook = (
        "import os, signal, sys\n"
        "class Finder:\n"
        "    def find_spec(self, name, *_):\n"
        f"        if name == {module!r}: os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Finder())\n"
        "from perfdojo_sdk.cli import main\n"
        "main(['verify', 'softmax[4,4]'])\n"
    )
    process = start(tmp_path, sys.executable, "-c", hook)
    _, said = process.communicate(timeout=30)
    assert process.returncode == 130 and "Traceback" not in said, said


def test_an_ignored_ctrl_c_stays_ignored(tmp_path: Path) -> None:
    """As for a command in the background of a script."""
    hook = (
        "import os, signal\n"
        "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "from perfdojo_sdk.cli import main\n"
        "from perfdojo_sdk.cli import kernels\n"
        "def command() -> None: os.kill(os.getpid(), signal.SIGINT)\n"
        "kernels.command = command\n"
        "main(['kernels'])\n"
    )
    process = start(tmp_path, sys.executable, "-c", hook)
    _, said = process.communicate(timeout=30)
    assert process.returncode == 0, said


@pytest.mark.parametrize(("name", "quiet"), [("/usr/bin/perfdojo-sdk", True), ("their_program.py", False)])
def test_an_interruption_while_the_command_is_imported_shows_nothing(name: str, quiet: bool) -> None:
    """In another program that imports the command's package, Ctrl-C does what it did."""
    code = f"import os, signal, sys; sys.argv[0] = {name!r}; import perfdojo_sdk.cli; "
    code += "os.kill(os.getpid(), signal.SIGINT)"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert ended.returncode == -signal.SIGINT
    assert ("KeyboardInterrupt" in ended.stderr) != quiet

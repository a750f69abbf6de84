"""The pool of threads that kernels share: it loses no iteration and no wake-up, and has no data race."""

import shutil
import subprocess
from pathlib import Path

import pytest

import perfdojo_sdk.codegen

SOURCE = Path(__file__).with_name("threads_of_kernels.c")
INCLUDE = Path(perfdojo_sdk.codegen.__file__).parent / "include"


@pytest.mark.parametrize("sanitizer", ["thread", "address,undefined"])
def test_every_iteration_runs_once(tmp_path: Path, sanitizer: str) -> None:
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc")
    program = tmp_path / "threads"
    command = ["gcc", "-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", f"-fsanitize={sanitizer}"]
    command += ["-pthread", f"-I{INCLUDE}", str(SOURCE), "-o", str(program)]
    built = subprocess.run(command, capture_output=True, text=True)
    if "cannot find" in built.stderr:
        pytest.skip("gcc came without its sanitizers")
    assert built.returncode == 0, built.stderr
    ran = subprocess.run([str(program), "1000"], capture_output=True, text=True, timeout=120)
    assert (ran.returncode, ran.stderr) == (0, "")

"""The scripts of ``examples/`` run as they stand, each in a new folder."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import ROOT

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
MOST_LINES = 40
MOST_ERROR = 1e-4
"""A sum of 128 products of numbers up to 8, in f32."""
#: Modules that others may use.
PUBLIC = {"perfdojo_sdk", "perfdojo_sdk.torch", "perfdojo_sdk.onnx"}


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache for all of them, which is empty at first."""
    return tmp_path_factory.mktemp("cache")


@pytest.mark.parametrize("script", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs_as_it_stands(script: Path, cache: Path, tmp_path: Path) -> None:
    if script.stem == "call_from_c" and not any(map(shutil.which, ("gcc", "clang", "cc"))):
        pytest.skip("no compiler of its own on this machine")
    done = subprocess.run(
        [sys.executable, script],
        **{"cwd": tmp_path, "capture_output": True, "text": True, "timeout": 300},
        env={
            **os.environ,
            "PERFDOJO_CACHE": str(cache),
            "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        },
    )
    assert done.returncode == 0, done.stderr
    if script.stem == "call_from_c":
        assert done.stdout.endswith("status 0, 0.0625 and 0.0625\n")
        return
    differences = re.findall(
        r"^(?:largest difference from|with another) \w+: (\S+)$", done.stdout, re.MULTILINE
    )
    assert differences and all(float(each) < MOST_ERROR for each in differences), done.stdout


@pytest.mark.parametrize("script", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_short_says_its_point_and_uses_public_names(script: Path) -> None:
    text = script.read_text(encoding="utf-8")
    tree = ast.parse(text)
    assert ast.get_docstring(tree) and len(text.splitlines()) <= MOST_LINES
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    modules = {each.module or "" for each in imports if isinstance(each, ast.ImportFrom)}
    modules |= {name.name for each in imports if isinstance(each, ast.Import) for name in each.names}
    assert {name for name in modules if name.startswith("perfdojo")} <= PUBLIC


def test_the_readme_names_every_example() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert EXAMPLES and all(f"`{script.name}`" in readme for script in EXAMPLES)

"""The installed package: entry points, data files, pinned versions, the two commands."""

from __future__ import annotations

import importlib
import re
import subprocess
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest
from order import LONG, long_files_first

import perfdojo_sdk

ROOT = Path(__file__).parent.parent
PROJECTS = [ROOT / "pyproject.toml", *sorted(ROOT.glob("plugins/*/pyproject.toml"))]


def project(path: Path) -> dict[str, object]:
    return tomllib.loads(path.read_text(encoding="utf-8"))["project"]


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pinned() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pairs = [line.split("==") for line in lines if line and not line.startswith("#")]
    return {canonical(name): version for name, version in pairs}


def requirements(path: Path) -> list[str]:
    data = tomllib.loads(path.read_text(encoding="utf-8"))["project"]
    lists = [data.get("dependencies", []), *data.get("optional-dependencies", {}).values()]
    return [canonical(re.match(r"[\w.-]+", line)[0]) for each in lists for line in each]  # type: ignore[index]


@pytest.mark.parametrize("path", PROJECTS, ids=lambda p: p.parent.name)
def test_every_dependency_is_pinned(path: Path) -> None:
    own = {canonical(str(project(p)["name"])) for p in PROJECTS}
    missing = set(requirements(path)) - set(pinned()) - own
    assert not missing


def test_a_pin_is_one_exact_version() -> None:
    for name, version in pinned().items():
        assert re.fullmatch(r"\d[\w.]*", version), f"{name}=={version}"


def test_the_command_is_installed_under_its_name() -> None:
    module, _, function = project(ROOT / "pyproject.toml")["scripts"]["perfdojo-sdk"].partition(":")  # type: ignore[index]
    assert callable(getattr(importlib.import_module(module), function))


def test_the_version_is_a_version() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", perfdojo_sdk.__version__)


def test_every_data_file_is_packaged() -> None:
    """A file that is not Python and not matched by ``package-data`` would be missing in a wheel."""
    tool = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    patterns = tool["setuptools"]["package-data"]["*"]
    left_out = [
        str(path.relative_to(ROOT))
        for path in (ROOT / "perfdojo_sdk").rglob("*")
        if path.is_file()
        and path.suffix not in {".py", ".pyc"}
        and not any(path.match(pattern) for pattern in patterns)
    ]
    assert not left_out


@pytest.mark.parametrize("path", PROJECTS[1:], ids=lambda p: p.parent.name)
def test_a_plugin_registers_an_entry_point(path: Path) -> None:
    points = project(path)["entry-points"]["perfdojo_sdk.plugins"]  # type: ignore[index]
    assert points


@pytest.mark.parametrize("path", PROJECTS[1:], ids=lambda p: p.parent.name)
def test_a_plugin_declares_the_targets_of_its_files(path: Path) -> None:
    points = project(path)["entry-points"]["perfdojo_sdk.targets"]  # type: ignore[index]
    assert set(points) == {file.stem for file in path.parent.glob("perfdojo_*/*.yaml")}
    plugins = project(path)["entry-points"]["perfdojo_sdk.plugins"]  # type: ignore[index]
    assert set(points.values()) <= set(plugins.values()), "a target is declared with its plugin's module"


def test_no_file_names_a_package_index() -> None:
    for path in (ROOT / "Makefile", ROOT / ".ci/run", ROOT / "constraints.txt", *PROJECTS):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"--(extra-)?index-url|--find-links|--trusted-host|/simple\b", text), path


def make(target: str) -> str:
    done = subprocess.run(
        ["make", "--dry-run", "--always-make", target], capture_output=True, text=True, cwd=ROOT, check=True
    )
    return done.stdout


def test_make_library_sets_up_and_builds() -> None:
    plan = make("library")
    assert plan.index("-m venv") < plan.index("-e .") < plan.index("perfdojo-sdk build-library")
    assert "--require-hashes" in plan and "--no-deps" in plan


def test_make_test_starts_the_long_files_first() -> None:
    plan, files = (
        make("test"),
        {path.name for path in (*ROOT.glob("tests/*.py"), *ROOT.glob("plugins/*/tests/*.py"))},
    )
    assert "--no-loadscope-reorder" in plan and set(LONG) <= files
    tests = [SimpleNamespace(path=Path(name)) for name in ("test_a.py", *LONG[::-1], "test_b.py")]
    long_files_first(tests)  # type: ignore[arg-type]
    assert [test.path.name for test in tests] == [*LONG, "test_a.py", "test_b.py"]


def test_make_test_runs_everything() -> None:
    plan = make("test")
    for step in ("ruff check", "mypy", "pytest", "mkdocs build --strict"):
        assert step in plan


def test_ci_calls_exactly_make_test() -> None:
    script = ROOT / ".ci/run"
    assert script.stat().st_mode & 0o111
    assert script.read_text(encoding="utf-8").rstrip().splitlines()[-1] == "exec make test"


def test_the_licence_is_complete() -> None:
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert "Apache License" in text and "Version 2.0, January 2004" in text
    assert "9. Accepting Warranty or Additional Liability" in text and "END OF TERMS AND CONDITIONS" in text

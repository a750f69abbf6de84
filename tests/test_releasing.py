"""The parts of a release, and the habits that a hook checks."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tools"))

import commit_subject  # noqa: E402
import release  # noqa: E402


def test_versions_and_changelog_fit_together() -> None:
    assert list(release.problems(ROOT)) == []


def test_a_plugin_s_wheel_and_sdist_hold_all_that_its_package_has(tmp_path: Path) -> None:
    (tmp_path / "copy").mkdir()
    project = release.copy_of_commit(tmp_path / "copy") / "plugins" / "riscv_snitch"
    (tmp_path / "dist").mkdir()
    wheel = release.built(project, tmp_path / "dist")
    assert release.missing_from(wheel, project) == []
    assert len(list((tmp_path / "dist").glob("*.tar.gz"))) == 1
    with zipfile.ZipFile(wheel, "a") as file:  # and a file that it lacks is seen
        lost = next(name for name in file.namelist() if name.endswith(".yaml"))
    (project / lost).with_name("lost.yaml").write_text("", encoding="utf-8")
    assert release.missing_from(wheel, project) == [str(Path(lost).with_name("lost.yaml"))]


def test_releases_are_not_mixed(tmp_path: Path) -> None:
    (tmp_path / "old.whl").write_text("", encoding="utf-8")
    command = [sys.executable, str(ROOT / "tools" / "release.py"), "--output", str(tmp_path)]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 1 and "is not empty" in run.stderr


@pytest.mark.parametrize(
    ("subject", "said"),
    [
        ("verify: draw zeros of integers", ""),
        ("x86_avx512, arm_neon: one header", ""),
        ("Merge branch 'legs'", ""),
        ("Draw zeros of integers", "no scope"),
        ("verify: " + "x" * 80, "88 characters"),
        ("verify: draw zeros.", "full stop"),
    ],
)
def test_subjects_of_commits(subject: str, said: str, tmp_path: Path) -> None:
    assert said in commit_subject.problem(subject) and bool(said) == bool(commit_subject.problem(subject))


def test_hosted_files_are_what_they_say() -> None:
    """The workflow calls .ci/run; forms and hooks parse, and hooks call what there is."""
    workflow = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8"))
    assert {"run": ".ci/run"} in workflow["jobs"]["test"]["steps"]
    for form in (ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml"):
        assert yaml.safe_load(form.read_text(encoding="utf-8"))["body"]
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))["repos"][0][
        "hooks"
    ]
    for word in (word for hook in hooks for word in hook["entry"].split() if word.startswith("tools/")):
        assert (ROOT / word).is_file()

"""Build what a release uploads: an sdist and a wheel of the SDK and of each plugin, from the commit alone.

    python tools/release.py [--output dist]

Works on a copy of the commit that is checked out, so that nothing from the working tree gets in. Refuses a
release in which versions differ, the changelog lacks the version, or a wheel lacks a file that its package
has in the repository. RELEASING.md says what comes before and after.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
#: Asks setuptools, as pip does, for both files of the project in the current folder. It changes sys.argv.
BUILD = "import sys; from setuptools.build_meta import *; to = sys.argv[1]; build_sdist(to); build_wheel(to)"


def projects(root: Path) -> list[Path]:
    """The folder of the SDK and those of the plugins."""
    return [root, *(file.parent for file in sorted(root.glob("plugins/*/pyproject.toml")))]


def version(project: Path) -> str:
    """The version in a project's pyproject.toml, or in the module that this names."""
    declared = tomllib.loads((project / "pyproject.toml").read_text(encoding="utf-8"))
    fixed: str | None = declared["project"].get("version")
    if fixed is not None:
        return fixed
    module = declared["tool"]["setuptools"]["dynamic"]["version"]["attr"].rpartition(".")[0]
    text = (project / module.replace(".", "/") / "__init__.py").read_text(encoding="utf-8")
    return re.search(r'^__version__ = "(.*)"$', text, re.MULTILINE)[1]  # type: ignore[index]


def problems(root: Path) -> Iterator[str]:
    """Reasons why the checked-out commit cannot be released."""
    of_sdk = version(root)
    for project in projects(root):
        if version(project) != of_sdk:
            yield f"{project.name} has version {version(project)}, the SDK {of_sdk}"
    if f"## {of_sdk}" not in (root / "CHANGELOG.md").read_text(encoding="utf-8"):
        yield f"CHANGELOG.md has no section '## {of_sdk}'"


def missing_from(wheel: Path, project: Path) -> list[str]:
    """Files of the project's package that its wheel lacks."""
    with zipfile.ZipFile(wheel) as file:
        there = set(file.namelist())
    packages = [folder for folder in project.glob("perfdojo_*") if (folder / "__init__.py").is_file()]
    files = [file for package in packages for file in package.rglob("*") if file.is_file()]
    names = sorted(str(file.relative_to(project)) for file in files if "__pycache__" not in file.parts)
    return [name for name in names if name not in there]


def copy_of_commit(folder: Path) -> Path:
    """Write the files of the current commit to ``folder``."""
    archive = subprocess.run(["git", "-C", ROOT, "archive", "HEAD"], check=True, capture_output=True)
    subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
    return folder


def built(project: Path, output: Path) -> Path:
    """Build a project's sdist and wheel into ``output``; the wheel."""
    before = set(output.glob("*.whl"))
    command = [sys.executable, "-c", BUILD, str(output.resolve())]
    subprocess.run(command, cwd=project, check=True, capture_output=True)
    [wheel] = set(output.glob("*.whl")) - before
    return wheel


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("dist"))
    output: Path = parser.parse_args().output
    if output.exists() and any(output.iterdir()):
        sys.exit(f"{output} is not empty: files of two releases must not be uploaded together")
    output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="perfdojo-release-") as folder:
        root = copy_of_commit(Path(folder))
        found = list(problems(root))
        for project in projects(root) if not found else ():
            wheel = built(project, output)
            found += [f"{wheel.name} lacks {name}" for name in missing_from(wheel, project)]
    print("\n".join(found or sorted(file.name for file in output.iterdir())))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

"""Write ``requirements/*.lock``: every package of a set-up, pinned to a version and the hashes of its files.

Versions are those of ``constraints.txt``; hashes are of all files of a version, for any Python and processor.
Run it when constraints change, with pip-tools beside it: ``python tools/lock.py [NAME ...]``. It asks the
package index that pip is configured for, and names it nowhere.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "requirements"
#: Its wheel is another one on each index (for processors alone, or for one of several versions of CUDA, with
#: packages of that), so it has no hashes that hold everywhere. What it needs on a processor has.
UNSTABLE = "torch"
UNSTABLE_NEEDS = ("filelock", "fsspec", "jinja2", "networkx", "sympy", "typing-extensions")
_COMPILE = (
    "--generate-hashes",
    "--allow-unsafe",
    "--strip-extras",
    "--no-annotate",
    "--no-header",
    "--quiet",
)
_NO_INDEX = ("--no-emit-index-url", "--no-emit-find-links", "--no-emit-trusted-host", "--no-emit-options")


def wanted() -> Mapping[str, list[str]]:
    """Lock -> what it must satisfy: running, developing, and the compiler of those who have none."""
    sdk = _project(ROOT)
    plugins = [_project(file.parent) for file in sorted(ROOT.glob("plugins/*/pyproject.toml"))]
    run = [*_outside(each for project in (sdk, *plugins) for each in project["dependencies"]), "setuptools"]
    extras = {plugin["name"]: plugin.get("optional-dependencies", {}) for plugin in plugins}
    more = [*extras["perfdojo-cuda-gh200"]["nvrtc"], *extras["perfdojo-hip-mi300a"]["zig"]]
    dev = [*run, *_outside(sdk["optional-dependencies"]["dev"]), *UNSTABLE_NEEDS, *more]
    return {"run": run, "dev": dev, "zig": ["ziglang"]}


def _project(folder: Path) -> dict[str, Any]:
    with (folder / "pyproject.toml").open("rb") as file:
        project: dict[str, Any] = tomllib.load(file)["project"]
    return project


def _outside(requirements: Iterable[str]) -> Iterator[str]:
    """Those that an index has, with hashes."""
    return (r for r in requirements if not r.startswith(("perfdojo", UNSTABLE)))


def lock(name: str, requirements: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asked = Path(folder, "requirements.in")
        asked.write_text("\n".join(sorted(set(requirements))) + "\n", encoding="utf-8")
        made = Path(folder, "made.lock")
        command = [sys.executable, "-m", "piptools", "compile", *_COMPILE, *_NO_INDEX]
        subprocess.run([*command, "-c", ROOT / "constraints.txt", "-o", made, asked], check=True, cwd=folder)
        FOLDER.mkdir(exist_ok=True)
        head = f"# Made by tools/lock.py from constraints.txt: {name}.\n"
        (FOLDER / f"{name}.lock").write_text(head + made.read_text(encoding="utf-8"), encoding="utf-8")


if __name__ == "__main__":
    known = wanted()
    for chosen in sys.argv[1:] or known:
        lock(chosen, known[chosen])

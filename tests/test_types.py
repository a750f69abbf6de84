"""Types are checked strictly, everywhere: what the configuration may not leave out. CI runs the checker."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
MYPY = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["mypy"]
FILES = [
    path
    for folder in MYPY["files"]
    for path in sorted((ROOT / folder).rglob("*.py"))
]  # fmt: skip


def test_the_whole_sdk_and_every_plugin_are_checked() -> None:
    plugins = [
        folder.relative_to(ROOT) for folder in ROOT.glob("plugins/*/perfdojo_*/") if _is_package(folder)
    ]
    assert len(plugins) == len([*ROOT.glob("plugins/*/pyproject.toml")])
    assert sorted(MYPY["files"]) == sorted(["perfdojo_sdk", "tools", *map(str, plugins)])


def _is_package(folder: Path) -> bool:
    return (folder / "__init__.py").exists()


def test_nothing_of_ours_is_excused() -> None:
    """Only packages of others are skipped, by name; an ignored line says which error it ignores."""
    assert MYPY.keys() == {"strict", "files", "overrides"} and MYPY["strict"] is True
    (others,) = MYPY["overrides"]
    assert others.keys() == {"module", "follow_imports", "ignore_missing_imports"}
    assert not [name for name in others["module"] if name.startswith("perfdojo") or not name[0].isalpha()]
    vague = re.compile(r"#\s*(mypy:|type:\s*ignore(?!\[[a-z, -]+\]))")
    assert [path for path in FILES if vague.search(path.read_text(encoding="utf-8"))] == []
    assert len(FILES) > 400

"""The outcome of a call of the command line; shared by the tests that make one."""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        return json.loads(self.out)


def clear(outcome: Outcome, exit_code: int, *codes: str) -> None:
    """An error that a person can use."""
    assert "Traceback" not in outcome.err, outcome.err
    assert outcome.code == exit_code, outcome
    assert any(f"error[{code}]: " in outcome.err for code in codes), outcome.err
    assert all(c.isprintable() or c == "\n" for c in outcome.err), repr(outcome.err)


def announce(folder: Path, package: Path) -> None:
    """Metadata in ``folder`` as an installation of ``package`` would leave it."""
    project = tomllib.loads((package / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    name, version = project["name"], project["version"]
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    groups = project["entry-points"].items()
    lines = [f"[{group}]\n" + "".join(f"{k} = {v}\n" for k, v in points.items()) for group, points in groups]
    (info / "entry_points.txt").write_text("\n".join(lines))

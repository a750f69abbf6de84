"""The Makefile's installations are pinned, and the hash of each file is known."""

from __future__ import annotations

import re

import pytest
from command_line import ROOT

from tools import lock

LOCKS = {path.stem: path.read_text(encoding="utf-8") for path in (ROOT / "requirements").glob("*.lock")}
PIN = re.compile(r"^([A-Za-z0-9._-]+)==(\S+)(.*(?:\n .*)*)", re.MULTILINE)


def pins(text: str) -> dict[str, set[str]]:
    """Name -> pinned versions; several where systems differ."""
    found: dict[str, set[str]] = {}
    for name, version, _ in PIN.findall(text):
        found.setdefault(lock.name_of(name), set()).add(version)
    return found


def test_the_locks_are_those_that_are_installed() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert set(re.findall(r"\$\(LOCKS\)/([\w-]+)\.lock", makefile)) == set(LOCKS)


@pytest.mark.parametrize("name", LOCKS)
def test_every_line_is_a_pin_with_hashes_and_no_place(name: str) -> None:
    text = LOCKS[name]
    found = PIN.findall(text)
    assert found and all(rest.count("--hash=sha256:") for _, _, rest in found)
    assert "://" not in text and "--index" not in text and "--find" not in text
    others = [line for line in text.splitlines() if not re.match(r"#|    --hash=sha256:[0-9a-f]{64}", line)]
    assert len(others) == len(found), "nothing but pins"


@pytest.mark.parametrize("tested", [False, True])
def test_whatever_the_projects_ask_for_is_there(tested: bool) -> None:
    known = pins(LOCKS["base"]) | (pins(LOCKS["dev"]) if tested else {})
    missing = {lock.name_of(each) for each in lock.requirements(tested)} - set(known)
    assert not missing, "run tools/lock.py"


def test_the_versions_are_those_of_the_constraints() -> None:
    constraints = pins((ROOT / "constraints.txt").read_text(encoding="utf-8"))
    locked = pins(LOCKS["base"]) | pins(LOCKS["dev"]) | pins(LOCKS["zig"]) | pins(LOCKS["torch"])
    differ = {n: v for n, v in locked.items() if n in constraints and not v >= constraints[n]}
    assert not differ, "run tools/lock.py"

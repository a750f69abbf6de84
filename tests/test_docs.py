"""The documentation says what is: commands in it print what it shows, and its plugin is a plugin.

A ``console`` block runs when it starts with ``$ perfdojo-sdk``; the blocks of a page share a folder.
Output that starts with ``...`` leaves out a program's interface and buffers. With
PERFDOJO_UPDATE_GOLDEN=1 the pages are rewritten with what the commands print.
"""

from __future__ import annotations

import inspect
import os
import re
import shlex
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

import pytest
from command_line import ROOT

from perfdojo_sdk.cli import COMMANDS, main
from perfdojo_sdk.hookspecs import specs
from perfdojo_sdk.plugins import load_plugins

PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
CONSOLE = re.compile(r"```console\n(\$ perfdojo-sdk .*?)```", re.DOTALL)
UPDATE = os.environ.get("PERFDOJO_UPDATE_GOLDEN") == "1"


def run(command: str) -> str:
    out, err = StringIO(), StringIO()
    with redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as leaving:
        main(shlex.split(command)[1:])
    return out.getvalue() + (err.getvalue() if leaving.value.code else "")


def transcript(block: str) -> str:
    """A console block with the output that its command has now."""
    lines = block.splitlines(keepends=True)
    count = 1
    while lines[count - 1].endswith("\\\n"):  # the command goes on
        count += 1
    command, shown = "".join(lines[:count]), "".join(lines[count:])
    output = run(command.removeprefix("$ ").replace("\\\n", " "))
    if shown.startswith("...\n"):
        output = "...\n" + output.partition("\n\n")[2]
    return command + output


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_commands_print_what_the_page_shows(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = page.read_text(encoding="utf-8")
    for name in re.findall(r"--target (\w+)", "".join(CONSOLE.findall(text))):
        if name not in load_plugins().targets:
            pytest.skip(f"the plugin for {name} is not installed")
    monkeypatch.chdir(tmp_path)
    now = CONSOLE.sub(lambda found: f"```console\n{transcript(found[1])}```", text)
    if UPDATE:
        page.write_text(now, encoding="utf-8")
    assert now == text


def test_the_tour_is_played() -> None:
    assert len(CONSOLE.findall((ROOT / "docs/tour.md").read_text(encoding="utf-8"))) >= 8


def test_the_plugin_of_the_documentation_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERFDOJO_PLUGINS", "none_but_the_given_one")
    text = (ROOT / "docs/plugins.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    module = type(os)("documented")
    exec(compile(code, "plugins.md", "exec"), module.__dict__)
    plugins = load_plugins(extra=[module])
    target = plugins.target("abacus")
    assert "v" in plugins.rules(target).dialect.suffixes
    assert plugins.unavailable(target) is not None
    assert [p for p in plugins.problems if p.plugin != "none_but_the_given_one"] == []


def test_every_hook_has_one_line_of_documentation() -> None:
    hooks = [h for name, h in vars(specs).items() if name.startswith("perfdojo_")]
    assert hooks
    for hook in hooks:
        assert len((inspect.getdoc(hook) or "").splitlines()) == 1, hook


def test_the_pages_made_from_the_code_hold_everything() -> None:
    pytest.importorskip("mkdocs")
    from tools import docs_pages

    hooks = docs_pages.hook_reference()
    for name in (n for n in vars(specs) if n.startswith("perfdojo_")):
        assert f"def {name}(" in hooks
    commands = docs_pages.command_reference()
    assert all(f"Usage: perfdojo-sdk {name}" in commands for name in COMMANDS)
    for transformation in docs_pages.GENERIC.values():
        page = docs_pages.move_page(transformation)
        assert "**before**" in page and "**after" in page, transformation.name
        assert all(r.code in page and r.hint in page for r in transformation.requirements)


def test_links_between_pages_lead_somewhere() -> None:
    """Relative links of the README, which the strict build of the pages does not see."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", text):
        assert (ROOT / target).exists(), target

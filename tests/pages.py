"""Pages of the documentation, done as a reader would do them, from top to bottom.

- A `console` block runs its commands and holds what they print. A line `...` stands for any lines (at
  the start for a program's interface and buffers), `...` in a line for the rest of it.
- "New file `PATH`:", or "All of `PATH`:" where there was one before, and the block after it make a file.
- "In `PATH`:" and a `diff` block after it change one: what stands there without the lines that start with
  `+` is found once and becomes what stands there without those that start with `-`.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

import pytest
from command_line import ROOT, announce

from perfdojo_sdk.cli import main
from perfdojo_sdk.measure.toolchain import find_toolchain

COMMANDS = r"perfdojo-sdk|pip install|pytest|python|gcc|\./main"
CONSOLE = re.compile(rf"```console\n(\$ (?:{COMMANDS}) .*?)```", re.DOTALL)
STEP = re.compile(
    CONSOLE.pattern
    + r"|^(?:New file|All of) `([^`\n]+)`:\n\n```\w+\n(.*?)^```"
    + r"|^In `([^`\n]+)`:\n\n```diff\n(.*?)^```",
    re.DOTALL | re.MULTILINE,
)
#: The duration that pytest prints, which is never the same.
DURATION = re.compile(r" in [\d.]+s\b.*")


class Reader:
    """A reader who follows the pages, in one folder and without the network."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.folder, self.patch = folder, patch
        self.installed: dict[str, Path] = {}
        patch.chdir(folder)

    def read(self, text: str) -> str:
        """Do all that a page says; the page as it should be."""
        return STEP.sub(self._step, text)

    def _step(self, found: re.Match[str]) -> str:
        block, new, content, changed, difference = found.groups()
        if block:
            return f"```console\n{self._transcript(block)}```"
        if new:
            self._write(new, content)
        else:
            self._write(changed, changes(self._inside(changed).read_text(encoding="utf-8"), difference))
        return found[0]

    def _inside(self, name: str) -> Path:
        path = (self.folder / name).resolve()
        assert path.is_relative_to(self.folder.resolve()), name
        return path

    def _write(self, name: str, text: str) -> None:
        self._inside(name).parent.mkdir(parents=True, exist_ok=True)
        self._inside(name).write_text(text, encoding="utf-8")

    # -- commands --------------------------------------------------------------------------

    def _transcript(self, block: str) -> str:
        """A console block with the output that its commands have now."""
        commands = re.split(r"^(?=\$ )", block, flags=re.MULTILINE)
        return "".join(self._command(each) for each in commands if each)

    def _command(self, block: str) -> str:
        lines = block.splitlines(keepends=True)
        count = 1
        while lines[count - 1].endswith("\\\n"):  # the command goes on
            count += 1
        command, shown = "".join(lines[:count]), "".join(lines[count:])
        output = self.run(shlex.split(command.removeprefix("$ ").replace("\\\n", " ")))
        if agrees(output, shown):
            return block
        if shown.startswith("...\n"):
            output = "...\n" + output.partition("\n\n")[2]
        return command + output

    def run(self, words: list[str]) -> str:
        """The output of a command; its messages, too, when it fails."""
        if words[0] == "perfdojo-sdk":
            return self._dojo(words[1:])
        if words[:2] == ["pip", "install"]:
            assert words[2] == "-e", f"only projects of this folder are installed here: {words}"
            return self._install(words[3].partition("[")[0])
        said = self._process([*self._program(words[0]), *words[1:]])
        return DURATION.sub("", said.splitlines()[-1]) + "\n" if words[0] == "pytest" else said

    def _program(self, name: str) -> list[str]:
        """The program that a page calls by this name, as it is found here."""
        if name == "gcc":
            return list(find_toolchain().command)
        pytest_here = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        return {"python": [sys.executable], "pytest": pytest_here}.get(name, [name])

    def _dojo(self, words: list[str]) -> str:
        for name in [n for n in sys.modules if n.partition(".")[0] in self.installed]:
            del sys.modules[name]  # a command starts anew, and so sees what a page changed
        out, err = StringIO(), StringIO()
        with redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as leaving:
            main(words)
        return out.getvalue() + (err.getvalue() if leaving.value.code else "")

    def _install(self, project: str) -> str:
        """An editable installation: metadata, and a place on the module path."""
        site = self.folder / "site-packages"
        site.mkdir(exist_ok=True)
        announce(site, self._inside(project))
        for place in (site, self._inside(project)):
            self.patch.syspath_prepend(str(place))
            self.installed |= {p.name: p for p in place.glob("perfdojo_*") if (p / "__init__.py").exists()}
        return ""

    def _process(self, words: list[str]) -> str:
        places = [*(each.parent for each in self.installed.values()), self.folder / "site-packages", ROOT]
        path = os.pathsep.join([*map(str, places), os.environ.get("PYTHONPATH", "")])
        done = subprocess.run(
            words,
            **{"capture_output": True, "text": True, "cwd": self.folder, "timeout": 300},
            env={**os.environ, "PYTHONPATH": path, "PYTEST_ADDOPTS": ""},
        )
        return done.stdout + (done.stderr if done.returncode else "")


def agrees(output: str, shown: str) -> bool:
    """True if a page shows this output, where it may have dots for what differs from machine to machine."""
    lines = shown.splitlines(keepends=True)
    parts = ["(?:.*\n)*?" if line == "...\n" else re.escape(line).replace(r"\.\.\.", ".*") for line in lines]
    return re.fullmatch("".join(parts), output) is not None


def changes(text: str, difference: str) -> str:
    """The text with one change made; AssertionError when its place is not there, or there twice."""
    lines = difference.splitlines(keepends=True)
    old = "".join(line[1:] for line in lines if not line.startswith("+"))
    new = "".join(line[1:] for line in lines if not line.startswith("-"))
    assert text.count(old) == 1, f"{text.count(old)} times in the file:\n{old}"
    return text.replace(old, new)

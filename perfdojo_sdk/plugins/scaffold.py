"""The scaffold of a plugin: the templates beside this module are a complete package for a target my_chip.

Only the name is replaced in them, so a vendor gets exactly the text of the templates.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Collection, Mapping
from importlib import resources
from pathlib import Path

from perfdojo_sdk.core.errors import DojoError
from perfdojo_sdk.core.files import write_whole
from perfdojo_sdk.hookspecs import API_VERSION
from perfdojo_sdk.plugins.plugin import BUILTIN

#: Template -> the file that it becomes; ``my_chip`` is replaced in both.
FILES: Mapping[str, str] = {
    "pyproject.toml": "pyproject.toml",
    "README.md": "README.md",
    "test.yml": ".github/workflows/test.yml",
    "init.py": "perfdojo_my_chip/__init__.py",
    "codegen.py": "perfdojo_my_chip/codegen.py",
    "expert.py": "perfdojo_my_chip/expert.py",
    "target.yaml": "perfdojo_my_chip/my_chip.yaml",
    "test_target.py": "tests/test_my_chip.py",
}

MAX_NAME = 32
_NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
#: Words that stand for no single target on the command line.
_RESERVED = frozenset({"best"})


class ScaffoldError(DojoError):
    """A new plugin cannot have this name or this folder."""


def scaffold(name: str, folder: Path, taken: Collection[str] = ()) -> tuple[Path, ...]:
    """Write a package that brings the target ``name`` into ``folder``, which is made when missing.

    ``taken``: names of plugins and targets that exist. Returns the files, relative to ``folder``.
    :class:`ScaffoldError` when the name cannot be had or the folder holds something; OSError when
    the operating system refuses.
    """
    _check_name(name, taken)
    _check_folder(folder)
    written = []
    for template, place in FILES.items():
        path = Path(_named(place, name))
        write_whole(folder / path, _named(_template(template), name), folder)
        written.append(path)
    return tuple(written)


def _check_name(name: str, taken: Collection[str]) -> None:
    if len(name) > MAX_NAME or not _NAME.fullmatch(name) or name in _RESERVED:
        raise ScaffoldError(
            "PD-G011",
            f"{name!r} cannot be the name of a target",
            why=f"it is words of a-z and 0-9 joined by single underscores, at most {MAX_NAME} characters, "
            f"and none of: {', '.join(sorted(_RESERVED))}",
            hint="for example my_chip",
        )
    if name == BUILTIN:
        raise _taken(name, "the SDK itself is called so, as a package and as a plugin")
    if name in taken:
        raise _taken(name, f"an installed plugin or target is called {name}")
    if importlib.util.find_spec(f"perfdojo_{name}") is not None:
        raise _taken(name, f"there is a Python package perfdojo_{name}")


def _taken(name: str, why: str) -> ScaffoldError:
    hint = "choose another name; `plugins list` shows what is installed"
    return ScaffoldError("PD-G012", f"the name {name} is taken", why=why, hint=hint)


def _check_folder(folder: Path) -> None:
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    why = "it holds something" if folder.is_dir() else "it is no folder"
    hint = "give an empty or new one with --directory"
    raise ScaffoldError("PD-G013", f"cannot write a plugin into {folder}", why=why, hint=hint)


def _template(name: str) -> str:
    return resources.files(__package__).joinpath("templates", f"{name}.tmpl").read_text(encoding="utf-8")


def _named(text: str, name: str) -> str:
    named = text.replace("my_chip", name).replace("my-chip", name.replace("_", "-"))
    return named.replace("@API@", str(API_VERSION))

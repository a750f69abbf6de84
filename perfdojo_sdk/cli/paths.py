"""Paths that a command writes to: an empty one is an error, and not the current folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer


def path_of(word: str | Path) -> Path:
    """The path of that name; typer.BadParameter for an empty one, which may come from an unset variable."""
    if not str(word).strip():
        raise typer.BadParameter("the name is empty; the current folder is called .")
    return Path(word)


def path_option(*names: str, help: str, metavar: str = "PATH", **more: Any) -> Any:
    """An option whose value is a path, checked by :func:`path_of`."""
    return typer.Option(*names, help=help, metavar=metavar, parser=path_of, **more)


def output_option(help: str) -> Any:
    """The option ``--output``; ``help`` describes the file that the command writes."""
    return path_option(*_OUTPUT, help=help)


_OUTPUT: Sequence[str] = ("--output", "-o")

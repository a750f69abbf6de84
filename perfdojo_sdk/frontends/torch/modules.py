"""Modules of files: a class by its name, or one problem in the form of KernelBench.

The file is a program of the user's and is run, as Python would run it: it may import files and
packages beside it (:mod:`.beside`).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch.export import ExportedProgram

from perfdojo_sdk.core.errors import DojoError, closest
from perfdojo_sdk.core.files import read_bounded
from perfdojo_sdk.frontends.torch.beside import Beside, load_of, names_of
from perfdojo_sdk.frontends.torch.named import MOST_BYTES, named_in


class ModuleError(DojoError):
    """A file is no module that can be built."""


def loaded(path: Path) -> ModuleType:
    """The module in a Python file; :class:`ModuleError` if it does not run. What it imports from its folder
    is its own, whatever other files were loaded."""
    load = Beside(path)
    try:
        module = load.run()
    except (Exception, SystemExit) as error:  # the user's code
        file, line = load.place(error) or (path, 0)
        what = f"{file}:{line} does not run" if line else f"{file} does not run"
        raise ModuleError("PD-O023", what, why=load.words(error)) from error
    if module is None:
        what = f"{path} is {'no Python file' if path.exists() else 'not there'}"
        raise ModuleError("PD-O023", what, hint="write FILE.py:NAME of a module or its class")
    return module


def _why(module: ModuleType, error: Exception) -> str:
    """An error of a file's code, with its line."""
    load = load_of(module.__name__)
    if load is None:
        return f"{type(error).__name__}: {error}"
    place = load.place(error)
    return f"{place[0]}:{place[1]}: {load.words(error)}" if place else load.words(error)


def network(path: Path, name: str) -> torch.nn.Module | ExportedProgram:
    """The module ``name`` of a file: a module, or a class or function that makes one without arguments; or a
    program of ``torch.export`` in the same forms."""
    module = loaded(path)
    found = getattr(module, name, None)
    if isinstance(found, ExportedProgram):
        return found
    if isinstance(found, torch.nn.Module):
        return found.eval()
    if not callable(found):
        names = [each.name for each in named_in(read_bounded(path, MOST_BYTES))]
        hint = closest(name, names) if names else "write FILE.py:NAME of a module or its class"
        raise ModuleError("PD-O023", f"{path} has no {name}", hint=hint)
    try:
        with names_of(module.__name__):
            made = found()
    except Exception as error:  # the user's code
        why = _why(module, error)
        hint = f"write a function without arguments that returns a {name}, and name that"
        raise ModuleError("PD-O023", f"{name} of {path} makes no module", why=why, hint=hint) from error
    if isinstance(made, ExportedProgram):
        return made
    if not isinstance(made, torch.nn.Module):
        raise ModuleError("PD-O023", f"{name} of {path} makes a {type(made).__name__}, no module")
    return made.eval()


def input_names(module: torch.nn.Module) -> list[str]:
    """The names of the arguments of ``forward`` that are given by position, in their order."""
    return [parameter.name for parameter in _positional(module)]


def required_inputs(module: torch.nn.Module) -> list[str]:
    """The names of those of them that have no default."""
    several = inspect.Parameter.VAR_POSITIONAL
    return [p.name for p in _positional(module) if p.default is p.empty and p.kind is not several]


def _positional(module: torch.nn.Module) -> list[inspect.Parameter]:
    by_name = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD)
    return [p for p in inspect.signature(module.forward).parameters.values() if p.kind not in by_name]


@dataclass(frozen=True)
class Problem:
    """One problem of KernelBench: a module, and a function that draws its inputs."""

    model: torch.nn.Module
    draw: Callable[[], Sequence[Any]]


def problem(path: Path, seed: int = 0) -> Problem:
    """The problem in a file: ``class Model``, ``get_inputs()`` and ``get_init_inputs()``; in evaluation."""
    module = loaded(path)
    missing = [
        n for n in ("Model", "get_inputs", "get_init_inputs") if not callable(getattr(module, n, None))
    ]
    if missing:
        hint = "a problem has class Model(nn.Module), get_inputs() and get_init_inputs()"
        raise ModuleError("PD-O023", f"{path} has no {missing[0]}", hint=hint)
    torch.manual_seed(seed)
    try:
        with names_of(module.__name__):
            given = module.get_init_inputs()
            is_pair = len(given) == 2 and isinstance(given[0], list | tuple) and isinstance(given[1], dict)
            model = module.Model(*given[0], **given[1]) if is_pair else module.Model(*given)
    except Exception as error:  # the user's code
        why = _why(module, error)
        raise ModuleError("PD-O023", f"{path} makes no Model", why=why) from error
    return Problem(model.eval(), module.get_inputs)

"""The modules that a Python file names at its top level, found in its text: the file is not run."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from perfdojo_sdk.core.errors import DojoError
from perfdojo_sdk.core.files import read_bounded

#: Most bytes of a file of modules.
MOST_BYTES = 4 << 20
#: Methods of a module that return it.
CHAINED = ("eval", "train", "to", "requires_grad_")
#: Names of bases that are modules, whichever package they are from.
BASES = ("Module", "LightningModule")
_Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Named:
    """A name that can be built, or could be if nobody had to give it arguments."""

    name: str
    needs: bool
    """True if it is a class or a function that does not go without arguments."""


def no_name(path: Path) -> DojoError:
    """The error for a Python file of which no module is named: it lists those that the text has."""
    try:
        found = named_in(read_bounded(path, MOST_BYTES))
    except OSError as error:
        return DojoError("PD-O023", f"cannot read {path}: {error.strerror}")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return DojoError("PD-O023", f"{path} is no Python file", why=f"{type(error).__name__}: {error}"[:300])
    ready = [each.name for each in found if not each.needs]
    others = [each.name for each in found if each.needs]
    hint = f"write {path}:NAME, with the name of a module, its class, or a function that makes one"
    if ready:
        hint = f"write {path}:{ready[0]}"
        hint += f"; other modules of the file are {', '.join(ready[1:20])}" if ready[1:] else ""
    why = "" if found else "its text defines no torch.nn.Module at its top level"
    if others:
        why = f"{', '.join(others[:20])}: name a function that makes it, since it takes arguments"
    return DojoError("PD-O023", f"{path} holds modules by name, and no name is given", why=why, hint=hint)


def named_in(text: bytes | str) -> tuple[Named, ...]:
    """The classes of modules, the modules, and the functions that return one, in the order of the text."""
    tree = ast.parse(text)
    short = dict(_imports(tree))
    classes: dict[str, Named] = {}
    every = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    for each in every:
        bases = [_dotted(base, short) for base in each.bases]
        if any(_is_module(base) or base in classes for base in bases):
            classes[each.name] = Named(each.name, _needs(_constructor(each, every)))
    found: dict[str, Named] = {}
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name in classes:
            found[node.name] = classes[node.name]
        elif isinstance(node, ast.Assign | ast.AnnAssign) and _makes(node.value, classes, short):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found.update((t.id, Named(t.id, False)) for t in targets if isinstance(t, ast.Name))
        elif isinstance(node, ast.FunctionDef):
            returned = [n.value for n in ast.walk(node) if isinstance(n, ast.Return)]
            if any(_makes(value, classes, short) for value in returned):
                found[node.name] = Named(node.name, _needs(node, 0))
    return tuple(found.values())


def _imports(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Name in the file -> the dotted name that it stands for."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((a.asname, a.name) for a in node.names if a.asname)
        elif isinstance(node, ast.ImportFrom):
            yield from ((a.asname or a.name, f"{node.module or ''}.{a.name}") for a in node.names)


def _dotted(node: ast.expr, short: dict[str, str]) -> str:
    """The dotted name of an expression, written out; empty if it is none."""
    if isinstance(node, ast.Subscript):  # a generic class
        return _dotted(node.value, short)
    if isinstance(node, ast.Attribute):
        before = _dotted(node.value, short)
        return before and f"{before}.{node.attr}"
    return short.get(node.id, node.id) if isinstance(node, ast.Name) else ""


def _is_module(name: str) -> bool:
    parts = name.split(".")
    in_torch = name.startswith("torch.nn.") and "functional" not in parts and parts[-1][:1].isupper()
    return in_torch and parts[-1] != "Parameter" or parts[-1] in BASES


def _makes(value: ast.expr | None, classes: dict[str, Named], short: dict[str, str]) -> bool:
    """True for a call of a class of modules, and for methods of its result that return it."""
    while isinstance(value, ast.Call):
        name = _dotted(value.func, short)
        if name in classes or _is_module(name):
            return True
        chained = value.func
        if not isinstance(chained, ast.Attribute) or chained.attr not in CHAINED:
            return False
        value = chained.value
    return False


def _constructor(node: ast.ClassDef, classes: list[ast.ClassDef]) -> _Function | None:
    """The constructor of a class, or of one of its bases in the same file."""
    by_name = {each.name: each for each in classes}
    seen: set[str] = set()
    todo = [node]
    while todo:
        here = todo.pop(0)
        for each in here.body:
            if isinstance(each, ast.FunctionDef) and each.name == "__init__":
                return each
        seen.add(here.name)
        names = [base.id for base in here.bases if isinstance(base, ast.Name)]
        todo += [by_name[name] for name in names if name in by_name and name not in seen]
    return None


def _needs(function: _Function | None, own: int = 1) -> bool:
    """True if a function does not go without arguments, ``own`` of which are not the caller's."""
    if function is None:
        return False
    given = function.args
    plain = len(given.posonlyargs) + len(given.args) - len(given.defaults)
    return plain > own or any(default is None for default in given.kw_defaults)

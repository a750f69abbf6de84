"""Imports of the SDK in a plugin's files, read without running them."""

from __future__ import annotations

import ast
import tokenize
from collections.abc import Iterator
from pathlib import Path

import perfdojo_sdk

SDK = "perfdojo_sdk"
_FOLDER = Path(perfdojo_sdk.__file__).parent


def sdk_imports(folder: Path) -> Iterator[tuple[Path, int, str]]:
    """(file, line, module) of every import of the SDK under ``folder``, those inside functions too.

    Folders called ``tests`` are left out, and so are files that are no Python.
    """
    for path in sorted(folder.rglob("*.py")):
        if "tests" in path.relative_to(folder).parts:
            continue
        try:
            with tokenize.open(path) as file:
                tree = ast.parse(file.read())
        except (OSError, SyntaxError, UnicodeDecodeError, ValueError):
            continue
        for node in ast.walk(tree):
            yield from ((path, line, module) for module, line in _modules(node))


def _modules(node: ast.AST) -> Iterator[tuple[str, int]]:
    if isinstance(node, ast.Import):
        found = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
        # `from package import module` is an import of the module.
        found = [
            name if _is_module(name := f"{node.module}.{alias.name}") else node.module for alias in node.names
        ]
    else:
        return
    for module in dict.fromkeys(found):
        if module == SDK or module.startswith(f"{SDK}."):
            yield module, node.lineno


def _is_module(name: str) -> bool:
    """True if a dotted name is a file or folder of the SDK."""
    first, *parts = name.split(".")
    at = _FOLDER.joinpath(*parts)
    return first == SDK and (at.with_suffix(".py").is_file() or (at / "__init__.py").is_file())

"""Common extensions touch few files: CONTRIBUTING.md says how many, and here they are counted."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest
from command_line import ROOT
from made_plugins import Entry, Metadata

from perfdojo_sdk.builtin import perfdojo_operators
from perfdojo_sdk.core.operations import OPERATIONS
from perfdojo_sdk.core.transformation import Transformation
from perfdojo_sdk.core.transformations import GENERIC
from perfdojo_sdk.kernels.selection import select
from perfdojo_sdk.library.build import build_library
from perfdojo_sdk.perfllm.objective import OBJECTIVES
from perfdojo_sdk.plugins import discovery, load_plugins
from perfdojo_sdk.plugins.scaffold import FILES, scaffold

SDK = ROOT / "perfdojo_sdk"


@cache
def words(file: Path) -> frozenset[str]:
    """The names that a file imports, and its strings that are no docstrings."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, documented) and node.body and isinstance(node.body[0], ast.Expr)
    }
    return frozenset(_words(tree, docstrings))


def _words(tree: ast.Module, docstrings: set[int]) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.value
        elif isinstance(node, ast.ImportFrom):
            yield from (alias.name for alias in node.names)


def files_with(word: str, *left_out: str) -> set[str]:
    """Python files of the SDK that use ``word``, but for those in the folders ``left_out``."""
    files = (file.relative_to(SDK) for file in SDK.rglob("*.py"))
    return {str(f) for f in files if f.parts[0] not in left_out and word in words(SDK / f)}


@pytest.mark.parametrize("move", GENERIC.values(), ids=list(GENERIC))
def test_a_move_stands_in_the_file_of_its_family(move: Transformation) -> None:
    assert not files_with(type(move).__name__), "its family lists it; nobody else imports it"


#: Packages with rules for operators of a standard, some of which are named like operations and kernels.
STANDARD = ("graph", "frontends")

#: Operations of no law: nothing but their rows knows them. The others name a part of algebra, such as a sum.
PLAIN = ("tanh", "erf", "trunc")


@pytest.mark.parametrize("name", PLAIN)
def test_an_operation_is_two_rows(name: str) -> None:
    assert name in OPERATIONS
    assert files_with(name, "views", *STANDARD) == {"core/operations.py", "codegen/operations.py"}


#: Packages with examples: texts of the encoder, comparisons with other systems, programs for tests.
EXAMPLES = ("perfllm", "peers", "testing")


@pytest.mark.parametrize(
    "operator", sorted({operator.name for operator in perfdojo_operators()} - set(OPERATIONS))
)
def test_an_operator_stands_in_one_file(operator: str) -> None:
    """In its text, where no string is its name alone; so nowhere in the rest."""
    assert not files_with(operator, *EXAMPLES, *STANDARD)


def test_an_objective_is_a_row() -> None:
    assert files_with("OBJECTIVES") == {"perfllm/settings.py"}
    assert all("perfllm/objective.py" in files_with(name) for name in OBJECTIVES)


NEEDED = ("pyproject.toml", "init.py", "target.yaml", "test_target.py")
PLAIN_GENERATOR = """
from dataclasses import dataclass

from perfdojo_sdk.codegen.c import CEmitter
from perfdojo_sdk.core.dialect import Dialect
from perfdojo_sdk.hookspecs.types import KernelSource


@dataclass(frozen=True)
class Generator:
    dialect: Dialect

    def generate(self, program: Program, symbol: str) -> KernelSource:
        return CEmitter(program, symbol, self.dialect).source()
"""
PLAIN_EXPERT = """
from perfdojo_sdk.core.transformation import Rules, Trace
from perfdojo_sdk.search.passes import greedy


def expert(root: Program, rules: Rules, target: Target) -> tuple[Trace, ...]:
    return (greedy(root, rules),)
"""


def test_a_target_is_four_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a code generator and an expert of its own, which are a file each, a target still builds."""
    scaffold("four_files", tmp_path)
    for template, place in FILES.items():
        if template not in NEEDED:
            (tmp_path / place.replace("my_chip", "four_files")).unlink()
    module = tmp_path / "perfdojo_four_files" / "__init__.py"
    text = module.read_text(encoding="utf-8").replace("from .codegen import Generator\n", PLAIN_GENERATOR)
    text = text.replace("from .expert import expert", PLAIN_EXPERT)
    module.write_text(text, encoding="utf-8")
    assert len([file for file in tmp_path.rglob("*") if file.is_file()]) == 4

    monkeypatch.syspath_prepend(tmp_path)
    entry = Entry("four_files", lambda: import_module("perfdojo_four_files"), targets=["four_files"])
    monkeypatch.setattr(discovery, "entry_points", lambda: Metadata([entry]))
    plugins = load_plugins()
    kernels = select("relu[4,8]", plugins.operators)
    built = build_library(plugins, plugins.require("four_files"), kernels, tmp_path / "library")
    assert built.manifest is not None and not built.failed

"""Docstrings begin with what a thing is or does."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
#: The folders whose docstrings follow the rule.
FOLDERS = ("benchmarks", "perfdojo_sdk", "plugins", "tests", "tools")
#: Write "True if it is legal" for "Whether it is legal", and "The cost of a move" for "What a move costs".
HALF_A_SENTENCE = re.compile(
    r"\s*(Who|Whose|What|Where|How|That|Which|Whether|When|Why|Of|Those|With|From|Everybody|Nobody)\b"
)


def docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and text of every docstring, those after fields included."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            if isinstance(node.value.value, str):
                yield node.lineno, node.value.value


def half_sentences(text: str) -> list[str]:
    """``LINE: WORD`` of each docstring that begins with a word of :data:`HALF_A_SENTENCE`."""
    found = [(line, HALF_A_SENTENCE.match(doc)) for line, doc in docstrings(ast.parse(text))]
    return [f"{line}: {match.group(1)}" for line, match in sorted(found, key=lambda f: f[0]) if match]


@pytest.mark.parametrize("name", FOLDERS)
def test_docstrings_begin_with_what_a_thing_is_or_does(name: str) -> None:
    files = sorted((ROOT / name).rglob("*.py"))
    assert files, f"{name} was renamed or removed"
    found = [
        f"{file.relative_to(ROOT)}:{each}" for file in files for each in half_sentences(file.read_text())
    ]
    assert not found, "\n".join(found)


def test_half_sentences_are_found_in_modules_classes_functions_and_fields() -> None:
    text = """\
QQQWhat it is.QQQ
class A:
    QQQA class.QQQ
    n: int = 0
    QQQHow many.QQQ
    def f(self):
        QQQ
        Whether it is.
        QQQ
        return "Why not"
def whose():
    QQQWhatever and however are other words.QQQ
""".replace("QQQ", '"' * 3)
    assert half_sentences(text) == ["1: What", "5: How", "7: Whether"]

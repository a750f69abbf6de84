"""Programs written by hand and the relation between two, as the tests of the dependence leg write them.

One line for each new statement. So nothing here leans on the transformations.
"""

from __future__ import annotations

import re

from perfdojo_sdk.core.dialect import CORE_DIALECT
from perfdojo_sdk.core.expression import AffineExpr
from perfdojo_sdk.core.program import Program, Statement
from perfdojo_sdk.core.text import parse
from perfdojo_sdk.core.transformation import (
    Definition,
    Instance,
    Kind,
    Origin,
    PartialCombine,
    PartialStart,
    Relation,
)
from perfdojo_sdk.verify.dependence import DependenceReport, verify_dependence

NEW: dict[str, Origin] = {
    "definition": Definition(),
    "start": PartialStart(),
    "combine": PartialCombine(),
}
TERM = re.compile(r"([+-]?)(?:\{(\d+)\}(?:\*(\d+))?|(\d+))")


def index(text: str) -> AffineExpr:
    """``{0}*16+{1}-1``"""
    constant, coefficients = 0, dict[int, int]()
    for sign, level, factor, number in TERM.findall(text):
        value = int(factor or number or 1) * (-1 if sign == "-" else 1)
        if level:
            coefficients[int(level)] = value
        else:
            constant += value
    return AffineExpr.of(coefficients, constant)


def origin(text: str) -> Origin:
    """``definition``, or ``c1 {0}*16+{1} {2}``: the old statement and its iterators."""
    statement, *forms = text.split()
    return NEW[text] if text in NEW else Instance(statement, tuple(map(index, forms)))


def kernel(declarations: str, body: str) -> Program:
    """Inputs x and z, output y; one declaration a line."""
    names = {line.split()[0] for line in declarations.strip().splitlines()}
    inputs = ", ".join(name for name in ("x", "z") if name in names)
    return parse(f"kernel k({inputs}) -> y\n{declarations.strip()}\n\n{body.strip()}\n")


def check(
    before: Program,
    after: Program,
    *origins: str,
    kind: Kind = Kind.EXACT,
    laws: frozenset[str] = frozenset(),
) -> DependenceReport:
    statements = [node.id for _, node in after.walk() if isinstance(node, Statement)]
    assert len(statements) == len(origins) or not origins
    relation: Relation = dict(zip(statements, map(origin, origins), strict=bool(origins)))
    return verify_dependence(before, after, relation, CORE_DIALECT, kind, laws)


def proved(report: DependenceReport) -> bool:
    assert report.problem == ""
    return report.ok and report.seconds > 0


def refuted(report: DependenceReport, *words: str) -> bool:
    assert not report.ok
    for word in words:
        assert word in report.problem
    return True


TWO = "x f32 [8,16] heap\ny f32 [8] heap"
SUM = kernel(TWO, "8\n| y[{0}] = 0\n| 16 y[{0}] += x[{0},{1}]")
STAGED = "x f32 [4,8] heap\nb f32 [4,8] heap\ny f32 [4,8] heap"

"""The views of a program show what its tree computes: equations are evaluated, drawings are read back."""

from __future__ import annotations

import dataclasses
import itertools
import math
import os
import shutil
import subprocess
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

import pytest
from snippets import DIALECT, RULES

from perfdojo_sdk.core.domains import FLOAT64
from perfdojo_sdk.core.dtypes import FLOAT_DTYPES
from perfdojo_sdk.core.expression import (
    Access,
    AffineExpr,
    Cast,
    Expression,
    IndexValue,
    Literal,
    Operation,
    Read,
)
from perfdojo_sdk.core.interpreter import interpret
from perfdojo_sdk.core.lookups import Lookup
from perfdojo_sdk.core.operations import identity
from perfdojo_sdk.core.program import Program, Scope, Statement
from perfdojo_sdk.core.storage import Buffer, Dimension
from perfdojo_sdk.core.text import parse
from perfdojo_sdk.testing.programs import random_program
from perfdojo_sdk.testing.walks import random_walk
from perfdojo_sdk.views import code, drawing, graph
from perfdojo_sdk.views.equations import Equation, Item, Loop, Repeat, equations
from perfdojo_sdk.views.formula import latex_math, unicode_math
from tests import programs

GOLDEN = Path(__file__).parent / "golden" / "views"
EXAMPLES = {
    "softmax": programs.SOFTMAX,
    "softmax_partial": programs.SOFTMAX_PARTIAL,
    "matmul_tiled": programs.MATMUL_TILED,
    "layer_norm": programs.LAYER_NORM,
}


def golden(name: str, text: str) -> None:
    path = GOLDEN / name
    if os.environ.get("PERFDOJO_UPDATE_GOLDEN") == "1":
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


# -- mathematics: evaluated as it is written, it gives what the interpreter gives ------------------


class Evaluator:
    """Reads equations in order, as a person would with paper and pencil."""

    def __init__(self, program: Program, inputs: Mapping[str, list[float]]) -> None:
        self.program = program
        tables = {
            b.name: [FLOAT64.literal(v, b.dtype) for v in b.values] for b in program.buffers if b.values
        }
        given = {**inputs, **tables}
        self.cells = {b.name: dict(enumerate(given.get(b.name, ()))) for b in program.buffers}
        self.at: dict[int, int] = {}

    def place(self, access: Access) -> tuple[dict[int, float], int]:
        buffer = self.program.buffer_of[access.array]
        depth = max(self.at, default=-1) + 1
        address = buffer.address(access.subscripts)
        chosen = [(part, c) for part, c in address.quotients if isinstance(part, Lookup)]
        plain = AffineExpr.of(address.coefficients, address.constant, address.divisions)
        where = plain.evaluate([self.at.get(l, 0) for l in range(depth)])
        return self.cells[buffer.name], where + sum(c * int(self.value(part.value)) for part, c in chosen)

    def value(self, value: Expression) -> float:
        if isinstance(value, Literal):
            return FLOAT64.literal(value.value, value.dtype)
        if isinstance(value, IndexValue):
            depth = max(self.at, default=-1) + 1
            form = value.index.evaluate([self.at.get(l, 0) for l in range(depth)])
            return FLOAT64.index_value(value.dtype)(form)
        if isinstance(value, Read):
            cells, where = self.place(value.access)
            return cells[where]
        if isinstance(value, Cast):
            return FLOAT64.cast(value.argument.dtype, value.dtype)(self.value(value.argument))
        assert isinstance(value, Operation)
        if value.name == "select":
            condition, one, other = value.arguments
            return self.value(one if self.value(condition) else other)
        function = FLOAT64.operation(value.name, value.operand_dtype)
        return function(*(self.value(a) for a in value.arguments))

    def holds(self, guard: tuple[AffineExpr, ...]) -> bool:
        depth = max(self.at, default=-1) + 1
        return all(f.evaluate([self.at.get(l, 0) for l in range(depth)]) >= 0 for f in guard)

    def run(self, items: tuple[Item, ...]) -> None:
        for item in items:
            if isinstance(item, Repeat):
                for _ in self.all(item.loops):
                    self.run(item.body)
            else:
                assert isinstance(item, Equation)
                self.equation(item)

    def equation(self, item: Equation) -> None:
        outer, last = (item.loops[:-1], item.loops[-1:]) if item.together else (item.loops, ())
        for _ in self.all(outer):
            found = [
                (*self.place(item.target), self.right(item))
                for _ in self.all(last)
                if self.holds(item.guard) and not self.idle(item)
            ]
            for cells, where, value in found:
                cells[where] = value

    def idle(self, item: Equation) -> bool:
        """True if nothing is added to a cell that holds nothing yet: the program does not touch it."""
        if item.operation is None or not item.terms or not isinstance(item.start, Read):
            return False
        cells, where = self.place(item.start.access)
        return where not in cells and not any(self.holds(item.terms) for _ in self.all(item.over))

    def right(self, item: Equation) -> float:
        if item.operation is None:
            return self.value(item.value)
        total = self.value(item.start) if item.start else identity(item.operation, item.value.dtype)
        combine = FLOAT64.operation(item.operation, item.value.dtype)
        for _ in self.all(item.over):
            if self.holds(item.terms):
                total = combine(total, self.value(item.value))
        return total

    def all(self, loops: tuple[Loop, ...]) -> Any:
        for values in itertools.product(*(range(loop.size) for loop in loops)):
            self.at |= {loop.level: value for loop, value in zip(loops, values)}
            yield
        for loop in loops:
            self.at.pop(loop.level, None)


def agree(program: Program, rng: Random) -> None:
    def drawn(name: str) -> list[float]:
        buffer = program.buffer_of[name]
        integers = buffer.dtype not in FLOAT_DTYPES
        return [rng.randint(-9, 9) if integers else rng.uniform(-2, 2) for _ in range(buffer.cells)]

    inputs = {name: drawn(name) for name in program.given}
    expected = interpret(program, inputs, FLOAT64, DIALECT)
    evaluator = Evaluator(program, inputs)
    evaluator.run(equations(program, DIALECT))
    for name in program.outputs:
        found = evaluator.cells[program.buffer_of[name].name]
        for k, value in enumerate(expected[name]):
            assert found[k] == value or math.isnan(value) or math.isclose(found[k], value, rel_tol=1e-9), (
                f"{name}[{k}]: {found[k]} instead of {value}\n{program}\n{unicode_math(program, DIALECT)}"
            )


@pytest.mark.parametrize("seed", range(80))
def test_the_equations_give_what_the_program_gives(seed: int) -> None:
    rng = Random(seed)
    trace = random_walk(rng, random_program(rng, rng.randint(2, 7)), RULES, 8)
    for program in (trace.root, trace.program):
        agree(program, rng)


def test_an_initialisation_joins_what_accumulates_on_it() -> None:
    """Also with other statements between, and with a start that is not the identity."""
    text = """
    kernel f(x, b) -> y, z
    x f32 [4,6] heap
    b f32 [4] heap
    y f32 [4] heap
    z f32 [4] heap

    4 y[{0}] = b[{0}] * 2
    4 z[{0}] = b[{0}]
    6 4 y[{1}] += x[{1},{0}]
    """
    program = parse(_plain(text))
    z, y = equations(program)
    assert isinstance(z, Equation) and isinstance(y, Equation)
    assert y.over == (Loop(0, 6),) and y.loops == (Loop(1, 4),) and y.start is not None
    assert y.start.text == "b[{1}] * 2" and y.defines
    agree(program, Random(0))


@pytest.mark.parametrize(
    "tree",
    [
        "4 y[{0}] = x[0,{0}]\n4 z[{0}] = y[{0}]\n6 4 y[{1}] += x[{0},{1}]",  # read in between
        "4 y[{0}] = z[{0}]\n4 z[{0}] = 3\n6 4 y[{1}] += x[{0},{1}]",  # its start changes in between
        "4 y[{0}] = 0\n6 3 y[{1}] += x[{0},{1}]",  # other cells
        "4 y[{0}] = 0\n6 4 y[{1}] += y[{1}]",  # reads itself
        "4 y[{0}] = 1\n4 y[{0}] += y[3-{0}]",  # reads itself elsewhere
        "3 2 y[{0}+{1}] = 0\n3 2 6 y[{0}+{1}] += x[{2},{0}]",  # some cells twice
    ],
)
def test_an_initialisation_stays_apart_where_joining_would_be_wrong(tree: str) -> None:
    head = "kernel f(x) -> y, z\nx f32 [6,4] heap\ny f32 [4] heap\nz f32 [4] heap\n\n4 z[{0}] = 7\n"
    program = parse(f"{head}{tree}\n")
    items = equations(program)
    assert len(items) == 1 + len(tree.splitlines())
    agree(program, Random(0))


def test_lanes_that_read_what_they_write_are_worked_out_at_once() -> None:
    head = "kernel f(x) -> y\nx f32 [8] heap\ny f32 [8] heap\n\n"
    text = f"{head}8 y[{{0}}] = x[{{0}}]\n7:v y[{{0}}+1] = y[{{0}}] + 1\n"
    program = parse(text, DIALECT)
    agree(program, Random(0))
    assert "i < 7, at once" in unicode_math(program, DIALECT)
    assert "at once" not in unicode_math(parse(text.replace("7:v", "7")))


def test_what_shares_memory_is_said() -> None:
    text = """
    kernel f(x) -> y
    x f32 [4,6] heap
    t f32 [4:N,6:N] heap -> p, q
    y f32 [4,6] heap

    4
    | 6
    | | p[{0},{1}] = x[{0},{1}]
    | | y[{0},{1}] = q[{0},0]
    """
    shown = unicode_math(parse(_plain(text)))
    assert "p, q are names of one array" in shown
    assert "all indices of dimension 1 of p share one element" in shown
    assert "dimension 0 of p" not in shown


def _plain(text: str) -> str:
    return "\n".join(line[4:] for line in text.splitlines()[1:])


@pytest.mark.parametrize("name", EXAMPLES)
def test_mathematics_reads_as_it_should(name: str) -> None:
    program = programs.program(EXAMPLES[name])
    golden(f"{name}.txt", unicode_math(program, programs.DIALECT))
    golden(f"{name}.tex", latex_math(program, programs.DIALECT))


def test_brackets_stand_where_the_tree_needs_them() -> None:
    values = {
        "(x[{0}] + 1) * 2": "(x[i] + 1) \u00b7 2",
        "x[{0}] - (1 - x[{0}])": "x[i] \u2212 (1 \u2212 x[i])",
        "x[{0}] / (2 * x[{0}])": "x[i] / (2 \u00b7 x[i])",
        "-(x[{0}] + 1)": "\u2212(x[i] + 1)",
        "x[{0}] * -2": "x[i] \u00b7 \u22122",
        "-(-2)": "\u2212\u22122",
        "index({0}*3-7) * x[7-{0}]": "(3i\u22127) \u00b7 x[\u2212i+7]",
        "select(x[{0}] < 0, -x[{0}], 1) * 2": "(\u2212x[i] if [x[i] < 0] else 1) \u00b7 2",
        "floor(x[{0}%4]) + x[{0}//2*2]": "\u230ax[(i mod 4)]\u230b + x[2\u230ai/2\u230b]",
        "f32(x[{0}] >= 1) + x[({0}+1)//3]": "f32([x[i] \u2265 1]) + x[\u230a(i+1)/3\u230b]",
        "sqrt(abs(max(x[{0}], {0})))": "\u221a(|max(x[i], i)|)",
    }
    for value, expected in values.items():
        program = parse(f"kernel f(x) -> y\nx f32 [8] heap\ny f32 [8] heap\n\n8 y[{{0}}] = {value}\n")
        assert f"y[i] = {expected}   i < 8" in unicode_math(program), value


def test_conditions_stand_where_they_bind() -> None:
    head = "kernel f(x) -> y\nx f32 [8] heap\ny f32 [8] heap\n\n8 y[{0}] = 0\n"
    alone = unicode_math(parse(head + "8 y[{0}] = x[{0}] if {0} >= 2 and {0} <= 5\n"))
    assert "y[i] \u2190 x[i]   i < 8, i \u2265 2, i \u2264 5" in alone
    below = latex_math(parse(head + "8 3 y[{0}] += x[{0}+{1}-1] if {0}+{1} >= 1 and {0}+{1} <= 8\n"))
    assert r"y_{i} &= \sum_{0 \le j < 3,\ i+j \ge 1,\ i+j \le 8} x_{i+j-1} && 0 \le i < 8" in below


def test_letters_of_iterators_are_no_names_of_arrays() -> None:
    text = "kernel f(i) -> k\ni f32 [8,2] heap\nk f32 [8,2] heap\n\n8 2 k[{0},{1}] = i[{0},{1}]\n"
    assert "k[j,l] = i[j,l]   j < 8, l < 2" in unicode_math(parse(text))


@dataclasses.dataclass(frozen=True)
class Novelty:
    """A kind of value that no view has heard of."""

    text: str = "frobnicate({0})"
    dtype: str = "f32"
    precedence: int = 3
    reads: tuple[Access, ...] = ()


def test_an_unknown_value_is_shown_as_the_program_spells_it() -> None:
    program = parse("kernel f(x) -> y\nx f32 [8] heap\ny f32 [8] heap\n\n8 y[{0}] = x[{0}]\n")
    scope = program.body[0]
    assert isinstance(scope, Scope) and isinstance(scope.body[0], Statement)
    novel: Any = Novelty()
    changed = scope.with_body((dataclasses.replace(scope.body[0], value=novel),))
    program = program.with_body((changed,))
    assert "y[i] = frobnicate(i)   i < 8" in unicode_math(program)
    assert r"\texttt" in latex_math(program)
    assert "frobnicate" in graph.dot(program) and "frobnicate" in drawing.svg(program)


TABLE = parse("""kernel pick(x) -> y
x f32 [6,4] heap
order table i32 [4] = {5, 0, 3, 2}
y f32 [4,4] heap

4 4 y[{0},{1}] = x[order[{0}],{1}]
""")


LONG = TABLE.text.replace("[4] = {5, 0, 3, 2}", f"[20] = {{{', '.join(['1'] * 20)}}}")


def test_the_views_show_what_a_table_holds() -> None:
    text = unicode_math(TABLE)
    assert "order = 5, 0, 3, 2" in text and "pick: x \u2208 \u211d[6 \u00d7 4] \u2192" in text
    assert "% order = 5, 0, 3, 2" in latex_math(TABLE)
    assert "i32 [4] table = 5, 0, 3, 2" in graph.dot(TABLE)
    assert "1, 1, ... (20 in all)" in unicode_math(parse(LONG))


def test_the_views_show_which_inputs_are_packed() -> None:
    program = parse(
        "kernel k(w) -> y\nw packed i4 [3,5] heap\ny f32 [3,5] heap\n\n3 5 y[{0},{1}] = f32(w[{0},{1}])\n"
    )
    assert "w \u2208 \u2124[3 \u00d7 5] (packed i4)" in unicode_math(program)
    assert "packed i4 [3,5] heap" in graph.dot(program)


def test_the_views_know_every_field_of_a_node() -> None:
    """A field that the language gains must be shown; then this test is to be brought up to date."""
    fields = {
        node: {f.name for f in dataclasses.fields(node)} for node in (Statement, Scope, Buffer, Dimension)
    }
    assert fields == {
        Statement: {"target", "value", "accumulate", "dtype", "id", "guard"},
        Scope: {"size", "body", "suffix", "id"},
        Buffer: {"name", "dtype", "dimensions", "location", "arrays", "values", "file", "packed"},
        Dimension: {"size", "suffix"},
    }


# -- the graph -------------------------------------------------------------------------------------

SVG = "{http://www.w3.org/2000/svg}"


def boxes(image: ET.Element) -> dict[str, tuple[float, float, float, float]]:
    """Node -> left, top, right, bottom."""
    found = {}
    for group in image.iter(f"{SVG}g"):
        rect = group.find(f"{SVG}rect")
        assert rect is not None
        x, y, w, h = (float(rect.attrib[k]) for k in ("x", "y", "width", "height"))
        found[group.attrib["id"]] = (x, y, x + w, y + h)
    return found


@pytest.mark.parametrize("seed", range(20))
def test_a_drawing_is_complete_and_nothing_overlaps(seed: int) -> None:
    rng = Random(seed)
    program = random_walk(rng, random_program(rng, rng.randint(2, 9)), RULES, 6).program
    image = ET.fromstring(drawing.svg(program))
    found, drawn = boxes(image), graph.graph(program)
    assert set(found) == {v.name.replace(" ", "-") for v in drawn.vertices}
    assert len([p for p in image.iter(f"{SVG}path") if p.get("class") == "edge"]) == len(drawn.edges)
    width, height = float(image.attrib["width"]), float(image.attrib["height"])
    for a, b in itertools.combinations(found.values(), 2):
        assert a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1]
    assert all(min(l, t) >= 0 and r <= width + 1 and b <= height + 1 for l, t, r, b in found.values())


@pytest.mark.parametrize("seed", range(10))
def test_every_access_is_an_edge(seed: int) -> None:
    program = random_program(Random(seed), 6)
    drawn = graph.graph(program)
    labels = {(e.source, e.target): e.label for e in drawn.edges}
    wanted, changed = set(), set[str]()

    def vertex(array: str) -> str:
        return f"array {array} changed" if array in changed else f"array {array}"

    for path, node in program.walk():
        if isinstance(node, Statement):
            sizes = [s.size for s in program.ancestors(path)]
            for read in node.every_read:
                key = (vertex(read.array), f"statement {node.id}")
                wanted.add(key)
                moves = "\u00d7".join(str(sizes[level]) for level in read.levels)
                assert not moves or moves in labels[key].split(", ")
            if node.target.array in program.in_out - changed:
                wanted.add((vertex(node.target.array), f"statement {node.id}"))
                changed.add(node.target.array)
            wanted.add((f"statement {node.id}", vertex(node.target.array)))
    assert {(e.source, e.target) for e in drawn.edges} == wanted


def test_edges_carry_the_loops_that_the_access_moves_over() -> None:
    drawn = graph.graph(programs.program(programs.SOFTMAX))
    labels = {(e.source, e.target): e.label for e in drawn.edges}
    assert labels["array x", "statement c2"] == "8\u00d716" and labels["array m", "statement c2"] == "8"
    assert labels["statement c1", "array m"] == "max= 8"


def test_the_graph_for_graphviz() -> None:
    text = graph.dot(programs.program(programs.SOFTMAX))
    golden("softmax.dot", text)
    if shutil.which("dot"):
        subprocess.run(["dot", "-Tsvg"], input=text, text=True, check=True, capture_output=True)


def test_a_graph_that_nobody_could_read_is_refused() -> None:
    lines = "".join(f"y[{{0}}] = x[{{0}}] * {k}\n| " for k in range(600))[: -len("\n| ")]
    program = parse(f"kernel f(x) -> y\nx f32 [8] heap\ny f32 [8] heap\n\n8\n| {lines}\n")
    with pytest.raises(drawing.DrawingError, match="too large to draw"):
        drawing.svg(program)
    assert graph.dot(program).count("->") == 1200


# -- code ------------------------------------------------------------------------------------------


def test_code_without_a_target_is_plain_c() -> None:
    program = programs.program(programs.SOFTMAX)
    text = code.code(program, programs.DIALECT)
    assert "int pd_softmax(const float *restrict x, float *restrict y" in text and "for (int64_t i0" in text

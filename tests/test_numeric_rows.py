"""The numeric leg on large programs, of which it looks at some rows."""

from __future__ import annotations

from itertools import product
from math import prod

import numpy as np
import pytest
from numeric_checks import ACCURACY, SOFTMAX, SOFTMAX_LOOP, check, run_reference
from numeric_kernels import RUNNER, program

from perfdojo_sdk.codegen.c import CEmitter
from perfdojo_sdk.core.dialect import CORE_DIALECT
from perfdojo_sdk.core.laws import FILTER, RECIPROCAL
from perfdojo_sdk.core.transformation import Rules, Step
from perfdojo_sdk.core.transformations import GENERIC
from perfdojo_sdk.hookspecs.types import Artifact
from perfdojo_sdk.verify import references as reference_programs
from perfdojo_sdk.verify.independent_rows import outermost_rows
from perfdojo_sdk.verify.inputs import draw
from perfdojo_sdk.verify.numeric import NumericReport, verify_numeric
from perfdojo_sdk.verify.reference_c import BOUNDED, ROWS, WIDE
from perfdojo_sdk.verify.references import References, quick_instances


@pytest.mark.parametrize("memory", [1, 2 * 16 * 48 * 4, 1 << 20], ids=["one by one", "two", "together"])
def test_large_program_is_checked_on_rows(monkeypatch: pytest.MonkeyPatch, memory: int) -> None:
    import perfdojo_sdk.verify.numeric as numeric

    monkeypatch.setattr(numeric, "_MOST_BYTES", memory)
    monkeypatch.setattr(reference_programs, "_FULL_INSTANCES", 10)
    monkeypatch.setattr(reference_programs, "_ROW_INSTANCES", 1000)
    monkeypatch.setattr(reference_programs, "_VALUE_INSTANCES", 1000)
    report = check(SOFTMAX, SOFTMAX_LOOP)
    assert report.ok, report.problem
    assert report.classes[0].elements > 16 * 48 > report.classes[1].elements > 0
    # A fault in one row that the sample need not contain: the first class looks at all of them.
    report = check(SOFTMAX, SOFTMAX_LOOP + "y[7*48 + 5] *= 1.01f;")
    assert not report.ok and "y[7,5]" in report.problem


def test_where_a_row_is_dear_only_the_first_and_the_last_are_taken() -> None:
    root = program(SOFTMAX)
    references = References(root, root, ACCURACY, CORE_DIALECT, 0, False)
    assert references.choose_rows(1).tolist() == [[0], [15]]
    assert 2 < len(references.choose_rows(1200)) < 16
    assert references.choose_rows(10**6).tolist() == [[k] for k in range(16)]


def test_a_quick_comparison_knows_what_it_looks_at(monkeypatch: pytest.MonkeyPatch) -> None:
    root = program(SOFTMAX)
    whole, row = 16 * (48 * 4 + 2), 48 * 4 + 2
    assert quick_instances(root, root) == whole, "a small program is looked at as a whole"
    monkeypatch.setattr(reference_programs, "_FULL_INSTANCES", 10)
    assert quick_instances(root, root) == whole, "as many rows as there are"
    monkeypatch.setattr(reference_programs, "_ROW_INSTANCES", 5 * row)
    assert quick_instances(root, root) == 5 * row
    monkeypatch.setattr(reference_programs, "_ROW_INSTANCES", 1)
    assert quick_instances(root, root) == 2 * row, "the first and the last at least"
    assert quick_instances(root, root, {RECIPROCAL}) == 2 * row, "the bound of rows knows reciprocals"
    assert quick_instances(root, root, {FILTER}) == whole, "the bound of rows does not hold"


#: A product of each of three pairs of matrices: levels that are rows, and below them one that is summed over.
PRODUCTS = """kernel products(a, b) -> c
a f32 [3,6,4] heap
b f32 [3,4,8] heap
c f32 [3,6,8] heap

3 6 8
| c[{0},{1},{2}] = 0
| 4 c[{0},{1},{2}] += a[{0},{1},{3}] * b[{0},{3},{2}]
"""
#: The same with the first two dimensions of the result in the other order.
SWAPPED = PRODUCTS.replace("[3,6,8]", "[6,3,8]").replace("c[{0},{1}", "c[{1},{0}")
PRODUCTS_LOOP = """
for (int n = 0; n < 3; n++) for (int i = 0; i < 6; i++) for (int j = 0; j < 8; j++) {
    float s = 0;
    for (int k = 0; k < 4; k++) s += a[(n*6 + i)*4 + k] * b[(n*4 + k)*8 + j];
    c[(n*6 + i)*8 + j] = s;
}"""
#: The transposed sums: the second iterator stands in another dimension than in the array of the first nest.
TRANSPOSED = """kernel transposed(x) -> y
x f32 [4,6,6] heap
t f32 [4,6,6] heap
y f32 [4,6,6] heap

4 6 6 t[{0},{1},{2}] = x[{0},{1},{2}] * 2
4 6 6 y[{0},{1},{2}] = t[{0},{2},{1}] + 1
"""
TRANSPOSED_LOOP = """
for (int n = 0; n < 4; n++) for (int i = 0; i < 6; i++) for (int j = 0; j < 6; j++)
    y[n*36 + i*6 + j] = x[n*36 + j*6 + i] * 2 + 1;"""


def test_as_many_levels_make_a_row_as_it_takes() -> None:
    root = program(PRODUCTS)
    # 3 * 6 * 8 cells, each of one assignment and four additions.
    for most, sizes in [(240, (3,)), (239, (3, 6)), (40, (3, 6)), (39, (3, 6, 8)), (0, (3, 6, 8))]:
        rows = outermost_rows(root, most)
        assert rows is not None and rows.sizes == sizes
        assert rows.dimensions["c"] == tuple(range(len(sizes)))
        assert "a" not in rows.dimensions, "inputs are read from anywhere"
    swapped = outermost_rows(program(SWAPPED), 40)
    assert swapped is not None and swapped.dimensions["c"] == (1, 0)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(TRANSPOSED.replace("t[{0},{2},{1}]", "t[{0},{1}//2,{2}//3]"), id="not alone"),
        pytest.param(
            TRANSPOSED.replace("4 6 6 y", "4 6 6 t[{0},{1},{2}] += t[{0},{2},{1}]\n4 6 6 y"), id="both ways"
        ),
        pytest.param(
            TRANSPOSED.replace("4 6 6 y[{0},{1},{2}] = t[{0},{2},{1}]", "4 3 12 y[{0},{1}*2,{2}//2] = 1"),
            id="other sizes",
        ),
        pytest.param(SOFTMAX, id="reduced"),
    ],
)
def test_a_level_that_does_not_qualify_ends_the_rows(text: str) -> None:
    rows = outermost_rows(program(text))
    assert rows is not None and len(rows.sizes) == 1


#: A product and a copy of its input side by side: the channels of the result are written in two forms.
BESIDE = """
kernel beside(a, w) -> y, c
a f32 [2,3,6,8] heap
w f32 [4,3] heap
y f32 [2,4,6,8] heap
c f32 [2,7,6,8] heap

2 4 6 8
| y[{0},{1},{2},{3}] = 0
| 3 y[{0},{1},{2},{3}] += a[{0},{4},{2},{3}] * w[{1},{4}]
2 3 6 8 c[{0},{1},{2},{3}] = a[{0},{1},{2},{3}]
2 4 6 8 c[{0},{1}+3,{2},{3}] = y[{0},{1},{2},{3}]
"""


def test_a_level_that_does_not_qualify_belongs_to_each_row() -> None:
    root = program(BESIDE)
    for most, sizes, levels in ((10**6, (2,), (0,)), (300, (2, 6), (0, 2)), (1, (2, 6, 8), (0, 2, 3))):
        rows = outermost_rows(root, most)
        assert rows is not None and rows.sizes == sizes
        assert rows.dimensions == {"y": levels, "c": levels}
        inputs = draw("random", root, 1)
        wanted = np.array([[0, 0, 0], [1, 4, 3], [1, 5, 7]], np.int32)[:, : len(levels)]
        whole = run_reference(WIDE, BESIDE, inputs)
        for kind, name in product((WIDE, BOUNDED), ("y_v", "c_v")):
            given = {**inputs, ROWS: wanted}
            some = run_reference(kind, BESIDE, given, rows=3, split=rows, any_order=True)[name]
            assert np.array_equal(some, np.moveaxis(whole[name], levels, range(len(levels)))[tuple(wanted.T)])


#: Sequences, each with a state that one step hands to the next; the loop over time stands outside.
RECURRENCE = """
kernel recurrence(x, w, s) -> y, z
x f32 [3,4,5] heap
w f32 [5,5] heap
s f32 [4,5] heap
h f32 [4,5] heap
t f32 [4,5] heap
y f32 [3,4,5] heap
z f32 [4,5] heap

4 5 h[{0},{1}] = s[{0},{1}]
3
| 4 5 t[{1},{2}] = x[{0},{1},{2}]
| 4 5 5 t[{1},{2}] += h[{1},{3}] * w[{2},{3}]
| 4 5 h[{1},{2}] = max(t[{1},{2}], 0)
| 4 5 y[-{0}+2,{1},{2}] = h[{1},{2}]
4 5 z[{0},{1}] = h[{0},{1}]
"""
#: A sum over the outer loop, and two programs that share nothing.
ACROSS = """
kernel across(x) -> y, z
x f32 [4,8] heap
y f32 [8] heap
z f32 [8,2] heap

8 y[{0}] = 0
4 8 y[{1}] += x[{0},{1}]
2 8 z[{1},{0}] = x[{0},{1}]
"""


@pytest.mark.parametrize(
    ("text", "sizes", "dimensions"),
    [
        pytest.param(TRANSPOSED, (4, 6, 6), {"t": (0, 1, 2), "y": (0, 2, 1)}, id="transposed"),
        pytest.param(
            PRODUCTS.replace("3 6 8\n| c[{0},{1},{2}] = 0\n| 4", "3\n| 6 8 c[{0},{1},{2}] = 0\n| 6 8 4"),
            (3, 6, 8),
            {"c": (0, 1, 2)},
            id="side by side",
        ),
        pytest.param(RECURRENCE, (4,), {"h": (0,), "t": (0,), "y": (1,), "z": (0,)}, id="recurrence"),
        pytest.param(ACROSS, (8,), {"y": (0,), "z": (0,)}, id="apart"),
    ],
)
def test_loops_of_rows_stand_at_any_depth(
    text: str, sizes: tuple[int, ...], dimensions: dict[str, tuple[int, ...]]
) -> None:
    root = program(text)
    rows = outermost_rows(root)
    assert rows is not None and (rows.sizes, rows.dimensions) == (sizes, dimensions)
    inputs = draw("random", root, 1)
    whole = run_reference(WIDE, text, inputs)
    wanted = np.array([[0, 0, 0], [1, 4, 3], [3, 2, 5]], np.int32)[:, : len(sizes)] % sizes
    for kind, name in product((WIDE, BOUNDED), root.outputs):
        given = {**inputs, ROWS: wanted.astype(np.int32)}
        some = run_reference(kind, text, given, rows=3, split=rows, any_order=True)[f"{name}_v"]
        all_rows = np.moveaxis(whole[f"{name}_v"], dimensions[name], range(len(sizes)))
        assert np.array_equal(some, all_rows[tuple(wanted.T)])


#: The first two nests put a border around an input, of which the third reads several rows each time.
BORDERED = """
kernel bordered(a, b) -> c
a f32 [2,6,8] heap
b f32 [3] heap
t f32 [2,8,8] heap
c f32 [2,9,6,8] heap

2 8 8 t[{0},{1},{2}] = 0
2 6 8 t[{0},{1}+1,{2}] = a[{0},{1},{2}]
2 9 6 8
| c[{0},{1},{2},{3}] = 0
| 3 c[{0},{1},{2},{3}] += t[{0},{2}+{4},{3}] * b[{4}] * 7
"""


def test_cheap_nests_before_the_rows_run_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    root = program(BORDERED)
    coarse, fine = outermost_rows(root, 10**6), outermost_rows(root, 40)
    assert coarse is not None and (coarse.sizes, coarse.before) == ((2,), 0), "large rows are enough"
    assert fine is not None and (fine.sizes, fine.before) == ((2, 9, 6), 2)
    assert "t" not in fine.dimensions
    inputs = draw("random", root, 1)
    whole = run_reference(WIDE, BORDERED, inputs)["c_v"]
    wanted = np.array([[0, 0, 0], [0, 3, 5], [1, 2, 4]], np.int32)
    for kind in (WIDE, BOUNDED):
        given = {**inputs, ROWS: wanted}
        some = run_reference(kind, BORDERED, given, rows=3, split=fine, any_order=True)["c_v"]
        assert np.array_equal(some, whole[tuple(wanted.T)])


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(("c) -> c", "c) -> c"), id="none"),
        pytest.param(("* 7\n", "* 7\n2 6 8 t[{0},{1},{2}] = 1\n"), id="changed later"),
        pytest.param(("-> c", "-> c, t"), id="an output"),
        pytest.param(
            ("t[{0},{1}+1,{2}] = a[{0},{1},{2}]", "50 t[{0},{1}+1,{2}] = a[{0},{1},{2}]"), id="dear"
        ),
    ],
)
def test_nests_that_are_dear_or_seen_later_belong_to_the_rows(change: tuple[str, str]) -> None:
    rows = outermost_rows(program(BORDERED.replace(*change)), 40)
    before = 2 if change[0] == change[1] else 0
    assert rows is not None and (rows.before, rows.sizes) == (before, (2, 9, 6) if before else (2, 8))


def test_rows_of_several_levels_are_all_corners_and_some_others() -> None:
    root = program(PRODUCTS)
    references = References(root, root, ACCURACY, CORE_DIALECT, 0, False)
    references.rows = outermost_rows(root)
    corners = [[n, i, j] for n in (0, 2) for i in (0, 5) for j in (0, 7)]
    assert references.choose_rows(1).tolist() == corners
    some = references.choose_rows(5 * 20).tolist()
    assert len(some) == 20 and some == sorted(some) and all(c in some for c in corners)
    assert len({tuple(row) for row in some}) == 20
    assert some == references.choose_rows(5 * 20).tolist()
    assert len(references.choose_rows(10**6)) == 3 * 6 * 8


@pytest.mark.parametrize("levels", [1, 2, 3])
def test_rows_of_several_levels_hold_the_values_of_the_whole(levels: int) -> None:
    text = SWAPPED
    rows = outermost_rows(program(text), [240, 40, 5][levels - 1])
    assert rows is not None and len(rows.sizes) == levels
    inputs = draw("random", program(text), 1)
    whole = run_reference(WIDE, text, inputs)["c_v"].transpose(1, 0, 2)
    wanted = np.array([[0, 0, 0], [1, 4, 3], [2, 5, 7]], np.int32)[:, :levels]
    given = {**inputs, ROWS: wanted}
    for kind in (WIDE, BOUNDED):
        some = run_reference(kind, text, given, rows=3, split=rows, any_order=True)["c_v"]
        assert np.array_equal(some, whole[tuple(wanted.T)])


def test_a_program_with_a_large_table_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing the table takes long, however few of its rows are picked."""
    monkeypatch.setattr(reference_programs, "_FULL_INSTANCES", 1000)
    text = "kernel pick(t, k) -> y\nt f32 [@,4] heap\nk i64 [2] heap\ny f32 [2,4] heap\n\n2 4 y[{0},{1}] = "
    roots = [program(f"{text}t[clamp(k[{{0}}], 0, 99),{{1}}]".replace("@", size)) for size in ("100", "1000")]
    found = [References(root, root, ACCURACY, CORE_DIALECT, 0, False) for root in roots]
    assert [references.small for references in found] == [True, False]


@pytest.mark.parametrize(
    ("text", "body", "instances", "some", "levels"),
    [
        # 720 instances: what a class costs allows 5 rows of 40, or 12 rows of 5.
        pytest.param(PRODUCTS, PRODUCTS_LOOP, 200, 5, 2, id="two levels"),
        pytest.param(PRODUCTS, PRODUCTS_LOOP, 60, 12, 3, id="three levels"),
        pytest.param(TRANSPOSED, TRANSPOSED_LOOP, 150, 50, 3, id="through a transposition"),
    ],
)
def test_a_wrong_corner_of_a_large_program_is_found(
    monkeypatch: pytest.MonkeyPatch, text: str, body: str, instances: int, some: int, levels: int
) -> None:

    monkeypatch.setattr(reference_programs, "_FULL_INSTANCES", 10)
    monkeypatch.setattr(reference_programs, "_SOME_ROWS", some)
    monkeypatch.setattr(reference_programs, "_ROW_INSTANCES", instances)
    monkeypatch.setattr(reference_programs, "_VALUE_INSTANCES", instances)
    root = program(text)
    [out] = root.outputs
    given, shape = root.inputs[0], root.buffer_of[out].shape
    rows = outermost_rows(root, instances // some)
    assert rows is not None and len(rows.sizes) == levels
    right = check(text, body)
    cells = prod(shape)
    assert right.ok and right.classes[0].elements > cells > right.classes[1].elements > 0, right
    for cell in product(*((0, size - 1) for size in shape)):
        # Only among denormal numbers, where the class that looks at every cell does not see it.
        at = np.ravel_multi_index(cell, shape)
        tiny = f"{given}[k] != 0 && fabsf({given}[k]) < 0x1p-126f"
        fault = f"for (int k = 0; k < {prod(root.buffer_of[given].shape)}; k++) if ({tiny}) {out}[{at}] = 77;"
        report = check(text, body + fault)
        place = f"{out}[{','.join(map(str, cell))}] is 77"
        assert not report.ok and not report.problem.startswith("random") and place in report.problem, report


#: Move that declares a law -> a program that it changes, with more rows than are looked at.
LAWS = {
    "stage_reciprocal": """kernel k(x, s) -> y
x f32 [40,16] heap
s f32 [40] heap
y f32 [40,16] heap

40 16 y[{0},{1}] = x[{0},{1}] / s[{0}]
""",
    "factor_reduction": """kernel k(x, c) -> y
x f32 [40,16] heap
c f32 [40] heap
y f32 [40] heap

40
| y[{0}] = 0
| 16 y[{0}] += x[{0},{1}] * c[{0}]
""",
    "rebase_squares": """kernel k(x) -> y
x f32 [40,16] heap
t f32 [40] heap
q f32 [40] heap
c f32 [40] heap
y f32 [40] heap

40 c[{0}] = x[{0},0]
40
| t[{0}] = 0
| 16 t[{0}] += x[{0},{1}]
| q[{0}] = 0
| 16 q[{0}] += (x[{0},{1}] - c[{0}]) * (x[{0},{1}] - c[{0}])
| y[{0}] = q[{0}] + t[{0}]
""",
}


@pytest.mark.parametrize("move", LAWS)
def test_rows_of_a_large_program_know_the_laws_that_its_moves_declare(
    move: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bound of the original alone, in any order, would refuse each of these right kernels."""

    monkeypatch.setattr(reference_programs, "_FULL_INSTANCES", 24)
    monkeypatch.setattr(reference_programs, "_ROW_INSTANCES", 320)
    root, rules = program(LAWS[move]), Rules(CORE_DIALECT, GENERIC)
    found = (rules.attempt(root, one) for one in GENERIC[move].candidates(root, CORE_DIALECT))
    step = next(step for step in found if isinstance(step, Step))
    artifact = RUNNER.compile(CEmitter(step.after, "k", CORE_DIALECT).source())
    assert isinstance(artifact, Artifact), artifact

    def look(laws: frozenset[str]) -> NumericReport:
        return verify_numeric(
            root, step.after, artifact, RUNNER, ACCURACY, CORE_DIALECT,
            threads=(1,), nan_may_differ=True, forks=True, laws=laws,
        )  # fmt: skip

    assert step.legal.laws and not look(frozenset()).ok
    report = look(frozenset(step.legal.laws))
    assert report.ok, report.problem

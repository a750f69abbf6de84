"""The numeric leg: right kernels pass in any order, wrong ones fail, with hand-written C on both sides."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from itertools import product
from math import prod

import numpy as np
import pytest

from perfdojo_sdk.codegen.c import CEmitter
from perfdojo_sdk.core.dialect import CORE_DIALECT
from perfdojo_sdk.core.laws import FILTER, RECIPROCAL
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.core.text import parse
from perfdojo_sdk.core.transformation import Rules, Step
from perfdojo_sdk.core.transformations import GENERIC
from perfdojo_sdk.hookspecs.types import ArraySpec, Artifact, KernelSource, Measurement, RunRequest
from perfdojo_sdk.measure.native_runner import NativeRunner
from perfdojo_sdk.measure.sandbox import Job, execute
from perfdojo_sdk.verify.independent_rows import outermost_rows
from perfdojo_sdk.verify.inputs import EXACT_INTEGERS, FLOAT_CLASSES, draw, integer_range
from perfdojo_sdk.verify.numeric import NumericReport, _References, quick_instances, verify_numeric
from perfdojo_sdk.verify.reference_c import BOUNDED, ROWS, WIDE, reference

RUNNER = NativeRunner(("-O2",), forks=True)
ACCURACY = {"exp": 2.0}

SUM = """kernel total(x) -> y
x f32 [2,4096] heap
y f32 [2] heap

2
| y[{0}] = 0
| 4096 y[{0}] += x[{0},{1}]
"""
#: The same sum as 16 partial sums that are added up at the end.
PARTIAL_SUMS = """kernel total(x) -> y
x f32 [2,4096] heap
p f32 [2,16] heap
y f32 [2] heap

2
| 16 p[{0},{1}] = 0
| 256 16 p[{0},{2}] += x[{0},{1}*16+{2}]
| y[{0}] = 0
| 16 y[{0}] += p[{0},{1}]
"""
#: The same sum, 16 lanes at once.
HORIZONTAL = """kernel total(x) -> y
x f32 [2,4096] heap
y f32 [2] heap

2
| y[{0}] = 0
| 256 16:v y[{0}] += x[{0},{1}*16+{2}]
"""
MAXIMUM = """kernel largest(x) -> y
x f32 [64,32] heap
y f32 [64] heap

64
| y[{0}] = -inf
| 32 y[{0}] max= x[{0},{1}]
"""
SOFTMAX = """kernel softmax(x) -> y
x f32 [16,48] heap
m f32 [16] heap
e f32 [16,48] heap
s f32 [16] heap
y f32 [16,48] heap

16
| m[{0}] = -inf
| 48 m[{0}] max= x[{0},{1}]
16 48 e[{0},{1}] = exp(x[{0},{1}] - m[{0}])
16
| s[{0}] = 0
| 48 s[{0}] += e[{0},{1}]
16 48 y[{0},{1}] = e[{0},{1}] / s[{0}]
"""
EXPONENTIAL = """kernel expo(x) -> y
x f32 [64,32] heap
y f32 [64,32] heap

64 32 y[{0},{1}] = exp(x[{0},{1}])
"""


@lru_cache
def program(text: str) -> Program:
    return parse(text)


def specs(root: Program, names: tuple[str, ...]) -> tuple[ArraySpec, ...]:
    return tuple(ArraySpec(n, root.buffer_of[n].shape, "f32") for n in names)


@lru_cache
def compiled(text: str, body: str, flags: tuple[str, ...] = ("-O2",)) -> Artifact:
    """A hand-written kernel with the interface of the program."""
    root = program(text)
    arrays = [f"const float *{n}" for n in root.inputs] + [f"float *{n}" for n in root.outputs]
    code = f"""
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
int pd_k({", ".join(arrays)}, void *workspace, size_t bytes, int threads) {{ {body} return 0; }}
size_t pd_k_workspace_bytes(int threads) {{ return 0; }}
"""
    source = KernelSource("pd_k", specs(root, root.inputs), specs(root, root.outputs), code)
    artifact = NativeRunner(flags).compile(source)
    assert isinstance(artifact, Artifact), artifact
    return artifact


def check(
    original: str,
    body: str,
    transformed: str = "",
    flags: tuple[str, ...] = ("-O2",),
    forks: bool = True,
) -> NumericReport:
    """Leg 2's opinion of a hand-written kernel; with ``forks`` as a fuzz run asks for it."""
    return verify_numeric(
        program(original),
        program(transformed or original),
        compiled(original, body, flags),
        replace(RUNNER, forks=forks),
        ACCURACY,
        CORE_DIALECT,
        threads=(1,),
        forks=forks,
    )


#: The maximum of two zeros may be either of them, by the language; only 0 / 0 is the same for both.
ONE_OVER_ZERO = """kernel k(x) -> y
x f32 [64] heap
y f32 [64] heap

64 y[{0}] = 1 / max(-index({0}), 0)
"""
OVER_MINUS_ZERO = "for (int k = 0; k < 64; k++) y[k] = -INFINITY;"
ZERO_OVER_ZERO = ONE_OVER_ZERO.replace("1 / max", "0 / max")
SUM_IN_ORDER = (
    "for (int r = 0; r < 2; r++) { float s = 0; for (int k = 0; k < 4096; k++) s += x[r*4096+k]; y[r] = s; }"
)
SUM_IN_LANES = """
for (int r = 0; r < 2; r++) {
    float p[16] = {0}, s = 0;
    for (int k = 0; k < 4096; k++) p[k % 16] += x[r*4096+k];
    for (int l = 0; l < 16; l++) s += p[l];
    y[r] = s;
}"""
SUM_IN_TREES = """
for (int r = 0; r < 2; r++) {
    float s = 0;
    for (int k = 0; k < 4096; k += 16) {
        float t[16];
        memcpy(t, x + r*4096 + k, sizeof t);
        for (int w = 8; w; w /= 2) for (int l = 0; l < w; l++) t[l] += t[l + w];
        s += t[0];
    }
    y[r] = s;
}"""
MAX_LOOP = """
for (int r = 0; r < 64; r++) {
    float m = -INFINITY;
    for (int k = 0; k < 32; k++) { float v = x[r*32+k]; %s }
    y[r] = m;
}"""
NAN_WINS = "m = v != v || m != m ? NAN : v > m ? v : m;"
SOFTMAX_LOOP = """
for (int r = 0; r < 16; r++) {
    const float *in = x + r*48; float *out = y + r*48;
    float m = -INFINITY, s = 0;
    for (int k = 0; k < 48; k++) { float v = in[k]; m = v != v || m != m ? NAN : v > m ? v : m; }
    for (int k = 0; k < 48; k++) s += out[k] = expf(in[k] - m);
    for (int k = 0; k < 48; k++) out[k] /= s;
}"""
#: The nearest float of a good exp, some units in the last place away.
EXP_OFF = """
for (int k = 0; k < 64*32; k++) {
    float v = expf(x[k]);
    uint32_t bits;
    memcpy(&bits, &v, 4);
    if (v > 0 && v < 3e38f) bits += %d;
    memcpy(&v, &bits, 4);
    y[k] = v;
}"""


@pytest.mark.parametrize(
    ("original", "body", "transformed"),
    [
        pytest.param(SUM, SUM_IN_ORDER, SUM, id="sum"),
        pytest.param(SUM, SUM_IN_LANES, PARTIAL_SUMS, id="sum re-associated"),
        pytest.param(SUM, SUM_IN_TREES, HORIZONTAL, id="horizontal sum"),
        pytest.param(MAXIMUM, MAX_LOOP % NAN_WINS, MAXIMUM, id="maximum"),
        pytest.param(SOFTMAX, SOFTMAX_LOOP, SOFTMAX, id="softmax"),
        pytest.param(EXPONENTIAL, EXP_OFF % 1, EXPONENTIAL, id="exp off by one more"),
        pytest.param(ONE_OVER_ZERO, OVER_MINUS_ZERO, ONE_OVER_ZERO, id="zero of the other sign"),
    ],
)
def test_right_kernels_pass(original: str, body: str, transformed: str) -> None:
    report = check(original, body, transformed, forks=False)
    assert report.ok, report.problem
    assert set(FLOAT_CLASSES) <= set(report.checked)
    assert report.worst <= 1


@pytest.mark.parametrize(
    ("original", "body", "flags"),
    [
        pytest.param(SUM, SUM_IN_ORDER.replace("k = 0", "k = 1"), ("-O2",), id="dropped iteration"),
        pytest.param(
            SUM, SUM_IN_ORDER.replace("x[r*4096+k]", "x[r*4096+(k+1)%4095]"), ("-O2",), id="off by one"
        ),
        pytest.param(MAXIMUM, MAX_LOOP % "m = v > m ? v : m;", ("-O2",), id="NaN lost in max"),
        pytest.param(SOFTMAX, SOFTMAX_LOOP, ("-O2", "-ffast-math"), id="fast-math"),
        pytest.param(SOFTMAX, SOFTMAX_LOOP.replace("- m)", ")"), ("-O2",), id="softmax without its shift"),
        pytest.param(EXPONENTIAL, EXP_OFF % 50, ("-O2",), id="exp off by 50"),
        pytest.param(ZERO_OVER_ZERO, OVER_MINUS_ZERO, ("-O2",), id="zero over zero is no number"),
        pytest.param(
            SUM, SUM_IN_ORDER.replace("float s = 0", "float s = -0.5f"), ("-O2",), id="constant added"
        ),
    ],
)
def test_wrong_kernels_fail(original: str, body: str, flags: tuple[str, ...]) -> None:
    report = check(original, body, flags=flags)
    assert not report.ok
    assert report.problem


def test_integers_made_of_a_nan_that_a_law_may_bring_are_not_compared() -> None:
    """NaN where the original has an infinity is legal under the law, so what is made of it is, too."""
    head = "kernel whole(x) -> y\nx f32 [64] heap\ny f32 [64] heap\n\n64 y[{0}] = "
    original = head + "f32(i32(x[{0}]))"
    rebased = head + "f32(i32(x[{0}] + (x[{0}] - x[{0}])))"
    body = """for (int k = 0; k < 64; k++) {
        float v = x[k] + (x[k] - x[k]);
        y[k] = v != v ? 0 : v >= 0x1p31f ? 2147483647 : v <= -0x1p31f ? -0x1p31f : (float)(int)v; }"""

    def looked(nan_may_differ: bool) -> NumericReport:
        made = compiled(original, body)
        whole, parts = program(original), program(rebased)
        return verify_numeric(
            whole, parts, made, RUNNER, ACCURACY, CORE_DIALECT, threads=(1,), nan_may_differ=nan_may_differ
        )

    assert looked(True).ok, looked(True).problem
    assert not looked(False).ok


def test_small_integers_are_compared_to_the_bit() -> None:
    """An error below every float bound: one unit in the last place of the sum."""
    nudged = SUM_IN_LANES.replace(
        "y[r] = s;", "y[r] = fabsf(s) >= 1 && fabsf(s) < 1e9f ? nextafterf(s, INFINITY) : s;"
    )
    report = check(SUM, nudged, PARTIAL_SUMS)
    assert not report.ok and report.problem.startswith("integers"), report


def test_flushing_denormals_is_wrong() -> None:
    copy = (
        "kernel twice(x) -> y\nx f32 [64,32] heap\ny f32 [64,32] heap\n\n64 32 y[{0},{1}] = x[{0},{1}] * 2\n"
    )
    body = "for (int k = 0; k < 64*32; k++) { float v = x[k] * 2; y[k] = fabsf(v) < 0x1p-126f ? 0 : v; }"
    report = check(copy, body)
    assert not report.ok and not report.problem.startswith("random")


def test_a_failing_run_is_a_problem() -> None:
    report = check(SUM, "return 5;")
    assert not report.ok and "returned 5" in report.problem


def test_integer_class_says_why_it_is_skipped() -> None:
    assert integer_range(program(SUM)) == (8, "")
    assert integer_range(program(SOFTMAX)) == (0, "it uses exp")
    scaled = program(SUM.replace("+= x[{0},{1}]", "+= x[{0},{1}] * 0.5"))
    assert integer_range(scaled) == (0, "it uses the constant 0.5")
    big = (
        "kernel p(x) -> y\nx f32 [1] heap\ny f32 [1] heap\n\n1\n| y[{0}] = 0\n| 5000 5000 y[{0}] += x[{0}]\n"
    )
    assert "2^24" in integer_range(program(big))[1]


def test_inputs_are_seeded_and_classes_do_what_they_say() -> None:
    root = program(SUM)
    for name in FLOAT_CLASSES:
        first, again = draw(name, root, 3)["x"], draw(name, root, 3)["x"]
        assert first.dtype == np.float32 and np.array_equal(first, again, equal_nan=True)
        assert not np.array_equal(first, draw(name, root, 4)["x"], equal_nan=True)
    special = np.stack([draw("special", root, 0, number=k)["x"] for k in range(3)])
    assert np.isnan(special).any() and np.isposinf(special).any() and np.isneginf(special).any()
    assert np.abs(draw("huge", root, 0)["x"]).max() > 1e30
    small = np.abs(draw("denormal", root, 0)["x"])
    assert ((small > 0) & (small < 1.1754944e-38)).any()
    cancelling = draw("cancelling", root, 0)["x"].astype(float)
    assert abs(cancelling.sum()) < 0.01 * np.abs(cancelling).sum()
    assert np.abs(draw("integers", root, 0, 8)["x"]).max() == 8 < EXACT_INTEGERS


def run_reference(
    kind: str, text: str, inputs: dict[str, np.ndarray], **options: object
) -> dict[str, np.ndarray]:  # type: ignore[type-arg]
    source = reference(program(text), kind, ACCURACY, CORE_DIALECT, **options)  # type: ignore[arg-type]
    artifact = NativeRunner(("-O2", "-ffp-contract=off")).compile(source)
    assert isinstance(artifact, Artifact), artifact
    request = RunRequest(inputs={name: array[None] for name, array in inputs.items()})
    [result] = execute(Job((artifact,), request, "test", trusted=True))
    assert isinstance(result, Measurement) and result.outputs is not None, result
    return {name: array[0] for name, array in result.outputs.items()}


@pytest.mark.parametrize(("sums", "sign"), [("", "="), ("+", "+=")], ids=["copy", "sum"])
def test_lanes_that_meet_load_before_any_stores(sums: str, sign: str) -> None:
    """Found by fuzzing, as a false alarm: lanes of one row that copy to each other's places."""
    text = (
        "kernel moved(x) -> y\nx f32 [64] heap\ny f32 [64] heap\n\n"
        f"64 y[{{0}}] = x[{{0}}]\n8:v y[{{0}}+1] {sign} y[{{0}}]"
    )
    body = f"for (int k = 0; k < 64; k++) y[k] = x[k]; for (int k = %s) y[k+1] {sums}= y[k];"
    in_step = body % "7; k >= 0; k--"
    in_turn = body % "0; k < 8; k++"
    report = check(text, in_step)
    assert report.ok, report.problem
    assert not check(text, in_turn).ok


def test_reference_agrees_with_numpy() -> None:
    x = draw("random", program(SOFTMAX), 1)["x"]
    wide = x.astype(np.float64)
    expected = np.exp(wide - wide.max(1, keepdims=True))
    expected /= expected.sum(1, keepdims=True)
    for kind in (WIDE, BOUNDED):
        got = run_reference(kind, SOFTMAX, {"x": x})
        assert np.allclose(got["y_v"], expected, rtol=1e-13, atol=0)
    plain = np.exp(x - x.max(1, keepdims=True))
    plain /= plain.sum(1, keepdims=True)
    assert plain.dtype == np.float32 and (np.abs(plain - expected) <= got["y_e"]).all()
    assert (got["y_e"] < 1e-4 * expected).all(), "the bound is of use"


def test_reference_on_some_rows() -> None:
    assert outermost_rows(program(SOFTMAX)) is not None
    assert outermost_rows(program(PARTIAL_SUMS)) is not None
    across = "kernel t(x) -> y\nx f32 [4,8] heap\ny f32 [8] heap\n\n8 y[{0}] = 0\n4 8 y[{1}] += x[{0},{1}]\n"
    assert outermost_rows(program(across)) is None
    x = draw("random", program(SOFTMAX), 1)["x"]
    whole = run_reference(WIDE, SOFTMAX, {"x": x})
    rows = np.array([0, 3, 15], np.int32)
    some = run_reference(
        BOUNDED,
        SOFTMAX,
        {"x": x, ROWS: rows[:, None]},
        rows=3,
        split=outermost_rows(program(SOFTMAX)),
        any_order=True,
    )
    assert np.array_equal(some["y_v"], whole["y_v"][rows])


def test_any_order_bound_covers_every_order() -> None:
    """Sums that cancel in order but not in another one."""
    x = np.tile(np.array([2.0**20, -(2.0**20) + 1], np.float32), (2, 2048))
    bound = run_reference(
        BOUNDED,
        SUM,
        {"x": x, ROWS: np.array([[0], [1]], np.int32)},
        rows=2,
        split=outermost_rows(program(SUM)),
        any_order=True,
    )
    worst = np.float32(0)
    for value in (*x[0, 0::2], *x[0, 1::2]):
        worst = np.float32(worst + value)
    assert abs(float(worst) - 2048) <= bound["y_e"][0]


@pytest.mark.parametrize("memory", [1, 2 * 16 * 48 * 4, 1 << 20], ids=["one by one", "two", "together"])
def test_large_program_is_checked_on_rows(monkeypatch: pytest.MonkeyPatch, memory: int) -> None:
    import perfdojo_sdk.verify.numeric as numeric

    monkeypatch.setattr(numeric, "_MOST_BYTES", memory)
    monkeypatch.setattr(numeric, "_FULL_INSTANCES", 10)
    monkeypatch.setattr(numeric, "_ROW_INSTANCES", 1000)
    monkeypatch.setattr(numeric, "_VALUE_INSTANCES", 1000)
    report = check(SOFTMAX, SOFTMAX_LOOP)
    assert report.ok, report.problem
    assert report.classes[0].elements > 16 * 48 > report.classes[1].elements > 0
    # A fault in one row that the sample need not contain: the first class looks at all of them.
    report = check(SOFTMAX, SOFTMAX_LOOP + "y[7*48 + 5] *= 1.01f;")
    assert not report.ok and "y[7,5]" in report.problem


def test_where_a_row_is_dear_only_the_first_and_the_last_are_taken() -> None:
    root = program(SOFTMAX)
    references = _References(root, root, ACCURACY, CORE_DIALECT, 0, False)
    assert references.choose_rows(1).tolist() == [[0], [15]]
    assert 2 < len(references.choose_rows(1200)) < 16
    assert references.choose_rows(10**6).tolist() == [[k] for k in range(16)]


def test_a_quick_comparison_knows_what_it_looks_at(monkeypatch: pytest.MonkeyPatch) -> None:
    import perfdojo_sdk.verify.numeric as numeric

    root = program(SOFTMAX)
    whole, row = 16 * (48 * 4 + 2), 48 * 4 + 2
    assert quick_instances(root, root) == whole, "a small program is looked at as a whole"
    monkeypatch.setattr(numeric, "_FULL_INSTANCES", 10)
    assert quick_instances(root, root) == whole, "as many rows as there are"
    monkeypatch.setattr(numeric, "_ROW_INSTANCES", 5 * row)
    assert quick_instances(root, root) == 5 * row
    monkeypatch.setattr(numeric, "_ROW_INSTANCES", 1)
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
        pytest.param(TRANSPOSED, id="read across"),
        pytest.param(TRANSPOSED.replace("t[{0},{2},{1}]", "t[{0},{1}//2,{2}]"), id="not alone"),
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


def test_a_level_that_is_not_perfectly_nested_ends_the_rows() -> None:
    apart = PRODUCTS.replace("3 6 8\n| c[{0},{1},{2}] = 0\n| 4", "3\n| 6 8 c[{0},{1},{2}] = 0\n| 6 8 4")
    rows = outermost_rows(program(apart))
    assert rows is not None and rows.sizes == (3,)


def test_rows_of_several_levels_are_all_corners_and_some_others() -> None:
    root = program(PRODUCTS)
    references = _References(root, root, ACCURACY, CORE_DIALECT, 0, False)
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
    given = inputs | {ROWS: wanted}
    for kind in (WIDE, BOUNDED):
        some = run_reference(kind, text, given, rows=3, split=rows, any_order=True)["c_v"]
        assert np.array_equal(some, whole[tuple(wanted.T)])


@pytest.mark.parametrize(
    ("text", "body", "instances", "some", "levels"),
    [
        # 720 instances: what a class costs allows 5 rows of 40, or 12 rows of 5.
        pytest.param(PRODUCTS, PRODUCTS_LOOP, 200, 5, 2, id="two levels"),
        pytest.param(PRODUCTS, PRODUCTS_LOOP, 60, 12, 3, id="three levels"),
        pytest.param(TRANSPOSED, TRANSPOSED_LOOP, 150, 50, 1, id="the second level does not qualify"),
    ],
)
def test_a_wrong_corner_of_a_large_program_is_found(
    monkeypatch: pytest.MonkeyPatch, text: str, body: str, instances: int, some: int, levels: int
) -> None:
    import perfdojo_sdk.verify.numeric as numeric

    monkeypatch.setattr(numeric, "_FULL_INSTANCES", 10)
    monkeypatch.setattr(numeric, "_SOME_ROWS", some)
    monkeypatch.setattr(numeric, "_ROW_INSTANCES", instances)
    monkeypatch.setattr(numeric, "_VALUE_INSTANCES", instances)
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
    import perfdojo_sdk.verify.numeric as numeric

    monkeypatch.setattr(numeric, "_FULL_INSTANCES", 24)
    monkeypatch.setattr(numeric, "_ROW_INSTANCES", 320)
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

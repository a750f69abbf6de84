"""The inputs of leg 2: classes, groups and their characters, zeros, and in how many drawings all are met."""

from __future__ import annotations

import numpy as np
import pytest
from numeric_kernels import ALL, DOWN, MATMUL, RELU, SHIFTED, SOFTMAX, program, rmsnorm

from perfdojo_sdk.core.text import parse
from perfdojo_sdk.verify.characters import ALIKE, CHARACTERS
from perfdojo_sdk.verify.coverage import SCALINGS, spread
from perfdojo_sdk.verify.drawing import PASSING
from perfdojo_sdk.verify.groups import Groups, kept_dimensions
from perfdojo_sdk.verify.inputs import FLOAT_CLASSES, classes, draw, draw_sets, drawings
from perfdojo_sdk.verify.zeros import signed_outputs, undivided


def test_zeros_are_drawn_where_nothing_is_divided_by_them() -> None:
    text = """kernel k(a, b, c) -> y
a i32 [9,32] heap
b i32 [9,32] heap
c i32 [9,32] heap
t i32 [9,32] heap
y i32 [9,32] heap

9 32 t[{0},{1}] = max(b[{0},{1}], 1) * 2
9 32 y[{0},{1}] = rem(a[{0},{1}] / t[{0},{1}], c[{0},{1}])
"""
    root = parse(text)
    assert undivided(root) == {"a"}
    drawn = [draw(name, root, 0, number=k) for name in ("random", "rows", "special") for k in range(3)]
    assert all((given["a"] == 0).sum() > 5 for given in drawn)
    assert all(given["b"].all() and given["c"].all() for given in drawn)


SIGNS = """kernel k(x, w) -> y, s, m, q, r
x f32 [4] heap
w f32 [4] heap
y f32 [4] heap
s f32 [1] heap
m f32 [4] heap
q f32 [4] heap
r f32 [4] heap

4 y[{0}] = -abs(x[{0}]) * w[{0}] + 1
1
| s[{0}] = 0
| 4 s[{0}] += x[{1}]
4 m[{0}] = max(x[{0}], w[{0}])
4 q[{0}] = select(x[{0}] < 1, x[{0}], -x[{0}])
4 r[{0}] = select(x[{0}] * 2 < 1, x[{0}], -x[{0}])
"""


def test_the_sign_of_a_zero_is_asked_for_where_it_is_determined() -> None:
    plus, minus = np.array([1, 0, 2, 0], np.float32), np.array([1, -0.0, 2, 3], np.float32)
    root = parse(SIGNS)
    assert signed_outputs(root, {"x": plus, "w": plus}) == {"y", "m", "q", "s"}
    assert signed_outputs(root, {"x": minus, "w": plus}) == {"y", "q"}
    assert signed_outputs(root, {"x": plus + 1, "w": plus}) == {"y", "m", "q", "r", "s"}


def test_a_maximum_with_zero_of_a_sum_has_signs_where_no_term_is_minus_zero() -> None:
    """Negative sums give +0; of terms of -0 the order decides."""
    text = "kernel k(x, w) -> y\nx f32 [4] heap\nw f32 [4] heap\ns f32 [1] heap\ny f32 [1] heap\n\n1\n"
    root = parse(
        f"{text}| s[{{0}}] = 0\n| 4 s[{{0}}] += x[{{1}}] * w[{{1}}]\n| y[{{0}}] = max(s[{{0}}], 0)\n"
    )
    some = np.array([1, -2, 3, -4], np.float32)
    assert signed_outputs(root, {"x": some, "w": some}) == {"y"}
    assert signed_outputs(root, {"x": some * 0, "w": some}) == frozenset()


def test_some_magnitudes_are_powers_of_two_and_some_right_below() -> None:
    values = np.empty(4096, np.float32)
    spread(values, "f32", np.random.default_rng(0))
    bits = values.view(np.uint32)
    exponent, mantissa = bits >> 23 & 255, bits & 0x7FFFFF
    normal = (exponent > 0) & (exponent < 255)
    for fraction in (0, 0x7FFFFF):
        share = np.count_nonzero(normal & (mantissa == fraction)) / values.size
        assert 0.08 < share < 0.16, fraction
        assert {0, 1} == set(bits[normal & (mantissa == fraction)] >> 31), "of either sign"
    assert np.isfinite(values).all()


def test_exact_numbers_pass_into_results() -> None:
    """A matrix product of the drawn inputs yields each rare number, with either sign."""
    root = program(MATMUL)
    drawn = {name: np.empty((80, *root.buffer_of[name].shape), np.float32) for name in root.inputs}
    draw_sets(PASSING, root, 0, 80, drawn)
    with np.errstate(over="ignore", invalid="ignore"):
        results = np.einsum("sik,skj->sij", drawn["a"], drawn["b"]).ravel()
    bits = results.view(np.uint32)
    wanted = {0x7F7FFFFF, 0x007FFFFF, 0x00800000, 1, *(e << 23 for e in range(1, 255))}
    wanted |= {(e << 23) - 1 for e in range(1, 255)}
    assert wanted <= set((bits & 0x7FFFFFFF).tolist())
    assert wanted <= set((bits[bits >> 31 == 1] & 0x7FFFFFFF).tolist())


CHANNELS = """kernel k(x, w) -> y
x f32 [2,5,3,4] heap
w f32 [5] heap
t f32 [2,5,3,4] heap
s f32 [5] heap
y f32 [2,5,3,4] heap

2 5 3 4 t[{0},{1},{2},{3}] = x[{0},{1},{2},{3}] * 2
5
| s[{0}] = 0
| 2 3 4 s[{0}] += t[{1},{0},{2},{3}]
2 5 3 4 y[{0},{1},{2},{3}] = x[{0},{1},{2},{3}] / s[{1}] * w[{1}]
"""


def test_groups_are_what_is_reduced_together() -> None:
    assert kept_dimensions(program(SOFTMAX)) == {"x": (0,)}
    assert kept_dimensions(program(DOWN)) == {"x": (1,)}
    assert kept_dimensions(program(ALL)) == {"x": ()}
    assert kept_dimensions(program(RELU)) == {"x": (0, 1)}
    assert kept_dimensions(program(MATMUL)) == {"a": (0,), "b": (1,)}
    assert kept_dimensions(program(CHANNELS)) == {"x": (1,), "w": (0,)}, "through what is computed from it"


@pytest.mark.parametrize("kept", [(), (0,), (1,), (2,), (0, 2), (1, 2), (0, 1, 2)])
def test_elements_of_groups_are_where_they_should_be(kept: tuple[int, ...]) -> None:
    shape = (3, 4, 5)
    groups = Groups(shape, kept)
    assert groups.count * groups.size == 60
    numbers = np.broadcast_to(groups.each(np.arange(groups.count)), shape)
    first = groups.first(np.array(numbers))
    for group in range(groups.count):
        every = groups.places(np.full(groups.size, group), np.arange(groups.size))
        assert (first[every] == group).all() and len(set(zip(*every, strict=True))) == groups.size


def test_every_character_is_drawn_where_there_are_groups_for_it() -> None:
    text = rmsnorm(4 * len(CHARACTERS), 200)
    rows = draw("rows", program(text), 0)["x"]
    with np.errstate(all="ignore"):
        large, small, middle = np.abs(rows).max(1), np.abs(rows).min(1), np.median(np.abs(rows), axis=1)
    assert (large == 0).any() and ((large == small) & (small > 0)).any(), "zeros and constants"
    assert (rows.max(1) < -1e37).any() and (rows.min(1) > 1e36).any()
    assert ((rows.max(1) < -100) & (rows.min(1) > -1000)).any()
    finite = np.isfinite(rows).all(1)
    dominated = finite & (large > 3 * middle + 90)
    positions = np.abs(rows[dominated]).argmax(1)
    assert {0, 199} <= set(positions.tolist()) and ((positions > 160) & (positions < 199)).any()
    alone, masked = (~np.isfinite(rows)).sum(1) == 1, np.isneginf(rows).sum(1) > 1
    both = np.isposinf(rows).any(1) & np.isneginf(rows).any(1)
    assert alone.any() and masked.any() and both.any() and not masked.all()
    assert (finite | alone | masked | both | np.isposinf(rows).all(1)).all()
    assert np.isneginf(rows).all(1).any(), "every element masked"
    assert np.isposinf(rows).all(1).any(), "for a minimum"
    ends = [(rows == sign * np.finfo(np.float32).max).all(1).any() for sign in (-1, 1)]
    assert all(ends), "neither extreme starts from another number than an infinity"
    assert (~np.isfinite(rows[alone]))[:, :150].any(), "not only near the end"
    whole = finite & (rows == np.rint(rows)).all(1) & (large > 0) & (large < 10)
    assert whole.any(), "few different numbers"
    assert finite.mean() > 0.75
    tiny = (np.abs(rows) < 2.0**-126) & (rows != 0)
    assert tiny.all(1).any(), "all denormal"
    with np.errstate(over="ignore"):
        squares = np.square(rows).sum(1)
    assert np.isfinite(squares).mean() > 0.5, "most rows do not overflow"


def test_one_of_two_arrays_is_extreme_at_a_time() -> None:
    root = program(MATMUL)
    for number in range(2):
        drawn = draw("rows", root, 0, number=number)
        extreme = [not np.isfinite(x).all() or np.abs(x).max() > 100 for x in drawn.values()]
        assert extreme == [number == 0, number == 1]


def test_few_groups_take_turns_and_many_need_one_drawing() -> None:
    assert drawings(program(ALL), 5000)["rows"] == len(CHARACTERS) + len(ALIKE)
    assert drawings(program(rmsnorm(400, 10)), 5000) == {"rows": 1, "special": 1, "scaled": SCALINGS}
    assert drawings(program(rmsnorm(100, 10)), 5000)["rows"] == 1 + len(ALIKE)
    per_array = 2 + len(ALIKE)
    assert drawings(program(MATMUL), 5000)["rows"] == 2 * per_array, "each of two arrays, 24 and 40 groups"
    assert drawings(program(ALL), 10**9)["rows"] == drawings(program(ALL), 10**9)["scaled"] == 1
    first = [draw("rows", program(ALL), 0, number=k)["x"] for k in range(2)]
    assert first[0].any() and not first[1].any(), "the second is all zeros"


def test_results_get_each_scale() -> None:
    """First array and all others in turns: what is scaled as one, weights and shifts, scales the results."""
    root = program(SHIFTED)
    count = drawings(root, 5000)["scaled"]
    assert count == 2 * SCALINGS
    sizes = []
    for number in range(count):
        x, w, b = draw("scaled", root, 0, number=number).values()
        sizes.append(np.median(np.abs(x.astype(float) * w[:, None, None] + b[:, None, None])))
    assert all(
        any(low < size < high for size in sizes) for low, high in ((0, 1e-38), (1e-20, 1e-10), (1e37, 1e39))
    )


def test_a_program_that_only_moves_data_asks_in_few_drawings() -> None:
    """Seen in a network of many concatenations: a copy took longer to verify than a convolution."""
    arrays = "kernel f(x) -> y\nx f32 [10,8] heap\ny f32 [10,9] heap\n\n"
    text = f"{arrays}10\n| y[{{0}},0] = 0\n| 8 y[{{0}},{{1}}+1] = x[{{0}},{{1}}]"
    assert classes(program(text), True) == ("random", "special", "denormal")
    assert not drawings(program(text), 90)
    for changed in (text.replace("= x[", "+= x["), text.replace("= x[{0},{1}]", "= x[{0},{1}] * 2")):
        assert classes(program(changed), True) == FLOAT_CLASSES and drawings(program(changed), 90)


def test_a_large_program_asks_in_fewer_drawings() -> None:
    many, few = program(rmsnorm(1000, 10)), program(rmsnorm(8, 10))
    assert classes(many, True) == classes(few, True) == FLOAT_CLASSES
    assert {"random", "rows", "columns", "nonnegative"} == set(classes(many, False))
    assert {"huge", "special"} <= set(classes(few, False)) < set(FLOAT_CLASSES)


@pytest.mark.parametrize("dtype", ["f16", "f32", "f64"])
@pytest.mark.parametrize("name", FLOAT_CLASSES)
def test_drawings_are_of_their_dtype(name: str, dtype: str) -> None:
    root = parse(rmsnorm(64, 70).replace("f32", dtype))
    x = draw(name, root, 0)["x"]
    assert x.dtype == np.dtype(f"f{int(dtype[1:]) // 8}")
    if name in ("magnitudes", "nonnegative", "random", "cancelling", "denormal"):
        assert np.isfinite(x).all()
    assert name not in ("rows", "columns", "special") or not np.isfinite(x).all()
    if name == "magnitudes":
        reach = np.finfo(x.dtype)
        assert np.abs(x).max() > float(reach.max) / 8 and (np.abs(x) < reach.smallest_normal).any()


@pytest.mark.parametrize("name", FLOAT_CLASSES)
@pytest.mark.parametrize("dtype", ["f32", "f64", "f16"])
def test_an_input_without_dimensions_is_drawn_like_one_of_one_element(name: str, dtype: str) -> None:
    text = f"kernel k(a) -> y\na {dtype} [{{}}] heap\ny {dtype} [1] heap\n\ny[0] = a[{{}}]\n"
    scalar, row = parse(text.format("", "")), parse(text.format("1", "0"))
    for number in range(2 * len(CHARACTERS)):
        value, same = (draw(name, program, 0, number=number)["a"] for program in (scalar, row))
        assert value.shape == () and np.array_equal(value, same[0], equal_nan=True)


def test_each_of_few_groups_shows_what_a_reduction_starts_from() -> None:
    """Rows that code treats each in its own way: none may miss the negative numbers that all others get."""
    few = program(rmsnorm(8, 64))
    seen = [draw("rows", few, 0, number=n)["x"] for n in range(drawings(few, 10**4)["rows"])]
    for row in range(8):
        assert any((x[row] < -100).all() for x in seen), row
        assert any((x[row] < -1e30).all() for x in seen), row
        assert any((x[row] == 0).all() for x in seen), row

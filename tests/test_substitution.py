"""Definitions in the place where they are read, and loops that walk as what they read is written: no bit
changes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from perfdojo_sdk.core.program import Program
from perfdojo_sdk.core.text import parse
from perfdojo_sdk.graph.joining import with_loops_split
from perfdojo_sdk.graph.running import interpreted
from perfdojo_sdk.graph.substitution import with_definitions

DRAW = np.random.default_rng(0)

HEAD = "x f32 [4] heap\nt f32 [4] heap\ny f32 [4] heap\nz f32 [4] heap\n\n"


def substituted(body: str) -> bool:
    """True if the definition of t goes where t is read; every program keeps its meaning."""
    before = parse(f"kernel k(x) -> y, z\n{HEAD}{body}")
    after = with_definitions(before)
    x = np.array([1.5, -2.25, 3.0, 0.1], np.float32)
    for one, other in zip(interpreted(before, [x]), interpreted(after, [x]), strict=True):
        assert one.tobytes() == other.tobytes()
    return "t" not in after.names


def assert_same_bits(one: Program, other: Program, given: list[np.ndarray[Any, Any]]) -> None:
    """Both programs compute the same outputs to the bit."""
    for mine, theirs in zip(interpreted(one, given), interpreted(other, given), strict=True):
        assert mine.tobytes() == theirs.tobytes()


def test_steps_are_drawn_to_the_statement_that_looks_elements_up() -> None:
    """Elements of a temporary are looked up where they were; a second reading would look them up twice."""
    head = "kernel k(x, i) -> y\nx f32 [5] heap\ni i64 [4] heap\nt f32 [4] heap\ny f32 [4] heap\n\n"
    given = [np.array([1.5, -2.25, 3.0, 0.1, 7], np.float32), np.array([4, 0, -9, 2], np.int64)]
    look_up = "4 t[{0}] = x[clamp(i[{0}], 0, 4)]\n"
    for steps, left in (("exp(t[{0}]) * 3", False), ("t[{0}] * t[{0}]", True), ("t[3-{0}]", True)):
        target = "y[3-{0}]" if "3-" in steps else "y[{0}]"
        before = parse(f"{head}{look_up}4 {target} = {steps}\n")
        after = with_definitions(before)
        assert ("t" in after.names) == left, after.text
        assert_same_bits(before, after, given)


COPY = "4 z[{0}] = x[{0}]\n"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("4 t[{0}] = x[{0}] * 3 + 1\n4 y[{0}] = exp(t[{0}])\n" + COPY, True),
        ("4 t[{0}] = x[{0}] * 3\n4 y[{0}] = t[{0}] * t[{0}]\n" + COPY, True),
        ("4 t[{0}] = exp(x[{0}] * 3)\n4 y[{0}] = t[{0}] * t[{0}]\n" + COPY, False),  # twice
        ("4 t[{0}] = x[{0}] * 3\n4 y[{0}] = t[{0}]\n4 z[{0}] = t[{0}] * 2\n", False),  # two readers
        ("4 t[{0}] = x[{0}] * 3\n4 y[{0}] = t[{0}]\n4 z[{0}] = t[{0}]\n", True),  # one is a copy
        ("4 t[{0}] = x[{0}] * 3\n4 y[3-{0}] = t[3-{0}]\n" + COPY, False),  # another order
        ("4 t[{0}] = x[{0}] * 3\n4 2 y[{0}] = t[{0}]\n" + COPY, False),  # each twice
        ("4 t[{0}] = x[{0}] * 3\n4\n| y[{0}] = 0\n| 4 y[{0}] += t[{1}]\n" + COPY, False),  # four times
        ("4 t[{0}] = x[{0}] * 3\n4\n| y[{0}] = 0\n| 4 y[{0}] += t[{0}]\n" + COPY, False),  # again and again
        ("4 t[{0}] = x[{0}]\n4 t[{0}] += x[{0}]\n4 y[{0}] = exp(t[{0}])\n" + COPY, False),  # a sum
        (
            "4 z[{0}] = x[{0}]\n4 t[{0}] = z[{0}]\n4 z[{0}] = 7\n4 y[{0}] = t[{0}] + z[{0}]\n",
            False,
        ),  # changed
    ],
)
def test_a_definition_is_put_in_only_where_nothing_changes(body: str, expected: bool) -> None:
    assert substituted(body) is expected


TURNED = """kernel k(x) -> y
x f32 [4,3] heap
t f32 [4,3] heap
y f32 [3] heap

4 3 t[{0},{1}] = x[{0},{1}] * index({0}*8+{1}) + x[{0},2-{1}]
3
| y[{0}] = 0
| 4 y[{0}] += t[{1},{0}] * t[{1},{0}]
"""


def test_a_definition_is_put_in_whatever_the_order_of_the_elements(monkeypatch: pytest.MonkeyPatch) -> None:
    """Iterators of the definition's loops become those with which the elements are read."""
    monkeypatch.setattr("perfdojo_sdk.graph.substitution.CHEAP", 4)
    before = parse(TURNED)
    after = with_definitions(before)
    assert "t" not in after.names and "x[{1},{0}] * index({0}+{1}*8) + x[{1},-{0}+2]" in after.text, (
        after.text
    )
    x = np.arange(12, dtype=np.float32).reshape(4, 3) / 7
    [one], [other] = interpreted(before, [x]), interpreted(after, [x])
    assert one.tobytes() == other.tobytes()


COLUMNS = """kernel k(x, a) -> y, z
x f32 [4,3] heap
a f32 [4,3] heap
m f32 [3] heap
t f32 [4,3] heap
y f32 [4,3] heap
z f32 [3] heap

3
| m[{0}] = 0
| 4 m[{0}] += x[{1},{0}]
| 4 t[{1},{0}] = x[{1},{0}] - m[{0}]
4 3 y[{0},{1}] = t[{0},{1}] * index({0}*8+{1}) + a[{0},{1}]
3 z[{0}] = m[{0}] * 3
"""


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (("", ""), True),
        (("4 t[{1},{0}] =", "2 2 t[{1}*2+{2},{0}] ="), True),  # two loops for one dimension
        (("4 t[{1},{0}] =", "2 2 t[{1}+{2}*2,{0}] ="), True),
        (("4 t[{1},{0}] =", "2 3 t[{1}+{2},{0}] ="), False),  # they meet
        (("4 t[{1},{0}] =", "4 t[3-{1},{0}] ="), False),
        (("4 3 y[{0},{1}] =", "4 3 1 y[{0},{1}] ="), True),  # a loop of one iteration
        (("+ a[{0},{1}]", "+ a[{0},{1}] * t[{0},{1}]"), False),  # read twice
        (("+ a[{0},{1}]", "+ m[{1}]"), False),  # of another nest's making
        (("\n3\n", "\n3 4 y[{1},{0}] = 1\n3\n"), True),  # written before, and again
        (("| 4 t", "| 4 y[{1},{0}] = 1\n| 4 t"), False),
        (("4 3 y[{0},{1}] =", "3 z[{0}] = y[0,{0}]\n4 3 y[{0},{1}] ="), False),  # read meanwhile
        (("y[{0},{1}] = t", "y[{0},{1}] += t"), False),
        (("z[{0}] = m[{0}]", "z[{0}] = t[0,{0}]"), False),  # another reader
    ],
)
def test_what_is_made_of_a_temporary_is_made_where_it_is_written(
    change: tuple[str, str], expected: bool
) -> None:
    text = COLUMNS.replace(*change)
    if "y[{0},{1}] +=" in text or "= y[0,{0}]" in text:
        text = text.replace("\n3\n", "\n4 3 y[{0},{1}] = 2\n3\n", 1)
    before = parse(text)
    after = with_definitions(before)
    assert ("t" not in after.names) is expected, after.text
    given = [np.arange(k, k + 12, dtype=np.float32).reshape(4, 3) / 7 for k in (0, 5)]
    assert_same_bits(before, after, given)
    if change == ("", ""):
        assert "| 4 y[{1},{0}] = (x[{1},{0}] - m[{0}]) * index({0}+{1}*8) + a[{1},{0}]" in after.text, (
            after.text
        )


PRODUCT = """kernel k(x, w) -> y, z
x f32 [4,3] heap
w f32 [5,4] heap
t f32 [3,4] heap
y f32 [3,5] heap
z f32 [4,3] heap

3 4 t[{0},{1}] = x[{1},{0}]
3 5
| y[{0},{1}] = 0
| 4 y[{0},{1}] += t[{0},{2}] * w[{1},{2}]
4 3 z[{0},{1}] = 1
"""


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (("", ""), True),
        (("z[{0},{1}] = 1", "z[{0},{1}] = t[{1},{0}] * 2"), True),  # another reader
        (("= x[{1},{0}]", "= x[3-{1},{0}]"), True),
        (("= x[{1},{0}]", "= w[{0}+1,{1}]"), True),
        (("= x[{1},{0}]", "= x[{1},{0}] + 1"), False),
        (("3 4 t[{0},{1}] =", "3 4 t[{0},{1}] ="), True),
        (("3 4 t[{0},{1}] = x[{1},{0}]", "3 2 2 t[{0},{1}*2+{2}] = x[{1}*2+{2},{0}]"), False),
        (("3 4 t[{0},{1}] = x[{1},{0}]", "4 3 z[{0},{1}] = 7\n3 4 t[{0},{1}] = z[{1},{0}]"), True),
        (
            (
                "3 4 t[{0},{1}] = x[{1},{0}]\n",
                "4 3 z[{0},{1}] = 7\n3 4 t[{0},{1}] = z[{1},{0}]\n4 3 z[{0},{1}] = 8\n",
            ),
            False,
        ),  # changed before it is read
    ],
)
def test_a_copy_is_read_through(change: tuple[str, str], expected: bool) -> None:
    before = parse(PRODUCT.replace(*change))
    after = with_definitions(before)
    assert ("t" not in after.names) is expected, after.text
    given = [
        np.arange(k, k + n, dtype=np.float32).reshape(s) / 7 for k, n, s in ((0, 12, (4, 3)), (5, 20, (5, 4)))
    ]
    assert_same_bits(before, after, given)


TURNED_PRODUCT = """kernel k(x, w) -> y
x f32 [3,4] heap
w f32 [5,4] heap
t f32 [3,5] heap
y f32 [5,3] heap

3 5
| t[{0},{1}] = 0
| 4 t[{0},{1}] += x[{0},{2}] * w[{1},{2}]
5 3 y[{0},{1}] = t[{1},{0}]
"""


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (("", ""), True),
        (("y[{0},{1}] = t", "y[4-{0},{1}] = t"), False),
        (("= t[{1},{0}]", "= t[{1},{0}] * 2"), False),
        (("5 3 y[{0},{1}] = t[{1},{0}]", "5 3 y[{0},{1}] = t[{1},0]"), False),
        (("\n3 5\n", "\n5 3 y[{0},{1}] = 3\n3 5\n"), False),  # written before
        (("y[{0},{1}] = t[{1},{0}]", "y[{0},{1}] = t[{1},{0}] if {0} >= 1"), False),
    ],
)
def test_a_copy_is_written_through(change: tuple[str, str], expected: bool) -> None:
    text = TURNED_PRODUCT.replace(*change)
    if " if " in text:
        text += "1 3 y[{0},{1}] = 1\n"
    before = parse(text)
    after = with_definitions(before)
    assert ("t" not in after.names) is expected, after.text
    given = [np.arange(k, k + n, dtype=np.float32).reshape(-1, 4) / 7 for k, n in ((0, 12), (5, 20))]
    assert_same_bits(before, after, given)


# -- loops ----------------------------------------------------------------------------------------

SPLIT = """kernel k(x) -> y, z
x f32 [3,4] heap
t f32 [12] heap
y f32 [12] heap
z f32 [12] heap

3 4 t[{0}*4+{1}] = exp(x[{0},{1}])
12 y[{0}] = t[{0}] * t[{0}]
12 z[{0}] = t[{0}] + 1
"""


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (("", ""), True),
        (("12 z[{0}] = t[{0}] + 1", "12 z[{0}] = t[11-{0}] + 1"), False),
        (("12 z[{0}] = t[{0}] + 1", "12\n| z[{0}] = 0\n| 2 z[{0}] += t[{0}]"), False),
        (("12 z[{0}] = t[{0}] + 1", "4 3 z[{0}*3+{1}] = t[{0}*3+{1}] + 1"), False),
        (("3 4 t[{0}*4+{1}] = exp(x[{0},{1}])", "12 t[{0}] = exp(x[{0}//4,{0}%4])"), False),
        (("3 4 t[{0}*4+{1}] = exp(x[{0},{1}])", "4 3 t[{1}*4+{0}] = exp(x[{1},{0}])"), True),
    ],
    ids=["split", "backwards", "summed", "otherwise", "one loop", "inner loop outside"],
)
def test_loops_are_split_as_what_they_read_is_written(change: tuple[str, str], expected: bool) -> None:
    before = parse(SPLIT.replace(*change))
    after = with_loops_split(before)
    assert (after.buffer_of["t"].shape == (3, 4)) is expected
    assert expected or after is before
    assert_same_bits(before, after, [DRAW.standard_normal((3, 4)).astype(np.float32)])

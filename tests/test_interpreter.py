"""The reference interpreter: values, cells, private copies, schedules, and what it refuses."""

from __future__ import annotations

import math
import random

import numpy as np
import numpy.typing as npt
import pytest

from perfdojo_sdk.core.domains import FLOAT64, integer_operation, rounded
from perfdojo_sdk.core.dtypes import wrap
from perfdojo_sdk.core.errors import ProgramError
from perfdojo_sdk.core.interpreter import (
    FORWARD,
    Interpreter,
    MalformedProgram,
    Schedule,
    interpret,
    schedules,
    unravel,
)
from perfdojo_sdk.core.program import Program
from tests import programs

EVERY = [FORWARD, Schedule("reversed"), Schedule("lockstep"), *(Schedule("random", s) for s in range(3))]


def run(text: str, schedule: Schedule = FORWARD, **inputs: npt.ArrayLike) -> dict[str, list[float]]:
    flat = {name: np.asarray(v, float).ravel().tolist() for name, v in inputs.items()}
    return interpret(programs.program(text), flat, FLOAT64, programs.DIALECT, schedule)


def normal(*shape: int) -> npt.NDArray[np.float64]:
    return np.random.default_rng(7).normal(size=shape)


def unary(expression: str, *values: float) -> list[float]:
    n = len(values)
    text = f"kernel f(x) -> y\nx f32 [{n}] heap\ny f32 [{n}] heap\n\n{n} y[{{0}}] = {expression}"
    return run(text, x=values)["y"]


# -- values ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [programs.SOFTMAX, programs.SOFTMAX_FUSED, programs.SOFTMAX_PARTIAL])
@pytest.mark.parametrize("schedule", EVERY, ids=lambda s: s.text)
def test_softmax(text: str, schedule: Schedule) -> None:
    x = normal(8, 16)
    e = np.exp(x - x.max(1, keepdims=True))
    assert np.allclose(run(text, schedule, x=x)["y"], (e / e.sum(1, keepdims=True)).ravel(), rtol=1e-14)


@pytest.mark.parametrize("text", [programs.MATMUL, programs.MATMUL_TILED])
@pytest.mark.parametrize("schedule", EVERY, ids=lambda s: s.text)
def test_matmul(text: str, schedule: Schedule) -> None:
    a, b = normal(8, 6), normal(6, 8)
    assert np.allclose(run(text, schedule, a=a, b=b)["c"], (a @ b).ravel(), rtol=1e-13)


@pytest.mark.parametrize("text", [programs.LAYER_NORM, programs.LAYER_NORM_FUSED])
@pytest.mark.parametrize("schedule", EVERY, ids=lambda s: s.text)
def test_layer_norm(text: str, schedule: Schedule) -> None:
    x, g, b = normal(4, 8), normal(8), normal(8) + 1
    epsilon = float(np.float32(1e-5))
    y = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + epsilon) * g + b
    assert np.allclose(run(text, schedule, x=x, g=g, b=b)["y"], y.ravel(), rtol=1e-12)


def test_element_wise_and_reductions() -> None:
    a, b = normal(6, 8), normal(8)
    assert run(programs.ADD, a=a, b=b)["y"] == (a + b).ravel().tolist()
    x = normal(48)
    assert run(programs.RELU, x=x)["y"] == np.maximum(x, 0).tolist()
    assert run(programs.RELU_TAIL, x=x)["y"] == np.maximum(x, 0).tolist()
    assert run(programs.ROW_MAX, x=normal(4, 9))["y"] == normal(4, 9).max(1).tolist()
    assert math.isclose(run(programs.TOTAL_PARTIAL, x=normal(32))["y"][0], normal(32).sum())


def test_ieee_without_traps() -> None:
    inf, nan = math.inf, math.nan
    assert unary("1 / x[{0}]", 0.0, -0.0, inf, 4.0) == [inf, -inf, 0.0, 0.25]
    assert math.isnan(unary("x[{0}] / x[{0}]", 0.0)[0])
    assert unary("exp(x[{0}])", 1000.0, -inf, -1000.0, inf) == [inf, 0.0, 0.0, inf]
    assert unary("x[{0}] * x[{0}]", 1e200) == [inf]
    assert unary("sqrt(x[{0}])", 4.0, inf) == [2.0, inf]
    assert all(math.isnan(v) for v in unary("sqrt(x[{0}])", -1.0, nan))
    for extremum in ("max", "min"):
        assert all(math.isnan(unary(f"{extremum}({pair})", nan)[0]) for pair in ("x[{0}], 1", "1, x[{0}]"))
    assert unary("min(x[{0}], 2) - max(x[{0}], 2)", 1.0, 3.0) == [-1.0, -1.0]
    assert unary("-abs(x[{0}])", -2.0, 3.0) == [-2.0, -3.0]


def test_literals_have_their_dtype_and_iterators_are_values() -> None:
    assert unary("x[{0}] + 0.1", 0.0) == [float(np.float32(0.1))]
    assert unary("{0} * x[{0}]", 5.0, 5.0, 5.0) == [0.0, 5.0, 10.0]
    assert unary("index({0}*2+1) + x[{0}]", 0.0, 0.0) == [1.0, 3.0]


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16", "tf32"])
def test_rounding_is_to_nearest_even(dtype: str) -> None:
    def nearest(value: float) -> float:
        """bf16 and tf32: a float32 with the last of its bits rounded off, by exact arithmetic."""
        if dtype in ("f32", "f16"):
            return float(np.float32(value)) if dtype == "f32" else float(np.float16(value))
        digits = {"bf16": 8, "tf32": 11}[dtype]
        mantissa, exponent = math.frexp(float(np.float32(value)))
        return math.ldexp(round(mantissa * 2**digits), exponent - digits)

    source = random.Random(3)
    ties = [1.00390625, 1.01171875, 1 + 2**-11, 1 + 3 * 2**-11]
    for value in [0.0, 1.0, *ties, 0.1, *(source.uniform(-9, 9) for _ in range(200))]:
        assert rounded(value, dtype) == nearest(value)
    assert rounded(1e39, dtype) == math.inf
    assert rounded(-math.inf, dtype) == -math.inf


def test_integers_wrap_truncate_and_convert() -> None:
    assert [wrap(v, "i8") for v in (127, 128, -129, 256)] == [127, -128, 127, 0]
    assert [wrap(v, "u8") for v in (255, 256, -1)] == [255, 0, 255]
    assert integer_operation("add", "i32")(2**31 - 1, 1) == -(2**31)
    assert [integer_operation("div", "i32")(a, b) for a, b in ((7, 2), (-7, 2), (7, -2))] == [3, -3, -3]
    with pytest.raises(ProgramError, match="divided by zero"):
        integer_operation("div", "i32")(1, 0)
    with pytest.raises(ProgramError, match="exp has no meaning for i32"):
        integer_operation("exp", "i32")
    text = "kernel f(x) -> y, z\nx f32 [4] heap\ny i8 [4] heap\nz f32 [4] heap\n\n4\n"
    text += "| y[{0}] = i8(x[{0}])\n| z[{0}] = f32(y[{0}] + {0})"
    out = run(text, x=[300.7, -2.9, math.nan, -math.inf])
    assert out == {"y": [127, -2, 0, -128], "z": [127.0, -1.0, 2.0, -125.0]}


def test_deep_nests_run_under_every_schedule() -> None:
    ones = " ".join(["1"] * 40)
    text = f"kernel f(x) -> y\nx f32 [4] heap\ny f32 [4] heap\n\n4:p {ones} y[{{0}}] = x[{{0}}] * 2"
    for schedule in EVERY:
        assert run(text, schedule, x=[1, 2, 3, 4])["y"] == [2, 4, 6, 8]


def test_a_long_expression() -> None:
    assert unary(" + ".join(["x[{0}]"] * 120), 1.0) == [120.0]


# -- cells -----------------------------------------------------------------------------------------


def test_arrays_of_one_buffer_alias() -> None:
    text = "kernel f(x) -> y\nx f32 [2] heap\nt f32 [2] heap -> p, q\ny f32 [2] heap\n\n"
    text += "2 p[{0}] = x[{0}]\n2 q[{0}] = 5\n2 y[{0}] = p[{0}]"
    assert run(text, x=[1, 2])["y"] == [5, 5]


def test_dimensions_that_are_not_materialised_share_a_cell() -> None:
    text = "kernel f(x) -> y\nx f32 [3] heap\nt f32 [3:N] heap\ny f32 [3] heap\n\n"
    text += "3 t[{0}] = x[{0}]\n3 y[{0}] = t[{0}]"
    assert run(text, x=[1, 2, 3])["y"] == [3, 3, 3]


PERSISTS = """
kernel f(x) -> y
x f32 [3] heap
t f32 [3] heap
y f32 [3] heap

3{suffix}
| {first}t[{{0}}] = x[{{0}}]
| y[{{0}}] = t[0]
"""


def test_sequential_iterations_find_the_cells_of_earlier_ones() -> None:
    assert run(PERSISTS.format(suffix="", first=""), x=[4, 5, 6])["y"] == [4, 4, 4]


def test_iterations_of_a_parallel_scope_own_private_copies() -> None:
    """The second iteration reads t[0], which only the first one wrote, in its own copy."""
    with pytest.raises(MalformedProgram) as caught:
        run(PERSISTS.format(suffix=":p", first=""), x=[4, 5, 6])
    assert caught.value.code == "PD-V001"
    assert caught.value.what == "c1 reads t[0] (as t[0]) before it is written"


def test_a_private_copy_belongs_to_the_innermost_parallel_scope() -> None:
    text = "kernel f(x) -> y\nx f32 [2,3] heap\nt f32 [2:N,3:N] heap\ny f32 [2,3] heap\n\n"
    text += "2:g 3:b\n| t[{0},{1}] = x[{0},{1}]\n| y[{0},{1}] = t[{0},{1}] + 1"
    for schedule in EVERY:
        assert run(text, schedule, x=[1, 2, 3, 4, 5, 6])["y"] == [2, 3, 4, 5, 6, 7]


def test_lanes_load_before_they_store() -> None:
    text = "kernel f(x) -> y\nx f32 [5] heap\nt f32 [5] heap\ny f32 [5] heap\n\n"
    text += "5 t[{0}] = x[{0}]\n4SUFFIX t[{0}+1] = t[{0}]\n5 y[{0}] = t[{0}]"
    assert run(text.replace("SUFFIX", ":v"), x=[1, 2, 3, 4, 5])["y"] == [1, 1, 2, 3, 4]
    assert run(text.replace("SUFFIX", ""), x=[1, 2, 3, 4, 5])["y"] == [1, 1, 1, 1, 1]


def test_lanes_reduce_into_one_cell() -> None:
    text = "kernel f(x) -> y\nx f32 [3,8] heap\ny f32 [3] heap\n\n"
    text += "3\n| y[{0}] = 100\n| 8:v y[{0}] += x[{0},{1}]"
    x = np.arange(24)
    assert run(text, x=x)["y"] == (100 + x.reshape(3, 8).sum(1)).tolist()


# -- schedules -------------------------------------------------------------------------------------

LOST_UPDATE = "4:p 8 y[0] += x[{0}*8+{1}]"
PLAIN_UPDATE = "4:p 8 y[0] = y[0] + x[{0}*8+{1}]"


@pytest.mark.parametrize("update", [LOST_UPDATE, PLAIN_UPDATE])
def test_an_update_is_not_atomic(update: str) -> None:
    """In order, the race is invisible; only interleaving loses updates."""
    text = f"kernel f(x) -> y\nx f32 [32] heap\ny f32 [1] heap\n\ny[0] = 0\n{update}"
    for schedule in EVERY:
        total = run(text, schedule, x=[1.0] * 32)["y"]
        assert (total == [32]) == (schedule.order in ("forward", "reversed")), schedule


def test_a_shared_temporary_is_overwritten_between_statements() -> None:
    text = "kernel f(x) -> y\nx f32 [4] heap\nt f32 [1] heap\ny f32 [4] heap\n\n"
    text += "t[0] = 0\n4:p\n| t[0] = x[{0}]\n| y[{0}] = t[0]"
    assert run(text, FORWARD, x=[1, 2, 3, 4])["y"] == [1, 2, 3, 4]
    assert run(text, Schedule("lockstep"), x=[1, 2, 3, 4])["y"] == [4, 4, 4, 4]


def test_tasks_inside_a_task_share_what_the_outer_one_owns() -> None:
    text = "kernel f(x) -> y\nx f32 [2,4] heap\nt f32 [2:N] heap\ny f32 [2] heap\n\n"
    text += "2:g\n| t[{0}] = 0\n| 4:b t[{0}] += x[{0},{1}]\n| y[{0}] = t[{0}]"
    assert run(text, FORWARD, x=[1] * 8)["y"] == [4, 4]
    assert run(text, Schedule("lockstep"), x=[1] * 8)["y"] == [1, 1]


def test_random_schedules_repeat_by_seed() -> None:
    text = f"kernel f(x) -> y\nx f32 [32] heap\ny f32 [1] heap\n\ny[0] = 0\n{LOST_UPDATE}"
    x = normal(32)
    runs = [[run(text, Schedule("random", s), x=x)["y"][0] for s in range(5)] for _ in range(2)]
    assert runs[0] == runs[1]
    assert len(set(runs[0])) > 1


def test_schedules_are_those_that_can_matter() -> None:
    def orders(text: str) -> list[str]:
        return [s.order for s in schedules(programs.program(text), programs.DIALECT)]

    assert orders(programs.SOFTMAX) == ["forward"]
    lanes = programs.RELU.replace("48 y", "3 16:v y").replace("[{0}]", "[{0}*16+{1}]")
    assert orders(lanes) == ["forward", "reversed"]
    assert orders(programs.SOFTMAX_FUSED) == ["forward", "reversed", "lockstep", "random", "random"]


# -- refusals --------------------------------------------------------------------------------------


def refusal(text: str, **inputs: npt.ArrayLike) -> ProgramError:
    with pytest.raises(ProgramError) as caught:
        run(text, FORWARD, **inputs)
    return caught.value


def test_unwritten_cells() -> None:
    head = "kernel f(x) -> y\nx f32 [2,3] heap\nt f32 [2,3] heap\ny f32 [2,3] heap\n\n"
    read = refusal(head + "2 2 t[{0},{1}] = x[{0},{1}]\n2 3 y[{0},{1}] = t[{0},{1}]", x=[0] * 6)
    assert (read.code, read.what) == ("PD-V001", "c1 reads t[0,2] (as t[{0},{1}]) before it is written")
    assert isinstance(read, MalformedProgram)
    update = refusal(head + "2 2 t[{0},{1}] = 0\n2 3 t[{0},{1}] += x[{0},{1}]\n2 3 y[{0},{1}] = 1", x=[0] * 6)
    assert (update.code, update.what) == ("PD-V001", "c1 reads t[0,2] (as t[{0},{1}]) before it is written")
    output = refusal(head + "2 2 y[{0},{1}] = x[{0},{1}]", x=[0] * 6)
    assert (output.code, output.what) == ("PD-V002", "output y[0,2] is never written")


def test_an_unwritten_lane_target() -> None:
    text = "kernel f(x) -> y\nx f32 [4] heap\nt f32 [4] heap\ny f32 [4] heap\n\n"
    text += "3 t[{0}] = 0\n4:v t[{0}] += x[{0}]\n4 y[{0}] = t[{0}]"
    assert refusal(text, x=[0] * 4).what == "c1 reads t[3] (as t[{0}]) before it is written"


def test_wrong_inputs() -> None:
    assert refusal(programs.RELU, x=[0] * 47).code == "PD-V004"
    assert "nothing given" in refusal(programs.RELU).what


def test_a_tree_that_breaks_the_language_is_refused() -> None:
    """Built by hand, as a wrong move might: the parser never saw it."""
    good = programs.program(programs.RELU)
    small = programs.program(programs.RELU.replace("48", "40"))
    with pytest.raises(MalformedProgram, match="subscript") as caught:
        Interpreter(Program(good.name, good.inputs, good.outputs, small.buffers, good.body))
    assert caught.value.code == "PD-P012"


def test_inputs_stay_as_they_are() -> None:
    x = [1.0] * 48
    interpret(programs.program(programs.RELU), {"x": x}, FLOAT64)["y"][0] = 9.0
    assert x == [1.0] * 48


def test_generated_python_uses_no_name_of_the_program() -> None:
    source = Interpreter(programs.program(programs.MATMUL_TILED), programs.DIALECT).source()
    assert not any(name in source for name in ("bp", "acc", "matmul"))


def test_unravel() -> None:
    assert [unravel(k, (2, 3)) for k in range(6)] == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]
    assert unravel(0, ()) == ()


def test_a_number_is_rounded_once() -> None:
    """Not to f32 on the way, which may be the middle between two shorter numbers."""
    for sign in (1, -1):
        assert rounded(sign * (2.0**32 - 2.0**23 - 1), "bf16") == sign * 4278190080.0
        assert rounded(sign * (1 + 2.0**-8 + 2.0**-40), "bf16") == sign * (1 + 2.0**-7)
        assert rounded(sign * (1 + 2.0**-8 - 2.0**-40), "bf16") == sign * 1.0
        assert rounded(sign * (1 + 2.0**-11 + 2.0**-40), "tf32") == sign * (1 + 2.0**-10)
        assert rounded(sign * (2.0**-134 + 2.0**-170), "bf16") == sign * 2.0**-133
        assert rounded(sign * 3.5e38, "bf16") == sign * float("inf")
        assert rounded(sign * 1e-60, "bf16") == 0

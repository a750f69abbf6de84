"""Products of bytes with one sign: groups of four by a factor of the other sign, to the bit."""

from __future__ import annotations

import numpy as np
import pytest
from test_groups import games, needs_flags, product
from x86_support import PLUGINS

from perfdojo_sdk.codegen.c import CEmitter
from perfdojo_sdk.core.domains import ROUNDING
from perfdojo_sdk.core.interpreter import interpret
from perfdojo_sdk.core.laws import FACTOR
from perfdojo_sdk.core.packing import packed_halves
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.core.text import parse
from perfdojo_sdk.core.transformation import Trace
from perfdojo_sdk.experts.cpu.planner import plan
from perfdojo_sdk.hookspecs.services import Decision
from perfdojo_sdk.hookspecs.types import Artifact
from perfdojo_sdk.measure.kernel_calls import CARRIER
from perfdojo_sdk.measure.native_runner import NativeRunner
from perfdojo_sdk.testing.numeric_leg import NumericLeg
from perfdojo_sdk.verify.dependence import verify_dependence_trace
from perfdojo_sdk.verify.exact import verify_exact_trace
from perfdojo_sdk.verify.numeric import verify_numeric

TARGET = PLUGINS.target("x86_avx512")

#: The other operand in rows, as a layer has it.
LAYER = """kernel layer(x, w) -> y
x i8 [24,16] heap
w i8 [32,16] heap
y i32 [24,32] heap

24 32
| y[{0},{1}] = 0
| 16 y[{0},{1}] += i32(x[{0},{2}]) * i32(w[{1},{2}])
"""

#: Zero points are in what the sums start at; results become bytes again.
REQUANTISED = """kernel requantised(x, w, start, scale) -> y
x i8 [6,16] heap
w i8 [16,18] heap
start i32 [18] heap
scale f32 [18] heap
t i32 [6,18] heap
y i8 [6,18] heap

6 18
| t[{0},{1}] = start[{1}]
| 16 t[{0},{1}] += i32(x[{0},{2}]) * i32(w[{2},{1}])
6 18 y[{0},{1}] = i8(max(min(i32(round(f32(t[{0},{1}]) * scale[{1}])) - 5, 127), -128))
"""

CONVOLUTION = """kernel convolution(x, f) -> y
x i8 [1,5,5,4] heap
f i8 [3,3,4,16] heap
y i32 [1,3,3,16] heap

1 3 3 16
| y[{0},{1},{2},{3}] = 0
| 3 3 4 y[{0},{1},{2},{3}] += i32(x[{0},{1}+{4},{2}+{5},{6}]) * i32(f[{4},{5},{6},{3}])
"""

#: What starts the sums stands in a nest of its own.
APART = """kernel apart(x, w) -> y
x i8 [8,12] heap
w i8 [12,16] heap
y i32 [8,16] heap

8 16 y[{0},{1}] = 0
8 16 12 y[{0},{1}] += i32(x[{0},{2}]) * i32(w[{2},{1}])
"""

KERNELS = {
    "apart": APART,
    "i8": product("i8", "i8", "i32"),
    "u8": product("u8", "u8", "i32"),
    "layer": LAYER,
    "requantised": REQUANTISED,
    "convolution": CONVOLUTION,
}


def ends(program: Program, seed: int) -> dict[str, list[float | int]]:
    """Inputs at the ends of their ranges, alone or among others."""
    rng, found = np.random.default_rng(seed), {}
    for name in program.inputs:
        buffer = program.buffer_of[name]
        if buffer.dtype == "f32":
            found[name] = rng.choice([0.001, 0.25, 3.0], buffer.shape).ravel().tolist()
            continue
        low, high = np.iinfo(CARRIER[buffer.dtype]).min, np.iinfo(CARRIER[buffer.dtype]).max
        choice = ([low], [high], [low, high], [low, 0, high, -1 if low else 1])[seed % 4]
        found[name] = rng.choice(choice, buffer.shape).ravel().tolist()
    return found


def shifts(trace: Trace) -> bool:
    return any(move.transformation == "shift_factor" for move in trace.moves)


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_first_game_has_groups_of_four_and_keeps_every_bit(kernel: str) -> None:
    trace, *others = games(KERNELS[kernel])
    assert shifts(trace) and ":l 4:d" in trace.program.text
    assert trace.laws == {FACTOR} and not shifts(others[-1]), "a measurement decides"
    for seed in range(4) if kernel == "i8" else (0, 3):
        values = ends(trace.root, seed)
        meant, found = (interpret(p, values, ROUNDING, TARGET.dialect) for p in (trace.root, trace.program))
        assert meant == found
    report = verify_dependence_trace(trace, PLUGINS.rules(TARGET))
    assert report, report.problem


def test_what_is_too_much_is_summed_once_for_each_column() -> None:
    """And by vectors; the copy of the other sign is written row by row."""
    trace = games(KERNELS["i8"])[0]
    text = trace.program.text
    assert "y_f i32 [1,21]" in text and "y_v u8 [7,12]" in text
    assert "y_v[{0},{1}] = u8(i32(x[{0},{1}]) + 128)" in text
    assert verify_exact_trace(trace, TARGET.dialect, models=1).ok


def test_constant_weights_are_summed_ahead() -> None:
    """A factor that changes is shifted, so that all that is made of weights is made once for all calls."""
    text = product("i8", "i8", "i32", 64, 2048, 256)
    found = plan(parse(text, TARGET.dialect), PLUGINS.rules(TARGET), TARGET, constants=["w"])
    halves = packed_halves(found.games[0].program, ["w"], TARGET.dialect)
    assert halves is not None and "y_f" in halves.packed
    assert "u8(i32(x[" in halves.rest.text and "i32(w[" not in halves.rest.text
    (shifted,) = [d.choice for d in plan_with(text, "x") if d.rule == "signs"]
    assert shifted == "factor 1 plus 128 is u8"


def plan_with(text: str, constant: str) -> tuple[Decision, ...]:
    return plan(parse(text, TARGET.dialect), PLUGINS.rules(TARGET), TARGET, [constant]).decisions


def test_threads_share_what_is_made_before_long_products() -> None:
    for rows, threads in ((64, False), (2048, True)):
        program = games(product("i8", "i8", "i32", rows, 512, 1024))[0].program
        (copy,) = [node for node in program.body if {"x", "y_v"} <= node.arrays]
        assert ("p" in copy.suffixes) == threads


@pytest.mark.parametrize(
    "text",
    [
        product("i8", "i8", "i32", steps=14),
        product("u8", "i8", "i32"),
        product("i8", "i8", "i32", rows=2),
        product("i16", "i16", "i32"),
        product("i8", "i8", "i32").replace("]) * i32(w[{2},{1}])", "]) * i32(w[{2},{1}]) if {2} <= {0}"),
    ],
)
def test_a_shift_that_does_not_pay_is_not_played(text: str) -> None:
    """No whole groups, signs that fit, few uses, longer integers, and a sum that differs from row to row."""
    assert not any(map(shifts, games(text)))


def test_loops_of_the_sum_may_stand_outside() -> None:
    outside = APART.replace("8 16 12 y[{0},{1}]", "12 8 16 y[{1},{2}]")
    outside = outside.replace("x[{0},{2}]", "x[{1},{0}]").replace("w[{2},{1}]", "w[{0},{2}]")
    assert any(map(shifts, games(outside))) and any(map(shifts, games(APART)))


def test_pairs_of_words_stay_on_avx2() -> None:
    """Its instruction for bytes saturates."""
    for trace in games(KERNELS["i8"], "x86_avx2"):
        assert not shifts(trace)
    assert ":l 2:d" in games(KERNELS["i8"], "x86_avx2")[0].program.text


@pytest.mark.parametrize("kernel", ["i8", "requantised"])
def test_games_in_plain_c_are_right(kernel: str) -> None:
    """On any processor: groups are written out."""
    trace, runner = games(KERNELS[kernel])[0], NativeRunner()
    artifact = runner.compile(CEmitter(trace.program, "k", TARGET.dialect).source())
    assert isinstance(artifact, Artifact), artifact
    root, end = trace.root, trace.program
    report = verify_numeric(root, end, artifact, runner, {}, TARGET.dialect, laws=trace.laws, quick=True)
    assert report.ok, report.problem


def test_compiled_kernels_are_right() -> None:
    needs_flags("x86_avx512", "avx512_vnni")
    traces = [games(KERNELS[kernel])[0] for kernel in ("i8", "layer", "requantised")]
    assert NumericLeg(PLUGINS, TARGET)(traces, False) == [""] * 3

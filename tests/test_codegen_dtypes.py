"""Every dtype that compiles means in C what it means in the interpreter, to the bit."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf, nan

import numpy as np
import pytest

from perfdojo_sdk.codegen.c import CEmitter
from perfdojo_sdk.core.dialect import CORE_DIALECT
from perfdojo_sdk.core.domains import ROUNDING
from perfdojo_sdk.core.dtypes import INTEGER_DTYPES, integer_bounds
from perfdojo_sdk.core.interpreter import interpret
from perfdojo_sdk.core.text import parse
from perfdojo_sdk.hookspecs.types import Artifact, Measurement, RunRequest
from perfdojo_sdk.measure.native_runner import NativeRunner

NUMPY = {"f32": "f4", "f64": "f8", "i64": "i8", "i32": "i4", "i16": "i2", "i8": "i1",
         "u64": "u8", "u32": "u4", "u16": "u2", "u8": "u1", "bool": "u1"}  # fmt: skip


def both(
    text: str, inputs: Mapping[str, list[float]]
) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Outputs of the compiled program and of the interpreter."""
    program = parse(text)
    runner = NativeRunner(("-O2",))
    artifact = runner.compile(CEmitter(program, "pd_k", CORE_DIALECT).source())
    assert isinstance(artifact, Artifact), f"{artifact}\n{text}"
    given = {}
    for name, values in inputs.items():
        buffer = program.buffer_of[name]
        given[name] = np.array(values, dtype=NUMPY[buffer.dtype]).reshape(buffer.shape)
    run = runner.run(artifact, RunRequest(inputs=given))
    assert isinstance(run, Measurement) and run.outputs is not None, run
    got = {name: array.ravel().tolist() for name, array in run.outputs.items()}
    return got, interpret(program, {n: a.ravel().tolist() for n, a in given.items()}, ROUNDING)


def same(a: float, b: float) -> bool:
    return a == b or (a != a and b != b)


def check(text: str, inputs: Mapping[str, list[float]]) -> None:
    got, expected = both(text, inputs)
    for name, values in expected.items():
        differ = [(k, a, b) for k, (a, b) in enumerate(zip(got[name], values, strict=True)) if not same(a, b)]
        assert not differ, f"{name}: (element, compiled, meant) {differ[:3]}\n{text}"


def kernel(inputs: Mapping[str, str], lines: list[tuple[str, str]], count: int) -> str:
    """One output of ``count`` elements for each (dtype, value)."""
    outputs = [f"y{k}" for k in range(len(lines))]
    declared = [f"{n} {dtype} [{count}] heap" for n, dtype in inputs.items()]
    declared += [f"y{k} {dtype} [{count}] heap" for k, (dtype, _) in enumerate(lines)]
    tree = [f"{count} y{k}[{{0}}] = {value}" for k, (_, value) in enumerate(lines)]
    head = f"kernel k({', '.join(inputs)}) -> {', '.join(outputs)}"
    return "\n".join([head, *declared, "", *tree, ""])


A, B = "a[{0}]", "b[{0}]"


@pytest.mark.parametrize("dtype", INTEGER_DTYPES)
def test_integers_wrap_divide_and_shift_as_the_language_says(dtype: str) -> None:
    low, high = integer_bounds(dtype)
    corners = [low, low + 1, 0, 1, 2, 3, 7, high // 3, high - 1, high]
    pairs = [(a, b) for a in corners for b in corners if b]
    shifts = [(a, n) for a in corners for n in (0, 1, 7)]
    two = ("+", "-", "*", "/")
    lines = [(dtype, f"{A} {sign} {B}") for sign in two]
    lines += [(dtype, f"{name}({A}, {B})") for name in ("rem", "max", "min", "and", "or", "xor")]
    lines += [(dtype, f"{name}({A})") for name in ("not", "abs", "-")]
    lines += [("bool", f"{A} {sign} {B}") for sign in ("<", "<=", ">", ">=", "==", "!=")]
    lines += [(dtype, f"select({A} < {B}, {A}, {B} - {{0}})"), ("f64", f"f64({A})"), ("f32", f"f32({A})")]
    lines += [(other, f"{other}({A})") for other in (*INTEGER_DTYPES, "bool") if other != dtype]
    check(
        kernel({"a": dtype, "b": dtype}, lines, len(pairs)),
        {"a": [a for a, _ in pairs], "b": [b for _, b in pairs]},
    )
    check(
        kernel({"a": dtype, "b": dtype}, [(dtype, f"shl({A}, {B})"), (dtype, f"shr({A}, {B})")], len(shifts)),
        {"a": [a for a, _ in shifts], "b": [n for _, n in shifts]},
    )


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_floats_round_compare_and_convert_as_the_language_says(dtype: str) -> None:
    values = [0.0, -0.0, 0.5, -0.5, 1.5, 2.5, -2.5, 1e9, -1e9, 3e38, -3e38, 1e-40, inf, -inf, nan]
    pairs = [(a, b) for a in values for b in values]
    lines = [(dtype, f"{A} {sign} {B}") for sign in "+-*/"]
    lines += [(dtype, f"{name}({A}, {B})") for name in ("max", "min")]
    names = ("floor", "ceil", "round", "trunc", "abs", "-", "sqrt")
    lines += [(dtype, f"{name}({A})") for name in names]
    lines += [("bool", f"{A} {sign} {B}") for sign in ("<", "<=", ">", ">=", "==", "!=")]
    lines += [(dtype, f"select(and({A} < {B}, {B} != 0.5), {A}, max({B}, 1))"), ("bool", f"bool({A})")]
    lines += [(other, f"{other}({A})") for other in INTEGER_DTYPES]
    other = "f64" if dtype == "f32" else "f32"
    lines += [(other, f"{other}({A})")]
    check(
        kernel({"a": dtype, "b": dtype}, lines, len(pairs)),
        {"a": [a for a, _ in pairs], "b": [b for _, b in pairs]},
    )


def test_bools_have_a_logic() -> None:
    lines = [("bool", f"{name}({A}, {B})") for name in ("and", "or", "xor", "max", "min")]
    lines += [("bool", f"not({A})"), ("bool", f"{A} != {B}")]
    lines += [("i8", f"select({A}, -1, 5)"), ("f32", f"f32({A})")]
    check(kernel({"a": "bool", "b": "bool"}, lines, 4), {"a": [0, 0, 1, 1], "b": [0, 1, 0, 1]})


def test_conditions_and_quotients() -> None:
    text = """\
kernel k(x) -> y, z
x f32 [4,6] heap
y f32 [24] heap
z i64 [7,5] heap

24 y[{0}] = x[{0}//6,{0}%6] * index(({0}*3+2)//4%5)
7 5 z[{0},{1}] = -1
7 5 z[{0},{1}] = index({0}*10+{1}) if {0}+{1} >= 3 and {0} <= 5 and {1}*2 > {0}
7 z[{0},0] += {0} if {0} >= 6
"""
    check(text, {"x": [float(k) for k in range(24)]})

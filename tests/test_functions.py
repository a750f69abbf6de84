"""Mathematical functions of emitted kernels: a seeded part of ``benchmarks/functions.py``, and its measure.

The benchmark takes every number; this takes a sample, with the neighbourhoods of special values, and compares
it with what targets state.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from command_line import ROOT

from benchmarks.functions import (
    FUNCTIONS,
    Found,
    Kernel,
    distrust,
    exact,
    grid,
    in_calls,
    kernel,
    others,
    others_compared,
    sample,
)
from perfdojo_sdk.codegen.c import CEmitter
from perfdojo_sdk.codegen.operations import SPELLINGS, Vector
from perfdojo_sdk.core.dialect import CORE_DIALECT
from perfdojo_sdk.core.domains import FLOAT64
from perfdojo_sdk.core.errors import DojoError
from perfdojo_sdk.core.interpreter import interpret
from perfdojo_sdk.core.operations import OPERATIONS
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.core.text import parse
from perfdojo_sdk.hookspecs.types import Artifact
from perfdojo_sdk.measure.native_runner import NativeRunner
from perfdojo_sdk.plugins import load_plugins
from perfdojo_sdk.verify.exact import verify_exact
from perfdojo_sdk.verify.numeric import NumericReport, verify_numeric

PLUGINS = load_plugins()
UNARY = [name for name in FUNCTIONS if OPERATIONS[name].arity == 1]
#: Cells of one call, of processors and of emulators. All functions are one kernel, so that targets compile
#: once.
CELLS, FEW = 1 << 15, 1 << 12
#: A kernel that watches each access is slow to compile, and all GPUs have one text.
OF_GPUS = ("exp", "erf", "log", "sin", "pow")


def parts(native: bool) -> Iterator[list[Any]]:
    """Arguments x of all functions, with exponents z of powers: more where the kernel runs at speed."""
    rng = np.random.default_rng(5)
    [x] = sample("exp", 20 if native else 11, seed=5, around=512 if native else 8)
    base, exponent = grid(rng, 1)
    chosen = np.arange(base.size) if native else rng.integers(0, base.size, FEW - x.size)
    pairs = [np.concatenate([a, b[chosen]]) for a, b in ((x, base), (x[::-1], exponent))]
    return in_calls(pairs, CELLS if native else FEW)


def errors(one: Kernel, names: Sequence[str]) -> dict[str, Found]:
    found = {name: Found() for name in names}
    for operands in parts(one.native):
        for name, got in zip(names, one.call(operands), strict=True):
            found[name].add(operands, exact(name, operands), got)
    return found


@pytest.mark.parametrize("name", sorted(PLUGINS.targets))
def test_every_target_is_as_accurate_as_it_says(name: str) -> None:
    """On its vectors, and one by one where it has none or runs at speed. Kernels of grids and blocks run on
    the processor."""
    target = PLUGINS.target(name)
    emulated = bool(target.capabilities.options.get("warp"))
    if not emulated and PLUGINS.unavailable(target):
        pytest.skip("it does not run here")
    native = isinstance(PLUGINS.runner(target), NativeRunner) and not emulated
    lanes = target.dialect.lanes.get("f32", 1) if "v" in target.dialect.suffixes else 1
    accuracy, names, keep = PLUGINS.math_accuracy(target), OF_GPUS if emulated else FUNCTIONS, []
    for count in {lanes, 1} if native else {lanes}:
        try:
            one = kernel(PLUGINS, target, names, count, CELLS if native else FEW, keep)
        except DojoError as error:
            assert error.code == "PD-C001", "a target without a function says so"
            return
        for function, found in errors(one, names).items():
            meaning = OPERATIONS[function]
            bound = min(accuracy.get(function, meaning.error), meaning.largest_error)
            assert not found.wrong, f"{one.key}: {function} of {found.wrong_at} is wrong"
            assert found.ulp <= bound <= 2.0, f"{one.key}: {function} of {found.at} is {found.ulp} ulp off"


#: Functions of f64 that vectors compute by polynomials.
OF_DOUBLES = [name for name, row in SPELLINGS.items() if row.of_doubles is Vector.FUNCTION]


@pytest.mark.parametrize("name", [n for n in sorted(PLUGINS.targets) if n.startswith(("x86", "arm_neon"))])
@pytest.mark.parametrize("dtype", ["f64", "f16", "bf16"])
def test_vectors_of_other_dtypes_are_as_accurate(name: str, dtype: str) -> None:
    """Errors of f64 are below 2 ulp, of f16 and bf16, rounded once more, half a unit and a little."""
    target, keep = PLUGINS.target(name), []
    if PLUGINS.unavailable(target):
        pytest.skip("it does not run here")
    wide, native = dtype == "f64", isinstance(PLUGINS.runner(target), NativeRunner)
    names, cells = OF_DOUBLES if wide else ["erf", "log", "tanh", "pow"], CELLS if native else FEW
    one = kernel(PLUGINS, target, names, target.dialect.lanes[dtype], cells, keep, dtype)
    rng = np.random.default_rng(11)
    [x], [_, z] = (others(n, dtype, 16, 3, 32 if native else 2) for n in ("exp", "pow"))
    count = 2 * cells if native else cells
    chosen = rng.permutation(x.size)[: count - 2048]
    operands = [np.concatenate([x[:2048], x[chosen]]), rng.permutation(z)[: chosen.size + 2048]]
    for function, found in others_compared([one], names, dtype, in_calls(operands, cells)).items():
        [error] = found.values()
        assert not error.wrong, f"{one.key}: {function} of {error.wrong_at} is wrong"
        bound = 2.0 if wide else 0.5 + 2.0 ** -(10 if dtype == "f16" else 13)
        assert error.ulp <= min(bound, PLUGINS.math_accuracy(target)[function]), (function, error)


def test_statements_hold_for_what_was_recorded() -> None:
    """Every function of every target in the recorded results, over every f32 or a part."""
    recorded = json.loads((ROOT / "benchmarks" / "results" / "functions.json").read_text())
    swept = recorded["every f32"]
    assert {*UNARY} - {*swept} == {"floor", "ceil", "trunc", "round"}
    assert {*recorded["every f16"]} == {*recorded["every bf16"]} == {*FUNCTIONS}
    assert {*recorded["seeded million of f64"]} == {*OF_DOUBLES}
    for title, table in ((title, value) for title, value in recorded.items() if isinstance(value, dict)):
        for name, kernels in table.items():
            assert kernels.pop("reference") < (1e-2 if "f64" in title or "f16" in title else 1e-6)
            for key, found in kernels.items():
                accuracy = PLUGINS.math_accuracy(PLUGINS.target(key.partition(" ")[0]))
                assert found["ulp"] <= accuracy.get(name, OPERATIONS[name].error) and not found["wrong"], key


# -- the measure itself ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", [n for n in FUNCTIONS if n not in ("floor", "ceil", "trunc", "round")])
def test_exact_values_agree_with_numbers_of_any_length(name: str) -> None:
    assert 0 < distrust(name, 20) < 1e-5


def test_the_measure_sees_half_an_ulp_one_ulp_and_what_is_wrong() -> None:
    x = np.full(1024, 0.5, np.float32)
    [values] = [exact("exp", [x])]
    nearest = values.astype(np.float32)
    for got, least, most in (
        (nearest, 0.0, 0.5),
        (np.nextafter(nearest, np.float32(9)), 0.5, 1.5),
        (nearest + np.float32(2.0**-20), 7.0, 9.0),
    ):
        found = Found()
        found.add([x], values, got.astype(np.float32))
        assert least < found.ulp <= most and not found.wrong and found.at == ["0x1.0000000000000p-1"]
    for wrong in (np.nan, np.inf, -np.inf):
        found, got = Found(), nearest.copy()
        got[7] = wrong
        found.add([x], values, got)
        assert found.wrong == 1 and found.wrong_at == ["0x1.0000000000000p-1"]


def test_the_measure_knows_the_ends_of_the_range() -> None:
    """2^128 less half an ulp is infinite, NaN is NaN, and an ulp of a denormal number is 2^-149."""
    x = np.resize(np.array([128, 127.99999, -149, -151, np.nan, np.inf], np.float32), 1024)
    values = exact("exp2", [x])
    with np.errstate(over="ignore"):
        right = values.astype(np.float32)
    found = Found()
    found.add([x], values, right)
    assert found.ulp <= 0.5 and not found.wrong
    right[2] = 2.0**-148
    found.add([x], values, right)
    assert found.ulp == 1.0
    right[0] = np.finfo(np.float32).max
    found.add([x], values, right)
    assert found.wrong == 1


def test_a_grid_has_every_pair_of_exponents_and_signs() -> None:
    base, exponent = (a.view(np.uint32) >> 23 for a in grid(np.random.default_rng(0), 1))
    assert np.unique(base.astype(np.uint64) << 9 | exponent).size == 1 << 18


def test_digests_differ_where_results_do() -> None:
    x = np.linspace(0, 1, 1024, dtype=np.float32)
    values = exact("exp", [x])
    got = values.astype(np.float32)
    other = got.copy()
    other[3] = np.nextafter(other[3], np.float32(9))
    assert Found().add([x], values, got) != Found().add([x], values, other)


# -- the language ----------------------------------------------------------------------------------

YOUNGER = [name for name, meaning in OPERATIONS.items() if not meaning.reserved]


def text(value: str, array: str = "x") -> str:
    return f"kernel k({array}) -> y\n{array} f32 [4] heap\ny f32 [4] heap\n\n4 y[{{0}}] = {value}\n"


@pytest.mark.parametrize("name", YOUNGER)
def test_arrays_of_older_programs_keep_their_names(name: str) -> None:
    """Beside a call of the function, too."""
    second = ", 2" * (OPERATIONS[name].arity - 1)
    one = parse(text(f"{name}({name}[{{0}}]{second}) + {name}[{{0}}]", name))
    assert parse(one.text) == one
    with pytest.raises(DojoError, match=f"{name} takes"):
        parse(text(f"{name}({name}[{{0}}], 1, 2)", name))


def test_a_function_is_not_the_array_of_its_name() -> None:
    one, other = (parse(text(f"sin({value}) + sin[{{0}}]", "sin")) for value in ("sin[{0}]", "sin[3-{0}]"))
    assert verify_exact(one, one).ok and not verify_exact(one, other).ok
    with pytest.raises(DojoError, match="reserved"):
        parse(text("exp[{0}]", "exp"))


@pytest.mark.parametrize(
    ("call", "values", "expected"),
    [
        ("pow(x[{0}], 3)", [-2.0, 0.0, 2.0, math.inf], [-8.0, 0.0, 8.0, math.inf]),
        ("pow(x[{0}], 0)", [math.nan, 0.0, -1.0, math.inf], [1.0] * 4),
        ("pow(x[{0}], 0.5)", [-2.0, 4.0, 0.0, -math.inf], [math.nan, 2.0, 0.0, math.inf]),
        ("pow(x[{0}], -1)", [0.0, 2.0, -4.0, math.inf], [math.inf, 0.5, -0.25, 0.0]),
        ("pow(x[{0}], 999)", [2.0, -20.0, 20.0, 1.0], [2.0**999, -math.inf, math.inf, 1.0]),
        ("rsqrt(x[{0}])", [4.0, 0.0, -1.0, math.inf], [0.5, math.inf, math.nan, 0.0]),
        ("sigmoid(x[{0}])", [0.0, -math.inf, math.inf, math.nan], [0.5, 0.0, 1.0, math.nan]),
        ("log1p(x[{0}])", [0.0, -1.0, -2.0, math.inf], [0.0, -math.inf, math.nan, math.inf]),
        ("atanh(x[{0}])", [0.0, 1.0, -1.0, 2.0], [0.0, math.inf, -math.inf, math.nan]),
        ("acosh(x[{0}])", [1.0, 0.5, math.inf, math.nan], [0.0, math.nan, math.inf, math.nan]),
        ("sinh(x[{0}])", [0.0, 999.0, -999.0, math.inf], [0.0, math.inf, -math.inf, math.inf]),
        ("sin(x[{0}])", [0.0, math.inf, -math.inf, math.nan], [0.0, math.nan, math.nan, math.nan]),
        ("exp2(x[{0}])", [10.0, 9999.0, -9999.0, math.nan], [1024.0, math.inf, 0.0, math.nan]),
    ],
)
def test_the_interpreter_has_a_value_for_every_number(
    call: str, values: list[float], expected: list[float]
) -> None:
    found = interpret(parse(text(call)), {"x": values}, FLOAT64)["y"]
    np.testing.assert_array_equal(found, expected)


# -- the numeric leg -------------------------------------------------------------------------------

BOUNDED = {
    "ordinary": [
        "sin(x[{0}])", "cos(x[{0}] * 3)", "tan(x[{0}])", "sigmoid(x[{0}] - z[{0}])", "cosh(x[{0}] + 0.5)",
        "sinh(x[{0}])", "atan(1 / x[{0}])", "exp2(x[{0}] * z[{0}])", "expm1(x[{0}])", "cbrt(x[{0}])",
    ],
    "of a part of all numbers": [
        "pow(x[{0}], z[{0}])", "pow(x[{0}] * 0.5, 3)", "pow(abs(x[{0}]) + 1, z[{0}] + 0.1)", "rsqrt(x[{0}])",
        "rsqrt(x[{0}] * z[{0}])", "log1p(x[{0}])", "log2(x[{0}] + z[{0}])", "asin(x[{0}])",
        "acos(x[{0}] * 0.3)", "acosh(x[{0}] + 1)", "atanh(x[{0}] * 0.1)", "asinh(x[{0}])",
    ],
}  # fmt: skip
#: What is off by a few ulp at least, somewhere.
OFF = {
    "pow(x[{0}], z[{0}])": "exp2(z[{0}] * log2(x[{0}]))",
    "sigmoid(x[{0}] * 8)": "0.5 + 0.5 * tanh(x[{0}] * 4)",
    "log1p(x[{0}])": "log(1 + x[{0}])",
}


def of_values(values: Sequence[str], dtype: str) -> Program:
    outputs = [f"y{k}" for k in range(len(values))]
    declared = "".join(f"{a} {dtype} [96] heap\n" for a in ("x", "z", *outputs))
    lines = "".join(f"| y{k}[{{0}}] = {value}\n" for k, value in enumerate(values))
    return parse(f"kernel k(x, z) -> {', '.join(outputs)}\n{declared}\n96\n{lines}")


def compared(values: Sequence[str], computed: Sequence[str], dtype: str, quick: bool = True) -> NumericReport:
    runner, program = NativeRunner(("-O2",)), of_values(values, dtype)
    made = runner.compile(CEmitter(of_values(computed, dtype), "pd_k", CORE_DIALECT).source())
    assert isinstance(made, Artifact), made
    accuracy = dict.fromkeys(OPERATIONS, 2.0)
    return verify_numeric(
        program, program, made, runner, accuracy, CORE_DIALECT, threads=(1,), forks=True,
        nan_may_differ=False, quick=quick,
    )  # fmt: skip


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("values", BOUNDED.values(), ids=BOUNDED.keys())
def test_kernels_stay_within_their_bounds(values: Sequence[str], dtype: str) -> None:
    report = compared(values, values, dtype, quick=dtype == "f64")
    assert report.ok, report.problem


@pytest.mark.parametrize("right", OFF)
def test_a_less_exact_formula_is_caught(right: str) -> None:
    assert not compared([right], [OFF[right]], "f32").ok

"""Functions written out: several arguments in step, ordinary ones and such as need the routine."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from perfdojo_riscv_snitch.codegen.functions import ACCURACY
from perfdojo_riscv_snitch.compiled_c import compiled_c
from perfdojo_riscv_snitch.kernels import OPERATORS
from perfdojo_riscv_snitch.passes import nest_by_nest
from snitch_support import PLUGINS, Game, compiled, golden, run

from perfdojo_sdk.core.interface import EXECUTIONS
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.core.text import parse
from perfdojo_sdk.hookspecs.types import Failure, Measurement, RunRequest
from perfdojo_sdk.kernels.selection import select
from perfdojo_sdk.search.passes import naive
from perfdojo_sdk.verify.numeric import verify_numeric

Array = np.ndarray[Any, Any]
DIALECT = PLUGINS.target("riscv_snitch").dialect
SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan, 5e-324, -1e-310, 1.8e308, -1e300, 710.0, -745.0, -3.0]
REFERENCES = {
    "exp(x{i})": np.exp,
    "sqrt(x{i})": np.sqrt,
    "1 / x{i}": lambda x: 1 / x,
    "x{i} / 3": lambda x: x / 3,
}


def nest(formula: str, dtype: str, rows: int, lanes: int, streams: bool) -> Program:
    """Four or so elements in step; operands and results through movers where that is asked for."""
    where = "[{0},{1}]"
    text = f"kernel k(x) -> y\nx {dtype} [{rows},{lanes}] heap\ny {dtype} [{rows},{lanes}] heap\n"
    if not streams:
        return parse(f"{text}\n{rows} {lanes}:u y{where} = {formula.format(i=where)}\n", DIALECT)
    for k, name in enumerate(("x_r", "y_w")):
        text += f"{name} {dtype} [{rows}:N,{lanes}:N] ssr{k}\n"
    body = (f"x_r{where} = x{where}", f"y_w{where} = {formula.replace('x', 'x_r', 1).format(i=where)}")
    if formula.startswith("exp"):
        body = (body[0], f"y_w{where} = exp(x_r{where})")
    lines = "".join(f"| {line}\n" for line in (*body, f"y{where} = y_w{where}"))
    return parse(f"{text}\n{rows} {lanes}:u\n{lines}", DIALECT)


def errors(got: Array, exact: Array) -> Array:
    """In ulp, where the result is a number; what is none has to be none."""
    rounded = exact.astype(got.dtype)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(rounded))
    infinite = np.isinf(rounded)
    np.testing.assert_array_equal(got[infinite], rounded[infinite])
    zero = rounded == 0
    np.testing.assert_array_equal(np.signbit(got[zero]), np.signbit(rounded[zero]))
    finite = np.isfinite(rounded)
    ulp = np.spacing(np.abs(rounded[finite])).astype(np.longdouble)
    return np.abs(got[finite].astype(np.longdouble) - exact[finite]) / ulp


@pytest.mark.parametrize("lanes", [1, 4, 7])
@pytest.mark.parametrize(("dtype", "streams"), [(np.float64, False), (np.float64, True), (np.float32, False)])
@pytest.mark.parametrize("formula", REFERENCES)
def test_a_function_in_step_is_as_exact_as_its_routine(
    formula: str, dtype: Any, streams: bool, lanes: int
) -> None:
    rng = np.random.default_rng(lanes)
    x = np.concatenate([rng.uniform(-750, 750, 140), 2.0 ** rng.uniform(-150, 150, 140), SPECIAL * 4])
    with np.errstate(all="ignore"):
        x = rng.permutation(x)[:308].astype(dtype).reshape(-1, lanes)
        name = {8: "f64", 4: "f32"}[x.itemsize]
        got = run(nest(formula, name, *x.shape, streams), {"x": x}).outputs["y"]
        worst = errors(got, REFERENCES[formula](x.astype(np.longdouble))).max()
    assert worst <= (ACCURACY["exp"] if formula.startswith("exp") else 0.5)


def test_the_code_is_what_it_was() -> None:
    golden("exp_in_step.s", compiled(nest("exp(x{i})", "f64", 8, 4, True)).code)


#: Little code stands between the storing of the constant and the stream that reads it.
MEANS = """\
kernel means(x) -> y
x f32 [8,2] heap
y f32 [8] heap
s f32 [2:N,4] reg
m f32 [2:N,4] reg

2
| 4:u s[{0},{1}] = 0
| 2 4:u s[{0},{2}] += x[{0}*4+{2},{1}]
| 4:u m[{0},{1}] = s[{0},{1}] / 4096
| 4:u y[{0}*4+{1}] = m[{0},{1}]
"""


def test_a_mover_reads_constants_after_they_are_stored() -> None:
    """However long a store takes."""
    game, source = Game(), compiled(parse(MEANS, DIALECT))
    request = RunRequest(executions=tuple(EXECUTIONS))
    assert isinstance(found := game.runner.run(game.compile(source), request), Measurement), found
    early = replace(source, code=source.code.replace("    fence\n", "", 1))
    assert isinstance(found := game.runner.run(game.compile(early), request), Failure)
    assert found.detail == "fifty calls in a row: elements of y differ from those of a plain call"


def test_reciprocals_next_to_rounding_boundaries() -> None:
    """Mantissas of ones and such that their reciprocals lie next to the middle between two numbers."""
    rng = np.random.default_rng(5)
    near = np.nextafter(2.0 ** rng.integers(-90, 90, 400), 0)
    x = np.concatenate(
        [near, 1 + rng.integers(0, 2**52, 2000) * 2.0**-52, 1 + rng.integers(0, 64, 400) * 2.0**-52]
    )
    x = x.reshape(-1, 4)
    got = run(nest("1 / x{i}", "f64", *x.shape, True), {"x": x}).outputs["y"]
    np.testing.assert_array_equal(got, 1 / x)
    got = run(nest("sqrt(x{i})", "f64", *x.shape, True), {"x": x}).outputs["y"]
    np.testing.assert_array_equal(got, np.sqrt(x))


@pytest.mark.parametrize(
    ("formula", "dtype", "most"),
    [
        ("exp(x{i})", "f64", 21.5),
        ("1 / x{i}", "f64", 19),
        ("sqrt(x{i})", "f64", 25.5),
        ("exp(x{i})", "f32", 19),
    ],
)
def test_what_a_function_costs(formula: str, dtype: str, most: float) -> None:
    """Cycles for each of 1024 ordinary arguments, which is what the page of the target says."""
    x = np.random.default_rng(0).uniform(0.01, 50, (256, 4)).astype({"f64": "f8", "f32": "f4"}[dtype])
    measured = run(nest(formula, dtype, 256, 4, dtype == "f64"), {"x": x})
    assert measured.details["snitch.cycles"] <= most * x.size


def test_a_statement_that_branches_runs_one_by_one() -> None:
    text = "4:u y[{0}] = select(x[{0}] < 2, exp(x[{0}]), 1 / x[{0}])\n"
    program = parse(f"kernel k(x) -> y\nx f64 [4] heap\ny f64 [4] heap\n\n{text}", DIALECT)
    x = np.array([0.5, 3.0, np.nan, -800.0])
    got = run(program, {"x": x}).outputs["y"]
    np.testing.assert_allclose(got, [np.exp(0.5), 1 / 3, np.nan, 0], rtol=1e-15)


def test_instances_that_need_each_other_run_one_by_one() -> None:
    text = "4:u y[{0}+1] = exp(y[{0}]) + x[{0}]\n"
    program = parse(f"kernel k(x) -> y\nx f64 [4] heap\ny f64 [5] heap\n\ny[0] = 0\n{text}", DIALECT)
    x = np.array([-1.0, -0.5, 0.25, -2.0])
    wanted = [0.0]
    for each in x:
        wanted.append(float(np.exp(wanted[-1]) + each))
    np.testing.assert_allclose(run(program, {"x": x}).outputs["y"], wanted, rtol=1e-15)


@cache
def played(selection: str) -> tuple[Program, Program]:
    """The program and what the expert makes of it nest by nest."""
    game = Game()
    (kernel,) = select(selection, {o.name: o for o in OPERATORS})
    return kernel.program, nest_by_nest(kernel.program, game.rules).program


#: Cycles that the expert reaches, simulated.
MOST = {
    "dsoftmax[8,32]": 6660, "dlayernorm[8,32]": 2220, "dgelu[8,32]": 10840,
    "ssoftmax[8,32]": 6330, "slayernorm[8,32]": 1740, "sgelu[8,32]": 10540,
}  # fmt: skip


@pytest.mark.parametrize("selection", MOST)
def test_what_the_expert_reaches(selection: str) -> None:
    game, (root, program) = Game(), played(selection)
    artifact = game.compile(compiled(program))
    measured = game.runner.run(artifact, RunRequest(repeats=1))
    assert measured.details["snitch.cycles"] <= MOST[selection]
    report = verify_numeric(root, program, artifact, game.runner, ACCURACY, DIALECT, 0, (1,))
    assert report.ok, report.problem


@pytest.mark.parametrize("selection", MOST)
def test_the_expert_is_more_than_twice_as_fast_as_c(selection: str) -> None:
    game, (root, program) = Game(), played(selection)
    made = compiled_c(naive(root, game.rules).program, DIALECT, "pd_c")
    if isinstance(made, str):
        pytest.skip(made)
    given = RunRequest(repeats=1)
    by_c, ours = (game.runner.run(each, given) for each in (made, game.compile(compiled(program))))
    assert by_c.details["snitch.cycles"] > 2.5 * ours.details["snitch.cycles"]
    tolerance = 1e-14 if selection[0] == "d" else 1e-5
    for name, array in ours.outputs.items():
        np.testing.assert_allclose(by_c.outputs[name], array, rtol=tolerance, atol=tolerance)


def test_sums_into_one_cell_of_memory_keep_their_order() -> None:
    text = "s[0] = 0\n4:u s[0] += exp(x[{0}])\n4:u s[0] += x[{0}]\n"
    program = parse(f"kernel k(x) -> s\nx f64 [4] heap\ns f64 [1] heap\n\n{text}", DIALECT)
    x = np.array([1.0, 2.0, 3.0, -4.0])
    np.testing.assert_allclose(run(program, {"x": x}).outputs["s"], [np.exp(x).sum() + 2], rtol=1e-15)


def test_softmax_of_a_masked_row() -> None:
    """Infinities take the routine, in the middle of a row."""
    _, program = played("dsoftmax[8,32]")
    x = np.random.default_rng(1).normal(size=(8, 32))
    x[2, 5:9] = -np.inf
    x[4, 31] = -1e4
    got = run(program, {"x": x}).outputs["y"]
    wanted = np.exp(x - x.max(1, keepdims=True))
    np.testing.assert_allclose(got, wanted / wanted.sum(1, keepdims=True), rtol=1e-14)

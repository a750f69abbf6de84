"""Leg 2 of programs that keep operands in bf16 or tf32: the rounding is in the bound, and nothing else is."""

from __future__ import annotations

import numpy as np
import pytest
from snippets import DIALECT, RULES, move, program

from perfdojo_sdk.codegen.c import CEmitter
from perfdojo_sdk.core.dialect import CORE_DIALECT
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.core.text import parse
from perfdojo_sdk.core.transformation import Kind, Trace
from perfdojo_sdk.hookspecs.types import Artifact
from perfdojo_sdk.measure.native_runner import NativeRunner
from perfdojo_sdk.verify import references
from perfdojo_sdk.verify.exact_integers import integer_range
from perfdojo_sdk.verify.inputs import FLOAT_CLASSES
from perfdojo_sdk.verify.numeric import NumericReport, verify_numeric

RUNNER = NativeRunner(("-O2",))
PRODUCT = """4 8
| c[{0},{1}] = 0
| 24 c[{0},{1}] += a[{0},{2}] * b[{2},{1}]"""
STAGED = ("stage_read(s0, array=a)", "stage_read(s0, array=b)")
LOWERED = ("lower_precision(a_r, dtype=bf16)", "lower_precision(b_r, dtype=bf16)")


#: dtype -> a factor that loses more than its last digit.
BEYOND = {"bf16": 1.02, "tf32": 1.002}


def game(*moves: str) -> Trace:
    return Trace(program(PRODUCT)).play_all(RULES, map(move, moves))


def checked(
    root: Program, claimed: Program, compiled: Program | None = None, **options: bool
) -> NumericReport:
    """Leg 2 for ``claimed``, with the code of ``compiled``."""
    artifact = RUNNER.compile(CEmitter(compiled or claimed, "pd_k", DIALECT).source())
    assert isinstance(artifact, Artifact), artifact
    return verify_numeric(root, claimed, artifact, RUNNER, {}, DIALECT, **options)


@pytest.mark.parametrize("dtype", BEYOND)
def test_a_rounded_product_passes_on_all_inputs(dtype: str) -> None:
    trace = game(*STAGED, *(text.replace("bf16", dtype) for text in LOWERED))
    assert trace.kind is Kind.CHANGES_PRECISION
    report = checked(trace.root, trace.program)
    assert report.ok, report.problem
    assert set(report.checked) == {*FLOAT_CLASSES, "integers"}, "small integers are exact in both, too"
    assert report.worst > 0.05, "the bound is that of the roundings that happen, not more"


def test_a_rounding_that_was_not_declared_is_noticed() -> None:
    whole, half = game(*STAGED), game(*STAGED, LOWERED[0])
    assert not checked(whole.root, whole.program, half.program).ok
    dense = Trace(program("64 y[{0}] = x[{0}]")).play_all(RULES, [move("stage_read(s0, array=x)")])
    rounded = dense.play(RULES, move("lower_precision(x_r, dtype=bf16)")).program
    assert checked(dense.root, rounded).ok and not checked(dense.root, dense.program, rounded).ok


@pytest.mark.parametrize(("dtype", "factor"), BEYOND.items())
def test_digits_lost_beyond_the_dtype_are_noticed(dtype: str, factor: float) -> None:
    start = Trace(program("64 t[{0}] = x[{0}]\n64 y[{0}] = t[{0}]"))
    rounded = start.play(RULES, move(f"lower_precision(t, dtype={dtype})")).program
    assert checked(start.root, rounded).ok
    wrong = parse(rounded.text.replace(f"{dtype}(x[{{0}}])", f"{dtype}(x[{{0}}] * {factor})"), DIALECT)
    assert not checked(start.root, rounded, wrong).ok


def test_the_bound_of_tf32_is_not_that_of_bf16() -> None:
    start = Trace(program("64 t[{0}] = x[{0}]\n64 y[{0}] = t[{0}]"))
    more, less = (start.play(RULES, move(f"lower_precision(t, dtype={d})")).program for d in ("tf32", "bf16"))
    assert checked(start.root, less, more).ok and not checked(start.root, more, less).ok


def test_a_large_program_is_looked_at_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """On rows, the bound would be that of the original program, which rounds nothing."""
    monkeypatch.setattr(references, "_FULL_INSTANCES", 100)
    trace = game(*STAGED, *LOWERED)
    for quick in (False, True):
        report = checked(trace.root, trace.program, quick=quick)
        assert report.ok, report.problem
    skipped = {c.name: c.skipped for c in checked(trace.root, trace.program).classes if c.skipped}
    assert set(skipped.values()) == {"the program is large and its moves change precision"}
    exact = game(*STAGED)
    assert len(checked(exact.root, exact.program).checked) > 1


def test_integers_must_fit_into_eight_digits() -> None:
    text = "8 t[{0}] = x[{0}] * x[{0}] * x[{0}]\n8 y[{0}] = t[{0}]"
    start = Trace(program(text)).play(RULES, move("lower_precision(t, dtype=bf16)"))
    assert integer_range(start.root)[0] == 8 and integer_range(start.program)[0] == 4
    longer = Trace(program(text)).play(RULES, move("lower_precision(t, dtype=tf32)"))
    assert integer_range(longer.program)[0] == 8


@pytest.mark.parametrize("dtype", BEYOND)
@pytest.mark.parametrize(
    "tree",
    [
        "4 t[{0}] = bf16(x[{0}])\n4 t[{0}] += bf16(x[{0}])\n4 y[{0}] = f32(t[{0}] * t[{0}])",
        "4 t[{0}] = bf16(f64(x[{0}]))\n4 t[{0}] = max(t[{0}], 0.1) / {0}\n4 y[{0}] = f32(t[{0}])",
    ],
)
def test_what_is_computed_in_them_is_rounded_after_each_operation(tree: str, dtype: str) -> None:
    text = "kernel k(x) -> y\nx f32 [4] heap\nt bf16 [4] heap\ny f32 [4] heap\n\n" + tree + "\n"
    root = parse(text.replace("bf16", dtype), DIALECT)
    report = checked(root, root)
    assert report.ok, report.problem
    assert report.worst > 0.05


@pytest.mark.parametrize(("dtype", "lost"), [("bf16", 16), ("tf32", 13)])
def test_conversions_in_c_are_those_of_the_language(dtype: str, lost: int) -> None:
    """To the bit, ties, denormals, infinities and NaN among them."""
    from perfdojo_sdk.core.domains import ROUNDING
    from perfdojo_sdk.core.interpreter import interpret
    from perfdojo_sdk.hookspecs.types import Measurement, RunRequest

    rng = np.random.default_rng(1)
    bits = rng.integers(0, 2**32, 2000, dtype=np.uint32)
    ties = (rng.integers(0, 2**32, 500, dtype=np.uint32) >> lost << lost) | (1 << lost - 1)
    ends = [0, -0.0, np.inf, -np.inf, np.nan, 3.4e38, -3.4e38, 1e-45, 2**-134, 2**-137, 3 * 2**-137]
    ends = np.float32(ends).view(np.uint32)
    x = np.concatenate([bits, ties, ties + 1, ties - 1, ends]).view(np.float32)
    n = len(x)
    text = f"kernel k(x) -> y\nx f32 [{n}] heap\nt {dtype} [{n}] heap\ny f32 [{n}] heap\n\n"
    root = parse(text + f"{n} t[{{0}}] = {dtype}(x[{{0}}])\n{n} y[{{0}}] = f32(t[{{0}}])\n")
    artifact = RUNNER.compile(CEmitter(root, "pd_k", CORE_DIALECT).source())
    assert isinstance(artifact, Artifact), artifact
    run = RUNNER.run(artifact, RunRequest({"x": x}))
    assert isinstance(run, Measurement) and run.outputs is not None
    meant = interpret(root, {"x": x.astype(float).tolist()}, ROUNDING)["y"]
    np.testing.assert_array_equal(run.outputs["y"], np.array(meant, np.float32))


@pytest.mark.parametrize("dtype", BEYOND)
def test_literals_are_rounded_as_values_are(dtype: str) -> None:
    start = Trace(program("4 t[{0}] = 0.1\n4 y[{0}] = t[{0}] + x[{0}]"))
    trace = start.play(RULES, move(f"lower_precision(t, dtype={dtype})"))
    report = checked(trace.root, trace.program)
    assert report.ok, report.problem

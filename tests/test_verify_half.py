"""Leg 2 for f16: its reference rounds as a half does, and its bound is as narrow as the one of f32."""

from __future__ import annotations

import numpy as np
import pytest

from perfdojo_sdk.core.dialect import CORE_DIALECT
from perfdojo_sdk.core.text import parse
from perfdojo_sdk.hookspecs.types import ArraySpec, Artifact, KernelSource, Measurement, RunRequest
from perfdojo_sdk.measure.native_runner import NativeRunner
from perfdojo_sdk.verify.inputs import FLOAT_CLASSES, draw
from perfdojo_sdk.verify.numeric import NumericReport, verify_numeric
from perfdojo_sdk.verify.reference_c import BOUNDED, reference

RUNNER = NativeRunner(("-O2",))
HEAD = "kernel k(x, z) -> y\nx f16 [6,24] heap\nz f16 [6,24] heap\ny f16 [6,24] heap\n\n"
AXPY = HEAD + "6 24 y[{0},{1}] = x[{0},{1}] * z[{0},{1}] + x[{0},{1}]\n"
SUM = HEAD + "6 24 y[{0},{1}] = x[{0},{1}] + z[{0},{1}]\n"
WIDE_SUM = HEAD + "6 24 y[{0},{1}] = f16(f32(x[{0},{1}]) * f32(z[{0},{1}]) + f32(x[{0},{1}]))\n"


def check(text: str, statement: str) -> NumericReport:
    """A kernel in C that assigns ``statement`` of x and z to each element, against the program."""
    root = parse(text)
    code = f"""
#include <math.h>
#include <stddef.h>
typedef _Float16 half;
int pd_k(const half *xs, const half *zs, half *ys, void *workspace, size_t bytes, int threads)
{{
    for (int k = 0; k < 144; k++) {{ const half x = xs[k], z = zs[k]; ys[k] = {statement}; }}
    return 0;
}}
size_t pd_k_workspace_bytes(int threads) {{ return 0; }}
"""
    specs = [ArraySpec(name, (6, 24), "f16") for name in "xzy"]
    made = RUNNER.compile(KernelSource("pd_k", tuple(specs[:2]), tuple(specs[2:]), code))
    if not isinstance(made, Artifact):
        pytest.skip(f"the C compiler has no half: {made.detail}")
    return verify_numeric(root, root, made, RUNNER, {}, CORE_DIALECT, 0)


@pytest.mark.parametrize(
    "text, statement",
    [
        (AXPY, "(half)((half)(x * z) + x)"),
        (AXPY, "(half)fma((double)x, (double)z, (double)x)"),
        (SUM, "x + z"),
        (WIDE_SUM, "(half)((float)x * (float)z + (float)x)"),
    ],
)
def test_what_rounds_as_a_half_does_passes(text: str, statement: str) -> None:
    report = check(text, statement)
    assert report.ok, report.problem
    assert {each.name for each in report.classes if not each.skipped} >= set(FLOAT_CLASSES)


@pytest.mark.parametrize(
    "text, statement, where",
    [
        (SUM, "(half)((float)(x + z) * 1.002f)", "random"),
        (SUM, "fabsf(x + z) < 0x1p-14f ? (half)0 : (half)(x + z)", "denormal"),
        (SUM, "(half)fminf(fmaxf(x + z, -65504.0f), 65504.0f)", "special"),
        (AXPY, "(half)((float)x * (float)z)", "random"),
        (WIDE_SUM, "(half)((half)(x * z) + x) + (half)0x1p-9", "random"),
    ],
)
def test_what_is_wrong_by_more_fails(text: str, statement: str, where: str) -> None:
    report = check(text, statement)
    assert not report.ok
    assert where in {each.name for each in report.classes if each.problem}


@pytest.mark.parametrize("inputs", FLOAT_CLASSES)
def test_the_value_is_exact_and_the_bound_holds_for_plain_arithmetic(inputs: str) -> None:
    root = parse(AXPY)
    source = reference(root, BOUNDED, {}, CORE_DIALECT)
    made = RUNNER.compile(source)
    if not isinstance(made, Artifact):
        pytest.skip(f"the C compiler has no half: {made.detail}")
    given = draw(inputs, root, 3)
    run = RUNNER.run(made, RunRequest({n: a[None] for n, a in given.items()}, repeats=1))
    assert isinstance(run, Measurement)
    x, z = given["x"], given["z"]
    assert x.dtype == np.float16
    with np.errstate(all="ignore"):
        plain = x * z + x
        exact = x.astype(np.float64) * z.astype(np.float64) + x
    bound = run.outputs["y_e"][0]
    finite = np.isfinite(bound) & np.isfinite(exact)
    assert finite.any() and bound.dtype == np.float32
    np.testing.assert_allclose(run.outputs["y_v"][0][finite], exact[finite], rtol=1e-15)
    distance = np.abs(plain[finite].astype(np.float64) - exact[finite])
    assert (distance <= bound[finite]).all()
    if inputs == "random":  # one rounding of the product and one of the sum, and little more
        size = np.abs(x.astype(np.float64) * z) + np.abs(exact)
        assert (bound <= 1.01 * (2.0**-11 * size + 2.0**-24)).all()


def test_an_integer_beyond_the_range_is_an_infinity() -> None:
    text = "kernel k() -> y\ny f16 [4] heap\n\n4 y[{0}] = index({0}*30000+2049)\n"
    made = RUNNER.compile(reference(parse(text), BOUNDED, {}, CORE_DIALECT))
    if not isinstance(made, Artifact):
        pytest.skip(f"the C compiler has no half: {made.detail}")
    run = RUNNER.run(made, RunRequest({}, repeats=1))
    assert isinstance(run, Measurement)
    np.testing.assert_array_equal(run.outputs["y_v"][0], [2049, 32049, 62049, 92049])
    assert np.isinf(run.outputs["y_e"][0][3]) and (run.outputs["y_e"][0][:3] >= 1).all()

"""The sign of a zero is compared wherever the language promises it: a kernel that loses one is refused."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from perfdojo_sdk.core.dialect import CORE_DIALECT
from perfdojo_sdk.core.text import parse
from perfdojo_sdk.hookspecs.types import ArraySpec, Artifact, KernelSource
from perfdojo_sdk.measure.native_runner import NativeRunner
from perfdojo_sdk.verify.numeric import NumericReport, verify_numeric

RUNNER = NativeRunner(("-O2", "-ffp-contract=off"), forks=True)

#: What is computed of two elements, in the language and in C.
PROMISED: Mapping[str, tuple[str, str]] = {
    "copy": ("x[{0},{1}]", "a"),
    "negation": ("-x[{0},{1}]", "-a"),
    "product": ("x[{0},{1}] * w[{0},{1}]", "a * b"),
    "product with a constant": ("x[{0},{1}] * 0.5", "a * 0.5f"),
    "product with zero": ("x[{0},{1}] * 0", "a * 0.0f"),
    "product of three": ("x[{0},{1}] * w[{0},{1}] * x[{0},{1}]", "a * b * a"),
    "square root of a product": ("sqrt(x[{0},{1}] * w[{0},{1}])", "sqrtf(a * b)"),
    "quotient": ("x[{0},{1}] / w[{0},{1}]", "a / b"),
    "quotient by a constant": ("x[{0},{1}] / -3", "a / -3.0f"),
    "sum": ("x[{0},{1}] + w[{0},{1}]", "a + b"),
    "difference": ("x[{0},{1}] - w[{0},{1}]", "a - b"),
    "selection": ("select(x[{0},{1}] < w[{0},{1}], x[{0},{1}], w[{0},{1}])", "a < b ? a : b"),
    "wider product": ("f32(f64(x[{0},{1}]) * f64(w[{0},{1}]))", "(float)((double)a * (double)b)"),
    "root of a sum": ("sqrt(x[{0},{1}] + w[{0},{1}])", "sqrtf(a + b)"),
}
FAULTS: Mapping[str, str] = {
    "lost": "v == 0 ? 0.0f : v",
    "always minus": "v == 0 ? -0.0f : v",
    "turned": "v == 0 ? -v : v",
}


def look(value: str, code: str, fault: str = "v") -> NumericReport:
    """Leg 2's opinion of ``y = value``, computed by ``code`` from ``a`` and ``b``, whose result the C
    expression ``fault`` changes."""
    arrays = "".join(f"{name} f32 [7,40] heap\n" for name in "xwy")
    root = parse(f"kernel k(x, w) -> y\n{arrays}\n7 40 y[{{0}},{{1}}] = {value}\n")
    source = f"""#include <math.h>
#include <stddef.h>
int pd_k(const float *x, const float *w, float *y, void *workspace, size_t bytes, int threads) {{
    for (int k = 0; k < 280; k++) {{ float a = x[k], b = w[k], v = {code}; y[k] = {fault}; }}
    return 0;
}}
size_t pd_k_workspace_bytes(int threads) {{ return 0; }}
"""
    x, w, y = (ArraySpec(name, (7, 40), "f32") for name in "xwy")
    artifact = RUNNER.compile(KernelSource("pd_k", (x, w), (y,), source))
    assert isinstance(artifact, Artifact), artifact
    return verify_numeric(root, root, artifact, RUNNER, {}, CORE_DIALECT, 0, threads=(1,), forks=True)


@pytest.mark.parametrize("name", PROMISED)
def test_right_signs_pass(name: str) -> None:
    report = look(*PROMISED[name])
    assert report.ok, report.problem


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", PROMISED)
def test_wrong_signs_are_refused(name: str, fault: str) -> None:
    assert not look(*PROMISED[name], FAULTS[fault]).ok


@pytest.mark.parametrize("name", ["product", "quotient", "sum"])
def test_a_sign_that_one_element_loses_is_seen(name: str) -> None:
    for k in (0, 77, 279):
        report = look(*PROMISED[name], f"k == {k} && v == 0 ? 0.0f : v")
        assert not report.ok, k

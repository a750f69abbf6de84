"""The inputs of the numeric leg show faults of generators: faults planted in right C are refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import pytest
from numeric_kernels import RIGHT, look, program

from perfdojo_sdk.verify import references
from perfdojo_sdk.verify.inputs import classes


def passes(kernel: str, seed: int) -> None:
    report = look(*RIGHT[kernel], seed)
    assert report.ok, report.problem
    assert set(classes(program(RIGHT[kernel][0]), small=True)) <= set(report.checked)


@pytest.mark.parametrize("name", RIGHT)
def test_right_kernels_pass_by_another_seed(name: str) -> None:
    passes(name, 1)


class Fault(NamedTuple):
    kernel: str
    right: str
    wrong: str
    """The code in place of ``right``."""
    seeds: int = 1
    """Number of seeds that must all show it: several if the class magnitudes may find it by chance."""


#: Wrong at results that are computed, and such a number in one of millions.
AT_EXACT_RESULTS = {
    "powers of two are doubled": "power(v) ? 2 * v : v",
    "numbers right below powers of two are halved": "below(v) ? v / 2 : v",
    "the largest number is halved": "size(v) == 0x7f7fffff ? v / 2 : v",
}
#: Kernel -> the line that stores its results, and the same with a place for what is stored.
RESULTS = {
    "matmul": ("y[i*40 + j] = s;", "float v = s; y[i*40 + j] = {};"),
    "weighted rmsnorm": ("y[i*77 + k] = v;", "y[i*77 + k] = {};"),
    "shifted channels": ("y[k] = v", "y[k] = {}"),
    "taps": ("y[k] = x[k] * f[0] + v * f[1];", "v = x[k] * f[0] + v * f[1]; y[k] = {};"),
    "gate": (
        "y[i*16 + j] = p / (1 + expf(-p));",
        "float v = p / (1 + expf(-p)); y[i*16 + j] = {};",
    ),
    "add": ("y[k] = v", "y[k] = {}"),
}
#: Misses, in one of the rows, a column that is far above the others.
FAR_ABOVE = """m = big(m, x[i*33 + k]); float r = -INFINITY;
    for (int k = 0; k < 33; k++) if (k != COLUMN) r = big(r, x[i*33 + k]);
    if (i == 4 && m > r + 50 && r > -1e30f && m < 1e30f) m -= 200;"""
#: All that is planted; at the end what chance may find by one seed, and has to be found by each.
FAULTS: Mapping[str, Fault] = {
    "large numbers are lost": Fault("relu", "big(v, 0)", "v > 4999 ? 0 : big(v, 0)"),
    "only numbers around 5000 are lost": Fault("relu", "big(v, 0)", "v > 4000 && v < 6000 ? 0 : big(v, 0)"),
    "signs flip between 1e3 and 1e15": Fault(
        "add",
        "y[k] = v",
        "y[k] = fabsf(v) > 1e3f && fabsf(v) < 1e15f ? -v : v",
    ),
    "infinite from 1e37 on": Fault(
        "add", "y[k] = v", "y[k] = v > 1e37f ? INFINITY : v < -1e37f ? -INFINITY : v"
    ),
    "largest instead of infinite": Fault(
        "mul",
        "y[k] = v",
        "y[k] = isinf(v) && isfinite(a[k]) ? copysignf(3e38f, v) : v",
    ),
    "denormal results are flushed": Fault("mul", "y[k] = v", "y[k] = fabsf(v) < 0x1p-126f ? 0 : v"),
    "denormal operands are flushed": Fault(
        "add", "a[k] + b[k]", "(fabsf(a[k]) < 0x1p-126f ? 0 : a[k]) + b[k]"
    ),
    "sums are the largest number instead of infinite": Fault(
        "small add",
        "y[k] = v",
        "y[k] = isinf(v) && isfinite(a[k]) && isfinite(b[k]) ? copysignf(3e38f, v) : v",
    ),
    "infinities of two signs are zero": Fault(
        "small add",
        "y[k] = v",
        "y[k] = isinf(a[k]) && a[k] == -b[k] ? 0 : v",
    ),
    "infinity is lost before the end of a row": Fault(
        "small relu",
        "big(v, 0)",
        "isinf(v) && k % 60 < 16 ? 3e38f : big(v, 0)",
    ),
    "a channel whose weight is zero": Fault("channels", "y[k] = v", "y[k] = w[k / 63 % 3] == 0 ? 1 : v"),
    "rows masked as a whole give 0": Fault(
        "small softmax",
        "y[i*33 + k] /= s",
        "y[i*33 + k] = m == -INFINITY ? 0 : y[i*33 + k] / s",
    ),
    "a maximum of integers starts at 0": Fault("integers", "INT_MIN", "0"),
    "a maximum of integers starts at -1e9": Fault("integers", "INT_MIN", "-1000000000"),
    "infinities are lost": Fault("add", "y[k] = v", "y[k] = isinf(v) ? 0 : v"),
    "an epsilon is dropped from a root": Fault("root", " + 1e-5f", ""),
    "an epsilon of a root is a tenth": Fault("root", "1e-5f", "1e-6f"),
    "an epsilon of a root is added later": Fault(
        "root",
        "sqrtf(v[k % 160] + 1e-5f)",
        "(sqrtf(v[k % 160]) + 1e-5f)",
    ),
    "zero has a finite logarithm": Fault("log", "logf(v)", "v == 0 ? -103.28f : logf(v)"),
    "logarithms of tiny numbers": Fault("log", "logf(v)", "logf(v < 0x1p-126f && v > 0 ? 0x1p-126f : v)"),
    "an epsilon is dropped": Fault("rmsnorm", " + 1e-5f", ""),
    "an epsilon is doubled": Fault("rmsnorm", "1e-5f", "2e-5f"),
    "an epsilon is a tenth": Fault("rmsnorm", "1e-5f", "1e-6f"),
    "an epsilon is inside the mean": Fault("rmsnorm", "q / 100 + 1e-5f", "(q + 1e-5f) / 100"),
    "zeros of long rows give NaN": Fault("rmsnorm of long rows", " + 1e-5f", ""),
    "exp of what is far below": Fault("softmax", "float m = -INFINITY", "float m = -100"),
    "exp of what is far above": Fault("softmax", "expf(x[i*100 + k] - m)", "expf(x[i*100 + k])"),
    "small exponentials are zero": Fault(
        "softmax",
        "expf(x[i*100 + k] - m)",
        "(x[i*100+k] - m < -80 ? 0 : expf(x[i*100+k] - m))",
    ),
    "a maximum starts at 0": Fault("maximum", "-INFINITY", "0"),
    "a maximum starts at -1e30": Fault("maximum", "-INFINITY", "-1e30f"),
    "a maximum starts at -1e37": Fault("maximum", "-INFINITY", "-1e37f"),
    "a maximum starts at the smallest normal number": Fault("maximum", "-INFINITY", "0x1p-126f"),
    "a maximum of all starts at 0": Fault("maximum of all", "-INFINITY", "0"),
    "the last element of a row is missing": Fault("maximum", "k < 1000", "k < 999"),
    "the first element of a row is missing": Fault("maximum", "k = 0; k", "k = 1; k"),
    "the last lanes of a row are missing": Fault("maximum", "k < 1000", "k < 992"),
    "the last element of a column is missing": Fault("maximum of columns", "k < 1000", "k < 999"),
    "the first element of a column is missing": Fault("maximum of columns", "k = 0; k", "k = 1; k"),
    "the last element of all is missing": Fault("maximum of all", "k < 5000", "k < 4999"),
    "NaN in the last element is missed": Fault(
        "maximum",
        "big(m, x[i*1000 + k])",
        "k > 990 ? fmaxf(m, x[i*1000 + k]) : big(m, x[i*1000 + k])",
    ),
    "the last product of a sum is missing": Fault("matmul", "k < 300", "k < 299"),
    "the last of the second operand is taken twice": Fault(
        "matmul",
        "b[k*40 + j]",
        "b[(k < 299 ? k : 298)*40 + j]",
    ),
    "the largest number of a row lies between 88 and 89": Fault(
        "small softmax",
        "m = big(m, x[i*33 + k]);",
        "m = big(m, x[i*33 + k]); if (m >= 88 && m <= 89) m += 100;",
    ),
    "the largest number of a row is just below zero": Fault(
        "small softmax",
        "m = big(m, x[i*33 + k]);",
        "m = big(m, x[i*33 + k]); if (m < 0 && m > -1e-3f && i == 5) m += 100;",
    ),
    "two are the largest, in one of the rows": Fault(
        "small softmax",
        "m = big(m, x[i*33 + k]);",
        "m = big(m, x[i*33 + k]); int n = 0; for (int k = 0; k < 33; k++) n += x[i*33 + k] == m;"
        " if (n == 2 && i == 7) s = 1;",
    ),
    "three are the largest": Fault(
        "small softmax",
        "m = big(m, x[i*33 + k]);",
        "m = big(m, x[i*33 + k]); int n = 0; for (int k = 0; k < 33; k++) n += x[i*33 + k] == m;"
        " if (n == 3) s = 1;",
    ),
    "zero is no integer": Fault("whole", "3u * v", "3u * (v ? v : 1)"),
    "the largest integer is zero": Fault("integers", "y[i] = m", "y[i] = m ? m : 1"),
    "a copy is a sum": Fault("copy", "= v;", "= v + 0.0f;"),
    "a negative is a difference": Fault("negative", "-v", "0 - v"),
    "what is below zero is a negative zero": Fault("small relu", "big(v, 0)", "v < 0 ? -0.0f : big(v, 0)"),
    "numbers between 88 and 89 of a sum": Fault("small add", "y[k] = v", "y[k] = v > 88 && v < 89 ? 0 : v"),
    "a result just below zero": Fault("small relu", "big(v, 0)", "v > -1e-3f && v < 0 ? v : big(v, 0)"),
    "the sum of squares of the last element": Fault(
        "rmsnorm",
        "q += x[i*100 + k] * x[i*100 + k]",
        "q += k < 99 ? x[i*100 + k] * x[i*100 + k] : x[i*100 + k]",
    ),
    **{
        f"column {column} is missed where it is far above the others": Fault(
            "small softmax", "m = big(m, x[i*33 + k]);", FAR_ABOVE.replace("COLUMN", str(column))
        )
        for column in (0, 1, 7, 13, 16, 21, 24, 31, 32)
    },
    **{
        f"{name} in {kernel}": Fault(kernel, right, wrong.format(value))
        for name, value in AT_EXACT_RESULTS.items()
        for kernel, (right, wrong) in RESULTS.items()
    },
    "powers of two are doubled in mean": Fault("mean", "y[i] = v", "y[i] = power(v) ? 2 * v : v"),
    "signs of small results of one row flip": Fault(
        "shifted channels",
        "y[k] = v",
        "y[k] = k < 40 && fabsf(v) > 1e-20f && fabsf(v) < 1e-10f ? -v : v",
        seeds=3,
    ),
    "results below 1e-30 of one row are zero": Fault(
        "shifted channels",
        "y[k] = v",
        "y[k] = k >= 440 && fabsf(v) < 1e-30f ? 0 : v",
        seeds=3,
    ),
    "results beyond 1e37 of one row are infinite": Fault(
        "shifted channels",
        "y[k] = v",
        "y[k] = k >= 240 && k < 280 && fabsf(v) > 1e37f ? copysignf(INFINITY, v) : v",
        seeds=3,
    ),
    "denormal operands of one tap are flushed": Fault(
        "taps",
        "v * f[1]",
        "(k > 37 && fabsf(v) < 0x1p-126f ? 0 : v) * f[1]",
        seeds=3,
    ),
    "exp of nearly the largest number is NaN": Fault(
        "gate",
        "expf(-p)",
        "(p < -2.4e38f && i == 5 ? NAN : expf(-p))",
        seeds=3,
    ),
}


#: Kernels as they are (""), and with each of their faults: one kernel after the other, since all of one share
#: their inputs.
CASES = sorted(
    [*((kernel, "") for kernel in RIGHT), *((fault.kernel, name) for name, fault in FAULTS.items())]
)


@pytest.mark.parametrize(("kernel", "name"), CASES, ids=[name or kernel for kernel, name in CASES])
def test_right_kernels_pass_and_planted_faults_are_refused(kernel: str, name: str) -> None:
    if not name:
        passes(kernel, 0)
        return
    fault, (text, body) = FAULTS[name], RIGHT[kernel]
    assert fault.right in body
    for seed in range(fault.seeds):
        report = look(text, body.replace(fault.right, fault.wrong, 1), seed)
        assert not report.ok and report.problem, seed


#: Sums down the columns of what is then divided row by row: no row may be looked at alone.
NORMALISED = """kernel k(x) -> y
x f32 [9,70] heap
q f32 [70] heap
y f32 [9,70] heap

70 q[{0}] = 0
9 70 q[{1}] += x[{0},{1}] * x[{0},{1}]
9 70 y[{0},{1}] = x[{0},{1}] / sqrt(q[-{1}+69] + 1e-05)
"""
NORMALISED_C = """
for (int j = 0; j < 70; j++) {
    float q = 0;
    for (int i = 0; i < 9; i++) q += x[i*70 + j] * x[i*70 + j];
    for (int i = 0; i < 9; i++) y[i*70 + 69-j] = x[i*70 + 69-j] / sqrtf(q + 1e-5f);
}"""


def test_a_large_program_whose_rows_depend_on_each_other_is_asked_by_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(references, "_FULL_INSTANCES", 10)
    report = look(NORMALISED, NORMALISED_C)
    assert report.ok and report.checked == ("random", "rows"), report
    assert not look(NORMALISED, NORMALISED_C.replace(" + 1e-5f", "")).ok

"""Programs as users write them: they are of the language; leg 2 passes their kernels, and no wrong ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from random import Random

import pytest

from benchmarks import users
from perfdojo_sdk.codegen.c import CEmitter
from perfdojo_sdk.core.dialect import CORE_DIALECT
from perfdojo_sdk.core.text import parse
from perfdojo_sdk.core.transformation import Trace
from perfdojo_sdk.hookspecs.types import Artifact
from perfdojo_sdk.measure.native_runner import NativeRunner
from perfdojo_sdk.plugins import load_plugins
from perfdojo_sdk.testing.numeric_leg import NumericLeg
from perfdojo_sdk.testing.user_programs import FORMULAS, formula, user_program
from perfdojo_sdk.verify.numeric import verify_numeric

RUNNER = NativeRunner(("-O2",), forks=True)


@pytest.mark.parametrize("name", FORMULAS)
def test_every_formula_is_a_program_with_many_forms(name: str) -> None:
    found = {formula(name, Random(seed)).text for seed in range(40)}
    assert len(found) > 10
    assert all(parse(text).text == text for text in found)


def test_a_seed_is_a_program() -> None:
    assert user_program(3).text == user_program(3).text
    assert len({user_program(seed).name for seed in range(200)}) == len(FORMULAS)


def test_what_users_write_gets_kernels_that_pass() -> None:
    """Four of them, as ``benchmarks/users.py`` looks at hundreds, on the first target that runs here."""
    plugins = load_plugins()
    able = [
        t for t in plugins.targets.values() if plugins.unavailable(t) is None and plugins.heuristic_pass(t)
    ]
    native = [t for t in able if isinstance(plugins.runner(t), NativeRunner)]
    if not native:
        pytest.skip("needs a target whose kernels run on this machine")
    leg = NumericLeg(plugins, native[0])
    assert not list(users.problems(range(200, 204), plugins.rules(native[0]), leg))


def test_what_a_leg_refuses_is_told_with_its_program(monkeypatch: pytest.MonkeyPatch) -> None:
    plugins = load_plugins()
    target = next(iter(plugins.targets.values()))
    leg = NumericLeg(plugins, target)
    monkeypatch.setattr(users, "games", lambda program, *_: [Trace(program)])
    monkeypatch.setattr(NumericLeg, "__call__", lambda self, traces, optimised: ["is wrong"] * len(traces))
    found = list(users.problems([7], plugins.rules(target), leg))
    assert [(seed, leg, said) for seed, leg, said, _ in found] == [(7, "numeric", "is wrong")]
    assert user_program(7).text in found[0][3]


GELU = """kernel gelu(x, w, b) -> y
x f32 [5,16] heap
w f32 [16,7] heap
b f32 [7] heap
s f32 [5,7] heap
y f32 [5,7] heap

5 7
| s[{0},{1}] = b[{1}]
| 16 s[{0},{1}] += x[{0},{2}] * w[{2},{1}]
5 7 y[{0},{1}] = s[{0},{1}] * 0.5 * (1 + erf(s[{0},{1}] * 0.70710678))
"""
CONV = """kernel conv(x, f, b) -> y
x f32 [3,7,9] heap
f f32 [4,3,3,3] heap
b f32 [4] heap
s f32 [4,3,4] heap
y f32 [4,3,4] heap

4 3 4
| s[{0},{1},{2}] = 0
| 3 3 3 s[{0},{1},{2}] += x[{3},{1}*2+{4},{2}*2+{5}] * f[{0},{3},{4},{5}]
4 3 4 y[{0},{1},{2}] = max(s[{0},{1},{2}] + b[{0}], 0)
"""
MASKED = """kernel masked(x, keep) -> y
x f32 [8,16] heap
keep bool [8,16] heap
t f32 [8,16] heap
m f32 [8] heap
s f32 [8] heap
y f32 [8,16] heap

8 16 t[{0},{1}] = select(keep[{0},{1}], x[{0},{1}] * 0.125, -inf)
8
| m[{0}] = -inf
| 16 m[{0}] max= t[{0},{1}]
8
| s[{0}] = 0
| 16 s[{0}] += exp(t[{0},{1}] - m[{0}])
8 16 y[{0},{1}] = exp(t[{0},{1}] - m[{0}]) / s[{0}]
"""
LSE = """kernel lse(x) -> y
x f32 [8,19] heap
m f32 [8] heap
s f32 [8] heap
y f32 [8] heap

8
| m[{0}] = -inf
| 19 m[{0}] max= x[{0},{1}]
8
| s[{0}] = 0
| 19 s[{0}] += exp(x[{0},{1}] - m[{0}])
8 y[{0}] = log(s[{0}]) + m[{0}]
"""
VARIANCE = """kernel variance(x) -> y
x f32 [5,33] heap
t f32 [5] heap
q f32 [5] heap
y f32 [5] heap

5
| t[{0}] = 0
| 33 t[{0}] += x[{0},{1}]
5
| q[{0}] = 0
| 33 q[{0}] += (x[{0},{1}] - t[{0}] / 33) * (x[{0},{1}] - t[{0}] / 33)
5 y[{0}] = q[{0}] / 33
"""
FOLDED = """kernel folded(x, mean, var, g, b) -> y
x f32 [8,16] heap
mean f32 [16] heap
var f32 [16] heap
g f32 [16] heap
b f32 [16] heap
a f32 [16] heap
h f32 [16] heap
y f32 [8,16] heap

16 a[{0}] = g[{0}] / sqrt(var[{0}] + 1e-05)
16 h[{0}] = b[{0}] - mean[{0}] * a[{0}]
8 16 y[{0},{1}] = max(x[{0},{1}] * a[{1}] + h[{1}], 0)
"""
PRODUCT = """kernel likelihood(x) -> y
x f32 [8,19] heap
p f32 [8] heap
y f32 [8] heap

8
| p[{0}] = 1
| 19 p[{0}] *= 1 - x[{0},{1}]
8 y[{0}] = 1 - p[{0}]
"""
COUNT = """kernel count(x) -> y
x i16 [8,33] heap
y i16 [8] heap

8
| y[{0}] = 0
| 33 y[{0}] += x[{0},{1}]
"""
DOT = """kernel dot(x, z) -> y
x f64 [8,19] heap
z f64 [8,19] heap
y f64 [8] heap

8
| y[{0}] = 0
| 19 y[{0}] += x[{0},{1}] * z[{0},{1}]
"""
RUNNING = """kernel running(x) -> y
x f32 [8,16] heap
y f32 [8,17] heap

8
| y[{0},0] = -inf
| 16 y[{0},{1}+1] = max(y[{0},{1}], x[{0},{1}])
"""
SIGMOID = """kernel gate(x, z) -> y
x f32 [8,33] heap
z f32 [8,33] heap
y f32 [8,33] heap

8 33 y[{0},{1}] = z[{0},{1}] / (1 + exp(-x[{0},{1}]))
"""
#: Fault -> the program, a text in its emitted C, and the text that replaces it.
PLANTS: Mapping[str, tuple[str, str, str]] = {
    "another gelu": (
        GELU,
        "pd_erf_f32(s[i0*7 + i1] * 0.707106769f)",
        "pd_tanh_f32(0.797884583f * (s[i0*7 + i1] + 0.044715f * s[i0*7 + i1] * s[i0*7 + i1] * s[i0*7 + i1]))",
    ),
    "a bias of four columns": (GELU, "= b[i1];", "= b[i1 % 4];"),
    "relu of NaN is 0": (CONV, "pd_max_number_f32(0.0f, ", "fmaxf(0.0f, "),
    "no bias in the last column": (CONV, " + b[i0]", " + (i2 < 3 ? b[i0] : 0.0f)"),
    "a finite mask": (MASKED, "* 0.125f : -PD_INF", "* 0.125f : -1e4f"),
    "a maximum from 0": (MASKED, "m[i0] = -PD_INF;", "m[i0] = 0.0f;"),
    "a row of -inf made finite": (
        LSE,
        "s[i0] = 0.0f;",
        "s[i0] = 0.0f; if (m[i0] == -PD_INF) m[i0] = 0.0f;",
    ),
    "a variance in one pass": (
        VARIANCE,
        "(x[i0*33 + i1] - t[i0] / 33.0f) * (x[i0*33 + i1] - t[i0] / 33.0f)",
        "x[i0*33 + i1] * x[i0*33 + i1] - t[i0] / 33.0f * (t[i0] / 33.0f)",
    ),
    "an epsilon outside of its root": (
        FOLDED,
        "pd_sqrt_f32(var[i0] + 1e-05f)",
        "(pd_sqrt_f32(var[i0]) + 1e-05f)",
    ),
    "a product that ends at 0": (
        PRODUCT,
        "p[i0] *= 1.0f - x[i0*19 + i1];",
        "p[i0] *= 1.0f - x[i0*19 + i1]; if (p[i0] == 0.0f) break;",
    ),
    "a sum that saturates": (
        COUNT,
        "pd_add_i16(y[i0], x[i0*33 + i1])",
        "(y[i0] + x[i0*33 + i1] > 32767 ? 32767 : pd_add_i16(y[i0], x[i0*33 + i1]))",
    ),
    "terms of a shorter type": (
        DOT,
        "x[i0*19 + i1] * z[i0*19 + i1]",
        "(float)(x[i0*19 + i1] * z[i0*19 + i1])",
    ),
    "a running maximum without NaN": (
        RUNNING,
        "pd_max_f32(y[i0*17 + i1], x[i0*16 + i1])",
        "(x[i0*16 + i1] > y[i0*17 + i1] ? x[i0*16 + i1] : y[i0*17 + i1])",
    ),
    "a gate by tanh": (
        SIGMOID,
        "z[i0*33 + i1] / (1.0f + pd_exp_f32(-(x[i0*33 + i1])))",
        "z[i0*33 + i1] * (0.5f + 0.5f * pd_tanh_f32(0.5f * x[i0*33 + i1]))",
    ),
}  # fmt: skip


def refused(text: str, planted: Mapping[str, str]) -> str:
    """The problem that leg 2 finds in the plain C of a program in which text is replaced."""
    root = parse(text)
    source = CEmitter(root, "k", CORE_DIALECT).source()
    code = source.code
    for old, new in planted.items():
        assert old in code, code
        code = code.replace(old, new)
    artifact = RUNNER.compile(replace(source, code=code))
    assert isinstance(artifact, Artifact), artifact
    report = verify_numeric(root, root, artifact, RUNNER, {}, CORE_DIALECT, threads=(1,), forks=True)
    return "" if report.ok else report.problem


@cache
def right(text: str) -> str:
    return refused(text, {})


@pytest.mark.parametrize("name", PLANTS)
def test_a_wrong_kernel_of_a_users_program_is_refused(name: str) -> None:
    text, old, new = PLANTS[name]
    assert not right(text), right(text)
    assert refused(text, {old: new}), name

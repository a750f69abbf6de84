"""The plain C emitter, as a target has it without overriding anything."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from perfdojo_sdk.codegen.c import CEmitter, Function, Point
from perfdojo_sdk.codegen.c_values import c_condition, c_index, c_literal
from perfdojo_sdk.codegen.layout import plan
from perfdojo_sdk.codegen.names import c_name
from perfdojo_sdk.core.dialect import CORE_DIALECT
from perfdojo_sdk.core.expression import AffineExpr, Literal
from perfdojo_sdk.core.program import Scope
from perfdojo_sdk.core.text import parse

SOFTMAX = """kernel softmax(x) -> y
x f32 [8,16] heap
m f32 [8:N] stack
e f32 [8:N,16] stack
s f32 [8:N] heap
y f32 [8,16] heap

8:p
| m[{0}] = -inf
| 16 m[{0}] max= x[{0},{1}]
| 16:v e[{0},{1}] = exp(x[{0},{1}] - m[{0}])
| s[{0}] = 0
| 4 4:u s[{0}] += e[{0},{1}*4+{2}]
| 15:v e[{0},{1}+1] = e[{0},{1}+1] / s[{0}]
| e[{0},0] = e[{0},0] / s[{0}]
| 16 y[{0},{1}] = e[{0},{1}]
"""


def test_softmax_runs(tmp_path: Path) -> None:
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc")
    source = CEmitter(parse(SOFTMAX), "softmax", CORE_DIALECT).source()
    for name, text in {"k.c": source.code, **source.support}.items():
        (tmp_path / name).write_text(text)
    command = ["gcc", "-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-pthread"]
    subprocess.run([*command, "-o", "k.so", "k.c"], cwd=tmp_path, check=True, timeout=60)
    library = ctypes.CDLL(str(tmp_path / "k.so"))
    library.softmax_workspace_bytes.restype = ctypes.c_size_t
    x = np.random.default_rng(1).standard_normal((8, 16)).astype(np.float32)
    y = np.full_like(x, np.nan)
    size = library.softmax_workspace_bytes(2)
    space = np.empty(size, np.uint8)
    pointers = [ctypes.c_void_p(a.ctypes.data) for a in (x, y, space)]
    assert library.softmax(*pointers, ctypes.c_size_t(size), 2) == 0
    e = np.exp(x.astype(np.float64))
    np.testing.assert_allclose(y, e / e.sum(1, keepdims=True), rtol=1e-5)


def test_the_program_stands_above_its_c() -> None:
    code = CEmitter(parse(SOFTMAX), "softmax", CORE_DIALECT).source().code
    comment = code.removeprefix("/*\n").partition("\n */")[0]
    assert comment.splitlines() == [f" * {line}".rstrip() for line in SOFTMAX.splitlines()]


def test_layout_gives_each_thread_a_slot() -> None:
    layout = plan(parse(SOFTMAX), CORE_DIALECT)
    assert layout.home == {"m": (0,), "e": (0,), "s": (0,)}
    assert (layout.shared_bytes, layout.slot_bytes) == (0, 64)


def test_a_parallel_scope_of_one_iteration_needs_no_thread() -> None:
    program = parse(SOFTMAX.replace("8:p", "1:p").replace("[8", "[1"))
    assert set(plan(program, CORE_DIALECT).home.values()) == {()}
    assert "pd_parallel_for" not in CEmitter(program, "softmax", CORE_DIALECT).source().code


def test_only_the_outermost_of_nested_parallel_scopes_runs_on_threads() -> None:
    text = "kernel k(x) -> y\nx f32 [4,6] heap\nt f32 [4:N,6:N] stack\ny f32 [4,6] heap\n\n"
    text += "4:p 6:p\n| t[{0},{1}] = x[{0},{1}]\n| y[{0},{1}] = t[{0},{1}]\n"
    nested = replace(CORE_DIALECT, nested_parallel=True)
    code = CEmitter(parse(text, nested), "k", nested).source().code
    assert code.count("pd_parallel_for(") == 1
    assert plan(parse(text, nested), nested).home["t"] == (0,)


def test_a_plugin_overrides_one_visit() -> None:
    class Counted(CEmitter):
        def visit_loop(self, scope: Scope, point: Point) -> None:
            self.function.line(f"/* {scope.size} iterations */")
            super().visit_loop(scope, point)

        def visit_claimed(self, scope: Scope, point: Point) -> bool:
            if scope.suffix != "u":
                return False
            self.function.line("claimed();")
            return True

    code = Counted(parse(SOFTMAX), "softmax", CORE_DIALECT).source().code
    assert code.count("/* 16 iterations */") == 3 and code.count("claimed();") == 1


@pytest.mark.parametrize(
    ("name", "expected"),
    [("x", "x"), ("int", "int_"), ("int_", "int__"), ("i0", "i0_"), ("pd_x", "pd_x_"), ("NULL", "NULL_")],
)
def test_names(name: str, expected: str) -> None:
    assert c_name(name) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0.0, "0.0f"), (-0.0, "-0.0f"), (0.1, "0.1f"), (1e-45, "1.4013e-45f"), (16777217.0, "16777216.0f"),
     (float("-inf"), "-PD_INF"), (1e39, "PD_INF"), (1 / 3, "0.333333343f"), (1e20, "1e+20f")],
)  # fmt: skip
def test_literals_round_once_and_come_back(value: float, expected: str) -> None:
    text = c_literal(Literal(value, "f32"))
    assert text == expected
    if "INF" not in text:
        assert np.float32(text[:-1]) == np.float32(value)


def test_indices() -> None:
    assert c_index(AffineExpr.of({0: 512, 2: 1}, 3)) == "i0*512 + i2 + 3"
    assert c_index(AffineExpr.of({0: -1, 1: 2}, -3)) == "-i0 + i1*2 - 3"
    assert c_index(AffineExpr()) == "0"


def test_conditions_read_as_in_the_program() -> None:
    assert c_condition([AffineExpr.of({1: -1}, 126)]) == "i1 <= 126"
    assert c_condition([AffineExpr.of({0: 4, 1: -1}, -3)]) == "i0*4 - i1 >= 3"
    assert (
        c_condition([AffineExpr.of({0: 1}, 2), AffineExpr.of({1: -2, 2: -1})]) == "i0 >= -2 && i1*2 + i2 <= 0"
    )


#: Statements under one condition, under another one, and under the first one again.
GUARDED = """kernel guarded(x) -> y
x f32 [8] heap
a f32 [8] stack
b f32 [8] stack
y f32 [8] heap

8
| a[{0}] = 0
| b[{0}] = 0
| a[{0}] = x[{0}] if {0} <= 5
| b[{0}] = a[{0}] if {0} <= 5
| 2:u b[{0}] += a[{0}] if {0} <= 5
| b[{0}] += a[{0}] if {0} >= 2
| 3 b[{0}] += a[{0}] if {0} <= 5
| b[{0}] += 1 if {0} <= 5
| y[{0}] = b[{0}]
"""


def test_statements_under_one_condition_share_a_block() -> None:
    code = CEmitter(parse(GUARDED), "guarded", CORE_DIALECT).source().code
    body = code[code.index("for (int64_t i0") :]
    assert (
        body
        == """for (int64_t i0 = 0; i0 < 8; i0++) {
        a[i0] = 0.0f;
        b[i0] = 0.0f;
        if (i0 <= 5) {
            a[i0] = x[i0];
            b[i0] = a[i0];
            b[i0] += a[i0];
            b[i0] += a[i0];
        }
        if (i0 >= 2) {
            b[i0] += a[i0];
        }
        for (int64_t i1 = 0; i1 < 3; i1++) {
            if (i0 <= 5) {
                b[i0] += a[i0];
            }
        }
        if (i0 <= 5) {
            b[i0] += 1.0f;
        }
        y[i0] = b[i0];
    }
    return 0;
}
"""
    )


def test_a_block_goes_on_only_at_once_and_at_its_own_depth() -> None:
    function = Function(())
    with function.where("c"):
        function.line("one;")
    with function.block("for (;;)"), function.where("c"):
        function.line("inside;")
    with function.where("c"):
        function.line("behind;")
    function.line("between;")
    with function.where("c"), function.where("d"):
        function.line("both;")
    with function.where("d"):
        function.line("other;")
    with function.where("d"):
        function.line("more;")
    assert [line.removeprefix("    ") for line in function.lines] == [
        "if (c) {", "    one;", "}",
        "for (;;) {", "    if (c) {", "        inside;", "    }", "}",
        "if (c) {", "    behind;", "}",
        "between;",
        "if (c) {", "    if (d) {", "        both;", "    }", "}",
        "if (d) {", "    other;", "    more;", "}",
    ]  # fmt: skip

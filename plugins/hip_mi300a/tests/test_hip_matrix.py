"""Products on matrix units: what the expert plays, what it computes, what the compiler makes of it."""

from __future__ import annotations

from functools import cache

import pytest
from perfdojo_hip_mi300a import _target
from perfdojo_hip_mi300a.codegen import HipCodeGenerator
from perfdojo_hip_mi300a.compile import compile_for_gpu, compiler

from perfdojo_sdk.core.text import parse
from perfdojo_sdk.core.transformation import Kind, Trace
from perfdojo_sdk.hookspecs.types import Artifact
from perfdojo_sdk.kernels.selection import select
from perfdojo_sdk.measure.emulated_runner import EmulatedRunner
from perfdojo_sdk.measure.gpu_runner import MOST_INSTANCES, DeviceCode
from perfdojo_sdk.plugins import load_plugins
from perfdojo_sdk.testing.emulated import Emulated
from perfdojo_sdk.testing.kernel_checks import Case
from perfdojo_sdk.verify.dependence import verify_dependence_trace
from perfdojo_sdk.verify.exact import verify_exact_trace
from perfdojo_sdk.verify.numeric import NumericReport, verify_numeric
from perfdojo_sdk.verify.reduced import reduce_trace

TARGET = _target()
GENERATOR = HipCodeGenerator(TARGET.capabilities)
MULTIPLY = "pd_tile_multiply("

#: Four warps, each with a tile; a slice of both operands in shared memory at a time.
PRODUCT = """\
kernel product(a, b) -> c
a f32 [32,32] heap
b f32 [32,32] heap
a_r f32 [32,16] shared
b_r f32 [32,16] shared
c_w f32 [2,2,16,16] tile
c f32 [32,32] heap

1:g
| 2:b 2:b 16 16:m c_w[{1},{2},{3},{4}] = 0
| 2
| | 16:b 16:b 2 a_r[{2}*2+{4},{3}] = a[{2}*2+{4},{1}*16+{3}]
| | 16:b 16:b 2 b_r[{2}*2+{4},{3}] = b[{1}*16+{3},{2}*2+{4}]
| | 2:b 2:b 16 16 16:m c_w[{2},{3},{4},{5}] += a_r[{2}*16+{4},{6}] * b_r[{3}*16+{5},{6}]
| 2:b 2:b 16 16:m c[{1}*16+{3},{2}*16+{4}] = c_w[{1},{2},{3},{4}]
"""


@cache
def emulated() -> Emulated:
    plugins = load_plugins(targets=["hip_mi300a"])
    return Emulated(plugins, plugins.target("hip_mi300a"))


def games(text: str) -> list[tuple[Trace, ...]]:
    """Of each kernel: on vector units, and on matrix units where there is a product for them."""
    kernels = select(text, emulated().operators, TARGET.dialect)
    return [tuple(emulated().expert(k.program, emulated().rules, TARGET)) for k in kernels]


def checked(text: str, forget: str = "") -> NumericReport:
    """Leg 2 in emulation under watch, with some words of the source forgotten."""
    program, runner = parse(text, TARGET.dialect), EmulatedRunner(64)
    source = GENERATOR.generate(program, "pd_case")
    code = source.code.replace(forget, "", 1) if forget else source.code
    artifact = runner.compile(type(source)(**{**vars(source), "code": code}))
    assert isinstance(artifact, Artifact), artifact
    return verify_numeric(
        program, program, artifact, runner, {}, TARGET.dialect, quick=True, nan_may_differ=True
    )


def test_a_product_keeps_its_tiles_in_registers_and_uses_the_matrix_unit() -> None:
    code = GENERATOR.generate(parse(PRODUCT, TARGET.dialect), "pd_case").code
    assert "c_w: registers of a warp's lanes" in code
    assert "pd_tile_multiply(c_w, a_r, i2*256, 16, b_r, i3*256, 16, 16);" in code
    report = checked(PRODUCT)
    assert report.ok, report.problem


@pytest.mark.parametrize("forget", ["pd_sync_block();", "pd_tile_cell(c_w, pd_own) = 0.0f;"])
def test_what_a_tile_lacks_is_noticed(forget: str) -> None:
    """A slice that is read before it is there, and sums that nobody started."""
    report = checked(PRODUCT, forget)
    assert not report.ok and ("nobody wrote" in report.problem or "data race" in report.problem)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("16 16:m c_w[{1},{2},{3},{4}] = 0", "16 16 c_w[{1},{2},{3},{4}] = 0"),  # another use of the tile
        ("a_r[{2}*16+{4},{6}] * b_r[{3}*16+{5},{6}]", "(a_r[{2}*16+{4},{6}] - b_r[{3}*16+{5},{6}])"),
        ("c_w f32 [2,2,16,16] tile", "c_w f32 [2,2,16,16] shared"),
    ],
)
def test_what_is_no_product_of_tiles_has_code_all_the_same(old: str, new: str) -> None:
    assert old in PRODUCT
    text = PRODUCT.replace(old, new)
    assert MULTIPLY not in GENERATOR.generate(parse(text, TARGET.dialect), "pd_case").code
    report = checked(text)
    assert report.ok, report.problem


def test_rows_that_need_each_other_are_not_shared_out() -> None:
    """Every row adds the one before it: lanes that take rows in any order would be wrong."""
    text = "kernel k(x) -> y\nx f32 [17,32] heap\ny f32 [17,32] heap\n\n"
    text += "1:g 2:b\n| 16:w y[0,{1}*16+{2}] = x[0,{1}*16+{2}]\n"
    text += "| 16 16:m y[{2}+1,{1}*16+{3}] = x[{2}+1,{1}*16+{3}] + y[{2},{1}*16+{3}]\n"
    assert "pd_tile" not in GENERATOR.generate(parse(text, TARGET.dialect), "pd_case").code.partition("*/")[2]
    report = checked(text)
    assert report.ok, report.problem


def test_the_expert_has_a_second_game_for_products() -> None:
    """It re-associates, where the first one is exact; leg 1 and leg 3 hold it to that."""
    [(plain, matrix)] = games("matmul[64,64,64]")
    assert (plain.kind, matrix.kind) == (Kind.EXACT, Kind.REASSOCIATES)
    [only] = games("softmax[16,256]")
    assert len(only) == 1
    small = reduce_trace(matrix, emulated().rules, 3000)
    assert verify_exact_trace(small, TARGET.dialect).ok
    assert verify_dependence_trace(small, emulated().rules).ok


def test_products_hold_under_watch() -> None:
    cases = [Case(str(k), game[1]) for k, game in enumerate(games("matmul[32,64,64] bmm[2,64,32,64]"))]
    assert all(MULTIPLY in GENERATOR.generate(case.game.program, "pd_case").code for case in cases)
    assert not list(emulated().problems(cases))


def test_the_librarys_products_are_verified_on_matrix_units() -> None:
    """At the shape at which a build runs them, the tiles are still tiles."""
    for _, matrix in games("matmul bmm swiglu"):
        small = reduce_trace(matrix, emulated().rules, MOST_INSTANCES)
        assert MULTIPLY in GENERATOR.generate(small.program, "pd_case").code


@pytest.mark.skipif(not compiler(), reason="the ziglang wheel is not installed")
def test_the_compiler_uses_matrix_instructions() -> None:
    [(_, matrix)] = games("matmul")
    code = compile_for_gpu(GENERATOR.generate(matrix.program, "pd_case"), "gfx942")
    assert isinstance(code, DeviceCode), code
    assert b"v_mfma_f32_16x16x4_f32" in code.files["kernel.s"]
    [resources] = code.resources
    assert (resources.figures["scratch_bytes"], resources.figures["spilled_registers"]) == (0, 0)

"""Products on matrix units: the expert's games, their results, their machine code."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from perfdojo_hip_mi300a import HOOKS
from perfdojo_hip_mi300a.codegen import generator, runtime
from perfdojo_hip_mi300a.compile import compile_for_gpu, compiler

from perfdojo_sdk.codegen.c import support_text
from perfdojo_sdk.codegen.gpu.figures import read
from perfdojo_sdk.codegen.gpu.mapping import machine_of
from perfdojo_sdk.core.dtypes import rounding_law
from perfdojo_sdk.core.text import parse
from perfdojo_sdk.core.transformation import Kind, Trace
from perfdojo_sdk.experts.gpu.heuristic import heuristic
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

TARGET = HOOKS.target
GENERATOR = generator(TARGET.capabilities)
MULTIPLY = "pd_tile_add("

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


def games(text: str, most: Kind = Kind.DECLARED_LAW) -> list[tuple[Trace, ...]]:
    """Games of each kernel: on vector units, and on matrix units where there is a product for them; where
    precision may change, with operands of tf32 and of bf16 as well."""
    kernels, rules = select(text, emulated().operators, TARGET.dialect), replace(emulated().rules, most=most)
    return [tuple(emulated().expert(k.program, rules, TARGET)) for k in kernels]


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
    assert "const auto pd_a0 = pd_rows(a_r, i2*256 + pd_step, 16, 1);" in code
    assert "const auto pd_b1 = pd_columns(b_r, i3*256 + pd_step, 16, 1);" in code
    assert "pd_tile_add(c_w, pd_a0, pd_b1);" in code
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
    [only] = games("softmax[16,256]", Kind.CHANGES_PRECISION)
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


def test_tiles_are_chosen_for_this_machines_number_of_multiprocessors() -> None:
    """Threads enough to keep all of them busy, which takes more here than on another GPU."""
    few = replace(machine_of(TARGET.capabilities), multiprocessors=132)
    assert [few.share_at_work(blocks) for blocks in (66, 132, 264)] == [0.5, 1, 1]
    rules = replace(emulated().rules, most=Kind.CHANGES_PRECISION)
    [kernel] = select("matmul", emulated().operators, TARGET.dialect)

    def threads(game: Trace) -> int:
        [launch] = read(GENERATOR.generate(game.program, "pd_case").code)
        return launch.blocks * launch.threads

    mine = heuristic(kernel.program, rules, machine_of(TARGET.capabilities))[1:]
    others = heuristic(kernel.program, rules, few)[1:]
    assert all(threads(game) >= 228 * 512 for game in mine)
    assert all(threads(game) >= 132 * 512 for game in others) and any(
        threads(game) != threads(other) for game, other in zip(mine, others, strict=True)
    )


#: dtype -> which of a product's games it is, the instruction, and its name in the machine code.
SHORT = {"tf32": (2, b"v_mfma_f32_16x16x8_xf32"), "bf16": (3, b"v_mfma_f32_16x16x16_bf16")}


@pytest.mark.parametrize("dtype", SHORT)
def test_shorter_dtypes_are_further_games_where_the_user_asks_for_them(dtype: str) -> None:
    number = SHORT[dtype][0]
    [game] = games("matmul[64,64,64]", Kind.CHANGES_PRECISION)
    assert len(game) == 2 + len(SHORT) and game[number].laws == {rounding_law(dtype)}
    assert game[number].kind is Kind.CHANGES_PRECISION
    small = reduce_trace(game[number], emulated().rules, 3000)
    assert verify_exact_trace(small, TARGET.dialect).ok
    assert verify_dependence_trace(small, emulated().rules).ok
    tiles = [g[number] for g in games("matmul[32,64,64] bmm[2,64,32,64]", Kind.CHANGES_PRECISION)]
    codes = [GENERATOR.generate(game.program, "pd_case").code for game in tiles]
    assert all(MULTIPLY in code and f"PD_SHARED(pd_{dtype}, " in code for code in codes)
    awkward = [g[-1] for g in games("matmul[31,33,7] matmul[48,64,80]", Kind.CHANGES_PRECISION)]
    assert not list(emulated().problems([Case(str(k), game) for k, game in enumerate([*tiles, *awkward])]))


@pytest.mark.skipif(not compiler(), reason="the ziglang wheel is not installed")
@pytest.mark.parametrize(("number", "instruction"), SHORT.values(), ids=SHORT)
def test_the_compiler_uses_matrix_instructions_of_shorter_dtypes(number: int, instruction: bytes) -> None:
    [short] = games("matmul", Kind.CHANGES_PRECISION)
    code = compile_for_gpu(GENERATOR.generate(short[number].program, "pd_case"), "gfx942")
    assert isinstance(code, DeviceCode), code
    assert instruction in code.files["kernel.s"]
    [resources] = code.resources
    assert (resources.figures["scratch_bytes"], resources.figures["spilled_registers"]) == (0, 0)


RECORDER = """
#include <stdint.h>
#include <stdio.h>
#define PD_INLINE static inline
#define PD_UNROLL
#include "pd_stored.h"
static int pd_lane;
typedef float four __attribute__((vector_size(16)));
typedef short four_short __attribute__((vector_size(8)));
static float wide(short bits) { return pd_f32_from_bf16(pd_bf16_of((uint16_t)bits)); }
static four one(float a, float b, four sum)
{
    printf("1 %d %g %g\\n", pd_lane, a, b);
    return sum;
}
static float half(short bits) { return pd_f32_from_f16(pd_f16_of((uint16_t)bits)); }
static four sixteen(four_short a, four_short b, four sum, int word, float value(short))
{
    printf("%d %d", word, pd_lane);
    for (int k = 0; k < 4; k++)
        printf(" %g %g", value(a[k]), value(b[k]));
    printf("\\n");
    return sum;
}
typedef float two __attribute__((vector_size(8)));
static four eight(two a, two b, four sum)
{
    printf("3 %d %g %g %g %g\\n", pd_lane, a[0], b[0], a[1], b[1]);
    return sum;
}
#define __builtin_amdgcn_mfma_f32_16x16x8_xf32(a, b, sum, x, y, z) eight(a, b, sum)
#define __builtin_amdgcn_mfma_f32_16x16x4f32(a, b, sum, x, y, z) one(a, b, sum)
#define __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(a, b, sum, x, y, z) sixteen(a, b, sum, 2, wide)
#define __builtin_amdgcn_mfma_f32_16x16x16f16(a, b, sum, x, y, z) sixteen(a, b, sum, 4, half)
@HEADER@
/* Rows of 40 elements, from the fifth on; turned, they are columns of sixteen. */
template <class T> static void multiply(pd_tile &tile, const T *a, const T *b, int steps, bool turned)
{
    const int at = turned ? 4 * 16 : 4, stride = turned ? 1 : 40, step = turned ? 16 : 1;
    for (int k = at; k < at + 32 * step; k += steps * step)
        pd_tile_add(tile, pd_rows(a, k, stride, step), pd_columns(b, k, stride, step));
}
int main(int count, char **)
{
    const bool turned = count > 1;
    static float a[16 * 40], b[16 * 40];
    static pd_bf16 short_a[16 * 40], short_b[16 * 40];
    static pd_f16 half_a[16 * 40], half_b[16 * 40];
    static pd_tf32 less_a[16 * 40], less_b[16 * 40];
    for (int number = 0; number < 16 * 40; number++) {
        const int k = turned ? number % 40 * 16 + number / 40 : number;
        a[k] = (float)(number * 7 % 61 - 30), b[k] = (float)(number * 5 % 59 - 29);
        half_a[k] = pd_f16_from_f32(a[k]), half_b[k] = pd_f16_from_f32(b[k]);
        short_a[k] = pd_bf16_from_f32(a[k]), short_b[k] = pd_bf16_from_f32(b[k]);
        less_a[k] = pd_tf32_from_f32(a[k]), less_b[k] = pd_tf32_from_f32(b[k]);
    }
    for (pd_lane = 0; pd_lane < 64; pd_lane++) {
        pd_tile tile = {0, 0, 0, 0};
        multiply(tile, a, b, 4, turned);
        multiply(tile, short_a, short_b, 16, turned);
        multiply(tile, less_a, less_b, 8, turned);
        multiply(tile, half_a, half_b, 16, turned);
        for (int own = 0; own < PD_TILE_OWN; own++)
            printf("0 %d %d %d %d\\n", pd_lane, own, pd_tile_row(own), pd_tile_column(own));
    }
}
"""


@pytest.mark.parametrize("turned", [False, True])
def test_lanes_bring_and_keep_what_the_instructions_say(turned: bool, tmp_path: Path) -> None:
    """The header's own code for each lane, with instructions made after the tables of AMD's manual."""
    header = runtime()
    tile = header[header.index("/* Four steps of a row") : header.index("PD_INLINE void pd_store4_f16(")]
    tile += header[header.index("#define PD_TILE_OWN") : header.index("/* Four steps of a row")]
    tile += header[header.index("/* What the unit takes of") : header.rindex("#endif")]
    tile = tile.replace("float pd_tile __attribute__((ext_vector_type(4)))", "four pd_tile")
    tile = tile.replace("short pd_four __attribute__((ext_vector_type(4)))", "four_short pd_four")
    tile = tile.replace("_Float16 pd_f16x4 __attribute__((ext_vector_type(4)))", "four_short pd_f16x4")
    tile = tile.replace("float pd_f32x2 __attribute__((ext_vector_type(2)))", "two pd_f32x2")
    (tmp_path / "pd_stored.h").write_text(support_text("pd_stored.h"))
    (tmp_path / "lanes.cpp").write_text(RECORDER.replace("@HEADER@", tile))
    subprocess.run(["c++", "-O1", "-o", "lanes", "lanes.cpp"], cwd=tmp_path, check=True)
    command = [tmp_path / "lanes", *(["turned"] if turned else [])]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    lines = [list(map(int, line.split())) for line in printed.splitlines()]
    k = np.arange(16 * 40).reshape(16, 40)[:, 4:36]
    meant = (k * 7 % 61 - 30) @ (k * 5 % 59 - 29).T
    cells = [line[1:] for line in lines if line[0] == 0]
    assert sorted((row, column) for *_, row, column in cells) == list(product(range(16), range(16)))
    for word, each in ((1, 1), (2, 4), (3, 2), (4, 4)):
        brought = [[line[2:] for line in lines if line[:2] == [word, lane]] for lane in range(64)]
        total = np.zeros((16, 16))
        for step in range(len(brought[0])):
            left, right = np.zeros((16, 4 * each)), np.zeros((4 * each, 16))
            for lane in range(64):
                for v in range(each):
                    at = each * (lane // 16) + v
                    left[lane % 16, at], right[at, lane % 16] = brought[lane][step][2 * v : 2 * v + 2]
            total += left @ right
        assert all(
            total[4 * (lane // 16) + own, lane % 16] == meant[row, column] for lane, own, row, column in cells
        )


def test_figures_count_a_product_and_its_sum_once_and_matrix_units_by_dtype() -> None:
    [(plain, *others)] = games("matmul[64,64,64]", Kind.CHANGES_PRECISION)
    counts = [read(GENERATOR.generate(game.program, "pd_case").code)[0] for game in (plain, *others)]
    assert counts[0].operations == counts[1].operations == 64**3
    assert [c.matrix_operations for c in counts] == [{}, {}, {"tf32": 64**3}, {"bf16": 64**3}]

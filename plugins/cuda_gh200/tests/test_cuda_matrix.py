"""Products of tf32 and bf16 on tensor cores: permission, results, machine code."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cuda_support import TARGET, agrees_with_golden, emitted, program
from perfdojo_cuda_gh200.codegen import runtime
from perfdojo_cuda_gh200.compile import compile_for_gpu, nvrtc

from perfdojo_sdk.codegen.c import support_text
from perfdojo_sdk.core.dtypes import rounding_law
from perfdojo_sdk.core.transformation import Kind, Trace
from perfdojo_sdk.hookspecs.types import Artifact
from perfdojo_sdk.kernels.selection import select
from perfdojo_sdk.measure.emulated_runner import EmulatedRunner
from perfdojo_sdk.measure.gpu_runner import DeviceCode
from perfdojo_sdk.plugins import load_plugins
from perfdojo_sdk.testing.emulated import Emulated
from perfdojo_sdk.testing.kernel_checks import Case
from perfdojo_sdk.verify.dependence import verify_dependence_trace
from perfdojo_sdk.verify.exact import verify_exact_trace
from perfdojo_sdk.verify.numeric import NumericReport, verify_numeric
from perfdojo_sdk.verify.reduced import reduce_trace

MULTIPLY = "pd_tile_multiply_"
#: Dtypes that tensor cores multiply, in the order in which the expert plays them: more digits first.
DTYPES = ("tf32", "bf16")

#: Two warps, each with two tiles; slices of both operands rounded on their way into shared memory.
PRODUCT = """\
kernel product(a, b) -> c
a f32 [32,32] heap
b f32 [32,32] heap
a_r bf16 [32,20] shared
b_r bf16 [32,20] shared
c_w f32 [2,2,16,16] tile
c f32 [32,32] heap

1:g
| 2:b 2 16 16:m c_w[{1},{2},{3},{4}] = 0
| 2
| | 4:b 32:b 4:v a_r[{3},{2}*4+{4}] = bf16(a[{3},{1}*16+{2}*4+{4}])
| | 4:b 32:b 4 b_r[{3},{2}*4+{4}] = bf16(b[{1}*16+{2}*4+{4},{3}])
| | 2:b 2 16 16 16:m c_w[{2},{3},{4},{5}] += f32(a_r[{3}*16+{4},{6}]) * f32(b_r[{2}*16+{5},{6}])
| 2:b 2 16 16:m c[{2}*16+{3},{1}*16+{4}] = c_w[{1},{2},{3},{4}]
"""


@cache
def emulated() -> Emulated:
    plugins = load_plugins(targets=["cuda_gh200"])
    return Emulated(plugins, plugins.target("cuda_gh200"))


def asked(text: str) -> list[tuple[Trace, ...]]:
    """Games of each kernel, where the user lets precision change: on FMA units, and on tensor cores."""
    rules = replace(emulated().rules, most=Kind.CHANGES_PRECISION)
    kernels = select(text, emulated().operators, TARGET.dialect)
    return [tuple(emulated().expert(k.program, rules, TARGET)) for k in kernels]


def product_of(dtype: str) -> str:
    """:data:`PRODUCT` with slices of this dtype."""
    return PRODUCT.replace("bf16", dtype)


def checked(text: str, forget: str = "") -> NumericReport:
    source, runner = emitted(text), EmulatedRunner()
    assert not forget or forget in source.code
    code = source.code.replace(forget, "", 1) if forget else source.code
    artifact = runner.compile(replace(source, code=code))
    assert isinstance(artifact, Artifact), artifact
    root = re.sub("bf16|tf32", "f32", text)  # the same sums, nothing rounded
    return verify_numeric(program(root), program(text), artifact, runner, {}, TARGET.dialect, quick=True)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_product_goes_through_the_tensor_cores(dtype: str) -> None:
    text = product_of(dtype)
    code = emitted(text).code
    assert "pd_tile c_w[2];" in code, "registers of the warp that has them"
    assert "PD_UNROLL\n            for (int i3 = 0; i3 < 2; i3++)" in code
    assert f"pd_tile_multiply_{dtype}(c_w[i3], a_r, i3*320, 20, 1, b_r, i2*320, 20, 1, 16);" in code
    assert f"pd_store4_{dtype}(a_r, " in code
    report = checked(text)
    assert report.ok, report.problem


def test_the_code_of_a_product_reads_well() -> None:
    agrees_with_golden(emitted(product_of("tf32")), "product_tf32.cu")


@pytest.mark.parametrize(("claimed", "given"), [("f32", "tf32"), ("tf32", "bf16")])
def test_a_product_with_fewer_digits_than_it_says_is_noticed(claimed: str, given: str) -> None:
    """The bound is that of the dtype that was declared, so the code of a shorter one does not pass."""
    runner = EmulatedRunner()
    artifact = runner.compile(emitted(product_of(given)))
    assert isinstance(artifact, Artifact), artifact
    root, claim = program(product_of("f32")), program(product_of(claimed))
    report = verify_numeric(root, claim, artifact, runner, {}, TARGET.dialect, quick=True)
    assert not report.ok and "nobody wrote" not in report.problem


@pytest.mark.parametrize("forget", ["pd_sync_block();", "pd_tile_cell(c_w[i2], pd_own) = 0.0f;"])
def test_what_it_lacks_is_noticed(forget: str) -> None:
    report = checked(PRODUCT, forget)
    assert not report.ok and ("nobody wrote" in report.problem or "data race" in report.problem)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("b_r bf16 [32,20]", "b_r bf16 [32,18]"),  # rows that start between two pieces
        ("f32(a_r[{3}*16+{4},{6}]) *", "f32(a_r[{3}*16+{4},{6}]) * 1 *"),
        ("a_r bf16", "a_r f32"),
    ],
)
def test_what_they_cannot_do_the_lanes_do(old: str, new: str) -> None:
    text = PRODUCT.replace(old, new)
    if new == "a_r f32":
        text = text.replace("bf16(a[", "f32(a[").replace("f32(a_r[{3}*16+{4},{6}])", "a_r[{3}*16+{4},{6}]")
    assert text != PRODUCT and MULTIPLY not in emitted(text).code
    report = checked(text)
    assert report.ok, report.problem


def test_nobody_gets_them_unasked() -> None:
    [kernel] = select("matmul[64,64,64]", emulated().operators, TARGET.dialect)
    assert [g.kind for g in emulated().expert(kernel.program, emulated().rules, TARGET)] == [Kind.EXACT]
    [(plain, *short)] = asked("matmul[64,64,64]")
    assert plain.kind is Kind.EXACT and {game.kind for game in short} == {Kind.CHANGES_PRECISION}
    assert [game.laws for game in short] == [{rounding_law(dtype)} for dtype in DTYPES]
    for game in short:
        small = reduce_trace(game, emulated().rules, 3000)
        assert verify_exact_trace(small, TARGET.dialect).ok
        assert verify_dependence_trace(small, emulated().rules).ok


def test_products_hold_under_watch() -> None:
    """At a small shape and at awkward ones, where there is no tile for them."""
    shapes = asked("matmul[32,64,64] bmm[2,64,32,64]")
    cases = [Case(f"{k} {n}", game) for k, games in enumerate(shapes) for n, game in enumerate(games[1:])]
    assert len(cases) == len(shapes) * len(DTYPES)
    assert all(MULTIPLY in emulated().generator.generate(c.game.program, "pd_case").code for c in cases)
    awkward = [Case(str(k), game[-1]) for k, game in enumerate(asked("matmul[31,33,7] matmul[48,64,80]"))]
    assert not list(emulated().problems([*cases, *awkward]))


@pytest.mark.skipif(nvrtc() is None, reason="NVRTC is not installed; try: pip install nvidia-cuda-nvrtc")
@pytest.mark.parametrize(("dtype", "steps"), [("tf32", 8), ("bf16", 16)])
def test_the_compiler_uses_tensor_cores(dtype: str, steps: int) -> None:
    [(_, *games)] = asked("matmul")
    short = games[DTYPES.index(dtype)]
    code = compile_for_gpu(emulated().generator.generate(short.program, "pd_case"), "sm_90")
    assert isinstance(code, DeviceCode), code
    ptx = code.files["kernel.ptx"].decode()
    assert f"mma.sync.aligned.m16n8k{steps}.row.col.f32.{dtype}.{dtype}.f32" in ptx
    assert f"cvt.rn.{dtype}.f32" in ptx
    [resources] = code.resources
    assert (resources.figures["spill_bytes"], resources.figures["stack_bytes"]) == (0, 0)


RECORDER = """
#include <stdint.h>
#include <stdio.h>
#define PD_INLINE static inline
#define PD_UNROLL
#include "pd_stored.h"
static int pd_lane;
static float *first;
static void @WORD@(float *sum, uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1)
{
    printf("%d %d %u %u %u %u %u %u\\n", pd_lane, (int)(sum - first), a0, a1, a2, a3, b0, b1);
}
@HEADER@
int main()
{
    static pd_@DTYPE@ a[16 * 40], b[16 * 40];
    for (int k = 0; k < 16 * 40; k++)
        a[k] = pd_@DTYPE@_from_f32((float)(k * 7 % 61 - 30)),
        b[k] = pd_@DTYPE@_from_f32((float)(k * 5 % 59 - 29));
    for (pd_lane = 0; pd_lane < 32; pd_lane++) {
        pd_tile tile;
        first = tile.values;
        pd_tile_multiply_@DTYPE@(tile, a, 4, 40, 1, b, 4, 40, 1, 32);
        for (int own = 0; own < PD_TILE_OWN; own++)
            printf("%d %d %d %d\\n", pd_lane, own, pd_tile_row(own), pd_tile_column(own));
    }
}
"""


def pairs(lane: int, number: int, register: int) -> Iterator[tuple[int, int, float]]:
    """Row (of the left factor) or column, step and value of the two bf16 that a lane brings in a register."""
    for half in range(2):
        value = np.uint32((register >> 16 * half & 0xFFFF) << 16).view(np.float32)
        step = lane % 4 * 2 + half + 8 * (number // 2 if number < 4 else number - 4)
        yield (lane // 4 + 8 * (number % 2) if number < 4 else lane // 4), step, value


def words(lane: int, number: int, register: int) -> Iterator[tuple[int, int, float]]:
    """The same of a tf32, which has a register of its own."""
    step = lane % 4 + 4 * (number // 2 if number < 4 else number - 4)
    side = lane // 4 + 8 * (number % 2) if number < 4 else lane // 4
    yield side, step, np.uint32(register).view(np.float32)


@pytest.mark.parametrize(
    ("dtype", "word", "steps", "held"), [("bf16", "pd_mma", 16, pairs), ("tf32", "pd_mma_tf32", 8, words)]
)
def test_lanes_bring_and_keep_what_the_instruction_says(
    dtype: str, word: str, steps: int, held: Callable[..., Any], tmp_path: Path
) -> None:
    """The header's own code for each lane, with an instruction made after the tables of the PTX manual."""
    header = runtime()
    tile = header[header.index("#define PD_TILE_OWN") : header.rindex("#endif")]
    tile = re.sub(r"PD_INLINE void pd_mma\w*\(.*?\n}\n", "", tile, flags=re.DOTALL)
    assert "asm" not in tile
    others = {"pd_mma", "pd_mma_tf32"} - {word}
    recorder = RECORDER.replace("@HEADER@", f"#define {others.pop()}(...) ((void)0)\n" + tile)
    (tmp_path / "pd_stored.h").write_text(support_text("pd_stored.h"))
    (tmp_path / "lanes.cpp").write_text(recorder.replace("@WORD@", word).replace("@DTYPE@", dtype))
    subprocess.run(["c++", "-O1", "-o", "lanes", "lanes.cpp"], cwd=tmp_path, check=True)
    printed = subprocess.run([tmp_path / "lanes"], capture_output=True, text=True, check=True).stdout
    lines = [list(map(int, line.split())) for line in printed.splitlines()]
    calls: dict[tuple[int, int], list[list[int]]] = {}  # (step, side of the tile) -> what each lane brings
    for lane in range(32):
        mine = [line[1:] for line in lines if len(line) == 8 and line[0] == lane]
        assert len(mine) == 2 * 32 // steps
        for number, (offset, *registers) in enumerate(mine):
            calls.setdefault((number, offset), []).append(registers)
    found = np.zeros((32, 8))
    for (_, offset), lanes in calls.items():
        left, right = np.zeros((16, steps)), np.zeros((steps, 8))
        assert len(lanes) == 32
        for lane, registers in enumerate(lanes):
            for number, register in enumerate(registers):
                for side, step, value in held(lane, number, register):
                    if number < 4:
                        left[side, step] = value
                    else:
                        right[step, side] = value
        sums = left @ right
        for lane in range(32):
            for k in range(4):
                found[lane, offset + k] += sums[lane // 4 + 8 * (k // 2), lane % 4 * 2 + k % 2]
    k = np.arange(16 * 40).reshape(16, 40)[:, 4:36]
    meant = (k * 7 % 61 - 30) @ (k * 5 % 59 - 29).T
    cells = [line for line in lines if len(line) == 4]
    assert sorted((row, column) for *_, row, column in cells) == list(product(range(16), range(16)))
    assert all(found[lane, own] == meant[row, column] for lane, own, row, column in cells)

"""Products of tf32 and bf16 on tensor cores: permission, results, machine code."""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from cuda_support import TARGET, agrees_with_golden, emitted, program
from perfdojo_cuda_gh200.codegen import runtime
from perfdojo_cuda_gh200.compile import compile_for_gpu, nvrtc

from perfdojo_sdk.codegen.c import support_text
from perfdojo_sdk.codegen.gpu.figures import read
from perfdojo_sdk.core.dtypes import rounding_law
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.core.transformation import Kind, Trace
from perfdojo_sdk.hookspecs.types import Artifact, Failure, KernelSource, Measurement, RunRequest
from perfdojo_sdk.kernels.selection import select
from perfdojo_sdk.library.verification import Subject, affordable
from perfdojo_sdk.measure.emulated_runner import EmulatedRunner
from perfdojo_sdk.measure.gpu_runner import DeviceCode
from perfdojo_sdk.plugins import load_plugins
from perfdojo_sdk.testing.emulated import Emulated
from perfdojo_sdk.testing.kernel_checks import Case
from perfdojo_sdk.verify.dependence import verify_dependence_trace
from perfdojo_sdk.verify.exact import verify_exact_trace
from perfdojo_sdk.verify.numeric import NumericReport, verify_numeric
from perfdojo_sdk.verify.reduced import reduce_trace
from perfdojo_sdk.verify.smaller_games import statement_instances

MULTIPLY = "pd_tile_add("
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
    """Games of each kernel, where the user lets precision change: on FMA units, with slices that are waited
    for and copied ahead, and on tensor cores."""
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
    assert "const auto pd_a0 = pd_rows(a_r, " in code and "const auto pd_b1 = pd_columns(b_r, i2*320" in code
    assert "pd_tile_add(c_w[0], pd_a0, pd_b1);" in code and "pd_tile_add(c_w[1], pd_a2, pd_b1);" in code
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
    assert [g.kind for g in emulated().expert(kernel.program, emulated().rules, TARGET)] == [Kind.EXACT] * 2
    [(plain, ahead, *short)] = asked("matmul[64,64,64]")
    assert plain.kind is ahead.kind is Kind.EXACT and {game.kind for game in short} == {
        Kind.CHANGES_PRECISION
    }
    assert [game.laws for game in short] == [{rounding_law(dtype)} for dtype in DTYPES]
    for game in short:
        small = reduce_trace(game, emulated().rules, 3000)
        assert verify_exact_trace(small, TARGET.dialect).ok
        assert verify_dependence_trace(small, emulated().rules).ok


def test_products_hold_under_watch() -> None:
    """At a small shape and at awkward ones, where there is no tile for them."""
    shapes = asked("matmul[32,64,64] bmm[2,64,32,64]")
    cases = [Case(f"{k} {n}", game) for k, games in enumerate(shapes) for n, game in enumerate(games[2:])]
    assert len(cases) == len(shapes) * len(DTYPES)
    assert all(MULTIPLY in emulated().generator.generate(c.game.program, "pd_case").code for c in cases)
    awkward = [Case(str(k), game[-1]) for k, game in enumerate(asked("matmul[31,33,7] matmul[48,64,80]"))]
    assert not list(emulated().problems([*cases, *awkward]))


@pytest.mark.skipif(nvrtc() is None, reason="NVRTC is not installed; try: pip install nvidia-cuda-nvrtc")
@pytest.mark.parametrize(("dtype", "steps"), [("tf32", 8), ("bf16", 16)])
def test_the_compiler_uses_tensor_cores(dtype: str, steps: int) -> None:
    [(_, _, *games)] = asked("matmul")
    short = games[DTYPES.index(dtype)]
    code = compile_for_gpu(emulated().generator.generate(short.program, "pd_case"), "sm_90")
    assert isinstance(code, DeviceCode), code
    ptx = code.files["kernel.ptx"].decode()
    assert f"mma.sync.aligned.m16n8k{steps}.row.col.f32.{dtype}.{dtype}.f32" in ptx
    assert f"cvt.rn.{dtype}.f32" in ptx
    [resources] = code.resources
    assert (resources.figures["spill_bytes"], resources.figures["stack_bytes"]) == (0, 0)


#: dtype of the factors -> of the sums.
STORED = {"bf16": "f32", "f16": "f32", "i8": "i32"}


def stored(dtype: str, turned: bool, rows: int = 64, columns: int = 64, steps: int = 128) -> Program:
    """A product of factors that are stored in a short dtype, and a statement for each sum."""
    total, back = STORED[dtype], f"{dtype}(t[{{0}},{{1}}])" if dtype != "i8" else "t[{0},{1}] * 3"
    result = dtype if dtype != "i8" else total
    shape, at = (f"{steps},{columns}", "{2},{1}") if turned else (f"{columns},{steps}", "{1},{2}")
    return program(
        f"kernel product(a, b) -> c\na {dtype} [{rows},{steps}] heap\nb {dtype} [{shape}] heap\n"
        f"t {total} [{rows},{columns}] heap\nc {result} [{rows},{columns}] heap\n\n"
        f"{rows} {columns}\n| t[{{0}},{{1}}] = 0\n"
        f"| {steps} t[{{0}},{{1}}] += {total}(a[{{0}},{{2}}]) * {total}(b[{at}])\n"
        f"{rows} {columns} c[{{0}},{{1}}] = {back}\n"
    )


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("dtype", STORED)
def test_factors_that_are_stored_short_go_there_as_they_are(dtype: str, turned: bool) -> None:
    """Nothing is rounded on the way, slices are copied ahead, what follows reads the sums in registers."""
    *_, game = emulated().expert(stored(dtype, turned), emulated().rules, TARGET)
    assert game.kind <= Kind.REASSOCIATES
    code = emulated().generator.generate(game.program, "pd_case").code
    assert MULTIPLY in code and "/* workspace 0 */" in code and code.count("PD_KERNEL(") == 1
    assert "pd_rows_shared(a_r, " in code and "pd_columns_shared(b_r, " in code
    assert "pd_copy_async16(a_r_2, " in code and code.count("pd_copies_done();") == code.count(
        "pd_sync_block();"
    )
    assert not list(emulated().problems([Case(dtype, game)]))
    small = reduce_trace(game, emulated().rules, 40_000)
    assert verify_exact_trace(small, TARGET.dialect).ok
    assert verify_dependence_trace(small, emulated().rules).ok


@pytest.mark.parametrize("dtype", ["u8", "bf16 f16", "i16"])
def test_the_unit_multiplies_some_pairs_of_dtypes(dtype: str) -> None:
    """u8 with i8, but no two floats of different dtypes, and no i16."""
    left, _, right = dtype.partition(" ")
    root = stored("bf16" if right else "i8", False)
    text = (
        root.text.replace("a bf16", f"a {left}").replace("b bf16", f"b {right}").replace("a i8", f"a {left}")
    )
    *_, game = emulated().expert(program(text), emulated().rules, TARGET)
    code = emulated().generator.generate(game.program, "pd_case").code
    assert (MULTIPLY in code) == (dtype == "u8")
    assert not list(emulated().problems([Case(dtype, game)]))


def test_a_forgotten_wait_is_noticed() -> None:
    *_, game = emulated().expert(stored("bf16", True), emulated().rules, TARGET)
    source, runner = emulated().generator.generate(game.program, "pd_case"), EmulatedRunner()
    for forget in ("pd_copies_done();", "pd_sync_block();"):
        artifact = runner.compile(replace(source, code=source.code.replace(forget, "")))
        assert isinstance(artifact, Artifact), artifact
        report = verify_numeric(game.root, game.program, artifact, runner, {}, TARGET.dialect, quick=True)
        assert not report.ok and ("nobody wrote" in report.problem or "data race" in report.problem)


def test_large_slices_are_shared_memory_that_the_launch_asks_for() -> None:
    root = stored("bf16", True, 4096, 4096, 4096)
    *_, game = emulated().expert(root, emulated().rules, TARGET)
    source = emulated().generator.generate(game.program, "pd_case")
    [launch] = read(source.code)
    assert launch.dynamic_bytes == launch.shared_bytes > 49152 and launch.blocks >= 132
    assert f"PD_LAUNCH_DYNAMIC(pd_case_k0, {launch.blocks}, 256, {launch.dynamic_bytes}, " in source.code
    starts = [int(text) for text in re.findall(r"PD_SHARED_AT\(pd_bf16, \d+, \w+, (\d+)\);", source.code)]
    assert len(starts) == 4 and starts == sorted(starts) and all(start % 16 == 0 for start in starts)
    assert "PD_DYNAMIC();" in source.code and "PD_SHARED(" not in source.code


@pytest.mark.skipif(nvrtc() is None, reason="NVRTC is not installed; try: pip install nvidia-cuda-nvrtc")
@pytest.mark.parametrize(("dtype", "shape"), [("bf16", "k16"), ("f16", "k16"), ("i8", "k32")])
def test_the_compiler_loads_squares_and_copies_ahead(dtype: str, shape: str) -> None:
    *_, game = emulated().expert(stored(dtype, dtype != "i8", 4096, 4096, 4096), emulated().rules, TARGET)
    code = compile_for_gpu(emulated().generator.generate(game.program, "pd_case"), "sm_90")
    assert isinstance(code, DeviceCode), code
    ptx = code.files["kernel.ptx"].decode()
    assert f"mma.sync.aligned.m16n8{shape}" in ptx and "ldmatrix.sync.aligned.m8n8.x4.shared" in ptx
    assert "cp.async.cg.shared.global" in ptx and ("x4.trans" in ptx) == (dtype != "i8")
    [resources] = code.resources
    assert (resources.figures["spill_bytes"], resources.figures["stack_bytes"]) == (0, 0)


RECORDER = """
#include <stdint.h>
#include <stdio.h>
#define PD_INLINE static inline
#define PD_UNROLL
#include "pd_stored.h"
static int pd_lane;
static const void *first;
template <class C> static void multiplied(C *sum, const uint32_t *a, uint32_t b0, uint32_t b1)
{
    printf("%d %d %u %u %u %u %u %u\\n", pd_lane, (int)(sum - (C *)first), a[0], a[1], a[2], a[3], b0, b1);
}
#define PD_MMA(name, shape, types, C, T) const auto name = multiplied<C>;
@HEADER@
/* ldmatrix by the PTX manual: lanes give rows first, and get their words when all have. */
static const char *given[32];
static bool all_have;
template <class T> static void pd_squares(pd_side<T> &side, const T *start)
{
    given[pd_lane] = (const char *)start;
    for (int k = 0; all_have && k < 4; k++)
        side.words[k] = ((const uint32_t *)given[8 * k + pd_lane / 4])[pd_lane % 4];
}
template <class T> static void pd_squares_turned(pd_side<T> &side, const T *start)
{
    given[pd_lane] = (const char *)start;
    for (int k = 0; all_have && k < 4; k++) {
        const char *const *const rows = given + 8 * k + pd_lane % 4 * 2;
        const uint16_t low = ((const uint16_t *)rows[0])[pd_lane / 4];
        side.words[k] = low | (uint32_t)((const uint16_t *)rows[1])[pd_lane / 4] << 16;
    }
}
typedef @TYPE@ T;
static T number(int value) { return @NUMBER@; }
int main()
{
    /* Rows of 40 elements, from the eighth on; turned, these are columns of sixteen. */
    alignas(16) static T a[16 * 64], b[16 * 64];
    const bool turned = @TURNED@;
    for (int k = 0; k < 16 * 48; k++) {
        const int at = turned ? k % 48 * 16 + k / 48 : k;
        a[at] = number(k * 7 % 61 - 30), b[at] = number(k * 5 % 59 - 29);
    }
    const int start = turned ? 16 * 16 : 16, stride = turned ? 1 : 48, step = turned ? 16 : 1;
    for (int k = 0; k < 32; k += @STEPS@) {
        pd_side<T> rows[32], columns[32];
        for (int side = 0; side < 2; side++)
            for (int again = 0; again < 2; again++)
                for (pd_lane = 0, all_have = again; pd_lane < 32; pd_lane++)
                    if (side)
                        columns[pd_lane] = pd_columns@SHARED@(b, start + k * step, stride, step);
                    else
                        rows[pd_lane] = pd_rows@SHARED@(a, start + k * step, stride, step);
        for (pd_lane = 0; pd_lane < 32; pd_lane++) {
            @TILE@ tile;
            first = tile.values;
            pd_tile_add(tile, rows[pd_lane], columns[pd_lane]);
            for (int own = 0; !k && own < PD_TILE_OWN; own++)
                printf("%d %d %d %d\\n", pd_lane, own, pd_tile_row(own), pd_tile_column(own));
        }
    }
}
"""

#: dtype -> C type, a number of it, the type of a word in NumPy, steps that an instruction takes.
KINDS = {
    "tf32": ("pd_tf32", "pd_tf32_from_f32((float)value)", "<f4", 8),
    "bf16": ("pd_bf16", "pd_bf16_from_f32((float)value)", "<u2", 16),
    "f16": ("pd_f16", "pd_f16_from_f32((float)value)", "<f2", 16),
    "i8": ("int8_t", "(int8_t)value", "i1", 32),
}


def elements(dtype: str, word: int) -> list[float]:
    """The numbers in a word of four bytes."""
    found = np.array([word], "<u4").view(KINDS[dtype][2])
    if dtype == "bf16":
        found = (found.astype(np.uint32) << 16).view(np.float32)
    return [float(value) for value in found]


@pytest.mark.parametrize(
    ("dtype", "shared", "turned"),
    [
        *((dtype, False, turned) for dtype in KINDS for turned in (False, True)),
        *((dtype, True, turned) for dtype in ("bf16", "f16") for turned in (False, True)),
        ("i8", True, False),
    ],
)
def test_lanes_bring_and_keep_what_the_instruction_says(
    dtype: str, shared: bool, turned: bool, tmp_path: Path
) -> None:
    """The header's own code for each lane, with instructions made after the tables of the PTX manual."""
    header = runtime()
    tile = header[header.index("#define PD_TILE_OWN") : header.rindex("#endif")]
    tile = re.sub(r"template <class T> PD_INLINE void pd_squares\w*\(.*?\n}\n", "", tile, flags=re.DOTALL)
    tile = re.sub(r"#define PD_MMA\(.*?\n    }\n", "", tile, flags=re.DOTALL)
    assert "asm" not in tile
    name, number, _, steps = KINDS[dtype]
    words = {
        "HEADER": tile,
        "TYPE": name,
        "NUMBER": number,
        "STEPS": str(steps),
        "TURNED": "true" if turned else "false",
        "SHARED": "_shared" if shared else "",
        "TILE": "pd_tile_i32" if dtype == "i8" else "pd_tile",
    }
    recorder = RECORDER
    for word, text in words.items():
        recorder = recorder.replace(f"@{word}@", text)
    (tmp_path / "pd_stored.h").write_text(support_text("pd_stored.h"))
    (tmp_path / "lanes.cpp").write_text(recorder)
    subprocess.run(["c++", "-O1", "-std=c++17", "-o", "lanes", "lanes.cpp"], cwd=tmp_path, check=True)
    printed = subprocess.run([tmp_path / "lanes"], capture_output=True, text=True, check=True).stdout
    lines = [list(map(int, line.split())) for line in printed.splitlines()]
    calls: dict[tuple[int, int], list[list[int]]] = {}  # (step, side of the tile) -> what each lane brings
    for lane in range(32):
        mine = [line[1:] for line in lines if len(line) == 8 and line[0] == lane]
        assert len(mine) == 2 * 32 // steps
        for call, (offset, *registers) in enumerate(mine):
            calls.setdefault((call, offset), []).append(registers)
    found = np.zeros((32, 8))
    each = steps // 8
    for (_, offset), lanes in calls.items():
        left, right = np.zeros((16, steps)), np.zeros((steps, 8))
        assert len(lanes) == 32
        for lane, registers in enumerate(lanes):
            for k, register in enumerate(registers):
                at = (lane % 4 + 4 * (k // 2 if k < 4 else k - 4)) * each
                values = elements(dtype, register)
                if k < 4:
                    left[lane // 4 + 8 * (k % 2), at : at + each] = values
                else:
                    right[at : at + each, lane // 4] = values
        sums = left @ right
        for lane in range(32):
            for k in range(4):
                found[lane, offset + k] += sums[lane // 4 + 8 * (k // 2), lane % 4 * 2 + k % 2]
    k = np.arange(16 * 48).reshape(16, 48)[:, 16:48]
    meant = (k * 7 % 61 - 30) @ (k * 5 % 59 - 29).T
    cells = [line for line in lines if len(line) == 4]
    assert sorted((row, column) for *_, row, column in cells) == list(product(range(16), range(16)))
    assert all(found[lane, own] == meant[row, column] for lane, own, row, column in cells)


class Recorder:
    """A runner that compiles nothing, and takes small kernels only."""

    most_instances = 20_000

    def compile(self, source: KernelSource) -> Artifact | Failure:
        return Artifact(source.symbol, source.inputs, source.outputs, "none", source.code.encode())

    def run(self, artifact: Artifact, request: RunRequest) -> Measurement | Failure:
        raise AssertionError("whoever asks for the source alone runs nothing")


def test_the_units_code_is_what_a_smaller_shape_runs_too() -> None:
    """So many instances would leave too few steps for the unit: a few times as many are taken."""
    *_, game = emulated().expert(stored("bf16", True, 256, 256, 256), emulated().rules, TARGET)
    smallest = reduce_trace(game, emulated().rules, Recorder.most_instances)
    assert MULTIPLY not in emulated().generator.generate(smallest.program, "pd_case").code
    shipped = Recorder().compile(emulated().generator.generate(game.program, "pd_case"))
    assert isinstance(shipped, Artifact)
    subject = Subject(game, emulated().rules, shipped, Recorder(), {}, 1, 0, emulated().generator)
    small, compiled = affordable(subject)
    assert statement_instances(small.program) < statement_instances(game.program)
    assert MULTIPLY.encode() in compiled.content

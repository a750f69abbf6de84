"""f16: single numbers, and words of four in one register."""

from __future__ import annotations

import numpy as np
import pytest
from perfdojo_riscv_snitch.codegen.functions import ACCURACY
from perfdojo_riscv_snitch.passes import heuristic
from perfdojo_riscv_snitch.veto import beyond
from snitch_support import Game, compiled, run

from perfdojo_sdk.core.text import parse
from perfdojo_sdk.kernels.selection import select
from perfdojo_sdk.verify.numeric import verify_numeric

GAME = Game()
DIALECT = GAME.target.dialect
HEAD = "kernel k(x, z) -> y\nx f16 [4,8] heap\nz f16 [4,8] heap\ny f16 [4,8] heap\n"

#: Buffers and tree, what comes out, and the instructions that must be there, as often.
RUNS = {
    "four at once": (
        "\n4 2 4:v y[{0},{1}*4+{2}] = x[{0},{1}*4+{2}] * z[{0},{1}*4+{2}] + x[{0},{1}*4+{2}] - 2\n",
        lambda x, z: x * z + x - 2,
        {"vfmul.h": 1, "vfadd.h": 1, "vfsub.h": 1, "fld": 3, "fsd": 1, "flh": 0},
    ),
    "maxima, and a product added to what is there": (
        "\n4 2 4:v y[{0},{1}*4+{2}] = select(x[{0},{1}*4+{2}] > 0, x[{0},{1}*4+{2}], 0)\n"
        "4 2 4:v y[{0},{1}*4+{2}] += x[{0},{1}*4+{2}] * z[{0},{1}*4+{2}]\n",
        lambda x, z: np.maximum(x, 0) + x * z,
        {"vfmax.h": 1, "vfmac.h": 1},
    ),
    "a number for all lanes": (
        "s f16 [4] reg\n\n4:u s[{0}] = x[{0},0]\n4:u 4:v y[{0},{1}] = s[{0}]\n"
        "4:u 4:v y[{0},{1}+4] = s[{0}] * z[{0},{1}] + z[{0},{1}+4]\n",
        lambda x, z: np.concatenate([x[:, :1].repeat(4, 1), x[:, :1] * z[:, :4] + z[:, 4:]], 1),
        {"vfmul.r.h": 8, "vfadd.h": 4},
    ),
    "lanes added to several numbers, in step": (
        "s f16 [4] reg\n\n4:u s[{0}] = z[{0},0]\n4:u 4:v s[{0}] += x[{0},{1}] * z[{0},{1}]\n"
        "4 8 y[{0},{1}] = 0\n4:u y[{0},0] = s[{0}]\n",
        lambda x, z: np.pad(((x * z)[:, :4].sum(1) + z[:, 0])[:, None], ((0, 0), (0, 7))),
        {"vfsumex.s.h": 4, "vfsum.s": 4, "fcvt.h.s": 4, "fsh": 5},
    ),
    "lanes added to one number, one after the other": (
        "s f16 [1] reg\n\ns[0] = 1\n4:u 2:u 4:v s[0] += x[{0},{1}*4+{2}]\n4 8 y[{0},{1}] = s[0]\n",
        lambda x, z: np.full_like(x, x.sum() + 1),
        {"vfsumex.s.h": 8},
    ),
    "lanes added to a number in memory": (
        "\n4 8 y[{0},{1}] = 3\n4 2 4:v y[{0},1] += x[{0},{1}*4+{2}]\n",
        lambda x, z: np.concatenate([x[:, :1] * 0 + 3, x.sum(1, keepdims=True) + 3, x[:, :6] * 0 + 3], 1),
        {"vfsumex.s.h": 1, "flh": 1},
    ),
    "words that are none, and scopes that are no word, go lane by lane": (
        "\n4 8 y[{0},{1}] = 0\n4 4:v y[{0},{1}] = x[{0},{1}+1]\n4 3:v y[{0},{1}+4] = z[{0},{1}+4]\n"
        "4 2:v y[{0},{1}+4] += x[{0},{1}]\n",
        lambda x, z: np.concatenate(
            [x[:, 1:5], x[:, :2] + z[:, 4:6], z[:, 6:7], 0 * x[:, :1]], 1
        ),
        {"vfadd.h": 0, "fld": 0},
    ),
    "streams of words, repeated": (
        "x_r f16 [8:N,4] ssr0\nz_r f16 [8:N,4] ssr1\nw f16 [8:N,4] ssr2\n\n8:frep\n"
        "| 4:v x_r[{0},{1}] = x[{0}//2,{0}%2*4+{1}]\n| 4:v z_r[{0},{1}] = z[{0}//2,{0}%2*4+{1}]\n"
        "| 4:v w[{0},{1}] = x_r[{0},{1}] + z_r[{0},{1}]\n| 4:v y[{0}//2,{0}%2*4+{1}] = w[{0},{1}]\n",
        lambda x, z: x + z,
        {"vfadd.h": 1, "frep.o": 1, "flh": 0, "fsh": 0},
    ),
    "single numbers: comparisons, iterators, conversions, powers of two": (
        "\n4 8\n| y[{0},{1}] = select(x[{0},{1}] < z[{0},{1}], -x[{0},{1}], abs(z[{0},{1}])) / 4\n"
        "| y[{0},{1}] += f16(f32(x[{0},{1}]) * 0.5) + f16(index({0}*8+{1}))\n"
        "| y[{0},{1}] = max(y[{0},{1}], -1)\n",
        lambda x, z: np.maximum(
            np.where(x < z, -x, abs(z)) / 4 + x * 0.5 + np.arange(32).reshape(4, 8), -1
        ),
        {"fdiv.h": 0, "fcvt.s.h": 1, "fcvt.h.s": 1},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", RUNS)
def test_words_and_single_numbers(name: str) -> None:
    text, wanted, instructions = RUNS[name]
    program = parse(HEAD + text, DIALECT)
    assert beyond(program, DIALECT) is None
    rng = np.random.default_rng(5)
    given = {array: rng.integers(-9, 9, (4, 8)).astype(np.float16) for array in "xz"}
    found = run(program, given).outputs["y"]
    assert found.dtype == np.float16
    np.testing.assert_array_equal(found, wanted(given["x"], given["z"]))
    code = [
        line.split("# ")[-1].strip() for line in compiled(program).code.splitlines() if line[:4] == "    "
    ]
    for word, count in instructions.items():
        assert sum(line.startswith(word + " ") for line in code) == count, word


def test_numbers_beyond_the_range_and_nan() -> None:
    tree = "\n4 2 4:v y[{0},{1}*4+{2}] = x[{0},{1}*4+{2}] * 1e9 + z[{0},{1}*4+{2}]\n"
    program = parse(HEAD + tree, DIALECT)
    x = np.zeros((4, 8), np.float16)
    x[0, :3], x[1, 0] = (1, -(2.0**-24), np.nan), np.inf
    z = np.full((4, 8), -0.0, np.float16)
    with np.errstate(all="ignore"):
        wanted = x * np.float16(np.inf) + z
    np.testing.assert_array_equal(run(program, {"x": x, "z": z}).outputs["y"], wanted)


@pytest.mark.parametrize("value", [
    "exp({x})", "1 / {x}", "{x} / {z}", "sqrt(abs({x}))", "tanh({x})", "f16(exp(f32({x}))) * 3 + 0.1",
])  # fmt: skip
@pytest.mark.parametrize("scopes", ["4 8", "4 8:u"])
def test_functions_pass_the_numeric_leg(value: str, scopes: str) -> None:
    text = value.format(x="x[{0},{1}]", z="z[{0},{1}]")
    program = parse(f"{HEAD}\n{scopes} y[{{0}},{{1}}] = {text}\n", DIALECT)
    artifact = GAME.compile(compiled(program))
    report = verify_numeric(program, program, artifact, GAME.runner, ACCURACY, DIALECT, 0, (1,))
    assert report.ok, report.problem


@pytest.mark.parametrize(
    "text, code",
    [
        ("r f16 [8:N] ssr0\n\n4 8\n| r[{1}] = x[{0},{1}]\n| y[{0},{1}] = r[{1}]\n", "SNITCH-105"),
        (
            "s f16 [4] reg\np f16 [4] reg\n\n4:u s[{0}] = x[{0},0]\n4:v p[{0}] = x[1,{0}]\n"
            "4:v p[{0}] += s[{0}]\n4 4:v y[{0},{1}] = p[{1}]\n4 4:v y[{0},{1}+4] = p[{1}]\n",
            "SNITCH-109",
        ),
        (
            "p f16 [4] reg\n\n4:v p[{0}] = x[1,{0}+1]\n4 8 y[{0},{1}] = 0\n4:v y[0,{0}] = p[{0}]\n",
            "SNITCH-109",
        ),
        (
            "p f16 [4] reg\n\n4:v p[{0}] = x[1,{0}]\n4 8 y[{0},{1}] = 0\n2:v y[0,{0}] = p[{0}]\n",
            "SNITCH-109",
        ),
    ],
)  # fmt: skip
def test_what_has_no_word_is_refused(text: str, code: str) -> None:
    refused = beyond(parse(HEAD + text, DIALECT), DIALECT)
    assert refused is not None and refused.requirement.code == code, refused


#: Kernel -> most cycles of the expert's best game (simulated).
EXPERT = {"hsum[40,40]": 424, "hrelu[4,4]": 26, "hmatmul[4,32,32]": 1429, "hmatmul_transb[4,64,16]": 1582,
          "hdot[128]": 105, "haxpy[64]": 58}  # fmt: skip


@pytest.mark.parametrize("name", EXPERT)
def test_the_expert_works_on_words_of_four_and_its_kernels_verify(name: str) -> None:
    (kernel,) = select(name, GAME.plugins.operators)
    best = []
    for trace in heuristic(kernel.program, GAME.rules, GAME.target):
        artifact = GAME.compile(GAME.generator.generate(trace.program, kernel.symbol))
        report = verify_numeric(kernel.program, trace.program, artifact, GAME.runner, {}, DIALECT, 0, (1,))
        assert report.ok, report.problem
        given = {n: np.ones(kernel.program.buffer_of[n].shape, np.float16) for n in kernel.program.inputs}
        best.append(run(trace.program, given).details["snitch.cycles"])
    assert min(best) <= EXPERT[name]

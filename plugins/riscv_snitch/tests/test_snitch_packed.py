"""Sums and copies between pairs and single numbers of f32."""

from __future__ import annotations

import numpy as np
import pytest
from perfdojo_riscv_snitch.veto import beyond
from snitch_support import PLUGINS, compiled, golden, run

from perfdojo_sdk.core.text import parse

DIALECT = PLUGINS.target("riscv_snitch").dialect
HEAD = "kernel k(x, z) -> y\nx f32 [4,8] heap\nz f32 [4,8] heap\ny f32 [4] heap\n"

#: Buffers and tree, what comes out, and the instructions that must be there, as often.
RUNS = {
    "halves of registers, results packed into words": (
        "p f32 [4,2] reg\ns f32 [4] reg\nx_r f32 [4:N,4:N,2] ssr0\nz_r f32 [4:N,4:N,2] ssr1\n"
        "w f32 [2:N,2] ssr2\n\n4:u 2:v p[{0},{1}] = 0\n"
        "4:frep 4:u\n| 2:v x_r[{0},{1},{2}] = x[{1},{0}*2+{2}]\n| 2:v z_r[{0},{1},{2}] = z[{1},{0}*2+{2}]\n"
        "| 2:v p[{1},{2}] += x_r[{0},{1},{2}] * z_r[{0},{1},{2}]\n"
        "4:u s[{0}] = 0\n4:u 2:v s[{0}] += p[{0},{1}]\n"
        "2:u\n| 2:v w[{0},{1}] = s[{0}*2+{1}]\n| 2:v y[{0}*2+{1}] = w[{0},{1}]\n",
        lambda x, z: (x * z).sum(1),
        {"vfsum.s": 4, "vfcpka.s.s": 2, "fsw": 0, "flw": 0},
    ),
    "pairs of a stream": (
        "s f32 [4:N] reg\nr f32 [4:N,4:N,2] ssr0\n\n4\n| s[{0}] = z[{0},0]\n| 4:frep\n"
        "| | 2:v r[{0},{1},{2}] = x[{0},{1}*2+{2}]\n| | 2:v s[{0}] += r[{0},{1},{2}]\n| y[{0}] = s[{0}]\n",
        lambda x, z: x.sum(1) + z[:, 0],
        {"vfsum.s": 1, "vfmul.s": 0},
    ),
    "products of pairs in memory, into memory": (
        "\n4\n| y[{0}] = 1\n| 4 2:v y[{0}] += x[{0},{1}*2+{2}] * z[{0},{1}*2+{2}]\n",
        lambda x, z: (x * z).sum(1) + 1,
        {"vfsum.s": 1, "vfmul.s": 1, "fld": 2},
    ),
    "words that are none are added one by one": (
        "\n4\n| y[{0}] = 0\n| 3 2:v y[{0}] += x[{0},{1}*2+{2}+1]\n",
        lambda x, z: x[:, 1:7].sum(1),
        {"vfsum.s": 0, "fadd.s": 2},
    ),
    "a number for both lanes": (
        "s f32 [2] reg\n\n2:u s[{0}] = x[0,{0}]\n2:u 2:v y[{0}*2+{1}] = z[{0},{1}] - s[{0}]\n"
        "2:u 2:v y[{0}*2+{1}] += s[{0}] * z[{0},{1}]\n",
        lambda x, z: (z[:2, :2] - x[0, :2, None] + z[:2, :2] * x[0, :2, None]).ravel(),
        {"vfsub.r.s": 2, "vfmac.r.s": 2, "vfcpka.s.s": 0},
    ),
    "numbers that are no word are packed, several pairs in step": (
        "s f32 [2,2] reg\np f32 [2,2] reg\n\n2:u 2:v s[{0},{1}] = 1\n"
        "2:u 2:v s[{0},{1}] += x[{0},{1}+1] * z[{0},{1}+2]\n"
        "2:u 2:v p[{0},{1}] = select(x[{0},{1}+3] > 5, x[{0},{1}+3], 5)\n"
        "2:u 2:v y[{0}*2+{1}] = s[{0},{1}] + p[{0},{1}]\n",
        lambda x, z: (1 + x[:2, 1:3] * z[:2, 2:4] + np.maximum(x[:2, 3:5], 5)).ravel(),
        {"vfcpka.s.s": 6, "flw": 8, "fld": 2, "vfmac.s": 2, "vfmax.s": 2},
    ),
    "what was packed before is read again": (
        "s f32 [2,2] reg\n\n2:u 2:v s[{0},{1}] = x[0,{1}+1] * z[{0},{1}]\n"
        "2:u 2:v y[{0}*2+{1}] = s[{0},{1}] - x[0,{1}+1]\n",
        lambda x, z: (x[0, 1:3] * z[:2, :2] - x[0, 1:3]).ravel(),
        {"vfcpka.s.s": 1, "flw": 2},
    ),
    "but not after a store": (
        "2:v y[{0}] = x[0,{0}]\n2:v y[{0}+2] = x[0,{0}+2]\n2:v y[{0}] += y[{0}+1] * x[0,{0}]\n"
        "2:v y[{0}+2] = y[{0}+1]\n".replace("2:v", "\n2:v", 1),
        lambda x, z: [
            first := x[0, 0] + x[0, 1] * x[0, 0],
            second := x[0, 1] + x[0, 2] * x[0, 1],
            second + 0 * first,
            x[0, 2],
        ],
        {"vfcpka.s.s": 2, "flw": 4},
    ),
    "registers are packed where they are operands": (
        "s f32 [2] reg\n\n2:u s[{0}] = x[0,{0}]\n2 2:v y[{0}*2+{1}] = s[{1}] * z[{0},{1}]\n",
        lambda x, z: (x[0, :2] * z[:2, :2]).ravel(),
        {"vfcpka.s.s": 1, "vfmul.s": 1},
    ),
}


@pytest.mark.parametrize("name", RUNS)
def test_pairs_and_single_numbers(name: str) -> None:
    text, wanted, instructions = RUNS[name]
    program = parse(HEAD + text, DIALECT)
    assert beyond(program, DIALECT) is None
    rng = np.random.default_rng(5)
    given = {array: rng.integers(-9, 9, (4, 8)).astype(np.float32) for array in "xz"}
    np.testing.assert_array_equal(run(program, given).outputs["y"], wanted(given["x"], given["z"]))
    code = [
        line.split("# ")[-1].strip() for line in compiled(program).code.splitlines() if line[:4] == "    "
    ]
    for word, count in instructions.items():
        assert sum(line.startswith(word + " ") for line in code) == count, word


def test_the_code_of_packed_sums() -> None:
    text, *_ = RUNS["halves of registers, results packed into words"]
    golden("packed_sums.s", compiled(parse(HEAD + text, DIALECT)).code)

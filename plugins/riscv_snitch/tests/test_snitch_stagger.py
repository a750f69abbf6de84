"""Staggered repetition: a body of one instruction walks over several accumulators.

A body that is written out does the same in more entries of the sequencer, and takes as many cycles.
"""

from __future__ import annotations

import re
import struct

import numpy as np
import pytest
from perfdojo_riscv_snitch.simulator import simulate
from perfdojo_riscv_snitch.veto import beyond
from snitch_support import TCDM, Game, compiled, run

from perfdojo_sdk.core.text import parse
from perfdojo_sdk.core.transformation import Move, Trace
from perfdojo_sdk.library import verification

COUNT, LANES = 128, 4
SET_UP = f"""
    li a0, {TCDM}
    li a1, {TCDM + 8 * COUNT}
    li t0, {COUNT - 1}
    scfgwi t0, 95
    li t0, 8
    scfgwi t0, 223
    fcvt.d.w fa0, zero
    fmv.d fa1, fa0
    fmv.d fa2, fa0
    fmv.d fa3, fa0
    csrr t4, mcycle
    scfgwi a0, 768
    scfgwi a1, 769
    csrsi 0x7c0, 1
"""
WRITTEN_OUT = f"""
    li t0, {COUNT // LANES - 1}
    frep.o t0, 4
    fmadd.d fa0, ft0, ft1, fa0
    fmadd.d fa1, ft0, ft1, fa1
    fmadd.d fa2, ft0, ft1, fa2
    fmadd.d fa3, ft0, ft1, fa3
"""
#: A loop in which the numbers of written and accumulated registers (mask 9) go up by 0 to 3.
STAGGERED = f"""
    li t0, {COUNT - 1}
    frep.o t0, 1, {LANES - 1}, 9
    fmadd.d fa0, ft0, ft1, fa0
"""
END = """
    csrci 0x7c0, 1
    fadd.d fa0, fa0, fa1
    fadd.d fa2, fa2, fa3
    fadd.d fa0, fa0, fa2
    fmv.x.w t0, fa0
    mv t0, t0
    csrr t5, mcycle
    ecall
"""


def test_a_staggered_body_computes_the_same_in_as_many_cycles() -> None:
    numbers = [0.5 * k - 17 for k in range(2 * COUNT)]
    memory = {TCDM: struct.pack(f"<{2 * COUNT}d", *numbers)}
    one, other = (simulate(SET_UP + body + END, memory=memory) for body in (WRITTEN_OUT, STAGGERED))
    wanted = sum(a * b for a, b in zip(numbers[:COUNT], numbers[COUNT:], strict=True))
    for result in (one, other):
        (value,) = struct.unpack("<d", result.fp_registers["fa0"].to_bytes(8, "little"))
        assert value == wanted
    assert one.cycles == other.cycles
    assert one.fpu_instructions == other.fpu_instructions


# -- as a suffix of the language -----------------------------------------------------------------------

GAME = Game()
DIALECT = GAME.target.dialect
HEAD = "kernel k(x, z) -> y\nx {0} [8,4] heap\nz {0} [8,4] heap\ny {0} [4] heap\n"

#: Dtype, buffers and tree, the repetition as assembly (body, largest step, mask), and what y is.
RUNS = {
    "four sums": (
        "f64",
        "p f64 [4] reg\na f64 [8:N,4:N] ssr0\nb f64 [8:N,4:N] ssr1\n\n4:u p[{0}] = 0\n8:freps 4:u\n"
        "| a[{0},{1}] = x[{0},{1}]\n| b[{0},{1}] = z[{0},{1}]\n| p[{1}] += a[{0},{1}] * b[{0},{1}]\n"
        "4:u y[{0}] = p[{0}]\n",
        "1, 3, 9",
        lambda x, z: (x * z).sum(0),
    ),
    "maxima, each operand read twice": (
        "f64",
        "p f64 [4] reg\na f64 [8:N,2:N] ssr0\n\n4:u p[{0}] = -1\n8:freps 2:u\n"
        "| a[{0},{1}] = x[{0},{1}]\n| 2:u p[{1}*2+{2}] = select(a[{0},{1}] > p[{1}*2+{2}], a[{0},{1}],"
        " p[{1}*2+{2}])\n4:u y[{0}] = p[{0}]\n",
        "1, 3,",
        lambda x, z: np.maximum(-1, x[:, [0, 0, 1, 1]].max(0)),
    ),
    "pairs": (
        "f32",
        "p f32 [2,2] reg\na f32 [8:N,2:N,2] ssr0\nb f32 [8:N,2:N,2] ssr1\n\n2:u 2:v p[{0},{1}] = 0\n"
        "8:freps 2:u\n| 2:v a[{0},{1},{2}] = x[{0},{1}*2+{2}]\n| 2:v b[{0},{1},{2}] = z[{0},{1}*2+{2}]\n"
        "| 2:v p[{1},{2}] += a[{0},{1},{2}] * b[{0},{1},{2}]\n2:u 2:v y[{0}*2+{1}] = p[{0},{1}]\n",
        "1, 1, 1",
        lambda x, z: (x * z).sum(0),
    ),
    "inside of another repetition": (
        "f64",
        "p f64 [4] reg\na f64 [4:N,8:N,4:N] ssr0\n\n4:u p[{0}] = z[0,{0}]\n4:frep\n| 4:u p[{1}] *= 2\n"
        "| 8:freps 4:u\n| | a[{0},{1},{2}] = x[{1},{2}]\n| | p[{2}] += a[{0},{1},{2}]\n"
        "4:u y[{0}] = p[{0}]\n",
        "1, 3,",
        lambda x, z: 16 * z[0] + 15 * x.sum(0),
    ),
    "more instructions than the sequencer holds": (
        "f64",
        "p f64 [8] reg\nc f64 [2] reg\n\n2:u c[{0}] = z[0,{0}]\n8:u p[{0}] = x[{0},0]\n3:freps 8:u\n"
        + "| p[{1}] *= c[0]\n| p[{1}] += c[1]\n" * 3
        + "4:u y[{0}] = p[{0}] + p[{0}+4]\n",
        "6, 7,",
        lambda x, z: horner(x[:, 0], z[0, 0], z[0, 1]).reshape(2, 4).sum(0),
    ),
}


def horner(x: np.ndarray, a: float, b: float) -> np.ndarray:
    for _ in range(9):
        x = x * a + b
    return x


@pytest.mark.parametrize("name", RUNS)
def test_registers_that_go_on_compute_what_the_program_says(name: str) -> None:
    dtype, text, words, wanted = RUNS[name]
    program = parse(HEAD.replace("{0}", dtype) + text, DIALECT)
    assert beyond(program, DIALECT) is None
    code = compiled(program).code
    assert f"frep.o t0, {words}" in re.sub(r"frep\.o \w+", "frep.o t0", code), code
    rng = np.random.default_rng(3)
    given = {array: rng.integers(-2, 3, (8, 4)).astype({"f64": "f8", "f32": "f4"}[dtype]) for array in "xz"}
    measured = run(program, given)
    np.testing.assert_array_equal(measured.outputs["y"], wanted(given["x"], given["z"]))
    plain = parse(program.text.replace("freps", "frep"), DIALECT)
    if beyond(plain, DIALECT) is None:
        once = run(plain, given)
        np.testing.assert_array_equal(measured.outputs["y"], once.outputs["y"])
        assert measured.details["snitch.cycles"] <= once.details["snitch.cycles"]
    else:
        assert name.startswith("more instructions"), "the sequencer alone is in the way"


def test_it_is_one_move_and_verified() -> None:
    _, text, _, _ = RUNS["four sums"]
    program = parse((HEAD.replace("{0}", "f64") + text).replace("8:freps", "8"), DIALECT)
    trace = Trace(program).play(GAME.rules, Move.of("annotate_scope", "s1", suffix="freps"))
    artifact = GAME.compile(compiled(trace.program))
    legs = verification.verify(
        verification.Subject(trace, GAME.rules, artifact, GAME.runner, {}, 1, 0, GAME.generator)
    )
    assert legs.passed, legs.failure

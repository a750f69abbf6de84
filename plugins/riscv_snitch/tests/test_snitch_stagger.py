"""Staggered repetition: what it does, and why the generator writes accumulators out instead.

A staggered body of one instruction walks over several accumulators. A body that is written out does the same
in as many entries of the sequencer, and takes as many cycles.
"""

from __future__ import annotations

import struct

from perfdojo_riscv_snitch.simulator import simulate
from snitch_support import TCDM

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
#: Of register numbers, those written and added to (mask 9) go on by 0 to 3.
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

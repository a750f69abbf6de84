"""Every program of the reference data, against what the hardware's model did, cycle for cycle."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from perfdojo_riscv_snitch.simulator import simulate
from snitch_support import FP_FENCE, TCDM, reference

TIMING = reference("snitch_timing")["vectors"]
PROGRAMS = reference("snitch_programs")["programs"]
INTEGER = ["t1", "t2", "t3", "t4", "t5", "a0", "a1", "a2", "a3"]
FLOAT = [
    *(f"fa{k}" for k in range(8)),
    *(f"ft{k}" for k in range(3, 8)),
    *(f"fs{k}" for k in range(4)),
]
INITIAL = b"".join(struct.pack("<d", ((37 * k + 11) % 101 - 50) / 8) for k in range(3840))


@pytest.mark.parametrize("vector", TIMING, ids=lambda v: f"{v['name']}-{v['n']}")
def test_micro_benchmark(vector: dict[str, Any]) -> None:
    start = ["li a4, 0x10008000", "li a5, 3", "li t1, 1", "li t2, 1", "li t3, 1", "sw a4, 0(a4)"]
    fence = FP_FENCE if vector["fence"] else []
    body = [*vector["setup"], "csrr s10, mcycle", *vector["body"], *fence, "9:", "csrr s11, mcycle", "ecall"]
    assert simulate("\n".join([*start, *body])).cycles == vector["cycles"]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p["kind"])
def test_random_program(program: dict[str, Any]) -> None:
    text = "\n".join(["csrr s10, mcycle", *program["body"], *FP_FENCE, "csrr s11, mcycle", "ecall"])
    registers = dict(zip(INTEGER, program["int_in"]))
    registers |= {name: int(bits, 16) for name, bits in zip(FLOAT, program["fp_in"])} | {"a4": TCDM}
    result = simulate(text, memory={TCDM: INITIAL}, registers=registers)
    assert [result.registers[name] for name in INTEGER] == program["int_out"]
    assert [f"{result.fp_registers[name]:016x}" for name in FLOAT] == program["fp_out"]
    assert changed_words(result.memory) == program["mem_out"]
    assert result.cycles == program["cycles"]


def changed_words(memory: bytes) -> dict[str, str]:
    """The words that the data file records: changed ones of the input, non-zero ones of the output."""
    found = {}
    for offset in (*range(0, 0x200, 4), *range(0x8000, 0x8200, 4)):
        word = memory[offset : offset + 4]
        before = INITIAL[offset : offset + 4] if offset < 0x200 else bytes(4)
        if word != before:
            found[f"{TCDM + offset:08x}"] = f"{struct.unpack('<I', word)[0]:08x}"
    return found

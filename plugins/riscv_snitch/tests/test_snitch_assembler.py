"""Assembly text to words and bytes: encodings, pseudo-instructions, labels, directives."""

from __future__ import annotations

import struct

import pytest
from perfdojo_riscv_snitch.assembly import assemble
from perfdojo_riscv_snitch.assembly.assembler import OPPOSITE
from perfdojo_riscv_snitch.errors import SnitchError
from perfdojo_riscv_snitch.simulator import simulate
from snitch_support import TCDM


def words(text: str) -> list[int]:
    return list(assemble(text).words)


#: As GNU as encodes them.
GNU = {
    "addi a0, sp, -16": 0xFF010513,
    "add a0, a1, a2": 0x00C58533,
    "lui t0, 0x12345": 0x123452B7,
    "auipc t0, 1": 0x00001297,
    "lw a4, 8(a5)": 0x0087A703,
    "sw a4, -4(s0)": 0xFEE42E23,
    "srai a0, a0, 3": 0x40355513,
    "mulhsu t0, t1, t2": 0x027322B3,
    "remu t0, t1, t2": 0x027372B3,
    "csrrw t0, mcycle, zero": 0xB00012F3,
    "csrsi 0x7c0, 1": 0x7C00E073,
    "ecall": 0x00000073,
    "ebreak": 0x00100073,
    "fld fa0, 16(a0)": 0x01053507,
    "fsd ft11, 24(sp)": 0x01F13C27,
    "flw fs0, 0(a0)": 0x00052407,
    "fadd.d fa0, fa1, fa2": 0x02C5F553,
    "fadd.s fa0, fa1, fa2, rtz": 0x00C59553,
    "fmadd.d fa0, fa1, fa2, fa3": 0x6AC5F543,
    "fnmsub.s fa0, fa1, fa2, fa3": 0x68C5F54B,
    "fsgnj.d fa0, fa1, fa1": 0x22B58553,
    "fcvt.w.d a0, fa0, rtz": 0xC2051553,
    "fcvt.d.w fa0, a0": 0xD2050553,
    "fcvt.s.d fa0, fa1": 0x4015F553,
    "fmv.x.w a0, fa0": 0xE0050553,
    "fclass.d a0, fa0": 0xE2051553,
    "flt.s a0, fa0, fa1": 0xA0B51553,
    "amoadd.w a0, a1, (a2)": 0x00B6252F,
    "lr.w a0, (a2)": 0x1006252F,
    "fence": 0x0FF0000F,
}


@pytest.mark.parametrize("text", GNU)
def test_encoding(text: str) -> None:
    assert [f"{word:08x}" for word in words(text)] == [f"{GNU[text]:08x}"]


#: Instruction -> encoding, from the table of the extensions.
EXTENSIONS = {
    "frep.o t0, 4, 0, 0": 3 << 20 | 5 << 15 | 1 << 7 | 0x0B,
    "frep.o t0, 8, 3, 9": 7 << 20 | 5 << 15 | 3 << 12 | 9 << 8 | 1 << 7 | 0x0B,
    "vfmac.s ft3, ft0, ft1": 0x48 << 25 | 1 << 20 | 0 << 15 | 3 << 7 | 0x33,
    "vfmac.h ft3, ft0, ft1": 0x48 << 25 | 1 << 20 | 0 << 15 | 2 << 12 | 3 << 7 | 0x33,
}


@pytest.mark.parametrize("text", EXTENSIONS)
def test_encoding_of_the_extensions(text: str) -> None:
    assert [f"{word:08x}" for word in words(text)] == [f"{EXTENSIONS[text]:08x}"]


@pytest.mark.parametrize(
    ("pseudo", "plain"),
    [
        ("nop", "addi x0, x0, 0"),
        ("mv a0, a1", "addi a0, a1, 0"),
        ("not a0, a1", "xori a0, a1, -1"),
        ("neg a0, a1", "sub a0, zero, a1"),
        ("seqz a0, a1", "sltiu a0, a1, 1"),
        ("li a0, -5", "addi a0, x0, -5"),
        ("li a0, 0x12345000", "lui a0, 0x12345"),
        ("li a0, 0x12345fff", "lui a0, 0x12346\naddi a0, a0, -1"),
        ("li a0, 4294967295", "addi a0, x0, -1"),
        ("x: j x", "jal x0, 0x80000000"),
        ("x: bgt a0, a1, x", "y: blt a1, a0, y"),
        ("x: blez a0, x", "y: bge x0, a0, y"),
        ("ret", "jalr x0, 0(ra)"),
        ("jalr t0", "jalr ra, 0(t0)"),
        ("jalr a0, t0, 4", "jalr a0, 4(t0)"),
        ("csrr a0, mcycle", "csrrs a0, 0xb00, x0"),
        ("csrw fcsr, a0", "csrrw x0, 3, a0"),
        ("fmv.d fa0, fa1", "fsgnj.d fa0, fa1, fa1"),
        ("fneg.s fa0, fa1", "fsgnjn.s fa0, fa1, fa1"),
        ("fabs.h fa0, fa1", "fsgnjx.h fa0, fa1, fa1"),
        ("fgt.d a0, fa0, fa1", "flt.d a0, fa1, fa0"),
        ("add a0, a0, 8", "addi a0, a0, 8"),
        ("lw a0, (a1)", "lw a0, 0(a1)"),
        ("fmv.d f10, f11", "fmv.d fa0, fa1"),
        ("mv fp, x31", "mv s0, t6"),
        ("FADD.D fa0, fa1, fa2", "fadd.d fa0, fa1, fa2"),
    ],
)
def test_pseudo_instruction(pseudo: str, plain: str) -> None:
    assert words(pseudo) == words(plain)


def test_labels_comments_and_statements() -> None:
    text = """
    # a comment; not a statement
    start: li a0, 3   // three
    1: addi a0, a0, -1; bnez a0, 1b
       /* over
          lines */ j 1f
       ebreak
    1: ecall
    """
    assert simulate(text).registers["a0"] == 0
    assert assemble(text).symbols["start"] == 0x80000000


def test_entry_is_start_where_there_is_one() -> None:
    assert simulate("ebreak\n_start: li a0, 7\necall").registers["a0"] == 7


def test_addresses() -> None:
    text = """
    .equ OFFSET, 4 * (2 + 1)
    .data
    pad: .byte 1
    .balign 8
    table: .word 1, 2, 3, table + OFFSET, 'A', -1
    .text
    la a0, table
    lw a1, OFFSET(a0)
    lui a2, %hi(table + 8)
    lw a2, %lo(table + 8)(a2)
    here: auipc a3, %pcrel_hi(table)
    addi a3, a3, %pcrel_lo(here)
    lw a4, 16(a0)
    call function
    ecall
    function: li a5, 5
    ret
    """
    got = simulate(text).registers
    assert got["a0"] == got["a3"] == TCDM + 8
    assert got["a1"] == TCDM + 8 + 12
    assert (got["a2"], got["a4"], got["a5"]) == (3, 65, 5)


def test_data_directives() -> None:
    text = """
    .section .rodata.x, "a"
    .byte 1, 2
    .half 0x1234
    .word 5
    .quad -1
    .float 1.5
    .align 3
    .double -2.5, 0x1p-3
    .ascii "a;b#\\n"
    .asciz "z"
    .skip 3, 7
    .text
    .globl main
    main: ecall
    """
    wanted = b"\1\2\x34\x12" + struct.pack("<IqfIdd", 5, -1, 1.5, 0, -2.5, 0.125)
    wanted += b"a;b#\nz\0\7\7\7"
    # 4 + 4 + 8 + 4 bytes, aligned to 24.
    assert simulate(text).read(TCDM, len(wanted)) == wanted


NOPS = "nop\n" * 1100


@pytest.mark.parametrize(("branch", "opposite"), list(OPPOSITE.items()))
def test_a_branch_that_is_too_far_becomes_one_around_a_jump(branch: str, opposite: str) -> None:
    forward = f"{{}}\n{NOPS}far: ecall"
    by_hand = f"{opposite} a0, a1, .+8\nj far"
    assert words(forward.format(f"{branch} a0, a1, far")) == words(forward.format(by_hand))
    backward = f"far: nop\n{NOPS}{{}}\necall"
    assert words(backward.format(f"{branch} a0, a1, far")) == words(backward.format(by_hand))


def test_a_branch_reaches_exactly_so_far() -> None:
    """4094 bytes onwards at most, 4096 back; a branch that grows takes others and alignments along."""
    assert len(words("beq a0, a1, far\n" + "nop\n" * 1022 + "far: ecall")) == 1024
    assert len(words("beq a0, a1, far\n" + "nop\n" * 1023 + "far: ecall")) == 1026
    assert len(words("far: nop\n" + "nop\n" * 1023 + "beq a0, a1, far\necall")) == 1026
    assert len(words("far: nop\n" + "nop\n" * 1024 + "beq a0, a1, far\necall")) == 1028
    pair = (
        "beq a0, a1, one\n" + "nop\n" * 1021 + "beq a2, a3, two\none: nop\n" + "nop\n" * 1022 + "two: ecall"
    )
    assert len(words(pair)) == 1 + 1021 + 1 + 1 + 1022 + 1 + 2
    aligned = "beq a0, a1, far\n.balign 64\nhere: nop\n" + NOPS + "far: jal here\necall"
    assert assemble(aligned).symbols["here"] % 64 == 0 and assemble(aligned).symbols["far"] % 4 == 0


def test_long_branches_run_and_take_a_jump_more() -> None:
    """The distance changes where a loop goes on, not what it does; each turn costs one jump."""
    loop = "li a0, 5\nagain: addi a1, a1, 3\naddi a0, a0, -1\n{}bnez a0, again\necall\n"
    near, far = simulate(loop.format("nop\n" * 900)), simulate(loop.format("nop\n" * 900 + "nop\n" * 200))
    assert far.registers["a1"] == near.registers["a1"] == 15
    by_hand = simulate(loop.replace("bnez a0, again", "beqz a0, .+8\nj again").format("nop\n" * 1100))
    assert (far.cycles, far.registers) == (by_hand.cycles, by_hand.registers)


def test_a_jump_that_is_too_far_is_refused() -> None:
    with pytest.raises(SnitchError, match="the distance 1048[0-9]* does not fit into 21 bits"):
        assemble("j far\n.skip 1048576\nfar: ecall")

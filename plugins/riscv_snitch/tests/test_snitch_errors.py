"""Errors of a simulated program: the code, the pc and the line."""

from __future__ import annotations

import pytest
from perfdojo_riscv_snitch.errors import SnitchError
from perfdojo_riscv_snitch.simulator import simulate

READ_JOB, WRITE_JOB, BOUND, STRIDE, REPEAT = 24 << 5, 28 << 5, 2 << 5, 6 << 5, 1 << 5
ADD = "fadd.d fa0, fa0, fa1"
FENCE = "fmv.x.w t0, fa0\nmv t0, t0"


def failure(text: str, max_cycles: int = 100_000) -> SnitchError:
    with pytest.raises(SnitchError) as caught:
        simulate(text + "\necall", max_cycles=max_cycles)
    return caught.value


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("PD-S001", "nop\n.insn 0xffffffff"),
        ("PD-S001", "nop\ncsrr t0, 0x123"),
        ("PD-S001", "nop\nfdiv.d fa0, fa1, fa2"),
        ("PD-S001", "nop\nfsqrt.s fa0, fa1"),
        ("PD-S001", "fsrmi 5\nfadd.d fa0, fa1, fa2"),
        ("PD-S003", "addi a0, sp, -6\nlw t0, 0(a0)"),
        ("PD-S003", "addi a0, sp, -7\nsh t0, 0(a0)"),
        ("PD-S003", "addi a0, sp, -4\nfld fa0, -8(a0)"),
        ("PD-S004", "nop\nlw t0, 0(sp)"),
        ("PD-S004", "nop\nsw t0, 0(zero)"),
        ("PD-S004", "nop\nfsd fa0, 0(sp)"),
        ("PD-S005", "nop\n1: j 1b"),
        ("PD-S009", "nop\nebreak"),
        ("PD-S003", f"addi t0, sp, -4\nscfgwi t0, {READ_JOB}"),
        ("PD-S004", f"mv t0, sp\nscfgwi t0, {READ_JOB}"),
        ("PD-S007", f"li t0, 16\nscfgwi t0, {REPEAT}"),
        ("PD-S007", f"addi t0, sp, 0\nscfgwi t0, {BOUND}"),
        ("PD-S007", f"li t0, 4\nscfgwi t0, {STRIDE}"),
        ("PD-S007", "li t0, 4\nscfgwi t0, 320"),
        ("PD-S006", f"csrsi ssr, 1\nfadd.d fa0, ft0, fa1\n{FENCE}"),
        ("PD-S006", f"csrsi ssr, 1\nfadd.d ft0, fa0, fa1\n{FENCE}"),
        ("PD-S008", f"li t0, 2\n.insn {32 << 20 | 5 << 15 | 0x8B}\n{ADD}"),
    ],
)
def test_second_line_is_at_fault(code: str, text: str) -> None:
    error = failure(text)
    assert error.code == code
    assert error.place is not None and error.place.line == 2
    assert error.pc == 0x80000004
    assert "0x80000004" in error.render()
    assert error.hint


def test_running_out_of_the_code() -> None:
    error = failure("li t0, 0x2000\njr t0")
    assert (error.code, error.pc, error.place) == ("PD-S002", 0x2000, None)
    with pytest.raises(SnitchError, match="no code at 0x80000004"):
        simulate("nop")


def test_load_from_code_is_out_of_range() -> None:
    assert failure("lui a0, 0x80000\nlw t0, 0(a0)").code == "PD-S004"


def test_stream_leaves_memory() -> None:
    setup = f"li t0, 3\nscfgwi t0, {BOUND}\nli t0, 8\nscfgwi t0, {STRIDE}\naddi t0, sp, -16\n"
    error = failure(f"{setup}scfgwi t0, {READ_JOB}\ncsrsi ssr, 1\n" + 4 * "fadd.d fa0, ft0, fa1\n" + FENCE)
    assert error.code == "PD-S004"
    assert error.place is not None and error.place.line == 6, "the line that started the job"


def test_stream_used_against_its_direction() -> None:
    start = "addi t0, sp, -64\nscfgwi t0, {}\ncsrsi ssr, 1\n{}\n" + FENCE
    read_of_writer = failure(start.format(WRITE_JOB, "fadd.d fa0, ft0, fa1"))
    write_of_reader = failure(start.format(READ_JOB, "fadd.d ft0, fa0, fa1"))
    for error in (read_of_writer, write_of_reader):
        assert error.code == "PD-S007"
        assert error.place is not None and error.place.line == 4


def test_more_values_than_the_stream_takes() -> None:
    error = failure(
        f"addi t0, sp, -64\nscfgwi t0, {WRITE_JOB}\ncsrsi ssr, 1\n" + 9 * "fadd.d ft0, fa0, fa1\n"
    )
    assert error.code == "PD-S006"
    assert "more values were written" in error.render()


def test_configuring_a_stream_whose_next_job_waits() -> None:
    jobs = f"li t0, 7\nscfgwi t0, {BOUND}\naddi t0, sp, -64\n" + 3 * f"scfgwi t0, {READ_JOB}\n"
    error = failure(jobs)
    assert error.code == "PD-S006"
    assert "its next job is already waiting" in error.render()


def test_unfinished_loop_body() -> None:
    error = failure(f"li t0, 2\nfrep.o t0, 2\n{ADD}")
    assert error.code == "PD-S006"
    assert "shorter" in error.render()


def test_three_loops() -> None:
    error = failure(f"li t0, 2\nfrep.o t0, 4\n{ADD}\nfrep.o t0, 3\n{ADD}\nfrep.o t0, 2\n{ADD}\n{ADD}")
    assert error.code == "PD-S008"
    assert error.place is not None and error.place.line == 6


def test_instruction_that_cannot_be_repeated() -> None:
    error = failure(f"li t0, 200\nfrep.o t0, 2\n{ADD}\nfeq.d t1, fa0, fa1")
    assert error.code == "PD-S008"
    assert error.place is not None and error.place.line == 4


def test_error_inside_a_macro_like_line_underlines_the_statement() -> None:
    error = failure("start: nop; lw t0, 1(sp)  # a comment")
    assert error.place is not None
    line = error.place
    assert line.source[line.column - 1 :][: line.length] == "lw t0, 1(sp)"


@pytest.mark.parametrize(
    ("line", "part"),
    [
        ("fadd.q fa0, fa1, fa2", "fadd.q"),
        ("add t0, t1", "add t0, t1"),
        ("add t0, t1, fa0", "add t0, t1, fa0"),
        ("addi t0, t1, 2048", "addi t0, t1, 2048"),
        ("lw t0, 4096(a0)", "lw t0, 4096(a0)"),
        ("slli t0, t0, 32", "slli t0, t0, 32"),
        ("beq t0, t1, nowhere", "nowhere"),
        ("j 5f", "5f"),
        ("li t0, 1 +", "1 +"),
        (".wurd 3", ".wurd"),
        (".double one", "one"),
        (".set x", ".set x"),
        ("frep.o t0, 33, 0, 0", "frep.o t0, 33, 0, 0"),
        ("scfgwi t0, 4096", "scfgwi t0, 4096"),
        ("fadd.d fa0, fa1, fa2, up", "fadd.d fa0, fa1, fa2, up"),
        ("here: nop", "here"),
    ],
)
def test_bad_assembly(line: str, part: str) -> None:
    error = failure(f"here: nop\n  {line}")
    assert error.code == "PD-S011"
    place = error.place
    assert place is not None and place.line == 2
    assert place.source[place.column - 1 :][: place.length] == part


def test_close_name_is_proposed() -> None:
    assert "fmadd.d" in failure("fmad.d fa0, fa1, fa2, fa3").render()


def test_too_much_data() -> None:
    assert failure(".data\n.zero 131080\n.text").code == "PD-S011"


def test_instructions_and_data_each_in_their_section() -> None:
    assert failure(".data\nadd t0, t0, t0\n.text").code == "PD-S011"


def test_wrong_initial_state() -> None:
    with pytest.raises(ValueError, match="not in TCDM"):
        simulate("ecall", memory={0x1001FFFF: bytes(2)})
    with pytest.raises(ValueError, match="no register"):
        simulate("ecall", registers={"a9": 1})

"""ELF files, traces, counters, the command, the compiled core's cache, and speed."""

from __future__ import annotations

import struct
import subprocess
import time
from pathlib import Path

import pytest
from perfdojo_riscv_snitch.assembly import assemble
from perfdojo_riscv_snitch.breakdown import limit, parts_of
from perfdojo_riscv_snitch.errors import SnitchError
from perfdojo_riscv_snitch.runner import SnitchRunner
from perfdojo_riscv_snitch.simulator import simulate
from perfdojo_riscv_snitch.simulator.native import sources
from snitch_support import TCDM, elf_of

from perfdojo_sdk.hookspecs.services import Simulator

COUNT = 512
#: A dot product by streams and a hardware loop.
DOT = f"""
    li t0, {COUNT - 1}
    scfgwi t0, 64
    scfgwi t0, 65
    li t1, 8
    scfgwi t1, 192
    scfgwi t1, 193
    li a0, {TCDM}
    li a1, {TCDM + 8 * COUNT + 8}
    csrr s10, mcycle
    scfgwi a0, 768
    scfgwi a1, 769
    csrsi ssr, 1
    li t2, {COUNT // 4 - 1}
    frep.o t2, 4
    fmadd.d fa0, ft0, ft1, fa0
    fmadd.d fa1, ft0, ft1, fa1
    fmadd.d fa2, ft0, ft1, fa2
    fmadd.d fa3, ft0, ft1, fa3
    csrci ssr, 1
    fadd.d fa0, fa0, fa1
    fadd.d fa2, fa2, fa3
    fadd.d fa0, fa0, fa2
    fmv.x.w t0, fa0
    mv t0, t0
    csrr s11, mcycle
    ecall
"""


def test_dot_product_at_almost_one_a_cycle() -> None:
    values = [float(k % 7) for k in range(COUNT)]
    content = struct.pack(f"<{COUNT}d", *values)
    result = simulate(DOT, memory={TCDM: content, TCDM + 8 * COUNT + 8: content})
    assert result.fp_registers["fa0"] == struct.unpack("<Q", struct.pack("<d", sum(v * v for v in values)))[0]
    assert result.cycles == result.registers["s11"] - result.registers["s10"]
    assert result.fpu_instructions == COUNT + 4
    assert result.flops == 2 * COUNT + 3
    assert 0.9 < result.fpu_utilisation <= 1
    assert result.cycles < result.total_cycles
    assert result.as_json()["cycles"] == result.cycles


def test_stalls_have_reasons() -> None:
    loads = simulate(f"li a0, {TCDM}\n" + "lw a1, 0(a0)\nadd a1, a1, a1\n" * 20 + "ecall")
    assert loads.stalls["core_load"] >= 20
    chain = simulate("fadd.d fa0, fa0, fa1\n" * 20 + "fmv.x.w t0, fa0\nmv t0, t0\necall")
    assert chain.stalls["fp_dependency"] >= 40
    product = simulate("mul a0, a0, a1\nadd a1, a0, a1\n" * 20 + "ecall")
    assert product.stalls["core_muldiv"] >= 20


def test_two_streams_in_one_bank_conflict() -> None:
    fixed = DOT.replace("li t1, 8", "li t1, 0")
    apart = simulate(fixed)
    together = simulate(fixed.replace(f"{TCDM + 8 * COUNT + 8}", f"{TCDM + 8 * COUNT}"))
    assert sum(apart.conflicts.values()) == 0
    assert sum(together.conflicts.values()) >= COUNT
    assert together.cycles > 1.9 * apart.cycles


def test_elf_and_text_do_the_same(tmp_path: Path) -> None:
    text = f".data\nx: .double 1.5, 2.5\n.text\n_start: la a0, x\nfld fa0, 0(a0)\nfld fa1, 8(a0)\n{DOT}"
    file = tmp_path / "prog.elf"
    file.write_bytes(elf_of(assemble(text)))
    from_text, from_elf = simulate(text), simulate(file)
    assert from_elf.as_json() == from_text.as_json()
    assert from_elf.memory == from_text.memory


@pytest.mark.parametrize("length", [4, 40, 60, 100, 4098])
def test_cut_elf(length: int, tmp_path: Path) -> None:
    file = tmp_path / "cut.elf"
    file.write_bytes(elf_of(assemble("nop\necall"))[:length])
    with pytest.raises(SnitchError) as caught:
        simulate(file)
    assert caught.value.code == "PD-S012"


@pytest.mark.parametrize(("offset", "value"), [(4, 2), (5, 2), (16, 1), (18, 62), (52 + 32 + 11, 0x40)])
def test_elf_for_something_else(offset: int, value: int, tmp_path: Path) -> None:
    content = bytearray(elf_of(assemble("nop\necall")))
    content[offset] = value
    file = tmp_path / "other.elf"
    file.write_bytes(content)
    with pytest.raises(SnitchError) as caught:
        simulate(file)
    assert caught.value.code == "PD-S012"


def test_error_of_an_elf_names_the_pc(tmp_path: Path) -> None:
    file = tmp_path / "prog.elf"
    file.write_bytes(elf_of(assemble("nop\nebreak")))
    with pytest.raises(SnitchError, match="0x80000004") as caught:
        simulate(file)
    assert caught.value.pc == 0x80000004


def test_trace() -> None:
    result = simulate("li t0, 2\nfrep.o t0, 1\nfadd.d fa0, fa0, fa1\nnop\necall", trace=True)
    texts = [line.text for line in result.trace if line.unit == "int"]
    assert texts == ["li t0, 2", "frep.o t0, 1", "fadd.d fa0, fa0, fa1", "nop", "ecall"]
    issued = [line for line in result.trace if line.unit == "fp"]
    assert [line.repeated for line in issued] == [False, True, True]
    assert [line.cycle for line in result.trace] == sorted(line.cycle for line in result.trace)
    assert "fadd.d" in str(issued[0])


def test_a_runner_simulates_files(tmp_path: Path) -> None:
    runner = SnitchRunner()
    assert isinstance(runner, Simulator)
    file = tmp_path / "prog.s"
    file.write_text("li a0, 5\ncsrr t0, mcycle\nnop\ncsrr t1, mcycle\necall\n")
    run = runner.simulate(file, trace=True)
    assert run.cycles == 2 and run.registers["a0"] == "0x00000005"
    assert [line.split()[-1] for line in run.trace if "li" in line] == ["5"]
    file.write_text("nop\n1: j 1b\n")
    with pytest.raises(SnitchError, match="PD-S005") as caught:
        runner.simulate(file, max_cycles=1000)
    assert f"{file}:2" in caught.value.render()


def test_the_parts_of_a_run_add_up() -> None:
    values = struct.pack(f"<{COUNT}d", *[1.0] * COUNT)
    slow = f"li a0, {TCDM}\ncsrr s10, mcycle\n" + "lw t0, 0(a0)\nmv t0, t0\nfadd.d fa0, fa0, fa1\n" * 9
    for text in (DOT, f"{slow}fmv.x.w t0, fa0\nmv t0, t0\ncsrr s11, mcycle\necall"):
        result = simulate(text, memory={TCDM: values, TCDM + 8 * COUNT + 8: values})
        parts = {part.name: part.amount for part in parts_of(result)}
        assert sum(parts.values()) == result.cycles and min(parts.values()) >= 0
    assert parts["waiting core"] >= 18 and not parts["SSR set-up"]
    streams = {part.name: part.amount for part in parts_of(simulate(DOT))}
    assert (
        streams["issue"] == COUNT + 4
        and streams["SSR set-up"]
        and limit(parts_of(simulate(DOT)))[:7] == "the FPU"
    )
    together = simulate(DOT.replace("li t1, 8", "li t1, 0").replace(f"{TCDM + 8 * COUNT + 8}", f"{TCDM}"))
    assert {part.name: part.amount for part in parts_of(together)}["bank conflict"] > COUNT / 2
    assert limit(parts_of(together)).startswith("bank conflict")


def test_core_is_kept_by_its_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from perfdojo_riscv_snitch.simulator import native

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(native, "_FLAGS", ("-O0", "-std=gnu11"))
    toolchain = native.find_toolchain()
    first = native._built(toolchain)
    written = first.stat().st_mtime_ns
    assert native._built(toolchain) == first
    assert first.stat().st_mtime_ns == written
    changed = {**sources(), "extra_c.h": "/* another */"}
    monkeypatch.setattr(native, "sources", lambda program: changed)
    assert native._built(toolchain) != first


def test_the_program_is_another_file_and_says_when_its_job_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from perfdojo_riscv_snitch.simulator import native

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(native, "_FLAGS", ("-O0", "-std=gnu11"))
    program = native._built(native.find_toolchain(), program=True)
    assert program != native._built(native.find_toolchain())
    ended = subprocess.run([program], input=bytes(10), capture_output=True, check=False)
    assert (ended.returncode, ended.stdout) == (65, b"")


def test_runs_are_independent_and_fast() -> None:
    """The wanted speed is ten times this; a busy machine must not fail the test."""
    loop = DOT.replace(f"li t2, {COUNT // 4 - 1}", "li t2, 50000").replace(
        f"li t0, {COUNT - 1}", "li t0, 16383"
    )
    text = loop.replace("ssr, 1\n    li", "ssr, 0\n    li").replace("ft0", "fs0").replace("ft1", "fs1")
    simulate("ecall")
    start = time.perf_counter()
    first = simulate(text)
    seconds = time.perf_counter() - start
    assert first.cycles > 190_000
    assert first.cycles / seconds > 500_000
    assert simulate(text).as_json() == first.as_json()

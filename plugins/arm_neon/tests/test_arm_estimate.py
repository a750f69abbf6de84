"""Estimates: exact counts, a table that knows each instruction, limits that are right on known blocks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from arm_support import PLUGINS, RUNNER, TARGET, compiled, instructions, kernel, needs_compiler, played
from perfdojo_arm_neon.emulator.elf import read
from perfdojo_arm_neon.estimate.blocks import blocks, limits
from perfdojo_arm_neon.estimate.counter import counter_library
from perfdojo_arm_neon.estimate.dry_run import NOP, count, without_values
from perfdojo_arm_neon.estimate.instructions import decode

from perfdojo_sdk.hookspecs.types import Measurement, RunRequest

GOLDEN = Path(__file__).parent / "golden" / "instructions.txt"
WORDS = {line.text: line.word for line in instructions(str(GOLDEN))}
TIMED = RunRequest(repeats=3, want_outputs=False, timeout_s=60)


def test_every_instruction_is_known(golden: Callable[[str, str], None]) -> None:
    """Kinds of the instructions in compiled kernels, and those that a dry run keeps."""
    lines = [GOLDEN.read_text().partition("\n")[0]]
    for line in instructions(str(GOLDEN)):
        left = without_values(line.word)
        words = "-" if left == line.word else "nop" if left == NOP else f"{left:08x}"
        lines.append(f"{line.word:08x} | {decode(line.word).kind} | {words} | {line.text}")
    golden("instructions.txt", "\n".join(lines) + "\n")


def test_an_instruction_that_sets_a_general_register_stays_in_a_dry_run() -> None:
    """Removed instructions write vector registers only, according to the decoder."""
    for line in instructions(str(GOLDEN)):
        if without_values(line.word) == NOP and line.word != NOP:
            found = decode(line.word)
            assert all(32 <= register < 64 for register in found.writes) and found.updated is None, line.text


@pytest.mark.parametrize(
    ("block", "limit", "cycles"),
    [
        (["fmla v0.4s, v1.4s, v2.4s"], "chain", 2.0),  # the sum is handed on after two cycles
        (["sdot v0.4s, v1.16b, v2.16b"], "chain", 1.0),
        (["usmmla v0.4s, v1.16b, v2.16b"], "chain", 1.0),
        (["bfdot v0.4s, v1.8h, v2.8h"], "chain", 3.0),
        (["bfmmla v0.4s, v1.8h, v2.8h"], "chain", 4.0),
        (["fadd v0.4s, v1.4s, v2.4s"] * 8, "V", 2.0),
        (["fdiv v0.4s, v1.4s, v2.4s"], "V02", 5.0),
        (["fdiv s0, s1, s2"], "V02", 1.0),
        (["ldr q0, [x1]"] * 6, "L", 2.0),
        (["str q0, [x1]"] * 4, "L01", 2.0),
        (["ldp q0, q1, [x2]"] * 3, "L", 2.0),
        (["add x0, x1, x2"] * 12, "width", 2.0),
        (["sdiv x0, x1, x2"], "M0", 12.0),
        (["ldr q0, [x1], #16"], "chain", 1.0),
        (["fmla z0.s, p0/m, z1.s, z2.s"], "chain", 2.0),
        (["fadda s0, p0, s0, z1.s"], "chain", 6.0),
        (["ld1w {z0.s}, p0/z, [x1]"] * 6, "L", 2.0),
        (["st1w {z0.s}, p0, [x1]"] * 4, "L01", 2.0),
        (["fcmgt p0.s, p1/z, z0.s, z1.s"] * 3, "V0", 3.0),
        (["whilelo p0.s, w0, w2"], "M", 1.0),
    ],
)
def test_limits_of_known_blocks(block: list[str], limit: str, cycles: float) -> None:
    found = limits([decode(WORDS[text]) for text in block])
    assert found[limit] == pytest.approx(cycles) and max(found.values()) == pytest.approx(cycles)


def kinds(text: str, sizes: list[int], threads: int, folder: Path) -> dict[str, int]:
    """Number of executed instructions of each kind."""
    import ctypes

    loaded = read(compiled(text).content)
    file = folder / "counter.so"
    file.write_bytes(counter_library())
    counted = count(loaded, "pd_test", sizes, threads, ctypes.CDLL(str(file)))
    found: dict[str, int] = {}
    for thread in counted.threads:
        for block in blocks(loaded, thread):
            for instruction in block.instructions:
                found[instruction.kind] = found.get(instruction.kind, 0) + block.times
    return found


@needs_compiler
@pytest.mark.parametrize("threads", [1, 2])
def test_counts_are_exact_whatever_the_compiler_does(threads: int, tmp_path: Path) -> None:
    """An addition and a square root for each vector: neither is duplicated nor left out."""
    rows = 5000
    text = (
        f"kernel k(x, z) -> y\nx f32 [{rows},4] heap\nz f32 [{rows},4] heap\ny f32 [{rows},4] heap\n\n"
        f"{rows}:p 4:v y[{{0}},{{1}}] = sqrt(x[{{0}},{{1}}] + z[{{0}},{{1}}])\n"
    )
    found = kinds(text, [16 * rows] * 3, threads, tmp_path)
    assert found["fp add"] == found["fp root vector"] == rows


def estimate(selection: str, expert: bool, threads: int = 1) -> Measurement:
    program = played(selection).program if expert else kernel(selection).program
    found = RUNNER.run(compiled(program), RunRequest(repeats=3, threads=threads, timeout_s=60))
    assert isinstance(found, Measurement), found
    return found


@needs_compiler
def test_a_time_is_estimated_and_always_the_same() -> None:
    one, other = estimate("softmax[16,64]", True), estimate("softmax[16,64]", True)
    assert one.provenance == "estimated" and one.seconds == other.seconds and len(one.seconds) == 1
    assert one.outputs is not None and "Neoverse V2" in one.device
    assert one.details["cycles"] / 3.4e9 == pytest.approx(one.median)  # nothing moves far, no thread is woken


@needs_compiler
def test_the_expert_is_estimated_faster_and_near_the_peak_on_a_product() -> None:
    initial, final = estimate("matmul[64,64,64]", False), estimate("matmul[64,64,64]", True)
    peak = TARGET.capabilities.peak_gflops["f32"] * 1e9
    assert final.median < initial.median / 3
    assert 0.5 < 2 * 64**3 / final.median / peak <= 1


@needs_compiler
def test_a_large_kernel_is_timed_and_not_computed() -> None:
    """Its time is that of moving the data, where that takes longer than the instructions."""
    artifact = compiled(played("add[4096,8192]").program)
    found = replace(RUNNER, most_computed=1e3).run(artifact, replace(TIMED, want_outputs=True))
    assert isinstance(found, Measurement) and found.outputs is None, found
    memory = TARGET.capabilities.memory
    assert memory is not None and found.details["cycles"] / 3.4e9 < found.median
    moved = 4 * 4096 * 8192
    expected = 2 * moved / (memory.copy_gbs * 1e9) + moved / (memory.read_gbs * 1e9)
    assert found.median == pytest.approx(expected)


@needs_compiler
def test_what_is_hopeless_is_said_to_be() -> None:
    found = RUNNER.run(
        compiled(kernel("softmax[16,64]").program), RunRequest(repeats=1, stop_above_s=1e-9, timeout_s=60)
    )
    assert isinstance(found, Measurement) and found.details["stopped"] == 1 and np.isfinite(found.median)


@needs_compiler
@pytest.mark.parametrize("selection", ["softmax[16,64]", "add[512,512]"])
def test_the_parts_of_a_time_add_up_to_it(selection: str) -> None:
    program = played(selection).program
    artifact, request = compiled(program), RunRequest(threads=2, timeout_s=60)
    parts = PLUGINS.time_breakdown(program, TARGET, artifact, request)
    found = RUNNER.run(artifact, replace(request, repeats=1, want_outputs=False))
    assert isinstance(found, Measurement)
    assert parts.total == pytest.approx(found.median) and parts.provenance == "estimated"
    assert parts.limit.partition(":")[0] == parts.parts[0].name

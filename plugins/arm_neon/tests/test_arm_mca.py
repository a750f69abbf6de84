"""The pace of blocks against LLVM's model of the same core, where llvm-mca knows it (Debian: llvm-19)."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from arm_support import both_targets, compiled, instructions, kernel, needs_compiler, played
from perfdojo_arm_neon.emulator.elf import read
from perfdojo_arm_neon.estimate.blocks import blocks, limits
from perfdojo_arm_neon.estimate.counter import counter_library
from perfdojo_arm_neon.estimate.dry_run import count
from perfdojo_arm_neon.estimate.instructions import decode
from perfdojo_arm_neon.estimate.sve import is_sve

from perfdojo_sdk.hookspecs.types import Target
from perfdojo_sdk.measure.kernel_calls import bytes_of

MCA, DISASSEMBLER = shutil.which("llvm-mca-19"), shutil.which("aarch64-linux-gnu-objdump")
ROUNDS = 200

pytestmark = [
    needs_compiler,
    pytest.mark.skipif(
        not (MCA and DISASSEMBLER), reason="needs llvm-mca-19 and GNU's objdump for 64-bit Arm"
    ),
]


def mca_cycles(lines: list[str]) -> float:
    """Cycles of one run of a block that is repeated, by llvm-mca."""
    command = [str(MCA), "-mtriple=aarch64", "-mcpu=neoverse-v2", f"-iterations={ROUNDS}", "-"]
    text = "\n".join([".Lhere:", *lines, ""])
    said = subprocess.run(command, input=text, capture_output=True, text=True, check=True, timeout=60).stdout
    found = re.search(r"Total Cycles:\s+(\d+)", said)
    assert found, said
    return int(found[1]) / ROUNDS


def test_instructions_of_sve_cost_what_llvm_says() -> None:
    """Latency to the cycle, and how many may start in one; each by itself."""
    golden = Path(__file__).parent / "golden" / "instructions.txt"
    # A prefix must not be alone, and nothing waits for the result of a prefetch.
    lines = [l for l in instructions(str(golden)) if is_sve(l.word) and l.text[:4] not in ("movp", "prfw")]
    command = [str(MCA), "-mtriple=aarch64", "-mcpu=neoverse-v2", "-instruction-tables", "-"]
    text = "\n".join([*(line.text for line in lines), ""])
    said = subprocess.run(command, input=text, capture_output=True, text=True, check=True, timeout=60).stdout
    theirs = re.findall(r"^ +\d+ +(\d+) +(\d+\.\d+) .*\t", said, re.MULTILINE)
    assert len(theirs) == len(lines) > 70
    for line, (latency, pace) in zip(lines, theirs, strict=True):
        ours = decode(line.word)
        wide = max(cycles for name, cycles in limits([ours]).items() if name not in ("width", "chain"))
        assert ours.latency == int(latency) or not ours.writes, line.text
        # The guide lets a division of four start each 5 cycles, LLVM each 4.5.
        assert wide == pytest.approx(float(pace), rel=0.12), line.text


@both_targets
@pytest.mark.parametrize("selection", ["softmax[16,512]", "matmul[32,128,128]", "layernorm[16,1024]"])
def test_the_blocks_that_take_the_time_cost_what_llvm_says(
    selection: str, target: Target, tmp_path: Path
) -> None:
    root, game = kernel(selection), played(selection, target)
    artifact = compiled(game.program, target=target)
    file, counter = tmp_path / "k.so", tmp_path / "counter.so"
    file.write_bytes(artifact.content)
    counter.write_bytes(counter_library())
    said = subprocess.run(
        [str(DISASSEMBLER), "-d", "--no-show-raw-insn", str(file)], capture_output=True, text=True, check=True
    ).stdout
    listed = {int(m[1], 16): m[2] for m in re.finditer(r"^\s*([0-9a-f]+):\s+(.*)$", said, re.MULTILINE)}
    loaded = read(artifact.content)
    sizes = [bytes_of(spec.shape, spec.dtype) for spec in (*root.inputs, *root.outputs)]
    [counts] = count(loaded, "pd_test", sizes, 1, ctypes.CDLL(str(counter))).threads
    found = list(blocks(loaded, counts))
    total = sum(block.cycles * block.times for block in found)
    hot = [block for block in found if block.cycles * block.times > 0.04 * total]
    assert sum(block.cycles * block.times for block in hot) > 0.8 * total
    for block in hot:
        addresses = range(block.address, block.address + 4 * len(block.instructions), 4)
        lines = [re.sub(r"\b[0-9a-f]+ <.*?>", ".Lhere", listed[at].partition("//")[0]) for at in addresses]
        theirs = mca_cycles(lines)
        # This version lets 16 operations enter a cycle; later ones, as the model here, 6.
        wide = max(cycles for name, cycles in limits(block.instructions).items() if name != "width")
        assert wide < 1.1 * theirs and block.cycles > 0.9 * theirs, lines

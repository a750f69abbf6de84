"""A stock assembler takes the kernels as they are and makes the same code of them."""

from __future__ import annotations

import struct
import subprocess
import sys
from pathlib import Path

import pytest
from perfdojo_riscv_snitch.assembly import assemble
from perfdojo_riscv_snitch.passes import heuristic
from snitch_support import Game

from perfdojo_sdk.kernels.selection import select

CLANG = [sys.executable, "-m", "ziglang", "cc", "-target", "riscv32-freestanding-none"]
CLANG += ["-mcpu=generic_rv32+m+a+f+d", "-mabi=ilp32d", "-g0", "-c"]


def text_words(content: bytes) -> tuple[int, ...]:
    """The section .text of a 32-bit ELF object."""
    header = struct.unpack_from("<16sHHIIIIIHHHHHH", content)
    at, size, count, names = header[6], header[11], header[12], header[13]
    sections = [struct.unpack_from("<10I", content, at + k * size) for k in range(count)]
    titles = sections[names][4]
    for section in sections:
        start = titles + section[0]
        if content[start : content.index(b"\0", start)] == b".text":
            return struct.unpack_from(f"<{section[5] // 4}I", content, section[4])
    raise AssertionError("no section .text")


KERNELS = ["dmatmul[4,16,8]", "srelu[40,40]", "dsoftmax[8,32]", "hmatmul_transb[4,16,16]"]


@pytest.mark.parametrize("selection", KERNELS)
def test_clang_assembles_the_same_code(selection: str, tmp_path: Path) -> None:
    pytest.importorskip("ziglang")
    game = Game()
    (kernel,) = select(selection, game.plugins.operators_for(game.target), game.target.dialect)
    program = heuristic(kernel.program, game.rules, game.target)[0].program
    code = game.generator.generate(program, kernel.symbol).code
    (tmp_path / "k.s").write_text(code)
    done = subprocess.run(
        [*CLANG, "k.s", "-o", "k.o"], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    own, theirs = assemble(code), text_words((tmp_path / "k.o").read_bytes())
    assert len(own.words) == len(theirs)
    for k, (one, other) in enumerate(zip(own.words, theirs, strict=True)):
        # A constant can be made in more than one way.
        statement = own.lines[own.base + 4 * k].statement
        assert one == other or statement.startswith("li "), statement

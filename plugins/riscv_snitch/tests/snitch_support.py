"""Pieces that several tests share: data files, bulk runs of one instruction, small ELF files."""

from __future__ import annotations

import gzip
import json
import os
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import perfdojo_riscv_snitch as plugin
from perfdojo_riscv_snitch.codegen import SnitchCodeGenerator
from perfdojo_riscv_snitch.program import Program
from perfdojo_riscv_snitch.simulator import simulate

from perfdojo_sdk.core.program import Program as LoopProgram
from perfdojo_sdk.hookspecs.types import Artifact, Capabilities, KernelSource, Measurement, RunRequest
from perfdojo_sdk.plugins import load_plugins

TCDM = 0x10000000
#: Waits until the FP side has come to this point.
FP_FENCE = ["fmv.x.w t0, fa0", "mv t0, t0"]


def reference(name: str) -> Any:
    """A data file: programs, with the results of a cycle-accurate model of the hardware."""
    with gzip.open(Path(__file__).parent / "data" / f"{name}.json.gz") as stream:
        return json.load(stream)


def apply_fp(
    instruction: str, operands: Sequence[tuple[int, int, int]], returns: str = "D"
) -> list[tuple[int, int]]:
    """(result, flags) of ``instruction`` on fa0, fa1, fa2 = operands; the result is in fa3 or, if
    ``returns`` is ``d``, in t0. Operands and results are 64 bits; one that is an integer is in t1."""
    store = "fsd fa3, 0(a1)" if returns == "D" else "sw t0, 0(a1)"
    text = f"""
        li a0, {TCDM}
        li a1, {TCDM + 24 * len(operands)}
        li a2, {len(operands)}
        1: fld fa0, 0(a0)
        fld fa1, 8(a0)
        fld fa2, 16(a0)
        lw t1, 0(a0)
        fsflagsi 0
        {instruction}
        {store}
        fmv.x.w t2, fa0
        mv t2, t2
        fence
        frflags t2
        sw t2, 8(a1)
        addi a0, a0, 24
        addi a1, a1, 16
        addi a2, a2, -1
        bnez a2, 1b
        ecall
    """
    memory = b"".join(struct.pack("<3Q", *row) for row in operands)
    result = simulate(text, memory={TCDM: memory})
    rows = struct.iter_unpack("<QII", result.read(TCDM + len(memory), 16 * len(operands)))
    return [(value, flags) for value, flags, _ in rows]


def elf_of(program: Program, data_bytes: int = 4096) -> bytes:
    """A minimal executable: one segment of code, one of zeroed data with the program's own."""
    code = struct.pack(f"<{len(program.words)}I", *program.words)
    content = bytearray(data_bytes)
    for address, piece in program.data:
        content[address - TCDM : address - TCDM + len(piece)] = piece
    segments = [(program.base, code, 5), (TCDM, bytes(content), 6)]
    at = 0x1000
    headers, body = b"", b""
    for address, piece, rights in segments:
        size = len(piece)
        headers += struct.pack("<8I", 1, at + len(body), address, address, size, size, rights, 0x1000)
        body += piece + bytes(-len(piece) % 0x1000)
    ident = b"\x7fELF\x01\x01\x01" + bytes(9)
    double_abi = 0x4
    sizes = (52, 32, len(segments), 40, 0, 0)
    top = struct.pack("<16sHHIIIIIHHHHHH", ident, 2, 243, 1, program.entry, 52, 0, double_abi, *sizes)
    return (top + headers).ljust(0x1000, b"\0") + body


# -- kernels ---------------------------------------------------------------------------------------------


class Game:
    """The target with everything that its plugin brings."""

    def __init__(self) -> None:
        self.plugins = PLUGINS
        self.target = PLUGINS.target("riscv_snitch")
        self.generator = PLUGINS.code_generator(self.target)
        self.runner = PLUGINS.runner(self.target)
        self.rules = PLUGINS.rules(self.target)

    def compile(self, source: KernelSource) -> Artifact:
        made = self.runner.compile(source)
        assert isinstance(made, Artifact), f"{made}\n{source.code}"
        return made


PLUGINS = load_plugins(without=("riscv_snitch",), extra=[plugin])

#: The target with as many named cells as one likes, so that values outnumber registers.
WIDE = Capabilities.model_validate(
    {
        **(own := PLUGINS.target("riscv_snitch").capabilities).model_dump(),
        "extra_locations": {
            **{name: where.model_dump() for name, where in own.extra_locations.items()},
            "reg": {**own.extra_locations["reg"].model_dump(), "max_bytes": 4096},
        },
    }
)


def compiled(program: LoopProgram, symbol: str = "pd_kernel", wide: bool = False) -> KernelSource:
    """The assembly of a program."""
    capabilities = WIDE if wide else PLUGINS.target("riscv_snitch").capabilities
    return SnitchCodeGenerator(capabilities).generate(program, symbol)


def run(program: LoopProgram, given: dict[str, Any], wide: bool = False) -> Measurement:
    """The program on the simulator, with these inputs."""
    game = Game()
    source = compiled(program, wide=wide)
    measured = game.runner.run(game.compile(source), RunRequest(given, repeats=1))
    assert isinstance(measured, Measurement), f"{measured}\n{source.code}"
    return measured


def golden(name: str, text: str) -> None:
    """Compare with ``golden/name``; PERFDOJO_UPDATE_GOLDEN=1 writes it."""
    path = Path(__file__).parent / "golden" / name
    if os.environ.get("PERFDOJO_UPDATE_GOLDEN") == "1":
        path.write_text(text)
    assert text == path.read_text()

"""Stands in for a Verilator binary of snitch_cluster: loads the ELF file, runs core 0 and serves the host.

Its own few lines run what a start-up consists of; the function that it calls runs on the plugin's simulator.
Everything about the file that the real loader relies on is checked. The environment asks for misbehaviour.
"""

from __future__ import annotations

import os
import struct
import sys
import time

from perfdojo_riscv_snitch.program import Program
from perfdojo_riscv_snitch.simulator import simulate
from perfdojo_riscv_snitch.simulator.run import INTEGER_NAMES

TCDM, TCDM_BYTES, DRAM = 0x10000000, 128 * 1024, 0x80000000
CYCLES_OF_CALL = 7


class Machine:
    def __init__(self, content: bytes) -> None:
        self.memory: dict[int, int] = {}
        self.x, self.pc, self.cycle = [0] * 32, self.load(content), 0

    def load(self, content: bytes) -> int:
        """Put the segments in place; the entry."""
        assert content[:7] == b"\x7fELF\x01\x01\x01", "32-bit little-endian ELF"
        kind, machine, _, entry, headers, sections = struct.unpack_from("<HHIIII", content, 16)
        assert (kind, machine) == (2, 243), "a RISC-V executable"
        size, count, row, rows = struct.unpack_from("<HHHH", content, 42)
        executed = []
        for k in range(count):
            part, at, address, _, held, total, rights, align = struct.unpack_from(
                "<8I", content, headers + k * size
            )
            assert part == 1 and held == total and address % 64 == 0 and at % align == address % align
            assert address >= DRAM and address + total < DRAM + (1 << 30), (
                "in the memory that the loader fills"
            )
            executed += [range(address, address + total)] if rights & 1 else []
            piece = content[at : at + held].ljust(-(-held // 4) * 4, b"\0")
            for j in range(0, len(piece), 4):
                self.memory[address + j] = int.from_bytes(piece[j : j + 4], "little")
        assert any(entry in code for code in executed), "the entry is code"
        self.words = [self.memory.get(a, 0) for a in executed[0] if a % 4 == 0]
        self.symbols = self.names(content, sections, row, rows)
        self.tohost, self.fromhost = self.symbols["tohost"], self.symbols["fromhost"]
        assert self.tohost // 64 != self.fromhost // 64
        return entry

    def names(self, content: bytes, at: int, size: int, count: int) -> dict[str, int]:
        rows = [struct.unpack_from("<10I", content, at + k * size) for k in range(count)]
        table = next(r for r in rows if r[1] == 2)
        strings = rows[table[6]]
        found = {}
        for k in range(1, table[5] // 16):
            name, value = struct.unpack_from("<II", content, table[4] + 16 * k)
            start = strings[4] + name
            found[content[start : content.index(b"\0", start)].decode()] = value
        return found

    def bytes_at(self, address: int, count: int) -> bytes:
        words = range(address, address + count + 3, 4)
        return b"".join(self.memory.get(a, 0).to_bytes(4, "little") for a in words)[:count]

    def store(self, address: int, value: int) -> int | None:
        """The exit code when the program tells that it ends."""
        self.memory[address] = value & 0xFFFFFFFF
        if address == self.tohost and value:
            if value & 1:
                return value >> 1
            number, file, start, count = struct.unpack("<4Q", self.bytes_at(value, 32))
            assert (number, file) == (64, 1), "write to the standard output"
            sys.stdout.buffer.write(self.bytes_at(start, count))
            self.memory[self.tohost], self.memory[self.fromhost] = 0, 1
        return None

    def call(self) -> None:
        """The kernel, on the simulator of the plugin."""
        code = (*self.words, 0x000E00E7, 0x00000073)  # jalr ra, 0(t3); ecall
        registers = {name: self.x[k] for k, name in enumerate(INTEGER_NAMES) if k}
        content = self.bytes_at(TCDM, TCDM_BYTES)
        program = Program(code, DRAM, DRAM + 4 * len(self.words))
        done = simulate(program, memory={TCDM: content}, registers=registers)
        for k, name in enumerate(INTEGER_NAMES):
            self.x[k] = done.registers[name]
        for k in range(0, TCDM_BYTES, 4):
            self.memory[TCDM + k] = int.from_bytes(done.memory[k : k + 4], "little")
        self.cycle += CYCLES_OF_CALL

    def run(self) -> int:
        while True:
            word = self.memory[self.pc]
            opcode, rd, funct3, one, other = (
                word & 127,
                word >> 7 & 31,
                word >> 12 & 7,
                word >> 15 & 31,
                word >> 20 & 31,
            )
            signed = word - (1 << 32) if word >> 31 else word
            a, b, following = self.x[one], self.x[other], self.pc + 4
            result = None
            if opcode == 0x37:
                result = word & 0xFFFFF000
            elif opcode == 0x13 and funct3 == 0:
                result = a + (signed >> 20)
            elif opcode == 0x33 and funct3 == 0:
                result = a - b if word >> 30 else a + b
            elif opcode == 0x03 and funct3 == 2:
                result = self.memory.get(a + (signed >> 20), 0)
            elif opcode == 0x23 and funct3 == 2:
                code = self.store(a + (signed >> 25 << 5 | rd), b)
                if code is not None:
                    return code
            elif opcode == 0x63 and funct3 in (0, 1):
                offset = (
                    (word >> 8 & 15) << 1
                    | (word >> 25 & 63) << 5
                    | (word >> 7 & 1) << 11
                    | (signed >> 31) << 12
                )
                following = self.pc + offset if (a == b) == (funct3 == 0) else following
            elif opcode == 0x67 and one == 28:
                self.call()
            elif opcode == 0x73 and funct3 == 2:
                result = {0xF14: 0, 0xB00: self.cycle}[word >> 20]
            else:
                assert opcode == 0x0F, f"an instruction that no start-up needs: 0x{word:08x} at 0x{self.pc:x}"
            if result is not None and rd:
                self.x[rd] = result & 0xFFFFFFFF
            self.pc = following


def main() -> int:
    (file,) = sys.argv[1:]
    misbehaviour = os.environ.get("STAND_IN", "")
    if misbehaviour == "hang":
        time.sleep(600)
    if misbehaviour == "crash":
        os.abort()
    if misbehaviour == "garbage":
        print("\x00garbage" * 100)
        return 0
    while misbehaviour == "flood":
        sys.stdout.write("no end " * 1000)
    assert os.path.isdir("logs"), "traces go there"
    print("Wrote 36 bytes of bootrom to 0x1000", flush=True)
    with open(file, "rb") as program:
        code = Machine(program.read()).run()
    sys.stdout.flush()
    return code


sys.exit(main())

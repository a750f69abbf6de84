"""Random programs of base instructions, against QEMU where it is installed (Debian: qemu-user)."""

from __future__ import annotations

import random
import shutil
import subprocess
from pathlib import Path

import pytest
from perfdojo_riscv_snitch.assembly import assemble
from perfdojo_riscv_snitch.simulator import simulate
from snitch_support import TCDM, elf_of

QEMU = shutil.which("qemu-riscv32") or shutil.which("qemu-riscv32-static")
INTEGER = ["t0", "t1", "t2", "a2", "a3", "a4", "a5", "s2", "s3", "s4"]
FLOAT = [f"fa{k}" for k in range(8)] + [f"fs{k}" for k in range(4)]
DATA_BYTES = 256
ALU = "add sub and or xor sll srl sra slt sltu mul mulh mulhu mulhsu div divu rem remu"
IMMEDIATE = ["addi", "andi", "ori", "xori", "slti", "sltiu"]
ATOMIC = ["amoadd.w", "amoswap.w", "amoxor.w", "amoand.w", "amoor.w", "amomin.w", "amomax.w", "amominu.w"]
LOADS = [("lw", 4), ("lh", 2), ("lhu", 2), ("lb", 1), ("lbu", 1), ("flw", 4), ("fld", 8)]
STORES = [("sw", 4), ("sh", 2), ("sb", 1), ("fsw", 4), ("fsd", 8)]
MODES = ["rne", "rtz", "rdn", "rup", "rmm", "dyn"]
SPECIAL = [0.0, -0.0, 1.0, -1.5, 1e-310, 2.0**-1074, 1e308, -1e300, 3e38, 1e-40, 0.1, 12345.678, 2.0**31]


class Generator:
    """Straight-line instructions with skips, each one legal whatever the registers hold."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.labels = 0

    def x(self) -> str:
        return self.rng.choice(INTEGER)

    def f(self) -> str:
        return self.rng.choice(FLOAT)

    def line(self) -> list[str]:
        kind = self.rng.choice(
            [self.alu, self.alu, self.memory, self.atomic, self.skip, self.float, self.float, self.float]
        )
        return kind()

    def alu(self) -> list[str]:
        r = self.rng
        if r.random() < 0.2:
            return [f"{r.choice(['slli', 'srli', 'srai'])} {self.x()}, {self.x()}, {r.randrange(32)}"]
        if r.random() < 0.3:
            return [f"{r.choice(IMMEDIATE)} {self.x()}, {self.x()}, {r.randrange(-2048, 2048)}"]
        return [f"{r.choice(ALU.split())} {self.x()}, {self.x()}, {self.x()}"]

    def memory(self) -> list[str]:
        name, size = self.rng.choice(LOADS + STORES)
        register = self.f() if name.startswith("f") else self.x()
        return [f"{name} {register}, {self.rng.randrange(DATA_BYTES // size) * size}(a0)"]

    def atomic(self) -> list[str]:
        where = self.rng.randrange(DATA_BYTES // 4) * 4
        return [f"addi a1, a0, {where}", f"{self.rng.choice(ATOMIC)} {self.x()}, {self.x()}, (a1)"]

    def skip(self) -> list[str]:
        self.labels += 1
        name = self.rng.choice(["beq", "bne", "blt", "bge", "bltu", "bgeu"])
        body = [*self.alu(), *self.float()]
        return [f"{name} {self.x()}, {self.x()}, skip{self.labels}", *body, f"skip{self.labels}:"]

    def float(self) -> list[str]:
        r, p = self.rng, self.rng.choice("sd")
        mode, other = r.choice(MODES), "d" if p == "s" else "s"
        choice = r.randrange(8)
        if choice == 0:
            return [f"fsrmi {r.randrange(5)}"]
        if choice == 1:
            narrow = f"fcvt.s.d {self.f()}, {self.f()}, {mode}"
            return [narrow if p == "s" else f"fcvt.{p}.{other} {self.f()}, {self.f()}"]
        if choice == 2:
            return [f"fcvt.{r.choice(['w', 'wu'])}.{p} {self.x()}, {self.f()}, {mode}"]
        if choice == 3:
            to_single = f"fcvt.s.{r.choice(['w', 'wu'])} {self.f()}, {self.x()}, {mode}"
            return [to_single if p == "s" else f"fcvt.d.{r.choice(['w', 'wu'])} {self.f()}, {self.x()}"]
        if choice == 4:
            return [f"{r.choice(['feq', 'flt', 'fle'])}.{p} {self.x()}, {self.f()}, {self.f()}"]
        if choice == 5:
            name = r.choice(["fsgnj", "fsgnjn", "fsgnjx", "fmin", "fmax"])
            return [f"{name}.{p} {self.f()}, {self.f()}, {self.f()}"]
        if choice == 6:
            name = r.choice(["fmadd", "fmsub", "fnmadd", "fnmsub"])
            return [f"{name}.{p} {self.f()}, {self.f()}, {self.f()}, {self.f()}, {mode}"]
        moves = [f"fclass.{p} {self.x()}, {self.f()}", f"fmv.x.w {self.x()}, {self.f()}"]
        if r.random() < 0.2:
            return [r.choice([*moves, f"fmv.w.x {self.f()}, {self.x()}"])]
        return [f"{r.choice(['fadd', 'fsub', 'fmul'])}.{p} {self.f()}, {self.f()}, {self.f()}, {mode}"]

    def data(self) -> list[str]:
        lines = [f".double {self.rng.choice(SPECIAL)}" for _ in range(DATA_BYTES // 16)]
        return lines + [f".word {self.rng.getrandbits(32)}" for _ in range(DATA_BYTES // 8)]

    def program(self, length: int) -> tuple[str, int]:
        """Text whose first ecall writes all of the state to standard output, and the bytes of that."""
        lines = [".data", *self.data(), ".text", f"li a0, {TCDM}", "fsrmi 0", "fsflagsi 0"]
        lines += [f"lw {name}, {4 * k}(a0)" for k, name in enumerate(INTEGER)]
        lines += [f"fld {name}, {8 * k}(a0)" for k, name in enumerate(FLOAT)]
        for _ in range(length):
            lines += self.line()
        at = DATA_BYTES
        for name in FLOAT:
            lines.append(f"fsd {name}, {at}(a0)")
            at += 8
        for name in INTEGER:
            lines.append(f"sw {name}, {at}(a0)")
            at += 4
        # Underflow is left out: this unit judges it on the rounded result, QEMU before its exponent is cut.
        lines += [
            "fmv.x.w t1, fa0",
            "mv t1, t1",
            "fence",
            "frflags t0",
            "andi t0, t0, 0x1d",
            f"sw t0, {at}(a0)",
        ]
        at += 4
        lines += [f"li a1, {TCDM}", f"li a2, {at}", "li a0, 1", "li a7, 64", "ecall"]
        lines += ["li a0, 0", "li a7, 93", "ecall"]
        return "\n".join(lines), at


@pytest.mark.skipif(QEMU is None, reason="no qemu-riscv32")
@pytest.mark.parametrize("seed", range(20))
def test_random_program_as_on_qemu(seed: int, tmp_path: Path) -> None:
    text, size = Generator(seed).program(600)
    program = assemble(text)
    executable = tmp_path / "program.elf"
    executable.write_bytes(elf_of(program))
    executable.chmod(0o700)
    ran = subprocess.run([str(QEMU), str(executable)], capture_output=True, timeout=30, check=True)
    assert simulate(program).read(TCDM, size).hex(" ", -4) == ran.stdout.hex(" ", -4)

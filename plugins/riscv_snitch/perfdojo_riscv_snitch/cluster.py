"""Kernels on the hardware's own model: a Verilator binary of ``snitch_cluster``.

The binary takes the path of an executable and runs it on all cores; it talks to the host as RISC-V tests do,
through the words ``tohost`` and ``fromhost`` in the executable. Ours contains, in the memory at 0x80000000,
some start-up code, the kernel, and an image of the TCDM. Core 0 copies the image to the TCDM, calls the
kernel, does both once more (the first call fills the instruction cache), and writes cycles, status and the
used part of the TCDM to its standard output by the host's system call. The other cores sleep.
"""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from perfdojo_riscv_snitch.assembly import assemble
from perfdojo_riscv_snitch.program import CODE_BASE, TCDM_BASE, Program
from perfdojo_sdk.hookspecs.services import Probe
from perfdojo_sdk.hookspecs.types import Failure

#: Environment variable that names the binary; if it is unset, kernels run on this package's simulator.
VARIABLE = "PERFDOJO_SNITCH_VERILATOR"

MAGIC = b"PDSNITCH"
#: Offsets of the program, the result and the host's words from the start of the memory at 0x80000000.
_IMAGE, _RESULT, _HOST = 0x100000, 0x140000, 0x180000
#: ``tohost``, ``fromhost`` and the block of a system call, a line of the cache each.
_TOHOST, _FROMHOST, _CALL = (CODE_BASE + _HOST + 64 * k for k in range(3))
_WRITE = 64
_HEAD = struct.Struct("<8sII")
_SAID_MOST = 4 << 20
"""Most bytes of output; a model that writes more is stopped."""

_RISCV, _EXECUTABLE, _LOAD, _DOUBLE_FLOAT_ABI = 243, 2, 1, 4
_NOTHING, _PROGBITS, _SYMTAB, _STRTAB = 0, 1, 2, 3

_START = """\
csrr t0, mhartid
bnez t0, {park}f
li s0, 2
2:
li t0, {image}
li t1, {tcdm}
li t2, {end}
3:
lw t3, 0(t0)
sw t3, 0(t1)
addi t0, t0, 4
addi t1, t1, 4
bne t1, t2, 3b
fence
{registers}
li t3, {kernel}
csrr s1, mcycle
jalr ra, 0(t3)
fence
csrr s2, mcycle
addi s0, s0, -1
bnez s0, 2b
sub s2, s2, s1
li t0, {result}
sw s2, 8(t0)
sw a0, 12(t0)
addi t0, t0, 16
li t1, {tcdm}
li t2, {end}
4:
lw t3, 0(t1)
sw t3, 0(t0)
addi t0, t0, 4
addi t1, t1, 4
bne t1, t2, 4b
fence
li t0, {call}
li t1, {tohost}
sw t0, 0(t1)
li t1, {fromhost}
5:
lw t2, 0(t1)
beqz t2, 5b
sw zero, 0(t1)
fence
li t0, 1
li t1, {tohost}
sw t0, 0(t1)
{park}:
.insn i 0x73, 0, x0, x0, 0x105
j {park}b
"""


@dataclass(frozen=True)
class Outcome:
    """The results of a run that a call checks: cycles, memory and registers."""

    cycles: int
    memory: bytes
    registers: Mapping[str, int]


def binary() -> str:
    """The binary that the environment names; empty when it names none."""
    return os.environ.get(VARIABLE, "")


def probe() -> Probe:
    """The doctor's probe of the model of the cluster."""
    named = binary()
    if not named:
        what = "the simulator of this package"
        return Probe("model of the hardware", f"{what}; {VARIABLE} may name another", required=False)
    if os.access(named, os.X_OK) and os.path.isfile(named):
        return Probe("model of the hardware", named, required=False)
    why = f"{VARIABLE} names {named}, which is no program"
    return Probe("model of the hardware", "", why, f"unset {VARIABLE}, or name snitch_cluster.vlt")


def execute(
    program: Program, registers: Mapping[str, int], image: bytes, used: int, seconds: float
) -> Outcome | Failure:
    """Call the function whose address is in t3 on a TCDM that starts with ``image``.

    ``used``: number of bytes of the TCDM that come back; the rest counts as unchanged.
    """
    used = -(-used // 8) * 8
    with tempfile.TemporaryDirectory(prefix="perfdojo-snitch-") as folder:
        Path(folder, "kernel.elf").write_bytes(executable(program, registers, image, used))
        Path(folder, "logs").mkdir()  # the model puts its traces there
        said = _run(folder, seconds)
    if isinstance(said, Failure):
        return said
    at = said.find(MAGIC)
    if at < 0 or len(said) < at + _HEAD.size + used:
        shown = said[:200].decode("utf-8", "replace").strip()
        return Failure("runtime", f"the model {binary()} told no result: it said {shown!r}")
    _, cycles, status = _HEAD.unpack_from(said, at)
    memory = said[at + _HEAD.size : at + _HEAD.size + used]
    return Outcome(cycles, memory + image[used:], {"t6": status})


def _run(folder: str, seconds: float) -> bytes | Failure:
    """Run the model in ``folder`` for at most ``seconds``; its standard output, or the failure."""
    with open(Path(folder, "said"), "w+b") as said, open(Path(folder, "errors"), "w+b") as errors:
        # The shell's limit keeps a model with endless output from filling the disk.
        limited = ("/bin/sh", "-c", f'ulimit -f {_SAID_MOST // 512}; exec "$0" "$1"')
        try:
            model = subprocess.Popen(
                [*limited, os.path.abspath(binary()), str(Path(folder, "kernel.elf"))],
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=errors,
                start_new_session=True,
            )
        except OSError as error:
            return Failure("crash", f"the model {binary()} does not start: {error}")
        try:
            status = model.wait(seconds)
        except subprocess.TimeoutExpired:
            return Failure("timeout", f"the model {binary()} gave no result after {seconds:g} s")
        finally:
            _end(model)
        said.seek(0)
        errors.seek(0)
        if status:
            why = errors.read(2000).decode("utf-8", "replace").strip()
            return Failure("crash", f"the model {binary()} ended with status {status}: {why}")
        return said.read(_SAID_MOST)


def _end(model: subprocess.Popen[bytes]) -> None:
    """End the model and all that it started."""
    try:
        os.killpg(model.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    model.wait()


# -- the executable ----------------------------------------------------------------------------------


def executable(program: Program, registers: Mapping[str, int], image: bytes, used: int) -> bytes:
    """An ELF file that the model loads. The kernel's code is moved: it refers to itself by distances only."""
    start = assemble(_start(registers, 0, used))
    moved = 4 * len(start.words)
    start = assemble(_start(registers, registers["t3"] + moved, used))
    assert 4 * len(start.words) == moved, "every address takes two instructions"
    words = (*start.words, *program.words)
    call = struct.pack("<8Q", _WRITE, 1, CODE_BASE + _RESULT, _HEAD.size + used, 0, 0, 0, 0)
    segments = [
        (CODE_BASE, struct.pack(f"<{len(words)}I", *words), 5),
        (CODE_BASE + _IMAGE, bytes(image[:used]), 6),
        (CODE_BASE + _RESULT, MAGIC.ljust(_HEAD.size + used, b"\0"), 6),
        (CODE_BASE + _HOST, bytes(128) + call, 6),
    ]
    return _elf(segments, {"_start": CODE_BASE, "tohost": _TOHOST, "fromhost": _FROMHOST})


def _start(registers: Mapping[str, int], kernel: int, used: int) -> str:
    own = [f"{_two('t0', value)}\nmv {name}, t0" for name, value in registers.items() if name != "t3"]
    text = _START.format(
        park="9",
        image=CODE_BASE + _IMAGE,
        tcdm=TCDM_BASE,
        end=TCDM_BASE + used,
        registers="\n".join(own),
        kernel="KERNEL",
        result=CODE_BASE + _RESULT,
        call=_CALL,
        tohost=_TOHOST,
        fromhost=_FROMHOST,
    )
    return text.replace("li t3, KERNEL", _two("t3", kernel))


def _two(register: str, value: int) -> str:
    """A number in exactly two instructions, whatever it is."""
    low = (value & 0xFFF) - (0x1000 if value & 0x800 else 0)
    return f"lui {register}, {(value - low) >> 12 & 0xFFFFF}\naddi {register}, {register}, {low}"


def _elf(segments: Sequence[tuple[int, bytes, int]], symbols: Mapping[str, int]) -> bytes:
    """A 32-bit executable with these segments (address, content, rights) and the names of some addresses."""
    names, table = b"\0", bytes(16)
    for name, value in symbols.items():
        table += struct.pack("<IIIBBH", len(names), value, 0, 1 << 4, 0, 0xFFF1)
        names += name.encode() + b"\0"
    titles = b"\0.symtab\0.strtab\0.shstrtab\0"
    body, at, headers = b"", 0x1000, b""
    for address, content, rights in segments:
        headers += struct.pack(
            "<8I", _LOAD, at + len(body), address, address, len(content), len(content), rights, 0x1000
        )
        body += content + bytes(-len(content) % 0x1000)
    places = []
    for content in (table, names, titles):
        places.append((at + len(body), len(content)))
        body += content + bytes(-len(content) % 4)
    rows = [
        (0, _NOTHING, 0, 0, 0, 0, 0, 0, 0, 0),
        (1, _SYMTAB, 0, 0, *places[0], 2, 1, 4, 16),
        (9, _STRTAB, 0, 0, *places[1], 0, 0, 1, 0),
        (17, _STRTAB, 0, 0, *places[2], 0, 0, 1, 0),
    ]
    sections = b"".join(struct.pack("<10I", *row) for row in rows)
    ident = b"\x7fELF\x01\x01\x01".ljust(16, b"\0")
    counts = (52, 32, len(segments), 40, len(rows), len(rows) - 1)
    where = (CODE_BASE, 52, at + len(body))
    head = struct.pack("<16sHHIIIIIHHHHHH", ident, _EXECUTABLE, _RISCV, 1, *where, _DOUBLE_FLOAT_ABI, *counts)
    return (head + headers).ljust(at, b"\0") + body + sections

"""The baseline of a stock C compiler: the program as plain C loops, compiled for the core.

The compiler is ``riscv64-unknown-elf-gcc`` where it is installed, else the clang of the ``ziglang`` wheel.
It uses neither streams nor repeated bodies. Divisions and exponentials that the core lacks come from the
``math.h`` beside this file, which the compiler may inline.
"""

from __future__ import annotations

import importlib.util
import shutil
import sys
import tempfile
from collections.abc import Mapping
from importlib import resources
from pathlib import Path

from perfdojo_riscv_snitch.program import CODE_BASE, TCDM_BASE
from perfdojo_riscv_snitch.runner import OBJECT
from perfdojo_sdk.codegen.c import CEmitter, Point
from perfdojo_sdk.core.dialect import Dialect
from perfdojo_sdk.core.expression import OPERATIONS, Expression, Operation, operations
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.hookspecs.types import Artifact
from perfdojo_sdk.measure.tools import run_tool, write_sources

GCC = "riscv64-unknown-elf-gcc"
#: Operations that the core does in software: those with code in C, and those without.
WRITTEN = frozenset({"div", "exp", "sqrt"})
MISSING = frozenset(name for name, m in OPERATIONS.items() if m.largest_error > m.error) - WRITTEN
#: Address of the program's constants, above the arrays and below the stack.
DATA = TCDM_BASE + 96 * 1024
_ARRAYS_MOST = 90 * 1024
_TIMEOUT_S = 120
_HEADER, _MATH = "pd_snitch.h", "pd_snitch_math.h"

_FLAGS = (
    "-O3",
    "-g0",
    "-ffreestanding",
    "-fno-builtin",
    "-fno-math-errno",
    "-nostdlib",
    "-static",
    "-mabi=ilp32d",
)
_LINK = f"""\
PHDRS {{ text PT_LOAD; data PT_LOAD; }}
SECTIONS {{
  . = 0x{CODE_BASE:x};
  .text : {{ *(.text .text.*) }} :text
  . = 0x{DATA:x};
  .data : {{
    *(.rodata .rodata.* .srodata .srodata.* .data .data.* .sdata .sdata.* .bss .bss.* .sbss .sbss.*)
  }} :data
  /DISCARD/ : {{ *(.eh_frame*) *(.comment) *(.note*) }}
}}
"""
_SURROUNDINGS = """\
#include <stddef.h>
#include <stdint.h>
#define int64_t int32_t /* iterators: a programmer for a core of 32 bits would take no others */
#define PD_INF __builtin_inff()
#define PD_ALIGNED __attribute__((aligned(8)))
static inline size_t pd_workspace_bytes(size_t shared, size_t slot, int threads)
{
    (void)slot, (void)threads;
    return shared;
}
static inline int pd_enter(
    void *workspace, size_t bytes, size_t shared, size_t slot, int threads, char **base)
{
    (void)slot;
    *base = workspace;
    return bytes < shared ? 0 : threads;
}
"""


class _Emitter(CEmitter):
    """Plain C without threads and without a C library."""

    includes = (_HEADER, _MATH)
    computes_halves = False
    keeps_tables = False

    def support(self) -> Mapping[str, str]:
        functions = resources.files(__package__).joinpath("math.h").read_text(encoding="utf-8")
        return {_HEADER: _SURROUNDINGS, _MATH: functions}

    def expression(self, value: Expression, point: Point) -> str:
        if isinstance(value, Operation) and value.name in WRITTEN:
            arguments = ", ".join(self.expression(a, point) for a in value.arguments)
            return f"pd_{value.name}_{value.dtype}({arguments})"
        return super().expression(value, point)


def find_compiler() -> tuple[str, ...] | None:
    """The command of a C compiler for the core, if there is one."""
    if where := shutil.which(GCC):
        return (where, "-march=rv32imafd")
    if importlib.util.find_spec("ziglang"):
        target = ("-target", "riscv32-freestanding-none", "-mcpu=generic_rv32+m+a+f+d")
        return (sys.executable, "-m", "ziglang", "cc", *target, "-fno-sanitize=all")
    return None


def compiled_c(program: Program, dialect: Dialect, symbol: str) -> Artifact | str:
    """The program as C, compiled and linked for the core; or, in words, why there is none."""
    command = find_compiler()
    if command is None:
        return f"no C compiler for RISC-V: neither {GCC} nor the package ziglang is installed"
    values = [leaf.statement.value for node in program.body for leaf in node.leaves]
    missing = sorted({o.name for value in values for o in operations(value)} & MISSING)
    if missing:
        return f"there is no C of {', '.join(missing)} for a core without divider and C library"
    size = sum(8 * b.cells for b in program.buffers)
    if size > _ARRAYS_MOST:
        return f"its arrays take {size} bytes, which leaves no room for the constants of the C"
    source = _Emitter(program, symbol, dialect).source()
    with tempfile.TemporaryDirectory(prefix="perfdojo-snitch-c-") as folder:
        refused = write_sources(folder, {**source.support, "kernel.c": source.code, "link.ld": _LINK})
        if refused:
            return refused
        options = ("-Wl,-T,link.ld", f"-Wl,-e,{symbol}", "-o", "kernel.elf", "kernel.c")
        try:
            done = run_tool([*command, *_FLAGS, *options], folder, _TIMEOUT_S)
        except OSError as error:
            return f"the C compiler does not start: {error}"
        if done is None:
            return f"the C compiler ran longer than {_TIMEOUT_S:g} s"
        if done.status:
            return f"the C compiler says: {done.said.strip()[:400]}"
        content = Path(folder, "kernel.elf").read_bytes()
    return Artifact(symbol, source.inputs, source.outputs, OBJECT, content, "C, -O3")

"""Errors of assembling and simulating, each with its place in the source."""

from __future__ import annotations

from perfdojo_riscv_snitch.program import SourceLine
from perfdojo_sdk.core.errors import DojoError, SourceSpan

#: Error code -> what to try.
_HINTS = {
    "PD-S001": "there is no divider, no DMA, no compressed code; csrsi and csrci switch the streams",
    "PD-S002": "end the program with `ecall`",
    "PD-S003": "align the data; streams move 8 bytes",
    "PD-S004": "data memory is 128 KiB from 0x10000000; check strides and bounds",
    "PD-S005": "look for an endless loop, or raise the limit of cycles",
    "PD-S006": "compare the elements of each stream's job with the instructions that use it",
    "PD-S007": "a mover reads or writes; repeat is at most 15, a bound at most 16383, strides multiples of 8",
    "PD-S008": "at most 32 FP instructions and two loops; no comparison or conversion to an integer",
    "PD-S009": "end the program with `ecall`",
    "PD-S010": "simulate without a trace",
    "PD-S011": "RISC-V assembly as GNU as takes it, with the Xssr and Xfrep mnemonics",
}


class SnitchError(DojoError):
    """An error in a program for this target, or of its run."""

    #: Address of the instruction, None where there is none.
    pc: int | None = None


def assembly_error(what: str, line: SourceLine, part: str, file: str, why: str = "") -> SnitchError:
    """An error that underlines ``part`` in its line."""
    column = line.text.find(part) + 1 if part else 0
    place = SourceSpan(line.number, max(column, 1), line.text, max(len(part), 1), file or "assembly")
    return SnitchError("PD-S011", what, place=place, why=why, hint=_HINTS["PD-S011"])


def run_error(
    code: str, what: str, pc: int, line: SourceLine | None, file: str, why: str = ""
) -> SnitchError:
    """An error of the instruction at ``pc``."""
    place = None
    if line is not None:
        stripped = line.statement or line.text.strip()
        column = line.text.find(stripped) + 1
        place = SourceSpan(line.number, column, line.text, max(len(stripped), 1), file or "assembly")
    error = SnitchError(code, f"{what} (pc 0x{pc:08x})", place=place, why=why, hint=_HINTS[code])
    error.pc = pc
    return error

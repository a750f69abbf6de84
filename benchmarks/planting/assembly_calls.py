"""Faults in calls of assembly: registers that the calling convention keeps for the caller, stack, status."""

from __future__ import annotations

import re

from planting.assembly import ASSEMBLY
from planting.plant import Plant

#: The kernel's function from its label to its first return, which is its only one.
_BODY = r"(?s)^(pd_\w+(?<!_bytes):\n.*?)(^    ret$)"
_FRAME = r"(?s)^    addi sp, sp, -(\d+)\n(.*?)^    addi sp, sp, \1\n(?=    ret$)"


def _smaller_frame(match: re.Match[str]) -> str:
    size = int(match[1]) - 16
    return f"    addi sp, sp, -{size}\n{match[2]}    addi sp, sp, {size}\n"


def _before_return(name: str, kind: str, instruction: str) -> Plant:
    return Plant(kind, name, ASSEMBLY, _BODY, rf"\1    {instruction}\n\2", shows="execution")


_NOT_KEPT = "register not kept"
KEPT = (
    Plant(
        _NOT_KEPT,
        "saved-register-not-restored",
        ASSEMBLY,
        r"^    fld fs\d+, \d+\(sp\)\n(?=(?:    (?:fld fs|lw |addi sp|li t0|add sp).*\n)*    ret)",
        "",
        shows="execution",
    ),
    Plant(
        _NOT_KEPT,
        "register-not-saved",
        ASSEMBLY,
        r"(?<=\n)    fsd fs\d+, \d+\(sp\)\n(?=(?:    (?:fsd fs|sw |li |\.insn i).*\n)*)",
        "",
        needs=r"^    fld fs\d+, \d+\(sp\)$",
        shows="execution",
    ),
    Plant(
        _NOT_KEPT,
        "stack-pointer-not-restored",
        ASSEMBLY,
        r"^    addi sp, sp, \d+\n(?=    ret)",
        "",
        shows="execution",
    ),
    Plant(_NOT_KEPT, "return-address-not-saved", ASSEMBLY, r"^    sw ra, \d+\(sp\)\n", "", shows="execution"),
    Plant(
        _NOT_KEPT, "return-address-not-restored", ASSEMBLY, r"^    lw ra, \d+\(sp\)\n", "", shows="execution"
    ),
    _before_return("saved-integer-changed", _NOT_KEPT, "li s3, 0"),
    _before_return("last-saved-integer-changed", _NOT_KEPT, "mv s11, a1"),
    _before_return("saved-float-changed", _NOT_KEPT, "fcvt.d.w fs4, zero"),
    _before_return("frame-pointer-changed", _NOT_KEPT, "addi s0, s0, 1"),
    _before_return("thread-pointer-changed", _NOT_KEPT, "mv tp, a1"),
    _before_return("stack-pointer-moved", _NOT_KEPT, "addi sp, sp, 16"),
    _before_return("rounding-left", "floating-point state left changed", "csrwi frm, 1"),
    _before_return("streams-left-on", "streams left on or off", "csrsi 0x7c0, 1"),
    Plant("stack wrong", "frame-too-small", ASSEMBLY, _FRAME, _smaller_frame, shows="execution"),
    Plant(
        "stack wrong", "stored-above-the-frame", ASSEMBLY, _BODY, r"\1    sw a0, 0(sp)\n\2", shows="execution"
    ),
    Plant(
        "stack wrong",
        "temporary-not-kept",
        ASSEMBLY,
        r"^    (?:lw t\d|fld fa\d), \d+\(sp\)\n(?=(?:    (?:lw t|fld fa).*\n)*    ret)",
        "",
    ),
    Plant(
        "stack wrong",
        "temporary-not-saved",
        ASSEMBLY,
        r"(?<=\n)    (?:sw t\d|fsd fa\d), \d+\(sp\)\n(?=(?:    (?:sw t|fsd fa).*\n)*    (?:fld fa0|sw zero))",
        "",
    ),
)

STATUS = (
    Plant(
        "status wrong",
        "status-not-set",
        ASSEMBLY,
        r"^    li a0, 0\n(?!    ret\n\.size pd_\w+_bytes)",
        "    li a0, 1\n",
    ),
    Plant(
        "status wrong", "status-forgotten", ASSEMBLY, r"^    li a0, 0\n(?!    ret\n\.size pd_\w+_bytes)", ""
    ),
    Plant(
        "input changed",
        "input-overwritten",
        ASSEMBLY,
        r"(?s)^(pd_\w+(?<!_bytes):\n)",
        r"\1    sw zero, 0(a0)\n",
        shows="execution",
    ),
)

CALLED = (*KEPT, *STATUS)

"""Names of kernels by content, and of functions in C."""

from __future__ import annotations

from hashlib import sha256

from perfdojo_sdk.core.program import Program


def kernel_name(program: Program) -> str:
    """The name of a program's kernel in a library; equal programs are one kernel."""
    return f"{program.name}_{sha256(program.text.encode()).hexdigest()[:12]}"


def packed_symbol(symbol: str) -> str:
    """The function of a kernel that reads what its pack made."""
    return f"{symbol}_packed"


def pack_symbol(symbol: str) -> str:
    """The function of a kernel, or of a model, that packs."""
    return f"{symbol}_pack"

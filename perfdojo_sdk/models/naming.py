"""Names of kernels by content, and of functions in C."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

from perfdojo_sdk.core.program import Program


def kernel_name(program: Program, constants: Sequence[str] = ()) -> str:
    """The name of a program's kernel in a library; equal programs are one kernel. ``constants``: inputs for
    which it offers a pack."""
    text = "\n".join([program.text, *constants])
    return f"{program.name}_{sha256(text.encode()).hexdigest()[:12]}"


def packed_symbol(symbol: str) -> str:
    """The function of a kernel that reads what its pack made."""
    return f"{symbol}_packed"


def pack_symbol(symbol: str) -> str:
    """The function of a kernel, or of a model, that packs."""
    return f"{symbol}_pack"

"""Names of kernels by content."""

from __future__ import annotations

from hashlib import sha256

from perfdojo_sdk.core.program import Program


def kernel_name(program: Program) -> str:
    """The name of a program's kernel in a library; equal programs are one kernel."""
    return f"{program.name}_{sha256(program.text.encode()).hexdigest()[:12]}"

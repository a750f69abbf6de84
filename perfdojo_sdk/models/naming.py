"""Names of kernels by content."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

from perfdojo_sdk.core.program import Program


def kernel_name(program: Program, constants: Sequence[str] = ()) -> str:
    """The name of a program's kernel in a library; equal programs are one kernel. ``constants``: inputs for
    which it offers a pack."""
    text = "\n".join([program.text, *constants])
    return f"{program.name}_{sha256(text.encode()).hexdigest()[:12]}"

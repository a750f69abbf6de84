"""A program as code: what its target compiles, or plain C where no generator of a target is at hand."""

from __future__ import annotations

from perfdojo_sdk.codegen.c import CEmitter
from perfdojo_sdk.core.dialect import Dialect
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.hookspecs.types import CodeGenerator


def code(program: Program, dialect: Dialect, generator: CodeGenerator | None = None) -> str:
    """The kernel's source text.

    ``generator``: the target's own; without one, portable C that leaves vectors to the compiler.
    Raises :class:`UnavailableError` for what the generator cannot say.
    """
    symbol = f"pd_{program.name}"
    if generator is not None:
        return generator.generate(program, symbol).code
    return CEmitter(program, symbol, dialect).source().code

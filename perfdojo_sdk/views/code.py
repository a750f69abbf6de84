"""A program as code: its target's source text, or plain C without a target's generator."""

from __future__ import annotations

from perfdojo_sdk.codegen.c import CEmitter
from perfdojo_sdk.core.dialect import Dialect
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.hookspecs.types import CodeGenerator


def code(program: Program, dialect: Dialect, generator: CodeGenerator | None = None) -> str:
    """The kernel's source text.

    ``generator``: the target's own; without one, portable C that leaves vectors to the compiler.
    Raises :class:`UnavailableError` for programs that the generator does not support.
    """
    symbol = f"pd_{program.name}"
    if generator is not None:
        return generator.generate(program, symbol).code
    return CEmitter(program, symbol, dialect).source().code

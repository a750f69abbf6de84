"""Shrinking of a failing program, so that the fault is easy to see.

It is greedy: it removes a statement, or halves a size wherever it occurs, as long as the failure stays. The
result is a program of the language, so it can be kept as a test.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from math import inf

from perfdojo_sdk.core.dialect import Dialect
from perfdojo_sdk.core.errors import DojoError
from perfdojo_sdk.core.program import Node, Program, Scope, Statement
from perfdojo_sdk.core.storage import Buffer
from perfdojo_sdk.core.validate import violations
from perfdojo_sdk.verify.extents import extents, resized


def shrink(
    program: Program, fails: Callable[[Program], bool], dialect: Dialect, seconds: float = inf
) -> Program:
    """The smallest program found that still ``fails``; ``fails(program)`` must hold.

    ``seconds`` of processor time end the search with what it has.
    """
    shrunk, end = True, time.process_time() + seconds
    while shrunk:
        shrunk = False
        for smaller in _smaller(program, dialect):
            if time.process_time() > end:
                break
            if fails(smaller):
                program, shrunk = smaller, True
                break
    return program


def _smaller(program: Program, dialect: Dialect) -> Iterator[Program]:
    """Well-formed programs that have less of something, those that have least first."""
    for _, node in program.walk():
        less = _without(program, node)
        if less is not None and next(violations(less, dialect), None) is None:
            yield less
    for extent in extents(program):
        for size in (1, 2, extent.size // 2):
            if 0 < size < extent.size:
                less = resized(program, extent, size)
                if next(violations(less, dialect), None) is None:
                    yield less


def _without(program: Program, gone: Node) -> Program | None:
    """The program without one node, arrays that only it used, and scopes that held nothing else.

    An array that is read and no longer written becomes an input.
    """

    def keep(nodes: tuple[Node, ...]) -> tuple[Node, ...]:
        kept: list[Node] = []
        for node in nodes:
            if node is gone:
                continue
            if isinstance(node, Scope):
                body = keep(node.body)
                if body:
                    kept.append(node if body == node.body else node.with_body(body))
            else:
                kept.append(node)
        return tuple(kept)

    body = keep(program.body)
    statements = [leaf.statement for node in body for leaf in node.leaves]
    written = {s.target.array for s in statements}
    used = written | {read.array for s in statements for read in s.every_read}
    outputs = tuple(a for a in program.outputs if a in written) or _last_written(statements, program)
    buffers = tuple(b for b in program.buffers if used.intersection(b.arrays))
    given = (used - written - set(outputs)) | (used & program.in_out)
    inputs = tuple(a for a in (*program.inputs, *program.buffer_of) if a in given)
    inputs = tuple(dict.fromkeys(inputs))
    return Program(program.name, inputs, outputs, buffers, body) if body and outputs else None


def _last_written(statements: list[Statement], program: Program) -> tuple[str, ...]:
    """An output when none is left: the last array written that may be one."""
    for statement in reversed(statements):
        buffer = program.buffer_of[statement.target.array]
        if _may_be_output(buffer):
            return (statement.target.array,)
    return ()


def _may_be_output(buffer: Buffer) -> bool:
    return len(buffer.arrays) == 1 and len(buffer.materialised) == len(buffer.dimensions)


def still(check: Callable[[Program], bool]) -> Callable[[Program], bool]:
    """``check`` for :func:`shrink`: false if the program raises an error, which would be another failure."""

    def fails(program: Program) -> bool:
        try:
            return check(program)
        except DojoError:
            return False

    return fails

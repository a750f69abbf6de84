"""The home of each buffer, which is decided before any text is emitted.

A buffer belongs to the parallel scope around all of its accesses (one copy for each iteration;
since a thread runs its iterations one after the other, one copy for each thread is enough), or to
the kernel when there is none. Only the outermost of nested parallel scopes runs on threads.

Heap temporaries are slices of the workspace: first the kernel's own, then one slot for each
thread. Parallel scopes run one after the other, so they share the slots.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from perfdojo_sdk.core.dialect import Dialect
from perfdojo_sdk.core.dtypes import BYTES
from perfdojo_sdk.core.geometry import common_depth
from perfdojo_sdk.core.program import Path, Program, Scope

ALIGNMENT = 64
"""Bytes; a slice of the workspace starts at a multiple of it."""


@dataclass(frozen=True)
class Layout:
    """Homes of the local buffers and the workspace that the heap ones need."""

    home: Mapping[str, Path]
    """Buffer -> path of the parallel scope that owns it; () for the kernel. No interface buffers."""
    offset: Mapping[str, int]
    """Heap buffer -> bytes from the start of the workspace, or of the thread's slot."""
    shared_bytes: int
    slot_bytes: int


def runs_parallel(scope: Scope, dialect: Dialect) -> bool:
    """True if the scope needs threads: a parallel suffix, and more than one iteration."""
    return scope.size > 1 and dialect.is_parallel(scope.suffix)


def plan(program: Program, dialect: Dialect) -> Layout:
    """The layout of ``program``. Buffers that nothing accesses get no home and no bytes."""
    home: dict[str, Path] = {}
    offset: dict[str, int] = {}
    used: dict[Path, int] = {}
    for buffer in program.buffers:
        occurrences = program.occurrences[buffer.name]
        if buffer.name in program.interface or not occurrences:
            continue
        owner = _owner(program, dialect, [o.path for o in occurrences])
        home[buffer.name] = owner
        if buffer.location == dialect.default_location:
            offset[buffer.name] = used.get(owner, 0)
            size = buffer.cells * BYTES[buffer.dtype]
            used[owner] = offset[buffer.name] + -(-size // ALIGNMENT) * ALIGNMENT
    slot = max((size for owner, size in used.items() if owner), default=0)
    return Layout(home, offset, used.get((), 0), slot)


def _owner(program: Program, dialect: Dialect, paths: list[Path]) -> Path:
    scopes = program.ancestors(paths[0])[: common_depth(paths)]
    for level in range(len(scopes)):
        if runs_parallel(scopes[level], dialect):
            return paths[0][: level + 1]
    return ()

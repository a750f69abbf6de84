"""The target's veto: no more register cells may be live at one point than there are registers."""

from __future__ import annotations

from dataclasses import dataclass

from perfdojo_sdk.codegen.registers import assign
from perfdojo_sdk.core.dialect import Dialect
from perfdojo_sdk.core.geometry import common_depth
from perfdojo_sdk.core.program import Path, Program
from perfdojo_sdk.core.storage import Buffer
from perfdojo_sdk.core.transformation import Move, Objection, Refusal, Requirement, Site

FULL = Requirement[Site](
    "NEON-101",
    "the registers are full",
    "{names} take {wanted} vector registers at one place, there are {most}",
    "keep one of them on the stack, or unroll less around its accesses",
    lambda site: None,
    established_by=("set_location", "reuse_dims"),
)


@dataclass(frozen=True)
class RegisterFile:
    """A veto against programs whose buffers with named cells, in use together, exceed the register file.

    Compilers would keep the excess in memory, although the location promises registers.
    """

    most: int

    requirements = (FULL,)

    def __call__(self, before: Program, move: Move, after: Program, dialect: Dialect) -> Objection | None:
        crowd = fullest(after, dialect)
        wanted = sum(crowd.values())
        if wanted <= self.most or sum(fullest(before, dialect).values()) >= wanted:
            return None  # a program that exceeded the registers before may be repaired step by step
        statement = next(iter(after.occurrences[next(iter(crowd))])).statement
        names = ", ".join(sorted(crowd))
        arrays = tuple([array for name in sorted(crowd) for array in _arrays(after, name)])
        refusal = Refusal.of(statement.id, arrays=arrays, names=names, wanted=wanted, most=self.most)
        return Objection(FULL, refusal)


def _arrays(program: Program, buffer: str) -> tuple[str, ...]:
    found = program.buffer(buffer)
    return found.arrays if found else ()


def fullest(program: Program, dialect: Dialect) -> dict[str, int]:
    """The buffers with named cells, in use together, that take the most registers, with the number for
    each."""
    named = [b for b in program.buffers if dialect.locations[b.location].constant_subscripts]
    uses = {b.name: _use(program, b) for b in named if program.occurrences[b.name]}
    if not uses:
        return {}
    count = {b.name: _registers(program, b, dialect) for b in named if b.name in uses}
    found: dict[str, int] = {}
    for place, _ in uses.values():
        together = {name: count[name] for name, (first, last) in uses.items() if first <= place <= last}
        found = max(found, together, key=lambda crowd: sum(crowd.values()))
    return found


def _use(program: Program, buffer: Buffer) -> tuple[Path, Path]:
    """The live range of a buffer: paths of its first and last use. It covers all iterations of loops in
    between."""
    paths = sorted(o.path for o in program.occurrences[buffer.name])
    depth = common_depth(paths)
    last = paths[-1]
    # The end of the last child of the scope around the accesses: a path behind everything in it.
    return paths[0][: depth + 1], (*last[: depth + 1], *[1 << 30] * (len(last) - depth))


def _registers(program: Program, buffer: Buffer, dialect: Dialect) -> int:
    assigned = assign(program, buffer, dialect, buffer.name, set())
    return len(assigned.names) if assigned else 0

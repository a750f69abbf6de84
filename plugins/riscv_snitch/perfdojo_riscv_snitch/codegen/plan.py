"""The plan of a program, made before any instruction is emitted: pairs, streams and their jobs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from perfdojo_riscv_snitch.codegen import limits
from perfdojo_riscv_snitch.codegen.limits import Refused
from perfdojo_riscv_snitch.codegen.pairs import Pairs
from perfdojo_riscv_snitch.codegen.streams import MOVERS, Stream, streams
from perfdojo_riscv_snitch.codegen.tree import Loop, Part, unfold, unfolded
from perfdojo_riscv_snitch.codegen.values import never_nan
from perfdojo_sdk.core.dialect import Dialect
from perfdojo_sdk.core.expression import Access
from perfdojo_sdk.core.program import Path, Program, Statement

#: Suffixes of scopes that the sequencer repeats: with fixed registers, and with staggered ones.
REPEATED, STAGGERED = "frep", "freps"
REPEATS = frozenset((REPEATED, STAGGERED))


@dataclass(frozen=True, eq=False)
class Plan:
    """A program with its pairs and streams."""

    program: Program
    dialect: Dialect
    never_nan: frozenset[str]
    """Arrays that hold no NaN whatever the inputs are."""
    pairs: Pairs
    streams: Mapping[str, Stream]
    jobs: Mapping[Path, list[Stream]]
    """Path of a scope -> the streams whose job it is."""
    copies: frozenset[int]
    """Python's ids of the statements that movers execute."""

    @staticmethod
    def of(program: Program, dialect: Dialect) -> Plan:
        """The plan; :class:`~.limits.Refused` for what movers and pairs cannot do."""
        numbers = never_nan(program)
        pairs = Pairs(program, dialect, numbers)
        found = streams(program, dialect, pairs)
        jobs: dict[Path, list[Stream]] = {}
        for stream in found.values():
            jobs.setdefault(stream.job, []).append(stream)
        copies = frozenset(id(stream.copy) for stream in found.values())
        return Plan(program, dialect, numbers, pairs, found, jobs, copies)

    def parts(self) -> list[Part]:
        """The whole program, unfolded."""
        return self.pairs.refine(unfold(self.program, self.dialect, self.jobs))

    def parts_at(self, path: Path, iterators: tuple[Loop | int, ...]) -> list[Part]:
        """The scope at ``path``, unfolded, for these loops or values of the iterators around it."""
        node = self.program.node(path)
        return self.pairs.refine(list(unfolded(node, path, iterators, self.dialect, self.jobs)))

    def moved(self, statement: Statement) -> bool:
        """True if a mover executes the statement."""
        return id(statement) in self.copies

    def in_memory(self, access: Access) -> bool:
        location = self.program.buffer_of[access.array].location
        return location not in MOVERS and not self.dialect.locations[location].constant_subscripts

    def check_repeatable(self, statement: Statement) -> None:
        """Raise :class:`Refused` unless the operands of a statement in a repeated scope are in registers."""
        for access in (*statement.reads, statement.target):
            if self.in_memory(access):
                words = {"access": access.text, "location": self.program.buffer_of[access.array].location}
                raise Refused(limits.MEMORY, statement.id, access, **words)

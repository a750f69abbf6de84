"""A program in two halves: what depends on some inputs alone, and the rest, which reads what that made.

The first half, the *pack*, is the nests that read nothing but these inputs and tables, and write temporaries
that no other nest writes. They can run before all others: none of the others writes what they read, and each
temporary has its last value before another nest reads it. So one half after the other gives the bits of the
program, and while these inputs stay as they are, the first half need not run again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from hashlib import sha256

from perfdojo_sdk.core.dialect import CORE_DIALECT, Dialect
from perfdojo_sdk.core.program import Node, Program
from perfdojo_sdk.core.storage import Buffer
from perfdojo_sdk.core.text import parse


@dataclass(frozen=True)
class PackedHalves:
    """Both halves of a program."""

    pack: Program
    """Its outputs are :attr:`packed`."""
    rest: Program
    """It takes the program's inputs that it still reads, then :attr:`packed`."""
    packed: tuple[str, ...]
    """Temporaries of the program through which the halves meet."""

    @property
    def identity(self) -> str:
        """The same for two packs that do the same with their inputs."""
        pack = Program("pack", self.pack.inputs, self.pack.outputs, self.pack.buffers, self.pack.body)
        return sha256(pack.text.encode()).hexdigest()


def packed_halves(
    program: Program, constants: Collection[str], dialect: Dialect = CORE_DIALECT
) -> PackedHalves | None:
    """The halves of ``program`` for inputs that are ``constants``; None if nothing can be done ahead."""
    given = program.read_only.intersection(constants).difference(program.tables)
    first = _ahead(program, given, dialect)
    chosen = [node for k, node in enumerate(program.body) if k in first]
    others = [node for k, node in enumerate(program.body) if k not in first]
    later = _arrays(others)
    packed = tuple(
        b.name for b in program.buffers if b.name not in program.interface and _meets(b, chosen, later)
    )
    if not packed or not others or given.isdisjoint(_arrays(chosen)):
        return None
    # An input that is an output keeps the caller's values where nothing writes it.
    kept = [name for name in program.given if name in later or name in program.in_out]
    ours = [name for name in program.given if name in _arrays(chosen)]
    return PackedHalves(
        _part(program, f"{program.name}_pack", ours, packed, chosen, dialect),
        _part(program, f"{program.name}_packed", [*kept, *packed], program.outputs, others, dialect),
        packed,
    )


def _ahead(program: Program, given: frozenset[str], dialect: Dialect) -> frozenset[int]:
    """The positions of the nests of the pack: all but those that a rule forbids, which may forbid others."""
    known = given.union(program.tables)
    writers = {
        b.name: {k for k, node in enumerate(program.body) if not _written(node).isdisjoint(b.arrays)}
        for b in program.buffers
    }
    users = {
        b.name: {k for k, node in enumerate(program.body) if not node.arrays.isdisjoint(b.arrays)}
        for b in program.buffers
    }

    def settled(buffer: Buffer, chosen: frozenset[int]) -> bool:
        """True if only chosen nests write the buffer, and all of them before others read it."""
        mine, others = writers[buffer.name], users[buffer.name] - chosen
        if buffer.name in program.interface or not mine or not mine <= chosen:
            return False
        plain = all(d.materialised for d in buffer.dimensions) and buffer.arrays == (buffer.name,)
        fits = plain and buffer.location == dialect.default_location
        return not others or (fits and max(mine) < min(others))

    chosen = frozenset(range(len(program.body)))
    while True:
        mine = known.union(*(b.arrays for b in program.buffers if settled(b, chosen)))
        left = frozenset(k for k in chosen if program.body[k].arrays <= mine)
        if left == chosen:
            return chosen
        chosen = left


def _meets(buffer: Buffer, chosen: Iterable[Node], later: frozenset[str]) -> bool:
    return not later.isdisjoint(buffer.arrays) and not _arrays(chosen).isdisjoint(buffer.arrays)


def _written(node: Node) -> frozenset[str]:
    return frozenset(array for array, touches in node.touches.items() if any(t.writes for t in touches))


def _arrays(nodes: Iterable[Node]) -> frozenset[str]:
    return frozenset().union(*(node.arrays for node in nodes))


def _part(
    program: Program,
    name: str,
    inputs: Iterable[str],
    outputs: tuple[str, ...],
    nodes: Iterable[Node],
    dialect: Dialect,
) -> Program:
    """Some nests as a program of their own, which the parser checks like any other."""
    body = tuple(nodes)
    used = _arrays(body).union(inputs, outputs)
    buffers = tuple(b for b in program.buffers if not used.isdisjoint(b.arrays))
    tables = tuple(table for table in program.tables if table in used)
    return parse(Program(name, (*inputs, *tables), outputs, buffers, body).text, dialect)

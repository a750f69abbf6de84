"""The program as it will run: every scope that is written out is written out, every loop is one object.

In the text an iterator is a level. Here it is the loop itself, so that an address that was worked out in
one place means the same in another.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from perfdojo_sdk.core.dialect import Dialect
from perfdojo_sdk.core.expression import Access, Index
from perfdojo_sdk.core.program import Node, Program, Scope, Statement


@dataclass(eq=False)
class Loop:
    """A scope that iterates."""

    size: int
    suffix: str = ""
    body: list[Part] = field(default_factory=list)
    counted: bool = False
    """Whether the code needs the iterator's value, and not only addresses."""


@dataclass(eq=False)
class Work:
    """A statement under the loops around it."""

    statement: Statement
    iterators: tuple[Loop | int, ...]
    """For each level the loop, or the iterator's value where it is known."""

    def fold(self, form: Index) -> Index:
        """``form`` with the known iterators put in."""
        known = {level: value for level, value in enumerate(self.iterators) if isinstance(value, int)}
        return form.substitute(lambda level: Index(known[level]) if level in known else Index.level(level))

    def loop(self, level: int) -> Loop:
        found = self.iterators[level]
        assert isinstance(found, Loop)
        return found


Part: TypeAlias = Loop | Work


@dataclass(frozen=True)
class Address:
    """Where an access lies: bytes from the start of its buffer."""

    buffer: str
    constant: int
    terms: tuple[tuple[Loop, int], ...]
    """Loop -> bytes for each of its iterations, outermost first; none is 0."""


def unfold(program: Program, dialect: Dialect) -> list[Part]:
    """The tree of ``program`` with unrolled scopes and scopes of one iteration written out."""
    return list(_unfolded(program.body, (), dialect))


def _unfolded(nodes: Sequence[Node], iterators: tuple[Loop | int, ...], dialect: Dialect) -> Iterator[Part]:
    for node in nodes:
        if isinstance(node, Statement):
            yield Work(node, iterators)
        elif node.size == 1 or _written_out(node, dialect):
            for value in range(node.size):
                yield from _unfolded(node.body, (*iterators, value), dialect)
        else:
            loop = Loop(node.size, node.suffix)
            loop.body += _unfolded(node.body, (*iterators, loop), dialect)
            yield loop


def _written_out(scope: Scope, dialect: Dialect) -> bool:
    suffix = dialect.suffixes.get(scope.suffix)
    return suffix is not None and suffix.unrolled


def address(work: Work, access: Access, program: Program, sizes: Mapping[str, int]) -> Address | None:
    """Where ``access`` lies; None when that is no affine form of the loops. ``sizes``: dtype -> bytes."""
    buffer = program.buffer_of[access.array]
    form = work.fold(buffer.address(access.subscripts))
    if form.quotients:
        return None
    size = sizes[buffer.dtype]
    terms = tuple([(work.loop(level), size * c) for level, c in form.terms])
    return Address(buffer.name, size * form.constant, terms)


def works(parts: Sequence[Part]) -> Iterator[Work]:
    """Every statement, in order."""
    for part in parts:
        if isinstance(part, Work):
            yield part
        else:
            yield from works(part.body)

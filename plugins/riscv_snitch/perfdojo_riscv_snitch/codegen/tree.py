"""The program as it will run: unrolled scopes are unrolled, and every remaining loop is one object.

In the text an iterator is a level. Here it is the loop itself, so that an address that was worked out in
one place means the same in another.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, cast

from perfdojo_sdk.core.dialect import Dialect
from perfdojo_sdk.core.expression import Access, AffineExpr
from perfdojo_sdk.core.program import Node, Path, Program, Scope, Statement
from perfdojo_sdk.core.storage import Buffer


@dataclass(eq=False)
class Loop:
    """A scope that iterates."""

    size: int
    suffix: str = ""
    id: str = ""
    body: list[Part] = field(default_factory=list)
    counted: bool = False
    """True if the code needs the iterator's value, not only addresses."""


@dataclass(eq=False)
class Point:
    """A place under loops."""

    iterators: tuple[Loop | int, ...]
    """For each level the loop, or the iterator's value where it is known."""

    def fold(self, form: AffineExpr) -> AffineExpr:
        """``form`` with known iterators replaced by their values."""
        known = self.iterators
        if form.quotients:
            if all(level < len(known) and isinstance(known[level], int) for level in form.levels):
                return AffineExpr.affine(form.evaluate(cast(tuple[int, ...], known)), ())
            return form.substitute(lambda level: _folded(known, level))
        constant, left = self.affine(form)
        return form if len(left) == len(form.terms) else AffineExpr.affine(constant, tuple(left))

    def affine(self, form: AffineExpr) -> tuple[int, list[tuple[int, int]]]:
        """The constant and the terms of an affine form with known iterators replaced."""
        constant, left = form.constant, list[tuple[int, int]]()
        for level, coefficient in form.terms:
            value = self.iterators[level]
            if isinstance(value, int):
                constant += coefficient * value
            else:
                left.append((level, coefficient))
        return constant, left

    def loop(self, level: int) -> Loop:
        found = self.iterators[level]
        assert isinstance(found, Loop)
        return found


def _folded(iterators: Sequence[Loop | int], level: int) -> AffineExpr:
    value = iterators[level] if level < len(iterators) else None
    return AffineExpr.affine(value, ()) if isinstance(value, int) else AffineExpr.level(level)


@dataclass(eq=False)
class Work(Point):
    """A statement under the loops around it."""

    statement: Statement
    lane: int | None = None
    """Level of the lockstep scope whose lanes it stands for; that iterator is then the first lane's."""
    width: int = 1
    """Iterations of that scope."""

    def lanes(self) -> Iterator[Work]:
        """The statement for each lane alone."""
        level = self.lane
        assert level is not None
        for value in range(self.width):
            yield Work((*self.iterators[:level], value, *self.iterators[level + 1 :]), self.statement)


@dataclass(eq=False)
class Edge(Point):
    """The begin or the end of a scope, with its path in the text."""

    path: Path
    begins: bool


Part: TypeAlias = Loop | Work | Edge


@dataclass(frozen=True)
class Address:
    """The address of an access as an affine form: bytes from the start of its buffer."""

    buffer: str
    constant: int
    terms: tuple[tuple[Loop, int], ...]
    """Loop -> bytes for each of its iterations, outermost first; none is 0."""


def unfold(program: Program, dialect: Dialect, edges: Container[Path] = ()) -> list[Part]:
    """The tree of ``program`` with unrolled scopes and scopes of one iteration written out.

    Around the scopes at ``edges`` stands an :class:`Edge` on both sides.
    """
    found: list[Part] = []
    for position, node in enumerate(program.body):
        found += unfolded(node, (position,), (), dialect, edges)
    return found


def unfolded(
    node: Node,
    path: Path,
    iterators: tuple[Loop | int, ...],
    dialect: Dialect,
    edges: Container[Path],
) -> Iterator[Part]:
    """The same for the node at ``path``, under ``iterators``."""
    if isinstance(node, Statement):
        yield Work(iterators, node)
        return
    if path in edges:
        yield Edge(iterators, path, begins=True)
    (child, *_) = node.body
    if node.size > 1 and isinstance(child, Statement) and dialect.is_lockstep(node.suffix):
        yield Work((*iterators, 0), child, lane=len(iterators), width=node.size)
    elif node.size == 1 or written_out(node, dialect):
        for value in range(node.size):
            for position, each in enumerate(node.body):
                yield from unfolded(each, (*path, position), (*iterators, value), dialect, edges)
    else:
        loop = Loop(node.size, node.suffix, node.id)
        for position, each in enumerate(node.body):
            loop.body += unfolded(each, (*path, position), (*iterators, loop), dialect, edges)
        yield loop
    if path in edges:
        yield Edge(iterators, path, begins=False)


def written_out(scope: Scope, dialect: Dialect) -> bool:
    """True if the scope is unrolled."""
    suffix = dialect.suffixes.get(scope.suffix)
    return suffix is not None and suffix.unrolled


def address(point: Point, buffer: Buffer, cell: AffineExpr, size: int) -> Address | None:
    """The address of the cell with number ``cell``; None when it is not affine. ``size``: bytes of a cell."""
    form = point.fold(cell) if cell.quotients else cell
    if form.quotients:
        return None
    constant, left = point.affine(form)
    terms = tuple([(point.loop(level), size * c) for level, c in left])
    return Address(buffer.name, size * constant, terms)


class Cells:
    """The number of each access's cell in its buffer, as a form; code that is written out asks many times."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._known: dict[int, tuple[AffineExpr, Access]] = {}
        """Cache by Python's id of the access; the access is kept alive so that its id is not reused."""

    def __call__(self, access: Access) -> AffineExpr:
        known = self._known.get(id(access))
        if known is None:
            form = self.program.buffer_of[access.array].address(access.subscripts)
            known = self._known[id(access)] = form, access
        return known[0]


def points(parts: Sequence[Part]) -> Iterator[Work | Edge]:
    """Every statement and edge, in order."""
    for part in parts:
        if isinstance(part, Loop):
            yield from points(part.body)
        else:
            yield part


def works(parts: Sequence[Part]) -> Iterator[Work]:
    """Every statement, in order."""
    return (part for part in points(parts) if isinstance(part, Work))

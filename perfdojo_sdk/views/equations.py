"""The equations of a program: what its tree computes, independent of the form of its loops.

A perfect nest around one statement is one equation for all its iterators. Where the nest accumulates, the
iterators that the target does not name go to a big operator: a sum, product, maximum or minimum. An
initialisation and the accumulation that follows it are one equation. A scope with several statements stays a
loop over its equations, since they alternate. The result does not depend on a notation, and evaluating the
equations in order gives what the program computes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

from perfdojo_sdk.core.dialect import CORE_DIALECT, Dialect
from perfdojo_sdk.core.expression import (
    Access,
    AffineExpr,
    Expression,
    Literal,
    Read,
    Renumbering,
    renumbered,
)
from perfdojo_sdk.core.operations import identity
from perfdojo_sdk.core.program import Node, Program, Scope, Statement


class Loop(NamedTuple):
    """An iterator and the number of its values, which start at 0."""

    level: int
    size: int


@dataclass(frozen=True)
class Equation:
    """``target = start (operation) OPERATION over ``over`` of value``, for all values of ``loops``.

    Without an operation it is ``target = value``. ``start`` None is the operation's identity. Where a
    form of ``guard`` is negative the equation is left out, where one of ``terms`` is, that term.
    """

    target: Access
    value: Expression
    loops: tuple[Loop, ...]
    operation: str | None = None
    over: tuple[Loop, ...] = ()
    start: Expression | None = None
    defines: bool = True
    """True if the target's cells had no value before, so that ``=`` is the whole equation."""
    guard: tuple[AffineExpr, ...] = ()
    terms: tuple[AffineExpr, ...] = ()
    together: bool = False
    """True if all values of the last loop are computed before any is stored, and this makes a difference."""

    @property
    def updates(self) -> bool:
        """True if it updates the target's current value."""
        return isinstance(self.start, Read) and self.start.access == self.target


@dataclass(frozen=True)
class Repeat:
    """``body`` in order, for each value of ``loops`` in turn."""

    loops: tuple[Loop, ...]
    body: tuple[Item, ...]


Item: TypeAlias = Equation | Repeat


def equations(program: Program, dialect: Dialect = CORE_DIALECT) -> tuple[Item, ...]:
    """The program as equations and loops over equations, to be read in order.

    ``dialect`` is only used to find lockstep scopes.
    """
    return _Reader(program, dialect).read()


def shared_dimensions(program: Program) -> Iterator[tuple[str, int]]:
    """(array, dimension) pairs whose indices share one cell and are not one iteration's own.

    A dimension that is not materialised does not matter to a reader if every access names it by the same
    iterator. The others have to be mentioned.
    """
    for buffer in program.buffers:
        accesses = [o.access for o in program.occurrences[buffer.name]]
        for k, dimension in enumerate(buffer.dimensions):
            forms = {access.subscripts[k] for access in accesses}
            own = len(forms) == 1 and _bare(next(iter(forms))) is not None
            if not dimension.materialised and dimension.size > 1 and not own:
                yield from ((array, k) for array in buffer.arrays)


_Sizes: TypeAlias = tuple[int, ...]
"""Sizes of the scopes around a place, outermost first."""


class _Reader:
    """Reads a tree; ``program`` tells which arrays lie in one buffer."""

    def __init__(self, program: Program, dialect: Dialect) -> None:
        self.program, self.dialect = program, dialect

    def read(self) -> tuple[Item, ...]:
        return tuple(self._marked(self._items(self.program.body, ()), (), []))

    # -- the tree ------------------------------------------------------------------------------

    def _items(self, nodes: Sequence[Node], sizes: _Sizes) -> list[Item]:
        found: list[Item] = []
        for node in nodes:
            item = self._item(node, sizes)
            if isinstance(item, Equation) and item.updates:
                self._absorb_start(found, item)
            else:
                found.append(item)
        return found

    def _item(self, node: Node, sizes: _Sizes) -> Item:
        loops: list[Loop] = []
        lockstep = False
        while isinstance(node, Scope):
            loops.append(Loop(len(sizes), node.size))
            sizes = (*sizes, node.size)
            suffix = self.dialect.suffixes.get(node.suffix)
            lockstep = suffix is not None and suffix.order == "lockstep"
            if len(node.body) > 1:
                body = self._items(node.body, sizes)
                if len(body) == 1 and isinstance(body[0], Equation):
                    return replace(body[0], loops=(*loops, *body[0].loops))
                return Repeat(tuple(loops), tuple(body))
            node = node.body[0]
        return self._equation(node, tuple(loops), sizes, lockstep)

    def _equation(
        self, statement: Statement, loops: tuple[Loop, ...], sizes: _Sizes, lockstep: bool
    ) -> Equation:
        target, operation, guard = statement.target, statement.accumulate, statement.guard
        reads_itself = self._reads(statement.value, target)
        together = lockstep and reads_itself
        if operation is None:
            return Equation(target, statement.value, loops, guard=guard, together=together)
        old = Read(target, statement.dtype)
        free, over = self._partition(target, loops)
        if reads_itself or not self._distinct(target, free) or not self._inside(target, sizes):
            free, over = loops, ()
        summed = {loop.level for loop in over}
        terms = tuple(form for form in guard if form.levels & summed)
        guard = tuple(form for form in guard if not form.levels & summed)
        return Equation(target, statement.value, free, operation, over, old, True, guard, terms, together)

    def _inside(self, target: Access, sizes: _Sizes) -> bool:
        """True if the target is in bounds in all iterations, including those that a condition excludes."""
        shape = self.program.buffer_of[target.array].shape
        ranges = (form.bounds(sizes) for form in target.subscripts)
        return all(low >= 0 and high < size for (low, high), size in zip(ranges, shape))

    @staticmethod
    def _partition(target: Access, loops: tuple[Loop, ...]) -> tuple[tuple[Loop, ...], tuple[Loop, ...]]:
        """The loops that the target names, and the others."""
        named = set(target.levels)
        return tuple(l for l in loops if l.level in named), tuple(l for l in loops if l.level not in named)

    # -- an initialisation and its accumulation ------------------------------------------------

    def _absorb_start(self, before: list[Item], equation: Equation) -> None:
        """Append ``equation``; where the items before it end with its initialisation, as one with it."""
        for k in range(len(before) - 1, -1, -1):
            item = before[k]
            if equation.target.array in self._touched(item):
                merged = self._merged(item, equation, before[k + 1 :])
                if merged is not None:
                    before[k:] = [*before[k + 1 :], merged]
                    return
                break
        before.append(equation)

    def _merged(self, first: Item, equation: Equation, between: list[Item]) -> Equation | None:
        """``first``, a plain equation that starts exactly the cells of ``equation``, put into it."""
        if not isinstance(first, Equation) or first.operation or self._reads(first.value, first.target):
            return None
        if first.guard or equation.guard:
            return None
        if self._reads(equation.value, equation.target):
            return None
        renumbering = _correspondence(first, equation)
        if renumbering is None or not self._distinct(equation.target, equation.loops):
            return None
        value, operation = first.value, equation.operation
        neutral = isinstance(value, Literal) and value.value == identity(operation or "", value.dtype)
        reads = {array for read in first.value.reads for array in self._aliases(read.array)}
        if any(reads & self._written(item) for item in between):
            return None
        start = None if neutral else renumbered(first.value, renumbering)
        return replace(equation, start=start)

    def _distinct(self, target: Access, loops: tuple[Loop, ...]) -> bool:
        """True if different values of the iterators of ``loops`` reach different cells."""
        buffer = self.program.buffer_of[target.array]
        told: set[int] = set()
        sizes = dict(loops)
        for k in buffer.materialised:
            form = target.subscripts[k]
            own = [(abs(c), l) for l, c in form.terms if l in sizes]
            if not form.quotients and _mixed_radix(own, sizes):
                told |= {level for _, level in own}
        return told >= set(sizes)

    # -- what touches what -----------------------------------------------------------------------

    def _aliases(self, array: str) -> tuple[str, ...]:
        return self.program.buffer_of[array].arrays

    def _reads(self, value: Expression, target: Access) -> bool:
        return any(read.array in self._aliases(target.array) for read in value.reads)

    def _touched(self, item: Item) -> set[str]:
        """Arrays that an item reads or writes, with all that lie in the same buffers."""
        if isinstance(item, Repeat):
            return set().union(*map(self._touched, item.body))
        accesses = [item.target, *item.value.reads, *(item.start.reads if item.start else ())]
        return {a for access in accesses for a in self._aliases(access.array)}

    def _written(self, item: Item) -> set[str]:
        """Arrays that an item writes, with all that lie in the same buffers."""
        if isinstance(item, Repeat):
            return set().union(*map(self._written, item.body))
        return set(self._aliases(item.target.array))

    # -- definitions and updates -----------------------------------------------------------------

    def _marked(
        self, items: Sequence[Item], around: tuple[Loop, ...], written: list[tuple[str, _Box]]
    ) -> Iterator[Item]:
        """The items, in which equations that may overwrite an earlier value are no definitions."""
        for item in items:
            if isinstance(item, Repeat):
                body = tuple(self._marked(item.body, (*around, *item.loops), written))
                yield replace(item, body=body)
            else:
                buffer = self.program.buffer_of[item.target.array]
                box = self._box(item.target, (*around, *item.loops, *item.over))
                values = (item.value, item.start) if item.start else (item.value,)
                reads = any(self._reads(value, item.target) for value in values)
                again = any(name == buffer.name and _meet(box, other) for name, other in written)
                written.append((buffer.name, box))
                yield replace(item, defines=not (reads or again))

    def _box(self, target: Access, loops: tuple[Loop, ...]) -> _Box:
        sizes = tuple(loop.size for loop in sorted(loops))
        materialised = self.program.buffer_of[target.array].materialised
        return tuple(target.subscripts[k].bounds(sizes) for k in materialised)


_Box: TypeAlias = tuple[tuple[int, int], ...]


def _meet(a: _Box, b: _Box) -> bool:
    return all(low <= other_high and other_low <= high for (low, high), (other_low, other_high) in zip(a, b))


def _bare(index: AffineExpr) -> int | None:
    """The level when the form is one iterator and nothing else."""
    return index.terms[0][0] if index.terms and index == AffineExpr.level(index.terms[0][0]) else None


def _mixed_radix(terms: list[tuple[int, int]], sizes: dict[int, int]) -> bool:
    """True if the (coefficient, level) terms are injective over all combinations of iterators."""
    reach = 0
    for coefficient, level in sorted(terms):
        if coefficient <= reach:
            return False
        reach += coefficient * (sizes[level] - 1)
    return True


def _correspondence(first: Equation, second: Equation) -> Renumbering | None:
    """Levels of ``first`` as levels of ``second``, when that makes their targets and loops the same."""
    if first.target.array != second.target.array:
        return None
    to: dict[int, int] = {}
    for a, b in zip(first.target.subscripts, second.target.subscripts):
        for (level, _), (other, _) in zip(_by_coefficient(a), _by_coefficient(b)):
            if to.setdefault(level, other) != other:
                return None
    own = {to.get(loop.level, -1): loop.size for loop in first.loops}
    if own != dict(second.loops) or len(own) != len(first.loops):
        return None
    depth = max([*to, *(loop.level for loop in first.loops)], default=-1) + 1
    renumbering = Renumbering([AffineExpr.level(to.get(level, level)) for level in range(depth + 1)])
    same = first.target.renumbered(renumbering) == second.target
    return renumbering if same and _keeps_outer(first, to) else None


def _by_coefficient(index: AffineExpr) -> list[tuple[int, int]]:
    return sorted(index.terms, key=lambda term: (term[1], term[0]))


def _keeps_outer(equation: Equation, to: dict[int, int]) -> bool:
    """True if iterators of the loops around both equations are the same in both."""
    own = {loop.level for loop in equation.loops}
    return all(other == level for level, other in to.items() if level not in own)

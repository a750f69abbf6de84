"""The instance that wrote the value that a read sees, and writes that may change it later.

Both questions are asked of two statements, the first of which stands before the second. What
orders them are the scopes that both stand in: within one iteration of these, everything inside
the child that holds the first is done before the child that holds the second begins, and only
these two and the children between them run in the meantime.

Every answer is cautious: what cannot be worked out from the subscripts is None, or a change.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from perfdojo_sdk.core.dependence import may_meet
from perfdojo_sdk.core.expression import Access, AffineExpr, Literal, Read
from perfdojo_sdk.core.geometry import common_depth, guarded_bounds
from perfdojo_sdk.core.operations import identity
from perfdojo_sdk.core.program import Occurrence, Path, Program, Statement
from perfdojo_sdk.core.storage import Buffer


class Spot(NamedTuple):
    """A statement and its surroundings."""

    statement: Statement
    path: Path
    sizes: tuple[int, ...]
    """Sizes of all scopes around the statement, outermost first."""

    @property
    def depth(self) -> int:
        return len(self.sizes)


def spot(program: Program, identifier: str) -> Spot:
    """The statement with this id."""
    statement, path, _, sizes = program.place_of[identifier]
    assert isinstance(statement, Statement)
    return Spot(statement, path, sizes)


def spots(program: Program) -> list[Spot]:
    """Every statement, in program order."""
    return [spot(program, n.id) for _, n in program.walk() if isinstance(n, Statement)]


def shared(first: Spot, second: Spot) -> int:
    """Number of scopes that both stand in."""
    return common_depth([first.path, second.path])


def matching_instance(
    written: Sequence[AffineExpr],
    first: Spot,
    read: Sequence[AffineExpr],
    second: Spot,
    guard: tuple[AffineExpr, ...] = (),
) -> tuple[AffineExpr, ...] | None:
    """The instance of ``first`` whose subscripts ``written`` equal ``read`` of ``second``.

    One form of the second's levels for each level of the first; the scopes that both stand in have
    the same iteration. None when the subscripts do not determine it, or when it may lie outside
    the scopes of ``first`` in iterations that satisfy ``guard``. The condition of ``first`` is not asked.
    """
    affine = _affine(written, read)
    if affine is None:
        return None
    common = shared(first, second)
    known = {level: AffineExpr.level(level) for level in range(common)}
    while affine:
        # The subscript with the fewest unknowns decides most.
        pair = min(affine, key=lambda pair: sum(level not in known for level, _ in pair[0].terms))
        affine.remove(pair)
        known |= _solve(*pair, known)
    if len(known) < first.depth:
        return None
    found = tuple([known[level] for level in range(first.depth)])
    if any(w.substitute(found.__getitem__) != r for w, r in zip(written, read, strict=True)):
        return None
    for form, size in zip(found[common:], first.sizes[common:], strict=True):
        low, high = guarded_bounds(form, guard, second.sizes)
        if low < 0 or high >= size:
            return None
    return found


def _affine(
    written: Sequence[AffineExpr], read: Sequence[AffineExpr]
) -> list[tuple[AffineExpr, AffineExpr]] | None:
    """Pairs of affine forms that are equal when all subscripts are; None where they are not evident.

    Two subscripts that make the digits of one number, ``a + d // n`` and ``d % n``, stand for ``a*n + d``.
    """
    pairs, k = [], 0
    while k < len(written):
        if not written[k].quotients and not read[k].quotients:
            pairs.append((written[k], read[k]))
            k += 1
            continue
        first, second = _number(written[k : k + 2]), _number(read[k : k + 2])
        if not first or not second or first[1] != second[1]:
            return None
        pairs.append((first[0], second[0]))
        k += 2
    return pairs


def _number(digits: Sequence[AffineExpr]) -> tuple[AffineExpr, int] | None:
    """The affine form, and the divisor, of which two subscripts are quotient and remainder."""
    if len(digits) < 2 or len(digits[0].quotients) != 1 or not digits[0].divisions:
        return None
    ((quotient, times),) = digits[0].divisions
    rest = AffineExpr.of({}, 0, ((replace(quotient, remainder=True), 1),))
    if times != 1 or quotient.remainder or quotient.dividend.quotients or digits[1] != rest:
        return None
    whole = AffineExpr.affine(digits[0].constant, digits[0].terms)
    return quotient.dividend.plus(whole, quotient.divisor), quotient.divisor


def _solve(written: AffineExpr, read: AffineExpr, known: dict[int, AffineExpr]) -> dict[int, AffineExpr]:
    """Forms for the unknown levels of one subscript: a number in a mixed radix, digit by digit.

    This is only a proposal: the caller has to substitute the forms and compare.
    """
    unknown = sorted(
        [(c, level) for level, c in written.terms if level not in known], key=lambda t: -abs(t[0])
    )
    rest, constant = dict(read.coefficients), read.constant - written.constant
    for level, coefficient in written.terms:
        if level in known:
            constant -= coefficient * known[level].constant
            for inner, c in known[level].terms:
                rest[inner] = rest.get(inner, 0) - coefficient * c
    found = {}
    for weight, level in unknown:
        digit = {inner: c // weight for inner, c in rest.items() if c % weight == 0}
        rest = {inner: c for inner, c in rest.items() if c % weight}
        quotient = constant // weight
        constant -= quotient * weight
        found[level] = AffineExpr.of(digit, quotient)
    return found


def one_instance_each(buffer: Buffer, access: Access, at: Spot, levels: Iterable[int]) -> bool:
    """True if instances of ``at`` that differ in one of ``levels`` touch different cells.

    ``levels`` ascend and go on to the innermost one, less those that no subscript uses.
    """
    for level in levels:
        directions = "=" * level + "<"
        if may_meet(buffer, access, at.sizes, access, at.sizes, directions):
            return False
    return True


def change_between(
    program: Program, access: Access, first: Spot, later: Access, second: Spot
) -> Occurrence | None:
    """A write that may change a cell after ``first`` reads it and before ``second`` does.

    ``access`` is the cell in the levels of ``first``, ``later`` the same cell in those of ``second``;
    their shared scopes have the same iteration.
    """
    for write in program.occurrences[program.buffer_of[access.array].name]:
        if write.writes and _changes(program, write, access, first, later, second):
            return write
    return None


def _changes(
    program: Program, write: Occurrence, access: Access, first: Spot, later: Access, second: Spot
) -> bool:
    """True if this write may come between the two, and change the cell."""
    buffer, common = program.buffer_of[access.array], shared(first, second)
    start, end = first.path[common], second.path[common]
    if write.path[:common] != first.path[:common]:
        return False
    at = write.path[common]
    if at == start:
        return _may_follow(buffer, write, access, first, common)
    if at == end:
        return _may_precede(buffer, write, later, second, common)
    return start < at < end and may_meet(buffer, write.access, write.sizes, later, second.sizes, "=" * common)


def another_write(
    program: Program, access: Access, first: Spot, later: Access | None, second: Spot
) -> Occurrence | None:
    """A write of another statement than ``first``, which writes ``access``, that may change what ``second``
    reads as ``later`` after ``first`` wrote it; any other write where ``later`` is not known to be such an
    element (None), and any by the name of another array of the buffer, by which ``second`` may read, too."""
    for write in program.occurrences[program.buffer_of[access.array].name]:
        if not write.writes or write.statement.id == first.statement.id:
            continue
        if later is None or write.access.array != access.array:
            return write
        if _changes(program, write, access, first, later, second):
            return write
    return None


def _may_follow(buffer: Buffer, write: Occurrence, access: Access, first: Spot, common: int) -> bool:
    """True if the write may touch the cell after this instance of ``first`` has read it."""
    both = common_depth([write.path, first.path])
    orders = ["=" * level + ">" for level in range(common, both)]
    if write.path >= first.path:
        orders.append("=" * both)
    return any(may_meet(buffer, write.access, write.sizes, access, first.sizes, o) for o in orders)


def _may_precede(buffer: Buffer, write: Occurrence, access: Access, second: Spot, common: int) -> bool:
    """True if the write may touch the cell before this instance of ``second`` reads it."""
    both = common_depth([write.path, second.path])
    orders = ["=" * level + "<" for level in range(common, both)]
    if write.path < second.path:
        orders.append("=" * both)
    return any(may_meet(buffer, write.access, write.sizes, access, second.sizes, o) for o in orders)


class Reduction(NamedTuple):
    """An array that ``start`` sets and into which ``step`` then combines elements of another array."""

    start: Spot
    step: Spot
    reader: Spot
    """The reader of the result."""

    @property
    def common(self) -> int:
        """Number of scopes that the reader shares with the step."""
        return shared(self.step, self.reader)

    @property
    def kept(self) -> tuple[int, ...]:
        """Levels below the shared scopes that say which cell."""
        return tuple([l for l in self.step.statement.target.levels if l >= self.common])

    @property
    def reduced(self) -> tuple[int, ...]:
        """Levels below the shared scopes over which one cell is combined."""
        used = self.step.statement.target.levels
        return tuple([l for l in range(self.common, self.step.depth) if l not in used])


def reduction(program: Program, array: str, operation: str, element: str, reader: Spot) -> Reduction | None:
    """The last reduction of ``element`` into ``array`` before ``reader``, by its shape alone."""
    buffer = program.buffer_of.get(array)
    writes = [o for o in program.occurrences[buffer.name] if o.writes] if buffer else []
    steps = [
        o
        for o in writes
        if o.statement.accumulate == operation
        and isinstance(o.statement.value, Read)
        and o.statement.value.access.array == element
        and o.path < reader.path
    ]
    starts = [o for o in writes if not o.statement.accumulate and steps and o.path < steps[-1].path]
    if not starts or array in program.in_out:
        return None
    start, step = starts[-1], steps[-1]
    return Reduction(
        Spot(start.statement, start.path, start.sizes), Spot(step.statement, step.path, step.sizes), reader
    )


def disturbance(
    program: Program, found: Reduction, operation: str, starts_from: float | None = None
) -> Occurrence | None:
    """A write because of which a cell may hold something else than the reduction, seen by its reader.

    ``starts_from``: what the reduction starts from, by default the operation's identity.
    """
    start, step, common = found.start, found.step, found.common
    target = step.statement.target
    buffer = program.buffer_of[target.array]
    writes = [o for o in program.occurrences[buffer.name] if o.writes]
    for o in writes:
        if o.statement.id not in (start.statement.id, step.statement.id):
            return o
    first, last = writes
    value, zeroed = start.statement.value, start.statement.target
    both = shared(start, step)
    zero = matching_instance(zeroed.subscripts, start, target.subscripts, step)
    if start.statement.guard or step.statement.guard or both < common or zero is None:
        return first
    if not isinstance(value, Literal):
        return first
    if value.value != (identity(operation, value.dtype) if starts_from is None else starts_from):
        return first
    for level in range(common, both):
        for sign in "<>":
            if may_meet(buffer, zeroed, start.sizes, target, step.sizes, "=" * level + sign):
                return first
    return None if one_instance_each(buffer, target, step, found.kept) else last

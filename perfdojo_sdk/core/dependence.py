"""The one dependence analysis that every applicability check calls.

Two accesses conflict when they may touch one *cell*: a buffer together with the subscripts of the
dimensions that exist in memory. Every question has the same form: may they, when the iterations
of the scopes that they share stand in a given relation? The answer is exact when it says no and
cautious when it says yes, so whatever cannot be proved is refused.

The test looks at one dimension at a time. With the relation put in, the difference of the two
subscripts is an affine form over a box, so its range and the greatest common divisor of its
coefficients are quickly known; a conflict needs zero in range and divisible (Banerjee's and the
GCD test, with directions). If that is possible, a third test follows: the terms with the smallest
coefficients alone must be able to add up to a multiple of the common divisor of all others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import gcd
from typing import NamedTuple

from perfdojo_sdk.core.dialect import Dialect
from perfdojo_sdk.core.expression import Access, AffineExpr, Quotient
from perfdojo_sdk.core.geometry import common_depth
from perfdojo_sdk.core.program import Node, Occurrence, Program, Scope, Touch
from perfdojo_sdk.core.storage import Buffer

Directions = str
"""One sign for each shared level, outermost first: the first access's iteration is ``=``, ``<`` or
``>`` the second's, or ``*`` (unrelated)."""


class Conflict(NamedTuple):
    """Two accesses that may touch one cell in the wrong order, at least one of them writing."""

    first: Touch
    second: Touch
    reduction: bool
    """Both are the same accumulation, so only the order of a reduction's terms is at stake."""


def may_meet(
    buffer: Buffer,
    first: Access,
    first_sizes: Sequence[int],
    second: Access,
    second_sizes: Sequence[int],
    directions: Directions,
) -> bool:
    """True if the two accesses may touch one cell when their shared levels stand as ``directions`` says.

    ``first_sizes`` and ``second_sizes`` are the sizes of all scopes around each, from the root.
    """
    for level, sign in enumerate(directions):
        if sign in "<>" and first_sizes[level] < 2:
            return False
    for k in buffer.materialised:
        if not _may_be_equal(
            first.subscripts[k], first_sizes, second.subscripts[k], second_sizes, directions
        ):
            return False
    return all(
        _may_be_equal(one, first_sizes, other, second_sizes, directions)
        for one, other in _also_equal(buffer, first, second)
    )


def _also_equal(buffer: Buffer, first: Access, second: Access) -> Iterator[tuple[AffineExpr, AffineExpr]]:
    """Further pairs that are equal when all subscripts are: addresses, and dividends, since ``a//n == b//n``
    and ``a%n == b%n`` mean a == b."""
    if not any(first.subscripts[k].quotients for k in buffer.materialised):
        return
    yield buffer.address(first.subscripts), buffer.address(second.subscripts)
    split: set[tuple[int, bool, AffineExpr, AffineExpr]] = set()
    equal = [(first.subscripts[k], second.subscripts[k]) for k in buffer.materialised]
    while equal:
        for one, other in equal:
            a, b = _lone_quotient(one), _lone_quotient(other)
            if a and b and (a.divisor, a.remainder) == (b.divisor, b.remainder):
                split.add((a.divisor, a.remainder, a.dividend, b.dividend))
        # A dividend may itself be the remainder of another one.
        whole = {part for part in split if part[1] and (part[0], False, *part[2:]) in split}
        split -= whole
        equal = [(part[2], part[3]) for part in sorted(whole, key=lambda part: part[0])]
        yield from equal


def _lone_quotient(form: AffineExpr) -> Quotient | None:
    if form.terms or form.constant or len(form.quotients) != 1:
        return None
    ((part, factor),) = form.quotients
    return part if factor == 1 and isinstance(part, Quotient) else None


def _may_be_equal(
    first: AffineExpr,
    first_sizes: Sequence[int],
    second: AffineExpr,
    second_sizes: Sequence[int],
    directions: Directions,
) -> bool:
    shared = len(directions)
    offset = first.constant - second.constant
    low = high = offset
    step = 0
    if first.quotients or second.quotients:
        least, most, step = _quotient_range(first, first_sizes, second, second_sizes, directions)
        low, high = low + least, high + most
    theirs = second.coefficients
    for level, a in first.terms:
        if level < shared and level in theirs:
            b = theirs[level]
            sign = directions[level]
            if a == b and sign == "=":
                continue  # The same on both sides, as nearly always.
            top = first_sizes[level] - 1
            if sign == "=":
                reach, step = (a - b) * top, gcd(step, a - b)
                low, high = (low + reach, high) if reach < 0 else (low, high + reach)
            else:
                least, most = _range(a, b, sign, top)
                low, high, step = low + least, high + most, gcd(step, a, b)
        elif level < shared and directions[level] in "<>":
            least, most = _range(a, 0, directions[level], first_sizes[level] - 1)
            low, high, step = low + least, high + most, gcd(step, a)
        else:
            reach, step = a * (first_sizes[level] - 1), gcd(step, a)
            low, high = (low + reach, high) if reach < 0 else (low, high + reach)
    mine = first.coefficients
    for level, b in second.terms:
        if level < shared:
            if level in mine:
                continue
            if directions[level] in "<>":
                least, most = _range(0, b, directions[level], second_sizes[level] - 1)
                low, high, step = low + least, high + most, gcd(step, b)
                continue
        reach, step = -b * (second_sizes[level] - 1), gcd(step, b)
        low, high = (low + reach, high) if reach < 0 else (low, high + reach)
    if low > 0 or high < 0 or (offset % step if step else offset):
        return False
    if len(first.terms) < 2 and len(second.terms) < 2 or first.quotients or second.quotients:
        return True
    return _digits_may_agree(offset, _parts(first, first_sizes, second, second_sizes, directions))


def _parts(
    first: AffineExpr,
    first_sizes: Sequence[int],
    second: AffineExpr,
    second_sizes: Sequence[int],
    directions: Directions,
) -> Iterator[tuple[int, int, int]]:
    """The part of each iterator in the difference, as (divisor, least, most)."""
    shared, ours, theirs = len(directions), first.coefficients, second.coefficients
    for level in ours.keys() | theirs.keys():
        a, b = ours.get(level, 0), theirs.get(level, 0)
        if level >= shared:
            for c, sizes in ((a, first_sizes), (-b, second_sizes)):
                reach = c * (sizes[level] - 1) if c else 0
                yield abs(c), min(reach, 0), max(reach, 0)
        elif directions[level] == "=":
            reach = (a - b) * (first_sizes[level] - 1)
            yield abs(a - b), min(reach, 0), max(reach, 0)
        else:
            yield gcd(a, b), *_range(a, b, directions[level], first_sizes[level] - 1)


def _digits_may_agree(offset: int, parts: Iterable[tuple[int, int, int]]) -> bool:
    """True if the sum of the parts and ``offset`` may be zero: those with the smallest divisors must be able
    to add up to a multiple of the common divisor of the rest."""
    ordered = sorted(part for part in parts if part[0])
    low, high = offset, offset
    heavier = [0] * len(ordered)
    for k in range(len(ordered) - 2, -1, -1):
        heavier[k] = gcd(heavier[k + 1], ordered[k + 1][0])
    for (_, least, most), weight in zip(ordered, heavier, strict=True):
        low, high = low + least, high + most
        if weight and high // weight * weight < low:
            return False
    return True


def _quotient_range(
    first: AffineExpr,
    first_sizes: Sequence[int],
    second: AffineExpr,
    second_sizes: Sequence[int],
    directions: Directions,
) -> tuple[int, int, int]:
    """Range and common divisor of the difference of the quotients and lookups.

    They count as independent numbers, each in its range. Only if both sides have the same one
    of iterators that are equal on both sides does it cancel.
    """
    fixed = {level for level, sign in enumerate(directions) if sign == "="}
    ours, theirs = dict(first.quotients), dict(second.quotients)
    for quotient in list(ours):
        if quotient in theirs and quotient.levels <= fixed:
            ours[quotient] -= theirs.pop(quotient)
    low = high = step = 0
    parts = [(q, c, first_sizes) for q, c in ours.items()]
    parts += [(q, -c, second_sizes) for q, c in theirs.items()]
    for quotient, coefficient, sizes in parts:
        ends = [coefficient * end for end in quotient.bounds(sizes)]
        low, high, step = low + min(ends), high + max(ends), gcd(step, coefficient)
    return low, high, step


def _range(a: int, b: int, sign: str, top: int) -> tuple[int, int]:
    """Range of ``a*i - b*j`` over ``0 <= i, j <= top`` with ``i sign j``: met at a corner."""
    if sign == "*":
        return min(0, a * top) - max(0, b * top), max(0, a * top) - min(0, b * top)
    if sign == "<":
        corners = (-b, -b * top, a * (top - 1) - b * top)
    else:
        corners = (a, a * top, a * top - b * (top - 1))
    return min(corners), max(corners)


def conflicts(
    program: Program,
    first: Iterable[Node],
    second: Iterable[Node],
    outer: tuple[int, ...],
    directions: Directions,
    skip: frozenset[str] = frozenset(),
) -> Iterator[Conflict]:
    """Conflicts between the nodes ``first`` and ``second`` under one relation of iterations.

    All nodes stand directly inside the scopes of sizes ``outer``. The shared levels are those of
    ``directions``; it may reach below ``outer`` when both sides are the same single scope.
    Buffers named in ``skip`` are left out.
    """
    second = tuple(second)
    buffer_of = program.buffer_of
    for one in first:
        for array, touches in one.touches.items():
            buffer = buffer_of[array]
            if buffer.name in skip:
                continue
            for other in second:
                for alias in buffer.arrays:
                    if alias in other.touches:
                        yield from _pairs(buffer, touches, other.touches[alias], outer, directions)


def _pairs(
    buffer: Buffer,
    first: tuple[Touch, ...],
    second: tuple[Touch, ...],
    outer: tuple[int, ...],
    directions: Directions,
) -> Iterator[Conflict]:
    for a in first:
        for b in second:
            if (a.writes or b.writes) and may_meet(
                buffer, a.access, outer + a.sizes, b.access, outer + b.sizes, directions
            ):
                yield Conflict(a, b, is_reduction(a, b))


def is_reduction(a: Touch, b: Touch) -> bool:
    """Both touches are the targets of one kind of accumulation: they commute.

    Not if a run-time index says which cell: leg 3 could not follow each cell's terms in another order.
    """
    operation = a.statement.accumulate
    if operation is None or a.statement.chooses or b.statement.chooses:
        return False
    return a.writes and b.writes and operation == b.statement.accumulate


def may_run_before(
    buffer: Buffer, first: Occurrence, second: Occurrence, start: int, dialect: Dialect
) -> bool:
    """True if ``first`` may touch a cell before ``second`` touches the same one.

    Both as if their arrays were in ``buffer``, in equal iterations of the levels before ``start``.
    """

    def meet(directions: Directions) -> bool:
        return may_meet(buffer, first.access, first.sizes, second.access, second.sizes, directions)

    shared = common_depth([first.path, second.path])
    orders = [dialect.order(s.suffix) for s in first.above[:shared]]
    if first.path == second.path and first.writes and not second.writes:
        # A statement reads before it writes, in all lanes, so only another iteration can write before.
        before = False
    elif first.path == second.path and orders[-1:] == ["lockstep"]:
        before = meet("=" * (shared - 1) + "*")
    else:
        before = first.path <= second.path and meet("=" * shared)
    return before or any(
        meet("=" * level + sign)
        for level in range(start, shared)
        if orders[level] != "lockstep"
        for sign in ("<>" if orders[level] == "parallel" else "<")
    )


# -- privacy ---------------------------------------------------------------------------------------


def private_buffers(program: Program, scope: Scope) -> frozenset[str]:
    """Buffers used inside ``scope`` and nowhere else: a parallel scope gives each iteration its own."""
    inside: dict[str, int] = {}
    for array, touches in scope.touches.items():
        name = program.buffer_of[array].name
        inside[name] = inside.get(name, 0) + len(touches)
    interface = program.interface
    return frozenset(
        [
            name
            for name, count in inside.items()
            if name not in interface and count == len(program.occurrences[name])
        ]
    )


def home_depth(occurrences: Sequence[Occurrence], dialect: Dialect) -> int:
    """Number of scopes around the place where a buffer lives (lockstep scopes hold no storage)."""
    depth = common_depth([o.path for o in occurrences])
    scopes = occurrences[0].above
    while depth and dialect.is_lockstep(scopes[depth - 1].suffix):
        depth -= 1
    return depth


def leaking_level(
    buffer: Buffer, occurrences: Sequence[Occurrence], depth: int, start: int = 0
) -> int | None:
    """The outermost level through which a value may pass from one iteration to another, or None.

    All accesses stand inside the same ``depth`` scopes; across the levels before ``start``, nothing
    passes for another reason. At each of these levels either no cell is touched by two different
    iterations, or cells and guards do not depend on the level at all. When that holds
    everywhere, all iterations that touch a cell do exactly the same with it; the first of them
    can only read what it wrote itself, since a program never reads an unwritten cell; so each
    iteration reads only what it wrote itself.
    """
    kept = "=" * start
    for level in range(start, depth):
        if not any(_depends_on(o, buffer, level) for o in occurrences):
            kept += "*"
            continue
        for sign in "<>":
            directions = kept + sign + "*" * (depth - level - 1)
            for a in occurrences:
                for b in occurrences:
                    if (a.writes or b.writes) and may_meet(
                        buffer, a.access, a.sizes, b.access, b.sizes, directions
                    ):
                        return level
        kept += "="
    return None


def _depends_on(o: Occurrence, buffer: Buffer, level: int) -> bool:
    """True if the cell, or that it is touched at all, depends on the level's iterator."""
    forms = [*(o.access.subscripts[k] for k in buffer.materialised), *o.statement.guard]
    return any(level in form.levels for form in forms)

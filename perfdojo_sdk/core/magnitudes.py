"""Proofs that the values of an array are far enough from zero for their reciprocals not to overflow.

There are two kinds. One finds bounds that hold for all inputs: a square is not negative, nor is a sum of
squares, and with an epsilon added it is not less than that. The other uses that a sum of exp(x - m) over
all x of which m is the maximum has the term exp(0), also with a positive factor in the exponents. NaN lies
within any bounds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import assert_never

from perfdojo_sdk.core.dtypes import FLOAT_DTYPES, largest, smallest_normal
from perfdojo_sdk.core.expression import (
    Access,
    AffineExpr,
    Cast,
    Expression,
    IndexValue,
    Literal,
    Operation,
    Read,
    exponent_difference,
    performs,
)
from perfdojo_sdk.core.operations import ANY, OPERATIONS, Interval
from perfdojo_sdk.core.program import Program, Statement
from perfdojo_sdk.core.reaching import (
    Reduction,
    Spot,
    change_between,
    disturbance,
    matching_instance,
    one_instance_each,
    reduction,
    shared,
    spot,
)


def invertible(program: Program, reader: Statement, divisor: Access) -> bool:
    """True if 1/x is finite for every x other than 0 and NaN that ``reader`` reads as ``divisor``.

    Zero does no harm: a/0 and a*(1/0) are the same infinity, or NaN, for every a.
    """
    tiny = smallest_normal(program.buffer_of[divisor.array].dtype)
    low, high = _Bounds(program).array(divisor.array)
    return low >= 2 * tiny or high <= -2 * tiny or _sums_to_one(program, spot(program, reader.id), divisor)


# -- bounds whatever the order of the statements ---------------------------------------------------


@dataclass
class _Bounds:
    """Bounds of arrays, from everything that is written into them; each array is looked at once."""

    program: Program
    known: dict[str, Interval] = field(default_factory=dict)

    def array(self, name: str) -> Interval:
        buffer = self.program.buffer_of[name]
        if buffer.dtype not in FLOAT_DTYPES or any(a in self.program.inputs for a in buffer.arrays):
            return ANY
        if buffer.name not in self.known:
            self.known[buffer.name] = ANY  # what depends on itself has no bounds
            self.known[buffer.name] = self._written(buffer.name)
        return self.known[buffer.name]

    def _written(self, buffer: str) -> Interval:
        writes = [o.statement for o in self.program.occurrences[buffer] if o.writes]
        starts = [self.value(s.value) for s in writes if not s.accumulate]
        low, high = min((a for a, _ in starts), default=-inf), max((b for _, b in starts), default=inf)
        for statement in writes:
            least, most = self.value(statement.value) if statement.accumulate else ANY
            if statement.accumulate == "add":
                low, high = (low if least >= 0 else -inf), (high if most <= 0 else inf)
            elif statement.accumulate == "max":
                high = max(high, most)
            elif statement.accumulate == "min":
                low = min(low, least)
            elif statement.accumulate:
                return ANY
        return low, high

    def value(self, value: Expression) -> Interval:
        """Bounds of a value of a float dtype; what may vanish by rounding counts as zero."""
        match value:
            case Literal():
                return float(value.value), float(value.value)
            case Read():
                return self.array(value.access.array)
            case Operation():
                return self._operation(value) if value.dtype in FLOAT_DTYPES else ANY
            case IndexValue() | Cast():
                return ANY
            case _:
                assert_never(value)

    def _operation(self, value: Operation) -> Interval:
        if value.name == "mul" and value.arguments[0] == value.arguments[1]:
            return 0.0, inf
        meaning = OPERATIONS[value.name]
        if meaning.interval is None:
            return ANY
        low, high = meaning.interval(*map(self.value, meaning.operands(value.arguments)))
        tiny = smallest_normal(value.dtype)
        return (0.0 if 0 < low < 2 * tiny else low), (0.0 if -2 * tiny < high < 0 else high)


# -- sums of exponentials --------------------------------------------------------------------------


def _sums_to_one(program: Program, reader: Spot, divisor: Access) -> bool:
    """True if the divisor is a sum of exp(x - m) over all x of which m is the maximum."""
    return any(
        _complete(program, found, divisor) and _has_every_element(program, found.step, found)
        for found in _sums(program, reader, divisor.array)
    )


def _sums(program: Program, reader: Spot, array: str) -> list[Reduction]:
    terms = {
        o.statement.value.access.array: None
        for o in program.occurrences[program.buffer_of[array].name]
        if o.statement.accumulate == "add" and isinstance(o.statement.value, Read)
    }
    return [found for term in terms if (found := reduction(program, array, "add", term, reader))]


def _complete(program: Program, found: Reduction, divisor: Access) -> bool:
    """True if nothing else is in the cells, and every cell that may be read has its sum."""
    if disturbance(program, found, "add") is not None:
        return False
    step, target = found.step, found.step.statement.target
    shape = program.buffer_of[target.array].shape
    for size, written, read in zip(shape, target.subscripts, divisor.subscripts, strict=True):
        [level] = written.levels if len(written.levels) == 1 else [-1]
        whole = level >= found.common and written == AffineExpr.level(level) and step.sizes[level] == size
        if not whole and not (written == read and max(read.levels, default=-1) < found.common):
            return False
    return len(target.levels) == len({s.text for s in target.subscripts if s.levels})


def _has_every_element(program: Program, step: Spot, found: Reduction) -> bool:
    """True if the terms of one cell are exp(x - m) for one m and all x that it is the maximum of."""
    term = step.statement.value
    assert isinstance(term, Read)
    written = _written_by(program, term.access, step)
    exponential = _exponential(written[0].statement) if written else None
    if written is None or exponential is None:
        return False
    (writer, at), (element, maximum) = written, exponential
    known = _maximum(program, maximum.array, element.array, writer)
    if known is None:
        return False
    most, taken_from = known
    instance = matching_instance(taken_from.subscripts, most.step, element.subscripts, writer)
    if instance is None or most.step.statement.target.substitute(instance.__getitem__) != maximum:
        return False
    if element.array not in program.read_only and change_between(
        program, taken_from, most.step, element, writer
    ):
        return False
    taken = {instance[level].substitute(at.__getitem__): most.step.sizes[level] for level in most.reduced}
    summed = {AffineExpr.level(level): step.sizes[level] for level in found.reduced}
    fixed = summed.keys().isdisjoint(map(AffineExpr.level, maximum.substitute(at.__getitem__).levels))
    return fixed and taken == summed and len(taken) == len(most.reduced)


def _maximum(program: Program, array: str, element: str, reader: Spot) -> tuple[Reduction, Access] | None:
    """The maximum of ``element`` that ``reader`` finds in ``array``, and the access to an element in each
    step.

    By ``max=``, or by a selection of the larger one that starts from a number below all others.
    """
    found = reduction(program, array, "max", element, reader)
    if found is not None:
        value = found.step.statement.value
        assert isinstance(value, Read)
        return (found, value.access) if disturbance(program, found, "max") is None else None
    writes = [o for o in program.occurrences[program.buffer_of[array].name] if o.writes]
    if len(writes) != 2 or writes[1].path >= reader.path:
        return None
    start, step = (Spot(o.statement, o.path, o.sizes) for o in writes)
    first, larger = start.statement.value, _larger(step.statement)
    if not isinstance(first, Literal) or first.value > -largest(first.dtype) or start.statement.accumulate:
        return None
    chosen = Reduction(start, step, reader)
    undisturbed = disturbance(program, chosen, "max", float(first.value)) is None
    return (chosen, larger) if undisturbed and larger and larger.array == element else None


def _larger(statement: Statement) -> Access | None:
    """x of ``m = select(x > m, x, m)``."""
    value = statement.value
    if statement.accumulate or not performs(value, "select"):
        return None
    greater, x, m = value.arguments
    if not performs(greater, "gt") or greater.arguments != (x, m):
        return None
    own = isinstance(m, Read) and m.access == statement.target
    return x.access if own and isinstance(x, Read) else None


def _written_by(program: Program, access: Access, reader: Spot) -> tuple[Spot, tuple[AffineExpr, ...]] | None:
    """The only statement that writes the array, and its instance that wrote what ``reader`` reads."""
    buffer = program.buffer_of[access.array]
    writes = [o.statement for o in program.occurrences[buffer.name] if o.writes]
    if len(writes) != 1 or access.array in program.in_out:  # none: an input
        return None
    writer, target = spot(program, writes[0].id), writes[0].target
    instance = matching_instance(target.subscripts, writer, access.subscripts, reader)
    levels = range(shared(writer, reader), writer.depth)
    if instance is None:
        return None
    return (writer, instance) if one_instance_each(buffer, target, writer, levels) else None


def _exponential(statement: Statement) -> tuple[Access, Access] | None:
    """x and m of a plain ``e = exp(x - m)`` or ``e = exp((x - m) * c)``, c > 0, without a condition."""
    value = statement.value
    if statement.accumulate or statement.guard or not performs(value, "exp"):
        return None
    difference = exponent_difference(value.arguments[0])
    if difference is None:
        return None
    element, maximum = difference.arguments
    if isinstance(element, Read) and isinstance(maximum, Read):
        return element.access, maximum.access
    return None

"""Moves that use an algebraic law: they let a reduction start before its last operand is known.

The maximum of a row or the mean of a channel is known only once all elements have been read, and
what depends on it would read them again. Each law here replaces that operand by one of a block
(its own maximum, its own mean) and makes up for the difference afterwards, once a block
(by a factor, which ``factoring.py`` takes out of the sum, or by a term):

* exp(x - m) = exp(x - q) * exp(q - m), for any q;
* the sum of (x - c)^2 over n elements is that of (x - m)^2, m being their mean, plus n*(m - c)^2
  (the parallel axis theorem; Chan, Golub and LeVeque, 1979, combine variances of parts with it).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from perfdojo_sdk.core.dialect import Dialect
from perfdojo_sdk.core.dtypes import largest
from perfdojo_sdk.core.expression import (
    Access,
    AffineExpr,
    Expression,
    Literal,
    Operation,
    Read,
    exponent_difference,
    performs,
)
from perfdojo_sdk.core.frozen import frozen, lazy
from perfdojo_sdk.core.laws import EXPONENT, SQUARES, holds
from perfdojo_sdk.core.made import Made, Nest, Rewritten, Staged
from perfdojo_sdk.core.program import LocatedNode, Program, Statement, fresh, innermost
from perfdojo_sdk.core.reaching import (
    Reduction,
    Spot,
    change_between,
    disturbance,
    matching_instance,
    reduction,
    spot,
)
from perfdojo_sdk.core.storage import Buffer, Dimension
from perfdojo_sdk.core.transformation import (
    NO_MOVE,
    Analysed,
    Correction,
    Definition,
    Facts,
    Move,
    Parameter,
    Refusal,
    Relation,
    Requirement,
    Site,
)
from perfdojo_sdk.core.transformations.inlining import NOT_ALLOWED, here, in_its_place, well_formed
from perfdojo_sdk.core.transformations.naming import substitute
from perfdojo_sdk.core.transformations.reductions import with_statement

# -- the reduction of an array over the same elements ----------------------------------------------


class Taken(NamedTuple):
    """The reduction that took an element into its result, and the instance of its step that did."""

    reduction: Reduction
    instance: tuple[AffineExpr, ...]

    @staticmethod
    def of(site: Site, array: str, operation: str, element: Access, reader: Spot) -> Taken | None:
        """The reduction of the element into the array; None where there is none."""
        found = reduction(site.program, array, operation, element.array, reader)
        if found is None:
            return None
        value = found.step.statement.value
        assert isinstance(value, Read)
        instance = matching_instance(value.access.subscripts, found.step, element.subscripts, reader)
        return Taken(found, instance) if instance is not None else None

    @property
    def result(self) -> Access:
        """The cell of the reduction that the element took part in."""
        return self.reduction.step.statement.target.substitute(self.instance.__getitem__)

    def disturbed(self, site: Site, operation: str) -> Refusal | None:
        """A write through which the array holds something else besides the reduction."""
        write = disturbance(site.program, self.reduction, operation)
        if write is None:
            return None
        array = self.reduction.step.statement.target.array
        return Refusal.of(write.statement.id, write.access, array=array, write=write.access.text)

    def changed_since(self, site: Site, element: Access) -> Refusal | None:
        """A write that may have changed the element since."""
        if element.array in site.program.read_only:
            return None
        step = self.reduction.step
        value = step.statement.value
        assert isinstance(value, Read)
        write = change_between(site.program, value.access, step, element, self.reduction.reader)
        if write is None:
            return None
        return Refusal.of(write.statement.id, write.access, element=element.text, write=write.access.text)


# -- rebase_squares --------------------------------------------------------------------------------


@frozen
class Squares(Facts):
    """``target += (element - centre) * (element - centre)`` in a perfect nest."""

    spot: Spot
    element: Read
    centre: Read

    @property
    def statement(self) -> Statement:
        return self.spot.statement

    @lazy
    def sum(self) -> Taken | None:
        """The reduction that added the element to the array that the move names."""
        return Taken.of(self.site, self.site.move["sum"], "add", self.element.access, self.spot)

    @property
    def total(self) -> Taken:
        """The same where it is known that there is one."""
        assert self.sum is not None
        return self.sum

    @lazy
    def rebased(self) -> _Rebased:
        return _rebased_squares(self)


def _difference(statement: Statement) -> Operation | None:
    """The difference that the statement adds the square of."""
    value = statement.value
    if statement.accumulate != "add" or not performs(value, "mul"):
        return None
    first, second = value.arguments
    if first != second or not performs(first, "sub"):
        return None
    return first if all(isinstance(a, Read) for a in first.arguments) else None


def _has_a_mean(facts: Squares) -> Refusal | None:
    statement = facts.statement
    return None if holds(SQUARES, statement.dtype) else Refusal.of(statement.id, dtype=statement.dtype)


def _has_sum(facts: Squares) -> Refusal | None:
    element, level = facts.element.access, facts.site.level
    if facts.sum is not None and all(l < level for l in facts.sum.result.levels):
        return None
    return Refusal.of(facts.statement.id, element, array=facts.site.move["sum"], element=element.text)


def _same_elements(facts: Squares) -> Refusal | None:
    """The iterators that the sum runs over are those of the nest, one to one."""
    found, instance = facts.total
    inner = range(facts.site.level, facts.spot.depth)
    over = {instance[level]: found.step.sizes[level] for level in found.reduced}
    wanted = {AffineExpr.level(level): facts.spot.sizes[level] for level in inner}
    if over == wanted and len(found.reduced) == len(inner):
        return None
    return Refusal.of(found.step.statement.id, arrays=(facts.site.move["sum"],))


def _only_the_sum(facts: Squares) -> Refusal | None:
    return facts.total.disturbed(facts.site, "add")


def _squares_unchanged(facts: Squares) -> Refusal | None:
    return facts.total.changed_since(facts.site, facts.element.access)


class RebaseSquares(Analysed[Squares]):
    """Sum squares of differences from the elements' own mean, and make up for the other centre.

    ``sum`` holds the sum of the elements; their mean is sum / n. The nest then needs nothing but its
    elements, and what depends on the other centre is one statement behind it.

    before:
        4
        | t[{0}] = 0
        | 8 t[{0}] += x[{0},{1}]
        | q[{0}] = 0
        | 8 q[{0}] += (x[{0},{1}] - c[{0}]) * (x[{0},{1}] - c[{0}])
        | y[{0}] = q[{0}] + t[{0}]
    after: rebase_squares(s2, sum=t)
        4
        | t[{0}] = 0
        | 8 t[{0}] += x[{0},{1}]
        | q[{0}] = 0
        | t_m[{0}] = t[{0}] / 8
        | 8 q[{0}] += (x[{0},{1}] - t_m[{0}]) * (x[{0},{1}] - t_m[{0}])
        | q[{0}] += (t_m[{0}] - c[{0}]) * (t_m[{0}] - c[{0}]) * 8
        | y[{0}] = q[{0}] + t[{0}]
    """

    name = "rebase_squares"
    place = "scope"
    parameters = (Parameter("sum", str, "the array that holds the sum of the same elements"),)
    requirements = (
        Requirement(
            "PD-T281",
            "the scope is no sum of squared differences from one value",
            "{head} is not a perfect nest around one q += (x - c) * (x - c) whose q and c are the same "
            "in all iterations",
            "bring the sum into this form with inline_definition, factor_reduction and fission_scope",
            None,
            law=SQUARES,
            established_by=("inline_definition", "factor_reduction", "fission_scope"),
        ),
        Requirement(
            "PD-T287",
            "whole numbers have no mean",
            "the mean is a quotient, which {dtype} rounds to a whole number",
            "keep the other centre",
            _has_a_mean,
            semantic=True,
            established_by=NO_MOVE,
        ),
        Requirement(
            "PD-T282",
            "the array holds no sum of these elements",
            "no statement before it adds {element} to one element of {array}",
            "name an array into which the elements were added, or split both reductions alike",
            _has_sum,
            established_by=("split_reduction", "inline_definition"),
        ),
        Requirement(
            "PD-T283",
            "the sum runs over other elements",
            "{array} is the sum over more or fewer elements than the scope has",
            "split both reductions alike with split_reduction",
            _same_elements,
            semantic=True,
            established_by=("split_reduction",),
        ),
        Requirement(
            "PD-T284",
            "the array holds something else besides the sum",
            "{write} makes {array} differ from the sum that starts at 0",
            "give the other value an array of its own",
            _only_the_sum,
            semantic=True,
            established_by=("split_reduction", "stage_write"),
        ),
        Requirement(
            "PD-T285",
            "the elements may have changed since they were summed",
            "{write} may change {element} in between",
            "move that write out from between the two",
            _squares_unchanged,
            semantic=True,
            established_by=("reorder_statements",),
        ),
        Requirement(
            "PD-T286",
            *NOT_ALLOWED,
            lambda facts: well_formed(facts.site, facts.rebased.program, facts.rebased.places),
            established_by=("set_location",),
        ),
    )

    def candidates(self, program: Program, dialect: Dialect) -> Iterator[Move]:
        for _, scope in program.scopes:
            _, statement = scope.chain
            difference = _difference(statement) if statement else None
            if difference is None:
                continue
            for array in _reduced(program, "add", {r.array for r in difference.reads}):
                yield Move(self.name, scope.id, (("sum", array),))

    def analyse(self, site: Site) -> Squares | Refusal:
        _, statement = site.scope.chain
        difference = _difference(statement) if statement else None
        refusal = Refusal.of(site.scope.id, site.scope.head, head=site.scope.head)
        if statement is None or difference is None:
            return refusal
        element, centre = difference.arguments
        assert isinstance(element, Read) and isinstance(centre, Read)
        buffer_of = site.program.buffer_of
        target = buffer_of[statement.target.array]
        # A condition may leave out whole nests, and no single elements: their number is in the mean.
        fixed = (*centre.access.levels, *statement.target.levels, *(form.highest for form in statement.guard))
        invariant = max(fixed, default=-1) < site.level
        if not invariant or target in (buffer_of[element.access.array], buffer_of[centre.access.array]):
            return refusal
        return Squares(site, spot(site.program, statement.id), element, centre)

    def rewrite(self, facts: Squares, /) -> Rewritten:
        return Rewritten(facts.rebased.program, facts.rebased.made)

    def relation(self, facts: Squares, result: Program, /) -> Relation:
        mean, correction = facts.rebased.made.statements
        return {mean: Definition(), correction: Correction(facts.statement.id)}


def _reduced(program: Program, operation: str, elements: set[str]) -> Iterator[str]:
    """Arrays that accumulate elements of one of these arrays."""
    found = dict.fromkeys(
        leaf.statement.target.array
        for node in program.body
        for leaf in node.leaves
        if leaf.statement.accumulate == operation
        and isinstance(leaf.statement.value, Read)
        and leaf.statement.value.access.array in elements
    )
    yield from found


class _Rebased(NamedTuple):
    """The program with the sum of squares from another centre, and its new statements."""

    program: Program
    places: list[LocatedNode]
    made: Made


def _rebased_squares(squares: Squares) -> _Rebased:
    site, total = squares.site, squares.total.result
    name = fresh(f"{site.move['sum']}_m", site.program.names)
    statement, dtype, taken = squares.statement, squares.statement.dtype, site.program.place_of
    count = 1
    for size in squares.spot.sizes[site.level :]:
        count *= size
    dims = total.levels
    buffer = Buffer(
        name,
        dtype,
        tuple([Dimension(site.outer_sizes[level]) for level in dims]),
        site.dialect.default_location,
        (name,),
    )
    mean = Read(Access(name, tuple([AffineExpr.level(level) for level in dims])), dtype)
    number = Literal(float(count), dtype)
    value = Operation("div", (Read(total, dtype), number), dtype)
    guard = statement.guard
    define = Statement(mean.access, value, None, dtype, fresh(f"{name}.c", taken), guard)
    inner = replace(statement, value=_square(squares.element, mean))
    fix = Operation("mul", (_square(mean, squares.centre), number), dtype)
    correct = Statement(statement.target, fix, "add", dtype, fresh(f"{name}.fix", taken), guard)
    nodes = (define, with_statement(site.scope, inner), correct)
    above, k = site.path[:-1], site.path[-1]
    return _Rebased(
        site.replaced(nodes, buffer=buffer),
        [
            innermost(LocatedNode(node, (*above, k + n), site.above, site.outer_sizes))
            for n, node in enumerate(nodes)
        ],
        Staged(name, (Nest.of(define), Nest.of(correct))),
    )


def _square(left: Read, right: Read) -> Operation:
    difference = Operation("sub", (left, right), left.dtype)
    return Operation("mul", (difference, difference), left.dtype)


# -- rebase_exponent -------------------------------------------------------------------------------


def _guarded(maximum: Read) -> Operation:
    """The maximum, or the least finite number where it is minus infinity.

    Any number will do for q in exp(x-q)*exp(q-m). With this one a block whose elements all are minus infinity
    gives exp(-inf) = 0 times something that is 1 at most as long as m is finite, and no NaN.
    """
    return Operation("max", (maximum, Literal(-largest(maximum.dtype), maximum.dtype)), maximum.dtype)


def _element(value: Expression) -> Read | None:
    """The element x of an ``exp(x - m)``, which may be the guarded maximum of another block."""
    if isinstance(value, Operation) and isinstance(value.arguments[0], Read):
        first = value.arguments[0]
        return first if holds(EXPONENT, first.dtype) and value == _guarded(first) else None
    return value if isinstance(value, Read) else None


def _exponentials(value: Expression) -> Iterator[Operation]:
    """Every ``exp(x - m)`` or ``exp((x - m) * c)`` of an element x in a value."""
    for child in value.children:
        yield from _exponentials(child)
    if performs(value, "exp"):
        difference = exponent_difference(value.arguments[0])
        if difference and _element(difference.arguments[0]):
            yield value


@frozen
class Exponent(Facts):
    """An ``exp(x - m)`` or ``exp((x - m) * c)``, and the maximum over a block with x that takes the place of
    m."""

    exponential: Operation
    maximum: Taken

    @lazy
    def rebased(self) -> Statement:
        """The statement after the move."""
        found, statement = self.exponential, self.site.statement
        element, other = _exponent(found)
        dtype = found.dtype
        middle = _guarded(Read(self.maximum.result, dtype))

        def exponential(a: Expression, b: Expression) -> Expression:
            return substitute(found, _difference_of(found), Operation("sub", (a, b), dtype))

        rebased = Operation("mul", (exponential(element, middle), exponential(middle, other)), dtype)
        return replace(statement, value=substitute(statement.value, found, rebased))


def _difference_of(exponential: Operation) -> Operation:
    difference = exponent_difference(exponential.arguments[0])
    assert difference, "the exponentials of interest are those of differences"
    return difference


def _exponent(exponential: Operation) -> tuple[Expression, Expression]:
    """x and m of exp(x - m)."""
    element, other = _difference_of(exponential).arguments
    return element, other


def _exponent_of(exponential: Operation) -> Access:
    """The element x of exp(x - m)."""
    element = _element(_exponent(exponential)[0])
    assert element, "the exponentials of interest are those of elements"
    return element.access


def _only_the_maximum(facts: Exponent) -> Refusal | None:
    return facts.maximum.disturbed(facts.site, "max")


def _maximised_unchanged(facts: Exponent) -> Refusal | None:
    return facts.maximum.changed_since(facts.site, _exponent_of(facts.exponential))


def _exponent_fits(facts: Exponent) -> Refusal | None:
    site, rebased = facts.site, facts.rebased
    return well_formed(site, site.replaced((rebased,)), [in_its_place(site, rebased)])


class RebaseExponent(Analysed[Exponent]):
    """Take the exponential relative to a maximum that is known already: exp(x-m) = exp(x-q)*exp(q-m).

    ``maximum`` holds the largest of a block of elements that x belongs to, so x - q is never
    positive. It counts as the least finite number where all elements of the block are -inf.
    The differences may be multiplied or divided by positive numbers, each as the one they come from.

    before:
        4
        | q[{0}] = -inf
        | 8 q[{0}] max= x[{0},{1}]
        | 8 y[{0},{1}] = exp(x[{0},{1}] - m[0]) + q[{0}]
    after: rebase_exponent(c2, maximum=q)
        4
        | q[{0}] = -inf
        | 8 q[{0}] max= x[{0},{1}]
        | 8 y[{0},{1}] = exp(x[{0},{1}] - max(q[{0}], -3.4028234663852886e+38)) * exp(max(q[{0}], -3.4028234663852886e+38) - m[0]) + q[{0}]
    """  # noqa: E501

    name = "rebase_exponent"
    version = 2
    place = "statement"
    parameters = (Parameter("maximum", str, "the array that holds the maximum of a block"),)
    requirements = (
        Requirement(
            "PD-T296",
            "the array holds no maximum over a block with this element",
            "no exp(x - m) stands here whose x a statement before it took into {array} with max=",
            "name an array that x was taken into with max=, other than m itself",
            None,
            law=EXPONENT,
            established_by=("split_reduction", "inline_definition"),
        ),
        Requirement(
            "PD-T297",
            "the array holds something else besides the maximum",
            "because of {write}, x may exceed {array} so far that exp overflows",
            "give the other value an array of its own",
            _only_the_maximum,
            established_by=("split_reduction", "stage_write"),
        ),
        Requirement(
            "PD-T298",
            "the elements may have changed since the maximum was taken",
            "{write} may change {element} in between, and exp of the difference may overflow",
            "move that write out from between the two",
            _maximised_unchanged,
            established_by=("reorder_statements",),
        ),
        Requirement(
            "PD-T299",
            *NOT_ALLOWED,
            _exponent_fits,
            established_by=("set_location",),
        ),
    )

    def candidates(self, program: Program, dialect: Dialect) -> Iterator[Move]:
        for _, node in program.walk():
            if isinstance(node, Statement):
                elements = {_exponent_of(e).array for e in _exponentials(node.value)}
                for array in _reduced(program, "max", elements) if elements else ():
                    yield Move(self.name, node.id, (("maximum", array),), self.version)

    def analyse(self, site: Site) -> Exponent | Refusal:
        array, reader = site.move["maximum"], here(site)
        for found in _exponentials(reader.statement.value):
            other = _element(_exponent(found)[1])
            if other and other.access.array == array:
                continue
            taken = Taken.of(site, array, "max", _exponent_of(found), reader)
            if taken is not None:
                return Exponent(site, found, taken)
        return Refusal.of(reader.statement.id, arrays=(array,))

    def rewrite(self, facts: Exponent, /) -> Program:
        return facts.site.replaced((facts.rebased,))

    def upgrade(self, move: Move) -> Move | None:
        """Version 1 took the maximum as it was: where that was -inf, its result was NaN."""
        return replace(move, version=self.version)


MOVES = (RebaseExponent(), RebaseSquares())

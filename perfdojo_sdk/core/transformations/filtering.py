"""A filter by fewer products: m outputs of r taps take m + r - 1 of them, not m * r.

y[s] += x[s+k] * w[k], for s below m and k below r, is the product of two polynomials, transposed. It is
known by its values at m + r - 1 points (Toom and Cook); what each point needs of x and of w are sums with
small whole coefficients (Winograd, Arithmetic Complexity of Computations, 1980; for convolutions: Lavin and
Gray, 2016). The more points, the larger the coefficients and what rounding does to their sums.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod

from perfdojo_sdk.core.dialect import Dialect
from perfdojo_sdk.core.expression import Access, AffineExpr, Expression, Literal, Operation, Read, performs
from perfdojo_sdk.core.frozen import frozen, lazy
from perfdojo_sdk.core.laws import FILTER, holds
from perfdojo_sdk.core.made import Filtered, Rewritten
from perfdojo_sdk.core.operations import identity
from perfdojo_sdk.core.program import Node, Program, Scope, Statement, fresh
from perfdojo_sdk.core.storage import Buffer, Dimension
from perfdojo_sdk.core.transformation import (
    NO_MOVE,
    Analysed,
    Bundle,
    Facts,
    Move,
    Parameter,
    PartialStart,
    PointProduct,
    Refusal,
    Relation,
    Requirement,
    Site,
)
from perfdojo_sdk.core.transformations.reductions import (
    ACCUMULATED_OTHERWISE,
    TERMS_READ_THE_SUM,
    another_accumulation,
    term_that_reads_the_sum,
)

#: The points at which the polynomials are known; the last one is infinity.
POINTS = (0, 1, -1)


@dataclass(frozen=True)
class Scheme:
    """The sums of data and of taps that are multiplied, and the sums of products that are the outputs."""

    data: tuple[tuple[int, ...], ...]
    """For each product: a coefficient for each of m + r - 1 neighbours."""
    taps: tuple[tuple[int, ...], ...]
    """For each product: a coefficient for each tap."""
    divisors: tuple[int, ...]
    """For each product: the divisor of the sum of its taps."""
    outputs: tuple[tuple[int, ...], ...]
    """For each output: a coefficient for each product."""


def scheme(outputs: int, taps: int) -> Scheme | None:
    """The scheme for so many outputs and taps; None where it saves no product or needs more points."""
    return SCHEMES.get((outputs, taps))


def _scheme(outputs: int, taps: int) -> Scheme:
    count = outputs + taps - 1
    points = POINTS[: count - 1]
    data, sums, divisors, columns = [], [], [], []
    for point in points:
        others = [other for other in points if other != point]
        scale = prod(point - other for other in others)
        data.append((*_polynomial(others), 0))
        sums.append(tuple([point**k for k in range(taps)]))
        divisors.append(abs(scale))
        columns.append([(-1 if scale < 0 else 1) * point**s for s in range(outputs)])
    data.append(_polynomial(points))
    sums.append(tuple([int(k == taps - 1) for k in range(taps)]))
    divisors.append(1)
    columns.append([int(s == outputs - 1) for s in range(outputs)])
    return Scheme(tuple(data), tuple(sums), tuple(divisors), tuple(zip(*columns, strict=True)))


def _polynomial(roots: Sequence[int]) -> tuple[int, ...]:
    """Coefficients, the constant first, of the product of ``x - root``."""
    found = [1]
    for root in roots:
        found = [a - root * b for a, b in zip([0, *found], [*found, 0], strict=True)]
    return tuple(found)


#: Outputs and taps -> the scheme for them: two of each at least, and no more points than there are.
SCHEMES = {
    (outputs, taps): _scheme(outputs, taps)
    for outputs in range(2, len(POINTS) + 1)
    for taps in range(2, len(POINTS) + 3 - outputs)
}


# -- the nest --------------------------------------------------------------------------------------


@frozen
class Filter(Facts):
    """``target += data * taps`` in a perfect nest whose outermost scope runs over outputs."""

    statement: Statement
    factors: tuple[Read, Read]
    chain: tuple[Scope, ...]
    """The scopes of the nest."""
    tap: int
    """Level of the scope over the taps."""

    @property
    def level(self) -> int:
        """Level of the scope over the outputs."""
        return self.site.level

    @property
    def taps(self) -> Scope:
        """The scope over the taps."""
        return self.chain[self.tap - self.level]

    @property
    def data_first(self) -> bool:
        """True if the first factor is the data, whose subscripts depend on the output."""
        return self.level in self.factors[0].access.levels

    @property
    def scheme(self) -> Scheme | None:
        return scheme(self.chain[0].size, self.taps.size)

    @property
    def between(self) -> tuple[Scope, ...]:
        """The other scopes of the nest: all of them reduce."""
        return tuple([s for k, s in enumerate(self.chain) if k not in (0, self.tap - self.level)])

    def within(self, output: int, tap: int) -> dict[int, AffineExpr]:
        """Levels of the old statement -> forms inside the scopes that stay."""
        forms = {level: AffineExpr.level(level) for level in range(self.level)}
        forms |= {self.level: AffineExpr(output), self.tap: AffineExpr(tap)}
        stay = [self.level + k for k in range(len(self.chain)) if self.level + k not in forms]
        return forms | {level: AffineExpr.level(self.level + k) for k, level in enumerate(stay)}

    @lazy
    def names(self) -> Filtered:
        """The new names."""
        site, plan, statement = self.site, self.scheme, self.statement
        assert plan is not None
        taken = site.program.place_of
        name = fresh(f"{statement.target.array}_q", site.program.names)
        products = range(len(plan.data))
        return Filtered(
            statement.id,
            (self.chain[0].id, self.taps.id),
            name,
            tuple([fresh(f"{name}.in.{k}", taken) for k in products]),
            tuple([fresh(f"{name}.{k}", taken) for k in products]),
            tuple([fresh(f"{name}.out.{k}", taken) for k in range(len(plan.outputs))]),
        )


def _has_scheme(facts: Filter) -> Refusal | None:
    if facts.scheme is not None:
        return None
    scope, taps = facts.site.scope, facts.taps
    return Refusal.of(
        scope.id, scope.head, nodes=(taps.id,), most=len(POINTS), outputs=scope.size, taps=taps.size
    )


def _slides(facts: Filter) -> Refusal | None:
    """One factor uses outputs and taps as their sum alone, the other does not know the output."""
    level, tap = facts.level, facts.tap
    first, second = facts.factors if facts.data_first else facts.factors[::-1]
    if level in second.access.levels:
        return Refusal.of(facts.statement.id, second.access, iterator=facts.site.scope.id)
    for subscript in first.access.subscripts:
        divided = {l for q, _ in subscript.quotients for l in q.levels}
        steps = [subscript.coefficients.get(l, 0) for l in (level, tap)]
        if steps[0] != steps[1] or divided & {level, tap}:
            return Refusal.of(facts.statement.id, first.access, iterator=facts.taps.id)
    return None


def _is_float(facts: Filter) -> Refusal | None:
    statement = facts.statement
    return None if holds(FILTER, statement.dtype) else Refusal.of(statement.id, dtype=statement.dtype)


# -- the new nests ---------------------------------------------------------------------------------


def _linear(coefficients: Sequence[int], terms: Sequence[Read], divisor: int = 1) -> Expression:
    """The sum of the terms with these coefficients, positive ones first, over the divisor."""
    dtype = terms[0].dtype

    def scaled(term: Read, by: int) -> Expression:
        return term if by == 1 else Operation("mul", (term, Literal(float(by), dtype)), dtype)

    parts = [(c, term) for c, term in zip(coefficients, terms, strict=True) if c]
    parts.sort(key=lambda part: part[0] < 0)
    total: Expression | None = None
    for c, term in parts:
        if total is None:
            total = scaled(term, c)
        else:
            total = Operation("add" if c > 0 else "sub", (total, scaled(term, abs(c))), dtype)
    assert total is not None
    return total if divisor == 1 else Operation("div", (total, Literal(float(divisor), dtype)), dtype)


def _filtered(found: Filter) -> Rewritten:
    site, made = found.site, found.names
    plan, statement, dtype = found.scheme, found.statement, found.statement.dtype
    assert plan is not None
    name, count, size = made.buffer, len(plan.data), found.chain[0].size
    dims = [level for level in statement.target.levels if level < found.level]
    shape = (*(Dimension(site.outer_sizes[level]) for level in dims), Dimension(count))
    buffer = Buffer(name, dtype, shape, site.dialect.default_location, (name,))

    def part(index: AffineExpr) -> Access:
        return Access(name, (*(AffineExpr.level(level) for level in dims), index))

    parts = [Read(part(AffineExpr(k)), dtype) for k in range(count)]
    data, taps = found.factors if found.data_first else found.factors[::-1]
    elements = [_at(data, found.within(0, k)) for k in range(count)]
    weights = [_at(taps, found.within(0, k)) for k in range(len(plan.taps[0]))]
    products = []
    for k, identifier in enumerate(made.products):
        pair = _linear(plan.data[k], elements), _linear(plan.taps[k], weights, plan.divisors[k])
        value = Operation("mul", pair if found.data_first else pair[::-1], dtype)
        products.append(Statement(parts[k].access, value, "add", dtype, identifier))
    body: tuple[Node, ...] = tuple(products)
    for scope in reversed(found.between):
        body = (scope.with_body(body),)
    outputs = [
        Statement(
            statement.target.substitute(found.within(s, 0).__getitem__),
            _linear(plan.outputs[s], parts),
            "add",
            dtype,
            made.outputs[s],
        )
        for s in range(size)
    ]
    zero = Literal(identity("add", dtype), dtype)
    starts = [
        Statement(access.access, zero, None, dtype, identifier)
        for access, identifier in zip(parts, made.starts, strict=True)
    ]
    return Rewritten(site.replaced((*starts, *body, *outputs), buffer=buffer), made)


def _at(read: Read, forms: dict[int, AffineExpr]) -> Read:
    return replace(read, access=read.access.substitute(forms.__getitem__))


class MinimalFilter(Analysed[Filter]):
    """Compute outputs of a filter by fewer products: Winograd's minimal filtering.

    The scope runs over 2 or 3 outputs, ``taps`` over 2 or 3 taps of the filter, together 4 or 5 of them;
    other scopes of the nest reduce. Sums of the taps can be computed once with stage_expression, and so can
    those of the data, which lie beside each other.

    before:
        8
        | 2 y[{0}*2+{1}] = 0
        | 2 4 3 y[{0}*2+{1}] += x[{2},{0}*2+{1}+{3}] * w[{2},{3}]
    after: minimal_filter(s2, taps=s4)
        8
        | 2 y[{0}*2+{1}] = 0
        | y_q[{0},0] = 0
        | y_q[{0},1] = 0
        | y_q[{0},2] = 0
        | y_q[{0},3] = 0
        | 4
        | | y_q[{0},0] += (x[{1},{0}*2+2] - x[{1},{0}*2]) * w[{1},0]
        | | y_q[{0},1] += (x[{1},{0}*2+1] + x[{1},{0}*2+2]) * ((w[{1},0] + w[{1},1] + w[{1},2]) / 2)
        | | y_q[{0},2] += (x[{1},{0}*2+2] - x[{1},{0}*2+1]) * ((w[{1},0] + w[{1},2] - w[{1},1]) / 2)
        | | y_q[{0},3] += (x[{1},{0}*2+3] - x[{1},{0}*2+1]) * w[{1},2]
        | y[{0}*2] += y_q[{0},1] + y_q[{0},2] - y_q[{0},0]
        | y[{0}*2+1] += y_q[{0},1] + y_q[{0},3] - y_q[{0},2]
    """

    name = "minimal_filter"
    place = "scope"
    parameters = (Parameter("taps", str, "id of the scope over the taps of the filter"),)
    requirements = (
        Requirement(
            "PD-T361",
            "the scope is no filter",
            "{head} is not a perfect nest of plain scopes around one y += x * w, of which y uses the first "
            "only, or the taps are no scope inside it",
            "bring the outputs outermost with swap_scopes, and name the scope over the taps",
            None,
            law=FILTER,
            established_by=("swap_scopes", "fission_scope"),
        ),
        Requirement(
            "PD-T362",
            "there is no scheme for so many outputs and taps",
            "{outputs} outputs of {taps} taps: two of each are needed at least, and {most} more outputs than "
            "1 with their taps at most",
            "split the outputs to 2 or 3",
            _has_scheme,
            established_by=("split_scope", "split_range"),
        ),
        Requirement(
            "PD-T363",
            "outputs and taps do not meet in a sum",
            "{access}: one factor may use outputs and taps as their sum only, and the other no output",
            "only a sliding window over one factor can be filtered like this",
            _slides,
            semantic=True,
            established_by=NO_MOVE,
        ),
        Requirement(
            "PD-T364",
            "whole numbers do not divide",
            "sums of taps are halved, which {dtype} rounds",
            "keep the products",
            _is_float,
            semantic=True,
            established_by=NO_MOVE,
        ),
        Requirement(
            "PD-T365",
            *TERMS_READ_THE_SUM,
            lambda facts: term_that_reads_the_sum(facts.site.program, facts.statement),
            semantic=True,
            established_by=NO_MOVE,
        ),
        Requirement(
            "PD-T366",
            *ACCUMULATED_OTHERWISE,
            lambda facts: another_accumulation(facts.site.program, facts.statement),
            established_by=("stage_write",),
        ),
    )

    def candidates(self, program: Program, dialect: Dialect) -> Iterator[Move]:
        for path, scope in program.scopes:
            chain, statement = scope.chain
            if (
                statement is None
                or statement.accumulate != "add"
                or len(path) - 1 not in statement.target.levels
            ):
                continue
            for tap in chain[1:]:
                if scheme(scope.size, tap.size):
                    yield Move(self.name, scope.id, (("taps", tap.id),))

    def analyse(self, site: Site) -> Filter | Refusal:
        chain, statement = site.scope.chain
        refusal = Refusal.of(site.scope.id, site.scope.head, head=site.scope.head)
        if statement is None or statement.guard or statement.accumulate != "add" or statement.chooses:
            return refusal
        value = statement.value
        if not performs(value, "mul"):
            return refusal
        inner = range(site.level + 1, site.level + len(chain))
        used = statement.target.levels
        one, other = value.arguments
        if not (isinstance(one, Read) and isinstance(other, Read)) or any(s.suffix for s in chain):
            return refusal
        if site.level not in used or set(used) & set(inner):
            return refusal
        tap = next((level for level in inner if chain[level - site.level].id == site.move["taps"]), None)
        if tap is None:
            return refusal
        return Filter(site, statement, (one, other), chain, tap)

    def rewrite(self, facts: Filter, /) -> Rewritten:
        return _filtered(facts)

    def relation(self, facts: Filter, result: Program, /) -> Relation:
        found, made = facts, facts.names
        statement = found.statement.id
        outer = tuple([AffineExpr.level(level) for level in range(found.level)])
        bundles = {
            identifier: Bundle(statement, (*outer, AffineExpr(s), *[None for _ in found.chain[1:]]))
            for s, identifier in enumerate(made.outputs)
        }
        sums = PointProduct(statement, found.level, found.tap)
        starts = dict.fromkeys(made.starts, PartialStart())
        return {**starts, **dict.fromkeys(made.products, sums), **bundles}


MOVES = (MinimalFilter(),)

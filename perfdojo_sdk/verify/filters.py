"""The dependence check of filters that are computed with fewer products (minimal filtering).

Each new product is that of a sum of the old first operands and one of the second. The operands are derived
from the values they read, and the products are multiplied out with rational coefficients. The polynomial
that an output adds must equal the one that the old statement added there, whatever the scheme.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import TypeAlias

from perfdojo_sdk.core.expression import AffineExpr, Expression, Literal, Operation, Read, performs
from perfdojo_sdk.core.laws import FILTER, holds
from perfdojo_sdk.core.transformation import PointProduct
from perfdojo_sdk.verify.instances import StatementDomain
from perfdojo_sdk.verify.sets import Refuted, isl, with_writers, writers
from perfdojo_sdk.verify.tracing import Tracer

Polynomial: TypeAlias = Mapping[tuple[int, int], Fraction]
"""(First operand, second operand) -> coefficient. Operands are numbered by what they see."""


def check_filter(tracer: Tracer, old: StatementDomain) -> None:
    """``y += x * w`` became sums of products, and each bundle adds those that its instances come to.

    :class:`Refuted` unless they do as polynomials in what the old statement reads.
    """
    _Filter(tracer, old).check()


class _Filter:
    """A statement, the products of sums of its operands, and the outputs that these make."""

    def __init__(self, tracer: Tracer, old: StatementDomain) -> None:
        self.tracer, self.old = tracer, old
        self.session, self.new = tracer.session, tracer.new
        origins = {p.name: tracer.origins.origin(p) for p in tracer.new.places.values()}
        self.products = {
            name: origin
            for name, origin in origins.items()
            if isinstance(origin, PointProduct) and origin.statement == old.statement.id
        }
        self.outputs = {
            name: bundle
            for name, bundle in tracer.origins.bundles.items()
            if bundle.statement == old.statement.id
        }

    def check(self) -> None:
        levels = {(product.outputs, product.taps) for product in self.products.values()}
        new = [self.new.by_name[name].statement for name in (*self.products, *self.outputs)]
        statements = [self.old.statement, *new]
        plain = all(s.accumulate == "add" and not s.guard for s in statements)
        dtypes = {s.dtype for s in statements}
        if len(levels) != 1 or not plain or len(dtypes) != 1 or not all(holds(FILTER, d) for d in dtypes):
            raise Refuted(f"{self.tracer.old.describe(self.old.statement.id)}: its products are no filter's")
        [(self.output, self.tap)] = levels
        self.operands = [self._operands(side) for side in (0, 1)]
        values = {name: self._product(self.new.by_name[name]) for name in self.products}
        for name, bundle in self.outputs.items():
            at = bundle.iterators[self.output]
            free = [k for k, index in enumerate(bundle.iterators) if index is None]
            outer = [index for k, index in enumerate(bundle.iterators) if k not in (*free, self.output)]
            same = outer == [AffineExpr.level(level) for level in range(len(outer))]
            if at is None or at.levels or self.tap not in free or not same:
                raise Refuted(f"{self._tell(name)} answers for no output")
            if self._added(name, values, free) != self._wanted(at.constant):
                raise Refuted(f"{self._tell(name)} adds another sum than output {at.constant} had")
        self._check_readers()

    def _tell(self, name: str) -> str:
        return self.new.describe(self.new.by_name[name].statement.id)

    @property
    def _inside(self) -> list[int]:
        """Old levels but those of outputs and taps: the levels of a product."""
        return [k for k in range(len(self.old.sizes)) if k not in (self.output, self.tap)]

    # -- operands ----------------------------------------------------------------------------------

    def _operands(self, side: int) -> dict[tuple[int, int], isl.UnionMap]:
        """Output and tap -> what the old statement sees there, by the levels of a product."""
        value = self.old.statement.value
        factors = value.arguments if performs(value, "mul") else ()
        if not factors or not all(isinstance(factor, Read) for factor in factors):
            raise Refuted(f"{self.tracer.old.describe(self.old.statement.id)} is no product of two elements")
        reader, found = f"{self.old.name}_{side}", {}
        known = self.tracer.old.seen(reader, self.tracer.mode)
        for output in range(self.old.sizes[self.output]):
            for tap in range(self.old.sizes[self.tap]):
                forms = {level: f"i{k}" for k, level in enumerate(self._inside)}
                forms |= {self.output: str(output), self.tap: str(tap)}
                at = [forms[level] for level in range(len(self.old.sizes))]
                enter = self.session.affine("G", len(self._inside), reader, at)
                found[output, tap] = self.session.map([enter.intersect_domain(self._box)]).apply_range(known)
        return found

    @property
    def _box(self) -> isl.Set:
        return self.session.box("G", tuple([self.old.sizes[k] for k in self._inside]))

    def _variable(self, side: int, seen: isl.UnionMap) -> int | None:
        """The number of an operand; outputs and taps that see the same values have the same number."""
        return next((k for k, known in enumerate(self.operands[side].values()) if known.is_equal(seen)), None)

    # -- polynomials -------------------------------------------------------------------------------

    def _product(self, place: StatementDomain) -> Polynomial:
        """The value of a new product, multiplied out."""
        sizes = tuple([self.old.sizes[k] for k in self._inside])
        value = place.statement.value
        if place.sizes != sizes or not performs(value, "mul"):
            raise Refuted(f"{self._tell(place.name)} is no product for each of the old terms")
        sums, first = [], 0
        for side, factor in enumerate(value.arguments):
            leaves, coefficients = _linear(factor)
            total: dict[int, Fraction] = defaultdict(Fraction)
            for k, coefficient in enumerate(coefficients):
                seen = self._seen(place, first + k)
                variable = self._variable(side, seen)
                if variable is None:
                    what = self.new.reader_text(f"{place.name}_{first + k}")
                    raise Refuted(f"{what}, which no output multiplies there")
                total[variable] += coefficient
            first += leaves
            sums.append(total)
        return {(a, b): x * y for a, x in sums[0].items() for b, y in sums[1].items()}

    def _seen(self, place: StatementDomain, leaf: int) -> isl.UnionMap:
        reader = f"{place.name}_{leaf}"
        enter = self.session.identity("G", reader, len(place.sizes)).intersect_domain(self._box)
        seen = self.tracer.seen(reader)
        strange = writers(seen) - self.tracer.origins.sources
        if strange:
            raise Refuted(f"{self.new.reader_text(reader)}, which is no value of the old program")
        return self.session.map([enter]).apply_range(seen).apply_range(self.tracer.origins.images)

    def _added(self, name: str, values: Mapping[str, Polynomial], free: list[int]) -> Polynomial:
        """The polynomial that an output adds, of each of its terms."""
        place = self.new.by_name[name]
        _, coefficients = _linear(place.statement.value)
        total: dict[tuple[int, int], Fraction] = defaultdict(Fraction)
        for k, coefficient in enumerate(coefficients):
            product = self._whole_sum(place, k, free)
            for term, value in values[product].items():
                total[term] += coefficient * value
        return _without_zeros(total)

    def _whole_sum(self, place: StatementDomain, leaf: int, free: list[int]) -> str:
        """The product whose sum the leaf sees: the sum starts from 0, over all instances of the output."""
        reader = f"{place.name}_{leaf}"
        seen = self.new.seen(reader, "terms")
        found = writers(seen) - self.tracer.starts
        starts = [self.new.by_name[n].statement.value for n in writers(seen) & self.tracer.starts]
        zero = all(isinstance(value, Literal) and value.value == 0 for value in starts)
        if len(found) != 1 or not found <= self.products.keys() or not starts or not zero:
            raise Refuted(f"{self.new.reader_text(reader)}, which is no sum of a product")
        [product] = found
        kept = [k for k in self._inside if k not in free]
        held = self.session.affine(
            product, len(self._inside), "B", [f"i{n}" for n, k in enumerate(self._inside) if k in kept]
        )
        box = self.session.instances(product, self.new.by_name[product].domain)
        enter = self.session.affine(reader, len(place.sizes), "B", [f"i{n}" for n in range(len(kept))])
        enter = enter.intersect_domain(self.session.instances(reader, place.domain))
        wanted = self.session.map([enter.apply_range(held.intersect_domain(box).reverse())])
        if len(place.sizes) != len(kept) or not with_writers(seen, found).is_equal(wanted):
            raise Refuted(f"{self.new.reader_text(reader)}, which is not the whole sum of its product")
        return product

    def _wanted(self, output: int) -> Polynomial:
        """The polynomial of each term that the old statement added."""
        total: Counter[tuple[int, int]] = Counter()
        for tap in range(self.old.sizes[self.tap]):
            pair = [self._variable(side, self.operands[side][output, tap]) for side in (0, 1)]
            assert pair[0] is not None and pair[1] is not None
            total[pair[0], pair[1]] += 1
        return {term: Fraction(count) for term, count in total.items()}

    # -- nobody else -------------------------------------------------------------------------------

    def _check_readers(self) -> None:
        """Raise :class:`Refuted` if anything but the outputs reads the products, or anything but addition
        changes the results."""
        for reader in self.new.flows_of:
            owner = reader.rpartition("_")[0]
            if owner in self.outputs or reader.endswith("_t"):
                continue
            if writers(self.new.seen(reader, "terms")) & self.products.keys():
                raise Refuted(f"{self.new.reader_text(reader)} and sees a product of a filter")
        for name in self.outputs:
            flow = self.new.own_flow(name)
            if flow and len(flow.operations) > 1:
                raise Refuted(f"{self._tell(name)}: the cell is accumulated in other ways too")


def _without_zeros(total: Polynomial) -> Polynomial:
    return {term: value for term, value in total.items() if value}


def _linear(value: Expression) -> tuple[int, list[Fraction]]:
    """The number of leaves of a sum, and the coefficient of each."""
    found = list(_coefficients(value, Fraction(1)))
    return len(found), found


def _coefficients(value: Expression, factor: Fraction) -> Iterator[Fraction]:
    if isinstance(value, Read):
        yield factor
        return
    arguments = value.arguments if isinstance(value, Operation) else ()
    if performs(value, "add", "sub"):
        yield from _coefficients(arguments[0], factor)
        yield from _coefficients(arguments[1], factor if value.name == "add" else -factor)
    elif performs(value, "mul", "div") and isinstance(arguments[1], Literal):
        number = Fraction(arguments[1].value)
        if value.name == "div" and not number:
            raise Refuted(f"{value.text} divides by zero")
        yield from _coefficients(arguments[0], factor * number if value.name == "mul" else factor / number)
    else:
        raise Refuted(f"{value.text} is no sum of elements")

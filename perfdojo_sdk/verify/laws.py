"""The dependence check of moves that use an algebraic law.

A law replaces terms of a sum by other terms, and another statement compensates for the difference. The check
proves, instance by instance, that exactly the terms of one *group* are compensated, all of them, once.
"""

from __future__ import annotations

from math import prod
from typing import TypeAlias

from perfdojo_sdk.core.expression import Expression, Literal, Read, performs
from perfdojo_sdk.verify.instances import StatementDomain
from perfdojo_sdk.verify.sets import Refuted, isl, iterators, with_writers, writers
from perfdojo_sdk.verify.tracing import Tracer, other_operations

Pairs: TypeAlias = list[tuple[tuple[str, ...], tuple[str, ...]]]
"""Old readers and new ones to follow to what must be the same value."""


class Group:
    """The instances of an accumulation that one instance of a later statement compensates for."""

    def __init__(self, tracer: Tracer, term: StatementDomain, whole: StatementDomain) -> None:
        self.tracer, self.term, self.whole = tracer, term, whole
        self.session, self.new = tracer.session, tracer.new
        self.depth = len(whole.sizes)
        if term.sizes[: self.depth] != whole.sizes or len(term.sizes) <= self.depth:
            raise Refuted(f"{self.tell(whole)} does not stand around groups of {self.tell(term)}")
        to_whole = self.session.affine(term.name, len(term.sizes), whole.name, iterators(self.depth))
        terms, wholes = (self.session.instances(p.name, p.domain) for p in (term, whole))
        self.map = self.session.map([to_whole.intersect_domain(terms)])
        if not self.map.range().is_equal(self.session.set([wholes])):
            raise Refuted(f"{self.tell(whole)} does not run where {self.tell(term)} does")

    def tell(self, place: StatementDomain) -> str:
        return self.new.describe(place.statement.id)

    @property
    def size(self) -> int:
        return prod(self.term.sizes[self.depth :])

    def sees(self, place: StatementDomain, reader: int | str) -> isl.UnionMap:
        """Instances of a new statement -> the last write that one of its readers sees."""
        name = f"{place.name}_{reader}"
        return self.tracer.enter(name).apply_range(self.new.seen(name, "last"))

    def as_reader(self, reader: int, whole_reader: int) -> isl.UnionMap:
        """A reader of the term -> the values that the reader ``whole_reader`` of its group's statement
        sees."""
        name, depth = f"{self.term.name}_{reader}", len(self.term.sizes)
        onto = self.session.map([self.session.identity(name, self.term.name, depth)])
        entered = self.tracer.enter(f"{self.whole.name}_{whole_reader}")
        seen = self.tracer.seen(f"{self.whole.name}_{whole_reader}")
        return onto.apply_range(self.map).apply_range(entered).apply_range(seen)

    def check_order_among_others(self) -> None:
        """Raise unless both statements follow the same other operations on the cell, where there are any."""
        for name in (self.term.name, self.whole.name):
            flow = self.new.own_flow(name)
            if flow is None or len(flow.operations) < 2:
                return
        mine, theirs = (
            self.tracer.enter(f"{p.name}_t").apply_range(
                other_operations(self.new, self.new.seen(f"{p.name}_t", "terms"), p.statement.accumulate)
            )
            for p in (self.term, self.whole)
        )
        if not mine.is_equal(self.map.apply_range(theirs)):
            raise Refuted(f"{self.tell(self.whole)}: the cell is changed otherwise in between")


# -- factors ---------------------------------------------------------------------------------------


def check_flow_of_parts(group: Group) -> None:
    """Raise unless all terms of the group, and nothing else, reach the statement that scales them."""
    new, term, whole = group.new, group.term.name, group.whole.name
    for reader in new.flows_of:
        if reader.endswith("_t"):
            continue
        seen = new.seen(reader, "terms")
        if reader != f"{whole}_0":
            if term in writers(seen):
                raise Refuted(f"{new.reader_text(reader)} and sees terms that lack a factor")
            continue
        entered = group.tracer.enter(reader).apply_range(seen)
        others = writers(seen) - {term} - group.tracer.starts
        if others or not with_writers(entered, {term}).is_equal(group.map.reverse()):
            raise Refuted(f"{group.tell(group.whole)} does not scale the sum of {group.tell(group.term)}")


def check_factor(group: Group, old_reader: str, whole_reader: str) -> None:
    """Raise unless the factor behind the sum is, for every term of the group, the one that the term had."""
    known = group.tracer.old.seen(old_reader, group.tracer.mode)
    number = int(whole_reader.rpartition("_")[2])
    group.tracer.equal(old_reader, f"{group.term.name}_0", group.as_reader(0, number), known)


# -- squares ---------------------------------------------------------------------------------------


def check_squares(tracer: Tracer, old: StatementDomain, term: StatementDomain, fix: StatementDomain) -> Pairs:
    """``q += (x - c)^2`` became ``q += (x - m)^2`` and, once a group, ``q += (m - c)^2 * n``.

    :class:`Refuted` unless m is the mean of the group's x.
    """
    group = Group(tracer, term, fix)
    _check_shapes(group, old)
    if group.map.is_empty():
        return []  # a condition that never holds
    _check_one_mean(group)
    _check_centre(group, old)
    _check_sum(group)
    _check_readers(group)
    group.check_order_among_others()
    return [((f"{old.name}_{k}",), (f"{term.name}_{k}",)) for k in (0, 2)]


def _is_square(value: Expression) -> bool:
    """True if the value is ``(a - b) * (a - b)`` for two reads; its leaves are a, b, a, b."""
    if not performs(value, "mul") or value.arguments[0] != value.arguments[1]:
        return False
    inner = value.arguments[0]
    return performs(inner, "sub") and all(isinstance(a, Read) for a in inner.arguments)


def _check_shapes(group: Group, old: StatementDomain) -> None:
    if any(form.highest >= group.depth for form in group.term.statement.guard):
        raise Refuted(f"{group.tell(group.term)}: its condition says how many elements a group has")
    fix = group.whole.statement
    value = fix.value
    shaped = (
        _is_square(old.statement.value)
        and _is_square(group.term.statement.value)
        and performs(value, "mul")
        and _is_square(value.arguments[0])
        and _is_number(value.arguments[1], group.size)
        and {old.statement.accumulate, group.term.statement.accumulate, fix.accumulate} == {"add"}
        and fix.dtype == group.term.statement.dtype == old.statement.dtype
    )
    if not shaped:
        raise Refuted(f"{group.tell(group.whole)} does not correct the squares of {group.size} elements")


def _is_number(value: Expression, number: int) -> bool:
    return isinstance(value, Literal) and value.value == number


def _check_one_mean(group: Group) -> None:
    """Raise unless the squares and the correction use one and the same write of m."""
    mine, theirs = group.sees(group.term, 1), group.sees(group.whole, 0)
    if not mine.is_equal(group.map.apply_range(theirs)):
        raise Refuted(f"{group.tell(group.whole)} uses another mean than {group.tell(group.term)}")


def _check_centre(group: Group, old: StatementDomain) -> None:
    """Raise unless the correction uses the c that the old squares did."""
    reader = f"{old.name}_1"
    known = group.tracer.old.seen(reader, group.tracer.mode)
    group.tracer.equal(reader, f"{group.term.name}_1", group.as_reader(1, 1), known)


def _check_sum(group: Group) -> None:
    """Raise unless m is t / n, and t the sum of the group's elements from 0 on, each of them once."""
    new, tracer = group.new, group.tracer
    means = group.sees(group.whole, 0)
    name, *others = sorted(writers(means))
    if others:
        raise Refuted(f"{group.tell(group.whole)} has several means")
    mean = new.by_name[name]
    value = mean.statement.value
    if not (
        performs(value, "div")
        and isinstance(value.arguments[0], Read)
        and _is_number(value.arguments[1], group.size)
        and mean.statement.accumulate is None
    ):
        raise Refuted(f"{group.tell(mean)} is not the mean of {group.size} elements")
    parts = means.apply_range(tracer.enter(f"{name}_0")).apply_range(new.seen(f"{name}_0", "terms"))
    steps = set()
    for writer in writers(parts):
        place = new.by_name[writer]
        if place.statement.accumulate == "add" and isinstance(place.statement.value, Read):
            steps.add(writer)
        elif place.statement.accumulate or not _is_number(place.statement.value, 0):
            raise Refuted(f"{group.tell(mean)} reads more than a sum: {group.tell(place)} takes part")
    parts = with_writers(parts, steps)
    added = group.session.map()
    for step in sorted(steps):
        added = added.union(group.sees(new.by_name[step], 0))
    elements = group.sees(group.term, 0)
    same = parts.apply_range(added).is_equal(group.map.reverse().apply_range(elements))
    once = parts.reverse().range_product(added).is_injective()
    if not (same and once and group.map.range_product(elements).is_injective()):
        raise Refuted(f"{group.tell(mean)} is the mean of other elements than {group.tell(group.term)} has")


def _check_readers(group: Group) -> None:
    """Raise unless every read that sees a corrected term, or a correction, sees the whole group and its
    correction."""
    for reader in group.new.flows_of:
        seen = group.new.seen(reader, "terms")
        if reader.endswith("_t") or not writers(seen) & {group.term.name, group.whole.name}:
            continue
        terms = with_writers(seen, {group.term.name})
        fixes = with_writers(seen, {group.whole.name})
        if not terms.is_equal(fixes.apply_range(group.map.reverse())):
            raise Refuted(f"{group.new.reader_text(reader)} and sees a sum of squares in part")

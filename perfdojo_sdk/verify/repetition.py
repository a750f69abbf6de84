"""The dependence check of a move that leaves one iteration of a scope for all of them.

The proof is an induction over the old program: where each read in an iteration sees what the read in the
iteration that is left sees, or another instance of the same repetition that has the same value for the same
reason, both compute one value.
"""

from __future__ import annotations

from perfdojo_sdk.verify.instances import expression_leaves
from perfdojo_sdk.verify.sets import Refuted, with_writers
from perfdojo_sdk.verify.tracing import Origins


def check_repeated(origins: Origins, ordered: bool) -> None:
    """Raise unless all iterations of each level that is said to be a repetition compute the same values."""
    old, session = origins.old, origins.session
    for name in origins.repeated:
        place = old.by_name[name]
        described = old.describe(place.statement.id)
        if not ordered:
            raise Refuted(f"{described} is said to be repeated by a move that changes the order of sums")
        if old.chooses(name):
            raise Refuted(f"{described} is said to be repeated, and run-time indices choose what it writes")
        instances = session.set([session.instances(name, place.domain)])
        if not instances.apply(session.map([origins.first(name)])).is_subset(instances):
            raise Refuted(
                f"{described} is said to be repeated, and the iteration that is left does not run it"
            )
        readers = [f"{name}_{k}" for k, _ in enumerate(expression_leaves(place.statement.value))]
        for reader in [*readers, *([f"{name}_t"] if place.statement.accumulate else [])]:
            seen = origins.once(old.seen(reader, "last"))
            left = session.map([origins.first(name, reader)]).apply_range(seen)
            if not left.is_equal(seen):
                raise Refuted(f"{old.reader_text(reader)}, which is not the same in all iterations")
    if old.horizontal:
        _check_counted_once(origins)


def _check_counted_once(origins: Origins) -> None:
    """Raise where a sum, seen as the set of its terms, has several that one instance would stand for."""
    names = origins.repeated.keys()
    onto = origins.session.map([origins.first(name) for name in sorted(names)])
    alike = onto.apply_range(onto.reverse()).subtract(onto.domain().identity())
    for reader in origins.old.flows_of:
        terms = with_writers(origins.old.seen(reader, "terms"), {*names})
        if not terms.reverse().apply_range(terms).intersect(alike).is_empty():
            raise Refuted(f"{origins.old.reader_text(reader)} and sees several terms that became one")

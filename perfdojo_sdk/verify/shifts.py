"""The dependence check of an integer sum with a greater factor and of what is taken away again behind it."""

from __future__ import annotations

from collections.abc import Iterable

from perfdojo_sdk.verify.instances import ProgramSets, StatementDomain
from perfdojo_sdk.verify.sets import Refuted, writers


def check_behind(new: ProgramSets, sum_: StatementDomain, rest: StatementDomain) -> None:
    """Raise unless nothing but ``rest`` sees what ``sum_`` writes, in each instance what the same instance
    wrote."""
    described = new.describe(rest.statement.id)
    if sum_.sizes != rest.sizes or any(new.chooses(p.name) or new.lanes_meet(p) for p in (sum_, rest)):
        raise Refuted(f"{described} does not stand behind {new.describe(sum_.statement.id)}")
    own = f"{rest.name}_t"
    same = new.session.identity(own, sum_.name, len(rest.sizes))
    same = same.intersect_domain(new.session.instances(own, rest.domain))
    if not new.seen(own, "last").is_equal(new.session.map([same])):
        raise Refuted(f"{described} adds onto something else than {new.describe(sum_.statement.id)}")
    for reader in new.flows_of:
        if reader != own and sum_.name in writers(new.seen(reader, "last")):
            raise Refuted(f"{new.reader_text(reader)} and sees a sum from which nothing is taken away yet")


def check_same_reads(new: ProgramSets, readers: Iterable[tuple[str, str]]) -> None:
    """Raise unless both readers of each pair, of statements in the same scopes, see the same values."""
    for one, other in readers:
        depth = len(new.by_name[one.rpartition("_")[0]].sizes)
        onto = new.session.map([new.session.identity(one, other, depth)])
        if not onto.apply_range(new.seen(other, "last")).is_equal(new.seen(one, "last")):
            raise Refuted(
                f"{new.reader_text(other)}, which is something else than {new.reader_text(one)} sees"
            )

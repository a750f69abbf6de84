"""Two programs as the dependence leg compares them: with what a move may have known written into both."""

from __future__ import annotations

from typing import NamedTuple

from perfdojo_sdk.core.dialect import Dialect
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.core.transformation import Instance, Relation, Removed
from perfdojo_sdk.verify.instances import ProgramSets
from perfdojo_sdk.verify.sets import Refuted, Session
from perfdojo_sdk.verify.tables import with_elements
from perfdojo_sdk.verify.zero_sums import without_zero_sums


class Compared(NamedTuple):
    """Two programs to compare, and the relation between them."""

    before: Program
    after: Program
    relation: Relation


def written_out(
    session: Session, before: Program, after: Program, relation: Relation, dialect: Dialect
) -> Compared:
    """Both programs; where the relation says so, with the elements of tables written into both statements,
    and without the old sums that add nothing."""
    pairs = [(i, o.statement) for i, o in relation.items() if isinstance(o, Instance) and o.of_tables]
    nothing = {i for i, o in relation.items() if isinstance(o, Removed) and o.adds_nothing}
    if pairs:
        before = with_elements(before, {old for _, old in pairs})
        after = with_elements(after, {new for new, _ in pairs})
    if nothing:
        whole, before = before, without_zero_sums(before, nothing)
        old, new = (ProgramSets(session, program, dialect).copies for program in (whole, before))
        changed = [name for name in old.keys() & new.keys() if old[name] != new[name]]
        if not all(before.interface & {*before.buffer_of[name].arrays} for name in changed):
            raise Refuted("an array of which all iterations have one gets copies")
        relation = {i: origin for i, origin in relation.items() if i not in nothing}
    return Compared(before, after, relation)

"""A move that runs once what all iterations of a scope do alike."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from perfdojo_sdk.core.dependence import leaking_level
from perfdojo_sdk.core.dialect import Dialect
from perfdojo_sdk.core.expression import Access, AffineExpr, IndexValue, Renumbering
from perfdojo_sdk.core.frozen import frozen, lazy
from perfdojo_sdk.core.made import Gone, Rewritten
from perfdojo_sdk.core.program import Node, Occurrence, Program, Scope, Statement
from perfdojo_sdk.core.storage import Buffer, Dimension
from perfdojo_sdk.core.transformation import (
    NO_MOVE,
    Analysed,
    Facts,
    Instance,
    Move,
    Refusal,
    Relation,
    Requirement,
    Site,
)
from perfdojo_sdk.core.transformations.scopes import (
    levels,
    no_suffix,
    refuse_leak,
    shifted,
    statements_below,
)

_FIRST = AffineExpr.of({})
"""The index of the only copy that is left."""


@frozen
class Repetition(Facts):
    """A scope, and the dimensions in which its iterations have copies of an array."""

    @lazy
    def copied(self) -> Mapping[str, frozenset[int]]:
        """Array -> its dimensions that the iterator counts, of those that the scope writes."""
        return _copied(self.site.scope, self.site.level)

    @lazy
    def inside(self) -> Mapping[str, tuple[Occurrence, ...]]:
        """Buffer that the scope writes -> its accesses inside."""
        program, path = self.site.program, self.site.path
        found = {
            name: tuple([o for o in uses if o.path[: len(path)] == path])
            for name, uses in program.occurrences.items()
        }
        return {name: uses for name, uses in found.items() if any(o.writes for o in uses)}

    @lazy
    def program(self) -> Program:
        """The program after the move."""
        site, level = self.site, self.site.level
        by = Renumbering((*levels(level), _FIRST, *shifted(level + 1, -1)), level)
        program = site.replaced(tuple([child.renumbered(by) for child in site.scope.body]))
        for array, dims in self.copied.items():
            buffer = program.buffer_of[array]
            sizes = [Dimension(1) if k in dims else d for k, d in enumerate(buffer.dimensions)]
            program = program.with_buffer(buffer.name, buffer.with_dimensions(tuple(sizes)))
        return program.with_body(tuple([_of_first(node, self.copied) for node in program.body]))


def _copied(scope: Scope, level: int) -> dict[str, frozenset[int]]:
    """Array -> the dimensions in which the iterations of a scope write one place each."""
    found: dict[str, frozenset[int]] = {}
    for array, touches in scope.touches.items():
        dims = [_counted(touch.access, level) for touch in touches if touch.writes]
        if dims and dims[0]:
            found[array] = frozenset.intersection(*dims)
    return found


def _counted(access: Access, level: int) -> frozenset[int]:
    """The dimensions whose subscript is the iterator alone."""
    plain = AffineExpr.level(level)
    return frozenset([k for k, subscript in enumerate(access.subscripts) if subscript == plain])


def _of_first(node: Node, copied: Mapping[str, frozenset[int]]) -> Node:
    """The node with the only copy left in place of every other one."""
    if node.arrays.isdisjoint(copied):
        return node
    if isinstance(node, Scope):
        return node.with_body(tuple([_of_first(child, copied) for child in node.body]))
    forms = list(node.forms)
    for array, at in node.slots:
        for k in copied.get(array, ()):
            forms[at + k] = _FIRST
    return node.alike(tuple(forms), node.id)


def _own_work(scope: Scope, level: int) -> tuple[Statement, str | Access] | None:
    """A statement in which an iteration does something of its own, and the place in it."""
    copied = _copied(scope, level)
    for leaf in scope.leaves:
        statement = leaf.statement
        for access in (statement.target, *statement.reads):
            dims = copied.get(access.array, frozenset())
            mine = [k for k, subscript in enumerate(access.subscripts) if level in subscript.levels]
            if not set(mine) <= dims & _counted(access, level):
                return statement, access
        counts = [form.index for form in statement.value.forms if isinstance(form, IndexValue)]
        if any(level in form.levels for form in (*counts, *statement.guard)) or statement.lookups:
            return statement, ""
    return None


def _all_alike(facts: Repetition) -> Refusal | None:
    found = _own_work(facts.site.scope, facts.site.level)
    if found is None:
        return None
    statement, mark = found
    return Refusal.of(statement.id, mark, nodes=(facts.site.scope.id,), statement=statement.text)


def _written_here_alone(facts: Repetition) -> Refusal | None:
    """Refuse a scope that writes what others write, too, or whose iterations use copies of each other."""
    site = facts.site
    for name, uses in facts.inside.items():
        buffer = site.program.buffer(name)
        assert buffer is not None
        others = [o for o in site.program.occurrences[name] if o.writes and o not in uses]
        if others or not site.program.in_out.isdisjoint(buffer.arrays):
            at = others[0] if others else uses[0]
            return Refusal.of(at.statement.id, at.access, nodes=(site.scope.id,), access=at.access.text)
        for o in uses if _is_copied(facts, buffer) else ():
            if not _fits(facts, buffer, o):
                return Refusal.of(o.statement.id, o.access, nodes=(site.scope.id,), access=o.access.text)
    return None


def _is_copied(facts: Repetition, buffer: Buffer) -> bool:
    return not facts.copied.keys().isdisjoint(buffer.arrays)


def _fits(facts: Repetition, buffer: Buffer, use: Occurrence) -> bool:
    """True if an access is of the copy of its iteration, of a temporary that has as many copies as there are
    iterations."""
    site, dims = facts.site, facts.copied.get(use.access.array, frozenset())
    own = site.program.interface.isdisjoint(buffer.arrays) and len(buffer.arrays) == 1
    alike = dims == _counted(use.access, site.level)
    return own and alike and all(buffer.shape[k] == site.scope.size for k in dims)


def _nothing_passes(facts: Repetition) -> Refusal | None:
    """No iteration reads what another one wrote, so that each of them reads only what it wrote itself, and
    what the scope does not write."""
    depth = facts.site.level + 1
    for name, uses in facts.inside.items():
        buffer = facts.site.program.buffer(name)
        assert buffer is not None
        level = leaking_level(buffer, uses, depth)
        if level is not None:
            return refuse_leak(buffer, uses, level)
    return None


class RunOnce(Analysed[Repetition]):
    """Run once what every iteration of a scope does alike, and take the scope away.

    Iterations may differ in the copy of a temporary that they write: one copy is left, for all readers.

    before:
        4 8
        | t[{0},{1}] = 0
        | 16 t[{0},{1}] += w[{1},{2}]
        4 8 y[{0},{1}] = x[{0},{1}] + t[{0},{1}]
    after: run_once(s0)
        t f32 [1,8] heap
        8
        | t[0,{0}] = 0
        | 16 t[0,{0}] += w[{0},{1}]
        4 8 y[{0},{1}] = x[{0},{1}] + t[0,{1}]
    """

    name = "run_once"
    place = "scope"
    requirements = (
        Requirement(
            "PD-T701",
            "the scope has a suffix",
            "{head} is already mapped to the hardware",
            "play the move first, then annotate",
            no_suffix,
            established_by=NO_MOVE,
        ),
        Requirement(
            "PD-T702",
            "an iteration does something of its own",
            "{statement} depends on the iterator otherwise than through its copy, or on a run-time index",
            "bring what does not depend on it into a scope of its own, with fission_scope",
            _all_alike,
            semantic=True,
            established_by=("fission_scope", "factor_reduction"),
        ),
        Requirement(
            "PD-T703",
            "what the scope writes is used otherwise, too",
            "{access}: others write the array as well, or an iteration uses another copy than its own",
            "give the results an array of their own, with one copy for each iteration or one for all",
            _written_here_alone,
            semantic=True,
            established_by=("split_reduction", "factor_reduction", "stage_write", "unshare_storage"),
        ),
        Requirement(
            "PD-T704",
            "a value passes from one iteration to another",
            "values of {buffer} may pass from one iteration of {level} to another",
            "start the values inside of the scope, as each iteration reads them",
            _nothing_passes,
            semantic=True,
            established_by=("join_scopes",),
        ),
    )

    def candidates(self, program: Program, dialect: Dialect) -> Iterator[Move]:
        for path, scope in program.scopes:
            if not scope.suffix and _own_work(scope, len(path) - 1) is None:
                yield Move(self.name, scope.id)

    def analyse(self, site: Site) -> Repetition:
        return Repetition(site)

    def rewrite(self, facts: Repetition, /) -> Rewritten:
        return Rewritten(facts.program, Gone((facts.site.scope.id,)))

    def relation(self, facts: Repetition, result: Program, /) -> Relation:
        level = facts.site.level
        return {
            statement.id: Instance(
                statement.id,
                (*levels(level), _FIRST, *levels(depth - level - 1, level)),
                repeated=level,
            )
            for statement, depth in statements_below(facts.site.scope, level)
        }


MOVES = (RunOnce(),)

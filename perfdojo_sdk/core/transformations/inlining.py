"""Moves that compute a value again where it is read, and that remove a buffer which nothing reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from perfdojo_sdk.core.dependence import may_meet
from perfdojo_sdk.core.dialect import Dialect
from perfdojo_sdk.core.expression import (
    Access,
    AffineExpr,
    Expression,
    Read,
    Renumbering,
    map_expression,
    renumbered,
)
from perfdojo_sdk.core.frozen import frozen, lazy
from perfdojo_sdk.core.geometry import common_depth, negative_dividends
from perfdojo_sdk.core.made import Gone, Rewritten
from perfdojo_sdk.core.program import LocatedNode, Node, Occurrence, Program, Scope, Statement
from perfdojo_sdk.core.projection import follows
from perfdojo_sdk.core.reaching import (
    Spot,
    another_write,
    change_between,
    matching_instance,
    one_instance_each,
    shared,
)
from perfdojo_sdk.core.transformation import (
    NO_MOVE,
    Analysed,
    Facts,
    Instance,
    Move,
    Parameter,
    Refusal,
    Relation,
    Removed,
    Requirement,
    Site,
)
from perfdojo_sdk.core.transformations.scopes import levels, refuse_violation
from perfdojo_sdk.core.transformations.staging import stays_inside
from perfdojo_sdk.core.transformations.storage import first_use, temporaries
from perfdojo_sdk.core.validate import has_dtype, takes_no_dtype, target_violations

#: Most elements that a statement may read once a definition has been put in.
MAX_READS = 32


def here(site: Site) -> Spot:
    """The place of a move on a statement."""
    return Spot(site.statement, site.path, site.outer_sizes)


def well_formed(site: Site, result: Program, places: Sequence[LocatedNode]) -> Refusal | None:
    """A refusal where the target forbids an access of the new statements at ``places``."""
    problem = next(target_violations(result, places, site.dialect), None)
    return refuse_violation(site, problem, site.move.place) if problem else None


NOT_ALLOWED = (
    "the target does not allow the new accesses",
    "{what}",
    "play the move before annotating scopes and setting locations",
)


def in_its_place(site: Site, statement: Statement) -> LocatedNode:
    """The place of a statement that replaces the site's."""
    return LocatedNode(statement, site.path, site.above, site.outer_sizes)


# -- inline_definition -----------------------------------------------------------------------------


@frozen
class Inlining(Facts):
    """A statement, what it reads of an array, and the statement before it that writes the array."""

    reads: tuple[Access, ...]
    """Different accesses of the array in the statement's value."""
    definition: Spot
    reader: Spot

    @lazy
    def found(self) -> Mapping[Access, tuple[AffineExpr, ...]] | Access:
        """The instance of the definition that wrote each element; or the first access where it is unknown."""
        definition, reader, target = self.definition, self.reader, self.definition.statement.target
        buffer = self.site.program.buffer_of[target.array]
        written = [target.subscripts[k] for k in buffer.materialised]
        found: dict[Access, tuple[AffineExpr, ...]] = {}
        for read in self.reads:
            wanted = [read.subscripts[k] for k in buffer.materialised]
            instance = matching_instance(written, definition, wanted, reader, reader.statement.guard)
            if instance is None:
                return read
            found[read] = instance
        return found

    @property
    def instances(self) -> Mapping[Access, tuple[AffineExpr, ...]]:
        """The instance that wrote each element, where all of them are known."""
        assert not isinstance(self.found, Access)
        return self.found

    @lazy
    def inlined(self) -> Statement:
        """The statement that computes the elements."""
        definition, instances = self.definition.statement, self.instances

        def value(e: Expression) -> Expression:
            if not isinstance(e, Read) or e.access not in instances:
                return e
            return renumbered(definition.value, Renumbering(instances[e.access]))

        statement = self.site.statement
        return statement.with_parts(statement.target, map_expression(statement.value, value))

    @lazy
    def program(self) -> Program:
        """The program after the move."""
        return self.site.replaced((self.inlined,))


def _written_once(facts: Inlining) -> Refusal | None:
    """No other statement writes an element between the definition and the read."""
    program, definition, found = facts.site.program, facts.definition, facts.found
    target = definition.statement.target
    for read in facts.reads:
        later = None if isinstance(found, Access) else read
        o = another_write(program, target, definition, later, facts.reader)
        if o is not None:
            array, write = facts.site.move["array"], o.access.text
            return Refusal.of(
                o.statement.id, o.access, nodes=(definition.statement.id,), array=array, write=write,
                read=read.text,
            )  # fmt: skip
    return None


def _written_where_read(facts: Inlining) -> Refusal | None:
    """The condition of the definition follows from that of the reader, in each instance that is read."""
    definition, reader, found = facts.definition.statement, facts.reader, facts.found
    if not definition.guard or isinstance(found, Access):
        return None
    for read, instance in found.items():
        wanted = [form.substitute(instance.__getitem__) for form in definition.guard]
        if not follows(wanted, reader.statement.guard, reader.sizes):
            return Refusal.of(
                definition.id, "if", nodes=(reader.statement.id,), access=definition.target,
                write=definition.text, read=read.text,
            )  # fmt: skip
    return None


def _one_dtype(facts: Inlining) -> Refusal | None:
    mine, definition = facts.site.statement, facts.definition.statement
    if mine.dtype == definition.dtype:
        return None
    return Refusal.of(mine.id, nodes=(definition.id,), mine=mine.dtype, theirs=definition.dtype)


def _instance_known(facts: Inlining) -> Refusal | None:
    read, definition = facts.found, facts.definition.statement
    if not isinstance(read, Access):
        return None
    write = definition.target.text
    return Refusal.of(facts.site.statement.id, read, nodes=(definition.id,), read=read.text, write=write)


def _written_by_one(facts: Inlining) -> Refusal | None:
    definition = facts.definition
    target = definition.statement.target
    inner = range(shared(definition, facts.reader), definition.depth)
    if one_instance_each(facts.site.program.buffer_of[target.array], target, definition, inner):
        return None
    return Refusal.of(definition.statement.id, target, write=target.text)


def _operands_unchanged(facts: Inlining) -> Refusal | None:
    definition, reader, program = facts.definition, facts.reader, facts.site.program
    for instance in facts.instances.values():
        for operand in definition.statement.reads:
            if operand.array in program.read_only:
                continue
            later = operand.substitute(instance.__getitem__)
            write = change_between(program, operand, definition, later, reader)
            if write:
                return Refusal.of(
                    write.statement.id, write.access, operand=operand.text, write=write.access.text
                )
    return None


def _readable(facts: Inlining) -> Refusal | None:
    count = len(facts.inlined.reads)
    if count <= MAX_READS:
        return None
    return Refusal.of(facts.site.statement.id, count=count, most=MAX_READS)


def _dtypes_said(facts: Inlining) -> Refusal | None:
    if has_dtype(facts.definition.statement.value):
        return None
    for term in facts.inlined.value.terms:
        if takes_no_dtype(term):
            return Refusal.of(facts.site.statement.id, term=term.text)
    return None


def _operands_inside(facts: Inlining) -> Refusal | None:
    """Under a condition, iterations beyond it take the definition's subscripts where it never was."""
    statement, sizes = facts.inlined, facts.site.outer_sizes
    if not statement.guard:
        return None
    for read in statement.reads:
        if not stays_inside(facts.site.program, read, sizes, statement.guard):
            return Refusal.of(
                facts.site.statement.id, nodes=(facts.definition.statement.id,), operand=read.text
            )
    for form in negative_dividends(statement, sizes):
        return Refusal.of(facts.site.statement.id, nodes=(facts.definition.statement.id,), operand=form.text)
    return None


def _inlined_fits(facts: Inlining) -> Refusal | None:
    return well_formed(facts.site, facts.program, [in_its_place(facts.site, facts.inlined)])


class InlineDefinition(Analysed[Inlining]):
    """Compute a value again where it is read, instead of reading the array that keeps it.

    Once nothing reads the array any more, remove_dead takes it away.

    before:
        8 t[{0}] = exp(x[{0}])
        4 2 y[{0},{1}] = t[{0}*2+{1}] + 1
    after: inline_definition(c1, array=t)
        8 t[{0}] = exp(x[{0}])
        4 2 y[{0},{1}] = exp(x[{0}*2+{1}]) + 1
    """

    name = "inline_definition"
    place = "statement"
    parameters = (Parameter("array", str, "the array whose elements are computed instead of read"),)
    requirements = (
        Requirement(
            "PD-T251",
            "the statement reads no such definition",
            "no element of {array} is read here that a plain statement before it writes",
            "name an array that the statement reads and the kernel writes",
            None,
            established_by=("reorder_statements",),
        ),
        Requirement(
            "PD-T252",
            "another statement may write the element last",
            "{write} writes {array} too, so {read} may not be the value of one statement",
            "give the other value an array of its own",
            _written_once,
            semantic=True,
            established_by=("stage_write",),
        ),
        Requirement(
            "PD-T259",
            "the definition stands under a condition that the reader does not",
            "{write} is not shown to write every {read}",
            "split the scopes so that the condition goes away",
            _written_where_read,
            semantic=True,
            established_by=("drop_condition", "split_range"),
        ),
        Requirement(
            "PD-T253",
            "the subscripts do not tell which instance wrote the element",
            "{read} cannot be solved for the iterators of {write}",
            "bring both statements into one nest with join_scopes first",
            _instance_known,
            established_by=("join_scopes",),
        ),
        Requirement(
            "PD-T254",
            "several instances write one element",
            "{write} is written by more than one iteration, and only the last one counts",
            "keep the array",
            _written_by_one,
            semantic=True,
            established_by=NO_MOVE,
        ),
        Requirement(
            "PD-T255",
            "an operand may have changed when the element is read",
            "{write} may change {operand} between the definition and the read",
            "keep the array, or move the write behind the read",
            _operands_unchanged,
            semantic=True,
            established_by=("reorder_statements", "unshare_storage"),
        ),
        Requirement(
            "PD-T256",
            "the dtypes differ",
            "the statement computes in {mine}, the definition in {theirs}",
            "keep the array",
            _one_dtype,
            established_by=NO_MOVE,
        ),
        Requirement(
            "PD-T257",
            "the statement would become too long",
            "it would read {count} elements, {most} are allowed",
            "keep the array",
            _readable,
            established_by=NO_MOVE,
        ),
        Requirement(
            "PD-T260",
            "the text would no longer say the dtype",
            "nothing in {term} would say in which dtype it is computed",
            "keep the array: its dtype is what the numbers are read in",
            _dtypes_said,
            established_by=NO_MOVE,
        ),
        Requirement(
            "PD-T263",
            "an operand is not shown to stay inside its array",
            "{operand} would be used under the condition of the reader, which does not bound it",
            "keep the array, or split the scopes so that the condition goes away",
            _operands_inside,
            established_by=("drop_condition", "split_range", "pad_dim"),
        ),
        Requirement(
            "PD-T258",
            "the target does not allow the new accesses",
            "{what}",
            "inline before annotating scopes and setting locations",
            _inlined_fits,
            established_by=("set_location",),
        ),
    )

    def candidates(self, program: Program, dialect: Dialect) -> Iterator[Move]:
        for _, node in program.walk():
            if isinstance(node, Statement):
                for array in dict.fromkeys(r.array for r in node.reads):
                    if array not in program.read_only:
                        yield Move(self.name, node.id, (("array", array),))

    def analyse(self, site: Site) -> Inlining | Refusal:
        array, program, reader = site.move["array"], site.program, here(site)
        buffer = program.buffer_of.get(array)
        reads = tuple(dict.fromkeys(r for r in reader.statement.reads if r.array == array))
        writes = [
            o
            for o in (program.occurrences[buffer.name] if buffer else ())
            if o.writes and o.path < reader.path and o.access.array == array
        ]
        plain = [o for o in writes if not o.statement.accumulate]
        if not plain or not reads:
            return Refusal.of(reader.statement.id, reader.statement.text, arrays=(array,))
        last = next((o for o in reversed(plain) if _may_define(o, reads, reader, program)), plain[-1])
        return Inlining(site, reads, Spot(last.statement, last.path, last.sizes), reader)

    def rewrite(self, facts: Inlining, /) -> Program:
        return facts.program

    def relation(self, facts: Inlining, result: Program, /) -> Relation:
        definition, mine = facts.definition.statement.id, facts.site.statement.id
        return {mine: Instance(mine, levels(facts.site.level), inlined=(definition,))}


def _may_define(write: Occurrence, reads: Sequence[Access], reader: Spot, program: Program) -> bool:
    """True if a write before the reader, in the same iteration of the scopes around both, may be of an
    element that is read."""
    same = "=" * common_depth([write.path, reader.path])
    buffer = program.buffer_of[write.access.array]
    return any(may_meet(buffer, write.access, write.sizes, r, reader.sizes, same) for r in reads)


# -- remove_dead -----------------------------------------------------------------------------------


@frozen
class Dead(Facts):
    """A buffer whose arrays may be dead, and the tree without them."""

    arrays: frozenset[str]

    @lazy
    def left(self) -> tuple[tuple[Node, ...], tuple[Node, ...]]:
        """The tree without the statements that write the arrays; and the nodes that are gone."""
        gone: list[Node] = []
        return _without(self.site.program.body, self.arrays, gone.append), tuple(gone)


def _not_returned(facts: Dead) -> Refusal | None:
    buffer = facts.site.storage
    if facts.site.program.interface.isdisjoint(buffer.arrays):
        return None
    return Refusal.of(first_use(facts.site), arrays=buffer.arrays, buffer=buffer.name)


def _not_read(facts: Dead) -> Refusal | None:
    """Statements that write the buffer may read it: they go too."""
    name = facts.site.storage.name
    for o in facts.site.program.occurrences[name]:
        if not o.writes and o.statement.target.array not in facts.arrays:
            return Refusal.of(o.statement.id, o.access, read=o.access.text, buffer=name)
    return None


def _without(
    nodes: tuple[Node, ...], arrays: frozenset[str], drop: Callable[[Node], None]
) -> tuple[Node, ...]:
    """The nodes less the statements that write the arrays and the scopes that this empties, which ``drop``
    gets."""
    kept: list[Node] = []
    for node in nodes:
        if arrays.isdisjoint(node.touches):
            kept.append(node)
        elif isinstance(node, Scope):
            body = _without(node.body, arrays, drop)
            if body:
                kept.append(node.with_body(body))
            else:
                drop(node)
        elif node.target.array not in arrays:
            kept.append(node)
        else:
            drop(node)
    return tuple(kept)


class RemoveDead(Analysed[Dead]):
    """Remove a buffer that nothing reads, with the statements that write it.

    before:
        8
        | t[{0}] = exp(x[{0}])
        | y[{0}] = t[{0}] + 1
    after: inline_definition(c1, array=t), remove_dead(t)
        8 y[{0}] = exp(x[{0}]) + 1
    """

    name = "remove_dead"
    place = "buffer"
    requirements = (
        Requirement(
            "PD-T261",
            "the caller owns the buffer",
            "{buffer} is part of the kernel's interface",
            "keep it",
            _not_returned,
            established_by=NO_MOVE,
        ),
        Requirement(
            "PD-T262",
            "the buffer is read",
            "{read} needs what {buffer} holds",
            "replace the reads with inline_definition first",
            _not_read,
            semantic=True,
            established_by=("inline_definition", "remove_dead"),
        ),
    )

    def candidates(self, program: Program, dialect: Dialect) -> Iterator[Move]:
        return (Move(self.name, buffer.name) for buffer in temporaries(program))

    def analyse(self, site: Site) -> Dead:
        return Dead(site, frozenset(site.storage.arrays))

    def rewrite(self, facts: Dead, /) -> Rewritten:
        program, name, (body, gone) = facts.site.program, facts.site.storage.name, facts.left
        used = any(not facts.arrays.isdisjoint(node.touches) for node in body)
        kept = tuple([b for b in program.buffers if used or b.name != name])
        made = Gone(tuple([node.id for node in gone]), "" if used else name)
        return Rewritten(Program(program.name, program.inputs, program.outputs, kept, body), made)

    def relation(self, facts: Dead, result: Program, /) -> Relation:
        _, gone = facts.left
        return {node.id: Removed() for node in gone if isinstance(node, Statement)}


MOVES = (InlineDefinition(), RemoveDead())

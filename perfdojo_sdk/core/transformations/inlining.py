"""A value computed again where it is read, instead of being kept; and what nothing reads any more removed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from perfdojo_sdk.core.dialect import Dialect
from perfdojo_sdk.core.expression import (
    Access,
    Expression,
    Read,
    Renumbering,
    map_expression,
    renumbered,
)
from perfdojo_sdk.core.made import Gone, Rewritten
from perfdojo_sdk.core.program import Node, Place, Program, Scope, Statement
from perfdojo_sdk.core.reaching import Spot, change_between, matching_instance, one_instance_each, shared
from perfdojo_sdk.core.transformation import (
    Instance,
    Move,
    Parameter,
    Refusal,
    Relation,
    Removed,
    Requirement,
    Site,
    Transformation,
)
from perfdojo_sdk.core.transformations.scopes import levels
from perfdojo_sdk.core.transformations.storage import temporaries, words_only
from perfdojo_sdk.core.validate import has_dtype, takes_no_dtype, target_violations

#: Most elements that a statement may read once a definition has been put in.
MAX_READS = 32


def here(site: Site) -> Spot:
    """The place of a move on a statement."""
    return Spot(site.statement, site.path, site.outer_sizes)


def well_formed(site: Site, result: Program, places: Sequence[Place]) -> Refusal | None:
    """Whether the target's locations and lanes allow the accesses of the new statements at ``places``."""
    problem = next(target_violations(result, places, site.dialect), None)
    return Refusal.of(site.move.place, "", what=problem.what) if problem else None


def in_its_place(site: Site, statement: Statement) -> Place:
    """Where a statement stands that replaces the site's."""
    return Place(statement, site.path, site.above, site.outer_sizes)


# -- inline_definition -----------------------------------------------------------------------------


def _reads_defined(site: Site) -> Refusal | None:
    array, program, reader = site.move["array"], site.program, here(site)
    buffer = program.buffer_of.get(array)
    site.scratch["reads"] = tuple(dict.fromkeys(r for r in reader.statement.reads if r.array == array))
    writes = [
        o
        for o in (program.occurrences[buffer.name] if buffer else ())
        if o.writes and o.path < reader.path and o.access.array == array
    ]
    plain = [o for o in writes if not o.statement.accumulate]
    if not plain or not site.scratch["reads"]:
        return Refusal.of(reader.statement.id, reader.statement.text, array=array)
    site.scratch["definition"] = Spot(plain[-1].statement, plain[-1].path, plain[-1].sizes)
    return None


def _definition(site: Site) -> Spot:
    found: Spot = site.scratch["definition"]
    return found


def _written_once(site: Site) -> Refusal | None:
    definition = _definition(site).statement
    buffer = site.program.buffer_of[definition.target.array]
    for o in site.program.occurrences[buffer.name]:
        if o.writes and o.statement.id != definition.id:
            return Refusal.of(o.statement.id, o.access.text, array=site.move["array"], write=o.access.text)
    return None


def _always_written(site: Site) -> Refusal | None:
    definition = _definition(site).statement
    return Refusal.of(definition.id, "if", write=definition.text) if definition.guard else None


def _one_dtype(site: Site) -> Refusal | None:
    mine, theirs = site.statement.dtype, _definition(site).statement.dtype
    if mine == theirs:
        return None
    return Refusal.of(site.statement.id, "", mine=mine, theirs=theirs)


def _instance_known(site: Site) -> Refusal | None:
    definition, reader = _definition(site), here(site)
    target = definition.statement.target
    buffer = site.program.buffer_of[target.array]
    written = [target.subscripts[k] for k in buffer.materialised]
    found: dict[Access, tuple[object, ...]] = {}
    for read in site.scratch["reads"]:
        wanted = [read.subscripts[k] for k in buffer.materialised]
        instance = matching_instance(written, definition, wanted, reader)
        if instance is None:
            return Refusal.of(site.statement.id, read.text, read=read.text, write=target.text)
        found[read] = instance
    site.scratch["instances"] = found
    return None


def _written_by_one(site: Site) -> Refusal | None:
    definition, reader = _definition(site), here(site)
    target = definition.statement.target
    inner = range(shared(definition, reader), definition.depth)
    if one_instance_each(site.program.buffer_of[target.array], target, definition, inner):
        return None
    return Refusal.of(definition.statement.id, target.text, write=target.text)


def _operands_unchanged(site: Site) -> Refusal | None:
    definition, reader = _definition(site), here(site)
    for instance in site.scratch["instances"].values():
        for operand in definition.statement.reads:
            if operand.array in site.program.inputs:
                continue
            later = operand.substitute(instance.__getitem__)
            write = change_between(site.program, operand, definition, later, reader)
            if write:
                return Refusal.of(
                    write.statement.id, write.access.text, operand=operand.text, write=write.access.text
                )
    return None


def _inlined(site: Site) -> Statement:
    definition, instances = _definition(site).statement, site.scratch["instances"]

    def value(e: Expression) -> Expression:
        if not isinstance(e, Read) or e.access not in instances:
            return e
        return renumbered(definition.value, Renumbering(instances[e.access]))

    return site.statement.with_parts(site.statement.target, map_expression(site.statement.value, value))


def _readable(site: Site) -> Refusal | None:
    count = len(site.once(_inlined).reads)
    if count <= MAX_READS:
        return None
    return Refusal.of(site.statement.id, "", count=count, most=MAX_READS)


def _dtypes_said(site: Site) -> Refusal | None:
    if has_dtype(_definition(site).statement.value):
        return None
    for term in site.once(_inlined).value.terms:
        if takes_no_dtype(term):
            return Refusal.of(site.statement.id, "", term=term.text)
    return None


def _inlined_program(site: Site) -> Program:
    return site.replaced((site.once(_inlined),))


def _inlined_fits(site: Site) -> Refusal | None:
    return well_formed(site, site.once(_inlined_program), [in_its_place(site, site.once(_inlined))])


class InlineDefinition(Transformation):
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
            _reads_defined,
        ),
        Requirement(
            "PD-T252",
            "the array is written in more than one place",
            "{write} writes {array} too, so the value is not that of one statement",
            "give the other value an array of its own",
            _written_once,
            semantic=True,
        ),
        Requirement(
            "PD-T259",
            "the definition stands under a condition",
            "{write} does not write every element",
            "split the scopes so that the condition goes away",
            _always_written,
            semantic=True,
        ),
        Requirement(
            "PD-T253",
            "the subscripts do not tell which instance wrote the element",
            "{read} cannot be solved for the iterators of {write}",
            "bring both statements into one nest with join_scopes first",
            _instance_known,
        ),
        Requirement(
            "PD-T254",
            "several instances write one element",
            "{write} is written by more than one iteration, and only the last one counts",
            "keep the array",
            _written_by_one,
            semantic=True,
        ),
        Requirement(
            "PD-T255",
            "an operand may have changed when the element is read",
            "{write} may change {operand} between the definition and the read",
            "keep the array, or move the write behind the read",
            _operands_unchanged,
            semantic=True,
        ),
        Requirement(
            "PD-T256",
            "the dtypes differ",
            "the statement computes in {mine}, the definition in {theirs}",
            "keep the array",
            _one_dtype,
        ),
        Requirement(
            "PD-T257",
            "the statement would become too long",
            "it would read {count} elements, {most} are allowed",
            "keep the array",
            _readable,
        ),
        Requirement(
            "PD-T260",
            "the text would no longer say the dtype",
            "nothing in {term} would say in which dtype it is computed",
            "keep the array: its dtype is what the numbers are read in",
            _dtypes_said,
        ),
        Requirement(
            "PD-T258",
            "the target does not allow the new accesses",
            "{what}",
            "inline before annotating scopes and setting locations",
            _inlined_fits,
        ),
    )

    def candidates(self, program: Program, dialect: Dialect) -> Iterator[Move]:
        for _, node in program.walk():
            if isinstance(node, Statement):
                for array in dict.fromkeys(r.array for r in node.reads):
                    if array not in program.inputs:
                        yield Move(self.name, node.id, (("array", array),))

    def rewrite(self, site: Site) -> Program:
        return site.once(_inlined_program)

    def relation(self, site: Site, result: Program) -> Relation:
        definition, mine = _definition(site).statement.id, site.statement.id
        return {mine: Instance(mine, levels(site.level), inlined=(definition,))}


# -- remove_dead -----------------------------------------------------------------------------------


def _not_returned(site: Site) -> Refusal | None:
    buffer = site.storage
    if not site.program.interface.intersection(buffer.arrays):
        return None
    return Refusal.of(words_only(site), buffer=buffer.name)


def _not_read(site: Site) -> Refusal | None:
    """Statements that write the buffer may read it: they go too."""
    for o in site.program.occurrences[site.storage.name]:
        if not o.writes and o.statement.target.array not in site.storage.arrays:
            return Refusal.of(o.statement.id, o.access.text, read=o.access.text, buffer=site.storage.name)
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


class RemoveDead(Transformation):
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
        ),
        Requirement(
            "PD-T262",
            "the buffer is read",
            "{read} needs what {buffer} holds",
            "replace the reads with inline_definition first",
            _not_read,
            semantic=True,
        ),
    )

    def candidates(self, program: Program, dialect: Dialect) -> Iterator[Move]:
        return (Move(self.name, buffer.name) for buffer in temporaries(program))

    def rewrite(self, site: Site) -> Rewritten:
        program, arrays, gone = site.program, frozenset(site.storage.arrays), list[Node]()
        body = _without(program.body, arrays, gone.append)
        used = any(not arrays.isdisjoint(node.touches) for node in body)
        kept = tuple([b for b in program.buffers if used or b.name != site.storage.name])
        made = Gone(tuple([node.id for node in gone]), "" if used else site.storage.name)
        return Rewritten(Program(program.name, program.inputs, program.outputs, kept, body), made)

    def relation(self, site: Site, result: Program) -> Relation:
        gone = list[Node]()
        _without(site.program.body, frozenset(site.storage.arrays), gone.append)
        return {node.id: Removed() for node in gone if isinstance(node, Statement)}

"""A program seen as statement instances, the cells they touch, and the values they see.

A cell is (buffer, materialised subscripts); where the accesses of a buffer have a parallel scope in
common, every iteration of it owns a copy, so its iterator and those above it are part of the cell.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from math import gcd
from typing import NamedTuple

from perfdojo_sdk.core.dialect import Dialect
from perfdojo_sdk.core.expression import Access, AffineExpr, Expression, IndexValue, Read, walk
from perfdojo_sdk.core.groups import losses_of
from perfdojo_sdk.core.lookups import Lookup, lookups_of
from perfdojo_sdk.core.program import Node, Path, Program, Scope, Statement
from perfdojo_sdk.core.storage import Buffer
from perfdojo_sdk.verify.flow import Box, Final, Flow, Leaf, Loop, Mode, Nest, Role, Touch, flows
from perfdojo_sdk.verify.sets import Domain, Refuted, Session, form, isl, unite


class StatementDomain(NamedTuple):
    """A statement and the scopes around it."""

    statement: Statement
    name: str
    sizes: tuple[int, ...]
    path: Path
    scopes: tuple[Scope, ...]
    domain: Domain


class Direct(NamedTuple):
    """A leaf whose value no statement writes: an input's cell, or an integer."""

    domain: Domain
    target: str
    forms: tuple[str, ...]


class _Touches(NamedTuple):
    """The accesses of a statement, by buffer. The statement is kept, so that no other one gets its ``id``."""

    statement: Statement
    found: Mapping[str, tuple[Touch, ...]]


def expression_leaves(value: Expression) -> Iterator[Read | IndexValue]:
    """Reads and index values, in the order of the text; their numbers are those of the readers."""
    return (node for node in walk(value) if isinstance(node, Read | IndexValue))


@dataclass(eq=False)
class ProgramSets:
    """A program's instances, accesses and flows. :class:`Refuted` when it has no meaning."""

    session: Session
    program: Program
    dialect: Dialect
    places: dict[str, StatementDomain] = field(init=False, default_factory=dict)
    """By statement id."""

    def __post_init__(self) -> None:
        for path, node in self.program.walk():
            if isinstance(node, Statement):
                scopes = self.program.ancestors(path)
                sizes = tuple(s.size for s in scopes)
                if node.id in self.places:
                    raise Refuted(f"two statements carry the id {node.id}")
                domain = Domain(sizes, tuple(map(form, node.guard)))
                self.places[node.id] = StatementDomain(
                    node, self.session.name(node.id), sizes, path, scopes, domain
                )
            elif self.dialect.is_lockstep(node.suffix):
                if len(node.body) != 1 or not isinstance(node.body[0], Statement):
                    raise Refuted(f"lockstep scope {node.head} holds more than one statement")
        for place in self.places.values():
            if place.statement.target.array in self.program.read_only:
                raise Refuted(f"{self.describe(place.statement.id)} writes an input")

    def describe(self, statement: str) -> str:
        return f"{statement} `{self.places[statement].statement.text}`"

    @cached_property
    def by_name(self) -> Mapping[str, StatementDomain]:
        return {place.name: place for place in self.places.values()}

    @cached_property
    def horizontal(self) -> bool:
        """True if lanes of some vector statement accumulate into one cell."""
        return any(p.statement.accumulate and self.lanes_meet(p) for p in self.places.values())

    @cached_property
    def losing(self) -> Mapping[str, frozenset[str]]:
        """Statement -> the laws of what its sums lose in an instruction that adds up groups, if any."""
        found = {p.statement.id: losses_of(p.statement, p.scopes, self.dialect) for p in self.places.values()}
        return {statement: laws for statement, laws in found.items() if laws}

    def lanes_meet(self, place: StatementDomain) -> bool:
        """True if the statement is vectorised and all lanes write the same cell."""
        if not place.scopes or not self.dialect.is_lockstep(place.scopes[-1].suffix):
            return False
        buffer = self.program.buffer_of[place.statement.target.array]
        level, subscripts = len(place.sizes) - 1, place.statement.target.subscripts
        return place.sizes[level] > 1 and not any(level in subscripts[k].levels for k in buffer.materialised)

    # -- cells ---------------------------------------------------------------------------------

    @cached_property
    def copies(self) -> Mapping[str, tuple[int, ...]]:
        """Buffer -> the levels that tell its copies apart.

        Every iteration of a parallel scope owns one, and every time that the scope runs, a new one:
        so these are the levels down to that of the innermost parallel scope around all accesses.
        """
        around: dict[str, tuple[tuple[int, ...], tuple[Scope, ...]]] = {}
        for place in self.places.values():
            arrays = {place.statement.target.array, *(r.array for r in place.statement.reads)}
            for name in {self.program.buffer_of[array].name for array in arrays}:
                path, scopes = around.get(name, (place.path[:-1], place.scopes))
                depth = _common(path, place.path[:-1])
                around[name] = path[:depth], scopes[:depth]
        found = {}
        for name, (_, scopes) in around.items():
            parallel = [l for l, scope in enumerate(scopes) if self.dialect.is_parallel(scope.suffix)]
            found[name] = tuple(range(parallel[-1] + 1)) if parallel else ()
        return found

    def private_levels(self, buffer: Buffer) -> tuple[int, ...]:
        """The levels that tell copies of a buffer apart; none for the caller's arrays."""
        owned = any(array in self.program.interface for array in buffer.arrays)
        return () if owned else self.copies.get(buffer.name, ())

    def cell(self, access: Access, sizes: tuple[int, ...]) -> tuple[tuple[str, ...], tuple[int, ...]]:
        """The cell's subscripts, inside scopes of these sizes, and for each run-time index the number of its
        values: the subscripts count them with further iterators."""
        buffer = self.program.buffer_of[access.array]
        found, choices = [f"i{level}" for level in self.private_levels(buffer)], list[int]()
        for k in buffer.materialised:
            index = access.subscripts[k]
            text = form(AffineExpr.of(index.coefficients, index.constant, index.divisions))
            for part, c in index.quotients:
                if isinstance(part, Lookup):
                    low, high = part.bounds(sizes)
                    text += f"{c:+d}*(i{len(sizes) + len(choices)}{low:+d})"
                    choices.append(high - low + 1)
            found.append(text)
        return tuple(found), tuple(choices)

    def box(self, access: Access, sizes: tuple[int, ...]) -> Box:
        """The values that each subscript of the cell takes."""
        buffer = self.program.buffer_of[access.array]
        copies = [AffineExpr.level(level) for level in self.private_levels(buffer)]
        forms = (*copies, *(access.subscripts[k] for k in buffer.materialised))
        return tuple((*form.bounds(sizes), _step(form)) for form in forms)

    def choices(self, name: str) -> tuple[int, ...]:
        """Numbers of values of the run-time indices at which a statement writes."""
        place = self.by_name[name]
        target = place.statement.target
        return self.cell(target, place.sizes)[1] if any(lookups_of((target,))) else ()

    def chooses(self, name: str) -> bool:
        """True if a statement writes at a run-time index."""
        return bool(self.choices(name))

    # -- flows ---------------------------------------------------------------------------------

    @cached_property
    def flows(self) -> Mapping[str, tuple[Flow, ...]]:
        """Buffer name -> its flows, for every buffer that is not an input."""
        nests, found = self._nests(self.program.body, 0), {}
        for buffer in self.program.buffers:
            final, mine = self._final(buffer), (*self._given(buffer), *nests.get(buffer.name, ()))
            if (mine or final) and self.program.read_only.isdisjoint(buffer.arrays):
                found[buffer.name] = flows(self.session, mine, final)
        return found

    def _nests(self, nodes: tuple[Node, ...], level: int) -> dict[str, list[Nest]]:
        """Buffer name -> the part of the tree that touches it."""
        found: dict[str, list[Nest]] = {}
        for node in nodes:
            if isinstance(node, Statement):
                place = self.places[node.id]
                for name, touches in self._touches[node.id].items():
                    leaf = Leaf(place.name, place.domain, _accumulates(touches, node), touches)
                    found.setdefault(name, []).append(leaf)
            else:
                lockstep = self.dialect.is_lockstep(node.suffix)
                for name, body in self._nests(node.body, level + 1).items():
                    found.setdefault(name, []).append(Loop(level, lockstep, tuple(body)))
        return found

    @cached_property
    def _touches(self) -> Mapping[str, Mapping[str, tuple[Touch, ...]]]:
        """Statement id -> buffer name -> accesses."""
        return {id: self._touches_of(place) for id, place in self.places.items()}

    def _touches_of(self, place: StatementDomain) -> Mapping[str, tuple[Touch, ...]]:
        """The accesses of one statement; from the session's memory where program after program has it."""
        statement, buffer_of = place.statement, self.program.buffer_of
        leaves = enumerate(expression_leaves(statement.value))
        reads = [(k, leaf.access) for k, leaf in leaves if isinstance(leaf, Read)]
        reads = [(k, access) for k, access in reads if access.array not in self.program.read_only]
        buffers = [buffer_of[access.array] for access in (statement.target, *(access for _, access in reads))]
        copies = tuple([(b.name, b.materialised, self.private_levels(b)) for b in buffers])
        key = ("touches", place.name, id(statement), place.sizes, copies)
        known = self.session.memory.get(key)
        if isinstance(known, _Touches) and known.statement is statement:
            return known.found
        found: dict[str, tuple[Touch, ...]] = {}

        def add(access: Access, touch: str, role: Role) -> None:
            cell, choices = self.cell(access, place.sizes)
            made = Touch(touch, role, cell, self.box(access, place.sizes), choices)
            buffer = buffer_of[access.array].name
            found[buffer] = (*found.get(buffer, ()), made)

        for k, access in reads:
            add(access, f"{place.name}_{k}", "read")
        chosen = any(lookups_of((statement.target,)))
        if statement.accumulate or chosen:
            add(statement.target, f"{place.name}_t", "own")
        add(statement.target, place.name, "may" if chosen else "add" if statement.accumulate else "write")
        self.session.memory[key] = _Touches(statement, found)
        return found

    def _given(self, buffer: Buffer) -> Iterator[Leaf]:
        """The caller's values of an array that is input and output, as a write before the program."""
        for array in self.program.in_out.intersection(buffer.arrays):
            name, cell = f"I_{array}", tuple(f"i{k}" for k in range(len(buffer.shape)))
            box = tuple((0, size - 1, 1) for size in buffer.shape)
            yield Leaf(name, Domain(buffer.shape), None, (Touch(name, "write", cell, box),))

    def _final(self, buffer: Buffer) -> Final | None:
        for array in buffer.arrays:
            if array in self.program.outputs:
                cell = tuple(f"i{k}" for k in buffer.materialised)
                return Final(f"F_{array}", Domain(buffer.shape), cell)
        return None

    @cached_property
    def flows_of(self) -> Mapping[str, tuple[Flow, ...]]:
        """Reader -> the flows that it belongs to; readers of inputs and iterators have none."""
        found: dict[str, tuple[Flow, ...]] = {}
        for each in chain.from_iterable(self.flows.values()):
            for reader in each.readers:
                found[reader] = (*found.get(reader, ()), each)
        return found

    def own_flow(self, statement: str) -> Flow | None:
        """The flow of the cell that a statement (a name) accumulates onto or may write; None for a plain
        write."""
        return next(iter(self.flows_of.get(f"{statement}_t", ())), None)

    @cached_property
    def direct(self) -> Mapping[str, Direct]:
        """The values read by reads of inputs and iterators."""
        found = {}
        for statement, name, *_, domain in self.places.values():
            if any(lookups_of((statement.target,))):
                found[f"{name}_c"] = Direct(domain, *self._source(statement.target))
            for k, leaf in enumerate(expression_leaves(statement.value)):
                if isinstance(leaf, IndexValue):
                    found[f"{name}_{k}"] = Direct(domain, "V", (form(leaf.index),))
                elif leaf.access.array in self.program.read_only:
                    found[f"{name}_{k}"] = Direct(domain, *self._source(leaf.access))
        return found

    def _source(self, access: Access) -> tuple[str, tuple[str, ...]]:
        """Name and subscripts of what a read of an input sees.

        With run-time indices in its subscripts that is a function of the iterators: its name says how the
        indices are computed, and its subscripts are all forms of the iterators in it. Of an element that is
        written at run-time indices, the same says which it is.
        """
        if not any(lookups_of((access,))):
            return f"I_{access.array}", tuple(map(form, access.subscripts))
        shapes, forms = [], list[str]()
        for subscript in access.subscripts:
            parts = [(part, c) for part, c in subscript.quotients if isinstance(part, Lookup)]
            shapes.append("+".join([f"{c}*{part.pattern}" for part, c in parts]))
            forms.append(form(AffineExpr.of(subscript.coefficients, subscript.constant, subscript.divisions)))
            forms += [form(inside) for part, _ in parts for inside in part.forms]
        return self.session.chosen(f"{access.array}[{', '.join(shapes)}]"), tuple(forms)

    @cached_property
    def chosen_sources(self) -> Mapping[str, int]:
        """Sources that reads with run-time indices see, each with the number of its subscripts."""
        names = self.session.choice_of
        return {d.target: len(d.forms) for d in self.direct.values() if d.target in names}

    def seen(self, reader: str, mode: Mode, without: Collection[Flow] = ()) -> isl.UnionMap:
        """The writes, input cells or integers that a reader sees, but for those in some flows."""
        if reader not in self.direct:
            parts = [each.seen(reader, mode) for each in self.flows_of[reader] if each not in without]
            return unite(self.session.map(), parts)
        domain, target, forms = self.direct[reader]
        relation = self.session.affine(reader, domain.depth, target, forms)
        return self.session.map([relation.intersect_domain(self.session.instances(reader, domain))])

    def before(self, accumulation: str) -> isl.UnionMap:
        """The terms that an accumulation (a name) adds onto."""
        through = self.flows_of[f"{accumulation}_t"]
        return unite(self.session.map(), (each.before(f"{accumulation}_t") for each in through))

    def reader_text(self, reader: str) -> str:
        """The access behind a reader's name, for messages."""
        if reader.startswith("F_"):
            return f"output {reader[2:]}"
        name, _, leaf = reader.rpartition("_")
        statement = self.by_name[name].statement
        if leaf == "t":
            does = "adds onto" if statement.accumulate else "may write"
            return f"{self.describe(statement.id)} {does} {statement.target.text}"
        if leaf == "c":
            return f"{self.describe(statement.id)} chooses {statement.target.text}"
        return f"{self.describe(statement.id)} reads {self.leaf(reader).text}"

    def leaf(self, reader: str) -> Read | IndexValue:
        """The leaf of an expression that a reader's name stands for."""
        name, _, number = reader.rpartition("_")
        return list(expression_leaves(self.by_name[name].statement.value))[int(number)]


def _step(form: AffineExpr) -> int:
    """A number that divides the distance of any two values of the form."""
    return 1 if form.quotients else gcd(*form.coefficients.values())


def _accumulates(touches: tuple[Touch, ...], statement: Statement) -> str | None:
    return statement.accumulate if any(t.role == "add" for t in touches) else None


def _common(a: Path, b: Path) -> int:
    depth = 0
    while depth < min(len(a), len(b)) and a[depth] == b[depth]:
        depth += 1
    return depth

"""The program: an ordered tree of scopes over scalar statements, as frozen data.

Nothing in this module is ever changed in place. An edit rebuilds the nodes from the edited one
up to the root and shares the rest, so hundreds of candidate programs cost little more than one.

Iterators are named by *level*: ``{0}`` is the outermost scope around a statement, ``{1}`` the
next. A node therefore reads the same wherever it is printed, and caches its text.

Ids (``s3``, ``c1``) name places for moves. They take no part in equality or in the text.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import field
from hashlib import blake2b
from itertools import chain
from operator import attrgetter, is_
from typing import Any, ClassVar, NamedTuple, TypeAlias, TypeVar

from perfdojo_sdk.core.expression import (
    Access,
    Change,
    Condition,
    Expression,
    Form,
    Index,
    IndexValue,
)
from perfdojo_sdk.core.frozen import frozen, later, lazy, maker
from perfdojo_sdk.core.operations import ACCUMULATIONS
from perfdojo_sdk.core.storage import Buffer

T = TypeVar("T")

_TEXT, _BELOW, _PATH, _NODE = map(attrgetter, ("text", "below", "path", "node"))
_FORMS, _ARRAYS, _SUFFIXES = map(attrgetter, ("forms", "arrays", "suffixes"))


class Leaf(NamedTuple):
    """A statement, as seen from a node above it."""

    statement: Statement
    sizes: tuple[int, ...]
    """Sizes of the scopes from that node (included) down to the statement, outermost first."""


class Touch(NamedTuple):
    """One access of a statement, as seen from a node above it."""

    access: Access
    statement: Statement
    writes: bool
    """True for the target; an accumulation's target counts as a write, which also reads."""
    sizes: tuple[int, ...]
    """Sizes of the scopes from that node (included) down to the statement, outermost first."""


_new_leaf, _new_touch = maker(Leaf), maker(Touch)

Touches: TypeAlias = Mapping[str, tuple[Touch, ...]]
"""Array -> its touches, in program order (the reads of a statement before its write)."""


@frozen
class Statement:
    """``target = value``, or ``target accumulate= value``. The dtype is the target's.

    Where a form of ``guard`` is negative, the statement does nothing.

    Most statements differ from another in their forms alone: a move gave the iterators other names.
    Such a statement is made of the other one (``origin``) and its own :attr:`forms`, which is all that
    its text needs; target and value are put together when somebody asks for them.
    """

    target: Access = later(lambda new: new.origin.target_with(new.forms))
    value: Expression = later(lambda new: new.origin.value_with(new.forms))
    accumulate: str | None = None
    dtype: str = "f32"
    id: str = field(default="", compare=False)
    guard: tuple[Index, ...] = ()

    suffixes: ClassVar[frozenset[str]] = frozenset()
    """Those of the scopes inside: there are none."""

    @lazy
    def reads(self) -> tuple[Access, ...]:
        """Elements that the value reads; an accumulation's own target is not among them."""
        return self.value.reads

    @lazy
    def text(self) -> str:
        if "origin" in self.__dict__:
            return self.pattern % tuple(map(_TEXT, self.forms))
        text = self.spelled(self.target.text, self.value.text)
        return f"{text} if {' and '.join([c.text for c in self.conditions])}" if self.guard else text

    @lazy
    def pattern(self) -> str:
        """The text with a hole for each of :attr:`forms`."""
        pattern = self.spelled(self.target.pattern, self.value.pattern)
        return f"{pattern} if {' and '.join(['%s' for _ in self.guard])}" if self.guard else pattern

    def spelled(self, target: str, value: str) -> str:
        """The statement with its two sides written so."""
        return f"{target} {ACCUMULATIONS[self.accumulate] if self.accumulate else '='} {value}"

    @lazy
    def slots(self) -> tuple[tuple[str, int], ...]:
        """The array of each access, with the place of its first subscript among :attr:`forms`."""
        if "origin" in self.__dict__:
            slots: tuple[tuple[str, int], ...] = self.__dict__["origin"].slots
            return slots
        found, at = [(self.target.array, 0)], len(self.target.subscripts)
        for read in self.reads:
            while at < len(self.forms) and isinstance(self.forms[at], IndexValue):
                at += 1
            found.append((read.array, at))
            at += len(read.subscripts)
        return tuple(found)

    @property
    def conditions(self) -> tuple[Condition, ...]:
        return tuple([Condition(form) for form in self.guard])

    @lazy
    def forms(self) -> tuple[Form, ...]:
        """The forms that depend on the iterators, in the order of the text."""
        forms = self.target.subscripts + self.value.forms
        return forms + self.conditions if self.guard else forms

    def target_with(self, forms: tuple[Form, ...]) -> Access:
        old = self.target
        return Access(old.array, forms[: len(old.subscripts)])  # type: ignore[arg-type]

    def value_with(self, forms: tuple[Form, ...]) -> Expression:
        return self.value.filled(iter(forms[len(self.target.subscripts) :]))

    @lazy
    def below(self) -> str:
        """The text one bar deeper, as it stands in a scope of several children."""
        return f"| {self.text}"

    @lazy
    def leaves(self) -> tuple[Leaf, ...]:
        return (Leaf(self, ()),)

    @lazy
    def arrays(self) -> frozenset[str]:
        """Every array that the statement reads or writes."""
        return frozenset([self.target.array, *[read.array for read in self.reads]])

    @lazy
    def touches(self) -> Touches:
        found: dict[str, tuple[Touch, ...]] = {}
        for read in self.reads:
            found[read.array] = (*found.get(read.array, ()), Touch(read, self, False, ()))
        array = self.target.array
        found[array] = (*found.get(array, ()), Touch(self.target, self, True, ()))
        return found

    def named(self, identifier: str) -> Statement:
        """The same statement under another id."""
        if "origin" in self.__dict__:
            return self.alike(self.forms, identifier)
        return Statement(self.target, self.value, self.accumulate, self.dtype, identifier, self.guard)

    def renamed(self, name: Callable[[str], str]) -> Statement:
        """The same statement under the id that ``name`` makes of its own."""
        return self.named(name(self.id))

    def with_guard(self, guard: tuple[Index, ...]) -> Statement:
        """The same statement under another condition."""
        return Statement(self.target, self.value, self.accumulate, self.dtype, self.id, guard)

    def with_parts(self, target: Access, value: Expression) -> Statement:
        """The same statement with another target and value."""
        return Statement(target, value, self.accumulate, self.dtype, self.id, self.guard)

    def renumbered(self, by: Change) -> Statement:
        forms = tuple(map(by, self.forms))
        return self if all(map(is_, forms, self.forms)) else self.alike(forms, self.id)

    def alike(self, forms: tuple[Form, ...], identifier: str) -> Statement:
        """A statement that is this one but for its forms and its id."""
        new = object.__new__(Statement)
        known = new.__dict__
        known["origin"], known["pattern"] = self.__dict__.get("origin", self), self.pattern
        known["accumulate"], known["dtype"], known["id"] = self.accumulate, self.dtype, identifier
        known["forms"], known["guard"] = forms, self.guard and self.guard_with(forms)
        return new

    def guard_with(self, forms: tuple[Form, ...]) -> tuple[Index, ...]:
        return tuple([each.form for each in forms if isinstance(each, Condition)])


@frozen
class Scope:
    """``size`` iterations over ``body``; ``suffix`` says how they are instantiated.

    As with statements: a scope that differs from another (``origin``) only in the forms and ids inside is
    made of that and its own :attr:`forms`; its body is a copy made when somebody asks for it.
    """

    size: int
    body: tuple[Node, ...] = later(lambda new: tuple([new.copy(child) for child in new.origin.body]))
    suffix: str = ""
    id: str = field(default="", compare=False)

    @property
    def head(self) -> str:
        return f"{self.size}:{self.suffix}" if self.suffix else str(self.size)

    @lazy
    def text(self) -> str:
        """The lines of the scope; a chain of single children shares its first line."""
        if "origin" in self.__dict__:
            return self.head + self.pattern_inside % tuple(map(_TEXT, self.forms))
        body = self.body
        if len(body) == 1:
            return f"{self.head} {body[0].text}"
        return "\n".join([self.head, *map(_BELOW, body)])

    @property
    def pattern(self) -> str:
        """The text with a hole for each of :attr:`forms`."""
        return f"{self.head}{self.pattern_inside}"

    @lazy
    def pattern_inside(self) -> str:
        """The text after the head, with a hole for each of :attr:`forms`."""
        patterns = [child.pattern for child in self.body]
        if len(patterns) == 1:
            return f" {patterns[0]}"
        return "".join(["\n| " + pattern.replace("\n", "\n| ") for pattern in patterns])

    @lazy
    def forms(self) -> tuple[Form, ...]:
        """The forms that depend on the iterators inside, in the order of the text."""
        return tuple(chain.from_iterable(map(_FORMS, self.body)))

    @lazy
    def below(self) -> str:
        """The text one bar deeper, as it stands in a scope of several children."""
        return "| " + self.text.replace("\n", "\n| ")

    @lazy
    def arrays(self) -> frozenset[str]:
        """Every array that a statement inside reads or writes."""
        return frozenset().union(*map(_ARRAYS, self.body))

    @lazy
    def touches(self) -> Touches:
        found: dict[str, list[Touch]] = {}
        around = (self.size,)
        for child in self.body:
            for array, touches in child.touches.items():
                found.setdefault(array, []).extend(
                    [_new_touch((access, s, writes, around + sizes)) for access, s, writes, sizes in touches]
                )
        return {array: tuple(touches) for array, touches in found.items()}

    @lazy
    def leaves(self) -> tuple[Leaf, ...]:
        around = (self.size,)
        return tuple([_new_leaf((s, around + sizes)) for child in self.body for s, sizes in child.leaves])

    @lazy
    def chain(self) -> tuple[tuple[Scope, ...], Statement | None]:
        """The perfect nest that starts here and the one statement in it."""
        child = self.body[0]
        if len(self.body) > 1:
            return (self,), None
        if isinstance(child, Statement):
            return (self,), child
        scopes, statement = child.chain
        return (self, *scopes), statement

    @lazy
    def read_arrays(self) -> tuple[str, ...]:
        """Arrays that a statement inside reads, in the order of :attr:`touches`."""
        return tuple([a for a, touches in self.touches.items() if not all(t.writes for t in touches)])

    @lazy
    def written_arrays(self) -> tuple[str, ...]:
        """Arrays that a statement inside writes, in the order of :attr:`touches`."""
        return tuple([a for a, touches in self.touches.items() if any(t.writes for t in touches)])

    @lazy
    def suffixes(self) -> frozenset[str]:
        """The suffixes of the scope and of those inside it."""
        return frozenset((self.suffix,) if self.suffix else ()).union(*map(_SUFFIXES, self.body))

    def renumbered(self, by: Change) -> Scope:
        return self.headed(self.size, self.suffix, self.id, by)

    def headed(
        self, size: int, suffix: str, identifier: str, by: Change, name: Callable[[str], str] | None = None
    ) -> Scope:
        """Another scope over this one's body, whose iterators are replaced; ``name``, if given, makes the
        ids inside of the old ones."""

        def copy(child: Node) -> Node:
            new = child.renumbered(by)
            return new.renamed(name) if name else new

        return self.alike(size, suffix, identifier, tuple(map(by, self.forms)), copy)

    def renamed(self, name: Callable[[str], str], size: int = 0) -> Scope:
        """The same scope with other ids, for it and for all inside, and another size if given; ``name``
        makes the ids of the old ones."""
        size, identifier = size or self.size, name(self.id)
        return self.alike(size, self.suffix, identifier, self.forms, lambda child: child.renamed(name))

    def alike(
        self,
        size: int,
        suffix: str,
        identifier: str,
        forms: tuple[Form, ...],
        copy: Callable[[Node], Node],
    ) -> Scope:
        """A scope over copies of this one's children; ``forms`` are those of the copies."""
        new = object.__new__(Scope)
        known = new.__dict__
        known["origin"], known["copy"] = self, copy
        known["pattern_inside"], known["forms"] = self.pattern_inside, forms
        known["size"], known["suffix"], known["id"] = size, suffix, identifier
        return new

    def with_body(self, body: tuple[Node, ...]) -> Scope:
        return Scope(self.size, body, self.suffix, self.id)


Node: TypeAlias = Scope | Statement


Path: TypeAlias = tuple[int, ...]


class Place(NamedTuple):
    """A node and where it stands."""

    node: Node
    path: Path
    above: tuple[Scope, ...]
    """The scopes around it, outermost first."""
    sizes: tuple[int, ...]
    """Their sizes."""


class Occurrence(NamedTuple):
    """One access of a statement, with everything that a check asks about it."""

    access: Access
    statement: Statement
    writes: bool
    path: Path
    """Path of the statement."""
    above: tuple[Scope, ...]
    """The scopes around the statement, outermost first."""
    sizes: tuple[int, ...]
    """Their sizes."""


_new_place, new_occurrence = maker(Place), maker(Occurrence)


def places_in(nodes: tuple[Node, ...]) -> list[Place]:
    """``nodes`` and all that is in them, in program order."""
    found: list[Place] = []
    _enter(nodes, (), (), (), found.append)
    return found


def _enter(
    nodes: tuple[Node, ...],
    path: Path,
    above: tuple[Scope, ...],
    sizes: tuple[int, ...],
    add: Callable[[Place], None],
) -> None:
    """Called for every program of every game. Not a function inside :func:`places_in`, which would hold
    itself and all that it has found until the collector comes by."""
    for k, node in enumerate(nodes):
        here = (*path, k)
        add(_new_place((node, here, above, sizes)))
        if isinstance(node, Scope):
            _enter(node.body, here, (*above, node), (*sizes, node.size), add)


def occurrences_of(
    arrays: frozenset[str],
    nodes: tuple[Node, ...],
    path: Path = (),
    above: tuple[Scope, ...] = (),
    sizes: tuple[int, ...] = (),
) -> Iterator[Occurrence]:
    """The accesses of some arrays in the children of the node at ``path``, in program order."""
    for k, node in enumerate(nodes):
        if arrays.isdisjoint(node.arrays):
            continue
        here = (*path, k)
        if isinstance(node, Scope):
            yield from occurrences_of(arrays, node.body, here, (*above, node), (*sizes, node.size))
            continue
        for read in node.reads:
            if read.array in arrays:
                yield new_occurrence((read, node, False, here, above, sizes))
        if node.target.array in arrays:
            yield new_occurrence((node.target, node, True, here, above, sizes))


@frozen
class Program:
    """A kernel: its interface, its storage and its tree."""

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    buffers: tuple[Buffer, ...]
    body: tuple[Node, ...]

    # -- text ------------------------------------------------------------------------------

    @property
    def header(self) -> str:
        return f"kernel {self.name}({', '.join(self.inputs)}) -> {', '.join(self.outputs)}"

    @lazy
    def text(self) -> str:
        """The canonical text: the only serialisation of a program."""
        return f"{self.top}\n{self.tree_lines}"

    @lazy
    def top(self) -> str:
        """Everything above the tree."""
        return f"{self.header}\n{self.storage_lines}"

    @property
    def storage_lines(self) -> str:
        return "".join([f"{b.text}\n" for b in self.buffers])

    @lazy
    def tree_lines(self) -> str:
        return "\n".join(map(_TEXT, self.body)) + "\n"

    def __str__(self) -> str:
        return self.text

    # -- storage ---------------------------------------------------------------------------

    @lazy
    def buffer_of(self) -> Mapping[str, Buffer]:
        """Array name -> its buffer."""
        return {array: buffer for buffer in self.buffers for array in buffer.arrays}

    @lazy
    def interface(self) -> frozenset[str]:
        """Arrays that the caller owns."""
        return frozenset(self.inputs) | frozenset(self.outputs)

    @lazy
    def positions(self) -> Mapping[str, int]:
        """Name of a buffer -> its position."""
        return {buffer.name: k for k, buffer in enumerate(self.buffers)}

    def buffer(self, name: str) -> Buffer | None:
        k = self.positions.get(name)
        return None if k is None else self.buffers[k]

    @lazy
    def names(self) -> frozenset[str]:
        """Every buffer and array name in use."""
        return frozenset(self.buffer_of) | {b.name for b in self.buffers}

    def has(self, name: str) -> bool:
        """True if a move can name it: a scope, a statement, a buffer or an array."""
        return name in self.paths or name in self.names

    @lazy
    def occurrences(self) -> Mapping[str, tuple[Occurrence, ...]]:
        """Buffer name -> all its accesses, in program order (reads of a statement first)."""
        of_buffer: dict[str, list[Occurrence]] = {buffer.name: [] for buffer in self.buffers}
        found = {array: of_buffer[buffer.name] for array, buffer in self.buffer_of.items()}
        for node, path, above, sizes in self.places:
            if isinstance(node, Statement):
                for read in node.reads:
                    found[read.array].append(new_occurrence((read, node, False, path, above, sizes)))
                found[node.target.array].append(new_occurrence((node.target, node, True, path, above, sizes)))
        return {name: tuple(occurrences) for name, occurrences in of_buffer.items()}

    @lazy
    def users(self) -> Mapping[str, list[int]]:
        """Buffer -> ``id()`` of the outermost nodes that use it, in program order."""
        found: dict[str, list[int]] = {buffer.name: [] for buffer in self.buffers}
        for node in self.body:
            for name in {self.buffer_of[array].name for array in node.arrays}:
                found[name].append(id(node))
        return found

    @lazy
    def statements(self) -> int:
        """Number of statements."""
        return sum([len(node.leaves) for node in self.body])

    # -- what moves ask --------------------------------------------------------------------

    @lazy
    def answers(self) -> dict[Hashable, Any]:
        """The answers that :meth:`once` keeps, by question. They go with the program."""
        return {}

    def once(self, question: Hashable, work: Callable[[], T]) -> T:
        """``work()``, done once for ``question``: everything that the answer depends on beside the program.

        Players ask the same again and again of the program that they are at. The answer is never changed.
        """
        if question not in self.answers:
            self.answers[question] = work()
        found: T = self.answers[question]
        return found

    # -- places ----------------------------------------------------------------------------

    @lazy
    def places(self) -> tuple[Place, ...]:
        """Every node and where it stands, parents before children, in program order."""
        return tuple(places_in(self.body))

    @lazy
    def scopes(self) -> tuple[tuple[Path, Scope], ...]:
        """Every scope with its path, in program order."""
        return tuple([(path, node) for path, node in self.walk() if isinstance(node, Scope)])

    @lazy
    def place_of(self) -> Mapping[str, Place]:
        """Id -> the node and where it stands."""
        return {place.node.id: place for place in self.places}

    @lazy
    def paths(self) -> Mapping[str, Path]:
        """Id -> path (child numbers from the root)."""
        return {place.node.id: place.path for place in self.places}

    def walk(self) -> Iterator[tuple[Path, Node]]:
        """Every node with its path, parents before children, in program order."""
        return zip(map(_PATH, self.places), map(_NODE, self.places), strict=True)

    def node(self, path: Path) -> Node:
        nodes, node = self.body, None
        for k in path:
            node = nodes[k]
            nodes = node.body if isinstance(node, Scope) else ()
        if node is None:
            raise KeyError("the root is not a node")
        return node

    def ancestors(self, path: Path) -> tuple[Scope, ...]:
        """The scopes strictly above ``path``, outermost first."""
        nodes = self.body
        found: tuple[Scope, ...] = ()
        for k in path[:-1]:
            scope = nodes[k]
            assert isinstance(scope, Scope)
            found = (*found, scope)
            nodes = scope.body
        return found

    def beside(self, place: Place) -> tuple[Node, ...]:
        """The node at a place and its siblings."""
        return place.above[-1].body if place.above else self.body

    def siblings(self, path: Path) -> tuple[Node, ...]:
        """The children of ``path``'s parent, itself included."""
        return self.children(path[:-1])

    def children(self, path: Path) -> tuple[Node, ...]:
        """The children of the scope at ``path``; of the root for the empty path."""
        if not path:
            return self.body
        scope = self.node(path)
        return scope.body if isinstance(scope, Scope) else ()

    def replaced(self, path: Path, nodes: tuple[Node, ...], consumed: int = 1) -> Program:
        """Put ``nodes`` where ``consumed`` siblings, from ``path`` on, stand now."""
        return self.edited(self.ancestors(path), path, nodes, consumed)

    def edited(
        self,
        above: tuple[Scope, ...],
        path: Path,
        nodes: tuple[Node, ...],
        consumed: int = 1,
        buffer: Buffer | None = None,
    ) -> Program:
        """Like :meth:`replaced`, by somebody who knows the scopes above ``path``; ``buffer`` is new."""
        if above:
            nodes, consumed = enclosed(above, path[1:], nodes, consumed), 1
        k = path[0]
        program = self if buffer is None else self.with_new_buffer(buffer)
        return program.with_body(self.body[:k] + nodes + self.body[k + consumed :])

    def with_body(self, body: tuple[Node, ...]) -> Program:
        new = Program(self.name, self.inputs, self.outputs, self.buffers, body)
        # The tree does not change the storage: hand over what is known about it.
        known = new.__dict__
        known["top"], known["buffer_of"] = self.top, self.buffer_of
        return new

    def with_buffer(self, old: str, new: Buffer) -> Program:
        """The same tree with buffer ``old`` declared anew (same arrays)."""
        k = self.positions[old]
        buffers = (*self.buffers[:k], new, *self.buffers[k + 1 :])
        program = Program(self.name, self.inputs, self.outputs, buffers, self.body)
        known = program.__dict__
        # Its name makes a buffer's line unlike all others.
        known["top"] = self.top.replace(f"\n{self.buffers[k].text}\n", f"\n{new.text}\n", 1)
        known["tree_lines"], known["occurrences"] = self.tree_lines, self.occurrences
        known["buffer_of"] = {**self.buffer_of, **dict.fromkeys(new.arrays, new)}
        return program

    def with_buffers(self, buffers: tuple[Buffer, ...]) -> Program:
        """The same tree on other buffers."""
        program = Program(self.name, self.inputs, self.outputs, buffers, self.body)
        program.__dict__["tree_lines"] = self.tree_lines
        return program

    def with_new_buffer(self, buffer: Buffer) -> Program:
        program = Program(self.name, self.inputs, self.outputs, (*self.buffers, buffer), self.body)
        known = program.__dict__
        known["top"] = f"{self.top}{buffer.text}\n"
        known["buffer_of"] = {**self.buffer_of, **dict.fromkeys(buffer.arrays, buffer)}
        return program


def enclosed(
    scopes: tuple[Scope, ...], path: Path, nodes: tuple[Node, ...], consumed: int = 1
) -> tuple[Node, ...]:
    """The outermost of ``scopes``, in which ``nodes`` stand where ``consumed`` children of the innermost
    stood; ``path`` has a child number in each of the scopes. Without scopes, the nodes."""
    for scope, k in zip(reversed(scopes), reversed(path), strict=True):
        body = scope.body
        inside = nodes if len(body) == 1 else body[:k] + nodes + body[k + consumed :]
        nodes, consumed = (Scope(scope.size, inside, scope.suffix, scope.id),), 1
    return nodes


def innermost(place: Place) -> Place:
    """The statement of a nest of single children, from the place of its outermost scope."""
    node, path, above, sizes = place
    while isinstance(node, Scope):
        above, sizes, path, node = (*above, node), (*sizes, node.size), (*path, 0), node.body[0]
    return Place(node, path, above, sizes)


#: Characters of a name that derives from others, before it is cut.
LONGEST_NAME = 512


def fresh(base: str, taken: frozenset[str] | Mapping[str, object]) -> str:
    """``base``, or the first of ``base_2``, ``base_3`` ... that nobody uses.

    A name made of two names that were made so doubles with each move: 30 of them would fill a memory. So
    a long one is cut, and a digest of the whole stands for the rest.
    """
    if len(base) > LONGEST_NAME:
        digest = blake2b(base.encode(), digest_size=8).hexdigest()
        base = f"{base[: LONGEST_NAME - 17].rstrip('.')}_{digest}"
    if base not in taken:
        return base
    count = 2
    while f"{base}_{count}" in taken:
        count += 1
    return f"{base}_{count}"

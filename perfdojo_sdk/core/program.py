"""The program: an interface, buffers, and the tree of ``tree.py``, as frozen data.

Nothing in this module is ever changed in place. An edit rebuilds the nodes from the edited one
up to the root and shares the rest, so hundreds of candidate programs cost little more than one.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from operator import attrgetter
from typing import Any, NamedTuple, TypeAlias, TypeVar

from perfdojo_sdk.core.dtypes import INTEGER_DTYPES
from perfdojo_sdk.core.expression import Access
from perfdojo_sdk.core.frozen import frozen, lazy, maker
from perfdojo_sdk.core.names import fresh as fresh
from perfdojo_sdk.core.storage import Buffer
from perfdojo_sdk.core.tree import Leaf as Leaf
from perfdojo_sdk.core.tree import Node as Node
from perfdojo_sdk.core.tree import Scope as Scope
from perfdojo_sdk.core.tree import Statement as Statement
from perfdojo_sdk.core.tree import Touch as Touch
from perfdojo_sdk.core.tree import Touches as Touches

T = TypeVar("T")

_TEXT, _PATH, _NODE = map(attrgetter, ("text", "path", "node"))


Path: TypeAlias = tuple[int, ...]


class LocatedNode(NamedTuple):
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


_new_place, new_occurrence = maker(LocatedNode), maker(Occurrence)


#: Places in outermost nodes, by their numbers and ``id()``; programs of a game have most of these in common.
_PLACED: dict[tuple[int, int], tuple[Node, list[LocatedNode]]] = {}
_MOST_PLACED = 1000


def _placed(number: int, node: Node) -> list[LocatedNode]:
    """The node, an outermost one, and all that is in it."""
    known = _PLACED.get((number, id(node)))
    if known is not None and known[0] is node:
        return known[1]
    found: list[LocatedNode] = []
    _enter((node,), (), (), (), found.append, number)
    if len(_PLACED) >= _MOST_PLACED:
        _PLACED.clear()
    _PLACED[number, id(node)] = node, found
    return found


def _enter(
    nodes: tuple[Node, ...],
    path: Path,
    above: tuple[Scope, ...],
    sizes: tuple[int, ...],
    add: Callable[[LocatedNode], None],
    start: int = 0,
) -> None:
    """Give ``nodes``, which count from ``start``, and all in them to ``add``. A function inside
    :func:`_placed` would keep itself, and all that it found, until the garbage collector runs; this is called
    for every program of every game."""
    for k, node in enumerate(nodes, start):
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
        for read in node.every_read:
            if read.array in arrays:
                yield new_occurrence((read, node, False, here, above, sizes))
        if node.target.array in arrays:
            yield new_occurrence((node.target, node, True, here, above, sizes))


@frozen
class Program:
    """A kernel: its interface, its storage and its tree."""

    name: str
    inputs: tuple[str, ...]
    """The arrays that hold values before the program runs: those of the caller, then the tables."""
    outputs: tuple[str, ...]
    buffers: tuple[Buffer, ...]
    body: tuple[Node, ...]

    # -- text ------------------------------------------------------------------------------

    @property
    def header(self) -> str:
        return f"kernel {self.name}({', '.join(self.given)}) -> {', '.join(self.outputs)}"

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

    @property
    def given(self) -> tuple[str, ...]:
        """The inputs that the caller passes: all but tables."""
        return tuple([name for name in self.inputs if name not in self.tables])

    @lazy
    def adds_integers_only(self) -> bool:
        """True if every accumulation is one of integers, which keep each bit in any order."""
        leaves = (leaf.statement for node in self.body for leaf in node.leaves)
        return all(s.dtype in INTEGER_DTYPES for s in leaves if s.accumulate)

    @lazy
    def tables(self) -> Mapping[str, tuple[float | int, ...]]:
        """Name of a table -> its elements."""
        return {b.name: b.values for b in self.buffers if b.values is not None}

    @lazy
    def interface(self) -> frozenset[str]:
        """Arrays that the caller owns, and tables: no move changes their storage."""
        return frozenset(self.inputs) | frozenset(self.outputs)

    @lazy
    def in_out(self) -> frozenset[str]:
        """Arrays that are inputs and outputs: a cell keeps the caller's value until it is written."""
        return frozenset(self.inputs) & frozenset(self.outputs)

    @lazy
    def read_only(self) -> frozenset[str]:
        """Inputs that are no outputs: nothing writes them."""
        return frozenset(self.inputs) - frozenset(self.outputs)

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
                for read in node.every_read:
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
        """The answers that :meth:`once` keeps, by question; they live as long as the program."""
        return {}

    def once(self, question: Hashable, work: Callable[[], T]) -> T:
        """The result of ``work()``, which is called once for each ``question``.

        The question holds everything that the answer depends on beside the program. Players ask the same
        questions about a program many times. Do not change an answer.
        """
        if question not in self.answers:
            self.answers[question] = work()
        found: T = self.answers[question]
        return found

    # -- places ----------------------------------------------------------------------------

    @lazy
    def places(self) -> tuple[LocatedNode, ...]:
        """Every node and where it stands, parents before children, in program order."""
        found: list[LocatedNode] = []
        for k, node in enumerate(self.body):
            found += _placed(k, node)
        return tuple(found)

    @lazy
    def scopes(self) -> tuple[tuple[Path, Scope], ...]:
        """Every scope with its path, in program order."""
        return tuple([(path, node) for path, node in self.walk() if isinstance(node, Scope)])

    @lazy
    def place_of(self) -> Mapping[str, LocatedNode]:
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

    def beside(self, place: LocatedNode) -> tuple[Node, ...]:
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
        """Like :meth:`replaced`, for callers that know the scopes above ``path``; ``buffer`` is new."""
        if above:
            nodes, consumed = enclosed(above, path[1:], nodes, consumed), 1
        k = path[0]
        program = self if buffer is None else self.with_new_buffer(buffer)
        return program.with_body(self.body[:k] + nodes + self.body[k + consumed :])

    def with_body(self, body: tuple[Node, ...]) -> Program:
        new = Program(self.name, self.inputs, self.outputs, self.buffers, body)
        # The storage stays the same, so the new program takes over what is known about it.
        known = new.__dict__
        known["top"], known["buffer_of"] = self.top, self.buffer_of
        known["in_out"], known["read_only"] = self.in_out, self.read_only
        return new

    def with_buffer(self, old: str, new: Buffer) -> Program:
        """The same tree with buffer ``old`` declared anew (same arrays)."""
        k = self.positions[old]
        buffers = (*self.buffers[:k], new, *self.buffers[k + 1 :])
        program = Program(self.name, self.inputs, self.outputs, buffers, self.body)
        known = program.__dict__
        # A buffer's line is unique, since its name is.
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


def innermost(place: LocatedNode) -> LocatedNode:
    """The statement of a nest of single children, from the place of its outermost scope."""
    node, path, above, sizes = place
    while isinstance(node, Scope):
        above, sizes, path, node = (*above, node), (*sizes, node.size), (*path, 0), node.body[0]
    return LocatedNode(node, path, above, sizes)

"""A program as a graph: arrays and statements as nodes, the flow of data as edges.

An edge carries the sizes of the loops over which the access moves: a row's maximum is read along
"8" in a nest of 8 by 16. Scopes are the boxes that statements stand in. :func:`dot` prints the graph
for Graphviz; ``drawing`` lays it out without.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from perfdojo_sdk.core.expression import Access
from perfdojo_sdk.core.operations import ACCUMULATIONS
from perfdojo_sdk.core.program import Node, Path, Program, Scope, Statement
from perfdojo_sdk.views.notation import elements


@dataclass(frozen=True)
class Vertex:
    """An array or a statement; the lines of its label."""

    name: str
    lines: tuple[str, ...]
    is_array: bool


@dataclass(frozen=True)
class Edge:
    """Data that goes from one node to another, with the sizes of the loops it moves over."""

    source: str
    target: str
    label: str


@dataclass(frozen=True)
class Graph:
    """Nodes in program order: inputs first, an array after the statement that completes it."""

    name: str
    vertices: tuple[Vertex, ...]
    edges: tuple[Edge, ...]


def graph(program: Program) -> Graph:
    """The flow of data between the program's arrays and statements. An array that is input and output is two
    vertices: what the caller gives, and what the kernel makes of it."""
    vertices: list[Vertex] = [_array(program, name) for name in program.inputs]
    edges: dict[tuple[str, str], Edge] = {}
    complete, changed = _complete(program), set[str]()
    for path, node in program.walk():
        if not isinstance(node, Statement):
            continue
        sizes = [scope.size for scope in program.ancestors(path)]
        name = f"statement {node.id}"
        vertices.append(Vertex(name, (_around(program, path), node.text), False))
        vertices += [_array(program, array, array in program.in_out) for array in complete.get(node.id, ())]
        target = node.target.array
        for access in node.every_read:
            _add(edges, Edge(_vertex(access.array, access.array in changed), name, _moves(access, sizes)))
        if target in program.in_out:
            if target not in changed:  # it starts as what is given
                _add(edges, Edge(_vertex(target), name, _moves(node.target, sizes)))
            changed.add(target)
        label = _moves(node.target, sizes)
        if node.accumulate:
            label = f"{ACCUMULATIONS[node.accumulate]} {label}".rstrip()
        _add(edges, Edge(name, _vertex(target, target in changed), label))
    return Graph(program.name, tuple(vertices), tuple(edges.values()))


def _complete(program: Program) -> Mapping[str, list[str]]:
    """Statement -> arrays that are written when it is done: it is the last writer before a first reader."""
    writer: dict[str, str] = {}
    read: set[str] = set()
    for leaf in (leaf for node in program.body for leaf in node.leaves):
        statement = leaf.statement
        read |= {access.array for access in statement.reads} - {statement.target.array}
        if statement.target.array not in read or statement.target.array not in writer:
            writer[statement.target.array] = statement.id
    found: dict[str, list[str]] = {}
    for array, identifier in writer.items():
        found.setdefault(identifier, []).append(array)
    return found


def _add(edges: dict[tuple[str, str], Edge], edge: Edge) -> None:
    """Several accesses between two nodes are one edge."""
    key = edge.source, edge.target
    known = edges.get(key)
    if known and edge.label not in known.label.split(", "):
        edge = Edge(*key, f"{known.label}, {edge.label}".strip(", "))
    elif known:
        edge = known
    edges[key] = edge


def _vertex(array: str, changed: bool = False) -> str:
    """The name of an array's vertex; ``changed``: of an input after the kernel has changed it."""
    return f"array {array} changed" if changed else f"array {array}"


def _array(program: Program, array: str, changed: bool = False) -> Vertex:
    buffer = program.buffer_of[array]
    shape = ",".join(d.text for d in buffer.dimensions)
    place = buffer.location if array == buffer.name else f"{buffer.location}, in {buffer.name}"
    if buffer.values is not None:
        place = f"table = {elements(buffer)}"
    return Vertex(_vertex(array, changed), (array, f"{buffer.kind} [{shape}] {place}"), True)


def _moves(access: Access, sizes: Sequence[int]) -> str:
    """Sizes of the loops whose iterators the access names."""
    return "\u00d7".join(str(sizes[level]) for level in access.levels)


def _around(program: Program, path: Path) -> str:
    """The scopes around a statement, as they are printed."""
    return " ".join(scope.head for scope in program.ancestors(path))


# -- Graphviz ----------------------------------------------------------------------------------------


def dot(program: Program) -> str:
    """The graph in Graphviz's language; scopes are clusters."""
    found = graph(program)
    vertices = {vertex.name: vertex for vertex in found.vertices}
    arrays = [_dot_vertex(vertex) for vertex in found.vertices if vertex.is_array]
    edges = [f"{_quoted(e.source)} -> {_quoted(e.target)} [label={_quoted(e.label)}];" for e in found.edges]
    tree = [line for node in program.body for line in _clusters(node, vertices)]
    lines = [*arrays, *tree, *edges]
    head = f"digraph {_quoted(program.name)} {{"
    return "\n".join([head, *(f"    {line}" for line in lines), "}"]) + "\n"


def _clusters(node: Node, vertices: dict[str, Vertex]) -> Iterator[str]:
    """A statement, or a scope as a box around what is in it; a chain of scopes is one box."""
    if not isinstance(node, Scope):
        yield _dot_vertex(vertices[f"statement {node.id}"], only_text=True)
        return
    name, heads = node.id, [node.head]
    while len(node.body) == 1 and isinstance(node.body[0], Scope):
        node = node.body[0]
        heads.append(node.head)
    yield f"subgraph {_quoted(f'cluster {name}')} {{"
    yield f"    label={_quoted(' '.join(heads))}; labeljust=l;"
    for child in node.body:
        yield from (f"    {line}" for line in _clusters(child, vertices))
    yield "}"


def _dot_vertex(vertex: Vertex, only_text: bool = False) -> str:
    lines = vertex.lines[1:] if only_text else vertex.lines
    shape = "ellipse" if vertex.is_array else "box"
    return f"{_quoted(vertex.name)} [shape={shape}, label={_quoted(*lines)}];"


def _quoted(*lines: str) -> str:
    """A string of the language; ``lines`` stand below each other."""
    escaped = (line.replace("\\", "\\\\").replace('"', '\\"') for line in lines)
    return '"' + "\\n".join(escaped) + '"'

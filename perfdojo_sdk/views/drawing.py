"""The graph as a drawing in SVG: layers from inputs to outputs, without an external layout program.

Each node stands below what it depends on (an array that is updated in place closes a loop, whose last
edge points upwards). Edges that cross layers bend at a point in each. Within a layer, nodes are ordered
by the mean place of their neighbours, a few times up and down, which removes most crossings.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from xml.sax.saxutils import escape

from perfdojo_sdk.core.errors import DojoError
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.views.graph import Edge, Graph, Vertex, graph

MOST_NODES = 500

#: Sizes in pixels: a character, a line of text, and the room around nodes.
CHARACTER, LINE, PADDING, GAP, LAYER_GAP, MARGIN = 7.3, 17, 10, 26, 46, 12
_SWEEPS = 8

_STYLE = (
    "text{font:12px ui-monospace,Menlo,Consolas,monospace;fill:#222}"
    ".scope{fill:#777}.label{font-size:10px;fill:#555;paint-order:stroke;stroke:#fff;stroke-width:3px}"
    ".array{fill:#e8f1fb;stroke:#3b6ea5}.statement{fill:#fdf6e3;stroke:#b58900}"
    ".edge{fill:none;stroke:#777}#head path{fill:#777}"
)


class DrawingError(DojoError):
    """The graph cannot be drawn."""


def svg(program: Program) -> str:
    """The graph as an SVG image; :class:`DrawingError` when it is too large to be read."""
    found = graph(program)
    if len(found.vertices) > MOST_NODES:
        what = f"a graph of {len(found.vertices)} nodes is too large to draw; the most is {MOST_NODES}"
        raise DrawingError("PD-F001", what, hint="`--format dot` prints any graph, for Graphviz")
    return "\n".join(_image(found, _Layout(found))) + "\n"


@dataclass
class _Spot:
    """A node of the layout: a vertex, or a point where a long edge passes a layer."""

    layer: int
    width: float = 0.0
    height: float = 0.0
    x: float = 0.0
    y: float = 0.0
    neighbours: dict[int, list[_Spot]] = field(default_factory=lambda: defaultdict(list))
    """Layer -> spots there that an edge leads to or from."""


class _Layout:
    """Positions: ``spots`` by vertex, ``routes`` by edge, and the size of the whole."""

    def __init__(self, drawn: Graph) -> None:
        layer = _layers(drawn)
        self.spots = {v.name: _Spot(layer[v.name], *_size(v)) for v in drawn.vertices}
        self.routes = {edge: self._route(edge) for edge in drawn.edges}
        self.layers: dict[int, list[_Spot]] = defaultdict(list)
        seen: set[int] = set()
        for spot in [*self.spots.values(), *(s for route in self.routes.values() for s in route)]:
            if id(spot) not in seen:
                seen.add(id(spot))
                self.layers[spot.layer].append(spot)
        self._order()
        self._place()

    def _route(self, edge: Edge) -> list[_Spot]:
        """The spots that an edge passes, ends included."""
        first, last = self.spots[edge.source], self.spots[edge.target]
        step = 1 if last.layer >= first.layer else -1
        between = [_Spot(layer) for layer in range(first.layer + step, last.layer, step)]
        route = [first, *between, last]
        for a, b in zip(route, route[1:]):
            a.neighbours[b.layer].append(b)
            b.neighbours[a.layer].append(a)
        return route

    def _order(self) -> None:
        """Bring the nodes of each layer into an order with few crossings."""
        for spots in self.layers.values():
            for k, spot in enumerate(spots):
                spot.x = k
        downwards = sorted(self.layers)
        for sweep in range(_SWEEPS):
            step = 1 if sweep % 2 else -1
            for number in downwards if step == 1 else reversed(downwards):
                spots = self.layers[number]
                means = {id(s): _mean(s.neighbours.get(number - step, ()), s.x) for s in spots}
                spots.sort(key=lambda s: means[id(s)])
                for k, spot in enumerate(spots):
                    spot.x = k

    def _place(self) -> None:
        """Turn orders into coordinates: below each other where edges are straight, never overlapping."""
        y = float(MARGIN)
        for number in sorted(self.layers):
            spots = self.layers[number]
            height = max(s.height for s in spots)
            for spot in spots:
                spot.y = y + height / 2
            y += height + LAYER_GAP
            _spread(spots, [0.0] * len(spots))
        for sweep in range(_SWEEPS):
            step = 1 if sweep % 2 == 0 else -1
            for number in sorted(self.layers, reverse=step == -1):
                spots = self.layers[number]
                _spread(spots, [_mean(s.neighbours.get(number - step, ()), s.x) for s in spots])
        left = min(s.x - s.width / 2 for s in self._all())
        for spot in self._all():
            spot.x += MARGIN - left
        self.height = y - LAYER_GAP + MARGIN
        self.width = max(s.x + s.width / 2 for s in self._all()) + MARGIN

    def _all(self) -> Iterator[_Spot]:
        return (spot for spots in self.layers.values() for spot in spots)


def _layers(drawn: Graph) -> Mapping[str, int]:
    """Vertex -> layer: one below the lowest of what it depends on and comes earlier in the program.

    What depends on nothing (an input, a start value) stands right above the first that needs it.
    """
    order = {v.name: k for k, v in enumerate(drawn.vertices)}
    sources: dict[str, list[str]] = defaultdict(list)
    users: dict[str, list[str]] = defaultdict(list)
    for edge in drawn.edges:
        if order[edge.source] < order[edge.target]:
            sources[edge.target].append(edge.source)
            users[edge.source].append(edge.target)
    layer: dict[str, int] = {}
    for vertex in drawn.vertices:
        layer[vertex.name] = max((layer[s] + 1 for s in sources[vertex.name]), default=0)
    for vertex in drawn.vertices:
        if not sources[vertex.name] and users[vertex.name]:
            layer[vertex.name] = min(layer[u] for u in users[vertex.name]) - 1
    return layer


def _size(vertex: Vertex) -> tuple[float, float]:
    return max(map(len, vertex.lines)) * CHARACTER + 2 * PADDING, len(vertex.lines) * LINE + PADDING


def _mean(spots: Sequence[_Spot], default: float) -> float:
    return sum(s.x for s in spots) / len(spots) if spots else default


def _spread(spots: Sequence[_Spot], wanted: Sequence[float]) -> None:
    """Put ``spots``, in order, near the wanted places, with gaps between them."""
    previous: _Spot | None = None
    for spot, x in zip(spots, wanted):
        least = previous.x + (previous.width + spot.width) / 2 + GAP if previous else x
        spot.x = max(x, least)
        previous = spot
    # Nodes were only pushed to the right, so move the whole layer back.
    shift = sum(w - s.x for s, w in zip(spots, wanted)) / len(spots)
    for spot in spots:
        spot.x += shift


# -- the image ---------------------------------------------------------------------------------------


def _image(drawn: Graph, layout: _Layout) -> Iterator[str]:
    width, height = round(layout.width), round(layout.height)
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}"'
        f' viewBox="0 0 {width} {height}">'
    )
    yield f"<title>{escape(drawn.name)}</title>"
    yield f"<style>{_STYLE}</style>"
    yield '<defs><marker id="head" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7"'
    yield ' orient="auto"><path d="M0 0L8 4L0 8z"/></marker></defs>'
    for edge in drawn.edges:
        yield from _edge(edge, layout.routes[edge])
    for vertex in drawn.vertices:
        yield from _vertex(vertex, layout.spots[vertex.name])
    yield "</svg>"


def _vertex(vertex: Vertex, spot: _Spot) -> Iterator[str]:
    kind = "array" if vertex.is_array else "statement"
    left, top, radius = spot.x - spot.width / 2, spot.y - spot.height / 2, 14 if vertex.is_array else 2
    yield f'<g id="{escape(vertex.name.replace(" ", "-"))}">'
    yield (
        f'<rect class="{kind}" x="{left:.1f}" y="{top:.1f}" width="{spot.width:.1f}"'
        f' height="{spot.height:.1f}" rx="{radius}"/>'
    )
    for k, line in enumerate(vertex.lines):
        style = ' class="scope"' if (k == 0) != vertex.is_array else ""
        y = top + PADDING / 2 + LINE * (k + 0.75)
        yield f'<text{style} x="{spot.x:.1f}" y="{y:.1f}" text-anchor="middle">{escape(line)}</text>'
    yield "</g>"


def _edge(edge: Edge, route: Sequence[_Spot]) -> Iterator[str]:
    """A curve through the route, vertical at each layer, with its label at the middle of the first piece."""
    down = route[-1].layer > route[0].layer
    points = [(spot.x, spot.y) for spot in route]
    half = [spot.height / 2 if down else -spot.height / 2 for spot in (route[0], route[-1])]
    points[0] = (points[0][0], points[0][1] + half[0])
    points[-1] = (points[-1][0], points[-1][1] - half[1])
    path = f"M{points[0][0]:.1f} {points[0][1]:.1f}"
    for (x0, y0), (x1, y1) in zip(points, points[1:]):
        middle = (y0 + y1) / 2
        path += f"C{x0:.1f} {middle:.1f} {x1:.1f} {middle:.1f} {x1:.1f} {y1:.1f}"
    yield f'<path class="edge" d="{path}" marker-end="url(#head)"/>'
    if edge.label:
        (x0, y0), (x1, y1) = points[:2]
        x, y = (x0 + x1) / 2 + 4, (y0 + y1) / 2
        yield f'<text class="label" x="{x:.1f}" y="{y:.1f}">{escape(edge.label)}</text>'

"""Races of kernels against a peer on this machine: the same inputs, the same threads, calls in turns.

A peer's part takes the place of the kernels of some nodes only if its results are theirs, if it is clearly
faster, and if the whole model with all such parts is faster than without them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from time import perf_counter
from typing import Protocol

import numpy as np

from perfdojo_sdk.core.errors import DojoError
from perfdojo_sdk.core.words import number_of
from perfdojo_sdk.graph.arrays import numpy_dtype
from perfdojo_sdk.graph.graph import Array, Foreign, Graph, Node, Value
from perfdojo_sdk.graph.refusals import Refused
from perfdojo_sdk.library.arrays import ArgumentValueError, aligned_empty
from perfdojo_sdk.library.loader import Library
from perfdojo_sdk.models.model import Model
from perfdojo_sdk.models.naming import kernel_name
from perfdojo_sdk.models.peers import PeerError, open_part
from perfdojo_sdk.models.policy import Policy

#: Time for the timed calls of each side, and the most of them.
BUDGET_S, REPEATS = 0.3, 50


@dataclass(frozen=True)
class Offer:
    """A part of a peer that can take the place of some kernels."""

    members: frozenset[int]
    """Numbers of the nodes of the graph."""
    part: Foreign
    values: Mapping[str, Value]
    """Values that the graph does not have yet."""
    views: Mapping[str, str]


class Offers(Protocol):
    """A model in its own format, of which a peer may take parts."""

    def offer(self, graph: Graph, members: frozenset[int], peer: str, name: str) -> Offer:
        """The part that does what these nodes of the graph do; :class:`Refused` if there is none."""
        ...


@dataclass(frozen=True)
class Race:
    """The result for kernels of some nodes of the model; equal ones race once."""

    kernels: tuple[str, ...]
    nodes: str
    calls: int
    ours_s: float
    peer_s: float | None
    """None if the peer did not race."""
    peer: str
    """The peer, if it won; else empty."""
    why: str


def grouped(graph: Graph) -> list[frozenset[int]]:
    """Nodes of the graph by the nodes of the model that they were made from: each of these in one group."""
    groups: list[tuple[set[str], set[int]]] = []
    for k, node in enumerate(graph.nodes):
        names, members = set(node.origin.split(", ")), {k}
        for other in [g for g in groups if not g[0].isdisjoint(names)]:
            groups.remove(other)
            names |= other[0]
            members |= other[1]
        groups.append((names, members))
    return [frozenset(members) for _, members in groups]


def raced(
    graph: Graph, library: Library, offers: Offers, policy: Policy, threads: int
) -> tuple[tuple[Race, ...], tuple[Offer, ...]]:
    """A race for each group of kernels, and the offers that won."""
    races: dict[object, Race] = {}
    won: list[Offer] = []
    for number, members in enumerate(grouped(graph)):
        nodes = [graph.nodes[k] for k in sorted(members)]
        offer: Offer | None = None
        try:
            offer = offers.offer(graph, members, policy.prefer_faster, f"race{number}")
            key: object = (tuple(n.program.text for n in nodes), offer.part.content)
            why = ""
        except Refused as refused:
            key = (tuple(n.program.text for n in nodes), refused.what)
            why = refused.what
        if key not in races:
            races[key] = _race(graph, nodes, offer, why, library, policy, threads)
        else:
            races[key] = replace(races[key], calls=races[key].calls + 1)
        race = races[key]
        if offer is not None and race.peer and race.peer_s is not None:
            why = (
                f"{race.peer_s * 1e6:.2f} us there, {race.ours_s * 1e6:.2f} us in our kernels, measured here"
            )
            why += f" with {number_of(threads, 'threads')}"
            part = replace(offer.part, why=why, ours_s=race.ours_s, peer_s=race.peer_s)
            won.append(replace(offer, part=part))
    return tuple(races.values()), tuple(won)


def with_offers(graph: Graph, offers: Sequence[Offer]) -> Graph:
    """The graph in which parts of a peer take the place of kernels. Constants stay: the model's function in
    C, which calls no peer, reads them."""
    gone = {k for offer in offers for k in offer.members}
    values, views = dict(graph.values), dict(graph.views)
    for offer in offers:
        values.update(offer.values)
        views.update(offer.views)
    return replace(
        graph,
        nodes=tuple(node for k, node in enumerate(graph.nodes) if k not in gone),
        foreign=(*graph.foreign, *(offer.part for offer in offers)),
        values=values,
        views=views,
    )


def _race(
    graph: Graph,
    nodes: Sequence[Node],
    offer: Offer | None,
    why: str,
    library: Library,
    policy: Policy,
    threads: int,
) -> Race:
    inputs = _operands(graph, nodes)
    arrays = dict(inputs)
    for name in (name for node in nodes for name in node.outputs):
        value = graph.values[name]
        arrays[name] = aligned_empty(value.shape, numpy_dtype(value.dtype))

    def bound(name: str) -> Array:
        value = graph.values[name]
        return arrays[graph.home(name)].view(numpy_dtype(value.dtype)).reshape(value.shape)

    steps = []
    for node in nodes:
        made = tuple(bound(name) for name in node.outputs)
        kernel = library[kernel_name(node.program)]
        steps.append(kernel.bind(*(bound(name) for name in node.inputs), out=made, threads=threads))

    def ours() -> None:
        for step in steps:
            step()

    names = tuple(kernel_name(node.program) for node in nodes)
    origin = ", ".join(dict.fromkeys(node.origin for node in nodes))
    if offer is None:
        [ours_s] = in_turns(ours)
        return Race(names, origin, 1, ours_s, None, "", f"not raced: {why}")
    try:
        peer, results = _peer(graph, offer, arrays, threads)
        ours_s, peer_s = in_turns(ours, peer)
    except DojoError as error:
        [ours_s] = in_turns(ours)
        return Race(names, origin, 1, ours_s, None, "", f"not raced: {error.what}: {error.why}"[:500])
    for name, array in results.items():
        if not close(bound(name), array):
            return Race(names, origin, 1, ours_s, peer_s, "", "the peer's results are others")
    chosen = policy.peer_for(ours_s, peer_s)
    return Race(names, origin, 1, ours_s, peer_s, chosen, "" if chosen else "the peer is not clearly faster")


def _peer(
    graph: Graph, offer: Offer, arrays: Mapping[str, Array], threads: int
) -> tuple[Callable[[], None], dict[str, Array]]:
    """The call of a part on the inputs of our kernels, and the arrays that it writes, by our values."""
    values, views = {**graph.values, **offer.values}, {**graph.views, **offer.views}
    whole = replace(graph, values=values, views=views)

    def bound(name: str) -> Array:
        value, home = values[name], whole.home(name)
        found = arrays[home] if home in arrays else graph.constants[home]
        return found.view(numpy_dtype(value.dtype)).reshape(value.shape)

    opened = open_part(offer.part.peer, offer.part.content, "the race")
    given = [bound(name) for name in offer.part.inputs]
    results = [aligned_empty(values[n].shape, numpy_dtype(values[n].dtype)) for n in offer.part.outputs]
    by_home = dict(zip(offer.part.outputs, results, strict=True))
    replaced = {view: of for view, of in offer.views.items() if of in by_home}
    made = {view: by_home[of].reshape(graph.values[view].shape) for view, of in replaced.items()}
    return (lambda: opened(given, results, threads)), made


def _operands(graph: Graph, nodes: Sequence[Node]) -> dict[str, Array]:
    """The data of what kernels read from outside: constants, and else random numbers."""
    written = {name for node in nodes for name in node.outputs}
    homes = dict.fromkeys(graph.home(n) for node in nodes for n in node.inputs)
    outside = [home for home in homes if home not in written]
    found = drawn([graph.values[home] for home in outside], 0)
    return {home: graph.constants.get(home, found[home]) for home in outside}


def drawn(values: Sequence[Value], seed: int) -> dict[str, Array]:
    """Random inputs: normal floats, bytes of the whole range, other integers small, since they may choose
    elements."""
    draw = np.random.default_rng(seed)
    found: dict[str, Array] = {}
    for value in values:
        kind = numpy_dtype(value.dtype)
        if kind.kind in "iu" and kind.itemsize == 1:
            limits = np.iinfo(kind)
            found[value.name] = draw.integers(limits.min, limits.max + 1, value.shape).astype(kind)
        elif kind.kind in "biu":
            found[value.name] = draw.integers(0, 2 if kind.kind == "b" else 4, value.shape).astype(kind)
        else:
            found[value.name] = draw.standard_normal(value.shape).astype(kind)
    return found


def in_turns(*calls: Callable[[], object]) -> list[float]:
    """Median seconds of each call; they take turns, so that a change of the machine's speed meets all."""
    found: list[list[float]] = [[] for _ in calls]
    for call in calls:
        call()
    while len(found[0]) < 3 or (len(found[0]) < REPEATS and max(map(sum, found)) < BUDGET_S):
        for call, times in zip(calls, found, strict=True):
            begin = perf_counter()
            call()
            times.append(perf_counter() - begin)
    return [median(times) for times in found]


def timed_part(graph: Graph, part: Foreign, threads: int) -> float:
    """Median seconds of a part in its peer with so many threads, on random inputs from 0 to 1: a peer may
    abort on what is no probability."""
    opened = open_part(part.peer, part.content, "the model")
    given = {
        n: np.abs(np.sin(a)).astype(a.dtype) if a.dtype.kind == "f" else a
        for n, a in drawn([graph.values[name] for name in part.inputs], 0).items()
    }
    for name in part.inputs:
        if graph.home(name) in graph.constants:
            given[name] = graph.constants[graph.home(name)].reshape(graph.values[name].shape)
    inputs = [given[name] for name in part.inputs]
    values = [graph.values[name] for name in part.outputs]
    outputs = [aligned_empty(value.shape, numpy_dtype(value.dtype)) for value in values]
    try:
        opened(inputs, outputs, threads)
    except PeerError:  # some values are not allowed; zero is in most places
        inputs = [np.zeros_like(array) for array in inputs]
    return in_turns(lambda: opened(inputs, outputs, threads))[0]


def timed_models(models: Sequence[Model], inputs: Sequence[Value], threads: int) -> list[float]:
    """Median seconds of a call of each model on random inputs."""
    given = drawn(inputs, 0)
    try:
        models[0].run(given, threads)
    except ArgumentValueError:  # an index beyond its array: zero is none
        given = {n: np.zeros_like(a) if a.dtype.kind in "iu" else a for n, a in given.items()}
    return in_turns(*[lambda model=model: model.run(given, threads) for model in models])


def close(one: Array, other: Array) -> bool:
    """True for equal integers, and for floats that differ by rounding in another order."""
    if one.dtype.kind in "biu":
        return one.tobytes() == other.tobytes()
    wide, reference = one.astype(np.float64), other.astype(np.float64)
    scale = float(np.max(np.abs(reference[np.isfinite(reference)]), initial=0.0))
    return np.allclose(wide, reference, rtol=1e-3, atol=1e-4 * max(scale, 1e-30), equal_nan=True)

"""Sums of quantised numbers as integer kernels: ``scale * (sum of integers)`` instead of a sum of floats.

The sum of ``(x - zero) * w`` is ``(sum of x * w) - zero * (sum of w)``, exactly, since integers wrap; the
second sum follows from constant weights and is computed once. An image is padded with its zero point, and
channels are filled up to whole groups with weights of zero, so that no condition is left. Channels lie last,
as instructions that add up groups want them; kernels that follow each other, and steps between them that go
element by element, pass arrays on in that order.

Sums of integers stay what they were, to the last bit. A sum of floats that came from integers becomes
``factor * sum + shift``, rounded where it is quantised again: that is a declared law, *requantisation*.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perfdojo_sdk.core.dialect import Dialect
from perfdojo_sdk.graph.copying import Copy
from perfdojo_sdk.graph.folding import Fold
from perfdojo_sdk.graph.graph import Graph, Node, Value
from perfdojo_sdk.graph.integer_kernel import IntegerKernel, Site, Unit, layout_of, level_of
from perfdojo_sdk.graph.operators.movement import transpose
from perfdojo_sdk.graph.quantised import Reader, Sum
from perfdojo_sdk.graph.turning import order_of, turned

#: The law by which a sum of floats becomes one of integers.
REQUANTISATION = "requantisation"


@dataclass(frozen=True)
class Pair:
    """A value as a graph computes it from floats, and as an integer kernel does from the same inputs."""

    before: str
    after: str
    where: str
    exact: bool
    """True if both have the same bits."""


def unit_of(dialect: Dialect) -> Unit | None:
    """The widest group of integers with sums of 32 bits that a target has."""
    found = [g for s in dialect.suffixes.values() for g in s.groups if g.total == "i32"]
    known = [Unit(*g.factors, g.size) for g in found if g.factors in (("u8", "i8"), ("i16", "i16"))]
    return max(known, key=lambda unit: unit.size, default=None)


def with_integer_sums(graph: Graph, unit: Unit | None, laws: bool) -> tuple[Graph, tuple[Fold, ...]]:
    """The graph whose sums of quantised numbers are integer kernels; sums of floats only with ``laws``."""
    if unit is None or graph.cuts or graph.foreign:
        return graph, ()
    work = _Rewriter(graph, unit, laws)
    if not work.sites:
        return graph, ()
    return work.rewritten(), tuple(work.folds)


def side_by_side(graph: Graph, unit: Unit) -> tuple[Graph, tuple[Pair, ...]]:
    """The graph as it is, with each integer kernel beside what it stands for, on the same inputs: its outputs
    are the values after, then those before of all pairs."""
    work = _Rewriter(graph, unit, laws=True, beside=True)
    found = work.rewritten()
    return found, tuple(work.pairs)


# -- the graph ---------------------------------------------------------------------------------------


class _Rewriter(Copy):
    """A graph on its way to one with integer kernels."""

    def __init__(self, graph: Graph, unit: Unit, laws: bool, beside: bool = False) -> None:
        super().__init__(graph)
        self.unit, self.beside = unit, beside
        self.read = Reader(graph)
        self.folds: list[Fold] = []
        self.pairs: list[Pair] = []
        self.last: dict[tuple[str, int], Value] = {}
        """A value and one of its dimensions -> the value with that dimension last."""
        self.sites: dict[int, Site] = {}
        """Number of a node -> what becomes of it."""
        for k, node in enumerate(graph.nodes):
            site = self._site(node)
            if site is not None and (laws or site.result.exact):
                self.sites[k] = site

    def _site(self, node: Node) -> Site | None:
        total = self.read.sum(node)
        layout = layout_of(total) if total is not None else None
        if total is None or layout is None:
            return None
        single = total.bias is None or total.bias.size == 1
        if not single and (total.bias_at is None or level_of(total.bias_at, total.sizes) != layout.lane):
            return None
        weights, scale = total.weights, np.asarray(1.0)
        if weights.scale is not None:
            by = self.read.constant(total.image.scale)
            assert by is not None
            of_lane = weights.axis is None or (
                level_of(total.of_weights.subscripts[weights.axis], total.sizes) == layout.lane
            )
            if not of_lane:
                return None
            scale = weights.scale * float(by.reshape(-1)[0])
        found = self.read.result(total, layout.lane_dim, scale)
        finite = np.isfinite(found.factor).all() and np.isfinite(found.shift).all()
        if found.kind == "none" or not finite:
            return None
        return Site(total, layout, found)

    def rewritten(self) -> Graph:
        replaced = {site.result.value for site in self.sites.values()}
        outputs: dict[str, Value] = {}
        for k, node in enumerate(self.graph.nodes):
            self.b.origin = node.origin
            site = self.sites.get(k)
            if site is not None:
                made = self._integer_kernel(site)
                if self.beside:
                    outputs[f"after {len(self.pairs)}"] = made
                    self.pairs.append(
                        Pair(site.result.value, f"after {len(self.pairs)}", node.origin, site.result.exact)
                    )
                else:
                    self.new[site.result.value] = made
            if self.beside or replaced.isdisjoint(node.outputs):
                self._kept(node)
        self.checks()
        if self.beside:
            outputs |= {f"before {n}": self.value(pair.before) for n, pair in enumerate(self.pairs)}
        else:
            outputs = {value.name: self.value(value.name) for value in self.graph.outputs}
        return self.b.graph(outputs)

    def _kept(self, node: Node) -> None:
        """Add a node as it was, or with channels last if that is how its operands come."""
        if self.beside or not self._turned(node):
            self.node(node)

    def _turned(self, node: Node) -> bool:
        """True if the operands of a node have a dimension last that it walks along: then it is added with its
        result in that order as well."""
        bound = dict(zip(node.program.inputs, node.inputs, strict=True))
        last = {a: [d for of, d in self.last if of == name] for a, name in bound.items()}
        found = turned(node.program, last) if any(last.values()) else None
        if found is None:
            return False
        program, moved, dim = found
        inputs = [self.last[of, moved[a]] if a in moved else self.value(of) for a, of in bound.items()]
        [name] = node.outputs
        shape, dtype = program.buffer_of[program.outputs[0]].shape, self.graph.values[name].dtype
        (made,) = self.b.kernel(program, inputs, [(shape, dtype)])
        self._with_channels_last(name, made, dim)
        return True

    def _with_channels_last(self, name: str, made: Value, dim: int) -> Value:
        """Keep a result that has a dimension last; the result in its own order."""
        self.last[name, dim] = made
        order = order_of(made.rank, dim)
        own = order == list(range(made.rank))
        value = made if own else transpose(self.b, made, [order.index(d) for d in range(made.rank)])
        self.new[name] = value
        return value

    def _integer_kernel(self, site: Site) -> Value:
        total, layout = site.total, site.layout
        name = total.image.source
        turned = (name, layout.channel_dim) in self.last
        source = self.last[name, layout.channel_dim] if turned else self.value(name)
        kernel = IntegerKernel(self.b, site, self.unit, source, turned, self._zero(total))
        made = kernel.value()
        self._declare(site)
        rank = len(self.graph.values[site.result.value].shape)
        order = order_of(rank, layout.lane_dim)
        if self.beside:
            return transpose(self.b, made, [order.index(d) for d in range(rank)])
        return self._with_channels_last(site.result.value, made, layout.lane_dim)

    def _zero(self, total: Sum) -> Value | int:
        if not total.image.zero:
            return 0
        data = self.read.constant(total.image.zero)
        return self.value(total.image.zero) if data is None else int(data.reshape(-1)[0])

    def _declare(self, site: Site) -> None:
        name = site.total.node.program.name
        if site.result.exact:
            law, what = "none", f"{name} is a sum of integers in groups: the same bits"
        else:
            law = REQUANTISATION
            what = f"{name} adds up integers, exactly; factor * sum + shift is then rounded in f32"
        self.folds.append(Fold(law, site.total.node.origin or name, what))

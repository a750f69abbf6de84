"""Sums of products with constant weights of which most are zero: only the others are multiplied.

A row of weights becomes its numbers that are not zero and the places where they stood, both constants, and
the sum reads its other operand there:

    96 z[{0},{1}] += w[{0},{2}] * u[clamp(k[{0},{2}], 0, 767),{1}]

Vectors are made of the iterations that weights do not count (rows of a batch, places of an image), so these
are the last dimension of the other operand and of the result; where they are not, a kernel before and one
after bring them there. Rows are padded to the longest one of all, or sorted and padded to a few lengths; then
the kernel after puts them back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from perfdojo_sdk.core.expression import Access, Read
from perfdojo_sdk.core.parts import part
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.core.subscripts import LEVELS, AffineExpr
from perfdojo_sdk.graph.folding import DTYPES, Fold, Sum, sum_of
from perfdojo_sdk.graph.graph import Array, Graph, Node, Shape, Value
from perfdojo_sdk.graph.passes import without_dead_nodes
from perfdojo_sdk.graph.writer import parsed

#: Largest part of the products that may remain: a dense product reads each vector for several results.
MOST_LEFT = 0.3
#: Lengths that rows are padded to; they are sorted by length if padding all to one makes this much more.
MOST_LENGTHS = 8
WORTH_SORTING = 1.25
#: Fewest iterations besides rows and terms: vectors are made of them.
LEAST_LANES = 16
#: Fewest weights for which places pay.
LEAST_WEIGHTS = 2**12

_ZERO = AffineExpr.of({})


@dataclass(frozen=True)
class _Product:
    """A sum of products, by the levels of its loops that have more than one iteration."""

    total: Sum
    other: Access
    """The operand that is no weight."""
    guard: tuple[AffineExpr, ...]
    sizes: tuple[int, ...]
    rows: tuple[int, ...]
    """Levels that choose weights and results, in the order of the result's dimensions."""
    lanes: tuple[int, ...]
    """Levels that choose results only, in the same order."""
    terms: tuple[int, ...]
    """Levels of the sum."""

    def shape(self, levels: Sequence[int]) -> Shape:
        return tuple(self.sizes[level] for level in levels)

    def count(self, levels: Sequence[int]) -> int:
        return prod(self.shape(levels))


def with_zeros_left_out(graph: Graph) -> tuple[Graph, tuple[Fold, ...]]:
    """The graph in which sums multiply only weights that are not zero, where most are."""
    made = _Made(graph)
    folds: list[Fold] = []
    for node in graph.nodes:
        first, *rest = made.parted(node)
        product = _product(graph, first)
        fold = made.divided(first, product) if product else None
        made.nodes += [node] if fold is None else rest
        folds += [] if fold is None else [fold]
    return (without_dead_nodes(made.graph()) if folds else graph), tuple(folds)


def _product(graph: Graph, node: Node) -> _Product | None:
    """The node as a sum of products with one constant for each row and term; None if it is none."""
    total = sum_of(graph, node)
    if total is None:
        return None
    statement, sizes = node.program.body[0].leaves[-1]
    others = [read for read in statement.reads if read.array not in (total.weight, total.target.array)]
    many = {level for level, size in enumerate(sizes) if size > 1}
    chosen, results = many.intersection(total.access.levels), many.intersection(total.target.levels)
    rows, terms, lanes = chosen & results, many - results, results - chosen
    if len(others) != 1 or not rows or not terms or statement.lookups:
        return None
    if any(form.quotients for form in (*others[0].subscripts, *statement.guard)):
        return None

    def without_ones(form: AffineExpr) -> AffineExpr:
        return form.substitute(lambda level: LEVELS[level] if level in many else _ZERO)

    other = Access(others[0].array, tuple(map(without_ones, others[0].subscripts)))
    guard = tuple(map(without_ones, statement.guard))
    if any(form.levels & rows for form in (*other.subscripts, *guard)):
        return None
    array = node.program.buffer_of
    for access, levels in ((total.access, rows | terms), (total.target, rows | lanes)):
        plain = all(form == _ZERO or form in LEVELS for form in access.subscripts)
        cells = prod(sizes[level] for level in levels)
        if not plain or many.intersection(access.levels) != levels or array[access.array].cells != cells:
            return None
    order = [level for form in total.target.subscripts for level in form.levels]
    return _Product(
        total,
        other,
        guard,
        sizes,
        tuple(level for level in order if level in rows),
        tuple(level for level in order if level in lanes),
        tuple(sorted(terms)),
    )


class _Made:
    """A graph in the making, in which some nodes are divided."""

    def __init__(self, graph: Graph) -> None:
        self._given = graph
        self._values, self._views = dict(graph.values), dict(graph.views)
        self._constants = dict(graph.constants)
        self.nodes: list[Node] = []

    def graph(self) -> Graph:
        return replace(
            self._given,
            nodes=tuple(self.nodes),
            values=self._values,
            views=self._views,
            constants=self._constants,
        )

    def parted(self, node: Node) -> list[Node]:
        """The node as one for its first nest and one for the others, which read what the first one makes."""
        program = node.program
        made = {leaf.statement.target.array for leaf in program.body[0].leaves}
        if len(program.body) == 1 or len(made) > 1 or not made.isdisjoint(program.interface):
            return [node]
        (array,) = made
        buffer = program.buffer_of[array]
        values = dict(zip((*program.inputs, *program.outputs), (*node.inputs, *node.outputs), strict=True))
        values[array] = self._new(f"{node.outputs[0]}.{array}", buffer.shape, buffer.dtype)
        return [
            Node(
                each,
                tuple(values[a] for a in each.inputs),
                tuple(values[a] for a in each.outputs),
                node.origin,
            )
            for each in (part(program, program.body[:1]), part(program, program.body[1:]))
        ]

    def divided(self, node: Node, product: _Product) -> Fold | None:
        """Add the nodes that compute a product without its zeros; None where it has too few."""
        given = dict(zip(node.program.inputs, node.inputs, strict=True))
        weight, total = given[product.total.weight], product.total
        dtype = self._values[node.outputs[0]].dtype
        rows, lanes, terms = (product.count(l) for l in (product.rows, product.lanes, product.terms))
        if lanes < LEAST_LANES or rows * terms < LEAST_WEIGHTS or dtype not in DTYPES:
            return None
        numbers = self._along(weight, total.access, product.rows + product.terms).reshape(rows, terms)
        used = numbers != 0
        order, lengths = _lengths(used.sum(1))
        if sum(lengths) / len(lengths) > MOST_LEFT * terms:
            return None
        constants: dict[str, Array] = {}
        if isinstance(total.start.value, Read):
            if not set(total.start.value.access.levels).isdisjoint(product.lanes):
                return None
            bias = self._along(given[total.bias], total.start.value.access, product.rows)
            constants["bias"] = np.broadcast_to(bias, product.shape(product.rows)).reshape(rows)[order]
        for k, (length, mine) in enumerate(zip(lengths, np.split(order, len(lengths)), strict=True)):
            # Padding takes places of zeros, whose products the dense sum has too.
            places = np.sort(np.argsort(~used[mine], axis=1, kind="stable")[:, :length], axis=1)
            constants[f"numbers{k}"] = np.take_along_axis(numbers[mine], places, 1)
            constants[f"places{k}"] = places.astype(np.int32)
        operand = self._operand(node, product, given[product.other.array], (terms, lanes))
        names = [self._constant(f"{weight}.{kind}", data) for kind, data in constants.items()]
        program = _sparse(dtype, rows, lanes, terms, lengths, "bias" in constants)
        made = self._node(program, (operand, *names), (rows, lanes), dtype, node.origin)
        self._result(node, product, made, order if len(lengths) > 1 else None)
        left = f"{used.mean():.1%} of the products are left, at most {max(lengths)} in a row"
        what = f"{weight}: {left}; the others are by zero"
        return Fold("zeros times numbers", node.origin or node.program.name, what)

    def _operand(self, node: Node, product: _Product, value: str, shape: Shape) -> str:
        """The other operand, terms first and lanes last."""
        levels, access = product.terms + product.lanes, product.other
        of = self._values[value]
        if not product.guard and _flat(access, levels) and of.elements == prod(shape):
            return self._view(value, shape, of.dtype)
        place = {level: LEVELS[k] for k, level in enumerate(levels)}

        def form(old: AffineExpr) -> AffineExpr:
            return old.substitute(lambda level: place.get(level, _ZERO))

        sizes = product.shape(levels)
        loops = " ".join(map(str, sizes))
        target = f"u[{','.join(form.text for form in LEVELS[: len(levels)])}]"
        copy = f"{loops} {target} = x[{','.join(form(f).text for f in access.subscripts)}]"
        lines = [copy]
        if product.guard:
            condition = " and ".join(f"{form(f).text} >= 0" for f in product.guard)
            lines = [f"{loops} {target} = 0", f"{copy} if {condition}"]
        program = _parsed("operand", [("x", of.dtype, of.shape), ("u", of.dtype, sizes)], lines)
        return self._view(self._node(program, (value,), sizes, of.dtype, node.origin), shape, of.dtype)

    def _result(self, node: Node, product: _Product, value: str, sorted_rows: Array | None) -> None:
        """Give the node's output the elements of ``value``, whose rows may be sorted, and lanes come last."""
        levels, target = product.rows + product.lanes, product.total.target
        output = self._values[node.outputs[0]]
        if sorted_rows is None and _flat(target, levels):
            self._views[output.name] = value
            return
        order = [level for form in target.subscripts for level in form.levels if level in levels]
        place = {level: LEVELS[k] for k, level in enumerate(order)}
        forms = [form.substitute(lambda level: place.get(level, _ZERO)) for form in target.subscripts]
        lanes = [place[level].text for level in product.lanes]
        rows, seen = [place[level].text for level in product.rows], product.shape(levels)
        inputs, arrays = [self._view(value, seen, output.dtype)], [("z", output.dtype, seen)]
        if sorted_rows is not None:
            seen = (sorted_rows.size, *product.shape(product.lanes))
            places = np.argsort(sorted_rows).astype(np.int32).reshape(product.shape(product.rows))
            inputs = [self._view(value, seen, output.dtype), self._constant(f"{output.name}.rows", places)]
            arrays = [("z", output.dtype, seen), ("k", "i32", places.shape)]
            rows = [f"clamp(k[{','.join(rows)}], 0, {sorted_rows.size - 1})"]
        arrays.append(("y", output.dtype, output.shape))
        copy = f"y[{','.join(form.text for form in forms)}] = z[{','.join([*rows, *lanes])}]"
        loops = " ".join(map(str, product.shape(order)))
        program = _parsed("result", arrays, [f"{loops} {copy}"])
        self.nodes.append(Node(program, tuple(inputs), (output.name,), node.origin))

    # -- values

    def _along(self, name: str, access: Access, levels: Sequence[int]) -> Array:
        """A constant as an array over ``levels``, of which its subscripts are some; 1 for the others."""
        data = self._constants[self._given.home(name)].reshape(self._values[name].shape)
        found = data[tuple(slice(None) if form.levels else 0 for form in access.subscripts)]
        mine = [level for form in access.subscripts for level in form.levels]
        one = [k for k, level in enumerate(mine) if level not in levels]
        found = found.squeeze(tuple(one))
        mine = [level for level in mine if level in levels]
        there = [level for level in levels if level in mine]
        found = found.transpose([mine.index(level) for level in there])
        return found.reshape([found.shape[there.index(l)] if l in there else 1 for l in levels])

    def _new(self, wish: str, shape: Shape, dtype: str) -> str:
        while wish in self._values:
            wish += "'"
        self._values[wish] = Value(wish, shape, dtype)
        return wish

    def _constant(self, wish: str, data: Array) -> str:
        dtype = {"int32": "i32", "float32": "f32", "float64": "f64"}[data.dtype.name]
        name = self._new(wish, data.shape, dtype)
        self._constants[name] = np.ascontiguousarray(data)
        return name

    def _view(self, of: str, shape: Shape, dtype: str) -> str:
        if self._values[of].shape == shape:
            return of
        name = self._new(f"{of}.seen", shape, dtype)
        self._views[name] = of
        return name

    def _node(self, program: Program, inputs: Sequence[str], shape: Shape, dtype: str, origin: str) -> str:
        name = self._new(f"{inputs[0]}.{program.name}", shape, dtype)
        self.nodes.append(Node(program, tuple(inputs), (name,), origin))
        return name


def _flat(access: Access, levels: Sequence[int]) -> bool:
    """True if the subscripts are the levels, in their order and each once, beside loops of one and zeros."""
    found = [form for form in access.subscripts if form.levels & set(levels)]
    return found == [LEVELS[level] for level in levels]


def _lengths(counts: Array) -> tuple[Array, list[int]]:
    """An order of rows, and the length of each of some equal shares of them: 1 in their own order, unless
    that pads them too much."""
    most, rows = max(1, int(counts.max())), counts.size
    shares = max(n for n in range(1, MOST_LENGTHS + 1) if rows % n == 0)
    if most * rows <= WORTH_SORTING * max(1, counts.sum()) or shares == 1:
        return np.arange(rows), [most]
    order = np.argsort(counts, kind="stable")
    return order, [max(1, int(counts[mine].max())) for mine in np.split(order, shares)]


def _parsed(name: str, arrays: Sequence[tuple[str, str, Shape]], lines: Sequence[str]) -> Program:
    """The program of these lines; the last array is its output."""
    *inputs, output = [array for array, _, _ in arrays]
    declared = [f"{array} {dtype} [{','.join(map(str, shape))}] heap" for array, dtype, shape in arrays]
    return parsed("\n".join([f"kernel {name}({', '.join(inputs)}) -> {output}", *declared, "", *lines, ""]))


def _sparse(dtype: str, rows: int, lanes: int, terms: int, lengths: Sequence[int], biased: bool) -> Program:
    """The program of sums over places that are read from memory, for shares of rows with these lengths."""
    arrays: list[tuple[str, str, Shape]] = [("u", dtype, (terms, lanes))]
    arrays += [("b", dtype, (rows,))] if biased else []
    share, lines = rows // len(lengths), []
    for n, length in enumerate(lengths):
        arrays += [(f"w{n}", dtype, (share, length)), (f"k{n}", "i32", (share, length))]
        row = AffineExpr.of({0: 1}, n * share).text
        total, place = f"z[{row},{{1}}]", f"clamp(k{n}[{{0}},{{2}}], 0, {terms - 1})"
        lines += [
            f"{share} {lanes}",
            f"| {total} = {f'b[{row}]' if biased else '0'}",
            f"| {length} {total} += w{n}[{{0}},{{2}}] * u[{place},{{1}}]",
        ]
    return _parsed("sparse", [*arrays, ("z", dtype, (rows, lanes))], lines)

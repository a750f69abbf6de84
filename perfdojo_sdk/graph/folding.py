"""Folding of floats: what follows from constants is computed when the model is built.

Results then differ from those of the graph in their last bits, so each fold is declared. It is computed in
float64 and rounded once, and the whole model is compared with the graph that was not folded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import NamedTuple

import numpy as np

from perfdojo_sdk.core.domains import FLOAT64
from perfdojo_sdk.core.dtypes import FLOAT_DTYPES
from perfdojo_sdk.core.expression import Access, Cast, Expression, Literal, Operation, Read, performs
from perfdojo_sdk.core.names import fresh
from perfdojo_sdk.core.program import Program, Statement
from perfdojo_sdk.core.storage import Buffer, Dimension
from perfdojo_sdk.core.subscripts import LEVELS, AffineExpr
from perfdojo_sdk.graph.arrays import numpy_dtype
from perfdojo_sdk.graph.graph import Array, Graph, Node, Value
from perfdojo_sdk.graph.passes import without_dead_nodes
from perfdojo_sdk.graph.running import interpreted
from perfdojo_sdk.graph.writer import parsed

#: Most statements that are run to compute a constant.
MOST_STATEMENTS = 2**20
#: Dtypes in which a scale is folded into weights.
DTYPES = ("f32", "f64")


@dataclass(frozen=True)
class Fold:
    """A declared law, used once."""

    law: str
    where: str
    """The nodes of the model."""
    what: str


def folded(graph: Graph) -> tuple[Graph, tuple[Fold, ...]]:
    """The graph with constants computed, and with scales and shifts of sums folded into their weights."""
    graph, first = with_constants_computed(graph)
    graph, second = with_scales_folded(graph)
    return graph, (*first, *second)


# -- constants -------------------------------------------------------------------------------------


def with_constants_computed(graph: Graph) -> tuple[Graph, tuple[Fold, ...]]:
    """The graph without kernels of constants alone, as long as they are small."""
    constants = dict(graph.constants)
    nodes: list[Node] = []
    folds: list[Fold] = []
    for node in graph.nodes:
        known = all(graph.home(name) in constants for name in node.inputs)
        if not known or _iterations(node.program) > MOST_STATEMENTS:
            nodes.append(node)
            continue
        given = [constants[graph.home(n)].reshape(graph.values[n].shape) for n in node.inputs]
        floats = any(graph.values[name].dtype in FLOAT_DTYPES for name in node.outputs)
        results = interpreted(node.program, given, FLOAT64) if floats else interpreted(node.program, given)
        constants.update(zip(node.outputs, results, strict=True))
        if floats:
            what = f"{node.program.name} of constants is computed when the model is built"
            folds.append(Fold("constants", node.origin or node.program.name, what))
    return without_dead_nodes(replace(graph, nodes=tuple(nodes), constants=constants)), tuple(folds)


def _iterations(program: Program) -> int:
    return sum(prod(leaf.sizes) for node in program.body for leaf in node.leaves)


# -- scales and shifts -----------------------------------------------------------------------------


class Line(NamedTuple):
    """A value ``factor * t + shift``; both are numbers, or have one for each channel."""

    factor: Array
    shift: Array


class Sum(NamedTuple):
    """A kernel that is one sum of products of an input and a weight, from 0 or a bias on."""

    target: Access
    weight: str
    """The array."""
    access: Access
    start: Statement
    bias: str
    """The array; empty where the sum starts at 0."""


class Steps(NamedTuple):
    """A kernel that is one element-wise statement."""

    statement: Statement
    sizes: tuple[int, ...]


def with_scales_folded(graph: Graph) -> tuple[Graph, tuple[Fold, ...]]:
    """The graph in which ``factor * sum + shift`` by constants, for each channel, is in weights and bias."""
    folds: list[Fold] = []
    while (found := _next_fold(graph)) is not None:
        graph, fold = found
        folds.append(fold)
    return without_dead_nodes(graph), tuple(folds)


def _next_fold(graph: Graph) -> tuple[Graph, Fold] | None:
    makers = {name: node for node in graph.nodes for name in node.outputs}
    readers: dict[str, int] = {}
    needed = [value.name for value in graph.outputs] + [check.value for check in graph.checks]
    for name in needed + [name for call in graph.calls for name in call.inputs]:
        readers[graph.home(name)] = readers.get(graph.home(name), 0) + 1
    for node in graph.nodes:
        for name in node.inputs:
            maker = makers.get(name)
            if maker is not None and readers[name] == 1:
                made = _folded_pair(graph, maker, node, name)
                if made is not None:
                    return made
    return None


def _folded_pair(graph: Graph, maker: Node, user: Node, name: str) -> tuple[Graph, Fold] | None:
    """One kernel for a sum and the scale and shift behind it; None where they are no such pair."""
    total, steps = sum_of(graph, maker), steps_of(user.program)
    if total is None or steps is None or graph.values[name].dtype not in DTYPES:
        return None
    array = user.program.inputs[user.inputs.index(name)]
    known = {
        inner: graph.constants[graph.home(value)].reshape(graph.values[value].shape)
        for inner, value in zip(user.program.inputs, user.inputs, strict=True)
        if graph.home(value) in graph.constants
    }
    levels = {l for read in steps.statement.reads if read.array != array for l in read.levels}
    if len(levels) > 1 or not same_places(user.program, steps, array):
        return None
    level = levels.pop() if levels else None
    line = line_of(steps.statement.value, array, known, level)
    if line is None or not line.factor.any():
        return None
    return _with_weights(graph, maker, user, total, line, level)


def sum_of(graph: Graph, node: Node) -> Sum | None:
    """The node as one sum of products with a constant; None if it is none."""
    program = node.program
    leaves = [leaf.statement for tree in program.body for leaf in tree.leaves]
    if len(program.body) != 1 or len(leaves) != 2 or len(node.outputs) != 1:
        return None
    start, step = leaves
    factors = step.value.arguments if performs(step.value, "mul") else ()
    reads = [factor.access for factor in factors if isinstance(factor, Read)]
    if step.accumulate != "add" or start.accumulate or start.guard or len(reads) != 2:
        return None
    values = dict(zip(program.inputs, node.inputs, strict=True))
    constant = [read for read in reads if graph.home(values[read.array]) in graph.constants]
    if len(constant) != 1 or start.target != step.target or start.lookups or step.lookups:
        return None
    zero = isinstance(start.value, Literal) and start.value.value == 0
    bias = start.value.access.array if isinstance(start.value, Read) else ""
    if not zero and (not bias or graph.home(values[bias]) not in graph.constants):
        return None
    return Sum(step.target, constant[0].array, constant[0], start, bias)


def steps_of(program: Program) -> Steps | None:
    leaves = [leaf for tree in program.body for leaf in tree.leaves]
    if len(leaves) != 1 or leaves[0].statement.guard or leaves[0].statement.accumulate:
        return None
    return Steps(*leaves[0])


def same_places(program: Program, steps: Steps, array: str) -> bool:
    """True if each element is made of the one at its own place, and dimensions are loops in their order."""
    target = steps.statement.target
    mine = [read for read in steps.statement.reads if read.array == array]
    shape = program.buffer_of[target.array].shape
    plain = all(f == LEVELS[k] or shape[k] == 1 for k, f in enumerate(target.subscripts))
    return (
        plain
        and program.buffer_of[array].shape == shape
        and all(
            f == g or size == 1
            for read in mine
            for f, g, size in zip(read.subscripts, target.subscripts, shape, strict=True)
        )
    )


def line_of(value: Expression, array: str, known: Mapping[str, Array], level: int | None) -> Line | None:
    """The value as a line over the elements of ``array``, in float64; None if it is none."""
    if isinstance(value, Literal):
        return Line(np.asarray(0, np.float64), np.asarray(value.value, np.float64))
    if isinstance(value, Read):
        if value.access.array == array:
            return Line(np.asarray(1, np.float64), np.asarray(0, np.float64))
        data = _along(value.access, known, level)
        return None if data is None else Line(np.asarray(0, np.float64), data)
    if isinstance(value, Cast):
        inside = line_of(value.argument, array, known, level)
        return inside if value.dtype in DTYPES and value.argument.dtype in DTYPES else None
    if not isinstance(value, Operation):
        return None
    parts = [line_of(argument, array, known, level) for argument in value.arguments]
    lines = [part for part in parts if part is not None]
    return _combined(value.name, lines) if len(lines) == len(parts) else None


def _along(access: Access, known: Mapping[str, Array], level: int | None) -> Array | None:
    """Data of a constant, which has one number, or one for each iteration of a loop."""
    if access.array not in known:
        return None
    data = known[access.array].astype(np.float64)
    places: list[int | slice] = []
    for form in access.subscripts:
        if level is not None and form == LEVELS[level]:
            places.append(slice(None))
        elif not form.terms and not form.quotients:
            places.append(form.constant)
        else:
            return None
    found: Array = data[tuple(places)]
    return found if found.ndim < 2 else None


def _combined(name: str, lines: list[Line]) -> Line | None:
    """An operation on lines, if its result is one."""
    one, other = lines[0], lines[-1]
    with np.errstate(all="ignore"):
        if name == "add":
            return Line(one.factor + other.factor, one.shift + other.shift)
        if name == "sub":
            return Line(one.factor - other.factor, one.shift - other.shift)
        if name == "neg":
            return Line(-one.factor, -one.shift)
        if name == "mul" and not one.factor.any():
            return Line(one.shift * other.factor, one.shift * other.shift)
        if name == "mul" and not other.factor.any():
            return Line(one.factor * other.shift, one.shift * other.shift)
        if name == "div" and not other.factor.any():
            return Line(one.factor / other.shift, one.shift / other.shift)
        if name == "sqrt" and not one.factor.any():
            return Line(one.factor, np.sqrt(one.shift))
    return None


def _with_weights(
    graph: Graph, maker: Node, user: Node, total: Sum, line: Line, level: int | None
) -> tuple[Graph, Fold] | None:
    """The graph with new weights and bias for the sum, which then writes what its steps wrote."""
    values = dict(zip(maker.program.inputs, maker.inputs, strict=True))
    dtype = graph.values[maker.outputs[0]].dtype
    form = _channel(total, level)
    channels = (
        1
        if form is None
        else maker.program.buffer_of[total.target.array].shape[total.target.subscripts.index(form)]
    )
    weight = graph.values[values[total.weight]]
    axes = [k for k, each in enumerate(total.access.subscripts) if each == form]
    if level is not None and len(axes) != 1:
        return None
    spread = [channels if k in axes else 1 for k in range(weight.rank)]
    factor = np.broadcast_to(line.factor, (channels,))
    data = graph.constants[graph.home(weight.name)].reshape(weight.shape).astype(np.float64)
    with np.errstate(over="ignore"):
        scaled = (data * (factor.reshape(spread) if level is not None else line.factor)).astype(
            numpy_dtype(dtype)
        )
    shift: Array = np.broadcast_to(line.shift, (channels,))
    program, bias = maker.program, total.bias
    if bias:
        before = graph.constants[graph.home(values[bias])].reshape(-1).astype(np.float64)
        right = isinstance(total.start.value, Read) and total.start.value.access.subscripts == (form,)
        if not right or before.size != channels:
            return None
        shift = before * factor + shift
    elif shift.any():
        if form is None or form.quotients:
            return None
        program, bias = _with_bias(program, total, form, channels)
    if not (np.isfinite(scaled).all() and np.isfinite(shift).all()):
        return None  # the sum would be 0 * inf where the scale is not finite
    made = {total.weight: _new(graph, weight.name, weight.shape, dtype)}
    constants = {**graph.constants, made[total.weight].name: scaled}
    if bias:
        made[bias] = _new(graph, f"{weight.name}.bias", (channels,), dtype)
        constants[made[bias].name] = shift.astype(numpy_dtype(dtype))
    inputs = tuple(made[a].name if a in made else values[a] for a in program.inputs)
    origin = ", ".join(dict.fromkeys((maker.origin, user.origin)))
    node = Node(program, inputs, user.outputs, origin)
    nodes = tuple(node if each is user else each for each in graph.nodes if each is not maker)
    new = {value.name: value for value in made.values()}
    what = f"{user.program.name} is folded into the weights of {maker.program.name}"
    fold = Fold("scales of sums", origin, what)
    return replace(graph, nodes=nodes, values={**graph.values, **new}, constants=constants), fold


def _channel(total: Sum, level: int | None) -> AffineExpr | None:
    """The subscript of the sum that chooses a channel: that of the steps, or of the bias; None without."""
    if level is not None:
        return total.target.subscripts[level]
    places = total.start.value.access.subscripts if isinstance(total.start.value, Read) else ()
    return places[0] if len(places) == 1 and places[0] in total.target.subscripts else None


def _with_bias(program: Program, total: Sum, form: AffineExpr, channels: int) -> tuple[Program, str]:
    """The program of a sum that starts at a new input."""
    name = fresh("bias", program.names)
    dtype = program.buffer_of[total.target.array].dtype
    start = total.start.with_parts(total.start.target, Read(Access(name, (form,)), dtype))
    made = program.replaced(program.paths[total.start.id], (start,))
    bias = Buffer(name, dtype, (Dimension(channels),), "heap", (name,))
    whole = Program(made.name, (*made.inputs, name), made.outputs, (*made.buffers, bias), made.body)
    return parsed(whole.text), name


def _new(graph: Graph, name: str, shape: tuple[int, ...], dtype: str) -> Value:
    name = f"{name}.folded"
    while name in graph.values:
        name += "'"
    return Value(name, shape, dtype)

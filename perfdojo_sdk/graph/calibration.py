"""Quantisation of a graph of floats: what each sum of products multiplies becomes shorter.

A *layer* is a kernel that is a sum of products of an input and constant weights. Its input is quantised by
the range that its values were seen in, with a zero point; its weights by their largest magnitude, with a
scale for each channel. Both are then dequantised, so that the graph is one of floats as before; a later pass
makes sums of integers of that (:mod:`.integers`). Which layers are worth their error, the caller says.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from perfdojo_sdk.core.expression import Cast, Expression, Literal, Read, map_expression
from perfdojo_sdk.core.program import Program, Statement
from perfdojo_sdk.core.storage import Buffer
from perfdojo_sdk.core.subscripts import LEVELS, AffineExpr
from perfdojo_sdk.graph.arrays import numpy_dtype
from perfdojo_sdk.graph.copying import Copy
from perfdojo_sdk.graph.graph import Array, Graph, Node, Value
from perfdojo_sdk.graph.operators.elementwise import mapped
from perfdojo_sdk.graph.operators.packed import product_of_blocks
from perfdojo_sdk.graph.operators.quantisation import dequantise, quantise
from perfdojo_sdk.graph.quantised import Reader, products_of
from perfdojo_sdk.graph.running import Execute, run_graph
from perfdojo_sdk.graph.writer import parsed

#: Dtypes to which a model is quantised.
INT8, INT4, BF16 = "int8", "int4", "bf16"
SHORTER = (INT8, INT4, BF16)
"""All dtypes of shorter numbers."""

#: Weights that share a scale, where they have four bits.
BLOCK = 32


@dataclass(frozen=True)
class Layer:
    """A sum of products of an input and constant weights, both f32."""

    node: int
    """Its number in the graph."""
    image: int
    """Number of the input of the node that is multiplied by weights."""
    weights: int
    axis: int | None
    """Dimension of the weights that counts channels; None: they have none of their own."""


@dataclass(frozen=True)
class Range:
    """The least and the largest value that were seen."""

    low: float
    high: float


def layers_of(graph: Graph, dtype: str = INT8) -> tuple[Layer, ...]:
    """The layers of a graph that can be brought to a dtype; to int4, products of rows and a matrix."""
    found = _layers_of(graph)
    return tuple(layer for layer in found if dtype != INT4 or _matrix(graph, layer) is not None)


def _layers_of(graph: Graph) -> tuple[Layer, ...]:
    read = Reader(graph)
    found = []
    for k, node in enumerate(graph.nodes):
        parts = products_of(node)
        for one, other in (parts[3], parts[3][::-1]) if parts else ():
            inputs = [node.program.inputs.index(r.access.array) for r in (one, other) if _given(node, r)]
            if len(inputs) != 2 or one.access.array == other.access.array or parts is None:
                continue
            image, weights = (graph.values[node.inputs[at]] for at in inputs)
            if {image.dtype, weights.dtype} != {"f32"} or read.constant(image.name) is not None:
                continue
            if read.constant(weights.name) is None:
                continue
            own = set(parts[1].target.levels) - set(one.access.levels)
            both = set(parts[1].target.levels) & set(one.access.levels)
            axis = _channel_axis(other, own, parts[2]) or _channel_axis(other, both, parts[2])
            found.append(Layer(k, inputs[0], inputs[1], axis[0] if axis else None))
            break
    return tuple(found)


def _given(node: Node, read: Read) -> bool:
    return read.access.array in node.program.inputs


def _channel_axis(read: Read, levels: Collection[int], sizes: Sequence[int]) -> tuple[int, ...]:
    """The dimension of an operand, if there is just one, that one of these loops goes along alone."""
    forms = [[l for l in form.levels if sizes[l] > 1] for form in read.access.subscripts]
    found = [k for k, used in enumerate(forms) if len(used) == 1 and used[0] in levels]
    return tuple(found) if len(found) == 1 else ()


def with_outputs(graph: Graph, names: Sequence[str]) -> Graph:
    """The graph with these values as its outputs."""
    return replace(graph, outputs=tuple(graph.values[name] for name in names), cuts=())


def ranges_of(
    graph: Graph, layers: Sequence[Layer], samples: Sequence[Mapping[str, Array]], execute: Execute
) -> dict[str, Range]:
    """The range of each layer's input over all samples."""
    names = list(dict.fromkeys(graph.nodes[layer.node].inputs[layer.image] for layer in layers))
    found: dict[str, Range] = {}
    for sample in samples:
        for name, data in zip(names, run_graph(with_outputs(graph, names), sample, execute), strict=True):
            low, high = float(data.min(initial=0)), float(data.max(initial=0))
            before = found.get(name, Range(0.0, 0.0))
            found[name] = Range(min(low, before.low), max(high, before.high))
    return found


def in_float64(graph: Graph) -> Graph:
    """The graph with all f32 as f64; a program that holds other short floats keeps these."""
    values = {n: replace(v, dtype="f64" if v.dtype == "f32" else v.dtype) for n, v in graph.values.items()}
    constants = {n: a.astype(np.float64) if a.dtype == np.float32 else a for n, a in graph.constants.items()}
    nodes = [replace(node, program=_wide(node.program)) for node in graph.nodes]
    inputs, outputs = (tuple(values[v.name] for v in each) for each in (graph.inputs, graph.outputs))
    return replace(
        graph, nodes=tuple(nodes), values=values, constants=constants, inputs=inputs, outputs=outputs
    )


def _wide(program: Program) -> Program:
    return parsed(re.sub(r"\bf32\b", "f64", program.text))


def with_short_layers(
    graph: Graph, layers: Sequence[Layer], ranges: Mapping[str, Range], dtype: str, beside: bool = False
) -> Graph:
    """The graph with these layers quantised. ``beside``: each layer stays, too, and all others read it; the
    outputs are those of the quantised ones, in order, on the inputs of the float ones."""
    copy = Copy(graph)
    by_node = {layer.node: layer for layer in layers}
    shortened: dict[str, Value] = {}
    results: dict[str, Value] = {}
    for k, node in enumerate(graph.nodes):
        if k not in by_node:
            copy.node(node)
            continue
        before = dict(copy.new)
        (made,) = _short(copy, node, by_node[k], ranges, dtype, shortened)
        if beside:
            results[f"layer {k}"] = made
            copy.new = before
            copy.node(node)
    copy.checks()
    if beside:
        return copy.b.graph(results)
    return copy.b.graph({value.name: copy.value(value.name) for value in graph.outputs})


def _short(
    copy: Copy,
    node: Node,
    layer: Layer,
    ranges: Mapping[str, Range],
    dtype: str,
    shortened: dict[str, Value],
) -> tuple[Value, ...]:
    """Add a layer whose operands were made shorter before."""
    name, of_weights = node.inputs[layer.image], node.inputs[layer.weights]
    copy.b.origin = node.origin
    data = copy.graph.constants[copy.graph.home(of_weights)].reshape(copy.graph.values[of_weights].shape)
    inputs = [copy.value(each) for each in node.inputs]
    if dtype == INT4:
        return (_in_blocks(copy, node, layer, data),)
    if dtype == BF16:
        if name not in shortened:
            shortened[name] = mapped(
                copy.b, "shorten", "bf16", lambda x: f"bf16({x})", inputs[layer.image], raw=True
            )
        inputs[layer.image] = shortened[name]
        inputs[layer.weights] = copy.b.constant(data.astype(numpy_dtype("bf16")))
        arrays = {node.program.inputs[at] for at in (layer.image, layer.weights)}
        return copy.node(node, _of_short_operands(node.program, arrays), inputs)
    if name not in shortened:
        scale, zero = _parameters(ranges[name])
        by, at = copy.b.constant(np.asarray(scale)), copy.b.constant(np.asarray(zero))
        shortened[name] = dequantise(
            copy.b, quantise(copy.b, inputs[layer.image], by, at, 0, 0, "u8"), by, at, 0, 0, "f32"
        )
    inputs[layer.image] = shortened[name]
    integers, scales = _integers(data, layer.axis)
    inputs[layer.weights] = dequantise(
        copy.b, copy.b.constant(integers), copy.b.constant(scales), None, layer.axis or 0, 0, "f32"
    )
    return copy.node(node, None, inputs)


def _matrix(graph: Graph, layer: Layer) -> bool | None:
    """True if the weights of a layer that is rows times a matrix have a row for each term of a sum, False if
    they have a column; None for any other layer, and where sums are no whole blocks."""
    node = graph.nodes[layer.node]
    parts = products_of(node)
    assert parts is not None
    start, step, sizes, reads = parts
    bound = {node.program.inputs[layer.image]: 0, node.program.inputs[layer.weights]: 1}
    image, weights = sorted(reads, key=lambda read: bound[read.access.array])
    long = [level for level, size in enumerate(sizes) if size > 1]
    kept = [form for form in step.target.subscripts if form.levels]
    forms = [form for form in image.access.subscripts if form.levels]
    last = [level for level in long if level not in step.target.levels]
    plain = isinstance(start.value, Literal) and start.value.value == 0 and not step.guard
    if len(last) != 1 or not kept or not forms or not plain or sizes[last[0]] % BLOCK:
        return None
    term, column = LEVELS[last[0]], step.target.subscripts[-1]
    rows = [form for form in forms if form != term]
    if image.access.subscripts[-1] != term or rows != [f for f in kept if f != column]:
        return None
    if any(form not in LEVELS for form in (*rows, column)):
        return None
    ways: dict[tuple[AffineExpr, ...], bool] = {(term, column): True, (column, term): False}
    return ways.get(weights.access.subscripts)


def _in_blocks(copy: Copy, node: Node, layer: Layer, data: Array) -> Value:
    """Add a layer whose weights have four bits, in blocks."""
    matrix = data.T if _matrix(copy.graph, layer) else data
    columns, terms = matrix.shape
    blocks = np.ascontiguousarray(matrix, np.float64).reshape(columns, -1, BLOCK)
    largest = np.take_along_axis(blocks, np.abs(blocks).argmax(-1)[..., None], axis=-1)
    scales = (largest / -8).astype(np.float32)
    by = np.where(scales == 0, 1, scales).astype(np.float64)
    numbers = np.clip(np.rint(blocks / by) + 8, 0, 15).astype(np.uint8)
    packed = copy.b.constant(np.ascontiguousarray(numbers[..., ::2] | numbers[..., 1::2] << 4))
    inputs = dict(zip(node.program.inputs, (copy.value(each) for each in node.inputs), strict=True))
    x = inputs[node.program.inputs[layer.image]]
    made = product_of_blocks(
        copy.b, x, packed, copy.b.constant(scales[..., 0]), None, (terms, columns), 4, BLOCK
    )
    value = copy.graph.values[node.outputs[0]]
    if len(node.program.body) == 2:
        rest = _after_sum(node.program)
        inner = copy.b.view(made, rest.buffer_of[rest.inputs[0]].shape)
        others = [inputs[array] for array in rest.inputs[1:]]
        (made,) = copy.b.kernel(rest, [inner, *others], [(value.shape, value.dtype)])
    copy.new[value.name] = copy.b.view(made, value.shape)
    return copy.new[value.name]


def _after_sum(program: Program) -> Program:
    """The second nest of a program, of which the first input is the sum that the first nest computes."""
    inner = program.body[0].leaves[0].statement.target.array
    nest = program.body[1]
    used = [b for b in program.buffers if not nest.arrays.isdisjoint(b.arrays)]
    inputs = (inner, *[array for array in program.inputs if array in nest.arrays])
    made = Program(f"{program.name}_rest", inputs, program.outputs, tuple(used), (nest,))
    return parsed(made.text)


def _parameters(seen: Range) -> tuple[Array, Array]:
    """Scale and zero point of bytes for a range, which zero is in."""
    scale = np.float32(max((seen.high - seen.low) / 255, 1e-30))
    zero = np.uint8(np.clip(np.rint(-seen.low / float(scale)), 0, 255))
    return np.asarray(scale), np.asarray(zero)


def _integers(data: Array, axis: int | None) -> tuple[Array, Array]:
    """Weights as bytes, with a scale for each channel, or one for all."""
    others = tuple(k for k in range(data.ndim) if k != axis)
    largest = np.abs(data.astype(np.float64)).max(axis=others if axis is not None else None, keepdims=True)
    scales = np.maximum(largest / 127, 1e-30).astype(np.float32)
    integers = np.clip(np.rint(data / scales.astype(np.float64)), -127, 127).astype(np.int8)
    return integers, scales.reshape(-1) if axis is not None else scales.reshape(())


def _of_short_operands(program: Program, arrays: Collection[str]) -> Program:
    """The program with these inputs in bf16, converted where they are read."""

    def value(e: Expression) -> Expression:
        short = isinstance(e, Read) and e.access.array in arrays
        return Cast(Read(e.access, "bf16"), "f32") if short and isinstance(e, Read) else e

    made = program
    for place in program.places:
        if isinstance(place.node, Statement):
            new = place.node.with_parts(place.node.target, map_expression(place.node.value, value))
            made = made.replaced(made.paths[place.node.id], (new,))
    buffers = tuple(
        Buffer(b.name, "bf16", b.dimensions, b.location, b.arrays) if b.name in arrays else b
        for b in program.buffers
    )
    whole = Program(made.name, made.inputs, made.outputs, buffers, made.body)
    return parsed(whole.text)

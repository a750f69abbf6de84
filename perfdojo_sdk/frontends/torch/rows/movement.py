"""Elements moved: views, joins, parts, picks; and arrays made of numbers alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from perfdojo_sdk.frontends.torch.call import HALVES, Call, Result, Row, literal, pointwise
from perfdojo_sdk.graph.arrays import numpy_dtype
from perfdojo_sdk.graph.graph import Shape, Value
from perfdojo_sdk.graph.operators import gathers as g
from perfdojo_sdk.graph.operators import movement as m
from perfdojo_sdk.graph.operators.creation import fill
from perfdojo_sdk.graph.operators.elementwise import cast, where
from perfdojo_sdk.graph.refusals import Reason, Refused
from perfdojo_sdk.graph.shapes import axis_of, broadcast
from perfdojo_sdk.graph.writer import Writer, levels

#: Most elements of an array of numbers that becomes a constant; larger ones are computed by a kernel.
MOST_CONSTANT = 2**14


def _view(c: Call) -> Value:
    """The elements in the same order under the shape of the result."""
    return c.b.view(c["self"] if c.has("self") else c["input"], c.shape)


def _permute(c: Call) -> Value:
    x = c["self"]
    return m.transpose(c.b, x, [axis_of(d, x.rank) for d in c.ints("dims")])


def _swap(c: Call, one: int, other: int) -> Value:
    x = c["self"]
    if not x.rank:
        return x
    order = list(range(x.rank))
    one, other = axis_of(one, x.rank), axis_of(other, x.rank)
    order[one], order[other] = order[other], order[one]
    return m.transpose(c.b, x, order)


def _transpose(c: Call) -> Value:
    first, second = ("dim0", "dim1") if c.has("dim0") else ("axis0", "axis1")
    return _swap(c, c.whole(first), c.whole(second))


def _turned(c: Call) -> Value:
    """The last two dimensions swapped; a vector stays."""
    return _swap(c, -1, -2) if c["self"].rank > 1 else c["self"]


def _reversed(c: Call) -> Value:
    return m.transpose(c.b, c["self"], list(range(c["self"].rank))[::-1])


def _moved(c: Call) -> Value:
    x = c["self"]
    if not x.rank:
        return x
    source = [axis_of(d, x.rank) for d in c.ints("source")]
    target = [axis_of(d, x.rank) for d in c.ints("destination")]
    rest = [d for d in range(x.rank) if d not in source]
    order = [0] * x.rank
    for s, t in zip(source, target, strict=True):
        order[t] = s
    for place in range(x.rank):
        if place not in target:
            order[place] = rest.pop(0)
    return m.transpose(c.b, x, order)


def _expand(c: Call) -> Value:
    return m.expand(c.b, c["self"], c.shape)


def _joined(c: Call) -> Value:
    values = [v for v in c.values("tensors") if v.shape != (0,)]
    if not values:
        raise Refused(Reason.SIZE, "a join of tensors without elements")
    return m.concat(c.b, [cast(c.b, v, c.dtype) for v in values], c.whole("dim", 0))


def _stacked(c: Call) -> Value:
    values = c.values("tensors")
    axis = axis_of(c.whole("dim", 0), values[0].rank + 1)
    apart = [c.b.view(cast(c.b, v, c.dtype), (*v.shape[:axis], 1, *v.shape[axis:])) for v in values]
    return m.concat(c.b, apart, axis)


def _parts(c: Call) -> list[Value | None]:
    """Parts along a dimension, of the sizes that the results have."""
    x = c["self"]
    axis = axis_of(c.whole("dim", 0), x.rank)
    found: list[Value | None] = []
    at = 0
    for k, result in enumerate(c.results):
        begin = [0] * x.rank
        begin[axis] = at
        at += result.shape[axis]
        found.append(m.cut(c.b, x, begin, [1] * x.rank, result.shape) if c.uses(k) else None)
    return found


def _unbound(c: Call) -> list[Value | None]:
    axis = axis_of(c.whole("dim", 0), c["self"].rank)
    return [_selected(c, c["self"], axis, k) if c.uses(k) else None for k in range(len(c.results))]


def _selected(c: Call, x: Value, axis: int, index: int) -> Value:
    axis = axis_of(axis, x.rank)
    begin, shape = [0] * x.rank, list(x.shape)
    begin[axis], shape[axis] = index % max(x.shape[axis], 1), 1
    found = m.cut(c.b, x, begin, [1] * x.rank, tuple(shape))
    return c.b.view(found, (*x.shape[:axis], *x.shape[axis + 1 :]))


def _select(c: Call) -> Value:
    return _selected(c, c["self"], c.whole("dim"), c.whole("index"))


def _slice(c: Call) -> Value:
    x, axis = c["self"], c.whole("dim", 0)
    end = c.whole("end", 2**62)
    return m.slice_(c.b, x, [c.whole("start", 0)], [end], [axis], [c.whole("step", 1)])


def _slice_scatter(c: Call) -> Value:
    """The tensor with another one in the place of a slice."""
    x = c["self"]
    axis = axis_of(c.whole("dim", 0), x.rank)
    bounds = slice(c.whole("start", 0), c.whole("end", 2**62), c.whole("step", 1))
    places = range(*bounds.indices(x.shape[axis]))
    return _placed(c, x, c["src"], axis, places.start, places.step)


def _select_scatter(c: Call) -> Value:
    """The tensor with another one in the place of an element along a dimension."""
    x, part = c["self"], c["src"]
    axis = axis_of(c.whole("dim"), x.rank)
    part = c.b.view(part, (*part.shape[:axis], 1, *part.shape[axis:]))
    return _placed(c, x, part, axis, c.whole("index") % x.shape[axis], 1)


def _placed(c: Call, x: Value, part: Value, axis: int, start: int, step: int) -> Value:
    starts, steps = [0] * x.rank, [1] * x.rank
    starts[axis], steps[axis] = start, step
    return m.placed(c.b, x, cast(c.b, part, x.dtype), starts, steps)


def _narrow(c: Call) -> Value:
    start = c.whole("start")
    return m.slice_(c.b, c["self"], [start], [start + c.whole("length")], [c.whole("dim")], [1])


def _repeat(c: Call) -> Value:
    x, repeats = c["self"], c.ints("repeats") if c.has("repeats") else c.ints("dims")
    rank = max(x.rank, len(repeats))
    repeats = [1] * (rank - len(repeats)) + repeats
    return m.tile(c.b, c.b.view(x, (1,) * (rank - x.rank) + x.shape), repeats)


def _repeat_each(c: Call) -> Value:
    x, count = c["self"], c.whole("repeats")
    if not c.has("dim"):
        x = c.b.view(x, (x.elements,))
    axis = axis_of(c.whole("dim", 0), x.rank)
    apart = c.b.view(x, (*x.shape[: axis + 1], 1, *x.shape[axis + 1 :]))
    shape = (*x.shape[: axis + 1], count, *x.shape[axis + 1 :])
    return c.b.view(m.expand(c.b, apart, shape), c.shape)


def _flip(c: Call) -> Value:
    x = c["self"]
    axes = [axis_of(d, x.rank) for d in c.ints("dims")]
    begin = [x.shape[k] - 1 if k in axes else 0 for k in range(x.rank)]
    return m.cut(c.b, x, begin, [-1 if k in axes else 1 for k in range(x.rank)], x.shape)


def _roll(c: Call) -> Value:
    x, shifts, axes = c["self"], c.ints("shifts"), c.ints("dims")
    flat = not axes
    if flat:
        x, axes = c.b.view(x, (x.elements,)), [0]
    for shift, axis in zip(shifts, axes, strict=True):
        axis = axis_of(axis, x.rank)
        size = x.shape[axis]
        if size and shift % size:
            at = size - shift % size
            [head, tail] = m.split(c.b, x, [at, size - at], axis)
            x = m.concat(c.b, [tail, head], axis)
    return c.b.view(x, c.shape)


def _pads(c: Call, x: Value, name: str) -> tuple[list[int], list[int]]:
    """Padding in front and behind; PyTorch counts from the last dimension."""
    given = c.ints(name)
    begins, ends = [0] * x.rank, [0] * x.rank
    for k in range(len(given) // 2):
        begins[x.rank - 1 - k], ends[x.rank - 1 - k] = given[2 * k], given[2 * k + 1]
    return begins, ends


def _pad(c: Call) -> Value:
    x = c["self"]
    mode = c.text("mode", "constant")
    begins, ends = _pads(c, x, "pad")
    if mode == "constant":
        value = c.real("value", 0.0)
        return m.pad_constant(c.b, x, begins, ends, c.b.filled((), value, x.dtype) if value else None)
    if mode == "circular":  # what is cut off does not come back at the other end
        x = m.pad_constant(c.b, x, [min(p, 0) for p in begins], [min(p, 0) for p in ends], None)
        begins, ends = [max(p, 0) for p in begins], [max(p, 0) for p in ends]
    return m.pad(c.b, x, begins, ends, {"replicate": "edge", "circular": "wrap"}.get(mode, mode))


def _pad_with(mode: str) -> Row:
    def row(c: Call) -> Value:
        return m.pad(c.b, c["self"], *_pads(c, c["self"], "padding"), mode)

    return row


def _triangle(upper: bool) -> Row:
    return lambda c: m.trilu(c.b, c["self"], c.whole("diagonal", 0), upper)


def _diagonal(c: Call) -> Value:
    x = c["self"]
    first, second = axis_of(c.whole("dim1", 0), x.rank), axis_of(c.whole("dim2", 1), x.rank)
    return m.diagonal(c.b, x, c.whole("offset", 0), first, second)


def _diag(c: Call) -> Value:
    x = c["self"]
    offset = c.whole("diagonal", 0)
    return m.diagonal(c.b, x, offset, 0, 1) if x.rank == 2 else m.diagonal_matrix(c.b, x, offset)


def _diag_embed(c: Call) -> Value:
    if (c.whole("dim1", -2), c.whole("dim2", -1)) != (-2, -1):
        raise Refused(Reason.CHOICE, "diag_embed into other than the last dimensions")
    return m.diagonal_matrix(c.b, c["self"], c.whole("offset", 0))


def _sliding(c: Call) -> Value:
    """Windows along a dimension, which become the last dimension."""
    x = c["self"]
    if not x.rank:
        raise Refused(Reason.CHOICE, "unfold of a scalar")
    return m.sliding(c.b, x, axis_of(c.whole("dimension"), x.rank), c.whole("size"), c.whole("step"))


def _depth_to_space(c: Call) -> Value:
    x, factor = c["self"], c.whole("upscale_factor")
    return c.b.view(m.depth_to_space(c.b, _images(c, x), factor, False), c.shape)


def _images(c: Call, x: Value) -> Value:
    """The tensor with one dimension in front of channels and places."""
    return c.b.view(x, (prod(x.shape[:-3]), *x.shape[-3:]))


def _space_to_depth(c: Call) -> Value:
    x, factor = c["self"], c.whole("downscale_factor")
    return c.b.view(m.space_to_depth(c.b, _images(c, x), factor, False), c.shape)


def _channel_shuffle(c: Call) -> Value:
    x, groups = c["self"], c.whole("groups")
    apart = c.b.view(x, (x.shape[0], groups, x.shape[1] // groups, *x.shape[2:]))
    moved = m.transpose(c.b, apart, [0, 2, 1, *range(3, apart.rank)])
    return c.b.view(moved, x.shape)


# -- picks -----------------------------------------------------------------------------------------


def of_lists(row: Row) -> Row:
    """A row for tensors of at least one dimension, which takes scalars as lists of one element."""

    def made(c: Call) -> Value | Sequence[Value | None]:
        if c["self"].rank:
            return row(c)

        def listed(value: Any) -> Any:
            return c.b.view(value, (1,)) if isinstance(value, Value) and not value.rank else value

        arguments = {name: listed(value) for name, value in c.arguments.items()}
        found = row(Call(c.b, c.op, arguments, [Result((1,), c.dtype)], (True,)))
        assert isinstance(found, Value), "these rows have one result"
        return c.b.view(found, c.shape)

    return made


def indexed(c: Call, x: Value) -> Value:
    """Indices as i64; kernels compare them with places."""
    if x.dtype in ("bool", "u8"):
        raise Refused(Reason.LENGTH, "elements chosen by a mask")
    return x if x.dtype in ("i32", "i64") else cast(c.b, x, "i64")


def _gather(c: Call) -> Value:
    return g.gather_elements(c.b, c["self"], indexed(c, c["index"]), c.whole("dim"), negative=False)


def _index_select(c: Call) -> Value:
    index = indexed(c, c["index"])
    return g.gather(c.b, c["self"], c.b.view(index, (index.elements,)), c.whole("dim"), negative=False)


def _embedding(c: Call) -> Value:
    return g.gather(c.b, c["weight"], indexed(c, c["indices"]), 0, negative=False)


def _indexed(c: Call) -> Value:
    """x[i], x[:, i], x[i, j], x[i, :, j]: tensors of integers."""
    x, given = c["self"], c.arguments.get("indices")
    assert isinstance(given, list | tuple)
    places = [k for k, each in enumerate(given) if each is not None]
    values = [indexed(c, each) for each in given if isinstance(each, Value)]
    if not places or len(values) != len(places):
        raise Refused(Reason.CHOICE, "an index without tensors")
    if len(values) == 1:
        return g.gather(c.b, x, values[0], places[0])
    shape = broadcast(*[v.shape for v in values])
    order, back = _indexed_first(places, x.rank, len(shape))
    found = g.gather_nd(c.b, m.transpose(c.b, x, order), _tuples(c, values, shape), 0)
    return m.transpose(c.b, found, back)


def _indexed_first(places: Sequence[int], rank: int, inside: int) -> tuple[list[int], list[int]]:
    """The order of dimensions in which those at ``places`` come first; and the one that moves the ``inside``
    dimensions of their indices to where PyTorch has them: in place of neighbours, else in front."""
    rest = [k for k in range(rank) if k not in places]
    ahead = places[0] if list(places) == list(range(places[0], places[-1] + 1)) else 0
    front = list(range(inside, inside + ahead))
    back = [*front, *range(inside), *range(inside + ahead, inside + len(rest))]
    return [*places, *rest], back


def _scatter(reduction: str) -> Row:
    def row(c: Call) -> Value:
        index = indexed(c, c["index"])
        by = {"": reduction, "add": "add", "sum": "add", "multiply": "mul", "prod": "mul", "amax": "max",
              "amin": "min"}.get(c.text("reduce"))  # fmt: skip
        if by is None or c.has("include_self") and not c.flag("include_self"):
            raise Refused(Reason.CHOICE, f"{c.op} by {ascii(c.text('reduce'))[:40]}")
        if c.has("src"):
            source = c["src"]
            zeros, ones = [0] * source.rank, [1] * source.rank
            updates = m.cut(c.b, source, zeros, ones, index.shape)
        else:
            value = c.operand("value")
            if isinstance(value, Value):
                updates = m.expand(c.b, value, index.shape)
            else:
                updates = fill(c.b, index.shape, np.array(value, numpy_dtype(c["self"].dtype)))
        return g.scatter_elements(c.b, c["self"], index, updates, c.whole("dim"), by, negative=False)

    return row


def _index_add(c: Call) -> Value:
    source, alpha = c["source"], c.number("alpha", 1)
    if alpha != 1:
        if c.dtype in HALVES:
            raise Refused(Reason.CHOICE, f"index_add of {c.dtype} with alpha")
        factor = literal(alpha, c.dtype)
        source = pointwise(c, "scaled", lambda a: f"{a} * {factor}", source)
    return _along(c, c.whole("dim"), indexed(c, c["index"]), source, "add", negative=False)


def _index_copy(c: Call) -> Value:
    return _along(c, c.whole("dim"), indexed(c, c["index"]), c["source"], "none", negative=False)


def _index_fill(c: Call) -> Value:
    x, dim, index, value = c["self"], c.whole("dim"), indexed(c, c["index"]), c.arguments["value"]
    number = cast(c.b, value, c.dtype) if isinstance(value, Value) else c.b.filled((), value, c.dtype)
    axis = axis_of(dim, x.rank)
    shape = (*x.shape[:axis], index.elements, *x.shape[axis + 1 :])
    return _along(c, dim, index, m.expand(c.b, number, shape), "none", negative=True)


def _along(c: Call, dim: int, index: Value, updates: Value, by: str, negative: bool) -> Value:
    """The tensor with slices along a dimension replaced by updates, or combined with them; the index says
    where each goes."""
    x = c["self"]
    axis = axis_of(dim, x.rank)
    spread = spread_along(c, axis, index)
    return g.scatter_elements(c.b, x, spread, c.b.view(updates, spread.shape), axis, by, negative)


def spread_along(c: Call, axis: int, index: Value) -> Value:
    """The index of each slice along an axis for all of its elements."""
    x = c["self"]
    shape = (*x.shape[:axis], index.elements, *x.shape[axis + 1 :])
    alone = c.b.view(index, tuple(n if k == axis else 1 for k, n in enumerate(shape)))
    return m.expand(c.b, alone, shape)


def _index_put(c: Call) -> Value:
    """x[i] = v, x[:, i] = v, x[i, j] = v, and x[mask] = number: as of :func:`_indexed`."""
    x, values, given = c["self"], c["values"], c.arguments.get("indices")
    assert isinstance(given, list | tuple)
    places = [k for k, each in enumerate(given) if each is not None]
    tensors = [each for each in given if isinstance(each, Value)]
    if not places or len(tensors) != len(places):
        raise Refused(Reason.CHOICE, "an index without tensors")
    by, axis = "add" if c.flag("accumulate") else "none", places[0]
    if len(tensors) == 1 and tensors[0].dtype == "bool" and values.elements == 1 and by == "none":
        behind = x.rank - axis - tensors[0].rank
        mask = c.b.view(tensors[0], (1,) * axis + tensors[0].shape + (1,) * behind)
        return where(c.b, mask, c.b.view(values, (1,) * x.rank), x)
    chosen = [indexed(c, each) for each in tensors]
    shape = broadcast(*[v.shape for v in chosen])
    if len(chosen) == 1:
        updates = m.expand(c.b, values, (*x.shape[:axis], *shape, *x.shape[axis + 1 :]))
        return _along(c, axis, chosen[0], updates, by, negative=True)
    order, back = _indexed_first(places, x.rank, len(shape))
    turned = m.transpose(c.b, x, order)
    inner = (*shape, *turned.shape[len(places) :])
    updates = m.expand(c.b, values, tuple(inner[k] for k in back))
    updates = m.transpose(c.b, updates, [back.index(k) for k in range(len(back))])
    found = g.scatter_nd(c.b, turned, _tuples(c, chosen, shape), updates, by)
    return m.transpose(c.b, found, [order.index(k) for k in range(x.rank)])


def _tuples(c: Call, indices: Sequence[Value], shape: Shape) -> Value:
    """Indices of several dimensions as one array, whose last dimension has a number for each."""
    columns = [c.b.view(m.expand(c.b, cast(c.b, v, "i64"), shape), (*shape, 1)) for v in indices]
    return m.concat(c.b, columns, len(shape))


def _one_hot(c: Call) -> Value:
    x, count = c["self"], c.whole("num_classes", -1)
    if count < 0:
        raise Refused(Reason.LENGTH, "one_hot with as many classes as there are in the data")
    shape = (*x.shape, count)
    g.checked(c.b, x, count, False)
    k = Writer(c.b, "one_hot")
    a, y, names = k.read(x), k.write(shape, "i64"), levels(len(shape))
    k.nest(shape, f"{y(names)} = select({a(names[:-1])} == {names[-1]}, 1, 0)")
    return k.done()[0]


# -- arrays of numbers -----------------------------------------------------------------------------


def _number(value: float | None, default: float) -> Row:
    """An array of one number."""

    def row(c: Call) -> Value:
        given = c.arguments.get("fill_value", c.arguments.get("value", value))
        if isinstance(given, Value):
            return m.expand(c.b, cast(c.b, given, c.dtype), c.shape)
        return made(c, default if given is None else given)

    return row


def made(c: Call, number_: float) -> Value:
    """Equal elements of the shape and dtype of the result."""
    if prod(c.shape) <= MOST_CONSTANT:
        return c.b.filled(c.shape, number_, c.dtype)
    return fill(c.b, c.shape, np.array(number_, numpy_dtype(c.dtype)))


def _range(c: Call) -> Value:
    start, step = c.number("start", 0), c.number("step", 1)
    [count] = c.shape
    if count > 2**20:
        raise Refused(Reason.SIZE, f"a range of {count} numbers")
    kind = numpy_dtype(c.dtype)
    if isinstance(start, int) and isinstance(step, int):
        return c.b.constant(np.array([start + n * step for n in range(count)]).astype(kind))
    return c.b.constant((np.float64(start) + np.arange(count) * np.float64(step)).astype(kind))


def _linspace(c: Call) -> Value:
    start, end = c.real("start"), c.real("end")
    [count] = c.shape
    if count > 2**20:
        raise Refused(Reason.SIZE, f"a range of {count} numbers")
    return c.b.constant(np.linspace(start, end, count).astype(numpy_dtype(c.dtype)))


def _eye(c: Call) -> Value:
    rows, columns = c.shape
    if rows * columns > 2**16:
        raise Refused(Reason.SIZE, f"a diagonal of {rows} x {columns}")
    return c.b.constant(np.eye(rows, columns, dtype=numpy_dtype(c.dtype)))


def _triangle_places(upper: bool) -> Row:
    """The places on and below a diagonal, or above it: rows, then columns."""

    def row(c: Call) -> Value:
        rows, columns, offset = c.whole("row"), c.whole("col"), c.whole("offset", 0)
        if rows * columns > 2**20:
            raise Refused(Reason.SIZE, f"a triangle of {rows} x {columns}")
        whole = np.ones((rows, columns), bool)
        found = np.argwhere(np.triu(whole, offset) if upper else np.tril(whole, offset)).T
        return c.b.constant(np.ascontiguousarray(found).astype(numpy_dtype(c.dtype)))

    return row


def _scalar(c: Call) -> Value:
    return c.b.filled((), c.number("s", 0), c.dtype)


def _filled_like(c: Call) -> Value:
    """A number in place of each element of a tensor."""
    value = c.arguments.get("value", 0)
    if isinstance(value, Value):
        return m.expand(c.b, cast(c.b, value, c.dtype), c.shape)
    return made(c, value)


ROWS: Mapping[str, Row] = {
    **dict.fromkeys(("view", "reshape", "_unsafe_view", "view_as", "reshape_as", "ravel"), _view),
    **dict.fromkeys(("flatten", "unflatten", "squeeze", "unsqueeze", "atleast_2d"), _view),
    "permute": _permute,
    "transpose": _transpose,
    "swapaxes": _transpose,
    "swapdims": _transpose,
    "t": _turned,
    "mT": _turned,
    "adjoint": _turned,
    "numpy_T": _reversed,
    "movedim": _moved,
    "moveaxis": _moved,
    **dict.fromkeys(("expand", "expand_as", "broadcast_to"), _expand),
    "cat": _joined,
    "concat": _joined,
    "concatenate": _joined,
    "stack": _stacked,
    **dict.fromkeys(("split", "split_with_sizes", "chunk", "tensor_split"), _parts),
    **dict.fromkeys(("unsafe_chunk", "unsafe_split"), _parts),
    "unbind": _unbound,
    "select": _select,
    "slice": _slice,
    "slice_scatter": _slice_scatter,
    "select_scatter": _select_scatter,
    "narrow": _narrow,
    "repeat": _repeat,
    "tile": _repeat,
    "repeat_interleave.self_int": _repeat_each,
    "flip": _flip,
    "roll": _roll,
    "pad": _pad,
    "constant_pad_nd": _pad,
    **{f"reflection_pad{rank}d": _pad_with("reflect") for rank in (1, 2, 3)},
    **{f"replication_pad{rank}d": _pad_with("edge") for rank in (1, 2, 3)},
    "tril": _triangle(False),
    "triu": _triangle(True),
    "diagonal": _diagonal,
    "diag": _diag,
    "diag_embed": _diag_embed,
    "unfold": _sliding,
    "pixel_shuffle": _depth_to_space,
    "pixel_unshuffle": _space_to_depth,
    "channel_shuffle": _channel_shuffle,
    "gather": of_lists(_gather),
    "index_select": of_lists(_index_select),
    "embedding": _embedding,
    "index.Tensor": _indexed,
    "scatter": of_lists(_scatter("none")),
    "scatter_add": of_lists(_scatter("add")),
    "index_add": of_lists(_index_add),
    "index_copy": of_lists(_index_copy),
    "index_put": of_lists(_index_put),
    "index_fill": of_lists(_index_fill),
    "one_hot": _one_hot,
    **{name: _number(0, 0) for name in ("zeros", "zeros_like", "new_zeros")},
    **{name: _number(1, 1) for name in ("ones", "ones_like", "new_ones")},
    **{name: _number(None, 0) for name in ("full", "full_like", "new_full")},
    "arange": _range,
    "linspace": _linspace,
    "eye": _eye,
    "tril_indices": _triangle_places(False),
    "triu_indices": _triangle_places(True),
    **{name: _number(0, 0) for name in ("empty", "empty_like", "new_empty", "empty_permuted")},
    "scalar_tensor": _scalar,
    "fill": _filled_like,
    "zero": _filled_like,
}  # fmt: skip

"""Recognition of quantised sums: what a graph of kernels computes of numbers ``(integer - zero) * scale``.

Nothing here goes by names of operators: a conversion, a sum of products and a rounding to integers are what
their programs say.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import inf

import numpy as np

from perfdojo_sdk.core.dtypes import integer_bounds
from perfdojo_sdk.core.expression import Access, Cast, Expression, Literal, Read, performs
from perfdojo_sdk.core.program import Program, Statement
from perfdojo_sdk.core.subscripts import LEVELS, AffineExpr
from perfdojo_sdk.graph.borders import border_of
from perfdojo_sdk.graph.folding import Line, Steps, line_of, same_places, steps_of
from perfdojo_sdk.graph.graph import Array, Graph, Node

#: Dtypes of integers whose products are added up in groups.
BYTES = ("u8", "i8")


@dataclass(frozen=True)
class Numbers:
    """The elements ``(source - zero) * scale`` of a kernel; zero and scale are one number, or one for each
    place along an axis."""

    source: str
    zero: str = ""
    """Empty: 0."""
    zero_axis: int | None = None
    scale: str = ""
    """Empty: 1."""
    scale_axis: int | None = None


@dataclass(frozen=True)
class Weights:
    """Constant integers, and the scale of each, which has an axis or is one number."""

    integers: Array
    scale: Array | None = None
    axis: int | None = None


@dataclass(frozen=True)
class Sum:
    """A sum of products of an input and constant weights, with the accesses of its statement."""

    node: Node
    image: Numbers
    weights: Weights
    target: Access
    of_image: Access
    of_weights: Access
    sizes: tuple[int, ...]
    guard: tuple[AffineExpr, ...]
    image_shape: tuple[int, ...]
    target_shape: tuple[int, ...]
    bias: Array | None
    """Numbers that the sum starts at, in float64 or int64: one, or one for each channel."""
    bias_at: AffineExpr | None
    """The subscript that chooses the channel of the bias."""
    scaled: bool
    """True if the sum is one of floats."""


@dataclass(frozen=True)
class Result:
    """The value that is made of a sum: ``factor * sum + shift``, cut to a range, rounded to integers."""

    value: str
    kind: str
    """``integers``: the sum itself. ``numbers``: a float. ``rounded``: an integer, with a zero point."""
    factor: Array = field(default_factory=lambda: np.asarray(1.0))
    shift: Array = field(default_factory=lambda: np.asarray(0.0))
    low: float = -inf
    high: float = inf
    zero: int = 0
    dtype: str = "i32"
    exact: bool = True
    """False if floats are rounded at other places than those of the graph."""


@dataclass(frozen=True)
class _Inside:
    """A reading of a value, and the conditions under which it is done."""

    value: str
    access: Access
    guard: tuple[AffineExpr, ...] = ()


class Reader:
    """One graph, and what its kernels are."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.makers = {name: node for node in graph.nodes for name in node.outputs}

    @cached_property
    def readers(self) -> Mapping[str, int]:
        """Value -> how often it is read; outputs and checks count."""
        found: dict[str, int] = {}
        last = [v.name for v in self.graph.outputs] + [check.value for check in self.graph.checks]
        for name in last + [name for node in self.graph.nodes for name in node.inputs]:
            found[self.graph.home(name)] = found.get(self.graph.home(name), 0) + 1
        return found

    @cached_property
    def users(self) -> Mapping[str, Node]:
        return {name: node for node in self.graph.nodes for name in node.inputs}

    def constant(self, name: str) -> Array | None:
        """The data of a constant, in the shape in which it is read."""
        data = self.graph.constants.get(self.graph.home(name))
        return None if data is None else data.reshape(self.graph.values[name].shape)

    def constants_of(self, node: Node) -> dict[str, Array]:
        """Arrays of a program -> data, of those that are constant."""
        found = {
            array: self.constant(value) for array, value in zip(node.program.inputs, node.inputs, strict=True)
        }
        return {array: data for array, data in found.items() if data is not None}

    # -- factors

    def numbers(self, name: str) -> Numbers | None:
        """The conversion from integers that makes a value."""
        node = self.makers.get(name)
        steps = steps_of(node.program) if node is not None else None
        if node is None or steps is None:
            return None
        value, scale = steps.statement.value, None
        if performs(value, "mul") and isinstance(value.arguments[1], Read):
            value, scale = value.arguments
        value, zero = uncast(value), None
        if performs(value, "sub"):
            value, zero = (uncast(argument) for argument in value.arguments)
        parts = [part for part in (value, zero, scale) if part is not None]
        if not all(isinstance(part, Read) for part in parts):
            return None
        assert isinstance(value, Read)
        if not same_places(node.program, steps, value.access.array):
            return None
        bound = dict(zip(node.program.inputs, node.inputs, strict=True))
        places = []
        for part in (zero, scale):
            axis = _axis(node.program, part.access) if isinstance(part, Read) else None
            if axis == _NOT_ONE:
                return None
            places.append((bound[part.access.array] if isinstance(part, Read) else "", axis))
        return Numbers(bound[value.access.array], *places[0], *places[1])

    def weights(self, name: str) -> Weights | None:
        """A constant of integers, or one that is made of them."""
        data = self.constant(name)
        if data is not None:
            return Weights(data.astype(np.int64)) if data.dtype.kind in "iu" else None
        found = self.numbers(name)
        if found is not None:
            return self._converted(found)
        node = self.makers.get(name)
        steps = steps_of(node.program) if node is not None else None
        if node is None or steps is None or not isinstance(steps.statement.value, Read):
            return None
        source = steps.statement.value.access
        order = [LEVELS.index(form) if form in LEVELS else -1 for form in source.subscripts]
        target = steps.statement.target.subscripts
        inside = self.weights(node.inputs[0])
        if inside is None or sorted(order) != list(range(len(target))) or target != LEVELS[: len(target)]:
            return None
        turned = inside.integers.transpose([order.index(k) for k in range(len(order))])
        axis = None if inside.axis is None else order[inside.axis]
        return Weights(turned, inside.scale, axis)

    def _converted(self, found: Numbers) -> Weights | None:
        data = self.constant(found.source)
        if data is None or data.dtype.kind not in "iu":
            return None
        integers = data.astype(np.int64)
        if found.zero:
            zero = self.constant(found.zero)
            if zero is None:
                return None
            integers = integers - _spread(zero.astype(np.int64), found.zero_axis, integers.ndim)
        if not found.scale:
            return Weights(integers)
        scale = self.constant(found.scale)
        if scale is None:
            return None
        scale = scale.astype(np.float64).reshape(-1)
        return Weights(integers, scale if found.scale_axis is not None else scale[0], found.scale_axis)

    # -- sums

    def sum(self, node: Node) -> Sum | None:
        """The sum of products that the first nest of a kernel is, of quantised numbers and weights."""
        found = products_of(node)
        if found is None:
            return None
        start, step, sizes, reads = found
        bound = dict(zip(node.program.inputs, node.inputs, strict=True))
        for one, other in (reads, reads[::-1]):
            if one.access.array not in bound or other.access.array not in bound:
                return None
            inside = self._inside_of_border(bound[one.access.array], one.access, sizes)
            weights, image = self.weights(bound[other.access.array]), self.numbers(inside.value)
            if weights is None or image is None or self._unfit(image, weights, step.dtype):
                continue
            known, bias = self._bias(node, start, step.target)
            if not known:
                continue
            shape = self.graph.values[inside.value].shape
            at = start.value.access.subscripts[0] if isinstance(start.value, Read) else None
            return Sum(
                node, image, weights, step.target, inside.access, other.access, tuple(sizes),
                (*step.guard, *inside.guard), shape, tuple(node.program.buffer_of[step.target.array].shape),
                bias, at, step.dtype == "f32",
            )  # fmt: skip
        return None

    def _inside_of_border(self, name: str, access: Access, sizes: Sequence[int]) -> _Inside:
        """A reading of an array that has zeros around it as one of the array inside of them, under conditions
        where it may lie in the border."""
        maker = self.makers.get(name)
        border = border_of(maker.program) if maker is not None else None
        if maker is None or border is None or border.number:
            return _Inside(name, access)
        value = maker.inputs[0]
        moved = [
            form.plus(AffineExpr.of({}, -begin))
            for form, begin in zip(access.subscripts, border.begins, strict=True)
        ]
        guard = []
        for form, size in zip(moved, self.graph.values[value].shape, strict=True):
            low, high = form.bounds(sizes)
            guard += [form] if low < 0 else []
            guard += [AffineExpr.of({}, size - 1).plus(form, -1)] if high >= size else []
        return _Inside(value, Access(access.array, tuple(moved)), tuple(guard))

    def _unfit(self, image: Numbers, weights: Weights, dtype: str) -> bool:
        """True if these factors are no bytes with one zero point and one scale for an image."""
        source = self.graph.values[image.source]
        far = weights.integers.size == 0 or np.abs(weights.integers).max() > 255
        several = image.zero_axis is not None or image.scale_axis is not None
        scaled = bool(image.scale) == (weights.scale is not None) == (dtype == "f32")
        known = not image.scale or self.constant(image.scale) is not None
        return (
            source.dtype not in BYTES
            or far
            or several
            or not scaled
            or dtype not in ("f32", "i32")
            or not known
        )

    def _bias(self, node: Node, start: Statement, target: Access) -> tuple[bool, Array | None]:
        """True if the numbers that a sum starts at are known, and these, one for each channel."""
        value = start.value
        if isinstance(value, Literal):
            return value.value == 0, None
        if not isinstance(value, Read) or len(value.access.subscripts) != 1:
            return False, None
        name = dict(zip(node.program.inputs, node.inputs, strict=True)).get(value.access.array, "")
        if not name or value.access.subscripts[0] not in target.subscripts:
            return False, None
        data = self.constant(name)
        if data is not None:
            data = data.astype(np.float64 if data.dtype.kind == "f" else np.int64)
            return True, data.reshape(()) if data.size == 1 else data
        made = self.weights(name)
        if made is None or made.scale is None:
            return False, None
        found = np.asarray(made.integers * made.scale)
        return True, found.reshape(()) if found.size == 1 else found

    # -- what is made of a sum

    def result(self, total: Sum, lane: int, scale: Array) -> Result:
        """The last value that is ``factor * sum + shift`` and what may follow. ``lane``: the dimension of the
        channels; ``scale``: that of the sum, of each channel."""
        node = total.node
        shift = np.asarray(0.0) if total.bias is None else total.bias
        value = node.outputs[0]
        if not total.scaled:
            if len(node.program.body) > 1:
                return Result(value, "none")
            return self._requantised(value, lane) or Result(value, "integers")
        state = Result(value, "numbers", scale, shift.astype(np.float64), dtype="f32", exact=False)
        if len(node.program.body) == 2:
            inner, leaves = total.target.array, node.program.body[1].leaves
            plain = len(leaves) == 1 and inner != node.program.outputs[0]
            if not plain or not same_places(node.program, Steps(*leaves[0]), inner):
                return Result(value, "none")
            line = self._line(node, leaves[0].statement, inner, lane)
            if line is None:
                return Result(value, "none")
            state = _on(state, line, value)
        last, clip = state, state
        while (user := self._only_user(clip.value)) is not None:
            array = user.program.inputs[user.inputs.index(clip.value)]
            steps = steps_of(user.program)
            if steps is None or not same_places(user.program, steps, array) or len(user.outputs) != 1:
                break
            found = self._rounded(user, steps.statement, array)
            if found is not None:
                by, zero, dtype = found
                f, s = clip.factor / by, clip.shift / by
                low, high = clip.low / by, clip.high / by
                return Result(user.outputs[0], "rounded", f, s, low, high, zero, dtype, False)
            line = self._line(user, steps.statement, array, lane) if clip is last else None
            cut = self._range(user, steps.statement.value, array)
            if line is not None:
                last = clip = _on(last, line, user.outputs[0])
            elif cut is not None and clip is last:
                clip = Result(
                    user.outputs[0], "numbers", last.factor, last.shift, *cut, dtype="f32", exact=False
                )
            else:
                break
        return last

    def _only_user(self, name: str) -> Node | None:
        """The node that reads a value, if nothing else does."""
        return self.users.get(name) if self.readers.get(name) == 1 else None

    def _line(self, node: Node, statement: Statement, array: str, lane: int) -> Line | None:
        known = self.constants_of(node)
        levels = {l for read in statement.reads if read.array != array for l in read.levels}
        shape = node.program.buffer_of[statement.target.array].shape
        level = {l for l in levels if shape[l : l + 1] != (1,)}
        if not level <= {lane} or statement.accumulate or statement.guard or statement.dtype != "f32":
            return None
        line = line_of(statement.value, array, known, lane if levels else None)
        return line if line is not None and line.factor.any() else None

    def _rounded(self, node: Node, statement: Statement, array: str) -> tuple[float, int, str] | None:
        """Scale, zero point and dtype of a quantisation."""
        found = rounding_of(statement)
        if found is None or not performs(found[0], "div"):
            return None
        value, by = found[0].arguments
        known = self.constants_of(node)
        if not isinstance(value, Read) or value.access.array != array or value.dtype != "f32":
            return None
        scale, zero = _single(by, known), _single(found[1], known) if found[1] is not None else 0.0
        if scale is None or zero is None or not scale > 0:
            return None
        return scale, int(zero), found[2]

    def _range(self, node: Node, value: Expression, array: str) -> tuple[float, float] | None:
        """The numbers between which a kernel cuts an array's elements."""
        if isinstance(value, Read) and value.access.array == array:
            return -inf, inf
        name = next((n for n in ("max", "min") if performs(value, n)), "")
        if not name or len(value.children) != 2:
            return None
        for one, other in (value.children, value.children[::-1]):
            inside, limit = self._range(node, one, array), _single(other, self.constants_of(node))
            if inside is not None and limit is not None:
                low, high = inside
                if name == "max":
                    return (max(low, limit), max(high, limit))
                return (min(low, limit), min(high, limit))
        return None

    def _requantised(self, name: str, lane: int) -> Result | None:
        """An integer sum times ``one * other / result``, as f32 has it, rounded."""
        node = self._only_user(name)
        steps = steps_of(node.program) if node is not None else None
        if node is None or steps is None:
            return None
        array = node.program.inputs[node.inputs.index(name)]
        found = rounding_of(steps.statement)
        if found is None or not performs(found[0], "mul") or not same_places(node.program, steps, array):
            return None
        total, factor = found[0].arguments
        known = self.constants_of(node)
        if not (isinstance(total, Cast) and total.dtype == "f32" and uncast(total) == total.argument):
            return None
        if not isinstance(total.argument, Read) or total.argument.access.array != array:
            return None
        by = _in_f32(factor, known, lane)
        zero = _single(found[1], known) if found[1] is not None else 0.0
        if by is None or zero is None:
            return None
        return Result(node.outputs[0], "rounded", by, zero=int(zero), dtype=found[2])


_NOT_ONE = -1


def products_of(node: Node) -> tuple[Statement, Statement, tuple[int, ...], list[Read]] | None:
    """The sum of products that the first nest of a kernel is: its start, its step, the sizes of its loops,
    and the two elements that are multiplied."""
    nests = node.program.body
    leaves = nests[0].leaves
    if len(leaves) != 2 or len(nests) > 2 or len(node.outputs) != 1 or node.program.in_out:
        return None
    (start, _), (step, sizes) = leaves
    factors = step.value.arguments if performs(step.value, "mul") else ()
    reads = [read for read in map(uncast, factors) if isinstance(read, Read)]
    if step.accumulate != "add" or len(reads) != 2 or start.accumulate or start.guard:
        return None
    if start.target != step.target or step.lookups or start.lookups:
        return None
    return start, step, tuple(sizes), reads


def uncast(value: Expression) -> Expression:
    """The value inside of conversions."""
    while isinstance(value, Cast):
        value = value.argument
    return value


def rounding_of(statement: Statement) -> tuple[Expression, Expression | None, str] | None:
    """``dtype(cut(i32(cut(round(value))) + zero))``: the value, the zero point and the dtype, where the outer
    cut is to the dtype's range."""
    value = statement.value
    if not isinstance(value, Cast) or value.dtype not in BYTES:
        return None
    dtype = value.dtype
    inside, limits = _without_limits(value.argument)
    if limits != integer_bounds(dtype)[::-1]:
        return None
    zero = None
    if performs(inside, "add"):
        inside, zero = inside.arguments
    if not isinstance(inside, Cast) or inside.dtype != "i32":
        return None
    inside, limits = _without_limits(inside.argument)
    if len(limits) != 2 or not limits[1] <= -1000 < 1000 <= limits[0] or not performs(inside, "round"):
        return None
    return inside.arguments[0], zero, dtype


def _without_limits(value: Expression) -> tuple[Expression, tuple[float, ...]]:
    """The value inside of ``max(min(value, high), low)``, and (high, low)."""
    if performs(value, "max") and performs(value.arguments[0], "min"):
        (inner, high), low = value.arguments[0].arguments, value.arguments[1]
        if isinstance(high, Literal) and isinstance(low, Literal):
            return inner, (high.value, low.value)
    return value, ()


def _axis(program: Program, access: Access) -> int | None:
    """The level along which a parameter goes; None for one number, ``_NOT_ONE`` where it is neither."""
    if program.buffer_of[access.array].cells == 1:
        return None
    if len(access.subscripts) == 1 and access.subscripts[0] in LEVELS:
        return LEVELS.index(access.subscripts[0])
    return _NOT_ONE


def _spread(data: Array, axis: int | None, rank: int) -> Array:
    return data.reshape([-1 if k == axis else 1 for k in range(rank)])


def _single(value: Expression, known: Mapping[str, Array]) -> float | None:
    """A number, or the one element of a constant."""
    value = uncast(value)
    if isinstance(value, Literal):
        return float(value.value)
    if isinstance(value, Read) and value.access.array in known and known[value.access.array].size == 1:
        return float(known[value.access.array].reshape(-1)[0])
    return None


def _in_f32(value: Expression, known: Mapping[str, Array], lane: int) -> Array | None:
    """A product of scales as f32 has it: one number, or one for each channel."""
    value = uncast(value)
    if isinstance(value, Read) and value.access.array in known:
        data = known[value.access.array].astype(np.float32)
        if data.size == 1:
            return data.reshape(())
        return data if value.access.subscripts == (LEVELS[lane],) else None
    if not (performs(value, "mul") or performs(value, "div")):
        return None
    one, other = (_in_f32(argument, known, lane) for argument in value.arguments)
    if one is None or other is None:
        return None
    with np.errstate(all="ignore"):
        found: Array = np.asarray(one * other if value.name == "mul" else one / other)
    return found if found.dtype == np.float32 and np.isfinite(found).all() else None


def _on(state: Result, line: Line, value: str) -> Result:
    factor, shift = line.factor * state.factor, line.factor * state.shift + line.shift
    return Result(value, "numbers", factor, shift, dtype="f32", exact=False)

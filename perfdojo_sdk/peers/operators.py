"""The operators of the comparison (Table 3): shapes, inputs, cost, and reference results at sampled places.

The reference is computed in float64 at sampled places of the output only, so that it is cheap even for
outputs of a hundred million elements.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from mmap import MADV_HUGEPAGE, MAP_ANONYMOUS, MAP_PRIVATE, mmap
from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = np.ndarray[Any, Any]
Shape: TypeAlias = tuple[int, ...]

EPSILON = 1e-5
"""Added to a variance or a mean square before its square root."""
SAMPLES = 2048
TOLERANCE = 1e-4
"""The largest error, relative to the largest magnitude of the right answer, that counts as right."""

_CHUNK = 256


@dataclass(frozen=True)
class Operator:
    """One row of a table; every array is float32 and row-major."""

    name: str
    family: str
    """The operator's name without its shape: ``layernorm`` for ``layernorm1``."""
    inputs: tuple[Shape, ...]
    output: Shape
    operations: int = 0
    """Multiplications and additions of the formula; 0 if they are not needed."""

    @property
    def read_bytes(self) -> int:
        return sum(4 * prod(shape) for shape in self.inputs)

    @property
    def written_bytes(self) -> int:
        return 4 * prod(self.output)

    @property
    def bytes(self) -> int:
        return self.read_bytes + self.written_bytes

    @property
    def names(self) -> tuple[str, ...]:
        """Names under which there may be kernels: the operator's own, or one for all its shapes."""
        return self.name, self.family

    def draw(self, number: int) -> list[Array]:
        """The inputs of set ``number``: uniform in [-0.5, 0.5), the same in every process."""
        arrays = []
        for position, shape in enumerate(self.inputs):
            array = empty(shape)
            np.random.default_rng([number, position]).random(dtype=np.float32, out=array)
            array -= np.float32(0.5)
            arrays.append(array)
        return arrays

    def expected(self, inputs: list[Array]) -> Array:
        """The right answer in float64 at :func:`places`."""
        return _REFERENCES[self.family](inputs, np.unravel_index(places(self), self.output))


def empty(shape: Shape) -> Array:
    """An uninitialised array in new memory, in huge pages if there are any, freed with the array."""
    memory = mmap(-1, 4 * prod(shape), flags=MAP_PRIVATE | MAP_ANONYMOUS)
    try:
        memory.madvise(MADV_HUGEPAGE)
    except OSError:
        pass  # a system without huge pages: slower for all contenders
    return np.frombuffer(memory, np.float32).reshape(shape)


def places(operator: Operator) -> Array:
    """Flat positions of the output to compare: a random one in each of equal strata, the first and the
    last."""
    size = prod(operator.output)
    edges = np.linspace(0, size, min(SAMPLES, size) + 1).astype(np.int64)
    inside = np.random.default_rng(0).integers(edges[:-1], edges[1:])
    return np.unique(np.concatenate([[0], inside, [size - 1]]))


def error(operator: Operator, result: Any, expected: Array) -> float:
    """Largest difference at the sampled places over the largest magnitude; infinite for NaN."""
    array = np.asarray(result)
    if array.shape != operator.output:
        return float("inf")
    found = array[np.unravel_index(places(operator), operator.output)].astype(np.float64)
    worst = float(np.abs(found - expected).max() / np.abs(expected).max())
    return worst if np.isfinite(worst) else float("inf")


def input_sets(operator: Operator, cache_bytes: int) -> int:
    """The number of sets of arrays among which the calls rotate.

    One if all data fit the last-level cache of ``cache_bytes`` (the row is "warm"), or if they are so much
    larger that no useful data stays in it after a call. Otherwise as many as fill three caches, and at least
    two.
    """
    if not is_cold(operator, cache_bytes) or operator.bytes > 12 * cache_bytes:
        return 1
    return max(2, -(-3 * cache_bytes // operator.bytes))


def is_cold(operator: Operator, cache_bytes: int) -> bool:
    """True if the data exceed the last-level cache of ``cache_bytes``, so that they come from memory."""
    return operator.bytes > cache_bytes


# -- references: (inputs, coordinates of the wanted elements) -> their values in float64 ------------------

_Where: TypeAlias = tuple[Array, ...]


def _wide(values: Array) -> Array:
    return np.asarray(values, np.float64)


def _rows(x: Array, where: _Where) -> tuple[Array, Array]:
    """The wanted rows in float64, and for each wanted element the row's number among them."""
    rows, which = np.unique(where[0], return_inverse=True)
    return _wide(x[rows]), which


def _softmax(inputs: list[Array], where: _Where) -> Array:
    rows, which = _rows(inputs[0], where)
    powers = np.exp(rows - rows.max(1, keepdims=True))
    return np.asarray(powers[which, where[1]] / powers.sum(1)[which])


def _layernorm(inputs: list[Array], where: _Where) -> Array:
    x, w, b = inputs
    rows, which = _rows(x, where)
    scaled = (rows[which, where[1]] - rows.mean(1)[which]) / np.sqrt(rows.var(1)[which] + EPSILON)
    return np.asarray(scaled * w[where[1]] + b[where[1]])


def _rmsnorm(inputs: list[Array], where: _Where) -> Array:
    x, w = inputs
    rows, which = _rows(x, where)
    scaled = rows[which, where[1]] / np.sqrt((rows * rows).mean(1)[which] + EPSILON)
    return np.asarray(scaled * w[where[1]])


def _reducemean(inputs: list[Array], where: _Where) -> Array:
    return np.asarray(inputs[0].mean(1, dtype=np.float64)[where[0]])


def _batchnorm(inputs: list[Array], where: _Where) -> Array:
    x, w, b = inputs
    count = x.size // x.shape[1]
    mean = np.asarray([x[:, c].sum(dtype=np.float64) for c in range(x.shape[1])]) / count
    squares = [
        sum(float(((_wide(image) - mean[c]) ** 2).sum()) for image in x[:, c]) for c in range(x.shape[1])
    ]
    channel = where[1]
    deviation = np.sqrt(np.asarray(squares) / count + EPSILON)
    scaled = (_wide(x[where]) - mean[channel]) / deviation[channel]
    return np.asarray(scaled * w[channel] + b[channel])


def _relu_ffn(inputs: list[Array], where: _Where) -> Array:
    x, scale, shift = inputs
    return np.asarray(np.maximum(_wide(x[where]) * scale[where[1]] + shift[where[1]], 0))


def _products(a: Array, b: Array, where: _Where) -> Array:
    """Elements of the matrix product of ``a`` and ``b``, whose leading dimensions are a batch."""
    *batch, row, column = where
    parts = []
    for begin in range(0, len(row), _CHUNK):
        some = slice(begin, begin + _CHUNK)
        leading = tuple(index[some] for index in batch)
        left, right = a[(*leading, row[some])], np.swapaxes(b, -1, -2)[(*leading, column[some])]
        parts.append((_wide(left) * right).sum(-1))
    return np.concatenate(parts)


def _swiglu(inputs: list[Array], where: _Where) -> Array:
    x, a, b = inputs
    gate = _products(x, a, where)
    return np.asarray(gate / (1 + np.exp(-gate)) * _products(x, b, where))


def _conv(inputs: list[Array], where: _Where) -> Array:
    x, w = inputs
    image, feature, row, column = (index[:, None, None, None] for index in where)
    c, i, j = np.ogrid[: w.shape[1], : w.shape[2], : w.shape[3]]
    products = _wide(x[image, c, row + i, column + j]) * w[feature, c, i, j]
    return np.asarray(products.sum((1, 2, 3)))


_REFERENCES: dict[str, Callable[[list[Array], _Where], Array]] = {
    "add": lambda inputs, where: _wide(inputs[0][where]) + inputs[1][where],
    "mul": lambda inputs, where: _wide(inputs[0][where]) * inputs[1][where],
    "relu": lambda inputs, where: np.maximum(_wide(inputs[0][where]), 0),
    "relu_ffn": _relu_ffn,
    "batchnorm": _batchnorm,
    "layernorm": _layernorm,
    "rmsnorm": _rmsnorm,
    "softmax": _softmax,
    "reducemean": _reducemean,
    "matmul": lambda inputs, where: _products(inputs[0], inputs[1], where),
    "bmm": lambda inputs, where: _products(inputs[0], inputs[1], where),
    "swiglu": _swiglu,
    "conv2d": _conv,
}


#: The operators that have a reference, which every contender has to compute.
FAMILIES = frozenset(_REFERENCES)


# -- the table ------------------------------------------------------------------------------------------


def _elementwise(name: str, shape: Shape, operands: int) -> Operator:
    return Operator(name, name, (shape,) * operands, shape, prod(shape))


def _normalisation(name: str, family: str, shape: Shape, axis: int, parameters: int, cost: int) -> Operator:
    """``cost``: operations for each element."""
    inputs = (shape, *((shape[axis],),) * parameters)
    return Operator(name, family, inputs, shape, cost * prod(shape))


def _product(name: str, a: Shape, b: Shape) -> Operator:
    output = (*a[:-1], b[-1])
    return Operator(name, name, (a, b), output, 2 * prod(output) * a[-1])


def _conv_operator(name: str, x: Shape, w: Shape) -> Operator:
    output = (x[0], w[0], x[2] - w[2] + 1, x[3] - w[3] + 1)
    return Operator(name, "conv2d", (x, w), output, 2 * prod(output) * prod(w[1:]))


OPERATORS = {
    operator.name: operator
    for operator in (
        _elementwise("add", (3072, 4096), 2),
        _normalisation("batchnorm1", "batchnorm", (8, 3, 2048, 2048), 1, 2, 7),
        _normalisation("batchnorm2", "batchnorm", (8, 64, 300, 300), 1, 2, 7),
        _product("bmm", (192, 256, 128), (192, 128, 256)),
        _conv_operator("conv1", (8, 3, 512, 512), (10, 3, 5, 5)),
        _conv_operator("conv2", (8, 64, 56, 56), (64, 64, 3, 3)),
        _normalisation("layernorm1", "layernorm", (16384, 1024), 1, 2, 7),
        _normalisation("layernorm2", "layernorm", (4096, 4096), 1, 2, 7),
        _product("matmul", (768, 1024), (1024, 1024)),
        _elementwise("mul", (6, 14336), 2),
        Operator("reducemean", "reducemean", ((4096, 4096),), (4096,), 4096 * 4096),
        _elementwise("relu", (4096, 4096), 1),
        _normalisation("relu_ffn", "relu_ffn", (8, 64, 112, 112), 1, 2, 2),
        _normalisation("rmsnorm", "rmsnorm", (3072, 4096), 1, 1, 4),
        _normalisation("softmax", "softmax", (24576, 512), 1, 0, 5),
        Operator(
            "swiglu", "swiglu", ((256, 4096), (4096, 448), (4096, 448)), (256, 448), 4 * 256 * 448 * 4096
        ),
    )
}

"""numba: the loops that a careful user writes, with fast math, parallel if there are several threads.

Products are also tried as ``np.dot``, which numba passes to SciPy's BLAS, and the exponential also as a
polynomial, since numba's own is not vectorised without a library that pip does not install.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numba
import numpy as np
from numba import prange

from perfdojo_sdk.peers.operators import EPSILON, Array, Operator
from perfdojo_sdk.peers.systems import Bind, Call

_EPSILON = np.float32(EPSILON)
_ZERO, _ONE = np.float32(0), np.float32(1)
_LOG2_E = np.float32(1.4426950408889634)
_LN2_HIGH, _LN2_LOW = np.float32(0.693359375), np.float32(-2.12194440e-4)
_TAYLOR = tuple(np.float32(1 / math.factorial(n)) for n in range(7))
_LOWEST = np.float32(-87)


def start(threads: int, library: str) -> Numba:
    numba.set_num_threads(threads)
    return Numba(threads)


class Numba:
    version = numba.__version__

    def __init__(self, threads: int) -> None:
        compiled: dict[Any, Any] = {}

        def compile_once(function: Any) -> Any:
            if function not in compiled:
                compiled[function] = numba.njit(parallel=threads > 1, fastmath=True)(function)
            return compiled[function]

        self._compile = compile_once

    def variants(self, operator: Operator) -> Mapping[str, Bind]:
        return {name: self._bind(function) for name, function in _FUNCTIONS[operator.family].items()}

    def _bind(self, function: Any) -> Bind:
        compiled = self._compile(function)

        def bind(inputs: list[Array], out: Callable[[], Array]) -> Call:
            y = out()

            def call() -> Array:
                compiled(y, *inputs)
                return y

            return call

        return bind


def _add(y, a, b):  # type: ignore[no-untyped-def]
    for i in prange(a.shape[0]):
        for j in range(a.shape[1]):
            y[i, j] = a[i, j] + b[i, j]


def _mul(y, a, b):  # type: ignore[no-untyped-def]
    for i in prange(a.shape[0]):
        for j in range(a.shape[1]):
            y[i, j] = a[i, j] * b[i, j]


def _relu(y, x):  # type: ignore[no-untyped-def]
    for i in prange(x.shape[0]):
        for j in range(x.shape[1]):
            y[i, j] = max(x[i, j], _ZERO)


def _relu_ffn(y, x, s, b):  # type: ignore[no-untyped-def]
    channels = x.shape[1]
    for plane in prange(x.shape[0] * channels):
        n, c = plane // channels, plane % channels
        for h in range(x.shape[2]):
            for w in range(x.shape[3]):
                y[n, c, h, w] = max(x[n, c, h, w] * s[c] + b[c], _ZERO)


def _reducemean(y, x):  # type: ignore[no-untyped-def]
    for i in prange(x.shape[0]):
        total = _ZERO
        for j in range(x.shape[1]):
            total += x[i, j]
        y[i] = total / np.float32(x.shape[1])


def _batchnorm(y, x, w, b):  # type: ignore[no-untyped-def]
    """A batch normalisation with statistics row by row, while the row is in cache, added in double
    precision."""
    images, channels, height, width = x.shape
    means = np.empty((channels, images))
    squares = np.empty((channels, images))
    for plane in prange(images * channels):
        n, c = plane // channels, plane % channels
        mean: Any = 0.0
        square: Any = 0.0
        for h in range(height):
            total = _ZERO
            for k in range(width):
                total += x[n, c, h, k]
            here = total / np.float32(width)
            spread = _ZERO
            for k in range(width):
                spread += (x[n, c, h, k] - here) * (x[n, c, h, k] - here)
            step = here - mean
            mean += step / (h + 1)
            square += spread + step * step * width * h / (h + 1)
        means[c, n], squares[c, n] = mean, square
    for plane in prange(images * channels):
        n, c = plane // channels, plane % channels
        mean, square = means[c].mean(), squares[c].sum()
        for other in range(images):
            square += (means[c, other] - mean) ** 2 * height * width
        scale = np.float32(w[c] / math.sqrt(square / (images * height * width) + EPSILON))
        shift = np.float32(b[c] - mean * scale)
        for h in range(height):
            for k in range(width):
                y[n, c, h, k] = x[n, c, h, k] * scale + shift


def _layernorm(y, x, w, b):  # type: ignore[no-untyped-def]
    columns = x.shape[1]
    for i in prange(x.shape[0]):
        total = _ZERO
        for j in range(columns):
            total += x[i, j]
        mean = total / np.float32(columns)
        square = _ZERO
        for j in range(columns):
            square += (x[i, j] - mean) * (x[i, j] - mean)
        scale = _ONE / np.float32(math.sqrt(square / np.float32(columns) + _EPSILON))
        for j in range(columns):
            y[i, j] = (x[i, j] - mean) * scale * w[j] + b[j]


def _rmsnorm(y, x, w):  # type: ignore[no-untyped-def]
    columns = x.shape[1]
    for i in prange(x.shape[0]):
        square = _ZERO
        for j in range(columns):
            square += x[i, j] * x[i, j]
        scale = _ONE / np.float32(math.sqrt(square / np.float32(columns) + _EPSILON))
        for j in range(columns):
            y[i, j] = x[i, j] * scale * w[j]


def _softmax(y, x):  # type: ignore[no-untyped-def]
    columns = x.shape[1]
    for i in prange(x.shape[0]):
        top = x[i, 0]
        for j in range(columns):
            top = max(top, x[i, j])
        total = _ZERO
        for j in range(columns):
            power = np.float32(math.exp(x[i, j] - top))
            y[i, j] = power
            total += power
        scale = _ONE / total
        for j in range(columns):
            y[i, j] *= scale


@numba.njit(fastmath={"nnan", "ninf", "nsz", "contract"}, inline="always")
def _exp(x):  # type: ignore[no-untyped-def]
    """exp for x <= 0, within 1e-6: a power of two by the exponent's bits, the rest by Taylor's series.

    No re-association, which would undo the two-part reduction.
    """
    x = max(x, _LOWEST)
    n = np.int32(x * _LOG2_E - np.float32(0.5))
    f = np.float32(n)
    r = x - f * _LN2_HIGH - f * _LN2_LOW
    p = _TAYLOR[6]
    p = p * r + _TAYLOR[5]
    p = p * r + _TAYLOR[4]
    p = p * r + _TAYLOR[3]
    p = p * r + _TAYLOR[2]
    p = p * r + _TAYLOR[1]
    p = p * r + _TAYLOR[0]
    return p * np.int32((n + np.int32(127)) << np.int32(23)).view(np.float32)


def _softmax_polynomial(y, x):  # type: ignore[no-untyped-def]
    columns = x.shape[1]
    for i in prange(x.shape[0]):
        top = x[i, 0]
        for j in range(columns):
            top = max(top, x[i, j])
        total = _ZERO
        for j in range(columns):
            power = _exp(x[i, j] - top)
            y[i, j] = power
            total += power
        scale = _ONE / total
        for j in range(columns):
            y[i, j] *= scale


def _matmul(y, a, b):  # type: ignore[no-untyped-def]
    for i in prange(a.shape[0]):
        y[i, :] = _ZERO
        for k in range(a.shape[1]):
            value = a[i, k]
            for j in range(b.shape[1]):
                y[i, j] += value * b[k, j]


def _matmul_blas(y, a, b):  # type: ignore[no-untyped-def]
    np.dot(a, b, y)


def _bmm(y, a, b):  # type: ignore[no-untyped-def]
    for t in prange(a.shape[0]):
        for i in range(a.shape[1]):
            y[t, i, :] = _ZERO
            for k in range(a.shape[2]):
                value = a[t, i, k]
                for j in range(b.shape[2]):
                    y[t, i, j] += value * b[t, k, j]


def _bmm_blas(y, a, b):  # type: ignore[no-untyped-def]
    for t in range(a.shape[0]):  # the BLAS has threads of its own
        np.dot(a[t], b[t], y[t])


def _swiglu(y, x, a, b):  # type: ignore[no-untyped-def]
    columns = a.shape[1]
    for i in prange(x.shape[0]):
        gate = np.zeros(columns, np.float32)
        up = np.zeros(columns, np.float32)
        for k in range(x.shape[1]):
            value = x[i, k]
            for j in range(columns):
                gate[j] += value * a[k, j]
                up[j] += value * b[k, j]
        for j in range(columns):
            y[i, j] = gate[j] / (_ONE + np.float32(math.exp(-gate[j]))) * up[j]


def _swiglu_blas(y, x, a, b):  # type: ignore[no-untyped-def]
    up = np.empty_like(y)
    np.dot(x, a, y)
    np.dot(x, b, up)
    for i in prange(y.shape[0]):
        for j in range(y.shape[1]):
            y[i, j] = y[i, j] / (_ONE + np.float32(math.exp(-y[i, j]))) * up[i, j]


def _conv(y, x, w):  # type: ignore[no-untyped-def]
    images, features, height, width = y.shape
    for plane in prange(images * features):
        n, o = plane // features, plane % features
        for p in range(height):
            row = y[n, o, p]
            row[:] = _ZERO
            for c in range(w.shape[1]):
                for i in range(w.shape[2]):
                    for j in range(w.shape[3]):
                        value = w[o, c, i, j]
                        for q in range(width):
                            row[q] += value * x[n, c, p + i, q + j]


_FUNCTIONS: dict[str, dict[str, Any]] = {
    "add": {"loops": _add},
    "mul": {"loops": _mul},
    "relu": {"loops": _relu},
    "relu_ffn": {"loops": _relu_ffn},
    "reducemean": {"loops": _reducemean},
    "batchnorm": {"loops": _batchnorm},
    "layernorm": {"loops": _layernorm},
    "rmsnorm": {"loops": _rmsnorm},
    "softmax": {"loops": _softmax, "polynomial": _softmax_polynomial},
    "matmul": {"loops": _matmul, "np.dot": _matmul_blas},
    "bmm": {"loops": _bmm, "np.dot": _bmm_blas},
    "swiglu": {"loops": _swiglu, "np.dot": _swiglu_blas},
    "conv2d": {"loops": _conv},
}

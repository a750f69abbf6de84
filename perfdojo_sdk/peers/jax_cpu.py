"""JAX: compiled ahead of time, inputs already on the device, and the call waits for the result."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from perfdojo_sdk.peers.operators import EPSILON, Array, Operator
from perfdojo_sdk.peers.systems import Bind, Call

Formula = Callable[..., Any]


def start(threads: int, library: str) -> Jax:
    # The caller waits for each result, so passing the work to another thread would only take longer.
    jax.config.update("jax_cpu_enable_async_dispatch", False)
    return Jax()


def _by_channel(values: Any) -> Any:
    return values.reshape(1, -1, 1, 1)


def _batchnorm(x: Any, w: Any, b: Any) -> Any:
    mean = x.mean((0, 2, 3), keepdims=True)
    variance = jnp.square(x - mean).mean((0, 2, 3), keepdims=True)
    return (x - mean) * (_by_channel(w) * lax.rsqrt(variance + EPSILON)) + _by_channel(b)


def _batchnorm_by_squares(x: Any, w: Any, b: Any) -> Any:
    """Both sums in one pass over the images."""
    mean = x.mean((0, 2, 3), keepdims=True)
    variance = jnp.square(x).mean((0, 2, 3), keepdims=True) - jnp.square(mean)
    scale = _by_channel(w) * lax.rsqrt(variance + EPSILON)
    return x * scale + (_by_channel(b) - mean * scale)


def _layernorm(x: Any, w: Any, b: Any) -> Any:
    mean = x.mean(-1, keepdims=True)
    variance = jnp.square(x - mean).mean(-1, keepdims=True)
    return (x - mean) * lax.rsqrt(variance + EPSILON) * w + b


def _conv(x: Any, w: Any) -> Any:
    return lax.conv_general_dilated(x, w, (1, 1), "VALID", dimension_numbers=("NCHW", "OIHW", "NCHW"))


_FORMULAS: dict[str, dict[str, Formula]] = {
    "add": {"": jnp.add},
    "mul": {"": jnp.multiply},
    "relu": {"": lambda x: jnp.maximum(x, 0)},
    "relu_ffn": {"": lambda x, s, b: jnp.maximum(x * _by_channel(s) + _by_channel(b), 0)},
    "batchnorm": {"deviations squared": _batchnorm, "sum of squares": _batchnorm_by_squares},
    "layernorm": {"": _layernorm},
    "rmsnorm": {"": lambda x, w: x * lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) + EPSILON) * w},
    "softmax": {"": lambda x: jax.nn.softmax(x, -1)},
    "reducemean": {"": lambda x: x.mean(-1)},
    "matmul": {"": jnp.matmul},
    "bmm": {"": jnp.matmul},
    "swiglu": {"": lambda x, a, b: jax.nn.silu(x @ a) * (x @ b)},
    "conv2d": {"": _conv},
}


class Jax:
    version = jax.__version__

    def variants(self, operator: Operator) -> Mapping[str, Bind]:
        jax.clear_caches()
        found: dict[str, Bind] = {}
        for name, formula in _FORMULAS[operator.family].items():
            found[f"{name} fresh output".strip()] = _fresh(operator, formula)
            found[f"{name} donated output".strip()] = _donated(operator, formula)
        return found


def _shapes(operator: Operator) -> list[Any]:
    return [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in operator.inputs]


def _fresh(operator: Operator, formula: Formula) -> Bind:
    compiled: list[Any] = []

    def bind(inputs: list[Array], out: Callable[[], Array]) -> Call:
        if not compiled:
            compiled.append(jax.jit(formula).lower(*_shapes(operator)).compile())
        run, given = compiled[0], [jax.device_put(array) for array in inputs]
        return lambda: run(*given).block_until_ready()

    return bind


def _donated(operator: Operator, formula: Formula) -> Bind:
    """A call whose result takes over the memory of the last result."""
    compiled: list[Any] = []

    def bind(inputs: list[Array], out: Callable[[], Array]) -> Call:
        if not compiled:
            result = jax.ShapeDtypeStruct(operator.output, jnp.float32)
            function = jax.jit(lambda old, *given: formula(*given), donate_argnums=0, keep_unused=True)
            compiled.append(function.lower(result, *_shapes(operator)).compile())
        run, given = compiled[0], [jax.device_put(array) for array in inputs]
        latest = [jnp.zeros(operator.output, jnp.float32)]

        def call() -> Any:
            latest[0] = run(latest[0], *given).block_until_ready()
            return latest[0]

        return call

    return bind

"""PyTorch eager: results go into preallocated tensors if the API allows, images have its preferred layout."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F

from perfdojo_sdk.peers.operators import EPSILON, Array, Operator
from perfdojo_sdk.peers.systems import Bind, Call

Tensor = torch.Tensor
Formula = Callable[..., Tensor]


def by_channel(values: Tensor) -> Tensor:
    return values.view(1, -1, 1, 1)


def swiglu(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
    return F.silu(x @ a) * (x @ b)


FORMULAS: dict[str, Formula] = {
    "add": torch.add,
    "mul": torch.mul,
    "relu": torch.relu,
    "relu_ffn": lambda x, s, b: torch.relu(x * by_channel(s) + by_channel(b)),
    "batchnorm": lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True, eps=EPSILON),
    "layernorm": lambda x, w, b: F.layer_norm(x, x.shape[-1:], w, b, EPSILON),
    "rmsnorm": lambda x, w: F.rms_norm(x, x.shape[-1:], w, EPSILON),
    "softmax": lambda x: torch.softmax(x, -1),
    "reducemean": lambda x: x.mean(-1),
    "matmul": torch.mm,
    "bmm": torch.bmm,
    "swiglu": swiglu,
    "conv2d": F.conv2d,
}
"""Each operator in one expression; the result is fresh memory."""

#: Each operator into a given output, with intermediate results in place.
_INTO: dict[str, Callable[..., Tensor]] = {
    "add": lambda o, a, b: torch.add(a, b, out=o),
    "mul": lambda o, a, b: torch.mul(a, b, out=o),
    "relu": lambda o, x: torch.clamp_min(x, 0, out=o),
    "relu_ffn": lambda o, x, s, b: torch.mul(x, by_channel(s), out=o).add_(by_channel(b)).relu_(),
    "softmax": lambda o, x: torch.softmax(x, -1, out=o),
    "reducemean": lambda o, x: torch.mean(x, -1, out=o),
    "matmul": lambda o, a, b: torch.mm(a, b, out=o),
    "bmm": lambda o, a, b: torch.bmm(a, b, out=o),
    "swiglu": lambda o, x, a, b: F.silu(torch.mm(x, a, out=o), inplace=True).mul_(x @ b),
    "rmsnorm": lambda o, x, w: torch.mul(x, (x.square().mean(-1, True) + EPSILON).rsqrt_(), out=o).mul_(w),
}


def start(threads: int, library: str) -> Eager:
    torch.set_num_threads(threads)
    torch.set_num_interop_threads(1)
    torch.set_grad_enabled(False)
    return Eager()


class Eager:
    version = torch.__version__

    def variants(self, operator: Operator) -> Mapping[str, Bind]:
        formula = FORMULAS[operator.family]
        found: dict[str, Bind] = {"fresh output": fresh(formula)}
        if operator.family in _INTO:
            found["given output"] = into(_INTO[operator.family])
        if len(operator.output) == 4:
            found["channels last"] = fresh(formula, channels_last=True)
        return found


def tensors(inputs: list[Array], channels_last: bool = False) -> list[Tensor]:
    given = [torch.from_numpy(array) for array in inputs]
    if channels_last:
        given = [t.contiguous(memory_format=torch.channels_last) if t.dim() == 4 else t for t in given]
    return given


def fresh(formula: Formula, channels_last: bool = False) -> Bind:
    def bind(inputs: list[Array], out: Callable[[], Array]) -> Call:
        given = tensors(inputs, channels_last)
        return lambda: formula(*given)

    return bind


def into(formula: Callable[..., Any]) -> Bind:
    def bind(inputs: list[Array], out: Callable[[], Array]) -> Call:
        given, result = tensors(inputs), torch.from_numpy(out())

        def call() -> Tensor:
            formula(result, *given)
            return result

        return call

    return bind

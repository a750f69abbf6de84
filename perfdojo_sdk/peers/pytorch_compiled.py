"""torch.compile: the eager formulas through Inductor, for fixed shapes, compiled before the race."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from perfdojo_sdk.peers import pytorch
from perfdojo_sdk.peers.operators import Operator
from perfdojo_sdk.peers.systems import Bind

#: Families that are dominated by products; Inductor tries kernels of several systems for them.
_PRODUCTS = ("matmul", "bmm", "swiglu", "conv2d")


def start(threads: int, library: str) -> Compiled:
    pytorch.start(threads, library)
    return Compiled()


class Compiled:
    version = torch.__version__

    def variants(self, operator: Operator) -> Mapping[str, Bind]:
        torch._dynamo.reset()
        formula = pytorch.FORMULAS[operator.family]
        found: dict[str, Bind] = {"fresh output": pytorch.fresh(_compiled(formula))}
        if operator.family in _PRODUCTS:
            tuned = _compiled(formula, mode="max-autotune-no-cudagraphs")
            found["max-autotune"] = pytorch.fresh(tuned)
        else:
            found["given output"] = pytorch.into(_compiled(_stored(formula)))
        if operator.family == "conv2d":
            found["channels last"] = pytorch.fresh(_compiled(formula), channels_last=True)
        return found


def _stored(formula: pytorch.Formula) -> Callable[..., Any]:
    """The formula with a copy into the given output, which Inductor fuses into the last loop."""

    def store(out: torch.Tensor, *inputs: torch.Tensor) -> None:
        out.copy_(formula(*inputs))

    return store


def _compiled(formula: Callable[..., Any], mode: str | None = None) -> Callable[..., Any]:
    compiled: Callable[..., Any] = torch.compile(formula, mode=mode, dynamic=False, fullgraph=True)
    return compiled

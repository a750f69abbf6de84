"""Operators that read or write at places that are data."""

from __future__ import annotations

from collections.abc import Mapping

from perfdojo_sdk.frontends.onnx.operation import Operation, Rule
from perfdojo_sdk.graph.graph import Value
from perfdojo_sdk.graph.operators import gathers as g
from perfdojo_sdk.graph.operators.movement import pad_constant
from perfdojo_sdk.graph.refusals import Malformed


def _scatter_elements(n: Operation) -> Value:
    return g.scatter_elements(n.b, n[0], n[1], n[2], n.whole("axis"), n.text("reduction", "none"))


def _scatter_nd(n: Operation) -> Value:
    return g.scatter_nd(n.b, n[0], n[1], n[2], n.text("reduction", "none"))


def _tensor_scatter(n: Operation) -> Value:
    mode = n.text("mode")
    if mode not in ("linear", "circular"):
        raise Malformed(f"TensorScatter by {ascii(mode)[:40]}")
    return g.write_rows(n.b, n[0], n[1], n.maybe(2), n.whole("axis"), mode == "circular")


def _max_unpool(n: Operation) -> Value:
    """The elements in the shape that the window implies, in a corner of the shape that is asked for."""
    x, kernel = n[0], n.ints("kernel_shape")
    rank = len(kernel)
    steps, pads = n.ints("strides") or [1] * rank, n.ints("pads") or [0] * 2 * rank
    if rank != x.rank - 2 or len(steps) != rank or len(pads) != 2 * rank:
        raise Malformed(f"MaxUnpool of {x.text} by a window of {rank} dimensions")
    sizes = [(x.shape[k + 2] - 1) * steps[k] - pads[k] - pads[rank + k] + kernel[k] for k in range(rank)]
    inferred = (*x.shape[:2], *sizes)
    found = g.unpool(n.b, x, n[1], inferred)
    wanted = n.known_ints(2)
    if wanted is None:
        return found
    if len(wanted) != x.rank or any(w < s for w, s in zip(wanted, inferred, strict=True)):
        raise Malformed(f"MaxUnpool to {wanted} of what fills {list(inferred)}")
    more = [w - s for w, s in zip(wanted, inferred, strict=True)]
    return pad_constant(n.b, found, [0] * x.rank, more, None)


def _reverse_sequence(n: Operation) -> Value:
    return g.reverse_sequences(n.b, n[0], n[1], n.whole("batch_axis"), n.whole("time_axis"))


RULES: Mapping[str, Rule] = {
    "Gather": lambda n: g.gather(n.b, n[0], n[1], n.whole("axis")),
    "GatherElements": lambda n: g.gather_elements(n.b, n[0], n[1], n.whole("axis")),
    "GatherND": lambda n: g.gather_nd(n.b, n[0], n[1], n.whole("batch_dims", 0)),
    "Scatter": _scatter_elements,
    "ScatterElements": _scatter_elements,
    "ScatterND": _scatter_nd,
    "TensorScatter": _tensor_scatter,
    "MaxUnpool": _max_unpool,
    "ReverseSequence": _reverse_sequence,
}

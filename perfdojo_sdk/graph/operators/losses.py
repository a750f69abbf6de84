"""Losses of classes, which an index chooses for each element."""

from __future__ import annotations

from math import prod

from perfdojo_sdk.graph.builder import Builder
from perfdojo_sdk.graph.graph import Value
from perfdojo_sdk.graph.operators.gathers import checked, within
from perfdojo_sdk.graph.refusals import Malformed
from perfdojo_sdk.graph.writer import Writer, computed_in, levels


def negative_log_likelihood(
    b: Builder, x: Value, target: Value, weight: Value | None, ignored: int | None, reduction: str
) -> Value:
    """-x of the target's class times its weight; all, their sum, or that divided by the sum of weights."""
    if x.rank < 2 or target.shape != (x.shape[0], *x.shape[2:]):
        raise Malformed(f"targets of {target.text} for {x.text}")
    if weight is not None and weight.shape != (x.shape[1],):
        raise Malformed(f"weights of {weight.text} for {x.shape[1]} classes")
    if reduction not in ("none", "sum", "mean"):
        raise Malformed(f"a reduction by {ascii(reduction)[:40]}")
    checked(b, target, x.shape[1], False, ignored)
    k = Writer(b, "nll_loss")
    a, t = k.read(x), k.read(target)
    shape, kind = target.shape, computed_in(x.dtype)
    names = levels(len(shape))
    label = within(t(names), x.shape[1], False)
    scale = k.read(weight).load([label]) if weight is not None else "1"

    def kept(term: str) -> str:
        return term if ignored is None else f"select({t(names)} != {ignored}, {term}, 0)"

    loss = k.local(shape, kind)
    term = f"-{a.load([names[0], label, *names[1:]])}"
    k.nest(shape, f"{loss(names)} = {kept(term if weight is None else f'{term} * {scale}')}")
    if reduction == "none":
        y = k.write(shape, x.dtype)
        k.nest(shape, f"{y(names)} = {y.store(loss(names))}")
        return k.done()[0]
    total = k.local((), kind)
    k.nest((), f"{total([])} = 0")
    k.nest(shape, f"{total([])} += {loss(names)}")
    y = k.write((), x.dtype)
    if reduction == "sum":
        k.nest((), f"{y([])} = {y.store(total([]))}")
    elif weight is None and ignored is None:
        k.nest((), f"{y([])} = {y.store(f'{total([])} / {prod(shape)}')}")
    else:
        weights = k.local((), kind)
        k.nest((), f"{weights([])} = 0")
        k.nest(shape, f"{weights([])} += {kept(scale)}")
        k.nest((), f"{y([])} = {y.store(f'{total([])} / {weights([])}')}")
    return k.done()[0]

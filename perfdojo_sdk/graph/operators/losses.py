"""Losses of classes: an index chooses by comparison with each class, so nothing is read out of order."""

from __future__ import annotations

from math import prod

from perfdojo_sdk.graph.builder import Builder
from perfdojo_sdk.graph.graph import Value
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
    k = Writer(b, "nll_loss")
    a, t = k.read(x), k.read(target)
    shape, kind = target.shape, computed_in(x.dtype)
    names, label = levels(len(shape)), f"{{{len(shape)}}}"
    hit = f"{t(names)} == {label}"
    if ignored is not None:
        hit = f"and({hit}, {t(names)} != {ignored})"
    scale = k.read(weight).load([label]) if weight is not None else "1"
    place = [names[0], label, *names[1:]]
    loss = k.local(shape, kind)
    term = f"-{a.load(place)} * {scale}" if weight is not None else f"-{a.load(place)}"
    k.nest(shape, f"{loss(names)} = 0", ([x.shape[1]], f"{loss(names)} += select({hit}, {term}, 0)"))
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
        k.nest([*shape, x.shape[1]], f"{weights([])} += select({hit}, {scale}, 0)")
        k.nest((), f"{y([])} = {y.store(f'{total([])} / {weights([])}')}")
    return k.done()[0]

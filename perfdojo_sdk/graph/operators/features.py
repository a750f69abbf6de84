"""Features of texts and sounds: counts of sequences of tokens, filter banks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from perfdojo_sdk.graph.builder import Builder
from perfdojo_sdk.graph.graph import Array, Value
from perfdojo_sdk.graph.operators.combinations import MOST_NESTS
from perfdojo_sdk.graph.refusals import Malformed, Reason, Refused
from perfdojo_sdk.graph.shapes import affine
from perfdojo_sdk.graph.writer import Writer, computed_in, levels

#: Most comparisons of tokens that a count takes.
MAX_COMPARISONS = 2**32


@dataclass(frozen=True)
class Grams:
    """Sequences of one length that are counted."""

    tokens: Array
    """One in each row."""
    places: Sequence[int]
    """The element of the result that each counts for."""


def count_grams(b: Builder, x: Value, grams: Sequence[Grams], size: int, skips: int) -> Value:
    """For each row of ``x`` the numbers of its sequences of tokens, in neighbouring places or with up to
    ``skips`` others between two of them; as f32."""
    if x.rank not in (1, 2) or x.dtype not in ("i32", "i64"):
        raise Malformed(f"sequences of tokens in {x.text}")
    rows = x.shape[0] if x.rank == 2 else 1
    x2 = b.view(x, (rows, x.elements // max(rows, 1)))
    width = x2.shape[1]
    work = sum(each.tokens.size for each in grams) * rows * width * (skips + 1)
    if work > MAX_COMPARISONS:
        raise Refused(Reason.SIZE, f"{work} comparisons of tokens")
    if min(skips + 1, width) * len(grams) > MOST_NESTS:
        raise Refused(Reason.SIZE, f"up to {skips} tokens between those of a sequence")
    k = Writer(b, "count_grams")
    a, y = k.read(x2), k.write((rows, size), "f32")
    k.nest((rows, size), f"{y(['{0}', '{1}'])} = 0")
    for each in grams:
        count, length = each.tokens.shape
        tokens = k.read(b.constant(each.tokens.astype(np.int32 if x.dtype == "i32" else np.int64)))
        places = k.read(b.integers(each.places))
        for distance in range(1, skips + 2 if length > 1 else 2):
            starts = width - distance * (length - 1)
            if starts < 1:
                break
            equal = k.local((rows, count, starts), "bool")
            at = levels(3)
            token = f"{a(['{0}', affine(('{2}', 1), ('{3}', distance))])} == {tokens(['{1}', '{3}'])}"
            k.nest((rows, count, starts), f"{equal(at)} = 1", ([length], f"{equal(at)} min= {token}"))
            to = y(["{0}", f"clamp({places(['{1}'])}, 0, {size - 1})"])
            k.nest((rows, count, starts), f"{to} += select({equal(at)}, 1, 0)")
    return b.view(k.done()[0], (*x.shape[:-1], size))


def weighted_counts(b: Builder, counts: Value, weights: Sequence[float], present: bool) -> Value:
    """Counts, or with ``present`` 1 for any number of them, times a weight for each column."""
    k = Writer(b, "weighted_counts")
    a, y, names = k.read(counts), k.write(counts.shape, "f32"), levels(counts.rank)
    text = f"select({a(names)} > 0, 1, 0)" if present else a(names)
    if weights:
        if len(weights) != counts.shape[-1]:
            raise Malformed(f"{len(weights)} weights for {counts.shape[-1]} columns")
        text += f" * {k.read(b.constant(np.array(weights, np.float32)))([names[-1]])}"
    k.nest(counts.shape, f"{y(names)} = {text}")
    return k.done()[0]


def mel_weights(
    b: Builder, bins: int, length: int, rate: Value, low: Value, high: Value, dtype: str
) -> Value:
    """Triangles of equal width on the mel scale, one for each bin, over the frequencies of a transform."""
    if bins < 1 or length < 1:
        raise Malformed(f"{bins} mel bins of a transform of {length} elements")
    spectrum = length // 2 + 1
    k = Writer(b, "mel_weights")
    edges, y = k.local((bins + 2,), "f64"), k.write((spectrum, bins), dtype)
    first, last = (f"f64({k.read(b.view(v, ()))([])})" for v in (low, high))
    begin, end = (f"(2595 * log1p({v} / 700) / log(10))" for v in (first, last))
    mel = f"({{0}} * (({end} - {begin}) / {bins + 2}) + {begin})"
    hertz = f"(700 * expm1({mel} / 2595 * log(10)))"
    k.nest(
        edges.shape, f"{edges(['{0}'])} = floor({length + 1} * {hertz} / f64({k.read(b.view(rate, ()))([])}))"
    )
    left, middle, right = (edges([affine(("{1}", 1), n)]) for n in range(3))
    at = "f64({0})"
    rising = f"select(and({at} >= {left}, {at} <= {middle}), ({at} - {left}) / ({middle} - {left}), 0)"
    rising = f"select({left} == {middle}, select({at} == {middle}, 1, 0), {rising})"
    falling = f"and({right} > {middle}, and({at} >= {middle}, {at} < {right}))"
    weight = f"select({falling}, ({right} - {at}) / ({right} - {middle}), {rising})"
    kept = f"{computed_in(dtype)}({weight})" if computed_in(dtype) != "f64" else weight
    k.nest(y.shape, f"{y(['{0}', '{1}'])} = {y.store(kept)}")
    return k.done()[0]

"""Operators whose results are as long as data says.

Each result lies in an array of the largest size, and a kernel counts how much of it is meant
(:meth:`.Builder.counted`); what is not meant is 0. A first kernel finds the place of every element, a second
one writes it there.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from perfdojo_sdk.graph.builder import Builder
from perfdojo_sdk.graph.graph import Value
from perfdojo_sdk.graph.operators.elementwise import same_dtype
from perfdojo_sdk.graph.refusals import Malformed, Reason, Refused
from perfdojo_sdk.graph.shapes import axis_of, flat_index
from perfdojo_sdk.graph.writer import Place, Writer, is_float, levels

#: Most comparisons of elements with each other.
MAX_PAIRS = 2**32


def _place(places: Place, index: str) -> str:
    """The place of an element, as a subscript."""
    return f"clamp({places([index])}, 0, {places.shape[0] - 1})"


def _places(b: Builder, name: str, mask: Value) -> tuple[Value, Value]:
    """For each element of a mask of one dimension, the number of true ones before it; and of all true ones.

    Whoever writes the chosen elements at these places, and 0 for the others, in their order, ends with the
    chosen ones and zeros: the others of a place come before the chosen one, or behind all of them.
    """
    k = Writer(b, name)
    a, places, count = k.read(mask), k.write(mask.shape, "i64"), k.write((1,), "i64")
    total = k.local((), "i64")
    true = _true(a, ["{0}"])
    k.nest((), f"{total([])} = 0")
    k.nest(mask.shape, f"{places(['{0}'])} = {total([])}", f"{total([])} += select({true}, 1, 0)")
    k.nest((), f"{count([0])} = {total([])}")
    return k.done()[0], k.done()[1]


def _true(mask: Place, names: Sequence[str]) -> str:
    return mask(names) if mask.dtype == "bool" else f"{mask(names)} != 0"


def non_zero(b: Builder, x: Value) -> Value:
    """The subscripts of elements that are not 0, one column for each, in row-major order."""
    places, count = _places(b, "non_zero_places", b.view(x, (x.elements,)))
    if not x.rank:  # the standard says so, NumPy differs
        return b.counted(b.constant(np.zeros((0, 1), np.int64)), 1, count)
    k = Writer(b, "non_zero")
    a, p, y = k.read(x), k.read(places), k.write((x.rank, x.elements), "i64")
    k.nest(y.shape, f"{y(['{0}', '{1}'])} = 0")
    names = levels(x.rank)
    to, true = _place(p, flat_index(x.shape, names)), _true(a, names)
    k.nest(x.shape, *(f"{y([axis, to])} = select({true}, {name}, 0)" for axis, name in enumerate(names)))
    return b.counted(k.done()[0], 1, count)


def compress(b: Builder, x: Value, condition: Value, axis: int | None) -> Value:
    """The slices along an axis, or the elements, whose condition is true; those beyond its end are not."""
    if axis is None:
        x, axis = b.view(x, (x.elements,)), 0
    axis = axis_of(axis, x.rank)
    if condition.rank != 1 or condition.dtype != "bool" or condition.elements > x.shape[axis]:
        raise Malformed(f"a condition of {condition.text} for {x.shape[axis]} slices of {x.text}")
    shape = (*x.shape[:axis], condition.elements, *x.shape[axis + 1 :])
    places, count = _places(b, "compress_places", condition)
    k = Writer(b, "compress")
    a, c, p, y = k.read(x), k.read(condition), k.read(places), k.write(shape, x.dtype)
    names = levels(x.rank)
    k.nest(shape, f"{y(names)} = 0")
    to = [*names]
    to[axis] = _place(p, names[axis])
    k.nest(shape, f"{y(to)} = select({c([names[axis]])}, {a(names)}, 0)")
    return b.counted(k.done()[0], axis, count)


# -- distinct elements -----------------------------------------------------------------------------


def unique(b: Builder, x: Value, axis: int | None, ordered: bool) -> list[Value]:
    """The distinct elements, or slices along an axis, sorted or in the order of their first places; these
    places; for each element the place of its equal among them; and how often each is there.

    NaN counts as equal to NaN and larger than all numbers.
    """
    if axis is None:
        x, axis = b.view(x, (x.elements,)), 0
    axis = axis_of(axis, x.rank)
    size = x.shape[axis]
    if size * x.elements > MAX_PAIRS:
        raise Refused(Reason.SIZE, f"Unique of {size} slices compares each with each")
    places, first, count = _classes(b, x, axis, ordered)
    k = Writer(b, "unique")
    a, p, f = k.read(x), k.read(places), k.read(first)
    y, found, numbers = k.write(x.shape, x.dtype), k.write((size,), "i64"), k.write((size,), "i64")
    names = levels(x.rank)
    k.nest(x.shape, f"{y(names)} = 0")
    k.nest((size,), f"{found(['{0}'])} = 0", f"{numbers(['{0}'])} = 0")
    to, source = [*names], [*names]
    to[axis] = _place(p, names[axis])
    source[axis] = f"clamp({f([names[axis]])}, 0, {size - 1})"
    k.nest(x.shape, f"{y(to)} = {a(source)}")
    k.nest((size,), f"{found([_place(p, '{0}')])} = {f(['{0}'])}", f"{numbers([_place(p, '{0}')])} += 1")
    values, indices, numbers_of = k.done()
    return [
        b.counted(values, axis, count), b.counted(indices, 0, count), places,
        b.counted(numbers_of, 0, count),
    ]  # fmt: skip


def _classes(b: Builder, x: Value, axis: int, ordered: bool) -> tuple[Value, Value, Value]:
    """For each slice the place of its class among the distinct ones, and the first of its class; the number
    of classes."""
    size = x.shape[axis]
    rest = [s for k, s in enumerate(x.shape) if k != axis]
    k = Writer(b, "unique_places")
    a = k.read(x)
    equal, less = k.local((size, size), "bool"), k.local((size, size), "bool")
    inner = iter(levels(len(rest), 2))
    one = ["{0}" if n == axis else next(inner) for n in range(x.rank)]
    other = ["{1}" if n == axis else each for n, each in enumerate(one)]
    mine, theirs = a.load(one), a.load(other)
    same, below = f"{mine} == {theirs}", f"{mine} < {theirs}"
    if is_float(x.dtype):
        same = f"or({same}, and({mine} != {mine}, {theirs} != {theirs}))"
        below = f"or({below}, and({mine} == {mine}, {theirs} != {theirs}))"
    pair = ["{0}", "{1}"]
    k.nest((size, size), f"{equal(pair)} = 1", f"{less(pair)} = 0")
    k.nest(
        (size, size, *rest),
        f"{less(pair)} = or({less(pair)}, and({equal(pair)}, {below}))",
        f"{equal(pair)} = and({equal(pair)}, {same})",
    )
    places, first, count = k.write((size,), "i64"), k.write((size,), "i64"), k.write((1,), "i64")
    at = ["{0}"]
    k.nest(
        (size,), f"{first(at)} = {size}", ([size], f"{first(at)} min= select({equal(pair)}, {{1}}, {size})")
    )
    is_first = f"{first(['{1}'])} == {{1}}"
    before = less(["{1}", "{0}"]) if ordered else f"{first(['{1}'])} < {first(at)}"
    k.nest(
        (size,),
        f"{places(at)} = 0",
        ([size], f"{places(at)} += select(and({is_first}, {before}), 1, 0)"),
    )
    k.nest((), f"{count([0])} = 0")
    k.nest((size,), f"{count([0])} += select({first(at)} == {{0}}, 1, 0)")
    made = k.done()
    return made[0], made[1], made[2]


# -- boxes -----------------------------------------------------------------------------------------


def non_max_suppression(
    b: Builder,
    boxes: Value,
    scores: Value,
    most: int,
    overlap: Value | None,
    threshold: Value | None,
    centred: bool,
) -> Value:
    """Rows (batch, class, box) of the best boxes of each class, best first, at most ``most`` of a class, each
    overlapping no better one by more than a part of their union. Of equal scores the first goes first.

    ``overlap``: that part, 0 if absent; ``threshold``: what a score must exceed, if anything; ``centred``:
    boxes are (x, y, width, height), not two corners (y, x, y, x).
    """
    dtype = same_dtype(boxes, scores)
    if boxes.rank != 3 or boxes.shape[2] != 4 or scores.rank != 3 or dtype != "f32":
        raise Malformed(f"boxes {boxes.text} with scores {scores.text}")
    batches, number, _ = boxes.shape
    if scores.shape != (batches, scores.shape[1], number):
        raise Malformed(f"boxes {boxes.text} with scores {scores.text}")
    classes, most = scores.shape[1], max(0, min(most, number))
    rows = batches * classes * most
    if rows * max(number, 1) > MAX_PAIRS:
        raise Refused(Reason.SIZE, f"{rows} boxes to choose among {number}")
    chosen = b.view(_chosen(b, boxes, scores, most, overlap, threshold, centred), (rows,))
    places, count = _places(b, "box_places", _there(b, chosen))
    k = Writer(b, "boxes")
    c, p, y = k.read(chosen), k.read(places), k.write((rows, 3), "i64")
    at = flat_index((batches, classes, most), levels(3))
    k.nest(y.shape, f"{y(['{0}', '{1}'])} = 0")
    to = _place(p, at)
    row = ("{0}", "{1}", c([at]))
    chosen_or_zero = [f"{y([to, n])} = select({c([at])} >= 0, {text}, 0)" for n, text in enumerate(row)]
    k.nest((batches, classes, most), *chosen_or_zero)
    return b.counted(k.done()[0], 0, count)


def _there(b: Builder, chosen: Value) -> Value:
    """True for numbers of boxes, false for -1."""
    k = Writer(b, "is_box")
    c, y = k.read(chosen), k.write(chosen.shape, "bool")
    k.nest(chosen.shape, f"{y(['{0}'])} = {c(['{0}'])} >= 0")
    return k.done()[0]


def _chosen(
    b: Builder,
    boxes: Value,
    scores: Value,
    most: int,
    overlap: Value | None,
    threshold: Value | None,
    centred: bool,
) -> Value:
    """Numbers of boxes, for each batch and class the best first; -1 where there are no more."""
    batches, classes, number = scores.shape
    k = Writer(b, "best_boxes")
    box, score, y = k.read(boxes), k.read(scores), k.write((batches, classes, most), "i64")
    limit = "0" if overlap is None else k.read(_one(b, overlap))([0])
    least = None if threshold is None else k.read(_one(b, threshold))([0])
    corners = _corners(k, box, centred)
    alive, inner = k.local(scores.shape, "bool"), ["{0}", "{1}", "{3}"]
    here = score(levels(3))
    k.nest(
        scores.shape, f"{alive(levels(3))} = {f'{here} == {here}' if least is None else f'{here} > {least}'}"
    )
    best, found, own = k.local((), "f32"), k.local((), "i64"), k.local((4,), "f32")
    candidate = f"and({alive(inner)}, {score(inner)} == {best([])})"
    both, union = _areas([own([n]) for n in range(4)], [corners(["{0}", "{3}", n]) for n in range(4)])
    gone = f"or({{3}} == {found([])}, and({both} > 0, {both} / {union} > {limit}))"
    k.nest(
        (batches, classes, most),
        f"{best([])} = -inf",
        ([number], f"{best([])} max= select({alive(inner)}, {score(inner)}, -inf)"),
        f"{found([])} = {number}",
        ([number], f"{found([])} min= select({candidate}, {{3}}, {number})"),
        f"{y(levels(3))} = select({found([])} < {number}, {found([])}, -1)",
        ([4], f"{own(['{3}'])} = 0"),
        ([number, 4], f"{own(['{4}'])} += select({{3}} == {found([])}, {corners(['{0}', '{3}', '{4}'])}, 0)"),
        ([number], f"{alive(inner)} = and({alive(inner)}, not({gone}))"),
    )
    return k.done()[0]


def _corners(k: Writer, box: Place, centred: bool) -> Place:
    """The lower and the upper corner of each box, two coordinates each."""
    corners = k.local(box.shape, "f32")
    for first in (0, 1):
        one, two = box(["{0}", "{1}", first]), box(["{0}", "{1}", first + 2])
        ends = (
            [f"{one} - {two} / 2", f"{one} + {two} / 2"]
            if centred
            else [f"min({one}, {two})", f"max({one}, {two})"]
        )
        for side, text in zip((first, first + 2), ends, strict=True):
            k.nest(box.shape[:2], f"{corners(['{0}', '{1}', side])} = {text}")
    return corners


def _areas(one: Sequence[str], other: Sequence[str]) -> tuple[str, str]:
    """The areas that two boxes share, 0 if none, and cover together."""
    shared = [f"max(min({one[n + 2]}, {other[n + 2]}) - max({one[n]}, {other[n]}), 0)" for n in (0, 1)]
    both = " * ".join(shared)
    areas = [f"({box[2]} - {box[0]}) * ({box[3]} - {box[1]})" for box in (one, other)]
    return both, f"({areas[0]} + {areas[1]} - {both})"


def _one(b: Builder, value: Value) -> Value:
    if prod(value.shape) != 1 or value.dtype != "f32":
        raise Malformed(f"a threshold of {value.text}")
    return b.view(value, (1,))

"""Arrays of numbers and places, and what shapes say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from perfdojo_sdk.frontends.onnx.operation import Operation, Rule
from perfdojo_sdk.frontends.onnx.operators.older import in_evaluation
from perfdojo_sdk.frontends.onnx.reading import array_of, dtype_name
from perfdojo_sdk.graph.arrays import numpy_dtype
from perfdojo_sdk.graph.graph import Value
from perfdojo_sdk.graph.operators import creation
from perfdojo_sdk.graph.operators.elementwise import mapped
from perfdojo_sdk.graph.refusals import Malformed, Reason, Refused


def _constant(n: Operation) -> Value:
    if n.has("value"):
        return n.b.constant(array_of(n.tensor("value")))
    if n.has("value_int"):
        return n.b.constant(np.array(n.whole("value_int"), np.int64))
    if n.has("value_ints"):
        return n.b.integers(n.ints("value_ints"))
    if n.has("value_float"):
        return n.b.constant(np.array(n.real("value_float"), np.float32))
    if n.has("value_floats"):
        return n.b.constant(np.array(n.reals("value_floats"), np.float32))
    raise Refused(Reason.TYPE, "a constant that is no array of numbers")


def _constant_of_shape(n: Operation) -> Value:
    value = array_of(n.tensor("value")) if n.has("value") else np.zeros(1, np.float32)
    if value.size != 1:
        raise Malformed("the value of ConstantOfShape has not one element")
    return creation.fill(n.b, n.b.known_integers(n[0]), value)


def _shape(n: Operation) -> Value:
    start, end = n.whole("start", 0), n.whole("end", n[0].rank)
    return n.b.integers(n[0].shape[start:end])


def _eye_like(n: Operation) -> Value:
    dtype = dtype_name(n.whole("dtype")) if n.has("dtype") else n[0].dtype
    return creation.eye_like(n.b, n[0].shape, n.whole("k"), dtype)


def _range(n: Operation) -> Value:
    return creation.range_(n.b, n[0], n[1], n[2])


def _one_hot(n: Operation) -> Value:
    [depth] = n.b.known_integers(n[1])
    if depth < 0:
        raise Malformed(f"OneHot of depth {depth}")
    places = n[0]
    if n.version < 11 and not places.dtype.startswith("u"):  # negative places do not count from the end
        places = mapped(n.b, "places", places.dtype, lambda a: f"select({a} < 0, {depth}, {a})", places)
    return creation.one_hot(n.b, places, depth, n[2], n.whole("axis"))


def _dropout(n: Operation) -> Sequence[Value]:
    """The operand and a mask of ones, unless elements are to be dropped."""
    in_evaluation(n)
    training, ratio = n.known(2), None
    if training is not None and bool(training.reshape(-1)[0]):
        ratio = n.known(1)
        if ratio is None or float(ratio.reshape(-1)[0]) != 0.0:
            raise Refused(Reason.RANDOM, "Dropout in training")
    mask = np.bool_ if n.version >= 10 else numpy_dtype(n[0].dtype)
    return [n[0], creation.fill(n.b, n[0].shape, np.ones(1, mask))] if n.outputs > 1 else [n[0]]


RULES: Mapping[str, Rule] = {
    "Constant": _constant,
    "ConstantOfShape": _constant_of_shape,
    "Shape": _shape,
    "Size": lambda n: n.b.constant(np.array(n[0].elements, np.int64)),
    "EyeLike": _eye_like,
    "Range": _range,
    "OneHot": _one_hot,
    "Dropout": _dropout,
}

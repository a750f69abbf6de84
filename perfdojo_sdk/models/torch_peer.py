"""PyTorch as a peer: a part of a model of ONNX, node by node, by functions of tensors.

The table has what a model needs beside our kernels: random numbers, and the operators that are worth a race.
A node that it does not take, or an attribute that it does not know, is refused when the part is opened.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from perfdojo_sdk.core.errors import UnavailableError
from perfdojo_sdk.graph.graph import Array
from perfdojo_sdk.graph.refusals import Reason, Refused

Attributes: TypeAlias = Mapping[str, Any]
Function: TypeAlias = "Callable[[Any, Sequence[Any], Attributes], Any]"
"""The result of a node, by the package ``torch``, its operands and its attributes."""
#: The first version of the operator set of which the table speaks.
FIRST_OPSET = 13


def _plain(name: str) -> Function:
    return lambda torch, x, a: getattr(torch, name)(*x)


def _gemm(torch: Any, x: Sequence[Any], a: Attributes) -> Any:
    one, other = (v.T if a.get(k) else v for v, k in zip(x[:2], ("transA", "transB"), strict=True))
    product = a.get("alpha", 1.0) * (one @ other)
    return product if len(x) < 3 or x[2] is None else product + a.get("beta", 1.0) * x[2]


def _conv(torch: Any, x: Sequence[Any], a: Attributes) -> Any:
    rank = x[0].ndim - 2
    pads = list(a.get("pads", [0] * (2 * rank)))
    given = x[0]
    if pads[:rank] != pads[rank:]:
        sides = [pads[k + side * rank] for k in reversed(range(rank)) for side in (0, 1)]
        given, pads = torch.nn.functional.pad(given, sides), [0] * (2 * rank)
    function = getattr(torch.nn.functional, f"conv{rank}d")
    bias = x[2] if len(x) > 2 else None
    ones = [1] * rank
    steps, spread = a.get("strides", ones), a.get("dilations", ones)
    return function(given, x[1], bias, steps, pads[:rank], spread, a.get("group", 1))


def _divided(torch: Any, x: Sequence[Any], a: Attributes) -> Any:
    if x[0].is_floating_point():
        return torch.div(*x)
    return (x[0] - torch.fmod(*x)) // x[1]  # towards zero


def _shaped(torch: Any, x: Sequence[Any], a: Attributes) -> Any:
    wanted = x[1].tolist()
    if not a.get("allowzero", 0):
        wanted = [x[0].shape[k] if size == 0 else size for k, size in enumerate(wanted)]
    return x[0].reshape(wanted)


def _normal(torch: Any, like: Any, a: Attributes) -> Any:
    return like.normal_(a.get("mean", 0.0), a.get("scale", 1.0), generator=_generator(torch, a))


def _uniform(torch: Any, like: Any, a: Attributes) -> Any:
    return like.uniform_(a.get("low", 0.0), a.get("high", 1.0), generator=_generator(torch, a))


def _generator(torch: Any, a: Attributes) -> Any:
    return torch.Generator().manual_seed(int(a["seed"])) if "seed" in a else None


def _like(torch: Any, x: Sequence[Any], a: Attributes) -> Any:
    return torch.empty(x[0].shape, dtype=_dtype(torch, a["dtype"]) if "dtype" in a else x[0].dtype)


def _fresh(torch: Any, x: Sequence[Any], a: Attributes) -> Any:
    return torch.empty(list(a["shape"]), dtype=_dtype(torch, a.get("dtype", 1)))


def _bernoulli(torch: Any, x: Sequence[Any], a: Attributes) -> Any:
    dtype = _dtype(torch, a["dtype"]) if "dtype" in a else x[0].dtype
    return torch.bernoulli(x[0], generator=_generator(torch, a)).to(dtype)


def _multinomial(torch: Any, x: Sequence[Any], a: Attributes) -> Any:
    chances = torch.softmax(x[0], -1)
    found = torch.multinomial(chances, a.get("sample_size", 1), True, generator=_generator(torch, a))
    return found.to(_dtype(torch, a.get("dtype", 6)))


def _dtype(torch: Any, element: int) -> Any:
    from onnx import helper

    return torch.from_numpy(np.empty(0, helper.tensor_dtype_to_np_dtype(element))).dtype


#: Operators whose functions have their names in small letters, and those that have others.
_SAME = (
    "Abs", "Neg", "Exp", "Log", "Sqrt", "Relu", "Erf", "Sigmoid", "Tanh", "Floor", "Ceil", "Sin", "Cos",
    "Reciprocal", "Add", "Sub", "Mul", "MatMul", "Where",
)  # fmt: skip
_OTHERS = {
    "Equal": "eq", "Greater": "gt", "Less": "lt", "Not": "logical_not", "And": "logical_and",
    "Or": "logical_or",
}  # fmt: skip
#: Operator -> its function, and the attributes that it knows.
TABLE: Mapping[str, tuple[Function, frozenset[str]]] = {
    **{op: (_plain(op.lower()), frozenset()) for op in _SAME},
    **{op: (_plain(name), frozenset()) for op, name in _OTHERS.items()},
    "Identity": (lambda torch, x, a: x[0], frozenset()),
    "Div": (_divided, frozenset()),
    "Gemm": (_gemm, frozenset({"alpha", "beta", "transA", "transB"})),
    "Conv": (_conv, frozenset({"pads", "strides", "dilations", "group", "kernel_shape"})),
    "Softmax": (lambda torch, x, a: torch.softmax(x[0], a.get("axis", -1)), frozenset({"axis"})),
    "LogSoftmax": (lambda torch, x, a: torch.log_softmax(x[0], a.get("axis", -1)), frozenset({"axis"})),
    "Gelu": (
        lambda torch, x, a: torch.nn.functional.gelu(
            x[0], approximate=a.get("approximate", b"none").decode()
        ),
        frozenset({"approximate"}),
    ),
    "Transpose": (
        lambda torch, x, a: x[0].permute(a.get("perm", list(range(x[0].ndim))[::-1])),
        frozenset({"perm"}),
    ),
    "Concat": (lambda torch, x, a: torch.cat(list(x), a["axis"]), frozenset({"axis"})),
    "Reshape": (_shaped, frozenset({"allowzero"})),
    "Cast": (lambda torch, x, a: x[0].to(_dtype(torch, a["to"])), frozenset({"to"})),
    "Bernoulli": (_bernoulli, frozenset({"dtype", "seed"})),
    "Multinomial": (_multinomial, frozenset({"dtype", "seed", "sample_size"})),
    "RandomNormalLike": (
        lambda torch, x, a: _normal(torch, _like(torch, x, a), a),
        frozenset({"dtype", "seed", "mean", "scale"}),
    ),
    "RandomUniformLike": (
        lambda torch, x, a: _uniform(torch, _like(torch, x, a), a),
        frozenset({"dtype", "seed", "low", "high"}),
    ),
    "RandomNormal": (
        lambda torch, x, a: _normal(torch, _fresh(torch, x, a), a),
        frozenset({"shape", "dtype", "seed", "mean", "scale"}),
    ),
    "RandomUniform": (
        lambda torch, x, a: _uniform(torch, _fresh(torch, x, a), a),
        frozenset({"shape", "dtype", "seed", "low", "high"}),
    ),
}


class TorchPart:
    """A part that PyTorch runs."""

    def __init__(self, torch: Any, content: bytes) -> None:
        try:
            import onnx
            from onnx import helper, numpy_helper
        except ImportError:
            what = "a part that PyTorch runs is read by the package onnx, which is not installed"
            raise UnavailableError("PD-O041", what, hint="pip install 'perfdojo-sdk[onnx]'") from None
        model = onnx.load_from_string(content)
        if (
            max((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), default=0)
            < FIRST_OPSET
        ):
            raise Refused(
                Reason.VERSION, f"torch runs nodes of version {FIRST_OPSET} of the standard, and later"
            )
        self._torch = torch
        self._inputs = [value.name for value in model.graph.input]
        self._outputs = [value.name for value in model.graph.output]
        self._constants = {
            tensor.name: torch.from_numpy(np.array(numpy_helper.to_array(tensor)))
            for tensor in model.graph.initializer
        }
        self._steps: list[tuple[Function, list[str], str, Attributes]] = []
        for node in model.graph.node:
            function, known = TABLE.get(node.op_type, (None, frozenset()))
            given = {each.name: helper.get_attribute_value(each) for each in node.attribute}
            if function is None or node.domain not in ("", "ai.onnx") or len(node.output) != 1:
                raise Refused(Reason.OPERATOR, f"torch has no function for {ascii(node.op_type)[1:-1][:80]}")
            if not known.issuperset(given):
                what = f"{node.op_type} with {', '.join(sorted(given.keys() - known))[:80]} in torch"
                raise Refused(Reason.CHOICE, what)
            self._steps.append((function, list(node.input), node.output[0], given))

    def __call__(self, inputs: Sequence[Array], outputs: Sequence[Array], threads: int) -> None:
        torch = self._torch
        before = torch.get_num_threads()
        values: dict[str, Any] = {"": None, **self._constants}
        values.update((n, torch.from_numpy(_writable(a))) for n, a in zip(self._inputs, inputs, strict=True))
        try:
            torch.set_num_threads(threads)
            with torch.inference_mode():
                for function, names, output, given in self._steps:
                    values[output] = function(torch, [values[name] for name in names], given)
                for name, array in zip(self._outputs, outputs, strict=True):
                    if tuple(values[name].shape) != array.shape:
                        raise ValueError(f"{name} has the shape {list(values[name].shape)}")
                    torch.from_numpy(array).copy_(values[name])
        finally:
            torch.set_num_threads(before)


def _writable(array: Array) -> Array:
    """The array, or a copy where PyTorch would warn that it cannot promise not to write."""
    return array if array.flags.writeable else array.copy()

"""Element-wise operators."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from perfdojo_sdk.core.dtypes import BYTES
from perfdojo_sdk.frontends.onnx.operation import Operation, Rule
from perfdojo_sdk.frontends.onnx.operators.older import both, bound
from perfdojo_sdk.frontends.onnx.reading import dtype_name
from perfdojo_sdk.graph.graph import Value
from perfdojo_sdk.graph.operators import elementwise as e
from perfdojo_sdk.graph.refusals import Malformed
from perfdojo_sdk.graph.writer import is_float, need

#: The standard's name -> the language's operation of one operand.
_FUNCTIONS = {
    "Abs": "abs", "Neg": "neg", "Sqrt": "sqrt", "Exp": "exp", "Log": "log", "Tanh": "tanh", "Erf": "erf",
    "Floor": "floor", "Ceil": "ceil", "Round": "round", "Sin": "sin", "Cos": "cos", "Tan": "tan",
    "Asin": "asin", "Acos": "acos", "Atan": "atan", "Sinh": "sinh", "Cosh": "cosh", "Asinh": "asinh",
    "Acosh": "acosh", "Atanh": "atanh",
}  # fmt: skip
_BINARY = {"Add": "+", "Sub": "-", "Mul": "*"}
_COMPARISONS = {"Less": "<", "LessOrEqual": "<=", "Greater": ">", "GreaterOrEqual": ">=", "Equal": "=="}
_BITS = {
    "And": "and", "Or": "or", "Xor": "xor", "BitwiseAnd": "and", "BitwiseOr": "or", "BitwiseXor": "xor",
}  # fmt: skip


def _function(operation: str) -> Rule:
    return lambda n: e.function(n.b, operation, n[0])


def _binary(name: str, sign: str) -> Rule:
    return lambda n: e.binary(n.b, name, lambda a, c: f"{a} {sign} {c}", *both(n))


def _comparison(name: str, sign: str) -> Rule:
    return lambda n: e.compare(n.b, name.lower(), sign, *both(n))


def _bits(name: str) -> Rule:
    return lambda n: e.bitwise(n.b, name, *both(n))


def _variadic(name: str, formula: Callable[[str, str], str], divided: bool = False) -> Rule:
    return lambda n: e.variadic(n.b, name, formula, n.operands, divided)


def _clip(n: Operation) -> Value:
    if n.version < 11:
        return e.clip(n.b, n[0], bound(n, "min"), bound(n, "max"))
    return e.clip(n.b, n[0], n.maybe(1), n.maybe(2))


def _cast(n: Operation) -> Value:
    return _converted(n, dtype_name(n.whole("to")))


def _converted(n: Operation, dtype: str) -> Value:
    mode = n.text("round_mode") if n.has("round_mode") else "up"
    return e.cast(n.b, n[0], dtype, bool(n.whole("saturate", 1)), mode)


def _bit_cast(n: Operation) -> Value:
    """The same bits, which takes no kernel; of truth values, which are 0 or 1, an ordinary cast."""
    dtype = dtype_name(n.whole("to"))
    if "bool" in (dtype, n[0].dtype) and BYTES[dtype] == BYTES[n[0].dtype]:
        return e.cast(n.b, n[0], dtype)
    return n.b.same_bits(n[0], dtype)


def _pow(n: Operation) -> Value:
    """x to the power of y, in the dtype of x."""
    x, y = both(n)
    if not is_float(x.dtype):
        return _power_of_integers(n)
    need("pow")
    return e.binary(n.b, "pow", lambda a, c: f"pow({a}, {c})", x, e.cast(n.b, y, x.dtype))


def _power_of_integers(n: Operation) -> Value:
    """Integers to a power: by repeated products, which wrap; to a power of floats, by way of f64."""
    x, y = both(n)
    if is_float(y.dtype):
        power = e.binary(
            n.b, "pow", lambda a, c: f"pow({a}, {c})", e.cast(n.b, x, "f64"), e.cast(n.b, y, "f64")
        )
        return e.cast(n.b, power, x.dtype)
    return e.integer_power(n.b, x, y)


def _gelu(n: Operation) -> Value:
    kind = n.text("approximate", "none")
    if kind not in ("none", "tanh"):
        raise Malformed(f"Gelu approximates by {ascii(kind)[:40]}")
    return e.gelu(n.b, n[0], kind == "tanh")


def _where(n: Operation) -> Value:
    return e.where(n.b, n[0], n[1], n[2])


def _bit_shift(n: Operation) -> Value:
    return e.shift(n.b, n[0], n[1], n.text("direction") == "LEFT")


def _is_inf(n: Operation) -> Value:
    return e.is_inf(n.b, n[0], bool(n.whole("detect_negative")), bool(n.whole("detect_positive")))


def _swish(n: Operation) -> Value:
    return e.swish(n.b, n[0], n.real("alpha", 1.0))


def _reciprocal(n: Operation) -> Value:
    return e.unary(n.b, "reciprocal", lambda a: f"1 / {a}", n[0])


RULES: Mapping[str, Rule] = {
    **{name: _function(operation) for name, operation in _FUNCTIONS.items()},
    **{name: _binary(name.lower(), sign) for name, sign in _BINARY.items()},
    **{name: _comparison(name, sign) for name, sign in _COMPARISONS.items()},
    **{name: _bits(operation) for name, operation in _BITS.items()},
    "Not": lambda n: e.complement(n.b, n[0]),
    "BitwiseNot": lambda n: e.complement(n.b, n[0]),
    "BitShift": _bit_shift,
    "Div": lambda n: e.divide(n.b, *both(n)),
    "Mod": lambda n: e.modulo(n.b, n[0], n[1], bool(n.whole("fmod"))),
    "Pow": _pow,
    "Max": _variadic("max", lambda a, c: f"max({a}, {c})"),
    "Min": _variadic("min", lambda a, c: f"min({a}, {c})"),
    "Sum": _variadic("sum", lambda a, c: f"{a} + {c}"),
    "Mean": _variadic("mean", lambda a, c: f"{a} + {c}", divided=True),
    "Where": _where,
    "Clip": _clip,
    "Cast": _cast,
    "BitCast": _bit_cast,
    "CastLike": lambda n: _converted(n, n[1].dtype),
    "Sign": lambda n: e.sign(n.b, n[0]),
    "IsNaN": lambda n: e.is_nan(n.b, n[0]),
    "IsInf": _is_inf,
    "Reciprocal": _reciprocal,
    "Relu": lambda n: e.relu(n.b, n[0]),
    "LeakyRelu": lambda n: e.leaky_relu(n.b, n[0], n.real("alpha")),
    "PRelu": lambda n: e.prelu(n.b, n[0], n[1]),
    "Elu": lambda n: e.elu(n.b, n[0], n.real("alpha")),
    "Celu": lambda n: e.celu(n.b, n[0], n.real("alpha")),
    "Selu": lambda n: e.selu(n.b, n[0], n.real("alpha"), n.real("gamma")),
    "ThresholdedRelu": lambda n: e.thresholded_relu(n.b, n[0], n.real("alpha")),
    "HardSigmoid": lambda n: e.hard_sigmoid(n.b, n[0], n.real("alpha"), n.real("beta")),
    "HardSwish": lambda n: e.hard_swish(n.b, n[0]),
    "Sigmoid": lambda n: e.sigmoid(n.b, n[0]),
    "Swish": _swish,
    "Softplus": lambda n: e.softplus(n.b, n[0]),
    "Softsign": lambda n: e.softsign(n.b, n[0]),
    "Mish": lambda n: e.mish(n.b, n[0]),
    "Gelu": _gelu,
    "Shrink": lambda n: e.shrink(n.b, n[0], n.real("bias"), n.real("lambd")),
}

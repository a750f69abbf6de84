"""Element by element: arithmetic, comparisons, choices, activations, casts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import copysign, log, pi, prod

import numpy as np

from perfdojo_sdk.core.dtypes import INTEGER_DTYPES, integer_bounds
from perfdojo_sdk.frontends.torch.call import (
    HALVES,
    Call,
    Operand,
    Row,
    in_single,
    literal,
    pointwise,
    promoted,
)
from perfdojo_sdk.graph.arrays import numpy_dtype
from perfdojo_sdk.graph.graph import Value
from perfdojo_sdk.graph.operators import elementwise as e
from perfdojo_sdk.graph.operators.checks import divisor
from perfdojo_sdk.graph.operators.elementwise import cast_text
from perfdojo_sdk.graph.operators.movement import expand, split
from perfdojo_sdk.graph.refusals import Reason, Refused
from perfdojo_sdk.graph.shapes import axis_of, broadcast
from perfdojo_sdk.graph.writer import Writer, computed_in, is_float, levels, number

#: Functions of one operand -> the text of their value, in the dtype of the result.
_FUNCTIONS: Mapping[str, Callable[[str], str]] = {
    **{
        name: (lambda operation: lambda a: f"{operation}({a})")(name)
        for name in (
            "abs", "sqrt", "exp", "log", "tanh", "erf", "exp2", "expm1", "log2", "log1p", "rsqrt", "sin",
            "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh", "floor", "ceil",
            "round", "trunc", "sigmoid",
        )
    },
    "fix": lambda a: f"trunc({a})",
    "neg": lambda a: f"-{a}",
    "square": lambda a: f"{a} * {a}",
    "reciprocal": lambda a: f"1 / {a}",
    "frac": lambda a: f"{a} - trunc({a})",
    "log10": lambda a: f"log({a}) * {number(1 / log(10), 'f64')}",
    "relu": lambda a: f"max({a}, 0)",
    "relu6": lambda a: f"min(max({a}, 0), 6)",
    "silu": lambda a: f"{a} / (1 + exp(-{a}))",
    "mish": lambda a: f"{a} * tanh(max({a}, 0) + log1p(exp(-abs({a}))))",
    "log_sigmoid": lambda a: f"min({a}, 0) - log1p(exp(-abs({a})))",
    "hardswish": lambda a: f"{a} * min(max({a} + 3, 0), 6) / 6",
    "hardsigmoid": lambda a: f"min(max({a} + 3, 0), 6) / 6",
    "deg2rad": lambda a: f"{a} * 0.017453292519943295",
    "rad2deg": lambda a: f"{a} * 57.29577951308232",
}  # fmt: skip
_COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}


def _function(name: str, formula: Callable[[str], str]) -> Row:
    def row(c: Call) -> Value:
        if not is_float(c.dtype) and name in ("floor", "ceil", "round", "trunc", "fix"):
            return c["self"]
        return pointwise(c, name, formula, c["self"])

    return row


def _scaled(c: Call, sign: str, x: Operand, y: Operand) -> Value:
    """x + alpha y, or x - alpha y."""
    alpha = c.number("alpha", 1.0)
    if c.dtype == "bool":
        if sign != "+" or alpha != 1:
            raise Refused(Reason.DTYPE, "sums of bool")
        return pointwise(c, "add", lambda a, d: f"or({a}, {d})", x, y)
    if alpha == 1.0:
        return pointwise(c, c.op.partition(".")[0], lambda a, d: f"{a} {sign} {d}", x, y)
    kind = "f32" if is_float(c.dtype) else c.dtype
    return pointwise(c, "add_scaled", lambda a, d: f"{a} {sign} {literal(alpha, kind)} * {d}", x, y)


def _mul(c: Call) -> Value:
    if c.dtype == "bool":
        return pointwise(c, "mul", lambda a, d: f"and({a}, {d})", c.operand("self"), c.operand("other"))
    return pointwise(c, "mul", lambda a, d: f"{a} * {d}", c.operand("self"), c.operand("other"))


def _div(c: Call) -> Value:
    x, y, mode = c.operand("self"), c.operand("other"), c.text("rounding_mode")
    if c.op.startswith("floor_divide"):
        mode = "floor"
    if not mode:
        return pointwise(c, "div", lambda a, d: f"{a} / {d}", x, y)
    if is_float(c.dtype):
        return _whole_quotient(c, _rounded(c, x), _rounded(c, y), mode)
    by = _divisor(c, x, y)
    if mode == "trunc":
        return pointwise(c, "div", lambda a, d: f"{a} / {by(d)}", x, y)

    def floor(a: str, d: str) -> str:
        rest = f"rem({a}, {by(d)})"
        return f"{a} / {by(d)} - select(and({rest} != 0, xor({rest} < 0, {d} < 0)), 1, 0)"

    return pointwise(c, "floor_div", floor, x, y)


def _whole_quotient(c: Call, x: Operand, y: Operand, mode: str) -> Value:
    """A quotient of floats rounded to an integer: towards zero, or down. PyTorch rounds down what is left of
    the dividend without its remainder, since the rounded quotient may be one too large."""
    if c.dtype in HALVES:
        raise Refused(Reason.DTYPE, f"quotients of {c.dtype} rounded to integers")
    if mode == "trunc":
        return pointwise(c, "div", lambda a, d: f"trunc({a} / {d})", x, y)
    rest = pointwise(c, "fmod", lambda a, d: f"fmod({a}, {d})", x, y)

    def exact(a: str, d: str, q: str) -> str:
        below = f"{d} < 0" if isinstance(y, Value) else f"{q} {'==' if y < 0 else '!='} {q}"
        whole = f"({a} - {q}) / {d}"
        return f"select(and({q} != 0, xor({below}, {q} < 0)), {whole} - 1, {whole})"

    def down(a: str, d: str, q: str) -> str:
        nearest = f"floor({q}) + select({q} - floor({q}) > 0.5, 1, 0)"
        found = f"select({q} == 0, {a} / {d} * 0, {nearest})"
        if isinstance(y, Value):
            return f"select({d} == 0, {a} / {d}, {found})"
        return found if y else f"{a} / {d}"

    return pointwise(c, "floor_div", down, x, y, pointwise(c, "whole_div", exact, x, y, rest))


def _is_minus(element: str) -> str:
    """The condition that the sign of a float is minus, that of -0 as well. NaN counts as positive."""
    return f"or({element} < 0, and({element} == 0, 1 / {element} < 0))"


def _sign_bit(c: Call) -> Value:
    x = c["self"]
    formula = _is_minus if is_float(x.dtype) else lambda a: f"{a} < 0"
    if x.dtype == "bool":
        formula = lambda a: f"{a} != {a}"  # noqa: E731
    return pointwise(c, "signbit", formula, x, computed=x.dtype, raw=True)


def _copy_sign(c: Call) -> Value:
    x, y = c["self"], c.operand("other")
    if not isinstance(y, Value):
        minus = copysign(1.0, y) < 0
        return pointwise(c, "copysign", lambda a: f"-abs({a})" if minus else f"abs({a})", x)
    return pointwise(c, "copysign", lambda a, d: f"select({_is_minus(d)}, -abs({a}), abs({a}))", x, y)


def _angle_of(c: Call) -> Value:
    """The angle of points, of infinite ones as well; from that of the magnitudes, between 0 and pi / 2."""

    def steep(a: str, d: str) -> str:
        both = f"and(abs({a}) == inf, abs({d}) == inf)"
        return f"select({both}, 1, select(and({a} == 0, {d} == 0), 0, abs({a}) / abs({d})))"

    def turned(a: str, d: str, q: str) -> str:
        angle = f"select({_is_minus(d)}, {literal(pi, 'f64')} - atan({q}), atan({q}))"
        return f"select({_is_minus(a)}, -{angle}, {angle})"

    x, y = c["self"], c["other"]
    return pointwise(c, "atan2", turned, x, y, pointwise(c, "slope", steep, x, y))


def _angle(c: Call) -> Value:
    """The angle of real numbers: pi of negative ones."""
    x = c["self"]
    if x.dtype == "bool":
        return pointwise(c, "angle", lambda a: f"{a} * 0", x)
    text = f"select({{a}} < 0, {literal(pi, 'f64')}, select({{a}} == {{a}}, 0, {{a}}))"
    return pointwise(c, "angle", lambda a: text.replace("{a}", a), x)


def _hypotenuse(c: Call) -> Value:
    """sqrt(x^2 + y^2), whose squares do not overflow; infinite if either is, beside NaN too."""

    def formula(a: str, d: str) -> str:
        a, d = f"abs({a})", f"abs({d})"
        ratio, top = f"(min({a}, {d}) / max({a}, {d}))", f"max({a}, {d})"
        length = f"select({top} == 0, {top}, {top} * sqrt(1 + {ratio} * {ratio}))"
        return f"select(or({a} == inf, {d} == inf), inf, {length})"

    return pointwise(c, "hypot", formula, c["self"], c["other"])


def _rounded_to(c: Call) -> Value:
    """Rounded to decimals, in front of the point where they are negative."""
    x, decimals = c["self"], c.whole("decimals")
    if not is_float(c.dtype) or c.dtype in HALVES or abs(decimals) > 30:
        raise Refused(Reason.CHOICE, f"{c.dtype} rounded to {decimals} decimals")
    if not decimals:
        return pointwise(c, "round", lambda a: f"round({a})", x)
    power = literal(10.0 ** abs(decimals), c.dtype)
    one, other = ("*", "/") if decimals > 0 else ("/", "*")
    return pointwise(c, "round", lambda a: f"round({a} {one} {power}) {other} {power}", x)


def _remainder(name: str, truncated: bool) -> Row:
    """The rest of a division, with the sign of the divisor, or of the dividend if ``truncated``."""

    def row(c: Call) -> Value:
        x, y = (_rounded(c, c.operand(each)) for each in ("self", "other"))
        of, by = ("fmod", str) if is_float(c.dtype) else ("rem", _divisor(c, x, y))

        def formula(a: str, d: str) -> str:
            rest = f"{of}({a}, {by(d)})"
            if truncated:
                return rest
            if isinstance(y, Value):
                return e.signed_as(d, rest)
            return f"select({rest} {'>' if y < 0 else '<'} 0, {rest} + {d}, {rest})"

        return pointwise(c, name, formula, x, y)

    return row


def _rounded(c: Call, operand: Operand) -> Operand:
    """An operand; a number is one of the result's floats, which counts where a function jumps."""
    if isinstance(operand, Value) or not is_float(c.dtype):
        return operand
    with np.errstate(over="ignore"):  # A large number is an infinity there.
        return float(numpy_dtype(c.dtype).type(operand))


def _shift(left: bool) -> Row:
    def row(c: Call) -> Value:
        if c.dtype not in INTEGER_DTYPES:
            raise Refused(Reason.DTYPE, f"shifts of {c.dtype}")
        return pointwise(c, "shift", e.shifted(c.dtype, left), c.operand("self"), c.operand("other"))

    return row


def _divisor(c: Call, x: Operand, y: Operand) -> Callable[[str], str]:
    """The text of the integer divisor ``y`` of ``x``, where PyTorch raises an error for a zero."""
    if isinstance(y, Value):
        empty = isinstance(x, Value) and not prod(broadcast(x.shape, y.shape))
        return str if empty else divisor(c.b, y)
    if not y:
        raise Refused(Reason.CHOICE, "division by zero")
    return str


def _comparison(name: str, sign: str) -> Row:
    def row(c: Call) -> Value:
        x, y = c.operand("self"), c.operand("other")
        kind = promoted(x, y)
        return pointwise(c, name, lambda a, d: f"{a} {sign} {d}", x, y, computed=kind, raw=True)

    return row


def _logical(name: str) -> Row:
    def row(c: Call) -> Value:
        x, y = c.operand("self"), c.operand("other")
        kind = promoted(x, y)
        formula = lambda a, d: f"{name}({a} != 0, {d} != 0)"  # noqa: E731
        return pointwise(c, f"logical_{name}", formula, x, y, computed=kind, raw=True)

    return row


def _logical_not(c: Call) -> Value:
    x = c["self"]
    return pointwise(c, "logical_not", lambda a: f"{a} == 0", x, computed=x.dtype, raw=True)


def _bitwise(name: str) -> Row:
    return lambda c: pointwise(
        c, f"bitwise_{name}", lambda a, d: f"{name}({a}, {d})", c.operand("self"), c.operand("other")
    )


def _test(name: str, formula: Callable[[str], str]) -> Row:
    def row(c: Call) -> Value:
        x = c["self"]
        if not is_float(x.dtype):
            return pointwise(c, name, lambda a: f"{a} != {a}" if name != "isfinite" else f"{a} == {a}", x,
                             computed=x.dtype, raw=True)  # fmt: skip
        return pointwise(c, name, formula, x, computed=x.dtype, raw=True)

    return row


def _sign(c: Call) -> Value:
    x = c["self"]
    if not is_float(x.dtype):
        return e.sign(c.b, x)
    return pointwise(c, "sign", lambda a: f"select({a} > 0, 1, select({a} < 0, -1, 0))", x)  # of NaN it is 0


def _erfc(c: Call) -> Value:
    """1 - erf(x), which for large x is an exponential of a polynomial of 1 / (1 + x / 2) (Press et al.,
    Numerical Recipes, section 6.2), whose relative error is below 1.2e-7."""
    if c.dtype == "f64":
        raise Refused(Reason.DTYPE, "erfc of f64")
    series = "0.17087277"
    for factor in (-0.82215223, 1.48851587, -1.13520398, 0.27886807, -0.18628806, 0.09678418, 0.37409196,
                    1.00002368):  # fmt: skip
        series = f"({factor} + T * {series})".replace("(-", "(0 - ")
    text = f"T * exp(T * {series} - 1.26551223 - {{a}} * {{a}})".replace("T", "(1 / (1 + 0.5 * {a}))")
    whole = f"select({{a}} < 0.5, 1 - erf({{a}}), {text})"
    return pointwise(c, "erfc", lambda a: whole.replace("{a}", a), c["self"])


def _pow(c: Call) -> Value:
    base = c.operand("self")
    exponent = c.operand("exponent")
    if not isinstance(exponent, Value):
        power = float(exponent)
        if power == 2.0:
            return pointwise(c, "square", lambda a: f"{a} * {a}", base)
        if power == 1.0:
            return pointwise(c, "copy", lambda a: a, base)
        if power in (3.0, 4.0):
            return pointwise(c, "pow", lambda a: " * ".join([a] * int(power)), base)
        if is_float(c.dtype) and power in (0.5, -0.5, -1.0, -2.0):
            found = {0.5: "sqrt({a})", -0.5: "1 / sqrt({a})", -1.0: "1 / {a}", -2.0: "1 / ({a} * {a})"}[power]
            return pointwise(c, "pow", lambda a: found.replace("{a}", a), base)
    if c.dtype in INTEGER_DTYPES:
        return e.integer_power(c.b, *(_as_value(c, each) for each in (base, exponent)))
    if not is_float(c.dtype):
        raise Refused(Reason.DTYPE, f"powers of {c.dtype}")
    return pointwise(c, "pow", lambda a, d: f"pow({a}, {d})", base, exponent)


def _as_value(c: Call, operand: Operand) -> Value:
    """An operand as a value of the result's dtype, of integers; a number wraps."""
    if isinstance(operand, Value):
        return e.cast(c.b, operand, c.dtype)
    low, high = integer_bounds(c.dtype)
    return c.b.filled((), (int(operand) - low) % (high - low + 1) + low, c.dtype)


def _extremum(name: str) -> Row:
    def row(c: Call) -> Value:
        if c.dtype == "bool":
            return pointwise(c, name, lambda a, d: f"{'or' if name == 'max' else 'and'}({a}, {d})",
                             c["self"], c["other"])  # fmt: skip
        return pointwise(c, name, lambda a, d: f"{name}({a}, {d})", c["self"], c["other"])

    return row


def _ignoring_nan(name: str) -> Row:
    def row(c: Call) -> Value:
        def formula(a: str, d: str) -> str:
            return f"select({a} != {a}, {d}, select({d} != {d}, {a}, {name}({a}, {d})))"

        return pointwise(c, f"f{name}", formula, c["self"], c["other"])

    return row


def _clamp(c: Call) -> Value:
    bounds = [(sign, c.operand(name)) for sign, name in (("max", "min"), ("min", "max")) if c.has(name)]

    def formula(a: str, *texts: str) -> str:
        for (sign, _), text in zip(bounds, texts, strict=True):
            a = f"{sign}({a}, {text})"
        return a

    return pointwise(c, "clamp", formula, c["self"], *(bound for _, bound in bounds))


def _hardtanh(c: Call) -> Value:
    low, high = c.operand("min_val"), c.operand("max_val")
    return pointwise(c, "hardtanh", lambda a, p, q: f"min(max({a}, {p}), {q})", c["self"], low, high)


def _where(c: Call) -> Value:
    x, y = c.operand("self"), c.operand("other")
    return _chosen(c, c["condition"], x, y)


def _chosen(c: Call, condition: Value, x: Operand, y: Operand) -> Value:
    """x where the condition holds, y elsewhere, in the dtype of the result."""
    kind, condition = computed_in(c.dtype), _as_truth(c, condition)
    given = [v for v in (condition, x, y) if isinstance(v, Value)]
    shape = broadcast(*[v.shape for v in given])
    k, names = Writer(c.b, "where"), levels(len(shape))

    def element(v: Operand) -> str:
        if not isinstance(v, Value):
            return literal(v, kind)
        shift = len(shape) - v.rank
        text = k.read(v)([0 if s == 1 else names[n + shift] for n, s in enumerate(v.shape)])
        return cast_text(text, v.dtype, kind)

    shift = len(shape) - condition.rank
    test = k.read(condition)([0 if s == 1 else names[n + shift] for n, s in enumerate(condition.shape)])
    one, other = element(x), element(y)
    z = k.write(shape, c.dtype)
    k.nest(shape, f"{z(names)} = {cast_text(f'select({test}, {one}, {other})', kind, c.dtype)}")
    return k.done()[0]


def _as_truth(c: Call, x: Value) -> Value:
    if x.dtype == "bool":
        return x
    return pointwise(c, "truth", lambda a: f"{a} != 0", x, dtype="bool", computed=x.dtype, raw=True)


def _converted(c: Call, x: Value) -> Value:
    return e.cast(c.b, x, c.dtype)


def _masked_fill(c: Call) -> Value:
    return _chosen(c, c["mask"], c.operand("value"), c["self"])


def _gelu(c: Call) -> Value:
    return e.gelu(c.b, c["self"], c.text("approximate") == "tanh")


def _leaky_relu(c: Call) -> Value:
    return e.leaky_relu(c.b, c["self"], c.real("negative_slope"))


def _rrelu(c: Call) -> Value:
    if c.flag("training"):
        raise Refused(Reason.RANDOM, "rrelu of a model in training")
    return e.leaky_relu(c.b, c["self"], (c.real("lower") + c.real("upper")) / 2)


def _elu(c: Call) -> Value:
    low, high, inside = (literal(c.real(name, 1.0), "f32") for name in ("alpha", "scale", "input_scale"))
    if c.real("scale", 1.0) == 1.0 and c.real("input_scale", 1.0) == 1.0:
        return e.elu(c.b, c["self"], c.real("alpha", 1.0))
    return pointwise(
        c, "elu", lambda a: f"{high} * select({a} < 0, {low} * expm1({a} * {inside}), {a})", c["self"]
    )


def _selu(c: Call) -> Value:
    return e.selu(c.b, c["self"], 1.6732632423543772848170429916717, 1.0507009873554804934193349852946)


def _softplus(c: Call) -> Value:
    beta, edge = c.real("beta", 1.0), c.real("threshold", 20.0)

    def formula(a: str) -> str:
        if beta == 1.0:
            return f"select({a} > {literal(edge, 'f32')}, {a}, max({a}, 0) + log1p(exp(-abs({a}))))"
        scaled = f"({a} * {literal(beta, 'f32')})"
        soft = f"(max({scaled}, 0) + log1p(exp(-abs({scaled})))) / {literal(beta, 'f32')}"
        return f"select({scaled} > {literal(edge, 'f32')}, {a}, {soft})"

    return pointwise(c, "softplus", formula, c["self"])


def _threshold(c: Call) -> Value:
    return pointwise(
        c, "threshold", lambda a, t, v: f"select({a} <= {t}, {v}, {a})",
        c["self"], c.operand("threshold"), c.operand("value"),
    )  # fmt: skip


def _hardshrink(c: Call) -> Value:
    edge = literal(c.real("lambd", 0.5), "f32")
    return pointwise(
        c, "hardshrink", lambda a: f"select(and({a} >= -{edge}, {a} <= {edge}), 0, {a})", c["self"]
    )


def _softshrink(c: Call) -> Value:
    edge = literal(c.real("lambd", 0.5), "f32")
    # The last case is a product so that NaN stays NaN.
    below = f"select({{a}} < -{edge}, {{a}} + {edge}, {{a}} * 0)"
    above = f"select({{a}} > {edge}, {{a}} - {edge}, {below})"
    return pointwise(c, "softshrink", lambda a: above.replace("{a}", a), c["self"])


def _glu(c: Call) -> Value:
    x = c["self"]
    axis = axis_of(c.whole("dim", -1), x.rank)
    half = x.shape[axis] // 2
    one, gate = split(c.b, x, [half, half], axis)
    return pointwise(c, "glu", lambda a, g: f"{a} / (1 + exp(-{g}))", one, gate)


def _prelu(c: Call) -> Value:
    x, w = c["self"], c["weight"]
    if w.elements > 1:
        w = c.b.view(w, (1, w.elements, *[1] * (x.rank - 2)))
    return e.prelu(c.b, x, w)


def _logit(c: Call) -> Value:
    if not c.has("eps"):
        return pointwise(c, "logit", lambda a: f"log({a} / (1 - {a}))", c["self"])
    low, high = literal(c.real("eps"), "f32"), literal(1 - c.real("eps"), "f32")
    text = f"min(max({{a}}, {low}), {high})"
    formula = f"log({text} / (1 - {text}))"
    return pointwise(c, "logit", lambda a: formula.replace("{a}", a), c["self"])


def _lerp(c: Call) -> Value:
    # From the nearer end, as PyTorch: so a weight of 1 gives the end itself.
    def formula(a: str, d: str, w: str) -> str:
        near, far = f"{a} + {w} * ({d} - {a})", f"{d} - ({d} - {a}) * (1 - {w})"
        if isinstance(weight, Value):
            return f"select(abs({w}) < 0.5, {near}, {far})"
        return near if abs(weight) < 0.5 else far

    weight = c.operand("weight")
    return pointwise(c, "lerp", formula, c["self"], c["end"], weight)


def _added(sign: str) -> Row:
    def row(c: Call) -> Value:
        value = literal(c.real("value", 1.0), "f32" if is_float(c.dtype) else c.dtype)
        return pointwise(c, "add_term", lambda a, p, q: f"{a} + {value} * {p} {sign} {q}",
                         c["self"], c["tensor1"], c["tensor2"])  # fmt: skip

    return row


def _nan_to_num(c: Call) -> Value:
    largest = {"f64": 1.7976931348623157e308, "f16": 65504.0, "bf16": 3.3895313892515355e38}
    most = largest.get(c.dtype, 3.4028234663852886e38)
    given = [c.real("nan", 0.0), c.real("posinf", most), c.real("neginf", -most)]
    nan, high, low = (literal(value, "f64") for value in given)

    def formula(a: str) -> str:
        return f"select({a} != {a}, {nan}, select({a} == inf, {high}, select({a} == -inf, {low}, {a})))"

    return pointwise(c, "nan_to_num", formula, c["self"])


# -- casts and copies --------------------------------------------------------------------------------


def same(c: Call) -> Value:
    """The operand itself."""
    return c["self"] if c.has("self") else c["input"]


def cast(c: Call) -> Value:
    """The operand in the dtype of the result."""
    x = c["self"]
    if c.dtype == "bool":
        return _as_truth(c, x)
    if is_float(x.dtype) and c.dtype.startswith("u"):
        raise Refused(Reason.DTYPE, f"{x.dtype} as {c.dtype}")
    return _converted(c, x)


def dropout(c: Call) -> Value:
    """The operand, outside of training."""
    if c.flag("train") and c.real("p") > 0:
        raise Refused(Reason.RANDOM, "dropout of a model in training")
    return c["input"]


def copy(c: Call) -> Value:
    """The elements of another tensor, broadcast, in the dtype of the first."""
    return e.cast(c.b, expand(c.b, c["src"], c.shape), c.dtype)


def _binary(sign: str, swapped: bool = False) -> Row:
    def row(c: Call) -> Value:
        x, y = c.operand("self"), c.operand("other")
        return _scaled(c, sign, *((y, x) if swapped else (x, y)))

    return row


def _rsub(c: Call) -> Value:
    alpha = c.number("alpha", 1)
    if alpha != 1:
        factor = literal(alpha, "f32" if is_float(c.dtype) else c.dtype)
        scaled = lambda a, d: f"{d} - {factor} * {a}"  # noqa: E731
        return pointwise(c, "rsub_scaled", scaled, c.operand("self"), c.operand("other"))
    return pointwise(c, "rsub", lambda a, d: f"{d} - {a}", c.operand("self"), c.operand("other"))


ROWS: Mapping[str, Row] = {
    **{name: _function(name, formula) for name, formula in _FUNCTIONS.items()},
    **{name: _comparison(name, sign) for name, sign in _COMPARISONS.items()},
    **{f"logical_{name}": _logical(name) for name in ("and", "or", "xor")},
    **{f"bitwise_{name}": _bitwise(name) for name in ("and", "or", "xor")},
    "bitwise_not": lambda c: pointwise(c, "bitwise_not", lambda a: f"not({a})", c["self"]),
    "__and__": _bitwise("and"),
    "__or__": _bitwise("or"),
    "__xor__": _bitwise("xor"),
    "logical_not": _logical_not,
    "isnan": _test("isnan", lambda a: f"{a} != {a}"),
    "isinf": _test("isinf", lambda a: f"abs({a}) == inf"),
    "isfinite": _test("isfinite", lambda a: f"abs({a}) < inf"),
    "add": _binary("+"),
    "sub": _binary("-"),
    "rsub": _rsub,
    "mul": _mul,
    "multiply": _mul,
    "div": _div,
    "divide": _div,
    "true_divide": _div,
    "floor_divide": _div,
    "remainder": _remainder("remainder", truncated=False),
    "fmod": _remainder("fmod", truncated=True),
    "bitwise_left_shift": _shift(left=True),
    "bitwise_right_shift": _shift(left=False),
    "__lshift__": _shift(left=True),
    "__rshift__": _shift(left=False),
    "atan2": in_single(_angle_of),
    "arctan2": in_single(_angle_of),
    "angle": _angle,
    "copysign": _copy_sign,
    "signbit": _sign_bit,
    "hypot": _hypotenuse,
    "round.decimals": _rounded_to,
    "pow": _pow,
    "sign": _sign,
    "erfc": _erfc,
    "sgn": _sign,
    "maximum": _extremum("max"),
    "minimum": _extremum("min"),
    "max.other": _extremum("max"),
    "min.other": _extremum("min"),
    "fmax": _ignoring_nan("max"),
    "fmin": _ignoring_nan("min"),
    "clamp": _clamp,
    "clip": _clamp,
    "clamp_min": _clamp,
    "clamp_max": _clamp,
    "hardtanh": _hardtanh,
    "where.self": _where,
    "where.ScalarSelf": _where,
    "where.ScalarOther": _where,
    "where.Scalar": _where,
    "masked_fill": _masked_fill,
    "gelu": _gelu,
    "leaky_relu": _leaky_relu,
    "rrelu": _rrelu,
    "elu": _elu,
    "celu": lambda c: e.celu(c.b, c["self"], c.real("alpha", 1.0)),
    "selu": _selu,
    "softplus": _softplus,
    "threshold": _threshold,
    "hardshrink": _hardshrink,
    "softshrink": _softshrink,
    "glu": _glu,
    "prelu": _prelu,
    "logit": _logit,
    "lerp": _lerp,
    "addcmul": _added("*"),
    "addcdiv": _added("/"),
    "nan_to_num": _nan_to_num,
    **dict.fromkeys(("positive", "clone", "contiguous", "detach", "alias"), same),
    "lift_fresh_copy": same,
    **dict.fromkeys(("to", "_to_copy", "type_as"), cast),
    **dict.fromkeys(("dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout"), dropout),
    "copy": copy,
}  # fmt: skip

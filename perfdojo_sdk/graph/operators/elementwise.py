"""Element by element, with broadcasting: arithmetic, comparisons, logic, bits, choices and casts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod, sqrt

from perfdojo_sdk.core.dtypes import (
    CODED_DTYPES,
    FLOAT_DTYPES,
    INTEGER_DTYPES,
    NARROW_DTYPES,
    UNCOMPUTED_DTYPES,
    bits,
    converts,
    integer_bounds,
)
from perfdojo_sdk.core.formats import FORMATS, POWERS, decode
from perfdojo_sdk.core.operations import OPERATIONS
from perfdojo_sdk.graph.builder import Builder
from perfdojo_sdk.graph.graph import Value
from perfdojo_sdk.graph.operators.checks import divisor
from perfdojo_sdk.graph.refusals import Malformed, Reason, Refused
from perfdojo_sdk.graph.shapes import broadcast
from perfdojo_sdk.graph.writer import Writer, computed_in, converted, is_float, levels, need, number


def mapped(
    b: Builder, name: str, dtype: str, formula: Callable[..., str], *values: Value, raw: bool = False
) -> Value:
    """The values of ``formula``, which makes the text of an element from those of the operands.

    Operands are in the dtype that is computed in, and so is the result, unless it is ``raw``: a value of
    ``dtype`` already.
    """
    shape = broadcast(*[v.shape for v in values])
    k = Writer(b, name)
    names = levels(len(shape))
    texts = [k.read(v).broadcast(shape, names) for v in values]
    y = k.write(shape, dtype)
    text = formula(*texts)
    k.nest(shape, f"{y(names)} = {text if raw else y.store(text)}")
    return k.done()[0]


def same_dtype(*values: Value) -> str:
    """The dtype that all have."""
    found = {v.dtype for v in values}
    if not found:
        raise Malformed("an operator without operands")
    if len(found) > 1:
        raise Malformed(f"operands of {' and '.join(sorted(found))}", "all must have one dtype")
    return found.pop()


def binary(b: Builder, name: str, formula: Callable[[str, str], str], x: Value, y: Value) -> Value:
    """A function of two operands of one dtype, which its result has as well."""
    return mapped(b, name, same_dtype(x, y), formula, x, y)


def variadic(
    b: Builder, name: str, formula: Callable[[str, str], str], values: Sequence[Value], divided: bool = False
) -> Value:
    """A chain over one or more operands of one dtype, from the left; ``divided``: by their number."""
    dtype = same_dtype(*values)

    def chain(*texts: str) -> str:
        text = texts[0]
        for other in texts[1:]:
            text = formula(text, other)
        return f"({text}) / {len(texts)}" if divided else text

    return mapped(b, name, dtype, chain, *values)


def unary(b: Builder, name: str, formula: Callable[[str], str], x: Value) -> Value:
    return mapped(b, name, x.dtype, formula, x)


def function(b: Builder, operation: str, x: Value) -> Value:
    """An operation of the language of one operand."""
    need(operation)
    return unary(b, operation, lambda a: f"{operation}({a})", x)


def divide(b: Builder, x: Value, y: Value) -> Value:
    """The quotient; of integers, truncated towards zero, and the graph reports a divisor of zero."""
    by = _divisor(b, x, y)
    return binary(b, "div", lambda a, c: f"{a} / {by(c)}", x, y)


def _divisor(b: Builder, x: Value, y: Value) -> Callable[[str], str]:
    """The text of the divisor ``y`` of ``x``, which may be zero where nothing is divided."""
    return str if is_float(y.dtype) or not prod(broadcast(x.shape, y.shape)) else divisor(b, y)


def modulo(b: Builder, x: Value, y: Value, truncated: bool) -> Value:
    """The remainder; it has the sign of the divisor, or of the dividend if ``truncated``. The graph reports
    an integer divisor of zero."""
    dtype = same_dtype(x, y)
    if is_float(dtype):
        return float_modulo(b, x, y, truncated)
    by = _divisor(b, x, y)
    if truncated or dtype.startswith("u"):
        return binary(b, "mod", lambda a, c: f"rem({a}, {by(c)})", x, y)

    return binary(b, "mod", lambda a, c: signed_as(c, f"rem({a}, {by(c)})"), x, y)


def signed_as(divisor: str, rest: str) -> str:
    """The rest of a division that has the sign of its divisor."""
    return f"select(and({rest} != 0, xor({rest} < 0, {divisor} < 0)), {rest} + {divisor}, {rest})"


def float_modulo(b: Builder, x: Value, y: Value, truncated: bool) -> Value:
    """The remainder of floats, which needs an operation of its own to be exact."""
    need("fmod")

    def formula(a: str, c: str) -> str:
        rest = f"fmod({a}, {c})"
        return rest if truncated else signed_as(c, rest)

    return binary(b, "mod", formula, x, y)


def integer_power(b: Builder, x: Value, y: Value) -> Value:
    """Integers to the power of integers, bit by bit of the exponent; products wrap. To a power below 0 it is
    the whole part of the reciprocal, so 0 but for 1 and -1; of 0, it is 0."""
    if not {x.dtype, y.dtype} <= set(INTEGER_DTYPES):
        raise Malformed(f"{x.dtype} to the power of {y.dtype}")
    shape = broadcast(x.shape, y.shape)
    k = Writer(b, "integer_power")
    names = levels(len(shape))
    base, exponent = (k.read(v).broadcast(shape, names) for v in (x, y))
    square, rest, total = k.local(shape, x.dtype), k.local(shape, y.dtype), k.local(shape, x.dtype)
    z = k.write(shape, x.dtype)
    s, r, t = square(names), rest(names), total(names)
    k.nest(shape, f"{s} = {base}", f"{r} = {exponent}", f"{t} = 1")
    k.nest(
        [*shape, bits(y.dtype)],
        f"{t} = select(and({r}, 1) == 0, {t}, {t} * {s})",
        f"{s} = {s} * {s}",
        f"{r} = shr({r}, 1)",
    )
    if y.dtype.startswith("u"):
        k.nest(shape, f"{z(names)} = {t}")
    else:
        one = f"select({base} == 1, 1, 0)"
        if not x.dtype.startswith("u"):
            odd = f"select(and({exponent}, 1) == 0, {number(1, x.dtype)}, {number(-1, x.dtype)})"
            one = f"select({base} == -1, {odd}, {one})"
        k.nest(shape, f"{z(names)} = select({exponent} < 0, {one}, {t})")
    return k.done()[0]


def compare(b: Builder, name: str, sign: str, x: Value, y: Value) -> Value:
    same_dtype(x, y)
    return mapped(b, name, "bool", lambda a, c: f"{a} {sign} {c}", x, y)


def bitwise(b: Builder, name: str, x: Value, y: Value) -> Value:
    """An operation on bits, or on truth values: ``and``, ``or``, ``xor``."""
    return binary(b, f"bit_{name}", lambda a, c: f"{name}({a}, {c})", x, y)


def complement(b: Builder, x: Value) -> Value:
    return unary(b, "bit_not", lambda a: f"not({a})", x)


def shift(b: Builder, x: Value, y: Value, left: bool) -> Value:
    """A shift of bits; see :func:`shifted`."""
    return binary(b, "shift", shifted(same_dtype(x, y), left), x, y)


def shifted(dtype: str, left: bool) -> Callable[[str, str], str]:
    """The text of a shift of bits, to the right with copies of the sign. By a number below 0 or of the width
    and more, nothing remains but the sign of a number that is shifted to the right."""
    if dtype not in INTEGER_DTYPES:
        raise Malformed(f"a shift of {dtype}")
    width, signed = bits(dtype), not dtype.startswith("u")

    def formula(a: str, c: str) -> str:
        inside = f"min(max({c}, 0), {width - 1})" if signed else f"min({c}, {width - 1})"
        possible = f"and({c} >= 0, {c} < {width})" if signed else f"{c} < {width}"
        rest = f"shr({a}, {width - 1})" if signed and not left else "0"
        return f"select({possible}, {'shl' if left else 'shr'}({a}, {inside}), {rest})"

    return formula


def where(b: Builder, condition: Value, x: Value, y: Value) -> Value:
    dtype = same_dtype(x, y)
    if condition.dtype != "bool":
        raise Malformed(f"a condition of {condition.dtype}")
    shape = broadcast(condition.shape, x.shape, y.shape)
    k = Writer(b, "where")
    names = levels(len(shape))
    c, one, other = (_raw(k, v, shape, names) for v in (condition, x, y))
    z = k.write(shape, dtype)
    k.nest(shape, f"{z(names)} = select({c}, {one}, {other})")
    return k.done()[0]


def _raw(k: Writer, value: Value, shape: tuple[int, ...], names: Sequence[str]) -> str:
    """An element of a broadcast value, without conversion."""
    shift = len(shape) - value.rank
    return k.read(value)([0 if s == 1 else names[n + shift] for n, s in enumerate(value.shape)])


def clip(b: Builder, x: Value, low: Value | None, high: Value | None) -> Value:
    """At least ``low``, then at most ``high``; NaN stays NaN. Bounds have one element."""
    bounds = [v for v in (low, high) if v is not None]
    same_dtype(x, *bounds)
    for bound in bounds:
        if bound.elements != 1:
            raise Malformed(f"a bound of shape {bound.text}", "bounds are scalars")
    if not bounds:
        return x
    values = [x, *(b.view(v, ()) for v in bounds)]

    def formula(a: str, *texts: str) -> str:
        rest = list(texts)
        if low is not None:
            a = f"max({a}, {rest.pop(0)})"
        return f"min({a}, {rest.pop(0)})" if high is not None else a

    return mapped(b, "clip", x.dtype, formula, *values)


def sign(b: Builder, x: Value) -> Value:
    """-1, 0 or 1; NaN stays NaN."""
    if x.dtype.startswith("u") or x.dtype == "bool":
        return unary(b, "sign", lambda a: f"select({a} > 0, 1, 0)", x)
    zero = "select({a} == {a}, 0, {a})" if is_float(x.dtype) else "0"
    text = f"select({{a}} > 0, 1, select({{a}} < 0, -1, {zero}))"
    return unary(b, "sign", lambda a: text.replace("{a}", a), x)


def is_nan(b: Builder, x: Value) -> Value:
    return mapped(b, "isnan", "bool", lambda a: f"{a} != {a}", x)


def is_inf(b: Builder, x: Value, negative: bool, positive: bool) -> Value:
    """True for infinities of the signs that are asked for."""
    if negative and positive:
        return mapped(b, "isinf", "bool", lambda a: f"abs({a}) == inf", x)
    if negative or positive:
        return mapped(b, "isinf", "bool", lambda a: f"{a} == {'inf' if positive else '-inf'}", x)
    return mapped(b, "isinf", "bool", lambda a: f"and({a} == inf, {a} == -inf)", x)


# -- activations -----------------------------------------------------------------------------------


def relu(b: Builder, x: Value) -> Value:
    return unary(b, "relu", lambda a: f"max({a}, 0)", x)


def leaky_relu(b: Builder, x: Value, alpha: float) -> Value:
    return unary(b, "leaky_relu", lambda a: f"select({a} < 0, {a} * {number(alpha, 'f32')}, {a})", x)


def prelu(b: Builder, x: Value, slope: Value) -> Value:
    """Negative elements times a slope, which is broadcast to ``x`` alone."""
    if broadcast(x.shape, slope.shape) != x.shape:
        raise Malformed(f"a slope of shape {slope.text} for {x.text}")
    return binary(b, "prelu", lambda a, s: f"select({a} < 0, {a} * {s}, {a})", x, slope)


def elu(b: Builder, x: Value, alpha: float) -> Value:
    scale = number(alpha, "f32")
    return unary(b, "elu", lambda a: f"select({a} < 0, {scale} * {_decayed(a)}, {a})", x)


def _decayed(a: str) -> str:
    """exp(a) - 1 for a <= 0, exact near 0 where the language has it."""
    return f"expm1({a})" if "expm1" in OPERATIONS else f"(exp({a}) - 1)"


def celu(b: Builder, x: Value, alpha: float) -> Value:
    scale = number(alpha, "f32")
    return unary(b, "celu", lambda a: f"max({a}, 0) + min({scale} * {_decayed(f'{a} / {scale}')}, 0)", x)


def selu(b: Builder, x: Value, alpha: float, gamma: float) -> Value:
    low, scale = number(alpha, "f32"), number(gamma, "f32")
    return unary(b, "selu", lambda a: f"{scale} * select({a} < 0, {low} * {_decayed(a)}, {a})", x)


def thresholded_relu(b: Builder, x: Value, alpha: float) -> Value:
    """Elements above the threshold; all others, NaN included, become 0."""
    return unary(b, "thresholded_relu", lambda a: f"select({a} > {number(alpha, 'f32')}, {a}, 0)", x)


def hard_sigmoid(b: Builder, x: Value, alpha: float, beta: float) -> Value:
    scale, offset = number(alpha, "f32"), number(beta, "f32")
    return unary(b, "hard_sigmoid", lambda a: f"max(0, min(1, {scale} * {a} + {offset}))", x)


def hard_swish(b: Builder, x: Value) -> Value:
    return unary(b, "hard_swish", lambda a: f"{a} * max(0, min(1, {a} / 6 + 0.5))", x)


def sigmoid(b: Builder, x: Value) -> Value:
    """1 / (1 + exp(-x)); an overflow of the exponential gives the limit 0."""
    return unary(b, "sigmoid", lambda a: f"1 / (1 + exp(-{a}))", x)


def swish(b: Builder, x: Value, alpha: float = 1.0) -> Value:
    scaled = "" if alpha == 1.0 else f"{number(alpha, 'f32')} * "
    return unary(b, "swish", lambda a: f"{a} / (1 + exp(-({scaled}{a})))", x)


def softplus(b: Builder, x: Value) -> Value:
    """log(1 + exp(x)), without an overflow: max(x, 0) + log(1 + exp(-|x|))."""
    return unary(b, "softplus", lambda a: f"max({a}, 0) + {_log1p(f'exp(-abs({a}))')}", x)


def _log1p(a: str) -> str:
    return f"log1p({a})" if "log1p" in OPERATIONS else f"log(1 + {a})"


def softsign(b: Builder, x: Value) -> Value:
    return unary(b, "softsign", lambda a: f"{a} / (1 + abs({a}))", x)


def mish(b: Builder, x: Value) -> Value:
    """x * tanh(softplus(x))."""
    return unary(b, "mish", lambda a: f"{a} * tanh(max({a}, 0) + {_log1p(f'exp(-abs({a}))')})", x)


def gelu(b: Builder, x: Value, approximated: bool) -> Value:
    if approximated:
        root = number(sqrt(2 / 3.141592653589793), "f32")
        return unary(
            b, "gelu", lambda a: f"0.5 * {a} * (1 + tanh({root} * ({a} + 0.044715 * {a} * {a} * {a})))", x
        )
    root = number(sqrt(0.5), "f32")
    return unary(b, "gelu", lambda a: f"0.5 * {a} * (1 + erf({a} * {root}))", x)


def shrink(b: Builder, x: Value, bias: float, lambd: float) -> Value:
    """0 inside the threshold, moved towards it by ``bias`` outside."""
    if not is_float(x.dtype):
        return _shrink_integers(b, x, bias, lambd)
    edge, moved = number(lambd, "f32"), number(bias, "f32")
    below = f"select({{a}} < -({edge}), {{a}} + {moved}, 0)"
    above = f"select({{a}} > {edge}, {{a}} - {moved}, {below})"
    return unary(b, "shrink", lambda a: above.replace("{a}", a), x)


def _shrink_integers(b: Builder, x: Value, bias: float, lambd: float) -> Value:
    if bias != int(bias) or lambd != int(lambd):
        raise Refused(Reason.CHOICE, f"Shrink of {x.dtype} with bias {bias} and lambd {lambd}")
    low, high = integer_bounds(x.dtype)
    if not (low <= -lambd and lambd <= high and low <= bias <= high):
        raise Refused(Reason.CHOICE, f"Shrink of {x.dtype} with bias {bias} and lambd {lambd}")
    edge, moved = int(lambd), int(bias)
    return unary(
        b,
        "shrink",
        lambda a: f"select({a} > {edge}, {a} - {moved}, select({a} < -{edge}, {a} + {moved}, 0))",
        x,
    )


def swiglu(b: Builder, gate: Value, up: Value) -> Value:
    """silu(gate) * up."""
    return binary(b, "swiglu", lambda g, u: f"{g} / (1 + exp(-{g})) * {u}", gate, up)


# -- casts -----------------------------------------------------------------------------------------


def cast(b: Builder, x: Value, dtype: str, saturate: bool = True, mode: str = "up") -> Value:
    """The nearest value of another dtype; floats become integers by truncation. In a format of stored floats,
    what is beyond the largest number becomes that where it is to ``saturate``; powers of two are rounded by
    ``mode``: up, down, or to the nearest."""
    if dtype == x.dtype:
        return x
    shape, source = x.shape, x.dtype
    k = Writer(b, "cast")
    names = levels(len(shape))
    a = k.read(x)(names)
    y = k.write(shape, dtype)
    if dtype in CODED_DTYPES:
        k.nest(shape, f"{y(names)} = {coded(a, source, dtype, saturate, mode)}")
    else:
        k.nest(shape, f"{y(names)} = {cast_text(a, source, dtype)}")
    return k.done()[0]


def coded(text: str, source: str, target: str, saturate: bool = True, mode: str = "up") -> str:
    """A value of ``source`` as one of a format of stored floats."""
    kind = "f64" if source == "f64" else "f32"
    number = cast_text(text, source, kind)
    if target == POWERS:
        if saturate:
            number = f"max(min({number}, {2.0**127!r}), {2.0**-127!r})"
        near = f"{kind}({target}({number}))"
        if mode == "up":
            number = f"select({near} < {number}, {near} * 2, {near})"
        elif mode == "down":
            number = f"select({near} > {number}, {near} * 0.5, {near})"
        elif mode != "nearest":
            raise Malformed("round_mode is none of up, down and nearest")
    elif saturate:
        largest = decode(FORMATS[target].largest, target)
        number = f"max(min({number}, {largest!r}), {-largest!r})"
    return f"{target}({number})"


def cast_text(text: str, source: str, target: str) -> str:
    """A value of ``source`` as one of ``target``, by way of f32 where short floats meet other dtypes."""
    if not converts(source, target):
        return f"{target}(f32({text}))"
    if source in FLOAT_DTYPES and target in NARROW_DTYPES:
        return f"{target}(i32({text}))"  # higher digits are lost, as those of a wider integer
    if source in UNCOMPUTED_DTYPES or target in UNCOMPUTED_DTYPES:
        return converted(text, source, target)
    if computed_in(source) != source and target != "f32":
        return cast_text(f"f32({text})", "f32", target)
    if computed_in(target) != target and source != "f32":
        # f64 and large integers would round twice; the second rounding is the one that counts for both.
        return f"{target}(f32({text}))"
    return converted(text, source, target)

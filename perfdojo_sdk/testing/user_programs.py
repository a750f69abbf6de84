"""Programs as users write them: layers with their epilogues, normalisations, losses, sums and products.

Each is a textbook formula at a random small size, in f32 or f64, with or without its usual context: masks,
scales, biases, activations. Random programs (:mod:`~perfdojo_sdk.testing.programs`) have many features that
make moves illegal; these have the patterns that experts look for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random

from perfdojo_sdk.core.program import Program
from perfdojo_sdk.core.text import parse

ROWS, COLUMNS = (1, 2, 3, 5, 8), (1, 2, 4, 7, 8, 16, 19, 33)
#: Activations of a number {c}, as text.
ACTIVATIONS = (
    "{c}",
    "max({c}, 0)",
    "min(max({c}, 0), 6)",
    "max({c}, 0.01 * {c})",
    "select({c} > 0, {c}, exp({c}) - 1)",
    "{c} * 0.5 * (1 + erf({c} * 0.70710678))",
    "0.5 * {c} * (1 + tanh(0.79788456 * ({c} + 0.044715 * {c} * {c} * {c})))",
    "{c} / (1 + exp(-{c}))",
    "1 / (1 + exp(-{c}))",
    "{c} * min(max({c} + 3, 0), 6) / 6",
    "log(1 + exp({c}))",
    "max({c}, 0) + log(1 + exp(-abs({c})))",
    "tanh({c})",
    "{c} / (1 + abs({c}))",
    "select(abs({c}) < 1, 0.5 * {c} * {c}, abs({c}) - 0.5)",
    "max({c}, 0) * max({c}, 0)",
)


def user_program(seed: int) -> Program:
    """One formula, drawn evenly from :data:`FORMULAS`."""
    rng = Random(seed)
    name = rng.choice(list(FORMULAS))
    return formula(name, rng)


def formula(name: str, rng: Random) -> Program:
    writer = _Writer(rng)
    FORMULAS[name](writer)
    return parse(writer.text(name))


class _Writer:
    """The lines of a program; most formulas work on ``r`` rows and ``c`` columns."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.dtype = "f64" if rng.random() < 0.25 else "f32"
        self.r, self.c = rng.choice(ROWS), rng.choice(COLUMNS)
        self.inputs: list[str] = []
        self.outputs: list[str] = []
        self.buffers: list[str] = []
        self.body: list[str] = []

    def text(self, name: str) -> str:
        head = f"kernel {name}({', '.join(self.inputs)}) -> {', '.join(self.outputs)}"
        return "\n".join([head, *self.buffers, "", *self.body, ""])

    def array(self, name: str, *sizes: int, dtype: str = "") -> str:
        shape = ",".join(map(str, sizes))
        self.buffers.append(f"{name} {dtype or self.dtype} [{shape}] heap")
        return name

    def input(self, name: str, *sizes: int, dtype: str = "") -> None:
        self.inputs.append(self.array(name, *sizes, dtype=dtype))

    def output(self, name: str, *sizes: int, dtype: str = "") -> None:
        self.outputs.append(self.array(name, *sizes, dtype=dtype))

    def lines(self, *lines: str) -> None:
        self.body += lines

    def maybe(self, *choices: str) -> str:
        return self.rng.choice(choices)

    def active(self, value: str) -> str:
        return self.rng.choice(ACTIVATIONS).format(c=value)

    def reduce(self, target: str, sign: str, value: str, start: str = "") -> None:
        """Add a reduction over the columns, into one cell for each row."""
        neutral = start or {"+": "0", "*": "1", "max": "-inf", "min": "inf"}[sign]
        self.array(target, self.r)
        self.lines(
            f"{self.r}", f"| {target}[{{0}}] = {neutral}", f"| {self.c} {target}[{{0}}] {sign}= {value}"
        )

    def rows(self, value: str) -> None:
        self.output("y", self.r, self.c)
        self.lines(f"{self.r} {self.c} y[{{0}},{{1}}] = {value}")

    def one_a_row(self, value: str) -> None:
        self.output("y", self.r)
        self.lines(f"{self.r} y[{{0}}] = {value}")


def _linear(w: _Writer) -> None:
    k = w.rng.choice(COLUMNS)
    w.input("x", w.r, k)
    w.input("w", k, w.c)
    bias, late = w.rng.random() < 0.7, w.rng.random() < 0.5
    if bias:
        w.input("b", w.c)
    w.array("s", w.r, w.c)
    w.lines(f"{w.r} {w.c}", f"| s[{{0}},{{1}}] = {'b[{1}]' if bias and not late else 0}")
    w.lines(f"| {k} s[{{0}},{{1}}] += x[{{0}},{{2}}] * w[{{2}},{{1}}]")
    value = w.active("(s[{0},{1}] + b[{1}])" if bias and late else "s[{0},{1}]")
    if w.rng.random() < 0.3:
        w.input("z", w.r, w.c)
        value = f"{value} {w.maybe('+', '*')} z[{{0}},{{1}}]"
    w.rows(value)


def _conv(w: _Writer) -> None:
    channels, filters, size, taps = (w.rng.choice(s) for s in ((1, 3), (2, 5, 8), (4, 9), (1, 3)))
    stride = w.rng.choice((1, 1, 2))
    high, given = 3, (3 - 1) * stride + taps
    wide = (size - 1) * stride + taps
    w.input("x", channels, given, wide)
    w.input("f", filters, channels, taps, taps)
    w.input("b", filters)
    w.array("s", filters, high, size)
    at = f"{{1}}*{stride}+{{4}},{{2}}*{stride}+{{5}}"
    w.lines(f"{filters} {high} {size}", f"| s[{{0}},{{1}},{{2}}] = {w.maybe('0', 'b[{0}]')}")
    w.lines(f"| {channels} {taps} {taps} s[{{0}},{{1}},{{2}}] += x[{{3}},{at}] * f[{{0}},{{3}},{{4}},{{5}}]")
    w.output("y", filters, high, size)
    if w.rng.random() < 0.4:
        w.input("scale", filters)
        value = "(s[{0},{1},{2}] * scale[{0}] + b[{0}])"
    else:
        value = "s[{0},{1},{2}]"
    w.lines(f"{filters} {high} {size} y[{{0}},{{1}},{{2}}] = {w.active(value)}")


def _softmax(w: _Writer) -> None:
    """A softmax of rows that may be masked and scaled; or its logarithm, or a weighted sum by it."""
    w.input("x", w.r, w.c)
    value = w.maybe("x[{0},{1}]", "x[{0},{1}] * 0.125", "x[{0},{1}] / 8")
    mask = w.maybe("", "", "log", "select", "add", "causal")
    if mask in ("log", "select"):
        w.input("keep", w.r, w.c, dtype="bool")
    if mask == "log":
        value = f"{value} + log({w.dtype}(keep[{{0}},{{1}}]))"
    elif mask == "select":
        value = f"select(keep[{{0}},{{1}}], {value}, {w.maybe('-inf', '-10000')})"
    elif mask == "add":
        w.input("z", w.r, w.c)
        value = f"{value} + z[{{0}},{{1}}]"
    elif mask == "causal":
        value = f"select(index({{1}}) <= index({{0}}), {value}, -inf)"
    if mask:
        w.array("t", w.r, w.c)
        w.lines(f"{w.r} {w.c} t[{{0}},{{1}}] = {value}")
        value = "t[{0},{1}]"
    if safe := w.rng.random() < 0.85:
        w.reduce("m", "max", value)
    shifted = f"{value} - m[{{0}}]" if safe else value
    w.array("e", w.r, w.c)
    w.lines(f"{w.r} {w.c} e[{{0}},{{1}}] = exp({shifted})")
    w.reduce("s", "+", "e[{0},{1}]", w.maybe("0", "0", "1e-9"))
    kind = w.maybe("soft", "soft", "log", "lse", "weighted", "reciprocal")
    if kind == "soft":
        w.rows("e[{0},{1}] / s[{0}]")
    elif kind == "reciprocal":
        w.array("q", w.r)
        w.lines(f"{w.r} q[{{0}}] = 1 / s[{{0}}]")
        w.rows("e[{0},{1}] * q[{0}]")
    elif kind == "log":
        w.rows(f"{shifted} - log(s[{{0}}])")
    elif kind == "lse":
        w.one_a_row("log(s[{0}])" + (" + m[{0}]" if safe else ""))
    else:
        width = w.rng.choice(COLUMNS)
        w.input("v", w.c, width)
        w.output("y", w.r, width)
        w.lines(f"{w.r} {width}", "| y[{0},{1}] = 0")
        w.lines(f"| {w.c} y[{{0}},{{1}}] += e[{{0}},{{2}}] / s[{{0}}] * v[{{2}},{{1}}]")


def _normalisation(w: _Writer) -> None:
    """A normalisation: by mean and variance, by the second moment, by the largest magnitude, or to a
    range."""
    w.input("x", w.r, w.c)
    kind = w.maybe("layer", "layer", "moments", "rms", "l2", "largest", "range")
    scaled = w.rng.random() < 0.5
    eps = w.maybe("1e-5", "1e-12", "0")
    if kind in ("layer", "moments"):
        w.reduce("t", "+", "x[{0},{1}]")
        w.array("m", w.r)
        w.lines(f"{w.r} m[{{0}}] = t[{{0}}] / {w.c}")
        if kind == "layer":
            w.reduce("q", "+", "(x[{0},{1}] - m[{0}]) * (x[{0},{1}] - m[{0}])")
            variance = f"q[{{0}}] / {w.c}"
        else:
            w.reduce("q", "+", "x[{0},{1}] * x[{0},{1}]")
            variance = f"max(q[{{0}}] / {w.c} - m[{{0}}] * m[{{0}}], 0)"
        w.array("d", w.r)
        w.lines(f"{w.r} d[{{0}}] = {w.maybe('sqrt({v})', '1 / sqrt({v})').format(v=f'{variance} + {eps}')}")
        divided = "1 /" not in w.body[-1]
        value = f"(x[{{0}},{{1}}] - m[{{0}}]) {'/' if divided else '*'} d[{{0}}]"
    elif kind in ("rms", "l2"):
        w.reduce("q", "+", "x[{0},{1}] * x[{0},{1}]")
        over = f" / {w.c}" if kind == "rms" else ""
        value = f"x[{{0}},{{1}}] / sqrt(q[{{0}}]{over} + {eps})"
    elif kind == "largest":
        w.reduce("q", "max", "abs(x[{0},{1}])")
        value = f"x[{{0}},{{1}}] / (q[{{0}}] + {eps})"
    else:
        w.reduce("q", "max", "x[{0},{1}]")
        w.reduce("p", "min", "x[{0},{1}]")
        value = f"(x[{{0}},{{1}}] - p[{{0}}]) / (q[{{0}}] - p[{{0}}] + {eps})"
    if scaled:
        w.input("g", w.c)
        w.input("b", w.c)
        value = f"{value} * g[{{1}}] + b[{{1}}]"
    w.rows(value)


def _batchnorm(w: _Writer) -> None:
    """A batch normalisation at inference, with given statistics; or folded into a scale and a shift."""
    w.input("x", w.r, w.c)
    for name in ("mean", "var", "g", "b"):
        w.input(name, w.c)
    if w.rng.random() < 0.5:
        w.rows(w.active("((x[{0},{1}] - mean[{1}]) / sqrt(var[{1}] + 1e-5) * g[{1}] + b[{1}])"))
        return
    w.array("a", w.c)
    w.array("h", w.c)
    w.lines(f"{w.c} a[{{0}}] = g[{{0}}] / sqrt(var[{{0}}] + 1e-5)")
    w.lines(f"{w.c} h[{{0}}] = b[{{0}}] - mean[{{0}}] * a[{{0}}]")
    w.rows(w.active("(x[{0},{1}] * a[{1}] + h[{1}])"))


def _statistic(w: _Writer) -> None:
    """A statistic with one number for each row."""
    w.input("x", w.r, w.c)
    x, kind = "x[{0},{1}]", w.maybe("variance", "deviation", "lse", "mean", "geometric", "harmonic", "norm")
    if kind in ("variance", "deviation"):
        w.reduce("t", "+", x, w.maybe("0", "0.5"))
        w.reduce("q", "+", f"({x} - t[{{0}}] / {w.c}) * ({x} - t[{{0}}] / {w.c})")
        value = f"q[{{0}}] / {w.maybe(str(w.c), str(max(w.c - 1, 1)))}"
        w.one_a_row(value if kind == "variance" else f"sqrt({value})")
    elif kind == "lse":
        w.reduce("s", "+", f"exp({x})")
        w.one_a_row("log(s[{0}])")
    elif kind == "mean":
        w.reduce("s", w.maybe("+", "max", "min"), w.active(x))
        w.one_a_row(w.active(f"(s[{{0}}] / {w.c})"))
    elif kind == "geometric":
        w.reduce("s", "+", f"log(abs({x}))")
        w.one_a_row(f"exp(s[{{0}}] / {w.c})")
    elif kind == "harmonic":
        w.reduce("s", "+", f"1 / {x}")
        w.one_a_row(f"{w.c} / s[{{0}}]")
    else:
        w.reduce("s", "+", f"abs({x}) * abs({x}) * abs({x})")
        w.one_a_row("exp(log(s[{0}]) / 3)")


def _product(w: _Writer) -> None:
    w.input("x", w.r, w.c)
    x = "x[{0},{1}]"
    value = w.maybe(x, f"(1 - {x})", f"(1 + {x} * 0.01)", f"abs({x})", f"exp({x})")
    w.reduce("p", "*", value, w.maybe("", "2", "-1e-3"))
    p = "p[{0}]"
    w.one_a_row(w.maybe(p, f"1 - {p}", f"log({p})", f"max({p}, 0)", f"1 / {p}", f"sqrt(abs({p}))"))


def _loss(w: _Writer) -> None:
    w.input("x", w.r, w.c)
    w.input("z", w.r, w.c)
    d = "(x[{0},{1}] - z[{0},{1}])"
    value = w.maybe(
        f"{d} * {d}",
        f"abs({d})",
        f"select(abs({d}) < 1, 0.5 * {d} * {d}, abs({d}) - 0.5)",
        "max(1 - x[{0},{1}] * z[{0},{1}], 0)",
        "max(x[{0},{1}], 0) - x[{0},{1}] * z[{0},{1}] + log(1 + exp(-abs(x[{0},{1}])))",
        "x[{0},{1}] * (log(x[{0},{1}]) - log(z[{0},{1}]))",
        "x[{0},{1}] * z[{0},{1}]",
    )
    w.reduce("s", "+", value)
    if w.rng.random() < 0.4:
        w.one_a_row(f"s[{{0}}] / {w.c}")
        return
    w.output("y", 1)
    w.lines("y[0] = 0", f"{w.r} y[0] += s[{{0}}] * {1 / w.r:.6g}")


def _similarity(w: _Writer) -> None:
    """Similarity of all pairs of rows: cosine, squared distance, or a kernel of it."""
    n = w.rng.choice(ROWS)
    w.input("x", w.r, w.c)
    w.input("z", n, w.c)
    w.array("s", w.r, n)
    w.output("y", w.r, n)
    w.lines(f"{w.r} {n}", "| s[{0},{1}] = 0")
    if w.rng.random() < 0.5:
        w.lines(
            f"| {w.c} s[{{0}},{{1}}] += (x[{{0}},{{2}}] - z[{{1}},{{2}}]) * (x[{{0}},{{2}}] - z[{{1}},{{2}}])"
        )
        value = w.maybe("s[{0},{1}]", "sqrt(s[{0},{1}])", "exp(-0.5 * s[{0},{1}])")
        w.lines(f"{w.r} {n} y[{{0}},{{1}}] = {value}")
        return
    w.lines(f"| {w.c} s[{{0}},{{1}}] += x[{{0}},{{2}}] * z[{{1}},{{2}}]")
    for norm, array, rows in (("p", "x", w.r), ("q", "z", n)):
        w.array(norm, rows)
        w.lines(f"{rows}", f"| {norm}[{{0}}] = 0")
        w.lines(f"| {w.c} {norm}[{{0}}] += {array}[{{0}},{{1}}] * {array}[{{0}},{{1}}]")
    w.lines(f"{w.r} {n} y[{{0}},{{1}}] = s[{{0}},{{1}}] / (sqrt(p[{{0}}]) * sqrt(q[{{1}}]) + 1e-8)")


def _cumulative(w: _Writer) -> None:
    """A cumulative formula along the columns: each value is made of the one before."""
    w.input("x", w.r, w.c)
    w.output("y", w.r, w.c + 1)
    before = "y[{0},{1}]"
    start, value = w.rng.choice(
        (
            ("0", f"{before} + x[{{0}},{{1}}]"),
            ("1", f"{before} * x[{{0}},{{1}}]"),
            ("-inf", f"max({before}, x[{{0}},{{1}}])"),
            ("0", f"0.9 * {before} + 0.1 * x[{{0}},{{1}}]"),
            ("0", f"max({before} + x[{{0}},{{1}}], 0)"),
            ("0", f"tanh({before} + x[{{0}},{{1}}])"),
        )
    )
    w.lines(f"{w.r}", f"| y[{{0}},0] = {start}", f"| {w.c} y[{{0}},{{1}}+1] = {value}")


def _integers(w: _Writer) -> None:
    w.dtype = w.rng.choice(("i32", "i64", "i16", "u8"))
    w.input("x", w.r, w.c)
    kind = w.maybe("sum", "product", "extreme", "count", "dot", "xor")
    if kind == "dot":
        w.inputs.clear()
        w.buffers.clear()
        w.input("x", w.r, w.c, dtype="i8")
        w.input("z", w.c, 4, dtype="i8")
        w.output("y", w.r, 4, dtype="i32")
        w.lines(f"{w.r} 4", "| y[{0},{1}] = 0")
        w.lines(f"| {w.c} y[{{0}},{{1}}] += i32(x[{{0}},{{2}}]) * i32(z[{{2}},{{1}}])")
        return
    sign, value, start = {
        "sum": ("+", "x[{0},{1}]", "0"),
        "product": ("*", "x[{0},{1}]", "1"),
        "extreme": (w.maybe("max", "min"), "x[{0},{1}]", "x[{0},0]"),
        "count": ("+", "select(x[{0},{1}] > 3, 1, 0)", "0"),
        "xor": ("+", "xor(x[{0},{1}], 5) - and(x[{0},{1}], 12)", "0"),
    }[kind]
    w.reduce("s", sign, value, start)
    w.one_a_row(w.maybe("s[{0}]", "max(s[{0}], 3)", "s[{0}] * s[{0}] + 1"))


def _quantised(w: _Writer) -> None:
    w.input("x", w.r, w.c)
    w.output("q", w.r, w.c, dtype="i8")
    w.reduce("m", "max", "abs(x[{0},{1}])")
    w.lines(f"{w.r} {w.c} q[{{0}},{{1}}] = i8(min(max(round(x[{{0}},{{1}}] / (m[{{0}}] / 127)), -127), 127))")
    w.rows(f"{w.dtype}(q[{{0}},{{1}}]) * (m[{{0}}] / 127)")


def _argmax(w: _Writer) -> None:
    w.input("x", w.r, w.c)
    w.array("t", w.r)
    w.output("k", w.r, dtype="i32")
    start = w.maybe("-inf", "x[{0},0]")
    w.lines(f"{w.r}", f"| t[{{0}}] = {start}", "| k[{0}] = 0", f"| {w.c}")
    w.lines("| | k[{0}] = select(x[{0},{1}] > t[{0}], {1}, k[{0}])", "| | t[{0}] = max(t[{0}], x[{0},{1}])")


def _pooled(w: _Writer) -> None:
    size, window = w.rng.choice((3, 7, 16)), w.rng.choice((2, 3))
    w.input("x", w.r, size * window)
    w.array("s", w.r, size)
    w.output("y", w.r, size)
    sign, start = w.rng.choice((("+", "0"), ("max", "-inf"), ("min", "inf"), ("*", "1")))
    w.lines(f"{w.r} {size}", f"| s[{{0}},{{1}}] = {start}")
    w.lines(f"| {window} s[{{0}},{{1}}] {sign}= x[{{0}},{{1}}*{window}+{{2}}]")
    w.lines(f"{w.r} {size} y[{{0}},{{1}}] = {w.active('s[{0},{1}]')}")


def _stencil(w: _Writer) -> None:
    n = w.c + 2
    w.input("x", w.r, n)
    w.rows("0.25 * x[{0},{1}] + 0.5 * x[{0},{1}+1] + 0.25 * x[{0},{1}+2]")
    if w.rng.random() < 0.5:
        w.lines(f"{w.r} {w.c} y[{{0}},{{1}}] += x[{{0}},{{1}}+2] - x[{{0}},{{1}}] if {{1}} >= 1")


def _elementwise(w: _Writer) -> None:
    w.input("x", w.r, w.c)
    w.input("z", w.r, w.c)
    x = w.maybe("x[{0},{1}]", *(f"(x[{{0}},{{1}}] {sign} z[{{0}},{{1}}])" for sign in "*/-"))
    w.rows(w.active(x))


FORMULAS: Mapping[str, Callable[[_Writer], None]] = {
    "linear": _linear,
    "conv": _conv,
    "softmax": _softmax,
    "normalisation": _normalisation,
    "batchnorm": _batchnorm,
    "statistic": _statistic,
    "product": _product,
    "loss": _loss,
    "similarity": _similarity,
    "cumulative": _cumulative,
    "integers": _integers,
    "quantised": _quantised,
    "argmax": _argmax,
    "pooled": _pooled,
    "stencil": _stencil,
    "elementwise": _elementwise,
}

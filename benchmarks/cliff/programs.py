"""The generator: a seed gives a program, its class, and a function of PyTorch tensors that computes the same.

Sizes are those of layers of common models, cut so that a call takes about a millisecond.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

from perfdojo_sdk.core.program import Program
from perfdojo_sdk.core.text import parse

#: (text of a number {c} in the language, function of PyTorch's functional module and a tensor)
ACTIVATIONS: tuple[tuple[str, Callable[[Any, Any], Any]], ...] = (
    ("max({c}, 0)", lambda F, t: F.relu(t)),
    ("min(max({c}, 0), 6)", lambda F, t: F.relu6(t)),
    ("max({c}, 0.01 * {c})", lambda F, t: F.leaky_relu(t, 0.01)),
    ("{c} / (1 + exp(-{c}))", lambda F, t: F.silu(t)),
    ("1 / (1 + exp(-{c}))", lambda F, t: t.sigmoid()),
    ("{c} * min(max({c} + 3, 0), 6) / 6", lambda F, t: F.hardswish(t)),
    ("{c} / (1 + abs({c}))", lambda F, t: F.softsign(t)),
)


@dataclass
class Case:
    """A program and its equal in PyTorch."""

    family: str
    inputs: dict[str, tuple[int, ...]] = field(default_factory=dict)
    outputs: dict[str, tuple[int, ...]] = field(default_factory=dict)
    temporaries: dict[str, tuple[int, ...]] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    positive: frozenset[str] = frozenset()
    """Inputs without negative numbers, such as variances."""
    function: Callable[..., Any] = field(default=lambda F, t: None)
    """Takes PyTorch's functional module and the inputs by name; returns the outputs in their order."""

    @property
    def text(self) -> str:
        arrays = {**self.inputs, **self.temporaries, **self.outputs}
        buffers = [f"{name} f32 [{','.join(map(str, shape))}] heap" for name, shape in arrays.items()]
        head = f"kernel {self.family}({', '.join(self.inputs)}) -> {', '.join(self.outputs)}"
        return "\n".join([head, *buffers, "", *self.lines, ""])

    @property
    def program(self) -> Program:
        return parse(self.text)


@dataclass
class KernelCase(Case):
    """A case whose program is a kernel that something else wrote."""

    given: Program | None = None

    @property
    def program(self) -> Program:
        assert self.given
        return self.given

    @property
    def text(self) -> str:
        return self.program.text


def case(seed: int) -> Case:
    """The case of a seed; families are drawn evenly."""
    rng = Random(seed)
    family = rng.choice(list(FAMILIES))
    made = Case(family)
    FAMILIES[family](made, rng)
    return made


def _at(name: str, *subscripts: object) -> str:
    return f"{name}[{','.join(f'{{{s}}}' if isinstance(s, int) else str(s) for s in subscripts)}]"


def _active(rng: Random) -> tuple[str, Callable[[Any, Any], Any]]:
    return rng.choice(ACTIVATIONS)


# -- contractions --------------------------------------------------------------------------------------


def _contraction(made: Case, rng: Random) -> None:
    """Any permutation of operands and output; a batch or none; scale before, bias and activation behind."""
    batch = rng.choice((0, 0, 1, 4, 12))
    m, n, k = (rng.choice((32, 64, 100, 128, 197, 256, 384)) for _ in range(3))
    sizes = {"m": m, "n": n, "k": k}
    lead = ["b"] if batch else []
    sizes["b"] = batch
    share = bool(batch) and rng.random() < 0.3
    one = [*lead, *rng.choice((["m", "k"], ["k", "m"]))]
    two = [*([] if share else lead), *rng.choice((["k", "n"], ["n", "k"]))]
    out = [*lead, *rng.choice((["m", "n"], ["m", "n"], ["n", "m"]))]
    loops = [*lead, "m", "n", "k"]
    level = {name: position for position, name in enumerate(loops)}
    made.inputs = {"x": tuple(sizes[d] for d in one), "w": tuple(sizes[d] for d in two)}
    made.temporaries = {"s": tuple(sizes[d] for d in out)}
    made.outputs = {"y": tuple(sizes[d] for d in out)}
    access = {
        name: _at(name, *[level[d] for d in dims]) for name, dims in (("x", one), ("w", two), ("s", out))
    }
    head = " ".join(str(sizes[d]) for d in loops[:-1])
    scaled = rng.random() < 0.3
    left = f"(0.125 * {access['x']})" if scaled else access["x"]
    made.lines = [head, f"| {access['s']} = 0", f"| {k} {access['s']} += {left} * {access['w']}"]
    text, active = _active(rng)
    bias = rng.random() < 0.5
    value = access["s"]
    if bias:
        made.inputs["c"] = (n,)
        value = f"({value} + {_at('c', level['n'])})"
    plain = rng.random() < 0.3
    value = value if plain else text.format(c=value)
    made.lines.append(f"{head} {_at('y', *[level[d] for d in out])} = {value}")
    rule = f"{''.join(one)},{''.join(two)}->{''.join(out)}"
    column = "n" if out[-1] == "n" else "n,"

    def function(F: Any, x: Any, w: Any, c: Any = None) -> Any:
        import torch

        t = torch.einsum(rule, 0.125 * x if scaled else x, w)
        if c is not None:
            t = t + (c if column == "n" else c[:, None])
        return t if plain else active(F, t)

    made.function = function


def _two_contractions(made: Case, rng: Random) -> None:
    """A feed-forward layer, or attention without a mask."""
    t, d = rng.choice((64, 128, 197)), rng.choice((64, 128))
    if rng.random() < 0.5:
        h = 4 * d
        made.inputs = {"x": (t, d), "w": (d, h), "v": (h, d)}
        made.temporaries = {"s": (t, h), "a": (t, h)}
        made.outputs = {"y": (t, d)}
        text, active = _active(rng)
        made.lines = [
            f"{t} {h}", "| s[{0},{1}] = 0", f"| {d} s[{{0}},{{1}}] += x[{{0}},{{2}}] * w[{{2}},{{1}}]",
            f"{t} {h} a[{{0}},{{1}}] = {text.format(c='s[{0},{1}]')}",
            f"{t} {d}", "| y[{0},{1}] = 0", f"| {h} y[{{0}},{{1}}] += a[{{0}},{{2}}] * v[{{2}},{{1}}]",
        ]  # fmt: skip
        made.function = lambda F, x, w, v: active(F, x @ w) @ v
        return
    heads = rng.choice((1, 2, 4))
    made.inputs = dict.fromkeys("qkv", (heads, t, d))
    made.temporaries = {
        "s": (heads, t, t),
        "m": (heads, t),
        "e": (heads, t, t),
        "z": (heads, t),
        "p": (heads, t, t),
    }
    made.outputs = {"y": (heads, t, d)}
    scale = d**-0.5
    made.lines = [
        f"{heads} {t} {t}", "| s[{0},{1},{2}] = 0",
        f"| {d} s[{{0}},{{1}},{{2}}] += q[{{0}},{{1}},{{3}}] * k[{{0}},{{2}},{{3}}]",
        f"{heads} {t}", "| m[{0},{1}] = -inf", f"| {t} m[{{0}},{{1}}] max= s[{{0}},{{1}},{{2}}] * {scale!r}",
        f"{heads} {t} {t} e[{{0}},{{1}},{{2}}] = exp(s[{{0}},{{1}},{{2}}] * {scale!r} - m[{{0}},{{1}}])",
        f"{heads} {t}", "| z[{0},{1}] = 0", f"| {t} z[{{0}},{{1}}] += e[{{0}},{{1}},{{2}}]",
        f"{heads} {t} {t} p[{{0}},{{1}},{{2}}] = e[{{0}},{{1}},{{2}}] / z[{{0}},{{1}}]",
        f"{heads} {t} {d}", "| y[{0},{1},{2}] = 0",
        f"| {t} y[{{0}},{{1}},{{2}}] += p[{{0}},{{1}},{{3}}] * v[{{0}},{{3}},{{2}}]",
    ]  # fmt: skip
    made.function = lambda F, q, k, v: F.softmax(q @ k.mT * scale, -1) @ v


# -- convolutions --------------------------------------------------------------------------------------


def _convolution(made: Case, rng: Random) -> None:
    """Stride, padding, dilation, groups, bias and activation; the padding is a condition or a copy."""
    n, c, o = 1, rng.choice((3, 16, 32, 64)), rng.choice((16, 32, 64, 128))
    taps, stride = rng.choice((1, 3, 3, 3, 5)), rng.choice((1, 1, 2))
    dilation = rng.choice((1, 1, 1, 2)) if taps > 1 else 1
    pad = rng.choice((0, dilation * (taps - 1) // 2)) if taps > 1 else 0
    size = rng.choice((14, 28, 56))
    groups = rng.choice((1, 1, 1, 1, 4, c)) if c > 3 and o % c == 0 else 1
    out = (size + 2 * pad - dilation * (taps - 1) - 1) // stride + 1
    inner, each = c // groups, o // groups
    made.inputs = {"x": (n, c, size, size), "f": (o, inner, taps, taps), "b": (o,)}
    made.temporaries = {"s": (n, o, out, out)}
    made.outputs = {"y": (n, o, out, out)}
    copied = pad and rng.random() < 0.3
    lines = made.lines
    source, shift, wide = "x", pad, size
    if copied:
        wide = size + 2 * pad
        made.temporaries = {"p": (n, c, wide, wide), **made.temporaries}
        lines += [f"{n} {c}", f"| {wide} {wide} p[{{0}},{{1}},{{2}},{{3}}] = 0"]
        lines.append(f"| {size} {size} p[{{0}},{{1}},{{2}}+{pad},{{3}}+{pad}] = x[{{0}},{{1}},{{2}},{{3}}]")
        source, shift = "p", 0
    # Levels: n, group, channel of the group, row, column; then channel, tap, tap.
    grouped = groups > 1
    g, base = (1, 2) if grouped else (None, 1)
    channel = f"{{{g}}}*{each}+{{{base}}}" if grouped else f"{{{base}}}"
    row, column, inside, down, right = (base + k for k in range(1, 6))
    deep = f"{{{g}}}*{inner}+{{{inside}}}" if grouped else f"{{{inside}}}"

    def along(at: int, tap: int) -> str:
        first = f"{{{at}}}" if stride == 1 else f"{{{at}}}*{stride}"
        second = f"{{{tap}}}" if dilation == 1 else f"{{{tap}}}*{dilation}"
        return f"{first}+{second}"

    def shifted(at: int, tap: int) -> str:
        return along(at, tap) + (f"-{shift}" if shift else "")

    conditions = []
    if shift:
        last = (out - 1) * stride + (taps - 1) * dilation
        for at, tap in ((row, down), (column, right)):
            conditions.append(f"{along(at, tap)} >= {shift}")
            if last > size - 1 + shift:
                conditions.append(f"{along(at, tap)} <= {size - 1 + shift}")
    guard = f" if {' and '.join(conditions)}" if conditions else ""
    head = f"{n} {groups} {each} {out} {out}" if grouped else f"{n} {o} {out} {out}"
    place = f"[{{0}},{channel},{{{row}}},{{{column}}}]"
    read = f"{source}[{{0}},{deep},{shifted(row, down)},{shifted(column, right)}]"
    tap = f"f[{channel},{{{inside}}},{{{down}}},{{{right}}}]"
    lines += [
        head,
        f"| s{place} = b[{channel}]",
        f"| {inner} {taps} {taps} s{place} += {read} * {tap}{guard}",
    ]
    text, active = _active(rng)
    flat = "[{0},{1},{2},{3}]"
    lines.append(f"{n} {o} {out} {out} y{flat} = {text.format(c='s' + flat)}")
    made.function = lambda F, x, f, b: active(
        F, F.conv2d(x, f, b, stride=stride, padding=pad, dilation=dilation, groups=groups)
    )


def _pooling(made: Case, rng: Random) -> None:
    """A maximum or a mean over windows, padded or not."""
    c, size, taps = rng.choice((16, 64)), rng.choice((28, 56, 112)), rng.choice((2, 3))
    stride, most = rng.choice((1, 2)), rng.random() < 0.6
    pad = 1 if taps == 3 and most and rng.random() < 0.5 else 0
    out = (size + 2 * pad - taps) // stride + 1
    made.inputs, made.outputs = {"x": (1, c, size, size)}, {"y": (1, c, out, out)}
    at = "{2}+{4}" if stride == 1 else f"{{2}}*{stride}+{{4}}"
    across = at.replace("2}", "3}", 1).replace("4}", "5}")
    conditions = []
    if pad:
        for each in (at, across):
            conditions.append(f"{each} >= 1")
            if (out - 1) * stride + taps - 1 > size:
                conditions.append(f"{each} <= {size}")
    shift = f"-{pad}" if pad else ""
    guard = f" if {' and '.join(conditions)}" if conditions else ""
    read = f"x[{{0}},{{1}},{at}{shift},{across}{shift}]"
    place = "[{0},{1},{2},{3}]"
    start, sign = ("-inf", "max=") if most else ("0", "+=")
    if most:
        made.lines = [
            f"1 {c} {out} {out}",
            f"| y{place} = {start}",
            f"| {taps} {taps} y{place} {sign} {read}{guard}",
        ]
        made.function = lambda F, x: F.max_pool2d(x, taps, stride, pad)
    else:
        made.temporaries = {"s": (1, c, out, out)}
        made.lines = [f"1 {c} {out} {out}", f"| s{place} = 0", f"| {taps} {taps} s{place} += {read}"]
        made.lines.append(f"1 {c} {out} {out} y{place} = s{place} / {taps * taps}")
        made.function = lambda F, x: F.avg_pool2d(x, taps, stride)


# -- reductions, norms, losses -------------------------------------------------------------------------


def _reduction(made: Case, rng: Random) -> None:
    """A sum, mean, maximum or sum of squares over any axes of an array of two to four dimensions."""
    shape = rng.choice(
        ((1024, 1024), (4096, 256), (64, 4096), (32, 64, 256), (8, 64, 28, 28), (16, 12, 64, 64))
    )
    axes = [axis for axis in range(len(shape)) if rng.random() < 0.5] or [rng.randrange(len(shape))]
    axes = axes[:-1] if len(axes) == len(shape) else axes
    kept = [axis for axis in range(len(shape)) if axis not in axes]
    way = rng.choice(("sum", "mean", "max", "squares"))
    order = [*kept, *axes]
    level = {axis: position for position, axis in enumerate(order)}
    made.inputs, small = {"x": shape}, tuple(shape[axis] for axis in kept)
    made.outputs = {"y": small}
    read = _at("x", *[level[axis] for axis in range(len(shape))])
    target = "s" if way == "mean" else "y"
    place = f"[{','.join(f'{{{k}}}' for k in range(len(kept)))}]"
    head, inside = " ".join(map(str, small)), " ".join(str(shape[axis]) for axis in axes)
    start, sign = ("-inf", "max=") if way == "max" else ("0", "+=")
    value = f"{read} * {read}" if way == "squares" else read
    made.lines = [head, f"| {target}{place} = {start}", f"| {inside} {target}{place} {sign} {value}"]
    count = 1
    for axis in axes:
        count *= shape[axis]
    if way == "mean":
        made.temporaries = {"s": small}
        made.lines.append(f"{head} y{place} = s{place} / {count}")
    ways: Mapping[str, Callable[[Any], Any]] = {
        "sum": lambda x: x.sum(axes),
        "mean": lambda x: x.mean(axes),
        "max": lambda x: x.amax(axes),
        "squares": lambda x: (x * x).sum(axes),
    }
    made.function = lambda F, x: ways[way](x)


def _norm(made: Case, rng: Random) -> None:
    """Layer norm, RMS norm or group norm, with a residual before it or none."""
    r, c = rng.choice((64, 128, 197, 512)), rng.choice((256, 768, 1000, 1024))
    residual, rms = rng.random() < 0.5, rng.random() < 0.4
    made.inputs = {
        "x": (r, c),
        **({"z": (r, c)} if residual else {}),
        "w": (c,),
        **({} if rms else {"b": (c,)}),
    }
    made.temporaries = {
        "a": (r, c),
        "t": (r,),
        "q": (r,),
        "s": (r,),
        **({} if rms else {"u": (r,), "d": (r, c)}),
    }
    made.outputs = {"y": (r, c)}
    value = "x[{0},{1}] + z[{0},{1}]" if residual else "x[{0},{1}] * 1"
    lines = [f"{r} {c} a[{{0}},{{1}}] = {value}"]
    if rms:
        del made.temporaries["t"]
        lines += [f"{r}", "| q[{0}] = 0", f"| {c} q[{{0}}] += a[{{0}},{{1}}] * a[{{0}},{{1}}]"]
        lines += [f"{r} s[{{0}}] = sqrt(q[{{0}}] / {c} + 1e-06)"]
        lines += [f"{r} {c} y[{{0}},{{1}}] = a[{{0}},{{1}}] / s[{{0}}] * w[{{1}}]"]
        made.function = lambda F, x, w, z=None: F.rms_norm(x if z is None else x + z, (c,), w, 1e-6)
    else:
        lines += [
            f"{r}",
            "| t[{0}] = 0",
            f"| {c} t[{{0}}] += a[{{0}},{{1}}]",
            f"{r} u[{{0}}] = t[{{0}}] / {c}",
        ]
        lines += [f"{r} {c} d[{{0}},{{1}}] = a[{{0}},{{1}}] - u[{{0}}]"]
        lines += [f"{r}", "| q[{0}] = 0", f"| {c} q[{{0}}] += d[{{0}},{{1}}] * d[{{0}},{{1}}]"]
        lines += [f"{r} s[{{0}}] = sqrt(q[{{0}}] / {c} + 1e-05)"]
        lines += [f"{r} {c} y[{{0}},{{1}}] = d[{{0}},{{1}}] / s[{{0}}] * w[{{1}}] + b[{{1}}]"]
        made.function = lambda F, x, w, b, z=None: F.layer_norm(x if z is None else x + z, (c,), w, b, 1e-5)
    made.lines = lines


def _softmax(made: Case, rng: Random) -> None:
    """A softmax over the last or the first axis, scaled, masked by a sum or not; or its logarithm."""
    r, c = rng.choice((64, 128, 512)), rng.choice((128, 197, 1000, 1024))
    last, log = rng.random() < 0.7, rng.random() < 0.3
    biased = rng.random() < 0.4
    made.inputs = {"x": (r, c), **({"z": (r, c)} if biased else {})}
    made.outputs = {"y": (r, c)}
    kept, reduced = (r, c) if last else (c, r)
    at = "[{0},{1}]" if last else "[{1},{0}]"
    made.temporaries = {"g": (r, c), "m": (kept,), "e": (r, c), "t": (kept,)}
    value = "x[{0},{1}] * 0.125 + z[{0},{1}]" if biased else "x[{0},{1}] * 0.125"
    made.lines = [
        f"{r} {c} g[{{0}},{{1}}] = {value}",
        f"{kept}", "| m[{0}] = -inf", f"| {reduced} m[{{0}}] max= g{at}",
        f"{kept} {reduced} e{at} = exp(g{at} - m[{{0}}])",
        f"{kept}", "| t[{0}] = 0", f"| {reduced} t[{{0}}] += e{at}",
    ]  # fmt: skip
    final = f"g{at} - m[{{0}}] - log(t[{{0}}])" if log else f"e{at} / t[{{0}}]"
    made.lines.append(f"{kept} {reduced} y{at} = {final}")
    axis = 1 if last else 0

    def function(F: Any, x: Any, z: Any = None) -> Any:
        g = x * 0.125 if z is None else x * 0.125 + z
        return F.log_softmax(g, axis) if log else F.softmax(g, axis)

    made.function = function


def _loss(made: Case, rng: Random) -> None:
    """The mean of squared, absolute or Huber differences; cosine similarity of rows."""
    r, c = rng.choice((64, 256, 1024)), rng.choice((128, 768, 1000))
    made.inputs = {"x": (r, c), "z": (r, c)}
    d = "(x[{0},{1}] - z[{0},{1}])"
    way = rng.choice(("squared", "absolute", "huber", "cosine"))
    if way == "cosine":
        made.temporaries, made.outputs = {"p": (r,), "q": (r,), "t": (r,)}, {"y": (r,)}
        for name, value in (
            ("p", "x[{0},{1}] * z[{0},{1}]"),
            ("q", "x[{0},{1}] * x[{0},{1}]"),
            ("t", "z[{0},{1}] * z[{0},{1}]"),
        ):
            made.lines += [f"{r}", f"| {name}[{{0}}] = 0", f"| {c} {name}[{{0}}] += {value}"]
        made.lines.append(f"{r} y[{{0}}] = p[{{0}}] / sqrt(q[{{0}}] * t[{{0}}])")
        made.function = lambda F, x, z: F.cosine_similarity(x, z, 1)
        return
    value = {
        "squared": f"{d} * {d}",
        "absolute": f"abs{d}",
        "huber": f"select(abs{d} < 1, 0.5 * {d} * {d}, abs{d} - 0.5)",
    }[way]
    made.temporaries, made.outputs = {"s": (1,)}, {"y": (1,)}
    made.lines = ["s[0] = 0", f"{r} {c} s[0] += {value}", f"y[0] = s[0] / {r * c}"]
    functions: Mapping[str, Callable[[Any, Any, Any], Any]] = {
        "squared": lambda F, x, z: F.mse_loss(x, z)[None],
        "absolute": lambda F, x, z: F.l1_loss(x, z)[None],
        "huber": lambda F, x, z: F.smooth_l1_loss(x, z)[None],
    }
    made.function = functions[way]


# -- scans, transposes, chains -------------------------------------------------------------------------


def _scan(made: Case, rng: Random) -> None:
    """A cumulative sum along the last or the first axis."""
    r, c = rng.choice((64, 128, 512)), rng.choice((256, 768, 1024))
    last = rng.random() < 0.6
    made.inputs, made.outputs = {"x": (r, c)}, {"y": (r, c)}
    if last:
        made.lines = [
            f"{r}",
            "| y[{0},0] = x[{0},0]",
            f"| {c - 1} y[{{0}},{{1}}+1] = y[{{0}},{{1}}] + x[{{0}},{{1}}+1]",
        ]
    else:
        made.lines = [
            f"{c} y[0,{{0}}] = x[0,{{0}}]",
            f"{r - 1} {c} y[{{0}}+1,{{1}}] = y[{{0}},{{1}}] + x[{{0}}+1,{{1}}]",
        ]
    axis = 1 if last else 0
    made.function = lambda F, x: x.cumsum(axis)


def _permutation(made: Case, rng: Random) -> None:
    """A permuted copy, alone or with a scale and a bias."""
    shape = rng.choice(
        ((512, 768), (1000, 700), (8, 128, 64), (2, 64, 56, 56), (2, 56, 56, 64), (4, 128, 12, 64))
    )
    order = list(range(len(shape)))
    while order == sorted(order):
        rng.shuffle(order)
    permuted = rng.random() < 0.5
    made.inputs, made.outputs = {"x": shape}, {"y": tuple(shape[axis] for axis in order)}
    level = {axis: position for position, axis in enumerate(order)}
    read = _at("x", *[level[axis] for axis in range(len(shape))])
    value = f"{read} * 0.5 + 1" if permuted else read
    sizes, place = (
        " ".join(str(shape[axis]) for axis in order),
        ",".join(f"{{{k}}}" for k in range(len(order))),
    )
    made.lines = [f"{sizes} y[{place}] = {value}"]
    made.function = lambda F, x: x.permute(order) * 0.5 + 1 if permuted else x.permute(order).contiguous()


def _chain(made: Case, rng: Random) -> None:
    """Three to ten element-wise operations, some with a vector or a second array."""
    r, c = rng.choice((128, 512, 1024)), rng.choice((256, 768, 1000, 3072))
    made.inputs, made.outputs = {"x": (r, c)}, {"y": (r, c)}
    steps: list[Callable[[Any, Any, Mapping[str, Any]], Any]] = []
    last = "x"
    count = rng.randrange(3, 11)
    for number in range(count):
        name = "y" if number == count - 1 else f"t{number}"
        if name != "y":
            made.temporaries[name] = (r, c)
        element, way = (
            f"{last}[{{0}},{{1}}]",
            rng.choice(("active", "active", "scale", "vector", "array", "column")),
        )
        if way == "active":
            text, active = _active(rng)
            value = text.format(c=element)
            steps.append(lambda F, t, more, active=active: active(F, t))  # type: ignore[misc]
        elif way == "scale":
            value = f"{element} * 1.5 - 0.25"
            steps.append(lambda F, t, more: t * 1.5 - 0.25)
        else:
            other = f"a{number}"
            made.inputs[other] = {"vector": (c,), "array": (r, c), "column": (r, 1)}[way]
            place = {"vector": "[{1}]", "array": "[{0},{1}]", "column": "[{0},0]"}[way]
            sign = rng.choice("+*")
            value = f"{element} {sign} {other}{place}"
            if sign == "+":
                steps.append(lambda F, t, more, other=other: t + more[other])  # type: ignore[misc]
            else:
                steps.append(lambda F, t, more, other=other: t * more[other])  # type: ignore[misc]
        made.lines.append(f"{r} {c} {name}[{{0}},{{1}}] = {value}")
        last = name

    def function(F: Any, x: Any, **more: Any) -> Any:
        for step in steps:
            x = step(F, x, more)
        return x

    made.function = function


FAMILIES: Mapping[str, Callable[[Case, Random], None]] = {
    "contraction": _contraction,
    "two_contractions": _two_contractions,
    "convolution": _convolution,
    "pooling": _pooling,
    "reduction": _reduction,
    "norm": _norm,
    "softmax": _softmax,
    "loss": _loss,
    "scan": _scan,
    "permutation": _permutation,
    "chain": _chain,
}

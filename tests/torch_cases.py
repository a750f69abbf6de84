"""Functions of PyTorch that the front end takes whole, by family: name -> the function and its inputs.

Every function is one that must have rules for all of it; the interpreter's results stand beside PyTorch's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

Case = tuple[Callable[..., Any], tuple[Any, ...]]
aten = torch.ops.aten
_draw = torch.Generator().manual_seed(0)


def f(*shape: int) -> torch.Tensor:
    """Normal numbers."""
    return torch.randn(shape, generator=_draw)


def p(*shape: int) -> torch.Tensor:
    """Numbers from 0.1 to 0.9."""
    return torch.rand(shape, generator=_draw) * 0.8 + 0.1


def i(high: int, *shape: int) -> torch.Tensor:
    """Integers from 0 on."""
    return torch.randint(0, high, shape, generator=_draw)


def _unary(names: str, given: torch.Tensor, module: Any = torch) -> dict[str, Case]:
    return {name: (getattr(module, name), (given,)) for name in names.split()}


def _gru(x: torch.Tensor, *weights: torch.Tensor) -> Any:
    return torch.gru(x, torch.zeros(2, 2, 4), list(weights), True, 1, 0.0, False, True, False)


def _lstm(x: torch.Tensor, *weights: torch.Tensor) -> Any:
    start = (torch.ones(2, 2, 4), torch.zeros(2, 2, 4))
    return torch.lstm(x, start, list(weights), True, 2, 0.0, False, False, True)


def _weights(gates: int, *sizes: int) -> tuple[torch.Tensor, ...]:
    return tuple(
        w for size in sizes for w in (f(gates * 4, size), f(gates * 4, 4), f(gates * 4), f(gates * 4))
    )


def _changed(x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    row = y[1]
    y[:, 0] = 2.0
    y[0:1, 1:3] += 1
    row.mul_(3)
    y.view(-1)[0:2].relu_()
    y.chunk(2, 1)[1].neg_()
    return y + row.sum()


X, IMAGE = f(3, 4), f(2, 4, 6, 5)
NAN, INF = float("nan"), float("inf")
#: Numbers at the edges of functions, of both signs.
EDGES = torch.tensor([0.0, -0.0, 1.0, -2.5, INF, -INF, NAN, 3e38, -1e-40])
#: Ties, infinities and NaN in rows.
TIES = torch.tensor(
    [[2.0, 2.0, -1.0, 2.0], [-INF, -INF, 3.0, INF], [1.0, NAN, 5.0, NAN], [-0.0, 0.0, NAN, 7.0]]
)
WAYS = ("sum", "prod", "mean", "amax", "amin")
FAMILIES: dict[str, dict[str, Case]] = {
    "functions": {
        **_unary(
            "abs neg exp exp2 expm1 sin cos tan asinh atan sinh cosh tanh erf erfc floor ceil round "
            "trunc frac sign sigmoid square relu reciprocal",
            X,
        ),
        **_unary("log log2 log10 log1p sqrt rsqrt asin acos atanh logit", p(3, 4)),
        **_unary(
            "relu6 silu mish hardswish hardsigmoid logsigmoid selu elu celu softplus softsign tanhshrink "
            "hardshrink softshrink leaky_relu gelu hardtanh rrelu",
            f(3, 4) * 3,
            F,
        ),
        "gelu tanh": (lambda x: F.gelu(x, approximate="tanh"), (X,)),
        "softplus beta": (lambda x: F.softplus(x, 2.0, 1.0), (X,)),
        "elu alpha": (lambda x: F.elu(x, 0.5), (X,)),
        "threshold": (lambda x: F.threshold(x, 0.1, 20.0), (X,)),
        "glu": (lambda x: F.glu(x, 1), (X,)),
        "prelu": (F.prelu, (IMAGE, p(4))),
        "clamp": (lambda x: (x.clamp(-0.5, 0.5), x.clamp(min=0.1), x.clamp_max(0.2), x.clip(max=1)), (X,)),
        "tests": (
            lambda x: (x.isnan(), x.isinf(), x.isfinite()),
            (torch.tensor([1.0, float("inf"), float("nan")]),),
        ),
        "nan_to_num": (torch.nan_to_num, (torch.tensor([1.0, float("inf"), float("nan"), -float("inf")]),)),
    },
    "arithmetic": {
        "sums": (
            lambda a, b: (a + b, a - b, a * b, a / b, 2 - a, 3 / b, a + 1, torch.add(a, b, alpha=0.5)),
            (X, f(4)),
        ),
        "integers": (
            lambda a, b: (
                a + b,
                a // b,
                a % b,
                a / b,
                a * 2 + 1,
                a == b,
                a < 2,
                torch.div(a, b, rounding_mode="trunc"),
            ),
            (i(9, 3, 4) - 4, i(4, 4) + 1),
        ),
        "remainders": (
            lambda a, b, n: (
                a.bfloat16() % 0.3,
                a % b,
                torch.fmod(a, b),
                a % -0.75,
                torch.fmod(a, 1.5),
                n % -3,
                torch.fmod(n, 3),
            ),
            (f(3, 4) * 5, torch.tensor([0.7, -0.4, 3.0, 0.0]), i(9, 3, 4) - 4),
        ),
        "shifts": (
            lambda a, b: (
                a << b,
                a >> b,
                a << 3,
                a >> 1,
                torch.bitwise_left_shift(a, b),
                torch.bitwise_right_shift(a, 2),
                a.byte() >> 2,
                a.to(torch.int8) << b.to(torch.int8),
            ),
            (i(400, 3, 4) - 200, torch.tensor([0, 3, 63, 64])),
        ),
        "powers of integers": (
            lambda a, b: (a**b, a**5, 3**b, a.to(torch.int8) ** 7, a**7.0),
            (i(7, 3, 4) - 3, torch.tensor([0, 1, 6, 9])),
        ),
        "mixed": (
            lambda a, n: (a + n, a * (n > 1), n.float() - a, a > n, (n * 0.5), n.to(torch.int32)),
            (X, i(4, 3, 4)),
        ),
        "powers": (lambda a, b: (a**2, a**3, b**0.5, b**-1, b**1.7, 2**a, torch.pow(b, a)), (X, p(3, 4))),
        "extrema": (
            lambda a, b: (
                torch.maximum(a, b),
                torch.minimum(a, b),
                torch.max(a, b),
                torch.fmax(a, b),
                torch.fmin(a, b),
            ),
            (X, f(3, 1)),
        ),
        "logic": (
            lambda a, b: (
                a & b,
                a | b,
                a ^ b,
                ~a,
                torch.logical_and(a, b),
                torch.logical_not(a),
                torch.logical_or(a, b),
            ),
            (X > 0, f(3, 4) > 0),
        ),
        "choices": (
            lambda a, m: (
                torch.where(m, a, -a),
                torch.where(m, a, 0.5),
                a.masked_fill(m, -float("inf")),
                torch.where(m, 1.0, a),
            ),
            (X, f(3, 4) > 0),
        ),
        "combined": (
            lambda a, b, c: (
                torch.lerp(a, b, 0.3),
                torch.addcmul(a, b, c, value=0.5),
                torch.addcdiv(a, b, c),
                F.dropout(a, 0.5, False),
            ),
            (X, f(3, 4), p(3, 4)),
        ),
        "decomposed": (
            lambda a, b: (
                torch.xlogy(a, b),
                torch.addr(a, b[:, 0], b[0]),
                torch.heaviside(a, b),
                torch.logaddexp(a, b),
                torch.trace(a),
            ),
            (X, p(3, 4)),
        ),
    },
    "signs and angles": {
        "at edges": (
            lambda a, b: (
                torch.atan2(a, b),
                1 / torch.atan2(a, b),
                torch.copysign(a, b),
                1 / torch.copysign(a * 0, b),
                torch.copysign(a, -0.0),
                torch.copysign(a, 2),
                torch.signbit(a[:6]),
                torch.hypot(a, b),
                torch.arctan2(a.double(), b.double()),
                torch.angle(a),
            ),
            (EDGES[:, None], EDGES[[0, 1, 2, 3, 4, 5, 7, 8]]),
        ),
        "of other dtypes": (
            lambda n, m, h, d, s: (
                torch.atan2(n, n.flip(1)),
                torch.atan2(m, n),
                torch.copysign(n, -n),
                torch.copysign(m, n - 2),
                torch.signbit(n),
                torch.signbit(m),
                torch.angle(n),
                torch.angle(m),
                torch.atan2(h, h.flip(1)),
                torch.copysign(d, s),
                torch.atan2(s, s),
                torch.hypot(d, d.flip(0)),
                torch.copysign(d[:0], s),
            ),
            (i(9, 3, 4) - 4, X > 0, f(3, 4).bfloat16(), f(3, 4).double(), torch.tensor(-2.0)),
        ),
        "quotients": (
            lambda a, b, n, m: (
                torch.div(a, b, rounding_mode="floor"),
                torch.div(a, b, rounding_mode="trunc"),
                1 / torch.div(a, b, rounding_mode="floor"),
                torch.floor_divide(a.double(), b.double()),
                a // 0.1,
                a // -0.3,
                a[:5] // 0.0,
                torch.rsub(a, b, alpha=3),
                torch.rsub(n, 2, alpha=3),
                m + m.flip(0),
                torch.round(a * 1.2345, decimals=2),
                torch.round(a * 100, decimals=-1),
                torch.round(a, decimals=0),
            ),
            (
                torch.tensor([[0.0], [-0.0], [1.0], [-2.5], [0.9], [-7.3], [INF]]),
                torch.tensor([0.1, -0.3, 2.5, INF, -INF, NAN, 0.0, -0.0]),
                i(9, 3, 4) - 4,
                X > 0,
            ),
        ),
    },
    "combined": {
        **{
            f"{way}, {'with' if own else 'without'} its own": (
                lambda x, n, y, d, k, e, o, way=way, own=own: (
                    x.scatter_reduce(0, n, y, way, include_self=own),
                    x.scatter_reduce(1, n[:2, :2] % 4, y, way, include_self=own),
                    d.scatter_reduce(0, n, y.double(), way, include_self=own),
                    k.scatter_reduce(0, n, k.flip(0), way, include_self=own),
                    e.scatter_reduce(0, o[:0], e[:0], way, include_self=own),
                    x[0, 0].scatter_reduce(0, o[1], y[0, 0], way, include_self=own),
                    *([] if way == "sum" else [x.index_reduce(0, o, y[:3], way, include_self=own)]),
                    *([] if way == "sum" else [k.index_reduce(1, o[:1], k[:, :1], way, include_self=own)]),
                ),
                (TIES, i(4, 4, 4), f(4, 4), f(4, 4).double(), i(9, 4, 4) - 4, f(3), torch.tensor([3, 0, 3])),
            )
            for way in WAYS
            for own in (True, False)
        },
        "counts that wrap": (
            lambda k, o, n: [k.scatter_reduce(0, n, o, "mean", include_self=own) for own in (True, False)],
            (
                torch.zeros(2, dtype=torch.int8),
                torch.ones(130, dtype=torch.int8),
                torch.zeros(130, dtype=torch.int64),
            ),
        ),
        "truth": (
            lambda m, n: [
                m.scatter_reduce(0, n, ~m, way, include_self=own)
                for way in ("amax", "amin")
                for own in (True, False)
            ],
            (X > 0, i(3, 3, 4)),
        ),
        "with a factor": (
            lambda x, t, n: (x.index_add(0, t, x, alpha=0.5), n.index_add(0, t, n, alpha=-2)),
            (X, torch.tensor([2, 0, 2]), i(9, 3, 4)),
        ),
        "by a mask": (
            lambda x, m, y, n, e: (
                x.masked_scatter(m, y),
                x.masked_scatter(m[0], y),
                x[0].masked_scatter(m, y),
                n.masked_scatter(m, n.flip(0)),
                m.masked_scatter(m, ~m),
                x.masked_scatter(m & ~m, e),
                e.masked_scatter(e > 0, y),
                x[0, 0].masked_scatter(m[0, 0], y),
            ),
            (X, f(3, 4) > 0, f(5, 4), i(9, 3, 4), f(0)),
        ),
        "bags": (
            lambda n, w, p, o, z: (
                *[
                    F.embedding_bag(n, table, mode=mode)
                    for mode in ("sum", "mean", "max")
                    for table in (w, w.double())
                ],
                *[
                    F.embedding_bag(n.view(-1), w, offsets, mode=mode)
                    for mode in ("sum", "mean", "max")
                    for offsets in (o, torch.tensor([0, 3, 3, 8]), torch.tensor([0, 6]))
                ],
                F.embedding_bag(n.int(), w, mode="sum", per_sample_weights=p),
                F.embedding_bag(n, w, mode="sum", padding_idx=1),
                F.embedding_bag(
                    n, w, mode="sum", padding_idx=2, per_sample_weights=torch.where(n == 2, INF, p)
                ),
                F.embedding_bag(n.view(-1), w, o, mode="mean", padding_idx=-4),
                F.embedding_bag(
                    n.view(-1), w, torch.tensor([0, 3, 10]), mode="sum", include_last_offset=True
                ),
                F.embedding_bag(n.view(-1), w, z, mode="mean", include_last_offset=True),
                F.embedding_bag(n.view(-1)[:0], w, o * 0, mode="mean"),
                aten._embedding_bag(w, n.view(-1), o)[0],
                aten._embedding_bag_forward_only(w, n.view(-1), o, False, 1)[0],
            ),
            (
                i(5, 4, 3),
                torch.cat([torch.tensor([[NAN, 1.0, NAN], [2.0, NAN, NAN]]), f(3, 3)]),
                p(4, 3),
                torch.tensor([0, 2, 2, 7, 12]),
                torch.tensor([0, 2, 11]),
            ),
        ),
        "in order": (
            lambda s, x, e, n: (
                torch.bucketize(x, s),
                torch.bucketize(x, s, right=True, out_int32=True),
                torch.bucketize(0.5, s),
                torch.searchsorted(s, e),
                torch.searchsorted(e[:, :3].sort(1)[0], e[:, 3:].clone(), side="right"),
                torch.searchsorted(n[0].sort()[0], n, right=True),
                torch.bucketize(x, s[:0]),
            ),
            (
                torch.tensor([-1.0, 0.5, 0.5, 2.0]),
                torch.tensor([[0.5, NAN, -INF], [2.0, 2.1, 0.0]]),
                f(3, 4),
                i(9, 3, 4),
            ),
        ),
        "picked across": (
            lambda x, a, b, v: (
                x[a, :, b],
                x[:, a, b],
                x[:, a],
                x[:, :, a, b],
                x[a[:, None], :, :, b],
                x.index_put((a, torch.tensor([0, 1])), v[:, None]),
                aten.index_put(x, [None, a, b], v),
                aten.index_put(x, [a, None, b], v[:, None, :], True),
                aten.index_put(x, [None, None, a, b], v[0, 0]),
            ),
            (f(2, 3, 4, 5), torch.tensor([1, 0]), torch.tensor([1, 1]) * 2, f(2, 5)),
        ),
    },
    "products": {
        "matmul": (
            lambda a, b, c, v: (
                a @ b,
                c @ b,
                c @ c.transpose(1, 2),
                a @ v,
                v @ b,
                a.T.mm(a),
                v.dot(v),
                c.bmm(c.mT),
            ),
            (X, f(4, 5), f(2, 3, 4), f(4)),
        ),
        "linear": (
            lambda x, w, b: (F.linear(x, w, b), F.linear(x, w), F.linear(x[0], w, b)),
            (f(2, 3, 4), f(5, 4), f(5)),
        ),
        "sums": (
            lambda m, a, b, t, v: (
                torch.addmm(m, a, b, beta=0.5, alpha=2),
                torch.baddbmm(t, t, t),
                torch.addmv(v, t[0], v),
                torch.outer(v, v),
                torch.addbmm(t[0], t, t),
            ),
            (f(3, 5), X, f(4, 5), f(2, 4, 4), f(4)),
        ),
        "einsum": (
            lambda a, b, c: (
                torch.einsum("bij,bjk->bik", a, b),
                torch.einsum("bij,bjk,bk->i", a, b, c),
                torch.einsum("bij->j", a),
                torch.einsum("...ij,...jk", a, b),
                torch.tensordot(a, b, ([2, 0], [1, 0])),
            ),
            (f(2, 3, 4), f(2, 4, 3), f(2, 3)),
        ),
        "bilinear": (F.bilinear, (f(3, 4), f(3, 2), f(5, 4, 2), f(5))),
        "cdist": (
            lambda a, b: (
                torch.cdist(a, b, compute_mode="donot_use_mm_for_euclid_dist"),
                *[torch.cdist(a, b, order) for order in (0.0, 0.5, 1.0, 3.0, INF)],
                *[torch.cdist(a[..., :0], b[:, :0], order) for order in (1.0, 2.0, INF)],
            ),
            (X, f(5, 4)),
        ),
        "determinants": (
            lambda a, b: (
                torch.linalg.det(a),
                torch.det(b),
                torch.det(a[0].double()),
                torch.det(a[:, :0, :0]),
            ),
            (f(2, 4, 4), torch.tensor([[0.0, 2.0], [3.0, 1.0]])),
        ),
        "attention": (
            lambda q, k, m, b: (
                F.scaled_dot_product_attention(q, k, k),
                F.scaled_dot_product_attention(q, q, q, is_causal=True),
                F.scaled_dot_product_attention(q, k, k, attn_mask=m),
                F.scaled_dot_product_attention(q, k, k, attn_mask=b),
                F.scaled_dot_product_attention(q[0], q[0], q[0], scale=0.3),
            ),
            (f(1, 2, 3, 4), f(1, 2, 5, 4), f(3, 5), torch.ones(3, 5, dtype=torch.bool).tril(2)),
        ),
    },
    "convolutions": {
        "1d": (
            lambda x, w, b, d: (
                F.conv1d(x, w, b),
                F.conv1d(x, w, b, 2, 1, 2),
                F.conv1d(x, w, padding="same"),
                F.conv1d(x[0], w),
                F.conv1d(x, d, groups=4),
            ),
            (f(2, 4, 9), f(3, 4, 3), f(3), f(4, 1, 2)),
        ),
        "2d": (
            lambda x, w, b, g: (
                F.conv2d(x, w, b, padding=1),
                F.conv2d(x, w, b, (2, 1), (0, 2), (1, 2)),
                F.conv2d(x, g, groups=2),
            ),
            (f(1, 4, 6, 5), f(3, 4, 3, 2), f(3), f(6, 2, 2, 2)),
        ),
        "3d": (lambda x, w, b: F.conv3d(x, w, b, 2, 1), (f(1, 2, 4, 4, 3), f(3, 2, 2, 3, 2), f(3))),
        "transposed": (
            lambda x, w, b, g, y, v: (
                F.conv_transpose1d(x, w, b, 2, 1, 1),
                F.conv_transpose1d(x, g, groups=2),
                F.conv_transpose1d(x, w, stride=3, dilation=2),
                F.conv_transpose2d(y, v, None, (2, 1), (1, 0), (1, 0)),
            ),
            (f(2, 4, 5), f(4, 3, 3), f(3), f(4, 2, 2), f(1, 2, 3, 4), f(2, 3, 2, 3)),
        ),
        "transposed 3d": (
            lambda y, v: F.conv_transpose3d(y, v, stride=2),
            (f(1, 2, 2, 3, 2), f(2, 2, 2, 2, 3)),
        ),
        "max": (
            lambda x, v: (
                F.max_pool2d(x, 2),
                F.max_pool2d(x, 3, 2, 1),
                F.max_pool2d(x, 2, 1, dilation=2, ceil_mode=True),
                F.max_pool1d(x[0], 2),
                F.max_pool3d(v, 2),
                F.max_pool2d(x, 5, 3, 2),
                F.max_pool1d(x[0], 5, 3, 2),
                F.max_pool3d(v, 3, 2, 1, ceil_mode=True),
            ),
            (IMAGE, f(1, 2, 4, 4, 4)),
        ),
        "max with places": (lambda x: F.max_pool2d(x, 2, return_indices=True), (IMAGE,)),
        "mean": (
            lambda x, v: (
                F.avg_pool2d(x, 2),
                F.avg_pool2d(x, 3, 2, 1),
                F.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
                F.avg_pool2d(x, 2, ceil_mode=True),
                F.avg_pool1d(x[0], 2),
                F.avg_pool3d(v, 2, 1),
                F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False),
                F.avg_pool2d(x, 3, 2, 1, ceil_mode=True),
                F.avg_pool3d(v, 2, 2, 1, count_include_pad=False),
            ),
            (IMAGE, f(1, 2, 3, 3, 3)),
        ),
        "adaptive": (
            lambda x, v: (
                F.adaptive_avg_pool2d(x, 1),
                F.adaptive_avg_pool2d(x, (3, 5)),
                F.adaptive_avg_pool2d(x, (4, None)),
                F.adaptive_avg_pool1d(x[0], 2),
                F.adaptive_max_pool2d(x, (2, 5)),
                F.adaptive_max_pool1d(x[0], 1),
                F.adaptive_avg_pool3d(v, 1),
            ),
            (IMAGE, f(1, 2, 2, 2, 2)),
        ),
        "largest of uneven windows": (
            lambda x, v, y: (
                F.adaptive_max_pool2d(x, (4, 3)),
                *F.adaptive_max_pool2d(x, (4, 3), return_indices=True),
                *F.adaptive_max_pool2d(x[0], (7, 2), return_indices=True),
                *F.adaptive_max_pool1d(y, 3, return_indices=True),
                *F.adaptive_max_pool1d(y[None].double(), 2, return_indices=True),
                *F.adaptive_max_pool3d(v, (2, 3, 4), return_indices=True),
                F.adaptive_max_pool3d(v[0], (2, 3, 4)),
            ),
            (i(3, 2, 4, 6, 5).float(), f(1, 2, 3, 4, 5), TIES.view(2, 8)[:, :7]),
        ),
        "mean by a number": (
            lambda x, v: (
                F.avg_pool2d(x, 3, 2, 1, divisor_override=5),
                F.avg_pool2d(x, 2, ceil_mode=True, divisor_override=3),
                F.avg_pool3d(v, 2, divisor_override=-7),
            ),
            (IMAGE, f(1, 2, 3, 3, 3)),
        ),
        "norm of windows": (lambda x: F.lp_pool2d(x, 2.0, 2), (p(1, 2, 4, 4),)),
        "resized": (
            lambda x: (
                F.interpolate(x, scale_factor=2),
                F.interpolate(x, size=(4, 7)),
                F.interpolate(x, scale_factor=2, mode="bilinear"),
                F.interpolate(x, size=(9, 3), mode="bilinear", align_corners=True),
                F.pixel_shuffle(x, 2),
            ),
            (f(1, 4, 3, 3),),
        ),
        "resized to any size": (
            lambda x, v: (
                F.interpolate(x, size=(29, 11), mode="bilinear"),
                F.interpolate(x, size=(4, 31), mode="nearest-exact"),
                F.interpolate(x, size=(17, 5), mode="nearest"),
                F.interpolate(x, size=(9, 11), mode="bicubic"),
                F.interpolate(x, scale_factor=1.7, mode="bicubic", align_corners=True),
                F.interpolate(x, size=(2, 2), mode="bilinear", antialias=True),
                F.interpolate(x, size=(11, 3), mode="bicubic", antialias=True),
                F.interpolate(x, size=(3, 9), mode="bilinear", antialias=True, align_corners=True),
                F.interpolate(x, size=(8, 2), mode="bicubic", antialias=True, align_corners=True),
                F.interpolate(v, size=(5, 13, 4), mode="nearest-exact"),
                F.interpolate(x[0], size=13, mode="nearest-exact"),
                F.adaptive_avg_pool2d(F.interpolate(x, size=(26, 4), mode="nearest"), (17, 4)),
            ),
            (f(1, 2, 5, 7), f(1, 2, 2, 3, 3)),
        ),
        "resized along one axis": (
            lambda x, v: (
                *[
                    F.interpolate(x, scale_factor=1.3, mode=mode)
                    for mode in ("nearest", "nearest-exact", "bilinear", "bicubic")
                ],
                *[
                    F.interpolate(x, scale_factor=1.3, mode=mode, antialias=True)
                    for mode in ("bilinear", "bicubic")
                ],
                *[
                    F.interpolate(v, scale_factor=1.3, mode=mode)
                    for mode in ("nearest", "nearest-exact", "trilinear")
                ],
                *[
                    F.interpolate(x[0, :, :, :3], scale_factor=1.3, mode=mode)
                    for mode in ("nearest", "nearest-exact", "linear")
                ],
                *[F.affine_grid(x[:, 0, :2, :3], (1, 1, *size), True) for size in ((1, 3), (3, 1))],
            ),
            (f(1, 2, 3, 9), f(1, 2, 3, 9, 3)),
        ),
        **{
            f"at a grid, {padding}, corners {corners}": (
                lambda x, g, v, h, padding=padding, corners=corners: (
                    *[
                        F.grid_sample(x, 1.3 * g, mode, padding, corners)
                        for mode in ("bilinear", "nearest", "bicubic")
                    ],
                    F.grid_sample(v, h, "bilinear", padding, corners),
                    F.grid_sample(torch.cat((x, x, x), 1), 1.3 * g, "bilinear", padding, corners),
                    aten.grid_sampler_2d(x, g, 2, 0, corners),
                    aten.grid_sampler_3d(v, h, 1, 2, corners),
                    F.grid_sample(
                        x, F.affine_grid(h.view(2, 2, 3), (2, 3, 5, 6), corners), "bilinear", padding, corners
                    ),
                ),
                (f(2, 3, 4, 5), f(2, 3, 6, 2), f(1, 2, 3, 4, 5), f(1, 2, 2, 1, 3)),
            )
            for padding in ("zeros", "border", "reflection")
            for corners in (True, False)
        },
        "columns": (
            lambda x, c: (F.unfold(x, 2, padding=1), F.fold(c, (4, 3), 2)),
            (f(1, 2, 4, 3), f(1, 8, 6)),
        ),
    },
    "reductions": {
        "sums": (
            lambda x: (
                x.sum(),
                x.sum(1),
                x.sum((0, 2), keepdim=True),
                x.mean(),
                x.mean(-1),
                x.prod(1),
                x.amax((1, 2)),
                x[:, :1].amax(1, keepdim=True),
                x.amin(0),
                x.max(),
                x.min(),
            ),
            (f(2, 3, 4),),
        ),
        "of integers": (
            lambda n, m: (n.sum(), n.prod(0), m.sum(1), m.any(1), m.all(), n.float().mean(), n.any()),
            (i(5, 3, 4), X > 0),
        ),
        "places": (
            lambda x: (
                *torch.max(x, 1),
                *x.min(0, keepdim=True),
                x.argmax(),
                x.argmin(1),
                x.argmax(-1, keepdim=True),
                x.topk(2)[0],
                *x.sort(descending=True),
            ),
            (X,),
        ),
        "spread": (
            lambda x: (
                x.var(),
                x.std(1),
                x.var(0, unbiased=False),
                *torch.var_mean(x, 1),
                torch.std(x, 1, correction=0, keepdim=True),
                x.logsumexp(1),
            ),
            (X,),
        ),
        "norms": (
            lambda x: (
                x.norm(),
                x.norm(p=1, dim=1),
                torch.linalg.norm(x),
                torch.linalg.vector_norm(x, 3, 1),
                x.norm(dim=(0, 1), p="fro"),
                F.normalize(x, dim=1),
                x.norm(p=float("inf"), dim=1),
            ),
            (X,),
        ),
        "scans": (
            lambda x, m: (
                x.cumsum(1),
                x.cumprod(0),
                x.flip(1).cumsum(1).flip(1),
                (x * m).cumsum(1),
                torch.cat([torch.zeros_like(x[:, :1]), x], 1)[:, :-1].cumsum(1),
                x.cummax(1)[0],
            ),
            (X, f(3, 4) > 0),
        ),
        "running": (
            lambda x, n, s, y: (
                torch.logcumsumexp(x, 1),
                torch.logcumsumexp(x, 0),
                torch.logcumsumexp(x.double(), -1),
                torch.logcumsumexp(y * 300, 1),
                torch.logcumsumexp(s, 0),
                torch.logcumsumexp(x[:, :0], 1),
                *torch.cummax(x, 1),
                *torch.cummin(x, 0),
                *torch.cummax(n, 1),
                *torch.cummin(n > 2, 1),
                *torch.cummax(s, 0),
                *torch.cummin(x[:0], 1),
            ),
            (TIES, i(4, 3, 4), torch.tensor(-INF), f(3, 4)),
        ),
        "middles": (
            lambda x, n, s: (
                x.median(),
                x[:2].median(),
                x.median(1)[0],
                x.median(0, keepdim=True)[0],
                n.median(),
                n.median(1)[0],
                s.median(),
                x.kthvalue(3, 1)[0],
                n.kthvalue(1, 0, True)[0],
                torch.dist(x[:1], n[:, :4].float()),
                torch.dist(n[0].float(), n[1].float(), 1),
            ),
            (TIES, i(9, 4, 4), torch.tensor(2.0)),
        ),
        "with statistics": (
            lambda x, s, b, m, v: (
                *aten.native_group_norm(x, s, b, 2, 4, 30, 2, 1e-5),
                aten.native_group_norm(x, None, None, 2, 4, 30, 4, 1e-3)[0],
                *aten.native_group_norm(x.double(), None, b.double(), 2, 4, 30, 1, 1e-5),
                *aten._native_batch_norm_legit_no_training(x, s, b, m, v, 0.1, 1e-5),
                *torch.native_layer_norm(x, (6, 5), None, None, 1e-5),
            ),
            (IMAGE, f(4), f(4), f(4), p(4)),
        ),
        "softmax": (
            lambda x: (x.softmax(1), F.log_softmax(x, 0), F.softmax(x, -1, dtype=torch.float64)),
            (X,),
        ),
        "normalised": (
            lambda x, s, b, m, v, v5: (
                F.batch_norm(x, m, v, s, b),
                F.batch_norm(x, None, None, training=True),
                F.group_norm(x, 2, s, b),
                F.group_norm(x, 4),
                F.instance_norm(x, weight=s, bias=b),
                F.instance_norm(x),
                F.layer_norm(x, (6, 5)),
                F.layer_norm(x, (5,), v5, v5),
                torch.native_layer_norm(x, (5,), v5, v5, 1e-5)[0],
                F.rms_norm(x, (5,), v5),
                F.local_response_norm(x, 3),
            ),
            (IMAGE, f(4), f(4), f(4), p(4), p(5)),
        ),
    },
    "losses": {
        "elements": (
            lambda a, b: (
                F.mse_loss(a, b),
                F.l1_loss(a, b, reduction="sum"),
                F.smooth_l1_loss(a, b),
                F.smooth_l1_loss(a, b, beta=0.5, reduction="none"),
                F.huber_loss(a, b, delta=0.7),
                F.cosine_similarity(a, b),
                F.pairwise_distance(a, b),
                F.soft_margin_loss(a, b.sign()),
                F.hinge_embedding_loss(a, b.sign()),
                F.cosine_embedding_loss(a, b, b.sign()[:, 0], margin=0.1),
                F.cosine_embedding_loss(a[0], b[0], b.sign()[0, 0], reduction="sum"),
                F.poisson_nll_loss(a, b),
                torch.mean(torch.clamp(1 - a * b, min=0)),
            ),
            (X, f(3, 4)),
        ),
        "probabilities": (
            lambda a, q, r: (
                F.binary_cross_entropy(q, r),
                F.binary_cross_entropy_with_logits(a, q),
                F.kl_div(q.log(), r, reduction="batchmean"),
                F.kl_div(q.log(), r.log(), log_target=True),
            ),
            (X, p(3, 4), p(3, 4)),
        ),
        "classes": (
            lambda a, t, q, w, d, u: (
                F.cross_entropy(a, t),
                F.cross_entropy(a, q),
                F.cross_entropy(a, t, w),
                F.nll_loss(a, t, reduction="sum"),
                F.cross_entropy(d, u, ignore_index=1),
                F.cross_entropy(a, q, label_smoothing=0.1),
                F.cross_entropy(a, t, reduction="none"),
            ),
            (X, i(4, 3), p(3, 4), p(4), f(2, 3, 4), i(3, 2, 4)),
        ),
        "triplets": (
            lambda a, b, c, t: (
                F.triplet_margin_loss(a, b, c),
                F.triplet_margin_loss(a, b, c, margin=0.2, p=1.0),
                F.margin_ranking_loss(a, b, t, 0.1),
            ),
            (X, f(3, 4), f(3, 4), f(3, 4).sign()),
        ),
    },
    "movement": {
        "views": (
            lambda x: (
                x.view(4, 3),
                x.reshape(-1),
                x.flatten(1),
                x.unsqueeze(1) + 0,
                x.t() * 1,
                x.permute(1, 0) + 0,
                x[:, None].expand(3, 2, 4) * 1,
                x.unsqueeze(0).squeeze(0).exp(),
                x.unflatten(1, (2, 2)),
                x.movedim(0, 1) + 0,
                x.T.contiguous(),
            ),
            (X,),
        ),
        "parts": (
            lambda x: (
                *x.split(2, 1),
                *x.chunk(3),
                *torch.split(x, [1, 3], 1),
                *x.unbind(0),
                x[1],
                x[:, 1:3],
                x[..., ::2],
                x[-1, -2],
                x.narrow(1, 1, 2),
                x.select(1, 2),
            ),
            (f(3, 4),),
        ),
        "joined": (
            lambda x, y: (
                torch.cat([x, y]),
                torch.cat([x, y], -1),
                torch.stack([x, y], 1),
                torch.hstack([x, y]),
                torch.cat([x, y.double()]),
            ),
            (X, f(3, 4)),
        ),
        "repeated": (
            lambda x: (
                x.repeat(2, 1),
                x.repeat(2, 1, 1),
                x.repeat_interleave(2, 1),
                torch.tile(x, (2,)),
                x.roll(1, 1),
                x.roll(2),
                x.flip(0, 1),
            ),
            (X,),
        ),
        "padded": (
            lambda x, y: (
                F.pad(x, (1, 2)),
                F.pad(x, (0, 1, -1, 2), value=3.0),
                F.pad(y, (1, 1), "reflect"),
                F.pad(y, (2, 1), "replicate"),
                F.pad(y, (1, 2), "circular"),
            ),
            (X, f(1, 2, 4)),
        ),
        "triangles": (
            lambda x, v: (
                x.tril(),
                x.triu(1),
                x.tril(-1),
                torch.diag(v),
                torch.diag(x),
                x.diagonal(1),
                torch.diag_embed(x),
                v.diag(1),
            ),
            (f(3, 4), f(4)),
        ),
        "picked": (
            lambda x, n, t, e: (
                x.gather(1, n),
                x.index_select(1, t),
                F.embedding(n, e),
                x[t % 3],
                x[:, t],
                x[torch.arange(3), n[:, 0]],
                x.scatter(1, n, 9.0),
                x.scatter_add(1, n, x[:, :2]),
                F.one_hot(t, 5),
                x.index_add(1, t, x),
                x.index_copy(1, t, x * 2),
                x.index_fill(1, t[:2] - 4, 2.5),
                x.index_fill(0, t[:2] % 3, torch.tensor(7.0)),
                torch.ops.aten.index_put(x, [None, t[:2]], x[:, :1]),
                x.index_put((t[:2] % 3,), x[0]),
                x.index_put((torch.arange(3), n[:, 0] - 4), x[:, 0], accumulate=True),
                x.index_put((x > 0,), torch.tensor(7.0)),
                x.index_put((x[:, 0] > 0,), torch.tensor(-1.0)),
                x.take_along_dim(n, 1),
                x.unfold(1, 2, 1),
                x.sum().index_select(0, t[1:2]),
            ),
            (X, i(4, 3, 2), torch.tensor([3, 0, 2, 1]), f(4, 3)),
        ),
        "made": (
            lambda x: (
                torch.zeros(2, 3) + x[0, 0],
                torch.ones_like(x),
                torch.full((2, 2), 3.5),
                torch.arange(5) + 1,
                torch.arange(1, 2, 0.25),
                torch.eye(3),
                x.new_zeros(2),
                torch.linspace(0, 1, 5),
                torch.full_like(x, 2),
                torch.tril(torch.ones(3, 3, dtype=torch.bool)),
            ),
            (X,),
        ),
        "made and filled": (
            lambda x: (
                torch.empty(2, 3).fill_(2.0),
                torch.empty_like(x).copy_(x),
                x.new_empty(2).zero_(),
                aten.empty_permuted(torch.Size([2, 3]), [1, 0]).fill_(1.0),
                torch.tril_indices(3, 4, 1),
                torch.triu_indices(4, 3, -1),
            ),
            (X,),
        ),
        "shuffled": (
            lambda x, y: (
                F.pixel_shuffle(x, 2),
                F.pixel_unshuffle(x, 2),
                F.pixel_shuffle(y, 2),
                F.pixel_unshuffle(y, 2),
            ),
            (f(4, 4, 2), f(2, 3, 4, 4, 2)),
        ),
        "changed in place": (_changed, (f(3, 4),)),
    },
    "names": {
        "aliases": (
            lambda a, b: (
                torch.divide(a, b),
                torch.multiply(a, b),
                torch.true_divide(a, b),
                torch.fix(a),
                torch.positive(a),
                torch.sgn(a),
                torch.concat([a, b]),
                torch.concatenate([a, b]),
                torch.swapaxes(a, 0, 1) * 1,
                torch.swapdims(a, 0, 1) * 1,
                torch.moveaxis(a, 0, 1) * 1,
                torch.ravel(a) * 1,
                torch.broadcast_to(a, (2, 3, 4)) * 1,
                a.adjoint() * 1,
                a.view_as(b) * 1,
                a.reshape_as(b) * 1,
                a.type_as(b),
                a.detach() * 1,
                aten.alias(a) * 1,
                torch.atleast_2d(a) * 1,
                torch.deg2rad(a),
                torch.rad2deg(a),
                aten._unsafe_view(a, [12]),
                aten._to_copy(a, dtype=torch.float64),
                aten.lift_fresh(a) * 1,
                a.new_full((2,), 3.0),
                a.new_ones(3),
                torch.special.softmax(a, 1),
                torch.special.log_softmax(a, 1),
                aten._softmax(a, 1, False),
                aten._log_softmax(a, 1, False),
            ),
            (X, p(3, 4)),
        ),
        "norms": (
            lambda a: (
                aten.norm.Scalar(a, 2),
                aten.norm.ScalarOpt_dim(a, 3, [1], True),
                aten.frobenius_norm.dim(a, [0, 1]),
                torch.linalg.matrix_norm(a),
                *torch.std_mean(a, 1),
                torch.cummin(a, 1)[0],
                torch.acosh(a.abs() + 1),
                torch.min(a, -a),
            ),
            (X,),
        ),
        "products": (lambda a, v: (torch.mv(a, v), torch.inner(a, v), torch.ger(v, v)), (X, f(4))),
        "truth": (
            lambda a, b, m, n: (
                a >= b,
                a <= b,
                a != b,
                torch.logical_xor(m, m),
                torch.bitwise_and(n, 3),
                torch.bitwise_or(n, 4),
                torch.bitwise_xor(n, n),
                torch.bitwise_not(n),
                aten.where.Scalar(m, 1.0, 2.0),
            ),
            (X, f(3, 4), X > 0, i(9, 3, 4)),
        ),
        "images": (
            lambda x, v, y: (
                F.adaptive_max_pool3d(v, 1),
                F.channel_shuffle(x, 2),
                F.pixel_unshuffle(y, 2),
                F.interpolate(x[0], scale_factor=2),
                F.interpolate(v, scale_factor=2),
                F.interpolate(x[0], size=4, mode="linear"),
                F.interpolate(v, size=(2, 3, 3), mode="trilinear"),
                aten.constant_pad_nd(x, [1, 0], 2.0),
                *aten.max_pool3d_with_indices(v, [2, 2, 2]),
                *F.max_pool1d(x[0], 2, return_indices=True),
                aten.convolution(x, y.view(4, 2, 2, 2), None, [1, 1], [0, 0], [1, 1], False, [0, 0], 2),
                aten.reflection_pad1d(x[0], [1, 1]),
                aten.reflection_pad2d(x, [1, 1, 2, 0]),
                aten.reflection_pad3d(v, [1, 1, 1, 0, 0, 1]),
                aten.replication_pad1d(x[0], [1, 1]),
                aten.replication_pad2d(x, [1, 1, 2, 0]),
                aten.replication_pad3d(v, [1, 1, 1, 0, 0, 1]),
            ),
            (f(1, 4, 3, 3), f(1, 2, 2, 2, 2), f(1, 2, 4, 4)),
        ),
        "others": (
            lambda a, t, n: (
                *torch.tensor_split(a, 3, 1),
                *aten.unsafe_chunk(a, 2, 1),
                *aten.unsafe_split(a, 2),
                aten.scalar_tensor(2.0) * a,
                a.scatter_reduce(1, n, a[:, :2], "sum"),
                F.nll_loss(a, t),
                F.nll_loss(a[None, :, :, None].transpose(1, 2), t[None, :, None]),
                aten.nll_loss2d(a.T[None, :, :, None], t[None, :, None], None, 1, -100),
                aten.nll_loss(a, t, None, 1, -100),
                F.alpha_dropout(a, 0.5),
                F.feature_alpha_dropout(a, 0.5),
                F.dropout1d(a, 0.5, False),
                aten.zero(a),
            ),
            (X, i(4, 3), i(4, 3, 2)),
        ),
        "rnn": (
            lambda x, *w: torch.rnn_relu(x, torch.zeros(1, 2, 4), list(w), True, 1, 0.0, False, False, False),
            (f(3, 2, 5), *_weights(1, 5)),
        ),
    },
    "recurrent": {
        "lstm": (_lstm, (f(2, 3, 5), *_weights(4, 5, 4))),
        "gru": (_gru, (f(3, 2, 5), *_weights(3, 5, 5))),
        "rnn": (
            lambda x, *w: torch.rnn_tanh(x, torch.zeros(1, 2, 4), list(w), True, 1, 0.0, False, False, False),
            (f(3, 2, 5), *_weights(1, 5)),
        ),
        "cell": (
            lambda x, h, c, *w: torch.lstm_cell(x, (h, c), *w),
            (f(2, 5), f(2, 4), f(2, 4), *_weights(4, 5)),
        ),
    },
}

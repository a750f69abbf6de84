"""Calls of PyTorch at the edges of what they take, beside eager PyTorch: each was wrong, or failed, once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402

from perfdojo_sdk.torch import report  # noqa: E402

A, HALF, BRAIN = torch.tensor, torch.float16, torch.bfloat16
INF, NAN = float("inf"), float("nan")


def _f16(shape: tuple[int, ...], value: float) -> Any:
    return torch.full(shape, value, dtype=HALF)


CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "a constant of bf16": (lambda x: x + x.new_tensor([1.0, 2.0]), (A([3.0, 4.0], dtype=BRAIN),)),
    "a constant of u16": (lambda x: x + A([1, 2], dtype=torch.uint16).int(), (A([3, 4]),)),
    "a divisor beyond halves": (
        lambda x: (torch.fmod(x, 1e39), torch.remainder(x, 1e39)),
        (A([1.5, -2.0, INF], dtype=HALF),),
    ),
    "a base beyond bytes": (lambda x: 1048579**x, (A([0, 1, 2, 9], dtype=torch.int8),)),
    "gather from a scalar": (lambda x: x.gather(0, A(0)), (A(1.5),)),
    "scatter into a scalar": (lambda x: x.scatter(0, A(0), 5.0), (A(1.5),)),
    "scatter a scalar": (lambda x: x.scatter(0, A(0), x * 2), (A(1.5),)),
    "scatter_add of scalars": (lambda x: x.scatter_add(0, A(0), x), (A(1.5),)),
    "scatter_reduce of scalars": (lambda x: x.scatter_reduce(0, A(0), x, "amax"), (A(1.5),)),
    "index_add of scalars": (lambda x: x.index_add(0, A([0]), x), (A(1.5),)),
    "movedim of a scalar": (lambda x: x.movedim(0, 0), (A(1.5),)),
    "hinge of other labels": (
        lambda x, t: F.hinge_embedding_loss(x, t, reduction="none"),
        (A([0.5, 0.5, 2.0, 0.25]), A([0.0, 1.0, 2.0, -1.0])),
    ),
    "a circle that is cut behind": (lambda x: F.pad(x, (2, -1), mode="circular"), (A([[1.0, 2, 3, 4, 5]]),)),
    "a circle that is cut in front": (
        lambda x: F.pad(x, (-1, 2), mode="circular"),
        (A([[1.0, 2, 3, 4, 5]]),),
    ),
    "a torus that is cut": (
        lambda x: F.pad(x, (-1, -1, -1, 1), mode="circular"),
        (torch.arange(24.0).reshape(1, 2, 3, 4),),
    ),
    "addmm with beta 0": (
        lambda c, x: torch.addmm(c, x, x, beta=0),
        (torch.full((2, 2), NAN), torch.ones(2, 2)),
    ),
    "addmm with alpha 0": (
        lambda c, x: torch.addmm(c, x, c, alpha=0),
        (torch.ones(2, 2), torch.full((2, 2), NAN)),
    ),
    "baddbmm with beta 0": (
        lambda c, x: torch.baddbmm(c, x, x, beta=0),
        (torch.full((1, 2, 2), INF), torch.ones(1, 2, 2)),
    ),
    "addmv with neither": (
        lambda c, m, v: torch.addmv(c, m, v, alpha=0, beta=0),
        (A([NAN, 1.0]), torch.ones(2, 2), A([1.0, NAN])),
    ),
    "a line resized to itself": (
        lambda x: F.interpolate(x, scale_factor=1.3, mode="linear"),
        (A([[[0.0, 10.0]]]),),
    ),
    "an image resized to itself": (
        lambda x: F.interpolate(x, scale_factor=(1.3, 1.3), mode="bilinear"),
        (A([[[[0.0, 10.0], [20.0, 30.0]]]]),),
    ),
    "lerp to the end": (lambda x, y: torch.lerp(x, y, 1.0), (A([1e8]), A([1.0]))),
    "lerp from infinity": (lambda x, y: torch.lerp(x, y, 0.7), (A([INF, 1.0]), A([1.0, INF]))),
    "kl_div of negative targets": (
        lambda x, t: F.kl_div(x, t, reduction="none"),
        (A([-1.0, -1.0, -INF, INF, NAN, -2.0]), A([-0.5, 0.25, 0.0, 0.0, 0.0, 0.0])),
    ),
    "erfc far out": (lambda x: x.erfc(), (torch.linspace(-6, 9, 61),)),
    "sign of NaN": (lambda x: (x.sign(), x.sgn()), (A([NAN, -2.0, 0.0, 3.0]),)),
    "a mean of many halves": (lambda x: x.mean((0, 1)), (_f16((65, 65), 100.0),)),
    "a norm of many halves": (lambda x: x.norm(), (_f16((100, 100), 30.0),)),
    "a sum of many halves": (
        lambda x: x.sum(),
        (torch.cat([_f16((5, 1000), 100.0), _f16((5, 1000), -100.0)]),),
    ),
    "squared errors of halves": (lambda x: F.mse_loss(x, -x), (_f16((4, 5), 100.0),)),
    "absolute errors of halves": (lambda x: F.l1_loss(x, -x), (_f16((100, 10), 100.0),)),
    "huber of halves": (lambda x: F.huber_loss(x, -x, delta=400.0), (_f16((4, 5), 150.0),)),
    "cross entropy of halves": (
        lambda x: F.binary_cross_entropy_with_logits(x, x * 0),
        (_f16((4, 500), 100.0),),
    ),
    "distances of halves": (lambda x: F.pairwise_distance(x, -x), (_f16((2, 3), 150.0),)),
    "triplets of halves": (lambda x: F.triplet_margin_loss(x, -x, x * 0), (_f16((2, 3), 150.0),)),
    "cosines of halves": (lambda x: F.cosine_similarity(x, x, dim=1), (_f16((2, 300), 30.0),)),
    "cosines of tiny halves": (lambda x: F.cosine_similarity(x, x, dim=1), (_f16((2, 3), 1e-4),)),
    "attention of halves with a mask": (
        lambda x: F.scaled_dot_product_attention(x, x, x, attn_mask=torch.zeros(3, 3, dtype=HALF)),
        ((torch.arange(-96, 96).reshape(1, 1, 3, 64) * 1.0).half(),),
    ),
    "baddbmm of halves": (lambda x: torch.baddbmm(x, x, x, alpha=1e-3), (_f16((1, 10, 10), 100.0),)),
    "the default epsilon of halves": (
        lambda x: F.rms_norm(x, (4,)),
        (A([[0.01, 0.02, -0.01, 0.005]], dtype=HALF),),
    ),
    "the default epsilon of bf16": (
        lambda x: F.rms_norm(x, (4,)),
        (A([[0.01, 0.02, -0.01, 0.005]], dtype=BRAIN),),
    ),
    "infinities of bf16": (lambda x: x.nan_to_num(), (A([INF, -INF, NAN], dtype=BRAIN),)),
    "large integers": (
        lambda x: (
            x + torch.full((2,), 2**60 + 1),
            x.add(x, alpha=2**53 + 1),
            x + torch.arange(2**60 + 1, 2**60 + 3),
        ),
        (A([1, 3]),),
    ),
    "places of NaN in windows": (
        lambda x: (
            *F.max_pool2d(x, 2, return_indices=True),
            *F.max_pool2d(x.half(), 3, 1, 1, return_indices=True),
            *F.max_pool1d(x[0], 2, 1, dilation=2, return_indices=True),
            *F.max_pool3d(x[None], 2, 2, 1, return_indices=True),
            *F.adaptive_max_pool2d(x, (2, 3), return_indices=True),
            *F.adaptive_max_pool2d(x, (3, 4), return_indices=True),
        ),
        (A([NAN, 1, 1, NAN, -INF, -INF, NAN, NAN, 2, 0, NAN, INF] * 6).reshape(2, 6, 6),),
    ),
    "places in sequences with NaN at the end": (
        lambda s, x: (
            *(torch.searchsorted(s[:n], x, right=right) for n in (7, 16, 29) for right in (False, True)),
            torch.searchsorted(s[:6].half(), x.half()),
            torch.searchsorted(s.view(2, 20), x, out_int32=True),
            torch.bucketize(0.5, s),
            torch.bucketize(x, s[3:20]),
        ),
        (
            A([[NAN, -INF, *[-1.0] * 2, 0.25], *([k, k + 1, k + 2, NAN, NAN] for k in range(7))])
            .sort()[0]
            .reshape(40),
            A([[0.25, 3.0, -INF, INF], [NAN, 6.0, 7.5, -1.0]]),
        ),
    ),
    "places in a sequence out of order": (
        lambda s, x: (torch.searchsorted(s, x), torch.bucketize(x, s[:9])),
        (A([3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0, 6.0, 5.0] * 4), A([0.0, 1.0, 2.5, 5.0, 8.0])),
    ),
    "distances with NaN": (
        lambda x, y: tuple(torch.cdist(x, y, p) for p in (0.0, 0.5, 1.0, 2.0, 3.0, INF)),
        (
            A([[NAN, 1.0, 2.0], [0.0, INF, -3.0], [NAN, NAN, NAN], [2.0, 0.0, 4.0]]),
            A([[1.0, INF, 2.0], [0.0, NAN, 1.0], [2.0, 0.0, 4.0]]),
        ),
    ),
    "huber of two dtypes": (lambda x, t: F.huber_loss(x, t), (A([1.0, 2.0]), A([0.5, 4.0]).double())),
}


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("case", CASES)
@torch.no_grad()
def test_edges_agree_with_eager(case: str) -> None:
    function, inputs = CASES[case]
    torch._dynamo.reset()
    ours = torch.compile(function, backend="perfdojo", options={"interpret": True, "threads": 1})(*inputs)
    wanted = function(*inputs)
    several = isinstance(wanted, tuple)
    for found, eager in zip(ours if several else [ours], wanted if several else [wanted], strict=True):
        assert found.dtype == eager.dtype
        tolerance = {HALF: 2e-3, BRAIN: 1.6e-2}.get(eager.dtype, 4e-6)
        torch.testing.assert_close(found, eager, rtol=tolerance, atol=0.0, equal_nan=True)


@torch.no_grad()
def test_a_number_that_varies_is_left_to_pytorch() -> None:
    """PyTorch hands a float over as a tensor from the second value on, and asks for its number."""
    ours = torch.compile(lambda x, s: x * s, backend="perfdojo", options={"interpret": True, "threads": 1})
    for size, number in ((4, 1.5), (5, 2.5), (6, 3.5)):
        assert torch.equal(ours(torch.ones(size), number), torch.full((size,), number))
    assert any(graph.whole for graph in report(ours).graphs)


@torch.no_grad()
@pytest.mark.parametrize("mode", ["trunc", "floor"])
def test_a_division_of_integers_by_zero_is_an_error(mode: str) -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.div(x, y, rounding_mode=mode) + torch.remainder(x, y)

    ours = torch.compile(function, backend="perfdojo", options={"interpret": True, "threads": 1})
    x, y = torch.tensor([7, -7]), torch.tensor([2, -3])
    assert torch.equal(ours(x, y), function(x, y))
    for run in (ours, function):
        with pytest.raises(RuntimeError, match="(?i)zero"):
            run(x, torch.tensor([1, 0]))


@torch.no_grad()
def test_a_class_that_is_not_there_is_an_error() -> None:
    ours = torch.compile(
        lambda x: F.one_hot(x, 5), backend="perfdojo", options={"interpret": True, "threads": 1}
    )
    assert torch.equal(ours(A([4, 1])), F.one_hot(A([4, 1]), 5))
    with pytest.raises((IndexError, RuntimeError)):
        ours(A([7, 1]))

"""Kernels in Triton for the benchmark of GPUs: a peer for each operator that is simple to write in it.

They are written as usual in Triton: element-wise operators in blocks, a row in one program, products of
matrices by tiles. Sums are in f32, and products stay f32 (no TF32). Each function takes contiguous f32
tensors of one device and returns the result in new memory, as those of :mod:`perfdojo_sdk.peers.pytorch` do.
Imports Triton, which comes with PyTorch for GPUs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

import torch
import triton
import triton.language as tl

from perfdojo_sdk.peers import operators

Tensor = torch.Tensor
Formula = Callable[..., Tensor]

#: Elements of one program of an element-wise operator.
BLOCK = 1024
#: Rows, columns and steps of a tile, and its warps: each is a contender, and the fastest counts.
TILES = ((64, 64, 32, 4), (128, 64, 32, 4), (128, 128, 32, 8))
#: Tiles, one below the other, that follow each other in the grid and so find the same columns in the cache.
GROUP: tl.constexpr = tl.constexpr(8)
EPSILON: tl.constexpr = tl.constexpr(operators.EPSILON)


@triton.jit
def _add(a, b, out, size, block: tl.constexpr):
    at = tl.program_id(0) * block + tl.arange(0, block)
    inside = at < size
    tl.store(out + at, tl.load(a + at, mask=inside) + tl.load(b + at, mask=inside), mask=inside)


@triton.jit
def _mul(a, b, out, size, block: tl.constexpr):
    at = tl.program_id(0) * block + tl.arange(0, block)
    inside = at < size
    tl.store(out + at, tl.load(a + at, mask=inside) * tl.load(b + at, mask=inside), mask=inside)


@triton.jit
def _relu(x, out, size, block: tl.constexpr):
    at = tl.program_id(0) * block + tl.arange(0, block)
    inside = at < size
    tl.store(out + at, tl.maximum(tl.load(x + at, mask=inside), 0.0), mask=inside)


@triton.jit
def _softmax(x, out, columns, width: tl.constexpr):
    column = tl.arange(0, width)
    at, inside = tl.program_id(0) * columns + column, column < columns
    row = tl.load(x + at, mask=inside, other=float("-inf"))
    power = tl.exp(row - tl.max(row, axis=0))
    tl.store(out + at, power / tl.sum(power, axis=0), mask=inside)


@triton.jit
def _layernorm(x, w, b, out, columns, width: tl.constexpr):
    column = tl.arange(0, width)
    at, inside = tl.program_id(0) * columns + column, column < columns
    row = tl.load(x + at, mask=inside, other=0.0)
    centred = tl.where(inside, row - tl.sum(row, axis=0) / columns, 0.0)
    scale = 1.0 / tl.sqrt(tl.sum(centred * centred, axis=0) / columns + EPSILON)
    result = centred * scale * tl.load(w + column, mask=inside) + tl.load(b + column, mask=inside)
    tl.store(out + at, result, mask=inside)


@triton.jit
def _rmsnorm(x, w, out, columns, width: tl.constexpr):
    column = tl.arange(0, width)
    at, inside = tl.program_id(0) * columns + column, column < columns
    row = tl.load(x + at, mask=inside, other=0.0)
    scale = 1.0 / tl.sqrt(tl.sum(row * row, axis=0) / columns + EPSILON)
    tl.store(out + at, row * scale * tl.load(w + column, mask=inside), mask=inside)


@triton.jit
def _reducemean(x, out, columns, width: tl.constexpr):
    row, column = tl.program_id(0), tl.arange(0, width)
    values = tl.load(x + row * columns + column, mask=column < columns, other=0.0)
    tl.store(out + row, tl.sum(values, axis=0) / columns)


@triton.jit
def _products(a, b, out, rows, columns, steps, tm: tl.constexpr, tn: tl.constexpr, tk: tl.constexpr):
    """One tile of one product of a batch: (rows, steps) by (steps, columns)."""
    program, batch = tl.program_id(0), tl.program_id(1)
    a, b, out = a + batch * rows * steps, b + batch * steps * columns, out + batch * rows * columns
    down, across = tl.cdiv(rows, tm), tl.cdiv(columns, tn)
    first = program // (GROUP * across) * GROUP
    height = min(down - first, GROUP)
    within = program % (GROUP * across)
    m = (first + within % height) * tm + tl.arange(0, tm)
    n = within // height * tn + tl.arange(0, tn)
    k = tl.arange(0, tk)
    total = tl.zeros((tm, tn), tl.float32)
    for start in range(0, steps, tk):
        step = start + k
        left_inside = (m[:, None] < rows) & (step[None, :] < steps)
        right_inside = (step[:, None] < steps) & (n[None, :] < columns)
        left = tl.load(a + m[:, None] * steps + step[None, :], mask=left_inside, other=0.0)
        right = tl.load(b + step[:, None] * columns + n[None, :], mask=right_inside, other=0.0)
        total = tl.dot(left, right, total, input_precision="ieee")
    inside = (m[:, None] < rows) & (n[None, :] < columns)
    tl.store(out + m[:, None] * columns + n[None, :], total, mask=inside)


def _by_element(kernel: Any, *inputs: Tensor) -> Tensor:
    out = torch.empty_like(inputs[0])
    kernel[(triton.cdiv(out.numel(), BLOCK),)](*inputs, out, out.numel(), BLOCK)
    return out


def _by_row(kernel: Any, x: Tensor, *parameters: Tensor) -> Tensor:
    return _rows_into(torch.empty_like(x), kernel, x, *parameters)


def _mean(x: Tensor) -> Tensor:
    return _rows_into(x.new_empty(x.shape[0]), _reducemean, x)


def _rows_into(out: Tensor, kernel: Any, x: Tensor, *parameters: Tensor) -> Tensor:
    rows, columns = x.shape
    width = triton.next_power_of_2(columns)
    kernel[(rows,)](x, *parameters, out, columns, width, num_warps=min(max(width // 256, 1), 8))
    return out


def _matrices(tile: tuple[int, int, int, int], a: Tensor, b: Tensor) -> Tensor:
    tm, tn, tk, warps = tile
    *batch, rows, steps = a.shape
    columns = b.shape[-1]
    out = a.new_empty((*batch, rows, columns))
    grid = (triton.cdiv(rows, tm) * triton.cdiv(columns, tn), *(batch or (1,)))
    _products[grid](a, b, out, rows, columns, steps, tm, tn, tk, num_warps=warps)
    return out


def _alone(formula: Formula) -> Mapping[str, Formula]:
    return MappingProxyType({"": formula})


_TILED = MappingProxyType({"x".join(map(str, tile[:3])): partial(_matrices, tile) for tile in TILES})

FORMULAS: Mapping[str, Mapping[str, Formula]] = {
    "add": _alone(partial(_by_element, _add)),
    "mul": _alone(partial(_by_element, _mul)),
    "relu": _alone(partial(_by_element, _relu)),
    "softmax": _alone(partial(_by_row, _softmax)),
    "layernorm": _alone(partial(_by_row, _layernorm)),
    "rmsnorm": _alone(partial(_by_row, _rmsnorm)),
    "reducemean": _alone(_mean),
    "matmul": _TILED,
    "bmm": _TILED,
}
"""Family of operators -> variant -> its function; the other families are not simple."""

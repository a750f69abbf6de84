"""PyTorch's fused operators of transformer layers, taken apart into operators that have rows.

In evaluation ``nn.TransformerEncoderLayer`` and ``nn.MultiheadAttention`` call these in place of their parts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import sqrt
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from perfdojo_sdk.graph.refusals import Reason, Refused


def self_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim: int,
    num_head: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    mask: Tensor | None = None,
    need_weights: bool = True,
    average_attn_weights: bool = True,
    mask_type: int | None = None,
) -> tuple[Tensor, Tensor]:
    """``aten::_native_multi_head_attention``. True in a mask hides a position; other dtypes become bool."""
    batch, rows, columns = query.shape[0], query.shape[1], key.shape[1]
    size = embed_dim // num_head
    weights, biases = torch.chunk(qkv_weight, 3), torch.chunk(qkv_bias, 3)
    q, k, v = (
        functional.linear(x, w, b).view(x.shape[0], x.shape[1], num_head, size).transpose(1, 2)
        for x, w, b in zip((query, key, value), weights, biases, strict=True)
    )
    scores = torch.matmul(q * (1 / sqrt(size)), k.transpose(2, 3))
    if mask is not None:
        shapes = {0: (1, 1, rows, columns), 1: (batch, 1, 1, columns), 2: (batch, num_head, rows, columns)}
        if mask_type not in shapes:
            raise Refused(Reason.CHOICE, f"a mask of type {mask_type}")
        scores = scores.masked_fill(mask.to(torch.bool).view(shapes[mask_type]), float("-inf"))
    parts = torch.softmax(scores, -1)
    found = torch.matmul(parts, v).transpose(1, 2).reshape(batch, rows, embed_dim)
    if not need_weights:
        shown = query.new_empty(0)
    else:
        shown = parts.mean(1) if average_attn_weights else parts
    return functional.linear(found, proj_weight, proj_bias), shown


def encoder_layer(
    src: Tensor,
    embed_dim: int,
    num_heads: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm_weight_1: Tensor,
    norm_bias_1: Tensor,
    norm_weight_2: Tensor,
    norm_bias_2: Tensor,
    ffn_weight_1: Tensor,
    ffn_bias_1: Tensor,
    ffn_weight_2: Tensor,
    ffn_bias_2: Tensor,
    mask: Tensor | None = None,
    mask_type: int | None = None,
) -> Tensor:
    """``aten::_transformer_encoder_layer_fwd``."""

    def first(x: Tensor) -> Tensor:
        return functional.layer_norm(x, (embed_dim,), norm_weight_1, norm_bias_1, eps)

    def second(x: Tensor) -> Tensor:
        return functional.layer_norm(x, (embed_dim,), norm_weight_2, norm_bias_2, eps)

    x = first(src) if norm_first else src
    attended, _ = self_attention(
        x, x, x, embed_dim, num_heads, qkv_weight, qkv_bias, proj_weight, proj_bias,
        mask, False, True, mask_type,
    )  # fmt: skip
    x = attended + src
    x = x if norm_first else first(x)
    inner = functional.linear(second(x) if norm_first else x, ffn_weight_1, ffn_bias_1)
    inner = functional.gelu(inner) if use_gelu else torch.relu(inner)
    found = functional.linear(inner, ffn_weight_2, ffn_bias_2) + x
    return found if norm_first else second(found)


#: Operator -> the function that takes it apart.
PARTS: Mapping[Any, Callable[..., Any]] = {
    torch.ops.aten._native_multi_head_attention.default: self_attention,
    torch.ops.aten._transformer_encoder_layer_fwd.default: encoder_layer,
}

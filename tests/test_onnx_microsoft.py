"""Operators of the domain ``com.microsoft`` beside what their documentation says, written out in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import perfdojo_sdk.onnx.backend as backend
from perfdojo_sdk.core.errors import DojoError
from perfdojo_sdk.graph.operators.packed import from_q4_0
from perfdojo_sdk.graph.refusals import Malformed

DRAW = np.random.default_rng(0)


def floats(*shape: int) -> Any:
    return DRAW.standard_normal(shape).astype(np.float32)


def run(op: str, inputs: list[Any], outputs: int = 1, **attributes: Any) -> list[Any]:
    """The first outputs of one operator; None leaves an input out."""
    names = ["" if value is None else f"i{k}" for k, value in enumerate(inputs)]
    given = {name: value for name, value in zip(names, inputs, strict=True) if name}
    node = helper.make_node(
        op, names, [f"o{k}" for k in range(outputs)], domain="com.microsoft", **attributes
    )
    types = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
        for name, v in given.items()
    ]
    graph = helper.make_graph([node], "g", types, [onnx.ValueInfoProto(name=f"o{k}") for k in range(outputs)])
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
    made = helper.make_model(graph, opset_imports=opsets)
    return list(backend.run_model(made, list(given.values()), "INTERPRETER"))


def test_a_fused_product_turns_and_scales() -> None:
    a, b = floats(2, 3, 4), floats(2, 5, 3)
    [y] = run("FusedMatMul", [a, b], transA=1, transB=1, alpha=0.5)
    assert np.allclose(y, 0.5 * a.transpose(0, 2, 1) @ b.transpose(0, 2, 1), atol=1e-5)
    with pytest.raises(DojoError, match="batches that are transposed"):
        run("FusedMatMul", [a, b], transBatchA=1)


@pytest.mark.parametrize(("bits", "zeros"), [(4, "none"), (4, "packed"), (8, "packed"), (2, "floats")])
def test_columns_of_few_bits_are_unpacked(bits: int, zeros: str) -> None:
    rows, columns, block = 40, 3, 16
    blocks, each = -(-rows // block), 8 // bits
    numbers = DRAW.integers(0, 2**bits, (columns, blocks * block))
    zero = (
        np.full((columns, blocks), 2 ** (bits - 1))
        if zeros == "none"
        else DRAW.integers(0, 2**bits, (columns, blocks))
    )
    scales, x = floats(columns, blocks), floats(2, rows)

    def packed(values: Any) -> Any:
        more = np.pad(values, ((0, 0), (0, -values.shape[1] % each)))
        parts = more.reshape(columns, -1, each) << (bits * np.arange(each))
        return parts.sum(-1).astype(np.uint8)

    given = {"none": None, "packed": packed(zero).reshape(-1), "floats": zero.astype(np.float32)}[zeros]
    [y] = run(
        "MatMulNBits", [x, packed(numbers).reshape(columns, blocks, -1), scales.reshape(-1), given],
        K=rows, N=columns, bits=bits, block_size=block,
    )  # fmt: skip
    weights = (numbers.reshape(columns, blocks, block) - zero[..., None]) * scales[..., None]
    assert np.allclose(y, x @ weights.reshape(columns, -1)[:, :rows].T, atol=1e-4)


@pytest.mark.parametrize(("bits", "zeros"), [(4, False), (4, True), (8, False), (8, True)])
def test_rows_times_blocks_in_their_layout(bits: int, zeros: bool) -> None:
    rows, columns, block = 48, 3, 16
    blocks, each = rows // block, 8 // bits
    numbers = DRAW.integers(0, 2**bits, (columns, blocks, block))
    zero = (
        DRAW.integers(0, 2**bits, (columns, blocks)) if zeros else np.full((columns, blocks), 2 ** (bits - 1))
    )

    def packed(values: Any) -> Any:
        more = np.pad(values, [(0, 0)] * (values.ndim - 1) + [(0, -values.shape[-1] % each)])
        parts = more.reshape(*values.shape[:-1], -1, each) << (bits * np.arange(each))
        return parts.sum(-1).astype(np.uint8)

    scales, given = floats(columns, blocks), packed(zero).reshape(-1) if zeros else None
    weights = ((numbers - zero[..., None]) * scales[..., None]).reshape(columns, -1)
    for shape in ((rows,), (1, 3, rows), (4, rows)):
        x = floats(*shape)
        [y] = run(
            "MatMulNBits", [x, packed(numbers), scales.reshape(-1), given],
            K=rows, N=columns, bits=bits, block_size=block,
        )  # fmt: skip
        assert np.allclose(y, x @ weights.T, atol=1e-4 * 2**bits)


def test_blocks_of_q4_0_are_those_of_matmul_n_bits() -> None:
    rows, columns = 64, 3
    numbers, scale = DRAW.integers(0, 16, (columns, 2, 32)), floats(columns, 2).astype(np.float16)
    halves = (numbers[..., :16] | numbers[..., 16:] << 4).astype(np.uint8)
    data = np.concatenate([scale[..., None].view(np.uint8), halves], axis=-1)
    weights = ((numbers - 8) * scale[..., None].astype(np.float32)).reshape(columns, rows)
    packed, scales = from_q4_0(data.reshape(-1), columns, rows)
    x = floats(1, rows)
    [y] = run("MatMulNBits", [x, packed, scales.reshape(-1)], K=rows, N=columns, bits=4, block_size=32)
    assert np.allclose(y, x @ weights.T, atol=1e-3)
    with pytest.raises(Malformed, match="bytes for 3 columns"):
        from_q4_0(data.reshape(-1)[:-1], columns, rows)


def test_a_skip_is_added_before_the_normalisation() -> None:
    x, skip, scale, shift, bias = floats(2, 3, 8), floats(2, 3, 8), floats(8), floats(8), floats(8)
    y, mean, inverse, total = run("SkipLayerNormalization", [x, skip, scale, shift, bias], 4, epsilon=1e-5)
    right = x + skip + bias
    deviation = np.sqrt(right.var(-1, keepdims=True) + 1e-5)
    assert np.allclose(total, right, atol=1e-6) and np.allclose(inverse, 1 / deviation, atol=1e-5)
    assert np.allclose(mean, right.mean(-1, keepdims=True), atol=1e-6)
    assert np.allclose(y, (right - right.mean(-1, keepdims=True)) / deviation * scale + shift, atol=1e-5)
    [y] = run("SkipSimplifiedLayerNormalization", [x, skip, scale], epsilon=1e-5)
    right = x + skip
    assert np.allclose(y, right / np.sqrt((right**2).mean(-1, keepdims=True) + 1e-5) * scale, atol=1e-5)


# -- attention -------------------------------------------------------------------------------------


def softmax(x: Any) -> Any:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def turned(x: Any, position: int, cosines: Any, sines: Any, interleaved: bool) -> Any:
    """One row, rotated."""
    half, out = cosines.shape[1], x.copy()
    c, s = cosines[position], sines[position]
    one, other = (
        (slice(0, 2 * half, 2), slice(1, 2 * half, 2))
        if interleaved
        else (slice(half), slice(half, 2 * half))
    )
    out[one], out[other] = x[one] * c - x[other] * s, x[other] * c + x[one] * s
    return out


@pytest.mark.parametrize(("window", "rotary", "interleaved"), [(-1, 0, 0), (3, 1, 0), (-1, 1, 1)])
def test_rows_after_those_of_a_cache(window: int, rotary: int, interleaved: int) -> None:
    batch, heads, groups, rows, size, room = 2, 4, 2, 2, 6, 8
    before = [5, 3]
    q, k, v = (
        floats(batch, rows, heads * size),
        floats(batch, rows, groups * size),
        floats(batch, rows, groups * size),
    )
    keys, values = floats(batch, groups, room, size), floats(batch, groups, room, size)
    angles = floats(room + rows, size // 2)
    cosines, sines = np.cos(angles), np.sin(angles)
    lengths = np.array([n + rows - 1 for n in before], np.int32)
    total = np.array(max(before) + rows, np.int32)
    inputs = [q, k, v, keys, values, lengths, total, *([cosines, sines] if rotary else [])]
    y, new_keys, new_values = run(
        "GroupQueryAttention", inputs, 3, num_heads=heads, kv_num_heads=groups, local_window_size=window,
        do_rotary=rotary, rotary_interleaved=interleaved,
    )  # fmt: skip
    right_keys, right_values = keys.copy(), values.copy()
    for b in range(batch):
        for r in range(rows):
            at = before[b] + r
            for g in range(groups):
                row = k[b, r].reshape(groups, size)[g]
                right_keys[b, g, at] = turned(row, at, cosines, sines, bool(interleaved)) if rotary else row
                right_values[b, g, at] = v[b, r].reshape(groups, size)[g]
    assert np.allclose(new_keys, right_keys, atol=1e-6) and np.allclose(new_values, right_values)
    for b in range(batch):
        for r in range(rows):
            at = before[b] + r
            first = 0 if window < 0 else max(0, at - window + 1)
            for h in range(heads):
                row = q[b, r].reshape(heads, size)[h]
                row = turned(row, at, cosines, sines, bool(interleaved)) if rotary else row
                g = h // (heads // groups)
                weights = softmax(right_keys[b, g, first : at + 1] @ row / np.sqrt(size))
                expected = weights @ right_values[b, g, first : at + 1]
                assert np.allclose(y[b, r].reshape(heads, size)[h], expected, atol=1e-5)


def test_a_length_beyond_the_cache_is_reported() -> None:
    q, k = floats(1, 1, 4), floats(1, 1, 4)
    inputs = [q, k, k, None, None, np.array([9], np.int32), np.array(2, np.int32)]
    with pytest.raises(Malformed, match="beyond 2 elements"):
        run("GroupQueryAttention", inputs, 3, num_heads=1, kv_num_heads=1)


@pytest.mark.parametrize("mask", ["none", "lengths", "ranges", "raw", "causal"])
def test_projections_of_integers(mask: str) -> None:
    batch, rows, hidden, heads = 2, 4, 6, 2
    x = DRAW.integers(0, 256, (batch, rows, hidden)).astype(np.uint8)
    w = DRAW.integers(-128, 128, (hidden, 3 * hidden)).astype(np.int8)
    bias, scales = floats(3 * hidden), (np.float32(0.02), np.float32(0.01))
    zeros = np.uint8(120), np.int8(3)
    seen = np.ones((batch, rows, rows), bool)
    given: Any = None
    if mask == "lengths":
        given = np.array([4, 2], np.int32)
        seen[1, :, 2:] = False
    elif mask == "ranges":
        given = np.array([4, 3, 0, 1], np.int32)
        seen[1, :, 3:], seen[1, :, 0] = False, False
    elif mask == "raw":
        given = DRAW.integers(0, 2, (batch, rows)).astype(np.int32)
        given[:, 0] = 1
        seen &= given[:, None, :] > 0
    elif mask == "causal":
        seen &= np.tri(rows, dtype=bool)
    inputs = [x, w, bias, *map(np.asarray, scales), given, *map(np.asarray, zeros)]
    y, present = run("QAttention", inputs, 2, num_heads=heads, unidirectional=int(mask == "causal"))
    wide = (x.astype(np.int64) - 120) @ (w.astype(np.int64) - 3) * np.float64(scales[0] * scales[1]) + bias
    q, k, v = (part.reshape(batch, rows, heads, -1).transpose(0, 2, 1, 3) for part in np.split(wide, 3, -1))
    assert np.allclose(present, np.stack([k, v]), atol=1e-4)
    scores = q @ k.transpose(0, 1, 3, 2) / np.sqrt(hidden // heads)
    hidden_scores = -10000.0 if mask == "causal" else scores - 10000.0
    expected = softmax(np.where(seen[:, None], scores, hidden_scores)) @ v
    assert np.allclose(y, expected.transpose(0, 2, 1, 3).reshape(batch, rows, hidden), atol=1e-3)


def test_the_past_comes_first() -> None:
    x, w = np.ones((1, 1, 2), np.uint8), np.ones((2, 6), np.int8)
    past = floats(2, 1, 1, 3, 2)
    one = np.array(1, np.float32)
    y, present = run(
        "QAttention", [x, w, np.zeros(6, np.float32), one, one, None, None, None, past], 2, num_heads=1
    )
    assert (
        present.shape == (2, 1, 1, 4, 2)
        and (present[:, :, :, :3] == past).all()
        and (present[..., 3, :] == 2).all()
    )
    weights = softmax(present[0, 0, 0] @ np.array([2, 2]) / np.sqrt(2))
    assert np.allclose(y[0, 0], weights @ present[1, 0, 0], atol=1e-5)


def test_an_unknown_operator_is_refused_by_name() -> None:
    with pytest.raises(DojoError, match=r"com\.microsoft\.Nothing is not supported"):
        run("Nothing", [floats(2)])

"""Operators of the domain ``com.microsoft`` that exported models of language use.

Its schemas are not the standard's, so defaults of attributes stand here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import sqrt

import numpy as np

from perfdojo_sdk.frontends.onnx.operation import Operation, Rule
from perfdojo_sdk.graph.arrays import numpy_dtype
from perfdojo_sdk.graph.graph import Value
from perfdojo_sdk.graph.operators import caches
from perfdojo_sdk.graph.operators import contractions as c
from perfdojo_sdk.graph.operators import elementwise as e
from perfdojo_sdk.graph.operators import normalisations as s
from perfdojo_sdk.graph.operators import quantisation as q
from perfdojo_sdk.graph.operators.gathers import checked, write_rows
from perfdojo_sdk.graph.operators.movement import concat, cut, pad_constant, transpose
from perfdojo_sdk.graph.operators.packed import product_of_blocks
from perfdojo_sdk.graph.refusals import Malformed, Reason, Refused
from perfdojo_sdk.graph.writer import Writer, converted, number


def _fused_matmul(n: Operation) -> Value:
    if n.whole("transBatchA", 0) or n.whole("transBatchB", 0):
        raise Refused(Reason.CHOICE, "FusedMatMul with batches that are transposed")
    found = c.matmul(n.b, _turned(n, 0, "transA"), _turned(n, 1, "transB"))
    alpha = n.real("alpha", 1.0)
    return found if alpha == 1.0 else e.unary(n.b, "scale", lambda a: f"{number(alpha, 'f32')} * {a}", found)


def _turned(n: Operation, k: int, name: str) -> Value:
    x = n[k]
    if not n.whole(name, 0) or x.rank < 2:
        return x
    return transpose(n.b, x, [*range(x.rank - 2), x.rank - 1, x.rank - 2])


def _matmul_n_bits(n: Operation) -> Value:
    if n.maybe(4) is not None:
        raise Refused(Reason.CHOICE, "MatMulNBits with an order of its groups")
    x, bias, size = n[0], n.maybe(5), (n.whole("K"), n.whole("N"))
    found = product_of_blocks(n.b, x, n[1], n[2], n.maybe(3), size, n.whole("bits", 4), n.whole("block_size"))
    return found if bias is None else e.binary(n.b, "bias", lambda a, b: f"{a} + {b}", found, bias)


# -- normalisations --------------------------------------------------------------------------------


def _summed(n: Operation, bias: int) -> Value:
    values = [n[0], n[1], *([n[bias]] if n.maybe(bias) is not None else [])]
    found = e.variadic(n.b, "skip", lambda a, b: f"{a} + {b}", values)
    if found.shape != n[0].shape:
        raise Malformed(f"{n[1].text} beside {n[0].text}")
    return found


def _skip_layer_norm(n: Operation) -> Sequence[Value | None]:
    x, more = _summed(n, 4), n.wants(1) or n.wants(2)
    found = s.layer_norm(n.b, x, n[2], n.maybe(3), -1, n.real("epsilon", 1e-12), more)
    return [found[0], *(found[1:] if more else [None, None]), x]


def _skip_rms_norm(n: Operation) -> Sequence[Value | None]:
    x = _summed(n, 3)
    return [s.rms_norm(n.b, x, n[2], -1, n.real("epsilon", 1e-12)), None, None, x]


# -- attention -------------------------------------------------------------------------------------


def _heads(n: Operation, x: Value, heads: int) -> Value:
    """Rows of several heads as an array for each head."""
    if heads < 1 or x.rank != 3 or x.shape[2] % heads:
        raise Malformed(f"{heads} heads in {x.text}")
    apart = n.b.view(x, (*x.shape[:2], heads, x.shape[2] // heads))
    return transpose(n.b, apart, (0, 2, 1, 3))


def _rows(n: Operation, x: Value) -> Value:
    """Heads side by side in rows."""
    y = transpose(n.b, x, (0, 2, 1, 3))
    return n.b.view(y, (*y.shape[:2], y.shape[2] * y.shape[3]))


def _part(n: Operation, x: Value, first: int, size: int) -> Value:
    """Columns of rows."""
    return cut(n.b, x, [0, 0, first], [1, 1, 1], (*x.shape[:2], size))


def _grouped_attention(n: Operation) -> Sequence[Value]:
    """Rows after those of a cache, each of which sees the rows up to itself, or a window of them."""
    if n.whole("smooth_softmax", 0) or any(n.maybe(k) is not None for k in (12, 13)):
        raise Refused(Reason.CHOICE, "GroupQueryAttention with smooth_softmax, or a quantised cache")
    heads, groups = n.whole("num_heads"), n.whole("kv_num_heads")
    query, key, value = _split_heads(n, heads, groups)
    batch, _, rows, size = query.shape
    last, [total] = n[5], n.b.known_integers(n[6])
    if last.elements != batch or last.dtype not in ("i32", "i64") or not rows <= total:
        raise Malformed(f"GroupQueryAttention with lengths {last.text} of {total} rows")
    checked(n.b, n.b.view(last, (batch,)), total)
    starts = caches.lengths_before(n.b, n.b.view(last, (batch,)), rows)
    if n.whole("do_rotary", 0):
        given = n.maybe(9)
        positions = caches.positions_from(n.b, starts, rows)
        if given is not None:
            positions = e.cast(n.b, n.b.view(given, (batch, rows)), "i64")
        turned = bool(n.whole("rotary_interleaved", 0))
        query, key = (caches.rotate(n.b, x, n[7], n[8], positions, turned) for x in (query, key))
    keys, values = (_cached(n, k, new, starts, total) for k, new in ((3, key), (4, value)))
    scale = n.real("scale", 0.0) or 1 / sqrt(max(size, 1))
    window, cap, bias = n.whole("local_window_size", -1), n.real("softcap", 0.0), n.maybe(10)

    def scored(k: Writer, text: str, batch: str, head: str, row: str, column: str) -> str:
        if cap:
            text = f"{number(cap, 'f32')} * tanh({text} / {number(cap, 'f32')})"
        if bias is not None:
            at = [
                0 if s == 1 else name for s, name in zip(bias.shape, (batch, head, row, column), strict=True)
            ]
            text = f"{text} + {k.read(bias).load(at)}"
        place = f"{k.read(starts)([batch])} + {row}"
        seen = f"{column} <= {place}"
        if window > 0:
            seen = f"and({seen}, {column} > {place} - {window})"
        return f"select({seen}, {text}, -inf)"

    if bias is not None:
        wide = (batch, heads, rows, keys.shape[2])
        fits = bias.rank == 4 and all(s in (1, w) for s, w in zip(bias.shape, wide, strict=True))
        if not fits or bias.dtype != query.dtype:
            raise Malformed(f"a bias {bias.text} of scores {list(wide)}")
    found = caches.scored_attention(n.b, query, keys, values, scale, scored, n.maybe(11))
    return [_rows(n, found), keys, values]


def _split_heads(n: Operation, heads: int, groups: int) -> tuple[Value, Value, Value]:
    """Queries, keys and values by head, from three arrays or from one."""
    x = n[0]
    if n.maybe(1) is not None:
        return _heads(n, x, heads), _heads(n, n[1], groups), _heads(n, n[2], groups)
    if x.rank != 3 or min(heads, groups) < 1 or x.shape[2] % (heads + 2 * groups):
        raise Malformed(f"{heads} and twice {groups} heads in {x.text}")
    size = x.shape[2] // (heads + 2 * groups)
    query = _part(n, x, 0, heads * size)
    key, value = (_part(n, x, (heads + k * groups) * size, groups * size) for k in (0, 1))
    return _heads(n, query, heads), _heads(n, key, groups), _heads(n, value, groups)


def _cached(n: Operation, k: int, new: Value, starts: Value, total: int) -> Value:
    """A cache of at least ``total`` rows with the new ones behind those that it holds."""
    past = n.maybe(k)
    batch, groups, rows, size = new.shape
    if past is None:
        past = n.b.constant(np.empty((batch, groups, 0, size), numpy_dtype(new.dtype)))
    if past.rank != 4 or (*past.shape[:2], past.shape[3]) != (batch, groups, size):
        raise Malformed(f"a cache {past.text} for {new.text}")
    more = max(total - past.shape[2], 0)
    whole = pad_constant(n.b, past, [0] * 4, [0, 0, more, 0], None)
    return write_rows(n.b, whole, new, starts, 2, False)


def _q_attention(n: Operation) -> Sequence[Value]:
    """Attention whose three projections are one product of integers."""
    if n.whole("do_rotary", 0) or n.whole("past_present_share_buffer", 0):
        raise Refused(Reason.CHOICE, "QAttention that rotates, or writes into its past")
    x, w, heads = n[0], n[1], n.whole("num_heads")
    if x.rank != 3 or w.rank != 2 or w.shape[0] != x.shape[2] or w.shape[1] % 3 or n[2].shape != w.shape[1:]:
        raise Malformed(f"projections {w.text} with {n[2].text} of {x.text}")
    left, right = q.widened(n.b, x, n.maybe(6), 1), q.widened(n.b, w, n.maybe(7), 1)
    projected = _rescaled(n, c.matmul(n.b, left, right), n[3], n[4], n[2])
    hidden = w.shape[1] // 3
    query, key, value = (_heads(n, _part(n, projected, k * hidden, hidden), heads) for k in range(3))
    past, before = n.maybe(8), 0
    if past is not None:
        if (
            past.rank != 5
            or past.shape[0] != 2
            or (*past.shape[1:3], past.shape[4]) != (*key.shape[:2], key.shape[3])
        ):
            raise Malformed(f"a past {past.text} for {key.text}")
        before = past.shape[3]
        halves = [
            n.b.view(cut(n.b, past, [k, 0, 0, 0, 0], [1] * 5, (1, *past.shape[1:])), past.shape[1:])
            for k in (0, 1)
        ]
        key, value = (concat(n.b, [old, new], 2) for old, new in zip(halves, (key, value), strict=True))
    mask, filtered = n.maybe(5), number(n.real("mask_filter_value", -10000.0), "f32")
    total, causal = key.shape[2], bool(n.whole("unidirectional", 0))
    kinds = {(x.shape[0],): 1, (2 * x.shape[0],): 2, (x.shape[0], total): 3}
    kind = 0 if mask is None else kinds.get(mask.shape, -1)
    if kind < 0 or (mask is not None and mask.dtype != "i32"):
        raise Refused(Reason.CHOICE, f"QAttention with a mask {mask.text if mask else ''}")

    def scored(k: Writer, text: str, batch: str, head: str, row: str, column: str) -> str:
        if mask is not None:
            m = k.read(mask)
            seen = f"{m([batch, column])} > 0" if kind == 3 else f"{column} < {m([batch])}"
            if kind == 2:
                seen = f"and({seen}, {column} >= {m([f'{batch}+{x.shape[0]}'])})"
            text = f"{text} + select({seen}, 0, {filtered})"
        return f"select({column} <= index({row}+{before}), {text}, {filtered})" if causal else text

    scale = n.real("scale", 0.0) or 1 / sqrt(max(query.shape[3], 1))
    found = _rows(n, caches.scored_attention(n.b, query, key, value, scale, scored))
    if n.outputs < 2:
        return [found]
    pair = [n.b.view(v, (1, *v.shape)) for v in (key, value)]
    return [found, concat(n.b, pair, 0)]


def _rescaled(n: Operation, total: Value, one: Value, other: Value, bias: Value) -> Value:
    """Sums of products of integers in floats, times both scales, the second by column or one for all."""
    if one.elements != 1 or other.elements not in (1, total.shape[-1]) or one.dtype != other.dtype:
        raise Malformed(f"scales {one.text} and {other.text} of {total.text}")
    k = Writer(n.b, "rescale")
    names = ["{0}", "{1}", "{2}"]
    a = k.read(total)
    first = k.read(n.b.view(one, (1,))).load([0])
    flat = n.b.view(other, (other.elements,))
    second = k.read(flat).load([0 if other.elements == 1 else "{2}"])
    y = k.write(total.shape, bias.dtype)
    value = f"{converted(a(names), total.dtype, 'f32')} * ({first} * {second}) + {k.read(bias).load(['{2}'])}"
    k.nest(total.shape, f"{y(names)} = {y.store(value)}")
    return k.done()[0]


RULES: Mapping[str, Rule] = {
    "FusedMatMul": _fused_matmul,
    "MatMulNBits": _matmul_n_bits,
    "SkipLayerNormalization": _skip_layer_norm,
    "SkipSimplifiedLayerNormalization": _skip_rms_norm,
    "GroupQueryAttention": _grouped_attention,
    "QAttention": _q_attention,
}

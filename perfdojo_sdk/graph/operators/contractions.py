"""Sums of products: matrix products, and einsum with its labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from perfdojo_sdk.graph.builder import Builder
from perfdojo_sdk.graph.graph import Shape, Value
from perfdojo_sdk.graph.operators.elementwise import same_dtype
from perfdojo_sdk.graph.refusals import Malformed
from perfdojo_sdk.graph.shapes import broadcast
from perfdojo_sdk.graph.writer import Writer, computed_in, levels, number


def contract(
    b: Builder,
    name: str,
    operands: Sequence[tuple[Value, str]],
    kept: str,
    sizes: Mapping[str, int],
    total: str = "",
) -> Value:
    """The sum over all labels that are not ``kept``, one character each; an operand's dimension of size 1
    is broadcast. ``total``: the dtype of the sum, to which shorter integers are converted."""
    dtype = total or same_dtype(*[value for value, _ in operands])
    summed = "".join(dict.fromkeys(c for _, labels in operands for c in labels if c not in kept))
    level = {label: f"{{{n}}}" for n, label in enumerate(kept + summed)}
    k = Writer(b, name)
    texts = []
    for value, labels in operands:
        place = k.read(value)
        text = place.load([0 if s == 1 else level[c] for s, c in zip(value.shape, labels, strict=True)])
        texts.append(f"{total}({text})" if total else text)
    shape = tuple(sizes[c] for c in kept)
    inner, term, names = [sizes[c] for c in summed], " * ".join(texts), levels(len(kept))
    kind = computed_in(dtype)
    if not summed:
        y = k.write(shape, dtype)
        k.nest(shape, f"{y(names)} = {y.store(term)}")
        return k.done()[0]
    cell = k.write(shape, dtype) if kind == dtype else k.local(shape, kind)
    k.nest(shape, f"{cell(names)} = 0", (inner, f"{cell(names)} += {term}"))
    if kind != dtype:
        y = k.write(shape, dtype)
        k.nest(shape, f"{y(names)} = {y.store(cell(names))}")
    return k.done()[0]


def matmul(b: Builder, x: Value, y: Value, total: str = "") -> Value:
    """The product of matrices, with batches that are broadcast; vectors are rows on the left, columns on
    the right. ``total``: as for :func:`contract`."""
    if not x.rank or not y.rank:
        raise Malformed("a matrix product of scalars")
    if x.shape[-1] != y.shape[-2 if y.rank > 1 else -1]:
        raise Malformed(f"a matrix product of {x.text} and {y.text}")
    batch = broadcast(x.shape[:-2], y.shape[:-2])
    labels = "".join(chr(ord("A") + n) for n in range(len(batch)))
    left = labels[len(batch) - max(x.rank - 2, 0) :] + ("mk" if x.rank > 1 else "k")
    right = labels[len(batch) - max(y.rank - 2, 0) :] + ("kn" if y.rank > 1 else "k")
    kept = labels + ("m" if x.rank > 1 else "") + ("n" if y.rank > 1 else "")
    sizes = dict(zip(labels, batch, strict=True)) | {"k": x.shape[-1]}
    if x.rank > 1:
        sizes["m"] = x.shape[-2]
    if y.rank > 1:
        sizes["n"] = y.shape[-1]
    return contract(b, "matmul", [(x, left), (y, right)], kept, sizes, total)


def gemm(
    b: Builder, x: Value, y: Value, z: Value | None, alpha: float, beta: float, turned: tuple[bool, bool]
) -> Value:
    """alpha * x' y' + beta * z; ``turned``: an operand is transposed."""
    if x.rank != 2 or y.rank != 2:
        raise Malformed(f"Gemm of {x.text} and {y.text}", "its operands are matrices")
    (m, k_), (k2, n) = (v.shape[::-1] if t else v.shape for v, t in zip((x, y), turned, strict=True))
    if k_ != k2:
        raise Malformed(f"Gemm of {x.text} and {y.text}", "their inner sizes differ")
    dtype = same_dtype(x, y, *([z] if z else []))
    shape: Shape = (m, n)
    if z is not None and broadcast(z.shape, shape) != shape:
        raise Malformed(f"Gemm adds {z.text} to a matrix of {m} x {n}")
    k = Writer(b, "gemm")
    a, c = k.read(x), k.read(y)
    kind, names = computed_in(dtype), levels(2)
    left = ["{2}", "{0}"] if turned[0] else ["{0}", "{2}"]
    right = ["{1}", "{2}"] if turned[1] else ["{2}", "{1}"]
    plain = alpha == 1.0 and z is None and kind == dtype
    total = k.write(shape, dtype) if plain else k.local(shape, kind)
    k.nest(shape, f"{total(names)} = 0", ([k_], f"{total(names)} += {a.load(left)} * {c.load(right)}"))
    if not plain:
        result = k.write(shape, dtype)
        text = total(names) if alpha == 1.0 else f"{_scale(alpha, kind)} * {total(names)}"
        if z is not None:
            term = k.read(z).broadcast(shape, names)
            text += f" + {term}" if beta == 1.0 else f" + {_scale(beta, kind)} * {term}"
        k.nest(shape, f"{result(names)} = {result.store(text)}")
    return k.done()[0]


def _scale(factor: float, dtype: str) -> str:
    if not dtype.startswith("f") and factor != int(factor):
        raise Malformed(f"a factor of {factor} for matrices of {dtype}")
    return number(factor, dtype)


def einsum(b: Builder, equation: str, values: Sequence[Value]) -> Value:
    """The sum of products that an equation of labels describes, such as ``bij,bjk->bik``."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(values):
        raise Malformed(f"the equation {ascii(equation)[:60]} has {len(terms)} terms, {len(values)} inputs")
    if len(equation) > 1000 or not all(
        c.isalpha() and c.isascii() or c in ".,->" for c in left + arrow + right
    ):
        raise Malformed(f"the equation {ascii(equation)[:60]} holds other than letters")
    spread = [v.rank - len(t.replace("...", "")) if "..." in t else 0 for t, v in zip(terms, values)]
    # Labels for the dots: characters that no equation holds.
    dots = "".join(chr(ord("0") + n) for n in range(max(spread, default=0)))
    if not arrow:
        letters = left.replace("...", "").replace(",", "")
        right = ("..." if "..." in left else "") + "".join(
            sorted(c for c in letters if letters.count(c) == 1)
        )
    labelled = [t.replace("...", dots[len(dots) - n :]) for t, n in zip(terms, spread)]
    kept = right.replace("...", dots)
    sizes: dict[str, int] = {}
    for labels, value in zip(labelled, values, strict=True):
        if len(labels) != value.rank:
            raise Malformed(f"the term {labels} of an equation has no {value.rank} dimensions")
        for label, size in zip(labels, value.shape, strict=True):
            if sizes.setdefault(label, size) != size and 1 not in (size, sizes[label]):
                raise Malformed(f"label {label} of an equation has sizes {size} and {sizes[label]}")
            sizes[label] = size if sizes[label] == 1 else sizes[label]
    if len(set(kept)) < len(kept) or not set(kept) <= set(sizes):
        raise Malformed(f"the result {right} of an equation repeats labels, or has unknown ones")
    return contract(b, "einsum", list(zip(values, labelled, strict=True)), kept, sizes)


def rows(value: Value) -> int:
    """The number of rows when the last dimension is a row."""
    return prod(value.shape[:-1])

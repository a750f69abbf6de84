"""Discrete Fourier transforms as products with a matrix of roots of one, which is known beforehand.

An array of complex numbers has a last dimension of two: real and imaginary parts.
"""

from __future__ import annotations

import numpy as np

from perfdojo_sdk.graph.arrays import numpy_dtype
from perfdojo_sdk.graph.builder import MAX_KNOWN, Builder
from perfdojo_sdk.graph.graph import Value
from perfdojo_sdk.graph.refusals import Malformed, Reason, Refused
from perfdojo_sdk.graph.shapes import axis_of
from perfdojo_sdk.graph.writer import Writer, computed_in, is_float, levels


def roots(b: Builder, length: int, outputs: int, inputs: int, inverse: bool, dtype: str) -> Value:
    """The matrix [outputs, inputs, 2] of exp(-2 pi i j k / length); conjugated and divided for an inverse."""
    if outputs * inputs > 16 * MAX_KNOWN:
        raise Refused(Reason.SIZE, f"a Fourier transform of {length} elements as a product with a matrix")
    product = np.outer(np.arange(outputs), np.arange(inputs)) % max(length, 1)
    angle = (2 if inverse else -2) * np.pi * product / max(length, 1)
    table = np.stack([np.cos(angle), np.sin(angle)], -1) / (length if inverse else 1)
    return b.constant(table.astype(numpy_dtype(computed_in(dtype))))


def dft(b: Builder, x: Value, axis: int, length: int, inverse: bool, onesided: bool) -> Value:
    """The transform along an axis of an array that ends in one (real) or two (complex) parts; input is cut or
    padded by zeros to ``length``. Half of it, if ``onesided``: of a real signal the rest follows. The inverse
    of half a spectrum is a real signal."""
    if not is_float(x.dtype) or x.rank < 2 or x.shape[-1] not in (1, 2) or length < 1:
        raise Malformed(f"a Fourier transform of {x.text} to {length} elements")
    axis = axis_of(axis, x.rank)
    if axis == x.rank - 1:
        raise Malformed("a Fourier transform along real and imaginary parts")
    half, real = length // 2 + 1, x.shape[-1] == 1
    if onesided and inverse:
        return _real_inverse(b, x, axis, length)
    if onesided and not real:
        raise Malformed("half a spectrum of a complex signal")
    outputs, inputs = half if onesided else length, min(x.shape[axis], length)
    table = roots(b, length, outputs, inputs, inverse, x.dtype)
    shape = (*x.shape[:axis], outputs, *x.shape[axis + 1 : -1], 2)
    k = Writer(b, "dft")
    a, w = k.read(x), k.read(table)
    kind, rank = computed_in(x.dtype), x.rank - 1
    names, tap = levels(rank), f"{{{rank}}}"
    source = [tap if n == axis else name for n, name in enumerate(names)]
    y, total = k.write(shape, x.dtype), k.local(shape, kind)
    for part in (0, 1):
        at = [*names, str(part)]
        cosine, sine = (w.load([names[axis], tap, str(c)]) for c in (0, 1))
        one = a.load([*source, "0"])
        other = None if real else a.load([*source, "1"])
        if part == 0:
            term = f"{one} * {cosine}" + (f" - {other} * {sine}" if other else "")
        else:
            term = f"{one} * {sine}" + (f" + {other} * {cosine}" if other else "")
        k.nest(shape[:-1], f"{total(at)} = 0", ([inputs], f"{total(at)} += {term}"))
    every = levels(rank + 1)
    k.nest(shape, f"{y(every)} = {y.store(total(every))}")
    return k.done()[0]


def _real_inverse(b: Builder, x: Value, axis: int, length: int) -> Value:
    """The real signal of half a spectrum; its other half is the mirrored conjugate."""
    if x.shape[-1] != 2:
        raise Malformed("half a spectrum without imaginary parts")
    inputs = min(x.shape[axis], length // 2 + 1)
    table = roots(b, length, length, inputs, True, x.dtype)
    shape = (*x.shape[:axis], length, *x.shape[axis + 1 : -1], 1)
    k = Writer(b, "inverse_dft")
    a, w = k.read(x), k.read(table)
    kind, rank = computed_in(x.dtype), x.rank - 1
    names, tap = levels(rank), f"{{{rank}}}"
    source = [tap if n == axis else name for n, name in enumerate(names)]
    y, total = k.write(shape, x.dtype), k.local(shape[:-1], kind)
    # All but the first element, and the middle one of an even length, stand for their mirrored ones, too.
    alone = f"{tap} == 0"
    if length % 2 == 0:
        alone = f"or({alone}, {tap} == {length // 2})"
    real = f"{a.load([*source, '0'])} * {w.load([names[axis], tap, '0'])}"
    imaginary = f"{a.load([*source, '1'])} * {w.load([names[axis], tap, '1'])}"
    term = f"select({alone}, 1, 2) * ({real} - {imaginary})"
    k.nest(shape[:-1], f"{total(names)} = 0", ([inputs], f"{total(names)} += {term}"))
    k.nest(shape[:-1], f"{y([*names, '0'])} = {y.store(total(names))}")
    return k.done()[0]


def stft(b: Builder, x: Value, step: int, window: Value | None, length: int, onesided: bool) -> Value:
    """The transforms of windows of a signal [batch, time, parts] in steps: [batch, frame, frequency, 2]."""
    if x.rank == 2:
        x = b.view(x, (*x.shape, 1))
    if x.rank != 3 or step < 1 or not 0 < length <= x.shape[1]:
        raise Malformed(f"windows of {length} elements of {x.text} in steps of {step}")
    if window is not None and window.shape != (length,):
        raise Malformed(f"a window of {window.text} for {length} elements")
    frames = (x.shape[1] - length) // step + 1
    k = Writer(b, "frames")
    a = k.read(x)
    y = k.write((x.shape[0], frames, length, x.shape[2]), x.dtype)
    names = levels(4)
    text = a.load(["{0}", f"{{1}}*{step}+{{2}}", "{3}"])
    if window is not None:
        text = f"{text} * {k.read(window).load(['{2}'])}"
    k.nest(y.shape, f"{y(names)} = {y.store(text)}")
    return dft(b, k.done()[0], 2, length, False, onesided)

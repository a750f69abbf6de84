"""Fourier transforms, and the largest elements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from perfdojo_sdk.frontends.onnx.operation import Operation, Rule
from perfdojo_sdk.graph.graph import Value
from perfdojo_sdk.graph.operators.selections import top_k
from perfdojo_sdk.graph.operators.spectra import dft, stft
from perfdojo_sdk.graph.refusals import Malformed
from perfdojo_sdk.graph.shapes import axis_of


def _dft(n: Operation) -> Value:
    x = n[0]
    if n.version < 20:
        axis = n.whole("axis")
    else:
        axis = (n.known_ints(2) or [-2])[0]
    axis = axis_of(axis, x.rank)
    inverse, onesided = bool(n.whole("inverse")), bool(n.whole("onesided"))
    half = inverse and onesided
    length = (n.known_ints(1) or [2 * (x.shape[axis] - 1) if half else x.shape[axis]])[0]
    return dft(n.b, x, axis, length, inverse, onesided)


def _stft(n: Operation) -> Value:
    [step] = n.b.known_integers(n[1])
    window = n.maybe(2)
    lengths = n.known_ints(3) or ([window.shape[0]] if window is not None else [])
    if not lengths:
        raise Malformed("STFT has neither a window nor the length of one")
    return stft(n.b, n[0], step, window, lengths[0], bool(n.whole("onesided")))


def _top_k(n: Operation) -> Sequence[Value]:
    [count] = [n.whole("k")] if n.version < 10 else n.b.known_integers(n[1])
    return top_k(n.b, n[0], count, n.whole("axis"), bool(n.whole("largest", 1)))


RULES: Mapping[str, Rule] = {"DFT": _dft, "STFT": _stft, "TopK": _top_k}

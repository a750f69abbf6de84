"""Near-minimax coefficients of the polynomials in ``codegen/include/pd_math.h`` and ``pd_doubles.h``.

Prints each polynomial, lowest power first, with the largest error of the fit relative to the function.
Coefficients of floats are rounded one after the other, lowest power first, and the rest is fitted again to
what is left. Those of ``pd_doubles.h`` interpolate, with numbers of any length, at the zeros of a Chebyshev
polynomial.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import mpmath as mp
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Function = Callable[[float], float]

#: Points of a fit, dense at the ends, and rounds of reweighting.
POINTS, ROUNDS = 1500, 60

mp.mp.prec = 300


@dataclass(frozen=True)
class Fit:
    """A polynomial of ``variable(x)`` for ``value(x)`` on an interval of x."""

    value: Function
    """The quantity that the polynomial stands for."""
    size: Function
    """The size of the function, to which errors are relative, over the factor of the polynomial."""
    low: float
    high: float
    terms: int
    variable: Function = float
    floats: bool = True


def fitted(fit: Fit) -> tuple[list[float], float]:
    """The coefficients, and the largest error relative to ``size``."""
    angles = (np.arange(POINTS) + 0.5) * (math.pi / POINTS)
    xs = [fit.low + (fit.high - fit.low) * (0.5 - 0.5 * math.cos(a)) for a in angles]
    wanted = np.array([fit.value(x) for x in xs])
    scale = np.array([1 / fit.size(x) for x in xs])
    powers = np.vander(np.array([fit.variable(x) for x in xs]), fit.terms, increasing=True)
    found: list[float] = []
    while len(found) < fit.terms:
        done = len(found)
        rest = wanted - powers[:, :done] @ np.array(found)
        best = _minimax(powers[:, done:] * scale[:, None], rest * scale)
        found += [float(np.float32(best[0]))] if fit.floats else [float(c) for c in best]
    return found, float(np.max(np.abs(powers @ np.array(found) - wanted) * scale))


def _minimax(matrix: Array, wanted: Array) -> Array:
    """Lawson's algorithm: least squares, weighted by the errors so far."""
    units = np.max(np.abs(matrix), axis=0)
    weights, best, least = np.full(len(wanted), 1 / len(wanted)), np.zeros(matrix.shape[1]), math.inf
    for _ in range(ROUNDS):
        root = np.sqrt(weights)
        found = np.linalg.lstsq(matrix / units * root[:, None], wanted * root, rcond=None)[0] / units
        errors = np.abs(matrix @ found - wanted)
        if errors.max() < least:
            best, least = found, float(errors.max())
        weights = weights * errors
        weights /= weights.sum()
    return best


def _series(x: float, first: int, step: int, terms: int, sign: int) -> float:
    """The sum of ``sign^k x^k / (first + step k)``."""
    return math.fsum((sign * x) ** k / (first + step * k) for k in range(terms))


def _log_rest(f: float) -> float:
    """``(log(1 + f) - f + f^2/2) / f^3``"""
    if abs(f) < 0.02:
        return _series(f, 3, 1, 12, -1)
    return (math.log1p(f) - f + f * f / 2) / f**3


def _rest(function: Function, series: tuple[float, ...], first: int, step: int) -> Function:
    """``(function(x) - the first term) / x^first`` for a series in steps of powers, from a power on."""

    def rest(x: float) -> float:
        if abs(x) < 0.05:
            return math.fsum(c * x ** (step * k) for k, c in enumerate(series))
        lead = 1.0 if first == 2 and step == 2 else x
        return (function(x) - lead) / x**first

    return rest


def _expm1_rest(r: float) -> float:
    """``(expm1(r) - r) / r^2``"""
    return math.fsum(r**k / math.factorial(k + 2) for k in range(20))


def _exp2_rest(r: float) -> float:
    """``(2^r - 1) / r``"""
    return math.fsum(math.log(2) ** (k + 1) * r**k / math.factorial(k + 1) for k in range(22))


def _sinc_rest(x: float) -> float:
    return math.fsum((-1) ** (k + 1) * x ** (2 * k) / math.factorial(2 * k + 3) for k in range(12))


def _cos_rest(x: float) -> float:
    return math.fsum((-1) ** (k + 1) * x ** (2 * k) / math.factorial(2 * k + 2) for k in range(12))


def _sinh_rest(x: float) -> float:
    return math.fsum(x ** (2 * k) / math.factorial(2 * k + 3) for k in range(14))


def _asin_rest(x: float) -> float:
    """``(asin(x) - x) / x^3``"""
    total, c = 0.0, 1.0
    for k in range(1, 60):
        c *= (2 * k - 1) / (2 * k)
        total += c * x ** (2 * k - 2) / (2 * k + 1)
    return total


def _erf_ratio(x: float) -> float:
    """``erf(x) / x``"""
    return math.erf(x) / x if abs(x) > 1e-4 else 2 / math.sqrt(math.pi) * (1 - x * x / 3)


def square(x: float) -> float:
    return x * x


ROOT2, LN2, QUARTER = math.sqrt(2), math.log(2), math.pi / 4
TANH = (-1 / 3, 2 / 15, -17 / 315, 62 / 2835, -1382 / 155925, 21844 / 6081075)
TAN = tuple(abs(c) for c in TANH)
ATAN = tuple((-1) ** (k + 1) / (2 * k + 3) for k in range(14))

FITS = {
    "expm1(r) = r + r^2 p(r)": Fit(
        _expm1_rest, lambda r: abs(math.expm1(r)) / r**2 if r else 1e9, -LN2 / 2 - 1e-6, LN2 / 2 + 1e-6, 6
    ),
    "2^r = 1 + r p(r)": Fit(_exp2_rest, lambda r: 2.0**r / abs(r) if r else 1e9, -0.5, 0.5, 6),
    "log(1 + f) = f - f^2/2 + f^3 p(f)": Fit(
        _log_rest, lambda f: abs(math.log1p(f) / f**3) if f else 1e9, ROOT2 / 2 - 1, ROOT2 - 1, 9
    ),
    "log2(1 + f) = f log2(e) + f^2 p(f)": Fit(
        lambda f: (_log_rest(f) * f - 0.5) / LN2,
        lambda f: abs(math.log1p(f) / f**2) / LN2 if f else 1e9, ROOT2 / 2 - 1, ROOT2 - 1, 10,
    ),
    "log2((1 + s)/(1 - s)) = s p(s^2), in double": Fit(
        lambda s: 2 / LN2 * _series(s * s, 1, 2, 40, 1), lambda s: 2 / LN2,
        0.0, (ROOT2 - 1) / (ROOT2 + 1) + 1e-9, 7, square, False,
    ),
    "tanh(x) = x + x^3 p(x^2)": Fit(
        _rest(math.tanh, TANH, 3, 2), lambda x: math.tanh(x) / x**3, 1e-6, 0.28, 3, square
    ),
    "erf(x) = x + x p(x^2)": Fit(
        lambda x: _erf_ratio(x) - 1, _erf_ratio, 0.0, 0.9, 7, square
    ),
    "erf(x) = 1 - exp(p(x))": Fit(
        lambda x: math.log(math.erfc(x)), lambda x: math.erf(x) / math.erfc(x), 0.9, 4.0, 8
    ),
    "sin(r) = r + r^3 p(r^2)": Fit(
        _sinc_rest, lambda r: math.sin(r) / r**3, 1e-6, QUARTER + 1e-6, 4, square
    ),
    "cos(r) = 1 - r^2/2 + r^4 p(r^2)": Fit(
        lambda r: math.fsum((-1) ** k * r ** (2 * k) / math.factorial(2 * k + 4) for k in range(12)),
        lambda r: math.cos(r) / r**4, 1e-6, QUARTER + 1e-6, 3, square,
    ),
    "tan(r) = r + r^3 p(r^2), in double": Fit(
        _rest(math.tan, TAN, 3, 2), lambda r: math.tan(r) / r**3, 1e-6, QUARTER + 1e-6, 9, square, False
    ),
    "sinh(x) = x + x^3 p(x^2)": Fit(
        _sinh_rest, lambda x: math.sinh(x) / x**3, 1e-6, 1.0, 4, square
    ),
    "asin(x) = x + x^3 p(x^2)": Fit(
        _asin_rest, lambda x: math.asin(x) / x**3, 1e-6, 0.65, 7, square
    ),
    "atan(x) = x + x^3 p(x^2)": Fit(
        _rest(math.atan, ATAN, 3, 2), lambda x: math.atan(x) / x**3, 1e-6, 1.0, 9, square
    ),
}  # fmt: skip


# -- erf in eight pieces ---------------------------------------------------------------------------

#: The distance between the middles of the pieces: one for which their values are nearly floats.
ERF_STEP = float(np.float32(0.52683723))


def erf_pieces() -> list[tuple[list[float], float]]:
    """For each middle c the polynomial of t, erf(c + t), with its largest error; of the first one less t."""
    half = ERF_STEP / 2 + 1e-6
    first, error = fitted(Fit(lambda t: _erf_ratio(t) - 1, _erf_ratio, 0.0, half, 6))
    found = [([0.0, *first], error)]
    for middle in (k * ERF_STEP for k in range(1, 8)):
        value = partial(_erf_beyond, middle)
        found.append(fitted(Fit(value, value, -half, half, 7)))
    return found


def _erf_beyond(middle: float, t: float) -> float:
    return math.erf(middle + t)


# -- of vectors of doubles -------------------------------------------------------------------------


@dataclass(frozen=True)
class Wide:
    """A polynomial of ``place`` whose value is ``value`` on an interval; mpmath's numbers."""

    value: Callable[[Any], Any]
    size: Callable[[Any], Any]
    """The size of the function, to which errors are relative, over the factor of the polynomial."""
    low: Any
    high: Any
    terms: int
    place: Callable[[Any], Any] = lambda x: x
    back: Callable[[Any], Any] = lambda t: t
    """The inverse of ``place``."""


def interpolated(fit: Wide) -> tuple[list[float], float]:
    """The coefficients, and the largest error relative to ``size``."""
    low, high = fit.place(mp.mpf(fit.low)), fit.place(mp.mpf(fit.high))
    angles = [(2 * k + 1) * mp.pi / (2 * fit.terms) for k in range(fit.terms)]
    places = [(low + high) / 2 + (high - low) / 2 * mp.cos(a) for a in angles]
    powers = mp.matrix([[t**k for k in range(fit.terms)] for t in places])
    found = [float(c) for c in mp.lu_solve(powers, mp.matrix([fit.value(fit.back(t)) for t in places]))]
    worst = mp.mpf(0)
    for k in range(1, 401):
        x = fit.low + (fit.high - fit.low) * mp.mpf(k) / 401
        made = sum(c * fit.place(x) ** k for k, c in enumerate(found))
        worst = max(worst, abs((made - fit.value(x)) / fit.size(x)))
    return found, float(worst)


def wide_fits() -> dict[str, Wide]:
    half, quarter, ratio = mp.log(2) / 2 + mp.mpf(10) ** -9, mp.pi / 4 + 1e-9, 3 - 2 * mp.sqrt(2) + 1e-9

    def series(x: Any, first: int, step: int, sign: int) -> Any:
        """The sum of ``sign^k x^k / (first + step k)!``."""
        return sum(sign**k * x**k / mp.factorial(first + step * k) for k in range(45))

    def tail(s: Any, first: int) -> Any:
        """The sum of ``s^2k / (first + 2k)``."""
        return sum(s ** (2 * k) / mp.mpf(first + 2 * k) for k in range(60))

    return {
        "expm1(r) = r + r^2 p(r)": Wide(
            lambda r: series(r, 2, 1, 1), lambda r: abs(mp.expm1(r)) / r**2,
            -half, half + mp.mpf(10) ** -8, 11,
        ),
        "2^r = 1 + r p(r)": Wide(
            lambda r: mp.log(2) * series(r * mp.log(2), 1, 1, 1), lambda r: abs(2**r / r),
            -0.5 - 1e-9, 0.5 + 1e-9, 12,
        ),
        "log((1 + s)/(1 - s)) = 2 s + s z p(z)": Wide(
            lambda s: 2 * tail(s, 3), lambda s: 2 * tail(s, 1) / s**2, 0, ratio, 7, square, mp.sqrt
        ),
        "atanh(s) = s + s z/3 + s z^2 p(z)": Wide(
            lambda s: tail(s, 5), lambda s: tail(s, 1) / s**4, 0, ratio, 8, square, mp.sqrt
        ),
        "sin(r) = r + r^3 p(r^2)": Wide(
            lambda r: -series(r * r, 3, 2, -1), lambda r: mp.sin(r) / r**3, 0, quarter, 7, square, mp.sqrt
        ),
        "cos(r) = 1 - r^2/2 + r^4 p(r^2)": Wide(
            lambda r: series(r * r, 4, 2, -1), lambda r: mp.cos(r) / r**4, 0, quarter, 7, square, mp.sqrt
        ),
        "atan(t) = t + t^3 p(t^2)": Wide(
            lambda t: -sum((-1) ** k * t ** (2 * k) / mp.mpf(3 + 2 * k) for k in range(160)),
            lambda t: mp.atan(t) / t**3, 0, mp.sqrt(2) - 1 + mp.mpf(10) ** -9, 12, square, mp.sqrt,
        ),
        "asin(s) = s + s^3 p(s^2)": Wide(
            lambda s: sum(
                mp.binomial(2 * k, k) / 4**k / (2 * k + 1) * s ** (2 * k - 2) for k in range(1, 140)
            ),
            lambda s: mp.asin(s) / s**3, 0, mp.mpf(0.5) + mp.mpf(10) ** -9, 13, square, mp.sqrt,
        ),
        "erf(x) = x + x p(x^2)": Wide(
            lambda x: mp.erf(x) / x - 1, lambda x: mp.erf(x) / x, 0, 1, 14, square, mp.sqrt
        ),
        "erf(x) = 1 - exp(-x^2) p((x - 2)/(x + 3))": Wide(
            lambda x: mp.erfc(x) * mp.exp(x * x), lambda x: mp.erf(x) * mp.exp(x * x), 1, 6, 15,
            lambda x: (x - 2) / (x + 3), lambda t: (2 + 3 * t) / (1 - t),
        ),
    }  # fmt: skip


def main() -> None:
    for name, wide in wide_fits().items():
        found, error = interpolated(wide)
        print(f"{name}, of vectors of doubles: 2^{math.log2(error):.1f}")
        print("    " + ", ".join(f"{c:.17g}" for c in found))
    for number, (found, error) in enumerate(erf_pieces()):
        print(f"erf({number} c + t) = p(t): 2^{math.log2(error):.1f}")
        print("    " + ", ".join(f"{c:.9g}f" for c in found))
    for name, fit in FITS.items():
        found, error = fitted(fit)
        print(f"{name}: 2^{math.log2(error):.1f}")
        spelled = [f"{c:.9g}f" if fit.floats else f"{c:.17g}" for c in found]
        print("    " + ", ".join(spelled))


if __name__ == "__main__":
    main()

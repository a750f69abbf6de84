"""Functions without a divider: bit for bit, or within the stated error."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Context, Decimal, localcontext
from typing import Any

import numpy as np
import pytest
from perfdojo_riscv_snitch.codegen.functions import ACCURACY
from snitch_support import run

from perfdojo_sdk.core.text import parse

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(7)
SPECIAL = np.array(
    [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 5e-324, -5e-324, 2.0**-1022, 2.0**-1022 - 5e-324]
    + [np.finfo(float).max, -np.finfo(float).max, 1.5, 3.0, 0.1]
)


def any_bits(count: int, dtype: str) -> Array:
    """Numbers of every exponent, NaNs and infinities among them."""
    whole, real = (np.uint64, np.float64) if dtype == "f64" else (np.uint32, np.float32)
    return RNG.integers(0, np.iinfo(whole).max, count, whole, endpoint=True).view(real)


def on_the_core(formula: str, x: Array, z: Array) -> Array:
    dtype = {8: "f64", 4: "f32"}[x.itemsize]
    arrays = "".join(f"{name} {dtype} [{x.size}] heap\n" for name in "xzy")
    program = parse(f"kernel k(x, z) -> y\n{arrays}\n{x.size} y[{{0}}] = {formula}\n")
    return run(program, {"x": x, "z": z}).outputs["y"]


def same_bits(got: Array, wanted: Array) -> None:
    both_nan = np.isnan(got) & np.isnan(wanted)
    wrong = np.flatnonzero(~(both_nan | ((got == wanted) & (np.signbit(got) == np.signbit(wanted)))))
    assert not wrong.size, [(got[k], wanted[k]) for k in wrong[:5]]


def pairs() -> dict[str, tuple[Array, Array]]:
    mantissas = 1 + RNG.random(800)
    one, other = np.meshgrid(SPECIAL, SPECIAL)
    return {
        "special": (one.ravel(), other.ravel()),
        "any bits": (any_bits(1500, "f64"), any_bits(1500, "f64")),
        "any bits, f32": (any_bits(1500, "f32"), any_bits(1500, "f32")),
        "mantissas": (mantissas, 1 + RNG.random(800)),
        "mantissas of ones": (mantissas, np.nextafter(2.0 ** np.arange(1, 801), 0)),
        "powers by mantissas of ones": (
            2.0 ** RNG.integers(-9, 9, 800),
            np.nextafter(2.0 ** np.arange(1, 801), 0),
        ),
        "denormal quotients": (mantissas * 2.0**-1000, mantissas[::-1] * 2.0 ** RNG.integers(20, 80, 800)),
        "ties between denormals": (RNG.integers(1, 200, 800) * 5e-324, RNG.integers(1, 64, 800) * 1.0),
        "denormals, f32": ((RNG.random(800) * 1e-38).astype(np.float32), (mantissas * 9).astype(np.float32)),
    }


@pytest.mark.parametrize("name", pairs())
def test_division_is_exactly_rounded(name: str) -> None:
    x, z = pairs()[name]
    with np.errstate(all="ignore"):
        same_bits(on_the_core("x[{0}] / z[{0}]", x, z), x / z)


@pytest.mark.parametrize(
    "x",
    [SPECIAL, np.abs(any_bits(1000, "f64")), 1 + 3 * RNG.random(1000)],
    ids=["special", "any bits", "1 to 4"],
)
def test_square_root_is_exactly_rounded(x: Array) -> None:
    with np.errstate(all="ignore"):
        same_bits(on_the_core("sqrt(x[{0}])", x, x), np.sqrt(x))
        single = x.astype(np.float32)
        same_bits(on_the_core("sqrt(x[{0}])", single, single), np.sqrt(single))


def exact_erf(x: Array) -> Array:
    """By its power series in 60 digits."""
    with localcontext(Context(prec=60)):
        scale = 2 / Decimal("3.14159265358979323846264338327950288419716939937510582097494459").sqrt()
        found = []
        for number in map(Decimal, map(float, x)):
            term, total, k = number, number, 0
            while abs(term) > Decimal("1e-40") * abs(total):
                k += 1
                term = -term * number * number / k
                total += term / (2 * k + 1)
            high = float(scale * total)
            found.append(np.longdouble(high) + np.longdouble(float(scale * total - Decimal(high))))
    return np.array(found)


EXACT: dict[str, Callable[[Array], Array]] = {"exp": np.exp, "log": np.log, "tanh": np.tanh, "erf": exact_erf}
RANGES = {
    "exp": [(-750, 715), (-2, 2), (-745.2, -708)],
    "log": [(1e-3, 20), (0.9, 1.1), (0.7, 1.5), (1e-42, 1e-38)],
    "tanh": [(-1, 1), (-25, 25), (0.6, 0.8), (-1e-8, 1e-8)],
    "erf": [(-1, 1), (0.9, 2.4), (-6.2, 6.2)],
}


@pytest.mark.parametrize(("name", "low", "high"), [(n, *ends) for n, all in RANGES.items() for ends in all])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_functions_keep_their_stated_error(name: str, low: float, high: float, dtype: type) -> None:
    x = RNG.uniform(low, high, 300 if name == "erf" else 1000)
    with np.errstate(all="ignore"):
        x = np.concatenate([[] if name == "erf" else SPECIAL, x]).astype(dtype)
        got, exact = on_the_core(f"{name}(x[{{0}}])", x, x), EXACT[name](x.astype(np.longdouble))
        rounded = exact.astype(dtype)
        np.testing.assert_array_equal(np.isnan(got), np.isnan(rounded))
        np.testing.assert_array_equal(np.isinf(got), np.isinf(rounded))
        finite = np.isfinite(rounded)
        ulp = np.spacing(np.abs(rounded[finite])).astype(np.longdouble)
        error = np.abs(got[finite].astype(np.longdouble) - exact[finite]) / ulp
    assert error.max() <= ACCURACY[name]


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_functions_of_zeros_infinities_and_what_is_no_number(dtype: type) -> None:
    x = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0], dtype)
    with np.errstate(all="ignore"):
        same_bits(on_the_core("log(x[{0}])", x, x)[:6], np.log(x)[:6])
    ends = np.array([0.0, -0.0, 1, -1, np.nan], dtype)
    for name in ("tanh", "erf"):
        same_bits(on_the_core(f"{name}(x[{{0}}])", x, x)[:5], ends)


def test_several_functions_with_tables_in_one_kernel() -> None:
    x, z = RNG.random(20), 1 + RNG.random(20)
    got = on_the_core("log(z[{0}]) * tanh(x[{0}] + 1) + exp(x[{0}]) / erf(z[{0}])", x, z)
    wanted = np.log(z) * np.tanh(x + 1) + np.exp(x) / exact_erf(z).astype(float)
    np.testing.assert_allclose(got, wanted, rtol=1e-14)


def test_several_functions_in_one_kernel() -> None:
    x, z = RNG.random(20), 1 + RNG.random(20)
    got = on_the_core("sqrt(x[{0}]) / (exp(-z[{0}]) + x[{0}] / z[{0}]) + z[{0}]", x, z)
    np.testing.assert_allclose(got, np.sqrt(x) / (np.exp(-z) + x / z) + z, rtol=1e-14)

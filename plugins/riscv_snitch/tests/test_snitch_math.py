"""Division, square root and exponential without a divider: bit for bit, or within the stated error."""

from __future__ import annotations

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


@pytest.mark.parametrize(("low", "high"), [(-750, 715), (-2, 2), (-745.2, -708)])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_exp_keeps_its_stated_error(low: float, high: float, dtype: type) -> None:
    x = np.concatenate([SPECIAL, RNG.uniform(low, high, 1000)])
    with np.errstate(all="ignore"):
        x = x.astype(dtype)
        got, exact = on_the_core("exp(x[{0}])", x, x), np.exp(x.astype(np.longdouble))
        rounded = exact.astype(dtype)
        np.testing.assert_array_equal(np.isnan(got), np.isnan(rounded))
        np.testing.assert_array_equal(np.isinf(got), np.isinf(rounded))
        finite = np.isfinite(rounded)
        ulp = np.spacing(np.abs(rounded[finite])).astype(np.longdouble)
        error = np.abs(got[finite].astype(np.longdouble) - exact[finite]) / ulp
    assert error.max() <= ACCURACY["exp"]


def test_several_functions_in_one_kernel() -> None:
    x, z = RNG.random(20), 1 + RNG.random(20)
    got = on_the_core("sqrt(x[{0}]) / (exp(-z[{0}]) + x[{0}] / z[{0}]) + z[{0}]", x, z)
    np.testing.assert_allclose(got, np.sqrt(x) / (np.exp(-z) + x / z) + z, rtol=1e-14)

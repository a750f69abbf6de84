"""Integers of 32 bits are right as far as they go, and refused beyond; so is code longer than a branch."""

from __future__ import annotations

import numpy as np
import pytest
from perfdojo_riscv_snitch.codegen.bounds import Bounds
from perfdojo_riscv_snitch.codegen.limits import WIDTH, Refused
from snitch_support import PLUGINS, compiled, run

from perfdojo_sdk.core.errors import UnavailableError
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.core.text import parse

DIALECT = PLUGINS.target("riscv_snitch").dialect
X = np.random.default_rng(0).standard_normal(2000).astype(np.float32)
ROW = np.arange(2000)


def program(body: str) -> Program:
    return parse(f"kernel k(x) -> y\nx f32 [2000] heap\ny f32 [2000] heap\n\n{body}\n", DIALECT)


#: A statement, and the largest factor with which all its numbers fit.
FACTORS = {
    "2000 y[{0}] = x[0] + index({0}*FACTOR)": (2**31 - 1) // 1999,
    "2000 y[{0}] = x[0] + index(({0}*FACTOR)//5000)": (2**31 - 1) // 1999,
    "2000 y[{0}] = x[({0}*FACTOR)%2000]": (2**30 - 1) // (4 * 1999),
    "2000 y[{0}] = x[{0}*FACTOR] if {0}*FACTOR <= 1999": (2**30 - 1) // (4 * 1999),
}


def expected(body: str, factor: int) -> np.ndarray:
    product = ROW * factor
    if "//" in body:
        return np.float32(X[0]) + (product // 5000).astype(np.float32)
    if "%" in body:
        return X[product % 2000]
    return np.float32(X[0]) + product.astype(np.float32)


@pytest.mark.parametrize("body", list(FACTORS)[:3])
def test_numbers_that_just_fit_are_right(body: str) -> None:
    factor = FACTORS[body]
    got = run(program(body.replace("FACTOR", str(factor))), {"x": X}).outputs
    assert got is not None
    np.testing.assert_array_equal(got["y"], expected(body, factor))


@pytest.mark.parametrize("body", FACTORS)
def test_numbers_that_do_not_fit_are_refused_by_generator_and_veto(body: str) -> None:
    guarded = "2000 y[{0}] = 0\n" if " if " in body else ""
    beyond = program(guarded + body.replace("FACTOR", str(4 * FACTORS[body])))
    with pytest.raises(UnavailableError, match="needs more than 32 bits \\(SNITCH-118\\)"):
        compiled(beyond)
    with pytest.raises(Refused) as refused:
        Bounds(DIALECT).check(beyond)
    assert refused.value.requirement is WIDTH and "reaches" in refused.value.why


def test_conditions_compare_in_32_bits() -> None:
    """One side less the other is what is looked at."""
    just = "2000 y[{0}] = 0\n2000 y[{0}] = x[{0}] if {0}*1000000 >= 147000000"
    got = run(program(just), {"x": X}).outputs
    assert got is not None
    np.testing.assert_array_equal(got["y"], np.where(ROW * 1000000 >= 147000000, X, 0))
    with pytest.raises(UnavailableError, match="SNITCH-118"):
        compiled(program(just.replace("147000000", "148600000")))


@pytest.mark.parametrize("loops", ["2 64:u", "2 2 32:u"])
def test_a_body_longer_than_a_branch_reaches(loops: str) -> None:
    """64 copies of exp do not fit between a loop's end and its start, nor does a condition around 32."""
    subscripts = "{0},{1}" if loops.count(" ") == 1 else "{0},{1}*32+{2}"
    head = "kernel far(x) -> y\nx f32 [2,64] heap\ny f32 [2,64] heap\n\n"
    far = parse(head + f"{loops} y[{subscripts}] = exp(x[{subscripts}])\n", DIALECT)
    plain = parse(head + "2 64 y[{0},{1}] = exp(x[{0},{1}])\n", DIALECT)
    x = X[:128].reshape(2, 64)
    one, other = run(far, {"x": x}), run(plain, {"x": x})
    assert one.outputs is not None and other.outputs is not None
    np.testing.assert_array_equal(one.outputs["y"], other.outputs["y"])
    assert one.seconds and other.seconds and min(one.seconds) < min(other.seconds)

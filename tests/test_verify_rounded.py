"""Leg 2 of programs on f16 and bf16: results of operations are rounded to them, and to nothing shorter."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from perfdojo_sdk.codegen.c import CEmitter
from perfdojo_sdk.core.dialect import CORE_DIALECT
from perfdojo_sdk.core.domains import rounded
from perfdojo_sdk.core.dtypes import largest
from perfdojo_sdk.core.errors import UnavailableError, VerificationError
from perfdojo_sdk.core.text import parse
from perfdojo_sdk.hookspecs.types import Artifact
from perfdojo_sdk.measure.kernel_calls import carry, numbers
from perfdojo_sdk.measure.native_runner import NativeRunner
from perfdojo_sdk.verify.coverage import _next
from perfdojo_sdk.verify.inputs import FLOAT_CLASSES, draw
from perfdojo_sdk.verify.numeric import NumericReport, verify_numeric
from perfdojo_sdk.verify.reference_c import BOUNDED, reference

RUNNER = NativeRunner(("-O1",), forks=True)
HEAD = "kernel k(x, z) -> y\nx H [4,12] heap\nz H [4,12] heap\ny H [4,12] heap\n\n"
AXPY = HEAD + "4 12 y[{0},{1}] = x[{0},{1}] * z[{0},{1}] + x[{0},{1}]\n"
SUM = """kernel k(x, z) -> y
x H [4,12] heap
z H [4,12] heap
s f32 [4] heap
y H [4] heap

4 s[{0}] = 0
4 12 s[{0}] += f32(x[{0},{1}]) * f32(z[{0},{1}])
4 y[{0}] = H(s[{0}])
"""


def checked(text: str, dtype: str, found: str = "", made: str = "") -> NumericReport:
    """Leg 2 for a program and its code, in which ``made`` replaces the pattern ``found``."""
    root = parse(text.replace(" H ", f" {dtype} ").replace("H(", f"{dtype}("))
    source = CEmitter(root, "pd_k", CORE_DIALECT).source()
    code = re.sub(found, made, source.code) if found else source.code
    assert not found or code != source.code
    artifact = RUNNER.compile(replace(source, code=code))
    assert isinstance(artifact, Artifact), artifact
    return verify_numeric(root, root, artifact, RUNNER, {}, CORE_DIALECT, forks=True)


@pytest.mark.parametrize(("text", "dtype"), [(AXPY, "bf16"), (SUM, "bf16"), (AXPY, "f16")])
def test_what_the_generator_makes_passes_on_all_inputs(text: str, dtype: str) -> None:
    report = checked(text, dtype)
    assert report.ok, report.problem
    assert {each.name for each in report.classes if not each.skipped} >= set(FLOAT_CLASSES)
    assert 0.05 < report.worst <= 1, "the bound is that of the roundings that happen, and little more"


WRONG = {
    "one digit less": (AXPY, r"= pd_H_from_f32\((.*)\);", r"= pd_H_of(pd_H_from_f32(\1).bits & 0xfffe);"),
    "never infinite": (AXPY, r"= pd_H_from_f32\((.*)\);", r"= pd_H_from_f32(__builtin_fminf(\1, PD_MOST));"),
    "a short sum": (SUM, r"(s\[\w+\]) \+= (.*);", r"\1 = pd_f32_from_H(pd_H_from_f32(\1 + \2));"),
}


@pytest.mark.parametrize(("fault", "dtype"), [*((fault, "bf16") for fault in WRONG), ("a short sum", "f16")])
def test_what_is_wrong_by_more_fails(fault: str, dtype: str) -> None:
    text, found, made = WRONG[fault]
    made = made.replace("PD_MOST", f"{largest(dtype)!r}f").replace("H", dtype)
    assert not checked(text, dtype, found.replace("H", dtype), made).ok


@pytest.mark.parametrize(("source", "target"), [("bf16", "f16"), ("f16", "tf32")])
def test_a_conversion_between_two_short_dtypes_rounds_if_one_lacks_numbers_of_the_other(
    source: str, target: str
) -> None:
    """f16 has more digits than bf16, and fewer exponents; tf32 has all numbers of both."""
    text = f"kernel k(x) -> y\nx {source} [48] heap\ny f32 [48] heap\n\n"
    report = checked(text + f"48 y[{{0}}] = f32({target}(x[{{0}}]))\n", source)
    assert report.ok, report.problem
    assert (report.worst > 0) == (target != "tf32")


@pytest.mark.parametrize("name", FLOAT_CLASSES)
def test_inputs_of_bf16_are_numbers_of_it(name: str) -> None:
    drawn = draw(name, parse(AXPY.replace(" H ", " bf16 ")), 1)
    assert {array.dtype for array in drawn.values()} == {np.dtype(np.uint16)}
    values = np.concatenate([numbers(array, "bf16").ravel() for array in drawn.values()])
    finite = values[np.isfinite(values)]
    assert len(np.unique(finite)) > 10 and all(rounded(float(v), "bf16") == v for v in finite[:50])


def test_numbers_of_bf16_are_carried_as_bits() -> None:
    given = np.array([1.0, 1 + 2.0**-8, 1 + 3 * 2.0**-8, -0.0, np.inf, np.nan, 3.4e38, 1e-40], np.float32)
    bits = np.empty(8, np.uint16)
    carry(given, bits, "bf16")
    np.testing.assert_array_equal(numbers(bits, "bf16"), [rounded(float(v), "bf16") for v in given])
    ones = np.array([1.0, -1.0, 0.5], np.float32)
    np.testing.assert_array_equal(_next(ones, 0, "bf16"), [1 - 2.0**-8, -(1 - 2.0**-8), 0.5 - 2.0**-9])
    np.testing.assert_array_equal(_next(ones, np.inf, "bf16"), [1 + 2.0**-7, -(1 - 2.0**-8), 0.5 + 2.0**-8])


def test_the_caller_gets_no_tf32() -> None:
    root = parse("kernel k(x) -> y\nx tf32 [4] heap\ny f32 [4] heap\n\n4 y[{0}] = f32(x[{0}])\n")
    with pytest.raises(UnavailableError, match="interface") as unavailable:
        CEmitter(root, "pd_k", CORE_DIALECT)
    assert unavailable.value.code == "PD-C001"
    with pytest.raises(VerificationError, match="interface") as refused:
        reference(root, BOUNDED, {}, CORE_DIALECT)
    assert refused.value.code == "PD-V020"

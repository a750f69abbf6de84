"""Floats that are only stored: their codes beside another implementation, and what every engine makes of
them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from perfdojo_sdk.codegen.c import CEmitter
from perfdojo_sdk.core.dialect import CORE_DIALECT
from perfdojo_sdk.core.domains import FLOAT64, ROUNDING
from perfdojo_sdk.core.dtypes import CODED_DTYPES, UNCOMPUTED_DTYPES, bits, integer_bounds
from perfdojo_sdk.core.errors import DojoError, ProgramError
from perfdojo_sdk.core.formats import POWERS, decode, encode, numbers, zeros_of
from perfdojo_sdk.core.interpreter import interpret
from perfdojo_sdk.core.text import parse
from perfdojo_sdk.hookspecs.types import Artifact, Measurement, RunRequest
from perfdojo_sdk.measure.native_runner import NativeRunner
from perfdojo_sdk.verify.inputs import FLOAT_CLASSES, draw
from perfdojo_sdk.verify.numeric import verify_numeric

RUNNER = NativeRunner(("-O1",))
#: Our dtypes -> those of the package ml_dtypes.
THEIRS = {
    "f8e4m3fn": ml_dtypes.float8_e4m3fn,
    "f8e5m2": ml_dtypes.float8_e5m2,
    "f8e4m3fnuz": ml_dtypes.float8_e4m3fnuz,
    "f8e5m2fnuz": ml_dtypes.float8_e5m2fnuz,
    "f4e2m1": ml_dtypes.float4_e2m1fn,
    "f8e8m0": ml_dtypes.float8_e8m0fnu,
}


def test_each_coded_dtype_is_compared() -> None:
    assert THEIRS.keys() == set(CODED_DTYPES)


def floats(dtype: str) -> np.ndarray:
    """Every number of f16 and of bf16, numbers of f32 of all magnitudes, and each middle with its
    neighbours.
    """
    half = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)
    brain = (np.arange(1 << 16, dtype=np.uint32) << 16).view(np.float32)
    rng = np.random.default_rng(7)
    drawn = rng.integers(0, 1 << 32, 1 << 14, dtype=np.uint32).view(np.float32)
    every = np.array(numbers(dtype))
    finite = np.sort(every[np.isfinite(every)])
    beyond = 2 * finite[-1] - finite[-2]
    middles = np.concatenate([(finite[1:] + finite[:-1]) / 2, [(finite[-1] + beyond) / 2]]).astype(np.float32)
    middles = np.concatenate([middles, -middles])
    near = [np.nextafter(middles, np.float32(side)) for side in (np.inf, -np.inf)]
    return np.concatenate([half, brain, drawn, middles, *near, [np.float32(np.inf), -np.float32(np.inf)]])


def nearest(values: np.ndarray, dtype: str) -> np.ndarray:
    """The codes by ml_dtypes, with one code for all NaN."""
    with np.errstate(all="ignore"):
        codes = values.astype(THEIRS[dtype]).view(np.uint8)
    none = np.isnan(np.array(numbers(dtype))[codes]) | np.isnan(values)
    codes = np.where(none, np.uint8(encode(math.nan, dtype)), codes)
    if dtype == POWERS:
        # There, denormal floats above 2^-127 are all rounded up, also those nearer to 2^-127.
        codes = np.where((values > 2.0**-127) & (values < 1.5 * 2.0**-127), 0, codes)
    return codes


@pytest.mark.parametrize("dtype", CODED_DTYPES)
def test_codes_are_those_of_another_implementation(dtype: str) -> None:
    theirs = np.arange(1 << bits(dtype), dtype=np.uint8).view(THEIRS[dtype]).astype(np.float64)
    assert np.array_equal(theirs, np.array(numbers(dtype)), equal_nan=True)
    assert np.array_equal(np.signbit(theirs[theirs == 0]), [code > 0 for code in zeros_of(dtype)])
    values = floats(dtype)
    ours = np.array([encode(value, dtype) for value in values.tolist()], np.uint8)
    assert np.array_equal(ours, nearest(values, dtype))


@pytest.mark.parametrize("dtype", CODED_DTYPES)
def test_each_number_has_its_code(dtype: str) -> None:
    for code, number in enumerate(numbers(dtype)):
        assert encode(number, dtype) == code or math.isnan(number)
        assert decode(code, dtype) is number


def test_a_double_is_rounded_once() -> None:
    # Just above the middle of 1 and 1.125, by less than f32 has digits.
    value = 1.0625 + 2.0**-40
    assert (
        encode(value, "f8e4m3fn") == encode(1.125, "f8e4m3fn") != encode(float(np.float32(value)), "f8e4m3fn")
    )
    assert encode(1e300, POWERS) == 255 and encode(1e-300, POWERS) == 0


# -- the language ----------------------------------------------------------------------------------

QUANTISED = """\
kernel quantised(x, s) -> y, z
x f32 [3,40] heap
s f8e8m0 [3] heap
y f8e4m3fn [3,40] heap
z f32 [3,40] heap

3 40 y[{0},{1}] = f8e4m3fn(x[{0},{1}] / f32(s[{0}]))
3 40 z[{0},{1}] = f32(y[{0},{1}]) * f32(s[{0}])
"""


def one(dtype: str, statement: str, source: str = "f32") -> str:
    return f"kernel one(x) -> y\nx {source} [4] heap\ny {dtype} [4] heap\n\n{statement}\n"


@pytest.mark.parametrize(
    ("text", "words", "hint"),
    [
        (one("f8e5m2", "4 y[{0}] = x[{0}] + x[{0}]", "f8e5m2"), "add has no meaning for f8e5m2", "f32(x)"),
        (one("f8e5m2", "4 y[{0}] = -x[{0}]", "f8e5m2"), "neg has no meaning for f8e5m2", "compute in f32"),
        (one("f8e5m2", "4 y[{0}] = select({0} < 2, x[{0}], x[0])", "f8e5m2"), "select has no meaning", ""),
        (
            one("f8e5m2", "4 y[{0}] = x[{0}]\n4 y[{0}] += x[{0}]", "f8e5m2"),
            "f8e5m2 does not accumulate by add",
            "f32",
        ),
        (one("f8e5m2", "4 y[{0}] = 1"), "a number has no dtype f8e5m2", "write f8e5m2(1)"),
        (one("f8e5m2", "4 y[{0}] = -inf"), "a number has no dtype f8e5m2", "write f8e5m2(-inf)"),
        (one("f8e5m2", "4 y[{0}] = {0}"), "{0} has no dtype f8e5m2", ""),
        (one("f8e5m2", "4 y[{0}] = x[{0}]"), "x[{0}] is f32 where f8e5m2 is needed", "f8e5m2(x[{0}])"),
        (one("f8e5m2", "4 y[{0}] = f8e5m2(x[{0}])", "i32"), "i32 and f8e5m2 meet in a float only", ""),
        (one("i32", "4 y[{0}] = i32(x[{0}])", "f8e5m2"), "f8e5m2 and i32 meet in a float only", ""),
        (one("bool", "4 y[{0}] = bool(x[{0}])", "f8e5m2"), "f8e5m2 and bool meet in a float only", ""),
        (one("f8e5m2", "4 y[{0}] = f8e5m2(x[{0}])", "f8e8m0"), "f8e8m0 and f8e5m2 meet in a float only", ""),
    ],
)
def test_nothing_is_computed_in_codes(text: str, words: str, hint: str) -> None:
    with pytest.raises(ProgramError) as caught:
        parse(text)
    assert caught.value.code == "PD-P010" and words in caught.value.what and hint in caught.value.hint


def test_numbers_and_iterators_are_converted_from_f32() -> None:
    text = one("f8e4m3fn", "4 y[{0}] = f8e4m3fn({0} * 0.4 - 1)")
    program = parse(text)
    assert parse(str(program)) == program
    expected = [encode(float(np.float32(k) * np.float32(0.4) - 1), "f8e4m3fn") for k in range(4)]
    assert interpret(program, {"x": [0.0] * 4}, ROUNDING)["y"] == expected


def test_an_array_may_have_the_name_of_a_coded_dtype() -> None:
    """Stored programs are older than these dtypes."""
    text = "kernel k(f8e5m2) -> y\nf8e5m2 f32 [4] heap\ny f8e5m2 [4] heap\n\n4 y[{0}] = f8e5m2(f8e5m2[{0}])\n"
    assert interpret(parse(text), {"f8e5m2": [1.0, 2.0, 0.3, -1e9]}, ROUNDING)["y"] == [
        encode(v, "f8e5m2") for v in (1.0, 2.0, 0.3, -1e9)
    ]


def test_the_engines_round_once() -> None:
    text = one("f8e4m3fn", "4 y[{0}] = f8e4m3fn(x[{0}])", "f64")
    value = 1.0625 + 2.0**-40
    for domain in (FLOAT64, ROUNDING):
        assert interpret(parse(text), {"x": [value] * 4}, domain)["y"] == [encode(value, "f8e4m3fn")] * 4


# -- compiled code ---------------------------------------------------------------------------------


def compiled(text: str, inputs: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
    """The outputs of plain C."""
    artifact = RUNNER.compile(CEmitter(parse(text), "k", CORE_DIALECT).source())
    assert isinstance(artifact, Artifact), artifact
    run = RUNNER.run(artifact, RunRequest(inputs=inputs))
    assert isinstance(run, Measurement) and run.outputs is not None, run
    return run.outputs


def test_compiled_code_converts_as_another_implementation_does() -> None:
    values = {dtype: floats(dtype) for dtype in CODED_DTYPES}
    wide = np.array([1.0625 + 2.0**-40, 1.0625 - 2.0**-40, 3e-46, -3e-46, 1e300, -1e300, np.nan])
    arrays, lines = {}, []
    for dtype, given in values.items():
        arrays |= {f"x_{dtype}": ("f32", given.size), f"y_{dtype}": (dtype, given.size)}
        codes = 1 << bits(dtype)
        arrays |= {
            f"c_{dtype}": (dtype, codes),
            f"n_{dtype}": ("f32", codes),
            f"w_{dtype}": (dtype, wide.size),
        }
        lines += [
            f"{given.size} y_{dtype}[{{0}}] = {dtype}(x_{dtype}[{{0}}])",
            f"{codes} n_{dtype}[{{0}}] = f32(c_{dtype}[{{0}}])",
            f"{wide.size} w_{dtype}[{{0}}] = {dtype}(wide[{{0}}])",
        ]
    arrays["wide"] = ("f64", wide.size)
    inputs = [name for name in arrays if name[0] in "xc" or name == "wide"]
    head = f"kernel k({', '.join(inputs)}) -> {', '.join(n for n in arrays if n not in inputs)}"
    declared = [f"{name} {dtype} [{size}] heap" for name, (dtype, size) in arrays.items()]
    given = {f"x_{dtype}": each for dtype, each in values.items()}
    given |= {f"c_{dtype}": np.arange(1 << bits(dtype), dtype=np.uint8) for dtype in CODED_DTYPES} | {
        "wide": wide
    }
    found = compiled("\n".join([head, *declared, "", *lines, ""]), given)
    for dtype in CODED_DTYPES:
        assert np.array_equal(found[f"y_{dtype}"], nearest(values[dtype], dtype)), dtype
        same = np.array(numbers(dtype), np.float32)
        assert np.array_equal(found[f"n_{dtype}"], same, equal_nan=True), dtype
        assert np.array_equal(np.signbit(found[f"n_{dtype}"][same == 0]), np.signbit(same[same == 0]))
        assert found[f"w_{dtype}"].tolist() == [encode(v, dtype) for v in wide.tolist()], dtype


# -- verification ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "replaced"),
    [
        ("", ("$", "")),
        ("ties away from zero", (r"- 1 \+ \(size >> \(23 - FRACTION\) & 1\)", "")),
        ("no denormal numbers", (r"sum\.bits - step\.bits :", "0 :")),
        ("saturated", (r"SIGNED \? BEYOND \| sign : NOT", "LARGEST | sign")),
        ("powers cut off", (r"u\.bits >> 22 & 1 :", "0 :")),
        ("NaN read as a number", (r"size > LARGEST \|\|", "size > 0xff ||")),
    ],
)
def test_the_numeric_leg_sees_a_wrong_conversion(fault: str, replaced: tuple[str, str]) -> None:
    pattern, instead = replaced
    text = QUANTISED.replace("-> y, z", "-> y, z, t").replace("\n\n", "\nt f8e8m0 [3,40] heap\n\n", 1)
    program = parse(text + "3 40 t[{0},{1}] = f8e8m0(x[{0},{1}])\n")
    source = CEmitter(program, "k", CORE_DIALECT).source()
    header, count = re.subn(pattern, lambda _: instead, source.support["pd_types.h"])
    assert count, "the fault is not in the header"
    artifact = RUNNER.compile(replace(source, support={**source.support, "pd_types.h": header}))
    assert isinstance(artifact, Artifact), artifact
    report = verify_numeric(program, program, artifact, RUNNER, {}, CORE_DIALECT, forks=True)
    assert report.ok == (not fault) and ("expected" in report.problem) == bool(fault), report.problem


def test_a_generator_without_conversions_says_so() -> None:
    class Without(CEmitter):
        computes_halves = False

    for text in (QUANTISED, one("f32", "4 y[{0}] = f32(f8e5m2(x[{0}]))")):
        with pytest.raises(DojoError) as caught:
            Without(parse(text), "k", CORE_DIALECT)
        assert caught.value.code == "PD-C001" and "f8e" in caught.value.what and caught.value.hint


def test_inputs_of_the_numeric_leg_are_values_of_their_dtype() -> None:
    arrays = {dtype: f"x_{dtype}" for dtype in UNCOMPUTED_DTYPES}
    computed = [f"f32({name}[{{0}},{{1}}])" for name in arrays.values()]
    program = parse(
        "\n".join(
            [
                f"kernel k({', '.join(arrays.values())}) -> y",
                *(f"{name} {dtype} [12,40] heap" for dtype, name in arrays.items()),
                "y f32 [12] heap\n",
                f"12\n| y[{{0}}] = 0\n| 40 y[{{0}}] += {' + '.join(computed)}\n",
            ]
        )
    )
    seen: dict[str, set[int]] = {dtype: set() for dtype in arrays}
    for name in FLOAT_CLASSES:
        for number in range(4):
            drawn = draw(name, program, 0, number=number)
            for dtype, array in arrays.items():
                seen[dtype] |= set(drawn[array].ravel().tolist())
    for dtype, values in seen.items():
        low, high = integer_bounds(dtype)
        assert low <= min(values) and max(values) <= high, dtype
        assert len(values) > (high - low) * 0.9, dtype

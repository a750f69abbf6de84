"""Largest errors of mathematical functions in emitted kernels, over every f32.

    python benchmarks/functions.py --targets x86_avx512 x86_avx2 --state build/functions.json
    python benchmarks/functions.py --targets arm_neon --samples 20 --functions sin pow
    python benchmarks/functions.py --targets x86_avx512 x86_avx2 --dtypes f64 f16 bf16 --samples 22

Each function of one operand is computed by a kernel of the target, on vectors and one by one, for all 2^32
bit patterns, a range of 2^26 after the other. The state is saved after each range, and a later run goes on
from there. With ``--samples N`` it is 2^N patterns, drawn from a seed, with the neighbourhoods of special
values; emulated targets take no others. Functions of two operands take a grid with every pair of exponents
and signs. With ``--dtypes``, functions of other dtypes: of f16 and bf16 all numbers, of f64 2^N drawn ones.

The exact value is that of the C library in double, which is compared with mpmath's on a sample. The state
holds for each kernel the largest error in ulp, where it was met, the number of wrong results (an infinity or
NaN where the exact value is a number, or the reverse), and a digest of all results; the same code on the same
kind of processor gives the same digest, in which every NaN is the same.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import json
import math
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from perfdojo_sdk.core.operations import OPERATIONS
from perfdojo_sdk.core.text import parse
from perfdojo_sdk.hookspecs.types import Artifact, Failure, Runner, RunRequest, Target
from perfdojo_sdk.measure.emulated_runner import EmulatedRunner
from perfdojo_sdk.measure.kernel_calls import numbers
from perfdojo_sdk.measure.native_runner import NativeRunner
from perfdojo_sdk.measure.toolchain import find_toolchain
from perfdojo_sdk.plugins import load_plugins
from perfdojo_sdk.plugins.registry import Plugins

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]

FUNCTIONS = (
    "exp", "exp2", "expm1", "log", "log2", "log1p", "tanh", "erf", "sigmoid", "sin", "cos", "tan",
    "rsqrt", "sqrt", "cbrt", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh", "pow",
    "floor", "ceil", "trunc", "round",
)  # fmt: skip

#: Cells of a call, and calls of a range.
CELLS, CALLS = 1 << 18, 1 << 8
#: Cells of a call of another dtype.
CALLED = 1 << 16
RANGE = CELLS * CALLS
RANGES = (1 << 32) // RANGE
#: Pairs of significands for each pair of exponents and signs.
SIGNIFICANDS = 16
#: Patterns on each side of a special value that samples hold.
AROUND = 512

SPECIAL = (
    0.0, 1.0, 0.5, 0.625, 0.65, 0.9, 2.0, 4.0, 89.0, 88.722839, 87.336548, 103.97208, 104.0,
    128.0, 126.0, 149.0, 150.0, 9.010913, 1.17549435e-38, 3.4028235e38, 2.0**20, 2.0**22, 2.0**23, 2.0**24,
    8192.0, 2.0**-11, 1e-8, math.inf, *(k * math.pi / 4 for k in range(1, 17)), 0.70710678, 1.41421356,
)  # fmt: skip


# -- the kernels -----------------------------------------------------------------------------------


def program(names: Sequence[str], lanes: int, cells: int, dtype: str = "f32") -> str:
    """Functions on arrays ``x`` and ``z``, in lockstep scopes of so many lanes; 1: in a plain loop."""
    operands = ["x", "z"][: max(OPERATIONS[name].arity for name in names)]
    outputs = [f"y{k}" for k in range(len(names))]
    declared = "".join(f"{a} {dtype} [{cells}] heap\n" for a in (*operands, *outputs))
    scopes, place = ("", "{0}") if lanes == 1 else (f"{lanes}:v ", f"{{0}}*{lanes}+{{1}}")
    read = [f"{array}[{place}]" for array in operands]
    called = [
        f"| {scopes}y{k}[{place}] = {name}({', '.join(read[: OPERATIONS[name].arity])})\n"
        for k, name in enumerate(names)
    ]
    head = f"kernel k({', '.join(operands)}) -> {', '.join(outputs)}"
    return f"{head}\n{declared}\n{cells // lanes}\n{''.join(called)}"


@dataclass(frozen=True)
class Kernel:
    """Functions of float arrays as a target computes them."""

    key: str
    call: Callable[[Sequence[Floats]], list[Floats]]
    """Gives the results of each function."""
    native: bool


def kernel(
    plugins: Plugins,
    target: Target,
    names: Sequence[str],
    lanes: int,
    cells: int,
    keep: list[Any],
    dtype: str = "f32",
) -> Kernel:
    """The compiled kernel; RuntimeError with the compiler's message if there is none."""
    parsed = parse(program(names, lanes, cells, dtype), target.dialect)
    made = plugins.code_generator(target).generate(parsed, "pd_functions")
    runner: Runner = plugins.runner(target)
    if made.language in ("cu", "hip"):
        runner = EmulatedRunner(target.capabilities.options["warp"])
    artifact = runner.compile(made)
    if isinstance(artifact, Failure):
        raise RuntimeError(f"{', '.join(names)} for {target.name}: {artifact.detail}")
    key = f"{target.name} {'vectors' if lanes > 1 else 'scalars'}"
    if isinstance(runner, NativeRunner):
        return Kernel(key, _loaded(artifact, keep), True)

    def emulated(operands: Sequence[Floats]) -> list[Floats]:
        inputs = {spec.name: o for spec, o in zip(artifact.inputs, operands, strict=False)}
        found = runner.run(artifact, RunRequest(inputs=inputs, timeout_s=600))
        if isinstance(found, Failure) or found.outputs is None:
            raise RuntimeError(f"{', '.join(names)} for {target.name}: {found}")
        return [np.asarray(found.outputs[spec.name]) for spec in artifact.outputs]

    return Kernel(key, emulated, False)


def _loaded(artifact: Artifact, keep: list[Any]) -> Callable[[Sequence[Floats]], list[Floats]]:
    """The kernel as a function of this process."""
    folder = tempfile.TemporaryDirectory(prefix="perfdojo-functions-")
    keep.append(folder)
    path = Path(folder.name, "kernel.so")
    path.write_bytes(artifact.content)
    function = ctypes.CDLL(str(path))[artifact.symbol]

    def call(operands: Sequence[Floats]) -> list[Floats]:
        found = [np.empty_like(operands[0]) for _ in artifact.outputs]
        given = operands[: len(artifact.inputs)]
        status = function(*map(_address, (*given, *found)), None, ctypes.c_size_t(0), 1)
        if status:
            raise RuntimeError(f"the kernel returned {status}")
        return found

    return call


def _address(array: npt.NDArray[Any]) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


# -- exact values ----------------------------------------------------------------------------------


#: The loops of ``functions.c`` carry nothing; its arithmetic is contracted nowhere.
_FLAGS = (
    "-O3",
    "-march=native",
    "-ffp-contract=off",
    "-fno-trapping-math",
    "-fno-math-errno",
    "-fopenmp-simd",
)


@cache
def exact_library() -> ctypes.CDLL:
    """``functions.c``, compiled."""
    source = Path(__file__).with_name("functions.c").read_text(encoding="utf-8")
    made = find_toolchain().compile({"functions.c": source}, _FLAGS, 120.0)
    if isinstance(made, Failure):
        raise RuntimeError(made.detail)
    with tempfile.NamedTemporaryFile(suffix=".so") as file:
        file.write(made.content)
        file.flush()
        library = ctypes.CDLL(file.name)
    library.errors.restype = library.wide_errors.restype = ctypes.c_long
    return library


def exact(name: str, operands: Sequence[Floats]) -> Doubles:
    found = np.empty(operands[0].shape)
    second = operands[-1]
    exact_library()[f"exact_{name}"](
        _address(operands[0]), _address(second), ctypes.c_long(found.size), _address(found)
    )
    return found


def distrust(name: str, count: int = 200) -> float:
    """The largest error, in ulp of f32, that mpmath finds in the exact values of a sample."""
    arity = OPERATIONS[name].arity
    full = sample(name, 16, seed=7)
    chosen = np.random.default_rng(7).integers(0, full[0].size, 4 * count)
    if (
        arity == 1
    ):  # half of them between 2^-8 and 2^7, where most functions are neither trivial nor out of range
        full[0][chosen[::2]] = np.exp2(np.random.default_rng(8).uniform(-8, 7, 2 * count))
    operands = [part[chosen] for part in full[:arity]]
    return _distrust(name, operands, exact(name, operands), 24, -126, 127)


def _distrust(name: str, operands: Sequence[Any], values: Any, digits: int, least: int, most: int) -> float:
    import mpmath

    functions: Mapping[str, Any] = {
        "exp2": lambda x: mpmath.mpf(2) ** x,
        "log2": lambda x: mpmath.log(x, 2),
        "sigmoid": lambda x: 1 / (1 + mpmath.exp(-x)),
        "rsqrt": lambda x: 1 / mpmath.sqrt(x),
        "cbrt": lambda x: mpmath.cbrt(x) if x >= 0 else -mpmath.cbrt(-x),
        "pow": lambda x, z: mpmath.power(x, z),
    }
    function, worst = functions.get(name) or getattr(mpmath, name, None), 0.0
    if function is None or name in ("floor", "ceil"):
        return 0.0
    with mpmath.workprec(400):
        for k, value in enumerate(values):
            given = [mpmath.mpf(float(o[k])) for o in operands]
            if not (np.isfinite(value) and value and all(map(mpmath.isfinite, given))):
                continue
            # The digits of a long double are the sum of two doubles.
            size, power = np.frexp(value)
            found = mpmath.mpf(float(size)) + mpmath.mpf(float(size - type(size)(float(size))))
            found *= mpmath.mpf(2) ** int(power)
            if mpmath.mpf(2) ** (least - digits) < abs(found) < mpmath.mpf(2) ** (most + 1):
                exponent = max(mpmath.frexp(found)[1] - 1, least)
                error = abs(function(*given) - found) * mpmath.mpf(2) ** (digits - 1 - exponent)
                worst = max(worst, float(error))
    return worst


# -- arguments -------------------------------------------------------------------------------------


def sample(name: str, bits: int, seed: int = 0, around: int = AROUND) -> list[Floats]:
    """2^bits patterns or a few more, with the neighbourhoods of special values; for two operands a grid."""
    rng = np.random.default_rng(seed)
    if OPERATIONS[name].arity == 2:
        return grid(rng, max(1, (1 << bits) >> 18))
    near = np.array([*SPECIAL, *(-x for x in SPECIAL)], np.float32).view(np.uint32).astype(np.int64)
    beside = (near[:, None] + np.arange(-around, around)).ravel() & 0xFFFFFFFF
    drawn = rng.integers(0, 1 << 32, max(0, (1 << bits) - beside.size))
    return [np.concatenate([beside, drawn]).astype(np.uint32).view(np.float32)]


def grid(rng: np.random.Generator, significands: int) -> list[Floats]:
    """Every pair of exponents and signs, each with so many pairs of significands; then bases near 1, small
    whole exponents, and pairs of special values."""
    exponents = np.arange(256, dtype=np.uint32) << 23
    signed = np.concatenate([exponents, exponents | 0x80000000])
    base, exponent = (a.ravel() for a in np.meshgrid(signed, signed))
    parts = []
    for k in range(significands):
        digits = [rng.integers(0, 1 << 23, base.size, np.uint32) * np.uint32(k > 0) for _ in "xz"]
        parts.append([(base | digits[0]), (exponent | digits[1])])
    count = 1 << 18
    near = (np.float32(1) + rng.uniform(-0.1, 0.1, count).astype(np.float32)).view(np.uint32)
    parts.append([near, rng.uniform(-1000, 1000, count).astype(np.float32).view(np.uint32)])
    anything = (rng.integers(0, 1 << 32, count, np.uint64) & 0xFFFFFFFF).astype(np.uint32)
    parts.append([anything, rng.integers(-12, 13, count).astype(np.float32).view(np.uint32)])
    special = np.array([0, 0.5, 1, 2, 3, 2.5, 2**23 + 1, 2**24, 2**24 + 2, np.inf, np.nan, 1e-45], np.float32)
    special = np.concatenate([special, -special]).view(np.uint32)
    parts.append([a.ravel() for a in np.meshgrid(special, special)])
    return [np.concatenate([part[k] for part in parts]).view(np.float32) for k in (0, 1)]


def every(part: int) -> Iterator[list[Floats]]:
    """The bit patterns of one range."""
    for call in range(CALLS):
        start = part * RANGE + call * CELLS
        yield [np.arange(start, start + CELLS, dtype=np.uint64).astype(np.uint32).view(np.float32)]


def in_calls(operands: list[Floats], cells: int) -> Iterator[list[Floats]]:
    """A sample in parts of so many cells, the last one filled up with ones."""
    for start in range(0, operands[0].size, cells):
        parts = [o[start : start + cells] for o in operands]
        yield [np.concatenate([p, ones(cells - p.size, p.dtype)]) for p in parts]


def ones(count: int, carried: np.dtype[Any]) -> npt.NDArray[Any]:
    """So many ones of a dtype, in the form in which kernels take it: bf16 as its bits."""
    return np.full(count, 0x3F80 if carried == np.uint16 else 1, carried)


# -- other dtypes ----------------------------------------------------------------------------------


#: dtype -> its binary digits, and the exponents of its least and its largest normal numbers.
OTHERS: Mapping[str, tuple[int, int, int]] = {
    "f64": (53, -1022, 1023),
    "f16": (11, -14, 15),
    "bf16": (8, -126, 127),
}
#: Numbers beside which functions of f64 change their formulas.
SPECIAL_F64 = (
    *SPECIAL, 6.0, 9.0, 19.06, 20.0, 22.0, 37.0, 40.0, 709.78, 745.13, 708.39, 1000.0, 1022.0, 1024.0, 1074.0,
    1075.0, 1e-9, 1e-17, 2.2250738585072014e-308, 5e-324, 1.7976931348623157e308, 2.0**51, 2.0**52, 2.0**53,
    1e22,
)  # fmt: skip


def others(name: str, dtype: str, bits: int, seed: int = 0, around: int = AROUND) -> list[npt.NDArray[Any]]:
    """Arguments of a function as kernels of ``dtype`` take them: every number of f16 and bf16, of powers
    every pair of exponents and signs; 2^bits drawn ones of f64, or a few more."""
    rng = np.random.default_rng(seed)
    if dtype == "f64":
        return drawn_f64(name, rng, 1 << bits, around)
    every_one = np.arange(1 << 16, dtype=np.uint32).astype(np.uint16)
    found = [every_one]
    if OPERATIONS[name].arity == 2:
        digits = OTHERS[dtype][0] - 1
        exponents = every_one[:: 1 << digits]
        pairs = [a.ravel() for a in np.meshgrid(exponents, exponents)]
        found = [
            np.concatenate(
                [a | rng.integers(0, 1 << digits, a.size, np.uint16) * np.uint16(k > 0) for k in range(4)]
            )
            for a in pairs
        ]
    return [a.view(np.float16) if dtype == "f16" else a for a in found]


def drawn_f64(name: str, rng: np.random.Generator, count: int, around: int) -> list[npt.NDArray[Any]]:
    """Numbers beside special ones; of all exponents; and of those where most functions are neither trivial
    nor out of range. Exponents of powers take most of these into the range of results."""
    special = np.array([*SPECIAL_F64, *(-x for x in SPECIAL_F64)], np.float64)
    beside = (special.view(np.int64)[:, None] + np.arange(-around, around)).ravel().view(np.float64)
    rest = max(2, count - beside.size) // 2
    anything = rng.integers(0, 1 << 64, rest, np.uint64).view(np.float64)
    ordinary = np.exp2(rng.uniform(-30, 11, rest)) * rng.choice([-1.0, 1.0], rest)
    x = np.concatenate([beside, anything, ordinary])
    if OPERATIONS[name].arity == 1:
        return [x]
    near = 1 + rng.uniform(-1, 1, x.size) * np.exp2(rng.uniform(-40, -1, x.size))
    x = np.where(rng.random(x.size) < 0.3, near, np.where(rng.random(x.size) < 0.8, np.abs(x), x))
    with np.errstate(all="ignore"):
        z = rng.uniform(-1080, 1030, x.size) / np.log2(np.abs(x))
        z = np.where(rng.random(x.size) < 0.2, np.rint(z), z)
        z = np.where(rng.random(x.size) < 0.2, rng.permutation(x), z)
    small = np.array([0, 0.5, 1, 2, 3, 2.5, 2**53 - 1, 2**53, 2**53 + 2, np.inf, np.nan, 5e-324])
    small = np.concatenate([small, -small])
    pairs = np.meshgrid(small, small)
    return [np.concatenate([a, b.ravel()]) for a, b in zip((x, z), pairs, strict=True)]


def plain(array: npt.NDArray[Any], dtype: str) -> Doubles:
    """An array that kernels take or give, as doubles."""
    with np.errstate(invalid="ignore"):
        return numbers(array, dtype).astype(np.float64)


def exact_wide(name: str, operands: Sequence[Doubles]) -> npt.NDArray[np.longdouble]:
    found = np.empty(operands[0].shape, np.longdouble)
    given = [_address(operands[0]), _address(operands[-1])]
    exact_library()[f"wide_{name}"](*given, ctypes.c_long(found.size), _address(found))
    return found


def others_compared(
    kernels: Sequence[Kernel], names: Sequence[str], dtype: str, parts: Iterator[list[npt.NDArray[Any]]]
) -> Results:
    """The errors of functions of a dtype, in ulp of it."""
    results = {name: {one.key: Found() for one in kernels} for name in names}
    for operands in parts:
        wide = [plain(o, dtype) for o in operands]
        got = [one.call(operands) for one in kernels]
        for k, name in enumerate(names):
            values = exact_wide(name, wide)
            for one, found in zip(kernels, got, strict=True):
                entry = results[name][one.key]
                entry.digests.append(f"{entry.add_wide(wide, values, plain(found[k], dtype), dtype):016x}")
    return results


def distrust_f64(name: str, count: int = 200) -> float:
    """The largest error, in ulp of f64, that mpmath finds in the exact values of a sample."""
    operands = drawn_f64(name, np.random.default_rng(7), 1 << 14, 8)
    chosen = np.random.default_rng(7).integers(0, operands[0].size, 2 * count)
    chosen[count:] = (
        operands[0].size - 600 - chosen[count:] % 4096
    )  # of those that are neither trivial nor out of range
    operands = [part[chosen] for part in operands]
    return _distrust(name, operands, exact_wide(name, operands), 53, -1022, 1023)


# -- comparing -------------------------------------------------------------------------------------


@dataclass
class Found:
    """The errors of one function in one kernel."""

    ulp: float = 0.0
    at: list[str] = field(default_factory=list)
    wrong: int = 0
    wrong_at: list[str] = field(default_factory=list)
    digests: list[str] = field(default_factory=list)

    def add(self, operands: Sequence[Floats], values: Doubles, got: Floats) -> int:
        """Count the errors; gives a digest of the results."""
        worst, at, first = ctypes.c_double(self.ulp), ctypes.c_long(), ctypes.c_long()
        digest = ctypes.c_uint64()
        wrong = exact_library().errors(
            _address(values), _address(got), ctypes.c_long(got.size),
            ctypes.byref(worst), ctypes.byref(at), ctypes.byref(first), ctypes.byref(digest),
        )  # fmt: skip
        self.ulp = worst.value
        if at.value >= 0:
            self.at = [float(o[at.value]).hex() for o in operands]
        if wrong and not self.wrong:
            self.wrong_at = [float(o[first.value]).hex() for o in operands]
        self.wrong += wrong
        return digest.value

    def add_wide(self, operands: Sequence[Doubles], values: Any, got: Doubles, dtype: str) -> int:
        """Count the errors of another dtype, whose numbers are given as doubles."""
        worst, at, first = ctypes.c_double(self.ulp), ctypes.c_long(), ctypes.c_long()
        digest = ctypes.c_uint64()
        wrong = exact_library().wide_errors(
            _address(values), _address(got), ctypes.c_long(got.size), *OTHERS[dtype],
            ctypes.byref(worst), ctypes.byref(at), ctypes.byref(first), ctypes.byref(digest),
        )  # fmt: skip
        self.ulp = worst.value
        if at.value >= 0:
            self.at = [float(o[at.value]).hex() for o in operands]
        if wrong and not self.wrong:
            self.wrong_at = [float(o[first.value]).hex() for o in operands]
        self.wrong += wrong
        return digest.value


Results = dict[str, dict[str, Found]]
"""Function -> kernel -> its errors."""


def compare(
    kernels: Sequence[Kernel], names: Sequence[str], parts: Iterator[list[Floats]], results: Results
) -> None:
    """Add one range, or a sample, to what is known about each function of each kernel."""
    digests = {(name, one.key): hashlib.sha256() for name in names for one in kernels}
    for operands in parts:
        got = [one.call(operands) for one in kernels]
        for k, name in enumerate(names):
            values = exact(name, operands)
            for one, found in zip(kernels, got, strict=True):
                digest = results[name][one.key].add(operands, values, found[k])
                digests[name, one.key].update(digest.to_bytes(8, "little"))
    for (name, key), whole in digests.items():
        results[name][key].digests.append(whole.hexdigest())


def forms(
    plugins: Plugins,
    targets: Sequence[str],
    names: Sequence[str],
    cells: int,
    keep: list[Any],
    dtype: str = "f32",
) -> list[Kernel]:
    """Functions on the vectors of each target, and one by one on the first and on those without vectors."""
    found = []
    for target in map(plugins.target, targets):
        lanes = target.dialect.lanes.get(dtype, 1) if "v" in target.dialect.suffixes else 1
        for count in sorted({lanes, 1} if target.name == targets[0] else {lanes}, reverse=True):
            found.append(kernel(plugins, target, names, count, cells, keep, dtype))
    return found


def swept(
    plugins: Plugins, targets: Sequence[str], name: str, state: Path, keep: list[Any]
) -> dict[str, Found]:
    """All ranges, from the first one that the state does not have."""
    kernels = forms(plugins, targets, [name], CELLS, keep)
    if any(not k.native for k in kernels):
        raise SystemExit(f"{name}: an emulated target takes --samples")
    saved = json.loads(state.read_text()) if state.exists() else {}
    entry = saved.get(name, {})
    found = {k.key: Found(**entry.get("kernels", {}).get(k.key, {})) for k in kernels}
    done = min(len(f.digests) for f in found.values())
    if any(len(f.digests) != done for f in found.values()):
        found, done = {k.key: Found() for k in kernels}, 0
    for part in range(done, RANGES):
        begin = time.monotonic()
        compare(kernels, [name], every(part), {name: found})
        entry["seconds"] = entry.get("seconds", 0.0) + time.monotonic() - begin
        entry["kernels"] = {**entry.get("kernels", {}), **{key: vars(f) for key, f in found.items()}}
        saved = json.loads(state.read_text()) if state.exists() else {}
        saved[name] = entry
        partial = state.with_suffix(".part")
        partial.write_text(json.dumps(saved, indent=1) + "\n")
        partial.replace(state)
    return found


def sampled(
    plugins: Plugins,
    targets: Sequence[str],
    names: Sequence[str],
    bits: int,
    keep: list[Any],
    seed: int = 0,
) -> Results:
    """A sample on every kernel, which has all functions; these have one arity."""
    cells = min(1 << bits, 1 << 16)
    kernels = forms(plugins, targets, names, cells, keep)
    results = {name: {k.key: Found() for k in kernels} for name in names}
    compare(kernels, names, in_calls(sample(names[0], bits, seed), cells), results)
    return results


def of_other(
    plugins: Plugins,
    targets: Sequence[str],
    names: Sequence[str],
    dtype: str,
    bits: int,
    keep: list[Any],
    seed: int = 0,
) -> Results:
    """Functions of a dtype on every kernel, which has all of them; these have one arity."""
    arguments = others(names[0], dtype, bits, seed)
    kernels = forms(plugins, targets, names, CALLED, keep, dtype)
    return others_compared(kernels, names, dtype, in_calls(arguments, CALLED))


def summary(found: Mapping[str, Found], doubt: float) -> dict[str, Any]:
    """An entry of the recorded results."""
    return {
        key: {
            "ulp": round(f.ulp, 4),
            "at": f.at,
            "wrong": f.wrong,
            **({"wrong_at": f.wrong_at} if f.wrong else {}),
            "digest": hashlib.sha256("".join(f.digests).encode()).hexdigest(),
        }
        for key, f in found.items()
    } | {"reference": round(doubt, 6)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--targets", nargs="+", required=True)
    parser.add_argument("--functions", nargs="+", default=FUNCTIONS, choices=FUNCTIONS, metavar="FUNCTION")
    parser.add_argument("--samples", type=int, default=0, help="2^N seeded patterns in place of all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--state", type=Path, default=Path("build/functions.json"))
    parser.add_argument("--dtypes", nargs="+", default=[], choices=OTHERS, metavar="DTYPE")
    parser.add_argument("--output", type=Path, help="where the table is written as JSON")
    arguments = parser.parse_args()
    plugins, keep = load_plugins(), []
    table: dict[str, Any] = {}
    arguments.state.parent.mkdir(parents=True, exist_ok=True)

    def tell(name: str, found: Mapping[str, Found], dtype: str = "f32") -> None:
        doubt = distrust_f64(name) if dtype in OTHERS else distrust(name)
        (table.setdefault(dtype, {}) if dtype in OTHERS else table)[name] = summary(found, doubt)
        errors = "  ".join(f"{k}: {f.ulp:.3f}{f' WRONG {f.wrong}' * bool(f.wrong)}" for k, f in found.items())
        print(f"{f'{name} {dtype}':13} {errors}", flush=True)
        if arguments.output:
            arguments.output.write_text(json.dumps(table, indent=1) + "\n")

    for arity in (1, 2):
        names = [name for name in arguments.functions if OPERATIONS[name].arity == arity]
        for dtype in arguments.dtypes if names else ():
            bits = arguments.samples or 22
            found = of_other(plugins, arguments.targets, names, dtype, bits, keep, arguments.seed)
            for name in names:
                tell(name, found[name], dtype)
        if arguments.dtypes:
            continue
        if names and (arguments.samples or arity > 1):
            bits = arguments.samples or 22
            found = sampled(plugins, arguments.targets, names, bits, keep, arguments.seed)
            for name in names:
                tell(name, found[name])
        else:
            for name in names:
                tell(name, swept(plugins, arguments.targets, name, arguments.state, keep))


if __name__ == "__main__":
    main()

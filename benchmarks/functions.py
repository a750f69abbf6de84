"""Largest errors of mathematical functions in emitted kernels, over every f32.

    python benchmarks/functions.py --targets x86_avx512 x86_avx2 --state build/functions.json
    python benchmarks/functions.py --targets arm_neon --samples 20 --functions sin pow

Each function of one operand is computed by a kernel of the target, on vectors and one by one, for all 2^32
bit patterns, a range of 2^26 after the other. The state is saved after each range, and a later run goes on
from there. With ``--samples N`` it is 2^N patterns, drawn from a seed, with the neighbourhoods of special
values; emulated targets take no others. Functions of two operands take a grid with every pair of exponents
and signs.

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


def program(names: Sequence[str], lanes: int, cells: int) -> str:
    """Functions on arrays ``x`` and ``z``, in lockstep scopes of so many lanes; 1: in a plain loop."""
    operands = ["x", "z"][: max(OPERATIONS[name].arity for name in names)]
    outputs = [f"y{k}" for k in range(len(names))]
    declared = "".join(f"{a} f32 [{cells}] heap\n" for a in (*operands, *outputs))
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
    plugins: Plugins, target: Target, names: Sequence[str], lanes: int, cells: int, keep: list[Any]
) -> Kernel:
    """The compiled kernel; RuntimeError with the compiler's message if there is none."""
    parsed = parse(program(names, lanes, cells), target.dialect)
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
    library.errors.restype = ctypes.c_long
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
    import mpmath

    arity = OPERATIONS[name].arity
    full = sample(name, 16, seed=7)
    chosen = np.random.default_rng(7).integers(0, full[0].size, 4 * count)
    if (
        arity == 1
    ):  # half of them between 2^-8 and 2^7, where most functions are neither trivial nor out of range
        full[0][chosen[::2]] = np.exp2(np.random.default_rng(8).uniform(-8, 7, 2 * count))
    operands = [part[chosen] for part in full]
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
    values = exact(name, operands)
    with mpmath.workprec(400):
        for k, value in enumerate(values):
            given = [mpmath.mpf(float(o[k])) for o in operands[:arity]]
            if not (math.isfinite(value) and value and all(map(mpmath.isfinite, given))):
                continue
            if 2.0**-149 < abs(value) < 2.0**128:
                exponent = max(math.frexp(value)[1] - 1, -126)
                worst = max(worst, float(abs(function(*given) - value) * mpmath.mpf(2) ** (23 - exponent)))
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
        yield [np.concatenate([p, np.ones(cells - p.size, np.float32)]) for p in parts]


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
    plugins: Plugins, targets: Sequence[str], names: Sequence[str], cells: int, keep: list[Any]
) -> list[Kernel]:
    """Functions on the vectors of each target, and one by one on the first and on those without vectors."""
    found = []
    for target in map(plugins.target, targets):
        lanes = target.dialect.lanes.get("f32", 1) if "v" in target.dialect.suffixes else 1
        for count in sorted({lanes, 1} if target.name == targets[0] else {lanes}, reverse=True):
            found.append(kernel(plugins, target, names, count, cells, keep))
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
    parser.add_argument("--output", type=Path, help="where the table is written as JSON")
    arguments = parser.parse_args()
    plugins, keep = load_plugins(), []
    table: dict[str, Any] = {}
    arguments.state.parent.mkdir(parents=True, exist_ok=True)

    def tell(name: str, found: Mapping[str, Found]) -> None:
        table[name] = summary(found, distrust(name))
        errors = "  ".join(f"{k}: {f.ulp:.3f}{f' WRONG {f.wrong}' * bool(f.wrong)}" for k, f in found.items())
        print(f"{name:8} {errors}", flush=True)
        if arguments.output:
            arguments.output.write_text(json.dumps(table, indent=1) + "\n")

    for arity in (1, 2):
        names = [name for name in arguments.functions if OPERATIONS[name].arity == arity]
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

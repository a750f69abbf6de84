"""Differential test of compilers: one kernel compiled by several must give equal results, bit for bit.

The language defines every result except for contraction, which is switched off here, and the bits of a NaN.
Where two compilers differ, one of them is wrong, or the emitted code has undefined behaviour.
"""

from __future__ import annotations

import importlib.util
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from perfdojo_sdk.hookspecs.types import Artifact, Failure, KernelSource, Measurement, RunRequest
from perfdojo_sdk.measure.kernel_calls import CARRIER
from perfdojo_sdk.measure.native_runner import NativeRunner
from perfdojo_sdk.measure.toolchain import Toolchain, answering
from perfdojo_sdk.testing.numeric_leg import QUICK, compiled_together
from perfdojo_sdk.verify.groups import Array

#: The last flag, which overrides others: fused products are legal, but each compiler fuses different ones.
UNFUSED = "-ffp-contract=off"


@cache
def known_compilers() -> tuple[Toolchain, ...]:
    """gcc, and a clang, which may be that of the ``ziglang`` wheel; those of them that work."""
    commands: list[tuple[str, ...]] = [(where,) for name in ("gcc", "clang") if (where := shutil.which(name))]
    if len(commands) < 2 and importlib.util.find_spec("ziglang"):
        commands.append((sys.executable, "-m", "ziglang", "cc"))
    return tuple(found for command in commands if (found := answering(command)))


@dataclass(frozen=True)
class CompilerComparison:
    """Compares the compilers of this machine at ``flags``, and the first of them without optimising."""

    flags: tuple[str, ...]

    def runners(self) -> dict[str, NativeRunner]:
        compilers = known_compilers()
        levels = {f"{c.version} as flagged": (c, self.flags) for c in compilers}
        plain = tuple(QUICK if flag.startswith("-O") else flag for flag in self.flags)
        levels |= {f"{c.version} {QUICK}": (c, plain) for c in compilers[:1]}
        return {
            name: NativeRunner((*flags, UNFUSED), forks=True, compiler=compiler)
            for name, (compiler, flags) in levels.items()
        }

    def __call__(self, sources: Sequence[KernelSource], seed: int) -> list[str]:
        """The disagreement of the compiled kernels of each source, "" for none. Symbols of the sources
        differ."""
        runners = self.runners()
        made = {name: compiled_together(runner, sources) for name, runner in runners.items()}
        return [
            _disagreement(source, {name: (runners[name], made[name][k]) for name in runners}, seed)
            for k, source in enumerate(sources)
        ]


def _disagreement(
    source: KernelSource, kernels: dict[str, tuple[NativeRunner, Artifact | Failure]], seed: int
) -> str:
    requests = [RunRequest(given, timeout_s=60.0) for given in _inputs(source, seed)]
    first: tuple[str, list[Measurement]] | None = None
    for name, (runner, artifact) in kernels.items():
        if isinstance(artifact, Failure):
            return f"{name}: {artifact.reason}: {artifact.detail}"
        runs: list[Measurement] = []
        for run in runner.run_together(artifact, requests):
            if isinstance(run, Failure):
                return f"{name}: {run.reason}: {run.detail}"
            runs.append(run)
        if first is None:
            first = name, runs
        for one, other in zip(first[1], runs, strict=True):
            if difference := _difference(source, one, other):
                return f"{first[0]} and {name} differ: {difference}"
    return ""


def _difference(source: KernelSource, one: Measurement, other: Measurement) -> str:
    assert one.outputs is not None and other.outputs is not None
    for name in (spec.name for spec in source.outputs):
        a, b = one.outputs[name].reshape(-1), other.outputs[name].reshape(-1)
        bits, nan = (a.view(f"u{a.itemsize}"), b.view(f"u{b.itemsize}")), (a != a) & (b != b)
        differ = np.flatnonzero((bits[0] != bits[1]) & ~nan)
        if differ.size:
            k = int(differ[0])
            return f"{name}, element {k}: {a[k]!r} and {b[k]!r}; {differ.size} of {a.size} elements"
    return ""


def _inputs(source: KernelSource, seed: int) -> list[dict[str, Array]]:
    """Numbers of all magnitudes, and small whole ones, with which many products stay finite and exact."""
    rng = np.random.default_rng(seed)
    found: list[dict[str, Array]] = []
    for wide in (True, False):
        given: dict[str, Array] = {}
        for spec in source.inputs:
            dtype, values = np.dtype(CARRIER[spec.dtype]), rng.integers(-9, 10, spec.shape)
            if wide and dtype.kind == "f":
                given[spec.name] = (rng.standard_normal(spec.shape) * 2.0 ** (4 * values)).astype(dtype)
            else:
                given[spec.name] = (values + (values == 0)).astype(dtype)
        found.append(given)
    return found

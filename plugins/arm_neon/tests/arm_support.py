"""Helpers for the tests of arm_neon: the target with its parts, and kernels compiled for it."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import perfdojo_arm_neon as plugin
import pytest
from perfdojo_arm_neon import crosstools
from perfdojo_arm_neon.codegen import ArmCodeGenerator
from perfdojo_arm_neon.emulator.elf import SharedObject, read
from perfdojo_arm_neon.runner import ArmRunner

from perfdojo_sdk.core.program import Program
from perfdojo_sdk.core.text import parse
from perfdojo_sdk.core.transformation import Rules, Trace
from perfdojo_sdk.hookspecs.types import Artifact, Failure, KernelSource, Measurement, RunRequest, Target
from perfdojo_sdk.kernels.selection import Kernel, select
from perfdojo_sdk.plugins import load_plugins

PLUGINS = load_plugins(without=("arm_neon",), extra=[plugin])
TARGET: Target = PLUGINS.target("arm_neon")
SVE: Target = PLUGINS.target("arm_sve")
RULES: Rules = PLUGINS.rules(TARGET)
GENERATOR = ArmCodeGenerator(TARGET.capabilities)
RUNNER = ArmRunner(TARGET.capabilities)

both_targets = pytest.mark.parametrize("target", [TARGET, SVE], ids=lambda target: target.name)

needs_compiler = pytest.mark.skipif(
    not crosstools.probe_cross_compiler().ok, reason=f"needs {crosstools.GNU} or the ziglang package"
)

QEMU = shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")
SYSTEM = Path("/usr/aarch64-linux-gnu")
#: A core with all that QEMU knows; its vectors of SVE are one unit of 128 bits.
QEMU_COMMAND = (str(QEMU), "-cpu", "max,sve-max-vq=1", "-L", str(SYSTEM))
needs_qemu = pytest.mark.skipif(
    not (QEMU and shutil.which(crosstools.GNU) and (SYSTEM / "lib" / "libc.so.6").exists()),
    reason="needs qemu-user and a C library for 64-bit Arm",
)


def program(text: str) -> Program:
    return parse(text, TARGET.dialect)


def kernel(selection: str) -> Kernel:
    [found] = select(selection, PLUGINS.operators, TARGET.dialect)
    return found


def played(selection: str, target: Target = TARGET) -> Trace:
    """The expert's first game."""
    expert = PLUGINS.heuristic_pass(target)
    assert expert is not None
    return expert(kernel(selection).program, PLUGINS.rules(target), target)[0]


def source(given: Program | str, symbol: str = "pd_test", target: Target = TARGET) -> KernelSource:
    generator = ArmCodeGenerator(target.capabilities)
    return generator.generate(program(given) if isinstance(given, str) else given, symbol)


def compiled(given: Program | str, symbol: str = "pd_test", target: Target = TARGET) -> Artifact:
    artifact = ArmRunner(target.capabilities).compile(source(given, symbol, target))
    assert isinstance(artifact, Artifact), artifact
    return artifact


def loaded(given: Program | str, target: Target = TARGET) -> SharedObject:
    return read(compiled(given, target=target).content)


def run(artifact: Artifact, request: RunRequest | None = None, **inputs: np.ndarray) -> Measurement:
    given = replace(request or RunRequest(timeout_s=60), inputs=inputs)
    found = RUNNER.run(artifact, given)
    assert isinstance(found, Measurement), found
    return found


def failure(artifact: Artifact, request: RunRequest | None = None) -> Failure:
    found = RUNNER.run(artifact, request or RunRequest(timeout_s=60))
    assert isinstance(found, Failure), found
    return found


@dataclass(frozen=True)
class Line:
    """One line of ``golden/instructions.txt``."""

    word: int
    kind: str
    left: str
    text: str


@lru_cache
def instructions(file: str) -> tuple[Line, ...]:
    with open(file, encoding="utf-8") as lines:
        fields = [line.rstrip("\n").split(" | ") for line in lines if not line.startswith("#")]
    return tuple(Line(int(word, 16), kind, left, text) for word, kind, left, text in fields)

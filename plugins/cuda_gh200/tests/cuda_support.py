"""Shared by several tests: the target, its generator, verification in emulation."""

from __future__ import annotations

import os
from pathlib import Path

from perfdojo_cuda_gh200 import HOOKS
from perfdojo_cuda_gh200.codegen import generator

from perfdojo_sdk.core.program import Program
from perfdojo_sdk.core.text import parse
from perfdojo_sdk.hookspecs.types import Artifact, KernelSource
from perfdojo_sdk.measure.emulated_runner import EmulatedRunner
from perfdojo_sdk.verify.numeric import NumericReport, verify_numeric

TARGET = HOOKS.target
GENERATOR = generator(TARGET.capabilities)
HERE = Path(__file__).parent


def program(text: str) -> Program:
    return parse(text, TARGET.dialect)


def emitted(text: str, symbol: str = "pd_case") -> KernelSource:
    return GENERATOR.generate(program(text), symbol)


def agrees_with_golden(source: KernelSource, name: str) -> None:
    """The code is what the file holds; PERFDOJO_UPDATE_GOLDEN=1 writes the file."""
    path = HERE / "golden" / name
    if os.environ.get("PERFDOJO_UPDATE_GOLDEN") == "1":
        path.parent.mkdir(exist_ok=True)
        path.write_text(source.code, encoding="utf-8")
    assert source.code == path.read_text(encoding="utf-8"), name


def verified(original: Program, played: Program, warp: int = 32) -> NumericReport:
    """Leg 2 on the emulated kernel, every access of it watched."""
    runner = EmulatedRunner(warp)
    artifact = runner.compile(GENERATOR.generate(played, "pd_case"))
    assert isinstance(artifact, Artifact), artifact.detail
    accuracy = {"exp": 1.0}
    return verify_numeric(
        original, played, artifact, runner, accuracy, TARGET.dialect, nan_may_differ=True, quick=True
    )

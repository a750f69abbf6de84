"""Our side of the race: the kernels of the table, and the library with them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from perfdojo_sdk.hookspecs.types import Operator as Builder
from perfdojo_sdk.kernels.selection import instantiate
from perfdojo_sdk.peers.operators import Operator


def selection(builders: Mapping[str, Builder], operators: Sequence[Operator]) -> list[str]:
    """The selection for ``build-library --kernels`` of those ``operators`` that have a builder."""
    found = (_selected(builders, operator) for operator in operators)
    return [item for item in found if item]


def _selected(builders: Mapping[str, Builder], operator: Operator) -> str:
    """``layernorm[4096,4096]`` for layernorm2; empty when no builder has the operator's shapes."""
    wanted = tuple((shape, "f32") for shape in operator.inputs)
    for name in operator.names:
        builder = builders.get(name)
        for sizes in builder.defaults if builder else ():
            assert builder is not None
            if tuple((i.shape, i.dtype) for i in instantiate(builder, sizes).inputs) == wanted:
                return f"{name}[{','.join(map(str, sizes))}]"
    return ""


def build(directory: Path, kernels: Sequence[str], threads: int) -> str:
    """The library for ``threads`` threads; kernels from an earlier run are taken from its records."""
    command = [sys.executable, "-m", "perfdojo_sdk.cli", "build-library", "--kernels", " ".join(kernels)]
    command += ["--threads", str(threads), "--output", str(directory)]
    status = subprocess.run(command, stdout=subprocess.DEVNULL).returncode
    if status not in (0, 4):  # 4: some kernel is left out, the others are there
        raise SystemExit("the library cannot be built; see above")
    return str(directory)

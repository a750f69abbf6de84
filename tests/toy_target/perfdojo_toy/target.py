"""The toy target itself: its file of figures, its code generator, one operator of its own."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import yaml

from perfdojo_sdk.codegen.c import CEmitter
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.hookspecs.types import Capabilities, KernelSource, Operator, OperatorParameter, Target

CAPABILITIES = Capabilities.model_validate(
    yaml.safe_load(Path(__file__).with_name("toy.yaml").read_text(encoding="utf-8"))
)
TARGET = Target(CAPABILITIES.name, CAPABILITIES, CAPABILITIES.dialect(), "perfdojo-toy")


@dataclass(frozen=True)
class Generator:
    """The SDK's C emitter as it is."""

    def generate(self, program: Program, symbol: str) -> KernelSource:
        return CEmitter(program, symbol, TARGET.dialect).source()


def _scale(size: int) -> str:
    buffers = f"x f32 [{size}] heap\ny f32 [{size}] heap"
    return f"kernel toy_scale(x) -> y\n{buffers}\n\n{size} y[{{0}}] = x[{{0}}] * 2\n"


SCALE = Operator("toy_scale", "y = 2 x.", (OperatorParameter("size", "elements"),), _scale, ((1000,),))

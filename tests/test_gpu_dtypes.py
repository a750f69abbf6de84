"""Kernels of every dtype for GPUs give, in emulation, what the interpreter gives, to the bit."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from test_typed_programs import given, lists

from perfdojo_sdk.core.domains import ROUNDING
from perfdojo_sdk.core.dtypes import BYTES
from perfdojo_sdk.core.interpreter import interpret
from perfdojo_sdk.core.text import parse
from perfdojo_sdk.hookspecs.types import Artifact, Measurement, RunRequest
from perfdojo_sdk.measure.emulated_runner import EmulatedRunner
from perfdojo_sdk.measure.kernel_calls import carry
from perfdojo_sdk.plugins import load_plugins
from perfdojo_sdk.testing.numeric_leg import compiled_together
from perfdojo_sdk.testing.typed_programs import typed_program

PLUGINS = load_plugins()
GPUS = [name for name, target in PLUGINS.targets.items() if "g" in target.dialect.suffixes]
#: The draws of random programs.
SEEDS = (1, 4, 7)

#: Exchanges of lanes: whatever order their values are combined in, sums of these are exact.
ACROSS = """kernel across(x, z) -> s, m, p, r
x DTYPE [3,20] heap
z DTYPE [8] heap
s DTYPE [3] heap
m DTYPE [3] heap
p DTYPE [3] heap
r DTYPE [8] heap

3:g
| s[{0}] = 2
| 20:s s[{0}] += x[{0},{1}]
| m[{0}] = 1
| 20:s m[{0}] max= x[{0},{1}] * x[{0},{1}] if {1} >= 3 and {0}+{1} < 12
| p[{0}] = -0.0
| 20:s p[{0}] += x[{0},{1}] if {0}+{1} >= 20
8:v r[{0}] = z[{0}]
7:v r[{0}+1] = r[{0}] / 2
8:v r[{0}] = r[{0}] + 1 if {0} >= 3 and {0} < 6
"""


@pytest.mark.parametrize("name", GPUS)
def test_programs_over_every_dtype(name: str) -> None:
    target = PLUGINS.target(name)
    assert BYTES.keys() == target.dialect.lanes.keys()
    runner = EmulatedRunner(target.capabilities.options["warp"])
    programs = [typed_program(Random(seed), target.dialect) for seed in SEEDS]
    programs += [parse(ACROSS.replace("DTYPE", dtype), target.dialect) for dtype in ("f16", "bf16", "f32")]
    generator = PLUGINS.code_generator(target)
    sources = [generator.generate(program, f"pd_typed{k}") for k, program in enumerate(programs)]
    assert "pd_warp_add_f16" in sources[-3].code and "pd_store4_bf16" in sources[-2].code
    for seed, (program, artifact) in enumerate(
        zip(programs, compiled_together(runner, sources), strict=True)
    ):
        assert isinstance(artifact, Artifact), artifact
        arrays = given(program, seed)
        if program.name == "across":
            small = np.random.default_rng(seed).integers(-3, 4, (3, 20))
            carry(small.astype(np.float32), arrays["x"], program.buffer_of["x"].dtype)
        run = runner.run(artifact, RunRequest(inputs=arrays, timeout_s=60))
        assert isinstance(run, Measurement) and run.outputs is not None, run
        meant = interpret(program, lists(program, arrays), ROUNDING, target.dialect)
        for array, values in lists(program, dict(run.outputs)).items():
            assert list(map(repr, values)) == list(map(repr, meant[array])), f"{array}\n{program}"

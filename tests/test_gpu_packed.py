"""Packed arrays on grids and blocks: in emulation, to the bit what the interpreter gives."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from perfdojo_sdk.core.domains import ROUNDING
from perfdojo_sdk.core.interpreter import interpret
from perfdojo_sdk.hookspecs.types import Artifact, Measurement, RunRequest
from perfdojo_sdk.measure.emulated_runner import EmulatedRunner
from perfdojo_sdk.measure.kernel_calls import numbers
from perfdojo_sdk.plugins import load_plugins
from perfdojo_sdk.testing.numeric_leg import compiled_together
from perfdojo_sdk.testing.packed_programs import drawn, meant, packed_program, passed

PLUGINS = load_plugins()
GPUS = [name for name, target in PLUGINS.targets.items() if "g" in target.dialect.suffixes]
SEEDS = range(6)


@pytest.mark.parametrize("name", GPUS)
def test_programs_over_packed_arrays(name: str) -> None:
    target = PLUGINS.target(name)
    runner = EmulatedRunner(target.capabilities.options["warp"])
    programs = [packed_program(Random(seed), target.dialect, rows="g") for seed in SEEDS]
    generator = PLUGINS.code_generator(target)
    sources = [generator.generate(program, f"pd_packed{k}") for k, program in enumerate(programs)]
    assert all("PD_INPUT(uint8_t, " in made.code and "pd_packed_" in made.code for made in sources)
    for seed, (program, made, artifact) in enumerate(
        zip(programs, sources, compiled_together(runner, sources), strict=True)
    ):
        assert isinstance(artifact, Artifact), artifact
        given = drawn(program, Random(seed))
        request = RunRequest(inputs=passed(made, given), executions=("guard_pages",), timeout_s=60)
        run = runner.run(artifact, request)
        assert isinstance(run, Measurement) and run.outputs is not None, run
        for array, values in interpret(program, meant(program, given), ROUNDING, target.dialect).items():
            got = numbers(run.outputs[array], program.buffer_of[array].dtype).ravel()
            np.testing.assert_array_equal(got, np.array(values, got.dtype), f"{array}\n{program}")

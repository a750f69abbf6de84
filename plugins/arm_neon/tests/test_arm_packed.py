"""Packed arrays on Arm's vectors: in the emulator, to the bit what the interpreter gives."""

from __future__ import annotations

from random import Random

import numpy as np
from arm_support import both_targets, needs_compiler, source
from perfdojo_arm_neon.runner import ArmRunner

from perfdojo_sdk.core.domains import ROUNDING
from perfdojo_sdk.core.interpreter import interpret
from perfdojo_sdk.hookspecs.types import Artifact, Measurement, RunRequest, Target
from perfdojo_sdk.measure.kernel_calls import numbers
from perfdojo_sdk.testing.numeric_leg import compiled_together
from perfdojo_sdk.testing.packed_programs import drawn, meant, packed_program, passed

PROGRAMS = 16


@needs_compiler
@both_targets
def test_vectors_of_packed_elements(target: Target) -> None:
    capabilities = target.capabilities
    flags = tuple("-O1" if flag == "-O3" else flag for flag in capabilities.compiler_flags)
    runner = ArmRunner(capabilities.model_copy(update={"compiler_flags": (*flags, "-ffp-contract=off")}))
    programs = [packed_program(Random(seed), target.dialect) for seed in range(PROGRAMS)]
    sources = [source(program, f"pd_packed{k}", target) for k, program in enumerate(programs)]
    assert "pd_spread_" in "".join(s.code for s in sources) and "pd_unpack_" in "".join(
        s.code for s in sources
    )
    artifacts = compiled_together(runner, sources)
    for seed, (program, made, artifact) in enumerate(zip(programs, sources, artifacts, strict=True)):
        assert isinstance(artifact, Artifact), artifact
        given = drawn(program, Random(seed))
        request = RunRequest(inputs=passed(made, given), executions=("guard_pages",), timeout_s=60)
        run = runner.run(artifact, request)
        assert isinstance(run, Measurement) and run.outputs is not None, run
        assert run.executions == ("guard_pages",)
        for name, values in interpret(program, meant(program, given), ROUNDING, target.dialect).items():
            got = numbers(run.outputs[name], program.buffer_of[name].dtype).ravel()
            np.testing.assert_array_equal(got, np.array(values, got.dtype), f"{name}\n{program}")

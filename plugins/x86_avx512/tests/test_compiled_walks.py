"""Random games on random programs, compiled: what the emitter makes of them passes the numeric leg."""

from __future__ import annotations

from random import Random

import pytest

from perfdojo_sdk.core.transformation import Kind
from perfdojo_sdk.hookspecs.types import Artifact
from perfdojo_sdk.measure.machine import machine
from perfdojo_sdk.plugins import load_plugins
from perfdojo_sdk.testing.programs import random_program
from perfdojo_sdk.testing.walks import random_walk
from perfdojo_sdk.verify.numeric import verify_numeric


@pytest.mark.parametrize("target_name", ["x86_avx512", "x86_avx2"])
@pytest.mark.parametrize("seed", range(4))
def test_compiled_walk_is_within_its_bound(target_name: str, seed: int) -> None:
    plugins = load_plugins()
    target = plugins.target(target_name)
    lacking = set(target.capabilities.cpu_flags) - machine().flags
    if lacking:
        pytest.skip(f"this processor lacks {', '.join(sorted(lacking))}")
    rules, rng = plugins.rules(target), Random(seed)
    trace = random_walk(rng, random_program(rng, rng.randint(2, 5)), rules, 14)
    source = plugins.code_generator(target).generate(trace.program, "pd_walk")
    runner = plugins.runner(target)
    artifact = runner.compile(source)
    assert isinstance(artifact, Artifact), f"{artifact}\n{trace.program}"
    report = verify_numeric(
        trace.root,
        trace.program,
        artifact,
        runner,
        plugins.math_accuracy(target),
        target.dialect,
        seed,
        nan_may_differ=trace.kind >= Kind.REASSOCIATES,
    )
    assert report.ok, f"{report.problem}\n{trace.root}\n{trace.program}"

"""Right code that a compiler may break: cases in which it was seen to go wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
from x86_support import PLUGINS

from perfdojo_sdk.core.text import parse
from perfdojo_sdk.hookspecs.types import Artifact, Measurement, RunRequest

#: The end of a random game. With loop distribution, gcc 12.2 reads cells of it before they are written.
DISTRIBUTED = Path(__file__).with_name("distributed_loop.dojo")

RUNS_HERE = PLUGINS.unavailable(PLUGINS.target("x86_avx512")) is None


@pytest.mark.skipif(not RUNS_HERE, reason="this processor has no AVX-512")
def test_two_calls_agree_where_gcc_distributes_a_loop_wrongly() -> None:
    target = PLUGINS.target("x86_avx512")
    program = parse(DISTRIBUTED.read_text(encoding="utf-8"), target.dialect)
    runner = PLUGINS.runner(target)
    artifact = runner.compile(PLUGINS.code_generator(target).generate(program, "pd_k"))
    assert isinstance(artifact, Artifact), artifact
    found = runner.run(artifact, RunRequest(timeout_s=60.0))
    assert isinstance(found, Measurement), found

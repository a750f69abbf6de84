"""Programs over every dtype, on lanes with conditions of their own: all engines agree about them."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest
from snippets import DIALECT, RULES, move
from snippets import program as kernel

from perfdojo_sdk.codegen.c import CEmitter
from perfdojo_sdk.core.dialect import CORE_DIALECT
from perfdojo_sdk.core.domains import ROUNDING
from perfdojo_sdk.core.dtypes import FLOAT_DTYPES, UNCOMPUTED_DTYPES, wrap
from perfdojo_sdk.core.interpreter import MalformedProgram, Schedule, interpret
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.core.text import parse
from perfdojo_sdk.core.transformation import Trace
from perfdojo_sdk.hookspecs.types import Artifact, Measurement, RunRequest
from perfdojo_sdk.measure.kernel_calls import CARRIER, carry, numbers
from perfdojo_sdk.measure.native_runner import NativeRunner
from perfdojo_sdk.testing.typed_programs import has_all_vectors, typed_program
from perfdojo_sdk.verify.dependence import verify_dependence, verify_races
from perfdojo_sdk.verify.exact import verify_exact
from perfdojo_sdk.verify.numeric import verify_numeric

REVERSED = Schedule("reversed")
PROGRAMS = [typed_program(Random(seed), CORE_DIALECT) for seed in range(30)]


def given(program: Program, seed: int) -> dict[str, np.ndarray]:
    """Values for its inputs as a kernel takes them: small ones and, rarely, large ones."""
    rng = np.random.default_rng(seed)
    made = {}
    for name in program.inputs:
        buffer = program.buffer_of[name]
        values = rng.choice([-3, -1.5, 0, 0.25, 1, 2, 100, 1e4], buffer.shape)
        array = np.empty(buffer.shape, CARRIER[buffer.dtype])
        if buffer.dtype not in FLOAT_DTYPES:
            values = (
                np.abs(values).astype(np.int64) & 1 if buffer.dtype == "bool" else values.astype(np.int64)
            )
        if buffer.dtype in UNCOMPUTED_DTYPES:
            values = np.vectorize(lambda v, dtype=buffer.dtype: wrap(int(v), dtype))(values)
        carry(values.astype(np.float32) if buffer.dtype == "bf16" else values, array, buffer.dtype)
        made[name] = array
    return made


def lists(program: Program, arrays: dict[str, np.ndarray]) -> dict[str, list[float]]:
    return {n: numbers(a, program.buffer_of[n].dtype).ravel().tolist() for n, a in arrays.items()}


def test_the_programs_have_what_they_are_for() -> None:
    text = "\n".join(program.text for program in PROGRAMS)
    assert all(f" {dtype} [" in text for dtype in CARRIER if dtype != "tf32") and "tf32(" in text
    assert has_all_vectors(CORE_DIALECT) and not has_all_vectors(replace(CORE_DIALECT, lanes={"f32": 4}))
    lanes = [n.guard for p in PROGRAMS for _, n in p.walk() if getattr(n, "guard", ()) and ":v" in p.text]
    assert len(lanes) > 15
    for program in PROGRAMS:
        assert parse(program.text) == program


def test_lanes_store_in_any_order() -> None:
    for seed, program in enumerate(PROGRAMS):
        inputs = lists(program, given(program, seed))
        forward = interpret(program, inputs, ROUNDING)
        assert repr(interpret(program, inputs, ROUNDING, schedule=REVERSED)) == repr(forward), program


def test_plain_c_computes_the_same() -> None:
    runner = NativeRunner(("-O1", "-ffp-contract=off"))
    for seed in range(0, len(PROGRAMS), 10):
        program = PROGRAMS[seed]
        artifact = runner.compile(CEmitter(program, "pd_k", CORE_DIALECT).source())
        assert isinstance(artifact, Artifact), artifact
        arrays = given(program, seed)
        run = runner.run(artifact, RunRequest(inputs=arrays))
        assert isinstance(run, Measurement) and run.outputs is not None, run
        meant = interpret(program, lists(program, arrays), ROUNDING)
        for name, values in lists(program, dict(run.outputs)).items():
            np.testing.assert_array_equal(values, meant[name], f"{name}\n{program}")


HEAD = "kernel k(x) -> y\nx f32 [5] heap\ny f32 [4] heap\n\n"


def test_lanes_that_do_nothing_neither_read_nor_write() -> None:
    """Whatever they would read may be unwritten or outside; a row without active lanes is left alone."""
    text = (
        HEAD
        + "4 y[{0}] = 7\n4 8:v y[{0}] max= x[{1}-2] if {1} >= 2 and {1} < 7 and {0}+{1} >= 5 and {0} >= 2\n"
    )
    x = [1.0, 2.0, 9.0, 3.0, 4.0]
    assert interpret(parse(text), {"x": x}, ROUNDING)["y"] == [7, 7, 9, 9]
    none = HEAD + "4 y[{0}] = {0}\n4 4:v y[{0}] += x[{1}] if {0}+{1} >= 5\n"
    assert interpret(parse(none), {"x": x}, ROUNDING)["y"] == [0, 1, 5, 3 + 9 + 3]
    unwritten = HEAD.replace("y f32", "t f32 [4] heap\ny f32") + "2:v t[{0}+2] = x[{0}]\n"
    reads = unwritten + "4 y[{0}] = 0\n4:v y[{0}] = t[{0}] if {0} >= %d\n"
    assert interpret(parse(reads % 2), {"x": x}, ROUNDING)["y"] == [0, 0, 1, 2]
    with pytest.raises(MalformedProgram, match="before it is written"):
        interpret(parse(reads % 1), {"x": x}, ROUNDING)


def test_lanes_of_a_split_with_a_rest_are_vectors_with_a_condition() -> None:
    """No more than the rest of a move game is needed: all three legs know lanes that do nothing."""
    start = Trace(kernel("19 y[{0}] = x[{0}] * 2"))
    trace = start.play_all(
        RULES, [move("split_with_condition(s0, factor=4)"), move("annotate_scope(s0.i, suffix=v)")]
    )
    assert "5 4:v y[{0}*4+{1}] = x[{0}*4+{1}] * 2 if {0}*4+{1} <= 18" in trace.program.text
    for step in trace.steps:
        relation = RULES.relation(step)
        report = verify_dependence(
            step.before, step.after, relation, DIALECT, step.legal.kind, step.legal.laws
        )
        assert report.ok, report.problem
    assert verify_exact(trace.root, trace.program, (), DIALECT).ok and verify_races(trace.program, DIALECT).ok
    artifact = NativeRunner(("-O2",)).compile(CEmitter(trace.program, "pd_k", DIALECT).source())
    assert isinstance(artifact, Artifact), artifact
    report = verify_numeric(trace.root, trace.program, artifact, NativeRunner(("-O2",)), {}, DIALECT)
    assert report.ok and "guard_pages" in report.classes[0].executions, report.problem


@pytest.mark.parametrize("other", ["{0} >= 2", "{0} < 3 and {0} >= 1", "{0} <= 3"])
def test_the_exact_leg_notices_another_condition_of_the_lanes(other: str) -> None:
    text = HEAD + "4 y[{0}] = 0\n4:v y[{0}] = x[{0}+1] if {0} >= 1\n"
    changed = parse(text.replace("{0} >= 1", other))
    assert verify_exact(parse(text), parse(text), (), CORE_DIALECT).ok
    assert not verify_exact(parse(text), changed, (), CORE_DIALECT).ok

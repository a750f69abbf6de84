"""Packed arrays on vectors: to the bit what the interpreter gives, and no byte beyond the array is read."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest
from x86_support import capabilities, generate, needs

from perfdojo_sdk.core.domains import ROUNDING
from perfdojo_sdk.core.interpreter import interpret
from perfdojo_sdk.hookspecs.types import Artifact, Measurement, RunRequest
from perfdojo_sdk.measure.kernel_calls import numbers
from perfdojo_sdk.measure.native_runner import NativeRunner
from perfdojo_sdk.testing.packed_programs import drawn, meant, packed_program, passed

TARGETS = ("x86_avx512", "x86_avx2")


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("seed", range(30))
def test_vectors_of_packed_elements(seed: int, target: str) -> None:
    needs(target)
    caps = capabilities(target)
    dialect = caps.dialect()
    program = packed_program(Random(seed), dialect)
    source = generate(program.text, target, "pd_k")
    runner = NativeRunner(("-O1", *[flag for flag in caps.compiler_flags if not flag.startswith("-O")]))
    artifact = runner.compile(source)
    assert isinstance(artifact, Artifact), artifact
    given = drawn(program, Random(seed))
    request = RunRequest(inputs=passed(source, given), executions=("guard_pages",))
    run = runner.run(artifact, request)
    assert isinstance(run, Measurement) and run.outputs is not None, run
    for name, values in interpret(program, meant(program, given), ROUNDING, dialect).items():
        got: Any = numbers(run.outputs[name], program.buffer_of[name].dtype).ravel()
        np.testing.assert_array_equal(got, np.array(values, got.dtype), f"{name}\n{program}")


LANES = """kernel lanes(w, c, x) -> s, b, f
w packed i4 [3,64] heap
c packed f4e2m1 [3,24] heap
x f32 [64] heap
s f32 [3] heap
b i8 [3,64] heap
f f32 [3,24] heap

3 s[{0}] = 0
3 8 8:v s[{0}] += f32(w[{0},{1}*8+{2}]) * x[{1}*8+{2}]
3 2 32:v b[{0},{1}*32+{2}] = i8(w[{0},{1}*32+{2}])
3 3 8:v f[{0},{1}*8+{2}] = f32(c[{0},{1}*8+{2}])
"""


def test_whole_bytes_become_one_vector() -> None:
    """Neighbours that start on a byte are read at once, those inside of one lane by lane."""
    code = generate(LANES, "x86_avx2").code
    spread = "pd_spread_i4x8(&w[i0*32 + i1*4], 0, 8)"
    assert spread in code and "pd_unpack_i4x32(&w[i0*32 + i1*16], 0, 32)" in code
    assert "pd_unpack_f4e2m1x8(&c[i0*12 + i1*4], 0, 8)" in code and "pd_packed_i4" not in code
    inside = generate(LANES.replace("f32(w[{0},{1}*8+{2}])", "f32(w[{0},{1}*7+{2}])"), "x86_avx2").code
    assert spread not in inside and inside.count("pd_packed_i4(w, ") == 8
    rows = generate(LANES.replace("[3,64]", "[3,65]"), "x86_avx2").code
    assert spread not in rows and rows.count("pd_packed_i4(w, ") == 8 + 32


@pytest.mark.parametrize("target", TARGETS)
def test_the_compiler_takes_every_width(target: str) -> None:
    """Also on machines that lack the instructions."""
    caps = capabilities(target)
    widest = str(16 if target == "x86_avx512" else 8)
    text = LANES.replace("8 8:v", f"{64 // int(widest)} {widest}:v").replace("*8", f"*{widest}")
    text = text.replace("3 3 8:v f[{0},{1}*" + widest, "3 3 8:v f[{0},{1}*8").replace(
        "c[{0},{1}*" + widest, "c[{0},{1}*8"
    )
    programs = [text.replace(" i4 ", f" {dtype} ") for dtype in ("i4", "u4", "i2", "u2")]
    for program in programs:
        artifact = NativeRunner(caps.compiler_flags).compile(generate(program, target, "pd_k"))
        assert isinstance(artifact, Artifact), artifact


STAGED = """kernel staged(w) -> y
w packed u4 [4,64] heap
t u4 [8] LOCATION
y f32 [4,64] heap

4 8
| 8:v t[{2}] = w[{0},{1}*8+{2}]
| 8:v y[{0},{1}*8+{2}] = f32(t[{2}])
"""


def test_what_is_fetched_early_are_bytes() -> None:
    locations = capabilities("x86_avx2").dialect().locations.values()
    early = [p.name for p in locations if (p.fetch_ahead or p.lead_bytes) and not p.copy_out_only]
    assert early
    for name in early:
        code = generate(STAGED.replace("LOCATION", name), "x86_avx2").code
        fetched = [line for line in code.splitlines() if "pd_prefetch" in line and "w[" in line]
        assert fetched and all("w[i0*32 + i1*4" in line or "w[(" in line for line in fetched), (name, fetched)

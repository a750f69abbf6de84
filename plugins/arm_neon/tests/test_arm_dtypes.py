"""Vectors of every dtype give, in the emulator, what the interpreter gives, to the bit."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from arm_support import both_targets, compiled, needs_compiler, source
from perfdojo_arm_neon.runner import ArmRunner

from perfdojo_sdk.core.domains import ROUNDING
from perfdojo_sdk.core.dtypes import BYTES, FLOAT_DTYPES
from perfdojo_sdk.core.interpreter import interpret
from perfdojo_sdk.core.text import parse
from perfdojo_sdk.hookspecs.types import Artifact, Measurement, RunRequest, Target
from perfdojo_sdk.measure.kernel_calls import CARRIER, carry, numbers
from perfdojo_sdk.testing.numeric_leg import compiled_together
from perfdojo_sdk.testing.typed_programs import typed_program

PROGRAMS = 8
#: Values of every dtype that the text for all instruction sets and Arm's own functions compute from.
VALUES = (-3, -1.5, 0, 0.25, 1, 2, 100, 1e4)


@needs_compiler
@both_targets
def test_programs_over_every_dtype(target: Target) -> None:
    capabilities = target.capabilities
    assert capabilities.lanes == {dtype: 16 // size for dtype, size in BYTES.items()}
    flags = tuple("-O1" if flag == "-O3" else flag for flag in capabilities.compiler_flags)
    runner = ArmRunner(capabilities.model_copy(update={"compiler_flags": (*flags, "-ffp-contract=off")}))
    programs = [typed_program(Random(seed), target.dialect) for seed in range(PROGRAMS)]
    text = "kernel own(x, h) -> y, z\nx f64 [2] heap\nh f32 [4] heap\ny f64 [2] heap\nz f16 [4] heap\n\n"
    text += "2:v y[{0}] = round(max(x[{0}], 0.3)) + floor(x[{0}]) - ceil(min(x[{0}], 2)) / trunc(x[{0}])\n"
    programs.append(parse(text + "4:v z[{0}] = f16(h[{0}]) + f16(sqrt(h[{0}]))\n", target.dialect))
    whole = "kernel whole(a, b) -> q, r\n" + "".join(f"{name} i16 [11] heap\n" for name in "abqr") + "\n"
    whole += "8:v q[{0}] = a[{0}] / or(b[{0}], 1)\n3:v q[{0}+8] = a[{0}+8] / or(b[{0}+8], 1)\n"
    programs.append(parse(whole + "8:v r[{0}] = rem(a[{0}], 7)\n3:v r[{0}+8] = -1\n", target.dialect))
    long = "kernel long(a) -> q, r\n" + "".join(f"{name} i64 [8] heap\n" for name in "aqr") + "\n"
    long += "4 2:v q[{0}*2+{1}] = a[{0}*2+{1}] / -7\n4 2:v r[{0}*2+{1}] = rem(a[{0}*2+{1}], 1000)\n"
    programs.append(parse(long, target.dialect))
    sources = [source(program, f"pd_typed{k}", target) for k, program in enumerate(programs)]
    assert "pd_lanes_i" in "".join(s.code for s in sources) and "pd_low" in "".join(s.code for s in sources)
    for seed, (program, artifact) in enumerate(
        zip(programs, compiled_together(runner, sources), strict=True)
    ):
        assert isinstance(artifact, Artifact), artifact
        rng, given = np.random.default_rng(seed), {}
        for name in program.inputs:
            buffer = program.buffer_of[name]
            values = rng.choice(VALUES, buffer.shape)
            if buffer.dtype not in FLOAT_DTYPES:
                values = values.astype(np.int64) & (1 if buffer.dtype == "bool" else -1)
            given[name] = np.empty(buffer.shape, CARRIER[buffer.dtype])
            carry(values, given[name], buffer.dtype)
        run = runner.run(artifact, RunRequest(inputs=given, timeout_s=60))
        assert isinstance(run, Measurement) and run.outputs is not None, run
        read = {n: numbers(a, program.buffer_of[n].dtype).ravel().tolist() for n, a in given.items()}
        for name, values in interpret(program, read, ROUNDING, target.dialect).items():
            got = numbers(run.outputs[name], program.buffer_of[name].dtype).ravel()
            np.testing.assert_array_equal(got, np.array(values, got.dtype), f"{name}\n{program}")


SUMS = """kernel sums(x, w) -> y
x DTYPE [4] heap
w DTYPE [4,4] heap
y i32 [4] heap

4:v y[{0}] = 2147483647
4:l 4:d y[{0}] += i32(x[{1}]) * i32(w[{0},{1}])
"""


@needs_compiler
@both_targets
def test_products_of_bytes_are_added_up_in_groups(target: Target) -> None:
    """At the ends of the ranges, so that sums wrap."""
    for dtype, instruction in (("i8", 0x0E809400), ("u8", 0x2E809400)):
        made = compiled(SUMS.replace("DTYPE", dtype), target=target)
        words = np.frombuffer(made.content[: len(made.content) // 4 * 4], np.uint32)
        assert (words & 0xBFE0FC00 == instruction).any(), "SDOT or UDOT"
        ends = np.iinfo(CARRIER[dtype])
        x, w = np.full(4, ends.min, ends.dtype), np.full((4, 4), ends.max, ends.dtype)
        w[2] = x[1] = ends.max
        run = ArmRunner(target.capabilities).run(made, RunRequest(inputs={"x": x, "w": w}, timeout_s=60))
        assert isinstance(run, Measurement) and run.outputs is not None, run
        meant = (2**31 - 1 + w.astype(np.int64) @ x.astype(np.int64)).astype(np.int32)
        np.testing.assert_array_equal(run.outputs["y"], meant)


#: zip1 and zip2 of whole registers, less the size of their elements.
ZIP1, ZIP2 = 0x4E003800, 0x4E007800


@needs_compiler
@both_targets
@pytest.mark.parametrize("dtype", ["u8", "bf16", "f32", "f64"])
def test_columns_become_rows_by_shuffles(dtype: str, target: Target) -> None:
    """Whole squares, rests of both sides, and less than a square; into a part of a larger array."""
    size = BYTES[dtype]
    for rows, columns in ((35, 21), (3, 5)):
        text = (
            f"kernel k(x) -> y\nx {dtype} [{columns},{rows}] heap\ny {dtype} [{rows},{columns + 1}] heap\n\n"
        )
        text += f"{rows} y[{{0}},0] = x[0,0]\n{rows}:t {columns} y[{{0}},{{1}}+1] = x[{{1}},{{0}}]\n"
        assert f"pd_transpose_{8 * size}(" in source(text, target=target).code
        made = compiled(text, target=target)
        words = np.frombuffer(made.content[: len(made.content) // 4 * 4], np.uint32) & 0xFFE0FC00
        for instruction in (ZIP1, ZIP2):
            assert (words == instruction | size.bit_length() - 1 << 22).sum() >= (
                8 if size == 1 and rows > 16 else 1
            )
        bits = np.random.default_rng(7).integers(0, 256, (columns, rows * size), np.uint8)
        x = bits.view(CARRIER[dtype])
        run = ArmRunner(target.capabilities).run(made, RunRequest(inputs={"x": x}, timeout_s=60))
        assert isinstance(run, Measurement) and run.outputs is not None, run
        assert run.outputs["y"][:, 1:].tobytes() == x.T.tobytes()
        assert run.outputs["y"][:, 0].tobytes() == x[0, :1].tobytes() * rows

"""Packed arrays: declarations, refusals, C, and what callers hand over."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest

from perfdojo_sdk.codegen.c import CEmitter, support_text
from perfdojo_sdk.codegen.vector import VECTOR_SUPPORT
from perfdojo_sdk.core.dialect import CORE_DIALECT
from perfdojo_sdk.core.domains import ROUNDING
from perfdojo_sdk.core.dtypes import PACKED_DTYPES, bits
from perfdojo_sdk.core.errors import DojoError, UnavailableError
from perfdojo_sdk.core.interpreter import interpret
from perfdojo_sdk.core.operations import OPERATIONS
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.core.text import parse
from perfdojo_sdk.core.transformation import Rules
from perfdojo_sdk.core.transformations import GENERIC
from perfdojo_sdk.experts.cpu.steps import data_bytes
from perfdojo_sdk.graph.packed_arrays import pack, unpack
from perfdojo_sdk.hookspecs.types import (
    ArraySpec,
    Artifact,
    Elements,
    KernelSource,
    MachineFigures,
    Measurement,
    MemoryFigures,
    RunRequest,
)
from perfdojo_sdk.measure.kernel_calls import numbers
from perfdojo_sdk.measure.native_runner import NativeRunner
from perfdojo_sdk.measure.roofline import roofline
from perfdojo_sdk.plugins import load_plugins
from perfdojo_sdk.plugins.guards import GuardedGenerator
from perfdojo_sdk.search.play import Play
from perfdojo_sdk.testing.packed_programs import drawn, meant, packed_program, passed
from perfdojo_sdk.verify.numeric import verify_numeric

ROWS = """kernel rows(w, x) -> y
w packed i4 [5,7] heap
x f32 [7] heap
y f32 [5] heap

5
| y[{0}] = 0
| 7 y[{0}] += f32(w[{0},{1}]) * x[{1}]
"""


def test_a_declaration_is_read_as_it_is_printed() -> None:
    program = parse(ROWS)
    assert program.text == ROWS and parse(program.text) == program
    assert program.buffers[0].packed and program.buffers[0].bytes == 18
    plain = parse(ROWS.replace("packed ", ""))
    assert plain != program and plain.buffers[0].bytes == 35
    assert program.tree_lines == plain.tree_lines


@pytest.mark.parametrize("dtype", PACKED_DTYPES)
def test_bytes_hold_the_first_element_in_their_lowest_bits(dtype: str) -> None:
    elements, share = Elements((3, 5), dtype), 8 // bits(dtype)
    values = np.arange(15, dtype=np.uint8).reshape(3, 5)
    packed = pack(values, elements, 0xFF)
    assert packed.shape == (-(-15 // share),)
    mask = (1 << bits(dtype)) - 1
    assert packed[0] == sum((k & mask) << bits(dtype) * k for k in range(share))
    assert packed[-1] >> 8 - bits(dtype) == mask  # bits of no element
    low = unpack(packed, elements).view(np.uint8) & mask
    assert low.tolist() == (values & mask).tolist()
    sets = np.stack([values, values + 1])
    assert pack(sets, elements)[1].tolist() == pack(values + 1, elements).tolist()
    one = Elements((), dtype)
    assert unpack(pack(values[0, 1], one), one).shape == ()


@pytest.mark.parametrize("seed", range(24))
def test_c_means_what_the_interpreter_says(seed: int) -> None:
    program = packed_program(Random(seed), CORE_DIALECT)
    source = CEmitter(program, "pd_k", CORE_DIALECT).source()
    runner = NativeRunner(("-O1",))
    artifact = runner.compile(source)
    assert isinstance(artifact, Artifact), artifact
    given = drawn(program, Random(seed))
    request = RunRequest(inputs=passed(source, given), executions=("guard_pages",))
    run = runner.run(artifact, request)
    assert isinstance(run, Measurement) and run.outputs is not None, run
    expected = interpret(program, meant(program, given), ROUNDING, CORE_DIALECT)
    for name, values in expected.items():
        got: Any = numbers(run.outputs[name], program.buffer_of[name].dtype).ravel()
        np.testing.assert_array_equal(got, np.array(values, got.dtype), f"{name}\n{program}")


REFUSED = {
    "an output": ("y f32 [5] heap", "y packed u4 [5] heap", "y is packed, and is written"),
    "an element of whole bytes": (
        "x f32",
        "x packed f32",
        "an element of f32 fills its bytes",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_packed_is_refused(what: str) -> None:
    old, new, message = REFUSED[what]
    text = ROWS.replace(old, new)
    if "y packed" in text:
        text = text.replace(" += f32(w[{0},{1}]) * x[{1}]", " = u4(x[{1}])").replace("| y[{0}] = 0\n", "")
    with pytest.raises(DojoError, match="PD-P019") as refused:
        parse(text)
    assert message in str(refused.value) and "leave out packed" in str(refused.value)


def test_a_write_of_a_packed_array_is_shown() -> None:
    text = ROWS.replace("y f32 [5] heap\n", "y f32 [5] heap\nt packed u4 [5] heap\n")
    with pytest.raises(DojoError, match=r"t is packed, and is written\n +7 \| 5 t\[\{0\}\]"):
        parse(text.replace("\n\n5\n", "\n\n5 t[{0}] = u4(x[{0}])\n5\n"))
    changed = "kernel k(w) -> w\nw packed u4 [5] heap\n\n5 w[{0}] = u4(u8(w[{0}]) + 1)\n"
    with pytest.raises(DojoError, match="w is packed, and is changed in place"):
        parse(changed)


def test_a_copy_of_a_packed_array_has_an_element_in_each_byte() -> None:
    """Whatever a move makes of the array is a buffer like any other, and the array stays as it is."""
    play = Play(parse(ROWS), Rules(CORE_DIALECT, GENERIC))
    play.must("stage_read", "s0", array="w")
    staged = play.program.buffer_of["w_r"]
    assert staged.dtype == "i4" and not staged.packed and play.program.buffer_of["w"].packed
    for step in Rules(CORE_DIALECT, GENERIC).steps(parse(ROWS)):
        made = step.after
        assert [b.name for b in made.buffers if b.packed] == ["w"], step.move


class Older:
    """A code generator that knows no packed arrays."""

    def generate(self, program: Program, symbol: str) -> KernelSource:
        inputs, outputs = (
            tuple([ArraySpec(n, program.buffer_of[n].shape, program.buffer_of[n].dtype) for n in names])
            for names in (program.given, program.outputs)
        )
        return KernelSource(symbol, inputs, outputs, "int k;")


def test_generators_that_are_older_refuse_packed_arrays() -> None:
    guard = GuardedGenerator("elder", Older())
    assert guard.generate(parse(ROWS.replace("packed ", "")), "k").symbol == "k"
    with pytest.raises(
        UnavailableError, match="w is packed, which does not compile for this target yet"
    ) as refused:
        guard.generate(parse(ROWS), "k")
    assert refused.value.code == "PD-C001" and "declare w without packed" in str(refused.value)


def test_snitch_refuses_elements_of_less_than_a_byte() -> None:
    plugins = load_plugins()
    target = plugins.target("riscv_snitch")
    with pytest.raises(UnavailableError, match="w is i4") as refused:
        plugins.guarded_generator(target).generate(parse(ROWS, target.dialect), "k")
    assert refused.value.code == "PD-C001"


def test_bytes_are_counted_as_they_lie_in_memory() -> None:
    program, plain = (parse(text) for text in (ROWS, ROWS.replace("packed ", "")))
    assert data_bytes(plain) - data_bytes(program) == 35 - 18
    figures = MachineFigures(memory=MemoryFigures(read_gbs=8.0, write_gbs=8.0, copy_gbs=8.0))
    slower, faster = (roofline(each, 1, figures) for each in (plain, program))
    assert slower and faster and slower.seconds > faster.seconds


def test_the_numeric_leg_knows_which_bits_are_an_element() -> None:
    """Bits in the wrong order are a wrong result, and so are those behind the last element."""
    program = parse(ROWS)
    source, runner = CEmitter(program, "pd_k", CORE_DIALECT).source(), NativeRunner(("-O1",))
    faults = {"": "", "(((i) & 1) << 2) & 15": "((~(i) & 1) << 2) & 15", "<< 2) & 15)": "<< 2) & 31)"}
    problems = []
    for right, wrong in faults.items():
        header = source.support["pd_types.h"].replace(right, wrong) if right else source.support["pd_types.h"]
        assert bool(right) == (header != source.support["pd_types.h"])
        if "31" in wrong:
            header = header.replace("pd_wrap_i4((int8_t)PD_PACKED_4(p, i))", "((int8_t)PD_PACKED_4(p, i))")
        artifact = runner.compile(replace(source, support={**source.support, "pd_types.h": header}))
        assert isinstance(artifact, Artifact), artifact
        report = verify_numeric(program, program, artifact, runner, {}, CORE_DIALECT, quick=True)
        problems.append(report.problem)
    assert not problems[0] and all(problems[1:]), problems


@pytest.mark.parametrize("register", [16, 32, 64])
def test_vectors_of_any_width_take_bytes_apart(register: int) -> None:
    """The text for all instruction sets, on whatever processor this is; only the bytes of lanes are read."""
    operations = " ".join(f"pd_f32v pd_{name}_f32v();" for name in OPERATIONS)
    lines, meant, content = [], list[int](), np.random.default_rng(3).integers(0, 256, 32, np.uint8)
    for dtype in PACKED_DTYPES:
        for lanes in (register, register // 2, register // 4, register // 8):
            if lanes * bits(dtype) % 8:
                continue
            elements = unpack(content[: lanes * bits(dtype) // 8], Elements((lanes,), dtype))
            spreads = ["spread"] if lanes * 4 <= register and dtype != "f4e2m1" else []
            for function in ("unpack", *spreads):
                for low, high in ((0, lanes), (0, lanes - 1), (lanes // 2, lanes)):
                    call = f"pd_{function}_{dtype}x{lanes}(x, {low}, {high})"
                    lines.append(f"{{ __typeof__({call}) v = {call};")
                    lines.append(f"for (int k = {low}; k < {high}; k++) y[n++] = v[k]; }}")
                    meant += elements[low:high].tolist()
    code = "\n".join([
        '#include "pd_runtime.h"', '#include "pd_scalar.h"', f"#define PD_VECTOR_BYTES {register}",
        f"typedef float pd_f32v __attribute__((vector_size({register})));", operations,
        '#include "pd_vectors.h"', '#include "pd_packed.h"',
        "size_t pd_k_workspace_bytes(int threads) { (void)threads; return 0; }",
        "int pd_k(const uint8_t *x, int32_t *y, void *workspace, size_t bytes, int threads)",
        "{ (void)workspace, (void)bytes, (void)threads; int n = 0;", *lines, "return 0; }",
    ])  # fmt: skip
    support = {name: support_text(name) for name in VECTOR_SUPPORT}
    spec = ArraySpec("x", (32,), "u8"), ArraySpec("y", (len(meant),), "i32")
    runner = NativeRunner(("-O1",))
    artifact = runner.compile(KernelSource("pd_k", spec[:1], spec[1:], code, support=support))
    assert isinstance(artifact, Artifact), artifact
    run = runner.run(artifact, RunRequest(inputs={"x": content}))
    assert isinstance(run, Measurement) and run.outputs is not None, run
    assert run.outputs["y"].tolist() == meant

"""Packed arrays: declarations, refusals, C, and what callers hand over."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest

from perfdojo_sdk.codegen.c import CEmitter
from perfdojo_sdk.core.dialect import CORE_DIALECT
from perfdojo_sdk.core.domains import ROUNDING
from perfdojo_sdk.core.dtypes import PACKED_DTYPES, bits
from perfdojo_sdk.core.errors import DojoError
from perfdojo_sdk.core.interpreter import interpret
from perfdojo_sdk.core.text import parse
from perfdojo_sdk.hookspecs.types import Artifact, Elements, Measurement, RunRequest
from perfdojo_sdk.measure.kernel_calls import numbers
from perfdojo_sdk.measure.native_runner import NativeRunner
from perfdojo_sdk.measure.packed_arrays import pack, unpack
from perfdojo_sdk.testing.packed_programs import drawn, meant, packed_program, passed

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

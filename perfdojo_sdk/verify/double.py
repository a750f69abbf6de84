"""Programs in float64: every float array of a program as f64, run literally.

Small programs run in the interpreter, larger ones as the numeric leg's reference in C, which shares nothing
with the code of kernels.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from perfdojo_sdk.core.dialect import CORE_DIALECT
from perfdojo_sdk.core.domains import FLOAT64
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.core.text import parse
from perfdojo_sdk.graph.arrays import numpy_dtype
from perfdojo_sdk.graph.running import interpreted
from perfdojo_sdk.hookspecs.types import RunRequest
from perfdojo_sdk.measure.kernel_calls import CARRIER
from perfdojo_sdk.verify.groups import Array
from perfdojo_sdk.verify.reference_c import WIDE, reference
from perfdojo_sdk.verify.references import LARGE_FLAGS, compiled, run_reference, value_of
from perfdojo_sdk.verify.smaller_games import statement_instances

#: Float dtypes whose arrays become f64. Floats of eight bits and less are codes, and stay.
WIDENED = ("f32", "f16", "bf16")
#: Most statement instances of a program that the interpreter runs.
MOST_INTERPRETED = 50_000
TIMEOUT_S, BYTES = 3600.0, 32 << 30


def widened(program: Program) -> Program:
    """The program with f64 in place of each wider float dtype, casts included."""
    return program.once("in float64", lambda: parse(_DTYPES.sub("f64", program.text)))


_DTYPES = re.compile(rf"\b(?:{'|'.join(WIDENED)})\b")


def run_in_double(program: Program, inputs: Sequence[Array]) -> list[Array]:
    """The outputs of a program in float64, whose float inputs are converted; :class:`VerificationError` if it
    does not run."""
    wide = widened(program)
    buffers = [wide.buffer_of[name] for name in wide.given]
    given = [
        np.ascontiguousarray(array, numpy_dtype(b.dtype)) for array, b in zip(inputs, buffers, strict=True)
    ]
    if statement_instances(wide) <= MOST_INTERPRETED:
        return interpreted(wide, given, FLOAT64)
    source = reference(wide, WIDE, {}, CORE_DIALECT, large=True)
    artifact = compiled(source, LARGE_FLAGS)
    arrays = {
        name: a.view(CARRIER[b.dtype])[None] for name, a, b in zip(wide.given, given, buffers, strict=True)
    }
    outputs = run_reference(artifact, RunRequest(arrays, timeout_s=TIMEOUT_S, memory_bytes=BYTES))
    found = []
    for name in wide.outputs:
        buffer = wide.buffer_of[name]
        made = outputs[value_of(name)][0]
        found.append(made.astype(numpy_dtype(buffer.dtype)).reshape(buffer.shape))
    return found

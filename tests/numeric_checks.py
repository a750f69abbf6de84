"""Hand-written C for programs, and what leg 2 and its reference programs say about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache

from numeric_kernels import RUNNER, SHARED, program

from perfdojo_sdk.core.dialect import CORE_DIALECT
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.hookspecs.types import ArraySpec, Artifact, KernelSource, RunRequest
from perfdojo_sdk.measure.native_runner import NativeRunner
from perfdojo_sdk.verify import references
from perfdojo_sdk.verify.groups import Array
from perfdojo_sdk.verify.numeric import NumericReport, verify_numeric
from perfdojo_sdk.verify.reference_c import reference

ACCURACY = {"exp": 2.0}

SOFTMAX = """kernel softmax(x) -> y
x f32 [16,48] heap
m f32 [16] heap
e f32 [16,48] heap
s f32 [16] heap
y f32 [16,48] heap

16
| m[{0}] = -inf
| 48 m[{0}] max= x[{0},{1}]
16 48 e[{0},{1}] = exp(x[{0},{1}] - m[{0}])
16
| s[{0}] = 0
| 48 s[{0}] += e[{0},{1}]
16 48 y[{0},{1}] = e[{0},{1}] / s[{0}]
"""
SOFTMAX_LOOP = """
for (int r = 0; r < 16; r++) {
    const float *in = x + r*48; float *out = y + r*48;
    float m = -INFINITY, s = 0;
    for (int k = 0; k < 48; k++) { float v = in[k]; m = v != v || m != m ? NAN : v > m ? v : m; }
    for (int k = 0; k < 48; k++) s += out[k] = expf(in[k] - m);
    for (int k = 0; k < 48; k++) out[k] /= s;
}"""


def specs(root: Program, names: tuple[str, ...]) -> tuple[ArraySpec, ...]:
    return tuple(ArraySpec(n, root.buffer_of[n].shape, "f32") for n in names)


@lru_cache
def compiled(text: str, body: str, flags: tuple[str, ...] = ("-O2",)) -> Artifact:
    """A hand-written kernel with the interface of the program."""
    root = program(text)
    arrays = [f"const float *{n}" for n in root.inputs] + [f"float *{n}" for n in root.outputs]
    code = f"""
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
int pd_k({", ".join(arrays)}, void *workspace, size_t bytes, int threads) {{ {body} return 0; }}
size_t pd_k_workspace_bytes(int threads) {{ return 0; }}
"""
    source = KernelSource("pd_k", specs(root, root.inputs), specs(root, root.outputs), code)
    artifact = NativeRunner(flags).compile(source)
    assert isinstance(artifact, Artifact), artifact
    return artifact


def check(
    original: str,
    body: str,
    transformed: str = "",
    flags: tuple[str, ...] = ("-O2",),
    forks: bool = True,
) -> NumericReport:
    """Leg 2's opinion of a hand-written kernel; with ``forks`` as a fuzz run asks for it."""
    with SHARED.by(original):
        return verify_numeric(
            program(original),
            program(transformed or original),
            compiled(original, body, flags),
            replace(RUNNER, forks=forks),
            ACCURACY,
            CORE_DIALECT,
            threads=(1,),
            forks=forks,
        )


def run_reference(kind: str, text: str, inputs: Mapping[str, Array], **options: object) -> dict[str, Array]:
    """The outputs of the reference program of this kind for one set of inputs."""
    source = reference(program(text), kind, ACCURACY, CORE_DIALECT, **options)  # type: ignore[arg-type]
    request = RunRequest(inputs={name: array[None] for name, array in inputs.items()})
    found = references.run_reference(references.compiled(source, references.REFERENCE_FLAGS), request)
    return {name: array[0] for name, array in found.items()}

"""Attention of common models beside PyTorch's scaled_dot_product_attention.

    python benchmarks/attention.py [--threads 1] [--rounds 5] [--only bert] [--json]

Each row is the kernel (scores, mask, softmax, product) that the models' front ends write, planned by the
target's expert, compiled and timed beside PyTorch's fused function; both take turns. A ratio is the median
over the rounds of peer / ours in the same round. Times are measured, warm. Nothing is verified here but that
results agree.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

if not __package__:
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.cliff.programs import KernelCase
from benchmarks.cliff.race import beside_eager, contest
from perfdojo_sdk.graph.builder import Builder
from perfdojo_sdk.graph.operators.attention import attention as formula

#: Name -> heads, heads of keys and values, rows, columns, size of a head, causal.
SHAPES: dict[str, tuple[int, int, int, int, int, bool]] = {
    "bert_128": (12, 12, 128, 128, 64, False),
    "bert_512": (12, 12, 512, 512, 64, False),
    "gpt2_1024": (12, 12, 1024, 1024, 64, True),
    "llama_128": (32, 8, 128, 128, 128, True),
    "llama_1024": (32, 8, 1024, 1024, 128, True),
    "long_4096": (2, 2, 4096, 4096, 64, False),
    "decode_1024": (32, 8, 1, 1024, 128, False),
}


def attention(heads: int, groups: int, rows: int, columns: int, size: int, causal: bool) -> KernelCase:
    """The kernel that the models' front ends write for these sizes, beside PyTorch's function."""
    inputs = {"q": (1, heads, rows, size), "k": (1, groups, columns, size), "v": (1, groups, columns, size)}
    b = Builder()
    q, k, v = (b.input(name, shape, "f32") for name, shape in inputs.items())
    graph = b.graph({"y": formula(b, q, k, v, size**-0.5, causal)})
    (program,) = graph.programs
    shapes = dict(
        zip(program.inputs, (graph.values[name].shape for name in graph.nodes[0].inputs), strict=True)
    )

    def function(F: Any, **arrays: Any) -> Any:
        given = [arrays[n].reshape(shape) for n, shape in zip(program.inputs, inputs.values(), strict=True)]
        found = F.scaled_dot_product_attention(*given, is_causal=causal, enable_gqa=heads != groups)
        return found.reshape(1, groups, heads // groups, rows, size)

    return KernelCase("attention", shapes, given=program, function=function)


if __name__ == "__main__":
    sys.exit(contest(__doc__, SHAPES, lambda race, name: race.row(attention(*SHAPES[name])), beside_eager))

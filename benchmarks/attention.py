"""Attention of common models beside PyTorch's scaled_dot_product_attention.

    python benchmarks/attention.py [--threads 1] [--rounds 5] [--only bert] [--json]

Each row is the plain formula (scores, mask, softmax, product) as one program, planned by the target's expert,
compiled and timed beside PyTorch's fused function; both take turns. A ratio is the median over the rounds of
peer / ours in the same round. Times are measured, warm. Nothing is verified here but that results agree.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

if not __package__:
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.cliff.programs import Case
from benchmarks.cliff.race import beside_eager, contest

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


def attention(heads: int, groups: int, rows: int, columns: int, size: int, causal: bool) -> Case:
    """The formula for these sizes, and PyTorch's function; heads of one group share keys and values."""
    each = heads // groups
    made = Case("attention")
    keys = (groups, columns, size)
    made.inputs = {"q": (groups, each, rows, size), "k": keys, "v": keys}
    square, line = (groups, each, rows, columns), (groups, each, rows)
    made.temporaries = {"s": square, "z": square, "m": line, "e": square, "t": line, "p": square}
    made.outputs = {"o": (groups, each, rows, size)}
    at, row = "[{0},{1},{2},{3}]", "[{0},{1},{2}]"
    outer = f"{groups} {each} {rows}"
    scaled = f"s{at} * {size**-0.5!r}"
    masked = f"select({{3}} <= {{2}}, {scaled}, -inf)" if causal else scaled
    made.lines = [
        f"{outer} {columns}", f"| s{at} = 0",
        f"| {size} s{at} += q[{{0}},{{1}},{{2}},{{4}}] * k[{{0}},{{3}},{{4}}]",
        f"{outer} {columns} z{at} = {masked}",
        f"{outer}", f"| m{row} = -inf", f"| {columns} m{row} max= z{at}",
        f"{outer} {columns} e{at} = exp(z{at} - m{row})",
        f"{outer}", f"| t{row} = 0", f"| {columns} t{row} += e{at}",
        f"{outer} {columns} p{at} = e{at} / t{row}",
        f"{outer} {size}", f"| o{at} = 0",
        f"| {columns} o{at} += p[{{0}},{{1}},{{2}},{{4}}] * v[{{0}},{{4}},{{3}}]",
    ]  # fmt: skip

    def function(F: Any, q: Any, k: Any, v: Any) -> Any:
        found = F.scaled_dot_product_attention(
            q.reshape(1, heads, rows, size), k[None], v[None], is_causal=causal, enable_gqa=each > 1
        )
        return found.reshape(q.shape)

    made.function = function
    return made


if __name__ == "__main__":
    sys.exit(contest(__doc__, SHAPES, lambda race, name: race.row(attention(*SHAPES[name])), beside_eager))

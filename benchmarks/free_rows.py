"""A model with free rows beside models built for exactly so many: times for several numbers of rows.

    python benchmarks/free_rows.py [--target best] [--rows 16,17,31,61,127] [--blocks 1,4,16,64]
        [--layers 256,256,64] [--threads 1] [--output build/free_rows] [--json]

The model is layers of a product, a bias and a ReLU, with a softmax at the end, of random weights. Both take
turns on the same inputs, so that a busy machine slows both; the ratio is the median over rounds of ours (free
rows) over exact. Results are compared too. After an interruption the same command goes on.

Times are medians, measured.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from perfdojo_sdk.graph.builder import Builder
from perfdojo_sdk.graph.graph import Array, Graph
from perfdojo_sdk.graph.rows import free_rows
from perfdojo_sdk.graph.writer import parsed
from perfdojo_sdk.library.settings import Settings
from perfdojo_sdk.models.free_rows import optimise_rows
from perfdojo_sdk.models.model import Model, load_one
from perfdojo_sdk.models.optimise import optimise
from perfdojo_sdk.plugins import load_plugins

ROUNDS, TURN_S = 15, 0.02

LAYER = """kernel layer(x, w, b) -> y
x f32 [{n},{k}] heap
w f32 [{k},{m}] heap
b f32 [{m}] heap
t f32 [{n},{m}] heap
y f32 [{n},{m}] heap

{n} {m}
| t[{{0}},{{1}}] = 0
| {k} t[{{0}},{{1}}] += x[{{0}},{{2}}] * w[{{2}},{{1}}]
{n} {m} y[{{0}},{{1}}] = max(t[{{0}},{{1}}] + b[{{1}}], 0)
"""
SOFTMAX = """kernel softmax(x) -> y
x f32 [{n},{m}] heap
h f32 [{n}] heap
e f32 [{n},{m}] heap
s f32 [{n}] heap
y f32 [{n},{m}] heap

{n}
| h[{{0}}] = -inf
| {m} h[{{0}}] max= x[{{0}},{{1}}]
{n} {m} e[{{0}},{{1}}] = exp(x[{{0}},{{1}}] - h[{{0}}])
{n}
| s[{{0}}] = 0
| {m} s[{{0}}] += e[{{0}},{{1}}]
{n} {m} y[{{0}},{{1}}] = e[{{0}},{{1}}] / s[{{0}}]
"""


def layers(widths: Sequence[int]) -> Callable[[int], Graph]:
    """The model for a number of rows; ``widths``: of the input and of each layer's result."""
    draw = np.random.default_rng(0)
    weights = [
        (draw.standard_normal((k, m)) / k**0.5, draw.standard_normal(m))
        for k, m in zip(widths, widths[1:], strict=False)
    ]

    def at(rows: int) -> Graph:
        builder = Builder("layers")
        value = builder.input("x", (rows, widths[0]), "f32")
        for matrix, bias in weights:
            k, m = matrix.shape
            program = parsed(LAYER.format(n=rows, k=k, m=m))
            constants = [builder.constant(each.astype(np.float32)) for each in (matrix, bias)]
            [value] = builder.kernel(program, [value, *constants], [((rows, m), "f32")])
        program = parsed(SOFTMAX.format(n=rows, m=widths[-1]))
        [value] = builder.kernel(program, [value], [((rows, widths[-1]), "f32")])
        return builder.graph({"y": value})

    return at


def seconds(model: Model, x: Array, threads: int) -> float:
    """Seconds of a call, the median of those of one turn."""
    found: list[float] = []
    end = time.perf_counter() + TURN_S
    while len(found) < 3 or time.perf_counter() < end:
        begin = time.perf_counter()
        model.run({"x": x}, threads)
        found.append(time.perf_counter() - begin)
    return statistics.median(found)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--target", default="best")
    parser.add_argument("--rows", default="16,17,31,61,127")
    parser.add_argument("--blocks", default="1,4,16,64")
    parser.add_argument("--layers", default="256,256,64")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--output", type=Path, default=Path("build", "free_rows"))
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    plugins = load_plugins(targets=[options.target])
    target = plugins.target(options.target)
    settings = Settings(threads=options.threads)
    at = layers([int(width) for width in options.layers.split(",")])
    sizes = [int(size) for size in options.blocks.split(",")]
    name = f"{target.name}_{options.layers.replace(',', '_')}"
    optimise_rows(plugins, target, free_rows(at, ["x"]), options.output / name, settings, sizes=sizes)
    free = load_one(options.output / name)
    rows = []
    for count in (int(count) for count in options.rows.split(",")):
        optimise(plugins, target, at(count), options.output / f"{name}_{count}", settings)
        exact = load_one(options.output / f"{name}_{count}")
        x = np.random.default_rng(count).standard_normal((count, exact.inputs["x"].shape[1]))
        x = x.astype(np.float32)
        [y], [expected] = free.run({"x": x}), exact.run({"x": x})
        assert np.allclose(y, expected, rtol=1e-4, atol=1e-6), f"results differ for {count} rows"
        turns = [
            (seconds(free, x, options.threads), seconds(exact, x, options.threads)) for _ in range(ROUNDS)
        ]
        ratio = statistics.median(one / other for one, other in turns)
        ours, theirs = (statistics.median(each) for each in zip(*turns, strict=True))
        rows.append({"rows": count, "free_s": ours, "exact_s": theirs, "ratio": ratio})
        print(
            f"{count:6} rows: free {ours * 1e6:9.1f} us, exact {theirs * 1e6:9.1f} us, ratio {ratio:.2f}",
            flush=True,
        )
    if options.json:
        print(json.dumps({"target": target.name, "threads": options.threads, "rows": rows}))


if __name__ == "__main__":
    main()

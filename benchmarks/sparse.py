"""Products with sparse constant weights, beside dense ones of ours and sparse ones of others.

    python benchmarks/sparse.py [--threads 1] [--rounds 5] [--only 2:4] [--json]

Each row is one pattern of weights in a product of x [128,768] and w [768,3072], or in a convolution. The
graph is changed as `optimize --freeze` does; every kernel is planned by the target's expert, compiled and
timed, and the row's time is that of all of them, with the copies before and after. The peers are
PyTorch's sparse matrices and dense product, and SciPy and MKL by sparse-dot-mkl where they are installed.
Ratios are peer / ours, the median over rounds in which all take turns. Times are measured, warm; results are
compared with those of float64. What keeps too many products stays dense.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

if not __package__:
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.cliff.race import Race, contest
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.core.transformation import Trace
from perfdojo_sdk.experts.cpu.planner import plan
from perfdojo_sdk.graph.builder import Builder
from perfdojo_sdk.graph.graph import Graph
from perfdojo_sdk.graph.operators import contractions, convolutions
from perfdojo_sdk.graph.running import run_graph
from perfdojo_sdk.graph.sparsity import with_zeros_left_out
from perfdojo_sdk.hookspecs.types import Artifact, Measurement, RunRequest

Array = np.ndarray[Any, Any]

#: Rows of data, terms, columns of weights.
SIZES = (128, 768, 3072)


def blocks(rng: np.random.Generator, high: int, wide: int, kept: float) -> Array:
    """A mask of blocks."""
    _, terms, columns = SIZES
    return np.kron(rng.random((terms // high, columns // wide)) < kept, np.ones((high, wide))) > 0


def two_of_four(rng: np.random.Generator) -> Array:
    """A mask with two of four neighbouring terms."""
    _, terms, columns = SIZES
    order = rng.random((terms // 4, 4, columns)).argsort(axis=1)
    return (order < 2).reshape(terms, columns)


PATTERNS: dict[str, Callable[[np.random.Generator], Array]] = {
    "unstructured 90 %": lambda rng: blocks(rng, 1, 1, 0.1),
    "2:4": two_of_four,
    "blocks 16x1 90 %": lambda rng: blocks(rng, 1, 16, 0.1),
    "blocks 32x32 80 %": lambda rng: blocks(rng, 32, 32, 0.2),
}
#: Name -> channels, filters, height and width, window; 90 % of the weights are zero.
CONVOLUTIONS = {
    "conv 1x1 256>512 at 28": (256, 512, 28, 1),
    "conv 3x3 128>128 at 28": (128, 128, 28, 3),
}


class Kernels:
    """The kernels of a graph, compiled, with the arrays that each of them is called with."""

    def __init__(self, race: Race, graph: Graph, x: Array) -> None:
        self.race = race
        self.calls: list[tuple[Artifact, dict[str, Array]]] = []
        (self.results,) = run_graph(graph, {"x": x}, self._run)

    def seconds(self) -> float:
        """The time of all calls."""
        return sum(self.race.seconds(*call) for call in self.calls)

    def _run(self, program: Program, inputs: Sequence[Array]) -> list[Array]:
        given = dict(zip(program.inputs, inputs, strict=True))
        games = plan(program, self.race.rules, self.race.target).games or (Trace(program),)
        artifacts = [a for a in map(self.race.compiled, games) if isinstance(a, Artifact)]
        fastest = min(artifacts, key=lambda artifact: self.race.seconds(artifact, given))
        self.calls.append((fastest, given))
        found = self.race.runner.run(fastest, RunRequest(inputs=given, threads=self.race.threads))
        assert isinstance(found, Measurement) and found.outputs is not None, found
        return [found.outputs[name] for name in program.outputs]


def product(race: Race, pattern: str) -> dict[str, Any]:
    """The row of a product."""
    import torch

    rng = np.random.default_rng(3)
    rows, terms, columns = SIZES
    x = rng.standard_normal((rows, terms)).astype(np.float32)
    w = (rng.standard_normal((terms, columns)) * PATTERNS[pattern](rng)).astype(np.float32)
    b = Builder()
    graph = b.graph({"y": contractions.matmul(b, b.input("x", x.shape, "f32"), b.constant(w))})
    turned = np.ascontiguousarray(x.T)
    tensors = [torch.from_numpy(each) for each in (x, w, turned)]
    compressed = tensors[1].t().contiguous().to_sparse_csr()
    peers: dict[str, Callable[[], Any]] = {
        "torch sparse": lambda: compressed @ tensors[2],
        "torch dense": lambda: tensors[0] @ tensors[1],
    }
    try:
        from scipy import sparse

        matrix = sparse.csr_matrix(w.T)
        peers["scipy"] = lambda: matrix @ turned
        import sparse_dot_mkl

        peers["mkl"] = lambda: sparse_dot_mkl.dot_product_mkl(matrix, turned)
    except ImportError:
        pass
    return raced(race, graph, x, x.astype(np.float64) @ w.astype(np.float64), peers)


def convolution(race: Race, name: str) -> dict[str, Any]:
    """The row of a convolution, whose only peer is dense."""
    import torch

    channels, filters, size, window = CONVOLUTIONS[name]
    rng = np.random.default_rng(4)
    x = rng.standard_normal((1, channels, size, size)).astype(np.float32)
    w = rng.standard_normal((filters, channels, window, window)).astype(np.float32)
    w *= rng.random(w.shape) < 0.1
    b, pad = Builder(), window // 2
    image = b.input("x", x.shape, "f32")
    made = convolutions.conv(b, image, b.constant(w), None, (1, 1), (1, 1), (pad,) * 4, "NOTSET", 1)
    tensors = [torch.from_numpy(each) for each in (x, w)]
    conv = torch.nn.functional.conv2d
    wanted = conv(tensors[0].double(), tensors[1].double(), padding=pad).numpy()
    return raced(race, b.graph({"y": made}), x, wanted, {"torch dense": lambda: conv(*tensors, padding=pad)})


def raced(
    race: Race, graph: Graph, x: Array, wanted: Array, peers: Mapping[str, Callable[[], Any]]
) -> dict[str, Any]:
    """Times of a graph with and without its zeros, and of the peers."""
    less, folds = with_zeros_left_out(graph)
    ours, dense = Kernels(race, less, x), Kernels(race, graph, x)
    for name, got in (("sparse", ours.results), ("dense", dense.results)):
        error = float(np.abs(got - wanted).max() / np.abs(wanted).max())
        if error > 1e-5:
            return {"problem": f"the {name} result differs by {error:.2g} of the largest value"}
    rounds = [
        {"ours": ours.seconds(), "our dense": dense.seconds()}
        | {name: race.peer_seconds(call) for name, call in peers.items()}
        for _ in range(race.rounds)
    ]
    return {
        "fold": folds[0].what if folds else "dense",
        "ours_ms": median(each["ours"] for each in rounds) * 1e3,
        "ratios": {n: median(each[n] / each["ours"] for each in rounds) for n in ("our dense", *peers)},
    }


def row(race: Race, name: str) -> dict[str, Any]:
    return product(race, name) if name in PATTERNS else convolution(race, name)


def text(row: dict[str, Any]) -> str:
    ratios = ", ".join(f"{peer} {ratio:.2f}" for peer, ratio in row["ratios"].items())
    return f"{row['ours_ms']:8.3f} ms; peer / ours: {ratios}"


if __name__ == "__main__":
    sys.exit(contest(__doc__, (*PATTERNS, *CONVOLUTIONS), row, text))

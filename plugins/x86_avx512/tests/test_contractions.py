"""The plan for contractions, compiled: every shape gets a correct kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from x86_support import TINY, Array, Game, Kernel, play

BuildAll = Callable[..., dict[str, Kernel]]
Reference = Callable[..., np.ndarray[Any, Any]]
rng = np.random.default_rng(11)


def correlate(x: Array, f: Array) -> np.ndarray[Any, Any]:
    windows = np.lib.stride_tricks.sliding_window_view(x, f.shape[2:], axis=(2, 3))
    return np.asarray(np.einsum("nchwij,ocij->nohw", windows, f))


def check(build_all: BuildAll, games: Iterable[Game], reference: Reference) -> None:
    """Bit for bit on small integers, with and without threads."""
    known = {f"k{n}_{way}": (g, t) for n, g in enumerate(games) for way, t in enumerate(g.traces)}
    target = next(iter(known.values()))[0].target.name
    kernels = build_all({name: trace.program.text for name, (_, trace) in known.items()}, target)
    for name, kernel in kernels.items():
        inputs = [rng.integers(-3, 4, spec.shape).astype(np.float32) for spec in kernel.source.inputs]
        expected = reference(*inputs)
        for threads in (1, 3):
            (got,) = kernel(*inputs, threads=threads, offset=threads)
            np.testing.assert_array_equal(got, expected, known[name][0].selection)


# -- compiled ----------------------------------------------------------------------------------------

#: Sizes of matrices that no tile divides, or that are smaller than one.
MATRICES = ("1,1,1", "1,17,5", "17,1,33", "13,31,15", "16,15,33", "31,33,17", "33,64,31", "7,1000,12")


def test_matrices_of_every_size(build_all: BuildAll) -> None:
    check(build_all, [play(f"matmul[{sizes}]") for sizes in MATRICES], np.matmul)


def test_matrices_with_fewer_lanes_and_registers(build_all: BuildAll) -> None:
    games = [play(f"matmul[{sizes}]", "x86_avx2") for sizes in ("15,17,16", "67,97,3", "100,300,20")]
    check(build_all, games, np.matmul)


def test_batches(build_all: BuildAll) -> None:
    check(build_all, [play(f"bmm[{s}]") for s in ("1,3,4,5", "3,17,33,9", "2,100,130,300")], np.matmul)


def test_convolutions(build_all: BuildAll) -> None:
    """Lanes along the pixels, along the filters, and sizes too small for either."""
    sizes = ("1,1,1,1,1,1", "1,3,9,37,10,5", "2,5,12,13,33,3", "3,2,5,5,64,5", "1,4,20,61,17,2")
    check(build_all, [play(f"conv2d[{each}]") for each in sizes], correlate)


def filters(game: Game) -> list[int]:
    """The ways of the game that are played by fewer products."""
    moves = [[step.move.transformation for step in trace.steps] for trace in game.traces]
    return [way for way, played in enumerate(moves) if "minimal_filter" in played]


def test_filters_of_three_taps_by_fewer_products(build_all: BuildAll) -> None:
    """Two rows of outputs at a time; sums of small integers are halves, so every result is exact."""
    games = [play("conv2d[1,16,6,8,32,3]"), play("conv2d[2,12,8,7,80,3]")]
    games.append(play("conv2d[2,16,8,20,64,3]", "x86_avx2"))
    assert all(filters(game) == [len(game.traces) - 1] for game in games), "the last way, behind direct ones"
    check(build_all, games, correlate)


def test_other_convolutions_keep_their_products() -> None:
    """An odd number of rows, or two of them; other taps; few channels, so that few would share a sum."""
    sizes = ("1,16,7,8,32,3", "1,16,4,8,32,3", "1,16,6,8,32,2", "1,3,6,8,32,3", "1,16,6,8,8,3")
    assert not any(filters(play(f"conv2d[{each}]")) for each in sizes)
    assert not filters(play("matmul[64,64,64]"))


def test_reductions_in_blocks(build_all: BuildAll) -> None:
    """Blocks that divide the reduction and blocks that leave a rest, with either kind of lanes."""
    products = [play(f"matmul[{s}]", figures=TINY) for s in ("20,70,64", "9,33,37")]
    check(build_all, products, np.matmul)
    check(build_all, [play("conv2d[2,23,6,8,64,2]", figures=TINY)], correlate)
    assert "c_a" in products[1].traces[0].program.buffer_of


def test_two_products_and_their_tail(build_all: BuildAll) -> None:
    games = [play("swiglu[1,1,1]"), play("swiglu[13,37,31]"), play("swiglu[50,33,65]", figures=TINY)]
    texts = {f"k{n}": game.traces[0].program.text for n, game in enumerate(games)}
    for kernel in build_all(texts).values():
        x, v, w = (rng.standard_normal(spec.shape).astype(np.float32) for spec in kernel.source.inputs)
        p, q = x.astype(np.float64) @ v, x.astype(np.float64) @ w
        (got,) = kernel(x, v, w, threads=2)
        np.testing.assert_allclose(got, p / (1 + np.exp(-p)) * q, rtol=1e-4, atol=1e-4)


def test_what_follows_a_sum_joins_its_tile(build_all: BuildAll) -> None:
    """A bias and a rectifier after a product, and after a convolution with a transposed output."""
    dense = """kernel dense(x, w, b) -> y
x f32 [20,9] heap
w f32 [9,50] heap
b f32 [50] heap
t f32 [20,50] heap
y f32 [20,50] heap

20 50
| t[{0},{1}] = b[{1}]
| 9 t[{0},{1}] += x[{0},{2}] * w[{2},{1}]
20 50 y[{0},{1}] = max(t[{0},{1}], 0)
"""
    check(build_all, [play(dense)], lambda x, w, b: np.maximum(x @ w + b, 0))

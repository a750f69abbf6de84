"""The plan for contractions: every shape gets a correct kernel, and good sizes the expected tile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import perfdojo_x86_avx512.plugin as plugin
import pytest
from x86_support import Array, Kernel

from perfdojo_sdk.core.text import parse
from perfdojo_sdk.core.transformation import Trace
from perfdojo_sdk.hookspecs.types import Target
from perfdojo_sdk.kernels.selection import select
from perfdojo_sdk.plugins import load_plugins

BuildAll = Callable[..., dict[str, Kernel]]
Reference = Callable[..., np.ndarray[Any, Any]]
rng = np.random.default_rng(11)

PLUGINS = load_plugins(without=("x86_avx512",), extra=[plugin])

#: Sizes of matrices that no tile divides, or that are smaller than one.
MATRICES = ["1,1,1", "1,17,5", "17,1,33", "2,3,1", "5,16,7", "13,31,15", "15,17,16", "16,15,33", "31,33,17",
            "33,64,31", "67,97,3", "100,300,20", "7,1000,12"]  # fmt: skip


def correlate(x: Array, f: Array) -> np.ndarray[Any, Any]:
    windows = np.lib.stride_tricks.sliding_window_view(x, f.shape[2:], axis=(2, 3))
    return np.einsum("nchwij,ocij->nohw", windows, f)


def swiglu(x: Array, v: Array, w: Array) -> np.ndarray[Any, Any]:
    p = x.astype(np.float64) @ v
    return np.asarray(p / (1 + np.exp(-p)) * (x.astype(np.float64) @ w))


def games(text: str, target: str = "x86_avx512") -> tuple[Target, list[Trace]]:
    """What the expert plays on a kernel or a program."""
    found = PLUGINS.target(target)
    if text.startswith("kernel "):
        program = parse(text, found.dialect)
    else:
        (kernel,) = select(text, PLUGINS.operators, found.dialect)
        program = kernel.program
    expert = PLUGINS.heuristic_pass(found)
    assert expert is not None
    return found, list(expert(program, PLUGINS.rules(found), found))


def texts(selections: list[str], target: str) -> dict[str, str]:
    found = {}
    for number, selection in enumerate(selections):
        for way, trace in enumerate(games(selection, target)[1]):
            found[f"k{number}_{way}"] = trace.program.text
    return found


def whole(*shape: int) -> Array:
    return rng.integers(-3, 4, shape).astype(np.float32)


def check(build_all: BuildAll, selections: list[str], target: str, reference: Reference) -> None:
    """Bit for bit on small integers, with and without threads."""
    kernels = build_all(texts(selections, target), target)
    for name, kernel in kernels.items():
        inputs = [whole(*spec.shape) for spec in kernel.source.inputs]
        expected = reference(*inputs)
        for threads in (1, 3):
            (got,) = kernel(*inputs, threads=threads, offset=threads)
            np.testing.assert_array_equal(got, expected, f"{selections[int(name[1:].split('_')[0])]} {name}")


@pytest.mark.parametrize("target", plugin.TARGETS)
def test_matrices_of_every_size(build_all: BuildAll, target: str) -> None:
    check(build_all, [f"matmul[{sizes}]" for sizes in MATRICES], target, np.matmul)


@pytest.mark.parametrize("target", plugin.TARGETS)
def test_batches(build_all: BuildAll, target: str) -> None:
    sizes = ["1,3,4,5", "3,17,33,9", "9,13,70,20", "2,100,130,300"]
    check(build_all, [f"bmm[{each}]" for each in sizes], target, np.matmul)


@pytest.mark.parametrize("target", plugin.TARGETS)
def test_convolutions(build_all: BuildAll, target: str) -> None:
    """Lanes along the pixels, along the filters (transposed output), and sizes too small for either."""
    sizes = ["1,1,1,1,1,1", "1,3,9,37,10,5", "2,5,12,13,33,3", "3,2,5,5,64,5", "1,4,20,61,17,2", "2,1,7,64,3,3"]
    check(build_all, [f"conv2d[{each}]" for each in sizes], target, correlate)


@pytest.mark.parametrize("target", plugin.TARGETS)
def test_two_products_and_their_tail(build_all: BuildAll, target: str) -> None:
    selections = ["swiglu[1,1,1]", "swiglu[13,37,31]", "swiglu[16,64,100]", "swiglu[50,33,5]"]
    for kernel in build_all(texts(selections, target), target).values():
        inputs = [rng.standard_normal(spec.shape).astype(np.float32) for spec in kernel.source.inputs]
        np.testing.assert_allclose(kernel(*inputs, threads=2)[0], swiglu(*inputs), rtol=2e-4, atol=2e-4)

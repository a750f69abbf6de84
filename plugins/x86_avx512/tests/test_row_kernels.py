"""The plan for memory-bound kernels, compiled: every shape gets a correct kernel, in every way to play it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import pytest
from x86_support import Array, Game, Kernel, play

from perfdojo_sdk.core.program import Scope, Statement
from perfdojo_sdk.hookspecs.types import CacheLevel, MachineFigures, MemoryFigures
from perfdojo_sdk.verify.dependence import verify_dependence_trace
from perfdojo_sdk.verify.exact import verify_exact

BuildAll = Callable[..., dict[str, Kernel]]
Reference = Callable[..., np.ndarray[Any, Any]]
rng = np.random.default_rng(5)

_SPEED = 1e-5

#: A machine on which a few hundred numbers exceed the caches and are worth all threads.
SLOW = MachineFigures(
    caches={
        "L1": CacheLevel(bytes=512, read_gbs=_SPEED),
        "L2": CacheLevel(bytes=1024, read_gbs=_SPEED),
        "L3": CacheLevel(bytes=2048, shared=True, read_gbs=_SPEED),
    },
    memory=MemoryFigures(read_gbs=_SPEED, write_gbs=_SPEED, copy_gbs=_SPEED),
)

#: The same with a first cache for a few rows.
ROOMY = SLOW.model_copy(
    update={
        "caches": {
            **SLOW.caches,
            "L1": CacheLevel(bytes=4096, read_gbs=_SPEED),
            "L2": CacheLevel(bytes=4096, read_gbs=_SPEED),
            "L3": CacheLevel(bytes=4096, shared=True, read_gbs=_SPEED),
        }
    }
)


def channels(values: Array) -> Array:
    return values.reshape(1, -1, 1, 1)


def normalised(x: Array, axes: tuple[int, ...]) -> np.ndarray[Any, Any]:
    x = x.astype(np.float64)
    return np.asarray((x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + 1e-5))


def softmax(x: Array) -> np.ndarray[Any, Any]:
    e = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    return np.asarray(e / e.sum(1, keepdims=True))


MEANING: Mapping[str, Reference] = {
    "add": lambda a, b: a + b,
    "mul": lambda a, b: a * b,
    "relu": lambda x: np.maximum(x, 0),
    "reducemean": lambda x: x.astype(np.float64).mean(1),
    "softmax": softmax,
    "layernorm": lambda x, w, b: normalised(x, (1,)) * w + b,
    "rmsnorm": lambda x, w: x / np.sqrt((x.astype(np.float64) ** 2).mean(1, keepdims=True) + 1e-5) * w,
    "relu_ffn": lambda x, s, b: np.maximum(x * channels(s) + channels(b), 0),
    "batchnorm": lambda x, w, b: normalised(x, (0, 2, 3)) * channels(w) + channels(b),
}

#: One, primes, one less and one more than a vector and than a block of vectors, 300, 1000.
ROWS = ("1,1", "1,17", "7,15", "3,16", "2,63", "3,65", "5,300", "2,1000", "9,113")
FEW_ROWS = ("1,1", "3,17", "2,300", "9,113")
IMAGES = ("1,1,1,1", "2,3,5,7", "1,17,3,16", "2,3,4,31", "3,9,2,65")


def check(build_all: BuildAll, games: Iterable[Game]) -> None:
    """Every way to play each kernel, on aligned and unaligned data, with and without threads."""
    known = {f"k{n}_{way}": (g, t) for n, g in enumerate(games) for way, t in enumerate(g.traces)}
    target = next(iter(known.values()))[0].target.name
    kernels = build_all({name: trace.program.text for name, (_, trace) in known.items()}, target)
    for name, kernel in kernels.items():
        selection = known[name][0].selection
        inputs = [rng.standard_normal(s.shape).astype(np.float32) for s in kernel.source.inputs]
        expected = MEANING[selection.partition("[")[0]](*inputs)
        for threads in (1, 3):
            (got,) = kernel(*inputs, threads=threads, offset=threads - 1)
            np.testing.assert_allclose(got, expected, rtol=2e-5, atol=2e-5, err_msg=selection)


@pytest.mark.parametrize("operator", ["softmax", "layernorm"])
def test_rows_of_every_length(build_all: BuildAll, operator: str) -> None:
    check(build_all, [play(f"{operator}[{sizes}]") for sizes in ROWS])


def test_other_operators_on_rows(build_all: BuildAll) -> None:
    names = ("add", "mul", "relu", "reducemean", "rmsnorm")
    check(build_all, [play(f"{name}[{sizes}]") for name in names for sizes in FEW_ROWS])


def test_fewer_lanes(build_all: BuildAll) -> None:
    selections = ("softmax[3,31]", "layernorm[2,113]", "relu[5,7]", "batchnorm[2,3,5,9]")
    check(build_all, [play(selection, "x86_avx2") for selection in selections])


@pytest.mark.parametrize("operator", ["relu_ffn", "batchnorm"])
def test_images(build_all: BuildAll, operator: str) -> None:
    check(build_all, [play(f"{operator}[{sizes}]") for sizes in IMAGES])


def test_data_that_no_cache_holds(build_all: BuildAll) -> None:
    """Windows, threads, and rows that are read block by block."""
    selections = (
        "softmax[9,300]", "layernorm[9,113]", "layernorm[3,1024]", "rmsnorm[2,1000]", "add[7,100]",
        "layernorm[8,320]", "reducemean[2,999]", "relu_ffn[8,3,2,37]", "batchnorm[8,3,4,37]",
        "batchnorm[2,9,12,32]", "batchnorm[2,9,20,30]",
    )  # fmt: skip
    check(build_all, [play(selection, figures=SLOW) for selection in selections])
    roomy = ("softmax[256,80]", "layernorm[144,99]", "rmsnorm[272,160]")
    check(build_all, [play(selection, figures=ROOMY) for selection in roomy])


# -- what was played ---------------------------------------------------------------------------------


def locations(game: Game) -> list[set[str]]:
    return [{b.location for b in trace.program.buffers} - {"heap", "stack", "reg"} for trace in game.traces]


def suffixes(game: Game) -> set[str]:
    return {n.suffix for _, n in game.traces[0].program.walk() if isinstance(n, Scope)}


def test_a_measurement_decides_between_kinds_of_stores() -> None:
    assert locations(play("add[7,100]", figures=SLOW)) == [{"soon", "claim"}, {"soon", "nt"}, {"nt"}]
    assert locations(play("softmax[900,60]", figures=SLOW)) == [{"ahead", "claim"}, {"ahead", "nt"}, {"nt"}]


def test_what_stays_in_a_core_needs_no_windows_and_no_threads() -> None:
    game = play("add[7,100]")
    assert locations(game) == [set()]
    assert "p" not in suffixes(game)


def test_rows_go_abreast_through_what_they_share_where_it_does_not_stay_near() -> None:
    wide, narrow = (play(f"layernorm[8,{size}]", figures=SLOW) for size in (128, 32))
    assert ["y[{0}*4+{2}," in trace.program.text for trace in wide.traces] == [False, True] * 3
    assert ["y[{0}," in trace.program.text for trace in narrow.traces] == [True] * 3


def test_a_loop_that_only_reduces_asks_for_memory_in_the_second_cache() -> None:
    """Its blocks stay in the first one, which takes what comes where values go straight out again."""
    past_caches = play("batchnorm[8,3,64,256]", figures=SLOW).traces[1].program
    windows = {b.name: b.location for b in past_caches.buffers if "soon" in b.location}
    statements = [node for _, node in past_caches.walk() if isinstance(node, Statement)]
    users = {windows[r.array]: s for s in statements for r in s.reads if r.array in windows}
    assert users["soon_l2"].accumulate == "add"
    assert users["soon"].target.array == "y_w"
    assert locations(play("reducemean[900,64]", figures=SLOW)) == [{"soon_l2"}, set()]


def test_rows_that_go_on_in_the_next_one_need_no_tails() -> None:
    """240 numbers are 15 vectors; rows of 30 would not be whole ones."""
    for trace in play("batchnorm[2,3,8,30]").traces:
        assert "*16+{4})%30]" in trace.program.text and "15:v" not in trace.program.text
    for trace in play("layernorm[8,30]").traces:
        assert "%" not in trace.program.text


def test_the_next_row_is_computed_while_the_stores_of_one_drain() -> None:
    """For short rows, the sums of one row begin in the loop that writes the one before."""
    *others, in_step = play("softmax[256,256]", figures=ROOMY).traces
    moves = [[move.transformation for move in trace.moves] for trace in (*others, in_step)]
    assert [played.count("rotate_scope") for played in moves] == [0, 0, 0, 1]
    lines = in_step.program.tree_lines.splitlines()
    (written,) = (k for k, line in enumerate(lines) if "16:v y[{0}*32+{1},{2}" in line)
    assert "16:v e[{0}*32+{1}+1,{2}" in lines[written + 2]
    assert len(play("softmax[256,1024]", figures=ROOMY).traces) == 3


def test_a_channel_that_no_cache_holds_is_read_twice() -> None:
    """Once for sum and squares, block by block, once for the result; the few channels are shared out."""
    program = play("batchnorm[8,3,4,32]", figures=SLOW).traces[0].program
    blocks = [n for p, n in program.walk() if len(p) == 2 and isinstance(n, Scope) and "x" in n.touches]
    assert [b.head for b in blocks] == ["8:p", "8:p"]


@pytest.mark.parametrize(
    "selection",
    ["softmax[3,70]", "layernorm[2,65]", "batchnorm[8,3,2,33]", "batchnorm[2,3,8,20]", "softmax[32,80]"],
)
def test_the_plan_passes_the_other_legs(selection: str) -> None:
    game = play(selection, figures=ROOMY)
    trace = game.traces[-1]
    found = verify_exact(trace.root, trace.program, trace.laws, game.target.dialect)
    assert found.ok, found.problem
    proved = verify_dependence_trace(trace, game.rules)
    assert proved.ok, proved.problem

"""The benchmark beside other systems: its own parts, which need none of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.table3 import report
from benchmarks.table3.library import selection
from benchmarks.table3.report import Row, Run
from perfdojo_sdk.kernels.operators import OPERATORS as BUILDERS
from perfdojo_sdk.peers import race as race_module
from perfdojo_sdk.peers import systems, worker
from perfdojo_sdk.peers.operators import (
    EPSILON,
    OPERATORS,
    TOLERANCE,
    Array,
    Operator,
    error,
    input_sets,
    is_cold,
    places,
)
from perfdojo_sdk.peers.processes import Process, environment, missing
from perfdojo_sdk.peers.race import Entry
from perfdojo_sdk.peers.systems import PEERS, Peer

MIB = 1 << 20

#: The families at sizes whose full answer is quickly known.
SMALL = {
    "add": Operator("add", "add", ((5, 7), (5, 7)), (5, 7), 35),
    "mul": Operator("mul", "mul", ((5, 7), (5, 7)), (5, 7), 35),
    "relu": Operator("relu", "relu", ((5, 7),), (5, 7), 35),
    "relu_ffn": Operator("relu_ffn", "relu_ffn", ((2, 3, 4, 5), (3,), (3,)), (2, 3, 4, 5), 240),
    "batchnorm": Operator("batchnorm", "batchnorm", ((2, 3, 4, 5), (3,), (3,)), (2, 3, 4, 5), 840),
    "layernorm": Operator("layernorm", "layernorm", ((5, 7), (7,), (7,)), (5, 7), 245),
    "rmsnorm": Operator("rmsnorm", "rmsnorm", ((5, 7), (7,)), (5, 7), 140),
    "softmax": Operator("softmax", "softmax", ((5, 7),), (5, 7), 175),
    "reducemean": Operator("reducemean", "reducemean", ((5, 7),), (5,), 35),
    "matmul": Operator("matmul", "matmul", ((5, 6), (6, 7)), (5, 7), 420),
    "bmm": Operator("bmm", "bmm", ((3, 5, 6), (3, 6, 7)), (3, 5, 7), 1260),
    "swiglu": Operator("swiglu", "swiglu", ((5, 6), (6, 7), (6, 7)), (5, 7), 840),
    "conv2d": Operator("conv2d", "conv2d", ((2, 3, 6, 7), (4, 3, 3, 3)), (2, 4, 4, 5), 8640),
}


def normalised(x: Array, axes: int | tuple[int, ...]) -> Array:
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + EPSILON)


def channel(values: Array) -> Array:
    return values.reshape(1, -1, 1, 1)


def convolution(x: Array, w: Array) -> Array:
    windows = np.lib.stride_tricks.sliding_window_view(x, w.shape[2:], (2, 3))
    return np.einsum("nchwij,ocij->nohw", windows, w)


#: The formulas once more, over the whole arrays.
FULL: dict[str, Callable[..., Array]] = {
    "add": lambda a, b: a + b,
    "mul": lambda a, b: a * b,
    "relu": lambda x: np.where(x > 0, x, 0),
    "relu_ffn": lambda x, s, b: np.maximum(x * channel(s) + channel(b), 0),
    "batchnorm": lambda x, w, b: normalised(x, (0, 2, 3)) * channel(w) + channel(b),
    "layernorm": lambda x, w, b: normalised(x, 1) * w + b,
    "rmsnorm": lambda x, w: x / np.sqrt((x**2).mean(1, keepdims=True) + EPSILON) * w,
    "softmax": lambda x: np.exp(x) / np.exp(x).sum(1, keepdims=True),
    "reducemean": lambda x: x.sum(1) / x.shape[1],
    "matmul": lambda a, b: a @ b,
    "bmm": lambda a, b: np.einsum("tik,tkj->tij", a, b),
    "swiglu": lambda x, a, b: (x @ a) / (1 + np.exp(-(x @ a))) * (x @ b),
    "conv2d": convolution,
}


# -- operators --------------------------------------------------------------------------------------------


def test_there_are_sixteen_operators_of_the_families_that_are_tested_here() -> None:
    assert len(OPERATORS) == 16
    assert {operator.family for operator in OPERATORS.values()} == set(SMALL) == set(FULL)
    assert all(name == operator.name for name, operator in OPERATORS.items())


@pytest.mark.parametrize("family", SMALL)
def test_the_sampled_answer_is_the_formula(family: str) -> None:
    operator = SMALL[family]
    inputs = operator.draw(0)
    right = FULL[family](*(array.astype(np.float64) for array in inputs))
    expected = operator.expected(inputs)
    assert np.allclose(expected, right.reshape(-1)[places(operator)], rtol=1e-12, atol=1e-14)
    assert error(operator, right.astype(np.float32), expected) < 1e-6
    wrong = right.astype(np.float32)
    wrong.reshape(-1)[-1] += 2 * TOLERANCE * np.abs(right).max()
    assert error(operator, wrong, expected) > TOLERANCE


def test_what_is_no_answer_is_infinitely_wrong() -> None:
    operator = SMALL["add"]
    expected = operator.expected(operator.draw(0))
    assert error(operator, np.full(operator.output, np.nan), expected) == float("inf")
    assert error(operator, np.zeros((7, 5)), expected) == float("inf")


def test_places_are_spread_over_the_whole_output() -> None:
    for operator in OPERATORS.values():
        found = places(operator)
        size = prod(operator.output)
        assert found[0] == 0 and found[-1] == size - 1 and len(set(found)) == len(found)
        assert np.diff(found).max() <= 2 * (size / 2048 + 1)


def test_inputs_are_the_same_in_every_process_and_differ_between_sets() -> None:
    operator = SMALL["add"]
    first, again, second = operator.draw(0), operator.draw(0), operator.draw(1)
    assert all(np.array_equal(a, b) for a, b in zip(first, again))
    assert not np.array_equal(first[0], first[1]) and not np.array_equal(first[0], second[0])
    assert all(abs(a).max() <= 0.5 and a.dtype == np.float32 for a in first)


def test_data_beyond_the_cache_come_from_memory() -> None:
    cache = 32 * MIB
    small, middle, huge = (Operator("x", "x", ((n * MIB // 8,),), (n * MIB // 8,), 0) for n in (8, 40, 800))
    assert [is_cold(o, cache) for o in (small, middle, huge)] == [False, True, True]
    assert input_sets(small, cache) == input_sets(huge, cache) == 1
    assert input_sets(middle, cache) * middle.bytes >= 3 * cache


def test_costs_are_those_of_the_shapes() -> None:
    assert OPERATORS["matmul"].bytes == 4 * (768 * 1024 + 1024 * 1024 + 768 * 1024)
    assert OPERATORS["bmm"].operations == 2 * 192 * 256 * 128 * 256
    assert OPERATORS["conv1"].output == (8, 10, 508, 508)
    assert OPERATORS["conv2"].operations == 2 * 8 * 64 * 54 * 54 * 64 * 9


def test_the_library_is_asked_for_what_there_are_builders_for() -> None:
    builders = {builder.name: builder for builder in BUILDERS}
    wanted = [OPERATORS[name] for name in ("add", "layernorm2", "matmul")]
    assert selection(builders, wanted) == ["add[3072,4096]", "layernorm[4096,4096]", "matmul[768,1024,1024]"]
    other = replace(builders["add"], defaults=((8, 8),))
    assert selection({"add": other}, wanted) == []


# -- report -----------------------------------------------------------------------------------------------


def row(operator: str, ours: Entry | None, threads: int = 1, **peers: Entry) -> Row:
    entries = dict(peers) if ours is None else {"ours": ours, **peers}
    return Row(operator, threads, True, 2, 1e-3, "memory", entries)


def times(milliseconds: float) -> Entry:
    return Entry([[1e-3 * milliseconds] * 5] * 3)


def run(*rows: Row, absent: Mapping[str, str] | None = None) -> Run:
    return Run(
        "a machine", {"allocator": "kept"}, {"ours": "1", "torch": "2"}, dict(absent or {}), list(rows)
    )


def test_the_ratio_is_the_best_right_peer_over_ours() -> None:
    wrong = Entry([[1e-4] * 5] * 3, failure="wrong: off by 0.3")
    found = row("add", times(2), torch=times(5), jax=times(3), numba=wrong)
    assert found.best_peer == ("jax", pytest.approx(3e-3))
    assert found.ratio is not None and found.ratio.value == pytest.approx(1.5) and found.ratio.decided
    assert found.roofline_fraction("ours") == pytest.approx(0.5)
    assert row("add", Entry(failure="missing"), torch=times(5)).ratio is None
    assert row("add", None, torch=times(5)).ratio is None
    assert row("add", times(2)).ratio is None and row("add", times(2)).best_peer is None


def test_a_system_beyond_the_six_has_a_column_and_no_part_in_ratios() -> None:
    rows = [row(name, times(2), torch=times(3), tvm=times(1)) for name in OPERATORS]
    assert rows[0].best_peer == ("torch", pytest.approx(3e-3))
    found = run(*rows, absent={"tvm": "TVM is not installed (pip install apache-tvm)"})
    assert "geometric mean 1.50 over all 16" in report.summary(found, 1)[0]
    assert "TVM" in report.table(found, 1).splitlines()[0]
    alone = row("add", times(2), tvm=times(1))
    assert alone.ratio is None and alone.best_peer is None


def test_a_mean_over_some_operators_says_so() -> None:
    rows = [
        row("add", times(2), torch=times(4)),
        row("mul", times(2), torch=times(1)),
        row("bmm", Entry(failure="missing"), torch=times(4)),
        row("relu", times(1), threads=2, torch=times(9)),
    ]
    first, *others = report.summary(run(*rows), 1)
    assert "geometric mean 1.00 over 2 of 16 operators, least 0.50 (mul)" in first
    assert any("50 % over 2 of 16" in line for line in others)
    everything = [row(name, times(2), torch=times(3)) for name in OPERATORS]
    assert "1.50 over all 16 operators" in report.summary(run(*everything), 1)[0]


def test_no_mean_while_a_peer_is_missing() -> None:
    everything = [row(name, times(2), torch=times(3)) for name in OPERATORS]
    absent = {"openvino": "OpenVINO is not installed (pip install openvino)"}
    (line,) = report.summary(run(*everything, absent=absent), 1)
    assert line.startswith("no summary figure") and "pip install openvino" in line and "mean" not in line
    assert "geometric" not in report.text(run(*everything, absent=absent))
    assert "openvino" in report.install_hint(absent)


def test_the_table_names_what_has_no_time() -> None:
    failed, wrong = Entry(failure="it died"), Entry(failure="wrong: off by 0.3")
    found = run(row("add", Entry(failure="missing"), torch=times(4), jax=failed, numba=wrong))
    shown = report.text(found)
    for word in ("missing", "failed", "wrong", "cold", "4*", "JAX is left out: it died", "allocator: kept"):
        assert word in shown
    assert "| **4** |" in report.text(found, markdown=True)


def test_fresh_memory_at_every_call_is_reported() -> None:
    (fresh, kept) = (replace(times(4), faults=[24.0, 24.0]), replace(times(4), faults=[2000.0, 0.0, 0.0]))
    found = run(row("add", times(2), torch=fresh, jax=kept))
    assert report.fresh_memory(found, 1) == ["add: PyTorch had 24 page faults a call"]
    assert report.fresh_memory(found, 2) == []


def test_an_undecided_ratio_is_marked() -> None:
    noisy = Entry([[1e-3], [2e-3], [3e-3], [2e-3], [1e-3]])
    other = Entry([[2e-3], [1e-3], [3e-3], [1e-3], [2e-3]])
    assert "1.00~" in report.table(run(row("add", noisy, torch=other)), 1)


def test_peers_are_compared_round_by_round() -> None:
    """Fast weather for two rounds of ours and three of a peer's: over all calls it seems twice as fast."""
    ours = Entry([[1e-3], [1e-3], [2e-3], [2e-3], [2e-3]])
    slower = Entry([[1.1e-3], [1.1e-3], [1.1e-3], [2.2e-3], [2.2e-3]])
    equal = Entry([[1e-3], [1e-3], [2e-3], [2e-3], [2e-3]])
    found = row("add", ours, torch=slower, jax=equal)
    assert slower.median == pytest.approx(1.1e-3) and equal.median == pytest.approx(2e-3)
    assert found.best_peer == ("jax", pytest.approx(2e-3))
    assert found.ratio is not None and found.ratio.value == pytest.approx(1.0)
    alone = row("add", ours, torch=slower).ratio
    assert alone is not None and alone.value == pytest.approx(1.1)
    without = row("add", None, torch=slower, jax=equal)
    assert without.best_peer == ("torch", pytest.approx(1.1e-3)), "by the median where there is no ours"


def test_runs_are_read_back_and_merged() -> None:
    first, second = run(row("add", times(2), torch=times(4))), run(row("add", times(1), torch=times(4)))
    back = Run.from_json(json.loads(json.dumps(first.to_json())))
    assert back == first
    both = report.merged([first, second, run(row("bmm", times(1)), row("add", times(3), threads=2))])
    assert [(r.operator, r.threads) for r in both.rows] == [("add", 1), ("bmm", 1), ("add", 2)]
    assert both.rows[0].entries["ours"] == times(1)
    with pytest.raises(ValueError, match="differ"):
        report.merged([first, replace(second, machine="another")])


# -- peers and processes ------------------------------------------------------------------------------------


def test_a_peer_that_is_not_there_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(PEERS) == 6
    nobody = {"nobody": Peer("Nobody", "nobody", ("a_module_that_is_not_there",), "nobody-at-all")}
    assert missing(nobody, ["nobody"]) == {"nobody": "Nobody is not installed (pip install nobody-at-all)"}
    assert "not asked for" in missing(nobody, [])["nobody"]
    needs_compiler = Peer("Compiler", "x", (), compiler=True)
    monkeypatch.setattr(systems.shutil, "which", lambda name: None)
    assert "g++" in needs_compiler.missing()


def test_the_environment_fixes_threads_and_keeps_memory() -> None:
    one, two = environment(1), environment(2)
    assert one["OMP_NUM_THREADS"] == "1" and two["NUMBA_NUM_THREADS"] == "2"
    assert "mmap_max=0" in one["GLIBC_TUNABLES"]


def test_a_contender_that_cannot_start_is_a_failure() -> None:
    process = Process("nobody", Peer("Nobody", "a_module_that_is_not_there"), 1, "", 10)
    assert "ModuleNotFoundError" in process.start()
    assert "ModuleNotFoundError" in process.ask("time")["failure"]
    process.stop()


class Fake:
    """A contender with one right variant, a slower one, and three that are wrong in their own ways."""

    version = "0"

    def variants(self, operator: Operator) -> Mapping[str, Any]:
        def idle(inputs: list[Array], out: Callable[[], Array]) -> Callable[[], Array]:
            return out  # an output that nobody has written

        def wrong(inputs: list[Array], out: Callable[[], Array]) -> Callable[[], Array]:
            return lambda: inputs[0] - inputs[1]

        def broken(inputs: list[Array], out: Callable[[], Array]) -> Callable[[], Array]:
            raise RuntimeError("no such layout")

        def right(inputs: list[Array], out: Callable[[], Array]) -> Callable[[], Array]:
            y = out()
            return lambda: np.add(*inputs, out=y)

        def slow(inputs: list[Array], out: Callable[[], Array]) -> Callable[[], Array]:
            return lambda: sum((inputs[0] * np.float32(1 / 512) for _ in range(512)), inputs[1])

        return {"idle": idle, "wrong": wrong, "broken": broken, "slow": slow, "right": right}


def test_the_fastest_right_variant_races() -> None:
    contender = worker.Worker(Fake())
    answer = contender.answer("prepare", SMALL["add"], 2)
    assert answer["variant"] == "right" and answer["error"] < TOLERANCE
    assert "wrong" in answer["tried"]["idle"] and "wrong" in answer["tried"]["wrong"]
    assert answer["tried"]["broken"] == "no such layout" and answer["tried"]["slow"] > 0
    timed = contender.answer("time")
    assert len(timed["seconds"]) >= worker.FEWEST_SAMPLES and min(timed["seconds"]) > 0
    assert contender.answer("release") == {}
    assert contender.answer("prepare", SMALL["add"], 2)["variant"] == "right"


def test_a_contender_that_is_wrong_or_lacks_the_operator_is_out(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "wrong" in worker.Worker(Fake()).answer("prepare", SMALL["mul"], 1)["failure"]
    monkeypatch.setattr(Fake, "variants", lambda self, operator: {})
    assert worker.Worker(Fake()).answer("prepare", SMALL["add"], 1) == {"failure": "missing"}


def test_short_calls_are_timed_together() -> None:
    inner, samples = worker.plan(1e-6)
    assert inner * 1e-6 >= worker.SHORTEST_SAMPLE_SECONDS and samples == worker.MOST_SAMPLES
    assert worker.plan(10.0) == (1, worker.FEWEST_SAMPLES)


class Scripted:
    """A process that answers from a script and writes down what it was asked."""

    def __init__(self, name: str, log: list[tuple[str, str]], fails_at: str = "") -> None:
        self.name, self._log, self._fails_at = name, log, fails_at

    def ask(self, *message: Any) -> dict[str, Any]:
        self._log.append((self.name, message[0]))
        if message[0] == self._fails_at:
            return {"failure": "it died"}
        return {"variant": "v", "tried": {"v": 1.0}, "error": 0.0, "seconds": [1.0], "faults": 0.0}


@pytest.mark.parametrize("memory", [1 << 40, 0])
def test_contenders_take_turns_and_a_lost_one_does_not_come_back(
    memory: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(race_module, "available_bytes", lambda: memory)
    log: list[tuple[str, str]] = []
    processes: list[Any] = [Scripted("a", log), Scripted("b", log), Scripted("c", log, fails_at="time")]
    entries = race_module.race(processes, SMALL["add"], 3, 32 * MIB)
    assert [len(entries[name].turns) for name in "abc"] == [3, 3, 0]
    assert entries["c"].failure == "it died" and log.count(("c", "time")) == 1
    turns = [name for name, verb in log if verb == "time"]
    assert sorted(turns[:3]) == ["a", "b", "c"] and sorted(turns[3:5]) == ["a", "b"] == sorted(turns[5:])
    prepared = [place for place, (_, verb) in enumerate(log) if verb == "prepare"]
    if memory:
        assert prepared == [0, 1, 2]  # all hold their data before the first is timed
    else:  # nobody holds data while another runs
        assert all(log[place + 1] == (log[place][0], "time") for place in prepared)
        assert log[2] == ("a", "release")


def test_available_memory_is_read() -> None:
    assert 0 < race_module.available_bytes() < 1 << 62 or not Path("/proc/meminfo").exists()

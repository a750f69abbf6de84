"""Other groupings of a model's nodes: moves on the plan, what decides about them, and a whole build."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import perfdojo_sdk
from perfdojo_sdk.graph.builder import Builder
from perfdojo_sdk.graph.graph import Array, Graph, Value
from perfdojo_sdk.graph.operators import contractions, elementwise, normalisations
from perfdojo_sdk.graph.passes import with_groups_joined
from perfdojo_sdk.graph.running import run_graph
from perfdojo_sdk.hookspecs.types import Target
from perfdojo_sdk.kernels.selection import Kernel
from perfdojo_sdk.library.build import KernelResult
from perfdojo_sdk.models import optimise, turns
from perfdojo_sdk.models.budget import Budget
from perfdojo_sdk.models.fusion import Cost, Edge, FusionPlan, Grouping, fused, plan_fusion
from perfdojo_sdk.models.regrouping import OF_A_KERNEL, Groups, Outcome, Trials, regrouped
from perfdojo_sdk.plugins import Plugins
from perfdojo_sdk.store.records import KernelRecord, Timing

DRAW = np.random.default_rng(0)


@pytest.fixture
def target(linking_toy: Plugins) -> Target:
    return linking_toy.target("toy")


def weights(b: Builder, *shape: int) -> Value:
    return b.constant(DRAW.standard_normal(shape).astype(np.float32))


def layers(count: int) -> Graph:
    """Products with steps, each before a normalisation; all layers are alike."""
    b = Builder()
    x = b.input("x", (4, 8), "f32")
    for _ in range(count):
        p = contractions.matmul(b, x, weights(b, 8, 8))
        r = elementwise.relu(b, p)
        x = normalisations.layer_norm(b, r, weights(b, 8), weights(b, 8), 1, 1e-5, False)[0]
    return b.graph({"y": x})


class Costs:
    """An evaluation by a formula: the nodes of a kernel -> its seconds. Nothing is built."""

    def __init__(self, graph: Graph, cost: Callable[[tuple[str, ...]], float], fits: bool = True) -> None:
        self.graph, self.cost, self.fits, self.asked = graph, cost, fits, 0

    def _costs(self, groups: Groups) -> dict[frozenset[int], float]:
        parts = list(Grouping(self.graph, groups).members.values())
        return {m: self.cost(tuple(self.graph.nodes[k].program.name for k in sorted(m))) for m in parts}

    def times(self, groups: Groups) -> Mapping[str, float]:
        return {self.graph.nodes[max(m)].outputs[0]: cost for m, cost in self._costs(groups).items()}

    def outcome(self, before: Groups, after: Groups) -> Outcome | None:
        self.asked += 1
        if not self.fits:
            return None
        old, new = self._costs(before), self._costs(after)
        gone, come = (sum(a[m] for m in a if m not in b) for a, b in ((old, new), (new, old)))
        return Outcome(gone, come, provenance="measured")


def names(graph: Graph, plan: FusionPlan) -> list[str]:
    return [node.program.name for node in fused(graph, plan).nodes]


def bits(graph: Graph) -> list[bytes]:
    x: Array = np.random.default_rng(1).standard_normal((4, 8)).astype(np.float32)
    return [array.tobytes() for array in run_graph(graph, {"x": x})]


def taken(program: Any) -> str:
    return ""


def test_a_kernel_that_is_slower_than_its_parts_is_cut_wherever_it_stands(target: Target) -> None:
    graph = layers(3)
    plan = plan_fusion(graph, target)
    assert names(graph, plan) == ["matmul_relu", "layer_norm"] * 3
    costs = Costs(graph, lambda nodes: 25e-6 * len(nodes) if "matmul" in nodes[:-1] else 20e-6 * len(nodes))
    found, tried = regrouped(graph, plan, taken, costs)
    assert names(graph, found) == ["matmul", "relu", "layer_norm"] * 3 and not found.groups
    cut = [edge for edge in found.edges if edge.why.startswith("cut: ")]
    assert {edge.why for edge in cut} == {"cut: 40.0 us apart, 50.0 us as one, measured"}
    assert len(cut) == 3 and not any(edge.fused for edge in cut) and set(cut) <= set(tried)
    assert costs.asked <= 6, "equal kernels are measured once"
    assert bits(fused(graph, found)) == bits(graph)


def test_kernels_that_costs_alone_kept_apart_are_joined(target: Target) -> None:
    graph = layers(2)
    plan = plan_fusion(graph, target)
    apart = [edge for edge in plan.edges if not edge.fused]
    assert apart and all(isinstance(edge.why, Cost) for edge in apart)
    whole = ("matmul", "relu", "layer_norm")
    costs = Costs(graph, lambda nodes: 30e-6 if nodes == whole else 20e-6 * len(nodes))
    found, tried = regrouped(graph, plan, taken, costs)
    assert found.groups == ((0, 1, 2), (3, 4, 5))
    why = {edge.why for edge in tried if edge.fused}
    assert "joined: 60.0 us apart, 30.0 us as one, measured" in why and len(why) == 2
    assert "both walk through it in one order; 60.0 us apart, 30.0 us as one, measured" in why, "no cut"
    left = [edge.why for edge in found.edges if not edge.fused]
    assert left and all(why.startswith("the contraction uses") for why in left)
    assert bits(fused(graph, found)) == bits(graph)


def test_what_is_not_clearly_faster_or_beyond_the_budget_stays(target: Target) -> None:
    graph = layers(1)
    plan = plan_fusion(graph, target)
    level = Costs(graph, lambda nodes: 20e-6 * len(nodes))
    found, tried = regrouped(graph, plan, taken, level)
    assert found.groups == plan.groups and len(tried) == 2
    assert all("; 40.0 us apart, 40.0 us as one, measured" in e.why or "60.0 us" in e.why for e in tried)
    assert [e.fused for e in found.edges] == [e.fused for e in plan.edges]
    dear = Costs(graph, lambda nodes: 50e-6 if len(nodes) > 1 else 1e-6, fits=False)
    assert regrouped(graph, plan, taken, dear) == (plan, ()) and dear.asked == 2
    refused = regrouped(graph, plan, lambda program: "no", Costs(graph, lambda nodes: 1e-6 / len(nodes)))
    assert refused[0].groups == plan.groups


def test_kernels_with_a_third_one_between_them_are_not_joined() -> None:
    b = Builder()
    x = b.input("x", (4, 8), "f32")
    p = contractions.matmul(b, x, weights(b, 8, 8))
    n = normalisations.layer_norm(b, p, weights(b, 8), weights(b, 8), 1, 1e-5, False)[0]
    y = elementwise.binary(b, "add", lambda a, c: f"{a} + {c}", p, n)
    graph = b.graph({"y": y})
    ends = list(Grouping(graph).edges())
    costly = tuple(Edge(home, "", "", False, Cost("it costs"), 8, 1e-9) for _, _, home in ends)
    costs = Costs(graph, lambda nodes: {1: 9e-6, 2: 1e-6, 3: 99e-6}[len(nodes)])
    found, _ = regrouped(graph, FusionPlan((), costly), taken, costs)
    assert found.groups in (((0, 1),), ((1, 2),)), "not the product and the sum around the normalisation"


def test_a_budget_is_spent_by_what_records_say(target: Target) -> None:
    assert Budget(100, 60.0).part(0.25) == Budget(25, 15.0) and Budget(None, 8.0).part(0.5) == Budget(
        None, 4.0
    )
    assert Budget(8).allows(8, 1e9) and not Budget(8).allows(9, 0.0) and not Budget(None, 2.0).allows(0, 3.0)
    assert Budget(8, 5.0).less(3, 9.0) == Budget(5, 0.0)


class Plain:
    """A graph as it is built, by its groups."""

    def __init__(self, graph: Graph, groups: Groups) -> None:
        self.graph = with_groups_joined(graph, groups)

    @property
    def calls(self) -> Counter[str]:
        return Counter(node.program.text for node in self.graph.nodes)


def test_trials_build_what_is_missing_within_their_budget() -> None:
    graph = layers(1)
    built: list[str] = []

    def build(laid: Plain, programs: Any) -> list[KernelResult]:
        built.extend(program.name for program in programs)
        return [KernelResult(Kernel(p.name, "", p), None, "it fails") for p in programs]

    def trials(evaluations: int, refusal: str = "") -> Trials[Plain]:
        made = Trials(partial(Plain, graph), build, Budget(evaluations), lambda laid: refusal)
        timing = Timing(
            median_s=1e-6, best_s=1e-6, calls=1, threads=1, cold=False, provenance="measured", device="d"
        )
        record = KernelRecord.model_construct(final=timing, packed=None, build_seconds={"verify": 3.0})
        made.records.update(dict.fromkeys((p.text for p in Plain(graph, ((0, 1),)).graph.programs), record))
        return made

    poor = trials(OF_A_KERNEL)
    assert poor.outcome(((0, 1),), ()) is None and not built and poor.evaluations == 0
    bounded = trials(100, "it needs too much").outcome(((0, 1),), ())
    assert bounded is not None and bounded.why_not == "it needs too much" and not built
    rich = trials(2 * OF_A_KERNEL)
    failed = rich.outcome(((0, 1),), ())
    assert failed is not None and failed.before_s == 1e-6 and "could not be built" in failed.why_not
    assert built == ["matmul", "relu"] and rich.evaluations == 2 * OF_A_KERNEL
    assert set(rich.times(((0, 1),)).values()) == {1e-6}
    slow = replace(trials(100), budget=Budget(None, 5.0))
    assert slow.outcome(((0, 1),), ()) is None, "two kernels would take 3 s each"


def test_times_in_turns_count_more_than_those_of_records() -> None:
    """A record of a busy moment joins or cuts nothing."""
    graph = layers(1)
    busy = Timing(
        median_s=9e-6, best_s=9e-6, calls=1, threads=1, cold=False, provenance="measured", device="d"
    )
    asked: list[tuple[Counter[str], Counter[str]]] = []

    def stated(before: Any, after: Any, records: Any) -> tuple[float, float] | None:
        asked.append((before[1], after[1]))
        return (2e-6, 1.9e-6) if len(asked) == 1 else None

    made = Trials(partial(Plain, graph), lambda laid, programs: [], Budget(100), lambda laid: "", stated)
    for groups, median in ((((0, 1),), 9e-6), ((), 1e-6)):
        for program in Plain(graph, groups).graph.programs:
            timing = busy.model_copy(update={"median_s": median})
            made.records[program.text] = KernelRecord.model_construct(
                final=timing, packed=None, build_seconds={}
            )
    assert made.outcome(((0, 1),), ()) == Outcome(2e-6, 1.9e-6, provenance="measured")
    [(gone, come)] = asked
    assert (gone.total(), come.total()) == (1, 2)
    assert made.outcome(((0, 1),), ()) == Outcome(9e-6, 2e-6, provenance="measured"), "none in turns"


def test_the_round_with_the_median_ratio_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of five rounds are disturbed, each on another side."""
    kernels = [Kernel(p.name, p.name, p) for p in layers(1).programs[:2]]
    context: Any = SimpleNamespace(runner=None)
    sides = [turns.Side(context, [k], Counter({k.program.text: 3}), {}) for k in kernels]
    times = iter([1.0, 2.0, 50.0, 2.0, 1.1, 2.1, 1.0, 90.0, 1.2, 2.5])
    monkeypatch.setattr(turns, "_artifact", lambda *given: object())
    monkeypatch.setattr(turns, "_request", lambda *given: None)
    found = [SimpleNamespace(median=time) for time in times]
    monkeypatch.setattr(turns, "timed", lambda *given: found.pop(0))
    assert turns.in_turns(sides[0], sides[1]) == pytest.approx((3.0, 6.0))


def test_results_of_turns_are_kept(tmp_path: Path) -> None:
    assert turns.kept(tmp_path / "none") == {}
    turns.keep(tmp_path / "a", "one", (1.0, 2.0))
    turns.keep(tmp_path / "a", "two", (3.0, 4.0))
    assert turns.kept(tmp_path / "a") == {"one": (1.0, 2.0), "two": (3.0, 4.0)}
    for text in ("nothing", "[1]", '{"a": 1}', '{"a": [1, "x"]}', '{"a": [0, 1]}', "\udcff"):
        (tmp_path / "a" / turns.FILE).write_bytes(text.encode("utf-8", "surrogateescape"))
        assert turns.kept(tmp_path / "a") == {}


# -- a model


@pytest.fixture
def network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PERFDOJO_CACHE", str(tmp_path / "cache"))
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w"], ["p"], name="product"),
            helper.make_node("Relu", ["p"], ["y"], name="steps"),
        ],
        "network",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (3, 6))],
        [onnx.ValueInfoProto(name="y")],
        initializer=[numpy_helper.from_array(np.ones((6, 4), np.float32), "w")],
    )
    opsets = [helper.make_opsetid("", 20)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), tmp_path / "network.onnx")
    return tmp_path


def test_the_command_measures_other_groupings_and_says_so(
    cli: Any, network: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Trials.time

    def time(self: Trials[Any], text: str) -> float | None:
        known = real(self, text)
        return None if known is None else 55.0e-6 if "matmul_relu" in text else 10.0e-6

    monkeypatch.setattr(Trials, "time", time)
    monkeypatch.setattr(optimise._Site, "in_turns", lambda self, before, after, records: None)
    words = ("optimize", "network.onnx", "--target", "toy", "--threads", "1", "-o", "built")
    plain = cli(*words, "--json", plugins="toy")
    assert plain.code == 0 and plain.data["groupings"] == [] and plain.data["calls"] == 1
    found = cli(*words, "--tune", "40", "--json", plugins="toy")
    assert found.code == 0, found.err
    [edge] = found.data["groupings"]
    assert edge["why"] == "cut: 20.0 us apart, 55.0 us as one, measured" and not edge["fused"]
    assert found.data["calls"] == 2 and len(found.data["checks"]) == 2
    search = found.data["search"]
    assert search["budget"] == {"evaluations": 40, "seconds": None} and plain.data["search"] is None
    assert 2 * OF_A_KERNEL < search["evaluations"] <= 40, "those of the groupings, and of kernels"
    assert (search["before_s"], search["after_s"]) == (55.0e-6, 20.0e-6)
    [written] = json.loads((network / "built" / "model.json").read_text())["edges"]
    assert written["why"] == edge["why"] and not written["fused"]
    shown = cli("explain-plan", "built", plugins="toy").out
    assert (
        "cut: 20.0 us apart, 55.0 us as one, measured" in " ".join(shown.split()) and "0 of 1 array" in shown
    )
    again = cli(*words, "--tune", "40", plugins="toy")
    assert "groupings, measured on this machine" in again.out and "55.0 us as one" in again.out
    last = again.out.splitlines()[-1]
    assert last.startswith("the search used ") and " of 40 evaluations; the kernels of a call take" in last
    assert "take 20 us, 55 us before it" in last
    assert "verifying" not in again.err, "the second one goes on from the records"
    y = perfdojo_sdk.load_model(network / "built")(np.ones((3, 6), np.float32))
    assert np.array_equal(y, np.full((3, 4), 6, np.float32))


def test_a_kernel_keeps_its_program_unless_a_search_finds_a_faster_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Programs from before a search and from after it race in turns, wherever their code differs."""

    def record(code: str, seconds: float, provenance: str = "measured") -> Any:
        call = SimpleNamespace(median_s=seconds, provenance=provenance)
        return SimpleNamespace(source_sha256=code, call=call)

    raced = {"faster": (2.0, 1.0), "level": (1.0, 1.0), "slower": (1.0, 2.0), "untimed": None}
    before: Any = {name: record("first", 2.0) for name in (*raced, "same", "alone")}
    after: Any = {name: record("second", 1.0) for name in raced}
    after |= {"same": record("first", 9.0), "alone": None}
    before["simulated"], after["simulated"] = (
        record("first", 1.0, "simulated"),
        record("second", 3.0, "simulated"),
    )
    before["mixed"], after["mixed"] = record("first", 1.0), record("second", 3.0, "estimated")
    kernels = [SimpleNamespace(name=f"k_{n}", program=SimpleNamespace(text=n)) for n in before]
    monkeypatch.setattr(optimise, "kernels_of", lambda graph: kernels)
    monkeypatch.setattr(optimise._Site, "_side", lambda self, laid, calls, records: next(iter(calls)))
    monkeypatch.setattr(optimise._Site, "_race", lambda self, one, other: raced[one])
    nothing: Any = SimpleNamespace(graph=None)
    site = optimise._Site(nothing, nothing, Path(), nothing, None, None, None)
    # By its records, "untimed" is faster than before; other provenances are not compared.
    assert site.beaten(nothing, before, after) == {"k_level", "k_slower", "k_simulated"}

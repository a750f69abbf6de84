"""Parts of models in peers: what has no kernel, and what a peer computes faster, both only if asked."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from command_line import ROOT
from onnx import TensorProto, helper, numpy_helper
from onnx_models import model as small

import perfdojo_sdk
from perfdojo_sdk.core.errors import DojoError
from perfdojo_sdk.frontends.onnx.lowering import lower
from perfdojo_sdk.graph.graph import Graph, Node
from perfdojo_sdk.graph.order import calls
from perfdojo_sdk.graph.refusals import Reason, Refused
from perfdojo_sdk.library.manifest import LibraryError
from perfdojo_sdk.library.settings import Settings
from perfdojo_sdk.models import optimise as building
from perfdojo_sdk.models import peers
from perfdojo_sdk.models.policy import Policy
from perfdojo_sdk.plugins import Plugins, load_plugins

RUNTIME = pytest.mark.skipif(find_spec("onnxruntime") is None, reason="ONNX Runtime is not installed")
N = 40
DRAW = np.random.default_rng(0)
W1, W2 = ((DRAW.standard_normal((N, N)) / 10).astype(np.float32) for _ in range(2))
X = DRAW.standard_normal((N, N)).astype(np.float32)


def node(op: str, inputs: str, outputs: str, **more: Any) -> Any:
    return helper.make_node(op, inputs.split(), outputs.split(), name=more.pop("name", op.lower()), **more)


def network() -> Any:
    """Kernels around two nodes that have none and follow each other, and one that has none by itself."""
    nodes = [
        node("MatMul", "x w1", "p"),
        node("Clip", "p zero one", "c"),
        node("Bernoulli", "c", "m", seed=1.0),
        node("RandomNormalLike", "m", "r", seed=2.0, scale=0.0, mean=0.5),
        node("Mul", "p r", "q"),
        node("Abs", "q", "a"),
        node("MatMul", "a w2", "y", name="second"),
    ]
    weights = {"w1": W1, "w2": W2, "zero": np.float32(0), "one": np.float32(1)}
    return helper.make_model(
        helper.make_graph(
            nodes,
            "network",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, (N, N))],
            [onnx.ValueInfoProto(name="y")],
            [numpy_helper.from_array(np.asarray(data), name) for name, data in weights.items()],
        ),
        opset_imports=[helper.make_opsetid("", 20)],
        ir_version=10,
    )


def expected() -> Any:
    return np.abs(X @ W1 * 0.5) @ W2


@pytest.fixture(scope="module")
def toy() -> Iterator[Plugins]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "tests" / "toy_target"))
        import perfdojo_toy

        plugins = load_plugins(targets=["toy"], extra=[perfdojo_toy], without=["perfdojo-x86-avx512"])
        patch.setattr(type(plugins), "packager", lambda self, target: None)
        yield plugins


SETTINGS = Settings(threads=1, search="naive", repeats=3, budget_s=0.05)


def lowered(peer: str) -> Graph:
    graph = lower(network(), peer=peer).graph
    assert graph is not None
    return graph


@pytest.fixture(scope="module")
def built(toy: Plugins, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The network with its random numbers in ONNX Runtime."""
    if find_spec("onnxruntime") is None:
        pytest.skip("ONNX Runtime is not installed")
    folder = tmp_path_factory.mktemp("network")
    result = building.optimise(toy, toy.target("toy"), lowered("onnxruntime"), folder, SETTINGS, fuse=False)
    assert len(result.checks) == 2
    return folder


# -- a fallback


@RUNTIME
def test_nodes_without_kernels_that_follow_each_other_are_one_part() -> None:
    graph = lowered("onnxruntime")
    [part] = graph.foreign
    assert part.nodes == ("bernoulli", "randomnormallike") and "random numbers" in part.why
    assert graph.crossing(part) == 2 * 4 * N * N
    kinds = [type(call).__name__ for call in calls(graph)]
    assert kinds == ["Node", "Node", "Foreign", "Node", "Node", "Node"]


@RUNTIME
def test_a_kernel_between_two_nodes_without_one_makes_two_parts() -> None:
    nodes = [
        node("RandomNormalLike", "x", "a", name="first"),
        node("Add", "a x", "b"),
        node("RandomNormalLike", "b", "c", name="second"),
        node("Add", "a c", "d", name="both"),
        node("RandomNormalLike", "x", "e", name="third"),
        node("Add", "d e", "y", name="last"),
    ]
    graph = lower(small(nodes, {"x": X}, ["y"], opset=20), peer="onnxruntime").graph
    assert graph is not None
    assert [part.nodes for part in graph.foreign] == [("first", "third"), ("second",)]
    order = [call.origin for call in calls(graph) if not isinstance(call, Node)]
    assert order == ["first, third", "second"]


@RUNTIME
def test_fusion_does_not_join_kernels_around_a_part_that_lies_between_them(toy: Plugins) -> None:
    nodes = [
        node("Relu", "x", "a", name="before"),
        node("RandomNormalLike", "a", "r"),
        node("Add", "a r", "y", name="after"),
    ]
    graph = lower(small(nodes, {"x": X}, ["y"], opset=20), peer="onnxruntime").graph
    assert graph is not None
    plan = building.plan_for(toy, toy.target("toy"), graph)
    assert not plan.groups and any("between them" in edge.why for edge in plan.edges)


@RUNTIME
def test_what_only_the_peer_can_hold_stays_in_its_part() -> None:
    nodes = [
        node("StringConcat", "s s", "t"),
        node("Equal", "t s", "e"),
        node("Cast", "e", "f", to=TensorProto.FLOAT),
        node("Add", "x f", "y"),
    ]
    strings = numpy_helper.from_array(np.array(["a", "b", ""], object), "s")
    given = small(nodes, {"x": np.zeros((2, 3), np.float32)}, ["y"], opset=20, initializer=[strings])
    given.ir_version = 10
    graph = lower(given, peer="onnxruntime").graph
    assert graph is not None
    [part] = graph.foreign
    assert part.nodes == ("stringconcat", "equal") and graph.crossing(part) == 3
    refused = lower(given).refusals
    assert {r.reason for r in refused} == {Reason.TYPE}


@RUNTIME
def test_what_the_peer_does_not_run_either_is_refused_with_its_reason() -> None:
    given = small([helper.make_node("Nothing", ["x"], ["y"], domain="nobody", name="n")], {"x": X}, ["y"])
    given.opset_import.append(helper.make_opsetid("nobody", 1))
    found = lower(given, peer="onnxruntime")
    assert found.graph is None and [r.node for r in found.refusals] == ["output y"]


@RUNTIME
def test_a_model_with_a_part_gives_its_results(built: Path) -> None:
    model = perfdojo_sdk.load_model(built)
    assert np.allclose(model(X), expected(), rtol=1e-4, atol=1e-4)
    assert np.allclose(model(X, threads=2), expected(), rtol=1e-4, atol=1e-4)
    [part] = model.manifest.parts.values()
    assert part.peer == "onnxruntime" and part.crossing_bytes == 2 * 4 * N * N
    assert part.median_s > 0 and part.kernels_s is None and not model.manifest.symbol


@RUNTIME
def test_a_package_whose_peer_is_missing_says_so(built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "find_spec", lambda name: None)
    with pytest.raises(DojoError, match="needs onnxruntime, which is not installed") as error:
        perfdojo_sdk.load_model(built)
    assert error.value.code == "PD-O041" and "bernoulli" in error.value.what


@RUNTIME
def test_a_part_that_was_changed_is_refused(built: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(built, tmp_path / "copy"))
    [path] = (copy / "parts").iterdir()
    path.write_bytes(path.read_bytes() + b" ")
    with pytest.raises(LibraryError, match="not the file that the manifest describes"):
        perfdojo_sdk.load_model(copy)
    path.unlink()
    with pytest.raises(LibraryError, match="cannot read"):
        perfdojo_sdk.load_model(copy)


@RUNTIME
@pytest.mark.parametrize("call", [{"kernel": "k", "part": "part0"}, {"kernel": "", "part": "other"}, {}])
def test_a_manifest_whose_calls_are_of_nothing_is_refused(
    built: Path, tmp_path: Path, call: dict[str, str]
) -> None:
    copy = Path(shutil.copytree(built, tmp_path / "copy"))
    data = json.loads((copy / "model.json").read_text())
    [entry] = [n for n in data["nodes"] if n["part"]]
    entry.update({"kernel": "", "part": "", **call})
    (copy / "model.json").write_text(json.dumps(data))
    with pytest.raises(LibraryError, match="is no manifest"):
        perfdojo_sdk.load_model(copy)


@RUNTIME
def test_an_error_of_the_peer_names_it(built: Path) -> None:
    [part] = perfdojo_sdk.load_model(built).parts.values()
    with pytest.raises(peers.PeerError, match="onnxruntime failed") as error:
        part([np.zeros((3, 3), np.float32)], [np.zeros((N, N), np.float32)], 1)
    assert error.value.code == "PD-O042" and error.value.why


def test_the_interpreter_refuses_parts_of_peers() -> None:
    from perfdojo_sdk.graph.graph import Foreign
    from perfdojo_sdk.graph.running import no_peer

    with pytest.raises(Refused, match="runs in torch"):
        no_peer(Foreign("part0", "torch", b"", (), (), ("a",)), [])


def test_peers_have_names() -> None:
    with pytest.raises(DojoError, match="no peer is called 'tensorflow'"):
        Policy(fallback="tensorflow")
    assert Policy().peer_for(None) == "" and Policy("torch").peer_for(None) == "torch"


def test_a_peer_has_to_be_clearly_faster() -> None:
    policy = Policy(prefer_faster="torch")
    assert policy.peer_for(1.0, 0.9) == "torch" and policy.peer_for(1.0, 0.96) == ""
    assert Policy("torch").peer_for(1.0, 0.5) == ""


# -- races


@RUNTIME
def test_a_peer_that_is_faster_runs_what_it_wins(toy: Plugins, tmp_path: Path) -> None:
    nodes = [
        node("MatMul", "x w1", "p"),
        node("Flatten", "p", "f", axis=0),
        node("MatMul", "p w2", "y", name="b"),
    ]
    given = small(
        nodes,
        {"x": X},
        ["y", "f"],
        initializer=[numpy_helper.from_array(w, n) for w, n in ((W1, "w1"), (W2, "w2"))],
    )
    given.ir_version = 10
    found = lower(given, races=True)
    assert found.graph is not None and found.sources is not None
    policy = Policy(prefer_faster="onnxruntime")
    result = building.optimise(
        toy,
        toy.target("toy"),
        found.graph,
        tmp_path,
        SETTINGS,
        fuse=False,
        policy=policy,
        offers=found.sources,
    )
    races = result.manifest.races
    assert [race.nodes for race in races] == ["matmul", "b"] and {race.peer for race in races} == {
        "onnxruntime"
    }
    assert all(race.peer_s is not None and race.peer_s < race.kernels_s for race in races)
    assert set(result.manifest.parts) == {"race0", "race1"} and not result.manifest.kernels
    assert "without them, measured here" in result.manifest.verdict
    y, f = perfdojo_sdk.load_model(tmp_path)(X)
    assert np.allclose(y, X @ W1 @ W2, rtol=1e-4, atol=1e-3) and np.allclose(
        f, (X @ W1).reshape(1, -1), atol=1e-3
    )


@RUNTIME
def test_a_peer_that_is_not_faster_stays_out(toy: Plugins, tmp_path: Path) -> None:
    given = small([node("Relu", "x", "y")], {"x": X[:2, :2]}, ["y"])
    given.ir_version = 10
    found = lower(given, races=True)
    assert found.graph is not None
    policy = Policy(prefer_faster="onnxruntime")
    result = building.optimise(
        toy, toy.target("toy"), found.graph, tmp_path, SETTINGS, policy=policy, offers=found.sources
    )
    [race] = result.manifest.races
    assert not race.peer and race.why and not result.manifest.parts
    assert np.array_equal(perfdojo_sdk.load_model(tmp_path)(X[:2, :2]), np.maximum(X[:2, :2], 0))

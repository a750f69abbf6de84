"""Parts of models in peers: what has no kernel, and what a peer computes faster, both only if asked."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from command_line import Outcome, clear
from onnx import TensorProto, helper, numpy_helper
from onnx_models import model as small

import perfdojo_sdk
from perfdojo_sdk.core.errors import DojoError
from perfdojo_sdk.frontends.onnx.lowering import lower
from perfdojo_sdk.graph.graph import Graph, Node
from perfdojo_sdk.graph.order import calls
from perfdojo_sdk.graph.refusals import Reason, Refused
from perfdojo_sdk.kernels.selection import Kernel
from perfdojo_sdk.library.build import Observer, Own
from perfdojo_sdk.library.manifest import LibraryError
from perfdojo_sdk.library.settings import Settings
from perfdojo_sdk.library.tuning import SearchStatus
from perfdojo_sdk.models import optimise as building
from perfdojo_sdk.models import peers, racing, torch_peer
from perfdojo_sdk.models.accuracy import in_double, measured, saved_graph
from perfdojo_sdk.models.budget import Budget
from perfdojo_sdk.models.manifest import ModelManifest
from perfdojo_sdk.models.policy import Policy
from perfdojo_sdk.models.torch_peer import TABLE
from perfdojo_sdk.plugins import Plugins
from perfdojo_sdk.verify import double

RUNTIME = pytest.mark.skipif(find_spec("onnxruntime") is None, reason="ONNX Runtime is not installed")
N = 16
DRAW = np.random.default_rng(0)
W1, W2 = ((DRAW.standard_normal((N, N)) / 10).astype(np.float32) for _ in range(2))
X = DRAW.standard_normal((N, N)).astype(np.float32)
V = DRAW.standard_normal((40, 40)).astype(np.float32)


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


SETTINGS = Settings(threads=1, search="naive", repeats=3, budget_s=0.05)


def lowered(peer: str) -> Graph:
    graph = lower(network(), peer=peer).graph
    assert graph is not None
    return graph


@pytest.fixture(scope="module")
def built(linking_toy: Plugins, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The network with its random numbers in PyTorch."""
    folder = tmp_path_factory.mktemp("network")
    result = building.optimise(
        linking_toy, linking_toy.target("toy"), lowered("torch"), folder, SETTINGS, fuse=False
    )
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
def test_fusion_does_not_join_kernels_around_a_part_that_lies_between_them(linking_toy: Plugins) -> None:
    nodes = [
        node("Relu", "x", "a", name="before"),
        node("RandomNormalLike", "a", "r"),
        node("Add", "a r", "y", name="after"),
    ]
    graph = lower(small(nodes, {"x": X}, ["y"], opset=20), peer="onnxruntime").graph
    assert graph is not None
    plan = building.plan_for(linking_toy, linking_toy.target("toy"), graph)
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


def test_a_model_with_a_part_gives_its_results(built: Path) -> None:
    model = perfdojo_sdk.load_model(built)
    assert np.allclose(model(X), expected(), rtol=1e-4, atol=1e-4)
    assert np.allclose(model(X, threads=2), expected(), rtol=1e-4, atol=1e-4)
    [part] = model.manifest.parts.values()
    assert part.peer == "torch" and part.crossing_bytes == 2 * 4 * N * N
    assert part.median_s > 0 and part.kernels_s is None and not model.manifest.symbol


def test_a_package_whose_peer_is_missing_says_so(built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "find_spec", lambda name: None)
    with pytest.raises(DojoError, match="needs torch, which is not installed") as error:
        perfdojo_sdk.load_model(built)
    assert error.value.code == "PD-O041" and "bernoulli" in error.value.what


def test_a_part_that_was_changed_is_refused(built: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(built, tmp_path / "copy"))
    [path] = (copy / "parts").iterdir()
    path.write_bytes(path.read_bytes() + b" ")
    with pytest.raises(LibraryError, match="not the file that the manifest describes"):
        perfdojo_sdk.load_model(copy)
    path.unlink()
    with pytest.raises(LibraryError, match="cannot read"):
        perfdojo_sdk.load_model(copy)


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


def test_an_error_of_the_peer_names_it(built: Path) -> None:
    [part] = perfdojo_sdk.load_model(built).parts.values()
    with pytest.raises(peers.PeerError, match="torch failed") as error:
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


# -- PyTorch


def cases() -> dict[str, tuple[Any, list[Any]]]:
    """A node for each row of the table whose results are no random numbers, and its operands."""
    pair, truth = [V[:3, :4], V[3:6, :4] + 2], [V[:3, :4] > 0, V[3:6, :4] > 0]
    image, kernel = V[:32].reshape(1, 4, 8, 40)[..., :9], V[:6, :36].reshape(6, 4, 3, 3)
    one: dict[str, list[Any]] = {op: [np.abs(V[:3, :4]) + 0.1] for op in ("Log", "Sqrt", "Reciprocal")}
    rest: dict[str, tuple[list[Any], dict[str, Any]]] = {
        **{op: (pair, {}) for op in ("Add", "Sub", "Mul", "Div", "Equal", "Greater", "Less")},
        **{op: (truth, {}) for op in ("And", "Or")},
        "Not": (truth[:1], {}),
        "MatMul": ([V[:3, :4], V[:4, :5]], {}),
        "Where": ([truth[0], *pair], {}),
        "Gemm": ([V[:4, :3], V[:5, :4], V[0, :5]], {"alpha": 0.5, "beta": 2.0, "transA": 1, "transB": 1}),
        "Conv": (
            [image, kernel, V[0, :6]],
            {"pads": [1, 0, 2, 1], "strides": [1, 2], "dilations": [2, 1], "kernel_shape": [3, 3]},
        ),
        "Softmax": (pair[:1], {"axis": 0}),
        "LogSoftmax": (pair[:1], {}),
        "Transpose": ([V[:24].reshape(2, 3, 4, 40)], {"perm": [2, 0, 3, 1]}),
        "Concat": (pair, {"axis": 1}),
        "Reshape": ([V[:3, :4], np.array([0, -1, 2])], {}),
        "Cast": (pair[:1], {"to": TensorProto.INT32}),
    }
    found = {}
    for op in TABLE:
        if not op.startswith(("Random", "Bernoulli", "Multinomial")):
            inputs, more = rest.get(op, (one.get(op, pair[:1]), {}))
            found[op] = (helper.make_node(op, [f"x{k}" for k in range(len(inputs))], ["y"], **more), inputs)
    return found


@pytest.mark.parametrize("op", list(cases()))
def test_torch_gives_the_results_of_the_standard(op: str) -> None:
    from onnx.reference import ReferenceEvaluator

    call, inputs = cases()[op]
    given = {f"x{k}": np.asarray(each) for k, each in enumerate(inputs)}
    whole = small([call], given, ["y"])
    [wanted] = ReferenceEvaluator(whole).run(None, given)
    found = np.empty(wanted.shape, wanted.dtype)
    peers.open_part("torch", whole.SerializeToString(), "the test")(list(given.values()), [found], 1)
    assert np.allclose(found, wanted, rtol=1e-5, atol=1e-5)


def test_the_approximation_of_gelu_in_torch_is_that_of_the_standard() -> None:
    from onnx.reference import ReferenceEvaluator

    given = {"a": np.linspace(-3, 3, 13, dtype=np.float32)}
    whole = small([node("Gelu", "a", "y", approximate="tanh")], given, ["y"])
    [wanted] = ReferenceEvaluator(whole).run(None, given)
    found = np.empty(13, np.float32)
    peers.open_part("torch", whole.SerializeToString(), "the test")(list(given.values()), [found], 1)
    assert np.allclose(found, wanted, rtol=1e-6, atol=1e-7)


def test_division_of_integers_in_torch_rounds_towards_zero() -> None:
    given = {"a": np.array([-7, 7], np.int32), "b": np.array([2, 2], np.int32)}
    content = small([node("Div", "a b", "y")], given, ["y"]).SerializeToString()
    found = np.empty(2, np.int32)
    peers.open_part("torch", content, "the test")(list(given.values()), [found], 1)
    assert found.tolist() == [-3, 3]


@pytest.mark.parametrize(
    ("call", "low", "high"),
    [
        (node("Bernoulli", "x", "y"), 0, 1),
        (node("RandomUniformLike", "x", "y", low=2.0, high=3.0), 2, 3),
        (node("RandomUniform", "", "y", low=2.0, high=3.0, shape=[N, N]), 2, 3),
        (node("RandomNormal", "", "y", mean=9.0, scale=0.1, shape=[N, N]), 8, 10),
        (node("Multinomial", "x", "y", sample_size=N, dtype=TensorProto.INT64), 0, N - 1),
    ],
    ids=lambda call: getattr(call, "op_type", None),
)
def test_random_numbers_of_torch(call: Any, low: float, high: float) -> None:
    x = np.abs(np.sin(X))
    given = {"x": x} if call.input else {}
    content = small([call], given, ["y"]).SerializeToString()
    found = np.empty((N, N), np.int64 if call.op_type == "Multinomial" else np.float32)
    peers.open_part("torch", content, "the test")(list(given.values()), [found], 1)
    assert low <= found.min() < found.max() <= high


@pytest.mark.parametrize(
    ("call", "opset", "what"),
    [
        (node("Selu", "x", "y"), 20, "no function for Selu"),
        (node("Cast", "x", "y", to=1, saturate=0), 20, "Cast with saturate"),
        (node("Relu", "x", "y"), 12, "version 13"),
    ],
)
def test_what_the_table_lacks_is_refused(call: Any, opset: int, what: str) -> None:
    with pytest.raises(Refused, match=what):
        peers.open_part("torch", small([call], {"x": X}, ["y"], opset=opset).SerializeToString(), "the test")


@pytest.fixture
def folder(built: Path, tmp_path: Path) -> Path:
    """A folder in which the network's kernels are built, so that models of the same kernels are quick."""
    return Path(shutil.copytree(built, tmp_path / "model"))


# -- races


def timed(monkeypatch: pytest.MonkeyPatch, *times: float) -> None:
    """Have each race take these times, of ours and of the peer, once its calls have been made."""

    def in_turns(*calls: Callable[[], object]) -> list[float]:
        for call in calls:
            call()
        return list(times[: len(calls)])

    monkeypatch.setattr(racing, "in_turns", in_turns)


@RUNTIME
def test_a_peer_that_is_faster_runs_what_it_wins(
    linking_toy: Plugins, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    timed(monkeypatch, 2.0, 1.0)
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
        linking_toy,
        linking_toy.target("toy"),
        found.graph,
        folder,
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
    y, f = perfdojo_sdk.load_model(folder)(X)
    assert np.allclose(y, X @ W1 @ W2, rtol=1e-4, atol=1e-3) and np.allclose(
        f, (X @ W1).reshape(1, -1), atol=1e-3
    )


@RUNTIME
def test_a_peer_that_is_not_faster_stays_out(
    linking_toy: Plugins, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    timed(monkeypatch, 1.0, 0.96)
    given = small([node("Abs", "x", "y")], {"x": X}, ["y"])
    given.ir_version = 10
    found = lower(given, races=True)
    assert found.graph is not None
    policy = Policy(prefer_faster="onnxruntime")
    result = building.optimise(
        linking_toy,
        linking_toy.target("toy"),
        found.graph,
        folder,
        SETTINGS,
        policy=policy,
        offers=found.sources,
    )
    [race] = result.manifest.races
    assert not race.peer and "not clearly faster" in race.why and not result.manifest.parts
    assert np.array_equal(perfdojo_sdk.load_model(folder)(X), np.abs(X))


def product(folder: Path, linking_toy: Plugins) -> ModelManifest:
    """One product raced against PyTorch."""
    weights = [numpy_helper.from_array(W1, "w")]
    found = lower(small([node("MatMul", "x w", "y")], {"x": X}, ["y"], initializer=weights), races=True)
    assert found.graph is not None
    return building.optimise(
        linking_toy,
        linking_toy.target("toy"),
        found.graph,
        folder,
        SETTINGS,
        policy=Policy(prefer_faster="torch"),
        offers=found.sources,
    ).manifest


def test_a_peer_with_other_results_stays_out(
    linking_toy: Plugins, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    timed(monkeypatch, 2.0, 1.0)
    wrong = (lambda torch, x, a: 2 * torch.matmul(*x), frozenset[str]())
    monkeypatch.setattr(torch_peer, "TABLE", {**TABLE, "MatMul": wrong})
    [race] = product(folder, linking_toy).races
    assert not race.peer and race.why == "the peer's results are others"


def test_parts_that_make_the_model_slower_are_not_used(
    linking_toy: Plugins, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    timed(monkeypatch, 2.0, 1.0)
    monkeypatch.setattr(building, "timed_models", lambda *_: [1.0, 1.5])
    manifest = product(folder, linking_toy)
    [race] = manifest.races
    assert not race.peer and race.why == "the whole model is not faster" and not manifest.parts
    assert manifest.verdict.endswith("none is used")


# -- accuracy on data


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Two samples for the network."""
    np.savez(tmp_path / "mine.npz", x=np.stack([X, 2 * X]))
    return tmp_path / "mine.npz"


def test_a_model_is_verified_on_data(cli: Callable[..., Outcome], built: Path, data: Path) -> None:
    found = json.loads(cli("verify", str(built), "--data", str(data), "--json").out)
    [y] = found["outputs"]
    assert found["samples"] == 2 and found["passed"] and 0 < y["mean"] <= y["largest"] < 1e-5 * y["scale"]
    text = cli("verify", str(built), "--data", str(data))
    assert text.code == 0 and "2 samples against the saved programs" in text.out
    assert "what torch runs ran there" in text.out


def test_the_float64_run_is_that_of_the_formula(built: Path) -> None:
    model = perfdojo_sdk.load_model(built)
    [y] = in_double(saved_graph(model), {"x": X}, model, 1)
    x, w1, w2 = (each.astype(np.float64) for each in (X, W1, W2))
    wanted = np.abs(x @ w1 * 0.5) @ w2
    assert y.dtype == np.float64 and np.abs(y - wanted).max() < 1e-13 * np.abs(wanted).max()


def test_large_programs_run_in_float64_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    program = lowered("torch").nodes[0].program
    small_run = double.run_in_double(program, [X, W1])
    monkeypatch.setattr(double, "MOST_INTERPRETED", 0)
    [one], [other] = small_run, double.run_in_double(program, [X, W1])
    assert np.array_equal(one, other) or np.abs(one - other).max() < 1e-15 * np.abs(one).max()


def test_an_error_that_is_too_large_fails(cli: Callable[..., Outcome], built: Path, data: Path) -> None:
    assert cli("verify", str(built), "--data", str(data), "--max-error", "1e-12").code == 4


def test_a_package_beside_another_model_fails(
    cli: Callable[..., Outcome], built: Path, data: Path, tmp_path: Path
) -> None:
    other = small(
        [node("MatMul", "x w", "y")], {"x": X}, ["y"], initializer=[numpy_helper.from_array(W1, "w")]
    )
    onnx.save(other, tmp_path / "other.onnx")
    words = ("verify", str(built), "--data", str(data), "--original", str(tmp_path / "other.onnx"))
    found = json.loads(cli(*words, "--json").out)
    assert not found["passed"] and found["outputs"][0]["largest"] > 0.1


@pytest.mark.parametrize(
    ("arrays", "what"),
    [
        ({"z": X}, "has no array x"),
        ({"x": X[:2]}, "the model takes f32"),
        ({"x": X.astype(np.float64)}, "the model takes f32"),
        ({"x": np.array([None])}, "cannot be read"),
    ],
    ids=["name", "shape", "dtype", "pickle"],
)
def test_data_that_does_not_fit_is_refused(
    cli: Callable[..., Outcome], built: Path, tmp_path: Path, arrays: dict[str, Any], what: str
) -> None:
    np.savez(tmp_path / "mine.npz", **arrays)
    refused = cli("verify", str(built), "--data", str(tmp_path / "mine.npz"))
    clear(refused, 1, "PD-O044")
    assert what in refused.err


def test_a_file_that_is_no_data_is_refused(cli: Callable[..., Outcome], built: Path, tmp_path: Path) -> None:
    missing = cli("verify", str(built), "--data", str(tmp_path / "mine.npz"))
    clear(missing, 1, "PD-O044")
    assert "there is no file" in missing.err and "numpy.savez" in missing.err
    (tmp_path / "mine.npz").write_bytes(b"nothing")
    clear(cli("verify", str(built), "--data", str(tmp_path / "mine.npz")), 1, "PD-O044")
    assert cli("verify", str(built)).code == 2


def test_misplaced_infinities_and_other_integers_are_errors() -> None:
    one = np.array([1.0, np.inf, np.nan], np.float32)
    [right] = measured([[one]], [[one.astype(np.float64)]], ["y"])
    assert right.within(0.0)
    [wrong] = measured([[one]], [[np.array([1.0, 2.0, np.nan])]], ["y"])
    assert wrong.misplaced == 1 and not wrong.within(1.0)
    [counted] = measured([[np.arange(3)]], [[np.array([0, 1, 5])]], ["y"])
    assert counted.exact and counted.largest == 1 and not counted.within(1.0)


# -- the command


def test_a_fallback_is_for_files_of_onnx(cli: Callable[..., Outcome]) -> None:
    clear(cli("optimize", "net.py:Net", "--fallback", "torch", plugins="toy"), 3, "PD-O043")
    clear(cli("optimize", "net.py:Net", "--prefer-faster", "torch", plugins="toy"), 3, "PD-O043")
    clear(cli("optimize", "m.onnx", "--fallback", "nobody", plugins="toy"), 1, "PD-O040")


def test_the_list_says_what_runs_elsewhere(cli: Callable[..., Outcome], tmp_path: Path) -> None:
    onnx.save(network(), tmp_path / "m.onnx")
    words = ("optimize", str(tmp_path / "m.onnx"), "--list")
    refused = cli(*words, plugins="toy")
    assert refused.code == 1 and "bernoulli" in refused.out
    found = cli(*words, "--fallback", "torch", plugins="toy")
    assert found.code == 0 and "runs elsewhere" in found.out and f"{8 * N * N:,}" in found.out
    [part] = json.loads(cli(*words, "--fallback", "torch", "--json", plugins="toy").out)["elsewhere"]
    assert part["peer"] == "torch" and part["nodes"] == ["bernoulli", "randomnormallike"]


# -- budgets


def test_a_budget_is_shared_by_parts_of_the_time() -> None:
    times = {"large": 60.0, "middle": 39.0, "small": 1.0}
    found = Budget(evaluations=100).shared(times, SETTINGS)
    assert {name: own.settings.evaluations for name, own in found.items()} == {"large": 60, "middle": 39}
    assert all(own.settings.search == "auto" and own.seconds is None for own in found.values())
    timed = Budget(seconds=1000.0).shared(times, SETTINGS)
    assert {name: own.seconds for name, own in timed.items()} == {
        "large": 600.0,
        "middle": 390.0,
        "small": 10.0,
    }
    assert not Budget(seconds=1000.0).shared({}, SETTINGS)
    assert set(Budget(seconds=100.0).shared(times, SETTINGS)) == {"large", "middle"}
    both = Budget(10, 1000.0).shared(times, SETTINGS)
    assert {n: (own.settings.evaluations, own.seconds) for n, own in both.items()} == {
        "large": (6, 600.0),
        "middle": (3, 390.0),
    }


@pytest.mark.parametrize("slower", [False, True], ids=["found", "kept"])
def test_each_kernel_is_searched_with_its_share(
    linking_toy: Plugins, folder: Path, monkeypatch: pytest.MonkeyPatch, slower: bool
) -> None:
    """A search's program ships, unless it is slower than the one before it: then that is built again."""
    graph = lower(small([node("Abs", "x", "y")], {"x": X}, ["y"])).graph
    assert graph is not None
    [kernel] = building.kernels_of(graph)
    shares: list[Any] = []
    real = building.build_library

    def build(*given: Any, own: Any = None, **more: Any) -> Any:
        shares.append(own)
        return real(*given, own=own if len(shares) == 2 else None, **more)

    monkeypatch.setattr(building, "build_library", build)
    monkeypatch.setattr(building._Site, "beaten", lambda *_: {kernel.name} if slower else set[str]())
    rounds: list[int] = []

    class Watch(Observer):
        def round(self, kernel: Kernel, status: SearchStatus) -> None:
            rounds.append(status.evaluations)

    spent = [
        building.optimise(
            linking_toy,
            linking_toy.target("toy"),
            graph,
            folder,
            SETTINGS,
            Watch(),
            budget=Budget(evaluations=2),
        ).spent
        for _ in range(2)
    ]
    own = {kernel.name: Own(replace(SETTINGS, search="auto", evaluations=2))}
    once = [None, own, {}] if slower else [None, own]
    assert shares == once * 2 and rounds and max(rounds) <= 2
    assert [s.as_before for s in spent if s] == [(kernel.name,) if slower else ()] * 2

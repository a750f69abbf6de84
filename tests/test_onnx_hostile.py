"""Models of hostile authors end in one message, within bounds of time and memory, and touch nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hostile_models import changed
from onnx import TensorProto, helper, numpy_helper
from onnx_models import X, model
from random_onnx import MAKERS, random_model

from perfdojo_sdk.frontends.onnx.lowering import lower
from perfdojo_sdk.frontends.onnx.reading import MAX_EXPANDED, MAX_NODES
from perfdojo_sdk.graph.refusals import Malformed
from perfdojo_sdk.graph.running import run_graph


def relu() -> Any:
    return model([helper.make_node("Relu", ["x"], ["y"], name="n")], {"x": X}, ["y"])


def truncated() -> bytes:
    return bytes(relu().SerializeToString()[:-7])


def cyclic() -> Any:
    return model(
        [helper.make_node("Add", ["x", "z"], ["y"]), helper.make_node("Relu", ["y"], ["z"])], {"x": X}, ["y"]
    )


def huge_tensor() -> Any:
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[2**40, 2**40])
    return model([helper.make_node("Add", ["x", "w"], ["y"])], {"x": X}, ["y"], initializer=[tensor])


def huge_result() -> Any:
    shape = numpy_helper.from_array(np.array([2**31, 2**31]), "s")
    node = helper.make_node("ConstantOfShape", ["s"], ["y"], name="fill")
    return model([node], {"x": X}, ["y"], initializer=[shape])


def short_data() -> Any:
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[3], raw_data=b"12345678")
    return model([helper.make_node("Add", ["x", "w"], ["y"])], {"x": X}, ["y"], initializer=[tensor])


def outside() -> Any:
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="../../etc/passwd")
    return model([helper.make_node("Add", ["x", "w"], ["y"])], {"x": X}, ["y"], initializer=[tensor])


def calling_itself() -> Any:
    call = helper.make_node("Again", ["a"], ["b"], domain="own")
    function = helper.make_function("own", "Again", ["a"], ["b"], [call], [helper.make_opsetid("own", 1)])
    made = model([helper.make_node("Again", ["x"], ["y"], domain="own", name="n")], {"x": X}, ["y"])
    made.opset_import.append(helper.make_opsetid("own", 1))
    made.functions.append(function)
    return made


def deep() -> Any:
    made = relu()
    graph = made.graph
    for _ in range(70):
        graph.node.add(op_type="If", input=["c"], output=["r"])
        graph = graph.node[-1].attribute.add(name="then_branch", type=onnx.AttributeProto.GRAPH).g
        graph.name = "g"
    return made


def unfit() -> Any:
    w = numpy_helper.from_array(np.zeros((5, 2), np.float32), "w")
    node = helper.make_node("MatMul", ["x", "w"], ["y"], name="\x1b[31mproduct")
    return model([node], {"x": X}, ["y"], initializer=[w])


def undefined() -> Any:
    return model([helper.make_node("Relu", ["nothing"], ["y"])], {"x": X}, ["y"])


def undefined_inside() -> Any:
    shape = helper.make_tensor_value_info("z", TensorProto.FLOAT, [2, 3])
    body = helper.make_graph([helper.make_node("Neg", ["ghost"], ["z"], name="inner")], "b", [], [shape])
    node = helper.make_node("If", ["c"], ["y"], name="n", then_branch=body, else_branch=body)
    made = model([node], {"x": X}, ["y"])
    made.graph.input.append(helper.make_tensor_value_info("c", TensorProto.BOOL, []))
    return made


def defined_twice() -> Any:
    return model([helper.make_node(op, ["x"], ["y"]) for op in ("Relu", "Abs")], {"x": X}, ["y"])


def no_versions() -> Any:
    made = relu()
    del made.opset_import[:]
    return made


def open_size() -> Any:
    return model([helper.make_node("Relu", ["x"], ["y"])], {"x": (TensorProto.FLOAT, ("batch", 4))}, ["y"])


def many_nodes() -> Any:
    """The one beyond the bound stands in a branch, and has a name that would colour a terminal."""
    made = relu()
    made.graph.node.extend([onnx.NodeProto(op_type="Relu", name="some")] * (MAX_NODES - 2))
    branch = helper.make_graph([onnx.NodeProto(op_type="Neg", name="\x1b[31mlast")] * 2, "branch", [], [])
    made.graph.node.append(helper.make_node("If", ["c"], ["r"], then_branch=branch))
    return made


def unknown_type_of_tensor() -> Any:
    made = model([helper.make_node("Add", ["x", "\x1bw"], ["y"])], {"x": X}, ["y"])
    made.graph.initializer.add(name="\x1bw", data_type=99, dims=[4], raw_data=b"0" * 16)
    return made


def unknown_type_of_input() -> Any:
    made = relu()
    made.graph.input[0].type.tensor_type.elem_type = 99
    return made


def unknown_type_of_node() -> Any:
    return model([helper.make_node("Cast", ["x"], ["y"], name="n", to=99)], {"x": X}, ["y"])


def sparse() -> Any:
    made = relu()
    made.graph.sparse_initializer.add().values.name = "few"
    return made


def doubling() -> Any:
    """Functions that each call the next one twice."""
    made = model([helper.make_node("F0", ["x"], ["y"], domain="own", name="n")], {"x": X}, ["y"])
    opsets = [helper.make_opsetid("own", 1), helper.make_opsetid("", 20)]
    for k in range(40):
        calls = [helper.make_node(f"F{k + 1}", [a], [b], domain="own") for a, b in (("a", "b"), ("b", "c"))]
        made.functions.append(helper.make_function("own", f"F{k}", ["a"], ["c"], calls, opsets))
    last = [helper.make_node("Neg", ["a"], ["c"])]
    made.functions.append(helper.make_function("own", "F40", ["a"], ["c"], last, opsets))
    made.opset_import.append(helper.make_opsetid("own", 1))
    return made


def loops_in_loops() -> Any:
    """Three loops of a thousand iterations, one inside the other."""
    inputs = [onnx.ValueInfoProto(name=n) for n in ("t", "go", "s")]
    nodes = [helper.make_node("Neg", ["s"], ["r"]), helper.make_node("Identity", ["go"], ["on"])]
    for _ in range(3):
        outputs = [onnx.ValueInfoProto(name=n) for n in ("on", "r")]
        body = helper.make_graph(nodes, "body", inputs, outputs)
        nodes = [helper.make_node("Loop", ["most", "", "s"], ["r"], body=body, name="n")]
        nodes.append(helper.make_node("Identity", ["go"], ["on"]))
    nodes[0].input[2], nodes[0].output[0] = "x", "y"
    most = numpy_helper.from_array(np.array(1000), "most")
    return model(nodes[:1], {"x": X}, ["y"], initializer=[most])


def constants(op: str, *values: Any, **attributes: Any) -> Any:
    """An operator of x and constants."""
    names = [f"c{k}" for k in range(len(values))]
    given = [numpy_helper.from_array(np.array(v), n) for v, n in zip(values, names, strict=True)]
    node = helper.make_node(op, ["x", *names], ["y"], name="n", **attributes)
    return model([node], {"x": X}, ["y"], initializer=given)


def huge_input() -> Any:
    return model([helper.make_node("Relu", ["x"], ["y"])], {"x": (TensorProto.FLOAT, (2**31, 2**31))}, ["y"])


def another_kind() -> Any:
    """An attribute of another type than its schema says."""
    made = model([helper.make_node("Softmax", ["x"], ["y"], name="n")], {"x": X}, ["y"])
    made.graph.node[0].attribute.append(helper.make_attribute("axis", "first"))
    return made


def unknown_operator() -> Any:
    return model([helper.make_node("Nothing", ["x"], ["y"], domain="../own", name="n")], {"x": X}, ["y"])


def endless_name() -> Any:
    return model([helper.make_node("Relu", ["x"], ["y" * 2000])], {"x": X}, ["y" * 2000])


def no_text() -> bytes:
    return bytes(relu().SerializeToString()).replace(b"Relu", b"R\xff\xfeu")


def external_beyond() -> Any:
    made = outside()
    made.graph.initializer[0].external_data[0].value = "m.onnx"
    made.graph.initializer[0].external_data.add(key="offset", value=str(2**62))
    return made


BAD: list[tuple[Callable[[], Any], str]] = [
    (truncated, "no ONNX model"),
    (lambda: b"", "no graph"),
    (lambda: b"\x80\x04pickle", "no ONNX model"),
    (no_text, r"node n (R\xff\xfeu), at place 0 of g, has the name"),
    (cyclic, "cycle"),
    (huge_tensor, "w has the shape"),
    (huge_result, "fill"),
    (huge_input, "2147483648"),
    (short_data, "3 elements and holds 8 bytes"),
    (outside, "lies in"),
    (external_beyond, "elements in 16 bytes at"),
    (calling_itself, "n (Again)"),
    (doubling, f"n (F0): loops and functions of more than {MAX_EXPANDED} nodes"),
    (loops_in_loops, f"n (Loop): loops and functions of more than {MAX_EXPANDED} nodes"),
    (many_nodes, r"the first beyond them is node \x1b[31mlast (Neg), in branch"),
    (unknown_type_of_tensor, r"tensor \x1bw has the element type 99"),
    (unknown_type_of_input, "input x has the element type 99"),
    (unknown_type_of_node, "node n (Cast): there is no element type 99"),
    (sparse, "initializer few is sparse"),
    (deep, "too deep"),
    (unfit, r"node \x1b[31mproduct (MatMul)"),
    (another_kind, "node n (Softmax): attribute axis"),
    (unknown_operator, "n (Nothing): ../own.Nothing"),
    (undefined, "node y (Relu) reads nothing"),
    (undefined_inside, "node n (If): node inner (Neg) reads ghost, which is not defined"),
    (defined_twice, "node y (Abs) defines y once more"),
    (no_versions, "operator set"),
    (open_size, "open size batch"),
    (endless_name, "yyy... (Relu), at place 0 of g, has a name of 2000 characters"),
    (partial(constants, "Tile", [2**40, 2**40]), "n (Tile)"),
    (partial(constants, "Expand", [2**20, 2**20, 3, 4]), "n (Expand)"),
    (partial(constants, "Reshape", [-1, -1]), "n (Reshape)"),
    (partial(constants, "Pad", [0, 2**40, 0, 2**40], mode="wrap"), "n (Pad)"),
    (partial(constants, "OneHot", 2**48, [0.0, 1.0]), "n (OneHot)"),
]


#: Lowers the files of a folder in 2 GB; prints for each the class of its outcome, the message, the seconds.
CHILD = """
import json, resource, sys, time
from pathlib import Path
from perfdojo_sdk.core.errors import DojoError
from perfdojo_sdk.frontends.onnx.lowering import Unsupported, lower
resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
found = {}
for path in sorted(Path(sys.argv[1]).glob("*.onnx")):
    begin, text = time.process_time(), ""
    try:
        lowered = lower(path)
        if lowered.graph is None:
            raise Unsupported("g", lowered.refusals)
        outcome = "graph"
    except DojoError as error:
        outcome, text = "refused", str(error)
    except BaseException as error:
        outcome, text = "crashed", repr(error)
    found[path.name] = outcome, text, time.process_time() - begin
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, str, float]]:
    """All bad models and two hundred changed ones, in one process; it writes nothing."""
    folder = tmp_path_factory.mktemp("hostile")
    for k, (make, _) in enumerate(BAD):
        source = make()
        content = source if isinstance(source, bytes) else source.SerializeToString()
        (folder / f"bad{k}.onnx").write_bytes(content)
    for seed in range(200):
        base, _ = random_model(seed % (5 * len(MAKERS)))
        (folder / f"changed{seed}.onnx").write_bytes(changed(base, seed))
    before = sorted(folder.iterdir())
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(folder)],
        capture_output=True,
        text=True,
        env=environment,
        cwd=folder,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert sorted(folder.iterdir()) == before
    return {name: tuple(found) for name, found in json.loads(done.stdout).items()}


@pytest.mark.parametrize("k", range(len(BAD)), ids=[getattr(make, "__name__", "") for make, _ in BAD])
def test_a_bad_model_is_refused_with_one_message(outcomes: dict[str, tuple[str, str, float]], k: int) -> None:
    outcome, text, seconds = outcomes[f"bad{k}.onnx"]
    assert outcome == "refused" and BAD[k][1] in text and "\x1b" not in text
    assert seconds < 10


def test_two_hundred_changed_models_end_in_a_graph_or_one_message(
    outcomes: dict[str, tuple[str, str, float]],
) -> None:
    found = [each for name, each in outcomes.items() if name.startswith("changed")]
    assert len(found) == 200 and not [text for outcome, text, _ in found if outcome == "crashed"]
    assert sum(outcome == "graph" for outcome, _, _ in found) > 10
    assert all(text for outcome, text, _ in found if outcome == "refused")
    assert max(seconds for _, _, seconds in found) < 10


def test_a_model_in_memory_may_not_be_deeper_than_a_file() -> None:
    with pytest.raises(Malformed, match="64 deep"):
        lower(deep())


def test_weights_may_be_nan() -> None:
    w = np.array([np.nan, np.inf, 1, -0.0], np.float32)
    node = helper.make_node("Add", ["x", "w"], ["y"])
    graph = lower(model([node], {"x": X}, ["y"], initializer=[numpy_helper.from_array(w, "w")])).graph
    assert graph is not None and np.array_equal(run_graph(graph, {"x": X})[0], X + w, equal_nan=True)


def test_what_is_no_regular_file_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "m.onnx")
    for path in (tmp_path / "m.onnx", tmp_path):
        with pytest.raises(Malformed, match="cannot read"):
            lower(path)


def test_external_data_is_read_from_the_models_folder_and_through_no_link(tmp_path: Path) -> None:
    w = np.arange(4, dtype=np.float32)
    made = outside()
    entry = made.graph.initializer[0].external_data[0]
    (tmp_path / "weights.bin").write_bytes(b"head" + w.tobytes())
    made.graph.initializer[0].external_data.add(key="offset", value="4")
    entry.value = "weights.bin"
    onnx.save(made, tmp_path / "m.onnx")
    graph = lower(tmp_path / "m.onnx").graph
    assert graph is not None and (run_graph(graph, {"x": X})[0] == X + w).all()
    entry.value = "weights.bin\0"
    onnx.save(made, tmp_path / "m.onnx")
    with pytest.raises(Malformed, match="zero byte"):
        lower(tmp_path / "m.onnx")
    (tmp_path / "link.bin").symlink_to(tmp_path / "weights.bin")
    entry.value = "link.bin"
    onnx.save(made, tmp_path / "m.onnx")
    with pytest.raises(Malformed, match="the data of tensor w: it is a link"):
        lower(tmp_path / "m.onnx")

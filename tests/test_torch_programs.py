"""Programs of ``torch.export``: lowered as modules are, with their open sizes, or refused by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import Outcome, clear

torch = pytest.importorskip("torch")

from torch.export import Dim, export  # noqa: E402

from perfdojo_sdk.frontends.torch.packaging import exported  # noqa: E402
from perfdojo_sdk.frontends.torch.programs import declared_inputs  # noqa: E402
from perfdojo_sdk.graph.graph import Graph  # noqa: E402
from perfdojo_sdk.graph.running import run_graph  # noqa: E402
from perfdojo_sdk.library.settings import Settings  # noqa: E402
from perfdojo_sdk.models.bucketing import Lengths, optimise_buckets  # noqa: E402
from perfdojo_sdk.models.buckets import load_model  # noqa: E402
from perfdojo_sdk.models.optimise import ModelError  # noqa: E402
from perfdojo_sdk.plugins import Plugins  # noqa: E402

FILE = """
import torch
from torch import nn
from torch.export import Dim, export

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(4, 3)
        self.register_buffer("shift", torch.ones(3))
        self.steps = torch.arange(3.0)
    def forward(self, x, flag=None):
        y = self.layer(x) + self.shift + self.steps + torch.tensor(2.0)
        return y.softmax(-1).to(torch.float64), y.sum(1)

class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(1))
    def forward(self, x):
        self.count.add_(1)
        return x + self.count

class Tree(nn.Module):
    def forward(self, x, k, d):
        return x * k + d["a"]

net = Net().eval()
x = torch.randn(4, 5, 4)
fixed = export(net, (x,))
def rows():
    return export(net, (x,), dynamic_shapes={"x": {0: Dim("batch", max=64)}})
def inner():
    return export(net, (x,), dynamic_shapes={"x": {1: Dim("seq", max=32)}})
def derived():
    return export(net, (x,), dynamic_shapes={"x": {0: 2 * Dim("half")}})
def counter():
    return export(Counter(), (x,))
def counter_in_core():
    return export(Counter(), (x,)).run_decompositions()
def tree():
    return export(Tree(), (x, 5, {"a": torch.ones(4)}))
"""


def namespace() -> dict[str, Any]:
    found: dict[str, Any] = {}
    exec(FILE, found)
    return found


@pytest.mark.parametrize("core", [False, True])
@pytest.mark.parametrize("name", ["fixed", "rows", "inner"])
def test_a_program_is_lowered_at_any_of_its_sizes(name: str, core: bool) -> None:
    names = namespace()
    program = names[name] if name == "fixed" else names[name]()
    program = program.run_decompositions() if core else program
    shape = {"fixed": (4, 5, 4), "rows": (7, 5, 4), "inner": (4, 3, 4)}[name]
    graph = exported(program, [("x", "f32", shape)]).graph
    assert graph is not None and {"layer.weight", "layer.bias", "shift", "steps"} <= set(graph.constants)
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    expected = [t.detach().numpy() for t in names["net"](torch.tensor(x))]
    for one, other in zip(run_graph(graph, {"x": x}), expected, strict=True):
        assert one.dtype == other.dtype and np.allclose(one, other, rtol=1e-4, atol=1e-5)


def test_inputs_of_a_program_have_names_types_and_limits() -> None:
    names = namespace()
    found = declared_inputs(names["tree"]())
    assert {n: (d.dtype, d.sizes) for n, d in found.items()} == {
        "x": ("f32", (4, 5, 4)),
        "d_a": ("f32", (4,)),
    }
    graph = exported(names["tree"](), [("x", "f32", (4, 5, 4)), ("d_a", "f32", (4,))]).graph
    assert graph is not None
    x, a = np.ones((4, 5, 4), np.float32), np.arange(4, dtype=np.float32)
    assert np.array_equal(run_graph(graph, {"x": x, "d_a": a})[0], 5 + np.broadcast_to(a, x.shape))
    [rows] = declared_inputs(names["rows"]()).values()
    assert rows.sizes == ("batch", 5, 4) and rows.most == (64, 5, 4), "the name of its Dim"
    [derived] = declared_inputs(names["derived"]()).values()
    assert str(derived.sizes[0]).startswith("2*"), "what is computed has no name"


def test_the_command_takes_programs(cli: Callable[..., Outcome], tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text(FILE)

    def listed(name: str, *words: str) -> Outcome:
        return cli("optimize", f"m.py:{name}", *words, "--list", "--json", plugins="toy")

    assert listed("fixed").data["kernels"] > 1 and listed("fixed").data["free"] is None
    rows = listed("rows", "--input", "x=f32[batch,5,4]")
    assert rows.code == 0 and rows.data["free"] == "batch"
    assert listed("rows").data["free"] == "batch"
    assert listed("inner", "--buckets", "seq=2,4").data["buckets"] == [2, 4]
    assert "1 to 64 rows" in cli("optimize", "m.py:rows", "--list", plugins="toy").out
    inner = listed("inner")
    clear(inner, 1, "PD-O052")
    assert "input x has the open size" in inner.err and "--buckets" in inner.err
    assert listed("inner", "--input", "x=[4,seq,4]", "--buckets", "seq=2,4").data["buckets"] == [2, 4]
    assert listed("derived", "--input", "x=[6,5,4]").code == 0
    for name, words, code, said in (
        ("derived", (), "PD-O052", "input x of derived has the size 2*"),
        ("counter", (), "PD-O004", "count"),
        ("counter_in_core", (), "PD-O025", "changes count"),
        ("rows", ("--input", "x=[65,5,4]"), "PD-O062", "at most 64"),
        ("inner", ("--input", "x=[4,s,4]", "--buckets", "s=8,64"), "PD-O062", "at most 32"),
        ("fixed", ("--input", "x=[3,5,4]"), "PD-O062", "has the sizes [4,5,4]"),
        ("fixed", ("--input", "z=[3]"), "PD-O025", "takes no input 'z'"),
        ("fixed", ("--weights", "w.safetensors"), "PD-O046", "own weights"),
    ):
        refused = cli("optimize", f"m.py:{name}", *words, plugins="toy")
        clear(refused, 1, code)
        assert said in refused.err, refused.err


def test_a_wrong_target_is_answered_before_the_model_is_read(
    cli: Callable[..., Outcome], tmp_path: Path
) -> None:
    (tmp_path / "m.py").write_text("raise SystemExit('the file ran')")
    refused = cli("optimize", "m.py:net", "--target", "tyo", plugins="toy")
    clear(refused, 3, "PD-G002")
    assert "tyo" in refused.err and "toy" in refused.err and "ran" not in refused.err


def test_a_module_that_decides_by_data_is_refused_with_its_line(
    cli: Callable[..., Outcome], tmp_path: Path
) -> None:
    lines = [
        "import torch",
        "class Few(torch.nn.Module):",
        "    def forward(self, x):",
        "        return x[x > 0].sum()",
    ]
    (tmp_path / "few.py").write_text("\n".join(lines) + "\n")
    refused = cli("optimize", "few.py:Few", "--input", "x=f32[3]", plugins="toy")
    clear(refused, 1, "PD-O025")
    assert "few.py:4: the rest depends" in refused.err and "torch.where" in refused.err, refused.err


def test_archives_of_pytorch_are_not_read(cli: Callable[..., Outcome], tmp_path: Path) -> None:
    torch.export.save(export(torch.nn.ReLU(), (torch.ones(3),)), tmp_path / "m.pt2")
    refused = cli("optimize", "m.pt2", plugins="toy")
    clear(refused, 1, "PD-O023")
    assert "may hold pickles" in refused.err and "torch.export.load" in refused.err


def test_a_module_that_changes_a_buffer_is_refused_by_its_name() -> None:
    made = exported(namespace()["Counter"](), [("x", "f32", (4, 5, 4))])
    assert [e.node for e in made.elsewhere] == ["count"]


class Causal(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        return torch.nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True)


class Open(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        return torch.nn.functional.scaled_dot_product_attention(x, x, x)


def test_causal_attention_takes_any_length_and_open_attention_is_refused(
    linking_toy: Plugins, tmp_path: Path
) -> None:
    def lengths(net: Any) -> Lengths:
        example = torch.randn(1, 3, 4)
        program = export(net, (example,), dynamic_shapes={"x": {1: Dim("seq")}})

        def at(length: int) -> Graph:
            graph = exported(program, [("x", "f32", (1, length, 4))]).graph
            assert graph is not None
            return graph

        return Lengths("seq", (2, 4), {"x": (1,)}, at)

    toy, quick = linking_toy.target("toy"), Settings(threads=1, search="naive", repeats=3, budget_s=0.05)
    with pytest.raises(ModelError, match="PD-O053.* at seq = 1, padded to the bucket 2"):
        optimise_buckets(linking_toy, toy, lengths(Open()), tmp_path, quick)
    optimise_buckets(linking_toy, toy, lengths(Causal()), tmp_path, quick)
    model = load_model(tmp_path)
    for length in range(1, 5):
        x = np.random.default_rng(length).standard_normal((1, length, 4)).astype(np.float32)
        expected = Causal()(torch.tensor(x)).numpy()
        found = model(x)
        assert found.shape == expected.shape and np.allclose(found, expected, rtol=1e-4, atol=1e-5)

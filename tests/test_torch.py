"""The PyTorch front end: rows beside PyTorch, groups and fallbacks, the backend."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch_cases import FAMILIES  # noqa: E402

from perfdojo_sdk.cli.models import read  # noqa: E402
from perfdojo_sdk.core.errors import DojoError  # noqa: E402
from perfdojo_sdk.frontends.torch.call import promoted  # noqa: E402
from perfdojo_sdk.frontends.torch.compiling import Choices, compile_graph  # noqa: E402
from perfdojo_sdk.frontends.torch.lowering import DTYPES, TORCH_DTYPES  # noqa: E402
from perfdojo_sdk.frontends.torch.rows import ROWS  # noqa: E402
from perfdojo_sdk.graph.builder import Builder  # noqa: E402
from perfdojo_sdk.graph.graph import Value  # noqa: E402
from perfdojo_sdk.graph.running import run_graph  # noqa: E402
from perfdojo_sdk.torch import perfdojo, report  # noqa: E402

INTERPRETED = Choices(interpret=True)


def flat(found: Any) -> list[Any]:
    return [each for part in found for each in flat(part)] if isinstance(found, list | tuple) else [found]


def close(one: Any, other: Any) -> bool:
    """Equal integers; floats within 2e-5 of the largest one."""
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    if not one.is_floating_point():
        return bool(torch.equal(one, other))
    finite = other[other.isfinite()].abs()
    scale = float(finite.max()) if finite.numel() else 1.0
    return bool(torch.allclose(one, other, rtol=0, atol=2e-5 * max(scale, 1e-30), equal_nan=True))


FREE = """
import torch
from torch import nn


class Steps(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.layer = nn.Embedding(9, 4), nn.LSTM(4, 4, batch_first=True)
        self.heads = nn.MultiheadAttention(4, 2, batch_first=True)

    def forward(self, ids):
        y, _ = self.layer(self.table(ids))
        return (y + self.heads(y, y, y, need_weights=False)[0]).mean(1)


class Products(nn.Module):
    def forward(self, ids):
        return ids @ ids.T


class Few(nn.Module):
    def forward(self, ids):
        return ids * 2 if ids.shape[0] < 50_000 else ids
"""


def test_an_open_size_of_a_module_leaves_rows_free(tmp_path: Path) -> None:
    """Layers that PyTorch computes step by step have their rows inside; what mixes them is named."""
    file = tmp_path / "free.py"
    file.write_text(FREE)
    found = read(f"{file}:Steps", {"ids": ("i64", ("batch", 3))})
    assert found.free is not None and not found.refused
    ids = torch.randint(0, 9, (4, 3))
    for rows in (1, 4):
        whole = run_graph(found.free.at(4), {"ids": ids.numpy()})[0]
        [part] = run_graph(found.free.at(rows), {"ids": ids[:rows].numpy()})
        assert part.shape == (rows, 4) and np.allclose(part, whole[:rows], rtol=0, atol=1e-6)
    for name, node in (("Products", "matmul"), ("Few", "mul")):
        refused = read(f"{file}:{name}", {"ids": ("f32", ("batch", 3))})
        assert refused.free is None and refused.refused[0][0] == node


def test_rules_agree_with_pytorch_and_take_every_call_and_every_row_is_tried() -> None:
    seen = set()
    for cases in FAMILIES.values():
        seen |= tried(cases)
    names = seen | {name.partition(".")[0] for name in seen}
    assert set(ROWS) - names == set()


def tried(cases: dict[str, Any]) -> set[str]:
    """The operators of some functions, whose results in the interpreter are those of PyTorch."""
    inputs = [value for _, given in cases.values() for value in given]

    def everything(*values: Any) -> list[Any]:
        at, found = 0, []
        for function, given in cases.values():
            found += flat(function(*values[at : at + len(given)]))
            at += len(given)
        return found

    call, report = compile_graph(everything, inputs, INTERPRETED, None)
    assert [e.text for e in report.elsewhere] == [] and not report.whole
    found, names = call(*inputs), []
    for name, (function, given) in cases.items():
        for k, expected in enumerate(flat(function(*given))):
            one = found[len(names)]
            names.append(name)
            assert close(one, expected), f"{name}, result {k}: {one} instead of {expected}"
    return set(report.operators)


@torch.no_grad()
def test_wrong_decompositions_are_not_taken() -> None:
    """PyTorch's own of this loss takes the places behind the last target for targets."""
    x, target = torch.randn(3, 4), torch.tensor([[0, 2, -1, 1]] * 3)
    loss = torch.nn.functional.multilabel_margin_loss
    assert close(compiled(loss)(x, target), loss(x, target))


@torch.no_grad()
@pytest.mark.parametrize(
    ("function", "inputs", "error"),
    [
        (torch.masked_scatter, (torch.zeros(4), torch.ones(4) > 0, torch.ones(3)), "chooses more than the 3"),
        (
            lambda n, w, o: torch.nn.functional.embedding_bag(n, w, o, mode="sum"),
            (torch.tensor([0, 1, 1]), torch.ones(2, 2), torch.tensor([0, 2, 1])),
            "an offset is below the one before",
        ),
        (
            lambda n, w, o: torch.nn.functional.embedding_bag(n, w, o, mode="sum"),
            (torch.tensor([0, 1, 1]), torch.ones(2, 2), torch.tensor([1, 2])),
            "the first offset is not 0",
        ),
        (
            lambda n, w, o: torch.nn.functional.embedding_bag(n, w, o, mode="sum"),
            (torch.tensor([0, 2, 1]), torch.ones(2, 2), torch.tensor([0, 2])),
            "an index is beyond 2",
        ),
    ],
)
def test_what_pytorch_forbids_is_an_error(function: Any, inputs: tuple[Any, ...], error: str) -> None:
    with pytest.raises((IndexError, RuntimeError), match=error):
        compiled(function)(*inputs)


def test_fused_operators_of_transformer_layers_are_taken_apart() -> None:
    torch.manual_seed(0)
    hidden = torch.zeros(1, 3, dtype=torch.bool)
    hidden[0, 2] = True
    causal = torch.triu(torch.ones(3, 3, dtype=torch.bool), 1)
    options = {"batch_first": True, "dropout": 0.0}
    one = torch.nn.TransformerEncoderLayer(4, 2, 4, activation="gelu", norm_first=True, **options).eval()
    two = torch.nn.TransformerEncoderLayer(4, 2, 4, **options).eval()
    heads = torch.nn.MultiheadAttention(4, 2, **options).eval()

    def layers(x: Any) -> Any:
        y = two(one(x, src_mask=causal), src_key_padding_mask=hidden)
        weights = (heads.in_proj_weight, heads.in_proj_bias, heads.out_proj.weight, heads.out_proj.bias)
        return torch._native_multi_head_attention(y, y, y, 4, 2, *weights, causal, True, True, 0)

    x = torch.randn(1, 3, 4)
    with torch.no_grad():
        ours = compiled(layers)
        assert all(close(one, other) for one, other in zip(ours(x), layers(x), strict=True))
    [graph] = report(ours).graphs
    assert not graph.elsewhere and not graph.whole
    assert {"_transformer_encoder_layer_fwd", "_native_multi_head_attention"} <= set(graph.operators)


def test_operands_meet_in_the_dtype_that_pytorch_says() -> None:
    b = Builder()
    dtypes = ("f32", "f64", "f16", "bf16", "i64", "i32", "i8", "u8", "bool")
    tensors = [torch.zeros(s, dtype=TORCH_DTYPES[d]) for d in dtypes for s in ((), (2,))]
    pairs = [(t, b.input("x", tuple(t.shape), DTYPES[t.dtype])) for t in tensors]
    pairs += [(n, n) for n in (True, 3, 2.5)]
    for one, ours in pairs:
        for other, theirs in pairs:
            if isinstance(ours, Value) or isinstance(theirs, Value):
                expected = torch.result_type(one, other)
                assert promoted(ours, theirs) == DTYPES[expected], (one, other)


# -- groups, fallbacks, the backend ------------------------------------------------------------------


def compiled(function: Any, **options: Any) -> Any:
    return torch.compile(function, backend="perfdojo", options={"interpret": True, **options})


class Net(torch.nn.Module):
    """A linear layer, and a part that has no kernel."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(3, 3)

    def forward(self, x: Any) -> Any:
        y = torch.relu(self.linear(x))
        return torch.fft.fft(y).real.exp() + y


@torch.no_grad()
def test_what_has_no_kernel_runs_in_pytorch_and_is_reported() -> None:
    net, x = Net().eval(), torch.randn(2, 3)
    ours = compiled(net)
    assert close(ours(x), net(x))
    [graph] = report(ours).graphs
    assert [e.operator for e in graph.elsewhere] == ["fft_fft", "real"]
    assert "complex64" in graph.elsewhere[0].reason and "elsewhere: fft_fft" in report(ours).text
    assert {k.name for k in graph.kernels} == {"gemm", "relu", "exp", "add"}
    assert not report(ours).complete
    net.linear.weight.mul_(2)  # weights are read at each call
    net.linear.bias.data = torch.ones(3)
    assert close(ours(x), net(x))
    with pytest.raises(Exception, match=r"2 parts of the model have no kernel.*\n.*fft_fft"):
        compiled(net, fallback=None)(x)


def test_gradients_are_left_to_pytorch() -> None:
    net, x = Net(), torch.randn(2, 3)
    ours = compiled(net)
    with pytest.warns(UserWarning, match="gradients are recorded"):
        ours(x).sum().backward()
    assert net.linear.weight.grad is not None
    assert any("gradients" in graph.whole for graph in report(ours).graphs)
    with pytest.raises(Exception, match="gradients are recorded"):
        compiled(net, fallback=None)(x)
    with torch.no_grad():
        assert close(ours(x), net(x)) and any(graph.kernels for graph in report(ours).graphs)


@torch.no_grad()
def test_results_share_memory_as_in_pytorch_and_no_other() -> None:
    def function(x: Any) -> Any:
        y = x + 1
        return x[1:].t(), y, y.view(-1), y.clone(), x.contiguous(), torch.zeros(2)

    x = torch.randn(3, 4)
    ours = compiled(function)
    part, y, flat_y, copy, same, zeros = ours(x)
    assert all(close(a, b) for a, b in zip((part, y, flat_y, copy, same, zeros), function(x)))
    assert part.stride() == (1, 4) and part.data_ptr() == x[1:].data_ptr() and same.data_ptr() == x.data_ptr()
    assert flat_y.data_ptr() == y.data_ptr() != copy.data_ptr()
    y.zero_(), zeros.fill_(7)
    assert close(copy, x + 1) and close(ours(x)[5], torch.zeros(2)) and ours(x)[1].data_ptr() != y.data_ptr()


@torch.no_grad()
def test_returned_views_share_memory_even_if_they_are_parts_or_read_elsewhere() -> None:
    def function(x: Any) -> Any:
        y = x + 1
        one, other = y.chunk(2, 1)
        return y, one, other * 2, x.unbind(0)[1], x.broadcast_to(2, 3, 4), y.t(), y.t() * 2, x.unfold(1, 2, 2)

    x = torch.randn(3, 4)
    ours, theirs = compiled(function)(x), function(x)
    assert all(close(a, b) for a, b in zip(ours, theirs, strict=True))
    for k, base in ((1, ours[0]), (3, x), (4, x), (5, ours[0]), (7, x)):
        assert ours[k].stride() == theirs[k].stride()
        assert ours[k].untyped_storage().data_ptr() == base.untyped_storage().data_ptr()


@torch.no_grad()
def test_results_lie_in_memory_as_in_pytorch() -> None:
    """A view of a result is one of the layout that PyTorch gives it, in the graph and behind a break."""

    def function(x: Any) -> Any:
        y = x.t() + 1
        first = y.t().view(-1)
        torch._dynamo.graph_break()
        return y, first, y.t().view(-1) * 2

    x = torch.randn(3, 4)
    ours, theirs = compiled(function)(x), function(x)
    assert all(close(a, b) for a, b in zip(ours, theirs, strict=True)) and ours[0].stride() == (1, 4)
    assert ours[1].data_ptr() == ours[0].data_ptr()


@torch.no_grad()
def test_parts_of_tensors_without_inputs_are_changed_in_place() -> None:
    """A table that a graph makes is filled part by part, as positional encodings are."""

    def function(x: Any) -> Any:
        table, row, ones = torch.zeros(4, 6), torch.empty(4), torch.full((3,), 2.0)
        table[:, ::2], table[:, 1::2] = x[:4, :3].sin(), x[:4, 3:].cos()
        row.zero_()
        row[2] = x.sum()
        ones[1:].mul_(x[0, 0])
        return table, row, ones, x + torch.arange(6).view(1, 6).add_(1)

    x = torch.randn(5, 6)
    ours = compiled(function)
    assert all(close(a, b) for a, b in zip(ours(x), function(x), strict=True))
    assert not report(ours).graphs[0].whole


@torch.no_grad()
def test_a_shape_that_is_changed_in_place_is_left_to_pytorch() -> None:
    ours, x = compiled(lambda x: (x + 1).set_(x)), torch.randn(2, 3)
    assert close(ours(x), x)
    assert report(ours).graphs[0].whole == "aten.set_.source_Tensor changes a shape in place"
    turned, y = compiled(lambda x: x.t_() * 2), x.clone()
    assert close(turned(y), 2 * x.t()) and y.shape == (3, 2)


def _through(change: Any) -> Any:
    """A function that changes a part of a tensor that it makes, and reads a view from before."""

    def function(x: Any) -> Any:
        y = x + 1
        row = y[0]
        change(y, x)
        return y, y.sum(), row * 2

    return function


def _row_by_row(y: Any, x: Any) -> None:
    one, two, three = y.unbind(0)
    two.add_(one)
    for row in y.unbind(-1):
        row.mul_(row.sum())


def _turned(y: Any, x: Any) -> None:
    y.t_()
    y.add_(1)
    y[0].mul_(3)
    y.unsqueeze_(1).transpose_(0, 2)
    y[:, :, 1] -= 4
    y.squeeze_(1).swapaxes_(0, 1)


CHANGES = {
    "one column": lambda y, x: y[:, 0].add_(1),
    "flat": lambda y, x: y.view(-1).mul_(2),
    "into a slice": lambda y, x: y[1:, :2].copy_(x[:2, 2:]),
    "every other column, spread": lambda y, x: y[:, ::2].copy_(torch.arange(2)),
    "turned": _turned,
    "permuted": lambda y, x: y.view(3, 2, 2).permute(-1, 0, 1).add_(torch.arange(2.0)),
    "T and mT": lambda y, x: (y.T.mul_(torch.arange(3.0)), y.mT[1].add_(1)),
    "narrow": lambda y, x: (y.narrow(1, 1, 2).zero_(), y.narrow(1, -1, 1).fill_(5)),
    "rows": _row_by_row,
    "parts of sizes": lambda y, x: [part.mul_(k) for k, part in enumerate(y.tensor_split((1, 3), dim=1))],
    "unflattened": lambda y, x: y.unflatten(1, (2, 2))[:, 0].add_(1),
    "moved": lambda y, x: y.view(3, 2, 2).movedim((0, 1), (2, 0))[0].mul_(2),
    "other names": lambda y, x: (y.view_as(x).mul_(2), y.detach().add_(1), y.expand(3, 4)[2].neg_()),
}


@torch.no_grad()
@pytest.mark.parametrize("name", CHANGES)
def test_a_change_through_a_view_is_a_change_of_the_tensor(name: str) -> None:
    x = torch.randn(3, 4)
    function = _through(CHANGES[name])
    ours = compiled(function)
    for found, right in zip(ours(x), function(x), strict=True):
        assert close(found, right) and found.stride() == right.stride()
    assert not report(ours).graphs[0].whole and not report(ours).graphs[0].elsewhere


@torch.no_grad()
def test_rows_of_attention_that_see_nothing_are_zero() -> None:
    attention, q = torch.nn.functional.scaled_dot_product_attention, torch.randn(1, 2, 3, 4)
    sees = torch.tensor([[True, False, True], [False] * 3, [False, True, False]])
    for mask in (sees, torch.zeros(3, 3).masked_fill(~sees, float("-inf"))):
        found = compiled(lambda q, m: attention(q, q, q, attn_mask=m))(q, mask)
        assert close(found, attention(q, q, q, attn_mask=mask)) and not found[:, :, 1].any()
    lost = q.clone()
    lost[0, 0, 0] = float("nan")  # a NaN is not hidden
    assert compiled(lambda q, m: attention(q, q, q, attn_mask=m))(lost, sees)[0, 0, 0].isnan().all()


@torch.no_grad()
def test_scalars_have_a_dimension_for_pytorch() -> None:
    def function(x: Any) -> Any:
        likeness = torch.nn.functional.cosine_similarity(x, -x, dim=0)
        return *x.max(0), x.sum(0), x.amin(-1), x.argmax(0), x.softmax(0), x.cumsum(0), x.mean(0), likeness

    x = torch.tensor(3.0)
    assert all(close(a, b) for a, b in zip(compiled(function)(x), function(x), strict=True))


@torch.no_grad()
def test_the_interpreter_takes_bf16_and_keeps_nan() -> None:
    x = torch.tensor([1.5, float("nan"), -3.0, 0.25])
    shrunk = torch.nn.functional.softshrink
    assert close(compiled(lambda x: shrunk(x))(x), shrunk(x))
    low = x.bfloat16()
    assert close(compiled(lambda x: x.float() + 1)(low), low.float() + 1)
    assert close(compiled(lambda x: x.bfloat16())(x), low)


@torch.no_grad()
def test_inputs_with_gaps_open_sizes_and_no_elements() -> None:
    ours = compiled(lambda x: x * 2 + 1)
    for x in (
        torch.randn(4, 3).t(),
        torch.randn(5, 6)[:, ::2],
        torch.randn(0, 3),
        torch.randn(3, 1).expand(3, 7),
    ):
        assert close(ours(x), x * 2 + 1)
    assert report(ours).complete


@torch.no_grad()
def test_a_change_that_has_no_inverse_is_left_to_pytorch() -> None:
    x = torch.ones(2, 2)

    def diagonal(x: Any) -> Any:
        y = x.clone()
        y.diagonal().add_(1)
        return y

    through = compiled(diagonal)
    assert close(through(x), x + torch.eye(2))
    assert report(through).graphs[0].whole == "a change through aten.diagonal.default"


@torch.no_grad()
def test_graph_breaks_and_fake_tensors() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    def function(x: Any) -> Any:
        y = x.exp()
        torch._dynamo.graph_break()
        return y + 1

    ours, x = compiled(function), torch.randn(3)
    assert close(ours(x), x.exp() + 1) and len(report(ours).graphs) == 2
    call = perfdojo(torch.fx.symbolic_trace(lambda x: x + 1), [x], options={"interpret": True})
    with FakeTensorMode() as mode:
        assert type(call(mode.from_tensor(x))).__name__ == "FakeTensor"
    assert close(call(x), x + 1)


@torch.no_grad()
def test_an_index_beyond_its_array_is_an_error() -> None:
    ours = compiled(lambda x, i: x[i])
    x = torch.arange(4.0)
    assert close(ours(x, torch.tensor([3, -1])), torch.tensor([3.0, 3.0]))
    with pytest.raises(IndexError, match="an index is beyond 4 elements"):
        ours(x, torch.tensor([4, 0]))


@torch.no_grad()
def test_constants_that_a_call_makes_are_constants_of_its_graph() -> None:
    """Dynamo detaches each of them in place."""

    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.minimum(x, torch.tensor(0.5)) + torch.tensor([1.0, 2.0, 3.0])

    ours, x = compiled(function), torch.randn(4, 3)
    assert close(ours(x), function(x))
    assert not report(ours).graphs[0].elsewhere and not report(ours).graphs[0].whole


@torch.no_grad()
def test_a_target_that_is_no_class_is_an_error_unless_it_is_ignored() -> None:
    loss = torch.nn.functional.cross_entropy
    ours, x = compiled(lambda x, t: loss(x, t, ignore_index=7)), torch.randn(3, 5)
    for good in ([0, 4, 2], [7, 1, 7]):
        assert close(ours(x, torch.tensor(good)), loss(x, torch.tensor(good), ignore_index=7))
    for bad in ([0, 5, 2], [-1, 1, 1]):
        with pytest.raises(IndexError):
            loss(x, torch.tensor(bad), ignore_index=7)
        with pytest.raises(IndexError, match="an index is beyond 5 elements"):
            ours(x, torch.tensor(bad))


@pytest.mark.parametrize(
    "function",
    [
        lambda x, i: torch.nn.functional.embedding(i, x),
        lambda x, i: x.index_select(0, i),
        lambda x, i: torch.gather(x, 0, i.unsqueeze(1)),
        lambda x, i: torch.scatter(x, 0, i.unsqueeze(1), 1.0),
        lambda x, i: x.index_add(0, i, x[:1]),
    ],
    ids=["embedding", "index_select", "gather", "scatter", "index_add"],
)
@torch.no_grad()
def test_an_index_below_zero_is_refused_where_pytorch_refuses_it(function: Any) -> None:
    ours, x = compiled(function), torch.arange(8.0).reshape(4, 2)
    assert close(ours(x, torch.tensor([3])), function(x, torch.tensor([3])))
    with pytest.raises((IndexError, RuntimeError)):
        function(x, torch.tensor([-1]))
    with pytest.raises(IndexError, match="an index is beyond 4 elements"):
        ours(x, torch.tensor([-1]))


def test_options_are_checked() -> None:
    with pytest.raises(DojoError, match="no option 'speed'"):
        perfdojo(None, [], options={"speed": 1})
    with pytest.raises(DojoError, match="fallback is 'gpu'"):
        perfdojo(None, [], options={"fallback": "gpu"})
    for name, value in (("threads", 0), ("threads", True), ("tune", "a"), ("tune", -1), ("pack", "no"),
                        ("interpret", 1), ("target", 3)):  # fmt: skip
        with pytest.raises(DojoError, match=f"the option {name} is {value!r}, expected"):
            perfdojo(None, [], options={name: value})
    with pytest.raises(DojoError, match="nothing was compiled"):
        report(torch.compile(lambda x: x, backend="eager"))


def test_the_guide_compiles_a_module(capsys: pytest.CaptureFixture[str]) -> None:
    text = (Path(__file__).parent.parent / "docs" / "models.md").read_text(encoding="utf-8")
    blocks = [b.partition("```")[0] for b in text.split("```python\n")[1:]]
    short, script = [b for b in blocks if "torch.compile(" in b]
    torch._dynamo.reset()  # modules of one class share its code, and a report lists what was made of that
    exec(script.replace('"perfdojo")', '"perfdojo", options={"interpret": True})'), {})
    assert "graph 1: 2 kernels" in capsys.readouterr().out
    torch._dynamo.reset()
    names: dict[str, Any] = {}
    exec(short.replace('"perfdojo")', '"perfdojo", options={"interpret": True})'), names)
    assert len(short.split("\n")) <= 5 and names["y"].shape == (8, 32)
    made = report(names["net"])
    assert "graph 1: 1 kernel" in made.text and str(made) == made.text
    assert text.index(short) < text.index("## From ONNX"), "it stands at the top"

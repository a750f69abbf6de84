"""Kernels of a library as operators of PyTorch: schema, fake results, changes in place, compiled graphs."""

from __future__ import annotations

from typing import Any

import pytest
from paper_target import QUICK
from toy_target import perfdojo_toy

torch = pytest.importorskip("torch")

import perfdojo_sdk.torch  # noqa: E402
from perfdojo_sdk.kernels.selection import select  # noqa: E402
from perfdojo_sdk.library import verification  # noqa: E402
from perfdojo_sdk.library.arrays import ArgumentTypeError, ArgumentValueError  # noqa: E402
from perfdojo_sdk.library.build import build_library  # noqa: E402
from perfdojo_sdk.library.loader import Library, load_library  # noqa: E402
from perfdojo_sdk.plugins import load_plugins  # noqa: E402
from perfdojo_sdk.store.records import LegResult, Verification  # noqa: E402

#: A plain kernel of two results, a step that changes an array, and one that does nothing else.
KERNELS = {
    "both": "kernel both(x, w) -> y, z\nx f32 [4,6] heap\nw f32 [6] heap\ny f32 [4] heap\nz f64 [6] heap\n\n"
    "4\n| y[{0}] = 0\n| 6 y[{0}] += x[{0},{1}] * w[{1}]\n6 z[{0}] = f64(w[{0}]) * 2\n",
    "step": "kernel step(x, k) -> y, k\nx f32 [6] heap\nk f32 [8] heap\ny f32 [8] heap\n\n"
    "8 y[{0}] = k[{0}]\n6 k[{0}+1] = k[{0}+1] * 2 + x[{0}]\n",
    "put": "kernel put(k, x, p) -> k\nk f32 [8] heap\nx f32 [1] heap\np i64 [1] heap\n\n"
    "k[clamp(p[0], 0, 7)] = x[0]\n",
    "halves": "kernel halves(in) -> y\nin bf16 [5] heap\ny bf16 [5] heap\n\n5 y[{0}] = in[{0}] * 2\n",
    "codes": "kernel codes(x) -> y\nx f8e4m3fn [5] heap\ny f32 [5] heap\n\n5 y[{0}] = f32(x[{0}])\n",
    "pair": "kernel pair(x) -> y\nx f32 [5] heap\ny f32 [5] heap\n\n5 y[{0}] = x[{0}] * 2\n",
    "other": "kernel pair(a) -> y\na f32 [6] heap\ny f32 [6] heap\n\n6 y[{0}] = a[{0}] * 2\n",
}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    """Compiled kernels; their verification is the other tests' matter."""
    leg, patch = LegResult(passed=True, detail="not here"), pytest.MonkeyPatch()
    patch.setattr(verification, "verify", lambda *_: Verification(exact=leg, numeric=leg, dependence=leg))
    programs, where = tmp_path_factory.mktemp("programs"), tmp_path_factory.mktemp("library")
    for name, text in KERNELS.items():
        (programs / f"{name}.dojo").write_text(text)
    plugins = load_plugins(extra=[perfdojo_toy])
    kernels = select(" ".join(str(programs / f"{name}.dojo") for name in KERNELS), plugins.operators)
    result = build_library(plugins, plugins.target("toy"), kernels, where, QUICK)
    patch.undo()
    assert result.manifest and not result.failed, result.failed
    return load_library(where)


def schema(op: Any) -> str:
    return str(op.default._schema)


def test_operators_of_pytorch_are_right_by_pytorchs_own_checks(library: Library) -> None:
    both, step = (perfdojo_sdk.torch.operator(library[name]) for name in ("both", "step"))
    put, halves = (perfdojo_sdk.torch.operator(library[name]) for name in ("put", "halves"))
    assert both is torch.ops.perfdojo.both
    assert schema(both) == "perfdojo::both(Tensor x, Tensor w) -> (Tensor, Tensor)"
    assert schema(step) == "perfdojo::step(Tensor x, Tensor(a0!) k) -> Tensor"
    assert schema(halves) == "perfdojo::halves(Tensor in_) -> Tensor"
    assert schema(put) == "perfdojo::put(Tensor(a0!) k, Tensor x, Tensor p) -> ()"

    x, w, k = torch.randn(4, 6), torch.randn(6), torch.arange(8.0)
    y, z = both(x, w)
    torch.testing.assert_close(y, x @ w)
    assert z.dtype == torch.float64 and (z == w.double() * 2).all()
    assert (step(torch.ones(6), k) == torch.arange(8.0)).all()
    new = torch.tensor([0.0, 3, 5, 7, 9, 11, 13, 7])
    assert (k == new).all()
    assert put(k, torch.full((1,), 9.0), torch.tensor([2])) is None and k[2] == 9
    assert (halves(torch.ones(5, dtype=torch.bfloat16)) == 2).all()

    for op, given in [
        (both, (x, w)),
        (step, (torch.ones(6), torch.arange(8.0))),
        (put, (torch.ones(8), torch.ones(1), torch.tensor([3]))),
        (halves, (torch.ones(5, dtype=torch.bfloat16),)),
    ]:
        torch.library.opcheck(op.default, given)


def test_a_compiled_graph_knows_what_changes(library: Library) -> None:
    step = perfdojo_sdk.torch.operator(library.step, "renamed")
    assert step is torch.ops.perfdojo.renamed

    def twice(x: Any, k: Any) -> Any:
        first = step(x, k)
        return first + step(x * 2, k) + k.sum()

    x, k, same = torch.rand(6), torch.rand(8), torch.empty(8)
    same.copy_(k)
    compiled = torch.compile(twice, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(x, k), twice(x, same))
    torch.testing.assert_close(k, same)


def test_arguments_are_checked_as_the_library_does(library: Library) -> None:
    step = perfdojo_sdk.torch.operator(library.step)
    x, k = torch.ones(6), torch.ones(8)
    with pytest.raises(ArgumentValueError, match=r"no kernel for f32 \[5\], f32 \[8\]"):
        step(x[:5], k)
    with pytest.raises(ArgumentTypeError, match="f64"):
        step(x.double(), k)
    with pytest.raises(ArgumentValueError, match="strides"):
        step(x, torch.ones(16)[::2])
    with pytest.raises(ArgumentValueError, match="overlap"):
        step(k[:6], k)
    assert (k == 1).all()


def test_a_change_in_place_refuses_tensors_that_want_gradients(library: Library) -> None:
    """PyTorch would go on with the gradients of what was there before."""
    step = perfdojo_sdk.torch.operator(library["step"])
    x, k, wanting = torch.ones(6), torch.arange(8.0), {"requires_grad": True}
    for given in (
        (x, torch.arange(8.0, **wanting)),
        (torch.ones(6, **wanting), k),
        (x, k.clone().requires_grad_() * 3),
    ):
        with pytest.raises(
            RuntimeError, match=r"step changes k and has no gradients: call it under torch.no_grad"
        ):
            step(*given)
    with torch.no_grad():
        step(torch.ones(6, **wanting), k)
    assert k[1] == 3


def test_results_for_tensors_without_elements_are_such_tensors(library: Library) -> None:
    both, step = (perfdojo_sdk.torch.operator(library[name]) for name in ("both", "step"))
    x, w = torch.ones(4, 6, device="meta"), torch.ones(6, device="meta")
    assert [y.device.type for y in both(x, w)] == ["meta", "meta"]
    assert step(w, torch.ones(8, device="meta")).device.type == "meta"


def test_gradients_are_refused_where_they_are_asked_for(library: Library) -> None:
    both = perfdojo_sdk.torch.operator(library.both)
    y, _ = both(torch.ones(4, 6, requires_grad=True), torch.ones(6))
    assert (y == 6).all()
    with pytest.raises(RuntimeError, match="backward through perfdojo.both"):
        y.sum().backward()


@pytest.mark.parametrize(
    ("name", "says"), [("codes", "x of codes is f8e4m3fn"), ("pair", "differ in the names")]
)
def test_what_cannot_be_registered_says_why(name: str, says: str, library: Library) -> None:
    with pytest.raises(ArgumentTypeError, match=says) as refused:
        perfdojo_sdk.torch.operator(library[name])
    assert refused.value.code == "PD-L011" and refused.value.hint


@pytest.mark.parametrize("name", ["a-b", "a.b", "x::y", "a b", "1a", "__init__", "\x1b", 7, None, "n" * 400])
def test_names_that_no_operator_can_have_are_refused(name: Any, library: Library) -> None:
    with pytest.raises(ArgumentTypeError, match="cannot be the name of an operator") as refused:
        perfdojo_sdk.torch.operator(library.both, name)
    assert (
        refused.value.code == "PD-L011" and "name=" in refused.value.hint and "\x1b" not in str(refused.value)
    )
    with pytest.raises(ArgumentTypeError, match="no operator of a library"):
        perfdojo_sdk.torch.operator(library)

"""The KernelBench runner counts what Dynamo leaves between its graphs, and less is left there."""

from __future__ import annotations

import json
from inspect import getsourcelines
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from perfdojo_sdk.core.errors import DojoError  # noqa: E402
from perfdojo_sdk.frontends.torch.kernelbench import main  # noqa: E402
from perfdojo_sdk.torch import Unsupported, report  # noqa: E402

BETWEEN = """
import torch

@torch._dynamo.disable
def odd(x):
    return x.sin()

class Model(torch.nn.Module):
    def forward(self, x):
        return odd(x * 2) + 1

def get_inputs():
    return [torch.randn(4, 5)]

def get_init_inputs():
    return []
"""


def test_what_pytorch_computes_between_two_graphs_is_no_kernel_of_ours(tmp_path: Path) -> None:
    """No graph holds it, so no backend hears of it; a profile of a call does."""
    for name, text in (("between", BETWEEN), ("whole", BETWEEN.replace("@torch._dynamo.disable", ""))):
        (tmp_path / f"{name}.py").write_text(text)
        main([str(tmp_path / f"{name}.py"), str(tmp_path / f"{name}.json"), '{"interpret": true}'])
    between, whole = (json.loads((tmp_path / f"{name}.json").read_text()) for name in ("between", "whole"))
    assert (whole["status"], whole["elsewhere"]) == ("right", []), whole
    assert between["status"] == "elsewhere" and between["elsewhere"][0].startswith("sin: outside"), between


def test_a_layer_that_warns_does_not_end_a_graph() -> None:
    """PyTorch's layer warns about a number of features that it does not use."""
    norm = torch.nn.InstanceNorm2d(8).eval()
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: norm(x * 2) + 1, backend="perfdojo", options={"interpret": True})
    x = torch.randn(3, 1, 2, 5)
    with torch.no_grad(), pytest.warns(UserWarning, match="num_features"):
        torch.testing.assert_close(compiled(x), norm(x * 2) + 1)
    made = report(compiled)
    assert len(made.graphs) == 1 and not made.graphs[0].elsewhere and not made.graphs[0].whole


class Inner(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        return x * 2 + 1


class Within(torch.nn.Module):
    """A break in a function that is called, with kernels around it."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Inner()

    def many(self, x: Any) -> Any:
        return x * int(x.sum().item())  # breaks

    def forward(self, x: Any) -> Any:
        return self.inner(self.many(x * 2))


class First(Within):
    """A break before any graph."""

    def forward(self, x: Any) -> Any:
        print("first")  # breaks
        return self.inner(x)


class Branch(Within):
    def forward(self, x: Any) -> Any:
        if x.sum() > 0:  # breaks
            x = self.inner(x)
        return x


class Loop(Within):
    """The whole function is Python's; what it calls has graphs."""

    def forward(self, x: Any) -> Any:
        for k in range(2):
            x = self.inner(x)
            print(k)  # breaks
        return x


class Nothing(Within):
    """Nothing at all has a graph."""

    def forward(self, x: Any) -> Any:
        for k in range(2):
            x = x + k
            print(k)  # breaks
        return x


def place_of_break(kind: type) -> str:
    method = kind.many if kind is Within else kind.forward  # type: ignore[attr-defined]
    lines, first = getsourcelines(method)
    return f"{__file__}:{first + next(k for k, line in enumerate(lines) if '# breaks' in line)}"


@pytest.mark.parametrize(
    ("kind", "graphs", "reason"),
    [
        (Within, 4, "Tensor.item"),
        (First, 1, "`print`"),
        (Branch, 2, "branch"),
        (Loop, 1, "Python runs all of forward"),
        (Nothing, 0, "Python runs all of forward"),
    ],
)
def test_breaks_are_in_the_report_and_refused_without_a_fallback(
    kind: type, graphs: int, reason: str
) -> None:
    torch._dynamo.reset()
    net, x, place = kind().eval(), torch.ones(3), place_of_break(kind)
    with torch.no_grad():
        compiled = torch.compile(net, backend="perfdojo", options={"interpret": True})
        torch.testing.assert_close(compiled(x), net(x))
        made = report(compiled)
        assert len(made.graphs) == graphs and not made.complete, made.text
        [line] = [line for line in made.text.splitlines() if line.startswith("ran elsewhere")]
        assert line.startswith(f"ran elsewhere: graph break at {place}: ") and reason in line
        torch._dynamo.reset()  # it does not look at a whole function again that it gave to Python
        with pytest.raises(Unsupported, match="graph break at ") as refused:
            torch.compile(net, backend="perfdojo", options={"interpret": True, "fallback": None})(x)
        assert (
            refused.value.code == "PD-O004" and place in refused.value.why and "Python" in refused.value.hint
        )


def test_a_reset_forgets_breaks_and_other_backends_are_left_alone() -> None:
    net, x = Branch().eval(), torch.ones(3)
    with torch.no_grad():
        torch._dynamo.reset()
        compiled = torch.compile(net, backend="perfdojo", options={"interpret": True})
        compiled(x)
        torch._dynamo.reset()
        with pytest.raises(DojoError, match="nothing was compiled"):
            report(compiled)
        compiled(x)
        assert len(report(compiled).breaks) == 1
        torch._dynamo.reset()
        other = torch.compile(net, backend="eager")
        torch.testing.assert_close(other(x), net(x))
        whole = torch.compile(Inner(), backend="perfdojo", options={"interpret": True, "fallback": None})
        whole(x)
        assert report(whole).complete


def test_more_versions_than_dynamo_makes_are_refused_or_reported() -> None:
    net = Inner()
    for fallback in ("eager", None):
        torch._dynamo.reset()
        options = {"interpret": True, "fallback": fallback}
        compiled = torch.compile(net, backend="perfdojo", dynamic=False, options=options)
        with torch.no_grad(), torch._dynamo.config.patch(recompile_limit=1):
            compiled(torch.ones(3))
            if fallback:
                compiled(torch.ones(4))
                [left] = report(compiled).breaks
                assert "too many times" in left.text and __file__ in left.text
            else:
                with pytest.raises(Unsupported, match="too many times"):
                    compiled(torch.ones(4))


def test_sets_of_sizes_beyond_the_most_are_refused_without_a_fallback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("perfdojo_sdk.frontends.torch.backend.MOST_SIZES", 2)
    for fallback in ("eager", None):
        torch._dynamo.reset()
        options = {"interpret": True, "fallback": fallback}
        compiled = torch.compile(Inner(), backend="perfdojo", dynamic=True, options=options)
        with torch.no_grad():
            compiled(torch.ones(3)), compiled(torch.ones(4))
            if fallback:
                with pytest.warns(UserWarning, match="2 sets of sizes"):
                    compiled(torch.ones(5))
                compiled(torch.ones(6))
                assert not report(compiled).complete
            else:
                with pytest.raises(Exception, match="2 sets of sizes"):
                    compiled(torch.ones(5))

"""The KernelBench runner counts what Dynamo leaves between its graphs, and less is left there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from perfdojo_sdk.frontends.torch.kernelbench import main  # noqa: E402
from perfdojo_sdk.torch import report  # noqa: E402

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

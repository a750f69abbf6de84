"""Checks of packages as a whole: models too large for the interpreter, beside plain code of each node."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from toy_models import built_for_toy, network

import perfdojo_sdk
from perfdojo_sdk.core.errors import DojoError
from perfdojo_sdk.frontends.onnx.lowering import lower
from perfdojo_sdk.graph.refusals import Reason, Refused
from perfdojo_sdk.graph.running import interpreted
from perfdojo_sdk.models import whole_checks


class Plain:
    """An executor as those of compiled kernels; ``wrong`` adds to each result, ``slow`` has no time."""

    def __init__(self, wrong: float = 0, slow: bool = False) -> None:
        self.wrong, self.slow = wrong, slow

    def prepare(self, programs: Any) -> None:
        if self.slow:
            raise Refused(Reason.TARGET, "it ran longer than 60 s")

    def __call__(self, program: Any, inputs: Any) -> Any:
        return [array + np.float32(self.wrong) for array in interpreted(program, inputs)]


def test_a_large_model_is_compared_with_plain_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built_for_toy(tmp_path, network())
    model = perfdojo_sdk.load_model(tmp_path)
    monkeypatch.setattr(whole_checks, "MOST_INTERPRETED", 0)
    graph = lower(network()).graph
    assert graph is not None

    def checked(plain: Plain) -> str:
        return whole_checks.checked(graph, graph, model, lambda: plain)[-1]  # type: ignore[arg-type,return-value]

    assert checked(Plain()) == "agrees with the model as it was given, node by node in plain code"
    assert "ran longer" in checked(Plain(slow=True))
    with pytest.raises(DojoError, match="plain code"):
        checked(Plain(wrong=1))


def steep() -> Any:
    """Integers that floats are rounded to, and floats that show one step of them as a thousand."""
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "fine"], ["q"], name="rounding"),
        helper.make_node("DequantizeLinear", ["q", "coarse"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "steep",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (3, 6))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (3, 6))],
        initializer=[
            numpy_helper.from_array(np.float32(data), name) for name, data in (("fine", 0.1), ("coarse", 1e3))
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])


class Stepped(Plain):
    """Rounds the first integers to others, so many ``steps`` away."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.steps = steps

    def __call__(self, program: Any, inputs: Any) -> Any:
        (found,) = interpreted(program, inputs)
        if found.dtype == np.uint8:
            found.flat[0] += self.steps if found.flat[0] < 100 else -self.steps
        return [found]


def test_integers_that_floats_are_rounded_to_may_be_a_step_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built_for_toy(tmp_path, steep())
    monkeypatch.setattr(whole_checks, "MOST_INTERPRETED", 0)
    graph, model = lower(steep()).graph, perfdojo_sdk.load_model(tmp_path)

    def checked(steps: int) -> str:
        return whole_checks.checked(graph, graph, model, lambda: Stepped(steps))[-1]  # type: ignore[arg-type,return-value]

    words = "of 18 integers that floats are rounded to, 1 are one step apart"
    assert words in checked(1) and "step" not in checked(0)
    with pytest.raises(DojoError, match="PD-O014.*output 0 of the model differs"):
        checked(2)

"""The networks of the benchmark: those of their papers, and small versions that compute what PyTorch does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from perfdojo_sdk.frontends.onnx.lowering import lower
from perfdojo_sdk.graph.running import interpreted, run_graph

torch = pytest.importorskip("torch")
onnx = pytest.importorskip("onnx")

from benchmarks.networks import NETWORKS, SMALL, GPT2Step, exported  # noqa: E402

#: Parameters, as the papers' authors count them.
PARAMETERS = {
    "resnet50": 25_557_032,
    "mobilenet_v3_large": 5_483_032,
    "vit_b16": 86_567_656,
    "gpt2_small": 124_439_808,
}


def outputs_of(made: Any) -> list[np.ndarray[Any, Any]]:
    return [np.asarray(each) for each in (made if isinstance(made, list | tuple) else (made,))]


@pytest.mark.parametrize("name", PARAMETERS)
def test_a_network_has_the_parameters_of_its_paper(name: str) -> None:
    with torch.device("meta"):
        network = NETWORKS[name].make()
    assert sum(p.numel() for p in network.parameters()) == PARAMETERS[name]


@pytest.mark.parametrize("name", SMALL)
def test_a_small_network_is_as_near_to_float64_as_pytorch(name: str) -> None:
    """All operators have a rule, and errors are at most four times PyTorch's."""
    assert SMALL.keys() == NETWORKS.keys()
    module, given = SMALL[name].build()
    lowered = lower(exported(module, given))
    assert lowered.graph is not None, [refusal.text for refusal in lowered.refusals]
    with torch.no_grad():
        ours = run_graph(lowered.graph, {f"x{k}": each.numpy() for k, each in enumerate(given)}, interpreted)
        eager = outputs_of(module(*given))
        wide = outputs_of(module.double()(*[x.double() if x.is_floating_point() else x for x in given]))
    assert [each.shape for each in ours] == [each.shape for each in wide]
    assert (ours[0].argmax(-1) == wide[0].argmax(-1)).all()
    errors = [
        np.concatenate([np.abs(one - other).ravel() for one, other in zip(found, wide, strict=True)])
        for found in (ours, eager)
    ]
    assert errors[0].max() <= 4 * errors[1].max() and errors[0].mean() <= 4 * errors[1].mean()


def test_words_one_by_one_with_a_cache_give_what_all_at_once_give() -> None:
    module, (_, _, keys, values) = SMALL["gpt2_small_token"].build()
    assert isinstance(module, GPT2Step)
    words = torch.randint(50, (1, 6))
    with torch.no_grad():
        for place in range(6):
            scores, key, value = module(words[:, place : place + 1], torch.tensor([place]), keys, values)
            keys[:, :, :, place], values[:, :, :, place] = key[:, :, :, 0], value[:, :, :, 0]
            whole = super(GPT2Step, module).forward(words[:, : place + 1])
            assert torch.allclose(scores, whole, rtol=1e-4, atol=1e-5)


def test_a_network_of_whole_numbers_has_weights_of_eight_bits() -> None:
    model = onnx.load_from_string(exported(*SMALL["resnet50_int8"].build()))
    types = {array.name: array.data_type for array in model.graph.initializer}
    sums = [node for node in model.graph.node if node.op_type in ("Conv", "Gemm")]
    made = {name: node for node in model.graph.node for name in node.output}
    assert {made[node.input[1]].op_type for node in sums} == {"DequantizeLinear"}
    assert {made[node.input[0]].op_type for node in sums} == {"DequantizeLinear", "MaxPool"}
    assert {types[made[node.input[1]].input[0]] for node in sums} == {onnx.TensorProto.INT8}
    quantised = [node.input[0] for node in model.graph.node if node.op_type == "QuantizeLinear"]
    assert quantised and not types.keys() & set(quantised)

"""Models for targets that this machine emulates or simulates, from the command line to their results."""

from __future__ import annotations

import platform
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from command_line import Outcome, clear
from onnx import TensorProto, helper, numpy_helper
from onnx_models import model

import perfdojo_sdk
from perfdojo_sdk.core.errors import UnavailableError, VerificationError
from perfdojo_sdk.hookspecs.types import Failure, Measurement
from perfdojo_sdk.library import by_runner
from perfdojo_sdk.library.manifest import LibraryError
from perfdojo_sdk.library.running import run
from perfdojo_sdk.models.accuracy import saved_graph
from perfdojo_sdk.models.anywhere import open_anywhere
from perfdojo_sdk.models.whole_checks import checked
from perfdojo_sdk.plugins import load_plugins

Array = np.ndarray[Any, Any]
SIZE = 4


def weights(*names: str) -> list[Any]:
    draw = np.random.default_rng(0)
    return [
        numpy_helper.from_array(draw.standard_normal((SIZE, SIZE)).astype(np.float32), name) for name in names
    ]


def mlp() -> tuple[Any, Callable[..., Array]]:
    """Two layers of one shape, which are one kernel, called twice."""
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["p"]),
        helper.make_node("Relu", ["p"], ["h"]),
        helper.make_node("MatMul", ["h", "b"], ["q"]),
        helper.make_node("Relu", ["q"], ["y"]),
    ]

    def meant(x: Array, a: Array, b: Array) -> Array:
        return np.maximum(np.maximum(x @ a, 0) @ b, 0)

    return (nodes, weights("a", "b")), meant


def attention() -> tuple[Any, Callable[..., Array]]:
    """One head, from three projections to the weighted sum."""
    nodes = [
        *(helper.make_node("MatMul", ["x", f"w{n}"], [n]) for n in "qkv"),
        helper.make_node("Transpose", ["k"], ["t"], perm=[1, 0]),
        helper.make_node("MatMul", ["q", "t"], ["s"]),
        helper.make_node("Softmax", ["s"], ["p"]),
        helper.make_node("MatMul", ["p", "v"], ["y"]),
    ]

    def meant(x: Array, wq: Array, wk: Array, wv: Array) -> Array:
        scores = np.exp((x @ wq) @ (x @ wk).T)
        return scores / scores.sum(-1, keepdims=True) @ (x @ wv)

    return (nodes, weights("wq", "wk", "wv")), meant


MODELS = {"mlp": mlp, "attention": attention}
CASES = [
    ("arm_neon", "mlp"),
    ("arm_neon", "attention"),
    ("cuda_gh200", "mlp"),
    ("cuda_gh200", "attention"),
    ("hip_mi300a", "mlp"),
    ("riscv_snitch", "mlp"),
]
Cli = Callable[..., Outcome]


def require(target: str) -> None:
    """Skip where the target's tools are missing, or where its kernels run in this process."""
    plugins = load_plugins(targets=[target])
    if target not in plugins.targets or plugins.unavailable(plugins.target(target)):
        pytest.skip(f"{target} cannot be emulated here")
    if plugins.target(target).capabilities.machine == platform.machine():
        pytest.skip(f"{target} is this machine")


def build(cli: Cli, target: str, name: str, rows: int | str = SIZE, *more: str) -> Outcome:
    """The model of this name, built in the folder ``m``, with a file of inputs beside it."""
    (nodes, constants), _ = MODELS[name]()
    made = model(nodes, {"x": (TensorProto.FLOAT, (rows, SIZE))}, ["y"], initializer=constants)
    onnx.save(made, f"{name}.onnx")
    np.savez("data.npz", x=np.random.default_rng(1).standard_normal((2, SIZE, SIZE)).astype(np.float32))
    words = ("--target", target, "--threads", "1", "-o", "m", "--json", *more)
    return cli("optimize", f"{name}.onnx", *words, plugins=target)


@pytest.mark.parametrize(("target", "name"), CASES)
def test_a_model_is_built_checked_and_verified_on_data(
    cli: Cli, target: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    require(target)
    built = build(cli, target, name)
    assert built.code == 0, built.err
    ran, alone, meant, function = built.data["checks"]
    assert "was run here, one kernel after the other, by the runner of " + target in ran
    assert "one by one" in alone and "the interpreter on the model as it was given" in meant
    linked = target == "arm_neon"
    assert ("linked for arm_neon and not called here" if linked else "has no function in C") in function
    assert built.data["times"].startswith(("estimated (", "simulated ("))
    folder = Path("m")
    assert (folder / "library" / "manifest.json").is_file() and (folder / "weights.safetensors").is_file()

    verified = cli(
        "verify", "m", "--data", "data.npz", "--original", f"{name}.onnx", "--json", plugins=target
    )
    assert verified.code == 0, verified.err
    assert verified.data["passed"] and verified.data["samples"] == 2
    assert verified.data["run_by"].startswith(f"the runner of {target}")

    with pytest.raises(LibraryError) as refused:
        perfdojo_sdk.load_model("m")
    assert refused.value.code == ("PD-L006" if linked else "PD-L017")
    assert "perfdojo-sdk verify m --data" in refused.value.hint and refused.value.why

    loaded = open_anywhere(folder, load_plugins(targets=[target]))
    x = np.load("data.npz")["x"][0]
    (_, constants), compute = MODELS[name]()
    arrays = [numpy_helper.to_array(each) for each in constants]
    assert np.allclose(loaded(x), compute(x, *arrays), rtol=1e-4, atol=1e-5)

    without = cli("verify", "m", "--data", "data.npz", plugins="paper")
    clear(without, 1, refused.value.code)
    assert f"unknown target '{target}'" in without.err and f"doctor --target {target}" in without.err

    def wrong(*asked: Any) -> Measurement | Failure:
        found = run(*asked)
        assert isinstance(found, Measurement) and found.outputs is not None
        return replace(found, outputs={name: array + 1 for name, array in found.outputs.items()})

    graph = saved_graph(loaded)
    monkeypatch.setattr(by_runner, "run", wrong)
    with pytest.raises(VerificationError, match="differs from the interpreter"):
        checked(graph, graph, loaded)
    monkeypatch.setattr(by_runner, "run", lambda *asked: Failure("timeout", "it ran for too long"))
    with pytest.raises(UnavailableError, match="did not run on") as failed:
        loaded(x)
    assert failed.value.code == "PD-C007" and failed.value.why == "timeout: it ran for too long"
    monkeypatch.setattr(by_runner.RunnerLibrary, "too_large", ("matmul",))
    [check] = checked(graph, graph, loaded)
    assert check.startswith("was not run as a whole: matmul, verified by the same moves at a smaller size")


def test_any_number_of_rows_is_run_block_by_block(cli: Cli) -> None:
    require("riscv_snitch")
    assert build(cli, "riscv_snitch", "mlp", "rows", "--blocks", "1").code == 0
    loaded = open_anywhere(Path("m"), load_plugins(targets=["riscv_snitch"]))
    (_, constants), compute = mlp()
    x = np.random.default_rng(2).standard_normal((3, SIZE)).astype(np.float32)
    meant = compute(x, *(numpy_helper.to_array(each) for each in constants))
    assert np.allclose(loaded(x), meant, rtol=1e-4, atol=1e-5)


def test_snitch_says_what_it_lacks(cli: Cli) -> None:
    require("riscv_snitch")
    x = np.zeros((SIZE, SIZE), np.float32)
    nodes = [helper.make_node("Cast", ["x"], ["h"], to=TensorProto.BFLOAT16)]
    nodes += [helper.make_node("Cast", ["h"], ["y"], to=TensorProto.FLOAT)]
    onnx.save(model(nodes, {"x": x}, ["y"]), "short.onnx")
    outcome = cli("optimize", "short.onnx", "--target", "riscv_snitch", plugins="riscv_snitch")
    clear(outcome, 1, "PD-O004")
    assert "bf16" in outcome.err and not Path("build").exists()

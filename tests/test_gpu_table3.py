"""The benchmark of GPUs up to the point where a GPU is needed: a stand-in has the times and the memory."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
from torch_stand_in import BANDWIDTH, GRAPH_S, L2_BYTES, Tensor, Torch

from benchmarks import gpu_table3
from benchmarks.gpu_table3 import (
    COMPILED,
    EAGER,
    LARGE,
    NO_GPU,
    OURS,
    TRITON,
    Contender,
    Games,
    Row,
    TorchGpu,
    goals,
    report,
    row,
)
from perfdojo_sdk.codegen.gpu.bundle import pack
from perfdojo_sdk.hookspecs.types import ArraySpec, Artifact
from perfdojo_sdk.peers.operators import OPERATORS, Operator

ADD = Operator("add", "add", ((5, 7), (5, 7)), (5, 7), 35)


class Bundle(NamedTuple):
    """The product of a compiler."""

    name: str


class FakeGames:
    target = "a target"

    def __init__(self, *made: Any) -> None:
        self.made = made

    def bundles(self, operator: Operator) -> Iterator[Any]:
        yield from self.made


class FakeGpu:
    """A GPU of NumPy arrays and given times; a contender is a function of the inputs."""

    copy_bandwidth, peak = 1e9, 1e9

    def about(self) -> list[str]:
        return ["a stand-in"]

    def __init__(
        self, ours: dict[str, Any], peers: dict[str, Any], seconds: dict[str, Sequence[float]]
    ) -> None:
        self.kernels, self.formulas = ours, peers
        self.seconds = {name: list(values) for name, values in seconds.items()}
        self.names: dict[Callable[[], None], str] = {}

    def put(self, array: Any) -> Any:
        return array.copy()

    def get(self, tensor: Any) -> Any:
        return tensor

    def _contender(self, name: str, formula: Any, inputs: Sequence[Any]) -> Contender:
        result: list[Any] = []

        def call() -> None:
            result[:] = [formula(*inputs)]

        self.names[call] = name
        return Contender(call, lambda: result[0])

    def ours(self, made: Any, inputs: Sequence[Any], shape: Sequence[int]) -> Contender:
        if made.name not in self.kernels:
            raise OSError("the driver failed: CUDA_ERROR_NO_BINARY_FOR_GPU")
        return self._contender(made.name, self.kernels[made.name], inputs)

    def peers(self, operator: Operator, inputs: Sequence[Any]) -> dict[str, Contender]:
        return {name: self._contender(name, f, inputs) for name, f in self.formulas.items()}

    def timer(self, call: Callable[[], None]) -> Callable[[], float]:
        times = iter(self.seconds[self.names[call]])
        return lambda: next(times)


def test_the_fastest_right_game_counts_and_failures_are_told() -> None:
    gpu = FakeGpu(
        {"slow": np.add, "quick": np.add, "wrong": np.subtract},
        {EAGER: np.add, COMPILED: lambda a, b: a + b * np.nan, "triton 8": np.add, "triton 9": np.add},
        {
            "slow": [4e-6, 9e-6, 4e-6], "quick": [2e-6, 2e-6, 7e-6], EAGER: [5e-6, 6e-6, 5e-6],
            "triton 8": [6e-6, 6e-6, 4e-6], "triton 9": [7e-6, 7e-6, 3e-6],
        },
    )  # fmt: skip
    games = FakeGames(*map(Bundle, ("slow", "quick", "wrong", "broken")), "no compiler")
    found = row(ADD, games, gpu, repeats=3)
    peers = {EAGER: 5e-6, "triton 8": 6e-6, "triton 9": 7e-6, TRITON: 6e-6}
    assert found.seconds == {f"{OURS} 0": 4e-6, f"{OURS} 1": 2e-6, OURS: 2e-6, **peers}
    assert found.problems[f"{OURS} 2"].startswith("wrong: relative error")
    assert "NO_BINARY" in found.problems[f"{OURS} 3"] and found.problems[f"{OURS} 4"] == "no compiler"
    assert found.problems[COMPILED] == "wrong: relative error inf"
    assert found.roofline_s == found.copy_s == 3 * 35 * 4 / 1e9 and found.best_peer_s == 5e-6
    table = list(report([found]))
    assert "2.0 us" in table[1] and "2.50x" in table[1] and "21%" in table[1] and "broken" not in table[1]


def measured(name: str, ours: float, eager: float, compiled: float, roof: tuple[float, float]) -> Row:
    size = {**OPERATORS, LARGE.name: LARGE}[name].bytes
    return Row(name, {OURS: ours, EAGER: eager, COMPILED: compiled}, {}, *roof, size)


def test_each_goal_stands_beside_its_figure() -> None:
    rows = [
        measured("mul", 2.0, 4.0, 3.0, (1.0, 0.1)),
        measured("add", 10.0, 10.0, 12.0, (9.5, 0.1)),
        measured("bmm", 10.0, 20.0, 12.0, (0.1, 5.0)),
        measured(LARGE.name, 10.0, 1.0, 1.0, (0.1, 7.0)),
    ]
    mean = "geometric mean over"
    assert list(goals(rows)) == [
        f"{mean} PyTorch eager, of 3 of 16 operators: 1.59x, the goal is 1.3x: reached",
        f"{mean} the better of the peers, of 3 of 16 operators: 1.22x, the goal is 1.0x: reached",
        "add, 151 MB, of the bandwidth of a copy: 95%, the goal is 90%: reached",
        "mul 6x14336 over PyTorch: 1.50x, the goal is 1.5x: reached",
        "product 4096^3, of the FMA units' peak: 70%, the goal is 80%: missed",
    ]
    slower = [replace(r, seconds={**r.seconds, OURS: 4 * r.seconds[OURS]}) for r in rows]
    assert all(line.endswith("missed") for line in goals(slower))
    assert list(goals([replace(r, seconds={EAGER: 1.0}) for r in rows])) == [], "no figure, no goal"


def test_without_a_gpu_it_says_so(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(gpu_table3, "what_is_missing", lambda target: "PyTorch finds no GPU here")
    assert gpu_table3.main(["--kernels", "add", "--json", str(tmp_path / "out.json")]) == NO_GPU
    printed = capsys.readouterr()
    assert printed.err == "nothing was measured: PyTorch finds no GPU here\n" and printed.out == ""
    assert not (tmp_path / "out.json").exists()


def test_unknown_kernels_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        gpu_table3.main(["--kernels", "add,matmull"])
    assert "there is no matmull" in capsys.readouterr().err


def test_with_a_gpu_one_command_goes_from_kernels_to_goals(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    mul = OPERATORS["mul"]
    gpu = FakeGpu({"made": np.multiply}, {EAGER: np.multiply}, {"made": [2e-6] * 2, EAGER: [4e-6] * 2})
    monkeypatch.setattr(gpu_table3, "what_is_missing", lambda target: "")
    monkeypatch.setattr(gpu_table3, "TorchGpu", lambda target: gpu)
    monkeypatch.setattr(gpu_table3, "Games", lambda target: FakeGames(Bundle("made")))
    out = tmp_path / "out.json"
    assert gpu_table3.main(["--kernels", "mul", "--repeats", "2", "--json", str(out)]) == 0
    told = json.loads(out.read_text())
    assert told["gpu"] == ["a stand-in"] and told["rows"][0]["seconds"][OURS] == 2e-6
    assert told["rows"][0]["bytes"] == mul.bytes
    assert "mul 6x14336 over PyTorch: 2.00x, the goal is 1.5x: reached" in capsys.readouterr().out


def test_every_row_has_kernels() -> None:
    """The builders know all shapes of the table, and the large product."""
    games = Games("cuda_gh200")
    names = gpu_table3.selection(games.plugins.operators, list(OPERATORS.values()))
    assert len(names) == len(OPERATORS)
    [large] = gpu_table3.select(gpu_table3.LARGE_KERNEL, games.plugins.operators, games.target.dialect)
    assert [large.program.buffer_of[name].shape for name in large.program.inputs] == [*LARGE.inputs]


# -- what stands between a benchmark and a GPU: PyTorch, a driver, a loader ---------------------------------

MUL = Operator("mul", "mul", ((6, 500), (6, 500)), (6, 500), 3000)
#: Seconds of each kernel, cold; half of it where all is in the caches.
KERNELS = {"ours": 3e-6, "eager": 8e-6, "compiled": 4e-6, "triton": 6e-6}


class Loader:
    """A plugin's, on the stand-in of PyTorch: one kernel, which multiplies."""

    def __init__(self, torch: Torch) -> None:
        self.torch = torch

    def kernel_of(self, driver: Any, files: Any, specs: Sequence[ArraySpec]) -> Callable[..., None]:
        assert driver == "driver" and files == {"kernel.cubin": b"code"} and tuple(specs) == SPECS

        def kernel(x: Tensor, y: Tensor, out: Tensor, stream: int) -> None:
            cuda = self.torch.cuda
            assert stream == cuda.current_stream().cuda_stream, "a launch in another stream is not captured"
            assert x.value is not None and y.value is not None
            a, b = x.value, y.value

            def into() -> None:
                out.value = a * b

            cuda.run("ours", KERNELS["ours"], out, x, y, into=into)

        return kernel


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Torch:
    """PyTorch and the plugin of a target called ``stand_in``."""
    torch = Torch()
    formula = torch.formula(np.multiply, KERNELS)
    tiles = {"8x8": torch.formula(np.multiply, KERNELS, "triton")}
    driver = SimpleNamespace(driver=lambda: "driver")
    for name, module in {
        "torch": torch,
        "perfdojo_sdk.peers.pytorch": SimpleNamespace(FORMULAS={"mul": formula}),
        "benchmarks.gpu_triton": SimpleNamespace(FORMULAS={"mul": tiles}),
        "perfdojo_stand_in.loader": Loader(torch),
        "perfdojo_stand_in.driver": driver,
    }.items():
        monkeypatch.setitem(sys.modules, name, module)
    return torch


def target(cache_bytes: int = L2_BYTES) -> Any:
    caches = {"L2": SimpleNamespace(bytes=cache_bytes)}
    return SimpleNamespace(name="stand_in", capabilities=SimpleNamespace(caches=caches))


SPECS = tuple(ArraySpec(name, (6, 500), "f32") for name in "xyz")
MADE = Artifact("mul", SPECS[:2], SPECS[2:], "cubin", pack({"kernel.cubin": b"code"}))


def test_all_are_launched_as_graphs_on_cold_caches(torch: Torch) -> None:
    """Both sides of the product in the same way: what the clock of the stand-in shows is one graph and one
    cold kernel, for everybody; a launch by the host or anything found in the caches would be in it."""
    gpu = TorchGpu(target())
    assert not torch.backends.cuda.matmul.allow_tf32 and not torch.backends.cudnn.allow_tf32
    found = row(MUL, FakeGames(MADE), gpu, repeats=3)
    assert found.problems == {}
    cold = {name: seconds + GRAPH_S for name, seconds in KERNELS.items()}
    expected = {**cold, f"{OURS} 0": cold["ours"], "triton 8x8": cold["triton"]}
    assert found.seconds == pytest.approx(expected)
    assert list(goals([found]))[-1].startswith("mul 6x14336 over PyTorch: 1.25x"), "Triton is not PyTorch"


def test_one_timed_call_is_flush_event_graph_event(torch: Torch) -> None:
    gpu = TorchGpu(target())
    inputs = [gpu.put(array) for array in MUL.draw(0)]
    contender = gpu.peers(MUL, inputs)[EAGER]
    torch.cuda.log.clear()
    contender.call()
    once = gpu.timer(contender.call)
    warmed = ["eager"] * 4
    assert torch.cuda.log == [*warmed, "synchronize", "synchronize"], "the capture itself runs nothing"
    for _ in range(2):
        torch.cuda.log.clear()
        once()
        assert torch.cuda.log == ["zero_", "record", "replay eager", "record", "synchronize"]
    assert gpu.get(contender.result()) == pytest.approx(np.multiply(*MUL.draw(0)))


def test_the_device_is_measured_in_the_same_way(torch: Torch, monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = TorchGpu(target(4 * L2_BYTES))
    assert gpu.flush_buffer.bytes == 8 * L2_BYTES, "the target knows of a cache behind the second one"
    assert gpu.copy_bandwidth == pytest.approx(BANDWIDTH, rel=0.01)
    assert gpu.launch_s == pytest.approx(2e-6)
    assert gpu.peak == 2 * 128 * 10 * 1e9
    told = gpu.about()
    assert told[1].startswith("a copy of 1 GiB: 3993 GB/s, measured")
    assert told[2].startswith("the shortest graph: 2.0 us, measured")
    monkeypatch.setitem(sys.modules, "benchmarks.gpu_triton", None)
    assert "Triton is not installed" in TorchGpu(target()).about()[-1]


def test_the_clock_is_the_drivers_where_it_knows_it(torch: Torch, monkeypatch: pytest.MonkeyPatch) -> None:
    attribute = SimpleNamespace(CU_DEVICE_ATTRIBUTE_CLOCK_RATE=13)
    asked = {13: 1_980_000}
    driver = SimpleNamespace(
        CUdevice_attribute=attribute,
        cuDeviceGet=lambda number: ("OK", number),
        cuDeviceGetAttribute=lambda which, device: ("OK", asked[which]),
    )
    module = SimpleNamespace(driver=lambda: driver, value=lambda cuda, answer: answer[1])
    monkeypatch.setitem(sys.modules, "perfdojo_stand_in.driver", module)
    assert TorchGpu(target()).peak == 2 * 128 * 10 * 1.98e9


def test_a_gpu_without_its_driver_is_named(torch: Torch, monkeypatch: pytest.MonkeyPatch) -> None:
    def driver() -> Any:
        raise OSError("cuda-bindings is not installed")

    assert gpu_table3.what_is_missing("stand_in") == ""
    monkeypatch.setitem(sys.modules, "perfdojo_stand_in.driver", SimpleNamespace(driver=driver))
    missing = gpu_table3.what_is_missing("stand_in")
    assert missing == "cuda-bindings is not installed; try: perfdojo-sdk plugins doctor --target stand_in"


def test_a_gpu_that_is_lost_takes_no_figure_back(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    gpu = FakeGpu({"made": np.multiply}, {EAGER: np.multiply}, {"made": [2e-6], EAGER: [4e-6]})

    def put(array: Any) -> Any:
        if array.shape == OPERATORS["relu"].inputs[0]:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        return array

    monkeypatch.setattr(gpu, "put", put)
    monkeypatch.setattr(gpu_table3, "what_is_missing", lambda target: "")
    monkeypatch.setattr(gpu_table3, "TorchGpu", lambda target: gpu)
    monkeypatch.setattr(gpu_table3, "Games", lambda target: FakeGames(Bundle("made")))
    out = tmp_path / "out.json"
    with pytest.raises(RuntimeError, match="illegal memory"):
        gpu_table3.main(["--kernels", "mul,relu", "--repeats", "1", "--json", str(out)])
    assert "2.00x" in capsys.readouterr().out
    assert [each["kernel"] for each in json.loads(out.read_text())["rows"]] == ["mul"]


def test_the_stand_in_has_nothing_that_pytorch_has_not() -> None:
    real = pytest.importorskip("torch")
    own = {"torch", "log", "clock", "streams", "stack", "capturing", "events", "cached", "allocated"}
    own |= {"note_allocation", "order", "run"}
    cuda = Torch().cuda
    names = {name for name in dir(cuda) if not name.startswith("_")} - own
    assert len(names) == 10 and {name for name in names if not hasattr(real.cuda, name)} == set()
    assert hasattr(real.cuda.Stream, "wait_stream")
    assert hasattr(real.cuda.Event, "record") and hasattr(real.cuda.Event, "elapsed_time")
    assert hasattr(real.cuda.CUDAGraph, "replay")
    assert all(hasattr(real, name) for name in ("empty", "zeros", "from_numpy", "compile", "uint8"))

"""The sixteen operators of Table 3 on a GPU: our kernels beside PyTorch, eager and compiled, in one run.

    python benchmarks/gpu_table3.py [--kernels add,matmul] [--target cuda_gh200] [--repeats 50] [--json FILE]

All contenders run in one process on the same tensors, in turns. Each call is captured as a graph and timed
by events around it, after a buffer of twice the second cache was overwritten; so launches cost everybody
the same. TF32 is off. Every result is compared with float64 at sampled places; who is wrong is left out.
The roofline is a copy of 1 GiB, and the product of multiprocessors, lanes and clock, as measured and told
on this GPU. Without a GPU it says so and ends with status 3: figures are measured here or not at all.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

if not __package__:
    sys.path.insert(0, str(Path(__file__).resolve().parent))

from table3.library import selection
from table3.operators import OPERATORS, TOLERANCE, Operator, places

from perfdojo_sdk.hookspecs.types import Failure
from perfdojo_sdk.kernels.selection import select
from perfdojo_sdk.plugins import load_plugins

Call = Callable[[], None]
NO_GPU = 3


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kernels", default="", help="names, separated by commas; all when left out")
    parser.add_argument("--target", default="cuda_gh200")
    parser.add_argument("--repeats", type=int, default=50)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    missing = what_is_missing()
    if missing:
        print(f"nothing was measured: {missing}", file=sys.stderr)
        return NO_GPU
    wanted = set(filter(None, arguments.kernels.split(",")))
    operators = [o for o in OPERATORS if not wanted or o.name in wanted]
    rows = [row(operator, arguments) for operator in operators]
    report(rows)
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=2) + "\n")
    return 0


def what_is_missing() -> str:
    """Why no figure can be measured here; "" when all is there."""
    try:
        import torch
    except ImportError:
        return "PyTorch is not installed; try: pip install 'perfdojo-sdk[bench]'"
    if not torch.cuda.is_available():
        return "PyTorch finds no GPU here; run this on a machine with one"
    return ""


def row(operator: Operator, arguments: argparse.Namespace) -> dict[str, Any]:
    """Times of all contenders on one operator."""
    import torch
    from table3.peers.pytorch import FORMULAS

    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    host = operator.draw(0)
    inputs = [torch.from_numpy(array).cuda() for array in host]
    out = torch.empty(operator.output, device="cuda")
    formula = FORMULAS[operator.family]
    fused = torch.compile(formula)
    contenders: dict[str, Call] = {
        "eager": lambda: _keep(formula(*inputs)),
        "compiled": lambda: _keep(fused(*inputs)),
    }
    kernel = ours(operator, arguments.target)
    if not isinstance(kernel, str):
        contenders = {
            "ours": lambda: kernel(*inputs, out, stream=torch.cuda.current_stream().cuda_stream),
            **contenders,
        }
    expected = operator.expected(host)
    problems = {} if not isinstance(kernel, str) else {"ours": kernel}
    timers = {}
    for name, call in contenders.items():
        _RESULT.clear()
        call()
        torch.cuda.synchronize()
        found = (out if name == "ours" else _RESULT[-1]).reshape(-1).cpu().numpy()[places(operator)]
        worst = abs(found - expected).max() / abs(expected).max()
        if not worst <= TOLERANCE:
            problems[name] = f"wrong: relative error {worst:.2g}"
            continue
        timers[name] = Timer(call)
    times: dict[str, list[float]] = {name: [] for name in timers}
    for _ in range(arguments.repeats):
        for name, timer in timers.items():
            times[name].append(timer.once())
    seconds = {name: statistics.median(values) for name, values in times.items()}
    roof = max(operator.bytes / copy_bandwidth(), operator.operations / peak())
    return {"kernel": operator.name, "seconds": seconds, "problems": problems, "roofline_s": roof,
            "gpu": torch.cuda.get_device_name(0)}  # fmt: skip


_RESULT: list[Any] = []


def _keep(result: Any) -> None:
    """Hold a result until it is looked at, so that its memory is not given away meanwhile."""
    _RESULT[:] = [result]


def ours(operator: Operator, target_name: str) -> Any:
    """Our kernel, compiled and loaded, or why there is none."""
    from perfdojo_cuda_gh200.driver import driver
    from perfdojo_cuda_gh200.loader import GpuKernel

    from perfdojo_sdk.measure.bundle import unpack

    plugins = load_plugins(targets=[target_name])
    target = plugins.target(target_name)
    names = selection(plugins.operators, [operator])
    if not names:
        return "no builder has these shapes"
    [kernel] = select(names[0], plugins.operators, target.dialect)
    expert = plugins.heuristic_pass(target)
    assert expert is not None
    trace = expert(kernel.program, plugins.rules(target), target)[0]
    source = plugins.code_generator(target).generate(trace.program, kernel.symbol)
    artifact = plugins.runner(target).compile(source)
    if isinstance(artifact, Failure):
        return f"{artifact.reason}: {artifact.detail.splitlines()[0]}"
    return GpuKernel(driver(), unpack(artifact.content), (*source.inputs, *source.outputs))


class Timer:
    """One contender's call as a graph."""

    def __init__(self, call: Call) -> None:
        import torch

        self.torch = torch
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for _ in range(3):
                call()
        torch.cuda.synchronize()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            call()

    def once(self) -> float:
        """Seconds of one call that finds nothing in the caches."""
        torch = self.torch
        flush_buffer().zero_()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        self.graph.replay()
        end.record()
        torch.cuda.synchronize()
        return float(start.elapsed_time(end)) * 1e-3


_CACHE: dict[str, Any] = {}


def flush_buffer() -> Any:
    import torch

    if "flush" not in _CACHE:
        size = 2 * torch.cuda.get_device_properties(0).L2_cache_size
        _CACHE["flush"] = torch.empty(size, dtype=torch.uint8, device="cuda")
    return _CACHE["flush"]


def copy_bandwidth() -> float:
    """Bytes a second, read plus written, of a copy of 1 GiB."""
    import torch

    if "copy" not in _CACHE:
        one, other = (torch.empty(1 << 28, device="cuda") for _ in range(2))
        timer = Timer(lambda: _keep(other.copy_(one)))
        _CACHE["copy"] = 2 * 4 * (1 << 28) / statistics.median(timer.once() for _ in range(20))
    return float(_CACHE["copy"])


def peak() -> float:
    """Multiplications and additions a second without tensor cores, at the GPU's highest clock."""
    import torch
    from perfdojo_cuda_gh200.driver import driver, value

    cuda = driver()
    attribute = cuda.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_CLOCK_RATE
    hertz = 1e3 * float(value(cuda, cuda.cuDeviceGetAttribute(attribute, value(cuda, cuda.cuDeviceGet(0)))))
    return 2 * 128 * torch.cuda.get_device_properties(0).multi_processor_count * hertz


def report(rows: Sequence[dict[str, Any]]) -> None:
    print(f"{'kernel':14}{'ours':>10}{'eager':>10}{'compiled':>10}{'x eager':>9}{'x best':>8}{'roof':>7}")
    ratios: dict[str, list[float]] = {"eager": [], "best": []}
    for entry in rows:
        seconds = entry["seconds"]
        mine = seconds.get("ours")
        peers = [seconds[name] for name in ("eager", "compiled") if name in seconds]
        cells = [f"{1e6 * seconds[n]:.1f} us" if n in seconds else "-" for n in ("ours", "eager", "compiled")]
        text = f"{entry['kernel']:14}" + "".join(f"{cell:>10}" for cell in cells)
        if mine and "eager" in seconds:
            ratios["eager"].append(seconds["eager"] / mine)
            ratios["best"].append(min(peers) / mine)
            text += f"{ratios['eager'][-1]:8.2f}x{ratios['best'][-1]:7.2f}x{entry['roofline_s'] / mine:7.0%}"
        print(text, *[f"  {name}: {why}" for name, why in entry["problems"].items()])
    for name, values in ratios.items():
        if values:
            mean = math.exp(statistics.fmean(map(math.log, values)))
            print(f"geometric mean over {name}: {mean:.2f}x, of {len(values)} of {len(rows)} operators")


if __name__ == "__main__":
    sys.exit(main())

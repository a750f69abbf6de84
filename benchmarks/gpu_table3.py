"""The sixteen operators of Table 3, and a large product, on a GPU: our kernels beside PyTorch in one run.

    python benchmarks/gpu_table3.py [--kernels add,matmul] [--target cuda_gh200] [--repeats 50] [--json FILE]
    python benchmarks/gpu_table3.py --compile-only     # all that needs no GPU, and no times

PyTorch runs eager and compiled (by Inductor, whose kernels for GPUs are in Triton). If an operator is simple
to write in Triton, a kernel of ours in Triton runs too (``gpu_triton.py``). All contenders run in one process
on the same tensors, in turns. Each call is captured as a graph and timed by events around it, after a buffer
of twice the last cache was overwritten; so launches cost the same for all, and that cost is printed. TF32 is
off, and our games keep the precision. If a system has several kernels, each is timed and the fastest counts.
Every result is compared with float64 at sampled places; a wrong contender is left out. The roofline is the
faster of two copies of 1 GiB, measured on this GPU, and the product of its multiprocessors, lanes and clock.
The report ends with the goals, each with its figure. Without a GPU the program says so and ends with status
3: figures are measured here or not at all.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

if not __package__:
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.table3.library import selection
from perfdojo_sdk.codegen.gpu.bundle import unpack
from perfdojo_sdk.hookspecs.types import Artifact, Target
from perfdojo_sdk.kernels.selection import select
from perfdojo_sdk.measure.gpu_session import FLUSH, WARM_UP
from perfdojo_sdk.peers.operators import OPERATORS, TOLERANCE, Operator, error
from perfdojo_sdk.plugins import load_plugins

Call = Callable[[], None]
NO_GPU = 3
OURS, EAGER, COMPILED, TRITON = SYSTEMS = "ours", "eager", "compiled", "triton"

#: The product for the fraction of the FMA units' peak; not a row of Table 3.
LARGE = Operator("matmul4096", "matmul", ((4096, 4096), (4096, 4096)), (4096, 4096), 2 * 4096**3)
LARGE_KERNEL = "matmul[4096,4096,4096]"
#: Bytes from which an operator that memory bounds is compared with the bandwidth of a copy.
MUCH = 100e6


@dataclass(frozen=True)
class Row:
    """The measurements of one operator."""

    kernel: str
    seconds: Mapping[str, float]
    """Contender -> median, and system -> that of its fastest contender."""
    problems: Mapping[str, str]
    """Contender -> why it has no time."""
    copy_s: float
    """Seconds that a copy of as many bytes would take at the measured bandwidth."""
    compute_s: float
    """Seconds that its multiplications and additions would take at the peak without matrix units."""
    bytes: int

    @property
    def roofline_s(self) -> float:
        return max(self.copy_s, self.compute_s)

    def best_of(self, *systems: str) -> float | None:
        return min((self.seconds[name] for name in systems if name in self.seconds), default=None)

    @property
    def best_peer_s(self) -> float | None:
        return self.best_of(EAGER, COMPILED, TRITON)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    known = {**OPERATORS, LARGE.name: LARGE}
    parser.add_argument("--kernels", default="", help="names, separated by commas; all when left out")
    parser.add_argument("--target", default="cuda_gh200")
    parser.add_argument("--repeats", type=int, default=50)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--compile-only", action="store_true", help="make machine code, and time nothing")
    asked = parser.parse_args(arguments)
    wanted = asked.kernels.split(",") if asked.kernels else list(known)
    if unknown := [name for name in wanted if name not in known]:
        parser.error(f"there is no {', '.join(unknown)}; there are {', '.join(known)}")
    games = Games(asked.target)
    if asked.compile_only:
        return compile_only(games, [known[name] for name in wanted])
    missing = what_is_missing(asked.target)
    if missing:
        print(f"nothing was measured: {missing}", file=sys.stderr)
        return NO_GPU
    gpu = TorchGpu(games.target)
    rows: list[Row] = []
    try:
        for name in wanted:
            rows.append(row(known[name], games, gpu, asked.repeats))
    finally:  # a kernel that faults may end all use of the GPU; the figures so far stay valid
        print("\n".join([*gpu.about(), "", *report(rows)]))
        if asked.json:
            told = {"gpu": gpu.about(), "rows": [asdict(r) for r in rows], "goals": list(goals(rows))}
            asked.json.write_text(json.dumps(told, indent=2) + "\n")
    return 0


def what_is_missing(target: str) -> str:
    """The reason why nothing can be measured here; "" when everything is present."""
    try:
        import torch
    except ImportError:
        return "PyTorch is not installed; try: pip install 'perfdojo-sdk[bench]'"
    if not torch.cuda.is_available():
        return "PyTorch finds no GPU here; run this on a machine with one, or see --compile-only"
    try:
        import_module(f"perfdojo_{target}.driver").driver()
    except OSError as error:
        return f"{error}; try: perfdojo-sdk plugins doctor --target {target}"
    return ""


class Games:
    """The games of our expert for a target, as bundles of machine code."""

    def __init__(self, target: str) -> None:
        self.plugins = load_plugins(targets=[target])
        self.target = self.plugins.target(target)

    def bundles(self, operator: Operator) -> Iterator[Artifact | str]:
        """One for each game, or why there is none."""
        plugins, target = self.plugins, self.target
        names = [LARGE_KERNEL] if operator is LARGE else selection(plugins.operators, [operator])
        expert = plugins.heuristic_pass(target)
        if not names or expert is None:
            yield "no builder has these shapes" if expert else f"{target.name} has no expert"
            return
        [kernel] = select(names[0], plugins.operators, target.dialect)
        for trace in expert(kernel.program, plugins.rules(target), target):
            source = plugins.code_generator(target).generate(trace.program, kernel.symbol)
            made = plugins.runner(target).compile(source)
            yield made if isinstance(made, Artifact) else f"{made.reason}: {made.detail.splitlines()[0]}"


def compile_only(games: Games, operators: Sequence[Operator]) -> int:
    """Print the compiler's report on each game; status 1 if there is no machine code for one."""
    wrong = 0
    for operator in operators:
        for number, made in enumerate(games.bundles(operator)):
            code = isinstance(made, Artifact) and any(n.startswith("kernel.") for n in unpack(made.content))
            wrong += not code
            told = made if isinstance(made, str) else made.notes.replace("\n", "; ")
            print(f"{operator.name} {number}: {told if code or isinstance(made, str) else 'no machine code'}")
    return 1 if wrong else 0


class TorchGpu:
    """The GPU as PyTorch shows it."""

    def __init__(self, target: Target) -> None:
        import torch

        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
        self.torch, self.properties = torch, torch.cuda.get_device_properties(0)
        self.name = torch.cuda.get_device_name(0)
        # PyTorch knows the second cache; the target's figures also list a cache behind it.
        caches = [self.properties.L2_cache_size, *(c.bytes for c in target.capabilities.caches.values())]
        self.flush_buffer = torch.empty(FLUSH * max(caches), dtype=torch.uint8, device="cuda")
        self.loader = import_module(f"perfdojo_{target.name}.loader")
        self.driving = import_module(f"perfdojo_{target.name}.driver")
        self.driver = self.driving.driver()
        self.triton = _triton_formulas()
        self.kept: Any = None
        one, other = (torch.empty(1 << 28, device="cuda") for _ in range(2))
        #: Bytes a second, read plus written, of a copy of 1 GiB: the driver's own, or a kernel that
        #: multiplies by one, which is a quarter faster on an H100.
        copies = lambda: self._keep(other.copy_(one)), lambda: self._keep(torch.mul(one, 1.0, out=other))
        self.copy_bandwidth = 2 * 4 * (1 << 28) / min(map(self._median, copies))
        single = torch.zeros(1, device="cuda")
        #: Seconds of a graph of one kernel that does next to nothing; a part of all times.
        self.launch_s = self._median(lambda: self._keep(single.add_(1)))
        #: Multiplications and additions a second without matrix units, at the GPU's highest clock.
        self.peak = 2 * 128 * self.properties.multi_processor_count * self._hertz()

    def about(self) -> list[str]:
        """The device, and its measured speeds."""
        lines = [
            f"{self.name}, PyTorch {self.torch.__version__}",
            f"a copy of 1 GiB: {self.copy_bandwidth / 1e9:.0f} GB/s, measured; FMA units: "
            f"{self.peak / 1e12:.1f} TFLOP/s, by their number and clock",
            f"the shortest graph: {1e6 * self.launch_s:.1f} us, measured; it is in every time below",
        ]
        return lines if self.triton else [*lines, "Triton is not installed, so there are no kernels of it"]

    def _median(self, call: Call) -> float:
        once = self.timer(call)
        return statistics.median(once() for _ in range(20))

    def _hertz(self) -> float:
        """The highest clock: from the driver's attribute if there is one, else from PyTorch."""
        attribute = getattr(self.driver, "CUdevice_attribute", None)
        if attribute is None:
            return 1e3 * float(self.properties.clock_rate)
        value, cuda = self.driving.value, self.driver
        device = value(cuda, cuda.cuDeviceGet(0))
        asked = cuda.cuDeviceGetAttribute(attribute.CU_DEVICE_ATTRIBUTE_CLOCK_RATE, device)
        return 1e3 * float(value(cuda, asked))

    def _keep(self, result: Any) -> None:
        """Hold a result until the next one, so that its memory is not reused meanwhile."""
        self.kept = result

    def put(self, array: Any) -> Any:
        return self.torch.from_numpy(array).cuda()

    def get(self, tensor: Any) -> Any:
        return tensor.cpu().numpy()

    def peers(self, operator: Operator, inputs: Sequence[Any]) -> dict[str, Contender]:
        from perfdojo_sdk.peers.pytorch import FORMULAS

        self.torch._dynamo.reset()
        formula = FORMULAS[operator.family]
        fused = self.torch.compile(formula, dynamic=False, fullgraph=True)
        peers = {EAGER: formula, COMPILED: fused}
        for variant, kernel in self.triton.get(operator.family, {}).items():
            peers[f"{TRITON} {variant}".strip()] = kernel
        return {name: self._peer(function, inputs) for name, function in peers.items()}

    def _peer(self, function: Callable[..., Any], inputs: Sequence[Any]) -> Contender:
        return Contender(lambda: self._keep(function(*inputs)), lambda: self.kept)

    def ours(self, bundle: Artifact, inputs: Sequence[Any], shape: Sequence[int]) -> Contender:
        """One of our kernels, on memory of its own for the result."""
        specs = (*bundle.inputs, *bundle.outputs)
        kernel = self.loader.kernel_of(self.driver, unpack(bundle.content), specs)
        out = self.torch.empty(tuple(shape), device="cuda")

        def call() -> None:
            kernel(*inputs, out, stream=self.torch.cuda.current_stream().cuda_stream)

        return Contender(call, lambda: out)

    def timer(self, call: Call) -> Callable[[], float]:
        """Seconds of one call, as a graph, that finds nothing in the caches."""
        torch = self.torch
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(WARM_UP):
                call()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            call()

        def once() -> float:
            self.flush_buffer.zero_()
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            graph.replay()
            end.record()
            torch.cuda.synchronize()
            return float(start.elapsed_time(end)) * 1e-3

        return once


def _triton_formulas() -> Mapping[str, Mapping[str, Callable[..., Any]]]:
    """Family -> variant -> function; empty without Triton."""
    try:
        from benchmarks.gpu_triton import FORMULAS
    except ImportError:
        return {}
    return FORMULAS


@dataclass(frozen=True)
class Contender:
    """One way to compute an operator."""

    call: Call
    result: Callable[[], Any] = field(repr=False)
    """Returns the output of the last call, on the GPU."""


def row(operator: Operator, games: Any, gpu: Any, repeats: int) -> Row:
    """Times of all contenders on one operator; ``gpu`` as :class:`TorchGpu`, ``games`` as :class:`Games`."""
    host = operator.draw(0)
    expected = operator.expected(host)
    inputs = [gpu.put(array) for array in host]
    contenders: dict[str, Contender] = {}
    problems: dict[str, str] = {}
    for number, made in enumerate(games.bundles(operator)):
        name = f"{OURS} {number}"
        if isinstance(made, str):
            problems[name] = made
            continue
        try:
            contenders[name] = gpu.ours(made, inputs, operator.output)
        except Exception as failure:  # any error of one kernel; the others still run
            problems[name] = f"{type(failure).__name__}: {failure}"
    contenders |= gpu.peers(operator, inputs)
    timers: dict[str, Callable[[], float]] = {}
    for name, contender in contenders.items():
        try:
            contender.call()
            worst = error(operator, gpu.get(contender.result()), expected)
            if worst <= TOLERANCE:
                timers[name] = gpu.timer(contender.call)
            else:
                problems[name] = f"wrong: relative error {worst:.2g}"
        except Exception as failure:
            problems[name] = f"{type(failure).__name__}: {failure}"
    times: dict[str, list[float]] = {name: [] for name in timers}
    for _ in range(repeats):
        for name, once in timers.items():
            times[name].append(once())
    seconds = {name: statistics.median(values) for name, values in times.items()}
    for system in SYSTEMS:
        if its := [s for name, s in seconds.items() if name.split()[0] == system]:
            seconds[system] = min(its)
    copy_s, compute_s = operator.bytes / gpu.copy_bandwidth, operator.operations / gpu.peak
    return Row(operator.name, seconds, problems, copy_s, compute_s, operator.bytes)


def report(rows: Sequence[Row]) -> Iterator[str]:
    """The table, then the goals."""
    systems = "".join(f"{name:>12}" for name in SYSTEMS)
    yield f"{'kernel':14}{systems}{'x eager':>9}{'x best':>8}{'roof':>7}"
    for each in rows:
        seconds = each.seconds
        cells = [f"{1e6 * seconds[n]:.1f} us" if n in seconds else "-" for n in SYSTEMS]
        text = f"{each.kernel:14}" + "".join(f"{cell:>12}" for cell in cells)
        if mine := seconds.get(OURS):
            eager, best = seconds.get(EAGER), each.best_peer_s
            text += f"{eager / mine:8.2f}x" if eager else f"{'-':>9}"
            text += f"{best / mine:7.2f}x" if best else f"{'-':>8}"
            text += f"{each.roofline_s / mine:7.0%}"
        yield text + "".join(f"  {name}: {why}" for name, why in each.problems.items())
    yield ""
    yield from goals(rows)


def goals(rows: Sequence[Row]) -> Iterator[str]:
    """The goals with this run's figures; a goal without a figure is left out."""
    table = [r for r in rows if r.kernel in OPERATORS and OURS in r.seconds]

    def against(what: str, least: float, ratios: list[float]) -> Iterator[str]:
        if ratios:
            mean = math.exp(statistics.fmean(map(math.log, ratios)))
            of = f"of {len(ratios)} of {len(OPERATORS)} operators"
            yield _goal(f"geometric mean over {what}, {of}", f"{mean:.2f}x", f"{least}x", mean >= least)

    eager = [r.seconds[EAGER] / r.seconds[OURS] for r in table if EAGER in r.seconds]
    best = [r.best_peer_s / r.seconds[OURS] for r in table if r.best_peer_s is not None]
    yield from against("PyTorch eager", 1.3, eager)
    yield from against("the better of the peers", 1.0, best)
    for each in table:
        if each.bytes >= MUCH and each.copy_s >= each.compute_s:
            share = each.copy_s / each.seconds[OURS]
            what = f"{each.kernel}, {each.bytes / 1e6:.0f} MB, of the bandwidth of a copy"
            yield _goal(what, f"{share:.0%}", "90%", share >= 0.9)
    for each in rows:
        mine, theirs = each.seconds.get(OURS), each.best_of(EAGER, COMPILED)
        if each.kernel == "mul" and mine and theirs:
            yield _goal("mul 6x14336 over PyTorch", f"{theirs / mine:.2f}x", "1.5x", theirs / mine >= 1.5)
        if each.kernel == LARGE.name and mine:
            share = each.compute_s / mine
            yield _goal("product 4096^3, of the FMA units' peak", f"{share:.0%}", "80%", share >= 0.8)


def _goal(what: str, figure: str, least: str, reached: bool) -> str:
    return f"{what}: {figure}, the goal is {least}: {'reached' if reached else 'missed'}"


if __name__ == "__main__":
    sys.exit(main())

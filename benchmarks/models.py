"""Whole models: built from nothing by passes alone, and timed beside other systems.

    python benchmarks/models.py [--only bert_base resnet50] [--small] [--target best] [--threads 1] [--plan]
        [--freeze] [--tune BUDGET] [--repeats 20] [--state build/benchmark_models] [--again] [--json]

Networks are those of ``networks.py``, with random weights; ``--small`` takes their small versions. Each is
exported, lowered, built and verified; then its largest and mean error against the network in float64, over
three inputs, stand beside those of PyTorch eager, and its latency beside PyTorch eager and ``torch.compile``
(freezing), and ONNX Runtime and OpenVINO where they are installed. All run on the same number of threads, in
turns; a system that cannot run a network is named. ``--plan`` builds nothing: it prints how many nodes become
how many kernels, and what fusion spares (estimated). Finished kernels and rows are kept in the folder of
``--state``; after an interruption the same command goes on, and ``--again`` compares and times anew. The exit
code is 4 if an error is more than four times PyTorch's, or the largest outputs stand elsewhere.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from time import perf_counter, sleep
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parent))
from networks import NETWORKS, SMALL, Network, exported

import perfdojo_sdk
from perfdojo_sdk.cli.build_library import observer
from perfdojo_sdk.frontends.onnx.lowering import lower
from perfdojo_sdk.game import write_atomically
from perfdojo_sdk.graph.graph import Graph
from perfdojo_sdk.graph.memory import plan_memory
from perfdojo_sdk.graph.passes import without_duplicates
from perfdojo_sdk.library.settings import Settings
from perfdojo_sdk.models.optimise import optimise, prepared
from perfdojo_sdk.plugins import Plugins, load_plugins
from perfdojo_sdk.search.strategies import AUTO
from perfdojo_sdk.verify.smaller_games import statement_instances

#: Seconds in which threads that poll for work fall asleep.
PAUSE_S = 0.3
#: Most times that an error may be as large as PyTorch's.
FACTOR = 4.0
#: Seeds of the inputs that are compared.
SEEDS = (0, 1, 2)


@dataclass(frozen=True)
class Planned:
    """A model before and after the passes over its graph."""

    name: str
    nodes: int
    kernels: int
    fused_nodes: int
    fused_kernels: int
    edges: int
    inside: int
    """Edges that stay inside of a kernel."""
    spared_mib: float
    statements: int
    memory_mib: float
    seconds: float
    """For exporting, lowering and planning."""


@dataclass(frozen=True)
class Measured:
    """One model beside other systems."""

    name: str
    build_s: dict[str, float]
    """Stage -> seconds of the build, or of its last part after an interruption."""
    largest: float
    mean: float
    eager_largest: float
    eager_mean: float
    same_place: bool
    """True if the largest element of each row is that of float64."""
    us: dict[str, float]
    """System -> median microseconds of a call."""
    missing: dict[str, str]
    """System -> why it did not run."""

    @property
    def right(self) -> bool:
        near = self.largest <= FACTOR * self.eager_largest and self.mean <= FACTOR * self.eager_mean
        return near and self.same_place


def graph_of(content: bytes, name: str) -> Graph:
    lowered = lower(content)
    if lowered.graph is None:
        raise SystemExit(f"{name}: " + "; ".join(r.text for r in lowered.refusals))
    return replace(lowered.graph, name=name)


def planned(plugins: Plugins, target: str, name: str, network: Network, freeze: bool) -> Planned:
    begin = perf_counter()
    given = without_duplicates(graph_of(exported(*network.build()), name))
    made, _, plan, _ = prepared(plugins, plugins.target(target), given, fuse=True, freeze=freeze)
    inside = [edge for edge in plan.edges if edge.fused]
    return Planned(
        name,
        len(given.nodes),
        len(given.programs),
        len(made.nodes),
        len(made.programs),
        len(plan.edges),
        len(inside),
        sum(edge.bytes for edge in inside) / 2**20,
        sum(statement_instances(node.program) for node in made.nodes),
        plan_memory(made).total / 2**20,
        perf_counter() - begin,
    )


def measured(plugins: Plugins, name: str, network: Network, arguments: argparse.Namespace) -> Measured:
    torch.set_num_threads(arguments.threads)
    module, given = network.build()
    content = exported(module, given)
    settings = replace(Settings(), threads=arguments.threads)
    if arguments.tune:
        settings = replace(settings, search=AUTO, evaluations=arguments.tune)
    folder = Path(arguments.state) / name
    graph, target = graph_of(content, name), plugins.target(arguments.target)
    result = optimise(plugins, target, graph, folder, settings, observer(), freeze=arguments.freeze)
    model = perfdojo_sdk.load_model(folder)
    kernels = result.library.seconds if result.library else {}

    def ours(*x: torch.Tensor) -> Any:
        return model(*[each.numpy() for each in x], threads=arguments.threads)

    with torch.no_grad():
        largest, mean, same = compared(ours, module, network)
        calls: dict[str, Callable[[], Any]] = {
            "perfdojo": lambda: ours(*given),
            "eager": lambda: module(*given),
        }
        found, missing = others(module, given, content, arguments.threads)
        us = timed({**calls, **found}, arguments.repeats)
    return Measured(
        name,
        {**result.seconds, **{f"of them {stage}": seconds for stage, seconds in kernels.items()}},
        largest[0],
        mean[0],
        largest[1],
        mean[1],
        same,
        us,
        missing,
    )


def compared(
    ours: Callable[..., Any], module: torch.nn.Module, network: Network
) -> tuple[list[float], list[float], bool]:
    """The largest and the mean error of both systems beside float64, over all outputs of some inputs, and
    whether the largest element of each row of ours is that of float64."""
    sets, eager = [network.draw(seed) for seed in SEEDS], []
    for given in sets:
        eager.append(outputs_of(module(*given)))
    module.double()
    errors: list[list[Any]] = [[], []]
    same = True
    for given, floats in zip(sets, eager, strict=True):
        wide = outputs_of(module(*[x.double() if x.is_floating_point() else x for x in given]))
        for k, found in enumerate((outputs_of(ours(*given)), floats)):
            errors[k] += [np.abs(one - other).ravel() for one, other in zip(found, wide, strict=True)]
            if k == 0:
                same &= bool((found[0].argmax(-1) == wide[0].argmax(-1)).all())
    module.float()
    whole = [np.concatenate(each) for each in errors]
    return [float(each.max()) for each in whole], [float(each.mean()) for each in whole], same


def outputs_of(made: Any) -> list[np.ndarray[Any, Any]]:
    return [np.asarray(each) for each in (made if isinstance(made, list | tuple) else (made,))]


def others(
    module: torch.nn.Module, given: Sequence[torch.Tensor], content: bytes, threads: int
) -> tuple[dict[str, Callable[[], Any]], dict[str, str]]:
    """Calls of the other systems, and why some of them do not run."""
    named = {f"x{k}": each.numpy() for k, each in enumerate(given)}

    def compile_() -> Callable[[], Any]:
        import torch._inductor.config

        torch._inductor.config.freezing = True
        compiled = torch.compile(module)
        return lambda: compiled(*given)

    def onnxruntime_() -> Callable[[], Any]:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        return lambda: session.run(None, named)

    def openvino_() -> Callable[[], Any]:
        import openvino

        core = openvino.Core()
        # Left alone, it computes in bf16 where the processor can.
        settings = {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32"}
        whole = core.compile_model(core.read_model(content, b""), "CPU", settings)
        return lambda: whole(named)

    found: dict[str, Callable[[], Any]] = {}
    missing: dict[str, str] = {}
    for system, make in (("compile", compile_), ("onnxruntime", onnxruntime_), ("openvino", openvino_)):
        try:
            call = make()
            call()
        except Exception as error:  # it is not installed, lacks its compiler, or refuses the network
            missing[system] = f"{type(error).__name__}: {error}".partition("\n")[0][:200]
        else:
            found[system] = call
    return found, missing


def timed(calls: dict[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """The median time of a call in microseconds; the systems take turns.

    A turn begins with a pause and a call that does not count: threads of the system before it poll for more
    work until they fall asleep, and its own have to wake up.
    """
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(repeats):
        for name, call in calls.items():
            sleep(PAUSE_S)
            call()
            begin = perf_counter()
            call()
            times[name].append(1e6 * (perf_counter() - begin))
    return {name: median(each) for name, each in times.items()}


def row(plugins: Plugins, name: str, network: Network, arguments: argparse.Namespace) -> Measured:
    """The row of a model: that of an earlier run of the same command, or a new one."""
    asked = [arguments.target, arguments.threads, arguments.freeze, arguments.tune, arguments.repeats]
    file = Path(arguments.state) / f"{name}.json"
    if file.exists() and not arguments.again:
        kept = json.loads(file.read_text())
        if kept["asked"] == asked:
            return Measured(**kept["row"])
    result = measured(plugins, name, network, arguments)
    write_atomically(file, json.dumps({"asked": asked, "row": asdict(result)}, indent=1))
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=NETWORKS, default=list(NETWORKS))
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--target", default="best")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--plan", action="store_true")
    parser.add_argument("--freeze", action="store_true")
    parser.add_argument("--tune", type=int, default=0, metavar="BUDGET")
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--state", default="build/benchmark_models")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    plugins = load_plugins(targets=[arguments.target])
    wrong = False
    for name in arguments.only:
        network, name = (SMALL[name], f"{name}_small") if arguments.small else (NETWORKS[name], name)
        if arguments.plan:
            plan = planned(plugins, arguments.target, name, network, arguments.freeze)
            print(json.dumps(asdict(plan)) if arguments.json else shown_plan(plan), flush=True)
            continue
        result = row(plugins, name, network, arguments)
        wrong |= not result.right
        print(json.dumps(asdict(result)) if arguments.json else shown(result), flush=True)
    return 4 if wrong else 0


def shown_plan(plan: Planned) -> str:
    return (
        f"{plan.name}: {plan.nodes} calls of {plan.kernels} kernels become {plan.fused_nodes} of"
        f" {plan.fused_kernels}; {plan.inside} of {plan.edges} arrays stay inside of a kernel,"
        f" {plan.spared_mib:.1f} MiB are not moved (estimated); {plan.statements:.3g} statement instances,"
        f" {plan.memory_mib:.1f} MiB between kernels; planned in {plan.seconds:.1f} s"
    )


def shown(result: Measured) -> str:
    build = ", ".join(f"{stage} {seconds:.0f} s" for stage, seconds in result.build_s.items())
    times = ", ".join(f"{system} {us:.0f}" for system, us in result.us.items())
    absent = f"; did not run: {', '.join(result.missing)}" if result.missing else ""
    return (
        f"{result.name}: {'right' if result.right else 'WRONG'}; error at most {result.largest:.2g}"
        f" (eager {result.eager_largest:.2g}), mean {result.mean:.2g} ({result.eager_mean:.2g});"
        f" median us of a call (measured): {times}{absent}; built: {build}"
    )


if __name__ == "__main__":
    sys.exit(main())

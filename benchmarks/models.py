"""Whole models: built from nothing by passes alone, and timed beside other systems.

    python benchmarks/models.py [--models bert_base resnet50] [--target best] [--threads 1] [--plan]
        [--freeze] [--tune BUDGET] [--repeats 20] [--state build/benchmark_models] [--json]

Networks are those of ``networks.py``, with random weights. Each is exported, lowered, built and verified;
then its largest and mean error against the network in float64 stand beside those of PyTorch eager, and its
latency beside PyTorch eager and ``torch.compile``, and ONNX Runtime and OpenVINO where they are installed.
All run on the same number of threads, in turns. ``--plan`` builds nothing: it prints how many nodes become
how many kernels, and what fusion spares (estimated). Finished kernels are kept in the folder of ``--state``;
after an interruption the same command goes on. The exit code is 4 if an error is more than four times
PyTorch's, or the largest outputs stand elsewhere.
"""

from __future__ import annotations

import argparse
import io
import json
import sys
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parent))
from networks import NETWORKS, Network

import perfdojo_sdk
from perfdojo_sdk.cli.build_library import observer
from perfdojo_sdk.frontends.onnx.lowering import lower
from perfdojo_sdk.graph.folding import folded
from perfdojo_sdk.graph.graph import Graph
from perfdojo_sdk.graph.memory import plan_memory
from perfdojo_sdk.graph.passes import without_duplicates
from perfdojo_sdk.library.settings import Settings
from perfdojo_sdk.models.fusion import fused
from perfdojo_sdk.models.optimise import optimise, plan_for
from perfdojo_sdk.plugins import Plugins, load_plugins
from perfdojo_sdk.search.strategies import AUTO
from perfdojo_sdk.verify.reduced import statement_instances

#: Most times that an error may be as large as PyTorch's.
FACTOR = 4.0


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
    largest: float
    mean: float
    eager_largest: float
    eager_mean: float
    same_place: bool
    us: dict[str, float]
    """System -> median microseconds of a call."""

    @property
    def right(self) -> bool:
        near = self.largest <= FACTOR * self.eager_largest and self.mean <= FACTOR * self.eager_mean
        return near and self.same_place


def exported(network: Network) -> tuple[torch.nn.Module, torch.Tensor, bytes]:
    module, given = network.build()
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module, (given,), file, opset_version=17, input_names=["x"], output_names=["y"], dynamo=False,
            training=torch.onnx.TrainingMode.PRESERVE,
        )  # fmt: skip
    return module, given, file.getvalue()


def graph_of(content: bytes, name: str) -> Graph:
    lowered = lower(content)
    if lowered.graph is None:
        raise SystemExit(f"{name}: " + "; ".join(r.text for r in lowered.refusals))
    return replace(lowered.graph, name=name)


def planned(plugins: Plugins, target: str, name: str, freeze: bool) -> Planned:
    begin = perf_counter()
    _, _, content = exported(NETWORKS[name])
    given = without_duplicates(graph_of(content, name))
    graph = folded(given)[0] if freeze else given
    plan = plan_for(plugins, plugins.target(target), graph)
    made = fused(graph, plan)
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


def measured(plugins: Plugins, name: str, arguments: argparse.Namespace) -> Measured:
    torch.set_num_threads(arguments.threads)
    module, given, content = exported(NETWORKS[name])
    settings = replace(Settings(), threads=arguments.threads)
    if arguments.tune:
        settings = replace(settings, search=AUTO, evaluations=arguments.tune)
    folder = Path(arguments.state) / name
    graph, target = graph_of(content, name), plugins.target(arguments.target)
    result = optimise(plugins, target, graph, folder, settings, observer(), freeze=arguments.freeze)
    model = perfdojo_sdk.load_model(folder)
    x = given.numpy()
    with torch.no_grad():
        eager = module(given).numpy()
        wide = module.double()(given.double() if given.is_floating_point() else given).numpy()
        module.float()
        ours = model(x, threads=arguments.threads)
        errors = [np.abs(found - wide) for found in (ours, eager)]
        calls: dict[str, Callable[[], Any]] = {
            "perfdojo": lambda: model(x, threads=arguments.threads),
            "eager": lambda: module(given),
            **others(module, given, content, arguments.threads),
        }
        us = timed(calls, arguments.repeats)
    return Measured(
        name,
        dict(result.seconds),
        float(errors[0].max()),
        float(errors[0].mean()),
        float(errors[1].max()),
        float(errors[1].mean()),
        bool((ours.argmax(-1) == wide.argmax(-1)).all()),
        us,
    )


def others(
    module: torch.nn.Module, given: torch.Tensor, content: bytes, threads: int
) -> dict[str, Callable[[], Any]]:
    """Calls of the other systems that are installed."""
    found: dict[str, Callable[[], Any]] = {}
    try:
        compiled = torch.compile(module)
        compiled(given)
        found["compile"] = lambda: compiled(given)
    except Exception as error:  # its compiler is not there
        print(f"torch.compile does not run: {str(error)[:100]}", file=sys.stderr)
    try:
        import onnxruntime
    except ImportError:
        pass
    else:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        found["onnxruntime"] = lambda: session.run(None, {"x": given.numpy()})
    try:
        import openvino
    except ImportError:
        pass
    else:
        core = openvino.Core()
        whole = core.compile_model(core.read_model(content, b""), "CPU", {"INFERENCE_NUM_THREADS": threads})
        found["openvino"] = lambda: whole([given.numpy()])
    return found


def timed(calls: dict[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """The median time of a call in microseconds; the systems take turns."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(repeats + 1):
        for name, call in calls.items():
            begin = perf_counter()
            call()
            if turn:  # the first call warms up
                times[name].append(1e6 * (perf_counter() - begin))
    return {name: median(each) for name, each in times.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=NETWORKS, default=["bert_base", "resnet50"])
    parser.add_argument("--target", default="best")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--plan", action="store_true")
    parser.add_argument("--freeze", action="store_true")
    parser.add_argument("--tune", type=int, default=0, metavar="BUDGET")
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--state", default="build/benchmark_models")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    plugins = load_plugins(targets=[arguments.target])
    wrong = False
    for name in arguments.models:
        if arguments.plan:
            plan = planned(plugins, arguments.target, name, arguments.freeze)
            print(json.dumps(asdict(plan)) if arguments.json else shown_plan(plan), flush=True)
            continue
        result = measured(plugins, name, arguments)
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
    return (
        f"{result.name}: {'right' if result.right else 'WRONG'}; error at most {result.largest:.2g}"
        f" (eager {result.eager_largest:.2g}), mean {result.mean:.2g} ({result.eager_mean:.2g});"
        f" median us of a call (measured): {times}; built: {build}"
    )


if __name__ == "__main__":
    sys.exit(main())

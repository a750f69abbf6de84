"""Our softmax and matmul beside PyTorch, ONNX Runtime and JAX: one run, one thread, one core.

    python benchmarks/x86_peers.py [--library DIR] [--rounds 12] [--json]

Needs the extra `bench`; a peer that is not installed is named and left out. Every contender lives in
a process of its own, pinned to the same core, and they take turns, so that a busy machine slows all
of them. Each call gets the next of two sets of inputs (softmax: 100 MB a set, so that it comes from
memory; matmul: 11 MB, which a last-level cache may hold). Outputs are preallocated where the peer
can, and glibc is told to keep freed memory, since fresh pages would cost the others a multiple.
Every result is checked against float64 first. Times are measured, the roofline is estimated from
the figures of a probe on this machine.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

SHAPES = {"softmax": [(24576, 512)], "matmul": [(768, 1024), (1024, 1024)]}
PEERS = {"torch": "torch", "onnxruntime": "onnxruntime", "jax": "jax"}
CORE = max(os.sched_getaffinity(0))
QUIET_ENVIRONMENT = {
    "GLIBC_TUNABLES": "glibc.malloc.mmap_threshold=4294967296:glibc.malloc.trim_threshold=8589934592",
    "OMP_NUM_THREADS": "1",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
}

Call = Callable[[], Any]


def inputs(kernel: str, count: int) -> list[tuple[Any, ...]]:
    rng = np.random.default_rng(0)
    return [
        tuple(rng.standard_normal(s, dtype=np.float32) for s in SHAPES[kernel]) for _ in range(count)
    ]


def expected(kernel: str, given: tuple[Any, ...]) -> Any:
    wide = [a.astype(np.float64) for a in given]
    if kernel == "matmul":
        return wide[0] @ wide[1]
    e = np.exp(wide[0] - wide[0].max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


# -- contenders: each gives one call for each set of inputs; a call returns something like an array ------


def ours(kernel: str, sets: list[tuple[Any, ...]], library: str) -> list[Call]:
    import perfdojo_sdk

    function = getattr(perfdojo_sdk.load_library(library), kernel)
    outs = [function(*given, threads=1) for given in sets]
    return [lambda g=given, o=out: function(*g, out=o, threads=1) for given, out in zip(sets, outs)]


def torch(kernel: str, sets: list[tuple[Any, ...]], library: str) -> list[Call]:
    import torch as t

    t.set_num_threads(1)
    calls: list[Call] = []
    for given in sets:
        tensors = [t.from_numpy(a) for a in given]
        if kernel == "matmul":
            out = t.empty(tensors[0].shape[0], tensors[1].shape[1])
            calls.append(lambda x=tensors, o=out: t.mm(*x, out=o))
        else:
            out = t.empty_like(tensors[0])
            calls.append(lambda x=tensors, o=out: t.softmax(x[0], -1, out=o))
    return calls


def onnxruntime(kernel: str, sets: list[tuple[Any, ...]], library: str) -> list[Call]:
    import onnxruntime as ort
    from onnx import TensorProto, helper

    names = [f"i{k}" for k in range(len(SHAPES[kernel]))]
    operator, attributes = ("MatMul", {}) if kernel == "matmul" else ("Softmax", {"axis": -1})
    shape = (768, 1024) if kernel == "matmul" else SHAPES[kernel][0]
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node(operator, names, ["y"], **attributes)],
        kernel,
        [info(n, TensorProto.FLOAT, s) for n, s in zip(names, SHAPES[kernel])],
        [info("y", TensorProto.FLOAT, shape)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    model.ir_version = 10
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])

    def bound(given: tuple[Any, ...]) -> Call:
        out = np.zeros(shape, np.float32)
        binding = session.io_binding()
        for name, array in zip(names, given):
            binding.bind_input(name, "cpu", 0, np.float32, array.shape, array.ctypes.data)
        binding.bind_output("y", "cpu", 0, np.float32, shape, out.ctypes.data)

        def call() -> Any:
            session.run_with_iobinding(binding)
            return out

        return call

    return [bound(given) for given in sets]


def jax(kernel: str, sets: list[tuple[Any, ...]], library: str) -> list[Call]:
    import jax as j

    function = j.jit(j.numpy.matmul if kernel == "matmul" else lambda x: j.nn.softmax(x, -1))
    placed = [[j.device_put(a) for a in given] for given in sets]
    return [lambda x=given: function(*x).block_until_ready() for given in placed]


CONTENDERS: dict[str, Callable[[str, list[tuple[Any, ...]], str], list[Call]]] = {
    "ours": ours, "torch": torch, "onnxruntime": onnxruntime, "jax": jax,
}  # fmt: skip


def serve(name: str, kernel: str, library: str) -> None:
    """A contender's process: for each line on standard input, some timed calls on standard output."""
    os.sched_setaffinity(0, {CORE})
    sets = inputs(kernel, 2)
    calls = CONTENDERS[name](kernel, sets, library)
    error = max(
        float(np.abs(np.asarray(call(), np.float64) - expected(kernel, given)).max())
        for call, given in zip(calls, sets)
    )
    print(json.dumps({"error": error}), flush=True)
    for number, line in enumerate(sys.stdin):
        seconds = []
        for k in range(int(line)):
            call = calls[(number + k) % 2]
            begin = time.perf_counter()
            call()
            seconds.append(time.perf_counter() - begin)
        print(json.dumps(seconds[1:]), flush=True)  # the first call of a turn warms up


def race(kernel: str, library: str, rounds: int, names: list[str]) -> dict[str, list[float]]:
    environment = {**os.environ, **QUIET_ENVIRONMENT}
    processes = {
        name: subprocess.Popen(
            [sys.executable, __file__, "--serve", name, kernel, library],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
        )
        for name in names
    }  # fmt: skip
    times: dict[str, list[float]] = {}
    for name, process in processes.items():
        assert process.stdout is not None
        first = process.stdout.readline()
        if not first:
            raise SystemExit(f"{name} died on {kernel}")
        error = json.loads(first)["error"]
        if not error < 1e-3:
            raise SystemExit(f"{name} is wrong on {kernel}: off by {error}")
        times[name] = []
    for _ in range(rounds):
        for name, process in processes.items():
            assert process.stdin is not None and process.stdout is not None
            process.stdin.write("6\n")
            process.stdin.flush()
            times[name] += json.loads(process.stdout.readline())
    for process in processes.values():
        process.communicate()
    return times


def build(directory: Path) -> None:
    command = ["build-library", "--kernels", "softmax matmul", "--threads", "1", "--output", str(directory)]
    subprocess.run([sys.executable, "-m", "perfdojo_sdk.cli", *command], check=True)


def roofline(kernel: str, threads: int = 1) -> tuple[float, str]:
    from perfdojo_sdk.kernels.selection import select
    from perfdojo_sdk.plugins import load_plugins

    plugins = load_plugins()
    target = plugins.require("best")
    program = select([kernel], plugins.operators)[0].program
    bound = plugins.roofline_bound(program, target, threads, plugins.machine_figures(target))
    assert bound is not None
    return bound.seconds, bound.limit


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--library", help="a built library; made anew where there is none")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--serve", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve(*arguments.serve)
        return
    names = ["ours", *(n for n, module in PEERS.items() if importlib.util.find_spec(module))]
    for name in sorted(set(PEERS) - set(names)):
        print(f"{name} is not installed and left out", file=sys.stderr)
    with tempfile.TemporaryDirectory() as scratch:
        library = arguments.library
        if not library:
            build(Path(scratch, "library"))
            library = str(Path(scratch, "library"))
        report: dict[str, Any] = {}
        for kernel in SHAPES:
            times = race(kernel, library, arguments.rounds, names)
            bound, limit = roofline(kernel)
            report[kernel] = {
                "roofline_s": bound, "limit": limit,
                "median_s": {n: statistics.median(t) for n, t in times.items()},
                "best_s": {n: min(t) for n, t in times.items()},
            }  # fmt: skip
    if arguments.json:
        print(json.dumps(report, indent=1))
        return
    for kernel, found in report.items():
        mine = found["median_s"]["ours"]
        print(f"{kernel}: roofline {1e3 * found['roofline_s']:.3g} ms ({found['limit']}, estimated)")
        for name in found["median_s"]:
            median, best = found["median_s"][name], found["best_s"][name]
            flops = f"  {2 * 768 * 1024 * 1024 / median / 1e9:6.1f} GFLOP/s" if kernel == "matmul" else ""
            print(
                f"  {name:12} median {1e3 * median:7.3f} ms  best {1e3 * best:7.3f} ms  "
                f"{median / mine:5.2f}x ours  {100 * found['roofline_s'] / median:4.0f} % of roofline{flops}"
            )


if __name__ == "__main__":
    main()

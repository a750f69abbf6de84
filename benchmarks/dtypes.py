"""Dtypes besides f32, and operators bound by memory: our kernels beside PyTorch, ONNX Runtime and OpenVINO.

    python benchmarks/dtypes.py [--rows int8,gelu] [--threads 1,2] [--state build/dtypes.json] [--json]

Each system runs in a process of its own on the same inputs; they take turns, so that a busy machine slows
all of them. PyTorch's products of short dtypes are oneDNN's; that of u8 has its weights laid out beforehand.
Results are compared with NumPy in float64. Of several ways that a system has, the fastest takes part; of our
games, too. Peers that are not installed are left out (pip install torch onnx onnxruntime openvino). A peak is
measured by a loop of the instruction. Each row is saved when it is finished: after Ctrl-C, the same command
goes on. Weights of a single row are those of a linear layer, a row for each output.

Times are medians, measured. Where a peer is within 15 % of the peak, 0.95 of its speed is asked for.
"""

from __future__ import annotations

import ctypes
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp, log
from pathlib import Path
from typing import Any

import numpy as np

if not __package__:
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.systems_race import Array, Call, command, numbers, timed

SYSTEMS = {"ours": "perfdojo-sdk", "torch": "torch", "onnxruntime": "onnxruntime", "openvino": "openvino"}
NEAR_PEAK = 0.85
SAMPLE = 256
"""Elements of a result that are compared."""
HALF_OF_F16 = 2.0**-11
"""The rounding of a number to f16, relative to it. Products of f16 may be wrong by no more; those that a
system computes in bf16 are."""


# -- rows --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """One operator: its program, and what a system is told about it."""

    name: str
    kind: str
    text: str
    operations: int = 0
    """Multiplications and additions; 0 for what memory bounds."""
    unit: str = ""
    """The instruction whose loop is the peak."""
    pads: int = 0
    groups: int = 1
    tolerance: float = 1e-5
    """Relative to the largest magnitude of the result."""

    @property
    def linear(self) -> bool:
        """True if the weights have a row for each output."""
        return self.kind == "matmul" and " 1x" in self.name


def product(
    name: str, m: int, n: int, k: int, one: str, other: str, total: str, unit: str, error: float
) -> Row:
    linear = m == 1
    places = (("x", "{0},{2}"), ("w", "{1},{2}" if linear else "{2},{1}"))
    factors = [f"{a}[{at}]" for a, at in places]
    pairs = zip(factors, (one, other), strict=True)
    value = " * ".join(factor if dtype == total else f"{total}({factor})" for factor, dtype in pairs)
    shape = f"{n},{k}" if linear else f"{k},{n}"
    text = (
        f"kernel {name}(x, w) -> y\nx {one} [{m},{k}] heap\nw {other} [{shape}] heap\n"
        f"y {total} [{m},{n}] heap\n\n"
        f"{m} {n}\n| y[{{0}},{{1}}] = 0\n| {k} y[{{0}},{{1}}] += {value}\n"
    )
    return Row(f"{name} {m}x{n}x{k}", "matmul", text, 2 * m * n * k, unit, tolerance=error)


def elementwise(name: str, value: str) -> Row:
    head = f"kernel {name}(x) -> y\nx f32 [4096,4096] heap\ny f32 [4096,4096] heap\n\n"
    return Row(f"{name} 4096x4096", name, f"{head}4096 4096 y[{{0}},{{1}}] = {value}\n")


def convolution(
    name: str, channels: int, filters: int, size: int, side: int, stride: int, groups: int
) -> Row:
    """A convolution of a padded copy of the image, as the front ends write it: each channel alone, or all."""
    pad, out, wide = side // 2, (size - 1) // stride + 1, size + 2 * (side // 2)
    own = groups > 1
    inner = f"{side} {side}" if own else f"{channels} {side} {side}"
    c, p, q = ("{0}", "{3}", "{4}") if own else ("{3}", "{4}", "{5}")
    step = f"*{stride}" if stride > 1 else ""
    taps = f"w[{{0}},{p},{q}]" if own else f"w[{{0}},{{3}},{p},{q}]"
    shape = f"{filters},{side},{side}" if own else f"{filters},{channels},{side},{side}"
    text = (
        f"kernel conv(x, w) -> y\nx f32 [{channels},{size},{size}] heap\nw f32 [{shape}] heap\n"
        f"y f32 [{filters},{out},{out}] heap\np f32 [{channels},{wide},{wide}] heap\n\n"
        f"{channels} {wide} {wide} p[{{0}},{{1}},{{2}}] = 0\n"
        f"{channels} {size} {size} p[{{0}},{{1}}+{pad},{{2}}+{pad}] = x[{{0}},{{1}},{{2}}]\n"
        f"{filters} {out} {out}\n| y[{{0}},{{1}},{{2}}] = 0\n"
        f"| {inner} y[{{0}},{{1}},{{2}}] += p[{c},{{1}}{step}+{p},{{2}}{step}+{q}] * {taps}\n"
    )
    work = 2 * filters * out * out * side * side * (1 if own else channels)
    return Row(f"{name} {channels}x{size}x{size}", "conv", text, work, "f32", pad, groups, tolerance=1e-4)


def rows() -> Iterator[Row]:
    for m, n, k in ((768, 1024, 1024), (1, 4096, 4096)):
        yield product("f64", m, n, k, "f64", "f64", "f64", "f64", 1e-12)
        yield product("bf16", m, n, k, "bf16", "bf16", "f32", "bf16", 1e-2)
        yield product("int8", m, n, k, "u8", "i8", "i32", "u8", 0)
        yield product("int8_signed", m, n, k, "i8", "i8", "i32", "u8", 0)
        yield product("f16", m, n, k, "f16", "f16", "f32", "f32", HALF_OF_F16)
    yield elementwise("gelu", "x[{0},{1}] * 0.5 * (1 + erf(x[{0},{1}] * 0.70710678))")
    yield elementwise("tanh", "tanh(x[{0},{1}])")
    yield elementwise("sigmoid", "sigmoid(x[{0},{1}])")
    head = "f32 [4096,4096] heap"
    yield Row(
        "logsoftmax 4096x4096",
        "logsoftmax",
        f"kernel logsoftmax(x) -> y\nx {head}\nm f32 [4096] heap\ns f32 [4096] heap\ny {head}\n\n"
        "4096\n| m[{0}] = -inf\n| 4096 m[{0}] max= x[{0},{1}]\n"
        "4096\n| s[{0}] = 0\n| 4096 s[{0}] += exp(x[{0},{1}] - m[{0}])\n"
        "4096 4096 y[{0},{1}] = x[{0},{1}] - m[{0}] - log(s[{0}])\n",
    )
    yield Row(
        "gather 50000x768",
        "gather",
        "kernel gather(x, k) -> y\nx f32 [50000,768] heap\nk i64 [50000] heap\ny f32 [50000,768] heap\n\n"
        "50000 768 y[{0},{1}] = x[clamp(k[{0}], 0, 49999),{1}]\n",
        tolerance=0,
    )
    yield Row(
        "transpose 4096x4096",
        "transpose",
        f"kernel transpose(x) -> y\nx {head}\ny {head}\n\n4096 4096 y[{{0}},{{1}}] = x[{{1}},{{0}}]\n",
        tolerance=0,
    )
    yield Row(
        "cumsum 4096x4096",
        "cumsum",
        f"kernel cumsum(x) -> y\nx {head}\ny {head}\n\n4096 y[{{0}},0] = x[{{0}},0]\n"
        "4096 4095 y[{0},{1}+1] = y[{0},{1}] + x[{0},{1}+1]\n",
        tolerance=1e-4,
    )
    yield convolution("depthwise", 144, 144, 56, 3, 1, 144)
    yield convolution("depthwise_stride2", 96, 96, 112, 3, 2, 96)
    yield convolution("resnet_conv", 64, 64, 56, 3, 1, 1)
    yield convolution("resnet_conv", 256, 256, 14, 3, 1, 1)


ROWS = {row.name: row for row in rows()}


def inputs_of(row: Row) -> dict[str, tuple[str, Array]]:
    """Name -> dtype and values, as kernels take them: bf16 as 16 bits."""
    rng, found = np.random.default_rng(0), {}
    outputs = row.text.splitlines()[0].split("->")[1].split()
    given = row.text.splitlines()[0].split("(")[1].split(")")[0].replace(",", " ").split()
    for line in row.text.splitlines()[1:]:
        if not line:
            break
        name, dtype, shape = line.split()[:3]
        if name in outputs or name not in given:
            continue
        sizes = tuple(map(int, shape.strip("[]").split(",")))
        if dtype == "i64":
            values: Array = rng.integers(0, 50000, sizes)
        elif dtype[0] in "iu":
            values = rng.integers(np.iinfo(_NUMPY[dtype]).min, np.iinfo(_NUMPY[dtype]).max + 1, sizes)
        else:
            values = rng.standard_normal(sizes, np.float32)
        if dtype == "bf16":
            found[name] = dtype, (values.view(np.uint32) >> 16).astype(np.uint16)
        else:
            found[name] = dtype, values.astype(_NUMPY[dtype])
    return found


_NUMPY = {
    "f64": np.float64, "f32": np.float32, "f16": np.float16, "bf16": np.uint16,
    "u8": np.uint8, "i8": np.int8, "i32": np.int32, "i64": np.int64,
}  # fmt: skip


def reference(row: Row, chosen: Array) -> Array:
    """The elements of the result at these flat places, in float64."""
    given = {name: _wide(*pair) for name, pair in inputs_of(row).items()}
    x = given["x"]
    match row.kind:
        case "matmul":
            w = given["w"].T if row.linear else given["w"]
            r, c = np.divmod(chosen, w.shape[1])
            return np.einsum("ij,ji->i", x[r], w[:, c])
        case "gather":
            r, c = np.divmod(chosen, x.shape[1])
            return x[given["k"].astype(np.int64)[r], c]
        case "transpose":
            return x.T.ravel()[chosen]
        case "conv":
            return _convolved(row, x, given["w"], chosen)
    r, c = np.divmod(chosen, x.shape[1])
    if row.kind == "logsoftmax":
        some = x[r]
        most = some.max(1)
        return x[r, c] - most - np.log(np.exp(some - most[:, None]).sum(1))
    if row.kind == "cumsum":
        return np.array([x[i, : j + 1].sum() for i, j in zip(r, c, strict=True)])
    v = x[r, c]
    if row.kind == "gelu":
        from math import erf

        return np.array([0.5 * t * (1 + erf(t * 0.5**0.5)) for t in v])
    return np.tanh(v) if row.kind == "tanh" else 1 / (1 + np.exp(-v))


def _wide(dtype: str, values: Array) -> Array:
    if dtype == "bf16":
        return (values.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return values.astype(np.float64)


def _convolved(row: Row, x: Array, w: Array, chosen: Array) -> Array:
    out = tuple(map(int, row.text.splitlines()[3].split()[2].strip("[]").split(",")))
    stride = -(-x.shape[1] // out[1])
    padded = np.pad(x, ((0, 0), (row.pads,) * 2, (row.pads,) * 2))
    side, found = w.shape[-1], []
    for f, r, c in zip(*np.unravel_index(chosen, out), strict=True):
        block = padded[:, r * stride : r * stride + side, c * stride : c * stride + side]
        found.append((block[f] * w[f]).sum() if row.groups > 1 else (block * w[f]).sum())
    return np.array(found)


def places(row: Row, cells: int) -> Array:
    drawn = np.random.default_rng(1).integers(0, cells, SAMPLE)
    return np.concatenate([[0, cells - 1], drawn])


# -- systems, each in a process of its own ----------------------------------------------------------


def ours(row: Row, threads: int) -> dict[str, Call]:
    """Our expert's games, compiled; precision is given up where the row is about a shorter dtype."""
    from perfdojo_sdk.core.text import parse
    from perfdojo_sdk.core.transformation import Kind
    from perfdojo_sdk.hookspecs.types import Artifact
    from perfdojo_sdk.plugins import load_plugins

    plugins = load_plugins()
    target = plugins.require("best")
    rules = plugins.rules(target)
    if "bf16" in row.text:
        rules = replace(rules, most=Kind.CHANGES_PRECISION)
    expert, generator, runner = (
        plugins.heuristic_pass(target),
        plugins.code_generator(target),
        plugins.runner(target),
    )
    assert expert is not None
    found: dict[str, Call] = {}
    arrays = [_aligned(values) for _, values in inputs_of(row).values()]
    folder = tempfile.mkdtemp()
    for number, trace in enumerate(expert(parse(row.text, target.dialect), rules, target)):
        made = runner.compile(generator.generate(trace.program, "kernel"))
        if isinstance(made, Artifact):
            path = Path(folder, f"{number}.so")
            path.write_bytes(made.content)
            found[f"game {number}"] = _kernel(path, made, arrays, threads)
    return found


def _kernel(path: Path, made: Any, arrays: Sequence[Array], threads: int) -> Call:
    library = ctypes.CDLL(str(path))
    query = library["kernel_workspace_bytes"]
    query.restype = ctypes.c_size_t
    size = query(ctypes.c_int(threads))
    workspace = _aligned(np.zeros(size + 64, np.uint8))
    results = [_aligned(np.zeros(s.shape, _NUMPY[s.dtype])) for s in made.outputs]
    kept = (*arrays, *results, workspace)

    def call() -> Array:
        pointers = [ctypes.c_void_p(a.ctypes.data) for a in kept]
        code = library["kernel"](*pointers, ctypes.c_size_t(size), ctypes.c_int(threads))
        if code:
            raise RuntimeError(f"the kernel returned {code}")
        return results[0]

    return call


def _aligned(values: Array) -> Array:
    raw = np.zeros(values.nbytes + 64, np.uint8)
    start = -raw.ctypes.data % 64
    view = raw[start : start + values.nbytes].view(values.dtype).reshape(values.shape)
    view[...] = values
    return view


def torch(row: Row, threads: int) -> dict[str, Call]:
    import torch
    import torch.nn.functional as F

    torch.set_num_threads(threads)
    given = {}
    for name, (dtype, values) in inputs_of(row).items():
        tensor = torch.from_numpy(values.copy())
        given[name] = tensor.view(torch.bfloat16) if dtype == "bf16" else tensor
    x, w, k = (given.get(name) for name in "xwk")
    match row.kind:
        case "matmul":
            return _torch_products(torch, row, x, w)
        case "conv":
            assert w is not None and x is not None
            taps = w.unsqueeze(1) if row.groups > 1 else w
            stride = -(-x.shape[1] // int(row.text.splitlines()[3].split(",")[1]))
            plain = lambda v, t: F.conv2d(v, t, None, stride, row.pads, 1, row.groups)  # noqa: E731
            image = x.unsqueeze(0)
            last = image.contiguous(memory_format=torch.channels_last)
            return {"planes": lambda: plain(image, taps), "channels last": lambda: plain(last, taps)}
        case "gather":
            return {
                "index_select": lambda: torch.index_select(x, 0, k),
                "embedding": lambda: F.embedding(k, x),
            }
        case "transpose":
            return {"contiguous": lambda: x.t().contiguous()}
        case "cumsum":
            return {"cumsum": lambda: torch.cumsum(x, -1)}
        case "logsoftmax":
            return {"log_softmax": lambda: torch.log_softmax(x, -1)}
        case "gelu":
            return {"gelu": lambda: F.gelu(x)}
    return {row.kind: lambda: getattr(torch, row.kind)(x)}


def _torch_products(torch: Any, row: Row, x: Any, w: Any) -> dict[str, Call]:
    if row.linear:
        w = w.t()
    if "u8" in row.text:
        # oneDNN's quantised product, with weights that it may lay out beforehand.
        scale, zero = torch.tensor(1.0), torch.tensor(0)
        packed = torch.ops.onednn.qlinear_prepack(w.t().contiguous(), list(x.shape))
        ones, zeros = torch.ones(w.shape[1]), torch.zeros(w.shape[1], dtype=torch.int32)
        return {
            "oneDNN": lambda: torch.ops.onednn.qlinear_pointwise(
                x, scale, zero, packed, ones, zeros, None, 1.0, 0, torch.float32, "none", [], ""
            )
        }
    if "i8" in row.text:
        return {"_int_mm": lambda: torch._int_mm(x, w)}
    linear = {"linear": lambda: torch.nn.functional.linear(x, w.t())} if row.linear else {}
    return {"mm": lambda: torch.mm(x, w), **linear}


def _onnx_model(row: Row) -> bytes:
    from onnx import TensorProto, helper

    kinds = {
        "f64": TensorProto.DOUBLE, "f32": TensorProto.FLOAT, "f16": TensorProto.FLOAT16,
        "u8": TensorProto.UINT8, "i8": TensorProto.INT8, "i64": TensorProto.INT64,
    }  # fmt: skip
    given = inputs_of(row)
    if any(dtype == "bf16" for dtype, _ in given.values()):
        raise NotImplementedError("it has no product of bf16 on CPUs")
    shapes = {n: (1, *v.shape) if row.kind == "conv" and n == "x" else v.shape for n, (_, v) in given.items()}
    if row.linear:
        shapes["w"] = shapes["w"][::-1]
    if row.groups > 1:
        shapes["w"] = (shapes["w"][0], 1, *shapes["w"][1:])
    entries = [helper.make_tensor_value_info(n, kinds[d], shapes[n]) for n, (d, _) in given.items()]
    result, constants = kinds.get(given["x"][0], TensorProto.FLOAT), []
    match row.kind:
        case "matmul" if row.name.startswith("int8"):
            node, result = helper.make_node("MatMulInteger", ["x", "w"], ["y"]), TensorProto.INT32
        case "matmul":
            node = helper.make_node("MatMul", ["x", "w"], ["y"])
        case "conv":
            stride = -(-shapes["x"][2] // int(row.text.splitlines()[3].split(",")[1]))
            node = helper.make_node(
                "Conv", ["x", "w"], ["y"], pads=[row.pads] * 4, group=row.groups, strides=[stride] * 2
            )
        case "gather":
            node = helper.make_node("Gather", ["x", "k"], ["y"], axis=0)
        case "transpose":
            node = helper.make_node("Transpose", ["x"], ["y"], perm=[1, 0])
        case "cumsum":
            node = helper.make_node("CumSum", ["x", "axis"], ["y"])
            constants = [helper.make_tensor("axis", TensorProto.INT64, [], [1])]
        case "logsoftmax":
            node = helper.make_node("LogSoftmax", ["x"], ["y"], axis=-1)
        case name:
            node = helper.make_node(name.capitalize(), ["x"], ["y"])
    graph = helper.make_graph(
        [node], "row", entries, [helper.make_tensor_value_info("y", result, None)], constants
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    return bytes(model.SerializeToString())


def _onnx_inputs(row: Row) -> dict[str, Array]:
    found = {name: values for name, (_, values) in inputs_of(row).items()}
    if row.linear:
        found["w"] = np.ascontiguousarray(found["w"].T)  # the operator has no other layout
    if row.kind == "conv":
        found["x"] = found["x"][None]
        found["w"] = found["w"][:, None] if row.groups > 1 else found["w"]
    return found


def onnxruntime(row: Row, threads: int) -> dict[str, Call]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    session = onnxruntime.InferenceSession(_onnx_model(row), options, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    kept = _onnx_inputs(row)
    for name, values in kept.items():
        binding.bind_cpu_input(name, values)
    binding.bind_output("y")

    def call() -> Any:
        session.run_with_iobinding(binding)  # reads `kept`, which the call keeps alive
        return binding if kept else None

    return {"session": call}


def openvino(row: Row, threads: int) -> dict[str, Call]:
    import openvino

    core = openvino.Core()
    settings = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY", "NUM_STREAMS": 1}
    kept = {
        n: openvino.Tensor(np.ascontiguousarray(v), shared_memory=True) for n, v in _onnx_inputs(row).items()
    }

    def prepared(precision: Mapping[str, str]) -> Call:
        compiled = core.compile_model(core.read_model(_onnx_model(row)), "CPU", {**settings, **precision})
        request = compiled.create_infer_request()
        for name, tensor in kept.items():
            request.set_tensor(name, tensor)

        def call() -> Any:
            request.infer()  # reads `kept`
            return request if kept and compiled else None

        return call

    ways = {"in f32": {"INFERENCE_PRECISION_HINT": "f32"}}
    if "f16" in row.text:
        ways["in its own precision"] = {}  # bf16, where the processor has it
    return {way: prepared(precision) for way, precision in ways.items()}


def _prepared(system: str, name: str, threads: int) -> tuple[Call, dict[str, Any]]:
    row = ROWS[name]
    best: tuple[float, str, Call] | None = None
    wrong = "no way to compute it"
    for name, call in globals()[system](row, threads).items():
        try:
            found = numbers(call()).ravel()
        except Exception as problem:
            wrong = str(problem).splitlines()[0][:200]
            continue
        chosen = places(row, found.size)
        meant = reference(row, chosen)
        error = float(np.abs(found[chosen].astype(np.float64) - meant).max() / np.abs(meant).max())
        # A product in floats of what integers would hold exactly has their rounding.
        allowed = max(row.tolerance, 1e-6 if found.dtype.kind == "f" and row.name.startswith("int8") else 0)
        if not error <= allowed:
            wrong = f"{name} is wrong: {error:.1e}"
            continue
        seconds = min(timed(call, 0.1))
        if best is None or seconds < best[0]:
            best = seconds, name, call
    if best is None:
        raise RuntimeError(wrong)
    return best[2], {"way": best[1]}


# -- the race ----------------------------------------------------------------------------------------


PEAK = r"""
#include <stdio.h>
#include <time.h>
#define R(I, k) I " %%zmm30, %%zmm31, %%zmm" #k "\n\t"
#define ALL(I) \
    R(I, 0) R(I, 1) R(I, 2) R(I, 3) R(I, 4) R(I, 5) R(I, 6) R(I, 7) R(I, 8) R(I, 9) R(I, 10) R(I, 11)
int main(void)
{
    double best = 0;
    for (int r = 0; r < 30; r++) {
        struct timespec a, b;
        long n = 500000;
        clock_gettime(CLOCK_MONOTONIC, &a);
        __asm__ volatile("1:\n\t" ALL(INSTRUCTION) "dec %0\n\tjnz 1b"
                         : "+r"(n)::"xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8",
                           "xmm9", "xmm10", "xmm11");
        clock_gettime(CLOCK_MONOTONIC, &b);
        double seconds = b.tv_sec - a.tv_sec + 1e-9 * (b.tv_nsec - a.tv_nsec);
        double rate = 500000.0 * 12 * 2 * PRODUCTS / seconds / 1e9;
        best = rate > best ? rate : best;
    }
    printf("%f\n", best);
}
"""
UNITS = {
    "u8": ("vpdpbusd", 64),
    "bf16": ("vdpbf16ps", 32),
    "f32": ("vfmadd231ps", 16),
    "f64": ("vfmadd231pd", 8),
}


def peaks() -> dict[str, float]:
    """Billions of operations per second of one thread, of the instructions that this processor has."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "peak.c").write_text(PEAK)
        for unit, (instruction, products) in UNITS.items():
            defined = [f'-DINSTRUCTION="{instruction}"', f"-DPRODUCTS={products}"]
            command = ["gcc", "-O2", *defined, "-o", f"{folder}/peak", f"{folder}/peak.c"]
            try:
                subprocess.run(command, check=True, capture_output=True, timeout=60)
                run = subprocess.run(
                    [f"{folder}/peak"], check=True, capture_output=True, text=True, timeout=60
                )
                found[unit] = float(run.stdout)
            except (OSError, subprocess.SubprocessError):
                continue
    return found


def asked(best: float, row: Row, peak: float | None, threads: int) -> float:
    """The part of the fastest peer's speed that we have to reach."""
    if row.operations and peak and row.operations / best * 1e-6 > NEAR_PEAK * peak * threads:
        return 0.95
    return 1.0


def summary(state: Mapping[str, Any]) -> Iterator[str]:
    """The table, and the geometric mean of our speed over that of the fastest peer."""
    ratios = []
    for key, found in state["rows"].items():
        name, threads = key.rsplit(" on ", 1)
        row, times = ROWS[name], {s: v["ms"] for s, v in found.items() if "ms" in v}
        peers = {s: ms for s, ms in times.items() if s != "ours"}
        parts = [f"{s} {ms:.3f} ms" for s, ms in times.items()]
        line = f"{key:34} {', '.join(parts)}"
        if row.operations and "ours" in times:
            peak = state["peaks"].get(row.unit)
            rate = row.operations / times["ours"] * 1e-6
            line += f"; {rate:.0f} G/s" + (f" of {peak * int(threads):.0f}" if peak else "")
        if peers and "ours" in times:
            best = min(peers.values())
            ratios.append(best / times["ours"])
            least = asked(best, row, state["peaks"].get(row.unit), int(threads))
            line += f"; {ratios[-1]:.2f}x" + ("" if ratios[-1] >= least else f" (below {least:.2f})")
        yield line
    if ratios:
        yield f"geometric mean of {len(ratios)}: {exp(sum(map(log, ratios)) / len(ratios)):.2f}x"


def _peaks(state: Mapping[str, Any]) -> dict[str, Any]:
    return {"peaks": state.get("peaks") or peaks()}


if __name__ == "__main__":
    raise SystemExit(command(__file__, __doc__, list(ROWS), SYSTEMS, _prepared, summary, _peaks))

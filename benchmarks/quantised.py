"""Quantised layers: our packages beside ONNX Runtime, OpenVINO, PyTorch and ggml.

    python benchmarks/quantised.py [--rows qdq,blocks] [--threads 1,2] [--state build/quantised.json] [--json]

A row is a model of ONNX: a product of matrices or a convolution of bytes between DequantizeLinear and
QuantizeLinear (QDQ), a product that is quantised dynamically, or a product with weights of few bits in blocks
(MatMulNBits) for one token or for 128. Ours is the verified package that `optimize --freeze` makes, in
build/quantised, with its call from Python; ONNX Runtime and OpenVINO take the same file. PyTorch's are
oneDNN's quantised operators, with weights laid out beforehand; ggml's is its product with Q4_0, which rounds
the input to bytes. Each result is compared with NumPy in float64: integers may be one step off, floats as far
as the row says.

Systems run in processes of their own and take turns. Those that are not installed are left out (pip install
torch onnx onnxruntime openvino libggml-python). Times are medians, measured.
"""

from __future__ import annotations

import ctypes
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import exp, log
from pathlib import Path
from typing import Any

import numpy as np

if not __package__:
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.systems_race import Array, Call, command, numbers

SYSTEMS = {
    "ours": "perfdojo-sdk", "torch": "torch", "onnxruntime": "onnxruntime", "openvino": "openvino",
    "ggml": "libggml-python",
}  # fmt: skip
FOLDER = Path("build", "quantised")
STEP = 1.0
"""One step of a quantised result."""


@dataclass(frozen=True)
class Row:
    """One layer."""

    name: str
    kind: str
    operations: int
    make: Callable[[], Data]
    tolerance: float
    """The difference that is allowed: for floats relative to the largest magnitude, for integers in steps."""


@dataclass(frozen=True)
class Data:
    """A layer's nodes, input and constants, and its result in float64."""

    nodes: tuple[tuple[Any, ...], ...]
    """Operator, inputs, outputs, attributes."""
    x: Array
    constants: Mapping[str, Array]
    meant: Array
    """In steps of the result, if that is quantised."""


SX, SY, ZX, ZY = np.float32(0.02), np.float32(0.05), np.uint8(121), np.uint8(130)


def _quantised(shape: tuple[int, ...], weights: tuple[int, ...], channels: int) -> dict[str, Array]:
    rng = np.random.default_rng(0)
    return {
        "x": rng.integers(0, 256, shape).astype(np.uint8),
        "w": rng.integers(-127, 128, weights).astype(np.int8),
        "sw": (0.4 + rng.random(channels)).astype(np.float32) / np.float32(40 * np.prod(shape[1:2]) ** 0.5),
        "sx": np.asarray(SX), "sy": np.asarray(SY), "zx": np.asarray(ZX), "zy": np.asarray(ZY),
    }  # fmt: skip


def _steps(total: Array) -> Array:
    return np.clip(np.rint(total) + int(ZY), 0, 255)


def qdq_product(m: int, n: int, k: int) -> Data:
    given = _quantised((m, k), (k, n), n)
    nodes = (
        ("DequantizeLinear", ("x", "sx", "zx"), ("xf",), {}),
        ("DequantizeLinear", ("w", "sw"), ("wf",), {"axis": 1}),
        ("MatMul", ("xf", "wf"), ("p",), {}),
        ("QuantizeLinear", ("p", "sy", "zy"), ("y",), {}),
    )
    exact = (given["x"].astype(np.float64) - float(ZX)) @ given["w"].astype(np.float64)
    meant = _steps(exact * given["sw"].astype(np.float64) * float(SX) / float(SY))
    return Data(nodes, given.pop("x"), given, meant)


def qdq_convolution(channels: int, filters: int, size: int, side: int) -> Data:
    given = _quantised((1, channels, size, size), (filters, channels, side, side), filters)
    nodes = (
        ("DequantizeLinear", ("x", "sx", "zx"), ("xf",), {}),
        ("DequantizeLinear", ("w", "sw"), ("wf",), {"axis": 0}),
        ("Conv", ("xf", "wf"), ("p",), {"pads": [side // 2] * 4}),
        ("QuantizeLinear", ("p", "sy", "zy"), ("y",), {}),
    )
    pad = ((0, 0), (side // 2,) * 2, (side // 2,) * 2)
    image, w = np.pad(given["x"][0].astype(np.float64) - float(ZX), pad), given["w"].astype(np.float64)
    exact = np.zeros((filters, size * size))
    for r in range(side):
        for c in range(side):
            exact += w[:, :, r, c] @ image[:, r : r + size, c : c + size].reshape(channels, -1)
    meant = _steps(exact * given["sw"].astype(np.float64)[:, None] * float(SX) / float(SY))
    return Data(nodes, given.pop("x"), given, meant.reshape(1, filters, size, size))


def dynamic_product(m: int, n: int, k: int) -> Data:
    given = _quantised((m, k), (k, n), n)
    x = np.random.default_rng(1).standard_normal((m, k)).astype(np.float32)
    nodes = (
        ("DynamicQuantizeLinear", ("x",), ("q", "s", "z"), {}),
        ("MatMulInteger", ("q", "w", "z"), ("i",), {}),
        ("Cast", ("i",), ("f",), {"to": 1}),
        ("Mul", ("s", "sw"), ("ss",), {}),
        ("Mul", ("f", "ss"), ("y",), {}),
    )
    w = given["w"].astype(np.float64) * given["sw"]
    return Data(nodes, x, {name: given[name] for name in ("w", "sw")}, x.astype(np.float64) @ w)


def blocks(m: int, n: int, k: int, bits: int, block: int) -> Data:
    rng = np.random.default_rng(0)
    numbers = rng.integers(0, 2**bits, (n, k // block, block))
    scales = (rng.random((n, k // block)).astype(np.float16) / np.float16(64)).astype(np.float32)
    x = rng.standard_normal((m, k)).astype(np.float32)
    packed = numbers if bits == 8 else numbers[..., ::2] | numbers[..., 1::2] << 4
    more = {"K": k, "N": n, "bits": bits, "block_size": block, "domain": "com.microsoft"}
    weights = ((numbers - 2 ** (bits - 1)) * scales[..., None].astype(np.float64)).reshape(n, k)
    constants = {"w": packed.astype(np.uint8), "sw": scales.reshape(-1)}
    return Data((("MatMulNBits", ("x", "w", "sw"), ("y",), more),), x, constants, x @ weights.T)


def rows() -> Iterator[Row]:
    for m, n, k in ((128, 3072, 768), (1, 4096, 4096)):
        size = 2 * m * n * k
        yield Row(f"qdq {m}x{n}x{k}", "product", size, lambda m=m, n=n, k=k: qdq_product(m, n, k), STEP)
    yield Row(
        "dynamic 128x3072x768", "dynamic", 2 * 128 * 3072 * 768, lambda: dynamic_product(128, 3072, 768), 0.05
    )
    for c, f, s, side in ((64, 64, 56, 3), (256, 64, 56, 1), (256, 256, 14, 3)):
        yield Row(
            f"qdq conv {c}x{s}x{s} {f}x{side}x{side}", "conv", 2 * c * f * s * s * side * side,
            lambda c=c, f=f, s=s, side=side: qdq_convolution(c, f, s, side), STEP,
        )  # fmt: skip
    for m, bits, block in ((1, 4, 32), (1, 4, 128), (1, 8, 32), (1, 8, 128), (128, 4, 32), (128, 8, 32)):
        yield Row(
            f"blocks {m}x4096x4096 {bits} bits of {block}", "blocks", 2 * m * 4096 * 4096,
            lambda m=m, bits=bits, block=block: blocks(m, 4096, 4096, bits, block), 1e-4,
        )  # fmt: skip


ROWS = {row.name: row for row in rows()}


def model_of(data: Data) -> bytes:
    from onnx import helper, numpy_helper

    nodes = [helper.make_node(op, list(i), list(o), **more) for op, i, o, more in data.nodes]
    given = helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(data.x.dtype), data.x.shape)
    quantised = data.nodes[-1][0] == "QuantizeLinear"
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(np.uint8 if quantised else np.float32))
    result = helper.make_tensor_value_info("y", kind, data.meant.shape)
    constants = [numpy_helper.from_array(value, name) for name, value in data.constants.items()]
    graph = helper.make_graph(nodes, "row", [given], [result], constants)
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
    return bytes(helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString())


# -- systems, each in a process of its own ----------------------------------------------------------


def ours(row: Row, data: Data, threads: int) -> Call:
    from dataclasses import replace

    import perfdojo_sdk
    from perfdojo_sdk.frontends.onnx.lowering import lower
    from perfdojo_sdk.library.settings import Settings
    from perfdojo_sdk.models.optimise import optimise
    from perfdojo_sdk.plugins import load_plugins

    folder = FOLDER / re.sub(r"[^a-z0-9]+", "_", f"{row.name} on {threads}")
    if not (folder / "model.json").exists():
        graph, plugins = lower(model_of(data)).graph, load_plugins()
        assert graph is not None
        settings = replace(Settings(), threads=threads)
        optimise(plugins, plugins.require("best"), graph, folder, settings, freeze=True)
    model = perfdojo_sdk.load_model(folder)
    return lambda: model(data.x, threads=threads)


def onnxruntime(row: Row, data: Data, threads: int) -> Call:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    session = onnxruntime.InferenceSession(model_of(data), options, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, {"x": data.x})[0]


def openvino(row: Row, data: Data, threads: int) -> Call:
    import openvino

    core = openvino.Core()
    settings = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY", "NUM_STREAMS": 1}
    settings["INFERENCE_PRECISION_HINT"] = "f32"
    compiled = core.compile_model(core.read_model(model_of(data)), "CPU", settings)
    request, tensor = compiled.create_infer_request(), openvino.Tensor(data.x, shared_memory=True)
    request.set_tensor("x", tensor)

    def call() -> Array:
        request.infer()
        return np.asarray(request.get_output_tensor(0).data)

    return call


def torch(row: Row, data: Data, threads: int) -> Call:
    import torch

    torch.set_num_threads(threads)
    given = {name: torch.from_numpy(np.array(value)) for name, value in data.constants.items()}
    x = torch.from_numpy(data.x)
    if row.kind == "product":
        packed = torch.ops.onednn.qlinear_prepack(given["w"].t().contiguous(), list(x.shape))
        zeros = torch.zeros(len(given["sw"]), dtype=torch.int32)
        tail = (float(SY), int(ZY), torch.uint8, "none", [], "")
        return lambda: torch.ops.onednn.qlinear_pointwise(
            x, float(SX), int(ZX), packed, given["sw"], zeros, None, *tail
        )
    if row.kind == "conv":
        pads = [given["w"].shape[-1] // 2] * 2
        zeros = torch.zeros(len(given["sw"]), dtype=torch.int32)
        image = x.contiguous(memory_format=torch.channels_last)
        packed = torch.ops.onednn.qconv_prepack(
            given["w"], given["sw"], float(SX), int(ZX), [1, 1], pads, [1, 1], 1, list(x.shape)
        )
        tail = (float(SY), int(ZY), torch.uint8, "none", [], "")
        return lambda: torch.ops.onednn.qconv2d_pointwise(
            image, float(SX), int(ZX), packed, given["sw"], zeros, None, [1, 1], pads, [1, 1], 1, *tail
        )
    raise RuntimeError("PyTorch has no such operator for this processor")


def ggml(row: Row, data: Data, threads: int) -> Call:
    """A product with Q4_0, the layout of blocks of 32; its input is rounded to bytes, 32 at a time."""
    from importlib.util import find_spec

    if row.kind != "blocks" or "4 bits of 32" not in row.name:
        raise RuntimeError("it has no such layout")
    spec = find_spec("libggml")
    assert spec is not None and spec.submodule_search_locations
    folder = Path(spec.submodule_search_locations[0], "lib64")
    base = ctypes.CDLL(str(folder / "libggml-base.so"), ctypes.RTLD_GLOBAL)
    cpu = ctypes.CDLL(str(folder / "libggml-cpu.so"), ctypes.RTLD_GLOBAL)
    for name in ("ggml_init", "ggml_new_tensor_2d", "ggml_mul_mat", "ggml_new_graph", "ggml_get_data"):
        getattr(base, name).restype = ctypes.c_void_p
    cpu.ggml_backend_cpu_init.restype = ctypes.c_void_p
    pointer, long = ctypes.c_void_p, ctypes.c_int64
    (m, k), n = data.x.shape, data.meant.shape[1]
    numbers = data.constants["w"]
    numbers = np.stack([numbers & 15, numbers >> 4], axis=-1).reshape(n, k // 32, 32)
    packed = numbers[..., :16] | numbers[..., 16:] << 4
    scales = data.constants["sw"].reshape(n, k // 32, 1).astype(np.float16).view(np.uint8)
    bytes_ = np.ascontiguousarray(np.concatenate([scales, packed], axis=-1))

    class Parameters(ctypes.Structure):
        _fields_ = (("size", ctypes.c_size_t), ("buffer", pointer), ("no_alloc", ctypes.c_bool))

    memory = pointer(base.ggml_init(Parameters(bytes_.nbytes * 2 + (64 << 20), None, False)))
    w = pointer(base.ggml_new_tensor_2d(memory, 2, long(k), long(n)))
    x = pointer(base.ggml_new_tensor_2d(memory, 0, long(k), long(m)))
    y = pointer(base.ggml_mul_mat(memory, w, x))
    graph = pointer(base.ggml_new_graph(memory))
    base.ggml_build_forward_expand(graph, y)
    ctypes.memmove(base.ggml_get_data(w), bytes_.ctypes.data, bytes_.nbytes)
    ctypes.memmove(base.ggml_get_data(x), data.x.ctypes.data, data.x.nbytes)
    backend = pointer(cpu.ggml_backend_cpu_init())
    cpu.ggml_backend_cpu_set_n_threads(backend, threads)
    result = (ctypes.c_float * (m * n)).from_address(base.ggml_get_data(y))

    def call() -> Array:
        if base.ggml_backend_graph_compute(backend, graph):
            raise RuntimeError("ggml could not compute it")
        return np.frombuffer(result, np.float32).reshape(m, n)

    return call


def prepared(system: str, name: str, threads: int) -> tuple[Call, dict[str, Any]]:
    row = ROWS[name]
    data = row.make()
    call = globals()[system](row, data, threads)
    found = numbers(call())
    quantised = data.nodes[-1][0] == "QuantizeLinear"
    apart = np.abs(found.reshape(data.meant.shape).astype(np.float64) - data.meant)
    if not quantised:
        apart /= np.abs(data.meant).max()
    most = 0.02 if system == "ggml" else row.tolerance
    if not apart.max() <= most:
        raise RuntimeError(f"the result is wrong: {apart.max():.1e} off")
    return call, {"off": float(apart.max())}


# -- the race ----------------------------------------------------------------------------------------


def summary(state: Mapping[str, Any]) -> Iterator[str]:
    """The table, and the geometric mean of our speed over that of the fastest peer."""
    ratios = []
    for key, found in state["rows"].items():
        row = ROWS[key.rsplit(" on ", 1)[0]]
        times = {s: v["ms"] for s, v in found.items() if "ms" in v}
        line = f"{key:42} " + ", ".join(f"{s} {ms:.3f} ms" for s, ms in times.items())
        if "ours" in times:
            line += f"; {row.operations / times['ours'] * 1e-6:.0f} G/s"
            peers = [ms for s, ms in times.items() if s != "ours"]
            ratios += [min(peers) / times["ours"]] if peers else []
            line += f"; {ratios[-1]:.2f}x" if peers else ""
        yield line
        for system, value in found.items():
            if "lost" in value:
                yield f"    {system}: {value['lost']}"
    if ratios:
        yield f"geometric mean of {len(ratios)}: {exp(sum(map(log, ratios)) / len(ratios)):.2f}x"


if __name__ == "__main__":
    raise SystemExit(command(__file__, __doc__, list(ROWS), SYSTEMS, prepared, summary))

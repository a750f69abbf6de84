"""Reading of ONNX files, which are hostile until they are checked.

Sizes are bounded before anything of that size is allocated; data outside of the file has to lie in the
model's folder, and no link leads there. Types and tensors become those of the language here.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator, Sequence
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from onnx import numpy_helper

from perfdojo_sdk.core.dtypes import BYTES, DTYPES, UNCOMPUTED_DTYPES, bits, integer_bounds
from perfdojo_sdk.core.files import open_regular, read_bounded
from perfdojo_sdk.frontends.onnx import types
from perfdojo_sdk.graph.arrays import dtype_of, numpy_dtype
from perfdojo_sdk.graph.graph import Array
from perfdojo_sdk.graph.refusals import Malformed, Reason, Refused

#: Most bytes of a file: what protobuf can hold.
MAX_FILE_BYTES = (2 << 30) - 1
#: Most nodes of a file, those of subgraphs and functions included.
MAX_NODES = 50_000
#: Most nodes that bodies of functions, branches and loops add to them.
MAX_EXPANDED = 2**14
#: Most subgraphs one inside the other, and most calls of functions.
MAX_DEPTH = 64
#: Most elements of a declared tensor.
MAX_ELEMENTS = 2**48
MAX_NAME = 1000
#: Most bytes of data in other files.
MAX_EXTERNAL_BYTES = 1 << 40


def shown(name: str | bytes) -> str:
    """A name of a model, short and printable; one that is no text comes as its bytes."""
    name = name.decode("latin-1") if isinstance(name, bytes) else name
    return ascii(name if len(name) <= 80 else f"{name[:80]}...")[1:-1] or "without a name"


def named(node: Any) -> str:
    """A node by its name, or by its first result."""
    return f"node {shown(node.name or (node.output or [''])[0])} ({shown(node.op_type)})"


def read_model(source: Path | str | bytes | Any) -> tuple[Any, Path | None]:
    """A model, from a file, its bytes or as it is; and the folder of its external data."""
    if isinstance(source, bytes):
        return checked(_decoded(source, "the model")), None
    if not isinstance(source, Path | str):
        return checked(source), None
    path = Path(source)
    try:
        content = read_bounded(path, MAX_FILE_BYTES)
    except OSError as error:
        hint = "keep weights in external data" if error.errno == errno.EFBIG else "give an .onnx file"
        raise Malformed(f"cannot read {path}: {error.strerror}", hint=hint) from None
    return checked(_decoded(content, str(path))), path.parent


def _decoded(content: bytes, name: str) -> Any:
    model = onnx.ModelProto()
    try:
        model.ParseFromString(content)
    except DecodeError:
        why = "its bytes are no message of protobuf, or its parts stand too deep"
        hint = f"`build-library --kernels {name}` builds kernels" if name.endswith(".dojo") else ""
        raise Malformed(f"{name} is no ONNX model", why, hint=hint) from None
    return model


def checked(model: Any) -> Any:
    """The model, if its structure is one: bounded, and each name defined once and before it is used."""
    if not model.HasField("graph") or not model.graph.output:
        raise Malformed("the model has no graph with outputs", "it is empty, or was cut off")
    if not model.opset_import:
        raise Malformed("the model says no version of the operator set", "opset_import is empty")
    for opset in model.opset_import:
        if not 0 < opset.version < 2**31:
            raise Malformed(f"version {opset.version} of the operator set {shown(opset.domain or 'ai.onnx')}")
        newest = onnx.defs.onnx_opset_version()
        if opset.domain in types.STANDARD and opset.version > newest:
            what = f"the model states version {opset.version} of the standard's operators"
            why = f"onnx {onnx.__version__} knows those up to version {newest}"
            raise Malformed(what, why, "install a newer onnx, or export the model for an older version")
    nodes = 0
    bodies = [model.graph, *model.functions]
    for body in bodies:
        for graph, depth in subgraphs(body):
            if nodes + len(graph.node) > MAX_NODES:
                first = graph.node[MAX_NODES - nodes]
                why = f"the first beyond them is {named(first)}, in {shown(graph.name)}"
                raise Malformed(f"the model has more than {MAX_NODES} nodes", why)
            nodes += len(graph.node)
            if depth > MAX_DEPTH:
                raise Malformed(f"subgraphs stand more than {MAX_DEPTH} deep: {shown(graph.name)} does")
            _check_names(graph)
    for tensor in model.graph.initializer:
        check_size(tensor.dims, f"initializer {shown(tensor.name)}")
    if model.graph.sparse_initializer:
        name = shown(model.graph.sparse_initializer[0].values.name)
        raise Refused(Reason.TYPE, f"initializer {name} is sparse")
    _defined_in_order(model.graph)
    return model


def _check_names(graph: Any) -> None:
    """Refuse names that are no text: protobuf hands such bytes on."""
    for k, node in enumerate(graph.node):
        names = [node.name, node.op_type, node.domain, *node.input, *node.output]
        names += [text for a in node.attribute for text in (a.name, a.ref_attr_name)]
        wrong = next(filter(None, map(_wrong, names)), "")
        if wrong:
            raise Malformed(f"{named(node)}, at place {k} of {shown(graph.name)}, has {wrong}")
    for each in (*graph.input, *graph.output, *getattr(graph, "initializer", ())):
        wrong = _wrong(getattr(each, "name", each))
        if wrong:
            raise Malformed(f"an input, output or initializer of {shown(graph.name)} has {wrong}")


def _wrong(name: Any) -> str:
    """The fault of a name; nothing if it is a good one."""
    if not isinstance(name, str):
        return f"the name {ascii(name)[:80]}, whose bytes are no UTF-8"
    return f"a name of {len(name)} characters; at most {MAX_NAME} are allowed" if len(name) > MAX_NAME else ""


def subgraphs(body: Any) -> Iterator[tuple[Any, int]]:
    """A graph or function and all graphs in it, with their depths."""
    todo = [(body, 0)]
    while todo:
        graph, depth = todo.pop()
        yield graph, depth
        if depth <= MAX_DEPTH:
            todo += [(a.g, depth + 1) for n in graph.node for a in n.attribute if a.HasField("g")]
            todo += [(g, depth + 1) for n in graph.node for a in n.attribute for g in a.graphs]


def _defined_in_order(graph: Any) -> None:
    """Each value is defined once, before its first use; so there are no cycles."""
    known = {""} | {v.name for v in graph.input} | {t.name for t in graph.initializer}
    later = {name for node in graph.node for name in node.output}
    for node in graph.node:
        for name in node.input:
            if name not in known:
                why = "it is the result of a later node: the nodes form a cycle, or are out of order"
                why = why if name in later else "no node, input or initializer has this name"
                raise Malformed(f"{named(node)} reads {shown(name)}", why)
        for name in node.output:
            if name and name in known:
                what = f"{named(node)} defines {shown(name)} once more"
                raise Malformed(what, "a value is defined once")
            known.add(name)
    for value in graph.output:
        if value.name not in known:
            raise Malformed(f"output {shown(value.name)} is not defined")


def check_size(dims: Sequence[int], what: str) -> None:
    if any(size < 0 for size in dims) or prod(dims) > MAX_ELEMENTS or len(dims) > 64:
        raise Malformed(
            f"{what} has the shape {list(dims)[:16]}", f"at most {MAX_ELEMENTS} elements are allowed"
        )


def dtype_name(element: int, holder: str = "") -> str:
    """The language's dtype for an element type of the standard. ``holder``: the array of that type, for the
    message."""
    try:
        name = onnx.TensorProto.DataType.Name(element)
    except ValueError:
        what = f"{holder} has the element type {element}" if holder else f"there is no element type {element}"
        known = f"onnx {onnx.__version__} knows 1 to {max(onnx.TensorProto.DataType.values())}"
        raise Malformed(what, known, "export the model again, or install a newer onnx") from None
    if name == "STRING":
        raise Refused(Reason.TYPE, "arrays of strings")
    dtype = types.DTYPES.get(name)
    if dtype is None or dtype not in DTYPES:
        raise Refused(Reason.DTYPE, f"arrays of {name.lower()}")
    return dtype


def array_of(tensor: Any, folder: Path | None = None) -> Array:
    """The data of a tensor, whose declared size its bytes must have."""
    name = f"tensor {shown(tensor.name)}"
    dtype = dtype_name(tensor.data_type, name)
    check_size(tensor.dims, name)
    shape = tuple(tensor.dims)
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        return _external(tensor, shape, dtype, folder)
    if tensor.HasField("raw_data"):
        if len(tensor.raw_data) != packed_bytes(shape, dtype):
            what = f"{name} declares {prod(shape)} elements and holds {len(tensor.raw_data)} bytes"
            raise Malformed(what, "the file was cut off or changed")
        return unpacked(tensor.raw_data, shape, dtype)
    stored = max(len(tensor.float_data), len(tensor.int32_data), len(tensor.int64_data))
    stored = max(stored, len(tensor.double_data), len(tensor.uint64_data))
    if stored != (packed_bytes(shape, dtype) if width(dtype) < 8 else prod(shape)):
        raise Malformed(f"{name} declares {prod(shape)} elements and holds {stored}")
    try:
        array = np.asarray(numpy_helper.to_array(tensor))
    except (ValueError, TypeError, OverflowError) as error:
        raise Malformed(f"{name} cannot be read", str(error)) from None
    if dtype_of(array) != dtype:
        raise Malformed(f"{name} holds {array.dtype}")
    return array.reshape(shape)


def width(dtype: str) -> int:
    """Bits of an element in a model's file, where elements of less than a byte share one."""
    return bits(dtype) if dtype in UNCOMPUTED_DTYPES else 8 * BYTES[dtype]


def packed_bytes(shape: Sequence[int], dtype: str) -> int:
    """The bytes of an array in a model's file."""
    return -(-prod(shape) * width(dtype) // 8)


def unpacked(content: bytes, shape: tuple[int, ...], dtype: str) -> Array:
    """The array whose bytes a file holds. Of elements that share a byte, the first stands in the lowest
    bits.
    """
    kind, size = numpy_dtype(dtype), width(dtype)
    if size >= 8:
        return np.frombuffer(content, kind.newbyteorder("<")).astype(kind).reshape(shape)
    shifted = np.frombuffer(content, np.uint8)[:, None] >> np.arange(0, 8, size, dtype=np.uint8)
    codes = (shifted & (1 << size) - 1).reshape(-1)[: prod(shape)].astype(np.int8)
    low, high = integer_bounds(dtype)
    found: Array = np.where(codes > high, codes + 2 * low, codes).astype(np.int8).view(kind)
    return found.reshape(shape)


def _external(tensor: Any, shape: tuple[int, ...], dtype: str, folder: Path | None) -> Array:
    """Data in a file beside the model."""
    entries = {entry.key: entry.value for entry in tensor.external_data}
    name, location = shown(tensor.name), entries.get("location", "")
    if folder is None:
        raise Malformed(f"the data of tensor {name} lies in another file", hint="give the model as a file")
    path = Path(location)
    if not location or path.is_absolute() or ".." in path.parts:
        raise Malformed(
            f"the data of tensor {name} lies in {shown(location)}", "that is not in the model's folder"
        )
    try:
        offset, length = (
            int(entries.get("offset", 0)),
            int(entries.get("length", packed_bytes(shape, dtype))),
        )
    except ValueError:
        raise Malformed(f"offset or length of the data of tensor {name} is no number") from None
    if length != packed_bytes(shape, dtype) or not 0 <= offset <= MAX_EXTERNAL_BYTES:
        raise Malformed(f"tensor {name} declares {prod(shape)} elements in {length} bytes at {offset}")
    try:
        with open_regular(folder / path, folder) as file:
            if file.seek(0, 2) < offset + length:
                raise Malformed(f"the file {shown(location)} ends before the data of tensor {name}")
            file.seek(offset)
            content = file.read(length)
    except OSError as error:
        what = f"cannot read {shown(location)}, the data of tensor {name}: {error.strerror}"
        raise Malformed(what) from None
    return unpacked(content, shape, dtype)

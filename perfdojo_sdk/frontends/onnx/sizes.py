"""The sizes that a model declares for its inputs, with the names of those that it leaves open."""

from __future__ import annotations

from typing import Any

from perfdojo_sdk.frontends.onnx.reading import dtype_name
from perfdojo_sdk.graph.refusals import Malformed, Refused

#: The name of an open size that the model gives none.
UNNAMED = "rows"


def declared_dtypes(model: Any) -> dict[str, str | None]:
    """Input that is no constant -> the dtype of its arrays; None where that is none of ours."""
    constants = {tensor.name for tensor in model.graph.initializer}
    return {v.name: dtype_in(v.type) for v in model.graph.input if v.name not in constants}


def dtype_in(declared: Any) -> str | None:
    """The dtype of the arrays of a type: of an array, a sequence or an optional."""
    kind = declared.WhichOneof("value")
    if kind in ("optional_type", "sequence_type"):
        return dtype_in(getattr(declared, kind).elem_type)
    try:
        return dtype_name(declared.tensor_type.elem_type)
    except (Malformed, Refused):  # lowering says so, with the reason
        return None


def sequences_in(model: Any) -> frozenset[str]:
    """Inputs that are sequences of arrays, or may be."""
    kinds = {v.name: v.type.WhichOneof("value") for v in model.graph.input}
    return frozenset(name for name, kind in kinds.items() if kind in ("optional_type", "sequence_type"))


def declared_sizes(model: Any) -> dict[str, tuple[int | str, ...]]:
    """Input that is an array of declared rank and no constant -> its sizes; open ones are names. Arrays of
    other dtypes than ours are refused, whatever their sizes."""
    constants = {tensor.name for tensor in model.graph.initializer}
    found = {}
    for value in model.graph.input:
        tensor = value.type.tensor_type
        if value.name in constants or value.type.WhichOneof("value") != "tensor_type":
            continue
        if tensor.HasField("shape") and dtype_in(value.type) is not None:
            found[value.name] = sizes_of(tensor)
    return found


def sizes_of(tensor: Any) -> tuple[int | str, ...]:
    """The sizes in an array's type; open ones are names. Some exporters write -1 for those."""
    return tuple(
        d.dim_value if d.HasField("dim_value") and d.dim_value >= 0 else d.dim_param or UNNAMED
        for d in tensor.shape.dim
    )

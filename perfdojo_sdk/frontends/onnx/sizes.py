"""The sizes that a model declares for its inputs, with the names of those that it leaves open."""

from __future__ import annotations

from typing import Any

from perfdojo_sdk.frontends.onnx.reading import dtype_name
from perfdojo_sdk.graph.refusals import Malformed, Refused

#: The name of an open size that the model gives none.
UNNAMED = "rows"


def declared_dtypes(model: Any) -> dict[str, str | None]:
    """Input that is no constant -> its dtype; None for one that is no array of a dtype of ours."""
    constants = {tensor.name for tensor in model.graph.initializer}
    found: dict[str, str | None] = {}
    for value in model.graph.input:
        if value.name in constants:
            continue
        try:
            found[value.name] = dtype_name(value.type.tensor_type.elem_type)
        except (Malformed, Refused):  # lowering says so, with the reason
            found[value.name] = None
    return found


def declared_sizes(model: Any) -> dict[str, tuple[int | str, ...]]:
    """Input that is an array of declared rank and no constant -> its sizes; open ones are names."""
    constants = {tensor.name for tensor in model.graph.initializer}
    found = {}
    for value in model.graph.input:
        tensor = value.type.tensor_type
        if value.name in constants or value.type.WhichOneof("value") != "tensor_type":
            continue
        if tensor.HasField("shape"):
            found[value.name] = sizes_of(tensor)
    return found


def sizes_of(tensor: Any) -> tuple[int | str, ...]:
    """The sizes in an array's type; open ones are names. Some exporters write -1 for those."""
    return tuple(
        d.dim_value if d.HasField("dim_value") and d.dim_value >= 0 else d.dim_param or UNNAMED
        for d in tensor.shape.dim
    )

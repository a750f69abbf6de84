"""Schemas of the standard's operators, bodies of functions, and attributes of nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import onnx
from onnx import defs, helper

from perfdojo_sdk.frontends.onnx.edges import Edge
from perfdojo_sdk.frontends.onnx.reading import shown
from perfdojo_sdk.frontends.onnx.types import STANDARD, element_type
from perfdojo_sdk.graph.graph import Value
from perfdojo_sdk.graph.refusals import Malformed, Reason, Refused


@lru_cache(maxsize=4096)
def schema_of(op: str, opset: int, domain: str = "") -> Any:
    """The schema in force at a version of the operator set; None if there is none."""
    try:
        return defs.get_schema(op, opset, domain)
    except defs.SchemaError:
        return None


def is_function(schema: Any) -> bool:
    return bool(schema.has_function or schema.has_context_dependent_function)


def body_of(node: Any, opset: int, operands: Sequence[Edge | None], given: Mapping[str, Any]) -> Any:
    """The body of a function of the standard for operands of these types."""
    schema = schema_of(node.op_type, opset, "" if node.domain in STANDARD else node.domain)
    function = onnx.FunctionProto()
    if schema.has_function:
        versions = [v for v in schema.function_opset_versions if v <= opset]
        function.ParseFromString(
            schema.get_function_with_opset_version(max(versions, default=schema.since_version))
        )
    else:
        types = [_type_of(v).SerializeToString() if isinstance(v, Value) else b"" for v in operands]
        versions = [v for v in schema.context_dependent_function_opset_versions if v <= opset]
        call = onnx.NodeProto()
        call.CopyFrom(node)
        del call.attribute[:]
        try:
            call.attribute.extend(helper.make_attribute(k, v) for k, v in given.items() if v is not None)
        except (ValueError, TypeError) as error:
            raise Malformed(
                f"an attribute of {shown(node.op_type)} has no value of its type", str(error)
            ) from None
        version = max(versions, default=schema.since_version)
        try:
            text = schema.get_context_dependent_function_with_opset_version(
                version, call.SerializeToString(), types
            )
        except (RuntimeError, ValueError, TypeError) as error:
            raise Refused(
                Reason.OPERATOR, f"{shown(node.op_type)} has no body for these operands: {error}"
            ) from None
        function.ParseFromString(text)
    if not function.node:
        raise Refused(Reason.OPERATOR, f"{shown(node.op_type)} has no body for these operands")
    return function


def _type_of(value: Value) -> Any:
    return helper.make_tensor_type_proto(element_type(value.dtype), value.shape)


def uses_in(body: Any) -> dict[str, int]:
    """Name -> the number of nodes, subgraphs and outputs that read it."""
    uses: dict[str, int] = {}
    outputs = [getattr(output, "name", output) for output in body.output]
    names = [*outputs, *(name for node in body.node for name in node.input)]
    for node in body.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                names += uses_in(attribute.g)
    for name in names:
        uses[name] = uses.get(name, 0) + 1
    return uses


def value_of(attribute: Any) -> Any:
    """An attribute as a Python value; tensors and graphs stay messages."""
    value = helper.get_attribute_value(attribute)
    return list(value) if not isinstance(value, str | bytes | int | float) and _repeated(attribute) else value


def _repeated(attribute: Any) -> bool:
    kinds = onnx.AttributeProto
    return attribute.type in (
        kinds.FLOATS, kinds.INTS, kinds.STRINGS, kinds.TENSORS, kinds.GRAPHS, kinds.TYPE_PROTOS
    )  # fmt: skip


def attributes_of(node: Any, around: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes of a node; those that refer to the function call around it take its values."""
    found: dict[str, Any] = {}
    for attribute in node.attribute:
        if attribute.ref_attr_name:
            value = around.get(attribute.ref_attr_name)
            if value is not None:
                found[attribute.name] = value
        else:
            try:
                found[attribute.name] = value_of(attribute)
            except ValueError as error:
                raise Malformed(f"attribute {shown(attribute.name)} has no value", str(error)) from None
    return found


def defaults_of(node: Any, opsets: Mapping[str, int]) -> dict[str, Any]:
    domain = "" if node.domain in STANDARD else node.domain
    return _defaults(node.op_type, opset_of(opsets, domain), domain)


def opset_of(opsets: Mapping[str, int], domain: str) -> int:
    """The version of a domain's operator set that a model states."""
    if domain in STANDARD:
        return max((opsets.get(name, 0) for name in STANDARD), default=0)
    return opsets.get(domain, 1)


@lru_cache(maxsize=4096)
def _defaults(op: str, opset: int, domain: str) -> dict[str, Any]:
    """Attributes that the schema gives a default; do not change it."""
    schema = schema_of(op, opset, domain)
    declared = schema.attributes.items() if schema is not None else ()
    return {name: value_of(a.default_value) for name, a in declared if a.default_value.type}

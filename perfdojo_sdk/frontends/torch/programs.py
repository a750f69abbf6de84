"""Programs of ``torch.export``: their inputs, the sizes that are open in them, and a function to trace.

An ``ExportedProgram`` is a graph of ATen with the tensors that it holds. It is traced once more, for the
sizes that a package has, and lowered as modules are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.export import ExportedProgram
from torch.export.graph_signature import (
    ConstantArgument,
    InputKind,
    InputSpec,
    OutputKind,
    TensorArgument,
)

from perfdojo_sdk.frontends.torch.lowering import DTYPES
from perfdojo_sdk.frontends.torch.modules import ModuleError

_HELD = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)


@dataclass(frozen=True)
class Source:
    """A module or a program, as something that can be traced."""

    weights: Mapping[str, Tensor]
    """Parameters, buffers and constants by their names."""
    call: Callable[..., Any]
    """A function of all weights, in their order, and then of the inputs."""
    title: str
    """The name of its kind, for messages."""


@dataclass(frozen=True)
class DeclaredInput:
    """An input of a program."""

    dtype: str
    sizes: tuple[int | str, ...]
    """A size that the program leaves open is the name of its ``Dim``, that of PyTorch's symbol if it has no
    ``Dim``, or an expression of one."""
    most: tuple[int | None, ...]
    """The largest number that each size may be, if the program says one."""


def source_of(net: torch.nn.Module | ExportedProgram) -> Source:
    """A module or a program as something to trace."""
    if isinstance(net, ExportedProgram):
        return _of_program(net)
    weights = {**dict(net.named_parameters()), **dict(net.named_buffers())}

    def call(*values: Any) -> Any:
        named = dict(zip(weights, values, strict=False))
        return torch.func.functional_call(net, named, tuple(values[len(weights) :]))

    return Source(weights, call, type(net).__name__)


def declared_inputs(program: ExportedProgram) -> dict[str, DeclaredInput]:
    """The inputs of a program that are tensors, in their order; :class:`ModuleError` for what a package does
    not take."""
    values = {n.name: n.meta.get("val") for n in program.graph.nodes if n.op == "placeholder"}
    found = {}
    for spec in _inputs(program):
        name = str(spec.arg.name)
        value = values[name]
        if isinstance(spec.arg, ConstantArgument) or not isinstance(value, torch.SymInt | Tensor):
            continue  # a number or None that the program was exported with
        if not isinstance(spec.arg, TensorArgument) or not isinstance(value, Tensor):
            what = f"the input {ascii(name)[1:-1][:60]} of the program is a number that calls choose"
            raise ModuleError("PD-O025", what, hint="export it with a number: no Dim, and no DYNAMIC, for it")
        if value.dtype not in DTYPES:
            what = f"the input {ascii(name)[1:-1][:60]} of the program is {value.dtype}"
            raise ModuleError("PD-O025", what, why="the language has no such dtype")
        sizes = tuple(size if isinstance(size, int) else _named(size) for size in value.shape)
        most = tuple(_most(program, size) for size in value.shape)
        found[name] = DeclaredInput(DTYPES[value.dtype], sizes, most)
    return found


def _named(size: Any) -> str:
    """An open size by the names of the ``Dim`` that it was exported with; by PyTorch's own where there is
    none, as in a program that was loaded."""
    expression, shapes = size.node.expr, size.node.shape_env
    dims = getattr(shapes, "source_name_to_debug_name", {})
    names = {}
    for symbol in expression.free_symbols:
        for source in getattr(shapes, "var_to_sources", {}).get(symbol, ()):
            place = source.name() if callable(source.name) else source.name
            if dims.get(place, "").isidentifier():
                names[symbol] = dims[place]
    return str(expression.xreplace({symbol: type(symbol)(name) for symbol, name in names.items()}))


def _most(program: ExportedProgram, size: Any) -> int | None:
    """The largest number that an open size may be, if the program says one."""
    if isinstance(size, int):
        return size
    limits = program.range_constraints.get(size.node.expr)
    upper = limits.upper if limits is not None else None
    return int(upper) if upper is not None and upper.is_Integer else None


def _inputs(program: ExportedProgram) -> list[InputSpec]:
    """The inputs that callers give; :class:`ModuleError` if the program needs others that a package lacks."""
    found = []
    for spec in program.graph_signature.input_specs:
        if spec.kind is InputKind.USER_INPUT:
            found.append(spec)
        elif spec.kind not in _HELD:
            what = (
                f"the program takes {ascii(str(spec.target or spec.arg.name))[1:-1][:60]}, which is no tensor"
            )
            raise ModuleError("PD-O025", what, why=f"its kind is {spec.kind.name.lower()}")
    return found


class _Unasserted(torch.fx.Interpreter):
    """Runs a graph without its assertions on dtypes and devices, which tracing knows."""

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        if target is torch.ops.aten._assert_tensor_metadata.default:
            return None
        return super().call_function(target, args, kwargs)


def _of_program(program: ExportedProgram) -> Source:
    given = list(declared_inputs(program))
    for output in program.graph_signature.output_specs:
        if output.kind is not OutputKind.USER_OUTPUT:
            name = ascii(str(output.target or output.arg.name))[1:-1][:60]
            what = f"the program changes {name} ({output.kind.name.lower().replace('_', ' ')})"
            raise ModuleError("PD-O025", what, hint="return the new values as an output instead")
    held: dict[str, str] = {}
    fixed: dict[str, Any] = {}
    for spec in program.graph_signature.input_specs:
        if spec.kind in _HELD:
            held[str(spec.arg.name)] = str(spec.target)
        elif spec.arg.name not in given:
            fixed[str(spec.arg.name)] = getattr(spec.arg, "value", None)
    tensors = {**program.constants, **program.state_dict}
    weights = {target: tensors[target] for target in held.values()}
    places = [n.name for n in program.graph.nodes if n.op == "placeholder"]
    interpreter = _Unasserted(program.graph_module)

    def call(*values: Any) -> Any:
        known = dict(zip(weights, values, strict=False))
        named = {**fixed, **{name: known[target] for name, target in held.items()}}
        named |= dict(zip(given, values[len(weights) :], strict=True))
        return interpreter.run(*(named[place] for place in places))

    return Source(weights, call, "the exported program")

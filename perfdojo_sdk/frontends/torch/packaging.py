"""A module as one graph whose weights are constants, for a package that runs without PyTorch."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.export import ExportedProgram

from perfdojo_sdk.core.dtypes import FLOAT_DTYPES
from perfdojo_sdk.core.errors import DojoError, closest
from perfdojo_sdk.frontends.torch.beside import names_of
from perfdojo_sdk.frontends.torch.capture import DependsOnData, Unchangeable, captured, without_changes
from perfdojo_sdk.frontends.torch.lowering import TORCH_DTYPES, Elsewhere, lower, whole_graph
from perfdojo_sdk.frontends.torch.modules import ModuleError, input_names, network, required_inputs
from perfdojo_sdk.frontends.torch.programs import declared_inputs, source_of
from perfdojo_sdk.frontends.torch.tensors import tensor_of
from perfdojo_sdk.graph.arrays import dtype_of
from perfdojo_sdk.graph.builder import checked_shape
from perfdojo_sdk.graph.graph import Array, Graph, Shape
from perfdojo_sdk.models.checkpoints import read_checkpoint


@dataclass(frozen=True)
class Exported:
    """A module as a graph, or the calls that have no kernel."""

    graph: Graph | None
    elsewhere: tuple[Elsewhere, ...]
    operators: Mapping[str, int] = field(default_factory=dict)


def given_inputs(
    path: Path, name: str, inputs: Sequence[str], weights: Path | None = None
) -> tuple[torch.nn.Module | ExportedProgram, list[str]]:
    """The module ``name`` of a file, and those arguments of its ``forward`` that are given, in order; or the
    program, and all of its inputs. ``weights``: a checkpoint, whose tensors take the place of a module's."""
    net = network(path, name)
    if isinstance(net, ExportedProgram):
        if weights is not None:
            what = f"{name} of {path} is an exported program, which has its own weights"
            raise ModuleError("PD-O046", what, hint="load them into the module before torch.export.export")
        names = list(declared_inputs(net))
        _refuse_unknown(name, inputs, names)
        return net, names
    if weights is not None:
        load_weights(net, weights)
    names = input_names(net)
    _refuse_unknown(name, inputs, names)
    if not names:
        hint = (
            "compute in forward(self, x) what depends on an input; what does not is a constant of the model"
        )
        raise ModuleError("PD-O025", f"forward of {name} takes no inputs", hint=hint)
    given = [n for n in names if n in inputs]
    needed = {*required_inputs(net), *names[: max(len(given), 1)]}
    missing = [n for n in names if n in needed and n not in inputs]
    if missing:
        hint = "give " + " ".join(f"--input '{n}=f32[SIZES]'" for n in missing)
        what = f"the size of input {missing[0]} of {name} is open"
        raise ModuleError("PD-O025", what, hint=hint)
    return net, given


def _refuse_unknown(name: str, inputs: Sequence[str], names: Sequence[str]) -> None:
    unknown = [n for n in inputs if n not in names]
    if unknown:
        what = f"{name} takes no input {ascii(unknown[0])[:60]}"
        raise ModuleError("PD-O025", what, hint=f"its inputs are {', '.join(names)}")


def exported_file(
    path: Path, name: str, inputs: Mapping[str, tuple[str, Shape]], weights: Path | None = None
) -> Exported:
    """The module ``name`` of a file. ``inputs``: arguments of ``forward`` -> their dtypes and shapes."""
    net, given = given_inputs(path, name, list(inputs), weights)
    return exported(net, [(n, *inputs[n]) for n in given], f"{path.stem}_{name}")


def load_weights(net: torch.nn.Module, checkpoint: Path) -> None:
    """Put the tensors of a checkpoint in place of a module's, in their own dtypes; :class:`ModuleError` if
    they are not those of the module."""
    found = {name: _tensor(array) for name, array in read_checkpoint(checkpoint).items()}
    try:
        net.load_state_dict(found, assign=True)
    except RuntimeError as error:
        why = " ".join(str(error).split())[:500]
        raise ModuleError("PD-O046", f"{checkpoint} is no checkpoint of this module", why=why) from None
    net.requires_grad_(False).eval()


def _tensor(array: Array) -> Tensor:
    """A tensor of its own with the elements of an array."""
    dtype = dtype_of(array)
    if dtype not in TORCH_DTYPES:
        raise ModuleError("PD-O046", f"PyTorch has no tensors of {dtype or array.dtype}")
    return tensor_of(np.array(array))


def exported(
    net: torch.nn.Module | ExportedProgram, inputs: Sequence[tuple[str, str, Shape]], name: str = "model"
) -> Exported:
    """A module in evaluation, or a program of ``torch.export``, for inputs of these names, dtypes and shapes.

    :class:`ModuleError` if PyTorch cannot trace it, for example since a branch depends on data.
    """
    source = source_of(net)
    weights = dict(source.weights)
    for _, dtype, shape in inputs:
        if dtype not in TORCH_DTYPES:
            raise ModuleError(
                "PD-O025", f"PyTorch has no tensors of {dtype}", hint=closest(dtype, [*TORCH_DTYPES])
            )
        checked_shape(shape)
    with FakeTensorMode():  # shapes alone: there may be more rows than fit into memory
        examples = [torch.empty(shape, dtype=TORCH_DTYPES[dtype]) for _, dtype, shape in inputs]

    try:
        with names_of(type(net).__module__):
            module = without_changes(captured(source.call, [*weights.values(), *examples]))
    except Unchangeable as change:
        names = [*weights, *(name for name, _, _ in inputs)]
        places = [n for n in change.changed.graph.nodes if n.op == "placeholder"] if change.changed else []
        where = names[places.index(change.changed)] if change.changed in places else "the whole module"
        return Exported(None, (Elsewhere(where, "", str(change)),))
    except DependsOnData as needed:
        what = f"{source.title} decides by elements of tensors how it goes on"
        hint = (
            "write it with tensors of fixed sizes, such as torch.where(mask, y, 0) for what a mask chooses; "
            'or torch.compile(net, backend="perfdojo"), where PyTorch runs such parts'
        )
        raise ModuleError("PD-O025", what, why=str(needed), hint=hint) from None
    except DojoError:
        raise
    except Exception as error:  # the user's code, or PyTorch's
        why = f"{type(error).__name__}: {str(error)[:500]}"
        hint = _inputs_to_try(weights.values(), inputs, str(error))
        what = f"PyTorch does not trace {source.title} for {_shown(inputs)}"
        raise ModuleError("PD-O025", what, why=why, hint=hint) from error
    lowered = lower(module)
    if lowered.elsewhere:
        return Exported(None, lowered.elsewhere, lowered.operators)
    graph = whole_graph(module, weights, [n for n, _, _ in inputs], name)
    return Exported(graph, (), lowered.operators)


#: What PyTorch says of a tensor of a wrong dtype -> the dtype that it asks for.
_ASKED = (
    (r"(?i)to be bool", "bool"),
    (r"(?i)\bfloating point", "f32"),
    (r"(?i)scalar types?: Long|index tensor|used as indices|integral|dtype int", "i64"),
)


def _inputs_to_try(weights: Iterable[Tensor], inputs: Sequence[tuple[str, str, Shape]], error: str) -> str:
    """Advice on inputs with which a module was not traced: another dtype only where the error asks for it."""
    own = {dtype for dtype, torch_dtype in TORCH_DTYPES.items() if dtype in FLOAT_DTYPES}
    used = sorted({d for w in weights for d in own if w.dtype is TORCH_DTYPES[d]})
    other = next(((n, d, s) for n, d, s in inputs if used and d in own and d not in used), None)
    if other is not None:
        name, dtype, shape = other
        right = _shown([(name, used[0], shape)])
        return f"its weights are {' and '.join(used)}, {name} is {dtype}: --input '{right}'"
    asked = next((dtype for pattern, dtype in _ASKED if re.search(pattern, error)), None)
    wrong = next(((n, asked, s) for n, d, s in inputs if asked and d != asked), None)
    if wrong is not None:
        return f"give an input the dtype that PyTorch asks for, such as --input '{_shown([wrong])}'"
    first = "call the module with such arrays in PyTorch first"
    if not inputs:
        return first
    sizes = f"{inputs[0][0]}={inputs[0][1]}[SIZES]"
    return f"{first}; if it refuses them, too, give --input other sizes: --input '{sizes}'"


def _shown(inputs: Sequence[tuple[str, str, Shape]]) -> str:
    """Inputs as users write them."""
    return ", ".join(f"{n}={d}[{','.join(map(str, s))}]" for n, d, s in inputs)

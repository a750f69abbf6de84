"""Kernels of a library as operators of PyTorch: a schema that says what changes, results of fake tensors."""

from __future__ import annotations

import keyword
import re
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from perfdojo_sdk.frontends.torch.lowering import DTYPES
from perfdojo_sdk.library.arrays import ArgumentTypeError, keywords
from perfdojo_sdk.library.loader import Operator
from perfdojo_sdk.library.manifest import ArrayEntry, KernelEntry

#: The namespace of registered operators: ``torch.ops.perfdojo``.
NAMESPACE = "perfdojo"
#: Names that PyTorch takes for operators, and that are attributes of Python.
_NAME = re.compile(r"(?!__)[A-Za-z_][A-Za-z0-9_]{0,199}")
#: PyTorch's dtypes of tensors that kernels take.
_OURS = {**DTYPES, torch.uint16: "u16", torch.uint32: "u32", torch.uint64: "u64"}
_TORCH = {ours: theirs for theirs, ours in _OURS.items()}


def operator(kernel: Operator, name: str = "") -> Any:
    """Register an operator of a library as ``torch.ops.perfdojo.NAME``, and return that.

    ``library.step`` takes tensors as it is. Registered it also works in ``torch.compile``, which then knows
    its results and what it changes: ``(Tensor x, Tensor(a0!) k) -> Tensor`` changes ``k`` in place and
    returns the other outputs. Arguments are checked as the library checks them. There are no gradients: one
    that changes arguments refuses tensors that want some.

    ``name``: by default the operator's own. A name that is registered again stands for the later kernel.
    :class:`ArgumentTypeError` (PD-L011) for a name that PyTorch's operators cannot have, for several kernels
    with other inputs or outputs, and for arrays of dtypes such as f8e4m3fn.
    """
    if not isinstance(kernel, Operator):
        what = f"{type(kernel).__name__} is no operator of a library"
        raise ArgumentTypeError(
            "PD-L011", what, hint="library = perfdojo_sdk.load(FOLDER); library.NAME is one"
        )
    name = kernel.name if name == "" else name
    if not (isinstance(name, str) and _NAME.fullmatch(name)):
        what = f"{ascii(name)[:60]} cannot be the name of an operator of PyTorch"
        why = f"it is an attribute of torch.ops.{NAMESPACE}: letters, digits and _, no digit and no __ first"
        example = re.sub(r"[^A-Za-z0-9]+", "_", str(name)).strip("_")[:60]
        example = example if _NAME.fullmatch(example) else kernel.kernels[0].name
        raise ArgumentTypeError("PD-L011", what, why=why, hint=f"operator(kernel, name={example!r})")
    entry, *others = kernel.kernels
    if any(_names(other) != _names(entry) for other in others):
        what = f"kernels of {kernel.name} differ in the names of their inputs or outputs"
        hint = "build a library with one of them, and register that"
        raise ArgumentTypeError("PD-L011", what, hint=hint)
    for array in [a for each in kernel.kernels for a in (*each.inputs, *each.outputs)]:
        if array.dtype not in _TORCH:
            what = f"{array.name} of {kernel.name} is {array.dtype}, of which kernels take no tensors"
            raise ArgumentTypeError("PD-L011", what, hint="call the library with arrays of ml_dtypes")
    inputs, outputs = _names(entry)
    words = keywords(inputs, keyword.kwlist)  # what a schema does not take as a name is among these
    changed = [word for word, array in words.items() if array in outputs]

    def run(*tensors: Tensor) -> Any:
        """Call the kernel with fresh tensors for its results."""
        given = [tensor.detach() for tensor in tensors]
        found = kernel.fitting([_form(tensor) for tensor in given])
        by_name = dict(zip(inputs, given, strict=True))
        results = tuple(by_name[a.name] if a.name in by_name else _empty(a) for a in found.outputs)
        kernel(*given, out=results)
        return _results(found, results)

    def fake(*tensors: Tensor) -> Any:
        """Results without elements."""
        found = kernel.fitting([_form(tensor) for tensor in tensors])
        device = tensors[0].device if tensors else None
        return _results(found, tuple(_empty(array, device) for array in found.outputs))

    schema = _schema(list(words), changed, len(outputs) - len(changed))
    made = torch.library.custom_op(
        f"{NAMESPACE}::{name}", run, mutates_args=changed, device_types="cpu", schema=schema
    )
    made.register_fake(fake)
    if changed:
        _refuse_gradients(made, f"{NAMESPACE}::{name} changes {', '.join(changed)} and has no gradients")
    return getattr(getattr(torch.ops, NAMESPACE), name)


def _refuse_gradients(made: Any, what: str) -> None:
    """Refuse tensors that want gradients of an operator that changes some: PyTorch would go on with the
    gradients of what was there before."""
    redispatch = made._opoverload.redispatch

    def call(keys: Any, *tensors: Tensor) -> Any:
        if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
            raise RuntimeError(f"{what}: call it under torch.no_grad(), or with detached tensors")
        with torch._C._AutoDispatchBelowAutograd():
            return redispatch(keys & torch._C._after_autograd_keyset, *tensors)

    made._lib.impl(made._name, call, "Autograd", with_keyset=True, allow_override=True)


def _names(entry: KernelEntry) -> tuple[list[str], list[str]]:
    return [array.name for array in entry.inputs], [array.name for array in entry.outputs]


def _schema(words: Sequence[str], changed: Sequence[str], results: int) -> str:
    """The arguments and results, as PyTorch writes them."""
    marks = {word: f"(a{k}!)" for k, word in enumerate(changed)}
    arguments = ", ".join(f"Tensor{marks.get(word, '')} {word}" for word in words)
    fresh = ", ".join(["Tensor"] * results)
    return f"({arguments}) -> {fresh if results == 1 else f'({fresh})'}"


def _form(tensor: Tensor) -> tuple[tuple[int, ...], str]:
    """Shape and dtype, as kernels are chosen by; sizes that are open become those at hand."""
    return tuple(map(int, tensor.shape)), _OURS.get(tensor.dtype, str(tensor.dtype))


def _empty(array: ArrayEntry, device: torch.device | None = None) -> Tensor:
    return torch.empty(array.shape, dtype=_TORCH[array.dtype], device=device)


def _results(entry: KernelEntry, outputs: Sequence[Tensor]) -> Any:
    """The outputs that are no inputs: one, a tuple of several, or none."""
    inputs, names = _names(entry)
    fresh = tuple(tensor for tensor, name in zip(outputs, names, strict=True) if name not in inputs)
    return fresh[0] if len(fresh) == 1 else fresh or None

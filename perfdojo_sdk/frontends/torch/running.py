"""Calls of compiled graphs on PyTorch's tensors: nothing is copied but inputs with gaps.

Arguments of all kernels are prepared once for each Python thread; a call only sets the addresses of inputs
and fresh outputs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from ctypes import c_int, c_size_t, c_void_p
from typing import Any

import torch
from torch import Tensor

from perfdojo_sdk.core.interface import OTHER_PROCESSOR
from perfdojo_sdk.frontends.torch.lowering import TORCH_DTYPES
from perfdojo_sdk.graph.graph import Graph
from perfdojo_sdk.graph.memory import plan_memory
from perfdojo_sdk.library.arrays import aligned_empty
from perfdojo_sdk.library.loader import Library
from perfdojo_sdk.library.manifest import LibraryError
from perfdojo_sdk.models.naming import kernel_name

Run = Callable[..., Any]


class GraphCall:
    """A graph of verified kernels as a function of tensors, in the order of its inputs."""

    def __init__(self, graph: Graph, libraries: Mapping[str, Library], threads: int) -> None:
        """``libraries``: for each program's text, the library that has its kernel."""
        self.graph, self.threads = graph, threads
        self._functions = [libraries[n.program.text][kernel_name(n.program)].only for n in graph.nodes]
        self._plan = plan_memory(graph)
        self._constants = {name: array.copy(order="C") for name, array in graph.constants.items()}
        made = {name for node in graph.nodes for name in node.outputs}
        given = {value.name: k for k, value in enumerate(graph.inputs)}
        self._fresh: list[tuple[str, tuple[int, ...], Any]] = []
        """Value, shape and dtype of each tensor that a call allocates."""
        self._results: list[tuple[str, int, tuple[int, ...]]] = []
        """For each output: ``fresh``, ``copy`` or ``input`` or ``constant``, a number, and the shape."""
        places: dict[str, int] = {}
        for value in graph.outputs:
            home = graph.home(value.name)
            if home in made and home not in places:
                places[home] = len(self._fresh)
                # Allocated under the output's shape; the kernel writes the same elements in the same order.
                self._fresh.append((home, value.shape, TORCH_DTYPES[value.dtype]))
                self._results.append(("fresh", places[home], value.shape))
            elif home in made:
                self._results.append(("copy", places[home], value.shape))
            elif home in given:
                self._results.append(("input", given[home], value.shape))
            else:
                self._results.append(("constant", 0, value.shape))
        self._named = [graph.home(value.name) for value in graph.outputs]
        self._plain = all(kind == "fresh" for kind, _, _ in self._results)
        self._own = threading.local()

    def __call__(self, *tensors: Tensor) -> list[Tensor]:
        """The outputs: fresh tensors. Shapes and dtypes are those of the graph, which is not checked."""
        try:
            state = self._own.state
        except AttributeError:
            state = self._own.state = _State(self)
        held = []
        for slot, tensor in zip(state.inputs, tensors):
            if not tensor.is_contiguous() or tensor.is_neg():
                tensor = tensor.resolve_neg().contiguous()
                held.append(tensor)
            slot.value = tensor.data_ptr()
        fresh = [torch.empty(shape, dtype=dtype) for _, shape, dtype in self._fresh]
        for slot, tensor in zip(state.outputs, fresh):
            slot.value = tensor.data_ptr()
        for run, arguments in state.calls:
            status = run(*arguments)
            if status:
                raise _failed(status)
        if self.graph.checks:
            state.check(self.graph)
        return fresh if self._plain else self._collected(tensors, fresh)

    def _collected(self, tensors: Sequence[Tensor], fresh: Sequence[Tensor]) -> list[Tensor]:
        found = []
        for (kind, place, shape), name in zip(self._results, self._named, strict=True):
            if kind == "fresh":
                found.append(fresh[place])
            elif kind == "constant":
                found.append(torch.from_numpy(self._constants[name].copy()).reshape(shape))
            else:
                source = fresh[place] if kind == "copy" else tensors[place]
                found.append(source.detach().contiguous().reshape(shape).clone())
        return found


class _State:
    """The arguments of all kernels for one Python thread, and its memory between them."""

    def __init__(self, call: GraphCall) -> None:
        graph, threads = call.graph, call.threads
        self.inputs = [c_void_p() for _ in graph.inputs]
        self.outputs = [c_void_p() for _ in call._fresh]
        self.block = aligned_empty((call._plan.total,), "uint8")
        needed = max((f.workspace_bytes(threads) for f in call._functions), default=0)
        self.workspace = aligned_empty((needed,), "uint8")
        places: dict[str, c_void_p] = {v.name: slot for v, slot in zip(graph.inputs, self.inputs)}
        places.update({name: slot for (name, _, _), slot in zip(call._fresh, self.outputs)})
        base = self.block.ctypes.data
        places.update({name: c_void_p(base + at) for name, at in call._plan.offsets.items()})
        places.update({name: c_void_p(array.ctypes.data) for name, array in call._constants.items()})
        scratch = (c_void_p(self.workspace.ctypes.data), c_size_t(needed), c_int(threads))
        self.calls: list[tuple[Run, tuple[Any, ...]]] = []
        for node, function in zip(graph.nodes, call._functions):
            arrays = [places[graph.home(name)] for name in (*node.inputs, *node.outputs)]
            self.calls.append((function.run, (*arrays, *scratch)))
        self.checks = {
            check.value: call._plan.offsets[graph.home(check.value)]
            for check in graph.checks
            if graph.home(check.value) in call._plan.offsets
        }

    def check(self, graph: Graph) -> None:
        """Raise what a broken rule of the operator's says; kernels have clamped the index."""
        for check in graph.checks:
            at = self.checks.get(check.value)
            if at is not None and self.block[at : at + 4].any():
                raise IndexError(f"{check.origin}: {check.what}")


def _failed(status: int) -> LibraryError:
    if status == OTHER_PROCESSOR:
        what = "this processor cannot run a kernel that was built here"
        return LibraryError("PD-L006", what, why="it lacks instructions that the kernel is made of")
    return LibraryError("PD-L009", f"a kernel failed with status {status}")

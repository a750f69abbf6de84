"""Calls of compiled graphs on PyTorch's tensors: nothing is copied but inputs with gaps.

Arguments of all kernels are prepared once for each Python thread; a call only sets the addresses of inputs
and fresh outputs, the memory of which is used again if it is large (``memory.py``). What depends on
parameters alone is packed at the first call, and again when one of these is another tensor, lies elsewhere,
or has another version.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from ctypes import c_int, c_size_t, c_void_p
from threading import Lock
from typing import Any
from weakref import ref

import torch
from torch import Tensor

from perfdojo_sdk.codegen.packed import pack_symbol, packed_symbol
from perfdojo_sdk.core.interface import OTHER_PROCESSOR
from perfdojo_sdk.frontends.torch.lowering import TORCH_DTYPES
from perfdojo_sdk.frontends.torch.memory import RESULTS
from perfdojo_sdk.graph.graph import Graph, Node
from perfdojo_sdk.graph.memory import plan_memory
from perfdojo_sdk.graph.operators.checks import DIVISOR
from perfdojo_sdk.hookspecs.types import Packing
from perfdojo_sdk.library.arrays import aligned_empty
from perfdojo_sdk.library.loader import Library
from perfdojo_sdk.library.manifest import KernelEntry, LibraryError
from perfdojo_sdk.models.packing import plan_packing

Run = Callable[..., Any]


class GraphCall:
    """A graph of verified kernels as a function of tensors, in the order of its inputs."""

    def __init__(
        self,
        graph: Graph,
        kernels: Mapping[str, tuple[Library, KernelEntry]],
        threads: int,
        parameters: Sequence[str] = (),
    ) -> None:
        """``kernels``: text of a program -> the library that has its kernel, and its entry there;
        ``parameters``: inputs that seldom change."""
        self.graph, self.threads, self._kernels = graph, threads, kernels
        self.pack = plan_packing([graph], _packings(graph, kernels), parameters)
        self._made: Mapping[str, int] = self.pack.values[0]
        self._packs: Mapping[int, int] = self.pack.nodes[0]
        self._plan = plan_memory(graph, self._made)
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
        read = {name for call in self.pack.calls for name, at in call.inputs if at is None}
        self._watched = [k for k, value in enumerate(graph.inputs) if value.name in read]
        self._packed: _Packed | None = None
        self._packing = Lock()
        self._named = [graph.home(value.name) for value in graph.outputs]
        self._plain = all(kind == "fresh" for kind, _, _ in self._results)
        self._own = threading.local()

    def __call__(self, *tensors: Tensor) -> list[Tensor]:
        """The outputs: fresh tensors. Shapes and dtypes are those of the graph, which is not checked."""
        try:
            state = self._own.state
        except AttributeError:
            state = self._own.state = _State(self)
        held: list[object] = []
        for slot, tensor in zip(state.inputs, tensors):
            if not tensor.is_contiguous() or tensor.is_neg():
                tensor = tensor.resolve_neg().contiguous()
                held.append(tensor)
            slot.value = tensor.data_ptr()
        fresh = [RESULTS.empty(shape, dtype) for _, shape, dtype in self._fresh]
        for slot, tensor in zip(state.outputs, fresh):
            slot.value = tensor.data_ptr()
        if self.pack:
            held.append(self._repacked(state, tensors))
        for run, arguments in state.calls:
            status = run(*arguments)
            if status:
                raise _failed(status)
        if self.graph.checks:
            state.check(self.graph)
        return fresh if self._plain else self._collected(tensors, fresh)

    def repack(self) -> None:
        """Pack again at the next call, whatever versions say."""
        self._packed = None

    def _repacked(self, state: _State, tensors: Sequence[Tensor]) -> object:
        """Have what is packed of the parameters as they are now, at its addresses in ``state``; the object
        that keeps it."""
        packed = self._packed
        if packed is None or not packed.of([tensors[k] for k in self._watched]):
            with self._packing:
                packed = self._packed
                watched = [tensors[k] for k in self._watched]
                if packed is None or not packed.of(watched):
                    packed = _Packed(watched, aligned_empty((self.pack.bytes,), "uint8"))
                    state.place(packed)
                    state.run_packs()
                    self._packed = packed  # now that other threads may read it
        state.place(packed)
        return packed

    def function(self, number: int, node: Node) -> tuple[Run, Run]:
        """The function that a call runs for a node, and the one for the bytes of its workspace."""
        library, entry = self._kernels[node.program.text]
        if number not in self._packs:
            return library.function(entry.symbol, len(node.inputs) + len(node.outputs))
        arrays = len(self.pack.packings[node.program.text].rest) + 1 + len(node.outputs)
        return library.function(packed_symbol(entry.symbol), arrays)

    def functions(self) -> Iterator[tuple[Library, str, int, Sequence[str], Sequence[int]]]:
        """The functions that pack: library, symbol, and what they read and write."""
        for call in self.pack.calls:
            library, entry = self._kernels[call.node.program.text]
            symbol = pack_symbol(entry.symbol) if call.packing else entry.symbol
            yield (
                library,
                symbol,
                len(call.inputs) + len(call.places),
                [n for n, _ in call.inputs],
                call.places,
            )

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


class _Packed:
    """The pack of some parameters, and these as they were.

    Their memory is kept, so that no other tensor can come to lie there meanwhile.
    """

    def __init__(self, tensors: Sequence[Tensor], array: Any) -> None:
        self._held = [tensor.detach() for tensor in tensors]
        self._known = [(ref(tensor), tensor.data_ptr(), _version(tensor)) for tensor in tensors]
        self._array, self.base = array, int(array.ctypes.data)

    def of(self, tensors: Sequence[Tensor]) -> bool:
        """True if it was packed of these, and they have not changed."""
        return all(
            known() is tensor and at == tensor.data_ptr() and version == _version(tensor) and version >= 0
            for (known, at, version), tensor in zip(self._known, tensors)
        )


def _version(tensor: Tensor) -> int:
    """The counter of a tensor's changes in place; -1 for one that has none."""
    return -1 if tensor.is_inference() else tensor._version


def _packings(graph: Graph, kernels: Mapping[str, tuple[Library, KernelEntry]]) -> dict[str, Packing]:
    """Text of a program -> the pack of its kernel, where it has one."""
    found = {}
    for program in graph.programs:
        _, entry = kernels[program.text]
        if entry.packing is not None:
            array = {a.name: a.spec for a in entry.inputs}
            constants, rest = (
                tuple(array[n] for n in each) for each in (entry.packing.constants, entry.packing.rest)
            )
            found[program.text] = Packing(constants, rest, entry.packing.bytes, entry.name)
    return found


class _State:
    """The arguments of all kernels for one Python thread, and its memory between them."""

    def __init__(self, call: GraphCall) -> None:
        graph, threads = call.graph, call.threads
        self.inputs = [c_void_p() for _ in graph.inputs]
        self.outputs = [c_void_p() for _ in call._fresh]
        self.block = aligned_empty((call._plan.total,), "uint8")
        packs = [(f[0].function(f[1], f[2]), f[3], f[4]) for f in call.functions()]
        nodes = [(k, n) for k, n in enumerate(graph.nodes) if n.outputs[0] not in call._made]
        functions = [call.function(k, node) for k, node in nodes]
        asked = [queried for _, queried in (*functions, *(f for f, _, _ in packs))]
        needed = max((int(each(threads)) for each in asked), default=0)
        self.workspace = aligned_empty((needed,), "uint8")
        self.packed: _Packed | None = None
        self.packed_slots: dict[int, c_void_p] = {}
        """First byte of each part of what is packed -> its address now."""
        places: dict[str, c_void_p] = {v.name: slot for v, slot in zip(graph.inputs, self.inputs)}
        places.update({name: slot for (name, _, _), slot in zip(call._fresh, self.outputs)})
        base = self.block.ctypes.data
        places.update({name: c_void_p(base + at) for name, at in call._plan.offsets.items()})
        places.update({name: c_void_p(array.ctypes.data) for name, array in call._constants.items()})
        places.update({name: self._part(at) for name, at in call._made.items()})
        scratch = (c_void_p(self.workspace.ctypes.data), c_size_t(needed), c_int(threads))
        self.calls: list[tuple[Run, tuple[Any, ...]]] = []
        for (number, node), (run, _) in zip(nodes, functions):
            read = dict(zip(node.program.given, node.inputs, strict=True))
            if (at := call._packs.get(number)) is not None:
                rest = call.pack.packings[node.program.text].rest
                arrays = [*(places[graph.home(read[a.name])] for a in rest), self._part(at)]
            else:
                arrays = [places[graph.home(name)] for name in node.inputs]
            arrays += [places[graph.home(name)] for name in node.outputs]
            self.calls.append((run, (*arrays, *scratch)))
        self.packs: list[tuple[Run, tuple[Any, ...]]] = []
        for (run, _), names, made in packs:
            arrays = [*(places[name] for name in names), *map(self._part, made)]
            self.packs.append((run, (*arrays, *scratch)))
        self.checks = {
            check.value: call._plan.offsets[graph.home(check.value)]
            for check in graph.checks
            if graph.home(check.value) in call._plan.offsets
        }

    def _part(self, at: int) -> c_void_p:
        return self.packed_slots.setdefault(at, c_void_p())

    def place(self, packed: _Packed) -> None:
        """Let all calls read what is packed there."""
        if self.packed is not packed:
            for at, slot in self.packed_slots.items():
                slot.value = packed.base + at
            self.packed = packed

    def run_packs(self) -> None:
        for run, arguments in self.packs:
            if status := run(*arguments):
                raise _failed(status)

    def check(self, graph: Graph) -> None:
        """Raise what a broken rule of the operator's says; kernels have clamped the index or divided by 1."""
        for check in graph.checks:
            at = self.checks.get(check.value)
            if at is not None and self.block[at : at + 4].any():
                raise forbidden(f"{check.origin}: {check.what}")


def forbidden(what: str) -> Exception:
    """The error of a value that an operator forbids, of the class that eager PyTorch raises."""
    return (RuntimeError if what.endswith(DIVISOR) else IndexError)(what)


def _failed(status: int) -> LibraryError:
    if status == OTHER_PROCESSOR:
        what = "this processor cannot run a kernel that was built here"
        return LibraryError("PD-L006", what, why="it lacks instructions that the kernel is made of")
    return LibraryError("PD-L009", f"a kernel failed with status {status}")

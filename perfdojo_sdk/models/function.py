"""A model as one C function, which calls the kernels of its library in their order.

``int SYMBOL(const T *in..., T *out..., const void *weights, void *workspace, size_t bytes, int threads)``
keeps nothing between calls. Arrays between kernels, and what kernels need beside them, lie in the workspace.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from perfdojo_sdk.codegen.packaging import Unit, c_type
from perfdojo_sdk.core.interface import WORKSPACE_TOO_SMALL
from perfdojo_sdk.graph.graph import Graph, Value
from perfdojo_sdk.graph.memory import ALIGNMENT, MemoryPlan

#: Status of the first check that fails; those of the others follow.
FIRST_CHECK = 64
FILE = "pd_model.c"


def symbol_of(name: str) -> str:
    """The name of a model's function."""
    return f"pd_model_{re.sub('[^A-Za-z0-9_]', '_', name)[:60] or 'model'}"


def model_unit(
    graph: Graph, memory: MemoryPlan, weights: Mapping[str, int], symbols: Mapping[str, str]
) -> Unit:
    """The source of a graph's function. ``weights``: first byte of each constant; ``symbols``: text of a
    program -> its function."""
    return _Function(graph, memory, weights, symbols).unit()


class _Function:
    """One graph on its way to C."""

    def __init__(
        self, graph: Graph, memory: MemoryPlan, weights: Mapping[str, int], symbols: Mapping[str, str]
    ) -> None:
        self.graph, self.memory, self.weights, self.symbols = graph, memory, weights, symbols
        self.symbol = symbol_of(graph.name)
        self.inputs = {value.name: f"x{k}" for k, value in enumerate(graph.inputs)}
        self.outputs = {value.name: f"y{k}" for k, value in enumerate(graph.outputs)}
        written = {name for node in graph.nodes for name in node.outputs}
        self.homes: dict[str, str] = {}
        """Value that a kernel writes -> the parameter whose memory it has."""
        for value in graph.outputs:
            if (home := graph.home(value.name)) in written:
                self.homes.setdefault(home, self.outputs[value.name])

    def unit(self) -> Unit:
        prototypes = [*self._about(), f"int {self.symbol}({self._parameters()});"]
        prototypes.append(f"size_t {self.symbol}_workspace_bytes(int threads);")
        lines = [
            f"/* The model {self.symbol.removeprefix('pd_model_')}: its kernels, one after the other. */",
            "#include <stddef.h>",
            "#include <stdint.h>",
            "#include <string.h>",
            "",
            *self._kernels(),
            "",
            f"size_t {self.symbol}_workspace_bytes(int threads)",
            "{",
            *self._needed(),
            "}",
            "",
            f"int {self.symbol}({self._parameters()})",
            "{",
            *self._body(),
            "}",
        ]
        return Unit(FILE, "\n".join(lines) + "\n", tuple(prototypes))

    def _about(self) -> Iterator[str]:
        inputs = ", ".join(value.text for value in self.graph.inputs)
        outputs = ", ".join(value.text for value in self.graph.outputs)
        yield f"/* The whole model: {inputs or 'nothing'} -> {outputs}."
        yield " * weights: the data of weights.safetensors, which follows 8 bytes with the size of a head and"
        yield " * the head; map the file. Outputs overlap nothing. It returns what kernels return, and"
        yield f" * {FIRST_CHECK} or more when an input holds a value that the model does not allow. */"

    def _parameters(self) -> str:
        inputs = [f"const {_type(value)} *{self.inputs[value.name]}" for value in self.graph.inputs]
        outputs = [f"{_type(value)} *{self.outputs[value.name]}" for value in self.graph.outputs]
        rest = ["const void *weights", "void *workspace", "size_t workspace_bytes", "int threads"]
        return ", ".join([*inputs, *outputs, *rest])

    def _kernels(self) -> Iterator[str]:
        for program in self.graph.programs:
            symbol = self.symbols[program.text]
            arrays = [f"const {c_type(program.buffer_of[a].dtype)} *" for a in program.inputs]
            arrays += [f"{c_type(program.buffer_of[a].dtype)} *" for a in program.outputs]
            yield f"int {symbol}({', '.join(arrays)}, void *, size_t, int);"
            yield f"size_t {symbol}_workspace_bytes(int);"

    def _needed(self) -> Iterator[str]:
        yield "    size_t most = 0;"
        yield "    (void)threads;"
        for program in self.graph.programs:
            needed = f"{self.symbols[program.text]}_workspace_bytes(threads)"
            yield f"    most = {needed} > most ? {needed} : most;"
        yield f"    return most + (size_t){self.memory.total + ALIGNMENT}u;"

    def _body(self) -> Iterator[str]:
        yield f"    if (workspace_bytes < {self.symbol}_workspace_bytes(threads))"
        yield f"        return {WORKSPACE_TOO_SMALL};"
        yield f"    char *block = (char *)(((uintptr_t)workspace + {ALIGNMENT - 1}u)"
        yield f"                           & ~(uintptr_t){ALIGNMENT - 1}u);"
        yield "    const char *constants = (const char *)weights;"
        yield f"    char *space = block + (size_t){self.memory.total}u;"
        yield "    size_t left = workspace_bytes - (size_t)(space - (char *)workspace);"
        yield "    int status = 0;"
        yield "    (void)constants, (void)space, (void)left, (void)status, (void)threads;"
        for node in self.graph.nodes:
            arrays = [self._read(name) for name in node.inputs]
            arrays += [self._written(name) for name in node.outputs]
            call = f"{self.symbols[node.program.text]}({', '.join([*arrays, 'space', 'left', 'threads'])})"
            yield f"    if ((status = {call})) return status;"
        for k, check in enumerate(self.graph.checks):
            size = self.graph.values[check.value].bytes
            yield f"    for (size_t i = 0; i < {size}u; i++)"
            yield f"        if (((const char *){self._place(check.value)})[i]) return {FIRST_CHECK + k};"
        for value in self.graph.outputs:
            home, own = self.graph.home(value.name), self.outputs[value.name]
            if value.bytes and self.homes.get(home) != own:
                yield f"    memcpy({own}, {self._place(home)}, {value.bytes}u);"
        yield "    return 0;"

    def _read(self, name: str) -> str:
        return f"(const {_type(self.graph.values[name])} *){self._place(name)}"

    def _written(self, name: str) -> str:
        return f"({_type(self.graph.values[name])} *){self._place(name)}"

    def _place(self, name: str) -> str:
        """The address of a value."""
        home = self.graph.home(name)
        if home in self.inputs:
            return self.inputs[home]
        if home in self.homes:
            return self.homes[home]
        if home in self.memory.offsets:
            return f"(block + {self.memory.offsets[home]}u)"
        return f"(constants + {self.weights[home]}u)"


def _type(value: Value) -> str:
    return c_type(value.dtype)

"""A model as one C function, which calls the kernels of its library in their order.

``int SYMBOL(const T *in..., T *out..., const void *weights, void *workspace, size_t bytes, int threads)``
keeps nothing between calls. Arrays between kernels, and what kernels need beside them, lie in the workspace.
A model with free rows takes their number first, and goes from block to block of a fixed number of rows.

Work that depends on constants alone is a function of its own, ``int SYMBOL_pack(const void *weights, void
*packed, void *workspace, size_t bytes, int threads)``; what it makes is an argument after the weights.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate

from perfdojo_sdk.codegen.packaging import Unit, c_type
from perfdojo_sdk.codegen.packed import pack_symbol, packed_symbol
from perfdojo_sdk.core.interface import WORKSPACE_TOO_SMALL
from perfdojo_sdk.graph.graph import Graph, Node, Value
from perfdojo_sdk.graph.memory import ALIGNMENT, MemoryPlan, rounded_up
from perfdojo_sdk.hookspecs.types import ArraySpec
from perfdojo_sdk.models.packing import PackCall, PackPlan

#: Status of the first check that fails; those of the others follow.
FIRST_CHECK = 64
#: Status of a call with a number of rows that the model does not take; nothing was written.
BAD_ROWS = 63
FILE = "pd_model.c"
#: The plan of a model that packs nothing.
NOTHING = PackPlan()
INCLUDES = ("#include <stddef.h>", "#include <stdint.h>", "#include <string.h>")


def symbol_of(name: str) -> str:
    """The name of a model's function."""
    return f"pd_model_{re.sub('[^A-Za-z0-9_]', '_', name)[:60] or 'model'}"


def model_unit(
    graph: Graph,
    memory: MemoryPlan,
    weights: Mapping[str, int],
    symbols: Mapping[str, str],
    pack: PackPlan = NOTHING,
) -> Unit:
    """The source of a graph's function. ``weights``: first byte of each constant; ``symbols``: text of a
    program -> its function."""
    return _Function(graph, memory, weights, symbols, pack=pack).unit()


@dataclass(frozen=True)
class RowBlocks:
    """The graphs of a model with free rows, for the numbers of rows that it is composed of."""

    graphs: Mapping[int, tuple[Graph, MemoryPlan]]
    """Rows -> the graph for so many, ascending."""
    free: frozenset[str]
    """Inputs and outputs that have rows."""
    most: int
    choices: tuple[int, ...]
    """Rows that are left -> the block to run; 0 -> the one for more rows than the largest block has."""


def rows_unit(
    blocks: RowBlocks, weights: Mapping[str, int], symbols: Mapping[str, str], pack: PackPlan = NOTHING
) -> Unit:
    """The source of the function of a model with free rows; the rest as for :func:`model_unit`. ``pack``: the
    plan for the blocks' graphs in their order."""
    return _RowsFunction(blocks, weights, symbols, pack).unit()


def _kernel_lines(graph: Graph, symbols: Mapping[str, str], pack: PackPlan) -> Iterator[str]:
    """Declarations of the kernels of a graph and of their packs."""
    for program in graph.programs:
        symbol = symbols[program.text]
        outputs = [f"{c_type(program.buffer_of[a].dtype)} *" for a in program.outputs]
        arrays = [f"const {c_type(ArraySpec.of(program.buffer_of[a]).dtype)} *" for a in program.given]
        functions = [(symbol, [*arrays, *outputs])]
        if packing := pack.packings.get(program.text):
            constants = [f"const {c_type(a.dtype)} *" for a in packing.constants]
            rest = [f"const {c_type(a.dtype)} *" for a in packing.rest]
            functions.append((pack_symbol(symbol), [*constants, "void *"]))
            functions.append((packed_symbol(symbol), [*rest, "const void *", *outputs]))
        for function, taken in functions:
            yield f"int {function}({', '.join(taken)}, void *, size_t, int);"
            yield f"size_t {function}_workspace_bytes(int);"


class _Pack:
    """The function that packs, on its way to C."""

    def __init__(
        self, symbol: str, plan: PackPlan, weights: Mapping[str, int], symbols: Mapping[str, str]
    ) -> None:
        self.symbol, self.plan, self.weights, self.symbols = pack_symbol(symbol), plan, weights, symbols

    def prototypes(self) -> Iterator[str]:
        if not self.plan:
            return
        yield f"/* Fills {self.plan.bytes} bytes at packed, a multiple of {ALIGNMENT}, from the weights: once"
        yield " * before the first call, and again after a change of a weight. The model reads them. */"
        yield f"int {self.symbol}({self.parameters});"
        yield f"size_t {self.symbol}_workspace_bytes(int threads);"
        yield f"size_t {self.symbol}ed_bytes(void);"

    parameters = "const void *weights, void *packed, void *workspace, size_t workspace_bytes, int threads"

    def definition(self) -> Iterator[str]:
        if not self.plan:
            return
        yield f"size_t {self.symbol}ed_bytes(void)"
        yield "{"
        yield f"    return {self.plan.bytes}u;"
        yield "}"
        yield ""
        yield f"size_t {self.symbol}_workspace_bytes(int threads)"
        yield "{"
        yield from _most(dict.fromkeys(map(self._function, self.plan.calls)))
        yield "    return most;"
        yield "}"
        yield ""
        yield f"int {self.symbol}({self.parameters})"
        yield "{"
        yield f"    if (workspace_bytes < {self.symbol}_workspace_bytes(threads))"
        yield f"        return {WORKSPACE_TOO_SMALL};"
        yield "    const char *constants = (const char *)weights;"
        yield "    char *made = (char *)packed;"
        yield "    int status = 0;"
        yield "    (void)constants;"
        for call in self.plan.calls:
            arguments = [*self._read(call), *self._written(call), "workspace", "workspace_bytes", "threads"]
            yield f"    if ((status = {self._function(call)}({', '.join(arguments)}))) return status;"
        yield "    return 0;"
        yield "}"
        yield ""

    def _function(self, call: PackCall) -> str:
        symbol = self.symbols[call.node.program.text]
        return pack_symbol(symbol) if call.packing else symbol

    def _read(self, call: PackCall) -> Iterator[str]:
        buffers = call.node.program.buffer_of
        names = [a.name for a in call.packing.constants] if call.packing else call.node.program.given
        for array, (value, at) in zip(names, call.inputs, strict=True):
            place = f"constants + {self.weights[value]}u" if at is None else f"made + {at}u"
            yield f"(const {c_type(ArraySpec.of(buffers[array]).dtype)} *)({place})"

    def _written(self, call: PackCall) -> Iterator[str]:
        program = call.node.program
        types = [c_type(program.buffer_of[a].dtype) for a in program.outputs]
        for type_, at in zip(["void"] if call.packing else types, call.places, strict=True):
            yield f"({type_} *)(made + {at}u)"


def _most(functions: Iterable[str]) -> Iterator[str]:
    """Lines that find the most workspace of some functions."""
    yield "    size_t most = 0;"
    yield "    (void)threads;"
    for function in functions:
        needed = f"{function}_workspace_bytes(threads)"
        yield f"    most = {needed} > most ? {needed} : most;"


class _Function:
    """One graph on its way to C."""

    def __init__(
        self,
        graph: Graph,
        memory: MemoryPlan,
        weights: Mapping[str, int],
        symbols: Mapping[str, str],
        symbol: str = "",
        pack: PackPlan = NOTHING,
        number: int = 0,
    ) -> None:
        """``number``: of the graph among those of the plan of what is packed."""
        self.graph, self.memory, self.weights, self.symbols = graph, memory, weights, symbols
        self.symbol = symbol or symbol_of(graph.name)
        self.pack = pack
        self.made = pack.values[number] if pack else {}
        self.packs = pack.nodes[number] if pack else {}
        self.called = [
            (k, node)
            for k, node in enumerate(graph.nodes)
            if not node.outputs or node.outputs[0] not in self.made
        ]
        """The nodes that a call runs, with their numbers."""
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
        pack = _Pack(self.symbol, self.pack, self.weights, self.symbols)
        prototypes += pack.prototypes()
        lines = [
            f"/* The model {self.symbol.removeprefix('pd_model_')}: its kernels, one after the other. */",
            *INCLUDES,
            "",
            *self.kernels(),
            "",
            *pack.definition(),
            *self.definition(),
        ]
        return Unit(FILE, "\n".join(lines) + "\n", tuple(prototypes))

    def definition(self, storage: str = "") -> Iterator[str]:
        """The function and the one for its workspace."""
        yield f"{storage}size_t {self.symbol}_workspace_bytes(int threads)"
        yield "{"
        yield from self._needed()
        yield "}"
        yield ""
        yield f"{storage}int {self.symbol}({self._parameters()})"
        yield "{"
        yield from self._body()
        yield "}"

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
        return ", ".join([*inputs, *outputs, *_shared(self.pack)])

    def kernels(self) -> Iterator[str]:
        """Declarations of the kernels."""
        yield from _kernel_lines(self.graph, self.symbols, self.pack)

    def _kernel(self, number: int, node: Node) -> str:
        """The function that a call of the model runs for a node."""
        symbol = self.symbols[node.program.text]
        return packed_symbol(symbol) if number in self.packs else symbol

    def _needed(self) -> Iterator[str]:
        yield from _most(dict.fromkeys(self._kernel(k, node) for k, node in self.called))
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
        if self.pack:
            yield "    (void)packed;"
        for number, node in self.called:
            read = dict(zip(node.program.given, node.inputs, strict=True))
            if number in self.packs:
                rest = self.pack.packings[node.program.text].rest
                arrays = [self._read(read[array.name]) for array in rest]
                arrays.append(f"(const char *)packed + {self.packs[number]}u")
            else:
                arrays = [self._read(name) for name in node.inputs]
            arrays += [self._written(name) for name in node.outputs]
            call = f"{self._kernel(number, node)}({', '.join([*arrays, 'space', 'left', 'threads'])})"
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
        if home in self.made:
            return f"((const char *)packed + {self.made[home]}u)"
        if home in self.memory.offsets:
            return f"(block + {self.memory.offsets[home]}u)"
        return f"(constants + {self.weights[home]}u)"


@dataclass(frozen=True)
class _Parameter:
    """An input or output of a model with free rows."""

    name: str
    value: Value
    row: int
    """Elements of a row; 0 if it has no rows."""
    written: bool

    @property
    def type(self) -> str:
        return _type(self.value) if self.written else f"const {_type(self.value)}"


class _RowsFunction:
    """A model with free rows on its way to C."""

    def __init__(
        self, blocks: RowBlocks, weights: Mapping[str, int], symbols: Mapping[str, str], pack: PackPlan
    ) -> None:
        self.blocks, self.pack = blocks, pack
        self.sizes = tuple(blocks.graphs)
        self.largest = self.sizes[-1]
        graph, _ = blocks.graphs[self.largest]
        self.symbol = symbol_of(graph.name)
        self.functions = {
            rows: _Function(*blocks.graphs[rows], weights, symbols, f"{self.symbol}_{rows}", pack, number)
            for number, rows in enumerate(self.sizes)
        }
        self.packing = _Pack(self.symbol, pack, weights, symbols)
        whole = self.functions[self.largest]
        self.parameters = [
            _Parameter(name, value, self._row(value), written)
            for values, names, written in (
                (graph.inputs, whole.inputs, False),
                (graph.outputs, whole.outputs, True),
            )
            for value in values
            for name in (names[value.name],)
        ]
        self.padded = max((size for left, size in enumerate(blocks.choices) if 0 < left < size), default=0)
        """Rows of the largest block that is run on fewer rows than it has."""

    def _row(self, value: Value) -> int:
        return value.elements // self.largest if value.name in self.blocks.free else 0

    @property
    def moved(self) -> list[_Parameter]:
        return [each for each in self.parameters if each.row]

    def unit(self) -> Unit:
        parameters = self._signature()
        prototypes = [*self._about(), f"int {self.symbol}({parameters});"]
        prototypes.append(f"size_t {self.symbol}_workspace_bytes(int threads);")
        prototypes += self.packing.prototypes()
        functions = self.functions.values()
        lines = [
            f"/* The model {self.symbol.removeprefix('pd_model_')}: blocks of rows, one after the other. */",
            *INCLUDES,
            "",
            *dict.fromkeys(line for function in functions for line in function.kernels()),
            "",
            *_separated(function.definition("static ") for function in functions),
            *self.packing.definition(),
            *self._choice(),
            "",
            f"size_t {self.symbol}_workspace_bytes(int threads)",
            "{",
            "    size_t most = 0;",
            *self._needed(),
            f"    return most + {self._scratch()[-1] + ALIGNMENT}u;",
            "}",
            "",
            f"int {self.symbol}({parameters})",
            "{",
            *self._body(),
            "}",
        ]
        return Unit(FILE, "\n".join(lines) + "\n", tuple(prototypes))

    def _signature(self) -> str:
        arrays = [f"{each.type} *{each.name}" for each in self.parameters]
        return ", ".join(["int64_t rows", *arrays, *_shared(self.pack)])

    def _about(self) -> Iterator[str]:
        free = ", ".join(each.name for each in self.moved)
        yield f"/* The whole model for any number of rows from 1 to {self.blocks.most}: {free} hold so many."
        yield " * weights: the data of weights.safetensors, which follows 8 bytes with the size of a head and"
        yield " * the head; map the file. Outputs overlap nothing. It returns what kernels return,"
        yield f" * {BAD_ROWS} for another number of rows, and {FIRST_CHECK} or more when an input holds a"
        yield " * value that the model does not allow; outputs then hold anything. */"

    def _choice(self) -> Iterator[str]:
        sizes = ", ".join(map(str, self.blocks.choices))
        yield "/* The rows of the block to run, by the rows that are left; first that for more. */"
        yield f"static const int64_t block_of[] = {{{sizes}}};"

    def _needed(self) -> Iterator[str]:
        for function in self.functions.values():
            needed = f"{function.symbol}_workspace_bytes(threads)"
            yield f"    most = {needed} > most ? {needed} : most;"

    def _scratch(self) -> list[int]:
        """First byte of each array with rows in the memory for padded blocks, and the end of all."""
        sizes = [each.value.bytes // self.largest * self.padded for each in self.moved]
        return list(accumulate(map(rounded_up, sizes), initial=0))

    def _body(self) -> Iterator[str]:
        scratch = self._scratch()
        yield f"    if (rows < 1 || rows > {self.blocks.most}) return {BAD_ROWS};"
        yield f"    if (workspace_bytes < {self.symbol}_workspace_bytes(threads))"
        yield f"        return {WORKSPACE_TOO_SMALL};"
        yield f"    char *scratch = (char *)(((uintptr_t)workspace + {ALIGNMENT - 1}u)"
        yield f"                             & ~(uintptr_t){ALIGNMENT - 1}u);"
        yield f"    void *space = scratch + {scratch[-1]}u;"
        yield "    size_t left = workspace_bytes - (size_t)((char *)space - (char *)workspace);"
        yield "    int64_t done = 0;"
        yield "    while (done < rows) {"
        yield "        const int64_t ahead = rows - done;"
        yield f"        const int64_t size = block_of[ahead > {self.largest} ? 0 : ahead];"
        yield "        const int64_t real = ahead < size ? ahead : size;"
        yield "        int status = 0;"
        for each in self.parameters:
            shift = f" + done * {each.row}" if each.row else ""
            yield f"        {each.type} *{each.name}_ = {each.name}{shift};"
        if self.padded:
            yield from self._padding(scratch)
        yield "        switch (size) {"
        arrays = ", ".join(f"{each.name}_" for each in self.parameters)
        for rows, function in self.functions.items():
            shared = "weights, packed" if self.pack else "weights"
            call = f"{function.symbol}({arrays}, {shared}, space, left, threads)"
            yield f"        case {rows}: status = {call}; break;"
        yield "        }"
        yield "        if (status) return status;"
        if self.padded:
            yield "        if (real < size) {"
            for each in self.moved:
                if each.written:
                    yield (
                        f"            memcpy({each.name} + done * {each.row}, {each.name}_,"
                        f" (size_t)real * {each.row} * sizeof(*{each.name}));"
                    )
            yield "        }"
        yield "        done += real;"
        yield "    }"
        yield "    return 0;"

    def _padding(self, scratch: list[int]) -> Iterator[str]:
        """A block with more rows than are left works in scratch memory, where the last row is repeated."""
        yield "        if (real < size) {"
        for each, at in zip(self.moved, scratch, strict=False):
            place = f"({_type(each.value)} *)(scratch + {at}u)"
            if each.written:
                yield f"            {each.name}_ = {place};"
                continue
            bytes_ = f"{each.row} * sizeof(*{each.name})"
            yield f"            {_type(each.value)} *to_{each.name} = {place};"
            yield f"            memcpy(to_{each.name}, {each.name}_, (size_t)real * {bytes_});"
            yield "            for (int64_t k = real; k < size; k++)"
            yield (
                f"                memcpy(to_{each.name} + k * {each.row},"
                f" {each.name}_ + (real - 1) * {each.row}, {bytes_});"
            )
            yield f"            {each.name}_ = to_{each.name};"
        yield "        }"


def _shared(pack: PackPlan) -> list[str]:
    """The parameters behind the arrays."""
    packed = ["const void *packed"] if pack else []
    return ["const void *weights", *packed, "void *workspace", "size_t workspace_bytes", "int threads"]


def _separated(parts: Iterable[Iterable[str]]) -> Iterator[str]:
    for part in parts:
        yield from part
        yield ""


def _type(value: Value) -> str:
    return c_type(value.dtype)

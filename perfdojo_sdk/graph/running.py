"""Running a graph: each kernel in turn, by whatever runs one program.

:func:`interpreted` is the language's interpreter, in each value's own dtype. It is exact and slow; compiled
kernels are another function of the same kind (:mod:`perfdojo_sdk.models`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from perfdojo_sdk.core.domains import ROUNDING, Domain
from perfdojo_sdk.core.interpreter import Interpreter
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.core.storage import Buffer
from perfdojo_sdk.graph.arrays import as_list, from_list, numpy_dtype
from perfdojo_sdk.graph.graph import Array, Foreign, Graph, Node
from perfdojo_sdk.graph.order import calls
from perfdojo_sdk.graph.packed_arrays import unpack
from perfdojo_sdk.graph.refusals import Malformed, Reason, Refused
from perfdojo_sdk.hookspecs.types import Elements

Execute: TypeAlias = Callable[[Program, Sequence[Array]], Sequence[Array]]
"""Runs a program on its inputs; returns its outputs, both in the order of the interface."""
RunPart: TypeAlias = Callable[[Foreign, Sequence[Array]], Sequence[Array]]
"""Runs a part of a model that belongs to a peer, in the same way."""
Settle: TypeAlias = Callable[[Node | Foreign, str, Array], Array]
"""Sees each value that a call made, by name; returns the array that the rest of the graph reads."""


def interpreted(program: Program, inputs: Sequence[Array], domain: Domain[Any] = ROUNDING) -> list[Array]:
    """The program's outputs by the interpreter, every operation rounded to its dtype; or computed in another
    domain, such as doubles."""
    given = {
        name: as_list(_elements(program.buffer_of[name], array))
        for name, array in zip(program.given, inputs, strict=True)
    }
    # The interpreter keeps generated code with itself, and a program may run for every node of a graph.
    interpreter = program.once("graph interpreter", lambda: Interpreter(program))
    found = interpreter.run(given, domain)
    buffers = {name: program.buffer_of[name] for name in program.outputs}
    return [from_list(found[name], b.shape, b.dtype) for name, b in buffers.items()]


def _elements(buffer: Buffer, array: Array) -> Array:
    """An input in the dtype of the program, also if it is packed."""
    if not buffer.packed:
        return array
    return unpack(array, Elements(buffer.shape, buffer.dtype)).view(numpy_dtype(buffer.dtype))


def no_peer(part: Foreign, inputs: Sequence[Array]) -> Sequence[Array]:
    """The answer where nothing runs parts of peers: :class:`Refused`."""
    raise Refused(Reason.OPERATOR, f"{part.origin} runs in {part.peer}, which is not at hand here")


def run_graph(
    graph: Graph,
    inputs: Mapping[str, Array],
    execute: Execute = interpreted,
    run_part: RunPart = no_peer,
    settle: Settle | None = None,
) -> list[Array]:
    """The outputs of a graph. ``inputs``: arrays of the values' shapes and dtypes, by name."""
    arrays: dict[str, Array] = dict(graph.constants)
    arrays.update({value.name: inputs[value.name] for value in graph.inputs})
    left = _uses(graph)
    for call in calls(graph):
        given = [_bound(graph, arrays, name) for name in call.inputs]
        results = execute(call.program, given) if isinstance(call, Node) else run_part(call, given)
        made = zip(call.outputs, results, strict=True)
        arrays.update({name: settle(call, name, array) if settle else array for name, array in made})
        _forget(graph, call, arrays, left)
    for check in graph.checks:
        if _bound(graph, arrays, check.value).any():
            where = f"node {check.origin}: " if check.origin else ""
            raise Malformed(
                f"{where}{check.what}", "the standard forbids such inputs, or the kernel has no room for them"
            )
    return cut_to_counts(graph, {v.name: np.array(_bound(graph, arrays, v.name)) for v in graph.outputs})


def cut_to_counts(graph: Graph, arrays: Mapping[str, Array]) -> list[Array]:
    """The outputs that callers see, each as long as it is meant to be."""
    found = {value.name: arrays[value.name] for value in graph.results}
    for cut in graph.cuts:
        meant = int(arrays[cut.count].reshape(-1)[0])
        found[cut.output] = found[cut.output][(slice(None),) * cut.axis + (slice(meant),)]
    return list(found.values())


def _bound(graph: Graph, arrays: Mapping[str, Array], name: str) -> Array:
    value = graph.values[name]
    return np.ascontiguousarray(arrays[graph.home(name)]).view(numpy_dtype(value.dtype)).reshape(value.shape)


def _uses(graph: Graph) -> dict[str, int]:
    """Value -> the number of calls that still read it; outputs of the graph have one more."""
    left: dict[str, int] = {}
    last = [v.name for v in graph.outputs] + [check.value for check in graph.checks]
    for name in [n for call in graph.calls for n in call.inputs] + last:
        left[graph.home(name)] = left.get(graph.home(name), 0) + 1
    return left


def _forget(graph: Graph, call: Node | Foreign, arrays: dict[str, Array], left: dict[str, int]) -> None:
    """Let go of arrays that no call reads any more."""
    for name in map(graph.home, call.inputs):
        left[name] -= 1
        if not left[name]:
            arrays.pop(name, None)

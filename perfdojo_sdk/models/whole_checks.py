"""Checks of a packaged model as a whole: its kernels together, whose programs were verified one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from perfdojo_sdk.core.dtypes import FLOAT_DTYPES, INTEGER_DTYPES
from perfdojo_sdk.core.errors import VerificationError
from perfdojo_sdk.core.expression import Cast
from perfdojo_sdk.core.program import Program, Statement
from perfdojo_sdk.graph.codes import with_codes_moved
from perfdojo_sdk.graph.graph import Array, Foreign, Graph, Node
from perfdojo_sdk.graph.integer_kernel import Unit
from perfdojo_sdk.graph.integers import side_by_side
from perfdojo_sdk.graph.refusals import Refused
from perfdojo_sdk.graph.running import Execute, RunPart, interpreted, run_graph
from perfdojo_sdk.hookspecs.types import Target
from perfdojo_sdk.library.arrays import ArgumentValueError
from perfdojo_sdk.library.by_runner import RunnerLibrary
from perfdojo_sdk.models.kernels import CompiledKernels
from perfdojo_sdk.models.model import Kernels, Model
from perfdojo_sdk.models.naming import kernel_name
from perfdojo_sdk.models.peers import Opened
from perfdojo_sdk.models.racing import close, drawn
from perfdojo_sdk.plugins import Plugins
from perfdojo_sdk.verify.smaller_games import statement_instances

#: Most statement instances of a model that the interpreter runs, to compare results with it.
MOST_INTERPRETED = 300_000
#: Most statement instances of a model that plain code runs, for the same purpose.
MOST_COMPILED = 10**11
#: The same where the target's runner runs it, which may emulate or simulate.
MOST_EMULATED = 10**8


class _Recorded(Opened):
    """A part that keeps what it was given last, and what it gave: random numbers are others each time."""

    def __init__(self, part: Opened) -> None:
        self.part = part
        self.inputs: list[Array] = []
        self.outputs: list[Array] = []

    def __call__(self, inputs: Sequence[Array], outputs: Sequence[Array], threads: int) -> None:
        self.part(inputs, outputs, threads)
        self.inputs, self.outputs = [a.copy() for a in inputs], [a.copy() for a in outputs]

    def replayed(self, inputs: Sequence[Array], exact: bool) -> list[Array]:
        """The outputs, if the inputs are those that were recorded."""
        compare("its kernels, at what goes to a peer,", self.inputs, inputs, exact)
        return self.outputs


@dataclass
class RoundedIntegers:
    """Short integers that floats are rounded to, as a package made them: the graph beside it goes on with the
    same ones where it made nearly the same.

    Floats that are added in another order may round to the next integer, and in a network of many layers the
    results of one such step drift apart. Values of the two graphs have different names, so they are paired by
    their elements.
    """

    made: dict[tuple[Any, ...], list[Array]] = field(default_factory=dict)
    """Dtype and shape -> arrays of the package."""
    apart: int = 0
    """Integers that are one step apart."""
    all: int = 0

    def keep(self, call: Node | Foreign, name: str, array: Array) -> Array:
        """Keep what the package made."""
        if array.dtype.kind in "iu" and array.dtype.itemsize <= 2:
            self.made.setdefault((array.dtype, array.shape), []).append(array)
        return array

    def settle(self, call: Node | Foreign, name: str, array: Array) -> Array:
        """The package's integers that are nearest to those of a node, if at most one in a hundred is another,
        by one step; else the array itself."""
        others = self.made.get((array.dtype, array.shape), ())
        if not others or not isinstance(call, Node) or not rounds_to_integers(call.program):
            return array
        steps = [np.abs(other.astype(np.int64) - array.astype(np.int64)) for other in others]
        counts = [int(np.count_nonzero(each)) for each in steps]
        nearest = int(np.argmin(counts))
        if counts[nearest] > max(1, array.size // 100) or steps[nearest].max(initial=0) > 1:
            return array
        self.apart, self.all = self.apart + counts[nearest], self.all + array.size
        return others[nearest]

    @property
    def words(self) -> str:
        if not self.apart:
            return ""
        return f"; of {self.all} integers that floats are rounded to, {self.apart} are one step apart"


def rounds_to_integers(program: Program) -> bool:
    """True if a program converts floats to integers."""
    return any(
        isinstance(term, Cast) and term.dtype in INTEGER_DTYPES and term.argument.dtype in FLOAT_DTYPES
        for place in program.places
        if isinstance(place.node, Statement)
        for term in place.node.value.terms
    )


def checked(
    graph: Graph,
    given: Graph,
    model: Model,
    plain: Callable[[], CompiledKernels] | None = None,
    meant: str = "the model as it was given",
) -> tuple[str, ...]:
    """Checks of the package as a whole, whose kernels are those of ``graph``, which was made of the graph
    that was ``given``; each kernel was verified by itself. ``plain``: compiles programs as they stand, for
    models that are too large for the interpreter. ``meant``: words for ``given``."""
    recorded = {name: _Recorded(part) for name, part in model.parts.items()}
    model = model.with_parts(recorded) if recorded else model

    def replayed(exact: bool) -> RunPart:
        return lambda part, inputs: recorded[part.name].replayed(inputs, exact)

    elsewhere = model.library if isinstance(model.library, RunnerLibrary) else None
    if elsewhere is not None and elsewhere.too_large:
        kernel = elsewhere.too_large[0]
        why = f"{kernel}, verified by the same moves at a smaller size, is too large for {elsewhere.device}"
        return (f"was not run as a whole: {why}",)
    most = most_compiled(model)
    inputs = drawn(graph.inputs, 0)
    try:
        found = model.run(inputs)
    except ArgumentValueError:  # an index beyond its array: zero is none
        whole = {n: np.zeros_like(a) if a.dtype.kind in "iu" else a for n, a in inputs.items()}
        inputs, found = whole, model.run(whole)
    checks, steps = [], RoundedIntegers()
    if elsewhere is not None:
        checks.append(f"was run here, one kernel after the other, by {elsewhere.device}")
    if model.library is not None:
        by_library = _by_library(model.library)
        alone = run_graph(graph, inputs, by_library, replayed(exact=True), steps.keep)
        compare("its kernels called one by one", found, alone, exact=True)
        checks.append("gives the bits of its kernels called one by one, with memory of their own")
    instances = sum(statement_instances(n.program) for n in given.nodes)
    if instances <= MOST_INTERPRETED:
        expected = run_graph(given, inputs, interpreted, replayed(exact=False), steps.settle)
        compare("the interpreter", found, expected, exact=False)
        checks.append(f"agrees with the interpreter on {meant}{steps.words}")
    elif plain is not None and instances <= most:
        try:
            execute = plain()
            execute.prepare(given.programs)
            expected = run_graph(given, inputs, execute, replayed(exact=False), steps.settle)
        except Refused as refused:
            checks.append(f"was not compared with plain code of each node: {refused.what}")
        else:
            compare("plain code of each node", found, expected, exact=False)
            checks.append(f"agrees with {meant}, node by node in plain code{steps.words}")
    elif plain is not None:
        what = f"{instances:.2g} statement instances are more than {most:.0e}"
        checks.append(f"was not compared with {meant}: {what}")
    return tuple(checks)


def not_called(model: Model) -> tuple[str, ...]:
    """The fate of the function in C of a model whose kernels a runner runs, in words; nothing for others."""
    manifest = model.manifest
    if not isinstance(model.library, RunnerLibrary):
        return ()
    if manifest.symbol:
        return (f"has the function {manifest.symbol} in C, linked for {manifest.target} and not called here",)
    return (f"has no function in C: the library for {manifest.target} holds kernels alone",)


def most_compiled(model: Model) -> float:
    """Most statement instances that plain code of the model's target runs here, for a comparison."""
    return MOST_EMULATED if isinstance(model.library, RunnerLibrary) else MOST_COMPILED


def requantised(
    given: Graph, unit: Unit, prepare: Callable[[Graph], Execute], most: float = MOST_COMPILED
) -> tuple[str, ...]:
    """Each integer kernel beside the kernels of floats that it stands for, on the same inputs, if these have
    at most so many statement instances; and the graph whose bytes are moved before they are decoded beside
    the one that was given, bit by bit."""
    moved = with_codes_moved(given)
    beside, pairs = side_by_side(moved, unit)
    several = [beside] if moved is given else [beside, moved, given]
    instances = sum(statement_instances(n.program) for graph in several for n in graph.nodes)
    if instances > most:
        return ("has integer kernels that were not compared with those of floats: the model is too large",)
    found, *whole = [run_graph(graph, drawn(graph.inputs, 0), prepare(graph)) for graph in several]
    if whole:
        compare("the model whose bytes are decoded first", whole[0], whole[1], exact=True)
    steps, elements = 0, 0
    for pair, after, before in zip(pairs, found[: len(pairs)], found[len(pairs) :], strict=True):
        what = f"the floats that it stands for, in {pair.where or pair.before}"
        if before.dtype.kind == "f":
            compare(what, [after], [before], exact=False)
            continue
        apart = np.abs(after.astype(np.int64) - before.astype(np.int64))
        if apart.max(initial=0) > (0 if pair.exact else 1):
            raise VerificationError("PD-O014", f"an integer kernel differs from {what}")
        steps, elements = steps + int(np.count_nonzero(apart)), elements + apart.size
    return (
        f"has integer kernels that agree with those of floats on the same inputs: of {elements} integers,"
        f" {steps} are one step apart",
    )


def runs_of(plugins: Plugins, target: Target) -> Callable[[Graph], Execute]:
    """Makes a way to run a graph as it stands: the interpreter, or plain code if the graph is large."""

    def prepare(graph: Graph) -> Execute:
        if sum(statement_instances(n.program) for n in graph.nodes) <= MOST_INTERPRETED:
            return interpreted
        compiled = CompiledKernels.of(plugins, target.name)
        compiled.prepare(graph.programs)
        return compiled

    return prepare


def _by_library(library: Kernels) -> Execute:
    """An executor by verified kernels."""

    def execute(program: Program, inputs: Sequence[Array]) -> list[Array]:
        made = library[kernel_name(program)](*inputs)
        return list(made) if isinstance(made, tuple) else [made]

    return execute


def compare(what: str, found: Sequence[Array], expected: Sequence[Array], exact: bool) -> None:
    for k, (one, other) in enumerate(zip(found, expected, strict=True)):
        if not (one.tobytes() == other.tobytes() if exact else close(one, other)):
            raise VerificationError("PD-O014", f"output {k} of the model differs from {what}")

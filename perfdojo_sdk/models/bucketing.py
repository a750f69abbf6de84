"""A model for a few lengths of one dimension, built: an ordinary model for each, with the same weights.

Nothing is proved about padding. At several lengths the outputs are compared with the graph at exactly that
length: for the most padding of each bucket before anything is built, with the bucket's own graph; and for all
of them when it is built.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TypeAlias

import numpy as np

import perfdojo_sdk
from perfdojo_sdk.core.files import link_whole, remove
from perfdojo_sdk.core.words import number_of
from perfdojo_sdk.game import write_atomically
from perfdojo_sdk.graph.arrays import numpy_dtype
from perfdojo_sdk.graph.graph import Array, Graph, Value
from perfdojo_sdk.graph.refusals import Malformed, Refused
from perfdojo_sdk.graph.rows import FreeRows
from perfdojo_sdk.graph.running import run_graph
from perfdojo_sdk.hookspecs.types import Target
from perfdojo_sdk.library.build import RECORDS, Observer
from perfdojo_sdk.library.settings import Settings
from perfdojo_sdk.models.anywhere import open_anywhere
from perfdojo_sdk.models.blocks import SIZES
from perfdojo_sdk.models.buckets import (
    LONGEST,
    MOST_BUCKETS,
    BucketEntry,
    BucketsManifest,
    as_json,
    bucket_folder,
    cut,
    load_model,
    pad_of,
    padded,
)
from perfdojo_sdk.models.budget import Budget
from perfdojo_sdk.models.cache import CacheUse
from perfdojo_sdk.models.free_rows import built_rows, ready_rows, with_shared_constants
from perfdojo_sdk.models.manifest import BUCKETS, FILE, WEIGHTS
from perfdojo_sdk.models.optimise import ModelError, ModelResult, Ready, built, ready_to_build
from perfdojo_sdk.models.package_manifest import file_sha256
from perfdojo_sdk.models.racing import close, drawn
from perfdojo_sdk.models.whole_checks import MOST_COMPILED, compare, runs_of
from perfdojo_sdk.plugins import Plugins
from perfdojo_sdk.verify.smaller_games import statement_instances

_Run: TypeAlias = "tuple[dict[str, Array], list[Array]]"
"""The inputs and outputs of a run."""
At: TypeAlias = Callable[[int], "Graph | FreeRows"]
"""Lowers a model at a length of the dimension."""

#: Rows at which a bucket with free rows is compared.
ROWS = 3

_EXAMPLE = "for example --buckets seq=16,32,64"


@dataclass(frozen=True)
class Lengths:
    """A model at every length of one dimension, and the buckets that were chosen."""

    name: str
    """The dimension as users call it."""
    buckets: tuple[int, ...]
    axes: Mapping[str, tuple[int, ...]]
    """Input -> its dimensions that have the length."""
    at: At
    pads: Mapping[str, float] = field(default_factory=dict)
    """Input -> the value that it is padded with, if not zero, and any that is a mask."""


@dataclass(frozen=True)
class BucketsResult:
    """A model with buckets that was built."""

    directory: Path
    manifest: BucketsManifest
    buckets: Mapping[int, ModelResult]
    """Length -> the model of the bucket."""
    weights: int
    """Bytes of the constants, which lie once on disk if the file system has hard links."""
    seconds: Mapping[str, float]


def optimise_buckets(
    plugins: Plugins,
    target: Target,
    model: Lengths,
    directory: Path,
    settings: Settings | None = None,
    observer: Observer | None = None,
    fuse: bool = True,
    freeze: bool = False,
    max_memory: int | None = None,
    budget: Budget | None = None,
    sizes: Sequence[int] = SIZES,
    use: CacheUse | None = None,
) -> BucketsResult:
    """Build a model for any length up to the largest bucket.

    ``sizes``: the blocks of rows, if rows are free as well. ``budget``: of the search for each bucket, where
    they are not. The rest, and errors, as for :func:`perfdojo_sdk.models.optimise.optimise`;
    :class:`ModelError` if the outputs of the model depend on the padding.
    """
    begin = perf_counter()
    lengths = checked_buckets(model.buckets)
    lowered: dict[int, Graph | FreeRows] = {length: model.at(length) for length in lengths}
    check = _Check(plugins, target, model, lowered)
    check.before()
    compared = perf_counter()
    ready = _ready(plugins, target, lowered, sizes, fuse, freeze)
    prepared = perf_counter()
    results: dict[int, ModelResult] = {}
    for length in lengths:
        folder, rows = bucket_folder(directory, length), lowered[length]
        shared = directory / RECORDS
        if isinstance(rows, FreeRows):
            results[length] = built_rows(
                plugins, target, rows, ready[length], folder, settings, observer, max_memory, use, shared
            )
        else:
            results[length] = built(
                plugins, target, ready[length][0], folder, settings, observer, max_memory,
                budget=budget, use=use, records=shared,
            )  # fmt: skip
        if length != lengths[0]:
            _stored_once(bucket_folder(directory, lengths[0]), folder, directory)
    finished = perf_counter()
    manifest = BucketsManifest(
        sdk_version=perfdojo_sdk.__version__,
        name=_first(lowered[lengths[-1]]).name[:1024],
        target=target.name,
        dimension=model.name[:1024],
        buckets=tuple(
            BucketEntry(length=n, model_sha256=file_sha256(bucket_folder(directory, n) / FILE))
            for n in lengths
        ),
        axes={**model.axes, **check.outputs},
        pads={name: value for name, value in model.pads.items() if value != 0},
    )
    # The folder is opened as its users will, and vouched for when that has passed.
    write_atomically(directory / BUCKETS, as_json(manifest), directory)
    try:
        manifest = manifest.model_copy(update={"checks": check.after(directory)})
    except BaseException:
        remove(directory / BUCKETS, directory)
        raise
    write_atomically(directory / BUCKETS, as_json(manifest), directory)
    remove(directory / FILE, directory)
    constants = next(iter(ready[lengths[0]].values())).graph.constants
    seconds = {
        "preparation": prepared - compared,
        "buckets": finished - prepared,
        "checks": compared - begin + perf_counter() - finished,
    }
    return BucketsResult(
        directory, manifest, results, sum(data.nbytes for data in constants.values()), seconds
    )


def checked_buckets(lengths: Sequence[int]) -> tuple[int, ...]:
    """The lengths of buckets, ascending; :class:`ModelError` if there are none, too many, or wrong ones."""
    found = tuple(sorted(set(lengths)))
    if not found or found[0] < 1 or found[-1] > LONGEST or len(found) > MOST_BUCKETS:
        what = f"buckets of the lengths {', '.join(map(str, lengths)) or 'none'}"
        why = f"at most {MOST_BUCKETS} lengths from 1 to {LONGEST}"
        raise ModelError("PD-O054", what, why=why, hint=_EXAMPLE)
    return found


def _ready(
    plugins: Plugins,
    target: Target,
    lowered: Mapping[int, Graph | FreeRows],
    sizes: Sequence[int],
    fuse: bool,
    freeze: bool,
) -> dict[int, dict[int, Ready]]:
    """Length -> its graph for each number of rows, or for 0 where they are not free.

    Weights have the layout that is best for the longest. Equal ones have one name, and every graph has all.
    """
    found: dict[int, dict[int, Ready]] = {}
    widths: Mapping[str, int] | None = None
    for length in sorted(lowered, reverse=True):
        one = lowered[length]
        if isinstance(one, FreeRows):
            named = replace(one, graphs=(_called(one.graphs[0], length), _called(one.graphs[1], length)))
            made = ready_rows(plugins, target, named, sizes, fuse, freeze, widths)
        else:
            made = {0: ready_to_build(plugins, target, _called(one, length), fuse, freeze, widths=widths)}
        found[length], widths = made, made[max(made)].widths
    graphs = with_shared_constants(
        {(length, rows): ready.graph for length, each in found.items() for rows, ready in each.items()}
    )
    constants = {name: data for graph in graphs.values() for name, data in graph.constants.items()}
    values = {name: graph.values[name] for graph in graphs.values() for name in graph.constants}
    return {
        length: {
            rows: replace(ready, graph=_with_constants(graphs[length, rows], constants, values), lay=None)
            for rows, ready in each.items()
        }
        for length, each in found.items()
    }


def _called(graph: Graph, length: int) -> Graph:
    """The graph with the name of its bucket, which is that of its function in C."""
    return replace(graph, name=f"{graph.name}_{length}")


def _with_constants(graph: Graph, constants: Mapping[str, Array], values: Mapping[str, Value]) -> Graph:
    """The graph with constants of others, which it does not read."""
    return replace(graph, constants=dict(constants), values={**graph.values, **values})


def _stored_once(first: Path, other: Path, inside: Path) -> None:
    """Let two buckets share their file of weights, if its bytes are the same and the file system can."""
    if file_sha256(first / WEIGHTS) != file_sha256(other / WEIGHTS):
        return
    try:
        link_whole(other / WEIGHTS, first / WEIGHTS, inside)
    except OSError:
        return


def _first(lowered: Graph | FreeRows) -> Graph:
    return lowered.graphs[0] if isinstance(lowered, FreeRows) else lowered


# -- the checks --------------------------------------------------------------------------------------


def compared_lengths(buckets: Sequence[int]) -> tuple[int, ...]:
    """Lengths at which a model is compared: 1, each bucket and one less, the shortest and one between."""
    found = {1}
    for before, size in zip((0, *buckets), buckets, strict=False):
        found |= {size, max(size - 1, 1), before + 1, (before + 1 + size) // 2}
    return tuple(sorted(found))


class _Check:
    """The comparison of a model with buckets with its graph at exact lengths, as it stands."""

    def __init__(
        self, plugins: Plugins, target: Target, model: Lengths, lowered: Mapping[int, Graph | FreeRows]
    ) -> None:
        self.plugins, self.model, self.buckets = plugins, model, tuple(lowered)
        self._execute = runs_of(plugins, target)
        self._graphs: dict[int, Graph] = {n: _at_rows(each) for n, each in lowered.items()}
        self._exact: dict[int, list[_Run] | str] = {}
        self._check_pads()
        self.outputs = self._output_axes()
        """Output -> its dimensions that have the length."""

    def graph(self, length: int) -> Graph:
        """The graph at a length, as the model says it."""
        if length not in self._graphs:
            self._graphs[length] = _at_rows(self.model.at(length))
        return self._graphs[length]

    def _check_pads(self) -> None:
        """Refuse values that inputs cannot be padded with."""
        inputs = {value.name: value for value in self.graph(self.buckets[-1]).inputs}
        for name, value in self.model.pads.items():
            shown = ascii(name)[1:-1][:60]
            if name not in inputs or not self.model.axes.get(name):
                whose = ", ".join(ascii(n)[1:-1][:60] for n, axes in self.model.axes.items() if axes)
                what = f"--pad {shown}: no input of this name has the dimension {self.model.name}"
                raise ModelError("PD-O054", what, hint=f"those that have it are {whose}")
            if pad_of(value, inputs[name].dtype) is None:
                what = f"--pad {shown}={value:g}: {shown} is {inputs[name].dtype}, which has no such value"
                raise ModelError("PD-O054", what, hint=f"for example --pad {shown}=0")

    def _output_axes(self) -> dict[str, tuple[int, ...]]:
        """The dimensions of outputs that have the length, found by comparing graphs of several lengths."""
        lengths = sorted({1, *self.buckets})
        graphs = [self.graph(length) for length in lengths]
        names = [[v.name for v in graph.results] for graph in graphs]
        found: dict[str, tuple[int, ...]] = {}
        for k, name in enumerate(names[-1]):
            values = [graph.results[k] for graph in graphs if len(graph.results) > k]
            shapes = [value.shape for value in values]
            same = all(n == names[-1] for n in names) and len({(len(v.shape), v.dtype) for v in values}) == 1
            if not same or any(c.output == name for c in graphs[-1].cuts):
                raise self._no_output(name, "its type, or its size, is another one for other lengths")
            axes = tuple(i for i, sizes in enumerate(zip(*shapes, strict=True)) if len(set(sizes)) > 1)
            for axis in axes:
                sizes = [shape[axis] for shape in shapes]
                if sizes != lengths:
                    pairs = ", ".join(f"{s} for {n}" for s, n in zip(sizes, lengths, strict=True))
                    raise self._no_output(name, f"its dimension {axis} has the size {pairs}")
            if axes:
                found[name] = axes
        return found

    def _no_output(self, name: str, why: str) -> ModelError:
        shown = ascii(name)[1:-1][:60]
        what = f"the output {shown} cannot be cut back to the length of {self.model.name}"
        why = f"{why}: a dimension of an output has the length itself, or does not depend on it"
        return ModelError("PD-O054", what, why=why, hint="build a model for each length, without --buckets")

    def reference(self, length: int) -> list[_Run] | str:
        """Inputs of a length and the outputs of the graph of exactly that length, for several inputs, or the
        reason why that is not run."""
        if length not in self._exact:
            self._exact[length] = self._run_exactly(length)
        return self._exact[length]

    def _run_exactly(self, length: int) -> list[_Run] | str:
        """Runs on numbers of both signs, and on negative and on positive ones alone: a maximum of negative
        numbers would be the zero that they are padded with."""
        graph = self.graph(length)
        if reason := _too_large(graph):
            return reason
        given = self._drawn(graph.inputs, length)
        try:
            run = self._execute(graph)
            try:
                found = [(given, run_graph(graph, given, run))]
            except Malformed:  # an index beyond its array: zero is none
                given = {n: np.zeros_like(a) if a.dtype.kind in "iu" else a for n, a in given.items()}
                given |= {v.name: self._kept(v) for v in graph.inputs if v.name in self.model.pads}
                found = [(given, run_graph(graph, given, run))]
            for sign in (-1, 1):
                signed = {n: a if n in self.model.pads else _of_sign(a, sign) for n, a in given.items()}
                with suppress(Malformed):  # negative indices, which the model does not take
                    found.append((signed, run_graph(graph, signed, run)))
            return found
        except Refused as refused:
            return refused.what

    def _drawn(self, values: Sequence[Value], length: int) -> dict[str, Array]:
        """Random inputs. One whose padding was named is a mask, which hides nothing here; integers that are
        padded with zeros are others than that."""
        found = drawn(values, length)
        for value in values:
            data = found[value.name]
            if value.name in self.model.pads:
                found[value.name] = self._kept(value)
            elif self.model.axes.get(value.name) and data.dtype.kind in "biu":
                found[value.name] = np.where(data == 0, np.ones_like(data), data)
        return found

    def _kept(self, value: Value) -> Array:
        """A mask that hides nothing: 1, or 0 where the padding is another value than 0."""
        return np.full(value.shape, self.model.pads[value.name] == 0, numpy_dtype(value.dtype))

    def before(self) -> None:
        """Compare the graph of each bucket, on inputs with the most padding, before kernels are built."""
        for shorter, size in zip((0, *self.buckets), self.buckets, strict=False):
            length, graph = shorter + 1, self.graph(size)
            exact = self.reference(length)
            if length == size or isinstance(exact, str) or _too_large(graph):
                continue
            axes = [self.outputs.get(value.name, ()) for value in graph.results]
            for given, expected in exact:
                longer = {name: self._padded(name, array, size) for name, array in given.items()}
                try:
                    found = run_graph(graph, longer, self._execute(graph))
                except Refused:
                    break
                except Malformed as error:
                    what = f"inputs of {self.model.name} = {length} cannot be padded to the bucket {size}"
                    hint = "name a value that is allowed: --pad NAME=VALUE"
                    raise ModelError("PD-O053", what, why=error.what, hint=hint) from None
                short = [cut(array, each, length) for array, each in zip(found, axes, strict=True)]
                self._compare(short, expected, length, size)

    def _padded(self, name: str, array: Array, size: int) -> Array:
        return padded(array, self.model.axes.get(name, ()), size, self.model.pads.get(name, 0.0))

    def after(self, directory: Path) -> tuple[str, ...]:
        """Compare the model that was built; the checks that it passed, in words."""
        loaded = load_model(directory, partial(open_anywhere, plugins=self.plugins))
        passed: list[int] = []
        left: dict[str, list[int]] = {}
        for length in compared_lengths(self.buckets):
            exact = self.reference(length)
            if isinstance(exact, str):
                left.setdefault(exact, []).append(length)
                continue
            size = next(each for each in self.buckets if each >= length)
            for given, expected in exact:
                found = loaded.run(given)
                if length == size:
                    compare(f"its graph at {self.model.name} = {length}", found, expected, exact=False)
                else:
                    self._compare(found, expected, length, size)
            passed.append(length)
        checks = [f"was not compared at {self._lengths(each)}: {why}" for why, each in left.items()]
        if passed:
            checks.insert(0, f"agrees with its graph as given at exactly {self._lengths(passed)}")
        return tuple(check[:4096] for check in checks)

    def _lengths(self, lengths: Sequence[int]) -> str:
        return f"{self.model.name} = {', '.join(map(str, lengths))}"

    def _compare(self, found: Sequence[Array], expected: Sequence[Array], length: int, size: int) -> None:
        """:class:`ModelError` if an output of a bucket is not that of the graph of the length."""
        for value, one, other in zip(self.graph(length).results, found, expected, strict=True):
            if not close(one, other):
                raise self._depends(ascii(value.name)[1:-1][:60], one, other, length, size)

    def _depends(self, name: str, one: Array, other: Array, length: int, size: int) -> ModelError:
        """The error for an output that is another one if inputs are padded."""
        where = f"at {self.model.name} = {length}, padded to the bucket {size},"
        if one.dtype.kind in "biu":
            differs = f"{np.count_nonzero(one != other)} of {number_of(one.size, 'elements')} differ"
        else:
            wide, exact = one.astype(np.float64), other.astype(np.float64)
            with np.errstate(all="ignore"):
                apart = np.abs(wide - exact)
            largest = np.max(np.abs(exact[np.isfinite(exact)]), initial=0.0)
            differs = f"it differs by {np.max(apart):.3g}, where its largest value is {largest:.3g}"
        named = list(self.model.pads)
        why = "nothing hides the padding from it: a mean over the dimension, or attention without a mask"
        if named:
            why = f"the padding is not hidden by {', '.join(ascii(n)[1:-1][:60] for n in named)}"
        hint = f"if an input is a mask, name what it is padded with: --pad MASK=0 (padded with {self._pads()}"
        hint += " so far); else build a model for each length, without --buckets"
        what = f"the output {name} depends on the padding: {where} {differs}"
        return ModelError("PD-O053", what, why=why, hint=hint)

    def _pads(self) -> str:
        pads = [f"{n}={self.model.pads.get(n, 0):g}" for n, axes in self.model.axes.items() if axes]
        return ", ".join(pads)


def _of_sign(array: Array, sign: int) -> Array:
    """Numbers of one sign, none of which is zero; what has no signs is as it was."""
    kind = array.dtype
    if kind.kind in "bu" or kind.name.startswith(("uint", "float8_e8")):
        return array
    return np.asarray(sign * (np.abs(array) + np.ones((), kind)), kind)


def _at_rows(lowered: Graph | FreeRows) -> Graph:
    return lowered.at(min(ROWS, lowered.most)) if isinstance(lowered, FreeRows) else lowered


def _too_large(graph: Graph) -> str:
    """The reason why a graph is too large to be run as it stands; empty if it is not."""
    instances = sum(statement_instances(node.program) for node in graph.nodes)
    if instances <= MOST_COMPILED:
        return ""
    return f"{instances:.2g} statement instances are more than {MOST_COMPILED:.0e}"

"""The choice of layers of a model that become quantised: as many as the error that the user allows.

The model runs in float64 on the user's samples. Each layer alone, quantised, has an error on the inputs that
the float64 run gave it; the whole model has one at its outputs. Layers with an error of their own beyond the
limit stay in float; of the others, those of the largest error stay, until the whole model keeps the limit.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np
from numpy.lib.format import read_array, read_array_header_1_0, read_array_header_2_0, read_magic

from perfdojo_sdk.core.errors import DojoError
from perfdojo_sdk.core.files import open_regular
from perfdojo_sdk.graph.arrays import numpy_dtype
from perfdojo_sdk.graph.calibration import (
    BLOCK,
    INT4,
    Layer,
    Range,
    in_float64,
    layers_of,
    ranges_of,
    with_outputs,
    with_short_layers,
)
from perfdojo_sdk.graph.folding import Fold
from perfdojo_sdk.graph.graph import Array, Graph, Value
from perfdojo_sdk.graph.running import Execute, run_graph

#: Most bytes of a file of samples, and most samples that are used.
MOST_BYTES = 4 << 30
MOST_SAMPLES = 64

Sample = Mapping[str, Array]


@dataclass(frozen=True)
class Choice:
    """A layer, its error, and whether it was quantised."""

    where: str
    error: float
    """The error of its results: the largest difference from float64, relative to the largest value."""
    quantised: bool


@dataclass(frozen=True)
class Shortened:
    """A model whose layers are quantised as far as the user allows."""

    graph: Graph
    choices: tuple[Choice, ...]
    error: float
    """The error of the model's outputs, on the samples."""
    folds: tuple[Fold, ...]


def shortened(
    graph: Graph,
    samples: Sequence[Sample],
    dtype: str,
    most: float,
    prepare: Callable[[Graph], Execute],
) -> Shortened:
    """The graph with layers in ``dtype``. ``most``: the error that a layer and the whole may have;
    ``prepare``: makes a way to run a graph's kernels."""
    wide = in_float64(graph)
    execute = prepare(wide)
    exact = [_as_float64(graph, sample) for sample in samples]
    meant = [run_graph(wide, sample, execute) for sample in exact]
    layers = layers_of(graph, dtype)
    ranges = ranges_of(wide, layers, exact, execute)
    errors = _errors_of_layers(graph, layers, ranges, dtype, exact, execute, prepare)
    order = sorted((error, k) for k, error in enumerate(errors) if error <= most)

    def with_first(count: int) -> tuple[Graph, float]:
        chosen = [layers[k] for _, k in order[:count]]
        made = with_short_layers(graph, chosen, ranges, dtype)
        run = prepare(made)
        return made, max(
            (error_of(run_graph(made, s, run), m) for s, m in zip(samples, meant, strict=True)), default=0.0
        )

    count, high = len(order), len(order)
    made, error = with_first(count)
    if error > most:
        count = 0
        made, error = with_first(count)
    while high - count > 1:  # ``count`` layers keep the limit, ``high`` do not
        middle = (count + high) // 2
        tried = with_first(middle)
        if tried[1] <= most:
            count, (made, error) = middle, tried
        else:
            high = middle
    kept = {k for _, k in order[:count]}
    choices = [
        Choice(graph.nodes[layer.node].origin or graph.nodes[layer.node].program.name, e, k in kept)
        for k, (layer, e) in enumerate(zip(layers, errors, strict=True))
    ]
    folds = tuple(Fold("precision", c.where, _words(c, dtype)) for c in choices)
    return Shortened(made, tuple(choices), error, folds)


def _words(choice: Choice, dtype: str) -> str:
    operands = (
        f"weights are int4, {BLOCK} with a scale" if dtype == INT4 else f"input and weights are {dtype}"
    )
    what = f"its {operands}" if choice.quantised else "it stays in float"
    return f"{what}: as {dtype}, its results are {choice.error:.2%} off"


def _errors_of_layers(
    graph: Graph,
    layers: Sequence[Layer],
    ranges: Mapping[str, Range],
    dtype: str,
    samples: Sequence[Sample],
    execute: Execute,
    prepare: Callable[[Graph], Execute],
) -> list[float]:
    """The error of each layer, if it alone is quantised."""
    if not layers:
        return []
    beside = in_float64(with_short_layers(graph, layers, ranges, dtype, beside=True))
    names = [graph.nodes[layer.node].outputs[0] for layer in layers]
    exact, run = with_outputs(in_float64(graph), names), prepare(beside)
    errors = [0.0] * len(layers)
    for sample in samples:
        pairs = zip(run_graph(beside, sample, run), run_graph(exact, sample, execute), strict=True)
        for k, (found, meant) in enumerate(pairs):
            errors[k] = max(errors[k], error_of([found], [meant]))
    return errors


def error_of(found: Sequence[Array], meant: Sequence[Array]) -> float:
    """The largest difference, relative to the largest value of the same array; integers count as they are."""
    worst = 0.0
    for one, other in zip(found, meant, strict=True):
        reference = other.astype(np.float64)
        largest = float(np.abs(reference).max(initial=0))
        apart = float(np.abs(one.astype(np.float64) - reference).max(initial=0))
        worst = max(worst, apart / largest if largest else apart)
    return worst if np.isfinite(worst) else np.inf


def _as_float64(graph: Graph, sample: Sample) -> dict[str, Array]:
    return {n: a.astype(np.float64) if a.dtype == np.float32 else a for n, a in sample.items()}


def reference_of(
    graph: Graph, samples: Sequence[Sample], prepare: Callable[[Graph], Execute]
) -> list[list[Array]]:
    """The outputs of the model in float64 for each sample."""
    wide = in_float64(graph)
    execute = prepare(wide)
    return [run_graph(wide, _as_float64(graph, sample), execute) for sample in samples]


# -- samples -----------------------------------------------------------------------------------------


def read_samples(path: Path, graph: Graph) -> list[dict[str, Array]]:
    """The samples in a file of NumPy's format ``npz``: for each input an array of its shape, or of several
    such ones along a further first dimension. Nothing in it is unpickled."""
    arrays: dict[str, Array] = {}
    try:
        with open_regular(path) as file, zipfile.ZipFile(file) as packed:
            for value in graph.inputs:
                arrays[value.name] = _array(packed, value, path)
    except _DAMAGED as error:
        raise _bad(path, str(error)[:200]) from None
    counts = {len(data) for data in arrays.values()}
    if len(counts) > 1 or 0 in counts:
        raise _bad(path, f"its arrays have {sorted(counts)} samples")
    number = min(counts.pop() if counts else 1, MOST_SAMPLES)
    return [{name: data[k] for name, data in arrays.items()} for k in range(number)]


#: What a file raises that is no archive of arrays, or was cut off, or needs a password.
_DAMAGED = (OSError, ValueError, EOFError, KeyError, RuntimeError, zipfile.BadZipFile, zlib.error)


def _array(packed: zipfile.ZipFile, value: Value, path: Path) -> Array:
    """The samples of one input. Its head is checked before any memory is reserved for it."""
    name = f"{value.name}.npy"
    if name not in packed.namelist():
        raise _bad(path, f"it has no array {ascii(value.name)[:80]}")
    with packed.open(name) as file:
        head = read_array_header_1_0 if read_magic(file) == (1, 0) else read_array_header_2_0
        shape, _, dtype = head(file)
    several = len(shape) == len(value.shape) + 1
    if dtype != numpy_dtype(value.dtype) or shape[int(several) :] != value.shape:
        what = f"{dtype}{list(shape)[:20]}"
        raise _bad(path, f"{ascii(value.name)[:80]} is {what}, and the model takes {value.text}")
    if prod(shape) * dtype.itemsize > MOST_BYTES:
        raise _bad(path, f"it holds more than {MOST_BYTES} bytes")
    with packed.open(name) as file:
        data: Array = read_array(file, allow_pickle=False)
    if data.dtype.kind == "f" and not np.isfinite(data).all():
        raise _bad(path, f"{ascii(value.name)[:80]} holds a NaN or an infinity")
    return data if several else data[None]


def _bad(path: Path, why: str) -> DojoError:
    what = f"{path.name[:200]} holds no samples for this model"
    hint = "numpy.savez(FILE, x=...) with an array for each input, of its shape or of several such"
    return DojoError("PD-O060", what, why=why, hint=hint)

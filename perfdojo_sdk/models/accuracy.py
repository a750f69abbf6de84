"""The accuracy of a model on data: its outputs beside those of the original programs in float64."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from perfdojo_sdk.core.errors import DojoError
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.game import read_saved
from perfdojo_sdk.graph.arrays import numpy_dtype
from perfdojo_sdk.graph.graph import Array, Check, Cut, Foreign, Graph, Node, Value
from perfdojo_sdk.graph.order import calls
from perfdojo_sdk.graph.running import cut_to_counts
from perfdojo_sdk.graph.writer import parsed
from perfdojo_sdk.library.manifest import LibraryError
from perfdojo_sdk.models.buckets import BucketedModel
from perfdojo_sdk.models.manifest import LIBRARY, RowsEntry, ValueEntry
from perfdojo_sdk.models.model import Model
from perfdojo_sdk.models.row_calls import RowCalls
from perfdojo_sdk.verify.double import WIDENED, run_in_double

#: Most bytes of all arrays of a file of data.
MOST_BYTES = 16 << 30


class DataError(DojoError):
    """The user's data does not fit the model."""


@dataclass(frozen=True)
class Accuracy:
    """One output over all samples."""

    output: str
    largest: float
    """The largest distance to the float64 run; for integers, the number of elements that differ."""
    mean: float
    scale: float
    """The largest magnitude in the float64 run."""
    misplaced: int
    """Infinities and NaN that are not where the float64 run has them."""
    exact: bool
    """True for integers and truth values, which must be equal."""
    compared: int = 1
    """Numbers that are finite in both runs, or integers."""

    def within(self, relative: float) -> bool:
        """True if errors are at most this part of the largest magnitude, and all else is equal; not if there
        was nothing to compare."""
        if self.misplaced or not self.compared:
            return False
        return self.largest == 0 if self.exact else self.largest <= relative * self.scale


def length_in(path: Path, model: BucketedModel) -> int:
    """The length of the samples of a file, by the first input that has one; 0 if there is none."""
    with _opened(path) as file:
        for name, axes in model.manifest.axes.items():
            if name in model.inputs and name in file.files:
                shape = tuple(_read(path, file, name).shape)
                inner = shape[max(len(shape) - len(model.inputs[name].shape), 0) :]
                return inner[axes[0]] if len(inner) > axes[0] else 0
    return 0


def _read(path: Path, file: Any, name: str) -> Array:
    try:
        found: Array = file[name]
    except (ValueError, OSError, zipfile.BadZipFile) as error:
        raise DataError("PD-O044", f"{path}: array {name} cannot be read", why=str(error)[:300]) from None
    return found


def samples(
    path: Path, inputs: Mapping[str, ValueEntry], rows: RowsEntry | None
) -> Iterator[dict[str, Array]]:
    """The inputs of each call: an array for each input, or many along a new first axis of all of them; with
    any number of ``rows``, where those are free.

    :class:`DataError` if the file is none, or its arrays are not the model's inputs.
    """
    with _opened(path) as file:
        missing = [name for name in inputs if name not in file.files]
        if missing:
            what = f"{path} has no array {ascii(missing[0])[1:-1][:80]}"
            raise DataError("PD-O044", what, hint=f"the model's inputs are {', '.join(inputs)}"[:500])
        count: int | None = None
        arrays: dict[str, Array] = {}
        for name, entry in inputs.items():
            array = arrays[name] = _read(path, file, name)
            kind, shape = numpy_dtype(str(entry.dtype)), tuple(entry.shape)
            free = None if rows is None else rows.free.get(name)
            if free is not None and array.ndim >= len(shape):
                shape = (*shape[:free], array.shape[array.ndim - len(shape) + free], *shape[free + 1 :])
            given = f"{array.dtype}{list(array.shape)}"
            if array.dtype != kind or array.shape[array.ndim - len(shape) :] != shape:
                what = f"{path}: {name} is {given}, the model takes {_text(entry, free, rows)}"
                right = f"one such array or many of them along a new first axis, as numpy.{kind.name}"
                raise DataError("PD-O044", what, hint=f"give {right}")
            several = array.ndim - len(shape)
            number = len(array) if several == 1 else None
            if several > 1 or arrays.keys() - {name} and number != count:
                what = (
                    f"{path}: {name} is {given}, which is another number of samples than that of other inputs"
                )
                raise DataError("PD-O044", what, hint="give one sample, or equally many for all inputs")
            count = number
    if count is None:
        yield arrays
        return
    for k in range(count):
        yield {name: array[k] for name, array in arrays.items()}


_WRITTEN = "write it with numpy.savez: an array for each input of the model, by its name"


def _opened(path: Path) -> Any:
    try:
        with zipfile.ZipFile(path) as archive:
            if sum(entry.file_size for entry in archive.infolist()) > MOST_BYTES:
                raise DataError("PD-O044", f"{path} holds more than {MOST_BYTES} bytes")
        return np.load(path, allow_pickle=False)
    except FileNotFoundError:
        raise DataError("PD-O044", f"there is no file {path}", hint=_WRITTEN) from None
    except (OSError, zipfile.BadZipFile, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise DataError(
            "PD-O044", f"{path} is no .npz file of arrays", why=why[:300], hint=_WRITTEN
        ) from None


def saved_graph(model: Model) -> Graph:
    """The graph of a package: each kernel as the program that it was before any move."""
    manifest, folder = model.manifest, model.directory
    programs: dict[str, Program] = {}
    for entry in model.library.manifest.kernels if model.library is not None else ():
        programs[entry.name] = parsed(read_saved(folder / LIBRARY / entry.trace).trace.root)
    values = {n: Value(n, tuple(v.shape), str(v.dtype)) for n, v in manifest.values.items()}
    nodes, foreign = [], []
    for node in manifest.nodes:
        if not node.kernel:
            part = manifest.parts[node.part]
            foreign.append(Foreign(node.part, str(part.peer), b"", node.inputs, node.outputs, part.nodes))
            continue
        program = programs[node.kernel]
        arrays = [*program.inputs, *program.outputs]
        given = [values[name] for name in (*node.inputs, *node.outputs)]
        bufs = [program.buffer_of[name] for name in arrays]
        if [(v.shape, v.dtype) for v in given] != [(b.shape, b.dtype) for b in bufs]:
            raise LibraryError("PD-O011", f"the saved game of {node.kernel} is of another kernel")
        nodes.append(Node(program, node.inputs, node.outputs, node.origin))
    return Graph(
        manifest.name,
        tuple(values[name] for name in manifest.inputs),
        tuple(values[name] for name in manifest.outputs),
        tuple(nodes),
        values,
        dict(manifest.views),
        model.weights,
        tuple(Check(c.value, c.what, c.origin) for c in manifest.checks),
        tuple(Cut(c.output, c.axis, c.count) for c in manifest.cuts),
        tuple(foreign),
    )


def in_double(graph: Graph, inputs: Mapping[str, Array], model: Model, threads: int) -> list[Array]:
    """The outputs of a graph in float64. Parts of peers run as they are, in their own dtypes."""
    arrays = {name: _wide(data) for name, data in graph.constants.items()}
    arrays.update({value.name: _wide(inputs[value.name]) for value in graph.inputs})

    def bound(name: str) -> Array:
        value, found = graph.values[name], arrays[graph.home(name)]
        source = graph.values[graph.home(name)]
        if value.dtype != source.dtype and {value.dtype, source.dtype} & set(WIDENED):
            what = f"{name} is the bits of {source.dtype} seen as {value.dtype}, which float64 does not have"
            raise DataError("PD-O045", "the model has no float64 run", why=what)
        return np.ascontiguousarray(found).view(_kind(value)).reshape(value.shape)

    for call in calls(graph):
        given = [bound(name) for name in call.inputs]
        if isinstance(call, Node):
            made = run_in_double(call.program, given)
        else:
            narrow = [
                a.astype(numpy_dtype(graph.values[n].dtype)) for n, a in zip(call.inputs, given, strict=True)
            ]
            values = [graph.values[name] for name in call.outputs]
            outputs = [np.empty(value.shape, numpy_dtype(value.dtype)) for value in values]
            model.parts[call.name](narrow, outputs, threads)
            made = [_wide(array) for array in outputs]
        arrays.update(zip(call.outputs, made, strict=True))
    return cut_to_counts(graph, {value.name: bound(value.name) for value in graph.outputs})


def _text(entry: ValueEntry, free: int | None, rows: RowsEntry | None) -> str:
    sizes = [rows.name if rows and n == free else str(size) for n, size in enumerate(entry.shape)]
    return f"{entry.dtype}[{','.join(sizes)}]"


def expected(graph: Graph, inputs: Mapping[str, Array], model: Model, threads: int) -> list[Array]:
    """The outputs of a model's graph in float64; by blocks of the graph's rows, where those are free."""
    if model.manifest.rows is None:
        return in_double(graph, inputs, model, threads)
    calls = RowCalls(model.manifest, {}, None)
    return calls.in_equal_blocks(inputs, lambda part: in_double(graph, part, model, threads))


def _kind(value: Value) -> np.dtype[Any]:
    return numpy_dtype("f64" if value.dtype in WIDENED else value.dtype)


def _wide(array: Array) -> Array:
    return array.astype(np.float64) if array.dtype.name in ("float32", "float16", "bfloat16") else array


def measured(
    found: Sequence[Sequence[Array]], expected: Sequence[Sequence[Array]], names: Sequence[str]
) -> tuple[Accuracy, ...]:
    """The accuracy of each output. ``found`` and ``expected``: for each sample, the outputs."""
    return tuple(
        _measured(name, [each[k] for each in found], [each[k] for each in expected])
        for k, name in enumerate(names)
    )


def _measured(name: str, found: Sequence[Array], expected: Sequence[Array]) -> Accuracy:
    largest = total = scale = 0.0
    count = misplaced = 0
    exact = found[0].dtype.kind in "biu"
    for one, other in zip(found, expected, strict=True):
        if one.shape != other.shape:
            misplaced += max(one.size, other.size)
            continue
        if exact:
            differing = int(np.count_nonzero(one != other))
            largest, total, count = largest + differing, total + differing, count + one.size
            continue
        wide, reference = one.astype(np.float64), other.astype(np.float64)
        finite = np.isfinite(wide) & np.isfinite(reference)
        same = (wide == reference) | (np.isnan(wide) & np.isnan(reference))
        misplaced += int(np.count_nonzero(~finite & ~same))
        errors = np.abs(wide[finite] - reference[finite])
        largest = max(largest, float(errors.max(initial=0.0)))
        total, count = total + float(errors.sum()), count + errors.size
        scale = max(scale, float(np.abs(reference[np.isfinite(reference)]).max(initial=0.0)))
    compared = count or int(not any(one.size for one in found))
    return Accuracy(name, largest, total / count if count else 0.0, scale, misplaced, exact, compared)

"""A folder with a model for each of a few lengths of one dimension, called with any length up to the largest.

``buckets.json`` names the dimension, the lengths (the *buckets*), and what inputs are padded with. Beside it
each bucket is an ordinary model in a folder called by its length. A call runs the next larger one on padded
inputs, and cuts its outputs back. That they do not depend on the padding was checked when it was built.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import Field, ValidationError, model_validator

from perfdojo_sdk.core.files import read_bounded
from perfdojo_sdk.core.words import number_of
from perfdojo_sdk.graph.arrays import numpy_dtype
from perfdojo_sdk.graph.graph import Array, Shape
from perfdojo_sdk.library.arrays import ArgumentValueError, thread_count
from perfdojo_sdk.library.manifest import Identifier, LibraryError, Sha256
from perfdojo_sdk.models.manifest import BUCKETS, FILE, MAX_BYTES, ModelManifest, ValueEntry, ValueName
from perfdojo_sdk.models.model import Model, input_given, inputs_by_name, load_one, one_or_all, other_dtype
from perfdojo_sdk.store.traces import Strict, first_error

#: Most buckets of a model, and the longest.
MOST_BUCKETS, LONGEST = 64, 2**24

_Axes = tuple[Annotated[int, Field(ge=0, lt=64)], ...]


class BucketEntry(Strict):
    """One bucket, a model in the folder that is called by its length."""

    length: int = Field(ge=1, le=LONGEST)
    model_sha256: Sha256
    """Hash of its manifest, which holds those of all its files."""


class BucketsManifest(Strict):
    """The buckets of a model."""

    schema_version: Literal[1] = 1
    sdk_version: str
    name: str = Field(max_length=1024)
    target: Identifier
    dimension: str = Field(min_length=1, max_length=1024)
    """The dimension as users call it."""
    buckets: tuple[BucketEntry, ...] = Field(min_length=1, max_length=MOST_BUCKETS)
    """Ascending."""
    axes: dict[ValueName, _Axes]
    """Input or output -> its dimensions that have the length; those without one are left out."""
    pads: dict[ValueName, float]
    """Input -> the value that it is padded with, where that is not zero."""
    checks: tuple[Annotated[str, Field(max_length=4096)], ...] = ()
    """The checks that it passed when it was built, in words."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if list(self.lengths) != sorted(set(self.lengths)):
            raise ValueError("the lengths of buckets are not ascending")
        if not set(self.pads) <= set(self.axes):
            raise ValueError("an input is padded that has not the dimension")
        return self

    @property
    def lengths(self) -> tuple[int, ...]:
        return tuple(bucket.length for bucket in self.buckets)


def bucket_folder(directory: Path, length: int) -> Path:
    """The folder of a bucket's model."""
    return directory / str(length)


def has_buckets(directory: Path) -> bool:
    """True if a folder holds a model with buckets."""
    return (directory / BUCKETS).is_file()


def read_buckets(directory: Path) -> BucketsManifest:
    """The checked manifest of the model with buckets in ``directory``; :class:`LibraryError` without one."""
    path = directory / BUCKETS
    try:
        return BucketsManifest.model_validate_json(read_bounded(path, MAX_BYTES, directory))
    except OSError as error:
        raise LibraryError("PD-O010", f"cannot read {path}: {error.strerror}") from None
    except ValidationError as error:
        raise LibraryError("PD-O011", f"{path} is no manifest", why=first_error(error)) from None
    except (ValueError, RecursionError):
        raise LibraryError("PD-O011", f"{path} is no manifest", why="it is not JSON") from None


def as_json(manifest: BucketsManifest) -> str:
    return json.dumps(manifest.model_dump(mode="python"), indent=1) + "\n"


def load_model(directory: str | Path, open_one: Callable[[Path], Model] = load_one) -> Model | BucketedModel:
    """Open the model in ``directory``, with buckets or without. ``open_one``: opens one without.

    :class:`LibraryError` when there is none, when a file is not the one that the manifest describes, or when
    this processor lacks what the kernels need.
    """
    folder = Path(directory)
    if not has_buckets(folder):
        return open_one(folder)
    manifest = read_buckets(folder)
    models = {}
    for bucket in manifest.buckets:
        inside = bucket_folder(folder, bucket.length)
        try:
            content = read_bounded(inside / FILE, MAX_BYTES, folder)
        except OSError as error:
            raise LibraryError("PD-L004", f"cannot read {inside / FILE}: {error.strerror}") from None
        if sha256(content).hexdigest() != bucket.model_sha256:
            what = f"{inside} is not the bucket that {folder / BUCKETS} describes"
            raise LibraryError(
                "PD-L004", what, hint="build the model again; finished kernels are not repeated"
            )
        models[bucket.length] = open_one(inside)
    return BucketedModel(folder, manifest, models)


class BucketedModel:
    """A model for any length of one dimension: ``model(x, ..., threads=None)`` or ``model(name=x)``.

    It is called as a :class:`Model` is. :attr:`manifest` names the dimension and the buckets, and
    :attr:`models` has the model of each.
    """

    def __init__(self, directory: Path, manifest: BucketsManifest, models: Mapping[int, Model]) -> None:
        self.directory, self.manifest, self.models = directory, manifest, dict(models)
        self._largest = self.models[manifest.lengths[-1]]
        for length, model in self.models.items():
            self._check(length, model)

    def _check(self, length: int, model: Model) -> None:
        """:class:`LibraryError` unless a bucket has the inputs and outputs of the largest, at its length."""
        mine, largest, axes = model.manifest, self._largest.manifest, self.manifest.axes
        names = (*largest.inputs, *largest.results)
        right = (mine.inputs, mine.results, _rows(mine)) == (largest.inputs, largest.results, _rows(largest))
        right = right and set(axes) <= set(names) and set(self.manifest.pads) <= set(largest.inputs)
        right = right and bool(set(axes) & set(largest.inputs))
        for name in names if right else ():
            # Of one row, since the blocks of rows may be others in each bucket.
            expected, found = largest.shape(name, 1), mine.shape(name, 1)
            fits = all(axis < len(expected) for axis in axes.get(name, ()))
            right = right and fits and found == _with_length(expected, axes.get(name, ()), length)
            right = right and mine.values[name].dtype == largest.values[name].dtype
        if not right:
            what = f"the bucket {length} of {self.directory} has not the inputs and outputs of its manifest"
            raise LibraryError("PD-O011", what, hint="build the model again")

    @property
    def inputs(self) -> dict[str, ValueEntry]:
        """The inputs, as the largest bucket has them."""
        return self._largest.inputs

    @property
    def outputs(self) -> dict[str, ValueEntry]:
        """The outputs, as the largest bucket has them."""
        return self._largest.outputs

    def entry(self, name: str, length: int) -> ValueEntry:
        """An input or output of a call of this length."""
        entry, axes = self._largest.manifest.values[name], self.manifest.axes.get(name, ())
        return entry.model_copy(update={"shape": _with_length(entry.shape, axes, length)})

    @property
    def weights(self) -> Mapping[str, Array]:
        """The constants by their names, which are the same in all buckets."""
        return self._largest.weights

    def repack(self, weights: Mapping[str, Any] | None = None) -> None:
        """Take other ``weights``, by the names of :attr:`weights`, and pack again, in every bucket."""
        for model in self.models.values():
            model.repack(weights)

    def __call__(self, /, *inputs: Any, threads: int | None = None, **named: Any) -> Any:
        """Compute; returns a fresh array, or a tuple of them for several outputs. Errors: as of a model."""
        return one_or_all(self.run(self._by_name(inputs, named), threads))

    def bind(self, /, *inputs: Any, threads: int | None = None, **named: Any) -> Callable[[], Any]:
        """Check the arguments once, for calls without arguments, which give fresh outputs."""
        given = self._by_name(inputs, named)
        held = {name: input_given(name, given) for name in self._largest.manifest.inputs}
        self.length_of(held)
        count = thread_count(threads)
        return lambda: one_or_all(self.run(held, count))

    def run(self, inputs: Mapping[str, Any], threads: int | None = None) -> list[Array]:
        """The outputs for inputs by name."""
        arrays = {name: input_given(name, inputs) for name in self._largest.manifest.inputs}
        length = self.length_of(arrays)
        return self.cut(self.bucket(length).run(self.padded(arrays, length), threads), length)

    def bucket(self, length: int) -> Model:
        """The model that computes so long a call; :class:`ArgumentValueError` if none does."""
        return self.models[self._size(length)]

    def _size(self, length: int, name: str = "a call") -> int:
        """The bucket of a length. ``name``: the input that has it, for the error."""
        lengths, dimension = self.manifest.lengths, self.manifest.dimension
        if 1 <= length <= lengths[-1]:
            return next(each for each in lengths if each >= length)
        what = (
            f"{name} has the length {length} ({dimension}), the model takes 1 to {lengths[-1]}: its buckets"
        )
        what += f" are {', '.join(map(str, lengths))}"
        hint = f"build it with a larger one: --buckets {dimension}={','.join(map(str, (*lengths, length)))}"
        raise ArgumentValueError("PD-L011", what, hint=hint if length > 0 else "")

    def length_of(self, arrays: Mapping[str, Array]) -> int:
        """The length of a call's inputs; :class:`ArgumentTypeError` or :class:`ArgumentValueError` where they
        are not arrays that the model takes."""
        length, first = 0, ""
        for name, array in arrays.items():
            entry = self.inputs[name]
            if error := other_dtype(name, array, str(entry.dtype), self.text(name)):
                raise error
            axes = self.manifest.axes.get(name, ())
            if array.ndim != len(entry.shape):
                raise self._other_shape(name, array)
            for axis in axes:
                if not first:
                    length, first = array.shape[axis], name
                if array.shape[axis] != length:
                    what = f"{first} has the length {length} ({self.manifest.dimension}),"
                    raise ArgumentValueError("PD-L011", f"{what} {name} has {array.shape[axis]}")
        self._size(length, first)
        for name, array in arrays.items():
            expected = self._largest.shape_for(name, array)
            if array.shape != _with_length(expected, self.manifest.axes.get(name, ()), length):
                raise self._other_shape(name, array)
        return length

    def _other_shape(self, name: str, array: Array) -> ArgumentValueError:
        shown = f"[{','.join(map(str, array.shape))}]"
        what = f"{name} has the shape {shown}, the model takes {self.text(name)}"
        hint = (
            f"only {self.manifest.dimension} differs from call to call; for other sizes, build it with them"
        )
        return ArgumentValueError("PD-L011", what, hint=hint)

    def padded(self, arrays: Mapping[str, Array], length: int) -> dict[str, Array]:
        """The inputs as long as the bucket that computes them."""
        size = self._size(length)
        return {
            name: padded(array, self.manifest.axes.get(name, ()), size, self.manifest.pads.get(name, 0.0))
            for name, array in arrays.items()
        }

    def cut(self, outputs: Sequence[Array], length: int) -> list[Array]:
        """The outputs of a bucket, cut back to the length."""
        names = self._largest.manifest.results
        axes = [self.manifest.axes.get(name, ()) for name in names]
        return [cut(array, each, length) for array, each in zip(outputs, axes, strict=True)]

    def text(self, name: str) -> str:
        """Dtype and shape of an input or output, with the name of the dimension."""
        return self._largest.manifest.text(name, dict.fromkeys(self.manifest.axes.get(name, ()), self._name))

    @property
    def _name(self) -> str:
        return self.manifest.dimension

    def _by_name(self, inputs: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
        return inputs_by_name(self.manifest.name, self._largest.manifest.inputs, inputs, named)

    def __repr__(self) -> str:
        lengths = ", ".join(map(str, self.manifest.lengths))
        buckets = number_of(len(self.models), "buckets")
        return (
            f"<model {self.manifest.name} for {self.manifest.target}: {buckets} of {self._name} ({lengths})>"
        )


def _rows(manifest: ModelManifest) -> object:
    """The free rows of a call, whatever blocks compute them."""
    rows = manifest.rows
    return rows and (rows.name, rows.most, rows.free)


def _with_length(shape: Shape, axes: Sequence[int], length: int) -> Shape:
    return tuple(length if axis in axes else size for axis, size in enumerate(shape))


def padded(array: Array, axes: Sequence[int], size: int, value: float) -> Array:
    """An array that is ``size`` long in some dimensions, the end filled with a value."""
    shape = _with_length(array.shape, axes, size)
    if array.shape == shape:
        return array
    made = np.full(shape, value, array.dtype)
    made[tuple(slice(each) for each in array.shape)] = array
    return made


def cut(array: Array, axes: Sequence[int], length: int) -> Array:
    """The first places of an array in some dimensions, an array of its own."""
    if all(array.shape[axis] == length for axis in axes):
        return array
    return np.ascontiguousarray(array[tuple(slice(s) for s in _with_length(array.shape, axes, length))])


def pad_of(value: float, dtype: str) -> Array | None:
    """A value as an element of a dtype; None if it is none."""
    with np.errstate(all="ignore"):
        kind = numpy_dtype(dtype)
        if kind.kind in "biu" and not (np.isfinite(value) and value == int(value)):
            return None
        try:
            made = np.array(int(value) if kind.kind in "iu" else value).astype(kind)
        except OverflowError:
            return None
        exact = kind.kind in "biu"
        same = float(made) == value if exact else np.isfinite(float(made)) == np.isfinite(value)
        return made if same else None

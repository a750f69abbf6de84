"""Use of a model from Python: ``load_one(DIR)(x)``. It needs the base install, and no compiler.

A call has memory of its own for arrays between kernels, so several Python threads may call at once; weights
are mapped from their file and shared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from math import prod
from pathlib import Path
from threading import Lock
from typing import Any, Protocol, TypeAlias

import numpy as np

from perfdojo_sdk.codegen.packed import pack_symbol, packed_symbol
from perfdojo_sdk.core.errors import DojoError, closest
from perfdojo_sdk.core.files import open_regular, read_bounded
from perfdojo_sdk.core.words import number_of
from perfdojo_sdk.graph.arrays import dtype_of, numpy_dtype
from perfdojo_sdk.graph.graph import Array
from perfdojo_sdk.graph.refusals import Refused
from perfdojo_sdk.library.arrays import (
    ArgumentTypeError,
    ArgumentValueError,
    aligned_empty,
    aligned_with_address,
    by_keyword,
    check_layout,
    keywords,
    thread_count,
    view,
)
from perfdojo_sdk.library.loader import Library, failed, load_library, own_workspace
from perfdojo_sdk.library.manifest import FILE as LIBRARY_FILE
from perfdojo_sdk.library.manifest import MAX_FILE_BYTES, KernelEntry, LibraryError, Manifest
from perfdojo_sdk.models.function import FIRST_CHECK
from perfdojo_sdk.models.manifest import (
    LIBRARY,
    PARTS,
    WEIGHTS,
    ModelManifest,
    NodeEntry,
    PartEntry,
    ValueEntry,
    home,
    read_model_manifest,
)
from perfdojo_sdk.models.peers import ENDINGS, MAX_PART_BYTES, Opened, PeerError, open_part
from perfdojo_sdk.models.row_calls import RowCalls
from perfdojo_sdk.models.tensors import places, read_tensors

#: Codes of errors that say that this process cannot load a library.
NOT_HERE = ("PD-L006", "PD-L017")

_Call: TypeAlias = Callable[[Sequence[Array], Sequence[Array], "int | None"], object]
"""Reads the first arrays and writes the second, with so many threads."""


class Kernels(Protocol):
    """The kernels of a library, in this process or elsewhere."""

    @property
    def manifest(self) -> Manifest: ...

    def __getitem__(self, name: str, /) -> Callable[..., Any]: ...


def load_one(directory: str | Path) -> Model:
    """Open the model in ``directory``, which is one without buckets (:mod:`.buckets`).

    :class:`LibraryError` when there is none, when a file is not the one that the manifest describes, or when
    this processor lacks what the kernels need.
    """
    folder = Path(directory)
    try:
        return open_model(folder, load_library)
    except LibraryError as error:
        if error.code in NOT_HERE:
            verify = f"`perfdojo-sdk verify {folder} --data INPUTS.npz` runs it if its target can be emulated"
            error.hint = f"build the model for a target of this machine; {verify}"
        raise


def open_model(folder: Path, open_library: Callable[[Path], Kernels]) -> Model:
    """The model in ``folder``, whose library is opened so; errors as of :func:`load_model`."""
    manifest = read_model_manifest(folder)
    _check_files(folder, manifest)
    weights = read_tensors(folder / WEIGHTS, folder)
    graphs = tuple(manifest.blocks.values()) or (manifest,)
    library = open_library(folder / LIBRARY) if any(graph.kernels for graph in graphs) else None
    entries = {e.name: e for e in library.manifest.kernels} if library else {}
    used: dict[str, Array] = {}
    for graph in graphs:
        for name in graph.constants:
            array, entry = weights.get(name), graph.values[name]
            if array is None or array.shape != entry.shape or dtype_of(array) != entry.dtype:
                what = f"{folder} has no weight {ascii(name)[:80]} as its manifest says"
                raise LibraryError("PD-O011", what)
            used[name] = array
        for node in graph.nodes:
            if node.kernel:
                _check_node(node, entries.get(node.kernel), graph)
    parts = {name: _opened(folder, name, entry) for name, entry in manifest.parts.items()}
    return Model(folder, manifest, library, used, parts)


def part_path(folder: Path, name: str, peer: str) -> Path:
    """The file of a part that a peer runs."""
    return folder / PARTS / f"{name}.{ENDINGS[peer]}"


def _opened(folder: Path, name: str, entry: PartEntry) -> Opened:
    """A part that a peer runs, ready to run."""
    path = part_path(folder, name, str(entry.peer))
    try:
        content = read_bounded(path, MAX_PART_BYTES, folder)
    except OSError as error:
        raise LibraryError("PD-L004", f"cannot read {path}: {error.strerror}") from None
    if sha256(content).hexdigest() != entry.sha256:
        raise LibraryError("PD-L004", f"{path} is not the file that the manifest describes")
    nodes = ", ".join(entry.nodes[:3]) + (" and others" if len(entry.nodes) > 3 else "")
    try:
        return open_part(str(entry.peer), content, f"the model in {folder}, for {nodes[:200]},")
    except Refused as refused:
        raise PeerError("PD-O042", f"{path}: {refused.what}", hint="build the model again here") from None


def _check_files(folder: Path, manifest: ModelManifest) -> None:
    """The hash of the weights and of the library's manifest, which must be those of the model's."""
    try:
        digest = sha256()
        with open_regular(folder / WEIGHTS, folder) as file:
            while block := file.read(1 << 22):
                digest.update(block)
        right = digest.hexdigest() == manifest.weights_sha256
        if manifest.kernels:
            content = read_bounded(folder / LIBRARY / LIBRARY_FILE, MAX_FILE_BYTES, folder)
            right = right and sha256(content).hexdigest() == manifest.library_sha256
    except OSError as error:
        raise LibraryError("PD-L004", f"cannot read {error.filename}: {error.strerror}") from None
    if not right:
        what = f"the weights or the library in {folder} are not those that the manifest describes"
        raise LibraryError("PD-L004", what, hint="build the model again; finished kernels are not repeated")


def _check_node(node: NodeEntry, entry: KernelEntry | None, manifest: ModelManifest) -> None:
    """Refuse a call whose arrays are not those of its kernel."""
    if entry is not None:
        given = [manifest.values[name] for name in (*node.inputs, *node.outputs)]
        taken = [*entry.inputs, *entry.outputs]
        numbers = len(node.inputs) == len(entry.inputs) and len(given) == len(taken)
        if numbers and all(
            (g.shape, g.dtype) == (t.shape, t.dtype) for g, t in zip(given, taken, strict=True)
        ):
            return
    raise LibraryError("PD-O011", f"the library has no kernel {node.kernel} for a call of the model")


#: Arguments of a call of a model besides its inputs.
OWN_ARGUMENTS = ("threads",)


def inputs_by_name(
    model: str, names: Sequence[str], inputs: Sequence[Any], named: Mapping[str, Any]
) -> dict[str, Any]:
    """The inputs of a call by name; :class:`ArgumentTypeError` for one too many, twice or unknown."""
    takes = f"{model} takes {number_of(len(names), 'inputs')} ({', '.join(names)})"
    if len(inputs) > len(names):
        raise ArgumentTypeError("PD-L011", f"{takes}, not {len(inputs)}")
    given, words = dict(zip(names, inputs, strict=False)), keywords(names, OWN_ARGUMENTS)
    for word, value in named.items():
        name = words.get(word)
        if name is None:
            hint = "models return fresh arrays" if word == "out" else closest(word, [*words, *OWN_ARGUMENTS])
            raise ArgumentTypeError("PD-L011", f"{ascii(word)[1:-1]} is no input", why=takes, hint=hint)
        if name in given:
            raise ArgumentTypeError("PD-L011", f"{word} is given twice", why=takes)
        given[name] = value
    return given


def input_given(name: str, inputs: Mapping[str, Any]) -> Array:
    """An input of a call as an array; :class:`ArgumentTypeError` if it is missing."""
    if name not in inputs:
        words = keywords([name], OWN_ARGUMENTS)
        raise ArgumentTypeError("PD-L011", f"input {name} is missing", hint=by_keyword(words))
    return view(inputs[name], name)


def other_dtype(name: str, array: Array, dtype: str, expected: str) -> DojoError | None:
    """The error for an input of another dtype or byte order than the model takes; None if it has both."""
    if dtype_of(array) != dtype:
        what = f"{name} is {array.dtype}, the model takes {expected}"
        hint = f"convert it: x.astype({str(numpy_dtype(dtype))!r})"
        return ArgumentTypeError("PD-L011", what, hint=hint)
    if not array.dtype.isnative:
        what = f"{name} has bytes in the other order, the model takes {expected}"
        return ArgumentValueError("PD-L011", what, hint="convert it: x.astype(x.dtype.newbyteorder('='))")
    return None


class Model:
    """A model: ``model(x, ..., threads=None)`` or ``model(name=x)``; :attr:`manifest` describes it.

    An input called ``threads`` is given by position, or as ``threads_=``.
    """

    def __init__(
        self,
        directory: Path,
        manifest: ModelManifest,
        library: Kernels | None,
        weights: Mapping[str, Array],
        parts: Mapping[str, Opened] | None = None,
    ) -> None:
        self.directory, self.manifest, self._weights = directory, manifest, weights
        self.library, self.parts = library, dict(parts or {})
        self._types = {
            name: (manifest.values[name].shape, numpy_dtype(str(manifest.values[name].dtype)))
            for name in (*manifest.inputs, *manifest.outputs)
        }
        self._calls: tuple[tuple[NodeEntry, _Call], ...] = ()
        self._function: _Function | None = None
        self._rows: RowCalls | None = None
        self._blocks: dict[int, Model] = {}
        if manifest.rows is not None:
            self._blocks = {
                size: Model(directory, part.model_copy(update={"rows": None, "symbol": ""}), library, weights)
                for size, part in manifest.blocks.items()
            }
            function = _Function(manifest, linked, weights) if (linked := self.linked) else None
            self._rows = RowCalls(manifest, {n: part.run for n, part in self._blocks.items()}, function)
        elif (linked := self.linked) is not None and not manifest.parts:
            self._function = _Function(manifest, linked, weights)
        else:
            self._calls = tuple((node, _call(node, library, self.parts)) for node in manifest.nodes)

    def with_parts(self, parts: Mapping[str, Opened]) -> Model:
        """The same model, whose parts of peers are run by others."""
        return Model(self.directory, self.manifest, self.library, self._weights, parts)

    @property
    def linked(self) -> Library | None:
        """The library, if this process has loaded it with the model's function in C."""
        library = self.library
        return library if isinstance(library, Library) and self.manifest.symbol else None

    @property
    def weights(self) -> Mapping[str, Array]:
        """The constants by their names."""
        return self._weights

    def repack(self, weights: Mapping[str, Any] | None = None) -> None:
        """Take other ``weights``, by the names of :attr:`weights`, and pack again.

        Calls that run meanwhile use the old ones or the new ones, never both. Errors: as of a call.
        """
        changed = {name: self._weight(name, given) for name, given in (weights or {}).items()}
        self._take(together({**self._weights, **changed}) if changed else self._weights)

    def _weight(self, name: str, given: Any) -> Array:
        if name not in self._weights:
            what = f"{ascii(name)[:80]} is no weight of the model"
            raise ArgumentTypeError("PD-L011", what, hint=closest(name, list(self._weights)))
        old, new = self._weights[name], view(given, name)
        if new.dtype != old.dtype:
            raise ArgumentTypeError("PD-L011", f"{name} is {new.dtype}, the weight is {old.dtype}")
        if new.shape != old.shape:
            what = f"{name} has the shape {new.shape}, the weight has {old.shape}"
            raise ArgumentValueError("PD-L011", what)
        return new

    def _take(self, weights: Mapping[str, Array]) -> None:
        """Use these weights from the next call on."""
        self._weights = weights
        for block in self._blocks.values():
            block._take(weights)
        if (linked := self.linked) is None:
            return
        if self._rows is not None:
            function = _Function(self.manifest, linked, weights)
            self._rows = RowCalls(self.manifest, {n: b.run for n, b in self._blocks.items()}, function)
        elif self._function is not None:
            self._function = _Function(self.manifest, linked, weights)

    @property
    def inputs(self) -> dict[str, ValueEntry]:
        return {name: self.manifest.values[name] for name in self.manifest.inputs}

    @property
    def outputs(self) -> dict[str, ValueEntry]:
        return {name: self.manifest.values[name] for name in self.manifest.results}

    def __call__(self, /, *inputs: Any, threads: int | None = None, **named: Any) -> Any:
        """Compute; returns a fresh array, or a tuple of them for several outputs.

        ``inputs``: arrays of the model's shapes and dtypes, in its order or by name. Errors:
        :class:`ArgumentTypeError` (a TypeError), :class:`ArgumentValueError` (a ValueError).
        """
        return one_or_all(self.run(self._by_name(inputs, named), threads))

    def bind(self, /, *inputs: Any, threads: int | None = None, **named: Any) -> Callable[[], Any]:
        """Check the arguments once, for calls without arguments: ``run = model.bind(x); y = run()``.

        For small models, whose kernels cost less than the checks. The arrays are held, not copied: every call
        reads what is in them by then, and returns the same outputs, which it writes anew. The weights are
        those of now, whatever ``repack`` does later. Bound calls of several Python threads may run at once,
        one such call may not. Arguments and errors: as of the model itself, but arrays have to be contiguous.

        A model with free rows, or with parts that a peer runs, is called as usual each time, after the same
        checks: with fresh outputs, and with the weights of then.
        """
        given = self._by_name(inputs, named)
        arrays = [self._input(name, given, copy=False) for name in self.manifest.inputs]
        count = thread_count(threads)
        if self._function is None:
            held = dict(zip(self.manifest.inputs, arrays, strict=True))
            return lambda: one_or_all(self.run(held, count))
        made = {name: aligned_with_address(*self._types[name])[0] for name in self.manifest.outputs}
        call = self._function.bound([*arrays, *made.values()], count)

        def run() -> Any:
            call()
            return one_or_all([self._cut(name, made) for name in self.manifest.results])

        return run

    def _by_name(self, inputs: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
        return inputs_by_name(self.manifest.name, self.manifest.inputs, inputs, named)

    def run(self, inputs: Mapping[str, Any], threads: int | None = None) -> list[Array]:
        """The outputs for inputs by name."""
        arrays = [self._input(name, inputs) for name in self.manifest.inputs]
        if self._rows is not None:
            return self._rows.run(dict(zip(self.manifest.inputs, arrays, strict=True)), thread_count(threads))
        if self._function is None:
            return self._by_kernels(dict(zip(self.manifest.inputs, arrays, strict=True)), threads)
        made = [aligned_with_address(*self._types[name]) for name in self.manifest.outputs]
        pointers = [array.__array_interface__["data"][0] for array in arrays]
        self._function([*pointers, *[address for _, address in made]], thread_count(threads))
        found = {name: array for name, (array, _) in zip(self.manifest.outputs, made, strict=True)}
        return [self._cut(name, found) for name in self.manifest.results]

    def block(self, rows: int) -> Model:
        """The model for a fixed number of rows, one of ``manifest.rows.sizes``, kernel by kernel."""
        return self._blocks[rows]

    def by_blocks(self, inputs: Mapping[str, Any], threads: int | None = None) -> list[Array]:
        """The outputs of a model with free rows, without its function in C."""
        calls = RowCalls(self.manifest, {n: part.run for n, part in self._blocks.items()}, None)
        return calls.run({n: self._input(n, inputs) for n in self.manifest.inputs}, thread_count(threads))

    def _by_kernels(self, arrays: dict[str, Array], threads: int | None) -> list[Array]:
        """The outputs, by one call for each kernel and each part of a peer: for libraries that have no
        function of the model, and for models with such parts."""
        arrays.update(self._weights)
        block = aligned_empty((self.manifest.block_bytes,), np.uint8)
        for node, call in self._calls:
            made = [self._place(name, arrays, block) for name in node.outputs]
            call([self._bound(name, arrays) for name in node.inputs], made, threads)
        for k, check in enumerate(self.manifest.checks):
            if self._bound(check.value, arrays).any():
                raise forbidden(self.manifest, k)
        found = {name: self._output(name, arrays, block) for name in self.manifest.outputs}
        return [self._cut(name, found) for name in self.manifest.results]

    def _cut(self, name: str, found: Mapping[str, Array]) -> Array:
        """An output, as long as it is meant to be."""
        array = found[name]
        for cut in self.manifest.cuts:
            if cut.output == name:
                meant = int(found[cut.count].reshape(-1)[0])
                array = array[(slice(None),) * cut.axis + (slice(max(meant, 0)),)]
        return array

    def _input(self, name: str, inputs: Mapping[str, Any], copy: bool = True) -> Array:
        """An input, checked; in a layout of its own it is copied, or refused unless ``copy``."""
        array = input_given(name, inputs)
        shape, dtype = self.shape_for(name, array), self._types[name][1]
        if array.shape != shape or array.dtype != dtype:
            raise self._refused(name, array)
        if array.flags.c_contiguous and array.flags.aligned:
            return array
        if not copy:
            check_layout(array, name)
        return np.array(array, order="C")

    def shape_for(self, name: str, array: Array) -> tuple[int, ...]:
        """The shape that an input has to have, with as many free rows as ``array``."""
        return self._types[name][0] if self._rows is None else self._rows.shape(name, array)

    def _refused(self, name: str, array: Array) -> DojoError:
        entry = self.manifest.values[name]
        expected = self.manifest.text(name)
        if error := other_dtype(name, array, str(entry.dtype), expected):
            return error
        shown = f"[{','.join(map(str, array.shape))}]"
        if array.ndim == len(entry.shape):
            what = f"{name} has the shape {shown}, the model takes {expected}"
            return ArgumentValueError("PD-L011", what, hint=self._other_sizes(name, array.shape))
        what = f"{name} has {number_of(array.ndim, 'dimensions')}, {shown}; the model takes"
        what += f" {len(entry.shape)}, {expected}"
        return ArgumentValueError("PD-L011", what, hint=self._other_rank(name, array.shape))

    def _other_sizes(self, name: str, given: tuple[int, ...]) -> str:
        """Advice on an input with as many dimensions and other sizes."""
        if self._rows is not None:
            return ""
        entry = self.manifest.values[name]
        rows = tuple(given[1:]) == tuple(entry.shape[1:])
        sizes = ",".join(["batch" if rows else str(given[0]), *map(str, given[1:])])
        why = "for any number of rows, build the model" if rows else "build a model for these sizes"
        return f"{why} with --input '{name}={entry.dtype}[{sizes}]'"

    def _other_rank(self, name: str, given: tuple[int, ...]) -> str:
        """Advice on an input with too few or too many dimensions."""
        shape = self.manifest.values[name].shape
        if self._rows is not None and name in self._rows.rows.free:
            shape = self.manifest.shape(name, 1)  # of one row, which is what a smaller array may be
        flat = len(given) == 1 and prod(given) == prod(shape)
        if flat or [size for size in given if size != 1] == [size for size in shape if size != 1]:
            return f"give it the dimensions of the model: {name}.reshape({', '.join(map(str, shape))})"
        if given[:1] == (1,) and len(given) == len(shape) + 1:
            return f"leave its first dimension out: {name}[0]"
        return f"the model was built for {self.manifest.text(name)}; for other shapes, build it with them"

    def _place(self, name: str, arrays: dict[str, Array], block: Array) -> Array:
        """Memory for the result of a kernel: in the block, or fresh for an output of the model."""
        entry, offset = self.manifest.values[name], self.manifest.offsets.get(name)
        kind = numpy_dtype(str(entry.dtype))
        if offset is None:
            arrays[name] = aligned_empty(entry.shape, kind)
        else:
            arrays[name] = block[offset : offset + entry.bytes].view(kind).reshape(entry.shape)
        return arrays[name]

    def _bound(self, name: str, arrays: Mapping[str, Array]) -> Array:
        entry = self.manifest.values[name]
        found = arrays[home(self.manifest.views, name)]
        return found.view(numpy_dtype(str(entry.dtype))).reshape(entry.shape)

    def _output(self, name: str, arrays: Mapping[str, Array], block: Array) -> Array:
        """The caller's own array: no input, weight or memory of this call."""
        found, place = self._bound(name, arrays), home(self.manifest.views, name)
        shared = place in self.manifest.inputs or place in self._weights or place in self.manifest.offsets
        twice = sum(home(self.manifest.views, o) == place for o in self.manifest.outputs) > 1
        return np.array(found, order="C") if shared or twice else found

    def __repr__(self) -> str:
        return f"<model {self.manifest.name} for {self.manifest.target}: {len(self.manifest.nodes)} kernels>"


def _call(node: NodeEntry, library: Kernels | None, parts: Mapping[str, Opened]) -> _Call:
    """The function that makes one call of a model."""
    if node.part:
        part = parts[node.part]
        return lambda inputs, outputs, threads: part(inputs, outputs, thread_count(threads))
    assert library is not None, "a model with kernels has a library"
    kernel = library[node.kernel]
    return lambda inputs, outputs, threads: kernel(*inputs, out=tuple(outputs), threads=threads)


class _Function:
    """The model's function in C with its weights, and with what is made of them once."""

    def __init__(self, manifest: ModelManifest, library: Library, weights: Mapping[str, Array]) -> None:
        self.manifest = manifest
        shared = 2 if manifest.packed else 1
        arrays = len(manifest.inputs) + len(manifest.outputs)
        self._run, self._bytes = library.function(
            manifest.symbol, arrays + shared, counted=bool(manifest.rows)
        )
        self._pack = None
        if manifest.packed is not None:
            self._pack = library.function(pack_symbol(manifest.symbol), 2)
            if library.number(f"{packed_symbol(manifest.symbol)}_bytes") != manifest.packed.bytes:
                what = "the library does not pack as many bytes as the manifest says"
                raise LibraryError("PD-O011", what, hint="build the model again")
        self._held = weights  # the address below does not keep them
        self._weights = base_of(weights)
        self._needed: dict[int, int] = {}
        self._packed: Array | None = None
        self._packing = Lock()

    def _shared(self, threads: int) -> tuple[list[int], Array | None]:
        """The addresses of the weights and of what is packed, which is made now if this is the first call;
        and the array that holds it."""
        if self._pack is None or self.manifest.packed is None:
            return [self._weights], None
        packed = self._packed
        if packed is None:
            with self._packing:
                packed = self._packed
                if packed is None:
                    packed = self._packed = self._made(self._pack, self.manifest.packed.bytes, threads)
        return [self._weights, packed.__array_interface__["data"][0]], packed

    def _made(self, pack: tuple[Any, Any], size: int, threads: int) -> Array:
        """A fresh array with what is made of the weights."""
        run, needed = pack
        packed = aligned_empty((size,), np.uint8)
        space = own_workspace(int(needed(threads)))
        places = [array.__array_interface__["data"][0] for array in (packed, space)]
        if status := run(self._weights, *places, space.nbytes, threads):
            raise failed(self.manifest.name, status)
        return packed

    def __call__(self, pointers: Sequence[int], threads: int) -> None:
        """Compute into the outputs, whose addresses are the last; with free rows their number is first."""
        needed = self._needed.get(threads)
        if needed is None:
            needed = self._needed[threads] = int(self._bytes(threads))
        shared, held = self._shared(threads)
        space = own_workspace(needed)  # packing may have made it larger
        place = space.__array_interface__["data"][0]
        status = self._run(*pointers, *shared, place, space.nbytes, threads)
        del held
        if status:
            raise self._failed(status)

    def bound(self, arrays: Sequence[Array], threads: int) -> Callable[[], None]:
        """A call on these arrays, inputs and then outputs, with a workspace of its own."""
        shared, packed = self._shared(threads)
        space = aligned_empty((int(self._bytes(threads)),), np.uint8)
        held = (*arrays, space, packed, self._held)  # the addresses below do not keep them
        addresses = [array.__array_interface__["data"][0] for array in (*arrays, space)]
        values = [*addresses[:-1], *shared, addresses[-1], space.nbytes, threads]
        run, arguments = self._run, [kind(v) for kind, v in zip(self._run.argtypes, values, strict=True)]

        def call(_held: object = held) -> None:
            if status := run(*arguments):
                raise self._failed(status)

        return call

    def _failed(self, status: int) -> DojoError:
        """The meaning of a status that is not zero."""
        if status >= FIRST_CHECK and status - FIRST_CHECK < len(self.manifest.checks):
            return forbidden(self.manifest, status - FIRST_CHECK)
        return failed(self.manifest.name, status)


def one_or_all(found: Sequence[Array]) -> Any:
    """The output of a model that has one, or a tuple of all."""
    return found[0] if len(found) == 1 else tuple(found)


def together(weights: Mapping[str, Array]) -> dict[str, Array]:
    """Copies of the weights in one block of memory, where the model's function expects them."""
    order = places({name: (array.dtype.itemsize, array.nbytes) for name, array in weights.items()})
    block = aligned_empty((sum(array.nbytes for array in weights.values()),), np.uint8)
    found = {}
    for name, at in order.items():
        array = weights[name]
        copy = block[at : at + array.nbytes].view(array.dtype).reshape(array.shape)
        copy[...] = array
        copy.flags.writeable = False
        found[name] = copy
    return {name: found[name] for name in weights}


def base_of(weights: Mapping[str, Array]) -> int:
    """The address of the first byte of all weights; :class:`LibraryError` if they lie otherwise than the
    model's function was made for."""
    order = places({name: (array.dtype.itemsize, array.nbytes) for name, array in weights.items()})
    address = {name: array.__array_interface__["data"][0] - order[name] for name, array in weights.items()}
    found = {address[name] for name, array in weights.items() if array.nbytes}
    if len(found) > 1:
        raise LibraryError("PD-O012", "the weights do not lie as the model's function expects")
    return found.pop() if found else 0


def forbidden(manifest: ModelManifest, number: int) -> ArgumentValueError:
    """The error of a check that failed."""
    check = manifest.checks[number]
    what = f"node {check.origin}: {check.what}" if check.origin else check.what
    why = "the standard forbids such a value, or the kernel has no room for it"
    why += "; nothing outside of an array was read or written"
    return ArgumentValueError("PD-O016", what, why=why)

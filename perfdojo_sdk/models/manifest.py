"""The manifest of a model: its graph, whose kernels are those of a library beside it.

``model.json`` is the last file that is written and the first that a reader trusts. It is hostile until it is
validated: each name refers to something that is there, shapes fit, offsets stay inside of the memory.
"""

from __future__ import annotations

import errno
import json
from collections.abc import Mapping
from math import prod
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, ValidationError, model_validator

from perfdojo_sdk.core.dtypes import BYTES, DTYPES
from perfdojo_sdk.core.files import read_bounded
from perfdojo_sdk.library.manifest import FILE as LIBRARY_FILE
from perfdojo_sdk.library.manifest import MODEL, Identifier, LibraryError, Sha256
from perfdojo_sdk.models import blocks
from perfdojo_sdk.models.policy import PEERS
from perfdojo_sdk.store.traces import Strict, first_error

FILE, WEIGHTS, LIBRARY, PARTS = MODEL, "weights.safetensors", "library", "parts"
BUCKETS = "buckets.json"
"""The manifest of a folder that has a model for each of a few lengths (:mod:`.buckets`)."""
MAX_BYTES = 256 << 20

ValueName = Annotated[str, StringConstraints(min_length=1, max_length=1024)]
AnySize = Annotated[int, Field(ge=0, le=2**40)]
MAX_BLOCK = 2**46


class ValueEntry(Strict):
    """One array."""

    shape: tuple[AnySize, ...] = Field(max_length=64)
    dtype: Literal[DTYPES]  # type: ignore[valid-type]

    @property
    def bytes(self) -> int:
        return prod(self.shape) * BYTES[str(self.dtype)]


class NodeEntry(Strict):
    """One call: of a kernel, or of a part that a peer runs."""

    kernel: Identifier | Literal[""] = ""
    part: Identifier | Literal[""] = ""
    """Name of the part; exactly one of the two is given."""
    inputs: tuple[ValueName, ...] = Field(max_length=64)
    outputs: tuple[ValueName, ...] = Field(min_length=1, max_length=64)
    origin: str = Field("", max_length=1024)
    """The node of the original model."""


class PartEntry(Strict):
    """A part of the model that a peer runs, in a file of the peer's format."""

    peer: Literal[PEERS]  # type: ignore[valid-type]
    sha256: Sha256
    nodes: tuple[Annotated[str, StringConstraints(max_length=1024)], ...]
    """Nodes of the original model."""
    why: str = Field(max_length=4096)
    crossing_bytes: int = Field(ge=0, le=MAX_BLOCK)
    """Bytes of the arrays that go there and come back in a call; constants are not among them."""
    median_s: float = Field(ge=0)
    """Measured when the model was built."""
    kernels_s: float | None = Field(None, ge=0)
    """Measured time of the kernels that it replaces; None where there are none."""


class RaceEntry(Strict):
    """A race of kernels against a peer when the model was built; equal kernels raced once."""

    kernels: tuple[Identifier, ...] = Field(min_length=1)
    nodes: str = Field(max_length=4096)
    """Nodes of the original model."""
    calls: int = Field(ge=1)
    kernels_s: float = Field(ge=0)
    peer_s: float | None = Field(None, ge=0)
    """None if the peer did not race."""
    peer: Literal[("", *PEERS)] = ""  # type: ignore[valid-type]
    """The peer that runs them; empty if the kernels do."""
    why: str = Field(max_length=4096)


class CheckEntry(Strict):
    """A number that must be 0 after a call; else an input breaks a rule of the standard."""

    value: ValueName
    what: str = Field(max_length=1024)
    origin: str = Field("", max_length=1024)


class CutEntry(Strict):
    """An output whose size depends on data: the count, an output of one element, says how much of the array
    is meant along the axis."""

    output: ValueName
    axis: int = Field(ge=0, lt=64)
    count: ValueName


class FoldEntry(Strict):
    """A declared law by which floats were computed when the model was built, in float64 and rounded once."""

    law: str = Field(max_length=1024)
    where: str = Field(max_length=1024)
    what: str = Field(max_length=1024)


class EdgeEntry(Strict):
    """An array between two nodes of the original model, and the verdict whether one kernel holds both."""

    value: ValueName
    producer: str = Field(max_length=1024)
    consumer: str = Field(max_length=1024)
    fused: bool
    why: str = Field(max_length=1024)
    bytes: int = Field(ge=0, le=MAX_BLOCK)
    seconds: float = Field(ge=0)


class PackCallEntry(Strict):
    """Work that depends on constants alone."""

    kernel: Identifier
    whole: bool
    """True if all of the kernel is such work; else its pack is."""
    inputs: tuple[ValueName, ...] = Field(max_length=64)
    """The constants that it reads, or what an earlier call made."""
    bytes: int = Field(ge=0, le=MAX_BLOCK)


class PackEntry(Strict):
    """The work of the library's function ``SYMBOL_pack`` on the weights, once for all calls."""

    bytes: int = Field(ge=0, le=MAX_BLOCK)
    calls: tuple[PackCallEntry, ...] = Field(min_length=1)
    values: dict[ValueName, Annotated[int, Field(ge=0, le=MAX_BLOCK)]] = {}
    """Arrays that kernels of constants make -> their first byte in it."""


class RowsEntry(Strict):
    """The free rows of a model, which consists of the same graph for several numbers of rows."""

    name: str = Field(max_length=1024)
    """The dimension as users call it."""
    most: int = Field(ge=1, le=2**40)
    """Most rows of a call."""
    free: dict[ValueName, Annotated[int, Field(ge=0, lt=64)]]
    """Input or output with rows -> the dimension that they lie in; all before it have one element."""
    sizes: tuple[Annotated[int, Field(ge=1, le=blocks.MOST)], ...] = Field(min_length=1, max_length=64)
    """Rows of each block, ascending; the last is the graph of this manifest."""
    seconds: tuple[Annotated[float, Field(ge=0)], ...]
    """Time of each block's kernels, as the library's manifest has it."""
    choices: tuple[int, ...] = Field(repr=False)
    """The block to run for each number of rows that are left; at place 0 that for more."""
    smaller: tuple[ModelManifest, ...] = Field(repr=False)
    """The graphs of the other blocks, which share library and weights."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if list(self.sizes) != sorted(set(self.sizes)) or len(self.seconds) != len(self.sizes):
            raise ValueError("the sizes of blocks of rows are not ascending, or have no times")
        if len(self.smaller) != len(self.sizes) - 1 or any(m.rows is not None for m in self.smaller):
            raise ValueError("there is not one graph for each block of rows")
        if len(self.choices) != self.sizes[-1] + 1 or not set(self.choices) <= set(self.sizes):
            raise ValueError("the choice of blocks is not one of them for each number of rows")
        return self


class ModelManifest(Strict):
    """The whole model."""

    schema_version: Literal[1] = 1
    sdk_version: str
    name: str = Field(max_length=1024)
    target: Identifier
    inputs: tuple[ValueName, ...]
    outputs: tuple[ValueName, ...] = Field(min_length=1)
    values: dict[ValueName, ValueEntry]
    nodes: tuple[NodeEntry, ...]
    views: dict[ValueName, ValueName]
    """View -> the value whose elements it has."""
    constants: tuple[ValueName, ...]
    """Values whose data the file of weights has."""
    offsets: dict[ValueName, Annotated[int, Field(ge=0, le=MAX_BLOCK)]]
    """Arrays between kernels -> their first byte in the block of memory of a call."""
    block_bytes: int = Field(ge=0, le=MAX_BLOCK)
    weights_sha256: Sha256
    checks: tuple[CheckEntry, ...] = ()
    cuts: tuple[CutEntry, ...] = ()
    """Their counts are the last outputs, which callers from Python do not see."""
    edges: tuple[EdgeEntry, ...] = ()
    folds: tuple[FoldEntry, ...] = ()
    parts: dict[Identifier, PartEntry] = {}
    races: tuple[RaceEntry, ...] = ()
    verdict: Annotated[str, StringConstraints(max_length=1024)] = ""
    """The time of the whole model with and without the parts that a peer won."""
    symbol: Identifier | Literal[""] = ""
    """The library's function for the whole model; empty if it has none."""
    library_sha256: Sha256
    """Hash of the library's manifest, which holds those of all its files."""
    packed: PackEntry | None = None
    """Work on constants alone that is done once; None if there is none."""
    rows: RowsEntry | None = None
    """The free rows; shapes are then those of the largest block."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        _check_views(self.views, self.values)
        known = {*self.inputs, *self.constants}
        packed = self.packed.values if self.packed else {}
        writable = {*self.offsets, *self.outputs, *packed}
        for name in (*known, *self.outputs, *self.offsets, *packed):
            if name not in self.values:
                raise ValueError(f"{name!r} is no value")
        for name, offset in self.offsets.items():
            if offset % 64 or offset + self.values[name].bytes > self.block_bytes:
                raise ValueError(f"{name!r} does not lie in the block of memory")
        if self.packed is not None:
            self._check_packed(self.packed)
        for node in self.nodes:
            called = node.kernel or node.part
            if bool(node.kernel) == bool(node.part) or node.part and node.part not in self.parts:
                raise ValueError(f"a call of {called!r} is none of a kernel or of a part")
            for name in node.inputs:
                if name not in self.values or home(self.views, name) not in known:
                    raise ValueError(f"a call of {called} reads {name!r}, which is not there by then")
            for name in node.outputs:
                outside = name not in {home(self.views, o) for o in writable}
                if name not in self.values or name in known or name in self.views or outside:
                    raise ValueError(f"a call of {called} writes {name!r}, which has no place")
            known |= set(node.outputs)
        for name in (*self.outputs, *(check.value for check in self.checks)):
            if name not in self.values or home(self.views, name) not in known:
                raise ValueError(f"{name!r} is not computed")
        self._check_cuts()
        if self.rows is not None:
            self._check_rows(self.rows)
        return self

    def _check_packed(self, packed: PackEntry) -> None:
        """Results of packs lie in their block."""
        for name, offset in packed.values.items():
            if offset % 64 or offset + self.values[name].bytes > packed.bytes:
                raise ValueError(f"{name!r} does not lie in what is packed")
        if sum(call.bytes for call in packed.calls) > packed.bytes:
            raise ValueError("more is packed than its bytes")

    def _check_rows(self, rows: RowsEntry) -> None:
        """Each block takes and gives the same arrays, but for the size of the dimension of rows."""
        names = (self.inputs, self.outputs)
        if not set(rows.free) <= {*self.inputs, *self.outputs} or self.cuts:
            raise ValueError("what has free rows is no input or output, or its size depends on data")
        given = [name for name in self.inputs if name in rows.free]
        if not given or any(self.shape(name, 1)[rows.free[name]] != 1 for name in given):
            raise ValueError("the inputs do not say how many rows there are")
        for size, block in self.blocks.items():
            if (block.inputs, block.outputs) != names:
                raise ValueError(f"the block of {size} rows has other inputs or outputs")
            for name in (*self.inputs, *self.outputs):
                one, other = self.values[name], block.values[name]
                if one.dtype != other.dtype or other.shape != self.shape(name, size):
                    raise ValueError(f"the block of {size} rows has another {name!r}")

    @property
    def blocks(self) -> dict[int, ModelManifest]:
        """Rows -> the graph for so many, if rows are free."""
        if self.rows is None:
            return {}
        return dict(zip(self.rows.sizes, (*self.rows.smaller, self), strict=True))

    def shape(self, name: str, rows: int) -> tuple[int, ...]:
        """The shape of an input or output of a call with so many free rows; ValueError if it has no place
        for rows where it should."""
        shape = self.values[name].shape
        dimension = self.rows.free.get(name) if self.rows is not None else None
        if self.rows is None or dimension is None:
            return shape
        largest = self.rows.sizes[-1]
        if dimension >= len(shape) or prod(shape[:dimension]) != 1 or shape[dimension] % largest:
            raise ValueError(f"{name!r} has no rows in dimension {dimension}")
        return (*shape[:dimension], shape[dimension] // largest * rows, *shape[dimension + 1 :])

    def text(self, name: str, named: Mapping[int, str] = MappingProxyType({})) -> str:
        """Dtype and shape of an input or output, with the name of its free dimension. ``named``: names of
        other dimensions."""
        entry, free = self.values[name], self.rows.free if self.rows is not None else {}
        sizes = [named.get(k, str(size)) for k, size in enumerate(entry.shape)]
        if self.rows is not None and name in free:
            each = entry.shape[free[name]] // self.rows.sizes[-1]
            sizes[free[name]] = self.rows.name if each == 1 else f"{each}*{self.rows.name}"
        return f"{entry.dtype} [{','.join(sizes)}]"

    def _check_cuts(self) -> None:
        counts = {cut.count for cut in self.cuts}
        if not self.results or counts != set(self.outputs[len(self.results) :]):
            raise ValueError("the last outputs are not the counts of the others")
        for cut in self.cuts:
            count = self.values[cut.count]
            if cut.output not in self.results or cut.axis >= len(self.values[cut.output].shape):
                raise ValueError(f"{cut.output!r} has no axis {cut.axis} to be cut")
            if prod(count.shape) != 1 or count.dtype != "i64":
                raise ValueError(f"{cut.count!r} is no count")

    @property
    def kernels(self) -> tuple[str, ...]:
        """The kernel of each call of one."""
        return tuple(node.kernel for node in self.nodes if node.kernel)

    @property
    def results(self) -> tuple[str, ...]:
        """The outputs that callers see."""
        return self.outputs[: len(self.outputs) - len({cut.count for cut in self.cuts})]


RowsEntry.model_rebuild()


def home(views: Mapping[str, str], name: str) -> str:
    """The value whose memory holds the elements of ``name``."""
    while name in views:
        name = views[name]
    return name


def _check_views(views: Mapping[str, str], values: Mapping[str, ValueEntry]) -> None:
    """Each view has as many elements of the same dtype as its value, or of another one of the same width but
    bool, and no view is one of itself."""
    for view, of in views.items():
        if view not in values or of not in values:
            raise ValueError(f"{view!r} is a view of no value")
        one, other = values[view], values[of]
        dtypes = {str(one.dtype), str(other.dtype)}
        fits = len(dtypes) == 1 or ("bool" not in dtypes and len({BYTES[dtype] for dtype in dtypes}) == 1)
        if not fits or prod(one.shape) != prod(other.shape):
            raise ValueError(f"{view!r} is no view of {of!r}")
    settled: set[str] = set()
    for view in views:
        path = set[str]()
        name = view
        while name in views and name not in settled:
            if name in path:
                raise ValueError(f"{view!r} is a view of itself")
            path.add(name)
            name = views[name]
        settled |= path


def read_model_manifest(directory: Path) -> ModelManifest:
    """The checked manifest of the model in ``directory``."""
    path = directory / FILE
    hint = "build one with: perfdojo-sdk optimize MODEL.onnx"
    try:
        content = read_bounded(path, MAX_BYTES, directory)
    except OSError as error:
        if error.errno == errno.EFBIG:
            raise LibraryError("PD-O011", f"{path} is larger than {MAX_BYTES} bytes", hint=hint) from None
        what = f"{directory} holds no model"
        if (directory / BUCKETS).is_file():
            what = f"{directory} holds a model for each of a few lengths, and one is asked for"
            lengths = sorted(int(p.name) for p in directory.iterdir() if p.name.isdecimal())
            hint = f"name one of {', '.join(str(directory / str(length)) for length in lengths[:16])}"
        elif (directory / LIBRARY_FILE).is_file():
            hint = "it holds a library: perfdojo_sdk.load_library"
        elif directory.is_file():
            in_a_model = (directory.parent / FILE).is_file()
            hint = f"name the folder: {directory.parent}" if in_a_model else hint
        raise LibraryError("PD-O010", what, why=f"{path}: {error.strerror}", hint=hint) from None
    try:
        return ModelManifest.model_validate_json(content)
    except ValidationError as error:
        raise LibraryError("PD-O011", f"{path} is no manifest", why=first_error(error), hint=hint) from None
    except (ValueError, RecursionError):
        raise LibraryError("PD-O011", f"{path} is no manifest", why="it is not JSON", hint=hint) from None


def as_json(manifest: ModelManifest) -> str:
    return json.dumps(manifest.model_dump(mode="json"), indent=1) + "\n"

"""The manifest of a library: its files and kernels, and how each kernel was found, verified and measured.

``manifest.json`` is the last file that a build writes and the first that a reader trusts. It is
hostile until validated: names are identifiers, paths stay inside the folder, files have hashes.
"""

from __future__ import annotations

import errno
import json
from collections import Counter
from datetime import datetime
from math import prod
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, StringConstraints, ValidationError, model_validator

from perfdojo_sdk.core.dtypes import DTYPES, PACKED_DTYPES, packed_bytes
from perfdojo_sdk.core.errors import DojoError
from perfdojo_sdk.core.files import read_bounded
from perfdojo_sdk.core.tokens import MAX_NUMBER
from perfdojo_sdk.hookspecs.types import ArraySpec, Elements, Packing
from perfdojo_sdk.store.records import Figure, RooflineBound, Timing, Verification, sha256
from perfdojo_sdk.store.traces import Name, SavedMove, Strict, first_error

FILE = "manifest.json"
#: The file that a model's folder has in its place.
MODEL = "model.json"
SCHEMA = 2
MAX_FILE_BYTES = 64 << 20
#: Largest size of any other file of a library.
MAX_ARTEFACT_BYTES = 1 << 30

Identifier = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=256)]
RelativePath = Annotated[
    str,
    StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.]*(/[A-Za-z0-9_][A-Za-z0-9_.]*)*$", max_length=512),
]
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Size = Annotated[int, Field(ge=1, le=MAX_NUMBER)]


def _date(text: str) -> str:
    """The text, which must be a date and time of ISO 8601."""
    datetime.fromisoformat(text)
    return text


class LibraryError(DojoError):
    """A library cannot be built, read or loaded."""


class Artefact(Strict):
    """One file of the library."""

    kind: str
    """``source``, ``support``, ``trace``, ``program``, or what the target's packager makes: ``header``,
    ``shared_object`` and other kinds of compiled code, ``report`` ..."""
    path: RelativePath
    sha256: Sha256


class ElementsEntry(Strict):
    """The elements of a packed array, several in a byte, the first in the lowest bits."""

    shape: tuple[Size, ...] = Field(max_length=64)
    dtype: Literal[PACKED_DTYPES]  # type: ignore[valid-type]


class ArrayEntry(Strict):
    """One input or output, as it lies in memory: C order, no gaps."""

    name: Name
    shape: tuple[Size, ...] = Field(max_length=64)
    dtype: Literal[DTYPES]  # type: ignore[valid-type]
    holds: ElementsEntry | None = None
    """The elements of an array of bytes that is a packed one."""

    @classmethod
    def of(cls, spec: ArraySpec) -> ArrayEntry:
        inside = spec.holds
        holds = ElementsEntry(shape=inside.shape, dtype=inside.dtype) if inside else None
        return cls(name=spec.name, shape=spec.shape, dtype=spec.dtype, holds=holds)

    @model_validator(mode="after")
    def _bytes_are_those_of_the_elements(self) -> Self:
        if self.holds is not None:
            size = packed_bytes(prod(self.holds.shape), self.holds.dtype)
            if (self.dtype, self.shape) != ("u8", (size,)):
                raise ValueError(f"{self.name} holds packed elements in other than {size} bytes")
        return self

    @property
    def spec(self) -> ArraySpec:
        """The array as code and runners take it."""
        holds = Elements(self.holds.shape, self.holds.dtype) if self.holds else None
        return ArraySpec(self.name, self.shape, self.dtype, holds)


class KernelTiming(Strict):
    """A kernel's times, beside those of the initial program and the bound of the machine."""

    initial: Timing | None
    final: Timing | None
    bound: RooflineBound | None
    suspect: str = ""
    """The reason why the final time is too good to be believed; no speed-up is computed from it then. Empty
    if it is believed."""
    packed: Timing | None = None
    """The time without the kernel's pack, which the final time holds; None if it offers none."""

    @property
    def call(self) -> Timing | None:
        """The time of a call while constant inputs stay as they are."""
        return self.packed or self.final

    @property
    def speed_up(self) -> float | None:
        """Initial over final time; None unless both were obtained in the same way, and are believed."""
        return self._over_initial(self.final)

    @property
    def call_speed_up(self) -> float | None:
        """The same for a call while constant inputs stay as they are: initial programs pack nothing."""
        return self._over_initial(self.call)

    def _over_initial(self, time: Timing | None) -> float | None:
        if self.suspect or not self.initial or not time or self.initial.provenance != time.provenance:
            return None
        return self.initial.median_s / time.median_s

    @property
    def roofline_fraction(self) -> float | None:
        """Bound over final time: 1 is as fast as the machine's figures allow."""
        if self.suspect or not self.bound or not self.final:
            return None
        return self.bound.seconds / self.final.median_s


class PackingEntry(Strict):
    """The pack that a kernel offers: the functions ``SYMBOL_pack`` and ``SYMBOL_packed``."""

    constants: tuple[Name, ...] = Field(min_length=1, max_length=64)
    """The inputs that the pack reads, once for all calls in which they stay as they are."""
    rest: tuple[Name, ...] = Field(max_length=64)
    """The inputs that the second function reads, before what is packed."""
    bytes: int = Field(ge=0, le=2**48)

    @classmethod
    def of(cls, packing: Packing) -> PackingEntry:
        constants, rest = (tuple(a.name for a in each) for each in (packing.constants, packing.rest))
        return cls(constants=constants, rest=rest, bytes=packing.bytes)


class KernelEntry(Strict):
    """One kernel of the library."""

    name: Identifier
    operator: Identifier
    alias: Identifier | None = None
    """The operator's name for these sizes, such as ``layernorm1``."""
    sizes: dict[Name, Size]
    symbol: Identifier
    """The C function; the header declares it."""
    workspace_symbol: Identifier
    """The C function that gives the bytes of workspace for a number of threads."""
    inputs: tuple[ArrayEntry, ...] = Field(max_length=64)
    outputs: tuple[ArrayEntry, ...] = Field(min_length=1, max_length=64)
    code: RelativePath
    """The artefact that holds the compiled kernel."""
    source: RelativePath
    program: RelativePath
    """The final program."""
    trace: RelativePath
    """A saved game: initial program and moves."""
    moves: tuple[SavedMove, ...]
    kind: str
    """The most that any move may have changed."""
    laws: tuple[str, ...]
    verification: Verification
    timing: KernelTiming
    speed_up: float | None
    roofline_fraction: float | None
    output_sha256: Sha256 | None
    """None: the kernel was not computed at this size where it was built; its time is estimated."""
    notes: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()
    """Faults of plugins while the kernel was built, one line each."""
    build_seconds: dict[str, float] = {}
    """Duration of each stage of the kernel's build."""
    packing: PackingEntry | None = None


class Manifest(Strict):
    """The whole library."""

    schema_version: Literal[2] = 2
    sdk_version: str
    target: Identifier
    device: str
    machine: str
    """Processor family as the operating system names it."""
    cpu_flags: tuple[str, ...]
    """Without these the kernels do not run."""
    toolchain: str
    contraction: bool
    """True when the compiler was free to contract a*b+c into one rounding (FMA)."""
    plugins: dict[str, str]
    settings: dict[str, Figure]
    created: Annotated[str, AfterValidator(_date)]
    artefacts: tuple[Artefact, ...]
    kernels: tuple[KernelEntry, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _told_apart(self) -> Self:
        names = [entry.name for entry in self.kernels]
        symbols = [symbol for entry in self.kernels for symbol in (entry.symbol, entry.workspace_symbol)]
        for what, found in (("kernels", names), ("functions", symbols)):
            if twice := [name for name, count in Counter(found).items() if count > 1]:
                raise ValueError(f"there are two {what} of the name {twice[0]}")
        return self

    def artefact(self, kind: str) -> Artefact:
        """The only file of its kind; :class:`LibraryError` when there is none."""
        for artefact in self.artefacts:
            if artefact.kind == kind:
                return artefact
        raise LibraryError(
            "PD-L003", f"the library has no {kind}", hint="build it for a target that makes one"
        )

    def code_of(self, entry: KernelEntry) -> Artefact:
        """The file that holds a kernel's compiled code."""
        for artefact in self.artefacts:
            if artefact.path == entry.code:
                return artefact
        raise LibraryError("PD-L003", f"the library lists no file {entry.code}, which holds {entry.name}")


def read_manifest(directory: Path) -> Manifest:
    """The checked manifest of the library in ``directory``."""
    path = directory / FILE
    hint = "build one with: perfdojo-sdk build-library"
    try:
        content = read_bounded(path, MAX_FILE_BYTES, directory)
    except OSError as error:
        if error.errno == errno.EFBIG:
            what = f"{path} is larger than {MAX_FILE_BYTES} bytes"
            raise LibraryError("PD-L002", what, hint=hint) from None
        what = f"{directory} holds no library"
        if (directory / MODEL).is_file():
            hint = (
                f"it holds a model: perfdojo_sdk.load_model; its kernels' library is {directory / 'library'}"
            )
        elif directory.is_file():
            hint = f"name the folder: {directory.parent}"
        raise LibraryError("PD-L001", what, why=f"{path}: {error.strerror}", hint=hint) from None
    try:
        found = json.loads(content)
        version = found.get("schema_version") if isinstance(found, dict) else None
        if isinstance(version, int) and version != SCHEMA:
            what = f"{path} has schema version {version}, this SDK reads version {SCHEMA}"
            raise LibraryError("PD-L002", what, hint="use the SDK that wrote it, or build the library again")
        return Manifest.model_validate_json(content)
    except ValidationError as error:
        what = f"{path} is no manifest"
        raise LibraryError("PD-L002", what, why=first_error(error), hint=hint) from None
    except (ValueError, RecursionError):
        raise LibraryError("PD-L002", f"{path} is no manifest", why="it is not JSON", hint=hint) from None


def read_artefact(directory: Path, artefact: Artefact) -> bytes:
    """The file's content, which must be what the manifest says; no link leads to it."""
    path = directory / artefact.path
    hint = "build the library again; finished kernels are not repeated"
    try:
        content = read_bounded(path, MAX_ARTEFACT_BYTES, directory)
    except OSError as error:
        what = f"cannot read {error.filename or path}: {error.strerror}"
        raise LibraryError("PD-L004", what, hint=hint) from None
    if sha256(content) != artefact.sha256:
        what = f"{path} is not the file that the manifest describes"
        why = "it was changed, or a build was interrupted while it wrote"
        raise LibraryError("PD-L004", what, why=why, hint=hint)
    return content

"""Write a library's folder: sources, programs, traces, the packager's files, and the manifest.

Each file is complete or absent, the manifest comes last, and holds hashes of the others; so an
interrupted build leaves the old library, or one that a reader refuses, never a mixture.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from pydantic import ValidationError

import perfdojo_sdk
from perfdojo_sdk.codegen.packaging import CPackager, Unit, shared_support
from perfdojo_sdk.core.errors import DojoError, VerificationError
from perfdojo_sdk.core.files import remove
from perfdojo_sdk.core.table_files import TableFileError, content_of
from perfdojo_sdk.game import write_atomically
from perfdojo_sdk.hookspecs.services import Packable, Package, PackagedFile
from perfdojo_sdk.hookspecs.types import Artifact, Failure
from perfdojo_sdk.library.accepting import Found, output_sha256
from perfdojo_sdk.library.context import BuildContext
from perfdojo_sdk.library.manifest import (
    FILE,
    ArrayEntry,
    Artefact,
    KernelEntry,
    KernelTiming,
    LibraryError,
    Manifest,
    PackingEntry,
    read_artefact,
    read_manifest,
)
from perfdojo_sdk.store.records import sha256
from perfdojo_sdk.store.traces import first_error

#: Packaged kernels that are checked at a time. Nothing is timed, but each needs memory for its arrays.
AT_ONCE = 3


def package(
    context: BuildContext, kernels: Sequence[Found], directory: Path, unit: Unit | None = None
) -> Manifest:
    """Write the library of ``kernels`` into ``directory``. ``unit`` is linked with kernels in C, unless the
    target has a packager of its own.

    :class:`VerificationError` when the packaged code does not give the verified bits.
    """
    packed = [Packable(f.kernel.name, f.kernel.operator, f.source) for f in kernels]
    made = _pack(context, packed, unit)
    homes = _homes(made.files, packed)

    def differs(found: Found) -> str:
        home = homes[found.kernel.name]
        return differing(context, found, home.content, home.kind)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        reasons = list(pool.map(differs, kernels))
    for found, reason in zip(kernels, reasons, strict=True):
        if reason:
            what = f"{found.kernel.name}, packaged, is not the kernel that was verified"
            raise VerificationError("PD-L021", what, why=reason)
    files = _sources(context.target.name, kernels, packed) + list(made.files)
    artefacts = _artefacts(files)
    manifest = _manifest(context, made.toolchain, artefacts, kernels, homes)
    stale = [there for there in _listed(directory) if there.path not in {a.path for a in artefacts}]
    for file in files:
        write_atomically(directory / file.path, file.content, directory)
    write_atomically(directory / FILE, manifest.model_dump_json(indent=2) + "\n", directory)
    for artefact in stale:
        _delete(directory, artefact)
    return manifest


def differing(context: BuildContext, found: Found, content: bytes, kind: str) -> str:
    """The reason why the kernel inside the packaged file does not give the verified bits; "" when it does.

    If the kernel was not computed at its size, its estimated time must be that of the verified one.
    """
    artifact = Artifact(found.source.symbol, found.source.inputs, found.source.outputs, kind, content)
    computed, expected = found.record.output_sha256 is not None, found.record.final
    request = context.settings.request
    measured = context.runner.run(artifact, replace(request, repeats=0 if computed else request.repeats))
    if isinstance(measured, Failure):
        return f"{measured.reason}: {measured.detail}"
    if not computed:
        same = expected is not None and measured.median == expected.median_s
        return "" if same else "its estimate differs from that of the verified kernel"
    same = output_sha256(measured) == found.record.output_sha256
    return "" if same else "its outputs differ from those of the verified kernel"


def _pack(context: BuildContext, kernels: Sequence[Packable], unit: Unit | None) -> Package:
    """The package of the target's packager; a fault of the packager is an error that names it."""
    in_c = all(kernel.source.language == "c" for kernel in kernels)
    packager = context.plugins.packager(context.target) or CPackager(unit if in_c else None)
    try:
        made = packager.package(f"perfdojo_{context.target.name}", kernels, context.runner)
    except DojoError:
        raise
    except Exception as error:  # in a plugin's code
        raise _unpackable(type(packager).__name__, f"{type(error).__name__}: {error}") from error
    if isinstance(made, Failure):
        late = made.reason == "compile_timeout"
        hint = "repeat the command when the machine is less busy; built kernels are kept" if late else ""
        raise LibraryError("PD-L023", "the library does not link", why=made.detail, hint=hint)
    return made


def _unpackable(packager: str, why: str) -> LibraryError:
    hint = "report it to the plugin that brings the target"
    return LibraryError("PD-L022", f"the library cannot be packaged by {packager}", why=why, hint=hint)


def _homes(files: Sequence[PackagedFile], kernels: Sequence[Packable]) -> dict[str, PackagedFile]:
    """Kernel -> the one file that holds its code."""
    homes: dict[str, PackagedFile] = {}
    for file in files:
        for name in file.kernels:
            if name in homes:
                why = f"{homes[name].path} and {file.path} both hold kernel {name}"
                raise _unpackable("the packager", why)
            homes[name] = file
    missing = [kernel.name for kernel in kernels if kernel.name not in homes]
    if missing:
        raise _unpackable("the packager", f"no file holds kernel {missing[0]}")
    return homes


def _sources(target: str, kernels: Sequence[Found], packed: Sequence[Packable]) -> list[PackagedFile]:
    """The files that the SDK itself writes beside the compiled code."""
    files = []
    for found in kernels:
        trace = found.record.trace.model_dump(mode="json", by_alias=True)
        game = json.dumps({"schema": 1, "target": target, "trace": trace}, indent=2) + "\n"
        files += [
            PackagedFile("source", source_path(found), found.source.code.encode()),
            PackagedFile("program", f"programs/{found.kernel.name}.dojo", found.record.program.encode()),
            PackagedFile("trace", f"traces/{found.kernel.name}.json", game.encode()),
        ]
    buffers = [buffer for found in kernels for buffer in found.kernel.program.buffers]
    tables = {buffer.file.kept_as: buffer.file for buffer in buffers if buffer.file is not None}
    try:
        contents = {name: content_of(tables[name]) for name in sorted(tables)}
    except TableFileError as error:
        raise _unpackable("the SDK", f"{error}: {error.why}; {error.hint}") from None
    files += [PackagedFile("table", f"programs/{name}", content) for name, content in contents.items()]
    try:
        support = shared_support(packed)
    except ValueError as error:
        raise _unpackable("the SDK", str(error)) from None
    return files + [PackagedFile("support", f"src/{n}", text.encode()) for n, text in support.items()]


def source_path(found: Found) -> str:
    return f"src/{found.kernel.name}.{found.source.language}"


def _artefacts(files: Sequence[PackagedFile]) -> tuple[Artefact, ...]:
    """The files as the manifest lists them, before any of them is written."""
    paths = [file.path for file in files]
    loose = [path for path in paths if "/" not in path]
    if loose:
        raise _unpackable("the packager", f"{loose[0]} stands in no folder; the top belongs to the SDK")
    twice = [path for path in paths if paths.count(path) > 1]
    if twice:
        raise _unpackable("the packager", f"two files are called {twice[0]}")
    try:
        return tuple(Artefact(kind=f.kind, path=f.path, sha256=sha256(f.content)) for f in files)
    except ValidationError as error:
        raise _unpackable("the packager", first_error(error)) from None


def _listed(directory: Path) -> tuple[Artefact, ...]:
    """Files of the library that is there now."""
    try:
        return read_manifest(directory).artefacts
    except LibraryError:
        return ()


def _delete(directory: Path, artefact: Artefact) -> None:
    """Delete a file of an earlier build, if it is still the one that the manifest describes.

    The manifest may come from anybody, so it must not make the build delete other files.
    """
    if "/" not in artefact.path:
        return
    try:
        read_artefact(directory, artefact)
        remove(directory / artefact.path, directory)
    except (LibraryError, OSError):
        return


def _manifest(
    context: BuildContext,
    toolchain: str,
    artefacts: tuple[Artefact, ...],
    kernels: Sequence[Found],
    homes: Mapping[str, PackagedFile],
) -> Manifest:
    try:
        entries = tuple(_entry(found, homes[found.kernel.name]) for found in kernels)
    except ValidationError as error:  # a code generator described an interface that is none
        raise _unpackable("the SDK", first_error(error)) from None
    return Manifest(
        sdk_version=perfdojo_sdk.__version__,
        target=context.target.name,
        device=context.device,
        machine=context.target.capabilities.machine or platform.machine(),
        cpu_flags=context.target.capabilities.cpu_flags,
        toolchain=toolchain,
        contraction="-ffp-contract=off" not in toolchain.split(),
        plugins=dict(context.fingerprints),
        settings=context.settings.as_figures(),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        artefacts=artefacts,
        kernels=entries,
    )


def _entry(found: Found, home: PackagedFile) -> KernelEntry:
    kernel, record = found.kernel, found.record
    timing = KernelTiming(
        initial=record.initial,
        final=record.final,
        bound=record.bound,
        suspect=record.suspect,
        packed=record.packed,
    )
    return KernelEntry(
        name=kernel.name,
        operator=kernel.operator,
        alias=kernel.alias or None,
        sizes=dict(kernel.sizes),
        symbol=kernel.symbol,
        workspace_symbol=f"{kernel.symbol}_workspace_bytes",
        inputs=tuple(ArrayEntry.of(a) for a in found.source.inputs),
        outputs=tuple(ArrayEntry.of(a) for a in found.source.outputs),
        code=home.path,
        source=source_path(found),
        program=f"programs/{kernel.name}.dojo",
        trace=f"traces/{kernel.name}.json",
        moves=record.trace.moves,
        kind=record.kind,
        laws=record.laws,
        verification=record.verification,
        timing=timing,
        speed_up=timing.speed_up,
        roofline_fraction=timing.roofline_fraction,
        output_sha256=record.output_sha256,
        notes=record.notes,
        faults=record.faults,
        build_seconds=record.build_seconds,
        packing=PackingEntry.of(found.source.packing) if found.source.packing else None,
    )

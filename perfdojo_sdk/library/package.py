"""Write a library's folder: sources, header, shared object, traces, programs, manifest.

Each file is complete or absent, the manifest comes last, and its hashes bind the others; so an
interrupted build leaves the old library, or one that a reader refuses, never a mixture.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import perfdojo_sdk
from perfdojo_sdk.codegen.c_values import C_TYPES
from perfdojo_sdk.codegen.names import c_name
from perfdojo_sdk.core.errors import VerificationError
from perfdojo_sdk.game import write_atomically
from perfdojo_sdk.hookspecs.types import ArraySpec, Artifact, Failure, KernelSource
from perfdojo_sdk.library.forge import Forge, Found
from perfdojo_sdk.library.manifest import (
    FILE,
    ArrayEntry,
    Artefact,
    KernelEntry,
    KernelTiming,
    LibraryError,
    Manifest,
    read_manifest,
)
from perfdojo_sdk.store.records import sha256

#: Suffix of a compiled file by its kind; other kinds are their own suffix.
SUFFIXES = {"shared_object": "so"}


def package(forge: Forge, kernels: Sequence[Found], directory: Path) -> Manifest:
    """Write the library of ``kernels`` into ``directory``.

    :class:`VerificationError` when the packaged code does not give the verified bits.
    """
    artifact = _link(forge, kernels)
    for found in kernels:
        reason = forge.same_outputs(found, artifact.content, artifact.kind)
        if reason:
            what = f"{found.kernel.name}, packaged, is not the kernel that was verified"
            raise VerificationError("PD-L021", what, why=reason)
    stale = _listed(directory)
    writer = _Writer(directory)
    for found in kernels:
        _write_kernel(writer, found, forge.target.name)
    for name, text in _support(kernels).items():
        writer.add("support", f"src/{name}", text)
    writer.add("header", f"include/perfdojo_{forge.target.name}.h", header(forge.target.name, kernels))
    suffix = SUFFIXES.get(artifact.kind, artifact.kind)
    writer.add(artifact.kind, f"lib/libperfdojo_{forge.target.name}.{suffix}", artifact.content)
    manifest = _manifest(forge, kernels, artifact, tuple(writer.artefacts))
    write_atomically(directory / FILE, manifest.model_dump_json(indent=2) + "\n")
    for path in stale - {a.path for a in writer.artefacts}:
        (directory / path).unlink(missing_ok=True)
    return manifest


class _Writer:
    """Writes files and remembers their hashes."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.artefacts: list[Artefact] = []

    def add(self, kind: str, path: str, content: str | bytes) -> None:
        write_atomically(self.directory / path, content)
        self.artefacts.append(Artefact(kind=kind, path=path, sha256=sha256(content)))


def _listed(directory: Path) -> set[str]:
    """Files of the library that is there now."""
    try:
        return {a.path for a in read_manifest(directory).artefacts}
    except LibraryError:
        return set()


def _write_kernel(writer: _Writer, found: Found, target: str) -> None:
    name = found.kernel.name
    game = {"schema": 1, "target": target, "trace": found.record.trace.model_dump(mode="json", by_alias=True)}
    writer.add("source", f"src/{name}.c", found.source.code)
    writer.add("program", f"programs/{name}.dojo", found.record.program)
    writer.add("trace", f"traces/{name}.json", json.dumps(game, indent=2) + "\n")


def _support(kernels: Sequence[Found]) -> dict[str, str]:
    """Files that the sources include; all kernels of a target share them."""
    files: dict[str, str] = {}
    for found in kernels:
        for name, text in found.source.support.items():
            if files.setdefault(name, text) != text:
                raise LibraryError("PD-L022", f"two kernels bring different versions of {name}")
    return files


def _link(forge: Forge, kernels: Sequence[Found]) -> Artifact:
    """One file with all kernels, compiled from the sources that were verified."""
    units = {f"{found.kernel.name}.c": found.source.code for found in kernels}
    name = f"perfdojo_{forge.target.name}"
    comment = f"/* Links the kernels of {name} into one file; each is a unit of its own. */\n"
    together = KernelSource(
        symbol=name,
        inputs=(),
        outputs=(),
        code=f"{comment}const int {name}_kernels = {len(kernels)};\n",
        language=kernels[0].source.language,
        support={**_support(kernels), **units},
    )
    artifact = forge.runner.compile(together)
    if isinstance(artifact, Failure):
        raise LibraryError("PD-L023", "the library does not link", why=artifact.detail)
    return artifact


def header(target: str, kernels: Sequence[Found]) -> str:
    """The C header of a library."""
    guard = f"PERFDOJO_{target.upper()}_H"
    lines = [
        f"/* Kernels for {target}. Arrays are in C order without gaps; outputs overlap nothing.",
        " *",
        " * A kernel returns 0, or non-zero when `workspace` holds fewer than NAME_workspace_bytes(threads)",
        " * bytes; workspace may be NULL when that is 0. Kernels are re-entrant: give each concurrent call",
        " * a workspace of its own.",
        " */",
        f"#ifndef {guard}",
        f"#define {guard}",
        "",
        "#include <stddef.h>",
        "",
        "#ifdef __cplusplus",
        'extern "C" {',
        "#endif",
        "",
    ]
    for found in kernels:
        lines += [*_prototype(found), ""]
    lines += ["#ifdef __cplusplus", "}", "#endif", "", f"#endif /* {guard} */"]
    return "\n".join(lines) + "\n"


def _prototype(found: Found) -> list[str]:
    source = found.source
    described = ", ".join(_described(a) for a in source.inputs)
    results = ", ".join(_described(a) for a in source.outputs)
    arguments = [f"const {C_TYPES.get(a.dtype, 'void')} *{c_name(a.name)}" for a in source.inputs]
    arguments += [f"{C_TYPES.get(a.dtype, 'void')} *{c_name(a.name)}" for a in source.outputs]
    arguments += ["void *workspace", "size_t workspace_bytes", "int threads"]
    return [
        f"/* {found.kernel.operator}: {described} -> {results} */",
        f"int {source.symbol}({', '.join(arguments)});",
        f"size_t {source.symbol}_workspace_bytes(int threads);",
    ]


def _described(array: ArraySpec) -> str:
    return f"{array.name} {array.dtype} [{','.join(map(str, array.shape))}]"


def _manifest(
    forge: Forge, kernels: Sequence[Found], artifact: Artifact, artefacts: tuple[Artefact, ...]
) -> Manifest:
    return Manifest(
        sdk_version=perfdojo_sdk.__version__,
        target=forge.target.name,
        device=forge.device,
        machine=platform.machine(),
        cpu_flags=forge.target.capabilities.cpu_flags,
        toolchain=artifact.toolchain,
        contraction="-ffp-contract=off" not in artifact.toolchain.split(),
        plugins=forge.fingerprints,
        settings=forge.settings.as_figures(),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        artefacts=artefacts,
        kernels=tuple(_entry(found) for found in kernels),
    )


def _entry(found: Found) -> KernelEntry:
    kernel, record = found.kernel, found.record
    timing = KernelTiming(initial=record.initial, final=record.final, bound=record.bound)
    return KernelEntry(
        name=kernel.name,
        operator=kernel.operator,
        alias=kernel.alias or None,
        sizes=dict(kernel.sizes),
        symbol=kernel.symbol,
        workspace_symbol=f"{kernel.symbol}_workspace_bytes",
        inputs=tuple(ArrayEntry.of(a) for a in found.source.inputs),
        outputs=tuple(ArrayEntry.of(a) for a in found.source.outputs),
        source=f"src/{kernel.name}.c",
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
    )

"""The default packager for kernels in C: a library is one compiled file with a C header.

The verified sources are compiled together, each as a unit of its own, by the runner that compiled them one by
one. A single kernel is a library as it was verified.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from perfdojo_sdk.codegen.c_values import C_TYPES
from perfdojo_sdk.codegen.names import c_name, given_name
from perfdojo_sdk.core.interface import MAX_THREADS, OTHER_PROCESSOR, TOO_MANY_THREADS, WORKSPACE_TOO_SMALL
from perfdojo_sdk.hookspecs.services import Packable, Package, PackagedFile
from perfdojo_sdk.hookspecs.types import ArraySpec, Failure, KernelSource, Runner

#: Suffix of a compiled file by its kind; other kinds are their own suffix.
SUFFIXES = {"shared_object": "so"}


@dataclass(frozen=True)
class Unit:
    """Code beside the kernels of a library that calls them."""

    file: str
    code: str
    prototypes: tuple[str, ...]
    """Lines of the header."""


@dataclass(frozen=True)
class CPackager:
    """Links all kernels into ``lib/libNAME`` and describes them in ``include/NAME.h``."""

    unit: Unit | None = None
    """Code that is linked with them."""

    def package(self, name: str, kernels: Sequence[Packable], runner: Runner) -> Package | Failure:
        unit = self.unit
        alone = kernels[0].source if len(kernels) == 1 and unit is None else None
        artifact = runner.compile(alone or self._together(name, kernels))
        if isinstance(artifact, Failure):
            return artifact
        suffix = SUFFIXES.get(artifact.kind, artifact.kind)
        text = header(name, kernels, unit.prototypes if unit else ())
        files = [
            PackagedFile("header", f"include/{name}.h", text.encode()),
            PackagedFile(
                artifact.kind, f"lib/lib{name}.{suffix}", artifact.content, tuple(k.name for k in kernels)
            ),
        ]
        if unit is not None:
            files.append(PackagedFile("source", f"src/{unit.file}", unit.code.encode()))
        return Package(tuple(files), artifact.toolchain)

    def _together(self, name: str, kernels: Sequence[Packable]) -> KernelSource:
        """One source that the compiler links of all kernels, and the unit beside them."""
        units = {f"{kernel.name}.c": kernel.source.code for kernel in kernels}
        if self.unit is not None:
            units[self.unit.file] = self.unit.code
        comment = f"/* Links the kernels of {name} into one file; each is a unit of its own. */\n"
        return KernelSource(
            symbol=name,
            inputs=(),
            outputs=(),
            code=f"{comment}const int {name}_kernels = {len(kernels)};\n",
            language=kernels[0].source.language,
            support={**shared_support(kernels), **units},
        )


def shared_support(kernels: Sequence[Packable]) -> Mapping[str, str]:
    """Files that the sources include; all kernels of a target share them.

    :class:`ValueError` when two kernels bring different texts under one name.
    """
    files: dict[str, str] = {}
    for kernel in kernels:
        for name, text in kernel.source.support.items():
            if files.setdefault(name, text) != text:
                raise ValueError(f"two kernels bring different versions of {name}")
    return files


def header(name: str, kernels: Sequence[Packable], more: Sequence[str] = ()) -> str:
    """The C header of a library; ``more``: lines for other functions than kernels."""
    guard = f"{name.upper()}_H"
    prototypes = [line for kernel in kernels for line in [*_prototype(kernel), ""]]
    prototypes += [*more, ""] if more else []
    arrays = [array for kernel in kernels for array in (*kernel.source.inputs, *kernel.source.outputs)]
    integers = any("_t" in line for line in more) or any(_type(array).endswith("_t") for array in arrays)
    lines = [
        f"/* The kernels of {name}. Arrays are in C order without gaps; outputs overlap nothing.",
        *(_ABOUT_IN_OUT if any(map(_changes_in_place, kernels)) else ()),
        *(_ABOUT_PACKED if any(array.holds for array in arrays) else ()),
        " *",
        f" * A kernel returns 0; {WORKSPACE_TOO_SMALL} when workspace_bytes is less than its query says;",
        f" * {OTHER_PROCESSOR} when this processor cannot run it; {TOO_MANY_THREADS} when it runs on threads",
        f" * and there are more than {MAX_THREADS}. With these it has written nothing.",
        " * The workspace may be NULL when its size is 0. Kernels are re-entrant: give each call that runs",
        " * beside others a workspace of its own.",
        " */",
        f"#ifndef {guard}",
        f"#define {guard}",
        "",
        "#include <stddef.h>",
        *(["#include <stdint.h>"] if integers else []),
        "",
        "#ifdef __cplusplus",
        'extern "C" {',
        "#endif",
        "",
    ]
    lines += [*prototypes, "#ifdef __cplusplus", "}", "#endif", "", f"#endif /* {guard} */"]
    return "\n".join(lines) + "\n"


_ABOUT_PACKED = (
    " * A packed array has elements of less than a byte, several in each, in C order, the first in the",
    " * lowest bits. Bits of the last byte that are of no element are ignored.",
)
_ABOUT_IN_OUT = (
    " * An array that is input and output has two parameters: pass it as both and it is changed in place;",
    " * pass another array as pd_given_NAME and its content is copied first.",
)


def _changes_in_place(kernel: Packable) -> bool:
    return not {a.name for a in kernel.source.inputs}.isdisjoint(a.name for a in kernel.source.outputs)


def _prototype(kernel: Packable) -> list[str]:
    source = kernel.source
    described = ", ".join(_described(a) for a in source.inputs)
    results = ", ".join(_described(a) for a in source.outputs)
    both = {a.name for a in source.inputs} & {a.name for a in source.outputs}
    names = [given_name(a.name) if a.name in both else c_name(a.name) for a in source.inputs]
    kinds = map(_type, source.inputs)
    arguments = [f"const {kind} *{name}" for kind, name in zip(kinds, names, strict=True)]
    arguments += [f"{_type(a)} *{c_name(a.name)}" for a in source.outputs]
    scratch = ["void *workspace", "size_t workspace_bytes", "int threads"]
    lines = [
        f"/* {kernel.operator}: {described} -> {results} */",
        f"int {source.symbol}({', '.join([*arguments, *scratch])});",
        f"size_t {source.symbol}_workspace_bytes(int threads);",
    ]
    if (packing := source.packing) is None:
        return lines
    parameter = dict(zip((a.name for a in source.inputs), arguments, strict=False))
    constants = [parameter[a.name] for a in packing.constants]
    rest = [parameter[a.name] for a in packing.rest]
    outputs = arguments[len(source.inputs) :]
    return [
        *lines,
        f"/* The same in two calls: the first fills {packing.bytes} bytes at packed, a multiple of 64, once",
        " * for all calls in which these inputs stay as they are; the second reads them. */",
        f"int {source.symbol}_pack({', '.join([*constants, 'void *packed', *scratch])});",
        f"size_t {source.symbol}_pack_workspace_bytes(int threads);",
        f"int {source.symbol}_packed({', '.join([*rest, 'const void *packed', *outputs, *scratch])});",
        f"size_t {source.symbol}_packed_workspace_bytes(int threads);",
    ]


def _type(array: ArraySpec) -> str:
    return c_type(array.dtype)


def c_type(dtype: str) -> str:
    """The type of elements for callers, to whom f16 and bf16 are bits."""
    return "uint16_t" if dtype in ("f16", "bf16") else C_TYPES.get(dtype, "void")


def _described(array: ArraySpec) -> str:
    inside = array.holds or array
    packed = "packed " if array.holds else ""
    return f"{array.name} {packed}{inside.dtype} [{','.join(map(str, inside.shape))}]"

"""Kernels in C that offer a pack beside the run function, and are themselves one after the other.

A kernel of a program with two halves (:mod:`perfdojo_sdk.core.packing`) is a file of three functions::

    int SYMBOL_pack(const T *constant..., void *packed, void *workspace, size_t, int threads);
    int SYMBOL_packed(const T *in..., const void *packed, T *out..., void *workspace, size_t, int threads);
    int SYMBOL(const T *in..., T *out..., void *workspace, size_t, int threads);

The last one packs into its workspace and calls the second. What is verified as the kernel is therefore the
code of both halves. ``SYMBOL_again`` is the same without packing, for a workspace of an earlier call: games
are compared by its time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, TypeVar, cast

from perfdojo_sdk.codegen.c_values import C_TYPES
from perfdojo_sdk.codegen.layout import ALIGNMENT
from perfdojo_sdk.codegen.names import c_name, given_name
from perfdojo_sdk.core.dialect import Dialect
from perfdojo_sdk.core.interface import MAX_THREADS, TOO_MANY_THREADS, WORKSPACE_TOO_SMALL
from perfdojo_sdk.core.packing import PackedHalves, packed_halves
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.hookspecs.abilities import GeneratesAsFor, Wrapper
from perfdojo_sdk.hookspecs.types import ArraySpec, CodeGenerator, KernelSource, Packing

A = TypeVar("A")


@dataclass(frozen=True)
class PackingGenerator(Wrapper):
    """A code generator that puts the halves of a kernel into functions of their own."""

    generator: CodeGenerator
    dialect: Dialect
    constants: Mapping[str, Sequence[str]]
    """Symbol of a kernel -> the inputs that stay as they are from call to call."""

    @property
    def inside(self) -> CodeGenerator:
        return self.generator

    def around(self, inside: CodeGenerator) -> PackingGenerator:
        return replace(self, generator=inside)

    def able(self, asked: Callable[..., A], held: A) -> A:
        return cast(A, _AsFor(self, held)) if asked is GeneratesAsFor else held

    def generate(self, program: Program, symbol: str) -> KernelSource:
        """The source, in one piece if there is nothing to pack or if it is not in C."""
        constants = self.constants.get(symbol, ())
        halves = packed_halves(program, constants, self.dialect) if constants else None
        if halves is not None:
            pack = self.generator.generate(halves.pack, f"{pack_symbol(symbol)}_arrays")
            rest = self.generator.generate(halves.rest, f"{packed_symbol(symbol)}_arrays")
            if pack.language == rest.language == "c":
                return _composed(program, symbol, halves, pack, rest)
        return self.generator.generate(program, symbol)


@dataclass(frozen=True)
class _AsFor:
    """The ability to choose as for another program; the generator that it returns packs, too."""

    packing: PackingGenerator
    held: Any

    def as_for(self, program: Program) -> CodeGenerator:
        return self.packing.around(self.held.as_for(program))


def packed_symbol(symbol: str) -> str:
    """The function of a kernel that reads what its pack made."""
    return f"{symbol}_packed"


def pack_symbol(symbol: str) -> str:
    """The function of a kernel, or of a model, that packs."""
    return f"{symbol}_pack"


def again_symbol(symbol: str) -> str:
    """The function of a kernel for calls after a first one with the same workspace."""
    return f"{symbol}_again"


def _composed(
    program: Program, symbol: str, halves: PackedHalves, pack: KernelSource, rest: KernelSource
) -> KernelSource:
    buffers = [program.buffer_of[name] for name in halves.packed]
    sizes = [-(-buffer.bytes // ALIGNMENT) * ALIGNMENT for buffer in buffers]
    *places, total = accumulate(sizes, initial=0)
    inputs = tuple([ArraySpec.of(program.buffer_of[name]) for name in program.given])
    outputs = tuple([ArraySpec.of(program.buffer_of[name]) for name in program.outputs])
    kept = rest.inputs[: len(rest.inputs) - len(halves.packed)]
    packing = Packing(pack.inputs, kept, total, halves.identity)
    both = {a.name for a in inputs} & {a.name for a in outputs}

    def name(array: ArraySpec) -> str:
        return given_name(array.name) if array.name in both else c_name(array.name)

    def taken(arrays: Sequence[ArraySpec]) -> list[str]:
        return [f"const {C_TYPES[a.dtype]} *{name(a)}" for a in arrays]

    results = [f"{C_TYPES[a.dtype]} *{c_name(a.name)}" for a in outputs]
    scratch = ["void *workspace", "size_t workspace_bytes", "int threads"]
    given = ["workspace", "workspace_bytes", "threads"]
    written = [
        f"({C_TYPES[b.dtype]} *)((char *)packed + {at}u)" for b, at in zip(buffers, places, strict=True)
    ]
    read = [
        f"(const {C_TYPES[b.dtype]} *)((const char *)packed + {at}u)"
        for b, at in zip(buffers, places, strict=True)
    ]
    made = [c_name(a.name) for a in outputs]
    first, second = pack_symbol(symbol), packed_symbol(symbol)
    inside = ["space", "left", "threads"]
    lines = [
        "#ifndef PD_ANYWHERE",
        "#define PD_ANYWHERE",
        "#endif",
        *_query(first, f"{first}_arrays_workspace_bytes(threads)"),
        f"PD_ANYWHERE int {first}({', '.join([*taken(pack.inputs), 'void *packed', *scratch])})",
        "{",
        f"    return {first}_arrays({', '.join([*map(name, pack.inputs), *written, *given])});",
        "}",
        "",
        *_query(second, f"{second}_arrays_workspace_bytes(threads)"),
        f"PD_ANYWHERE int {second}({', '.join([*taken(kept), 'const void *packed', *results, *scratch])})",
        "{",
        f"    return {second}_arrays({', '.join([*map(name, kept), *read, *made, *given])});",
        "}",
        "",
        f"PD_ANYWHERE size_t {symbol}_workspace_bytes(int threads)",
        "{",
        f"    const size_t one = {first}_workspace_bytes(threads);",
        f"    const size_t other = {second}_workspace_bytes(threads);",
        f"    return (one > other ? one : other) + {total + ALIGNMENT}u;",
        "}",
        "",
    ]

    def whole(function: str, packs: bool) -> list[str]:
        read_by = [*(pack.inputs if packs else ()), *kept]
        unused = [name(a) for a in inputs if a not in read_by]
        call = f"{first}({', '.join([*map(name, pack.inputs), 'packed', *inside])})"
        packing = [f"    const int status = {call};", "    if (status)", "        return status;"]
        return [
            f"PD_ANYWHERE int {function}({', '.join([*taken(inputs), *results, *scratch])})",
            "{",
            *([f"    {', '.join(f'(void){each}' for each in unused)};"] if unused else []),
            f"    if (threads > {MAX_THREADS})",
            f"        return {TOO_MANY_THREADS};",
            f"    if (workspace_bytes < {symbol}_workspace_bytes(threads))",
            f"        return {WORKSPACE_TOO_SMALL};",
            f"    char *packed = (char *)(((uintptr_t)workspace + {ALIGNMENT - 1}u)",
            f"                            & ~(uintptr_t){ALIGNMENT - 1}u);",
            f"    char *space = packed + {total}u;",
            "    const size_t left = workspace_bytes - (size_t)(space - (char *)workspace);",
            *(packing if packs else []),
            f"    return {second}({', '.join([*map(name, kept), 'packed', *made, *inside])});",
            "}",
            "",
        ]

    lines += [*whole(symbol, True), *_query(again_symbol(symbol), f"{symbol}_workspace_bytes(threads)")]
    lines += whole(again_symbol(symbol), False)
    code = "\n".join(
        [
            "/* The kernel in two halves: what depends on constant inputs alone, and the rest. */",
            "#include <stddef.h>",
            "#include <stdint.h>",
            "",
            pack.code,
            rest.code,
            *lines,
        ]
    )
    return KernelSource(
        symbol, inputs, outputs, code, support={**pack.support, **rest.support}, packing=packing
    )


def _query(symbol: str, answer: str) -> list[str]:
    return [
        f"PD_ANYWHERE size_t {symbol}_workspace_bytes(int threads)",
        "{",
        f"    return {answer};",
        "}",
        "",
    ]

"""Kernels as a relocatable ELF object that any RISC-V linker takes.

Code of a kernel refers to nothing outside of itself, so the object needs no relocations: one section of
code and the names of the functions in it.
"""

from __future__ import annotations

import struct

from perfdojo_riscv_snitch.program import CODE_BASE, Program

_RISCV, _RELOCATABLE = 243, 1
_DOUBLE_FLOAT_ABI = 4
_PROGBITS, _SYMTAB, _STRTAB = 1, 2, 3
_ALLOCATED_CODE = 6
_GLOBAL_FUNCTION = 1 << 4 | 2
_HEADER, _SECTION, _SYMBOL = 52, 40, 16


def write_object(program: Program) -> bytes:
    """The code of an assembled program; each label without a dot in front becomes a global function.

    ValueError when the program has data of its own, which an object here cannot hold.
    """
    if program.data:
        raise ValueError("an object of kernels holds code only")
    code = struct.pack(f"<{len(program.words)}I", *program.words)
    functions = sorted((at - CODE_BASE, name) for name, at in program.symbols.items() if name[0] != ".")
    ends = [at for at, _ in functions[1:]] + [len(code)]
    names, symbols = b"\0", bytes(_SYMBOL)
    for (at, name), end in zip(functions, ends, strict=True):
        symbols += struct.pack("<IIIBBH", len(names), at, end - at, _GLOBAL_FUNCTION, 0, 1)
        names += name.encode() + b"\0"
    titles = b"\0.text\0.symtab\0.strtab\0.shstrtab\0"
    contents = (code, symbols, names, titles)
    offsets, at = [], _HEADER
    for content in contents:
        at += -at % 4
        offsets.append(at)
        at += len(content)
    table = at + -at % 4

    def section(title: bytes, kind: int, flags: int, number: int, *more: int) -> bytes:
        name = titles.index(b"\0" + title + b"\0") + 1
        return struct.pack("<10I", name, kind, flags, 0, offsets[number], len(contents[number]), *more)

    sections = [
        bytes(_SECTION),
        section(b".text", _PROGBITS, _ALLOCATED_CODE, 0, 0, 0, 4, 0),
        section(b".symtab", _SYMTAB, 0, 1, 3, 1, 4, _SYMBOL),
        section(b".strtab", _STRTAB, 0, 2, 0, 0, 1, 0),
        section(b".shstrtab", _STRTAB, 0, 3, 0, 0, 1, 0),
    ]
    ident = b"\x7fELF\x01\x01\x01".ljust(16, b"\0")
    counts = (_HEADER, 0, 0, _SECTION, len(sections), len(sections) - 1)
    header = struct.pack(
        "<16sHHIIIIIHHHHHH", ident, _RELOCATABLE, _RISCV, 1, 0, 0, table, _DOUBLE_FLOAT_ABI, *counts
    )
    file = bytearray(header)
    for offset, content in zip(offsets, contents, strict=True):
        file += bytes(offset - len(file)) + content
    file += bytes(table - len(file))
    return bytes(file) + b"".join(sections)

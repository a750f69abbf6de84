"""Read a 32-bit little-endian RISC-V ELF file: an executable, or an object that needs no relocations."""

from __future__ import annotations

import struct

from perfdojo_riscv_snitch.errors import SnitchError
from perfdojo_riscv_snitch.program import CODE_BASE, TCDM_BASE, TCDM_BYTES, Program

_MAGIC = b"\x7fELF"
_RISCV = 243
_RELOCATABLE, _EXECUTABLE = 1, 2
_LOAD = 1
_SYMBOL_TABLE = 2
_RELOCATIONS = (4, 9)
_EXECUTED = 4
_CODE_BYTES = 1 << 24


def is_elf(content: bytes) -> bool:
    return content[:4] == _MAGIC


def load_elf(content: bytes, file: str = "") -> Program:
    """Code and initial memory of an executable, or the code of an object.

    SnitchError (PD-S012) if it is not one for this core.
    """
    try:
        return _load(content, file)
    except (struct.error, IndexError, ValueError):
        raise _bad("the file is cut off", file) from None


def _bad(why: str, file: str) -> SnitchError:
    return SnitchError(
        "PD-S012",
        f"{file or 'the file'} is not a program for this core",
        why=why,
        hint="link for rv32imafd, code at 0x80000000, data in TCDM at 0x10000000",
    )


def _load(content: bytes, file: str) -> Program:
    header = struct.unpack_from("<16sHHIIIIIHHHHHH", content)
    ident, kind, machine, _, entry, program_at, section_at = header[:7]
    if ident[4:6] != b"\x01\x01" or machine != _RISCV or kind not in (_EXECUTABLE, _RELOCATABLE):
        raise _bad("it must be a 32-bit little-endian RISC-V executable", file)
    if kind == _RELOCATABLE:
        return _load_object(content, section_at, header[11], header[12], file)
    code, data = bytearray(), []
    for k in range(header[10]):
        part = struct.unpack_from("<8I", content, program_at + k * header[9])
        kind, offset, address, _, held, size = part[:6]
        if kind != _LOAD or not size:
            continue
        if held > size or offset + held > len(content):
            raise _bad("a segment is cut off", file)
        if address >= CODE_BASE and address + size <= CODE_BASE + _CODE_BYTES:
            start = address - CODE_BASE
            code.extend(bytes(max(start + size - len(code), 0)))
            code[start : start + held] = content[offset : offset + held]
        elif address >= TCDM_BASE and address + size <= TCDM_BASE + TCDM_BYTES:
            data.append((address, content[offset : offset + held].ljust(size, b"\0")))
        else:
            raise _bad(f"a segment lies at 0x{address:08x}, which is neither code nor TCDM", file)
    code.extend(bytes(-len(code) % 4))
    words = struct.unpack(f"<{len(code) // 4}I", bytes(code))
    symbols = _symbols(_sections(content, section_at, header[11], header[12]), content)
    return Program(words, CODE_BASE, entry, tuple(data), symbols, {}, file)


def _load_object(content: bytes, at: int, size: int, count: int, file: str) -> Program:
    sections = _sections(content, at, size, count)
    if any(section[1] in _RELOCATIONS and section[5] for section in sections):
        raise _bad("it is an object with relocations, which must be linked first", file)
    code = [section for section in sections if section[2] & _EXECUTED and section[5]]
    if len(code) != 1 or code[0][4] + code[0][5] > len(content) or code[0][5] % 4:
        raise _bad("an object must hold one section of code", file)
    words = struct.unpack_from(f"<{code[0][5] // 4}I", content, code[0][4])
    symbols = {name: CODE_BASE + value for name, value in _symbols(sections, content).items()}
    return Program(words, CODE_BASE, CODE_BASE, (), symbols, {}, file)


def _sections(content: bytes, at: int, size: int, count: int) -> list[tuple[int, ...]]:
    return [struct.unpack_from("<10I", content, at + k * size) for k in range(count)] if at else []


def _symbols(sections: list[tuple[int, ...]], content: bytes) -> dict[str, int]:
    found: dict[str, int] = {}
    for section in sections:
        if section[1] != _SYMBOL_TABLE:
            continue
        names = sections[section[6]][4]
        for offset in range(section[4], section[4] + section[5], 16):
            name, value = struct.unpack_from("<II", content, offset)
            text = content[names + name : content.index(b"\0", names + name)].decode("ascii", "replace")
            if text:
                found[text] = value
    return found

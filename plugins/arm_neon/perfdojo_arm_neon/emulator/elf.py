"""A checked reader of shared objects for 64-bit Arm, with the data that a dynamic linker needs.

The file is the output of a compiler on a text that may be hostile, so every offset is checked. Only the parts
that compilers emit for a kernel are supported: loadable segments, a symbol table and four kinds of
relocation. (ELF for the Arm 64-bit Architecture, AAELF64.)
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

MACHINE = 183
PAGE = 1 << 16
#: Most bytes of an image, which bounds the memory that a header can make this process allocate.
MAX_BYTES = 256 << 20

_LOAD, _DYNAMIC = 1, 2
_EXECUTABLE = 1
_INSTRUCTIONS = 4
_STRTAB, _SYMTAB, _RELA, _RELASZ, _HASH, _GNU_HASH = 5, 6, 7, 8, 4, 0x6FFFFEF5
_JMPREL, _PLTRELSZ = 23, 2
_ABS64, _GLOB_DAT, _JUMP_SLOT, _RELATIVE = 257, 1025, 1026, 1027
_WEAK = 2


class ElfError(ValueError):
    """A file that is no shared object for this machine, or uses an unsupported feature."""


@dataclass(frozen=True)
class Relocation:
    """A word to fill in: the one at ``address`` becomes ``addend`` plus the base, or the value of
    ``symbol``."""

    address: int
    addend: int
    symbol: str
    """Empty: relative to the base."""


@dataclass(frozen=True)
class SharedObject:
    """The loadable content of a shared object; all addresses are relative to the base."""

    image: bytes
    """Content from address 0 on, as large as the segments need."""
    code: tuple[tuple[int, int], ...]
    """(first address, last address plus one) of each section of instructions."""
    symbols: Mapping[str, int]
    """Name -> address of the symbols that the object defines."""
    weak: frozenset[str]
    """Undefined symbols that may stay undefined."""
    relocations: tuple[Relocation, ...]


def read(content: bytes) -> SharedObject:
    """The shared object in ``content``; :class:`ElfError` when it is none."""
    try:
        return _read(content)
    except ElfError:
        raise
    except (struct.error, LookupError, ValueError) as error:
        raise ElfError(f"the file is cut off or damaged: {error}") from None


def _read(content: bytes) -> SharedObject:
    if content[:6] != b"\x7fELF\x02\x01" or struct.unpack_from("<HH", content, 16) != (3, MACHINE):
        raise ElfError("it is no shared object for 64-bit Arm")
    (start,) = struct.unpack_from("<Q", content, 32)
    size, count = struct.unpack_from("<HH", content, 54)
    segments = [struct.unpack_from("<IIQQQQQ", content, start + k * size) for k in range(count)]
    loads = [s for s in segments if s[0] == _LOAD]
    top = max((s[3] + s[6] for s in loads), default=0)
    if not 0 < top <= MAX_BYTES:
        raise ElfError(f"its segments take {top} bytes")
    image = bytearray(-(-top // PAGE) * PAGE)
    for _, _, offset, address, _, stored, taken in loads:
        piece = content[offset : offset + stored]
        if len(piece) != stored or stored > taken:
            raise ElfError("a segment is longer than the file")
        image[address : address + stored] = piece
    code = tuple(_sections(content)) or tuple((s[3], s[3] + s[6]) for s in loads if s[1] & _EXECUTABLE)
    if any(last > len(image) or first % 4 for first, last in code):
        raise ElfError("its code lies outside of its segments")
    tables: dict[int, int] = {}
    for segment in segments:
        if segment[0] == _DYNAMIC:
            tables = dict(_pairs(image, segment[3], segment[6]))
    names = _symbols(image, tables)
    symbols = {n: value for n, value, defined, _ in names if n and defined}
    weak = frozenset(n for n, _, defined, binding in names if not defined and binding == _WEAK)
    return SharedObject(bytes(image), code, symbols, weak, tuple(_relocations(image, tables, names)))


def _sections(content: bytes) -> Iterator[tuple[int, int]]:
    """Begin and end of each section of instructions; segments may contain constants besides."""
    (start,) = struct.unpack_from("<Q", content, 40)
    size, count = struct.unpack_from("<HH", content, 58)
    for k in range(count if start else 0):
        _, _, flags, address, _, taken = struct.unpack_from("<IIQQQQ", content, start + k * size)
        if flags & _INSTRUCTIONS:
            yield address, address + taken // 4 * 4


def _pairs(image: bytes | bytearray, address: int, size: int) -> Iterator[tuple[int, int]]:
    for at in range(address, address + size, 16):
        tag, value = struct.unpack_from("<QQ", image, at)
        if not tag:
            return
        yield tag, value


def _symbols(image: bytes | bytearray, tables: Mapping[int, int]) -> list[tuple[str, int, bool, int]]:
    """(name, value, whether it is defined here, binding) of every dynamic symbol."""
    if _SYMTAB not in tables:
        return []
    found = []
    for k in range(_count(image, tables)):
        name, info, _, section, value, _ = struct.unpack_from("<IBBHQQ", image, tables[_SYMTAB] + 24 * k)
        begin = tables[_STRTAB] + name
        text = image[begin : image.index(b"\0", begin)].decode("ascii")
        found.append((text, value, section != 0, info >> 4))
    return found


def _count(image: bytes | bytearray, tables: Mapping[int, int]) -> int:
    """The number of symbols, which only the hash tables tell."""
    if _HASH in tables:
        return int(struct.unpack_from("<II", image, tables[_HASH])[1])
    if _GNU_HASH not in tables:
        raise ElfError("it has no table of symbols")
    at = tables[_GNU_HASH]
    buckets, first, bloom, _ = struct.unpack_from("<IIII", image, at)
    start = at + 16 + 8 * bloom
    last = max(struct.unpack_from(f"<{buckets}I", image, start), default=0)
    chain = start + 4 * buckets
    while last >= first and not struct.unpack_from("<I", image, chain + 4 * (last - first))[0] & 1:
        last += 1
    return int(max(last + 1, first))


def _relocations(
    image: bytes | bytearray, tables: Mapping[int, int], names: list[tuple[str, int, bool, int]]
) -> Iterator[Relocation]:
    for table, length in ((_RELA, _RELASZ), (_JMPREL, _PLTRELSZ)):
        for at in range(tables.get(table, 0), tables.get(table, 0) + tables.get(length, 0), 24):
            address, info, addend = struct.unpack_from("<QQq", image, at)
            kind, symbol = info & 0xFFFFFFFF, info >> 32
            if address + 8 > len(image):
                raise ElfError("a relocation lies outside of its segments")
            if kind == _RELATIVE:
                yield Relocation(address, addend, "")
            elif kind in (_ABS64, _GLOB_DAT, _JUMP_SLOT):
                yield Relocation(address, addend, names[symbol][0])
            else:
                raise ElfError(f"it has a relocation of kind {kind}")

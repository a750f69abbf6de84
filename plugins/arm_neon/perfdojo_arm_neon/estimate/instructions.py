"""Decoder of instructions: their kind, and the registers they read and write.

An unknown instruction is decoded as the most common one of its class. (Encodings: Arm Architecture
Reference Manual for A-profile, C4.1.)
"""

from __future__ import annotations

from functools import lru_cache

from perfdojo_arm_neon.estimate.costs import FLAGS, Instruction, V, make
from perfdojo_arm_neon.estimate.sve import decode_sve, is_sve


@lru_cache(maxsize=1 << 14)
def decode(word: int) -> Instruction:
    """The instruction of these 32 bits."""
    if is_sve(word):
        return decode_sve(word)
    if word & 0x0E000000 == 0x0E000000:
        return _vector_arithmetic(word)
    if word & 0x0A000000 == 0x08000000:
        return _memory(word)
    if word & 0x1C000000 == 0x14000000:
        return _branch(word)
    if word & 0x1C000000 == 0x10000000:
        return _immediate(word)
    return _register(word)


def _fields(word: int) -> tuple[int, int, int, int]:
    """Registers at bits 4:0, 9:5, 20:16 and 14:10."""
    return word & 31, word >> 5 & 31, word >> 16 & 31, word >> 10 & 31


def _general(*registers: int) -> tuple[int, ...]:
    """General registers; number 31 reads as zero where these are used."""
    return tuple(r for r in registers if r != 31)


def _branch(word: int) -> Instruction:
    rd, rn, _, _ = _fields(word)
    if word & 0x7C000000 == 0x14000000:  # b, bl
        offset = _signed(word & 0x3FFFFFF, 26) * 4
        return make("branch", (30,) if word >> 31 else (), branch=offset)
    if word & 0xFE000000 == 0x54000000:  # b.cond
        return make("branch", reads=(FLAGS,), branch=_signed(word >> 5 & 0x7FFFF, 19) * 4)
    if word & 0x7E000000 == 0x34000000:  # cbz, cbnz
        return make("branch", reads=_general(rd), branch=_signed(word >> 5 & 0x7FFFF, 19) * 4)
    if word & 0x7E000000 == 0x36000000:  # tbz, tbnz
        return make("branch", reads=_general(rd), branch=_signed(word >> 5 & 0x3FFF, 14) * 4)
    if word & 0xFE000000 == 0xD6000000:  # ret, br, blr
        return make("branch", (30,) if word & 0x600000 == 0x200000 else (), _general(rn), branch=0)
    return make("nothing")  # nop and other hints


def _immediate(word: int) -> Instruction:
    rd, rn, _, _ = _fields(word)
    group = word >> 23 & 7
    if group in (2, 3):  # add, sub; number 31 is the stack pointer
        sets = bool(word & 1 << 29)
        return make("alu", (*(() if sets and rd == 31 else (rd,)), *((FLAGS,) if sets else ())), (rn,))
    if group == 5:  # movz, movn, movk
        return make("alu", _general(rd), _general(rd) if word >> 29 & 3 == 3 else ())
    if group == 7:  # extr
        return make("alu", _general(rd), _general(rn, word >> 16 & 31))
    if group in (0, 1):  # adr, adrp
        return make("alu", _general(rd))
    if group == 6:  # bit fields
        own = _general(rd) if word >> 29 & 3 == 1 else ()
        return make("alu", _general(rd), (*_general(rn), *own))
    flags = (FLAGS,) if word >> 29 & 3 == 3 else ()
    return make("alu", (*_general(rd), *flags), _general(rn))


def _register(word: int) -> Instruction:
    rd, rn, rm, ra = _fields(word)
    if word & 0x1F000000 == 0x1B000000:  # madd and its kind
        return make("multiply", _general(rd), _general(rn, rm, ra))
    if word & 0x5FE00000 == 0x1AC00000 and word >> 10 & 0x3E == 2:
        return make("divide", _general(rd), _general(rn, rm))
    if word & 0x1FE00000 == 0x1A400000:  # ccmp
        return make("alu", (FLAGS,), (*_general(rn), FLAGS))
    if word & 0x1FE00000 == 0x1A800000:  # csel
        return make("alu", _general(rd), (*_general(rn, rm), FLAGS))
    logical = word & 0x1F000000 == 0x0A000000
    arithmetic = word & 0x1F000000 == 0x0B000000
    sets = arithmetic and bool(word & 1 << 29) or logical and word >> 29 & 3 == 3
    shift = word >> 10 & 63
    slow = arithmetic and (bool(word & 1 << 21) or shift > 4 or bool(shift and word >> 22 & 3))
    writes = (*_general(rd), *((FLAGS,) if sets else ()))
    return make("shifted alu" if slow else "alu", writes, _general(rn, rm))


def _memory(word: int) -> Instruction:
    rt, rn, rm, rt2 = _fields(word)
    vector = bool(word & 1 << 26)
    if word & 0xBE000000 == 0x0C000000:
        return _structures(word)
    if word & 0x3A000000 == 0x28000000:  # pairs
        load, update = bool(word & 1 << 22), bool(word & 1 << 23)
        wide = "" if not vector or word >> 30 == 2 else " half"
        return _access(load, vector, (rt, rt2), (rn,), rn if update else None, pair=not wide)
    if word & 0x3B000000 == 0x18000000:  # from the code
        return _access(True, vector, (rt,), (), None)
    opc = word >> 22 & 3
    if word & 0x3B000000 == 0x39000000 or word & 0x3B000000 == 0x38000000:
        if not vector and word >> 30 == 3 and opc == 2:
            return make("prefetch", (), (rn,))
        load = bool(opc & 1) if vector else opc != 0
        if word & 1 << 24:
            return _access(load, vector, (rt,), (rn,), None)
        if word & 1 << 21:
            return _access(load, vector, (rt,), (rn, *_general(rm)), None)
        return _access(load, vector, (rt,), (rn,), rn if word & 1 << 10 else None)
    # Exclusive and ordered accesses: those of locks.
    return _access(bool(word & 1 << 22), False, (rt,), (rn,), None)


def _access(
    load: bool,
    vector: bool,
    values: tuple[int, ...],
    base: tuple[int, ...],
    updated: int | None,
    pair: bool = False,
) -> Instruction:
    registers = tuple(V + r for r in values) if vector else _general(*values)
    kind = "load" if load else "store"
    kind = f"vector {kind}" if vector else kind
    if pair and vector or kind == "load" and len(values) == 2:
        kind += " pair"
    if load:
        return make(kind, registers, base, updated=updated)
    return make(kind, (), (*base, *registers), updated=updated)


def _structures(word: int) -> Instruction:
    """ld1, st1, ld1r: of one register, of one lane, the same for all lanes, or of several registers."""
    rt, rn, rm, _ = _fields(word)
    load, update = bool(word & 1 << 22), bool(word & 1 << 23)
    base = (rn, *(_general(rm) if update else ()))
    updated = rn if update else None
    if word & 1 << 24:
        value = V + rt
        if not load:
            return make("vector store", (), (*base, value), updated=updated)
        own = () if word >> 14 & 3 == 3 else (value,)
        return make("vector load lane", (value,), (*base, *own), updated=updated)
    count = {7: 1, 10: 2, 6: 3, 2: 4}.get(word >> 12 & 15, 4)
    values = tuple(V + (rt + k) % 32 for k in range(count))
    ports: tuple[tuple[str, float], ...]
    ports = (("L", count),) if load else (("L01", count), ("V01", count))
    if update:
        ports = (*ports, ("I", 1))
    if load:
        return Instruction("vector load", ports, 6, values, base, updated=updated)
    return Instruction("vector store", ports, 2, (), (*base, *values), updated=updated)


def _vector_arithmetic(word: int) -> Instruction:
    if word & 0x5E000000 == 0x1E000000:
        return _scalar(word)
    rd, rn, rm, _ = (V + r for r in _fields(word))
    if word & 0x5F000000 == 0x5F000000 or word & 0x9F000000 == 0x0F000000:
        if word & 0x400 == 0:  # by one lane of a register
            name = word >> 12 & 15
            if name in (1, 5):
                return make("fp multiply-add", (rd,), (rn, rm), accumulator=rd)
            return make("fp multiply" if name == 9 else "vector multiply", (rd,), (rn, rm))
        if word >> 19 & 15 == 0:
            return make("vector", (rd,))  # a constant
        name = word >> 11 & 31
        kind = "fp convert vector" if name in (28, 31) else "vector shift"
        return make(kind, (rd,), (rn,))
    if word & 0x9FE0FC00 in _OF_GROUPS:
        return make(_OF_GROUPS[word & 0x9FE0FC00], (rd,), (rn, rm), accumulator=rd)
    if word & 0x9FE08400 == 0x0E000400 or word & 0xBFE08400 == 0x2E000400:
        return _copies(word)
    if word & 0xFFE08400 == 0x5E000400:
        return make("vector", (rd,), (rn,))  # one lane, to the first of another register
    if word & 0x0F200400 == 0x0E200400:
        return _three_registers(word)
    if word & 0x0F3E0C00 == 0x0E200800:
        return _two_registers(word)
    if word & 0x0F3E0C00 == 0x0E300800:
        pair = bool(word & 1 << 28)
        return make("fp add" if pair else "vector reduce", (rd,), (rn,))
    if word & 0x0F200C00 == 0x0E200000:
        return make("vector multiply", (rd,), (rn, rm))
    return make("vector", (rd,), (rn, rm))  # ext, zip, trn, tbl and what is rare


#: Sums in groups, of vectors -> their kind; the bit for what has no sign is among those that do not count.
_OF_GROUPS = {
    0x0E809400: "dot product",  # SDOT, UDOT
    0x0E809C00: "dot product",  # USDOT
    0x0E80A400: "dot product",  # SMMLA, UMMLA
    0x0E80AC00: "dot product",  # USMMLA
    0x0E40FC00: "bf16 dot product",  # BFDOT
    0x0E40EC00: "bf16 matrix product",  # BFMMLA
}


def _copies(word: int) -> Instruction:
    rd, rn, _, _ = _fields(word)
    how = word >> 11 & 15
    if word & 1 << 29 or how == 0:
        own = (V + rd,) if word & 1 << 29 else ()
        return make("vector", (V + rd,), (V + rn, *own))
    if how == 1:
        return make("from general", (V + rd,), _general(rn))
    if how == 3:
        return make("from general", (V + rd,), (*_general(rn), V + rd))
    return make("to general", _general(rd), (V + rn,))


def _three_registers(word: int) -> Instruction:
    rd, rn, rm, _ = (V + r for r in _fields(word))
    name, upper, other = word >> 11 & 31, bool(word & 1 << 29), bool(word & 1 << 23)
    if name >= 24:
        if name == 25 and not upper:
            return make("fp multiply-add", (rd,), (rn, rm), accumulator=rd)
        if name == 27:
            return make("fp multiply", (rd,), (rn, rm))
        if name == 31 and upper and not other:
            return make("fp divide vector", (rd,), (rn, rm))
        if name == 31:
            return make("fp multiply-add", (rd,), (rn, rm))
        return make("fp add", (rd,), (rn, rm))
    if name == 3 and upper and word >> 22 & 3:
        return make("vector", (rd,), (rn, rm, rd))  # a selection
    if name in (18, 19):
        own = (rd,) if name == 18 else ()
        return make("vector multiply", (rd,), (rn, rm, *own))
    if name in (8, 9, 10, 11):
        return make("vector shift", (rd,), (rn, rm))
    return make("vector", (rd,), (rn, rm))


def _two_registers(word: int) -> Instruction:
    rd, rn, _, _ = (V + r for r in _fields(word))
    name, upper = word >> 12 & 31, bool(word & 1 << 29)
    if name == 31 and upper:
        return make("fp root vector", (rd,), (rn,))
    if name in (24, 25, 26, 27, 28, 29, 22, 23):
        return make("fp convert vector", (rd,), (rn,))
    return make("vector", (rd,), (rn,))


def _scalar(word: int) -> Instruction:
    rd, rn, rm, ra = _fields(word)
    a, b, c, d = (V + r for r in (rd, rn, rm, ra))
    if word & 0x1F000000 == 0x1F000000:
        return make("fp multiply-add", (a,), (b, c), accumulator=d)
    if not word & 1 << 21:
        return make("fp convert", (a,), _general(rn))
    low = word >> 10 & 3
    if low == 2:
        name = word >> 12 & 15
        kind = {0: "fp multiply", 1: "fp divide", 8: "fp multiply"}.get(name, "fp add")
        return make(kind, (a,), (b, c))
    if low == 3:
        return make("fp add", (a,), (b, c, FLAGS))
    if low == 1:
        return make("fp compare", (FLAGS,), (b, c, FLAGS))
    if word >> 10 & 15 == 8:
        return make("fp compare", (FLAGS,), (b, c))
    if word >> 10 & 7 == 4:
        return make("fp add", (a,))  # a constant
    if word >> 10 & 31 == 16:
        name = word >> 15 & 63
        kind = {3: "fp root"}.get(name, "fp add" if name < 4 else "fp convert")
        return make(kind, (a,), (b,))
    if word >> 16 & 7 in (2, 3, 7):  # scvtf, ucvtf, fmov
        return make("from general", (a,), _general(rn))
    return make("to general", _general(rd), (b,))


def _signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> bits - 1 else value

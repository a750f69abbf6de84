"""Decoder of SVE instructions, for vectors of 128 bits.

It distinguishes the instructions that compilers emit for kernels; all others count as the most common of
their class. (Encodings: Arm Architecture Reference Manual for A-profile, C4.1, "SVE encodings".)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from perfdojo_arm_neon.estimate.costs import FLAGS, Instruction, P, V, make

#: Bits 20:16 of arithmetic with two operands under a predicate -> kind; the others add.
_ARITHMETIC = dict.fromkeys((2, 9, 10, 26), "fp multiply") | dict.fromkeys((12, 13), "fp divide vector")


def is_sve(word: int) -> bool:
    return word & 0x1E000000 == 0x04000000


def only_values(word: int) -> bool:
    """True if the instruction writes only vectors, or stores one, so that no address or branch depends on
    it."""
    found = decode_sve(word)
    if not found.writes:
        return found.kind in ("vector store", "prefetch")
    return all(V <= register < V + 32 for register in found.writes)


def decode_sve(word: int) -> Instruction:
    """The instruction of these 32 bits, which is one of SVE's."""
    top = word >> 24
    if top >> 5 in (4, 5, 6):
        return _load(word)
    if top >> 5 == 7:
        return _store(word)
    return _CLASSES.get(top, _other)(word)


def _z(word: int, low: int) -> int:
    return V + (word >> low & 31)


def _governing(word: int) -> int:
    return P + (word >> 10 & 7)


def _other(word: int) -> Instruction:
    """Comparisons of whole numbers (0x24); products of narrow ones."""
    if word >> 24 == 0x24:
        return make("compare", (P + (word & 15), FLAGS), (_governing(word), _z(word, 5), _z(word, 16)))
    return make("vector multiply", (_z(word, 0),), (_z(word, 5), _z(word, 16), _z(word, 0)))


# -- memory ------------------------------------------------------------------------------------------


def _base(word: int) -> tuple[int, ...]:
    """Address registers: a base, and an index where the form has one (31: none)."""
    base, index = word >> 5 & 31, word >> 16 & 31
    scalar = word >> 24 in (0xA4, 0xA5, 0xE4, 0xE5) and word >> 13 & 7 in (0, 2, 3, 6)
    return (base, index) if scalar and index != 31 else (base,)


def _load(word: int) -> Instruction:
    z, base = _z(word, 0), _base(word)
    top, form = word >> 24, word >> 13 & 7
    if word & 0xFFC0E010 == 0x85800000:
        return make("predicate load", (P + (word & 15),), base)
    if word & 0xFFC0E000 == 0x85804000:
        return make("vector load", (z,), base)
    if top in (0x84, 0x85):
        if word & 1 << 22 and form >= 4:  # the same for all lanes
            return make("vector load", (z,), (*base, _governing(word)))
        if word & 0xFFC08010 == 0x85C00000 or word & 0xFE60E010 == 0x8400C000:
            return make("prefetch", (), base)
        return make("vector gather", (z,), (*base, _governing(word), _z(word, 16)))
    if top in (0xC4, 0xC5):
        return make("vector gather", (z,), (*base, _governing(word), _z(word, 16)))
    registers = 1 + (word >> 21 & 3) if form in (6, 7) else 1
    if registers > 1 and form in (6, 7):
        values = tuple(V + (word + k) % 32 for k in range(registers))
        return make("vector load structures", values, (*base, _governing(word)))
    return make("vector load", (z,), (*base, _governing(word)))


def _store(word: int) -> Instruction:
    base = _base(word)
    if word & 0xFFC0E010 == 0xE5800000:
        return make("predicate store", (), (*base, P + (word & 15)))
    if word & 0xFFC0E000 == 0xE5804000:
        return make("vector store", (), (*base, _z(word, 0)))
    return make("vector store", (), (*base, _z(word, 0), _governing(word)))


# -- floating point ----------------------------------------------------------------------------------


def _float(word: int) -> Instruction:
    d, n, m, p = _z(word, 0), _z(word, 5), _z(word, 16), _governing(word)
    form, name = word >> 13 & 7, word >> 16 & 31
    if word & 1 << 21:
        if word & 1 << 15:  # the result replaces a factor
            return make("fp multiply-add", (d,), (d, n, p), accumulator=m)
        return make("fp multiply-add", (d,), (n, m, p), accumulator=d)
    if form == 0:
        return make({0: "fp add", 1: "fp add"}.get(word >> 10 & 7, "fp multiply"), (d,), (n, m))
    if form == 4:
        constant = name >= 24
        return make(_ARITHMETIC.get(name, "fp add"), (d,), (d, p) if constant else (d, n, p))
    if form == 5:
        return make("fp root vector" if name == 13 else "fp convert vector", (d,), (n, p, d))
    if form == 1 and name == 24:
        return make("fp add in order", (d,), (d, n, p))
    if form == 1 and name < 8:
        return make("fp reduce", (d,), (n, p))
    if form == 1 and name in (14, 15):
        return make("fp convert vector", (d,), (n,))  # the first guess of a reciprocal
    second = () if form == 1 else (m,)
    return make("fp compare lanes", (P + (word & 15),), (n, *second, p))


def _by_lane(word: int) -> Instruction:
    d, n = _z(word, 0), _z(word, 5)
    m = V + (word >> 16 & (15 if word >> 22 & 3 == 3 else 7))
    if word & 0xFC00 == 0x2000:
        return make("fp multiply", (d,), (n, m))
    return make("fp multiply-add", (d,), (n, m), accumulator=d)


# -- whole numbers, and moving between lanes ---------------------------------------------------------


def _integer(word: int) -> Instruction:
    d, n, m, p = _z(word, 0), _z(word, 5), _z(word, 16), _governing(word)
    form, name = word >> 13 & 7, word >> 16 & 31
    if not word & 1 << 21:
        if form in (2, 3, 6, 7):
            return make("vector multiply-add", (d,), (n, m, d, p))
        if form == 0:
            return make("vector multiply" if name >= 16 and name < 24 else "vector", (d,), (d, n, p))
        if form == 1:
            prefix = name >> 1 == 8
            return make("vector" if prefix else "vector reduce", (d,), (n, p, d) if prefix else (n, p))
        if form == 4:
            return make("vector shift", (d,), (d, p) if name < 16 else (d, n, p))
        return make("vector", (d,), (n, p, d))
    form = word >> 10 & 63
    if form >> 2 == 4:  # index
        general = [r for k, r in ((0, word >> 5 & 31), (1, word >> 16 & 31)) if form >> k & 1]
        return make("from general index" if general else "vector index", (d,), tuple(general))
    if form >> 2 == 5:  # addvl, addpl; rdvl
        source = () if word & 1 << 23 else (word >> 16 & 31,)
        return make("predicate", (word & 31,), source)
    if form >> 3 == 4:
        return make("vector shift", (d,), (n,) if form & 4 else (n, m))
    if form == 0x2F:  # movprfx
        return make("vector", (d,), (n,))
    if form >> 4 == 3 and word & 0xF000 == 0xE000:  # counts of lanes: cntw, and incw of a general register
        x = word & 31
        return make("count up", (x,), (x,)) if word & 1 << 20 else make("predicate", (x,))
    if form >> 4 == 3:
        return make("vector", (d,), (d,))
    return make("vector", (d,), (n, m))


def _permute(word: int) -> Instruction:
    d, n, m, p = _z(word, 0), _z(word, 5), _z(word, 16), _governing(word)
    form, name = word >> 13 & 7, word >> 16 & 31
    if not word & 1 << 21:
        if word & 1 << 20:  # a constant in some lanes
            return make("vector", (d,), (P + (word >> 16 & 15), d))
        return make("vector", (d,), () if word >> 22 & 3 == 3 else (d,))  # a mask of bits
    if word & 0xC000 == 0xC000:  # a selection
        return make("vector", (d,), (n, m, P + (word >> 10 & 15)))
    if form == 0:
        return make("vector", (d,), (d, n))  # ext
    if form == 1:
        if word & 0x1FFC00 == 0x003800:
            return make("from general", (d,), (word >> 5 & 31,))
        return make("vector", (d,), (n, m) if word & 0xFC00 == 0x3000 else (n,))
    if form == 2:  # predicates
        return make("predicate", (P + (word & 15),), (P + (word >> 5 & 15), P + (word >> 16 & 15)))
    if form == 3:
        return make("vector", (d,), (n, m))
    if form == 5 and name in (0, 1):
        return make("to general lanes", (word & 31,), (n, p))
    if form == 5:
        return make("from general lanes", (d,), (word >> 5 & 31, p, d))
    if name in (2, 3):
        return make("vector across", (d,), (n, p))
    if name in (12, 8, 9, 10, 11):
        return make("vector across", (d,), (d, n, p))  # splice, clasta
    return make("vector", (d,), (n, p, d))


# -- predicates --------------------------------------------------------------------------------------


def _predicate(word: int) -> Instruction:
    d, form = P + (word & 15), word >> 14 & 3
    if not word & 1 << 21:
        if form == 0 or form == 2:  # a comparison with a constant
            return make("compare", (d, FLAGS), (_z(word, 5), _governing(word)))
        sets = (FLAGS,) if word & 1 << 22 else ()
        sources = (P + (word >> 5 & 15), P + (word >> 10 & 15))
        if form == 1 and word & 1 << 20 == 0:
            return make("predicate logic", (d, *sets), (*sources, P + (word >> 16 & 15)))
        if form == 3 and word >> 16 & 31 == 16:
            return make("predicate test", (FLAGS,), sources)
        if form == 3 and word & 0xFC00 in (0xE000, 0xE400):
            return make("predicate", (d, *sets))  # ptrue, pfalse
        return make("predicate", (d, *sets), sources)
    if form == 0:
        general = tuple(r for r in (word >> 5 & 31, word >> 16 & 31) if r != 31)
        return make("predicate count", (d, FLAGS), general)
    if form == 1:
        return make("compare", (d, FLAGS), (_z(word, 5), _governing(word)))
    if form == 2:  # cntp and its kind, to or from a general register
        x = word & 31
        own = () if word >> 16 & 31 < 8 else (x,)
        return make("predicate", (x,), (P + (word >> 5 & 15), P + (word >> 10 & 15), *own))
    constant = word >> 19 & 3 == 3
    return make("vector", (_z(word, 0),), () if constant else (_z(word, 0),))


#: Bits 31:24 of instructions that neither load nor store -> their decoder.
_CLASSES: Mapping[int, Callable[[int], Instruction]] = {
    0x04: _integer, 0x05: _permute, 0x25: _predicate, 0x64: _by_lane, 0x65: _float,
}  # fmt: skip

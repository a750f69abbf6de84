"""One instruction to its 32 bits."""

from __future__ import annotations

import re
from collections.abc import Callable

from perfdojo_riscv_snitch.assembly.instructions import INSTRUCTIONS
from perfdojo_riscv_snitch.assembly.registers import CSR, FLOAT, INTEGER, ROUNDING

Evaluate = Callable[[str], int]

_MEMORY = re.compile(r"(.*)\(\s*([\w.]+)\s*\)\s*\Z", re.DOTALL)
_FREP_LONGEST = 32


class OperandError(Exception):
    """An operand is of the wrong kind or out of range."""


def encode(mnemonic: str, operands: list[str], address: int, value: Evaluate) -> int:
    """The instruction word at ``address``; ``value`` evaluates expressions. OperandError."""
    if mnemonic == ".insn":
        return _encode_insn(operands, address, value)
    form = INSTRUCTIONS[mnemonic]
    wanted = form.operands
    optional = wanted.endswith("r")
    if len(operands) not in {len(wanted), len(wanted) - optional}:
        raise OperandError(f"{mnemonic} takes {len(wanted) - optional} operands, not {len(operands)}")
    word = form.bits
    for letter, operand in zip(wanted, operands, strict=False):
        word |= _operand(letter, operand.strip(), address, value)
    if optional and len(operands) < len(wanted):
        word |= ROUNDING["dyn"] << 12 if not _always_exact(mnemonic) else 0
    return word


def _always_exact(mnemonic: str) -> bool:
    """True for conversions for which assemblers write no rounding mode."""
    return mnemonic in {"fcvt.d.s", "fcvt.d.w", "fcvt.d.wu", "fcvt.d.h", "fcvt.s.h"}


def register(name: str, names: dict[str, int]) -> int:
    """The number of a register. OperandError."""
    if name not in names:
        kind = "an integer" if names is INTEGER else "an FP"
        raise OperandError(f"{name!r} is not {kind} register")
    return names[name]


def _any_register(name: str) -> int:
    if name in INTEGER:
        return INTEGER[name]
    return register(name, FLOAT)


def _signed(number: int, bits: int, what: str) -> int:
    if not -(1 << (bits - 1)) <= number < 1 << (bits - 1):
        raise OperandError(f"{what} {number} does not fit into {bits} bits")
    return number & ((1 << bits) - 1)


def _unsigned(number: int, least: int, most: int, what: str) -> int:
    if not least <= number <= most:
        raise OperandError(f"{what} {number} is not within {least}..{most}")
    return number


def _s_type(offset: int) -> int:
    return (offset >> 5) << 25 | (offset & 31) << 7


def _branch(offset: int) -> int:
    if offset & 1:
        raise OperandError("the target is at an odd address")
    bits = _signed(offset, 13, "the distance")
    return (bits >> 12) << 31 | (bits >> 5 & 63) << 25 | (bits >> 1 & 15) << 8 | (bits >> 11 & 1) << 7


def _jump(offset: int) -> int:
    if offset & 1:
        raise OperandError("the target is at an odd address")
    bits = _signed(offset, 21, "the distance")
    return (bits >> 20) << 31 | (bits >> 1 & 0x3FF) << 21 | (bits >> 11 & 1) << 20 | (bits >> 12 & 0xFF) << 12


def _offset_and_base(operand: str, value: Evaluate) -> tuple[int, int]:
    match = _MEMORY.match(operand)
    if not match:
        raise OperandError(f"{operand!r} is not offset(register)")
    offset = match.group(1).strip()
    return (value(offset) if offset else 0), register(match.group(2), INTEGER)


def _csr(operand: str, value: Evaluate) -> int:
    return CSR[operand] if operand in CSR else _unsigned(value(operand), 0, 0xFFF, "the control register")


def _rounding(operand: str) -> int:
    if operand not in ROUNDING:
        raise OperandError(f"{operand!r} is not a rounding mode: {', '.join(ROUNDING)}")
    return ROUNDING[operand]


def _operand(letter: str, operand: str, address: int, value: Evaluate) -> int:
    if letter in "dst":
        return register(operand, INTEGER) << {"d": 7, "s": 15, "t": 20}[letter]
    if letter in "DSTR":
        return register(operand, FLOAT) << {"D": 7, "S": 15, "T": 20, "R": 27}[letter]
    if letter == "i":
        return _signed(value(operand), 12, "the immediate") << 20
    if letter in "mM":
        offset, base = _offset_and_base(operand, value)
        bits = _signed(offset, 12, "the offset")
        return (bits << 20 if letter == "m" else _s_type(bits)) | base << 15
    if letter == "a":
        offset, base = _offset_and_base(operand if "(" in operand else f"({operand})", value)
        if offset:
            raise OperandError("an atomic access takes no offset")
        return base << 15
    if letter == "b":
        return _branch(value(operand) - address)
    if letter == "j":
        return _jump(value(operand) - address)
    return _small_operand(letter, operand, value)


def _small_operand(letter: str, operand: str, value: Evaluate) -> int:
    if letter == "r":
        return _rounding(operand) << 12
    if letter == "c":
        return _csr(operand, value) << 20
    number = value(operand)
    if letter == "u":
        # Both readings of twenty bits are in use.
        return _unsigned(number, -(1 << 19), (1 << 20) - 1, "the upper immediate") % (1 << 20) << 12
    if letter == "h":
        return _unsigned(number, 0, 31, "the shift amount") << 20
    if letter == "z":
        return _unsigned(number, 0, 31, "the immediate") << 15
    if letter == "y":
        return _unsigned(number, 0, 31, "the immediate") << 20
    if letter == "g":
        return _unsigned(number, 0, 0xFFF, "the stream register") << 20
    if letter == "n":
        return (_unsigned(number, 1, _FREP_LONGEST, "the body length") - 1) << 20
    if letter == "x":
        return _unsigned(number, 0, 7, "the largest stagger") << 12
    if letter == "k":
        return _unsigned(number, 0, 15, "the stagger mask") << 8
    raise AssertionError(letter)


# -- .insn ------------------------------------------------------------------------------------------


def _encode_insn(operands: list[str], address: int, value: Evaluate) -> int:
    """``.insn r 0x33, 0, 0x41, ft4, fa3, fa4`` and the other forms of GNU as, or a plain number."""
    if len(operands) == 1 and len(operands[0].split()) == 1:
        return value(operands[0]) & 0xFFFFFFFF
    kind, first = operands[0].split(None, 1)
    words = [first, *operands[1:]]
    shapes = {"r": 6, "r4": 7, "i": 5, "s": 4, "b": 5, "sb": 5, "u": 3, "j": 3, "uj": 3}
    if kind not in shapes:
        raise OperandError(f".insn knows no format {kind!r}")
    if kind == "i" and len(words) == 4:
        words[3:] = reversed(_base_and_offset(words[3]))
    if kind == "r" and len(words) == 7:
        kind = "r4"
    if len(words) != shapes[kind]:
        raise OperandError(f".insn {kind} takes {shapes[kind]} operands, not {len(words)}")
    opcode = _unsigned(value(words[0]), 0, 127, "the opcode")
    if kind in ("u", "j", "uj"):
        rest = _small_operand("u", words[2], value) if kind == "u" else _jump(value(words[2]) - address)
        return opcode | _any_register(words[1]) << 7 | rest
    word = opcode | _unsigned(value(words[1]), 0, 7, "funct3") << 12
    if kind == "r":
        registers = zip((7, 15, 20), map(_any_register, words[3:]), strict=True)
        return word | _unsigned(value(words[2]), 0, 127, "funct7") << 25 | _join(registers)
    if kind == "r4":
        registers = zip((7, 15, 20, 27), map(_any_register, words[3:]), strict=True)
        return word | _unsigned(value(words[2]), 0, 3, "funct2") << 25 | _join(registers)
    if kind == "i":
        immediate = _signed(_wrap12(value(words[4])), 12, "the immediate")
        return word | _any_register(words[2]) << 7 | _any_register(words[3]) << 15 | immediate << 20
    if kind == "s":
        base, offset = _base_and_offset(words[3])
        immediate = _signed(value(offset), 12, "the offset")
        return word | _any_register(words[2]) << 20 | _any_register(base) << 15 | _s_type(immediate)
    sources = _any_register(words[2]) << 15 | _any_register(words[3]) << 20
    return word | sources | _branch(value(words[4]) - address)


def _join(fields: zip[tuple[int, int]]) -> int:
    word = 0
    for shift, number in fields:
        word |= number << shift
    return word


def _wrap12(number: int) -> int:
    """Twelve bits may be given as an unsigned number."""
    return number - 4096 if 2048 <= number < 4096 else number


def _base_and_offset(operand: str) -> tuple[str, str]:
    match = _MEMORY.match(operand)
    if not match:
        raise OperandError(f"{operand!r} is not offset(register)")
    return match.group(2), match.group(1).strip() or "0"

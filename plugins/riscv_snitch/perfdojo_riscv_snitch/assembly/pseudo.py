"""Pseudo-instructions: a mnemonic and its operands -> the instructions that it stands for."""

from __future__ import annotations

from collections.abc import Callable

Expansion = list[tuple[str, list[str]]]

#: (pseudo, number of operands) -> "mnemonic operands", ``$1`` being the first operand.
_SIMPLE: dict[tuple[str, int], str] = {
    ("nop", 0): "addi x0, x0, 0",
    ("mv", 2): "addi $1, $2, 0",
    ("not", 2): "xori $1, $2, -1",
    ("neg", 2): "sub $1, x0, $2",
    ("seqz", 2): "sltiu $1, $2, 1",
    ("snez", 2): "sltu $1, x0, $2",
    ("sltz", 2): "slt $1, $2, x0",
    ("sgtz", 2): "slt $1, x0, $2",
    ("sgt", 3): "slt $1, $3, $2",
    ("sgtu", 3): "sltu $1, $3, $2",
    ("zext.b", 2): "andi $1, $2, 255",
    ("beqz", 2): "beq $1, x0, $2",
    ("bnez", 2): "bne $1, x0, $2",
    ("blez", 2): "bge x0, $1, $2",
    ("bgez", 2): "bge $1, x0, $2",
    ("bltz", 2): "blt $1, x0, $2",
    ("bgtz", 2): "blt x0, $1, $2",
    ("bgt", 3): "blt $2, $1, $3",
    ("ble", 3): "bge $2, $1, $3",
    ("bgtu", 3): "bltu $2, $1, $3",
    ("bleu", 3): "bgeu $2, $1, $3",
    ("j", 1): "jal x0, $1",
    ("jal", 1): "jal ra, $1",
    ("jr", 1): "jalr x0, 0($1)",
    ("ret", 0): "jalr x0, 0(ra)",
    ("call", 1): "jal ra, $1",
    ("tail", 1): "jal x0, $1",
    ("csrr", 2): "csrrs $1, $2, x0",
    ("csrw", 2): "csrrw x0, $1, $2",
    ("csrs", 2): "csrrs x0, $1, $2",
    ("csrc", 2): "csrrc x0, $1, $2",
    ("csrwi", 2): "csrrwi x0, $1, $2",
    ("csrsi", 2): "csrrsi x0, $1, $2",
    ("csrci", 2): "csrrci x0, $1, $2",
    ("frcsr", 1): "csrrs $1, fcsr, x0",
    ("fscsr", 1): "csrrw x0, fcsr, $1",
    ("fscsr", 2): "csrrw $1, fcsr, $2",
    ("frrm", 1): "csrrs $1, frm, x0",
    ("fsrm", 1): "csrrw x0, frm, $1",
    ("fsrm", 2): "csrrw $1, frm, $2",
    ("fsrmi", 1): "csrrwi x0, frm, $1",
    ("frflags", 1): "csrrs $1, fflags, x0",
    ("fsflags", 1): "csrrw x0, fflags, $1",
    ("fsflags", 2): "csrrw $1, fflags, $2",
    ("fsflagsi", 1): "csrrwi x0, fflags, $1",
    ("fmv.x.s", 2): "fmv.x.w $1, $2",
    ("fmv.s.x", 2): "fmv.w.x $1, $2",
    ("frep.o", 2): "frep.o $1, $2, 0, 0",
    ("unimp", 0): "csrrw x0, 0xc00, x0",
}
for _suffix in "sdh":
    _SIMPLE |= {
        (f"fmv.{_suffix}", 2): f"fsgnj.{_suffix} $1, $2, $2",
        (f"fabs.{_suffix}", 2): f"fsgnjx.{_suffix} $1, $2, $2",
        (f"fneg.{_suffix}", 2): f"fsgnjn.{_suffix} $1, $2, $2",
        (f"fgt.{_suffix}", 3): f"flt.{_suffix} $1, $3, $2",
        (f"fge.{_suffix}", 3): f"fle.{_suffix} $1, $3, $2",
    }
# Arithmetic with an immediate where the plain mnemonic was written.
for _name in ("add", "and", "or", "xor", "slt", "sltu", "sll", "srl", "sra"):
    _SIMPLE[(_name + ":immediate", 3)] = f"{'sltiu' if _name == 'sltu' else _name + 'i'} $1, $2, $3"


def expand(mnemonic: str, operands: list[str], constant: Callable[[str], int | None]) -> Expansion | None:
    """The instructions for a pseudo-instruction, or None if it is not one.

    ``constant`` gives the value of an expression if it is known before addresses are laid out.
    """
    if mnemonic == "li" and len(operands) == 2:
        return _load_immediate(operands, constant(operands[1]))
    if mnemonic in ("la", "lla") and len(operands) == 2:
        rd, symbol = operands
        return [("lui", [rd, f"%hi({symbol})"]), ("addi", [rd, rd, f"%lo({symbol})"])]
    if mnemonic == "jalr" and len(operands) == 1:
        return [("jalr", ["ra", f"0({operands[0]})"])]
    if mnemonic == "jalr" and len(operands) == 3:
        return [("jalr", [operands[0], f"{operands[2]}({operands[1]})"])]
    if mnemonic == "fence" and operands:
        return [("fence", [])]
    template = _SIMPLE.get((mnemonic, len(operands)))
    return None if template is None else [_fill(template, operands)]


def with_immediate(mnemonic: str, operands: list[str]) -> Expansion | None:
    """``add t0, t0, 4`` as ``addi``."""
    template = _SIMPLE.get((mnemonic + ":immediate", len(operands)))
    return None if template is None else [_fill(template, operands)]


def _fill(template: str, operands: list[str]) -> tuple[str, list[str]]:
    name, _, rest = template.partition(" ")
    filled = []
    for part in rest.split(", ") if rest else []:
        for k, operand in enumerate(operands, 1):
            part = part.replace(f"${k}", operand)
        filled.append(part)
    return name, filled


def _load_immediate(operands: list[str], value: int | None) -> Expansion:
    rd, text = operands
    if value is None:  # an address: always the long form, so that the layout does not depend on it
        return [("lui", [rd, f"%hi({text})"]), ("addi", [rd, rd, f"%lo({text})"])]
    low = ((value & 0xFFF) ^ 0x800) - 0x800
    high = (value - low) >> 12 & 0xFFFFF
    if not high:
        return [("addi", [rd, "x0", str(low)])]
    if not low:
        return [("lui", [rd, str(high)])]
    return [("lui", [rd, str(high)]), ("addi", [rd, rd, str(low)])]

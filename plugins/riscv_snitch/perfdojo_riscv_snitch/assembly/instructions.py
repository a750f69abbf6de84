"""The instructions as tables: mnemonic -> operands and fixed bits.

The operand letters::

    d s t    integer rd, rs1, rs2          D S T R  FP rd, rs1, rs2, rs3
    i        12-bit immediate, I-type      u        20-bit immediate
    m        offset(rs1), I-type           M        offset(rs1), S-type
    a        (rs1)                         h        shift amount
    b j      branch, jump target           c        control register
    z        5-bit immediate in rs1        y        5-bit immediate in rs2
    r        rounding mode, optional       g        12-bit stream register number
    n x k    FREP: body length, largest stagger, stagger mask
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Form:
    """The operands and the encoding of one mnemonic."""

    operands: str
    bits: int
    """The fixed bits; operands are ored in."""


def _r(opcode: int, funct3: int, funct7: int, rs2: int = 0) -> int:
    return funct7 << 25 | rs2 << 20 | funct3 << 12 | opcode


def _integer() -> dict[str, Form]:
    table: dict[str, Form] = {}
    names = ("add", "sll", "slt", "sltu", "xor", "srl", "or", "and")
    for funct3, name in enumerate(names):
        table[name] = Form("dst", _r(0x33, funct3, 0))
        if name not in ("sll", "srl"):
            immediate = {"sltu": "sltiu"}.get(name, name + "i")
            table[immediate] = Form("dsi", _r(0x13, funct3, 0))
    table["sub"] = Form("dst", _r(0x33, 0, 0x20))
    table["sra"] = Form("dst", _r(0x33, 5, 0x20))
    table["slli"] = Form("dsh", _r(0x13, 1, 0))
    table["srli"] = Form("dsh", _r(0x13, 5, 0))
    table["srai"] = Form("dsh", _r(0x13, 5, 0x20))
    for funct3, name in enumerate(("mul", "mulh", "mulhsu", "mulhu", "div", "divu", "rem", "remu")):
        table[name] = Form("dst", _r(0x33, funct3, 1))
    for name, funct3 in {"beq": 0, "bne": 1, "blt": 4, "bge": 5, "bltu": 6, "bgeu": 7}.items():
        table[name] = Form("stb", funct3 << 12 | 0x63)
    for name, funct3 in {"lb": 0, "lh": 1, "lw": 2, "lbu": 4, "lhu": 5}.items():
        table[name] = Form("dm", funct3 << 12 | 0x03)
    for name, funct3 in {"sb": 0, "sh": 1, "sw": 2}.items():
        table[name] = Form("tM", funct3 << 12 | 0x23)
    table["lui"] = Form("du", 0x37)
    table["auipc"] = Form("du", 0x17)
    table["jal"] = Form("dj", 0x6F)
    table["jalr"] = Form("dm", 0x67)
    table["fence"] = Form("", 0x0FF0000F)
    table["fence.i"] = Form("", 0x0000100F)
    table["ecall"] = Form("", 0x00000073)
    table["ebreak"] = Form("", 0x00100073)
    for name, funct3 in {"csrrw": 1, "csrrs": 2, "csrrc": 3}.items():
        table[name] = Form("dcs", funct3 << 12 | 0x73)
        table[name + "i"] = Form("dcz", (funct3 + 4) << 12 | 0x73)
    return table


def _atomic() -> dict[str, Form]:
    operations = {
        "add": 0x00, "swap": 0x01, "xor": 0x04, "or": 0x08, "and": 0x0C,
        "min": 0x10, "max": 0x14, "minu": 0x18, "maxu": 0x1C,
    }  # fmt: skip
    table = {f"amo{name}.w": Form("dta", _r(0x2F, 2, code << 2)) for name, code in operations.items()}
    table["lr.w"] = Form("da", _r(0x2F, 2, 0x02 << 2))
    table["sc.w"] = Form("dta", _r(0x2F, 2, 0x03 << 2))
    # Acquire and release have no meaning with one core; they are bits 26 and 25.
    for suffix, bits in ((".aq", 1 << 26), (".rl", 1 << 25), (".aqrl", 3 << 25)):
        for name, form in list(table.items()):
            if name.endswith(".w"):
                table[name + suffix] = Form(form.operands, form.bits | bits)
    return table


#: Suffix -> format field of the scalar FP instructions.
_FORMATS = {"s": 0, "d": 1, "h": 2}


def _float() -> dict[str, Form]:
    table: dict[str, Form] = {}
    for name, funct3 in {"flh": 1, "flw": 2, "fld": 3}.items():
        table[name] = Form("Dm", funct3 << 12 | 0x07)
    for name, funct3 in {"fsh": 1, "fsw": 2, "fsd": 3}.items():
        table[name] = Form("TM", funct3 << 12 | 0x27)
    for suffix, field in _FORMATS.items():
        table |= _scalar(suffix, field)
    for to, to_field in _FORMATS.items():
        for source, source_field in _FORMATS.items():
            if to != source:
                table[f"fcvt.{to}.{source}"] = Form("DSr", _r(0x53, 0, 0x20 | to_field, source_field))
    table["fmv.x.w"] = Form("dS", _r(0x53, 0, 0x70))
    table["fmv.w.x"] = Form("Ds", _r(0x53, 0, 0x78))
    table["fmv.x.h"] = Form("dS", _r(0x53, 0, 0x72))
    table["fmv.h.x"] = Form("Ds", _r(0x53, 0, 0x7A))
    return table


def _scalar(suffix: str, field: int) -> dict[str, Form]:
    table: dict[str, Form] = {}

    def add(name: str, operands: str, funct3: int, funct5: int, rs2: int = 0) -> None:
        table[f"{name}.{suffix}"] = Form(operands, _r(0x53, funct3, funct5 << 2 | field, rs2))

    for funct5, name in enumerate(("fadd", "fsub", "fmul", "fdiv")):
        add(name, "DSTr", 0, funct5)
    add("fsqrt", "DSr", 0, 0x0B)
    for funct3, name in enumerate(("fsgnj", "fsgnjn", "fsgnjx")):
        add(name, "DST", funct3, 0x04)
    add("fmin", "DST", 0, 0x05)
    add("fmax", "DST", 1, 0x05)
    for funct3, name in enumerate(("fle", "flt", "feq")):
        add(name, "dST", funct3, 0x14)
    add("fclass", "dS", 1, 0x1C)
    for rs2, kind in enumerate(("w", "wu")):
        table[f"fcvt.{kind}.{suffix}"] = Form("dSr", _r(0x53, 0, 0x18 << 2 | field, rs2))
        table[f"fcvt.{suffix}.{kind}"] = Form("Dsr", _r(0x53, 0, 0x1A << 2 | field, rs2))
    for k, name in enumerate(("fmadd", "fmsub", "fnmsub", "fnmadd")):
        table[f"{name}.{suffix}"] = Form("DSTRr", field << 25 | 0x43 | k << 2)
    return table


def _packed() -> dict[str, Form]:
    table: dict[str, Form] = {}
    binary = {
        "vfadd": 0x41, "vfsub": 0x42, "vfmul": 0x43, "vfdiv": 0x44, "vfmin": 0x45, "vfmax": 0x46,
        "vfmac": 0x48, "vfmre": 0x49, "vfsgnj": 0x4D, "vfsgnjn": 0x4E, "vfsgnjx": 0x4F,
    }  # fmt: skip
    compare = {"vfeq": 0x50, "vfne": 0x51, "vflt": 0x52, "vfge": 0x53, "vfle": 0x54, "vfgt": 0x55}
    for suffix, funct3 in (("s", 0), ("h", 2)):
        for names, operands in ((binary, "DST"), (compare, "dST")):
            for name, funct7 in names.items():
                table[f"{name}.{suffix}"] = Form(operands, _r(0x33, funct3, funct7))
                table[f"{name}.r.{suffix}"] = Form(operands, _r(0x33, funct3 | 4, funct7))
    for letter, (funct3, funct7) in {"a": (0, 0x58), "b": (4, 0x58), "c": (0, 0x59), "d": (4, 0x59)}.items():
        table[f"vfcpk{letter}.s.s"] = Form("DST", _r(0x33, funct3, funct7))
        table[f"vfcpk{letter}.h.s"] = Form("DST", _r(0x33, funct3 | 2, funct7))
        table[f"vfcpk{letter}.s.d"] = Form("DST", _r(0x33, funct3, funct7 + 2))
        table[f"vfcpk{letter}.h.d"] = Form("DST", _r(0x33, funct3 | 2, funct7 + 2))
    table["vfdotpex.s.h"] = Form("DST", _r(0x33, 0, 0x4B))
    table["vfndotpex.s.h"] = Form("DST", _r(0x33, 0, 0x5D))
    for prefix, funct7 in (("vf", 0x47), ("vfn", 0x57)):
        table[prefix + "sum.s"] = Form("DS", _r(0x33, 0, funct7, 0x1C))
        table[prefix + "sum.h"] = Form("DS", _r(0x33, 2, funct7, 0x1E))
        table[prefix + "sumex.s.h"] = Form("DS", _r(0x33, 0, funct7, 0x16))
    table["vfcvt.s.h"] = Form("DS", _r(0x33, 0, 0x4C, 0x06))
    table["vfcvtu.s.h"] = Form("DS", _r(0x33, 4, 0x4C, 0x06))
    table["vfcvt.h.s"] = Form("DS", _r(0x33, 2, 0x4C, 0x04))
    return table


def _custom() -> dict[str, Form]:
    return {
        "frep.o": Form("snxk", 0x8B),
        "scfgwi": Form("sg", 2 << 12 | 0x2B),
        "scfgri": Form("dg", 1 << 12 | 0x2B),
        "scfgw": Form("st", 2 << 12 | 1 << 7 | 0x2B),
        "scfgr": Form("dt", 1 << 12 | 1 << 15 | 0x2B),
        "dmsrc": Form("st", _r(0x2B, 0, 0)),
        "dmdst": Form("st", _r(0x2B, 0, 1)),
        "dmcpyi": Form("dsy", _r(0x2B, 0, 2)),
        "dmcpy": Form("dst", _r(0x2B, 0, 3)),
        "dmstati": Form("dy", _r(0x2B, 0, 4)),
        "dmstat": Form("dt", _r(0x2B, 0, 5)),
        "dmstr": Form("st", _r(0x2B, 0, 6)),
        "dmrep": Form("s", _r(0x2B, 0, 7)),
    }


INSTRUCTIONS: dict[str, Form] = _integer() | _atomic() | _float() | _packed() | _custom()

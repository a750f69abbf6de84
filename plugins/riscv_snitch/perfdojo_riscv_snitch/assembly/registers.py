"""Names of registers and of control registers."""

from __future__ import annotations

_INTEGER_NAMES = (
    "zero ra sp gp tp t0 t1 t2 s0 s1 a0 a1 a2 a3 a4 a5 a6 a7 s2 s3 s4 s5 s6 s7 s8 s9 s10 s11 t3 t4 t5 t6"
).split()
_FLOAT_NAMES = (
    "ft0 ft1 ft2 ft3 ft4 ft5 ft6 ft7 fs0 fs1 fa0 fa1 fa2 fa3 fa4 fa5 fa6 fa7 "
    "fs2 fs3 fs4 fs5 fs6 fs7 fs8 fs9 fs10 fs11 ft8 ft9 ft10 ft11"
).split()

INTEGER: dict[str, int] = {name: k for k, name in enumerate(_INTEGER_NAMES)}
INTEGER.update({f"x{k}": k for k in range(32)}, fp=8)
FLOAT: dict[str, int] = {name: k for k, name in enumerate(_FLOAT_NAMES)}
FLOAT.update({f"f{k}": k for k in range(32)})

#: Index -> the name that people use.
INTEGER_NAMES: tuple[str, ...] = tuple(_INTEGER_NAMES)
FLOAT_NAMES: tuple[str, ...] = tuple(_FLOAT_NAMES)

CSR: dict[str, int] = {
    "fflags": 0x001,
    "frm": 0x002,
    "fcsr": 0x003,
    "mstatus": 0x300,
    "misa": 0x301,
    "ssr": 0x7C0,
    "fmode": 0x800,
    "mcycle": 0xB00,
    "minstret": 0xB02,
    "mcycleh": 0xB80,
    "minstreth": 0xB82,
    "mhartid": 0xF14,
}

ROUNDING: dict[str, int] = {"rne": 0, "rtz": 1, "rdn": 2, "rup": 3, "rmm": 4, "dyn": 7}

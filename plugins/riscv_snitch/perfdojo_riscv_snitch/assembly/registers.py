"""Names of registers and of control registers."""

from __future__ import annotations

#: Index -> the ABI name.
INTEGER_NAMES: tuple[str, ...] = (
    *("zero", "ra", "sp", "gp", "tp", "t0", "t1", "t2", "s0", "s1"),
    *(f"a{k}" for k in range(8)),
    *(f"s{k}" for k in range(2, 12)),
    *(f"t{k}" for k in range(3, 7)),
)
FLOAT_NAMES: tuple[str, ...] = (
    *(f"ft{k}" for k in range(8)),
    *("fs0", "fs1"),
    *(f"fa{k}" for k in range(8)),
    *(f"fs{k}" for k in range(2, 12)),
    *(f"ft{k}" for k in range(8, 12)),
)

INTEGER: dict[str, int] = {name: k for k, name in enumerate(INTEGER_NAMES)}
INTEGER.update({f"x{k}": k for k in range(32)}, fp=8)
FLOAT: dict[str, int] = {name: k for k, name in enumerate(FLOAT_NAMES)}
FLOAT.update({f"f{k}": k for k in range(32)})

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

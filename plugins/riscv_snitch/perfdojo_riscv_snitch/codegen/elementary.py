"""Logarithm, hyperbolic tangent and error function as routines, beside those of :mod:`.functions`.

They follow the same rules: double precision, operand and result in fa0, entered by ``jal t1``, and t2 holds
the address of their table. Where a routine needs an exponential or a quotient, it calls those routines.

- log: the argument is m 2^k with m between sqrt(1/2) and sqrt(2); log(m) is a polynomial of m - 1, and the
  whole is added up with the rounding error of k ln(2) + (m - 1), so that nothing is lost where k is not 0.
- tanh: an odd polynomial up to 5/8, then 1 - 2/(exp(2 x) + 1).
- erf: an odd polynomial up to 1, then 1 - exp(p(x)) with p a polynomial for log(1 - erf), two of them.

Coefficients are those of Chebyshev interpolation in 300 bits, rounded to double precision.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

#: Highest power first. log(1 + f) = f + f^2 Q(f) on sqrt(1/2) - 1 .. sqrt(2) - 1; |error of Q| < 2^-55.
_LOG = tuple(map(float.fromhex, (
    "-0x1.8e8dbe6287182p-6", "0x1.ceaa60bf222c6p-5", "-0x1.fc84af03f4b35p-5", "0x1.bb0935eda1bcfp-5",
    "-0x1.b635b9e8d3cb5p-5", "0x1.dd30861c3c738p-5", "-0x1.00b0e66da1364p-4", "0x1.115b4e4346a82p-4",
    "-0x1.248b2aa6a80fap-4", "0x1.3b0eda87bb37cp-4", "-0x1.55556c35e26b0p-4", "0x1.745d460ee8724p-4",
    "-0x1.99999a637b558p-4", "0x1.c71c70c12f270p-4", "-0x1.fffffff7e8eaap-4", "0x1.249249261f2e3p-3",
    "-0x1.5555555561de5p-3", "0x1.999999999772bp-3", "-0x1.fffffffffff34p-3", "0x1.555555555555cp-2",
    "-0x1.0000000000000p-1",
)))  # fmt: skip
#: tanh(x) = x + x^3 P(x^2) up to 5/8; |error of P| < 2^-54.
_TANH = tuple(map(float.fromhex, (
    "0x1.b33642a122cddp-18", "-0x1.05bbdae896297p-15", "0x1.8445870f6fe41p-14", "-0x1.f243823c8c981p-13",
    "0x1.3526e9ed54da1p-11", "-0x1.7d9f6f23e8682p-10", "0x1.d6d39ae3905e2p-9", "-0x1.226e3473dce5cp-7",
    "0x1.664f487e0a749p-6", "-0x1.ba1ba1ba0f126p-5", "0x1.11111111110a8p-3", "-0x1.5555555555555p-2",
)))  # fmt: skip
#: erf(x) = x + x P(x^2) up to 1; |error of P| < 2^-55.
_ERF = tuple(map(float.fromhex, (
    "0x1.05ffd737fb32ep-34", "-0x1.389d4f2641625p-30", "0x1.f7b4bf3b13964p-27", "-0x1.5f1ecb6f0764cp-23",
    "0x1.b9df224ca4b97p-20", "-0x1.f4d1e3183f7aep-17", "0x1.f9a321d5b8e1ep-14", "-0x1.c02db3dac435fp-11",
    "0x1.565bcd0dbaa38p-8", "-0x1.b82ce31284e00p-6", "0x1.ce2f21a042b30p-4", "-0x1.812746b0379e6p-2",
    "0x1.06eba8214db69p-3",
)))  # fmt: skip
#: log(1 - erf(x)) on 1 .. 2.25, a polynomial of x - 1.625.
_ERFC_NEAR = tuple(map(float.fromhex, (
    "-0x1.4dcc666f208a1p-31", "0x1.5e7aef55b46bep-30", "0x1.f3c2ba4ba3256p-30", "-0x1.d2852ebbc9dc6p-26",
    "0x1.440054df78b44p-23", "-0x1.38d7193a8faf1p-21", "0x1.92e374433e5c1p-20", "-0x1.0aa497e9de93ap-21",
    "-0x1.920c87a1ecdbcp-16", "0x1.99f921fe0346bp-13", "-0x1.211a66c19777ep-10", "0x1.59606b9a0b3c9p-8",
    "-0x1.78fa9a8b71fbbp-6", "-0x1.cdb6c474ce6adp-1", "-0x1.ddd7124908633p+1", "-0x1.eb25b8ff49e4dp+1",
)))  # fmt: skip
#: The same on 2.25 .. 6, a polynomial of x - 4.125.
_ERFC_FAR = tuple(map(float.fromhex, (
    "0x1.822637fc51a58p-52", "-0x1.6d5b42a820d25p-49", "0x1.88a77a6cb3beap-47", "-0x1.eb5176820453cp-45",
    "0x1.29309457059d0p-42", "-0x1.c07b1dc13b5eep-41", "-0x1.63712ba7418f0p-40", "0x1.a35994d107af6p-35",
    "-0x1.28417b645b574p-31", "0x1.45faf3abfb31fp-28", "-0x1.3e1975c02baf5p-25", "0x1.2081119ae61adp-22",
    "-0x1.f220138e5b908p-20", "0x1.9fc7f74d34480p-17", "-0x1.5420956a750c9p-14", "0x1.150ca82443fa6p-11",
    "-0x1.ccd13b9f3c859p-9", "-0x1.f31ad7b7d2379p-1", "-0x1.0f5b6f291f1bbp+3", "-0x1.30854b8fd1bdfp+4",
)))  # fmt: skip
#: ln 2 in two parts; a product of the first with a whole number below 2^20 is exact.
LN2 = (float.fromhex("0x1.62e42feep-1"), float.fromhex("0x1.a39ef35793c76p-33"))

#: Function -> its constants, in the order of its table; exp's table follows if the function calls exp.
NUMBERS: Mapping[str, tuple[float, ...]] = {
    "log": (1.0, *LN2, *_LOG),
    "tanh": (1.0, 2.0, 0.625, 20.0, *_TANH),
    "erf": (1.0, 2.25, 6.0, 1.625, 4.125, *_ERF, *_ERFC_NEAR, *_ERFC_FAR),
}
#: Routines that each calls.
CALLS: Mapping[str, tuple[str, ...]] = {"log": (), "tanh": ("exp", "div"), "erf": ("exp",)}


def _horner(terms: Sequence[float], at: int, variable: str) -> str:
    """The polynomial in fa5, of terms that stand in the table from number ``at`` on. Changes fa4."""
    lines = [f"fld fa5, {8 * at}(t2)"]
    for k in range(1, len(terms)):
        lines += [f"fld fa4, {8 * (at + k)}(t2)", f"fmadd.d fa5, fa5, {variable}, fa4"]
    return "\n".join(lines)


def _exp(name: str) -> str:
    """A call of exp on fa0, with its table; it changes all registers that routines may change."""
    return f"addi t2, t2, {8 * len(NUMBERS[name])}\njal t1, {{exp}}"


_LOG_TEXT = f"""
fclass.d t3, fa0
andi t4, t3, 0x380
bnez t4, {{L}}_as_it_is
addi sp, sp, -16
sw zero, 0(sp)
andi t4, t3, 0x18
lui t5, 0xfff00
bnez t4, {{L}}_special
andi t4, t3, 0x07
lui t5, 0x7ff80
bnez t4, {{L}}_special
li t6, -1023
andi t4, t3, 0x20
beqz t4, {{L}}_normal
li t4, 0x43500000
sw t4, 4(sp)
fld fa1, 0(sp)
fmul.d fa0, fa0, fa1
li t6, -1077
{{L}}_normal:
fsd fa0, 0(sp)
lw t4, 4(sp)
srli t5, t4, 20
add t6, t6, t5
slli t4, t4, 12
srli t4, t4, 12
lui t3, 0x3ff00
li t5, 0x6a09e
bltu t4, t5, {{L}}_low
lui t3, 0x3fe00
addi t6, t6, 1
{{L}}_low:
or t4, t4, t3
sw t4, 4(sp)
fld fa0, 0(sp)
fld fa1, 0(t2)
fsub.d fa0, fa0, fa1
{_horner(_LOG, 3, "fa0")}
fmul.d fa1, fa0, fa0
fcvt.d.w fa2, t6
fld fa3, 16(t2)
fmul.d fa3, fa2, fa3
fmadd.d fa5, fa5, fa1, fa3
fld fa3, 8(t2)
fmul.d fa2, fa2, fa3
# fa1: the sum of the large parts; what its rounding lost goes to the small ones
fadd.d fa1, fa2, fa0
fsub.d fa3, fa1, fa2
fsub.d fa0, fa0, fa3
fadd.d fa0, fa0, fa5
fadd.d fa0, fa1, fa0
addi sp, sp, 16
jr t1
{{L}}_special:
sw t5, 4(sp)
fld fa0, 0(sp)
addi sp, sp, 16
jr t1
{{L}}_as_it_is:
fadd.d fa0, fa0, fa0
jr t1
"""

_TANH_TEXT = f"""
feq.d t3, fa0, fa0
beqz t3, {{L}}_done
fabs.d fa1, fa0
fld fa2, 16(t2)
flt.d t3, fa2, fa1
bnez t3, {{L}}_large
fmul.d fa1, fa0, fa0
{_horner(_TANH, 4, "fa1")}
fmul.d fa1, fa1, fa5
fmadd.d fa1, fa1, fa0, fa0
fsgnj.d fa0, fa1, fa0
{{L}}_done:
jr t1
{{L}}_large:
addi sp, sp, -16
sw t1, 0(sp)
fsd fa0, 8(sp)
fld fa2, 24(t2)
fmin.d fa1, fa1, fa2
fadd.d fa0, fa1, fa1
{_exp("tanh")}
li t3, 1
fcvt.d.w fa1, t3
fadd.d fa1, fa0, fa1
li t3, 2
fcvt.d.w fa0, t3
jal t1, {{div}}
li t3, 1
fcvt.d.w fa1, t3
fsub.d fa0, fa1, fa0
fld fa1, 8(sp)
fsgnj.d fa0, fa0, fa1
lw t1, 0(sp)
addi sp, sp, 16
jr t1
"""

_ERF_TEXT = f"""
feq.d t3, fa0, fa0
beqz t3, {{L}}_done
fabs.d fa1, fa0
fld fa2, 0(t2)
flt.d t3, fa2, fa1
bnez t3, {{L}}_large
fmul.d fa1, fa0, fa0
{_horner(_ERF, 5, "fa1")}
fmadd.d fa1, fa5, fa0, fa0
fsgnj.d fa0, fa1, fa0
{{L}}_done:
jr t1
{{L}}_large:
addi sp, sp, -16
sw t1, 0(sp)
fsd fa0, 8(sp)
fld fa2, 8(t2)
flt.d t3, fa2, fa1
bnez t3, {{L}}_far
fld fa2, 24(t2)
fsub.d fa1, fa1, fa2
{_horner(_ERFC_NEAR, 5 + len(_ERF), "fa1")}
j {{L}}_rest
{{L}}_far:
fld fa2, 16(t2)
fmin.d fa1, fa1, fa2
fld fa2, 32(t2)
fsub.d fa1, fa1, fa2
{_horner(_ERFC_FAR, 5 + len(_ERF) + len(_ERFC_NEAR), "fa1")}
{{L}}_rest:
fmv.d fa0, fa5
{_exp("erf")}
li t3, 1
fcvt.d.w fa1, t3
fsub.d fa0, fa1, fa0
fld fa1, 8(sp)
fsgnj.d fa0, fa0, fa1
lw t1, 0(sp)
addi sp, sp, 16
jr t1
"""

TEXTS: Mapping[str, str] = {"log": _LOG_TEXT, "tanh": _TANH_TEXT, "erf": _ERF_TEXT}


def words(numbers: Sequence[float]) -> list[int]:
    """Numbers of f64 as their bits."""
    count = len(numbers)
    return list(struct.unpack(f"<{count}Q", struct.pack(f"<{count}d", *numbers)))

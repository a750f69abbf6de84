"""Functions for an FPU without a divider: routines that a kernel contains if it needs them.

Division, square root and exponential are here, the others in :mod:`.elementary`.

All of them compute in double precision; f32 goes through it, which for these functions leaves the rounding
of the result as the only error. They take their operands in fa0 and fa1, return in fa0, and are entered by
``jal t1``; they change t1 to t6 and fa0 to fa7 only.

Division and square root start from an estimate made of the exponent's bits, refine it by Newton's iteration
and correct the result by its exact remainder (Markstein, IBM Journal of Research and Development 34, 1990),
on mantissas, so that nothing overflows on the way. A quotient that is denormal is rounded once: where it
falls between two numbers, the remainder decides.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Mapping, Sequence, Set

from perfdojo_riscv_snitch.codegen import elementary

#: Function -> bound on its error in ulp. Division and square root are exactly rounded.
ACCURACY: Mapping[str, float] = {"exp": 1.0, "log": 1.0, "tanh": 2.0, "erf": 2.0}

#: Registers that the routines change, and that kernels which call them do not use.
CHANGED = (*(f"t{k}" for k in range(1, 7)), *(f"fa{k}" for k in range(8)))

LINK = "t1"
#: Register that holds the address of the table of constants when a routine needs it.
TABLE = "t2"

_TERMS = range(13, 1, -1)
#: Constants of exp, in the order in which it loads them.
EXP_TABLE: tuple[float, ...] = (
    710.0,
    -746.0,
    1 / math.log(2.0),
    *elementary.LN2,
    *(1 / math.factorial(n) for n in _TERMS),
)

_DIV = """
addi sp, sp, -16
li t6, 0
{L}_again:
fsd fa0, 0(sp)
fsd fa1, 8(sp)
lw t2, 4(sp)
lw t3, 12(sp)
slli t4, t2, 1
srli t4, t4, 21
slli t5, t3, 1
srli t5, t5, 21
sub t6, t6, t5
add t6, t6, t4
addi t4, t4, -1
sltiu t4, t4, 2046
addi t5, t5, -1
sltiu t5, t5, 2046
and t4, t4, t5
beqz t4, {L}_special
# t6: exponent of the quotient of the mantissas, t5: its sign
mv t4, t6
xor t5, t2, t3
srli t5, t5, 31
slli t5, t5, 31
lui t6, 0x3ff00
slli t2, t2, 12
srli t2, t2, 12
or t2, t2, t6
slli t3, t3, 12
srli t3, t3, 12
or t3, t3, t6
sw t2, 4(sp)
sw t3, 12(sp)
fld fa0, 0(sp)
fld fa1, 8(sp)
li t6, 0x7fde6238
sub t6, t6, t3
sw t6, 12(sp)
fld fa2, 8(sp)
li t6, 1
fcvt.d.w fa3, t6
fnmsub.d fa4, fa1, fa2, fa3
fmadd.d fa2, fa2, fa4, fa2
fnmsub.d fa4, fa1, fa2, fa3
fmadd.d fa2, fa2, fa4, fa2
fnmsub.d fa4, fa1, fa2, fa3
fmadd.d fa2, fa2, fa4, fa2
fnmsub.d fa4, fa1, fa2, fa3
fmadd.d fa2, fa2, fa4, fa2
fnmsub.d fa4, fa1, fa2, fa3
# a tie, which a mantissa of ones leads to, lies below its reciprocal
fmadd.d fa2, fa2, fa4, fa2, rmm
fmul.d fa4, fa0, fa2
fnmsub.d fa5, fa4, fa1, fa0
fmadd.d fa4, fa5, fa2, fa4
sw zero, 0(sp)
addi t6, t4, 1021
sltiu t6, t6, 2043
beqz t6, {L}_far
addi t6, t4, 1023
slli t6, t6, 20
or t6, t6, t5
sw t6, 4(sp)
fld fa5, 0(sp)
fmul.d fa0, fa4, fa5
{L}_done:
addi sp, sp, 16
jr t1
{L}_far:
bltz t4, {L}_small
li t6, 2000
blt t4, t6, {L}_large
mv t4, t6
{L}_large:
addi t4, t4, 23
slli t4, t4, 20
or t4, t4, t5
sw t4, 4(sp)
fld fa5, 0(sp)
fmul.d fa4, fa4, fa5
li t6, 0x7e700000
sw t6, 4(sp)
fld fa5, 0(sp)
fmul.d fa0, fa4, fa5
j {L}_done
{L}_small:
li t6, -1100
bge t4, t6, {L}_near
mv t4, t6
{L}_near:
fnmsub.d fa5, fa4, fa1, fa0
addi t4, t4, 1223
slli t4, t4, 20
sw t4, 4(sp)
fld fa6, 0(sp)
fmul.d fa4, fa4, fa6
# fa4: the quotient times 2^200, fa5: the remainder; round, and look at what was lost
li t6, 0x33700000
sw t6, 4(sp)
fld fa6, 0(sp)
fmul.d fa0, fa4, fa6
li t6, 0x4c700000
sw t6, 4(sp)
fld fa6, 0(sp)
fmul.d fa6, fa0, fa6
fsub.d fa4, fa4, fa6
li t6, 0x09400000
sw t6, 4(sp)
fld fa6, 0(sp)
fabs.d fa7, fa4
feq.d t6, fa7, fa6
beqz t6, {L}_rounded
fcvt.d.w fa3, zero
li t6, 1
sw t6, 0(sp)
sw zero, 4(sp)
fld fa6, 0(sp)
flt.d t6, fa3, fa5
flt.d t4, fa3, fa4
and t6, t6, t4
beqz t6, {L}_not_up
fadd.d fa0, fa0, fa6
{L}_not_up:
flt.d t6, fa5, fa3
flt.d t4, fa4, fa3
and t6, t6, t4
beqz t6, {L}_rounded
fsub.d fa0, fa0, fa6
{L}_rounded:
sw zero, 0(sp)
sw t5, 4(sp)
fld fa6, 0(sp)
fsgnj.d fa0, fa0, fa6
j {L}_done
{L}_special:
fclass.d t2, fa0
fclass.d t3, fa1
or t4, t2, t3
andi t4, t4, 0x300
bnez t4, {L}_sum
andi t4, t2, 0x81
andi t5, t3, 0x81
bnez t4, {L}_infinite
bnez t5, {L}_zero
andi t4, t2, 0x18
andi t5, t3, 0x18
bnez t4, {L}_no_dividend
bnez t5, {L}_by_zero
# a denormal operand: make it normal, and start again
lw t2, 4(sp)
lw t3, 12(sp)
slli t2, t2, 1
srli t2, t2, 21
slli t3, t3, 1
srli t3, t3, 21
add t6, t6, t3
sub t6, t6, t2
sw zero, 0(sp)
li t5, 0x43500000
sw t5, 4(sp)
fld fa2, 0(sp)
bnez t2, {L}_dividend_normal
fmul.d fa0, fa0, fa2
addi t6, t6, -54
{L}_dividend_normal:
bnez t3, {L}_again
fmul.d fa1, fa1, fa2
addi t6, t6, 54
j {L}_again
{L}_infinite:
bnez t5, {L}_nan
fsgnjx.d fa0, fa0, fa1
j {L}_done
{L}_no_dividend:
bnez t5, {L}_nan
fsgnjx.d fa0, fa0, fa1
j {L}_done
{L}_zero:
fcvt.d.w fa2, zero
j {L}_signed
{L}_by_zero:
lui t4, 0x7ff00
sw zero, 0(sp)
sw t4, 4(sp)
fld fa2, 0(sp)
{L}_signed:
fsgnj.d fa2, fa2, fa0
fsgnjx.d fa0, fa2, fa1
j {L}_done
{L}_nan:
lui t4, 0x7ff80
sw zero, 0(sp)
sw t4, 4(sp)
fld fa0, 0(sp)
j {L}_done
{L}_sum:
fadd.d fa0, fa0, fa1
j {L}_done
"""

_SQRT = """
fclass.d t2, fa0
andi t3, t2, 0x07
bnez t3, {L}_negative
andi t3, t2, 0x198
bnez t3, {L}_as_it_is
andi t3, t2, 0x200
bnez t3, {L}_as_it_is
addi sp, sp, -16
sw zero, 0(sp)
li t6, 0
andi t3, t2, 0x20
beqz t3, {L}_normal
li t3, 0x43500000
sw t3, 4(sp)
fld fa1, 0(sp)
fmul.d fa0, fa0, fa1
li t6, -27
{L}_normal:
fsd fa0, 0(sp)
lw t2, 4(sp)
srli t3, t2, 20
addi t3, t3, -1023
andi t4, t3, 1
srai t3, t3, 1
add t6, t6, t3
slli t2, t2, 12
srli t2, t2, 12
addi t4, t4, 1023
slli t4, t4, 20
or t2, t2, t4
sw t2, 4(sp)
fld fa0, 0(sp)
srli t2, t2, 1
li t3, 0x5fe6eb50
sub t3, t3, t2
sw t3, 4(sp)
fld fa1, 0(sp)
li t3, 1
fcvt.d.w fa2, t3
li t3, 0x3f000000
fmv.w.x fa3, t3
fcvt.d.s fa3, fa3
li t3, 5
{L}_refine:
fmul.d fa4, fa0, fa1
fmul.d fa5, fa1, fa3
fnmsub.d fa4, fa4, fa1, fa2
fmadd.d fa1, fa5, fa4, fa1
addi t3, t3, -1
bnez t3, {L}_refine
fmul.d fa4, fa0, fa1
fmul.d fa5, fa1, fa3
fnmsub.d fa6, fa4, fa4, fa0
fmadd.d fa4, fa6, fa5, fa4
addi t6, t6, 1023
slli t6, t6, 20
sw zero, 0(sp)
sw t6, 4(sp)
fld fa5, 0(sp)
fmul.d fa0, fa4, fa5
addi sp, sp, 16
jr t1
{L}_negative:
fsub.d fa1, fa0, fa0
addi sp, sp, -16
lui t3, 0x7ff80
sw zero, 0(sp)
sw t3, 4(sp)
fld fa0, 0(sp)
addi sp, sp, 16
{L}_as_it_is:
jr t1
"""

_EXP_HORNER = "\n".join(
    line
    for k in range(len(_TERMS) - 1)
    for line in (f"fld fa4, {8 * (6 + k)}(t2)", "fmadd.d fa5, fa5, fa3, fa4")
)
_EXP = f"""
feq.d t3, fa0, fa0
beqz t3, {{L}}_done
fld fa1, 0(t2)
fld fa2, 8(t2)
fmin.d fa0, fa0, fa1
fmax.d fa0, fa0, fa2
fld fa1, 16(t2)
fmul.d fa2, fa0, fa1
fcvt.w.d t3, fa2, rne
fcvt.d.w fa2, t3
fld fa1, 24(t2)
fnmsub.d fa3, fa2, fa1, fa0
fld fa1, 32(t2)
fnmsub.d fa3, fa2, fa1, fa3
fmul.d fa6, fa3, fa3
fld fa5, 40(t2)
{_EXP_HORNER}
fmadd.d fa5, fa5, fa6, fa3
li t4, 1
fcvt.d.w fa4, t4
fadd.d fa5, fa5, fa4
addi sp, sp, -16
sw zero, 0(sp)
srai t4, t3, 1
sub t3, t3, t4
addi t4, t4, 1023
slli t4, t4, 20
sw t4, 4(sp)
fld fa4, 0(sp)
fmul.d fa5, fa5, fa4
addi t3, t3, 1023
slli t3, t3, 20
sw t3, 4(sp)
fld fa4, 0(sp)
fmul.d fa0, fa5, fa4
addi sp, sp, 16
{{L}}_done:
jr t1
"""

_TEXTS: Mapping[str, str] = {"div": _DIV, "sqrt": _SQRT, "exp": _EXP, **elementary.TEXTS}
FUNCTIONS = frozenset(_TEXTS)


def routine(name: str, prefix: str) -> Sequence[str]:
    """The lines of a routine. Its label, ``PREFIX_NAME``, begins all of its labels."""
    label = f"{prefix}_{name}"
    text = _TEXTS[name].strip().replace("{L}", label)
    for other in elementary.CALLS.get(name, ()):
        text = text.replace(f"{{{other}}}", f"{prefix}_{other}")
    return [f"{label}:", *text.splitlines()]


def needed(called: Set[str]) -> set[str]:
    """The routines that these ones call, and themselves."""
    return {*called, *(other for name in called for other in elementary.CALLS.get(name, ()))}


def table(name: str) -> list[int]:
    """The constants that a function needs in the frame, as 64-bit words."""
    numbers = EXP_TABLE if name == "exp" else elementary.NUMBERS.get(name, ())
    if "exp" in elementary.CALLS.get(name, ()):
        numbers = (*numbers, *EXP_TABLE)
    return elementary.words(numbers)


def filled(at: int, words: Sequence[int]) -> Iterator[str]:
    """Instructions that put words of 64 bits into the frame."""
    halves = struct.unpack(f"<{2 * len(words)}I", struct.pack(f"<{len(words)}Q", *words))
    for k, half in enumerate(halves):
        if half:
            yield f"li {TABLE}, {half}"
        yield f"sw {TABLE if half else 'zero'}, {at + 4 * k}(sp)"


#: Two arguments, then room for the registers that a routine changes.
RESCUE_BYTES = 16 + 8 * len(CHANGED)


def rescue(name: str, prefix: str, figures: Mapping[str, str]) -> Iterator[str]:
    """A call of a routine that changes no register; argument and result pass through the frame."""
    at = int(figures["rescue"])
    yield f"{prefix}_rescue_{name}:"
    for k, register in enumerate(CHANGED):
        yield f"{'fsd' if register[0] == 'f' else 'sw'} {register}, {at + 16 + 8 * k}(sp)"
    yield from filled(int(figures[f"table_{name}"]), table(name))
    yield from (f"fld fa0, {at}(sp)", f"fld fa1, {at + 8}(sp)")
    yield f"addi {TABLE}, sp, {figures[f'table_{name}']}"
    yield from (f"jal {LINK}, {prefix}_{name}", f"fsd fa0, {at}(sp)")
    for k, register in enumerate(CHANGED):
        yield f"{'fld' if register[0] == 'f' else 'lw'} {register}, {at + 16 + 8 * k}(sp)"
    yield "ret"

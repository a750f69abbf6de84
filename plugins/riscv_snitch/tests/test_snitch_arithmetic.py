"""Results of instructions, compared with Python's integers and fractions and with NumPy."""

from __future__ import annotations

import random
import struct
from fractions import Fraction

import numpy as np
import pytest
import soft_model as model
from perfdojo_riscv_snitch.simulator import simulate
from snitch_support import TCDM, apply_fp
from soft_model import FORMATS, HALF, MODES, SINGLE, Format

COUNT = 60
FLAGS = model.NX | model.UF | model.OF | model.NV


def interesting(form: Format, rng: random.Random) -> int:
    """Bits of a number: special, anything at all, or near one so that sums cancel."""
    kind = rng.random()
    one = form.bias << form.mantissa
    if kind < 0.25:
        largest, least = form.infinity(0) - 1, 1 << form.mantissa
        special = (0, 1, least - 1, least, one, largest, form.infinity(0), form.nan, form.infinity(0) + 1)
        return rng.choice(special) | rng.getrandbits(1) << (form.width - 1)
    if kind < 0.5:
        return rng.getrandbits(form.width)
    near = one + rng.randrange(-3, 4) * (1 << form.mantissa) + rng.getrandbits(form.mantissa)
    return near | rng.getrandbits(1) << (form.width - 1)


def triples(form: Format, seed: str) -> list[tuple[int, int, int]]:
    rng = random.Random(seed)
    rows = [tuple(interesting(form, rng) for _ in range(3)) for _ in range(COUNT)]
    # Products that nearly cancel the addend.
    for k in range(0, COUNT, 3):
        a, b, _ = rows[k]
        rows[k] = (a, b, model.negate(form, model.multiply(form, a, b, "rne")[0]))
    return [(a, b, c) for a, b, c in rows]


def boxed(form: Format, rows: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    return [(form.box(a), form.box(b), form.box(c)) for a, b, c in rows]


def ordinary(form: Format, rng: random.Random) -> int:
    """A number that the core leaves to the host's FPU, often with few bits or with many ones."""
    spread = rng.choice([1, 20, 290 if form.mantissa == 52 else 40])
    exponent = form.bias + rng.randint(-spread, spread)
    drop = rng.randrange(form.mantissa)
    mantissa = rng.choice([rng.getrandbits(form.mantissa), (1 << form.mantissa) - 1]) >> drop << drop
    return rng.getrandbits(1) << (form.width - 1) | exponent << form.mantissa | mantissa


@pytest.mark.parametrize("form", [f for f in FORMATS if f is not HALF], ids=lambda f: f.name)
def test_ordinary_numbers(form: Format) -> None:
    rng = random.Random(f"ordinary{form.name}")
    rows = [tuple(ordinary(form, rng) for _ in range(3)) for _ in range(400)]
    for k in range(0, len(rows), 4):
        a, b, _ = rows[k]
        product = model.multiply(form, a, b, rng.choice(MODES))[0]
        rows[k] = (a, b, model.negate(form, product) ^ rng.randrange(3))
    wanted = {
        "fadd.{} fa3, fa0, fa1": lambda a, b, c: model.add(form, a, b, "rne"),
        "fsub.{} fa3, fa0, fa1": lambda a, b, c: model.add(form, a, model.negate(form, b), "rne"),
        "fmul.{} fa3, fa0, fa1": lambda a, b, c: model.multiply(form, a, b, "rne"),
        "fmadd.{} fa3, fa0, fa1, fa2": lambda a, b, c: model.fma(form, a, b, c, "rne"),
    }
    for instruction, expected in wanted.items():
        got = apply_fp(instruction.format(form.name), boxed(form, [(a, b, c) for a, b, c in rows]))
        for (a, b, c), (bits, flags) in zip(rows, got):
            value, raised = expected(a, b, c)
            assert (bits, flags) == (form.box(value), raised), f"{instruction} {a:x} {b:x} {c:x}"


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("form", FORMATS, ids=lambda f: f.name)
def test_addition_and_multiplication(form: Format, mode: str) -> None:
    rows = triples(form, f"{form.name}{mode}")
    for name, wanted in (
        ("fadd", lambda a, b: model.add(form, a, b, mode)),
        ("fsub", lambda a, b: model.add(form, a, model.negate(form, b), mode)),
        ("fmul", lambda a, b: model.multiply(form, a, b, mode)),
    ):
        got = apply_fp(f"{name}.{form.name} fa3, fa0, fa1, {mode}", boxed(form, rows))
        for (a, b, _), (bits, flags) in zip(rows, got):
            value, raised = wanted(a, b)
            assert (bits, flags) == (form.box(value), raised), f"{name} {a:x} {b:x}"


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("form", FORMATS, ids=lambda f: f.name)
def test_fused_multiply_add(form: Format, mode: str) -> None:
    rows = triples(form, f"fma{form.name}{mode}")
    signs = {"fmadd": (0, 0), "fmsub": (0, 1), "fnmsub": (1, 0), "fnmadd": (1, 1)}
    for name, (product, addend) in signs.items():
        got = apply_fp(f"{name}.{form.name} fa3, fa0, fa1, fa2, {mode}", boxed(form, rows))
        for (a, b, c), (bits, flags) in zip(rows, got):
            x = model.negate(form, a) if product else a
            z = model.negate(form, c) if addend else c
            value, raised = model.fma(form, x, b, z, mode)
            assert (bits, flags) == (form.box(value), raised), f"{name} {a:x} {b:x} {c:x}"


@pytest.mark.parametrize("mode", MODES)
def test_conversions_between_formats(mode: str) -> None:
    for source in FORMATS:
        rows = triples(source, f"cvt{source.name}{mode}")
        for target in FORMATS:
            if source == target:
                continue
            got = apply_fp(f"fcvt.{target.name}.{source.name} fa3, fa0, {mode}", boxed(source, rows))
            for (a, _, _), (bits, flags) in zip(rows, got):
                value, raised = model.convert(source, target, a, mode)
                assert (bits, flags) == (target.box(value), raised), f"{source.name} to {target.name} {a:x}"


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("form", FORMATS, ids=lambda f: f.name)
def test_conversions_to_and_from_integers(form: Format, mode: str) -> None:
    rng = random.Random(f"int{form.name}{mode}")
    rows = triples(form, f"int{form.name}{mode}")
    edges = [Fraction(n, 4) for n in range(-9, 10)] + [Fraction(2) ** 31 + k for k in (-1, 0, 1)]
    rows += [(model.round_to(form, e * s, "rtz")[0], 0, 0) for e in edges for s in (1, -1, 2)]
    for name, signed in (("w", True), ("wu", False)):
        got = apply_fp(f"fcvt.{name}.{form.name} t0, fa0, {mode}", boxed(form, rows), "d")
        for (a, _, _), (bits, flags) in zip(rows, got):
            assert (bits & 0xFFFFFFFF, flags) == model.to_integer(form, a, signed, mode), f"{a:x}"
        numbers = [rng.getrandbits(32) >> rng.randrange(32) for _ in range(COUNT)] + [
            0,
            1 << 31,
            (1 << 32) - 1,
        ]
        got = apply_fp(f"fcvt.{form.name}.{name} fa3, t1, {mode}", [(n, 0, 0) for n in numbers])
        for n, (bits, flags) in zip(numbers, got):
            number = n - (1 << 32) if signed and n >> 31 else n
            value, raised = model.round_to(form, Fraction(number), mode)
            assert (bits, flags) == (form.box(value), raised), str(number)


def less(form: Format, a: int, b: int) -> bool:
    """-0 is below +0."""
    if form.sign(a) != form.sign(b):
        return bool(form.sign(a))
    return (form.magnitude(a) < form.magnitude(b)) != bool(form.sign(a)) and a != b


@pytest.mark.parametrize("form", FORMATS, ids=lambda f: f.name)
def test_minimum_maximum_and_comparisons(form: Format) -> None:
    rows = triples(form, f"cmp{form.name}")
    rows += [(a, a, 0) for a, _, _ in rows[:20]] + [
        (0, 1 << (form.width - 1), 0),
        (1 << (form.width - 1), 0, 0),
    ]
    results = {
        name: apply_fp(f"{name}.{form.name} fa3, fa0, fa1", boxed(form, rows)) for name in ("fmin", "fmax")
    } | {
        name: apply_fp(f"{name}.{form.name} t0, fa0, fa1", boxed(form, rows), "d")
        for name in ("feq", "flt", "fle")
    }
    for k, (a, b, _) in enumerate(rows):
        nans = form.is_nan(a), form.is_nan(b)
        invalid = model.NV if form.is_signalling(a) or form.is_signalling(b) else 0
        for name in ("fmin", "fmax"):
            first = less(form, a, b) == (name == "fmin")
            wanted = (
                form.nan if all(nans) else b if nans[0] else a if nans[1] else a if first or a == b else b
            )
            assert results[name][k] == (form.box(wanted), invalid), f"{name} {a:x} {b:x}"
        ordered = not any(nans)
        below = ordered and not any(map(form.is_infinite, (a, b))) and form.value(a) < form.value(b)
        if ordered and any(map(form.is_infinite, (a, b))):
            below = less(form, a, b)
        equal = ordered and (a == b or form.magnitude(a) == form.magnitude(b) == 0)
        for name, wanted_bit in (("feq", equal), ("flt", below), ("fle", below or equal)):
            raised = invalid if name == "feq" else (0 if ordered else model.NV)
            assert results[name][k] == (wanted_bit, raised), f"{name} {a:x} {b:x}"


def test_sign_injection_classes_and_boxes() -> None:
    one, minus_two = 0x3F800000, 0xC0000000
    rows = [(SINGLE.box(one), SINGLE.box(minus_two), 0), (one, SINGLE.box(minus_two), 0)]
    nan = SINGLE.nan
    assert [r for r, _ in apply_fp("fsgnj.s fa3, fa0, fa1", rows)] == [
        SINGLE.box(one | 1 << 31),
        SINGLE.box(nan | 1 << 31),  # an operand that is not boxed is the canonical NaN
    ]
    assert [r for r, _ in apply_fp("fadd.s fa3, fa0, fa1", rows)] == [SINGLE.box(0xBF800000), SINGLE.box(nan)]
    classes = {0xFF800000: 0, minus_two: 1, 0x80000001: 2, 0x80000000: 3, 0: 4, 1: 5, one: 6, 0x7F800000: 7}
    classes |= {0x7F800001: 8, 0x7FC00000: 9}
    got = apply_fp("fclass.s t0, fa0", [(SINGLE.box(bits), 0, 0) for bits in classes], "d")
    assert [r for r, _ in got] == [1 << k for k in classes.values()]
    assert apply_fp("fmv.x.h t0, fa0", [(0xFFFF, 0, 0)], "d")[0][0] == 0xFFFFFFFF
    assert apply_fp("fmv.h.x fa3, t1", [(0x13C00, 0, 0)])[0][0] == HALF.box(0x3C00)


@pytest.mark.parametrize(("dtype", "suffix"), [(np.float16, "h"), (np.float32, "s"), (np.float64, "d")])
def test_against_numpy(dtype: type[np.floating], suffix: str) -> None:
    rng = np.random.default_rng(7)
    a, b = (rng.standard_normal(200) * 10.0 ** rng.integers(-4, 5, 200) for _ in range(2))
    a, b = a.astype(dtype), b.astype(dtype)
    form = {"h": HALF, "s": SINGLE}.get(suffix, model.DOUBLE)
    rows = [(form.box(bits_of(x)), form.box(bits_of(y)), 0) for x, y in zip(a, b)]
    with np.errstate(over="ignore", under="ignore"):
        wanted = {"fadd": a + b, "fsub": a - b, "fmul": a * b}
    for name, values in wanted.items():
        got = [r for r, _ in apply_fp(f"{name}.{suffix} fa3, fa0, fa1", rows)]
        assert got == [form.box(bits_of(v)) for v in values], name


def bits_of(value: np.floating) -> int:
    return int.from_bytes(value.tobytes(), "little")


# -- packed SIMD -----------------------------------------------------------------------------------

PACKED = {
    "vfadd": lambda f, a, b, c: model.add(f, a, b, "rne"),
    "vfsub": lambda f, a, b, c: model.add(f, a, model.negate(f, b), "rne"),
    "vfmul": lambda f, a, b, c: model.multiply(f, a, b, "rne"),
    "vfmac": lambda f, a, b, c: model.fma(f, a, b, c, "rne"),
    "vfmre": lambda f, a, b, c: model.fma(f, model.negate(f, a), b, c, "rne"),
}


def lanes(form: Format, bits: int) -> list[int]:
    return [bits >> k * form.width & ((1 << form.width) - 1) for k in range(64 // form.width)]


def joined(form: Format, parts: list[int]) -> int:
    return sum(part << k * form.width for k, part in enumerate(parts))


def packed_rows(form: Format, seed: str) -> list[tuple[int, int, int]]:
    rng = random.Random(seed)
    count = 64 // form.width
    return [
        tuple(joined(form, [interesting(form, rng) for _ in range(count)]) for _ in range(3))
        for _ in range(COUNT)
    ]


@pytest.mark.parametrize("replicate", ["", "r."])
@pytest.mark.parametrize("form", [HALF, SINGLE], ids=lambda f: f.name)
def test_packed_arithmetic(form: Format, replicate: str) -> None:
    rows = packed_rows(form, f"packed{form.name}{replicate}")
    for name, wanted in PACKED.items():
        # The accumulator is the old rd.
        got = apply_fp(f"fmv.d fa3, fa2\n{name}.{replicate}{form.name} fa3, fa0, fa1", rows)
        for (a, b, c), (bits, _) in zip(rows, got):
            second = lanes(form, b) if not replicate else [lanes(form, b)[0]] * (64 // form.width)
            expected = [wanted(form, *p)[0] for p in zip(lanes(form, a), second, lanes(form, c))]
            assert bits == joined(form, expected), f"{name} {a:x} {b:x} {c:x}"


def exact(form: Format, numbers: list[int]) -> int:
    return joined(form, [model.round_to(form, Fraction(n), "rne")[0] for n in numbers])


def test_packed_sums_and_dot_products_of_small_integers() -> None:
    a, b, c = [3, -5, 7, 2], [4, 1, -6, 9], [100, -200]
    row = [(exact(HALF, a), exact(HALF, b), exact(SINGLE, c))]
    old = "fmv.d fa3, fa2\n"
    dot = [100 + 12 - 5, -200 - 42 + 18]
    assert apply_fp(old + "vfdotpex.s.h fa3, fa0, fa1", row) == [(exact(SINGLE, dot), 0)]
    against = [100 - 12 + 5, -200 + 42 - 18]
    assert apply_fp(old + "vfndotpex.s.h fa3, fa0, fa1", row) == [(exact(SINGLE, against), 0)]
    assert apply_fp(old + "vfsumex.s.h fa3, fa0", row) == [(exact(SINGLE, [98, -191]), 0)]
    singles = [(exact(SINGLE, [3, -5]), 0, exact(SINGLE, [10, 99]))]
    assert apply_fp(old + "vfsum.s fa3, fa0", singles) == [(SINGLE.box(exact(SINGLE, [8])), 0)]
    halves = [(exact(HALF, a), 0, exact(HALF, [10, 20, 0, 0]))]
    assert apply_fp(old + "vfsum.h fa3, fa0", halves) == [(SINGLE.box(exact(HALF, [8, 29])), 0)]


def test_sums_of_three_round_once_where_nothing_falls_out() -> None:
    """Terms within 27 bits of each other: the unit's adders hold the exact sum."""
    rng = random.Random("sum3")
    one = SINGLE.bias << SINGLE.mantissa

    def near() -> int:
        exponent = rng.randrange(-1, 2) << SINGLE.mantissa
        return (one + exponent + rng.getrandbits(23)) | rng.getrandbits(1) << 31

    rows = [(joined(SINGLE, [near(), near()]), 0, SINGLE.box(near())) for _ in range(300)]
    for (pair, _, third), (bits, flags) in zip(rows, apply_fp("fmv.d fa3, fa2\nvfsum.s fa3, fa0", rows)):
        total = sum(SINGLE.value(x) for x in (*lanes(SINGLE, pair), third & 0xFFFFFFFF))
        assert (bits, flags) == tuple(map(sum, zip(model.round_to(SINGLE, total, "rne"), (SINGLE.box(0), 0))))


def test_packing_widening_and_comparing() -> None:
    two = (exact(SINGLE, [3, 9]), exact(SINGLE, [-4, 9]), exact(HALF, [1, 2, 5, 6]))
    old = "fmv.d fa3, fa2\n"
    assert apply_fp("vfcpka.s.s fa3, fa0, fa1", [two])[0][0] == exact(SINGLE, [3, -4])
    assert apply_fp(old + "vfcpka.h.s fa3, fa0, fa1", [two])[0][0] == exact(HALF, [3, -4, 5, 6])
    assert apply_fp(old + "vfcpkb.h.s fa3, fa0, fa1", [two])[0][0] == exact(HALF, [1, 2, 3, -4])
    halves = [(exact(HALF, [1, -2, 3, 4]), exact(HALF, [1, 5, -3, 4]), 0)]
    assert apply_fp("vfcvt.s.h fa3, fa0", halves)[0][0] == exact(SINGLE, [1, -2])
    assert apply_fp("vfcvtu.s.h fa3, fa0", halves)[0][0] == exact(SINGLE, [3, 4])
    for name, mask in {
        "vfeq": 0b1001,
        "vfne": 0b0110,
        "vflt": 0b0010,
        "vfge": 0b1101,
        "vfle": 0b1011,
        "vfgt": 0b0100,
    }.items():
        assert apply_fp(f"{name}.h t0, fa0, fa1", halves, "d")[0][0] == mask, name


# -- integers --------------------------------------------------------------------------------------


def signed(word: int) -> int:
    return word - (1 << 32) if word >> 31 else word


def divide(a: int, b: int) -> tuple[int, int]:
    if b == 0:
        return -1, a
    quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    return quotient, a - b * quotient


OPERATIONS = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "sll": lambda a, b: a << (b & 31),
    "slt": lambda a, b: signed(a) < signed(b),
    "sltu": lambda a, b: a < b,
    "xor": lambda a, b: a ^ b,
    "srl": lambda a, b: a >> (b & 31),
    "sra": lambda a, b: signed(a) >> (b & 31),
    "or": lambda a, b: a | b,
    "and": lambda a, b: a & b,
    "mul": lambda a, b: a * b,
    "mulh": lambda a, b: signed(a) * signed(b) >> 32,
    "mulhsu": lambda a, b: signed(a) * b >> 32,
    "mulhu": lambda a, b: a * b >> 32,
    "div": lambda a, b: divide(signed(a), signed(b))[0],
    "divu": lambda a, b: divide(a, b)[0],
    "rem": lambda a, b: divide(signed(a), signed(b))[1],
    "remu": lambda a, b: divide(a, b)[1],
}


def test_integer_arithmetic() -> None:
    rng = random.Random("int")
    edges = [0, 1, 2, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF]
    pairs = [(a, b) for a in edges for b in edges]
    pairs += [(rng.getrandbits(32), rng.getrandbits(32) >> rng.randrange(32)) for _ in range(100)]
    body = "\n".join(f"{name} t2, t0, t1\nsw t2, {4 * k}(a1)" for k, name in enumerate(OPERATIONS))
    text = f"""
        li a0, {TCDM}
        li a1, {TCDM + 8 * len(pairs)}
        li a2, {len(pairs)}
        1: lw t0, 0(a0)
        lw t1, 4(a0)
        {body}
        addi a0, a0, 8
        addi a1, a1, {4 * len(OPERATIONS)}
        addi a2, a2, -1
        bnez a2, 1b
        ecall
    """
    memory = b"".join(struct.pack("<2I", *pair) for pair in pairs)
    result = simulate(text, memory={TCDM: memory})
    words = struct.unpack(
        f"<{len(pairs) * len(OPERATIONS)}I", result.read(TCDM + len(memory), 4 * len(pairs) * len(OPERATIONS))
    )
    for k, (a, b) in enumerate(pairs):
        for j, (name, operation) in enumerate(OPERATIONS.items()):
            assert words[k * len(OPERATIONS) + j] == operation(a, b) & 0xFFFFFFFF, f"{name} {a:x} {b:x}"


def test_atomics() -> None:
    text = f"""
        li a0, {TCDM}
        li t0, 5
        sw t0, 0(a0)
        li t1, -7
        amoadd.w t2, t1, (a0)
        amomin.w t3, t0, (a0)
        amomaxu.w t4, t0, (a0)
        amoswap.w t5, t0, (a0)
        lr.w a1, (a0)
        sc.w a2, t1, (a0)
        sc.w a3, t1, (a0)
        lw a4, 0(a0)
        ecall
    """
    r = simulate(text).registers
    minus = (1 << 32) - 1
    got = [r[name] for name in ("t2", "t3", "t4", "t5", "a1", "a2", "a3", "a4")]
    assert got == [5, minus - 1, minus - 1, minus - 1, 5, 0, 1, minus - 6]

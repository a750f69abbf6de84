"""Sums of products in groups: of lanes, and of an instruction for matrices; emitted, emulated, proved."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from arm_support import (
    PLUGINS,
    QEMU_COMMAND,
    RULES,
    TARGET,
    both_targets,
    compiled,
    needs_compiler,
    needs_qemu,
    source,
)
from perfdojo_arm_neon import crosstools
from perfdojo_arm_neon.emulator import newer
from perfdojo_arm_neon.emulator.elf import read
from perfdojo_arm_neon.runner import ArmRunner

from perfdojo_sdk.core.dialect import Group
from perfdojo_sdk.core.domains import ROUNDING
from perfdojo_sdk.core.dtypes import FLOAT_DTYPES, INTEGER_DTYPES
from perfdojo_sdk.core.interpreter import interpret
from perfdojo_sdk.core.laws import FLUSHED, TO_ODD
from perfdojo_sdk.core.text import parse
from perfdojo_sdk.core.transformation import Kind, Trace
from perfdojo_sdk.experts.cpu import planner
from perfdojo_sdk.hookspecs.types import Measurement, RunRequest, Target
from perfdojo_sdk.measure.kernel_calls import CARRIER, numbers
from perfdojo_sdk.search.play import Play
from perfdojo_sdk.testing.numeric_leg import NumericLeg
from perfdojo_sdk.verify.dependence import verify_dependence, verify_dependence_trace
from perfdojo_sdk.verify.exact import verify_exact_trace
from perfdojo_sdk.verify.numeric import verify_numeric

GROUPS = TARGET.dialect.suffixes["d"].groups
INTEGERS = [g for g in GROUPS if g.total not in FLOAT_DTYPES]
OF_BF16 = [g for g in GROUPS if g.total in FLOAT_DTYPES]
LOSSY = replace(RULES, most=Kind.CHANGES_PRECISION)

each_integer = pytest.mark.parametrize("group", INTEGERS, ids=lambda g: f"{'_'.join(g.factors)}_{g.size}")
each_bf16 = pytest.mark.parametrize("group", OF_BF16, ids=lambda g: f"{g.size}")


def sums(group: Group, suffixes: bool = True, location: str = "reg") -> str:
    """Sums of one instruction, with a start of their own."""
    rows, columns = group.tile or (1, TARGET.capabilities.lanes[group.total])
    lanes, adds = (":l", ":d") if suffixes else ("", "")
    one, other, total = *group.factors, group.total
    row = "{0}," if group.tile else "0,"
    first = f"{rows}{lanes} " if group.tile else "1 "
    return f"""kernel sums(x, w, s) -> y
x {one} [{rows},{group.size}] heap
w {other} [{columns},{group.size}] heap
s {total} [{rows},{columns}] heap
y {total} [{rows},{columns}] heap
acc {total} [{rows},{columns}] {location}

{rows}:u {columns}:u acc[{{0}},{{1}}] = s[{{0}},{{1}}]
{first}{columns}{lanes} {group.size}{adds} acc[{row}{{1}}] += {total}(x[{row}{{2}}]) * {total}(w[{{1}},{{2}}])
{rows}:u {columns}:u y[{{0}},{{1}}] = acc[{{0}},{{1}}]
"""


# -- emitted code --------------------------------------------------------------------------------------


def test_golden(golden: Callable[[str, str], None]) -> None:
    """A product of matrices of bf16 in two rows by four columns of sums, and one of bytes in groups."""
    text = """kernel groups(a, b, u, v) -> c, d
a bf16 [3,2,4] heap
b bf16 [3,2,2,4] heap
u u8 [3,4] heap
v i8 [3,4,4] heap
c f32 [2,2,2] heap
d i32 [4] heap
acc f32 [2,2,2] reg

2:u 2:u 2:u acc[{0},{1},{2}] = 0
3 2:u 2:l 2:l 4:d acc[{1},{2},{3}] += f32(a[{0},{2},{4}]) * f32(b[{0},{1},{3},{4}])
2:u 2:u 2:u c[{0},{1},{2}] = acc[{0},{1},{2}]
4:v d[{0}] = 0
3 4:l 4:d d[{1}] += i32(u[{0},{2}]) * i32(v[{0},{1},{2}])
"""
    code = source(text, "pd_groups").code
    golden("groups.c", code)
    assert "acc_0" in code and "acc_2" not in code, "a variable holds two rows of two columns"


@each_integer
def test_no_other_order_of_factors_and_no_other_layout(group: Group) -> None:
    """Such nests are written out."""
    name = "pd_tile_" if group.tile else "pd_group_"
    assert name in source(sums(group)).code
    if group.tile:
        turned = sums(group).replace("x[{0},{2}]", "x[{1},{2}]").replace("w[{1},{2}]", "w[{0},{2}]")
        assert (name in source(turned).code) == (group.factors[0] == group.factors[1])
        apart = sums(group).replace(f"w {group.factors[1]} [2,8]", f"w {group.factors[1]} [2,9]")
        assert name not in source(apart).code


# -- emulated ------------------------------------------------------------------------------------------


@needs_compiler
@both_targets
@each_integer
def test_integers_wrap_and_never_saturate(group: Group, target: Target) -> None:
    """To the bit, at the ends of the ranges."""
    program = parse(sums(group), target.dialect)
    made = compiled(program, target=target)
    rng, inputs = np.random.default_rng(0), {}
    for name in program.inputs:
        buffer = program.buffer_of[name]
        ends = np.iinfo(CARRIER[buffer.dtype])
        drawn = rng.choice([ends.min, ends.max, ends.max - 1], buffer.shape)
        inputs[name] = drawn.astype(ends.dtype)
    run = ArmRunner(target.capabilities).run(
        made, RunRequest(inputs=inputs, timeout_s=60, executions=("guard_pages",))
    )
    assert isinstance(run, Measurement) and run.outputs is not None, run
    values = {name: array.ravel().tolist() for name, array in inputs.items()}
    meant = interpret(program, values, ROUNDING, target.dialect)
    assert numbers(run.outputs["y"], group.total).ravel().tolist() == meant["y"]


#: An instruction as the assembler has it, and as this processor's emulator knows it.
_INSTRUCTIONS = {
    "usdot %0.4s, %1.16b, %2.16b": 0x4E809C00,
    "usdot %0.2s, %1.8b, %2.8b": 0x0E809C00,
    "smmla %0.4s, %1.16b, %2.16b": 0x4E80A400,
    "ummla %0.4s, %1.16b, %2.16b": 0x6E80A400,
    "usmmla %0.4s, %1.16b, %2.16b": 0x4E80AC00,
    "bfdot %0.4s, %1.8h, %2.8h": 0x6E40FC00,
    "bfdot %0.2s, %1.4h, %2.4h": 0x2E40FC00,
    "bfmmla %0.4s, %1.8h, %2.8h": 0x6E40EC00,
}
_PROGRAM = """#include <arm_neon.h>
#include <stdio.h>
int main(void)
{
    FILE *in = fopen("in", "rb"), *out = fopen("out", "wb");
    uint8x16_t v[3];
    while (fread(v, sizeof v, 1, in) == 1) {
        uint8x16_t sum;
%s    }
    return fclose(out);
}
"""


def operands(count: int) -> npt.NDArray[np.uint8]:
    """Sums and factors: any bits; numbers of bf16 of one size, which cancel; special ones."""
    rng = np.random.default_rng(1)
    anything = rng.integers(0, 256, (count, 3, 16), dtype=np.uint8)
    near = rng.integers(0, 1 << 16, (count, 3, 8), dtype=np.uint16)
    middle = rng.integers(110, 145, (count, 3, 1))
    exponents = np.clip(middle + rng.integers(-9, 10, near.shape), 0, 255).astype(np.uint16) << 7
    near = near & 0x807F | exponents
    small = rng.integers(0, 1 << 16, near.shape, dtype=np.uint16) & 0x80FF | rng.choice(
        np.array([0, 0x0100, 0x1E00, 0x1F00, 0x2000], np.uint16), near.shape
    )
    special = np.array(
        [0, 0x8000, 0x7F80, 0xFF80, 0x7FC0, 0x7F7F, 0xFF7F, 1, 0x0080, 0x8080, 0x3F80], np.uint16
    )
    found = np.concatenate([near, small, rng.choice(special, near.shape)])
    # The sum is a number of f32: its lower half may be anything.
    mixed = found.copy()
    mixed[:, 0, ::2] = rng.integers(0, 1 << 16, (len(found), 4), dtype=np.uint16)
    return np.concatenate([anything, mixed.view(np.uint8), found.view(np.uint8)])


@needs_qemu
def test_results_are_those_of_another_emulator(tmp_path: Path) -> None:
    """For each instruction that this one computes itself, bit by bit."""
    given = operands(400)
    (tmp_path / "in").write_bytes(given.tobytes())
    lines = "".join(
        f'        sum = v[0];\n        __asm__("{text}" : "+w"(sum) : "w"(v[1]), "w"(v[2]));\n'
        "        fwrite(&sum, sizeof sum, 1, out);\n"
        for text in _INSTRUCTIONS
    )
    (tmp_path / "k.c").write_text(_PROGRAM % lines)
    command = [crosstools.GNU, "-O1", "-march=armv8.6-a", "k.c", "-o", "k"]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=120)
    subprocess.run([*QEMU_COMMAND, "./k"], cwd=tmp_path, check=True, timeout=60)
    theirs = np.fromfile(tmp_path / "out", np.uint8).reshape(len(given), len(_INSTRUCTIONS), 16)
    for k, (text, word) in enumerate(_INSTRUCTIONS.items()):
        assert newer.is_newer(word), text
        for parts, expected in zip(given, theirs[:, k], strict=True):
            values = [int.from_bytes(part.tobytes(), "little") for part in parts]
            found = newer.computed(word, *values).to_bytes(16, "little")
            assert found == expected.tobytes(), (text, [f"{v:032x}" for v in values])


def test_sums_are_rounded_to_odd() -> None:
    """The neighbour whose last digit is 1 is taken, unless the sum is a number; small ones vanish."""
    least = 2.0**-126
    a = (1.0, 1.0, 1.0, -1.0, 1 + 2.0**-23, least * 1.5, 2.0**127 * 1.5, least)
    b = (2.0**-40, -(2.0**-40), 2.0**-23, -(2.0**-40), 2.0**-60, -least, 2.0**127, 0.0)
    expected = [1 + 2.0**-23, 1 - 2.0**-24, 1 + 2.0**-23, -1 - 2.0**-23, 1 + 2.0**-23, 0, np.inf, least]
    assert [newer.rounded_sum(*pair) for pair in zip(a, b, strict=True)] == expected


@needs_compiler
def test_a_kernel_asks_for_the_instructions_that_it_uses() -> None:
    for group in GROUPS:
        code = source(sums(group)).code
        asked = [
            name
            for name in ("dot_products", "matrices_of_bytes", "sums_of_bf16")
            if f"pd_has_{name}()" in code
        ]
        wanted = "sums_of_bf16" if group.total == "f32" else "dot_products"
        mixed = group.tile or group.factors[0] != group.factors[1]
        assert asked == ["matrices_of_bytes" if mixed and group.total != "f32" else wanted]
        assert newer.is_in(read(compiled(sums(group)).content)) == (asked != ["dot_products"])


# -- proved --------------------------------------------------------------------------------------------


def annotated(group: Group) -> Trace:
    """The plain sums with the suffixes as moves."""
    play = Play(parse(sums(group, False, "stack"), TARGET.dialect), LOSSY)
    inner = next(scope for scope in play.innermost() if scope.leaves[0].statement.accumulate)
    around = [scope.id for scope in play.around(inner.id)]
    assert play.annotate(inner.id, "d")
    assert play.annotate(around[-1], "l")
    assert play.annotate(around[-2], "l") == bool(group.tile)
    return play.trace


@pytest.mark.parametrize("group", GROUPS, ids=lambda g: f"{'_'.join(g.factors)}_{g.total}_{g.size}")
def test_moves_lead_there_and_are_proved(group: Group) -> None:
    trace = annotated(group)
    assert parse(sums(group, True, "stack"), TARGET.dialect).text == trace.program.text
    assert trace.laws == (frozenset((FLUSHED, TO_ODD)) if group.rounds_to_odd else frozenset())
    whole = Kind.EXACT if group.total in INTEGER_DTYPES else Kind.REASSOCIATES
    assert trace.kind == (Kind.CHANGES_PRECISION if group.rounds_to_odd else whole)
    report = verify_dependence_trace(trace, LOSSY)
    assert report, report.problem
    assert verify_exact_trace(trace, TARGET.dialect, models=1).ok


@each_bf16
def test_the_dependence_leg_refuses_a_rounding_that_is_not_declared(group: Group) -> None:
    old, new = (parse(sums(group, known, "stack"), TARGET.dialect) for known in (False, True))
    for laws in ((), (FLUSHED,), (TO_ODD,)):
        silent = verify_dependence(old, new, {}, TARGET.dialect, Kind.CHANGES_PRECISION, frozenset(laws))
        assert "a law that was not declared" in silent.problem
    both = frozenset((FLUSHED, TO_ODD))
    assert verify_dependence(old, new, {}, TARGET.dialect, Kind.CHANGES_PRECISION, both).ok


@needs_compiler
@each_bf16
def test_what_is_lost_is_in_the_bound_only_where_it_happens(group: Group) -> None:
    """The same code is refused as a sum that keeps small numbers."""
    program = parse(sums(group), TARGET.dialect)
    runner = PLUGINS.runner(TARGET)
    artifact = compiled(program)
    keeps = {n: replace(s, groups=()) for n, s in TARGET.dialect.suffixes.items()}
    for dialect in (TARGET.dialect, replace(TARGET.dialect, suffixes=keeps)):
        report = verify_numeric(program, program, artifact, runner, {}, dialect, laws=[FLUSHED, TO_ODD])
        assert report.ok == (dialect is TARGET.dialect), report.problem


def test_sums_that_are_rounded_to_odd_have_twice_the_bound() -> None:
    """Random factors: the largest error in units of the bound without it is above 1 somewhere."""
    rng = np.random.default_rng(3)
    worst = 0.0
    for _ in range(300):
        a, b = ((rng.integers(0x3F80, 0x4000, 8).astype(np.uint32) << 16).view(np.float32) for _ in "ab")
        total = np.full(4, rng.uniform(1, 2), np.float32)
        parts = [total.tobytes(), *[(x.view(np.uint32) >> 16).astype("<u2").tobytes() for x in (a, b)]]
        found = newer.computed(0x6E40FC00, *[int.from_bytes(p, "little") for p in parts])
        got = np.frombuffer(found.to_bytes(16, "little"), "<f4").astype(np.float64)
        pairs = (a.astype(np.float64) * b).reshape(4, 2).sum(1)
        error = np.abs(got - (total.astype(np.float64) + pairs))
        worst = max(worst, float((error / (2.0**-24 * (total + pairs))).max()))
    assert 1 < worst < 2


# -- games ---------------------------------------------------------------------------------------------


def product(group: Group, rows: int = 32, columns: int = 16, batch: int = 0, after: str = "") -> str:
    """A product of matrices, or of ``batch`` pairs of them."""
    one, other, total = *group.factors, group.total
    steps, first = 2 * group.size, f"{batch} " if batch else ""
    shape, at = (f"{batch},", "{0},") if batch else ("", "")
    i, j, k = (f"{{{level + bool(batch)}}}" for level in range(3))
    done = f"| y[{at}{i},{j}] = {after}\n" if after else ""
    return f"""kernel product(x, w) -> y
x {one} [{shape}{rows},{steps}] heap
w {other} [{shape}{steps},{columns}] heap
y {total} [{shape}{rows},{columns}] heap

{first}{rows} {columns}
| y[{at}{i},{j}] = 0
| {steps} y[{at}{i},{j}] += {total}(x[{at}{i},{k}]) * {total}(w[{at}{k},{j}])
{done}"""


def games(text: str, most: Kind = Kind.CHANGES_PRECISION) -> tuple[Trace, ...]:
    return planner.plan(parse(text, TARGET.dialect), replace(RULES, most=most), TARGET).games


@pytest.mark.parametrize(
    "group", [g for g in GROUPS if g.tile], ids=lambda g: f"{'_'.join(g.factors)}_{g.total}"
)
def test_the_expert_multiplies_small_matrices_and_packs_both_operands(group: Group) -> None:
    trace = games(product(group))[0]
    text = trace.program.text
    assert f"2:l 2:l {group.size}:d" in text and "x_r" in text and "w_r" in text and " reg\n" in text
    assert trace.laws == (frozenset((FLUSHED, TO_ODD)) if group.rounds_to_odd else frozenset())
    report = verify_dependence_trace(trace, LOSSY)
    assert report, report.problem
    assert verify_exact_trace(trace, TARGET.dialect, models=1).ok
    assert "pd_tile_" in source(trace.program).code


def test_bf16_is_rounded_to_odd_where_precision_may_be_lost_only() -> None:
    [group] = [g for g in OF_BF16 if g.tile]
    assert all(":d" not in trace.program.text for trace in games(product(group), Kind.DECLARED_LAW))


def test_small_matrices_need_whole_tiles() -> None:
    """Odd rows take sums in lanes, and so do products with too few rows to pack for."""
    [group] = [g for g in OF_BF16 if g.tile]
    for rows in (31, 2):
        texts = [trace.program.text for trace in games(product(group, rows=rows))]
        assert not any("2:l 2:l" in text for text in texts)
        assert rows == 2 or any("4:l 2:d" in text for text in texts)


@needs_compiler
@pytest.mark.parametrize("shape", ["plain", "batch", "after"])
def test_such_products_are_right_on_all_inputs(shape: str) -> None:
    """Bytes with and without a sign, and bf16 with its bound."""
    more = {"plain": {}, "batch": {"batch": 3}, "after": {"after": "max(y[{0},{1}], 0)"}}[shape]
    mixed = next(g for g in INTEGERS if g.tile and g.factors[0] != g.factors[1])
    [short] = [g for g in OF_BF16 if g.tile]
    traces = [games(product(group, 8, 8, **more))[0] for group in (mixed, short)]
    assert all("2:l 2:l" in trace.program.text for trace in traces)
    assert NumericLeg(PLUGINS, TARGET)(traces, False) == ["", ""]

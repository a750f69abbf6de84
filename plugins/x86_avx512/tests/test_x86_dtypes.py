"""Vectors of every dtype give what the interpreter gives, to the bit, and touch no other memory.

Most of them are one text for all instruction sets; AVX2 runs the tests of what its header replaces.
"""

from __future__ import annotations

import random
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from math import inf, nan
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from x86_support import PLUGINS, capabilities, generate, needs

from perfdojo_sdk.codegen.quotients import division
from perfdojo_sdk.core.domains import ROUNDING, rounded
from perfdojo_sdk.core.dtypes import (
    BYTES,
    DTYPES,
    FLOAT_DTYPES,
    INTEGER_DTYPES,
    UNCOMPUTED_DTYPES,
    converts,
    integer_bounds,
    wrap,
)
from perfdojo_sdk.core.interpreter import interpret
from perfdojo_sdk.core.operations import OPERATIONS
from perfdojo_sdk.core.text import parse
from perfdojo_sdk.hookspecs.types import Artifact, Measurement, RunRequest
from perfdojo_sdk.measure.kernel_calls import CARRIER, carry, numbers
from perfdojo_sdk.measure.native_runner import NativeRunner
from perfdojo_sdk.measure.toolchain import Toolchain
from perfdojo_sdk.search.play import Play
from perfdojo_sdk.testing.numeric_leg import NumericLeg

TARGETS = ("x86_avx512", "x86_avx2")
#: Dtypes of arrays that callers pass.
INTERFACE = tuple(dtype for dtype in DTYPES if dtype != "tf32")
CELLS = 80
"""Elements of each input, more than any vector has lanes."""


def drawn(dtype: str, seed: int) -> list[float | int]:
    """Values of a dtype: its corners, and random ones of all magnitudes."""
    rng = random.Random(f"{dtype} {seed}")
    if dtype in FLOAT_DTYPES:
        small, large = [0.0, -0.0, 1.0, -1.5, 2.5, 0.1, 1e-7, 3e-8], [127.5, -129.0, 65504.0, 7e4, 3e38]
        ends = [2.0**31, -(2.0**31), 2.0**31 - 128, -(2.0**31) - 256]
        corners = [*small, *large, *ends, inf, -inf, nan]
        found = [rng.choice(corners) for _ in range(CELLS // 2)]
        found += [rng.uniform(-2, 2) * 10.0 ** rng.randint(-6, 20) for _ in range(CELLS // 2)]
        return [rounded(value, dtype) for value in rng.sample(found, CELLS)]
    low, high = integer_bounds(dtype)
    corners = [low, high, 0, 1, high // 2, low // 2 + 1]
    return [rng.choice(corners) if rng.random() < 0.4 else rng.randint(low, high) for _ in range(CELLS)]


def carried(values: list[float], dtype: str) -> np.ndarray[Any, Any]:
    array = np.empty(len(values), CARRIER[dtype])
    carry(np.array(values, np.float32 if dtype == "bf16" else array.dtype), array, dtype)
    return array


class Case:
    """One program of many statements, each with an output of its own."""

    def __init__(self) -> None:
        self.arrays: dict[str, tuple[str, int]] = {}
        self.outputs: list[str] = []
        self.lines: list[str] = []

    def read(self, name: str, dtype: str, at: str = "{0}") -> str:
        self.arrays[f"{name}_{dtype}"] = (dtype, CELLS)
        return f"{name}_{dtype}[{at}]"

    def result(self, dtype: str, cells: int) -> str:
        name = f"y{len(self.outputs)}"
        self.arrays[name] = (dtype, cells)
        self.outputs.append(name)
        return name

    def lanes(self, dtype: str, value: str, count: int, suffix: str = "v") -> None:
        self.lines.append(f"{count}:{suffix} {self.result(dtype, count)}[{{0}}] = {value}")

    @property
    def text(self) -> str:
        inputs = [name for name in self.arrays if name not in self.outputs]
        head = f"kernel k({', '.join(inputs)}) -> {', '.join(self.outputs)}"
        declared = [f"{name} {dtype} [{cells}] heap" for name, (dtype, cells) in self.arrays.items()]
        return "\n".join([head, *declared, "", *self.lines, ""])

    def check(self, target: str, scalar: int = 0) -> str:
        """Compile, run between guard pages, compare; ``scalar``: the lines that no vector computes."""
        needs(target)
        caps = capabilities(target)
        program = parse(self.text, caps.dialect())
        source = generate(self.text, target, "k")
        flags = [flag for flag in caps.compiler_flags if not flag.startswith("-O")]
        runner = NativeRunner(("-O1", *flags))
        artifact = runner.compile(source)
        assert isinstance(artifact, Artifact), artifact
        values = {n: drawn(self.arrays[n][0], ord(n[0]))[: self.arrays[n][1]] for n in program.inputs}
        for name in values:
            if name.startswith("n_"):  # counts of shifts
                values[name] = [v % (8 * BYTES[self.arrays[name][0]]) for v in values[name]]
        given = {name: carried(v, self.arrays[name][0]) for name, v in values.items()}
        run = runner.run(artifact, RunRequest(inputs=given, executions=("guard_pages",)))
        assert isinstance(run, Measurement) and run.outputs is not None, run
        expected = interpret(program, values, ROUNDING, caps.dialect())
        for name, line in zip(self.outputs, self.lines, strict=True):
            got = numbers(run.outputs[name], self.arrays[name][0]).ravel().tolist()
            pairs = enumerate(zip(got, expected[name], strict=True))
            differ = [(k, a, b) for k, (a, b) in pairs if not same(a, b)]
            assert not differ, f"{line}: (element, compiled, meant) {differ[:3]}"
        assert source.code.count("pd_lanes[") == 0 or scalar, re.findall(r".*pd_lanes\[.*", source.code)[:2]
        return source.code


def same(a: float, b: float) -> bool:
    return (a == b and str(a)[0] == str(b)[0]) or (a != a and b != b)


def counts(target: str, *dtypes: str) -> Iterator[int]:
    """A whole vector, and one with a masked tail."""
    most = min(capabilities(target).lanes[dtype] for dtype in dtypes)
    yield most
    yield max(2, most * 3 // 4 - 1)


@pytest.mark.parametrize("target", TARGETS[:1])
def test_operations_on_integers_and_bools(target: str) -> None:
    case = Case()
    for dtype in (*INTEGER_DTYPES, "bool"):
        a, b = case.read("a", dtype, "{0}+1"), case.read("b", dtype)
        for count in counts(target, dtype):
            for name, meaning in OPERATIONS.items():
                if dtype not in meaning.dtypes or name in ("div", "rem", "select"):
                    continue
                if name in ("shl", "shr"):
                    case.lanes(dtype, f"{name}({a}, {case.read('n', dtype)})", count)
                    continue
                value = f"{name}({a})" if meaning.arity == 1 else f"{name}({a}, {b})"
                if meaning.infix:
                    value = f"{a} {meaning.infix[0]} {b}"
                if name == "neg":
                    value = f"-{a}"
                case.lanes("bool" if meaning.compares else dtype, value, count)
            chosen = f"select({case.read('c', 'bool')}, {a}, {b})"
            case.lanes(dtype, chosen, count)
            if dtype != "bool":
                case.lanes(dtype, f"{a} - {{0}} + 3", count)
    case.check(target)


@pytest.mark.parametrize("target", TARGETS)
def test_operations_on_floats(target: str) -> None:
    case = Case()
    for dtype in ("f64", "f32", "f16", "bf16"):
        a, b = case.read("a", dtype, "{0}+1"), case.read("b", dtype)
        for count in counts(target, dtype):
            for value in (
                *(f"{a} {sign} {b}" for sign in "+-*/"), *(f"{name}({a}, {b})" for name in ("max", "min")),
                f"max({a}, 0.5)", f"min(2, {b})", f"-{a}", f"abs({a})", f"sqrt({a})", f"floor({a})",
                f"ceil({a})", f"round({a})", f"trunc({a})", f"select({a} < {b}, {b}, {a} * 2)",
                f"select(and({a} >= 1, not({case.read('c', 'bool')})), {a}, {{0}})",
            ):  # fmt: skip
                case.lanes(dtype, value, count)
            for sign in ("<", "<=", ">", ">=", "==", "!="):
                case.lanes("bool", f"{a} {sign} {b}", count)
    # An operation on f16 or bf16 is rounded before the next one begins.
    for dtype in ("f16", "bf16"):
        a, b = case.read("a", dtype), case.read("b", dtype)
        case.lanes(dtype, f"({a} * {b} + {a}) * {b} - {b}", 8)
    case.check(target)


@pytest.mark.parametrize("target", TARGETS)
def test_lanes_gather_every_dtype(target: str) -> None:
    case = Case()
    for dtype in INTERFACE:
        for count in counts(target, dtype):
            step = (CELLS - 1) // (count - 1)
            chosen = case.read("a", dtype, f"clamp({case.read('k', 'i32')}, 0, {CELLS - 1})")
            for value in (case.read("a", dtype, f"{{0}}*{step}"), case.read("a", dtype, "79-{0}"), chosen):
                case.lanes(dtype, value, count, "a")
            far = case.read("a", dtype, f"clamp({case.read('k', 'i64')} + 3*{{0}}, 2, {CELLS - 1})-2")
            if dtype in ("f64", "f32", "f16", "bf16", "i32"):
                other = case.read("a", dtype, "79-{0}")
                for value in (f"max({chosen}, {other})", f"min({other}, 2)", f"-{chosen}", f"abs({chosen})"):
                    case.lanes(dtype, value, count, "a")
                case.lanes(
                    "f64" if dtype == "f32" else "f32",
                    f"{'f64' if dtype == 'f32' else 'f32'}({other})",
                    count // 2,
                    "a",
                )
            if dtype not in UNCOMPUTED_DTYPES:
                far = f"select({case.read('c', 'bool')}, {far}, {chosen})"
            case.lanes(dtype, far, count, "a")
    case.check(target)


@pytest.mark.parametrize("target", TARGETS)
def test_conversions_between_all_dtypes(target: str) -> None:
    case = Case()
    for source in INTERFACE:
        for into in INTERFACE:
            # Most of it is one text for all instruction sets.
            own = "f16" in (source, into) or (source, into) in (("f32", "f64"), ("i32", "f64"))
            if (
                source != into
                and converts(source, into)
                and (target == TARGETS[0] or own or len(case.lines) % 3 == 0)
            ):
                whole, tail = counts(target, source, into)
                count = tail if (INTERFACE.index(source) + INTERFACE.index(into)) % 5 == 0 else whole
                case.lanes(into, f"{into}({case.read('a', source, '{0}+2')})", count)
    # Close to the middle between two numbers of bf16, where the nearest f32 is that middle.
    for source, first in (("u32", 2**32 - 2**23 - 100), ("i32", 2**31 - 2**22 - 100), ("i64", 2**62 - 2**53)):
        value = f"{case.read('a', source, '0')} * 0 + {first} + index({{0}}*47)"
        case.lanes("bf16", f"bf16({value})", 4)
    for source in ("f64", "bf16", "i64", "i8"):
        case.lanes("f32", f"f32(tf32({case.read('a', source)}))", 4)
    case.check(target)


@pytest.mark.parametrize("target", TARGETS[:1])
def test_mixed_widths_and_masks_of_several_widths(target: str) -> None:
    case = Case()
    a8, a16, a64 = case.read("a", "i8"), case.read("a", "i16"), case.read("a", "f64")
    b32, c, half = case.read("b", "f32"), case.read("c", "bool"), case.read("a", "bf16")
    for count in counts(target, "f64"):
        case.lanes("f64", f"select({a8} < {{0}} - 2, {a64}, f64({b32}))", count)
        case.lanes("bool", f"and({a64} < 1, or({a8} == 3, {c}))", count)
        case.lanes("bool", f"({b32} < 1) == ({a16} < 0)", count)
        case.lanes("bool", f"select({a64} > 0, {c}, {a16} < 0)", count)
        case.lanes("i64", f"i64({a8} < 4) + i64({half})", count)
        case.lanes("f32", f"f32(i32({a16}) * i32({a8})) - f32({half} < 1)", count)
        case.lanes("f32", "f32(index({0}*2+1))", count)
        case.lanes("i32", f"i32({case.read('b', 'i8', '4')}) * i32({a8})", count)
    case.check(target)


def horizontals(target: str) -> Case:
    case = Case()
    for dtype in ("f64", "f32", *INTEGER_DTYPES):
        for count in counts(target, dtype):
            for sign in ("+=", "*=", "max=", "min="):
                out = case.result(dtype, 1)
                value = case.read("s", dtype, "{0}")
                case.lines.append(f"{out}[0] = 1\n{count}:v {out}[0] {sign} {value}")
    for dtype in ("f16", "bf16", "bool"):
        for count in counts(target, dtype):
            for sign in ("max=", "min="):
                out = case.result(dtype, 1)
                case.lines.append(f"{out}[0] = 1\n{count}:v {out}[0] {sign} {case.read('s', dtype, '{0}')}")
    return case


@pytest.mark.parametrize("target", TARGETS[:1])
def test_horizontal_reductions(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = horizontals(target)
    # Small whole numbers, whose sums and products are exact in any order.

    def small(dtype: str, seed: int) -> list[float | int]:
        return [k * 7 % 2 if dtype == "bool" else 1 + (k * 7) % 3 for k in range(CELLS)]

    monkeypatch.setitem(globals(), "drawn", small)
    case.check(target)


@pytest.mark.parametrize("target", TARGETS)
def test_lanes_with_conditions_of_their_own(target: str) -> None:
    case = Case()
    for dtype in ("f64", "f32", "i16", "i8", "bf16", "bool"):
        lanes = min(capabilities(target).lanes[dtype], 16)
        size = 2 * lanes + 3  # the last vector of three is cut off
        case.arrays["edge_" + dtype] = (dtype, size)
        out = case.result(dtype, size)
        flat = f"{{0}}*{lanes}+{{1}}"
        case.lines.append(
            f"{size} {out}[{{0}}] = {'0' if dtype == 'bool' else '1'}\n"
            f"3 {lanes}:v {out}[{flat}] = edge_{dtype}[{flat}] if {flat} < {size}"
        )
        out = case.result(dtype, size)
        case.lines.append(
            f"{size} {out}[{{0}}] = edge_{dtype}[{{0}}]\n"
            f"3 {lanes}:v {out}[{flat}-3] = edge_{dtype}[{flat}] if {flat} >= 3 and {flat} < {size}"
        )
        if dtype in ("bool", "bf16"):
            continue
        out = case.result(dtype, 3)
        case.lines.append(
            f"3 {out}[{{0}}] = 7\n"
            f"3 {lanes}:v {out}[{{0}}] max= edge_{dtype}[{flat}-2] if {flat} >= 2 and {flat} < {lanes + 1}"
        )
        out = case.result(dtype, size)
        case.lines.append(
            f"{size} {out}[{{0}}] = 2\n"
            f"2 {lanes}:v {out}[{{1}}] *= edge_{dtype}[{{1}}+1] if {{0}} < 1 and 2*{{1}} <= 5 and {{1}} >= 1"
        )
    code = case.check(target)
    assert "pd_low_lane(" in code and "pd_high_lane(" in code and "pd_store_some_i8x" in code


#: Dtypes of the factors and of the sums of a product of matrices -> a conversion.
PRODUCTS = {
    ("i8", "i32"): "i32({})",
    ("f64", "f64"): "{}",
    ("bf16", "f32"): "f32({})",
    ("u8", "u64"): "u64({})",
}


@pytest.mark.parametrize("target", TARGETS[:1])
def test_products_of_matrices_are_played_by_hand_to_vectors_in_registers(target: str) -> None:
    """Fission, interchange, a vector, named cells: as for f32, with the lanes of the widest dtype."""
    needs(target)
    found = PLUGINS.target(target)
    rules, traces, codes = PLUGINS.rules(found), [], []
    for (factor, total), convert in PRODUCTS.items():
        lanes = min(found.dialect.lanes[factor], found.dialect.lanes[total])
        one, other = map(convert.format, ("a[{0},{2}]", "b[{2},{1}]"))
        text = f"""kernel product(a, b) -> c
a {factor} [3,6] heap
b {factor} [6,{2 * lanes}] heap
c {total} [3,{2 * lanes}] heap

3 {2 * lanes}
| c[{{0}},{{1}}] = 0
| 6 c[{{0}},{{1}}] += {one} * {other}
"""
        play = Play(parse(text, found.dialect), rules)
        play.must("fission_scope", "s2")
        for scope in ("s1", "s1.s2"):
            play.must("split_scope", scope, factor=lanes)
        play.must("swap_scopes", "s1.s2.i")
        for scope in ("s1.i", "s1.s2.i"):
            play.must("annotate_scope", scope, suffix="v")
        play.must("join_scopes", "s1.o")
        play.must("stage_accumulator", "s2", array="c")
        for scope in ("c_a.in.0", "c_a.out.0"):
            play.must("annotate_scope", scope, suffix="v")
        for dim in (0, 1):
            play.must("reuse_dims", "c_a", dim=dim)
        play.must("set_location", "c_a", location="reg")
        traces.append(play.trace)
        code = PLUGINS.code_generator(found).generate(play.program, "k").code
        kind = "f32v" if total == "f32" else f"{total}x{lanes}"
        assert f"pd_{kind} c_a = " in code and "pd_lanes[" not in code
        codes.append(re.findall(r"c_a = .*c_a.*;", code))
    assert all(len(code) == 1 for code in codes), codes
    assert NumericLeg(PLUGINS, found)(traces, optimised=False) == [""] * len(traces)


@pytest.mark.parametrize("target", TARGETS[:1])
def test_what_no_vector_computes_is_done_lane_by_lane(target: str) -> None:
    case = Case()
    a = case.read("a", "i32")
    out = case.result("i32", 4)
    case.lines.append(f"4 {out}[{{0}}] = 5\n4:v {out}[{{0}}] = {a} / 3 if ({{0}}+1)//2 >= 1")
    out = case.result("bf16", 1)
    case.lines.append(f"{out}[0] = 1\n4:v {out}[0] += {case.read('a', 'bf16', '{0}+40')} if {{0}} < 3")
    code = case.check(target, scalar=1)
    assert code.count("pd_lanes[0] =") == 0 and code.count("y1[0] = pd_bf16_from") == 3


#: Rows and columns: more than a cache line both ways with odd rests, whole squares, less than a square, one.
TURNED = ((130, 77), (64, 32), (5, 3), (3, 35), (9, 1))

#: Dtypes of which all of these are turned; of the others one, since only bits are moved.
ALL_TURNED = ("u8", "u16", "u32", "u64")


@pytest.mark.parametrize("target", TARGETS)
def test_columns_of_every_dtype_become_rows(target: str) -> None:
    """Into parts of larger arrays, at any alignment; rows of groups are interleaved."""
    needs(target)
    caps, rng = capabilities(target), np.random.default_rng(5)
    declared, given, lines, meant = list[str](), {}, list[str](), {}

    def turn(dtype: str, rows: int, columns: int, room: int) -> str:
        """A copy with ``room`` more cells in a row of what is written; the call that it becomes."""
        x, y = f"x{len(meant)}", f"y{len(meant)}"
        declared.extend(
            [f"{x} {dtype} [{columns},{rows + 1}] heap", f"{y} {dtype} [{rows},{columns + room}] heap"]
        )
        lines.append(f"{rows} {columns + room} {y}[{{0}},{{1}}] = {x}[0,0]")
        lines.append(f"{rows}:t {columns} {y}[{{0}},{{1}}+{room}] = {x}[{{1}},{{0}}+1]")
        bits = rng.integers(0, 2 if dtype == "bool" else 256, (columns, (rows + 1) * BYTES[dtype]), np.uint8)
        given[x] = bits.view(CARRIER[dtype])
        meant[y] = given[x][:, 1:].T
        return f"pd_{'transpose' if room else 'interleave'}_{8 * BYTES[dtype]}("

    calls = [turn(dtype, 21, 18, 3) for dtype in INTERFACE if dtype not in ALL_TURNED]
    calls += [turn(dtype, *sizes, 3) for dtype in ALL_TURNED for sizes in TURNED]
    calls += [turn("i8", rows, 4, 0) for rows in (8, 16, 37)] + [
        turn("bf16", rows, 2, 0) for rows in (8, 16, 37)
    ]
    text = "\n".join([f"kernel k({', '.join(given)}) -> {', '.join(meant)}", *declared, "", *lines, ""])
    source = generate(text, target, "k")
    assert re.findall(r"^ +(pd_[a-z]+_\d+\()", source.code, re.MULTILINE) == calls
    flags = [flag for flag in caps.compiler_flags if not flag.startswith("-O")]
    runner = NativeRunner(("-O1", *flags))
    artifact = runner.compile(source)
    assert isinstance(artifact, Artifact), artifact
    run = runner.run(artifact, RunRequest(inputs=given, executions=("guard_pages",)))
    assert isinstance(run, Measurement) and run.outputs is not None, run
    for name, columns in meant.items():
        made = run.outputs[name]
        assert made[:, -columns.shape[1] :].tobytes() == columns.tobytes(), text
        room = made[:, : -columns.shape[1]]
        assert room.tobytes() == given[f"x{name[1:]}"][:1, :1].tobytes() * room.size, text


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("dtype", "shuffles"), [("i8", "bw"), ("f16", "wd"), ("f32", "dq"), ("i64", "qdq")])
def test_columns_become_rows_by_shuffles_alone(
    target: str, dtype: str, shuffles: str, tmp_path: Path
) -> None:
    """The instructions of whole squares; compilers make them even for a processor that they do not run on."""
    declared = f"x {dtype} [64,128] heap\ny {dtype} [128,64] heap"
    source = generate(
        f"kernel k(x) -> y\n{declared}\n\n128:t 64 y[{{0}},{{1}}] = x[{{1}},{{0}}]\n", target, "k"
    )
    for name, text in {"k.c": source.code, **source.support}.items():
        (tmp_path / name).write_text(text)
    flags = Toolchain(("gcc",), "gcc").spelled(capabilities(target).compiler_flags)
    subprocess.run(["gcc", *flags, "-S", "k.c"], cwd=tmp_path, check=True, timeout=60)
    assembly = (tmp_path / "k.s").read_text()
    count = Counter(re.findall(r"^\tv(p\w+)\t", assembly, re.MULTILINE))
    assert set(count) == {f"punpckl{shuffles}", f"punpckh{shuffles}"} and len({*count.values()}) == 1
    register = "zmm" if target == "x86_avx512" else "ymm"
    assert len(re.findall(rf"vmovdqu\d*\t%{register}\d+, -?\d*\(", assembly)) >= 16 // BYTES[dtype]


def test_copies_stream_and_stay_in_registers() -> None:
    needs("x86_avx512")
    lines, arrays = [], []
    for dtype in ("f64", "i8", "bf16"):
        lanes = capabilities("x86_avx512").lanes[dtype]
        arrays += [f"x_{dtype} {dtype} [{3 * lanes}] heap", f"t_{dtype} {dtype} [3:N,{lanes}] nt"]
        arrays += [f"r_{dtype} {dtype} [2,{lanes}] reg", f"y_{dtype} {dtype} [{3 * lanes}] heap"]
        arrays += [f"z_{dtype} {dtype} [{2 * lanes}] heap"]
        lines += [
            f"3\n| {lanes}:v t_{dtype}[{{0}},{{1}}] = x_{dtype}[{{0}}*{lanes}+{{1}}]",
            f"| {lanes}:v y_{dtype}[{{0}}*{lanes}+{{1}}] = t_{dtype}[{{0}},{{1}}]",
            f"2:u {lanes}:v r_{dtype}[{{0}},{{1}}] = x_{dtype}[{{0}}*{lanes}+{{1}}]",
            f"2:u {lanes}:v z_{dtype}[{{0}}*{lanes}+{{1}}] = r_{dtype}[1-{{0}},{{1}}]",
        ]
    names = [f"{{}}_{dtype}" for dtype in ("f64", "i8", "bf16")]
    inputs, outputs = (", ".join(n.format(x) for x in xs for n in names) for xs in ("x", "yz"))
    text = "\n".join([f"kernel k({inputs}) -> {outputs}", *arrays, "", *lines, ""])
    source = generate(text, "x86_avx512", "k")
    runner = NativeRunner(capabilities("x86_avx512").compiler_flags)
    artifact = runner.compile(source)
    assert isinstance(artifact, Artifact), artifact
    given = {}
    for spec in source.inputs:
        bits = np.random.default_rng(0).integers(0, 100, spec.shape)
        given[spec.name] = bits.astype(CARRIER[spec.dtype])
    run = runner.run(artifact, RunRequest(inputs=given))
    assert isinstance(run, Measurement) and run.outputs is not None, run
    for name, array in given.items():
        kind, lanes = name[2:], len(array) // 3
        assert f"pd_stream_{kind}x{lanes}(" in source.code
        assert f"pd_{kind}x{lanes} r_{kind}_1 = {{0}};" in source.code
        np.testing.assert_array_equal(run.outputs[f"y_{kind}"], array)
        turned = np.concatenate([array[lanes : 2 * lanes], array[:lanes]])
        np.testing.assert_array_equal(run.outputs[f"z_{kind}"], turned)
    assert "pd_stream_fence();" in source.code


# -- quotients -------------------------------------------------------------------------------------


def pairs(dtype: str) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Dividends and divisors: of bytes every pair, of others corners, and neighbours of whole multiples."""
    low, high = integer_bounds(dtype)
    rng = random.Random(dtype)
    if BYTES[dtype] == 1:
        found = [(a, b) for a in range(low, high + 1) for b in range(low, high + 1) if b]
    else:
        corners = [c for c in (low, low + 1, -1, 1, 2, 3, high // 2, high - 1, high) if low <= c <= high]
        found = [(a, b) for a in corners for b in corners if b]
        for _ in range(4000):
            b = rng.randint(low, high) >> rng.randrange(8 * BYTES[dtype]) or 1
            a = rng.randint(low, high) // b * b + rng.randint(-1, 1)
            found.append((a if low <= a <= high else high, b))
    return tuple(np.array(part, CARRIER[dtype]) for part in zip(*found, strict=True))  # type: ignore[return-value]


@pytest.mark.parametrize("name", TARGETS)
def test_quotients_and_remainders_of_integers(name: str) -> None:
    """The last vector has fewer lanes; what the others hold may be zero."""
    target, given, meant, declared, lines = PLUGINS.target(name), {}, {}, [], []
    needs(name)
    for dtype in INTEGER_DTYPES:
        a, b = pairs(dtype)
        cells, lanes = len(a), target.dialect.lanes[dtype]
        given |= {f"a_{dtype}": a, f"b_{dtype}": b}
        quotients = np.array([abs(int(x)) // abs(int(y)) for x, y in zip(a, b, strict=True)], object)
        quotients *= np.where((a < 0) == (b < 0), 1, -1)
        rests = a.astype(object) - quotients * b.astype(object)
        for array, values in (("q", quotients), ("r", rests)):
            meant[f"{array}_{dtype}"] = np.array([wrap(int(v), dtype) for v in values], CARRIER[dtype])
        declared += [f"{array}_{dtype} {dtype} [{cells}] heap" for array in "abqr"]
        at, whole = f"{{0}}*{lanes}+{{1}}", cells // lanes * lanes
        for value, array in (("a_D[AT] / b_D[AT]", "q"), ("rem(a_D[AT], b_D[AT])", "r")):
            text = f"{array}_D[AT] = {value}".replace("D", dtype)
            lines.append(f"{cells // lanes} {lanes}:v {text.replace('AT', at)}")
            if cells > whole:
                lines.append(f"{cells - whole}:v {text.replace('AT', f'{{0}}+{whole}')}")
    head = f"kernel k({', '.join(given)}) -> {', '.join(meant)}\n"
    source = generate(head + "\n".join([*declared, "", *lines, ""]), name)
    assert "pd_div_i8x" in source.code and "pd_rem_u32x" in source.code and "pd_div_i64x" in source.code
    runner = NativeRunner(("-O1", *[f for f in capabilities(name).compiler_flags if f.startswith("-m")]))
    made = runner.compile(source)
    assert isinstance(made, Artifact), made
    run = runner.run(made, RunRequest(inputs=given))
    assert isinstance(run, Measurement) and run.outputs is not None, run
    for array, values in meant.items():
        np.testing.assert_array_equal(run.outputs[array], values, array)


def hard_quotients(
    count: int, bits: int, short: int = 0
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Dividends and divisors of up to ``bits`` bits: whole multiples, one more, one less, anything;
    ``short``: so many bits of a divisor are left out."""
    rng, most = np.random.default_rng(bits), np.uint64(2**bits - 1)

    def drawn() -> np.ndarray[Any, Any]:
        return rng.integers(0, most, count, np.uint64, endpoint=True) >> rng.integers(
            0, bits, count, np.uint64
        )

    b = np.maximum(drawn() >> np.uint64(short), 1)
    a = np.minimum(drawn(), most // b) * b
    rests = [np.zeros(count, np.uint64), np.minimum(b - 1, 1), b - 1, drawn() % b]
    return a + np.minimum(np.choose(rng.integers(0, 4, count), rests), most - a), b


@pytest.mark.parametrize("name", TARGETS)
def test_a_million_quotients_of_64_bits(name: str) -> None:
    needs(name)
    # Vectors of small numbers; of any; of divisors below 2^20; of quotients below 2^49.
    parts = [hard_quotients(1 << 18, *bits) for bits in ((52,), (64,), (64, 44))]
    a, b = hard_quotients(1 << 18, 64)
    parts.append((np.minimum(a, (b << np.uint64(48)) - np.uint64(1)), b | np.uint64(1 << 20)))
    a, b = (np.concatenate(part) for part in zip(*parts, strict=True))
    assert len(np.unique(np.frexp(b.astype(float))[1])) >= 64 and (a // b > 2**53).any()
    lanes = PLUGINS.target(name).dialect.lanes["i64"]
    at = f"[{{0}}*{lanes}+{{1}}]"
    lines = [f"{(1 << 20) // lanes} {lanes}:v q_{d}{at} = a_{d}{at} / b_{d}{at}" for d in ("u64", "i64")]
    arrays = [f"{x}_{d} {d} [{1 << 20}] heap" for d in ("u64", "i64") for x in "abq"]
    head = "kernel k(a_u64, b_u64, a_i64, b_i64) -> q_u64, q_i64"
    source = generate("\n".join([head, *arrays, "", *lines, ""]), name)
    runner = NativeRunner(tuple(capabilities(name).compiler_flags))
    made = runner.compile(source)
    assert isinstance(made, Artifact), made
    signed = a.view(np.int64), b.view(np.int64)
    given = {"a_u64": a, "b_u64": b, "a_i64": signed[0], "b_i64": signed[1]}
    run = runner.run(made, RunRequest(inputs=given))
    assert isinstance(run, Measurement) and run.outputs is not None, run
    np.testing.assert_array_equal(run.outputs["q_u64"], a // b)
    sizes = [np.where(x < 0, -x, x).view(np.uint64) for x in signed]
    quotients = (sizes[0] // sizes[1]).view(np.int64)
    meant = np.where((signed[0] < 0) == (signed[1] < 0), quotients, -quotients)
    np.testing.assert_array_equal(run.outputs["q_i64"], meant)


DIVISORS = (1, 2, 3, 7, 10, 641, 1000, 1 << 20, 10**9 + 7, 2**32 - 1, 2**32, 2**32 + 1, 2**62 + 1, 2**63 - 1)


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("dtype", ["i64", "u64"])
def test_division_by_a_number_is_a_product(name: str, dtype: str) -> None:
    """Quotients are truncated towards zero, and remainders are what they leave."""
    needs(name)
    low, high = integer_bounds(dtype)
    divisors = [*DIVISORS, *([-d for d in DIVISORS] + [low] if low else [2**63, 2**63 + 1, high])]
    rng, lanes = random.Random(dtype), PLUGINS.target(name).dialect.lanes[dtype]
    values = [low, low + 1, 0, 1, high - 1, high]
    for divisor in divisors:
        near = rng.randint(low, high) // abs(divisor) * abs(divisor)
        values += [
            v for v in (divisor, divisor - 1, divisor + 1, near, near - 1, near + 1) if low <= v <= high
        ]
    values += [rng.randint(low, high) >> rng.randrange(63) for _ in range(-len(values) % lanes + 64 * lanes)]
    a, at = np.array(values, CARRIER[dtype]), f"{{0}}*{lanes}+{{1}}"
    declared, lines, meant = [f"a {dtype} [{len(a)}] heap"], [], {}
    for k, divisor in enumerate(divisors):
        quotients = [abs(v) // abs(divisor) * (1 if (v < 0) == (divisor < 0) else -1) for v in values]
        rests = [v - q * divisor for v, q in zip(values, quotients, strict=True)]
        for array, text, found in ((f"q{k}", "a[AT] / D", quotients), (f"r{k}", "rem(a[AT], D)", rests)):
            declared.append(f"{array} {dtype} [{len(a)}] heap")
            value = text.replace("AT", at).replace("D", f"({divisor})")
            lines.append(f"{len(a) // lanes} {lanes}:v {array}[{at}] = {value}")
            meant[array] = np.array([wrap(v, dtype) for v in found], CARRIER[dtype])
    source = generate(f"kernel k(a) -> {', '.join(meant)}\n" + "\n".join([*declared, "", *lines, ""]), name)
    assert source.code.count("pd_div_by_") == source.code.count("pd_rem_by_") == len(divisors)
    runner = NativeRunner(("-O1", *[f for f in capabilities(name).compiler_flags if f.startswith("-m")]))
    made = runner.compile(source)
    assert isinstance(made, Artifact), made
    run = runner.run(made, RunRequest(inputs={"a": a}))
    assert isinstance(run, Measurement) and run.outputs is not None, run
    for array, values_of in meant.items():
        np.testing.assert_array_equal(run.outputs[array], values_of, f"{array} {divisors[int(array[1:])]}")


def test_the_numbers_of_a_division_are_exact() -> None:
    """The dividends that decide: the largest one with each remainder at an end."""
    rng = random.Random(0)
    divisors = [*range(1, 2000), *(2**k + e for k in range(2, 64) for e in (-1, 0, 1)), 2**64 - 1]
    divisors += [rng.getrandbits(rng.randint(1, 64)) or 1 for _ in range(20000)]
    for d in divisors:
        how = division(d)
        assert 0 < how.factor < 2**64
        last = (2**64 - 1) // d * d
        for n in (0, 1, d - 1, d, last, last - 1, 2**64 - 1, 2**63, rng.getrandbits(64)):
            upper = n * how.factor >> 64
            assert (upper + ((n - upper) % 2**64 >> how.first)) % 2**64 >> how.rest == n // d, (n, d)

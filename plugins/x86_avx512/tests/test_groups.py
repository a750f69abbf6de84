"""Sums of products in groups: what one instruction adds up in each lane, and the games that lead there."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from perfdojo_x86_avx512.codegen import X86CodeGenerator
from x86_support import PLUGINS, capabilities, generate, needs

from perfdojo_sdk.core.domains import ROUNDING
from perfdojo_sdk.core.interpreter import interpret
from perfdojo_sdk.core.laws import FACTOR, FLUSHED
from perfdojo_sdk.core.text import parse
from perfdojo_sdk.core.transformation import Kind, Trace
from perfdojo_sdk.experts.cpu import planner
from perfdojo_sdk.hookspecs.types import Artifact, Measurement, RunRequest
from perfdojo_sdk.measure.kernel_calls import CARRIER, numbers
from perfdojo_sdk.measure.machine import machine
from perfdojo_sdk.measure.native_runner import NativeRunner
from perfdojo_sdk.testing.numeric_leg import NumericLeg
from perfdojo_sdk.verify.dependence import verify_dependence, verify_dependence_trace
from perfdojo_sdk.verify.exact import verify_exact_trace
from perfdojo_sdk.verify.numeric import verify_numeric

TARGETS = ("x86_avx512", "x86_avx2")


def product(one: str, other: str, total: str, rows: int = 7, columns: int = 21, steps: int = 12) -> str:
    """A product of matrices of two dtypes, which it adds up in a third."""
    return f"""kernel product(x, w) -> y
x {one} [{rows},{steps}] heap
w {other} [{steps},{columns}] heap
y {total} [{rows},{columns}] heap

{rows} {columns}
| y[{{0}},{{1}}] = 0
| {steps} y[{{0}},{{1}}] += {total}(x[{{0}},{{2}}]) * {total}(w[{{2}},{{1}}])
"""


@cache
def games(text: str, target: str = "x86_avx512", most: Kind = Kind.DECLARED_LAW) -> tuple[Trace, ...]:
    found = PLUGINS.target(target)
    rules = replace(PLUGINS.rules(found), most=most)
    return planner.plan(parse(text, found.dialect), rules, found).games


def needs_flags(target: str, *flags: str) -> None:
    needs(target)
    if lacking := set(flags) - set(machine().flags):
        pytest.skip(f"the processor lacks {', '.join(sorted(lacking))}")


# -- instructions ------------------------------------------------------------------------------------


def sums(target: str) -> tuple[str, list[str]]:
    """A program with every kind of group on whole vectors and on fewer lanes, and its outputs. The factors
    belong to each lane or to all of them; sums are in memory or in registers."""
    caps, declared, lines, outputs, inputs = capabilities(target), [], [], [], []
    for g in caps.dialect().suffixes["d"].groups:
        if g.flushes:
            continue
        whole = caps.lanes[g.total]
        for lanes in (whole, whole // 2, whole - 3):
            for ways in (("{0},{1}", "{1}"), ("{1}", "{0},{1}"), ("{0},{1}", "{0},{1}")):
                n, places = len(outputs), []
                for k, (dtype, at) in enumerate(zip(g.factors, ways, strict=True)):
                    shape = f"{lanes},{g.size}" if "0" in at else f"{g.size}"
                    inputs.append(f"f{n}_{k}")
                    declared.append(f"f{n}_{k} {dtype} [{shape}] heap")
                    places.append(f"{g.total}(f{n}_{k}[{at}])")
                kept = f"acc{n}" if n % 2 else f"y{n}"
                declared += [f"acc{n} {g.total} [{lanes}] reg"] * (n % 2) + [f"y{n} {g.total} [{lanes}] heap"]
                lines.append(f"{lanes}:v {kept}[{{0}}] = {2**31 - 1 - n}")
                lines.append(
                    f"{lanes}:l {g.size}:d {kept}[{{0}}] += {' * '.join(places[:: 1 - n % 3 // 2 * 2])}"
                )
                lines += [f"{lanes}:v y{n}[{{0}}] = acc{n}[{{0}}]"] * (n % 2)
                outputs.append(f"y{n}")
    head = f"kernel sums({', '.join(inputs)}) -> {', '.join(outputs)}"
    return "\n".join([head, *declared, "", *lines, ""]), outputs


@pytest.mark.parametrize("target", TARGETS)
def test_integers_wrap_and_never_saturate(target: str) -> None:
    """To the bit, at the ends of the ranges, with nothing touched beside the arrays."""
    needs_flags(target, *(["avx512_vnni"] if target == "x86_avx512" else []))
    text, outputs = sums(target)
    program, source = parse(text, capabilities(target).dialect()), generate(text, target, "sums")
    assert source.code.count("= pd_group_") + source.code.count(", pd_group_") == len(outputs)
    runner = NativeRunner(("-O1", *capabilities(target).compiler_flags[1:]))
    artifact = runner.compile(source)
    assert isinstance(artifact, Artifact), artifact
    rng = np.random.default_rng(0)
    given = {}
    for name in program.inputs:
        buffer = program.buffer_of[name]
        ends = np.iinfo(CARRIER[buffer.dtype])
        drawn = rng.integers(ends.min, ends.max + 1, buffer.shape)
        given[name] = rng.choice([drawn, np.full(buffer.shape, rng.choice([ends.min, ends.max]))]).astype(
            ends.dtype
        )
    run = runner.run(artifact, RunRequest(given, executions=("guard_pages",)))
    assert isinstance(run, Measurement) and run.outputs is not None, run
    values = {name: array.ravel().tolist() for name, array in given.items()}
    meant = interpret(program, values, ROUNDING, capabilities(target).dialect())
    for name in outputs:
        assert numbers(run.outputs[name], "i32").ravel().tolist() == meant[name], name


def test_what_is_no_such_nest_any_more_is_written_out() -> None:
    """A factor in registers, a group that lies apart, lanes that do: later moves may lead there."""
    head = "kernel k(x, w) -> y\nx u8 [4] heap\nw i8 [16,SHAPE] heap\nr i8 [16,4] reg\ny i32 [16] heap\n\n"
    start = "16:v y[{0}] = 0\n"
    nest = "16:l 4:d y[{0}] += i32(x[{1}]) * i32(w[{0},{1}])\n"
    assert (
        "pd_group"
        in generate(
            (head + start + nest).replace("SHAPE", "4").replace("r i8 [16,4] reg\n", ""), "x86_avx512"
        ).code
    )
    apart = (head + start + nest).replace("SHAPE", "5").replace("r i8 [16,4] reg\n", "")
    named = (
        head.replace("SHAPE", "4") + start + "16:u 4:v r[{0},{1}] = w[{0},{1}]\n" + nest.replace("w[", "r[")
    )
    for text in (apart, named):
        assert "pd_group" not in generate(text, "x86_avx512").code


def test_a_kernel_asks_for_the_instructions_that_it_uses() -> None:
    """And no other kernel does."""
    code = {
        pair: X86CodeGenerator(capabilities("x86_avx512"))
        .generate(games(product(*pair, total), most=most)[0].program, "k")
        .code
        for *pair, total, most in (
            ("u8", "i8", "i32", Kind.DECLARED_LAW),
            ("bf16", "bf16", "f32", Kind.CHANGES_PRECISION),
            ("f32", "f32", "f32", Kind.DECLARED_LAW),
        )
        for pair in [tuple(pair)]
    }
    flags = {pair: re.findall(r"/\* (avx512_\w+) \*/", text) for pair, text in code.items()}
    assert flags == {("u8", "i8"): ["avx512_vnni"], ("bf16", "bf16"): ["avx512_bf16"], ("f32", "f32"): []}


# -- games -------------------------------------------------------------------------------------------

PAIRS = {
    "u8": ("u8", "i8", "i32", "4:d"),
    "i8": ("i8", "i8", "i32", "4:d"),
    "i16": ("i16", "i16", "i32", "2:d"),
    "bf16": ("bf16", "bf16", "f32", "2:d"),
}


@pytest.mark.parametrize("pair", PAIRS)
def test_a_product_uses_the_instruction_and_is_proved(pair: str) -> None:
    one, other, total, words = PAIRS[pair]
    most = Kind.CHANGES_PRECISION if pair == "bf16" else Kind.DECLARED_LAW
    text = product(one, other, total)
    trace = games(text, most=most)[0]
    assert words in trace.program.text and "16:l" in trace.program.text
    assert trace.laws == {"bf16": {FLUSHED}, "i8": {FACTOR}}.get(pair, set())
    target = PLUGINS.target("x86_avx512")
    report = verify_dependence_trace(trace, replace(PLUGINS.rules(target), most=most))
    assert report, report.problem
    assert verify_exact_trace(trace, target.dialect, models=1).ok


def test_compiled_products_are_right_on_all_inputs() -> None:
    """Products of integers; those of bf16 are below."""
    needs_flags("x86_avx512", "avx512_vnni")
    traces = [games(product(*PAIRS[pair][:3], 3, 18, 8))[0] for pair in ("u8", "i8")]
    assert NumericLeg(PLUGINS, PLUGINS.target("x86_avx512"))(traces, False) == ["", ""]


@pytest.mark.parametrize("columns", [4, 5, 7])
def test_fewer_columns_than_lanes_have_groups(columns: int) -> None:
    """Their vectors are not full: no memory behind the last column is read."""
    text = product("u8", "i8", "i32", rows=16, columns=columns, steps=18)
    trace = games(text, "x86_avx2")[0]
    assert f"{columns}:l 2:d" in trace.program.text
    needs("x86_avx2")
    assert NumericLeg(PLUGINS, PLUGINS.target("x86_avx2"))([trace], False) == [""]


def test_an_odd_reduction_has_no_groups() -> None:
    for trace in games(product("u8", "i8", "i32", steps=13)):
        assert ":d" not in trace.program.text


def test_values_that_are_no_products_have_no_groups() -> None:
    """Distances of bytes are converted to the dtype of their sums, not to that of a group's factors."""
    text = product("u8", "u8", "i32").replace("i32(x[{0},{2}]) * i32(w[{2},{1}])", "abs(VALUE)")
    text = text.replace("VALUE", "i32(x[{0},{2}]) - i32(w[{2},{1}])")
    for trace in games(text):
        assert not any(buffer.dtype == "i16" for buffer in trace.program.buffers)


def test_pairs_of_bf16_are_played_where_precision_may_be_lost_only() -> None:
    for trace in games(product("bf16", "bf16", "f32")):
        assert ":d" not in trace.program.text and trace.kind <= Kind.REASSOCIATES


# -- what is declared --------------------------------------------------------------------------------

DOT = """kernel dot(x, w) -> y
x bf16 [2] heap
w bf16 [16,2] heap
y f32 [16] heap

16:v y[{0}] = 0
16SUFFIX 2:d y[{0}] += f32(x[{1}]) * f32(w[{0},{1}])
"""


def test_the_loss_of_small_numbers_is_in_the_bound_only_where_it_happens() -> None:
    """The same code is refused as a sum that keeps small numbers."""
    needs_flags("x86_avx512", "avx512_bf16")
    target = PLUGINS.target("x86_avx512")
    program = parse(DOT.replace("SUFFIX", ":l"), target.dialect)
    runner = replace(PLUGINS.runner(target), forks=True)
    artifact = runner.compile(PLUGINS.code_generator(target).generate(program, "dot"))
    assert isinstance(artifact, Artifact), artifact
    keeps = {n: replace(s, groups=()) for n, s in target.dialect.suffixes.items()}
    for dialect in (target.dialect, replace(target.dialect, suffixes=keeps)):
        report = verify_numeric(program, program, artifact, runner, {}, dialect, laws=[FLUSHED], forks=True)
        assert report.ok == (dialect is target.dialect), report.problem


def test_the_dependence_leg_refuses_such_a_sum_that_declares_nothing() -> None:
    dialect = PLUGINS.target("x86_avx512").dialect
    old = parse(DOT.replace("SUFFIX", "").replace(":d", ""), dialect)
    new = parse(DOT.replace("SUFFIX", ""), dialect)
    silent = verify_dependence(old, new, {}, dialect, Kind.REASSOCIATES, frozenset())
    assert "a law that was not declared: x = 0" in silent.problem
    assert verify_dependence(old, new, {}, dialect, Kind.CHANGES_PRECISION, frozenset((FLUSHED,))).ok

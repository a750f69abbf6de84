"""An operation is a row in each of two tables: every part uses these, and nothing else names it.

The rows of this file are added for a test and taken away after it. Everything else is the SDK's own, and the
plugins' that are installed: nothing here names a target.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from typing import cast

import pytest

from perfdojo_sdk.codegen.c import CEmitter
from perfdojo_sdk.codegen.operations import HEADER, SPELLINGS, Spelling, Vector
from perfdojo_sdk.core.dialect import CORE_DIALECT, Dialect
from perfdojo_sdk.core.domains import FLOAT64
from perfdojo_sdk.core.dtypes import INTEGER_DTYPES
from perfdojo_sdk.core.errors import DojoError
from perfdojo_sdk.core.interpreter import interpret
from perfdojo_sdk.core.operations import ENDS, OPERATIONS, Meaning, wrapped
from perfdojo_sdk.core.text import parse
from perfdojo_sdk.core.transformation import Kind, Move, Rules, Step, Trace
from perfdojo_sdk.core.transformations import GENERIC
from perfdojo_sdk.hookspecs.types import Artifact, Runner
from perfdojo_sdk.measure.emulated_runner import EmulatedRunner
from perfdojo_sdk.measure.native_runner import NativeRunner
from perfdojo_sdk.plugins import load_plugins
from perfdojo_sdk.plugins.registry import Plugins
from perfdojo_sdk.verify import modular_vm
from perfdojo_sdk.verify.dependence import verify_dependence_trace
from perfdojo_sdk.verify.exact import verify_exact, verify_exact_trace
from perfdojo_sdk.verify.numeric import NumericReport, verify_numeric
from perfdojo_sdk.views.code import code
from perfdojo_sdk.views.drawing import svg
from perfdojo_sdk.views.formula import latex_math, unicode_math
from perfdojo_sdk.views.graph import dot

RULES = Rules(CORE_DIALECT, GENERIC)

SOFTSIGN = "x / (1 + |x|), of one operand and monotone: the values at the ends of a range bound the error"
HYPOT2 = "the square root of a*a + b*b, of two operands, neither of which it grows with"
CLEAR = "the bits of a that b has not, of integers"

MEANINGS = {
    "softsign": Meaning(
        1, ("f64", "f32"), lambda a: a / (1 + abs(a)), wide="a / (1 + WIDE_(fabs)(a))", moved=ENDS,
        error=1.0, largest_error=2.0, monotone=True,
    ),
    "hypot2": Meaning(
        2, ("f32",), math.hypot, wide="WIDE_(hypot)(a, b)", moved="ea + eb",
    ),
    "clear": Meaning(2, INTEGER_DTYPES, integers=wrapped(lambda a, b: a & ~b), whole="a.v & ~b.v"),
}  # fmt: skip
ROWS = {
    "softsign": Spelling(Vector.LANES, 9.0, f64="a / (1 + __builtin_fabs(a))"),
    "hypot2": Spelling(Vector.LANES, 12.0, f32="(float)__builtin_sqrt((double)a * a + (double)b * b)"),
    "clear": Spelling(Vector.NONE, whole="(C)(a & ~b)"),
}


@pytest.fixture(autouse=True)
def added(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, meaning in MEANINGS.items():
        monkeypatch.setitem(cast(dict[str, Meaning], OPERATIONS), name, meaning)
        monkeypatch.setitem(cast(dict[str, Spelling], SPELLINGS), name, ROWS[name])


TEXT = """\
kernel soft(x, z) -> y
x f32 [96] heap
z f32 [96] heap
y f32 [96] heap

96 y[{0}] = softsign(x[{0}] * 3) + hypot2(x[{0}], z[{0}])
"""
DOUBLES = TEXT.replace("f32", "f64").replace("hypot2(x[{0}], z[{0}])", "softsign(z[{0}])")
BITS = """\
kernel bits(x, z) -> y
x i16 [96] heap
z i16 [96] heap
y i16 [96] heap

96 y[{0}] = clear(x[{0}], z[{0}]) - clear(z[{0}], x[{0}])
"""
BOTH = """\
kernel both(x, z, a, b) -> y, c
x f32 [96] heap
z f32 [96] heap
y f32 [96] heap
a i16 [96] heap
b i16 [96] heap
c i16 [96] heap

96 y[{0}] = softsign(x[{0}] * 3) + hypot2(x[{0}], z[{0}])
96 c[{0}] = clear(a[{0}], b[{0}])
"""
programs = pytest.mark.parametrize("text", [TEXT, DOUBLES, BITS], ids=["f32", "f64", "i16"])


def game(text: str, name: str) -> Trace:
    """The loop split, and the value of an operation named and kept before it is used."""
    trace = Trace(parse(text)).play(RULES, Move("split_scope", "s0", (("factor", 16),)))
    for move in RULES.candidates(trace.program):
        if move.transformation == "stage_expression":
            step = RULES.attempt(trace.program, move)
            if isinstance(step, Step) and f" = {name}(" in step.after.text.partition("\n\n")[2]:
                return replace(trace, steps=(*trace.steps, step))
    raise AssertionError("no value can be named")


GAMES = [(TEXT, "softsign"), (DOUBLES, "softsign"), (BITS, "clear")]
games = pytest.mark.parametrize(("text", "name"), GAMES, ids=["f32", "f64", "i16"])

# -- the core and its views ------------------------------------------------------------------------


@programs
def test_text_is_read_and_printed(text: str) -> None:
    assert parse(text).text == text


def test_the_parser_knows_what_it_takes() -> None:
    with pytest.raises(DojoError, match="hypot2 takes 2 arguments"):
        parse(TEXT.replace("hypot2(x[{0}], z[{0}])", "hypot2(x[{0}])"))
    with pytest.raises(DojoError, match="clear has no meaning for f32"):
        parse(TEXT.replace("hypot2", "clear"))


def test_the_interpreter_computes_it() -> None:
    xs, zs = [k - 48.0 for k in range(96)], [float(k) for k in range(96)]
    found = interpret(parse(TEXT), {"x": xs, "z": zs}, FLOAT64)["y"]
    assert found == [3 * x / (1 + abs(3 * x)) + math.hypot(x, z) for x, z in zip(xs, zs, strict=True)]
    whole = interpret(parse(BITS), {"x": [5, -1] * 48, "z": [6, 3] * 48}, FLOAT64)["y"]
    assert whole[:2] == [(5 & ~6) - (6 & ~5), (-1 & ~3) - 0]


def test_every_view_shows_it() -> None:
    program = parse(TEXT)
    assert "softsign(x[i] · 3) + hypot2(x[i], z[i])" in unicode_math(program)
    assert r"\mathrm{softsign}\left(" in latex_math(program)
    assert "softsign(" in dot(program) and "softsign(" in svg(program)
    assert "pd_softsign_f32(" in code(program, CORE_DIALECT)


# -- the legs --------------------------------------------------------------------------------------


@games
@pytest.mark.parametrize("machine", [True, False], ids=["machine", "interpreter"])
def test_the_random_models_agree_with_a_game(
    text: str, name: str, machine: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not machine:
        monkeypatch.setattr(modular_vm, "available", lambda: False)
    report = verify_exact_trace(game(text, name))
    assert report.ok, report.problem
    other = parse(text.replace(f"{name}(x[{{0}}]", f"{name}(z[{{0}}]"))
    assert not verify_exact(parse(text), other).ok


@games
def test_integer_sets_prove_a_game(text: str, name: str) -> None:
    trace = game(text, name)
    report = verify_dependence_trace(trace, RULES)
    assert report.ok, report.problem
    wrong = parse(trace.program.text.replace(f"{name}(", "abs(" if name == "softsign" else "max("))
    step = replace(trace.steps[-1], after=wrong)
    assert not verify_dependence_trace(replace(trace, steps=(trace.steps[0], step)), RULES).ok


def compared(
    trace: Trace, artifact: object, runner: Runner, dialect: Dialect = CORE_DIALECT, quick: bool = False
) -> NumericReport:
    assert isinstance(artifact, Artifact), artifact
    return verify_numeric(
        trace.root, trace.program, artifact, runner, {}, dialect, threads=(1,), forks=True,
        nan_may_differ=trace.kind >= Kind.REASSOCIATES, quick=quick,
    )  # fmt: skip


@games
def test_the_compiled_kernel_stays_within_the_bound(text: str, name: str) -> None:
    trace, runner = game(text, name), NativeRunner(("-O2",))
    report = compared(trace, runner.compile(CEmitter(trace.program, "pd_k", CORE_DIALECT).source()), runner)
    assert report.ok, report.problem


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("softsign", Spelling(Vector.LANES, f64="a / (1.000001 + __builtin_fabs(a))")),
        ("hypot2", Spelling(Vector.LANES, f32="__builtin_sqrtf(a * a + b * b)")),  # it overflows
        ("clear", Spelling(Vector.NONE, whole="(C)(a & ~b & ~(C)1)")),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_wrong_spelling_is_caught(name: str, wrong: Spelling, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(cast(dict[str, Spelling], SPELLINGS), name, wrong)
    trace, runner = Trace(parse(BITS if name == "clear" else TEXT)), NativeRunner(("-O2",))
    report = compared(trace, runner.compile(CEmitter(trace.program, "pd_k", CORE_DIALECT).source()), runner)
    assert not report.ok and "y[" in report.problem


# -- the generators --------------------------------------------------------------------------------


@cache
def plugins() -> Plugins:
    return load_plugins()


@pytest.mark.parametrize("name", sorted(load_plugins().targets))
def test_every_generator_of_c_emits_what_its_target_computes(name: str) -> None:
    """The expert's game: emitted, compiled for the target where a compiler is there, and compared where
    that can be run here. Kernels of grids and blocks run on the processor, every access watched."""
    target = plugins().target(name)
    rules, expert = plugins().rules(target), plugins().heuristic_pass(target)
    assert expert is not None
    try:
        trace = expert(parse(BOTH, target.dialect), rules, target)[0]
        source = plugins().code_generator(target).generate(trace.program, "pd_k")
    except DojoError as error:
        assert error.code == "PD-C001", f"{name} has a table of its own, and says what it lacks: {error}"
        return
    for operation in MEANINGS:
        assert f"pd_{operation}_" in source.code and f"pd_{operation}_" in source.support[HEADER]
    runner, emulated = plugins().runner(target), source.language in ("cu", "hip")
    if emulated or not plugins().unavailable(target):
        made = runner.compile(source)
        assert isinstance(made, Artifact), made
        if emulated:
            runner = EmulatedRunner(target.capabilities.options["warp"])
            made = runner.compile(source)
        report = compared(trace, made, runner, target.dialect, quick=True)
        assert report.ok, report.problem


def test_vectors_call_it_lane_by_lane() -> None:
    """A lockstep scope stays one statement on vectors if the target has vectors."""
    targets = [t for t in plugins().targets.values() if t.capabilities.options.get("vector_header")]
    for target in targets:
        lanes = target.dialect.lanes["f32"]
        text = TEXT.replace("96 y", f"{96 // lanes} {lanes}:v y").replace("{0}", f"{{0}}*{lanes}+{{1}}")
        made = plugins().code_generator(target).generate(parse(text, target.dialect), "pd_k").code
        assert "pd_softsign_f32v(" in made and "pd_hypot2_f32v(" in made, target.name
    assert targets

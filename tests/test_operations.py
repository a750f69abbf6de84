"""The tables of operations: complete, alike, and true to what their rows say."""

from __future__ import annotations

import math
import random
from itertools import product

import pytest

from perfdojo_sdk.codegen.c import CEmitter
from perfdojo_sdk.codegen.operations import NUMBERS, SPELLINGS, Vector
from perfdojo_sdk.core.dialect import CORE_DIALECT
from perfdojo_sdk.core.domains import FLOAT64
from perfdojo_sdk.core.dtypes import FLOAT_DTYPES, INTEGER_DTYPES, integer_bounds
from perfdojo_sdk.core.errors import ProgramError
from perfdojo_sdk.core.expression import (
    Cast,
    Expression,
    IndexValue,
    Literal,
    Operation,
    Read,
    fold,
    map_children,
    map_expression,
    operations,
    walk,
)
from perfdojo_sdk.core.operations import ENDS, OPERATIONS, Algebra, Meaning
from perfdojo_sdk.core.program import Program, Statement
from perfdojo_sdk.core.text import parse
from perfdojo_sdk.hookspecs.types import Artifact, Capabilities, MachineFigures, MemoryFigures, Target
from perfdojo_sdk.measure.native_runner import NativeRunner
from perfdojo_sdk.measure.roofline import roofline
from perfdojo_sdk.search.features import named_features
from perfdojo_sdk.testing.estimate import AnalyticMachine
from perfdojo_sdk.verify.exact import verify_exact
from perfdojo_sdk.verify.exact_integers import integer_range
from perfdojo_sdk.verify.models import RandomModel
from perfdojo_sdk.verify.reference_c import BOUNDED, OUTCOMES, WIDE, reference

rows = pytest.mark.parametrize(("name", "meaning"), OPERATIONS.items(), ids=OPERATIONS.keys())
SAMPLES = (-math.inf, -3.5, -1.0, -0.25, 0.0, 0.5, 1.0, 2.0, 7.0, math.inf)


def call(name: str, meaning: Meaning, dtype: str) -> str:
    """The operation on arrays of a dtype, as text."""
    arrays = [f"x_{dtype}", f"z_{dtype}"][: meaning.arity - meaning.chooses]
    operands = [f"{array}[{{0}}]" for array in arrays]
    if meaning.infix:
        return f" {meaning.infix[0]} ".join(operands)
    if name == "neg":
        return f"-{operands[0]}"
    return f"{name}({', '.join(['b[{0}]'] * meaning.chooses + operands)})"


def every_operation() -> Program:
    """A program with each operation on each dtype that compiles."""
    cases = [(n, m, dtype) for n, m in OPERATIONS.items() for dtype in NUMBERS if dtype in m.dtypes]
    inputs = ["b", *(f"{array}_{dtype}" for dtype in NUMBERS for array in "xz")]
    lines = [f"kernel k({', '.join(inputs)}) -> {', '.join(f'y{k}' for k in range(len(cases)))}"]
    lines.append("b bool [4] heap")
    lines += [f"{array}_{dtype} {dtype} [4] heap" for dtype in NUMBERS for array in "xz"]
    lines += [f"y{k} {'bool' if m.compares else d} [4] heap" for k, (_, m, d) in enumerate(cases)]
    lines += ["", "4", *(f"| y{k}[{{0}}] = {call(*case)}" for k, case in enumerate(cases))]
    return parse("\n".join(lines) + "\n")


# -- both tables are total -------------------------------------------------------------------------


def test_both_tables_have_a_row_for_each_operation_and_no_other() -> None:
    assert SPELLINGS.keys() == OPERATIONS.keys()


def test_each_operation_compiles_for_each_of_its_dtypes() -> None:
    """As a kernel, and as each kind of reference of the numeric leg."""
    program, runner = every_operation(), NativeRunner(("-O0", "-Wall", "-Wextra", "-Werror"))
    made = runner.compile(CEmitter(program, "pd_k", CORE_DIALECT).source())
    assert isinstance(made, Artifact), made
    for kind in (WIDE, BOUNDED, OUTCOMES):
        made = NativeRunner(("-O0",)).compile(reference(program, kind, {}, CORE_DIALECT))
        assert isinstance(made, Artifact), made


def test_the_random_models_know_each_operation() -> None:
    """The interpreter, and the machine in C, find a program equal to itself and to nothing else."""
    for dtype in ("f32", "i32", "bool"):
        for name, meaning in OPERATIONS.items():
            if dtype not in meaning.dtypes or not meaning.total:
                continue
            text = call(name, meaning, dtype)
            declared = "".join(f"{a}_{dtype} {dtype} [4] heap\n" for a in "xz")
            head = f"kernel k(b, x_{dtype}, z_{dtype}) -> y\nb bool [4] heap\n{declared}"
            kind = "bool" if meaning.compares else dtype
            one = parse(f"{head}y {kind} [4] heap\n\n4 y[{{0}}] = {text}\n")
            other = parse(f"{head}y {kind} [4] heap\n\n4 y[{{0}}] = {text.replace('{0}', '3-{0}')}\n")
            report = verify_exact(one, one)
            assert report.ok, (name, dtype, report.problem)
            if dtype == "f32" or not meaning.compares:  # integers are drawn from all of them: none are equal
                assert not verify_exact(one, other, models=8).ok, (name, dtype)


@rows
def test_a_row_says_all_that_its_dtypes_need(name: str, meaning: Meaning) -> None:
    spelling, floats = SPELLINGS[name], set(meaning.dtypes) & set(FLOAT_DTYPES)
    arguments = [1, 1.0, 1.0][3 - meaning.arity :]  # in the domain of every function
    assert not floats or not math.isnan(FLOAT64.operation(name, "f64")(*arguments))
    if not floats:
        with pytest.raises(ProgramError, match="no meaning"):
            FLOAT64.operation(name, "f64")(*arguments)
    for dtype in set(meaning.dtypes) - floats:
        assert type(meaning.integers(dtype)(*[1] * meaning.arity)) is int
    assert meaning.error <= meaning.largest_error
    assert not meaning.moved or (meaning.wide and (meaning.moved != ENDS or meaning.monotone))
    assert bool(meaning.accumulation) == bool(spelling.horizontal)
    assert spelling.cost >= 1 and (spelling.vector is Vector.NONE or floats)
    assert (meaning.algebra is Algebra.COMPARISON) == meaning.compares


# -- what a row says is so -------------------------------------------------------------------------


@rows
def test_what_is_monotone_never_falls(name: str, meaning: Meaning) -> None:
    if not meaning.monotone:
        return
    for given in product(SAMPLES, repeat=meaning.arity):
        for larger in product(SAMPLES, repeat=meaning.arity):
            if all(a <= b for a, b in zip(given, larger)):
                low, high = meaning.floats(*given), meaning.floats(*larger)
                assert low <= high or math.isnan(low) or math.isnan(high), (given, larger)


@rows
def test_what_is_exact_on_integers_gives_integers(name: str, meaning: Meaning) -> None:
    if not meaning.exact_on_integers:
        return
    corners = [abs(meaning.floats(*c)) for c in product((-9.0, 9.0), repeat=meaning.arity)]
    for given in product(range(-9, 10), repeat=meaning.arity):
        value = meaning.floats(*map(float, given))
        assert value.is_integer() and abs(value) <= max(corners), given


@rows
def test_what_is_total_has_a_value_for_all_integers(name: str, meaning: Meaning) -> None:
    failed = False
    for dtype in set(meaning.dtypes) & {*INTEGER_DTYPES, "bool"}:
        low, high = integer_bounds(dtype)
        values = sorted({low, max(low, -1), 0, 1, high})
        for given in product(values, repeat=meaning.arity):
            try:
                found = meaning.integers(dtype)(*given)
                assert low <= found <= high or meaning.compares, (dtype, given, found)
            except ProgramError:
                failed = True
    assert failed != meaning.total


@rows
def test_an_interval_holds_each_value(name: str, meaning: Meaning) -> None:
    if meaning.interval is None or meaning.chooses:
        return
    rng = random.Random(name)
    finite = [x for x in SAMPLES if math.isfinite(x)]
    for _ in range(300):
        ranges = [tuple(sorted((rng.choice(finite), rng.choice(finite)))) for _ in range(meaning.arity)]
        low, high = meaning.interval(*ranges)
        value = meaning.floats(*[rng.uniform(*ends) for ends in ranges])
        assert low <= value <= high or math.isnan(value), (ranges, value)


def test_python_and_the_random_models_agree_on_integers() -> None:
    model = RandomModel(0)
    for name, meaning in OPERATIONS.items():
        if "i32" in meaning.dtypes and not meaning.chooses:
            given = [5, 3][: meaning.arity]
            assert model.operation(name, "i32")(*given) == FLOAT64.operation(name, "i32")(*given)


# -- expressions -----------------------------------------------------------------------------------

X, ROW = "x[{0}]", "max(f32(i32(exp(x[{0}]))), {0}) * -2"


def value_of(text: str) -> Expression:
    program = parse(f"kernel k(x) -> y\nx f32 [4] heap\ny f32 [4] heap\n\n4 y[{{0}}] = {text}\n")
    (node,) = program.body[0].body  # type: ignore[union-attr]
    assert isinstance(node, Statement)
    return node.value


def test_a_walk_meets_every_kind_before_its_children_and_through_conversions() -> None:
    value = value_of(ROW)
    kinds = [type(node) for node in walk(value)]
    assert kinds == [Operation, Operation, Cast, Cast, Operation, Read, IndexValue, Literal]
    assert [o.name for o in operations(value)] == ["mul", "max", "exp"]
    for node in walk(value):
        assert node.with_children(node.children) == node
        assert set(node.children) <= set(walk(node))


def test_folding_and_rebuilding() -> None:
    value = value_of(ROW)
    assert fold(value, lambda node, parts: 1 + sum(parts)) == len(list(walk(value)))

    def doubled(node: Expression) -> Expression:
        return Literal(4.0, node.dtype) if isinstance(node, Literal) else map_children(node, doubled)

    assert doubled(value).text == ROW.replace("-2", "4")
    assert map_expression(value, lambda leaf: leaf) == value


# -- what stopped at a conversion ------------------------------------------------------------------


def statement(value: str) -> Program:
    return parse(f"kernel k(x) -> y\nx f32 [4] heap\ny f32 [4] heap\n\n4 y[{{0}}] = {value}\n")


HIDDEN, SHOWN = "f32(f64(exp(x[{0}])))", "exp(x[{0}])"


def test_features_count_what_stands_inside_a_conversion() -> None:
    target = Target("plain", Capabilities(name="plain", description=""), CORE_DIALECT, "")
    hidden, shown = (named_features(statement(v), target) for v in (HIDDEN, SHOWN))
    assert hidden["slow"] == shown["slow"] > 0
    assert 2 ** hidden["operations"] == pytest.approx(1 + 2 * 4), "two conversions, four times"


def test_the_machine_on_paper_pays_for_what_stands_inside_a_conversion() -> None:
    machine = AnalyticMachine(CORE_DIALECT)
    hidden, shown = (machine.seconds(statement(v)) for v in (HIDDEN, SHOWN))
    assert hidden - shown == pytest.approx(2 * 4 / machine.hertz)


def test_the_roofline_counts_what_stands_inside_a_conversion_back_to_the_same_dtype() -> None:
    figures = MachineFigures(
        memory=MemoryFigures(read_gbs=1e6, write_gbs=1e6, copy_gbs=1e6), peak_gflops={"f32": 1e-6}
    )
    products = ("x[{0}] * 2", "f32(bf16(x[{0}] * 2))", "f32(f64(x[{0}]) * 2)")
    bounds = [roofline(statement(value), 1, figures) for value in products]
    assert [b and b.limit.endswith("GFLOP/s") for b in bounds] == [True, True, False]


def test_the_roofline_knows_no_peak_of_products_that_are_added_up_in_groups() -> None:
    """They may run at several times the peak of f32, and such a time would be doubted."""
    figures = MachineFigures(
        memory=MemoryFigures(read_gbs=1e6, write_gbs=1e6, copy_gbs=1e6), peak_gflops={"f32": 1e-6}
    )
    limits = []
    for dtype, total in (("i8", "i32"), ("bf16", "f32"), ("f32", "f64"), ("i32", "i32")):
        head = f"kernel dot(x) -> y\nx {dtype} [8] heap\ny {total} [1] heap\n\n1 y[{{0}}] = 0\n8 y[0] += "
        bound = roofline(parse(head + f"{total}(x[{{0}}]) * {total}(x[{{0}}])\n"), 1, figures)
        limits.append(bound.limit.endswith("GFLOP/s") if bound else None)
    assert limits == [False, False, True, True]


def test_the_roofline_counts_one_row_of_a_table_whose_rows_are_chosen() -> None:
    """All choices may be equal, and nothing else of the table is read."""
    figures = MachineFigures(memory=MemoryFigures(read_gbs=1, write_gbs=1, copy_gbs=1), peak_gflops={})
    head = (
        "kernel pick(t, k) -> y\nt f32 [1000,4] heap\nk i64 [2] heap\ny f32 [2,4] heap\n\n2 4 y[{0},{1}] = "
    )
    rows = ("clamp(k[{0}], 0, 999)", "{0}", "999*{0}", "499*{0}+3")
    bounds = [roofline(parse(head + f"t[{row},{{1}}]"), 1, figures) for row in rows]
    read = [round(each.seconds * 1e9) - 32 if each else None for each in bounds]
    # Between the first and the last row that are read, all count; only the first reads indices.
    assert read == [16 + 16, 32, 16000, 8000]


def test_the_roofline_counts_no_part_of_an_array_that_nothing_touches() -> None:
    """A third of an input, copied, took a third of the time that its whole would take, and was doubted."""
    figures = MachineFigures(memory=MemoryFigures(read_gbs=1, write_gbs=1, copy_gbs=1), peak_gflops={})

    def read(*lines: str) -> int:
        head = "kernel part(x) -> y\nx f32 [4,300] heap\ny f32 [4,200] heap\n\n"
        bound = roofline(parse(head + "\n".join(lines)), 1, figures)
        return round(bound.seconds * 1e9) - 4 * 4 * 200 if bound else 0

    first, last = "4 100 y[{0},{1}] = x[{0},{1}]", "4 100 y[{0},{1}+100] = x[{0},{1}+200]"
    assert read("4 200 y[{0},{1}] = x[{0},{1}+50]") == 4 * 4 * 200
    assert read(first, last) == 4 * 4 * 200
    assert read(first, last.replace("+200", "+50")) == 4 * 4 * 150


def test_a_function_inside_a_conversion_is_no_polynomial() -> None:
    """Else the numeric leg would compare exponentials as if they were small integers."""
    assert integer_range(statement(HIDDEN)) == (0, "it uses exp")


def test_a_literal_inside_a_conversion_is_no_integer() -> None:
    largest, why = integer_range(statement("f32(bf16(x[{0}] * 0.5))"))
    assert (largest, why) == (0, "it uses the constant 0.5")


@pytest.mark.parametrize("name", ["exp", "log", "tanh", "erf"])
def test_a_stated_error_reaches_the_reference(name: str) -> None:
    stated, raised, allowed, silent = (
        reference(statement(f"{name}(x[{{0}}])"), BOUNDED, accuracy, CORE_DIALECT).code
        for accuracy in ({name: 1.25}, {name: 64.0}, {name: OPERATIONS[name].largest_error}, {})
    )
    assert stated.replace("1.25", str(OPERATIONS[name].error)) == silent != stated
    assert raised == allowed != stated, "a target lowers the error, it does not raise it"

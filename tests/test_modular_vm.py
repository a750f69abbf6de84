"""The engine in C computes, cell for cell and schedule for schedule, what the interpreter computes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from random import Random

import pytest
from snippets import DIALECT, RULES, program

from perfdojo_sdk.core.dialect import CORE_DIALECT, Dialect
from perfdojo_sdk.core.dtypes import INTEGER_DTYPES, integer_bounds, wrap
from perfdojo_sdk.core.errors import ProgramError
from perfdojo_sdk.core.interpreter import FORWARD, Interpreter, Schedule
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.core.text import parse
from perfdojo_sdk.core.transformation import Rules
from perfdojo_sdk.core.transformations import GENERIC
from perfdojo_sdk.core.validate import violations
from perfdojo_sdk.search.neighbours import random_step
from perfdojo_sdk.testing.programs import random_program
from perfdojo_sdk.testing.typed_programs import typed_program
from perfdojo_sdk.testing.walks import mutants, newly_allowed, random_walk
from perfdojo_sdk.verify import exact as leg1
from perfdojo_sdk.verify import modular_vm
from perfdojo_sdk.verify.exact import verify_exact
from perfdojo_sdk.verify.models import LAWS, RandomModel
from perfdojo_sdk.verify.modular_vm import Cells, Encoder

SCHEDULES = (FORWARD, Schedule("reversed"), Schedule("lockstep"), *(Schedule("random", k) for k in range(3)))
CORE = Rules(CORE_DIALECT, GENERIC)

pytestmark = pytest.mark.skipif(not modular_vm.available(), reason="no C compiler")


def by_interpreter(subject: Program, dialect: Dialect, model: RandomModel, schedule: Schedule) -> Mapping[
    str, Cells
] | None:  # fmt: skip
    try:
        found = Interpreter(subject, dialect).run(model.inputs(subject), model, schedule)
    except ProgramError:
        return None
    return {name: model.cells(values, subject.buffer_of[name].dtype) for name, values in found.items()}


def in_c(
    encoder: Encoder, subject: Program, model: RandomModel, schedule: Schedule
) -> Mapping[str, Cells] | None:
    encoded = encoder.encode(subject)
    return modular_vm.run(encoded, model.packed(subject), model.seed, model.flags, schedule)


def same(encoder: Encoder, subject: Program, model: RandomModel, schedule: Schedule) -> bool:
    expected = by_interpreter(subject, encoder.dialect, model, schedule)
    assert in_c(encoder, subject, model, schedule) == expected, f"{schedule.text} {model.laws}\n{subject}"
    return expected is not None


@pytest.mark.parametrize("seed", range(12))
def test_random_games_under_every_schedule(seed: int) -> None:
    """The encoder remembers nests from one program to the next, as it does beside a game."""
    rng, rules = Random(seed), (RULES, CORE)[seed % 2]
    subject, encoder = random_program(rng, 4), Encoder(rules.dialect)
    for number in range(10):
        laws = [law for law in LAWS if rng.random() < 0.3]
        for schedule in SCHEDULES:
            assert same(encoder, subject, RandomModel(rng.randrange(99), laws), schedule)
        only = "annotate_scope" if number % 3 == 0 else None
        step = random_step(rng, subject, rules, only) or random_step(rng, subject, rules)
        assert step is not None
        subject = step.after


def test_wrong_moves_get_the_same_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    """The moves of mutants: races, lost iterations, unwritten cells. The mismatch and its message are
    equal."""
    wrong = 0
    for number, mutant in enumerate(mutants(RULES)):
        for seed in range(3):
            rng = Random(seed)
            start = random_walk(rng, random_program(rng, 3), RULES, 4).program
            for step in list(newly_allowed(mutant, RULES, start))[:2]:
                arguments = (step.before, step.after, step.legal.laws, DIALECT, number, 1)
                quick = verify_exact(*arguments)
                with monkeypatch.context() as patch:
                    patch.setattr(leg1, "_encoder", lambda dialect: None)
                    assert verify_exact(*arguments) == quick, f"{step.move.text}\n{step.before}"
                wrong += not quick.ok
    assert wrong >= 20


def test_programs_over_every_dtype_whose_lanes_differ_in_their_conditions() -> None:
    encoder, found = Encoder(CORE_DIALECT), 0
    for seed in range(40):
        subject = typed_program(Random(seed), CORE_DIALECT)
        for schedule in SCHEDULES:
            found += same(encoder, subject, RandomModel(seed), schedule)
    assert found == 40 * len(SCHEDULES)


HEAD = "kernel f(x, k) -> y\nx f32 [4] heap\nk i32 [4] heap\ny f32 [4] heap\nt f32 [4] heap\n\n"


@pytest.mark.parametrize(
    "tree",
    [
        "3 t[{0}] = x[{0}]\n4 y[{0}] = t[{0}]",  # an unwritten cell
        "3 y[{0}] = x[{0}]",  # an output that is not complete
        "4:p\n| t[{0}] = x[{0}]\n| y[{0}] = t[0]",  # a private copy
        "4 y[{0}] = x[{0}] - -inf",
        "4 y[{0}] = x[{0}] * inf",
        "4 y[{0}] = -(-inf)",
        "4 y[{0}] = max(x[{0}], inf)",
        "4 y[{0}] = max(-inf, inf) + x[{0}]",
        "4 y[{0}] = exp(inf)",
        "4 y[{0}] = inf / x[{0}]",
        "4 y[{0}] = f32(k[{0}] / (k[{0}] - k[{0}]))",  # divided by zero
        "4 y[{0}] = f32(rem(k[{0}], 0))",
        "4 y[{0}] = f32(shl(k[{0}], 32))",  # shifted too far
        "4 y[{0}] = f32(shr(k[{0}], -{0}-1))",
    ],
)
def test_what_has_no_value_has_none_in_either(tree: str) -> None:
    subject, encoder = parse(HEAD + tree), Encoder(CORE_DIALECT)
    assert not any(same(encoder, subject, RandomModel(1), schedule) for schedule in SCHEDULES)


@pytest.mark.parametrize(
    "tree",
    [
        "4 y[{0}] = f32(k[{0}] / 3 - rem(k[{0}], 7) + shl(k[{0}], 5) * k[3-{0}])",
        "4 y[{0}] = f32(xor(and(k[{0}], 255), or(not(k[{0}]), shr(k[{0}], 3))) + abs(k[{0}]) - min(k[0],9))",
        "4 y[{0}] = f32(i8(k[{0}])) + f32(u16(k[{0}])) + f32(bool(k[{0}])) + f32(i64(k[{0}]) * 4000000000)",
        "4 y[{0}] = f32(i32(round(x[{0}]))) + f32(f64(x[{0}]) * 0.1) + index(({0}*3)%2+{0}//2)",
        "4 y[{0}] = select(k[{0}] < {0} - 2, exp(-inf - x[{0}]), max(x[{0}], -inf) / 3)",
        "4 y[{0}] = select(x[{0}] >= x[0], sqrt(abs(x[{0}])), x[{0}] / (x[0] * x[1])) / 0",
        "4:v t[{0}] = 3\ny[0] = 1\ny[1] = -inf\n4:v y[0] += t[{0}]\n4:v y[1] max= t[{0}]\n2 y[{0}+2] = 5",
        "4 y[{0}] = 2\n4 4:v y[{0}] += x[{1}] if {0}+{1} >= 5\n4:v y[{0}] = x[{0}-1] if {0} >= 1",
        "2 t[{0}] = 3\n4:p y[{0}] = 1\n4:p 4:v y[{0}] max= t[{1}] if {1} <= 1 and {0} >= 1",
        "4 y[{0}] = f32(u64(k[{0}]) / 3) + f32(shr(u64(k[{0}]), 5)) + f32(max(u64(k[{0}]), u64(k[0])))",
        "4 y[{0}] = select(u64(k[{0}]) < u64(k[0]), f32(rem(u64(k[1]), 1000)), f32(abs(-u64(k[2]))))",
        "4 t[{0}] = 2\n4:p y[{0}] = x[{0}]\n4:p t[0] += y[{0}]\n4 y[{0}] *= t[{0}] if {0} >= 1 and {0} <= 2",
        "4 t[{0}] = 2\n2:g 2:b\n| t[{0}*2+{1}] = x[{1}]\n| y[{0}*2+{1}] = t[{0}] + t[{1}]",
        "4:p " + "1 " * 40 + "y[{0}] = x[{0}]\n4:p " + "1 " * 20 + "y[0] += x[{0}]",
    ],
)
def test_values_and_orders_of_every_sort(tree: str) -> None:
    dialect = replace(CORE_DIALECT, nested_parallel=True)
    subject, encoder = parse(HEAD + tree, dialect), Encoder(dialect)
    for laws in ((), LAWS, *((law,) for law in LAWS)):
        for seed, schedule in enumerate(SCHEDULES):
            assert same(encoder, subject, RandomModel(seed, laws), schedule)


def test_a_storage_move_is_noticed_in_nests_that_stay() -> None:
    start = program("4 t[{0}] = x[{0}]\n4 y[{0}] = t[0]")
    encoder, model = Encoder(DIALECT), RandomModel(0)
    assert same(encoder, start, model, FORWARD)
    (buffer,) = [b for b in start.buffers if b.name == "t"]
    one = buffer.with_dimensions(tuple(type(d)(d.size, "N") for d in buffer.dimensions))
    shared = start.with_buffer("t", one)
    assert same(encoder, shared, model, FORWARD)
    assert in_c(encoder, shared, model, FORWARD) != in_c(encoder, start, model, FORWARD)


def test_too_large_for_its_memory_is_left_to_the_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(modular_vm, "MEMORY", 100)
    assert in_c(Encoder(DIALECT), program("4 y[{0}] = x[{0}]"), RandomModel(0), FORWARD) is None


def test_rules_are_looked_at_where_something_changed() -> None:
    """The check of what a move changed finds the same violations as a check of the whole program."""
    broken = 0
    for mutant in mutants(RULES):
        for seed in range(2):
            rng = Random(seed)
            start = random_walk(rng, random_program(rng, 3), RULES, 4).program
            for step in list(newly_allowed(mutant, RULES, start))[:3]:
                whole = {(v.code, v.node, v.name) for v in violations(step.after, DIALECT)}
                part = {(v.code, v.node, v.name) for v in violations(step.after, DIALECT, step.before)}
                assert part == whole, f"{step.move.text}\n{step.before}"
                broken += bool(whole)
    assert broken >= 5


@pytest.mark.parametrize("sign", ["<", "<=", ">", ">=", "==", "!="])
@pytest.mark.parametrize("left", ["-inf", "inf", "x[{0}]"])
@pytest.mark.parametrize("right", ["-inf", "inf"])
def test_an_infinity_is_compared_with_its_value(sign: str, left: str, right: str) -> None:
    """An infinity is beyond every number; with NaN, which is no number of the models, nothing is said."""
    subject, encoder = (
        parse(HEAD + f"4 t[{{0}}] = {left}\n4 y[{{0}}] = select(t[{{0}}] {sign} {right}, 5, 7)"),
        Encoder(CORE_DIALECT),
    )
    holds = eval(f"{left.replace('x[{0}]', '3')} {sign} {right}", {"inf": float("inf")})
    for schedule in SCHEDULES:
        assert same(encoder, subject, RandomModel(1), schedule)
        found = in_c(encoder, subject, RandomModel(1), schedule)
        assert found and {word for word, _ in found["y"].numbers} == {5 if holds else 7}


WHOLE = (
    *(f"x[{{0}}] {sign} k[{{0}}]" for sign in "+-*/"),
    *(f"{name}(x[{{0}}], k[{{0}}])" for name in ("rem", "max", "min", "and", "or", "xor")),
    *("not(x[{0}])", "-x[{0}]", "abs(x[{0}])", "shl(x[{0}], {0})", "shr(x[{0}], {0})"),
    "select(x[{0}] < k[{0}], 1, 2)",
)


@pytest.mark.parametrize("dtype", INTEGER_DTYPES)
def test_whole_numbers_of_every_dtype_are_exact_in_both(dtype: str) -> None:
    """The ends of the range against each other: what wraps, wraps alike, and as Python's numbers do."""
    low, high = integer_bounds(dtype)
    encoder = Encoder(CORE_DIALECT)
    for value, a, b in product(WHOLE, (low, -1 if low else 1, high), (low or 3, -1 if low else 2, high)):
        head = "".join(f"{name} {dtype} [7] heap\n" for name in "yxk")
        tree = f"7 x[{{0}}] = {a}\n7 k[{{0}}] = {b}\n7 y[{{0}}] = {value}"
        subject = parse(f"kernel f() -> y\n{head}\n{tree}", CORE_DIALECT)
        assert same(encoder, subject, RandomModel(1), SCHEDULES[0])
        if value[6:9] in (" + ", " * "):
            wanted = wrap(a + b if "+" in value else a * b, dtype) % 2**64
            found = in_c(encoder, subject, RandomModel(1), SCHEDULES[0])
            assert found and {word for word, _ in found["y"].numbers} == {wanted}

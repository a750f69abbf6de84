"""The exact leg: programs that the random models accept and refuse."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations, pairwise, product
from typing import NamedTuple

import pytest

from perfdojo_sdk.core.errors import VerificationError
from perfdojo_sdk.core.interpreter import FORWARD, Interpreter, owner
from perfdojo_sdk.core.program import Path, Program, Scope
from perfdojo_sdk.core.transformation import Move, Rules, Trace
from perfdojo_sdk.core.transformations import GENERIC
from perfdojo_sdk.verify.exact import ExactReport, verify_exact, verify_exact_trace
from perfdojo_sdk.verify.mixing import FIELDS, PRIME
from perfdojo_sdk.verify.models import (
    EXPONENT,
    IDEMPOTENT_MAX,
    RECIPROCAL,
    Constant,
    OutsideModel,
    RandomModel,
)
from tests import programs
from tests.programs import DIALECT, PAIRS, SOFTMAX_MOVES, program

RULES = Rules(DIALECT, GENERIC)


def compare(original: str, transformed: str, *laws: str, models: int = 2, seed: int = 0) -> ExactReport:
    return verify_exact(program(original), program(transformed), laws, DIALECT, seed, models)


def unary(expression: str, dtype: str = "f32", size: int = 4) -> str:
    head = f"kernel f(x) -> y\nx {dtype} [{size}] heap\ny {dtype} [{size}] heap\n\n"
    return f"{head}{size} y[{{0}}] = {expression}"


def is_prime(n: int) -> bool:
    """Miller and Rabin with the first twelve primes: certain below 2**64."""
    d, s = n - 1, 0
    while d % 2 == 0:
        d, s = d // 2, s + 1
    for base in (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37):
        x = pow(base, d, n)
        if x not in (1, n - 1) and all(pow(x, 2**r, n) != n - 1 for r in range(1, s)):
            return False
    return True


# -- the models ------------------------------------------------------------------------------------


def test_each_field_has_powers_for_the_next() -> None:
    assert all(is_prime(p) for p in FIELDS) and all((p - 1) % n == 0 for p, n in pairwise(FIELDS))


def test_the_modulus_is_a_safe_prime_of_62_bits() -> None:
    assert is_prime(PRIME) and is_prime((PRIME - 1) // 2) and PRIME.bit_length() == 62
    assert not is_prime(PRIME - 2)


@pytest.mark.parametrize("name", ["max", "min"])
def test_extrema_commute_and_associate_without_idempotence(name: str) -> None:
    model = RandomModel(5)
    combine = model.operation(name, "f32")
    a, b, c = (model.opaque("operand")(k) for k in range(3))
    assert combine(a, b) == combine(b, a)
    assert combine(combine(a, b), c) == combine(a, combine(b, c))
    assert combine(a, a) != a
    identity = model.literal(float("-inf" if name == "max" else "inf"), "f32")
    assert combine(identity, a) == combine(a, identity) == a
    other = RandomModel(5).operation("min" if name == "max" else "max", "f32")
    assert other(a, b) != combine(a, b)


def test_an_idempotent_model_where_the_law_is_declared() -> None:
    combine = RandomModel(5, [IDEMPOTENT_MAX]).operation("max", "f32")
    assert combine(3, 3) == 3 and combine(combine(9, 4), 4) == combine(9, 4)
    assert RandomModel(5, [IDEMPOTENT_MAX]).operation("min", "f32")(3, 3) != 3


def test_models_repeat_by_seed() -> None:
    text = program(programs.SOFTMAX)
    assert RandomModel(1).inputs(text) == RandomModel(1).inputs(text) != RandomModel(2).inputs(text)
    first, again, other = (RandomModel(seed).opaque("exp")(7) for seed in (1, 1, 2))
    assert first == again != other


def test_constants_stay_constants() -> None:
    model = RandomModel(0)
    divide, multiply = model.operation("div", "f32"), model.operation("mul", "f32")
    add, negate = model.operation("add", "f32"), model.operation("neg", "f32")
    half = model.literal(0.5, "f32")
    sixteenth = multiply(multiply(half, half), multiply(half, half))
    assert type(sixteenth) is Constant
    assert divide(1234567, sixteenth) == 1234567 * 16
    assert divide(5, negate(add(half, half))) == PRIME - 5
    assert type(add(half, 3)) is int and type(add(3, half)) is int
    assert divide(6, 3) != 2  # a residue that an input had a part in


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("x[{0}] / 8", "x[{0}] * 0.125"),
        ("x[{0}] / 3 + x[{0}] / 3 + x[{0}] / 3", "x[{0}]"),
        ("x[{0}] * (1 / 7)", "x[{0}] / 7"),
        ("(x[{0}] + 1) * (x[{0}] - 1)", "x[{0}] * x[{0}] - 1"),
        ("max(max(x[{0}], 2), x[0])", "max(x[0], max(2, x[{0}]))"),
        ("x[{0}] / index({0}+1)", "x[{0}] / ({0} + 1)"),
    ],
)
def test_laws_that_always_hold(one: str, other: str) -> None:
    assert compare(unary(one), unary(other)).ok


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("exp(x[{0}] + x[0])", "exp(x[{0}]) * exp(x[0])"),
        ("sqrt(x[{0}]) * sqrt(x[{0}])", "x[{0}]"),
        ("abs(x[{0}])", "x[{0}]"),
        ("max(x[{0}], x[{0}])", "x[{0}]"),
        ("max(x[{0}], x[0])", "min(x[{0}], x[0])"),
        ("x[{0}] / x[0]", "x[{0}] * (1 / x[0])"),
        ("x[{0}] / x[{0}]", "1"),
        ("x[{0}] / 0", "x[{0}] * 0"),
        ("x[{0}] * 0.1", "x[{0}] / 10"),  # 0.1 is not a tenth
    ],
)
def test_laws_that_do_not_hold_unless_declared(one: str, other: str) -> None:
    report = compare(unary(one), unary(other))
    assert not report.ok and report.mismatch and report.problem == report.mismatch.text


@pytest.mark.parametrize("around", ["{}", "exp({})", "exp(x[0] - exp({}))", "exp(exp(exp({})))"])
def test_exponentials_in_exponentials_obey_their_law(around: str) -> None:
    sums, products, wrong = (
        unary(around.format(f"({inside})"))
        for inside in (
            "exp(x[{0}] + x[0])",
            "exp(x[{0}] - x[1]) * exp(x[1] + x[0])",
            "exp(x[{0}] - x[1]) * exp(x[1] + x[1])",
        )
    )
    assert compare(sums, products, EXPONENT).ok
    assert compare(sums, wrong, EXPONENT).mismatch and compare(sums, products).mismatch


def test_exponentials_deeper_than_the_models_go_are_undecided() -> None:
    def tower(value: str) -> str:
        """The sum of exponentials of each depth up to five."""
        return " + ".join("exp(" * depth + value + ")" * depth for depth in range(5))

    inside, outside = tower("exp(x[{0}] + x[0])"), tower("(exp(x[{0}] - x[1]) * exp(x[1] + x[0]))")
    report = compare(unary(inside), unary(outside), EXPONENT)
    assert not report.ok and not report.decided and "5 exponentials" in report.problem
    assert compare(unary(inside), unary(inside), EXPONENT).ok
    assert compare(unary(inside), unary(outside)).decided, "without the law there is nothing to know"


def test_rounding_to_another_dtype_is_opaque() -> None:
    text = "kernel f(x) -> y\nx f64 [4] heap\nt f32 [4] heap\ny f64 [4] heap\n\n"
    text += "4 t[{0}] = f32(x[{0}])\n4 y[{0}] = "
    assert not compare(text + "f64(t[{0}])", text + "x[{0}]").ok
    assert compare(text + "f64(t[{0}]) + 1", text + "1 + f64(t[{0}])").ok


def test_integers_run_exactly() -> None:
    assert compare(unary("x[{0}] * 2", "i8"), unary("x[{0}] + x[{0}]", "i8")).ok
    assert compare(unary("max(x[{0}], x[{0}])", "i32"), unary("x[{0}]", "i32")).ok
    assert not compare(unary("x[{0}] / 2 * 2", "i32", 32), unary("x[{0}]", "i32", 32)).ok


def test_infinities() -> None:
    assert compare(unary("exp(-inf - x[{0}])"), unary("0")).ok
    assert compare(unary("max(x[{0}], -inf)"), unary("min(x[{0}], inf)")).ok
    assert compare(unary("-inf"), unary("-inf - x[{0}]")).ok
    used_otherwise = ("x[{0}] - -inf", "x[{0}] * -inf", "max(x[{0}], inf)", "exp(inf)", "-inf / x[{0}]")
    for wrong in (*used_otherwise, "sqrt(inf)", "abs(-inf)", "-(inf)"):
        report = compare(unary("x[{0}]"), unary(wrong))
        assert not report.ok and "has no value in the random models" in report.problem, wrong
        assert "the original program" in compare(unary(wrong), unary("x[{0}]")).problem
    with pytest.raises(OutsideModel):
        RandomModel(0).operation("add", "f32")(1, RandomModel(0).literal(float("inf"), "f32"))


# -- pairs of programs -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", PAIRS)
def test_transformed_forms_agree_under_their_laws(name: str) -> None:
    original, transformed, laws = PAIRS[name]
    report = compare(original, transformed, *laws)
    assert report == ExactReport(True, 2, report.schedules) and "forward" in report.schedules


def test_one_division_a_row_needs_its_law() -> None:
    original, transformed, laws = PAIRS["softmax_partial"]
    assert laws == {RECIPROCAL}
    assert compare(original, transformed, RECIPROCAL).ok
    report = compare(original, transformed)
    assert not report.ok and report.mismatch is not None
    assert (report.mismatch.output, report.mismatch.index) == ("y", (0, 0))


def test_a_declared_law_does_not_hide_a_wrong_index() -> None:
    original, transformed, _ = PAIRS["softmax_partial"]
    wrong = transformed.replace("* r[{0}]", "* r[0]").replace("r f32 [8:N]", "r f32 [8]")
    assert not compare(original, wrong, RECIPROCAL).ok


def test_a_dropped_iteration_of_a_maximum_is_seen_in_every_model() -> None:
    """In an idempotent model the dropped element matters only where it happens to be the largest."""
    whole = programs.ROW_MAX.replace("4,9", "1,9").replace("[4]", "[1]").replace("\n4\n", "\n1\n")
    dropped = whole.replace("| 9", "| 8")
    seeds = range(12)
    assert not any(compare(whole, dropped, models=1, seed=s).ok for s in seeds)
    assert any(compare(whole, dropped, IDEMPOTENT_MAX, models=1, seed=s).ok for s in seeds)


def test_an_iteration_run_twice_is_seen_unless_idempotence_is_declared() -> None:
    twice = programs.ROW_MAX + "4 y[{0}] max= x[{0},3]\n"
    assert not compare(programs.ROW_MAX, twice).ok
    assert compare(programs.ROW_MAX, twice, IDEMPOTENT_MAX).ok


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("matmul_tiled", "| 6 4:u", "| 5 4:u"),
        ("matmul_tiled", "a[{0}*4+{3},{2}]", "a[{0}*3+{3},{2}]"),
        ("softmax_fused", "| s[{0}] = 0", "| s[{0}] = 1"),
        ("softmax_fused", "| 2 8:v s[{0}] +=", "| 2 7:v s[{0}] +="),
        ("layernorm_fused", "d[{0},{1}] * d[{0},{1}]", "d[{0},{1}] * d[{0},0]"),
        ("layernorm_fused", "1e-05", "1e-06"),
        ("relu_tail", "y[{0}+39] = max(x[{0}+39]", "y[{0}+39] = max(x[{0}+38]"),
    ],
)
def test_small_mistakes_are_seen(name: str, right: str, wrong: str) -> None:
    original, transformed, laws = PAIRS[name]
    assert right in transformed
    assert not compare(original, transformed.replace(right, wrong), *laws, models=1).ok


def test_a_malformed_program_is_a_failed_report() -> None:
    partial = compare(programs.RELU, programs.RELU.replace("\n48 y", "\n47 y"))
    assert not partial.ok and partial.problem == (
        "the transformed program (forward schedule): output y[47] is never written"
    )
    early = programs.TOTAL_PARTIAL.replace("4 q[{0}] = 0", "3 q[{0}] = 0")
    assert "c1 reads q[3] (as q[{0}]) before it is written" in compare(programs.TOTAL, early).problem
    outside = program(programs.RELU)
    scope = outside.body[0]
    assert isinstance(scope, Scope)
    outside = replace(outside, body=(replace(scope, size=50),))
    assert "reaches 0 .. 49" in verify_exact(program(programs.RELU), outside).problem


def test_interfaces_must_agree() -> None:
    report = compare(programs.RELU, programs.RELU.replace("48", "32"))
    assert not report.ok and report.models == 0 and "interfaces differ" in report.problem


def test_an_unknown_law_is_an_error_with_a_hint() -> None:
    with pytest.raises(VerificationError) as caught:
        compare(programs.RELU, programs.RELU, "x/y = x(1/y)")
    assert caught.value.code == "PD-V006" and RECIPROCAL in caught.value.hint


# -- planted races ---------------------------------------------------------------------------------


class Planted(NamedTuple):
    original: Program
    parallel: Program
    path: Path
    """Path of the scope that was made parallel."""


def planted() -> Iterator[tuple[str, Planted]]:
    """Every scope of every program, mapped to threads whether that is right or not.

    All storage is on the heap, as other locations refuse to be shared at all.
    """
    names = {k for k in vars(programs) if k.isupper() and isinstance(getattr(programs, k), str)}
    for name in sorted(names):
        text = re.sub(r"\] (stack|reg|nt)\b", "] heap", getattr(programs, name))
        original = program(text)
        for path, node in original.walk():
            if isinstance(node, Scope) and not node.suffix and node.size > 1:
                scope = replace(node, suffix="p")
                yield f"{name}-{node.id}", Planted(original, original.replaced(path, (scope,)), path)


def races(parallel: Program, path: Path) -> bool:
    """By brute force: do two iterations of the scope touch one cell of a shared buffer, one writing?"""
    level = len(path) - 1
    for buffer in parallel.buffers:
        owned = owner(parallel, buffer, DIALECT)
        if owned is not None and len(owned) >= len(path) and owned[: len(path)] == path:
            continue
        touched: dict[tuple[object, ...], set[tuple[int, bool]]] = {}
        for o in parallel.occurrences[buffer.name]:
            if o.path[: len(path)] == path:
                cell = buffer.address(o.access.subscripts)
                for iterators in product(*map(range, o.sizes)):
                    key = (iterators[:level], cell.evaluate(iterators))
                    touched.setdefault(key, set()).add((iterators[level], o.writes))
        for touches in touched.values():
            if any(a[0] != b[0] and (a[1] or b[1]) for a, b in combinations(touches, 2)):
                return True
    return False


PLANTED = dict(planted())


@pytest.mark.parametrize("name", PLANTED)
def test_a_race_is_seen_and_only_a_race(name: str) -> None:
    original, parallel, path = PLANTED[name]
    report = verify_exact(original, parallel, (), DIALECT, models=1)
    assert report.ok == (not races(parallel, path)), report.problem


def test_planted_races_are_many_and_a_run_in_order_sees_none() -> None:
    racing = [(o, p) for o, p, path in PLANTED.values() if races(p, path)]
    assert len(racing) >= 15 and len(PLANTED) - len(racing) >= 10
    model = RandomModel(0)
    for original, parallel in racing:
        inputs = model.inputs(original)
        expected = Interpreter(original, DIALECT).run(inputs, model)
        assert Interpreter(parallel, DIALECT).run(inputs, model, FORWARD) == expected


def test_a_temporary_shared_by_threads_is_seen() -> None:
    """The same contraction is right where the temporary's accesses lie inside the parallel scope."""
    text = "kernel f(x) -> y\nx f32 [4] heap\nt f32 [4:N] heap\ny f32 [4] heap\n\n"
    private = text + "4:p\n| t[{0}] = x[{0}] * 2\n| y[{0}] = t[{0}] + 1"
    shared = text + "t[0] = 0\n4:p\n| t[{0}] = x[{0}] * 2\n| y[{0}] = t[{0}] + 1"
    plain = private.replace(":p", "").replace(":N", "")
    assert compare(plain, private).ok
    report = compare(plain, shared)
    assert not report.ok and report.mismatch and report.mismatch.schedule.order == "lockstep"


# -- traces ----------------------------------------------------------------------------------------


def test_a_softmax_game() -> None:
    trace = Trace(program(programs.SOFTMAX)).play_all(RULES, SOFTMAX_MOVES)
    assert "8:p" in trace.program.text and trace.laws == {RECIPROCAL}
    report = verify_exact_trace(trace, DIALECT)
    assert report.ok and report.problem == ""
    assert len(report.steps) == len(SOFTMAX_MOVES)
    assert "random(0)" in report.end.schedules and report.steps[0].schedules == ("forward",)


def test_each_step_has_its_own_laws_only() -> None:
    trace = Trace(program(programs.SOFTMAX)).play_all(RULES, SOFTMAX_MOVES)
    guilty = next(k for k, s in enumerate(trace.steps) if s.legal.laws)
    steps = list(trace.steps)
    steps[guilty] = replace(steps[guilty], legal=replace(steps[guilty].legal, laws=frozenset()))
    report = verify_exact_trace(replace(trace, steps=tuple(steps)), DIALECT)
    assert [k for k, s in enumerate(report.steps) if not s.ok] == [guilty]
    assert not report.ok and report.problem.startswith(f"step {guilty}: y[0,0] differs")


def test_a_wrong_move_is_seen_at_its_step() -> None:
    reuse = GENERIC["reuse_dims"]
    for requirement in reuse.requirements:
        reuse = reuse.without(requirement.code)
    rules = Rules(DIALECT, {**GENERIC, "reuse_dims": reuse})
    trace = Trace(program(programs.SOFTMAX)).play_all(rules, [Move.of("reuse_dims", "m", dim=0)])
    report = verify_exact_trace(trace, DIALECT)
    assert not report.ok and not report.end.ok and report.problem.startswith("step 0: y[0,0] differs")

"""The exact leg: programs that the random models accept and refuse, and the same games at a reduced shape."""

from __future__ import annotations

import gc
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
from perfdojo_sdk.verify import reduced as reduced_games
from perfdojo_sdk.verify.exact import ExactReport, verify_exact, verify_exact_trace
from perfdojo_sdk.verify.extents import extents, with_few_rows
from perfdojo_sdk.verify.mixing import FIELDS, PRIME
from perfdojo_sdk.verify.models import (
    EXPONENT,
    IDEMPOTENT_MAX,
    RECIPROCAL,
    Constant,
    OutsideModel,
    RandomModel,
)
from perfdojo_sdk.verify.reduced import Reduction, reduce_trace, statement_instances
from tests import programs
from tests.programs import DIALECT, PAIRS, program

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

SOFTMAX_MOVES = [
    Move.of("join_scopes", "s0"),
    Move.of("join_scopes", "s0"),
    Move.of("join_scopes", "s0"),
    Move.of("reuse_dims", "m", dim=0),
    Move.of("reuse_dims", "e", dim=0),
    Move.of("reuse_dims", "s", dim=0),
    Move.of("stage_reciprocal", "s7", array="s"),
    Move.of("split_scope", "s7", factor=8),
    Move.of("annotate_scope", "s7.i", suffix="v"),
    Move.of("annotate_scope", "s0", suffix="p"),
]


def large(text: str, **sizes: int) -> Program:
    """A shared program with other sizes: ``large(SOFTMAX, _8=24576)`` replaces 8."""
    for old, new in sizes.items():
        text = text.replace(f"[{old[1:]}", f"[{new}").replace(f",{old[1:]}]", f",{new}]")
        text = text.replace(f"\n{old[1:]}", f"\n{new}").replace(f" {old[1:]} ", f" {new} ")
    return program(text)


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


# -- reduced shapes --------------------------------------------------------------------------------


def test_a_large_softmax_shrinks_with_its_moves() -> None:
    trace = Trace(large(programs.SOFTMAX, _8=24576, _16=512)).play_all(RULES, SOFTMAX_MOVES)
    assert statement_instances(trace.root) > 50_000_000
    reduced = reduce_trace(trace, RULES, 20_000)
    assert reduced.moves == trace.moves and reduced.laws == trace.laws
    assert reduced.root.buffer_of["y"].shape == (2, 512)
    assert statement_instances(reduced.program) <= 20_000
    ids = [[(p, n.id, getattr(n, "suffix", "")) for p, n in t.program.walk()] for t in (trace, reduced)]
    assert ids[0] == ids[1]
    assert verify_exact_trace(reduced, DIALECT, models=1).ok


LARGE_MATMUL = program(
    "kernel mm(a, b) -> c\na f32 [768,1024] heap\nb f32 [1024,512] heap\nc f32 [768,512] heap\n\n"
    "768 512\n| c[{0},{1}] = 0\n| 1024 c[{0},{1}] += a[{0},{2}] * b[{2},{1}]"
)


def test_tiles_keep_at_least_two_iterations() -> None:
    rows, columns = Move.of("split_scope", "s0", factor=12), Move.of("split_scope", "s1", factor=32)
    trace = Trace(LARGE_MATMUL).play_all(RULES, [rows, columns])
    reduced = reduce_trace(trace, RULES, 1)
    assert reduced.root.buffer_of["c"].shape == (4, 4)
    assert reduced.root.buffer_of["a"].shape == (4, 2)
    assert [move["factor"] for move in reduced.moves] == [2, 2]
    assert verify_exact_trace(reduced, DIALECT, models=1).ok


def test_tiles_keep_their_factors_where_the_root_alone_is_small_enough() -> None:
    trace = Trace(large(programs.RELU, _48=4800)).play(RULES, Move.of("split_scope", "s0", factor=16))
    reduced = reduce_trace(trace, RULES, 32)
    assert reduced.root.buffer_of["x"].shape == (32,) and reduced.moves == trace.moves


EMBEDDING = (
    "kernel embed(t, k) -> y\nt f32 [{0},16] heap\nk i64 [12] heap\ny f32 [12,16] heap\n\n"
    "12 16 y[{{0}},{{1}}] = t[clamp({1}, 0, {2}),{{1}}]"
)
CHOICES = {"wrapped": "select(k[{0}] < 0, k[{0}] + 30000, k[{0}])", "plain": "k[{0}]"}


@pytest.mark.parametrize("choice", CHOICES.values(), ids=CHOICES)
def test_few_rows_stay_of_a_table_whose_rows_are_chosen(choice: str) -> None:
    trace = Trace(program(EMBEDDING.format(30000, choice, 29999)))
    trace = trace.play(RULES, Move.of("split_scope", "s0", factor=4))
    reduced = reduce_trace(trace, RULES, 3000)
    assert reduced.moves == trace.moves and reduced.root.buffer_of["t"].shape == (8, 16)
    assert reduced.root.text.strip() == EMBEDDING.format(8, choice.replace("30000", "8"), 7)
    assert verify_exact_trace(reduced, DIALECT, models=1).ok


@pytest.mark.parametrize("form", ["clamp(k[{0}], 0, 500)", "{0}", "clamp(k[{0}], 0, 29987)+{0}"])
def test_a_table_that_is_read_otherwise_keeps_its_rows(form: str) -> None:
    text = EMBEDDING.format(30000, "k[{0}]", 29999).replace("clamp(k[{0}], 0, 29999)", form)
    trace = Trace(program(text))
    assert with_few_rows(trace.root) is trace.root and reduce_trace(trace, RULES, 3000) is trace


def test_a_cut_near_the_end_of_a_range_moves_with_the_end() -> None:
    cut = Move.of("split_range", "s0", at=4795)
    tile = Move.of("split_scope", "s0.a", factor=5)
    trace = Trace(large(programs.RELU, _48=4800)).play_all(RULES, [cut, tile])
    reduced = reduce_trace(trace, RULES, 1)
    assert reduced.root.buffer_of["x"].shape == (6,)
    assert [dict(move.parameters) for move in reduced.moves] == [{"at": 4}, {"factor": 2}]


def test_nests_over_one_array_that_are_cut_alike_shrink_together() -> None:
    root = program(
        "kernel f(x) -> y\nx f32 [300] heap\nt f32 [300] heap\ny f32 [300] heap\n\n"
        "300 t[{0}] = exp(x[{0}])\n300 y[{0}] = t[{0}] * x[{0}]"
    )
    moves = [
        move
        for nest in ("s0", "s1")
        for move in (
            Move.of("split_range", nest, at=288),
            Move.of("split_range", f"{nest}.b", at=8),
            Move.of("split_scope", f"{nest}.a", factor=32),
        )
    ]
    reduced = reduce_trace(Trace(root).play_all(RULES, moves), RULES, 1)
    assert reduced.root.buffer_of["x"].shape == (4 + 2 + 2,)
    factors = [{"at": 4}, {"at": 2}, {"factor": 2}]
    assert [dict(move.parameters) for move in reduced.moves] == factors * 2
    assert verify_exact_trace(reduced, DIALECT, models=1).ok


SLIDING = (
    "kernel f(x) -> y\nx f32 [405] heap\ny f32 [400] heap\n\n"
    "400\n| y[{0}] = 0\n| 6 y[{0}] += exp(x[{0}+{1}]) * x[{1}]"
)


def test_an_array_with_a_border_shrinks_with_what_fills_the_rest_of_it() -> None:
    """Seen in transposed convolutions: the copy of an image of 32 x 32 into one of 33 x 33 stayed large."""
    root = program("kernel f(x) -> t\nx f32 [32] heap\nt f32 [33] heap\n\n33 t[{0}] = 0\n32 t[{0}] = x[{0}]")
    assert [extent.size for extent in extents(root)] == [32]
    trace = Trace(root).play(RULES, Move.of("split_range", "s0", at=32))
    reduced = reduce_trace(trace, RULES, 1)
    assert reduced.root.buffer_of["t"].shape == (3,)
    assert verify_exact_trace(reduced, DIALECT, models=1).ok


def test_a_game_of_the_same_sizes_is_made_as_small_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def tiled(name: str, *factors: int) -> Trace:
        root = program(
            f"kernel f(x) -> y\nx f32 [64] heap\ny f32 [64] heap\n\n64 y[{{0}}] = {name}(x[{{0}}])"
        )
        splits = [Move.of("split_scope", "s0" + ".i" * k, factor=f) for k, f in enumerate(factors)]
        return Trace(root).play_all(RULES, splits)

    first, second = tiled("exp", 16, 4), tiled("sqrt", 16, 4)
    like = Reduction(first, reduce_trace(first, RULES, 8))
    tries, attempted = list[object](), reduced_games._Game.attempted
    monkeypatch.setattr(
        reduced_games._Game, "attempted", lambda *given: (tries.append(given), attempted(*given))[1]
    )
    reduced = reduce_trace(second, RULES, 8, like)
    assert len(tries) == 1 and reduced.moves == like.small.moves
    assert reduced.root.buffer_of["x"].shape == like.small.root.buffer_of["x"].shape == (8,)
    # Where counts differ, the game is another one.
    assert reduced_games._Game(tiled("sqrt", 32, 4), RULES).as_small(tiled("sqrt", 32, 4), like) is None


def test_a_range_and_the_window_that_slides_over_it_are_cut_and_shrink_together() -> None:
    """Seen in convolutions: a copy of the window has a size of its own, and was cut at a place of its own."""
    staged = Trace(program(SLIDING)).play(RULES, Move.of("stage_sliding", "c1", before="s0", term=1))
    copy = staged.program.body[0].id
    lanes = [Move.of("split_range", copy, at=392), Move.of("annotate_scope", f"{copy}.b", suffix="v")]
    tiles = [Move.of("split_range", "s0", at=396), Move.of("split_scope", "s0.a", factor=6)]
    trace = staged.play_all(RULES, [*lanes, *tiles])
    reduced = reduce_trace(trace, RULES, 1)
    assert reduced.root.buffer_of["y"].shape == (4 + 2,)
    assert [move[name] for move, name in zip(reduced.moves[3:], ("at", "factor"), strict=True)] == [4, 2]
    assert verify_exact_trace(reduced, DIALECT, models=1).ok


def test_a_cut_follows_its_range_and_is_never_tried_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most attempts were cuts only, in vain: the filters of a convolution took half a minute."""
    cuts, place = list[Move](), "s0"
    for at in (4000, 600, 80):
        cuts.append(Move.of("split_range", place, at=at))
        place += ".b"
    trace = Trace(large(programs.RELU, _48=4800)).play_all(RULES, cuts)
    tries, attempted = list[object](), reduced_games._Game.attempted
    monkeypatch.setattr(
        reduced_games._Game, "attempted", lambda *given: (tries.append(given), attempted(*given))[1]
    )
    reduced = reduce_trace(trace, RULES, 1)
    assert reduced.root.buffer_of["x"].shape == (2 + 2 + 2 + 2,)
    assert [move["at"] for move in reduced.moves] == [2, 2, 2]
    assert len(tries) < 20


def test_a_cut_inside_a_tile_comes_to_an_end() -> None:
    """Found by a search that never came back: the tile's size stands nowhere in the root, and a cut that
    left everything as it was counted as shorter."""
    moves = [Move.of("split_scope", "s0", factor=4), Move.of("split_range", "s0.i", at=1)]
    trace = Trace(large(programs.RELU, _48=4800)).play_all(RULES, moves)
    reduced = reduce_trace(trace, RULES, 1)
    assert reduced.root.buffer_of["x"].shape == (6,)
    assert [dict(move.parameters) for move in reduced.moves] == [{"factor": 3}, {"at": 1}]
    assert verify_exact_trace(reduced, DIALECT, models=1).ok


PADDED = program(
    "kernel conv(x, w) -> y\nx f32 [8,48] heap\nw f32 [16,8,3] heap\ny f32 [16,48] heap\n\n"
    "16 48\n| y[{0},{1}] = 0\n"
    "| 8 3 y[{0},{1}] += x[{2},{1}+{3}-1] * w[{0},{2},{3}] if {1}+{3} >= 1 and {1}+{3} < 49"
)


def test_padding_keeps_its_place_at_both_ends_of_a_range_that_shrinks() -> None:
    trace = Trace(PADDED).play(RULES, Move.of("split_scope", "s0", factor=8))
    reduced = reduce_trace(trace, RULES, 1)
    assert reduced.root.buffer_of["y"].shape == (4, 2) and reduced.root.buffer_of["w"].shape == (4, 2, 2)
    # The first tap of the first result and the last tap of the last one lie outside, as before.
    assert reduced.root.buffer_of["x"].shape == (2, 1)
    statement = reduced.root.body[0].leaves[1].statement
    assert [form.bounds((4, 2, 2, 2)) for form in statement.guard] == [(-1, 1), (-1, 1)]
    assert verify_exact_trace(reduced, DIALECT, models=1).ok


def test_results_that_are_written_in_phases_shrink_together() -> None:
    """A dimension of 21 elements in two phases, of 11 and of 10, and channels in four groups of two."""
    root = program(
        "kernel phases(x) -> y\nx f32 [8,11] heap\ny f32 [8,21] heap\n\n"
        "4 2 11 y[{0}*2+{1},{2}*2] = x[{0}*2+{1},{2}]\n4 2 10 y[{0}*2+{1},{2}*2+1] = x[{0}*2+{1},{2}]"
    )
    found = {(extent.size, max(extent.places.values())) for extent in extents(root)}
    assert found == {(10, 2), (4, 2)}
    reduced = reduce_trace(Trace(root).play(RULES, Move.of("swap_scopes", "s0")), RULES, 1)
    assert reduced.root.buffer_of["y"].shape == (4, 5) and reduced.root.buffer_of["x"].shape == (4, 3)
    assert verify_exact_trace(reduced, DIALECT, models=1).ok


def test_steps_that_do_not_fill_a_dimension_tell_nothing_about_its_size() -> None:
    root = program(
        "kernel steps(x) -> y\nx f32 [8] heap\ny f32 [24] heap\n\n24 y[{0}] = 0\n8 y[{0}*2] = x[{0}]"
    )
    assert all(extent.size != 24 for extent in extents(root))
    assert not [e for e in extents(root) if ("y", 0) in e.places]


def test_what_reads_an_input_in_parts_shrinks_without_it() -> None:
    """Two gates whose weights lie in one array: their rows stay, what is computed of them has fewer."""
    root = program(
        "kernel gates(x, w) -> y\nx f32 [32] heap\nw f32 [96] heap\ny f32 [32] heap\n\n"
        "32 y[{0}] = x[{0}] * w[{0}] + w[{0}+48]"
    )
    reduced = reduce_trace(Trace(root).play(RULES, Move.of("split_scope", "s0", factor=4)), RULES, 8)
    assert [reduced.root.buffer_of[name].shape for name in "xwy"] == [(8,), (96,), (8,)]
    assert verify_exact_trace(reduced, DIALECT, models=1).ok


def test_what_runs_backwards_shrinks_from_its_end() -> None:
    root = program(
        "kernel backwards(x) -> y\nx f32 [96,2] heap\nt f32 [96,2] heap\ny f32 [96,2] heap\n\n"
        "96 2 t[{0},{1}] = x[{0},{1}] * 2\n96 2 y[-{0}+95,{1}] = t[-{0}+95,{1}]"
    )
    reduced = reduce_trace(Trace(root).play(RULES, Move.of("swap_scopes", "s2")), RULES, 1)
    assert [reduced.root.buffer_of[name].shape for name in "xty"] == [(2, 2)] * 3
    assert "y[-{0}+1,{1}] = t[-{0}+1,{1}]" in reduced.root.text
    assert verify_exact_trace(reduced, DIALECT, models=1).ok
    # A read that begins elsewhere tells nothing about the size of what it reads.
    part = program("kernel part(x) -> y\nx f32 [96] heap\ny f32 [64] heap\n\n64 y[-{0}+63] = x[-{0}+80]")
    assert reduce_trace(Trace(part), RULES, 1).root.buffer_of["x"].shape == (96,)


def test_a_part_shrinks_within_the_margin_of_what_it_writes_into() -> None:
    """The inner part of an array with a border, as the game of a part has it: its other cells keep their
    values, or what is written to all of them. Where they would stay unwritten, nothing shrinks."""
    text = "kernel inner(x, @t) -> t\nx f32 [96] heap\nt f32 [98] heap\n\n96 t[{0}+1] = x[{0}] * 2"
    reduced = reduce_trace(Trace(program(text.replace("@", ""))), RULES, 1)
    assert [reduced.root.buffer_of[name].shape for name in "xt"] == [(2,), (4,)]
    assert verify_exact_trace(reduced, DIALECT, models=1).ok
    bordered = text.replace(", @t", "").replace("96 t[", "98 t[{0}] = 0\n96 t[")
    reduced = reduce_trace(Trace(program(bordered)), RULES, 1)
    assert [reduced.root.buffer_of[name].shape for name in "xt"] == [(2,), (4,)]
    assert verify_exact_trace(reduced, DIALECT, models=1).ok
    assert all(extent.size != 96 for extent in extents(program(text.replace(", @t", ""))))


BORDERED = program(
    "kernel conv(x, w) -> y\nx f32 [200] heap\nw f32 [3] heap\nt f32 [202] heap\ny f32 [100] heap\n\n"
    "202 t[{0}] = 0\n200 t[{0}+1] = x[{0}]\n"
    "100\n| y[{0}] = 0\n| 3 y[{0}] += t[{0}*2+{1}] * w[{1}]"
)


def test_an_image_shrinks_after_the_windows_that_slide_over_its_border() -> None:
    """Seen in the first layer of an image network: copying its image took a minute in the exact leg."""
    trace = Trace(BORDERED).play(RULES, Move.of("split_scope", "s2", factor=20))
    reduced = reduce_trace(trace, RULES, 1)
    sizes = [reduced.root.buffer_of[name].shape for name in "xtwy"]
    assert sizes == [(6,), (8,), (2,), (4,)] and dict(reduced.moves[0].parameters) == {"factor": 2}
    assert verify_exact_trace(reduced, DIALECT, models=1).ok


def test_sizes_that_a_tile_cannot_fit_are_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = Trace(large(programs.RELU, _48=4800)).play(RULES, Move.of("split_scope", "s0", factor=20))
    tries, attempted = list[object](), reduced_games._Game.attempted
    monkeypatch.setattr(
        reduced_games._Game, "attempted", lambda *given: (tries.append(given), attempted(*given))[1]
    )
    game = reduced_games._Game(trace, RULES)
    smaller = reduced_games._smaller_root(trace, game, 1)
    assert smaller.root.buffer_of["x"].shape == (40,) and len(tries) == 2


def test_tiles_that_are_alike_shrink_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each alone keeps the loops from being joined: 200 tries in vain for a concatenation."""
    root = program(
        "kernel two(x) -> y, z\nx f32 [4800] heap\ny f32 [4800] heap\nz f32 [4800] heap\n\n"
        "4800 y[{0}] = x[{0}] + 1\n4800 z[{0}] = x[{0}] * 2"
    )
    splits = [Move.of("split_scope", place, factor=20) for place in ("s0", "s1")]
    joins = [Move.of("join_scopes", "s0.o"), Move.of("join_scopes", "s0.i")]
    trace = Trace(root).play_all(RULES, [*splits, *joins])
    tries, attempted = list[object](), reduced_games._Game.attempted
    monkeypatch.setattr(
        reduced_games._Game, "attempted", lambda *given: (tries.append(given), attempted(*given))[1]
    )
    counts = []
    for at_once in (True, False):
        reduced = reduce_trace(trace, RULES, 1, alike_at_once=at_once)
        assert [dict(move.parameters) for move in reduced.moves[:2]] == [{"factor": 2}] * 2
        assert reduced.root.buffer_of["x"].shape == (4,)
        counts.append(len(tries))
        tries.clear()
    assert counts[0] < counts[1] / 2


def test_what_made_one_game_small_makes_the_next_one_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """One try for a game with one move more; where it does not fit, what would have been without it."""
    tiles = [Move.of("split_scope", f"s{k}", factor=32) for k in range(2)]
    trace = Trace(LARGE_MATMUL).play_all(RULES, tiles)
    known = Reduction(trace, reduce_trace(trace, RULES, 1))
    longer = trace.play(RULES, Move.of("annotate_scope", trace.program.body[0].id, suffix="p"))
    other = Trace(LARGE_MATMUL).play_all(RULES, [tiles[0], Move.of("split_scope", "s1", factor=8)])
    found = [reduce_trace(game, RULES, 1) for game in (longer, other)]
    tries, attempted = list[object](), reduced_games._Game.attempted
    monkeypatch.setattr(
        reduced_games._Game, "attempted", lambda *given: (tries.append(given), attempted(*given))[1]
    )
    again = reduce_trace(longer, RULES, 1, known)
    assert len(tries) == 1
    for one, two in zip(found, [again, reduce_trace(other, RULES, 1, known)], strict=True):
        assert (one.root, one.moves, one.program) == (two.root, two.moves, two.program)


def test_a_small_trace_comes_back_as_it_is() -> None:
    trace = Trace(program(programs.SOFTMAX)).play_all(RULES, SOFTMAX_MOVES)
    assert reduce_trace(trace, RULES, 10**6) is trace


def test_without_moves_the_root_shrinks() -> None:
    reduced = reduce_trace(Trace(large(programs.RELU, _48=4800)), RULES, 100)
    assert reduced.root.buffer_of["x"].shape == reduced.root.buffer_of["y"].shape == (2,)


def test_extents_unify_what_one_iterator_indexes() -> None:
    found = extents(program(programs.MATMUL))
    assert [set(e.places) for e in found if e.size == 6] == [{(0, 0, 1), ("a", 1), ("b", 0)}]
    rows_and_columns = [e.places for e in found if e.size == 8]
    assert len(rows_and_columns) == 2 and rows_and_columns[0].keys().isdisjoint(rows_and_columns[1])


@pytest.mark.parametrize(("size", "window"), [(69, 7), (70, 70)], ids=["filled", "with a margin"])
def test_other_subscripts_pin_what_they_touch(size: int, window: int) -> None:
    """A window reads x[i + j]: x follows the loops where they fill it; y shrinks with its own loop."""
    text = "kernel f(x) -> y\nx f32 [@] heap\ny f32 [64] heap\n\n64\n| y[{0}] = 0\n| 6 y[{0}] += x[{0}+{1}]"
    reduced = reduce_trace(Trace(program(text.replace("@", str(size)))), RULES, 20)
    assert (reduced.root.buffer_of["x"].shape, reduced.root.buffer_of["y"].shape) == ((window,), (2,))
    twice = "kernel f(x) -> y\nx f32 [64] heap\ny f32 [127] heap\n\n64 y[126-{0}*2] = x[{0}]"
    assert extents(program(twice)) == []


def test_cycles_are_looked_for_less_often_while_a_game_is_made_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Long games are kept meanwhile: looking through them again and again took most of the time."""
    usual, seen = gc.get_threshold(), list[tuple[int, ...]]()

    def instances(trace: Trace) -> int:
        seen.append(gc.get_threshold())
        return 0

    monkeypatch.setattr("perfdojo_sdk.verify.reduced._instances", instances)
    reduce_trace(Trace(program(programs.SOFTMAX), ()), RULES, 1)
    assert seen and all(threshold > usual for threshold in seen)
    assert gc.get_threshold() == usual

"""Reads of tables that a move may write out, and wrong ones that no leg lets pass."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256
from itertools import product
from pathlib import Path
from random import Random

import numpy as np
import pytest
from snippets import DIALECT, RULES, move, play, refusal, tree
from test_made_targets import target as made_target

from perfdojo_sdk.codegen.c import CEmitter
from perfdojo_sdk.core.dialect import CORE_DIALECT
from perfdojo_sdk.core.domains import ROUNDING
from perfdojo_sdk.core.expression import LEVELS
from perfdojo_sdk.core.interpreter import interpret
from perfdojo_sdk.core.known_elements import run_of
from perfdojo_sdk.core.program import Program, Statement
from perfdojo_sdk.core.text import parse
from perfdojo_sdk.core.transformation import Instance, Kind, Move, Rejection, Removed, Rules, Step, Trace
from perfdojo_sdk.core.transformations import GENERIC
from perfdojo_sdk.experts.cpu.known_tables import fold_tables
from perfdojo_sdk.experts.cpu.planner import plan
from perfdojo_sdk.hookspecs.types import Artifact
from perfdojo_sdk.measure.native_runner import NativeRunner
from perfdojo_sdk.search.play import Play
from perfdojo_sdk.testing.programs import random_program
from perfdojo_sdk.testing.walks import random_walk
from perfdojo_sdk.verify.dependence import verify_dependence, verify_dependence_trace, verify_races
from perfdojo_sdk.verify.exact import verify_exact, verify_exact_trace
from perfdojo_sdk.verify.numeric import verify_numeric
from perfdojo_sdk.verify.reduced import reduce_trace
from perfdojo_sdk.verify.tables import with_elements

RUNNER = NativeRunner(("-O1",))


def listed(values: object) -> str:
    return ", ".join(map(str, values))  # type: ignore[call-overload]


def kernel(statement: str, *tables: str, y: str = "y f32 [64] heap", x: str = "x f32 [64] heap") -> Program:
    declared = "\n".join((x, "k i32 [64] heap", *tables, y))
    return parse(f"kernel f(x, k) -> y\n{declared}\n\n64 y[{{0}}] = 0\n{statement}\n", DIALECT)


def folded(start: Program, read: int = 0) -> str:
    """The right side of the second statement after the move."""
    return tree(play(start, f"fold_table(c1, read={read})")).splitlines()[1].partition("= ")[2]


RUN = f"t table i32 [8] = {{{listed(range(3, 19, 2))}}}"
ODD = "t table i32 [8] = {3, 5, 7, 9, 11, 13, 15, 16}"
GRID = f"t table i16 [4,8] = {{{listed(20 + 8 * i - j for i in range(4) for j in range(8))}}}"
BYTES = f"t table i8 [8] = {{{listed(range(-128, -120))}}}"
LARGEST = f"t table u64 [8] = {{{listed([2**64 - 1] * 8)}}}"


@pytest.mark.parametrize(
    ("statement", "declared", "written"),
    [
        ("8 y[{0}] = x[t[{0}]]", RUN, "x[{0}*2+3]"),
        ("8 y[{0}] = x[t[7-{0}]]", RUN, "x[-{0}*2+17]"),
        ("8 y[{0}] = x[clamp(t[{0}], 0, 17)]", RUN, "x[{0}*2+3]"),
        ("8 y[{0}] = x[clamp(t[{0}]+{0}, 3, 24)*2+1]", RUN, "x[{0}*6+7]"),
        ("4 4 y[{0}*4+{1}] = x[t[{0}+{1}]*3-{1}]", RUN, "x[{0}*6+{1}*5+9]"),
        ("4 8 y[{0}*8+{1}] = x[t[{0},{1}]]", GRID, "x[{0}*8-{1}+20]"),
        ("4 8 y[{0}*8+{1}] = x[t[2,{1}]]", GRID, "x[-{1}+36]"),
        ("32 y[{0}] = x[t[{0}//8,0]]", GRID.replace("i16 [4,8]", "i32 [4,8]"), None),
        ("8 y[{0}] = x[t[{0}//8+2]]", RUN, "x[7]"),
        ("4 y[{0}] = x[t[({0}*2)%8]]", RUN, "x[{0}*4+3]"),
        ("8 y[{0}] = f32(t[{0}])", RUN, "f32(i32(index({0}*2+3)))"),
        ("8 y[{0}] = f32(t[{0}])", BYTES, "f32(i8(index({0}-128)))"),
        ("8 y[{0}] = select(t[{0}] < {0}, x[0], x[1])", RUN, "select(i32(index({0}*2+3)) < {0}, x[0], x[1])"),
        ("8 y[{0}] = f32(t[{0}] + k[{0}])", RUN, "f32(index({0}*2+3) + k[{0}])"),
        ("8 y[{0}] = f32(t[3] + k[{0}])", RUN, "f32(9 + k[{0}])"),
        ("8 y[{0}] = f32(t[{0}] + u64(x[{0}]))", LARGEST, f"f32({2**64 - 1} + u64(x[{{0}}]))"),
        ("8 y[{0}] = f32(t[{0}])", LARGEST, None),
        ("2 y[{0}] = t[{0}]", "t table f32 [2] = {0, -0}", None),
        ("2 y[{0}] = t[{0}]", "t table f32 [2] = {-0, -0}", "-0"),
        ("2 y[{0}] = x[{0}] * t[{0}]", "t table f32 [2] = {0, 0}", "x[{0}] * 0"),
        ("2 y[{0}] = t[{0}]", "t table f32 [2] = {1, 2}", None),
        ("2 y[{0}] = f32(t[{0}])", "t table f16 [2] = {2, 2}", None),
        ("2 y[{0}] = select(t[{0}] > 0, x[0], 0)", "t table f16 [2] = {2, 2}", "select(f16(2) > 0, x[0], 0)"),
        ("2 y[{0}] = select(t[{0}], x[0], 0)", "t table bool [2] = {1, 1}", "select(1, x[0], 0)"),
        ("2 y[{0}] = select(t[{0}], x[0], 0)", "t table bool [2] = {0, 1}", None),
        ("1 y[{0}] = x[t[{0}]]", "t table u8 [9] = {7, 0, 0, 1, 2, 4, 8, 9, 9}", "x[7]"),
        # What a clamp changes, one element beside the run, and what the caller chooses, stay.
        ("8 y[{0}] = x[clamp(t[{0}], 0, 16)]", RUN, None),
        ("8 y[{0}] = x[clamp(t[{0}], 4, 20)]", RUN, None),
        ("8 y[{0}] = x[clamp(t[{0}], 30, 40)]", RUN, "x[30]"),
        ("8 y[{0}] = x[t[{0}]]", ODD, None),
        ("7 y[{0}] = x[t[{0}]]", ODD, "x[{0}*2+3]"),
        ("8 y[{0}] = x[clamp(t[{0}]+k[{0}], 0, 9)]", RUN, None),
        # Narrow dtypes wrap on the way to an index: 127 + 1 is -128.
        ("8 y[{0}] = x[clamp(t[{0}]+100, 0, 63)]", f"t table i8 [8] = {{{listed(range(21, 29))}}}", None),
        ("7 y[{0}] = x[clamp(t[{0}]+100, 0, 63)]", f"t table i8 [8] = {{{listed(range(21, 29))}}}", "x[63]"),
        ("8 y[{0}] = x[clamp(t[{0}]+100, 0, 63)]", f"t table i8 [8] = {{{listed(range(28, 36))}}}", "x[0]"),
        ("8 y[{0}] = x[and(t[{0}], 7)]", RUN.replace("3, 5", "3, 4"), None),
        ("4 y[{0}] = x[and(t[{0}], 3)]", f"t table i64 [4] = {{{listed([1, 6, 3, 8])}}}", None),
        ("3 y[{0}] = x[and(t[{0}], 3)]", f"t table i64 [4] = {{{listed([1, 6, 7, 8])}}}", "x[{0}+1]"),
    ],
)  # fmt: skip
def test_reads_that_are_known(statement: str, declared: str, written: str | None) -> None:
    start = kernel(statement, declared)
    if written is None:
        assert refusal(start, "fold_table(c1, read=0)") in ("PD-T652", "PD-T655", "PD-T656")
        return
    assert folded(start) == written
    after = play(start, "fold_table(c1, read=0)")
    assert parse(after.text, DIALECT) == after
    x, k = [1.5 * i for i in range(64)], list(range(64))
    one, other = (interpret(p, {"x": x, "k": k}, ROUNDING)["y"] for p in (start, after))
    assert list(map(repr, one)) == list(map(repr, other))
    step = RULES.step(start, Move.of("fold_table", "c1", read=0))
    assert step.legal.kind is Kind.EXACT and not step.legal.laws
    for trace in (Trace(start, (step,)),):
        assert verify_exact_trace(trace, DIALECT).ok and verify_dependence_trace(trace, RULES)


def test_steps_beyond_any_subscript_stay() -> None:
    """A form of the iterators has no value above 2^56; a table of u64 may."""
    wide = f"t table u64 [2] = {{{2**63}, {2**63 + 1}}}"
    start = kernel("2 y[{0}] = f32(t[{0}] + u64(x[{0}]))", wide)
    assert refusal(start, "fold_table(c1, read=0)") == "PD-T657"
    constant = kernel("2 y[{0}] = f32(t[1] + u64(x[{0}]))", wide)
    assert folded(constant) == f"f32({2**63 + 1} + u64(x[{{0}}]))"


@pytest.mark.parametrize(
    "table",
    [
        "t table i64 [2] = {4294967296, 4294967297}",
        "t table u32 [2] = {0, 2147483648}",
        "t table i32 [2] = {-2147483648, -2147483647}",
    ],
)
def test_numbers_that_no_form_may_have_stay(table: str) -> None:
    """The text of a program has none above 2^31-1, and would not be read again."""
    assert refusal(kernel("2 y[{0}] = f32(t[{0}])", table), "fold_table(c1, read=0)") == "PD-T657"


@pytest.mark.parametrize(
    "value", ["f32(t[{0}])", "select(t[{0}] == 1, x[0], x[1])", "select(t[{0}], x[0], x[1])"]
)
def test_both_legs_know_a_table_of_conditions(value: str) -> None:
    start = kernel(f"2 y[{{0}}] = {value}", "t table bool [2] = {1, 1}")
    trace = Trace(start, (RULES.step(start, Move.of("fold_table", "c1", read=0)),))
    assert verify_exact_trace(trace, DIALECT).ok and verify_dependence_trace(trace, RULES)


def test_a_condition_does_not_make_elements_known() -> None:
    """The whole box counts: fold first, and split with a condition afterwards."""
    table = f"t table i32 [10] = {{{listed(range(4, 24, 2))}}}"
    start = kernel("10 y[{0}] = x[t[{0}]]", table)
    tail = play(start, "split_with_condition(s1, factor=4)")
    assert refusal(tail, "fold_table(c1, read=0)") == "PD-T653"
    after = play(start, "fold_table(c1, read=0)", "split_with_condition(s1, factor=4)")
    assert tree(after).splitlines()[1] == "3 4 y[{0}*4+{1}] = x[{0}*8+{1}*2+4] if {0}*4+{1} <= 9"
    inside = kernel("10 y[{0}] = x[t[{0}]] if {0} <= 3", table)
    assert folded(inside) == "x[{0}*2+4] if {0} <= 3"


def game(start: Program, *moves: str) -> Trace:
    trace = Trace(start)
    for text in moves:
        trace = replace(trace, steps=(*trace.steps, RULES.step(trace.program, move(text))))
    return trace


PIECES = f"t table i32 [32] = {{{listed([*range(20, 33), *range(63, 25, -2)])}}}"


def test_a_loop_is_cut_where_another_run_begins() -> None:
    """End to end: the refusal says where to cut, and lanes of neighbours follow."""
    start = kernel("32 y[{0}] = x[t[{0}]]", PIECES)
    refused = RULES.attempt(start, Move.of("fold_table", "c1", read=0))
    assert isinstance(refused, Rejection) and refused.established_by == ("split_range",)
    assert refused.refusal.iterator == "s1" and dict(refused.refusal.words)["cut"] == 13
    assert "split_range(s1, at=13)" in refused.hint and "t[{0}] is 63 where {0} is 13" in refused.why
    assert move("split_range(s1, at=13)") in list(RULES.candidates(start)), "searches are offered the cut"
    trace = game(
        start,
        "split_range(s1, at=13)", "fold_table(c1.a, read=0)", "fold_table(c1.b, read=0)",
        "annotate_scope(s1.a, suffix=v)",
    )  # fmt: skip
    assert tree(trace.program).splitlines()[1:] == ["13:v y[{0}] = x[{0}+20]", "19 y[{0}+13] = x[-{0}*2+63]"]
    assert verify_exact_trace(trace, DIALECT).ok and verify_dependence_trace(trace, RULES)


def test_what_is_written_by_a_table_becomes_a_plain_write() -> None:
    """Iterations that a table sends to different elements may then run in parallel."""
    table = f"t table i32 [32] = {{{listed(range(62, -1, -2))}}}"
    start = kernel("32 y[t[{0}]] = x[{0}]", table)
    assert refusal(start, "annotate_scope(s1, suffix=p)")
    trace = game(start, "fold_table(c1, read=0)", "annotate_scope(s1, suffix=p)")
    assert tree(trace.program).splitlines()[1] == "32:p y[-{0}*2+62] = x[{0}]"
    assert verify_exact_trace(trace, DIALECT).ok and verify_dependence_trace(trace, RULES)
    assert verify_races(trace.program, DIALECT)
    same = play(kernel("32 y[t[{0}]] = x[{0}]", f"t table i32 [32] = {{{listed([5] * 32)}}}"),
                "fold_table(c1, read=0)")  # fmt: skip
    assert refusal(same, "annotate_scope(s1, suffix=p)"), "all of them write one element"


BOTH = f"""\
kernel f(x, k) -> y, z
x f32 [64] heap
k i32 [8] heap
t table i16 [8] = {{{listed(range(14, -1, -2))}}}
w table f32 [8] = {{{listed([0.1] * 8)}}}
b table i8 [8] = {{{listed(range(-128, -88, 5))}}}
u table u64 [8] = {{{listed([2**64 - 1] * 8)}}}
y f32 [16] heap
z u64 [8] heap

16 y[{{0}}] = 0
8 y[t[{{0}}]] = x[clamp(t[{{0}}], 0, 14)*2] / w[{{0}}] + f32(b[{{0}}])
8 z[{{0}}] = u64(k[{{0}}]) + u[{{0}}]
"""


def test_all_three_legs_judge_a_kernel() -> None:
    trace = game(
        parse(BOTH, DIALECT),
        *[f"fold_table(c1, read={k})" for k in (3, 2, 1, 0)], "fold_table(c2, read=0)",
    )  # fmt: skip
    assert tree(trace.program).splitlines()[1:] == [
        "8 y[-{0}*2+14] = x[-{0}*4+28] / 0.1 + f32(i8(index({0}*5-128)))",
        f"8 z[{{0}}] = u64(k[{{0}}]) + {2**64 - 1}",
    ]
    assert verify_exact_trace(trace, DIALECT).ok and verify_dependence_trace(trace, RULES)
    artifact = RUNNER.compile(CEmitter(trace.program, "k", CORE_DIALECT).source())
    assert isinstance(artifact, Artifact), artifact
    report = verify_numeric(trace.root, trace.program, artifact, RUNNER, {}, CORE_DIALECT, quick=True)
    assert not report.problem, report.problem


def test_a_kernel_without_a_use_of_its_table_does_not_carry_it() -> None:
    start = kernel("8 y[{0}] = x[t[{0}]]", RUN)
    after = play(start, "fold_table(c1, read=0)")
    assert "t table" in after.text
    before, code = (CEmitter(p, "k", CORE_DIALECT).source().code for p in (start, after))
    assert "static const int32_t" in before and "static const int32_t" not in code


# -- claims that are wrong ---------------------------------------------------------------------------------


def claimed(start: Program, value: str, of_tables: bool = True) -> tuple[bool, bool]:
    """True for each leg, the exact and the dependence one, that lets the statement become this one."""
    after = parse(start.text.rpartition("= ")[0] + f"= {value}\n", DIALECT)
    levels = RULES.relation(RULES.step(start, Move.of("fold_table", "c1", read=0)))["c1"]
    assert isinstance(levels, Instance) and levels.of_tables
    relation = {"c1": replace(levels, of_tables=of_tables)}
    exact = verify_exact(start, after, (), DIALECT).ok
    return exact, bool(verify_dependence(start, after, relation, DIALECT, Kind.EXACT))


@pytest.mark.parametrize(
    ("statement", "declared", "right", "wrong"),
    [
        ("8 y[{0}] = x[t[{0}]]", RUN, "x[{0}*2+3]", ("x[{0}*2+4]", "x[{0}+3]", "x[3]", "x[17-{0}*2]")),
        ("8 y[{0}] = x[t[{0}]]", RUN, "x[{0}*2+3]", ("x[clamp(t[{0}], 0, 16)]", "x[t[7-{0}]]")),
        ("8 y[{0}] = f32(t[{0}] + k[{0}])", RUN, "f32(index({0}*2+3) + k[{0}])",
         ("f32(index({0}*2+3) - k[{0}])", "f32(index({0}*2+2) + k[{0}])", "f32(3 + k[{0}])")),
        ("8 y[{0}] = f32(t[{0}])", BYTES, "f32(i8(index({0}-128)))",
         ("f32(i8(index({0}+127)))", "f32(u8(index({0}-128)))")),
        ("2 y[{0}] = x[{0}] / t[{0}]", "t table f32 [2] = {0.5, 0.5}", "x[{0}] / 0.5",
         ("x[{0}] * 0.5", "x[{0}] / 0.25", "x[{0}]")),
        ("2 y[{0}] = x[{0}] * t[{0}]", "t table f32 [2] = {0, 0}", "x[{0}] * 0", ("x[0] * 0",)),
    ],
)  # fmt: skip
def test_no_leg_takes_another_number(
    statement: str, declared: str, right: str, wrong: tuple[str, ...]
) -> None:
    start = kernel(statement, declared)
    assert claimed(start, right) == (True, True)
    assert not claimed(start, right, of_tables=False)[1], "a relation has to say so"
    for value in wrong:
        exact, dependence = claimed(start, value)
        assert not dependence, value
        assert not exact or value == "x[0] * 0", value


def test_the_sign_of_a_zero_and_a_product_with_zero_stay() -> None:
    """An infinity times zero is NaN: no leg of integer sets lets a product with zero go."""
    zeros = kernel("2 y[{0}] = x[{0}] * t[{0}]", "t table f32 [2] = {-0, -0}")
    assert claimed(zeros, "x[{0}] * -0")[1]
    for value in ("x[{0}] * 0", "0", "-0", "x[{0}] * index(0)"):
        assert not claimed(zeros, value)[1], value


def test_elements_that_only_a_condition_keeps_inside_are_not_known() -> None:
    start = kernel("16 y[{0}] = x[t[{0}]] if {0} <= 7", RUN)
    after = parse(start.text.replace("x[t[{0}]]", "x[{0}*2+3]"), DIALECT)
    statement = next(p.node for p in start.places if p.node.id == "c1")
    assert isinstance(statement, Statement)
    assert with_elements(start, {"c1"}) == start
    relation = {"c1": Instance("c1", LEVELS[:1], of_tables=True)}
    assert not verify_dependence(start, after, relation, DIALECT, Kind.EXACT)


# -- smaller games -----------------------------------------------------------------------------------------


def test_smaller_games_keep_their_tables() -> None:
    """Loops read fewer elements of the same tables; no element moves to another place."""
    n = 512
    order = [*range(n, 2 * n, 2), *range(n // 2 - 1, -1, -1)]
    text = f"""\
kernel f(x) -> y, z
x f32 [{2 * n}] heap
t table i32 [{n}] = {{{listed(order)}}}
w table f32 [4,{n}] = {{{listed(0.5 + (k % n) for k in range(4 * n))}}}
y f32 [{n}] heap
z f32 [4,{n}] heap

{n} y[{{0}}] = x[t[{{0}}]]
4 {n} z[{{0}},{{1}}] = y[{{1}}] * w[{{0}},{n - 1}-{{1}}]
"""
    trace = game(
        parse(text, DIALECT),
        f"split_range(s0, at={n // 2})", "fold_table(c0.a, read=0)", "fold_table(c0.b, read=0)",
        "swap_scopes(s1)",
    )  # fmt: skip
    small = reduce_trace(trace, RULES, 200)
    assert small is not trace and [m.transformation for m in small.moves] == [
        m.transformation for m in trace.moves
    ]
    assert all(small.root.buffer_of[name] == trace.root.buffer_of[name] for name in ("t", "w"))
    assert verify_exact_trace(small, DIALECT).ok and verify_dependence_trace(small, RULES)
    x = [float(i) for i in range(2 * n)]
    count = small.root.buffer_of["y"].cells
    assert count < 20 and interpret(small.root, {"x": x}, ROUNDING)["y"] == [
        x[order[k]] for k in range(count)
    ]


# -- many ---------------------------------------------------------------------------------------------------


def test_runs_are_found_as_by_trying_all_forms() -> None:
    rng = Random(1)
    for _ in range(300):
        sizes = tuple(rng.randint(1, 4) for _ in range(rng.randint(1, 3)))
        steps = [rng.randint(-3, 3) for _ in sizes]
        points = list(product(*map(range, sizes)))
        values = [40 + sum(s * i for s, i in zip(steps, point, strict=True)) for point in points]
        if rng.random() < 0.5:
            values[rng.randrange(len(values))] += rng.choice((-1, 1))
        shape, at = listed(sizes), ",".join(f"{{{k}}}" for k in range(len(sizes)))
        head = " ".join(map(str, sizes))
        text = (
            f"kernel f(x) -> y\nx f32 [99] heap\nt table i32 [{shape}] = {{{listed(values)}}}\n"
            f"y f32 [{shape}] heap\n\n{head} y[{at}] = x[t[{at}]]\n"
        )
        start = parse(text, DIALECT)
        found = RULES.attempt(start, Move.of("fold_table", "c0", read=0))
        first = dict(zip(points, values, strict=True))
        zero = (0,) * len(sizes)
        paces = [
            first[tuple(int(k == l) for l in range(len(sizes)))] - first[zero] if size > 1 else 0
            for k, size in enumerate(sizes)
        ]
        affine = all(
            v == first[zero] + sum(s * i for s, i in zip(paces, p, strict=True)) for p, v in first.items()
        )
        assert isinstance(found, Step) == affine, text
        if isinstance(found, Step):
            x = [float(k) for k in range(99)]
            assert interpret(found.after, {"x": x}, ROUNDING)["y"] == [float(v) for v in values]
        else:
            assert found.code == "PD-T655" and dict(found.refusal.words)["cut"] > 0


def test_random_games_of_tables_pass_both_legs() -> None:
    folds = 0
    for seed in range(60):
        rng = Random(seed)
        root = random_program(rng, 3)
        if "picked" not in root.text:
            continue
        trace = random_walk(rng, root, RULES, 3)
        for fold in list(RULES.transformation("fold_table").candidates(trace.program, DIALECT))[::-1]:
            step = RULES.attempt(trace.program, fold)
            if isinstance(step, Step):
                trace, folds = replace(trace, steps=(*trace.steps, step)), folds + 1
        assert parse(trace.program.text, DIALECT) == trace.program
        assert verify_exact_trace(trace, DIALECT).ok and verify_dependence_trace(trace, RULES)
    assert folds > 10


def test_a_table_in_a_file_is_known_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERFDOJO_CACHE", str(tmp_path / "cache"))
    elements = np.arange(7, 70_007, dtype="<i4")
    (tmp_path / "order.bin").write_bytes(elements.tobytes())
    digest = sha256(elements.tobytes()).hexdigest()
    declared = f'order table i32 [70000] = "order.bin" sha256 "{digest}"'
    body = "y f32 [70000] heap\n\n70000 y[{0}] = x[order[{0}]]\n"
    text = f"kernel f(x) -> y\nx f32 [70007] heap\n{declared}\n{body}"
    start = parse(text, DIALECT, beside=tmp_path)
    after = play(start, "fold_table(c0, read=0)")
    assert tree(after) == "70000 y[{0}] = x[{0}+7]" and declared in after.text
    trace = game(start, "fold_table(c0, read=0)")
    assert verify_dependence_trace(trace, RULES)
    small = reduce_trace(trace, RULES, 100)
    assert small.root.statements == 1 and verify_exact_trace(small, DIALECT).ok


def test_what_was_found_for_other_elements_is_not_used_again() -> None:
    """Results are kept by the elements, and programs with equal texts of statements may have others."""
    for step in (1, 2, 3, 1, 2, 3):
        start = kernel("8 y[{0}] = x[t[{0}]]", f"t table i32 [8] = {{{listed(step * k for k in range(8))}}}")
        (place,) = [p for p in start.places if p.node.id == "c1"]
        assert isinstance(place.node, Statement)
        (lookup,) = place.node.lookups
        assert run_of(start, lookup.value, place.sizes).form.coefficients == {0: step}


# -- the planner -------------------------------------------------------------------------------------------

CPU = made_target(vector_registers=32, peak_gflops={"f32": 100.0})
CPU_RULES = Rules(CPU.dialect, GENERIC)


def planned(elements: list[int], statement: str = "1024 y[{0}] = x[t[{0}]] * 2") -> tuple[Trace, list[str]]:
    """The likeliest game of the planner for a program with such a table, and its decisions about it."""
    declared = f"x f32 [4096] heap\nt table i32 [1024] = {{{listed(elements)}}}\ny f32 [1024] heap"
    root = parse(f"kernel f(x) -> y\n{declared}\n\n{statement}\n", CPU.dialect)
    found = plan(root, CPU_RULES, CPU)
    chosen = [decision.choice for decision in found.decisions if decision.rule == "fold tables"]
    return found.games[0], chosen


@pytest.mark.parametrize(
    ("elements", "chosen"),
    [
        ([*range(5, 1029)], "an ordinary subscript"),
        ([*range(700, 1200), *[0] * 524], "a loop for each run"),
        ([*range(100, 200), *range(924, 0, -1)], "a loop for each run"),
        (Random(0).sample(range(4096), 1024), None),
        ([*range(1020), 0, 0, 0, 0], None),
        ([k * 4 % 4096 + k // 16 % 2 for k in range(1024)], None),
    ],
    ids=["one run", "a run and a constant", "two runs", "none", "a short end", "too many"],
)
def test_the_planner_folds_what_runs(elements: list[int], chosen: str | None) -> None:
    trace, decisions = planned(elements)
    assert decisions == ([chosen] if chosen else [])
    assert verify_dependence_trace(trace, CPU_RULES)
    assert verify_exact_trace(reduce_trace(trace, CPU_RULES, 3000), CPU.dialect).ok
    assert parse(trace.program.text, CPU.dialect) == trace.program
    if chosen:
        assert "x[t[" not in tree(trace.program) and trace.root.tables
    if chosen == "an ordinary subscript":
        plain = planned([*range(1024)], "1024 y[{0}] = x[{0}+5] * 2")[0]
        assert tree(trace.program) == tree(plain.program), "as if there had been no table"


def test_the_planner_does_not_cut_loops_for_tables_that_choose_rows() -> None:
    """A row is read as a whole, wherever it is; a second loop would be more code and nothing else."""
    order = [*range(512), *range(1023, 511, -1)]
    trace, decisions = planned(order, "1024 y[{0}] = 0\n1024 4 y[{0}] += x[t[{0}]*4+{1}] * 2")
    assert not decisions and "t[" in tree(trace.program)


def test_a_plan_without_tables_is_what_it_was() -> None:
    for seed in range(6):
        root = random_program(Random(seed), 3, whole_language=False)
        play_before = Play(root, CPU_RULES)
        assert not fold_tables(play_before) and play_before.trace == Trace(root)


# -- zeros of integers -------------------------------------------------------------------------------------


SPARSE = f"""\
kernel f(a) -> y
a i8 [4,64] heap
w table i8 [64] = {{{listed([3, -1, 2, 5, *[0] * 56, 1, 1, 1, 1])}}}
y i32 [4] heap

4 y[{{0}}] = 7
4 64 y[{{0}}] += i32(w[{{1}}]) * i32(a[{{0}},{{1}}])
"""


def test_a_block_of_zeros_in_a_table_of_integers_is_left_out() -> None:
    trace = game(
        parse(SPARSE, DIALECT),
        "split_range(s2, at=4)", "split_range(s2.b, at=56)", "fold_table(c1.b.a, read=0)",
        "drop_zero_sum(c1.b.a)", "fold_table(c1.b.b, read=0)",
    )  # fmt: skip
    assert tree(trace.program).splitlines()[1:] == [
        "4",
        "| 4 y[{0}] += i32(w[{1}]) * i32(a[{0},{1}])",
        "| 4 y[{0}] += i32(i8(1)) * i32(a[{0},{1}+60])",
    ]
    assert verify_exact_trace(trace, DIALECT).ok and verify_dependence_trace(trace, RULES)
    small = reduce_trace(trace, RULES, 40)
    assert verify_exact_trace(small, DIALECT).ok and verify_dependence_trace(small, RULES)
    artifact = RUNNER.compile(CEmitter(trace.program, "k", CORE_DIALECT).source())
    assert isinstance(artifact, Artifact), artifact
    assert verify_numeric(trace.root, trace.program, artifact, RUNNER, {}, CORE_DIALECT, quick=True).ok


def dropped(statement: str) -> tuple[str, bool, bool]:
    """The answer of the move, and whether each leg lets the second statement go."""
    start = parse(
        "kernel f(a, x) -> y, z\na i32 [8] heap\nx f32 [8] heap\ny i32 [8] heap\nz f32 [8] heap\n\n"
        f"8 y[{{0}}] = a[{{0}}]\n8 z[{{0}}] = x[{{0}}]\n8 {statement}\n",
        DIALECT,
    )
    after = start.with_body(start.body[:2])
    relation = {"c2": Removed(adds_nothing=True)}
    exact = verify_exact(start, after, (), DIALECT).ok
    dependence = verify_dependence(start, after, relation, DIALECT, Kind.EXACT)
    return refusal(start, "drop_zero_sum(c2)"), exact, bool(dependence)


@pytest.mark.parametrize(
    ("statement", "answer"),
    [
        ("y[{0}] += 0", ("", True, True)),
        ("y[{0}] += a[{0}] * (3 * (0 * a[0]))", ("", True, True)),
        ("y[{0}] += and(a[{0}], 0) - i32(i64(0))", ("", True, True)),
        ("y[{0}] += 0 - 0 * a[{0}]", ("", True, True)),
        ("y[{0}] += 1", ("PD-T662", False, False)),
        ("y[{0}] += a[{0}] * 256", ("PD-T662", False, False)),
        ("y[{0}] += i32(round(x[{0}] * 0))", ("PD-T662", False, False)),
        ("y[{0}] += a[{0}] - a[{0}]", ("PD-T662", True, False)),
        ("y[{0}] *= 0", ("PD-T661", False, False)),
        ("y[{0}] max= 0", ("PD-T661", False, False)),
        ("y[{0}] = 0", ("PD-T661", False, False)),
        ("z[{0}] += 0 * x[{0}]", ("PD-T661", True, False)),
        ("z[{0}] += 0", ("PD-T661", True, False)),
    ],
)
def test_only_zeros_of_integers_go(statement: str, answer: tuple[str, bool, bool]) -> None:
    """The models of the exact leg have no infinities, so that only the other leg and the move see these."""
    assert dropped(statement) == answer


def test_threads_that_share_an_array_of_the_caller_do_not_keep_a_zero() -> None:
    """It has no copies, whatever reads it."""
    start = parse(
        "kernel f(k) -> y, t\nk i32 [8] heap\nt i32 [8] heap\ny i32 [8] heap\n\n"
        "8 y[{0}] = 0\n8 y[{0}] += 0*k[{0}]\n8:p t[{0}] = k[{0}]\n",
        DIALECT,
    )
    trace = Trace(start, (RULES.step(start, Move.of("drop_zero_sum", "c1")),))
    assert verify_exact_trace(trace, DIALECT).ok and verify_dependence_trace(trace, RULES)

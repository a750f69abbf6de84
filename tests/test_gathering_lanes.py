"""Lanes that gather: each reads from an address of its own, and together they write neighbours."""

from __future__ import annotations

import pytest
from snippets import play, refusal

from perfdojo_sdk.codegen.lockstep import next_row
from perfdojo_sdk.core.dialect import CORE_LOCATIONS, CORE_SUFFIXES, Dialect, Location
from perfdojo_sdk.core.errors import ProgramError
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.core.text import parse
from perfdojo_sdk.core.transformation import Rules
from perfdojo_sdk.core.transformations import GENERIC
from perfdojo_sdk.hookspecs.types import Artifact
from perfdojo_sdk.plugins import load_plugins
from perfdojo_sdk.verify.exact import verify_exact
from perfdojo_sdk.verify.numeric import verify_numeric

NAMED = Location("reg", "named cells", shared=False, constant_subscripts=True)
DIALECT = Dialect(CORE_SUFFIXES, {**CORE_LOCATIONS, "reg": NAMED}, lanes={"f32": 8, "i32": 8})
RULES = Rules(DIALECT, GENERIC)
PLUGINS = load_plugins()


def program(statement: str, k: str = "i32 [8]") -> Program:
    text = f"kernel f(x, k) -> y\nx f32 [8,16] heap\nk {k} heap\ny f32 [8,16] heap\n\n"
    text += f"8 16 y[{{0}},{{1}}] = 0\n8 8 {statement}\n"
    return parse(text, RULES.dialect)


@pytest.mark.parametrize(
    "statement",
    [
        "y[{0},{1}] = x[{1},{0}]",
        "y[{0},{1}] = x[{0},{1}*2]",
        "y[{0},{1}] = x[{0},15-{1}] + x[{0},{1}]",
        "y[{0},{1}] = x[{0},{1}//2]",
        "y[{0},{1}] = x[{0},clamp(k[{1}], 0, 15)]",
        "y[{0},{1}] = x[clamp(k[{1}]+{1}, 1, 7),{1}*2]",
        "y[0,0] += x[{1},{0}]",
    ],
)
def test_what_they_read_may_lie_anywhere(statement: str) -> None:
    before = program(statement)
    assert refusal(before, "annotate_scope(s3, suffix=v)", RULES) == "PD-T159"
    after = play(before, "annotate_scope(s3, suffix=a)", rules=RULES)
    assert verify_exact(before, after).ok
    assert parse(after.text, RULES.dialect) == after
    with pytest.raises(ProgramError, match="are not neighbours in memory"):
        parse(after.text.replace(":a", ":v"), RULES.dialect)


@pytest.mark.parametrize(
    "target", ["y[{1},{0}]", "y[{0},{1}*2]", "y[{0},15-{1}]", "y[{0},clamp(k[{1}], 0, 15)]"]
)
def test_what_they_write_are_neighbours(target: str) -> None:
    assert refusal(program(f"{target} = x[{{0}},{{1}}]"), "annotate_scope(s3, suffix=a)", RULES) in (
        "PD-T159",
        "PD-T161",
    )


def test_layouts_may_move_what_they_read_and_not_what_they_write() -> None:
    text = """
kernel f(x) -> y
x f32 [8,8] heap
t f32 [8,8] heap
u f32 [8,8] heap
y f32 [8,8] heap

8 8 t[{0},{1}] = x[{0},{1}]
8 8:a u[{0},{1}] = t[{1},{0}] * 2
8 8 y[{0},{1}] = u[{0},{1}]
"""
    start = parse(text, RULES.dialect)
    assert refusal(start, "reorder_dims(u, dim=0)", RULES) != ""
    turned = play(start, "reorder_dims(t, dim=0)", rules=RULES)
    assert verify_exact(start, turned).ok


@pytest.mark.parametrize("target_name", ["x86_avx512", "x86_avx2", "arm_neon"])
def test_registers_and_tails_and_conditions(target_name: str) -> None:
    """Cells of registers in another order, lanes that are not there, lanes under a condition."""
    target = PLUGINS.target(target_name)
    if PLUGINS.unavailable(target):
        pytest.skip("it does not run here")
    runner = PLUGINS.runner(target)
    text = """
kernel f(x, k) -> y, z, w
x f32 [4,40] heap
k i32 [40] heap
r f32 [4:N,4] reg
y f32 [4,4] heap
z f32 [40] heap
w f32 [4,12] heap

4
| 4:v r[{0},{1}] = x[{0},{1}]
| 4:a y[{0},{1}] = r[{0},3-{1}] * 2
10 4:a z[{0}*4+{1}] = exp(x[{0}%4,clamp(k[{0}*4+{1}], 0, 39)])
4 3
| 3:a w[{0},{1}*4+{2}] = x[{0},39-{2}*3]
| 1 w[{0},{1}*4+3] = 0
"""
    guarded = text.replace("x[{0},39-{2}*3]", "x[{0},39-{2}*3] if {1} >= {2}").replace(
        "4 3\n| 3:a", "4 12 w[{0},{1}] = 1\n4 3\n| 3:a"
    )
    for each in (text, guarded):
        played = parse(each, target.dialect)
        plain = parse(
            each.replace(":a", "").replace(":v", "").replace("4:N,4] reg", "4,4] heap"), target.dialect
        )
        artifact = runner.compile(PLUGINS.code_generator(target).generate(played, "pd_case"))
        assert isinstance(artifact, Artifact), artifact
        accuracy = PLUGINS.math_accuracy(target)
        report = verify_numeric(plain, played, artifact, runner, accuracy, target.dialect, quick=True)
        assert report.ok, report


@pytest.mark.parametrize(
    ("statement", "gathers"),
    [
        ("y[{0},{1}] = x[{0},clamp(k[{1}], 0, 15)]", True),
        ("y[{0},{1}] = x[clamp(k[{1}], 0, 7),{1}] + x[{0},{1}]", True),
        ("y[{0},{1}] = x[clamp(k[{0}], 0, 7),{1}]", False),
        ("y[{0},{1}] = x[{0},{1}] * 2", False),
    ],
)
def test_the_planner_gathers_where_nothing_else_gives_lanes(statement: str, gathers: bool) -> None:
    target = PLUGINS.target("x86_avx2")
    expert = PLUGINS.heuristic_pass(target)
    assert expert is not None
    games = expert(program(statement), PLUGINS.rules(target), target)
    suffixes = {suffix for game in games for node in game.program.body for suffix in node.suffixes}
    assert ("a" in suffixes) == gathers


@pytest.mark.parametrize(
    ("x", "y", "loops", "read", "expected"),
    [
        ("8,64", "8,64", "8 64", "x[{0},clamp(k[{0},{1}], 0, 63)]", "x[{0}+1,{1}]"),
        ("8,64", "8,64", "8 4 16", "x[{0},clamp(k[{0},{1}*16+{2}], 0, 63)]", "x[{0}+1,{1}*16+{2}]"),
        ("2,8,64", "8,64", "8 64", "x[1,7-{0},clamp(k[{0},{1}], 0, 63)]", "x[1,-{0}+6,{1}]"),
        ("8,65", "8,64", "8 64", "x[{0},clamp(k[{0},{1}], 0, 63)]", ""),  # rows of another length
        ("8,64", "8,64", "8 64", "x[3,clamp(k[{0},{1}], 0, 63)]", ""),  # one row for all
        ("64,8", "8,64", "8 64", "x[clamp(k[{0},{1}], 0, 63),{0}]", ""),  # elements that are no neighbours
        ("8,64", "8,64", "8 64", "x[clamp(k[{0},0], 0, 7),clamp(k[{0},{1}], 0, 63)]", ""),  # any row
        ("8,64", "8,64", "8 64", "x[{0},63-{1}]", ""),  # nothing is chosen
        ("2,20000", "2,20000", "2 20000", "x[{0},clamp(k[{0},{1}], 0, 9)]", ""),  # more than stays near
    ],
)
def test_the_next_row_to_choose_from(x: str, y: str, loops: str, read: str, expected: str) -> None:
    text = f"kernel f(x, k) -> y\nx f32 [{x}] heap\nk i64 [{y}] heap\ny f32 [{y}] heap\n\n"
    target = "y[{0},{1}]" if loops.count(" ") == 1 else "y[{0},{1}*16+{2}]"
    made = parse(f"{text}{loops} {target} = {read}\n", DIALECT)
    [leaf] = made.body[0].leaves
    found = next_row(made, leaf.statement.target, leaf.statement.reads[0], loops.count(" "))
    assert (found.text if found else "") == expected


def test_a_row_that_is_chosen_from_again_is_no_next_one() -> None:
    text = "kernel f(x, k) -> y\nx f32 [8,64] heap\nk i64 [8,3,64] heap\ny f32 [8,3,64] heap\n\n"
    made = parse(
        f"{text}8 3 64 y[{{0}},{{1}},{{2}}] = x[{{0}},clamp(k[{{0}},{{1}},{{2}}], 0, 63)]\n", DIALECT
    )
    [leaf] = made.body[0].leaves
    assert next_row(made, leaf.statement.target, leaf.statement.reads[0], 2) is None


def test_lanes_ask_for_the_next_row_line_by_line() -> None:
    """Nothing tells the processor in which order the elements of a row come."""
    target = PLUGINS.target("x86_avx512")
    text = "kernel f(x, k) -> y\nx f32 [8,64] heap\nk i64 [8,64] heap\ny f32 [8,64] heap\n\n"
    made = parse(
        f"{text}8 4 16:a y[{{0}},{{1}}*16+{{2}}] = x[{{0}},clamp(k[{{0}},{{1}}*16+{{2}}], 0, 63)]\n",
        target.dialect,
    )
    code = PLUGINS.code_generator(target).generate(made, "f").code
    assert "pd_prefetch_ahead(&x[i0*64 + i1*16 + 64]);" in code

"""Every transformation: its documented example is its golden test; every reason to refuse refuses."""

from __future__ import annotations

import pickle
import re
import textwrap

import pytest
from snippets import DIALECT, RULES, move, play, program, refusal, tree

from perfdojo_sdk.core.names import LONGEST_NAME
from perfdojo_sdk.core.text import parse
from perfdojo_sdk.core.transformation import Kind, Rejection, Step
from perfdojo_sdk.core.transformations import GENERIC
from perfdojo_sdk.core.validate import violations
from perfdojo_sdk.store.traces import SavedMove

EXAMPLE = re.compile(r"before:\n(?P<before>.*?)after: (?P<moves>[^\n]*)\n(?P<after>.*)", re.DOTALL)


def example(name: str) -> tuple[str, list[str], str]:
    doc = textwrap.dedent("    " + (type(GENERIC[name]).__doc__ or ""))
    match = EXAMPLE.search(doc)
    assert match, f"{name} documents no example"
    moves = re.findall(r"\w+\([^)]*\)", match["moves"])
    return textwrap.dedent(match["before"]).strip(), moves, textwrap.dedent(match["after"]).strip()


def normal(text: str) -> str:
    """Only the lines that the documentation shows."""
    return "\n".join(line.strip() for line in text.strip().splitlines())


@pytest.mark.parametrize("name", [n for n in GENERIC if n != "set_location"])
def test_documented_example_is_what_happens(name: str) -> None:
    before, moves, after = example(name)
    start = program(before, outputs="a b t" if name == "reorder_statements" else "")
    assert normal(tree(start)) in normal(before)
    end = play(start, *moves)
    shown = normal(after).splitlines()
    declared = [line for line in shown if re.match(r"^\w+ \w+ \[", line)]
    assert normal(tree(end)).splitlines() == [line for line in shown if line not in declared]
    for line in declared:
        assert line in end.text.splitlines()


def test_set_location_example() -> None:
    before, moves, after = example("set_location")
    start = program(before + "\n8\n| 16 t[{0},{1}] = x[{0},{1}]\n| 16 y[{0},{1}] = t[{0},{1}]")
    assert before in start.text and after in play(start, *moves).text


def test_figure_6_of_the_paper() -> None:
    """reuse_dims is offered after join_scopes, and refused with the reason without it."""
    start = program(
        """
        8 16 t[{0},{1}] = x[{0},{1}] * 2
        8 16 y[{0},{1}] = t[{0},{1}] + 1
        """
    )
    refused = RULES.attempt(start, move("reuse_dims(t, dim=0)"))
    assert isinstance(refused, Rejection) and refused.code == "PD-T203"
    assert "in use at once" in refused.why
    assert "join_scopes" in str(refused)
    joined = play(start, "join_scopes(s0)")
    assert move("reuse_dims(t, dim=0)") in [s.move for s in RULES.steps(joined)]
    assert "t f32 [8:N,16] heap" in play(joined, "reuse_dims(t, dim=0)").text


def test_a_copy_may_read_more_of_an_input_but_not_of_a_temporary() -> None:
    """Every element of an input is there; one of a temporary may never have been written, so that the copy
    stands under the same condition."""
    guarded = "8 y[{0}] = 0\n8 y[{0}] = x[{0}] if {0} >= 2"
    staged = play(program(guarded), "stage_read(s1, array=x)")
    assert "8 x_r[{0}] = x[{0}]\n8 y[{0}] = x_r[{0}] if {0} >= 2" in tree(staged)
    partly = "6 t[{0}+2] = x[{0}]\n8 y[{0}] = 0\n8 y[{0}] = t[{0}] if {0} >= 2"
    staged = play(program(partly), "stage_read(s2, array=t)")
    assert "8 t_r[{0}] = t[{0}] if {0} >= 2\n8 y[{0}] = t_r[{0}] if {0} >= 2" in tree(staged)


SUM = "y[0] = 0\n8 16 y[0] += x[{0}*16+{1}]"
REGISTER = "r f32 [4] reg\n4:u r[{0}] = x[{0}]\n4:u y[{0}] = r[{0}]"
ACC_REGISTER = "r f32 [1] reg\nr[0] = 0\n4:u r[0] += x[{0}]\ny[0] = r[0]"
CONDITION = "8 t[{0}] = 0\n8 t[{0}] = x[{0}] if {0} >= 2\n8 y[{0}] = t[{0}]"
#: A temporary and a result, and a scope whose statements use them under conditions that exclude each other.
APART = "8 t[{0}] = x[{0}]\n8 y[{0}] = 0\n8\n"
#: Which iterations of the outer scope have one that satisfies it, no conjunction of comparisons says.
EVEN = "if {1}*2 >= {0} and {1}*2 <= {0}"
LONG = "2\n" + "| y[{0}] = x[{0}]\n" * 600
HUGE = "65536 65536\n| 64 y[{0},{1},{2}] = x[{0},{1},{2}]"

SLIDING = "4\n| y[{0}] = 0\n| 3 y[{0}] += exp(x[{0}+{1}]) * w[{1}]"
MAXIMUM = "q[0] = -inf\n8 q[0] max= x[{0}]"
SUMMED = "4\n| t[{0}] = 0\n| 8 t[{0}] += x[{0},{1}]"
SQUARED = """4
| q[{0}] = 0
| 8 q[{0}] += (x[{0},{1}] - c[{0}]) * (x[{0},{1}] - c[{0}])
4 y[{0}] = q[{0}] + t[{0}]"""

#: code -> (tree, further outputs, moves played first, the refused move)
PAIRS = "a bf16 [2] heap\nb bf16 [8,8] heap\nc bf16 [8,4] heap\n8 y[{0}] = 0\n"
WHOLE = "a i32 [8] heap\ny i32 [8] heap"
TABLE = "x f32 [9] heap\norder table i32 [4] = {1, 3, 5, 8}"

REFUSALS: dict[str, tuple[str, str, list[str], str]] = {
    "PD-T101": ("16 y[{0}] = x[{0}]", "", [], "split_scope(s0, factor=16)"),
    "PD-T102": ("16 y[{0}] = x[{0}]", "", [], "split_scope(s0, factor=3)"),
    "PD-T103": ("16:v y[{0}] = x[{0}]", "", [], "split_scope(s0, factor=4)"),
    "PD-T111": ("4\n| 8 y[{0},{1}] = x[{1}]\n| z[{0}] = 1", "", [], "swap_scopes(s0)"),
    "PD-T112": ("4 8:v y[{0},{1}] = x[{1}]", "", [], "swap_scopes(s0)"),
    "PD-T113": ("9 9 y[{0},{1}] = x[{0},{1}]\n8 8 y[{0}+1,{1}] = y[{0},{1}+1]", "", [], "swap_scopes(s2)"),
    "PD-T114": ("19 y[{0}] = 0\n4 8:p y[{0}-{1}+7] = x[{0},{1}]", "", [], "swap_scopes(s1)"),
    "PD-T115": (
        "4:p 2\n| t[{0},{1}] = x[{0},{1}]\n| y[{0},{1}] = t[{0},0]", "", [], "swap_scopes(s0)",
    ),
    "PD-T121": ("4 t[{0}] = 1\ny[0] = t[0]", "", [], "join_scopes(s0)"),
    "PD-T122": ("4 t[{0}] = 1\n2 y[{0}] = t[{0}]", "", [], "join_scopes(s0)"),
    "PD-T123": ("y[0] = 0\n4:p t[{0}] = x[{0}]\n4 y[0] += t[{0}]", "", [], "join_scopes(s0)"),
    "PD-T124": ("4:v t[{0}] = 1\n4:v y[{0}] = t[{0}]", "", [], "join_scopes(s0)"),
    "PD-T125": ("4 t[{0}] = x[{0}]\n4 y[{0}] = t[3-{0}]", "", [], "join_scopes(s0)"),
    "PD-T126": ("5 t[{0}] = 0\n4:p t[{0}+1] = x[{0}]\n4:p y[{0}] = t[{0}]", "", [], "join_scopes(s1)"),
    "PD-T127": (
        "2\n| 4:p t[{0}+{1}*2] = x[{0},{1}]\n| 4:p y[{0},{1}] = t[{1}*2]", "", [], "join_scopes(s1)",
    ),
    "PD-T131": ("4\n| t[{0}] = 1\n| y[{0}] = t[{0}]", "", [], "fission_scope(c0)"),
    "PD-T132": (
        "4\n| t[{0}] = x[{0}]\n| y[{0}] = t[{0}]", "", ["reuse_dims(t, dim=0)"], "fission_scope(c1)",
    ),
    "PD-T133": (
        "4:p\n| 2 t[{0}+{1}] = x[{0},{1}]\n| y[{0}] = t[{0}]", "", [], "fission_scope(c1)",
    ),
    "PD-T134": (
        "t f32 [4] stack\n4:p\n| t[{0}] = x[{0}]\n| y[{0}] = t[{0}]", "", [], "fission_scope(c1)",
    ),
    "PD-T141": ("a[0] = x[0]\nb[0] = x[1]", "a b", [], "reorder_statements(c1)"),
    "PD-T142": ("a[0] = x[0]\nb[0] = a[0]", "a b", [], "reorder_statements(c0)"),
    "PD-T151": ("4:u y[{0}] = x[{0}]", "", [], "annotate_scope(s0, suffix=p)"),
    "PD-T152": ("4 32:u y[{0},{1}] = x[{0},{1}]", "", [], "annotate_scope(s0, suffix=u)"),
    "PD-T153": ("4 8:p y[{0},{1}] = x[{0},{1}]", "", [], "annotate_scope(s0, suffix=p)"),
    "PD-T154": (SUM, "", [], "annotate_scope(s0, suffix=p)"),
    "PD-T155": (
        "7 t[{0}] = 0\n4\n| 4 u[{0}+{1}] = x[{1}]\n| 4 y[{0},{1}] = u[{1}]", "", [],
        "annotate_scope(s1, suffix=p)",
    ),
    "PD-T156": ("t f32 [1] stack\nt[0] = x[0]\n4 y[{0}] = t[0]", "", [], "annotate_scope(s0, suffix=p)"),
    "PD-T157": ("4\n| t[{0}] = 1\n| y[{0}] = t[{0}]", "", [], "annotate_scope(s0, suffix=v)"),
    "PD-T158": ("32 y[{0}] = x[{0}]", "", [], "annotate_scope(s0, suffix=v)"),
    "PD-T159": ("8 y[{0}] = x[{0}*2]", "", [], "annotate_scope(s0, suffix=v)"),
    "PD-T160": ("9 y[{0}] = 0\n8 y[{0}+1] = y[{0}]", "", [], "annotate_scope(s1, suffix=v)"),
    "PD-T161": ("8 y[0] = x[{0}]", "", [], "annotate_scope(s0, suffix=v)"),
    "PD-T162": ("8 y[{0}] = x[{0}] + index({0}//2)", "", [], "annotate_scope(s0, suffix=v)"),
    "PD-T171": ("8\n| a[{0}] = x[{0}]\n| b[{0}] = x[7-{0}]", "", [], "stage_read(s0, array=x)"),
    "PD-T172": (
        "t[0] = 0\n8\n| t[0] += x[{0}]\n| y[{0}] = t[0]", "", [], "stage_read(s0, array=t)",
    ),
    "PD-T173": (REGISTER, "", [], "stage_read(s1, array=r)"),
    "PD-T174": (HUGE, "", [], "stage_read(s0, array=x)"),
    "PD-T175": (
        f"{APART}| y[{{0}}] = t[{{0}}] if {{0}} >= 5\n| y[{{0}}] = t[{{0}}] * 2 if {{0}} <= 2", "", [],
        "stage_read(s2, array=t)",
    ),
    "PD-T181": ("8 y[{0}] = x[{0}]", "", [], "stage_accumulator(s0, array=x)"),
    "PD-T182": (
        "t[0] = 0\n8\n| t[0] += x[{0}]\n| y[{0}] = t[0]", "", [], "stage_accumulator(s0, array=t)",
    ),
    "PD-T183": (
        "7 y[{0}] = 0\n4 4 y[{0}+{1}] += x[{0},{1}]", "", [], "stage_accumulator(s1, array=y)",
    ),
    "PD-T184": (ACC_REGISTER, "", [], "stage_accumulator(s0, array=r)"),
    "PD-T185": (
        "65536 65536 64 y[{0},{1},{2}] = 0\n65536 65536 64 y[{0},{1},{2}] += x[{2}]", "", [],
        "stage_accumulator(s3, array=y)",
    ),
    "PD-T186": (
        "8 y[{0}] = 0\n8\n| y[{0}] += x[{0}] if {0} >= 5\n| y[{0}] += x[{0}] * 2 if {0} <= 2", "", [],
        "stage_accumulator(s1, array=y)",
    ),
    "PD-T191": ("8 y[{0}] = x[{0}]", "", [], "stage_write(s0, array=x)"),
    "PD-T192": (
        "4\n| y[{0}] = x[{0}]\n| y[7-{0}] = x[{0}]", "", [], "stage_write(s0, array=y)",
    ),
    "PD-T193": (
        "2\n| 4 4 y[{0},{1}+{2}] = 0\n| 4 4 y[{0},{1}+{2}] += x[{1},{2}]", "", [], "stage_write(s0, array=y)",
    ),
    "PD-T194": ("y[0] = 0\n8 y[0] += x[{0}]", "", [], "stage_write(s0, array=y)"),
    "PD-T195": (REGISTER, "", [], "stage_write(s0, array=r)"),
    "PD-T196": (HUGE, "", [], "stage_write(s0, array=y)"),
    "PD-T197": (
        "8 t[{0}] = 0\n8\n| t[{0}] = x[{0}] if {0} >= 5\n| t[{0}] = 1 if {0} <= 2\n8 y[{0}] = t[{0}]", "", [],
        "stage_write(s1, array=t)",
    ),
    "PD-T198": (
        "8:p\n| t[0] = x[{0}]\n| y[{0}] = t[0]", "", ["inline_definition(c1, array=t)"],
        "stage_write(s0, array=t)",
    ),
    "PD-T201": ("8 y[{0}] = x[{0}]", "", [], "reuse_dims(y, dim=0)"),
    "PD-T202": (
        "t f32 [4:N] heap\n4\n| t[{0}] = x[{0}]\n| y[{0}] = t[{0}]", "", [], "reuse_dims(t, dim=0)",
    ),
    "PD-T203": ("4 t[{0}] = x[{0}]\n4 y[{0}] = t[{0}]", "", [], "reuse_dims(t, dim=0)"),
    "PD-T204": (
        "4 3\n| 4 t[{1},{0}+{2}] = x[{0},{1},{2}]\n| 4 y[{0},{1},{2}] = t[{1},{2}]", "", [],
        "reuse_dims(t, dim=0)",
    ),
    "PD-T211": ("8 8 y[{0},{1}] = x[{0},{1}]", "", [], "reorder_dims(y, dim=0)"),
    "PD-T212": ("4 t[{0}] = x[{0}]\n4 y[{0}] = t[{0}]", "", [], "reorder_dims(t, dim=0)"),
    "PD-T213": (
        "4 8:v t[{0},{1}] = x[{0},{1}]\n4 8:v y[{0},{1}] = t[{0},{1}]", "", [], "reorder_dims(t, dim=0)",
    ),
    "PD-T221": ("8 y[{0}] = x[{0}]", "", [], "set_location(y, location=stack)"),
    "PD-T222": ("4 t[{0}] = x[{0}]\n4 y[{0}] = t[{0}]", "", [], "set_location(t, location=heap)"),
    "PD-T223": ("4 t[{0}] = x[{0}]\n4 y[{0}] = t[{0}]", "", [], "set_location(t, location=reg)"),
    "PD-T231": ("y[0] = 0\n8\n| y[0] += x[{0}]\n| z[{0}] = 1", "", [], "split_reduction(s0, lane=s0)"),
    "PD-T232": ("8 y[{0}] = 0\n8 4 y[{0}] += x[{1}]", "", [], "split_reduction(s1, lane=s1)"),
    "PD-T233": (
        "9 t[{0}] = 1\n8 t[8] += x[{0}] * t[{0}+1]", "", [], "split_reduction(s1, lane=s1)",
    ),
    "PD-T234": (ACC_REGISTER.replace("4:u r", "4 r"), "", [], "split_reduction(s0, lane=s0)"),
    "PD-T235": (f"8 y[{{0}}] = 0\n8 8 y[{{0}}] += x[{{1}}] {EVEN}", "", [], "split_reduction(s1, lane=s2)"),
    "PD-T241": ("8 y[{0}] = x[{0}] * s[0]", "", [], "stage_reciprocal(s0, array=s)"),
    "PD-T242": (
        "s[0] = 1\n8\n| y[{0}] = x[{0}] / s[0]\n| s[0] += x[{0}]", "", [], "stage_reciprocal(s0, array=s)",
    ),
    "PD-T243": (
        "r f32 [1] reg\nr[0] = x[0]\n4:u y[{0}] = x[{0}] / r[0]", "", [], "stage_reciprocal(s0, array=r)",
    ),
    "PD-T251": ("t[0] = 0\n4 y[{0}] = x[{0}]\n4 z[{0}] = t[0]", "", [], "inline_definition(c1, array=t)"),
    "PD-T252": (
        "4 t[{0}] = x[{0}]\n2 t[{0}] = x[{0}] * 2\n4 y[{0}] = t[{0}]", "", [],
        "inline_definition(c2, array=t)",
    ),
    "PD-T253": (
        "4 6 t[{0}*6+{1}] = x[{0},{1}]\n3 8 y[{0},{1}] = t[{0}*8+{1}]", "", [],
        "inline_definition(c1, array=t)",
    ),
    "PD-T254": (
        "t f32 [7] heap\n4 4 t[3-{0}+{1}] = x[{0},{1}]\n4 y[{0}] = t[{0}]", "", [],
        "inline_definition(c1, array=t)",
    ),
    "PD-T255": (
        "4 a[{0}] = x[{0}]\n4\n| t[{0}] = a[{0}] * 2\n| a[{0}] = x[{0}] * 3\n4 y[{0}] = t[{0}] + a[{0}]",
        "", [], "inline_definition(c3, array=t)",
    ),
    "PD-T256": (
        "t f64 [4] heap\n4 t[{0}] = f64(x[{0}])\n4 y[{0}] = f32(t[{0}])", "", [],
        "inline_definition(c1, array=t)",
    ),
    "PD-T257": (
        "4 t[{0}] = x[{0}] * x[{0}] * x[{0}] * x[{0}] * x[{0}] * x[{0}]\n"
        "4 y[{0}] = t[{0}] * t[{0}] * t[{0}] * t[{0}] * t[{0}] * t[{0}]", "", [],
        "inline_definition(c1, array=t)",
    ),
    "PD-T258": (
        "8 t[{0}] = x[{0}*2]\n8:v y[{0}] = t[{0}]", "", [], "inline_definition(c1, array=t)",
    ),
    "PD-T259": (
        "8 t[{0}] = x[{0}]\n8 y[{0}] = t[{0}]".replace("x[{0}]", "x[{0}] if {0} <= 5", 1), "", [],
        "inline_definition(c1, array=t)",
    ),
    "PD-T260": (
        "4 t[{0}] = 3\n4 y[{0}] = select(t[{0}] >= t[3-{0}], x[{0}], 1)", "", [],
        "inline_definition(c1, array=t)",
    ),
    "PD-T263": (
        "z f32 [7] heap\n4 4 t[{0},{1}] = z[{0}+{1}]\n6 6 y[{0},{1}] = 0\n"
        "5 5 y[{0},{1}] = t[{0}-1,{1}-1] if {0} >= 1 and {1} >= 1", "", [], "inline_definition(c2, array=t)",
    ),
    "PD-T277": (
        f"8 y[{{0}}] = 0\n8 8 y[{{0}}] += exp(x[{{0}}]) {EVEN}", "", [],
        "stage_expression(c1, before=s2, term=0)",
    ),
    "PD-T261": ("4 y[{0}] = x[{0}]", "", [], "remove_dead(y)"),
    "PD-T262": ("4 t[{0}] = x[{0}]\n4 y[{0}] = t[{0}]", "", [], "remove_dead(t)"),
    "PD-T281": (
        f"{SUMMED}\n| q[{{0}}] = 0\n| 8 q[{{0}}] += (x[{{0}},{{1}}] - c[{{0}}]) * x[{{0}},{{1}}]", "t", [],
        "rebase_squares(s2, sum=t)",
    ),
    "PD-T287": (
        "x i32 [8] heap\nc i32 [1] heap\nt i32 [1] heap\ny i32 [1] heap\n"
        "t[0] = 0\n8 t[0] += x[{0}]\ny[0] = t[0]\n8 y[0] += (x[{0}] - c[0]) * (x[{0}] - c[0])", "", [],
        "rebase_squares(s1, sum=t)",
    ),
    "PD-T282": (
        f"{SUMMED}\n{SQUARED}", "", [], "rebase_squares(s3, sum=c)",
    ),
    "PD-T283": (
        f"{SUMMED}\n{SQUARED}".replace("8 q", "4 q"), "", [], "rebase_squares(s3, sum=t)",
    ),
    "PD-T284": (
        SUMMED.replace("= 0", "= 1") + "\n" + SQUARED, "", [], "rebase_squares(s3, sum=t)",
    ),
    "PD-T285": (
        f"4 8 a[{{0}},{{1}}] = x[{{0}},{{1}}]\n{SUMMED}\n4 8 a[{{0}},{{1}}] = x[{{0}},{{1}}] * 2\n{SQUARED}"
        .replace("+= x", "+= a").replace("(x[", "(a["), "", [], "rebase_squares(s7, sum=t)",
    ),
    "PD-T286": (
        "t f32 [4] stack\n" + SUMMED.replace("4", "4:p", 1) + "\n| r[{0}] = t[{0}]\n"
        + SQUARED.replace(" + t[{0}]", ""), "", [], "rebase_squares(s3, sum=t)",
    ),
    "PD-T291": ("8 s[0] = 0\n8 s[0] += x[{0}]", "", [], "factor_reduction(s1)"),
    "PD-T292": (
        "s[0] = 1\n8 s[0] += s[0] * c[0] * x[{0}]\ny[0] = s[0]", "", [], "factor_reduction(s0)",
    ),
    "PD-T293": (
        "s[0] = 0\n8 s[0] += x[{0}] * c[0]\ns[0] *= 2\ny[0] = s[0]", "", [], "factor_reduction(s0)",
    ),
    "PD-T294": (
        f"8 y[{{0}}] = 0\n8 8 y[{{0}}] += x[{{1}}] * c[{{0}}] {EVEN}", "", [], "factor_reduction(s2)",
    ),
    "PD-T296": (f"{MAXIMUM}\n8 y[{{0}}] = exp(x[{{0}}] - q[0])", "", [], "rebase_exponent(c2, maximum=q)"),
    "PD-T297": (
        f"{MAXIMUM.replace('-inf', '0')}\n8 y[{{0}}] = exp(x[{{0}}] - m[0]) + q[0]", "", [],
        "rebase_exponent(c2, maximum=q)",
    ),
    "PD-T298": (
        "8 a[{0}] = x[{0}]\n" + MAXIMUM.replace("max= x", "max= a")
        + "\n8 a[{0}] = x[{0}] * 2\n8 y[{0}] = exp(a[{0}] - m[0]) + q[0]", "", [],
        "rebase_exponent(c4, maximum=q)",
    ),
    "PD-T299": (
        "q f32 [4] reg\n4:u\n| q[{0}] = -inf\n| 8 q[{0}] max= x[{0},{1}]\n"
        "4 8 y[{0},{1}] = exp(x[{0},{1}] - m[{0}])\n4:u z[{0}] = q[{0}]", "", [],
        "rebase_exponent(c2, maximum=q)",
    ),
    "PD-T361": ("2 y[{0}] = 0\n2 3 y[{0}] += x[{0}+{1}]", "", [], "minimal_filter(s1, taps=s2)"),
    "PD-T362": ("2 y[{0}] = 0\n2 4 y[{0}] += x[{0}+{1}] * w[{1}]", "", [], "minimal_filter(s1, taps=s2)"),
    "PD-T363": ("2 y[{0}] = 0\n2 3 y[{0}] += x[{0}*2+{1}] * w[{1}]", "", [], "minimal_filter(s1, taps=s2)"),
    "PD-T364": (
        "y i32 [2] heap\nx i32 [4] heap\nw i32 [3] heap\n2 y[{0}] = 0\n2 3 y[{0}] += x[{0}+{1}] * w[{1}]",
        "", [], "minimal_filter(s1, taps=s2)",
    ),
    "PD-T365": (
        "5 y[{0}] = x[{0}]\n2 3 y[{0}+2] += y[{0}+{1}] * w[{1}]", "y", [], "minimal_filter(s1, taps=s2)",
    ),
    "PD-T366": (
        "2 y[{0}] = 0\n2 3 y[{0}] += x[{0}+{1}] * w[{1}]\n2 y[{0}] max= 1", "", [],
        "minimal_filter(s1, taps=s2)",
    ),
    "PD-T271": (
        "4 y[{0}] = x[{0}] + 1\n4 z[{0}] = x[{0}]", "", [], "stage_expression(c0, before=s1, term=0)",
    ),
    "PD-T272": ("4 y[{0}] = x[{0}] + 1", "", [], "stage_expression(c0, before=c0, term=1)"),
    "PD-T273": (
        "t[0] = 0\n8\n| t[0] += x[{0}]\n| y[{0}] = t[0] * 2", "", [],
        "stage_expression(c2, before=s0, term=0)",
    ),
    "PD-T274": ("4:v y[{0}] = x[{0}] + 1", "", [], "stage_expression(c0, before=c0, term=0)"),
    "PD-T275": (HUGE.replace("= x", "= 1 / x"), "", [], "stage_expression(c0, before=s0, term=0)"),
    "PD-T276": (
        REGISTER.replace("= r", "= 2 * r"), "", [], "stage_expression(c1, before=s1, term=0)",
    ),
    "PD-T451": (
        f"{SLIDING}\n4 z[{{0}}] = x[{{0}}]", "", [], "stage_sliding(c1, before=s2, term=1)",
    ),
    "PD-T452": (SLIDING, "", [], "stage_sliding(c1, before=s0, term=2)"),
    "PD-T453": (SLIDING, "", [], "stage_sliding(c1, before=s1, term=1)"),
    "PD-T454": (
        "6 t[{0}] = 0\n4 3\n| y[{0},{1}] = 2 * t[{0}+{1}]\n| t[{0}+{1}] = x[{0}]", "", [],
        "stage_sliding(c1, before=s1, term=0)",
    ),
    "PD-T455": (f"{SLIDING} {EVEN}", "", [], "stage_sliding(c1, before=s0, term=1)"),
    "PD-T456": (
        HUGE.replace("64 y", "32 8 y").replace("{2}] = x[{0},{1},{2}", "{2},{3}] = 1 / x[{0},{1},{2}+{3}"),
        "", [],
        "stage_sliding(c0, before=s0, term=0)",
    ),
    "PD-T457": (
        REGISTER.replace("4:u y[{0}] = r[{0}]", "2:u 3:u y[{0},{1}] = 2 * r[{0}+{1}]"), "", [],
        "stage_sliding(c1, before=s1, term=0)",
    ),
    "PD-T244": (HUGE.replace("= x", "= 1 / x"), "", [], "stage_reciprocal(s0, array=x)"),
    "PD-T245": (
        f"{APART}| y[{{0}}] = 2 / t[{{0}}] if {{0}} >= 5\n| y[{{0}}] = 3 / t[{{0}}] if {{0}} <= 2", "", [],
        "stage_reciprocal(s2, array=t)",
    ),
    "PD-T163": ("8 4 y[{0},{1}] = x[{0},{1}]", "", [], "annotate_scope(s0, suffix=t)"),
    "PD-T164": (
        f"{PAIRS}8 2 y[{{0}}] += f32(a[{{1}}]) * x[{{0}},{{1}}]", "", [], "annotate_scope(s2, suffix=d)",
    ),
    "PD-T165": (
        f"{PAIRS}8 2 y[{{0}}] += f32(a[0]) * f32(b[{{0}},{{1}}])", "", [], "annotate_scope(s2, suffix=d)",
    ),
    "PD-T166": (
        f"{PAIRS}8 2 y[{{0}}] += f32(a[{{1}}]) * f32(b[{{0}},{{1}}])", "", [], "annotate_scope(s1, suffix=l)",
    ),
    "PD-T167": (
        f"{PAIRS}8 2:d y[{{0}}] += f32(a[{{1}}]) * f32(c[{{0}},{{1}}])", "", [],
        "annotate_scope(s1, suffix=l)",
    ),
    "PD-T301": ("10 y[{0}] = x[{0}]", "", [], "split_range(s0, at=10)"),
    "PD-T302": (LONG, "", [], "split_range(s0, at=1)"),
    "PD-T303": (
        "4:p\n| 2 t[{0}+{1}] = x[{0},{1}]\n| y[{0}] = t[{0}]", "", [], "split_range(s0, at=2)",
    ),
    "PD-T304": (
        "t f32 [4] stack\n4:p\n| t[{0}] = x[{0}]\n| y[{0}] = t[{0}]", "", [], "split_range(s0, at=2)",
    ),
    "PD-T305": ("9 y[{0}] = x[{0}]\n8:v y[{0}+1] = y[{0}]", "", [], "split_range(s1, at=4)"),
    "PD-T311": ("4 y[{0}] = x[{0}]\n4:u y[{0}+4] = x[{0}+4]", "", [], "join_ranges(s0)"),
    "PD-T312": ("4 y[{0}] = x[{0}]\n4 y[{0}+4] = x[7-{0}]", "", [], "join_ranges(s0)"),
    "PD-T313": ("16:v y[{0}] = x[{0}]\n2:v y[{0}+16] = x[{0}+16]", "", [], "join_ranges(s0)"),
    "PD-T314": (
        "4 t[{0}] = x[{0}]\n4:p t[{0}+4] = t[{0}]\n4:p t[{0}+8] = t[{0}+4]\n12 y[{0}] = t[{0}]", "", [],
        "join_ranges(s1)",
    ),
    "PD-T315": (
        "2\n| 2:p\n| | t[{0}+{1}*2] = x[{0},{1}]\n| | y[{0},{1}] = t[{1}*2]\n"
        "| 2:p\n| | t[{0}+{1}*2+4] = x[{0},{1}+2]\n| | y[{0},{1}+2] = t[{1}*2+4]", "", [],
        "join_ranges(s1)",
    ),
    "PD-T316": (
        "9 y[{0}] = x[{0}]\n4:v y[{0}+1] = y[{0}]\n4:v y[{0}+5] = y[{0}+4]", "", [], "join_ranges(s1)",
    ),
    "PD-T321": ("4 8 y[{0},{1}] = x[{0},{1}]", "", [], "pad_dim(y, dim=1, size=16)"),
    "PD-T322": (
        "t f32 [4:N] heap\n4\n| t[{0}] = x[{0}]\n| y[{0}] = t[{0}]", "", [], "pad_dim(t, dim=0, size=8)",
    ),
    "PD-T323": ("4 t[{0}] = x[{0}]\n4 y[{0}] = t[{0}]", "", [], "pad_dim(t, dim=0, size=4)"),
    "PD-T324": ("4:v t[{0},0] = x[{0}]\n4:v y[{0}] = t[{0},0]", "", [], "pad_dim(t, dim=1, size=2)"),
    "PD-T325": (
        "t f32 [4] stack\n4 t[{0}] = x[{0}]\n4 y[{0}] = t[{0}]", "", [], "pad_dim(t, dim=0, size=20000)",
    ),
    "PD-T331": ("4 t[{0}] = x[{0}]\n4 y[{0}] = t[{0}]", "", [], "share_storage(t, other=y)"),
    "PD-T332": (
        "4 t[{0}] = x[{0}]\n2 u[{0}] = t[{0}]\n2 y[{0}] = u[{0}]", "", [], "share_storage(t, other=u)",
    ),
    "PD-T333": (
        "4 t[{0}] = x[{0}]\n4 u[{0}] = t[3-{0}]\n4 y[{0}] = u[{0}]", "", [], "share_storage(t, other=u)",
    ),
    "PD-T334": (
        "t f32 [1] heap\nu f32 [1] heap\nu[0] = x[0]\nz[0] = u[0]\n4:p\n| t[0] = x[{0}]\n| y[{0}] = t[0]",
        "", [], "share_storage(t, other=u)",
    ),
    "PD-T335": (
        f"{REGISTER}\n4 t[{{0}}] = x[{{0}}]\n4 z[{{0}}] = t[{{0}}]", "", [], "share_storage(r, other=t)",
    ),
    "PD-T341": ("4 t[{0}] = x[{0}]\n4 y[{0}] = t[{0}]", "", [], "unshare_storage(t, array=t)"),
    "PD-T342": (
        "t f32 [4] heap -> a, b\n4 a[{0}] = x[{0}]\n4 z[{0}] = a[{0}]\n2 b[{0}] = x[{0}+1]\n"
        "4 y[{0}] = b[{0}]", "", [],
        "unshare_storage(t, array=a)",
    ),
    "PD-T343": (
        "t f32 [4] heap -> a, b\n4 a[{0}] = x[{0}]\n4 b[{0}] = x[3-{0}]\n4 y[{0}] = a[{0}]\n"
        "4 z[{0}] = b[{0}]", "", [], "unshare_storage(t, array=a)",
    ),
    "PD-T371": ("4 8 y[{0},{1}] = x[{0},{1}]", "", [], "split_dim(y, dim=1, size=2)"),
    "PD-T372": (
        "t f32 [4:N] heap\n4\n| t[{0}] = x[{0}]\n| y[{0}] = t[{0}]", "", [], "split_dim(t, dim=0, size=2)",
    ),
    "PD-T373": ("4 t[{0}] = x[{0}]\n4 y[{0}] = t[{0}]", "", [], "split_dim(t, dim=0, size=4)"),
    "PD-T374": (
        "6 t[{0}] = x[{0}]\n6 y[{0}] = t[3-{0}] if {0} <= 3\n6 y[{0}] = 0 if {0} >= 4", "", [],
        "split_dim(t, dim=0, size=2)",
    ),
    "PD-T375": (
        "t f32 [9000] stack\n9000 t[{0}] = x[{0}]\n9000 y[{0}] = t[{0}]", "", [],
        "split_dim(t, dim=0, size=8999)",
    ),
    "PD-T376": (
        "2 3 t[{0},{1}] = x[{0},{1}]\n6:v y[{0}] = t[{0}//3,{0}%3]", "", [], "split_dim(t, dim=1, size=2)",
    ),
    "PD-T381": ("8 y[{0}] = x[{0}]", "", [], "drop_overwritten(s0)"),
    "PD-T382": ("8 y[{0}] = x[{0}]\n7 y[{0}] = 0", "", [], "drop_overwritten(s0)"),
    "PD-T383": ("8 y[{0}] = x[{0}]\n8 y[{0}] += x[{0}]", "", [], "drop_overwritten(s0)"),
    "PD-T401": ("10 y[{0}] = x[{0}]", "", [], "split_with_condition(s0, factor=10)"),
    "PD-T402": ("10 y[{0}] = x[{0}]", "", [], "split_with_condition(s0, factor=5)"),
    "PD-T403": ("10:v y[{0}] = x[{0}]", "", [], "split_with_condition(s0, factor=4)"),
    "PD-T404": ("10 y[{0}] = x[{0}//5]", "", [], "split_with_condition(s0, factor=4)"),
    "PD-T405": ("x f32 [3] heap\n10 y[{0}] = x[(9-{0})%3]", "", [], "split_with_condition(s0, factor=4)"),
    "PD-T411": (CONDITION, "", [], "drop_condition(c1)"),
    "PD-T421": (CONDITION, "", [], "drop_unreached(c1)"),
    "PD-T422": ("8 y[{0}] = x[{0}] if {0} >= 8", "", [], "drop_unreached(c0)"),
    "PD-T423": (
        "t f32 [8] heap\n8 y[{0}] = 0\n8 t[{0}] = x[{0}] if {0} >= 8\n8 y[{0}] += t[{0}] if {0} >= 8",
        "", [], "drop_unreached(c1)",
    ),
    "PD-T431": ("4\n| 8 y[{0},{1}] = x[{1}]\n| z[{0}] = 1", "", [], "collapse_scopes(s0)"),
    "PD-T432": ("4 8:v y[{0},{1}] = x[{1}]", "", [], "collapse_scopes(s0)"),
    "PD-T433": ("65536 65536 y[{0},{1}] = x[{1}]", "", [], "collapse_scopes(s0)"),
    "PD-T434": (
        "y f32 [9] heap\n9 y[{0}] = 0\n4 4 y[{0}*4+{1}] = x[{1}] if {0}+{1} <= 2",
        "", [], "collapse_scopes(s1)",
    ),
    "PD-T441": ("8:p\n| t[{0}] = x[{0}]\n| y[{0}] = t[{0}]", "t f32 [8] heap", [], "rotate_scope(s0, at=1)"),
    "PD-T442": ("8\n| t[{0}] = x[{0}]\n| y[{0}] = t[{0}]", "t f32 [8] heap", [], "rotate_scope(s0, at=2)"),
    "PD-T443": ("1\n| t[{0}] = x[{0}]\n| y[{0}] = t[{0}]", "t f32 [8] heap", [], "rotate_scope(s0, at=1)"),
    "PD-T444": (
        "8\n| 4:p t[{0},{1}] = x[{0},{1}]\n| 4 y[{0},{1}] = t[{0},{1}]", "", [], "rotate_scope(s0, at=1)",
    ),
    "PD-T445": (LONG, "", [], "rotate_scope(s0, at=1)"),
    "PD-T601": ("8 t[{0}] = x[{0}]\n8 y[{0}] = t[{0}]", "", [], "lower_precision(x, dtype=bf16)"),
    "PD-T602": ("8 t[{0}] = x[{0}]\n8 y[{0}] = t[{0}]", "", [], "lower_precision(t, dtype=f16)"),
    "PD-T603": (
        "t f64 [8] heap\n8 t[{0}] = f64(x[{0}])\n8 y[{0}] = f32(t[{0}])", "", [],
        "lower_precision(t, dtype=bf16)",
    ),
    "PD-T604": (SUMMED + "\n4 y[{0}] = t[{0}]", "", [], "lower_precision(t, dtype=bf16)"),
    "PD-T605": ("8 t[{0}] = {0} + 1\n8 y[{0}] = t[{0}]", "", [], "lower_precision(t, dtype=bf16)"),
    "PD-T621": ("8 y[{0}] = x[{0}] + 1", "", [], "widen_integer(c0, dtype=i16, term=0)"),
    "PD-T622": (
        "a i16 [8] heap\n8 y[{0}] = f32(a[{0}])", "", [], "widen_integer(c0, dtype=u32, term=0)",
    ),
    "PD-T623": (
        "a i8 [16] heap\n16:v y[{0}] = f32(a[{0}])", "", [],
        "widen_integer(c0, dtype=i64, term=0)",
    ),
    "PD-T631": ("t[0] = 0\n8 t[0] += x[{0}]\ny[0] = t[0]", "", [], "split_scan(s0, array=t)"),
    "PD-T632": (
        "t[0] = 0\n4\n| t[0] += x[{0}]\n| t[0] max= w[{0}]\n| y[{0}] = t[0]", "", [],
        "split_scan(s0, array=t)",
    ),
    "PD-T633": (
        "t[0] = 1\n4\n| t[0] += x[{0}] * t[0]\n| y[{0}] = t[0]", "", [], "split_scan(s0, array=t)",
    ),
    "PD-T634": (
        "5 t[{0}] = 0\n4 2\n| t[{0}+{1}] += x[{0},{1}]\n| y[{0},{1}] = t[{0}+{1}]", "", [],
        "split_scan(s1, array=t)",
    ),
    "PD-T635": (
        f"8 t[{{0}}] = 0\n8 8\n| t[{{0}}] += x[{{0}},{{1}}] {EVEN}\n| y[{{0}},{{1}}] = t[{{0}}]", "", [],
        "split_scan(s2, array=t)",
    ),
    "PD-T636": (
        "r f32 [1] reg\nr[0] = 0\n4\n| r[0] += x[{0}]\n| y[{0}] = r[0]", "", [], "split_scan(s0, array=r)",
    ),
    "PD-T637": (
        "64 t[{0}] = 0\n65536 65536 64\n| t[{2}] += x[{2}]\n| y[{0},{2}] = t[{2}]", "", [],
        "split_scan(s3, array=t)",
    ),
    "PD-T641": (
        "t[0] = 0\n8 t[0] += x[{0}]\n4 y[{0}] = t[0]", "", [], "stage_running(c2, array=t, before=c2)",
    ),
    "PD-T642": (
        f"t[0] = 0\n8 y[{{0}}] = 0\n8\n| t[0] += x[{{0}}]\n| 8 y[{{0}}] += t[0] * w[{{1}}] {EVEN}", "", [],
        "stage_running(c3, array=t, before=s2)",
    ),
    "PD-T643": (
        "t[0] = 0\n65536 65536 64\n| t[0] += x[{0}]\n| y[{1}] = t[0]", "", [],
        "stage_running(c2, array=t, before=c2)",
    ),
    "PD-T644": (
        "t[0] = 0\n4\n| 8\n| | y[{0},{1}] = t[0]\n| | t[0] += x[{0},{1}]", "", [],
        "stage_running(c1, array=t, before=s1)",
    ),
    "PD-T651": (f"{TABLE}\n4 y[{{0}}] = x[order[{{0}}]]", "", [], "fold_table(c0, read=1)"),
    "PD-T652": (
        f"{TABLE}\nk i32 [4] heap\n4 y[{{0}}] = x[clamp(k[{{0}}]+order[{{0}}], 0, 8)]", "", [],
        "fold_table(c0, read=0)",
    ),
    "PD-T653": (
        f"{TABLE}\n8 y[{{0}}] = x[order[{{0}}]] if {{0}} <= 3", "", [], "fold_table(c0, read=0)",
    ),
    "PD-T654": (
        f"{TABLE}\n600 600 y[{{0}},{{1}}] = x[order[({{0}}+{{1}})%4]]", "", [], "fold_table(c0, read=0)",
    ),
    "PD-T655": (f"{TABLE}\n4 y[{{0}}] = x[order[{{0}}]]", "", [], "fold_table(c0, read=0)"),
    "PD-T656": (
        "half table f32 [4] = {0.5, 0.5, 0.5, 0.5}\n4 y[{0}] = select(half[{0}] > 0, x[{0}], 0)", "", [],
        "fold_table(c0, read=0)",
    ),
    "PD-T657": (
        "wide table i64 [2] = {0, 144115188075855872}\ny i64 [2] heap\n2 y[{0}] = wide[{0}]", "", [],
        "fold_table(c0, read=0)",
    ),
    "PD-T661": ("8 y[{0}] = 0\n8 y[{0}] += 0 * x[{0}]", "", [], "drop_zero_sum(c1)"),
    "PD-T662": (f"{WHOLE}\n8 y[{{0}}] = 0\n8 y[{{0}}] += a[{{0}}] * 2", "", [], "drop_zero_sum(c1)"),
    "PD-T663": (
        "t i32 [8] heap\ny i32 [8] heap\n8:p t[{0}] = {0}\n8 t[{0}] += 0\n8 y[{0}] = t[{0}]", "", [],
        "drop_zero_sum(c1)",
    ),
    "PD-T671": ("4\n| 8 y[{0},{1}] = x[{1}]\n| z[{0}] = 1", "", [], "skew_scopes(s0, factor=1)"),
    "PD-T672": ("4 8:v y[{0},{1}] = x[{1}]", "", [], "skew_scopes(s0, factor=1)"),
    "PD-T673": ("4 8 y[{0},{1}] = x[{1}]", "", [], "skew_scopes(s0, factor=0)"),
    "PD-T674": (
        "9 9 y[{0},{1}] = x[{0},{1}]\n8 8 y[{0}+1,{1}] = y[{0},{1}+1]", "", [], "skew_scopes(s2, factor=1)",
    ),
    "PD-T675": ("10 y[{0}] = 0\n8 3 y[{0}+{1}] += x[{0}//4]", "", [], "skew_scopes(s1, factor=1)"),
    "PD-T676": (
        "x f32 [3] heap\n10 y[{0}] = 0\n8 3 y[{0}+{1}] += x[(7-{0})%3]", "", [], "skew_scopes(s1, factor=1)",
    ),
    "PD-T681": ("8 y[{0}] = 0\n8 y[{0}] += x[{0}] * w[{0}]", "", [], "shift_factor(c1, factor=0, by=1)"),
    "PD-T682": (
        f"{WHOLE}\n8 y[{{0}}] = 0\n8 y[{{0}}] += a[{{0}}] * a[{{0}}]", "", [],
        "shift_factor(c1, factor=0, by=0)",
    ),
    "PD-T683": (
        f"{WHOLE}\n8 y[{{0}}] = a[{{0}}]\n8 y[{{0}}] += a[{{0}}] * y[{{0}}]", "", [],
        "shift_factor(c1, factor=0, by=3)",
    ),
    "PD-T684": (
        "a i64 [8] heap\ny i64 [8] heap\n8 y[{0}] = 0\n8:v y[{0}] += a[{0}] * a[{0}]", "", [],
        "shift_factor(c1, factor=0, by=3)",
    ),
    "PD-T691": ("8 y[{0}] = x[{0}] + 1", "", [], "narrow_integer(c0, dtype=i16, term=0)"),
    "PD-T692": (f"{WHOLE}\n8 y[{{0}}] = a[{{0}}] + 1", "", [], "narrow_integer(c0, dtype=i64, term=0)"),
    "PD-T693": (
        "a i8 [8] heap\ny i32 [8] heap\n8 y[{0}] = i32(a[{0}]) + 100", "", [],
        "narrow_integer(c0, dtype=i8, term=0)",
    ),
    "PD-T701": ("4:u 8 t[{1}] = w[{1}]\n8 y[{0}] = t[{0}]", "", [], "run_once(s0)"),
    "PD-T702": ("4 8 t[{1}] = x[{0},{1}]\n8 y[{0}] = t[{0}]", "", [], "run_once(s0)"),
    "PD-T703": ("8 t[{0}] = 0\n4 8 t[{1}] += w[{1}]\n8 y[{0}] = t[{0}]", "", [], "run_once(s1)"),
    "PD-T704": (
        "3 4\n| t[0] = x[0] if {0} <= 0\n| t[0] = t[0] * 2\ny[0] = t[0]", "", [], "run_once(s1)",
    ),
    "PD-T711": ("4 8 y[{0},{1}] = x[{0},{1}]", "", [], "stage_window(s0, array=x)"),
    "PD-T712": (
        "4\n| y[{0}] = 0\n| 2 y[{0}] += x[{0}*4+{1}]", "", [], "stage_window(s0, array=x)",
    ),
    "PD-T713": (
        "6 t[{0}] = x[{0}]\n4\n| 3 y[{0},{1}] = t[{0}+{1}]\n| t[{0}] = 0", "", [],
        "stage_window(s1, array=t)",
    ),
    "PD-T714": (
        "t f32 [6] reg\n6:u t[{0}] = x[{0}]\n4:u 3:u y[{0},{1}] = t[{0}+{1}]", "", [],
        "stage_window(s1, array=t)",
    ),
    "PD-T715": (
        "y[0] = 0\n500000 2 500000 y[0] += x[{0}+{1},{2}]", "", [], "stage_window(s0, array=x)",
    ),
    "PD-T716": (
        "4\n| y[{0}] = 0\n| 3 y[{0}] += x[{0}+{1}] if {1} <= 1", "", [], "stage_window(s0, array=x)",
    ),
    "PD-T721": ("4 8 y[{0},{1}] = x[{0},{1}]", "", [], "shift_dim(y, dim=1, by=7)"),
    "PD-T722": (
        "t f32 [4:N] heap\n4\n| t[{0}] = x[{0}]\n| y[{0}] = t[{0}]", "", [], "shift_dim(t, dim=0, by=4)",
    ),
    "PD-T723": ("4 t[{0}] = x[{0}]\n4 y[{0}] = t[{0}]", "", [], "shift_dim(t, dim=0, by=0)"),
    "PD-T724": ("4:v t[{0},0] = x[{0}]\n4:v y[{0}] = t[{0},0]", "", [], "shift_dim(t, dim=1, by=1)"),
    "PD-T725": (
        "t f32 [4] stack\n4 t[{0}] = x[{0}]\n4 y[{0}] = t[{0}]", "", [], "shift_dim(t, dim=0, by=20000)",
    ),
    "PD-T731": ("4\n| t[{0}] = x[{0}]\n| y[{0}] = t[{0}]", "", [], "keep_dims(t, dim=0)"),
    "PD-T732": (
        "t f32 [4:N] heap\n3\n| 4 t[{1}] = x[{1}]\n| y[{0}] = t[{0}]", "", [], "keep_dims(t, dim=0)",
    ),
    "PD-T733": (
        "t f32 [4:N] heap\n4\n| t[{0}] = x[{0}] if {0} <= 0\n| y[{0}] = t[{0}]", "", [],
        "keep_dims(t, dim=0)",
    ),
    "PD-T734": (
        "t f32 [4:N] reg\n4\n| t[{0}] = x[{0}]\n| y[{0}] = t[{0}]", "", [], "keep_dims(t, dim=0)",
    ),
    "PD-T741": ("8 y[{0}] = x[{0}]", "", [], "add_dim(y, scope=s0)"),
    "PD-T742": ("8 t[{0}] = x[{0}]\n8 y[{0}] = t[{0}]", "", [], "add_dim(t, scope=s0)"),
    "PD-T743": (
        "t f32 [100000000] heap\n100000\n| t[0] = x[{0}]\n| y[{0}] = t[0]", "", [], "add_dim(t, scope=s0)",
    ),
    "PD-T606": ("8:v t[{0}] = x[{0}]\n8 y[{0}] = t[{0}]", "", [], "lower_precision(t, dtype=bf16)"),
}  # fmt: skip


@pytest.mark.parametrize("code", REFUSALS)
def test_refused_with_the_reason(code: str) -> None:
    text, outputs, first, refused = REFUSALS[code]
    start = play(program(text, outputs), *first)
    assert refusal(start, refused) == code
    rejection = RULES.attempt(start, move(refused))
    assert isinstance(rejection, Rejection)
    rendered = str(rejection)
    assert rendered.startswith(f"error[{code}]: cannot apply {refused.split('(')[0]}")
    assert "why: " in rendered and "try: " in rendered
    assert not re.search(r"\{[a-z]", rejection.why + rejection.hint), "every word is filled in"
    if rejection.refusal.at:
        assert "^" in rendered, "the line of the program is shown and underlined"


def test_rows_that_overlap_are_not_transposed() -> None:
    text = "y f32 [19] heap\n8 4 y[{0}*2+{1}] = x[{1},{0}]"
    assert refusal(program(text), "annotate_scope(s0, suffix=t)") == "PD-T163"
    assert (
        refusal(program(text.replace("*2", "*4").replace("19", "33")), "annotate_scope(s0, suffix=t)") == ""
    )


def test_every_reason_has_a_refusal_test() -> None:
    codes = [r.code for t in GENERIC.values() for r in t.requirements]
    assert len(codes) == len(set(codes)), "codes are unique"
    assert set(codes) == set(REFUSALS)


def test_a_private_copy_does_not_last_through_outer_iterations() -> None:
    start = program("2 4\n| t[{0}+{1}*2] = x[{0},{1}]\n| y[{0},{1}] = t[{1}*2]")
    assert refusal(start, "annotate_scope(s1, suffix=p)") == "PD-T155"


def test_collapsing_a_scope_of_one_iteration_keeps_named_cells_named() -> None:
    """Cell 0 is known by name; `{0}//2` would not be, though it is 0 as well."""
    start = program("r f32 [1] reg\n1 r[{0}] = x[{0}]\n1 2 y[{0},{1}] = z[{1}] * r[{0}]")
    after = play(start, "collapse_scopes(s1)")
    assert tree(after).splitlines()[1] == "2 y[0,{0}] = z[{0}] * r[0]"
    assert next(violations(after, DIALECT), None) is None


def test_a_definition_is_found_through_the_digits_of_one_number() -> None:
    """Quotient and remainder by one divisor tell the iteration; by two, or in another order, they do not."""
    start = program("3 4 t[{0},{1}] = x[{0},{1}] * 2\n3 4 y[{0},{1}] = t[{0},{1}] + 1")
    both = play(start, "collapse_scopes(s0)", "collapse_scopes(s2)")
    after = play(both, "inline_definition(c1, array=t)")
    assert tree(after).splitlines()[1] == "12 y[{0}//4,{0}%4] = x[{0}//4,{0}%4] * 2 + 1"
    cut = play(both, "split_scope(s2.s3, factor=2)", "inline_definition(c1, array=t)")
    assert "y[({0}*2+{1})//4,({0}*2+{1})%4] = x[({0}*2+{1})//4,({0}*2+{1})%4] * 2 + 1" in tree(cut)
    other = program("12 t[{0}//4,{0}%4] = x[{0}]\n12 y[{0}] = t[{0}//3%3,{0}%3]", outputs="y")
    assert refusal(other, "inline_definition(c1, array=t)")


def test_a_rotated_loop_may_be_joined_with_what_came_after_it() -> None:
    """The next row is made in the loop that writes the one before, in the buffer of one row."""
    start = program(
        "t f32 [8:N,16] heap\n8\n| 16 t[{0},{1}] = x[{0},{1}] * 2\n| 16 y[{0},{1}] = t[{0},{1}] + 1",
        outputs="y",
    )
    after = play(start, "rotate_scope(s0, at=1)", "join_scopes(s2)")
    assert tree(after).splitlines() == [
        "1 16 t[{0},{1}] = x[{0},{1}] * 2",
        "7 16",
        "| y[{0},{1}] = t[{0},{1}] + 1",
        "| t[{0}+1,{1}] = x[{0}+1,{1}] * 2",
        "1 16 y[{0}+7,{1}] = t[{0}+7,{1}] + 1",
    ]
    backwards = program(
        "t f32 [8:N,16] heap\n8\n| 16 t[{0},{1}] = x[{0},{1}]\n| 16 y[{0},{1}] = t[{0},15-{1}]", outputs="y"
    )
    rotated = play(backwards, "rotate_scope(s0, at=1)")
    assert refusal(rotated, "join_scopes(s2)") == "PD-T125"


def test_what_is_inlined_keeps_its_dtype_in_the_text() -> None:
    """`f32({0} * 2)` would be read as a product of i64, which may be another number than one of i32."""
    declared = "k i32 [4] heap\nj i32 [4] heap\ny i32 [4] heap\n"
    declared += "4 k[{0}] = {0} * 2\n4 j[{0}] = i32(round(x[{0}]))"
    alone, beside = (f"4 y[{{0}}] = i32(round(f32({value})))" for value in ("k[{0}]", "k[{0}] + j[{0}]"))
    inline = "inline_definition(c2, array=k)"
    assert refusal(program(f"{declared}\n{alone}", "j"), inline) == "PD-T260"
    after = play(program(f"{declared}\n{beside}"), inline)
    assert tree(after).endswith("4 y[{0}] = i32(round(f32({0} * 2 + j[{0}])))")
    assert parse(after.text, DIALECT) == after


def test_kind_depends_on_the_place() -> None:
    start = program("4 y[{0}] = 0\n4 8 2 y[{0}] += x[{0},{1},{2}]")
    exact = RULES.step(start, move("swap_scopes(s1)"))
    halves = RULES.step(start, move("swap_scopes(s2)"))
    assert exact.legal.kind is Kind.EXACT
    assert halves.legal.kind is Kind.REASSOCIATES


def test_declared_law_is_named() -> None:
    start = program("8 y[{0}] = x[{0}] / s[0]")
    legal = RULES.step(start, move("stage_reciprocal(s0, array=s)")).legal
    assert legal.kind is Kind.DECLARED_LAW and legal.laws == {"x/y = x*(1/y)"}


def test_moves_leave_the_old_program_alone() -> None:
    start = program("4 t[{0}] = x[{0}]\n4 y[{0}] = t[{0}]")
    text = start.text
    for step in RULES.steps(start):
        assert step.before is start and step.after is not start
    assert start.text == text


def test_the_program_after_any_move_travels_between_processes() -> None:
    """Nodes that were made of others hold functions, which do not pickle."""
    start = program("4 t[{0}] = x[{0}]\n4 8 y[{0},{1}] = t[{0}] * exp(t[{0}]) + {1}")
    for step in RULES.steps(start):
        again = pickle.loads(pickle.dumps(step))
        assert again == step and again.after.text == step.after.text
        assert [node.id for _, node in again.after.walk()] == [node.id for _, node in step.after.walk()]


def test_enumeration_and_check_agree() -> None:
    start = program("4 8 t[{0},{1}] = x[{0},{1}]\n4 8 y[{0},{1}] = t[{0},{1}] / x[{0},{1}]")
    offered = [s.move for s in RULES.steps(start, max(Kind))]
    assert offered and len(offered) == len(set(offered))
    for candidate in RULES.candidates(start):
        assert isinstance(RULES.attempt(start, candidate), Step) == (candidate in offered)


def test_names_of_places_do_not_double_for_ever() -> None:
    """Splitting and collapsing made names twice as long each time, until a training's memory was full."""
    now, seen = program("64 y[{0}] = x[{0}]"), set[str]()
    for _ in range(40):
        for played in ("split_scope({}, factor=4)", "collapse_scopes({})"):
            now = play(now, played.format(now.body[0].id))
            assert len(now.paths) == len(now.places) and max(map(len, now.paths)) <= LONGEST_NAME + 8
        assert now.text == program("64 y[{0}] = x[{0}]").text
        seen.add(now.body[0].id)
    assert len(seen) == 40, "what is new has a new name"
    SavedMove(transformation="split_scope", place=now.body[0].id)


def test_dialect_of_the_tests_has_every_kind_of_location() -> None:
    assert {loc.copy_out_only for loc in DIALECT.locations.values()} == {True, False}

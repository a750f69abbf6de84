"""Sums of products that are scattered: the move that skews loops, and the expert that lets them gather."""

from __future__ import annotations

from math import prod

import pytest
from snippets import DIALECT, RULES, move, program, refusal, tree
from test_made_targets import target

from perfdojo_sdk.codegen.c import CEmitter
from perfdojo_sdk.core.dialect import CORE_DIALECT
from perfdojo_sdk.core.program import Program, Scope, Statement
from perfdojo_sdk.core.text import parse
from perfdojo_sdk.core.transformation import Kind, Rules, Trace
from perfdojo_sdk.core.transformations import GENERIC
from perfdojo_sdk.experts.cpu.planner import plan
from perfdojo_sdk.experts.cpu.scattered_sums import gather_scattered
from perfdojo_sdk.hookspecs.types import Artifact
from perfdojo_sdk.measure.native_runner import NativeRunner
from perfdojo_sdk.search.play import Play
from perfdojo_sdk.verify.dependence import verify_dependence_trace
from perfdojo_sdk.verify.exact import verify_exact_trace
from perfdojo_sdk.verify.numeric import verify_numeric

TARGET = target(vector_registers=32, peak_gflops={"f32": 100.0})
RUNNER = NativeRunner()


def row(size: int, taps: int, step: int = 1, spread: int = 1, pad: int = 0, out: int = 0) -> str:
    """A transposed convolution of rows as it is scattered. ``out``: elements of a result, if not all that
    are reached."""
    reached = (size - 1) * step + (taps - 1) * spread + 1 - pad
    place = f"{{3}}*{step}+{{4}}*{spread}"
    conditions = [f"{place} >= {pad}"] * (pad > 0) + [f"{place} <= {out - 1 + pad}"] * (0 < out < reached)
    under = f" if {' and '.join(conditions)}" * bool(conditions)
    return f"""kernel scattered(x, f, b) -> y
x f32 [2,3,{size}] heap
f f32 [3,4,{taps}] heap
b f32 [4] heap
y f32 [2,4,{out or reached}] heap

2 4 {out or reached} y[{{0}},{{1}},{{2}}] = b[{{1}}]
2 3 4 {size} {taps} y[{{0}},{{2}},{place}-{pad}] += x[{{0}},{{1}},{{3}}] * f[{{1}},{{2}},{{4}}]{under}
"""


#: Two dimensions, of which one moves on by two elements and loses a border; and groups, whose channels are
#: two loops that no two iterations share a result in.
PLANE = """kernel plane(x, f) -> y
x f32 [2,4,3] heap
f f32 [2,8,3,2] heap
y f32 [8,7,4] heap

8 7 4 y[{0},{1},{2}] = 0
2 8 4 3 3 2 y[{1},{2}*2+{4}-1,{3}+{5}] += x[{0},{2},{3}] * f[{0},{1},{4},{5}] if {2}*2+{4} >= 1 and \
{2}*2+{4} <= 7
"""
GROUPS = """kernel groups(x, f) -> y
x f32 [4,5] heap
f f32 [4,2,3] heap
y f32 [4,10] heap

4 10 y[{0},{1}] = 0
2 2 2 5 3 y[{0}*2+{2},{3}*2+{4}-1] += x[{0}*2+{1},{3}] * f[{0}*2+{1},{2},{4}] if {3}*2+{4} >= 1
"""


def passes(trace: Trace) -> bool:
    """True if a game passes all three legs."""
    artifact = RUNNER.compile(CEmitter(trace.program, "k", CORE_DIALECT).source())
    assert isinstance(artifact, Artifact), artifact
    numeric = verify_numeric(trace.root, trace.program, artifact, RUNNER, {}, CORE_DIALECT, quick=True)
    return (
        verify_exact_trace(trace, DIALECT).ok and bool(verify_dependence_trace(trace, RULES)) and numeric.ok
    )


def gathered(root: Program) -> tuple[Trace, int]:
    """The game of the rule alone, and the number of nests that the sum became; 0 where it stays."""
    rules = Rules(DIALECT, GENERIC)
    play = Play(root, rules)
    decisions = gather_scattered(play, TARGET)
    return play.trace, sum(int(decision.numbers.get("nests", 0)) for decision in decisions)


def in_registers(root: Scope) -> bool:
    """True if each result of a nest is started and summed in one iteration of the loops over results."""
    body = root.body
    while len(body) == 1 and isinstance(body[0], Scope):
        body = body[0].body
    return len(body) == 2


@pytest.mark.parametrize("conditions", ["", " if {0}+{1} >= 1 and {0}*2+{1} <= 12"])
@pytest.mark.parametrize("factor", [1, 2])
def test_skewed_loops_do_what_the_others_did(factor: int, conditions: str) -> None:
    text = f"12 y[{{0}}] = 0\n8 3 y[{{0}}+{{1}}*{factor}] += x[{{0}},{{1}}] * w[{{1}}]{conditions}"
    root = program(text)
    step = RULES.step(root, move(f"skew_scopes(s1, factor={factor})"))
    assert step.legal.kind is Kind.REASSOCIATES, "results add up from the other end"
    assert passes(Trace(root, (step,)))


def test_a_skewed_map_is_exact_and_what_depends_is_not_turned_around() -> None:
    root = program("2 8 3 y[{0},{1},{2}] = x[{0},{1}+{2}]")
    step = RULES.step(root, move("skew_scopes(s1, factor=1)"))
    assert step.legal.kind is Kind.EXACT and passes(Trace(root, (step,)))
    assert "10 3 y[{0},{1}-{2},{2}] = x[{0},{1}]" in tree(step.after)
    carried = program("9 9 y[{0},{1}] = x[{0},{1}]\n8 8 y[{0}+1,{1}] = y[{0},{1}+1]")
    assert refusal(carried, "skew_scopes(s2, factor=1)") == "PD-T674"


def test_only_factors_that_gather_are_offered() -> None:
    root = program("24 y[{0}] = 0\n8 3 y[{0}*2+{1}*4] += x[{0}] * w[{1}]\n4 3 z[{0},{1}] = x[{0}+{1}]")
    offered = [step.move.text for step in RULES.steps(root) if step.move.transformation == "skew_scopes"]
    assert offered == ["skew_scopes(s1, factor=2)"]


@pytest.mark.parametrize(
    ("text", "nests"),
    [
        (row(5, 3), 1),
        (row(5, 3, pad=1, out=5), 1),
        (row(5, 4, step=2, pad=1, out=10), 2),
        (row(5, 3, step=2, pad=1, out=9), 2),
        (row(5, 3, step=2, pad=1, out=10), 2),
        (row(4, 2, step=2), 1),
        (row(4, 2, step=3), 2),
        (row(5, 2, step=1, spread=2), 1),
        (row(5, 3, step=2, spread=3), 2),
        (PLANE, 2),
        (GROUPS, 2),
    ],
)
def test_each_class_of_results_gathers_its_sums(text: str, nests: int) -> None:
    trace, count = gathered(parse(text))
    assert count == nests
    sums = [root for root in trace.program.body if any(leaf.statement.accumulate for leaf in root.leaves)]
    assert len(sums) == nests and all(isinstance(root, Scope) and in_registers(root) for root in sums)
    assert passes(trace)


def test_results_that_start_under_a_condition_stay_scattered() -> None:
    text = row(5, 3).replace("= b[{1}]", "= b[{1}] if {2} >= 0")
    assert gathered(parse(text)) == (Trace(parse(text)), 0)


def test_the_plan_of_a_transposed_convolution_has_vectors_and_no_condition() -> None:
    text = row(24, 4, step=2, pad=1, out=48)
    for few, many in (("[3,4", "[3,16"), ("[4]", "[16]"), ("[2,4,", "[2,16,"), ("2 4 48", "2 16 48")):
        text = text.replace(few, many)
    root = parse(text.replace("2 3 4 24", "2 3 16 24"))
    found = plan(root, RULES, TARGET)
    assert [d.rule for d in found.decisions].count("gather sums") == 1
    places = [p for p in found.games[0].program.places if isinstance(p.node, Statement)]
    assert not any(p.node.guard for p in places if isinstance(p.node, Statement))
    products = [p for p in places if isinstance(p.node, Statement) and p.node.accumulate]
    inside = [p for p in products if any(scope.suffix == "v" for scope in p.above)]
    assert sum(prod(p.sizes) for p in inside) > 0.9 * sum(prod(p.sizes) for p in products)


def test_a_nest_that_went_into_another_one_is_not_looked_for_at_the_root() -> None:
    text = """kernel two(x, f, b) -> y
x f32 [1,3] heap
f f32 [1,3,1] heap
b f32 [3] heap
y f32 [3,5] heap

3 5 y[{0},{1}] = b[{0}]
1 3 3 1 y[{1},{2}*2+{3}] += x[{0},{2}] * f[{0},{1},{3}]
"""
    assert plan(parse(text, TARGET.dialect), RULES, TARGET).games

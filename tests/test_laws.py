"""Moves under declared laws: blocked single-pass forms are reached, and no law is used in silence."""

from __future__ import annotations

from math import inf, isnan
from random import Random

import pytest
from snippets import DIALECT, RULES, like, move, program, tree

from perfdojo_sdk.core.domains import ROUNDING, rounded
from perfdojo_sdk.core.dtypes import rounding_law
from perfdojo_sdk.core.interpreter import interpret
from perfdojo_sdk.core.laws import FILTER, LAWS, RECIPROCAL, computes_other_terms
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.core.text import parse
from perfdojo_sdk.core.transformation import Kind, Step, Trace
from perfdojo_sdk.search.play import Play
from perfdojo_sdk.verify.dependence import verify_dependence, verify_dependence_trace
from perfdojo_sdk.verify.exact import verify_exact, verify_exact_trace
from perfdojo_sdk.verify.models import RING_LAWS

BATCH_NORM = """
3
| t[{0}] = 0
| 4 2 8 t[{0}] += x[{1},{0},{2},{3}]
3 u[{0}] = t[{0}] / 64
4 3 2 8 d[{0},{1},{2},{3}] = x[{0},{1},{2},{3}] - u[{1}]
3
| q[{0}] = 0
| 4 2 8 q[{0}] += d[{1},{0},{2},{3}] * d[{1},{0},{2},{3}]
3 r[{0}] = sqrt(q[{0}] / 64 + 1e-05)
4 3 2 8 y[{0},{1},{2},{3}] = d[{0},{1},{2},{3}] / r[{1}] * w[{1}] + b[{1}]
"""

BATCH_NORM_MOVES = """
inline_definition(c5, array=d)
inline_definition(c7, array=d)
remove_dead(d)
split_reduction(s1, lane=s1)
split_reduction(s1, lane=s2)
split_reduction(s10, lane=s10)
split_reduction(s10, lane=s11)
rebase_squares(s12, sum=t_p_p)
fission_scope(t_p_p_m.fix)
fission_scope(s11.t_p_p_m.fix)
join_scopes(t_p_p.in.0)
join_scopes(t_p_p.in.1)
join_scopes(q_p_p.in.0)
join_scopes(q_p_p.in.1)
join_scopes(s0)
join_scopes(s0)
reorder_statements(q_p.in.0)
reorder_statements(c4)
reorder_statements(c2)
reorder_statements(t_p.out.0)
reorder_statements(t_p_p.out.0)
join_scopes(t_p_p.in.0)
join_scopes(t_p_p.in.1)
"""

#: x is read once for the sum and the squares (each row of it, from a near cache, twice) ...
BATCH_NORM_BLOCKED = """
3
| t[{0}] = 0
| 4 t_p[{0},{1}] = 0
| 4 2
| | t_p_p[{0},{1},{2}] = 0
| | 8 t_p_p[{0},{1},{2}] += x[{1},{0},{2},{3}]
| | q_p_p[{0},{1},{2}] = 0
| | t_p_p_m[{0},{1},{2}] = t_p_p[{0},{1},{2}] / 8
| | 8 q_p_p[{0},{1},{2}] += (x[{1},{0},{2},{3}] - t_p_p_m[{0},{1},{2}]) * (x[{1},{0},{2},{3}] - t_p_p_m[{0},{1},{2}])
| 4 2 t_p[{0},{1}] += t_p_p[{0},{1},{2}]
| 4 t[{0}] += t_p[{0},{1}]
| u[{0}] = t[{0}] / 64
| q[{0}] = 0
| 4 q_p[{0},{1}] = 0
| 4 2 q_p_p[{0},{1},{2}] += (t_p_p_m[{0},{1},{2}] - u[{0}]) * (t_p_p_m[{0},{1},{2}] - u[{0}]) * 8
| 4 2 q_p[{0},{1}] += q_p_p[{0},{1},{2}]
| 4 q[{0}] += q_p[{0},{1}]
3 r[{0}] = sqrt(q[{0}] / 64 + 1e-05)
4 3 2 8 y[{0},{1},{2},{3}] = (x[{0},{1},{2},{3}] - u[{1}]) / r[{1}] * w[{1}] + b[{1}]
"""  # noqa: E501


SOFTMAX = """
8
| m[{0}] = -inf
| 16 m[{0}] max= x[{0},{1}]
8 16 e[{0},{1}] = exp(x[{0},{1}] - m[{0}])
8
| s[{0}] = 0
| 16 s[{0}] += e[{0},{1}]
8 16 y[{0},{1}] = e[{0},{1}] / s[{0}]
"""

SOFTMAX_MOVES = """
inline_definition(c4, array=e)
inline_definition(c5, array=e)
remove_dead(e)
split_scope(s1, factor=4)
split_scope(s5, factor=4)
split_reduction(s1.o, lane=s1.o)
split_reduction(s5.o, lane=s5.o)
rebase_exponent(c4, maximum=m_p)
factor_reduction(s5.i)
fission_scope(s_p_f.out)
join_scopes(s0)
join_scopes(m_p.in.0)
reorder_statements(s_p.in.0)
reorder_statements(c3)
reorder_statements(m_p.out.0)
join_scopes(m_p.in.0)
join_scopes(s_p.in.0)
"""

#: One pass over x for both the maximum and the sum, another one for y.
SOFTMAX_BLOCKED = """
8
| m[{0}] = -inf
| 4
| | m_p[{0},{1}] = -inf
| | 4 m_p[{0},{1}] max= x[{0},{1}*4+{2}]
| | s_p_f[{0},{1}] = 0
| | 4 s_p_f[{0},{1}] += exp(x[{0},{1}*4+{2}] - max(m_p[{0},{1}], -3.4028234663852886e+38))
| 4 m[{0}] max= m_p[{0},{1}]
| s[{0}] = 0
| 4
| | s_p[{0},{1}] = 0
| | s_p[{0},{1}] += s_p_f[{0},{1}] * exp(max(m_p[{0},{1}], -3.4028234663852886e+38) - m[{0}])
| 4 s[{0}] += s_p[{0},{1}]
8 16 y[{0},{1}] = exp(x[{0},{1}] - m[{0}]) / s[{0}]
"""


GUARDED = "max(m_p[{0},{1}], -3.4028234663852886e+38)"


def game(start: Program, moves: str) -> Trace:
    return Trace(start).play_all(RULES, [move(line) for line in moves.split("\n") if line])


def proved(trace: Trace) -> bool:
    exact = verify_exact_trace(trace, DIALECT, models=1)
    assert exact.ok, exact.problem
    report = verify_dependence_trace(trace, RULES)
    assert report.ok, report.problem
    return True


def test_blocked_single_pass_variance() -> None:
    trace = game(program(BATCH_NORM), BATCH_NORM_MOVES)
    assert tree(trace.program) == BATCH_NORM_BLOCKED.strip()
    assert trace.kind is Kind.DECLARED_LAW
    assert trace.laws == {"sum((x-c)^2) = sum((x-m)^2) + n*(m-c)^2"}
    assert proved(trace)


def test_blocked_single_pass_softmax() -> None:
    trace = game(program(SOFTMAX), SOFTMAX_MOVES)
    assert tree(trace.program) == SOFTMAX_BLOCKED.strip()
    assert trace.laws == {"exp(a)*exp(b) = exp(a+b)", "a*c + b*c = (a+b)*c"}
    assert proved(trace)


def test_masked_blocks_of_a_single_pass_softmax() -> None:
    """Blocks of which nothing is left give nothing, whatever the others are; a row of them is NaN in both."""
    trace, rng = game(program(SOFTMAX), SOFTMAX_MOVES), Random(1)
    for _ in range(20):
        x = [-inf if rng.random() < 0.8 else rounded(rng.uniform(-150, 150), "f32") for _ in range(128)]
        x[112:116], x[116:] = [1.0, 2.0, 3.0, -inf], [-inf] * 12
        x[32:48] = [-inf] * 16
        old, new = (interpret(p, {"x": x}, ROUNDING, DIALECT)["y"] for p in (trace.root, trace.program))
        for was, found in zip(old, new, strict=True):
            assert isnan(was) and isnan(found) or abs(was - found) <= 2.0**-14 * was + 2.0**-149


@pytest.mark.parametrize(
    ("start", "moves"),
    [(BATCH_NORM, BATCH_NORM_MOVES), (SOFTMAX, SOFTMAX_MOVES)],
    ids=["batchnorm", "softmax"],
)
def test_a_law_in_silence_is_caught(start: str, moves: str) -> None:
    """The step that uses a law, said to use none, is refuted: by leg 3, and by leg 1 if no ring has it."""
    trace = game(program(start), moves)
    for step in trace.steps:
        if step.legal.laws:
            relation, kind = RULES.relation(step), step.legal.kind
            assert not verify_dependence(step.before, step.after, relation, DIALECT, kind).ok
            exact = verify_exact(step.before, step.after, (), DIALECT)
            assert exact.ok == step.legal.laws.issubset(RING_LAWS)


WRONG = [
    (BATCH_NORM, BATCH_NORM_MOVES, "/ 8", "/ 4"),
    (BATCH_NORM, BATCH_NORM_MOVES, "* 8", "* 4"),
    (BATCH_NORM, BATCH_NORM_MOVES, "t_p_p_m[{0},{1},{2}] - u[{0}]", "t_p_p_m[{0},{1},{2}] - u[0]"),
    (SOFTMAX, SOFTMAX_MOVES, f"exp({GUARDED} - m[{{0}}])", f"exp({GUARDED} - m[{{0}}])".replace("{1}", "0")),
]


@pytest.mark.parametrize(("start", "moves", "right", "wrong"), WRONG)
def test_a_damaged_use_of_a_law_is_caught(start: str, moves: str, right: str, wrong: str) -> None:
    """Each step that brings the text, with the text damaged: no leg lets it pass."""
    trace = game(program(start), moves)
    for step in trace.steps:
        if step.legal.laws and right in step.after.text and right not in step.before.text:
            damaged = like(step.after, step.after.text.replace(right, wrong))
            laws = step.legal.laws
            assert not verify_exact(step.before, damaged, laws, DIALECT).ok
            relation = RULES.relation(step)
            report = verify_dependence(step.before, damaged, relation, DIALECT, step.legal.kind, laws)
            assert not report.ok
            return
    pytest.fail("no step brings the text")


@pytest.mark.parametrize("condition", ["k[0]", "x[{0}] < 0"])
def test_an_exponential_of_a_selection_is_looked_at_like_any_other_value(condition: str) -> None:
    """A condition that is read has no least finite number."""
    start = program(f"k bool [1] heap\n8 y[{{0}}] = exp(select({condition}, x[{{0}}], 1) - m[0])")
    assert "rebase_exponent" not in {m.transformation for m in RULES.candidates(start)}


SCALED = "q[0] = -inf\n8 q[0] max= x[{{0}}]\n8 y[{{0}}] = exp({exponent})\nz[0] = q[0]"


@pytest.mark.parametrize(
    ("exponent", "first", "second", "wrong"),
    [
        ("(x[{0}] - m[0]) * 0.125", "(x[{0}] - Q) * 0.125", "(Q - m[0]) * 0.125", "(Q - m[0]) * 0.25"),
        ("3 * (x[{0}] - m[0]) / 4", "3 * (x[{0}] - Q) / 4", "3 * (Q - m[0]) / 4", "3 * (Q - m[0])"),
        ("(x[{0}] - m[0]) / 4", "(x[{0}] - Q) / 4", "(Q - m[0]) / 4", "4 / (Q - m[0])"),
    ],
)
def test_exponents_may_have_positive_factors(exponent: str, first: str, second: str, wrong: str) -> None:
    """Both parts have them; the legs refute a part with another one."""
    start = program(SCALED.format(exponent=exponent))
    step = RULES.step(start, move("rebase_exponent(c2, maximum=q)"))
    guarded = "max(q[0], -3.4028234663852886e+38)"
    wanted, other = (f"exp({first}) * exp({part})".replace("Q", guarded) for part in (second, wrong))
    assert f"y[{{0}}] = {wanted}\n" in step.after.text
    after = parse(step.after.text.replace(wanted, other), DIALECT)
    for made, right in ((step.after, True), (after, False)):
        assert verify_exact(step.before, made, step.legal.laws, DIALECT).ok == right
        assert depends(step, made) == right


@pytest.mark.parametrize(
    "exponent",
    [
        "(x[{0}] - m[0]) * -0.125",
        "(x[{0}] - m[0]) * 0",
        "2 / (x[{0}] - m[0])",
        "(x[{0}] - m[0]) * m[0]",
        "(x[{0}] - m[0]) * 1e39",
        "(x[{0}] - m[0]) / 1e-46",  # infinite, and by zero, in f32
    ],
)
def test_other_exponents_stay(exponent: str) -> None:
    """A maximum bounds none of them from above."""
    start = program(SCALED.format(exponent=exponent))
    assert RULES.attempt(start, move("rebase_exponent(c2, maximum=q)")).code == "PD-T296"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("(x[{0}] - m[0]) * -2", "exp((x[{0}] - q[0]) * -2) * exp((q[0] - m[0]) * -2)"),
        ("(x[{0}] - m[0]) * 0", "exp((x[{0}] - q[0]) * 0) * exp((q[0] - m[0]) * 0)"),
        ("x[{0}]", "exp(x[{0}]) * exp(x[{0}])"),
        ("2 / (x[{0}] - m[0])", "exp(2 / (x[{0}] - q[0])) * exp(2 / (q[0] - m[0]))"),
    ],
)
def test_the_dependence_leg_refutes_other_products(before: str, after: str) -> None:
    start = program(SCALED.format(exponent=before))
    step = RULES.step(
        program(SCALED.format(exponent="x[{0}] - m[0]")), move("rebase_exponent(c2, maximum=q)")
    )
    end = parse(start.text.replace(f"exp({before})", after), DIALECT)
    report = verify_dependence(start, end, RULES.relation(step), DIALECT, step.legal.kind, step.legal.laws)
    assert not report.ok


def depends(step: Step, after: Program) -> bool:
    """True if the dependence leg accepts a program as the move's result."""
    relation = RULES.relation(step)
    return verify_dependence(step.before, after, relation, DIALECT, step.legal.kind, step.legal.laws).ok


def test_a_law_says_what_verification_must_know_about_it() -> None:
    """The legs and the roofline ask for what a law declares, never for a law by its name."""
    assert [law for law in LAWS if computes_other_terms([law])] == [FILTER]
    assert computes_other_terms([RECIPROCAL, FILTER])
    assert not computes_other_terms([RECIPROCAL, rounding_law("bf16"), "max(x,x) = x"])
    assert all(law.text == text and law.dtypes for text, law in LAWS.items())
    assert set(RING_LAWS) == {law.text for law in LAWS.values() if law.of_rings}


def test_results_of_other_terms_need_a_law_that_says_so() -> None:
    step = RULES.step(
        program("2 y[{0}] = 0\n2 3 y[{0}] += x[{0}+{1}] * w[{1}]"), move("minimal_filter(s1, taps=s2)")
    )
    assert step.legal.laws and all(LAWS[law].other_terms for law in step.legal.laws)


BLOCKS_IN_PARALLEL = """
t[0] = 0
4:p
| t_p[{0}] = 0
| 8
| | t_p[{0}] += x[{0}*8+{1}]
| | t_p_k[{0},{1}] = t_p[{0}]
4
| t_k[{0}] = t[0]
| t[0] += t_p[{0}]
4:p 8:v y[{0}*8+{1}] = t_k[{0}] + t_p_k[{0},{1}]
"""


def test_blocks_of_a_scan_run_in_parallel() -> None:
    """Blocks are independent, and so is their combination with what came before each."""
    play = Play(program("t[0] = 0\n32\n| t[0] += x[{0}]\n| y[{0}] = t[0]"), RULES)
    blocks, along = play.split("s0", 8)
    parts = play.stage("split_scan", along, array="t").buffer
    play.must("stage_running", "c2", array=parts, before="c2")
    results = play.fission("c2")
    play.must("stage_running", "c2", array="t", before=results)
    play.must("reorder_statements", results)
    combined = play.fission(results)
    play.fission(play.scope(blocks).body[-2].id)
    assert play.annotate(blocks, "p") and play.annotate(combined, "p") and play.annotate(results, "v")
    assert tree(play.program) == BLOCKS_IN_PARALLEL.strip()
    assert verify_dependence_trace(play.trace, RULES).ok
    assert verify_exact(play.trace.root, play.program, play.trace.laws, DIALECT, models=2).ok

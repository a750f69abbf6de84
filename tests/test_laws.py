"""Moves under declared laws: blocked single-pass forms are reached, and no law is used in silence."""

from __future__ import annotations

from dataclasses import replace

import pytest
from snippets import DIALECT, RULES, move, program, tree

from perfdojo_sdk.core.program import Program
from perfdojo_sdk.core.transformation import Kind, Trace
from perfdojo_sdk.verify.dependence import verify_dependence_trace
from perfdojo_sdk.verify.exact import verify_exact_trace

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


@pytest.mark.parametrize("moves", [BATCH_NORM_MOVES], ids=["squares"])
def test_a_law_in_silence_is_caught(moves: str) -> None:
    """The step that uses a law, said to use none, is refuted."""
    trace = game(program(BATCH_NORM), moves)
    for number, step in enumerate(trace.steps):
        if step.legal.laws:
            silent = replace(step, legal=replace(step.legal, laws=frozenset()))
            steps = (*trace.steps[:number], silent, *trace.steps[number + 1 :])
            report = verify_dependence_trace(replace(trace, steps=steps), RULES)
            assert not report.ok and "not declared" in report.problem

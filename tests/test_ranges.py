"""Cutting a range: names of the parts, places of offered cuts, and effects on lanes."""

from __future__ import annotations

import pytest
from snippets import DIALECT, RULES, move, play, program, tree

from perfdojo_sdk.core.program import Program
from perfdojo_sdk.core.transformation import Kind
from perfdojo_sdk.core.transformations.ranges import cuts
from perfdojo_sdk.verify.dependence import verify_dependence, verify_races
from perfdojo_sdk.verify.exact import verify_exact


def verified(start: Program, text: str) -> tuple[Program, Kind]:
    """The program after the move, which legs 1 and 3 have looked at."""
    step = RULES.step(start, move(text))
    exact = verify_exact(start, step.after, step.legal.laws, DIALECT)
    assert exact.ok, exact.problem
    relation = RULES.relation(step)
    report = verify_dependence(start, step.after, relation, DIALECT, step.legal.kind, step.legal.laws)
    assert report.ok, report.problem
    assert verify_races(step.after, DIALECT).ok
    return step.after, step.legal.kind


def test_parts_are_named_after_their_origin() -> None:
    start = program("7\n| t[{0}] = x[{0}]\n| 3 y[{0},{1}] = t[{0}] + {0}")
    after, kind = verified(start, "split_range(s0, at=4)")
    assert tree(after) == (
        "4\n| t[{0}] = x[{0}]\n| 3 y[{0},{1}] = t[{0}] + {0}\n"
        "3\n| t[{0}+4] = x[{0}+4]\n| 3 y[{0}+4,{1}] = t[{0}+4] + index({0}+4)"
    )
    names = [node.id for _, node in after.walk()]
    assert names == ["s0.a", "c0.a", "s1.a", "c1.a", "s0.b", "c0.b", "s1.b", "c1.b"]
    assert kind is Kind.EXACT


def test_parts_can_be_split_again() -> None:
    start = program("9 y[{0}] = x[{0}]")
    after = play(start, "split_range(s0, at=8)", "split_range(s0.a, at=4)")
    assert [node.id for _, node in after.walk()][::2] == ["s0.a.a", "s0.a.b", "s0.b"]
    assert tree(after).splitlines()[1] == "4 y[{0}+4] = x[{0}+4]"


def test_vector_and_masked_tail() -> None:
    start = program("2 23 y[{0},{1}] = x[{0},{1}]")
    after = play(
        start, "split_range(s1, at=16)", "annotate_scope(s1.a, suffix=v)", "annotate_scope(s1.b, suffix=v)"
    )
    assert tree(after) == ("2\n| 16:v y[{0},{1}] = x[{0},{1}]\n| 7:v y[{0},{1}+16] = x[{0},{1}+16]")
    assert verify_exact(start, after, frozenset(), DIALECT).ok


def test_lanes_that_shift_an_array_down_can_part() -> None:
    start = program("9 y[{0}] = x[{0}]\n8:v y[{0}] = y[{0}+1]")
    assert verified(start, "split_range(s1, at=3)")[1] is Kind.EXACT


@pytest.mark.parametrize("sign", ["+=", "max="])
def test_parting_a_horizontal_reduction_re_associates(sign: str) -> None:
    start = program(f"y[0] = 1\n8:v y[0] {sign} x[{{0}}]")
    assert verified(start, "split_range(s0, at=4)")[1] is Kind.REASSOCIATES


def test_parallel_iterations_keep_to_themselves() -> None:
    start = program("4:p\n| t[{0}] = x[{0}]\n| y[{0}] = t[{0}]")
    after, kind = verified(start, "split_range(s0, at=3)")
    assert kind is Kind.EXACT and tree(after).startswith("3:p\n")


@pytest.mark.parametrize(
    "text",
    [
        "10 y[{0}] = x[{0}] * {0}",
        "10:p\n| t[{0}] = x[{0}]\n| y[{0}] = t[{0}]",
        "3 10\n| a[{1}] = x[{0},{1}]\n| 4 y[{0},{1},{2}] = a[{1}] + {2}",
        "10:v y[{0}] = x[{0}]",
    ],
)
def test_joining_takes_a_split_back(text: str) -> None:
    start = program(text)
    scope = next(n.id for _, n in start.walk() if getattr(n, "size", 0) == 10)
    parts, _ = verified(start, f"split_range({scope}, at=8)")
    after, kind = verified(parts, f"join_ranges({scope}.a)")
    assert after == start and kind is Kind.EXACT


def test_joining_lanes_of_a_reduction_re_associates() -> None:
    start = program("y[0] = 1\n4:v y[0] += x[{0}]\n3:v y[0] += x[{0}+4]")
    assert verified(start, "join_ranges(s0)")[1] is Kind.REASSOCIATES


@pytest.mark.parametrize(
    ("size", "widths", "offered"),
    [
        (1, (16,), []),
        (2, (16,), [1]),
        (10, (16,), [1, 8, 9]),
        (16, (8, 16), [1, 8, 15]),
        (777, (8, 16), [1, 512, 768, 776]),
    ],
)
def test_cuts_are_few_and_useful(size: int, widths: tuple[int, ...], offered: list[int]) -> None:
    assert cuts(size, widths) == offered

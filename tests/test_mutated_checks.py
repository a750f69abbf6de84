"""Faults planted inside the checks, finer than a requirement left out: random programs show each of them.

A plant changes a line or two of one function. Some program must exist on which the plant offers a move that
the true check refuses and that both static legs refute: one written by hand here, and others that random
programs and short walks lead to.
"""

from __future__ import annotations

import inspect
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from typing import Any

import pytest
from snippets import DIALECT, RULES, like, move, program

from perfdojo_sdk.core import dependence, reaching
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.core.transformation import Kind, Move, Relation, Step
from perfdojo_sdk.core.transformations import annotate, naming, ranges, sharing, staging
from perfdojo_sdk.testing.programs import random_program
from perfdojo_sdk.testing.walks import random_walk
from perfdojo_sdk.verify.dependence import verify_dependence, verify_races
from perfdojo_sdk.verify.exact import verify_exact

#: Random programs that are looked through for a plant, each after a walk of a few moves.
PROGRAMS = 300


@dataclass(frozen=True)
class Plant:
    """A fault in one function, and a program on which it offers a wrong move."""

    name: str
    function: Callable[..., Any]
    old: str
    new: str
    transformations: tuple[str, ...]
    """The transformations in whose checks the function has a say."""
    tree: str
    move: str

    @contextmanager
    def sown(self) -> Iterator[None]:
        """Every caller of the function gets the fault."""
        source = textwrap.dedent(inspect.getsource(self.function))
        assert source.count(self.old) == 1, f"{self.name}: the code has changed"
        scope: dict[str, Any] = {}
        text = "from __future__ import annotations\n" + source.replace(self.old, self.new)
        exec(text, vars(sys.modules[self.function.__module__]), scope)
        [faulty] = [each for each in scope.values() if inspect.isfunction(each)]
        true = self.function.__code__
        self.function.__code__ = faulty.__code__
        try:
            yield
        finally:
            self.function.__code__ = true


PLANTS = (
    Plant(
        "any two accumulations commute",
        dependence.is_reduction,
        "operation == b.statement.accumulate",
        "b.statement.accumulate is not None",
        ("join_scopes", "swap_scopes", "reorder_statements", "fission_scope"),
        "y[0] = 0\n8 y[0] += x[{0}]\n8 y[0] max= z[{0}]",
        "join_scopes(s0)",
    ),
    Plant(
        "conditions do not say whether a cell is touched",
        dependence._depends_on,
        ", *o.statement.guard]",
        "]",
        ("annotate_scope", "join_scopes", "fission_scope", "reuse_dims", "swap_scopes", "share_storage"),
        "8\n| t[0] = x[0] if {0} <= 0\n| y[{0}] = t[0]",
        "annotate_scope(s0, suffix=p)",
    ),
    Plant(
        "a reduction that begins anew is taken for the whole",
        reaching.disturbance,
        'for sign in "<>":',
        'for sign in "":',
        ("rebase_squares",),
        """
        4
        | t[0] = 0
        | 8 t[0] += x[{0},{1}]
        q[0] = 0
        4 8 q[0] += (x[{0},{1}] - c[0]) * (x[{0},{1}] - c[0])
        y[0] = q[0] + t[0]
        """,
        "rebase_squares(s2, sum=t)",
    ),
    Plant(
        "later reads may see what stood there before the scope",
        staging._written_first,
        "for touch in touches:",
        "for touch in ():",
        ("stage_write",),
        """
        4 t[{0}] = x[{0}]
        4
        | t[{0}] = z[{0}]
        | 4 y[{0},{1}] = t[{1}]
        """,
        "stage_write(s1, array=t)",
    ),
    Plant(
        "operands are written by their own names only",
        naming._operands_not_written,
        "if buffer_of[array].name in operands:",
        "if array in {read.array for read in facts.value.reads}:",
        ("stage_expression", "stage_sliding", "stage_subexpression"),
        """
        t f32 [2] heap -> a, b
        2 a[{0}] = x[{0}]
        4
        | b[0] = z[{0}]
        | y[{0}] = a[0] * 2 + w[{0}]
        y_b[0] = b[1]
        """,
        "stage_expression(c2, before=s1, term=0)",
    ),
    Plant(
        "lanes store under their own names only",
        annotate._lanes_independent,
        "program.buffer_of[read.array] is buffer",
        "read.array == target.array",
        ("annotate_scope",),
        """
        t f32 [9] heap -> a, b
        9 a[{0}] = x[{0}]
        8 b[{0}+1] = a[{0}] * 2
        9 y[{0}] = b[{0}]
        """,
        "annotate_scope(s1, suffix=v)",
    ),
    Plant(
        "lanes in two parts load under their own names only",
        ranges.Whole.lanes_may_part,
        "buffer_of[read.array] is buffer",
        "read.array == target.array",
        ("split_range",),
        """
        t f32 [9] heap -> a, b
        9 a[{0}] = x[{0}]
        8:v b[{0}+1] = a[{0}] * 2
        9 y[{0}] = b[{0}]
        """,
        "split_range(s1, at=4)",
    ),
    Plant(
        "only the first of two buffers may carry a value on",
        sharing._uses_in_turn,
        "((facts.one, one), (facts.other, other))",
        "((facts.one, one),)",
        ("share_storage",),
        """
        t f32 [1] heap
        e f32 [1] heap
        4
        | e[0] = x[0] if {0} <= 0
        | z[{0}] = e[0]
        | t[0] = x[{0}]
        | y[{0}] = t[0] * 2
        """,
        "share_storage(t, other=e)",
    ),
)


def wrongly_offered(
    plant: Plant, start: Program, moves: tuple[Move, ...] = ()
) -> list[tuple[Step, Relation]]:
    """Moves that the true checks refuse and the plant lets pass, with what they say about instances."""
    known = [RULES.transformations[name] for name in plant.transformations if name in RULES.transformations]
    tried = [*moves, *(m for t in known for m in t.candidates(start, DIALECT))]
    refused = [m for m in tried if not isinstance(RULES.attempt(start, m), Step)]
    fresh = like(start, start.text)  # what was found out about a program is kept with it
    with plant.sown():
        steps = [RULES.attempt(fresh, m) for m in refused]
        return [(step, RULES.relation(step)) for step in steps if isinstance(step, Step)]


def refuted_by(step: Step, relation: Relation) -> set[str]:
    legs = set()
    if not verify_exact(step.before, step.after, step.legal.laws, DIALECT, models=1).ok:
        legs.add("exact")
    kind = max(step.legal.kind, Kind.EXACT)
    report = verify_dependence(step.before, step.after, relation, DIALECT, kind, step.legal.laws)
    if not (report.ok and verify_races(step.after, DIALECT).ok):
        legs.add("dependence")
    return legs


@pytest.mark.parametrize("plant", PLANTS, ids=lambda p: p.name)
def test_the_true_check_refuses_and_both_legs_would(plant: Plant) -> None:
    start, wanted = program(plant.tree), move(plant.move)
    offered = {step.move: (step, relation) for step, relation in wrongly_offered(plant, start, (wanted,))}
    assert wanted in offered, "refused with the plant, too, or legal without it"
    assert refuted_by(*offered[wanted]) == {"exact", "dependence"}


#: In random programs nothing that needs them to load first is in lanes: only texts of users hold that.
OF_RANDOM_PROGRAMS = [p for p in PLANTS if p.function is not ranges.Whole.lanes_may_part]


@pytest.mark.parametrize("plant", OF_RANDOM_PROGRAMS, ids=lambda p: p.name)
def test_random_programs_show_it(plant: Plant) -> None:
    caught: set[str] = set()
    for seed in range(PROGRAMS):
        rng = Random(seed)
        start = random_walk(rng, random_program(rng, 4), RULES, rng.randrange(3)).program
        for step, relation in wrongly_offered(plant, start):
            caught |= refuted_by(step, relation)
            if len(caught) == 2:
                return
    pytest.fail(f"caught by {caught or 'nothing'}")

"""Accumulations of several kinds into one cell: moves between them, and what happens to be like such a move.

The order of two kinds counts, so a partial result has to be combined at the right place. Random moves are
proved, and so is a move whose nests stand in another order if, and only if, that order is right too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from random import Random

import pytest
from snippets import DIALECT, RULES, program

from perfdojo_sdk.core.program import Node, Program, Scope
from perfdojo_sdk.core.transformation import Step
from perfdojo_sdk.verify.dependence import verify_dependence, verify_races
from perfdojo_sdk.verify.exact import verify_exact

MOVES = ("split_reduction", "split_reduction", "split_scan", "stage_accumulator", "stage_write")


class Writer:
    """Writes random programs of a few nests that accumulate into the same four cells."""

    def __init__(self, rng: Random) -> None:
        self.rng, self.inputs = rng, 0

    def program(self) -> Program:
        start = ["2 y[{0}] = v[{0}]", "2 t[{0}] = w[{0}]"]
        lines = [*start, *self.nests(0), "2 z[{0}] = y[{0}] + t[{0}]"]
        return program("\n".join(lines), "y")

    def nests(self, depth: int) -> Iterator[str]:
        rng, bars = self.rng, "| " * depth
        for _ in range(rng.randint(1, 2 if depth else 4)):
            if depth < 3 and rng.random() < 0.55:
                yield f"{bars}{rng.randint(2, 4)}"
                yield from self.nests(depth + 1)
            else:
                sizes = [str(rng.randint(2, 4)) for _ in range(rng.randint(0, 2))]
                if sizes and rng.random() < 0.15:
                    sizes[-1] += ":v"
                yield bars + " ".join([*sizes, self.statement(depth + len(sizes))])

    def statement(self, levels: int) -> str:
        rng = self.rng
        self.inputs += 1
        subscripts = ",".join(f"{{{k}}}" for k in range(levels)) or "0"
        target, value = rng.choice("yyyt"), f"x{self.inputs}[{subscripts}]"
        if target == "y" and rng.random() < 0.12:
            value = f"t[{rng.choice('01')}] + {value}"
        sign = rng.choice(("+=", "max=", "min=", "*=", "+=", "max=", "min=", "="))
        return f"{target}[{rng.choice('001')}] {sign} {value}"


def other_orders(nodes: tuple[Node, ...]) -> Iterator[tuple[Node, ...]]:
    """The nodes with one of them, or of their children, before another one that it stood behind."""
    for late in range(len(nodes)):
        for early in range(late):
            yield (*nodes[:early], nodes[late], *nodes[early:late], *nodes[late + 1 :])
        node = nodes[late]
        if isinstance(node, Scope):
            for body in other_orders(node.body):
                yield (*nodes[:late], node.with_body(body), *nodes[late + 1 :])


def played(seed: int) -> Iterator[tuple[Random, Step]]:
    """Moves on a random program, some of them after others, so that there are parts of parts."""
    rng = Random(seed)
    now = Writer(rng).program()
    if not verify_races(now, DIALECT).ok:
        return
    for name in MOVES:
        moves = list(RULES.transformations[name].candidates(now, DIALECT))
        step = RULES.attempt(now, rng.choice(moves)) if moves else None
        if isinstance(step, Step):
            yield rng, step
            now = step.after if rng.random() < 0.5 else now


def right(step: Step, after: Program) -> bool:
    return verify_exact(step.before, after, step.legal.laws, DIALECT, models=2).ok


def proved(step: Step, after: Program) -> str:
    """The problem that the dependence leg has with the move, if it made this program."""
    kind, laws = step.legal.kind, step.legal.laws
    report = verify_dependence(step.before, after, RULES.relation(step), DIALECT, kind, laws)
    return report.problem or verify_races(after, DIALECT).problem


@pytest.mark.parametrize("block", range(3))
def test_only_right_orders_are_proved(block: int) -> None:
    found = Counter[tuple[bool, bool]]()
    for seed in range(8 * block, 8 * block + 8):
        for rng, step in played(seed):
            where = f"seed {seed}, {step.move.text}\n{step.before}\n{step.after}"
            assert right(step, step.after) and not proved(step, step.after), where
            orders = list(other_orders(step.after.body))
            for body in rng.sample(orders, min(5, len(orders))):
                after = step.after.with_body(body)
                found[right(step, after), not proved(step, after)] += 1
                assert not found[False, True], f"{where}\n{after}"
    assert found[False, False] > 20, "wrong orders"
    assert found[True, True] > 5 and found[True, True] > 5 * found[True, False], "right ones, few refused"

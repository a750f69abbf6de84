"""Attention over long rows: blocks of rows and columns, and what is laid out once for all of them."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest
from test_made_targets import target

from perfdojo_sdk.core.domains import ROUNDING
from perfdojo_sdk.core.expression import Read
from perfdojo_sdk.core.interpreter import interpret
from perfdojo_sdk.core.program import Program, Statement
from perfdojo_sdk.core.text import parse
from perfdojo_sdk.core.transformation import Rules
from perfdojo_sdk.core.transformations import GENERIC
from perfdojo_sdk.experts.cpu import column_blocks
from perfdojo_sdk.experts.cpu.planner import plan
from perfdojo_sdk.graph.builder import Builder
from perfdojo_sdk.graph.operators.attention import attention
from perfdojo_sdk.hookspecs.services import Plan
from perfdojo_sdk.library.verification import VerificationCache, dependence, exact

#: A target in whose second cache 24 rows of 256 scores fit.
NEAR = target(
    vector_registers=32,
    peak_gflops={"f32": 100.0},
    caches={"L1": {"bytes": 4096, "read_gbs": 200.0}, "L2": {"bytes": 98304, "read_gbs": 100.0}},
)
#: One whose caches hold a few rows of a small program.
SMALL = target(
    vector_registers=32,
    peak_gflops={"f32": 100.0},
    caches={"L1": {"bytes": 512, "read_gbs": 200.0}, "L2": {"bytes": 1024, "read_gbs": 100.0}},
)
RULES = Rules(NEAR.dialect, GENERIC)


def program(
    rows: int = 66, columns: int = 256, heads: int = 2, groups: int = 1, size: int = 2, causal: bool = False
) -> Program:
    """Attention as the front ends write it."""
    b = Builder()
    shapes = {"q": (1, heads, rows, size), "k": (1, groups, columns, size), "v": (1, groups, columns, size)}
    q, k, v = (b.input(name, shape, "f32") for name, shape in shapes.items())
    (made,) = b.graph({"y": attention(b, q, k, v, 0.5, causal)}).programs
    return made


def planned(subject: Program) -> Plan:
    return plan(subject, RULES, NEAR)


def blocks(found: Plan) -> list[str]:
    return [decision.choice for decision in found.decisions if decision.rule == "block rows"]


def test_long_rows_of_attention_run_in_blocks_of_columns() -> None:
    """No array holds all scores, and each row's blocks are corrected by their maxima."""
    found = planned(program())
    assert blocks(found) == ["7 nests in blocks of 33 rows", "and 128 columns"]
    (game, *_) = found.games
    buffers = [b for b in game.program.buffers if b.name not in game.program.interface]
    assert max(b.cells for b in buffers) == 33 * 128
    assert {"rebase_exponent", "factor_reduction"} <= {step.move.transformation for step in game.steps}


def test_blocks_of_columns_pass_both_legs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(column_blocks, "MOST_ROWS", 4)
    monkeypatch.setattr(column_blocks, "LEAST_COLUMNS", 16)
    for rows in (4, 8):  # one block holds all rows, or half of them
        found = plan(program(rows, 32, causal=True), RULES, SMALL)
        assert blocks(found) == ["7 nests in blocks of 4 rows", "and 16 columns"]
    (game, *_) = found.games
    assert exact(game, RULES, 0).passed and dependence(game, RULES, VerificationCache()).passed


ROWS_ALONE = """kernel attention(q, k, v) -> y
q f32 [12,2] heap
k f32 [48,2] heap
v f32 [48,3] heap
s f32 [12,48] heap
m f32 [12] heap
e f32 [12,48] heap
z f32 [12] heap
p f32 [12,48] heap
y f32 [12,3] heap

12 48
| s[{0},{1}] = 0
| 2 s[{0},{1}] += q[{0},{2}] * k[{1},{2}]
12
| m[{0}] = -inf
| 48 m[{0}] max= s[{0},{1}]
12 48 e[{0},{1}] = exp(s[{0},{1}] - m[{0}])
12
| z[{0}] = 0
| 48 z[{0}] += e[{0},{1}]
12 48 p[{0},{1}] = e[{0},{1}] / z[{0}]
12 3
| y[{0},{1}] = 0
| 48 y[{0},{1}] += p[{0},{2}] * v[{2},{1}]
"""

#: The same with queries that a nest makes of others.
TURNED = (
    ROWS_ALONE.replace("q[{0},{2}] *", "t[{0},{2}] *")
    .replace("s f32", "t f32 [12,2] heap\ns f32", 1)
    .replace("\n\n", "\n\n12 2 t[{0},{1}] = q[{0},{1}] - q[{0},1-{1}]\n", 1)
)

#: The same with scores that are scaled where the exponentials are taken, as the tour writes them.
SCALED = ROWS_ALONE.replace("exp(s[{0},{1}] - m[{0}])", "exp((s[{0},{1}] - m[{0}]) * 0.125)")


@pytest.mark.parametrize("text", [ROWS_ALONE, TURNED, SCALED])
def test_rows_without_heads_and_what_makes_queries(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No loop stands around the rows; what only makes queries stays in front of the loop over blocks."""
    monkeypatch.setattr(column_blocks, "MOST_ROWS", 4)
    monkeypatch.setattr(column_blocks, "LEAST_COLUMNS", 16)
    found = plan(parse(text), RULES, SMALL)
    assert blocks(found) == ["6 nests in blocks of 4 rows", "and 16 columns"]
    (game, *_) = found.games
    assert exact(game, RULES, 0).passed and dependence(game, RULES, VerificationCache()).passed


@pytest.mark.parametrize("size", [1.0, 300.0])
def test_masked_and_large_scores_stay_finite(size: float) -> None:
    """Most rows of a triangle see nothing of the second block: their results are as exact as others,
    also where exponentials of the scores themselves would overflow."""
    subject = program(causal=True)
    (game, *_) = planned(subject).games
    draw = np.random.default_rng(1)
    given = {
        name: (size * draw.standard_normal(subject.buffer_of[name].shape)).astype(np.float32)
        for name in subject.inputs
    }
    flat = {name: array.ravel().tolist() for name, array in given.items()}
    got = np.array(interpret(game.program, flat, ROUNDING, NEAR.dialect)[subject.outputs[0]])
    q, k, v = (given[name].astype(float).reshape(-1, given[name].shape[-2], 2) for name in subject.inputs)
    scores = np.where(np.tri(66, 256) > 0, q @ k.swapaxes(1, 2) / 2, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    wanted = weights / weights.sum(-1, keepdims=True) @ v
    assert np.abs(got - wanted.ravel()).max() <= 1e-4 * np.abs(wanted).max()


def test_keys_and_values_are_packed_once_for_all_blocks_of_rows() -> None:
    """Heads that share keys and values share their copies, which stand outside of the blocks."""
    subject = program(heads=4, groups=2, size=64)
    (game, *_) = planned(subject).games
    for name in subject.inputs[1:]:
        copies = [
            prod(place.sizes)
            for place in game.program.places
            if isinstance(place.node, Statement)
            and isinstance(place.node.value, Read)
            and place.node.value.access.array.startswith(name)
        ]
        assert copies and set(copies) == {subject.buffer_of[name].cells}


def test_exponentials_that_leave_the_kernel_keep_their_rows_whole() -> None:
    """The plan says why: a result holds them relative to the maximum of a row."""
    subject = program()
    (values,) = [s.target.array for s in (leaf.statement for n in subject.body for leaf in n.leaves)
                 if s.value.text.startswith("exp(")]  # fmt: skip
    text = subject.text.replace(f"-> {subject.outputs[0]}", f"-> {subject.outputs[0]}, {values}")
    found = planned(parse(text))
    (kept,) = [decision for decision in found.decisions if decision.rule == "keep columns together"]
    assert kept.choice == values
    assert not any("columns" in choice for choice in blocks(found))


@pytest.mark.parametrize("rows, columns", [(66, 64), (66, 192), (4, 256)])
def test_whole_rows_stay_whole_where_enough_of_them_fit(rows: int, columns: int) -> None:
    assert not any("columns" in choice for choice in blocks(planned(program(rows, columns))))

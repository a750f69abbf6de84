"""The alpha-equivalence key: equal under renaming of local arrays, and under nothing else."""

from __future__ import annotations

import re
from random import Random

import pytest
from snippets import DIALECT, RULES

from perfdojo_sdk.core.alpha_equivalence import alpha_equivalence_key as key_of
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.core.text import parse
from perfdojo_sdk.core.transformation import Move, Step
from perfdojo_sdk.search.neighbours import random_step

TEXT = """\
kernel shift(x) -> y
x f32 [8] heap
y f32 [8] heap
a f32 [8] heap
b f32 [8] stack
{more}
8 a[{{0}}] = x[{{0}}] + 1
8 b[{{0}}] = a[{{0}}] * 2
8 y[{{0}}] = b[{{0}}] - a[{{0}}]
"""


def shift(more: str = "", **changed: str) -> Program:
    text = TEXT.format(more=more)
    for old, new in changed.items():
        text = text.replace(f"{old}[", f"{new}[").replace(f"\n{old} ", f"\n{new} ")
    return parse(text, DIALECT)


def test_names_of_local_arrays_and_the_order_of_declarations_do_not_count() -> None:
    lines = shift().text.splitlines()
    swapped = parse("\n".join([*lines[:3], lines[4], lines[3], *lines[5:]]), DIALECT)
    assert swapped.text != shift().text
    assert key_of(shift()) == key_of(shift(a="p", b="q")) == key_of(swapped)
    renamed = shift(a="c").text.replace("b[", "a[").replace("\nb ", "\na ")
    assert key_of(parse(renamed, DIALECT)) == key_of(shift())


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("+ 1", "+ 2"),
        ("b f32 [8] stack", "b f32 [8] heap"),
        ("b f32 [8] stack", "b f32 [8:N] stack"),
        ("= b[{0}] - a[{0}]", "= a[{0}] - b[{0}]"),
        ("a f32", "x f32"),
        ("kernel shift", "kernel other"),
        ("x", "z"),
    ],
)
def test_all_else_does(old: str, new: str) -> None:
    text = shift().text
    if old == "a f32":  # two arrays that change places: what is written first lives elsewhere
        changed = text.replace("heap\nb", "stack\nb").replace("b f32 [8] stack", "b f32 [8] heap")
    else:
        changed = text.replace(old, new)
    assert changed != text and key_of(parse(changed, DIALECT)) != key_of(shift())


def test_a_copy_that_was_made_and_taken_away_again_leaves_what_there_was() -> None:
    """The circle in which a beam went: the copy of the copy stays, under another name."""
    program = parse(
        "kernel scale(x) -> y\nx f32 [8] heap\ny f32 [8] heap\n\n8 y[{0}] = x[{0}] * 2\n", DIALECT
    )
    scope = program.body[0].id
    once = played(program, Move("stage_write", scope, (("array", "y"),)))
    once = played(once, next(m for m in RULES.candidates(once) if m.transformation == "join_scopes"))
    twice = played(once, Move("stage_write", scope, (("array", "y_w"),)))
    again = played(twice, Move("remove_dead", "y_w", ()))
    assert again.text != once.text and key_of(again) == key_of(once)


def played(program: Program, move: Move) -> Program:
    step = RULES.attempt(program, move)
    assert isinstance(step, Step), step
    return step.after


@pytest.mark.parametrize("seed", range(6))
def test_along_random_games_it_is_that_of_the_program_with_all_local_arrays_renamed(seed: int) -> None:
    rng, program = Random(seed), shift()
    for _ in range(12):
        step = random_step(rng, program, RULES)
        if step is None:
            break
        program = step.after
        renamed = parse(other_names(program, rng), DIALECT)
        assert key_of(renamed) == key_of(program)


def other_names(program: Program, rng: Random) -> str:
    """The text with its local arrays called otherwise."""
    top, _, body = program.text.partition("\n\n")
    local = [a for b in program.buffers for a in b.arrays if a not in (*program.inputs, *program.outputs)]
    head, *lines = top.split("\n")
    declared = "\n".join(lines)
    for number, name in enumerate(rng.sample(local, len(local))):
        body = re.sub(rf"\b{name}(?=\[)", f"new{number}_", body)
        declared = re.sub(rf"\b{name}\b", f"new{number}_", declared)
    return f"{head}\n{declared}\n\n{body}"

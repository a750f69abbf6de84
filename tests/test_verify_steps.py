"""The dependence leg on real moves: random games are proved, and a step with a false relation is named."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import islice

import pytest
from dependence_programs import proved, refuted

from perfdojo_sdk.core.dialect import CORE_DIALECT
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.core.text import parse
from perfdojo_sdk.core.transformation import Legal, Move, Relation, Rules, Step, Trace
from perfdojo_sdk.core.transformations import GENERIC
from perfdojo_sdk.verify import dependence
from perfdojo_sdk.verify.dependence import verify_dependence, verify_dependence_trace, verify_races

SOFTMAX = parse(
    """\
kernel softmax(x) -> y
x f32 [4,8] heap
m f32 [4] heap
e f32 [4,8] heap
s f32 [4] heap
y f32 [4,8] heap

4
| m[{0}] = -inf
| 8 m[{0}] max= x[{0},{1}]
4 8 e[{0},{1}] = exp(x[{0},{1}] - m[{0}])
4
| s[{0}] = 0
| 8 s[{0}] += e[{0},{1}]
4 8 y[{0},{1}] = e[{0},{1}] / s[{0}]
"""
)
MATMUL = parse(
    """\
kernel matmul(a, b) -> c
a f32 [4,6] heap
b f32 [6,8] heap
c f32 [4,8] heap

4 8
| c[{0},{1}] = 0
| 6 c[{0},{1}] += a[{0},{2}] * b[{2},{1}]
"""
)
RULES = Rules(CORE_DIALECT, GENERIC)


def walk(root: Program, seed: int, length: int) -> Trace:
    """Random legal moves."""
    chance, trace = random.Random(seed), Trace(root)
    for _ in range(length):
        moves = list(RULES.candidates(trace.program))
        chance.shuffle(moves)
        attempts = (RULES.attempt(trace.program, move) for move in moves)
        step = next((s for s in attempts if isinstance(s, Step)), None)
        if step is None:
            break
        trace = Trace(root, (*trace.steps, step))
    return trace


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("root", [SOFTMAX, MATMUL], ids=lambda p: p.name)
def test_random_walks_are_proved(root: Program, seed: int) -> None:
    trace = walk(root, seed, 8)
    assert len(trace.steps) == 8
    assert proved(verify_dependence_trace(trace, RULES))


def test_fused_and_contracted_softmax() -> None:
    large = SOFTMAX.text.replace("[4", "[24576").replace("\n4", "\n24576")
    trace = Trace(parse(large.replace("8]", "512]").replace(" 8 ", " 512 ")))
    for _ in range(3):
        first = trace.program.body[0].id
        trace = trace.play(RULES, Move.of("join_scopes", first))
    for buffer in ("m", "e", "s"):
        trace = trace.play(RULES, Move.of("reuse_dims", buffer, dim=0))
    trace = trace.play(RULES, Move.of("annotate_scope", trace.program.body[0].id, suffix="p"))
    report = verify_dependence_trace(trace, RULES)
    assert proved(report)


def test_a_lying_step_is_named() -> None:
    trace = walk(SOFTMAX, 1, 3)
    last = trace.steps[-1].after
    broken = parse(last.text.replace("exp(", "abs("))
    lie = Step(last, Move.of("annotate_scope", last.body[0].id, suffix="u"), Legal(), broken)
    relabelled = Trace(SOFTMAX, (*trace.steps, lie))
    rules = _Claiming(CORE_DIALECT, GENERIC)
    assert refuted(verify_dependence_trace(relabelled, rules), "move 3, annotate_scope(")


def test_a_step_is_proved_once(monkeypatch: pytest.MonkeyPatch) -> None:
    trace, seen, known = walk(SOFTMAX, 1, 6), list[object](), set[bytes]()
    check = dependence._Step.check
    monkeypatch.setattr(dependence._Step, "check", lambda step: (seen.append(step), check(step))[1])
    begun = Trace(SOFTMAX, trace.steps[:4])
    assert proved(verify_dependence_trace(begun, RULES, known)) and len(seen) == 4
    assert proved(verify_dependence_trace(trace, RULES, known)) and len(seen) == 6
    replayed = Trace(SOFTMAX).play_all(RULES, trace.moves)
    assert proved(verify_dependence_trace(replayed, RULES, known)) and len(seen) == 6


def test_a_lie_behind_what_was_proved_is_named_every_time() -> None:
    trace, known = walk(SOFTMAX, 1, 3), set[bytes]()
    assert proved(verify_dependence_trace(trace, RULES, known))
    last = trace.steps[-1].after
    broken = parse(last.text.replace("exp(", "abs("))
    lie = Step(last, Move.of("annotate_scope", last.body[0].id, suffix="u"), Legal(), broken)
    relabelled, rules = Trace(SOFTMAX, (*trace.steps, lie)), _Claiming(CORE_DIALECT, GENERIC)
    for _ in range(2):
        assert refuted(verify_dependence_trace(relabelled, rules, known), "move 3, annotate_scope(")


def test_a_step_that_starts_elsewhere_is_not_taken_for_one_that_was_proved() -> None:
    trace, known = walk(SOFTMAX, 1, 3), set[bytes]()
    assert proved(verify_dependence_trace(trace, RULES, known))
    elsewhere = Trace(parse(SOFTMAX.text.replace("exp(", "abs(")), trace.steps)
    assert refuted(verify_dependence_trace(elsewhere, RULES, known), "move 0, ")


def test_under_other_laws_a_step_is_proved_anew() -> None:
    moves = [m for m in RULES.candidates(SOFTMAX) if m.transformation == "stage_reciprocal"]
    trace, known = Trace(SOFTMAX).play(RULES, moves[0]), set[bytes]()
    assert proved(verify_dependence_trace(trace, RULES, known))
    lawless = Trace(SOFTMAX, (replace(trace.steps[0], legal=Legal()),))
    assert refuted(verify_dependence_trace(lawless, RULES, known), "computes another value")


class _Claiming(Rules):
    """Rules whose relation is the default one for the step that lies."""

    def relation(self, step: Step) -> Relation:
        return {} if "abs(" in step.after.text else super().relation(step)


@pytest.mark.parametrize("name", ["join_scopes", "fission_scope", "reuse_dims"])
def test_moves_without_their_semantic_reasons_are_caught(name: str) -> None:
    """Moves that become legal without a semantic requirement include some that the leg rejects."""
    move_class = GENERIC[name]
    mutants = {r.code: move_class.without(r.code) for r in move_class.requirements if r.semantic}
    programs = (walk(root, seed, 3).program for seed in range(12) for root in (SOFTMAX, MATMUL))
    assert any(
        _caught(mutant, code, program, move)
        for program in programs
        for code, mutant in mutants.items()
        for move in islice(mutant.candidates(program, CORE_DIALECT), 40)
    )


def _caught(mutant: object, code: str, program: Program, move: Move) -> bool:
    refusal = GENERIC[move.transformation].check(program, move, CORE_DIALECT)
    if isinstance(refusal, Legal) or refusal.code != code:
        return False
    rules = Rules(CORE_DIALECT, {**GENERIC, move.transformation: mutant})  # type: ignore[dict-item]
    step = rules.attempt(program, move)
    if not isinstance(step, Step):
        return False
    legal = step.legal
    report = verify_dependence(
        program, step.after, rules.relation(step), CORE_DIALECT, legal.kind, legal.laws
    )
    return not (report and verify_races(step.after, CORE_DIALECT))

"""Random walks through a game, and the mutants that verification must catch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from perfdojo_sdk.core.dialect import Dialect
from perfdojo_sdk.core.errors import DojoError
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.core.text import parse
from perfdojo_sdk.core.transformation import Move, Requirement, Rules, Step, Trace
from perfdojo_sdk.search.neighbours import random_step


def random_walk(rng: Random, root: Program, rules: Rules, length: int, own: Sequence[str] = ()) -> Trace:
    """A game of ``length`` random legal moves (fewer when none is left).

    Every other move is one of the transformations ``own``, if a legal one is drawn. The game ends if such a
    move makes a program whose text cannot be parsed, since the fault is clearer there than after more moves.
    """
    trace = Trace(root)
    for number in range(length):
        only = rng.choice(own) if own and number % 2 else None
        step = random_step(rng, trace.program, rules, only)
        if step is None and only:
            step = random_step(rng, trace.program, rules)
        if step is None:
            break
        trace = replace(trace, steps=(*trace.steps, step))
        if only and not _is_a_program(step.after.text, rules.dialect):
            break
    return trace


def _is_a_program(text: str, dialect: Dialect) -> bool:
    try:
        parse(text, dialect)
    except DojoError:
        return False
    return True


@dataclass(frozen=True)
class Mutant:
    """Rules in which one semantic reason to refuse is switched off."""

    transformation: str
    requirement: Requirement[Any]
    rules: Rules


def semantic_requirements(rules: Rules) -> Iterator[tuple[str, Requirement[Any]]]:
    for name, transformation in rules.transformations.items():
        for requirement in transformation.requirements:
            if requirement.semantic:
                yield name, requirement


def mutants(rules: Rules) -> tuple[Mutant, ...]:
    """One mutant for each semantic reason to refuse."""
    found = []
    for name, requirement in semantic_requirements(rules):
        without = rules.transformations[name].without(requirement.code)
        mutated = {**rules.transformations, name: without}
        found.append(Mutant(name, requirement, replace(rules, transformations=mutated)))
    return tuple(found)


def newly_allowed(
    mutant: Mutant, rules: Rules, program: Program, moves: tuple[Move, ...] = ()
) -> Iterator[Step]:
    """Moves that the mutant offers on ``program`` and the true rules refuse for its reason.

    ``moves`` are tried in addition to the candidates, which leave out moves that are never legal.
    """
    transformation = rules.transformations[mutant.transformation]
    for move in (*moves, *transformation.candidates(program, rules.dialect)):
        if _refused_for(rules, program, move) == mutant.requirement.code:
            step = mutant.rules.attempt(program, move)
            if isinstance(step, Step):
                yield step


def _refused_for(rules: Rules, program: Program, move: Move) -> str:
    result = rules.attempt(program, move)
    return "" if isinstance(result, Step) else result.code

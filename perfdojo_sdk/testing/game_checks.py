"""Checks of one target's game: legal moves, refusals, and the meaning of programs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from copy import deepcopy
from dataclasses import replace
from functools import partial
from itertools import zip_longest
from random import Random

from perfdojo_sdk.core import history
from perfdojo_sdk.core.errors import DojoError, MoveError
from perfdojo_sdk.core.program import Program
from perfdojo_sdk.core.text import parse
from perfdojo_sdk.core.transformation import (
    Kind,
    Move,
    Objection,
    Rejection,
    Rules,
    Step,
    Trace,
    Transformation,
)
from perfdojo_sdk.core.validate import violations
from perfdojo_sdk.plugins import load_plugins
from perfdojo_sdk.store.traces import SavedTrace
from perfdojo_sdk.testing import child_interpreter
from perfdojo_sdk.testing.context import Budget, Context
from perfdojo_sdk.testing.declared_names import wrong_names
from perfdojo_sdk.testing.fuzzing import fuzz, proved, shrunk
from perfdojo_sdk.verify.exact import verify_exact

#: Most legal places of one of the plugin's moves that are verified.
MOST_PLACES = 12


def same_seed_same_game(context: Context) -> Iterator[str]:
    """One seed gives the same moves and the same code in any process."""
    budget = replace(context.budget, walks=min(context.budget.walks, 8))
    arguments = (context.plugin.name, context.target.name, budget)
    first, second = (child_interpreter.call(played, *arguments, hash_seed=seed) for seed in (1, 2))
    pairs = zip(first, second, strict=True)
    for (moves, code), (other_moves, other_code) in context.cases(pairs, len(first)):
        if moves != other_moves:
            both = enumerate(zip_longest(moves, other_moves))
            number, (one, other) = next((n, pair) for n, pair in both if pair[0] != pair[1])
            yield f"one seed, two games in two processes: move {number} is {one} or {other}"
        elif code != other_code:
            yield f"one game gives different code in two processes, after {', '.join(moves)}"


def played(plugin_name: str, target_name: str, budget: Budget) -> list[tuple[list[str], str]]:
    """The moves of each random game and the code of its last program; called in a child process."""
    plugins = load_plugins(targets=[target_name])
    plugin = next(p for p in plugins.loaded if p.name == plugin_name)
    context = Context(plugins, plugin, plugins.target(target_name), budget)
    return [([move.text for move in trace.moves], _code(context, trace.program)) for trace in context.walks]


def _code(context: Context, program: Program) -> str:
    source = context.code(program, "random game") if context.has_generator else None
    return source.code if source else ""


def find_and_check_agree(context: Context) -> Iterator[str]:
    """Every move that is found gets a verdict, the same one each time, and every legal one applies and says
    what it makes."""
    rules = context.rules
    for program in context.cases(_ends(context), least=len(context.operators)):
        legal: list[Step] = []
        for name, transformation in rules.transformations.items():
            found = list(transformation.candidates(program, rules.dialect))
            if found != list(transformation.candidates(program, rules.dialect)):
                yield f"{name} finds other moves the second time on\n{program}"
            if strange := [move for move in found if move.transformation != name]:
                yield f"{name} finds a move of {strange[0].transformation}"
                continue
            for move in found:
                verdict = _verdict(rules, program, move)
                if isinstance(verdict, str):
                    yield f"{move.text} {verdict}"
                elif isinstance(verdict, Step):
                    legal.append(verdict)
        again = list(rules.steps(program, Kind.CHANGES_PRECISION))
        if [step.move for step in again] != [step.move for step in legal]:
            yield f"the moves offered are not those that the check allows, on\n{program}"
            continue
        for one, other in zip(legal, again, strict=True):
            if one.after != other.after or one.legal != other.legal:
                yield f"{one.move.text} gives another program or kind the second time on\n{program}"


def _verdict(rules: Rules, program: Program, move: Move) -> Step | Rejection | str:
    """The answer to one move, or the fault of the answer in words."""
    try:
        answer = rules.attempt(program, move)
        checked = rules.transformation(move.transformation).check(program, move, rules.dialect)
        broken = next(violations(answer.after, rules.dialect), None) if isinstance(answer, Step) else None
    except Exception as error:
        return f"raises {type(error).__name__}: {error}\n{program}"
    vetoed = isinstance(answer, Rejection) and _of_a_veto(rules, answer)
    if bool(checked) != (isinstance(answer, Step) or vetoed):
        return f"gets {bool(checked)} from its check, and {not bool(checked)} when it is played\n{program}"
    if isinstance(answer, Step) and broken is not None:
        return f"leaves the language ({broken.code}: {broken.what})\n{answer.after}"
    if isinstance(answer, Step) and (wrong := next(wrong_names(answer), None)):
        return f"{wrong}\n{program}"
    return answer


def _of_a_veto(rules: Rules, rejection: Rejection) -> bool:
    """True if a veto refused the move, not the transformation itself."""
    return rejection.requirement not in rules.transformation(rejection.move.transformation).requirements


def nothing_given_is_changed(context: Context) -> Iterator[str]:
    """Finding, checking, playing, generating and the expert leave what they are given as it was."""
    rules = context.rules
    dialect, capabilities = deepcopy(rules.dialect), context.target.capabilities.model_dump()
    actions = list(_actions(context))
    for program in context.cases(context.programs, least=len(context.operators)):
        ids = [node.id for _, node in program.walk()]
        for who, action in actions:
            # Compare the tree, since the text may be a cached one.
            twin = parse(program.text, rules.dialect)
            with suppress(Exception):  # other checks report exceptions
                action(program)
            if program != twin or ids != [node.id for _, node in program.walk()]:
                yield f"{who} changes the program that it is given:\n{twin}"
                return
    if rules.dialect != dialect or context.target.capabilities.model_dump() != capabilities:
        yield "the target's dialect or capabilities are changed"


def _actions(context: Context) -> Iterator[tuple[str, Callable[[Program], object]]]:
    """Everything that gets a program: its name, and a call of it."""
    rules = context.rules

    def play(transformation: Transformation, program: Program) -> None:
        for move in transformation.candidates(program, rules.dialect):
            step = rules.attempt(program, move)
            if isinstance(step, Step):
                rules.relation(step)

    for name, transformation in rules.transformations.items():
        yield name, partial(play, transformation)
    if context.has_generator:
        yield "the code generator", partial(_code, context)
    if context.has_expert:
        yield "the expert", lambda program: context.expert(program, rules, context.target)


def texts_round_trip(context: Context) -> Iterator[str]:
    """Every program of a game, printed and parsed, is the same program."""
    for trace in context.cases(context.walks):
        for step in trace.steps:
            try:
                again = parse(step.after.text, context.rules.dialect)
            except DojoError as error:
                yield f"after {step.move.text} the text does not parse: {error.what}\n{step.after}"
                break
            if again != step.after:
                yield f"after {step.move.text} the text parses to another program\n{step.after}"
                break


def games_round_trip(context: Context) -> Iterator[str]:
    """A saved game replays to the same programs and places, and undo with redo restores it."""
    rules = context.rules
    for seed, trace in enumerate(context.cases(context.walks)):
        if not trace.steps:
            continue
        saved = json.loads(json.dumps(trace.as_json()))
        try:
            again = SavedTrace.model_validate(saved).replay(rules)
        except DojoError as error:
            yield f"a saved game does not replay: {error.what}\n{trace.root}"
            continue
        if _places(again) != _places(trace):
            moves = ", ".join(move.text for move in trace.moves)
            yield f"a saved game replays to another one: {moves}\n{trace.root}"
            continue
        position = Random(seed).randrange(len(trace.steps))
        shorter, undone, _ = history.undo(trace, rules, position)
        if _places(history.redo(shorter, rules, undone)) != _places(trace):
            move = trace.moves[position].text
            yield f"undo and redo of move {position}, {move}, do not restore the game\n{trace.root}"


def _places(trace: Trace) -> list[tuple[str, str, list[str]]]:
    """Moves, texts and ids."""
    return [(s.move.text, s.after.text, [n.id for _, n in s.after.walk()]) for s in trace.steps]


def refusals_help(context: Context) -> Iterator[str]:
    """Each refusal has a code, the place, the reason and what to try; impossible moves are refused too."""
    seen: set[str] = set()
    rules = context.rules
    for program in context.cases(context.programs, least=len(context.operators)):
        for move in rules.candidates(program):
            answer = rules.attempt(program, move)
            if isinstance(answer, Rejection) and answer.code not in seen:
                seen.add(answer.code)
                yield from _unhelpful(rules, answer)
    for name, transformation in context.own_moves.items():
        parameters = tuple(sorted((p.name, p.type()) for p in transformation.parameters))
        for wrong in (Move(name, "no_such_place", parameters), Move(name, "s0", (("no_such_parameter", 1),))):
            try:
                rules.attempt(context.programs[0], wrong)
            except MoveError as error:
                if not (error.code and error.what and error.hint):
                    yield f"{wrong.text} is refused without a code, a reason or a hint"
            else:
                yield f"{wrong.text} is not refused as impossible"


def _unhelpful(rules: Rules, rejection: Rejection) -> Iterator[str]:
    where = f"{rejection.move.text} ({rejection.code})"
    try:
        for sentence in (rejection.requirement.why, rejection.requirement.hint):
            sentence.format(**rejection.refusal.sentence_words)  # raises where the message forgives
        error = rejection.error()
    except Exception as problem:
        yield f"{where}: its words cannot be made: {type(problem).__name__}: {problem}"
        return
    if not (error.why.strip() and error.hint.strip()):
        yield f"{where}: it says not why, or not what to try"
    transformation = rules.transformation(rejection.move.transformation)
    placed = transformation.place != "buffer" and not _of_a_veto(rules, rejection)
    if (placed or rejection.refusal.at) and error.place is None:
        yield f"{where}: it shows no line of the program"


def walks_keep_the_meaning(context: Context) -> Iterator[str]:
    """Random games pass the exact leg at every move, and the dependence leg at the end."""
    for seed in context.cases(range(context.budget.walks)):
        report = fuzz(seed, context.rules, context.budget.moves)
        if report.failure:
            failure = shrunk(report.failure, context.rules)
            played = failure.move.text if failure.move else "listing the moves"
            yield f"{failure.leg}: {played}: {failure.problem}\n{failure.before}"


def own_moves_are_proved(context: Context) -> Iterator[str]:
    """Each move of the plugin is legal somewhere, and wherever it is, two legs prove it."""
    rules = context.rules
    played: dict[str, int] = dict.fromkeys(context.own_moves, 0)
    for program in context.cases(_positions(context), least=len(context.operators)):
        for name, transformation in context.own_moves.items():
            for move in transformation.candidates(program, rules.dialect):
                step = rules.attempt(program, move) if played[name] < MOST_PLACES else None
                if isinstance(step, Step):
                    played[name] += 1
                    yield from _refuted(step, rules)
    for name, count in played.items():
        if not count:
            yield (
                f"{name} is legal on no program that the kit has, so nothing is known of it; "
                "bring an operator on which it, or the expert, plays it"
            )


def _refuted(step: Step, rules: Rules) -> Iterator[str]:
    exact = verify_exact(step.before, step.after, step.legal.laws, rules.dialect)
    if not exact.ok:
        yield f"exact: {step.move.text}: {exact.problem}\n{step.before}"
    proof = proved(step, rules)
    if not proof.ok:
        yield f"dependence: {step.move.text}: {proof.problem}\n{step.before}"


def vetoes_hold(context: Context) -> Iterator[str]:
    """A veto answers None or a reason, the same one each time, and what it refuses is never offered."""
    rules = context.rules
    free = Rules(rules.dialect, rules.transformations)
    for program in context.cases(_ends(context), least=len(context.operators)):
        offered = {step.move.text for step in rules.steps(program, Kind.CHANGES_PRECISION)}
        for step in free.steps(program, Kind.CHANGES_PRECISION):
            given = (program, step.move, step.after, rules.dialect)
            for veto in context.own_vetoes:
                reason, again = veto(*given), veto(*given)
                name = getattr(veto, "__name__", "a veto")
                if not isinstance(reason, str | Objection | None) or reason == "":
                    yield f"{name} answers {step.move.text} with {reason!r:.80}, neither None nor a reason"
                elif reason != again:
                    yield f"{name} answers {step.move.text} in two ways: {reason!r:.80}, {again!r:.80}"
                elif reason is not None and step.move.text in offered:
                    yield f"{name} refuses {step.move.text}, which is offered all the same"


def expert_plays_by_the_rules(context: Context) -> Iterator[str]:
    """The expert's games start from what it was given and replay move by move, at every shape."""
    rules = context.rules
    for kernel in context.cases(context.kernels, least=len(context.operators)):
        games = list(context.expert(kernel.program, rules, context.target))
        if not games:
            yield f"the expert has no game for {kernel.name}"
        for game in games:
            if game.root != kernel.program:
                yield f"the expert's game for {kernel.name} starts from another program"
                continue
            try:
                again = Trace(game.root).play_all(rules, game.moves)
            except DojoError as error:
                yield f"the expert's game for {kernel.name} does not replay: {error.what}"
                continue
            if again.program != game.program or again.kind != game.kind:
                yield f"the expert's game for {kernel.name} replays to another program"
            if game.kind > Kind.DECLARED_LAW:
                yield f"the expert changes precision on {kernel.name}, which nobody asked for"


def _expert_games(context: Context) -> Iterator[Trace]:
    """The expert's games on every operator, at a shape of primes."""
    if context.has_expert:
        for kernel in context.small_kernels:
            yield from context.expert(kernel.program, context.rules, context.target)


def _ends(context: Context) -> Iterator[Program]:
    """Initial programs, and the last programs of random games and of the expert's."""
    yield from context.programs
    yield from (trace.program for trace in context.walks)
    yield from (game.program for game in _expert_games(context))


def _positions(context: Context) -> Iterator[Program]:
    """Initial programs, and every program of the expert's and of random games."""
    yield from context.programs
    for trace in (*_expert_games(context), *context.walks):
        yield from (step.after for step in trace.steps)

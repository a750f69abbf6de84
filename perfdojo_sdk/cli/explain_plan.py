"""``explain-plan``: what the target's expert decides for a kernel, with its reasons and numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from perfdojo_sdk.cli.console import Json, emit, table
from perfdojo_sdk.cli.sources import SourceArgument, TargetOption, open_game, plugins_for
from perfdojo_sdk.core.errors import UnavailableError
from perfdojo_sdk.core.interface import MAX_THREADS
from perfdojo_sdk.core.words import number_of

if TYPE_CHECKING:
    from perfdojo_sdk.experts.balance import Share
    from perfdojo_sdk.hookspecs.services import Plan


def command(
    source: SourceArgument,
    target: TargetOption = "",
    threads: Annotated[int, typer.Option(min=1, max=MAX_THREADS, help="Say how the work is shared.")] = 1,
    as_json: Json = False,
) -> None:
    """Print what the target's expert decides for a kernel and why, and how threads share its first game.

    Nothing is compiled or run. Numbers are estimated from the target's figures. The exit code is 3 when the
    target's expert does not tell.
    """
    from perfdojo_sdk.experts.balance import shares
    from perfdojo_sdk.hookspecs.abilities import ExplainsPlans, ability

    plugins = plugins_for(source, target)
    game = open_game(plugins, source, target)
    expert = ability(plugins.guarded_pass(game.target), ExplainsPlans)
    if expert is None:
        what = f"the expert of target {game.target.name} does not explain its plans"
        raise UnavailableError("PD-G016", what, hint="`build-library` plays and measures its games")
    known = game.target.on(plugins.machine_figures(game.target))
    plan = expert.plan(game.program, plugins.rules(game.target), known)
    shared = shares(plan.games[0].program, game.target.dialect, threads) if plan.games else ()
    name = game.program.name
    emit(_text(name, plan, shared, threads), _data(name, game.target.name, plan, shared, threads), as_json)


def _text(kernel: str, plan: Plan, shared: tuple[Share, ...], threads: int) -> str:
    rows = [
        (d.rule, d.place, d.choice, d.reason, ", ".join(f"{k} {_figure(v)}" for k, v in d.numbers.items()))
        for d in plan.decisions
    ]
    moves = ", ".join(str(len(game.steps)) for game in plan.games)
    lines = [table(("rule", "place", "decision", "why", "numbers"), rows)]
    lines.append(
        f"{kernel}: {number_of(len(plan.games), 'games')}" + (f", of {moves} moves" if moves else "")
    )
    for share in shared:
        loop = f"{share.iterations} iterations of {share.place}" if share.place else "one thread"
        lines.append(f"{share.root}: {loop}; of {threads} threads, {100 * share.balance:.0f} % are busy")
    return "\n".join(lines)


def _figure(value: float | str) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _data(kernel: str, target: str, plan: Plan, shared: tuple[Share, ...], threads: int) -> dict[str, Any]:
    return {
        "name": kernel,
        "target": target,
        "threads": threads,
        "decisions": [
            {
                "rule": d.rule,
                "place": d.place,
                "choice": d.choice,
                "reason": d.reason,
                "numbers": dict(d.numbers),
            }
            for d in plan.decisions
        ],
        "games": [[step.move.text for step in game.steps] for game in plan.games],
        "shares": [
            {"root": s.root, "place": s.place, "iterations": s.iterations, "balance": s.balance}
            for s in shared
        ],
    }

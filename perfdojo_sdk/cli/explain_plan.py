"""``explain-plan``: what the target's expert decides for a kernel, and which kernels of a model it joins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perfdojo_sdk.cli.console import Json, emit, memory, table
from perfdojo_sdk.cli.models import MODULE, inputs_of, read, unsupported
from perfdojo_sdk.cli.sources import TargetOption, choose_target, open_game, plugins_for
from perfdojo_sdk.core.errors import UnavailableError
from perfdojo_sdk.core.interface import MAX_THREADS
from perfdojo_sdk.core.words import number_of

if TYPE_CHECKING:
    from perfdojo_sdk.experts.balance import Share
    from perfdojo_sdk.hookspecs.services import Plan
    from perfdojo_sdk.models.fusion import Edge


def command(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="A saved game (GAME.json), a program (FILE.dojo), a kernel, a model (MODEL.onnx or"
            " FILE.py:NAME), or the folder of a model that was built.",
        ),
    ],
    target: TargetOption = "",
    threads: Annotated[int, typer.Option(min=1, max=MAX_THREADS, help="Say how the work is shared.")] = 1,
    given: Annotated[
        list[str] | None,
        typer.Option("--input", help="The shape of an input that a model leaves open: x=f32[8,3,224,224]."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Print what the target's expert decides for a kernel and why, and how threads share its first game.

    For a model: for each array between two kernels, whether they become one, why, the bytes that are not
    moved then, and their time. Nothing is compiled or run. Numbers are estimated from the target's figures.
    The exit code is 3 when the target's expert does not tell.
    """
    if is_model(source):
        rows = _edges(source, target, given or [])
        emit(_edges_text(source, rows), {"model": source, "edges": [asdict(row) for row in rows]}, as_json)
        return
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


def is_model(source: str) -> bool:
    """True for a file or module that holds a model, and for the folder of one that was built."""
    return source.lower().endswith(".onnx") or bool(MODULE.fullmatch(source)) or Path(source).is_dir()


def _edges(source: str, target: str, given: Sequence[str]) -> list[Edge]:
    """The verdicts on the arrays of a model: those that it was built by, or those for a target now."""
    from perfdojo_sdk.graph.integers import unit_of, with_integer_sums
    from perfdojo_sdk.graph.passes import without_duplicates
    from perfdojo_sdk.models.blocks import SIZES
    from perfdojo_sdk.models.fusion import Edge
    from perfdojo_sdk.models.manifest import read_model_manifest
    from perfdojo_sdk.models.optimise import plan_for
    from perfdojo_sdk.plugins import load_plugins

    if Path(source).is_dir():
        return [Edge(**entry.model_dump()) for entry in read_model_manifest(Path(source)).edges]
    found = read(source, inputs_of(given))
    graph = found.graph if found.free is None else found.free.at(SIZES[-1])
    if graph is None:
        error = unsupported(Path(source).name, list(found.refused))
        raise found.dependent or error
    plugins = load_plugins(targets=[target] if target else None)
    chosen = choose_target(plugins, target)
    graph, _ = with_integer_sums(without_duplicates(graph), unit_of(chosen.dialect), laws=False)
    return list(plan_for(plugins, chosen, graph).edges)


def _edges_text(source: str, edges: Sequence[Edge]) -> str:
    rows = [
        (
            edge.value,
            edge.producer,
            edge.consumer,
            "one kernel" if edge.fused else "apart",
            edge.why,
            f"{edge.bytes / 1024:.1f}",
            f"{edge.seconds * 1e6:.1f}",
        )
        for edge in edges
    ]
    joined = [edge for edge in edges if edge.fused]
    spared, time = sum(edge.bytes for edge in joined), sum(edge.seconds for edge in joined)
    columns = ("array", "from", "to", "decision", "why", "KiB", "us")
    lines = [
        table(columns, rows) if rows else "no kernel reads what another one writes",
        f"{Path(source).name}: {len(joined)} of {number_of(len(edges), 'arrays')} stay inside of a kernel",
        f"estimated for one thread: {memory(spared)} are not moved, {time * 1e6:.0f} us are spared",
    ]
    return "\n".join(lines)


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

"""``explain-time``: where a kernel's time goes, as far as the target's plugin can tell."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from perfdojo_sdk.cli.console import Json, emit, seconds, table
from perfdojo_sdk.cli.sources import SourceArgument, TargetOption, compile_game, open_game, plugins_for
from perfdojo_sdk.cli.threads import threads_option

if TYPE_CHECKING:
    from perfdojo_sdk.hookspecs.services import TimeBreakdown


def command(
    source: SourceArgument,
    target: TargetOption = "",
    threads: Annotated[int, threads_option(help="Run the kernel on so many.")] = 1,
    as_json: Json = False,
) -> None:
    """Compile a game or kernel, run it, and split its time or cycles into parts.

    What the parts are depends on the target: stalls by reason on a simulator, memory and arithmetic on
    a processor. The exit code is 3 when the target's plugin cannot tell.
    """
    from perfdojo_sdk.hookspecs.types import RunRequest

    plugins = plugins_for(source, target)
    game = open_game(plugins, source, target)
    found = plugins.require(game.target.name)
    artifact = compile_game(plugins, game)
    request = RunRequest(threads=threads, repeats=100, want_outputs=False)
    breakdown = plugins.time_breakdown(game.program, found, artifact, request)
    emit(_text(game.program.name, breakdown), _data(game.program.name, found.name, breakdown), as_json)


def _text(kernel: str, breakdown: TimeBreakdown) -> str:
    total = breakdown.total
    rows = [
        (part.name, _amount(part.amount, breakdown.unit), _share(part.amount, total), part.why)
        for part in breakdown.parts
    ]
    lines = [table(("part", breakdown.unit, "share", "what it is"), rows)]
    lines.append(f"{kernel}: {_amount(total, breakdown.unit)}, {breakdown.provenance}")
    if breakdown.limit:
        lines.append(f"what binds it: {breakdown.limit}")
    return "\n".join(lines)


def _amount(value: float, unit: str) -> str:
    return seconds(value) if unit == "seconds" else f"{value:.0f} {unit}"


def _share(amount: float, total: float) -> str:
    return f"{100 * amount / total:.0f} %" if total else ""


def _data(kernel: str, target: str, breakdown: TimeBreakdown) -> dict[str, Any]:
    return {
        "name": kernel,
        "target": target,
        "unit": breakdown.unit,
        "total": breakdown.total,
        "provenance": breakdown.provenance,
        "limit": breakdown.limit,
        "parts": [{"name": p.name, "amount": p.amount, "why": p.why} for p in breakdown.parts],
    }

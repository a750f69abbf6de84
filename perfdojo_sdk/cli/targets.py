"""``targets``: what can be built for, and which of it this machine can run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perfdojo_sdk.cli.console import Json, emit, table
from perfdojo_sdk.core.errors import DojoError

if TYPE_CHECKING:
    from perfdojo_sdk.hookspecs.types import Target
    from perfdojo_sdk.plugins import Plugins


def command(as_json: Json = False) -> None:
    """List the targets, best first, with what the plugins that bring them report.

    Times of a target are measured, or its kernels are emulated or simulated here. A target that cannot run
    here is listed with the reason and what would mend it. A plugin that is broken is listed too, and stops
    nobody else.
    """
    from perfdojo_sdk.plugins import load_plugins

    plugins = load_plugins()
    ordered = sorted(plugins.targets.values(), key=lambda t: (-t.capabilities.rank, t.name))
    targets = []
    for target in ordered:
        reason = plugins.unavailable(target)
        targets.append(
            {
                "name": target.name,
                "plugin": target.plugin,
                "description": target.capabilities.description,
                "usable": reason is None,
                "how": how(plugins, target) if reason is None else "",
                "why": reason.why if reason else "",
                "try": reason.remedy if reason else "",
                "suffixes": sorted(target.dialect.suffixes),
                "locations": sorted(target.dialect.locations),
            }
        )
    problems = [
        {"plugin": p.plugin, "stage": p.stage, "why": p.cause, "try": p.remedy} for p in plugins.problems
    ]
    emit(_text(targets, problems), {"targets": targets, "problems": problems}, as_json)


def how(plugins: Plugins, target: Target) -> str:
    """The way in which a target that can run here does: measured, emulated or simulated; empty if its runner
    fails."""
    from perfdojo_sdk.hookspecs.abilities import Imitates, ability

    try:
        told = ability(plugins.guarded_runner(target), Imitates)
        return (told.imitation if told is not None else "") or "measured"
    except DojoError:
        return ""


_MEANING = {
    "emulated": "an emulator computes the results, not the device, and a model estimates the times",
    "simulated": "a simulator of the device gives results and times",
}


def _usable(target: dict[str, object]) -> str:
    if not target["usable"]:
        return f"no: {target['why']}; try: {target['try']}"
    return ", ".join(filter(None, ("yes", str(target["how"]))))


def _text(targets: list[dict[str, object]], problems: list[dict[str, str]]) -> str:
    if targets:
        rows = [(t["name"], _usable(t), t["description"]) for t in targets]
        lines = [table(("target", "runs here", "what it is"), rows)]
        ways = {t["how"] for t in targets}
        lines += [f"{how}: {means}" for how, means in _MEANING.items() if how in ways]
    else:
        lines = ["no plugin brings a target"]
    for p in problems:
        lines.append(f"plugin {p['plugin']} is broken ({p['stage']}): {p['why']}\n   try: {p['try']}")
    return "\n".join(lines)

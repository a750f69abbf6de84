"""``targets``: what can be built for, and which of it this machine can run."""

from __future__ import annotations

from perfdojo_sdk.cli.console import Json, emit, table


def command(as_json: Json = False) -> None:
    """List the targets, best first, with what the plugins that bring them report.

    A target that cannot run here is listed with the reason and what would mend it. A plugin that is
    broken is listed too, and stops nobody else.
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


def _text(targets: list[dict[str, object]], problems: list[dict[str, str]]) -> str:
    if targets:
        rows = [
            (t["name"], "yes" if t["usable"] else f"no: {t['why']}; try: {t['try']}", t["description"])
            for t in targets
        ]
        lines = [table(("target", "runs here", "what it is"), rows)]
    else:
        lines = ["no plugin brings a target"]
    for p in problems:
        lines.append(f"plugin {p['plugin']} is broken ({p['stage']}): {p['why']}\n   try: {p['try']}")
    return "\n".join(lines)

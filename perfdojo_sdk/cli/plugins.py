"""``plugins``: which there are, what each brings, what is wrong, what this machine lacks; a new one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perfdojo_sdk.cli.console import Json, emit, progress, table
from perfdojo_sdk.cli.paths import path_option
from perfdojo_sdk.core.errors import NothingFoundError, UnavailableError, VerificationError, closest

if TYPE_CHECKING:
    from perfdojo_sdk.hookspecs.types import Target
    from perfdojo_sdk.plugins import Installed, Plugin, Plugins, Problem
    from perfdojo_sdk.testing.conformance import Check, Result

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="List, show and check the plugins, say what this machine lacks for them, and start a new one. "
    "Each command takes --json.",
)

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="A plugin, or a target that it brings.")]

UNAVAILABLE = UnavailableError.exit_code


# -- list ----------------------------------------------------------------------------------------


@app.command("list")
def list_plugins(
    no_import: Annotated[
        bool, typer.Option("--no-import", help="Only what the packages' metadata says; nothing is loaded.")
    ] = False,
    as_json: Json = False,
) -> None:
    """List the plugins: version, plugin API, targets, hooks and whether each works."""
    from perfdojo_sdk.plugins import installed

    if no_import:
        rows = [_from_metadata(each) for each in installed()]
        columns: tuple[str, ...] = ("name", "package", "version", "targets")
    else:
        rows = _all_rows()
        columns = ("name", "version", "api", "targets", "hooks", "status")
    shown = [[_cell(column, row[column]) for column in columns] for row in rows]
    lines = [table(columns, shown)]
    for row in rows:
        for problem in row.get("problems", ()):
            lines.append(f"{row['name']} ({problem['stage']}): {problem['why']}\n   try: {problem['try']}")
        lines += [f"{row['name']}: {text}" for text in row.get("deprecations", ())]
    emit("\n".join(lines), {"plugins": rows}, as_json)


def _from_metadata(found: Installed) -> dict[str, Any]:
    targets = list(found.targets)
    return {
        "name": found.name,
        "package": found.distribution,
        "version": found.version,
        "targets": targets,
    }


def _cell(column: str, value: Any) -> object:
    if column == "hooks":
        return len(value)
    return ", ".join(value) if isinstance(value, list) else value


def _all_rows() -> list[dict[str, Any]]:
    """Every plugin that loaded, failed or was left out."""
    from perfdojo_sdk.plugins import installed, load_plugins

    plugins = load_plugins()
    rows = {plugin.name: _loaded(plugins, plugin) for plugin in plugins.loaded}
    for each in installed():
        if each.name not in rows:
            problems = _problems(plugins, each.name)
            status = "broken" if problems else "left out"
            more = {"api": "", "hooks": [], "status": status, "problems": problems, "deprecations": []}
            rows[each.name] = {**_from_metadata(each), **more}
    for problem in plugins.problems:
        if problem.plugin not in rows:
            rows[problem.plugin] = {
                **{"name": problem.plugin, "package": "", "version": "", "targets": []},
                **{"api": "", "hooks": [], "status": "missing", "deprecations": []},
                "problems": _problems(plugins, problem.plugin),
            }
    return list(rows.values())


def _loaded(plugins: Plugins, plugin: Plugin) -> dict[str, Any]:
    problems = _problems(plugins, plugin.name)
    deprecations = [text for name, text in plugins.deprecations if name == plugin.name]
    return {
        "name": plugin.name,
        "package": plugin.distribution,
        "version": plugin.version,
        "targets": [t.name for t in plugins.targets.values() if t.plugin == plugin.name],
        "api": ".".join(map(str, plugin.api)) if isinstance(plugin.api, tuple) else "",
        "hooks": list(plugin.hooks),
        "status": "broken" if problems else "deprecated" if deprecations else "ok",
        "problems": problems,
        "deprecations": deprecations,
    }


def _problems(plugins: Plugins, name: str) -> list[dict[str, str]]:
    return [_problem(p) for p in plugins.problems if p.plugin == name]


def _problem(problem: Problem) -> dict[str, str]:
    return {"stage": problem.stage, "why": problem.cause, "try": problem.remedy}


# -- show ----------------------------------------------------------------------------------------


@app.command()
def show(name: NameArgument, as_json: Json = False) -> None:
    """Show everything that a plugin brings. The exit code is 3 when it is broken."""
    plugins, plugin = _find(name)
    brings = _contributions(plugins, plugin)  # asking may show what is wrong with it
    row = _loaded(plugins, plugin)
    row["fingerprint"] = plugins.fingerprints()[plugin.name]
    row |= {name: sorted(found) for name, found in brings.items()}
    hidden = ("hooks", "problems", "deprecations")
    lines = [f"{key:16} {_cell(key, value)}" for key, value in row.items() if key not in hidden and value]
    lines += [f"{'hooks':16} {hook}" if k == 0 else f"{'':16} {hook}" for k, hook in enumerate(row["hooks"])]
    lines += [f"deprecated: {text}" for text in row["deprecations"]]
    lines += [f"broken ({p['stage']}): {p['why']}\n   try: {p['try']}" for p in row["problems"]]
    emit("\n".join(lines), row, as_json)
    if row["problems"]:
        raise typer.Exit(UNAVAILABLE)


def _contributions(plugins: Plugins, plugin: Plugin) -> dict[str, list[str]]:
    """Names of a plugin's operators, searches, experiments, transformations and observers, by kind."""
    from perfdojo_sdk.core.transformation import Transformation
    from perfdojo_sdk.hookspecs.search import SearchStrategy
    from perfdojo_sdk.hookspecs.services import Experiment, Observer
    from perfdojo_sdk.hookspecs.types import Operator

    found = {
        "operators": [o.name for o in plugins.collect(plugin, "perfdojo_operators", Operator)],
        "searches": [s.name for s in plugins.collect(plugin, "perfdojo_search_strategies", SearchStrategy)],
        "experiments": [e.name for e in plugins.collect(plugin, "perfdojo_experiments", Experiment)],
    }
    by_target = {
        "transformations": ("perfdojo_transformations", Transformation),
        "observers": ("perfdojo_observers", Observer),
    }
    for key, (hook, kind) in by_target.items():
        names = {
            item.name
            for target in plugins.targets.values()
            if plugin in plugins.concerned(target)
            for item in plugins.collect(plugin, hook, kind, target=target)
        }
        found[key] = list(names)
    return found


def _find(name: str) -> tuple[Plugins, Plugin]:
    """The plugin of that name, or the one that brings the target of that name."""
    from perfdojo_sdk.plugins import installed, load_plugins

    plugins = load_plugins()
    owner = plugins.targets[name].plugin if name in plugins.targets else name
    for plugin in plugins.loaded:
        if plugin.name == owner:
            return plugins, plugin
    names = {name, *(each.name for each in installed() if name in each.targets)}
    for problem in plugins.problems:
        if problem.plugin in names:
            raise problem.error()
    known = [p.name for p in plugins.loaded]
    raise UnavailableError("PD-G008", f"unknown plugin {name!r}", hint=closest(name, known))


# -- check ---------------------------------------------------------------------------------------


@app.command()
def check(
    name: NameArgument,
    target: Annotated[
        str, typer.Option(help="Check a plugin that brings no target on this one.", show_default=False)
    ] = "",
    quick: Annotated[bool, typer.Option("--quick", help="Less of everything, while you write code.")] = False,
    thorough: Annotated[bool, typer.Option("--thorough", help="Much more, before a release.")] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="WORDS", help="Only checks with these words in their name; may be repeated."),
    ] = None,
    junit: Annotated[
        Path | None, path_option(metavar="FILE", help="Write a JUnit file.", show_default=False)
    ] = None,
    badge: Annotated[
        Path | None,
        path_option(metavar="FILE", help="Write a badge as shields.io reads it.", show_default=False),
    ] = None,
    as_json: Json = False,
) -> None:
    """Run the conformance kit on a target, or on a plugin with all of its targets.

    The exit code is 4 when a check failed, 3 when nothing failed and this machine lacks what some
    checks need.
    """
    from perfdojo_sdk.game import write_atomically
    from perfdojo_sdk.testing import reports
    from perfdojo_sdk.testing.conformance import run_all
    from perfdojo_sdk.testing.context import BUDGETS

    if quick and thorough:
        raise typer.BadParameter("--quick and --thorough exclude each other")
    wanted = _wanted_checks(only or [""])
    plugins, plugin = _find(name)
    targets = _targets_to_check(plugins, plugin, name, target)
    budget = BUDGETS["quick" if quick else "thorough" if thorough else "default"]
    results: list[Result] = []
    for result in run_all(plugins, plugin, targets, budget, wanted):
        results.append(result)
        progress(f"{len(results):3}  {reports.line(result)}  {result.seconds:.1f} s")
    if junit:
        write_atomically(junit, reports.junit(plugin.name, results))
    if badge:
        write_atomically(badge, reports.badge(results))
    found = reports.counts(results)
    data = {
        "plugin": plugin.name,
        "version": plugin.version,
        "budget": budget.name,
        "passed": not found["failed"] and not found["unavailable"],
        "counts": {outcome: found[outcome] for outcome in (*reports.WORDS, "unavailable")},
        "checks": [reports.as_json(result) for result in results],
    }
    summary = f"{plugin.name} {plugin.version}, {budget.name}: {reports.verdict(results)}"
    emit("\n".join([*map(reports.text, results), summary]), data, as_json)
    if found["failed"]:
        raise typer.Exit(VerificationError.exit_code)
    if found["unavailable"]:
        raise typer.Exit(UNAVAILABLE)


def _wanted_checks(words: list[str]) -> Callable[[Check], bool]:
    """A filter for checks with one of ``words`` in their names; NothingFoundError when no check has one."""
    from perfdojo_sdk.testing.conformance import CHECKS

    def wanted(check: Check) -> bool:
        return any(word in check.name for word in words)

    if not any(map(wanted, CHECKS)):
        what = f"no check has {' or '.join(map(repr, words))} in its name"
        hint = closest(words[0], [check.name for check in CHECKS])
        raise NothingFoundError("PD-G015", what, hint=hint)
    return wanted


def _targets_to_check(plugins: Plugins, plugin: Plugin, name: str, wanted: str) -> list[Target]:
    """The one that was named; else all that the plugin brings."""
    if wanted or name in plugins.targets:
        return [plugins.target(wanted or name)]
    return [target for target in plugins.targets.values() if target.plugin == plugin.name]


# -- doctor --------------------------------------------------------------------------------------


@app.command()
def doctor(
    target: Annotated[str, typer.Option(help="Only this target.", show_default=False)] = "",
    as_json: Json = False,
) -> None:
    """Say what each target needs of this machine: what is there, what is missing, what mends it.

    The exit code is 3 when the target that was asked for cannot run here; without --target, when no
    target can, or a plugin is broken.
    """
    from perfdojo_sdk.plugins import load_plugins

    plugins = load_plugins(targets=[target] if target else None)
    targets = [plugins.target(target)] if target else sorted(plugins.targets.values(), key=lambda t: t.name)
    diagnoses = [_diagnosis(plugins, each) for each in targets]
    problems = [{"plugin": p.plugin, **_problem(p)} for p in plugins.problems]
    emit(_doctor_text(diagnoses, problems), {"targets": diagnoses, "problems": problems}, as_json)
    usable = any(d["usable"] for d in diagnoses)
    if not usable or (problems and not target):
        progress("nothing can run here" if not usable else "a plugin is broken")
        raise typer.Exit(UNAVAILABLE)


def _diagnosis(plugins: Plugins, target: Target) -> dict[str, Any]:
    reason = plugins.unavailable(target)
    return {
        "target": target.name,
        "usable": reason is None,
        "why": reason.why if reason else "",
        "try": reason.remedy if reason else "",
        "probes": [
            {
                "part": probe.part,
                "plugin": plugin.name,
                "found": probe.found,
                "required": probe.required,
                "why": "" if probe.ok else probe.why or f"there is no {probe.part}",
                "try": "" if probe.ok else probe.remedy,
            }
            for plugin, probe in plugins.probes(target)
        ],
    }


def _doctor_text(diagnoses: list[dict[str, Any]], problems: list[dict[str, str]]) -> str:
    lines = [] if diagnoses else ["no plugin brings a target"]
    for each in diagnoses:
        lines.append(f"{each['target']}: {'can run here' if each['usable'] else 'cannot run here'}")
        for probe in each["probes"]:
            lines += _probe_lines(probe)
        if not each["usable"] and not any(p["why"] and p["required"] for p in each["probes"]):
            lines += [f"  missing  {each['why']}", f"           try: {each['try']}"]
    for p in problems:
        lines.append(f"plugin {p['plugin']} is broken ({p['stage']}): {p['why']}\n   try: {p['try']}")
    return "\n".join(lines)


def _probe_lines(probe: dict[str, Any]) -> list[str]:
    if not probe["why"]:
        return [f"  ok       {probe['part']}: {probe['found']}"]
    word = "missing" if probe["required"] else "without"
    lines = [f"  {word:8} {probe['part']}: {probe['why']}"]
    return lines + [f"           try: {probe['try']}"] if probe["try"] else lines


# -- new -----------------------------------------------------------------------------------------


@app.command()
def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Of the target: letters, digits, underscores.")],
    directory: Annotated[
        Path | None, path_option(help="New or empty. Default: NAME in this folder.", show_default=False)
    ] = None,
    as_json: Json = False,
) -> None:
    """Write a complete package for a new target: it installs, builds and passes its tests as it is."""
    from perfdojo_sdk.plugins import installed, load_plugins
    from perfdojo_sdk.plugins.scaffold import scaffold

    folder = directory if directory is not None else Path(name)
    declared = {each for found in installed() for each in (found.name, *found.targets)}
    files = [str(path) for path in scaffold(name, folder, declared | load_plugins().targets.keys())]
    steps = [
        f'pip install -e "{folder}[test]"',
        f"perfdojo-sdk plugins check {name}",
        f'perfdojo-sdk build-library --target {name} --kernels "softmax[64,128]"',
        f"pytest {folder}",
    ]
    lines = [f"{name} is in {folder}:", *(f"  {file}" for file in files)]
    lines += ["next:", *(f"  {step}" for step in steps)]
    emit("\n".join(lines), {"name": name, "directory": str(folder), "files": files, "next": steps}, as_json)

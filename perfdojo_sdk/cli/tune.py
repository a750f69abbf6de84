"""``tune``: search for the fastest program of one kernel."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perfdojo_sdk.cli.build_library import Allow
from perfdojo_sdk.cli.console import Json, PlaceOption, emit, progress, seconds
from perfdojo_sdk.cli.paths import output_option
from perfdojo_sdk.cli.search_options import AgentOption, SearchOption, search_options
from perfdojo_sdk.cli.sources import one_kernel
from perfdojo_sdk.cli.threads import threads_option
from perfdojo_sdk.cli.workplace import ClusterOption, DeviceOption, workplace
from perfdojo_sdk.core.errors import NothingFoundError
from perfdojo_sdk.core.words import number_of

if TYPE_CHECKING:
    from perfdojo_sdk.kernels.selection import Kernel
    from perfdojo_sdk.library.build import KernelResult
    from perfdojo_sdk.library.tuning import SearchStatus
    from perfdojo_sdk.store.records import KernelRecord

#: Seconds between two lines of progress, unless there is a new best.
_QUIET_S = 5.0
_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}
_STAGES = ("propose", "compile", "verify", "measure")


def duration(text: str) -> float:
    """``90``, ``90s``, ``10m`` or ``2h`` in seconds."""
    match = re.fullmatch(r"(\d{1,9}(?:\.\d{1,3})?)([smh]?)", text.strip())
    if match is None or float(match[1]) <= 0:
        raise typer.BadParameter(f"{text!r} is no duration; write 90s, 10m or 2h")
    return float(match[1]) * _UNITS[match[2]]


def command(
    kernel: Annotated[str, typer.Argument(metavar="KERNEL", help="For example: 'matmul[768,1024,1024]'.")],
    target: Annotated[
        str, typer.Option(help="Tune for this target, or for the best that can run here.")
    ] = "best",
    search: Annotated[
        str, typer.Option(help="Who plays; `plugins show perfdojo_sdk` lists the SDK's searches.")
    ] = "auto",
    budget: Annotated[int, typer.Option(min=1, max=10**6, help="Most programs to evaluate, in all.")] = 1000,
    limit: Annotated[
        str, typer.Option("--time", help="Most time for the whole search: 90s, 10m, 2h.", show_default=False)
    ] = "",
    resume: Annotated[bool, typer.Option("--resume", help="Go on where the same search stopped.")] = False,
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="The only source of chance.")] = 0,
    threads: Annotated[int | None, threads_option(help="Default: all cores.")] = None,
    allow: Annotated[Allow, typer.Option(help="The most that moves may change.")] = Allow.law,
    output: Annotated[
        Path | None,
        output_option(help="Folder of the library. Default: build/library/TARGET."),
    ] = None,
    agent: AgentOption = None,
    option: SearchOption = None,
    cluster: ClusterOption = "",
    device: DeviceOption = "",
    db: PlaceOption = "",
    as_json: Json = False,
) -> None:
    """Search for the fastest program of a kernel: play, compile, measure, verify, learn, again.

    Everything evaluated is recorded at once and never measured again; Ctrl-C loses nothing, and
    --resume goes on from there. The result is the fastest program that passes verification, at worst
    the initial one; a build of a library with the same settings takes it from the records. The exit
    code is 4 when not even that passes.
    """
    from perfdojo_sdk.library.build import default_directory, game_file, tune_kernel
    from perfdojo_sdk.library.settings import Settings
    from perfdojo_sdk.plugins import load_plugins
    from perfdojo_sdk.plugins.faults import PluginFault

    most_s = duration(limit) if limit else None
    plugins = load_plugins(targets=[target])
    for problem in plugins.problems:
        progress(f"plugin {problem.plugin} is left out ({problem.stage}): {problem.cause}")
    with workplace(plugins, target, cluster, device) as where:
        found = where.target
        chosen = one_kernel(plugins, kernel, found)
        options = search_options(agent, option, search, found.name)
        settings = Settings(most=allow.kind, search=search, evaluations=budget, seed=seed, options=options)
        settings = replace(settings, threads=threads or where.threads or settings.threads)
        directory = output or default_directory(found.name)
        game = game_file(directory, chosen)
        how = f"with {number_of(settings.threads, 'threads')}: {search}, {budget}"
        progress(f"tuning {chosen.name} for {found.name} {how}")
        watch, make = observer(budget), where.make_builder
        try:
            result = tune_kernel(plugins, found, chosen, settings, directory, resume, most_s, watch, db, make)
        except KeyboardInterrupt:
            if game.exists():
                progress(f"the fastest so far is in {game}; --resume goes on")
            raise
    if result.found is None:
        raise nothing_passed(result, watch.status)
    emit(_text(result, watch.status, game), _data(result, watch.status, game), as_json)
    if result.found.record.faults:
        raise typer.Exit(PluginFault.exit_code)


def nothing_passed(result: KernelResult, status: SearchStatus | None) -> NothingFoundError:
    """The error when not even the initial program passed: the reasons, and the most common message."""
    said = [f"{words} ({number_of(often, 'times')})" for _, words, often in _commonest(status)]
    return NothingFoundError(
        "PD-C009",
        f"no program of {result.kernel.name} passes verification, not even the initial one",
        why="; ".join([result.failure, *said]),
        hint="`targets` shows whether the target's tools work; `verify KERNEL` shows the legs one by one",
    )


def observer(budget: int) -> Any:
    """Reports on stderr: a line for each new best, and one now and then."""
    from perfdojo_sdk.library.build import Observer

    said_stages = {
        "verifying": "verifying the fastest in full",
        "waiting": "waiting for a device of the cluster",
        "lost": "the node of the search is gone; another one goes on",
    }

    class Lines(Observer):
        status: SearchStatus | None = None
        said, best = 0.0, float("inf")

        def stage(self, kernel: Kernel, stage: str) -> None:
            if stage in said_stages:
                progress(said_stages[stage])

        def round(self, kernel: Kernel, status: SearchStatus) -> None:
            self.status, now = status, monotonic()
            best = status.best_s or float("inf")
            if best < self.best or now - self.said > _QUIET_S:
                self.said, self.best = now, min(best, self.best)
                progress(_line(status, budget))

    return Lines()


def _line(status: SearchStatus, budget: int) -> str:
    best = seconds(status.best_s) if status.best_s else "nothing yet"
    failed = f"failed {sum(status.tally.failures.values())}{_reasons(status)}"
    return f"{status.evaluations:6}/{budget}  best {best}  {failed}  {_split(status)}"


def _reasons(status: SearchStatus) -> str:
    counts = status.tally.failures.most_common()
    return f" ({', '.join(f'{reason} {count}' for reason, count in counts)})" if counts else ""


def _split(status: SearchStatus) -> str:
    """Seconds by stage, and the rest: records, the player's state."""
    spent = status.tally.seconds
    rest = max(0.0, status.elapsed_s - sum(spent.values()))
    shown = {**{stage: spent.get(stage, 0.0) for stage in _STAGES}, "other": rest}
    return ", ".join(f"{stage} {took:.1f} s" for stage, took in shown.items())


def _commonest(status: SearchStatus | None) -> list[tuple[str, str, int]]:
    from perfdojo_sdk.library.tuning import commonest

    return list(commonest(status.tally)) if status else []


def _text(result: KernelResult, status: SearchStatus | None, game: Path) -> str:
    assert result.found is not None
    record = result.found.record
    lines = [f"{result.kernel.name}: {_result(record)}"]
    if status is not None:
        tally, elapsed_s = status.tally, status.elapsed_s
        rate = f", {60 * status.evaluations / elapsed_s:.0f} a minute" if elapsed_s else ""
        known = f", {tally.reused} of them from the records" if tally.reused else ""
        lines.append(f"{number_of(status.evaluations, 'evaluations')} in {elapsed_s:.0f} s{rate}{known}")
        lines.append(f"failed: {sum(tally.failures.values())}{_reasons(status)}")
        lines += [
            f"  {reason}: {said} ({number_of(often, 'times')})" for reason, said, often in _commonest(status)
        ]
        lines.append(f"time: {_split(status)}")
    lines += [f"note: {note}" for note in record.notes]
    lines += [f"fault: {fault}" for fault in record.faults]
    lines.append(f"game: {game}")
    return "\n".join(lines)


def _result(record: KernelRecord) -> str:
    final, initial = record.final, record.initial
    legs = record.verification
    verified = "verified (exact, numeric, dependence)" if legs.passed else "NOT verified"
    if final is None:
        return f"{number_of(len(record.trace.moves), 'moves')}, {verified}"
    speed_up = ""
    if record.suspect:
        speed_up = ", suspect"
    elif initial is not None and initial.provenance == final.provenance:
        speed_up = f", {initial.median_s / final.median_s:.1f}x the initial program's speed"
    time = f"{seconds(final.median_s)} ({final.provenance}){speed_up}"
    return f"{time}, {number_of(len(record.trace.moves), 'moves')}, {verified}"


def _data(result: KernelResult, status: SearchStatus | None, game: Path) -> dict[str, Any]:
    assert result.found is not None
    record = result.found.record
    data: dict[str, Any] = {
        "name": result.kernel.name,
        "seconds": record.final.median_s if record.final else None,
        "provenance": record.final.provenance if record.final else None,
        "device": record.final.device if record.final else None,
        "initial_seconds": record.initial.median_s if record.initial else None,
        "verified": record.verification.passed,
        "kind": record.kind,
        "laws": list(record.laws),
        "moves": len(record.trace.moves),
        "notes": list(record.notes),
        "suspect": record.suspect or None,
        "faults": list(record.faults),
        "game": str(game),
    }
    if status is not None:
        tally = status.tally
        data["search"] = {
            "evaluations": status.evaluations,
            "resumed": status.resumed,
            "from_records": tally.reused,
            "failures": dict(tally.failures),
            "messages": [
                {"reason": reason, "said": said, "count": often} for reason, said, often in _commonest(status)
            ],
            "elapsed_s": round(status.elapsed_s, 3),
            "seconds_by_stage": {stage: round(spent, 3) for stage, spent in tally.seconds.items()},
        }
    return data

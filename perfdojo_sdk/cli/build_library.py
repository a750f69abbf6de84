"""``build-library``: from a selection of kernels to a verified, measured library."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perfdojo_sdk.cli.console import Json, PlaceOption, emit, progress, seconds, table
from perfdojo_sdk.cli.paths import output_option
from perfdojo_sdk.cli.search_options import AgentOption, SearchOption, search_options
from perfdojo_sdk.cli.threads import threads_option
from perfdojo_sdk.cli.workplace import ClusterOption, DeviceOption, workplace
from perfdojo_sdk.core.errors import NothingFoundError, VerificationError
from perfdojo_sdk.core.transformation import Kind
from perfdojo_sdk.core.words import number_of

if TYPE_CHECKING:
    from perfdojo_sdk.kernels.selection import Kernel
    from perfdojo_sdk.library.accepting import Found
    from perfdojo_sdk.library.build import BuildResult, KernelResult
    from perfdojo_sdk.library.manifest import KernelEntry


class Allow(StrEnum):
    """The most that moves may change."""

    exact = "exact"
    reassociate = "reassociate"
    law = "law"
    precision = "precision"

    @property
    def kind(self) -> Kind:
        return Kind(list(Allow).index(self))


def command(
    target: Annotated[
        str, typer.Option(help="Build for this target, or for the best that can run here.")
    ] = "best",
    kernels: Annotated[
        list[str] | None,
        typer.Option(
            help="For example: 'softmax matmul[8,8,8] FILE.dojo'. Default: the target's choice, or all."
        ),
    ] = None,
    output: Annotated[Path | None, output_option(help="Default: build/library/TARGET.")] = None,
    threads: Annotated[int | None, threads_option(help="Default: all cores.")] = None,
    allow: Annotated[Allow, typer.Option(help="The most that moves may change.")] = Allow.law,
    search: Annotated[
        str,
        typer.Option(
            "--pass", "--search", help="Who plays: heuristic, greedy, naive, or a search as for `tune`."
        ),
    ] = "",
    evaluations: Annotated[
        int, typer.Option(min=1, help="Most programs of a search to compile and time, for each kernel.")
    ] = 100,
    tune: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="BUDGET",
            help="Search, evaluating so many for each kernel.",
            show_default=False,
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace kernels that are there already, by slower ones too.")
    ] = False,
    replace_all: Annotated[
        bool, typer.Option("--replace", help="Start the library over: what is not asked for goes.")
    ] = False,
    agent: AgentOption = None,
    option: SearchOption = None,
    cluster: ClusterOption = "",
    device: DeviceOption = "",
    db: PlaceOption = "",
    as_json: Json = False,
) -> None:
    """Build a library: play, compile, verify and measure each kernel, then package them.

    A library that is there already is added to: a kernel that is not asked for stays, and one of the same
    name is replaced by one that is not slower, both timed in turns.

    A kernel that is finished is recorded at once. After an interruption, or with more kernels, the
    same command goes on from there. The exit code is 4 when some kernel did not pass verification
    or could not be built; the library then holds the others. It is 6 when all are there, but a plugin
    failed on one, such as the target's expert.
    """
    from perfdojo_sdk.kernels.selection import default_selection, select
    from perfdojo_sdk.library.build import build_library
    from perfdojo_sdk.library.settings import Settings
    from perfdojo_sdk.plugins import load_plugins
    from perfdojo_sdk.plugins.faults import PluginFault
    from perfdojo_sdk.search.strategies import AUTO, HEURISTIC

    plugins = load_plugins(targets=[target])
    for problem in plugins.problems:
        progress(f"plugin {problem.plugin} is left out ({problem.stage}): {problem.cause}")
    search = search or (HEURISTIC if tune is None else AUTO)
    with workplace(plugins, target, cluster, device) as where:
        found = where.target
        lists = found.capabilities.selections
        if kernels is None:
            selected = default_selection(plugins.operators_for(found), found.dialect, lists)
        else:
            selected = select(kernels, plugins.operators_for(found), found.dialect, lists)
        count = evaluations if tune is None else tune
        options = search_options(agent, option, search, found.name)
        settings = Settings(most=allow.kind, search=search, evaluations=count, options=options)
        settings = replace(settings, threads=threads or where.threads or settings.threads)
        progress(
            f"building {number_of(len(selected), 'kernels')} for {found.name}"
            f" with {number_of(settings.threads, 'threads')}"
        )
        watch = side_by_side() if cluster else observer()
        make = where.make_builder
        result = build_library(
            plugins,
            found,
            selected,
            output,
            settings,
            watch,
            place=db,
            make_builder=make,
            force=force,
            start_over=replace_all,
        )
    if result.manifest is None:
        raise nothing_built(result)
    emit(_text(result), _data(result), as_json)
    if result.failed:
        raise typer.Exit(VerificationError.exit_code)
    if result.faulty:
        raise typer.Exit(PluginFault.exit_code)


def observer() -> Any:
    """Reports on stderr, one line a kernel, written as its stages begin."""
    from perfdojo_sdk.library.build import Observer

    class Lines(Observer):
        kernel = ""
        """The kernel whose line has no end yet."""

        def started(self, kernel: Kernel, number: int, count: int) -> None:
            self._begin(kernel.name, f"[{number}/{count}] {kernel.name}:")

        def stage(self, kernel: Kernel, stage: str) -> None:
            if kernel.name != self.kernel:
                self._begin(kernel.name, f"{kernel.name}, which is there already:")
            progress(f" {stage}", end="")

        def finished(self, result: KernelResult) -> None:
            self.kernel = ""
            if result.found is None:
                progress(f" - left out: {result.failure}")
                return
            time = call_time(result.found)
            progress(f"{' taken from the records' if result.found.reused else ''} -{time and ' '}{time}")

        def packaging(self, count: int) -> None:
            self._begin("", f"linking {number_of(count, 'kernels')} and checking each again\n")

        def _begin(self, kernel: str, text: str) -> None:
            progress(f"\n{text}" if self.kernel else text, end="")
            self.kernel = kernel

    return Lines()


def side_by_side() -> Any:
    """Reports on stderr of kernels that are built at the same time: each line says which one it means."""
    from perfdojo_sdk.library.build import Observer

    said = {"searching": "searching", "verifying": "verifying", "lost": "its node is gone; another goes on"}

    class Lines(Observer):
        def stage(self, kernel: Kernel, stage: str) -> None:
            if stage in said:
                progress(f"{kernel.name}: {said[stage]}")

        def finished(self, result: KernelResult) -> None:
            name, found = result.kernel.name, result.found
            if found is None:
                progress(f"{name}: left out: {result.failure}")
                return
            time = call_time(found)
            progress(
                f"{name}: {'taken from the records' if found.reused else 'finished'}{time and ': '}{time}"
            )

        def packaging(self, count: int) -> None:
            progress(f"linking {number_of(count, 'kernels')} and checking each again")

    return Lines()


def call_time(found: Found) -> str:
    """The time of a call of a finished kernel, and what of its pack is in it; empty without a time."""
    record = found.record
    if record.call is None:
        return ""
    pack = ", its pack included" if found.source.packing is not None else ""
    return seconds(record.call.median_s) + (", once its constants are packed" if record.packed else pack)


def none_built(kernels: int) -> str:
    """The message when none of ``kernels`` kernels passed."""
    return "the kernel could not be built" if kernels == 1 else f"none of {kernels} kernels could be built"


def nothing_built(result: BuildResult) -> NothingFoundError:
    """No kernel could enter a library: the reasons, the commonest first."""
    why = reasons(result.failed)
    if all("never written" in reason for reason in why):
        hint = "the program itself leaves them out: write every element first, as in 64 y[{0}] = 0"
    else:
        hint = "`targets` shows whether the target's tools work; `verify KERNEL` shows the legs one by one"
    return NothingFoundError("PD-C004", none_built(len(result.results)), why="; ".join(why), hint=hint)


def reasons(failed: Sequence[KernelResult]) -> list[str]:
    """The reasons why kernels are missing, the most common first."""
    from collections import Counter

    counts = Counter(r.failure for r in failed)
    return [
        f"{failure} ({count} kernels)" if count > 1 else failure for failure, count in counts.most_common()
    ]


def _text(result: BuildResult) -> str:
    assert result.manifest is not None
    rows = [_row(entry, result.fates.get(entry.name, "")) for entry in result.manifest.kernels]
    columns = ["kernel", "time", "speed-up", "roofline", "verified", "moves", "kind", "remarks"]
    if not any(row[-1] for row in rows):
        rows, columns = [row[:-1] for row in rows], columns[:-1]
    lines = [table(columns, rows)]
    notes = [f"{entry.name}: {note}" for entry in result.manifest.kernels for note in entry.notes]
    lines += [f"note: {note}" for note in notes]
    lines += [f"fault: {e.name}: {fault}" for e in result.manifest.kernels for fault in e.faults]
    lines += [f"{name}: {fate}" for name, fate in told(result)]
    lines += [f"left out: {r.kernel.name}: {r.failure}" for r in result.failed]
    once = [e.name for e in result.manifest.kernels if _timed_once(e)]
    if once:
        lines.append(f"slow initial programs, timed by one call: {', '.join(once)}")
    lines += _time_split(result)
    provenances = sorted({e.timing.final.provenance for e in result.manifest.kernels if e.timing.final})
    lines.append(f"times are {' and '.join(provenances)} on {result.manifest.device}")
    lines.append(f"library: {result.directory}")
    return "\n".join(lines)


def told(result: BuildResult) -> list[tuple[str, str]]:
    """Kernels that were in the library before, with a sentence on their fate where one word is not enough."""
    return [(name, fate) for name, fate in result.fates.items() if ":" in fate]


def _timed_once(entry: KernelEntry) -> bool:
    initial = entry.timing.initial
    return initial is not None and bool(initial.details.get("stopped"))


#: Stages of one kernel, one after the other; then the legs, which run beside each other.
STAGES, LEGS = ("search", "compile", "measure", "verify"), ("exact", "numeric", "dependence")


def _split(entry: KernelEntry) -> dict[str, float]:
    """Seconds by stage and by leg of verification."""
    stages = {name: entry.build_seconds.get(name, 0.0) for name in STAGES}
    legs = {name: getattr(entry.verification, name).figures.get("seconds", 0.0) for name in LEGS}
    return stages | legs


def _time_split(result: BuildResult) -> list[str]:
    """A table of the build's seconds by stage, for the kernels built in this run."""
    assert result.manifest is not None
    built = {r.kernel.name for r in result.results if r.found and not r.found.reused}
    entries = [entry for entry in result.manifest.kernels if entry.name in built]
    rows = []
    for entry in entries:
        split = _split(entry)
        rows.append((entry.name, *(f"{split[n]:.1f}" for n in (*STAGES, *LEGS))))
    title = "seconds of the build; the three legs run beside each other"
    parts = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in result.seconds.items())
    lines = [table(("kernel", *STAGES, *LEGS), rows, title)] if rows else []
    return [*lines, f"the build took {sum(result.seconds.values()):.1f} s: {parts}"]


def _row(entry: KernelEntry, fate: str) -> tuple[str, ...]:
    final = entry.timing.final
    legs = entry.verification
    return (
        entry.name,
        seconds(final.median_s) if final else "",
        f"{entry.speed_up:.1f}x" if entry.speed_up else "",
        f"{100 * entry.roofline_fraction:.0f} %" if entry.roofline_fraction else "",
        " ".join(
            name if leg.passed else f"{name} FAILED"
            for name, leg in (
                ("exact", legs.exact),
                ("numeric", legs.numeric),
                ("dependence", legs.dependence),
            )
        ),
        str(len(entry.moves)),
        entry.kind,
        ", ".join([*_remarks(entry), *([fate.partition(":")[0]] if fate else [])]),
    )


def _remarks(entry: KernelEntry) -> list[str]:
    """Short remarks on a row: a suspect time, a failed plugin."""
    suspect = ["suspect time"] if entry.timing.suspect else []
    return suspect + (["a plugin failed"] if entry.faults else [])


def _data(result: BuildResult) -> dict[str, Any]:
    assert result.manifest is not None
    return {
        "directory": str(result.directory),
        "target": result.manifest.target,
        "device": result.manifest.device,
        "threads": result.manifest.settings.get("threads"),
        "build_seconds": dict(result.seconds),
        "kernels": [
            {
                "name": entry.name,
                "seconds": entry.timing.final.median_s if entry.timing.final else None,
                "provenance": entry.timing.final.provenance if entry.timing.final else None,
                "suspect": entry.timing.suspect or None,
                "speed_up": entry.speed_up,
                "roofline_fraction": entry.roofline_fraction,
                "verified": entry.verification.passed,
                "kind": entry.kind,
                "laws": list(entry.laws),
                "moves": len(entry.moves),
                "notes": list(entry.notes),
                "faults": list(entry.faults),
                "fate": result.fates.get(entry.name),
                "initial_timed_once": _timed_once(entry),
                "build_seconds": _split(entry),
            }
            for entry in result.manifest.kernels
        ],
        "failed": [{"name": r.kernel.name, "why": r.failure} for r in result.failed],
    }

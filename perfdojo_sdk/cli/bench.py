"""``bench``: a library timed again in the way it was, stored against now; or one game, timed now."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perfdojo_sdk.cli.console import Json, emit, progress, seconds, table
from perfdojo_sdk.cli.sources import TargetOption, compile_game, open_game, plugins_for
from perfdojo_sdk.cli.threads import threads_option
from perfdojo_sdk.core.words import number_of

if TYPE_CHECKING:
    from perfdojo_sdk.game import Game
    from perfdojo_sdk.hookspecs.types import Failure, Measurement, RunRequest
    from perfdojo_sdk.library.manifest import KernelEntry
    from perfdojo_sdk.plugins import Plugins


def command(
    source: Annotated[
        str, typer.Argument(metavar="SOURCE", help="Folder of a library; or a game or kernel.")
    ],
    target: TargetOption = "",
    threads: Annotated[int, threads_option(help="For a game; a library keeps its own.")] = 1,
    only: Annotated[str, typer.Option("--only", help="Kernels of a library whose name contains this.")] = "",
    as_json: Json = False,
) -> None:
    """Time the kernels of a library again, in the way that its figures were taken.

    Prints the stored time beside the time now, and whether the outputs still have the bits that were
    verified. The exit code is 4 when a kernel fails or its outputs differ. For a game or a kernel,
    compiles it and prints its time.
    """
    if Path(source).is_dir():
        _bench_library(Path(source), only, as_json)
    else:
        _bench_game(plugins_for(source, target), source, target, threads, as_json)


def _bench_game(plugins: Plugins, source: str, target: str, threads: int, as_json: bool) -> None:
    from perfdojo_sdk.hookspecs.types import RunRequest

    game = open_game(plugins, source, target)
    plugins.require(game.target.name)
    progress("compiling and timing")
    measured = time_game(plugins, game, RunRequest(threads=threads, repeats=100, want_outputs=False))
    data = {
        "name": game.program.name,
        "target": game.target.name,
        "device": measured.device,
        "provenance": measured.provenance,
        "threads": measured.threads,
        "cold": measured.cold,
        "calls": len(measured.seconds),
        "median_s": measured.median,
        "best_s": min(measured.seconds),
        "details": dict(measured.details),
    }
    text = (
        f"{seconds(measured.median)} (median of {number_of(len(measured.seconds), 'calls')}, best "
        f"{seconds(min(measured.seconds))}), {circumstances(measured)}"
    )
    # Observers' figures have their name and a dot in front; how the runner went about it is for --json.
    observed = {name: value for name, value in sorted(measured.details.items()) if "." in name}
    text += "".join(f"\n{name}: {value:.4g}" for name, value in observed.items())
    emit(text, data, as_json)


def time_game(plugins: Plugins, game: Game, request: RunRequest) -> Measurement:
    """Compile the game's program and time it.

    :class:`VerificationError` when it does not compile, :class:`UnavailableError` when it does not run.
    """
    from perfdojo_sdk.core.errors import UnavailableError
    from perfdojo_sdk.hookspecs.types import Failure

    measured = plugins.observed_runner(game.target).run(compile_game(plugins, game), request)
    if isinstance(measured, Failure):
        what = f"{game.program.name} did not run: {measured.reason}"
        raise UnavailableError("PD-C007", what, why=measured.detail)
    plugins.measurement_recorded(game.target, game.program.name, measured)
    return measured


def circumstances(measured: Measurement) -> str:
    """The conditions under which a figure was obtained, in words."""
    cache = "cold" if measured.cold else "warm"
    threads = f"{measured.threads} thread{'s' * (measured.threads != 1)}"
    return f"{cache} cache, {threads}, {measured.provenance} on {measured.device}"


def _bench_library(library: Path, only: str, as_json: bool) -> None:
    from perfdojo_sdk.core.errors import NothingFoundError
    from perfdojo_sdk.hookspecs.types import Measurement
    from perfdojo_sdk.library.by_runner import artifact, stored_request
    from perfdojo_sdk.library.manifest import read_manifest
    from perfdojo_sdk.plugins import load_plugins

    manifest = read_manifest(library)
    plugins = load_plugins(targets=[manifest.target])
    target = plugins.require(manifest.target)
    runner = plugins.observed_runner(target)
    if runner.device() != manifest.device:
        progress(f"the stored times are from another device: {manifest.device}")
        progress(f"this one is: {runner.device()}")
    entries = [entry for entry in manifest.kernels if only in entry.name]
    if not entries:
        known = ", ".join(entry.name for entry in manifest.kernels)
        raise NothingFoundError("PD-C005", f"no kernel's name contains {only!r}", hint=f"known: {known}")
    request = stored_request(manifest)
    results = []
    for entry in entries:
        progress(f"timing {entry.name}")
        final = entry.timing.final
        as_then = replace(request, cold=True) if final is not None and final.cold else request
        measured = runner.run(artifact(library, manifest, entry), as_then)
        if isinstance(measured, Measurement):
            plugins.measurement_recorded(target, entry.name, measured)
        results.append(compared(entry, measured))
    emit(_text(results, manifest.device), {"device": runner.device(), "kernels": results}, as_json)
    if not all(result["same_outputs"] for result in results):
        raise typer.Exit(4)


def compared(entry: KernelEntry, measured: Measurement | Failure) -> dict[str, Any]:
    """One kernel's stored time, its time now, and whether its outputs are the verified ones."""
    from perfdojo_sdk.hookspecs.types import Failure
    from perfdojo_sdk.library.accepting import output_sha256

    stored = entry.timing.final
    result: dict[str, Any] = {"name": entry.name, "stored_s": stored.median_s if stored else None}
    if isinstance(measured, Failure):
        failure = f"{measured.reason}: {measured.detail}".rstrip(": ")
        lacking = {"now_s": None, "ratio": None, "same_outputs": False, "computed": False}
        return {**result, **lacking, "failure": failure}
    comparable = stored is not None and stored.provenance == measured.provenance
    return {
        **result,
        "now_s": measured.median,
        "provenance": measured.provenance,
        "ratio": measured.median / stored.median_s if stored and comparable else None,
        "same_outputs": output_sha256(measured) == entry.output_sha256,
        "computed": entry.output_sha256 is not None,
        "failure": "",
    }


def _outputs(result: dict[str, Any]) -> str:
    if result["failure"]:
        return ""
    if not result["same_outputs"]:
        return "DIFFERENT"
    return "as verified" if result["computed"] else "not computed"


def _text(results: list[dict[str, Any]], device: str) -> str:
    rows = [
        (
            r["name"],
            seconds(r["stored_s"]) if r["stored_s"] else "",
            seconds(r["now_s"]) if r["now_s"] else r["failure"],
            f"{r['ratio']:.2f}" if r["ratio"] else "",
            _outputs(r),
        )
        for r in results
    ]
    return f"{table(('kernel', 'stored', 'now', 'now / stored', 'outputs'), rows)}\nstored on {device}"

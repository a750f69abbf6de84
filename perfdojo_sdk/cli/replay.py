"""``replay``: play a saved game again, and see what each move brings."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perfdojo_sdk.cli.bench import circumstances, time_game
from perfdojo_sdk.cli.console import Json, emit, progress, seconds, table
from perfdojo_sdk.cli.sources import SavedGameArgument, plugins_for
from perfdojo_sdk.cli.threads import threads_option
from perfdojo_sdk.core.errors import DojoError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perfdojo_sdk.game import Game
    from perfdojo_sdk.hookspecs.types import Measurement
    from perfdojo_sdk.plugins import Plugins


def command(
    source: SavedGameArgument,
    programs: Annotated[bool, typer.Option("--programs", help="Print the program after each move.")] = False,
    timed: Annotated[
        bool, typer.Option("--time", help="Compile and time the program after each move.")
    ] = False,
    threads: Annotated[int, threads_option(help="For --time.")] = 1,
    as_json: Json = False,
) -> None:
    """Play a saved game again from its initial program, checking every move, and print the result.

    With --time the program is compiled and timed before the first and after each move, here and now;
    what does not compile or run has its reason instead of a time.
    """
    from perfdojo_sdk.game import Game

    plugins = plugins_for(str(source), "")
    game = Game.load(plugins, source)
    timings = time_each(plugins, game, threads) if timed else ()
    steps = game.trace.steps
    lines = [_moves(game, timings), ""] if steps or timings else []
    if programs:
        for n, step in enumerate(steps):
            lines += [f"# after move {n}: {step.move.text}", step.after.text]
    else:
        lines.append(game.program.text)
    data: dict[str, Any] = {
        "target": game.target.name,
        "root": game.trace.root.text,
        "kind": game.trace.kind.label,
        "laws": sorted(game.trace.laws),
        "moves": [
            {"number": n, "move": s.move.text, "kind": s.legal.kind.label, "program": s.after.text}
            for n, s in enumerate(steps)
        ],
        "program": game.program.text,
    }
    if timings:
        data["timings"] = [timing.as_json() for timing in timings]
    emit("\n".join(lines), data, as_json)


@dataclass(frozen=True)
class Timing:
    """The result of timing one program of a game: a measurement, or the reason why there is none."""

    measured: Measurement | None
    failure: str = ""

    def as_json(self) -> dict[str, Any]:
        if self.measured is None:
            return {"median_s": None, "failure": self.failure}
        found = self.measured
        return {
            "median_s": found.median,
            "best_s": min(found.seconds),
            "calls": len(found.seconds),
            "cold": found.cold,
            "threads": found.threads,
            "provenance": found.provenance,
            "device": found.device,
        }


def time_each(plugins: Plugins, game: Game, threads: int) -> tuple[Timing, ...]:
    """Time the initial program and the program after each move."""
    from perfdojo_sdk.hookspecs.types import RunRequest

    plugins.require(game.target.name)
    request = RunRequest(threads=threads, repeats=50, budget_s=0.5, want_outputs=False)
    trace, found = game.trace, list[Timing]()
    for count in range(len(trace.steps) + 1):
        at = replace(game, trace=replace(trace, steps=trace.steps[:count]))
        try:
            found.append(Timing(time_game(plugins, at, request)))
        except DojoError as error:
            found.append(Timing(None, error.why or error.what))
        what = trace.steps[count - 1].move.text if count else "initial program"
        progress(f"[{count}/{len(trace.steps)}] {what}: {_time(found[-1])}")
    return tuple(found)


def _time(timing: Timing) -> str:
    return seconds(timing.measured.median) if timing.measured else timing.failure.splitlines()[0]


def _moves(game: Game, timings: Sequence[Timing]) -> str:
    """The moves as a table, with the times where they were taken."""
    steps = game.trace.steps
    if not timings:
        return table(
            ("move", "text", "kind"), [(n, s.move.text, s.legal.kind.label) for n, s in enumerate(steps)]
        )
    rows = [("", "initial program", "", _time(timings[0]))]
    rows += [
        (str(n), step.move.text, step.legal.kind.label, _time(timing))
        for n, (step, timing) in enumerate(zip(steps, timings[1:]))
    ]
    ways = sorted({circumstances(t.measured) for t in timings if t.measured})
    return "\n".join([table(("move", "text", "kind", "time"), rows), *(f"medians, {way}" for way in ways)])

"""The paper's figure 10: the time after each move of a game that was played by hand.

The game is a target's own, so its plugin brings the experiment and calls :func:`along`.
"""

from __future__ import annotations

from typing import Any

from perfdojo_sdk.core.transformation import Trace
from perfdojo_sdk.experiments.figures import written
from perfdojo_sdk.experiments.rows import Rows
from perfdojo_sdk.game import Game
from perfdojo_sdk.hookspecs.services import ExperimentRequest, ExperimentResult
from perfdojo_sdk.hookspecs.types import Failure, Measurement, RunRequest
from perfdojo_sdk.kernels.selection import Kernel
from perfdojo_sdk.library.context import BuildContext
from perfdojo_sdk.library.settings import Settings
from perfdojo_sdk.plugins import Plugins

#: A relative change of the time below this counts as none: timings of one program differ by as much.
SAME = 0.05


def along(request: ExperimentRequest, plugins: Plugins, game: Game, threads: int = 1) -> ExperimentResult:
    """Time the initial program of ``game`` and the program after each of its moves, and draw that."""
    settings = Settings(
        threads=threads, repeats=10 if request.quick else 50, budget_s=0.1 if request.quick else 0.5
    )
    context = BuildContext.of(plugins, game.target, settings)
    trace, rows = game.trace, Rows(request.folder / "fig10.rows")
    points: list[dict[str, Any]] = []
    for number in range(len(trace.steps) + 1):
        move = trace.steps[number - 1].move.text if number else "initial program"
        found = _timed(context, rows, Trace(trace.root, trace.steps[:number]))
        points.append({"move": number, "text": move, **found})
        time = f"{found['median_s'] * 1e3:.4g} ms" if found["median_s"] else found["failure"]
        request.progress(f"[{number}/{len(trace.steps)}] {move}: {time}")
    data = _data(game, threads, points)
    return written(
        request, "fig10", _text(data), data, points, lambda figure: _draw(figure.subplots(), data), (9, 4.5)
    )


def _timed(context: BuildContext, rows: Rows, trace: Trace) -> dict[str, Any]:
    """The time of the end of ``trace``, or why it has none."""
    kernel = Kernel("along", trace.root.name, trace.root)
    key = {"conditions": context.key(kernel).digest, "program": trace.program.text}
    found = rows.get(key)
    if found is None:
        found = _measured(context, kernel, trace)
        rows.put(key, found)
    return dict(found)


def _measured(context: BuildContext, kernel: Kernel, trace: Trace) -> dict[str, Any]:
    settings = context.settings
    request = RunRequest(
        threads=settings.threads,
        want_outputs=False,
        repeats=settings.repeats,
        budget_s=settings.budget_s,
        timeout_s=settings.timeout_s,
    )
    result: Measurement | Failure
    made = context.runner.compile(context.generator.generate(trace.program, kernel.symbol))
    result = made if isinstance(made, Failure) else context.runner.run(made, request)
    if isinstance(result, Failure) or not result.seconds:
        why = f"{result.reason}: {result.detail}" if isinstance(result, Failure) else "no call was timed"
        return {"median_s": None, "least_s": None, "provenance": "", "failure": why.partition("\n")[0]}
    return {
        "median_s": result.median,
        "least_s": min(result.seconds),
        "provenance": result.provenance,
        "failure": "",
    }


def _data(game: Game, threads: int, points: list[dict[str, Any]]) -> dict[str, Any]:
    times = [point["median_s"] for point in points]
    first = times[0]
    for point in points:
        point["speedup"] = first / point["median_s"] if first and point["median_s"] else None
    ratios = [before / after for before, after in zip(times, times[1:]) if before and after]
    return {
        "target": game.target.name,
        "program": game.trace.root.name,
        "shapes": [list(game.trace.root.buffer_of[name].shape) for name in game.trace.root.inputs],
        "threads": threads,
        "provenance": sorted({p["provenance"] for p in points if p["provenance"]}),
        "faster": sum(ratio > 1 + SAME for ratio in ratios),
        "slower": sum(ratio < 1 - SAME for ratio in ratios),
        "same": sum(1 - SAME <= ratio <= 1 + SAME for ratio in ratios),
        "speedup": first / times[-1] if first and times[-1] else None,
        "points": points,
    }


def _text(data: dict[str, Any]) -> str:
    lines = [
        f"{p['move']:4}  {p['text']:50} "
        + (f"{p['median_s'] * 1e3:10.4g} ms  {p['speedup'] or 0:6.2f}x" if p["median_s"] else p["failure"])
        for p in data["points"]
    ]
    lines.append(
        f"{data['faster']} moves make it faster by more than {SAME:.0%}, {data['slower']} slower, "
        f"{data['same']} change nothing by themselves; the whole game: {data['speedup'] or 0:.2f}x"
    )
    where = f"{data['program']} on {data['target']}, {data['threads']} threads"
    lines.append(f"{where}, medians, {', '.join(data['provenance']) or 'nothing ran'}")
    return "\n".join(lines)


def _draw(axes: Any, data: dict[str, Any]) -> None:
    points = [p for p in data["points"] if p["speedup"]]
    axes.step([p["move"] for p in points], [p["speedup"] for p in points], where="post", linewidth=1.5)
    axes.plot([p["move"] for p in points], [p["speedup"] for p in points], ".", markersize=4)
    axes.set_yscale("log")
    axes.set_xlabel("moves played")
    axes.set_ylabel("speed, the initial program's being 1")
    axes.set_title(f"{data['program']} by hand on {data['target']}")
    axes.grid(alpha=0.3)

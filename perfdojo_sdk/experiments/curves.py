"""Best times over the evaluations of a search, median and quartiles over seeds: as rows, lines, pictures.

All of it takes the data of :func:`perfdojo_sdk.experiments.contest.run_contest`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from perfdojo_sdk.core.words import number_of

Data = Mapping[str, Any]


def quartiles(runs: Sequence[Sequence[float | None]], count: int) -> np.ndarray[Any, Any]:
    """Three rows: lower quartile, median, upper quartile of the best after 1 .. ``count`` evaluations.

    A search that was finished early keeps its best. Infinity: nothing had run yet, or there is no run.
    """
    if not runs:
        return np.full((3, count), np.inf)
    full = np.full((len(runs), count), np.inf)
    for row, best in zip(full, runs):
        times = [np.inf if seconds is None else seconds for seconds in best[:count]]
        row[: len(times)] = times
        if times:
            row[len(times) :] = times[-1]
    found: np.ndarray[Any, Any] = np.quantile(full, (0.25, 0.5, 0.75), axis=0, method="nearest")
    return found


def spread(data: Data, panel: Data, name: str) -> np.ndarray[Any, Any]:
    """The quartiles of one player on one kernel, in seconds."""
    return quartiles(panel["best_s"][name], data["evaluations"])


def table(data: Data, names: Sequence[str], marks: Iterable[int]) -> list[dict[str, Any]]:
    """A row for each kernel, player and number of evaluations in ``marks``."""
    wanted = tuple(marks)
    return [
        {"kernel": panel["kernel"], "player": name, "evaluations": mark}
        | dict(zip(("lower_quartile_s", "median_s", "upper_quartile_s"), map(float, found[:, mark - 1])))
        for panel in data["panels"]
        for name in names
        for found in (spread(data, panel, name),)
        for mark in wanted
    ]


def lines(data: Data, panel: Data, names: Sequence[str], marks: Sequence[int]) -> list[str]:
    """One kernel as text: a line for each player, its median in us after each of ``marks`` evaluations."""
    width = max(map(len, names)) + 2
    title = f"{panel['kernel']}: median over {seeds(data, panel, names)} of the best time, in us, after"
    shown = [title, f"{'evaluations':{width}}" + "".join(f"{mark:>12}" for mark in marks)]
    for name in names:
        middle = spread(data, panel, name)[1]
        cells = (f"{middle[mark - 1] * 1e6:.4g}" if np.isfinite(middle[mark - 1]) else "-" for mark in marks)
        shown.append(f"{name:{width}}" + "".join(f"{cell:>12}" for cell in cells))
    return shown


def seeds(data: Data, panel: Data, names: Sequence[str]) -> str:
    """The number of seeds behind a median, in words; players without chance have one run and do not count."""
    played = sorted({len(panel["best_s"][name]) for name in names})
    least, most = min(played[0], data["seeds"]), min(played[-1], data["seeds"])
    return number_of(most, "seeds") if least == most else f"{least} to {most} seeds"


def caption(data: Data) -> str:
    """The caption of a figure: target, provenance and device of the times, and the number of missing runs."""
    provenance = ", ".join(sorted({panel["provenance"] for panel in data["panels"]}))
    runs = data["runs"]
    left = f"{runs['played']} of {runs['wanted']} runs were played in time; the same command goes on\n"
    of = f"{data['target']}, one thread, {provenance}: {data['device']}"
    return of if runs["played"] == runs["wanted"] else left + of


def draw(figure: Any, data: Data, names: Sequence[str], levels: Mapping[str, Mapping[str, float]]) -> None:
    """A panel for each kernel; ``levels``: kernel -> what is drawn as a level line -> its time in seconds."""
    panels = data["panels"]
    for axes, panel in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels):
        at = range(1, data["evaluations"] + 1)
        for name in names:
            low, middle, high = spread(data, panel, name) * 1e6
            if not np.isfinite(middle).any():  # the player has no time yet
                continue
            [line] = axes.plot(at, middle, label=name)
            axes.fill_between(at, low, high, alpha=0.2, color=line.get_color(), linewidth=0)
        for name, seconds in levels.get(panel["kernel"], {}).items():
            axes.axhline(seconds * 1e6, linestyle="--", color="black", label=name)
        if axes.lines:
            axes.set_yscale("log")
        axes.set_title(panel["kernel"], fontsize=10)
        axes.set_xlabel("evaluations")
        axes.set_ylabel(f"best time so far, us ({panel['provenance']})")
        if axes.lines:
            axes.legend(fontsize=8)
        axes.grid(alpha=0.3, which="both")


def figure_size(data: Data) -> tuple[float, float]:
    """Width and height of the picture in inches."""
    return 5.5 * len(data["panels"]) + 0.5, 4.5

"""An experiment's result as files: its data as JSON, its table as CSV and, with matplotlib, a picture."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from perfdojo_sdk.game import write_atomically
from perfdojo_sdk.hookspecs.services import ExperimentRequest, ExperimentResult

#: Draws into the figure of matplotlib that it is given.
Draw = Callable[[Any], None]


def written(
    request: ExperimentRequest,
    name: str,
    text: str,
    data: Mapping[str, Any],
    table: Sequence[Mapping[str, Any]],
    draw: Draw,
    inches: tuple[float, float] = (8, 5),
) -> ExperimentResult:
    """Write ``name.json``, ``name.csv`` and ``name.png``. ``table``: rows with the same columns each."""
    files = [request.folder / f"{name}.json", request.folder / f"{name}.csv"]
    write_atomically(files[0], json.dumps(data, indent=1, allow_nan=False) + "\n")
    write_atomically(files[1], _csv(table))
    try:
        from matplotlib.figure import Figure
    except ImportError:
        text += "\nno picture without matplotlib: pip install 'perfdojo-sdk[figures]'"
        return ExperimentResult(text, data, tuple(files))
    figure = Figure(figsize=inches, layout="constrained")
    draw(figure)
    picture = io.BytesIO()
    figure.savefig(picture, format="png", dpi=120)
    files.append(request.folder / f"{name}.png")
    write_atomically(files[-1], picture.getvalue())
    return ExperimentResult(text, data, tuple(files))


def bars(axes: Any, places: Sequence[str], series: Mapping[str, Sequence[float]]) -> None:
    """Groups of bars: one group for each place, one colour for each series."""
    width = 0.8 / max(1, len(series))
    for k, (title, heights) in enumerate(series.items()):
        axes.bar([at + k * width for at in range(len(places))], heights, width, label=title)
    axes.set_xticks([at + 0.4 - width / 2 for at in range(len(places))], places, rotation=60, ha="right")
    axes.legend(fontsize=8, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=min(4, len(series)))


def _csv(table: Sequence[Mapping[str, Any]]) -> str:
    text = io.StringIO()
    if table:
        writer = csv.DictWriter(text, list(table[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(table)
    return text.getvalue()

"""The paper's figure 13: how fast sampling and annealing converge, over edges and over whole sequences."""

from __future__ import annotations

from dataclasses import dataclass

from perfdojo_sdk.experiments import curves
from perfdojo_sdk.experiments.contest import Contest, Player, among, chosen, run_contest
from perfdojo_sdk.experiments.figures import written
from perfdojo_sdk.hookspecs.services import ExperimentRequest, ExperimentResult
from perfdojo_sdk.plugins import load_plugins

SEARCHES = ("annealing", "sampling", "annealing-edges", "sampling-edges")
PLAYERS = tuple(Player(name, name) for name in SEARCHES)


@dataclass(frozen=True)
class Size:
    """The size of a contest: kernels, evaluations and seeds."""

    kernels: str
    evaluations: int
    seeds: int


WHOLE = Size("softmax[2048,512] matmul[256,256,256]", 300, 5)
QUICK = Size("softmax[64,128]", 30, 3)


def convergence(request: ExperimentRequest) -> ExperimentResult:
    """Play all runs, and draw the median and the quartiles of the best time so far."""
    players = among(PLAYERS, request.players)
    names = [player.title for player in players]
    size = QUICK if request.quick else WHOLE
    count = request.evaluations or size.evaluations
    plugins = load_plugins()
    target = plugins.require(request.target)
    kernels = chosen(request.kernels or size.kernels, plugins, target)
    contest = Contest("fig13", players, count, size.seeds)
    data = run_contest(request, contest, plugins, target, kernels)
    marks = sorted({max(1, count // 10), max(1, count // 3), count})
    text = [line for panel in data["panels"] for line in curves.lines(data, panel, names, marks)]
    return written(
        request,
        "fig13",
        "\n".join([*text, curves.caption(data)]),
        data,
        curves.table(data, names, range(1, count + 1)),
        lambda figure: curves.draw(figure, data, names, {}),
        curves.figure_size(data),
    )

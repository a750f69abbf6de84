"""The paper's figure 13: how fast sampling and annealing converge, over edges and over whole sequences.

All of them see the same figures: a program is measured once, whoever proposes it first, and so the luck of
a timing favours nobody. Each is played with several seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from perfdojo_sdk.core.transformation import Trace
from perfdojo_sdk.experiments.figures import written
from perfdojo_sdk.experiments.rows import Rows
from perfdojo_sdk.hookspecs.search import Evaluation, SearchStrategy, SearchTask
from perfdojo_sdk.hookspecs.services import ExperimentRequest, ExperimentResult
from perfdojo_sdk.kernels.selection import Kernel, select
from perfdojo_sdk.library.evaluation import Evaluator
from perfdojo_sdk.library.forge import Forge, Settings
from perfdojo_sdk.library.tuning import conditions
from perfdojo_sdk.plugins import load_plugins
from perfdojo_sdk.search.strategies import play_out
from perfdojo_sdk.store.candidates import CandidateStore, Proposer
from perfdojo_sdk.store.database import Records

PLAYERS = ("annealing", "sampling", "annealing-edges", "sampling-edges")

Evaluate = Callable[[Sequence[Trace]], Sequence[Evaluation]]


@dataclass(frozen=True)
class Size:
    """How much is played."""

    kernels: str
    evaluations: int
    seeds: int


WHOLE = Size("softmax[2048,512] matmul[256,256,256]", 300, 5)
QUICK = Size("softmax[64,128]", 30, 3)


def best_so_far(strategy: SearchStrategy, task: SearchTask, evaluate: Evaluate) -> list[float]:
    """The best time after each evaluation; infinity as long as nothing ran."""
    best: list[float] = []

    def watched(games: Sequence[Trace]) -> Sequence[Evaluation]:
        results = evaluate(games)
        for each in results:
            before = best[-1] if best else float("inf")
            best.append(before if each.seconds is None else min(before, each.seconds))
        return results

    play_out(strategy, task, watched, task.evaluations)
    return best


def convergence(request: ExperimentRequest) -> ExperimentResult:
    """Play all, and draw the median and the quartiles of the best time so far."""
    size = QUICK if request.quick else WHOLE
    evaluations = request.evaluations or size.evaluations
    plugins = load_plugins()
    target = plugins.require(request.target)
    forge = Forge(plugins, target, Settings(threads=1, evaluations=evaluations))
    operators, lists = plugins.operators_for(target), target.capabilities.selections
    rows, panels = Rows(request.folder / "fig13.rows"), []
    with Records(request.folder / "records.sqlite") as records:
        for kernel in select(request.kernels or size.kernels, operators, target.dialect, lists):
            panels.append(_panel(request, forge, kernel, records.candidates, rows, size.seeds))
    data = {
        "target": target.name,
        "device": forge.device,
        "evaluations": evaluations,
        "seeds": size.seeds,
        "panels": panels,
    }
    inches = (5.5 * len(panels) + 0.5, 4.5)
    return written(request, "fig13", _text(data), data, _table(data), lambda f: _draw(f, data), inches)


def _panel(
    request: ExperimentRequest, forge: Forge, kernel: Kernel, store: CandidateStore, rows: Rows, seeds: int
) -> dict[str, Any]:
    """Player -> the best times of each of its seeds."""
    how = replace(conditions(forge, kernel), proposer=Proposer(search="fig13"))
    evaluator = Evaluator(how, store)
    conditions_only = {"conditions": forge.key(kernel).digest}
    initial = rows.get(conditions_only)
    if initial is None:
        [first] = evaluator.evaluate([Trace(kernel.program)])
        provenance = evaluator.champion.provenance if evaluator.champion else ""
        initial = {"initial_s": first.seconds, "provenance": provenance}
        rows.put(conditions_only, initial)
    runs: dict[str, list[list[float | None]]] = {name: [] for name in PLAYERS}
    for seed in range(seeds):
        for name in PLAYERS:
            key = {**conditions_only, "player": name, "seed": seed}
            best = rows.get(key)
            if best is None:
                task = replace(forge.task(kernel), seed=seed)
                found = best_so_far(forge.plugins.search_strategy(name), task, evaluator.evaluate)
                best = [None if seconds == float("inf") else seconds for seconds in found]
                rows.put(key, best)
            runs[name].append(best)
            last = f"{best[-1] * 1e6:.4g} us" if best and best[-1] else "nothing ran"
            request.progress(f"{kernel.name}, seed {seed}, {name}: {last}")
    return {"kernel": kernel.name, **initial, "best_s": runs}


# -- showing -----------------------------------------------------------------------------------------


def quartiles(runs: Sequence[Sequence[float | None]], count: int) -> np.ndarray[Any, Any]:
    """Three rows: lower quartile, median, upper quartile of the best after 1 .. ``count`` evaluations.

    A search that was finished early keeps its best. Infinity: nothing had run yet.
    """
    full = np.full((len(runs), count), np.inf)
    for row, best in zip(full, runs):
        times = [np.inf if seconds is None else seconds for seconds in best[:count]]
        row[: len(times)] = times
        if times:
            row[len(times) :] = times[-1]
    return np.quantile(full, (0.25, 0.5, 0.75), axis=0, method="nearest")


def _spread(data: Mapping[str, Any], panel: Mapping[str, Any], name: str) -> np.ndarray[Any, Any]:
    return quartiles(panel["best_s"][name], data["evaluations"])


def _table(data: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {"kernel": panel["kernel"], "player": name, "evaluations": k + 1}
        | dict(zip(("lower_quartile_s", "median_s", "upper_quartile_s"), map(float, spread[:, k])))
        for panel in data["panels"]
        for name in PLAYERS
        for spread in (_spread(data, panel, name),)
        for k in range(data["evaluations"])
    ]


def _text(data: Mapping[str, Any]) -> str:
    count = data["evaluations"]
    marks = sorted({max(1, count // 10), max(1, count // 3), count})
    lines = []
    for panel in data["panels"]:
        lines.append(f"{panel['kernel']}: median over {data['seeds']} seeds of the best time, in us, after")
        lines.append(f"{'evaluations':18}" + "".join(f"{mark:>12}" for mark in marks))
        for name in PLAYERS:
            middle = _spread(data, panel, name)[1]
            lines.append(f"{name:18}" + "".join(f"{middle[mark - 1] * 1e6:12.4g}" for mark in marks))
    provenance = ", ".join(sorted({panel["provenance"] for panel in data["panels"]}))
    lines.append(f"{data['target']}, one thread, {provenance}: {data['device']}")
    return "\n".join(lines)


def _draw(figure: Any, data: Mapping[str, Any]) -> None:
    panels = data["panels"]
    for axes, panel in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels):
        at = range(1, data["evaluations"] + 1)
        for name in PLAYERS:
            low, middle, high = _spread(data, panel, name) * 1e6
            [line] = axes.plot(at, middle, label=name)
            axes.fill_between(at, low, high, alpha=0.2, color=line.get_color(), linewidth=0)
        axes.set_yscale("log")
        axes.set_title(panel["kernel"], fontsize=10)
        axes.set_xlabel("evaluations")
        axes.set_ylabel(f"best time so far, us ({panel['provenance']})")
        axes.legend(fontsize=8)
        axes.grid(alpha=0.3, which="both")

"""The value of learning: the agent, and ablations of its parts, against searches without a language model.

All play the same kernels with the same number of evaluations; the target's expert is the reference. The
ablated parts are those of the paper (sections 3.2 and 3.3): the max-Bellman objective against the sum,
double Q-learning, duelling heads. Our own additions come last.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

from perfdojo_sdk.experiments import curves
from perfdojo_sdk.experiments.contest import Contest, Player, among, chosen, run_contest
from perfdojo_sdk.experiments.figures import written
from perfdojo_sdk.hookspecs.services import ExperimentRequest, ExperimentResult
from perfdojo_sdk.hookspecs.types import Target
from perfdojo_sdk.kernels.selection import Kernel, default_selection
from perfdojo_sdk.perfllm.settings import DQN, MAX_Q, AgentSettings
from perfdojo_sdk.perfllm.strategies import agent_options, require_learning
from perfdojo_sdk.plugins import Plugins, load_plugins
from perfdojo_sdk.search.strategies import HEURISTIC

#: Numbers of evaluations after which the best times are listed.
MARKS = (64, 200, 1000)
WHOLE_EVALUATIONS, WHOLE_SEEDS, WHOLE_KERNELS = 1000, 5, 4
QUICK_EVALUATIONS, QUICK_SEEDS, QUICK_KERNELS = 64, 2, 2

EXPERT = Player("expert", HEURISTIC, chance=False)


def learning(request: ExperimentRequest) -> ExperimentResult:
    """Play all, draw the learning curves, and list the best times beside the expert's."""
    trained = trained_options(request)
    players = among(all_players(trained), request.players)
    plugins = load_plugins()
    target = plugins.require(request.target)
    require_fitting(request.agent, plugins, target)
    count = request.evaluations or (QUICK_EVALUATIONS if request.quick else WHOLE_EVALUATIONS)
    seeds = QUICK_SEEDS if request.quick else WHOLE_SEEDS
    kernels = _kernels(request, plugins, target)
    contest = Contest("learning", (EXPERT, *players), count, seeds)
    data = run_contest(request, contest, plugins, target, kernels)
    names, marks = [player.title for player in players], marks_within(count)
    experts = {panel["kernel"]: expert_s(panel) for panel in data["panels"]}
    data |= {"expert_s": experts, "over_expert": over_expert(data, names, marks)}
    levels = {kernel: {EXPERT.title: seconds} for kernel, seconds in experts.items() if seconds}
    return written(
        request,
        "learning",
        as_text(data, names, marks),
        data,
        [row | {"expert_s": experts[row["kernel"]] or ""} for row in curves.table(data, names, marks)],
        lambda figure: curves.draw(figure, data, names, levels),
        curves.figure_size(data),
    )


def trained_options(request: ExperimentRequest) -> tuple[tuple[str, str], ...]:
    """The search options for the request's agent, empty without one. The file is checked first.

    :class:`UnavailableError` when a package for learning is not installed, :class:`LearnError` when the file
    holds no agent.
    """
    require_learning()
    if request.agent is None:
        return ()
    from perfdojo_sdk.perfllm import agent_files

    agent_files.read(request.agent)
    return agent_options(request.agent)


def require_fitting(agent: Path | None, plugins: Plugins, target: Target) -> None:
    """:class:`LearnError` when the agent, if there is one, learned with other versions of the plugins."""
    if agent is not None:
        from perfdojo_sdk.perfllm import agent_files

        agent_files.require_versions(agent, agent_files.read(agent)[0], plugins.fingerprints(target))


def all_players(trained: tuple[tuple[str, str], ...]) -> tuple[Player, ...]:
    """All players, including those that begin with a trained agent if its options are given."""
    players = [
        Player("random", "sampling-edges"),
        Player("annealing", "annealing-edges"),
        Player("evolution", "evolution"),
        Player("DQN", "perfllm", options_for(DQN)),
        Player("Max-Q", "perfllm", options_for(MAX_Q)),
        Player("Max-Q, not double", "perfllm", options_for(MAX_Q.model_copy(update={"double": False}))),
        Player("Max-Q, not duelling", "perfllm", options_for(MAX_Q.model_copy(update={"duelling": False}))),
        Player("PerfLLM", "perfllm"),
        Player("hybrid", "hybrid"),
    ]
    if trained:
        players.append(Player("PerfLLM, trained", "perfllm", trained))
        players.append(Player("hybrid, trained", "hybrid", trained))
    return tuple(players)


def options_for(settings: AgentSettings) -> tuple[tuple[str, str], ...]:
    """The search options for an agent with these settings: all that differ from the defaults."""
    usual = AgentSettings().model_dump()
    return tuple((name, str(value)) for name, value in settings.model_dump().items() if value != usual[name])


def marks_within(count: int, marks: Sequence[int] = MARKS) -> list[int]:
    """The marks that ``count`` evaluations reach, and their end."""
    return sorted({*(mark for mark in marks if mark < count), count})


def _kernels(request: ExperimentRequest, plugins: Plugins, target: Target) -> tuple[Kernel, ...]:
    """The request's kernels; else the last size of each of the first operators in the target's default
    list."""
    if request.kernels:
        return chosen(request.kernels, plugins, target)
    operators, lists = plugins.operators_for(target), target.capabilities.selections
    last = {kernel.operator: kernel for kernel in default_selection(operators, target.dialect, lists)}
    return tuple(last.values())[: QUICK_KERNELS if request.quick else WHOLE_KERNELS]


# -- what is shown ---------------------------------------------------------------------------------------


def expert_s(panel: Mapping[str, Any]) -> float | None:
    """The time of the expert's best game; None if the target has no expert, or none of its games ran."""
    best = [run for run in panel["best_s"][EXPERT.title] if run]
    return best[0][-1] if best else None


def over_expert(data: Mapping[str, Any], names: list[str], marks: list[int]) -> dict[str, Any]:
    """Player -> evaluations -> the best time over the expert's, and of how many kernels.

    The median over the seeds, then the geometric mean over the kernels that both have a time of.
    """
    found: dict[str, Any] = {}
    for name in names:
        for mark in marks:
            times = [(curves.spread(data, p, name)[1][mark - 1], expert_s(p)) for p in data["panels"]]
            ratios = [float(best / expert) for best, expert in times if expert and isfinite(best)]
            if ratios:
                mean = {"mean": geometric_mean(ratios), "kernels": len(ratios)}
                found.setdefault(name, {})[str(mark)] = mean
    return found


def as_text(data: Mapping[str, Any], names: list[str], marks: list[int]) -> str:
    shown = []
    for panel in data["panels"]:
        shown += curves.lines(data, panel, names, marks)
        expert = expert_s(panel)
        shown.append(f"expert: {expert * 1e6:.4g} us" if expert else "expert: none for this kernel")
    ratios, width = data["over_expert"], max(map(len, names)) + 2
    if ratios:
        counts = [mean["kernels"] for player in ratios.values() for mean in player.values()]
        shown.append(
            f"best time over the expert's, below 1 is faster: median over seeds, geometric mean over"
            f" {max(counts)} kernel{'s' * (max(counts) != 1)}, after"
        )
        shown.append(f"{'evaluations':{width}}" + "".join(f"{mark:>12}" for mark in marks))
        for name, means in ratios.items():
            cells = (_cell(means.get(str(mark)), max(counts)) for mark in marks)
            shown.append(f"{name:{width}}" + "".join(cells))
    shown.append(f"{'processor time':{width}}{'a run':>12}{'thinking':>12}")
    for name in names:
        spent = [[s for panel in data["panels"] for s in panel[of][name]] for of in ("cpu_s", "thinking_s")]
        cells = (f"{median(each):.3g} s" if each else "-" for each in spent)
        shown.append(f"{name:{width}}" + "".join(cell.rjust(12) for cell in cells))
    return "\n".join([*shown, curves.caption(data)])


def _cell(mean: Mapping[str, Any] | None, kernels: int) -> str:
    """A mean, with the number of kernels behind it if others have more."""
    if mean is None:
        return f"{'-':>12}"
    of = "" if mean["kernels"] == kernels else f" ({mean['kernels']})"
    return f"{mean['mean']:.3f}{of}".rjust(12)

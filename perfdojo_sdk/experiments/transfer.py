"""Transfer: the result of a trained agent on kernels it has not learned from, after few evaluations.

Its second evaluation, after that of the initial program, is a game played without any trial on the kernel.
Searches without an agent play for comparison. The target's expert and the initial program are the
references.
"""

from __future__ import annotations

from collections.abc import Sequence

from perfdojo_sdk.core.errors import DojoError
from perfdojo_sdk.experiments import curves, learning
from perfdojo_sdk.experiments.contest import Contest, Player, among, chosen, run_contest
from perfdojo_sdk.experiments.figures import written
from perfdojo_sdk.hookspecs.services import ExperimentRequest, ExperimentResult
from perfdojo_sdk.hookspecs.types import Target
from perfdojo_sdk.kernels.selection import Kernel, default_selection
from perfdojo_sdk.perfllm.strategies import shipped_agents, shipped_options
from perfdojo_sdk.plugins import Plugins, load_plugins

#: Numbers of evaluations after which the best times are listed.
MARKS = (2, 16, 64)
QUICK_EVALUATIONS, QUICK_SEEDS, QUICK_KERNELS = 16, 1, 2
WHOLE_SEEDS = 3


def transfer(request: ExperimentRequest) -> ExperimentResult:
    """Play all, draw the curves, and list the best times beside the expert's."""
    trained = learning.trained_options(request)
    plugins = load_plugins()
    target = plugins.require(request.target)
    from perfdojo_sdk.perfllm import agent_files

    files = [request.agent] if request.agent else [agent.file for agent in shipped_agents(target.name)]
    for file in files:
        learning.require_fitting(file, plugins, target)
    learned = tuple(kernel for file in files for kernel in agent_files.read(file)[0].card.kernels)
    players = among(all_players(trained or shipped_options(target.name)), request.players)
    count = request.evaluations or (QUICK_EVALUATIONS if request.quick else MARKS[-1])
    kernels = _kernels(request, plugins, target, learned)
    contest = Contest(
        "transfer", (learning.EXPERT, *players), count, QUICK_SEEDS if request.quick else WHOLE_SEEDS
    )
    data = run_contest(request, contest, plugins, target, kernels)
    names, marks = [player.title for player in players], learning.marks_within(count, MARKS)
    experts = {panel["kernel"]: learning.expert_s(panel) for panel in data["panels"]}
    data |= {"expert_s": experts, "over_expert": learning.over_expert(data, names, marks)}
    data["learned_from"] = list(learned)
    levels = {kernel: {learning.EXPERT.title: seconds} for kernel, seconds in experts.items() if seconds}
    return written(
        request,
        "transfer",
        learning.as_text(data, names, marks),
        data,
        [row | {"expert_s": experts[row["kernel"]] or ""} for row in curves.table(data, names, marks)],
        lambda figure: curves.draw(figure, data, names, levels),
        curves.figure_size(data),
    )


def all_players(trained: tuple[tuple[str, str], ...]) -> tuple[Player, ...]:
    """The players: those that begin with the initial program, with an agent, and with the passes' games."""
    return (
        Player("random", "sampling-edges"),
        Player("annealing", "annealing-edges"),
        Player("PerfLLM, untrained", "perfllm"),
        Player("PerfLLM, trained", "perfllm", trained),
        Player("evolution", "evolution"),
        Player("hybrid, untrained", "hybrid"),
        Player("hybrid, trained", "hybrid", trained),
    )


def _kernels(
    request: ExperimentRequest, plugins: Plugins, target: Target, learned: Sequence[str]
) -> tuple[Kernel, ...]:
    """The request's kernels; else those of the target's default list that the agent has not learned from."""
    if request.kernels:
        return chosen(request.kernels, plugins, target)
    lists = target.capabilities.selections
    every = default_selection(plugins.operators_for(target), target.dialect, lists)
    found = [kernel for kernel in every if f"{kernel.name} on {target.name}" not in learned]
    if not found:
        what = f"the agent has learned from each kernel of {target.name}'s default list"
        raise DojoError("PD-L308", what, hint="name others with --kernels")
    return tuple(found)[: QUICK_KERNELS if request.quick else None]

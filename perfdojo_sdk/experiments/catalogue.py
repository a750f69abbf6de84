"""The SDK's experiments for ``reproduce``. Their modules are imported when they are run."""

from __future__ import annotations

from perfdojo_sdk.hookspecs.services import Experiment, ExperimentRequest, ExperimentResult


def _frameworks(request: ExperimentRequest) -> ExperimentResult:
    from perfdojo_sdk.experiments.side_by_side import frameworks

    return frameworks(request)


def _shapes(request: ExperimentRequest) -> ExperimentResult:
    from perfdojo_sdk.experiments.side_by_side import shapes

    return shapes(request)


def _convergence(request: ExperimentRequest) -> ExperimentResult:
    from perfdojo_sdk.experiments.convergence import convergence

    return convergence(request)


def _learning(request: ExperimentRequest) -> ExperimentResult:
    from perfdojo_sdk.experiments.learning import learning

    return learning(request)


def _learned(request: ExperimentRequest) -> ExperimentResult:
    from perfdojo_sdk.experiments.side_by_side import learned

    return learned(request)


def _transfer(request: ExperimentRequest) -> ExperimentResult:
    from perfdojo_sdk.experiments.transfer import transfer

    return transfer(request)


EXPERIMENTS = (
    Experiment("fig11", "Our expert's and our search's kernels beside other systems, Table 3.", _frameworks),
    Experiment("fig12", "Kernels at shapes of real models, after a search, beside other systems.", _shapes),
    Experiment(
        "fig13",
        "Convergence of sampling and annealing, over edges and over whole sequences.",
        _convergence,
    ),
    Experiment("fig14", "What PerfLLM finds without any pass, beside PyTorch and TVM.", _learned),
    Experiment(
        "learning",
        "Learning curves: the agent, without each of its pieces, and searches that do not learn.",
        _learning,
    ),
    Experiment(
        "transfer",
        "A trained agent on kernels that it has not learned from, after 1, 16 and 64 evaluations.",
        _transfer,
    ),
)

"""The SDK's own plugin: its operators, searches and experiments, through the hooks that vendors use."""

from __future__ import annotations

from perfdojo_sdk.experiments.catalogue import EXPERIMENTS
from perfdojo_sdk.hookspecs import API_VERSION, hookimpl
from perfdojo_sdk.hookspecs.search import SearchStrategy
from perfdojo_sdk.hookspecs.services import Experiment
from perfdojo_sdk.hookspecs.types import Operator
from perfdojo_sdk.kernels.operators import OPERATORS
from perfdojo_sdk.perfllm.strategies import LEARNED
from perfdojo_sdk.search.strategies import STRATEGIES

PERFDOJO_API = API_VERSION


@hookimpl
def perfdojo_operators() -> tuple[Operator, ...]:
    return OPERATORS


@hookimpl
def perfdojo_search_strategies() -> tuple[SearchStrategy, ...]:
    return (*STRATEGIES, *LEARNED)


@hookimpl
def perfdojo_experiments() -> tuple[Experiment, ...]:
    return EXPERIMENTS

"""Calls of the compiled kernel in the numeric leg: started together, many in one child process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from math import prod
from typing import Any, ParamSpec, TypeVar

import numpy as np

from perfdojo_sdk.hookspecs.abilities import Forks, RunsSets, RunsTogether, ability
from perfdojo_sdk.hookspecs.types import Artifact, Failure, Measurement, Runner, RunRequest
from perfdojo_sdk.measure.kernel_calls import CARRIER
from perfdojo_sdk.measure.sets import run_as_sets

P = ParamSpec("P")
T = TypeVar("T")

#: Statement instances, and bytes of inputs and outputs, up to which plain calls share a child process.
_TOGETHER_INSTANCES, _TOGETHER_BYTES = 3 * 10**8, 1 << 26

#: A request that was started: what will hold its answer, and where in it.
Run = tuple[Future[Any], int]


class AtOnce(Executor):
    """An executor that runs each task at once, in the calling thread."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future: Future[T] = Future()
        future.set_result(fn(*args, **kwargs))
        return future


def executor(runner: Runner, workers: int, forks: bool = False) -> Executor:
    """Runs tasks beside the caller. Where kernels run in ``forks`` of this process it runs them at once: the
    orphans of a fork can be told from other children only if nothing else starts one."""
    forking = ability(runner, Forks)
    alone = forks or (forking is not None and forking.forks)
    return AtOnce() if alone else ThreadPoolExecutor(workers)


def start_runs(
    runner: Runner,
    artifact: Artifact,
    requests: Sequence[tuple[int, RunRequest]],
    pool: Executor,
    forks: bool,
    instances: int,
) -> list[Run]:
    """Start each request, which is for the given number of sets of inputs, of a program with so many
    statement instances."""
    several = ability(runner, RunsSets)
    together = ability(runner, RunsTogether) if forks else None
    if together:
        batches = [[k for k, (sets, _) in enumerate(requests) if sets == 1]]
        batches += [[k] for k, (sets, _) in enumerate(requests) if sets > 1]
    else:
        batches = _batches(artifact, requests, instances) if several else [[k] for k in range(len(requests))]
    runs: dict[int, Run] = {}
    for batch in filter(None, batches):
        sets, request = requests[batch[0]]
        if several and sets > 1:
            made = pool.submit(lambda *of: [several.run_sets(*of)], artifact, request, sets)
        elif together:
            made = pool.submit(
                lambda *of: [*together.run_together(*of)], artifact, [requests[k][1] for k in batch]
            )
        elif several and len(batch) > 1:
            made = pool.submit(_in_one_child, runner, several, artifact, [requests[k][1] for k in batch])
        else:
            made = pool.submit(lambda *of: [runner.run(*of)], artifact, request)
        runs |= {k: (made, place) for place, k in enumerate(batch)}
    return [runs[k] for k in range(len(requests))]


def _batches(
    artifact: Artifact, requests: Sequence[tuple[int, RunRequest]], instances: int
) -> list[list[int]]:
    """Numbers of the requests that one child can answer: plain ones with equal numbers of threads, as many as
    do not take long."""
    most = _TOGETHER_INSTANCES // max(2 * instances, 1)
    results = sum(np.dtype(CARRIER[spec.dtype]).itemsize * prod(spec.shape) for spec in artifact.outputs)
    found: list[list[int]] = []
    open_: dict[int, list[int]] = {}
    for k, (sets, request) in enumerate(requests):
        assert request.inputs is not None
        size = 2 * (results + sum(array.nbytes for array in request.inputs.values()))
        plain = sets == 1 and not request.executions
        batch = open_.get(request.threads) if plain else None
        if batch is None or len(batch) >= min(most, _TOGETHER_BYTES // max(size, 1)):
            batch = []
            found.append(batch)
            if plain:
                open_[request.threads] = batch
        batch.append(k)
    return found


def _in_one_child(
    runner: Runner, several: RunsSets, artifact: Artifact, requests: Sequence[RunRequest]
) -> list[Measurement | Failure]:
    """Answer plain requests as ``run`` does, in one child process.

    Each set of inputs is given twice: two calls, which find other bits in outputs, workspace and around them,
    must give the same. What fails or differs is run alone, to tell what is wrong.
    """
    found = run_as_sets(several, artifact, requests, times=2)
    if found is None:
        return [runner.run(artifact, request) for request in requests]
    results: list[Measurement | Failure] = []
    for request, first, second in zip(requests, found[::2], found[1::2], strict=True):
        one, other = first.outputs or {}, second.outputs or {}
        changing = [name for name in one if one[name].tobytes() != other[name].tobytes()]
        result: Measurement | Failure = first
        if changing:
            alone = runner.run(artifact, request)
            seen = Failure("wrong_result", f"the results in {changing[0]} change from call to call")
            result = alone if isinstance(alone, Failure) else seen
        results.append(result)
    return results

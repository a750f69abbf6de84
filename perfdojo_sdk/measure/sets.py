"""Several plain requests as one run over sets of inputs, in one child process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from perfdojo_sdk.hookspecs.abilities import RunsSets
from perfdojo_sdk.hookspecs.types import Artifact, Failure, Measurement, RunRequest


def run_as_sets(
    runner: RunsSets, artifact: Artifact, requests: Sequence[RunRequest], times: int = 1
) -> list[Measurement] | None:
    """One result for each call, ``times`` of them in a row for each request; None if anything fails.

    The requests have inputs of equal shapes and one number of threads.
    """
    given = [request.inputs or {} for request in requests]
    inputs = {name: np.repeat(np.stack([one[name] for one in given]), times, axis=0) for name in given[0]}
    found = runner.run_sets(artifact, replace(requests[0], inputs=inputs), times * len(requests))
    if isinstance(found, Failure) or found.outputs is None:
        return None
    outputs = found.outputs
    return [
        replace(found, outputs={name: array[k] for name, array in outputs.items()})
        for k in range(times * len(requests))
    ]

"""The host's side of a run on the GPU: a child process with a time limit, whose answer is checked.

Job and answer are files: arrays of a gigabyte would take long through a pipe.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np

from perfdojo_sdk.hookspecs.types import (
    ArraySpec,
    Artifact,
    Failure,
    FailureReason,
    Measurement,
    RunRequest,
)
from perfdojo_sdk.measure.guarded_files import private_folder
from perfdojo_sdk.measure.kernel_calls import CARRIER
from perfdojo_sdk.measure.tools import run_tool, signal_name

#: Most characters kept from the end of a child's output.
_MOST_SAID = 2000


def run_on_gpu(
    artifact: Artifact, request: RunRequest, device: str, cache_bytes: int, worker: Sequence[str]
) -> Measurement | Failure:
    """``worker``: the command of a child that calls :func:`perfdojo_sdk.measure.gpu_worker.serve`; the files
    of job and answer are its last arguments.

    Send the job, wait, and make a measurement of the answer; a hang or a crash is a failure."""
    with private_folder("gpu") as folder:
        job, answer = Path(folder, "job.npz"), Path(folder, "answer.npz")
        _write_job(job, artifact, request, cache_bytes)
        try:
            ended = run_tool([*worker, str(job), str(answer)], None, request.timeout_s)
        except OSError as error:
            return Failure("device", f"{worker[0]}: {error}")
        if ended is None:
            return Failure("timeout", f"no result after {request.timeout_s:g} s")
        said = ended.said.strip()[-_MOST_SAID:]
        if ended.status < 0:
            return Failure("crash", f"killed by {signal_name(-ended.status)} {said}")
        if ended.status:
            what = f"the process beside the GPU ended with status {ended.status}: {said}"
            return Failure("runtime", what)
        try:
            return _measurement(artifact, request, device, answer)
        except Exception as error:  # a broken child may have written anything
            return Failure("runtime", f"the answer makes no sense: {type(error).__name__} {error}")


def _write_job(file: Path, artifact: Artifact, request: RunRequest, cache_bytes: int) -> None:
    def interface(specs: Sequence[ArraySpec]) -> list[list[Any]]:
        return [[spec.name, list(spec.shape), spec.dtype] for spec in specs]

    about = {
        "inputs": interface(artifact.inputs),
        "outputs": interface(artifact.outputs),
        "seed": request.seed,
        "memory_bytes": request.memory_bytes,
        "timing": {
            "repeats": request.repeats,
            "budget_s": request.budget_s,
            "precision": request.precision,
            "stop_above_s": request.stop_above_s,
            "cold": request.cold is not False,
            "cache_bytes": cache_bytes,
        },
    }
    arrays: dict[str, Any] = {f"in_{name}": array for name, array in (request.inputs or {}).items()}
    bundle = np.frombuffer(artifact.content, np.uint8)
    np.savez(file, about=np.array(json.dumps(about)), bundle=bundle, **arrays)


def _measurement(artifact: Artifact, request: RunRequest, device: str, answer: Path) -> Measurement | Failure:
    with np.load(answer, allow_pickle=False) as result:
        if "failure" in result:
            reason, detail = result["failure"].tolist()
            if reason not in get_args(FailureReason):
                raise ValueError(f"there is no reason {reason!r}")
            return Failure(reason, str(detail)[:_MOST_SAID])
        outputs = {spec.name: result[f"out_{spec.name}"] for spec in artifact.outputs}
        seconds = tuple(map(float, result["seconds"]))
        graph = float(result["graph"])
    if not all(0 < time <= request.timeout_s for time in seconds):
        raise ValueError("a call took a time that cannot be")
    for spec in artifact.outputs:
        found = outputs[spec.name]
        if found.shape != spec.shape or found.dtype != CARRIER[spec.dtype]:
            raise ValueError(f"output {spec.name} has another shape or dtype")
    return Measurement(
        outputs if request.want_outputs else None,
        seconds,
        "measured",
        device,
        request.threads,
        cold=request.cold is not False and bool(seconds),
        details={"gpu.graph": graph},
    )

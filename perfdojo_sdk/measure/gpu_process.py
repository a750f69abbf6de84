"""The host's side of a run on the GPU: a child process with a time limit, believed only where it adds up."""

from __future__ import annotations

import io
import json
import signal
import subprocess
from collections.abc import Sequence
from typing import Any

import numpy as np

from perfdojo_sdk.hookspecs.types import ArraySpec, Artifact, Failure, Measurement, RunRequest
from perfdojo_sdk.measure.worker import CARRIER


def run_on_gpu(
    artifact: Artifact, request: RunRequest, device: str, cache_bytes: int, worker: Sequence[str]
) -> Measurement | Failure:
    """``worker``: the command of a child that calls :func:`perfdojo_sdk.measure.gpu_worker.serve`.

    Send the job, wait, and make a measurement of the answer; a hang or a crash is a failure."""
    try:
        ended = subprocess.run(
            worker,
            input=_job(artifact, request, cache_bytes),
            capture_output=True,
            timeout=request.timeout_s,
            start_new_session=True,
        )
    except subprocess.TimeoutExpired:
        return Failure("timeout", f"no result after {request.timeout_s:g} s")
    except OSError as error:
        return Failure("device", f"{worker[0]}: {error}")
    said = ended.stderr.decode("utf-8", "replace").strip()[-500:]
    if ended.returncode < 0:
        return Failure("crash", f"killed by {signal.Signals(-ended.returncode).name} {said}")
    if ended.returncode:
        return Failure("runtime", f"the process beside the GPU ended with status {ended.returncode}: {said}")
    try:
        return _measurement(artifact, request, device, ended.stdout)
    except Exception as error:  # whatever a broken child has written
        return Failure("runtime", f"the answer makes no sense: {type(error).__name__} {error}")


def _job(artifact: Artifact, request: RunRequest, cache_bytes: int) -> bytes:
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
    arrays = {f"in_{name}": array for name, array in (request.inputs or {}).items()}
    packed = io.BytesIO()
    bundle = np.frombuffer(artifact.content, np.uint8)
    np.savez(packed, about=np.array(json.dumps(about)), bundle=bundle, **arrays)
    return packed.getvalue()


def _measurement(
    artifact: Artifact, request: RunRequest, device: str, answer: bytes
) -> Measurement | Failure:
    with np.load(io.BytesIO(answer), allow_pickle=False) as result:
        if "failure" in result:
            reason, detail = result["failure"].tolist()
            return Failure(reason, detail)
        outputs = {spec.name: result[f"out_{spec.name}"] for spec in artifact.outputs}
        seconds = tuple(map(float, result["seconds"]))
        graph = float(result["graph"])
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

"""The child process beside the GPU: a job on stdin, what became of it on stdout, both as one ``.npz``."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Callable

import numpy as np

from perfdojo_sdk.codegen.gpu.figures import launches_in
from perfdojo_sdk.measure.bundle import unpack
from perfdojo_sdk.measure.gpu_session import Gpu, Work, measure
from perfdojo_sdk.measure.worker import Refused


def serve(gpu: Callable[[], Gpu], image: str) -> None:
    """Do the one job on stdin. ``gpu`` raises OSError where there is none; ``image``: its code's file in a
    bundle."""
    answer = os.dup(1)
    os.dup2(2, 1)  # whatever a library prints is no answer
    try:
        with np.load(io.BytesIO(sys.stdin.buffer.read()), allow_pickle=False) as job:
            about = json.loads(str(job["about"]))
            files = unpack(job["bundle"].tobytes())
            given = {name[3:]: job[name] for name in job.files if name.startswith("in_")}
        timing = about.pop("timing")
        space = int(json.loads(files["workspace.json"]))
        if space > about["memory_bytes"]:
            raise Refused("memory", f"the kernel wants {space} bytes of workspace")
        work = Work(about, given, files[image], tuple(launches_in(files)), space, **timing)
        result = measure(gpu(), work)
        arrays = {f"out_{name}": array for name, array in result.outputs.items()}
        arrays |= {"seconds": np.array(result.seconds), "graph": np.array(result.graph)}
    except Refused as refused:
        arrays = {"failure": np.array([refused.reason, refused.detail])}
    except OSError as error:
        arrays = {"failure": np.array(["device", str(error)])}
    packed = io.BytesIO()
    np.savez(packed, **arrays)
    with os.fdopen(answer, "wb") as out:
        out.write(packed.getvalue())

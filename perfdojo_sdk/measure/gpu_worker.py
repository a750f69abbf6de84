"""The child process that uses the GPU: it reads a job from a file and writes the result to another."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from perfdojo_sdk.codegen.gpu.bundle import unpack
from perfdojo_sdk.codegen.gpu.figures import launches_in
from perfdojo_sdk.measure.gpu_session import Gpu, Work, measure
from perfdojo_sdk.measure.kernel_calls import Refused


def serve(gpu: Callable[[], Gpu], image: str) -> None:
    """Do the job in the file of the first argument, and write the answer to the file of the second.

    Both are ``.npz``. ``gpu`` raises OSError where there is none; ``image``: its code's file in a bundle.
    """
    _, question, answer = sys.argv
    try:
        with np.load(question, allow_pickle=False) as job:
            about = json.loads(str(job["about"]))
            files = unpack(job["bundle"].tobytes())
            given = {name[3:]: job[name] for name in job.files if name.startswith("in_")}
        timing = about.pop("timing")
        space = int(json.loads(files["workspace.json"]))
        if space > about["memory_bytes"]:
            raise Refused("memory", f"the kernel wants {space} bytes of workspace")
        work = Work(about, given, files[image], tuple(launches_in(files)), space, **timing)
        result = measure(gpu(), work)
        arrays: dict[str, Any] = {f"out_{name}": array for name, array in result.outputs.items()}
        arrays |= {"seconds": np.array(result.seconds), "graph": np.array(result.graph)}
    except Refused as refused:
        arrays = {"failure": np.array([refused.reason, refused.detail])}
    except OSError as error:
        arrays = {"failure": np.array(["device", str(error)])}
    np.savez(answer, **arrays)

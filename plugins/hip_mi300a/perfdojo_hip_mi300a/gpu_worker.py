"""The child process beside the GPU: a job on stdin, what became of it on stdout."""

from __future__ import annotations

from perfdojo_hip_mi300a.driver import HipGpu, driver
from perfdojo_sdk.measure.gpu_worker import serve

if __name__ == "__main__":
    serve(lambda: HipGpu(driver()), "kernel.hsaco")

"""The child process that uses the GPU: it reads a job from a file and writes the result to another."""

from __future__ import annotations

from perfdojo_hip_mi300a.driver import HipGpu, driver
from perfdojo_sdk.measure.gpu_worker import serve

if __name__ == "__main__":
    serve(lambda: HipGpu(driver()), "kernel.hsaco")

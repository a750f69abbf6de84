"""The child process that uses the GPU: it reads a job from a file and writes the result to another."""

from __future__ import annotations

from perfdojo_cuda_gh200.driver import CudaGpu, driver
from perfdojo_sdk.measure.gpu_worker import serve

if __name__ == "__main__":
    serve(lambda: CudaGpu(driver()), "kernel.cubin")

"""The doctor's probes: a C++ compiler, which is required, and the parts that the GPU itself needs."""

from __future__ import annotations

from perfdojo_cuda_gh200.compile import nvcc_version, nvrtc
from perfdojo_sdk.hookspecs.services import Probe
from perfdojo_sdk.measure.emulated_runner import probe_emulation


def probes() -> list[Probe]:
    return [probe_emulation(), _gpu_compiler(), _gpu()]


def _gpu_compiler() -> Probe:
    module = nvrtc()
    found = f"NVRTC {'.'.join(map(str, module.nvrtcVersion()[1:]))}" if module else nvcc_version()
    return Probe(
        "compiler for the GPU",
        found,
        "neither NVRTC nor nvcc is there: libraries hold sources and no machine code",
        "pip install 'perfdojo-cuda-gh200[nvrtc]', or install the CUDA toolkit (12 or later) for its nvcc",
        required=False,
    )


def _gpu() -> Probe:
    from perfdojo_cuda_gh200.driver import gpu_name
    from perfdojo_sdk.measure.gpu_session import probe_gpu

    remedy = "run on a machine with a GPU of compute capability 9.0 and its driver (and the extra [nvrtc])"
    return probe_gpu(gpu_name, remedy)

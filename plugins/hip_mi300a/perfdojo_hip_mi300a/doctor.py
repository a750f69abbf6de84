"""The doctor's probes: a C++ compiler, which is required, and the parts that the GPU itself needs."""

from __future__ import annotations

from perfdojo_hip_mi300a.compile import compiler, hipcc
from perfdojo_sdk.hookspecs.services import Probe
from perfdojo_sdk.measure.emulated_runner import probe_emulation


def probes() -> list[Probe]:
    return [probe_emulation(), _code_objects(), _gpu()]


def _code_objects() -> Probe:
    return Probe(
        "compiler for the GPU",
        ", ".join(filter(None, (compiler(), hipcc()))),
        "neither the ziglang wheel nor hipcc of ROCm 6 or later: libraries hold sources and no code objects",
        "pip install 'perfdojo-hip-mi300a[zig]', or install ROCm",
        required=False,
    )


def _gpu() -> Probe:
    from perfdojo_hip_mi300a.driver import driver, gpu_name
    from perfdojo_sdk.measure.gpu_session import probe_gpu

    machine = "a machine with an AMD MI300A (or MI300X) and ROCm 6 or later"
    return probe_gpu(lambda: gpu_name(driver()), f"run on {machine}, as a user of the group render")

"""Compilation by NVRTC, through a stand-in, as on a machine with a driver."""

from __future__ import annotations

from enum import Enum
from typing import Any

import pytest
from cuda_support import emitted
from perfdojo_cuda_gh200 import compile as compiling

from perfdojo_sdk.measure.gpu_runner import DeviceCode

TEXT = "kernel k(x) -> y\nx f32 [64] heap\ny f32 [64] heap\n\n2:g 32:b y[{0}*32+{1}] = x[{0}*32+{1}] * 2\n"
LOG = b"Compiling entry function 'pd_k0' for 'sm_90'\nUsed 10 registers\n\0"


class Status(Enum):
    NVRTC_SUCCESS = 0


OK = Status.NVRTC_SUCCESS


class Nvrtc:
    """A compiler that keeps what it has made, and of that tells the machine code only."""

    nvrtcResult = Status

    def __init__(self, version: tuple[int, int]) -> None:
        self.version, self.made, self.log = version, set[bytes](), LOG

    def nvrtcVersion(self) -> Any:
        return OK, *self.version

    def nvrtcCreateProgram(self, code: bytes, name: bytes, count: int, texts: Any, names: Any) -> Any:
        assert count == len(texts) == len(names)
        return OK, code

    def nvrtcDestroyProgram(self, program: bytes) -> Any:
        return (OK,)

    def nvrtcCompileProgram(self, program: bytes, count: int, options: list[bytes]) -> Any:
        assert count == len(options) and (self.version >= (12, 8) or b"--no-cache" not in options)
        known = program in self.made and b"--no-cache" not in options
        self.made.add(program)
        self.log = b"\0" if known else LOG
        return (OK,)

    def _give(self, buffer: Any, content: bytes) -> Any:
        assert isinstance(buffer, bytearray), "the binding writes into the very object that it is given"
        buffer[:] = content
        return (OK,)

    def nvrtcGetProgramLogSize(self, program: bytes) -> Any:
        return OK, len(self.log)

    def nvrtcGetProgramLog(self, program: bytes, buffer: Any) -> Any:
        return self._give(buffer, self.log)

    def nvrtcGetCUBINSize(self, program: bytes) -> Any:
        return OK, 5

    def nvrtcGetCUBIN(self, program: bytes, buffer: Any) -> Any:
        return self._give(buffer, b"cubin")

    def nvrtcGetPTXSize(self, program: bytes) -> Any:
        return OK, 4

    def nvrtcGetPTX(self, program: bytes, buffer: Any) -> Any:
        return self._give(buffer, b"ptx\0")


@pytest.mark.parametrize(("version", "registers"), [((13, 0), [10, 10]), ((12, 4), [10, None])])
def test_a_source_that_is_compiled_again_keeps_its_figures(
    version: tuple[int, int], registers: list[int | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An empty log, which is one byte long, must not be written into an object that others have too."""
    nvrtc = Nvrtc(version)
    monkeypatch.setattr(compiling, "nvrtc", lambda: nvrtc)
    for expected in registers:
        made = compiling.compile_for_gpu(emitted(TEXT), "sm_90")
        assert isinstance(made, DeviceCode), made
        assert made.files == {"kernel.cubin": b"cubin", "kernel.ptx": b"ptx"}
        assert [r.figures["registers"] for r in made.resources] == ([expected] if expected else [])
    assert bytes([32]) == b" "

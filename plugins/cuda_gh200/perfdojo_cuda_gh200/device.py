"""One kernel on the GPU: called twice and compared, then timed. Believes nothing that a kernel does.

Arrays stand between guard zones; outputs and workspace are poisoned before each call, with other bits in the
second, so that a cell that nobody wrote differs between calls that must agree; inputs are compared
afterwards. Calls are timed by events around them, each after the second cache was overwritten; a short call
goes as a graph, so that what is timed is the GPU and not the host that feeds it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from perfdojo_cuda_gh200.driver import value
from perfdojo_sdk.codegen.gpu.figures import LaunchFigures, calls
from perfdojo_sdk.measure.worker import Guarded, Memory, Refused, compare, fill, outputs_of, spread_of_median

GUARD_BYTES = 4096
_GUARD = 0xA5
#: Calls shorter than this are launched as a graph.
SHORT_S = 50e-6
#: Calls before timing starts.
WARM_UP = 3
#: Of the buffer that is overwritten between timed calls, in sizes of the second cache.
FLUSH = 2


@dataclass(frozen=True)
class Work:
    """What to run, and how to time it."""

    about: dict[str, Any]
    """Interface and seed, as :class:`perfdojo_sdk.measure.worker.Memory` takes them."""
    given: dict[str, np.ndarray[Any, Any]]
    cubin: bytes
    launches: tuple[LaunchFigures, ...]
    workspace_bytes: int
    repeats: int = 0
    budget_s: float = 1.0
    precision: float = 0.0
    stop_above_s: float | None = None
    cold: bool = True
    cache_bytes: int = 50 << 20


@dataclass(frozen=True)
class Result:
    """Outputs, and seconds of the timed calls."""

    outputs: dict[str, np.ndarray[Any, Any]]
    seconds: tuple[float, ...]
    graph: bool


class Placed:
    """An array on the GPU between guard zones, and its image on the host."""

    def __init__(self, cuda: Any, host: Guarded) -> None:
        self.cuda, self.host = cuda, host
        self.size = host.bytes.size
        self.start = int(value(cuda, cuda.cuMemAlloc(self.size + 2 * GUARD_BYTES)))
        self.address = self.start + GUARD_BYTES

    def put(self) -> None:
        """The host's image, and fresh guard zones."""
        cuda = self.cuda
        for zone in (self.start, self.address + self.size):
            _done(cuda, cuda.cuMemsetD8(zone, _GUARD, GUARD_BYTES))
        if self.size:
            _done(cuda, cuda.cuMemcpyHtoD(self.address, self.host.bytes.ctypes.data, self.size))

    def get(self) -> None:
        """Back to the host; :class:`Refused` where memory around the array was touched."""
        cuda = self.cuda
        if self.size:
            _done(cuda, cuda.cuMemcpyDtoH(self.host.bytes.ctypes.data, self.address, self.size))
        zone = np.empty(GUARD_BYTES, np.uint8)
        for start, side in ((self.start, "before"), (self.address + self.size, "after")):
            _done(cuda, cuda.cuMemcpyDtoH(zone.ctypes.data, start, GUARD_BYTES))
            if (zone != _GUARD).any():
                raise Refused("wrong_result", f"the kernel wrote memory {side} {self.host.name}")

    def free(self) -> None:
        _done(self.cuda, self.cuda.cuMemFree(self.start))


def measure(cuda: Any, work: Work) -> Result:
    """Run ``work`` on the first GPU; :class:`Refused` with a reason of the closed set."""
    try:
        return _Session(cuda, work).run()
    except OSError as error:
        raise Refused("device", str(error)) from None


def _done(cuda: Any, answer: Any) -> None:
    value(cuda, answer)


class _Session:
    """One kernel's arrays, functions and stream on the device."""

    def __init__(self, cuda: Any, work: Work) -> None:
        self.cuda, self.work = cuda, work
        device = value(cuda, cuda.cuDeviceGet(0))
        _done(cuda, cuda.cuCtxSetCurrent(value(cuda, cuda.cuDevicePrimaryCtxRetain(device))))
        self.module = value(cuda, cuda.cuModuleLoadData(work.cubin))
        self.stream = value(cuda, cuda.cuStreamCreate(0))
        self.memory = Memory(work.about)
        self.workspace = Guarded("the workspace", (work.workspace_bytes,), "u8")
        hosts = (*self.memory.inputs, *self.memory.outputs, self.workspace)
        self.placed = {host.name: Placed(cuda, host) for host in hosts}
        self.sequence = [self._prepared(launch, values) for launch, values in calls(work.launches)]

    def _prepared(self, launch: LaunchFigures, values: Sequence[int]) -> tuple[Any, LaunchFigures, Any]:
        function = value(self.cuda, self.cuda.cuModuleGetFunction(self.module, launch.kernel.encode()))
        base = self.placed["the workspace"].address
        addresses = [
            base + int(name[1:]) if name.startswith("@") else self.placed[name].address
            for name in launch.arrays
        ]
        whole = ctypes.c_int64 if launch.index_bytes == 8 else ctypes.c_int32
        kinds = (*[ctypes.c_void_p] * len(addresses), *[whole] * len(values))
        return function, launch, ((*addresses, *values), kinds)

    def run(self) -> Result:
        self._set_inputs()
        self._checked_call(0)
        first = outputs_of(self.memory)
        outputs = {output.name: output.array.copy() for output in self.memory.outputs}
        self._checked_call(1)
        compare(self.memory, first, "change from call to call")
        seconds, graph = self._timed() if self.work.repeats else ((), False)
        for placed in self.placed.values():
            placed.free()
        return Result(outputs, seconds, graph)

    def _set_inputs(self) -> None:
        rng = np.random.default_rng([self.work.about["seed"], 0])
        for target in self.memory.inputs:
            if self.work.given:
                target.array[...] = self.work.given[target.name]
            else:
                fill(target, rng)
            target.seal()

    def _checked_call(self, variant: int) -> None:
        for output in (*self.memory.outputs, self.workspace):
            output.poison(variant)
        for placed in self.placed.values():
            placed.put()
        self._launch()
        self._wait()
        for placed in self.placed.values():
            placed.get()
        for target in self.memory.inputs:
            target.check_seal()

    def _launch(self) -> None:
        for function, launch, arguments in self.sequence:
            _done(
                self.cuda,
                self.cuda.cuLaunchKernel(
                    function, launch.blocks, 1, 1, launch.threads, 1, 1, 0, self.stream, arguments, 0
                ),
            )

    def _wait(self) -> None:
        """The end of all that was launched; a kernel that faults is noticed here."""
        try:
            _done(self.cuda, self.cuda.cuStreamSynchronize(self.stream))
        except OSError as error:
            raise Refused("crash", f"the kernel failed on the GPU: {error}") from None

    # -- time ----------------------------------------------------------------------------------------

    def _timed(self) -> tuple[tuple[float, ...], bool]:
        cuda, work = self.cuda, self.work
        start, end = (value(cuda, cuda.cuEventCreate(0)) for _ in range(2))
        flush_bytes = FLUSH * work.cache_bytes
        flush = int(value(cuda, cuda.cuMemAlloc(flush_bytes))) if work.cold else 0

        def once(call: Any) -> float:
            if flush:
                _done(cuda, cuda.cuMemsetD8Async(flush, 0, flush_bytes, self.stream))
            _done(cuda, cuda.cuEventRecord(start, self.stream))
            call()
            _done(cuda, cuda.cuEventRecord(end, self.stream))
            self._wait()
            return float(value(cuda, cuda.cuEventElapsedTime(start, end))) * 1e-3

        look = min(once(self._launch) for _ in range(WARM_UP))
        graph = self._graph() if look < SHORT_S else None
        call = self._launch if graph is None else lambda: _done(cuda, cuda.cuGraphLaunch(graph, self.stream))
        if graph is not None:
            once(call)
        seconds: list[float] = []
        while len(seconds) < work.repeats and sum(seconds) < work.budget_s:
            seconds.append(once(call))
            if work.stop_above_s is not None and seconds[-1] > work.stop_above_s:
                break
            if work.precision and spread_of_median(seconds) <= work.precision:
                break
        if flush:
            _done(cuda, cuda.cuMemFree(flush))
        return tuple(seconds), graph is not None

    def _graph(self) -> Any:
        """One call as a graph."""
        cuda = self.cuda
        mode = cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
        _done(cuda, cuda.cuStreamBeginCapture(self.stream, mode))
        self._launch()
        captured = value(cuda, cuda.cuStreamEndCapture(self.stream))
        return value(cuda, cuda.cuGraphInstantiate(captured, 0))

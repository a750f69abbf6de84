"""One kernel on the GPU: called twice and compared, then timed. All that a kernel does is checked.

Arrays stand between guard zones; outputs and workspace are poisoned before each call, with other bits in the
second, so that an unwritten cell differs between calls that must agree; inputs are compared afterwards. Calls
are timed by events around them, each after the second-level cache was overwritten; a short call is launched
as a graph, so that the GPU is timed and not the host. A target brings its driver's calls as a :class:`Gpu`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np

from perfdojo_sdk.codegen.gpu.figures import LaunchFigures, calls
from perfdojo_sdk.hookspecs.services import Probe
from perfdojo_sdk.measure.kernel_calls import Guarded, Memory, Refused, compare, fill, outputs_of
from perfdojo_sdk.measure.worker import spread_of_median

GUARD_BYTES = 4096
_GUARD = 0xA5
#: Calls shorter than this are launched as a graph.
SHORT_S = 50e-6
#: Calls before timing starts.
WARM_UP = 3
#: Size of the buffer that is overwritten between timed calls, in sizes of the second-level cache.
FLUSH = 2


#: Addresses, then whole numbers.
Arguments: TypeAlias = tuple[Sequence[int], Sequence[int]]
#: One launch of a kernel: its sizes, and what its arguments are.
Launch: TypeAlias = LaunchFigures


def probe_gpu(name: Callable[[], str], remedy: str) -> Probe:
    """The doctor's probe of this machine's GPU; if there is none, ``name`` raises OSError with the reason."""
    try:
        found, why = name(), ""
    except OSError as error:
        found, why = "", str(error)
    why = f"{why}: kernels run in emulation, and their times are estimates"
    return Probe("GPU", found, why, remedy, required=False)


class Gpu(Protocol):
    """The first GPU of this machine, by its driver. Addresses are numbers; every method raises OSError with
    the driver's own word when a call fails."""

    def load(self, image: bytes) -> Any:
        """A module of machine code; the first call of all."""
        ...

    def function(self, module: Any, name: str, dynamic_bytes: int = 0) -> Any:
        """A kernel whose launches ask for so much shared memory."""
        ...

    def stream(self) -> Any: ...

    def allocate(self, size: int) -> int: ...

    def free(self, address: int) -> None: ...

    def fill(self, address: int, content: int, size: int) -> None:
        """Set so many bytes to ``content``, at once."""
        ...

    def fill_in(self, stream: Any, address: int, content: int, size: int) -> None:
        """The same, in order with what else is in the stream."""
        ...

    def copy_in(self, stream: Any, to: int, origin: int, size: int) -> None:
        """Copy so many bytes on the GPU, in order with what else is in the stream."""
        ...

    def put(self, address: int, host: int, size: int) -> None:
        """Bytes from the host's address."""
        ...

    def get(self, host: int, address: int, size: int) -> None: ...

    def launch(self, function: Any, launch: Launch, stream: Any, call: Arguments) -> None:
        """``launch`` gives the sizes, and the bytes of each whole number among the arguments."""
        ...

    def wait(self, stream: Any) -> None:
        """Wait until the stream is empty; OSError if a kernel faulted."""
        ...

    def event(self) -> Any: ...

    def record(self, event: Any, stream: Any) -> None: ...

    def seconds_between(self, start: Any, end: Any) -> float: ...

    def capture(self, stream: Any, work: Callable[[], None]) -> Any:
        """Capture the operations that ``work`` puts into the stream as a graph, without running them."""
        ...

    def replay(self, graph: Any, stream: Any) -> None: ...


@dataclass(frozen=True)
class Work:
    """A job: the kernel to run, and the parameters of timing."""

    about: dict[str, Any]
    """Interface and seed, as :class:`perfdojo_sdk.measure.kernel_calls.Memory` takes them."""
    given: dict[str, np.ndarray[Any, Any]]
    image: bytes
    """Machine code, as the driver loads it."""
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

    def __init__(self, gpu: Gpu, host: Guarded) -> None:
        self.gpu, self.host = gpu, host
        self.size = host.bytes.size
        self.start = gpu.allocate(self.size + 2 * GUARD_BYTES)
        self.address = self.start + GUARD_BYTES

    def put(self) -> None:
        """Copy the host's image to the GPU, with fresh guard zones."""
        for zone in (self.start, self.address + self.size):
            self.gpu.fill(zone, _GUARD, GUARD_BYTES)
        if self.size:
            self.gpu.put(self.address, self.host.bytes.ctypes.data, self.size)

    def get(self) -> None:
        """Copy it back to the host; :class:`Refused` where memory around the array was touched."""
        if self.size:
            self.gpu.get(self.host.bytes.ctypes.data, self.address, self.size)
        zone = np.empty(GUARD_BYTES, np.uint8)
        for start, side in ((self.start, "before"), (self.address + self.size, "after")):
            self.gpu.get(zone.ctypes.data, start, GUARD_BYTES)
            if (zone != _GUARD).any():
                raise Refused("wrong_result", f"the kernel wrote memory {side} {self.host.name}")

    def free(self) -> None:
        self.gpu.free(self.start)


def measure(gpu: Gpu, work: Work) -> Result:
    """Run ``work`` on the GPU; :class:`Refused` with a reason of the closed set."""
    try:
        return _Session(gpu, work).run()
    except OSError as error:
        raise Refused("device", str(error)) from None


class _Session:
    """One kernel's arrays, functions and stream on the device."""

    def __init__(self, gpu: Gpu, work: Work) -> None:
        self.gpu, self.work = gpu, work
        self.module = gpu.load(work.image)
        self.stream = gpu.stream()
        self.memory = Memory(work.about)
        self.workspace = Guarded("the workspace", (work.workspace_bytes,), "u8")
        hosts = (*self.memory.inputs, *self.memory.outputs, self.workspace)
        self.placed = [Placed(gpu, host) for host in hosts]
        # Launches take an array that is input and output where it is an output.
        self.address = {placed.host.name: placed.address for placed in self.placed}
        self.sequence = [self._prepared(launch, values) for launch, values in calls(work.launches)]

    def _prepared(self, launch: LaunchFigures, values: Sequence[int]) -> tuple[Any, LaunchFigures, Any]:
        function = self.gpu.function(self.module, launch.kernel, launch.dynamic_bytes)
        base = self.address["the workspace"]
        addresses = [
            base + int(name[1:]) if name.startswith("@") else self.address[name] for name in launch.arrays
        ]
        return function, launch, (addresses, values)

    def run(self) -> Result:
        self._set_inputs()
        self._checked_call(0)
        first = outputs_of(self.memory)
        outputs = {output.name: output.array.copy() for output in self.memory.outputs}
        self._checked_call(1)
        compare(self.memory, first, "change from call to call")
        seconds, graph = self._timed() if self.work.repeats else ((), False)
        for placed in self.placed:
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
        for placed in self.placed:
            placed.put()
        self._copy_given()
        self._launch()
        self._wait()
        for placed in self.placed:
            placed.get()
        for target in self.memory.inputs:
            target.check_seal()

    def _copy_given(self) -> None:
        """Start arrays that are input and output with the values given. (A timed call goes on with those of
        the call before it, as in place.)"""
        for placed in self.placed:
            if placed.size and (to := self.address[placed.host.name]) != placed.address:
                self.gpu.copy_in(self.stream, to, placed.address, placed.size)

    def _launch(self) -> None:
        for function, launch, call in self.sequence:
            self.gpu.launch(function, launch, self.stream, call)

    def _wait(self) -> None:
        """Wait for the end of all launches, where a fault of a kernel is noticed."""
        try:
            self.gpu.wait(self.stream)
        except OSError as error:
            raise Refused("crash", f"the kernel failed on the GPU: {error}") from None

    # -- time ----------------------------------------------------------------------------------------

    def _timed(self) -> tuple[tuple[float, ...], bool]:
        gpu, work = self.gpu, self.work
        start, end = gpu.event(), gpu.event()
        flush_bytes = FLUSH * work.cache_bytes
        flush = gpu.allocate(flush_bytes) if work.cold else 0

        def once(call: Callable[[], None]) -> float:
            if flush:
                gpu.fill_in(self.stream, flush, 0, flush_bytes)
            gpu.record(start, self.stream)
            call()
            gpu.record(end, self.stream)
            self._wait()
            return gpu.seconds_between(start, end)

        looks = [once(self._launch)]
        if work.stop_above_s is not None and looks[0] > work.stop_above_s:
            if flush:
                gpu.free(flush)
            return tuple(looks), False
        look = min(*looks, *(once(self._launch) for _ in range(WARM_UP - 1)))
        graph = gpu.capture(self.stream, self._launch) if look < SHORT_S else None
        call = self._launch if graph is None else lambda: gpu.replay(graph, self.stream)
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
            gpu.free(flush)
        return tuple(seconds), graph is not None

"""As much of ``torch`` as a benchmark on a GPU uses, without a GPU: it runs on NumPy and keeps its own clock.

Whatever would be a race, or is not allowed at that moment, is an AssertionError: work in one stream on a
tensor that another stream is not known to be done with, memory of a host read meanwhile, synchronising or
compiling while a graph is captured, events that were not recorded or not waited for.

The clock makes order show in figures. A kernel takes its seconds; half of them if every tensor that it reads
was in use since a buffer of twice the last cache was last overwritten. Between two events, a launch by the
host adds :data:`HOST_S` and a graph :data:`GRAPH_S`, whatever it holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from math import prod
from types import SimpleNamespace
from typing import Any

import numpy as np

HOST_S, GRAPH_S = 5e-6, 1e-6
#: Bandwidth of memory in bytes/s, read plus written.
BANDWIDTH = 4e12
L2_BYTES = 1 << 20


class Tensor:
    """An array on the GPU; those larger than a few MiB have no content."""

    def __init__(self, torch: Torch, shape: tuple[int, ...], itemsize: int = 4) -> None:
        self.torch, self.shape, self.bytes = torch, shape, prod(shape) * itemsize
        self.value = np.full(shape, np.nan, np.float32) if self.bytes < 1 << 22 else None
        self.last_use: tuple[int, int] = (0, 0)
        torch.cuda.note_allocation(self)

    def cpu(self) -> Any:
        cuda = self.torch.cuda
        assert cuda.capturing is None, "memory cannot be read while a graph is captured"
        cuda.order(self)
        assert self.value is not None
        return SimpleNamespace(numpy=self.value.copy)

    def copy_(self, other: Tensor) -> Tensor:
        """The driver's copy, which is not the fastest there is."""
        return self.torch.cuda.run("copy_", 1.25 * self.bytes * 2 / BANDWIDTH, self, other)

    def zero_(self) -> Tensor:
        return self.torch.cuda.run("zero_", self.bytes / BANDWIDTH, self)

    def add_(self, value: float) -> Tensor:
        return self.torch.cuda.run("add_", 1e-6, self)


class OneStream:
    """A queue; ``cuda_stream`` is its handle."""

    def __init__(self, cuda: Cuda) -> None:
        self.cuda, self.cuda_stream = cuda, len(cuda.streams)
        cuda.streams.append(self)
        self.count = 0
        #: Handle of another stream -> how many of its launches are done before what is launched here next.
        self.after: dict[int, int] = {}

    def wait_stream(self, stream: OneStream) -> None:
        assert self.cuda.capturing is None
        for handle, count in {**stream.after, stream.cuda_stream: stream.count}.items():
            self.after[handle] = max(count, self.after.get(handle, 0))


class OneEvent:
    def __init__(self, cuda: Cuda, enable_timing: bool) -> None:
        assert enable_timing, "an event without timing has no time"
        self.cuda = cuda
        self.seconds: float | None = None
        self.reached = False

    def record(self) -> None:
        assert self.cuda.capturing is None, "an event of a graph tells no time"
        self.seconds, self.reached = self.cuda.clock, False
        self.cuda.log.append("record")
        self.cuda.events.append(self)

    def elapsed_time(self, end: OneEvent) -> float:
        """Milliseconds."""
        assert self.reached and end.reached, "the GPU has not come there yet"
        assert self.seconds is not None and end.seconds is not None
        return 1e3 * (end.seconds - self.seconds)


class OneGraph:
    def __init__(self, cuda: Cuda) -> None:
        self.cuda = cuda
        self.work: list[tuple[str, tuple[Tensor, ...], Callable[[], float]]] = []
        self.captured = False

    def replay(self) -> None:
        assert self.captured and self.work, "there is nothing to replay"
        self.cuda.log.append(f"replay {' '.join(name for name, *_ in self.work)}")
        self.cuda.clock += GRAPH_S
        for _, tensors, work in self.work:
            for tensor in tensors:
                self.cuda.order(tensor)
            self.cuda.clock += work()


class Cuda:
    """``torch.cuda``."""

    def __init__(self, torch: Torch) -> None:
        self.torch = torch
        self.log: list[str] = []
        """Launches, as the host makes them."""
        self.clock = 0.0
        self.streams: list[OneStream] = []
        self.stack = [OneStream(self)]
        self.capturing: OneGraph | None = None
        self.events: list[OneEvent] = []
        self.cached: set[int] = set()
        """Ids of tensors that were in use since the caches were overwritten."""
        self.allocated: list[Tensor] = []

    # -- what PyTorch has ----------------------------------------------------------------------------

    def Stream(self) -> OneStream:
        return OneStream(self)

    def Event(self, enable_timing: bool = False) -> OneEvent:
        return OneEvent(self, enable_timing)

    def CUDAGraph(self) -> OneGraph:
        return OneGraph(self)

    def is_available(self) -> bool:
        return True

    def get_device_name(self, number: int) -> str:
        return "a stand-in"

    def get_device_properties(self, number: int) -> Any:
        return SimpleNamespace(L2_cache_size=L2_BYTES, multi_processor_count=10, clock_rate=1_000_000)

    def current_stream(self) -> OneStream:
        return self.stack[-1]

    def synchronize(self) -> None:
        assert self.capturing is None, "nothing can be waited for while a graph is captured"
        self.log.append("synchronize")
        for stream in self.streams:
            stream.after = {other.cuda_stream: other.count for other in self.streams}
        for event in self.events:
            event.reached = True
        self.events.clear()

    @contextmanager
    def stream(self, stream: OneStream) -> Iterator[None]:
        self.stack.append(stream)
        try:
            yield
        finally:
            self.stack.pop()

    @contextmanager
    def graph(self, graph: OneGraph) -> Iterator[None]:
        self.synchronize()
        with self.stream(OneStream(self)):
            self.capturing = graph
            try:
                yield
            finally:
                self.capturing = None
        graph.captured = True

    # -- how it works --------------------------------------------------------------------------------

    def note_allocation(self, tensor: Tensor) -> None:
        self.allocated.append(tensor)

    def order(self, tensor: Tensor) -> None:
        """The current stream uses the tensor: it must be past the last use in another stream."""
        stream, (handle, number) = self.current_stream(), tensor.last_use
        done = stream.count if handle == stream.cuda_stream else stream.after.get(handle, 0)
        assert number <= done, "another stream may still be at work on it"
        stream.count += 1
        tensor.last_use = (stream.cuda_stream, stream.count)

    def run(
        self, name: str, seconds: float, out: Tensor, *inputs: Tensor, into: Callable[[], None] | None = None
    ) -> Tensor:
        """Launch a kernel in the current stream; ``into`` computes the content of ``out``."""

        def work() -> float:
            if into is not None:
                into()
            warm = bool(inputs) and all(id(tensor) in self.cached for tensor in inputs)
            if out.bytes >= 2 * L2_BYTES and not inputs:
                self.cached.clear()
            self.cached.update(id(tensor) for tensor in (*inputs, out))
            return seconds / 2 if warm else seconds

        if self.capturing is not None:
            self.capturing.work.append((name, (*inputs, out), work))
        else:
            for tensor in (*inputs, out):
                self.order(tensor)
            self.log.append(name)
            self.clock += HOST_S + work()
        return out


class Torch:
    """``torch``."""

    uint8 = "uint8"
    __version__ = "0"

    def __init__(self) -> None:
        def section(**more: Any) -> SimpleNamespace:
            return SimpleNamespace(allow_tf32=True, **more)

        self.cuda = Cuda(self)
        self.backends = SimpleNamespace(cuda=SimpleNamespace(matmul=section()), cudnn=section())
        self._dynamo = SimpleNamespace(reset=lambda: None)

    def empty(self, shape: Any, dtype: str = "float32", device: str = "cpu") -> Tensor:
        assert device == "cuda"
        return Tensor(self, shape if isinstance(shape, tuple) else (shape,), 1 if dtype == "uint8" else 4)

    def zeros(self, shape: Any, device: str = "cpu") -> Tensor:
        return self.empty(shape, device=device).zero_()

    def mul(self, one: Tensor, factor: float, out: Tensor) -> Tensor:
        assert one.bytes == out.bytes
        return self.cuda.run("mul", out.bytes * 2 / BANDWIDTH, out, one)

    def from_numpy(self, array: Any) -> Any:
        def cuda() -> Tensor:
            tensor = Tensor(self, array.shape)
            assert tensor.value is not None
            tensor.value[...] = array
            return tensor

        return SimpleNamespace(cuda=cuda)

    def compile(self, formula: Callable[..., Any], dynamic: bool, fullgraph: bool) -> Callable[..., Any]:
        """Compiles when it is first called, as PyTorch does."""
        assert fullgraph and not dynamic
        compiled = False

        def call(*inputs: Tensor) -> Tensor:
            nonlocal compiled
            assert compiled or self.cuda.capturing is None, "it has to be compiled before a graph is captured"
            compiled = True
            return formula(*inputs, name="compiled")

        return call

    def formula(self, function: Any, seconds: Mapping[str, float], name: str = "eager") -> Callable[..., Any]:
        """``function`` of arrays as a kernel of the GPU; ``seconds`` for each name that it is called by."""

        def call(*inputs: Tensor, name: str = name) -> Tensor:
            values = [tensor.value for tensor in inputs]
            out = Tensor(self, np.broadcast_shapes(*(tensor.shape for tensor in inputs)))

            def into() -> None:
                out.value = np.asarray(function(*values), np.float32)

            return self.cuda.run(name, seconds[name], out, *inputs, into=into)

        return call

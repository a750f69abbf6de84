"""The SDK's library as a user calls it from Python: a kernel bound to its arrays, as for two of the peers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import perfdojo_sdk
from perfdojo_sdk.peers.operators import Array, Operator
from perfdojo_sdk.peers.systems import Bind, Call


def start(threads: int, library: str) -> Library:
    return Library(perfdojo_sdk.load_library(library), threads)


class Library:
    def __init__(self, library: Any, threads: int) -> None:
        self.version = f"{perfdojo_sdk.__version__} ({library.manifest.target})"
        self._library, self._threads = library, threads

    def variants(self, operator: Operator) -> Mapping[str, Bind]:
        for name in operator.names:
            function = getattr(self._library, name, None)
            if function is not None and any(_fits(kernel, operator) for kernel in function.kernels):
                return {"library": partial(self._call, function)}
        return {}

    def _call(self, function: Any, inputs: list[Array], out: Callable[[], Array]) -> Call:
        call: Call = function.bind(*inputs, out=out(), threads=self._threads)
        return call


def _fits(kernel: Any, operator: Operator) -> bool:
    return tuple((i.shape, i.dtype) for i in kernel.inputs) == tuple((s, "f32") for s in operator.inputs)

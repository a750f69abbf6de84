"""The contenders: each has a module of its own, which uses the system as well as possible in its own process.

A contender offers one or more *variants* of an operator: other algorithms, other layouts, an output in given
memory or in its own. The fastest correct variant takes part in the race.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sysconfig
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from perfdojo_sdk.peers.operators import Array, Operator

Call: TypeAlias = Callable[[], Any]
"""Computes once and returns the result, as an object that NumPy reads without a copy."""

Bind: TypeAlias = Callable[[list[Array], Callable[[], Array]], Call]
"""``bind(inputs, out)``: ``out()`` is memory for the result, made when first asked for."""


class Contender(Protocol):
    """One system on a fixed number of threads."""

    version: str

    def variants(self, operator: Operator) -> Mapping[str, Bind]:
        """Named ways to compute ``operator``; empty when the system cannot."""
        ...


@dataclass(frozen=True)
class Peer:
    """A system to compare with: finds and starts it without importing it."""

    title: str
    module: str
    """Module of this package with ``start(threads, library) -> Contender``."""
    needs: tuple[str, ...] = ()
    """Modules that must be installed."""
    packages: str = ""
    """The arguments of pip install."""
    compiler: bool = False
    """True if it compiles C++ against Python's headers at run time."""

    def missing(self) -> str:
        """The reason why it cannot start, with a remedy; empty when it can."""
        absent = [name for name in self.needs if importlib.util.find_spec(name) is None]
        if absent:
            return f"{self.title} is not installed (pip install {self.packages})"
        if self.compiler and not shutil.which(os.environ.get("CXX", "g++")):
            return f"{self.title} needs a C++ compiler (install g++, or set CXX)"
        if self.compiler and not Path(sysconfig.get_path("include"), "Python.h").exists():
            return f"{self.title} needs Python's headers (install python3-dev, or the like)"
        return ""


OURS = Peer("PerfDojo", "ours")

PEERS = {
    "torch": Peer("PyTorch", "pytorch", ("torch",), "torch"),
    "torch_compile": Peer("torch.compile", "pytorch_compiled", ("torch",), "torch", compiler=True),
    "onnxruntime": Peer("ONNX Runtime", "onnx_runtime", ("onnx", "onnxruntime"), "onnx onnxruntime"),
    "jax": Peer("JAX", "jax_cpu", ("jax", "jaxlib"), "jax"),
    "openvino": Peer("OpenVINO", "openvino_cpu", ("openvino",), "openvino"),
    "numba": Peer("numba", "numba_loops", ("numba", "scipy"), "numba scipy"),
}
"""The six that a summary needs."""

ALL = {**PEERS, "tvm": Peer("TVM", "tvm_schedules", ("tvm",), "apache-tvm apache-tvm-ffi==0.1.14.post1")}
"""All systems, including TVM, whose schedules need a search of their own to be competitive."""

"""The backend interface of ONNX: ``prepare``, ``run_model``, ``run_node``, ``supports_device``.

    import perfdojo_sdk.onnx.backend as backend
    outputs = backend.run_model(model, [x])

Devices are ``INTERPRETER``, the language's interpreter (exact and slow), and ``CPU``, the best target of this
machine. A prepared model is built at its first run, since shapes may depend on inputs; runs with the same
shapes, and the same values where shapes depend on them, reuse it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper
from onnx.backend.base import Backend, BackendRep

from perfdojo_sdk.core.errors import DojoError
from perfdojo_sdk.frontends.onnx.lowering import Fate, operators_refused
from perfdojo_sdk.frontends.onnx.prepared import Prepared
from perfdojo_sdk.frontends.onnx.reading import read_model
from perfdojo_sdk.frontends.onnx.types import array_type
from perfdojo_sdk.graph.graph import Array, Graph
from perfdojo_sdk.graph.refusals import Malformed, Refused
from perfdojo_sdk.graph.running import Execute, interpreted, run_graph
from perfdojo_sdk.models.kernels import CompiledKernels

#: Device of the standard's interface -> what executes there.
INTERPRETER, CPU = "INTERPRETER", "CPU"

_kernels: dict[str, CompiledKernels] = {}


def executor(device: str) -> Execute:
    """The executor of a device; kernels of one device share their compiled code."""
    if device == INTERPRETER:
        return interpreted
    if device not in _kernels:
        from perfdojo_sdk.plugins import load_plugins

        _kernels[device] = CompiledKernels.of(load_plugins(), "best")
    return _kernels[device]


class PerfDojoRep(BackendRep):  # type: ignore[misc]
    """A prepared model."""

    def __init__(self, model: Any, device: str) -> None:
        self.prepared = Prepared(model)
        self._device = device

    def run(self, inputs: Any, **_: Any) -> tuple[Any, ...]:
        """The outputs for inputs in the model's order, or by name; sequences are lists, an optional without
        a value is None."""
        inputs = inputs if isinstance(inputs, dict | list | tuple) else [inputs]
        arrays = self.prepared.arrays(inputs)
        lowered = self.prepared.lowered(arrays, self.prepared.lengths(inputs))
        assert lowered.graph is not None, "a model with refusals is not prepared"
        execute = executor(self._device)
        if isinstance(execute, CompiledKernels):
            execute.prepare(lowered.graph.programs)
        return tuple(lowered.outputs(run_graph(lowered.graph, arrays, execute)))

    def report(self, inputs: Any) -> dict[str, int]:
        """The numbers of nodes of the model that are compiled, moved (views of arrays), folded (constants and
        sizes) and unused, for inputs like these; nothing else is computed elsewhere."""
        inputs = inputs if isinstance(inputs, dict | list | tuple) else [inputs]
        lowered = self.prepared.lowered(self.prepared.arrays(inputs), self.prepared.lengths(inputs))
        return {fate.value: lowered.fates.get(fate, 0) for fate in Fate}

    def graph(self, inputs: Any) -> Graph:
        """The graph for inputs like these."""
        return self.prepared.graph(self.prepared.arrays(inputs))


class PerfDojoBackend(Backend):  # type: ignore[misc]
    """PerfDojo SDK as a backend of ONNX."""

    @classmethod
    def is_compatible(cls, model: Any, device: str = CPU, **_: Any) -> bool:
        """True if nothing in the model is refused when it is read, and every operator has a rule. Shapes may
        be seen only when it runs, and may be refused then."""
        try:
            return cls.supports_device(device) and not operators_refused(read_model(model)[0])
        except (Malformed, Refused):
            return False

    @classmethod
    def prepare(cls, model: Any, device: str = CPU, **_: Any) -> PerfDojoRep:
        if not cls.supports_device(device):
            what = f"the backend has no device {ascii(str(device))[1:-1][:60]}"
            raise DojoError("PD-O001", what, hint=f"its devices are {CPU} and {INTERPRETER}")
        return PerfDojoRep(model, device.partition(":")[0])

    @classmethod
    def run_model(cls, model: Any, inputs: Any, device: str = CPU, **options: Any) -> tuple[Array, ...]:
        return cls.prepare(model, device, **options).run(inputs)

    @classmethod
    def run_node(
        cls,
        node: Any,
        inputs: Any,
        device: str = CPU,
        outputs_info: Sequence[tuple[Any, tuple[int, ...]]] | None = None,
        **options: Any,
    ) -> tuple[Array, ...]:
        """Run one operator; ``opset_version`` is that of the standard, by default the newest."""
        given = [np.asarray(value) for value in (inputs if isinstance(inputs, list | tuple) else [inputs])]
        names = [name for name in node.input if name]
        values = [
            helper.make_tensor_value_info(name, array_type(array), array.shape)
            for name, array in zip(names, given, strict=True)
        ]
        outputs = [onnx.ValueInfoProto(name=name) for name in node.output if name]
        graph = helper.make_graph([node], "node", values, outputs)
        opset = int(options.get("opset_version", onnx.defs.onnx_opset_version()))
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid(node.domain, opset)])
        return cls.run_model(model, given, device)

    @classmethod
    def supports_device(cls, device: Any) -> bool:
        """True for a name of one of its devices, with or without a number; False for everything else."""
        return isinstance(device, str) and device.partition(":")[0] in (INTERPRETER, CPU)


is_compatible = PerfDojoBackend.is_compatible
prepare = PerfDojoBackend.prepare
run_model = PerfDojoBackend.run_model
run_node = PerfDojoBackend.run_node
supports_device = PerfDojoBackend.supports_device

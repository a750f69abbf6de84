"""The backend of ``torch.compile``: ``torch.compile(net, backend="perfdojo")``.

Importing this module sets ``torch._dynamo.config.allow_rnn``. Without it Dynamo gives recurrent layers to no
backend at all, and they would run outside of any graph. It also lets Dynamo put off ``warnings.warn`` to the
end of a graph, which else ends there: a layer that warns would run between two graphs. What Python runs
between graphs is watched (``breaks.py``).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch._dynamo
from torch import SymInt, Tensor

from perfdojo_sdk.frontends.torch.breaks import watch
from perfdojo_sdk.frontends.torch.compiling import (
    PLAIN,
    Choices,
    CompiledGraph,
    GraphReport,
    Unsupported,
    choices,
    compile_graph,
)
from perfdojo_sdk.frontends.torch.lowering import Elsewhere
from perfdojo_sdk.frontends.torch.workshop import Workshop, workshop

torch._dynamo.config.allow_rnn = True
torch._dynamo.config.reorderable_logging_functions.add(warnings.warn)

#: Most sets of sizes for which one graph with open sizes is compiled; calls with others run in PyTorch.
MOST_SIZES = 16


class Compiled:
    """The function that Dynamo calls in place of one of its graphs."""

    def __init__(self, module: Any, inputs: Sequence[Any], chosen: Choices) -> None:
        self._module, self._chosen = module, chosen
        self.reports: list[GraphReport] = []
        self._graphs: list[CompiledGraph] = []
        self._by_sizes: dict[tuple[Any, ...], Callable[..., Any]] = {}
        self._open = any(isinstance(value, SymInt) for value in inputs)
        self._call: Callable[..., Any] | None = None
        reason = whole_reason(inputs)
        if reason:
            self._call = self._given_up(reason)
        elif not self._open:
            self._call = self._compiled(inputs)

    def __call__(self, *inputs: Any) -> Any:
        if self._call is not None:
            return self._call(*inputs)
        sizes = tuple(tuple(v.shape) if isinstance(v, Tensor) else v for v in inputs)
        call = self._by_sizes.get(sizes)
        if call is None:
            if any(type(v) not in PLAIN and isinstance(v, Tensor) for v in inputs):
                return self._module(*inputs)
            enough = len(self._by_sizes) >= MOST_SIZES
            call = self._too_many_sizes() if enough else self._compiled(inputs)
            self._by_sizes[sizes] = call
        return call(*inputs)

    def repack(self) -> None:
        """Pack parameters again at the next call, whatever their versions say."""
        for graph in self._graphs:
            graph.repack()

    def _compiled(self, inputs: Sequence[Any]) -> Callable[..., Any]:
        numbers = {k: v for k, v in enumerate(inputs) if not isinstance(v, Tensor)}
        shop = None if self._chosen.interpret else workshop_for(self._chosen)
        tensors = [v for v in inputs if isinstance(v, Tensor)]

        def function(*given: Any) -> Any:
            rest = iter(given)
            return self._module(*(numbers[k] if k in numbers else next(rest) for k in range(len(inputs))))

        whole = self._module if not numbers else function
        call, report = compile_graph(whole, tensors, self._chosen, shop)
        self.reports.append(report)
        if isinstance(call, CompiledGraph):
            self._graphs.append(call)
        if report.whole:
            return self._module  # type: ignore[no-any-return]
        if not numbers:
            return call
        return lambda *given: call(*[v for v in given if isinstance(v, Tensor)])

    def _too_many_sizes(self) -> Callable[..., Any]:
        reason = f"it was compiled for {MOST_SIZES} sets of sizes; further ones run in PyTorch"
        if any(each.whole == reason for each in self.reports):
            return self._module  # type: ignore[no-any-return]
        return self._given_up(reason)

    def _given_up(self, reason: str) -> Callable[..., Any]:
        if not self._chosen.policy.peer_for(None):
            raise Unsupported([Elsewhere("the whole graph", "", reason)])
        warnings.warn(f"PyTorch runs this graph, not PerfDojo: {reason}", stacklevel=3)
        self.reports.append(GraphReport((), (), reason))
        return self._module  # type: ignore[no-any-return]


def workshop_for(chosen: Choices) -> Workshop:
    """The workshop that builds kernels under these choices."""
    return workshop(chosen.target, chosen.threads or torch.get_num_threads(), chosen.tune)


def whole_reason(inputs: Sequence[Any]) -> str:
    """The reason why no part of a graph is ours; empty if some may be."""
    tensors = [value for value in inputs if isinstance(value, Tensor)]
    if torch.is_grad_enabled() and any(t.requires_grad for t in tensors):
        return "gradients are recorded; call it under torch.no_grad() or torch.inference_mode()"
    if torch.is_autocast_enabled("cpu"):
        return "autocast is on"
    if any(t.device.type != "cpu" for t in tensors):
        return f"it has tensors on {next(t.device.type for t in tensors if t.device.type != 'cpu')}"
    if any(t.layout != torch.strided for t in tensors):
        return "it has sparse tensors"
    return ""


def perfdojo(
    module: Any, inputs: Sequence[Any], *, options: Mapping[str, Any] | None = None, mode: str | None = None
) -> Callable[..., Any]:
    """Compile a graph of Dynamo's. ``options``: see :class:`Choices`; ``mode`` has no meaning here."""
    return Compiled(module, inputs, choices(options))


watch(perfdojo)
